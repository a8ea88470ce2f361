//! Reads selectors such as `name{label="value"}`. Their regular expressions are compiled only after
//! all caps have been checked.

use crate::model::{METRIC_NAME, MatchOp, Matcher, Pattern, PatternError, quoted_length};

use super::super::lex::{Token, TokenKind, lex_within};
use super::super::literal;
use super::super::tree::{Extension, Span};
use super::super::{Caps, Fault};
use super::{EncodedSelector, LastOperand, ParenKind, TokenEncoder, is_reserved};

/// A selector before its regular expressions are compiled.
pub(super) struct RawSelector {
    matchers: Vec<RawMatcher>,
    span: Span,
    pub(super) extension: Option<Extension>,
    /// Whether the selector may match everything, as the second argument of `info` may.
    may_be_empty: bool,
}

/// A matcher before its regular expression is compiled.
struct RawMatcher {
    name: String,
    op: MatchOp,
    value: String,
    /// The position, from the label name on.
    span: Span,
}

/// Parses a text that is one selector.
pub(in super::super) fn single_selector(
    text: &str,
    tokens: &[Token],
    caps: &Caps,
) -> Result<Vec<Matcher>, Fault> {
    let mut encoder = TokenEncoder::new(text, tokens, caps);
    match encoder.peek() {
        None => return Err(Fault::new(0, "no selector found in input")),
        Some(token) if token.kind == TokenKind::LeftBrace => encoder.selector(None)?,
        Some(token) if token.kind == TokenKind::Word && !is_reserved(encoder.word(token)) => {
            encoder.next += 1;
            encoder.selector(Some(token))?;
        }
        Some(_) => return Err(encoder.unexpected(" in series selector", "metric name or \"{\"")),
    }
    if !encoder.at_end() {
        return Err(encoder.unexpected(" after series selector", "end of input"));
    }
    encoder.compile_selectors()?;
    Ok(encoder.coded.selectors.pop().map(|selected| selected.matchers).unwrap_or_default())
}

/// Parses `label op value`; the quotes around the value are optional.
pub(in super::super) fn single_matcher(text: &str, caps: &Caps) -> Result<Matcher, Fault> {
    if text.len() > caps.text_bytes {
        return Err(Fault::new(
            0,
            format!("matcher too long: at most {} bytes are allowed", caps.text_bytes),
        ));
    }
    let start = text.len() - text.trim_start().len();
    let operator = end_of_name(text, start)?;
    let name_text = text.get(start..operator).unwrap_or_default().trim_end();
    let name = match name_text.starts_with(['"', '\'', '`']) {
        true => literal::string(name_text).map_err(|fault| fault.shifted(start))?,
        false => name_text.to_owned(),
    };
    if name.is_empty() {
        return Err(Fault::new(start, "a label name is expected"));
    }
    let rest = text.get(operator..).unwrap_or_default();
    let (op, op_text) = [MatchOp::Regex, MatchOp::NotRegex, MatchOp::NotEqual, MatchOp::Equal]
        .map(|op| (op, op.as_str()))
        .into_iter()
        .find(|(_, op_text)| rest.starts_with(op_text))
        .ok_or_else(|| Fault::new(operator, format!("expected one of = != =~ !~ after label {name:?}")))?;
    let after = rest.get(op_text.len()..).unwrap_or_default();
    let value_text = after.trim();
    let value_start = text.len() - after.trim_start().len();
    let value = match value_text.starts_with(['"', '\'', '`']) {
        true => {
            let tokens =
                lex_within(value_text, caps.text_bytes).map_err(|fault| fault.shifted(value_start))?;
            match tokens.as_slice() {
                [one] => literal::string(one.text(value_text)).map_err(|fault| fault.shifted(value_start))?,
                _ => return Err(Fault::new(value_start, "unexpected text after the quoted value")),
            }
        }
        false => value_text.to_owned(),
    };
    let raw =
        RawMatcher { name, op, value, span: Span { start: offset(value_start), end: offset(text.len()) } };
    check_regex(&raw, caps)?;
    raw.compile()
}

