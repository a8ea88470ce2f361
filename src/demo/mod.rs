//! Sample data: a generated web shop, for `promlet demo` and for an organisation that has not sent
//! data of its own yet.
//!
//! The samples are computed from a time and stored by the callers. This room does no I/O.

mod shop;

use std::time::Duration;

use crate::model::{BatchBuilder, Timestamp};

use shop::Shop;

/// The number that a time is combined with for the seed of the simulation. Any number works; this
/// is the date of the shop's opening.
const SEED: u64 = 20_261_121;

/// The samples of the shop, in order of time.
pub struct ShopHistory {
    shop: Shop,
    /// The time of the next scrape.
    next: Timestamp,
    is_described: bool,
}

impl ShopHistory {
    /// The prefix of all metric names.
    pub const PREFIX: &str = "shop_";

    /// Returns the history of the hours before `now`, which contains an incident.
    pub fn before(now: Timestamp) -> ShopHistory {
        let shop = Shop::new(SEED ^ now.as_ms().unsigned_abs(), now);
        let next = now.plus_ms(-shop.description().history_h * 3_600_000);
        ShopHistory { shop, next, is_described: false }
    }

    /// Skips the scrapes up to `last`, inclusive. Counters begin at 0 after it, as after a restart.
    pub fn skip_to(&mut self, last: Timestamp) {
        self.next = self.next.max(last.plus_ms(self.step_ms()));
    }

    /// Returns the time of the next scrape.
    pub fn next(&self) -> Timestamp {
        self.next
    }

    /// Returns the time between two scrapes.
    pub fn period(&self) -> Duration {
        Duration::from_secs(self.shop.description().step_s.unsigned_abs())
    }

    /// Returns the next scrapes up to `until`, inclusive, and at most `scrapes_max`; `None` if none
    /// is due. The first batch has the help texts and types as well.
    pub fn next_batch(&mut self, until: Timestamp, scrapes_max: usize) -> Option<BatchBuilder> {
        if self.next > until || scrapes_max == 0 {
            return None;
        }
        let mut batch = BatchBuilder::default();
        if !std::mem::replace(&mut self.is_described, true) {
            Shop::describe(&mut batch);
        }
        for _ in 0..scrapes_max {
            if self.next > until {
                break;
            }
            self.shop.step(self.next, &mut batch);
            self.next = self.next.plus_ms(self.step_ms());
        }
        Some(batch)
    }

    fn step_ms(&self) -> i64 {
        self.shop.description().step_s * 1_000
    }
}

impl std::fmt::Debug for ShopHistory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ShopHistory").field("next", &self.next).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_s(1_795_226_400);
    /// Five routes on three instances with 17 series each, and 18 others.
    const SAMPLES_A_SCRAPE: usize = 273;

    #[test]
    fn a_history_has_every_series_at_every_step_and_ends_now() {
        let mut history = ShopHistory::before(NOW);
        let (mut samples, mut newest) = (0, 0);
        while let Some(batch) = history.next_batch(NOW, 100) {
            let batch = batch.batch();
            samples += batch.samples.len();
            assert!(batch.samples.iter().all(|sample| sample.at <= NOW));
            newest = batch.samples.iter().map(|sample| sample.at.as_ms()).max().unwrap_or(newest);
        }
        assert_eq!(samples, (6 * 240 + 1) * SAMPLES_A_SCRAPE);
        assert_eq!(newest, NOW.as_ms());
        assert!(history.next_batch(NOW, 100).is_none());
    }

    #[test]
    fn a_history_continues_after_its_last_scrape() {
        let mut history = ShopHistory::before(NOW);
        history.skip_to(NOW.plus_ms(-15_000));
        assert_eq!(history.next(), NOW);
        history.skip_to(NOW.plus_ms(-3_600_000));
        assert_eq!(history.next(), NOW, "an older time skips nothing");
    }
}
