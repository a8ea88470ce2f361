//! Values of single keys: durations, sizes, formats, labels and relabelling rules.

use std::collections::BTreeMap;

use super::error::{ScrapeConfigError, problem, refuse};
use super::job::{NameEscaping, NameValidation, ScrapeProtocol, ScrapeRules};
use super::yaml::YamlRelabel;
use crate::model::{Labels, parse_duration};
use crate::relabel::{
    DEFAULT_REGEX, DEFAULT_REPLACEMENT, DEFAULT_SEPARATOR, RelabelAction, RelabelRule, RelabelRules,
};
use crate::yaml::{Spanned, position, unknown_name};

/// The most bytes of a label name, inclusive.
const LABEL_NAME_BYTES_MAX: usize = 1_024;
/// The most bytes of a label value, inclusive.
const LABEL_VALUE_BYTES_MAX: usize = 64 << 10;
/// The most labels of a group of targets, inclusive.
const LABELS_MAX: usize = 128;
/// The largest factor by which the resolution of histograms is limited.
const FACTOR_MAX: f64 = 1e9;

/// Returns milliseconds. An absent duration is zero.
///
/// # Errors
/// [`ScrapeConfigError`].
pub(super) fn duration_ms(value: Option<&Spanned<String>>) -> Result<i64, ScrapeConfigError> {
    let Some(value) = value else { return Ok(0) };
    parse_duration(&value.value).map_err(|error| problem(position(value), error.to_string()))
}

/// Returns bytes. All units are powers of 1,024, as in Prometheus: `10MB` is 10,485,760 bytes.
///
/// # Errors
/// [`ScrapeConfigError`].
pub(super) fn size_bytes(value: Option<&Spanned<String>>) -> Result<u64, ScrapeConfigError> {
    let Some(value) = value else { return Ok(0) };
    parse_size(&value.value)
        .ok_or_else(|| problem(position(value), format!("{:?} is not a size such as 10MB", value.value)))
}

fn parse_size(text: &str) -> Option<u64> {
    const UNITS: [&str; 7] = ["", "K", "M", "G", "T", "P", "E"];
    if text == "0" {
        return Some(0);
    }
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at(digits);
    let unit = unit.strip_suffix("iB").or_else(|| unit.strip_suffix('B'))?;
    let power = UNITS.iter().position(|known| *known == unit)?;
    let factor = 1_u64 << (10 * power);
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(factor);
    }
    let (whole, part) = number.split_once('.')?;
    let whole: u64 = whole.parse().ok()?;
    let scale = 10_u128.checked_pow(u32::try_from(part.len()).ok().filter(|digits| *digits <= 18)?)?;
    let part = u128::from(part.parse::<u64>().ok()?) * u128::from(factor) / scale;
    whole.checked_mul(factor)?.checked_add(u64::try_from(part).ok()?)
}

/// Returns a factor in units of 1/1,000,000,000.
///
/// # Errors
/// [`ScrapeConfigError`] for a factor that is not a number or not between 0 and [`FACTOR_MAX`].
pub(super) fn factor_e9(value: Option<&Spanned<f64>>) -> Result<u64, ScrapeConfigError> {
    let Some(value) = value else { return Ok(0) };
    let is_valid = value.value.is_finite() && (0.0..=FACTOR_MAX).contains(&value.value);
    if !is_valid {
        return refuse(value, "a factor from 0 is expected");
    }
    let text = format!("{:.0}", value.value * 1e9);
    text.parse().map_err(|_| problem(position(value), "a factor from 0 is expected"))
}

/// Returns a format by its name.
fn protocol(name: &str) -> Result<ScrapeProtocol, String> {
    let found = ScrapeProtocol::ALL.into_iter().find(|(known, _)| *known == name);
    let names = ScrapeProtocol::ALL.map(|(known, _)| known);
    found.map(|(_, protocol)| protocol).ok_or_else(|| unknown_name("scrape protocol", name, &names))
}

/// Returns the format of responses without a known `Content-Type`.
///
/// # Errors
/// [`ScrapeConfigError`].
pub(super) fn fallback_protocol(
    value: Option<&Spanned<String>>,
) -> Result<Option<ScrapeProtocol>, ScrapeConfigError> {
    let Some(value) = value.filter(|value| !value.value.is_empty()) else { return Ok(None) };
    protocol(&value.value).map(Some).map_err(|message| problem(position(value), message))
}

