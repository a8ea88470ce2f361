//! The clock of retention. It bounds how much a wrong clock, or a sample that a wrong clock
//! admitted, can expire.
//!
//! The retention clock follows the wall clock, but is bounded by the running time of processes on
//! this store, by the monotonic clock: each hour of running moves it by that hour and by at most
//! [`CATCH_UP`] more. So a clock that is set a year ahead moves it by minutes, and the time of a
//! stopped server is credited while it runs. A wall clock that is behind pulls the retention clock
//! back, [`FALL`] times as fast as time passes.
//!
//! Segments are removed only by times that the retention clock passed at least a grace period of
//! running ago and did not fall behind since: [`RetentionClock::confirmed`]. Correcting the clock
//! within the grace period reverts everything.
//!
//! A grace period also reverts a clock that is behind: [`RetentionClock::latest`] continues from
//! the time at which the wall clock went back for [`GRACE_MAX`] of running, so that samples of
//! correct senders are stored, and only then falls, [`LATEST_FALL`] times as fast as time passes. A
//! wall clock that returns to its course without the jumps of the last [`GRACE_MAX`] was corrected
//! and is followed at once.
//!
//! The state is one row of control, written at most every [`PERSIST_EVERY`] of running. State lost
//! in a kill makes retention later, never earlier.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::kv::{Record, decode_body};
use crate::model::Timestamp;

/// The multiple of the running time by which the retention clock gains on a wall clock that is
/// ahead. With it a server that runs three hours a day keeps up.
const CATCH_UP: i64 = 8;
/// The multiple of the running time by which it falls towards a wall clock that is behind. With it
/// a machine that starts in 1970 and is corrected after a minute loses eight minutes of 90 days.
const FALL: i64 = 8;
/// The lag of the wall clock behind [`RetentionClock::latest`] within which both agree. Senders may
/// be ahead by ten times as much.
const LATEST_SLACK_MS: i64 = 60_000;
/// The multiple of the running time by which [`RetentionClock::latest`] falls once the wall clock
/// has been behind it for [`GRACE_MAX`] of running.
const LATEST_FALL: i64 = 24;
/// The running time between two marks.
const MARK_EVERY_MS: u64 = 30 * 60_000;
/// The running time between two writes of the row.
const PERSIST_EVERY: Duration = Duration::from_secs(300);
/// The longest grace period; older marks are dropped.
const GRACE_MAX: Duration = Duration::from_secs(72 * 3_600);
const GRACE_MAX_MS: u64 = 72 * 3_600_000;
/// An organisation's grace period is at most its retention divided by this.
const GRACE_PART: u32 = 4;

/// A time that the retention clock passed, with the running time at that moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct ClockMark {
    running_ms: u64,
    at_ms: i64,
}

/// The retention clock, as stored in table 0x27 without a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::tsdb) struct RetentionClock {
    /// The running time of all processes on this store, in ms.
    running_ms: u64,
    reached_ms: i64,
    latest_ms: i64,
    /// Both numbers ascend. At most one mark for each [`MARK_EVERY_MS`] of [`GRACE_MAX`], and one
    /// older one.
    marks: Vec<ClockMark>,
    /// The running time at which the wall clock fell behind `latest_ms`; none while they agree.
    behind_since_ms: Option<u64>,
    /// The last time at which the wall clock was on the course given by the running time.
    steady: ClockMark,
}

/// Version 1 of [`RetentionClock`].
#[derive(Deserialize)]
struct RetentionClockV1 {
    running_ms: u64,
    reached_ms: i64,
    latest_ms: i64,
    marks: Vec<ClockMark>,
}

impl Record for RetentionClock {
    const TABLE: u8 = 0x27;
    const KIND: u8 = 0x27;
    const VERSION: u8 = 2;
    type Key = ();

    fn from_older(version: u8, body: &[u8]) -> Result<RetentionClock, String> {
        let RetentionClockV1 { running_ms, reached_ms, latest_ms, marks } = match version {
            1 => decode_body(body)?,
            _ => return Err(format!("version {version} of the retention clock")),
        };
        let steady = ClockMark { running_ms, at_ms: latest_ms };
        Ok(RetentionClock { running_ms, reached_ms, latest_ms, marks, behind_since_ms: None, steady })
    }
}

