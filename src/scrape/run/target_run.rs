//! The state of one target between its scrapes.

mod repeat;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use super::batch::{ScrapeBatch, put_label};
use super::edge::ScrapeStored;
use super::error::ScrapeError;
use super::known::{KnownFate, KnownSeries, Recall, SeenOne, labels_key};
use super::labels::{LabelPolicy, SeriesFate};
use super::metadata::ScrapeMetadataPool;
use super::response::{NO_TIME, ScrapeBody};
use super::samples::{DecodedSeries, SampleSink, ScrapeCounts, series_of};
use super::schedule::ScrapeSchedule;
use super::status::{ScrapeHealth, ScrapeStatus};
use super::store_errors::StoreErrors;
use super::template::{BodyTemplate, TEMPLATES_BYTES_MAX, TemplateBackoff};
use crate::ingest::{DecodeError, DecodeLimits, Translated};
use crate::model::{ByteBudget, MetricKind, Timestamp, WriteBatch};
use crate::scrape::config::ScrapeJob;
use crate::scrape::target::ScrapeTarget;

/// The longest time between two batches with the metadata of a target, in milliseconds. Metadata
/// that changed is stored at once.
const METADATA_EVERY_MS: i64 = 3_600_000;

/// The series about each scrape.
const REPORTS: [&str; 5] = [
    "up",
    "scrape_duration_seconds",
    "scrape_samples_scraped",
    "scrape_samples_post_metric_relabeling",
    "scrape_series_added",
];
/// The further series of [`ScrapeRunSettings::extra_metrics`].
const EXTRA_REPORTS: [&str; 3] = ["scrape_timeout_seconds", "scrape_sample_limit", "scrape_body_size_bytes"];

/// The settings that all targets share.
#[derive(Debug)]
pub struct ScrapeRunSettings {
    /// The seed of all offsets ([`super::offset_seed`]).
    pub offset_seed: u64,
    /// A secret number, so that no target can choose labels with equal hashes.
    pub hash_seed: u64,
    /// Whether the series `scrape_timeout_seconds`, `scrape_sample_limit` and
    /// `scrape_body_size_bytes` are stored, too.
    pub extra_metrics: bool,
    /// The limits of one response, in addition to those of the job.
    pub limits: DecodeLimits,
    /// The metadata of all targets.
    pub metadata: ScrapeMetadataPool,
    /// The bound on the memory of all templates of bodies. Each set of targets has a share of it.
    pub templates: ByteBudget,
}

impl Default for ScrapeRunSettings {
    fn default() -> ScrapeRunSettings {
        ScrapeRunSettings {
            offset_seed: 0,
            hash_seed: 0,
            extra_metrics: false,
            limits: DecodeLimits::default(),
            metadata: ScrapeMetadataPool::default(),
            templates: ByteBudget::new(TEMPLATES_BYTES_MAX),
        }
    }
}

/// The facts about a scrape besides its body.
#[derive(Clone, Copy, Debug, Default)]
pub struct ScrapeFacts {
    /// The timestamp, from [`ScrapeRun::begin`].
    pub at: Timestamp,
    /// The time until the last byte of the response.
    pub duration: Duration,
    /// The bytes of the body after decompression; 0 if there is none.
    pub body_bytes: u64,
}

/// The result of one scrape.
#[derive(Debug)]
pub struct ScrapeOutcome {
    /// The samples to store. A failed scrape has some, too: `up`, and staleness markers.
    pub batch: ScrapeBatch,
    /// The reason why the scrape failed.
    pub error: Option<ScrapeError>,
}

/// The state of one target.
#[derive(Debug)]
pub struct ScrapeRun {
    target: Arc<ScrapeTarget>,
    settings: Arc<ScrapeRunSettings>,
    schedule: ScrapeSchedule,
    known: KnownSeries,
    /// The series before the last change of the target's configuration, until the first scrape
    /// after it.
    inherited: Option<KnownSeries>,
    /// The template of bodies with the series in `known`.
    template: Option<BodyTemplate>,
    template_backoff: TemplateBackoff,
    /// The bound on the memory of the template and of those of other targets.
    templates: ByteBudget,
    /// The labels that each plain series gets ([`LabelPolicy::added`]), in the encoding of batches.
    labels: Box<[u8]>,
    /// The names of series about the scrape that the rules of the agent drop.
    dropped_reports: Vec<&'static str>,
    /// The labels of the series about the scrapes before the last change of the target's
    /// configuration, if that may change them, until the first scrape after it.
    inherited_reports: Vec<Vec<u8>>,
    metadata_at: Option<Timestamp>,
    has_reported: bool,
    status: ScrapeStatus,
    /// The samples of the last scrape that are not in its batch because of their time.
    left_out: ScrapeStored,
    store_errors: StoreErrors,
}

