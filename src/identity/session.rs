//! Sessions that slide without a write per request (docs/specification.md D1).
//!
//! A session is a row under (user, SHA-256 of its token), and all of them are in memory. When one was last seen is
//! class C: a row of its own, written by the flusher at most once a minute, and by the request itself, before its
//! answer, where the stored time lags by ten minutes or more. So no answered request is ever more than ten minutes
//! ahead of the disk, and after a crash ten minutes are added to what the disk says: nobody is logged out too early.
//!
//! The rows stand under their user so that they are found together; ending many at once is one row all the same: the
//! user's `sessions_epoch`.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::kv::{Record, SideRecord, Txn};
use crate::model::Timestamp;
use crate::sync::IgnorePoison as _;

use super::audit::{self, Event};
use super::store::read;
use super::user::UserRow;
use super::{Identity, SecretHash, SecretKind, SessionId, StoreError, UserId};

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum AuthMethod {
    /// Address and password.
    Password,
    /// A link from a mail, the console or the command line.
    MagicLink,
    /// The first account was just made.
    Setup,
    // Stored by their place in this list: new ones come last.
    /// Google.
    Google,
    /// GitHub.
    GitHub,
    /// The configured OpenID Connect issuer.
    Oidc,
    /// A mailed link that made the account.
    Signup,
    /// An invitation that made the account.
    Invite,
}

impl AuthMethod {
    /// As the API writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            AuthMethod::Password => "password",
            AuthMethod::MagicLink => "magic_link",
            AuthMethod::Setup => "setup",
            AuthMethod::Google => "google",
            AuthMethod::GitHub => "github",
            AuthMethod::Oidc => "oidc",
            AuthMethod::Signup => "signup",
            AuthMethod::Invite => "invite",
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
    /// How.
    pub auth_method: AuthMethod,
    /// A second factor was given.
    pub second_factor: bool,
    /// From where it was made.
    pub client: Client,
    hash: SecretHash,
    /// However busy it is (`PROMLET_SESSION_ABSOLUTE_DAYS`).
    ends_at: Option<Timestamp>,
    auth_ms: AtomicI64,
    epoch: AtomicU32,
    live: AtomicBool,
    last_ms: AtomicI64,
    /// What the store knows of `last_ms`.
    stored_ms: AtomicI64,
    /// Waits for the flusher.
    queued: AtomicBool,
}

impl Session {
    /// When a request last used it.
    pub fn last_seen(&self) -> Timestamp {
        Timestamp::from_ms(self.last_ms.load(Ordering::Acquire))
    }

    /// When it ends unless it is used before, and at the latest.
    pub fn expires_at(&self) -> Timestamp {
        let idle = self.last_seen().plus(SESSION_IDLE);
        self.ends_at.map_or(idle, |end| idle.min(end))
    }

    /// When its owner last proved who they are.
    pub fn auth_time(&self) -> Timestamp {
        Timestamp::from_ms(self.auth_ms.load(Ordering::Acquire))
    }

    /// Whether its owner proved who they are in the last 15 minutes (docs/specification.md C2, "fresh").
    pub fn is_fresh(&self, now: Timestamp) -> bool {
        now.ms_since(self.auth_time()) <= 15 * 60 * 1_000
    }

    pub(super) fn proved(&self, now: Timestamp) {
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

    pub(super) const fn key(&self) -> SessionKey {
        (self.user, self.hash)
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
    /// Ended, but the disk still has its row, because nothing could be stored: whoever is told that it has ended for
    /// good (a logout, an expiry) calls `Identity::end_session` (it blocks) first.
    Ended(Arc<Session>),
    /// Unknown or revoked.
    Unknown,
}

/// Below this lag nothing is written.
const LAG_QUEUED_MS: i64 = 60 * 1_000;
/// From this lag on the request waits for the write. Also what a crash may have taken, so it is given back after one.
const LAG_WAITED_MS: i64 = 10 * 60 * 1_000;
/// Sessions of one user; beyond it the least recently seen is ended, with an audit entry.
pub(super) const SESSIONS_MAX: usize = 10_000;
/// Longest `User-Agent` stored, bytes.
const USER_AGENT_BYTES_MAX: usize = 256;
/// Rows removed in one change by the sweep: each may take its side row along, and a change has at most 64.
const SWEEP_ROWS: usize = 30;
/// Changes of one sweep, so that a tick is short.
const SWEEP_CHANGES: usize = 8;

pub(super) type SessionKey = (UserId, SecretHash);

/// A session as stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct SessionRow {
    pub(super) id: SessionId,
    pub(super) created_at: Timestamp,
    pub(super) auth_time: Timestamp,
    pub(super) auth_method: AuthMethod,
    pub(super) second_factor: bool,
    /// Dead below its user's `sessions_epoch`.
    pub(super) epoch: u32,
    pub(super) ip: IpAddr,
    pub(super) user_agent: String,
}

impl Record for SessionRow {
    const TABLE: u8 = 0x05;
    const KIND: u8 = 0x05;
    const VERSION: u8 = 1;
    type Key = SessionKey;
}

/// When a session was last seen; none means when it was made.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct SeenRow(pub(super) Timestamp);

impl Record for SeenRow {
    const TABLE: u8 = 0x06;
    const KIND: u8 = 0x06;
    const VERSION: u8 = 1;
    type Key = SessionKey;
}

impl SideRecord for SeenRow {
    type Main = SessionRow;

