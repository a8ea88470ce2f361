//! Requests to the kernel to load parts of a segment that are read next.
//!
//! A read of a page that is not in memory waits for everything that the kernel reads around it. The
//! amount is a setting of the disk, usually 128 KiB, sometimes 8 MiB, while a query may need a few
//! KiB. A part that was requested explicitly is loaded without its surroundings.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::super::format::{DATA, TIMES};
use super::{Section, Segment};

/// The unit of requests, in bytes. A disk with a latency of 0.1 ms reads it in less than twice
/// that.
const UNIT_BYTES: usize = 64 << 10;
/// Units of one request at most if a reader continues from earlier ones: 1 MiB.
const RUN_MAX: usize = 16;

/// The units of a file that were requested since it was opened. A requested unit is in memory, or
/// was evicted; after an eviction the kernel's own readahead applies.
#[derive(Debug)]
pub(super) struct Readahead {
    units: usize,
    bits: Box<[AtomicU64]>,
    /// Number of units that were not requested. Once it is 0, a read of a row checks nothing else.
    left: AtomicUsize,
}

impl Readahead {
    pub(super) fn new(bytes: usize) -> Readahead {
        let units = bytes.div_ceil(UNIT_BYTES);
        let bits = (0..units.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Readahead { units, bits, left: AtomicUsize::new(units) }
    }

    fn is_requested(&self, unit: usize) -> bool {
        self.bits.get(unit / 64).is_none_or(|bits| bits.load(Ordering::Relaxed) >> (unit % 64) & 1 != 0)
    }

    /// Marks a unit as requested, and returns whether it was not before.
    fn mark(&self, unit: usize) -> bool {
        let bit = 1 << (unit % 64);
        let is_new =
            self.bits.get(unit / 64).is_some_and(|bits| bits.fetch_or(bit, Ordering::Relaxed) & bit == 0);
        if is_new {
            self.left.fetch_sub(1, Ordering::Relaxed);
        }
        is_new
    }

    /// Calls `request` for the ranges that have to be requested before these bytes are read;
    /// usually none.
    #[inline]
    fn before_read(&self, bytes: Range<usize>, request: impl FnMut(Range<usize>)) {
        let first = bytes.start / UNIT_BYTES;
        let last = bytes.end.saturating_sub(1) / UNIT_BYTES;
        if !(first == last && self.is_requested(first)) {
            self.request_missing(first..last + 1, request);
        }
    }

    /// Requests the missing units of a range, and more of them for a sequential read.
    #[cold]
    fn request_missing(&self, Range { start, end }: Range<usize>, request: impl FnMut(Range<usize>)) {
        let Some(missing) = (start..end.min(self.units)).find(|unit| !self.is_requested(*unit)) else {
            return;
        };
        // Sequential reads continue, so as many units are requested as were before this one. A scan
        // then waits only a few times.
        let before = (0..missing).rev().take(RUN_MAX).take_while(|unit| self.is_requested(*unit)).count();
        self.request(missing..end.max(missing + before), request);
    }

    /// Calls `request` for those of the units that were not requested before, in as few ranges as
    /// possible.
    fn request(&self, units: Range<usize>, mut request: impl FnMut(Range<usize>)) {
        let mut run: Option<Range<usize>> = None;
        for unit in units.start..units.end.min(self.units) {
            let bytes = unit * UNIT_BYTES..(unit + 1) * UNIT_BYTES;
            match (self.mark(unit), &mut run) {
                (true, Some(run)) => run.end = bytes.end,
                (true, none) => *none = Some(bytes),
                (false, run) => run.take().into_iter().for_each(&mut request),
            }
        }
        run.into_iter().for_each(request);
    }
}

impl Segment {
    /// Requests bytes of DATA that are read next.
    #[inline]
    pub(super) fn prefetch_data(&self, start: usize, bytes: usize) {
        self.prefetch_section(DATA, start, bytes);
    }

    /// Requests a time block that is read next.
    #[inline]
    pub(super) fn prefetch_time_block(&self, start: usize) {
        self.prefetch_section(TIMES, start, 1);
    }

    /// Requests bytes of a section, unless all units have been requested.
    #[inline]
    fn prefetch_section(&self, section: usize, start: usize, bytes: usize) {
        if self.readahead.left.load(Ordering::Relaxed) > 0 {
            self.prefetch_slow(section, start, bytes);
        }
    }

    fn prefetch_slow(&self, section: usize, start: usize, bytes: usize) {
        let from = self.sections.get(section).map(|Section { offset, .. }| usize::try_from(*offset));
        if let Some(Ok(from)) = from {
            let start = from.saturating_add(start);
            self.readahead.before_read(start..start.saturating_add(bytes), |range| self.map.will_need(range));
        }
    }

    /// Requests those bytes of a range of the file that were not requested before.
    pub(in crate::tsdb) fn prefetch(&self, bytes: Range<usize>) {
        let units = bytes.start / UNIT_BYTES..bytes.end.div_ceil(UNIT_BYTES);
        self.readahead.request(units, |range| self.map.will_need(range));
    }
}

#[cfg(test)]
impl Segment {
    /// Returns the numbers of requested units and of all units.
    pub(in crate::tsdb) fn requested_units(&self) -> (usize, usize) {
        let units = self.readahead.units;
        ((0..units).filter(|unit| self.readahead.is_requested(*unit)).count(), units)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kib(range: Range<usize>) -> Range<usize> {
        range.start << 10..range.end << 10
    }

    const NONE: [Range<usize>; 0] = [];

    fn requested(readahead: &Readahead, bytes: Range<usize>) -> Vec<Range<usize>> {
        let mut all = Vec::new();
        readahead.before_read(bytes, |range| all.push(range));
        all
    }

    #[test]
    fn bytes_are_requested_once_and_in_few_ranges() {
        let file = Readahead::new(100 << 20);
        assert_eq!(
            requested(&file, 130 << 10..131 << 10),
            [kib(128..192)],
            "little more than the read range"
        );
        assert_eq!(requested(&file, 129 << 10..190 << 10), NONE);
        assert_eq!(requested(&file, 500 << 10..700 << 10), [kib(448..704)]);
        // Units that were requested before are left out.
        assert_eq!(requested(&file, 10 << 10..450 << 10), [kib(0..128), kib(192..448)]);
    }

    #[test]
    fn sequential_reads_are_requested_ahead() {
        let file = Readahead::new(3 << 20);
        assert_eq!(requested(&file, 5..6), [kib(0..64)]);
        assert_eq!(requested(&file, 65_000..66_000), [kib(64..128)]);
        assert_eq!(requested(&file, 130_000..140_000), [kib(128..256)]);
        let waits =
            (256..3_072).filter(|at| !requested(&file, at << 10..(at << 10) + 100).is_empty()).count();
        assert_eq!(waits, 4);
        assert!(
            file.bits.iter().all(|bits| bits.load(Ordering::Relaxed).count_ones() == 48),
            "requested up to the end of the file"
        );
    }

    #[test]
    fn nothing_beyond_the_file_is_requested() {
        let file = Readahead::new(100);
        assert_eq!(requested(&file, 1 << 40..(1 << 40) + 1), NONE);
        assert_eq!(requested(&file, 0..usize::MAX), [kib(0..64)]);
        assert_eq!(requested(&file, 0..usize::MAX), NONE);
        assert_eq!(requested(&Readahead::new(0), 0..0), NONE);
    }
}
