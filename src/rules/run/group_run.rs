//! The state of one group: its rules, their alerts and their series, moved from evaluation to
//! evaluation.
//!
//! Rules are evaluated in their order. Samples are written before the first rule that may read
//! them, and at the latest at the end of the group, so that a group usually costs one write.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::compiled::{CompiledRule, exceeded_limit};
use super::environment::{RuleContext, RuleSettings};
use super::samples::RuleSample;
use super::stored::stored_samples;
use crate::clock::Stopwatch;
use crate::model::{BatchBuilder, Labels, METRIC_NAME, Refusal, TimeRange, Timestamp};
use crate::rules::alert::{AlertPhase, AlertSet, RuleAlert};
use crate::rules::group::{Rule, RuleGroup};
use crate::tsdb::Snapshot;

/// The most samples of one write, inclusive.
pub(in crate::rules) const WRITE_SAMPLES_MAX: usize = 50_000;

/// The health of a rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RuleHealth {
    /// The rule has not been evaluated.
    #[default]
    Unknown,
    /// The last evaluation succeeded.
    Ok,
    /// The last evaluation failed.
    Failed(String),
}

/// A rule with its state.
#[derive(Debug)]
pub(in crate::rules) struct RuleRun {
    pub(in crate::rules) compiled: CompiledRule,
    pub(in crate::rules) alerts: AlertSet,
    /// The series of the last successful evaluation.
    pub(in crate::rules) series: HashSet<Labels>,
    pub(in crate::rules) health: RuleHealth,
    pub(in crate::rules) evaluated_at: Option<Timestamp>,
    pub(in crate::rules) took: Duration,
    /// The place of the last rule before this one whose samples this one may read.
    reads_rule: Option<usize>,
}

/// The totals of the evaluations of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::rules) struct GroupTotals {
    /// Evaluations of the group.
    pub(in crate::rules) evaluations: u64,
    /// Evaluations of rules that failed.
    pub(in crate::rules) failures: u64,
    /// Samples that were written.
    pub(in crate::rules) samples: u64,
    /// Evaluations of rules that panicked; they count as failed, too.
    pub(in crate::rules) panics: u64,
}

/// A group with its state.
#[derive(Debug)]
pub struct GroupRun {
    pub(in crate::rules) group: Arc<RuleGroup>,
    pub(in crate::rules) rules: Vec<RuleRun>,
    pub(in crate::rules) interval_ms: i64,
    pub(in crate::rules) offset_ms: i64,
    /// The time of the last evaluation.
    pub(in crate::rules) last_at: Option<Timestamp>,
    pub(in crate::rules) took: Duration,
    pub(in crate::rules) totals: GroupTotals,
    /// Series of rules that an edit removed, which end at the next evaluation.
    pub(in crate::rules) leftover: HashSet<Labels>,
}

/// Samples that were not written yet, with the places of their rules, ascending.
#[derive(Default)]
struct PendingSamples {
    samples: Vec<RuleSample>,
    rules: Vec<usize>,
}

impl GroupRun {
    /// Prepares a group for its first evaluation.
    pub fn new(group: Arc<RuleGroup>, settings: &RuleSettings) -> GroupRun {
        let mut last_writers: HashMap<Arc<str>, usize> = HashMap::new();
        let rules = group.rules.iter().enumerate().map(|(place, rule)| {
            let compiled = CompiledRule::new(Arc::new(rule.clone()));
            let reads_rule = match compiled.metrics_read() {
                Some(metrics) => {
                    metrics.iter().filter_map(|metric| last_writers.get(metric.as_str()).copied()).max()
                }
                None => place.checked_sub(1),
            };
            let written = compiled.metrics_written().iter();
            last_writers.extend(written.map(|metric| (Arc::clone(metric), place)));
            RuleRun::new(compiled, reads_rule)
        });
        let rules = rules.collect();
        GroupRun {
            interval_ms: group.interval_ms.unwrap_or(settings.interval_ms).max(1),
            offset_ms: group.query_offset_ms.unwrap_or_default(),
            group,
            rules,
            last_at: None,
            took: Duration::ZERO,
            totals: GroupTotals::default(),
            leftover: HashSet::new(),
        }
    }

