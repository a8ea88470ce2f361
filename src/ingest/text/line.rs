//! Parser of one line: a series, a value, a time and an exemplar. One pass, no recursion.
//!
//! ```text
//! line     = [name] ["{" [labels] "}"] value [time] ["#" "{" [labels] "}" value [time]]
//! labels   = label {"," label} [","]
//! label    = name "=" quoted | quoted "=" quoted | quoted     (quoted alone: the metric name)
//! quoted   = '"' { any but '"', '\' and newline | '\\' | '\"' | '\n' } '"'
//! ```
//!
//! Blanks and tabs may separate any two of these.

use super::Format;
use crate::ingest::number;
use crate::ingest::pairs::{LABELS_PARSED_MAX, LabelPairs, LabelSetError, TextSlice, truncated};
use crate::model::METRIC_NAME;

/// Bytes of unexpected text that an error message quotes.
const QUOTED_MAX: usize = 40;

/// The position and the kind of an error in a line. The message is formatted only for refusals that
/// are listed.
#[derive(Clone, Copy, Debug)]
pub(super) struct LineError<'a> {
    /// Position in the line, in bytes from 0.
    pub(super) at: usize,
    pub(super) code: &'static str,
    detail: ErrorDetail<'a>,
}

#[derive(Clone, Copy, Debug)]
enum ErrorDetail<'a> {
    Message(&'static str),
    /// The text found, and the end of the sentence about it.
    Unexpected(&'a str, &'static str),
    /// An error of the label set as a whole.
    Labels(LabelSetError),
}

impl<'a> LineError<'a> {
    pub(super) const fn new(at: usize, code: &'static str, message: &'static str) -> LineError<'a> {
        LineError { at, code, detail: ErrorDetail::Message(message) }
    }

    /// Returns the message, such as `column 7: "1.x" is not a number`. Columns are in characters,
    /// from 1.
    pub(super) fn reason(&self, line: &str, pairs: &LabelPairs<'_>) -> String {
        let column = truncated(line, self.at).chars().count().saturating_add(1);
        match self.detail {
            ErrorDetail::Message(message) => format!("column {column}: {message}"),
            ErrorDetail::Unexpected(found, is) => {
                let shown = truncated(found, QUOTED_MAX);
                let more = if shown.len() < found.len() { "..." } else { "" };
                format!("column {column}: {shown:?}{more} {is}")
            }
            ErrorDetail::Labels(problem) => pairs.message(problem),
        }
    }
}

const SYNTAX: &str = "invalid_line";
const LABEL: &str = "invalid_label";

const NOT_A_NAME: &str =
    "is not a valid metric name: it must begin with a letter, `_` or `:`, or be quoted as in {\"the name\"}";
const NOT_IN_NAMES: &str = "is not a valid metric name without quotes: write {\"the name\", label=\"value\"}";
const VALUE_MISSING: &str = "the value is missing";
const NOT_A_LABEL: &str = "is not a valid label name: it must begin with a letter or `_`, or be quoted";
const EXEMPLARS_ARE_OPENMETRICS: &str =
    "exemplars need OpenMetrics: send Content-Type application/openmetrics-text";
const NOT_MILLIS: &str = "is not a time in whole milliseconds (OpenMetrics has seconds with fractions)";

/// A line and a position in it, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct LineCursor<'a> {
    line: &'a str,
    at: usize,
}

/// The rest of a line after its series.
#[derive(Clone, Copy, Debug)]
pub(super) struct SampleTail {
    pub(super) value: f64,
    /// The time in milliseconds, if the line has one.
    pub(super) at: Option<i64>,
    pub(super) exemplar: Option<ExemplarTail>,
}

/// An exemplar without its labels.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExemplarTail {
    pub(super) value: f64,
    pub(super) at: Option<i64>,
}

