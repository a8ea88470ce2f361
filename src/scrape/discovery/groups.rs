//! Lists of target groups in JSON and YAML, as files and HTTP endpoints return them.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::settings::TargetGroup;
use crate::model::Labels;
use crate::scrape::config::checked_labels;
use crate::yaml::decode;

/// The most bytes of a list, inclusive.
pub const GROUPS_BYTES_MAX: usize = 10 << 20;
/// The most targets of a list, inclusive.
pub const GROUPS_TARGETS_MAX: usize = 100_000;
/// The most bytes of an address, inclusive.
const ADDRESS_BYTES_MAX: usize = 1_024;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GroupText {
    #[serde(default)]
    targets: Option<Vec<String>>,
    #[serde(default)]
    labels: Option<BTreeMap<String, String>>,
}

/// Parses a list in JSON.
///
/// # Errors
/// A sentence with the position of the error.
pub fn groups_of_json(text: &str) -> Result<Vec<TargetGroup>, String> {
    if text.len() > GROUPS_BYTES_MAX {
        return Err(format!("more than {GROUPS_BYTES_MAX} bytes"));
    }
    let groups: Vec<Option<GroupText>> = serde_json::from_str(text).map_err(|error| error.to_string())?;
    checked(groups)
}

/// Parses a list in YAML. A text without content is an empty list.
///
/// # Errors
/// A sentence with the position of the error.
pub fn groups_of_yaml(text: &str) -> Result<Vec<TargetGroup>, String> {
    let groups: Option<Vec<Option<GroupText>>> =
        decode(text, GROUPS_BYTES_MAX).map_err(|error| error.to_string())?;
    checked(groups.unwrap_or_default())
}

fn checked(texts: Vec<Option<GroupText>>) -> Result<Vec<TargetGroup>, String> {
    let mut count = 0_usize;
    let mut groups = Vec::with_capacity(texts.len());
    for (place, text) in texts.into_iter().enumerate() {
        let wrong = |why: String| format!("group {}: {why}", place + 1);
        let Some(GroupText { targets, labels }) = text else {
            return Err(wrong("it is null".to_owned()));
        };
        let targets = targets.unwrap_or_default();
        if targets.iter().any(|target| target.len() > ADDRESS_BYTES_MAX) {
            return Err(wrong(format!("an address has more than {ADDRESS_BYTES_MAX} bytes")));
        }
        count = count.saturating_add(targets.len());
        if count > GROUPS_TARGETS_MAX {
            return Err(format!("more than {GROUPS_TARGETS_MAX} targets"));
        }
        let labels = labels.as_ref().map_or(Ok(Labels::default()), checked_labels).map_err(wrong)?;
        groups.push(TargetGroup { targets, labels });
    }
    Ok(groups)
}

impl TargetGroup {
    /// Returns the group with a further label, which replaces one of that name.
    #[must_use]
    pub(super) fn with_label(self, name: &str, value: &str) -> TargetGroup {
        let mut labels = self.labels.to_builder();
        labels.set(name, value);
        TargetGroup { labels: labels.build(), ..self }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn json_and_yaml_give_the_same_groups() {
        let json = r#"[{"targets": ["a:1", "b:2"], "labels": {"zone": "eu", "empty": ""}}, {"targets": []}]"#;
        let yaml = "- targets: ['a:1', 'b:2']\n  labels: {zone: eu, empty: ''}\n- targets: []\n";
        let groups = groups_of_json(json).expect("valid");
        assert_eq!(groups_of_yaml(yaml).expect("valid"), groups);
        assert_eq!(groups[0].labels.to_string(), r#"{zone="eu"}"#);
        assert_eq!(groups_of_yaml("").expect("empty"), []);
    }

    #[test]
    fn wrong_lists_are_refused_with_a_reason() {
        for (text, part) in [
            ("", "EOF"),
            ("{}", "invalid type"),
            ("[null]", "group 1: it is null"),
            (r#"[{"target": []}]"#, "unknown field `target`"),
            (r#"[{"targets": [1]}]"#, "invalid type"),
            (r#"[{"labels": {"": "a"}}]"#, "group 1: \"\" is not a valid label name"),
        ] {
            let error = groups_of_json(text).expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
        assert!(groups_of_yaml("- target: []").expect_err("wrong").contains("did you mean \"targets\"?"));
        let many = format!("[{{\"targets\": [{}\"a\"]}}]", "\"a\",".repeat(GROUPS_TARGETS_MAX));
        assert!(groups_of_json(&many).expect_err("many").contains("more than 100000 targets"));
        let long = format!("[{{\"targets\": [\"{}\"]}}]", "a".repeat(ADDRESS_BYTES_MAX + 1));
        assert!(groups_of_json(&long).expect_err("long").contains("1024 bytes"));
    }

    proptest! {
        #[test]
        fn any_text_is_a_list_or_refused(text in "(?s)(targets|labels|[\\[\\]{}:,\"\\- \na-c0]){0,60}") {
            let _ = groups_of_json(&text);
            let _ = groups_of_yaml(&text);
        }
    }
}
