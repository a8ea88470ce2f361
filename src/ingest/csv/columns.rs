//! What the columns mean.

use super::number;
use crate::ingest::pairs::LABELS_PARSED_MAX;
use crate::model::{METRIC_NAME, Timestamp};

/// The last column that can be named.
const PLACE_MAX: usize = 2_048;

/// What the columns of a body mean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Columns(Option<Layout>);

/// Why it cannot be told what the columns mean.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ColumnsError {
    /// A part that is not `2:metric:ask`.
    #[error(
        "{0:?} is no column: write its number, what it is and how, as in 2:metric:ask, 3:label:market or 1:time:unix_s"
    )]
    Column(String),
    /// A number that is none, or too great.
    #[error("{0:?} is no number of a column: they count from 1 to 2048")]
    Place(String),
    /// A way of writing times that is not known.
    #[error("{0:?} is no format of times: unix_s, unix_ms, unix_ns and rfc3339 are")]
    Time(String),
    /// A column or a label that is named twice.
    #[error("{0} is there twice")]
    Twice(String),
    /// No column has what is needed.
    #[error("no column is {0}")]
    Missing(&'static str),
    /// More than a series may have.
    #[error("{0} labels, at most 1024 are read")]
    Labels(usize),
    /// No header.
    #[error("the first line must name the columns: {0}")]
    NoHeader(&'static str),
}

/// What a cell of times holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Time {
    Seconds,
    Millis,
    Nanos,
    Rfc3339,
    /// Seconds or RFC 3339.
    Either,
}

/// Where a text comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Name {
    Given(String),
    Cell(usize),
}

/// Which cells are read. Places count from 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Layout {
    /// Cells that a record must have;
    pub(super) cells: usize,
    /// and whether it must not have more.
    pub(super) is_exact: bool,
    pub(super) time: Option<(usize, Time)>,
    /// Cells of values, and their metrics' names.
    pub(super) values: Vec<(usize, Name)>,
    pub(super) labels: Vec<(usize, String)>,
}

impl Columns {
    /// The first line names them.
    pub const fn header() -> Columns {
        Columns(None)
    }

    /// Reads `2:metric:ask,3:label:market,1:time:unix_s`: number, what it is, and its name or format.
    ///
    /// # Errors
    /// [`ColumnsError`], with the part that is wrong.
    pub fn parse(text: &str) -> Result<Columns, ColumnsError> {
        let mut layout = Layout::default();
        let mut places = Vec::new();
        for part in text.split(',').map(str::trim) {
            let column = || ColumnsError::Column(told(part));
            let (place, rest) = part.split_once(':').ok_or_else(column)?;
            let (kind, name) = rest.split_once(':').ok_or_else(column)?;
            let number = place.parse().ok().filter(|number| (1..=PLACE_MAX).contains(number));
            let number: usize = number.ok_or_else(|| ColumnsError::Place(told(place)))?;
            if places.contains(&number) {
                return Err(ColumnsError::Twice(format!("column {number}")));
            }
            places.push(number);
            layout.cells = layout.cells.max(number);
            let place = number.saturating_sub(1);
            match (kind, name) {
                ("metric" | "label", "") => return Err(column()),
                ("metric", name) => layout.values.push((place, Name::Given(name.to_owned()))),
                ("label", name) => layout.labels.push((place, name.to_owned())),
                ("time", format) => layout.set_time(place, Time::named(format)?)?,
                _ => return Err(column()),
            }
        }
        if layout.values.is_empty() {
            return Err(ColumnsError::Missing("a metric: 2:metric:NAME"));
        }
        layout.check_labels()?;
        Ok(Columns(Some(layout)))
    }

    pub(super) const fn layout(&self) -> Option<&Layout> {
        self.0.as_ref()
    }
}

impl Layout {
    /// What a header says.
    pub(super) fn of_header(names: &[&str]) -> Result<Layout, ColumnsError> {
        let mut layout = Layout { cells: names.len(), is_exact: true, ..Layout::default() };
        let (mut value, mut metric) = (None, None);
        for (place, name) in names.iter().map(|name| name.trim()).enumerate() {
            let (word, format) = name.split_once(':').unwrap_or((name, ""));
            let is = |known: &str| word.eq_ignore_ascii_case(known);
            let before = if is("time") || is("timestamp") {
                let time = if format.is_empty() { Time::Either } else { Time::named(format)? };
                layout.set_time(place, time)?;
                None
            } else if name.eq_ignore_ascii_case("value") {
                value.replace(place)
            } else if name.eq_ignore_ascii_case("metric") || name == METRIC_NAME {
                metric.replace(place)
            } else if name.is_empty() {
                return Err(ColumnsError::NoHeader("a name is empty"));
            } else {
                layout.labels.push((place, name.to_owned()));
                None
            };
            if before.is_some() {
                return Err(ColumnsError::Twice(told(name)));
            }
        }
        let value = value.ok_or(ColumnsError::Missing("named value"))?;
        let metric = metric.ok_or(ColumnsError::Missing("named metric"))?;
        layout.values.push((value, Name::Cell(metric)));
        layout.check_labels()?;
        Ok(layout)
    }

    fn set_time(&mut self, place: usize, time: Time) -> Result<(), ColumnsError> {
        match self.time.replace((place, time)) {
            None => Ok(()),
            Some(_) => Err(ColumnsError::Twice("the time".to_owned())),
        }
    }

    fn check_labels(&self) -> Result<(), ColumnsError> {
        if self.labels.len() >= LABELS_PARSED_MAX {
            return Err(ColumnsError::Labels(self.labels.len()));
        }
        let mut names: Vec<&str> = self.labels.iter().map(|(_, name)| &**name).chain([METRIC_NAME]).collect();
        names.sort_unstable();
        let twice = names.iter().zip(names.iter().skip(1)).find(|(name, next)| name == next);
        twice.map_or(Ok(()), |(name, _)| Err(ColumnsError::Twice(format!("the label {:?}", told(name)))))
    }
}

impl Time {
    fn named(word: &str) -> Result<Time, ColumnsError> {
        Ok(match word {
            "unix_s" => Time::Seconds,
            "unix_ms" => Time::Millis,
            "unix_ns" => Time::Nanos,
            "rfc3339" => Time::Rfc3339,
            _ => return Err(ColumnsError::Time(told(word))),
        })
    }

    pub(super) const fn words(self) -> &'static str {
        match self {
            Time::Seconds => "unix seconds",
            Time::Millis => "unix milliseconds",
            Time::Nanos => "unix nanoseconds",
            Time::Rfc3339 => "RFC 3339",
            Time::Either => "unix seconds or RFC 3339",
        }
    }

    /// What is below a millisecond is rounded down.
    pub(super) fn read(self, text: &str) -> Option<Timestamp> {
        let ms = match self {
            Time::Seconds => number::parse_seconds(text)?,
            Time::Millis => number::parse_scaled(text, 0)?,
            Time::Nanos => number::parse_scaled(text, -6)?,
            Time::Rfc3339 => return Timestamp::from_rfc3339(text),
            Time::Either if text.contains(':') => return Timestamp::from_rfc3339(text),
            Time::Either => number::parse_seconds(text)?,
        };
        Some(Timestamp::from_ms(ms))
    }
}

/// The beginning of what was sent.
fn told(text: &str) -> String {
    crate::ingest::pairs::truncated(text, 80).to_owned()
}
