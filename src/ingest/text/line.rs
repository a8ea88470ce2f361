//! One line: a series, its value, its time, its exemplar. One pass, no recursion.
//!
//! ```text
//! line     = [name] ["{" [label {"," label}] [","] "}"] value [time] ["#" "{" labels "}" value [time]]
//! label    = name "=" quoted | quoted "=" quoted | quoted        (a quoted text alone is the metric name)
//! quoted   = '"' { any but '"', '\' and newline | '\\' | '\"' | '\n' } '"'
//! ```
//!
//! Blanks and tabs may stand between any two of these.

use super::Format;
use crate::ingest::number;
use crate::ingest::pairs::{LABELS_PARSED_MAX, LabelPairs, LabelSetError, TextSlice, truncated};
use crate::model::METRIC_NAME;

/// Bytes of what was found in place of something else that are told.
const FOUND_MAX: usize = 40;

/// Where a line is wrong, and how; words are made of it only for those that are told.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bad<'a> {
    /// Byte of the line.
    pub(super) at: usize,
    pub(super) code: &'static str,
    what: What<'a>,
}

#[derive(Clone, Copy, Debug)]
enum What<'a> {
    Says(&'static str),
    /// What stands there, and what it is not.
    Found(&'a str, &'static str),
    /// About the labels as a whole.
    Labels(LabelSetError),
}

impl<'a> Bad<'a> {
    pub(super) const fn new(at: usize, code: &'static str, says: &'static str) -> Bad<'a> {
        Bad { at, code, what: What::Says(says) }
    }

    /// `column 7: "1.x" is no number`.
    pub(super) fn reason(&self, line: &str, pairs: &LabelPairs<'_>) -> String {
        let column = truncated(line, self.at).chars().count().saturating_add(1);
        match self.what {
            What::Says(says) => format!("column {column}: {says}"),
            What::Found(found, is) => {
                let shown = truncated(found, FOUND_MAX);
                let more = if shown.len() < found.len() { "..." } else { "" };
                format!("column {column}: {shown:?}{more} {is}")
            }
            What::Labels(problem) => pairs.message(problem),
        }
    }
}

const SYNTAX: &str = "invalid_line";
const LABEL: &str = "invalid_label";

const NOT_A_NAME: &str =
    "a metric name begins with a letter, `_` or `:`; any other stands in quotes, {\"the name\"}";
const NOT_IN_NAMES: &str =
    "cannot stand in a metric name without quotes: write {\"the name\", label=\"value\"}";
const VALUE_MISSING: &str = "a value is missing";
const NOT_A_LABEL: &str = "a label name begins with a letter or `_`; any other stands in quotes";
const EXEMPLARS_ARE_OPENMETRICS: &str =
    "an exemplar belongs to OpenMetrics: send it as Content-Type application/openmetrics-text";
const NOT_MS: &str = "is no time in whole milliseconds (seconds with fractions are OpenMetrics')";

/// A place in a line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor<'a> {
    line: &'a str,
    at: usize,
}

/// What stands behind a series.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tail {
    pub(super) value: f64,
    /// Milliseconds.
    pub(super) at: Option<i64>,
    pub(super) exemplar: Option<ExemplarTail>,
}

/// An exemplar but for its labels.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExemplarTail {
    pub(super) value: f64,
    pub(super) at: Option<i64>,
}

