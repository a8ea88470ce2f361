//! Parses the coded text with promql-parser and converts the result to our tree. No other module
//! uses the parser.
//!
//! The coded text is within the caps, which bound the recursion here: at most one level for each
//! open parenthesis, sign, subquery and binary operator, about 400 in total.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::SystemTime;

use promql_parser::label::Labels;
use promql_parser::parser::{self, Expr as Parsed, LabelModifier, VectorMatchCardinality};

use super::encoder::{CodedText, EncodedSelector, EncodedWindow, coded_operator};
use super::tree::{
    Aggregate, AggregateOp, Binary, BinaryOp, Call, Cardinality, DurationExpr, Expr, Grouping, Matching,
    MatrixSelector, Span, Subquery, VectorSelector,
};
use super::{Fault, types};

/// Parses the coded text and decodes its tree.
pub(super) fn parse(coded: &CodedText) -> Result<Expr, Fault> {
    // The errors of the parser have no position, so `types` finds the position of type errors.
    let parsed = guarded(&coded.text)
        .map_err(|message| types::find(coded).unwrap_or_else(|| Fault::new(0, message)))?;
    let mut decoder = TreeDecoder {
        coded,
        calls: coded.calls.iter(),
        operators: coded.operators.iter(),
        signs: coded.signs.iter(),
        parens: coded.parens.iter(),
    };
    decoder.expr(&parsed).map(|positioned| positioned.expr)
}

#[cfg(test)]
thread_local! {
    /// The number of calls of the parser on this thread. A text that the caps refuse must not reach
    /// it.
    pub(super) static PARSER_CALLS: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
}

/// Calls the parser, and converts a panic to an error of this query.
fn guarded(text: &str) -> Result<Parsed, String> {
    #[cfg(test)]
    PARSER_CALLS.set(PARSER_CALLS.get() + 1);
    let parsed = catch_unwind(AssertUnwindSafe(|| parser::parse(text)));
    parsed.unwrap_or_else(|_| Err("internal error: the parser failed on this expression".to_owned()))
}

/// The tree of the parser does not match the coded text: a bug here or in the parser, never an
/// error of the user.
struct Mismatch;

impl From<Mismatch> for Fault {
    fn from(_: Mismatch) -> Fault {
        Fault::new(0, "internal error: the grammar disagrees with the tokens")
    }
}

/// An expression and its start in the text, including parentheses and signs before it.
struct PositionedExpr {
    expr: Expr,
    start: u32,
    /// The start without parentheses, which Prometheus uses for arguments and parameters.
    bare: u32,
}

impl PositionedExpr {
    fn at(start: u32, expr: Expr) -> PositionedExpr {
        PositionedExpr { expr, start, bare: start }
    }
}

struct TreeDecoder<'c> {
    coded: &'c CodedText,
    calls: std::slice::Iter<'c, Span>,
    operators: std::slice::Iter<'c, (BinaryOp, Span)>,
    signs: std::slice::Iter<'c, (bool, u32)>,
    parens: std::slice::Iter<'c, u32>,
}

