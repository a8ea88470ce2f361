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
    /// The time of the last answer.
    answered_at: Option<Duration>,
}

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Answered,
    Failed,
    /// There was no response in time. This counts as a failure only if the server answered no other
    /// request meanwhile; otherwise only this request was slow.
    TimedOut,
    /// The request was cancelled, or failed for a reason that says nothing about the server.
    Unknown,
}

/// A request that was admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Admission {
    at: Duration,
    /// Whether it is the one request that is tried after a pause.
    is_try: bool,
}

impl Breaker {
    /// Admits a request, whose outcome must be recorded.
    ///
    /// # Errors
    /// The time until the next try.
    pub(super) fn admit(&mut self, now: Duration) -> Result<Admission, Duration> {
        let Some(until) = self.until else { return Ok(Admission { at: now, is_try: false }) };
        if now < until {
            return Err(until - now);
        }
        if self.is_trying {
            return Err(PAUSE_MIN);
        }
        self.is_trying = true;
        Ok(Admission { at: now, is_try: true })
    }

    /// Records the outcome of an admitted request.
    pub(super) fn record(&mut self, outcome: Outcome, admission: Admission, now: Duration) {
        if admission.is_try {
            self.is_trying = false;
        }
        let has_answered = self.answered_at.is_some_and(|at| at >= admission.at);
        match outcome {
            Outcome::Answered => {
                // The try of another request may still run.
                let is_trying = self.is_trying;
                *self = Breaker { answered_at: Some(now), is_trying, ..Breaker::default() };
            }
            Outcome::TimedOut if has_answered => {}
            Outcome::Failed | Outcome::TimedOut => {
                self.failures = self.failures.saturating_add(1);
                // Requests that were admitted before the pause began do not make it longer.
                let begins = self.until.is_none() && self.failures >= FAILURES_MAX;
                if begins || (admission.is_try && self.until.is_some()) {
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

    fn admission(is_try: bool) -> Admission {
        Admission { at: at(0), is_try }
    }

    fn fail(breaker: &mut Breaker, times: usize) {
        (0..times).for_each(|_| breaker.record(Outcome::Failed, admission(false), at(0)));
    }

    #[test]
    fn five_failures_in_a_row_open_the_circuit_and_one_answer_closes_it() {
        let mut breaker = Breaker::default();
        fail(&mut breaker, 4);
        breaker.record(Outcome::Answered, admission(false), at(0));
        for _ in 0..5 {
            let admitted = breaker.admit(at(0)).expect("closed");
            breaker.record(Outcome::Failed, admitted, at(0));
        }
        assert_eq!(breaker.admit(at(0)), Err(at(1)));
        assert_eq!(breaker.state(at(0)).0, CircuitState::Open);
        assert_eq!(breaker.state(at(1)).0, CircuitState::HalfOpen);
        let tried = breaker.admit(at(1)).expect("the one try");
        assert!(breaker.admit(at(1)).is_err(), "a second one at the same time");
        // Late outcomes of requests from before the pause change nothing.
        for late in [Outcome::Failed, Outcome::Unknown, Outcome::TimedOut] {
            breaker.record(late, admission(false), at(1));
            assert!(breaker.admit(at(1)).is_err(), "{late:?}: the try has not ended");
        }
        breaker.record(Outcome::Answered, tried, at(1));
        assert_eq!(breaker.state(at(1)), (CircuitState::Closed, 0));
    }

    #[test]
    fn the_pause_doubles_up_to_30_seconds() {
        let mut breaker = Breaker::default();
        fail(&mut breaker, 5);
        let mut now = at(1);
        for expected in [2, 4, 8, 16, 30, 30] {
            let tried = breaker.admit(now).expect("a try");
            breaker.record(Outcome::Failed, tried, now);
            assert_eq!(breaker.admit(now), Err(at(expected)));
            now += at(expected);
        }
        // After a cancelled attempt the next request may try.
        let tried = breaker.admit(now).expect("a try");
        breaker.record(Outcome::Unknown, tried, now);
        assert!(breaker.admit(now).is_ok());
    }

    #[test]
    fn slow_requests_are_no_failures_while_the_server_answers_others() {
        let mut breaker = Breaker::default();
        let slow: Vec<Admission> = (0..10).map(|_| breaker.admit(at(0)).expect("closed")).collect();
        let fast = breaker.admit(at(1)).expect("closed");
        breaker.record(Outcome::Answered, fast, at(1));
        slow.iter().for_each(|one| breaker.record(Outcome::TimedOut, *one, at(30)));
        assert_eq!(breaker.state(at(30)), (CircuitState::Closed, 0));
        for _ in 0..5 {
            let silent = breaker.admit(at(30)).expect("closed");
            breaker.record(Outcome::TimedOut, silent, at(60));
        }
        assert_eq!(breaker.state(at(60)).0, CircuitState::Open);
    }
}
