//! The audit log: who did what, append-only, bounded in age and number (API.md C3).
//!
//! What changes something is noted in the very change. What only failed (a wrong password, a refused token) is noted in
//! memory and written by the next tick, so that a guesser cannot make the disk work; a flood is cut to
//! [`QUEUE_MAX`] rows a tick and the number of what was left out. No secret, code or token ever stands in a row.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::kv::{Record, Txn};
use crate::model::{OrgId, Timestamp};

use super::store::read;
use super::{EventId, Identity, StoreError, UserId};

/// Failures kept between two ticks.
pub(super) const QUEUE_MAX: usize = 200;
/// Rows of one organisation.
pub(super) const ROWS_MAX: usize = 100_000;
/// Ninety days.
pub(super) const AGE_MAX_MS: i64 = 90 * 24 * 3_600 * 1_000;
/// The instance itself: logins belong to no organisation.
pub(super) const INSTANCE: OrgId = OrgId(0);
/// Longest target or detail, bytes; the rest is cut.
const TEXT_BYTES_MAX: usize = 256;

/// One entry, to be noted.
#[derive(Clone, Debug)]
pub(super) struct Event {
    org: OrgId,
    row: AuditRow,
}

/// One entry, as stored. Its time and id are in the key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct AuditRow {
    actor: Option<UserId>,
    action: String,
    target: String,
    ip: Option<IpAddr>,
    detail: String,
}

impl Record for AuditRow {
    const TABLE: u8 = 0x10;
    const KIND: u8 = 0x10;
    const VERSION: u8 = 1;
    type Key = (OrgId, Timestamp, EventId);
}

/// One entry, as read.
#[derive(Clone, Debug, PartialEq)]
pub struct AuditEntry {
    /// Its name.
    pub id: EventId,
    /// When.
    pub at: Timestamp,
    /// Who; `None` for the command line, the environment, and those who are not known.
    pub actor: Option<UserId>,
    /// What: `login.ok`, `key.created`, ... (API.md C3).
    pub action: String,
    /// To what: an id, a slug, an address.
    pub target: String,
    /// From where.
    pub ip: Option<IpAddr>,
    /// A word more: why it failed.
    pub detail: String,
}

impl Event {
    /// By an account.
    pub(super) fn by(actor: UserId, action: &'static str) -> Event {
        let mut event = Event::by_nobody(action);
        event.row.actor = Some(actor);
        event
    }

    /// By the command line, the environment, or someone not known.
    pub(super) fn by_nobody(action: &'static str) -> Event {
        let row = AuditRow {
            actor: None,
            action: action.into(),
            target: String::new(),
            ip: None,
            detail: String::new(),
        };
        Event { org: INSTANCE, row }
    }

    #[cfg(test)]
    pub(super) fn into_row(self) -> AuditRow {
        self.row
    }

    pub(super) fn of(mut self, org: OrgId) -> Event {
        self.org = org;
        self
    }

    pub(super) fn target(mut self, target: &str) -> Event {
        self.row.target = cut(target);
        self
    }

    pub(super) fn at_ip(mut self, ip: IpAddr) -> Event {
        self.row.ip = Some(ip);
        self
    }

    pub(super) fn detail(mut self, detail: &str) -> Event {
        self.row.detail = cut(detail);
        self
    }
}

fn cut(text: &str) -> String {
    let end = text.floor_char_boundary(TEXT_BYTES_MAX);
    text.get(..end).unwrap_or_default().to_owned()
}

/// Notes an entry in the change that it is about. Its id is made of its content, counted up where two are alike.
pub(super) fn note(txn: &mut Txn<'_>, event: &Event, now: Timestamp) -> Result<(), StoreError> {
    let content = format!("{event:?}");
    let mut alike = 0_u32;
    loop {
        let digest = Sha256::digest(format!("{content}{alike}").as_bytes());
        let id =
            digest.first_chunk().map_or(EventId::from_bytes([0; 10]), |bytes| EventId::from_bytes(*bytes));
        let key = (event.org, now, id);
        if read::<AuditRow>(txn, &key)?.is_none() {
            txn.put(&key, &event.row);
            return Ok(());
        }
        alike = alike.wrapping_add(1);
    }
}

