//! The delays between failed attempts.

use crate::entropy::Entropy;

/// The delay after the first failure, in milliseconds.
const FIRST_MS: i64 = 1_000;
/// The longest delay between attempts, in milliseconds.
pub(super) const RETRY_MAX_MS: i64 = 300_000;
/// The longest delay that a server may ask for, in milliseconds.
const ASKED_MAX_MS: i64 = 3_600_000;

/// Returns the delay in milliseconds after `failures` failures in a row. It doubles up to five
/// minutes, less up to a quarter at random, so that senders do not return together. A server may
/// ask for a longer one, up to an hour.
pub(super) fn delay_ms(failures: u32, asked_ms: Option<i64>, rng: &mut Entropy) -> i64 {
    let doubled = FIRST_MS.saturating_mul(1_i64 << failures.saturating_sub(1).min(20)).min(RETRY_MAX_MS);
    // At most 64 steps, so the product is small.
    let quarter = doubled / 4 * i64::from(rng.bytes::<1>()[0] % 64) / 64;
    let delay = doubled - quarter;
    asked_ms.map_or(delay, |asked| delay.max(asked.min(ASKED_MAX_MS)))
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
