//! Blocks of sealed samples: 1 to 1,024 times or values each, every block under its own checksum. Lossless to the bit.
//!
//! All integers little-endian; varints and zigzag as everywhere in the room. The bodies are drawn in [`times`] and
//! [`values`], the columns of integers that both are made of in [`integers`], the packing of those in [`pack`].
//! ```text
//! time block    0 u32 crc of 4..end   4 varint body bytes   body
//! value block   0 u32 crc of {u32 series id, u32 samples, 4..end}   4 body
//! ```
//! A value block says neither how long it is nor which its times are: the segment's directory does, for less. So it is
//! copied from one segment to another byte for byte.
//!
//! Nothing of a block is believed whose checksum did not hold, at every read: that of the block, or, where nothing but the
//! newest values of a long one is asked for, their own. Damage that keeps the checksum is answered all the same, never a
//! panic, and no more than 1,024 samples are ever made of a block.

mod columns;
pub(super) mod histograms;
mod integers;
mod pack;
mod target;
mod times;
mod unpack;
mod values;

use std::ops::Range;

use crate::tsdb::codec::{Reader, put_varint};
use crate::tsdb::error::Damage;

/// Samples of a block at most.
pub(super) const BLOCK_SAMPLES: usize = 1_024;

/// What a time block says of itself, all times unread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TimeHeader {
    /// Bytes of the whole block.
    pub(super) bytes: usize,
    /// Samples, 1 to 1,024.
    pub(super) count: usize,
    /// The first time.
    pub(super) first: i64,
    /// The last time.
    pub(super) last: i64,
    /// How far each is from the one before, where the block says that all are.
    pub(super) step: Option<i64>,
}

/// Appends a block of 1 to 1,024 times, strictly ascending; others are not written.
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

/// Puts the checksum of what follows it over the four bytes at `start`.
fn set_crc(out: &mut [u8], start: usize, crc: impl FnOnce(&[u8]) -> u32) {
    let block = out.get_mut(start..).and_then(<[u8]>::split_first_chunk_mut::<4>);
    if let Some((slot, rest)) = block {
        *slot = crc(rest).to_le_bytes();
    }
}

/// The body of the time block at the start of `bytes`, checksum verified, and where it begins.
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

/// Count and span of the time block at the start of `bytes`, checksum verified.
///
/// # Errors
/// [`Damage`] where the bytes are no time block.
pub(super) fn time_header(bytes: &[u8]) -> Result<TimeHeader, Damage> {
    let (mut reader, bytes) = time_body(bytes)?;
    let (count, span) = times::take_header(&mut reader)?;
    let flags = reader.u8()?;
    let first = reader.zigzag()?;
    let last = first.wrapping_add(span.cast_signed());
    let step = times::step(reader, flags).filter(|step| times::keep_step((first, last), count, *step));
    Ok(TimeHeader { bytes, count, first, last, step })
}

/// Appends the times of the block at the start of `bytes` to `out`; answers the block's bytes.
///
/// # Errors
/// [`Damage`] where the bytes are no time block, wrong checksums included; `out` is then as it was.
pub(super) fn times_of(bytes: &[u8], out: &mut Vec<i64>) -> Result<usize, Damage> {
    let (mut reader, used) = time_body(bytes)?;
    let before = out.len();
    let taken = times::take(&mut reader, out).and_then(|()| reader.end());
    if taken.is_err() {
        out.truncate(before);
    }
    taken.map(|()| used)
}

/// Encodes blocks of values; what memory one needed serves the next.
#[derive(Debug, Default)]
pub(super) struct Codec(values::Scratch);

impl Codec {
    /// Appends a block of 1 to 1,024 bit patterns of the series; others are not written.
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

fn value_crc(series: u32, count: usize, rest: &[u8]) -> u32 {
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    let mut owner = [0; 8];
    let (series_slot, count_slot) = owner.split_at_mut(4);
    series_slot.copy_from_slice(&series.to_le_bytes());
    count_slot.copy_from_slice(&count.to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c(&owner), rest)
}

/// Appends the values of a block with these indexes to `out`; `count` is the number of the block's times. Of a block that is
/// written backward nothing but the first mini is read, and verified, where that has all of them.
///
/// # Errors
/// [`Damage`] where the bytes are not a block of so many values of that series, wrong checksums included; `out` is then
/// as it was.
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
        // What is wrong the whole block tells.
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

/// The block, if its checksum holds: to be asked before it is copied into another segment.
///
/// # Errors
/// [`Damage`] where the bytes are not a block of so many values of that series.
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
