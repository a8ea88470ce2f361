//! Columns of integers with a fixed number of bits each, which give random access.
//!
//! A column is `value(i) = base + (slope * i >> 16) + bits(i)`, where `bits(i)` are `width` bits at
//! bit `width * i` of the column's bytes in the pool, low bits first. `slope` is the growth of a
//! value from row to row, in 65,536ths. So offsets that grow evenly, or ids that were assigned in
//! sequence, need no bits at all. A width over 56 is rounded up to 64, since a reader loads 8 bytes
//! at once. Therefore 8 bytes of padding follow the last column of a pool.
//!
//! The reference to a column, in the directory:
//! ```text
//! u8 width (0..56 or 64) | 0x80 if a slope follows   zigzag varint base   [zigzag varint slope]
//! [varint offset into the pool, if the width is not 0]
//! ```
//! Equal bytes are stored once: the series of a scrape target have the same order in most families.

use std::collections::HashMap;

use rapidhash::v3::rapidhash_v3;

use crate::tsdb::codec::{Reader, put_varint, put_zigzag};
use crate::tsdb::error::Damage;

const SLOPE: u8 = 0x80;

/// The reference to a column of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PackedColumn {
    base: i64,
    slope: i64,
    width: u8,
    offset: u64,
}

impl PackedColumn {
    /// Returns the value of a row; `None` beyond the end of the pool.
    #[inline]
    pub(super) fn get(&self, pool: &[u8], row: usize) -> Option<i64> {
        let line = line(self.base, self.slope, row);
        if self.width == 0 {
            return Some(line);
        }
        let bit = row.checked_mul(usize::from(self.width))?;
        let at = usize::try_from(self.offset).ok()?.checked_add(bit / 8)?;
        let word = u64::from_le_bytes(*pool.get(at..)?.first_chunk()?);
        let bits = word >> (bit % 8) & mask(self.width);
        Some(line.wrapping_add(bits.cast_signed()))
    }

    /// Appends the reference.
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        out.push(self.width | if self.slope == 0 { 0 } else { SLOPE });
        put_zigzag(out, self.base);
        if self.slope != 0 {
            put_zigzag(out, self.slope);
        }
        if self.width != 0 {
            put_varint(out, self.offset);
        }
    }

    /// Decodes a reference.
    pub(super) fn take(reader: &mut Reader<'_>) -> Result<PackedColumn, Damage> {
        let tag = reader.u8()?;
        let width = tag & !SLOPE;
        if width > 56 && width != 64 {
            return Err(reader.damage("invalid column width"));
        }
        let base = reader.zigzag()?;
        let slope = if tag & SLOPE == 0 { 0 } else { reader.zigzag()? };
        let offset = if width == 0 { 0 } else { reader.varint()? };
        Ok(PackedColumn { base, slope, width, offset })
    }
}

/// Returns the value of a row without its bits.
#[inline]
fn line(base: i64, slope: i64, row: usize) -> i64 {
    // Rows are below 2^32. A hostile slope wraps and gives a wrong value, which the checksums of
    // the blocks detect.
    base.wrapping_add(slope.wrapping_mul(row as i64) >> 16)
}

#[inline]
const fn mask(width: u8) -> u64 {
    if width >= 64 { u64::MAX } else { (1 << width) - 1 }
}

/// The columns of a segment that is being written.
#[derive(Debug, Default)]
pub(super) struct ColumnPool {
    bytes: Vec<u8>,
    /// Start and end of each column by the hash of its bytes. If two columns have equal hashes by
    /// chance, one of them is not shared.
    by_hash: HashMap<u64, (usize, usize)>,
    scratch: Vec<u8>,
}

impl ColumnPool {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns an estimate of the memory in use, in bytes.
    pub(super) fn memory(&self) -> usize {
        self.bytes.capacity() + self.by_hash.len() * 40
    }

    /// Adds a column, or finds an equal one.
    pub(super) fn add(&mut self, values: &[i64]) -> PackedColumn {
        let (mut packed, _) = self.pack_scratch(values);
        if packed.width == 0 {
            return packed;
        }
        let hash = rapidhash_v3(&self.scratch);
        let offset = match self.by_hash.get(&hash) {
            Some((offset, end)) if self.bytes.get(*offset..*end) == Some(&self.scratch) => *offset,
            _ => {
                let offset = self.bytes.len();
                self.bytes.extend_from_slice(&self.scratch);
                self.by_hash.insert(hash, (offset, self.bytes.len()));
                offset
            }
        };
        packed.offset = offset as u64;
        packed
    }

    /// Returns the bytes that the column would add to the pool.
    pub(super) fn cost(&mut self, values: &[i64]) -> usize {
        let (packed, bytes) = self.pack_scratch(values);
        if packed.width == 0 {
            return 0;
        }
        let existing = self.by_hash.get(&rapidhash_v3(&self.scratch));
        if existing.is_some_and(|(offset, end)| self.bytes.get(*offset..*end) == Some(&self.scratch)) {
            0
        } else {
            bytes
        }
    }

