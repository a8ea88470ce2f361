//! The file of `--scrape-config`: its reload, and the organisation that gets its samples.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use super::sink::StoreSink;
use crate::api::orgs::scrape::ScrapeReloaded;
use crate::entropy::Entropy;
use crate::model::OrgId;
use crate::relabel::RelabelRules;
use crate::scrape::config::ScrapeConfig;
use crate::scrape::{ScrapeSource, Scrapers};
use crate::server::listener::Listener;
use crate::sync::IgnorePoison as _;

/// The place of the file.
#[derive(Clone, Debug, Default)]
pub(super) struct ScrapeFilePath {
    /// The path; `None` without `--scrape-config`.
    pub(super) path: Option<PathBuf>,
    /// The rules of an agent, which adds the external labels of the file to series; `None` in a
    /// server.
    pub(super) agent_rules: Option<RelabelRules>,
}

impl ScrapeFilePath {
    /// Reads the file, and logs sentences about keys without an effect. `None` without a file.
    ///
    /// # Errors
    /// A sentence with file, line and column.
    pub(super) fn read(&self) -> Result<Option<Arc<ScrapeConfig>>, String> {
        let Some(path) = &self.path else { return Ok(None) };
        let mut config = ScrapeConfig::read(path).map_err(|error| error.to_string())?;
        if let Some(rules) = &self.agent_rules {
            config = config.for_agent(rules);
        }
        config.notices.iter().for_each(|notice| tracing::warn!("scrape configuration: {notice}"));
        Ok(Some(Arc::new(config)))
    }
}

/// The configuration of the file, and the organisation that gets its samples.
#[derive(Debug, Default)]
pub(super) struct ScrapeFileState {
    pub(super) config: Option<Arc<ScrapeConfig>>,
    /// Increases with each reload.
    version: u32,
    /// The organisation that the file is scraped for.
    pub(super) running: Option<OrgId>,
    /// The reason why nothing is scraped, which has been reported.
    waits_for: Option<String>,
    /// Whether the process is stopping, so that nothing starts any more.
    is_stopped: bool,
}

/// The file, and the targets that it configures.
pub(super) struct ScrapeFile {
    path: ScrapeFilePath,
    pub(super) scrapers: Arc<Scrapers>,
    state: Mutex<ScrapeFileState>,
}

impl ScrapeFile {
    /// Creates a file that is not scraped yet. `config` was read from `path`.
    pub(super) fn new(
        path: ScrapeFilePath,
        config: Option<Arc<ScrapeConfig>>,
        scrapers: Arc<Scrapers>,
    ) -> ScrapeFile {
        let state = ScrapeFileState { config, version: 1, ..ScrapeFileState::default() };
        ScrapeFile { path, scrapers, state: Mutex::new(state) }
    }

