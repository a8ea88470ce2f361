//! Evaluation of one expression at one time, by definition: steps share nothing, and nothing is
//! precomputed.

use std::collections::BTreeMap;

use promlet::model::{Labels, METRIC_NAME, MatchOp};
use promlet::promql::syntax::tree::{
    AggregateOp, AtModifier, Binary, BinaryOp, Cardinality, DurationExpr, Expr, Extension, Grouping,
    Matching, ValueType, VectorSelector,
};

use super::data::{Point, SampleMap};
use super::native::Native;
use super::windows::{apply, between, extended, mean, quantile, sum};

pub(crate) const LOOKBACK_MS: i64 = 300_000;
const DEFAULT_STEP_MS: i64 = 60_000;

/// The value of an expression at one time.
pub(crate) enum OracleValue {
    Scalar(f64),
    Vector(Vector),
}

/// Labels and values at one time.
pub(crate) type Vector = Vec<(Labels, Point)>;

/// The reason for a missing result, to read in a failed test.
pub(crate) type Refusal = &'static str;

/// The samples and the range of the whole query.
pub(crate) struct Oracle<'w> {
    pub(crate) samples: &'w SampleMap,
    pub(crate) start_ms: i64,
    pub(crate) end_ms: i64,
}

fn fixed(length: &DurationExpr) -> i64 {
    match length {
        DurationExpr::Fixed(ms) => *ms,
        DurationExpr::Computed(_) => unreachable!("lengths are literals here"),
    }
}

fn without_name(labels: &Labels) -> Labels {
    labels.filtered(|name| name != METRIC_NAME)
}

fn unnamed(vector: Vector) -> Result<Vector, Refusal> {
    unique(vector.into_iter().map(|(labels, value)| (without_name(&labels), value)).collect())
}

/// Applies a function to the floats; histograms are dropped.
fn of_floats(vector: Vector, of: impl Fn(f64) -> f64) -> Result<Vector, Refusal> {
    unnamed(
        vector
            .into_iter()
            .filter_map(|(labels, value)| Some((labels, Point::Float(of(value.float()?)))))
            .collect(),
    )
}

/// Computes a number from each histogram; floats are dropped.
fn of_histograms(vector: Vector, of: impl Fn(&Native) -> f64) -> Result<Vector, Refusal> {
    let truth = |(labels, value): (Labels, Point)| Some((labels, Point::Float(of(value.native()?))));
    unnamed(vector.into_iter().filter_map(truth).collect())
}

fn unique(vector: Vector) -> Result<Vector, Refusal> {
    let mut all: Vec<&Labels> = vector.iter().map(|(labels, _)| labels).collect();
    all.sort();
    if all.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err("equal label sets");
    }
    Ok(vector)
}

fn number(op: BinaryOp, a: f64, b: f64) -> f64 {
    let truth = |holds: bool| if holds { 1.0 } else { 0.0 };
    match op {
        BinaryOp::Add => a + b,
        BinaryOp::Sub => a - b,
        BinaryOp::Mul => a * b,
        BinaryOp::Div => a / b,
        BinaryOp::Mod => a % b,
        BinaryOp::Equal => truth(a == b),
        BinaryOp::NotEqual => truth(a != b),
        BinaryOp::Less => truth(a < b),
        BinaryOp::LessEqual => truth(a <= b),
        BinaryOp::Greater => truth(a > b),
        BinaryOp::GreaterEqual => truth(a >= b),
        _ => unreachable!("{op:?} is not generated here"),
    }
}

