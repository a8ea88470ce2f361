//! The samples of one series after the other within a range, and what of their times is known from the series before:
//! those that are written together share their timeline.

use std::ops::Range;
use std::sync::Arc;

use rapidhash::RapidHashMap;

use super::super::block::{TimeHeader, time_header, values_within};
use super::super::format::{DATA, TIMES};
use super::blocks::BlockBytes;
use super::rows::Stored;
use super::{Block, Rows, Segment, SegmentDamage};
use crate::model::{RegularTimes, TimeRange, Times, TimesBuilder};
use crate::tsdb::decoded::{Found as Kept, Keeper, Piece, Place};
use crate::tsdb::report::SampleColumns;

/// Times kept at most before all are forgotten, 2 MiB: those of a hundred targets, if the range is some hours.
const TIMES_MAX: usize = 1 << 18;
/// Places of timelines that are found at once.
const RECENT: usize = 1_024;
/// Bytes of the processor's memory come so many at once; and so many of a series are about what its newest values take.
const LINE_BYTES: usize = 64;
const TOUCHED_BYTES: usize = 256;
/// Timelines kept at most, and so many that there is room for once a second one is met.
const TIMELINES_MAX: usize = 4_096;
const TIMELINES_USUAL: usize = 64;

/// The timelines that one reader met: their times within its range, each block verified when it was decoded.
#[derive(Debug, Default)]
pub(in crate::tsdb) struct KnownTimes {
    /// Of each timeline the newest sample within the range is wanted alone.
    newest: bool,
    /// What is asked for, both ends included; with another range all is forgotten.
    range: Option<TimeRange>,
    timelines: Vec<Timeline>,
    /// The blocks of all of them that overlap with the range.
    wanted: Vec<Wanted>,
    /// By number of the segment and of its timeline: place in `timelines`.
    places: RapidHashMap<(u64, usize), usize>,
    /// By some bits of those: the place of one that was asked for, which needs no hash.
    recent: Vec<u32>,
    /// Times in all of them.
    held: usize,
}

/// What of a timeline is within the range.
#[derive(Debug)]
struct Timeline {
    key: (u64, usize),
    /// Which of the blocks are its own.
    wanted: Range<usize>,
    /// The times of the wanted samples.
    times: Arc<Times>,
    /// The list cannot be read further than that.
    damage: Option<SegmentDamage>,
}

/// A block that overlaps with the range.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    /// Its number among the blocks of the timeline.
    block: usize,
    /// Samples of the block.
    count: usize,
    /// The wanted ones among them.
    from: usize,
    to: usize,
}

impl KnownTimes {
    /// Where of each timeline the newest sample within the range is wanted alone.
    pub(in crate::tsdb) fn of_newest() -> KnownTimes {
        KnownTimes { newest: true, ..KnownTimes::default() }
    }

    fn forget(&mut self, range: TimeRange) {
        *self = KnownTimes { newest: self.newest, range: Some(range), ..KnownTimes::default() };
    }

    /// What of a timeline is within the range, and the blocks that have it.
    fn timeline(
        &mut self,
        segment: &Segment,
        number: usize,
        range: TimeRange,
    ) -> Option<(&Timeline, &[Wanted])> {
        if self.range != Some(range) {
            self.forget(range);
        }
        let key = (segment.meta().seq, number);
        let slot = (usize::try_from(key.0).unwrap_or_default() ^ number) % RECENT;
        let recent = self.recent.get(slot).map_or(usize::MAX, |place| *place as usize);
        if self.timelines.get(recent).is_some_and(|timeline| timeline.key == key) {
            return self.at(recent);
        }
        let place = match self.places.get(&key) {
            Some(place) => {
                if self.recent.is_empty() {
                    // Not for who reads one series alone.
                    self.recent = vec![u32::MAX; RECENT];
                }
                *place
            }
            None => {
                let list = segment.timeline_list(number)?;
                if self.timelines.len() == 1 {
                    self.timelines.reserve(TIMELINES_USUAL);
                    self.wanted.reserve(TIMELINES_USUAL);
                    self.places.reserve(TIMELINES_USUAL);
                }
                let mut timeline = self.within(segment, (number, list), range);
                if self.held + timeline.times.len() > TIMES_MAX || self.timelines.len() >= TIMELINES_MAX {
                    let own = self.wanted.split_off(timeline.wanted.start);
                    self.forget(range);
                    (timeline.wanted, self.wanted) = (0..own.len(), own);
                }
                self.held += timeline.times.len();
                self.timelines.push(timeline);
                self.places.insert(key, self.timelines.len() - 1);
                self.timelines.len() - 1
            }
        };
        if let Some(recent) = self.recent.get_mut(slot) {
            *recent = u32::try_from(place).unwrap_or(u32::MAX);
        }
        self.at(place)
    }

