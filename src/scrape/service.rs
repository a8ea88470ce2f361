//! The scraped targets of all organisations: their configurations, discoveries and fleets.
//!
//! An organisation has up to two configurations: that of `--scrape-config` and one that was set by
//! the API. Each has its own discoveries and its own fleet of targets.

mod problems;

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use super::config::ScrapeConfig;
use super::discovery::{
    DiscoveredTargets, Discovery, DiscoveryDeps, DiscoveryStatus, DnsResolver, JobDiscoveries,
};
use super::own::OwnTarget;
use super::run::{ScrapeDeps, ScrapeFleet, ScrapeHealth, ScrapeMetadata, ScrapePlan, ScrapeTargetReport};
use super::target::JobTargets;
use crate::entropy::Entropy;
use crate::model::{Labels, OrgId};
use crate::sync::IgnorePoison as _;
use problems::ReportedProblems;

/// The origin of a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ScrapeSource {
    /// The file of `--scrape-config`.
    File,
    /// The API.
    Api,
}

/// Stores the labels of targets, so that a target that disappears while the server is stopped gets
/// its staleness markers at the next start.
pub trait ScrapeMemory: Send + Sync + 'static {
    /// Returns the labels that were stored last. Blocks.
    fn load(&self, org: OrgId) -> Vec<Labels>;

    /// Stores the labels of all targets. Blocks. A failure is reported by the implementation.
    fn store(&self, org: OrgId, targets: &[Labels]);
}

/// The dependencies of scraping.
#[derive(Clone)]
pub struct ScrapersDeps {
    /// The dependencies of targets of the file of `--scrape-config`.
    pub of_file: ScrapeDeps,
    /// The dependencies of targets of configurations that were set by the API.
    pub of_api: ScrapeDeps,
    /// The labels of targets before a restart; `None` if they are not remembered.
    pub memory: Option<Arc<dyn ScrapeMemory>>,
    /// The name servers; `None` reads `/etc/resolv.conf`.
    pub resolver: Option<DnsResolver>,
}

impl std::fmt::Debug for ScrapersDeps {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ScrapersDeps").field("of_file", &self.of_file).finish_non_exhaustive()
    }
}

impl ScrapersDeps {
    fn of(&self, source: ScrapeSource) -> &ScrapeDeps {
        match source {
            ScrapeSource::File => &self.of_file,
            ScrapeSource::Api => &self.of_api,
        }
    }
}

/// One configuration of an organisation.
#[derive(Debug)]
struct ConfiguredSource {
    discovery: Arc<Discovery>,
    config: Arc<ScrapeConfig>,
    /// The number that the caller of [`Scrapers::configure`] gave it.
    version: u32,
    /// `None` until the targets are published for the first time.
    targets: Option<DiscoveredTargets>,
    problems: ReportedProblems,
}

#[derive(Debug)]
struct OrgScrapes {
    of_file: ScrapeFleet,
    of_api: ScrapeFleet,
    sources: Mutex<BTreeMap<ScrapeSource, ConfiguredSource>>,
    remembered: Mutex<RememberedTargets>,
}

/// The labels that are stored for the next start.
#[derive(Debug, Default)]
struct RememberedTargets {
    /// Whether the targets before the start were compared with those after it.
    is_compared: bool,
    stored: Vec<Labels>,
}

/// The scraped targets of all organisations. They stop when it is dropped.
#[derive(Debug)]
pub struct Scrapers {
    deps: ScrapersDeps,
    orgs: Mutex<BTreeMap<OrgId, Arc<OrgScrapes>>>,
    /// This server, if it stores its own metrics.
    own_target: Mutex<Option<OwnTarget>>,
    /// Whether all configurations of the start are known.
    is_started: AtomicBool,
    /// The scrapers themselves, for the threads of discoveries.
    own: Weak<Scrapers>,
}

/// The targets of one job, for display.
#[derive(Clone, Debug)]
pub struct ScrapePool {
    /// The origin of the job's configuration.
    pub source: ScrapeSource,
    /// The targets, the dropped ones included.
    pub targets: Arc<JobTargets>,
    /// Its discoveries.
    pub discoveries: Vec<DiscoveryStatus>,
}

