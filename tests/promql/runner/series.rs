//! Series descriptions: `name{label="value"} 1 2+3x4 _ stale`.

use promlet::model::{Labels, LabelsBuilder, METRIC_NAME};

use super::native::Literal;

/// One item of a series description.
#[derive(Clone, Debug)]
pub(crate) enum Item {
    /// No sample.
    Missing,
    /// A sample.
    Value(f64),
    /// A native histogram.
    Histogram(Box<Literal>),
    /// A staleness marker; a histogram if the last sample was one.
    Stale,
}

/// A described series.
#[derive(Clone, Debug)]
pub(crate) struct SeriesLine {
    pub(crate) labels: Labels,
    pub(crate) items: Vec<Item>,
    /// The offset of the start timestamp of each sample in milliseconds; empty if no line gives
    /// start timestamps.
    pub(crate) starts: Vec<Option<i64>>,
}

/// Parses one line.
pub(crate) fn parse(line: &str) -> Result<SeriesLine, String> {
    let mut parser = SeriesParser { rest: line.trim() };
    let labels = parser.metric()?;
    let items = items(parser.rest)?;
    Ok(SeriesLine { labels, items, starts: Vec::new() })
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

/// Parses a leading string literal in Go's syntax, with the escapes that the scripts use. Returns
/// it and the rest of the text.
pub(crate) fn unquote(text: &str) -> Result<(String, &str), String> {
    let quote =
        text.chars().next().filter(|c| "\"'`".contains(*c)).ok_or(format!("no string in {text:?}"))?;
    let mut out = String::new();
    let mut chars = text.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            c if c == quote => return Ok((out, &text[at + c.len_utf8()..])),
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

fn items(text: &str) -> Result<Vec<Item>, String> {
    let mut items = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        // A histogram contains spaces between its braces and may be added to another one.
        if rest.starts_with("{{") {
            rest = histograms(rest, &mut items)?;
            continue;
        }
        let end = rest.find([' ', '\t']).unwrap_or(rest.len());
        item(&rest[..end], &mut items)?;
        rest = rest[end..].trim_start();
    }
    Ok(items)
}

/// Parses `{{...}}`, `{{...}}xN` or `{{...}}+{{...}}xN`. Returns the rest of the text.
fn histograms<'t>(text: &'t str, items: &mut Vec<Item>) -> Result<&'t str, String> {
    let one = |text: &'t str| -> Result<(Literal, &'t str), String> {
        let inside = text.strip_prefix("{{").ok_or(format!("no histogram in {text:?}"))?;
        let (inside, rest) = inside.split_once("}}").ok_or("a histogram has no end")?;
        Ok((Literal::parse(inside)?, rest))
    };
    let (mut literal, mut rest) = one(text)?;
    let mut step = None;
    if rest.starts_with(['+', '-']) {
        let sign = if rest.starts_with('+') { 1.0 } else { -1.0 };
        let (other, after) = one(&rest[1..])?;
        step = Some((other, sign));
        rest = after;
    }
    let tail = rest.split([' ', '\t']).next().unwrap_or_default();
    let times = tail.strip_prefix('x').map_or(Ok(0), str::parse::<usize>).map_err(|e| e.to_string())?;
    if let Some((other, _)) = &step {
        literal.compare_reset_like(other);
    }
    for i in 0..=times {
        items.push(Item::Histogram(Box::new(literal.clone())));
        if let Some((other, sign)) = step.as_ref().filter(|_| i < times) {
            literal.step(other, *sign)?;
        }
    }
    Ok(rest[tail.len()..].trim_start())
}

fn item(text: &str, items: &mut Vec<Item>) -> Result<(), String> {
    let bad = || format!("not a value: {text:?}");
    if let Some(rest) = text.strip_prefix('_') {
        let times = if rest.is_empty() {
            1
        } else {
            rest.strip_prefix('x').and_then(|n| n.parse().ok()).ok_or_else(bad)?
        };
        items.extend(std::iter::repeat_with(|| Item::Missing).take(times));
        return Ok(());
    }
    if text == "stale" {
        items.push(Item::Stale);
        return Ok(());
    }
    if let Some(value) = number(text) {
        items.push(Item::Value(value));
        return Ok(());
    }
    let (series, times) = text.rsplit_once('x').ok_or_else(bad)?;
    let times: usize = times.parse().map_err(|_| bad())?;
    let (first, step) = match number(series) {
        Some(value) => (value, 0.0),
        None => {
            // The sign between the two numbers is neither the first character nor the sign of an
            // exponent.
            let signs = series.char_indices().skip(1).filter(|(_, c)| "+-".contains(*c));
            let mut splits =
                signs.filter_map(|(at, _)| Some((number(&series[..at])?, number(&series[at..])?)));
            splits.next().ok_or_else(bad)?
        }
    };
    let mut value = first;
    for _ in 0..=times {
        items.push(Item::Value(value));
        value += step;
    }
    Ok(())
}

/// Parses the items of a line of start timestamps: `_`, `_x3`, `-30s`, `0x2`, `-30s-1mx2`.
pub(crate) fn starts(text: &str) -> Result<Vec<Option<i64>>, String> {
    let mut starts = Vec::new();
    for item in text.split([' ', '\t']).filter(|item| !item.is_empty()) {
        let bad = || format!("not a start time: {item:?}");
        let (what, times) = match item.rsplit_once('x') {
            Some((what, times)) => (what, Some(times.parse::<usize>().map_err(|_| bad())?)),
            None => (item, None),
        };
        if what == "_" {
            starts.extend(std::iter::repeat_n(None, times.unwrap_or(1)));
            continue;
        }
        let sign = what.char_indices().skip(1).find(|(_, c)| "+-".contains(*c)).map(|(at, _)| at);
        let (first, step) = what.split_at(sign.unwrap_or(what.len()));
        let mut offset = signed_duration(first).ok_or_else(bad)?;
        let step = if step.is_empty() { 0 } else { signed_duration(step).ok_or_else(bad)? };
        for _ in 0..=times.unwrap_or(0) {
            starts.push(Some(offset));
            offset += step;
        }
    }
    Ok(starts)
}

/// Parses a duration such as `-30s` as milliseconds; zero may have no unit.
fn signed_duration(text: &str) -> Option<i64> {
    let (sign, rest) = match text.as_bytes().first()? {
        b'-' => (-1, text.get(1..)?),
        b'+' => (1, text.get(1..)?),
        _ => (1, text),
    };
    if rest == "0" { Some(0) } else { promlet::model::parse_duration(rest).ok().map(|ms| sign * ms) }
}

/// Parses a number in the syntax of series descriptions.
pub(crate) fn number(text: &str) -> Option<f64> {
    let (sign, digits) = match text.as_bytes().first()? {
        b'-' => (-1.0, &text[1..]),
        b'+' => (1.0, &text[1..]),
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
        return u64::from_str_radix(&plain, 8).ok().map(|n| sign * n as f64);
    }
    plain.parse::<f64>().ok().map(|value| sign * value)
}
