//! Restores the state of a group from the series that it wrote before.
//!
//! The newest sample of `ALERTS_FOR_STATE` says that an alert was active, and since when. Its start
//! timestamp is the time since which the alert fires without a series in the result, and that of
//! `ALERTS{alertstate="firing"}` the time at which it began to fire. So nothing older than the last
//! evaluation is needed. The rule is evaluated once more at that time, without writing: the result
//! has the values and annotations, and it says which alerts of that name are the rule's own.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use super::compiled::{ALERT_NAME, CompiledRule};
use super::environment::RuleContext;
use super::group_run::GroupRun;
use crate::model::{Labels, METRIC_NAME, MatchOp, Matcher, TimeRange, Timestamp, is_stale};
use crate::rules::alert::{
    ALERT_STATE, ALERTS, ALERTS_FOR_STATE, AlertInput, AlertPhase, AlertSet, RESOLVED_RETENTION_MS,
    RuleAlert, RuleAnnotations, alerts_series,
};
use crate::rules::group::RuleKind;
use crate::tsdb::{SampleColumns, SelectedSeries, SeriesId, Snapshot};

/// How long ago the last evaluation may be, in milliseconds, as Prometheus'
/// `rules.alert.for-outage-tolerance`.
const OUTAGE_TOLERANCE_MS: i64 = 3_600_000;
/// How long ago the last sample of a recorded series may be, so that it ends with a marker.
const RECORDED_TOLERANCE_MS: i64 = 300_000;
/// The most past evaluations that one rule repeats.
const EVALUATIONS_MAX: usize = 16;

/// An alert as its samples describe it, before the rule is evaluated.
struct FoundAlert {
    alert: RuleAlert,
    /// The time at which the alert's series was last in the result.
    present_at: Timestamp,
}

/// The last sample of a series that is not a marker, and the time of the marker after it.
struct LastSample {
    at: Timestamp,
    value: f64,
    stale_at: Option<Timestamp>,
}

impl GroupRun {
    /// Restores alerts and series as they were after the last evaluation before `now`.
    /// `is_ambiguous` says whether another rule of the organisation raises alerts of this name.
    pub(in crate::rules) fn restore(
        &mut self,
        context: RuleContext<'_>,
        now: Timestamp,
        is_ambiguous: impl Fn(&str) -> bool,
    ) {
        let snapshot = context.snapshot();
        let restore = Restore {
            context,
            snapshot: &snapshot,
            now,
            interval_ms: self.interval_ms,
            offset_ms: self.offset_ms,
        };
        for rule in &mut self.rules {
            let last = match &rule.compiled.rule.kind {
                RuleKind::Recording { record } => {
                    let (series, last) = restore.recorded(&rule.compiled, record);
                    rule.series = series;
                    last
                }
                RuleKind::Alerting(_) => {
                    let ambiguous = is_ambiguous(rule.compiled.rule.name());
                    let (alerts, last) = restore.alerts(&rule.compiled, ambiguous);
                    rule.alerts = alerts;
                    rule.note_alert_series();
                    last
                }
            };
            self.last_at = self.last_at.max(last.map(|at| at.plus_ms(self.offset_ms)));
        }
    }
}

struct Restore<'a> {
    context: RuleContext<'a>,
    snapshot: &'a Snapshot,
    now: Timestamp,
    interval_ms: i64,
    offset_ms: i64,
}

