//! One expression at one moment, by the book: nothing is shared between steps, nothing is known in advance.

use promlet::model::{Labels, METRIC_NAME, MatchOp, is_stale};
use promlet::promql::syntax::tree::{
    AggregateOp, AtModifier, Binary, BinaryOp, Cardinality, Expr, Grouping, Length, Matching, VectorSelector,
};

use super::data::World;
use super::windows::{apply, mean, quantile, sum};

pub(crate) const LOOKBACK_MS: i64 = 300_000;
const DEFAULT_STEP_MS: i64 = 60_000;

/// What an expression yields at one moment.
pub(crate) enum Answer {
    Scalar(f64),
    Vector(Vec<(Labels, f64)>),
}

/// Why there is no answer, for who reads a test that failed.
pub(crate) type Refused = &'static str;

/// The samples, and the whole query's range.
pub(crate) struct Oracle<'w> {
    pub(crate) world: &'w World,
    pub(crate) start_ms: i64,
    pub(crate) end_ms: i64,
}

fn fixed(length: &Length) -> i64 {
    match length {
        Length::Fixed(ms) => *ms,
        Length::Computed(_) => unreachable!("lengths are literals here"),
    }
}

fn without_name(labels: &Labels) -> Labels {
    labels.filtered(|name| name != METRIC_NAME)
}

fn unnamed(vector: Vec<(Labels, f64)>) -> Result<Vec<(Labels, f64)>, Refused> {
    unique(vector.into_iter().map(|(labels, value)| (without_name(&labels), value)).collect())
}

fn unique(vector: Vec<(Labels, f64)>) -> Result<Vec<(Labels, f64)>, Refused> {
    let mut all: Vec<&Labels> = vector.iter().map(|(labels, _)| labels).collect();
    all.sort();
    if all.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err("two of the same labels");
    }
    Ok(vector)
}

fn number(op: BinaryOp, a: f64, b: f64) -> f64 {
    let told = |holds: bool| if holds { 1.0 } else { 0.0 };
    match op {
        BinaryOp::Add => a + b,
        BinaryOp::Sub => a - b,
        BinaryOp::Mul => a * b,
        BinaryOp::Div => a / b,
        BinaryOp::Mod => a % b,
        BinaryOp::Equal => told(a == b),
        BinaryOp::NotEqual => told(a != b),
        BinaryOp::Less => told(a < b),
        BinaryOp::LessEqual => told(a <= b),
        BinaryOp::Greater => told(a > b),
        BinaryOp::GreaterEqual => told(a >= b),
        _ => unreachable!("{op:?} is not asked for here"),
    }
}

