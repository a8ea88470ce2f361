//! The store as primary or follower of a standby (docs/standby.md): records are read for the
//! follower, or records of the primary are stored unchanged.
//!
//! A follower makes no records. It seals by the barriers that copied seal records raise, and stores
//! the tombstone of a deletion before it applies the next record.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use super::deletion::DeletionRecord;
use crate::kv::{StandbyRole, StandbyRow, with_sources};
use crate::model::{OrgId, Timestamp, WriteGate};
use crate::sync::IgnorePoison as _;
use crate::tsdb::Tsdb;
use crate::tsdb::error::{AppendError, CopyError};
use crate::tsdb::report::LogRecord;
use crate::tsdb::store::deletion::Deletion;
use crate::tsdb::wal::copy::{CopiedRecord, CopyReader};
use crate::tsdb::wal::log::Log;
use crate::tsdb::wal::record::RecordKind;
use crate::tsdb::wal::sink::Sink;

/// The state of a store that is copied or copies.
#[derive(Debug, Default)]
pub(in crate::tsdb) struct Copies {
    /// The first record that the follower needs; 0 if there is none.
    hold: AtomicU64,
    /// The organisations of a follower that have not been sealed since a copied record closed their
    /// window.
    to_seal: Mutex<BTreeSet<OrgId>>,
    /// Whether there was a follower, or this store was one, when the store was opened.
    was_linked: bool,
}

impl Copies {
    /// Creates the state from the role row.
    pub(in crate::tsdb) fn of(row: &StandbyRow) -> Copies {
        Copies {
            hold: AtomicU64::new(row.hold),
            was_linked: row.link != 0 || row.role != StandbyRole::Primary,
            ..Copies::default()
        }
    }

    /// Returns whether there is a follower, or may still be one that has a part of the log.
    pub(in crate::tsdb) fn has_follower(&self) -> bool {
        self.was_linked || self.holds(u64::MAX)
    }

    pub(in crate::tsdb) fn to_seal(&self) -> MutexGuard<'_, BTreeSet<OrgId>> {
        self.to_seal.lock().ignore_poison()
    }

    /// Returns whether the follower needs a record up to `last_seq`.
    pub(in crate::tsdb) fn holds(&self, last_seq: u64) -> bool {
        let hold = self.hold.load(Ordering::Acquire);
        hold != 0 && last_seq >= hold
    }
}

/// A reader of the records for a follower.
#[derive(Debug)]
pub struct LogCopies(CopyReader);

impl LogCopies {
    /// Creates a reader that begins with record `seq`.
    pub fn from(seq: u64) -> LogCopies {
        LogCopies(CopyReader::new(seq))
    }

    /// Returns the next records up to `limit` (inclusive), but none after
    /// [`Tsdb::last_stored_record`]: none at all, or at least one and about `bytes_max` bytes.
    ///
    /// # Errors
    /// [`CopyError`]: the records were removed or cannot be read.
    pub fn read(&mut self, tsdb: &Tsdb, limit: u64, bytes_max: usize) -> Result<Vec<LogRecord>, CopyError> {
        self.0.read(tsdb.copied_log()?, limit.min(tsdb.last_stored_record()), bytes_max)
    }
}

impl Tsdb {
    fn copied_log(&self) -> Result<&Log, CopyError> {
        match &self.log {
            Sink::Log(log) => Ok(log),
            Sink::Memory(_) => Err(AppendError::Closed.into()),
            Sink::ReadOnly { why, .. } => Err(AppendError::ReadOnly(why.clone()).into()),
        }
    }

    /// Lets `gate` decide whether records are accepted and when they are acknowledged.
    pub(in crate::tsdb) fn use_gate(&self, gate: &Arc<WriteGate>) {
        if let Sink::Log(log) = &self.log {
            log.set_gate(Arc::clone(gate));
        }
    }

    /// Returns the number of the last record that is durable and applied; 0 without a log.
    pub fn last_stored_record(&self) -> u64 {
        let Sink::Log(log) = &self.log else { return 0 };
        let counters = log.counters();
        let durable = counters.durable_seq.load(Ordering::Acquire);
        durable.min(counters.applied_seq.load(Ordering::Acquire))
    }

    /// Returns the check of the log up to record `seq` (inclusive): a checksum over the records of
    /// its file, without marks and switches; 0 for record 0.
    ///
    /// # Errors
    /// [`CopyError`]: the record was removed or cannot be read.
    pub fn log_check(&self, seq: u64) -> Result<u32, CopyError> {
        if seq == 0 { Ok(0) } else { CopyReader::check(self.copied_log()?, seq) }
    }

    /// Keeps the log from record `seq` on for the follower; 0 keeps nothing. The caller makes it
    /// durable.
    pub fn hold_log(&self, seq: u64) {
        self.copies.hold.store(seq, Ordering::Release);
    }

    /// Returns the record from which the log is kept for the follower; 0 if it is not kept.
    #[cfg(test)]
    pub(crate) fn held_from(&self) -> u64 {
        self.copies.hold.load(Ordering::Acquire)
    }

    /// Returns whether the disk is too full for samples. False if that cannot be measured.
    pub fn lacks_room_for_samples(&self) -> bool {
        let space = self.folder.as_ref().map(|folder| self.options.disk.space(&folder.segments));
        matches!(space, Some(Ok(space)) if space.free < space.samples_floor())
    }

