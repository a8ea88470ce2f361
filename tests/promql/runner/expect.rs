//! The expectations of a script, and their comparison with results.

use promlet::model::{Timestamp, is_stale, stale_nan};
use promlet::promql::{Annotations, MatrixSeries, Value, VectorSample};

use super::native::{Literal, matches};
use super::series::{Item, SeriesLine};

/// The expected outcome of an evaluation.
#[derive(Debug, Default)]
pub(crate) struct Expected {
    pub(crate) fail: Option<MessageRule>,
    pub(crate) warnings: Vec<MessageRule>,
    pub(crate) infos: Vec<MessageRule>,
    pub(crate) no_warning: bool,
    pub(crate) no_info: bool,
    pub(crate) ordered: bool,
    pub(crate) scalar: Option<f64>,
    pub(crate) text: Option<String>,
    /// The first time and the step of the raw samples of an instant query.
    pub(crate) raw: Option<(Timestamp, i64)>,
    pub(crate) series: Vec<SeriesLine>,
}

/// A condition on a message.
#[derive(Debug)]
pub(crate) enum MessageRule {
    Anything,
    Exactly(String),
    Regex(regex::Regex),
}

impl MessageRule {
    pub(crate) fn regex(text: &str) -> Result<MessageRule, String> {
        regex::Regex::new(text).map(MessageRule::Regex).map_err(|e| e.to_string())
    }

    pub(crate) fn allows(&self, message: &str) -> bool {
        match self {
            MessageRule::Anything => true,
            MessageRule::Exactly(text) => text == message,
            MessageRule::Regex(regex) => regex.is_match(message),
        }
    }
}

/// Renders a sample for a message.
fn render(sample: &VectorSample) -> String {
    match &sample.histogram {
        Some(histogram) => format!("{histogram:?}"),
        None => sample.value.to_string(),
    }
}

/// Upstream's relative tolerance.
const TOLERANCE: f64 = 1e-6;

/// Returns whether two values are equal for a script.
pub(crate) fn almost_equal(a: f64, b: f64) -> bool {
    if is_stale(a) || is_stale(b) {
        return is_stale(a) && is_stale(b);
    }
    if (a.is_nan() && b.is_nan()) || a == b {
        return true;
    }
    let (sum, difference) = (a.abs() + b.abs(), (a - b).abs());
    if a == 0.0 || b == 0.0 || sum < f64::MIN_POSITIVE {
        return difference < TOLERANCE * f64::MIN_POSITIVE;
    }
    difference / sum.min(f64::MAX) < TOLERANCE
}

impl Expected {
    /// Compares warnings and infos with the expected ones.
    pub(crate) fn check_annotations(&self, found: &Annotations) -> Result<(), String> {
        let kinds = [
            ("warning", &self.warnings, self.no_warning, &found.warnings),
            ("info", &self.infos, self.no_info, &found.infos),
        ];
        for (kind, rules, none, found) in kinds {
            if none && !found.is_empty() {
                return Err(format!("expected no {kind}, found {found:?}"));
            }
            if rules.is_empty() {
                continue;
            }
            if let Some(rule) = rules.iter().find(|rule| !found.iter().any(|text| rule.allows(text))) {
                return Err(format!("no {kind} is {rule:?}; found {found:?}"));
            }
            if let Some(text) = found.iter().find(|text| !rules.iter().any(|rule| rule.allows(text))) {
                return Err(format!("unexpected {kind} {text:?}"));
            }
        }
        Ok(())
    }

    /// Compares the value of an instant query with the expected one.
    pub(crate) fn check_instant(&self, value: &Value, at: Timestamp) -> Result<(), String> {
        match value {
            Value::Scalar { value, .. } => self.check_scalar(*value),
            Value::Text { text, .. } => match &self.text {
                Some(expected) if expected == text => Ok(()),
                expected => Err(format!("expected {expected:?}, found the string {text:?}")),
            },
            Value::Vector(vector) => self.check_vector(vector, at),
            Value::Matrix(matrix) => {
                let (start, step_ms) = self.raw.ok_or("the result is a range vector")?;
                self.check_matrix(matrix, start, step_ms)
            }
        }
    }

    pub(crate) fn check_scalar(&self, value: f64) -> Result<(), String> {
        match self.scalar {
            Some(expected) if almost_equal(expected, value) => Ok(()),
            expected => Err(format!("expected {expected:?}, found the scalar {value}")),
        }
    }

