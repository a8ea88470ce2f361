//! Sessions with sliding expiry and without a write per request (docs/specification.md D1).
//!
//! A session is a row under (user, SHA-256 of its token), and all sessions are in memory. The time
//! of last use is class C data: a row of its own, written by the flusher at most once a minute. If
//! the stored time lags by ten minutes or more, the request itself writes it before its response.
//! So no request that got a response is more than ten minutes ahead of the disk. After a crash ten
//! minutes are added to the stored time, so that no session expires too early.
//!
//! Rows are keyed by user, so that a user's sessions are adjacent. Still, ending many at once
//! writes only one row: the user's `sessions_epoch`.
//!
//! | file | subject |
//! |---|---|
//! | `index` | the live sessions in memory |
//! | `rows` | issuing and ending sessions within a change |
//! | `ending` | ending sessions in memory and on disk |
//! | `stored` | loading, renewals, and the sweep of ended sessions |

mod ending;
mod index;
mod rows;
mod stored;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};
use std::time::Duration;

use crate::model::Timestamp;

use crate::identity::Identity;
use crate::identity::tables::id::{SecretHash, SessionId, UserId};
use crate::identity::tables::session::{AuthMethod, SeenRow, SessionKey, SessionRow};
use crate::identity::tables::store::StoreError;

pub(in crate::identity) use index::Sessions;
pub(in crate::identity) use rows::{LoginProof, NewSession, end_all, is_live, issue, record_evicted};

/// Lifetime of a session after the last request that used it.
pub const SESSION_IDLE: Duration = Duration::from_secs(30 * 24 * 3_600);

/// The client of a request, for the list of sessions and the audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    /// Address of the peer, or the one that a trusted proxy reports.
    pub ip: IpAddr,
    /// `User-Agent`, truncated to 256 bytes when stored; may be empty.
    pub user_agent: String,
}

/// A live session in memory. It is shared; its times are atomics.
#[derive(Debug)]
pub struct Session {
    /// The public id.
    pub id: SessionId,
    /// Its owner.
    pub user: UserId,
    /// Time of the login.
    pub created_at: Timestamp,
    /// Method of the login.
    pub auth_method: AuthMethod,
    /// Whether the login included a second factor.
    pub second_factor: bool,
    /// The client that logged in.
    pub client: Client,
    hash: SecretHash,
    /// Latest end, independent of use (`PROMLET_SESSION_ABSOLUTE_DAYS`).
    ends_at: Option<Timestamp>,
    auth_ms: AtomicI64,
    epoch: AtomicU32,
    live: AtomicBool,
    last_ms: AtomicI64,
    /// The value of `last_ms` that the store holds.
    stored_ms: AtomicI64,
    /// The session is in the queue of the next flush.
    queued: AtomicBool,
}

impl Session {
    /// Returns the time of the last request that used it.
    pub fn last_seen(&self) -> Timestamp {
        Timestamp::from_ms(self.last_ms.load(Ordering::Acquire))
    }

    /// Returns the time at which it expires if it is not used before, bounded by the absolute
    /// limit.
    pub fn expires_at(&self) -> Timestamp {
        let idle = self.last_seen().plus(SESSION_IDLE);
        self.ends_at.map_or(idle, |end| idle.min(end))
    }

    /// Returns whether the session has neither ended nor expired. Does not renew it.
    pub fn is_live(&self, now: Timestamp) -> bool {
        self.live.load(Ordering::Acquire) && now < self.expires_at()
    }

    /// Returns the time at which its owner last authenticated.
    pub fn auth_time(&self) -> Timestamp {
        Timestamp::from_ms(self.auth_ms.load(Ordering::Acquire))
    }

    /// Returns whether its owner authenticated in the last 15 minutes (docs/specification.md C2,
    /// "fresh").
    pub fn is_fresh(&self, now: Timestamp) -> bool {
        now.ms_since(self.auth_time()) <= 15 * 60 * 1_000
    }

    pub(in crate::identity) fn proved(&self, now: Timestamp) {
        self.auth_ms.fetch_max(now.as_ms(), Ordering::AcqRel);
    }

    fn from_row(
        user: UserId,
        hash: SecretHash,
        row: SessionRow,
        last: Timestamp,
        stored: Timestamp,
        absolute: Option<Duration>,
    ) -> Session {
        Session {
            ends_at: absolute.map(|limit| row.created_at.plus(limit)),
            id: row.id,
            user,
            created_at: row.created_at,
            auth_method: row.auth_method,
            second_factor: row.second_factor,
            client: Client { ip: row.ip, user_agent: row.user_agent },
            hash,
            auth_ms: AtomicI64::new(row.auth_time.as_ms()),
            epoch: AtomicU32::new(row.epoch),
            live: AtomicBool::new(true),
            last_ms: AtomicI64::new(last.as_ms()),
            stored_ms: AtomicI64::new(stored.as_ms()),
            queued: AtomicBool::new(false),
        }
    }

    pub(in crate::identity) const fn key(&self) -> SessionKey {
        (self.user, self.hash)
    }
}