impl Oracle<'_> {
    /// The value of an expression at a moment.
    pub(crate) fn at(&self, expr: &Expr, now: i64) -> Result<Answer, Refused> {
        Ok(match expr {
            Expr::Number(value) => Answer::Scalar(*value),
            Expr::Vector(selector) => Answer::Vector(self.newest(selector, now)),
            Expr::Negate(inner) => match self.at(inner, now)? {
                Answer::Scalar(value) => Answer::Scalar(-value),
                Answer::Vector(vector) => {
                    Answer::Vector(unnamed(vector.into_iter().map(|(l, value)| (l, -value)).collect())?)
                }
            },
            Expr::Call(call) => match call.name.as_str() {
                "abs" => {
                    let vector = self.vector(&call.args[0], now)?;
                    Answer::Vector(unnamed(vector.into_iter().map(|(l, v)| (l, v.abs())).collect())?)
                }
                "scalar" => {
                    let vector = self.vector(&call.args[0], now)?;
                    Answer::Scalar(if vector.len() == 1 { vector[0].1 } else { f64::NAN })
                }
                "vector" => match self.at(&call.args[0], now)? {
                    Answer::Scalar(value) => Answer::Vector(vec![(Labels::default(), value)]),
                    Answer::Vector(_) => unreachable!("types are checked by the parser"),
                },
                "quantile_over_time" => {
                    let Answer::Scalar(q) = self.at(&call.args[0], now)? else {
                        unreachable!("types are checked by the parser")
                    };
                    Answer::Vector(self.windowed(&call.name, q, &call.args[1], now)?)
                }
                name => Answer::Vector(self.windowed(name, 0.0, &call.args[0], now)?),
            },
            Expr::Aggregate(aggregate) => {
                let vector = self.vector(&aggregate.expr, now)?;
                let param = match &aggregate.param {
                    Some(param) => match self.at(param, now)? {
                        Answer::Scalar(value) => value,
                        Answer::Vector(_) => unreachable!("types are checked by the parser"),
                    },
                    None => 0.0,
                };
                Answer::Vector(aggregated(aggregate.op, param, &aggregate.grouping, &vector))
            }
            Expr::Binary(binary) => match (self.at(&binary.lhs, now)?, self.at(&binary.rhs, now)?) {
                (Answer::Scalar(a), Answer::Scalar(b)) => Answer::Scalar(number(binary.op, a, b)),
                (Answer::Vector(a), Answer::Scalar(b)) => Answer::Vector(with_scalar(binary, a, b, false)?),
                (Answer::Scalar(a), Answer::Vector(b)) => Answer::Vector(with_scalar(binary, b, a, true)?),
                (Answer::Vector(a), Answer::Vector(b)) => Answer::Vector(joined(binary, a, b)?),
            },
            Expr::Text(_) | Expr::Bytes(_) | Expr::Matrix(_) | Expr::Subquery(_) => {
                unreachable!("no value of its own")
            }
        })
    }

    fn vector(&self, expr: &Expr, now: i64) -> Result<Vec<(Labels, f64)>, Refused> {
        match self.at(expr, now)? {
            Answer::Vector(vector) => Ok(vector),
            Answer::Scalar(_) => unreachable!("types are checked by the parser"),
        }
    }

    fn look(&self, at: Option<AtModifier>, offset: &Length, now: i64) -> i64 {
        let pinned = match at {
            Some(AtModifier::Time(at)) => at.as_ms(),
            Some(AtModifier::Start) => self.start_ms,
            Some(AtModifier::End) => self.end_ms,
            None => now,
        };
        pinned - fixed(offset)
    }

    fn newest(&self, selector: &VectorSelector, now: i64) -> Vec<(Labels, f64)> {
        let look = self.look(selector.at, &selector.offset, now);
        let newest = |(labels, samples): (&Labels, &std::collections::BTreeMap<i64, f64>)| {
            let (at, value) = samples.range(..=look).next_back()?;
            (*at > look - LOOKBACK_MS && !is_stale(*value)).then(|| (labels.clone(), *value))
        };
        self.matching(selector).filter_map(newest).collect()
    }

    fn matching<'s>(
        &'s self,
        selector: &'s VectorSelector,
    ) -> impl Iterator<Item = (&'s Labels, &'s std::collections::BTreeMap<i64, f64>)> {
        self.world
            .iter()
            .filter(|(labels, _)| selector.matchers.iter().all(|m| m.matches(labels.value(m.name()))))
    }

    /// A function of windows over a selector or a subquery.
    fn windowed(&self, name: &str, param: f64, of: &Expr, now: i64) -> Result<Vec<(Labels, f64)>, Refused> {
        let mut all: Vec<(Labels, Vec<(i64, f64)>)> = Vec::new();
        let (start, end) = match of {
            Expr::Matrix(matrix) => {
                let end = self.look(matrix.selector.at, &matrix.selector.offset, now);
                let start = end - fixed(&matrix.range);
                for (labels, samples) in self.matching(&matrix.selector) {
                    let inside = samples
                        .iter()
                        .filter(|(at, value)| **at > start && **at <= end && !is_stale(**value));
                    all.push((labels.clone(), inside.map(|(at, value)| (*at, *value)).collect()));
                }
                (start, end)
            }
            Expr::Subquery(subquery) => {
                let end = self.look(subquery.at, &subquery.offset, now);
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
            let absent = all.is_empty().then(|| (asked_for(of), 1.0));
            return Ok(absent.into_iter().collect());
        }
        let value = |(labels, window): (Labels, Vec<(i64, f64)>)| {
            Some((labels, apply(name, param, &window, (start, end))?))
        };
        let vector = all.into_iter().filter_map(value).collect();
        if name == "last_over_time" || name == "first_over_time" { Ok(vector) } else { unnamed(vector) }
    }
}

