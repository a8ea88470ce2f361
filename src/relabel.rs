//! Relabelling of series and targets, with the rules of Prometheus' `write_relabel_configs`,
//! `relabel_configs` and `metric_relabel_configs`.
//!
//! Source: `relabel_config` in the documentation of Prometheus' configuration.
//! Patterns are anchored at both ends. A label whose value becomes empty is removed.

use std::borrow::Cow;

use md5::{Digest as _, Md5};
use serde::{Deserialize, Serialize};

use crate::model::{Captures, Pattern, PatternError};

/// The most rules of one list, inclusive.
pub const RULES_MAX: usize = 64;
/// The most bytes of each text of a rule, inclusive.
const TEXT_BYTES_MAX: usize = 4_096;
/// The most source labels of a rule, inclusive.
const SOURCES_MAX: usize = 32;
/// The most bytes of a text that a rule joins or makes, inclusive. A longer one is cut off.
const VALUE_BYTES_MAX: usize = 64 << 10;
/// The most bytes of a label name that a rule makes, inclusive. A longer one is not set.
const NAME_BYTES_MAX: usize = 1_024;
/// The most labels of a series that rules make, inclusive. A label beyond this number is not added.
const LABELS_MAX: usize = 128;

/// The labels of a series, in any order. Each name occurs once.
pub type LabelPairs<'a> = Vec<(Cow<'a, str>, Cow<'a, str>)>;

/// A rule as it is configured, with the names and defaults of Prometheus.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RelabelRule {
    /// The labels whose values are joined and matched.
    #[serde(default)]
    pub source_labels: Vec<String>,
    /// The text between joined values.
    #[serde(default = "default_separator")]
    pub separator: String,
    /// The label that is set. In `replace`, `$1` and `${1}` stand for groups of the pattern.
    #[serde(default)]
    pub target_label: String,
    /// The pattern, anchored at both ends.
    #[serde(default = "default_regex")]
    pub regex: String,
    /// The divisor of `hashmod`.
    #[serde(default)]
    pub modulus: u64,
    /// The new value or name; `$1` and `${1}` stand for groups of the pattern.
    #[serde(default = "default_replacement")]
    pub replacement: String,
    /// The action.
    #[serde(default)]
    pub action: RelabelAction,
}

/// The action of a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RelabelAction {
    /// Sets `target_label` if the pattern matches.
    #[default]
    Replace,
    /// Keeps the series if the pattern matches.
    Keep,
    /// Drops the series if the pattern matches.
    Drop,
    /// Keeps the series if the joined values equal the value of `target_label`.
    KeepEqual,
    /// Drops the series if the joined values equal the value of `target_label`.
    DropEqual,
    /// Sets `target_label` to a hash of the joined values modulo `modulus`.
    HashMod,
    /// Removes the labels whose names match.
    LabelDrop,
    /// Removes the labels whose names do not match.
    LabelKeep,
    /// Copies the labels whose names match to the name `replacement`.
    LabelMap,
    /// Sets `target_label` to the joined values in lower case.
    Lowercase,
    /// Sets `target_label` to the joined values in upper case.
    Uppercase,
}

impl RelabelAction {
    /// Returns whether the action sets or compares `target_label`, which then is required.
    pub const fn has_target(self) -> bool {
        matches!(
            self,
            RelabelAction::Replace
                | RelabelAction::KeepEqual
                | RelabelAction::DropEqual
                | RelabelAction::HashMod
                | RelabelAction::Lowercase
                | RelabelAction::Uppercase
        )
    }
}

/// The default of [`RelabelRule::separator`].
pub const DEFAULT_SEPARATOR: &str = ";";
/// The default of [`RelabelRule::regex`].
pub const DEFAULT_REGEX: &str = "(.*)";
/// The default of [`RelabelRule::replacement`].
pub const DEFAULT_REPLACEMENT: &str = "$1";

fn default_separator() -> String {
    DEFAULT_SEPARATOR.to_owned()
}

fn default_regex() -> String {
    DEFAULT_REGEX.to_owned()
}

