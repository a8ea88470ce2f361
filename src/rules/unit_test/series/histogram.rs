//! Histograms of series descriptions: `{{schema:0 sum:5 count:4 buckets:[1 2 1]}}`. Their
//! arithmetic is independent of the evaluator, so that tests of it compare two implementations.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::number;
use crate::model::{CUSTOM_BUCKETS_SCHEMA, CounterReset, Histogram, HistogramCounts, HistogramShape};
use crate::rules::run::spans;

/// A histogram as a description writes it.
#[derive(Clone, Debug, Default)]
pub struct HistogramLiteral {
    /// The schema: -4 to 8, or -53.
    pub schema: i32,
    /// The sum of the observations.
    pub sum: f64,
    /// The number of observations.
    pub count: f64,
    /// The number of observations in the zero bucket.
    pub zero: f64,
    /// The width of the zero bucket.
    pub threshold: f64,
    /// The custom bounds.
    pub bounds: Vec<f64>,
    /// The counts of positive buckets by their index.
    pub positive: BTreeMap<i32, f64>,
    /// The counts of negative buckets by their index.
    pub negative: BTreeMap<i32, f64>,
    /// The counter reset hint.
    pub reset: CounterReset,
    /// Whether the description gives the counter reset hint, so that it is compared.
    pub compares_reset: bool,
}

impl HistogramLiteral {
    /// Parses the text between the braces.
    ///
    /// # Errors
    /// The message for an unknown or repeated key, and for a wrong value.
    pub fn parse(text: &str) -> Result<HistogramLiteral, String> {
        let mut literal = HistogramLiteral::default();
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
                    literal.reset = reset_hint(value)?;
                }
                other => return Err(format!("a histogram has no {other:?}")),
            }
        }
        literal.positive = numbered(positive.0, positive.1)?;
        literal.negative = numbered(negative.0, negative.1)?;
        Ok(literal)
    }

    /// Makes a histogram with custom buckets from the cumulative counts of a classic one, whose
    /// last bound is infinity.
    ///
    /// # Errors
    /// The message for counts that decrease.
    pub fn from_classic(cumulative: &[(f64, f64)], sum: f64) -> Result<HistogramLiteral, String> {
        let mut literal =
            HistogramLiteral { schema: CUSTOM_BUCKETS_SCHEMA, sum, ..HistogramLiteral::default() };
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
    pub fn compare_reset_like(&mut self, other: &HistogramLiteral) {
        self.compares_reset = other.compares_reset;
    }

    /// Adds (or, with sign -1, subtracts) a histogram with the same or a finer schema.
    ///
    /// # Errors
    /// The message for a coarser schema, and for other custom bounds.
    pub fn step(&mut self, other: &HistogramLiteral, sign: f64) -> Result<(), String> {
        let custom = |literal: &HistogramLiteral| literal.schema == CUSTOM_BUCKETS_SCHEMA;
        if other.schema < self.schema || custom(other) != custom(self) {
            return Err("the histogram that is added must be at least as fine".into());
        }
        if custom(self) && self.bounds != other.bounds {
            return Err("custom bounds differ".into());
        }
        let steps = other.schema.saturating_sub(self.schema).min(31);
        for (into, from) in [(&mut self.positive, &other.positive), (&mut self.negative, &other.negative)] {
            for (index, count) in from {
                *into.entry((index.saturating_sub(1) >> steps) + 1).or_insert(0.0) += sign * count;
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
    ///
    /// # Errors
    /// The message for a histogram that no store accepts.
    pub fn stored(&self) -> Result<Histogram, String> {
        let spans =
            |buckets: &BTreeMap<i32, f64>| spans(buckets.iter().map(|(index, count)| (*index, *count)));
        let (positive, positive_counts) = spans(&self.positive);
        let (negative, negative_counts) = spans(&self.negative);
        let shape = HistogramShape::new(self.schema, self.threshold, self.bounds.clone(), positive, negative);
        let buckets = positive_counts.into_iter().chain(negative_counts).collect();
        let counts = HistogramCounts::Float { count: self.count, zero: self.zero, buckets };
        let shape = Arc::new(shape.map_err(|e| e.to_string())?);
        Histogram::new(shape, self.reset, self.sum, counts).map_err(|e| e.to_string())
    }
}

fn reset_hint(text: &str) -> Result<CounterReset, String> {
    match text {
        "unknown" => Ok(CounterReset::Unknown),
        "reset" => Ok(CounterReset::Reset),
        "not_reset" => Ok(CounterReset::NotReset),
        "gauge" => Ok(CounterReset::Gauge),
        other => Err(format!("no such hint: {other:?}")),
    }
}

/// Numbers counts from an index on.
fn numbered(first: i32, counts: Vec<f64>) -> Result<BTreeMap<i32, f64>, String> {
    let most = i32::try_from(counts.len()).ok().and_then(|len| first.checked_add(len));
    most.ok_or("the offset is too large")?;
    Ok((first..).zip(counts).collect())
}

fn list(text: &str) -> Result<Vec<f64>, String> {
    let inside = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).ok_or("no list")?;
    let words = inside.split([' ', '\t']).filter(|word| !word.is_empty());
    words.map(|word| number(word).ok_or(format!("not a count: {word:?}"))).collect()
}
