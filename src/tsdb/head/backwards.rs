//! Samples that are read from newest to oldest and returned in ascending order.
//!
//! A chain of records is read backwards. The number of its samples is known, so the samples of each
//! record are written directly to their final position, and no record has to be buffered.

use crate::tsdb::report::SampleColumns;

/// Space at the end of sample columns that is filled from its end.
pub(super) struct Backwards<'o> {
    out: &'o mut SampleColumns,
    /// The index at which the space begins.
    from: usize,
    /// The index at which the filled part begins.
    at: usize,
}

impl<'o> Backwards<'o> {
    /// Appends space for at most `most` samples.
    pub(super) fn new(out: &'o mut SampleColumns, most: usize) -> Backwards<'o> {
        let from = out.times.len();
        let at = from + most;
        out.times.resize(at, 0);
        out.values.resize(at, 0.0);
        Backwards { out, from, at }
    }

    /// Writes samples before those already written, without samples after `end`. Returns None if
    /// there is too little space.
    #[inline]
    pub(super) fn put(&mut self, times: &[i64], bits: &[u64], end: i64) -> Option<()> {
        let count = match times.last() {
            Some(last) if *last > end => times.partition_point(|at| *at <= end),
            _ => times.len(),
        };
        let (times, bits) = (times.get(..count)?, bits.get(..count)?);
        let at = self.at.checked_sub(count).filter(|at| *at >= self.from)?;
        self.out.times.get_mut(at..self.at)?.copy_from_slice(times);
        for (value, bits) in self.out.values.get_mut(at..self.at)?.iter_mut().zip(bits) {
            *value = f64::from_bits(*bits);
        }
        self.at = at;
        Some(())
    }

    /// Removes the space that was not filled.
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
    fn the_last_samples_put_come_first_and_unfilled_space_is_removed() {
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
