//! The metrics of this server and of its machine, which are stored as if they were scraped. They
//! are read in the process, so nothing is requested.

use std::sync::Arc;
use std::time::Duration;

use super::Scraping;
use crate::api::orgs::settings::limits_of;
use crate::api::own_metrics::OwnMetrics;
use crate::clock::Stopwatch;
use crate::config::SelfScrapeMode;
use crate::model::{BatchBuilder, Labels, OrgId, Sample, Timestamp};
use crate::scrape::run::{ScrapeHealth, ScrapeStatus};
use crate::scrape::target::JobTargets;
use crate::scrape::{OwnTarget, own_job};
use crate::server::background::OwnSamples;
use crate::server::{Server, ServerError};
use crate::tsdb::Tsdb;

/// How often a batch is looked for that is due.
const TICK: Duration = Duration::from_secs(1);
/// The time from the start to the first batch, in milliseconds. A script that prepares a new server
/// has time to set limits or to create a second organisation.
const FIRST_MS: i64 = 5_000;
/// The time from one batch to the next, in milliseconds.
const PERIOD_MS: i64 = 15_000;
/// The time until an organisation is looked for again, in milliseconds.
const RETRY_MS: i64 = 5_000;

impl Scraping {
    /// Returns the organisation that gets the metrics of this server.
    ///
    /// These samples describe the server and its machine, and use up limits of the organisation.
    /// `auto` gives them to none with a quota, and to one that is not named only if it is the only
    /// one and that of an administrator of the server.
    ///
    /// # Errors
    /// A sentence, if none gets them now.
    fn own_org(&self, now: Timestamp) -> Result<OrgId, String> {
        if self.identity.is_replica() {
            return Err("this server is a standby".to_owned());
        }
        let org = self.org()?;
        if self.settings.itself == SelfScrapeMode::Auto {
            if self.settings.org.is_none() {
                self.check_is_of_operator(org, now)?;
            }
            if limits_of(&self.identity, &self.tsdb, org).has_quota() {
                return Err("the organisation has a limit of series, memory or disk".to_owned());
            }
        }
        self.may_write.get().map_or(Ok(()), |check| check(org))?;
        Ok(org)
    }

    /// Checks that an organisation is the only one, and that an administrator of the server is a
    /// member.
    ///
    /// # Errors
    /// A sentence, if it is not.
    fn check_is_of_operator(&self, org: OrgId, now: Timestamp) -> Result<(), String> {
        if self.identity.orgs().map_or(true, |orgs| orgs.len() > 1) {
            return Err("there are several organisations, and --scrape-org names none".to_owned());
        }
        let members = self.identity.members(org, now).unwrap_or_default();
        if members.iter().any(|member| member.user.is_admin) {
            return Ok(());
        }
        Err("no administrator of the server is a member of the organisation, and --scrape-org names none"
            .to_owned())
    }
}

/// The task that stores the metrics of this server.
struct OwnScrape {
    scraping: Arc<Scraping>,
    tsdb: Arc<Tsdb>,
    samples: OwnSamples,
    /// The labels of `up`.
    up: Labels,
    job: Option<Arc<JobTargets>>,
    status: ScrapeStatus,
    /// The organisation of the last batch, or the reason why there was none; None before the first.
    org: Option<Result<OrgId, String>>,
    /// The time of the next batch.
    due: Timestamp,
}

impl OwnScrape {
    fn tick(&mut self, now: Timestamp) {
        // A clock that was set back delays no batch by more than the period.
        if now < self.due && self.due.ms_since(now) <= PERIOD_MS {
            return;
        }
        let org = self.scraping.own_org(now);
        self.due = now.plus_ms(if org.is_ok() { PERIOD_MS } else { RETRY_MS });
        if self.org.as_ref() != Some(&org) {
            self.status = ScrapeStatus::default();
            match &org {
                Ok(org) => tracing::info!(org = org.0, "storing the metrics of this server (--self-scrape)"),
                Err(why) => tracing::info!("the metrics of this server are not stored: {why}"),
            }
        }
        let stored_for = org.as_ref().ok().copied();
        self.org = Some(org);
        if let Some(org) = stored_for {
            self.store(org, now);
        }
        let own = stored_for.zip(self.job.as_ref()).map(|(org, job)| OwnTarget {
            org,
            job: Arc::clone(job),
            status: self.status.clone(),
        });
        self.scraping.file.scrapers.report_own(own);
    }

    fn store(&mut self, org: OrgId, now: Timestamp) {
        let watch = Stopwatch::start();
        let mut batch = BatchBuilder::default();
        batch.series(&self.up, [Sample { at: now, value: 1.0 }]);
        let stored = self.samples.store(&self.tsdb, org, batch, now);
        let status = &mut self.status;
        status.last_scrape = Some(now);
        status.last_duration_s = watch.elapsed().as_secs_f64();
        status.scrapes = status.scrapes.saturating_add(1);
        let (kept, refused) = stored.as_ref().map_or((0, 0), |report| (report.stored, report.refused));
        status.samples_scraped = kept.saturating_add(refused);
        status.samples_kept = status.samples_scraped;
        status.refused = status.refused.saturating_add(refused);
        let error = stored.err();
        if let Some(error) = error.as_ref().filter(|error| Some(*error) != status.last_error.as_ref()) {
            tracing::warn!("{error}");
        }
        status.failures = status.failures.saturating_add(u64::from(error.is_some()));
        status.health = if error.is_some() { ScrapeHealth::Down } else { ScrapeHealth::Up };
        status.last_error = error;
    }
}

impl Server {
    /// Begins to store the metrics of this server and of its machine, if the settings say so and
    /// nothing else stores them.
    ///
    /// # Errors
    /// [`ServerError::Thread`].
    pub(in crate::server) fn start_self_scrape(
        &mut self,
        own: OwnMetrics,
        scraping: &Arc<Scraping>,
    ) -> Result<(), ServerError> {
        if self.settings.scrape.itself == SelfScrapeMode::Off || self.live_metrics.is_some() {
            return Ok(());
        }
        let samples = OwnSamples::new(own);
        let instance = samples.host_name();
        let up = Labels::from_pairs([("__name__", "up"), ("job", "promlet"), ("instance", instance)]);
        let mut task = OwnScrape {
            scraping: Arc::clone(scraping),
            tsdb: Arc::clone(&self.tsdb),
            up,
            job: own_job(instance, self.settings.scheme(), &self.listener.address.to_string()),
            samples,
            status: ScrapeStatus::default(),
            org: None,
            due: self.clock.now().plus_ms(FIRST_MS),
        };
        self.start_task("self-scrape", TICK, move |now| task.tick(now))
    }
}
