//! The elements of a response: series with their values, label sets, texts and exemplars.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, de};

use super::parse::LabelTexts;
use super::passed::{PassedWriter, PrintedValues};
use super::times::TimeCheck;
use super::{AnswerError, invalid, time_of};
use crate::model::{Exemplar, Labels, Sample, Steps, Timestamp};
use crate::promql::QueryError;
use crate::tsdb::SeriesExemplars;

/// The most labels of a series, inclusive.
pub(super) const LABELS_MAX: usize = 1_024;

/// Reads elements, and counts their contents.
#[derive(Debug)]
pub(super) struct ElementReader {
    /// A label that is removed.
    hidden: Option<Box<str>>,
    /// The steps of a range query; `None` allows all times.
    steps: Option<Steps>,
    samples_max: u64,
    samples: u64,
    bytes: u64,
    texts: LabelTexts,
    /// The series of a query's result.
    series: PassedWriter,
}

#[derive(Deserialize)]
pub(super) struct SeriesElement<'a> {
    #[serde(borrow)]
    pub(super) metric: LabelPairs<'a>,
    pub(super) value: Option<Point>,
    pub(super) values: Option<Vec<Point>>,
    histogram: Option<IgnoredAny>,
    histograms: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExemplarsElement<'a> {
    #[serde(borrow)]
    series_labels: LabelPairs<'a>,
    exemplars: Vec<ExemplarElement<'a>>,
}

#[derive(Deserialize)]
struct ExemplarElement<'a> {
    #[serde(borrow)]
    labels: LabelPairs<'a>,
    #[serde(borrow)]
    value: Text<'a>,
    timestamp: f64,
}

/// A text that is borrowed unless it has escapes.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// The name and the value of a label.
pub(super) type LabelPair<'a> = (Cow<'a, str>, Cow<'a, str>);

/// The labels of a series in the order of the response.
pub(super) struct LabelPairs<'a>(pub(super) Vec<LabelPair<'a>>);

impl<'de: 'a, 'a> Deserialize<'de> for LabelPairs<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<LabelPairs<'a>, D::Error> {
        struct PairsVisitor;

        impl<'de> Visitor<'de> for PairsVisitor {
            type Value = LabelPairs<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("labels")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<LabelPairs<'de>, A::Error> {
                let mut pairs = Vec::new();
                while let Some((Text(name), Text(value))) = map.next_entry()? {
                    if pairs.len() == LABELS_MAX {
                        return Err(A::Error::custom(format!("more than {LABELS_MAX} labels")));
                    }
                    pairs.push((name, value));
                }
                Ok(LabelPairs(pairs))
            }
        }

        from.deserialize_map(PairsVisitor)
    }
}

/// A time and a value: `[1435781430.781,"1"]`.
pub(super) struct Point(pub(super) Sample);

impl<'de> Deserialize<'de> for Point {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Point, D::Error> {
        struct PointVisitor;

        impl<'de> Visitor<'de> for PointVisitor {
            type Value = Point;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a time and a value")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut pair: A) -> Result<Point, A::Error> {
                let short = || A::Error::custom("a time and a value are expected");
                let seconds: f64 = pair.next_element()?.ok_or_else(short)?;
                let Text(text) = pair.next_element()?.ok_or_else(short)?;
                if pair.next_element::<IgnoredAny>()?.is_some() {
                    return Err(short());
                }
                let at = time_of(seconds).ok_or_else(|| A::Error::custom("the time is out of range"))?;
                let value = text
                    .parse()
                    .map_err(|_| A::Error::invalid_value(de::Unexpected::Str(&text), &"a number"))?;
                Ok(Point(Sample { at, value }))
            }
        }

        from.deserialize_seq(PointVisitor)
    }
}

impl ElementReader {
    /// Creates a reader. `hidden` is removed from label sets. A range query has `steps`, an
    /// instant query the time `at`.
    pub(super) fn new(
        hidden: Option<&str>,
        steps: Option<Steps>,
        at: Timestamp,
        samples_max: u64,
    ) -> ElementReader {
        let hidden: Option<Box<str>> = hidden.map(Box::from);
        ElementReader {
            series: PassedWriter::new(hidden.clone(), steps, at),
            hidden,
            steps,
            samples_max,
            samples: 0,
            bytes: 0,
            texts: LabelTexts::default(),
        }
    }

    /// Returns the series of a query's result.
    pub(super) fn into_series(self) -> PassedWriter {
        self.series
    }

    /// Returns the bytes that take long to finish: all except for the text of series that need no
    /// sort.
    pub(super) fn unfinished_bytes(&self) -> u64 {
        let series = if self.series.needs_sort() { self.series.held_bytes() } else { 0 };
        self.bytes.saturating_add(self.texts.bytes()).saturating_add(series as u64)
    }

    /// Returns whether the result has any series.
    pub(super) const fn has_series(&self) -> bool {
        self.series.series_count() > 0
    }

    /// Returns the number of values so far.
    pub(super) fn samples(&self) -> u64 {
        self.samples
    }

    /// Returns the bytes of the elements so far.
    pub(super) fn held_bytes(&self) -> u64 {
        self.bytes.saturating_add(self.texts.bytes()).saturating_add(self.series.held_bytes() as u64)
    }

