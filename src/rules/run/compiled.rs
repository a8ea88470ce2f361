//! A rule that is ready for evaluation, and the conversion of its result to series and alerts.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use super::environment::{RuleContext, TemplateQueries};
use crate::model::{Labels, METRIC_NAME, MatchOp, Matcher, Steps, Timestamp};
use crate::promql::explain::Estimate;
use crate::promql::syntax::tree::Expr;
use crate::promql::{Query, QueryError, Value, VectorSample};
use crate::rules::alert::{ALERTS, ALERTS_FOR_STATE, AlertDurations, AlertInput, RuleAnnotations};
use crate::rules::group::Rule;
use crate::rules::template::{Template, TemplateData};
use crate::tsdb::Snapshot;

/// The label with the name of an alert.
pub(in crate::rules) const ALERT_NAME: &str = "alertname";

/// The texts of a rule that may be templates, in the order of their names. A text that is not a
/// valid template is the message that takes its place.
type Templates = Vec<(Arc<str>, Result<Template, String>)>;

/// A rule with its query and its templates.
#[derive(Debug)]
pub(in crate::rules) struct CompiledRule {
    pub(in crate::rules) rule: Arc<Rule>,
    query: Query,
    labels: Templates,
    annotations: Templates,
    /// The annotations, if none of them is a template.
    fixed_annotations: Option<Arc<RuleAnnotations>>,
    /// See [`CompiledRule::metrics_read`].
    reads: Option<BTreeSet<String>>,
    /// The labels that a recording rule sets, its metric first. Empty for an alerting rule.
    recorded_labels: Vec<(Arc<str>, Arc<str>)>,
    /// See [`CompiledRule::metrics_written`].
    writes: Vec<Arc<str>>,
}

impl CompiledRule {
    /// Prepares a rule.
    pub(in crate::rules) fn new(rule: Arc<Rule>) -> CompiledRule {
        let query = Query {
            expr: Arc::new(rule.parsed.expr.clone()),
            text: rule.expr.as_str().into(),
            steps: Steps::once(Timestamp::from_ms(0)),
            instant: true,
        };
        let Some(alerting) = rule.alerting() else {
            let metric = (METRIC_NAME.into(), Arc::from(rule.name()));
            let others =
                rule.labels.iter().map(|(name, value)| (name.as_str().into(), value.as_str().into()));
            return CompiledRule {
                reads: metrics_of(&query.expr),
                writes: vec![Arc::clone(&metric.1)],
                recorded_labels: std::iter::once(metric).chain(others).collect(),
                rule,
                query,
                labels: Vec::new(),
                annotations: Vec::new(),
                fixed_annotations: None,
            };
        };
        let name = format!("__alert_{}", rule.name());
        let texts = |texts: &BTreeMap<String, String>| -> Templates {
            let parse = |text: &str| Template::parse(text).map_err(|error| error.annotation(&name));
            texts.iter().map(|(name, text)| (Arc::from(name.as_str()), parse(text))).collect()
        };
        let (labels, annotations) = (texts(&rule.labels), texts(&alerting.annotations));
        let fixed = alerting.annotations.values().all(|text| !is_template(text));
        let fixed_annotations = fixed.then(|| Arc::new(alerting.annotations.clone()));
        let mut all = rule.labels.values().chain(alerting.annotations.values());
        let queries = all.any(|text| is_template(text) && text.contains("query"));
        let reads = if queries { None } else { metrics_of(&query.expr) };
        let (recorded_labels, writes) = (Vec::new(), vec![ALERTS.into(), ALERTS_FOR_STATE.into()]);
        CompiledRule { rule, query, labels, annotations, fixed_annotations, reads, recorded_labels, writes }
    }

    /// Returns the durations of an alerting rule.
    pub(in crate::rules) fn durations(&self) -> Option<AlertDurations> {
        let alerting = self.rule.alerting()?;
        let (for_ms, keep_firing_for_ms) = (alerting.for_ms, alerting.keep_firing_for_ms);
        Some(AlertDurations { for_ms, keep_firing_for_ms })
    }

