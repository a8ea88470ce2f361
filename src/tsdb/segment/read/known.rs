//! The samples of one series after the other within a range, and what of their times is known from the series before:
//! those that are written together share their timeline.

use std::sync::Arc;

use rapidhash::RapidHashMap;

use super::super::block::{TimeHeader, time_header, values_within};
use super::super::format::{DATA, TIMES};
use super::blocks::BlockBytes;
use super::rows::Stored;
use super::{Block, Rows, Segment, SegmentDamage};
use crate::model::TimeRange;
use crate::tsdb::decoded::{Found as Kept, Keeper, Place};
use crate::tsdb::report::SampleColumns;

/// Times kept at most before all are forgotten, 2 MiB: those of a hundred targets, if the range is some hours.
const TIMES_MAX: usize = 1 << 18;
/// Timelines kept at most.
const TIMELINES_MAX: usize = 4_096;

/// The timelines that one reader met: their times within its range, each block verified when it was decoded.
#[derive(Debug, Default)]
pub(in crate::tsdb) struct KnownTimes {
    /// What is asked for, both ends included; with another range all is forgotten.
    range: Option<TimeRange>,
    timelines: Vec<Timeline>,
    /// By number of the segment and of its timeline: place in `timelines`.
    places: RapidHashMap<(u64, usize), usize>,
    /// The one asked for last.
    last: Option<((u64, usize), usize)>,
    /// Times in all of them.
    held: usize,
}

/// What of a timeline is within the range.
#[derive(Debug)]
struct Timeline {
    wanted: Vec<Wanted>,
    /// The times of the wanted samples.
    times: Arc<Vec<i64>>,
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
    /// What of a timeline, `list` in the list of all timelines, is within the range.
    fn timeline(
        &mut self,
        segment: &Segment,
        number: usize,
        list: std::ops::Range<usize>,
        range: TimeRange,
    ) -> Option<&Timeline> {
        if self.range != Some(range) {
            *self = KnownTimes { range: Some(range), ..KnownTimes::default() };
        }
        let key = (segment.meta().seq, number);
        let known = self.last.filter(|(last, _)| *last == key).map(|(_, place)| place);
        let place = match known.or_else(|| self.places.get(&key).copied()) {
            Some(place) => place,
            None => {
                let timeline = Timeline::within(segment, list, range);
                if self.held + timeline.times.len() > TIMES_MAX || self.timelines.len() >= TIMELINES_MAX {
                    *self = KnownTimes { range: Some(range), ..KnownTimes::default() };
                }
                self.held += timeline.times.len();
                self.timelines.push(timeline);
                self.places.insert(key, self.timelines.len() - 1);
                self.timelines.len() - 1
            }
        };
        self.last = Some((key, place));
        self.timelines.get(place)
    }
}

impl Timeline {
    fn within(segment: &Segment, list: std::ops::Range<usize>, range: TimeRange) -> Timeline {
        let mut found = Found::default();
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
        Timeline { wanted: found.wanted, times: Arc::new(found.times), damage }
    }
}

/// What is found of a timeline, block by block.
#[derive(Default)]
struct Found {
    wanted: Vec<Wanted>,
    times: Vec<i64>,
}

impl Found {
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
        let before = self.times.len();
        // At most 1,024, as the header was read.
        self.times.reserve(count);
        let found = Block { count, first, last, times, time_place, values: &[], values_place: 0 };
        segment.times(&found, &mut self.times)?;
        let decoded = self.times.get(before..).unwrap_or_default();
        let from = decoded.partition_point(|time| *time < start);
        // A range may end before it begins.
        let to = decoded.partition_point(|time| *time <= end).max(from);
        self.times.truncate(before + to);
        self.times.drain(before..before + from);
        self.wanted.push(Wanted { block, count, from, to });
        Ok(true)
    }

    /// Adds those of `count` times that are within a range which they reach into: which they are needs no look at the others.
    fn add_regular(
        &mut self,
        (first, last, step): (i64, i64, i64),
        count: usize,
        (start, end): (i64, i64),
    ) -> std::ops::Range<usize> {
        let place = |apart: u64| usize::try_from(apart / step.unsigned_abs()).unwrap_or(count).min(count);
        // The first one that is not before the start.
        let from = if start <= first { 0 } else { place(start.abs_diff(first) - 1) + 1 };
        let to = if end >= last { count } else { place(end.abs_diff(first)) + 1 };
        // A range may end before it begins.
        let to = to.max(from);
        let mut at = first.wrapping_add(step.wrapping_mul(i64::try_from(from).unwrap_or_default()));
        self.times.extend((from..to).map(|_| {
            let time = at;
            at = at.wrapping_add(step);
            time
        }));
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
    stored: &'k Stored<'a>,
    /// Where the family begins in DATA, and the row.
    at: (u64, usize),
    /// Where its blocks are, once one is looked at.
    bytes: Option<BlockBytes<'a>>,
    keeper: Option<&'k mut Keeper>,
}

