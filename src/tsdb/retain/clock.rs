//! The clock that retention goes by. It bounds what a wrong clock, or a sample that a wrong clock let in, can expire.
//!
//! The retention clock follows the wall clock, but never faster than processes on this store have been running, by the
//! monotonic clock: each hour of running moves it by that hour and by at most [`CATCH_UP`] more. A clock that is set a
//! year ahead therefore moves it by minutes, and the time for which a server was stopped is credited while it runs. A
//! wall clock that is behind pulls the retention clock back, [`FALL`] times as fast as time passes.
//!
//! Segments are removed only by times that the retention clock passed a grace period of running ago and did not fall
//! behind since: [`RetentionClock::confirmed`]. Putting the clock right within the grace period undoes everything.
//!
//! The state is one row of control, written at most every [`PERSIST_EVERY`] of running. What a kill loses of it makes
//! retention later and never earlier.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::kv::Record;
use crate::model::Timestamp;

/// Multiples of the running time by which the retention clock gains on a wall clock that is ahead of it: a server that
/// runs three hours a day keeps up.
const CATCH_UP: i64 = 8;
/// Multiples of the running time by which it falls towards a wall clock that is behind: a machine that starts in 1970
/// and is put right after a minute loses eight minutes of 90 days.
const FALL: i64 = 8;
/// How far [`RetentionClock::latest`] stays ahead of a retention clock that falls.
const LATEST_AHEAD_MS: i64 = 30 * 24 * 3_600_000;
/// Multiples of the running time by which it falls where the wall clock agrees with the retention clock.
const LATEST_FALL: i64 = 24;
/// Running time between two marks.
const MARK_EVERY_MS: u64 = 30 * 60_000;
/// Running time between two writes of the row.
const PERSIST_EVERY: Duration = Duration::from_secs(300);
/// The longest grace period; older marks are dropped.
const GRACE_MAX: Duration = Duration::from_secs(72 * 3_600);
/// An organisation's grace period is at most this part of its retention.
const GRACE_PART: u32 = 4;

/// A time that the retention clock passed, and the running time then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Mark {
    running_ms: u64,
    at_ms: i64,
}

/// The retention clock, as stored: table 0x27, no key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::tsdb) struct RetentionClock {
    /// Milliseconds that processes on this store have run.
    running_ms: u64,
    reached_ms: i64,
    latest_ms: i64,
    /// Both numbers ascend. At most one mark for each [`MARK_EVERY_MS`] of [`GRACE_MAX`], and one older one.
    marks: Vec<Mark>,
}

impl Record for RetentionClock {
    const TABLE: u8 = 0x27;
    const KIND: u8 = 0x27;
    const VERSION: u8 = 1;
    type Key = ();
}

impl RetentionClock {
    /// The clock of a store that has none yet. The newest stored sample bounds it: a clock that is ahead when an older
    /// store is opened for the first time must not expire anything either.
    pub(in crate::tsdb) fn new(wall: Timestamp, newest: Option<Timestamp>) -> RetentionClock {
        let reached_ms = newest.map_or(wall, |newest| newest.min(wall)).as_ms();
        RetentionClock { running_ms: 0, reached_ms, latest_ms: reached_ms, marks: Vec::new() }
    }