impl ScrapeRun {
    /// Starts the scrapes of a target.
    pub fn new(target: Arc<ScrapeTarget>, settings: Arc<ScrapeRunSettings>, now: Timestamp) -> ScrapeRun {
        let mut labels = Vec::new();
        let policy = LabelPolicy { job: &target.job, target: &target.labels };
        policy.added().for_each(|(name, value)| put_label(&mut labels, name, value));
        let mut dropped_reports: Vec<_> = REPORTS.into_iter().chain(EXTRA_REPORTS).collect();
        dropped_reports.retain(|name| policy.report(name).is_none());
        ScrapeRun {
            schedule: ScrapeSchedule::new(target.interval_ms, target.hash, settings.offset_seed, now),
            known: KnownSeries::new(settings.hash_seed),
            inherited: None,
            template: None,
            template_backoff: TemplateBackoff::default(),
            templates: settings.templates.clone(),
            labels: labels.into(),
            dropped_reports,
            inherited_reports: Vec::new(),
            metadata_at: None,
            has_reported: false,
            status: ScrapeStatus::default(),
            left_out: ScrapeStored::default(),
            store_errors: StoreErrors::default(),
            target,
            settings,
        }
    }

    /// Bounds the memory of the template by a share of that of all templates.
    #[must_use]
    pub fn with_templates(self, templates: ByteBudget) -> ScrapeRun {
        ScrapeRun { templates, ..self }
    }

    /// Continues with a target whose configuration changed, but not its labels. The series so far
    /// get their markers after the first scrape, unless they are in it.
    pub fn adopt(&mut self, target: Arc<ScrapeTarget>, now: Timestamp) {
        let fresh = ScrapeRun::new(target, Arc::clone(&self.settings), now);
        let mut before = std::mem::replace(self, fresh);
        self.inherited_reports = std::mem::take(&mut before.inherited_reports);
        let was_scraped = before.has_reported && before.inherited.is_none();
        if was_scraped && before.target.job.agent_relabel != self.target.job.agent_relabel {
            self.inherited_reports.extend(before.report_labels());
        }
        // Without a scrape since the last change, all series are still those that were inherited.
        self.inherited = before.inherited.or(Some(before.known));
        self.status = before.status;
        self.store_errors = before.store_errors;
        self.has_reported = before.has_reported;
    }

    /// Returns the target.
    pub fn target(&self) -> &Arc<ScrapeTarget> {
        &self.target
    }

    /// Returns the state for pages and the API.
    pub fn status(&self) -> &ScrapeStatus {
        &self.status
    }

    /// Returns the time from `now` until the next scrape.
    pub fn wait(&mut self, now: Timestamp) -> Duration {
        self.schedule.wait(now)
    }

    /// Begins the scrape that is due. Returns the timestamp of its samples.
    pub fn begin(&mut self, now: Timestamp) -> Timestamp {
        let start = self.schedule.begin(now);
        self.status.skipped = self.status.skipped.saturating_add(start.skipped);
        start.at
    }

    /// Counts a fetched response that was dropped, because too many of them wait.
    pub fn count_dropped(&mut self) {
        self.status.dropped = self.status.dropped.saturating_add(1);
    }

    /// Returns the time of the markers of a target that is removed now, which is that of the next
    /// planned scrape, and when they may be stored: 1.1 intervals later, because another server may
    /// have taken the target over.
    pub fn end_times(&self) -> (Timestamp, Timestamp) {
        let (at, interval) = (self.schedule.next(), self.schedule.interval_ms());
        (at, at.plus_ms(interval.saturating_add(interval / 10)))
    }

    /// Ends a scrape. `fetched` is the body of the response, or the reason why there is none.
    pub fn finish(
        &mut self,
        facts: ScrapeFacts,
        fetched: Result<ScrapeBody<'_>, ScrapeError>,
    ) -> ScrapeOutcome {
        let at = facts.at;
        let mut counts = ScrapeCounts::default();
        let mut batch = ScrapeBatch::new(at, self.target.job.honor_timestamps);
        let result = fetched.and_then(|body| self.add_samples(body, &mut batch, &mut counts));
        let error = result.err();
        if error.is_some() {
            batch = ScrapeBatch::new(at, self.target.job.honor_timestamps);
            self.known.fail(|labels, is_histogram| batch.mark(labels, is_histogram));
        }
        self.left_out = batch.take_left_out();
        self.report(&mut batch, facts, counts, error.as_ref());
        self.mark_inherited(&mut batch);
        self.update_status(facts, counts, error.as_ref());
        ScrapeOutcome { batch, error }
    }

