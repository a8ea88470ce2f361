//! Matchers over the labels of alerts, as text (`severity=~"page|ticket"`) and as JSON.

use serde_json::{Value, json};

use super::labels::{AlertLabels, escape_value};
use super::limits::{MATCHER_BYTES_MAX, MATCHERS_MAX};
use crate::model::{CompileLimits, MatchOp, Matcher};

/// The limits of compiling one pattern, below those of queries: patterns of silences are compiled
/// at each start.
const PATTERN_LIMITS: CompileLimits = CompileLimits { bytes: 64 << 10, units: 4_000_000 };

/// Matchers that must all match. An absent label counts as the empty text.
#[derive(Clone, Debug, Default)]
pub struct AlertMatchers(Vec<Matcher>);

impl PartialEq for AlertMatchers {
    fn eq(&self, other: &AlertMatchers) -> bool {
        self.texts() == other.texts()
    }
}

impl AlertMatchers {
    /// Adds a matcher.
    ///
    /// # Errors
    /// A sentence, if the name, the value or the pattern is not valid, or there are too many.
    pub fn push(&mut self, name: &str, op: MatchOp, value: &str) -> Result<(), String> {
        if self.0.len() >= MATCHERS_MAX {
            return Err(format!("at most {MATCHERS_MAX} matchers are allowed"));
        }
        if name.is_empty() || name.len() > 256 || name.chars().any(char::is_control) {
            return Err("the name of a label is expected".to_owned());
        }
        if value.len() > MATCHER_BYTES_MAX {
            return Err(format!("the value of a matcher has at most {MATCHER_BYTES_MAX} bytes"));
        }
        let matcher =
            Matcher::new_within(name, op, value, PATTERN_LIMITS).map_err(|error| error.to_string())?;
        self.0.push(matcher);
        Ok(())
    }

    /// Adds the matchers of a text: one, or several separated by commas, with or without braces.
    /// Names and values may be quoted, with the escapes `\\`, `\"` and `\n`.
    ///
    /// # Errors
    /// As for [`AlertMatchers::push`], or the text has another form.
    pub fn push_text(&mut self, text: &str) -> Result<(), String> {
        let mut rest = text.trim();
        if let Some(inner) = rest.strip_prefix('{') {
            rest = inner.strip_suffix('}').ok_or("a closing brace is expected")?.trim();
        }
        while !rest.is_empty() {
            let (one, after) = parse_one(rest)?;
            self.push(&one.name, one.op, &one.value)?;
            rest = after;
        }
        Ok(())
    }

    /// Adds the matcher of an object `{ name, value, isRegex, isEqual }`, the form of
    /// Alertmanager's API.
    ///
    /// # Errors
    /// As for [`AlertMatchers::push`], or the object has another form.
    pub fn push_json(&mut self, value: &Value) -> Result<(), String> {
        let text = |field: &str| value.get(field).and_then(Value::as_str);
        let flag = |field: &str, default: bool| match value.get(field) {
            None | Some(Value::Null) => Ok(default),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(_) => Err(format!("{field} must be true or false")),
        };
        let name = text("name").ok_or("name is required")?;
        let pattern = text("value").ok_or("value is required")?;
        let op = match (flag("isRegex", false)?, flag("isEqual", true)?) {
            (false, true) => MatchOp::Equal,
            (false, false) => MatchOp::NotEqual,
            (true, true) => MatchOp::Regex,
            (true, false) => MatchOp::NotRegex,
        };
        self.push(name, op, pattern)
    }

    /// Adds the matchers of a text or an object, as [`AlertMatchers::push_text`] or
    /// [`AlertMatchers::push_json`] does.
    ///
    /// # Errors
    /// A sentence, for any other value and as for the two.
    pub fn push_value(&mut self, value: &Value) -> Result<(), String> {
        match value {
            Value::String(text) => self.push_text(text),
            Value::Object(_) => self.push_json(value),
            _ => Err("a matcher such as severity=\"page\" is expected".to_owned()),
        }
    }

