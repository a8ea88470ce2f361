//! What panics of work that repeats come to: a task goes on after a rest, but the third panic within an hour, whichever
//! tasks they are of, says that the process itself is not well (docs/storage.md section 17).

use std::collections::VecDeque;
use std::sync::Mutex;

use crate::model::Timestamp;
use crate::sync::IgnorePoison as _;

/// So many within [`WINDOW_MS`] are too many.
const TOO_MANY: usize = 3;
const WINDOW_MS: i64 = 3_600 * 1_000;

/// What is done about a panic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The task goes on after a rest.
    GoOn,
    /// There were too many: the task ends, and nothing more is to be written.
    TooMany,
}

/// Counts the panics of all tasks of a process.
pub struct Panics {
    /// The newest few.
    noted: Mutex<VecDeque<Timestamp>>,
    told: Box<dyn Fn(&'static str, Verdict) + Send + Sync>,
}

impl Panics {
    /// `told` hears of each, with the task's name, on that task's thread.
    pub fn new(told: impl Fn(&'static str, Verdict) + Send + Sync + 'static) -> Panics {
        Panics { noted: Mutex::default(), told: Box::new(told) }
    }

    /// A tick of `task` panicked.
    pub fn note(&self, task: &'static str, now: Timestamp) -> Verdict {
        let recent = {
            let mut noted = self.noted.lock().ignore_poison();
            noted.push_back(now);
            noted.retain(|at| now.ms_since(*at) < WINDOW_MS);
            while noted.len() > TOO_MANY {
                noted.pop_front();
            }
            noted.len()
        };
        let verdict = if recent < TOO_MANY { Verdict::GoOn } else { Verdict::TooMany };
        (self.told)(task, verdict);
        verdict
    }
}

impl std::fmt::Debug for Panics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Panics").field("noted", &self.noted).finish_non_exhaustive()
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
    fn the_third_panic_within_an_hour_is_one_too_many_whichever_task_it_is_of() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let tell = Arc::clone(&told);
        let panics = Panics::new(move |task, verdict| tell.lock().expect("whole").push((task, verdict)));
        // Two an hour are no end of anything, however long that goes on.
        for minute in [0, 10, 60, 70, 120, 130] {
            assert_eq!(panics.note("seal", at(minute)), Verdict::GoOn, "minute {minute}");
        }
        // An hour after the last but one, to the minute.
        assert_eq!(panics.note("upkeep", at(180)), Verdict::GoOn);
        assert_eq!(panics.note("seal", at(189)), Verdict::TooMany);
        assert_eq!(panics.note("seal", at(190)), Verdict::TooMany, "and it stays so while they come");
        let told = told.lock().expect("whole");
        assert_eq!(told.len(), 9);
        assert_eq!(told.get(7), Some(&("seal", Verdict::TooMany)));
    }

    #[test]
    fn a_clock_that_goes_back_forgets_no_panic() {
        let panics = Panics::new(|_, _| {});
        assert_eq!(panics.note("seal", at(100)), Verdict::GoOn);
        assert_eq!(panics.note("seal", at(0)), Verdict::GoOn);
        assert_eq!(panics.note("seal", at(1)), Verdict::TooMany);
    }
}