    pub(crate) fn check_vector(&self, vector: &[VectorSample], at: Timestamp) -> Result<(), String> {
        if self.scalar.is_some() || self.text.is_some() || self.raw.is_some() {
            return Err(format!("expected no vector, found {} samples", vector.len()));
        }
        for (position, line) in self.series.iter().enumerate() {
            let Some(found) = vector.iter().position(|sample| sample.labels == line.labels) else {
                return Err(format!("{} is missing", line.labels));
            };
            let sample = &vector[found];
            let [item] = &line.items[..] else {
                return Err(format!("{} is expected to have {} values", line.labels, line.items.len()));
            };
            let same = match (item, &sample.histogram) {
                (Item::Value(expected), None) => almost_equal(*expected, sample.value),
                (Item::Histogram(expected), Some(found)) => matches(expected, found),
                _ => false,
            };
            if !same {
                let found = render(sample);
                return Err(format!("{} is {found}, expected {item:?}", line.labels));
            }
            if sample.at != at {
                return Err(format!("{} is at {:?}, not at the evaluation time", line.labels, sample.at));
            }
            if self.ordered && found != position {
                return Err(format!("{} is number {}, expected {}", line.labels, found + 1, position + 1));
            }
        }
        for (i, sample) in vector.iter().enumerate() {
            if self.series.iter().all(|line| line.labels != sample.labels) {
                return Err(format!("unexpected {} = {}", sample.labels, render(sample)));
            }
            if vector[..i].iter().any(|other| other.labels == sample.labels) {
                return Err(format!("{} occurs twice", sample.labels));
            }
        }
        Ok(())
    }

    /// Compares a matrix with the expected one. Item `i` of a line is at `start + i * step`.
    pub(crate) fn check_matrix(
        &self,
        matrix: &[MatrixSeries],
        start: Timestamp,
        step_ms: i64,
    ) -> Result<(), String> {
        if !matrix.is_sorted_by(|a, b| a.labels < b.labels) {
            return Err("the series are not sorted by labels".into());
        }
        // A scalar in a range query is one series without labels, and scripts expect it so.
        for line in &self.series {
            let expected: Vec<(Timestamp, f64)> = line
                .items
                .iter()
                .zip(0i64..)
                .filter_map(|(item, i)| match item {
                    Item::Value(value) => Some((start.plus_ms(i * step_ms), *value)),
                    Item::Stale => Some((start.plus_ms(i * step_ms), stale_nan())),
                    Item::Missing | Item::Histogram(_) => None,
                })
                .collect();
            let native: Vec<(Timestamp, &Literal)> = line
                .items
                .iter()
                .zip(0i64..)
                .filter_map(|(item, i)| match item {
                    Item::Histogram(literal) => Some((start.plus_ms(i * step_ms), &**literal)),
                    _ => None,
                })
                .collect();
            let found = matrix.iter().find(|series| series.labels == line.labels);
            let Some(found) = found else {
                if expected.is_empty() && native.is_empty() {
                    continue;
                }
                return Err(format!("{} is missing", line.labels));
            };
            let same = found.samples.len() == expected.len()
                && found
                    .samples
                    .iter()
                    .zip(&expected)
                    .all(|(s, (at, value))| s.at == *at && almost_equal(s.value, *value));
            if !same {
                let found: Vec<_> = found.samples.iter().map(|s| (s.at.as_ms(), s.value)).collect();
                let expected: Vec<_> = expected.iter().map(|(at, value)| (at.as_ms(), *value)).collect();
                return Err(format!("{} is\n    {found:?}, expected\n    {expected:?}", line.labels));
            }
            let same = found.histograms.len() == native.len()
                && found
                    .histograms
                    .iter()
                    .zip(&native)
                    .all(|(s, (at, literal))| s.at == *at && matches(literal, &s.value));
            if !same {
                let found: Vec<_> = found.histograms.iter().map(|s| (s.at.as_ms(), &s.value)).collect();
                return Err(format!("{} is\n    {found:?}, expected\n    {native:?}", line.labels));
            }
        }
        match matrix.iter().find(|series| self.series.iter().all(|line| line.labels != series.labels)) {
            Some(series) => Err(format!("unexpected {}", series.labels)),
            None => Ok(()),
        }
    }
}
