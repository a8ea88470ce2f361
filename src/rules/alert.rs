//! The alerts of one rule: a function of the results at its evaluation times.
//!
//! Source: Prometheus' documentation of alerting rules, and the observed series of Prometheus 3.5.
//! A series that is in the result makes a pending alert, which fires once it has been pending for
//! `for`. An alert that fires stays firing for `keep_firing_for` after its series left the result.
//! A resolved alert is remembered for [`RESOLVED_RETENTION_MS`], so that receivers learn of its
//! end.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::{Labels, METRIC_NAME, Timestamp};

/// How long a resolved alert is sent, in milliseconds.
pub(in crate::rules) const RESOLVED_RETENTION_MS: i64 = 15 * 60_000;

/// The label with the state of an alert.
pub(in crate::rules) const ALERT_STATE: &str = "alertstate";
/// The series of pending and firing alerts.
pub(in crate::rules) const ALERTS: &str = "ALERTS";
/// The series with the time since which an alert is active.
pub(in crate::rules) const ALERTS_FOR_STATE: &str = "ALERTS_FOR_STATE";

/// The annotations of an alert, with their templates expanded.
pub(in crate::rules) type RuleAnnotations = BTreeMap<String, String>;

/// The state of an alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AlertPhase {
    /// The series is in the result, but for less than `for`.
    Pending,
    /// The alert fires.
    Firing,
    /// The alert fired before, and has ended.
    Resolved,
}

impl AlertPhase {
    /// Returns the state in lower case, as the label `alertstate` has it.
    pub const fn as_str(self) -> &'static str {
        match self {
            AlertPhase::Pending => "pending",
            AlertPhase::Firing => "firing",
            AlertPhase::Resolved => "resolved",
        }
    }
}

/// An alert of a rule.
#[derive(Clone, Debug, PartialEq)]
pub struct RuleAlert {
    /// The labels, `alertname` among them, without a metric name.
    pub labels: Labels,
    /// The annotations.
    pub annotations: Arc<BTreeMap<String, String>>,
    /// The value of the series when it was last in the result.
    pub value: f64,
    /// The state.
    pub phase: AlertPhase,
    /// The time at which the series appeared in the result.
    pub active_at: Timestamp,
    /// The time at which the alert began to fire.
    pub fired_at: Option<Timestamp>,
    /// The time since which the alert fires without a series in the result.
    pub keep_firing_since: Option<Timestamp>,
    /// The time at which the alert was resolved.
    pub resolved_at: Option<Timestamp>,
    /// The time at which the alert was last sent to the receivers of alerts.
    pub last_sent_at: Option<Timestamp>,
}

/// A series of a result, as an alerting rule sees it.
#[derive(Clone, Debug)]
pub(in crate::rules) struct AlertInput {
    /// The labels of the alert.
    pub(in crate::rules) labels: Labels,
    /// The annotations of the alert.
    pub(in crate::rules) annotations: Arc<RuleAnnotations>,
    /// The value.
    pub(in crate::rules) value: f64,
}

/// The durations of an alerting rule.
#[derive(Clone, Copy, Debug)]
pub(in crate::rules) struct AlertDurations {
    /// See [`AlertingRule::for_ms`](super::AlertingRule).
    pub(in crate::rules) for_ms: i64,
    /// See [`AlertingRule::keep_firing_for_ms`](super::AlertingRule).
    pub(in crate::rules) keep_firing_for_ms: i64,
}

/// A change of the state of an alert.
#[derive(Clone, Debug, PartialEq)]
pub struct AlertTransition {
    /// When the state changed.
    pub at: Timestamp,
    /// The labels of the alert.
    pub labels: Labels,
    /// The new state. `None` if a pending alert ended without firing, or if an evaluation with too
    /// many alerts removed the alert.
    pub phase: Option<AlertPhase>,
    /// The value of the series when it was last in the result.
    pub value: f64,
}

/// The alerts of one rule, by their labels.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::rules) struct AlertSet(BTreeMap<Labels, RuleAlert>);

impl AlertSet {
    /// Creates a set from restored alerts.
    pub(in crate::rules) fn of(alerts: impl IntoIterator<Item = RuleAlert>) -> AlertSet {
        AlertSet(alerts.into_iter().map(|alert| (alert.labels.clone(), alert)).collect())
    }

    /// Removes all alerts without resolving them.
    pub(in crate::rules) fn clear(&mut self) {
        self.0.clear();
    }

