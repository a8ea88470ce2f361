//! Runs one test: loads its series step by step, evaluates the groups, and compares.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::UNIT_TEST_EVALUATIONS_MAX;
use super::compare::{FiringAlert, FoundSample, NumberComparison, alert_failure, sample_failure};
use super::decode::{ExpectedAlerts, ExpectedSamples, UnitTest};
use super::dump::series_dump;
use super::series::SeriesItem;
use crate::model::{
    Access, BatchBuilder, Histogram, Labels, OrgId, Sample, Steps, Timestamp, format_duration, stale_nan,
};
use crate::promql::syntax::{Caps, parse};
use crate::promql::{Budget, Options, Query, Value, VectorSample, run};
use crate::rules::template::{go_duration, go_quote};
use crate::rules::{AlertPhase, GroupRun, RuleContext, RuleGroup, RuleHealth, RuleSettings};
use crate::tsdb::Tsdb;

/// The organisation of the store in memory.
const ORG: OrgId = OrgId(1);
/// The time of all writes, the year 2100: no sample is in the future then.
const STORED_AT: Timestamp = Timestamp::from_s(4_102_444_800);

/// The rules of a test, and the settings of its file.
#[derive(Clone, Copy)]
pub(super) struct TestRules<'a> {
    /// The groups in the order of their evaluation.
    pub(super) groups: &'a [Arc<RuleGroup>],
    pub(super) evaluation_interval_ms: i64,
    pub(super) fuzzy_compare: bool,
    /// Whether alerts that differ are shown as their difference.
    pub(super) shows_difference: bool,
    pub(super) caps: &'a Caps,
}

/// The outcome of a test.
#[derive(Debug, Default)]
pub(super) struct TestOutcome {
    /// The failures in promtool's words.
    pub(super) failures: Vec<String>,
    /// All samples after the last evaluation, if they were wanted and all rules succeeded.
    pub(super) dump: Option<String>,
}

/// Runs a test.
pub(super) fn run_test(test: &UnitTest, rules: TestRules<'_>, dumps: bool) -> TestOutcome {
    let mut run = match TestRun::new(test, rules) {
        Ok(run) => run,
        Err(message) => return TestOutcome { failures: vec![message], dump: None },
    };
    if !run.evaluate_groups() {
        return TestOutcome { failures: run.failures, dump: None };
    }
    for expected in &test.queries {
        run.check_query(expected);
    }
    let dump = dumps.then(|| run.dump());
    TestOutcome { failures: run.failures, dump }
}

struct TestRun<'a> {
    test: &'a UnitTest,
    rules: TestRules<'a>,
    tsdb: Tsdb,
    settings: RuleSettings,
    runs: Vec<GroupRun>,
    input: Vec<InputSeries<'a>>,
    failures: Vec<String>,
}

/// A described series, and its items that are not stored yet.
struct InputSeries<'a> {
    labels: &'a Labels,
    items: std::iter::Peekable<std::iter::Enumerate<std::slice::Iter<'a, SeriesItem>>>,
    last_is_histogram: bool,
}

