//! The samples of one series after the other within a range, and what of their times is known from the series before:
//! those that are written together share their timeline.

use rapidhash::RapidHashMap;

use super::super::block::{TimeHeader, time_header, values_within};
use super::super::format::{DATA, TIMES};
use super::blocks::BlockBytes;
use super::{Block, Rows, Segment, SegmentDamage};
use crate::model::TimeRange;
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
    times: Vec<i64>,
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
        let mut timeline = Timeline { wanted: Vec::new(), times: Vec::new(), damage: None };
        for (block, place) in list.enumerate() {
            match timeline.add(segment, block, place, range) {
                Ok(true) => {}
                Ok(false) => break,
                Err(damage) => {
                    timeline.damage = Some(damage);
                    break;
                }
            }
        }
        timeline
    }

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
        let TimeHeader { count, first, last, .. } =
            time_header(times).map_err(|damage| segment.at_place(TIMES, time_place, damage))?;
        if last < start {
            return Ok(true);
        }
        if first > end {
            return Ok(false);
        }
        let before = self.times.len();
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
}

impl Segment {
    /// Appends the samples of a series within a range, both ends included, to `out`. Only blocks that overlap with the
    /// range are looked at; each is verified, but for times that are known. On damage `out` has the samples of the blocks
    /// before it.
    pub(in crate::tsdb) fn read(
        &self,
        rows: &Rows,
        row: usize,
        range: TimeRange,
        known: &mut KnownTimes,
        out: &mut SampleColumns,
    ) -> Result<(), SegmentDamage> {
        let stored = self.stored(rows, row)?;
        let blocks = stored.list.len();
        let Some(timeline) = known.timeline(self, stored.timeline, stored.list, range) else { return Ok(()) };
        let (before, mut read) = (out.values.len(), Ok(()));
        if !timeline.wanted.is_empty() {
            let mut bytes = BlockBytes::new(self, stored.region, stored.start, blocks)?;
            read = timeline.wanted.iter().try_for_each(|wanted| {
                let (place, block) = bytes.nth(wanted.block)?;
                values_within(block, stored.id, wanted.count, wanted.from..wanted.to, &mut out.values)
                    .map_err(|damage| self.at_place(DATA, place, damage))
            });
        }
        // Of a damaged block there are no values.
        let good = out.values.len() - before;
        out.times.extend_from_slice(timeline.times.get(..good).unwrap_or_default());
        read?;
        timeline.damage.clone().map_or(Ok(()), Err)?;
        self.intact()
    }
}