    /// Removes all alerts like [`AlertSet::clear`]. Returns the ends of those that were active
    /// before the evaluation at `at`.
    pub(in crate::rules) fn forget_active(&mut self, at: Timestamp) -> Vec<AlertTransition> {
        let alerts = std::mem::take(&mut self.0).into_values();
        let was_active = |alert: &RuleAlert| match alert.phase {
            AlertPhase::Pending | AlertPhase::Firing => alert.active_at < at,
            AlertPhase::Resolved => alert.resolved_at == Some(at),
        };
        let end = |RuleAlert { labels, value, .. }| AlertTransition { at, labels, phase: None, value };
        alerts.filter(was_active).map(end).collect()
    }

    /// Iterates over the alerts, resolved ones among them, in the order of their labels.
    pub(in crate::rules) fn iter(&self) -> impl Iterator<Item = &RuleAlert> {
        self.0.values()
    }

    /// As [`AlertSet::iter`], for changes other than of the labels.
    pub(in crate::rules) fn iter_mut(&mut self) -> impl Iterator<Item = &mut RuleAlert> {
        self.0.values_mut()
    }

    /// Returns the number of alerts that are pending or fire.
    pub(in crate::rules) fn active(&self) -> usize {
        self.iter().filter(|alert| alert.phase != AlertPhase::Resolved).count()
    }

    /// Moves the alerts to the evaluation at `at`, whose result is `inputs`. The labels of inputs
    /// must be unique. Appends the changes of state to `transitions`, if it is given.
    pub(in crate::rules) fn step(
        &mut self,
        at: Timestamp,
        durations: AlertDurations,
        inputs: impl IntoIterator<Item = AlertInput>,
        mut transitions: Option<&mut Vec<AlertTransition>>,
    ) {
        let mut report = |alert: &RuleAlert, phase: Option<AlertPhase>| {
            if let Some(list) = transitions.as_deref_mut() {
                list.push(AlertTransition { at, labels: alert.labels.clone(), phase, value: alert.value });
            }
        };
        let mut present: std::collections::BTreeSet<Labels> = std::collections::BTreeSet::new();
        for input in inputs {
            present.insert(input.labels.clone());
            match self.0.get_mut(&input.labels).filter(|alert| alert.phase != AlertPhase::Resolved) {
                Some(alert) => {
                    (alert.value, alert.annotations) = (input.value, input.annotations);
                    alert.keep_firing_since = None;
                }
                None => {
                    let alert = RuleAlert::new(input, at);
                    if durations.for_ms > 0 {
                        report(&alert, Some(AlertPhase::Pending));
                    }
                    self.0.insert(alert.labels.clone(), alert);
                }
            }
        }
        self.0.retain(|labels, alert| {
            let kept = present.contains(labels) || alert.left(at, durations.keep_firing_for_ms, &mut report);
            if kept && alert.phase == AlertPhase::Pending && at.ms_since(alert.active_at) >= durations.for_ms
            {
                (alert.phase, alert.fired_at) = (AlertPhase::Firing, Some(at));
                report(alert, Some(AlertPhase::Firing));
            }
            kept
        });
    }
}

impl RuleAlert {
    fn new(input: AlertInput, at: Timestamp) -> RuleAlert {
        let AlertInput { labels, annotations, value } = input;
        RuleAlert {
            labels,
            annotations,
            value,
            phase: AlertPhase::Pending,
            active_at: at,
            fired_at: None,
            keep_firing_since: None,
            resolved_at: None,
            last_sent_at: None,
        }
    }

    /// Returns the labels of the series `ALERTS` of the alert in its state.
    pub fn alerts_series(&self) -> Labels {
        alerts_series(&self.labels, self.phase)
    }

    /// Returns the labels of the series `ALERTS_FOR_STATE` of the alert.
    pub(in crate::rules) fn for_state_series(&self) -> Labels {
        let mut builder = self.labels.to_builder();
        builder.set(METRIC_NAME, ALERTS_FOR_STATE);
        builder.build()
    }

    /// Handles an evaluation without the alert's series. Returns whether the alert is remembered.
    fn left(
        &mut self,
        at: Timestamp,
        keep_firing_for_ms: i64,
        report: &mut impl FnMut(&RuleAlert, Option<AlertPhase>),
    ) -> bool {
        match self.phase {
            AlertPhase::Pending => {
                report(self, None);
                false
            }
            AlertPhase::Firing => {
                if keep_firing_for_ms > 0 {
                    let since = *self.keep_firing_since.get_or_insert(at);
                    if at.ms_since(since) < keep_firing_for_ms {
                        return true;
                    }
                }
                (self.phase, self.resolved_at) = (AlertPhase::Resolved, Some(at));
                report(self, Some(AlertPhase::Resolved));
                true
            }
            AlertPhase::Resolved => {
                self.resolved_at.is_some_and(|resolved| at.ms_since(resolved) <= RESOLVED_RETENTION_MS)
            }
        }
    }

