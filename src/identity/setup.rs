//! The first account (API.md C2 signup first run, and E bootstrap).

use crate::model::SlugError;

use super::password::WeakPassword;
use super::{Client, EmailError, NewOrg, Password, StoreError};

/// The first account: instance administrator and owner of the first organisation.
#[derive(Clone, Debug)]
pub struct SetUp<'a> {
    /// The token from the setup link, if given.
    pub token: Option<&'a str>,
    /// The TCP peer is loopback and no proxy header is present: no token needed.
    pub peer: SetUpPeer,
    /// As typed.
    pub email: &'a str,
    /// Must meet the policy.
    pub password: Password<'a>,
    /// What the person wants to be called; may be empty.
    pub name: &'a str,
    /// The first organisation.
    pub org: NewOrg,
    /// From where.
    pub client: &'a Client,
}

/// Whether the one who sets up sits at this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetUpPeer {
    /// Loopback, no proxy header: trusted.
    Local,
    /// Anyone else: the token is needed.
    Remote,
}

/// The account that environment variables ask for (API.md E).
#[derive(Clone, Debug)]
pub struct Bootstrap<'a> {
    /// `PROMLET_BOOTSTRAP_EMAIL`.
    pub email: &'a str,
    /// `PROMLET_BOOTSTRAP_PASSWORD`.
    pub password: Password<'a>,
    /// `PROMLET_BOOTSTRAP_ORG`.
    pub org: &'a str,
}

/// Why there is no first account now.
#[derive(Debug, thiserror::Error)]
pub enum SetUpError {
    /// An account exists: `signup_closed`.
    #[error("set-up is over: an account exists")]
    Closed,
    /// From another machine without the right token: `setup_token_required`.
    #[error("the set-up token is needed")]
    TokenRequired,
    /// `validation_failed`, field `email`.
    #[error(transparent)]
    Email(#[from] EmailError),
    /// `weak_password`.
    #[error(transparent)]
    Password(#[from] WeakPassword),
    /// `validation_failed`, field `org.slug`.
    #[error(transparent)]
    Slug(#[from] SlugError),
    /// `validation_failed`: a name is longer than 200 bytes.
    #[error("a name has at most 200 bytes, this one {0}")]
    NameTooLong(usize),
    /// `storage_degraded`.
    #[error(transparent)]
    Store(#[from] StoreError),
}