    /// Returns the labels whose values the rule sets without a template.
    pub(in crate::rules) fn fixed_labels(&self) -> impl Iterator<Item = (&str, &str)> {
        let alerting = self.rule.alerting().is_some();
        let fixed = self.rule.labels.iter().filter(move |(name, value)| {
            !value.is_empty() && !(alerting && (is_template(value) || *name == ALERT_NAME))
        });
        fixed.map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Returns the metrics that the rule may read; None: any metric.
    pub(in crate::rules) fn metrics_read(&self) -> Option<&BTreeSet<String>> {
        self.reads.as_ref()
    }

    /// Returns the metrics that the rule writes.
    pub(in crate::rules) fn metrics_written(&self) -> &[Arc<str>] {
        &self.writes
    }

    /// Evaluates the expression at a time.
    pub(in crate::rules) fn result(
        &self,
        context: RuleContext<'_>,
        snapshot: &Snapshot,
        at: Timestamp,
    ) -> Result<Vec<VectorSample>, String> {
        self.vector(context, snapshot, at).map_err(|error| error.to_string())
    }

    fn vector(
        &self,
        context: RuleContext<'_>,
        snapshot: &Snapshot,
        at: Timestamp,
    ) -> Result<Vec<VectorSample>, QueryError> {
        context.vector(snapshot, &Query { steps: Steps::once(at), ..self.query.clone() })
    }

    /// Returns the series of a recording rule at a time; none if the data of that time let the
    /// evaluation fail, which writes no sample.
    pub(in crate::rules) fn series_at(
        &self,
        context: RuleContext<'_>,
        snapshot: &Snapshot,
        at: Timestamp,
    ) -> Result<HashSet<Labels>, QueryError> {
        let result = match self.vector(context, snapshot, at) {
            Err(QueryError::Execution(_)) => return Ok(HashSet::new()),
            result => result?,
        };
        let recorded = self.recorded(result).unwrap_or_default();
        Ok(recorded.into_iter().map(|sample| sample.labels).collect())
    }

    /// Estimates the cost of an evaluation of the expression at a time.
    pub(in crate::rules) fn estimate(
        &self,
        context: RuleContext<'_>,
        snapshot: &Snapshot,
        at: Timestamp,
    ) -> Result<Estimate, QueryError> {
        context.estimate(snapshot, &Query { steps: Steps::once(at), ..self.query.clone() })
    }

    /// Evaluates the expression at many steps.
    pub(in crate::rules) fn range(
        &self,
        context: RuleContext<'_>,
        snapshot: &Snapshot,
        steps: Steps,
    ) -> Result<Value, String> {
        let query = Query { steps, instant: false, ..self.query.clone() };
        context.value(snapshot, &query).map_err(|error| error.to_string())
    }

    /// Converts the result of a recording rule to its series, which must have different labels.
    pub(in crate::rules) fn recorded(&self, result: Vec<VectorSample>) -> Result<Vec<VectorSample>, String> {
        let converted = self.renamed(result);
        check_unique(converted.iter().map(|sample| &sample.labels), "rule")?;
        Ok(converted)
    }

    /// Sets the name and the labels of a recording rule.
    pub(in crate::rules) fn renamed(&self, result: Vec<VectorSample>) -> Vec<VectorSample> {
        let converted = result.into_iter().map(|sample| {
            let mut builder = sample.labels.to_builder();
            for (name, value) in &self.recorded_labels {
                builder.set(Arc::clone(name), Arc::clone(value));
            }
            VectorSample { labels: builder.build(), ..sample }
        });
        converted.collect()
    }

    /// Converts the result of an alerting rule to its alerts.
    pub(in crate::rules) fn inputs(
        &self,
        context: RuleContext<'_>,
        snapshot: &Snapshot,
        at: Timestamp,
        result: Vec<VectorSample>,
    ) -> Result<Vec<AlertInput>, String> {
        let queries = TemplateQueries { context, snapshot, at };
        let converted = result.into_iter().map(|sample| self.input(context, &queries, &sample, true));
        let converted: Vec<AlertInput> = converted.collect();
        check_unique(converted.iter().map(|input| &input.labels), "alert")?;
        Ok(converted)
    }

    /// Converts a series of the result to an alert. Annotations are expanded if `annotate`.
    pub(in crate::rules) fn input(
        &self,
        context: RuleContext<'_>,
        queries: &TemplateQueries<'_>,
        sample: &VectorSample,
        annotate: bool,
    ) -> AlertInput {
        let templated = self.has_label_templates() || (annotate && self.fixed_annotations.is_none());
        let data = if templated { self.data(context, sample) } else { TemplateData::default() };
        let mut builder = sample.labels.to_builder();
        builder.remove(METRIC_NAME);
        for (name, template) in &self.labels {
            builder.set(Arc::clone(name), expanded(template, &data, queries));
        }
        builder.set(ALERT_NAME, self.rule.name());
        let annotations = match &self.fixed_annotations {
            Some(fixed) => Arc::clone(fixed),
            None if !annotate => Arc::default(),
            None => {
                let expanded =
                    |(name, text): &(Arc<str>, _)| (name.to_string(), expanded(text, &data, queries));
                Arc::new(self.annotations.iter().map(expanded).collect())
            }
        };
        AlertInput { labels: builder.build(), annotations, value: sample.value }
    }

    /// Returns whether the labels of an alert depend on more than those of its series.
    pub(in crate::rules) fn has_label_templates(&self) -> bool {
        self.labels.iter().any(|(_, text)| text.as_ref().is_ok_and(|text| is_template(text.text())))
    }

    fn data(&self, context: RuleContext<'_>, sample: &VectorSample) -> TemplateData {
        let pairs = sample.labels.iter().map(|label| (label.name.to_owned(), label.value.to_owned()));
        TemplateData {
            name: format!("__alert_{}", self.rule.name()),
            labels: Arc::new(pairs.collect()),
            external_labels: Arc::clone(&context.settings.external_labels),
            external_url: Arc::clone(&context.settings.external_url),
            value: sample.value,
            histogram: sample.histogram.clone(),
        }
    }
}

/// Returns the expanded text of a template, or the message that takes its place.
fn expanded(
    template: &Result<Template, String>,
    data: &TemplateData,
    queries: &TemplateQueries<'_>,
) -> String {
    match template {
        Ok(template) => template.expand_or_error(data, queries, queries.at),
        Err(message) => message.clone(),
    }
}

/// Checks that no two series of a result have the same labels after those of a rule were set.
/// `kind` is `rule` for a recording rule and `alert` for an alerting rule.
pub(in crate::rules) fn check_unique<'l>(
    mut labels: impl ExactSizeIterator<Item = &'l Labels>,
    kind: &str,
) -> Result<(), String> {
    let mut seen = HashSet::with_capacity(labels.len());
    if labels.all(|labels| seen.insert(labels)) {
        return Ok(());
    }
    Err(same_labels(kind))
}

/// Returns the message of [`check_unique`].
pub(in crate::rules) fn same_labels(kind: &str) -> String {
    format!("vector contains metrics with the same labelset after applying {kind} labels")
}

/// Returns the message of a rule with more series or alerts (`what`) than its group allows.
pub(in crate::rules) fn exceeded_limit(limit: usize, count: usize, what: &str) -> String {
    format!("exceeded limit of {limit} with {count} {what}")
}

/// Returns the metrics that an expression selects; None: any metric.
fn metrics_of(expr: &Expr) -> Option<BTreeSet<String>> {
    // Without a second argument, `info` selects a metric that the text does not name.
    if expr.nodes().any(|node| matches!(node, Expr::Call(call) if call.name == "info")) {
        return None;
    }
    let metric = |matchers: &[Matcher]| {
        let mut names = matchers.iter().filter(|matcher| matcher.name() == METRIC_NAME);
        let name = names.find(|matcher| matcher.op() == MatchOp::Equal)?;
        Some(name.value().to_owned())
    };
    expr.selectors().iter().map(|matchers| metric(matchers)).collect()
}

fn is_template(text: &str) -> bool {
    text.contains("{{")
}
