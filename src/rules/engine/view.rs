//! Copies of the state of groups, as the API shows them.

use std::sync::Arc;
use std::time::Duration;

use crate::model::{OrgId, Timestamp};
use crate::rules::alert::{AlertPhase, RuleAlert};
use crate::rules::group::{Rule, RuleGroup};
use crate::rules::run::{GroupRun, RuleHealth};

/// The place where a group is defined: the path of a file, or the namespace of the API.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RuleSource {
    /// A rule file of the operator.
    File(Arc<str>),
    /// A namespace of groups that were sent to the API; the default one is empty.
    Api(Arc<str>),
    /// Versions of groups that were replaced or removed before the engine was created. It ends
    /// their series, and never lists them.
    Replaced(Arc<str>),
}

impl RuleSource {
    /// Returns the text that Prometheus' API shows as the file of a group.
    pub fn as_str(&self) -> &str {
        match self {
            RuleSource::File(path) => path,
            RuleSource::Api(namespace) | RuleSource::Replaced(namespace) => namespace,
        }
    }
}

/// The identity of a group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuleGroupKey {
    /// The organisation.
    pub org: OrgId,
    /// The source that defines the group.
    pub source: RuleSource,
    /// The name, unique within its source.
    pub name: Arc<str>,
}

impl RuleGroupKey {
    /// Returns the least key of an organisation, which no group has.
    pub(super) fn least_of(org: OrgId) -> RuleGroupKey {
        RuleGroupKey { org, source: RuleSource::File(Arc::from("")), name: Arc::from("") }
    }

    /// Returns the key of a version of a group that was replaced or removed; see
    /// [`RuleSource::Replaced`]. `number` is another one for each version of the group.
    pub fn of_replaced(org: OrgId, source: &str, name: &str, number: u64) -> RuleGroupKey {
        // A name has no control characters.
        let name = format!("{name}\n{number}");
        RuleGroupKey { org, source: RuleSource::Replaced(Arc::from(source)), name: Arc::from(name) }
    }
}

/// A group as it was after an evaluation.
#[derive(Clone, Debug)]
pub struct RuleGroupView {
    /// The identity.
    pub key: RuleGroupKey,
    /// The group.
    pub group: Arc<RuleGroup>,
    /// The interval in milliseconds, with the default of the server.
    pub interval_ms: i64,
    /// The time of the last evaluation.
    pub last_evaluation: Option<Timestamp>,
    /// How long the last evaluation took.
    pub took: Duration,
    /// The number of evaluations that were missed.
    pub missed: u64,
    /// The rules, in their order.
    pub rules: Vec<RuleView>,
}

/// A rule as it was after an evaluation.
#[derive(Clone, Debug)]
pub struct RuleView {
    /// The rule.
    pub rule: Arc<Rule>,
    /// The health.
    pub health: RuleHealth,
    /// The time of the last evaluation.
    pub last_evaluation: Option<Timestamp>,
    /// How long the last evaluation took.
    pub took: Duration,
    /// The pending and firing alerts, in the order of their labels.
    pub alerts: Arc<[RuleAlert]>,
}

impl RuleView {
    /// Returns the state in Prometheus' API: that of the most severe alert.
    pub fn state(&self) -> &'static str {
        let fires = self.alerts.iter().any(|alert| alert.phase == AlertPhase::Firing);
        match (fires, self.alerts.is_empty(), &self.health) {
            (true, ..) => "firing",
            (false, false, _) => "pending",
            (false, true, RuleHealth::Unknown) => "unknown",
            (false, true, _) => "inactive",
        }
    }
}

impl RuleGroupView {
    /// Copies the state of a group. The cost is that of copying its active alerts.
    pub(super) fn of(key: &RuleGroupKey, run: &GroupRun, missed: u64) -> RuleGroupView {
        let rules = run.rules.iter().map(|rule| RuleView {
            rule: Arc::clone(&rule.compiled.rule),
            health: rule.health.clone(),
            last_evaluation: rule.evaluated_at,
            took: rule.took,
            alerts: rule.alerts.iter().filter(|alert| alert.phase != AlertPhase::Resolved).cloned().collect(),
        });
        RuleGroupView {
            key: key.clone(),
            group: Arc::clone(&run.group),
            interval_ms: run.interval_ms,
            last_evaluation: run.last_at,
            took: run.took,
            missed,
            rules: rules.collect(),
        }
    }
}
