//! Bodies of time blocks.
//!
//! ```text
//! 0 varint samples (1..=1,024)   varint last - first   u8 flags of the column   column (see `integers`): the times
//! ```

use super::integers::{self, FLAG_BITS};
use super::{BLOCK_SAMPLES, COLUMN};
use crate::tsdb::bytes::{Reader, put_varint};
use crate::tsdb::error::Damage;

/// Appends the body of a block.
pub(super) fn put(out: &mut Vec<u8>, times: &[i64]) {
    let (Some(first), Some(last)) = (times.first(), times.last()) else { return };
    put_varint(out, times.len() as u64);
    put_varint(out, last.wrapping_sub(*first).cast_unsigned());
    let plan = integers::plan(times, true);
    out.push(plan.flags);
    plan.put(out);
}

/// Samples and span in time, before the column.
pub(super) fn take_header(reader: &mut Reader<'_>) -> Result<(usize, u64), Damage> {
    let count = usize::try_from(reader.varint()?).unwrap_or(usize::MAX);
    if count == 0 || count > BLOCK_SAMPLES {
        return Err(reader.damage("a time block of 0 or over 1,024 times"));
    }
    Ok((count, reader.varint()?))
}

/// Appends the times of a body; the reader stands at its start, and at its end afterwards.
pub(super) fn take(reader: &mut Reader<'_>, out: &mut Vec<i64>) -> Result<(), Damage> {
    let (count, _) = take_header(reader)?;
    let flags = reader.u8()?;
    let mut column = COLUMN;
    let column = column.get_mut(..count).unwrap_or_default();
    integers::take(reader, flags & FLAG_BITS, column)?;
    let times = || column.iter().map(|time| time.cast_signed());
    if times().zip(times().skip(1)).any(|(a, b)| a >= b) {
        return Err(reader.damage("times do not ascend"));
    }
    out.extend(times());
    Ok(())
}