impl Oracle<'_> {
    /// Evaluates an expression at a time in milliseconds.
    pub(crate) fn at(&self, expr: &Expr, now: i64) -> Result<OracleValue, Refusal> {
        Ok(match expr {
            Expr::Number(value) => OracleValue::Scalar(*value),
            Expr::Vector(selector) => OracleValue::Vector(self.latest(selector, now)),
            Expr::Negate(inner) => match self.at(inner, now)? {
                OracleValue::Scalar(value) => OracleValue::Scalar(-value),
                OracleValue::Vector(vector) => {
                    let negated = |value: Point| match value {
                        Point::Float(value) => Point::Float(-value),
                        Point::Native(native) => Point::of(native.times(-1.0)),
                    };
                    OracleValue::Vector(unnamed(
                        vector.into_iter().map(|(l, value)| (l, negated(value))).collect(),
                    )?)
                }
            },
            Expr::Call(call) => self.called(&call.name, &call.args, now)?,
            Expr::Aggregate(aggregate) => {
                let vector = self.vector(&aggregate.expr, now)?;
                let param = match &aggregate.param {
                    Some(param) => self.scalar(param, now)?,
                    None => 0.0,
                };
                OracleValue::Vector(aggregated(aggregate.op, param, &aggregate.grouping, &vector))
            }
            Expr::Binary(binary) => match (self.at(&binary.lhs, now)?, self.at(&binary.rhs, now)?) {
                (OracleValue::Scalar(a), OracleValue::Scalar(b)) => {
                    OracleValue::Scalar(number(binary.op, a, b))
                }
                (OracleValue::Vector(a), OracleValue::Scalar(b)) => {
                    OracleValue::Vector(with_scalar(binary, a, b, false)?)
                }
                (OracleValue::Scalar(a), OracleValue::Vector(b)) => {
                    OracleValue::Vector(with_scalar(binary, b, a, true)?)
                }
                (OracleValue::Vector(a), OracleValue::Vector(b)) => {
                    OracleValue::Vector(joined(binary, a, b)?)
                }
            },
            Expr::Text(_) | Expr::Bytes(_) | Expr::Matrix(_) | Expr::Subquery(_) => {
                unreachable!("no value of its own")
            }
        })
    }

    fn called(&self, name: &str, args: &[Expr], now: i64) -> Result<OracleValue, Refusal> {
        let of = args.iter().position(|arg| arg.value_type() != ValueType::Scalar).unwrap_or(0);
        let mut params = Vec::new();
        for (i, arg) in args.iter().enumerate() {
            if i != of {
                params.push(self.scalar(arg, now)?);
            }
        }
        if name == "vector" {
            return Ok(OracleValue::Vector(vec![(
                Labels::default(),
                Point::Float(self.scalar(&args[0], now)?),
            )]));
        }
        if args[of].value_type() == ValueType::Matrix {
            return Ok(OracleValue::Vector(self.windowed(name, &params, &args[of], now)?));
        }
        let vector = self.vector(&args[of], now)?;
        Ok(OracleValue::Vector(match name {
            "abs" => of_floats(vector, f64::abs)?,
            "histogram_count" => of_histograms(vector, |native| native.count)?,
            "histogram_sum" => of_histograms(vector, |native| native.sum)?,
            "histogram_avg" => of_histograms(vector, |native| native.sum / native.count)?,
            "histogram_stdvar" => of_histograms(vector, Native::variance)?,
            "histogram_stddev" => of_histograms(vector, |native| native.variance().sqrt())?,
            "histogram_quantile" => of_histograms(vector, |native| native.quantile(params[0]))?,
            "histogram_fraction" => of_histograms(vector, |native| native.fraction(params[0], params[1]))?,
            "scalar" => {
                let floats: Vec<f64> = vector.iter().filter_map(|(_, value)| value.float()).collect();
                return Ok(OracleValue::Scalar(if floats.len() == 1 { floats[0] } else { f64::NAN }));
            }
            _ => unreachable!("{name} is not generated here"),
        }))
    }

    fn scalar(&self, expr: &Expr, now: i64) -> Result<f64, Refusal> {
        match self.at(expr, now)? {
            OracleValue::Scalar(value) => Ok(value),
            OracleValue::Vector(_) => unreachable!("types are checked by the parser"),
        }
    }

    fn vector(&self, expr: &Expr, now: i64) -> Result<Vector, Refusal> {
        match self.at(expr, now)? {
            OracleValue::Vector(vector) => Ok(vector),
            OracleValue::Scalar(_) => unreachable!("types are checked by the parser"),
        }
    }

    fn shifted_time(&self, at: Option<AtModifier>, offset: &DurationExpr, now: i64) -> i64 {
        let pinned = match at {
            Some(AtModifier::Time(at)) => at.as_ms(),
            Some(AtModifier::Start) => self.start_ms,
            Some(AtModifier::End) => self.end_ms,
            None => now,
        };
        pinned - fixed(offset)
    }

    fn latest(&self, selector: &VectorSelector, now: i64) -> Vector {
        let shifted_time = self.shifted_time(selector.at, &selector.offset, now);
        if selector.extension == Some(Extension::Smoothed) {
            return self.smoothed(selector, shifted_time);
        }
        let latest = |(labels, samples): (&Labels, &BTreeMap<i64, Point>)| {
            let (at, value) = samples.range(..=shifted_time).next_back()?;
            (*at > shifted_time - LOOKBACK_MS && !value.is_stale()).then(|| (labels.clone(), value.clone()))
        };
        self.matching(selector).filter_map(latest).collect()
    }

    /// Interpolates between the samples around `look`; of numbers only.
    fn smoothed(&self, selector: &VectorSelector, shifted_time: i64) -> Vector {
        let on_line = |(labels, samples): (&Labels, &BTreeMap<i64, Point>)| {
            let there =
                |(at, value): (&i64, &Point)| Some((*at, value.float().filter(|_| !value.is_stale())?));
            let before = samples.range(shifted_time - LOOKBACK_MS + 1..shifted_time).rev().find_map(there);
            let after = samples.range(shifted_time..=shifted_time + LOOKBACK_MS).find_map(there);
            let value = match (before, after) {
                (_, Some((at, value))) if at == shifted_time => value,
                (Some(before), Some(after)) => between(before, after, shifted_time, false),
                (Some((_, value)), None) => value,
                (None, _) => return None,
            };
            Some((labels.clone(), Point::Float(value)))
        };
        self.matching(selector).filter_map(on_line).collect()
    }

    fn matching<'s>(
        &'s self,
        selector: &'s VectorSelector,
    ) -> impl Iterator<Item = (&'s Labels, &'s BTreeMap<i64, Point>)> {
        self.samples
            .iter()
            .filter(|(labels, _)| selector.matchers.iter().all(|m| m.matches(labels.value(m.name()))))
    }

    /// Evaluates a function of windows over a selector or a subquery.
    fn windowed(&self, name: &str, params: &[f64], of: &Expr, now: i64) -> Result<Vector, Refusal> {
        let mut all: Vec<(Labels, Vec<(i64, Point)>)> = Vec::new();
        let mut extension = None;
        let (start, end) = match of {
            Expr::Matrix(matrix) => {
                let end = self.shifted_time(matrix.selector.at, &matrix.selector.offset, now);
                let start = end - fixed(&matrix.range);
                extension = matrix.selector.extension;
                let before = if extension.is_some() { LOOKBACK_MS } else { 0 };
                let after = if extension == Some(Extension::Smoothed) { LOOKBACK_MS } else { 0 };
                for (labels, samples) in self.matching(&matrix.selector) {
                    let inside = samples.iter().filter(|(at, value)| {
                        **at > start - before && **at <= end + after && !value.is_stale()
                    });
                    all.push((labels.clone(), inside.map(|(at, value)| (*at, value.clone())).collect()));
                }
                (start, end)
            }
            Expr::Subquery(subquery) => {
                let end = self.shifted_time(subquery.at, &subquery.offset, now);
                let start = end - fixed(&subquery.range);
                let step = subquery.step.as_ref().map_or(DEFAULT_STEP_MS, fixed);
                let mut at = start.div_euclid(step) * step + step;
                while at <= end {
                    for (labels, value) in self.vector(&subquery.expr, at)? {
                        match all.iter_mut().find(|(known, _)| *known == labels) {
                            Some((_, samples)) => samples.push((at, value)),
                            None => all.push((labels, vec![(at, value)])),
                        }
                    }
                    at += step;
                }
                (start, end)
            }
            _ => unreachable!("types are checked by the parser"),
        };
        all.retain(|(_, window)| !window.is_empty());
        if name == "absent_over_time" {
            let absent = all.is_empty().then(|| (required_labels(of), Point::Float(1.0)));
            return Ok(absent.into_iter().collect());
        }
        let value = |(labels, window): (Labels, Vec<(i64, Point)>)| {
            let floats: Vec<(i64, f64)> =
                window.iter().filter_map(|(at, value)| Some((*at, value.float()?))).collect();
            let made = if let Some(extension) = extension {
                let around = extended(name, extension == Extension::Smoothed, &floats, (start, end));
                around.map(Point::Float)
            } else if floats.len() == window.len() {
                apply(name, params, &floats, now, (start, end)).map(Point::Float)
            } else {
                native_window(name, params, &window, &floats, now, (start, end))
            };
            Some((labels, made?))
        };
        let vector = all.into_iter().filter_map(value).collect();
        if name == "last_over_time" || name == "first_over_time" { Ok(vector) } else { unnamed(vector) }
    }
}

