//! A plan as a tree of nodes that have words and inputs. Every kind of node is named here: a new one asks for both.

use crate::model::{METRIC_NAME, MatchOp, Matcher};
use crate::promql::plan::{
    AggregateNode, HistogramWhat, Join, MatrixNode, MatrixSource, Param, Relabel, ScalarNode, Selector,
    VectorNode, When,
};
use crate::promql::syntax::tree::{BinaryOp, Cardinality, Grouping, Matching};

/// Any node of a plan.
#[derive(Clone, Copy, Debug)]
pub(super) enum Node<'p> {
    Scalar(&'p ScalarNode),
    Vector(&'p VectorNode),
    Matrix(&'p MatrixNode),
    Text(&'p str),
}

impl<'p> Node<'p> {
    /// Where it lies, which tells it from all others of its plan.
    pub(super) fn place(self) -> usize {
        match self {
            Node::Scalar(node) => std::ptr::from_ref(node).addr(),
            Node::Vector(node) => std::ptr::from_ref(node).addr(),
            Node::Matrix(node) => std::ptr::from_ref(node).addr(),
            Node::Text(text) => text.as_ptr().addr(),
        }
    }

    /// What it takes in, in the order it is written.
    pub(super) fn inputs(self) -> Vec<Node<'p>> {
        match self {
            Node::Text(_) => Vec::new(),
            Node::Scalar(node) => of_scalar(node),
            Node::Vector(node) => of_vector(node),
            Node::Matrix(node) => match &node.source {
                MatrixSource::Select(_) => Vec::new(),
                MatrixSource::Subquery { expr, step_ms: _ } => vec![Node::Vector(expr)],
            },
        }
    }

    /// What it does.
    pub(super) fn words(self) -> String {
        match self {
            Node::Text(text) => format!("{text:?}"),
            Node::Scalar(node) => scalar_words(node),
            Node::Vector(node) => vector_words(node),
            Node::Matrix(MatrixNode { source, range_ms, when }) => match source {
                MatrixSource::Select(matchers) => {
                    format!("{}[{}]{}", selector(matchers), span(*range_ms), shift(*when))
                }
                MatrixSource::Subquery { expr: _, step_ms } => {
                    format!("subquery [{}:{}]{}", span(*range_ms), span(*step_ms), shift(*when))
                }
            },
        }
    }
}

fn of_scalar(node: &ScalarNode) -> Vec<Node<'_>> {
    match node {
        ScalarNode::Number(_) | ScalarNode::Time => Vec::new(),
        ScalarNode::Of(vector) => vec![Node::Vector(vector)],
        ScalarNode::Negate(inner) | ScalarNode::Once(inner) => vec![Node::Scalar(inner)],
        ScalarNode::Binary(binary) => vec![Node::Scalar(&binary.lhs), Node::Scalar(&binary.rhs)],
        ScalarNode::Extreme(extreme) => vec![Node::Scalar(&extreme.a), Node::Scalar(&extreme.b)],
    }
}

fn of_vector(node: &VectorNode) -> Vec<Node<'_>> {
    match node {
        VectorNode::Select { .. } => Vec::new(),
        VectorNode::From(scalar) => vec![Node::Scalar(scalar)],
        VectorNode::StepTimes(arg)
        | VectorNode::Map { arg, .. }
        | VectorNode::Absent { arg, .. }
        | VectorNode::Negate(arg)
        | VectorNode::Relabel { arg, .. }
        | VectorNode::Sort { arg, .. }
        | VectorNode::SortByLabel { arg, .. }
        | VectorNode::Once(arg) => vec![Node::Vector(arg)],
        VectorNode::MapWith { arg, params, .. } => {
            std::iter::once(Node::Vector(arg)).chain(params.iter().map(Node::Scalar)).collect()
        }
        VectorNode::Window(window) => {
            std::iter::once(Node::Matrix(&window.arg)).chain(window.params.iter().map(Node::Scalar)).collect()
        }
        VectorNode::AbsentOverTime { arg, .. } => vec![Node::Matrix(arg)],
        VectorNode::WithScalar(with) => {
            let (vector, scalar) = (Node::Vector(&with.vector), Node::Scalar(&with.scalar));
            if with.scalar_is_left { vec![scalar, vector] } else { vec![vector, scalar] }
        }
        VectorNode::Join(join) => vec![Node::Vector(&join.lhs), Node::Vector(&join.rhs)],
        VectorNode::Aggregate(node) => {
            let param = match &node.param {
                Param::None => None,
                Param::Scalar(scalar) => Some(Node::Scalar(scalar)),
                Param::Text(text) => Some(Node::Text(text)),
            };
            param.into_iter().chain([Node::Vector(&node.arg)]).collect()
        }
        VectorNode::Histogram(node) => {
            let qs: Vec<Node<'_>> = match &node.what {
                HistogramWhat::Quantile(q) => vec![Node::Scalar(q)],
                HistogramWhat::Quantiles { label: _, qs } => qs.iter().map(Node::Scalar).collect(),
                HistogramWhat::Fraction { lower, upper } => vec![Node::Scalar(lower), Node::Scalar(upper)],
            };
            qs.into_iter().chain([Node::Vector(&node.arg)]).collect()
        }
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
        VectorNode::Select { selector: Selector { matchers, when }, times } => {
            let selected = format!("{}{}", selector(matchers), shift(*when));
            if *times { format!("timestamp of {selected}") } else { selected }
        }
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