    fn at(&self, place: usize) -> Option<(&Timeline, &[Wanted])> {
        let timeline = self.timelines.get(place)?;
        Some((timeline, self.wanted.get(timeline.wanted.clone())?))
    }

    fn within(
        &mut self,
        segment: &Segment,
        (number, list): (usize, Range<usize>),
        range: TimeRange,
    ) -> Timeline {
        let (newest, from) = (self.newest, self.wanted.len());
        let wanted = &mut self.wanted;
        let mut found = Found { newest, wanted, from, times: TimesBuilder::default() };
        let mut damage = None;
        for (block, place) in list.enumerate() {
            match found.add(segment, block, place, range) {
                Ok(true) => {}
                Ok(false) => break,
                Err(why) => {
                    damage = Some(why);
                    break;
                }
            }
        }
        if newest {
            found.keep_newest();
        }
        let times = Arc::new(found.times.build());
        Timeline { key: (segment.meta().seq, number), wanted: from..self.wanted.len(), times, damage }
    }
}

/// What is found of a timeline, block by block.
struct Found<'k> {
    /// The newest sample is wanted alone: times before it may be missing.
    newest: bool,
    /// Its own blocks, from there on.
    wanted: &'k mut Vec<Wanted>,
    from: usize,
    times: TimesBuilder,
}

impl Found<'_> {
    /// Takes what is wanted of a block; answers whether the next one may be wanted as well.
    fn add(
        &mut self,
        segment: &Segment,
        block: usize,
        place: usize,
        range: TimeRange,
    ) -> Result<bool, SegmentDamage> {
        let (start, end) = (range.start.as_ms(), range.end.as_ms());
        let (times, time_place) = segment.time_block(place)?;
        let TimeHeader { count, first, last, step, .. } =
            time_header(times).map_err(|damage| segment.at_place(TIMES, time_place, damage))?;
        if last < start {
            return Ok(true);
        }
        if first > end {
            return Ok(false);
        }
        if let Some(step) = step {
            let places = self.add_regular((first, last, step), count, (start, end));
            self.wanted.push(Wanted { block, count, from: places.start, to: places.end });
            return Ok(true);
        }
        let list = self.times.list_mut();
        let before = list.len();
        // At most 1,024, as the header was read.
        list.reserve(count);
        let found = Block { count, first, last, times, time_place, values: &[], values_place: 0 };
        segment.times(&found, list)?;
        let decoded = list.get(before..).unwrap_or_default();
        let from = decoded.partition_point(|time| *time < start);
        // A range may end before it begins.
        let to = decoded.partition_point(|time| *time <= end).max(from);
        list.truncate(before + to);
        list.drain(before..before + from);
        self.wanted.push(Wanted { block, count, from, to });
        Ok(true)
    }

    /// Leaves the newest of what is wanted.
    fn keep_newest(&mut self) {
        // A range that ends between two samples may want nothing of a block which it reaches into.
        let own = self.wanted.get(self.from..).unwrap_or_default();
        let last = own.iter().rfind(|wanted| wanted.from < wanted.to).copied();
        self.wanted.truncate(self.from);
        self.wanted.extend(last.map(|last| Wanted { from: last.to - 1, ..last }));
        self.times.keep_last();
    }

    /// Adds those of `count` times that are within a range which they reach into, or the newest of them: which they are needs
    /// no look at the others.
    fn add_regular(
        &mut self,
        (first, last, step): (i64, i64, i64),
        count: usize,
        (start, end): (i64, i64),
    ) -> Range<usize> {
        let place = |apart: u64| usize::try_from(apart / step.unsigned_abs()).unwrap_or(count).min(count);
        // The first one that is not before the start.
        let from = if start <= first { 0 } else { place(start.abs_diff(first) - 1) + 1 };
        let to = if end >= last { count } else { place(end.abs_diff(first)) + 1 };
        // A range may end before it begins.
        let to = to.max(from);
        let told = if self.newest { from.max(to.saturating_sub(1)) } else { from };
        let at = first.wrapping_add(step.wrapping_mul(i64::try_from(told).unwrap_or_default()));
        self.times.push_regular(RegularTimes { first: at, interval_ms: step, len: to.saturating_sub(told) });
        from..to
    }
}

