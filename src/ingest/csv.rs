//! Decoder of comma-separated values (RFC 4180). The request or a header line states the meaning of
//! the columns.
//!
//! In the request, as `format=` of VictoriaMetrics, see [`CsvColumns::parse`]. Each metric column
//! makes a sample:
//! ```text
//! 2:metric:ask,3:metric:bid,1:label:ticker,4:time:unix_s
//!
//! GOOG,1.23,4.56,1583865146
//! ```
//! In a header line, [`CsvColumns::header`]. Each line makes one sample. The names `time` (or
//! `timestamp`), `value` and `metric` (or `__name__`) are recognised in any letter case, and every
//! other column is a label:
//! ```text
//! time:unix_ms,metric,value,host
//! 1583865146000,cpu_load,0.7,web1
//! ```
//! A time is `unix_s` (with optional fractions), `unix_ms`, `unix_ns` or `rfc3339`, stated after a
//! colon. If a header states none, each cell may be unix seconds or RFC 3339.
//!
//! Quoted cells may contain line ends, and `""` for a quote. An empty label is dropped, an empty
//! value makes no sample, and an empty time is refused. An invalid line is refused with its number,
//! and the others are stored. After a quote that is never closed, records cannot be told apart, so
//! the rest is refused.

mod columns;
mod split;

use super::pairs::{LabelPairs, TextSlice, truncated};
use super::{DecodeError, DecodeLimits, Translated, lines, number};
use crate::model::{METRIC_NAME, Refusal, Sample, Timestamp};
use columns::{ColumnLayout, MetricSource};
pub use columns::{ColumnsError, CsvColumns};
pub use split::ends_in_quotes;
use split::{CsvRecord, RecordError};

/// Bytes of a cell that an error message quotes.
const CELL_QUOTED_MAX: usize = 40;

/// Decodes a decompressed body. `default_at` is the time of samples without a time column. Cost:
/// one pass; per line, only the contents of the batch are allocated.
///
/// # Errors
/// [`DecodeError`], if the whole body is refused: it is empty or exceeds a limit, or its header is
/// invalid. Invalid lines are in [`Translated::refusals`].
pub fn decode(
    body: &[u8],
    columns: &CsvColumns,
    default_at: Timestamp,
    limits: &DecodeLimits,
) -> Result<Translated, DecodeError> {
    super::check_size(body, limits)?;
    let mut records = CsvRecord::new(lines::strip_bom(body));
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
        match records.read_next() {
            Ok(true) => reader.record(&records)?,
            Ok(false) => break,
            Err(error) => reader.refuse_record(&records, &error),
        }
    }
    Ok(reader.out)
}

/// Reads the header: the first line that is not empty.
fn header(records: &mut CsvRecord<'_>) -> Result<ColumnLayout, DecodeError> {
    match records.read_next() {
        Ok(true) => {
            let names: Vec<&str> = (0..records.len()).map(|index| records.cell(index)).collect();
            Ok(ColumnLayout::of_header(&names)?)
        }
        Ok(false) => Err(ColumnsError::NoHeader("the body has none").into()),
        Err(error) => Err(ColumnsError::NoHeader(error.reason).into()),
    }
}

struct CsvDecoder<'l> {
    layout: &'l ColumnLayout,
    default_at: Timestamp,
    limits: &'l DecodeLimits,
    out: Translated,
    pairs: LabelPairs<'l>,
}

impl<'l> CsvDecoder<'l> {
    fn record<'r: 'l>(&mut self, record: &CsvRecord<'r>) -> Result<(), DecodeError> {
        let found = record.len();
        let expected = self.layout.cells;
        if found < expected || (self.layout.exact_count && found > expected) {
            let source = if self.layout.exact_count { "the header has" } else { "the format needs" };
            let reason = || format!("line {}: {found} cells, {source} {expected}", record.line());
            self.out.refuse(1, || Refusal { series: String::new(), code: "invalid_line", reason: reason() });
            return Ok(());
        }
        let at = match &self.layout.time {
            None => Ok(self.default_at),
            Some((index, time)) => time.parse(record.cell(*index).trim_ascii()).ok_or((*index, *time)),
        };
        for (index, name) in &self.layout.values {
            let text = record.cell(*index).trim_ascii();
            if text.is_empty() {
                continue;
            }
            self.pairs.clear();
            let name = match name {
                MetricSource::Fixed(name) => TextSlice::Borrowed(name),
                MetricSource::Cell(index) => self.text(record, *index),
            };
            self.pairs.push(TextSlice::Borrowed(METRIC_NAME), name);
            for (index, label) in &self.layout.labels {
                let value = self.text(record, *index);
                self.pairs.push(TextSlice::Borrowed(label), value);
            }
            if let Some(problem) = self.pairs.find_error() {
                let reason = self.pairs.message(problem);
                self.refuse(record, problem.code(), || reason);
                continue;
            }
            match (number::parse_value(text), &at) {
                (Ok(value), Ok(at)) => self.add(Sample { at: *at, value })?,
                (Err(error), _) => self.refuse(record, "invalid_value", || {
                    format!(
                        "column {}: {:?} {}",
                        index.saturating_add(1),
                        truncated(text, CELL_QUOTED_MAX),
                        error.message()
                    )
                }),
                (Ok(_), Err((index, time))) => self.refuse(record, "invalid_time", || {
                    let cell = truncated(record.cell(*index), CELL_QUOTED_MAX);
                    format!(
                        "column {}: {cell:?} is not a time in {}",
                        index.saturating_add(1),
                        time.description()
                    )
                }),
            }
        }
        Ok(())
    }

    fn text<'r: 'l>(&mut self, record: &CsvRecord<'r>, index: usize) -> TextSlice<'l> {
        match record.borrowed(index) {
            Some(cell) => TextSlice::Borrowed(cell),
            None => self.pairs.unescape(|out| out.push_str(record.cell(index))),
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

    fn refuse(&mut self, record: &CsvRecord<'_>, code: &'static str, reason: impl FnOnce() -> String) {
        let CsvDecoder { out, pairs, .. } = self;
        out.refuse(1, || Refusal {
            series: pairs.display_series(),
            code,
            reason: format!("line {}: {}", record.line(), reason()),
        });
    }

    fn refuse_record(&mut self, record: &CsvRecord<'_>, error: &RecordError) {
        self.out.refuse(error.lines, || Refusal {
            series: String::new(),
            code: error.code,
            reason: format!("line {}: {}", record.line(), error.reason),
        });
    }
}

#[cfg(test)]
mod tests;
