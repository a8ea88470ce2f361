//! Comma separated values (RFC 4180): samples on lines, with the meaning of the columns given beside them or by a header.
//!
//! Beside them, as VictoriaMetrics has it in `format=`, see [`Columns::parse`]; each metric's column is a sample:
//! ```text
//! 2:metric:ask,3:metric:bid,1:label:ticker,4:time:unix_s
//!
//! GOOG,1.23,4.56,1583865146
//! ```
//! By a header, [`Columns::header`], a sample on each line; `time` (or `timestamp`), `value` and `metric` (or `__name__`) are
//! known by their names in any letter case, and every other column is a label:
//! ```text
//! time:unix_ms,metric,value,host
//! 1583865146000,cpu_load,0.7,web1
//! ```
//! A time is `unix_s` (with fractions, if it has any), `unix_ms`, `unix_ns` or `rfc3339`, named behind a colon; a header that
//! names none means unix seconds or RFC 3339, whichever a cell is.
//!
//! Cells may stand in quotes, and hold line ends and `""` there. An empty label is no label, an empty value no sample, an
//! empty time is refused. A line that is wrong is refused with its number, and the others are stored; behind a quote that
//! is never closed nothing can be told apart any more, so that the rest is refused.

mod columns;
mod split;

use super::pairs::{LabelPairs, TextSlice, truncated};
use super::{DecodeError, DecodeLimits, Translated, lines, number};
use crate::model::{METRIC_NAME, Refusal, Sample, Timestamp};
pub use columns::{Columns, ColumnsError};
use columns::{Layout, Name};
use split::{Broken, Record};

/// Bytes of a cell that are told.
const CELL_SHOWN_MAX: usize = 40;

/// Reads a decompressed body. Samples without a column for their time are of `default_at`. Cost: one pass; per line nothing
/// is allocated but what the batch holds.
///
/// # Errors
/// [`DecodeError`], where nothing is to be stored: an empty body, one beyond the limits, a header that makes no sense.
/// Lines that are wrong are in [`Translated::refusals`].
pub fn decode(
    body: &[u8],
    columns: &Columns,
    default_at: Timestamp,
    limits: &DecodeLimits,
) -> Result<Translated, DecodeError> {
    super::check_size(body, limits)?;
    let mut records = Record::new(lines::strip_bom(body));
    let from_header;
    let layout = match columns.layout() {
        Some(layout) => layout,
        None => {
            from_header = header(&mut records)?;
            &from_header
        }
    };
    let mut reader =
        CsvDecoder { layout, default_at, limits, out: Translated::default(), pairs: LabelPairs::default() };
    loop {
        match records.advance() {
            Ok(true) => reader.record(&records)?,
            Ok(false) => break,
            Err(broken) => reader.refuse_record(&records, &broken),
        }
    }
    Ok(reader.out)
}

/// Reads the first line that is not empty.
fn header(records: &mut Record<'_>) -> Result<Layout, DecodeError> {
    match records.advance() {
        Ok(true) => {
            let names: Vec<&str> = (0..records.len()).map(|place| records.cell(place)).collect();
            Ok(Layout::of_header(&names)?)
        }
        Ok(false) => Err(ColumnsError::NoHeader("there is none").into()),
        Err(broken) => Err(ColumnsError::NoHeader(broken.what).into()),
    }
}

struct CsvDecoder<'l> {
    layout: &'l Layout,
    default_at: Timestamp,
    limits: &'l DecodeLimits,
    out: Translated,
    pairs: LabelPairs<'l>,
}

impl<'l> CsvDecoder<'l> {
    fn record<'r: 'l>(&mut self, record: &Record<'r>) -> Result<(), DecodeError> {
        let found = record.len();
        let wanted = self.layout.cells;
        if found < wanted || (self.layout.is_exact && found > wanted) {
            let told = if self.layout.is_exact { "the header has" } else { "the format asks for" };
            let reason = || format!("line {}: {found} cells, {told} {wanted}", record.line());
            self.out.refuse(1, || Refusal { series: String::new(), code: "invalid_line", reason: reason() });
            return Ok(());
        }
        let at = match &self.layout.time {
            None => Ok(self.default_at),
            Some((place, time)) => time.read(record.cell(*place).trim_ascii()).ok_or((*place, *time)),
        };
        for (place, name) in &self.layout.values {
            let text = record.cell(*place).trim_ascii();
            if text.is_empty() {
                continue;
            }
            self.pairs.clear();
            let name = match name {
                Name::Given(name) => TextSlice::Borrowed(name),
                Name::Cell(place) => self.text(record, *place),
            };
            self.pairs.push(TextSlice::Borrowed(METRIC_NAME), name);
            for (place, label) in &self.layout.labels {
                let value = self.text(record, *place);
                self.pairs.push(TextSlice::Borrowed(label), value);
            }
            if let Some(problem) = self.pairs.find_error() {
                let reason = self.pairs.message(problem);
                self.refuse(record, problem.code(), || reason);
                continue;
            }
            match (number::parse_value(text), &at) {
                (Some(value), Ok(at)) => self.add(Sample { at: *at, value })?,
                (None, _) => self.refuse(record, "invalid_value", || {
                    format!(
                        "column {}: {:?} is no number",
                        place.saturating_add(1),
                        truncated(text, CELL_SHOWN_MAX)
                    )
                }),
                (Some(_), Err((place, time))) => self.refuse(record, "invalid_time", || {
                    let cell = truncated(record.cell(*place), CELL_SHOWN_MAX);
                    format!("column {}: {cell:?} is no time in {}", place.saturating_add(1), time.words())
                }),
            }
        }
        Ok(())
    }

    fn text<'r: 'l>(&mut self, record: &Record<'r>, place: usize) -> TextSlice<'l> {
        match record.sent(place) {
            Some(cell) => TextSlice::Borrowed(cell),
            None => self.pairs.unescape(|out| out.push_str(record.cell(place))),
        }
    }

    fn add(&mut self, sample: Sample) -> Result<(), DecodeError> {
        let (found, allowed) = (self.out.batch.len().saturating_add(1), self.limits.samples_max);
        if found > allowed {
            return Err(DecodeError::TooLarge { what: "samples", found, allowed });
        }
        self.out.batch.samples_of(self.pairs.iter(), [sample]);
        super::check_series(&self.out.batch, self.limits)
    }

    fn refuse(&mut self, record: &Record<'_>, code: &'static str, reason: impl FnOnce() -> String) {
        let CsvDecoder { out, pairs, .. } = self;
        out.refuse(1, || Refusal {
            series: pairs.display_series(),
            code,
            reason: format!("line {}: {}", record.line(), reason()),
        });
    }

    fn refuse_record(&mut self, record: &Record<'_>, broken: &Broken) {
        self.out.refuse(broken.lines, || Refusal {
            series: String::new(),
            code: broken.code,
            reason: format!("line {}: {}", record.line(), broken.what),
        });
    }
}

#[cfg(test)]
mod tests;
