//! Stores scraped samples, and remembers targets for the next start.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde_json::{Map, Value};

use super::commits::ScrapeCommits;
use super::pool::ScrapePoolThreads;
use crate::api::views::labels::labels_json;
use crate::identity::Identity;
use crate::kv::with_sources;
use crate::model::{
    Access, HistogramColumns, Labels, MatchOp, Matcher, OrgId, TimeRange, Timestamp, WriteBatch, is_stale,
};
use crate::scrape::ScrapeMemory;
use crate::scrape::run::{ScrapeDone, ScrapeLiveSeries, ScrapeRefusal, ScrapeSink, ScrapeStored, ScrapeWork};
use crate::tsdb::{AppendReport, Appending, KeyedBatch, LabelsKey, SampleColumns, Tsdb};

/// The most series of a lost target that get markers, inclusive.
const LIVE_SERIES_MAX: usize = 1_000_000;
/// The most bytes of the labels of remembered targets, inclusive. Beyond it none are remembered.
const REMEMBERED_BYTES_MAX: usize = 16 << 20;

/// Checks whether samples of an organisation may be stored here. An error is a sentence.
pub(super) type WriteCheck = Box<dyn Fn(OrgId) -> Result<(), String> + Send + Sync>;

/// The store as scrapes use it.
pub(super) struct StoreSink {
    pub(super) tsdb: Arc<Tsdb>,
    pub(super) identity: Arc<Identity>,
    pub(super) pool: Arc<ScrapePoolThreads>,
    pub(super) commits: Arc<ScrapeCommits>,
    /// Unset until the routes exist.
    pub(super) may_write: OnceLock<WriteCheck>,
}

impl StoreSink {
    fn check_writes(&self, org: OrgId) -> Result<(), String> {
        if let Some(may_write) = self.may_write.get() {
            may_write(org)?;
        }
        match self.identity.is_replica() {
            true => Err("this server is a standby".to_owned()),
            false => Ok(()),
        }
    }
}

fn stored(report: &AppendReport) -> ScrapeStored {
    let reason = report.refusals.first().map(|refusal| ScrapeRefusal {
        code: refusal.code,
        text: format!("{}: {}", refusal.series, refusal.reason),
    });
    ScrapeStored { refused: report.refused, reason }
}

impl StoreSink {
    /// Lets a prepared batch wait for others.
    fn add(&self, batch: Appending, samples: usize, done: ScrapeDone) {
        let pool = Arc::clone(&self.pool);
        self.commits.add(batch, samples, move |result| match result {
            Err(error) => done(Err(with_sources(&error))),
            Ok(appended) if appended.has_refusals() => {
                // The report reads labels, for which the log cannot wait. After the pool has
                // stopped, no task waits for the report.
                let work = move || done(Ok(stored(&appended.report())));
                pool.spawn(Box::new(work), Duration::ZERO);
            }
            Ok(_) => done(Ok(ScrapeStored::default())),
        });
    }
}

impl ScrapeSink for StoreSink {
    fn spawn(&self, _: OrgId, work: ScrapeWork, max_wait: Duration) -> bool {
        self.pool.spawn(work, max_wait)
    }

    fn commit(&self, org: OrgId, batch: &WriteBatch<'_>, now: Timestamp, done: ScrapeDone) {
        let samples = batch.samples.len().saturating_add(batch.histograms.len());
        let prepare = || self.tsdb.prepare(org, batch, now).map_err(|error| with_sources(&error));
        match self.check_writes(org).and_then(|()| prepare()) {
            Ok(prepared) => self.add(prepared, samples, done),
            Err(error) => done(Err(error)),
        }
    }

    fn series_keys(&self, org: OrgId, batch: &WriteBatch<'_>) -> Vec<LabelsKey> {
        self.tsdb.series_keys(org, batch)
    }

    fn commit_keyed(
        &self,
        org: OrgId,
        batch: KeyedBatch<'_>,
        now: Timestamp,
        done: ScrapeDone,
    ) -> Result<(), ScrapeDone> {
        let samples = batch.samples.len();
        let prepare = || self.tsdb.prepare_keyed(org, batch, now).map_err(|error| with_sources(&error));
        match self.check_writes(org).and_then(|()| prepare()) {
            Ok(Some(prepared)) => self.add(prepared, samples, done),
            Ok(None) => return Err(done),
            Err(error) => done(Err(error)),
        }
        Ok(())
    }

    fn live_series(&self, org: OrgId, labels: &Labels, since: Timestamp) -> Vec<ScrapeLiveSeries> {
        let matchers: Vec<Matcher> = labels
            .iter()
            .filter_map(|label| Matcher::new(label.name, MatchOp::Equal, label.value).ok())
            .collect();
        let snapshot = self.tsdb.snapshot(&Access::whole(org));
        let Some(end) = self.tsdb.newest_sample(org).filter(|newest| *newest >= since) else {
            return Vec::new();
        };
        let range = TimeRange::new(since, end);
        let (mut floats, mut histograms) = (SampleColumns::default(), HistogramColumns::default());
        let mut live = Vec::new();
        for series in snapshot.select(&matchers, range).into_iter().take(LIVE_SERIES_MAX) {
            histograms.clear();
            snapshot.read_both(series.id, range, since, &mut floats, &mut histograms);
            let (float_at, histogram_at) = (floats.times.last(), histograms.times.last());
            let is_histogram = histogram_at > float_at;
            let is_live = match is_histogram {
                true => histograms.histograms.last().is_some_and(|last| !is_stale(last.sum())),
                false => floats.values.last().is_some_and(|value| !is_stale(*value)),
            };
            if is_live {
                live.push(ScrapeLiveSeries { labels: series.labels, is_histogram });
            }
        }
        live
    }
}

impl ScrapeMemory for StoreSink {
    fn load(&self, org: OrgId) -> Vec<Labels> {
        match self.identity.scraped_targets(org) {
            Ok(text) => labels_of(&text),
            Err(error) => {
                tracing::warn!(org = org.0, "the targets before the start cannot be read: {error}");
                Vec::new()
            }
        }
    }

    fn store(&self, org: OrgId, targets: &[Labels]) {
        if !self.identity.accepts_changes() {
            return;
        }
        let text = text_of(targets);
        let text = if text.len() > REMEMBERED_BYTES_MAX { String::new() } else { text };
        if let Err(error) = self.identity.set_scraped_targets(org, text) {
            tracing::warn!(org = org.0, "the targets are not stored for the next start: {error}");
        }
    }
}

fn text_of(targets: &[Labels]) -> String {
    match targets.is_empty() {
        true => String::new(),
        false => Value::from_iter(targets.iter().map(labels_json)).to_string(),
    }
}

fn labels_of(text: &str) -> Vec<Labels> {
    let targets: Vec<Map<String, Value>> = serde_json::from_str(text).unwrap_or_default();
    let of_one = |labels: Map<String, Value>| {
        Labels::from_pairs(
            labels.into_iter().filter_map(|(name, value)| Some((name, value.as_str()?.to_owned()))),
        )
    };
    targets.into_iter().map(of_one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remembered_targets_are_read_as_they_were_stored() {
        let targets = vec![Labels::from_pairs([("job", "a"), ("instance", "b\"c")]), Labels::default()];
        assert_eq!(labels_of(&text_of(&targets)), targets);
        assert!(labels_of("").is_empty() && labels_of("[{\"a\": 1}").is_empty());
    }
}
