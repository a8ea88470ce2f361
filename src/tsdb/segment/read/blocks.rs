//! The blocks of a series.

use super::super::block::{TimeHeader, time_header, times_of, values_within};
use super::super::format::{DATA, TIMES};
use super::{Rows, Segment, SegmentDamage};
use crate::tsdb::codec::Reader;
use crate::tsdb::error::Damage;
use crate::tsdb::report::SampleColumns;

/// One block of a series.
#[derive(Clone, Copy, Debug)]
pub(in crate::tsdb) struct Block<'a> {
    pub(in crate::tsdb) count: usize,
    pub(in crate::tsdb) first: i64,
    pub(in crate::tsdb) last: i64,
    pub(super) times: &'a [u8],
    /// Where in TIMES the time block is: equal for equal times within a segment.
    pub(in crate::tsdb) time_place: u64,
    /// The value block.
    pub(in crate::tsdb) values: &'a [u8],
    pub(super) values_place: u64,
}

impl Segment {
    /// Appends the samples of a block; all of them or, on damage, none.
    pub(in crate::tsdb) fn decode(
        &self,
        id: u32,
        block: &Block<'_>,
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

    /// Appends the values of a block; all of them or, on damage, none.
    pub(in crate::tsdb) fn values(
        &self,
        id: u32,
        block: &Block<'_>,
        out: &mut Vec<f64>,
    ) -> Result<(), SegmentDamage> {
        values_within(block.values, id, block.count, 0..block.count, out)
            .map_err(|damage| self.at_place(DATA, block.values_place, damage))
    }

    /// Appends the times of a block.
    pub(in crate::tsdb) fn times(&self, block: &Block<'_>, out: &mut Vec<i64>) -> Result<(), SegmentDamage> {
        let before = out.len();
        times_of(block.times, out).map_err(|damage| self.at_place(TIMES, block.time_place, damage))?;
        let found = out.get(before..).unwrap_or_default();
        // That they ascend was seen to when they were decoded.
        if found.len() == block.count
            && (found.first(), found.last()) == (Some(&block.first), Some(&block.last))
        {
            return Ok(());
        }
        out.truncate(before);
        Err(self.at_place(TIMES, block.time_place, Damage::new(0, "times are not what they claim to be")))
    }

    /// Damage of a block's values, found by somebody who copied it.
    pub(in crate::tsdb) fn value_damage(&self, block: &Block<'_>, damage: Damage) -> SegmentDamage {
        self.at_place(DATA, block.values_place, damage)
    }

    /// The blocks of a series in order of time, until `act` answers false.
    pub(in crate::tsdb) fn each_block<'a>(
        &'a self,
        family: usize,
        row: usize,
        act: impl FnMut(u32, Block<'a>) -> Result<bool, SegmentDamage>,
    ) -> Result<(), SegmentDamage> {
        self.blocks_of(&self.family(family)?.rows, row, act)
    }

    pub(super) fn blocks_of<'a>(
        &'a self,
        rows: &Rows,
        row: usize,
        mut act: impl FnMut(u32, Block<'a>) -> Result<bool, SegmentDamage>,
    ) -> Result<(), SegmentDamage> {
        let stored = self.stored(rows, row)?;
        let mut values = BlockBytes::new(self, stored.region, stored.start, stored.list.len())?;
        for place in stored.list {
            let (times, time_place) = self.time_block(place)?;
            let TimeHeader { count, first, last, .. } =
                time_header(times).map_err(|damage| self.at_place(TIMES, time_place, damage))?;
            let (values_place, values) = values.next()?;
            let block = Block { count, first, last, times, time_place, values, values_place };
            if !act(stored.id, block)? {
                break;
            }
        }
        self.intact()
    }

    /// What begins with the time block at this place in the list of all timelines, and where that is in TIMES.
    pub(super) fn time_block(&self, place: usize) -> Result<(&[u8], u64), SegmentDamage> {
        let at = self.time_place(place).ok_or_else(|| self.no_row())?;
        self.ask_for_times(at);
        let times = self.section(TIMES).get(at..).ok_or_else(|| self.no_row())?;
        Ok((times, at as u64))
    }
}

/// The value blocks of a series one after the other.
pub(super) struct BlockBytes<'a> {
    segment: &'a Segment,
    lengths: Reader<'a>,
    blocks: Reader<'a>,
    count: usize,
    /// The number of the next block.
    number: usize,
    /// Where the region begins and ends in DATA.
    start: usize,
    end: usize,
}

impl<'a> BlockBytes<'a> {
    /// Of a region of so many blocks that begins at `start` in DATA.
    pub(super) fn new(
        segment: &'a Segment,
        region: &'a [u8],
        start: usize,
        count: usize,
    ) -> Result<BlockBytes<'a>, SegmentDamage> {
        let lengths = Reader::new(region);
        let mut blocks = lengths;
        for _ in 1..count {
            blocks.varint().map_err(|damage| segment.at_place(DATA, start as u64, damage))?;
        }
        Ok(BlockBytes { segment, lengths, blocks, count, number: 0, start, end: start + region.len() })
    }

    /// Where the next block is in DATA, and its bytes.
    pub(super) fn next(&mut self) -> Result<(u64, &'a [u8]), SegmentDamage> {
        let place = (self.end - self.blocks.left()) as u64;
        self.number += 1;
        let bytes = if self.number >= self.count { Ok(self.blocks.left()) } else { self.lengths.count(1) };
        let taken = bytes.and_then(|bytes| self.blocks.take(bytes));
        let taken = taken.map_err(|damage| self.segment.at_place(DATA, self.start as u64, damage))?;
        Ok((place, taken))
    }

    /// The block of this number, as [`BlockBytes::next`]. Numbers ascend from call to call.
    pub(super) fn nth(&mut self, number: usize) -> Result<(u64, &'a [u8]), SegmentDamage> {
        while self.number < number {
            self.next()?;
        }
        self.next()
    }
}
