//! What few series have: native histograms and exemplars.
//!
//! | message | fields that are read |
//! |---|---|
//! | `Exemplar` | 1 `Label` (repeated), 2 value (double), 3 time (int64, milliseconds) |
//! | `Histogram` | drawn in `ingest::histogram` |

use super::super::histogram::{self, bound};
use super::super::protobuf::{Field, Reader, WireError};
use super::super::{DecodeError, Limits};
use crate::model::{Timestamp, WriteBatch, WriteExemplar};

const SERIES: &str = "TimeSeries";
const EXEMPLAR: &str = "Exemplar";
const LABEL: &str = "Label";

/// Adds an exemplar (3) or a histogram (4) of the series that is being read. Out of the way of the loop over samples.
#[cold]
#[inline(never)]
pub(super) fn add<'a>(
    batch: &mut WriteBatch<'a>,
    field: &Field<'a>,
    limits: &Limits,
    buckets: &mut usize,
) -> Result<(), DecodeError> {
    let message = field.bytes(SERIES)?;
    // The series itself is added once it has been read.
    let series = batch.series.len();
    if field.number == 3 {
        bound("exemplars", batch.exemplars.len(), limits.exemplars_max)?;
        return exemplar(batch, series, message, limits);
    }
    // A start is something that version 2.0 has.
    histogram::add(batch, message, limits, buckets).map(drop)
}

fn exemplar<'a>(
    batch: &mut WriteBatch<'a>,
    series: usize,
    message: &'a [u8],
    limits: &Limits,
) -> Result<(), DecodeError> {
    let first = batch.exemplar_labels.len();
    let (mut value, mut at_ms) = (0.0, 0);
    let mut reader = Reader::new(message);
    while let Some(field) = reader.field()? {
        match field.number {
            1 => {
                bound("exemplar labels", batch.exemplar_labels.len(), limits.exemplar_labels_max)?;
                batch.exemplar_labels.push(label(field.bytes(EXEMPLAR)?)?);
            }
            2 => value = field.double(EXEMPLAR)?,
            3 => at_ms = field.int64(EXEMPLAR)?,
            _ => {}
        }
    }
    let labels = first..batch.exemplar_labels.len();
    batch.exemplars.push(WriteExemplar { series, labels, value, at: Timestamp::from_ms(at_ms) });
    Ok(())
}

fn label(message: &[u8]) -> Result<(&str, &str), WireError> {
    let (mut name, mut value) = ("", "");
    let mut reader = Reader::new(message);
    while let Some(field) = reader.field()? {
        match field.number {
            1 => name = field.text(LABEL)?,
            2 => value = field.text(LABEL)?,
            _ => {}
        }
    }
    Ok((name, value))
}
