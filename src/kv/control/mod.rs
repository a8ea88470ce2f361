//! Control: users, organisations, keys, sessions and the like, every accepted change durable before its reply.
//!
//! One sled tree; the first byte of a key is its table, and one change is one batch across all tables. A change is a
//! closure that runs on the committer's thread, so what it checks (a code used once, the last owner) is checked where
//! the change happens. Order of durability: journal, sync, sled, sync, reply (docs/storage.md section 6).

mod committer;
mod export;
mod offline;
mod open;
mod state;
mod txn;

pub use committer::{CommitError, CommitFailure, Fenced};
pub(super) use export::store_of_export;
pub use export::{ExportError, ExportReport};
pub use offline::{OfflineControl, OfflineError, OfflineFacts};
pub use open::{ControlOptions, OpenError, RecoveryReport, Start};
pub use txn::{CHANGE_BYTES_MAX, CHANGE_ROWS_MAX, ChangeError, Txn};

use std::path::Path;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use super::database::DatabaseError;
use super::folder::DataFolder;
use super::frame::DamagedRow;
use super::journal::Journal;
use super::key::TableKey;
use super::record::{self, Record, SideRecord};
use super::reserve::Reserve;
use super::rows;
use crate::model::Timestamp;
use committer::{Change, Committer, Exports, Shared, Wish, Work};
use state::{Meta, State};

/// Changes that may wait; whoever comes next waits to be let in.
const QUEUE_MAX: usize = 1_024;
/// Side rows of one change.
const SIDE_ROWS_A_CHANGE: usize = 32;

/// The open accounts database. Shared by reference; [`Control::close`] or a drop finishes what waits.
pub struct Control {
    shared: Arc<Shared>,
    jobs: Option<SyncSender<Work>>,
    thread: Option<JoinHandle<()>>,
    #[cfg(test)]
    faults: Arc<super::journal::Faults>,
    /// What a test says is free on the disk.
    #[cfg(test)]
    free: Arc<std::sync::atomic::AtomicU64>,
}

/// What became of a batch of side rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SideReport {
    /// Stored.
    pub kept: usize,
    /// Dropped, since their main row is gone.
    pub dropped: usize,
}

/// Whether the secrets sealed in this store can be opened with the master key at hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyBinding {
    /// The store had no key yet; it is bound to this one from now on.
    First,
    /// It is the key of this store.
    Same,
    /// It is another key: nothing sealed can be read with it.
    Other,
}

/// HMAC(master key, store id), in the table of this room.
#[derive(serde::Serialize, serde::Deserialize)]
struct KeyMark([u8; 32]);

impl Record for KeyMark {
    const TABLE: u8 = 0;
    const KIND: u8 = 2;
    const VERSION: u8 = 1;
    type Key = String;
}

impl Control {
    /// Opens or creates control in `folder`, recovering what a crash or damage left (docs/storage.md section 10, step 3).
    ///
    /// # Errors
    /// [`OpenError`], which names what is damaged or missing.
    pub fn open(
        folder: &DataFolder,
        options: &ControlOptions,
    ) -> Result<(Control, RecoveryReport), OpenError> {
        open::open(folder, options)
    }

