//! The history of the shop, written within seconds before the server listens, and its next steps
//! while the server runs.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Stopwatch;
use crate::demo::ShopHistory;
use crate::model::{Access, Matcher, OrgId, TimeRange, Timestamp};
use crate::tsdb::{AppendError, SampleColumns, Tsdb};

/// The live samples of the shop, which continue its history.
pub(super) struct Feed {
    tsdb: Arc<Tsdb>,
    org: OrgId,
    history: ShopHistory,
}

/// The scrapes of one batch: about 16,000 samples, well below the limit of a log record.
const SCRAPES_A_BATCH: usize = 60;

impl Feed {
    /// Writes the missing part of the last hours up to `now`. A new folder gets the whole history.
    /// A used one gets the time since the last stop, with counters that start again as after any
    /// restart.
    ///
    /// # Errors
    /// [`AppendError`] if the store does not accept samples.
    pub(super) fn start(tsdb: &Arc<Tsdb>, org: OrgId, now: Timestamp) -> Result<Feed, AppendError> {
        let watch = Stopwatch::start();
        let mut history = ShopHistory::before(now);
        if let Some(last) = last_written(tsdb, org, TimeRange::new(history.next(), now)) {
            history.skip_to(last);
        }
        let mut feed = Feed { tsdb: Arc::clone(tsdb), org, history };
        let samples = feed.catch_up(now)?;
        tracing::info!(
            samples,
            "wrote {samples} samples of the shop's history in {:.0} ms",
            watch.elapsed_ms()
        );
        Ok(feed)
    }

    /// Returns the time between two steps.
    pub(super) fn period(&self) -> Duration {
        self.history.period()
    }

    /// Returns the function that the server calls each period.
    pub(super) fn into_tick(mut self) -> impl FnMut(Timestamp) + Send + 'static {
        move |now| {
            if let Err(error) = self.catch_up(now) {
                tracing::warn!(%error, "the shop's samples were not stored");
            }
        }
    }

    fn catch_up(&mut self, now: Timestamp) -> Result<u64, AppendError> {
        let mut stored = 0;
        while let Some(batch) = self.history.next_batch(now, SCRAPES_A_BATCH) {
            stored += self.tsdb.append(self.org, &batch.batch(), now)?.stored;
        }
        Ok(stored)
    }
}

fn last_written(tsdb: &Tsdb, org: OrgId, range: TimeRange) -> Option<Timestamp> {
    let snapshot = tsdb.snapshot(&Access::whole(org));
    let mut samples = SampleColumns::default();
    let found = snapshot.select(&[Matcher::equal("__name__", "shop_revenue_euros_total")], range);
    let mut last = None;
    for series in found {
        snapshot.read(series.id, range, &mut samples);
        last = last.max(samples.times.last().copied());
    }
    last.map(Timestamp::from_ms)
}
