//! The functions of windows, from the samples of one window to one number.

/// The samples of one window, markers left out.
pub(crate) type Window = [(i64, f64)];

fn s(ms: i64) -> f64 {
    ms as f64 / 1000.0
}

/// Neumaier's sum as Prometheus keeps it: the compensation is lost where the sum leaves the finite numbers.
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

/// The sum of values in their order.
pub(crate) fn sum(values: impl Iterator<Item = f64>) -> f64 {
    let all = values.fold(Kahan::default(), Kahan::inc);
    if all.sum.is_infinite() { all.sum } else { all.sum + all.c }
}

/// The mean of values in their order: of the sum while it is finite, then step by step.
pub(crate) fn mean(values: &[f64]) -> f64 {
    let mut all = Kahan { sum: values[0], c: 0.0 };
    let mut count = 1.0;
    let mut places = values[1..].iter();
    for value in places.by_ref() {
        let next = all.inc(*value);
        if next.sum.is_infinite() {
            let mut mean = Kahan { sum: all.sum / count, c: all.c / count };
            for value in std::iter::once(value).chain(places) {
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

/// Linear interpolation between the ranks; NaN is the least.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rank is a place among values")]
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

/// Welford's sum of squares with compensation, by the number of values.
fn variance(window: &Window) -> f64 {
    let (mut count, mut mean, mut squares) = (0.0, Kahan::default(), Kahan::default());
    for (_, value) in window {
        count += 1.0;
        let delta = value - (mean.sum + mean.c);
        mean = mean.inc(delta / count);
        squares = squares.inc(delta * (value - (mean.sum + mean.c)));
    }
    (squares.sum + squares.c) / count
}

fn drops(window: &Window) -> impl Iterator<Item = &[(i64, f64)]> {
    window.windows(2).filter(|pair| pair[1].1 < pair[0].1)
}

/// Prometheus' extrapolation: the change, and how much further the window reaches than its samples.
fn extrapolated(window: &Window, (start, end): (i64, i64), counter: bool) -> Option<(f64, f64)> {
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

fn extreme(window: &Window, better: impl Fn(f64, f64) -> bool) -> (i64, f64) {
    window[1..].iter().fold(
        window[0],
        |best, next| {
            if better(next.1, best.1) || best.1.is_nan() { *next } else { best }
        },
    )
}

/// A function of the samples in `(start, end]`, of which there is at least one.
pub(crate) fn apply(name: &str, param: f64, window: &Window, edges: (i64, i64)) -> Option<f64> {
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
        "quantile_over_time" => quantile(param, values().collect()),
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

/// The functions that [`apply`] knows, but for the one with a parameter.
pub(crate) const FUNCTIONS: [&str; 22] = [
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
