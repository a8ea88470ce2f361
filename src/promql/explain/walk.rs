//! Words for every kind of node of a plan: a new one asks for its own.

use crate::model::{METRIC_NAME, MatchOp, Matcher};
use crate::promql::plan::{
    AggregateNode, HistogramWhat, Join, Look, MatrixNode, MatrixSource, Node, Relabel, ScalarNode, Selector,
    VectorNode, When,
};
use crate::promql::syntax::tree::{BinaryOp, Cardinality, Grouping, Matching};

/// What a node does.
pub(super) fn words(node: Node<'_>) -> String {
    match node {
        Node::Text(text) => format!("{text:?}"),
        Node::Scalar(node) => scalar_words(node),
        Node::Vector(node) => vector_words(node),
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

fn scalar_words(node: &ScalarNode) -> String {
    match node {
        ScalarNode::Number(value) => value.to_string(),
        ScalarNode::Time => "time()".into(),
        ScalarNode::Of(_) => "scalar".into(),
        ScalarNode::Negate(_) => "-".into(),
        ScalarNode::Binary(binary) => binary.op.as_str().into(),
        ScalarNode::Extreme(extreme) => if extreme.greatest { "max_of" } else { "min_of" }.into(),
        ScalarNode::Once(_) => ONCE.into(),
    }
}

/// What does not change from step to step.
const ONCE: &str = "once for all steps";

fn vector_words(node: &VectorNode) -> String {
    match node {
        VectorNode::Select(Selector { matchers, when, look, .. }) => {
            let selected = format!("{}{}", selector(matchers), shift(*when));
            match look {
                Look::Value => selected,
                Look::Time => format!("timestamp of {selected}"),
                Look::Start => format!("start_timestamp of {selected}"),
                Look::Smoothed => format!("{selected} smoothed"),
            }
        }
        VectorNode::Info(_) => "info".into(),
        VectorNode::OfHistograms { name, .. } => (*name).into(),
        VectorNode::From(_) => "vector".into(),
        VectorNode::StepTimes(_) => "timestamp".into(),
        VectorNode::Map { name, .. } | VectorNode::MapWith { name, .. } => (*name).into(),
        VectorNode::Window(window) => window.name.into(),
        VectorNode::Absent { .. } => "absent".into(),
        VectorNode::AbsentOverTime { .. } => "absent_over_time".into(),
        VectorNode::Negate(_) => "-".into(),
        VectorNode::WithScalar(with) => operator(with.op, with.returns_bool),
        VectorNode::Join(join) => join_words(join),
        VectorNode::Aggregate(node) => aggregate_words(node),
        VectorNode::Relabel { relabel, .. } => match relabel {
            Relabel::Replace { target, .. } => format!("label_replace {target}"),
            Relabel::Join { target, .. } => format!("label_join {target}"),
        },
        VectorNode::Sort { descending, .. } => if *descending { "sort_desc" } else { "sort" }.into(),
        VectorNode::SortByLabel { descending, names, .. } => {
            let name = if *descending { "sort_by_label_desc" } else { "sort_by_label" };
            format!("{name} ({})", names.join(", "))
        }
        VectorNode::Histogram(node) => match &node.what {
            HistogramWhat::Quantile(_) => "histogram_quantile".into(),
            HistogramWhat::Quantiles { label, .. } => format!("histogram_quantiles {label}"),
            HistogramWhat::Fraction { .. } => "histogram_fraction".into(),
        },
        VectorNode::Once(_) => ONCE.into(),
    }
}

fn operator(op: BinaryOp, returns_bool: bool) -> String {
    if returns_bool { format!("{} bool", op.as_str()) } else { op.as_str().into() }
}

fn join_words(join: &Join) -> String {
    let Matching { on, labels, cardinality, include, .. } = &join.matching;
    let mut words = operator(join.op, join.returns_bool);
    if *on || !labels.is_empty() {
        words.push_str(&format!(" {} ({})", if *on { "on" } else { "ignoring" }, labels.join(", ")));
    }
    match cardinality {
        Cardinality::ManyToOne => words.push_str(&format!(" group_left ({})", include.join(", "))),
        Cardinality::OneToMany => words.push_str(&format!(" group_right ({})", include.join(", "))),
        Cardinality::OneToOne | Cardinality::ManyToMany => {}
    }
    words
}

fn aggregate_words(node: &AggregateNode) -> String {
    let op = node.op.as_str();
    match &node.grouping {
        Grouping::By(labels) if labels.is_empty() => op.into(),
        Grouping::By(labels) => format!("{op} by ({})", labels.join(", ")),
        Grouping::Without(labels) => format!("{op} without ({})", labels.join(", ")),
    }
}

/// `up{job="api"}`, as far as a name is tested for equality.
fn selector(matchers: &[Matcher]) -> String {
    let is_name = |matcher: &&Matcher| matcher.name() == METRIC_NAME && matcher.op() == MatchOp::Equal;
    let name = matchers.iter().find(is_name).map_or("", Matcher::value);
    let rest: Vec<String> =
        matchers.iter().filter(|matcher| !is_name(matcher)).map(ToString::to_string).collect();
    if rest.is_empty() && !name.is_empty() { name.into() } else { format!("{name}{{{}}}", rest.join(",")) }
}

fn shift(When { offset_ms, at_ms }: When) -> String {
    let at = at_ms.map_or_else(String::new, |at| format!(" @ {}", seconds(at)));
    if offset_ms == 0 { at } else { format!("{at} offset {}s", seconds(offset_ms)) }
}

fn span(ms: i64) -> String {
    format!("{}s", seconds(ms))
}

fn seconds(ms: i64) -> String {
    let (whole, part) = (ms / 1_000, (ms % 1_000).unsigned_abs());
    let sign = if ms < 0 && whole == 0 { "-" } else { "" };
    if part == 0 {
        whole.to_string()
    } else {
        format!("{sign}{whole}.{part:03}").trim_end_matches('0').into()
    }
}
