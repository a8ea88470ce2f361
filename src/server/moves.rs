//! Moves of organisations that this server carries out: a thread for each, which starts with the
//! command and after every start of the server, until the organisation is switched.

mod command;
mod environment;
mod target;

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::Handle;

use crate::clock::Clock;
use crate::identity::{Identity, MoveRow, MoveStep};
use crate::kv::with_sources;
use crate::model::{OrgId, TimeRange};
use crate::moves::{MoveStop, Mover};
use crate::outbound::Egress;
use crate::sync::IgnorePoison as _;
use crate::tsdb::{ConsumerId, ConsumerKind, Tsdb};
use environment::ServerMove;
use target::MoveTarget;

/// The most moves at once.
const MOVES_MAX: usize = 4;

/// The state of a running or ended move, for reports.
#[derive(Clone, Debug)]
struct MoveState {
    row: MoveRow,
    /// Refusals and differences.
    notes: Vec<String>,
    /// The reason why the move waits.
    waits_for: Option<String>,
    /// The reason why it ended early.
    error: Option<String>,
    is_running: bool,
}

/// A flag that ends pauses.
#[derive(Debug, Default)]
struct StopFlag {
    is_set: Mutex<bool>,
    changed: Condvar,
}

impl StopFlag {
    fn set(&self) {
        *self.is_set.lock().ignore_poison() = true;
        self.changed.notify_all();
    }

    /// Waits for `time`. Returns whether the flag is set.
    fn wait(&self, time: Duration) -> bool {
        let is_set = self.is_set.lock().ignore_poison();
        // The lock is poisoned only by a panic of a holder, and no holder panics.
        let waited = self.changed.wait_timeout_while(is_set, time, |is_set| !*is_set);
        waited.map_or(true, |(is_set, _)| *is_set)
    }
}

struct MoveJob {
    state: Arc<Mutex<MoveState>>,
    stop: Arc<StopFlag>,
    thread: Option<JoinHandle<()>>,
}

/// All moves of the server.
pub(super) struct Moves {
    identity: Arc<Identity>,
    tsdb: Arc<Tsdb>,
    clock: Clock,
    egress: Egress,
    runtime: Handle,
    jobs: Mutex<BTreeMap<OrgId, MoveJob>>,
}

impl Moves {
    pub(super) fn new(
        identity: Arc<Identity>,
        tsdb: Arc<Tsdb>,
        clock: Clock,
        egress: Egress,
        runtime: Handle,
    ) -> Moves {
        Moves { identity, tsdb, clock, egress, runtime, jobs: Mutex::default() }
    }

    fn jobs(&self) -> MutexGuard<'_, BTreeMap<OrgId, MoveJob>> {
        self.jobs.lock().ignore_poison()
    }

    /// Continues the moves that an earlier process began.
    pub(super) fn resume(&self) {
        let rows = match self.identity.moves() {
            Ok(rows) => rows,
            Err(error) => {
                return tracing::warn!("moves cannot be continued: {}", with_sources(&error));
            }
        };
        for (org, row) in rows.into_iter().filter(|(_, row)| row.step.is_running()) {
            if let Err(error) = self.run(org, row, false) {
                tracing::warn!(org = org.0, "the move of an organisation cannot be continued: {error}");
            }
        }
    }

    /// Starts the thread of a move.
    fn run(&self, org: OrgId, row: MoveRow, accept_differences: bool) -> Result<(), String> {
        let mut jobs = self.jobs();
        let is_running = |job: &MoveJob| job.state.lock().ignore_poison().is_running;
        if jobs.get(&org).is_some_and(is_running) {
            return Err("the move is already running: `--status` shows it".to_owned());
        }
        if jobs.values().filter(|job| is_running(job)).count() >= MOVES_MAX {
            return Err(format!("{MOVES_MAX} moves are running, which is the limit"));
        }
        let target = self.identity.move_target(org, &row).map_err(|error| with_sources(&error))?;
        let target = MoveTarget::read(&target)?;
        let state =
            MoveState { row: row.clone(), notes: Vec::new(), waits_for: None, error: None, is_running: true };
        let state = Arc::new(Mutex::new(state));
        let stop = Arc::new(StopFlag::default());
        let mut environment = ServerMove::new(self, org, &target, Arc::clone(&state), Arc::clone(&stop))?;
        let options = target.mover_options(accept_differences);
        let shared = Arc::clone(&state);
        let work = move || {
            let ended = Mover::new(&mut environment, row, options).run();
            let mut state = shared.lock().ignore_poison();
            state.is_running = false;
            state.waits_for = None;
            match ended {
                Ok(()) => tracing::info!(org = org.0, "the organisation was moved"),
                Err(MoveStop::Stopping) => {}
                Err(MoveStop::Failed(reason)) => {
                    tracing::warn!(org = org.0, "the move of an organisation stopped: {reason}");
                    state.error = Some(reason);
                }
            }
        };
        let thread = std::thread::Builder::new().name("move".to_owned()).spawn(work);
        let thread = Some(thread.map_err(|error| error.to_string())?);
        jobs.insert(org, MoveJob { state, stop, thread });
        Ok(())
    }

    /// Returns the state of a move, if its row exists.
    fn state(&self, org: OrgId) -> Result<Option<MoveState>, String> {
        let job = self.jobs().get(&org).map(|job| job.state.lock().ignore_poison().clone());
        let row = self.identity.move_of(org).map_err(|error| with_sources(&error))?;
        Ok(row.map(|row| match job {
            Some(job) => MoveState { row: MoveRow { counts: job.row.counts, ..row }, ..job },
            None => MoveState { row, notes: Vec::new(), waits_for: None, error: None, is_running: false },
        }))
    }

    /// Ends the thread of a move, which stays as it is stored.
    fn stop_one(&self, org: OrgId) {
        let job = self.jobs().remove(&org);
        job.into_iter().for_each(MoveJob::end);
    }

    /// Lets the log remove the records that a move needed.
    fn unpin(&self, org: OrgId) -> Result<(), String> {
        let consumer = ConsumerId { kind: ConsumerKind::Move, number: u64::from(org.0) };
        self.tsdb.unpin(consumer).map_err(|error| with_sources(&error))
    }

    /// Removes the samples of an organisation. Returns the number of series.
    fn delete_samples(&self, org: OrgId) -> Result<u64, String> {
        let report = self.tsdb.delete(org, &[Vec::new()], TimeRange::ALL, self.clock.now());
        report.map(|report| report.series).map_err(|error| with_sources(&error))
    }

    /// Tells all threads to end.
    pub(super) fn begin_stop(&self) {
        self.jobs().values().for_each(|job| job.stop.set());
    }

    /// Ends all threads. The moves continue with the next start.
    pub(super) fn stop(&self) {
        let jobs = std::mem::take(&mut *self.jobs());
        jobs.values().for_each(|job| job.stop.set());
        jobs.into_values().for_each(MoveJob::end);
    }
}

impl MoveJob {
    fn end(mut self) {
        self.stop.set();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported when it happened.
            let _ = thread.join();
        }
    }
}

/// Returns the position of a move as text, and its part of the whole if that is known.
fn position(row: &MoveRow) -> Option<(i64, i64)> {
    match row.step {
        MoveStep::History { cut_ms, next, .. } => Some((next.window_ms, cut_ms)),
        MoveStep::Tail { compared_ms, cut_ms, .. } => Some((compared_ms, cut_ms)),
        MoveStep::Fetch { next_ms, until_ms } => Some((next_ms, until_ms)),
        MoveStep::Planned | MoveStep::Switched | MoveStep::Dropped => None,
    }
}