/// Returns the labels that a selector requires to be equal to a value.
fn required_labels(of: &Expr) -> Labels {
    let Expr::Matrix(matrix) = of else { return Labels::default() };
    let equal =
        matrix.selector.matchers.iter().filter(|m| m.op() == MatchOp::Equal && m.name() != METRIC_NAME);
    Labels::from_pairs(equal.map(|matcher| (matcher.name(), matcher.value())))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small whole number")]
fn aggregated(op: AggregateOp, param: f64, grouping: &Grouping, vector: &[(Labels, Point)]) -> Vector {
    let key = |labels: &Labels| match grouping {
        Grouping::By(names) => labels.filtered(|name| names.iter().any(|by| by == name)),
        Grouping::Without(names) => {
            labels.filtered(|name| name != METRIC_NAME && !names.iter().any(|without| without == name))
        }
    };
    let mut groups: Vec<(Labels, Vector)> = Vec::new();
    for (labels, value) in vector {
        let key = key(labels);
        let member = (labels.clone(), value.clone());
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, members)) => members.push(member),
            None => groups.push((key, vec![member])),
        }
    }
    let mut out = Vec::new();
    for (labels, members) in groups {
        let values: Vec<f64> = members.iter().filter_map(|(_, value)| value.float()).collect();
        if values.len() != members.len() {
            let of_all = match op {
                AggregateOp::Count => Some(Point::Float(members.len() as f64)),
                AggregateOp::Group => Some(Point::Float(1.0)),
                AggregateOp::Sum | AggregateOp::Avg if values.is_empty() => {
                    let natives = members.iter().filter_map(|(_, value)| value.native());
                    native_total(natives, op == AggregateOp::Avg)
                }
                _ => None,
            };
            if let Some(value) = of_all {
                out.push((labels, value));
                continue;
            }
            // Numbers and histograms have no common sum; other aggregations use the numbers only.
            if values.is_empty() || matches!(op, AggregateOp::Sum | AggregateOp::Avg) {
                continue;
            }
        }
        let best = |better: fn(f64, f64) -> bool| {
            let pick =
                |best: f64, value: f64| if better(value, best) || best.is_nan() { value } else { best };
            values[1..].iter().fold(values[0], |best, value| pick(best, *value))
        };
        let value = match op {
            AggregateOp::Sum => sum(values.iter().copied()),
            AggregateOp::Avg => mean(&values),
            AggregateOp::Count => values.len() as f64,
            AggregateOp::Group => 1.0,
            AggregateOp::Min => best(|a, b| a < b),
            AggregateOp::Max => best(|a, b| a > b),
            AggregateOp::Stdvar => variance(&values),
            AggregateOp::Stddev => variance(&values).sqrt(),
            AggregateOp::Quantile => quantile(param, values),
            AggregateOp::Topk | AggregateOp::Bottomk => {
                let float = |(labels, value): (Labels, Point)| Some((labels, value.float()?));
                let mut sorted: Vec<(Labels, f64)> = members.into_iter().filter_map(float).collect();
                let is_top = op == AggregateOp::Topk;
                // Stable: of equal values the first one stays first. NaN sorts last.
                sorted.sort_by(|(_, a), (_, b)| match (a.is_nan(), b.is_nan()) {
                    (false, false) if is_top => b.partial_cmp(a).expect("numbers"),
                    (false, false) => a.partial_cmp(b).expect("numbers"),
                    (a, b) => a.cmp(&b),
                });
                sorted.truncate(param as usize);
                out.extend(sorted.into_iter().map(|(labels, value)| (labels, Point::Float(value))));
                continue;
            }
            _ => unreachable!("{op:?} is not generated here"),
        };
        out.push((labels, Point::Float(value)));
    }
    out
}