/// Whether the value at that place is not less than the one before.
pub(in crate::tsdb) fn rises_at(values: &[f64], place: usize) -> bool {
    let before = place.checked_sub(1).and_then(|before| values.get(before));
    before.zip(values.get(place)).is_none_or(|(before, value)| before <= value)
}

/// The values of a series' blocks one after the other, of those that are kept and of those that are not.
struct Values<'a, 'k> {
    segment: &'a Segment,
    rows: &'k Rows,
    row: usize,
    /// Its series, and where its blocks are, once one is looked at.
    bytes: Option<(u32, BlockBytes<'a>)>,
    keeper: Option<&'k mut Keeper>,
}

impl Values<'_, '_> {
    /// Appends the wanted values of a block; blocks ascend from call to call. Answers whether it is known that all are
    /// numbers and none is less than the one before. On damage anything may be appended.
    fn take(&mut self, wanted: &Wanted, out: &mut Vec<f64>) -> Result<bool, SegmentDamage> {
        let Wanted { block, count, from, to } = *wanted;
        let place = Place { segment: self.segment.meta().seq, family: self.rows.data, row: self.row, block };
        let Some(keeper) = self.keeper.as_mut() else {
            return self.decode((block, count), from..to, out).map(|()| false);
        };
        match keeper.find(&place, count, from..to, out) {
            Kept::Here(rises) => Ok(rises),
            Kept::Missing => self.decode((block, count), from..to, out).map(|()| false),
            Kept::Wanted(since) => {
                let mut whole = keeper.scratch();
                self.decode((block, count), 0..count, &mut whole)?;
                out.extend_from_slice(whole.get(from..to).unwrap_or_default());
                if let Some(keeper) = self.keeper.as_mut() {
                    keeper.keep(&place, &whole, since, &self.segment.retired);
                    keeper.give_back(whole);
                }
                Ok(false)
            }
        }
    }

