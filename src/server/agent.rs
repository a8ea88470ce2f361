//! An agent: a data folder whose log is a queue, the routes and scrapes that fill it, and a sender
//! for each target. It has no accounts.
//!
//! A target's pin is durable before the routes are installed and the first scrape begins, so no
//! sample can be trimmed before it is forwarded.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::ServerError;
use super::close::{close_folder, close_samples};
use super::listener::{Listener, ShowProgress};
use super::options::{lanes_options, tsdb_options};
use super::panic_monitor::PanicMonitor;
use super::scraping::{AgentScrapeConfig, AgentScraping, ScrapeParts};
use crate::api::agent::{self, AGENT_ORG, AgentRooms};
use crate::api::lanes::{LaneOptions, Lanes, LanesOptions};
use crate::api::orgs::write::Relabel;
use crate::api::own_metrics::Counters;
use crate::api::starting::StartStage;
use crate::clock::Clock;
use crate::config::{AgentSettings, AgentTarget, Settings};
use crate::entropy::Entropy;
use crate::forward::{ForwardDeps, ForwardSpec, Forwarding, ReceivedBodies};
use crate::identity::USERS_TABLE;
use crate::kv::{self, Control, ControlOptions, DataFolder};
use crate::model::Timestamp;
use crate::tasks::{Task, TaskContext};
use crate::tsdb::{self, ConsumerId, ConsumerKind, Tsdb};

/// The size of the log at which records are marked as no longer needed by queries, so that pins
/// alone keep them.
const SEAL_LOG_BYTES: u64 = 64 << 20;
/// How often forwarded log files are removed, checkpoints are made if they are due, and positions
/// are stored.
const STORE_PERIOD: Duration = Duration::from_secs(10);
/// How often the end of the log is recorded outside of it.
const MARK_PERIOD: Duration = Duration::from_secs(5);
/// How often an export of the control tables is made if one is due.
const EXPORT_PERIOD: Duration = Duration::from_secs(60);

/// A running agent.
pub struct Agent {
    settings: Settings,
    clock: Clock,
    folder: Arc<DataFolder>,
    control: Arc<Control>,
    tsdb: Arc<Tsdb>,
    tasks: Vec<Task>,
    listener: Listener,
    lanes: Lanes,
    senders: Vec<(String, Arc<Forwarding>)>,
    received: Arc<ReceivedBodies>,
    /// `None` without `--scrape-config`.
    scraping: Option<AgentScraping>,
    panic_monitor: PanicMonitor,
}

impl Agent {
    /// Opens the queue, starts the senders, and begins to receive and to scrape. `show` gets the
    /// progress of a start of over a second.
    ///
    /// # Errors
    /// [`ServerError`]. The folder is left as after a crash, from which every start recovers.
    pub fn open(
        settings: Settings,
        agent: &AgentSettings,
        clock: Clock,
        show: Option<ShowProgress>,
    ) -> Result<Agent, ServerError> {
        for warning in &settings.warnings {
            tracing::warn!("{warning}");
        }
        let scrape_file = settings.scrape.config.clone();
        let scrape_config =
            scrape_file.map(|path| AgentScrapeConfig::read(path, agent.relabel.as_ref())).transpose()?;
        let mut rng = Entropy::system();
        let now = clock.now();
        let folder = Arc::new(DataFolder::open_agent(&settings.data_dir, now, &mut rng)?);
        let counters: Arc<Counters> = Arc::default();
        let listener = Listener::open(&settings, Arc::clone(&counters))?;
        let reporter = listener.report_progress(clock.clone(), show)?;
        let (control, _) = Control::open(&folder, &ControlOptions { now, users_table: USERS_TABLE })?;
        let control = Arc::new(control);
        let home = tsdb::Home { dir: folder.path(), store: folder.store_id(), control: Arc::clone(&control) };
        let options = tsdb::Options {
            queue_only: true,
            seal_log_bytes: SEAL_LOG_BYTES,
            decoded_bytes_max: 0,
            warm_bytes_max: 0,
            ..tsdb_options(&settings, listener.observer())
        };
        let opened = Tsdb::open(home, options, &mut rng, now);
        drop(reporter);
        let (tsdb, report) = match opened {
            Err(tsdb::OpenError::Stopped) => {
                listener.close_quickly();
                close_control(control)?;
                close_folder(folder, now)?;
                return Err(ServerError::Stopped);
            }
            opened => opened?,
        };
        listener.set_stage(StartStage::Rest);
        let (records, samples) = (report.records, report.samples);
        tracing::info!(mode = ?report.mode, series = report.series, records, samples, "the queue is open");
        let tsdb = Arc::new(tsdb);
        let panic_monitor = PanicMonitor::watch(&tsdb, &counters);
        let lanes = Lanes::start(&agent_lanes(&settings)).map_err(ServerError::Thread)?;
        let mut opened = Agent {
            settings,
            clock,
            folder,
            control,
            tsdb,
            tasks: Vec::new(),
            listener,
            lanes,
            senders: Vec::new(),
            received: Arc::default(),
            scraping: None,
            panic_monitor,
        };
        opened.start_senders(agent)?;
        opened.start_tasks()?;
        opened.scraping = scrape_config.map(|config| opened.scrape(config)).transpose()?;
        opened.receive(agent, counters)?;
        Ok(opened)
    }

