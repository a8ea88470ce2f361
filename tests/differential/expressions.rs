//! Random typed expressions with every function, aggregation, operator and modifier, either of
//! Prometheus 3.5 or of the whole language.

#[path = "shapes.rs"]
mod shapes;

use std::fmt;

use promlet::promql::syntax::tree::ValueType;
use promlet::promql::{FUNCTIONS, Function};

use super::chance::Chance;

/// A part of an expression. It knows its children, so that a wrong result can be reduced to the
/// smallest part.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) kind: ValueType,
    fragments: Vec<Fragment>,
}

#[derive(Clone, Debug)]
enum Fragment {
    Text(String),
    Child(Node),
}

impl Node {
    fn new(kind: ValueType) -> Node {
        Node { kind, fragments: Vec::new() }
    }

    fn leaf(kind: ValueType, text: impl Into<String>) -> Node {
        Node::new(kind).text(text)
    }

    fn text(mut self, text: impl Into<String>) -> Node {
        self.fragments.push(Fragment::Text(text.into()));
        self
    }

    fn child(mut self, child: Node) -> Node {
        self.fragments.push(Fragment::Child(child));
        self
    }

    fn children(&self) -> impl Iterator<Item = &Node> {
        self.fragments.iter().filter_map(|fragment| match fragment {
            Fragment::Child(child) => Some(child),
            Fragment::Text(_) => None,
        })
    }

    /// Replaces some inner part by one of any type, so that the types hardly ever match.
    pub(crate) fn ill_typed(&mut self, chance: &mut Chance) {
        let children: Vec<usize> = (0..self.fragments.len())
            .filter(|position| matches!(self.fragments.get(*position), Some(Fragment::Child(_))))
            .collect();
        // `info` treats series without info series differently in 3.5.
        let is_info = matches!(self.fragments.first(), Some(Fragment::Text(text)) if text == "info(");
        if !children.is_empty() && !is_info && chance.percent(70) {
            let position = *chance.pick(&children);
            if let Some(Fragment::Child(child)) = self.fragments.get_mut(position) {
                child.ill_typed(chance);
            }
            return;
        }
        let (kind, text) = *chance.pick(&[
            (ValueType::Text, "\"a\""),
            (ValueType::Scalar, "2"),
            (ValueType::Vector, "temperature"),
            (ValueType::Matrix, "temperature[1m]"),
            (ValueType::Matrix, "temperature[5m:1m]"),
        ]);
        *self = Node::leaf(kind, text);
    }

    /// Returns expressions that are one step smaller.
    pub(crate) fn smaller(&self) -> Vec<Node> {
        let mut found: Vec<Node> = self.children().cloned().collect();
        for (position, fragment) in self.fragments.iter().enumerate() {
            let Fragment::Child(child) = fragment else { continue };
            for less in child.smaller().into_iter().filter(|less| less.kind == child.kind) {
                let mut fragments = self.fragments.clone();
                fragments[position] = Fragment::Child(less);
                found.push(Node { kind: self.kind, fragments });
            }
        }
        found
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fragments.iter().try_for_each(|fragment| match fragment {
            Fragment::Text(text) => f.write_str(text),
            Fragment::Child(child) => child.fmt(f),
        })
    }
}

/// Metrics whose series match each other.
struct Group {
    selectors: &'static [&'static str],
    labels: &'static [&'static str],
    matchers: &'static [&'static str],
}

