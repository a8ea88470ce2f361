//! Exact sliding windows: at most N requests in any trailing second.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::Mutex;

use crate::sync::IgnorePoison as _;

/// The accepted requests of the last second: at most N times in microseconds, oldest first.
/// Milliseconds would be too coarse: two truncated times may be 1,000 ms apart when only 999.1 ms
/// have passed.
#[derive(Debug, Default)]
pub(super) struct SlidingWindow {
    last_us: u64,
    /// The low 32 bits of each time. They wrap after 71 minutes, which is harmless: a window is
    /// cleared after an idle second, so its times are never further apart than that.
    accepted: VecDeque<u32>,
}

/// The length of a window, in microseconds.
const WINDOW_US: u64 = 1_000_000;

impl SlidingWindow {
    /// Accepts a request and returns how many remain. At the limit, returns the microseconds until
    /// the next one is accepted.
    pub(super) fn charge(&mut self, limit: u32, now_us: u64) -> Result<u32, u64> {
        let now_us = now_us.max(self.last_us);
        self.expire(now_us);
        let used = u32::try_from(self.accepted.len()).unwrap_or(u32::MAX);
        if used >= limit {
            let age = self.accepted.front().map_or(0, |oldest| u64::from(low(now_us).wrapping_sub(*oldest)));
            return Err((WINDOW_US - age.min(WINDOW_US)).max(1));
        }
        self.accepted.push_back(low(now_us));
        self.last_us = now_us;
        Ok(limit - used - 1)
    }

    fn expire(&mut self, now_us: u64) {
        if now_us - self.last_us >= WINDOW_US {
            self.accepted.clear();
        }
        while self.accepted.front().is_some_and(|at| u64::from(low(now_us).wrapping_sub(*at)) >= WINDOW_US) {
            self.accepted.pop_front();
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "only the low 32 bits are needed")]
fn low(us: u64) -> u32 {
    us as u32
}

/// Sliding windows by key. A window that was idle for a second is empty and may be dropped.
#[derive(Debug)]
pub(super) struct KeyedWindows<K>(Mutex<HashMap<K, SlidingWindow>>);

impl<K: Eq + Hash> KeyedWindows<K> {
    pub(super) fn new() -> KeyedWindows<K> {
        KeyedWindows(Mutex::new(HashMap::new()))
    }

    /// Charges a request to the window of `key`, see [`SlidingWindow::charge`]. A new key is
    /// refused for a second if the map has `entries_max` windows in use.
    pub(super) fn charge(&self, key: K, limit: u32, now_us: u64, entries_max: usize) -> Result<u32, u64> {
        let mut windows = self.0.lock().ignore_poison();
        if windows.len() >= entries_max && !windows.contains_key(&key) {
            windows.retain(|_, window| now_us.saturating_sub(window.last_us) < WINDOW_US);
            if windows.len() >= entries_max {
                // More callers within one second than the map may hold: refuse the new caller.
                return Err(WINDOW_US);
            }
        }
        windows.entry(key).or_default().charge(limit, now_us)
    }

    /// Returns the number of windows.
    pub(super) fn len(&self) -> usize {
        self.0.lock().ignore_poison().len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_trailing_second_ever_holds_more_than_the_limit(limit in 1u32..20, gaps in prop::collection::vec(0u64..400_000, 1..300), start in prop::sample::select(vec![0u64, 4_294_966_000, 1 << 40])) {
            let mut window = SlidingWindow::default();
            let (mut now, mut accepted) = (start, Vec::new());
            for gap in gaps {
                now += gap;
                let recent = accepted.iter().filter(|at| now - **at < WINDOW_US).count();
                match window.charge(limit, now) {
                    Ok(remaining) => {
                        prop_assert_eq!(recent as u64 + 1 + u64::from(remaining), u64::from(limit));
                        accepted.push(now);
                    }
                    Err(wait) => {
                        prop_assert_eq!(recent as u64, u64::from(limit), "refused only when full");
                        let room = accepted.iter().filter(|at| now + wait - **at < WINDOW_US).count() as u64;
                        prop_assert!(room < u64::from(limit), "the promised wait is enough");
                    }
                }
            }
        }
    }

    #[test]
    fn a_second_is_not_shorter_by_a_fraction_of_a_millisecond() {
        let mut window = SlidingWindow::default();
        assert_eq!(window.charge(1, 5_000_900), Ok(0));
        assert_eq!(window.charge(1, 6_000_000), Err(900), "999.1 ms after the first");
        assert_eq!(window.charge(1, 6_000_900), Ok(0));
    }
}