    /// Runs until SIGTERM, SIGINT or Ctrl-C. Then finishes open requests, and closes the queue.
    /// Samples that are not forwarded yet wait for the next start.
    ///
    /// # Errors
    /// [`ServerError`] of closing. Everything acknowledged is on disk in any case.
    pub fn run(self) -> Result<(), ServerError> {
        tracing::info!("listening on {}://{}", self.settings.scheme(), self.listener.address);
        let Agent { clock, folder, control, tsdb, tasks, listener, lanes, senders, scraping, .. } = self;
        listener.wait(|| {
            scraping.iter().for_each(AgentScraping::stop);
            senders.iter().for_each(|(_, sender)| sender.stop());
        });
        drop((lanes, scraping));
        for task in tasks {
            task.stop();
        }
        tsdb.save_pins();
        let now = clock.now();
        let fenced = close_samples(&tsdb, now);
        drop(tsdb);
        close_control(control)?;
        match fenced {
            Some(why) => Err(ServerError::Fenced(why)),
            None => close_folder(folder, now),
        }
    }

    /// Pins the log for each target and starts its sender. Removes the pins of targets that are no
    /// longer configured, so the samples that waited for them are dropped.
    fn start_senders(&mut self, agent: &AgentSettings) -> Result<(), ServerError> {
        let configured: BTreeSet<u64> = agent.targets.iter().map(|target| number_of(&target.name)).collect();
        if configured.len() < agent.targets.len() {
            return Err(ServerError::Agent("two names of targets have the same hash; rename one".to_owned()));
        }
        for target in &agent.targets {
            let sender = self.start_sender(target);
            let failed = |e: String| ServerError::Agent(format!("target {:?}: {e}", target.name));
            self.senders.push((target.name.clone(), Arc::new(sender.map_err(failed)?)));
        }
        // All targets are valid at this point. So a configuration with an error drops no samples.
        for pin in self.tsdb.pins() {
            let ConsumerId { kind, number } = pin.consumer;
            if kind == ConsumerKind::Agent && !configured.contains(&number) {
                tracing::warn!(
                    lag_bytes = pin.lag_bytes,
                    "a target is no longer configured; samples that waited for it are dropped"
                );
                self.tsdb.unpin(pin.consumer).map_err(|e| ServerError::Agent(e.to_string()))?;
            }
        }
        Ok(())
    }

    fn start_sender(&self, target: &AgentTarget) -> Result<Forwarding, String> {
        let spec = ForwardSpec {
            consumer: consumer_of(&target.name),
            org: AGENT_ORG,
            name: target.name.clone(),
            target: target.target.clone(),
            protocol: target.protocol,
            compression: target.compression,
            rules: target.rules.clone(),
            from: self.tsdb.log_end(),
        };
        let deps = ForwardDeps {
            tsdb: Arc::clone(&self.tsdb),
            egress: self.listener.options.egress.clone(),
            runtime: self.listener.runtime(),
            clock: self.clock.clone(),
            received: Arc::clone(&self.received),
        };
        Forwarding::start(spec, deps, Entropy::system()).map_err(|e| kv::with_sources(&e))
    }

