//! The audit log: who did what. It is append-only and bounded in age and number of rows
//! (docs/specification.md C3).
//!
//! An entry about a change is written within that change. An entry about a failure (a wrong
//! password, a refused token) is queued in memory (`orgs::audit_queue`) and written by the next
//! tick, so that a guesser cannot load the disk. Rows of changes, of accesses and of failures are
//! counted separately, so that a flood of one class never removes rows of another ([`EventClass`]).
//! No row ever contains a secret, code or token.
//!
//! The origin of a request ([`Origin`]) is not a parameter of every change. The edge sets it for
//! all work of a request ([`with_origin`]), and every entry recorded on that thread meanwhile
//! carries it.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::kv::{Record, Txn, decode_body};
use crate::model::{OrgId, Timestamp};

use crate::identity::Identity;
use crate::identity::tables::id::{EventId, KeyId, UserId};
use crate::identity::tables::org::OrgRow;
use crate::identity::tables::store::{StoreError, read};

/// Maximum number of rows of one organisation and class.
pub(in crate::identity) const ROWS_MAX: usize = 100_000;
/// Maximum number of rows about failures of one organisation.
pub(in crate::identity) const FAILURE_ROWS_MAX: usize = 20_000;
/// Maximum age of a row: 90 days.
pub(in crate::identity) const AGE_MAX_MS: i64 = 90 * 24 * 3_600 * 1_000;
/// The instance itself; logins belong to no organisation.
pub(in crate::identity) const INSTANCE: OrgId = OrgId(0);
/// Maximum length of a target or detail in bytes; longer texts are truncated.
const TEXT_BYTES_MAX: usize = 256;

/// The class of an entry, which determines how many rows of it an organisation keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EventClass {
    /// A change of what an account or key may do: [`ROWS_MAX`] rows.
    Change,
    /// The use or the end of a valid credential, which may happen at any rate: [`ROWS_MAX`] rows.
    Access,
    /// A refusal, which anyone on the network can cause: [`FAILURE_ROWS_MAX`] rows.
    Failure,
}

impl EventClass {
    const COUNT: usize = 3;

    fn of(action: &str) -> EventClass {
        match action {
            "login.fail" | "login.throttled" | "twofa.fail" | "token.rejected" | "audit.overflow" => {
                EventClass::Failure
            }
            // Includes the end of a session by its own user, which changes no permissions.
            "login.ok" | "token.minted" | "session.revoked" => EventClass::Access,
            _ => EventClass::Change,
        }
    }

    fn rows_max(self) -> usize {
        match self {
            EventClass::Change | EventClass::Access => ROWS_MAX,
            EventClass::Failure => FAILURE_ROWS_MAX,
        }
    }
}

/// The origin of an action. The default is this program itself: a task, the command line, the
/// environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// Address of the peer, or the one that a trusted proxy reports.
    pub ip: Option<IpAddr>,
    /// Id of the request.
    pub request_id: Option<Box<str>>,
}

thread_local! {
    static ORIGIN: RefCell<Origin> = RefCell::default();
}

/// Guard that restores the previous origin on drop, also after a panic.
struct RestoreOrigin(Origin);

impl Drop for RestoreOrigin {
    fn drop(&mut self) {
        ORIGIN.set(std::mem::take(&mut self.0));
    }
}

/// Runs `work`; entries that it records on this thread carry `origin`.
pub fn with_origin<T>(origin: &Origin, work: impl FnOnce() -> T) -> T {
    let _restore = RestoreOrigin(ORIGIN.replace(origin.clone()));
    work()
}

/// Returns the origin set by [`with_origin`] on this thread.
pub(in crate::identity) fn origin() -> Origin {
    ORIGIN.with_borrow(Clone::clone)
}

/// An entry to record.
#[derive(Clone, Debug)]
pub(in crate::identity) struct Event {
    org: OrgId,
    row: AuditRow,
}

/// A stored entry. Its time and id are in the key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::identity) struct AuditRow {
    actor: Option<UserId>,
    action: String,
    target: String,
    ip: Option<IpAddr>,
    detail: String,
    /// The API key that acted, if no account did.
    key: Option<KeyId>,
    request_id: Option<String>,
}

