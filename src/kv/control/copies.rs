//! Copies of account changes for a follower, and the role of this store (docs/standby.md).
//!
//! Table 0x2a, no key, bincode in the order of the fields of [`StandbyRow`]. The row belongs to
//! each store and is never copied. The tables 0x01-0x1f and 0x30-0x3f are copied. Each copied
//! change is one change here, together with the new position in the role row.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, MutexGuard};

use serde::{Deserialize, Serialize};

use super::Control;
use super::committer::{
    ChangeReply, CommitError, CommitFailure, CommitGroup, Committer, CommitterRequest, finish,
};
use super::txn::{CHANGE_BYTES_MAX, CHANGE_ROWS_MAX, Txn};
use crate::kv::database::{DatabaseError, ScanControl};
use crate::kv::journal::{self, JournalError};
use crate::kv::record::Record;
use crate::kv::rows::{self, KeyAndValue, RowChanges};
use crate::kv::{frame, with_sources};
use crate::model::{GateAnswer, GateMode, StandbyRefusal, WriteGate};
use crate::sync::IgnorePoison as _;

/// Maximum number of recent changes in memory; older ones come from the journal.
const RECENT_MAX: usize = 4_096;
/// Maximum size of those changes in bytes.
const RECENT_BYTES_MAX: usize = 4 << 20;
/// Maximum size in bytes of the changes that one call returns.
const ANSWER_BYTES_MAX: usize = 8 << 20;
/// Number of calls of [`Control::expire_waiting`] after which a change without confirmation fails.
const WAIT_TICKS: u8 = 10;

/// The role of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum StandbyRole {
    /// The store accepts changes.
    #[default]
    Primary,
    /// The store copies a primary.
    Follower,
    /// Another store was promoted in its place.
    Fenced,
}

/// The role row: the state of standby that a store keeps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StandbyRow {
    /// The role.
    pub role: StandbyRole,
    /// The epoch, which grows with each promotion. The epoch of the promoted store, if this one is
    /// fenced.
    pub epoch: u64,
    /// In a follower, the last copied account change, by the number of the primary.
    pub accounts: u64,
    /// In a follower, the check of that change ([`CopiedChange::check`]); 0 if it is not known.
    pub accounts_check: u32,
    /// In a follower, whether only some rows of a full copy of the accounts are stored.
    pub incomplete: bool,
    /// In a primary, the last log record that the follower has confirmed. The log is kept from
    /// there on; 0 keeps nothing.
    pub hold: u64,
    /// In a follower, whether it has caught up with its primary since its base.
    pub caught_up: bool,
    /// The random id of the last stream, the same in primary and follower. It changes with each
    /// stream, so that another follower, or a primary from an older backup, is noticed.
    pub link: u64,
    /// In a primary, the id of the previous stream, until the first acknowledgement in the last
    /// stream proves that the follower has stored the new id.
    pub link_before: u64,
}

impl Default for StandbyRow {
    fn default() -> StandbyRow {
        StandbyRow {
            role: StandbyRole::Primary,
            epoch: 1,
            accounts: 0,
            accounts_check: 0,
            incomplete: false,
            hold: 0,
            caught_up: false,
            link: 0,
            link_before: 0,
        }
    }
}

impl Record for StandbyRow {
    const TABLE: u8 = 0x2a;
    const KIND: u8 = 0x2a;
    const VERSION: u8 = 1;
    type Key = ();
}

/// An account change of the primary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopiedChange {
    /// The number in the primary.
    pub seq: u64,
    /// The rows in the layout of the journal, without those of other tables.
    pub rows: Arc<[u8]>,
}

impl CopiedChange {
    /// Returns the CRC32C of its rows.
    pub fn check(&self) -> u32 {
        crc32c::crc32c(&self.rows)
    }
}

/// Returns [`CopiedChange::check`] of a change without account rows.
pub fn no_rows_check() -> u32 {
    crc32c::crc32c(&journal::encode_rows(&RowChanges::new()))
}

