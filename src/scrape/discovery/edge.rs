//! The thread of all discoveries: it reads files, starts requests, and publishes targets.
//!
//! Files are read and targets are relabelled on the thread. Requests run as tasks of the server's
//! runtime and return their answers through a channel.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::Handle;

use super::dns::{DnsResolver, lookup};
use super::http;
use super::manager::{DiscoveredTargets, DiscoveryId, DiscoveryManager, DueRefresh, JobDiscoveries};
use super::settings::DiscoveryConfig;
use super::state::RefreshAnswer;
use crate::clock::{Clock, Stopwatch};
use crate::entropy::Entropy;
use crate::model::Timestamp;
use crate::outbound::Egress;
use crate::scrape::config::ScrapeConfig;
use crate::sync::IgnorePoison as _;

/// The longest wait for the first answers of a configuration before its targets are published.
const FIRST_ANSWERS_MS: i64 = 2_000;
/// The longest wait for an event.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// The shortest time between two checks for due refreshes.
const WAIT_MIN: Duration = Duration::from_millis(20);

/// The dependencies of discoveries.
pub struct DiscoveryDeps {
    /// The runtime of requests.
    pub runtime: Handle,
    /// The addresses that an HTTP discovery may connect to.
    pub egress: Egress,
    /// The wall clock, for reports.
    pub clock: Clock,
    /// The name servers. `None` reads `/etc/resolv.conf` before each refresh.
    pub resolver: Option<DnsResolver>,
    /// Called on the thread with the targets of a configuration whenever they change.
    pub publish: Box<dyn Fn(DiscoveredTargets) + Send>,
}

impl std::fmt::Debug for DiscoveryDeps {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DiscoveryDeps").field("resolver", &self.resolver).finish_non_exhaustive()
    }
}

enum DiscoveryEvent {
    Configured(Arc<ScrapeConfig>),
    Answered(DiscoveryId, RefreshAnswer),
    Stop,
}

/// The running discoveries. They stop when they are dropped.
#[derive(Debug)]
pub struct Discovery {
    events: mpsc::Sender<DiscoveryEvent>,
    statuses: Arc<Mutex<Vec<JobDiscoveries>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Discovery {
    /// Starts the thread, without a configuration.
    ///
    /// # Errors
    /// That of the thread.
    pub fn start(deps: DiscoveryDeps, rng: Entropy) -> std::io::Result<Discovery> {
        let (events, received) = mpsc::channel();
        let statuses = Arc::default();
        let thread = DiscoveryThread {
            started: deps.clock.now(),
            watch: Stopwatch::start(),
            deps,
            rng: Arc::new(Mutex::new(rng)),
            manager: DiscoveryManager::default(),
            publish_after: None,
            events: events.clone(),
            statuses: Arc::clone(&statuses),
        };
        let spawned = std::thread::Builder::new()
            .name("scrape-discovery".to_owned())
            .spawn(move || thread.run(&received))?;
        Ok(Discovery { events, statuses, thread: Mutex::new(Some(spawned)) })
    }

    /// Takes over a configuration. Its targets are published when its discoveries have answered, at
    /// the latest after 2 s.
    pub fn configure(&self, config: Arc<ScrapeConfig>) {
        // The thread has ended only if it panicked or was stopped.
        let _ = self.events.send(DiscoveryEvent::Configured(config));
    }

    /// Returns the state of all discoveries.
    pub fn statuses(&self) -> Vec<JobDiscoveries> {
        self.statuses.lock().ignore_poison().clone()
    }

    /// Returns the number of refreshes with an error, of all discoveries.
    pub fn failures(&self) -> u64 {
        let statuses = self.statuses.lock().ignore_poison();
        statuses.iter().flat_map(|job| &job.discoveries).map(|discovery| discovery.failures).sum()
    }

    /// Ends the thread and waits for it. Answers of requests in flight are ignored.
    pub fn stop(&self) {
        let _ = self.events.send(DiscoveryEvent::Stop);
        let thread = self.thread.lock().ignore_poison().take();
        // The thread itself may hold the last reference; it ends by the event.
        if let Some(thread) = thread.filter(|thread| thread.thread().id() != std::thread::current().id()) {
            // A panicked thread has already reported its panic.
            drop(thread.join());
        }
    }
}

impl Drop for Discovery {
    fn drop(&mut self) {
        self.stop();
    }
}

struct DiscoveryThread {
    deps: DiscoveryDeps,
    started: Timestamp,
    watch: Stopwatch,
    rng: Arc<Mutex<Entropy>>,
    manager: DiscoveryManager,
    /// When the targets of a new configuration are published in any case.
    publish_after: Option<Timestamp>,
    events: mpsc::Sender<DiscoveryEvent>,
    statuses: Arc<Mutex<Vec<JobDiscoveries>>>,
}

impl DiscoveryThread {
    /// Returns the time by the monotonic clock, so that a change of the wall clock delays nothing.
    fn now(&self) -> Timestamp {
        self.started.plus(self.watch.elapsed())
    }

