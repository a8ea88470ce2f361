//! The queue between requests and the mail server.
//!
//! The queue is in memory only: a mail carries a secret in plain text, which must not reach the
//! disk, and most links expire soon. A clean stop makes one attempt for each mail that was never
//! tried. Mails that wait for another attempt are lost with the process, as in a crash, and users
//! request a new link.

use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use super::schedule::{NextAction, QueuedMail, RetryDelays, Schedule, SendOutcome};
use super::{Mail, Mailer, QueueFull};
use crate::clock::{Clock, Stopwatch};
use crate::sync::IgnorePoison as _;

/// How long a stop sends mails that were never tried, in addition to the running attempt.
const FINAL_ATTEMPTS_MAX: Duration = Duration::from_secs(10);
/// The longest wait without reading the clock, which may be set meanwhile.
const CLOCK_CHECK_INTERVAL: Duration = Duration::from_secs(30);

/// A queue whose thread sends one mail after the other and repeats failed attempts.
#[derive(Debug)]
pub struct MailQueue {
    mailer: Mailer,
    shared: Arc<SharedQueue>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct SharedQueue {
    state: Mutex<QueueState>,
    wake: Condvar,
    clock: Clock,
}

#[derive(Debug, Default)]
struct QueueState {
    schedule: Schedule,
    /// The time since the stop began.
    closing: Option<Stopwatch>,
}

impl SharedQueue {
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        // No code that can panic runs under the lock; mails are sent outside of it.
        self.state.lock().ignore_poison()
    }

    /// Returns the next mail to send, or `None` at the end. Blocks.
    fn next(&self) -> Option<QueuedMail> {
        let mut state = self.lock();
        loop {
            if state.closing.is_some_and(|since| since.elapsed() > FINAL_ATTEMPTS_MAX) {
                return None;
            }
            let next = state.schedule.next(self.clock.now());
            state = match next {
                NextAction::Send(one) => return Some(one),
                NextAction::Drop(one) => {
                    let kind = one.mail.kind.as_str();
                    tracing::error!(mail.kind = kind, "a mail could not be sent in time and is dropped");
                    state
                }
                NextAction::Wait(_) | NextAction::Idle if state.closing.is_some() => return None,
                NextAction::Wait(left) => {
                    let waited = self.wake.wait_timeout(state, left.min(CLOCK_CHECK_INTERVAL));
                    waited.ignore_poison().0
                }
                NextAction::Idle => self.wake.wait(state).ignore_poison(),
            };
        }
    }

    fn run(&self, mailer: &Mailer) {
        while let Some(one) = self.next() {
            let kind = one.mail.kind.as_str();
            let sent = mailer.send(&one.mail);
            let outcome = sent.as_ref().map_or_else(super::SendError::outcome, |()| SendOutcome::Sent);
            let retry_in = {
                let mut state = self.lock();
                let retry_in = state.schedule.record(one, outcome, self.clock.now());
                if state.closing.is_some() {
                    state.schedule.drop_tried();
                }
                retry_in
            };
            let Err(error) = sent else { continue };
            let error = &error as &dyn std::error::Error;
            match retry_in {
                Some(delay) => {
                    let retry_in_s = delay.as_secs();
                    tracing::warn!(
                        mail.kind = kind,
                        error,
                        retry_in_s,
                        "a mail was not sent and is tried again"
                    );
                }
                None => tracing::error!(mail.kind = kind, error, "a mail was refused and is dropped"),
            }
        }
        let left = self.lock().schedule.len();
        if left > 0 {
            tracing::warn!("{left} mails were not sent before the stop; their users must request them again");
        }
    }
}

impl MailQueue {
    /// Starts the queue and its thread. A memory mailer needs no thread: its mails are stored when
    /// [`MailQueue::send`] returns.
    ///
    /// # Errors
    /// The operating system's error if no thread can be started.
    pub fn start(mailer: Mailer, clock: Clock) -> std::io::Result<MailQueue> {
        MailQueue::with(mailer, clock, RetryDelays::default())
    }

    /// Like [`MailQueue::start`], with other delays between attempts.
    pub(super) fn with(mailer: Mailer, clock: Clock, delays: RetryDelays) -> std::io::Result<MailQueue> {
        let state = QueueState { schedule: Schedule::new(delays), closing: None };
        let shared = Arc::new(SharedQueue { state: Mutex::new(state), wake: Condvar::new(), clock });
        let thread = match &mailer {
            Mailer::Memory(_) => None,
            Mailer::Console | Mailer::Smtp(_) => {
                let (shared, mailer) = (Arc::clone(&shared), mailer.clone());
                let thread = std::thread::Builder::new().name("mail".to_owned());
                Some(thread.spawn(move || shared.run(&mailer))?)
            }
        };
        Ok(MailQueue { mailer, shared, thread })
    }

    /// Queues a mail; never waits.
    ///
    /// # Errors
    /// [`QueueFull`]. The caller responds as if the mail had been sent, and logs the error.
    pub fn send(&self, mail: Mail) -> Result<(), QueueFull> {
        if let Mailer::Memory(outbox) = &self.mailer {
            outbox.push(mail);
            return Ok(());
        }
        self.shared.lock().schedule.push(mail)?;
        self.shared.wake.notify_one();
        Ok(())
    }

    /// Returns the mailer.
    pub const fn mailer(&self) -> &Mailer {
        &self.mailer
    }

    /// Returns whether mail can be sent, according to the last attempt. The error is a sentence for
    /// `/readyz`, which is public.
    ///
    /// # Errors
    /// The last attempt did not reach a mail server that accepts our mail.
    pub fn health(&self) -> Result<(), String> {
        let state = self.shared.lock();
        match (state.schedule.is_healthy(), state.schedule.len()) {
            (true, _) => Ok(()),
            (false, waiting) => {
                Err(format!("mail cannot be sent at the moment, {waiting} waiting; see the log"))
            }
        }
    }

    /// Makes one attempt for each mail that was never tried, and ends the thread. Blocks meanwhile,
    /// for at most `FINAL_ATTEMPTS_MAX` and the running attempt.
    pub fn close(mut self) {
        self.stop();
    }

    fn stop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        {
            let mut state = self.shared.lock();
            state.closing = Some(Stopwatch::start());
            let dropped = state.schedule.drop_tried();
            if dropped > 0 {
                tracing::warn!("{dropped} mails that could not be sent are dropped at the stop");
            }
        }
        self.shared.wake.notify_all();
        // A panic of the thread was already printed.
        let _ = thread.join();
    }
}

impl Drop for MailQueue {
    fn drop(&mut self) {
        self.stop();
    }
}