impl Restore<'_> {
    /// Returns the series of a recording rule, and the time of their last samples.
    fn recorded(&self, rule: &CompiledRule, record: &str) -> (HashSet<Labels>, Option<Timestamp>) {
        let range = self.range(RECORDED_TOLERANCE_MS);
        let found = self.select(rule, record, &[], range);
        let living = found.into_iter().filter_map(|series| {
            let last = self.last_sample(series.id, range)?;
            last.stale_at.is_none().then_some((series.labels, last.at))
        });
        let living: Vec<(Labels, Timestamp)> = living.collect();
        let Some(last) = living.iter().map(|(_, at)| *at).max() else { return (HashSet::new(), None) };
        let own = rule.series_at(self.context, self.snapshot, last).unwrap_or_default();
        let series = living.into_iter().filter(|(labels, at)| *at == last && own.contains(labels));
        let series: HashSet<Labels> = series.map(|(labels, _)| labels).collect();
        let last = (!series.is_empty()).then_some(last);
        (series, last)
    }

    /// Returns the alerts of an alerting rule, and the time of their last samples.
    fn alerts(&self, rule: &CompiledRule, ambiguous: bool) -> (AlertSet, Option<Timestamp>) {
        let range = self.range(OUTAGE_TOLERANCE_MS);
        let firing = self.firing(rule, range);
        let states = self.select(rule, ALERTS_FOR_STATE, &[(ALERT_NAME, rule.rule.name())], range);
        let found = states.into_iter().filter_map(|series| self.found(&series, &firing, range));
        let found: Vec<(FoundAlert, Timestamp)> = found.collect();
        let Some(last) = found.iter().map(|(_, at)| *at).max() else { return (AlertSet::default(), None) };
        let mut results: BTreeMap<Timestamp, BTreeMap<Labels, AlertInput>> = BTreeMap::new();
        let mut own = Vec::new();
        for (FoundAlert { mut alert, present_at }, at) in found {
            let active = alert.phase != AlertPhase::Resolved;
            if active && last.ms_since(at) > self.interval_ms {
                continue;
            }
            if !results.contains_key(&present_at) && results.len() < EVALUATIONS_MAX {
                results.insert(present_at, self.inputs_at(rule, present_at));
            }
            match results.get(&present_at).and_then(|inputs| inputs.get(&alert.labels)) {
                Some(input) => {
                    (alert.value, alert.annotations) = (input.value, Arc::clone(&input.annotations));
                }
                None if ambiguous => continue,
                None => {}
            }
            own.push(alert);
        }
        let any = own.iter().any(|alert| alert.phase != AlertPhase::Resolved);
        (AlertSet::of(own), any.then_some(last))
    }

    /// Returns the alerts of the rule at an evaluation whose samples are at `sample_at`.
    fn inputs_at(&self, rule: &CompiledRule, sample_at: Timestamp) -> BTreeMap<Labels, AlertInput> {
        let at = sample_at.plus_ms(self.offset_ms);
        let result = rule.result(self.context, self.snapshot, sample_at);
        let inputs = result.and_then(|result| rule.inputs(self.context, self.snapshot, at, result));
        inputs.unwrap_or_default().into_iter().map(|input| (input.labels.clone(), input)).collect()
    }

    /// Returns the last samples of `ALERTS{alertstate="firing"}`, with the time of the firing.
    fn firing(&self, rule: &CompiledRule, range: TimeRange) -> BTreeMap<Labels, (LastSample, Timestamp)> {
        let exact = [(ALERT_NAME, rule.rule.name()), (ALERT_STATE, AlertPhase::Firing.as_str())];
        let found = self.select(rule, ALERTS, &exact, range).into_iter().filter_map(|series| {
            let last = self.last_sample(series.id, range)?;
            let fired_at = self.start(series.id, last.at)?;
            Some((series.labels, (last, fired_at)))
        });
        found.collect()
    }

    /// Returns an alert as its last samples describe it.
    fn found(
        &self,
        series: &SelectedSeries,
        firing: &BTreeMap<Labels, (LastSample, Timestamp)>,
        range: TimeRange,
    ) -> Option<(FoundAlert, Timestamp)> {
        let last = self.last_sample(series.id, range)?;
        let active_at = from_seconds(last.value);
        let labels = series.labels.filtered(|name| name != METRIC_NAME);
        let fired = firing.get(&alerts_series(&labels, AlertPhase::Firing));
        let fired = fired.filter(|(sample, _)| sample.at == last.at);
        let keep_firing_since = self.start(series.id, last.at).filter(|since| *since != active_at);
        let resolved_at = last.stale_at.map(|at| at.plus_ms(self.offset_ms));
        let phase = match (fired, resolved_at) {
            (Some(_), None) => AlertPhase::Firing,
            (Some(_), Some(at)) if self.now.ms_since(at) <= RESOLVED_RETENTION_MS => AlertPhase::Resolved,
            (None, None) => AlertPhase::Pending,
            (_, Some(_)) => return None,
        };
        let present_at = keep_firing_since
            .map_or(last.at, |since| since.plus_ms(-self.interval_ms).plus_ms(-self.offset_ms));
        let alert = RuleAlert {
            labels,
            annotations: Arc::new(RuleAnnotations::new()),
            value: f64::NAN,
            phase,
            active_at,
            fired_at: fired.map(|(_, at)| *at),
            keep_firing_since,
            resolved_at,
            last_sent_at: None,
        };
        Some((FoundAlert { alert, present_at }, last.at))
    }

    fn range(&self, tolerance_ms: i64) -> TimeRange {
        TimeRange::new(self.now.plus_ms(-tolerance_ms).plus_ms(-self.offset_ms), self.now)
    }

    /// Selects series of a metric with the labels that the rule sets and these.
    fn select(
        &self,
        rule: &CompiledRule,
        metric: &str,
        exact: &[(&str, &str)],
        range: TimeRange,
    ) -> Vec<SelectedSeries> {
        let equal = |name: &str, value: &str| Matcher::new(name, MatchOp::Equal, value).ok();
        let mut matchers: Vec<Matcher> = equal(METRIC_NAME, metric).into_iter().collect();
        matchers.extend(rule.fixed_labels().filter_map(|(name, value)| equal(name, value)));
        matchers.extend(exact.iter().filter_map(|(name, value)| equal(name, value)));
        self.snapshot.select(&matchers, range)
    }

    fn last_sample(&self, id: SeriesId, range: TimeRange) -> Option<LastSample> {
        let mut columns = SampleColumns::default();
        let mut histograms = crate::model::HistogramColumns::default();
        self.snapshot.read_both(id, range, range.start, &mut columns, &mut histograms);
        if let Some(at) = histograms.times.last() {
            let newest = columns.times.last().is_none_or(|float| float < at);
            if newest {
                return Some(LastSample { at: Timestamp::from_ms(*at), value: 0.0, stale_at: None });
            }
        }
        let mut samples = columns.times.iter().zip(&columns.values).rev();
        let mut stale_at = None;
        let found = samples.find(|(at, value)| {
            let stale = is_stale(**value);
            if stale {
                stale_at = Some(Timestamp::from_ms(**at));
            }
            !stale
        });
        found.map(|(at, value)| LastSample { at: Timestamp::from_ms(*at), value: *value, stale_at })
    }

    fn start(&self, id: SeriesId, at: Timestamp) -> Option<Timestamp> {
        let changes = self.snapshot.starts(id, TimeRange::new(at, at));
        changes.last().map(|change| change.start)
    }
}

/// Converts the value of `ALERTS_FOR_STATE` to a time.
#[expect(clippy::cast_possible_truncation, reason = "the conversion saturates, and times are small")]
fn from_seconds(seconds: f64) -> Timestamp {
    Timestamp::from_ms((seconds * 1_000.0).round() as i64)
}