impl Values<'_, '_> {
    /// Appends the wanted values of a block; blocks ascend from call to call. Answers whether it is known that all are
    /// numbers and none is less than the one before. On damage anything may be appended.
    fn take(&mut self, wanted: &Wanted, out: &mut Vec<f64>) -> Result<bool, SegmentDamage> {
        let Wanted { block, count, from, to } = *wanted;
        let (family, row) = self.at;
        let place = Place { segment: self.segment.meta().seq, family, row, block };
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
        wanted: std::ops::Range<usize>,
        out: &mut Vec<f64>,
    ) -> Result<(), SegmentDamage> {
        let Stored { region, start, id, ref list, .. } = *self.stored;
        let bytes = match &mut self.bytes {
            Some(bytes) => bytes,
            none => none.insert(BlockBytes::new(self.segment, region, start, list.len())?),
        };
        let (place, block) = bytes.nth(number)?;
        values_within(block, id, count, wanted, out)
            .map_err(|damage| self.segment.at_place(DATA, place, damage))
    }
}

impl Segment {
    /// Appends the values of a series within a range, both ends included, to `out`; answers the number of its timeline, the
    /// times of those in range, and whether it is known that all are numbers and none is less than the one before. On
    /// damage anything may be appended.
    pub(in crate::tsdb) fn values_alone(
        &self,
        rows: &Rows,
        row: usize,
        range: TimeRange,
        known: &mut KnownTimes,
        keeper: Option<&mut Keeper>,
        out: &mut Vec<f64>,
    ) -> Result<(usize, Arc<Vec<i64>>, bool), SegmentDamage> {
        let stored = self.stored(rows, row)?;
        let number = stored.timeline;
        let list = stored.list.clone();
        let timeline = known.timeline(self, number, list, range).ok_or_else(|| self.no_row())?;
        if let Some(damage) = &timeline.damage {
            return Err(damage.clone());
        }
        let mut values = Values { segment: self, stored: &stored, at: (rows.data, row), bytes: None, keeper };
        let (start, mut rises) = (out.len(), true);
        for wanted in &timeline.wanted {
            let before = out.len();
            rises &= values.take(wanted, out)?;
            rises &= before == start || rises_at(out, before);
        }
        self.intact().map(|()| (number, Arc::clone(&timeline.times), rises))
    }

    /// The times that the values of [`Segment::values_alone`] have.
    pub(in crate::tsdb) fn times_within(
        &self,
        rows: &Rows,
        row: usize,
        range: TimeRange,
        known: &mut KnownTimes,
    ) -> Result<Arc<Vec<i64>>, SegmentDamage> {
        let stored = self.stored(rows, row)?;
        let timeline = known.timeline(self, stored.timeline, stored.list, range);
        let times = timeline.map(|timeline| Arc::clone(&timeline.times)).ok_or_else(|| self.no_row())?;
        self.intact().map(|()| times)
    }

    /// Appends the samples of a series within a range, both ends included, to `out`. Only blocks that overlap with the
    /// range are looked at; each is verified, but for times that are known. On damage `out` has the samples of the blocks
    /// before it.
    pub(in crate::tsdb) fn read(
        &self,
        rows: &Rows,
        row: usize,
        range: TimeRange,
        known: &mut KnownTimes,
        keeper: Option<&mut Keeper>,
        out: &mut SampleColumns,
    ) -> Result<(), SegmentDamage> {
        let stored = self.stored(rows, row)?;
        let list = stored.list.clone();
        let Some(timeline) = known.timeline(self, stored.timeline, list, range) else { return Ok(()) };
        let before = out.values.len();
        let mut values = Values { segment: self, stored: &stored, at: (rows.data, row), bytes: None, keeper };
        let mut wanted = timeline.wanted.iter();
        let read = wanted.try_for_each(|wanted| values.take(wanted, &mut out.values).map(drop));
        // Of a damaged block there are no values.
        let good = out.values.len() - before;
        out.times.extend_from_slice(timeline.times.get(..good).unwrap_or_default());
        read?;
        timeline.damage.clone().map_or(Ok(()), Err)?;
        self.intact()
    }
}