/// The account changes after a position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KnownChanges {
    /// The changes in order; there may be more after the last one.
    Changes(Vec<CopiedChange>),
    /// All rows, because the journal no longer has the changes after the position.
    Rows {
        /// The number of the last copied change.
        seq: u64,
        /// [`CopiedChange::check`] of that change; 0 if it is not known.
        check: u32,
        /// The rows in key order.
        rows: Vec<(Vec<u8>, Vec<u8>)>,
    },
    /// The position is after the last change.
    Beyond {
        /// The last change.
        last: u64,
    },
}

/// Errors of storing copied changes.
#[derive(Debug, thiserror::Error)]
pub enum AccountCopyError {
    /// The rows are damaged or belong to other tables. No row was stored.
    #[error("copied account rows are invalid: {0}")]
    Invalid(&'static str),
    /// The changes could not be made durable.
    #[error(transparent)]
    Failed(#[from] CommitFailure),
}

/// Returns whether the row with this key is copied.
pub(super) fn is_account_row(key: &[u8]) -> bool {
    matches!(key.first(), Some(0x01..=0x1f | 0x30..=0x3f))
}

/// The last account changes.
#[derive(Debug)]
pub(super) struct RecentChanges {
    /// Every account change after this number is in `changes`.
    floor: u64,
    /// The number of the last change of any table.
    last: u64,
    /// The number of the last account change since the start, or of the last change of any table
    /// before it: a change of an earlier process may still wait for its follower.
    last_account: u64,
    changes: VecDeque<CopiedChange>,
    bytes: usize,
}

impl RecentChanges {
    pub(super) fn after(seq: u64) -> RecentChanges {
        RecentChanges { floor: seq, last: seq, last_account: seq, changes: VecDeque::new(), bytes: 0 }
    }

    fn push(&mut self, change: CopiedChange) {
        self.bytes += change.rows.len();
        self.changes.push_back(change);
        while self.changes.len() > RECENT_MAX || self.bytes > RECENT_BYTES_MAX {
            let Some(oldest) = self.changes.pop_front() else { break };
            self.bytes -= oldest.rows.len();
            self.floor = oldest.seq;
        }
    }

    /// Returns [`CopiedChange::check`] of change `seq`; 0 if it is no longer in memory.
    fn check_of(&self, seq: u64) -> u32 {
        match self.changes.iter().rfind(|change| change.seq == seq) {
            Some(change) => change.check(),
            None if seq > self.floor => no_rows_check(),
            None => 0,
        }
    }

    /// Returns the changes after `seq`; `None` if some of them are no longer in memory.
    fn known_after(&self, seq: u64) -> Option<KnownChanges> {
        if seq > self.last {
            return Some(KnownChanges::Beyond { last: self.last });
        }
        let later = || self.changes.iter().filter(|change| change.seq > seq).cloned().collect();
        (seq >= self.floor).then(|| KnownChanges::Changes(later()))
    }
}

/// Durable changes that wait for the confirmation of the follower.
#[derive(Default)]
pub(super) struct WaitingChanges(VecDeque<WaitingChange>);

struct WaitingChange {
    seq: u64,
    reply: ChangeReply,
    ticks: u8,
}

/// The reason why a replay of the journal for a follower ended early.
enum ReplayEnd {
    /// The answer is long enough.
    Full,
    Failed(JournalError),
}

impl From<JournalError> for ReplayEnd {
    fn from(error: JournalError) -> ReplayEnd {
        ReplayEnd::Failed(error)
    }
}

/// The answer to waiting changes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Release {
    /// The changes up to this number, inclusive, are confirmed.
    Confirmed(u64),
    /// A second has passed.
    Tick,
    /// No confirmation will come.
    Refused,
}

/// Copied changes to be stored.
pub(super) enum CopiedWork {
    /// The rows with the number and the check of each change.
    Changes(Vec<(u64, u32, RowChanges)>),
    Rows {
        seq: u64,
        check: u32,
        rows: BTreeMap<Vec<u8>, Vec<u8>>,
    },
}

impl Committer {
    /// Keeps the account changes of a group, whose last change has the number `seq`.
    pub(super) fn keep_recent(&self, seq: u64, records: &[RowChanges]) {
        let keeps = self.shared.gate.keeps_changes();
        {
            let mut recent = self.shared.recent.lock().ignore_poison();
            recent.last = seq;
            if keeps {
                let first = (seq + 1).saturating_sub(records.len() as u64);
                for (seq, rows) in (first..).zip(records) {
                    if let Some(change) = copied(seq, rows) {
                        recent.last_account = seq;
                        recent.push(change);
                    }
                }
            } else {
                (recent.floor, recent.last_account) = (seq, seq);
            }
        }
        self.shared.gate.note_progress();
    }

