//! Rule files as Prometheus 3.5 writes them, with the position of each error.
//!
//! Source: "Recording rules" and "Alerting rules" of the documentation of Prometheus. Errors have
//! the line and the column in the file, inside an expression too where its text stands in the file
//! as it is.

mod check;
mod place;
#[cfg(test)]
mod tests;
mod text;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use serde::Deserialize;

use super::group::{AlertingRule, Rule, RuleGroup, RuleKind};
use super::template;
use crate::model::{format_duration, parse_duration};
use crate::promql::syntax::tree::ValueType;
use crate::promql::syntax::{Caps, Parsed, parse};
use crate::yaml::{self, Position, Spanned, YamlError};
pub use text::group_text;

/// The most bytes of a file, inclusive.
pub const RULE_FILE_BYTES_MAX: usize = 8 << 20;
/// The most groups of a file and of an organisation, inclusive.
pub const RULE_GROUPS_MAX: usize = 1_000;
/// The most rules of an organisation, inclusive.
pub const RULES_MAX: usize = 20_000;
/// The most labels of a rule, and the most annotations, inclusive.
const RULE_TEXTS_MAX: usize = 64;
/// The most bytes of a name of a group, rule, label or annotation, inclusive.
const RULE_NAME_BYTES_MAX: usize = 1_024;
/// The most bytes of the value of a label or annotation, inclusive.
const RULE_VALUE_BYTES_MAX: usize = 64 << 10;
/// The least interval of a group in milliseconds, inclusive.
const RULE_INTERVAL_MS_MIN: i64 = 10;
/// The greatest interval, offset, `for` and `keep_firing_for` in milliseconds, inclusive: 10 years.
const RULE_DURATION_MS_MAX: i64 = 10 * 365 * 86_400_000;

/// The function that checks a template: the message of the first error, if there is one.
pub type TemplateCheck = fn(&str) -> Result<(), String>;

/// The settings of the decoder.
#[derive(Clone, Copy, Debug)]
pub struct RuleFileOptions<'a> {
    /// The caps of expressions.
    pub caps: &'a Caps,
    /// Checks the labels and annotations of alerting rules.
    pub check_template: TemplateCheck,
}

