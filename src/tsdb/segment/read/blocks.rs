//! Reads the blocks of a series.

use super::super::block::{TimeHeader, time_header, times_of, values_within};
use super::super::format::{DATA, TIMES};
use super::{FamilyRows, Segment, SegmentDamage};
use crate::tsdb::codec::Reader;
use crate::tsdb::error::Damage;
use crate::tsdb::report::SampleColumns;

/// One block of a series.
#[derive(Clone, Copy, Debug)]
pub(in crate::tsdb) struct SegmentBlock<'a> {
    pub(in crate::tsdb) count: usize,
    pub(in crate::tsdb) first: i64,
    pub(in crate::tsdb) last: i64,
    pub(super) times: &'a [u8],
    /// Offset of the time block in TIMES. Blocks of a segment with equal times have the same
    /// offset.
    pub(in crate::tsdb) times_offset: u64,
    /// The bytes of the value block.
    pub(in crate::tsdb) values: &'a [u8],
    pub(super) values_offset: u64,
}

impl Segment {
    /// Appends the samples of a block. On damage nothing is appended.
    pub(in crate::tsdb) fn decode(
        &self,
        id: u32,
        block: &SegmentBlock<'_>,
        out: &mut SampleColumns,
    ) -> Result<(), SegmentDamage> {
        let before = out.times.len();
        self.times(block, &mut out.times)?;
        let values = self.values(id, block, &mut out.values);
        if values.is_err() {
            out.times.truncate(before);
        }
        values
    }

    /// Appends the values of a block. On damage nothing is appended.
    pub(in crate::tsdb) fn values(
        &self,
        id: u32,
        block: &SegmentBlock<'_>,
        out: &mut Vec<f64>,
    ) -> Result<(), SegmentDamage> {
        values_within(block.values, id, block.count, 0..block.count, out)
            .map_err(|damage| self.at_offset(DATA, block.values_offset, damage))
    }

    /// Appends the times of a block. On damage nothing is appended.
    pub(in crate::tsdb) fn times(
        &self,
        block: &SegmentBlock<'_>,
        out: &mut Vec<i64>,
    ) -> Result<(), SegmentDamage> {
        let before = out.len();
        times_of(block.times, out).map_err(|damage| self.at_offset(TIMES, block.times_offset, damage))?;
        let found = out.get(before..).unwrap_or_default();
        // The decoder has verified that the times ascend.
        if found.len() == block.count
            && (found.first(), found.last()) == (Some(&block.first), Some(&block.last))
        {
            return Ok(());
        }
        out.truncate(before);
        Err(self.at_offset(TIMES, block.times_offset, Damage::new(0, "times differ from their header")))
    }

    /// Converts damage that a caller found in a copied value block.
    pub(in crate::tsdb) fn value_damage(&self, block: &SegmentBlock<'_>, damage: Damage) -> SegmentDamage {
        self.at_offset(DATA, block.values_offset, damage)
    }

    /// Calls `act` with the blocks of a row in order of time, until it returns false.
    pub(in crate::tsdb) fn each_block<'a>(
        &'a self,
        family: usize,
        row: usize,
        act: impl FnMut(u32, SegmentBlock<'a>) -> Result<bool, SegmentDamage>,
    ) -> Result<(), SegmentDamage> {
        self.blocks_of(&self.family(family)?.rows, row, act)
    }

    /// Calls `act` with the series id and each block of a row in order of time, until it returns
    /// false.
    pub(super) fn blocks_of<'a>(
        &'a self,
        rows: &FamilyRows,
        row: usize,
        mut act: impl FnMut(u32, SegmentBlock<'a>) -> Result<bool, SegmentDamage>,
    ) -> Result<(), SegmentDamage> {
        let stored = self.stored(rows, row)?;
        let mut values = ValueBlocks::new(self, stored.region, stored.start, stored.list.len())?;
        for list_index in stored.list {
            let (times, times_offset) = self.time_block(list_index)?;
            let TimeHeader { count, first, last, .. } =
                time_header(times).map_err(|damage| self.at_offset(TIMES, times_offset, damage))?;
            let (values_offset, values) = values.next()?;
            let block = SegmentBlock { count, first, last, times, times_offset, values, values_offset };
            if !act(stored.id, block)? {
                break;
            }
        }
        self.intact()
    }

    /// Returns the bytes of TIMES from a time block on, and its offset, given its index in the list
    /// of blocks of all timelines.
    pub(super) fn time_block(&self, list_index: usize) -> Result<(&[u8], u64), SegmentDamage> {
        let at = self.time_block_offset(list_index).ok_or_else(|| self.no_row())?;
        self.prefetch_time_block(at);
        let times = self.section(TIMES).get(at..).ok_or_else(|| self.no_row())?;
        Ok((times, at as u64))
    }
}

/// An iterator over the value blocks of a row.
pub(super) struct ValueBlocks<'a> {
    segment: &'a Segment,
    lengths: Reader<'a>,
    blocks: Reader<'a>,
    count: usize,
    /// Index of the next block.
    number: usize,
    /// Offsets of the start and the end of the region in DATA.
    start: usize,
    end: usize,
}

impl<'a> ValueBlocks<'a> {
    /// Reads a region of `count` blocks at offset `start` in DATA.
    pub(super) fn new(
        segment: &'a Segment,
        region: &'a [u8],
        start: usize,
        count: usize,
    ) -> Result<ValueBlocks<'a>, SegmentDamage> {
        let lengths = Reader::new(region);
        let mut blocks = lengths;
        for _ in 1..count {
            blocks.varint().map_err(|damage| segment.at_offset(DATA, start as u64, damage))?;
        }
        Ok(ValueBlocks { segment, lengths, blocks, count, number: 0, start, end: start + region.len() })
    }

    /// Returns the offset in DATA and the bytes of the next block.
    pub(super) fn next(&mut self) -> Result<(u64, &'a [u8]), SegmentDamage> {
        let offset = (self.end - self.blocks.left()) as u64;
        self.number += 1;
        let bytes = if self.number >= self.count { Ok(self.blocks.left()) } else { self.lengths.count(1) };
        let taken = bytes.and_then(|bytes| self.blocks.take(bytes));
        let taken = taken.map_err(|damage| self.segment.at_offset(DATA, self.start as u64, damage))?;
        Ok((offset, taken))
    }

    /// Returns block `number` as [`ValueBlocks::next`] does. Numbers ascend from call to call.
    pub(super) fn nth(&mut self, number: usize) -> Result<(u64, &'a [u8]), SegmentDamage> {
        while self.number < number {
            self.next()?;
        }
        self.next()
    }
}