/// Returns the sum of histograms, or their mean. `None` for exponential with custom buckets.
fn native_total<'n>(mut natives: impl Iterator<Item = &'n Native>, is_mean: bool) -> Option<Point> {
    let mut count = 1.0;
    let mut total = natives.next()?.clone().compacted();
    for native in natives {
        count += 1.0;
        total = total.added(native, 1.0)?;
    }
    Some(Point::of(if is_mean { total.divided(count) } else { total }))
}

/// Samples of one kind with their times.
type TimedSamples<'w, T> = &'w [(i64, T)];

/// Evaluates a function over a window that contains histograms.
fn native_window(
    name: &str,
    params: &[f64],
    window: TimedSamples<'_, Point>,
    floats: TimedSamples<'_, f64>,
    now: i64,
    (start, end): (i64, i64),
) -> Option<Point> {
    let natives: Vec<(i64, &Native)> =
        window.iter().filter_map(|(at, value)| Some((*at, value.native()?))).collect();
    let seconds = |ms: i64| ms as f64 / 1000.0;
    let (first, last) = (&window[0], &window[window.len() - 1]);
    let changed = |of: &dyn Fn(&Point, &Point) -> bool| {
        window.windows(2).filter(|pair| of(&pair[0].1, &pair[1].1)).count() as f64
    };
    let float = |value: f64| Some(Point::Float(value));
    match name {
        "count_over_time" => float(window.len() as f64),
        "present_over_time" => float(1.0),
        "first_over_time" => Some(first.1.clone()),
        "last_over_time" => Some(last.1.clone()),
        "ts_of_first_over_time" => float(seconds(first.0)),
        "ts_of_last_over_time" => float(seconds(last.0)),
        "resets" => float(changed(&|a, b| match (a, b) {
            (Point::Float(a), Point::Float(b)) => b < a,
            (Point::Native(a), Point::Native(b)) => b.is_reset_since(a),
            _ => true,
        })),
        "changes" => float(changed(&|a, b| match (a, b) {
            (Point::Float(a), Point::Float(b)) => a != b && !(a.is_nan() && b.is_nan()),
            (Point::Native(a), Point::Native(b)) => !a.equals(b),
            _ => true,
        })),
        "sum_over_time" | "avg_over_time" => {
            let all = natives.iter().map(|(_, native)| *native);
            if floats.is_empty() { native_total(all, name == "avg_over_time") } else { None }
        }
        "irate" | "idelta" => {
            let [.., (before_at, Point::Native(before)), (at, Point::Native(native))] = window else {
                // The last two samples may still be numbers.
                let [.., (_, Point::Float(_)), (_, Point::Float(_))] = window else { return None };
                return apply(name, params, floats, now, (start, end)).map(Point::Float);
            };
            let is_rate = name == "irate";
            let reset = is_rate && native.is_reset_since(before);
            let change = if reset { native.compacted_copy() } else { native.added(before, -1.0)? };
            Some(Point::of(if is_rate { change.divided(seconds(at - before_at)) } else { change }))
        }
        "rate" | "increase" | "delta" if floats.is_empty() => native_rate(name, &natives, (start, end)),
        "rate" | "increase" | "delta" => None,
        // All other functions use numbers only.
        _ if floats.is_empty() => None,
        _ => apply(name, params, floats, now, (start, end)).map(Point::Float),
    }
}

