//! Scraping as a part of the server: the file of `--scrape-config`, its organisation, and its
//! reload at SIGHUP.

mod commits;
mod own;
mod pool;
mod sink;

use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use super::operator_org::operator_org;
use super::{Server, ServerError};
use crate::api::orgs::scrape::{ScrapeReload, ScrapeReloaded, ScrapeRoom, reconcile};
use crate::config::ScrapeSettings;
use crate::entropy::Entropy;
use crate::identity::Identity;
use crate::model::{ByteBudget, Labels, OrgId};
use crate::outbound::Egress;
use crate::scrape::config::ScrapeConfig;
use crate::scrape::run::{ScrapeDeps, ScrapeRunSettings, offset_seed};
use crate::scrape::{ScrapeSource, Scrapers, ScrapersDeps};
use crate::sync::IgnorePoison as _;
use crate::tasks::host_name;
use commits::ScrapeCommits;
use pool::ScrapePoolThreads;
use sink::StoreSink;

/// The time between two ticks, which look for the organisation of the file and for a promotion.
const PERIOD: Duration = Duration::from_secs(5);
/// The number of ticks from one read of all stored configurations to the next.
const TICKS_TO_RECONCILE: u32 = 6;

/// The bytes of all responses that wait, of which one organisation has at most half: 1 GiB.
const SCRAPE_BODIES_BYTES: u64 = 1 << 30;

/// The file of `--scrape-config`, and the organisation that gets its samples.
#[derive(Debug, Default)]
struct ScrapeFile {
    config: Option<Arc<ScrapeConfig>>,
    /// Increases with each reload.
    version: u32,
    /// The organisation that the file is scraped for.
    running: Option<OrgId>,
    /// The reason why nothing is scraped, which has been reported.
    waits_for: Option<String>,
    /// The ticks so far.
    ticks: u32,
    /// Whether the server is stopping, so that nothing starts any more.
    is_stopped: bool,
}

/// The scraping of a server.
pub(super) struct Scraping {
    settings: ScrapeSettings,
    identity: Arc<Identity>,
    scrapers: Arc<Scrapers>,
    sink: Arc<StoreSink>,
    file: Mutex<ScrapeFile>,
}

fn read(path: &Path) -> Result<Arc<ScrapeConfig>, String> {
    ScrapeConfig::read(path).map(Arc::new).map_err(|error| error.to_string())
}

impl Scraping {
    /// Returns the dependencies of the routes.
    pub(super) fn room(self: &Arc<Self>) -> ScrapeRoom {
        let own = Arc::downgrade(self);
        let reload = move || match own.upgrade() {
            Some(scraping) => scraping.reload(),
            None => Err("the server is stopping".to_owned()),
        };
        let has_file = self.settings.config.is_some();
        ScrapeRoom {
            scrapers: Arc::clone(&self.scrapers),
            org_admins: self.settings.org_admins,
            reload: ScrapeReload(has_file.then(|| Arc::new(reload) as _)),
        }
    }

    /// Sets the check whether samples of an organisation may be stored here.
    pub(super) fn check_writes_by(
        &self,
        check: impl Fn(OrgId) -> Result<(), String> + Send + Sync + 'static,
    ) {
        // It is set once, when the routes exist.
        let _ = self.sink.may_write.set(Box::new(check));
    }

    /// Reads the file again. Blocks.
    ///
    /// # Errors
    /// A sentence with file, line and column; the old configuration stays.
    fn reload(&self) -> Result<ScrapeReloaded, String> {
        let Some(path) = &self.settings.config else {
            return Err("the server runs without --scrape-config".to_owned());
        };
        let config = read(path).inspect_err(|error| {
            tracing::error!("the scrape configuration was not reloaded, the old one stays: {error}");
        })?;
        report_notices(&config);
        let report = ScrapeReloaded { jobs: config.jobs.len(), notices: config.notices.clone() };
        let mut file = self.file.lock().ignore_poison();
        file.config = Some(config);
        file.version = file.version.wrapping_add(1);
        if let Some(org) = file.running.filter(|_| !file.is_stopped) {
            self.configure(&file, org)?;
        }
        tracing::info!(jobs = report.jobs, "the scrape configuration was reloaded");
        Ok(report)
    }

    fn configure(&self, file: &ScrapeFile, org: OrgId) -> Result<(), String> {
        let Some(config) = &file.config else { return Ok(()) };
        let place = (org, ScrapeSource::File);
        let started = self.scrapers.configure(place, Arc::clone(config), file.version, Entropy::system());
        started.map_err(|error| format!("scraping does not start: {error}"))
    }

    /// Runs the configured scrapes on a primary, and stops them on a follower.
    fn tick(&self) {
        let mut file = self.file.lock().ignore_poison();
        if file.is_stopped {
            return;
        }
        if self.identity.is_replica() {
            file.running = None;
            return self.scrapers.stop_all();
        }
        if file.ticks.is_multiple_of(TICKS_TO_RECONCILE) {
            reconcile(&self.identity, &self.scrapers);
        }
        file.ticks = file.ticks.wrapping_add(1);
        if file.config.is_some() {
            self.follow_file(&mut file);
        }
        drop(file);
        self.scrapers.all_configured();
    }

