//! Finds the type error in an expression that the parser refused: the error that Prometheus reports
//! first, with its message and position. The errors of promql-parser have other messages and no
//! position.
//!
//! The coded text is parsed again, by precedence climbing, into a tree of types and positions. The
//! caps that `encoder` enforced bound its depth.

use crate::promql::functions::{Function, function};

use super::Fault;
use super::encoder::CodedText;
use super::tree::{AggregateOp, BinaryOp, Span, ValueType};

/// Returns the first type error, if there is one.
pub(super) fn find(coded: &CodedText) -> Option<Fault> {
    let pieces: Vec<&str> = coded.text.split_ascii_whitespace().collect();
    let mut reader = TypeReader {
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
        Err(ReadFailure::Fault(fault)) => Some(fault),
        Err(ReadFailure::Unreadable) => None,
    }
}

/// An expression and its start in the text.
struct TypedNode {
    start: u32,
    kind: TypedKind,
}

/// The kinds of expression that the type rules distinguish.
enum TypedKind {
    /// A literal or a selector.
    Leaf(ValueType),
    Paren(Box<TypedNode>),
    Sign(Box<TypedNode>),
    Subquery(Box<TypedNode>),
    Call {
        row: &'static Function,
        args: Vec<TypedNode>,
    },
    Aggregate {
        op: AggregateOp,
        args: Vec<TypedNode>,
    },
    Binary(Box<TypedOperation>),
}

/// A binary operation.
struct TypedOperation {
    op: BinaryOp,
    span: Span,
    returns_bool: bool,
    /// `on` or `ignoring` with at least one label.
    matches_labels: bool,
    /// `group_left` or `group_right`.
    groups: bool,
    lhs: TypedNode,
    rhs: TypedNode,
}

/// The reason why no tree was built.
enum ReadFailure {
    /// An aggregation has too few or too many arguments, which Prometheus reports before type
    /// errors.
    Fault(Fault),
    /// The text is not a text that `encoder` writes.
    Unreadable,
}

/// A parser of the coded text.
struct TypeReader<'c> {
    coded: &'c CodedText,
    pieces: &'c [&'c str],
    next: usize,
    calls: std::slice::Iter<'c, Span>,
    operators: std::slice::Iter<'c, (BinaryOp, Span)>,
    signs: std::slice::Iter<'c, (bool, u32)>,
    parens: std::slice::Iter<'c, u32>,
}

/// Returns the precedence of an operator, higher binding tighter, and whether it is
/// right-associative.
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

/// The precedence of a sign, which is that of `*`.
const SIGN: u8 = 5;

impl<'c> TypeReader<'c> {
    fn peek(&self) -> Option<&'c str> {
        self.pieces.get(self.next).copied()
    }

    fn take(&mut self, piece: &str) -> bool {
        let is_next = self.peek() == Some(piece);
        self.next += usize::from(is_next);
        is_next
    }

    fn expr(&mut self, least: u8) -> Result<TypedNode, ReadFailure> {
        let mut lhs = self.operand()?;
        loop {
            let Some((op, span)) = self.operators.as_slice().first().copied() else { return Ok(lhs) };
            let (strength, right_associative) = binding(op);
            let written = super::encoder::coded_operator(op).split(' ').next();
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
            let rhs = self.expr(if right_associative { strength } else { strength + 1 })?;
            let start = lhs.start;
            let operation = TypedOperation { op, span, returns_bool, matches_labels, groups, lhs, rhs };
            lhs = TypedNode { start, kind: TypedKind::Binary(Box::new(operation)) };
        }
    }

    /// Skips `( l1 , l2 )` and returns the number of labels.
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

    fn operand(&mut self) -> Result<TypedNode, ReadFailure> {
        let coded = self.coded;
        let piece = self.pieces.get(self.next).copied().ok_or(ReadFailure::Unreadable)?;
        self.next += 1;
        if piece == "-" {
            let start = self.signs.next().ok_or(ReadFailure::Unreadable)?.1;
            let inner = self.expr(SIGN + 1)?;
            return Ok(TypedNode { start, kind: TypedKind::Sign(Box::new(inner)) });
        }
        let mut node = if piece == "(" {
            let start = *self.parens.next().ok_or(ReadFailure::Unreadable)?;
            let inner = self.expr(0)?;
            if !self.take(")") {
                return Err(ReadFailure::Unreadable);
            }
            TypedNode { start, kind: TypedKind::Paren(Box::new(inner)) }
        } else if let Some(index) = index_between(piece, "\"", "\"") {
            let start = coded.texts.get(index).ok_or(ReadFailure::Unreadable)?.1;
            TypedNode { start, kind: TypedKind::Leaf(ValueType::Text) }
        } else if let Some(index) = index_between(piece, "scalar(n", ")") {
            let start = coded.numbers.get(index).ok_or(ReadFailure::Unreadable)?.1;
            TypedNode { start, kind: TypedKind::Leaf(ValueType::Scalar) }
        } else if matches!(self.peek(), Some("(" | "by" | "without")) {
            self.called(piece)?
        } else {
            let index = index_between(piece, "s", "").ok_or(ReadFailure::Unreadable)?;
            let start = coded.selectors.get(index).ok_or(ReadFailure::Unreadable)?.span.start;
            TypedNode { start, kind: TypedKind::Leaf(ValueType::Vector) }
        };
        while let Some(piece) = self.peek() {
            let start = node.start;
            if piece == "offset" || piece == "@" {
                self.next += 2;
            } else if piece.starts_with('[') {
                self.next += 1;
                let is_subquery = piece.ends_with(":]");
                let kind = if is_subquery {
                    TypedKind::Subquery(Box::new(node))
                } else {
                    TypedKind::Leaf(ValueType::Matrix)
                };
                node = TypedNode { start, kind };
            } else {
                break;
            }
        }
        Ok(node)
    }

    fn called(&mut self, name: &str) -> Result<TypedNode, ReadFailure> {
        let span = *self.calls.next().ok_or(ReadFailure::Unreadable)?;
        let op = AggregateOp::ALL.into_iter().find(|op| op.as_str() == name);
        if op.is_some() && (self.take("by") || self.take("without")) {
            self.labels();
        }
        let mut args = Vec::new();
        if !self.take("(") {
            return Err(ReadFailure::Unreadable);
        }
        while !self.take(")") {
            args.push(self.expr(0)?);
            if !self.take(",") && self.peek() != Some(")") {
                return Err(ReadFailure::Unreadable);
            }
        }
        let Some(op) = op else {
            let row = function(name).ok_or(ReadFailure::Unreadable)?;
            return Ok(TypedNode { start: span.start, kind: TypedKind::Call { row, args } });
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
            _ => return Ok(TypedNode { start: span.start, kind: TypedKind::Aggregate { op, args } }),
        };
        Err(ReadFailure::Fault(Fault::at(span, message)))
    }
}

