//! One measured value, and the marker that says a series has ended.

use super::Timestamp;

/// One value of one series at one time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// When, in milliseconds since the Unix epoch.
    pub at: Timestamp,
    /// What; a NaN with [`STALE_NAN_BITS`] is a staleness marker, any other NaN is data.
    pub value: f64,
}

/// The NaN that Prometheus senders write when a series disappears (prometheus/model/value).
pub const STALE_NAN_BITS: u64 = 0x7ff0_0000_0000_0002;

/// Whether `value` is the staleness marker, bit for bit.
#[inline]
pub fn is_stale(value: f64) -> bool {
    value.to_bits() == STALE_NAN_BITS
}

/// The staleness marker.
pub fn stale_nan() -> f64 {
    f64::from_bits(STALE_NAN_BITS)
}