    /// Scrapes for the organisation that gets the samples of the file.
    fn follow_file(&self, file: &mut ScrapeFile) {
        match self.org() {
            Ok(org) if file.running == Some(org) => {}
            Ok(org) => {
                if let Some(before) = file.running.take() {
                    self.scrapers.remove(before, ScrapeSource::File);
                }
                match self.configure(file, org) {
                    Ok(()) => {
                        let jobs = file.config.as_ref().map_or(0, |config| config.jobs.len());
                        tracing::info!(org = org.0, jobs, "scraping for this organisation");
                        file.running = Some(org);
                        file.waits_for = None;
                    }
                    Err(error) => tracing::error!("{error}"),
                }
            }
            Err(why) => {
                if let Some(before) = file.running.take() {
                    self.scrapers.remove(before, ScrapeSource::File);
                }
                if file.waits_for.as_ref() != Some(&why) {
                    tracing::warn!("nothing is scraped yet: {why}");
                    file.waits_for = Some(why);
                }
            }
        }
    }

    /// Returns the organisation that gets the samples of the file.
    ///
    /// # Errors
    /// A sentence, if there is none.
    fn org(&self) -> Result<OrgId, String> {
        operator_org(&self.identity, self.settings.org.as_deref(), "--scrape-org")
    }

    /// Stops all scrapes, without staleness markers: after a restart the targets continue.
    pub(super) fn stop(&self) {
        self.file.lock().ignore_poison().is_stopped = true;
        self.scrapers.stop_all();
        self.sink.pool.stop();
    }
}

fn report_notices(config: &ScrapeConfig) {
    config.notices.iter().for_each(|notice| tracing::warn!("scrape configuration: {notice}"));
}

impl Server {
    /// Reads the file of `--scrape-config` and starts the threads of scraping.
    ///
    /// # Errors
    /// [`ServerError`], also if the file is wrong.
    pub(super) fn start_scraping(&self) -> Result<Scraping, ServerError> {
        let settings = self.settings.scrape.clone();
        let config = settings.config.as_deref().map(read).transpose().map_err(ServerError::Scrape)?;
        config.iter().for_each(|config| report_notices(config));
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let commits = Arc::new(ScrapeCommits::new(Arc::clone(&self.tsdb)));
        let after_group = Arc::clone(&commits);
        let pool = ScrapePoolThreads::start(cores.saturating_mul(2), move || after_group.write());
        let sink = Arc::new(StoreSink {
            tsdb: Arc::clone(&self.tsdb),
            identity: Arc::clone(&self.identity),
            pool: Arc::new(pool.map_err(ServerError::Thread)?),
            commits,
            may_write: OnceLock::new(),
        });
        let external = config.as_ref().map_or_else(Labels::default, |config| config.external_labels.clone());
        let run_settings = ScrapeRunSettings {
            offset_seed: offset_seed(&external, &host_name()),
            hash_seed: u64::from_be_bytes(Entropy::system().bytes()),
            ..ScrapeRunSettings::default()
        };
        let rules = self.settings.outbound_allow.clone();
        let of_file = ScrapeDeps {
            sink: Arc::clone(&sink) as _,
            egress: Egress::new(rules.for_scraping(), &[self.listener.address]),
            runtime: self.listener.runtime(),
            clock: self.clock.clone(),
            settings: Arc::new(run_settings),
            bodies: ByteBudget::new(SCRAPE_BODIES_BYTES),
        };
        // Administrators of organisations do not decide about the network of this server.
        let of_api = match settings.org_admins {
            true => ScrapeDeps { egress: self.listener.options.egress.clone(), ..of_file.clone() },
            false => of_file.clone(),
        };
        let memory = Arc::clone(&sink) as _;
        let scrapers = Scrapers::new(ScrapersDeps { of_file, of_api, memory, resolver: None });
        let file = ScrapeFile { config, version: 1, ..ScrapeFile::default() };
        let identity = Arc::clone(&self.identity);
        Ok(Scraping { settings, identity, scrapers, sink, file: Mutex::new(file) })
    }

    /// Begins to scrape, and reads the file again at SIGHUP.
    ///
    /// # Errors
    /// [`ServerError::Thread`].
    pub(super) fn run_scraping(&mut self, scraping: &Arc<Scraping>) -> Result<(), ServerError> {
        if scraping.settings.config.is_some() {
            let own = Arc::downgrade(scraping);
            self.listener.on_hang_up(move || {
                if let Some(scraping) = own.upgrade() {
                    let work = Arc::downgrade(&scraping);
                    let reload = move || drop(work.upgrade().map(|scraping| scraping.reload()));
                    scraping.sink.pool.spawn(Box::new(reload), Duration::ZERO);
                }
            });
        }
        let own = Arc::clone(scraping);
        self.start_task("scrape", PERIOD, move |_| own.tick())
    }
}