impl<'a> Cursor<'a> {
    pub(super) const fn new(line: &'a str, at: usize) -> Cursor<'a> {
        Cursor { line, at }
    }

    pub(super) const fn at(&self) -> usize {
        self.at
    }

    #[inline]
    fn peek(&self) -> Option<u8> {
        self.line.as_bytes().get(self.at).copied()
    }

    #[inline]
    fn step(&mut self) {
        self.at = self.at.saturating_add(1);
    }

    #[inline]
    pub(super) fn skip_blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t')) {
            self.step();
        }
    }

    /// Takes `byte` where it is next.
    #[inline]
    pub(super) fn takes(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        self.at = self.at.saturating_add(usize::from(is_next));
        is_next
    }

    #[inline]
    fn take_while(&mut self, of: impl Fn(u8) -> bool) -> &'a str {
        let start = self.at;
        let rest = self.line.as_bytes().get(start..).unwrap_or_default();
        let length = rest.iter().position(|byte| !of(*byte)).unwrap_or(rest.len());
        self.at = start.saturating_add(length);
        self.line.get(start..self.at).unwrap_or_default()
    }

    /// Up to the next blank.
    #[inline]
    pub(super) fn word(&mut self) -> &'a str {
        self.take_while(|byte| !matches!(byte, b' ' | b'\t'))
    }

    pub(super) fn rest(&self) -> &'a str {
        self.line.get(self.at..).unwrap_or_default()
    }

    fn bad(&self, code: &'static str, what: &'static str) -> Bad<'a> {
        Bad::new(self.at, code, what)
    }

    /// What stands here is wrong: up to the next blank, it is told as well.
    fn bad_word(&self, at: usize, code: &'static str, is: &'static str) -> Bad<'a> {
        let found = Cursor::new(self.line, at).word();
        Bad { at, code, what: What::Found(found, is) }
    }

    /// A quoted text; the quote is next.
    #[inline]
    pub(super) fn quoted(&mut self, pairs: &mut LabelPairs<'a>) -> Result<TextSlice<'a>, Bad<'a>> {
        let open = self.at;
        self.step();
        let text = self.take_while(|byte| byte != b'"' && byte != b'\\');
        if self.takes(b'"') {
            return Ok(TextSlice::Borrowed(text));
        }
        self.escaped(open, text, pairs)
    }

    /// The rest of a quoted text that has escapes, or no end.
    #[cold]
    fn escaped(
        &mut self,
        open: usize,
        before: &'a str,
        pairs: &mut LabelPairs<'a>,
    ) -> Result<TextSlice<'a>, Bad<'a>> {
        let mut closed = false;
        let text = pairs.unescape(|out| {
            out.push_str(before);
            while self.takes(b'\\') {
                match self.peek() {
                    Some(b'n') => out.push('\n'),
                    Some(byte @ (b'"' | b'\\')) => out.push(char::from(byte)),
                    // As Prometheus does it: what is no escape stands for itself.
                    _ => {
                        out.push('\\');
                        out.push_str(self.take_while(|byte| byte != b'"' && byte != b'\\'));
                        continue;
                    }
                }
                self.step();
                out.push_str(self.take_while(|byte| byte != b'"' && byte != b'\\'));
            }
            closed = self.takes(b'"');
        });
        if closed { Ok(text) } else { Err(Bad::new(open, SYNTAX, "the quote that opens here is not closed")) }
    }

    /// A metric's name and labels into `pairs`, which is empty.
    #[inline]
    pub(super) fn series(&mut self, pairs: &mut LabelPairs<'a>) -> Result<(), Bad<'a>> {
        let start = self.at;
        let mut named = false;
        if matches!(self.peek(), Some(b'a'..=b'z' | b'A'..=b'Z' | b'_' | b':')) {
            let name = self.take_while(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b':'));
            pairs.push(TextSlice::Borrowed(METRIC_NAME), TextSlice::Borrowed(name));
            named = true;
            if !matches!(self.peek(), None | Some(b' ' | b'\t' | b'{')) {
                return Err(self.bad_word(start, SYNTAX, NOT_IN_NAMES));
            }
            self.skip_blanks();
        } else if self.peek() != Some(b'{') {
            return Err(self.bad_word(start, SYNTAX, NOT_A_NAME));
        }
        if self.peek() == Some(b'{') {
            self.labels(pairs, if named { Name::Given } else { Name::Open })?;
        }
        match pairs.find_error() {
            None => Ok(()),
            Some(problem) => Err(Bad { at: start, code: problem.code(), what: What::Labels(problem) }),
        }
    }

    /// Labels in braces; the opening one is next.
    fn labels(&mut self, pairs: &mut LabelPairs<'a>, mut name: Name) -> Result<(), Bad<'a>> {
        let open = self.at;
        self.step();
        let before = pairs.len();
        loop {
            self.skip_blanks();
            if self.takes(b'}') {
                return Ok(());
            }
            if pairs.len().saturating_sub(before) >= LABELS_PARSED_MAX {
                return Err(self.bad("too_many_labels", "the series has more than 1024 labels"));
            }
            let start = self.at;
            let label = match self.peek() {
                Some(b'"') => self.quoted(pairs)?,
                Some(b'a'..=b'z' | b'A'..=b'Z' | b'_') => {
                    TextSlice::Borrowed(self.take_while(|byte| byte.is_ascii_alphanumeric() || byte == b'_'))
                }
                None => return Err(Bad::new(open, SYNTAX, "the brace that opens here is not closed")),
                Some(_) => return Err(self.bad_word(start, LABEL, NOT_A_LABEL)),
            };
            let quoted = self.line.as_bytes().get(start) == Some(&b'"');
            self.skip_blanks();
            if self.takes(b'=') {
                self.skip_blanks();
                if self.peek() != Some(b'"') {
                    return Err(self.bad(SYNTAX, "a label value stands in double quotes"));
                }
                let value = self.quoted(pairs)?;
                pairs.push(label, value);
            } else if !quoted || matches!(name, Name::None) {
                return Err(self.bad(SYNTAX, "`=` and a value in quotes are missing behind the label name"));
            } else if matches!(name, Name::Given) {
                return Err(Bad::new(start, SYNTAX, "the metric has a name already"));
            } else {
                pairs.push(TextSlice::Borrowed(METRIC_NAME), label);
                name = Name::Given;
            }
            self.skip_blanks();
            match self.peek() {
                Some(b',') => self.step(),
                Some(b'}') => {}
                None => return Err(Bad::new(open, SYNTAX, "the brace that opens here is not closed")),
                Some(_) => return Err(self.bad(SYNTAX, "`,` or `}` is missing here")),
            }
        }
    }

    /// Value, time and exemplar, to the end of the line.
    #[inline]
    pub(super) fn tail(&mut self, format: Format, exemplar: &mut LabelPairs<'a>) -> Result<Tail, Bad<'a>> {
        self.skip_blanks();
        let value = self.value()?;
        self.skip_blanks();
        let mut tail = Tail { value, at: None, exemplar: None };
        if self.peek().is_none() {
            return Ok(tail);
        }
        if self.peek() != Some(b'#') {
            tail.at = Some(self.time(format)?);
            self.skip_blanks();
        }
        match self.peek() {
            None => Ok(tail),
            Some(b'#') if format == Format::OpenMetrics => {
                tail.exemplar = Some(self.exemplar(exemplar)?);
                Ok(tail)
            }
            Some(b'#') => Err(self.bad(SYNTAX, EXEMPLARS_ARE_OPENMETRICS)),
            Some(_) => {
                Err(self.bad_word(self.at, SYNTAX, "is too much: a line is a series, a value, a time"))
            }
        }
    }

    /// The value of a `_created` sample, in milliseconds; a time behind it is passed over.
    pub(super) fn start(&mut self) -> Result<i64, Bad<'a>> {
        self.skip_blanks();
        if self.peek().is_none() {
            return Err(self.bad(SYNTAX, VALUE_MISSING));
        }
        let start = self.time(Format::OpenMetrics)?;
        self.skip_blanks();
        if self.peek().is_some() {
            self.time(Format::OpenMetrics)?;
        }
        Ok(start)
    }

    fn exemplar(&mut self, pairs: &mut LabelPairs<'a>) -> Result<ExemplarTail, Bad<'a>> {
        self.step();
        self.skip_blanks();
        if self.peek() != Some(b'{') {
            return Err(self.bad(SYNTAX, "an exemplar begins with its labels in braces"));
        }
        self.labels(pairs, Name::None)?;
        self.skip_blanks();
        let value = self.value()?;
        self.skip_blanks();
        let at = if self.peek().is_none() { None } else { Some(self.time(Format::OpenMetrics)?) };
        self.skip_blanks();
        match self.peek() {
            None => Ok(ExemplarTail { value, at }),
            Some(_) => {
                Err(self.bad_word(self.at, SYNTAX, "is too much: an exemplar has labels, a value, a time"))
            }
        }
    }

    #[inline]
    fn value(&mut self) -> Result<f64, Bad<'a>> {
        let start = self.at;
        match (self.word(), start) {
            ("", start) => Err(Bad::new(start, SYNTAX, VALUE_MISSING)),
            (word, start) => {
                let bad =
                    || Bad { at: start, code: "invalid_value", what: What::Found(word, "is no number") };
                number::parse_value(word).ok_or_else(bad)
            }
        }
    }

    #[inline]
    fn time(&mut self, format: Format) -> Result<i64, Bad<'a>> {
        let start = self.at;
        let word = self.word();
        let (time, what) = match format {
            Format::Prometheus => (number::parse_millis(word), NOT_MS),
            Format::OpenMetrics => (number::parse_seconds(word), "is no time in seconds"),
        };
        time.ok_or(Bad { at: start, code: "invalid_time", what: What::Found(word, what) })
    }
}

/// Whether a quoted text alone in braces is the metric's name.
#[derive(Clone, Copy)]
enum Name {
    /// It may be.
    Open,
    /// There is one.
    Given,
    /// These are an exemplar's labels.
    None,
}
