//! The reaction to panics of recurring work. A task continues after a pause. But the third panic
//! within an hour, counted over all tasks, shows that the process itself is broken (docs/storage.md
//! section 17).

use std::collections::VecDeque;
use std::sync::Mutex;

use crate::model::Timestamp;
use crate::sync::IgnorePoison as _;

/// The number of panics within [`WINDOW_MS`] at which a task ends.
const TOO_MANY: usize = 3;
const WINDOW_MS: i64 = 3_600 * 1_000;

/// The reaction to a panic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The task continues after a pause.
    Continue,
    /// There were too many panics: the task ends, and the store must not be written any more.
    TooMany,
}

/// The counter of the panics of all tasks of a process.
pub struct Panics {
    /// The times of the most recent panics, at most [`TOO_MANY`].
    recent: Mutex<VecDeque<Timestamp>>,
    on_panic: Box<dyn Fn(&'static str, Verdict) + Send + Sync>,
}

impl Panics {
    /// Creates a counter. `on_panic` is called for each panic with the name of the task, on the
    /// thread of that task.
    pub fn new(on_panic: impl Fn(&'static str, Verdict) + Send + Sync + 'static) -> Panics {
        Panics { recent: Mutex::default(), on_panic: Box::new(on_panic) }
    }

    /// Records a panic in a tick of `task`.
    pub fn record(&self, task: &'static str, now: Timestamp) -> Verdict {
        let recent = {
            let mut recent = self.recent.lock().ignore_poison();
            recent.push_back(now);
            recent.retain(|at| now.ms_since(*at) < WINDOW_MS);
            while recent.len() > TOO_MANY {
                recent.pop_front();
            }
            recent.len()
        };
        let verdict = if recent < TOO_MANY { Verdict::Continue } else { Verdict::TooMany };
        (self.on_panic)(task, verdict);
        verdict
    }
}

impl std::fmt::Debug for Panics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Panics").field("recent", &self.recent).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    fn at(minute: i64) -> Timestamp {
        Timestamp::from_s(1_795_000_000 + minute * 60)
    }

    #[test]
    fn the_third_panic_of_any_tasks_within_an_hour_is_one_too_many() {
        let recorded = Arc::new(Mutex::new(Vec::new()));
        let recorder = Arc::clone(&recorded);
        let panics = Panics::new(move |task, verdict| recorder.lock().expect("whole").push((task, verdict)));
        // Two panics per hour are tolerated, for any length of time.
        for minute in [0, 10, 60, 70, 120, 130] {
            assert_eq!(panics.record("seal", at(minute)), Verdict::Continue, "minute {minute}");
        }
        // The last panic but one was exactly an hour ago, so it no longer counts.
        assert_eq!(panics.record("upkeep", at(180)), Verdict::Continue);
        assert_eq!(panics.record("seal", at(189)), Verdict::TooMany);
        assert_eq!(panics.record("seal", at(190)), Verdict::TooMany, "as long as panics continue");
        let recorded = recorded.lock().expect("whole");
        assert_eq!(recorded.len(), 9);
        assert_eq!(recorded.get(7), Some(&("seal", Verdict::TooMany)));
    }

    #[test]
    fn a_clock_that_is_set_back_forgets_no_panic() {
        let panics = Panics::new(|_, _| {});
        assert_eq!(panics.record("seal", at(100)), Verdict::Continue);
        assert_eq!(panics.record("seal", at(0)), Verdict::Continue);
        assert_eq!(panics.record("seal", at(1)), Verdict::TooMany);
    }
}
