//! promql-parser behind its wall: the coded text in, our tree out. Nothing else names the parser.
//!
//! The coded text keeps the caps, so recursion here is bounded by them: at most one level for each open parenthesis,
//! sign, subquery and binary operator, some four hundred.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::SystemTime;

use promql_parser::label::Labels;
use promql_parser::parser::{self, Expr as Parsed, LabelModifier, VectorMatchCardinality};

use super::front::{Coded, Selected, Window, coded_operator};
use super::tree::{
    Aggregate, AggregateOp, Binary, BinaryOp, Call, Cardinality, Expr, Grouping, Length, Matching,
    MatrixSelector, Span, Subquery, VectorSelector,
};
use super::{Fault, types};

/// Parses the coded text and decodes its tree.
pub(super) fn parse(coded: &Coded) -> Result<Expr, Fault> {
    // The parser tells no place; where types are wrong, our own reading does.
    let parsed = guarded(&coded.text)
        .map_err(|message| types::find(coded).unwrap_or_else(|| Fault::new(0, message)))?;
    let mut decoder = Decoder {
        coded,
        calls: coded.calls.iter(),
        operators: coded.operators.iter(),
        signs: coded.signs.iter(),
        parens: coded.parens.iter(),
    };
    decoder.expr(&parsed).map(|placed| placed.expr)
}

#[cfg(test)]
thread_local! {
    /// How often this thread has called the parser: what the caps refuse must never reach it.
    pub(super) static PARSER_CALLS: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
}

/// A panic within the parser costs this query, not the process.
fn guarded(text: &str) -> Result<Parsed, String> {
    #[cfg(test)]
    PARSER_CALLS.set(PARSER_CALLS.get() + 1);
    let parsed = catch_unwind(AssertUnwindSafe(|| parser::parse(text)));
    parsed.unwrap_or_else(|_| Err("internal error: the parser failed on this expression".to_owned()))
}

/// The parser's tree is not what the coded text said: a bug of ours or of the parser's, never the user's fault.
struct Mismatch;

impl From<Mismatch> for Fault {
    fn from(_: Mismatch) -> Fault {
        Fault::new(0, "internal error: the grammar disagrees with the tokens")
    }
}

/// An expression and where it starts as it stands there: parentheses and signs before it are part of it.
struct Placed {
    expr: Expr,
    start: u32,
    /// The same without parentheses, which is how upstream counts for arguments and parameters.
    bare: u32,
}

impl Placed {
    fn at(start: u32, expr: Expr) -> Placed {
        Placed { expr, start, bare: start }
    }
}

struct Decoder<'c> {
    coded: &'c Coded,
    calls: std::slice::Iter<'c, Span>,
    operators: std::slice::Iter<'c, (BinaryOp, Span)>,
    signs: std::slice::Iter<'c, (bool, u32)>,
    parens: std::slice::Iter<'c, u32>,
}