    /// Records the result of storing the batch of the last scrape. Returns a sentence that has to
    /// be logged, if samples were not stored for a reason that was not logged recently.
    pub fn stored(&mut self, stored: Result<ScrapeStored, String>) -> Option<String> {
        let at = self.status.last_scrape.unwrap_or_default();
        let mut all = std::mem::take(&mut self.left_out);
        let error = match stored {
            Ok(ScrapeStored { refused, reason }) => {
                all.refused = all.refused.saturating_add(refused);
                all.reason = all.reason.or(reason);
                self.store_errors.refused(&all, at)
            }
            Err(error) => {
                self.metadata_at = None;
                Some(self.store_errors.failed(&error, at))
            }
        };
        self.status.refused = self.status.refused.saturating_add(all.refused);
        self.status.store_error = error.as_ref().map(|error| error.text.clone());
        error.filter(|error| error.is_due).map(|error| error.text)
    }

    /// Returns the staleness markers of all series of a removed target.
    pub fn end(&mut self, at: Timestamp) -> ScrapeBatch {
        let mut batch = ScrapeBatch::new(at, false);
        self.known.fail(|labels, is_histogram| batch.mark(labels, is_histogram));
        self.mark_inherited(&mut batch);
        if self.has_reported {
            self.report_labels().for_each(|labels| batch.mark(&labels, false));
        }
        batch
    }

    /// Returns the labels of each series about the scrapes that is stored.
    fn report_labels(&self) -> impl Iterator<Item = Vec<u8>> {
        let extra = if self.settings.extra_metrics { &EXTRA_REPORTS[..] } else { &[] };
        REPORTS.iter().chain(extra).filter_map(|name| self.report_series(name))
    }

    /// Returns the labels of a series about the scrapes; `None` if it is not stored.
    fn report_series(&self, name: &str) -> Option<Vec<u8>> {
        let policy = LabelPolicy { job: &self.target.job, target: &self.target.labels };
        let mut labels = Vec::with_capacity(64 + self.labels.len());
        policy.report(name)?.iter().for_each(|(name, value)| put_label(&mut labels, name, value));
        Some(labels)
    }

    fn add_samples(
        &mut self,
        body: ScrapeBody<'_>,
        batch: &mut ScrapeBatch,
        counts: &mut ScrapeCounts,
    ) -> Result<(), ScrapeError> {
        let job = Arc::clone(&self.target.job);
        let limits = self.limits(&job);
        let translated = body.decode(job.classic_histograms, &limits)?;
        if self.add_translated(&translated, batch, counts)? {
            self.learn_template(body, &translated.batch.batch());
        } else {
            self.template = None;
        }
        batch.set_translated(translated);
        Ok(())
    }

    /// Returns the limits of one response.
    fn limits(&self, job: &ScrapeJob) -> DecodeLimits {
        let mut limits = self.settings.limits;
        if let Ok(bytes @ 1..) = usize::try_from(job.limits.body_size_limit) {
            limits.decompressed_bytes_max = limits.decompressed_bytes_max.min(bytes);
        }
        limits
    }