/// The scraped targets of an organisation, for display.
#[derive(Clone, Debug, Default)]
pub struct ScrapeView {
    /// The jobs, in the order of their configuration.
    pub pools: Vec<ScrapePool>,
    /// The running targets with their states.
    pub reports: Vec<ScrapeTargetReport>,
}

/// The scrapes of a job's running targets that stored nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MissedScrapes {
    /// Planned scrapes that did not begin.
    pub skipped: u64,
    /// Responses that were dropped, because too many of them wait.
    pub dropped: u64,
}

/// The totals of an organisation's targets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrapeTotals {
    /// Targets whose last scrape succeeded.
    pub up: u64,
    /// Targets whose last scrape failed.
    pub down: u64,
    /// Targets that were not scraped yet.
    pub unknown: u64,
    /// Scrapes of the running targets.
    pub scrapes: u64,
    /// Failed scrapes of the running targets.
    pub failures: u64,
    /// Samples that the store refused.
    pub refused: u64,
    /// Refreshes of discoveries that failed.
    pub discovery_failures: u64,
}

impl Scrapers {
    /// Creates a set without targets.
    pub fn new(deps: ScrapersDeps) -> Arc<Scrapers> {
        Arc::new_cyclic(|own| Scrapers {
            deps,
            orgs: Mutex::default(),
            own_target: Mutex::default(),
            is_started: AtomicBool::new(false),
            own: own.clone(),
        })
    }

