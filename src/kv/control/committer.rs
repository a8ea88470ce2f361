//! The only thread that changes control. Waiting changes form a group: journal, sync, sled, sync,
//! then the replies.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, SyncSender};
use std::sync::{Arc, Mutex, OnceLock};

use super::copies::{CopiedWork, KnownChanges, RecentChanges, Release, WaitingChanges, is_account_row};
use super::export::{self, ExportError, ExportReport};
use super::state::{ControlState, Meta};
use super::txn::{CHANGE_ROWS_MAX, ChangeError, Txn};
use crate::kv::database::{DatabaseError, panic_message};
use crate::kv::files::{self, FileError};
use crate::kv::journal::{self, AppendError, GROUP_BYTES_MAX, Journal};
use crate::kv::reserve::Reserve;
use crate::kv::rows::RowChanges;
use crate::kv::with_sources;
use crate::model::{StandbyRefusal, Timestamp, WriteGate};

/// Maximum number of changes of one group, those without rows included.
const GROUP_JOBS_MAX: usize = 256;

/// Control accepts no more changes until the next start, because the state on disk is unknown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("account changes are closed until a restart: {reason}")]
pub struct Fenced {
    /// The first failure.
    pub reason: Arc<str>,
}

/// Reasons, other than the change itself, for which it is not durable.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CommitFailure {
    /// Control is fenced. The change that fenced it may still be present after the restart.
    #[error(transparent)]
    Fenced(#[from] Fenced),
    /// The disk is full. No row was written, and the change may be retried.
    #[error("no room for account changes")]
    NoRoom(#[source] Arc<FileError>),
    /// The change exceeds a limit, or the rows that it changes cannot be read.
    #[error("this change cannot be stored")]
    Change(#[source] Arc<ChangeError>),
    /// The closure panicked; its rows are discarded.
    #[error("the change panicked: {0}")]
    Panicked(Arc<str>),
    /// Control was closed.
    #[error("control is closed")]
    Closed,
    /// This process may not change accounts, or no follower has confirmed the change. In the second
    /// case it may be present.
    #[error(transparent)]
    Standby(#[from] StandbyRefusal),
}

/// Errors of [`super::Control::commit`].
#[derive(Debug, thiserror::Error)]
pub enum CommitError<E> {
    /// The closure's own error; none of its rows are stored.
    #[error(transparent)]
    Refused(E),
    /// Any other failure.
    #[error("account change failed")]
    Failed(#[source] CommitFailure),
}

/// The channel in which the committer reports whether a change is durable.
pub(super) type ChangeReply = SyncSender<Result<(), CommitFailure>>;

/// A request to the committer.
pub(super) enum CommitterRequest {
    Change {
        /// Runs the closure and keeps its result for the caller. Returns whether its rows are to be
        /// stored.
        run: Box<dyn FnOnce(&mut Txn<'_>) -> bool + Send>,
        reply: ChangeReply,
    },
    /// Write an export if `trigger` requires one.
    Export { trigger: ExportTrigger, reply: SyncSender<Result<Option<ExportReport>, ExportError>> },
    /// Store copied changes.
    Copied { copied: CopiedWork, reply: SyncSender<Result<(), CommitFailure>> },
    /// Return the changes of accounts after this number, or all account rows.
    ChangesAfter { seq: Option<u64>, reply: SyncSender<Result<KnownChanges, DatabaseError>> },
    /// Answer changes that wait for the follower.
    Release(Release),
    /// Write an export, and copy all exports and the journal to this directory.
    Copy { to: PathBuf, reply: SyncSender<Result<ExportReport, ExportError>> },
}

/// The condition for writing an export.
#[derive(Clone, Copy, Debug)]
pub(super) enum ExportTrigger {
    /// Enough journal has gathered, or anything has changed and the last export is old enough.
    IfDue(Timestamp),
    /// Any row has changed since the last export.
    IfChanged,
}

/// Size of the gathered journal from which on an export is written at once.
pub(super) const EXPORT_BYTES: u64 = 2 << 20;
/// Additional journal after a failed export before the next attempt.
const EXPORT_RETRY_BYTES: u64 = 256 << 10;
/// Maximum time that a change waits for an export.
const EXPORT_AGE_MS: i64 = 15 * 60 * 1_000;

/// The committer's state of `exports/`.
pub(super) struct Exports {
    pub(super) dir: PathBuf,
    /// Sequence numbers of the exports known to be intact, newest first.
    pub(super) trusted: Vec<u64>,
    /// Time of the last export, or of opening control.
    pub(super) last_at: Timestamp,
    /// Size of the gathered journal at which the next export is written.
    pub(super) due_bytes: u64,
}

impl Exports {
    pub(super) fn new(dir: PathBuf, trusted: Vec<u64>, now: Timestamp) -> Exports {
        Exports { dir, trusted, last_at: now, due_bytes: EXPORT_BYTES }
    }

    fn newest(&self) -> u64 {
        self.trusted.first().copied().unwrap_or_default()
    }
}

/// The state that the committer shares with readers.
pub(super) struct SharedControl {
    pub(super) state: ControlState,
    pub(super) fence: OnceLock<Fenced>,
    pub(super) gate: Arc<WriteGate>,
    pub(super) recent: Mutex<RecentChanges>,
    /// Whether a change of accounts is stored whose caller got an error.
    pub(super) is_unconfirmed: AtomicBool,
}

impl SharedControl {
    pub(super) fn fence(&self, reason: &str) -> Fenced {
        self.fence.get_or_init(|| Fenced { reason: reason.into() }).clone()
    }
}

/// A change of a group.
struct GroupJob {
    reply: ChangeReply,
    failure: Option<CommitFailure>,
    /// The place of its record in the group, if it changes accounts.
    copied: Option<usize>,
}

/// Sends the outcome of a change. A caller that no longer waits still has its change.
pub(super) fn finish(reply: &ChangeReply, outcome: Result<(), CommitFailure>) {
    let _ = reply.send(outcome);
}

/// The changes that are made durable together.
#[derive(Default)]
pub(super) struct CommitGroup {
    /// The changes, with their own failure if any, and the place of their record if it changes
    /// accounts.
    jobs: Vec<GroupJob>,
    /// The rows of each change that has any: one journal record each.
    records: Vec<RowChanges>,
    /// The union of their rows: written to sled, and visible to later closures of the group.
    pub(super) changes: RowChanges,
    bytes: usize,
    rows: usize,
}

impl CommitGroup {
    fn fits(&self, bytes: usize, rows: usize) -> bool {
        self.records.is_empty()
            || (self.bytes + bytes <= GROUP_BYTES_MAX && self.rows + rows <= CHANGE_ROWS_MAX)
    }
}

pub(super) struct Committer {
    pub(super) shared: Arc<SharedControl>,
    pub(super) journal: Journal,
    pub(super) meta: Meta,
    pub(super) reserve: Reserve,
    pub(super) exports: Exports,
    /// Durable changes that wait for the follower.
    pub(super) waiting: WaitingChanges,
}

/// Guard that fences control if the thread ends by a panic.
struct FenceOnPanic(Arc<SharedControl>);

impl Drop for FenceOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fence("the committer panicked");
        }
    }
}

impl Committer {
    /// Processes requests until every sender is dropped.
    pub(super) fn run(mut self, requests: &Receiver<CommitterRequest>) {
        let _guard = FenceOnPanic(Arc::clone(&self.shared));
        while let Ok(work) = requests.recv() {
            let mut group = CommitGroup::default();
            let mut next = Some(work);
            while let Some(work) = next.take() {
                match work {
                    CommitterRequest::Change { run, reply } => self.admit(run, reply, &mut group),
                    CommitterRequest::Release(release) => self.release(release),
                    other => {
                        // Everyone in the group has got a reply; a failure is also in the fence.
                        let _ = self.settle(std::mem::take(&mut group));
                        self.export_or_copy(other);
                    }
                }
                if group.jobs.len() < GROUP_JOBS_MAX {
                    next = requests.try_recv().ok();
                }
            }
            let _ = self.settle(group);
            self.tidy();
        }
    }

    /// Does the work that follows the replies, so that no change waits for it.
    fn tidy(&mut self) {
        if self.shared.fence.get().is_some() {
            return;
        }
        // If it fails (full disk), the append that needs the file retries and returns the error.
        let _ = self.journal.make_ready();
        // Without the reserve a full disk stops account changes sooner; nothing else depends on it.
        let _ = self.reserve.refill();
        if self.journal.gathered() >= self.exports.due_bytes
            && let Err(error) = self.export()
        {
            self.exports.due_bytes = self.journal.gathered() + EXPORT_RETRY_BYTES;
            tracing::warn!(
                "no export of the accounts was written, the journal still has all changes: {}",
                with_sources(&error)
            );
        }
    }

    fn export_or_copy(&mut self, work: CommitterRequest) {
        let fenced = self.shared.fence.get().map(|fenced| ExportError::Closed(fenced.to_string()));
        // A caller that no longer waits for the reply still has its export.
        match work {
            CommitterRequest::Change { reply, .. } => finish(&reply, Err(CommitFailure::Closed)),
            CommitterRequest::Release(release) => self.release(release),
            CommitterRequest::Copied { copied, reply } => {
                let _ = reply.send(self.store_copied(copied));
            }
            CommitterRequest::ChangesAfter { seq, reply } => {
                let _ = reply.send(self.changes_after(seq));
            }
            CommitterRequest::Export { trigger, reply } => {
                let made = match fenced {
                    Some(why) => Err(why),
                    None if self.is_due(trigger) => {
                        if let ExportTrigger::IfDue(now) = trigger {
                            self.exports.last_at = now;
                        }
                        self.export().map(Some)
                    }
                    None => Ok(None),
                };
                let _ = reply.send(made);
            }
            CommitterRequest::Copy { to, reply } => {
                let _ = reply.send(fenced.map_or_else(|| self.copy(&to), Err));
            }
        }
    }

    fn is_due(&self, trigger: ExportTrigger) -> bool {
        let changed = self.meta.seq > self.exports.newest();
        match trigger {
            ExportTrigger::IfChanged => changed,
            ExportTrigger::IfDue(now) => {
                let age = now.as_ms().saturating_sub(self.exports.last_at.as_ms());
                changed && (age >= EXPORT_AGE_MS || self.journal.gathered() >= EXPORT_BYTES)
            }
        }
    }

    /// Writes an export and removes the files that it replaces.
    fn export(&mut self) -> Result<ExportReport, ExportError> {
        let mut report = export::write(&self.exports.dir, &self.shared.state, &self.meta)?;
        self.exports.trusted.insert(0, report.seq);
        self.exports.due_bytes = EXPORT_BYTES;
        self.journal.set_gathered(0);
        if let Some(covered) = export::retain(&self.exports.dir, self.meta.store, &mut self.exports.trusted)?
        {
            report.journal_files_removed = self.journal.trim(covered)?;
        }
        Ok(report)
    }

    /// Copies the files from which control is rebuilt: a new export, the previous one, and the
    /// journal.
    fn copy(&mut self, to: &Path) -> Result<ExportReport, ExportError> {
        let report = self.export()?;
        let copies = [to.join("exports"), to.join("journal")];
        for dir in &copies {
            files::create_dir(dir)?;
        }
        let [exports, journal] = copies;
        for export in
            export::list(&self.exports.dir)?.iter().filter(|e| self.exports.trusted.contains(&e.seq))
        {
            let copy = exports.join(export.path.file_name().unwrap_or_default());
            std::fs::copy(&export.path, &copy).map_err(FileError::at("copy", &export.path))?;
        }
        self.journal.copy_to(&journal)?;
        Ok(report)
    }

    /// Runs a change on top of the group. If the change would exceed the group's limits, the group
    /// is settled first; this does not change the state that the closure read.
    fn admit(
        &mut self,
        run: Box<dyn FnOnce(&mut Txn<'_>) -> bool + Send>,
        reply: ChangeReply,
        group: &mut CommitGroup,
    ) {
        if let Some(fenced) = self.shared.fence.get() {
            return finish(&reply, Err(fenced.clone().into()));
        }
        let mut txn = Txn::new(&self.shared.state, &group.changes);
        let ran = catch_unwind(AssertUnwindSafe(|| run(&mut txn)));
        let (failure, copied) = match ran {
            Ok(false) => (None, None),
            Err(payload) => (Some(CommitFailure::Panicked(panic_message(payload.as_ref()).into())), None),
            Ok(true) => match txn.into_rows() {
                Err(e) => (Some(CommitFailure::Change(Arc::new(e))), None),
                Ok(rows) if rows.is_empty() => (None, None),
                Ok(rows) => {
                    let changes_accounts = rows.keys().any(|key| is_account_row(key));
                    let admitted = if changes_accounts { self.shared.gate.admit() } else { Ok(()) };
                    let added = admitted.map_err(Into::into).and_then(|()| self.add(rows, group));
                    let place = group.records.len().checked_sub(1).filter(|_| changes_accounts);
                    (added.err(), place)
                }
            },
        };
        group.jobs.push(GroupJob { reply, failure, copied });
    }

    /// Adds the rows of a change. Returns an error if the previous group, which the closure saw,
    /// was not stored.
    pub(super) fn add(&mut self, rows: RowChanges, group: &mut CommitGroup) -> Result<(), CommitFailure> {
        let bytes = journal::record_bytes(&rows);
        if !group.fits(bytes, rows.len()) {
            self.settle(std::mem::take(group))?;
        }
        group.bytes += bytes;
        group.rows += rows.len();
        group.changes.extend(rows.iter().map(|(key, value)| (key.clone(), value.clone())));
        group.records.push(rows);
        Ok(())
    }

    /// Makes a group durable and sends all replies.
    pub(super) fn settle(&mut self, group: CommitGroup) -> Result<(), CommitFailure> {
        let outcome = if group.records.is_empty() { Ok(()) } else { self.write(&group) };
        let first_seq = (self.meta.seq + 1).saturating_sub(group.records.len() as u64);
        for GroupJob { reply, failure, copied } in group.jobs {
            match (failure, &outcome, copied) {
                (Some(own), ..) => finish(&reply, Err(own)),
                (None, Ok(()), Some(place)) => self.answer(first_seq + place as u64, reply),
                (None, outcome, _) => finish(&reply, outcome.clone()),
            }
        }
        outcome
    }

    fn write(&mut self, group: &CommitGroup) -> Result<(), CommitFailure> {
        if let Some(fenced) = self.shared.fence.get() {
            return Err(fenced.clone().into());
        }
        self.reserve.room().map_err(|e| CommitFailure::NoRoom(Arc::new(e)))?;
        let seq = self.journal.append(&group.records).map_err(|e| match e {
            AppendError::NoRoom(e) => CommitFailure::NoRoom(Arc::new(e)),
            AppendError::Unknown(e) => self.shared.fence(&with_sources(&e)).into(),
        })?;
        let applied: Result<(), DatabaseError> = self.shared.state.apply(&mut self.meta, &group.changes, seq);
        applied.map_err(|e| self.shared.fence(&with_sources(&e)))?;
        self.keep_recent(seq, &group.records);
        Ok(())
    }
}
