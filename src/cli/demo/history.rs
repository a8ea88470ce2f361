//! The history of the shop, written within seconds before the server listens, and its next steps
//! while the server runs.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Stopwatch;
use crate::model::{Access, BatchBuilder, Matcher, OrgId, TimeRange, Timestamp};
use crate::tsdb::{AppendError, SampleColumns, Tsdb};

use super::shop::Shop;

/// The shop from the end of its history on.
pub(super) struct Feed {
    tsdb: Arc<Tsdb>,
    org: OrgId,
    shop: Shop,
    /// The next step to write.
    next: Timestamp,
}

/// The steps of the simulation in one batch: about 20,000 samples, well below the limit of a log
/// record.
const STEPS_A_BATCH: i64 = 60;

/// The seed of the simulation. Any number works; this is the date of the shop's opening.
const SEED: u64 = 20_261_121;

impl Feed {
    /// Writes the missing part of the last hours up to `now`. In a new folder that is all of it, in
    /// a used one the time since the last stop, with counters that start again as after any
    /// restart.
    ///
    /// # Errors
    /// [`AppendError`] if the store does not accept samples.
    pub(super) fn start(tsdb: &Arc<Tsdb>, org: OrgId, now: Timestamp) -> Result<Feed, AppendError> {
        let watch = Stopwatch::start();
        let shop = Shop::new(SEED ^ now.as_ms().unsigned_abs(), now);
        let step_ms = shop.description().step_s * 1_000;
        let begins = now.plus_ms(-shop.description().history_h * 3_600_000);
        let from =
            last_written(tsdb, org, TimeRange::new(begins, now)).map_or(begins, |last| last.plus_ms(step_ms));
        let mut feed = Feed { tsdb: Arc::clone(tsdb), org, shop, next: from };
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
        Duration::from_secs(self.shop.description().step_s.unsigned_abs())
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
        let step_ms = self.shop.description().step_s * 1_000;
        let mut stored = 0;
        let mut described = false;
        while self.next <= now {
            let mut batch = BatchBuilder::default();
            if !described {
                Shop::describe(&mut batch);
                described = true;
            }
            for _ in 0..STEPS_A_BATCH {
                if self.next > now {
                    break;
                }
                self.shop.step(self.next, &mut batch);
                self.next = self.next.plus_ms(step_ms);
            }
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
