//! Times that were decoded for another series: those that are written together share their time blocks.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::super::block::TimeHeader;
use super::{Block, Segment, SegmentDamage};

/// Time blocks kept at most before all are forgotten: those of a hundred targets, up to 2 MiB.
const BLOCKS_MAX: usize = 256;

/// The time blocks that one reader met, each verified when it was decoded.
#[derive(Debug, Default)]
pub(in crate::tsdb) struct KnownTimes {
    /// By the segment's number and where in its times the block is.
    blocks: HashMap<(u64, u64), Known>,
}

#[derive(Debug)]
struct Known {
    /// Its length in bytes is not among what is known.
    header: TimeHeader,
    times: Vec<i64>,
}

impl KnownTimes {
    /// Count and span of a block, if it is known.
    pub(super) fn header(&self, place: (u64, u64)) -> Option<TimeHeader> {
        self.blocks.get(&place).map(|known| known.header)
    }

    /// The times of a block.
    pub(super) fn times(&mut self, segment: &Segment, block: &Block<'_>) -> Result<&[i64], SegmentDamage> {
        let place = (segment.meta().seq, block.time_place);
        if self.blocks.len() >= BLOCKS_MAX && !self.blocks.contains_key(&place) {
            self.blocks.clear();
        }
        match self.blocks.entry(place) {
            Entry::Occupied(known) => Ok(&known.into_mut().times),
            Entry::Vacant(place) => {
                let mut times = Vec::with_capacity(block.count);
                segment.times(block, &mut times)?;
                let (count, first, last) = (block.count, block.first, block.last);
                Ok(&place.insert(Known { header: TimeHeader { bytes: 0, count, first, last }, times }).times)
            }
        }
    }
}
