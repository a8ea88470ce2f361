//! The one way in: whatever the first factor, it ends here and becomes a session or asks for a code.

use std::sync::Arc;
use std::time::Duration;

use super::{Client, Membership, Secret, Session, StoreError, User};

/// What a proven first factor leads to. Neither is an error.
#[derive(Debug)]
pub enum LoginOutcome {
    /// In.
    LoggedIn(LoggedIn),
    /// The account has a second factor; no session yet.
    NeedsCode(PendingLogin),
}

/// A new session and whose it is.
#[derive(Debug)]
pub struct LoggedIn {
    /// `ses_...`: the value of the cookie `ms_session`.
    pub token: Secret,
    /// The session.
    pub session: Arc<Session>,
    /// Its owner.
    pub user: User,
    /// The owner's organisations, by slug.
    pub orgs: Vec<Membership>,
}

/// A login that waits for its second factor.
#[derive(Debug)]
pub struct PendingLogin {
    /// `tfp_...`.
    pub token: Secret,
    /// How long it waits: 300 s.
    pub expires_in: Duration,
}

/// An attempt with a password.
#[derive(Clone, Copy, Debug)]
pub struct PasswordLogin<'a> {
    /// As typed; one that is no address fails like an unknown one.
    pub email: &'a str,
    /// Byte-exact.
    pub password: &'a Password<'a>,
    /// From where.
    pub client: &'a Client,
    /// The session cookie that came with the request, if any: revoked when the new session is issued.
    pub replaces: Option<&'a str>,
}

/// A password as typed. Prints as `***`.
#[derive(Clone, Copy)]
pub struct Password<'a>(pub &'a str);

impl std::fmt::Debug for Password<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

/// Why a password login failed.
#[derive(Debug, thiserror::Error)]
pub enum LoginError {
    /// Unknown address, no password, wrong password, disabled account: one answer, `invalid_credentials`.
    #[error("address and password do not belong together")]
    InvalidCredentials,
    /// Too many failures, decided before any hashing: `login_throttled`.
    #[error("too many failed logins, try again in {} s", retry_after.as_secs())]
    Throttled {
        /// Until an attempt will be looked at; whole seconds, at least 1.
        retry_after: Duration,
    },
    /// `storage_degraded`.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What proves the second factor.
#[derive(Clone, Copy)]
pub enum SecondFactor<'a> {
    /// Six digits; inner spaces are stripped.
    Code(&'a str),
    /// One of the ten recovery codes; dashes, spaces and letter case do not matter.
    RecoveryCode(&'a str),
}

impl std::fmt::Debug for SecondFactor<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            SecondFactor::Code(_) => "Code(***)",
            SecondFactor::RecoveryCode(_) => "RecoveryCode(***)",
        })
    }
}

/// An attempt to end a pending login.
#[derive(Clone, Copy, Debug)]
pub struct CodeLogin<'a> {
    /// `tfp_...` as given out.
    pub pending: &'a str,
    /// The code.
    pub factor: SecondFactor<'a>,
    /// From where.
    pub client: &'a Client,
    /// As in [`PasswordLogin::replaces`].
    pub replaces: Option<&'a str>,
}

/// Why a code was refused.
#[derive(Debug, thiserror::Error)]
pub enum CodeError {
    /// Unknown, older than five minutes, used, or five tries spent: `pending_login_invalid`.
    #[error("this login is over, start again")]
    PendingInvalid,
    /// `invalid_code`.
    #[error("wrong code, {attempts_left} attempts left")]
    Invalid {
        /// Of this pending login.
        attempts_left: u8,
    },
    /// Right, but used before: `code_already_used`.
    #[error("this code was already used, wait for the next one")]
    AlreadyUsed {
        /// Until the next code begins.
        retry_after: Duration,
    },
    /// Too many wrong codes for this account: `twofa_throttled`.
    #[error("too many wrong codes, try again in {} s", retry_after.as_secs())]
    Throttled {
        /// Until an attempt will be looked at.
        retry_after: Duration,
    },
    /// `storage_degraded`.
    #[error(transparent)]
    Store(#[from] StoreError),
}
