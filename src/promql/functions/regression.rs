//! Lines and trends through a window.

use super::over_time::go_float;
use super::sums::Sum;
use super::{Vet, Window, seconds};

pub(super) fn deriv(window: &Window<'_>) -> Option<f64> {
    let from = *window.times.first()?;
    least_squares((window.times, window.values), from).map(Line::slope)
}

pub(super) fn predict_linear(window: &Window<'_>) -> Option<f64> {
    let ahead = *window.params.first()?;
    least_squares((window.times, window.values), window.at_ms).map(|line| line.at(ahead))
}

/// A line through samples.
#[derive(Clone, Copy, Debug)]
pub(in crate::promql) struct Line {
    slope: f64,
    intercept: f64,
}

impl Line {
    /// Through values that are all this one.
    pub(in crate::promql) fn level(value: f64) -> Line {
        if value.is_infinite() {
            Line { slope: f64::NAN, intercept: f64::NAN }
        } else {
            Line { slope: 0.0, intercept: value }
        }
    }

    /// Through so many samples of these totals.
    #[inline]
    pub(in crate::promql) fn through(n: f64, x: Squared, (y_sum, xy_sum): (f64, f64)) -> Line {
        let covariance = xy_sum - x.sum * y_sum / n;
        let variance = x.squares - x.sum * x.sum / n;
        let slope = covariance / variance;
        Line { slope, intercept: y_sum / n - slope * x.sum / n }
    }

    /// Per second.
    #[inline]
    pub(in crate::promql) fn slope(self) -> f64 {
        self.slope
    }

    /// So many seconds after zero.
    #[inline]
    pub(in crate::promql) fn at(self, ahead: f64) -> f64 {
        self.slope * ahead + self.intercept
    }
}

/// The sum of some numbers, and that of their squares.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::promql) struct Squared {
    pub(in crate::promql) sum: f64,
    pub(in crate::promql) squares: f64,
}

/// The line through at least two samples, its zero at `origin_ms`, its slope per second.
pub(in crate::promql) fn least_squares((times, values): (&[i64], &[f64]), origin_ms: i64) -> Option<Line> {
    let (first, rest) = values.split_first()?;
    if rest.is_empty() {
        return None;
    }
    if rest.iter().all(|value| value == first) {
        return Some(Line::level(*first));
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
    let x = Squared { sum: x_sum.total(), squares: xx_sum.total() };
    Some(Line::through(n, x, (y_sum.total(), xy_sum.total())))
}

pub(super) fn vet_smoothing(params: &[f64]) -> Vet {
    let names = ["smoothing", "trend"];
    for ((name, symbol), factor) in names.iter().zip(["sf", "tf"]).zip(params) {
        // NaN is let through, and what comes out is NaN.
        if *factor <= 0.0 || *factor >= 1.0 {
            let got = if factor.is_infinite() { go_float(*factor) } else { format!("{factor:.6}") };
            return Vet::Refuse(format!("invalid {name} factor. Expected: 0 < {symbol} < 1, got: {got}"));
        }
    }
    Vet::Fine
}

/// Holt's linear method: a smoothed level and a smoothed trend.
pub(super) fn double_exponential_smoothing(window: &Window<'_>) -> Option<f64> {
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
