//! The meaning of the columns of a CSV body.

use super::number;
use crate::ingest::pairs::LABELS_PARSED_MAX;
use crate::model::{METRIC_NAME, Timestamp};

/// The highest column number.
const COLUMN_MAX: usize = 2_048;

/// The meaning of the columns of a body: given by the request, or by its first line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CsvColumns(Option<ColumnLayout>);

/// An error in the description of the columns.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ColumnsError {
    /// A part that is not of the form `2:metric:ask`.
    #[error(
        "{0:?} is not a column: write number, kind and name or format, as in 2:metric:ask, 3:label:market or 1:time:unix_s"
    )]
    Column(String),
    /// A column number that is not a number from 1 to `COLUMN_MAX`.
    #[error("{0:?} is not a column number from 1 to 2048")]
    Number(String),
    /// An unknown time format.
    #[error("{0:?} is not a time format: use unix_s, unix_ms, unix_ns or rfc3339")]
    TimeFormat(String),
    /// A duplicate column or label.
    #[error("{0} occurs twice")]
    Duplicate(String),
    /// A required column is missing.
    #[error("no column is {0}")]
    Missing(&'static str),
    /// More labels than are parsed.
    #[error("{0} columns are labels; at most 1024 are allowed")]
    Labels(usize),
    /// The header line is missing or invalid.
    #[error("the first line must name the columns: {0}")]
    NoHeader(&'static str),
}

/// The format of a time column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TimeFormat {
    Seconds,
    Millis,
    Nanos,
    Rfc3339,
    /// Each cell may be seconds or RFC 3339.
    SecondsOrRfc3339,
}

/// The source of the metric name: fixed text, or the cell at an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum MetricSource {
    Fixed(String),
    Cell(usize),
}

/// The cells that are read, by index from 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ColumnLayout {
    /// Number of cells that a record must have.
    pub(super) cells: usize,
    /// A record must not have more cells than that.
    pub(super) exact_count: bool,
    pub(super) time: Option<(usize, TimeFormat)>,
    /// Indices of the value cells, and their metric names.
    pub(super) values: Vec<(usize, MetricSource)>,
    pub(super) labels: Vec<(usize, String)>,
}

impl CsvColumns {
    /// Returns columns that the first line of the body names.
    pub const fn header() -> CsvColumns {
        CsvColumns(None)
    }

    /// Parses `2:metric:ask,3:label:market,1:time:unix_s`: number, kind, and name or format of each
    /// column.
    ///
    /// # Errors
    /// [`ColumnsError`], which quotes the invalid part.
    pub fn parse(text: &str) -> Result<CsvColumns, ColumnsError> {
        let mut layout = ColumnLayout::default();
        let mut places = Vec::new();
        for part in text.split(',').map(str::trim) {
            let column = || ColumnsError::Column(quoted(part));
            let (index, rest) = part.split_once(':').ok_or_else(column)?;
            let (kind, name) = rest.split_once(':').ok_or_else(column)?;
            let number = index.parse().ok().filter(|number| (1..=COLUMN_MAX).contains(number));
            let number: usize = number.ok_or_else(|| ColumnsError::Number(quoted(index)))?;
            if places.contains(&number) {
                return Err(ColumnsError::Duplicate(format!("column {number}")));
            }
            places.push(number);
            layout.cells = layout.cells.max(number);
            let index = number.saturating_sub(1);
            match (kind, name) {
                ("metric" | "label", "") => return Err(column()),
                ("metric", name) => layout.values.push((index, MetricSource::Fixed(name.to_owned()))),
                ("label", name) => layout.labels.push((index, name.to_owned())),
                ("time", format) => layout.set_time(index, TimeFormat::from_name(format)?)?,
                _ => return Err(column()),
            }
        }
        if layout.values.is_empty() {
            return Err(ColumnsError::Missing("a metric: 2:metric:NAME"));
        }
        layout.check_labels()?;
        Ok(CsvColumns(Some(layout)))
    }

    pub(super) const fn layout(&self) -> Option<&ColumnLayout> {
        self.0.as_ref()
    }
}