/// Returns the formats of a list; `None` if there is no list.
///
/// # Errors
/// [`ScrapeConfigError`] for an unknown or repeated format and for an empty list.
pub(super) fn protocols(
    value: Option<&Spanned<Vec<String>>>,
) -> Result<Option<Vec<ScrapeProtocol>>, ScrapeConfigError> {
    let Some(list) = value else { return Ok(None) };
    let mut protocols = Vec::new();
    for name in &list.value {
        let found = protocol(name).map_err(|message| problem(position(list), message))?;
        if protocols.contains(&found) {
            return refuse(list, format!("duplicated protocol in scrape_protocols, got {name}"));
        }
        protocols.push(found);
    }
    match protocols.is_empty() {
        true => refuse(list, "scrape_protocols cannot be empty"),
        false => Ok(Some(protocols)),
    }
}

/// Returns how names are checked; `None` if it is not configured.
///
/// # Errors
/// [`ScrapeConfigError`].
pub(super) fn validation(
    value: Option<&Spanned<String>>,
) -> Result<Option<NameValidation>, ScrapeConfigError> {
    let Some(value) = value else { return Ok(None) };
    match value.value.as_str() {
        "" => Ok(None),
        "utf8" => Ok(Some(NameValidation::Utf8)),
        "legacy" => Ok(Some(NameValidation::Legacy)),
        other => refuse(value, unknown_name("name validation scheme", other, &["utf8", "legacy"])),
    }
}

/// Returns how names are escaped; `None` if it is not configured.
///
/// # Errors
/// [`ScrapeConfigError`].
pub(super) fn escaping(value: Option<&Spanned<String>>) -> Result<Option<NameEscaping>, ScrapeConfigError> {
    const KNOWN: [NameEscaping; 4] =
        [NameEscaping::AllowUtf8, NameEscaping::Underscores, NameEscaping::Dots, NameEscaping::Values];
    let Some(value) = value.filter(|value| !value.value.is_empty()) else { return Ok(None) };
    let found = KNOWN.into_iter().find(|known| known.as_str() == value.value);
    let names = KNOWN.map(NameEscaping::as_str);
    found
        .map(Some)
        .ok_or_else(|| problem(position(value), unknown_name("name escaping scheme", &value.value, &names)))
}

/// Checks labels of a configuration.
///
/// # Errors
/// A sentence about the first label that is wrong.
pub(in crate::scrape) fn checked_labels(pairs: &BTreeMap<String, String>) -> Result<Labels, String> {
    if pairs.len() > LABELS_MAX {
        return Err(format!("at most {LABELS_MAX} labels are allowed"));
    }
    for (name, value) in pairs {
        if name.is_empty() || name.len() > LABEL_NAME_BYTES_MAX || name.chars().any(char::is_control) {
            let shown: String = name.chars().take(64).collect();
            return Err(format!("{shown:?} is not a valid label name"));
        }
        if value.len() > LABEL_VALUE_BYTES_MAX {
            return Err(format!("the value of label {name:?} has more than {LABEL_VALUE_BYTES_MAX} bytes"));
        }
    }
    Ok(Labels::from_pairs(pairs.iter().map(|(name, value)| (name.as_str(), value.as_str()))))
}

/// Compiles relabelling rules.
///
/// # Errors
/// [`ScrapeConfigError`] at the first rule that is wrong.
pub(super) fn rules(
    yaml: Option<&Vec<Spanned<Option<YamlRelabel>>>>,
) -> Result<ScrapeRules, ScrapeConfigError> {
    let Some(yaml) = yaml else { return Ok(ScrapeRules::default()) };
    let mut source = Vec::with_capacity(yaml.len());
    for spanned in yaml {
        let Some(rule) = &spanned.value else {
            return refuse(spanned, "empty or null relabeling rule");
        };
        let rule = relabel_rule(rule).map_err(|message| problem(position(spanned), message))?;
        // Compiled alone, so that the error has the position of the rule.
        RelabelRules::parse(std::slice::from_ref(&rule)).map_err(|error| {
            let text = error.to_string();
            let message = text.strip_prefix("relabelling rule 1: ").unwrap_or(&text);
            problem(position(spanned), message)
        })?;
        source.push(rule);
    }
    let compiled = RelabelRules::parse(&source).map_err(|error| {
        let at = yaml.first().map(position).unwrap_or(crate::yaml::Position { line: 1, column: 1 });
        problem(at, error.to_string())
    })?;
    Ok(ScrapeRules { source, compiled })
}