impl RetentionClock {
    /// Creates the clock of a store without one. It begins at the latest time that something other
    /// than the wall clock confirms, or at the wall clock if that is earlier, so a clock that is
    /// ahead at the first start hides, refuses and expires nothing either. `built` is the build
    /// time of this program. `newest` is the earliest of the organisations' newest samples. Without
    /// both, the clock begins at the wall clock.
    pub(in crate::tsdb) fn new(
        wall: Timestamp,
        built: Option<Timestamp>,
        newest: Option<Timestamp>,
    ) -> RetentionClock {
        let reached_ms = built.max(newest).map_or(wall, |confirmed| confirmed.min(wall)).as_ms();
        let steady = ClockMark { running_ms: 0, at_ms: reached_ms };
        RetentionClock {
            running_ms: 0,
            reached_ms,
            latest_ms: reached_ms,
            marks: vec![steady],
            behind_since_ms: None,
            steady,
        }
    }

    /// Moves the clock towards the wall clock by `ran` of monotonic time.
    pub(in crate::tsdb) fn advance(&mut self, wall: Timestamp, ran: Duration) {
        let ran_ms = i64::try_from(ran.as_millis()).unwrap_or(i64::MAX);
        let wall_ms = wall.as_ms();
        self.reached_ms = if wall_ms >= self.reached_ms {
            wall_ms.min(self.reached_ms.saturating_add(ran_ms.saturating_mul(1 + CATCH_UP)))
        } else {
            wall_ms.max(self.reached_ms.saturating_sub(ran_ms.saturating_mul(FALL)))
        };
        self.move_latest(wall_ms, ran_ms);
        self.running_ms = self.running_ms.saturating_add(ran_ms.unsigned_abs());
        // Times that the clock fell behind must be passed again.
        while self.marks.last().is_some_and(|mark| mark.at_ms > self.reached_ms) {
            self.marks.pop();
        }
        let since = self.marks.last().map(|mark| self.running_ms.saturating_sub(mark.running_ms));
        if since.is_none_or(|since| since >= MARK_EVERY_MS) {
            self.marks.push(ClockMark { running_ms: self.running_ms, at_ms: self.reached_ms });
        }
        let old = self.passed_marks(GRACE_MAX);
        self.marks.drain(..old.saturating_sub(1));
    }

    /// Moves the latest possible present. It advances only with the running time, whether the wall
    /// clock jumped ahead or went back.
    fn move_latest(&mut self, wall_ms: i64, ran_ms: i64) {
        let agrees = wall_ms.saturating_add(LATEST_SLACK_MS) >= self.latest_ms;
        let steady_for_ms =
            self.running_ms.saturating_add(ran_ms.unsigned_abs()).saturating_sub(self.steady.running_ms);
        let steady_ms = i64::try_from(steady_for_ms).unwrap_or(i64::MAX).saturating_add(self.steady.at_ms);
        let is_steady = wall_ms.saturating_sub(steady_ms).saturating_abs() <= LATEST_SLACK_MS;
        let latest_ms = if agrees || is_steady {
            self.behind_since_ms = None;
            self.latest_ms.saturating_add(ran_ms).min(wall_ms)
        } else {
            self.behind_since_ms.get_or_insert(self.running_ms);
            let held_ms =
                self.remaining_hold().map_or(0, |held| i64::try_from(held.as_millis()).unwrap_or(i64::MAX));
            let held_ms = held_ms.min(ran_ms);
            let falls_ms = ran_ms.saturating_sub(held_ms).saturating_mul(LATEST_FALL);
            self.latest_ms.saturating_add(held_ms).saturating_sub(falls_ms).max(wall_ms)
        };
        self.latest_ms = latest_ms.max(self.reached_ms);
        if is_steady || steady_for_ms > GRACE_MAX_MS {
            let running_ms = self.running_ms.saturating_add(ran_ms.unsigned_abs());
            // A jump that has lasted for a grace period counts as the new course.
            self.steady = ClockMark { running_ms, at_ms: if is_steady { wall_ms } else { self.latest_ms } };
        }
    }

    /// Returns the running time for which [`RetentionClock::latest`] still advances although the
    /// wall clock is behind it; none if the wall clock is not behind or was corrected.
    pub(in crate::tsdb) fn remaining_hold(&self) -> Option<Duration> {
        let behind_ms = self.running_ms.saturating_sub(self.behind_since_ms?);
        Some(Duration::from_millis(GRACE_MAX_MS.saturating_sub(behind_ms)))
    }

