//! The responses of Prometheus' HTTP API, read while they arrive.

mod element;
mod metadata;
mod parse;
mod passed;
mod scan;
mod split;
mod times;

use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::model::{Labels, Steps, Timestamp};
use crate::outbound::Bytes;
use crate::promql::{QueryError, Value};
use crate::tsdb::{Description, Listing, SeriesExemplars};
use element::{ElementReader, exemplars_of};
use metadata::descriptions;
pub use passed::PassedResult;
use split::{Malformed, Splitter, TakeElement};

use super::request::UpstreamRead;

/// The most bytes of a response in addition to its list. Metadata has no list.
const ENVELOPE_BYTES_MAX: usize = 1 << 20;
/// The most bytes of one element of the list. An element is parsed as a whole.
const ELEMENT_BYTES_MAX: usize = 32 << 20;
/// The most bytes of the metadata of all metrics.
const METADATA_BYTES_MAX: usize = 32 << 20;
/// The most warnings of a response that are passed on, and as many infos.
const WARNINGS_MAX: usize = 100;
/// The most bytes of a passed warning.
const WARNING_BYTES_MAX: usize = 1_024;

/// The warning about an answer that lacks data.
const PARTIAL: &str = "the upstream's answer is partial: some of its data was not available";

/// The response of a server.
#[derive(Clone, Debug, PartialEq)]
pub struct UpstreamAnswer {
    /// The data.
    pub data: AnswerData,
    /// Warnings of the server.
    pub warnings: Vec<String>,
    /// Infos of the server.
    pub infos: Vec<String>,
    /// The memory of the answer in bytes.
    pub bytes: u64,
}

impl UpstreamAnswer {
    /// Returns an answer without warnings and infos.
    pub const fn of(data: AnswerData) -> UpstreamAnswer {
        UpstreamAnswer { data, warnings: Vec::new(), infos: Vec::new(), bytes: 0 }
    }

    /// Replaces the texts of the server, which may contain names that a token must not learn.
    pub fn hide_texts(&mut self) {
        const HIDDEN: &str = "the upstream reported warnings";
        let is_any = self.warnings.iter().any(|text| text != PARTIAL);
        self.warnings.retain(|text| text == PARTIAL);
        self.warnings.extend(is_any.then(|| HIDDEN.to_owned()));
        self.infos.clear();
    }
}

/// The result of a query.
#[derive(Clone, Debug, PartialEq)]
pub struct QueryAnswer {
    /// The value.
    pub value: QueryValue,
    /// The number of values.
    pub samples: u64,
}

/// The value of a query.
#[derive(Clone, Debug, PartialEq)]
pub enum QueryValue {
    /// A scalar or a string.
    Parsed(Value),
    /// A vector in the order of the server, or a matrix, sorted by labels.
    Passed(Arc<PassedResult>),
}

/// An answer with raw samples, which has not been decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawAnswer {
    /// The content type of the response.
    pub content_type: String,
    /// The whole body.
    pub body: Bytes,
}

/// The data of a response, by the kind of the read.
#[derive(Clone, Debug, PartialEq)]
pub enum AnswerData {
    /// The answer to [`UpstreamRead::Query`].
    Query(QueryAnswer),
    /// The answer to [`UpstreamRead::Series`], sorted.
    Series(Listing<Labels>),
    /// The answer to [`UpstreamRead::LabelNames`] and [`UpstreamRead::LabelValues`], sorted.
    Texts(Listing<Arc<str>>),
    /// The answer to [`UpstreamRead::Metadata`], sorted by name.
    Metadata(Vec<Description>),
    /// The answer to [`UpstreamRead::Exemplars`].
    Exemplars(Vec<SeriesExemplars>),
    /// The answer to [`UpstreamRead::RemoteRead`] and [`UpstreamRead::RawMatrix`].
    Raw(RawAnswer),
    /// The answer to [`UpstreamRead::RemoteRead`], if the server does not offer it.
    NoRemoteRead,
    /// The upstream does not support the request. The caller of a split evaluates it another way.
    Unsupported(String),
}

/// The reason why a response cannot be used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(super) enum AnswerError {
    /// The response does not have the format of Prometheus' API.
    #[error("{0}")]
    Invalid(String),
    /// The server reports an error.
    #[error("{0}")]
    Reported(String),
    /// The response has values that promlet cannot return.
    #[error("{0}")]
    Unsupported(String),
    /// A limit of the query.
    #[error(transparent)]
    Query(#[from] QueryError),
}

impl From<Malformed> for AnswerError {
    fn from(error: Malformed) -> AnswerError {
        match error {
            Malformed::Text(why) => AnswerError::Invalid(why),
            Malformed::ElementTooLarge(most) => {
                let (needed, allowed) = ((most as u64).saturating_add(1), most as u64);
                QueryError::TooMuchMemory { needed, allowed }.into()
            }
        }
    }
}

fn invalid<T>(why: impl std::fmt::Display) -> Result<T, AnswerError> {
    Err(AnswerError::Invalid(why.to_string()))
}

