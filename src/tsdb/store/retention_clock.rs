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
/// ahead. This rate suffices for a server that runs three hours a day.
const CATCH_UP: i64 = 8;
/// The multiple of the running time by which it falls towards a wall clock that is behind. At this
/// rate a machine that starts in 1970 and is corrected after a minute loses eight minutes of 90
/// days.
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
/// is earlier. `None` if no sample is too old.
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
mod tests;
