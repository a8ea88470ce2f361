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
use tokio::sync::Notify;

use crate::api::own_metrics::{MoveFigure, MoveFigures};
use crate::clock::Clock;
use crate::identity::{Identity, MoveRow, MoveStep};
use crate::kv::with_sources;
use crate::model::{OrgId, TimeRange};
use crate::moves::{MoveStop, Mover};
use crate::outbound::Egress;
use crate::sync::IgnorePoison as _;
use crate::tsdb::{ConsumerId, ConsumerKind, LogPosition, Tsdb};
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
    /// Whether its thread works towards the switch.
    is_running: bool,
}

/// A flag that ends pauses and requests.
#[derive(Debug, Default)]
struct StopFlag {
    flag: Mutex<bool>,
    changed: Condvar,
    requests: Notify,
}

impl StopFlag {
    fn set(&self) {
        *self.flag.lock().ignore_poison() = true;
        self.changed.notify_all();
        self.requests.notify_waiters();
    }

    /// Waits for `time`. Returns whether the flag is set.
    fn wait(&self, time: Duration) -> bool {
        let is_set = self.flag.lock().ignore_poison();
        // The lock is poisoned only by a panic of a holder, and no holder panics.
        let waited = self.changed.wait_timeout_while(is_set, time, |is_set| !*is_set);
        waited.map_or(true, |(is_set, _)| *is_set)
    }

    /// Waits until the flag is set.
    async fn is_set(&self) {
        // Created before the flag is read, so that no change is missed.
        let changed = self.requests.notified();
        if !*self.flag.lock().ignore_poison() {
            changed.await;
        }
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
    jobs: Arc<Mutex<BTreeMap<OrgId, MoveJob>>>,
    /// One command at a time changes moves.
    commands: Mutex<()>,
    /// Set when the server stops.
    closing: Arc<StopFlag>,
}

impl Moves {
    pub(super) fn new(
        identity: Arc<Identity>,
        tsdb: Arc<Tsdb>,
        clock: Clock,
        egress: Egress,
        runtime: Handle,
    ) -> Moves {
        let (jobs, commands, closing) = (Arc::default(), Mutex::default(), Arc::default());
        Moves { identity, tsdb, clock, egress, runtime, jobs, commands, closing }
    }

    fn jobs(&self) -> MutexGuard<'_, BTreeMap<OrgId, MoveJob>> {
        self.jobs.lock().ignore_poison()
    }

    /// Continues the moves that have no thread: those that an earlier process began, and those
    /// whose thread ended although their log is to be sent. Ends those of removed organisations.
    /// To be called from time to time by the server that accepts writes.
    pub(super) fn tick(&self) {
        let _one = self.commands.lock().ignore_poison();
        if self.closing.wait(Duration::ZERO) {
            return;
        }
        let Some(rows) = self.open_moves() else { return };
        let is_needed = |org: &OrgId, job: &mut MoveJob| rows.contains_key(org) || job.is_alive();
        self.jobs().retain(is_needed);
        for (org, row) in &rows {
            let is_dead = match self.jobs().get(org) {
                Some(job) => row.step.is_moved() && !job.is_alive(),
                None => true,
            };
            if is_dead && let Err(error) = self.run(*org, row.clone()) {
                self.note_failure(*org, row, &error);
            }
        }
        self.unpin_ended(&rows);
    }

    /// Releases the log records that only ended moves needed.
    fn unpin_ended(&self, rows: &BTreeMap<OrgId, MoveRow>) {
        for pin in self.tsdb.pins() {
            let org = u32::try_from(pin.consumer.number).map(OrgId);
            if pin.consumer.kind == ConsumerKind::Move
                && !org.is_ok_and(|org| rows.contains_key(&org))
                && let Err(error) = self.tsdb.unpin(pin.consumer)
            {
                tracing::warn!("the log is kept for a move that has ended: {}", with_sources(&error));
            }
        }
    }

    /// Returns the moves that have not ended.
    fn open_moves(&self) -> Option<BTreeMap<OrgId, MoveRow>> {
        match self.identity.moves() {
            Ok(rows) => Some(rows.into_iter().filter(|(_, row)| row.step != MoveStep::Returned).collect()),
            Err(error) => {
                tracing::warn!("moves cannot be continued: {}", with_sources(&error));
                None
            }
        }
    }

