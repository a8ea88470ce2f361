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

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use crate::kv::Txn;
use crate::model::Timestamp;
use crate::sync::IgnorePoison as _;

use crate::identity::Identity;
use crate::identity::audit::{self, Event};
use crate::identity::tables::id::{SecretHash, SecretKind, SessionId, UserId};
use crate::identity::tables::session::{AuthMethod, SeenRow, SessionKey, SessionRow};
use crate::identity::tables::store::{StoreError, read};
use crate::identity::tables::user::UserRow;

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
    /// Its public id.
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
/// Lag from which on the request waits for the write. A crash may lose as much, so it is added
/// after one.
const LAG_WAITED_MS: i64 = 10 * 60 * 1_000;
/// Maximum number of sessions of one user; beyond it the least recently used one is ended, with an
/// audit entry.
pub(in crate::identity) const SESSIONS_MAX: usize = 10_000;
/// Maximum length of a stored `User-Agent`, bytes.
const USER_AGENT_BYTES_MAX: usize = 256;
/// Maximum number of sessions that one change of the sweep removes; each has up to two rows, and a
/// change at most 64.
const SWEEP_ROWS: usize = 30;
/// Maximum number of changes of one sweep, to keep a tick short.
const SWEEP_CHANGES: usize = 8;

/// The values of a new session, drawn before the change because a change must be deterministic.
#[derive(Clone, Debug)]
pub(in crate::identity) struct NewSession {
    pub(in crate::identity) hash: SecretHash,
    pub(in crate::identity) id: SessionId,
    pub(in crate::identity) client: Client,
    /// Sessions to remove in the same change: the replaced and the evicted one.
    pub(in crate::identity) ends: Vec<SessionKey>,
    /// Id of the evicted session.
    pub(super) evicts: Option<SessionId>,
}

/// The authentication of a login.
#[derive(Clone, Copy, Debug)]
pub(in crate::identity) struct LoginProof {
    pub(in crate::identity) method: AuthMethod,
    pub(in crate::identity) second_factor: bool,
}

/// Stores a session within a change. It is the only function that does.
pub(in crate::identity) fn issue(
    txn: &mut Txn<'_>,
    user: UserId,
    row: &UserRow,
    new: &NewSession,
    proof: LoginProof,
    now: Timestamp,
) -> SessionRow {
    for key in &new.ends {
        end(txn, key);
    }
    let agent = &new.client.user_agent;
    let session = SessionRow {
        id: new.id,
        created_at: now,
        auth_time: now,
        auth_method: proof.method,
        second_factor: proof.second_factor,
        epoch: row.sessions_epoch,
        ip: new.client.ip,
        user_agent: agent
            .get(..agent.floor_char_boundary(USER_AGENT_BYTES_MAX))
            .unwrap_or_default()
            .to_owned(),
    };
    txn.put(&(user, new.hash), &session);
    session
}

/// Records that a session was evicted by another one.
pub(super) fn record_evicted(
    txn: &mut Txn<'_>,
    user: UserId,
    new: &NewSession,
    now: Timestamp,
) -> Result<(), StoreError> {
    let Some(evicted) = new.evicts else { return Ok(()) };
    let event = Event::by(user, "session.revoked").target(&evicted.to_string());
    audit::record(txn, &event.detail(&format!("made room: {SESSIONS_MAX} sessions")), now)
}

/// Removes a session and its time of last use.
pub(in crate::identity) fn end(txn: &mut Txn<'_>, key: &SessionKey) {
    txn.remove::<SessionRow>(key);
    txn.remove::<SeenRow>(key);
}

/// All live sessions.
#[derive(Debug, Default)]
pub(in crate::identity) struct Sessions(RwLock<SessionIndex>);