    /// Answers the records up to `seq`, which the follower has made durable.
    pub fn confirm(&self, seq: u64) {
        if let Sink::Log(log) = &self.log {
            log.confirm(seq);
        }
    }

    /// Refuses the records that have waited for the follower for ten calls. Call it once a second.
    pub fn expire_waiting(&self) {
        if let Sink::Log(log) = &self.log {
            log.expire_waiting();
        }
    }

    /// Refuses all records that wait for the follower.
    pub fn refuse_waiting(&self) {
        if let Sink::Log(log) = &self.log {
            log.refuse_waiting();
        }
    }

    /// Returns the number of records that wait for the follower.
    pub fn waiting_for_follower(&self) -> usize {
        if let Sink::Log(log) = &self.log { log.waiting_for_follower() } else { 0 }
    }

    /// Returns the organisations that have samples or names.
    pub fn orgs(&self) -> Vec<OrgId> {
        self.stores.all().iter().map(|store| store.org).collect()
    }

    /// Begins to write marks after the promotion of this follower.
    pub fn begin_own_records(&self) {
        if let Sink::Log(log) = &self.log {
            log.begin_own_records();
        }
    }

    /// Stores records of the primary. When this returns they are durable and visible, and deletions
    /// have their tombstones.
    ///
    /// # Errors
    /// [`CopyError`]: a prefix of the records may be stored.
    pub fn store_records(&self, records: Vec<LogRecord>, now: Timestamp) -> Result<(), CopyError> {
        let mut plain = Vec::new();
        for record in records {
            let record = CopiedRecord::new(record)?;
            match record.kind {
                RecordKind::Delete => {
                    self.store_plain(std::mem::take(&mut plain))?;
                    self.store_deletion(record, now)?;
                }
                RecordKind::Dropped => {
                    self.store_plain(std::mem::take(&mut plain))?;
                    if let Some(manifest) = &self.manifest {
                        manifest.set_dropped(record.org)?;
                    }
                    self.store_plain(vec![record])?;
                }
                RecordKind::Seal | RecordKind::SealAll => {
                    self.store_plain(std::mem::take(&mut plain))?;
                    self.store_seal(record)?;
                }
                _ => plain.push(record),
            }
        }
        self.store_plain(plain)
    }

    fn store_plain(&self, records: Vec<CopiedRecord>) -> Result<(), CopyError> {
        if records.is_empty() { Ok(()) } else { self.copied_log()?.append_copied(records) }
    }

    /// Stores a seal record. The barrier of the seal is valid at once. The samples are moved by the
    /// next [`Tsdb::seal_if_due`]; those of a seal of all times now, because later samples may have
    /// their times.
    fn store_seal(&self, record: CopiedRecord) -> Result<(), CopyError> {
        let (org, seq) = (record.org, record.seq);
        let is_all = record.kind == RecordKind::SealAll;
        let store = self.stores.org_or_new(org);
        let guard = self.block_seals_of(&store);
        self.store_plain(vec![record])?;
        if is_all && let Err(e) = self.move_all(&store, seq) {
            let why = with_sources(&e);
            tracing::warn!("samples ahead of the clock were not sealed, they stay in memory: {why}");
        }
        store.reopen();
        drop(guard);
        self.copies.to_seal().insert(org);
        Ok(())
    }

    /// Stores a deletion record and its tombstone.
    fn store_deletion(&self, record: CopiedRecord, now: Timestamp) -> Result<(), CopyError> {
        let seq = record.seq;
        let invalid = |what: String| CopyError::Invalid { seq, what };
        let deletion = Deletion::decode(&record.body).map_err(|e| invalid(e.to_string()))?;
        let store = self.stores.org_or_new(record.org);
        self.delete_some(&store, deletion, DeletionRecord::Copied(record), now).map(drop).map_err(|e| match e
        {
            super::deletion::DeleteError::Log(e) => CopyError::Append(e),
            super::deletion::DeleteError::Manifest(e) => CopyError::Manifest(e),
            super::deletion::DeleteError::Copy(e) => e,
            other => invalid(other.to_string()),
        })
    }

    /// Stores the tombstone of the last record if that is a deletion without one, which a crash may
    /// have left. Called at the start of a follower.
    ///
    /// # Errors
    /// [`CopyError`].
    pub fn complete_last_record(&self, now: Timestamp) -> Result<(), CopyError> {
        let log = self.copied_log()?;
        let seq = log.counters().last_seq.load(Ordering::Relaxed);
        if seq == 0 {
            return Ok(());
        }
        let last = match CopyReader::new(seq).read(log, seq, 1) {
            Ok(records) => records.into_iter().next(),
            // The last record was the switch of a file that is trimmed.
            Err(CopyError::Trimmed { .. }) => None,
            Err(e) => return Err(e),
        };
        let Some(last) = last.filter(|last| last.kind == RecordKind::Delete.code()) else { return Ok(()) };
        let store = self.stores.org_or_new(last.org);
        if store.segments().tombstones.iter().any(|(number, _)| *number == seq) {
            return Ok(());
        }
        let invalid = |what: String| CopyError::Invalid { seq, what };
        let deletion = Deletion::decode(&last.body).map_err(|e| invalid(e.to_string()))?;
        self.delete_some(&store, deletion, DeletionRecord::Logged(seq), now)
            .map(drop)
            .map_err(|e| invalid(with_sources(&e)))
    }
}