/// Returns the offset after the label name at `start`, bare or quoted, and the blanks behind it.
fn end_of_name(text: &str, start: usize) -> Result<usize, Fault> {
    let rest = text.get(start..).unwrap_or_default();
    let length = match rest.chars().next() {
        Some('"' | '\'' | '`') => {
            quoted_length(rest).ok_or_else(|| Fault::new(start, "unterminated quoted string"))?
        }
        Some(first) if first == '_' || first.is_ascii_alphabetic() => {
            rest.bytes().take_while(|byte| *byte == b'_' || byte.is_ascii_alphanumeric()).count()
        }
        _ => return Err(Fault::new(start, "a label name is expected")),
    };
    let after = rest.get(length..).unwrap_or_default();
    Ok(start + length + (after.len() - after.trim_start().len()))
}

fn offset(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

impl TokenEncoder<'_> {
    /// Reads a selector; `name` is the metric name before its braces, which has already been
    /// consumed.
    pub(super) fn selector(&mut self, name: Option<Token>) -> Result<(), Fault> {
        let first = name.or_else(|| self.peek()).map(|token| token.span).unwrap_or_default();
        if self.selectors.len() >= self.caps.selectors {
            let message = format!("too many series selectors: at most {} are allowed", self.caps.selectors);
            return Err(Fault::at(first, message));
        }
        let may_be_empty = self.is_info_selector();
        let mut raw = RawSelector { matchers: Vec::new(), span: first, extension: None, may_be_empty };
        if self.peek_kind(0) == Some(TokenKind::LeftBrace) {
            self.braces(&mut raw)?;
        }
        if let Some(name) = name {
            let metric = self.word(name).to_owned();
            if let Some(second) = raw.matchers.iter().find(|matcher| matcher.name == METRIC_NAME) {
                return Err(duplicate_name(raw.span, &metric, &second.value));
            }
            raw.matchers.insert(0, RawMatcher::of_metric(metric, first));
        }
        self.write(format_args!("s{}", self.selectors.len()));
        self.selectors.push(raw);
        self.operand_done(LastOperand::Selector, first.start, 0);
        Ok(())
    }

    /// Returns whether the next operand is the second argument of `info`, which may match
    /// everything.
    fn is_info_selector(&self) -> bool {
        let info = self
            .stack
            .last()
            .is_some_and(|open| matches!(open.kind, ParenKind::Call { is_info: true, .. }) && open.args == 1);
        info && self.depth == self.depth_base
    }

    /// Reads matchers in braces. If they name several metrics, a series must match every name, as
    /// in Prometheus.
    fn braces(&mut self, raw: &mut RawSelector) -> Result<(), Fault> {
        const CONTEXT: &str = " in label matching";
        let open = self.expect(TokenKind::LeftBrace, CONTEXT, "\"{\"")?;
        self.check_depth(1, open.span)?;
        loop {
            if let Some(close) = self.take(TokenKind::RightBrace) {
                raw.span.end = close.span.end;
                break;
            }
            let Some(token) = self.peek() else {
                return Err(Fault::new(self.text.len(), "unexpected end of input inside braces"));
            };
            let name = match token.kind {
                TokenKind::Word => self.word(token).to_owned(),
                TokenKind::Text => self.decode(token)?,
                _ => return Err(self.unexpected(CONTEXT, "identifier or \"}\"")),
            };
            self.next += 1;
            if name.is_empty() {
                return Err(Fault::at(token.span, "invalid label or metric name \"\""));
            }
            let bare_text = token.kind == TokenKind::Text
                && matches!(self.peek_kind(0), Some(TokenKind::Comma | TokenKind::RightBrace));
            if bare_text {
                raw.matchers.push(RawMatcher::of_metric(name, token.span));
            } else {
                let matcher = self.matcher(name, token.span.start)?;
                raw.matchers.push(matcher);
            }
            if self.take(TokenKind::Comma).is_none()
                && !matches!(self.peek_kind(0), None | Some(TokenKind::RightBrace))
            {
                return Err(self.unexpected(CONTEXT, "\",\" or \"}\""));
            }
        }
        Ok(())
    }

    fn matcher(&mut self, name: String, start: u32) -> Result<RawMatcher, Fault> {
        const CONTEXT: &str = " in label matching";
        let op = match self.peek_kind(0) {
            Some(TokenKind::Equal) => MatchOp::Equal,
            Some(TokenKind::NotEqual) => MatchOp::NotEqual,
            Some(TokenKind::Regex) => MatchOp::Regex,
            Some(TokenKind::NotRegex) => MatchOp::NotRegex,
            _ => return Err(self.unexpected(CONTEXT, "label matching operator")),
        };
        self.next += 1;
        let token = self.expect(TokenKind::Text, CONTEXT, "string")?;
        let matcher = RawMatcher { name, op, value: self.decode(token)?, span: Span { start, ..token.span } };
        if check_regex(&matcher, self.caps)? {
            self.regex_matchers += 1;
            if self.regex_matchers > self.caps.regex_matchers {
                return Err(too_many_regexes(token.span, self.caps));
            }
        }
        Ok(matcher)
    }

    /// Compiles the matchers of all selectors, which are within the caps.
    pub(super) fn compile_selectors(&mut self) -> Result<(), Fault> {
        for raw in std::mem::take(&mut self.selectors) {
            let mut matchers = Vec::with_capacity(raw.matchers.len());
            for matcher in &raw.matchers {
                matchers.push(matcher.compile()?);
            }
            if !raw.may_be_empty && matchers.iter().all(|matcher| matcher.matches("")) {
                return Err(Fault::at(
                    raw.span,
                    "vector selector must contain at least one non-empty matcher",
                ));
            }
            name_first(&mut matchers);
            let (extension, span) = (raw.extension, raw.span);
            self.coded.selectors.push(EncodedSelector { matchers, extension, span });
        }
        Ok(())
    }
}