/// Failures that wait for the next tick.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: Vec<(Timestamp, Event)>,
    left_out: u64,
}

impl Queue {
    /// Keeps an entry, or counts it where too many wait.
    pub(super) fn push(&mut self, event: Event, now: Timestamp) {
        if self.waiting.len() < QUEUE_MAX {
            self.waiting.push((now, event));
        } else {
            self.left_out = self.left_out.saturating_add(1);
        }
    }

    /// Takes all that wait, with one entry for what was left out.
    pub(super) fn take(&mut self, now: Timestamp) -> Vec<(Timestamp, Event)> {
        let mut taken = std::mem::take(&mut self.waiting);
        let left_out = std::mem::take(&mut self.left_out);
        if left_out > 0 {
            taken.push((
                now,
                Event::by_nobody("audit.overflow").detail(&format!("{left_out} failures not listed")),
            ));
        }
        taken
    }
}

/// Rows written or removed in one change.
const ROWS_A_CHANGE: usize = 50;
/// Changes of one sweep: 2,000 rows.
const SWEEP_CHANGES: usize = 40;

impl Identity {
    /// Writes the failures that wait.
    pub(super) fn flush_failures(&self, now: Timestamp) -> Result<(), StoreError> {
        let waiting = self.failures.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take(now);
        let mut waiting = waiting.into_iter();
        loop {
            let some: Vec<_> = waiting.by_ref().take(ROWS_A_CHANGE).collect();
            if some.is_empty() {
                return Ok(());
            }
            self.change(move |txn| some.iter().try_for_each(|(at, event)| note(txn, event, *at)))?;
        }
    }

    /// Removes entries that are too old or too many.
    pub(super) fn sweep_audit(&self, now: Timestamp) -> Result<(), StoreError> {
        let orgs = self.orgs()?.into_iter().map(|org| org.id);
        let oldest = now.plus_ms(-AGE_MAX_MS);
        for org in std::iter::once(INSTANCE).chain(orgs) {
            let keys: Vec<_> = self.rows::<AuditRow>(&org)?.into_iter().map(|(key, _)| key).collect();
            let too_many = keys.len().saturating_sub(ROWS_MAX);
            let gone = keys
                .iter()
                .enumerate()
                .filter(|(at, key)| *at < too_many || key.1 < oldest)
                .map(|(_, key)| *key);
            let gone: Vec<_> = gone.take(ROWS_A_CHANGE * SWEEP_CHANGES).collect();
            for some in gone.chunks(ROWS_A_CHANGE) {
                let some = some.to_vec();
                self.change(move |txn| {
                    some.iter().for_each(|key| txn.remove::<AuditRow>(key));
                    Ok::<_, StoreError>(())
                })?;
            }
        }
        Ok(())
    }

    /// Notes that somebody deletes samples of an organisation, and which. Blocks (commit).
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn note_deletion(
        &self,
        actor: UserId,
        org: OrgId,
        which: &str,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let event = Event::by(actor, "series.deleted").of(org).detail(which);
        self.change(move |txn| note(txn, &event, now))
    }

    /// The newest entries of an organisation, newest first; of the instance itself (logins) for `None`.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn audit(&self, org: Option<OrgId>, limit: usize) -> Result<Vec<AuditEntry>, StoreError> {
        let rows = self.rows::<AuditRow>(&org.unwrap_or(INSTANCE))?;
        Ok(rows.into_iter().rev().take(limit).map(|((_, at, id), row)| entry(id, at, row)).collect())
    }
}

fn entry(id: EventId, at: Timestamp, row: AuditRow) -> AuditEntry {
    AuditEntry {
        id,
        at,
        actor: row.actor,
        action: row.action,
        target: row.target,
        ip: row.ip,
        detail: row.detail,
    }
}
