//! The table of functions, and those that Prometheus adds.

use std::sync::Arc;

use super::patterns::{PatternStore, SearchBudget};
use super::text_functions as texts;
use super::times::{TemplateDuration, TemplateTime};
use super::value::{TemplateArgs, TemplateSample, TemplateValue, label};
use super::{
    OUTPUT_BYTES_MAX, PRODUCED_BYTES_MAX, QUERIES_MAX, TemplateData, builtins, format, humanize, number,
};
use crate::model::{DurationError, Timestamp, parse_duration};
use crate::rules::TemplateQuery;

/// The most samples that one query may return to a template.
const SAMPLES_MAX: usize = 10_000;

/// The most bytes of a text that is converted to a number or duration.
const NUMBER_BYTES_MAX: usize = 1_024;

type Outcome = Result<TemplateValue, String>;
type Context<'a, 'c> = &'a mut FunctionContext<'c>;
type Run = fn(&mut FunctionContext<'_>, &[TemplateValue]) -> Outcome;

/// The inputs of the functions of one expansion, and the rest of its limits.
pub(super) struct FunctionContext<'c> {
    pub(super) data: &'c TemplateData,
    query: &'c dyn TemplateQuery,
    now: Timestamp,
    search: SearchBudget<'c>,
    queries_left: usize,
    produced_left: usize,
}

impl<'c> FunctionContext<'c> {
    pub(super) fn new(
        data: &'c TemplateData,
        query: &'c dyn TemplateQuery,
        now: Timestamp,
        patterns: &'c PatternStore,
    ) -> FunctionContext<'c> {
        let search = SearchBudget::new(patterns);
        let (queries_left, produced_left) = (QUERIES_MAX, PRODUCED_BYTES_MAX);
        FunctionContext { data, query, now, search, queries_left, produced_left }
    }

    /// Counts a text that a function has made.
    pub(super) fn produced(&mut self, text: String) -> Outcome {
        self.spend(text.len())?;
        if text.len() > OUTPUT_BYTES_MAX {
            return Err(format!("the text has more than {OUTPUT_BYTES_MAX} bytes"));
        }
        Ok(TemplateValue::text(text))
    }

    /// Counts bytes that an expansion makes.
    pub(super) fn spend(&mut self, bytes: usize) -> Result<(), String> {
        self.produced_left = self
            .produced_left
            .checked_sub(bytes)
            .ok_or_else(|| format!("the expansion reads and makes more than {PRODUCED_BYTES_MAX} bytes"))?;
        Ok(())
    }
}

/// The type of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ParameterType {
    Any,
    Text,
    Sample,
    Samples,
}

/// A function of templates.
#[derive(Debug)]
pub(super) struct TemplateFunction {
    name: &'static str,
    pub(super) parameters: &'static [ParameterType],
    /// The type of any number of further arguments.
    pub(super) variadic: Option<ParameterType>,
    pub(super) run: Run,
}

/// A function with a fixed number of parameters.
const fn fixed(name: &'static str, parameters: &'static [ParameterType], run: Run) -> TemplateFunction {
    TemplateFunction { name, parameters, variadic: None, run }
}

/// A function with any number of further arguments of any type.
const fn open(name: &'static str, parameters: &'static [ParameterType], run: Run) -> TemplateFunction {
    TemplateFunction { name, parameters, variadic: Some(ParameterType::Any), run }
}

const ANY: &[ParameterType] = &[ParameterType::Any];
const TEXT: &[ParameterType] = &[ParameterType::Text];
const TWO: &[ParameterType] = &[ParameterType::Any, ParameterType::Any];

