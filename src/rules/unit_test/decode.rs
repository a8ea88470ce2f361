//! Files of unit tests, with the position of each error.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::series::{DescribedSeries, number, parse, parse_metric};
use super::{UNIT_TEST_FILE_BYTES_MAX, UNIT_TEST_SAMPLES_MAX, UNIT_TESTS_MAX};
use crate::model::{Labels, Timestamp, parse_duration};
use crate::yaml::{self, Position, Spanned, YamlError};

/// The interval of evaluations and of input series that give none, in milliseconds.
const INTERVAL_MS: i64 = 60_000;

/// A file of unit tests.
#[derive(Clone, Debug)]
pub(super) struct UnitTestFile {
    pub(super) rule_files: Vec<String>,
    pub(super) evaluation_interval_ms: i64,
    pub(super) group_eval_order: Vec<String>,
    /// Whether numbers may differ in their last bit.
    pub(super) fuzzy_compare: bool,
    pub(super) tests: Vec<UnitTest>,
}

/// One test: series, and the expected alerts and query results.
#[derive(Clone, Debug)]
pub(super) struct UnitTest {
    pub(super) name: String,
    pub(super) interval_ms: i64,
    pub(super) start: Timestamp,
    pub(super) series: Vec<DescribedSeries>,
    pub(super) external_labels: BTreeMap<String, String>,
    pub(super) external_url: String,
    pub(super) alerts: Vec<ExpectedAlerts>,
    pub(super) queries: Vec<ExpectedSamples>,
}

/// The alerts of one name that are expected to fire at a time.
#[derive(Clone, Debug)]
pub(super) struct ExpectedAlerts {
    pub(super) eval_time_ms: i64,
    pub(super) alertname: String,
    pub(super) alerts: Vec<ExpectedAlert>,
}

/// One alert that is expected to fire.
#[derive(Clone, Debug)]
pub(super) struct ExpectedAlert {
    pub(super) labels: BTreeMap<String, String>,
    pub(super) annotations: BTreeMap<String, String>,
}

/// The expected result of a query at a time.
#[derive(Clone, Debug)]
pub(super) struct ExpectedSamples {
    pub(super) expr: String,
    pub(super) eval_time_ms: i64,
    pub(super) samples: Vec<ExpectedSample>,
}

