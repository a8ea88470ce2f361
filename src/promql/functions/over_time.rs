//! The `*_over_time` functions, which compute one number from the values of a window.

use super::{ParamCheck, SampleWindow};
use crate::promql::numbers::{count, go_float, seconds};
use crate::promql::sums::{Mean, Sum, compensated_variance, quantile};

pub(super) fn avg(window: &SampleWindow<'_>) -> Option<f64> {
    let (first, rest) = window.values.split_first()?;
    let mut mean = Mean::of(*first);
    for value in rest {
        mean.add(*value);
    }
    Some(mean.value())
}

pub(super) fn sum(window: &SampleWindow<'_>) -> Option<f64> {
    let mut sum = Sum::default();
    for value in window.values {
        sum.add(*value);
    }
    Some(sum.value())
}

pub(super) fn min(window: &SampleWindow<'_>) -> Option<f64> {
    window
        .values
        .iter()
        .copied()
        .reduce(|best, value| if value < best || best.is_nan() { value } else { best })
}

pub(super) fn max(window: &SampleWindow<'_>) -> Option<f64> {
    window
        .values
        .iter()
        .copied()
        .reduce(|best, value| if value > best || best.is_nan() { value } else { best })
}

pub(super) fn count_samples(window: &SampleWindow<'_>) -> Option<f64> {
    Some(count(window.values.len()))
}

pub(super) fn present(_: &SampleWindow<'_>) -> Option<f64> {
    Some(1.0)
}

pub(super) fn last(window: &SampleWindow<'_>) -> Option<f64> {
    window.values.last().copied()
}

pub(super) fn first(window: &SampleWindow<'_>) -> Option<f64> {
    window.values.first().copied()
}

pub(super) fn stdvar(window: &SampleWindow<'_>) -> Option<f64> {
    Some(compensated_variance(window.values))
}

pub(super) fn stddev(window: &SampleWindow<'_>) -> Option<f64> {
    Some(compensated_variance(window.values).sqrt())
}

pub(super) fn quantile_of(window: &SampleWindow<'_>) -> Option<f64> {
    let q = *window.params.first()?;
    Some(quantile(q, &mut window.values.to_vec()))
}

pub(in crate::promql) fn check_quantile(params: &[f64]) -> ParamCheck {
    match params.first() {
        Some(q) if !(0.0..=1.0).contains(q) => {
            ParamCheck::Warn(format!("quantile value should be between 0 and 1, got {}", go_float(*q)))
        }
        _ => ParamCheck::Valid,
    }
}

/// Returns the median absolute deviation: the median distance from the median.
pub(super) fn mad(window: &SampleWindow<'_>) -> Option<f64> {
    if window.values.iter().any(|value| value.is_nan()) {
        return Some(f64::NAN);
    }
    let mut values = window.values.to_vec();
    let median = quantile(0.5, &mut values);
    for value in &mut values {
        *value = (*value - median).abs();
    }
    Some(quantile(0.5, &mut values))
}

pub(super) fn ts_of_first(window: &SampleWindow<'_>) -> Option<f64> {
    window.times.first().map(|ms| seconds(*ms))
}

pub(super) fn ts_of_last(window: &SampleWindow<'_>) -> Option<f64> {
    window.times.last().map(|ms| seconds(*ms))
}

pub(super) fn ts_of_min(window: &SampleWindow<'_>) -> Option<f64> {
    ts_of(window, |value, best| value <= best)
}

pub(super) fn ts_of_max(window: &SampleWindow<'_>) -> Option<f64> {
    ts_of(window, |value, best| value >= best)
}

/// Returns the time in seconds of the last sample with the extreme value.
fn ts_of(window: &SampleWindow<'_>, better: fn(f64, f64) -> bool) -> Option<f64> {
    let pairs = window.times.iter().zip(window.values);
    let best =
        pairs.reduce(|best, next| if better(*next.1, *best.1) || best.1.is_nan() { next } else { best });
    best.map(|(ms, _)| seconds(*ms))
}
