//! Ending sessions: in memory at once, then durably.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::model::Timestamp;

use crate::identity::Identity;
use crate::identity::audit::{self, Event};
use crate::identity::tables::id::{SessionId, UserId};
use crate::identity::tables::session::SessionRow;
use crate::identity::tables::store::{StoreError, read};

use super::Session;
use super::rows::{end, end_all};

impl Identity {
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
            Ok(()) => {
                let mut index = self.sessions.write();
                index.end_again(session);
                index.unstored.remove(&session.hash);
            }
            Err(_) => self.sessions.write().not_stored(session),
        }
        removed
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
}