    /// Ends all threads, and keeps the samples that the primary has not sent, for a promotion. To
    /// be called from time to time by a follower.
    pub(super) fn follow(&self) {
        self.stop();
        let Some(rows) = self.open_moves() else { return };
        self.unpin_ended(&rows);
        for (org, from) in rows.iter().filter_map(|(org, row)| Some((*org, row.step.log_from()?))) {
            match self.tsdb.pin(consumer_of(org), LogPosition(from)) {
                Ok(_) => self.tsdb.advance_pin(consumer_of(org), LogPosition(from)),
                Err(error) => {
                    tracing::warn!(org = org.0, "the log is not kept for a move: {}", with_sources(&error));
                }
            }
        }
    }

    /// Shows that the thread of a move could not be started.
    fn note_failure(&self, org: OrgId, row: &MoveRow, error: &str) {
        let state = MoveState { error: Some(error.to_owned()), ..MoveState::idle(row.clone()) };
        let job = MoveJob { state: Arc::new(Mutex::new(state)), stop: Arc::default(), thread: None };
        let before = self.jobs().insert(org, job);
        let before = before.and_then(|job| job.state.lock().ignore_poison().error.clone());
        if before.as_deref() != Some(error) {
            tracing::warn!(org = org.0, "the move of an organisation cannot be continued: {error}");
        }
    }

    /// Starts the thread of a move, in place of the one that it has. The caller holds the lock of
    /// the commands.
    fn run(&self, org: OrgId, row: MoveRow) -> Result<(), String> {
        self.stop_one(org);
        let running = self.jobs().values().filter(|job| job.is_running()).count();
        if running >= MOVES_MAX && !row.step.is_complete() {
            return Err(format!("{MOVES_MAX} moves are running, which is the limit"));
        }
        if let Some(from) = row.step.log_from() {
            // A promoted standby, and a folder that was restored, have no pin.
            let pinned = self.tsdb.pin(consumer_of(org), LogPosition(from));
            pinned.map_err(|error| with_sources(&error))?;
        }
        let target = self.identity.move_target(org, &row).map_err(|error| with_sources(&error))?;
        let target = MoveTarget::read(&target)?;
        let is_running = !row.step.is_complete();
        let state = Arc::new(Mutex::new(MoveState { is_running, ..MoveState::idle(row.clone()) }));
        let stop = Arc::new(StopFlag::default());
        let mut environment = ServerMove::new(self, org, &target, Arc::clone(&state), Arc::clone(&stop))?;
        let options = target.mover_options();
        let shared = Arc::clone(&state);
        let work = move || {
            let mut mover = Mover::new(&mut environment, row, options);
            let mut ended = mover.run();
            let warn =
                |reason: &str| tracing::warn!(org = org.0, "the move of an organisation stopped: {reason}");
            match &ended {
                Ok(()) => tracing::info!(org = org.0, "the organisation is moved"),
                Err(MoveStop::Failed(reason)) => warn(reason),
                Err(MoveStop::Stopping | MoveStop::Removed) => {}
            }
            // The log is still sent if the move back cannot continue.
            let is_left = matches!(ended, Ok(()) | Err(MoveStop::Failed(_)));
            {
                let mut state = shared.lock().ignore_poison();
                state.is_running = false;
                state.error = ended.as_ref().err().filter(|_| is_left).map(MoveStop::to_string);
            }
            if is_left && mover.forwards() {
                ended = mover.forward().map(|never| match never {});
                if let Err(MoveStop::Failed(reason)) = ended {
                    warn(&reason);
                }
            }
            shared.lock().ignore_poison().waits_for = None;
        };
        let thread = std::thread::Builder::new().name("move".to_owned()).spawn(work);
        let thread = Some(thread.map_err(|error| error.to_string())?);
        self.jobs().insert(org, MoveJob { state, stop, thread });
        Ok(())
    }

    /// Returns the state of a move, if its row exists.
    fn state(&self, org: OrgId) -> Result<Option<MoveState>, String> {
        let job = self.jobs().get(&org).map(|job| job.state.lock().ignore_poison().clone());
        let row = self.identity.move_of(org).map_err(|error| with_sources(&error))?;
        Ok(row.map(|row| match job {
            // The counts in memory are newer than the stored ones.
            Some(job) => MoveState { row: MoveRow { counts: job.row.counts, ..row }, ..job },
            None => MoveState::idle(row),
        }))
    }

