//! Prints a tree as canonical text. Parsing that text gives the same tree apart from spans, so two
//! expressions with the same text are equivalent. Parentheses are printed only where precedence
//! requires them.
//!
//! The recursion follows the tree, whose depth the caps of the parser bound.

use std::fmt::{Display, Formatter, Result, Write};

use crate::model::{METRIC_NAME, MatchOp, Matcher, is_label_name, is_metric_name};

use super::encoder::{is_number_word, is_reserved};
use super::tree::{
    Aggregate, AtModifier, Binary, BinaryOp, Cardinality, DurationExpr, Expr, Extension, Grouping, Matching,
    Subquery, VectorSelector,
};

/// The precedence of a sign, which is that of `*`. Higher numbers bind tighter, in the order of the
/// grammar of Prometheus.
const SIGN: u8 = 5;
const POW: u8 = 6;
const PRIMARY: u8 = 7;

/// Returns the precedence of an operator.
fn strength(op: BinaryOp) -> u8 {
    match op {
        BinaryOp::Or => 1,
        BinaryOp::And | BinaryOp::Unless => 2,
        BinaryOp::Add | BinaryOp::Sub => 4,
        BinaryOp::Mul | BinaryOp::Div | BinaryOp::Mod | BinaryOp::Atan2 => 5,
        BinaryOp::Pow => POW,
        _ => 3,
    }
}

fn has_sign(expr: &Expr) -> bool {
    match expr {
        Expr::Number(value) => value.is_sign_negative() && !value.is_nan(),
        Expr::Negate(_) => true,
        _ => false,
    }
}

fn strength_of(expr: &Expr) -> u8 {
    match expr {
        Expr::Binary(binary) => strength(binary.op),
        expr if has_sign(expr) => SIGN,
        _ => PRIMARY,
    }
}

fn within(f: &mut Formatter<'_>, expr: &Expr, parentheses: bool) -> Result {
    if parentheses { write!(f, "({expr})") } else { write!(f, "{expr}") }
}

impl Display for Expr {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Expr::Number(value) => number(f, *value),
            Expr::Text(text) => quoted(f, text),
            Expr::Bytes(bytes) => quoted_bytes(f, bytes),
            Expr::Vector(selector) => {
                matchers(f, &selector.matchers)?;
                extension(f, selector.extension)?;
                modifiers(f, selector.at, &selector.offset)
            }
            Expr::Matrix(matrix) => {
                let VectorSelector { matchers: tests, offset, at, .. } = &matrix.selector;
                matchers(f, tests)?;
                write!(f, "[{}]", matrix.range)?;
                extension(f, matrix.selector.extension)?;
                modifiers(f, *at, offset)
            }
            Expr::Subquery(subquery) => print_subquery(f, subquery),
            Expr::Negate(operand) => {
                f.write_char('-')?;
                within(f, operand, operand.needs_parentheses_after_minus())
            }
            Expr::Binary(binary) => print_binary(f, binary),
            Expr::Call(call) => {
                write!(f, "{}(", call.name)?;
                for (index, arg) in call.args.iter().enumerate() {
                    write!(f, "{}{arg}", if index == 0 { "" } else { ", " })?;
                }
                f.write_char(')')
            }
            Expr::Aggregate(aggregate) => print_aggregate(f, aggregate),
        }
    }
}

impl Subquery {
    /// Returns whether its text has parentheses around the inner expression.
    pub fn needs_parentheses(&self) -> bool {
        strength_of(&self.expr) < PRIMARY
    }
}

impl Binary {
    /// Returns whether its text has parentheses around the left and around the right operand.
    pub fn need_parentheses(&self) -> (bool, bool) {
        let own = strength(self.op);
        let right_associative = self.op == BinaryOp::Pow;
        let (left, right) = (strength_of(&self.lhs), strength_of(&self.rhs));
        // A sign on the right needs no parentheses, because no operator to its left can bind its
        // operand.
        let loose = right < own || (right == own && !right_associative);
        (left < own || (left == own && right_associative), loose && !has_sign(&self.rhs))
    }
}

impl Expr {
    /// Returns whether its text has parentheses as the operand of a minus.
    pub fn needs_parentheses_after_minus(&self) -> bool {
        strength_of(self) <= SIGN && !has_sign(self)
    }
}

fn print_subquery(f: &mut Formatter<'_>, subquery: &Subquery) -> Result {
    within(f, &subquery.expr, subquery.needs_parentheses())?;
    write!(f, "[{}:", subquery.range)?;
    if let Some(step) = &subquery.step {
        write!(f, "{step}")?;
    }
    f.write_char(']')?;
    modifiers(f, subquery.at, &subquery.offset)
}

fn print_binary(f: &mut Formatter<'_>, binary: &Binary) -> Result {
    let (left, right) = binary.need_parentheses();
    within(f, &binary.lhs, left)?;
    write!(f, " {} ", binary.op.as_str())?;
    if binary.returns_bool {
        f.write_str("bool ")?;
    }
    if let Some(matching) = &binary.matching {
        print_matching(f, matching)?;
    }
    within(f, &binary.rhs, right)
}

fn print_matching(f: &mut Formatter<'_>, matching: &Matching) -> Result {
    let group = match matching.cardinality {
        Cardinality::ManyToOne => Some("group_left"),
        Cardinality::OneToMany => Some("group_right"),
        Cardinality::OneToOne | Cardinality::ManyToMany => None,
    };
    if matching.on || !matching.labels.is_empty() || group.is_some() {
        write!(f, "{} ", if matching.on { "on" } else { "ignoring" })?;
        labels(f, &matching.labels)?;
        f.write_char(' ')?;
    }
    if let Some(group) = group {
        write!(f, "{group} ")?;
        labels(f, &matching.include)?;
        f.write_char(' ')?;
    }
    let fills = match (matching.fill_left, matching.fill_right) {
        (Some(left), Some(right)) if left.to_bits() == right.to_bits() => [("fill", Some(left)), ("", None)],
        (left, right) => [("fill_left", left), ("fill_right", right)],
    };
    for (name, value) in fills {
        if let Some(value) = value {
            write!(f, "{name} (")?;
            number(f, value)?;
            f.write_str(") ")?;
        }
    }
    Ok(())
}

