//! Reads YAML of configuration files, with the position of each error, and writes YAML.
//!
//! Texts that look like numbers or booleans are strings where a string is expected, as in the
//! configuration of Prometheus. Unknown keys are refused if the type denies them.

use std::borrow::Cow;

use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_saphyr::{Error, MessageFormatter as _, UserMessageFormatter, budget, options};

/// A value with the position at which it begins.
pub use serde_saphyr::Spanned;

/// The most nested lists and maps, inclusive.
const DEPTH_MAX: usize = 32;
/// The most lists, maps, keys and values of a document, inclusive.
const NODES_MAX: usize = 2_000_000;
/// The most references to anchors of a document, inclusive.
const ALIASES_MAX: usize = 10_000;

/// A line and a column, both from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The line, from 1.
    pub line: u64,
    /// The column in characters, from 1.
    pub column: u64,
}

impl std::fmt::Display for Position {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// Returns the position of a value.
pub fn position<T>(value: &Spanned<T>) -> Position {
    Position { line: value.referenced.line(), column: value.referenced.column() }
}

/// The reason why a document cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{position}: {message}")]
pub struct YamlError {
    /// The position of the error.
    pub position: Position,
    /// The error message, without the position.
    pub message: String,
}

/// Decodes one document.
///
/// # Errors
/// [`YamlError`] for a text of more than `bytes_max` bytes, with several documents, that is no YAML
/// or does not have the shape of `T`.
pub fn decode<T: DeserializeOwned>(text: &str, bytes_max: usize) -> Result<T, YamlError> {
    let start = Position { line: 1, column: 1 };
    if text.len() > bytes_max {
        let message = format!("{} bytes, more than the {bytes_max} allowed", text.len());
        return Err(YamlError { position: start, message });
    }
    let options = options! {
        budget: budget! {
            max_depth: DEPTH_MAX,
            max_nodes: NODES_MAX,
            max_events: NODES_MAX.saturating_mul(2),
            max_aliases: ALIASES_MAX,
            max_anchors: ALIASES_MAX,
            max_total_scalar_bytes: bytes_max,
        },
        with_snippet: false,
    };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let position = error
            .location()
            .map_or(start, |location| Position { line: location.line(), column: location.column() });
        YamlError { position, message: message(&error) }
    })
}

/// Encodes a document in block style, with keys in order of their names. [`decode`] reads the same
/// value from it.
pub fn encode(value: &Value) -> String {
    let mut out = String::new();
    put(value, 0, &mut out);
    if !out.ends_with('\n') {
        out.push('\n');
    }
    out
}

/// Appends a value that begins at the current place of a line, whose following lines begin with
/// `depth` pairs of spaces. A list or map that is not empty ends with a line end.
fn put(value: &Value, depth: usize, out: &mut String) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (index, (key, value)) in map.iter().enumerate() {
                if index > 0 {
                    out.push_str(&"  ".repeat(depth));
                }
                out.push_str(&scalar(key));
                out.push(':');
                match value {
                    // The items of a list may begin below their key.
                    Value::Array(all) if !all.is_empty() => {
                        out.push('\n');
                        out.push_str(&"  ".repeat(depth));
                        put(value, depth, out);
                    }
                    Value::Object(all) if !all.is_empty() => {
                        out.push('\n');
                        out.push_str(&"  ".repeat(depth.saturating_add(1)));
                        put(value, depth.saturating_add(1), out);
                    }
                    _ => {
                        out.push(' ');
                        put(value, depth, out);
                        out.push('\n');
                    }
                }
            }
        }
        Value::Array(all) if !all.is_empty() => {
            for (index, value) in all.iter().enumerate() {
                if index > 0 {
                    out.push_str(&"  ".repeat(depth));
                }
                out.push_str("- ");
                put(value, depth.saturating_add(1), out);
                if !out.ends_with('\n') {
                    out.push('\n');
                }
            }
        }
        Value::String(text) => out.push_str(&scalar(text)),
        // Numbers, booleans, null, and empty lists and maps are the same in JSON.
        _ => out.push_str(&value.to_string()),
    }
}

/// Returns a text as a plain scalar if it cannot be taken for another value, else in double quotes,
/// whose escapes are those of JSON.
fn scalar(text: &str) -> Cow<'_, str> {
    const WORDS: [&str; 9] = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];
    let is_word = WORDS.iter().any(|word| word.eq_ignore_ascii_case(text));
    let begins = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_' || c == '/');
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
    let is_duration = text
        .strip_suffix(['s', 'm', 'h', 'd', 'w'])
        .is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()));
    if text == "<secret>" || is_duration || (begins && !is_word && text.chars().all(is_plain)) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(Value::from(text).to_string())
}

fn message(error: &Error) -> String {
    match error.without_snippet() {
        Error::SerdeUnknownField { field, expected, .. } => unknown_name("key", field, expected),
        Error::DuplicateMappingKey { key: Some(key), .. } => format!("key {key:?} is given twice"),
        other => UserMessageFormatter.format_message(other).into_owned(),
    }
}

