//! Samples, and the marker of the end of a series.

use super::Timestamp;

/// A value of a series at a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Time.
    pub at: Timestamp,
    /// Value; a NaN with [`STALE_NAN_BITS`] is a staleness marker, any other NaN is data.
    pub value: f64,
}

/// The NaN that Prometheus senders write when a series disappears (prometheus/model/value).
pub const STALE_NAN_BITS: u64 = 0x7ff0_0000_0000_0002;

/// Returns whether `value` is the staleness marker, bit by bit.
#[inline]
pub fn is_stale(value: f64) -> bool {
    value.to_bits() == STALE_NAN_BITS
}

/// Returns the staleness marker.
pub fn stale_nan() -> f64 {
    f64::from_bits(STALE_NAN_BITS)
}