    /// Completes a durable change of accounts, or makes it wait for the follower.
    pub(super) fn answer(&mut self, seq: u64, reply: ChangeReply) {
        match self.shared.gate.answer() {
            GateAnswer::Acknowledge => finish(&reply, Ok(())),
            GateAnswer::Wait => self.waiting.0.push_back(WaitingChange { seq, reply, ticks: 0 }),
            GateAnswer::Refuse(why) => self.refuse(&reply, why),
        }
    }

    fn refuse(&self, reply: &ChangeReply, why: StandbyRefusal) {
        self.shared.is_unconfirmed.store(true, Ordering::SeqCst);
        finish(reply, Err(why.into()));
    }

    pub(super) fn release(&mut self, release: Release) {
        if let Release::Tick = release {
            self.waiting.0.iter_mut().for_each(|waiting| waiting.ticks = waiting.ticks.saturating_add(1));
        }
        let is_due = |waiting: &mut WaitingChange| match release {
            Release::Confirmed(seq) => waiting.seq <= seq,
            Release::Tick => waiting.ticks >= WAIT_TICKS,
            Release::Refused => true,
        };
        while let Some(waiting) = self.waiting.0.pop_front_if(is_due) {
            match (release, self.shared.gate.answer()) {
                // The follower has the change, so it is not lost even if this process is fenced.
                (Release::Confirmed(_), _) => finish(&waiting.reply, Ok(())),
                (_, GateAnswer::Refuse(why)) => self.refuse(&waiting.reply, why),
                _ => self.refuse(&waiting.reply, StandbyRefusal::Missing),
            }
        }
    }

    /// Returns the account changes after `seq` from memory or the journal, or all rows.
    pub(super) fn changes_after(&self, seq: Option<u64>) -> Result<KnownChanges, DatabaseError> {
        if let Some(seq) = seq {
            if let Some(known) = self.shared.recent.lock().ignore_poison().known_after(seq) {
                return Ok(known);
            }
            match self.changes_in_journal(seq) {
                Ok(Some(changes)) => return Ok(KnownChanges::Changes(changes)),
                Ok(None) => {}
                Err(e) => tracing::warn!("the journal cannot be read for the follower: {}", with_sources(&e)),
            }
        }
        let rows = self.account_rows()?.into_iter().collect();
        let seq = self.meta.seq;
        let check = self.shared.recent.lock().ignore_poison().check_of(seq);
        Ok(KnownChanges::Rows { seq, check, rows })
    }

    fn changes_in_journal(&self, seq: u64) -> Result<Option<Vec<CopiedChange>>, JournalError> {
        let survey = journal::survey(self.journal.dir(), self.meta.store)?;
        if !survey.damage.is_empty() || survey.missing(seq + 1, self.meta.seq).is_some() {
            return Ok(None);
        }
        let (mut changes, mut bytes) = (Vec::new(), 0_usize);
        let replayed = journal::replay(&survey, seq + 1, |seq, rows| {
            if let Some(change) = copied(seq, &rows) {
                bytes += change.rows.len();
                changes.push(change);
            }
            if bytes < ANSWER_BYTES_MAX { Ok(()) } else { Err(ReplayEnd::Full) }
        });
        if let Err(ReplayEnd::Failed(e)) = replayed {
            return Err(e);
        }
        if changes.is_empty() {
            // The rest of the journal has no account change: the position may move to its end.
            let rows = journal::encode_rows(&RowChanges::new()).into();
            changes.push(CopiedChange { seq: self.meta.seq, rows });
        }
        Ok(Some(changes))
    }

