//! A short text for each kind of plan node. The matches are exhaustive, so a new node needs a text.

use crate::model::{METRIC_NAME, MatchOp, Matcher};
use crate::promql::plan::{
    AggregateNode, HistogramFunction, Join, MatrixNode, MatrixSource, Node, Relabel, ScalarNode, Selector,
    SelectorOutput, TimeShift, VectorNode,
};
use crate::promql::syntax::tree::{BinaryOp, Cardinality, Grouping, Matching};

/// Returns the text that explanations show for a node.
pub(super) fn describe(node: Node<'_>) -> String {
    match node {
        Node::Text(text) => format!("{text:?}"),
        Node::Scalar(node) => describe_scalar(node),
        Node::Vector(node) => describe_vector(node),
        Node::Matrix(MatrixNode { source, range_ms, when, .. }) => match source {
            MatrixSource::Select(matchers) => {
                format!("{}[{}]{}", selector(matchers), span(*range_ms), shift(*when))
            }
            MatrixSource::Subquery { step_ms, .. } => {
                format!("subquery [{}:{}]{}", span(*range_ms), span(*step_ms), shift(*when))
            }
        },
    }
}

fn describe_scalar(node: &ScalarNode) -> String {
    match node {
        ScalarNode::Number(value) => value.to_string(),
        ScalarNode::Time => "time()".into(),
        ScalarNode::Of(_) => "scalar".into(),
        ScalarNode::Negate(_) => "-".into(),
        ScalarNode::Binary(binary) => binary.op.as_str().into(),
        ScalarNode::MinMax(extreme) => if extreme.greatest { "max_of" } else { "min_of" }.into(),
        ScalarNode::StepInvariant(_) => ONCE.into(),
    }
}

/// The text of step-invariant nodes.
const ONCE: &str = "once for all steps";

fn describe_vector(node: &VectorNode) -> String {
    match node {
        VectorNode::Select(Selector { matchers, when, look, .. }) => {
            let selected = format!("{}{}", selector(matchers), shift(*when));
            match look {
                SelectorOutput::Value => selected,
                SelectorOutput::Time => format!("timestamp of {selected}"),
                SelectorOutput::Start => format!("start_timestamp of {selected}"),
                SelectorOutput::Smoothed => format!("{selected} smoothed"),
            }
        }
        VectorNode::Info(_) => "info".into(),
        VectorNode::MapHistograms { name, .. } => (*name).into(),
        VectorNode::From(_) => "vector".into(),
        VectorNode::StepTimes(_) => "timestamp".into(),
        VectorNode::Map { name, .. } | VectorNode::MapWith { name, .. } => (*name).into(),
        VectorNode::Window(window) => window.name.into(),
        VectorNode::Absent { .. } => "absent".into(),
        VectorNode::AbsentOverTime { .. } => "absent_over_time".into(),
        VectorNode::Negate(_) => "-".into(),
        VectorNode::WithScalar(with) => operator(with.op, with.returns_bool),
        VectorNode::Join(join) => describe_join(join),
        VectorNode::Aggregate(node) => describe_aggregate(node),
        VectorNode::Relabel { relabel, .. } => match relabel {
            Relabel::Replace { target, .. } => format!("label_replace {target}"),
            Relabel::Join { target, .. } => format!("label_join {target}"),
        },
        VectorNode::Sort { descending, .. } => if *descending { "sort_desc" } else { "sort" }.into(),
        VectorNode::SortByLabel { descending, names, .. } => {
            let name = if *descending { "sort_by_label_desc" } else { "sort_by_label" };
            format!("{name} ({})", names.join(", "))
        }
        VectorNode::Histogram(node) => match &node.function {
            HistogramFunction::Quantile(_) => "histogram_quantile".into(),
            HistogramFunction::Quantiles { label, .. } => format!("histogram_quantiles {label}"),
            HistogramFunction::Fraction { .. } => "histogram_fraction".into(),
        },
        VectorNode::StepInvariant(_) => ONCE.into(),
    }
}

fn operator(op: BinaryOp, returns_bool: bool) -> String {
    if returns_bool { format!("{} bool", op.as_str()) } else { op.as_str().into() }
}

fn describe_join(join: &Join) -> String {
    let Matching { on, labels, cardinality, include, .. } = &join.matching;
    let mut text = operator(join.op, join.returns_bool);
    if *on || !labels.is_empty() {
        text.push_str(&format!(" {} ({})", if *on { "on" } else { "ignoring" }, labels.join(", ")));
    }
    match cardinality {
        Cardinality::ManyToOne => text.push_str(&format!(" group_left ({})", include.join(", "))),
        Cardinality::OneToMany => text.push_str(&format!(" group_right ({})", include.join(", "))),
        Cardinality::OneToOne | Cardinality::ManyToMany => {}
    }
    text
}

fn describe_aggregate(node: &AggregateNode) -> String {
    let op = node.op.as_str();
    match &node.grouping {
        Grouping::By(labels) if labels.is_empty() => op.into(),
        Grouping::By(labels) => format!("{op} by ({})", labels.join(", ")),
        Grouping::Without(labels) => format!("{op} without ({})", labels.join(", ")),
    }
}

/// Formats matchers as a selector such as `up{job="api"}`; the metric name comes first if it has an
/// `=` matcher.
fn selector(matchers: &[Matcher]) -> String {
    let is_name = |matcher: &&Matcher| matcher.name() == METRIC_NAME && matcher.op() == MatchOp::Equal;
    let name = matchers.iter().find(is_name).map_or("", Matcher::value);
    let rest: Vec<String> =
        matchers.iter().filter(|matcher| !is_name(matcher)).map(ToString::to_string).collect();
    if rest.is_empty() && !name.is_empty() { name.into() } else { format!("{name}{{{}}}", rest.join(",")) }
}

/// Formats `@` and `offset`.
fn shift(TimeShift { offset_ms, at_ms }: TimeShift) -> String {
    let at = at_ms.map_or_else(String::new, |at| format!(" @ {}", seconds(at)));
    if offset_ms == 0 { at } else { format!("{at} offset {}s", seconds(offset_ms)) }
}

fn span(ms: i64) -> String {
    format!("{}s", seconds(ms))
}

/// Formats milliseconds as seconds without trailing zeros.
fn seconds(ms: i64) -> String {
    let (whole, part) = (ms / 1_000, (ms % 1_000).unsigned_abs());
    let sign = if ms < 0 && whole == 0 { "-" } else { "" };
    if part == 0 {
        whole.to_string()
    } else {
        format!("{sign}{whole}.{part:03}").trim_end_matches('0').into()
    }
}