/// The actions, by their names in a configuration.
const ACTIONS: [(&str, RelabelAction); 11] = [
    ("replace", RelabelAction::Replace),
    ("keep", RelabelAction::Keep),
    ("drop", RelabelAction::Drop),
    ("keepequal", RelabelAction::KeepEqual),
    ("dropequal", RelabelAction::DropEqual),
    ("hashmod", RelabelAction::HashMod),
    ("labelmap", RelabelAction::LabelMap),
    ("labeldrop", RelabelAction::LabelDrop),
    ("labelkeep", RelabelAction::LabelKeep),
    ("lowercase", RelabelAction::Lowercase),
    ("uppercase", RelabelAction::Uppercase),
];

/// Checks a rule as Prometheus does, and removes the keys that have no effect in its action.
fn relabel_rule(yaml: &YamlRelabel) -> Result<RelabelRule, String> {
    let name = yaml.action.as_deref().unwrap_or("replace").to_lowercase();
    let Some((_, action)) = ACTIONS.into_iter().find(|(known, _)| *known == name) else {
        return Err(unknown_name("relabel action", &name, &ACTIONS.map(|(known, _)| known)));
    };
    let target = yaml.target_label.clone().unwrap_or_default();
    if action.has_target() && target.is_empty() {
        return Err(format!("relabel configuration for {name} action requires 'target_label' value"));
    }
    let modulus = yaml.modulus.unwrap_or(0);
    if action == RelabelAction::HashMod && modulus == 0 {
        return Err("relabel configuration for hashmod requires non-zero modulus".to_owned());
    }
    let differs =
        |given: &Option<String>, default: &str| given.as_deref().is_some_and(|text| text != default);
    let has_replacement = differs(&yaml.replacement, DEFAULT_REPLACEMENT);
    let has_separator = differs(&yaml.separator, DEFAULT_SEPARATOR);
    let has_regex = differs(&yaml.regex, DEFAULT_REGEX);
    let has_modulus = modulus != 0;
    let compares = matches!(action, RelabelAction::KeepEqual | RelabelAction::DropEqual);
    let changes_case = matches!(action, RelabelAction::Lowercase | RelabelAction::Uppercase);
    if (compares || changes_case) && has_replacement {
        return Err(format!("'replacement' can not be set for {name} action"));
    }
    if compares && (has_regex || has_modulus || has_separator) {
        return Err(format!(
            "{name} action requires only 'source_labels' and 'target_label', and no other fields"
        ));
    }
    let only_regex = matches!(action, RelabelAction::LabelDrop | RelabelAction::LabelKeep);
    let has_sources = yaml.source_labels.as_ref().is_some_and(|labels| !labels.is_empty());
    let has_others = has_sources || !target.is_empty() || has_modulus || has_separator || has_replacement;
    if only_regex && has_others {
        return Err(format!("{name} action requires only 'regex', and no other fields"));
    }
    let text = |given: &Option<String>, default: &str| given.as_deref().unwrap_or(default).to_owned();
    Ok(RelabelRule {
        source_labels: yaml.source_labels.clone().unwrap_or_default(),
        separator: text(&yaml.separator, DEFAULT_SEPARATOR),
        target_label: if action.has_target() { target } else { String::new() },
        regex: text(&yaml.regex, DEFAULT_REGEX),
        modulus: if action == RelabelAction::HashMod { modulus } else { 0 },
        replacement: text(&yaml.replacement, DEFAULT_REPLACEMENT),
        action,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units_of_1024_as_in_prometheus() {
        for (text, bytes) in [
            ("0", Some(0)),
            ("10B", Some(10)),
            ("1KB", Some(1_024)),
            ("1KiB", Some(1_024)),
            ("10MB", Some(10 << 20)),
            ("1.5GB", Some(3 << 29)),
            ("15EiB", Some(15 << 60)),
            ("16EB", None),
            ("10", None),
            ("MB", None),
            ("1.MB", None),
            ("-1MB", None),
            ("1XB", None),
        ] {
            assert_eq!(parse_size(text), bytes, "{text}");
        }
    }
}
