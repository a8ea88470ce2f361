//! The recurring tasks of a server.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{Server, ServerError, daily_usage};
use crate::api::own_metrics::OwnMetrics;
use crate::clock::Stopwatch;
use crate::kv;
use crate::model::{BatchBuilder, OrgId, Timestamp};
use crate::tasks::{HostMetrics, Task, TaskContext, remove_deleted};
use crate::tsdb::{AppendReport, Tsdb};

/// How often sessions and API keys in use are recorded on disk (docs/specification.md D1).
const FLUSH_PERIOD: Duration = Duration::from_secs(5);
/// How often the samples stored today are recorded, if their number grew.
const DAY_PERIOD: Duration = Duration::from_secs(60);
/// How often an export of the accounts is made if one is due, or retried if it failed.
const EXPORT_PERIOD: Duration = Duration::from_secs(60);
/// How often checkpoints, seals and merges are made if they are due.
const STORE_PERIOD: Duration = Duration::from_secs(10);
/// How often the end of the log is recorded outside of it: the longest part of a log whose loss, by
/// a rollback after a kill, may go unnoticed.
const MARK_PERIOD: Duration = Duration::from_secs(5);
/// How often deleted organisations are looked for, which reads memory only.
const REMOVAL_PERIOD: Duration = Duration::from_secs(1);

/// How often the folder of dashboards is listed.
const DASHBOARDS_PERIOD: Duration = Duration::from_secs(2);

impl Server {
    /// Reads the folder of dashboards, if there is one, and looks for changes from then on.
    pub(super) fn start_dashboard_files(&mut self) -> Result<(), ServerError> {
        let Some(mut files) = self.dashboard_files.take() else { return Ok(()) };
        let (identity, counters) = (Arc::clone(&self.identity), Arc::clone(&self.counters));
        let mut tick = move |now| {
            let pass = files.pass(now);
            let (shown, failed) = files.counts();
            for report in pass.reports {
                let path = files.dir().join(report.path);
                let last = if report.keeps_last { "; its last good version is kept" } else { "" };
                tracing::warn!("dashboards: {} {}{last}", path.display(), report.problem);
            }
            counters.dashboard_files.store(shown as u64, Ordering::Relaxed);
            counters.dashboard_files_failed.store(failed as u64, Ordering::Relaxed);
            if pass.changed {
                identity.set_provisioned_dashboards(files.dashboards());
                tracing::info!(shown, failed, "dashboards of {} are loaded", files.dir().display());
            }
        };
        tick(self.clock.now());
        let period = DASHBOARDS_PERIOD;
        let task = Task::after(period, "dashboard-files", period, self.common(), tick)
            .map_err(ServerError::Thread)?;
        self.tasks.push(task);
        Ok(())
    }

    /// Starts the tasks that a server always runs.
    pub(super) fn start_tasks(&mut self) -> Result<(), ServerError> {
        let identity = Arc::clone(&self.identity);
        let flushed = Arc::clone(&self.flushed);
        self.start_task("session-flush", FLUSH_PERIOD, move |now| {
            if !identity.accepts_changes() {
                return;
            }
            let recorded = identity.tick(now);
            flushed.store(recorded.is_ok(), Ordering::Relaxed);
            if let Err(error) = recorded {
                tracing::error!(%error, "cannot record sessions and API keys in use on disk");
            }
        })?;
        let (identity, tsdb) = (Arc::clone(&self.identity), Arc::clone(&self.tsdb));
        self.start_task("org-removal", REMOVAL_PERIOD, move |now| {
            if !identity.accepts_changes() {
                return;
            }
            match remove_deleted(&identity, &tsdb, now) {
                Ok(_) => {}
                Err(error) => tracing::warn!(
                    "a deleted organisation is still on disk, though invisible: {}",
                    kv::with_sources(&error)
                ),
            }
        })?;
        let (identity, tsdb) = (Arc::clone(&self.identity), Arc::clone(&self.tsdb));
        let mut recorder = daily_usage::DailyUsageRecorder::default();
        self.start_task("stored-today", DAY_PERIOD, move |now| {
            if !identity.accepts_changes() {
                return;
            }
            if let Err(error) = recorder.record(&identity, &tsdb, now) {
                tracing::warn!(%error, "cannot record the samples stored today on disk");
            }
        })?;
        let control = Arc::clone(&self.control);
        self.start_task("accounts-export", EXPORT_PERIOD, move |now| match control.export_if_due(now) {
            Ok(None) => {}
            Ok(Some(made)) => tracing::info!(?made, "accounts are exported"),
            Err(error) => {
                tracing::warn!(%error, "the accounts were not exported; the journal keeps everything")
            }
        })?;
        let tsdb = Arc::clone(&self.tsdb);
        self.start_task("log-mark", MARK_PERIOD, move |_| tsdb.note_log_mark())?;
        let tsdb = Arc::clone(&self.tsdb);
        self.start_task("seal", STORE_PERIOD, move |now| {
            if let Err(error) = tsdb.seal_if_due(now) {
                tracing::warn!(
                    "not everything due was sealed; the log keeps the samples: {}",
                    kv::with_sources(&error)
                );
            }
        })?;
        let tsdb = Arc::clone(&self.tsdb);
        self.start_task("upkeep", STORE_PERIOD, move |now| {
            if let Err(error) = tsdb.maintain(now) {
                tracing::warn!(
                    "segments were not merged or removed; no data is lost: {}",
                    kv::with_sources(&error)
                );
            }
        })?;
        let tsdb = Arc::clone(&self.tsdb);
        let period = self.settings.checkpoint_every.map_or(STORE_PERIOD, |every| every.min(STORE_PERIOD));
        self.start_task("checkpoint", period, move |_| {
            if !tsdb.checkpoint_due() {
                return;
            }
            let watch = Stopwatch::start();
            match tsdb.checkpoint() {
                Ok(done) => tracing::info!(?done, "checkpoint {} in {:.0} ms", done.generation, watch.elapsed_ms()),
                Err(error) => tracing::warn!(%error, "no checkpoint was written; the log keeps everything, the next start takes longer"),
            }
        })
    }

