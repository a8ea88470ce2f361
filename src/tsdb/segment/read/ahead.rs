//! What the kernel is asked for before it is looked at.
//!
//! A read of a page that is not in memory waits for all that the kernel reads around it, which is as much as somebody set for
//! the disk: 128 KiB mostly, 8 MiB here and there, for a question of a few KiB. What was asked for comes alone.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::super::format::{DATA, TIMES};
use super::{Section, Segment};

/// The unit in which a file is asked for: a disk that takes 0.1 ms to begin reads it in not twice that.
const UNIT_BYTES: usize = 64 << 10;
/// Units asked for at most where somebody goes on from those before: 1 MiB.
const RUN_MAX: usize = 16;

/// Which units of a file were asked for since it was opened. What was is in memory, or was and had to go; then the kernel
/// reads it again as it thinks best.
#[derive(Debug)]
pub(super) struct Asked {
    units: usize,
    bits: Box<[AtomicU64]>,
    /// Units that were not: who reads row after row looks at this alone, mostly.
    left: AtomicUsize,
}

impl Asked {
    pub(super) fn none_of(bytes: usize) -> Asked {
        let units = bytes.div_ceil(UNIT_BYTES);
        let bits = (0..units.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Asked { units, bits, left: AtomicUsize::new(units) }
    }

    fn has(&self, unit: usize) -> bool {
        self.bits.get(unit / 64).is_none_or(|bits| bits.load(Ordering::Relaxed) >> (unit % 64) & 1 != 0)
    }

    /// Notes that a unit is asked for; whether it was not before.
    fn add(&self, unit: usize) -> bool {
        let bit = 1 << (unit % 64);
        let is_new =
            self.bits.get(unit / 64).is_some_and(|bits| bits.fetch_or(bit, Ordering::Relaxed) & bit == 0);
        if is_new {
            self.left.fetch_sub(1, Ordering::Relaxed);
        }
        is_new
    }

    /// Calls `ask` with what must be asked for before these bytes are looked at; nothing, mostly.
    #[inline]
    fn before(&self, bytes: Range<usize>, ask: impl FnMut(Range<usize>)) {
        let first = bytes.start / UNIT_BYTES;
        let last = bytes.end.saturating_sub(1) / UNIT_BYTES;
        if !(first == last && self.has(first)) {
            self.some_before(first..last + 1, ask);
        }
    }

    #[cold]
    fn some_before(&self, Range { start, end }: Range<usize>, ask: impl FnMut(Range<usize>)) {
        let Some(missing) = (start..end.min(self.units)).find(|unit| !self.has(*unit)) else { return };
        // Who goes on will go on: as much again as lies before, so that a scan waits a few times in all.
        let before = (0..missing).rev().take(RUN_MAX).take_while(|unit| self.has(*unit)).count();
        self.ask_for(missing..end.max(missing + before), ask);
    }

    /// Calls `ask` with those of the units that were not asked for, as few ranges.
    fn ask_for(&self, units: Range<usize>, mut ask: impl FnMut(Range<usize>)) {
        let mut run: Option<Range<usize>> = None;
        for unit in units.start..units.end.min(self.units) {
            let bytes = unit * UNIT_BYTES..(unit + 1) * UNIT_BYTES;
            match (self.add(unit), &mut run) {
                (true, Some(run)) => run.end = bytes.end,
                (true, none) => *none = Some(bytes),
                (false, run) => run.take().into_iter().for_each(&mut ask),
            }
        }
        run.into_iter().for_each(ask);
    }
}

impl Segment {
    /// Asks for bytes of DATA that are going to be looked at.
    #[inline]
    pub(super) fn ask_for_data(&self, start: usize, bytes: usize) {
        self.ask_within(DATA, start, bytes);
    }

    /// Asks for a time block that is going to be looked at.
    #[inline]
    pub(super) fn ask_for_times(&self, start: usize) {
        self.ask_within(TIMES, start, 1);
    }

    #[inline]
    fn ask_within(&self, section: usize, start: usize, bytes: usize) {
        if self.asked.left.load(Ordering::Relaxed) > 0 {
            self.ask_for_some(section, start, bytes);
        }
    }

    fn ask_for_some(&self, section: usize, start: usize, bytes: usize) {
        let from = self.sections.get(section).map(|Section { offset, .. }| usize::try_from(*offset));
        if let Some(Ok(from)) = from {
            let start = from.saturating_add(start);
            self.asked.before(start..start.saturating_add(bytes), |range| self.map.ask(range));
        }
    }

    /// Asks for whatever of a range of the file was not asked for.
    pub(in crate::tsdb) fn ask_for(&self, bytes: Range<usize>) {
        let units = bytes.start / UNIT_BYTES..bytes.end.div_ceil(UNIT_BYTES);
        self.asked.ask_for(units, |range| self.map.ask(range));
    }
}

#[cfg(test)]
impl Segment {
    /// How many units were asked for, and how many there are.
    pub(in crate::tsdb) fn units_asked(&self) -> (usize, usize) {
        let units = self.asked.units;
        ((0..units).filter(|unit| self.asked.has(*unit)).count(), units)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kib(range: Range<usize>) -> Range<usize> {
        range.start << 10..range.end << 10
    }

    const NONE: [Range<usize>; 0] = [];

    fn asked(asked: &Asked, bytes: Range<usize>) -> Vec<Range<usize>> {
        let mut all = Vec::new();
        asked.before(bytes, |range| all.push(range));
        all
    }

    #[test]
    fn bytes_are_asked_for_once_and_in_few_pieces() {
        let file = Asked::none_of(100 << 20);
        assert_eq!(asked(&file, 130 << 10..131 << 10), [kib(128..192)], "what is looked at and little more");
        assert_eq!(asked(&file, 129 << 10..190 << 10), NONE);
        assert_eq!(asked(&file, 500 << 10..700 << 10), [kib(448..704)]);
        // What was asked for before is left out.
        assert_eq!(asked(&file, 10 << 10..450 << 10), [kib(0..128), kib(192..448)]);
    }

    #[test]
    fn who_goes_on_is_read_for_beforehand() {
        let file = Asked::none_of(3 << 20);
        assert_eq!(asked(&file, 5..6), [kib(0..64)]);
        assert_eq!(asked(&file, 65_000..66_000), [kib(64..128)]);
        assert_eq!(asked(&file, 130_000..140_000), [kib(128..256)]);
        let waits = (256..3_072).filter(|at| !asked(&file, at << 10..(at << 10) + 100).is_empty()).count();
        assert_eq!(waits, 4);
        assert!(
            file.bits.iter().all(|bits| bits.load(Ordering::Relaxed).count_ones() == 48),
            "to the end of it"
        );
    }

    #[test]
    fn what_is_not_there_is_not_asked_for() {
        let file = Asked::none_of(100);
        assert_eq!(asked(&file, 1 << 40..(1 << 40) + 1), NONE);
        assert_eq!(asked(&file, 0..usize::MAX), [kib(0..64)]);
        assert_eq!(asked(&file, 0..usize::MAX), NONE);
        assert_eq!(asked(&Asked::none_of(0), 0..0), NONE);
    }
}