fn print_aggregate(f: &mut Formatter<'_>, aggregate: &Aggregate) -> Result {
    f.write_str(aggregate.op.as_str())?;
    let clause = match &aggregate.grouping {
        Grouping::By(names) if names.is_empty() => None,
        Grouping::By(names) => Some(("by", names)),
        Grouping::Without(names) => Some(("without", names)),
    };
    if let Some((clause, names)) = clause {
        write!(f, " {clause} ")?;
        labels(f, names)?;
        f.write_char(' ')?;
    }
    f.write_char('(')?;
    if let Some(param) = &aggregate.param {
        write!(f, "{param}, ")?;
    }
    write!(f, "{})", aggregate.expr)
}

fn extension(f: &mut Formatter<'_>, extension: Option<Extension>) -> Result {
    extension.map_or(Ok(()), |extension| write!(f, " {}", extension.as_str()))
}

fn modifiers(f: &mut Formatter<'_>, at: Option<AtModifier>, offset: &DurationExpr) -> Result {
    match at {
        None => {}
        Some(AtModifier::Start) => f.write_str(" @ start()")?,
        Some(AtModifier::End) => f.write_str(" @ end()")?,
        Some(AtModifier::Time(time)) => {
            let sign = if time.as_ms() < 0 { "-" } else { "" };
            let ms = time.as_ms().unsigned_abs();
            write!(f, " @ {sign}{}", ms / 1000)?;
            if !ms.is_multiple_of(1000) {
                write!(f, ".{:03}", ms % 1000)?;
            }
        }
    }
    match offset {
        DurationExpr::Fixed(0) => Ok(()),
        DurationExpr::Fixed(_) => write!(f, " offset {offset}"),
        DurationExpr::Computed(formula) => write!(f, " offset ({formula})"),
    }
}

fn matchers(f: &mut Formatter<'_>, matchers: &[Matcher]) -> Result {
    let mut names = matchers.iter().filter(|matcher| matcher.name() == METRIC_NAME);
    let named = match (names.next(), names.next()) {
        (Some(name), None) if name.op() == MatchOp::Equal && !name.value().is_empty() => Some(name.value()),
        _ => None,
    };
    let in_front = named.filter(|name| is_bare_metric_name(name));
    if let Some(name) = in_front {
        f.write_str(name)?;
        if matchers.len() == 1 {
            return Ok(());
        }
    }
    f.write_char('{')?;
    let mut comma = "";
    if let Some(name) = named.filter(|_| in_front.is_none()) {
        quoted(f, name)?;
        comma = ", ";
    }
    for matcher in matchers {
        if named.is_some() && matcher.name() == METRIC_NAME {
            continue;
        }
        f.write_str(comma)?;
        comma = ", ";
        label(f, matcher.name())?;
        f.write_str(matcher.op().as_str())?;
        quoted(f, matcher.value())?;
    }
    f.write_char('}')
}

fn is_bare_metric_name(name: &str) -> bool {
    is_metric_name(name) && !is_reserved(name)
}

fn labels(f: &mut Formatter<'_>, names: &[String]) -> Result {
    f.write_char('(')?;
    for (index, name) in names.iter().enumerate() {
        f.write_str(if index == 0 { "" } else { ", " })?;
        label(f, name)?;
    }
    f.write_char(')')
}

fn label(f: &mut Formatter<'_>, name: &str) -> Result {
    let bare = is_label_name(name) && !is_number_word(name);
    if bare { f.write_str(name) } else { quoted(f, name) }
}

/// Writes the shortest decimal that parses as the same double.
pub(super) fn number(f: &mut Formatter<'_>, value: f64) -> Result {
    let size = value.abs();
    if value.is_nan() {
        f.write_str("NaN")
    } else if size.is_infinite() {
        f.write_str(if value < 0.0 { "-Inf" } else { "+Inf" })
    } else if size != 0.0 && !(1e-6..1e21).contains(&size) {
        write!(f, "{value:e}")
    } else {
        write!(f, "{value}")
    }
}

/// Writes a string in double quotes with the escapes of Go.
fn quoted(f: &mut Formatter<'_>, text: &str) -> Result {
    f.write_char('"')?;
    escaped(f, text)?;
    f.write_char('"')
}

/// Writes bytes that are not UTF-8 as `\xff`, and all others like [`quoted`].
fn quoted_bytes(f: &mut Formatter<'_>, bytes: &[u8]) -> Result {
    f.write_char('"')?;
    for chunk in bytes.utf8_chunks() {
        escaped(f, chunk.valid())?;
        for byte in chunk.invalid() {
            write!(f, "\\x{byte:02x}")?;
        }
    }
    f.write_char('"')
}

fn escaped(f: &mut Formatter<'_>, text: &str) -> Result {
    for character in text.chars() {
        match character {
            '"' => f.write_str("\\\"")?,
            '\\' => f.write_str("\\\\")?,
            '\n' => f.write_str("\\n")?,
            '\r' => f.write_str("\\r")?,
            '\t' => f.write_str("\\t")?,
            control if control.is_control() => write!(f, "\\u{:04x}", u32::from(control))?,
            other => f.write_char(other)?,
        }
    }
    Ok(())
}
