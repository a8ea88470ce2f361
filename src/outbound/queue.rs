//! The queue between answers and the mail server.

use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use super::{Mail, Mailer};

/// Mails that may wait; a server that takes none for that long loses the next ones, said in the log.
const WAITING_MAX: usize = 256;

/// The queue is full: the mail is not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{WAITING_MAX} mails wait already")]
pub struct QueueFull;

/// Takes mails and sends them one after the other on its own thread.
#[derive(Debug)]
pub struct MailQueue {
    mailer: Mailer,
    waiting: Option<SyncSender<Mail>>,
    thread: Option<JoinHandle<()>>,
}

impl MailQueue {
    /// Starts the thread. A memory mailer needs none: its mails are there when [`MailQueue::send`] returns.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start(mailer: Mailer) -> std::io::Result<MailQueue> {
        if let Mailer::Memory(_) = mailer {
            return Ok(MailQueue { mailer, waiting: None, thread: None });
        }
        let (sender, receiver) = sync_channel::<Mail>(WAITING_MAX);
        let sending = mailer.clone();
        let work = move || {
            for mail in receiver {
                let kind = mail.kind.as_str();
                if let Err(error) = sending.send(mail) {
                    tracing::error!(
                        mail.kind = kind,
                        error = &error as &dyn std::error::Error,
                        "a mail was not sent"
                    );
                }
            }
        };
        let thread = std::thread::Builder::new().name("mail".to_owned()).spawn(work)?;
        Ok(MailQueue { mailer, waiting: Some(sender), thread: Some(thread) })
    }

    /// Hands a mail over; never waits.
    ///
    /// # Errors
    /// [`QueueFull`]; the caller answers as if it had been sent, and logs it.
    pub fn send(&self, mail: Mail) -> Result<(), QueueFull> {
        match (&self.waiting, &self.mailer) {
            (Some(waiting), _) => waiting.try_send(mail).map_err(|error| match error {
                TrySendError::Full(_) | TrySendError::Disconnected(_) => QueueFull,
            }),
            (None, Mailer::Memory(outbox)) => {
                outbox.push(mail);
                Ok(())
            }
            (None, _) => Err(QueueFull),
        }
    }

    /// How mail leaves.
    pub const fn mailer(&self) -> &Mailer {
        &self.mailer
    }

    /// Sends what waits, and ends the thread. Blocks for as long as the mail server takes.
    pub fn close(mut self) {
        self.stop();
    }

    fn stop(&mut self) {
        self.waiting = None;
        if let Some(thread) = self.thread.take() {
            // A panic there was printed there; there is nothing left to end.
            let _ = thread.join();
        }
    }
}

impl Drop for MailQueue {
    fn drop(&mut self) {
        self.stop();
    }
}
