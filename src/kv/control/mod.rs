//! Control: users, organisations, keys, sessions and similar records; every accepted change is
//! durable before its reply.
//!
//! Control is one sled tree. The first byte of a key is its table, and a change is one batch across
//! all tables. A change is a closure that runs on the committer's thread, so its checks (a code
//! used once, the last owner) and its writes are atomic. Order of durability: journal, sync, sled,
//! sync, reply (docs/storage.md section 6).

mod committer;
mod copies;
mod export;
mod offline;
mod open;
mod state;
mod txn;

pub use committer::{CommitError, CommitFailure, Fenced};
pub use copies::{AccountCopyError, CopiedChange, KnownChanges, StandbyRole, StandbyRow, no_rows_check};
pub(super) use export::store_of_export;
pub use export::{ExportError, ExportReport};
pub use offline::{OfflineControl, OfflineError, OfflineFacts};
pub use open::{ControlOptions, OpenError, RecoveryReport, Start};
pub use txn::{CHANGE_BYTES_MAX, CHANGE_ROWS_MAX, ChangeError, Txn};

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;

use super::database::DatabaseError;
use super::folder::DataFolder;
use super::journal::Journal;
use super::key::TableKey;
use super::record::{self, Record, SideRecord};
use super::reserve::Reserve;
use crate::model::Timestamp;
use crate::sync::IgnorePoison as _;
use committer::{Committer, CommitterRequest, ExportTrigger, Exports, SharedControl};
use copies::{RecentChanges, WaitingChanges};
use state::{ControlState, Meta};

/// Maximum number of queued changes; further callers block until one is taken.
const QUEUE_MAX: usize = 1_024;
/// Number of side rows stored in one change.
const SIDE_ROWS_A_CHANGE: usize = 32;

/// The open accounts database. It is shared by reference; [`Control::close`] or a drop finishes the
/// queued changes.
pub struct Control {
    shared: Arc<SharedControl>,
    jobs: Option<SyncSender<CommitterRequest>>,
    thread: Option<JoinHandle<()>>,
    #[cfg(test)]
    faults: Arc<super::journal::Faults>,
    /// Free space that a test pretends.
    #[cfg(test)]
    free: Arc<std::sync::atomic::AtomicU64>,
}

#[cfg(test)]
impl Control {
    /// Pretends that the disk has this much free space; 0 is a full one, `u64::MAX` ends it.
    pub(crate) fn pretend_free(&self, bytes: u64) {
        self.free.store(bytes, std::sync::atomic::Ordering::SeqCst);
    }
}

/// The result of storing a batch of side rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SideReport {
    /// Number of stored rows.
    pub kept: usize,
    /// Number of rows dropped because their main row no longer exists.
    pub dropped: usize,
}

/// The relation of a master key to the secrets sealed in this store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyBinding {
    /// The store had no key; it is bound to this one from now on.
    First,
    /// The key is that of the store.
    Same,
    /// The key differs from that of the store: it opens no sealed secret.
    Other,
}

/// HMAC(master key, store id), in table 0.
#[derive(serde::Serialize, serde::Deserialize)]
struct KeyMark([u8; 32]);

impl Record for KeyMark {
    const TABLE: u8 = 0;
    const KIND: u8 = 2;
    const VERSION: u8 = 1;
    type Key = String;
}

impl Control {
    /// Opens or creates control in `folder` and recovers from a crash or damage (docs/storage.md
    /// section 10, step 3).
    ///
    /// # Errors
    /// [`OpenError`], which names the damage or the missing changes.
    pub fn open(
        folder: &DataFolder,
        options: &ControlOptions,
    ) -> Result<(Control, RecoveryReport), OpenError> {
        open::open(folder, options)
    }

    fn start(
        state: ControlState,
        journal: Journal,
        meta: Meta,
        reserve: Reserve,
        exports: Exports,
    ) -> Result<Control, std::io::Error> {
        #[cfg(test)]
        let (faults, free) = (Arc::clone(&journal.faults), Arc::clone(&reserve.pretended));
        let shared = Arc::new(SharedControl {
            state,
            fence: OnceLock::new(),
            gate: Arc::default(),
            recent: Mutex::new(RecentChanges::after(meta.seq)),
            is_unconfirmed: AtomicBool::new(false),
        });
        let (jobs, requests) = sync_channel::<CommitterRequest>(QUEUE_MAX);
        let waiting = WaitingChanges::default();
        let committer = Committer { shared: Arc::clone(&shared), journal, meta, reserve, exports, waiting };
        let thread =
            std::thread::Builder::new().name("control".to_owned()).spawn(move || committer.run(&requests))?;
        Ok(Control {
            shared,
            jobs: Some(jobs),
            thread: Some(thread),
            #[cfg(test)]
            faults,
            #[cfg(test)]
            free,
        })
    }

