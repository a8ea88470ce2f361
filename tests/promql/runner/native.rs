//! Histograms of scripts: `{{schema:0 sum:5 count:4 buckets:[1 2 1]}}`. Their arithmetic is
//! independent of the evaluator, so that the tested code does not define what is correct.

use std::collections::BTreeMap;
use std::sync::Arc;

use promlet::model::{BucketSpan, CounterReset, Histogram, HistogramCounts, HistogramShape};
use promlet::promql::FloatHistogram;

use super::expect::almost_equal;
use super::series::number;

/// The schema of histograms with custom bounds.
const CUSTOM: i32 = -53;

/// A histogram as written in a script.
#[derive(Clone, Debug, Default)]
pub(crate) struct Literal {
    schema: i32,
    sum: f64,
    count: f64,
    zero: f64,
    threshold: f64,
    bounds: Vec<f64>,
    positive: BTreeMap<i32, f64>,
    negative: BTreeMap<i32, f64>,
    reset: CounterReset,
    /// Whether the script gives the counter reset hint, so that it is compared.
    compares_reset: bool,
}

impl Literal {
    /// Parses the text between the braces.
    pub(crate) fn parse(text: &str) -> Result<Literal, String> {
        let mut literal = Literal::default();
        let (mut positive, mut negative) = ((0, Vec::new()), (0, Vec::new()));
        let mut keys: Vec<&str> = Vec::new();
        let mut rest = text.trim();
        while !rest.is_empty() {
            let (key, after) = rest.split_once(':').ok_or(format!("no value after {rest:?}"))?;
            if keys.contains(&key) {
                return Err(format!("{key} is given twice"));
            }
            keys.push(key);
            let end = if after.starts_with('[') {
                after.find(']').ok_or("a list has no end")? + 1
            } else {
                after.find([' ', '\t']).unwrap_or(after.len())
            };
            let (value, next) = after.split_at(end);
            rest = next.trim_start();
            let float = || number(value).ok_or(format!("{key} is not a number: {value:?}"));
            let whole = || value.parse::<i32>().map_err(|e| format!("{key}: {e}"));
            match key {
                "schema" => literal.schema = whole()?,
                "sum" => literal.sum = float()?,
                "count" => literal.count = float()?,
                "z_bucket" => literal.zero = float()?,
                "z_bucket_w" => literal.threshold = float()?,
                "offset" => positive.0 = whole()?,
                "n_offset" => negative.0 = whole()?,
                "buckets" => positive.1 = list(value)?,
                "n_buckets" => negative.1 = list(value)?,
                "custom_values" => literal.bounds = list(value)?,
                "counter_reset_hint" => {
                    literal.compares_reset = true;
                    literal.reset = match value {
                        "unknown" => CounterReset::Unknown,
                        "reset" => CounterReset::Reset,
                        "not_reset" => CounterReset::NotReset,
                        "gauge" => CounterReset::Gauge,
                        other => return Err(format!("no such hint: {other:?}")),
                    };
                }
                other => return Err(format!("a histogram has no {other:?}")),
            }
        }
        literal.positive = (positive.0..).zip(positive.1).collect();
        literal.negative = (negative.0..).zip(negative.1).collect();
        Ok(literal)
    }

    /// Makes a histogram with custom buckets from the cumulative counts of a classic one, whose
    /// last bound is infinity.
    pub(crate) fn from_classic(cumulative: &[(f64, f64)], sum: f64) -> Result<Literal, String> {
        let mut literal = Literal { schema: CUSTOM, sum, ..Literal::default() };
        let mut before = 0.0;
        for ((bound, count), index) in cumulative.iter().zip(0..) {
            if *count < before {
                return Err(format!("bucket {bound} counts {count}, the one before {before}"));
            }
            literal.positive.insert(index, count - before);
            if bound.is_finite() {
                literal.bounds.push(*bound);
            }
            before = *count;
        }
        literal.count = before;
        literal.positive.retain(|_, count| *count != 0.0);
        Ok(literal)
    }

