//! Scraping as a part of the server or of an agent: the file of `--scrape-config`, its
//! organisation, and its reload at SIGHUP.

mod agent;
mod commits;
mod file;
mod memory;
mod own;
mod pool;
mod sink;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::listener::Listener;
use super::operator_org::operator_org;
use super::{Server, ServerError};
use crate::api::orgs::scrape::{ScrapeReload, ScrapeRoom, reconcile};
use crate::clock::Clock;
use crate::config::{ScrapeSettings, Settings};
use crate::entropy::Entropy;
use crate::identity::Identity;
use crate::model::{ByteBudget, Labels, OrgId};
use crate::outbound::Egress;
use crate::scrape::run::{ScrapeDeps, ScrapeRunSettings, offset_seed};
use crate::scrape::{Scrapers, ScrapersDeps};
use crate::tasks::host_name;
use crate::tsdb::Tsdb;
pub(super) use agent::{AgentScrapeConfig, AgentScraping};
use file::{ScrapeFile, ScrapeFilePath};
use memory::TargetMemory;
use sink::{StoreSink, WriteCheck};

/// The time between two ticks, which look for the organisation of the file and for a promotion.
const PERIOD: Duration = Duration::from_secs(5);
/// The number of ticks from one read of all stored configurations to the next.
const TICKS_TO_RECONCILE: u32 = 6;

/// The bytes of all responses that wait, of which one organisation has at most half: 1 GiB.
const SCRAPE_BODIES_BYTES: u64 = 1 << 30;

/// The scraping of a server.
pub(super) struct Scraping {
    settings: ScrapeSettings,
    identity: Arc<Identity>,
    tsdb: Arc<Tsdb>,
    sink: Arc<StoreSink>,
    file: Arc<ScrapeFile>,
    /// The check of the routes; unset until they exist.
    may_write: Arc<OnceLock<Box<WriteCheck>>>,
    /// The ticks so far.
    ticks: AtomicU32,
}

/// The parts of a process that requests to targets need.
#[derive(Clone, Copy)]
pub(super) struct ScrapeParts<'p> {
    pub(super) settings: &'p Settings,
    pub(super) listener: &'p Listener,
    pub(super) clock: &'p Clock,
}

/// Returns the dependencies of the targets of a file with these external labels.
fn scrape_deps(sink: &Arc<StoreSink>, parts: ScrapeParts<'_>, external_labels: &Labels) -> ScrapeDeps {
    let ScrapeParts { settings, listener, clock } = parts;
    let run_settings = ScrapeRunSettings {
        offset_seed: offset_seed(external_labels, &host_name()),
        hash_seed: u64::from_be_bytes(Entropy::system().bytes()),
        ..ScrapeRunSettings::default()
    };
    ScrapeDeps {
        sink: Arc::clone(sink) as _,
        egress: Egress::new(settings.outbound_allow.clone().for_scraping(), &[listener.address]),
        runtime: listener.runtime(),
        clock: clock.clone(),
        settings: Arc::new(run_settings),
        bodies: ByteBudget::new(SCRAPE_BODIES_BYTES),
    }
}

impl Scraping {
    /// Returns the dependencies of the routes.
    pub(super) fn room(self: &Arc<Self>) -> ScrapeRoom {
        let file = Arc::downgrade(&self.file);
        let reload = move || match file.upgrade() {
            Some(file) => file.reload(),
            None => Err("the server is stopping".to_owned()),
        };
        let has_file = self.settings.config.is_some();
        ScrapeRoom {
            scrapers: Arc::clone(&self.file.scrapers),
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
        let _ = self.may_write.set(Box::new(check));
    }

    /// Runs the configured scrapes on a primary, and stops them on a follower.
    fn tick(&self) {
        let Some(mut state) = self.file.lock() else { return };
        if self.identity.is_replica() {
            state.running = None;
            return self.file.scrapers.stop_all();
        }
        if self.ticks.fetch_add(1, Ordering::Relaxed).is_multiple_of(TICKS_TO_RECONCILE) {
            reconcile(&self.identity, &self.file.scrapers);
        }
        if state.config.is_some() {
            self.file.follow(&mut state, self.org());
        }
        drop(state);
        self.file.scrapers.all_configured();
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
        self.file.stop();
        self.sink.pool.stop();
    }
}

impl Server {
    /// Reads the file of `--scrape-config` and starts the threads of scraping.
    ///
    /// # Errors
    /// [`ServerError`], also if the file is wrong.
    pub(super) fn start_scraping(&self) -> Result<Scraping, ServerError> {
        let settings = self.settings.scrape.clone();
        let path = ScrapeFilePath { path: settings.config.clone(), agent_rules: None };
        let config = path.read().map_err(ServerError::Scrape)?;
        let may_write: Arc<OnceLock<Box<WriteCheck>>> = Arc::default();
        let (of_routes, identity) = (Arc::clone(&may_write), Arc::clone(&self.identity));
        let check_writes = move |org| {
            of_routes.get().map_or(Ok(()), |check| check(org))?;
            match identity.is_replica() {
                true => Err("this server is a standby".to_owned()),
                false => Ok(()),
            }
        };
        let sink = StoreSink::start(&self.tsdb, Box::new(check_writes)).map_err(ServerError::Thread)?;
        let external = config.as_ref().map(|config| config.external_labels.clone()).unwrap_or_default();
        let parts = ScrapeParts { settings: &self.settings, listener: &self.listener, clock: &self.clock };
        let of_file = scrape_deps(&sink, parts, &external);
        // Administrators of organisations do not decide about the network of this server.
        let of_api = match settings.org_admins {
            true => ScrapeDeps { egress: self.listener.options.egress.clone(), ..of_file.clone() },
            false => of_file.clone(),
        };
        let identity = Arc::clone(&self.identity);
        let memory = Some(Arc::new(TargetMemory(Arc::clone(&identity))) as _);
        let scrapers = Scrapers::new(ScrapersDeps { of_file, of_api, memory, resolver: None });
        let file = Arc::new(ScrapeFile::new(path, config, scrapers));
        let (tsdb, ticks) = (Arc::clone(&self.tsdb), AtomicU32::new(0));
        Ok(Scraping { settings, identity, tsdb, sink, file, may_write, ticks })
    }

    /// Begins to scrape, and reads the file again at SIGHUP.
    ///
    /// # Errors
    /// [`ServerError::Thread`].
    pub(super) fn run_scraping(&mut self, scraping: &Arc<Scraping>) -> Result<(), ServerError> {
        if scraping.settings.config.is_some() {
            scraping.file.reload_at_hang_up(&self.listener, &scraping.sink);
        }
        let own = Arc::clone(scraping);
        self.start_task("scrape", PERIOD, move |_| own.tick())
    }
}
