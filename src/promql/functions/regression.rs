//! Linear regression and double exponential smoothing of the values in a window.

use super::{ParamCheck, SampleWindow};
use crate::promql::numbers::{go_float, seconds};
use crate::promql::sums::Sum;

pub(super) fn deriv(window: &SampleWindow<'_>) -> Option<f64> {
    let from = *window.times.first()?;
    least_squares(window.times, window.values, from).map(FittedLine::slope)
}

pub(super) fn predict_linear(window: &SampleWindow<'_>) -> Option<f64> {
    let ahead = *window.params.first()?;
    least_squares(window.times, window.values, window.at_ms).map(|line| line.at(ahead))
}

/// A line fitted to samples.
#[derive(Clone, Copy, Debug)]
pub(in crate::promql) struct FittedLine {
    /// Per second.
    slope: f64,
    /// The value at the origin.
    intercept: f64,
}

impl FittedLine {
    /// Returns the line of a constant `value`; both coefficients are NaN for an infinite value.
    pub(in crate::promql) fn level(value: f64) -> FittedLine {
        if value.is_infinite() {
            FittedLine { slope: f64::NAN, intercept: f64::NAN }
        } else {
            FittedLine { slope: 0.0, intercept: value }
        }
    }

    /// Fits a line by least squares to `n` samples, given the sums over x, y and x * y.
    #[inline]
    pub(in crate::promql) fn through(n: f64, x: SquareSums, y_sum: f64, xy_sum: f64) -> FittedLine {
        let covariance = xy_sum - x.sum * y_sum / n;
        let variance = x.squares - x.sum * x.sum / n;
        let slope = covariance / variance;
        FittedLine { slope, intercept: y_sum / n - slope * x.sum / n }
    }

    /// Returns the slope per second.
    #[inline]
    pub(in crate::promql) fn slope(self) -> f64 {
        self.slope
    }

    /// Returns the value `ahead` seconds after the origin.
    #[inline]
    pub(in crate::promql) fn at(self, ahead: f64) -> f64 {
        self.slope * ahead + self.intercept
    }
}

/// The sum of numbers, and the sum of their squares.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::promql) struct SquareSums {
    pub(in crate::promql) sum: f64,
    pub(in crate::promql) squares: f64,
}

/// Fits a line by least squares, with its origin at `origin_ms`. Returns `None` for fewer than two
/// samples.
pub(in crate::promql) fn least_squares(times: &[i64], values: &[f64], origin_ms: i64) -> Option<FittedLine> {
    let (first, rest) = values.split_first()?;
    if rest.is_empty() {
        return None;
    }
    if rest.iter().all(|value| value == first) {
        return Some(FittedLine::level(*first));
    }
    let (mut n, mut x_sum, mut y_sum, mut xy_sum, mut xx_sum) =
        (0.0, Sum::default(), Sum::default(), Sum::default(), Sum::default());
    for (time, y) in times.iter().zip(values) {
        let x = seconds(time.saturating_sub(origin_ms));
        n += 1.0;
        x_sum.add(x);
        y_sum.add(*y);
        xy_sum.add(x * y);
        xx_sum.add(x * x);
    }
    let x = SquareSums { sum: x_sum.total(), squares: xx_sum.total() };
    Some(FittedLine::through(n, x, y_sum.total(), xy_sum.total()))
}

pub(super) fn check_smoothing(params: &[f64]) -> ParamCheck {
    let names = ["smoothing", "trend"];
    for ((name, symbol), factor) in names.iter().zip(["sf", "tf"]).zip(params) {
        // NaN passes this check, as in Prometheus, and makes the result NaN.
        if *factor <= 0.0 || *factor >= 1.0 {
            let got = if factor.is_infinite() { go_float(*factor) } else { format!("{factor:.6}") };
            return ParamCheck::Reject(format!(
                "invalid {name} factor. Expected: 0 < {symbol} < 1, got: {got}"
            ));
        }
    }
    ParamCheck::Valid
}

/// Computes Holt's linear method: a smoothed level and a smoothed trend.
pub(super) fn double_exponential_smoothing(window: &SampleWindow<'_>) -> Option<f64> {
    let [smoothing, trending] = *window.params else { return None };
    let [first, second, ..] = *window.values else { return None };
    let (mut before, mut level, mut trend) = (0.0, first, second - first);
    for (i, value) in window.values.iter().enumerate().skip(1) {
        if i > 1 {
            trend = trending * (level - before) + (1.0 - trending) * trend;
        }
        let next = smoothing * value + (1.0 - smoothing) * (level + trend);
        before = level;
        level = next;
    }
    Some(level)
}
