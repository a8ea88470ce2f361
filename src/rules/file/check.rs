//! Checks of names, labels and numbers of a rule file.

use std::collections::BTreeMap;

use super::{RULE_NAME_BYTES_MAX, RULE_TEXTS_MAX, RULE_VALUE_BYTES_MAX, RULES_MAX};
use crate::model::METRIC_NAME;
use crate::yaml::{self, Position, Spanned, YamlError};

/// Labels or annotations as the file has them.
type SpannedTexts = BTreeMap<String, Spanned<String>>;

/// Checks the number of rules so far.
pub(super) fn rule_count(count: usize, position: Position) -> Result<(), YamlError> {
    if count > RULES_MAX {
        let message = format!("{count} rules, more than the {RULES_MAX} allowed");
        return Err(YamlError { position, message });
    }
    Ok(())
}

/// Checks the length of a name.
pub(super) fn name(kind: &str, name: &str, position: Position) -> Result<(), YamlError> {
    if name.len() > RULE_NAME_BYTES_MAX {
        let message =
            format!("the {kind} has {} bytes, more than the {RULE_NAME_BYTES_MAX} allowed", name.len());
        return Err(YamlError { position, message });
    }
    Ok(())
}

/// Returns checked labels. `position` is that of the rule or group.
pub(super) fn labels(
    texts: Option<&SpannedTexts>,
    position: Position,
) -> Result<BTreeMap<String, String>, YamlError> {
    let Some(texts) = texts else { return Ok(BTreeMap::new()) };
    if let Some(invalid) = texts.keys().find(|name| name.is_empty() || *name == METRIC_NAME) {
        let position = texts.get(invalid).map_or(position, yaml::position);
        return Err(YamlError { position, message: format!("invalid label name: {invalid}") });
    }
    checked("label", texts)
}

/// Returns checked annotations.
pub(super) fn annotations(texts: Option<&SpannedTexts>) -> Result<BTreeMap<String, String>, YamlError> {
    let Some(texts) = texts else { return Ok(BTreeMap::new()) };
    if let Some(text) = texts.get("") {
        let message = "invalid annotation name: it is empty".to_owned();
        return Err(YamlError { position: yaml::position(text), message });
    }
    checked("annotation", texts)
}

fn checked(kind: &str, texts: &SpannedTexts) -> Result<BTreeMap<String, String>, YamlError> {
    let mut checked = BTreeMap::new();
    for (count, (name, text)) in texts.iter().enumerate() {
        let position = yaml::position(text);
        if count >= RULE_TEXTS_MAX {
            let message = format!("more than the {RULE_TEXTS_MAX} {kind}s allowed");
            return Err(YamlError { position, message });
        }
        self::name(&format!("{kind} name"), name, position)?;
        if text.value.len() > RULE_VALUE_BYTES_MAX {
            let bytes = text.value.len();
            let message =
                format!("{kind} {name:?} has {bytes} bytes, more than the {RULE_VALUE_BYTES_MAX} allowed");
            return Err(YamlError { position, message });
        }
        checked.insert(name.clone(), text.value.clone());
    }
    Ok(checked)
}