    /// Adds a decoded response. Returns whether its series are those of the last one.
    fn add_translated(
        &mut self,
        translated: &Translated,
        batch: &mut ScrapeBatch,
        counts: &mut ScrapeCounts,
    ) -> Result<bool, ScrapeError> {
        let sent = translated.batch.batch();
        counts.scraped = sent.samples.len().saturating_add(sent.histograms.len()) as u64;
        let all = self.seen(&sent);
        let raw_bytes: usize = sent.series.iter().map(|series| series.raw_labels.len()).sum();
        let found = raw_bytes.saturating_add(all.len().saturating_mul(self.labels.len()));
        let allowed = self.settings.limits.label_bytes_max;
        if found > allowed {
            return Err(DecodeError::TooLarge { what: "bytes of labels", found, allowed }.into());
        }
        batch.reserve(all.len(), sent.samples.len(), found);
        let series = series_of(&sent);
        let job = Arc::clone(&self.target.job);
        let sink = &mut SampleSink { job: &job, batch, counts };
        let live = self.known.unchanged(&all);
        let is_unchanged = live.is_some();
        match live {
            None => self.add_changed(&sent, &all, batch, counts)?,
            Some(live) => {
                let changed = self.known.changed_labels();
                for (series, known) in series.zip(live) {
                    let parts = match known.fate {
                        KnownFate::Dropped => {
                            sink.batch.skip_series();
                            continue;
                        }
                        KnownFate::Plain => [series.raw, &*self.labels],
                        KnownFate::Changed(at) => [changed.at(at), &[]],
                    };
                    sink.batch.series(parts);
                    sink.add(&series, known.is_repeated)?;
                }
                check_sample_limit(&job, counts)?;
                self.known.keep();
            }
        }
        self.add_metadata(&sent, batch);
        Ok(is_unchanged)
    }

