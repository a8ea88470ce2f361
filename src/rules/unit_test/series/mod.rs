//! Series descriptions: `name{label="value"} 1 2+3x4 _ stale {{schema:0 count:1}}`.
//!
//! Unit tests of rules and the scripts of PromQL tests describe their series in this notation.

mod histogram;

pub use histogram::HistogramLiteral;

use super::UNIT_TEST_SAMPLES_MAX;
use crate::model::{Labels, LabelsBuilder, METRIC_NAME};

/// One item of a series description.
#[derive(Clone, Debug)]
pub enum SeriesItem {
    /// No sample.
    Missing,
    /// A sample.
    Value(f64),
    /// A native histogram.
    Histogram(Box<HistogramLiteral>),
    /// A staleness marker; a histogram if the last sample was one.
    Stale,
}

/// A described series.
#[derive(Clone, Debug)]
pub struct DescribedSeries {
    /// The labels, with the metric name.
    pub labels: Labels,
    /// The items, one for each step of the load interval.
    pub items: Vec<SeriesItem>,
    /// The offset of the start timestamp of each sample in milliseconds; empty if no line gives
    /// start timestamps.
    pub starts: Vec<Option<i64>>,
}

/// Parses a description.
///
/// # Errors
/// The message for a text that is not a description, or that describes more than
/// [`UNIT_TEST_SAMPLES_MAX`] samples.
pub fn parse(line: &str) -> Result<DescribedSeries, String> {
    let mut parser = SeriesParser { rest: line.trim() };
    let labels = parser.metric()?;
    let items = items(parser.rest)?;
    Ok(DescribedSeries { labels, items, starts: Vec::new() })
}

/// Parses a metric without values, as expected samples name it; no text is a metric without labels.
///
/// # Errors
/// The message for another text.
pub fn parse_metric(text: &str) -> Result<Labels, String> {
    if text.trim().is_empty() {
        return Ok(Labels::default());
    }
    let mut parser = SeriesParser { rest: text.trim() };
    let labels = parser.metric()?;
    let rest = parser.rest.trim();
    if rest.is_empty() { Ok(labels) } else { Err(format!("unexpected text {rest:?} after the labels")) }
}

struct SeriesParser<'t> {
    rest: &'t str,
}

impl<'t> SeriesParser<'t> {
    fn skip_spaces(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn take(&mut self, text: &str) -> bool {
        self.skip_spaces();
        match self.rest.strip_prefix(text) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn word(&mut self) -> &'t str {
        self.skip_spaces();
        let end = self.rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':'));
        let (word, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        word
    }

    fn metric(&mut self) -> Result<Labels, String> {
        let mut builder = LabelsBuilder::default();
        let name = self.word();
        if !name.is_empty() {
            builder.set(METRIC_NAME, name);
        }
        if !self.rest.trim_start().starts_with("{{") && self.take("{") {
            while !self.take("}") {
                self.pair(&mut builder)?;
                if !self.take(",") && !self.rest.trim_start().starts_with('}') {
                    return Err(format!("a comma or a brace is missing before {:?}", self.rest));
                }
            }
        } else if name.is_empty() {
            return Err(format!("no metric in {:?}", self.rest));
        }
        Ok(builder.build())
    }

    fn pair(&mut self, builder: &mut LabelsBuilder) -> Result<(), String> {
        self.skip_spaces();
        let quoted = self.rest.starts_with(['"', '\'', '`']);
        let name = if quoted { self.quoted()? } else { self.word().to_owned() };
        if name.is_empty() {
            return Err(format!("no label name before {:?}", self.rest));
        }
        if self.take("=") {
            self.skip_spaces();
            let value = self.quoted()?;
            builder.set(name, value);
        } else if quoted {
            builder.set(METRIC_NAME, name);
        } else {
            return Err(format!("no value for label {name:?}"));
        }
        Ok(())
    }

    fn quoted(&mut self) -> Result<String, String> {
        let (text, rest) = unquote(self.rest)?;
        self.rest = rest;
        Ok(text)
    }
}

/// Parses a leading string literal in Go's syntax, with the usual escapes. Returns the item and the
/// rest of the text.
///
/// # Errors
/// The message for a text without a string at its start.
pub fn unquote(text: &str) -> Result<(String, &str), String> {
    let quote =
        text.chars().next().filter(|c| "\"'`".contains(*c)).ok_or(format!("no string in {text:?}"))?;
    let mut out = String::new();
    let mut chars = text.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            c if c == quote => return Ok((out, text.get(at + c.len_utf8()..).unwrap_or_default())),
            '\\' if quote != '`' => match chars.next().map(|(_, c)| c) {
                Some('n') => out.push('\n'),
                Some('t') => out.push('\t'),
                Some('r') => out.push('\r'),
                Some(c @ ('\\' | '"' | '\'')) => out.push(c),
                Some('x') => {
                    let digits: String = chars.by_ref().take(2).map(|(_, c)| c).collect();
                    let byte = u8::from_str_radix(&digits, 16).map_err(|e| e.to_string())?;
                    out.push(char::from(byte));
                }
                other => return Err(format!("unknown escape {other:?}")),
            },
            c => out.push(c),
        }
    }
    Err(format!("no end of string in {text:?}"))
}