    fn account_rows(&self) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, DatabaseError> {
        let mut found = BTreeMap::new();
        self.shared.state.each_row(|key, value| {
            if is_account_row(key) {
                found.insert(key.to_vec(), value.to_vec());
            }
            ScanControl::Continue
        })?;
        Ok(found)
    }

    /// Stores copied changes, each with the new position.
    pub(super) fn store_copied(&mut self, work: CopiedWork) -> Result<(), CommitFailure> {
        match work {
            CopiedWork::Changes(changes) => {
                let mut group = CommitGroup::default();
                for (seq, check, rows) in changes {
                    self.add_copied(&mut group, rows, |row| {
                        (row.accounts, row.accounts_check) = (seq, check);
                    })?;
                }
                self.settle(group)
            }
            CopiedWork::Rows { seq, check, rows } => self.replace_accounts(seq, check, &rows),
        }
    }

    /// Adds a copied change to a group, with the changed role row.
    fn add_copied(
        &mut self,
        group: &mut CommitGroup,
        rows: RowChanges,
        change: impl FnOnce(&mut StandbyRow),
    ) -> Result<(), CommitFailure> {
        let read = |e: DatabaseError| self.shared.fence(&with_sources(&e));
        let mut txn = Txn::new(&self.shared.state, &group.changes);
        let mut row = txn.get::<StandbyRow>(&()).map_err(read)?.unwrap_or_default();
        change(&mut row);
        txn.put(&(), &row);
        let mut own = txn.into_rows().map_err(|e| CommitFailure::Change(Arc::new(e)))?;
        own.extend(rows);
        self.add(own, group)
    }

    /// Makes the accounts equal to `rows`, in several changes that are marked as incomplete but for
    /// the last. All rows of one value change together.
    fn replace_accounts(
        &mut self,
        seq: u64,
        check: u32,
        rows: &BTreeMap<Vec<u8>, Vec<u8>>,
    ) -> Result<(), CommitFailure> {
        let own = self.account_rows().map_err(|e| self.shared.fence(&with_sources(&e)))?;
        let mut changes = RowChanges::new();
        for (key, value) in rows {
            if own.get(key) != Some(value) {
                changes.insert(key.clone(), Some(value.clone()));
            }
        }
        changes.extend(own.keys().filter(|key| !rows.contains_key(*key)).map(|key| (key.clone(), None)));
        let is_further = |key: &Vec<u8>| {
            let value = rows.get(key).or_else(|| own.get(key));
            value.and_then(|value| frame::open(key, value).ok()).is_some_and(|(f, ..)| rows::is_further(f))
        };
        let (mut chunk, mut value) = (RowChanges::new(), RowChanges::new());
        for (key, change) in changes {
            if !is_further(&key) {
                self.add_value(&mut chunk, std::mem::take(&mut value))?;
            }
            value.insert(key, change);
        }
        self.add_value(&mut chunk, value)?;
        self.store_chunk(chunk, |row| {
            (row.accounts, row.accounts_check, row.incomplete) = (seq, check, false);
        })
    }

    /// Adds the rows of one value to a chunk. If both together exceed the limits of a change,
    /// stores the chunk first.
    fn add_value(&mut self, chunk: &mut RowChanges, value: RowChanges) -> Result<(), CommitFailure> {
        let bytes = journal::record_bytes(chunk) + journal::record_bytes(&value);
        if chunk.len() + value.len() >= CHANGE_ROWS_MAX || bytes > CHANGE_BYTES_MAX - 1_024 {
            self.store_chunk(std::mem::take(chunk), |row| row.incomplete = true)?;
        }
        chunk.extend(value);
        Ok(())
    }

    fn store_chunk(
        &mut self,
        chunk: RowChanges,
        change: impl FnOnce(&mut StandbyRow),
    ) -> Result<(), CommitFailure> {
        let mut group = CommitGroup::default();
        self.add_copied(&mut group, chunk, change)?;
        self.settle(group)
    }
}

/// Returns the copy of a change; `None` if it changes no account.
fn copied(seq: u64, rows: &RowChanges) -> Option<CopiedChange> {
    let own: RowChanges = rows
        .iter()
        .filter(|(key, _)| is_account_row(key))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    (!own.is_empty()).then(|| CopiedChange { seq, rows: journal::encode_rows(&own).into() })
}

impl Control {
    /// Returns the gate of changes, which the log shares.
    pub fn gate(&self) -> &Arc<WriteGate> {
        &self.shared.gate
    }

