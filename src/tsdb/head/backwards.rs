//! Samples that are found from the newest on, and are wanted from the oldest on.
//!
//! A chain of records is read backwards. How many samples it has is known, so each record's go straight to where they
//! belong, and no record needs to be kept until those before it are read.

use crate::tsdb::report::SampleColumns;

/// Room at the end of some columns that is filled from its end.
pub(super) struct Backwards<'o> {
    out: &'o mut SampleColumns,
    /// Where the room begins,
    from: usize,
    /// and where what was put into it does.
    at: usize,
}

impl<'o> Backwards<'o> {
    /// Makes room for so many samples at most.
    pub(super) fn new(out: &'o mut SampleColumns, most: usize) -> Backwards<'o> {
        let from = out.times.len();
        let at = from + most;
        out.times.resize(at, 0);
        out.values.resize(at, 0.0);
        Backwards { out, from, at }
    }

    /// Puts samples before those that are there, but for those after `end`. None: there is no room.
    #[inline]
    pub(super) fn put(&mut self, times: &[i64], bits: &[u64], end: i64) -> Option<()> {
        let kept = match times.last() {
            Some(last) if *last > end => times.partition_point(|at| *at <= end),
            _ => times.len(),
        };
        let (times, bits) = (times.get(..kept)?, bits.get(..kept)?);
        let at = self.at.checked_sub(kept).filter(|at| *at >= self.from)?;
        self.out.times.get_mut(at..self.at)?.copy_from_slice(times);
        for (value, bits) in self.out.values.get_mut(at..self.at)?.iter_mut().zip(bits) {
            *value = f64::from_bits(*bits);
        }
        self.at = at;
        Some(())
    }

    /// Takes away what was not filled.
    pub(super) fn finish(self) {
        if self.at > self.from {
            self.out.times.drain(self.from..self.at);
            self.out.values.drain(self.from..self.at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_found_last_comes_first_and_room_that_is_left_goes() {
        let mut out = SampleColumns { times: vec![1], values: vec![0.5] };
        let mut back = Backwards::new(&mut out, 6);
        assert_eq!(back.put(&[8, 9], &[8.0f64.to_bits(), 9.0f64.to_bits()], 8), Some(()));
        assert_eq!(back.put(&[4, 5], &[4.0f64.to_bits(), 5.0f64.to_bits()], 8), Some(()));
        back.finish();
        assert_eq!((&out.times[..], &out.values[..]), (&[1, 4, 5, 8][..], &[0.5, 4.0, 5.0, 8.0][..]));
        let mut back = Backwards::new(&mut out, 1);
        assert_eq!(back.put(&[8, 9], &[0, 0], 9), None);
        back.finish();
        assert_eq!(out.times, [1, 4, 5, 8]);
    }
}