/// Version 1 of [`AuditRow`].
#[derive(Deserialize)]
struct AuditRowV1 {
    actor: Option<UserId>,
    action: String,
    target: String,
    ip: Option<IpAddr>,
    detail: String,
}

impl Record for AuditRow {
    const TABLE: u8 = 0x10;
    const KIND: u8 = 0x10;
    const VERSION: u8 = 2;
    type Key = (OrgId, Timestamp, EventId);

    fn from_older(version: u8, body: &[u8]) -> Result<AuditRow, String> {
        if version != 1 {
            return Err(format!("version {version} is none"));
        }
        let AuditRowV1 { actor, action, target, ip, detail } = decode_body(body)?;
        Ok(AuditRow { actor, action, target, ip, detail, key: None, request_id: None })
    }
}

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

impl Event {
    /// Creates an entry about an action of an account.
    pub(in crate::identity) fn by(actor: UserId, action: &'static str) -> Event {
        let mut event = Event::unattributed(action);
        event.row.actor = Some(actor);
        event
    }

    /// Creates an entry about an action of the command line, the environment or an unknown caller.
    pub(in crate::identity) fn unattributed(action: &'static str) -> Event {
        let row = AuditRow {
            actor: None,
            action: action.into(),
            target: String::new(),
            ip: None,
            detail: String::new(),
            key: None,
            request_id: None,
        };
        Event { org: INSTANCE, row }
    }

    /// Creates an entry about an action of an account, or of the command line if `actor` is `None`.
    pub(in crate::identity) fn by_actor(actor: Option<UserId>, action: &'static str) -> Event {
        actor.map_or_else(|| Event::unattributed(action), |actor| Event::by(actor, action))
    }

    /// Sets the API key that acted.
    pub(in crate::identity) fn by_key(mut self, key: KeyId) -> Event {
        self.row.key = Some(key);
        self
    }

    #[cfg(test)]
    pub(in crate::identity) fn into_row(self) -> AuditRow {
        self.row
    }

    pub(in crate::identity) fn of(mut self, org: OrgId) -> Event {
        self.org = org;
        self
    }

    pub(in crate::identity) fn target(mut self, target: &str) -> Event {
        self.row.target = cut(target);
        self
    }

    pub(in crate::identity) fn at_ip(mut self, ip: IpAddr) -> Event {
        self.row.ip = Some(ip);
        self
    }

    pub(in crate::identity) fn detail(mut self, detail: &str) -> Event {
        self.row.detail = cut(detail);
        self
    }

    pub(in crate::identity) fn org(&self) -> OrgId {
        self.org
    }

    pub(in crate::identity) fn action(&self) -> &str {
        &self.row.action
    }

    pub(in crate::identity) fn actor(&self) -> Option<UserId> {
        self.row.actor
    }

    pub(in crate::identity) fn key(&self) -> Option<KeyId> {
        self.row.key
    }

    pub(in crate::identity) fn ip(&self) -> Option<IpAddr> {
        self.row.ip
    }

    pub(in crate::identity) fn is_failure(&self) -> bool {
        EventClass::of(&self.row.action) == EventClass::Failure
    }

    pub(in crate::identity) fn detail_text(&self) -> &str {
        &self.row.detail
    }

    /// Turns the newest of `count` aggregated failures into their common entry.
    pub(in crate::identity) fn more(self, count: u64) -> Event {
        let detail = format!("{} and {count} more within a minute", self.row.detail);
        self.detail(detail.trim_start())
    }

    /// Fills a missing address and request id from the origin of this thread.
    pub(in crate::identity) fn with_thread_origin(mut self) -> Event {
        let here = origin();
        self.row.ip = self.row.ip.or(here.ip);
        if self.row.request_id.is_none() {
            self.row.request_id = here.request_id.as_deref().map(cut);
        }
        self
    }
}

fn cut(text: &str) -> String {
    let end = text.floor_char_boundary(TEXT_BYTES_MAX);
    text.get(..end).unwrap_or_default().to_owned()
}