/// Moves the matcher of the metric name to the front, so that `{job="a", __name__="up"}` and
/// `up{job="a"}` give the same tree.
fn name_first(matchers: &mut [Matcher]) {
    let is_name = |matcher: &Matcher| matcher.name() == METRIC_NAME;
    let mut names = matchers.iter().enumerate().filter(|(_, matcher)| is_name(matcher));
    if let (Some((index, matcher)), None) = (names.next(), names.next())
        && matcher.op() == MatchOp::Equal
        && let Some(up_to_name) = matchers.get_mut(..=index)
    {
        up_to_name.rotate_right(1);
    }
}

fn duplicate_name(span: Span, first: &str, second: &str) -> Fault {
    Fault::at(span, format!("metric name must not be set twice: {first:?} or {second:?}"))
}

/// Returns whether the matcher counts as a regular expression; refuses one that is too long.
fn check_regex(matcher: &RawMatcher, caps: &Caps) -> Result<bool, Fault> {
    let is_regex = matches!(matcher.op, MatchOp::Regex | MatchOp::NotRegex);
    if !is_regex || Pattern::is_set(&matcher.value) {
        return Ok(false);
    }
    check_regex_length(&matcher.value, matcher.span, caps)?;
    Ok(true)
}

/// Refuses a regular expression that is longer than the cap.
pub(in crate::promql::syntax) fn check_regex_length(
    text: &str,
    span: Span,
    caps: &Caps,
) -> Result<(), Fault> {
    let (bytes, allowed) = (text.len(), caps.regex_bytes);
    if bytes <= allowed {
        return Ok(());
    }
    let message = format!("regular expression too long: {bytes} bytes, at most {allowed} are allowed");
    Err(Fault::at(span, message))
}

/// Returns the error for exceeding the cap on regular expressions.
pub(in crate::promql::syntax) fn too_many_regexes(span: Span, caps: &Caps) -> Fault {
    Fault::at(span, format!("too many regular expressions: at most {} are allowed", caps.regex_matchers))
}

impl RawMatcher {
    /// Returns the matcher of a metric name.
    fn of_metric(metric: String, span: Span) -> RawMatcher {
        RawMatcher { name: METRIC_NAME.to_owned(), op: MatchOp::Equal, value: metric, span }
    }

    fn compile(&self) -> Result<Matcher, Fault> {
        Matcher::new(&self.name, self.op, &self.value)
            .map_err(|error: PatternError| Fault::at(self.span, error.to_string()))
    }
}
