//! The audit log: who did what, append-only, bounded in age and number (docs/specification.md C3).
//!
//! What changes something is noted in the very change. What only failed (a wrong password, a refused token) is noted in
//! memory ([`super::audit_queue`]) and written by the next tick, so that a guesser cannot make the disk work. Rows of
//! changes, of accesses and of failures are counted apart, so that a flood of one class never removes rows of another
//! ([`Class`]). No secret, code or token ever stands in a row.
//!
//! From where something was asked for ([`Origin`]) is no argument of every change: the edge says it once for all that a
//! request does ([`with_origin`]), and whatever is noted on that thread meanwhile carries it.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::kv::{Record, Txn, decode_body};
use crate::model::{OrgId, Timestamp};

use super::org::OrgRow;
use super::store::read;
use super::{EventId, Identity, KeyId, StoreError, UserId};

/// Rows of one organisation and class.
pub(super) const ROWS_MAX: usize = 100_000;
/// Rows of one organisation that tell of failures.
pub(super) const FAILURE_ROWS_MAX: usize = 20_000;
/// Ninety days.
pub(super) const AGE_MAX_MS: i64 = 90 * 24 * 3_600 * 1_000;
/// The instance itself: logins belong to no organisation.
pub(super) const INSTANCE: OrgId = OrgId(0);
/// Longest target or detail, bytes; the rest is cut.
const TEXT_BYTES_MAX: usize = 256;

/// What an entry tells of, which decides how many rows of its kind an organisation keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    /// Something was changed that decides what somebody may do: [`ROWS_MAX`] rows.
    Change,
    /// A valid credential was used or given up, which may happen at any rate: [`ROWS_MAX`] rows.
    Access,
    /// Something was refused, which anyone on the network can cause: [`FAILURE_ROWS_MAX`] rows.
    Failure,
}

impl Class {
    const COUNT: usize = 3;

    fn of(action: &str) -> Class {
        match action {
            "login.fail" | "login.throttled" | "twofa.fail" | "token.rejected" | "audit.overflow" => {
                Class::Failure
            }
            // Also the end of a session by its own user: it changes nothing of what anyone may do.
            "login.ok" | "token.minted" | "session.revoked" => Class::Access,
            _ => Class::Change,
        }
    }

    fn rows_max(self) -> usize {
        match self {
            Class::Change | Class::Access => ROWS_MAX,
            Class::Failure => FAILURE_ROWS_MAX,
        }
    }
}

/// From where something was asked for. The default is this program itself: a task, the command line, the environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The peer's address, or what a trusted proxy says.
    pub ip: Option<IpAddr>,
    /// The id of the request.
    pub request_id: Option<Box<str>>,
}

thread_local! {
    static ORIGIN: RefCell<Origin> = RefCell::default();
}

/// Puts the origin before back, also after a panic.
struct Restore(Origin);

impl Drop for Restore {
    fn drop(&mut self) {
        ORIGIN.set(std::mem::take(&mut self.0));
    }
}

/// Runs `work`; what it notes comes from `origin`.
pub fn with_origin<T>(origin: &Origin, work: impl FnOnce() -> T) -> T {
    let _restore = Restore(ORIGIN.replace(origin.clone()));
    work()
}

/// What [`with_origin`] says on this thread.
pub(super) fn origin() -> Origin {
    ORIGIN.with_borrow(Clone::clone)
}

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
    /// The API key that did it, where no account did.
    key: Option<KeyId>,
    request_id: Option<String>,
}

/// As version 1 had it.
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

/// One entry, as read.
#[derive(Clone, Debug, PartialEq)]
pub struct AuditEntry {
    /// Its name.
    pub id: EventId,
    /// When.
    pub at: Timestamp,
    /// Who; `None` for machines, the command line, the environment, and those who are not known.
    pub actor: Option<UserId>,
    /// Which API key, where one did it.
    pub key: Option<KeyId>,
    /// What: `login.ok`, `key.created`, ... (docs/specification.md C3).
    pub action: String,
    /// To what: an id, a slug, an address.
    pub target: String,
    /// From where.
    pub ip: Option<IpAddr>,
    /// A word more: why it failed.
    pub detail: String,
    /// In which request.
    pub request_id: Option<String>,
}

/// Where a page of entries ended: the next one begins with what is older.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuditCursor {
    /// Of its last entry.
    pub at: Timestamp,
    /// As well.
    pub id: EventId,
}