fn default_replacement() -> String {
    DEFAULT_REPLACEMENT.to_owned()
}

/// The reason why rules are not valid.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RelabelError {
    /// There are too many rules.
    #[error("at most {RULES_MAX} relabelling rules are allowed")]
    TooMany,
    /// A rule is not valid.
    #[error("relabelling rule {rule}: {message}")]
    Rule {
        /// The place of the rule, from 1.
        rule: usize,
        /// The reason.
        message: String,
    },
}

/// A compiled rule.
#[derive(Clone, Debug)]
struct CompiledRule {
    rule: RelabelRule,
    pattern: Pattern,
}

impl PartialEq for CompiledRule {
    fn eq(&self, other: &CompiledRule) -> bool {
        self.rule == other.rule
    }
}

impl Eq for CompiledRule {}

/// Compiled rules, which are equal if their configurations are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RelabelRules(Vec<CompiledRule>);

impl RelabelRules {
    /// Compiles rules.
    ///
    /// # Errors
    /// [`RelabelError`] for the first rule that is not valid.
    pub fn parse(rules: &[RelabelRule]) -> Result<RelabelRules, RelabelError> {
        if rules.len() > RULES_MAX {
            return Err(RelabelError::TooMany);
        }
        let compiled = rules.iter().enumerate().map(|(place, rule)| {
            let pattern = check(rule)
                .and_then(|()| Pattern::new(&rule.regex).map_err(|error: PatternError| error.to_string()));
            pattern
                .map(|pattern| CompiledRule { rule: rule.clone(), pattern })
                .map_err(|message| RelabelError::Rule { rule: place + 1, message })
        });
        compiled.collect::<Result<Vec<_>, _>>().map(RelabelRules)
    }

    /// Returns whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Applies the rules in order. Returns false if the series is dropped. The labels are sorted by
    /// name afterwards. A series without labels is dropped, too.
    pub fn apply(&self, labels: &mut LabelPairs<'_>) -> bool {
        let goes_on = self.0.iter().all(|compiled| compiled.apply(labels));
        labels.retain(|(_, value)| !value.is_empty());
        labels.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        goes_on && !labels.is_empty()
    }
}

fn check(rule: &RelabelRule) -> Result<(), String> {
    let texts = [&rule.separator, &rule.target_label, &rule.regex, &rule.replacement];
    if texts.into_iter().chain(&rule.source_labels).any(|text| text.len() > TEXT_BYTES_MAX) {
        return Err(format!("a text has more than {TEXT_BYTES_MAX} bytes"));
    }
    if rule.source_labels.len() > SOURCES_MAX {
        return Err(format!("at most {SOURCES_MAX} source labels are allowed"));
    }
    match (rule.action, rule.modulus) {
        (RelabelAction::HashMod, 0) => return Err("hashmod needs a modulus that is not zero".to_owned()),
        (RelabelAction::HashMod, _) | (_, 0) => {}
        _ => return Err("modulus has no effect in this action".to_owned()),
    }
    match (rule.action.has_target(), is_name(&rule.target_label), rule.target_label.is_empty()) {
        (true, true, _) | (false, _, true) => Ok(()),
        (true, false, _) => Err("target_label must be the name of a label".to_owned()),
        (false, _, false) => Err("target_label has no effect in this action".to_owned()),
    }
}

/// Returns whether a text is the name of a label: any UTF-8 without control characters.
fn is_name(text: &str) -> bool {
    !text.is_empty() && !text.chars().any(char::is_control)
}

fn value<'l>(labels: &'l LabelPairs<'_>, name: &str) -> &'l str {
    labels.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
}

fn set(labels: &mut LabelPairs<'_>, name: &str, new: String) {
    match labels.iter().position(|(known, _)| known == name) {
        Some(place) if new.is_empty() => {
            labels.remove(place);
        }
        Some(place) => {
            if let Some((_, value)) = labels.get_mut(place) {
                *value = Cow::Owned(new);
            }
        }
        None if new.is_empty() || labels.len() >= LABELS_MAX => {}
        None => labels.push((Cow::Owned(name.to_owned()), Cow::Owned(new))),
    }
}

