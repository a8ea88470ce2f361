//! Decoder of InfluxDB's line protocol, versions 1 and 2.
//!
//! ```text
//! cpu,host=web1,region=eu usage_user=3.5,usage_system=1i 1795226390000000000
//! ```
//!
//! Each field with a number makes a sample of the metric `<measurement>_<field>`, here
//! `cpu_usage_user`, with the tags as labels; VictoriaMetrics names them in the same way. `true` is
//! 1 and `false` 0. Fields with a string are skipped and counted, because a sample has no text. An
//! invalid line is refused with its number, and the others are stored.
//!
//! A backslash before a comma, a space or an equals sign is removed in names and tags; before other
//! characters it is text. Strings may contain line ends. A tag without a value makes no label.

use super::number::{self, ValueError};
use super::pairs::{LABELS_PARSED_MAX, LabelPairs, LabelSetError, TextSlice, truncated};
use super::{DecodeError, DecodeLimits, Translated, lines};
use crate::model::{METRIC_NAME, Refusal, Sample, Timestamp};

/// The most bytes of one string, inclusive, as in InfluxDB. The search for its end stops there.
const STRING_BYTES_MAX: usize = 64 << 10;

/// The most fields of one line, inclusive.
const FIELDS_MAX: usize = 10_000;

/// Bytes of a token that an error message quotes.
const QUOTED_MAX: usize = 40;

/// The label with the database that a request names.
const DATABASE: &str = "db";

/// The unit of the times of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// Nanoseconds, the default.
    Nanoseconds,
    /// Microseconds.
    Microseconds,
    /// Milliseconds.
    Milliseconds,
    /// Seconds.
    Seconds,
    /// Minutes.
    Minutes,
    /// Hours.
    Hours,
}

impl Precision {
    /// Parses the parameter `precision` of InfluxDB 1 and 2; `None` if it is unknown.
    pub fn parse(text: &str) -> Option<Precision> {
        Some(match text {
            "" | "n" | "ns" => Precision::Nanoseconds,
            "u" | "us" | "µ" | "µs" => Precision::Microseconds,
            "ms" => Precision::Milliseconds,
            "s" => Precision::Seconds,
            "m" => Precision::Minutes,
            "h" => Precision::Hours,
            _ => return None,
        })
    }

    /// Converts a time to milliseconds, rounded down; `None` if it is out of range.
    fn to_ms(self, time: i64) -> Option<i64> {
        match self {
            Precision::Nanoseconds => Some(time.div_euclid(1_000_000)),
            Precision::Microseconds => Some(time.div_euclid(1_000)),
            Precision::Milliseconds => Some(time),
            Precision::Seconds => time.checked_mul(1_000),
            Precision::Minutes => time.checked_mul(60_000),
            Precision::Hours => time.checked_mul(3_600_000),
        }
    }
}

/// The parameters of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InfluxOptions {
    /// The unit of times.
    pub precision: Precision,
    /// The value of the label `db` of series without such a tag; empty for none.
    pub database: String,
    /// The time of lines without one.
    pub default_at: Timestamp,
}

/// Decodes a decompressed body. Cost: one pass; per line, only the contents of the batch are
/// allocated.
///
/// # Errors
/// [`DecodeError`], if the whole body is refused: it is empty or exceeds a limit. Invalid lines are
/// in [`Translated::refusals`].
pub fn decode(
    body: &[u8],
    options: &InfluxOptions,
    limits: &DecodeLimits,
) -> Result<Translated, DecodeError> {
    super::check_size(body, limits)?;
    let mut out = Translated::default();
    let mut line = InfluxLine::default();
    let mut rest = lines::strip_bom(body);
    let mut number: usize = 1;
    while !rest.is_empty() {
        let length = line_bytes(rest);
        let (bytes, after) = rest.split_at_checked(length).unwrap_or((rest, b""));
        rest = after;
        let first = number;
        number = number.saturating_add(bytes.iter().filter(|byte| **byte == b'\n').count());
        let content = bytes.trim_ascii();
        if content.is_empty() || content.starts_with(b"#") {
            continue;
        }
        line.clear();
        if let Err(error) = line.read(content, options) {
            // A line without a readable field counts as one sample.
            out.refuse(line.fields.len().max(1), || Refusal {
                series: line.tags.display_series(),
                code: error.code,
                reason: format!("line {first}: {}", error.reason),
            });
            continue;
        }
        out.skipped = out.skipped.saturating_add(line.strings);
        line.store(&mut out);
        super::check_series(&out.batch, limits)?;
        let (found, allowed) = (out.batch.len(), limits.samples_max);
        if found > allowed {
            return Err(DecodeError::TooLarge { what: "samples", found, allowed });
        }
    }
    Ok(out)
}