    /// Returns the group.
    pub fn group(&self) -> &Arc<RuleGroup> {
        &self.group
    }

    /// Returns the alerts of the rule at this place, resolved ones among them.
    pub fn alerts(&self, rule: usize) -> impl Iterator<Item = &RuleAlert> {
        self.rules.get(rule).into_iter().flat_map(|rule| rule.alerts.iter())
    }

    /// Returns the health of the rule at this place.
    pub fn health(&self, rule: usize) -> Option<&RuleHealth> {
        self.rules.get(rule).map(|rule| &rule.health)
    }

    /// Takes over the state of an older version of the group. Rules are matched by kind, name and
    /// labels, those of the same in their order. Series of the others end at the next evaluation.
    pub(in crate::rules) fn take_over(&mut self, mut older: GroupRun) {
        let mut known: BTreeMap<String, Vec<RuleRun>> = BTreeMap::new();
        for rule in older.rules.drain(..).rev() {
            known.entry(identity(&rule.compiled.rule)).or_default().push(rule);
        }
        for rule in &mut self.rules {
            let Some(old) = known.get_mut(&identity(&rule.compiled.rule)).and_then(Vec::pop) else {
                continue;
            };
            (rule.alerts, rule.series) = (old.alerts, old.series);
            if rule.compiled.rule.expr == old.compiled.rule.expr {
                (rule.health, rule.evaluated_at, rule.took) = (old.health, old.evaluated_at, old.took);
            }
        }
        self.leftover = std::mem::take(&mut older.leftover);
        self.leftover.extend(known.into_values().flatten().flat_map(|rule| rule.series));
        (self.last_at, self.took, self.totals) = (older.last_at, older.took, older.totals);
    }

    /// Evaluates all rules at `at`, and writes their samples. `now` is the time of the clock.
    pub fn evaluate(&mut self, context: RuleContext<'_>, at: Timestamp, now: Timestamp) {
        let watch = Stopwatch::start();
        // Without a common lease, each rule would ask the operating system for memory.
        let lease = context.new_lease();
        let context = RuleContext { lease: lease.as_ref(), ..context };
        let mut pending = PendingSamples::default();
        for place in 0..self.rules.len() {
            if self.reads_pending(place, &pending) {
                self.write(context, &mut pending, now);
            }
            self.evaluate_rule(place, context, at, &mut pending);
            if pending.samples.len() >= WRITE_SAMPLES_MAX {
                self.write(context, &mut pending, now);
            }
        }
        self.end_leftover(at, &mut pending);
        self.write(context, &mut pending, now);
        self.totals.evaluations += 1;
        self.last_at = Some(at);
        self.took = watch.elapsed();
    }

    /// Returns whether the rule at this place may read samples that were not written yet.
    fn reads_pending(&self, place: usize, pending: &PendingSamples) -> bool {
        let read = self.rules.get(place).and_then(|rule| rule.reads_rule);
        read.zip(pending.rules.first()).is_some_and(|(read, first)| read >= *first)
    }