/// Returns the change of a histogram, extrapolated to the whole window.
fn native_rate(name: &str, natives: &[(i64, &Native)], (start, end): (i64, i64)) -> Option<Point> {
    let seconds = |ms: i64| ms as f64 / 1000.0;
    let [(first_at, first), (_, second), ..] = natives else { return None };
    let (last_at, last) = natives[natives.len() - 1];
    let counter = name != "delta";
    // If a reset follows the first histogram, nothing of it is to be subtracted.
    let from = if counter && second.is_reset_since(first) { second.zeroed() } else { (*first).clone() };
    let between = if counter { &natives[1..] } else { &natives[natives.len() - 1..] };
    let same_kind = between.iter().all(|(_, native)| native.is_custom() == from.is_custom());
    if !same_kind {
        return None;
    }
    let coarsest = between.iter().map(|(_, native)| native.schema).min()?.min(from.schema);
    // The schema is reduced first: a finer bucket may extend less beyond the zero bucket.
    let mut change = last.coarse(coarsest).added(&from, -1.0)?;
    if counter {
        let mut before = &from;
        for (_, native) in &natives[1..] {
            if native.is_reset_since(before) {
                change = change.added(before, 1.0)?;
            }
            before = native;
        }
    }
    let apart = seconds(last_at - first_at) / (natives.len() - 1) as f64;
    let (mut left, mut right) = (seconds(first_at - start), seconds(end - last_at));
    if left >= apart * 1.1 {
        left = apart / 2.0;
    }
    if right >= apart * 1.1 {
        right = apart / 2.0;
    }
    let sampled = seconds(last_at - first_at);
    if counter && change.count > 0.0 && first.count >= 0.0 {
        left = left.min(sampled * (first.count / change.count));
    }
    let factor = (sampled + left + right) / sampled;
    let factor = if name == "rate" { factor / seconds(end - start) } else { factor };
    Some(Point::of(change.times(factor)))
}