    /// Returns whether all matchers match.
    pub fn matches(&self, labels: &AlertLabels) -> bool {
        self.0.iter().all(|one| one.matches(labels.get(one.name()).map_or("", String::as_str)))
    }

    /// Returns whether all matchers are `=` or `=~` and match the empty text, so that they select
    /// next to every alert. As in Alertmanager, `!=` and `!~` are exempt.
    pub fn select_nothing(&self) -> bool {
        let is_positive = |one: &Matcher| matches!(one.op(), MatchOp::Equal | MatchOp::Regex);
        self.0.iter().all(|one| is_positive(one) && one.matches(""))
    }

    /// Returns the memory of the compiled matchers, in bytes.
    pub fn memory_usage(&self) -> usize {
        self.0.iter().map(Matcher::memory_usage).sum()
    }

    /// Returns whether there is no matcher.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the value of each matcher by its name.
    pub fn values(&self) -> AlertLabels {
        self.0.iter().map(|one| (one.name().to_owned(), one.value().to_owned())).collect()
    }

    /// Returns each matcher as text. A name with characters that the parser reserves is quoted.
    pub fn texts(&self) -> Vec<String> {
        let text = |one: &Matcher| {
            let (name, op, value) = (one.name(), one.op().as_str(), escape_value(one.value()));
            match name.contains(is_reserved) {
                true => format!("\"{}\"{op}\"{value}\"", escape_value(name)),
                false => format!("{name}{op}\"{value}\""),
            }
        };
        self.0.iter().map(text).collect()
    }

    /// Returns the matchers as text in braces: `{a="1",b=~"x"}`.
    pub fn text(&self) -> String {
        format!("{{{}}}", self.texts().join(","))
    }

    /// Returns the matchers in the form of Alertmanager's API.
    pub fn to_json(&self) -> Value {
        let one = |matcher: &Matcher| {
            let op = matcher.op();
            json!({
                "name": matcher.name(),
                "value": matcher.value(),
                "isRegex": matches!(op, MatchOp::Regex | MatchOp::NotRegex),
                "isEqual": matches!(op, MatchOp::Equal | MatchOp::Regex),
            })
        };
        self.0.iter().map(one).collect()
    }
}

struct ParsedMatcher {
    name: String,
    op: MatchOp,
    value: String,
}

/// Returns whether a character ends a name without quotes, or is removed around one.
fn is_reserved(c: char) -> bool {
    c.is_whitespace() || "{}!=~,\\\"".contains(c)
}

/// Parses the first matcher of a list. Returns it and the text after its comma.
fn parse_one(text: &str) -> Result<(ParsedMatcher, &str), String> {
    let expected = || format!("a matcher such as severity=\"page\" is expected, not {:?}", shown(text));
    let (name, rest) = match text.strip_prefix('"') {
        Some(quoted) => unquote(quoted)?,
        None => {
            let (name, rest) = text.split_at(text.find(['=', '!']).ok_or_else(expected)?);
            (name.trim_end().to_owned(), rest)
        }
    };
    let rest = rest.trim_start();
    let ops =
        [("=~", MatchOp::Regex), ("!~", MatchOp::NotRegex), ("!=", MatchOp::NotEqual), ("=", MatchOp::Equal)];
    let found = ops.iter().find_map(|(sign, op)| Some((*op, rest.strip_prefix(sign)?)));
    let (op, rest) = found.ok_or_else(expected)?;
    let rest = rest.trim_start();
    let (value, rest) = match rest.strip_prefix('"') {
        Some(quoted) => unquote(quoted)?,
        None => {
            let end = rest.find(',').unwrap_or(rest.len());
            let (bare, rest) = rest.split_at(end);
            if bare.contains('"') {
                return Err(format!("a quote inside of the value {:?}", shown(bare)));
            }
            (bare.trim().to_owned(), rest)
        }
    };
    let rest = rest.trim_start();
    let rest = match rest.strip_prefix(',') {
        Some(rest) => rest.trim_start(),
        None if rest.is_empty() => rest,
        None => return Err(format!("a comma is expected before {:?}", shown(rest))),
    };
    Ok((ParsedMatcher { name, op, value }, rest))
}

