//! Random expressions that have a type: every function, aggregation, operator and modifier that Prometheus 3.5 knows, or
//! that there is.

#[path = "shapes.rs"]
mod shapes;

use std::fmt;

use promlet::promql::syntax::tree::ValueType;
use promlet::promql::{FUNCTIONS, Function};

use super::chance::Chance;

/// A piece of an expression: it knows its parts, so that a wrong answer can be traced to the smallest of them.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) kind: ValueType,
    pieces: Vec<Piece>,
}

#[derive(Clone, Debug)]
enum Piece {
    Text(String),
    Child(Node),
}

impl Node {
    fn new(kind: ValueType) -> Node {
        Node { kind, pieces: Vec::new() }
    }

    fn leaf(kind: ValueType, text: impl Into<String>) -> Node {
        Node::new(kind).text(text)
    }

    fn text(mut self, text: impl Into<String>) -> Node {
        self.pieces.push(Piece::Text(text.into()));
        self
    }

    fn child(mut self, child: Node) -> Node {
        self.pieces.push(Piece::Child(child));
        self
    }

    fn children(&self) -> impl Iterator<Item = &Node> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Child(child) => Some(child),
            Piece::Text(_) => None,
        })
    }

    /// Puts something of any type somewhere within, so that types hardly fit any more.
    pub(crate) fn broken(&mut self, chance: &mut Chance) {
        let children: Vec<usize> = (0..self.pieces.len())
            .filter(|place| matches!(self.pieces.get(*place), Some(Piece::Child(_))))
            .collect();
        // What `info` does with series that it knows nothing of is another matter.
        let is_info = matches!(self.pieces.first(), Some(Piece::Text(text)) if text == "info(");
        if !children.is_empty() && !is_info && chance.percent(70) {
            let place = *chance.pick(&children);
            if let Some(Piece::Child(child)) = self.pieces.get_mut(place) {
                child.broken(chance);
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

    /// Expressions one step smaller than this one.
    pub(crate) fn smaller(&self) -> Vec<Node> {
        let mut found: Vec<Node> = self.children().cloned().collect();
        for (place, piece) in self.pieces.iter().enumerate() {
            let Piece::Child(child) = piece else { continue };
            for less in child.smaller().into_iter().filter(|less| less.kind == child.kind) {
                let mut pieces = self.pieces.clone();
                pieces[place] = Piece::Child(less);
                found.push(Node { kind: self.kind, pieces });
            }
        }
        found
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pieces.iter().try_for_each(|piece| match piece {
            Piece::Text(text) => f.write_str(text),
            Piece::Child(child) => child.fmt(f),
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

/// What Prometheus 3.5.3 does not know.
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

/// Functions whose last bit is the mathematical library's.
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

/// Functions of calendars.
const DATES: [&str; 8] =
    ["hour", "minute", "month", "year", "day_of_month", "day_of_week", "day_of_year", "days_in_month"];

/// Functions that make much of little: their arguments hold no last bits that are a library's.
const JUMPS: [&str; 11] = [
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

/// Whether 3.5 makes other numbers of it: rates of histograms know no zero before their first, and their changes count
/// a layout in which buckets are empty.
pub(crate) fn is_otherwise(text: &str) -> bool {
    let made = ["rate(", "increase(", "changes("].iter().any(|name| text.contains(name));
    let filled = ["Inf", "NaN"].iter().any(|number| text.contains(number));
    has_histograms(text) && (made || filled)
}

/// Whether its last bits are a library's, or those of sums in another order.
pub(crate) fn is_library(text: &str) -> bool {
    // 3.14 adds histograms up with what rounding took from them, 3.5 without.
    let added = has_histograms(text) && text.contains(" + ");
    // What functions made comes in no order in 3.5, series of several metrics and sorted ones in another than here.
    let grouped = ["sum", "avg", "std", "min(", "min by", "min without", "max(", "max by", "max without"];
    let grouped = grouped.iter().any(|name| text.contains(name));
    let several = text.contains("__name__=~") || text.contains("sort");
    let operator = text.contains(" ^ ") || text.contains(" atan2 ");
    let called = |name: &&str| text.contains(&format!("{name}("));
    added || grouped || several || operator || LIBRARY.iter().any(called)
}

const RANGES: [&str; 10] = ["15s", "47s", "1m", "90s", "3m30s", "5m", "10m", "20m", "1h", "14999ms"];

/// When there are samples.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range {
    pub(crate) begin_ms: i64,
    pub(crate) end_ms: i64,
}

/// Writes expressions.
pub(crate) struct Grammar<'c> {
    chance: &'c mut Chance,
    range: Range,
    /// What Prometheus 3.5 does not know is written, too.
    newest: bool,
    group: &'static Group,
    /// Inside so many things that make much of a last bit.
    exact: usize,
    subqueries: usize,
}

impl<'c> Grammar<'c> {
    /// Of what Prometheus 3.5 knows, and we and it answer alike.
    pub(crate) fn shared(chance: &'c mut Chance, range: Range) -> Grammar<'c> {
        let group = chance.pick(&GROUPS);
        Grammar { chance, range, newest: false, group, exact: 0, subqueries: 0 }
    }

    /// Of the whole language.
    pub(crate) fn everything(chance: &'c mut Chance, range: Range) -> Grammar<'c> {
        Grammar { newest: true, ..Grammar::shared(chance, range) }
    }

    /// An expression for an instant query, or for a range query where `range` says so.
    pub(crate) fn expression(&mut self, range: bool) -> Node {
        let depth = 1 + self.chance.below(4);
        match self.chance.below(24) {
            20 => self.of_histograms(),
            21 => self.unparenthesised(),
            22 | 23 => self.spelled(),
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
        // An operator after a computed offset is part of it in 3.5.
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
        let extended = self.newest && self.chance.percent(6);
        let moments = self.moments();
        if extended { format!("{extension}{moments}") } else { moments }
    }

    /// Of when something is taken.
    fn moments(&mut self) -> String {
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
        let modifiers = self.moments();
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
            0 if self.newest && self.chance.percent(50) => {
                let name = *self.chance.pick(&["min_of", "max_of"]);
                let (left, right) = (self.scalar(depth - 1), self.scalar(depth - 1));
                Node::leaf(ValueType::Scalar, format!("{name}("))
                    .child(left)
                    .text(", ")
                    .child(right)
                    .text(")")
            }
            1 if self.newest && self.chance.percent(20) => {
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

    /// A label as a list of them writes it.
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

    /// A call that answers a vector and whose main argument has the type `of`.
    fn call(&mut self, depth: usize, of: ValueType) -> Node {
        let all = FUNCTIONS.iter().filter(|row| {
            row.returns == ValueType::Vector
                && (self.newest || !NEWER.contains(&row.name))
                && row.args.contains(&of)
        });
        let fits: Vec<&Function> =
            all.filter(|row| self.exact == 0 || !LIBRARY.contains(&row.name)).collect();
        // Functions of which something is told in `answers` are not used on what it is told of.
        let differs = |row: &&Function| {
            let of_odd = DATES.contains(&row.name);
            let of_histograms = row.name == "double_exponential_smoothing";
            let labels = self.group.labels;
            !self.newest && (row.name == "mad_over_time" || of_odd && labels.contains(&"room"))
                || (of_histograms && labels == ["job"])
        };
        let fits: Vec<&Function> = fits.into_iter().filter(|row| !differs(row)).collect();
        let mut row = *self.chance.pick(&fits);
        // Those of histograms are rarely of use elsewhere, and everywhere there.
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
        if DATES.contains(&row.name) && !self.newest && self.group.labels.contains(&"room") {
            self.group = &GROUPS[0];
        }
        let jumps = usize::from(JUMPS.contains(&row.name) || DATES.contains(&row.name));
        self.exact += jumps;
        let mut node = Node::leaf(ValueType::Vector, format!("{}(", row.name));
        let optional =
            row.args.len() > 1 && row.name == "round" || row.args.len() == 1 && row.name.contains("day");
        let count = if optional && self.chance.percent(30) { row.args.len() - 1 } else { row.args.len() };
        for (i, kind) in row.args.iter().take(count).enumerate() {
            if i > 0 {
                node = node.text(", ");
            }
            node = match kind {
                // Of numbers that are no times the calendar is told in `answers`.
                ValueType::Vector if DATES.contains(&row.name) && !self.newest => {
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
        self.exact -= jumps;
        let text = node.to_string();
        if row.name == "timestamp" && !self.newest && text.contains(" offset ") && text.contains(" @ ") {
            return Node::leaf(ValueType::Vector, format!("timestamp({})", self.selected()));
        }
        node.text(")")
    }

    /// A scalar that makes sense for the function more often than not.
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
        // 3.5 takes the series that tell something for ones to tell something of.
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
        let with = &with[..if self.newest { 6 } else { 5 }];
        let takes = self.chance.percent(30);
        let name = if takes { *self.chance.pick(with) } else { *self.chance.pick(plain) };
        let grouping = match self.chance.below(3) {
            0 => String::new(),
            1 => format!(" by ({})", self.labels(2)),
            _ => format!(" without ({})", self.labels(2)),
        };
        let before = self.chance.percent(50);
        let mut node = Node::leaf(ValueType::Vector, name);
        node = node.text(if before { format!("{grouping} (") } else { "(".to_owned() });
        let jumps = usize::from(name == "count_values");
        self.exact += jumps;
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
        if !self.newest && (name == "topk" || name == "bottomk") {
            return node.text(self.without_ties() + &ends);
        }
        // Of what functions made, which series is the first is chance in 3.5.
        let inner = if name == "limitk" && !self.newest { self.selector() } else { self.vector(depth - 1) };
        self.exact -= jumps;
        node.child(inner).text(ends)
    }

    /// Of equal values, which `topk` keeps depends on the order in which series come.
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
        let trims = self.newest && self.chance.percent(6);
        let mut op = match which {
            5..8 if trims => *self.chance.pick(&["</", ">/"]),
            0..5 => *self.chance.pick(if self.exact > 0 { &arithmetic[..4] } else { &arithmetic }),
            5..8 => *self.chance.pick(&comparing),
            _ => *self.chance.pick(&sets),
        }
        .to_owned();
        let jumps = usize::from((5..8).contains(&which) || op == "%");
        if (5..8).contains(&which) && !trims && self.chance.percent(40) {
            op += " bool";
        }
        self.exact += jumps;
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
        self.exact -= jumps;
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
        if self.newest && !of_sets && self.chance.percent(30) {
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
