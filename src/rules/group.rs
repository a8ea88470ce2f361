//! Groups of rules, as a rule file defines them and the engine evaluates them.

use std::collections::BTreeMap;

use crate::promql::VectorSample;
use crate::promql::syntax::Parsed;

/// A group of rules, which are evaluated together at one time.
#[derive(Clone, Debug)]
pub struct RuleGroup {
    /// The name; unique within its file.
    pub name: String,
    /// The interval between evaluations in milliseconds; None: the default of the server.
    pub interval_ms: Option<i64>,
    /// The most series or alerts that one rule may yield; 0: any number.
    pub limit: usize,
    /// How far the evaluation time is behind the time of the grid, in milliseconds; None: 0.
    pub query_offset_ms: Option<i64>,
    /// Labels of all rules of the group; those of a rule replace them.
    pub labels: BTreeMap<String, String>,
    /// The rules, in the order of their evaluation.
    pub rules: Vec<Rule>,
}

/// A rule. Its labels include those of its group.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Whether the rule records series or raises alerts.
    pub kind: RuleKind,
    /// The text of the expression.
    pub expr: String,
    /// The parsed expression; its type is scalar or instant vector for a recording rule, too.
    pub parsed: Parsed,
    /// The labels that the rule sets, with those of the group. Values are templates in an alerting
    /// rule.
    pub labels: BTreeMap<String, String>,
}

/// The kind of a rule, with the fields of this kind.
#[derive(Clone, Debug)]
pub enum RuleKind {
    /// Writes the result of the expression as series.
    Recording {
        /// The metric name of the series.
        record: String,
    },
    /// Raises an alert for each series of the result.
    Alerting(AlertingRule),
}

/// The fields of an alerting rule.
#[derive(Clone, Debug)]
pub struct AlertingRule {
    /// The name of the alert.
    pub alert: String,
    /// How long a series must be in the result before its alert fires, in milliseconds.
    pub for_ms: i64,
    /// How long an alert fires after its series left the result, in milliseconds.
    pub keep_firing_for_ms: i64,
    /// The annotations; their values are templates.
    pub annotations: BTreeMap<String, String>,
}

impl Rule {
    /// Returns the name of the recorded metric or of the alert.
    pub fn name(&self) -> &str {
        match &self.kind {
            RuleKind::Recording { record } => record,
            RuleKind::Alerting(alerting) => &alerting.alert,
        }
    }

    /// Returns the fields of an alerting rule; none for a recording rule.
    pub fn alerting(&self) -> Option<&AlertingRule> {
        match &self.kind {
            RuleKind::Recording { .. } => None,
            RuleKind::Alerting(alerting) => Some(alerting),
        }
    }
}

/// The queries of a template, at the time of the evaluation that expands it.
pub(in crate::rules) trait TemplateQuery {
    /// Evaluates an instant query. A scalar result is one sample without labels.
    ///
    /// # Errors
    /// A message for the expanded text: the expression is invalid, a limit is exceeded, or the
    /// result is not a vector.
    fn query(&self, expr: &str) -> Result<Vec<VectorSample>, String>;
}