    fn main_key(key: &SessionKey) -> SessionKey {
        *key
    }
}

/// What a new session is made of; drawn before the change, since chance stays outside it.
#[derive(Clone, Debug)]
pub(super) struct NewSession {
    pub(super) hash: SecretHash,
    pub(super) id: SessionId,
    pub(super) client: Client,
    /// Removed in the same change: the one it replaces, the one that makes room.
    pub(super) ends: Vec<SessionKey>,
    /// The one that makes room.
    pub(super) evicts: Option<SessionId>,
}

/// How its owner came in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Proof {
    pub(super) method: AuthMethod,
    pub(super) second_factor: bool,
}

/// Puts a session into a change. The only place that does.
pub(super) fn issue(
    txn: &mut Txn<'_>,
    user: UserId,
    row: &UserRow,
    new: &NewSession,
    proof: Proof,
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

/// Notes that a session made room for another one.
pub(super) fn note_evicted(
    txn: &mut Txn<'_>,
    user: UserId,
    new: &NewSession,
    now: Timestamp,
) -> Result<(), StoreError> {
    let Some(evicted) = new.evicts else { return Ok(()) };
    let event = Event::by(user, "session.revoked").target(&evicted.to_string());
    audit::note(txn, &event.detail(&format!("made room: {SESSIONS_MAX} sessions")), now)
}

/// Removes a session and what hangs on it.
pub(super) fn end(txn: &mut Txn<'_>, key: &SessionKey) {
    txn.remove::<SessionRow>(key);
    txn.remove::<SeenRow>(key);
}

/// All live sessions.
#[derive(Debug, Default)]
pub(super) struct Sessions(RwLock<Index>);

#[derive(Debug, Default)]
struct Index {
    by_hash: HashMap<SecretHash, Arc<Session>>,
    by_user: HashMap<UserId, BTreeMap<SessionId, Arc<Session>>>,
    /// Users whose sessions were ended since the start: below this number they are dead.
    epochs: HashMap<UserId, u32>,
    /// Wait for the flusher.
    lagging: Vec<Arc<Session>>,
    /// Dead rows that are still stored, to be swept.
    dead: Vec<SessionKey>,
    /// Of those, the ones whose owner was told that ending them could not be stored, and may try again.
    unstored: HashMap<SecretHash, Arc<Session>>,
}

impl Index {
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

    /// Nothing could be stored: the sweep removes the row, unless its owner comes again before.
    fn not_stored(&mut self, session: &Arc<Session>) {
        if self.unstored.insert(session.hash, Arc::clone(session)).is_none() {
            self.dead.push(session.key());
        }
    }
}

impl Sessions {
    fn read(&self) -> std::sync::RwLockReadGuard<'_, Index> {
        self.0.read().ignore_poison()
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, Index> {
        self.0.write().ignore_poison()
    }

    fn find(&self, cookie: &str) -> Option<Arc<Session>> {
        let hash = SecretKind::Session.hash_of(cookie)?;
        self.read().by_hash.get(&hash).cloned()
    }

    /// Ended, and the disk does not know it.
    fn find_unstored(&self, cookie: &str) -> Option<Arc<Session>> {
        let hash = SecretKind::Session.hash_of(cookie)?;
        self.read().unstored.get(&hash).cloned()
    }
}

impl Identity {
    /// What the value of a cookie `ms_session` is, and renews it. Touches memory only.
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

    /// Ends a session: logout, revocation, expiry. Dead in memory at once, durable when this returns. Blocks (commit).
    ///
    /// # Errors
    /// [`StoreError`]; it is dead in memory all the same.
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
            // Two requests with one cookie may both come to end it.
            if read::<SessionRow>(txn, &key)?.is_some() {
                end(txn, &key);
                audit::note(txn, &event, now)?;
            }
            Ok(())
        });
        match &removed {
            Ok(()) => drop(self.sessions.write().unstored.remove(&session.hash)),
            Err(_) => self.sessions.write().not_stored(session),
        }
        removed
    }

    /// A user's live sessions, most recently seen first.
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

    /// Ends one of a user's sessions by its id; `false` when that user has none such. Blocks (commit).
    ///
    /// # Errors
    /// [`StoreError`]; it is dead in memory all the same.
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

    /// Ends all of a user's sessions, except `keep`, and their pending logins; returns the number of sessions. One audit
    /// entry, whatever the number, and none for no session. Blocks (commit).
    ///
    /// # Errors
    /// [`StoreError`]; they are dead in memory all the same.
    pub fn revoke_sessions(
        &self,
        user: UserId,
        keep: Option<SessionId>,
        now: Timestamp,
    ) -> Result<usize, StoreError> {
        let (kept, ended) = self.kill_in_memory(user, keep);
        let kept_key = kept.as_ref().map(|session| session.key());
        let count = ended.len();
        let stored = self.change(move |txn| {
            let epoch = end_all(txn, user, kept_key)?;
            if count > 0 {
                let event = Event::by(user, "session.revoked").detail(&format!("{count} sessions"));
                audit::note(txn, &event, now)?;
            }
            Ok::<_, StoreError>(epoch)
        });
        match stored {
            Ok(epoch) => self.settle_epoch(user, epoch, kept.as_deref(), &ended),
            Err(error) => {
                let mut index = self.sessions.write();
                ended.iter().for_each(|session| index.not_stored(session));
                return Err(error);
            }
        }
        Ok(count)
    }

    /// Makes a user's sessions dead at once, before anything is durable.
    pub(super) fn kill_in_memory(
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

    /// After the change: what is older than `epoch` stays dead, also a login whose change came before it and which is
    /// only now about to be noted.
    pub(super) fn settle_epoch(
        &self,
        user: UserId,
        epoch: u32,
        kept: Option<&Session>,
        ended: &[Arc<Session>],
    ) {
        let mut index = self.sessions.write();
        // What could not be stored one by one is stored now.
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

    /// Notes a session that is durable now; dead at once where all of its user's were ended meanwhile.
    pub(super) fn admit_session(
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

    /// The sessions that a new one of `user` ends: the one of the request's own cookie, and at the limit the least
    /// recently seen, which is named.
    pub(super) fn displaced(
        &self,
        user: UserId,
        replaces: Option<&str>,
    ) -> (Vec<SessionKey>, Option<SessionId>) {
        let replaced = replaces.and_then(|cookie| self.sessions.find(cookie)).map(|session| session.key());
        let index = self.sessions.read();
        let full = index.by_user.get(&user).filter(|own| own.len() >= SESSIONS_MAX);
        let least = full.and_then(|own| own.values().min_by_key(|session| session.last_seen()));
        // The one that is replaced makes room already.
        let own_goes = replaced.is_some_and(|(owner, _)| owner == user);
        let evicted = least.filter(|_| !own_goes);
        let ends = replaced.into_iter().chain(evicted.map(|session| session.key())).collect();
        (ends, evicted.map(|session| session.id))
    }

    /// Loads what is stored. After an unclean stop each session gets the ten minutes that may not have been written.
    pub(super) fn load_sessions(&self, unclean: bool, now: Timestamp) -> Result<(), StoreError> {
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
            // A clock that stands before the stored time must not shorten the session either.
            let last = if unclean { stored.plus_ms(LAG_WAITED_MS).min(now).max(stored) } else { stored };
            let absolute = self.options.session_absolute;
            index.insert(Arc::new(Session::from_row(user, hash, row, last, stored, absolute)));
        }
        index.epochs = epochs;
        Ok(())
    }

    /// Writes the queued renewals.
    pub(super) fn flush_sessions(&self) -> Result<usize, StoreError> {
        let lagging = std::mem::take(&mut self.sessions.write().lagging);
        for session in &lagging {
            session.queued.store(false, Ordering::Release);
        }
        self.store_seen(&lagging)
    }

    /// Writes every renewal that lags at all: a clean stop.
    pub(super) fn flush_all_sessions(&self) -> Result<usize, StoreError> {
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

    /// Finds what expired, and removes some of the dead rows.
    pub(super) fn sweep_sessions(&self, find_expired: bool, now: Timestamp) -> Result<(), StoreError> {
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

/// Whether a session still stands, in a change: it was neither ended by itself nor with all of its user's, whose rows are
/// swept later.
pub(super) fn stands(txn: &Txn<'_>, key: SessionKey) -> Result<bool, StoreError> {
    let Some(session) = read::<SessionRow>(txn, &key)? else { return Ok(false) };
    Ok(read::<UserRow>(txn, &key.0)?.is_some_and(|owner| session.epoch >= owner.sessions_epoch))
}

/// Ends all sessions of a user in a change, except one; the new epoch.
pub(super) fn end_all(txn: &mut Txn<'_>, user: UserId, keep: Option<SessionKey>) -> Result<u32, StoreError> {
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