    fn orgs(&self) -> MutexGuard<'_, BTreeMap<OrgId, Arc<OrgScrapes>>> {
        self.orgs.lock().ignore_poison()
    }

    fn org(&self, org: OrgId) -> Option<Arc<OrgScrapes>> {
        self.orgs().get(&org).cloned()
    }

    /// Takes over a configuration, which the caller identifies by `version`. Targets and
    /// discoveries that are equal to those before continue.
    ///
    /// # Errors
    /// That of the thread of discoveries.
    pub fn configure(
        &self,
        (org, source): (OrgId, ScrapeSource),
        config: Arc<ScrapeConfig>,
        version: u32,
        rng: Entropy,
    ) -> std::io::Result<()> {
        let scrapes = Arc::clone(self.orgs().entry(org).or_insert_with(|| {
            Arc::new(OrgScrapes {
                of_file: ScrapeFleet::new(org, self.deps.of_file.clone()),
                of_api: ScrapeFleet::new(org, self.deps.of_api.clone()),
                sources: Mutex::default(),
                remembered: Mutex::default(),
            })
        }));
        let mut sources = scrapes.sources.lock().ignore_poison();
        if let Some(known) = sources.get_mut(&source) {
            known.config = Arc::clone(&config);
            known.version = version;
            known.problems = ReportedProblems::default();
            known.discovery.configure(config);
            return Ok(());
        }
        let discovery = Arc::new(self.start_discovery(org, source, rng)?);
        discovery.configure(Arc::clone(&config));
        let problems = ReportedProblems::default();
        sources.insert(source, ConfiguredSource { discovery, config, version, targets: None, problems });
        Ok(())
    }

    fn start_discovery(&self, org: OrgId, source: ScrapeSource, rng: Entropy) -> std::io::Result<Discovery> {
        let (own, of_source) = (self.own.clone(), self.deps.of(source));
        let deps = DiscoveryDeps {
            runtime: of_source.runtime.clone(),
            egress: of_source.egress.clone(),
            clock: of_source.clock.clone(),
            resolver: self.deps.resolver.clone(),
            publish: Box::new(move |targets| {
                if let Some(scrapers) = own.upgrade() {
                    scrapers.published(org, source, targets);
                }
            }),
        };
        Discovery::start(deps, rng)
    }

    /// Applies the targets of a configuration.
    fn published(&self, org: OrgId, source: ScrapeSource, targets: DiscoveredTargets) {
        let Some(scrapes) = self.org(org) else { return };
        let mut sources = scrapes.sources.lock().ignore_poison();
        // The source may have been removed meanwhile.
        let Some(known) = sources.get_mut(&source) else { return };
        known.problems.report(&targets);
        let plans = plans_of(&targets);
        known.targets = Some(targets);
        scrapes.fleet(source).apply(plans);
        drop(sources);
        self.remember(org, &scrapes);
    }

    /// States that all configurations of the start are known. From then on, targets that existed
    /// before the start and do not exist any more get staleness markers.
    pub fn all_configured(&self) {
        if !self.is_started.swap(true, Ordering::SeqCst) {
            let orgs = self.orgs().clone();
            orgs.iter().for_each(|(org, scrapes)| self.remember(*org, scrapes));
        }
    }

    /// Compares the targets before the start with those after it, once, and stores what changed.
    fn remember(&self, org: OrgId, scrapes: &OrgScrapes) {
        let Some(memory) = &self.deps.memory else { return };
        let sources = scrapes.sources.lock().ignore_poison();
        let is_complete = sources.values().all(|source| source.targets.is_some());
        drop(sources);
        if !is_complete || !self.is_started.load(Ordering::SeqCst) {
            return;
        }
        let mut remembered = scrapes.remembered.lock().ignore_poison();
        if !std::mem::replace(&mut remembered.is_compared, true) {
            remembered.stored = memory.load(org);
            let others: HashSet<Labels> = scrapes.of_api.target_labels().into_iter().collect();
            let mut before = remembered.stored.clone();
            before.retain(|labels| !others.contains(labels));
            scrapes.of_file.mark_lost(before);
        }
        let mut now = scrapes.of_file.target_labels();
        now.extend(scrapes.of_api.target_labels());
        if remembered.stored != now {
            memory.store(org, &now);
            remembered.stored = now;
        }
    }

    /// Removes a configuration. Its targets end with staleness markers.
    pub fn remove(&self, org: OrgId, source: ScrapeSource) {
        let Some(scrapes) = self.org(org) else { return };
        let mut sources = scrapes.sources.lock().ignore_poison();
        let removed = sources.remove(&source);
        scrapes.fleet(source).apply(Vec::new());
        drop(sources);
        // The thread of the discovery may be waiting for the lock, so it is released first.
        if let Some(removed) = removed {
            removed.discovery.stop();
            self.remember(org, &scrapes);
        }
    }

    /// Stops the targets of an organisation without staleness markers.
    pub fn forget(&self, org: OrgId) {
        let removed = self.orgs().remove(&org);
        if let Some(removed) = removed {
            removed.stop();
        }
    }

    /// Stops all targets without staleness markers, at the end of the process.
    pub fn stop_all(&self) {
        let removed = std::mem::take(&mut *self.orgs());
        removed.values().for_each(|scrapes| scrapes.stop());
    }

    /// Returns the organisations with a configuration, by source, with the version of each.
    pub fn configured(&self) -> Vec<(OrgId, ScrapeSource, u32)> {
        let orgs = self.orgs().clone();
        let sources = |(org, scrapes): (OrgId, Arc<OrgScrapes>)| {
            let sources = scrapes.sources.lock().ignore_poison();
            let known: Vec<_> = sources.iter().map(|(source, one)| (org, *source, one.version)).collect();
            known
        };
        orgs.into_iter().flat_map(sources).collect()
    }

    /// Returns the configuration of an organisation.
    pub fn config(&self, org: OrgId, source: ScrapeSource) -> Option<Arc<ScrapeConfig>> {
        let scrapes = self.org(org)?;
        let sources = scrapes.sources.lock().ignore_poison();
        sources.get(&source).map(|source| Arc::clone(&source.config))
    }

    /// Returns the jobs and targets of an organisation.
    pub fn view(&self, org: OrgId) -> ScrapeView {
        let mut view = ScrapeView::default();
        if let Some(scrapes) = self.org(org) {
            let sources = scrapes.sources.lock().ignore_poison();
            view.pools = sources.iter().flat_map(|(source, configured)| configured.pools(*source)).collect();
            drop(sources);
            view.reports = scrapes.reports();
        }
        if let Some(own) = self.own_target.lock().ignore_poison().as_ref().filter(|own| own.org == org) {
            own.add_to(&mut view);
        }
        view
    }

    /// Lists this server as a target from now on, or no longer.
    pub fn report_own(&self, own: Option<OwnTarget>) {
        *self.own_target.lock().ignore_poison() = own;
    }

    /// Returns up to `most` different lists of metadata of an organisation's targets, in their
    /// order.
    pub fn metadata(&self, org: OrgId, most: usize) -> Vec<Arc<ScrapeMetadata>> {
        let Some(scrapes) = self.org(org) else { return Vec::new() };
        let mut seen = HashSet::new();
        let mut found = Vec::new();
        for report in scrapes.reports() {
            if found.len() >= most {
                break;
            }
            if seen.insert(Arc::as_ptr(&report.status.metadata)) {
                found.push(report.status.metadata);
            }
        }
        found
    }

    /// Returns the scrapes that each job of an organisation missed, by name.
    pub fn missed(&self) -> Vec<(OrgId, BTreeMap<Arc<str>, MissedScrapes>)> {
        let orgs = self.orgs().clone();
        orgs.into_iter().map(|(org, scrapes)| (org, scrapes.missed())).collect()
    }

    /// Returns the totals of an organisation's targets.
    pub fn totals_of(&self, org: OrgId) -> ScrapeTotals {
        self.org(org).map(|scrapes| scrapes.totals()).unwrap_or_default()
    }

    /// Returns the totals of each organisation's targets.
    pub fn totals(&self) -> Vec<(OrgId, ScrapeTotals)> {
        let orgs = self.orgs().clone();
        orgs.into_iter().map(|(org, scrapes)| (org, scrapes.totals())).collect()
    }
}