/// Reads one response.
#[derive(Debug)]
pub(super) struct AnswerReader {
    read: UpstreamRead,
    splitter: Splitter,
    elements: ElementReader,
    found: Found,
    /// Whether a partial answer is an error.
    is_whole: bool,
}

/// The elements so far.
#[derive(Debug, Default)]
struct Found {
    labels: Vec<Labels>,
    texts: Vec<Arc<str>>,
    exemplars: Vec<SeriesExemplars>,
    /// The elements of a scalar or a string.
    raw: Vec<Box<RawValue>>,
}

/// Takes the elements of a response to `read`.
struct ElementTaker<'r> {
    read: &'r UpstreamRead,
    elements: &'r mut ElementReader,
    found: &'r mut Found,
}

impl TakeElement<AnswerError> for ElementTaker<'_> {
    fn take_first(&mut self, text: &[u8]) -> Result<Option<usize>, AnswerError> {
        if !matches!(self.read, UpstreamRead::Query { .. }) {
            return Ok(None);
        }
        self.elements.first_series(text)
    }

    fn take(&mut self, element: &[u8]) -> Result<(), AnswerError> {
        let ElementTaker { read, elements, found } = self;
        match read {
            UpstreamRead::Query { .. } if element.first() == Some(&b'{') => {
                elements.series(element)?;
            }
            UpstreamRead::Query { .. } if found.raw.len() < 2 => {
                found.raw.push(serde_json::from_slice(element).or_else(invalid)?);
            }
            UpstreamRead::Query { .. }
            | UpstreamRead::Metadata { .. }
            | UpstreamRead::RemoteRead { .. }
            | UpstreamRead::RawMatrix { .. } => return invalid("an element is not a series"),
            UpstreamRead::Series { .. } => found.labels.push(elements.labels(element)?),
            UpstreamRead::LabelNames { .. } => found.texts.extend(elements.name(element)?),
            UpstreamRead::LabelValues { .. } => found.texts.push(elements.value(element)?),
            UpstreamRead::Exemplars { .. } => found.exemplars.push(exemplars_of(elements, element)?),
        }
        Ok(())
    }
}

/// A response without its list.
#[derive(Deserialize)]
struct ResponseEnvelope {
    status: String,
    data: Option<Box<RawValue>>,
    error: Option<String>,
    #[serde(default)]
    warnings: Option<Vec<String>>,
    #[serde(default)]
    infos: Option<Vec<String>>,
    /// VictoriaMetrics sets it if a storage node does not answer.
    #[serde(rename = "isPartial", default)]
    is_partial: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResultKind {
    result_type: String,
    result: Box<RawValue>,
}

impl AnswerReader {
    /// Creates a reader of the response to `read`. `hidden` is removed from label sets. A partial
    /// answer is an error if it must be whole.
    pub(super) fn new(
        read: &UpstreamRead,
        hidden: Option<&str>,
        samples_max: u64,
        is_whole: bool,
    ) -> AnswerReader {
        let envelope_max = match read {
            UpstreamRead::Metadata { .. } => METADATA_BYTES_MAX,
            _ => ENVELOPE_BYTES_MAX,
        };
        let (steps, at) = match read {
            UpstreamRead::Query { steps, instant, .. } => ((!instant).then_some(*steps), steps.start()),
            _ => (None, Timestamp::MIN),
        };
        AnswerReader {
            read: read.clone(),
            splitter: Splitter::new(envelope_max, ELEMENT_BYTES_MAX),
            elements: ElementReader::new(hidden, steps, at, samples_max),
            found: Found::default(),
            is_whole,
        }
    }

    /// Returns the bytes that are held.
    pub(super) fn held_bytes(&self) -> u64 {
        (self.splitter.held_bytes() as u64).saturating_add(self.elements.held_bytes())
    }

    /// Returns the bytes that take long to finish, at least. The rest is only passed on.
    pub(super) fn unfinished_bytes(&self) -> u64 {
        (self.splitter.held_bytes() as u64).saturating_add(self.elements.unfinished_bytes())
    }

    /// Takes the next bytes.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<(), AnswerError> {
        let AnswerReader { read, splitter, elements, found, .. } = self;
        splitter.push(bytes, &mut ElementTaker { read, elements, found })
    }

