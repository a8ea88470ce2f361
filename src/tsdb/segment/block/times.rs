//! Bodies of time blocks.
//!
//! ```text
//! 0 varint samples (1..=1,024)   varint last - first   u8 flags of the column
//!   column (see `integers`): the times
//! ```

use super::BLOCK_SAMPLES;
use super::columns::{self, ColumnSlice, IntegerSink};
use super::integers::{self, FACTOR, FLAG_BITS, SPARSE};
use crate::tsdb::codec::{Reader, put_varint};
use crate::tsdb::error::Damage;

/// Appends the body of a block.
pub(super) fn put(out: &mut Vec<u8>, times: &[i64]) {
    let (Some(first), Some(last)) = (times.first(), times.last()) else { return };
    put_varint(out, times.len() as u64);
    put_varint(out, last.wrapping_sub(*first).cast_unsigned());
    let plan = integers::plan(&mut integers::PlanBuffers::default(), times, true);
    out.push(plan.flags);
    plan.put(out);
}

/// Decodes the number of samples and the span of time, which precede the column.
pub(super) fn take_header(reader: &mut Reader<'_>) -> Result<(usize, u64), Damage> {
    let count = usize::try_from(reader.varint()?).unwrap_or(usize::MAX);
    if count == 0 || count > BLOCK_SAMPLES {
        return Err(reader.damage("a time block of 0 or over 1,024 times"));
    }
    Ok((count, reader.varint()?))
}

/// Appends the times of a body. The reader is at its start, and at its end afterwards.
pub(super) fn take(reader: &mut Reader<'_>, out: &mut Vec<i64>) -> Result<(), Damage> {
    let (count, span) = take_header(reader)?;
    let flags = reader.u8()? & FLAG_BITS;
    let start = out.len();
    let step = columns::take(reader, ColumnSlice::whole(flags, count), TimeSink(&mut *out))?;
    let times = out.get(start..).unwrap_or_default();
    if !ascend(times, step) {
        return Err(reader.damage("times do not ascend"));
    }
    let ends = times.first().zip(times.last());
    if ends.is_some_and(|(first, last)| last.wrapping_sub(*first).cast_unsigned() == span) {
        Ok(())
    } else {
        Err(reader.damage("times differ from the span of their block"))
    }
}

/// Returns the common difference of all times, if the column has one. The reader is behind the
/// first integer of the column.
pub(super) fn step(mut reader: Reader<'_>, flags: u8) -> Option<i64> {
    const DIFFERENCE: u8 = 1;
    let flags = flags & FLAG_BITS;
    if flags & !FACTOR != SPARSE | DIFFERENCE {
        return None;
    }
    let factor = if flags & FACTOR == 0 { 1 } else { reader.varint().ok()?.cast_signed() };
    let centre = reader.zigzag().ok()?;
    (reader.varint().ok()? == 0).then(|| centre.wrapping_mul(factor))
}

/// Returns whether `count` times from `first` to `last` can have the common difference `step`.
pub(super) fn keep_step(first: i64, last: i64, count: usize, step: i64) -> bool {
    let steps = i128::try_from(count).unwrap_or_default() - 1;
    step > 0 && i128::from(first) + i128::from(step) * steps == i128::from(last)
}

/// A sink that appends times.
struct TimeSink<'o>(&'o mut Vec<i64>);

impl IntegerSink for TimeSink<'_> {
    #[inline]
    fn put(&mut self, column: &[u64]) {
        self.0.extend(column.iter().map(|time| time.cast_signed()));
    }

    #[inline]
    fn run(&mut self, first: i64, step: i64, count: usize) {
        let mut at = first;
        self.0.extend((0..count).map(|_| {
            let time = at;
            at = at.wrapping_add(step);
            time
        }));
    }
}

/// Returns whether the times ascend strictly. `step` is their common difference, if known.
fn ascend(times: &[i64], step: Option<i64>) -> bool {
    if let (Some(step), Some(first), Some(last)) = (step, times.first(), times.last()) {
        return keep_step(*first, *last, times.len(), step);
    }
    // No early exit, since times that do not ascend are rare.
    times.iter().zip(times.iter().skip(1)).fold(true, |ascend, (a, b)| ascend & (a < b))
}
