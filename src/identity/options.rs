//! The operator's settings for accounts (docs/specification.md E).

use std::time::Duration;

use crate::identity::auth::password::Argon2Cost;

/// Who may create an account (`PROMLET_SIGNUP`). The first account of an instance can always be
/// created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SignupMode {
    /// The first account, and people with an invitation.
    #[default]
    First,
    /// Everyone who can read mail to an address.
    Open,
    /// People with an invitation.
    Invite,
    /// No one, with or without an invitation.
    Closed,
}

impl SignupMode {
    /// Returns the name used in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            SignupMode::First => "first",
            SignupMode::Open => "open",
            SignupMode::Invite => "invite",
            SignupMode::Closed => "closed",
        }
    }

    /// Returns whether an invitation may create an account.
    pub const fn takes_invited(self) -> bool {
        !matches!(self, SignupMode::Closed)
    }
}

/// Who may create organisations (`PROMLET_ORG_CREATE`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OrgCreate {
    /// The instance administrator.
    #[default]
    Admin,
    /// Every account.
    Any,
}

/// The operator's settings for accounts (docs/specification.md E).
#[derive(Clone, Debug)]
pub struct IdentityOptions {
    /// Cost of password hashes: `PROMLET_ARGON2`.
    pub argon2: Argon2Cost,
    /// Lifetime of a magic link: `PROMLET_MAGIC_LINK_TTL`; 600 s by default.
    pub link_ttl: Duration,
    /// Maximum lifetime of a session: `PROMLET_SESSION_ABSOLUTE_DAYS`. With `None` a session that
    /// is in use never expires.
    pub session_absolute: Option<Duration>,
    /// Who may create organisations: `PROMLET_ORG_CREATE`.
    pub org_create: OrgCreate,
    /// Who may sign up: `PROMLET_SIGNUP`.
    pub signup: SignupMode,
    /// Mail is sent to a mail server, not printed to the console, so a used link proves who reads
    /// mail to its address.
    pub mail_leaves: bool,
}

impl Default for IdentityOptions {
    fn default() -> IdentityOptions {
        IdentityOptions {
            argon2: Argon2Cost::default(),
            link_ttl: Duration::from_secs(600),
            session_absolute: None,
            org_create: OrgCreate::default(),
            signup: SignupMode::default(),
            mail_leaves: false,
        }
    }
}