    /// Compares the counter reset hint if `other` does, for all steps of one item.
    pub(crate) fn compare_reset_like(&mut self, other: &Literal) {
        self.compares_reset = other.compares_reset;
    }

    /// Adds (or, with sign -1, subtracts) a histogram with the same or a finer schema.
    pub(crate) fn step(&mut self, other: &Literal, sign: f64) -> Result<(), String> {
        if other.schema < self.schema || (other.schema == CUSTOM) != (self.schema == CUSTOM) {
            return Err("the histogram that is added must be at least as fine".into());
        }
        if self.schema == CUSTOM && self.bounds != other.bounds {
            return Err("custom bounds differ".into());
        }
        let steps = other.schema - self.schema;
        for (into, from) in [(&mut self.positive, &other.positive), (&mut self.negative, &other.negative)] {
            for (index, count) in from {
                *into.entry(((index - 1) >> steps) + 1).or_insert(0.0) += sign * count;
            }
        }
        self.sum += sign * other.sum;
        self.count += sign * other.count;
        self.zero += sign * other.zero;
        let gauge = sign < 0.0 || [self.reset, other.reset].contains(&CounterReset::Gauge);
        self.reset = match (gauge, self.reset == other.reset) {
            (true, _) => CounterReset::Gauge,
            (false, true) => self.reset,
            (false, false) => CounterReset::Unknown,
        };
        self.compares_reset = other.compares_reset;
        Ok(())
    }

    /// Returns the histogram to store.
    pub(crate) fn stored(&self) -> Result<Histogram, String> {
        let (positive, positive_counts) = spans(&self.positive);
        let (negative, negative_counts) = spans(&self.negative);
        let shape = HistogramShape::new(self.schema, self.threshold, self.bounds.clone(), positive, negative);
        let buckets = positive_counts.into_iter().chain(negative_counts).collect();
        let counts = HistogramCounts::Float { count: self.count, zero: self.zero, buckets };
        let shape = Arc::new(shape.map_err(|e| e.to_string())?);
        Histogram::new(shape, self.reset, self.sum, counts).map_err(|e| e.to_string())
    }

    /// Returns whether a result equals this histogram, apart from rounding.
    pub(crate) fn matches(&self, found: &FloatHistogram) -> bool {
        let filled = |all: &BTreeMap<i32, f64>| -> Vec<(i32, f64)> {
            all.iter().filter(|(_, count)| **count != 0.0).map(|(index, count)| (*index, *count)).collect()
        };
        let same = |expected: Vec<(i32, f64)>, found: Vec<(i32, f64)>| {
            let found: Vec<_> = found.into_iter().filter(|(_, count)| *count != 0.0).collect();
            expected.len() == found.len()
                && expected.iter().zip(&found).all(|(a, b)| a.0 == b.0 && almost_equal(a.1, b.1))
        };
        self.schema == found.schema()
            && almost_equal(self.count, found.count())
            && almost_equal(self.sum, found.sum())
            && self.bounds == found.custom_values()
            && self.threshold == found.zero_threshold()
            && almost_equal(self.zero, found.zero_count())
            && same(filled(&self.positive), found.positive().collect())
            && same(filled(&self.negative), found.negative().collect())
            && (!self.compares_reset || self.reset == found.reset())
    }
}

fn list(text: &str) -> Result<Vec<f64>, String> {
    let inside = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).ok_or("no list")?;
    let words = inside.split([' ', '\t']).filter(|word| !word.is_empty());
    words.map(|word| number(word).ok_or(format!("not a count: {word:?}"))).collect()
}

fn spans(buckets: &BTreeMap<i32, f64>) -> (Vec<BucketSpan>, Vec<f64>) {
    let mut spans: Vec<BucketSpan> = Vec::new();
    let mut next = 0;
    for index in buckets.keys() {
        match spans.last_mut() {
            Some(last) if *index == next => last.length += 1,
            _ => spans.push(BucketSpan { offset: index - next, length: 1 }),
        }
        next = index + 1;
    }
    (spans, buckets.values().copied().collect())
}