    /// Returns the role row; the default of a store that never had a standby.
    ///
    /// # Errors
    /// As for [`Control::get`].
    pub fn standby(&self) -> Result<StandbyRow, DatabaseError> {
        Ok(self.get::<StandbyRow>(&())?.unwrap_or_default())
    }

    /// Changes the role row and returns the new one. Blocks until it is durable.
    ///
    /// # Errors
    /// As for [`Control::commit`].
    pub fn change_standby(
        &self,
        change: impl FnOnce(&mut StandbyRow) + Send + 'static,
    ) -> Result<StandbyRow, CommitError<DatabaseError>> {
        self.commit(move |tx| {
            let mut row = tx.get::<StandbyRow>(&())?.unwrap_or_default();
            change(&mut row);
            tx.put(&(), &row);
            Ok(row)
        })
    }

    /// Closes the gate if the role demands it.
    pub(super) fn set_gate_by_role(&self) -> Result<(), DatabaseError> {
        let row = self.standby()?;
        match row.role {
            StandbyRole::Primary => {}
            StandbyRole::Follower => self.gate().set_mode(GateMode::Follower),
            StandbyRole::Fenced => self.gate().set_mode(GateMode::Fenced(row.epoch)),
        }
        Ok(())
    }

    /// Returns the number of the last account change or change of another table.
    pub fn last_change(&self) -> u64 {
        self.recent().last
    }

    /// Returns the number of the last account change since the start, or of the last change before
    /// it. A follower that has it has every account change.
    pub fn last_account_change(&self) -> u64 {
        self.recent().last_account
    }

    fn recent(&self) -> MutexGuard<'_, RecentChanges> {
        self.shared.recent.lock().ignore_poison()
    }

    /// Returns the account changes after `seq`. Does not wait for new changes.
    ///
    /// # Errors
    /// [`CommitError`] if control is closed or its rows cannot be read.
    pub fn changes_after(&self, seq: u64) -> Result<KnownChanges, CommitError<DatabaseError>> {
        if let Some(known) = self.recent().known_after(seq) {
            return Ok(known);
        }
        self.request_changes(Some(seq))
    }

    /// Returns all account rows.
    ///
    /// # Errors
    /// As for [`Control::changes_after`].
    pub fn all_account_rows(&self) -> Result<KnownChanges, CommitError<DatabaseError>> {
        self.request_changes(None)
    }

    fn request_changes(&self, seq: Option<u64>) -> Result<KnownChanges, CommitError<DatabaseError>> {
        let closed = || CommitError::Failed(CommitFailure::Closed);
        let (reply, answer) = sync_channel(1);
        let request = CommitterRequest::ChangesAfter { seq, reply };
        self.jobs.as_ref().ok_or_else(closed)?.send(request).map_err(|_| closed())?;
        answer.recv().map_err(|_| closed())?.map_err(CommitError::Refused)
    }

    /// Stores changes of the primary in their order, and the number of the last one as position.
    /// Changes up to the present position are left out. Blocks until they are durable.
    ///
    /// # Errors
    /// [`AccountCopyError`]: a prefix of the changes may be stored.
    pub fn store_changes(&self, changes: &[CopiedChange]) -> Result<(), AccountCopyError> {
        let position = self.standby().map_err(|e| self.shared.fence(&with_sources(&e)));
        let mut last = position.map_err(CommitFailure::from)?.accounts;
        let mut decoded = Vec::new();
        for change in changes.iter() {
            if change.seq <= last {
                continue;
            }
            last = change.seq;
            let rows = journal::decode_rows(&change.rows).map_err(AccountCopyError::Invalid)?;
            if !rows.keys().all(|key| is_account_row(key)) || rows.len() > CHANGE_ROWS_MAX {
                return Err(AccountCopyError::Invalid("a change has rows of other tables, or too many"));
            }
            decoded.push((change.seq, change.check(), rows));
        }
        if decoded.is_empty() { Ok(()) } else { self.store_copied(CopiedWork::Changes(decoded)) }
    }