impl ColumnLayout {
    /// Parses the names in a header line.
    ///
    /// # Errors
    /// [`ColumnsError`].
    pub(super) fn of_header(names: &[&str]) -> Result<ColumnLayout, ColumnsError> {
        let mut layout = ColumnLayout { cells: names.len(), exact_count: true, ..ColumnLayout::default() };
        let (mut value, mut metric) = (None, None);
        for (index, name) in names.iter().map(|name| name.trim()).enumerate() {
            let (word, format) = name.split_once(':').unwrap_or((name, ""));
            let is = |known: &str| word.eq_ignore_ascii_case(known);
            let before = if is("time") || is("timestamp") {
                let time = if format.is_empty() {
                    TimeFormat::SecondsOrRfc3339
                } else {
                    TimeFormat::from_name(format)?
                };
                layout.set_time(index, time)?;
                None
            } else if name.eq_ignore_ascii_case("value") {
                value.replace(index)
            } else if name.eq_ignore_ascii_case("metric") || name == METRIC_NAME {
                metric.replace(index)
            } else if name.is_empty() {
                return Err(ColumnsError::NoHeader("a name is empty"));
            } else {
                layout.labels.push((index, name.to_owned()));
                None
            };
            if before.is_some() {
                return Err(ColumnsError::Duplicate(quoted(name)));
            }
        }
        let value = value.ok_or(ColumnsError::Missing("named value"))?;
        let metric = metric.ok_or(ColumnsError::Missing("named metric"))?;
        layout.values.push((value, MetricSource::Cell(metric)));
        layout.check_labels()?;
        Ok(layout)
    }

    fn set_time(&mut self, index: usize, time: TimeFormat) -> Result<(), ColumnsError> {
        match self.time.replace((index, time)) {
            None => Ok(()),
            Some(_) => Err(ColumnsError::Duplicate("the time".to_owned())),
        }
    }

    fn check_labels(&self) -> Result<(), ColumnsError> {
        if self.labels.len() >= LABELS_PARSED_MAX {
            return Err(ColumnsError::Labels(self.labels.len()));
        }
        let mut names: Vec<&str> = self.labels.iter().map(|(_, name)| &**name).chain([METRIC_NAME]).collect();
        names.sort_unstable();
        let twice = names.iter().zip(names.iter().skip(1)).find(|(name, next)| name == next);
        twice
            .map_or(Ok(()), |(name, _)| Err(ColumnsError::Duplicate(format!("the label {:?}", quoted(name)))))
    }
}

impl TimeFormat {
    fn from_name(word: &str) -> Result<TimeFormat, ColumnsError> {
        Ok(match word {
            "unix_s" => TimeFormat::Seconds,
            "unix_ms" => TimeFormat::Millis,
            "unix_ns" => TimeFormat::Nanos,
            "rfc3339" => TimeFormat::Rfc3339,
            _ => return Err(ColumnsError::TimeFormat(quoted(word))),
        })
    }

    pub(super) const fn description(self) -> &'static str {
        match self {
            TimeFormat::Seconds => "unix seconds",
            TimeFormat::Millis => "unix milliseconds",
            TimeFormat::Nanos => "unix nanoseconds",
            TimeFormat::Rfc3339 => "RFC 3339",
            TimeFormat::SecondsOrRfc3339 => "unix seconds or RFC 3339",
        }
    }

    /// Parses a time; fractions of a millisecond are rounded down.
    pub(super) fn parse(self, text: &str) -> Option<Timestamp> {
        let ms = match self {
            TimeFormat::Seconds => number::parse_seconds(text)?,
            TimeFormat::Millis => number::parse_scaled(text, 0)?,
            TimeFormat::Nanos => number::parse_scaled(text, -6)?,
            TimeFormat::Rfc3339 => return Timestamp::from_rfc3339(text),
            TimeFormat::SecondsOrRfc3339 if text.contains(':') => return Timestamp::from_rfc3339(text),
            TimeFormat::SecondsOrRfc3339 => number::parse_seconds(text)?,
        };
        Some(Timestamp::from_ms(ms))
    }
}

/// Returns the first 80 bytes of a text, for an error message.
fn quoted(text: &str) -> String {
    crate::ingest::pairs::truncated(text, 80).to_owned()
}
