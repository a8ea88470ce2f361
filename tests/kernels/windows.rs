//! Functions of windows, from the samples of one window to one number.

/// The samples of one window, without staleness markers.
pub(crate) type WindowSamples = [(i64, f64)];

fn s(ms: i64) -> f64 {
    ms as f64 / 1000.0
}

/// Neumaier's sum as in Prometheus: the compensation is dropped when the sum becomes infinite.
#[derive(Clone, Copy, Default)]
struct Kahan {
    sum: f64,
    c: f64,
}

impl Kahan {
    fn inc(self, value: f64) -> Kahan {
        let sum = self.sum + value;
        let c = if sum.is_infinite() {
            0.0
        } else if self.sum.abs() >= value.abs() {
            self.c + ((self.sum - sum) + value)
        } else {
            self.c + ((value - sum) + self.sum)
        };
        Kahan { sum, c }
    }
}

/// Returns the sum of values in their order.
pub(crate) fn sum(values: impl Iterator<Item = f64>) -> f64 {
    let all = values.fold(Kahan::default(), Kahan::inc);
    if all.sum.is_infinite() { all.sum } else { all.sum + all.c }
}

/// Returns the mean of values in their order: from their sum while that is finite, then
/// incrementally.
pub(crate) fn mean(values: &[f64]) -> f64 {
    let mut all = Kahan { sum: values[0], c: 0.0 };
    let mut count = 1.0;
    let mut rest = values[1..].iter();
    for value in rest.by_ref() {
        let next = all.inc(*value);
        if next.sum.is_infinite() {
            let mut mean = Kahan { sum: all.sum / count, c: all.c / count };
            for value in std::iter::once(value).chain(rest) {
                count += 1.0;
                let share = (count - 1.0) / count;
                mean = Kahan { sum: share * mean.sum, c: share * mean.c }.inc(value / count);
            }
            return mean.sum + mean.c;
        }
        all = next;
        count += 1.0;
    }
    all.sum / count + all.c / count
}

/// Interpolates linearly between the ranks; NaN sorts first.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rank is an index into the values"
)]
pub(crate) fn quantile(q: f64, mut values: Vec<f64>) -> f64 {
    if values.is_empty() || q.is_nan() {
        return f64::NAN;
    }
    if q < 0.0 {
        return f64::NEG_INFINITY;
    }
    if q > 1.0 {
        return f64::INFINITY;
    }
    values.sort_by(|a, b| match (a.is_nan(), b.is_nan()) {
        (false, false) => a.partial_cmp(b).expect("numbers"),
        (a, b) => b.cmp(&a),
    });
    let rank = q * (values.len() - 1) as f64;
    let lower = rank.floor() as usize;
    let upper = (lower + 1).min(values.len() - 1);
    let weight = rank - rank.floor();
    values[lower] * (1.0 - weight) + values[upper] * weight
}

/// Returns the population variance by Welford's method with compensation.
fn variance(window: &WindowSamples) -> f64 {
    let (mut count, mut mean, mut squares) = (0.0, Kahan::default(), Kahan::default());
    for (_, value) in window {
        count += 1.0;
        let delta = value - (mean.sum + mean.c);
        mean = mean.inc(delta / count);
        squares = squares.inc(delta * (value - (mean.sum + mean.c)));
    }
    (squares.sum + squares.c) / count
}

fn drops(window: &WindowSamples) -> impl Iterator<Item = &[(i64, f64)]> {
    window.windows(2).filter(|pair| pair[1].1 < pair[0].1)
}

/// Prometheus' extrapolation: the change, and the ratio of the extrapolated range to the sampled
/// one.
fn extrapolated(window: &WindowSamples, (start, end): (i64, i64), counter: bool) -> Option<(f64, f64)> {
    let (first, last) = (window.first()?, window.last()?);
    if window.len() < 2 {
        return None;
    }
    let mut change = last.1 - first.1;
    if counter {
        change = drops(window).fold(change, |change, pair| change + pair[0].1);
    }
    let sampled = s(last.0 - first.0);
    let apart = sampled / (window.len() - 1) as f64;
    let limit = apart * 1.1;
    let (mut before, mut after) = (s(first.0 - start), s(end - last.0));
    if before >= limit {
        before = apart / 2.0;
    }
    if counter && change > 0.0 && first.1 >= 0.0 {
        let to_zero = sampled * (first.1 / change);
        if to_zero < before {
            before = to_zero;
        }
    }
    if after >= limit {
        after = apart / 2.0;
    }
    Some((change, (sampled + before + after) / sampled))
}