    /// Packs a column into the scratch buffer and returns its size in bytes.
    fn pack_scratch(&mut self, values: &[i64]) -> (PackedColumn, usize) {
        let packed = shape(values);
        self.scratch.clear();
        pack(&mut self.scratch, &packed, values);
        (packed, self.scratch.len())
    }
}

/// Returns base, slope and width of a column. The slope runs from the first to the last value if
/// that makes the column narrower.
fn shape(values: &[i64]) -> PackedColumn {
    let flat = fit(values, 0);
    let (Some(first), Some(last), steps) = (values.first(), values.last(), values.len().saturating_sub(1))
    else {
        return flat;
    };
    let rise = i128::from(*last) - i128::from(*first);
    let Some(slope) = i128::try_from(steps.max(1)).ok().and_then(|n| i64::try_from((rise << 16) / n).ok())
    else {
        return flat;
    };
    // The division rounds towards zero, so the line may be one short where the exact one is an
    // integer. The next greater slope is tried as well.
    let sloped = [slope, slope.saturating_add(slope.signum())].map(|slope| fit(values, slope));
    let best = sloped.iter().min_by_key(|packed| packed.width);
    best.filter(|best| best.width < flat.width).copied().unwrap_or(flat)
}

/// Returns base and width of a column with the given slope.
fn fit(values: &[i64], slope: i64) -> PackedColumn {
    let rest =
        || values.iter().enumerate().map(|(row, value)| i128::from(*value) - i128::from(line(0, slope, row)));
    let (least, most) = rest().fold((i128::MAX, i128::MIN), |(least, most), v| (least.min(v), most.max(v)));
    let Ok(base) = i64::try_from(least) else {
        // The column is empty, or the slope overflows.
        return PackedColumn { base: 0, slope: 0, width: if values.is_empty() { 0 } else { 64 }, offset: 0 };
    };
    let bits = 128 - (most - least).cast_unsigned().leading_zeros();
    let width = if bits > 56 { 64 } else { u8::try_from(bits).unwrap_or(64) };
    PackedColumn { base, slope, width, offset: 0 }
}

/// Appends the bits of a column.
#[expect(clippy::cast_possible_truncation, reason = "the low byte is meant")]
fn pack(out: &mut Vec<u8>, packed: &PackedColumn, values: &[i64]) {
    if packed.width == 0 {
        return;
    }
    let (mut gathered, mut bits) = (0u128, 0u32);
    for (row, value) in values.iter().enumerate() {
        let rest = value.wrapping_sub(line(packed.base, packed.slope, row)).cast_unsigned();
        gathered |= u128::from(rest & mask(packed.width)) << bits;
        bits += u32::from(packed.width);
        while bits >= 8 {
            out.push(gathered as u8);
            gathered >>= 8;
            bits -= 8;
        }
    }
    if bits > 0 {
        out.push(gathered as u8);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(columns: &[Vec<i64>]) -> usize {
        let mut pool = ColumnPool::default();
        let found: Vec<PackedColumn> = columns.iter().map(|column| pool.add(column)).collect();
        let bytes = pool.bytes().len();
        let padded = [pool.bytes(), &[0; 8]].concat();
        for (column, packed) in columns.iter().zip(found) {
            let mut named = Vec::new();
            packed.put(&mut named);
            let mut reader = Reader::new(&named);
            assert_eq!(PackedColumn::take(&mut reader), Ok(packed));
            assert_eq!(reader.end(), Ok(()));
            for (row, value) in column.iter().enumerate() {
                assert_eq!(packed.get(&padded, row), Some(*value), "row {row} of {column:?}");
            }
        }
        bytes
    }

    #[test]
    fn even_columns_take_no_bytes_and_equal_ones_are_stored_once() {
        for column in [vec![], vec![7], vec![-5; 100], (0..1_000).map(|n| 17 + n * 107).collect()] {
            assert_eq!(check(&[column]), 0);
        }
        let uneven: Vec<i64> = (0..800).map(|n| n * n % 16).collect();
        assert_eq!(check(std::slice::from_ref(&uneven)), 400);
        let higher = uneven.iter().map(|n| n + 1_000_000).collect();
        assert_eq!(check(&[uneven, higher]), 400, "only the bases differ");
        assert!(check(&[(0..3_600).map(|n| n / 36).collect()]) <= 3_600 / 4);
        check(&[vec![i64::MIN, i64::MAX, 0, -1], vec![i64::MIN; 3], vec![i64::MAX, i64::MIN]]);
    }

    proptest! {
        #[test]
        fn any_column_decodes_to_its_numbers(columns in prop::collection::vec(prop::collection::vec(any::<i64>(), 0..20), 0..5), shift in 0u32..63) {
            let narrow = columns.iter().map(|column| column.iter().map(|n| n >> shift).collect::<Vec<_>>());
            check(&narrow.collect::<Vec<_>>());
        }
    }
}
