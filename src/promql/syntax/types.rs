//! What is wrong with the types of an expression that the parser refused: in Prometheus' words, at Prometheus' place, the
//! one that Prometheus would find first. The parser tells the words of its own and no place.
//!
//! The coded text is read once more, by precedence climbing, into a tree that knows types and places alone. Its depth is
//! bounded by the caps that `front` kept.

use crate::promql::functions::{Function, function};

use super::Fault;
use super::front::Coded;
use super::tree::{AggregateOp, BinaryOp, Span, ValueType};

/// The first error, where there is one.
pub(super) fn find(coded: &Coded) -> Option<Fault> {
    let pieces: Vec<&str> = coded.text.split_ascii_whitespace().collect();
    let mut reader = Reader {
        coded,
        pieces: &pieces,
        next: 0,
        calls: coded.calls.iter(),
        operators: coded.operators.iter(),
        signs: coded.signs.iter(),
        parens: coded.parens.iter(),
    };
    match reader.expr(0) {
        Ok(node) => check(&node).err(),
        Err(Lost::Fault(fault)) => Some(fault),
        Err(Lost::Unreadable) => None,
    }
}

/// A piece of the expression and where it starts.
struct Node {
    start: u32,
    kind: Kind,
}

enum Kind {
    /// A literal or a selector.
    Leaf(ValueType),
    Paren(Box<Node>),
    Sign(Box<Node>),
    Subquery(Box<Node>),
    Call {
        row: &'static Function,
        args: Vec<Node>,
    },
    Aggregate {
        op: AggregateOp,
        args: Vec<Node>,
    },
    Binary(Box<Operation>),
}

struct Operation {
    op: BinaryOp,
    span: Span,
    returns_bool: bool,
    /// `on` or `ignoring` with at least one label.
    matches_labels: bool,
    groups: bool,
    lhs: Node,
    rhs: Node,
}

/// Why there is no tree.
enum Lost {
    /// An aggregation that has too few or too many arguments, which is found before all types.
    Fault(Fault),
    /// The text is not what `front` writes.
    Unreadable,
}

struct Reader<'c> {
    coded: &'c Coded,
    pieces: &'c [&'c str],
    next: usize,
    calls: std::slice::Iter<'c, Span>,
    operators: std::slice::Iter<'c, (BinaryOp, Span)>,
    signs: std::slice::Iter<'c, (bool, u32)>,
    parens: std::slice::Iter<'c, u32>,
}

/// How strongly an operator binds, and whether it does so to the right.
const fn binding(op: BinaryOp) -> (u8, bool) {
    match op {
        BinaryOp::Or => (1, false),
        BinaryOp::And | BinaryOp::Unless => (2, false),
        BinaryOp::Add | BinaryOp::Sub => (4, false),
        BinaryOp::Mul | BinaryOp::Div | BinaryOp::Mod | BinaryOp::Atan2 => (SIGN, false),
        BinaryOp::Pow => (6, true),
        _ => (3, false),
    }
}

/// A sign binds as `*` does.
const SIGN: u8 = 5;