    fn decode(
        &mut self,
        (number, count): (usize, usize),
        wanted: Range<usize>,
        out: &mut Vec<f64>,
    ) -> Result<(), SegmentDamage> {
        let (id, bytes) = match &mut self.bytes {
            Some(bytes) => bytes,
            none => {
                let Stored { region, start, id, list } = self.segment.stored(self.rows, self.row)?;
                self.segment.ask_for_data(start, region.len());
                none.insert((id, BlockBytes::new(self.segment, region, start, list.len())?))
            }
        };
        let (place, block) = bytes.nth(number)?;
        values_within(block, *id, count, wanted, out)
            .map_err(|damage| self.segment.at_place(DATA, place, damage))
    }
}

impl Segment {
    /// Appends the values of a row with this timeline within a range, both ends included, to `out`; answers the times of
    /// those in range, and whether it is known that all are numbers and none is less than the one before. On damage
    /// anything may be appended.
    pub(in crate::tsdb) fn values_alone(
        &self,
        (rows, row, number): (&Rows, usize, usize),
        range: TimeRange,
        known: &mut KnownTimes,
        keeper: Option<&mut Keeper>,
        out: &mut Vec<f64>,
    ) -> Result<(Arc<Times>, bool), SegmentDamage> {
        let (timeline, wanted) = known.timeline(self, number, range).ok_or_else(|| self.no_row())?;
        if let Some(damage) = &timeline.damage {
            return Err(damage.clone());
        }
        let mut values = Values { segment: self, rows, row, bytes: None, keeper };
        let (start, mut rises) = (out.len(), true);
        for wanted in wanted {
            let before = out.len();
            rises &= values.take(wanted, out)?;
            rises &= before == start || rises_at(out, before);
        }
        self.intact().map(|()| (Arc::clone(&timeline.times), rises))
    }

    /// What of a row with this timeline is within a range, where that is of one block and the times of it can be read.
    pub(in crate::tsdb) fn piece(
        &self,
        (rows, row, number): (&Rows, usize, usize),
        range: TimeRange,
        known: &mut KnownTimes,
    ) -> Option<Piece> {
        let (timeline, wanted) = known.timeline(self, number, range)?;
        let [Wanted { block, count, from, to }] = *wanted else { return None };
        if timeline.damage.is_some() {
            return None;
        }
        let place = Place { segment: self.meta().seq, family: rows.data, row, block };
        Some(Piece { place, count, wanted: from..to })
    }

    /// Looks at where the blocks of a row begin, so that whoever reads them soon need not wait for memory; what is there
    /// means nothing.
    pub(in crate::tsdb) fn touch(&self, rows: &Rows, row: usize) -> u8 {
        let region = self.stored(rows, row).map_or(&[][..], |Stored { region, start, .. }| {
            self.ask_for_data(start, region.len());
            region
        });
        region.iter().take(TOUCHED_BYTES).step_by(LINE_BYTES).fold(0, |sum, byte| sum ^ byte)
    }

    /// The times that the values of [`Segment::values_alone`] have.
    pub(in crate::tsdb) fn times_within(
        &self,
        number: usize,
        range: TimeRange,
        known: &mut KnownTimes,
    ) -> Result<Arc<Times>, SegmentDamage> {
        let timeline = known.timeline(self, number, range);
        let times = timeline.map(|(timeline, _)| Arc::clone(&timeline.times)).ok_or_else(|| self.no_row())?;
        self.intact().map(|()| times)
    }

    /// Appends the samples of a series within a range, both ends included, to `out`. Only blocks that overlap with the
    /// range are looked at; each is verified, but for times that are known. On damage `out` has the samples of the blocks
    /// before it.
    pub(in crate::tsdb) fn read(
        &self,
        (rows, row): (&Rows, usize),
        range: TimeRange,
        known: &mut KnownTimes,
        keeper: Option<&mut Keeper>,
        out: &mut SampleColumns,
    ) -> Result<(), SegmentDamage> {
        let number = self.timeline_of(rows, row).ok_or_else(|| self.no_row())?;
        let (timeline, wanted) = known.timeline(self, number, range).ok_or_else(|| self.no_row())?;
        let before = out.values.len();
        let mut values = Values { segment: self, rows, row, bytes: None, keeper };
        let mut wanted = wanted.iter();
        let read = wanted.try_for_each(|wanted| values.take(wanted, &mut out.values).map(drop));
        // Of a damaged block there are no values.
        let good = out.values.len() - before;
        out.times.extend_from_slice(timeline.times.list().get(..good).unwrap_or_default());
        read?;
        timeline.damage.clone().map_or(Ok(()), Err)?;
        self.intact()
    }
}