/// Adds repeated items, within the limit of a test.
fn repeat(
    items: &mut Vec<SeriesItem>,
    times: usize,
    mut next: impl FnMut() -> SeriesItem,
) -> Result<(), String> {
    if items.len().saturating_add(times) > UNIT_TEST_SAMPLES_MAX {
        return Err(format!("a series has more than {UNIT_TEST_SAMPLES_MAX} samples"));
    }
    items.extend(std::iter::repeat_with(&mut next).take(times));
    Ok(())
}

fn items(text: &str) -> Result<Vec<SeriesItem>, String> {
    let mut items = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        // A histogram contains spaces between its braces and may be added to another one.
        if rest.starts_with("{{") {
            rest = histograms(rest, &mut items)?;
            continue;
        }
        let (word, after) = rest.split_at(rest.find([' ', '\t']).unwrap_or(rest.len()));
        item(word, &mut items)?;
        rest = after.trim_start();
    }
    Ok(items)
}

/// Parses the first histogram of a text. Returns the rest of the text.
fn histogram(text: &str) -> Result<(HistogramLiteral, &str), String> {
    let inside = text.strip_prefix("{{").ok_or(format!("no histogram in {text:?}"))?;
    let (inside, rest) = inside.split_once("}}").ok_or("a histogram has no end")?;
    Ok((HistogramLiteral::parse(inside)?, rest))
}

/// Parses `{{...}}`, `{{...}}xN` or `{{...}}+{{...}}xN`. Returns the rest of the text.
fn histograms<'t>(text: &'t str, items: &mut Vec<SeriesItem>) -> Result<&'t str, String> {
    let (mut literal, mut rest) = histogram(text)?;
    let mut step = None;
    let sign = if rest.starts_with('-') { -1.0 } else { 1.0 };
    if let Some(after) = rest.strip_prefix(['+', '-']) {
        let (other, after) = histogram(after)?;
        step = Some(other);
        rest = after;
    }
    let tail = rest.split([' ', '\t']).next().unwrap_or_default();
    let times = match tail.strip_prefix('x') {
        Some(times) => times.parse::<usize>().map_err(|e| e.to_string())?,
        None if tail.is_empty() => 0,
        None => return Err(format!("unexpected text {tail:?} after a histogram")),
    };
    let buckets = literal.positive.len() + literal.negative.len() + 1;
    if times.saturating_add(1).saturating_mul(buckets) > UNIT_TEST_SAMPLES_MAX {
        return Err(format!("a histogram is repeated to more than {UNIT_TEST_SAMPLES_MAX} buckets"));
    }
    if let Some(other) = &step {
        literal.compare_reset_like(other);
    }
    for i in 0..=times {
        items.push(SeriesItem::Histogram(Box::new(literal.clone())));
        if let Some(other) = step.as_ref().filter(|_| i < times) {
            literal.step(other, sign)?;
        }
    }
    Ok(rest.get(tail.len()..).unwrap_or_default().trim_start())
}

fn item(text: &str, items: &mut Vec<SeriesItem>) -> Result<(), String> {
    let bad = || format!("not a value: {text:?}");
    if let Some(rest) = text.strip_prefix('_') {
        let times = if rest.is_empty() {
            1
        } else {
            rest.strip_prefix('x').and_then(|n| n.parse().ok()).ok_or_else(bad)?
        };
        return repeat(items, times, || SeriesItem::Missing);
    }
    if text == "stale" {
        return repeat(items, 1, || SeriesItem::Stale);
    }
    if let Some(value) = number(text) {
        return repeat(items, 1, || SeriesItem::Value(value));
    }
    let (series, times) = text.rsplit_once('x').ok_or_else(bad)?;
    let times: usize = times.parse().map_err(|_| bad())?;
    let (first, step) = match number(series) {
        Some(value) => (value, 0.0),
        None => {
            // The sign between the two numbers is neither the first character nor the sign of an
            // exponent.
            let signs = series.char_indices().skip(1).filter(|(_, c)| "+-".contains(*c));
            let mut splits = signs.filter_map(|(at, _)| {
                let (first, step) = series.split_at(at);
                Some((number(first)?, number(step)?))
            });
            splits.next().ok_or_else(bad)?
        }
    };
    let mut value = first;
    repeat(items, times.saturating_add(1), || {
        let item = SeriesItem::Value(value);
        value += step;
        item
    })
}

/// Parses a number in the syntax of series descriptions.
pub fn number(text: &str) -> Option<f64> {
    let (sign, digits) = match text.as_bytes().first()? {
        b'-' => (-1.0, text.get(1..)?),
        b'+' => (1.0, text.get(1..)?),
        _ => (1.0, text),
    };
    let lower = digits.to_ascii_lowercase();
    match lower.as_str() {
        "inf" => return Some(sign * f64::INFINITY),
        "nan" => return Some(f64::NAN),
        _ => {}
    }
    if !lower.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return None;
    }
    let plain = lower.replace('_', "");
    let integer = plain.bytes().all(|byte| byte.is_ascii_digit());
    if integer && plain.len() > 1 && plain.starts_with('0') && plain.bytes().all(|byte| byte < b'8') {
        #[expect(
            clippy::cast_precision_loss,
            reason = "an integer beyond 2^53 is rounded, as in Prometheus"
        )]
        return u64::from_str_radix(&plain, 8).ok().map(|n| sign * n as f64);
    }
    plain.parse::<f64>().ok().map(|value| sign * value)
}
