//! Lines and trends through a window.

use super::over_time::go_float;
use super::sums::Sum;
use super::{Vet, Window, seconds};

pub(super) fn deriv(window: &Window<'_>) -> Option<f64> {
    let from = *window.times.first()?;
    least_squares(window, from).map(|line| line.slope)
}

pub(super) fn predict_linear(window: &Window<'_>) -> Option<f64> {
    let ahead = *window.params.first()?;
    least_squares(window, window.at_ms).map(|line| line.slope * ahead + line.intercept)
}

struct Line {
    slope: f64,
    intercept: f64,
}

/// The line through at least two samples, its zero at `origin_ms`, its slope per second.
fn least_squares(window: &Window<'_>, origin_ms: i64) -> Option<Line> {
    let (first, rest) = window.values.split_first()?;
    if rest.is_empty() {
        return None;
    }
    if rest.iter().all(|value| value == first) {
        let constant = if first.is_infinite() { f64::NAN } else { *first };
        return Some(Line { slope: if first.is_infinite() { f64::NAN } else { 0.0 }, intercept: constant });
    }
    let (mut n, mut x_sum, mut y_sum, mut xy_sum, mut xx_sum) =
        (0.0, Sum::default(), Sum::default(), Sum::default(), Sum::default());
    for (time, y) in window.times.iter().zip(window.values) {
        let x = seconds(time.saturating_sub(origin_ms));
        n += 1.0;
        x_sum.add(x);
        y_sum.add(*y);
        xy_sum.add(x * y);
        xx_sum.add(x * x);
    }
    let (x_sum, y_sum) = (x_sum.total(), y_sum.total());
    let covariance = xy_sum.total() - x_sum * y_sum / n;
    let variance = xx_sum.total() - x_sum * x_sum / n;
    let slope = covariance / variance;
    Some(Line { slope, intercept: y_sum / n - slope * x_sum / n })
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
