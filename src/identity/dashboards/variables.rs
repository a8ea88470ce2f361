//! Finds variables of a dashboard that refer to each other, which no order of queries can resolve.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// Maximum number of variables (`templating.list`).
pub(super) const VARIABLES_MAX: usize = 50;

/// The array `templating.list`.
#[derive(Default)]
pub(super) struct VariableList<'a> {
    /// The first [`VARIABLES_MAX`] elements.
    listed: Vec<&'a RawValue>,
    /// The number of all elements.
    pub(super) count: usize,
}

impl<'de: 'a, 'a> Deserialize<'de> for VariableList<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<VariableList<'a>, D::Error> {
        struct ListReader;
        impl<'de> Visitor<'de> for ListReader {
            type Value = VariableList<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array")
            }

            fn visit_unit<E>(self) -> Result<VariableList<'de>, E> {
                Ok(VariableList::default())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<VariableList<'de>, A::Error> {
                let mut list = VariableList::default();
                while list.count < VARIABLES_MAX
                    && let Some(element) = all.next_element()?
                {
                    list.listed.push(element);
                    list.count += 1;
                }
                while list.count >= VARIABLES_MAX && all.next_element::<IgnoredAny>()?.is_some() {
                    list.count += 1;
                }
                Ok(list)
            }
        }
        from.deserialize_any(ListReader)
    }
}

/// The members of a variable that say what it refers to.
#[derive(serde::Deserialize)]
struct VariableMembers<'a> {
    #[serde(borrow)]
    name: Option<&'a RawValue>,
    #[serde(borrow, rename = "type")]
    kind: Option<&'a RawValue>,
    #[serde(borrow)]
    query: Option<&'a RawValue>,
    #[serde(borrow)]
    regex: Option<&'a RawValue>,
    #[serde(borrow)]
    datasource: Option<&'a RawValue>,
}

struct Variable {
    name: String,
    /// The names after `$` in its texts, also those of no variable.
    references: BTreeSet<String>,
}

impl VariableList<'_> {
    /// Returns the names of variables of which each refers to the next one. The last name is the
    /// first one again.
    pub(super) fn cycle(&self) -> Option<Vec<String>> {
        let all: Vec<Variable> = self.listed.iter().filter_map(|element| variable(element)).collect();
        let mut left: Vec<&Variable> = all.iter().collect();
        loop {
            let names: BTreeSet<&str> = left.iter().map(|variable| variable.name.as_str()).collect();
            let before = left.len();
            left.retain(|variable| variable.references.iter().any(|name| names.contains(name.as_str())));
            if left.len() == before {
                break;
            }
        }
        // Each variable that is left refers to another one that is left.
        let mut path: Vec<String> = Vec::new();
        let mut current = *left.first()?;
        loop {
            let start = path.iter().position(|name| *name == current.name);
            path.push(current.name.clone());
            if let Some(start) = start {
                return Some(path.split_off(start));
            }
            current = left.iter().find(|next| current.references.contains(&next.name))?;
        }
    }
}

/// Reads a variable as the page does: options of other kinds are fixed. `None` for other JSON.
fn variable(element: &RawValue) -> Option<Variable> {
    let members: VariableMembers<'_> = serde_json::from_str(element.get()).ok()?;
    let kind = members.kind.map_or(Cow::Borrowed("query"), text);
    let texts = match kind.as_ref() {
        "custom" | "interval" | "adhoc" => [None; 3],
        "query" => [members.query, members.regex, members.datasource],
        _ => [members.query, members.regex, None],
    };
    let mut references = BTreeSet::new();
    for part in texts.into_iter().flatten() {
        references.extend(names(&text(part)).map(str::to_owned));
    }
    let name = serde_json::from_str(members.name?.get()).ok()?;
    Some(Variable { name, references })
}

/// Returns a string, or the JSON of another value.
fn text(raw: &RawValue) -> Cow<'_, str> {
    serde_json::from_str(raw.get()).map_or(Cow::Borrowed(raw.get()), Cow::Owned)
}

/// Returns the names in `$name`, `${name}`, `${name.field:format}` and `[[name:format]]`.
fn names(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices(['$', '[']).filter_map(|(at, _)| {
        let rest = text.get(at..)?;
        let forms = [("${", "}"), ("[[", "]]"), ("$", "")];
        let (inner, end) = forms.iter().find_map(|(start, end)| Some((rest.strip_prefix(start)?, *end)))?;
        let length = inner.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(inner.len());
        let (name, after) = inner.split_at_checked(length)?;
        let is_closed = end.is_empty()
            || after.starts_with(end)
            || (after.starts_with([':', '.']) && after.contains(end));
        (is_closed && !name.is_empty()).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cycle(list: &str) -> Option<String> {
        let list: VariableList<'_> = serde_json::from_str(list).expect("an array");
        list.cycle().map(|names| names.join(" "))
    }

    #[test]
    fn a_cycle_is_found_in_every_form_of_a_reference() {
        for reference in ["$b", "${b}", "${b:regex}", "${b.text:csv}", "[[b]]", "[[b:pipe]]", "x$$b-"] {
            for member in ["query", "regex", "datasource"] {
                let list = format!(
                    r#"[{{"name":"c","query":"$a"}},{{"name":"a","{member}":"up{{x=\"{reference}\"}}"}},
                        {{"name":"b","type":"query","query":{{"query":"label_values(up, $a)"}}}}]"#
                );
                assert_eq!(cycle(&list).as_deref(), Some("a b a"), "{list}");
            }
        }
        assert_eq!(cycle(r#"[{"name":"a","query":"$a"}]"#).as_deref(), Some("a a"));
        let three = r#"[{"name":"a","query":"$b"},{"name":"b","query":"$c"},{"name":"c","query":"$a"}]"#;
        assert_eq!(cycle(three).as_deref(), Some("a b c a"));
    }

    #[test]
    fn chains_fixed_options_and_other_text_are_no_cycle() {
        for list in [
            "[]",
            "null",
            r#"[{"name":"a"},{"name":"b","query":"$a"},{"name":"c","query":"$a $b"}]"#,
            r#"[{"name":"a","type":"custom","query":"$b"},{"name":"b","query":"$a"}]"#,
            r#"[{"name":"a","type":"datasource","datasource":"$b"},{"name":"b","query":"$a"}]"#,
            r#"[{"name":"a","query":"${a"},{"name":"b","query":"[[b]"},{"name":"c","query":"c$"}]"#,
            r#"[{"name":"a","query":"$ab"},{"name":"ab","query":"a$"}]"#,
            r#"[7,"$a",[],{"name":7,"query":"$7"},{"query":"$a"},{"name":"a","query":"","query":"$a"}]"#,
        ] {
            assert_eq!(cycle(list), None, "{list}");
        }
    }
}