impl<'a> RuleFileOptions<'a> {
    /// Returns options with these caps, which check templates.
    pub fn within(caps: &'a Caps) -> RuleFileOptions<'a> {
        RuleFileOptions {
            caps,
            check_template: |text| template::check(text).map_err(|error| error.to_string()),
        }
    }
}

impl Default for RuleFileOptions<'_> {
    /// Returns options with the default caps, which check templates.
    fn default() -> Self {
        static CAPS: OnceLock<Caps> = OnceLock::new();
        RuleFileOptions::within(CAPS.get_or_init(Caps::default))
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleFileText {
    #[serde(default)]
    groups: Option<Vec<Spanned<GroupText>>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct GroupText {
    #[serde(default)]
    name: Option<Spanned<String>>,
    #[serde(default)]
    interval: Option<Spanned<String>>,
    #[serde(default)]
    query_offset: Option<Spanned<String>>,
    #[serde(default)]
    limit: Option<Spanned<u32>>,
    #[serde(default)]
    labels: Option<BTreeMap<String, Spanned<String>>>,
    #[serde(default)]
    rules: Option<Vec<Spanned<RuleText>>>,
    /// Only in Mimir: the tenants whose samples the group reads.
    #[serde(default)]
    source_tenants: Option<Spanned<Vec<String>>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleText {
    #[serde(default)]
    record: Option<Spanned<String>>,
    #[serde(default)]
    alert: Option<Spanned<String>>,
    #[serde(default)]
    expr: Option<Spanned<String>>,
    #[serde(default, rename = "for")]
    hold: Option<Spanned<String>>,
    #[serde(default)]
    keep_firing_for: Option<Spanned<String>>,
    #[serde(default)]
    labels: Option<BTreeMap<String, Spanned<String>>>,
    #[serde(default)]
    annotations: Option<BTreeMap<String, Spanned<String>>>,
}

/// Decodes a rule file.
///
/// # Errors
/// [`YamlError`] for the first error.
pub fn decode_rule_file(text: &str, options: RuleFileOptions<'_>) -> Result<Vec<RuleGroup>, YamlError> {
    let file: RuleFileText = yaml::decode(text, RULE_FILE_BYTES_MAX)?;
    let reader = FileReader { text, options };
    let groups = file.groups.unwrap_or_default();
    if groups.len() > RULE_GROUPS_MAX {
        let message = format!("{} groups, more than the {RULE_GROUPS_MAX} allowed", groups.len());
        return Err(YamlError { position: Position { line: 1, column: 1 }, message });
    }
    let mut names: BTreeSet<String> = BTreeSet::new();
    let mut decoded = Vec::with_capacity(groups.len());
    let mut rules = 0;
    for group in &groups {
        let (position, group) = (yaml::position(group), reader.group(group)?);
        if !names.insert(group.name.clone()) {
            let message = format!("groupname: {:?} is repeated in the same file", group.name);
            return Err(YamlError { position, message });
        }
        rules += group.rules.len();
        check::rule_count(rules, position)?;
        decoded.push(group);
    }
    Ok(decoded)
}

/// Decodes one group, as the API stores it: the keys of a group at the top level.
///
/// # Errors
/// [`YamlError`] for the first error.
pub fn decode_rule_group(text: &str, options: RuleFileOptions<'_>) -> Result<RuleGroup, YamlError> {
    let group: Spanned<GroupText> = yaml::decode(text, RULE_FILE_BYTES_MAX)?;
    FileReader { text, options }.group(&group)
}

/// Decodes one rule: the keys of a rule at the top level.
///
/// # Errors
/// [`YamlError`] for the first error.
pub fn decode_rule(text: &str, options: RuleFileOptions<'_>) -> Result<Rule, YamlError> {
    let rule: Spanned<RuleText> = yaml::decode(text, RULE_FILE_BYTES_MAX)?;
    FileReader { text, options }.rule(&rule, &BTreeMap::new())
}

/// Converts the decoded text of a file.
struct FileReader<'a> {
    text: &'a str,
    options: RuleFileOptions<'a>,
}

impl FileReader<'_> {
    fn group(&self, spanned: &Spanned<GroupText>) -> Result<RuleGroup, YamlError> {
        let (position, group) = (yaml::position(spanned), &spanned.value);
        let refuse = |message: &str| Err(YamlError { position, message: message.to_owned() });
        let Some(name) = group.name.as_ref().filter(|name| !name.value.is_empty()) else {
            return refuse("Groupname must not be empty");
        };
        check::name("group name", &name.value, yaml::position(name))?;
        if let Some(tenants) = group.source_tenants.as_ref().filter(|tenants| !tenants.value.is_empty()) {
            let message = "source_tenants is not supported: a group reads its own organisation".to_owned();
            return Err(YamlError { position: yaml::position(tenants), message });
        }
        let interval_ms = self.duration(group.interval.as_ref())?.filter(|ms| *ms != 0);
        if let (Some(ms), Some(text)) = (interval_ms, &group.interval)
            && ms < RULE_INTERVAL_MS_MIN
        {
            let least = format_duration(RULE_INTERVAL_MS_MIN);
            let message = format!("the interval is less than {least}");
            return Err(YamlError { position: yaml::position(text), message });
        }
        let labels = check::labels(group.labels.as_ref(), position)?;
        let rules = group.rules.as_deref().unwrap_or_default();
        check::rule_count(rules.len(), position)?;
        Ok(RuleGroup {
            name: name.value.clone(),
            interval_ms,
            limit: group.limit.as_ref().map_or(0, |limit| usize::try_from(limit.value).unwrap_or(usize::MAX)),
            query_offset_ms: self.duration(group.query_offset.as_ref())?,
            rules: rules.iter().map(|rule| self.rule(rule, &labels)).collect::<Result<_, _>>()?,
            labels,
        })
    }

    fn rule(&self, spanned: &Spanned<RuleText>, group: &BTreeMap<String, String>) -> Result<Rule, YamlError> {
        let (position, rule) = (yaml::position(spanned), &spanned.value);
        let refuse = |message: &str| Err(YamlError { position, message: message.to_owned() });
        let given = |text: &Option<Spanned<String>>| text.as_ref().is_some_and(|text| !text.value.is_empty());
        let named = match (given(&rule.record), given(&rule.alert)) {
            (true, true) => return refuse("only one of 'record' and 'alert' must be set"),
            (false, false) => return refuse("one of 'record' or 'alert' must be set"),
            _ => rule.record.as_ref().filter(|name| !name.value.is_empty()).or(rule.alert.as_ref()),
        };
        let Some(named) = named else { return refuse("one of 'record' or 'alert' must be set") };
        check::name("rule name", &named.value, yaml::position(named))?;
        let Some(expr) = rule.expr.as_ref().filter(|expr| !expr.value.is_empty()) else {
            return refuse("field 'expr' must be set in rule");
        };
        let kind =
            if given(&rule.record) { self.recording(rule, named)? } else { self.alerting(rule, named)? };
        let parsed = self.expression(expr)?;
        let own = check::labels(rule.labels.as_ref(), position)?;
        if let RuleKind::Alerting(_) = kind {
            self.templates(rule.labels.as_ref(), "label")?;
            self.templates(rule.annotations.as_ref(), "annotation")?;
        }
        let mut labels = group.clone();
        labels.extend(own);
        Ok(Rule { kind, expr: expr.value.clone(), parsed, labels })
    }

    fn recording(&self, rule: &RuleText, name: &Spanned<String>) -> Result<RuleKind, YamlError> {
        for (key, value) in [("for", &rule.hold), ("keep_firing_for", &rule.keep_firing_for)] {
            if let Some(value) = value
                && self.duration(Some(value))?.is_some_and(|ms| ms != 0)
            {
                let message = format!("invalid field '{key}' in recording rule");
                return Err(YamlError { position: yaml::position(value), message });
            }
        }
        if let Some(first) = rule.annotations.as_ref().and_then(|texts| texts.values().next()) {
            let message = "invalid field 'annotations' in recording rule".to_owned();
            return Err(YamlError { position: yaml::position(first), message });
        }
        if name.value.contains(['{', '}']) {
            let name_text = &name.value;
            let message =
                format!("braces present in the recording rule name; should it be in expr?: {name_text}");
            return Err(YamlError { position: yaml::position(name), message });
        }
        Ok(RuleKind::Recording { record: name.value.clone() })
    }

    fn alerting(&self, rule: &RuleText, name: &Spanned<String>) -> Result<RuleKind, YamlError> {
        Ok(RuleKind::Alerting(AlertingRule {
            alert: name.value.clone(),
            for_ms: self.duration(rule.hold.as_ref())?.unwrap_or_default(),
            keep_firing_for_ms: self.duration(rule.keep_firing_for.as_ref())?.unwrap_or_default(),
            annotations: check::annotations(rule.annotations.as_ref())?,
        }))
    }

    fn duration(&self, text: Option<&Spanned<String>>) -> Result<Option<i64>, YamlError> {
        let Some(text) = text else { return Ok(None) };
        let refuse = |message| Err(YamlError { position: yaml::position(text), message });
        match parse_duration(&text.value) {
            Ok(ms) if ms > RULE_DURATION_MS_MAX => refuse("the duration is more than 10 years".to_owned()),
            Ok(ms) => Ok(Some(ms)),
            Err(error) => refuse(error.to_string()),
        }
    }

    fn expression(&self, expr: &Spanned<String>) -> Result<Parsed, YamlError> {
        let position = yaml::position(expr);
        let parsed = parse(&expr.value, self.options.caps).map_err(|error| {
            let inner = Position { line: error.line.into(), column: error.column.into() };
            let placed = place::within(self.text, position, &expr.value, inner);
            let located = if placed.is_some() { String::new() } else { format!("{inner}: ") };
            let message = format!("could not parse expression: {located}{}", error.message);
            YamlError { position: placed.unwrap_or(position), message }
        })?;
        match parsed.value_type {
            ValueType::Scalar | ValueType::Vector => Ok(parsed),
            ValueType::Text | ValueType::Matrix => {
                let kind = parsed.value_type.as_str();
                let message = format!("the expression of a rule is a vector or a scalar, not a {kind}");
                Err(YamlError { position, message })
            }
        }
    }

    fn templates(
        &self,
        texts: Option<&BTreeMap<String, Spanned<String>>>,
        kind: &str,
    ) -> Result<(), YamlError> {
        for (name, text) in texts.into_iter().flatten().filter(|(_, text)| text.value.contains("{{")) {
            (self.options.check_template)(&text.value).map_err(|error| YamlError {
                position: yaml::position(text),
                message: format!("{kind} {name:?}: {error}"),
            })?;
        }
        Ok(())
    }
}
