//! Work that repeats: each task is a plain `fn tick(now)` in a thin loop on a thread of its own.

mod host;
mod panics;
mod removal;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::clock::Clock;
use crate::model::Timestamp;
use crate::sync::IgnorePoison as _;

pub use host::HostMetrics;
pub use panics::{Panics, Verdict};
pub use removal::{RemovalError, remove_deleted};

/// After a panic inside a tick the task rests this long: long enough not to flood the log, short enough to recover.
const REST_AFTER_PANIC: Duration = Duration::from_secs(10);

/// What every task of a process shares.
#[derive(Clone, Debug)]
pub struct Common {
    /// What time it is.
    pub clock: Clock,
    /// Who hears of panics.
    pub panics: Arc<Panics>,
}

/// A running task; stopping waits for the tick that is under way.
#[derive(Debug)]
pub struct Task {
    name: &'static str,
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Stop {
    stopped: Mutex<bool>,
    changed: Condvar,
}

impl Stop {
    /// Sleeps, or returns true at once when told to stop.
    fn wait(&self, period: Duration) -> bool {
        let stopped = self.stopped.lock().ignore_poison();
        let waited = self.changed.wait_timeout_while(stopped, period, |stopped| !*stopped);
        *waited.ignore_poison().0
    }
}

impl Task {
    /// Calls `tick` now and then once each `period`, until stopped.
    ///
    /// A tick that panics is logged and tried again after ten seconds; the other tasks do not notice. With the third panic
    /// within an hour, of all tasks together, the task that had it ends.
    ///
    /// # Errors
    /// When the operating system gives no thread.
    pub fn start(
        name: &'static str,
        period: Duration,
        common: Common,
        tick: impl FnMut(Timestamp) + Send + 'static,
    ) -> std::io::Result<Task> {
        Task::after(Duration::ZERO, name, period, common, tick)
    }

    /// As [`Task::start`], but the first call comes after `delay`: for work that was just done by hand.
    ///
    /// # Errors
    /// As [`Task::start`].
    pub fn after(
        delay: Duration,
        name: &'static str,
        period: Duration,
        common: Common,
        mut tick: impl FnMut(Timestamp) + Send + 'static,
    ) -> std::io::Result<Task> {
        let stop = Arc::new(Stop::default());
        let told = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name(name.into()).spawn(move || {
            let Common { clock, panics } = common;
            let mut pause = delay;
            while !told.wait(pause) {
                let outcome = catch_unwind(AssertUnwindSafe(|| tick(clock.now())));
                pause = period;
                if outcome.is_err() {
                    if panics.note(name, clock.now()) == Verdict::TooMany {
                        break;
                    }
                    pause = REST_AFTER_PANIC;
                    let rest = REST_AFTER_PANIC.as_secs();
                    tracing::error!(task = name, "task {name} panicked; it goes on in {rest} s");
                }
            }
        })?;
        Ok(Task { name, stop, thread: Some(thread) })
    }

    /// Tells the task to end, and waits until it has.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        *self.stop.stopped.lock().ignore_poison() = true;
        self.stop.changed.notify_all();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!(task = self.name, "task {} ended by a panic", self.name);
        }
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn common(told: impl Fn(&'static str, Verdict) + Send + Sync + 'static) -> Common {
        Common { clock: Clock::manual(Timestamp::from_s(5)), panics: Arc::new(Panics::new(told)) }
    }

    #[test]
    fn a_task_ticks_at_once_and_stops_without_waiting_for_its_period() {
        let (ticked, ticks) = mpsc::channel();
        let tick = move |now| ticked.send(now).expect("open");
        let task =
            Task::start("test", Duration::from_secs(3_600), common(|_, _| {}), tick).expect("a thread");
        assert_eq!(ticks.recv(), Ok(Timestamp::from_s(5)));
        task.stop();
        assert!(ticks.recv().is_err(), "the thread is gone");
    }

    #[test]
    fn a_panic_in_a_tick_does_not_end_the_process_or_block_the_stop() {
        let (ticked, ticks) = mpsc::channel();
        let task = Task::start("test", Duration::from_millis(1), common(|_, _| {}), move |_| {
            ticked.send(()).expect("open");
            panic!("on purpose");
        })
        .expect("a thread");
        assert!(ticks.recv().is_ok());
        task.stop();
    }

    #[test]
    fn the_task_that_panics_once_too_often_ends_and_whoever_watches_hears_of_it() {
        let (told, hears) = mpsc::channel();
        let common = common(move |task, verdict| told.send((task, verdict)).expect("open"));
        let tasks: Vec<Task> = ["one", "two", "three"]
            .into_iter()
            .map(|name| {
                let tick = |_| panic!("on purpose");
                Task::start(name, Duration::from_secs(3_600), common.clone(), tick).expect("a thread")
            })
            .collect();
        let heard: Vec<_> = (0..3).map(|_| hears.recv().expect("told")).collect();
        let verdicts: Vec<Verdict> = heard.iter().map(|(_, verdict)| *verdict).collect();
        assert_eq!(verdicts, [Verdict::GoOn, Verdict::GoOn, Verdict::TooMany]);
        let last = heard.last().map(|(task, _)| *task);
        for mut task in tasks {
            if Some(task.name) == last {
                let thread = task.thread.take().expect("it was started");
                assert!(thread.join().is_ok(), "it ended by itself");
            }
            task.stop();
        }
    }
}