impl<'a> TestRun<'a> {
    fn new(test: &'a UnitTest, rules: TestRules<'a>) -> Result<TestRun<'a>, String> {
        let steps = test.last_eval_time_ms() / rules.evaluation_interval_ms + 1;
        let groups = u64::try_from(rules.groups.len().max(1)).unwrap_or(u64::MAX);
        if steps.unsigned_abs().saturating_mul(groups) > UNIT_TEST_EVALUATIONS_MAX {
            return Err(format!("    the test takes more than {UNIT_TEST_EVALUATIONS_MAX} evaluations"));
        }
        let settings = RuleSettings {
            external_labels: Arc::new(test.external_labels.clone()),
            external_url: Arc::from(test.external_url.as_str()),
            options: Options { subquery_step_ms: rules.evaluation_interval_ms, ..Options::default() },
            caps: *rules.caps,
            interval_ms: test.interval_ms,
            ..RuleSettings::default()
        };
        let runs = rules.groups.iter().map(|group| GroupRun::new(Arc::clone(group), &settings)).collect();
        let input = test.series.iter().map(|line| InputSeries {
            labels: &line.labels,
            items: line.items.iter().enumerate().peekable(),
            last_is_histogram: false,
        });
        Ok(TestRun {
            test,
            rules,
            tsdb: Tsdb::scaffold(),
            settings,
            runs,
            input: input.collect(),
            failures: Vec::new(),
        })
    }

    /// Evaluates the groups at all steps and checks alerts. Returns whether all rules succeeded.
    fn evaluate_groups(&mut self) -> bool {
        let interval = self.rules.evaluation_interval_ms;
        let last = self.test.last_eval_time_ms();
        let mut expected: Vec<&ExpectedAlerts> = self.test.alerts.iter().collect();
        expected.sort_by_key(|alerts| alerts.eval_time_ms);
        let mut expected = expected.into_iter().peekable();
        let mut after_ms = 0i64;
        while after_ms <= last {
            let at = self.test.start.plus_ms(after_ms);
            if let Err(message) = self.load_until(at) {
                self.failures.push(message);
                return false;
            }
            if !self.evaluate_at(at) {
                return false;
            }
            // Alerts of a time between two steps are those of the step before.
            let next_ms = after_ms.saturating_add(interval);
            while let Some(alerts) = expected.next_if(|alerts| alerts.eval_time_ms < next_ms) {
                self.check_alerts(alerts);
            }
            after_ms = next_ms;
        }
        true
    }

    /// Stores the input samples up to a time, inclusive.
    fn load_until(&mut self, until: Timestamp) -> Result<(), String> {
        let mut batch = BatchBuilder::default();
        for series in &mut self.input {
            series.put(&mut batch, self.test, until)?;
        }
        if batch.series_len() == 0 {
            return Ok(());
        }
        let report = self.tsdb.append(ORG, &batch.batch(), STORED_AT).map_err(|error| error.to_string())?;
        match report.refusals.first() {
            Some(refusal) => Err(format!("a sample was refused: {} {}", refusal.series, refusal.reason)),
            None => Ok(()),
        }
    }

    fn evaluate_at(&mut self, at: Timestamp) -> bool {
        let context = RuleContext::new(&self.settings, &self.tsdb, ORG);
        let mut succeeded = true;
        for run in &mut self.runs {
            run.evaluate(context, at, STORED_AT);
            for (place, rule) in run.group().rules.iter().enumerate() {
                if let Some(RuleHealth::Failed(message)) = run.health(place) {
                    succeeded = false;
                    let time = go_duration(at.as_ms());
                    self.failures.push(format!("    rule: {}, time: {time}, err: {message}", rule.name()));
                }
            }
        }
        succeeded
    }

    fn check_alerts(&mut self, expected: &ExpectedAlerts) {
        let mut found: Vec<FiringAlert> = Vec::new();
        for run in &self.runs {
            for (place, rule) in run.group().rules.iter().enumerate() {
                if rule.alerting().is_none_or(|alerting| alerting.alert != expected.alertname) {
                    continue;
                }
                let firing = run.alerts(place).filter(|alert| alert.phase == AlertPhase::Firing);
                found.extend(firing.map(|alert| FiringAlert {
                    labels: owned(&alert.labels),
                    annotations: alert.annotations.as_ref().clone(),
                }));
            }
        }
        let as_difference = self.rules.shows_difference;
        self.failures.extend(alert_failure(&self.test.name, expected, found, as_difference));
    }

    fn check_query(&mut self, expected: &ExpectedSamples) {
        let place = format!(
            "    expr: {}, time: {}",
            go_quote(&expected.expr),
            format_duration(expected.eval_time_ms)
        );
        let comparison =
            if self.rules.fuzzy_compare { NumberComparison::LastBit } else { NumberComparison::Exact };
        let failure = match self.query(expected) {
            Err(message) => Some(format!("{place}, err: {message}")),
            Ok(found) => sample_failure(&place, expected, found, comparison),
        };
        self.failures.extend(failure);
    }

    /// Returns the samples from the start, exclusive, to the first whole second after the last
    /// expectation.
    fn dump(&self) -> String {
        let until_ms = (self.test.last_eval_time_ms() / 1_000 + 1) * 1_000;
        let result = self.value(&format!("{{__name__=~\".+\"}}[{until_ms}ms]"), until_ms);
        let series = match result {
            Ok(Value::Matrix(series)) => series_dump(&series),
            Ok(_) => String::new(),
            Err(message) => message,
        };
        let until = go_duration(until_ms);
        format!("Dump of all data (input_series and rules) at {until}:\n{series}")
    }

    /// Evaluates an expression at a time after the start, in milliseconds.
    fn value(&self, expr: &str, after_ms: i64) -> Result<Value, String> {
        let parsed = parse(expr, self.rules.caps).map_err(|error| error.to_string())?;
        let steps = Steps::once(self.test.start.plus_ms(after_ms));
        let query = Query { expr: parsed.expr.into(), text: expr.into(), steps, instant: true };
        let snapshot = self.tsdb.snapshot(&Access::whole(ORG));
        let result = run(&query, &snapshot, &self.settings.options, &Budget::default());
        result.map(|result| result.value).map_err(|error| error.to_string())
    }

    fn query(&self, expected: &ExpectedSamples) -> Result<Vec<FoundSample>, String> {
        match self.value(&expected.expr, expected.eval_time_ms)? {
            Value::Vector(samples) => Ok(samples.into_iter().map(FoundSample::from).collect()),
            Value::Scalar { at, value } => {
                let sample = VectorSample { labels: Labels::default(), at, value, histogram: None };
                Ok(vec![FoundSample::from(sample)])
            }
            Value::Text { .. } | Value::Matrix(_) => Err("rule result is not a vector or scalar".into()),
        }
    }
}