/// Records an entry within the change that it describes. Its id is a hash of its content; a counter
/// makes the ids of equal entries distinct.
pub(in crate::identity) fn record(
    txn: &mut Txn<'_>,
    event: &Event,
    now: Timestamp,
) -> Result<(), StoreError> {
    let event = event.clone().with_thread_origin();
    let content = format!("{event:?}");
    let mut duplicates = 0_u32;
    loop {
        let digest = Sha256::digest(format!("{content}{duplicates}").as_bytes());
        let id =
            digest.first_chunk().map_or(EventId::from_bytes([0; 10]), |bytes| EventId::from_bytes(*bytes));
        let key = (event.org, now, id);
        if read::<AuditRow>(txn, &key)?.is_none() {
            txn.put(&key, &event.row);
            return Ok(());
        }
        duplicates = duplicates.wrapping_add(1);
    }
}

/// Maximum number of rows written or removed in one change.
const ROWS_A_CHANGE: usize = 50;
/// Maximum number of rows that one tick removes, over all organisations.
pub(in crate::identity) const SWEEP_ROWS: usize = 20_000;

/// The progress of a sweep over all organisations, which may take several ticks.
#[derive(Debug, Default)]
pub(in crate::identity) struct AuditSweep {
    is_due: bool,
    /// The organisation that was swept last; the next tick continues after it.
    after: Option<OrgId>,
    /// Whether an organisation may have overdue rows left, so that another sweep follows at once.
    is_incomplete: bool,
}

impl AuditSweep {
    /// Starts a sweep unless one is in progress.
    pub(in crate::identity) const fn begin(&mut self) {
        self.is_due = true;
    }
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
                    if event.org == INSTANCE || read::<OrgRow>(txn, &event.org)?.is_some() {
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

    /// Continues a sweep in progress: removes at most [`SWEEP_ROWS`] entries that are too old or
    /// too many. The sweep ends when no organisation has such an entry left, so the log is bounded
    /// at any rate of new entries. After an error the next regular sweep starts over.
    pub(in crate::identity) fn sweep_audit(&self, now: Timestamp) -> Result<(), StoreError> {
        let mut sweep = std::mem::take(&mut *self.audit_sweep());
        if !sweep.is_due {
            return Ok(());
        }
        let all = std::iter::once(INSTANCE).chain(self.orgs()?.into_iter().map(|org| org.id));
        let mut orgs: Vec<OrgId> = all.filter(|org| sweep.after.is_none_or(|after| *org > after)).collect();
        orgs.sort_unstable();
        let oldest = now.plus_ms(-AGE_MAX_MS);
        let mut left = SWEEP_ROWS;
        for org in orgs {
            let overdue = self.overdue(org, oldest, left)?;
            sweep.is_incomplete |= overdue.len() == left;
            left -= overdue.len();
            for some in overdue.chunks(ROWS_A_CHANGE) {
                let some = some.to_vec();
                self.change(move |txn| {
                    some.iter().for_each(|key| txn.remove::<AuditRow>(key));
                    Ok::<_, StoreError>(())
                })?;
            }
            sweep.after = Some(org);
            if left == 0 {
                *self.audit_sweep() = sweep;
                return Ok(());
            }
        }
        self.audit_sweep().is_due = sweep.is_incomplete;
        Ok(())
    }

    /// Returns the oldest entries that are too old or too many, at most `most`. Reads a page at a
    /// time, because a hundred thousand entries are tens of megabytes.
    fn overdue(
        &self,
        org: OrgId,
        oldest: Timestamp,
        most: usize,
    ) -> Result<Vec<(OrgId, Timestamp, EventId)>, StoreError> {
        let (mut kept, mut below, mut gone) = ([0_usize; EventClass::COUNT], None, VecDeque::new());
        loop {
            let rows = self.rows_back::<AuditRow>(&org, below.as_ref(), ROWS_AT_ONCE)?;
            let is_last = rows.len() < ROWS_AT_ONCE;
            for (key, row) in rows {
                below = Some(key);
                let class = EventClass::of(&row.action);
                if let Some(kept) = kept.get_mut(class as usize)
                    && *kept < class.rows_max()
                    && key.1 >= oldest
                {
                    *kept += 1;
                    continue;
                }
                gone.push_back(key);
                if gone.len() > most {
                    gone.pop_front();
                }
            }
            if is_last {
                return Ok(gone.into());
            }
        }
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

/// Number of rows read at once.
const ROWS_AT_ONCE: usize = 500;
/// Maximum number of rows read for one page.
const ROWS_READ_MAX: usize = 20_000;

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