impl CompiledRule {
    /// Applies the rule. Returns false if the series is dropped.
    fn apply(&self, labels: &mut LabelPairs<'_>) -> bool {
        let CompiledRule { rule, pattern } = self;
        let joined = |labels: &LabelPairs<'_>| match rule.source_labels.as_slice() {
            [one] => value(labels, one).to_owned(),
            many => {
                let mut joined = String::new();
                for (place, name) in many.iter().enumerate() {
                    let separator = if place == 0 { "" } else { &rule.separator };
                    if !(push_bounded(&mut joined, separator)
                        && push_bounded(&mut joined, value(labels, name)))
                    {
                        break;
                    }
                }
                joined
            }
        };
        match rule.action {
            RelabelAction::Keep => pattern.matches(&joined(labels)),
            RelabelAction::Drop => !pattern.matches(&joined(labels)),
            RelabelAction::KeepEqual => joined(labels) == value(labels, &rule.target_label),
            RelabelAction::DropEqual => joined(labels) != value(labels, &rule.target_label),
            RelabelAction::Replace => {
                let source = joined(labels);
                if let Some(captures) = pattern.captures(&source) {
                    replace(labels, rule, &captures);
                }
                true
            }
            RelabelAction::HashMod => {
                let remainder = hash_of(&joined(labels)).checked_rem(rule.modulus);
                set(labels, &rule.target_label, remainder.unwrap_or_default().to_string());
                true
            }
            RelabelAction::Lowercase => {
                let source = joined(labels);
                set(labels, &rule.target_label, bounded(source.chars().flat_map(char::to_lowercase)));
                true
            }
            RelabelAction::Uppercase => {
                let source = joined(labels);
                set(labels, &rule.target_label, bounded(source.chars().flat_map(char::to_uppercase)));
                true
            }
            RelabelAction::LabelDrop => {
                labels.retain(|(name, _)| !pattern.matches(name));
                true
            }
            RelabelAction::LabelKeep => {
                labels.retain(|(name, _)| pattern.matches(name));
                true
            }
            RelabelAction::LabelMap => {
                let copy = |(name, value): &(Cow<'_, str>, Cow<'_, str>)| {
                    let name = expand(&rule.replacement, &pattern.captures(name)?);
                    let is_valid = is_name(&name) && name.len() <= NAME_BYTES_MAX;
                    is_valid.then(|| (name, value.clone().into_owned()))
                };
                let copies: Vec<(String, String)> = labels.iter().filter_map(copy).collect();
                for (name, value) in copies {
                    set(labels, &name, value);
                }
                true
            }
        }
    }
}

/// Sets the label of a rule whose pattern matched. A name that is not valid is not set.
fn replace(labels: &mut LabelPairs<'_>, rule: &RelabelRule, captures: &Captures<'_>) {
    let new = expand(&rule.replacement, captures);
    if !rule.target_label.contains('$') {
        return set(labels, &rule.target_label, new);
    }
    let name = expand(&rule.target_label, captures);
    if is_name(&name) && name.len() <= NAME_BYTES_MAX {
        set(labels, &name, new);
    }
}

/// Returns the last 8 bytes of the MD5 of a text, as `hashmod` of Prometheus uses them.
fn hash_of(text: &str) -> u64 {
    let digest = Md5::digest(text.as_bytes());
    digest.iter().skip(8).fold(0, |hash, byte| hash << 8 | u64::from(*byte))
}

/// Appends as much of a text as fits into [`VALUE_BYTES_MAX`]. Returns whether it fitted.
fn push_bounded(out: &mut String, text: &str) -> bool {
    let room = VALUE_BYTES_MAX.saturating_sub(out.len());
    let end = text.floor_char_boundary(room);
    out.push_str(text.get(..end).unwrap_or_default());
    end == text.len()
}

/// Collects the characters that fit into [`VALUE_BYTES_MAX`].
fn bounded(chars: impl Iterator<Item = char>) -> String {
    let mut out = String::new();
    for c in chars {
        if out.len() + c.len_utf8() > VALUE_BYTES_MAX {
            break;
        }
        out.push(c);
    }
    out
}