    /// Returns the data of a complete response. Parses metadata and sorts, which takes long.
    pub(super) fn finish(self) -> Result<UpstreamAnswer, AnswerError> {
        let AnswerReader { read, splitter, elements, found, is_whole } = self;
        let envelope = splitter.finish()?;
        let envelope: ResponseEnvelope = serde_json::from_slice(&envelope).or_else(invalid)?;
        if envelope.status != "success" {
            return Err(AnswerError::Reported(envelope.error.unwrap_or_default()));
        }
        if envelope.is_partial && is_whole {
            return invalid("it is partial: some of the data was not available");
        }
        let data = envelope.data.as_deref().map(RawValue::get);
        // The elements were removed from the list. Any left means that it was not found, for
        // example because the name of a member has escapes.
        let is_list = data == Some("[]");
        let no_list = |what: &str| invalid(format!("data is not a list of {what}"));
        let held_bytes = elements.held_bytes();
        let data = match &read {
            UpstreamRead::Query { steps, instant, .. } => {
                let Some(data) = data else { return invalid("data is missing") };
                let kind: ResultKind = serde_json::from_str(data).or_else(invalid)?;
                if kind.result.get() != "[]" {
                    return no_list("values");
                }
                let samples = elements.samples();
                let value = value(elements, &found.raw, &kind.result_type, (*steps, *instant))?;
                AnswerData::Query(QueryAnswer { value, samples })
            }
            UpstreamRead::Series { limit, .. } if is_list => {
                let mut items = found.labels;
                items.sort();
                items.dedup();
                let truncated = items.len() > *limit;
                items.truncate(*limit);
                AnswerData::Series(Listing { items, truncated })
            }
            UpstreamRead::LabelNames { limit, .. } | UpstreamRead::LabelValues { limit, .. } if is_list => {
                let mut items = found.texts;
                items.sort();
                items.dedup();
                let truncated = items.len() > *limit;
                items.truncate(*limit);
                AnswerData::Texts(Listing { items, truncated })
            }
            UpstreamRead::Exemplars { .. } if is_list => AnswerData::Exemplars(found.exemplars),
            UpstreamRead::Metadata { .. } => AnswerData::Metadata(descriptions(data)?),
            UpstreamRead::Series { .. } => return no_list("series"),
            // Some servers return null for nothing.
            UpstreamRead::Exemplars { .. } if data.is_none_or(|data| data == "null") => {
                AnswerData::Exemplars(Vec::new())
            }
            UpstreamRead::Exemplars { .. } => return no_list("exemplars"),
            UpstreamRead::LabelNames { .. } | UpstreamRead::LabelValues { .. } => return no_list("texts"),
            UpstreamRead::RemoteRead { .. } | UpstreamRead::RawMatrix { .. } => return no_list("samples"),
        };
        let mut warnings = shortened(envelope.warnings);
        if envelope.is_partial {
            warnings.insert(0, PARTIAL.to_owned());
        }
        // The memory of other data was charged while it arrived.
        let metadata = if let AnswerData::Metadata(all) = &data { metadata::bytes_of(all) } else { 0 };
        let (infos, bytes) = (shortened(envelope.infos), held_bytes.saturating_add(metadata));
        Ok(UpstreamAnswer { data, warnings, infos, bytes })
    }
}

/// Bounds the texts of a server. The warning about its own limit is left out, because one more item
/// than the caller's limit was requested.
fn shortened(texts: Option<Vec<String>>) -> Vec<String> {
    let texts = texts.unwrap_or_default().into_iter().filter(|text| text != "results truncated due to limit");
    let cut = |text: String| {
        let end = text.floor_char_boundary(WARNING_BYTES_MAX);
        text.get(..end).unwrap_or_default().chars().filter(|c| !c.is_control()).collect()
    };
    texts.take(WARNINGS_MAX).map(cut).collect()
}

fn value(
    elements: ElementReader,
    raw: &[Box<RawValue>],
    kind: &str,
    (steps, instant): (Steps, bool),
) -> Result<QueryValue, AnswerError> {
    let at = steps.start();
    let has_no = |has: bool, what: &str| match has {
        false => Ok(()),
        true => invalid(format!("a {kind} has {what}")),
    };
    match (kind, instant) {
        ("matrix", _) => {
            has_no(!raw.is_empty(), "values without a series")?;
            let hides_label = elements.hides_label();
            match elements.into_series().into_matrix() {
                Some((matrix, false)) => Ok(QueryValue::Passed(matrix.into())),
                Some((_, true)) if hides_label => {
                    // The query may have set the label, so this is not a fault of the server.
                    let why = "series of the result differ only in the label of the tenant, which is removed";
                    Err(AnswerError::Unsupported(why.to_owned()))
                }
                Some((_, true)) => invalid("two series have the same labels"),
                None => invalid("a series has one value"),
            }
        }
        ("vector", true) => {
            has_no(!raw.is_empty(), "values without a series")?;
            match elements.into_series().into_vector() {
                Some(vector) => Ok(QueryValue::Passed(vector.into())),
                None => invalid("a series of a vector has not one value"),
            }
        }
        ("scalar" | "string", true) => {
            has_no(elements.has_series(), "series")?;
            let [_, text] = raw else { return invalid("a scalar or string has not two parts") };
            let text: String = serde_json::from_str(text.get()).or_else(invalid)?;
            Ok(QueryValue::Parsed(match kind {
                "string" => Value::Text { at, text },
                _ => Value::Scalar { at, value: text.parse().or_else(invalid)? },
            }))
        }
        _ => invalid(format!("a result of the type {kind:?} is not expected")),
    }
}

/// Converts seconds to a time.
fn time_of(seconds: f64) -> Option<Timestamp> {
    let ms = (seconds * 1_000.0).round();
    // A double has more than three decimals of these seconds.
    #[expect(clippy::cast_possible_truncation, reason = "the bounds are exact in a double")]
    (ms.abs() < 1e15).then(|| Timestamp::from_ms(ms as i64))
}

#[cfg(test)]
mod tests;