impl UnitTest {
    /// Returns the last time of an expectation, in milliseconds since the start.
    fn last_eval_time_ms(&self) -> i64 {
        let alerts = self.alerts.iter().map(|alerts| alerts.eval_time_ms);
        let queries = self.queries.iter().map(|query| query.eval_time_ms);
        alerts.chain(queries).max().unwrap_or_default().max(0)
    }
}

impl InputSeries<'_> {
    /// Adds the samples up to a time, inclusive, to a batch.
    fn put(&mut self, batch: &mut BatchBuilder, test: &UnitTest, until: Timestamp) -> Result<(), String> {
        let time = |at: usize| {
            let steps = i64::try_from(at).unwrap_or(i64::MAX);
            test.start.plus_ms(steps.saturating_mul(test.interval_ms))
        };
        let (mut samples, mut histograms) = (Vec::new(), Vec::new());
        while let Some((at, item)) = self.items.next_if(|(at, _)| time(*at) <= until) {
            let at = time(at);
            match item {
                SeriesItem::Missing => {}
                SeriesItem::Value(value) => {
                    self.last_is_histogram = false;
                    samples.push(Sample { at, value: *value });
                }
                SeriesItem::Histogram(literal) => {
                    self.last_is_histogram = true;
                    histograms.push((at, literal.stored()?));
                }
                SeriesItem::Stale if self.last_is_histogram => histograms.push((at, Histogram::stale())),
                SeriesItem::Stale => samples.push(Sample { at, value: stale_nan() }),
            }
        }
        if !samples.is_empty() || !histograms.is_empty() {
            batch.series(self.labels, samples);
            batch.histograms(histograms);
        }
        Ok(())
    }
}

fn owned(labels: &Labels) -> BTreeMap<String, String> {
    labels.iter().map(|label| (label.name.to_owned(), label.value.to_owned())).collect()
}
