//! The parser of scripts.

use std::collections::BTreeMap;

use promlet::model::{Labels, Timestamp, parse_duration};

use super::classic::native_from_classic;
use super::expect::{Expected, MessageRule};
use super::series::{self, SeriesLine, unquote};

/// An error in a script itself.
#[derive(Debug)]
pub(crate) struct ScriptError {
    /// Counted from one.
    pub(crate) line: usize,
    pub(crate) what: String,
}

/// One command.
#[derive(Debug)]
pub(crate) enum Command {
    Clear,
    Load { line: usize, interval_ms: i64, series: Vec<SeriesLine> },
    Eval(Box<Eval>),
}

/// One evaluation and its expected outcome.
#[derive(Debug)]
pub(crate) struct Eval {
    pub(crate) line: usize,
    pub(crate) kind: EvalKind,
    pub(crate) query: String,
    pub(crate) expected: Expected,
}

/// The evaluation times.
#[derive(Clone, Copy, Debug)]
pub(crate) enum EvalKind {
    Instant { at: Timestamp },
    Range { start: Timestamp, end: Timestamp, step_ms: i64 },
}

/// Parses a whole script.
pub(crate) fn parse(text: &str) -> Result<Vec<Command>, ScriptError> {
    let lines: Vec<&str> = text.split('\n').map(|line| line.trim_matches([' ', '\t', '\r'])).collect();
    let blank = |line: &str| line.is_empty() || line.starts_with('#');
    let mut commands = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        let (number, line) = (at + 1, lines[at]);
        at += 1;
        if blank(line) {
            continue;
        }
        let from = at;
        while at < lines.len() && !blank(lines[at]) {
            at += 1;
        }
        let body = &lines[from..at];
        let fail = |what: String| ScriptError { line: number, what };
        let word = line.split([' ', '\t']).next().unwrap_or_default().to_ascii_lowercase();
        if word == "clear" {
            commands.push(Command::Clear);
            at = from;
        } else if word.starts_with("load") {
            commands.push(load(number, line, body).map_err(fail)?);
        } else if word.starts_with("eval") {
            commands.push(Command::Eval(Box::new(eval(number, line, body).map_err(fail)?)));
        } else {
            return Err(fail(format!("unknown command {word:?}")));
        }
    }
    Ok(commands)
}

fn duration(text: &str) -> Result<i64, String> {
    parse_duration(text).map_err(|e| e.to_string())
}

fn load(number: usize, line: &str, body: &[&str]) -> Result<Command, String> {
    let (command, interval) = line.split_once([' ', '\t']).ok_or("load has no interval")?;
    let twice = match command {
        "load" => false,
        "load_with_nhcb" => true,
        other => return Err(format!("unknown command {other:?}")),
    };
    let interval_ms = duration(interval.trim())?;
    let mut found: BTreeMap<Labels, SeriesLine> = BTreeMap::new();
    let mut starts: Option<(Labels, Vec<Option<i64>>)> = None;
    for line in body {
        let metric = line.split([' ', '\t']).next().and_then(|word| word.strip_suffix("@st"));
        if let Some(metric) = metric {
            let items = line.get(metric.len() + "@st".len()..).unwrap_or_default();
            starts = Some((series::parse(metric)?.labels, series::starts(items)?));
            continue;
        }
        let mut series = series::parse(line)?;
        if let Some((labels, starts)) = starts.take() {
            if labels != series.labels || starts.len() != series.items.len() {
                return Err(format!("the start times before {line:?} are of another series"));
            }
            series.starts = starts;
        }
        found.insert(series.labels.clone(), series);
    }
    let native = if twice { native_from_classic(&found)? } else { Vec::new() };
    Ok(Command::Load { line: number, interval_ms, series: found.into_values().chain(native).collect() })
}

fn eval(number: usize, line: &str, body: &[&str]) -> Result<Eval, String> {
    let (command, rest) = line.split_once([' ', '\t']).ok_or("eval of nothing")?;
    let mut expected = Expected::default();
    match command {
        "eval" => {}
        "eval_fail" => expected.fail = Some(MessageRule::Anything),
        "eval_warn" => expected.warnings = vec![MessageRule::Anything],
        "eval_info" => expected.infos = vec![MessageRule::Anything],
        "eval_ordered" => expected.ordered = true,
        other => return Err(format!("unknown command {other:?}")),
    }
    let (kind, query) = when(rest.trim())?;
    for line in body {
        if !expectation(line, &mut expected)? {
            break;
        }
    }
    Ok(Eval { line: number, kind, query: query.to_owned(), expected })
}