    /// Returns the lead over the running time that the clock gained within the longest grace
    /// period.
    pub(in crate::tsdb) fn gained(&self) -> Duration {
        let gained_ms = self.marks.first().map_or(0, |first| {
            let ran_ms = i64::try_from(self.running_ms.saturating_sub(first.running_ms)).unwrap_or(i64::MAX);
            self.reached_ms.saturating_sub(first.at_ms).saturating_sub(ran_ms)
        });
        Duration::from_millis(u64::try_from(gained_ms).unwrap_or(0))
    }

    /// Returns the latest possible present. After the wall clock went back it is the time before
    /// that, plus the running time since. Samples that agree with it are not refused.
    pub(in crate::tsdb) fn latest(&self) -> Timestamp {
        Timestamp::from_ms(self.latest_ms)
    }

    /// Returns retention's present.
    pub(in crate::tsdb) fn reached(&self) -> Timestamp {
        Timestamp::from_ms(self.reached_ms)
    }

    /// Returns the latest time that was passed `grace` of running time ago; none if there is no
    /// such time.
    pub(in crate::tsdb) fn confirmed(&self, grace: Duration) -> Option<Timestamp> {
        if grace.is_zero() {
            return Some(self.reached());
        }
        let last = self.passed_marks(grace).checked_sub(1)?;
        self.marks.get(last).map(|mark| Timestamp::from_ms(mark.at_ms))
    }

    /// Returns the number of marks older than `grace`.
    fn passed_marks(&self, grace: Duration) -> usize {
        let grace_ms = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
        self.marks.partition_point(|mark| mark.running_ms.saturating_add(grace_ms) <= self.running_ms)
    }

    /// Returns whether a restart from `stored` would lose at least [`PERSIST_EVERY`].
    pub(in crate::tsdb) fn is_due(&self, stored: Option<&RetentionClock>) -> bool {
        let passed = |stored: &RetentionClock| self.running_ms.saturating_sub(stored.running_ms);
        stored.is_none_or(|stored| u128::from(passed(stored)) >= PERSIST_EVERY.as_millis())
    }
}

/// Returns the grace period of an organisation with the retention `age`.
pub(in crate::tsdb) fn grace_of(age: Duration, longest: Duration) -> Duration {
    longest.min(GRACE_MAX).min(age / GRACE_PART)
}