    /// Locks the state. `None` if the process is stopping.
    pub(super) fn lock(&self) -> Option<MutexGuard<'_, ScrapeFileState>> {
        Some(self.state.lock().ignore_poison()).filter(|state| !state.is_stopped)
    }

    /// Reads the file again. Blocks.
    ///
    /// # Errors
    /// A sentence with file, line and column; the old configuration stays.
    pub(super) fn reload(&self) -> Result<ScrapeReloaded, String> {
        let config = self.path.read().inspect_err(|error| {
            tracing::error!("the scrape configuration was not reloaded, the old one stays: {error}");
        })?;
        let Some(config) = config else {
            return Err("the server runs without --scrape-config".to_owned());
        };
        let report = ScrapeReloaded { jobs: config.jobs.len(), notices: config.notices.clone() };
        let Some(mut state) = self.lock() else { return Err("the server is stopping".to_owned()) };
        state.config = Some(config);
        state.version = state.version.wrapping_add(1);
        if let Some(org) = state.running {
            self.configure(&state, org)?;
        }
        tracing::info!(jobs = report.jobs, "the scrape configuration was reloaded");
        Ok(report)
    }

    /// Reads the file again at each SIGHUP, on a thread of `sink`.
    pub(super) fn reload_at_hang_up(self: &Arc<Self>, listener: &Listener, sink: &Arc<StoreSink>) {
        let (own, sink) = (Arc::downgrade(self), Arc::downgrade(sink));
        listener.on_hang_up(move || {
            let Some(sink) = sink.upgrade() else { return };
            let file = own.clone();
            let reload = move || drop(file.upgrade().map(|file| file.reload()));
            sink.pool.spawn(Box::new(reload), Duration::ZERO);
        });
    }

    /// Scrapes for the organisation `org`, or for none, which has a reason.
    pub(super) fn follow(&self, state: &mut ScrapeFileState, org: Result<OrgId, String>) {
        if let Ok(org) = &org
            && state.running == Some(*org)
        {
            return;
        }
        if let Some(before) = state.running.take() {
            self.scrapers.remove(before, ScrapeSource::File);
        }
        match org {
            Ok(org) => match self.configure(state, org) {
                Ok(()) => {
                    let jobs = state.config.as_ref().map_or(0, |config| config.jobs.len());
                    tracing::info!(org = org.0, jobs, "scraping for this organisation");
                    state.running = Some(org);
                    state.waits_for = None;
                }
                Err(error) => tracing::error!("{error}"),
            },
            Err(why) => {
                if state.waits_for.as_ref() != Some(&why) {
                    tracing::warn!("nothing is scraped yet: {why}");
                    state.waits_for = Some(why);
                }
            }
        }
    }

    /// # Errors
    /// A sentence, if a thread cannot be started.
    fn configure(&self, state: &ScrapeFileState, org: OrgId) -> Result<(), String> {
        let Some(config) = &state.config else { return Ok(()) };
        let place = (org, ScrapeSource::File);
        let started = self.scrapers.configure(place, Arc::clone(config), state.version, Entropy::system());
        started.map_err(|error| format!("scraping does not start: {error}"))
    }

    /// Stops all scrapes, without staleness markers: after a restart the targets continue.
    pub(super) fn stop(&self) {
        self.state.lock().ignore_poison().is_stopped = true;
        self.scrapers.stop_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::model::{ByteBudget, EgressRules};
    use crate::outbound::Egress;
    use crate::scrape::ScrapersDeps;
    use crate::scrape::run::ScrapeDeps;
    use crate::tsdb::Tsdb;

    const ORG: OrgId = OrgId(7);

    fn good(job: &str) -> String {
        format!("global: {{external_labels: {{region: eu}}}}\nscrape_configs:\n- job_name: {job}\n")
    }

    #[test]
    fn a_file_is_followed_reloaded_and_stopped_and_a_wrong_one_changes_nothing() {
        let dir = crate::kv::scratch::temporary_folder().expect("a folder");
        let file_path = dir.path().join("prometheus.yml");
        let write = |text: &str| std::fs::write(&file_path, text).expect("written");
        let path =
            ScrapeFilePath { path: Some(file_path.clone()), agent_rules: Some(RelabelRules::default()) };
        write("scrape_configs: {}\n");
        let error = path.read().expect_err("wrong");
        assert!(error.contains("prometheus.yml: line 1, column 17"), "{error}");
        write(&good("first"));
        let config = path.read().expect("valid").expect("a file");
        assert_eq!(config.jobs[0].agent_relabel.external_labels.value("region"), "eu");
        let of_server = ScrapeFilePath { agent_rules: None, ..path.clone() };
        let of_server = of_server.read().expect("valid").expect("a file");
        assert_eq!(of_server.jobs[0].agent_relabel, Arc::default(), "a server adds no labels");

        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let tsdb = Arc::new(Tsdb::scaffold());
        let deps = ScrapeDeps {
            sink: StoreSink::start(&tsdb, Box::new(|_| Ok(()))).expect("threads"),
            egress: Egress::new(EgressRules::default(), &[]),
            runtime: runtime.handle().clone(),
            clock: Clock::System,
            settings: Arc::default(),
            bodies: ByteBudget::new(1_000),
        };
        let deps = ScrapersDeps { of_api: deps.clone(), of_file: deps, memory: None, resolver: None };
        let file = ScrapeFile::new(path, Some(config), Scrapers::new(deps));
        assert_eq!(file.reload().map(|reloaded| reloaded.jobs), Ok(1), "nothing runs yet");
        assert_eq!(file.scrapers.configured(), []);
        let follow = |org| file.follow(&mut file.lock().expect("not stopped"), org);
        follow(Err("no organisation".to_owned()));
        follow(Ok(ORG));
        assert_eq!(file.scrapers.configured(), [(ORG, ScrapeSource::File, 2)]);
        write("scrape_configs:\n- job_nam: a\n");
        assert!(file.reload().expect_err("wrong").contains("line 2, column 3"));
        assert_eq!(file.scrapers.configured(), [(ORG, ScrapeSource::File, 2)]);
        write(&(good("first") + "- job_name: second\n"));
        assert_eq!(file.reload().map(|reloaded| reloaded.jobs), Ok(2));
        assert_eq!(file.scrapers.configured(), [(ORG, ScrapeSource::File, 3)]);
        follow(Ok(OrgId(8)));
        assert_eq!(file.scrapers.configured(), [(OrgId(8), ScrapeSource::File, 3)]);
        file.stop();
        assert!(file.lock().is_none() && file.reload().is_err());
        assert_eq!(file.scrapers.configured(), []);
    }
}