/// All functions. `and` and `or` stop at the first value that decides, so `exec` evaluates them.
static TEMPLATE_FUNCTIONS: &[TemplateFunction] = &[
    open("and", ANY, |_, args| Ok(args.last().cloned().unwrap_or(TemplateValue::Missing))),
    open("or", ANY, |_, args| Ok(args.last().cloned().unwrap_or(TemplateValue::Missing))),
    open("eq", ANY, builtins::eq),
    fixed("ne", TWO, builtins::ne),
    fixed("lt", TWO, builtins::lt),
    fixed("le", TWO, builtins::le),
    fixed("gt", TWO, builtins::gt),
    fixed("ge", TWO, builtins::ge),
    fixed("not", ANY, builtins::not),
    fixed("len", ANY, builtins::len),
    open("index", ANY, builtins::index),
    open("slice", ANY, builtins::slice),
    open("print", &[], builtins::print),
    open("println", &[], builtins::println),
    open("printf", TEXT, builtins::printf),
    open("html", &[], builtins::html),
    open("js", &[], builtins::js),
    open("urlquery", &[], builtins::urlquery),
    open("call", ANY, builtins::call),
    fixed("query", TEXT, query),
    fixed("first", &[ParameterType::Samples], first),
    fixed("label", &[ParameterType::Text, ParameterType::Sample], label_of),
    fixed("value", &[ParameterType::Sample], value_of),
    fixed("strvalue", &[ParameterType::Sample], text_value_of),
    fixed("sortByLabel", &[ParameterType::Text, ParameterType::Samples], sort_by_label),
    open("args", &[], |_, args| Ok(TemplateValue::Args(Arc::new(TemplateArgs::new(args)?)))),
    fixed("match", &[ParameterType::Text, ParameterType::Text], is_match),
    fixed("reReplaceAll", &[ParameterType::Text, ParameterType::Text, ParameterType::Text], replace_all),
    fixed("safeHtml", TEXT, |context, args| text(context, args, str::to_owned)),
    fixed("title", TEXT, |context, args| text(context, args, texts::title)),
    fixed("toUpper", TEXT, |context, args| text(context, args, str::to_uppercase)),
    fixed("toLower", TEXT, |context, args| text(context, args, str::to_lowercase)),
    fixed("graphLink", TEXT, |context, args| text(context, args, |expr| texts::expression_link(expr, 0))),
    fixed("tableLink", TEXT, |context, args| text(context, args, |expr| texts::expression_link(expr, 1))),
    fixed("stripPort", TEXT, |context, args| text(context, args, texts::strip_port)),
    fixed("stripDomain", TEXT, |context, args| text(context, args, texts::strip_domain)),
    fixed("urlQueryEscape", TEXT, |context, args| text(context, args, texts::query_escape)),
    fixed("humanize", ANY, |_, args| Ok(TemplateValue::text(humanize::humanize(number_of(args)?)))),
    fixed("humanize1024", ANY, |_, args| Ok(TemplateValue::text(humanize::humanize1024(number_of(args)?)))),
    fixed("humanizeDuration", ANY, |_, args| {
        Ok(TemplateValue::text(humanize::humanize_duration(number_of(args)?)))
    }),
    fixed("humanizePercentage", ANY, |_, args| {
        Ok(TemplateValue::text(humanize::humanize_percentage(number_of(args)?)))
    }),
    fixed("humanizeTimestamp", ANY, |_, args| {
        Ok(TemplateValue::text(humanize::humanize_timestamp(number_of(args)?)?))
    }),
    fixed("toTime", ANY, |_, args| Ok(TemplateValue::Time(TemplateTime::from_seconds(number_of(args)?)?))),
    fixed("toDuration", ANY, |_, args| {
        let ns = number::to_int(number_of(args)? * 1e9);
        Ok(TemplateValue::Duration(TemplateDuration { ns }))
    }),
    fixed("now", &[], |context, _| Ok(TemplateValue::Float(context.now.as_seconds()))),
    fixed("parseDuration", TEXT, parse_duration_of),
    fixed("pathPrefix", &[], |context, _| {
        Ok(TemplateValue::text(texts::url_path(&context.data.external_url)))
    }),
    fixed("externalURL", &[], |context, _| Ok(TemplateValue::Text(Arc::clone(&context.data.external_url)))),
];

/// Returns the function of this name.
pub(super) fn find(name: &str) -> Option<&'static TemplateFunction> {
    TEMPLATE_FUNCTIONS.iter().find(|function| function.name == name)
}

/// Returns whether there is a function of this name.
pub(super) fn exists(name: &str) -> bool {
    find(name).is_some()
}

/// Returns the text at an argument; the types were checked before.
fn text_at(args: &[TemplateValue], at: usize) -> Result<&str, String> {
    match args.get(at) {
        Some(TemplateValue::Text(text)) => Ok(text),
        _ => Err("expected string".into()),
    }
}

fn sample_at(args: &[TemplateValue], at: usize) -> Result<&TemplateSample, String> {
    match args.get(at) {
        Some(TemplateValue::Sample(sample)) => Ok(sample),
        _ => Err("runtime error: invalid memory address or nil pointer dereference".into()),
    }
}

fn samples_at(args: &[TemplateValue], at: usize) -> &[Arc<TemplateSample>] {
    match args.get(at) {
        Some(TemplateValue::Samples(samples)) => samples,
        _ => &[],
    }
}

/// Runs a function of one text.
fn text(context: Context<'_, '_>, args: &[TemplateValue], run: impl Fn(&str) -> String) -> Outcome {
    context.produced(run(text_at(args, 0)?))
}

/// Converts the first argument to a number, as Prometheus does: also a text.
fn number_of(args: &[TemplateValue]) -> Result<f64, String> {
    match args.first() {
        Some(TemplateValue::Float(float)) => Ok(*float),
        Some(TemplateValue::Int(int)) => Ok(number::to_float(*int)),
        #[expect(clippy::cast_precision_loss, reason = "seconds of a duration are a double in Go, too")]
        Some(TemplateValue::Duration(duration)) => Ok(duration.ns as f64 / 1e9),
        Some(TemplateValue::Text(text)) => parse_number(text).ok_or_else(|| {
            format!("strconv.ParseFloat: parsing {}: invalid syntax", format::quote(text, '"'))
        }),
        other => {
            let name = other.map_or("<nil>", TemplateValue::type_name);
            Err(format!("can't convert {name} to float"))
        }
    }
}

