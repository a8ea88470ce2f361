//! Native histograms and exemplars, which few series have.
//!
//! | message | fields that are read |
//! |---|---|
//! | `Exemplar` | 1 `Label` (repeated), 2 value (double), 3 time (int64, milliseconds) |
//! | `Histogram` | see `ingest::histogram` |

use super::super::histogram::{self, check_count};
use super::super::protobuf::{Field, WireReader, label_pair};
use super::super::{DecodeError, DecodeLimits};
use crate::model::{Timestamp, WriteBatch, WriteExemplar};

const SERIES: &str = "TimeSeries";
const EXEMPLAR: &str = "Exemplar";
const LABEL: &str = "Label";

/// Adds an exemplar (field 3) or a histogram (field 4) of the series that is being decoded. Kept
/// out of line so that the loop over samples stays small.
///
/// # Errors
/// [`DecodeError`], if the message is malformed or a limit is exceeded.
#[cold]
#[inline(never)]
pub(super) fn add<'a>(
    batch: &mut WriteBatch<'a>,
    field: &Field<'a>,
    limits: &DecodeLimits,
    buckets: &mut usize,
) -> Result<(), DecodeError> {
    let message = field.bytes(SERIES)?;
    // The series itself is added after its last field, at this index.
    let series = batch.series.len();
    if field.number == 3 {
        check_count("exemplars", batch.exemplars.len(), limits.exemplars_max)?;
        return exemplar(batch, series, message, limits);
    }
    // Version 1.0 has no start timestamps.
    histogram::add(batch, message, limits, buckets).map(drop)
}

fn exemplar<'a>(
    batch: &mut WriteBatch<'a>,
    series: usize,
    message: &'a [u8],
    limits: &DecodeLimits,
) -> Result<(), DecodeError> {
    let first = batch.exemplar_labels.len();
    let (mut value, mut at_ms) = (0.0, 0);
    let mut reader = WireReader::new(message);
    while let Some(field) = reader.field()? {
        match field.number {
            1 => {
                check_count("exemplar labels", batch.exemplar_labels.len(), limits.exemplar_labels_max)?;
                batch.exemplar_labels.push(label_pair(field.bytes(EXEMPLAR)?, LABEL)?);
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
