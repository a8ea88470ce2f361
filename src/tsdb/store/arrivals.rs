//! The times of arriving samples.

use std::sync::atomic::{AtomicI64, Ordering};

use crate::tsdb::wal::samples::LogSample;

/// The times of arriving samples, which decide when a seal is due.
#[derive(Debug)]
pub(in crate::tsdb) struct Arrivals {
    least_ms: AtomicI64,
    greatest_ms: AtomicI64,
}

impl Default for Arrivals {
    fn default() -> Arrivals {
        Arrivals { least_ms: AtomicI64::new(i64::MAX), greatest_ms: AtomicI64::new(i64::MIN) }
    }
}

impl Arrivals {
    /// Records the times of samples, and returns the least time, or `i64::MAX` if there are no
    /// samples.
    pub(super) fn record(&self, samples: &[LogSample]) -> i64 {
        let (mut least, mut greatest) = (i64::MAX, i64::MIN);
        for sample in samples {
            least = least.min(sample.at_ms);
            greatest = greatest.max(sample.at_ms);
        }
        self.least_ms.fetch_min(least, Ordering::Relaxed);
        self.greatest_ms.fetch_max(greatest, Ordering::Relaxed);
        least
    }

    pub(super) fn record_time(&self, at_ms: i64) {
        self.least_ms.fetch_min(at_ms, Ordering::Relaxed);
        self.greatest_ms.fetch_max(at_ms, Ordering::Relaxed);
    }

    /// Resets the greatest time, which came from a wrong clock.
    pub(super) fn reset_greatest(&self) {
        self.greatest_ms.store(i64::MIN, Ordering::Relaxed);
    }

    /// Returns the least time since the last call, or `i64::MAX` if no sample came.
    pub(in crate::tsdb) fn take_least(&self) -> i64 {
        self.least_ms.swap(i64::MAX, Ordering::Relaxed)
    }

    /// Returns the greatest time of any sample.
    pub(in crate::tsdb) fn greatest(&self) -> i64 {
        self.greatest_ms.load(Ordering::Relaxed)
    }
}