impl Drop for Scrapers {
    fn drop(&mut self) {
        self.stop_all();
    }
}

/// Returns the targets to scrape.
fn plans_of(targets: &DiscoveredTargets) -> Vec<ScrapePlan> {
    let plans = targets.jobs.iter().flat_map(|job| {
        let forced_error: Option<Arc<str>> = job.failure.as_deref().map(Arc::from);
        job.active
            .iter()
            .map(move |target| ScrapePlan { target: Arc::clone(target), forced_error: forced_error.clone() })
    });
    plans.collect()
}

impl ConfiguredSource {
    fn pools(&self, source: ScrapeSource) -> Vec<ScrapePool> {
        let statuses = self.discovery.statuses();
        let of_job = |name: &str| {
            let found: Option<&JobDiscoveries> = statuses.iter().find(|status| &*status.job == name);
            found.map(|found| found.discoveries.clone()).unwrap_or_default()
        };
        let jobs = self.targets.iter().flat_map(|targets| &targets.jobs);
        jobs.map(|targets| ScrapePool {
            source,
            targets: Arc::clone(targets),
            discoveries: of_job(&targets.job.name),
        })
        .collect()
    }
}

impl OrgScrapes {
    fn fleet(&self, source: ScrapeSource) -> &ScrapeFleet {
        match source {
            ScrapeSource::File => &self.of_file,
            ScrapeSource::Api => &self.of_api,
        }
    }

    fn reports(&self) -> Vec<ScrapeTargetReport> {
        self.of_file.reports().into_iter().chain(self.of_api.reports()).collect()
    }

    fn stop(&self) {
        let sources = std::mem::take(&mut *self.sources.lock().ignore_poison());
        sources.values().for_each(|source| source.discovery.stop());
        self.of_file.stop();
        self.of_api.stop();
    }

    fn missed(&self) -> BTreeMap<Arc<str>, MissedScrapes> {
        let mut jobs: BTreeMap<Arc<str>, MissedScrapes> = BTreeMap::new();
        for fleet in [&self.of_file, &self.of_api] {
            fleet.for_each(|target, status| {
                let missed = jobs.entry(Arc::clone(&target.job.name)).or_default();
                missed.skipped += status.skipped;
                missed.dropped += status.dropped;
            });
        }
        jobs
    }

    fn totals(&self) -> ScrapeTotals {
        let mut totals = ScrapeTotals::default();
        for fleet in [&self.of_file, &self.of_api] {
            fleet.for_each(|_, status| {
                match status.health {
                    ScrapeHealth::Up => totals.up += 1,
                    ScrapeHealth::Down => totals.down += 1,
                    ScrapeHealth::Unknown => totals.unknown += 1,
                }
                totals.scrapes += status.scrapes;
                totals.failures += status.failures;
                totals.refused += status.refused;
            });
        }
        let sources = self.sources.lock().ignore_poison();
        totals.discovery_failures = sources.values().map(|source| source.discovery.failures()).sum();
        totals
    }
}

#[cfg(test)]
mod tests;