fn is_label(piece: &str) -> bool {
    index_between(piece, "l", "").is_some()
}

/// Parses the number between the prefix `before` and the suffix `after`.
fn index_between(piece: &str, before: &str, after: &str) -> Option<usize> {
    piece.strip_prefix(before)?.strip_suffix(after)?.parse().ok()
}

/// Returns the type of the parameter of an aggregation, if it has one.
pub(super) const fn param(op: AggregateOp) -> Option<ValueType> {
    use AggregateOp::{Bottomk, CountValues, LimitRatio, Limitk, Quantile, Topk};
    match op {
        Topk | Bottomk | Quantile | Limitk | LimitRatio => Some(ValueType::Scalar),
        CountValues => Some(ValueType::Text),
        _ => None,
    }
}

/// Checks the types of an expression from the leaves up, and returns its type.
fn check(node: &TypedNode) -> Result<ValueType, Fault> {
    match &node.kind {
        TypedKind::Leaf(kind) => Ok(*kind),
        TypedKind::Paren(inner) => check(inner),
        TypedKind::Sign(inner) => match check(inner)? {
            kind @ (ValueType::Scalar | ValueType::Vector) => Ok(kind),
            other => {
                let message = "unary expression only allowed on expressions of type scalar or instant vector";
                Err(Fault::new(node.start as usize, format!("{message}, got {:?}", other.as_str())))
            }
        },
        TypedKind::Subquery(inner) => match check(inner)? {
            ValueType::Vector => Ok(ValueType::Matrix),
            other => {
                // Prometheus uses the short name of the type here.
                let got = if other == ValueType::Matrix { "matrix" } else { other.as_str() };
                let message = format!("subquery is only allowed on instant vector, got {got} instead");
                Err(Fault::new(node.start as usize, message))
            }
        },
        TypedKind::Call { row, args } => {
            check_count(row, args.len()).map_err(|message| Fault::new(node.start as usize, message))?;
            for (i, arg) in args.iter().enumerate() {
                let expected = row.arg(i).unwrap_or(ValueType::Scalar);
                expect(arg, expected, || format!("call to function {:?}", row.name))?;
            }
            Ok(row.returns)
        }
        TypedKind::Aggregate { op, args } => {
            let (last, before) =
                args.split_last().ok_or_else(|| Fault::new(node.start as usize, "internal error"))?;
            expect(last, ValueType::Vector, || "aggregation expression".to_owned())?;
            for (arg, expected) in before.iter().zip(param(*op)) {
                expect(arg, expected, || "aggregation parameter".to_owned())?;
            }
            Ok(ValueType::Vector)
        }
        TypedKind::Binary(operation) => operation.check(node.start),
    }
}

fn expect(node: &TypedNode, expected: ValueType, context: impl FnOnce() -> String) -> Result<(), Fault> {
    let got = check(node)?;
    if got == expected {
        return Ok(());
    }
    let message = format!("expected type {} in {}, got {}", expected.as_str(), context(), got.as_str());
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

impl TypedOperation {
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