impl TreeDecoder<'_> {
    fn expr(&mut self, parsed: &Parsed) -> Result<PositionedExpr, Fault> {
        match parsed {
            Parsed::Paren(paren) => {
                let start = *self.parens.next().ok_or(Mismatch)?;
                Ok(PositionedExpr { start, ..self.expr(&paren.expr)? })
            }
            Parsed::Unary(unary) => self.unary(&unary.expr),
            Parsed::Binary(binary) => self.binary(binary),
            Parsed::Call(call) => self.call(call),
            Parsed::Aggregate(aggregate) => self.aggregate(aggregate),
            Parsed::Subquery(subquery) => self.subquery(subquery),
            _ => self.leaf(parsed),
        }
    }

    /// Converts an expression without subexpressions. A separate function keeps its variables off
    /// the stack of the recursion.
    #[inline(never)]
    fn leaf(&mut self, parsed: &Parsed) -> Result<PositionedExpr, Fault> {
        match parsed {
            Parsed::StringLiteral(text) => {
                let index: usize = text.val.parse().map_err(|_| Mismatch)?;
                let (text, start) = self.coded.texts.get(index).cloned().ok_or(Mismatch)?;
                let expr = String::from_utf8(text).map_or_else(|e| Expr::Bytes(e.into_bytes()), Expr::Text);
                Ok(PositionedExpr::at(start, expr))
            }
            Parsed::VectorSelector(selector) => {
                let selector = self.selector(selector)?;
                Ok(PositionedExpr::at(selector.span.start, Expr::Vector(selector)))
            }
            Parsed::MatrixSelector(matrix) => {
                let selector = self.selector(&matrix.vs)?;
                let range = self.window(matrix.range)?.range;
                let start = selector.span.start;
                Ok(PositionedExpr::at(start, Expr::Matrix(Box::new(MatrixSelector { selector, range }))))
            }
            // The coded text has no bare numbers, and no extensions are registered.
            _ => Err(Mismatch.into()),
        }
    }

    /// Converts a sign: a sign before a literal becomes part of it, and a plus is dropped.
    fn unary(&mut self, operand: &Parsed) -> Result<PositionedExpr, Fault> {
        let (is_plus, start) = *self.signs.next().ok_or(Mismatch)?;
        let expr = match self.expr(operand)?.expr {
            expr if is_plus => expr,
            Expr::Number(value) => Expr::Number(-value),
            expr => Expr::Negate(Box::new(expr)),
        };
        Ok(PositionedExpr::at(start, expr))
    }

    fn binary(&mut self, binary: &parser::BinaryExpr) -> Result<PositionedExpr, Fault> {
        let PositionedExpr { expr: lhs, start, .. } = self.expr(&binary.lhs)?;
        let (op, span) = *self.operators.next().ok_or(Mismatch)?;
        if binary.op.to_string() != coded_operator(op).trim_end_matches(" bool") {
            return Err(Mismatch.into());
        }
        let rhs = self.expr(&binary.rhs)?.expr;
        let between_vectors = [&binary.lhs, &binary.rhs]
            .iter()
            .all(|side| side.value_type() == parser::value::ValueType::Vector);
        let matching = self.matching(binary)?;
        let fills = matching
            .as_ref()
            .is_some_and(|matching| matching.fill_left.is_some() || matching.fill_right.is_some());
        if fills && !between_vectors {
            return Err(Fault::at(span, "filling in missing series only allowed between vectors"));
        }
        let matching = matching.filter(|_| between_vectors);
        let returns_bool = binary.return_bool() && !op.is_trim();
        let expr = Expr::Binary(Box::new(Binary { op, lhs, rhs, returns_bool, matching, span, start }));
        Ok(PositionedExpr::at(start, expr))
    }

    fn matching(&self, binary: &parser::BinaryExpr) -> Result<Option<Matching>, Mismatch> {
        let Some(modifier) = &binary.modifier else { return Ok(None) };
        let (cardinality, include) = match &modifier.card {
            VectorMatchCardinality::OneToOne => (Cardinality::OneToOne, Vec::new()),
            VectorMatchCardinality::ManyToOne(labels) => (Cardinality::ManyToOne, self.labels(labels)?),
            VectorMatchCardinality::OneToMany(labels) => (Cardinality::OneToMany, self.labels(labels)?),
            VectorMatchCardinality::ManyToMany => (Cardinality::ManyToMany, Vec::new()),
        };
        let (on, labels) = match &modifier.matching {
            None => (false, Vec::new()),
            Some(LabelModifier::Include(labels)) => (true, self.labels(labels)?),
            Some(LabelModifier::Exclude(labels)) => (false, self.labels(labels)?),
        };
        let fill_left = self.fill(modifier.fill_values.lhs)?;
        let fill_right = self.fill(modifier.fill_values.rhs)?;
        let matching = Matching { on, labels, cardinality, include, fill_left, fill_right };
        Ok(Some(matching).filter(|matching| *matching != Matching::default()))
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an index that the encoder wrote; a wrong one finds no entry"
    )]
    fn fill(&self, index: Option<f64>) -> Result<Option<f64>, Mismatch> {
        let Some(index) = index else { return Ok(None) };
        let value = (index as usize).checked_sub(1).and_then(|at| self.coded.numbers.get(at));
        value.map(|(value, _)| Some(*value)).ok_or(Mismatch)
    }

    fn call(&mut self, call: &parser::Call) -> Result<PositionedExpr, Fault> {
        if let (parser::value::ValueType::Scalar, Some((value, start))) =
            (call.func.return_type, self.literal(call))
        {
            return Ok(PositionedExpr::at(start, Expr::Number(value)));
        }
        let span = *self.calls.next().ok_or(Mismatch)?;
        let (mut args, mut arg_starts) = (Vec::new(), Vec::new());
        for arg in &call.args.args {
            let PositionedExpr { expr, bare, .. } = self.expr(arg)?;
            args.push(expr);
            arg_starts.push(bare);
        }
        let expr = Expr::Call(Call { name: call.func.name.to_owned(), args, span, arg_starts });
        Ok(PositionedExpr::at(span.start, expr))
    }

    /// Returns the number for which `scalar(n0)` stands, and its start in the text.
    fn literal(&self, call: &parser::Call) -> Option<(f64, u32)> {
        let [arg] = call.args.args.as_slice() else { return None };
        let Parsed::VectorSelector(selector) = &**arg else { return None };
        let index = selector.name.as_deref()?.strip_prefix('n')?;
        self.coded.numbers.get(index.parse::<usize>().ok()?).copied()
    }

    fn aggregate(&mut self, aggregate: &parser::AggregateExpr) -> Result<PositionedExpr, Fault> {
        let span = *self.calls.next().ok_or(Mismatch)?;
        let name = aggregate.op.to_string();
        let op = *AggregateOp::ALL.iter().find(|op| op.as_str() == name).ok_or(Mismatch)?;
        let (param, param_start) = match &aggregate.param {
            Some(param) => {
                let PositionedExpr { expr, bare, .. } = self.expr(param)?;
                (Some(expr), bare)
            }
            None => (None, span.start),
        };
        let PositionedExpr { expr, start: expr_start, .. } = self.expr(&aggregate.expr)?;
        let grouping = match &aggregate.modifier {
            None => Grouping::By(Vec::new()),
            Some(LabelModifier::Include(labels)) => Grouping::By(self.labels(labels)?),
            Some(LabelModifier::Exclude(labels)) => Grouping::Without(self.labels(labels)?),
        };
        let aggregate = Aggregate { op, expr, param, grouping, span, expr_start, param_start };
        Ok(PositionedExpr::at(span.start, Expr::Aggregate(Box::new(aggregate))))
    }

    fn subquery(&mut self, subquery: &parser::SubqueryExpr) -> Result<PositionedExpr, Fault> {
        let PositionedExpr { expr, start, .. } = self.expr(&subquery.expr)?;
        let EncodedWindow { range, step, span } = self.window(subquery.range)?;
        let offset = self.offset(subquery.offset.as_ref())?;
        let at = self.at(subquery.at.as_ref())?;
        let subquery = Subquery { expr, range, step, offset, at, span };
        Ok(PositionedExpr::at(start, Expr::Subquery(Box::new(subquery))))
    }

    fn selector(&self, selector: &parser::VectorSelector) -> Result<VectorSelector, Mismatch> {
        let index = selector
            .name
            .as_deref()
            .and_then(|name| name.strip_prefix('s'))
            .and_then(|index| index.parse::<usize>().ok());
        let selected = index.and_then(|index| self.coded.selectors.get(index)).cloned().ok_or(Mismatch)?;
        let EncodedSelector { matchers, extension, span } = selected;
        let offset = self.offset(selector.offset.as_ref())?;
        let at = self.at(selector.at.as_ref())?;
        Ok(VectorSelector { matchers, offset, at, extension, span })
    }

    fn window(&self, index: std::time::Duration) -> Result<EncodedWindow, Mismatch> {
        lookup(&self.coded.windows, index)
    }

    fn offset(&self, offset: Option<&parser::Offset>) -> Result<DurationExpr, Mismatch> {
        match offset {
            None => Ok(DurationExpr::Fixed(0)),
            Some(parser::Offset::Pos(index)) => lookup(&self.coded.offsets, *index),
            Some(parser::Offset::Neg(_)) => Err(Mismatch),
        }
    }

    fn at(&self, at: Option<&parser::AtModifier>) -> Result<Option<super::tree::AtModifier>, Mismatch> {
        match at {
            None => Ok(None),
            Some(parser::AtModifier::At(time)) => {
                let index = time.duration_since(SystemTime::UNIX_EPOCH).map_err(|_| Mismatch)?;
                lookup(&self.coded.times, index).map(Some)
            }
            Some(parser::AtModifier::Start | parser::AtModifier::End) => Err(Mismatch),
        }
    }

    fn labels(&self, labels: &Labels) -> Result<Vec<String>, Mismatch> {
        let decode = |label: &String| {
            let index = label.strip_prefix('l').and_then(|index| index.parse::<usize>().ok());
            index.and_then(|index| self.coded.labels.get(index)).cloned().ok_or(Mismatch)
        };
        labels.labels.iter().map(decode).collect()
    }
}

/// Returns the entry at `index`, whose seconds count from 1.
fn lookup<T: Clone>(table: &[T], index: std::time::Duration) -> Result<T, Mismatch> {
    let index = usize::try_from(index.as_secs()).ok().and_then(|index| index.checked_sub(1));
    index.and_then(|index| table.get(index)).cloned().ok_or(Mismatch)
}