/// Welford's method without compensation, as in the aggregation.
fn variance(values: &[f64]) -> f64 {
    let (mut count, mut mean, mut squares) =
        (1.0, values[0], if values[0].is_finite() { 0.0 } else { f64::NAN });
    for value in &values[1..] {
        count += 1.0;
        let delta = value - mean;
        mean += delta / count;
        squares += delta * (value - mean);
    }
    squares / count
}

fn with_scalar(binary: &Binary, vector: Vector, scalar: f64, is_left: bool) -> Result<Vector, Refusal> {
    let filters = binary.op.is_comparison() && !binary.returns_bool;
    let mut out = Vec::new();
    for (labels, value) in vector {
        let scalar = Point::Float(scalar);
        let (a, b) = if is_left { (&scalar, &value) } else { (&value, &scalar) };
        let Some(result) = operated(binary.op, a, b) else { continue };
        if !filters {
            out.push((labels, result));
        } else if result.float() == Some(1.0) {
            out.push((labels, value));
        }
    }
    if filters { Ok(out) } else { unnamed(out) }
}

/// Applies an operator to two values; `None` if it does not accept their types.
fn operated(op: BinaryOp, a: &Point, b: &Point) -> Option<Point> {
    let truth = |holds: bool| Some(Point::Float(if holds { 1.0 } else { 0.0 }));
    match (a, b) {
        (Point::Float(a), Point::Float(b)) => Some(Point::Float(number(op, *a, *b))),
        (Point::Native(a), Point::Native(b)) => match op {
            BinaryOp::Add => a.added(b, 1.0).map(Point::of),
            BinaryOp::Sub => a.added(b, -1.0).map(Point::of),
            BinaryOp::Equal => truth(a.equals(b)),
            BinaryOp::NotEqual => truth(!a.equals(b)),
            _ => None,
        },
        (Point::Native(a), Point::Float(b)) => match op {
            BinaryOp::Mul => Some(Point::of(a.times(*b))),
            BinaryOp::Div => Some(Point::of(a.divided(*b))),
            _ => None,
        },
        (Point::Float(a), Point::Native(b)) => (op == BinaryOp::Mul).then(|| Point::of(b.times(*a))),
    }
}