#[derive(Debug, Default)]
struct SessionIndex {
    by_hash: HashMap<SecretHash, Arc<Session>>,
    by_user: HashMap<UserId, BTreeMap<SessionId, Arc<Session>>>,
    /// The `sessions_epoch` of users; sessions with a lower number have ended.
    epochs: HashMap<UserId, u32>,
    /// Sessions whose last use waits for the next flush.
    lagging: Vec<Arc<Session>>,
    /// Keys of ended sessions that are still stored, to be swept.
    dead: Vec<SessionKey>,
    /// Those of them whose owner got an error because the end could not be stored, and may retry.
    unstored: HashMap<SecretHash, Arc<Session>>,
}

impl SessionIndex {
    fn insert(&mut self, session: Arc<Session>) {
        self.by_user.entry(session.user).or_default().insert(session.id, Arc::clone(&session));
        self.by_hash.insert(session.hash, session);
    }

    fn remove(&mut self, session: &Session) {
        session.live.store(false, Ordering::Release);
        self.by_hash.remove(&session.hash);
        if let Some(own) = self.by_user.get_mut(&session.user) {
            own.remove(&session.id);
            if own.is_empty() {
                self.by_user.remove(&session.user);
            }
        }
    }

    /// Handles a failed write: the sweep removes the row unless its owner retries before.
    fn not_stored(&mut self, session: &Arc<Session>) {
        if self.unstored.insert(session.hash, Arc::clone(session)).is_none() {
            self.dead.push(session.key());
        }
    }
}

impl Sessions {
    fn read(&self) -> std::sync::RwLockReadGuard<'_, SessionIndex> {
        self.0.read().ignore_poison()
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, SessionIndex> {
        self.0.write().ignore_poison()
    }

    fn find(&self, cookie: &str) -> Option<Arc<Session>> {
        let hash = SecretKind::Session.hash_of(cookie)?;
        self.read().by_hash.get(&hash).cloned()
    }

    /// Returns a session that ended in memory while its row is still stored.
    fn find_unstored(&self, cookie: &str) -> Option<Arc<Session>> {
        let hash = SecretKind::Session.hash_of(cookie)?;
        self.read().unstored.get(&hash).cloned()
    }
}

impl Identity {
    /// Looks up the value of a cookie `ms_session` and renews its session. Only touches memory.
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

    /// Ends a session: logout, revocation, expiry. It ends in memory at once and is durable when
    /// this returns. Blocks (commit).
    ///
    /// # Errors
    /// [`StoreError`]; the session has ended in memory all the same.
    pub fn end_session(&self, session: &Arc<Session>, now: Timestamp) -> Result<(), StoreError> {
        self.sessions.write().remove(session);
        let why = if now >= session.expires_at() { "expired" } else { "logout" };
        self.remove_session(session, why, now)
    }

    fn remove_session(
        &self,
        session: &Arc<Session>,
        why: &'static str,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let (key, event) = (
            session.key(),
            Event::by(session.user, "session.revoked").target(&session.id.to_string()).detail(why),
        );
        let removed = self.change(move |txn| {
            // Two requests with one cookie may both end it.
            if read::<SessionRow>(txn, &key)?.is_some() {
                end(txn, &key);
                audit::record(txn, &event, now)?;
            }
            Ok(())
        });
        match &removed {
            Ok(()) => drop(self.sessions.write().unstored.remove(&session.hash)),
            Err(_) => self.sessions.write().not_stored(session),
        }
        removed
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

    /// Ends one of a user's sessions by its id; returns `false` if the user has no such session.
    /// Blocks (commit).
    ///
    /// # Errors
    /// [`StoreError`]; the session has ended in memory all the same.
    pub fn revoke_session(
        &self,
        user: UserId,
        session: SessionId,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let found = {
            let index = self.sessions.read();
            let live = index.by_user.get(&user).and_then(|own| own.get(&session));
            let ended = || index.unstored.values().find(|ended| (ended.user, ended.id) == (user, session));
            live.or_else(ended).cloned()
        };
        let Some(found) = found else { return Ok(false) };
        self.sessions.write().remove(&found);
        self.remove_session(&found, "revoked", now).map(|()| true)
    }

