//! Recurring work. Each task is a function `tick(now)` that a thread of its own calls in a loop.

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

pub use host::{HostMetrics, host_name, memory_bytes};
pub use panics::{Panics, Verdict};
pub use removal::{RemovalError, remove_deleted};

/// The pause of a task after a panic inside a tick: long enough not to flood the log, short enough
/// to recover.
const REST_AFTER_PANIC: Duration = Duration::from_secs(10);

/// The dependencies that all tasks of a process share.
#[derive(Clone, Debug)]
pub struct TaskContext {
    /// The source of the current time.
    pub clock: Clock,
    /// The counter of panics.
    pub panics: Arc<Panics>,
}

/// A running task. Stopping it waits for the running tick.
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
    /// Sleeps for `period`, or until the task is stopped. Returns whether the task is stopped.
    fn wait(&self, period: Duration) -> bool {
        let stopped = self.stopped.lock().ignore_poison();
        let waited = self.changed.wait_timeout_while(stopped, period, |stopped| !*stopped);
        *waited.ignore_poison().0
    }
}

impl Task {
    /// Calls `tick` at once and then once each `period`, until the task is stopped.
    ///
    /// A panic inside a tick is logged, and the task continues after ten seconds. Other tasks are
    /// not affected. On the third panic within an hour, counted over all tasks, the task that
    /// panicked ends.
    ///
    /// # Errors
    /// The operating system's error if no thread can be started.
    pub fn start(
        name: &'static str,
        period: Duration,
        context: TaskContext,
        tick: impl FnMut(Timestamp) + Send + 'static,
    ) -> std::io::Result<Task> {
        Task::after(Duration::ZERO, name, period, context, tick)
    }

    /// Like [`Task::start`], but the first call follows after `delay`, for work that has just been
    /// done in another way.
    ///
    /// # Errors
    /// The same as those of [`Task::start`].
    pub fn after(
        delay: Duration,
        name: &'static str,
        period: Duration,
        context: TaskContext,
        mut tick: impl FnMut(Timestamp) + Send + 'static,
    ) -> std::io::Result<Task> {
        let stop = Arc::new(Stop::default());
        let stop_signal = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name(name.into()).spawn(move || {
            let TaskContext { clock, panics } = context;
            let mut pause = delay;
            while !stop_signal.wait(pause) {
                let outcome = catch_unwind(AssertUnwindSafe(|| tick(clock.now())));
                pause = period;
                if outcome.is_err() {
                    if panics.record(name, clock.now()) == Verdict::TooMany {
                        break;
                    }
                    pause = REST_AFTER_PANIC;
                    let rest = REST_AFTER_PANIC.as_secs();
                    tracing::error!(task = name, "task {name} panicked; it continues in {rest} s");
                }
            }
        })?;
        Ok(Task { name, stop, thread: Some(thread) })
    }

    /// Stops the task and waits until it has ended.
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

    fn context(notify: impl Fn(&'static str, Verdict) + Send + Sync + 'static) -> TaskContext {
        TaskContext { clock: Clock::manual(Timestamp::from_s(5)), panics: Arc::new(Panics::new(notify)) }
    }

    #[test]
    fn a_task_ticks_at_once_and_stops_without_waiting_for_its_period() {
        let (ticked, ticks) = mpsc::channel();
        let tick = move |now| ticked.send(now).expect("open");
        let task =
            Task::start("test", Duration::from_secs(3_600), context(|_, _| {}), tick).expect("a thread");
        assert_eq!(ticks.recv(), Ok(Timestamp::from_s(5)));
        task.stop();
        assert!(ticks.recv().is_err(), "the thread is gone");
    }

    #[test]
    fn a_panic_in_a_tick_does_not_end_the_process_or_block_the_stop() {
        let (ticked, ticks) = mpsc::channel();
        let task = Task::start("test", Duration::from_millis(1), context(|_, _| {}), move |_| {
            ticked.send(()).expect("open");
            panic!("on purpose");
        })
        .expect("a thread");
        assert!(ticks.recv().is_ok());
        task.stop();
    }

    #[test]
    fn the_task_with_the_third_panic_ends_and_the_observer_is_notified() {
        let (notify, notifications) = mpsc::channel();
        let context = context(move |task, verdict| notify.send((task, verdict)).expect("open"));
        let tasks: Vec<Task> = ["one", "two", "three"]
            .into_iter()
            .map(|name| {
                let tick = |_| panic!("on purpose");
                Task::start(name, Duration::from_secs(3_600), context.clone(), tick).expect("a thread")
            })
            .collect();
        // The three threads may notify in another order than they counted.
        let received: Vec<_> = (0..3).map(|_| notifications.recv().expect("notified")).collect();
        let ended: Vec<&str> = received
            .iter()
            .filter(|(_, verdict)| *verdict == Verdict::TooMany)
            .map(|(task, _)| *task)
            .collect();
        assert_eq!(ended.len(), 1, "{received:?}");
        for mut task in tasks {
            if ended == [task.name] {
                let thread = task.thread.take().expect("it was started");
                assert!(thread.join().is_ok(), "it ended by itself");
            }
            task.stop();
        }
    }
}