/// Fits a line by least squares. Returns its slope per second and its value at `origin`.
fn line(window: &WindowSamples, origin: i64) -> Option<(f64, f64)> {
    if window.len() < 2 {
        return None;
    }
    let first = window[0].1;
    if window.iter().all(|(_, value)| *value == first) {
        return Some(if first.is_infinite() { (f64::NAN, f64::NAN) } else { (0.0, first) });
    }
    let n = window.len() as f64;
    let total = |of: fn(f64, f64) -> f64| {
        let all =
            window.iter().fold(Kahan::default(), |all, (at, value)| all.inc(of(s(at - origin), *value)));
        all.sum + all.c
    };
    let (x, y) = (total(|x, _| x), total(|_, y| y));
    let (xy, xx) = (total(|x, y| x * y), total(|x, _| x * x));
    let slope = (xy - x * y / n) / (xx - x * x / n);
    Some((slope, y / n - slope * x / n))
}

/// Smooths with Holt's linear method.
fn smoothed(window: &WindowSamples, factor: f64, trend_factor: f64) -> Option<f64> {
    if window.len() < 2 {
        return None;
    }
    let mut before = 0.0;
    let mut level = window[0].1;
    let mut trend = window[1].1 - window[0].1;
    for (i, (_, value)) in window.iter().enumerate().skip(1) {
        if i > 1 {
            trend = trend_factor * (level - before) + (1.0 - trend_factor) * trend;
        }
        before = level;
        level = factor * value + (1.0 - factor) * (before + trend);
    }
    Some(level)
}

/// Interpolates at `at` between two samples. A counter that fell between them rose from zero.
pub(crate) fn between(a: (i64, f64), b: (i64, f64), at: i64, counter: bool) -> f64 {
    let from = if counter && b.1 < a.1 { 0.0 } else { a.1 };
    from + (b.1 - from) * ((at - a.0) as f64) / ((b.0 - a.0) as f64)
}

/// Evaluates `anchored` and `smoothed` functions over the samples within a lookback around the
/// window. An anchored window has no samples after its end.
pub(crate) fn extended(
    name: &str,
    is_smoothed: bool,
    around: &WindowSamples,
    (start, end): (i64, i64),
) -> Option<f64> {
    let counter = name != "delta";
    let before = around.iter().rposition(|(at, _)| *at <= start);
    let after = around.iter().position(|(at, _)| *at >= end);
    let inside: Vec<(i64, f64)> =
        around.iter().copied().filter(|(at, _)| start < *at && *at <= end).collect();
    let values: Vec<f64> = if is_smoothed {
        // Without a sample after the start, or before the end, no line crosses the window.
        if around.iter().all(|(at, _)| *at <= start) || around.iter().all(|(at, _)| *at > end) {
            return None;
        }
        let left = match before {
            Some(i) if around[i].0 == start => around[i].1,
            Some(i) => between(around[i], around[i + 1], start, counter),
            None => around[0].1,
        };
        let right = match after {
            Some(i) if around[i].0 == end || i == 0 => around[i].1,
            Some(i) => between(around[i - 1], around[i], end, counter),
            None => around[around.len() - 1].1,
        };
        let within = inside.iter().filter(|(at, _)| *at < end).map(|(_, value)| *value);
        [left].into_iter().chain(within).chain([right]).collect()
    } else {
        if inside.is_empty() {
            return None;
        }
        before.map(|i| around[i].1).into_iter().chain(inside.iter().map(|(_, value)| *value)).collect()
    };
    let pairs = || values.windows(2);
    let change = values[values.len() - 1] - values[0];
    let hidden = pairs().filter(|pair| pair[1] < pair[0]).fold(0.0, |hidden, pair| hidden + pair[0]);
    Some(match name {
        "delta" => change,
        "increase" => change + hidden,
        "rate" => (change + hidden) / s(end - start),
        "resets" => pairs().filter(|pair| pair[1] < pair[0]).count() as f64,
        "changes" => {
            let differ = |pair: &&[f64]| pair[0] != pair[1] && !(pair[0].is_nan() && pair[1].is_nan());
            pairs().filter(differ).count() as f64
        }
        _ => unreachable!("{name} has no such windows"),
    })
}