    /// Makes the accounts equal to `rows`, all rows of the primary at its change `seq`, whose
    /// [`CopiedChange::check`] is `check`. Blocks until they are durable.
    ///
    /// # Errors
    /// [`AccountCopyError`]: some of the rows may be stored; the role row then says so.
    pub fn store_rows(&self, seq: u64, check: u32, rows: Vec<KeyAndValue>) -> Result<(), AccountCopyError> {
        let mut sorted = BTreeMap::new();
        for (key, value) in rows {
            if !is_account_row(&key) || frame::open(&key, &value).is_err() {
                return Err(AccountCopyError::Invalid("a row is damaged or belongs to another table"));
            }
            sorted.insert(key, value);
        }
        self.store_copied(CopiedWork::Rows { seq, check, rows: sorted })
    }

    fn store_copied(&self, copied: CopiedWork) -> Result<(), AccountCopyError> {
        let closed = || AccountCopyError::Failed(CommitFailure::Closed);
        let (reply, answer) = sync_channel(1);
        let request = CommitterRequest::Copied { copied, reply };
        self.jobs.as_ref().ok_or_else(closed)?.send(request).map_err(|_| closed())?;
        Ok(answer.recv().map_err(|_| closed())??)
    }

    /// Answers the waiting changes up to `seq`, which the follower has made durable.
    pub fn confirm(&self, seq: u64) {
        self.request_release(Release::Confirmed(seq));
    }

    /// Refuses the changes that have waited for ten calls. Call it once a second.
    pub fn expire_waiting(&self) {
        self.request_release(Release::Tick);
    }

    /// Refuses all waiting changes.
    pub fn refuse_waiting(&self) {
        self.request_release(Release::Refused);
    }

    fn request_release(&self, release: Release) {
        // A closed control has no waiting changes.
        let _ = self.jobs.as_ref().map(|jobs| jobs.send(CommitterRequest::Release(release)));
    }

    /// Returns whether, since the last call, a change was stored although its caller got an error.
    /// The caches may then differ from the stored rows.
    pub fn take_unconfirmed(&self) -> bool {
        self.shared.is_unconfirmed.swap(false, Ordering::SeqCst)
    }

