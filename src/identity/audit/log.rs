//! Writing queued entries, and reading the log page by page.

use std::net::IpAddr;

use crate::model::{OrgId, Timestamp};

use crate::identity::Identity;
use crate::identity::tables::audit::{AuditRow, INSTANCE};
use crate::identity::tables::id::{EventId, KeyId, UserId};
use crate::identity::tables::org::OrgRow;
use crate::identity::tables::store::{StoreError, read};

use super::event::{AlertingActor, Event, record};
use super::{ROWS_A_CHANGE, ROWS_AT_ONCE};

/// Maximum number of rows read for one page.
const ROWS_READ_MAX: usize = 20_000;

/// An entry of the audit log.
#[derive(Clone, Debug, PartialEq)]
pub struct AuditEntry {
    /// Id of the entry.
    pub id: EventId,
    /// Time of the action.
    pub at: Timestamp,
    /// The account that acted; `None` for programs, the command line, the environment and unknown
    /// callers.
    pub actor: Option<UserId>,
    /// The API key that acted, if any.
    pub key: Option<KeyId>,
    /// The action: `login.ok`, `key.created`, ... (docs/specification.md C3).
    pub action: String,
    /// The object of the action: an id, a slug, or an address.
    pub target: String,
    /// Address of the client.
    pub ip: Option<IpAddr>,
    /// Additional detail, such as the reason of a failure.
    pub detail: String,
    /// Id of the request.
    pub request_id: Option<String>,
}

/// Position in the log after a page; the next page begins with the next older entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuditCursor {
    /// Time of the last entry.
    pub at: Timestamp,
    /// Id of the last entry.
    pub id: EventId,
}

/// A page of entries, newest first.
#[derive(Clone, Debug, PartialEq)]
pub struct AuditPage {
    /// The entries.
    pub entries: Vec<AuditEntry>,
    /// Start of the next page; `None` at the end.
    pub next: Option<AuditCursor>,
    /// Number of rows read for this page.
    pub rows_read: usize,
}

impl Identity {
    /// Writes the queued entries; with `all` also the counts of unfinished minutes. Entries that
    /// cannot be written stay queued for the next call.
    pub(in crate::identity) fn flush_audit(&self, now: Timestamp, all: bool) -> Result<(), StoreError> {
        let mut waiting = self.audit_queue().take(now, all);
        while !waiting.is_empty() {
            let after = waiting.split_off(waiting.len().min(ROWS_A_CHANGE));
            let some = std::mem::replace(&mut waiting, after);
            let again = some.clone();
            let written = self.change(move |txn| {
                for (at, event) in &some {
                    // An entry of a removed organisation would never be deleted.
                    if event.org() == INSTANCE || read::<OrgRow>(txn, &event.org())?.is_some() {
                        record(txn, event, *at)?;
                    }
                }
                Ok::<_, StoreError>(())
            });
            if let Err(error) = written {
                let mut queue = self.audit_queue();
                queue.put_back(again);
                queue.put_back(waiting);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Records the deletion of samples of an organisation; `which` describes them. Blocks (commit).
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
        self.change(move |txn| record(txn, &event, now))
    }

    /// Records that the past of recording rules is written, by the command line if `actor` is
    /// `None`. Blocks (commits).
    ///
    /// # Errors
    /// [`StoreError`]; then a part may be recorded.
    pub fn note_backfill(
        &self,
        actor: Option<AlertingActor>,
        org: OrgId,
        rules: &[&str],
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let rules: Vec<String> = rules.iter().map(|rule| (*rule).to_owned()).collect();
        self.change_each(&rules, move |txn, rule| {
            let action = "rules.backfilled";
            let event = actor.map_or_else(|| Event::unattributed(action), |actor| actor.event(action));
            record(txn, &event.of(org).target(rule), now)
        })
    }

    /// Records that demo data is written to an organisation. Blocks (commit).
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn note_demo_data(&self, actor: UserId, org: OrgId, now: Timestamp) -> Result<(), StoreError> {
        let event = Event::by(actor, "demo_data.loaded").of(org);
        self.change(move |txn| record(txn, &event, now))
    }

    /// Returns the newest entries of an organisation, newest first; with `None` those of the
    /// instance (logins).
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn audit(&self, org: Option<OrgId>, limit: usize) -> Result<Vec<AuditEntry>, StoreError> {
        Ok(self.audit_page(org, limit, None, None)?.entries)
    }

    /// Returns a page of entries older than `below`, newest first. `action` selects one action,
    /// such as `key.created`, or all with a prefix, such as `key.*`. Reads at most
    /// [`ROWS_READ_MAX`] rows, so a page may be short or empty although a next one exists.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn audit_page(
        &self,
        org: Option<OrgId>,
        limit: usize,
        below: Option<AuditCursor>,
        action: Option<&str>,
    ) -> Result<AuditPage, StoreError> {
        let org = org.unwrap_or(INSTANCE);
        let mut below = below.map(|cursor| (org, cursor.at, cursor.id));
        let (mut entries, mut rows_read) = (Vec::new(), 0);
        for _ in 0..ROWS_READ_MAX / ROWS_AT_ONCE {
            let rows = self.rows_back::<AuditRow>(&org, below.as_ref(), ROWS_AT_ONCE)?;
            let is_last = rows.len() < ROWS_AT_ONCE;
            rows_read += rows.len();
            for (key, row) in rows {
                below = Some(key);
                let (_, at, id) = key;
                if action.is_none_or(|wanted| matches(wanted, &row.action)) {
                    entries.push(entry(id, at, row));
                }
                if entries.len() >= limit {
                    return Ok(AuditPage { entries, next: Some(AuditCursor { at, id }), rows_read });
                }
            }
            if is_last {
                return Ok(AuditPage { entries, next: None, rows_read });
            }
        }
        Ok(AuditPage { entries, next: below.map(|(_, at, id)| AuditCursor { at, id }), rows_read })
    }
}

fn matches(wanted: &str, action: &str) -> bool {
    match wanted.strip_suffix('*') {
        Some(beginning) => action.starts_with(beginning),
        None => action == wanted,
    }
}

fn entry(id: EventId, at: Timestamp, row: AuditRow) -> AuditEntry {
    let AuditRow { actor, action, target, ip, detail, key, request_id } = row;
    AuditEntry { id, at, actor, key, action, target, ip, detail, request_id }
}
