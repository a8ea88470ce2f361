//! The evaluation time of a key in a trailing minute.

use std::time::Duration;

/// The number of seconds in a window.
const SECONDS: usize = 60;
const SECOND_US: u64 = 1_000_000;

/// The evaluation time that was charged in each of the last 60 seconds, in microseconds. The oldest
/// second leaves as a whole, so the window is 59 to 60 s long.
#[derive(Debug)]
pub(super) struct EvaluationBudget {
    seconds: [u64; SECONDS],
    /// The newest second, counted from the start of the clock.
    newest: u64,
}

impl Default for EvaluationBudget {
    fn default() -> EvaluationBudget {
        EvaluationBudget { seconds: [0; SECONDS], newest: 0 }
    }
}

impl EvaluationBudget {
    /// Charges an evaluation that ends now.
    pub(super) fn charge(&mut self, used_us: u64, now_us: u64) {
        self.expire(now_us);
        let second = slot(self.newest);
        // Not saturated, so that the sum of all seconds is exact.
        self.seconds[second] = self.seconds[second].saturating_add(used_us).min(u64::MAX / SECONDS as u64);
    }

    /// Returns the time that was charged in the window.
    pub(super) fn used(&mut self, now_us: u64) -> Duration {
        self.expire(now_us);
        Duration::from_micros(self.used_us())
    }

    /// Returns how long it takes until less than `budget` is used, or `None` if it is now.
    pub(super) fn wait(&mut self, budget: Duration, now_us: u64) -> Option<Duration> {
        self.expire(now_us);
        let budget_us = u64::try_from(budget.as_micros()).unwrap_or(u64::MAX);
        let mut used_us = self.used_us();
        if used_us < budget_us {
            return None;
        }
        // The second that is `age` seconds old leaves `SECONDS - age` seconds after the newest one
        // began.
        let oldest_first = (0..SECONDS as u64).rev();
        for age in oldest_first {
            let second = self.newest.checked_sub(age).map_or(0, |second| self.seconds[slot(second)]);
            used_us = used_us.saturating_sub(second);
            if used_us < budget_us {
                let leaves_us = (self.newest + SECONDS as u64 - age) * SECOND_US;
                return Some(Duration::from_micros(leaves_us.saturating_sub(now_us).max(1)));
            }
        }
        Some(Duration::from_secs(SECONDS as u64))
    }

    fn used_us(&self) -> u64 {
        self.seconds.iter().sum()
    }

    fn expire(&mut self, now_us: u64) {
        let now = (now_us / SECOND_US).max(self.newest);
        if now - self.newest >= SECONDS as u64 {
            self.seconds = [0; SECONDS];
        } else {
            for second in self.newest + 1..=now {
                self.seconds[slot(second)] = 0;
            }
        }
        self.newest = now;
    }
}

#[expect(clippy::cast_possible_truncation, reason = "less than 60")]
fn slot(second: u64) -> usize {
    (second % SECONDS as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = SECOND_US;

    #[test]
    fn the_time_of_a_trailing_minute_is_added_up_and_leaves_by_seconds() {
        let mut budget = EvaluationBudget::default();
        let two = Duration::from_secs(2);
        assert_eq!(budget.wait(two, 5 * S), None);
        budget.charge(S, 5 * S);
        budget.charge(S - 1, 6 * S + 7);
        assert_eq!(
            (budget.wait(two, 6 * S + 7), budget.used(6 * S + 7)),
            (None, Duration::from_micros(2 * S - 1))
        );
        budget.charge(1, 20 * S + S / 2);
        // The second 5 leaves when the second 65 begins; then less than 2 s are used.
        assert_eq!(budget.wait(two, 20 * S + S / 2), Some(Duration::from_micros(44 * S + S / 2)));
        assert_eq!(budget.wait(two, 65 * S - 1), Some(Duration::from_micros(1)));
        assert_eq!(budget.wait(two, 65 * S), None);
        assert_eq!(budget.used(66 * S), Duration::from_micros(1));
        assert_eq!(budget.used(80 * S), Duration::ZERO);
    }

    #[test]
    fn one_long_evaluation_blocks_for_a_minute_at_most() {
        let mut budget = EvaluationBudget::default();
        budget.charge(u64::MAX, 0);
        budget.charge(u64::MAX, S);
        assert_eq!(budget.wait(Duration::from_secs(3_600), S), Some(Duration::from_secs(60)));
        assert_eq!(budget.used(61 * S), Duration::ZERO);
        budget.charge(3, 1_000 * S);
        assert_eq!(budget.used(1_000 * S), Duration::from_micros(3), "after a long pause");
    }

    #[test]
    fn a_clock_that_goes_back_neither_panics_nor_refunds() {
        let mut budget = EvaluationBudget::default();
        budget.charge(2 * S, 500 * S);
        assert_eq!(budget.used(3 * S), Duration::from_secs(2));
        let wait = budget.wait(Duration::from_secs(1), 3 * S).expect("used up");
        assert!(wait > Duration::ZERO, "{wait:?}");
    }

    /// The sum equals that of a plain list of charges, and a client that waits for `Retry-After` is
    /// admitted.
    #[test]
    fn the_window_equals_a_list_of_charges() {
        let mut random = 7_u64;
        let mut next = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % below
        };
        let (mut budget, mut charges, mut now_us) = (EvaluationBudget::default(), Vec::new(), 0);
        for _ in 0..5_000 {
            now_us += next(9 * S);
            let used_us = next(4 * S);
            budget.charge(used_us, now_us);
            charges.push((now_us / S, used_us));
            let plain = charges.iter().filter(|(second, _)| second + 60 > now_us / S);
            let plain: u64 = plain.map(|(_, used_us)| used_us).sum();
            assert_eq!(budget.used(now_us), Duration::from_micros(plain), "at {now_us} µs");
            let limit = Duration::from_secs(1 + next(60));
            if let Some(wait) = budget.wait(limit, now_us) {
                let then_us = now_us + u64::try_from(wait.as_micros()).expect("a minute");
                let left = |at_us: u64| {
                    let left = charges.iter().filter(|(second, _)| second + 60 > at_us / S);
                    Duration::from_micros(left.map(|(_, used_us)| used_us).sum())
                };
                assert!(left(then_us) < limit && left(then_us - 1) >= limit, "{wait:?} at {now_us} µs");
            }
        }
    }
}
