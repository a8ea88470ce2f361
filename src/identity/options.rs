//! The operator's settings for accounts (docs/specification.md E).

use std::time::Duration;

/// The cost of one hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Argon2Cost {
    /// Memory, KiB.
    pub memory_kib: u32,
    /// Number of passes over the memory.
    pub passes: u32,
    /// Number of lanes.
    pub lanes: u32,
}

impl Default for Argon2Cost {
    /// OWASP's minimum: 19,456 KiB, 2 passes, 1 lane.
    fn default() -> Argon2Cost {
        Argon2Cost { memory_kib: 19_456, passes: 2, lanes: 1 }
    }
}

/// A cost outside of the limits of Argon2 or of this program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("argon2 needs 8 KiB per lane to 1 GiB, 1 to 16 passes and 1 to 16 lanes, not m={},t={},p={}", .0.memory_kib, .0.passes, .0.lanes)]
pub struct CostError(pub Argon2Cost);

/// The people who may create an account (`PROMLET_SIGNUP`). The first account of an instance can
/// always be created.
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

/// The accounts that may create organisations (`PROMLET_ORG_CREATE`).
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
    /// The accounts that may create organisations: `PROMLET_ORG_CREATE`.
    pub org_create: OrgCreate,
    /// The people who may sign up: `PROMLET_SIGNUP`.
    pub signup: SignupMode,
    /// Whether mail is sent to a mail server, not printed to the console. Only then does a used
    /// link prove that its user reads the mail of the address.
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
