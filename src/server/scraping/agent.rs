//! Scraping as a part of an agent: the file of `--scrape-config`, with the rules of the agent.

use std::path::PathBuf;
use std::sync::Arc;

use super::file::{ScrapeFile, ScrapeFilePath};
use super::sink::StoreSink;
use super::{ScrapeParts, scrape_deps};
use crate::api::agent::AGENT_ORG;
use crate::relabel::RelabelRules;
use crate::scrape::config::ScrapeConfig;
use crate::scrape::{Scrapers, ScrapersDeps};
use crate::server::ServerError;
use crate::tsdb::Tsdb;

/// The file of an agent, before the queue is open.
pub(in crate::server) struct AgentScrapeConfig {
    path: ScrapeFilePath,
    config: Arc<ScrapeConfig>,
}

/// The scraping of an agent. It remembers no targets over restarts, because it has no accounts.
pub(in crate::server) struct AgentScraping {
    file: Arc<ScrapeFile>,
    sink: Arc<StoreSink>,
}

impl AgentScrapeConfig {
    /// Reads the file. `rules` are those for everything that the agent stores.
    ///
    /// # Errors
    /// [`ServerError::Scrape`] with file, line and column.
    pub(in crate::server) fn read(
        path: PathBuf,
        rules: Option<&RelabelRules>,
    ) -> Result<AgentScrapeConfig, ServerError> {
        let rules = rules.cloned().unwrap_or_default();
        let path = ScrapeFilePath { path: Some(path), agent_rules: Some(rules) };
        let config = path.read().map_err(ServerError::Scrape)?.unwrap_or_default();
        Ok(AgentScrapeConfig { path, config })
    }
}

impl AgentScraping {
    /// Begins to scrape, and reads the file again at SIGHUP.
    ///
    /// # Errors
    /// [`ServerError`], if a thread cannot be started.
    pub(in crate::server) fn start(
        of_file: AgentScrapeConfig,
        tsdb: &Arc<Tsdb>,
        parts: ScrapeParts<'_>,
    ) -> Result<AgentScraping, ServerError> {
        let AgentScrapeConfig { path, config } = of_file;
        let sink = StoreSink::start(tsdb, Box::new(|_| Ok(()))).map_err(ServerError::Thread)?;
        let deps = scrape_deps(&sink, parts, &config.external_labels);
        let deps = ScrapersDeps { of_api: deps.clone(), of_file: deps, memory: None, resolver: None };
        let file = Arc::new(ScrapeFile::new(path, Some(config), Scrapers::new(deps)));
        file.reload_at_hang_up(parts.listener, &sink);
        if let Some(mut state) = file.lock() {
            file.follow(&mut state, Ok(AGENT_ORG));
            if state.running.is_none() {
                return Err(ServerError::Scrape(
                    "scraping does not start; the log has the reason".to_owned(),
                ));
            }
        }
        Ok(AgentScraping { file, sink })
    }

    /// Returns the scraped targets.
    pub(in crate::server) fn scrapers(&self) -> &Arc<Scrapers> {
        &self.file.scrapers
    }

    /// Stops all scrapes, without staleness markers, and waits for the samples that are being
    /// stored.
    pub(in crate::server) fn stop(&self) {
        self.file.stop();
        self.sink.pool.stop();
    }
}