    fn run(mut self, events: &Receiver<DiscoveryEvent>) {
        loop {
            let wait = self.wait();
            let first = match events.recv_timeout(wait) {
                Ok(event) => Some(event),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            // Answers that arrive together change the targets once.
            for event in first.into_iter().chain(events.try_iter()) {
                if !self.handle(event) {
                    return;
                }
            }
            let now = self.now();
            for due in self.manager.refresh(now) {
                self.begin(due);
            }
            self.publish(now);
            *self.statuses.lock().ignore_poison() = self.manager.statuses();
        }
    }

    fn wait(&self) -> Duration {
        let now = self.now();
        let due = [self.manager.next_due(), self.publish_after].into_iter().flatten().min();
        let ms = due.map_or(i64::MAX, |due| due.ms_since(now).max(0));
        Duration::from_millis(u64::try_from(ms).unwrap_or(0)).clamp(WAIT_MIN, WAIT_MAX)
    }

    /// Handles an event. Returns false if the thread is to end.
    fn handle(&mut self, event: DiscoveryEvent) -> bool {
        let now = self.now();
        match event {
            DiscoveryEvent::Stop => return false,
            DiscoveryEvent::Answered(id, answer) => self.manager.answered(id, now, answer),
            DiscoveryEvent::Configured(config) => {
                self.manager.reconfigure(&config, now);
                self.publish_after = Some(now.plus_ms(FIRST_ANSWERS_MS));
            }
        }
        true
    }

    fn publish(&mut self, now: Timestamp) {
        let waits = self.publish_after.is_some_and(|after| now < after);
        if waits && self.manager.awaits_first_answer() {
            return;
        }
        // A configuration without jobs has no changed targets, but ends those before.
        let is_new = self.publish_after.take().is_some();
        let changed = self.manager.changed_targets();
        if let Some(targets) = changed.or_else(|| is_new.then(DiscoveredTargets::default)) {
            (self.deps.publish)(targets);
        }
    }

    /// Starts a refresh.
    fn begin(&self, due: DueRefresh) {
        let DueRefresh { id, config } = due;
        let (events, egress) = (self.events.clone(), self.deps.egress.clone());
        let resolver = self.deps.resolver.clone();
        let rng = Arc::clone(&self.rng);
        self.deps.runtime.spawn(async move {
            let answer = match config {
                DiscoveryConfig::Http(http) => http::refresh(&http, egress).await,
                DiscoveryConfig::Dns(dns) => {
                    let resolver = resolver.unwrap_or_else(DnsResolver::of_this_machine);
                    lookup::refresh(&dns, &resolver, &rng).await
                }
                DiscoveryConfig::Static(_) | DiscoveryConfig::File(_) => return,
            };
            let _ = events.send(DiscoveryEvent::Answered(id, answer));
        });
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