    fn scrape(&self, config: AgentScrapeConfig) -> Result<AgentScraping, ServerError> {
        let parts = ScrapeParts { settings: &self.settings, listener: &self.listener, clock: &self.clock };
        AgentScraping::start(config, &self.tsdb, parts)
    }

    fn start_tasks(&mut self) -> Result<(), ServerError> {
        let tsdb = Arc::clone(&self.tsdb);
        self.start_task("log-mark", MARK_PERIOD, move |_| tsdb.note_log_mark())?;
        let tsdb = Arc::clone(&self.tsdb);
        self.start_task("queue", STORE_PERIOD, move |now| {
            if let Err(error) = tsdb.seal_if_due(now) {
                tracing::warn!("forwarded log files were not removed: {}", kv::with_sources(&error));
            }
            if tsdb.checkpoint_due()
                && let Err(error) = tsdb.checkpoint()
            {
                tracing::warn!(%error, "no checkpoint was written; the log keeps everything, the next start takes longer");
            }
        })?;
        let control = Arc::clone(&self.control);
        self.start_task("export", EXPORT_PERIOD, move |now| {
            if let Err(error) = control.export_if_due(now) {
                tracing::warn!(%error, "the control tables were not exported; the journal keeps everything");
            }
        })
    }

    fn start_task(
        &mut self,
        name: &'static str,
        period: Duration,
        tick: impl FnMut(Timestamp) + Send + 'static,
    ) -> Result<(), ServerError> {
        let context = TaskContext { clock: self.clock.clone(), panics: self.panic_monitor.panics() };
        self.tasks.push(Task::start(name, period, context, tick).map_err(ServerError::Thread)?);
        Ok(())
    }

    /// Installs the routes.
    fn receive(&self, agent: &AgentSettings, counters: Arc<Counters>) -> Result<(), ServerError> {
        let relabel = agent.relabel.clone();
        let (senders, tsdb) = (self.senders.clone(), Arc::clone(&self.tsdb));
        let status = move || {
            let pins = tsdb.pins();
            let state = |(name, sender): &(String, Arc<Forwarding>)| {
                let mut status = sender.status();
                // The pin also counts records that were lost before this start, and those that the
                // sender has not tried to read yet.
                let pin = pins.iter().find(|pin| pin.consumer == consumer_of(name));
                status.counts.lost_records = pin.map_or(0, |pin| pin.lost).max(status.counts.lost_records);
                (name.clone(), status)
            };
            senders.iter().map(state).collect()
        };
        let rooms = AgentRooms {
            tsdb: Arc::clone(&self.tsdb),
            lanes: self.lanes.clone(),
            clock: self.clock.clone(),
            checks: vec![("tasks", self.panic_monitor.check())],
            counters,
            targets: Arc::new(status),
            received: Arc::clone(&self.received),
            scrapers: self.scraping.as_ref().map(|scraping| Arc::clone(scraping.scrapers())),
            token: agent.token.as_ref().map(|token| token.reveal().into()),
            relabel: relabel.map(|rules| Relabel::by(move |labels| rules.apply(labels))),
        };
        self.listener.install_app(agent::app(&rooms, &self.listener.options)?);
        Ok(())
    }
}

/// Returns the consumer id of a target in the log.
fn consumer_of(name: &str) -> ConsumerId {
    ConsumerId { kind: ConsumerKind::Agent, number: number_of(name) }
}

/// Returns the number under which a target's position in the log is stored: the FNV-1a hash of its
/// name.
fn number_of(name: &str) -> u64 {
    name.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Returns lanes with the usual ingest threads. An agent uses no other lanes.
fn agent_lanes(settings: &Settings) -> LanesOptions {
    let lanes = lanes_options(settings);
    let idle = |lane: LaneOptions| LaneOptions { threads: 1, threads_per_org: 1, ..lane };
    LanesOptions {
        query: idle(lanes.query),
        answer: idle(lanes.answer),
        password: idle(lanes.password),
        account: idle(lanes.account),
        ..lanes
    }
}

fn close_control(control: Arc<Control>) -> Result<(), ServerError> {
    let control = Arc::try_unwrap(control).map_err(|_| ServerError::StillInUse("the control tables"))?;
    Ok(control.close()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_a_target_never_changes() {
        assert_eq!(number_of("central"), 0x6d7a_3f83_53eb_02fa);
        assert_ne!(number_of("a"), number_of("b"));
    }
}