    /// Calls `tick` now and every `period` until the server ends.
    ///
    /// # Errors
    /// [`ServerError::Thread`].
    pub fn start_task(
        &mut self,
        name: &'static str,
        period: Duration,
        tick: impl FnMut(Timestamp) + Send + 'static,
    ) -> Result<(), ServerError> {
        let task = Task::start(name, period, self.common(), tick).map_err(ServerError::Thread)?;
        self.tasks.push(task);
        Ok(())
    }

    fn common(&self) -> TaskContext {
        TaskContext { clock: self.clock.clone(), panics: self.panic_monitor.panics() }
    }

    /// Writes live metrics of this machine and of promlet into `org` while the server runs.
    pub fn collect_live_metrics(&mut self, org: OrgId, period: Duration) {
        self.live_metrics = Some((org, period));
    }

    /// Starts live metrics. The first ones are stored before the first request is handled.
    pub(super) fn start_live_metrics(&mut self, own: OwnMetrics) -> Result<(), ServerError> {
        let Some((org, period)) = self.live_metrics else { return Ok(()) };
        let mut samples = OwnSamples::new(own);
        let tsdb = Arc::clone(&self.tsdb);
        let mut tick = move |now| {
            if let Err(error) = samples.store(&tsdb, org, BatchBuilder::default(), now) {
                tracing::warn!("{error}");
            }
        };
        tick(self.clock.now());
        let task =
            Task::after(period, "live-metrics", period, self.common(), tick).map_err(ServerError::Thread)?;
        self.tasks.push(task);
        Ok(())
    }
}

/// The metrics of this server and of its machine, as samples of an organisation.
pub(super) struct OwnSamples {
    host: HostMetrics,
    own: OwnMetrics,
    /// The organisation that has the descriptions of the metrics.
    described_for: Option<OrgId>,
}

impl OwnSamples {
    /// Reads no metric yet.
    pub(super) fn new(own: OwnMetrics) -> OwnSamples {
        OwnSamples { host: HostMetrics::new(), own, described_for: None }
    }

    /// Returns the name of this machine, the value of `instance`.
    pub(super) fn host_name(&self) -> &str {
        self.host.name()
    }

    /// Reads all metrics and stores them together with those of `batch`.
    ///
    /// # Errors
    /// A sentence, if they are not stored.
    pub(super) fn store(
        &mut self,
        tsdb: &Tsdb,
        org: OrgId,
        mut batch: BatchBuilder,
        now: Timestamp,
    ) -> Result<AppendReport, String> {
        self.host.read(now, &mut batch);
        self.own.write(now, self.described_for != Some(org), &mut batch);
        let report = tsdb
            .append_own(org, &batch.batch(), now)
            .map_err(|error| format!("the metrics of this server were not stored: {error}"))?;
        self.described_for = Some(org);
        Ok(report)
    }
}