    fn evaluate_rule(
        &mut self,
        place: usize,
        context: RuleContext<'_>,
        at: Timestamp,
        pending: &mut PendingSamples,
    ) {
        let snapshot = context.snapshot();
        let sample_at = at.plus_ms(-self.offset_ms);
        let limit = self.group.limit;
        let Some(rule) = self.rules.get_mut(place) else { return };
        let watch = Stopwatch::start();
        let evaluation = RuleEvaluation { context, snapshot: &snapshot, at, sample_at, limit };
        let caught = catch_unwind(AssertUnwindSafe(|| rule.evaluate(&evaluation)));
        let outcome = caught.unwrap_or_else(|_| {
            self.totals.panics += 1;
            Err("the evaluation panicked".to_owned())
        });
        (rule.took, rule.evaluated_at) = (watch.elapsed(), Some(at));
        match outcome {
            Ok(samples) => {
                rule.health = RuleHealth::Ok;
                let series: HashSet<Labels> = samples.iter().map(|sample| sample.labels.clone()).collect();
                pending.samples.extend(samples);
                let ended = rule.series.iter().filter(|labels| !series.contains(*labels));
                pending.samples.extend(ended.map(|labels| RuleSample::stale(labels.clone(), sample_at)));
                rule.series = series;
                pending.rules.push(place);
            }
            Err(message) => {
                rule.health = RuleHealth::Failed(message);
                self.totals.failures += 1;
            }
        }
    }

    /// Ends the series of removed rules, unless a rule of the group has written them.
    fn end_leftover(&mut self, at: Timestamp, pending: &mut PendingSamples) {
        let sample_at = at.plus_ms(-self.offset_ms);
        for labels in std::mem::take(&mut self.leftover) {
            if !self.rules.iter().any(|rule| rule.series.contains(&labels)) {
                pending.samples.push(RuleSample::stale(labels, sample_at));
            }
        }
    }

    /// Ends the series of rules that an edit removed, without waiting for the next evaluation.
    pub(in crate::rules) fn end_removed_rules(
        &mut self,
        context: RuleContext<'_>,
        at: Timestamp,
        now: Timestamp,
    ) {
        let mut pending = PendingSamples::default();
        self.end_leftover(at, &mut pending);
        self.write(context, &mut pending, now);
    }

    /// Writes samples. Returns whether the store accepted all writes; it may have refused samples.
    fn write(&mut self, context: RuleContext<'_>, pending: &mut PendingSamples, now: Timestamp) -> bool {
        let PendingSamples { samples, rules, .. } = std::mem::take(pending);
        let (markers, values): (Vec<_>, Vec<_>) = samples.into_iter().partition(RuleSample::is_marker);
        let (refusals, are_values_written) = self.append(context, values, &rules, now);
        for refusal in refusals {
            let text = format!("a sample was refused: {} {}", refusal.series, refusal.reason);
            self.fail(&rules, &text, |rule| refusal.series.contains(&format!("={:?}", rule.name())));
        }
        // Another rule may continue the series at the same time. Its value wins over the marker,
        // and the refused marker is not an error, as in Prometheus.
        let (_, are_markers_written) = self.append(context, markers, &rules, now);
        are_values_written && are_markers_written
    }

    /// Writes samples. Returns the refusals, and whether the store accepted all writes. A failure
    /// of the store is an error of all `rules`.
    fn append(
        &mut self,
        context: RuleContext<'_>,
        samples: Vec<RuleSample>,
        rules: &[usize],
        now: Timestamp,
    ) -> (Vec<Refusal>, bool) {
        let mut samples = samples.into_iter().peekable();
        let (mut refusals, mut is_written) = (Vec::new(), true);
        while samples.peek().is_some() {
            let mut batch = BatchBuilder::default();
            for sample in samples.by_ref().take(WRITE_SAMPLES_MAX) {
                sample.put(&mut batch);
            }
            match context.tsdb.append(context.org, &batch.batch(), now) {
                Ok(report) => {
                    self.totals.samples += report.stored;
                    refusals.extend(report.refusals);
                }
                Err(error) => {
                    is_written = false;
                    self.fail(rules, &format!("samples were not stored: {error}"), |_| true);
                }
            }
        }
        (refusals, is_written)
    }

    fn fail(&mut self, places: &[usize], message: &str, concerned: impl Fn(&Rule) -> bool) {
        for place in places {
            if let Some(rule) = self.rules.get_mut(*place).filter(|rule| concerned(&rule.compiled.rule)) {
                rule.health = RuleHealth::Failed(message.to_owned());
                self.totals.failures += 1;
            }
        }
    }

