//! A job of a lane, its state, and the reply to its caller.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::oneshot;

use crate::sync::IgnorePoison as _;

/// A job in the queue of a lane.
pub(super) struct LaneJob {
    pub(super) state: Arc<LaneJobState>,
    /// Whether the job waits behind those of its organisation that do not yield.
    pub(super) yields: bool,
    /// The work, which sends the reply itself. It does not unwind.
    pub(super) work: Box<dyn FnOnce() + Send>,
}

/// The state of a job, which its caller and the threads of the lane share. It changes once: a job
/// is either started by a thread or abandoned by its caller, whichever comes first.
#[derive(Debug, Default)]
pub(super) struct LaneJobState(AtomicU8);

const WAITING: u8 = 0;
const STARTED: u8 = 1;
const ABANDONED: u8 = 2;

impl LaneJobState {
    /// Starts the job. Returns false if its caller has abandoned it.
    pub(super) fn start(&self) -> bool {
        self.leave_waiting(STARTED)
    }

    /// Abandons the job. Returns false if it has started.
    pub(super) fn abandon(&self) -> bool {
        self.leave_waiting(ABANDONED)
    }

    /// Returns whether a thread has started the job.
    pub(super) fn has_started(&self) -> bool {
        self.0.load(Ordering::SeqCst) == STARTED
    }

    /// Returns whether its caller has abandoned the job.
    pub(super) fn is_abandoned(&self) -> bool {
        self.0.load(Ordering::SeqCst) == ABANDONED
    }

    fn leave_waiting(&self, next: u8) -> bool {
        self.0.compare_exchange(WAITING, next, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }
}

/// Sends the result of a job to its caller.
///
/// The result passes beside the channel, so that the code that queues a job and waits for it is
/// compiled once, and not for each type of result.
#[derive(Debug)]
pub struct Reply<T> {
    pub(super) result: Arc<Mutex<Option<T>>>,
    pub(super) done: oneshot::Sender<()>,
}

impl<T> Reply<T> {
    /// Sends the result.
    ///
    /// # Errors
    /// The result, if the caller was dropped.
    pub fn send(self, result: T) -> Result<(), T> {
        *self.result.lock().ignore_poison() = Some(result);
        match self.done.send(()) {
            Ok(()) => Ok(()),
            Err(()) => self.result.lock().ignore_poison().take().map_or(Ok(()), Err),
        }
    }
}

/// Sets its flag on drop. A handler holds one while its query runs, so that a closed connection
/// cancels the query.
#[derive(Debug)]
pub struct CancelOnDrop(Arc<AtomicBool>);

impl CancelOnDrop {
    /// Returns a guard that sets `flag`.
    pub fn new(flag: Arc<AtomicBool>) -> CancelOnDrop {
        CancelOnDrop(flag)
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