/// Replaces `$1`, `${1}`, `$name` and `${name}` by groups, and `$$` by `$`. Unknown groups are
/// empty, as in Go's `Regexp.Expand`. The result ends at [`VALUE_BYTES_MAX`].
fn expand(template: &str, captures: &Captures<'_>) -> String {
    let mut out = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('$') {
        if !push_bounded(&mut out, before) {
            return out;
        }
        if let Some(after) = after.strip_prefix('$') {
            push_bounded(&mut out, "$");
            rest = after;
            continue;
        }
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let (name, next) = match after.strip_prefix('{').and_then(|inner| inner.split_once('}')) {
            Some((name, next)) => (name, next),
            None => after.split_at(after.find(|c| !is_word(c)).unwrap_or(after.len())),
        };
        if name.is_empty() || !name.chars().all(is_word) {
            push_bounded(&mut out, "$");
            rest = after;
            continue;
        }
        let group = name.parse().map_or_else(|_| captures.name(name), |number| captures.get(number));
        if !push_bounded(&mut out, group.unwrap_or_default()) {
            return out;
        }
        rest = next;
    }
    push_bounded(&mut out, rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(json: serde_json::Value) -> RelabelRule {
        serde_json::from_value(json).expect("a rule")
    }

    fn applied(rules: &[serde_json::Value], labels: &[(&str, &str)]) -> Option<String> {
        let rules: Vec<RelabelRule> = rules.iter().cloned().map(rule).collect();
        let rules = RelabelRules::parse(&rules).expect("valid");
        let mut pairs: LabelPairs<'_> =
            labels.iter().map(|(name, value)| (Cow::Borrowed(*name), Cow::Borrowed(*value))).collect();
        let keep = rules.apply(&mut pairs);
        let text = pairs.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(",");
        keep.then_some(text)
    }

    #[test]
    fn rules_do_what_those_of_prometheus_do() {
        use serde_json::json;
        let up = [("__name__", "up"), ("job", "node-7"), ("zone", "eu")];
        let cases = [
            (
                json!({"source_labels": ["job"], "regex": "node-.*", "action": "keep"}),
                Some("__name__=up,job=node-7,zone=eu"),
            ),
            (json!({"source_labels": ["job"], "regex": "node", "action": "keep"}), None),
            (json!({"source_labels": ["job", "zone"], "regex": "node-7;eu", "action": "drop"}), None),
            (
                json!({"source_labels": ["job"], "regex": "node-(.*)", "target_label": "n"}),
                Some("__name__=up,job=node-7,n=7,zone=eu"),
            ),
            (
                json!({"source_labels": ["job"], "regex": "x(.*)", "target_label": "n"}),
                Some("__name__=up,job=node-7,zone=eu"),
            ),
            (
                json!({"target_label": "cluster", "replacement": "a"}),
                Some("__name__=up,cluster=a,job=node-7,zone=eu"),
            ),
            (json!({"target_label": "zone", "replacement": ""}), Some("__name__=up,job=node-7")),
            (
                json!({"source_labels": ["job"], "regex": "(?P<kind>[a-z]+)-(\\d+)", "target_label": "j", "replacement": "${2}/$kind/$$/$9"}),
                Some("__name__=up,j=7/node/$/,job=node-7,zone=eu"),
            ),
            (json!({"regex": "zo.*", "action": "labeldrop"}), Some("__name__=up,job=node-7")),
            (json!({"regex": "__name__|zone", "action": "labelkeep"}), Some("__name__=up,zone=eu")),
            (
                json!({"regex": "zo(.*)", "replacement": "x_$1", "action": "labelmap"}),
                Some("__name__=up,job=node-7,x_ne=eu,zone=eu"),
            ),
            (
                json!({"source_labels": ["zone"], "target_label": "zone", "action": "uppercase"}),
                Some("__name__=up,job=node-7,zone=EU"),
            ),
            (json!({"source_labels": ["zone"], "target_label": "job", "action": "keepequal"}), None),
            (
                json!({"source_labels": ["zone"], "target_label": "job", "action": "dropequal"}),
                Some("__name__=up,job=node-7,zone=eu"),
            ),
            (json!({"regex": ".*", "action": "labeldrop"}), None),
            (
                json!({"source_labels": ["job"], "regex": "(.+)-(.+)", "target_label": "${1}_id", "replacement": "$2"}),
                Some("__name__=up,job=node-7,node_id=7,zone=eu"),
            ),
            (
                json!({"source_labels": ["job"], "target_label": "$9", "replacement": "x"}),
                Some("__name__=up,job=node-7,zone=eu"),
            ),
            (
                json!({"source_labels": ["job", "zone"], "target_label": "shard", "modulus": 1000, "action": "hashmod"}),
                Some("__name__=up,job=node-7,shard=591,zone=eu"),
            ),
        ];
        for (rule, expected) in cases {
            assert_eq!(applied(std::slice::from_ref(&rule), &up).as_deref(), expected, "{rule}");
        }
        let two = [
            json!({"source_labels": ["zone"], "target_label": "a"}),
            json!({"source_labels": ["a"], "regex": "us", "action": "keep"}),
        ];
        assert_eq!(applied(&two, &up), None, "in order");
        assert_eq!(applied(&[], &up).as_deref(), Some("__name__=up,job=node-7,zone=eu"));
    }

    #[test]
    fn rules_that_multiply_labels_or_bytes_stop_at_their_limits() {
        use serde_json::json;
        let many = vec!["a"; SOURCES_MAX];
        let case = |action: &str| json!({"action": action, "source_labels": many, "separator": "", "target_label": "a"});
        let doubled =
            |n: usize| json!({"action": "labelmap", "regex": "(.+)", "replacement": format!("${{1}}{n}")});
        let repeated =
            json!({"source_labels": ["a"], "target_label": "a", "replacement": "$1".repeat(2_048)});
        let lists = [
            vec![case("lowercase"); 8],
            vec![case("uppercase"); 8],
            vec![repeated; RULES_MAX],
            vec![case("replace"); RULES_MAX],
            (0..30).map(doubled).collect(),
            vec![json!({"action": "labelmap", "regex": "(.+)", "replacement": "$1$1"}); 30],
        ];
        for list in lists {
            // The capital letter is longer, and has no boundary of characters at the limit.
            for start in ["x", "\u{149}\u{149}x"] {
                let rules: Vec<RelabelRule> = list.iter().cloned().map(rule).collect();
                let rules = RelabelRules::parse(&rules).expect("valid");
                let mut pairs: LabelPairs<'_> = vec![("a".into(), start.into())];
                assert!(rules.apply(&mut pairs));
                assert!(pairs.len() <= LABELS_MAX, "{} labels", pairs.len());
                for (name, value) in &pairs {
                    assert!(name.len() <= NAME_BYTES_MAX && value.len() <= VALUE_BYTES_MAX);
                }
            }
        }
    }

    #[test]
    fn wrong_rules_are_named() {
        use serde_json::json;
        for (wrong, part) in [
            (json!({"regex": "("}), "rule 1"),
            (json!({"source_labels": ["a"]}), "target_label"),
            (json!({"action": "keep", "target_label": "a"}), "no effect"),
            (json!({"target_label": "a", "modulus": 3}), "modulus has no effect"),
            (json!({"target_label": "a", "action": "hashmod"}), "modulus that is not zero"),
            (json!({"target_label": "a", "regex": "x".repeat(5_000)}), "bytes"),
        ] {
            let error = RelabelRules::parse(&[rule(wrong)]).expect_err("wrong");
            assert!(error.to_string().contains(part), "{error}");
        }
        let keep = rule(json!({"action": "keep"}));
        assert_eq!(RelabelRules::parse(&vec![keep; RULES_MAX + 1]).unwrap_err(), RelabelError::TooMany);
        assert!(serde_json::from_value::<RelabelRule>(json!({"action": "hash"})).is_err());
    }
}