    /// Makes all rules show this error.
    pub(in crate::rules) fn fail_all(&mut self, message: &str) {
        for rule in &mut self.rules {
            rule.health = RuleHealth::Failed(message.to_owned());
        }
    }

    /// Ends the series of a removed group at `at`, except for those that another group has
    /// continued since, until `now`. Returns false if the store refused the write; the next call
    /// writes the ends again then.
    pub(in crate::rules) fn end(&mut self, context: RuleContext<'_>, at: Timestamp, now: Timestamp) -> bool {
        let Some(last_at) = self.last_at else { return true };
        let mut ended = std::mem::take(&mut self.leftover);
        for rule in &mut self.rules {
            ended.extend(std::mem::take(&mut rule.series));
        }
        let snapshot = context.snapshot();
        let since = TimeRange::new(last_at.plus_ms(1 - self.offset_ms), at.max(now));
        let mut pending = PendingSamples::default();
        for labels in &ended {
            let (samples, histograms) = stored_samples(&snapshot, labels, since);
            if samples.times.is_empty() && histograms.times.is_empty() {
                pending.samples.push(RuleSample::stale(labels.clone(), at.plus_ms(-self.offset_ms)));
            }
        }
        let is_written = self.write(context, &mut pending, now);
        if !is_written {
            self.leftover = ended;
        }
        is_written
    }
}

/// One evaluation of one rule.
struct RuleEvaluation<'a> {
    context: RuleContext<'a>,
    snapshot: &'a Snapshot,
    at: Timestamp,
    sample_at: Timestamp,
    limit: usize,
}

impl RuleRun {
    fn new(compiled: CompiledRule, reads_rule: Option<usize>) -> RuleRun {
        RuleRun {
            compiled,
            alerts: AlertSet::default(),
            series: HashSet::new(),
            health: RuleHealth::Unknown,
            evaluated_at: None,
            took: Duration::ZERO,
            reads_rule,
        }
    }

    fn evaluate(&mut self, evaluation: &RuleEvaluation<'_>) -> Result<Vec<RuleSample>, String> {
        let RuleEvaluation { context, snapshot, at, sample_at, limit } = *evaluation;
        let result = self.compiled.result(context, snapshot, sample_at)?;
        let Some(durations) = self.compiled.durations() else {
            let series = self.compiled.recorded(result)?;
            if limit > 0 && series.len() > limit {
                return Err(exceeded_limit(limit, series.len(), "series"));
            }
            let converted = series.into_iter().map(|sample| RuleSample::recorded(sample, sample_at));
            return converted.collect::<Result<_, _>>().map_err(|error| error.to_string());
        };
        let inputs = self.compiled.inputs(context, snapshot, at, result)?;
        self.alerts.step(at, durations, inputs, None);
        let active = self.alerts.active();
        if limit > 0 && active > limit {
            self.alerts.clear();
            return Err(exceeded_limit(limit, active, "alerts"));
        }
        let active = self.alerts.iter().filter(|alert| alert.phase != AlertPhase::Resolved);
        Ok(active.flat_map(|alert| RuleSample::of_alert(alert, sample_at)).collect())
    }

    /// Sets the series of the restored alerts.
    pub(in crate::rules) fn note_alert_series(&mut self) {
        let active = self.alerts.iter().filter(|alert| alert.phase != AlertPhase::Resolved);
        self.series = active.flat_map(|alert| [alert.alerts_series(), alert.for_state_series()]).collect();
    }
}

/// Returns a text that is equal for two versions of one rule.
fn identity(rule: &Rule) -> String {
    let kind = if rule.alerting().is_some() { "alert" } else { METRIC_NAME };
    format!("{kind} {:?} {:?}", rule.name(), rule.labels)
}