    /// Moves the clock by `ran` of monotonic time towards the wall clock.
    pub(in crate::tsdb) fn advance(&mut self, wall: Timestamp, ran: Duration) {
        let ran_ms = i64::try_from(ran.as_millis()).unwrap_or(i64::MAX);
        self.running_ms = self.running_ms.saturating_add(ran_ms.unsigned_abs());
        let (wall_ms, before_ms) = (wall.as_ms(), self.reached_ms);
        self.reached_ms = if wall_ms >= self.reached_ms {
            wall_ms.min(self.reached_ms.saturating_add(ran_ms.saturating_mul(1 + CATCH_UP)))
        } else {
            wall_ms.max(self.reached_ms.saturating_sub(ran_ms.saturating_mul(FALL)))
        };
        self.latest_ms = if wall_ms < before_ms {
            let most_ms = self.reached_ms.saturating_add(LATEST_AHEAD_MS);
            self.latest_ms.saturating_add(ran_ms).min(most_ms)
        } else {
            self.latest_ms.saturating_sub(ran_ms.saturating_mul(LATEST_FALL))
        };
        self.latest_ms = self.latest_ms.max(self.reached_ms);
        // Times that the clock has not reached any more have to be passed again.
        while self.marks.last().is_some_and(|mark| mark.at_ms > self.reached_ms) {
            self.marks.pop();
        }
        let since = self.marks.last().map(|mark| self.running_ms.saturating_sub(mark.running_ms));
        if since.is_none_or(|since| since >= MARK_EVERY_MS) {
            self.marks.push(Mark { running_ms: self.running_ms, at_ms: self.reached_ms });
        }
        let old = self.passed_marks(GRACE_MAX);
        self.marks.drain(..old.saturating_sub(1));
    }

    /// The latest time that may be the present: where the wall clock went back, what it was before and the running time
    /// since. Senders that agree with it are not refused.
    pub(in crate::tsdb) fn latest(&self) -> Timestamp {
        Timestamp::from_ms(self.latest_ms)
    }

    /// The present as far as retention believes it.
    pub(in crate::tsdb) fn reached(&self) -> Timestamp {
        Timestamp::from_ms(self.reached_ms)
    }

    /// The latest time that was passed `grace` of running time ago; none while there is no such time.
    pub(in crate::tsdb) fn confirmed(&self, grace: Duration) -> Option<Timestamp> {
        if grace.is_zero() {
            return Some(self.reached());
        }
        let last = self.passed_marks(grace).checked_sub(1)?;
        self.marks.get(last).map(|mark| Timestamp::from_ms(mark.at_ms))
    }

    /// How many marks are older than `grace`.
    fn passed_marks(&self, grace: Duration) -> usize {
        let grace_ms = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
        self.marks.partition_point(|mark| mark.running_ms.saturating_add(grace_ms) <= self.running_ms)
    }

    /// Whether a restart from `stored` would lose more than [`PERSIST_EVERY`].
    pub(in crate::tsdb) fn is_due(&self, stored: Option<&RetentionClock>) -> bool {
        let passed = |stored: &RetentionClock| self.running_ms.saturating_sub(stored.running_ms);
        stored.is_none_or(|stored| u128::from(passed(stored)) >= PERSIST_EVERY.as_millis())
    }
}

