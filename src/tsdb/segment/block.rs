//! Blocks of sealed samples: 1 to 1,024 times or values each, every block under its own checksum.
//!
//! The bodies of this first version are plain; the drawing follows with the codec. The functions stay.

use crate::tsdb::bytes::{Reader, put_varint, put_zigzag};
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
}

/// What a value block says of itself, all values unread. Nobody has vouched for it yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ValueHeader {
    /// Bytes of the whole block.
    pub(super) bytes: usize,
    /// Where its times are; the segment knows what the number means.
    pub(super) time_ref: u32,
}

/// Appends a block of 1 to 1,024 times, strictly ascending; others are not written.
pub(super) fn put_times(out: &mut Vec<u8>, times: &[i64]) {
    let (Some(first), Some(last)) = (times.first(), times.last()) else { return };
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    put_varint(out, times.len() as u64);
    put_zigzag(out, *first);
    put_varint(out, last.wrapping_sub(*first).cast_unsigned());
    for (a, b) in times.iter().zip(times.iter().skip(1)) {
        put_varint(out, b.wrapping_sub(*a).cast_unsigned());
    }
    let crc = crc32c::crc32c(out.get(start + 4..).unwrap_or_default());
    if let Some(slot) = out.get_mut(start..start + 4) {
        slot.copy_from_slice(&crc.to_le_bytes());
    }
}

/// Count and span of the time block at the start of `bytes`, checksum verified.
///
/// # Errors
/// [`Damage`] where the bytes are no time block.
pub(super) fn time_header(bytes: &[u8]) -> Result<TimeHeader, Damage> {
    let mut times = Vec::new();
    let used = times_of(bytes, &mut times)?;
    let (Some(first), Some(last)) = (times.first(), times.last()) else {
        return Err(Damage::new(0, "a time block without times"));
    };
    Ok(TimeHeader { bytes: used, count: times.len(), first: *first, last: *last })
}

/// Appends the times of the block at the start of `bytes` to `out`; answers the block's bytes.
///
/// # Errors
/// [`Damage`] where the bytes are no time block, wrong checksums included; `out` is then as it was.
pub(super) fn times_of(bytes: &[u8], out: &mut Vec<i64>) -> Result<usize, Damage> {
    let mut reader = Reader::new(bytes);
    let crc = reader.u32()?;
    let count = usize::try_from(reader.varint()?).unwrap_or(usize::MAX);
    if count == 0 || count > BLOCK_SAMPLES {
        return Err(reader.damage("a time block of 0 or over 1,024 times"));
    }
    let mut times = Vec::with_capacity(count);
    let mut at = reader.zigzag()?;
    reader.varint()?;
    times.push(at);
    for _ in 1..count {
        at = at.wrapping_add(reader.varint()?.cast_signed());
        times.push(at);
    }
    let used = bytes.len() - reader.left();
    if crc32c::crc32c(bytes.get(4..used).unwrap_or_default()) != crc {
        return Err(Damage::new(0, "wrong checksum of a time block"));
    }
    out.append(&mut times);
    Ok(used)
}

/// Appends a block of 1 to 1,024 bit patterns of the series; others are not written.
pub(super) fn put_values(out: &mut Vec<u8>, series: u32, time_ref: u32, values: &[u64]) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&time_ref.to_le_bytes());
    put_varint(out, values.len() as u64 * 8);
    for value in values {
        out.extend_from_slice(&value.to_le_bytes());
    }
    let crc = value_crc(series, values.len(), out.get(start + 4..).unwrap_or_default());
    if let Some(slot) = out.get_mut(start..start + 4) {
        slot.copy_from_slice(&crc.to_le_bytes());
    }
}

fn value_crc(series: u32, count: usize, rest: &[u8]) -> u32 {
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    let seed = crc32c::crc32c_append(crc32c::crc32c(&series.to_le_bytes()), &count.to_le_bytes());
    crc32c::crc32c_append(seed, rest)
}

/// Length and time block of the value block at the start of `bytes`.
///
/// # Errors
/// [`Damage`] where no such block fits in the bytes. The checksum is not looked at.
pub(super) fn value_header(bytes: &[u8]) -> Result<ValueHeader, Damage> {
    let mut reader = Reader::new(bytes);
    reader.u32()?;
    let time_ref = reader.u32()?;
    let body = reader.count(1)?;
    Ok(ValueHeader { bytes: bytes.len() - reader.left() + body, time_ref })
}

/// Appends the values of the block at the start of `bytes` to `out`; answers the block's bytes. `count` is the number
/// of its times.
///
/// # Errors
/// [`Damage`] where the bytes are no block of so many values of that series, wrong checksums included; `out` is then
/// as it was.
pub(super) fn values_of(
    bytes: &[u8],
    series: u32,
    count: usize,
    out: &mut Vec<f64>,
) -> Result<usize, Damage> {
    let block = verified(bytes, series, count)?;
    let mut reader = Reader::new(block);
    reader.u64()?;
    if reader.varint()? != count as u64 * 8 {
        return Err(reader.damage("cut short"));
    }
    let before = out.len();
    for _ in 0..count.min(BLOCK_SAMPLES) {
        match reader.u64() {
            Ok(bits) => out.push(f64::from_bits(bits)),
            Err(damage) => {
                out.truncate(before);
                return Err(damage);
            }
        }
    }
    Ok(block.len())
}

fn verified(bytes: &[u8], series: u32, count: usize) -> Result<&[u8], Damage> {
    let header = value_header(bytes)?;
    let block = bytes.get(..header.bytes).unwrap_or_default();
    let (crc, rest) = block.split_first_chunk::<4>().ok_or_else(|| Damage::new(0, "cut short"))?;
    if u32::from_le_bytes(*crc) == value_crc(series, count, rest) {
        Ok(block)
    } else {
        Err(Damage::new(0, "wrong checksum of a value block"))
    }
}

/// Appends a copy of the value block at the start of `bytes` that refers to another time block, for compaction;
/// answers the block's bytes. The checksum is verified first: damage is never copied under a new one.
///
/// # Errors
/// [`Damage`] where the bytes are no block of so many values of that series; nothing is appended then.
pub(super) fn copy_values(
    out: &mut Vec<u8>,
    bytes: &[u8],
    series: u32,
    count: usize,
    time_ref: u32,
) -> Result<usize, Damage> {
    let block = verified(bytes, series, count)?;
    let rest = block.get(8..).unwrap_or_default();
    let mut fresh = time_ref.to_le_bytes().to_vec();
    fresh.extend_from_slice(rest);
    out.extend_from_slice(&value_crc(series, count, &fresh).to_le_bytes());
    out.append(&mut fresh);
    Ok(block.len())
}