const GROUPS: [Group; 7] = [
    Group {
        selectors: &["requests_total", "errors_total", "inflight", "requests_total", "target_info"],
        labels: &["job", "instance", "code"],
        matchers: &["job=\"api\"", "code=~\"4..|5..\"", "instance!=\"a:1\"", "code!~\"5.*\"", "nope=\"\""],
    },
    Group {
        selectors: &["temperature", "level", "odd", "open"],
        labels: &["floor", "room"],
        matchers: &["floor=\"0\"", "room=~\"lab|.*f\"", "room!=\"hall\"", "floor=~\"1.?\""],
    },
    Group {
        selectors: &["churn_total", "gappy", "sparse"],
        labels: &["pod", "node"],
        matchers: &["node=\"n1\"", "pod=~\"p[0-4]\"", "pod!=\"p3\""],
    },
    Group {
        selectors: &["latency_seconds_bucket", "latency_seconds_bucket", "latency_seconds_sum", "weight"],
        labels: &["job", "le"],
        matchers: &["job=\"api\"", "le=\"+Inf\"", "job!=\"odd\"", "le!=\"much\""],
    },
    Group {
        selectors: &["size_bytes", "size_float", "depth", "size_bytes"],
        labels: &["job"],
        matchers: &["job=\"api\"", "job!=\"odd\"", "job=~\".+\""],
    },
    Group {
        selectors: &["wait_seconds", "weight", "mixed", "size_bytes", "depth"],
        labels: &["job"],
        matchers: &["job=\"api\"", "job!=\"odd\""],
    },
    Group {
        selectors: &["{\"my.metric\"}", "inflight", "{__name__=~\"inf.*|my.*\"}"],
        labels: &["a.b", "job", "ключ"],
        matchers: &["job=\"api\"", "\"a.b\"=\"ä\"", "\"ключ\"!=\"\""],
    },
];

/// Functions that Prometheus 3.5.3 does not have.
const NEWER: [&str; 10] = [
    "ts_of_first_over_time",
    "end",
    "first_over_time",
    "histogram_quantiles",
    "max_of",
    "min_of",
    "range",
    "start",
    "start_timestamp",
    "step",
];

/// Functions whose last bits depend on the mathematical library.
const LIBRARY: [&str; 21] = [
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "cos",
    "cosh",
    "exp",
    "ln",
    "log10",
    "log2",
    "sin",
    "sinh",
    "tan",
    "tanh",
    "histogram_quantile",
    "histogram_fraction",
    "histogram_stddev",
    "histogram_stdvar",
    "sqrt",
];

/// Calendar functions.
const DATES: [&str; 8] =
    ["hour", "minute", "month", "year", "day_of_month", "day_of_week", "day_of_year", "days_in_month"];

/// Functions that amplify small differences: their arguments must not depend on a library's last
/// bits.
const AMPLIFIERS: [&str; 11] = [
    "ceil",
    "floor",
    "round",
    "sgn",
    "changes",
    "resets",
    "ts_of_max_over_time",
    "ts_of_min_over_time",
    "sin",
    "cos",
    "tan",
];

pub(crate) fn has_histograms(text: &str) -> bool {
    ["size_", "depth", "wait_seconds", "mixed"].iter().any(|name| text.contains(name))
}

/// Returns whether 3.5 computes other numbers: its rates of histograms are not limited at zero, and
/// its changes count empty buckets of a layout.
pub(crate) fn differs_in_3_5(text: &str) -> bool {
    let made = ["rate(", "increase(", "changes("].iter().any(|name| text.contains(name));
    let filled = ["Inf", "NaN"].iter().any(|number| text.contains(number));
    has_histograms(text) && (made || filled)
}

/// Returns whether the last bits depend on a library or on the order of additions.
pub(crate) fn depends_on_library(text: &str) -> bool {
    // 3.14 adds histograms with compensated sums, 3.5 without.
    let added = has_histograms(text) && text.contains(" + ");
    // Results of functions have no order in 3.5; series of several metrics and sorted ones have
    // another order than in promlet.
    let grouped = ["sum", "avg", "std", "min(", "min by", "min without", "max(", "max by", "max without"];
    let grouped = grouped.iter().any(|name| text.contains(name));
    let several = text.contains("__name__=~") || text.contains("sort");
    let operator = text.contains(" ^ ") || text.contains(" atan2 ");
    let called = |name: &&str| text.contains(&format!("{name}("));
    added || grouped || several || operator || LIBRARY.iter().any(called)
}

