//! Sessions that slide without a write per request (API.md D1).

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use crate::model::Timestamp;

use super::{SessionId, UserId};

/// A session lives this long after the last request that used it.
pub const SESSION_IDLE: Duration = Duration::from_secs(30 * 24 * 3_600);

/// Who is at the other end, for the list of sessions and the audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    /// The peer's address, or what a trusted proxy says.
    pub ip: IpAddr,
    /// `User-Agent`, cut to 256 bytes when stored; may be empty.
    pub user_agent: String,
}

/// How somebody proved who they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum AuthMethod {
    /// Address and password.
    Password,
    /// A link from a mail, the console or the command line.
    MagicLink,
    /// The first account was just made.
    Setup,
}

impl AuthMethod {
    /// As the API writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            AuthMethod::Password => "password",
            AuthMethod::MagicLink => "magic_link",
            AuthMethod::Setup => "setup",
        }
    }
}

/// A live session in memory. Cheap to share; its time moves by atomics.
#[derive(Debug)]
pub struct Session {
    /// Its name for its owner.
    pub id: SessionId,
    /// Whose.
    pub user: UserId,
    /// When it was made.
    pub created_at: Timestamp,
    /// When its owner last proved who they are; "fresh" means at most 15 minutes ago.
    pub auth_time: Timestamp,
    /// How.
    pub auth_method: AuthMethod,
    /// A second factor was given.
    pub second_factor: bool,
    /// From where it was made.
    pub client: Client,
    pub(super) last_seen_ms: AtomicI64,
}

impl Session {
    /// When a request last used it.
    pub fn last_seen(&self) -> Timestamp {
        Timestamp::from_ms(self.last_seen_ms.load(Ordering::Acquire))
    }

    /// When it ends unless it is used before.
    pub fn expires_at(&self) -> Timestamp {
        self.last_seen().plus(SESSION_IDLE)
    }

    /// Whether its owner proved who they are in the last 15 minutes (API.md C2, "fresh").
    pub fn is_fresh(&self, now: Timestamp) -> bool {
        now.ms_since(self.auth_time) <= 15 * 60 * 1_000
    }
}

/// What a cookie's value turns out to be. Never blocks, never reads the store.
#[derive(Clone, Debug)]
pub enum SessionCheck {
    /// Valid, renewed; answer at once.
    Live(Arc<Session>),
    /// Valid, renewed, but what the disk knows lags by 10 minutes or more: call
    /// `Identity::persist_session` (it blocks) before the answer; if that fails, 503 `storage_degraded`.
    LiveOncePersisted(Arc<Session>),
    /// Idle for too long: call `Identity::end_session` (it blocks) before the 401, so that no crash brings it back.
    Expired(Arc<Session>),
    /// Unknown or revoked.
    Unknown,
}