/// The result of looking up a session cookie. The lookup never blocks and never reads the store.
#[derive(Clone, Debug)]
pub enum SessionCheck {
    /// Valid and renewed: respond at once.
    Live(Arc<Session>),
    /// Valid and renewed, but the stored time lags by 10 minutes or more. Call
    /// `Identity::persist_session` (it blocks) before the response; if it fails, respond 503
    /// `storage_degraded`.
    LiveOncePersisted(Arc<Session>),
    /// Idle for too long. Call `Identity::end_session` (it blocks) before the 401, so that no crash
    /// revives it.
    Expired(Arc<Session>),
    /// Ended in memory, but its row is still stored because a write failed. Before a response that
    /// confirms the end (a logout, an expiry), call `Identity::end_session` (it blocks).
    Ended(Arc<Session>),
    /// Unknown or revoked.
    Unknown,
}

/// Minimum lag of the stored time that is written.
const LAG_QUEUED_MS: i64 = 60 * 1_000;
/// Lag from which on the request waits for the write. A crash may lose this time, so it is added
/// after a crash.
const LAG_WAITED_MS: i64 = 10 * 60 * 1_000;
/// Maximum number of sessions of one user; beyond it the least recently used one is ended, with an
/// audit entry.
pub(in crate::identity) const SESSIONS_MAX: usize = 10_000;

impl Identity {
    /// Looks up the value of a cookie `ms_session` and renews its session. Does not access the
    /// disk.
    pub fn session(&self, cookie: &str, now: Timestamp) -> SessionCheck {
        let Some(session) = self.sessions.find(cookie) else {
            return self.sessions.find_unstored(cookie).map_or(SessionCheck::Unknown, SessionCheck::Ended);
        };
        if !session.live.load(Ordering::Acquire) {
            return SessionCheck::Unknown;
        }
        if now >= session.expires_at() {
            return SessionCheck::Expired(session);
        }
        if self.is_follower() {
            // Only the primary renews sessions.
            return SessionCheck::Live(session);
        }
        session.last_ms.fetch_max(now.as_ms(), Ordering::AcqRel);
        let lag_ms = now.as_ms().saturating_sub(session.stored_ms.load(Ordering::Acquire));
        if lag_ms >= LAG_WAITED_MS {
            return SessionCheck::LiveOncePersisted(session);
        }
        if lag_ms >= LAG_QUEUED_MS && !session.queued.swap(true, Ordering::AcqRel) {
            self.sessions.write().lagging.push(Arc::clone(&session));
        }
        SessionCheck::Live(session)
    }

    /// Returns the live session of a cookie `ms_session`, which is not renewed. Does not access the
    /// disk.
    pub fn live_session(&self, cookie: &str, now: Timestamp) -> Option<Arc<Session>> {
        self.sessions.find(cookie).filter(|session| session.is_live(now))
    }

    /// Makes the renewal durable ([`SessionCheck::LiveOncePersisted`]). Blocks (commit).
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn persist_session(&self, session: &Session) -> Result<(), StoreError> {
        let (key, last) = (session.key(), session.last_seen());
        self.change(move |txn| txn.put_side(&key, &SeenRow(last)).map_err(StoreError::from))?;
        session.stored_ms.fetch_max(last.as_ms(), Ordering::AcqRel);
        Ok(())
    }

    /// Returns a user's live sessions, most recently used first.
    pub fn sessions(&self, user: UserId, now: Timestamp) -> Vec<Arc<Session>> {
        let own: Vec<_> = self
            .sessions
            .read()
            .by_user
            .get(&user)
            .into_iter()
            .flat_map(|own| own.values().cloned())
            .collect();
        let mut live: Vec<_> = own.into_iter().filter(|session| now < session.expires_at()).collect();
        live.sort_by_key(|session| std::cmp::Reverse(session.last_seen()));
        live
    }

    /// Adds a durable session to memory. It has already ended if all sessions of the user were
    /// ended meanwhile.
    pub(in crate::identity) fn admit_session(
        &self,
        user: UserId,
        hash: SecretHash,
        row: SessionRow,
        ended: &[SessionKey],
    ) -> Arc<Session> {
        let at = row.created_at;
        let absolute = self.options.session_absolute;
        let session = Arc::new(Session::from_row(user, hash, row, at, at, absolute));
        let mut index = self.sessions.write();
        for (_, hash) in ended {
            if let Some(old) = index.by_hash.get(hash).cloned() {
                index.remove(&old);
            }
        }
        let epoch = index.epochs.get(&user).copied().unwrap_or_default();
        if session.epoch.load(Ordering::Acquire) >= epoch {
            index.insert(Arc::clone(&session));
        } else {
            session.live.store(false, Ordering::Release);
            index.dead.push(session.key());
        }
        session
    }

    /// Returns the sessions that a new one of `user` ends: that of the request's own cookie and, at
    /// the limit, the least recently used one. The id is that of the latter.
    pub(super) fn displaced(
        &self,
        user: UserId,
        replaces: Option<&str>,
    ) -> (Vec<SessionKey>, Option<SessionId>) {
        let replaced = replaces.and_then(|cookie| self.sessions.find(cookie)).map(|session| session.key());
        let index = self.sessions.read();
        let full = index.by_user.get(&user).filter(|own| own.len() >= SESSIONS_MAX);
        let least = full.and_then(|own| own.values().min_by_key(|session| session.last_seen()));
        // The replaced session already makes room.
        let replaces_own = replaced.is_some_and(|(owner, _)| owner == user);
        let evicted = least.filter(|_| !replaces_own);
        let ends = replaced.into_iter().chain(evicted.map(|session| session.key())).collect();
        (ends, evicted.map(|session| session.id))
    }
}
