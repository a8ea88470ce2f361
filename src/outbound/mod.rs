//! Messages out: mail, by SMTP, on the console, or kept for a test; and questions to sign-in providers (`oidc`, `github`
//! over `https`), which know nothing of accounts: they fetch, `identity` judges.
//!
//! Nobody waits for a mail: it goes into a bounded queue that one thread of this room empties, so that an answer takes
//! the same time whether there is anybody to mail or not (docs/specification.md D5). What does not leave is tried again (`waiting`).

mod github;
mod https;
mod mail;
mod oidc;
mod queue;
mod smtp;
mod waiting;

pub use github::{GithubAccount, GithubClient, GithubOptions};
pub use https::{HttpsOptions, ProviderError};
pub use mail::{Mail, MailKind};
pub use oidc::{Authorization, OidcClient, OidcOptions, Tokens};
pub use queue::MailQueue;
pub use smtp::{SmtpError, SmtpMailer};
pub use waiting::QueueFull;

use std::io::Write as _;
use std::sync::{Arc, Mutex};

use crate::sync::IgnorePoison as _;

/// How mail leaves.
#[derive(Clone, Debug)]
pub enum Mailer {
    /// One line on standard output for each mail, flushed at once ([`Mail::console_line`]).
    Console,
    /// To a mail server.
    Smtp(Arc<SmtpMailer>),
    /// Nowhere: kept for a test to read.
    Memory(Outbox),
}

/// Mails that were "sent" in a test.
#[derive(Clone, Debug, Default)]
pub struct Outbox(Arc<Mutex<Vec<Mail>>>);

impl Outbox {
    /// All mails so far, oldest first.
    pub fn mails(&self) -> Vec<Mail> {
        self.0.lock().ignore_poison().clone()
    }

    fn push(&self, mail: Mail) {
        self.0.lock().ignore_poison().push(mail);
    }
}

/// Why one mail did not leave.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// Standard output is closed.
    #[error("standard output takes no mail")]
    Console(#[source] std::io::Error),
    /// The mail server did not take it.
    #[error(transparent)]
    Smtp(#[from] SmtpError),
}

impl SendError {
    /// What it means for this mail and the others.
    fn came(&self) -> waiting::Came {
        match self {
            SendError::Console(_) => waiting::Came::Unreachable,
            SendError::Smtp(error) => error.came(),
        }
    }
}

impl Mailer {
    /// As `GET /auth/config` names it.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Mailer::Console => "console",
            Mailer::Smtp(_) => "smtp",
            Mailer::Memory(_) => "memory",
        }
    }

    /// Sends one mail. Blocks: SMTP for up to 20 s.
    ///
    /// # Errors
    /// [`SendError`].
    pub fn send(&self, mail: &Mail) -> Result<(), SendError> {
        match self {
            Mailer::Console => {
                let mut out = std::io::stdout().lock();
                writeln!(out, "{}", mail.console_line())
                    .and_then(|()| out.flush())
                    .map_err(SendError::Console)
            }
            Mailer::Smtp(smtp) => Ok(smtp.send(mail)?),
            Mailer::Memory(outbox) => {
                outbox.push(mail.clone());
                Ok(())
            }
        }
    }
}
