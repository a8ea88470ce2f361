//! The tasks of targets. Each waits for its own timer, fetches, and hands decoding and storing to a
//! pool of threads, so that neither a slow target nor a large response delays another target.

mod task;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::batch::{ScrapeBatch, put_label};
use super::status::ScrapeStatus;
use super::target_run::{ScrapeRun, ScrapeRunSettings};
use crate::clock::Clock;
use crate::model::{ByteBudget, Labels, OrgId, Timestamp, WriteBatch};
use crate::outbound::{Egress, PullClient};
use crate::scrape::config::ScrapeJob;
use crate::scrape::target::ScrapeTarget;
use crate::sync::IgnorePoison as _;
use crate::tsdb::{KeyedBatch, LabelsKey};
use task::TargetTask;

/// The oldest sample of a series that can still be live after a restart, in milliseconds: longer
/// than the lookback of queries.
const LIVE_MS: i64 = 600_000;

/// A job for a thread that may block.
pub type ScrapeWork = Box<dyn FnOnce() + Send>;

/// Receives the result of storing a batch: when it is durable, or a sentence if nothing was stored.
/// It must be short, because it may run on a thread that others wait for.
pub type ScrapeDone = Box<dyn FnOnce(Result<ScrapeStored, String>) + Send>;

/// The store of scraped samples, and the threads that decode them.
pub trait ScrapeSink: Send + Sync + 'static {
    /// Runs a job on a thread that may block. It begins within `max_wait` if a thread is free, so
    /// that several jobs run together. Returns false if it will not run, because too many jobs
    /// wait.
    fn spawn(&self, org: OrgId, work: ScrapeWork, max_wait: Duration) -> bool;

    /// Stores a batch, perhaps after the jobs of [`ScrapeSink::spawn`] that are due now. Runs on a
    /// thread of one of them.
    fn commit(&self, org: OrgId, batch: &WriteBatch<'_>, now: Timestamp, done: ScrapeDone);

    /// Returns the store's keys of the series of a batch that was passed to
    /// [`ScrapeSink::commit`], in its order; none if the sink has no [`ScrapeSink::commit_keyed`].
    fn series_keys(&self, _org: OrgId, _batch: &WriteBatch<'_>) -> Vec<LabelsKey> {
        Vec::new()
    }

    /// Stores a batch as [`ScrapeSink::commit`] does, by the keys of its series.
    ///
    /// # Errors
    /// `done`, if nothing is stored because the store does not know all of them.
    fn commit_keyed(
        &self,
        _org: OrgId,
        _batch: KeyedBatch<'_>,
        _now: Timestamp,
        done: ScrapeDone,
    ) -> Result<(), ScrapeDone> {
        Err(done)
    }

    /// Returns the series that have all of these labels, and a sample since `since` that is not a
    /// staleness marker. Runs on a thread of [`ScrapeSink::spawn`].
    fn live_series(&self, org: OrgId, labels: &Labels, since: Timestamp) -> Vec<ScrapeLiveSeries>;
}

/// The result of storing a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrapeStored {
    /// The samples that the store refused.
    pub refused: u64,
    /// The first reason.
    pub reason: Option<ScrapeRefusal>,
}

/// The reason why samples were not stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScrapeRefusal {
    /// Its stable code.
    pub code: &'static str,
    /// A sentence with the series.
    pub text: String,
}

/// A series of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScrapeLiveSeries {
    /// Its labels.
    pub labels: Labels,
    /// Whether its last sample is a native histogram.
    pub is_histogram: bool,
}

/// The dependencies of the tasks of targets.
#[derive(Clone)]
pub struct ScrapeDeps {
    /// The store of the samples.
    pub sink: Arc<dyn ScrapeSink>,
    /// The addresses that may be connected to.
    pub egress: Egress,
    /// The runtime of the tasks.
    pub runtime: Handle,
    /// The wall clock.
    pub clock: Clock,
    /// The settings that all targets share.
    pub settings: Arc<ScrapeRunSettings>,
    /// The bound on the memory of all bodies as sent, until they are decoded. Each set of targets
    /// has a share of it.
    pub bodies: ByteBudget,
}

