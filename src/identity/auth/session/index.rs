//! All live sessions in memory, indexed by the hash of their token and by user.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering;
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::sync::IgnorePoison as _;

use crate::identity::tables::id::{SecretHash, SecretKind, SessionId, UserId};
use crate::identity::tables::session::SessionKey;

use super::Session;

/// All live sessions.
#[derive(Debug, Default)]
pub(in crate::identity) struct Sessions(RwLock<SessionIndex>);

#[derive(Debug, Default)]
pub(super) struct SessionIndex {
    pub(super) by_hash: HashMap<SecretHash, Arc<Session>>,
    pub(super) by_user: HashMap<UserId, BTreeMap<SessionId, Arc<Session>>>,
    /// The `sessions_epoch` of users; sessions with a lower number have ended.
    pub(super) epochs: HashMap<UserId, u32>,
    /// Sessions whose last use waits for the next flush.
    pub(super) lagging: Vec<Arc<Session>>,
    /// Keys of ended sessions that are still stored, to be swept.
    pub(super) dead: Vec<SessionKey>,
    /// The ended sessions whose end could not be stored. Their owner got an error, and may retry.
    pub(super) unstored: HashMap<SecretHash, Arc<Session>>,
}

impl SessionIndex {
    pub(super) fn insert(&mut self, session: Arc<Session>) {
        self.by_user.entry(session.user).or_default().insert(session.id, Arc::clone(&session));
        self.by_hash.insert(session.hash, session);
    }

    pub(super) fn remove(&mut self, session: &Session) {
        session.live.store(false, Ordering::Release);
        self.by_hash.remove(&session.hash);
        if let Some(own) = self.by_user.get_mut(&session.user) {
            own.remove(&session.id);
            if own.is_empty() {
                self.by_user.remove(&session.user);
            }
        }
    }

    /// Removes a session that ended before its row was removed, and was loaded again meanwhile.
    pub(super) fn end_again(&mut self, session: &Session) {
        if let Some(loaded) = self.by_hash.get(&session.hash).cloned() {
            self.remove(&loaded);
        }
    }

    /// Handles a failed write: the sweep removes the row unless its owner retries before.
    pub(super) fn not_stored(&mut self, session: &Arc<Session>) {
        self.end_again(session);
        if self.unstored.insert(session.hash, Arc::clone(session)).is_none() {
            self.dead.push(session.key());
        }
    }
}

impl Sessions {
    pub(super) fn read(&self) -> RwLockReadGuard<'_, SessionIndex> {
        self.0.read().ignore_poison()
    }

    pub(super) fn write(&self) -> RwLockWriteGuard<'_, SessionIndex> {
        self.0.write().ignore_poison()
    }

    pub(super) fn find(&self, cookie: &str) -> Option<Arc<Session>> {
        let hash = SecretKind::Session.hash_of(cookie)?;
        self.read().by_hash.get(&hash).cloned()
    }

    /// Returns a session that ended in memory while its row is still stored.
    pub(super) fn find_unstored(&self, cookie: &str) -> Option<Arc<Session>> {
        let hash = SecretKind::Session.hash_of(cookie)?;
        self.read().unstored.get(&hash).cloned()
    }
}