    fn start(
        state: State,
        journal: Journal,
        meta: Meta,
        reserve: Reserve,
        exports: Exports,
    ) -> Result<Control, std::io::Error> {
        #[cfg(test)]
        let (faults, free) = (Arc::clone(&journal.faults), Arc::clone(&reserve.pretended));
        let shared = Arc::new(Shared { state, fence: OnceLock::new() });
        let (jobs, waiting) = sync_channel::<Work>(QUEUE_MAX);
        let committer = Committer { shared: Arc::clone(&shared), journal, meta, reserve, exports };
        let thread =
            std::thread::Builder::new().name("control".to_owned()).spawn(move || committer.run(&waiting))?;
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

    /// Makes one change and waits until it is durable.
    ///
    /// `closure` runs on the committer's thread, in order with all others, and sees every change before it. Its rows
    /// are kept if it returns `Ok`; an `Ok` without rows is answered once what it saw is durable. It must be short
    /// and must not call back into control.
    ///
    /// # Errors
    /// [`CommitError::Refused`] with the closure's own error; [`CommitError::Failed`] when it could not be made
    /// durable. After [`CommitFailure::Fenced`] the change may still turn up at the next start.
    pub fn commit<T, E, F>(&self, closure: F) -> Result<T, CommitError<E>>
    where
        F: FnOnce(&mut Txn<'_>) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: Send + 'static,
    {
        let closed = || CommitError::Failed(CommitFailure::Closed);
        let (reply, answer) = sync_channel(1);
        let job = Box::new(Change { closure: Some(closure), answer: None, reply });
        self.jobs.as_ref().ok_or_else(closed)?.send(Work::Change(job)).map_err(|_| closed())?;
        answer.recv().map_err(|_| closed())?
    }

    /// Stores rows that mean nothing without their main row (last seen, last used), in changes of 32.
    ///
    /// A row whose main row is gone is dropped by the committer, so that a late batch never brings back what was
    /// revoked.
    ///
    /// # Errors
    /// As [`Control::commit`]; rows of earlier changes of this call are stored then.
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

    /// The committed value under `key`.
    ///
    /// # Errors
    /// When the database fails or the row is damaged.
    pub fn get<R: Record>(&self, key: &R::Key) -> Result<Option<R>, DatabaseError> {
        let state = &self.shared.state;
        let key = record::full_key::<R>(key);
        let _moment = state.reading();
        let Some(first) = state.row(&key)? else { return Ok(None) };
        let mut failed = None;
        let joined = rows::join(&key, &first, |further| {
            Ok::<_, DamagedRow>(state.row(further).unwrap_or_else(|e| {
                failed = Some(e);
                None
            }))
        });
        match failed {
            Some(e) => Err(e),
            None => joined
                .and_then(|(frame, body)| record::decode(&key, frame, &body))
                .map(Some)
                .map_err(|e| state.damaged(e)),
        }
    }

    /// Every committed value whose key begins with `leading` (`&()` for the whole table), in key order, of one
    /// moment. Costs memory for all of them: for tables as large as an organisation's members, not for samples.
    ///
    /// # Errors
    /// As [`Control::get`].
    pub fn scan<R: Record>(&self, leading: &impl TableKey) -> Result<Vec<(R::Key, R)>, DatabaseError> {
        let state = &self.shared.state;
        let prefix = record::prefix::<R, _>(leading);
        let rows = {
            let _moment = state.reading();
            state.rows(&prefix)?
        };
        txn::collect::<R>(&rows).map_err(|e| state.damaged(e))
    }

    /// The last `limit` values whose keys begin with `leading` and are below `below`, from the greatest key down.
    ///
    /// # Errors
    /// As [`Control::get`].
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

    /// Whether changes are accepted; reads go on either way.
    ///
    /// # Errors
    /// [`Fenced`], with what failed.
    pub fn health(&self) -> Result<(), Fenced> {
        match self.shared.fence.get() {
            Some(fenced) => Err(fenced.clone()),
            None => Ok(()),
        }
    }

    /// Takes no more changes until the next start, as after a sync that failed: for who knows otherwise that the disk is not to
    /// be trusted, and to see what people are told then.
    pub fn refuse_changes(&self, why: &str) {
        self.shared.fence(why);
    }

    /// Whether the journal's syncs fail from now on.
    #[cfg(test)]
    pub(crate) fn fail_syncs(&self, on: bool) {
        self.faults.journal_sync.store(on, std::sync::atomic::Ordering::SeqCst);
    }

    /// Compares the mark of the master key, HMAC(key, store id), with the one that this store was bound to.
    ///
    /// # Errors
    /// As [`Control::commit`].
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

    /// Binds this store to another master key: the caller has dropped what the one before sealed.
    ///
    /// # Errors
    /// As [`Control::commit`].
    pub fn rebind_master_key(&self, mark: [u8; 32]) -> Result<(), CommitError<DatabaseError>> {
        self.commit(move |tx| {
            tx.put(&"master key".to_owned(), &KeyMark(mark));
            Ok(())
        })
    }

    /// Makes an export if one is due: 2 MiB of journal have gathered, or 15 minutes have passed since the last one and
    /// anything changed. To be called about every minute.
    ///
    /// # Errors
    /// [`ExportError`]: the journal keeps everything, and the next call tries again.
    pub fn export_if_due(&self, now: Timestamp) -> Result<Option<ExportReport>, ExportError> {
        let (reply, answer) = sync_channel(1);
        self.send(Work::Export { wish: Wish::IfDue(now), reply })?;
        answer.recv().map_err(|_| ExportError::Closed("control is closed".to_owned()))?
    }

    /// Copies what control is rebuilt from into `to`: `exports/` with one of this moment and the one before it, and
    /// `journal/`. No change is made meanwhile; nothing in `to` is synced.
    ///
    /// # Errors
    /// [`ExportError`]; what was copied stays.
    pub fn copy_to(&self, to: &Path) -> Result<ExportReport, ExportError> {
        let (reply, answer) = sync_channel(1);
        self.send(Work::Copy { to: to.to_owned(), reply })?;
        answer.recv().map_err(|_| ExportError::Closed("control is closed".to_owned()))?
    }

    fn send(&self, work: Work) -> Result<(), ExportError> {
        let closed = || ExportError::Closed("control is closed".to_owned());
        self.jobs.as_ref().ok_or_else(closed)?.send(work).map_err(|_| closed())
    }

    /// Finishes what waits, makes an export if anything changed since the last one, and closes the files.
    ///
    /// # Errors
    /// [`CloseError`] if control was fenced or its files could not be synced: the stop was not a clean one.
    pub fn close(mut self) -> Result<(), CloseError> {
        let (reply, answer) = sync_channel(1);
        if self.send(Work::Export { wish: Wish::IfChanged, reply }).is_ok()
            && let Ok(Err(error)) = answer.recv()
        {
            let error = super::with_sources(&error);
            tracing::warn!("no last export of the accounts was made, the journal keeps everything: {error}");
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
            // A panic of the committer is in the fence already.
            let _ = thread.join();
        }
    }
}

/// The thread has ended and nobody else is given the state, so this is not reached; files were synced by every commit.
fn unreachable_share() -> Result<(), CloseError> {
    debug_assert!(false, "control's state is still shared after its thread ended");
    Ok(())
}

impl Drop for Control {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Why a close was not a clean one.
#[derive(Debug, thiserror::Error)]
pub enum CloseError {
    /// Changes were refused since an earlier failure.
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