fn joined(binary: &Binary, lhs: Vector, rhs: Vector) -> Result<Vector, Refusal> {
    let all = Matching::default();
    let matching = binary.matching.as_ref().unwrap_or(&all);
    let listed = |name: &str| matching.labels.iter().any(|label| label == name);
    let signature = |labels: &Labels| {
        labels.filtered(|name| if matching.on { listed(name) } else { name != METRIC_NAME && !listed(name) })
    };
    let meets = |side: &[(Labels, Point)], labels: &Labels| {
        side.iter().any(|(other, _)| signature(other) == signature(labels))
    };
    match binary.op {
        BinaryOp::And => return Ok(lhs.into_iter().filter(|(labels, _)| meets(&rhs, labels)).collect()),
        BinaryOp::Unless => return Ok(lhs.into_iter().filter(|(labels, _)| !meets(&rhs, labels)).collect()),
        BinaryOp::Or => {
            let rest = rhs.into_iter().filter(|(labels, _)| !meets(&lhs, labels)).collect::<Vec<_>>();
            return unique(lhs.into_iter().chain(rest).collect());
        }
        _ => {}
    }
    if lhs.is_empty() || rhs.is_empty() {
        return Ok(Vec::new());
    }
    let swapped = matching.cardinality == Cardinality::OneToMany;
    let (many, one) = if swapped { (rhs, lhs) } else { (lhs, rhs) };
    for (i, (labels, _)) in one.iter().enumerate() {
        if one[..i].iter().any(|(other, _)| signature(other) == signature(labels)) {
            return Err("many on the one side");
        }
    }
    let mut out = Vector::new();
    let mut matched: Vec<Labels> = Vec::new();
    // A dropped result of a comparison still occupies its label set.
    let mut used_labels: Vec<Labels> = Vec::new();
    for (labels, value) in &many {
        let Some((other, with)) = one.iter().find(|(other, _)| signature(other) == signature(labels)) else {
            continue;
        };
        let (a, b) = if swapped { (with, value) } else { (value, with) };
        // Values that an operator does not accept match nothing.
        let Some(result) = operated(binary.op, a, b) else { continue };
        if matching.cardinality == Cardinality::OneToOne && matched.contains(&signature(labels)) {
            return Err("many on both sides");
        }
        matched.push(signature(labels));
        let mut kept = labels.clone();
        if !binary.op.is_comparison() || binary.returns_bool {
            kept = without_name(&kept);
        }
        if matching.cardinality == Cardinality::OneToOne {
            kept = kept.filtered(|name| listed(name) == matching.on);
        }
        let mut builder = kept.to_builder();
        for name in &matching.include {
            builder.set(name.as_str(), other.value(name));
        }
        let kept = builder.build();
        if used_labels.contains(&kept) {
            return Err("equal label sets in the result");
        }
        used_labels.push(kept.clone());
        if !binary.op.is_comparison() || binary.returns_bool {
            out.push((kept, result));
        } else if result.float() == Some(1.0) {
            out.push((kept, a.clone()));
        }
    }
    unique(out)
}