/// Some entries, newest first.
#[derive(Clone, Debug, PartialEq)]
pub struct AuditPage {
    /// The entries.
    pub entries: Vec<AuditEntry>,
    /// Where the next page begins; `None` at the end.
    pub next: Option<AuditCursor>,
    /// Rows that were read for it.
    pub looked_at: usize,
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
            key: None,
            request_id: None,
        };
        Event { org: INSTANCE, row }
    }

    /// By an account; by the command line for `None`.
    pub(super) fn by_actor(actor: Option<UserId>, action: &'static str) -> Event {
        actor.map_or_else(|| Event::by_nobody(action), |actor| Event::by(actor, action))
    }

    /// By an API key, where no account did it.
    pub(super) fn by_key(mut self, key: KeyId) -> Event {
        self.row.key = Some(key);
        self
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

    pub(super) fn org(&self) -> OrgId {
        self.org
    }

    pub(super) fn action(&self) -> &str {
        &self.row.action
    }

    pub(super) fn actor(&self) -> Option<UserId> {
        self.row.actor
    }

    pub(super) fn key(&self) -> Option<KeyId> {
        self.row.key
    }

    pub(super) fn ip(&self) -> Option<IpAddr> {
        self.row.ip
    }

    pub(super) fn is_failure(&self) -> bool {
        Class::of(&self.row.action) == Class::Failure
    }

    pub(super) fn detail_text(&self) -> &str {
        &self.row.detail
    }

    /// The newest of `count` failures that have no entry of their own.
    pub(super) fn more(self, count: u64) -> Event {
        let detail = format!("{} and {count} more within a minute", self.row.detail);
        self.detail(detail.trim_start())
    }

    /// Where nothing more exact is known: from where this thread works.
    pub(super) fn with_origin_here(mut self) -> Event {
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

/// Notes an entry in the change that it is about. Its id is made of its content, counted up where two are alike.
pub(super) fn note(txn: &mut Txn<'_>, event: &Event, now: Timestamp) -> Result<(), StoreError> {
    let event = event.clone().with_origin_here();
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

/// Rows written or removed in one change.
const ROWS_A_CHANGE: usize = 50;
/// Rows that one tick removes at most, over all organisations.
pub(super) const SWEEP_ROWS: usize = 20_000;

/// The progress of a sweep over all organisations, which takes as many ticks as it needs.
#[derive(Debug, Default)]
pub(super) struct AuditSweep {
    is_due: bool,
    /// The organisation that was swept last; the next tick continues behind it.
    after: Option<OrgId>,
    /// Whether an organisation may have overdue rows left, so that another sweep follows at once.
    is_incomplete: bool,
}

impl AuditSweep {
    /// Begins a sweep, unless one is under way.
    pub(super) const fn begin(&mut self) {
        self.is_due = true;
    }
}

impl Identity {
    /// Writes the entries that wait; with `all` also the counts of minutes that are not over. Entries that cannot be
    /// written wait for the next call.
    pub(super) fn flush_audit(&self, now: Timestamp, all: bool) -> Result<(), StoreError> {
        let mut waiting = self.audit_queue().take(now, all);
        while !waiting.is_empty() {
            let after = waiting.split_off(waiting.len().min(ROWS_A_CHANGE));
            let some = std::mem::replace(&mut waiting, after);
            let again = some.clone();
            let written = self.change(move |txn| {
                for (at, event) in &some {
                    // What happened to one that is gone meanwhile would be left behind for good.
                    if event.org == INSTANCE || read::<OrgRow>(txn, &event.org)?.is_some() {
                        note(txn, event, *at)?;
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

    /// Continues a sweep that is under way: removes entries that are too old or too many, [`SWEEP_ROWS`] at most. The
    /// sweep ends when no organisation has one left, so the log is bounded however fast entries are added. After an
    /// error the next regular sweep starts over.
    pub(super) fn sweep_audit(&self, now: Timestamp) -> Result<(), StoreError> {
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

    /// The oldest entries that are too old or too many, `most` at most. Read a page at a time: a hundred thousand entries
    /// are tens of megabytes.
    fn overdue(
        &self,
        org: OrgId,
        oldest: Timestamp,
        most: usize,
    ) -> Result<Vec<(OrgId, Timestamp, EventId)>, StoreError> {
        let (mut kept, mut below, mut gone) = ([0_usize; Class::COUNT], None, VecDeque::new());
        loop {
            let rows = self.rows_back::<AuditRow>(&org, below.as_ref(), ROWS_AT_ONCE)?;
            let is_last = rows.len() < ROWS_AT_ONCE;
            for (key, row) in rows {
                below = Some(key);
                let class = Class::of(&row.action);
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
        Ok(self.audit_page(org, limit, None, None)?.entries)
    }

    /// A page of entries older than `below`, newest first; with `action` only those: `key.created`, or all that begin
    /// `key.` with `key.*`. Reads some [`ROWS_LOOKED_AT`] rows at most, so a page may be short or empty though there is a
    /// next one.
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
        let (mut entries, mut looked_at) = (Vec::new(), 0);
        for _ in 0..ROWS_LOOKED_AT / ROWS_AT_ONCE {
            let rows = self.rows_back::<AuditRow>(&org, below.as_ref(), ROWS_AT_ONCE)?;
            let is_last = rows.len() < ROWS_AT_ONCE;
            looked_at += rows.len();
            for (key, row) in rows {
                below = Some(key);
                let (_, at, id) = key;
                if action.is_none_or(|wanted| matches(wanted, &row.action)) {
                    entries.push(entry(id, at, row));
                }
                if entries.len() >= limit {
                    return Ok(AuditPage { entries, next: Some(AuditCursor { at, id }), looked_at });
                }
            }
            if is_last {
                return Ok(AuditPage { entries, next: None, looked_at });
            }
        }
        Ok(AuditPage { entries, next: below.map(|(_, at, id)| AuditCursor { at, id }), looked_at })
    }
}

/// Rows read at once, and for one page at most.
const ROWS_AT_ONCE: usize = 500;
const ROWS_LOOKED_AT: usize = 20_000;

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
