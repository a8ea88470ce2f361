//! Stores scraped samples.

use std::sync::Arc;
use std::time::Duration;

use super::commits::ScrapeCommits;
use super::pool::ScrapePoolThreads;
use crate::kv::with_sources;
use crate::model::{
    Access, HistogramColumns, Labels, MatchOp, Matcher, OrgId, TimeRange, Timestamp, WriteBatch, is_stale,
};
use crate::scrape::run::{ScrapeDone, ScrapeLiveSeries, ScrapeRefusal, ScrapeSink, ScrapeStored, ScrapeWork};
use crate::tsdb::{AppendReport, Appending, KeyedBatch, LabelsKey, SampleColumns, Tsdb};

/// The most series of a lost target that get markers, inclusive.
const LIVE_SERIES_MAX: usize = 1_000_000;

/// Checks whether samples of an organisation may be stored here. An error is a sentence.
pub(super) type WriteCheck = dyn Fn(OrgId) -> Result<(), String> + Send + Sync;

/// The store as scrapes use it, and the threads that decode and store responses.
pub(super) struct StoreSink {
    tsdb: Arc<Tsdb>,
    pub(super) pool: Arc<ScrapePoolThreads>,
    commits: Arc<ScrapeCommits>,
    may_write: Box<WriteCheck>,
}

impl StoreSink {
    /// Starts the threads. `may_write` is called for each batch.
    ///
    /// # Errors
    /// That of the operating system.
    pub(super) fn start(tsdb: &Arc<Tsdb>, may_write: Box<WriteCheck>) -> std::io::Result<Arc<StoreSink>> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let commits = Arc::new(ScrapeCommits::new(Arc::clone(tsdb)));
        let after_group = Arc::clone(&commits);
        let pool = ScrapePoolThreads::start(cores.saturating_mul(2), move || after_group.write())?;
        Ok(Arc::new(StoreSink { tsdb: Arc::clone(tsdb), pool: Arc::new(pool), commits, may_write }))
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
        match (self.may_write)(org).and_then(|()| prepare()) {
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
        match (self.may_write)(org).and_then(|()| prepare()) {
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

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::model::{BatchBuilder, Sample};
    use crate::tsdb::Options;
    use crate::tsdb::tests::open_with;

    const ORG: OrgId = OrgId(1);
    const NOW: Timestamp = Timestamp::from_ms(1_700_000_000_000);

    /// Stores a sample on a thread of the pool, and returns the result.
    fn commit(sink: &Arc<StoreSink>, value: f64) -> Result<ScrapeStored, String> {
        let (sender, received) = mpsc::channel();
        let own = Arc::clone(sink);
        let work = move || {
            let mut batch = BatchBuilder::default();
            batch.series(&Labels::from_pairs([("__name__", "a")]), [Sample { at: NOW, value }]);
            let done = Box::new(move |stored| sender.send(stored).expect("received"));
            own.commit(ORG, &batch.batch(), NOW, done);
        };
        assert!(sink.spawn(ORG, Box::new(work), Duration::ZERO));
        received.recv().expect("a result")
    }

    #[test]
    fn a_refusing_check_and_a_closed_store_return_a_sentence_and_end_no_thread() {
        let dir = crate::kv::scratch::temporary_folder().expect("a folder");
        let (store, _) = open_with(dir.path(), Options::default());
        let tsdb = Arc::clone(&store.tsdb);
        let refusing = StoreSink::start(&tsdb, Box::new(|_| Err("not here".to_owned()))).expect("threads");
        assert_eq!(commit(&refusing, 1.0), Err("not here".to_owned()));
        let sink = StoreSink::start(&tsdb, Box::new(|_| Ok(()))).expect("threads");
        assert_eq!(commit(&sink, 1.0), Ok(ScrapeStored::default()));
        let refused = commit(&sink, 2.0).expect("stored in part");
        assert_eq!(refused.refused, 1, "another value at the same time");
        tsdb.close();
        for _ in 0..64 {
            assert!(commit(&sink, 3.0).is_err());
        }
        assert!(sink.live_series(ORG, &Labels::default(), NOW).len() <= 1);
        sink.pool.stop();
        assert!(!sink.spawn(ORG, Box::new(|| ()), Duration::ZERO));
    }
}
