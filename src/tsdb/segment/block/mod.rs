//! Blocks of sealed samples. A block has 1 to 1,024 times or values and its own checksum. It
//! preserves every bit.
//!
//! All integers are little-endian; varints and zigzag are those of the whole module `tsdb`.
//! [`times`] and [`values`] describe the bodies, [`integers`] the columns of integers that both
//! use, and [`pack`] the packing of those columns.
//! ```text
//! time block    0 u32 crc of 4..end   4 varint body bytes   body
//! value block   0 u32 crc of {u32 series id, u32 samples, 4..end}   4 body
//! ```
//! A value block contains neither its length nor a reference to its times. The directory of the
//! segment has both in fewer bytes, and so a block can be copied to another segment byte for byte.
//!
//! Every read verifies a checksum first: that of the block, or, if only the newest values of a long
//! block are requested, that of the newest values. Damaged bytes with a matching checksum give an
//! error or wrong values, but never a panic, and never more than 1,024 samples.

mod columns;
pub(super) mod histograms;
mod integers;
mod output;
mod pack;
mod times;
mod unpack;
mod values;

use std::ops::Range;

use crate::tsdb::codec::{Reader, put_varint};
use crate::tsdb::error::Damage;

/// Samples of a block at most.
pub(super) const BLOCK_SAMPLES: usize = 1_024;

/// The header of a time block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TimeHeader {
    /// Length of the whole block in bytes.
    pub(super) bytes: usize,
    /// Number of samples, 1 to 1,024.
    pub(super) count: usize,
    /// The first time in milliseconds.
    pub(super) first: i64,
    /// The last time in milliseconds.
    pub(super) last: i64,
    /// The difference between neighbouring times, if the block says that all are equal.
    pub(super) step: Option<i64>,
}

/// Appends a block of 1 to 1,024 strictly ascending times. Appends nothing for other numbers of
/// times.
pub(super) fn put_times(out: &mut Vec<u8>, times: &[i64]) {
    debug_assert!(times.is_sorted_by(|a, b| a < b), "times ascend");
    if times.is_empty() || times.len() > BLOCK_SAMPLES {
        return;
    }
    let mut body = Vec::with_capacity(64);
    times::put(&mut body, times);
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    put_varint(out, body.len() as u64);
    out.append(&mut body);
    set_crc(out, start, crc32c::crc32c);
}

/// Stores the checksum of the following bytes in the four bytes at `start`.
fn set_crc(out: &mut [u8], start: usize, crc: impl FnOnce(&[u8]) -> u32) {
    let block = out.get_mut(start..).and_then(<[u8]>::split_first_chunk_mut::<4>);
    if let Some((slot, rest)) = block {
        *slot = crc(rest).to_le_bytes();
    }
}

/// Verifies the time block at the start of `bytes`, and returns a reader of its body and the length
/// of the block.
fn time_body(bytes: &[u8]) -> Result<(Reader<'_>, usize), Damage> {
    let mut reader = Reader::new(bytes);
    let crc = reader.u32()?;
    let length = reader.count(1)?;
    let end = bytes.len() - reader.left() + length;
    if crc32c::crc32c(bytes.get(4..end).unwrap_or_default()) != crc {
        return Err(Damage::new(0, "wrong checksum of a time block"));
    }
    let mut reader = Reader::new(bytes.get(..end).unwrap_or_default());
    reader.take(end - length)?;
    Ok((reader, end))
}

/// Verifies and decodes the header of the time block at the start of `bytes`.
///
/// # Errors
/// [`Damage`] if the bytes are not a time block.
pub(super) fn time_header(bytes: &[u8]) -> Result<TimeHeader, Damage> {
    let (mut reader, bytes) = time_body(bytes)?;
    let (count, span) = times::take_header(&mut reader)?;
    let flags = reader.u8()?;
    let first = reader.zigzag()?;
    let last = first.wrapping_add(span.cast_signed());
    let step = times::step(reader, flags).filter(|step| times::keep_step(first, last, count, *step));
    Ok(TimeHeader { bytes, count, first, last, step })
}

/// Appends the times of the block at the start of `bytes` to `out`, and returns the length of the
/// block in bytes.
///
/// # Errors
/// [`Damage`] if the bytes are not a time block or have a wrong checksum. `out` is then unchanged.
pub(super) fn times_of(bytes: &[u8], out: &mut Vec<i64>) -> Result<usize, Damage> {
    let (mut reader, used) = time_body(bytes)?;
    let before = out.len();
    let taken = times::take(&mut reader, out).and_then(|()| reader.end());
    if taken.is_err() {
        out.truncate(before);
    }
    taken.map(|()| used)
}

/// An encoder of value blocks that reuses its buffers.
#[derive(Debug, Default)]
pub(super) struct ValueEncoder(values::ValueBuffers);

impl ValueEncoder {
    /// Appends a block of 1 to 1,024 bit patterns of a series. Appends nothing for other numbers of
    /// values.
    pub(super) fn put_values(&mut self, out: &mut Vec<u8>, series: u32, values: &[u64]) {
        if values.is_empty() || values.len() > BLOCK_SAMPLES {
            return;
        }
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        values::put_block(out, series, values, &mut self.0);
        set_crc(out, start, |rest| value_crc(series, values.len(), rest));
    }
}

/// Returns the checksum of a value block: over the series id, the number of samples, and the rest
/// of the block.
fn value_crc(series: u32, count: usize, rest: &[u8]) -> u32 {
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    let mut owner = [0; 8];
    let (series_slot, count_slot) = owner.split_at_mut(4);
    series_slot.copy_from_slice(&series.to_le_bytes());
    count_slot.copy_from_slice(&count.to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c(&owner), rest)
}

/// Appends the values of a block with these indexes to `out`. `count` is the number of samples of
/// the block. If the block is written backward and its first mini has all requested values, only
/// that mini is read and verified.
///
/// # Errors
/// [`Damage`] if the bytes are not a block of `count` values of that series, or have a wrong
/// checksum. `out` is then unchanged.
pub(super) fn values_within(
    block: &[u8],
    series: u32,
    count: usize,
    range: Range<usize>,
    out: &mut Vec<f64>,
) -> Result<(), Damage> {
    let mut reader = Reader::new(block);
    reader.u32()?;
    if count == 0 || count > BLOCK_SAMPLES {
        return Err(reader.damage("a value block of 0 or over 1,024 values"));
    }
    let to = range.end.min(count);
    let wanted = range.start.min(to)..to;
    let before = out.len();
    if values::in_head(reader.rest(), count, &wanted) {
        if values::take_head(reader, series, count, &wanted, out).is_ok() {
            return Ok(());
        }
        // The check of the whole block below reports the cause.
        out.truncate(before);
    }
    verified(block, series, count)?;
    let whole = wanted == (0..count);
    let mut taken = values::take(&mut reader, count, wanted, out);
    if whole {
        taken = taken.and_then(|()| reader.end());
    }
    if taken.is_err() {
        out.truncate(before);
    }
    taken
}

/// Returns the block if its checksum matches. Required before it is copied to another segment.
///
/// # Errors
/// [`Damage`] if the bytes are not a block of `count` values of that series.
pub(super) fn verified(block: &[u8], series: u32, count: usize) -> Result<&[u8], Damage> {
    let (crc, rest) = block.split_first_chunk::<4>().ok_or_else(|| Damage::new(0, "cut short"))?;
    if u32::from_le_bytes(*crc) == value_crc(series, count, rest) {
        Ok(block)
    } else {
        Err(Damage::new(0, "wrong checksum of a value block"))
    }
}

#[cfg(test)]
mod tests;