fn extreme(window: &WindowSamples, better: impl Fn(f64, f64) -> bool) -> (i64, f64) {
    window[1..].iter().fold(
        window[0],
        |best, next| {
            if better(next.1, best.1) || best.1.is_nan() { *next } else { best }
        },
    )
}

/// Evaluates a function over the samples in `(start, end]`, of which there is at least one.
pub(crate) fn apply(
    name: &str,
    params: &[f64],
    window: &WindowSamples,
    now: i64,
    edges: (i64, i64),
) -> Option<f64> {
    let (start, end) = edges;
    let values = || window.iter().map(|(_, value)| *value);
    let last_two = || window.len().checked_sub(2).map(|i| (window[i], window[i + 1]));
    let (first, last) = (window[0], window[window.len() - 1]);
    Some(match name {
        "rate" => {
            let (change, factor) = extrapolated(window, edges, true)?;
            change * (factor / s(end - start))
        }
        "increase" => {
            let (change, factor) = extrapolated(window, edges, true)?;
            change * factor
        }
        "delta" => {
            let (change, factor) = extrapolated(window, edges, false)?;
            change * factor
        }
        "irate" => {
            let (before, last) = last_two()?;
            let change = if last.1 < before.1 { last.1 } else { last.1 - before.1 };
            change / s(last.0 - before.0)
        }
        "idelta" => {
            let (before, last) = last_two()?;
            last.1 - before.1
        }
        "resets" => drops(window).count() as f64,
        "changes" => {
            let differ =
                |pair: &&[(i64, f64)]| pair[0].1 != pair[1].1 && !(pair[0].1.is_nan() && pair[1].1.is_nan());
            window.windows(2).filter(differ).count() as f64
        }
        "sum_over_time" => sum(values()),
        "avg_over_time" => mean(&values().collect::<Vec<f64>>()),
        "min_over_time" => extreme(window, |a, b| a < b).1,
        "max_over_time" => extreme(window, |a, b| a > b).1,
        "ts_of_min_over_time" => s(extreme(window, |a, b| a <= b).0),
        "ts_of_max_over_time" => s(extreme(window, |a, b| a >= b).0),
        "ts_of_first_over_time" => s(first.0),
        "ts_of_last_over_time" => s(last.0),
        "count_over_time" => window.len() as f64,
        "present_over_time" => 1.0,
        "last_over_time" => last.1,
        "first_over_time" => first.1,
        "stdvar_over_time" => variance(window),
        "stddev_over_time" => variance(window).sqrt(),
        "quantile_over_time" => quantile(params[0], values().collect()),
        "deriv" => line(window, first.0)?.0,
        "predict_linear" => {
            let (slope, intercept) = line(window, now)?;
            slope * params[0] + intercept
        }
        "double_exponential_smoothing" => smoothed(window, params[0], params[1])?,
        "mad_over_time" => {
            if values().any(f64::is_nan) {
                return Some(f64::NAN);
            }
            let median = quantile(0.5, values().collect());
            quantile(0.5, values().map(|value| (value - median).abs()).collect())
        }
        _ => return None,
    })
}

/// The functions that [`apply`] implements, except those with a parameter.
pub(crate) const FUNCTIONS: [&str; 23] = [
    "deriv",
    "rate",
    "increase",
    "delta",
    "irate",
    "idelta",
    "resets",
    "changes",
    "sum_over_time",
    "avg_over_time",
    "min_over_time",
    "max_over_time",
    "ts_of_min_over_time",
    "ts_of_max_over_time",
    "ts_of_first_over_time",
    "ts_of_last_over_time",
    "count_over_time",
    "present_over_time",
    "last_over_time",
    "first_over_time",
    "stdvar_over_time",
    "stddev_over_time",
    "mad_over_time",
];
