//! The shop's history, written in seconds before the server listens, and its next steps while it runs.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Stopwatch;
use crate::model::{Access, BatchBuilder, Matcher, OrgId, TimeRange, Timestamp};
use crate::tsdb::{AppendError, SampleColumns, Tsdb};

use super::shop::Shop;

/// The shop as it goes on after its history.
pub(super) struct Feed {
    tsdb: Arc<Tsdb>,
    org: OrgId,
    shop: Shop,
    /// The next step to write.
    next: Timestamp,
}

/// Steps of the simulation in one batch: some 20,000 samples, well below a log record's limit.
const STEPS_A_BATCH: i64 = 60;

/// The shop's dice; any number does, this one is the day the shop opened.
const SEED: u64 = 20_261_121;

impl Feed {
    /// Writes what is missing of the last hours up to `now`: all of it in a fresh folder, the time since the last stop in
    /// one that was used before, as counters that began again, as after any restart.
    ///
    /// # Errors
    /// [`AppendError`] when the store takes nothing.
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

    /// How far apart its steps are.
    pub(super) fn period(&self) -> Duration {
        Duration::from_secs(self.shop.description().step_s.unsigned_abs())
    }

    /// What the server calls each period.
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
