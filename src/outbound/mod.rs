//! Outgoing messages: mail, which is sent by SMTP, printed on the console, or stored for a test,
//! requests to sign-in providers (`oidc`, and `github`, over `https`), requests to the targets of
//! organisations (`target`), and those of a follower to its primary (`standby`). This room fetches
//! and does not know accounts; `identity` verifies.
//!
//! No request waits for a mail. Mails go into a bounded queue that one thread empties, so a
//! response takes the same time whether a mail is sent or not (docs/specification.md D5). A mail
//! that cannot be sent is tried again (`schedule`).

mod connection;
mod github;
mod https;
mod mail;
mod oidc;
mod provider;
mod queue;
mod schedule;
mod smtp;
mod standby;
mod target;

pub use github::{GithubClient, GithubOptions};
pub use https::{HttpsOptions, ProviderError};
pub use hyper::body::Bytes;
pub use mail::{Mail, MailKind, PlainMail};
pub use oidc::{Authorization, OidcClient, OidcOptions, Tokens};
pub use provider::{AccountFuture, ProviderAccount, ProviderClient};
pub use queue::MailQueue;
pub use schedule::QueueFull;
pub use smtp::{SmtpError, SmtpMailer};
pub use standby::{StandbyClient, StandbyRequestError, StandbyResponse};
pub use target::{
    Egress, PullAuth, PullClient, PullOptions, PullRequest, PullResponse, PullServer, TargetBody,
    TargetClient, TargetError, TargetMethod, TargetRequest, TargetResponse,
};

use std::io::Write as _;
use std::sync::{Arc, Mutex};

use crate::sync::IgnorePoison as _;

/// The way in which mails leave.
#[derive(Clone, Debug)]
pub enum Mailer {
    /// One line on standard output for each mail, flushed at once ([`Mail::console_line`]).
    Console,
    /// Mails are sent to a mail server.
    Smtp(Arc<SmtpMailer>),
    /// Mails are stored for a test to read.
    Memory(Outbox),
}

/// The mails that a test has "sent".
#[derive(Clone, Debug, Default)]
pub struct Outbox {
    mails: Arc<Mutex<Vec<Mail>>>,
    plain: Arc<Mutex<Vec<PlainMail>>>,
}

impl Outbox {
    /// Returns all mails so far, oldest first.
    pub fn mails(&self) -> Vec<Mail> {
        self.mails.lock().ignore_poison().clone()
    }

    /// Returns all mails with a text of their own, oldest first.
    pub fn plain_mails(&self) -> Vec<PlainMail> {
        self.plain.lock().ignore_poison().clone()
    }

    fn push(&self, mail: Mail) {
        self.mails.lock().ignore_poison().push(mail);
    }
}

/// The reason why a mail was not sent.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// Standard output is closed.
    #[error("cannot write the mail to standard output")]
    Console(#[source] std::io::Error),
    /// The mail server did not accept the mail.
    #[error(transparent)]
    Smtp(#[from] SmtpError),
}

impl SendError {
    /// Returns whether the mail server will never accept this mail.
    pub fn is_permanent(&self) -> bool {
        self.outcome() == schedule::SendOutcome::Never
    }

    /// Classifies the failure for this mail and the others.
    fn outcome(&self) -> schedule::SendOutcome {
        match self {
            SendError::Console(_) => schedule::SendOutcome::Unreachable,
            SendError::Smtp(error) => error.outcome(),
        }
    }
}

/// Prints a line on standard output, and flushes it.
fn print_line(line: &str) -> Result<(), SendError> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(SendError::Console)
}

impl Mailer {
    /// Returns the name in the response of `GET /auth/config`.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Mailer::Console => "console",
            Mailer::Smtp(_) => "smtp",
            Mailer::Memory(_) => "memory",
        }
    }

    /// Sends one mail with a text of its own. Blocks: up to 20 s with SMTP.
    ///
    /// # Errors
    /// [`SendError`], if the mail was not sent.
    pub fn send_plain(&self, mail: &PlainMail) -> Result<(), SendError> {
        match self {
            Mailer::Console => print_line(&mail.console_line()),
            Mailer::Smtp(smtp) => Ok(smtp.send_plain(mail)?),
            Mailer::Memory(outbox) => {
                outbox.plain.lock().ignore_poison().push(mail.clone());
                Ok(())
            }
        }
    }

    /// Sends one mail. Blocks: up to 20 s with SMTP.
    ///
    /// # Errors
    /// [`SendError`], if the mail was not sent.
    pub fn send(&self, mail: &Mail) -> Result<(), SendError> {
        match self {
            Mailer::Console => print_line(&mail.console_line()),
            Mailer::Smtp(smtp) => Ok(smtp.send(mail)?),
            Mailer::Memory(outbox) => {
                outbox.push(mail.clone());
                Ok(())
            }
        }
    }
}