    /// Ends the thread of a move. The stored move does not change.
    fn stop_one(&self, org: OrgId) {
        let job = self.jobs().remove(&org);
        job.into_iter().for_each(MoveJob::end);
    }

    /// Lets the log remove the records that a move needed.
    fn unpin(&self, org: OrgId) -> Result<(), String> {
        self.tsdb.unpin(consumer_of(org)).map_err(|error| with_sources(&error))
    }

    /// Removes the samples of an organisation. Returns the number of series.
    fn delete_samples(&self, org: OrgId) -> Result<u64, String> {
        let report = self.tsdb.delete(org, &[Vec::new()], TimeRange::ALL, self.clock.now());
        report.map(|report| report.series).map_err(|error| with_sources(&error))
    }

    /// Tells all threads to end, because the server stops.
    pub(super) fn begin_stop(&self) {
        self.closing.set();
        self.jobs().values().for_each(|job| job.stop.set());
    }

    /// Ends all threads. The moves continue with the next call of [`Moves::tick`], unless the
    /// server stops.
    pub(super) fn stop(&self) {
        let _one = self.commands.lock().ignore_poison();
        let jobs = std::mem::take(&mut *self.jobs());
        jobs.values().for_each(|job| job.stop.set());
        jobs.into_values().for_each(MoveJob::end);
    }

    /// Returns the status of each move whose log is sent.
    pub(super) fn figures(&self) -> MoveFigures {
        let (identity, tsdb) = (Arc::clone(&self.identity), Arc::clone(&self.tsdb));
        let states = Arc::clone(&self.jobs);
        MoveFigures(Arc::new(move || {
            let jobs = states.lock().ignore_poison();
            let shown = jobs.iter().filter_map(|(org, job)| Some((*org, job.figure(&tsdb)?)));
            let shown: Vec<(OrgId, MoveFigure)> = shown.collect();
            drop(jobs);
            shown.into_iter().filter(|(org, _)| identity.is_moved(*org)).collect()
        }))
    }
}

/// Returns the consumer of the log that a move is.
fn consumer_of(org: OrgId) -> ConsumerId {
    ConsumerId { kind: ConsumerKind::Move, number: u64::from(org.0) }
}

impl MoveState {
    /// Returns the state of a move that does nothing.
    fn idle(row: MoveRow) -> MoveState {
        MoveState { row, notes: Vec::new(), waits_for: None, error: None, is_running: false }
    }
}

impl MoveJob {
    fn is_running(&self) -> bool {
        self.state.lock().ignore_poison().is_running && self.is_alive()
    }

    fn is_alive(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Returns the state of a switched move.
    fn figure(&self, tsdb: &Tsdb) -> Option<MoveFigure> {
        let state = self.state.lock().ignore_poison();
        let (next, _) = state.row.step.log_position().filter(|_| state.row.step.is_moved())?;
        let is_behind = LogPosition(next) < tsdb.log_end();
        Some(MoveFigure {
            lag_bytes: if is_behind { tsdb.log_bytes_from(LogPosition(next)) } else { 0 },
            lost_records: state.row.counts.lost_records,
            refused_samples: state.row.counts.refused,
            waits_for: state.waits_for.clone().or_else(|| state.error.clone().filter(|_| !self.is_alive())),
        })
    }

    fn end(mut self) {
        self.stop.set();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported when it happened.
            let _ = thread.join();
        }
    }
}

/// Returns the time that a move has reached, and the time that it has to reach, in milliseconds.
fn position(row: &MoveRow) -> Option<(i64, i64)> {
    match row.step {
        MoveStep::History { cut_ms, next, .. } => Some((next.window_ms, cut_ms)),
        MoveStep::Tail { compared_ms, cut_ms, .. } => Some((compared_ms, cut_ms)),
        MoveStep::Fetch { next_ms, until_ms, .. } => Some((next_ms, until_ms)),
        MoveStep::Planned | MoveStep::Switched { .. } | MoveStep::Returned => None,
    }
}
