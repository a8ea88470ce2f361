//! Functions of single values.

use crate::promql::sums::{max, min};

pub(super) fn sgn(value: f64) -> f64 {
    if value < 0.0 {
        -1.0
    } else if value > 0.0 {
        1.0
    } else {
        value
    }
}

pub(super) fn deg(value: f64) -> f64 {
    value * 180.0 / std::f64::consts::PI
}

pub(super) fn rad(value: f64) -> f64 {
    value * std::f64::consts::PI / 180.0
}

/// Rounds to the nearest multiple of the first parameter, 1 by default; ties round up.
#[expect(clippy::unnecessary_wraps, reason = "the signature of `Kernel::MapWith`")]
pub(super) fn round(value: f64, params: &[f64]) -> Option<f64> {
    let inverse = 1.0 / params.first().copied().unwrap_or(1.0);
    Some((value * inverse + 0.5).floor() / inverse)
}

/// Limits a value to the given minimum and maximum; `None` if the maximum is below the minimum.
pub(super) fn clamp(value: f64, params: &[f64]) -> Option<f64> {
    let [low, high] = *params else { return None };
    if high < low {
        return None;
    }
    Some(max(low, min(high, value)))
}

pub(super) fn clamp_min(value: f64, params: &[f64]) -> Option<f64> {
    Some(max(*params.first()?, value))
}

pub(super) fn clamp_max(value: f64, params: &[f64]) -> Option<f64> {
    Some(min(*params.first()?, value))
}