impl std::fmt::Debug for ScrapeDeps {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ScrapeDeps").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// A target that should be scraped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScrapePlan {
    /// The target.
    pub target: Arc<ScrapeTarget>,
    /// A reason for which every scrape fails without a request, such as `target_limit`.
    pub forced_error: Option<Arc<str>>,
}

/// A target and its state.
#[derive(Clone, Debug)]
pub struct ScrapeTargetReport {
    /// The target.
    pub target: Arc<ScrapeTarget>,
    /// Its state.
    pub status: ScrapeStatus,
}

/// The identity of a target across changes of the configuration.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct TargetKey {
    job: Arc<str>,
    hash: u64,
}

/// The client of a job, or the reason why there is none.
type JobClient = Result<PullClient, Arc<str>>;

/// A command to a task. A later command replaces an earlier one.
#[derive(Clone, Debug)]
struct TargetCommand {
    plan: ScrapePlan,
    client: JobClient,
    is_ending: bool,
}

/// A running task.
#[derive(Debug)]
struct RunningTarget {
    commands: watch::Sender<TargetCommand>,
    status: Arc<Mutex<ScrapeStatus>>,
    task: AbortHandle,
}

type RunningTargets = BTreeMap<TargetKey, RunningTarget>;

/// The targets of an organisation. They stop without markers when it is dropped.
#[derive(Debug)]
pub struct ScrapeFleet {
    org: OrgId,
    deps: ScrapeDeps,
    /// The share of the memory of all templates.
    templates: ByteBudget,
    running: Arc<Mutex<RunningTargets>>,
    /// The client of each job in use.
    clients: Mutex<Vec<(Weak<ScrapeJob>, JobClient)>>,
}

impl Drop for ScrapeFleet {
    fn drop(&mut self) {
        self.stop();
    }
}

impl ScrapeFleet {
    /// Creates a set without targets.
    pub fn new(org: OrgId, deps: ScrapeDeps) -> ScrapeFleet {
        let templates = deps.settings.templates.share();
        let deps = ScrapeDeps { bodies: deps.bodies.share(), ..deps };
        ScrapeFleet { org, deps, templates, running: Arc::default(), clients: Mutex::default() }
    }

