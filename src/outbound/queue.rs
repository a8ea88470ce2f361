//! The queue between answers and the mail server.
//!
//! It lives in memory: a mail carries a secret in the clear, which has no place on the disk, and a link lives ten minutes.
//! A clean stop gives what was never tried one attempt; what waits for another attempt is lost with the process, as it is in
//! a crash, and its link is asked for again.

use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use super::waiting::{Came, Next, Pauses, Schedule, Waiting};
use super::{Mail, Mailer, QueueFull};
use crate::clock::{Clock, Stopwatch};
use crate::sync::IgnorePoison as _;

/// How long a stop waits for the mails that were never tried, beside the attempt that is under way.
const LAST_WITHIN: Duration = Duration::from_secs(10);
/// A clock may be set while the queue waits by it.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// Takes mails and sends them one after the other on its own thread; what does not leave is tried again.
#[derive(Debug)]
pub struct MailQueue {
    mailer: Mailer,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    wake: Condvar,
    clock: Clock,
}

#[derive(Debug, Default)]
struct State {
    schedule: Schedule,
    /// Since when it is being closed.
    closing: Option<Stopwatch>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics inside: mails are sent outside of the lock.
        self.state.lock().ignore_poison()
    }

    /// What to send next; `None` at the end. Blocks.
    fn next(&self) -> Option<Waiting> {
        let mut state = self.lock();
        loop {
            if state.closing.is_some_and(|since| since.elapsed() > LAST_WITHIN) {
                return None;
            }
            let next = state.schedule.next(self.clock.now());
            state = match next {
                Next::Send(one) => return Some(one),
                Next::GiveUp(one) => {
                    let kind = one.mail.kind.as_str();
                    tracing::error!(mail.kind = kind, "a mail was not sent in time; it is given up");
                    state
                }
                Next::Wait(_) | Next::Idle if state.closing.is_some() => return None,
                Next::Wait(left) => {
                    let waited = self.wake.wait_timeout(state, left.min(LOOK_AGAIN));
                    waited.ignore_poison().0
                }
                Next::Idle => self.wake.wait(state).ignore_poison(),
            };
        }
    }

    fn work(&self, mailer: &Mailer) {
        while let Some(one) = self.next() {
            let kind = one.mail.kind.as_str();
            let sent = mailer.send(&one.mail);
            let came = sent.as_ref().map_or_else(super::SendError::came, |()| Came::Sent);
            let again = {
                let mut state = self.lock();
                let again = state.schedule.came(one, came, self.clock.now());
                if state.closing.is_some() {
                    state.schedule.keep_untried();
                }
                again
            };
            let Err(error) = sent else { continue };
            let error = &error as &dyn std::error::Error;
            match again {
                Some(pause) => {
                    let again_in_s = pause.as_secs();
                    tracing::warn!(
                        mail.kind = kind,
                        error,
                        again_in_s,
                        "a mail was not sent; it is tried again"
                    );
                }
                None => tracing::error!(mail.kind = kind, error, "a mail was refused; it is given up"),
            }
        }
        let left = self.lock().schedule.len();
        if left > 0 {
            tracing::warn!(
                "{left} mails were not sent before the end; their links have to be asked for again"
            );
        }
    }
}

impl MailQueue {
    /// Starts the thread. A memory mailer needs none: its mails are there when [`MailQueue::send`] returns.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start(mailer: Mailer, clock: Clock) -> std::io::Result<MailQueue> {
        MailQueue::with(mailer, clock, Pauses::default())
    }

    /// As [`MailQueue::start`], with other pauses between attempts.
    pub(super) fn with(mailer: Mailer, clock: Clock, pauses: Pauses) -> std::io::Result<MailQueue> {
        let state = State { schedule: Schedule::new(pauses), closing: None };
        let shared = Arc::new(Shared { state: Mutex::new(state), wake: Condvar::new(), clock });
        let thread = match &mailer {
            Mailer::Memory(_) => None,
            Mailer::Console | Mailer::Smtp(_) => {
                let (shared, mailer) = (Arc::clone(&shared), mailer.clone());
                let thread = std::thread::Builder::new().name("mail".to_owned());
                Some(thread.spawn(move || shared.work(&mailer))?)
            }
        };
        Ok(MailQueue { mailer, shared, thread })
    }

    /// Hands a mail over; never waits.
    ///
    /// # Errors
    /// [`QueueFull`]; the caller answers as if it had been sent, and logs it.
    pub fn send(&self, mail: Mail) -> Result<(), QueueFull> {
        if let Mailer::Memory(outbox) = &self.mailer {
            outbox.push(mail);
            return Ok(());
        }
        self.shared.lock().schedule.push(mail)?;
        self.shared.wake.notify_one();
        Ok(())
    }

    /// How mail leaves.
    pub const fn mailer(&self) -> &Mailer {
        &self.mailer
    }

    /// Whether mail leaves, as far as the last attempt tells. `Err` is a sentence for `/readyz`, which anybody may read.
    ///
    /// # Errors
    /// The last attempt reached no mail server that takes mail from us.
    pub fn health(&self) -> Result<(), String> {
        let state = self.shared.lock();
        match (state.schedule.is_well(), state.schedule.len()) {
            (true, _) => Ok(()),
            (false, waiting) => {
                Err(format!("mail does not leave at the moment, {waiting} wait; the log says why"))
            }
        }
    }

    /// Gives what was never tried one attempt, and ends the thread. Blocks for that long.
    pub fn close(mut self) {
        self.stop();
    }

    fn stop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        {
            let mut state = self.shared.lock();
            state.closing = Some(Stopwatch::start());
            let let_go = state.schedule.keep_untried();
            if let_go > 0 {
                tracing::warn!("{let_go} mails that could not be sent are not tried again");
            }
        }
        self.shared.wake.notify_all();
        // A panic there was printed there; there is nothing left to end.
        let _ = thread.join();
    }
}

impl Drop for MailQueue {
    fn drop(&mut self) {
        self.stop();
    }
}