/// The grace period of an organisation that keeps samples for `age`.
pub(in crate::tsdb) fn grace_of(age: Duration, longest: Duration) -> Duration {
    longest.min(GRACE_MAX).min(age / GRACE_PART)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HOUR_MS: i64 = 3_600_000;
    const DAY_MS: i64 = 24 * HOUR_MS;
    const START_MS: i64 = 1_795_000_000_000;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_ms(ms)
    }

    fn hours(hours: u64) -> Duration {
        Duration::from_secs(hours * 3_600)
    }

    #[test]
    fn a_clock_set_a_year_ahead_moves_retention_by_what_has_passed_and_eight_times_that() {
        let mut clock = RetentionClock::new(at(START_MS), None);
        for tick in 1..=360 {
            clock.advance(at(START_MS + 365 * DAY_MS + tick * 10_000), Duration::from_secs(10));
        }
        assert_eq!(clock.reached(), at(START_MS + 9 * HOUR_MS));
        assert_eq!(clock.confirmed(GRACE_MAX), None, "and nothing of it is confirmed");
        clock.advance(at(START_MS + HOUR_MS), hours(1));
        assert_eq!(clock.reached(), at(START_MS + HOUR_MS), "the clock is put right");
    }

    #[test]
    fn a_store_without_a_clock_begins_at_its_newest_sample() {
        let ahead = at(START_MS + 365 * DAY_MS);
        assert_eq!(RetentionClock::new(ahead, Some(at(START_MS))).reached(), at(START_MS));
        assert_eq!(RetentionClock::new(at(START_MS), Some(ahead)).reached(), at(START_MS));
        assert_eq!(RetentionClock::new(ahead, None).reached(), ahead);
    }

    #[test]
    fn a_server_that_was_stopped_for_a_month_catches_up_within_four_days_of_running() {
        let mut clock = RetentionClock::new(at(START_MS), None);
        clock.advance(at(START_MS), hours(100));
        let mut wall = START_MS + 30 * DAY_MS;
        for _ in 0..4 * 24 {
            wall += HOUR_MS;
            clock.advance(at(wall), hours(1));
        }
        assert_eq!(clock.reached(), at(wall));
        for _ in 0..72 {
            wall += HOUR_MS;
            clock.advance(at(wall), hours(1));
        }
        assert_eq!(clock.confirmed(GRACE_MAX), Some(at(wall - 72 * HOUR_MS)));
    }

    #[test]
    fn a_minute_in_1970_delays_retention_by_eight_minutes() {
        let mut clock = RetentionClock::new(at(START_MS), None);
        let mut wall = START_MS;
        for _ in 0..200 {
            wall += HOUR_MS;
            clock.advance(at(wall), hours(1));
        }
        let before = clock.confirmed(GRACE_MAX);
        assert_eq!(before, Some(at(wall - 72 * HOUR_MS)));
        clock.advance(at(0), Duration::from_secs(60));
        assert_eq!(clock.confirmed(GRACE_MAX), before);
        assert_eq!(clock.reached(), at(wall - 8 * 60_000));
        assert_eq!(clock.latest(), at(wall + 60_000), "a sender whose time is right is believed");
        clock.advance(at(wall + HOUR_MS), hours(1));
        assert_eq!(clock.reached(), at(wall + HOUR_MS));
    }

    #[test]
    fn the_row_is_the_drawing() {
        let marks = vec![Mark { running_ms: 3, at_ms: -2 }];
        let clock = RetentionClock { running_ms: 300, reached_ms: 2, latest_ms: 5, marks };
        // bincode: 300 is 251 and a u16; signed numbers are zigzag; a list begins with its length.
        let body = [251, 0x2c, 0x01, 4, 10, 1, 3, 3];
        assert_eq!(crate::kv::decode_body::<RetentionClock>(&body), Ok(clock));
    }

    proptest! {
        /// Whatever the wall clock says, the retention clock advances with the running time alone, and what is confirmed
        /// was reached a whole grace period ago.
        #[test]
        fn no_sequence_of_clocks_confirms_what_did_not_last(
            steps in prop::collection::vec((-400i64..400, 0u64..12, any::<bool>()), 1..200),
        ) {
            let mut clock = RetentionClock::new(at(START_MS), None);
            let mut stored = clock.clone();
            // What was reached at each running time of this history; a restart forgets what was not stored.
            let mut history: Vec<(u64, i64)> = Vec::new();
            let mut running = 0;
            for (days, ran, restarts) in steps {
                if restarts {
                    clock = stored.clone();
                    running = clock.running_ms;
                    history.retain(|(then, _)| *then <= running);
                }
                let (before, ran) = (clock.reached().as_ms(), hours(ran));
                clock.advance(at(START_MS + days * DAY_MS), ran);
                let ran_ms = i64::try_from(ran.as_millis()).expect("hours");
                prop_assert!(clock.reached().as_ms() - before <= ran_ms * (1 + CATCH_UP));
                running += ran_ms.unsigned_abs();
                history.push((running, clock.reached().as_ms()));
                let grace = u64::try_from(GRACE_MAX.as_millis()).expect("72 hours");
                if let Some(confirmed) = clock.confirmed(GRACE_MAX) {
                    let lately = history.iter().filter(|(then, _)| then + grace > running);
                    prop_assert!(lately.clone().all(|(_, reached)| confirmed.as_ms() <= *reached));
                }
                prop_assert!(clock.marks.len() <= 146 && clock.marks.is_sorted_by(|a, b| a.running_ms < b.running_ms));
                if clock.is_due(Some(&stored)) {
                    stored = clock.clone();
                }
            }
        }
    }
}