impl Decoder<'_> {
    fn expr(&mut self, parsed: &Parsed) -> Result<Placed, Fault> {
        match parsed {
            Parsed::Paren(paren) => {
                let start = *self.parens.next().ok_or(Mismatch)?;
                Ok(Placed { start, ..self.expr(&paren.expr)? })
            }
            Parsed::Unary(unary) => self.unary(&unary.expr),
            Parsed::Binary(binary) => self.binary(binary),
            Parsed::Call(call) => self.call(call),
            Parsed::Aggregate(aggregate) => self.aggregate(aggregate),
            Parsed::Subquery(subquery) => self.subquery(subquery),
            _ => self.leaf(parsed),
        }
    }

    /// What holds no other expression: apart, so that each level of a deep one takes no stack for it.
    #[inline(never)]
    fn leaf(&mut self, parsed: &Parsed) -> Result<Placed, Fault> {
        match parsed {
            Parsed::StringLiteral(text) => {
                let place: usize = text.val.parse().map_err(|_| Mismatch)?;
                let (text, start) = self.coded.texts.get(place).cloned().ok_or(Mismatch)?;
                let expr = String::from_utf8(text).map_or_else(|e| Expr::Bytes(e.into_bytes()), Expr::Text);
                Ok(Placed::at(start, expr))
            }
            Parsed::VectorSelector(selector) => {
                let selector = self.selector(selector)?;
                Ok(Placed::at(selector.span.start, Expr::Vector(selector)))
            }
            Parsed::MatrixSelector(matrix) => {
                let selector = self.selector(&matrix.vs)?;
                let range = self.window(matrix.range)?.range;
                let start = selector.span.start;
                Ok(Placed::at(start, Expr::Matrix(Box::new(MatrixSelector { selector, range }))))
            }
            // The coded text has no bare numbers, and nobody registers extensions.
            _ => Err(Mismatch.into()),
        }
    }

    /// A sign before a literal belongs to it, a plus leaves nothing behind.
    fn unary(&mut self, operand: &Parsed) -> Result<Placed, Fault> {
        let (is_plus, start) = *self.signs.next().ok_or(Mismatch)?;
        let expr = match self.expr(operand)?.expr {
            expr if is_plus => expr,
            Expr::Number(value) => Expr::Number(-value),
            expr => Expr::Negate(Box::new(expr)),
        };
        Ok(Placed::at(start, expr))
    }

    fn binary(&mut self, binary: &parser::BinaryExpr) -> Result<Placed, Fault> {
        let Placed { expr: lhs, start, .. } = self.expr(&binary.lhs)?;
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
        Ok(Placed::at(start, expr))
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
        reason = "a place in a table, written by us; looked up, not trusted"
    )]
    fn fill(&self, place: Option<f64>) -> Result<Option<f64>, Mismatch> {
        let Some(place) = place else { return Ok(None) };
        let value = (place as usize).checked_sub(1).and_then(|at| self.coded.numbers.get(at));
        value.map(|(value, _)| Some(*value)).ok_or(Mismatch)
    }

    fn call(&mut self, call: &parser::Call) -> Result<Placed, Fault> {
        if let (parser::value::ValueType::Scalar, Some((value, start))) =
            (call.func.return_type, self.literal(call))
        {
            return Ok(Placed::at(start, Expr::Number(value)));
        }
        let span = *self.calls.next().ok_or(Mismatch)?;
        let (mut args, mut arg_starts) = (Vec::new(), Vec::new());
        for arg in &call.args.args {
            let Placed { expr, bare, .. } = self.expr(arg)?;
            args.push(expr);
            arg_starts.push(bare);
        }
        let expr = Expr::Call(Call { name: call.func.name.to_owned(), args, span, arg_starts });
        Ok(Placed::at(span.start, expr))
    }

    /// The number of `scalar(n0)`, and where it starts.
    fn literal(&self, call: &parser::Call) -> Option<(f64, u32)> {
        let [arg] = call.args.args.as_slice() else { return None };
        let Parsed::VectorSelector(selector) = &**arg else { return None };
        let place = selector.name.as_deref()?.strip_prefix('n')?;
        self.coded.numbers.get(place.parse::<usize>().ok()?).copied()
    }

    fn aggregate(&mut self, aggregate: &parser::AggregateExpr) -> Result<Placed, Fault> {
        let span = *self.calls.next().ok_or(Mismatch)?;
        let name = aggregate.op.to_string();
        let op = *AggregateOp::ALL.iter().find(|op| op.as_str() == name).ok_or(Mismatch)?;
        let (param, param_start) = match &aggregate.param {
            Some(param) => {
                let Placed { expr, bare, .. } = self.expr(param)?;
                (Some(expr), bare)
            }
            None => (None, span.start),
        };
        let Placed { expr, start: expr_start, .. } = self.expr(&aggregate.expr)?;
        let grouping = match &aggregate.modifier {
            None => Grouping::By(Vec::new()),
            Some(LabelModifier::Include(labels)) => Grouping::By(self.labels(labels)?),
            Some(LabelModifier::Exclude(labels)) => Grouping::Without(self.labels(labels)?),
        };
        let aggregate = Aggregate { op, expr, param, grouping, span, expr_start, param_start };
        Ok(Placed::at(span.start, Expr::Aggregate(Box::new(aggregate))))
    }

    fn subquery(&mut self, subquery: &parser::SubqueryExpr) -> Result<Placed, Fault> {
        let Placed { expr, start, .. } = self.expr(&subquery.expr)?;
        let Window { range, step, span } = self.window(subquery.range)?;
        let offset = self.offset(subquery.offset.as_ref())?;
        let at = self.at(subquery.at.as_ref())?;
        let subquery = Subquery { expr, range, step, offset, at, span };
        Ok(Placed::at(start, Expr::Subquery(Box::new(subquery))))
    }

    fn selector(&self, selector: &parser::VectorSelector) -> Result<VectorSelector, Mismatch> {
        let place = selector
            .name
            .as_deref()
            .and_then(|name| name.strip_prefix('s'))
            .and_then(|place| place.parse::<usize>().ok());
        let selected = place.and_then(|place| self.coded.selectors.get(place)).cloned().ok_or(Mismatch)?;
        let Selected { matchers, extension, span } = selected;
        let offset = self.offset(selector.offset.as_ref())?;
        let at = self.at(selector.at.as_ref())?;
        Ok(VectorSelector { matchers, offset, at, extension, span })
    }

    fn window(&self, place: std::time::Duration) -> Result<Window, Mismatch> {
        lookup(&self.coded.windows, place)
    }

    fn offset(&self, offset: Option<&parser::Offset>) -> Result<Length, Mismatch> {
        match offset {
            None => Ok(Length::Fixed(0)),
            Some(parser::Offset::Pos(place)) => lookup(&self.coded.offsets, *place),
            Some(parser::Offset::Neg(_)) => Err(Mismatch),
        }
    }

    fn at(&self, at: Option<&parser::AtModifier>) -> Result<Option<super::tree::AtModifier>, Mismatch> {
        match at {
            None => Ok(None),
            Some(parser::AtModifier::At(time)) => {
                let place = time.duration_since(SystemTime::UNIX_EPOCH).map_err(|_| Mismatch)?;
                lookup(&self.coded.times, place).map(Some)
            }
            Some(parser::AtModifier::Start | parser::AtModifier::End) => Err(Mismatch),
        }
    }

    fn labels(&self, labels: &Labels) -> Result<Vec<String>, Mismatch> {
        let decode = |label: &String| {
            let place = label.strip_prefix('l').and_then(|place| place.parse::<usize>().ok());
            place.and_then(|place| self.coded.labels.get(place)).cloned().ok_or(Mismatch)
        };
        labels.labels.iter().map(decode).collect()
    }
}

/// Seconds are places, counted from 1.
fn lookup<T: Clone>(table: &[T], place: std::time::Duration) -> Result<T, Mismatch> {
    let place = usize::try_from(place.as_secs()).ok().and_then(|place| place.checked_sub(1));
    place.and_then(|place| table.get(place)).cloned().ok_or(Mismatch)
}