    /// Returns whether a label is removed.
    pub(super) fn hides_label(&self) -> bool {
        self.hidden.is_some()
    }

    fn hold(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes as u64);
    }

    /// Removes hidden labels and empty values, and sorts the others by name.
    fn shown<'a>(&self, LabelPairs(mut pairs): LabelPairs<'a>) -> Result<Vec<LabelPair<'a>>, AnswerError> {
        pairs.retain(|(name, value)| !value.is_empty() && Some(&**name) != self.hidden.as_deref());
        pairs.sort();
        if pairs.windows(2).any(|pair| pair[0].0 == pair[1].0)
            || pairs.iter().any(|(name, _)| name.is_empty())
        {
            return invalid("a label occurs twice or has no name");
        }
        Ok(pairs)
    }

    fn label_set(&mut self, pairs: LabelPairs<'_>) -> Result<Labels, AnswerError> {
        Ok(self.texts.labels(&self.shown(pairs)?))
    }

    /// Takes a series with its values.
    pub(super) fn series(&mut self, element: &[u8]) -> Result<(), AnswerError> {
        match self.series.copy(element) {
            Some((length, values)) if length == element.len() => self.admit(values),
            Some(_) => invalid("something follows a series"),
            None => self.any_series(element),
        }
    }

    /// Takes the series at the beginning of a text, if it has the usual form. Returns the bytes
    /// that it has.
    pub(super) fn first_series(&mut self, text: &[u8]) -> Result<Option<usize>, AnswerError> {
        let Some((length, values)) = self.series.copy(text) else { return Ok(None) };
        self.admit(values)?;
        Ok(Some(length))
    }

    /// Counts the values of a series.
    fn admit(&mut self, values: usize) -> Result<(), AnswerError> {
        self.samples = self.samples.saturating_add(values as u64);
        if self.samples > self.samples_max {
            return Err(QueryError::TooManySamples { allowed: self.samples_max }.into());
        }
        Ok(())
    }

    /// Takes a series in any form.
    fn any_series(&mut self, element: &[u8]) -> Result<(), AnswerError> {
        let SeriesElement { metric, value, values, histogram, histograms } =
            serde_json::from_slice(element).or_else(invalid)?;
        if histogram.is_some() || histograms.is_some() {
            let why = "the result has native histograms, which are not passed on from an upstream";
            return Err(AnswerError::Unsupported(why.to_owned()));
        }
        let labels = self.shown(metric)?;
        let (values, count) = match (value, values) {
            (Some(Point(sample)), None) => (PrintedValues::One(sample.value), 1),
            (None, Some(all)) => {
                let mut times = TimeCheck::new(self.steps.as_ref());
                if !all.iter().all(|Point(sample)| times.admits(sample.at)) {
                    return invalid("the times of a series do not ascend, or are no steps of the query");
                }
                let samples: Vec<Sample> = all.into_iter().map(|Point(sample)| sample).collect();
                let count = samples.len();
                (PrintedValues::Many(samples), count)
            }
            _ => return invalid("a series has neither one value nor many"),
        };
        self.series.print(&labels, &values);
        self.admit(count)
    }

    /// Reads a label set.
    pub(super) fn labels(&mut self, element: &[u8]) -> Result<Labels, AnswerError> {
        let pairs = serde_json::from_slice(element).or_else(invalid)?;
        let labels = self.label_set(pairs)?;
        self.hold(Labels::own_bytes(labels.len()) + size_of::<Labels>());
        Ok(labels)
    }

    /// Reads the value of a label.
    pub(super) fn value(&mut self, element: &[u8]) -> Result<Arc<str>, AnswerError> {
        let Text(text) = serde_json::from_slice(element).or_else(invalid)?;
        self.hold(text.len() + 48);
        Ok(text.into())
    }

    /// Reads the name of a label; `None` for the removed one.
    pub(super) fn name(&mut self, element: &[u8]) -> Result<Option<Arc<str>>, AnswerError> {
        let name = self.value(element)?;
        Ok(Some(name).filter(|name| Some(&**name) != self.hidden.as_deref()))
    }
}

/// Reads the exemplars of a series.
pub(super) fn exemplars_of(
    reader: &mut ElementReader,
    element: &[u8],
) -> Result<SeriesExemplars, AnswerError> {
    let ExemplarsElement { series_labels, exemplars } = serde_json::from_slice(element).or_else(invalid)?;
    let labels = reader.label_set(series_labels)?;
    reader.hold(Labels::own_bytes(labels.len()) + size_of::<SeriesExemplars>());
    let mut read = Vec::with_capacity(exemplars.len());
    for ExemplarElement { labels, value: Text(value), timestamp } in exemplars {
        let Some(at) = time_of(timestamp) else { return invalid("the time of an exemplar is out of range") };
        let LabelPairs(pairs) = labels;
        let value = value.parse().or_else(invalid)?;
        reader.hold(size_of::<Exemplar>() + pairs.len() * 64);
        read.push(Exemplar { labels: Labels::from_pairs(pairs), value, at });
    }
    Ok(SeriesExemplars { labels, exemplars: read })
}
