//! Writes groups as YAML, in the form in which Prometheus and Mimir read them.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::model::format_duration;
use crate::rules::group::{Rule, RuleGroup, RuleKind};

/// Returns one group as a YAML mapping.
pub fn group_text(group: &RuleGroup) -> String {
    let mut out = String::new();
    put(&mut out, "", "name", &quoted(&group.name));
    if let Some(ms) = group.interval_ms {
        put(&mut out, "", "interval", &format_duration(ms));
    }
    if let Some(ms) = group.query_offset_ms {
        put(&mut out, "", "query_offset", &format_duration(ms));
    }
    if group.limit > 0 {
        put(&mut out, "", "limit", &group.limit.to_string());
    }
    put_texts(&mut out, "", "labels", &group.labels);
    if group.rules.is_empty() {
        put(&mut out, "", "rules", "[]");
        return out;
    }
    out.push_str("rules:\n");
    for rule in &group.rules {
        let mut text = String::new();
        write_rule(&mut text, rule, &group.labels, "    ");
        let _ = write!(out, "  - {}", text.trim_start());
    }
    out
}

fn write_rule(out: &mut String, rule: &Rule, group: &BTreeMap<String, String>, indent: &str) {
    let key = if rule.alerting().is_some() { "alert" } else { "record" };
    put(out, indent, key, &quoted(rule.name()));
    put(out, indent, "expr", &quoted(&rule.expr));
    if let RuleKind::Alerting(alerting) = &rule.kind {
        for (key, ms) in [("for", alerting.for_ms), ("keep_firing_for", alerting.keep_firing_for_ms)] {
            if ms != 0 {
                put(out, indent, key, &format_duration(ms));
            }
        }
    }
    let own = rule.labels.iter().filter(|(name, value)| group.get(*name) != Some(*value));
    let own: BTreeMap<String, String> = own.map(|(name, value)| (name.clone(), value.clone())).collect();
    put_texts(out, indent, "labels", &own);
    if let RuleKind::Alerting(alerting) = &rule.kind {
        put_texts(out, indent, "annotations", &alerting.annotations);
    }
}

fn put(out: &mut String, indent: &str, key: &str, value: &str) {
    let _ = writeln!(out, "{indent}{key}: {value}");
}

fn put_texts(out: &mut String, indent: &str, key: &str, texts: &BTreeMap<String, String>) {
    if texts.is_empty() {
        return;
    }
    let _ = writeln!(out, "{indent}{key}:");
    for (name, value) in texts {
        let _ = writeln!(out, "{indent}  {}: {}", quoted(name), quoted(value));
    }
}

/// Returns a text as a YAML scalar: plain if it is a simple word, in double quotes otherwise.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '/');
    let is_name = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && text.chars().all(plain);
    let is_word = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"]
        .iter()
        .any(|word| word.eq_ignore_ascii_case(text));
    if is_name && !is_word {
        return text.to_owned();
    }
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            '\u{85}' | '\u{2028}' | '\u{2029}' | '\u{feff}' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c if c.is_control() => {
                let _ = write!(out, "\\x{:02x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