    /// Ends all of a user's sessions except `keep`, and their pending logins. Returns the number of
    /// ended sessions. Records one audit entry for all of them, and none if there was no session.
    /// Blocks (commit).
    ///
    /// # Errors
    /// [`StoreError`]; the sessions have ended in memory all the same.
    pub fn revoke_sessions(
        &self,
        user: UserId,
        keep: Option<SessionId>,
        now: Timestamp,
    ) -> Result<usize, StoreError> {
        let (kept, ended) = self.end_in_memory(user, keep);
        let kept_key = kept.as_ref().map(|session| session.key());
        let count = ended.len();
        let stored = self.change(move |txn| {
            let epoch = end_all(txn, user, kept_key)?;
            if count > 0 {
                let event = Event::by(user, "session.revoked").detail(&format!("{count} sessions"));
                audit::record(txn, &event, now)?;
            }
            Ok::<_, StoreError>(epoch)
        });
        match stored {
            Ok(epoch) => self.apply_epoch(user, epoch, kept.as_deref(), &ended),
            Err(error) => {
                let mut index = self.sessions.write();
                ended.iter().for_each(|session| index.not_stored(session));
                return Err(error);
            }
        }
        Ok(count)
    }

    /// Ends a user's sessions in memory, before anything is durable. Returns the kept and the ended
    /// ones.
    pub(in crate::identity) fn end_in_memory(
        &self,
        user: UserId,
        keep: Option<SessionId>,
    ) -> (Option<Arc<Session>>, Vec<Arc<Session>>) {
        let mut index = self.sessions.write();
        let own: Vec<_> =
            index.by_user.get(&user).into_iter().flat_map(|own| own.values().cloned()).collect();
        let (kept, ended): (Vec<_>, Vec<_>) = own.into_iter().partition(|session| Some(session.id) == keep);
        for session in &ended {
            index.remove(session);
        }
        (kept.into_iter().next(), ended)
    }