impl<'a> LineCursor<'a> {
    pub(super) const fn new(line: &'a str, at: usize) -> LineCursor<'a> {
        LineCursor { line, at }
    }

    pub(super) const fn at(&self) -> usize {
        self.at
    }

    #[inline]
    fn peek(&self) -> Option<u8> {
        self.line.as_bytes().get(self.at).copied()
    }

    #[inline]
    fn advance(&mut self) {
        self.at = self.at.saturating_add(1);
    }

    #[inline]
    pub(super) fn skip_blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t')) {
            self.advance();
        }
    }

    /// Skips `byte` if it is next. Returns whether it was skipped.
    #[inline]
    pub(super) fn consume(&mut self, byte: u8) -> bool {
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

    /// Reads up to the next blank.
    #[inline]
    pub(super) fn word(&mut self) -> &'a str {
        self.take_while(|byte| !matches!(byte, b' ' | b'\t'))
    }

    pub(super) fn rest(&self) -> &'a str {
        self.line.get(self.at..).unwrap_or_default()
    }

    fn error(&self, code: &'static str, detail: &'static str) -> LineError<'a> {
        LineError::new(self.at, code, detail)
    }

    /// Returns an error about the word at `at`, which it quotes.
    fn word_error(&self, at: usize, code: &'static str, is: &'static str) -> LineError<'a> {
        let found = LineCursor::new(self.line, at).word();
        LineError { at, code, detail: ErrorDetail::Unexpected(found, is) }
    }

    /// Reads a quoted text; the opening quote is next.
    #[inline]
    pub(super) fn quoted(&mut self, pairs: &mut LabelPairs<'a>) -> Result<TextSlice<'a>, LineError<'a>> {
        let open = self.at;
        self.advance();
        let text = self.take_while(|byte| byte != b'"' && byte != b'\\');
        if self.consume(b'"') {
            return Ok(TextSlice::Borrowed(text));
        }
        self.escaped(open, text, pairs)
    }

    /// Reads the rest of a quoted text that has escapes or no end. `open` is the position of its
    /// opening quote, `before` the text that was read already.
    #[cold]
    fn escaped(
        &mut self,
        open: usize,
        before: &'a str,
        pairs: &mut LabelPairs<'a>,
    ) -> Result<TextSlice<'a>, LineError<'a>> {
        let mut closed = false;
        let text = pairs.unescape(|out| {
            out.push_str(before);
            while self.consume(b'\\') {
                match self.peek() {
                    Some(b'n') => out.push('\n'),
                    Some(byte @ (b'"' | b'\\')) => out.push(char::from(byte)),
                    // As in Prometheus, a backslash that begins no escape stands for itself.
                    _ => {
                        out.push('\\');
                        out.push_str(self.take_while(|byte| byte != b'"' && byte != b'\\'));
                        continue;
                    }
                }
                self.advance();
                out.push_str(self.take_while(|byte| byte != b'"' && byte != b'\\'));
            }
            closed = self.consume(b'"');
        });
        if closed { Ok(text) } else { Err(LineError::new(open, SYNTAX, "this quote is not closed")) }
    }

    /// Reads the metric name and labels into `pairs`, which must be empty.
    #[inline]
    pub(super) fn series(&mut self, pairs: &mut LabelPairs<'a>) -> Result<(), LineError<'a>> {
        let start = self.at;
        let mut has_name = false;
        if matches!(self.peek(), Some(b'a'..=b'z' | b'A'..=b'Z' | b'_' | b':')) {
            let name = self.take_while(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b':'));
            pairs.push(TextSlice::Borrowed(METRIC_NAME), TextSlice::Borrowed(name));
            has_name = true;
            if !matches!(self.peek(), None | Some(b' ' | b'\t' | b'{')) {
                return Err(self.word_error(start, SYNTAX, NOT_IN_NAMES));
            }
            self.skip_blanks();
        } else if self.peek() != Some(b'{') {
            return Err(self.word_error(start, SYNTAX, NOT_A_NAME));
        }
        if self.peek() == Some(b'{') {
            self.labels(pairs, if has_name { MetricNamePlace::Present } else { MetricNamePlace::Allowed })?;
        }
        match pairs.find_error() {
            None => Ok(()),
            Some(problem) => {
                Err(LineError { at: start, code: problem.code(), detail: ErrorDetail::Labels(problem) })
            }
        }
    }

    /// Reads labels in braces; the opening brace is next.
    fn labels(&mut self, pairs: &mut LabelPairs<'a>, mut name: MetricNamePlace) -> Result<(), LineError<'a>> {
        let open = self.at;
        self.advance();
        let before = pairs.len();
        loop {
            self.skip_blanks();
            if self.consume(b'}') {
                return Ok(());
            }
            if pairs.len().saturating_sub(before) >= LABELS_PARSED_MAX {
                return Err(self.error("too_many_labels", "the series has more than 1024 labels"));
            }
            let start = self.at;
            let label = match self.peek() {
                Some(b'"') => self.quoted(pairs)?,
                Some(b'a'..=b'z' | b'A'..=b'Z' | b'_') => {
                    TextSlice::Borrowed(self.take_while(|byte| byte.is_ascii_alphanumeric() || byte == b'_'))
                }
                None => return Err(LineError::new(open, SYNTAX, "this brace is not closed")),
                Some(_) => return Err(self.word_error(start, LABEL, NOT_A_LABEL)),
            };
            let quoted = self.line.as_bytes().get(start) == Some(&b'"');
            self.skip_blanks();
            if self.consume(b'=') {
                self.skip_blanks();
                if self.peek() != Some(b'"') {
                    return Err(self.error(SYNTAX, "a label value must be in double quotes"));
                }
                let value = self.quoted(pairs)?;
                pairs.push(label, value);
            } else if !quoted || matches!(name, MetricNamePlace::Forbidden) {
                return Err(
                    self.error(SYNTAX, "the label name must be followed by `=` and a value in quotes")
                );
            } else if matches!(name, MetricNamePlace::Present) {
                return Err(LineError::new(start, SYNTAX, "the metric already has a name"));
            } else {
                pairs.push(TextSlice::Borrowed(METRIC_NAME), label);
                name = MetricNamePlace::Present;
            }
            self.skip_blanks();
            match self.peek() {
                Some(b',') => self.advance(),
                Some(b'}') => {}
                None => return Err(LineError::new(open, SYNTAX, "this brace is not closed")),
                Some(_) => return Err(self.error(SYNTAX, "`,` or `}` is missing here")),
            }
        }
    }

    /// Reads value, time and exemplar up to the end of the line.
    #[inline]
    pub(super) fn sample_tail(
        &mut self,
        format: Format,
        exemplar: &mut LabelPairs<'a>,
    ) -> Result<SampleTail, LineError<'a>> {
        self.skip_blanks();
        let value = self.value()?;
        self.skip_blanks();
        let mut sample_tail = SampleTail { value, at: None, exemplar: None };
        if self.peek().is_none() {
            return Ok(sample_tail);
        }
        if self.peek() != Some(b'#') {
            sample_tail.at = Some(self.time(format)?);
            self.skip_blanks();
        }
        match self.peek() {
            None => Ok(sample_tail),
            Some(b'#') if format == Format::OpenMetrics => {
                sample_tail.exemplar = Some(self.exemplar(exemplar)?);
                Ok(sample_tail)
            }
            Some(b'#') => Err(self.error(SYNTAX, EXEMPLARS_ARE_OPENMETRICS)),
            Some(_) => {
                Err(self.word_error(self.at, SYNTAX, "is unexpected: a line is a series, a value and a time"))
            }
        }
    }

    /// Reads the value of a `_created` sample in milliseconds, and skips a time after it.
    pub(super) fn start(&mut self) -> Result<i64, LineError<'a>> {
        self.skip_blanks();
        if self.peek().is_none() {
            return Err(self.error(SYNTAX, VALUE_MISSING));
        }
        let start = self.time(Format::OpenMetrics)?;
        self.skip_blanks();
        if self.peek().is_some() {
            self.time(Format::OpenMetrics)?;
        }
        Ok(start)
    }

    fn exemplar(&mut self, pairs: &mut LabelPairs<'a>) -> Result<ExemplarTail, LineError<'a>> {
        self.advance();
        self.skip_blanks();
        if self.peek() != Some(b'{') {
            return Err(self.error(SYNTAX, "an exemplar must begin with its labels in braces"));
        }
        self.labels(pairs, MetricNamePlace::Forbidden)?;
        self.skip_blanks();
        let value = self.value()?;
        self.skip_blanks();
        let at = if self.peek().is_none() { None } else { Some(self.time(Format::OpenMetrics)?) };
        self.skip_blanks();
        match self.peek() {
            None => Ok(ExemplarTail { value, at }),
            Some(_) => Err(self.word_error(
                self.at,
                SYNTAX,
                "is unexpected: an exemplar is labels, a value and a time",
            )),
        }
    }

    #[inline]
    fn value(&mut self) -> Result<f64, LineError<'a>> {
        let start = self.at;
        match (self.word(), start) {
            ("", start) => Err(LineError::new(start, SYNTAX, VALUE_MISSING)),
            (word, start) => number::parse_value(word).map_err(|error| LineError {
                at: start,
                code: "invalid_value",
                detail: ErrorDetail::Unexpected(word, error.message()),
            }),
        }
    }

    #[inline]
    fn time(&mut self, format: Format) -> Result<i64, LineError<'a>> {
        let start = self.at;
        let word = self.word();
        let (time, detail) = match format {
            Format::Prometheus => (number::parse_millis(word), NOT_MILLIS),
            Format::OpenMetrics => (number::parse_seconds(word), "is not a time in seconds"),
        };
        time.ok_or(LineError {
            at: start,
            code: "invalid_time",
            detail: ErrorDetail::Unexpected(word, detail),
        })
    }
}

/// Whether a quoted text alone in braces is a metric name.
#[derive(Clone, Copy)]
enum MetricNamePlace {
    /// No name was found yet.
    Allowed,
    /// A name was found.
    Present,
    /// An exemplar has no metric name.
    Forbidden,
}
