//! Encodes operands, calls, parentheses, and the operators between expressions.

use super::super::Fault;
use super::super::lex::{Token, TokenKind};
use super::super::literal;
use super::super::tree::{BinaryOp, Extension, Span};
use super::{
    ExpectedToken, LastOperand, OpenParen, ParenKind, TokenEncoder, is_aggregation, is_number_word,
    is_reserved, number_word,
};
use crate::promql::functions::function;

/// The feature switch of functions and aggregations that are experimental in Prometheus.
const EXPERIMENTAL_FUNCTIONS: &str = "promql-experimental-functions";

impl TokenEncoder<'_> {
    /// Reads a sign, an opening parenthesis, or a whole operand.
    pub(super) fn operand(&mut self) -> Result<(), Fault> {
        let Some(token) = self.peek() else { return Err(self.unexpected(&self.context(), "")) };
        match token.kind {
            TokenKind::Add | TokenKind::Sub => {
                self.check_depth(1, token.span)?;
                self.next += 1;
                self.depth += 1;
                self.coded.signs.push((token.kind == TokenKind::Add, token.span.start));
                self.write(format_args!("-"));
                Ok(())
            }
            TokenKind::LeftParen => {
                self.coded.parens.push(token.span.start);
                self.open(ParenKind::Paren, token.span.start)
            }
            TokenKind::RightParen => self.close_empty(token),
            TokenKind::Number => {
                self.next += 1;
                let value =
                    literal::number(self.word(token)).map_err(|message| Fault::at(token.span, message))?;
                self.number(value, token.span);
                Ok(())
            }
            TokenKind::Text => {
                self.next += 1;
                let text = literal::bytes(self.word(token))
                    .map_err(|fault| fault.shifted(token.span.start as usize))?;
                self.write(format_args!("\"{}\"", self.coded.texts.len()));
                self.coded.texts.push((text, token.span.start));
                self.operand_done(LastOperand::Other, token.span.start, 0);
                Ok(())
            }
            TokenKind::LeftBrace => self.selector(None),
            TokenKind::Word => self.name(token),
            _ => Err(self.unexpected(&self.context(), "")),
        }
    }

    /// Decodes a string token that is a label name or value.
    pub(super) fn decode(&self, token: Token) -> Result<String, Fault> {
        literal::string(self.word(token)).map_err(|fault| fault.shifted(token.span.start as usize))
    }

    fn number(&mut self, value: f64, span: Span) {
        self.write(format_args!("scalar(n{})", self.coded.numbers.len()));
        self.coded.numbers.push((value, span.start));
        self.operand_done(LastOperand::Other, span.start, 0);
    }

    fn name(&mut self, token: Token) -> Result<(), Fault> {
        let word = self.word(token);
        let before_paren = self.peek_kind(1) == Some(TokenKind::LeftParen);
        if is_number_word(word) {
            self.next += 1;
            self.number(number_word(word), token.span);
            return Ok(());
        }
        if is_aggregation(word) && (before_paren || self.is_clause(1)) {
            return self.aggregation(token);
        }
        if is_reserved(word) {
            return Err(self.unexpected(&self.context(), ""));
        }
        if before_paren {
            return self.call(token);
        }
        self.next += 1;
        self.selector(Some(token))
    }

    /// Returns whether the token `ahead` of the next one is `by` or `without`.
    fn is_clause(&self, ahead: usize) -> bool {
        let word = self.tokens.get(self.next + ahead).filter(|token| token.kind == TokenKind::Word);
        word.map(|token| self.word(*token))
            .is_some_and(|word| word.eq_ignore_ascii_case("by") || word.eq_ignore_ascii_case("without"))
    }

    fn aggregation(&mut self, token: Token) -> Result<(), Fault> {
        let name = self.word(token).to_ascii_lowercase();
        let experimental = matches!(name.as_str(), "limitk" | "limit_ratio");
        if experimental && !self.caps.features.experimental_functions {
            let message = format!(
                "{name}() is experimental and must be enabled with --enable-feature={EXPERIMENTAL_FUNCTIONS}"
            );
            return Err(Fault::at(token.span, message));
        }
        self.next += 1;
        self.write(format_args!("{name}"));
        let has_grouping = self.is_clause(0);
        if has_grouping {
            self.grouping()?;
        }
        let index = self.begin_call(token.span);
        self.open(ParenKind::Aggregate { index, has_grouping }, token.span.start)
    }

    fn grouping(&mut self) -> Result<(), Fault> {
        if let Some(clause) = self.take(TokenKind::Word) {
            self.write(format_args!("{}", self.word(clause).to_ascii_lowercase()));
        }
        self.labels(" in grouping opts")
    }

    fn call(&mut self, token: Token) -> Result<(), Fault> {
        let word = self.word(token);
        // Checked here, because the parser accepts a function that Prometheus does not have, and
        // its errors have no position.
        let Some(row) = function(word) else {
            return Err(Fault::at(token.span, format!("unknown function with name {word:?}")));
        };
        if row.experimental && !self.caps.features.experimental_functions {
            let message =
                format!("function {word:?} is not enabled (--enable-feature={EXPERIMENTAL_FUNCTIONS})");
            return Err(Fault::at(token.span, message));
        }
        self.next += 1;
        self.write(format_args!("{word}"));
        let index = self.begin_call(token.span);
        self.open(ParenKind::Call { index, is_info: word == "info" }, token.span.start)
    }

    fn begin_call(&mut self, span: Span) -> usize {
        self.coded.calls.push(span);
        self.coded.calls.len() - 1
    }

    fn open(&mut self, kind: ParenKind, offset: u32) -> Result<(), Fault> {
        let paren = self.expect(TokenKind::LeftParen, " in aggregation", "\"(\"")?;
        self.check_depth(1, paren.span)?;
        self.write(format_args!("("));
        self.stack.push(OpenParen {
            kind,
            args: 0,
            depth_outside: self.depth,
            depth_base_outside: self.depth_base,
            subqueries_outside: self.subqueries_before,
            offset,
        });
        self.depth += 1;
        self.depth_base = self.depth;
        self.subqueries_before = 0;
        self.state = ExpectedToken::Operand;
        Ok(())
    }

    /// Handles a `)` in index of an operand, which is valid only in `f()`.
    fn close_empty(&mut self, token: Token) -> Result<(), Fault> {
        let after_paren = self
            .next
            .checked_sub(1)
            .and_then(|at| self.tokens.get(at))
            .is_some_and(|t| t.kind == TokenKind::LeftParen);
        match self.stack.last() {
            None => Err(unopened(token)),
            Some(open) if open.kind != ParenKind::Paren && open.args == 0 && after_paren => self.close(token),
            Some(open) if open.kind != ParenKind::Paren && self.depth == self.depth_base && open.args > 0 => {
                Err(Fault::at(token.span, "trailing commas not allowed in function call args"))
            }
            Some(_) => Err(self.unexpected(&self.context(), "")),
        }
    }

    fn close(&mut self, token: Token) -> Result<(), Fault> {
        let Some(open) = self.stack.pop() else {
            return Err(unopened(token));
        };
        self.next += 1;
        self.write(format_args!(")"));
        self.fold_subqueries();
        let subqueries = self.subqueries_before;
        self.depth = open.depth_outside;
        self.depth_base = open.depth_base_outside;
        self.subqueries_before = open.subqueries_outside;
        let mut end = token.span.end;
        if matches!(open.kind, ParenKind::Aggregate { has_grouping: false, .. }) && self.is_clause(0) {
            self.grouping()?;
            let last = self.next.checked_sub(1).and_then(|at| self.tokens.get(at));
            end = last.map_or(end, |token| token.span.end);
        }
        if let ParenKind::Call { index, .. } | ParenKind::Aggregate { index, .. } = open.kind
            && let Some(span) = self.coded.calls.get_mut(index)
        {
            span.end = end;
        }
        self.operand_done(LastOperand::Other, open.offset, subqueries);
        Ok(())
    }

    /// Reads the token after a complete operand: a modifier, an operator, a comma or a `)`.
    pub(super) fn operator(&mut self) -> Result<(), Fault> {
        let Some(token) = self.peek() else { return Ok(()) };
        match token.kind {
            TokenKind::LeftBracket => return self.window(token),
            TokenKind::At => return self.at(),
            TokenKind::RightParen => return self.close(token),
            TokenKind::Comma => return self.comma(),
            TokenKind::Word if self.word(token).eq_ignore_ascii_case("offset") => return self.offset(),
            TokenKind::Word => {
                let word = self.word(token);
                if let Some(extension) = Extension::from_word(word) {
                    return self.extension(token, extension);
                }
            }
            _ => {}
        }
        let Some(op) = self.binary_op(token) else { return Err(self.unexpected(&self.context(), "")) };
        self.next += 1;
        self.coded.operators.push((op, token.span));
        self.check_operators(token.span)?;
        self.write(format_args!("{}", coded_operator(op)));
        if op.is_trim() && self.is_word("bool") {
            return Err(Fault::at(token.span, "bool modifier can only be used on comparison operators"));
        }
        self.matching()?;
        self.fold_subqueries();
        // A sign binds less tightly than `^` only: -a^-b^c nests, -a * -b does not.
        if op != BinaryOp::Pow {
            self.depth = self.depth_base;
        }
        self.state = ExpectedToken::Operand;
        Ok(())
    }

    fn comma(&mut self) -> Result<(), Fault> {
        match self.stack.last_mut() {
            Some(open) if open.kind != ParenKind::Paren => open.args += 1,
            _ => return Err(self.unexpected(&self.context(), "")),
        }
        self.next += 1;
        self.write(format_args!(","));
        self.fold_subqueries();
        self.depth = self.depth_base;
        self.state = ExpectedToken::Operand;
        Ok(())
    }

    fn binary_op(&self, token: Token) -> Option<BinaryOp> {
        Some(match token.kind {
            TokenKind::Add => BinaryOp::Add,
            TokenKind::Sub => BinaryOp::Sub,
            TokenKind::Mul => BinaryOp::Mul,
            TokenKind::Div => BinaryOp::Div,
            TokenKind::Mod => BinaryOp::Mod,
            TokenKind::Pow => BinaryOp::Pow,
            TokenKind::EqualEqual => BinaryOp::Equal,
            TokenKind::NotEqual => BinaryOp::NotEqual,
            TokenKind::Less => BinaryOp::Less,
            TokenKind::LessEqual => BinaryOp::LessEqual,
            TokenKind::Greater => BinaryOp::Greater,
            TokenKind::GreaterEqual => BinaryOp::GreaterEqual,
            TokenKind::TrimUpper => BinaryOp::TrimUpper,
            TokenKind::TrimLower => BinaryOp::TrimLower,
            TokenKind::Word => match self.word(token).to_ascii_lowercase().as_str() {
                "and" => BinaryOp::And,
                "or" => BinaryOp::Or,
                "unless" => BinaryOp::Unless,
                "atan2" => BinaryOp::Atan2,
                _ => return None,
            },
            _ => return None,
        })
    }
}

/// Returns the error for an unmatched `)`. As in Prometheus, its position is after the parenthesis.
fn unopened(token: Token) -> Fault {
    Fault::new(token.span.end as usize, "unexpected right parenthesis ')'")
}

/// Returns the coded form of an operator. The trim operators, which the parser does not know,
/// become operators of the same precedence and types; `bool` allows scalars on both sides.
pub(in super::super) const fn coded_operator(op: BinaryOp) -> &'static str {
    match op {
        BinaryOp::TrimUpper => "< bool",
        BinaryOp::TrimLower => "> bool",
        op => op.as_str(),
    }
}