    /// Returns the hash and the kind of each series of a response.
    fn seen(&self, sent: &WriteBatch<'_>) -> Vec<SeenOne> {
        let job = &self.target.job;
        let tracks_all = job.track_timestamps_staleness || !job.honor_timestamps;
        let of = |series: DecodedSeries<'_>| SeenOne {
            hash: self.known.hash(series.raw),
            is_tracked: tracks_all
                || series.samples.iter().any(|sample| sample.at == NO_TIME)
                || series.histograms.iter().any(|one| one.at == NO_TIME),
            is_histogram: series.samples.is_empty(),
        };
        series_of(sent).map(of).collect()
    }

    /// Adds a response whose series are not those of the last one.
    fn add_changed(
        &mut self,
        sent: &WriteBatch<'_>,
        all: &[SeenOne],
        batch: &mut ScrapeBatch,
        counts: &mut ScrapeCounts,
    ) -> Result<(), ScrapeError> {
        let job = Arc::clone(&self.target.job);
        let policy = LabelPolicy { job: &job, target: &self.target.labels };
        let kinds: HashMap<&str, MetricKind> = sent.metadata.iter().map(|one| (one.name, one.kind)).collect();
        let kind_of = |family: &str| kinds.get(family).copied().unwrap_or_default();
        let mut change = self.known.change(all.len());
        let sink = &mut SampleSink { job: &job, batch, counts };
        let mut scratch = Vec::new();
        for (series, seen) in series_of(sent).zip(all) {
            let recall = self.known.recall(&mut change, *seen);
            let (fate, is_repeated) = match recall {
                Recall::Known(fate) => (fate, false),
                Recall::Repeated(fate) => (fate, true),
                Recall::New => {
                    let mut pairs = Vec::new();
                    (sent.parse_labels)(series.raw, &mut pairs).map_err(unreadable)?;
                    let pairs = texts(&pairs).ok_or_else(|| unreadable("a label is not UTF-8"))?;
                    let fate = match policy.apply(&pairs, &kind_of)? {
                        SeriesFate::Plain => KnownFate::Plain,
                        SeriesFate::Dropped => KnownFate::Dropped,
                        SeriesFate::Changed(pairs) => {
                            scratch.clear();
                            pairs.iter().for_each(|(name, value)| put_label(&mut scratch, name, value));
                            change.changed(&scratch)
                        }
                    };
                    change.set(fate);
                    (fate, false)
                }
            };
            let labels = match fate {
                KnownFate::Dropped => {
                    sink.batch.skip_series();
                    continue;
                }
                KnownFate::Plain => sink.batch.series([series.raw, &self.labels]),
                KnownFate::Changed(at) => sink.batch.series([change.changed_labels(at), &[]]),
            };
            change.put_final(sink.batch.labels(labels));
            sink.add(&series, is_repeated)?;
        }
        // On error, the series of the last scrape stay known.
        check_sample_limit(&job, counts)?;
        counts.added = change.added;
        self.known.replace(change, |labels, is_histogram| batch.mark(labels, is_histogram));
        Ok(())
    }

    /// Adds the markers of series of the run before this one that are not in the batch.
    fn mark_inherited(&mut self, batch: &mut ScrapeBatch) {
        let Some(mut inherited) = self.inherited.take() else { return };
        let present: HashSet<u64> =
            batch.batch().series.iter().map(|series| labels_key(series.raw_labels)).collect();
        let mut mark = |labels: &[u8], is_histogram| {
            if !present.contains(&labels_key(labels)) {
                batch.mark(labels, is_histogram);
            }
        };
        inherited.fail(&mut mark);
        std::mem::take(&mut self.inherited_reports).iter().for_each(|labels| mark(labels, false));
    }

    fn add_metadata(&mut self, sent: &WriteBatch<'_>, batch: &mut ScrapeBatch) {
        let is_same = self.status.metadata.is_of(&sent.metadata);
        if !is_same {
            self.status.metadata = self.settings.metadata.shared(&sent.metadata);
        }
        let now = batch.time(NO_TIME);
        if !is_same || self.is_metadata_due(now) {
            self.metadata_at = Some(now);
            batch.with_metadata = true;
        }
    }

    fn is_metadata_due(&self, now: Timestamp) -> bool {
        self.metadata_at.is_none_or(|at| now.ms_since(at) >= METADATA_EVERY_MS)
    }

    /// Adds the samples about the scrape.
    fn report(
        &mut self,
        batch: &mut ScrapeBatch,
        facts: ScrapeFacts,
        counts: ScrapeCounts,
        error: Option<&ScrapeError>,
    ) {
        self.has_reported = true;
        for (name, value) in self.report_values(facts, counts, error) {
            if let Some(labels) = self.report_series(name) {
                batch.report(&labels, value);
            }
        }
    }

    /// Returns the names and values of the samples about a scrape that are stored.
    fn report_values(
        &self,
        facts: ScrapeFacts,
        counts: ScrapeCounts,
        error: Option<&ScrapeError>,
    ) -> Vec<(&'static str, f64)> {
        let ScrapeFacts { duration, body_bytes, .. } = facts;
        let up = if error.is_none() { 1.0 } else { 0.0 };
        let values =
            [up, duration.as_secs_f64(), number(counts.scraped), number(counts.kept), number(counts.added)];
        let mut reports: Vec<_> = REPORTS.into_iter().zip(values).collect();
        if self.settings.extra_metrics {
            let timeout = Duration::from_millis(self.target.timeout_ms.unsigned_abs()).as_secs_f64();
            let limit = number(self.target.job.limits.sample_limit);
            let is_too_long = error.is_some_and(ScrapeError::is_body_size);
            let bytes = if is_too_long { -1.0 } else { number(body_bytes) };
            reports.extend(EXTRA_REPORTS.into_iter().zip([timeout, limit, bytes]));
        }
        reports.retain(|(name, _)| !self.dropped_reports.contains(name));
        reports
    }

    fn update_status(&mut self, facts: ScrapeFacts, counts: ScrapeCounts, error: Option<&ScrapeError>) {
        let ScrapeFacts { at, duration, body_bytes } = facts;
        let status = &mut self.status;
        status.health = if error.is_none() { ScrapeHealth::Up } else { ScrapeHealth::Down };
        status.last_scrape = Some(at);
        status.last_duration_s = duration.as_secs_f64();
        status.last_error = error.map(ScrapeError::shown);
        status.samples_scraped = counts.scraped;
        status.samples_kept = counts.kept;
        status.series_added = counts.added;
        status.body_bytes = body_bytes;
        status.scrapes = status.scrapes.saturating_add(1);
        status.failures = status.failures.saturating_add(u64::from(error.is_some()));
        status.duplicates = status.duplicates.saturating_add(counts.duplicates);
        status.panics = status.panics.saturating_add(u64::from(error == Some(&ScrapeError::Panicked)));
    }
}

/// # Errors
/// [`ScrapeError::SampleLimit`], if the scrape has more samples than its job allows.
const fn check_sample_limit(job: &ScrapeJob, counts: &ScrapeCounts) -> Result<(), ScrapeError> {
    let (found, allowed) = (counts.kept, job.limits.sample_limit);
    if allowed > 0 && found > allowed { Err(ScrapeError::SampleLimit { found, allowed }) } else { Ok(()) }
}

fn texts<'a>(pairs: &[(&'a [u8], &'a [u8])]) -> Option<Vec<(&'a str, &'a str)>> {
    let text = |bytes| std::str::from_utf8(bytes).ok();
    pairs.iter().map(|(name, value)| Some((text(name)?, text(value)?))).collect()
}

fn unreadable(reason: &str) -> ScrapeError {
    ScrapeError::Invalid { reason: reason.to_owned(), series: String::new() }
}

#[expect(clippy::cast_precision_loss, reason = "numbers of samples and bytes are below 2^53")]
const fn number(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
pub(super) mod tests;
