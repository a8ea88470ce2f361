//! What a script expects of a result, and whether the result is that.

use promlet::model::{Timestamp, is_stale, stale_nan};
use promlet::promql::{Annotations, MatrixSeries, Value, VectorSample};

use super::native::Literal;
use super::series::{Item, SeriesLine};

/// What is expected of an evaluation.
#[derive(Debug, Default)]
pub(crate) struct Expected {
    pub(crate) fail: Option<Rule>,
    pub(crate) warnings: Vec<Rule>,
    pub(crate) infos: Vec<Rule>,
    pub(crate) no_warning: bool,
    pub(crate) no_info: bool,
    pub(crate) ordered: bool,
    pub(crate) scalar: Option<f64>,
    pub(crate) text: Option<String>,
    /// The first time and the step of an instant query's raw samples.
    pub(crate) raw: Option<(Timestamp, i64)>,
    pub(crate) series: Vec<SeriesLine>,
}

/// What a message must be.
#[derive(Debug)]
pub(crate) enum Rule {
    Anything,
    Exactly(String),
    Regex(regex::Regex),
}

impl Rule {
    pub(crate) fn regex(text: &str) -> Result<Rule, String> {
        regex::Regex::new(text).map(Rule::Regex).map_err(|e| e.to_string())
    }

    pub(crate) fn allows(&self, message: &str) -> bool {
        match self {
            Rule::Anything => true,
            Rule::Exactly(text) => text == message,
            Rule::Regex(regex) => regex.is_match(message),
        }
    }
}

/// A sample for a message.
fn told(sample: &VectorSample) -> String {
    match &sample.histogram {
        Some(histogram) => format!("{histogram:?}"),
        None => sample.value.to_string(),
    }
}

/// Upstream's tolerance, relative.
const TOLERANCE: f64 = 1e-6;

/// Whether two values are the same for a script.
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
    /// Whether warnings and infos are those that were announced.
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

    /// Whether an instant query's value is the expected one.
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
        for (place, line) in self.series.iter().enumerate() {
            let Some(found) = vector.iter().position(|sample| sample.labels == line.labels) else {
                return Err(format!("{} is missing", line.labels));
            };
            let sample = &vector[found];
            let [item] = &line.items[..] else {
                return Err(format!("{} is expected to have {} values", line.labels, line.items.len()));
            };
            let same = match (item, &sample.histogram) {
                (Item::Value(expected), None) => almost_equal(*expected, sample.value),
                (Item::Histogram(expected), Some(found)) => expected.matches(found),
                _ => false,
            };
            if !same {
                let found = told(sample);
                return Err(format!("{} is {found}, expected {item:?}", line.labels));
            }
            if sample.at != at {
                return Err(format!("{} stands at {:?}, not at the evaluation time", line.labels, sample.at));
            }
            if self.ordered && found != place {
                return Err(format!("{} is number {}, expected {}", line.labels, found + 1, place + 1));
            }
        }
        for (i, sample) in vector.iter().enumerate() {
            if self.series.iter().all(|line| line.labels != sample.labels) {
                return Err(format!("unexpected {} = {}", sample.labels, told(sample)));
            }
            if vector[..i].iter().any(|other| other.labels == sample.labels) {
                return Err(format!("{} stands there twice", sample.labels));
            }
        }
        Ok(())
    }

    /// Whether a matrix is the expected one; position `i` of a line is `start + i * step`.
    pub(crate) fn check_matrix(
        &self,
        matrix: &[MatrixSeries],
        start: Timestamp,
        step_ms: i64,
    ) -> Result<(), String> {
        if !matrix.is_sorted_by(|a, b| a.labels < b.labels) {
            return Err("the series are not sorted by labels".into());
        }
        // A scalar of a range query is one series without labels; scripts expect it as such.
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
                    .all(|(s, (at, literal))| s.at == *at && literal.matches(&s.value));
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