impl<'c> Reader<'c> {
    fn peek(&self) -> Option<&'c str> {
        self.pieces.get(self.next).copied()
    }

    fn take(&mut self, piece: &str) -> bool {
        let is_next = self.peek() == Some(piece);
        self.next += usize::from(is_next);
        is_next
    }

    fn expr(&mut self, least: u8) -> Result<Node, Lost> {
        let mut lhs = self.operand()?;
        loop {
            let Some((op, span)) = self.operators.as_slice().first().copied() else { return Ok(lhs) };
            let (strength, to_the_right) = binding(op);
            let written = super::front::coded_operator(op).split(' ').next();
            if self.peek() != written || strength < least {
                return Ok(lhs);
            }
            self.operators.next();
            self.next += 1;
            let returns_bool = self.take("bool") && !op.is_trim();
            let matches_labels = (self.take("on") || self.take("ignoring")) && self.labels() > 0;
            let groups = self.take("group_left") || self.take("group_right");
            if groups
                && self.peek() == Some("(")
                && self.pieces.get(self.next + 1).is_some_and(|p| is_label(p) || *p == ")")
            {
                self.labels();
            }
            while self.peek().is_some_and(|piece| piece.starts_with("fill")) {
                self.next += 2;
            }
            let rhs = self.expr(if to_the_right { strength } else { strength + 1 })?;
            let start = lhs.start;
            let operation = Operation { op, span, returns_bool, matches_labels, groups, lhs, rhs };
            lhs = Node { start, kind: Kind::Binary(Box::new(operation)) };
        }
    }

    /// Passes over `( l1 , l2 )`; how many labels there were.
    fn labels(&mut self) -> usize {
        let mut count = 0;
        if self.take("(") {
            while let Some(piece) = self.peek() {
                self.next += 1;
                match piece {
                    ")" => break,
                    _ => count += usize::from(is_label(piece)),
                }
            }
        }
        count
    }

    fn operand(&mut self) -> Result<Node, Lost> {
        let coded = self.coded;
        let piece = self.pieces.get(self.next).copied().ok_or(Lost::Unreadable)?;
        self.next += 1;
        if piece == "-" {
            let start = self.signs.next().ok_or(Lost::Unreadable)?.1;
            let inner = self.expr(SIGN + 1)?;
            return Ok(Node { start, kind: Kind::Sign(Box::new(inner)) });
        }
        let mut node = if piece == "(" {
            let start = *self.parens.next().ok_or(Lost::Unreadable)?;
            let inner = self.expr(0)?;
            if !self.take(")") {
                return Err(Lost::Unreadable);
            }
            Node { start, kind: Kind::Paren(Box::new(inner)) }
        } else if let Some(place) = place(piece, "\"", "\"") {
            let start = coded.texts.get(place).ok_or(Lost::Unreadable)?.1;
            Node { start, kind: Kind::Leaf(ValueType::Text) }
        } else if let Some(place) = place(piece, "scalar(n", ")") {
            let start = coded.numbers.get(place).ok_or(Lost::Unreadable)?.1;
            Node { start, kind: Kind::Leaf(ValueType::Scalar) }
        } else if matches!(self.peek(), Some("(" | "by" | "without")) {
            self.called(piece)?
        } else {
            let place = place(piece, "s", "").ok_or(Lost::Unreadable)?;
            let start = coded.selectors.get(place).ok_or(Lost::Unreadable)?.span.start;
            Node { start, kind: Kind::Leaf(ValueType::Vector) }
        };
        while let Some(piece) = self.peek() {
            let start = node.start;
            if piece == "offset" || piece == "@" {
                self.next += 2;
            } else if piece.starts_with('[') {
                self.next += 1;
                let is_subquery = piece.ends_with(":]");
                let kind =
                    if is_subquery { Kind::Subquery(Box::new(node)) } else { Kind::Leaf(ValueType::Matrix) };
                node = Node { start, kind };
            } else {
                break;
            }
        }
        Ok(node)
    }

    fn called(&mut self, name: &str) -> Result<Node, Lost> {
        let span = *self.calls.next().ok_or(Lost::Unreadable)?;
        let op = AggregateOp::ALL.into_iter().find(|op| op.as_str() == name);
        if op.is_some() && (self.take("by") || self.take("without")) {
            self.labels();
        }
        let mut args = Vec::new();
        if !self.take("(") {
            return Err(Lost::Unreadable);
        }
        while !self.take(")") {
            args.push(self.expr(0)?);
            if !self.take(",") && self.peek() != Some(")") {
                return Err(Lost::Unreadable);
            }
        }
        let Some(op) = op else {
            let row = function(name).ok_or(Lost::Unreadable)?;
            return Ok(Node { start: span.start, kind: Kind::Call { row, args } });
        };
        if self.take("by") || self.take("without") {
            self.labels();
        }
        let expected = if param(op).is_some() { 2 } else { 1 };
        let message = match args.len() {
            0 => "no arguments for aggregate expression provided".to_owned(),
            got if got != expected => format!(
                "wrong number of arguments for aggregate expression provided, expected {expected}, got {got}"
            ),
            _ => return Ok(Node { start: span.start, kind: Kind::Aggregate { op, args } }),
        };
        Err(Lost::Fault(Fault::at(span, message)))
    }
}

fn is_label(piece: &str) -> bool {
    place(piece, "l", "").is_some()
}

/// The number between `before` and `after`.
fn place(piece: &str, before: &str, after: &str) -> Option<usize> {
    piece.strip_prefix(before)?.strip_suffix(after)?.parse().ok()
}