/// The labels that a selector asks for by their values.
fn asked_for(of: &Expr) -> Labels {
    let Expr::Matrix(matrix) = of else { return Labels::default() };
    let equal =
        matrix.selector.matchers.iter().filter(|m| m.op() == MatchOp::Equal && m.name() != METRIC_NAME);
    Labels::from_pairs(equal.map(|matcher| (matcher.name(), matcher.value())))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small whole number")]
fn aggregated(
    op: AggregateOp,
    param: f64,
    grouping: &Grouping,
    vector: &[(Labels, f64)],
) -> Vec<(Labels, f64)> {
    let key = |labels: &Labels| match grouping {
        Grouping::By(names) => labels.filtered(|name| names.iter().any(|by| by == name)),
        Grouping::Without(names) => {
            labels.filtered(|name| name != METRIC_NAME && !names.iter().any(|without| without == name))
        }
    };
    let mut groups: Vec<(Labels, Vec<(Labels, f64)>)> = Vec::new();
    for (labels, value) in vector {
        let key = key(labels);
        let member = (labels.clone(), *value);
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, members)) => members.push(member),
            None => groups.push((key, vec![member])),
        }
    }
    let mut out = Vec::new();
    for (labels, members) in groups {
        let values: Vec<f64> = members.iter().map(|(_, value)| *value).collect();
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
                let mut sorted = members;
                let is_top = op == AggregateOp::Topk;
                // Stable: of equals the first one stays ahead. NaN comes last.
                sorted.sort_by(|(_, a), (_, b)| match (a.is_nan(), b.is_nan()) {
                    (false, false) if is_top => b.partial_cmp(a).expect("numbers"),
                    (false, false) => a.partial_cmp(b).expect("numbers"),
                    (a, b) => a.cmp(&b),
                });
                sorted.truncate(param as usize);
                out.extend(sorted);
                continue;
            }
            _ => unreachable!("{op:?} is not asked for here"),
        };
        out.push((labels, value));
    }
    out
}

/// Welford's, without compensation: that is what the aggregation does.
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

fn with_scalar(
    binary: &Binary,
    vector: Vec<(Labels, f64)>,
    scalar: f64,
    is_left: bool,
) -> Result<Vec<(Labels, f64)>, Refused> {
    let filters = binary.op.is_comparison() && !binary.returns_bool;
    let mut out = Vec::new();
    for (labels, value) in vector {
        let (a, b) = if is_left { (scalar, value) } else { (value, scalar) };
        let result = number(binary.op, a, b);
        if !filters {
            out.push((labels, result));
        } else if result == 1.0 {
            out.push((labels, value));
        }
    }
    if filters { Ok(out) } else { unnamed(out) }
}

fn joined(
    binary: &Binary,
    lhs: Vec<(Labels, f64)>,
    rhs: Vec<(Labels, f64)>,
) -> Result<Vec<(Labels, f64)>, Refused> {
    let all = Matching::default();
    let matching = binary.matching.as_ref().unwrap_or(&all);
    let listed = |name: &str| matching.labels.iter().any(|label| label == name);
    let signature = |labels: &Labels| {
        labels.filtered(|name| if matching.on { listed(name) } else { name != METRIC_NAME && !listed(name) })
    };
    let meets = |side: &[(Labels, f64)], labels: &Labels| {
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
    let mut out: Vec<(Labels, f64)> = Vec::new();
    let mut met: Vec<Labels> = Vec::new();
    // As with everything that was met: what a comparison drops has taken its place.
    let mut taken: Vec<Labels> = Vec::new();
    for (labels, value) in &many {
        let Some((other, with)) = one.iter().find(|(other, _)| signature(other) == signature(labels)) else {
            continue;
        };
        if matching.cardinality == Cardinality::OneToOne && met.contains(&signature(labels)) {
            return Err("many on both sides");
        }
        met.push(signature(labels));
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
        if taken.contains(&kept) {
            return Err("the same result twice");
        }
        taken.push(kept.clone());
        let (a, b) = if swapped { (*with, *value) } else { (*value, *with) };
        let result = number(binary.op, a, b);
        if !binary.op.is_comparison() || binary.returns_bool {
            out.push((kept, result));
        } else if result == 1.0 {
            out.push((kept, a));
        }
    }
    unique(out)
}
