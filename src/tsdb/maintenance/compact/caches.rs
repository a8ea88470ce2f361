//! Caches of a merge: the numbers of label values, and decoded times. Nearly every series uses
//! them.

use std::ops::Range;

use rapidhash::RapidHashMap;

use crate::tsdb::segment::{FamilyScan, Segment, SegmentBlock, SegmentDamage, SegmentWriter};

/// The mark of a value without a number.
const UNKNOWN: u32 = u32::MAX;
/// The limit of cached value numbers.
const NUMBERS_MAX: usize = 4 << 20;
/// The limit of cached times.
const SHARED_MAX: usize = 1 << 18;

/// The writer's value numbers by source, label name and value. The cache is cleared when it exceeds
/// 16 MiB.
#[derive(Default)]
pub(super) struct ValueNumbers {
    by_source: Vec<Vec<Vec<u32>>>,
    /// The number of slots in all of them.
    slots: usize,
    /// The numbers of the current row.
    pub(super) row: Vec<u32>,
}

/// A family of one of the sources, while it is read.
#[derive(Clone, Copy)]
pub(super) struct SourceFamily<'w> {
    /// The index among the sources.
    pub(super) source: usize,
    pub(super) walk: &'w FamilyScan<'w>,
}

impl ValueNumbers {
    /// Sets the numbers of a row. The writer has already begun the row's family.
    pub(super) fn set(
        &mut self,
        writer: &mut SegmentWriter,
        family: SourceFamily<'_>,
        row: usize,
    ) -> Result<(), SegmentDamage> {
        let SourceFamily { source, walk } = family;
        self.row.clear();
        if self.slots > NUMBERS_MAX {
            self.by_source.clear();
            self.slots = 0;
        }
        if self.by_source.len() <= source {
            self.by_source.resize_with(source + 1, Vec::new);
        }
        let Some(labels) = self.by_source.get_mut(source) else { return Ok(()) };
        let mut failed = None;
        walk.numbers(row, |name, value| {
            if labels.len() <= name {
                labels.resize_with(name + 1, Vec::new);
            }
            let Some(values) = labels.get_mut(name) else { return };
            let index = value as usize;
            if values.get(index).is_none_or(|number| *number == UNKNOWN) {
                match walk.segment().value(name, value) {
                    Ok(text) => {
                        if values.len() <= index {
                            self.slots += index + 1 - values.len();
                            values.resize(index + 1, UNKNOWN);
                        }
                        if let Some(slot) = values.get_mut(index) {
                            *slot = writer.number(self.row.len(), &text);
                        }
                    }
                    Err(damage) => failed = failed.take().or(Some(damage)),
                }
            }
            self.row.push(values.get(index).copied().unwrap_or(UNKNOWN));
        })?;
        failed.map_or(Ok(()), Err)
    }
}

/// Decoded times of blocks that many series share, so that each is decoded once. The cache is
/// cleared when it exceeds 2 MiB.
#[derive(Default)]
pub(super) struct SharedTimes {
    /// The range in `times`, by source and offset of the block.
    ranges: RapidHashMap<(usize, u64), Range<usize>>,
    times: Vec<i64>,
}

impl SharedTimes {
    /// Appends the times of a block to `out`.
    pub(super) fn read(
        &mut self,
        source: usize,
        segment: &Segment,
        block: &SegmentBlock<'_>,
        out: &mut Vec<i64>,
    ) -> Result<(), SegmentDamage> {
        let key = (source, block.times_offset);
        if let Some(times) = self.ranges.get(&key).and_then(|range| self.times.get(range.clone())) {
            out.extend_from_slice(times);
            return Ok(());
        }
        let start = out.len();
        segment.times(block, out)?;
        let times = out.get(start..).unwrap_or_default();
        if self.times.len() + times.len() > SHARED_MAX {
            self.ranges.clear();
            self.times.clear();
        }
        self.ranges.insert(key, self.times.len()..self.times.len() + times.len());
        self.times.extend_from_slice(times);
        Ok(())
    }
}