/// One expected sample. The texts are parsed when the query is compared, as promtool does.
#[derive(Clone, Debug)]
pub(super) struct ExpectedSample {
    pub(super) labels: String,
    pub(super) value: f64,
    /// A histogram in the notation of series; empty for a number.
    pub(super) histogram: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileText {
    #[serde(default)]
    rule_files: Option<Vec<String>>,
    #[serde(default)]
    evaluation_interval: Option<Spanned<String>>,
    #[serde(default)]
    group_eval_order: Option<Vec<Spanned<String>>>,
    #[serde(default)]
    tests: Option<Vec<Spanned<TestText>>>,
    #[serde(default)]
    fuzzy_compare: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TestText {
    #[serde(default)]
    interval: Option<Spanned<String>>,
    #[serde(default)]
    input_series: Option<Vec<Spanned<SeriesText>>>,
    #[serde(default)]
    alert_rule_test: Option<Vec<Spanned<AlertTestText>>>,
    #[serde(default)]
    promql_expr_test: Option<Vec<Spanned<QueryTestText>>>,
    #[serde(default)]
    external_labels: Option<BTreeMap<String, String>>,
    #[serde(default)]
    external_url: Option<String>,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    start_timestamp: Option<Spanned<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SeriesText {
    #[serde(default)]
    series: String,
    #[serde(default)]
    values: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AlertTestText {
    #[serde(default)]
    eval_time: Option<Spanned<String>>,
    #[serde(default)]
    alertname: Option<String>,
    #[serde(default)]
    exp_alerts: Option<Vec<AlertText>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AlertText {
    #[serde(default)]
    exp_labels: Option<BTreeMap<String, String>>,
    #[serde(default)]
    exp_annotations: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct QueryTestText {
    #[serde(default)]
    expr: String,
    #[serde(default)]
    eval_time: Option<Spanned<String>>,
    #[serde(default)]
    exp_samples: Option<Vec<SampleText>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SampleText {
    #[serde(default)]
    labels: String,
    #[serde(default)]
    value: Option<Spanned<String>>,
    #[serde(default)]
    histogram: Option<String>,
}

impl UnitTestFile {
    /// Decodes a file.
    pub(super) fn decode(text: &str) -> Result<UnitTestFile, YamlError> {
        let file: FileText = yaml::decode(text, UNIT_TEST_FILE_BYTES_MAX)?;
        let interval = duration(file.evaluation_interval.as_ref())?.filter(|ms| *ms > 0);
        let evaluation_interval_ms = interval.unwrap_or(INTERVAL_MS);
        let mut group_eval_order: Vec<String> = Vec::new();
        for name in file.group_eval_order.unwrap_or_default() {
            if group_eval_order.contains(&name.value) {
                let message = format!("group name repeated in evaluation order: {}", name.value);
                return Err(YamlError { position: yaml::position(&name), message });
            }
            group_eval_order.push(name.value);
        }
        let tests = file.tests.unwrap_or_default();
        if tests.len() > UNIT_TESTS_MAX {
            let message = format!("{} tests, more than the {UNIT_TESTS_MAX} allowed", tests.len());
            return Err(YamlError { position: Position { line: 1, column: 1 }, message });
        }
        let tests = tests.into_iter().map(|test| UnitTest::of(test, evaluation_interval_ms));
        Ok(UnitTestFile {
            rule_files: file.rule_files.unwrap_or_default(),
            evaluation_interval_ms,
            group_eval_order,
            fuzzy_compare: file.fuzzy_compare.unwrap_or(false),
            tests: tests.collect::<Result<_, _>>()?,
        })
    }
}

impl UnitTest {
    fn of(spanned: Spanned<TestText>, evaluation_interval_ms: i64) -> Result<UnitTest, YamlError> {
        let test = spanned.value;
        let interval = duration(test.interval.as_ref())?.filter(|ms| *ms > 0);
        let name = test.name.unwrap_or_default();
        let alerts = test.alert_rule_test.unwrap_or_default();
        let queries = test.promql_expr_test.unwrap_or_default();
        Ok(UnitTest {
            interval_ms: interval.unwrap_or(evaluation_interval_ms),
            start: start(test.start_timestamp.as_ref())?,
            series: series(test.input_series.unwrap_or_default())?,
            external_labels: test.external_labels.unwrap_or_default(),
            external_url: test.external_url.unwrap_or_default(),
            alerts: alerts
                .into_iter()
                .map(|alerts| ExpectedAlerts::of(alerts, &name))
                .collect::<Result<_, _>>()?,
            queries: queries.into_iter().map(ExpectedSamples::of).collect::<Result<_, _>>()?,
            name,
        })
    }
}

impl ExpectedAlerts {
    fn of(spanned: Spanned<AlertTestText>, test: &str) -> Result<ExpectedAlerts, YamlError> {
        let position = yaml::position(&spanned);
        let text = spanned.value;
        let eval_time_ms = duration(text.eval_time.as_ref())?.unwrap_or_default();
        let alertname = text.alertname.unwrap_or_default();
        if alertname.is_empty() {
            let group = if test.is_empty() { String::new() } else { format!(" (in TestGroup {test})") };
            let at = crate::model::format_duration(eval_time_ms);
            let message = format!(
                "an item under alert_rule_test misses required attribute alertname at eval_time {at}{group}"
            );
            return Err(YamlError { position, message });
        }
        let alerts = text.exp_alerts.unwrap_or_default().into_iter().map(|alert| {
            let mut labels = alert.exp_labels.unwrap_or_default();
            labels.insert("alertname".to_owned(), alertname.clone());
            ExpectedAlert { labels, annotations: alert.exp_annotations.unwrap_or_default() }
        });
        Ok(ExpectedAlerts { eval_time_ms, alerts: alerts.collect(), alertname })
    }
}

impl ExpectedSamples {
    fn of(spanned: Spanned<QueryTestText>) -> Result<ExpectedSamples, YamlError> {
        let text = spanned.value;
        let samples = text.exp_samples.unwrap_or_default().into_iter().map(|sample| {
            let value = match &sample.value {
                Some(value) => yaml_number(value)?,
                None => 0.0,
            };
            Ok(ExpectedSample {
                labels: sample.labels,
                value,
                histogram: sample.histogram.unwrap_or_default(),
            })
        });
        Ok(ExpectedSamples {
            eval_time_ms: duration(text.eval_time.as_ref())?.unwrap_or_default(),
            samples: samples.collect::<Result<_, _>>()?,
            expr: text.expr,
        })
    }
}

impl ExpectedSample {
    /// Parses the labels.
    pub(super) fn parsed_labels(&self) -> Result<Labels, String> {
        parse_metric(&self.labels)
    }
}

fn duration(text: Option<&Spanned<String>>) -> Result<Option<i64>, YamlError> {
    let Some(text) = text else { return Ok(None) };
    let parsed = parse_duration(&text.value);
    parsed.map(Some).map_err(|error| YamlError { position: yaml::position(text), message: error.to_string() })
}

/// Parses a time: RFC 3339, or seconds since 1970.
fn start(text: Option<&Spanned<String>>) -> Result<Timestamp, YamlError> {
    let Some(text) = text else { return Ok(Timestamp::from_ms(0)) };
    let seconds = |text: &str| {
        let seconds: f64 = text.parse().ok()?;
        /// Seconds of the year 9999, far within the range of timestamps.
        const SECONDS_MAX: f64 = 253_402_300_799.0;
        if seconds.abs() > SECONDS_MAX {
            return None;
        }
        #[expect(clippy::cast_possible_truncation, reason = "checked against the bound just before")]
        Some(Timestamp::from_ms((seconds * 1_000.0).round() as i64))
    };
    Timestamp::from_rfc3339(&text.value).or_else(|| seconds(&text.value)).ok_or_else(|| YamlError {
        position: yaml::position(text),
        message: format!("cannot parse {:?} to a valid timestamp", text.value),
    })
}

/// Parses a float of YAML; infinities and NaN begin with a point.
fn yaml_number(text: &Spanned<String>) -> Result<f64, YamlError> {
    let value = text.value.trim();
    let unsigned = value.strip_prefix(['+', '-']).unwrap_or(value).to_ascii_lowercase();
    let sign = if value.starts_with('-') { -1.0 } else { 1.0 };
    match unsigned.as_str() {
        ".inf" => return Ok(sign * f64::INFINITY),
        ".nan" => return Ok(f64::NAN),
        _ => {}
    }
    let digits = unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    digits.then(|| number(value)).flatten().ok_or_else(|| YamlError {
        position: yaml::position(text),
        message: format!("cannot read {value:?} as a number"),
    })
}

fn series(texts: Vec<Spanned<SeriesText>>) -> Result<Vec<DescribedSeries>, YamlError> {
    // The last of several descriptions of the same series counts.
    let mut by_labels: BTreeMap<Labels, DescribedSeries> = BTreeMap::new();
    let mut samples = 0usize;
    for text in texts {
        let refuse = |message| YamlError { position: yaml::position(&text), message };
        let line = parse(&format!("{} {}", text.value.series, text.value.values)).map_err(refuse)?;
        samples = samples.saturating_add(line.items.len());
        if samples > UNIT_TEST_SAMPLES_MAX {
            return Err(refuse(format!("a test has more than {UNIT_TEST_SAMPLES_MAX} samples")));
        }
        by_labels.insert(line.labels.clone(), line);
    }
    Ok(by_labels.into_values().collect())
}