const RANGES: [&str; 10] = ["15s", "47s", "1m", "90s", "3m30s", "5m", "10m", "20m", "1h", "14999ms"];

/// The range of time in which there are samples.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range {
    pub(crate) begin_ms: i64,
    pub(crate) end_ms: i64,
}

/// A generator of expressions.
pub(crate) struct Grammar<'c> {
    chance: &'c mut Chance,
    range: Range,
    /// Whether expressions may contain what Prometheus 3.5 does not know.
    whole_language: bool,
    group: &'static Group,
    /// The number of enclosing functions that amplify small differences.
    exact: usize,
    subqueries: usize,
}

impl<'c> Grammar<'c> {
    /// A generator of expressions that Prometheus 3.5 and promlet evaluate alike.
    pub(crate) fn shared(chance: &'c mut Chance, range: Range) -> Grammar<'c> {
        let group = chance.pick(&GROUPS);
        Grammar { chance, range, whole_language: false, group, exact: 0, subqueries: 0 }
    }

    /// A generator of expressions of the whole language.
    pub(crate) fn everything(chance: &'c mut Chance, range: Range) -> Grammar<'c> {
        Grammar { whole_language: true, ..Grammar::shared(chance, range) }
    }

    /// Returns an expression for a range query if `range`, else for an instant query.
    pub(crate) fn expression(&mut self, range: bool) -> Node {
        let depth = 1 + self.chance.below(4);
        match self.chance.below(24) {
            20 => self.of_histograms(),
            21 => self.unparenthesised(),
            22 | 23 => self.spelling(),
            0 => self.scalar(depth),
            1 if !range => self.matrix(depth),
            2 if !range => self.sorted(depth),
            _ => self.vector(depth),
        }
    }

    fn sorted(&mut self, depth: usize) -> Node {
        let name = *self.chance.pick(&["sort", "sort_desc", "sort_by_label", "sort_by_label_desc"]);
        let label = if name.contains("label") { self.sorted_by() } else { String::new() };
        let inner = self.vector(depth - 1);
        Node::leaf(ValueType::Vector, format!("{name}(")).child(inner).text(format!("{label})"))
    }

    fn vector(&mut self, depth: usize) -> Node {
        if depth == 0 {
            return self.selector();
        }
        match self.chance.below(100) {
            0..12 => self.selector(),
            12..32 => self.call(depth, ValueType::Vector),
            32..56 => self.call(depth, ValueType::Matrix),
            56..75 => self.aggregation(depth),
            75..94 => self.binary(depth),
            94..97 => Node::leaf(ValueType::Vector, "-").child(self.vector(depth - 1)),
            _ => Node::leaf(ValueType::Vector, "(").child(self.vector(depth - 1)).text(")"),
        }
    }

    fn selector(&mut self) -> Node {
        if self.chance.percent(8) {
            self.group = self.chance.pick(&GROUPS);
        }
        let text = self.selected() + &self.modifiers();
        // In 3.5, an operator after a computed offset belongs to the offset.
        let text = if text.contains(" offset (") || text.contains(" offset -(") {
            format!("({text})")
        } else {
            text
        };
        Node::leaf(ValueType::Vector, text)
    }

    fn selected(&mut self) -> String {
        let name = (*self.chance.pick(self.group.selectors)).to_owned();
        if !self.chance.percent(30) {
            return name;
        }
        let matcher = *self.chance.pick(self.group.matchers);
        match name.strip_suffix('}') {
            Some(inside) => format!("{inside}, {matcher}}}"),
            None => format!("{name}{{{matcher}}}"),
        }
    }

    fn modifiers(&mut self) -> String {
        let extension = *self.chance.pick(&[" anchored", " smoothed"]);
        let extended = self.whole_language && self.chance.percent(6);
        let time_modifiers = self.time_modifiers();
        if extended { format!("{extension}{time_modifiers}") } else { time_modifiers }
    }

    /// Returns `offset` and `@` modifiers.
    fn time_modifiers(&mut self) -> String {
        let mut text = String::new();
        if self.chance.percent(12) {
            let offset = self.offset();
            text += &format!(" offset {offset}");
        }
        if self.chance.percent(10) {
            let at = match self.chance.below(4) {
                0 => "start()".to_owned(),
                1 => "end()".to_owned(),
                _ => format!(
                    "{}",
                    self.chance.between(self.range.begin_ms, self.range.end_ms) as f64 / 1_000.0
                ),
            };
            text += &format!(" @ {at}");
        }
        text
    }

    fn matrix(&mut self, depth: usize) -> Node {
        let range = self.range();
        if depth == 0 || self.subqueries >= 2 || !self.chance.percent(25) {
            let text = format!("{}[{range}]{}", self.selected(), self.modifiers());
            return Node::leaf(ValueType::Matrix, text);
        }
        self.subqueries += 1;
        let range = if self.subqueries > 1 { "3m".to_owned() } else { range };
        let step = *self.chance.pick(&["", "15s", "1m", "47s", "30", "10s + 20s", "1m / 4"]);
        let modifiers = self.time_modifiers();
        let inner = self.vector(depth - 1);
        self.subqueries -= 1;
        let inner = Node::leaf(ValueType::Vector, "(").child(inner).text(")");
        Node::new(ValueType::Matrix).child(inner).text(format!("[{range}:{step}]{modifiers}"))
    }

    fn number(&mut self) -> String {
        let numbers = [
            "0", "1", "2", "3", "0.5", "-1", "10", "0.9", "0.25", "1.5", "-0.3", "100", "1e3", "1m", "0x1F",
            "NaN", "Inf", "-Inf", "1e-7", "1_000",
        ];
        (*self.chance.pick(&numbers)).to_owned()
    }

    fn scalar(&mut self, depth: usize) -> Node {
        if depth == 0 {
            let text = self.number();
            return Node::leaf(ValueType::Scalar, text);
        }
        match self.chance.below(10) {
            0 if self.whole_language && self.chance.percent(50) => {
                let name = *self.chance.pick(&["min_of", "max_of"]);
                let (left, right) = (self.scalar(depth - 1), self.scalar(depth - 1));
                Node::leaf(ValueType::Scalar, format!("{name}("))
                    .child(left)
                    .text(", ")
                    .child(right)
                    .text(")")
            }
            1 if self.whole_language && self.chance.percent(20) => {
                Node::leaf(ValueType::Scalar, *self.chance.pick(&["start()", "end()", "range()", "step()"]))
            }
            0 => Node::leaf(ValueType::Scalar, "time()"),
            1 => Node::leaf(ValueType::Scalar, "pi()"),
            2 | 3 => Node::leaf(ValueType::Scalar, "scalar(").child(self.vector(depth - 1)).text(")"),
            4 => {
                let op =
                    *self.chance.pick(&["+", "-", "*", "/", "%", "== bool", "< bool", "!= bool", ">= bool"]);
                let (left, right) = (self.scalar(depth - 1), self.scalar(depth - 1));
                Node::leaf(ValueType::Scalar, "(").child(left).text(format!(" {op} ")).child(right).text(")")
            }
            5 => Node::leaf(ValueType::Scalar, "-").child(self.scalar(depth - 1)),
            _ => Node::leaf(ValueType::Scalar, self.number()),
        }
    }

    fn label(&mut self) -> String {
        match self.chance.below(12) {
            0 => "nope".to_owned(),
            1 => "__name__".to_owned(),
            _ => (*self.chance.pick(self.group.labels)).to_owned(),
        }
    }

    /// Returns a label as it is written in a list of labels.
    fn listed(&mut self) -> String {
        let label = self.label();
        if label.is_ascii() && !label.contains('.') { label } else { format!("{label:?}") }
    }

    fn labels(&mut self, most: usize) -> String {
        let count = self.chance.below(most + 1);
        let mut labels: Vec<String> = (0..count).map(|_| self.listed()).collect();
        labels.sort();
        labels.dedup();
        labels.join(", ")
    }

    /// Returns a call that yields a vector and whose main argument has the type `of`.
    fn call(&mut self, depth: usize, of: ValueType) -> Node {
        let all = FUNCTIONS.iter().filter(|row| {
            row.returns == ValueType::Vector
                && (self.whole_language || !NEWER.contains(&row.name))
                && row.args.contains(&of)
        });
        let fits: Vec<&Function> =
            all.filter(|row| self.exact == 0 || !LIBRARY.contains(&row.name)).collect();
        // Functions with a difference listed in `comparison` are not applied to the data that shows
        // it.
        let differs = |row: &&Function| {
            let of_odd = DATES.contains(&row.name);
            let of_histograms = row.name == "double_exponential_smoothing";
            let labels = self.group.labels;
            !self.whole_language && (row.name == "mad_over_time" || of_odd && labels.contains(&"room"))
                || (of_histograms && labels == ["job"])
        };
        let fits: Vec<&Function> = fits.into_iter().filter(|row| !differs(row)).collect();
        let mut row = *self.chance.pick(&fits);
        // Functions of histograms are seldom useful for other series, but always for histograms.
        if of == ValueType::Vector {
            let of_histograms = self.group.labels == ["job"];
            if row.name.starts_with("histogram") != of_histograms && self.chance.percent(60) {
                row = *self.chance.pick(&fits);
            }
        }
        self.called(row, depth)
    }

    fn called(&mut self, row: &Function, depth: usize) -> Node {
        match row.name {
            "label_replace" => return self.label_replace(depth),
            "label_join" => return self.label_join(depth),
            "info" => return self.info(),
            "absent" | "absent_over_time" | "sort" | "sort_desc" if self.chance.percent(60) => {
                return self.selector();
            }
            _ => {}
        }
        if DATES.contains(&row.name) && !self.whole_language && self.group.labels.contains(&"room") {
            self.group = &GROUPS[0];
        }
        let amplifies = usize::from(AMPLIFIERS.contains(&row.name) || DATES.contains(&row.name));
        self.exact += amplifies;
        let mut node = Node::leaf(ValueType::Vector, format!("{}(", row.name));
        let optional =
            row.args.len() > 1 && row.name == "round" || row.args.len() == 1 && row.name.contains("day");
        let count = if optional && self.chance.percent(30) { row.args.len() - 1 } else { row.args.len() };
        for (i, kind) in row.args.iter().take(count).enumerate() {
            if i > 0 {
                node = node.text(", ");
            }
            node = match kind {
                // The calendar of numbers that are no times differs, see `comparison`.
                ValueType::Vector if DATES.contains(&row.name) && !self.whole_language => {
                    let text = self.selected();
                    node.child(Node::leaf(ValueType::Vector, text))
                }
                ValueType::Vector => node.child(self.vector(depth - 1)),
                ValueType::Matrix => node.child(self.matrix(depth - 1)),
                ValueType::Text => node.text(format!("{:?}", self.label())),
                ValueType::Scalar => {
                    let scalar = self.parameter(row.name, depth - 1);
                    node.child(scalar)
                }
            };
        }
        self.exact -= amplifies;
        let text = node.to_string();
        if row.name == "timestamp"
            && !self.whole_language
            && text.contains(" offset ")
            && text.contains(" @ ")
        {
            return Node::leaf(ValueType::Vector, format!("timestamp({})", self.selected()));
        }
        node.text(")")
    }

    /// Returns a scalar that usually makes sense for the function.
    fn parameter(&mut self, name: &str, depth: usize) -> Node {
        let likely: &[&str] = match name {
            "double_exponential_smoothing" => &["0.5", "0.1", "0.9"],
            "histogram_quantile" | "quantile_over_time" => &["0.5", "0.9", "0", "1", "0.99", "0.1"],
            "histogram_fraction" => &["0", "0.3", "2", "-Inf", "+Inf", "1"],
            "predict_linear" => &["60", "-300", "1h"],
            _ => &[],
        };
        if likely.is_empty() || self.chance.percent(20) {
            return if self.chance.percent(20) { self.scalar(depth) } else { self.scalar(0) };
        }
        Node::leaf(ValueType::Scalar, *self.chance.pick(likely))
    }

    fn label_replace(&mut self, depth: usize) -> Node {
        let (to, from) = (self.label(), self.label());
        let rule = *self.chance.pick(&[
            ("$1", "(.*)"),
            ("x-$1", "(.).*"),
            ("$2$1", "(.)(.*)"),
            ("${1}y", "(.+)"),
            ("", ".*"),
            ("all", "nothing like it"),
            ("$name", "(?P<name>[a-z]*).*"),
        ]);
        let inner = self.vector(depth - 1);
        Node::leaf(ValueType::Vector, "label_replace(")
            .child(inner)
            .text(format!(", {to:?}, {:?}, {from:?}, {:?})", rule.0, rule.1))
    }

    fn label_join(&mut self, depth: usize) -> Node {
        let mut text = format!(", {:?}, {:?}", self.label(), *self.chance.pick(&["-", "", ", "]));
        for _ in 0..self.chance.below(4) {
            text += &format!(", {:?}", self.label());
        }
        let inner = self.vector(depth - 1);
        Node::leaf(ValueType::Vector, "label_join(").child(inner).text(format!("{text})"))
    }

    fn info(&mut self) -> Node {
        // 3.5 treats info series as series to enrich.
        self.group = &GROUPS[0];
        let inner = Node::leaf(
            ValueType::Vector,
            *self.chance.pick(&[
                "requests_total",
                "inflight",
                "rate(requests_total[5m])",
                "sum by (job, instance) (errors_total)",
            ]),
        );
        let data = *self.chance.pick(&[
            "",
            ", {version=~\".+\"}",
            ", {zone=\"z-1\"}",
            ", {__name__=\"target_info\"}",
        ]);
        Node::leaf(ValueType::Vector, "info(").child(inner).text(format!("{data})"))
    }

    fn aggregation(&mut self, depth: usize) -> Node {
        let plain = ["count", "min", "max", "group", "sum", "avg", "stddev", "stdvar"];
        let plain = &plain[..if self.exact > 0 { 4 } else { 8 }];
        let with = ["topk", "bottomk", "quantile", "count_values", "limitk", "limit_ratio"];
        let with = &with[..if self.whole_language { 6 } else { 5 }];
        let has_parameter = self.chance.percent(30);
        let name = if has_parameter { *self.chance.pick(with) } else { *self.chance.pick(plain) };
        let grouping = match self.chance.below(3) {
            0 => String::new(),
            1 => format!(" by ({})", self.labels(2)),
            _ => format!(" without ({})", self.labels(2)),
        };
        let before = self.chance.percent(50);
        let mut node = Node::leaf(ValueType::Vector, name);
        node = node.text(if before { format!("{grouping} (") } else { "(".to_owned() });
        let amplifies = usize::from(name == "count_values");
        self.exact += amplifies;
        match name {
            "count_values" => node = node.text("\"value\", "),
            "limit_ratio" => node = node.text(*self.chance.pick(&["0.5, ", "-0.5, ", "1, ", "0, "])),
            "quantile" => node = node.child(self.parameter("quantile_over_time", depth - 1)).text(", "),
            "topk" | "bottomk" | "limitk" => {
                let k = *self.chance.pick(&["1", "2", "3", "5", "0", "2.9", "-1"]);
                node = node.text(format!("{k}, "));
            }
            _ => {}
        }
        let ends = if before { ")".to_owned() } else { format!("){grouping}") };
        if !self.whole_language && (name == "topk" || name == "bottomk") {
            return node.text(self.without_ties() + &ends);
        }
        // Which series of a function's result comes first is random in 3.5.
        let inner =
            if name == "limitk" && !self.whole_language { self.selector() } else { self.vector(depth - 1) };
        self.exact -= amplifies;
        node.child(inner).text(ends)
    }

    /// Returns an expression without equal values, because which of them `topk` keeps depends on
    /// the order of series.
    fn without_ties(&mut self) -> String {
        self.group = self.chance.pick(&GROUPS[..2]);
        let (gauge, counter) = ("temperature", "requests_total{job=\"api\"}");
        let main = if self.group.labels.contains(&"room") { gauge } else { counter };
        let modifiers = self.modifiers();
        let range = *self.chance.pick(&RANGES[1..]);
        match self.chance.below(3) {
            0 => format!("({main}{modifiers})"),
            1 => format!("avg_over_time({main}[{range}]{modifiers})"),
            _ => format!("deriv({main}[{range}]{modifiers})"),
        }
    }

    fn binary(&mut self, depth: usize) -> Node {
        let arithmetic = ["+", "-", "*", "/", "%", "^", "atan2"];
        let comparing = ["==", "!=", "<", "<=", ">", ">="];
        let sets = ["and", "or", "unless"];
        let which = self.chance.below(10);
        let trims = self.whole_language && self.chance.percent(6);
        let mut op = match which {
            5..8 if trims => *self.chance.pick(&["</", ">/"]),
            0..5 => *self.chance.pick(if self.exact > 0 { &arithmetic[..4] } else { &arithmetic }),
            5..8 => *self.chance.pick(&comparing),
            _ => *self.chance.pick(&sets),
        }
        .to_owned();
        let amplifies = usize::from((5..8).contains(&which) || op == "%");
        if (5..8).contains(&which) && !trims && self.chance.percent(40) {
            op += " bool";
        }
        self.exact += amplifies;
        let with_scalar = which < 8 && self.chance.percent(40);
        let group = self.group;
        let mut sides = [self.vector(depth - 1), Node::new(ValueType::Scalar)];
        sides[1] = if with_scalar {
            self.scalar(depth - 1)
        } else {
            if self.chance.percent(85) {
                self.group = group;
            }
            self.vector(depth - 1)
        };
        self.exact -= amplifies;
        if with_scalar && self.chance.percent(30) {
            sides.reverse();
        }
        if !with_scalar {
            op += &self.matching(which >= 8);
        }
        let [left, right] = sides;
        let node = Node::leaf(ValueType::Vector, "(").child(left).text(format!(" {op} "));
        node.child(right).text(")")
    }

    fn matching(&mut self, of_sets: bool) -> String {
        if self.chance.percent(40) {
            return String::new();
        }
        let word = *self.chance.pick(&["on", "ignoring", "ignoring"]);
        let mut text = format!(" {word} ({})", self.labels(2));
        if !of_sets && self.chance.percent(55) {
            let side = *self.chance.pick(&["group_left", "group_right"]);
            let on = text.clone();
            let include: Vec<String> = self
                .labels(1)
                .split(", ")
                .filter(|label| {
                    let is_matched = word == "on" && on.contains(*label);
                    !label.is_empty() && !is_matched
                })
                .map(str::to_owned)
                .collect();
            text += &format!(" {side} ({})", include.join(", "));
        }
        if self.whole_language && !of_sets && self.chance.percent(30) {
            text += *self.chance.pick(&[
                " fill (0)",
                " fill_left (NaN)",
                " fill_right (2)",
                " fill_left (1) fill_right (-1)",
            ]);
        }
        text
    }
}
