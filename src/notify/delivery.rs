//! The outcomes of requests to a receiver, and the delays between failed attempts.

use crate::entropy::Entropy;
use crate::model::Timestamp;

/// The delay after the first failure, in milliseconds.
const FIRST_MS: i64 = 1_000;
/// The longest delay between attempts, in milliseconds.
const RETRY_MAX_MS: i64 = 300_000;
/// The longest delay that a server may request (`Retry-After`), in milliseconds.
const RETRY_AFTER_MAX_MS: i64 = 3_600_000;

/// The outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeliveryOutcome {
    /// The receiver accepted it.
    Sent,
    /// The delivery failed and is repeated.
    Retry {
        /// The delay that the receiver asks for, in milliseconds.
        after_ms: Option<i64>,
        /// The description.
        error: String,
    },
    /// The receiver refused it for good.
    Refused {
        /// The description.
        error: String,
    },
}

/// Counters of an Alertmanager or integration, since the start of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeliveryCounts {
    /// Accepted requests.
    pub sent: u64,
    /// Failed requests that were repeated.
    pub retried: u64,
    /// Requests that the receiver refused.
    pub refused: u64,
    /// Alerts that were dropped: by a full queue, by a refusal, or because they were too old.
    pub dropped_alerts: u64,
}

impl DeliveryCounts {
    /// Adds the counters of another receiver.
    pub fn add(&mut self, other: &DeliveryCounts) {
        self.sent += other.sent;
        self.retried += other.retried;
        self.refused += other.refused;
        self.dropped_alerts += other.dropped_alerts;
    }
}

/// The last error of a receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryError {
    /// The time of the failure.
    pub at: Timestamp,
    /// The description.
    pub text: String,
}

/// The outcomes of the requests to one Alertmanager or integration.
#[derive(Clone, Debug, Default)]
pub(super) struct DeliveryHistory {
    /// Failures in a row.
    failures: u32,
    /// When the next attempt may begin, if it has to wait.
    pub(super) retry_at: Option<Timestamp>,
    pub(super) last_error: Option<DeliveryError>,
    /// When a request was last accepted.
    pub(super) last_sent: Option<Timestamp>,
    pub(super) counts: DeliveryCounts,
}

impl DeliveryHistory {
    /// Returns whether the last attempt failed.
    pub(super) const fn is_failing(&self) -> bool {
        self.failures > 0
    }

    /// Returns whether the next attempt has to wait. A wait over [`RETRY_AFTER_MAX_MS`] means that
    /// the clock was set back.
    pub(super) fn has_to_wait(&self, now: Timestamp) -> bool {
        self.retry_at.is_some_and(|at| (1..=RETRY_AFTER_MAX_MS).contains(&at.ms_since(now)))
    }

    /// Delays the next attempt, which is not a failure of the receiver.
    pub(super) fn postpone(&mut self, until: Timestamp, reason: &str, now: Timestamp) {
        self.retry_at = Some(until);
        self.last_error = Some(DeliveryError { at: now, text: reason.to_owned() });
    }

    /// Records the outcome of a request.
    pub(super) fn record(&mut self, outcome: DeliveryOutcome, now: Timestamp, rng: &mut Entropy) {
        (self.failures, self.retry_at) = match &outcome {
            DeliveryOutcome::Sent | DeliveryOutcome::Refused { .. } => (0, None),
            DeliveryOutcome::Retry { after_ms, .. } => {
                let failures = self.failures.saturating_add(1);
                (failures, Some(now.plus_ms(delay_ms(failures, *after_ms, rng))))
            }
        };
        let (count, error) = match outcome {
            DeliveryOutcome::Sent => (&mut self.counts.sent, None),
            DeliveryOutcome::Retry { error, .. } => (&mut self.counts.retried, Some(error)),
            DeliveryOutcome::Refused { error } => (&mut self.counts.refused, Some(error)),
        };
        *count += 1;
        match error {
            None => self.last_sent = Some(now),
            Some(text) => self.last_error = Some(DeliveryError { at: now, text }),
        }
    }
}

/// Returns the delay in milliseconds after `failures` failures in a row. It doubles up to five
/// minutes, less up to a quarter at random, so that senders do not return together. A server may
/// ask for a longer one, up to an hour.
fn delay_ms(failures: u32, asked_ms: Option<i64>, rng: &mut Entropy) -> i64 {
    let doubled = FIRST_MS.saturating_mul(1_i64 << failures.saturating_sub(1).min(20)).min(RETRY_MAX_MS);
    // At most 64 steps, so the product is small.
    let quarter = doubled / 4 * i64::from(rng.bytes::<1>()[0] % 64) / 64;
    let delay = doubled - quarter;
    asked_ms.map_or(delay, |asked| delay.max(asked.min(RETRY_AFTER_MAX_MS)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_five_minutes_and_obey_the_server() {
        let rng = &mut Entropy::seeded(1);
        for (failures, most) in [(1, 1_000), (2, 2_000), (5, 16_000), (10, 300_000), (u32::MAX, 300_000)] {
            for _ in 0..100 {
                let delay = delay_ms(failures, None, rng);
                assert!(delay <= most && delay >= most * 3 / 4, "{failures}: {delay}");
            }
        }
        assert_eq!(delay_ms(1, Some(60_000), rng), 60_000);
        assert_eq!(delay_ms(1, Some(i64::MAX), rng), 3_600_000);
    }
}