/// The type of an aggregation's parameter.
pub(super) const fn param(op: AggregateOp) -> Option<ValueType> {
    use AggregateOp::{Bottomk, CountValues, LimitRatio, Limitk, Quantile, Topk};
    match op {
        Topk | Bottomk | Quantile | Limitk | LimitRatio => Some(ValueType::Scalar),
        CountValues => Some(ValueType::Text),
        _ => None,
    }
}

/// The type of an expression all of whose parts have types that fit.
fn check(node: &Node) -> Result<ValueType, Fault> {
    match &node.kind {
        Kind::Leaf(kind) => Ok(*kind),
        Kind::Paren(inner) => check(inner),
        Kind::Sign(inner) => match check(inner)? {
            kind @ (ValueType::Scalar | ValueType::Vector) => Ok(kind),
            other => {
                let words = "unary expression only allowed on expressions of type scalar or instant vector";
                Err(Fault::new(node.start as usize, format!("{words}, got {:?}", other.as_str())))
            }
        },
        Kind::Subquery(inner) => match check(inner)? {
            ValueType::Vector => Ok(ValueType::Matrix),
            other => {
                // Here upstream tells the short name.
                let got = if other == ValueType::Matrix { "matrix" } else { other.as_str() };
                let message = format!("subquery is only allowed on instant vector, got {got} instead");
                Err(Fault::new(node.start as usize, message))
            }
        },
        Kind::Call { row, args } => {
            check_count(row, args.len()).map_err(|message| Fault::new(node.start as usize, message))?;
            for (i, arg) in args.iter().enumerate() {
                let expected = row.arg(i).unwrap_or(ValueType::Scalar);
                expect(arg, expected, || format!("call to function {:?}", row.name))?;
            }
            Ok(row.returns)
        }
        Kind::Aggregate { op, args } => {
            let (last, before) =
                args.split_last().ok_or_else(|| Fault::new(node.start as usize, "internal error"))?;
            expect(last, ValueType::Vector, || "aggregation expression".to_owned())?;
            for (arg, expected) in before.iter().zip(param(*op)) {
                expect(arg, expected, || "aggregation parameter".to_owned())?;
            }
            Ok(ValueType::Vector)
        }
        Kind::Binary(operation) => operation.check(node.start),
    }
}

fn expect(node: &Node, expected: ValueType, place: impl FnOnce() -> String) -> Result<(), Fault> {
    let got = check(node)?;
    if got == expected {
        return Ok(());
    }
    let message = format!("expected type {} in {}, got {}", expected.as_str(), place(), got.as_str());
    Err(Fault::new(node.start as usize, message))
}

fn check_count(row: &Function, got: usize) -> Result<(), String> {
    let (least, most) = (row.args_min(), row.args_max());
    let expected = match most {
        Some(most) if most == least && got != least => format!("{least}"),
        _ if got < least => format!("at least {least}"),
        Some(most) if got > most => format!("at most {most}"),
        _ => return Ok(()),
    };
    Err(format!("expected {expected} argument(s) in call to {:?}, got {got}", row.name))
}

impl Operation {
    fn check(&self, start: u32) -> Result<ValueType, Fault> {
        let (left, right) = (check(&self.lhs)?, check(&self.rhs)?);
        let op = self.op;
        if self.returns_bool && !op.is_comparison() {
            return Err(Fault::at(self.span, "bool modifier can only be used on comparison operators"));
        }
        let scalars = (left == ValueType::Scalar, right == ValueType::Scalar);
        if scalars == (true, true) && op.is_comparison() && !self.returns_bool {
            return Err(Fault::at(self.span, "comparisons between scalars must use BOOL modifier"));
        }
        for (side, kind) in [(&self.lhs, left), (&self.rhs, right)] {
            if !matches!(kind, ValueType::Scalar | ValueType::Vector) {
                let message = "binary expression must contain only scalar and instant vector types";
                return Err(Fault::new(side.start as usize, message));
            }
        }
        let at_start = |message: String| Err(Fault::new(start as usize, message));
        if scalars != (false, false) {
            if self.matches_labels {
                return at_start("vector matching only allowed between instant vectors".into());
            }
            if op.is_set() {
                let name = op.as_str();
                return at_start(format!("set operator {name:?} not allowed in binary scalar expression"));
            }
        } else if op.is_set() && self.groups {
            return at_start(format!("no grouping allowed for {:?} operation", op.as_str()));
        }
        Ok(if scalars == (true, true) { ValueType::Scalar } else { ValueType::Vector })
    }
}