/// Returns the start of the retained time: `age` before the newest sample, or before `now` if that
/// is earlier. None if no sample is too old.
///
/// By the clock alone, an organisation that stopped sending would lose its history. By the newest
/// sample alone, one sample from the future would drop all samples. One wrong clock on a machine
/// that also runs the senders moves both, so `now` is a time of `retention::Present` and never that
/// of the wall clock itself.
pub(in crate::tsdb) fn horizon(
    age: Option<Duration>,
    newest: Option<Timestamp>,
    now: Timestamp,
) -> Option<Timestamp> {
    Some(newest?.min(now).minus(age?))
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

    fn body_of(clock: &RetentionClock) -> Vec<u8> {
        crate::kv::encode_body(clock).expect("encodes")
    }

    fn hours(hours: u64) -> Duration {
        Duration::from_secs(hours * 3_600)
    }

    #[test]
    fn a_clock_a_year_ahead_moves_retention_by_at_most_nine_times_the_running_time() {
        let mut clock = RetentionClock::new(at(START_MS), None, None);
        for tick in 1..=360 {
            clock.advance(at(START_MS + 365 * DAY_MS + tick * 10_000), Duration::from_secs(10));
        }
        assert_eq!(clock.reached(), at(START_MS + 9 * HOUR_MS));
        assert_eq!(clock.confirmed(GRACE_MAX), None, "and no time is confirmed");
        clock.advance(at(START_MS + HOUR_MS), hours(1));
        assert_eq!(clock.reached(), at(START_MS + HOUR_MS), "the clock was corrected");
    }

    #[test]
    fn a_new_clock_begins_at_the_latest_time_that_the_build_or_a_sample_confirms() {
        let (built, day_later) = (at(START_MS), at(START_MS + DAY_MS));
        let begun = |wall, built, newest| RetentionClock::new(wall, built, newest).reached();
        let ahead = at(START_MS + 365 * DAY_MS);
        assert_eq!(begun(ahead, Some(built), None), built, "an empty store, the clock a year ahead");
        assert_eq!(begun(ahead, Some(built), Some(day_later)), day_later);
        assert_eq!(begun(ahead, Some(day_later), Some(built)), day_later, "samples from before the build");
        assert_eq!(begun(built, Some(day_later), Some(ahead)), built, "the wall clock is earlier than both");
        assert_eq!(begun(ahead, None, Some(built)), built);
        assert_eq!(begun(ahead, None, None), ahead);
    }

    #[test]
    fn an_empty_store_whose_clock_is_a_year_ahead_gains_eight_hours_an_hour() {
        let mut clock = RetentionClock::new(at(START_MS + 365 * DAY_MS), Some(at(START_MS)), None);
        for hour in 1..=10 {
            clock.advance(at(START_MS + 365 * DAY_MS + hour * HOUR_MS), hours(1));
            assert_eq!(clock.reached(), at(START_MS + hour * 9 * HOUR_MS));
        }
    }

    #[test]
    fn samples_are_stored_for_72_hours_of_running_after_the_wall_clock_went_back() {
        let mut clock = RetentionClock::new(at(START_MS), None, None);
        clock.advance(at(START_MS + HOUR_MS), hours(1));
        for hour in 1..=72 {
            clock.advance(at(START_MS + (hour - 365 * 24) * HOUR_MS), hours(1));
            assert_eq!(clock.latest(), at(START_MS + (1 + hour) * HOUR_MS), "after {hour} hours");
        }
        assert_eq!(clock.remaining_hold(), Some(Duration::ZERO));
        let fell = clock.clone();
        clock.advance(at(START_MS + (73 - 365 * 24) * HOUR_MS), hours(1));
        assert_eq!(clock.latest(), at(START_MS + (73 - LATEST_FALL) * HOUR_MS));
        let mut clock = fell;
        clock.advance(at(START_MS + 74 * HOUR_MS), hours(1));
        assert_eq!(
            (clock.latest(), clock.remaining_hold()),
            (at(START_MS + 74 * HOUR_MS), None),
            "corrected"
        );
    }

    #[test]
    fn a_grace_period_continues_across_a_restart_and_a_moment_with_a_correct_clock() {
        let mut clock = RetentionClock::new(at(START_MS), None, None);
        for hour in 1..=50 {
            clock.advance(at(START_MS + (hour - 30) * HOUR_MS), hours(1));
            clock = decode_body(&body_of(&clock)).expect("decodes");
        }
        assert_eq!(clock.remaining_hold(), Some(hours(22)));
        clock.advance(at(START_MS + 50 * HOUR_MS), Duration::ZERO);
        clock.advance(at(START_MS + 21 * HOUR_MS), hours(1));
        assert_eq!((clock.latest(), clock.remaining_hold()), (at(START_MS + 51 * HOUR_MS), Some(hours(71))));
    }

    #[test]
    fn the_latest_time_follows_a_jump_ahead_no_faster_than_the_retention_clock() {
        let mut clock = RetentionClock::new(at(START_MS), None, None);
        clock.advance(at(START_MS + 50 * 365 * DAY_MS), hours(1));
        assert_eq!(
            (clock.reached(), clock.latest()),
            (at(START_MS + 9 * HOUR_MS), at(START_MS + 9 * HOUR_MS))
        );
    }

    #[test]
    fn a_corrected_jump_ahead_leaves_no_trace() {
        let mut clock = RetentionClock::new(at(START_MS), None, None);
        clock.advance(at(START_MS + HOUR_MS), hours(1));
        for hour in 2..=4 {
            clock.advance(at(START_MS + 365 * DAY_MS), hours(1));
            assert_eq!(clock.latest(), at(START_MS + (9 * hour - 8) * HOUR_MS));
        }
        clock.advance(at(START_MS + 5 * HOUR_MS), hours(1));
        assert_eq!((clock.latest(), clock.remaining_hold()), (clock.reached(), None));
        clock.advance(at(START_MS + 10 * HOUR_MS), hours(5));
        assert_eq!(
            (clock.reached(), clock.latest()),
            (at(START_MS + 10 * HOUR_MS), at(START_MS + 10 * HOUR_MS))
        );
    }

    #[test]
    fn the_gained_time_is_reported_until_the_grace_period_ends() {
        let mut clock = RetentionClock::new(at(START_MS), None, None);
        clock.advance(at(START_MS + HOUR_MS), hours(1));
        assert_eq!(clock.gained(), Duration::ZERO);
        let mut gained = Vec::new();
        for hour in 2..=100 {
            clock.advance(at(START_MS + (hour + 40) * HOUR_MS), hours(1));
            gained.push(clock.gained());
        }
        // The clock catches up with 40 hours after 5 hours. The mark before that is the first one
        // for 72 hours more.
        assert_eq!(gained.iter().position(|gained| *gained == hours(40)), Some(4));
        let over = gained.iter().rposition(|gained| !gained.is_zero());
        assert!(over.is_some_and(|hour| (71..=77).contains(&hour)), "{over:?}");
    }

    #[test]
    fn a_server_that_was_stopped_for_a_month_catches_up_within_four_days_of_running() {
        let mut clock = RetentionClock::new(at(START_MS), None, None);
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
        let mut clock = RetentionClock::new(at(START_MS), None, None);
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
        assert_eq!(clock.latest(), at(wall + 60_000), "samples of a correct sender are accepted");
        clock.advance(at(wall + HOUR_MS), hours(1));
        assert_eq!(clock.reached(), at(wall + HOUR_MS));
    }

    #[test]
    fn the_row_has_its_golden_bytes() {
        let marks = vec![ClockMark { running_ms: 3, at_ms: -2 }];
        let steady = ClockMark { running_ms: 8, at_ms: -9 };
        let clock = RetentionClock {
            running_ms: 300,
            reached_ms: 2,
            latest_ms: 5,
            marks,
            behind_since_ms: Some(7),
            steady,
        };
        // bincode: 300 is 251 and a u16; signed numbers are zigzag; a list begins with its length,
        // an option with 0 or 1.
        let body = [251, 0x2c, 0x01, 4, 10, 1, 3, 3, 1, 7, 8, 17];
        assert_eq!(body_of(&clock), body);
        assert_eq!(decode_body::<RetentionClock>(&body), Ok(clock));
    }

    #[test]
    fn version_1_of_the_row_is_read() {
        let body = [251, 0x2c, 0x01, 4, 10, 1, 3, 3];
        let marks = vec![ClockMark { running_ms: 3, at_ms: -2 }];
        let steady = ClockMark { running_ms: 300, at_ms: 5 };
        let (running_ms, reached_ms, latest_ms) = (300, 2, 5);
        let clock =
            RetentionClock { running_ms, reached_ms, latest_ms, marks, behind_since_ms: None, steady };
        assert_eq!(RetentionClock::from_older(1, &body), Ok(clock));
        assert!(RetentionClock::from_older(0, &body).is_err());
    }

    proptest! {
        /// The retention clock advances only with the running time, whatever the wall clock shows,
        /// and every confirmed time was reached a whole grace period ago.
        #[test]
        fn no_sequence_of_clocks_confirms_a_time_that_did_not_last(
            steps in prop::collection::vec((-400i64..400, 0u64..12, any::<bool>()), 1..200),
        ) {
            let mut clock = RetentionClock::new(at(START_MS), None, None);
            let mut stored = clock.clone();
            // The time reached at each running time of this history. A restart loses the part that
            // was not stored.
            let mut history: Vec<(u64, i64)> = Vec::new();
            let mut running = 0;
            for (days, ran, restarts) in steps {
                if restarts {
                    clock = stored.clone();
                    running = clock.running_ms;
                    history.retain(|(then, _)| *then <= running);
                }
                let (before, ran) = (clock.clone(), hours(ran));
                clock.advance(at(START_MS + days * DAY_MS), ran);
                let ran_ms = i64::try_from(ran.as_millis()).expect("hours");
                prop_assert!(clock.reached_ms - before.reached_ms <= ran_ms * (1 + CATCH_UP));
                // Samples that agree with the latest time are not refused. Only the retention clock
                // moves it faster than time passes.
                prop_assert!(clock.latest_ms >= clock.reached_ms);
                prop_assert!(clock.latest_ms <= clock.reached_ms.max(before.latest_ms + ran_ms));
                let held = clock.behind_since_ms.is_some_and(|since| clock.running_ms - since <= GRACE_MAX_MS);
                prop_assert!(!held || clock.latest_ms >= before.latest_ms + ran_ms);
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