    /// Makes a change and waits until it is durable.
    ///
    /// `closure` runs on the committer's thread, in order with all others, and sees every earlier
    /// change. Its rows are stored if it returns `Ok`; the reply to an `Ok` without rows is sent
    /// once the state that it read is durable. The closure must be short and must not call control.
    ///
    /// # Errors
    /// [`CommitError::Refused`] with the closure's own error; [`CommitError::Failed`] if the change
    /// could not be made durable. After [`CommitFailure::Fenced`] the change may still be present
    /// after the next start.
    pub fn commit<T, E, F>(&self, closure: F) -> Result<T, CommitError<E>>
    where
        F: FnOnce(&mut Txn<'_>) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: Send + 'static,
    {
        let result = Arc::new(Mutex::new(None));
        let kept = Arc::clone(&result);
        self.change(Box::new(move |txn| {
            let made = closure(txn);
            let stores_rows = made.is_ok();
            *kept.lock().ignore_poison() = Some(made);
            stores_rows
        }))
        .map_err(CommitError::Failed)?;
        let made = result.lock().ignore_poison().take();
        made.ok_or(CommitError::Failed(CommitFailure::Closed))?.map_err(CommitError::Refused)
    }

    /// The part of [`Control::commit`] that does not depend on the types of the result: `run` makes
    /// the change and returns whether its rows are to be stored.
    fn change(&self, run: Box<dyn FnOnce(&mut Txn<'_>) -> bool + Send>) -> Result<(), CommitFailure> {
        let (reply, outcome) = sync_channel(1);
        let jobs = self.jobs.as_ref().ok_or(CommitFailure::Closed)?;
        jobs.send(CommitterRequest::Change { run, reply }).map_err(|_| CommitFailure::Closed)?;
        outcome.recv().map_err(|_| CommitFailure::Closed)?
    }

    /// Stores rows that are ignored without their main row (last seen, last used), 32 in a change.
    ///
    /// The committer drops a row whose main row no longer exists, so a late batch never makes a
    /// revoked row valid again.
    ///
    /// # Errors
    /// As for [`Control::commit`]; rows of earlier changes of this call are stored then.
    pub fn put_side<R>(&self, entries: Vec<(R::Key, R)>) -> Result<SideReport, CommitError<DatabaseError>>
    where
        R: SideRecord + Send + 'static,
        R::Key: Send + 'static,
    {
        let mut report = SideReport::default();
        let mut entries = entries.into_iter();
        loop {
            let some: Vec<_> = entries.by_ref().take(SIDE_ROWS_A_CHANGE).collect();
            if some.is_empty() {
                return Ok(report);
            }
            let all = some.len();
            let kept = self.commit(move |tx| {
                let mut kept = 0;
                for (key, value) in &some {
                    kept += usize::from(tx.put_side::<R>(key, value)?);
                }
                Ok::<_, DatabaseError>(kept)
            })?;
            report.kept += kept;
            report.dropped += all - kept;
        }
    }

    /// Returns the committed value under `key`.
    ///
    /// # Errors
    /// [`DatabaseError`] if the database fails or the row is damaged.
    pub fn get<R: Record>(&self, key: &R::Key) -> Result<Option<R>, DatabaseError> {
        let state = &self.shared.state;
        let key = record::full_key::<R>(key);
        let _moment = state.reading();
        state.value(&key, &|row| state.row(row))
    }

    /// Returns every committed value whose key begins with `leading` (`&()` for the whole table),
    /// in key order and from one moment. All values are held in memory: for tables of the size of
    /// an organisation's members, not for samples.
    ///
    /// # Errors
    /// As for [`Control::get`].
    pub fn scan<R: Record>(&self, leading: &impl TableKey) -> Result<Vec<(R::Key, R)>, DatabaseError> {
        let state = &self.shared.state;
        let prefix = record::prefix::<R, _>(leading);
        let rows = {
            let _moment = state.reading();
            state.rows(&prefix)?
        };
        txn::collect::<R>(&rows).map_err(|e| state.damaged(e))
    }

    /// Returns the last `limit` values whose keys begin with `leading` and are below `below`
    /// (exclusive), in descending key order.
    ///
    /// # Errors
    /// As for [`Control::get`].
    pub fn scan_back<R: Record>(
        &self,
        leading: &impl TableKey,
        below: Option<&R::Key>,
        limit: usize,
    ) -> Result<Vec<(R::Key, R)>, DatabaseError> {
        let state = &self.shared.state;
        let prefix = record::prefix::<R, _>(leading);
        let below = below.map(record::full_key::<R>);
        let rows = {
            let _moment = state.reading();
            state.rows_back(&prefix, below.as_deref(), limit)?
        };
        let mut found = txn::collect::<R>(&rows).map_err(|e| state.damaged(e))?;
        found.reverse();
        Ok(found)
    }

    /// Returns whether changes are accepted; reads work in both cases.
    ///
    /// # Errors
    /// [`Fenced`], with the first failure.
    pub fn health(&self) -> Result<(), Fenced> {
        match self.shared.fence.get() {
            Some(fenced) => Err(fenced.clone()),
            None => Ok(()),
        }
    }

    /// Refuses further changes until the next start, as after a failed sync. Callers use it if the
    /// disk cannot be trusted, or to demonstrate this state.
    pub fn refuse_changes(&self, why: &str) {
        self.shared.fence(why);
    }

    /// Makes the syncs of the journal fail from now on.
    #[cfg(test)]
    pub(crate) fn fail_syncs(&self) {
        self.faults.journal_sync.store(true, std::sync::atomic::Ordering::SeqCst);
    }

    /// Compares the mark of a master key, HMAC(key, store id), with that of the key that this store
    /// is bound to.
    ///
    /// # Errors
    /// As for [`Control::commit`].
    pub fn bind_master_key(&self, mark: [u8; 32]) -> Result<KeyBinding, CommitError<DatabaseError>> {
        self.commit(move |tx| {
            let key = "master key".to_owned();
            Ok(match tx.get::<KeyMark>(&key)? {
                None => {
                    tx.put(&key, &KeyMark(mark));
                    KeyBinding::First
                }
                Some(KeyMark(bound)) if bound == mark => KeyBinding::Same,
                Some(_) => KeyBinding::Other,
            })
        })
    }

    /// Binds this store to another master key. The caller has removed the secrets sealed with the
    /// previous one.
    ///
    /// # Errors
    /// As for [`Control::commit`].
    pub fn rebind_master_key(&self, mark: [u8; 32]) -> Result<(), CommitError<DatabaseError>> {
        self.commit(move |tx| {
            tx.put(&"master key".to_owned(), &KeyMark(mark));
            Ok(())
        })
    }

    /// Writes an export if one is due: 2 MiB of journal have gathered, or 15 minutes have passed
    /// since the last one and anything has changed. Call it about once a minute.
    ///
    /// # Errors
    /// [`ExportError`]: the journal still has all changes, and the next call retries.
    pub fn export_if_due(&self, now: Timestamp) -> Result<Option<ExportReport>, ExportError> {
        let (reply, answer) = sync_channel(1);
        self.send(CommitterRequest::Export { trigger: ExportTrigger::IfDue(now), reply })?;
        answer.recv().map_err(|_| ExportError::Closed("control is closed".to_owned()))?
    }

    /// Copies the files from which control is rebuilt into `to`: `exports/` with a new export and
    /// the previous one, and `journal/`. No change is made meanwhile; nothing in `to` is synced.
    ///
    /// # Errors
    /// [`ExportError`]; files already copied stay.
    pub fn copy_to(&self, to: &Path) -> Result<ExportReport, ExportError> {
        let (reply, answer) = sync_channel(1);
        self.send(CommitterRequest::Copy { to: to.to_owned(), reply })?;
        answer.recv().map_err(|_| ExportError::Closed("control is closed".to_owned()))?
    }

    fn send(&self, work: CommitterRequest) -> Result<(), ExportError> {
        let closed = || ExportError::Closed("control is closed".to_owned());
        self.jobs.as_ref().ok_or_else(closed)?.send(work).map_err(|_| closed())
    }

    /// Finishes the queued changes, writes an export if anything has changed since the last one,
    /// and closes the files.
    ///
    /// # Errors
    /// [`CloseError`] if control was fenced or its files could not be synced; the stop then does
    /// not count as clean.
    pub fn close(mut self) -> Result<(), CloseError> {
        let (reply, answer) = sync_channel(1);
        if self.send(CommitterRequest::Export { trigger: ExportTrigger::IfChanged, reply }).is_ok()
            && let Ok(Err(error)) = answer.recv()
        {
            let error = super::with_sources(&error);
            tracing::warn!(
                "no last export of the accounts was written, the journal still has all changes: {error}"
            );
        }
        self.stop();
        self.health()?;
        let shared = Arc::clone(&self.shared);
        drop(self);
        match Arc::try_unwrap(shared) {
            Ok(shared) => Ok(shared.state.close()?),
            Err(_) => unreachable_share(),
        }
    }

    fn stop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the committer is already recorded in the fence.
            let _ = thread.join();
        }
    }
}

/// The thread has ended, and the state is shared with it only, so this is unreachable. All files
/// were synced by the commits.
fn unreachable_share() -> Result<(), CloseError> {
    debug_assert!(false, "control's state is still shared after its thread ended");
    Ok(())
}

impl Drop for Control {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Errors of [`Control::close`].
#[derive(Debug, thiserror::Error)]
pub enum CloseError {
    /// An earlier failure fenced control.
    #[error(transparent)]
    Fenced(#[from] Fenced),
    /// The files could not be closed.
    #[error(transparent)]
    Database(#[from] DatabaseError),
}

#[cfg(test)]
mod export_tests;
#[cfg(test)]
mod tests;
