//! What a merge knows already: texts that it looked up, times that it decoded. Both come again with nearly every series.

use std::ops::Range;

use rapidhash::RapidHashMap;

use crate::tsdb::segment::{FamilyScan, Segment, SegmentBlock, SegmentDamage, SegmentWriter};

/// No number yet.
const UNKNOWN: u32 = u32::MAX;
/// Numbers of one merge.
const NUMBERS_MAX: usize = 4 << 20;
/// Times of one merge.
const SHARED_MAX: usize = 1 << 18;

/// By source, label name and value: the writer's number of that value. At most 16 MiB, then they are asked anew.
#[derive(Default)]
pub(super) struct Numbers {
    known: Vec<Vec<Vec<u32>>>,
    /// Places for numbers in all of them.
    places: usize,
    /// Those of the row at hand.
    pub(super) row: Vec<u32>,
}

impl Numbers {
    /// Sets the numbers of a row. The writer has begun its family.
    pub(super) fn set(
        &mut self,
        writer: &mut SegmentWriter,
        (source, walk): (usize, &FamilyScan<'_>),
        row: usize,
    ) -> Result<(), SegmentDamage> {
        self.row.clear();
        if self.places > NUMBERS_MAX {
            self.known.clear();
            self.places = 0;
        }
        if self.known.len() <= source {
            self.known.resize_with(source + 1, Vec::new);
        }
        let Some(known) = self.known.get_mut(source) else { return Ok(()) };
        let mut failed = None;
        walk.numbers(row, |name, value| {
            if known.len() <= name {
                known.resize_with(name + 1, Vec::new);
            }
            let Some(values) = known.get_mut(name) else { return };
            let place = value as usize;
            if values.get(place).is_none_or(|number| *number == UNKNOWN) {
                match walk.segment().value(name, value) {
                    Ok(text) => {
                        if values.len() <= place {
                            self.places += place + 1 - values.len();
                            values.resize(place + 1, UNKNOWN);
                        }
                        if let Some(slot) = values.get_mut(place) {
                            *slot = writer.number(self.row.len(), &text);
                        }
                    }
                    Err(damage) => failed = failed.take().or(Some(damage)),
                }
            }
            self.row.push(values.get(place).copied().unwrap_or(UNKNOWN));
        })?;
        failed.map_or(Ok(()), Err)
    }
}

/// The times of blocks that many series share, so that each is decoded once: 2 MiB of them, then they are read anew.
#[derive(Default)]
pub(super) struct SharedTimes {
    /// By source and place of the block.
    known: RapidHashMap<(usize, u64), Range<usize>>,
    times: Vec<i64>,
}

impl SharedTimes {
    /// Appends the times of a block to `out`.
    pub(super) fn read(
        &mut self,
        (source, segment): (usize, &Segment),
        block: &SegmentBlock<'_>,
        out: &mut Vec<i64>,
    ) -> Result<(), SegmentDamage> {
        let key = (source, block.times_offset);
        if let Some(times) = self.known.get(&key).and_then(|range| self.times.get(range.clone())) {
            out.extend_from_slice(times);
            return Ok(());
        }
        let start = out.len();
        segment.times(block, out)?;
        let times = out.get(start..).unwrap_or_default();
        if self.times.len() + times.len() > SHARED_MAX {
            self.known.clear();
            self.times.clear();
        }
        self.known.insert(key, self.times.len()..self.times.len() + times.len());
        self.times.extend_from_slice(times);
        Ok(())
    }
}
