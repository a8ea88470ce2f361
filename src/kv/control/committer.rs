//! The one thread that changes control: what waits is one group; journal, sync, sled, sync, then the replies.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender};
use std::sync::{Arc, OnceLock};

use super::export::{self, ExportError, ExportReport};
use super::state::{Meta, State};
use super::txn::{CHANGE_ROWS_MAX, ChangeError, Txn};
use crate::kv::database::{DatabaseError, panic_message};
use crate::kv::files::{self, FileError};
use crate::kv::journal::{self, AppendError, GROUP_BYTES_MAX, Journal};
use crate::kv::reserve::Reserve;
use crate::kv::rows::Rows;
use crate::kv::with_sources;
use crate::model::Timestamp;

/// The most changes of one group, those without rows included.
const GROUP_JOBS_MAX: usize = 256;

/// Control takes no more changes until the next start, since it is unknown what the disk holds.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("account changes are closed until a restart: {reason}")]
pub struct Fenced {
    /// What failed first.
    pub reason: Arc<str>,
}

/// Why a change is not durable, for reasons that are not its own.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CommitFailure {
    /// Control is fenced. Was this the change that fenced it, it may still be there after the restart.
    #[error(transparent)]
    Fenced(#[from] Fenced),
    /// Nothing was written, since the disk is full; it may be tried again.
    #[error("no room for account changes")]
    NoRoom(#[source] Arc<FileError>),
    /// The change breaks a limit, or the rows it changes cannot be read.
    #[error("this change cannot be stored")]
    Change(#[source] Arc<ChangeError>),
    /// The closure panicked; its rows are dropped.
    #[error("the change panicked: {0}")]
    Panicked(Arc<str>),
    /// Control was closed.
    #[error("control is closed")]
    Closed,
}

/// Why [`super::Control::commit`] did not commit.
#[derive(Debug, thiserror::Error)]
pub enum CommitError<E> {
    /// The closure's own answer; none of its rows were kept.
    #[error(transparent)]
    Refused(E),
    /// Anything else.
    #[error("account change failed")]
    Failed(#[source] CommitFailure),
}

/// A change that waits, whatever it returns.
pub(super) trait Job: Send {
    /// Runs the closure; whether its rows are to be kept.
    fn run(&mut self, txn: &mut Txn<'_>) -> bool;
    /// Answers.
    fn finish(self: Box<Self>, outcome: Result<(), CommitFailure>);
}

/// What waits for the committer.
pub(super) enum Work {
    Change(Box<dyn Job>),
    /// An export, if one is due or wanted.
    Export {
        wish: Wish,
        reply: SyncSender<Result<Option<ExportReport>, ExportError>>,
    },
    /// A new export, and copies of all exports and of the journal in this directory.
    Copy {
        to: PathBuf,
        reply: SyncSender<Result<ExportReport, ExportError>>,
    },
}

/// When an export is made.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wish {
    /// If enough changed, or anything and long enough ago.
    IfDue(Timestamp),
    /// If anything changed.
    IfChanged,
}

/// Journal that gathers before an export is made at once.
pub(super) const EXPORT_BYTES: u64 = 2 << 20;
/// How much more gathers before another try after one that failed.
const EXPORT_RETRY_BYTES: u64 = 256 << 10;
/// How long changes wait for an export at most.
const EXPORT_AGE_MS: i64 = 15 * 60 * 1_000;

/// What the committer knows about `exports/`.
pub(super) struct Exports {
    pub(super) dir: PathBuf,
    /// Seqs of those known to be whole, newest first.
    pub(super) trusted: Vec<u64>,
    /// When the last one was made, or control was opened.
    pub(super) last_at: Timestamp,
    /// Journal bytes at which the next one is made.
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

/// What a closure answered, or that it could not be asked.
pub(super) type Answer<T, E> = Result<T, CommitError<E>>;

/// The one implementation of [`Job`], for each type of closure.
pub(super) struct Change<F, T, E> {
    pub(super) closure: Option<F>,
    pub(super) answer: Option<Result<T, E>>,
    pub(super) reply: SyncSender<Answer<T, E>>,
}

impl<F, T, E> Job for Change<F, T, E>
where
    F: FnOnce(&mut Txn<'_>) -> Result<T, E> + Send,
    T: Send,
    E: Send,
{
    fn run(&mut self, txn: &mut Txn<'_>) -> bool {
        let Some(closure) = self.closure.take() else { return false };
        let answer = closure(txn);
        let keep = answer.is_ok();
        self.answer = Some(answer);
        keep
    }

    fn finish(self: Box<Self>, outcome: Result<(), CommitFailure>) {
        let answer = match (outcome, self.answer) {
            (Err(failure), _) => Err(CommitError::Failed(failure)),
            (Ok(()), Some(Ok(value))) => Ok(value),
            (Ok(()), Some(Err(refusal))) => Err(CommitError::Refused(refusal)),
            (Ok(()), None) => Err(CommitError::Failed(CommitFailure::Closed)),
        };
        // A caller that no longer waits has its change all the same.
        let _ = self.reply.send(answer);
    }
}

/// What the committer shares with readers.
pub(super) struct Shared {
    pub(super) state: State,
    pub(super) fence: OnceLock<Fenced>,
}

impl Shared {
    pub(super) fn fence(&self, reason: &str) -> Fenced {
        self.fence.get_or_init(|| Fenced { reason: reason.into() }).clone()
    }
}

#[derive(Default)]
struct Group {
    /// With the failure of its own that a change met.
    jobs: Vec<(Box<dyn Job>, Option<CommitFailure>)>,
    /// One entry a change that has rows: one record of the journal each.
    records: Vec<Rows>,
    /// All of them together: what sled gets, and what the later closures of the group see.
    changes: Rows,
    bytes: usize,
    rows: usize,
}

impl Group {
    fn fits(&self, bytes: usize, rows: usize) -> bool {
        self.records.is_empty()
            || (self.bytes + bytes <= GROUP_BYTES_MAX && self.rows + rows <= CHANGE_ROWS_MAX)
    }
}

pub(super) struct Committer {
    pub(super) shared: Arc<Shared>,
    pub(super) journal: Journal,
    pub(super) meta: Meta,
    pub(super) reserve: Reserve,
    pub(super) exports: Exports,
}

/// Says so when the thread ends by a panic of ours.
struct FenceOnPanic(Arc<Shared>);

impl Drop for FenceOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fence("the committer panicked");
        }
    }
}

impl Committer {
    /// Works until every sender is gone.
    pub(super) fn run(mut self, works: &Receiver<Work>) {
        let _guard = FenceOnPanic(Arc::clone(&self.shared));
        while let Ok(work) = works.recv() {
            let mut group = Group::default();
            let mut next = Some(work);
            while let Some(work) = next.take() {
                match work {
                    Work::Change(job) => self.admit(job, &mut group),
                    other => {
                        // Everyone in the group was told; what is left to know is in the fence.
                        let _ = self.settle(std::mem::take(&mut group));
                        self.export_or_copy(other);
                    }
                }
                if group.jobs.len() < GROUP_JOBS_MAX {
                    next = works.try_recv().ok();
                }
            }
            let _ = self.settle(group);
            self.tidy();
        }
    }

    /// What is done after the replies, so that no change waits for it.
    fn tidy(&mut self) {
        if self.shared.fence.get().is_some() {
            return;
        }
        // If it fails (full disk), the append that needs the file tries again and answers with the error.
        let _ = self.journal.make_ready();
        // Without it a full disk stops account changes sooner, and nothing else.
        let _ = self.reserve.refill();
        if self.journal.gathered() >= self.exports.due_bytes
            && let Err(error) = self.export()
        {
            self.exports.due_bytes = self.journal.gathered() + EXPORT_RETRY_BYTES;
            tracing::warn!(
                "no export of the accounts was made, the journal keeps everything: {}",
                with_sources(&error)
            );
        }
    }

    fn export_or_copy(&mut self, work: Work) {
        let fenced = self.shared.fence.get().map(|fenced| ExportError::Closed(fenced.to_string()));
        // Whoever no longer waits for the answer has the export all the same.
        match work {
            Work::Change(job) => job.finish(Err(CommitFailure::Closed)),
            Work::Export { wish, reply } => {
                let made = match fenced {
                    Some(why) => Err(why),
                    None if self.is_due(wish) => {
                        if let Wish::IfDue(now) = wish {
                            self.exports.last_at = now;
                        }
                        self.export().map(Some)
                    }
                    None => Ok(None),
                };
                let _ = reply.send(made);
            }
            Work::Copy { to, reply } => {
                let _ = reply.send(fenced.map_or_else(|| self.copy(&to), Err));
            }
        }
    }

    fn is_due(&self, wish: Wish) -> bool {
        let changed = self.meta.seq > self.exports.newest();
        match wish {
            Wish::IfChanged => changed,
            Wish::IfDue(now) => {
                let age = now.as_ms().saturating_sub(self.exports.last_at.as_ms());
                changed && (age >= EXPORT_AGE_MS || self.journal.gathered() >= EXPORT_BYTES)
            }
        }
    }

    /// Makes an export and removes what it makes superfluous.
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

    /// Copies what control is rebuilt from: an export of this moment, the one before it, and the journal.
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

    /// Runs a change against what the group would make; a group that it would overfill is settled first, which
    /// changes nothing about what the closure saw.
    fn admit(&mut self, mut job: Box<dyn Job>, group: &mut Group) {
        if let Some(fenced) = self.shared.fence.get() {
            return job.finish(Err(fenced.clone().into()));
        }
        let mut txn = Txn::new(&self.shared.state, &group.changes);
        let ran = catch_unwind(AssertUnwindSafe(|| job.run(&mut txn)));
        let failure = match ran {
            Ok(false) => None,
            Err(payload) => Some(CommitFailure::Panicked(panic_message(payload.as_ref()).into())),
            Ok(true) => match txn.into_rows() {
                Err(e) => Some(CommitFailure::Change(Arc::new(e))),
                Ok(rows) if rows.is_empty() => None,
                Ok(rows) => self.add(rows, group).err(),
            },
        };
        group.jobs.push((job, failure));
    }

    /// An error if the group before, which the closure saw, was not kept.
    fn add(&mut self, rows: Rows, group: &mut Group) -> Result<(), CommitFailure> {
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

    /// Makes a group durable and answers all of it.
    fn settle(&mut self, group: Group) -> Result<(), CommitFailure> {
        let outcome = if group.records.is_empty() { Ok(()) } else { self.write(&group) };
        for (job, failure) in group.jobs {
            job.finish(match failure {
                Some(own) => Err(own),
                None => outcome.clone(),
            });
        }
        outcome
    }

    fn write(&mut self, group: &Group) -> Result<(), CommitFailure> {
        if let Some(fenced) = self.shared.fence.get() {
            return Err(fenced.clone().into());
        }
        self.reserve.room().map_err(|e| CommitFailure::NoRoom(Arc::new(e)))?;
        let seq = self.journal.append(&group.records).map_err(|e| match e {
            AppendError::NoRoom(e) => CommitFailure::NoRoom(Arc::new(e)),
            AppendError::Unknown(e) => self.shared.fence(&with_sources(&e)).into(),
        })?;
        let applied: Result<(), DatabaseError> = self.shared.state.apply(&mut self.meta, &group.changes, seq);
        applied.map_err(|e| self.shared.fence(&with_sources(&e)).into())
    }
}
