//! The one thread that changes control: what waits is one group; journal, sync, sled, sync, then the replies.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, SyncSender};
use std::sync::{Arc, OnceLock};

use super::state::{Meta, State};
use super::txn::{CHANGE_ROWS_MAX, ChangeError, Txn};
use crate::kv::database::{DatabaseError, panic_message};
use crate::kv::files::FileError;
use crate::kv::journal::{self, AppendError, GROUP_BYTES_MAX, Journal};
use crate::kv::reserve::Reserve;
use crate::kv::rows::Rows;
use crate::kv::with_sources;

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
    fn fence(&self, reason: &str) -> Fenced {
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
    pub(super) fn run(mut self, jobs: &Receiver<Box<dyn Job>>) {
        let _guard = FenceOnPanic(Arc::clone(&self.shared));
        while let Ok(job) = jobs.recv() {
            let mut group = Group::default();
            self.admit(job, &mut group);
            while group.jobs.len() < GROUP_JOBS_MAX {
                let Ok(job) = jobs.try_recv() else { break };
                self.admit(job, &mut group);
            }
            // Everyone in the group was told; what is left to know is in the fence.
            let _ = self.settle(group);
            if self.shared.fence.get().is_none() {
                // After the replies, so that no change waits for it. If it fails (full disk), the append that
                // needs the file tries again and answers with the error.
                let _ = self.journal.make_ready();
                // Without it a full disk stops account changes sooner, and nothing else.
                let _ = self.reserve.refill();
            }
        }
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