/// Returns the length of the first line with its line end, which strings may contain. A string that
/// does not end belongs to no line: its line then ends at its first line end.
fn line_bytes(body: &[u8]) -> usize {
    match line_with_strings(body) {
        LineLength::Whole(length) => length,
        LineLength::InString(_) => first_line_end(body),
    }
}

/// Returns whether `line`, which begins a line, ends inside a string that more bytes may end.
pub fn ends_in_string(line: &[u8]) -> bool {
    matches!(line_with_strings(line), LineLength::InString(bytes) if bytes < STRING_BYTES_MAX)
}

/// Returns the position behind the first line end, or the end of the body.
fn first_line_end(body: &[u8]) -> usize {
    body.iter().position(|byte| *byte == b'\n').map_or(body.len(), |at| at.saturating_add(1))
}

/// The end of the first line of a body.
enum LineLength {
    /// Behind this many bytes.
    Whole(usize),
    /// Unknown, because a string does not end within the body or within [`STRING_BYTES_MAX`]. The
    /// bytes of the body behind its first quote.
    InString(usize),
}

fn line_with_strings(body: &[u8]) -> LineLength {
    if body.iter().find(|byte| !matches!(byte, b' ' | b'\t')) == Some(&b'#') {
        return LineLength::Whole(first_line_end(body));
    }
    let (mut at, mut is_field) = (0usize, false);
    while let Some(byte) = body.get(at) {
        at = at.saturating_add(1);
        match byte {
            b'\n' => return LineLength::Whole(at),
            b'\\' => at = at.saturating_add(usize::from(body.get(at).is_some_and(|next| *next != b'\n'))),
            // Neither the measurement and the tags nor the time contain strings.
            b' ' => is_field = true,
            b'"' if is_field && body.get(at.wrapping_sub(2)) == Some(&b'=') => {
                let text = body.get(at..).unwrap_or_default();
                match string_bytes(text) {
                    Some(length) => at = at.saturating_add(length),
                    None => return LineLength::InString(text.len()),
                }
            }
            _ => {}
        }
    }
    LineLength::Whole(body.len())
}

/// Returns the length of a string without its first quote, and with its last; `None` if it does not
/// end within [`STRING_BYTES_MAX`].
fn string_bytes(text: &[u8]) -> Option<usize> {
    let mut is_escaped = false;
    for (at, byte) in text.iter().take(STRING_BYTES_MAX).enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => return Some(at.saturating_add(1)),
            _ => {}
        }
    }
    None
}

/// The reason why a line is refused.
struct LineError {
    code: &'static str,
    reason: String,
}

impl LineError {
    fn invalid(reason: impl Into<String>) -> LineError {
        LineError { code: "invalid_line", reason: reason.into() }
    }
}

/// One line. Reused from line to line.
#[derive(Default)]
struct InfluxLine<'a> {
    /// The measurement as the metric name, then the tags.
    tags: LabelPairs<'a>,
    /// The names of the fields.
    names: LabelPairs<'a>,
    fields: Vec<f64>,
    strings: usize,
    at: Timestamp,
    /// The name of the current series.
    metric: String,
}

impl<'a> InfluxLine<'a> {
    fn clear(&mut self) {
        self.tags.clear();
        self.names.clear();
        self.fields.clear();
        self.strings = 0;
    }

    fn read(&mut self, bytes: &'a [u8], options: &'a InfluxOptions) -> Result<(), LineError> {
        let text = std::str::from_utf8(bytes).map_err(|error| LineError {
            code: "invalid_utf8",
            reason: format!("byte {} is not UTF-8", error.valid_up_to().saturating_add(1)),
        })?;
        let mut rest = text;
        let measurement = token(&mut rest, b", ", &mut self.tags);
        if self.tags.text(measurement).is_empty() {
            return Err(LineError::invalid("the measurement is empty"));
        }
        self.tags.push(TextSlice::Borrowed(METRIC_NAME), measurement);
        while let Some(after) = rest.strip_prefix(',') {
            rest = after;
            let name = token(&mut rest, b"=, ", &mut self.tags);
            let Some(after) = rest.strip_prefix('=') else {
                return Err(LineError::invalid("a tag has no equals sign"));
            };
            rest = after;
            let value = token(&mut rest, b", ", &mut self.tags);
            if self.tags.len() > LABELS_PARSED_MAX {
                return Err(LineError::invalid("the series has more than 1024 tags"));
            }
            if !self.tags.text(value).is_empty() {
                self.tags.push(name, value);
            }
        }
        let has_database = self.tags.iter().any(|(name, _)| name == DATABASE);
        if !options.database.is_empty() && !has_database {
            self.tags.push(TextSlice::Borrowed(DATABASE), TextSlice::Borrowed(&options.database));
        }
        if let Some(error) = self.tags.find_error() {
            return Err(self.of_labels(error));
        }
        rest = rest.trim_ascii_start();
        self.read_fields(&mut rest)?;
        let time = rest.trim_ascii();
        self.at = match time {
            "" => options.default_at,
            time => {
                let ms = time.parse().ok().and_then(|time| options.precision.to_ms(time));
                Timestamp::from_ms(ms.ok_or_else(|| {
                    LineError::invalid(format!(
                        "{:?} is not a time: a whole number",
                        truncated(time, QUOTED_MAX)
                    ))
                })?)
            }
        };
        Ok(())
    }