/// Reads a quoted text whose first quote is already read.
fn unquote(text: &str) -> Result<(String, &str), String> {
    let mut value = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Ok((value, text.get(at + 1..).unwrap_or_default())),
            '\\' => match letters.next() {
                Some((_, 'n')) => value.push('\n'),
                Some((_, escaped @ ('"' | '\\'))) => value.push(escaped),
                // Other escapes belong to the pattern.
                Some((_, other)) => value.extend(['\\', other]),
                None => break,
            },
            other => value.push(other),
        }
    }
    Err("a closing quote is expected".to_owned())
}

fn shown(text: &str) -> String {
    text.chars().take(64).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parsed(text: &str) -> Result<AlertMatchers, String> {
        let mut matchers = AlertMatchers::default();
        matchers.push_text(text).map(|()| matchers)
    }

    fn labels(pairs: &[(&str, &str)]) -> AlertLabels {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn texts_of_alertmanager_are_parsed() {
        let cases = [
            (r#"a="1""#, r#"{a="1"}"#),
            ("a=1", r#"{a="1"}"#),
            (r#"{a="1", b!~"x|y" ,c=~z.*}"#, r#"{a="1",b!~"x|y",c=~"z.*"}"#),
            (r#"a!="x\"y\\z""#, r#"{a!="x\"y\\z"}"#),
            (r#"a =~ "\d+""#, r#"{a=~"\\d+"}"#),
            ("", "{}"),
            ("a=", r#"{a=""}"#),
        ];
        for (text, expected) in cases {
            let matchers = parsed(text).unwrap_or_else(|why| panic!("{text}: {why}"));
            assert_eq!(matchers.text(), expected, "{text}");
            assert_eq!(parsed(&matchers.text()).expect("its own form"), matchers);
        }
        for wrong in ["a", "=x", "{a=1", r#"a="x"#, r#"a="x" b="y""#, "a=~\"(\"", r#"a=x"y"#] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_absent_label_is_empty_and_patterns_match_whole_values() {
        let matchers = parsed(r#"a=~"x.", b="""#).expect("valid");
        assert!(matchers.matches(&labels(&[("a", "xy")])));
        assert!(!matchers.matches(&labels(&[("a", "xyz")])));
        assert!(!matchers.matches(&labels(&[("a", "xy"), ("b", "1")])));
        for (text, expected) in [
            (r#"a="""#, true),
            (r#"a=~".*""#, true),
            (r#"a="",b=~"x|""#, true),
            (r#"a="",b="x""#, false),
            (r#"a!="x""#, false),
            (r#"a!~".*""#, false),
            (r#"a="",b!="1""#, false),
        ] {
            assert_eq!(parsed(text).expect("valid").select_nothing(), expected, "{text}");
        }
        let mut json = AlertMatchers::default();
        for one in matchers.to_json().as_array().expect("a list") {
            json.push_json(one).expect("valid");
        }
        assert_eq!(json, matchers);
    }

    #[test]
    fn a_name_with_reserved_characters_is_stored_and_read_again() {
        for name in ["a=b", "a!", " a ", "\"a\"", "a,b", "{a}", "a\\", "a~", "a.b", "é"] {
            let mut matchers = AlertMatchers::default();
            matchers.push_json(&json!({ "name": name, "value": "x" })).expect("valid");
            let again = parsed(&matchers.text()).unwrap_or_else(|why| panic!("{name}: {why}"));
            assert_eq!(again.to_json(), matchers.to_json(), "{name}");
        }
        assert_eq!(parsed(r#""a b" = c"#).expect("valid").text(), r#"{"a b"="c"}"#);
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in "\\PC{0,64}|[a-c=!~\"\\\\{},]{0,32}") {
            if let Ok(matchers) = parsed(&text) {
                prop_assert_eq!(parsed(&matchers.text()).map(|again| again.text()), Ok(matchers.text()));
            }
        }
    }
}
