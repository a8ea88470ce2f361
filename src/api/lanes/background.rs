//! Requests that give way to others: whether others are active, and how long they wait.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::Stopwatch;

/// The time that a request which gives way waits, in multiples of the time that it took.
const WAIT_FACTOR: u32 = 4;
/// The longest wait.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// The time of the last request that does not give way.
#[derive(Debug)]
pub(super) struct Activity {
    since: Stopwatch,
    /// Milliseconds from `since` on, plus 1; 0 before the first request.
    last_ms: AtomicU64,
    /// The time for which a request counts.
    window: Duration,
}

impl Activity {
    pub(super) fn new(window: Duration) -> Activity {
        Activity { since: Stopwatch::start(), last_ms: AtomicU64::new(0), window }
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Records a request that does not give way.
    pub(super) fn record(&self) {
        self.last_ms.store(self.now_ms().saturating_add(1), Ordering::Relaxed);
    }

    /// Returns the time that a request which gives way waits after it took `took`: none if no other
    /// one arrived within the window.
    pub(super) fn wait_after(&self, took: Duration) -> Duration {
        let Some(last_ms) = self.last_ms.load(Ordering::Relaxed).checked_sub(1) else {
            return Duration::ZERO;
        };
        if u128::from(self.now_ms().saturating_sub(last_ms)) >= self.window.as_millis() {
            return Duration::ZERO;
        }
        took.saturating_mul(WAIT_FACTOR).min(WAIT_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_gives_way_waits_four_times_as_long_as_it_took_while_others_are_active() {
        let activity = Activity::new(Duration::from_secs(60));
        let took = Duration::from_millis(3);
        assert_eq!(activity.wait_after(took), Duration::ZERO, "there was no other request");
        activity.record();
        assert_eq!(activity.wait_after(took), Duration::from_millis(12));
        assert_eq!(activity.wait_after(Duration::from_secs(30)), WAIT_MAX);
        let forgetful = Activity::new(Duration::ZERO);
        forgetful.record();
        assert_eq!(forgetful.wait_after(took), Duration::ZERO, "that is too long ago");
    }
}