    fn of_labels(&self, error: LabelSetError) -> LineError {
        LineError { code: error.code(), reason: self.tags.message(error) }
    }

    /// Reads `name=value`, separated by commas.
    fn read_fields(&mut self, rest: &mut &'a str) -> Result<(), LineError> {
        loop {
            let name = token(rest, b"=, ", &mut self.names);
            let Some(value) = rest.strip_prefix('=').filter(|_| !self.names.text(name).is_empty()) else {
                return Err(LineError::invalid("no field of the form name=value where one is expected"));
            };
            if let Some(string) = value.strip_prefix('"') {
                let length = string_bytes(string.as_bytes()).ok_or_else(|| {
                    LineError::invalid(format!("a string does not end within {STRING_BYTES_MAX} bytes"))
                })?;
                self.strings = self.strings.saturating_add(1);
                *rest = string.get(length..).unwrap_or_default();
            } else {
                let length = value.find([',', ' ']).unwrap_or(value.len());
                let (text, after) = value.split_at_checked(length).unwrap_or((value, ""));
                let value = value_of(text).map_err(|error| {
                    let text = truncated(text, QUOTED_MAX);
                    LineError::invalid(match error {
                        ValueError::NotANumber => format!(
                            "{text:?} is not a number, a number with i or u, true, false, or a string in quotes"
                        ),
                        ValueError::OutOfRange => format!("{text:?} {}", error.message()),
                    })
                })?;
                if self.fields.len() >= FIELDS_MAX {
                    return Err(LineError::invalid(format!("more than {FIELDS_MAX} fields")));
                }
                self.names.push(name, TextSlice::Borrowed(""));
                self.fields.push(value);
                *rest = after;
            }
            match rest.strip_prefix(',') {
                Some(after) => *rest = after,
                None if rest.is_empty() || rest.starts_with(' ') => return Ok(()),
                None => return Err(LineError::invalid("text follows the end of a string")),
            }
        }
    }

    /// Adds a sample for each field.
    fn store(&mut self, out: &mut Translated) {
        for ((field, _), value) in self.names.iter().zip(&self.fields) {
            self.metric.clear();
            self.metric.push_str(self.tags.metric_name());
            self.metric.push('_');
            self.metric.push_str(field);
            let labels = std::iter::once((METRIC_NAME, &*self.metric)).chain(self.tags.iter().skip(1));
            out.batch.samples_of(labels, [Sample { at: self.at, value: *value }]);
        }
    }
}

/// Removes the text up to the first byte of `ends` without a backslash before it.
fn token<'a>(rest: &mut &'a str, ends: &[u8], unescaped: &mut LabelPairs<'a>) -> TextSlice<'a> {
    let bytes = rest.as_bytes();
    let (mut at, mut has_escape) = (0usize, false);
    while let Some(byte) = bytes.get(at) {
        if ends.contains(byte) {
            break;
        }
        let is_escape =
            *byte == b'\\' && bytes.get(at.saturating_add(1)).is_some_and(|next| b",= ".contains(next));
        has_escape |= is_escape;
        at = at.saturating_add(if is_escape { 2 } else { 1 });
    }
    let (text, after) = rest.split_at_checked(at).unwrap_or((rest, ""));
    *rest = after;
    if !has_escape {
        return TextSlice::Borrowed(text);
    }
    unescaped.unescape(|out| {
        let mut characters = text.chars().peekable();
        while let Some(character) = characters.next() {
            match characters.peek() {
                Some(',' | '=' | ' ') if character == '\\' => out.extend(characters.next()),
                _ => out.push(character),
            }
        }
    })
}

/// Parses the value of a field, a number or a boolean.
fn value_of(text: &str) -> Result<f64, ValueError> {
    match text {
        "t" | "T" | "true" | "True" | "TRUE" => return Ok(1.0),
        "f" | "F" | "false" | "False" | "FALSE" => return Ok(0.0),
        _ => {}
    }
    #[expect(clippy::cast_precision_loss, reason = "a sample is a double: the nearest one")]
    let whole = match (text.strip_suffix('i'), text.strip_suffix('u')) {
        (Some(digits), _) => digits.parse::<i64>().ok().map(|whole| whole as f64),
        (_, Some(digits)) => digits.parse::<u64>().ok().map(|whole| whole as f64),
        (None, None) => return number::parse_value(text),
    };
    whole.ok_or(ValueError::NotANumber)
}

#[cfg(test)]
mod tests;
