//! Loading the stored sessions, writing their times of last use, and removing ended ones.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::model::Timestamp;

use crate::identity::Identity;
use crate::identity::tables::id::UserId;
use crate::identity::tables::session::{SeenRow, SessionKey, SessionRow};
use crate::identity::tables::store::StoreError;
use crate::identity::tables::user::UserRow;

use super::rows::end;
use super::{LAG_WAITED_MS, Session};

/// Maximum number of sessions that one change of the sweep removes; each has up to two rows, and a
/// change at most 64.
const SWEEP_ROWS: usize = 30;
/// Maximum number of changes of one sweep, to keep a tick short.
const SWEEP_CHANGES: usize = 8;

impl Identity {
    /// Loads the stored sessions. Sessions in memory stay the same objects while they are stored.
    /// After an unclean stop each gets the ten minutes that may not have been written.
    pub(in crate::identity) fn load_sessions(&self, unclean: bool, now: Timestamp) -> Result<(), StoreError> {
        let mut index = self.sessions.write();
        let epochs: HashMap<UserId, u32> =
            self.rows::<UserRow>(&())?.into_iter().map(|(id, row)| (id, row.sessions_epoch)).collect();
        let seen: HashMap<SessionKey, SeenRow> = self.rows::<SeenRow>(&())?.into_iter().collect();
        let rows = self.rows::<SessionRow>(&())?;
        let mut before = std::mem::take(&mut *index);
        // Sessions that ended here stay ended, although their rows are still stored.
        index.unstored = std::mem::take(&mut before.unstored);
        index.lagging = std::mem::take(&mut before.lagging);
        for ((user, hash), row) in rows {
            if index.unstored.contains_key(&hash) {
                index.dead.push((user, hash));
                continue;
            }
            if epochs.get(&user).is_none_or(|epoch| row.epoch < *epoch) {
                index.dead.push((user, hash));
                continue;
            }
            let stored = seen.get(&(user, hash)).map_or(row.created_at, |seen| seen.0);
            // A clock behind the stored time must not shorten the session.
            let last = if unclean { stored.plus_ms(LAG_WAITED_MS).min(now).max(stored) } else { stored };
            if let Some(known) = before.by_hash.remove(&hash) {
                known.epoch.store(row.epoch, Ordering::Release);
                known.proved(row.auth_time);
                known.last_ms.fetch_max(last.as_ms(), Ordering::AcqRel);
                known.stored_ms.fetch_max(stored.as_ms(), Ordering::AcqRel);
                index.insert(known);
                continue;
            }
            let absolute = self.options.session_absolute;
            index.insert(Arc::new(Session::from_row(user, hash, row, last, stored, absolute)));
        }
        index.epochs = epochs;
        before.by_hash.values().for_each(|session| session.live.store(false, Ordering::Release));
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
