//! Links that sign in: asked for by mail, printed by the demo and the command line (API.md D5).

use std::time::Duration;

use super::{Client, Email, LoginOutcome, Secret, StoreError};

/// A mail to send, handed to the caller's queue: identity sends nothing itself.
#[derive(Clone, Debug)]
pub struct LinkMail {
    /// To whom.
    pub to: Email,
    /// `mgl_...`: goes into `{public_url}/api/v1/auth/magic-link/verify?token=`.
    pub token: Secret,
    /// How long it is good for.
    pub expires_in: Duration,
}

/// A link that was just made for a known user.
#[derive(Clone, Debug)]
pub struct IssuedLink {
    /// `mgl_...`.
    pub token: Secret,
    /// How long it is good for.
    pub expires_in: Duration,
}

/// A request for a link.
#[derive(Clone, Copy, Debug)]
pub struct LinkRequest<'a> {
    /// Parsed already: a text that is no address is a 422.
    pub email: &'a Email,
    /// Where to go afterwards, already checked to be a path of ours.
    pub redirect: Option<&'a str>,
    /// The value of the cookie `ms_ml` set with the answer: binds the link to this browser.
    pub browser: Option<&'a str>,
}

/// An attempt to use a link.
#[derive(Clone, Copy, Debug)]
pub struct LinkLogin<'a> {
    /// `mgl_...`.
    pub token: &'a str,
    /// What shows that the right person opened it.
    pub proof: LinkProof<'a>,
    /// From where.
    pub client: &'a Client,
    /// The session cookie that came with the request, if any: revoked when the new session is issued.
    pub replaces: Option<&'a str>,
}

/// What shows that the right person opened a link.
#[derive(Clone, Copy, Debug)]
pub enum LinkProof<'a> {
    /// Console mode: no scanner reads the console, the link alone is enough.
    Console,
    /// The cookie `ms_ml`, and the address as typed, where given.
    Browser {
        /// `ms_ml`.
        cookie: Option<&'a str>,
        /// As typed.
        email: Option<&'a str>,
    },
}

/// A used link.
#[derive(Debug)]
pub struct LinkOutcome {
    /// In, or a code is needed.
    pub login: LoginOutcome,
    /// Where the request wanted to go.
    pub redirect: Option<String>,
}

/// Why a link was refused.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// Unknown, used, expired, burned: one answer, `link_invalid`.
    #[error("this link is not valid any more")]
    Invalid,
    /// Another browser than the one that asked, and no address typed: `email_confirmation_required`.
    #[error("type the address this link was sent to")]
    EmailRequired,
    /// `storage_degraded`.
    #[error(transparent)]
    Store(#[from] StoreError),
}