    /// Applies a committed epoch to memory: older sessions stay ended, including those of a login
    /// that was committed before and is only now admitted.
    pub(in crate::identity) fn apply_epoch(
        &self,
        user: UserId,
        epoch: u32,
        kept: Option<&Session>,
        ended: &[Arc<Session>],
    ) {
        let mut index = self.sessions.write();
        // The epoch also ends sessions whose own removal could not be stored.
        index
            .unstored
            .retain(|_, session| session.user != user || session.epoch.load(Ordering::Acquire) >= epoch);
        let known = index.epochs.entry(user).or_default();
        *known = epoch.max(*known);
        if let Some(kept) = kept {
            kept.epoch.fetch_max(epoch, Ordering::AcqRel);
        }
        index.dead.extend(ended.iter().map(|session| session.key()));
        let own = index.by_user.get(&user).into_iter().flat_map(|own| own.values().cloned());
        let old: Vec<_> = own.filter(|session| session.epoch.load(Ordering::Acquire) < epoch).collect();
        for session in old {
            index.remove(&session);
            index.dead.push(session.key());
        }
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

    /// Loads the stored sessions. After an unclean stop each gets the ten minutes that may not have
    /// been written.
    pub(in crate::identity) fn load_sessions(&self, unclean: bool, now: Timestamp) -> Result<(), StoreError> {
        let epochs: HashMap<UserId, u32> =
            self.rows::<UserRow>(&())?.into_iter().map(|(id, row)| (id, row.sessions_epoch)).collect();
        let seen: HashMap<SessionKey, SeenRow> = self.rows::<SeenRow>(&())?.into_iter().collect();
        let rows = self.rows::<SessionRow>(&())?;
        let mut index = self.sessions.write();
        for ((user, hash), row) in rows {
            if epochs.get(&user).is_none_or(|epoch| row.epoch < *epoch) {
                index.dead.push((user, hash));
                continue;
            }
            let stored = seen.get(&(user, hash)).map_or(row.created_at, |seen| seen.0);
            // A clock behind the stored time must not shorten the session.
            let last = if unclean { stored.plus_ms(LAG_WAITED_MS).min(now).max(stored) } else { stored };
            let absolute = self.options.session_absolute;
            index.insert(Arc::new(Session::from_row(user, hash, row, last, stored, absolute)));
        }
        index.epochs = epochs;
        Ok(())
    }

    /// Writes the queued renewals. Returns their number.
    pub(in crate::identity) fn flush_sessions(&self) -> Result<usize, StoreError> {
        let lagging = std::mem::take(&mut self.sessions.write().lagging);
        for session in &lagging {
            session.queued.store(false, Ordering::Release);
        }
        self.store_seen(&lagging)
    }

    /// Writes every renewal that is not stored yet, at a clean stop. Returns their number.
    pub(in crate::identity) fn flush_all_sessions(&self) -> Result<usize, StoreError> {
        let all: Vec<_> = self.sessions.read().by_hash.values().cloned().collect();
        let lags = |s: &Arc<Session>| s.last_ms.load(Ordering::Acquire) > s.stored_ms.load(Ordering::Acquire);
        let lagging: Vec<_> = all.into_iter().filter(lags).collect();
        self.store_seen(&lagging)
    }

    fn store_seen(&self, lagging: &[Arc<Session>]) -> Result<usize, StoreError> {
        let times: Vec<_> =
            lagging.iter().map(|session| (session.key(), SeenRow(session.last_seen()))).collect();
        self.put_side(times.clone())?;
        for (session, (_, SeenRow(at))) in lagging.iter().zip(times) {
            session.stored_ms.fetch_max(at.as_ms(), Ordering::AcqRel);
        }
        Ok(lagging.len())
    }

    /// Ends expired sessions if `find_expired`, and removes some rows of ended ones.
    pub(in crate::identity) fn sweep_sessions(
        &self,
        find_expired: bool,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        if find_expired {
            let mut index = self.sessions.write();
            let expired: Vec<_> =
                index.by_hash.values().filter(|session| now >= session.expires_at()).cloned().collect();
            for session in expired {
                index.remove(&session);
                index.dead.push(session.key());
            }
        }
        for _ in 0..SWEEP_CHANGES {
            let some: Vec<SessionKey> = {
                let mut index = self.sessions.write();
                let keep = index.dead.len().saturating_sub(SWEEP_ROWS);
                index.dead.split_off(keep)
            };
            if some.is_empty() {
                return Ok(());
            }
            let again = some.clone();
            let swept = self.change(move |txn| {
                for key in &some {
                    end(txn, key);
                }
                Ok::<_, StoreError>(())
            });
            let mut index = self.sessions.write();
            if let Err(error) = swept {
                index.dead.extend(again);
                return Err(error);
            }
            for (_, hash) in again {
                index.unstored.remove(&hash);
            }
        }
        Ok(())
    }
}

/// Returns within a change whether a session is valid: it was ended neither by itself nor with all
/// sessions of its user, whose rows are swept later.
pub(in crate::identity) fn is_live(txn: &Txn<'_>, key: SessionKey) -> Result<bool, StoreError> {
    let Some(session) = read::<SessionRow>(txn, &key)? else { return Ok(false) };
    Ok(read::<UserRow>(txn, &key.0)?.is_some_and(|owner| session.epoch >= owner.sessions_epoch))
}

/// Ends all sessions of a user except `keep` within a change. Returns the new epoch.
pub(in crate::identity) fn end_all(
    txn: &mut Txn<'_>,
    user: UserId,
    keep: Option<SessionKey>,
) -> Result<u32, StoreError> {
    let mut row = read::<UserRow>(txn, &user)?.ok_or(StoreError::Inconsistent("sessions of no account"))?;
    row.sessions_epoch = row.sessions_epoch.saturating_add(1);
    txn.put(&user, &row);
    if let Some(key) = keep
        && let Some(kept) = read::<SessionRow>(txn, &key)?
    {
        txn.put(&key, &SessionRow { epoch: row.sessions_epoch, ..kept });
    }
    Ok(row.sessions_epoch)
}
