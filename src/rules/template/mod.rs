//! Templates in labels and annotations of alerting rules: the part of Go's text/template that rules
//! use, with the functions of Prometheus.
//!
//! `lex` and `parse` build the tree of a text, `exec` runs it. An expansion is bounded by steps,
//! bytes, depth, queries and compiled patterns, so that no template delays its group for long.

mod builtins;
mod exec;
mod float;
mod format;
mod functions;
mod humanize;
mod lex;
mod number;
mod parse;
mod patterns;
#[cfg(test)]
mod tests;
mod text_functions;
mod times;
mod tree;
mod value;

use std::collections::BTreeMap;
use std::sync::Arc;

use super::TemplateQuery;
use crate::model::Timestamp;
use crate::promql::FloatHistogram;
use patterns::PatternStore;
use tree::TemplateTree;

/// The most bytes of a template.
const TEXT_BYTES_MAX: usize = 64 << 10;
/// The most actions, pipelines and parentheses inside each other.
const NESTING_MAX: usize = 40;
/// The most steps of one expansion; each node, operand and call is one.
const STEPS_MAX: usize = 100_000;
/// The most bytes of an expanded text.
const OUTPUT_BYTES_MAX: usize = 64 << 10;
/// The most bytes of all texts that the functions of one expansion read and make, and of the labels
/// that its queries return.
const PRODUCED_BYTES_MAX: usize = 8 << 20;
/// The most nodes, pipelines and templates that are being executed inside each other.
const DEPTH_MAX: usize = 120;
/// The most queries of one expansion.
const QUERIES_MAX: usize = 100;

/// The data of an expansion.
#[derive(Clone, Debug, Default)]
pub(in crate::rules) struct TemplateData {
    /// The name of the template in messages: `__alert_` and the name of the alert.
    pub(in crate::rules) name: String,
    /// The labels of the sample: `.Labels` and `$labels`.
    pub(in crate::rules) labels: Arc<BTreeMap<String, String>>,
    /// The external labels of the server: `.ExternalLabels` and `$externalLabels`.
    pub(in crate::rules) external_labels: Arc<BTreeMap<String, String>>,
    /// The URL of the server: `.ExternalURL` and `$externalURL`.
    pub(in crate::rules) external_url: Arc<str>,
    /// The value of the sample: `.Value` and `$value`.
    pub(in crate::rules) value: f64,
    /// The value, if it is a native histogram.
    pub(in crate::rules) histogram: Option<Arc<FloatHistogram>>,
}

/// The reason why a template cannot be parsed or expanded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {message}")]
pub(in crate::rules) struct TemplateError {
    /// The line in the template, from 1.
    pub(in crate::rules) line: usize,
    /// The column in characters, from 1.
    pub(in crate::rules) column: usize,
    /// The message, without the position.
    pub(in crate::rules) message: String,
    /// The operand that was executed; empty if the template cannot be parsed.
    operand: String,
    /// Bytes of the line before the position.
    line_bytes: usize,
}

impl TemplateError {
    /// Describes an error at a byte offset of the template.
    fn at(text: &str, offset: usize, message: impl Into<String>) -> TemplateError {
        let before = text.get(..text.floor_char_boundary(offset)).unwrap_or_default();
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let in_line = before.get(line_start..).unwrap_or_default();
        TemplateError {
            line: before.matches('\n').count() + 1,
            column: in_line.chars().count() + 1,
            message: message.into(),
            operand: String::new(),
            line_bytes: in_line.len(),
        }
    }

    /// Returns the text that replaces the annotation, as Prometheus writes it.
    pub(in crate::rules) fn annotation(&self, name: &str) -> String {
        /// Prometheus parses this text in front of the template, on the same line.
        const DEFINITIONS: &str = "{{$labels := .Labels}}{{$externalLabels := .ExternalLabels}}\
                                   {{$externalURL := .ExternalURL}}{{$value := .Value}}";
        let TemplateError { line, message, operand, .. } = self;
        if operand.is_empty() {
            let what = format!("error parsing template {name}: template: {name}:{line}: {message}");
            return format!("<error expanding template: {what}>");
        }
        let column = self.line_bytes + if *line == 1 { DEFINITIONS.len() } else { 0 };
        let place = format!("{name}:{line}:{column}: executing {name:?} at <{operand}>");
        format!("<error expanding template: error executing template {name}: template: {place}: {message}>")
    }
}

/// A parsed template. It keeps the regular expressions that its expansions have compiled.
#[derive(Debug)]
pub(in crate::rules) struct Template {
    text: String,
    tree: TemplateTree,
    patterns: PatternStore,
}

impl Template {
    /// Parses a template.
    ///
    /// # Errors
    /// [`TemplateError`] with the position.
    pub(in crate::rules) fn parse(text: &str) -> Result<Template, TemplateError> {
        let tree = parse::parse(text)?;
        Ok(Template { text: text.to_owned(), tree, patterns: PatternStore::default() })
    }

    /// Returns the text as given.
    pub(in crate::rules) fn text(&self) -> &str {
        &self.text
    }

    /// Expands the template. `now` is the time of the evaluation.
    ///
    /// # Errors
    /// [`TemplateError`] for a function that fails, a value of the wrong type, and every limit.
    pub(in crate::rules) fn expand(
        &self,
        data: &TemplateData,
        query: &dyn TemplateQuery,
        now: Timestamp,
    ) -> Result<String, TemplateError> {
        // Most labels and annotations are plain text.
        if !self.text.contains("{{") {
            return Ok(self.text.clone());
        }
        let context = functions::FunctionContext::new(data, query, now, &self.patterns);
        exec::execute(&self.text, &self.tree, context)
    }

    /// Expands the template; an error becomes the text that Prometheus writes.
    pub(in crate::rules) fn expand_or_error(
        &self,
        data: &TemplateData,
        query: &dyn TemplateQuery,
        now: Timestamp,
    ) -> String {
        self.expand(data, query, now).unwrap_or_else(|error| error.annotation(&data.name))
    }
}

/// Checks that a text is a template, as a rule file is loaded.
///
/// # Errors
/// [`TemplateError`] with the position.
pub(in crate::rules) fn check(text: &str) -> Result<(), TemplateError> {
    parse::parse(text).map(drop)
}

/// Quotes a text like Go's strconv.Quote.
pub(in crate::rules) fn go_quote(text: &str) -> String {
    format::quote(text, '"')
}

/// Returns a number with as many digits as identify it, like Go's `%g`.
pub(in crate::rules) fn go_shortest(value: f64) -> String {
    float::shortest(value)
}

/// Returns a number with its exponent and as many digits as identify it, like Go's
/// `strconv.FormatFloat(value, 'e', -1, 64)`.
pub fn go_exponent(value: f64) -> String {
    float::format_float(value, float::FloatForm::Exponent, None)
}

/// Returns milliseconds as Go writes a duration: `1h0m0s`.
pub(in crate::rules) fn go_duration(ms: i64) -> String {
    times::TemplateDuration { ns: ms.saturating_mul(1_000_000) }.to_string()
}
