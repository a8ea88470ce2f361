//! Encodes the modifiers of operands (`[5m]`, `offset`, `@`) and of operators (`bool`, `on`,
//! `group_left`, `fill`).

use crate::model::Timestamp;
use crate::promql::numbers::go_float;

use super::super::Fault;
use super::super::lex::{Token, TokenKind};
use super::super::literal;
use super::super::tree::{AtModifier, Extension, Span};
use super::duration::EXPECTED;
use super::{EncodedWindow, LastOperand, TokenEncoder, is_number_word, number_word};

impl TokenEncoder<'_> {
    /// Reads `[5m]`, which makes a selector a range vector, or `[1h:5m]` and `[1h:]`, which make an
    /// expression a subquery.
    pub(super) fn window(&mut self, open: Token) -> Result<(), Fault> {
        self.check_depth(1, open.span)?;
        self.next += 1;
        let range = self.positive_duration(" in subquery or range selector", EXPECTED)?;
        let is_subquery = self.take(TokenKind::Colon).is_some();
        let step =
            match self.peek_kind(0) {
                Some(TokenKind::RightBracket) => None,
                _ if is_subquery => Some(self.positive_duration(
                    " in subquery selector",
                    "number, duration, step(), range(), or \"]\"",
                )?),
                _ => None,
            };
        let (context, expected) = match is_subquery {
            true => (" in subquery selector", "\"]\""),
            false => (" in subquery or range", "\":\" or \"]\""),
        };
        let close = self.expect(TokenKind::RightBracket, context, expected)?;
        let span = Span { start: open.span.start, end: close.span.end };
        self.coded.windows.push(EncodedWindow { range, step, span });
        let index = self.coded.windows.len();
        if is_subquery {
            let subqueries = self.subqueries + 1;
            if subqueries > self.caps.subquery_nesting {
                let message = format!(
                    "subqueries nested too deeply: at most {} levels are allowed",
                    self.caps.subquery_nesting
                );
                return Err(Fault::at(open.span, message));
            }
            self.write(format_args!("[{index}s:]"));
            self.operand_done(LastOperand::Subquery, self.last_start, subqueries);
            return Ok(());
        }
        match self.last {
            LastOperand::Selector if self.last_has_offset => {
                Err(Fault::at(open.span, "no offset modifiers allowed before range"))
            }
            LastOperand::Selector if self.last_has_at => {
                Err(Fault::at(open.span, "no @ modifiers allowed before range"))
            }
            LastOperand::Selector => {
                self.write(format_args!("[{index}s]"));
                self.operand_done(LastOperand::Window, self.last_start, 0);
                Ok(())
            }
            _ => Err(Fault::at(open.span, "ranges only allowed for vector selectors")),
        }
    }

    pub(super) fn offset(&mut self) -> Result<(), Fault> {
        if self.last == LastOperand::Other {
            let message = "offset modifier must be preceded by an instant vector selector or range vector selector or a subquery";
            return Err(Fault::new(self.last_start as usize, message));
        }
        self.next += 1;
        let length = self.offset_duration()?;
        // Zero counts as unset and may occur twice (Prometheus, `promql/parser/parse.go`,
        // `addOffset`).
        if length.is_zero() {
            return Ok(());
        }
        if self.last_has_offset {
            return Err(Fault::new(self.last_start as usize, "offset may not be set multiple times"));
        }
        self.last_has_offset = true;
        self.coded.offsets.push(length);
        self.write(format_args!("offset {}s", self.coded.offsets.len()));
        Ok(())
    }

    /// Reads `anchored` or `smoothed` after a selector or its window.
    pub(super) fn extension(&mut self, word: Token, extension: Extension) -> Result<(), Fault> {
        let name = extension.as_str();
        if !self.caps.features.extended_range_selectors {
            let message = format!(
                "{name} modifier is experimental and not enabled (--enable-feature=promql-extended-range-selectors)"
            );
            return Err(Fault::at(word.span, message));
        }
        let message = match (self.last, self.selectors.last_mut()) {
            (LastOperand::Selector | LastOperand::Window, Some(selector)) => {
                if selector.extension.replace(extension).is_none_or(|other| other == extension) {
                    self.next += 1;
                    return Ok(());
                }
                "anchored and smoothed modifiers cannot be used together".to_owned()
            }
            (LastOperand::Subquery, _) => format!("{name} modifier is not supported for subqueries"),
            _ => format!("{name} modifier not implemented"),
        };
        Err(Fault::at(word.span, message))
    }

    pub(super) fn at(&mut self) -> Result<(), Fault> {
        if self.last == LastOperand::Other {
            let message = "@ modifier must be preceded by an instant vector selector or range vector selector or a subquery";
            return Err(Fault::new(self.last_start as usize, message));
        }
        if self.last_has_at {
            let message = "@ <timestamp> may not be set multiple times";
            return Err(Fault::new(self.last_start as usize, message));
        }
        self.next += 1;
        let time = self.at_time()?;
        self.last_has_at = true;
        self.coded.times.push(time);
        self.write(format_args!("@ {}", self.coded.times.len()));
        Ok(())
    }

    fn at_time(&mut self) -> Result<AtModifier, Fault> {
        const CONTEXT: &str = " in @";
        const EXPECTED: &str = "timestamp";
        let function = self
            .peek()
            .filter(|token| token.kind == TokenKind::Word)
            .map(|token| self.word(token).to_ascii_lowercase());
        let edge = match function.as_deref() {
            Some("start") => Some(AtModifier::Start),
            Some("end") => Some(AtModifier::End),
            _ => None,
        };
        if let Some(edge) = edge {
            self.next += 1;
            self.expect(TokenKind::LeftParen, CONTEXT, "\"(\"")?;
            self.expect(TokenKind::RightParen, CONTEXT, "\")\"")?;
            return Ok(edge);
        }
        let value = self.signed_number(CONTEXT, EXPECTED)?;
        match literal::timestamp_from_seconds(value) {
            Some(ms) => Ok(AtModifier::Time(Timestamp::from_ms(ms))),
            None => {
                let text = if value.is_finite() { format!("{value:.6}") } else { go_float(value) };
                let message = format!("timestamp out of bounds for @ modifier: {text}");
                Err(Fault::new(self.last_start as usize, message))
            }
        }
    }

    /// Reads a number with at most one sign.
    fn signed_number(&mut self, context: &str, expected: &str) -> Result<f64, Fault> {
        let negative = self.take(TokenKind::Sub).is_some();
        if !negative {
            self.take(TokenKind::Add);
        }
        let token = self.peek().ok_or_else(|| self.unexpected(context, expected))?;
        let word = self.word(token);
        let value = match token.kind {
            TokenKind::Number => literal::number(word).map_err(|message| Fault::at(token.span, message))?,
            TokenKind::Word if is_number_word(word) => number_word(word),
            _ => return Err(self.unexpected(context, expected)),
        };
        self.next += 1;
        Ok(if negative { -value } else { value })
    }

    /// Reads the modifiers between a binary operator and its right operand.
    pub(super) fn matching(&mut self) -> Result<(), Fault> {
        if self.take_word("bool") {
            self.write(format_args!("bool"));
        }
        let mut matched = false;
        for clause in ["on", "ignoring"] {
            if !matched && self.take_word(clause) {
                matched = true;
                self.write(format_args!("{clause}"));
                self.labels(&format!(" in {clause}"))?;
            }
        }
        let mut grouped = false;
        for clause in ["group_left", "group_right"] {
            if matched && !grouped && self.take_word(clause) {
                grouped = true;
                self.write(format_args!("{clause}"));
                if self.peek_kind(0) == Some(TokenKind::LeftParen) {
                    self.labels(&format!(" in {clause}"))?;
                }
            }
        }
        self.fills()
    }

    /// Reads `fill(0)`, or `fill_left(0)` and `fill_right(0)` in either order.
    fn fills(&mut self) -> Result<(), Fault> {
        let mut seen: Vec<&str> = Vec::new();
        while self.peek_kind(1) == Some(TokenKind::LeftParen) {
            let names = ["fill", "fill_left", "fill_right"];
            let Some(name) = names.into_iter().find(|name| self.is_word(name)) else { break };
            if !self.caps.features.fill_modifiers {
                let span = self.peek().map(|token| token.span).unwrap_or_default();
                let message = "binop fill modifiers are experimental and not enabled (--enable-feature=promql-binop-fill-modifiers)";
                return Err(Fault::at(span, message));
            }
            if seen.contains(&name) || seen.contains(&"fill") || (name == "fill" && !seen.is_empty()) {
                return Err(self.unexpected("", ""));
            }
            seen.push(name);
            self.next += 2;
            let value = self.signed_number(" in fill", "number")?;
            self.expect(TokenKind::RightParen, " in fill", "\")\"")?;
            self.coded.numbers.push((value, 0));
            self.write(format_args!("{name} ({})", self.coded.numbers.len()));
        }
        Ok(())
    }

    pub(super) fn is_word(&self, word: &str) -> bool {
        let token = self.peek().filter(|token| token.kind == TokenKind::Word);
        token.is_some_and(|token| self.word(token).eq_ignore_ascii_case(word))
    }

    fn take_word(&mut self, word: &str) -> bool {
        let is_next = self.is_word(word);
        if is_next {
            self.next += 1;
        }
        is_next
    }

    /// Reads the label list of `by`, `on` and similar clauses, such as `(a, "b.c",)`.
    pub(super) fn labels(&mut self, context: &str) -> Result<(), Fault> {
        self.expect(TokenKind::LeftParen, context, "\"(\"")?;
        self.write(format_args!("("));
        let mut first = true;
        while self.take(TokenKind::RightParen).is_none() {
            let token = self.peek().ok_or_else(|| self.unexpected(context, "label or \")\""))?;
            let label = match token.kind {
                TokenKind::Word if !self.word(token).contains(':') && !is_number_word(self.word(token)) => {
                    self.word(token).to_owned()
                }
                TokenKind::Text => self.decode(token)?,
                _ => return Err(self.unexpected(context, "label")),
            };
            if label.is_empty() {
                return Err(Fault::at(token.span, format!("invalid label name \"\"{context}")));
            }
            self.next += 1;
            if !first {
                self.write(format_args!(","));
            }
            first = false;
            self.write(format_args!("l{}", self.coded.labels.len()));
            self.coded.labels.push(label);
            if self.take(TokenKind::Comma).is_none() && self.peek_kind(0) != Some(TokenKind::RightParen) {
                return Err(self.unexpected(context, "\",\" or \")\""));
            }
        }
        self.write(format_args!(")"));
        Ok(())
    }
}