    /// Makes the next call of [`Control::take_unconfirmed`] return true, because the reload after
    /// the last one failed.
    pub fn set_unconfirmed(&self) {
        self.shared.is_unconfirmed.store(true, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::entropy::Entropy;
    use crate::kv::{ControlOptions, DataFolder, encode_body};
    use crate::model::Timestamp;

    /// A row of accounts, which may be longer than one row of sled.
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Account(String);

    impl Record for Account {
        const TABLE: u8 = 0x3f;
        const KIND: u8 = 0x3f;
        const VERSION: u8 = 1;
        type Key = u32;
    }

    fn open(dir: &Path) -> (DataFolder, Control) {
        let now = Timestamp::from_s(1_795_000_000);
        let folder = DataFolder::open(dir, now, &mut Entropy::seeded(1)).expect("a folder");
        let options = ControlOptions { now, users_table: 1 };
        let control = Control::open(&folder, &options).expect("opens").0;
        (folder, control)
    }

    fn set(control: &Control, key: u32, length: Option<usize>) -> Result<(), CommitError<DatabaseError>> {
        control.commit(move |tx| {
            match length {
                Some(length) => tx.put(&key, &Account("x".repeat(length))),
                None => tx.remove::<Account>(&key),
            }
            Ok(())
        })
    }

    fn accounts(control: &Control) -> Vec<(u32, Account)> {
        control.scan::<Account>(&()).expect("read")
    }

    fn copy(from: &Control, to: &Control) {
        loop {
            let position = to.standby().expect("read").accounts;
            match from.changes_after(position).expect("known") {
                KnownChanges::Changes(changes) if changes.is_empty() => return,
                KnownChanges::Changes(changes) => to.store_changes(&changes).expect("stored"),
                KnownChanges::Rows { seq, check, rows } => to.store_rows(seq, check, rows).expect("stored"),
                KnownChanges::Beyond { last } => panic!("beyond {last}"),
            }
        }
    }

    #[test]
    fn the_role_row_has_its_golden_bytes() {
        let row = StandbyRow { role: StandbyRole::Follower, accounts: 300, ..StandbyRow::default() };
        assert_eq!(encode_body(&row), Ok(vec![1, 1, 251, 44, 1, 0, 0, 0, 0, 0, 0]));
    }

    #[test]
    fn copied_changes_survive_a_restart_and_nothing_else_changes_a_followers_accounts() {
        let dir = crate::kv::scratch::temporary_folder().expect("made");
        let (_a, primary) = open(&dir.path().join("a"));
        primary.gate().keep_changes();
        let b = dir.path().join("b");
        let (folder, follower) = open(&b);
        follower.change_standby(|row| row.role = StandbyRole::Follower).expect("stored");
        drop((follower, folder));
        let (folder, follower) = open(&b);
        for (key, length) in [(1, Some(3)), (2, Some(9_000)), (1, Some(12_000)), (3, Some(1)), (3, None)] {
            set(&primary, key, length).expect("stored");
            copy(&primary, &follower);
            assert_eq!(accounts(&follower), accounts(&primary));
        }
        let refused = set(&follower, 9, Some(1));
        let is_follower =
            matches!(refused, Err(CommitError::Failed(CommitFailure::Standby(StandbyRefusal::Follower))));
        assert!(is_follower, "{refused:?}");
        drop((follower, folder));
        let (_folder, follower) = open(&b);
        assert_eq!(accounts(&follower), accounts(&primary));
        assert_eq!(follower.standby().expect("read").accounts, primary.last_account_change());
    }

    #[test]
    fn all_rows_replace_what_a_follower_has_value_by_value() {
        let dir = crate::kv::scratch::temporary_folder().expect("made");
        let (_a, primary) = open(&dir.path().join("a"));
        let (_b, follower) = open(&dir.path().join("b"));
        for key in 0..90 {
            set(&primary, key, Some(key as usize * 300)).expect("stored");
            set(&follower, key + 45, Some(20_000)).expect("stored");
        }
        let KnownChanges::Rows { seq, check, rows } = primary.all_account_rows().expect("read") else {
            panic!("no rows")
        };
        let mut damaged = rows.clone();
        damaged[3].1[13] ^= 1;
        assert!(matches!(follower.store_rows(seq, check, damaged), Err(AccountCopyError::Invalid(_))));
        follower.store_rows(seq, check, rows).expect("stored");
        assert_eq!(accounts(&follower), accounts(&primary));
        let row = follower.standby().expect("read");
        assert_eq!((row.accounts, row.accounts_check, row.incomplete), (seq, check, false));
    }

    #[test]
    fn a_synchronous_change_is_answered_by_its_confirmation_or_fails_after_ten_ticks() {
        let dir = crate::kv::scratch::temporary_folder().expect("made");
        let (_folder, control) = open(dir.path());
        control.gate().keep_changes();
        control.gate().set_mode(GateMode::Synchronous);
        let missing = |result: &Result<(), CommitError<DatabaseError>>| {
            matches!(result, Err(CommitError::Failed(CommitFailure::Standby(StandbyRefusal::Missing))))
        };
        assert!(missing(&set(&control, 1, Some(1))) && !control.take_unconfirmed());
        assert_eq!(accounts(&control), [], "nothing was written");
        control.gate().set_connected(true);
        std::thread::scope(|scope| {
            let before = control.last_account_change();
            let change = scope.spawn(|| set(&control, 1, Some(1)));
            while control.last_account_change() == before {
                std::thread::yield_now();
            }
            assert!(!change.is_finished());
            control.confirm(control.last_account_change());
            change.join().expect("ended").expect("confirmed");
            let change = scope.spawn(|| set(&control, 2, Some(1)));
            while !change.is_finished() {
                control.expire_waiting();
            }
            assert!(missing(&change.join().expect("ended")) && control.take_unconfirmed());
        });
        assert_eq!(accounts(&control).len(), 2, "it is stored, and its caller does not know");
    }
}
