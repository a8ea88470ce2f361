//! The circuit breaker of one server: after [`FAILURES_MAX`] failures in a row, requests are
//! refused for a while, then one is tried.
//!
//! Times are durations since the creation of the breaker, so that tests need no clock.

use std::time::Duration;

/// The number of failures in a row after which requests are refused.
const FAILURES_MAX: u32 = 5;
/// The shortest time until a request is tried again. It doubles with each failed try.
const PAUSE_MIN: Duration = Duration::from_secs(1);
/// The longest time until a request is tried again.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// The state of a breaker, as it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CircuitState {
    /// Requests are sent.
    Closed,
    /// Requests are refused.
    Open,
    /// One request is tried.
    HalfOpen,
}

impl CircuitState {
    /// Returns the name used in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            CircuitState::Closed => "closed",
            CircuitState::Open => "open",
            CircuitState::HalfOpen => "half_open",
        }
    }
}

/// Counts failures of one server.
#[derive(Debug, Default)]
pub(super) struct Breaker {
    failures: u32,
    /// The end of the pause, if there is one.
    until: Option<Duration>,
    pause: Duration,
    is_trying: bool,
}

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Answered,
    Failed,
    /// The request was cancelled, or failed for a reason that says nothing about the server.
    Unknown,
}

impl Breaker {
    /// Admits a request, whose outcome must be recorded.
    ///
    /// # Errors
    /// The time until the next try.
    pub(super) fn admit(&mut self, now: Duration) -> Result<(), Duration> {
        let Some(until) = self.until else { return Ok(()) };
        if now < until {
            return Err(until - now);
        }
        if self.is_trying {
            return Err(PAUSE_MIN);
        }
        self.is_trying = true;
        Ok(())
    }

    /// Records the outcome of an admitted request.
    pub(super) fn record(&mut self, outcome: Outcome, now: Duration) {
        let was_trying = std::mem::take(&mut self.is_trying);
        match outcome {
            Outcome::Answered => *self = Breaker::default(),
            Outcome::Failed => {
                self.failures = self.failures.saturating_add(1);
                // Requests that were admitted before the pause began do not make it longer.
                let begins = self.until.is_none() && self.failures >= FAILURES_MAX;
                if begins || was_trying {
                    self.pause = (self.pause * 2).clamp(PAUSE_MIN, PAUSE_MAX);
                    self.until = Some(now + self.pause);
                }
            }
            Outcome::Unknown => {}
        }
    }

    /// Returns the state and the number of failures in a row.
    pub(super) fn state(&self, now: Duration) -> (CircuitState, u32) {
        let state = match self.until {
            None => CircuitState::Closed,
            Some(until) if now < until => CircuitState::Open,
            Some(_) => CircuitState::HalfOpen,
        };
        (state, self.failures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn five_failures_in_a_row_open_the_circuit_and_one_answer_closes_it() {
        let mut breaker = Breaker::default();
        for _ in 0..4 {
            breaker.record(Outcome::Failed, at(0));
        }
        breaker.record(Outcome::Answered, at(0));
        for _ in 0..5 {
            assert_eq!(breaker.admit(at(0)), Ok(()));
            breaker.record(Outcome::Failed, at(0));
        }
        assert_eq!(breaker.admit(at(0)), Err(at(1)));
        assert_eq!(breaker.state(at(0)).0, CircuitState::Open);
        // A late failure of a request from before the pause changes nothing.
        assert_eq!(breaker.state(at(1)).0, CircuitState::HalfOpen);
        assert_eq!(breaker.admit(at(1)), Ok(()), "the one try");
        assert!(breaker.admit(at(1)).is_err(), "a second one at the same time");
        breaker.record(Outcome::Answered, at(1));
        assert_eq!(breaker.state(at(1)), (CircuitState::Closed, 0));
    }

    #[test]
    fn the_pause_doubles_up_to_30_seconds() {
        let mut breaker = Breaker::default();
        for _ in 0..5 {
            breaker.record(Outcome::Failed, at(0));
        }
        let mut now = at(1);
        for expected in [2, 4, 8, 16, 30, 30] {
            assert_eq!(breaker.admit(now), Ok(()));
            breaker.record(Outcome::Failed, now);
            assert_eq!(breaker.admit(now), Err(at(expected)));
            now += at(expected);
        }
        // A cancelled try lets the next request try.
        assert_eq!(breaker.admit(now), Ok(()));
        breaker.record(Outcome::Unknown, now);
        assert_eq!(breaker.admit(now), Ok(()));
    }
}