    fn running(&self) -> MutexGuard<'_, RunningTargets> {
        self.running.lock().ignore_poison()
    }

    /// Replaces the set of targets. Equal targets keep their state and schedule. Changed ones
    /// restart. Removed ones end with markers, 1.1 intervals after their next scrape would have
    /// been due, unless they return before. Returns the number of plans with the same job and
    /// labels as one before them, which are ignored.
    pub fn apply(&self, plans: Vec<ScrapePlan>) -> usize {
        let mut clients: HashMap<*const ScrapeJob, JobClient> = HashMap::new();
        let mut wanted: BTreeMap<TargetKey, TargetCommand> = BTreeMap::new();
        let mut repeated = 0;
        for plan in plans {
            let key = TargetKey { job: Arc::clone(&plan.target.job.name), hash: plan.target.hash };
            if wanted.contains_key(&key) {
                repeated += 1;
                continue;
            }
            let job = &plan.target.job;
            let client = clients.entry(Arc::as_ptr(job)).or_insert_with(|| self.client(job)).clone();
            wanted.insert(key, TargetCommand { plan, client, is_ending: false });
        }
        let mut running = self.running();
        for (key, target) in running.iter().filter(|(key, _)| !wanted.contains_key(*key)) {
            tracing::debug!(job = &*key.job, "a target is removed");
            target.commands.send_if_modified(|command| !std::mem::replace(&mut command.is_ending, true));
        }
        for (key, command) in wanted {
            match running.get(&key) {
                // A task that is about to end has dropped its receiver.
                Some(known) if !known.commands.is_closed() => {
                    known.commands.send_if_modified(|now| {
                        let is_changed = now.plan != command.plan || now.is_ending;
                        if is_changed {
                            *now = command;
                        }
                        is_changed
                    });
                }
                _ => drop(running.insert(key.clone(), self.start(key, command))),
            }
        }
        repeated
    }

    fn start(&self, key: TargetKey, command: TargetCommand) -> RunningTarget {
        let status = Arc::<Mutex<ScrapeStatus>>::default();
        let now = self.deps.clock.now();
        let target = Arc::clone(&command.plan.target);
        let (commands, received) = watch::channel(command);
        let run = ScrapeRun::new(target, Arc::clone(&self.deps.settings), now);
        let run = run.with_templates(self.templates.clone());
        let task = TargetTask::new(self.org, self.deps.clone(), run, Arc::clone(&status), received);
        let running = Arc::downgrade(&self.running);
        let spawned = self.deps.runtime.spawn(async move {
            task.run().await;
            // A task that replaced this one has another receiver.
            if let Some(running) = running.upgrade() {
                let mut running = running.lock().ignore_poison();
                if running.get(&key).is_some_and(|own| own.commands.is_closed()) {
                    running.remove(&key);
                }
            }
        });
        RunningTarget { commands, status, task: spawned.abort_handle() }
    }

    /// Returns the client of a job, which its targets share.
    fn client(&self, job: &Arc<ScrapeJob>) -> JobClient {
        let mut clients = self.clients.lock().ignore_poison();
        clients.retain(|(known, _)| known.strong_count() > 0);
        let known = clients.iter().find(|(known, _)| known.as_ptr() == Arc::as_ptr(job));
        if let Some((_, client)) = known {
            return client.clone();
        }
        let client = PullClient::new(&job.client, self.deps.egress.clone());
        let client = client.map_err(Arc::<str>::from);
        clients.push((Arc::downgrade(job), client.clone()));
        client
    }

    /// Calls `each` with all targets and their states, by job. Targets that are ending are not
    /// included.
    pub fn for_each(&self, mut each: impl FnMut(&Arc<ScrapeTarget>, &ScrapeStatus)) {
        for running in self.running().values() {
            let command = running.commands.borrow();
            if !command.is_ending {
                each(&command.plan.target, &running.status.lock().ignore_poison());
            }
        }
    }

    /// Returns all targets with their states, as [`ScrapeFleet::for_each`] does.
    pub fn reports(&self) -> Vec<ScrapeTargetReport> {
        let mut reports = Vec::new();
        self.for_each(|target, status| {
            reports.push(ScrapeTargetReport { target: Arc::clone(target), status: status.clone() });
        });
        reports
    }

    /// Returns the labels of all targets, also of those that are ending, to be stored for
    /// [`ScrapeFleet::mark_lost`] after a restart.
    pub fn target_labels(&self) -> Vec<Labels> {
        self.running().values().map(|running| running.commands.borrow().plan.target.labels.clone()).collect()
    }

    /// Stores markers for the series of targets that existed before a restart and do not exist any
    /// more. A target's series are those of the store with all of its labels, so a series whose
    /// labels `job` or `instance` were changed by relabelling gets none.
    pub fn mark_lost(&self, before: Vec<Labels>) {
        let now: HashSet<Labels> = self.target_labels().into_iter().collect();
        let lost: Vec<Labels> =
            before.into_iter().filter(|labels| !labels.is_empty() && !now.contains(labels)).collect();
        if lost.is_empty() {
            return;
        }
        let (org, sink, at) = (self.org, Arc::clone(&self.deps.sink), self.deps.clock.now());
        let work = move || {
            for labels in lost {
                let live = sink.live_series(org, &labels, at.plus_ms(-LIVE_MS));
                let mut batch = ScrapeBatch::new(at, false);
                for series in live {
                    let mut raw = Vec::new();
                    series.labels.iter().for_each(|label| put_label(&mut raw, label.name, label.value));
                    batch.mark(&raw, series.is_histogram);
                }
                if batch.is_empty() {
                    continue;
                }
                let done = move |stored| warn_of_lost_markers(org, stored);
                sink.commit(org, &batch.batch(), at, Box::new(done));
            }
        };
        if !self.deps.sink.spawn(org, Box::new(work), Duration::ZERO) {
            tracing::warn!(org = org.0, "markers of removed targets were not stored: too many jobs wait");
        }
    }

    /// Stops all targets without markers, at the end of the process or of the organisation.
    pub fn stop(&self) {
        let stopped = std::mem::take(&mut *self.running());
        stopped.values().for_each(|running| running.task.abort());
    }
}

fn warn_of_lost_markers(org: OrgId, stored: Result<ScrapeStored, String>) {
    if let Err(error) = stored {
        tracing::warn!(org = org.0, "markers of a removed target were not stored: {error}");
    }
}

#[cfg(test)]
mod tests;