    /// Returns whether the alert is due to be sent at `at`: it fires or is resolved, and was last
    /// sent before its end or at least `resend_delay_ms` ago. A time of the last sending that is
    /// ahead, because the clock was set back, counts as long ago.
    pub(in crate::rules) fn needs_sending(&self, at: Timestamp, resend_delay_ms: i64) -> bool {
        if self.phase == AlertPhase::Pending {
            return false;
        }
        let Some(sent) = self.last_sent_at else { return true };
        self.resolved_at.is_some_and(|resolved| resolved > sent)
            || sent > at
            || at.ms_since(sent) >= resend_delay_ms
    }
}

/// Returns the labels of the series `ALERTS` of an alert in a state.
pub(in crate::rules) fn alerts_series(labels: &Labels, phase: AlertPhase) -> Labels {
    let mut builder = labels.to_builder();
    builder.set(METRIC_NAME, ALERTS).set(ALERT_STATE, phase.as_str());
    builder.build()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DURATIONS: AlertDurations = AlertDurations { for_ms: 20, keep_firing_for_ms: 30 };

    fn input(name: &str) -> AlertInput {
        AlertInput { labels: Labels::from_pairs([("a", name)]), annotations: Arc::default(), value: 1.0 }
    }

    /// Evaluates at 0, 10, 20, ...; returns the phase of the alert after each.
    fn phases(presence: &[bool]) -> Vec<Option<AlertPhase>> {
        let mut set = AlertSet::default();
        let at = |place: usize| Timestamp::from_ms(i64::try_from(place).expect("small") * 10);
        let steps = presence.iter().enumerate().map(|(place, present)| {
            set.step(at(place), DURATIONS, present.then(|| input("x")), None);
            set.iter().next().map(|alert| alert.phase)
        });
        steps.collect()
    }

    #[test]
    fn an_alert_is_pending_fires_is_kept_and_is_resolved() {
        use AlertPhase::{Firing, Pending, Resolved};
        let (t, f) = (true, false);
        assert_eq!(
            phases(&[t, t, t, f, f, f, f]),
            [Pending, Pending, Firing, Firing, Firing, Firing, Resolved].map(Some)
        );
        assert_eq!(phases(&[t, t, f, t]), [Some(Pending), Some(Pending), None, Some(Pending)]);
        assert_eq!(
            phases(&[t, t, t, f, f, t, f, f, f, f, t]),
            [Pending, Pending, Firing, Firing, Firing, Firing, Firing, Firing, Firing, Resolved, Pending]
                .map(Some)
        );
    }

    #[test]
    fn transitions_are_reported_in_order_and_an_alert_without_for_fires_at_once() {
        let (mut set, mut list) = (AlertSet::default(), Vec::new());
        let at_once = AlertDurations { for_ms: 0, keep_firing_for_ms: 0 };
        set.step(Timestamp::from_ms(10), at_once, [input("x")], Some(&mut list));
        set.step(Timestamp::from_ms(20), at_once, [], Some(&mut list));
        set.step(Timestamp::from_ms(30), DURATIONS, [input("x")], Some(&mut list));
        set.step(Timestamp::from_ms(40), DURATIONS, [], Some(&mut list));
        let seen: Vec<_> = list.iter().map(|change| (change.at.as_ms(), change.phase)).collect();
        use AlertPhase::{Firing, Pending, Resolved};
        assert_eq!(seen, [(10, Some(Firing)), (20, Some(Resolved)), (30, Some(Pending)), (40, None)]);
    }

    #[test]
    fn a_resolved_alert_is_remembered_for_15_minutes_and_sent_again_each_minute() {
        let mut set = AlertSet::default();
        let at_once = AlertDurations { for_ms: 0, keep_firing_for_ms: 0 };
        let minute = |at: i64| Timestamp::from_ms(at * 60_000);
        set.step(minute(0), at_once, [input("x")], None);
        let mut sent = Vec::new();
        for at in 0..20 {
            if at > 0 {
                set.step(minute(at), at_once, [], None);
            }
            for alert in set.iter_mut().filter(|alert| alert.needs_sending(minute(at), 60_000)) {
                alert.last_sent_at = Some(minute(at));
                sent.push(at);
            }
        }
        assert_eq!(sent, (0..=16).collect::<Vec<_>>());
        assert_eq!(set.iter().count(), 0);
    }
}