/// The most different names that an error lists.
const LISTED_MAX: usize = 12;
/// The most changed letters of a name that is suggested, inclusive.
const DISTANCE_MAX: usize = 3;

/// Returns a message about an unknown name, with the nearest known name.
pub fn unknown_name(kind: &str, name: &str, known: &[&str]) -> String {
    let shown: String = name.chars().take(64).collect();
    let nearest = known
        .iter()
        .map(|known| (distance(&shown, known), *known))
        .filter(|(distance, _)| *distance <= DISTANCE_MAX)
        .min_by_key(|(distance, _)| *distance);
    match nearest {
        Some((_, nearest)) => format!("unknown {kind} {shown:?}; did you mean {nearest:?}?"),
        None if known.len() <= LISTED_MAX => {
            format!("unknown {kind} {shown:?}; expected one of {}", known.join(", "))
        }
        None => format!("unknown {kind} {shown:?}"),
    }
}

/// The number of letters to insert, remove or replace to make one text from another.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (done, letter) in from.chars().enumerate() {
        let mut next = vec![done + 1];
        for ((at, pair), known) in row.windows(2).enumerate().zip(&to) {
            let (diagonal, above) = (pair.first().copied(), pair.last().copied());
            let left = next.get(at).copied();
            let replaced = diagonal.unwrap_or_default() + usize::from(letter != *known);
            let moved = above.unwrap_or_default().min(left.unwrap_or_default()) + 1;
            next.push(replaced.min(moved));
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only decoded")]
    struct Group {
        name: String,
        #[serde(default)]
        interval: String,
        #[serde(default)]
        labels: BTreeMap<String, String>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Document {
        groups: Vec<Spanned<Group>>,
    }

    fn error(text: &str) -> String {
        decode::<Document>(text, 1_000).expect_err("wrong").to_string()
    }

    #[test]
    fn texts_that_look_like_numbers_stay_texts_and_values_have_positions() {
        let text = "groups:\n- name: a\n  labels: {a: 1.50, b: no, c: 0x10}\n- name: 2\n";
        let document: Document = decode(text, 1_000).expect("valid");
        let labels = &document.groups[0].value.labels;
        assert_eq!(labels.values().collect::<Vec<_>>(), ["1.50", "no", "0x10"]);
        assert_eq!(position(&document.groups[1]), Position { line: 4, column: 3 });
    }

    #[test]
    fn errors_have_a_position_and_name_the_nearest_key() {
        assert_eq!(
            error("groups:\n- name: a\n  intervall: 1m\n"),
            "line 3, column 3: unknown key \"intervall\"; did you mean \"interval\"?"
        );
        assert_eq!(
            error("groups:\n- name: a\n  x: 1\n"),
            "line 3, column 3: unknown key \"x\"; expected one of name, interval, labels"
        );
        assert_eq!(error("groups:\n- name: a\n  name: b\n"), "line 3, column 3: key \"name\" is given twice");
        for (text, line) in [("groups:\n- name: a\n   interval: 1m\n", 3), ("groups: []\n---\na: 1\n", 3)] {
            assert!(error(text).starts_with(&format!("line {line}, ")), "{}", error(text));
        }
        assert!(error(&"x".repeat(1_001)).contains("1001 bytes, more than the 1000 allowed"));
    }

    #[test]
    fn aliases_and_depth_are_bounded() {
        let mut text = "a: &a [x,x,x,x,x,x,x,x,x]\n".to_owned();
        for (name, before) in
            ["b", "c", "d", "e", "f", "g", "h", "i"].iter().zip(["a", "b", "c", "d", "e", "f", "g", "h"])
        {
            text.push_str(&format!("{name}: &{name} [{}]\n", vec![format!("*{before}"); 9].join(",")));
        }
        decode::<BTreeMap<String, serde::de::IgnoredAny>>(&text, 10_000).expect_err("too many aliases");
        decode::<serde_json::Value>(&"[".repeat(5_000), 10_000).expect_err("too deep");
    }

    fn arb_value() -> impl Strategy<Value = Value> {
        let text = "\\PC{0,5}|[a-z0-9:#\\-]{0,4}|[ \n\t\"'\\\\&*!]{0,4}|true|No|1e3|0x1f|\\.inf|15s|~|null";
        let leaf = prop_oneof![
            text.prop_map(Value::from),
            any::<i32>().prop_map(Value::from),
            any::<bool>().prop_map(Value::from),
            Just(Value::Null),
        ];
        leaf.prop_recursive(4, 40, 4, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(text, inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn an_encoded_value_is_decoded_to_the_same(value in arb_value()) {
            let text = encode(&value);
            let back = decode::<Value>(&text, 1 << 20);
            prop_assert_eq!(back.as_ref(), Ok(&value), "{}", text);
        }

        #[test]
        fn any_text_is_decoded_or_refused(text in "(?s)[\\-:&*!|>'\"#\\[\\]{}, \n\ta-c0-9]{0,200}") {
            let _ = decode::<serde_json::Value>(&text, 1_000);
            let _ = decode::<Document>(&text, 1_000);
        }
    }
}