/// Parses a number like Go's strconv.ParseFloat; hexadecimal floats are not supported.
fn parse_number(text: &str) -> Option<f64> {
    if text.len() > NUMBER_BYTES_MAX {
        return None;
    }
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let word = matches!(unsigned.to_ascii_lowercase().as_str(), "inf" | "infinity" | "nan");
    let digits = unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    (word || digits).then(|| text.parse().ok()).flatten()
}

fn query(context: Context<'_, '_>, args: &[TemplateValue]) -> Outcome {
    context.queries_left = context
        .queries_left
        .checked_sub(1)
        .ok_or_else(|| format!("more than {QUERIES_MAX} queries in one expansion"))?;
    let found = context.query.query(text_at(args, 0)?)?;
    if found.len() > SAMPLES_MAX {
        return Err(format!("the query returns {} samples, more than {SAMPLES_MAX}", found.len()));
    }
    let mut samples: Vec<Arc<TemplateSample>> = Vec::with_capacity(found.len());
    for sample in found {
        let sample = TemplateSample::from(sample);
        context.spend(sample.bytes())?;
        samples.push(Arc::new(sample));
    }
    Ok(TemplateValue::Samples(samples.into()))
}

fn first(_: Context<'_, '_>, args: &[TemplateValue]) -> Outcome {
    let first = samples_at(args, 0).first();
    let first = first.ok_or_else(|| "first() called on vector with no elements".to_owned())?;
    Ok(TemplateValue::Sample(Arc::clone(first)))
}

fn label_of(_: Context<'_, '_>, args: &[TemplateValue]) -> Outcome {
    Ok(label(&sample_at(args, 1)?.labels, text_at(args, 0)?))
}

fn value_of(_: Context<'_, '_>, args: &[TemplateValue]) -> Outcome {
    Ok(sample_at(args, 0)?.value.clone())
}

fn text_value_of(_: Context<'_, '_>, args: &[TemplateValue]) -> Outcome {
    Ok(label(&sample_at(args, 0)?.labels, "__value__"))
}

fn sort_by_label(_: Context<'_, '_>, args: &[TemplateValue]) -> Outcome {
    let name = text_at(args, 0)?;
    let mut samples = samples_at(args, 1).to_vec();
    samples.sort_by(|a, b| a.labels.get(name).cmp(&b.labels.get(name)));
    Ok(TemplateValue::Samples(samples.into()))
}

fn is_match(context: Context<'_, '_>, args: &[TemplateValue]) -> Outcome {
    let (pattern, text) = (text_at(args, 0)?, text_at(args, 1)?);
    context.search.matches(pattern, text).map(TemplateValue::Bool)
}

fn replace_all(context: Context<'_, '_>, args: &[TemplateValue]) -> Outcome {
    let (pattern, replacement, text) = (text_at(args, 0)?, text_at(args, 1)?, text_at(args, 2)?);
    let replaced = context.search.replace_all(pattern, replacement, text, OUTPUT_BYTES_MAX);
    let replaced = replaced.map_err(|message| match message.strip_prefix("error parsing regexp") {
        Some(_) => format!("regexp: Compile(`{pattern}`): {message}"),
        None => message,
    })?;
    context.produced(replaced)
}

/// Returns the seconds of a duration such as `1h30m` or `-5m`.
fn parse_duration_of(_: Context<'_, '_>, args: &[TemplateValue]) -> Outcome {
    let text = text_at(args, 0)?;
    if text.is_empty() {
        return Err("empty duration string".into());
    }
    if text.len() > NUMBER_BYTES_MAX {
        return Err(format!("a duration has more than {NUMBER_BYTES_MAX} bytes"));
    }
    let (sign, rest) = text.strip_prefix('-').map_or((1.0, text), |rest| (-1.0, rest));
    let ms = parse_duration(rest).map_err(|error| match error {
        DurationError::Syntax(_) => duration_message(text),
        DurationError::Range(_) => "duration out of range".to_owned(),
    })?;
    Ok(TemplateValue::Float(sign * Timestamp::from_ms(ms).as_seconds()))
}

/// Returns Prometheus' message about a text that is not a duration.
fn duration_message(text: &str) -> String {
    let mut rest = text;
    while rest.starts_with(|c: char| c.is_ascii_digit()) {
        rest = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        let (unit, after) = rest.split_at(rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len()));
        if !unit.is_empty() && !["ms", "s", "m", "h", "d", "w", "y"].contains(&unit) {
            let (unit, text) = (format::quote(unit, '"'), format::quote(text, '"'));
            return format!("unknown unit {unit} in duration {text}");
        }
        rest = after;
    }
    format!("not a valid duration string: {}", format::quote(text, '"'))
}