/// Parses `instant at 5m QUERY` or `range from 0 to 5m step 1m QUERY`.
fn when(text: &str) -> Result<(EvalKind, &str), String> {
    fn after<'t>(text: &'t str, words: &[&str]) -> Result<&'t str, String> {
        let mut rest = text;
        for word in words {
            rest =
                rest.strip_prefix(word).ok_or(format!("{word:?} is missing before {rest:?}"))?.trim_start();
        }
        Ok(rest)
    }
    let time = |text: &str| duration(text).map(Timestamp::from_ms);
    let word = |text: &str| text.find([' ', '\t']).map_or((text.len(), text.len()), |end| (end, end + 1));
    if text.starts_with("instant") {
        let rest = after(text, &["instant", "at"])?;
        let (end, next) = word(rest);
        return Ok((EvalKind::Instant { at: time(&rest[..end])? }, rest[next..].trim()));
    }
    let mut rest = after(text, &["range", "from"])?;
    let (end, next) = word(rest);
    let start = time(&rest[..end])?;
    rest = after(rest[next..].trim_start(), &["to"])?;
    let (end, next) = word(rest);
    let until = time(&rest[..end])?;
    rest = after(rest[next..].trim_start(), &["step"])?;
    let (end, next) = word(rest);
    let step_ms = duration(&rest[..end])?;
    Ok((EvalKind::Range { start, end: until, step_ms }, rest[next..].trim()))
}

/// Parses one line of expectations; `false` ends the body.
fn expectation(line: &str, expected: &mut Expected) -> Result<bool, String> {
    if let Some(text) = line.strip_prefix("expected_fail_message ") {
        expected.fail = Some(MessageRule::Exactly(text.trim().to_owned()));
        return Ok(false);
    }
    if let Some(text) = line.strip_prefix("expected_fail_regexp ") {
        expected.fail = Some(MessageRule::regex(text.trim())?);
        return Ok(false);
    }
    if let Some(rest) = line.strip_prefix("expect range vector from ") {
        let words: Vec<&str> = rest.split([' ', '\t']).filter(|word| !word.is_empty()).collect();
        let [from, "to", _, "step", step] = words[..] else { return Err(format!("not a grid: {rest:?}")) };
        expected.raw = Some((Timestamp::from_ms(duration(from)?), duration(step)?));
        return Ok(true);
    }
    if let Some(rest) = line.strip_prefix("expect string ") {
        expected.text = Some(unquote(rest.trim())?.0);
        return Ok(true);
    }
    if let Some(rest) = line.strip_prefix("expect ") {
        rule(rest.trim(), expected)?;
        return Ok(true);
    }
    if let Some(value) = scalar(line) {
        expected.scalar = Some(value);
        return Ok(false);
    }
    let series = series::parse(line)?;
    let position = expected.series.iter().position(|expectation| expectation.labels == series.labels);
    match position {
        Some(position) => expected.series[position] = series,
        None => expected.series.push(series),
    }
    Ok(true)
}

fn scalar(line: &str) -> Option<f64> {
    let lower = line.to_ascii_lowercase();
    match lower.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok().map(|n| n as f64),
        None => series::number(line),
    }
}

fn rule(text: &str, expected: &mut Expected) -> Result<(), String> {
    let (word, rest) = text.split_once([' ', '\t']).unwrap_or((text, ""));
    let rest = rest.trim();
    let rule = if let Some(message) = rest.strip_prefix("msg:") {
        MessageRule::Exactly(message.trim().to_owned())
    } else if let Some(regex) = rest.strip_prefix("regex:") {
        MessageRule::regex(regex.trim())?
    } else {
        MessageRule::Anything
    };
    match word {
        "ordered" => expected.ordered = true,
        "fail" => expected.fail = Some(rule),
        "warn" => expected.warnings.push(rule),
        "info" => expected.infos.push(rule),
        "no_warn" => expected.no_warning = true,
        "no_info" => expected.no_info = true,
        other => return Err(format!("unknown expectation {other:?}")),
    }
    Ok(())
}
