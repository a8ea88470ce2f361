//! `label_replace` and `label_join`: they change labels only.

use std::sync::Arc;

use rapidhash::RapidHashMap;

use crate::model::{CaptureError, Captures, Labels, METRIC_NAME, Pattern};
use crate::promql::error::QueryError;
use crate::promql::plan::Relabel;

use super::Context;
use super::join_labels::set_label;
use super::rows::{Duplicates, LabelledRows};

impl Context<'_> {
    pub(super) fn relabel(
        &self,
        mut rows: LabelledRows,
        relabel: &Relabel,
    ) -> Result<LabelledRows, QueryError> {
        let (heads, charge) = rows.heads_and_charge();
        let target = match relabel {
            Relabel::Replace { target, .. } | Relabel::Join { target, .. } => target,
        };
        let mut values = LabelValueSet::default();
        // The result for each source text: many rows mostly have the same.
        let mut results: RapidHashMap<&str, Option<u32>> = RapidHashMap::default();
        let mut of_rows = Vec::with_capacity(heads.len());
        let mut sets = Vec::with_capacity(heads.len());
        for head in heads.iter() {
            self.budget.check()?;
            let set = match relabel {
                Relabel::Replace { replacement, source, pattern, .. } => {
                    let source = head.labels.value(source);
                    match results.get(source) {
                        Some(set) => *set,
                        None => {
                            let value = self.replacement_for(pattern, replacement, source)?;
                            charge.add_bytes(value.as_ref().map_or(0, |value| value.len() as u64))?;
                            *results.entry(source).or_insert(value.map(|value| values.index_plus_one(&value)))
                        }
                    }
                }
                Relabel::Join { separator, sources, .. } => {
                    let value = joined(&head.labels, separator, sources)?;
                    charge.add_bytes(value.len() as u64)?;
                    Some(values.index_plus_one(&value))
                }
            };
            sets.push(set.is_some());
            // The label keeps its value if the pattern does not match.
            of_rows.push(set.unwrap_or_else(|| values.index_plus_one(head.labels.value(target))));
        }
        if !sets.contains(&true) {
            return rows.merge_duplicates(Duplicates::Merge);
        }
        set_label(heads, target, values.all, of_rows);
        if target == METRIC_NAME {
            // A name that was set explicitly must not be dropped.
            for (head, _) in heads.iter_mut().zip(sets).filter(|(_, set)| *set) {
                head.drops_name = false;
            }
        }
        rows.merge_duplicates(Duplicates::Merge)
    }

    /// Returns the new value for a source text, or `None` if the pattern does not match.
    fn replacement_for(
        &self,
        pattern: &Pattern,
        replacement: &str,
        source: &str,
    ) -> Result<Option<String>, QueryError> {
        let mut too_dear = None;
        let captures = self.budget.pacing(None, |pace| match pattern.captures_within(source, pace) {
            Ok(captures) => Ok(captures),
            Err(CaptureError::Stopped(stopped)) => Err(stopped),
            Err(error @ CaptureError::TooExpensive) => {
                too_dear = Some(QueryError::execution(format!("label_replace(): {error}")));
                Ok(None)
            }
        })?;
        if let Some(error) = too_dear {
            return Err(error);
        }
        captures.map(|captures| expand(replacement, &captures).ok_or_else(too_long)).transpose()
    }
}

/// Different values of one label.
#[derive(Default)]
struct LabelValueSet {
    all: Vec<Arc<str>>,
    indices: RapidHashMap<Arc<str>, u32>,
}

impl LabelValueSet {
    /// Returns one more than the index of a text, or 0 for the empty text, which removes the label.
    fn index_plus_one(&mut self, text: &str) -> u32 {
        if text.is_empty() {
            return 0;
        }
        if let Some(index) = self.indices.get(text) {
            return *index;
        }
        let text: Arc<str> = text.into();
        self.all.push(Arc::clone(&text));
        let index = u32::try_from(self.all.len()).unwrap_or(u32::MAX);
        self.indices.insert(text, index);
        index
    }
}

fn joined(labels: &Labels, separator: &str, sources: &[String]) -> Result<String, QueryError> {
    let values: Vec<&str> = sources.iter().map(|name| labels.value(name)).collect();
    let between = separator.len().saturating_mul(values.len());
    let bytes = values.iter().map(|value| value.len()).sum::<usize>().saturating_add(between);
    if bytes > VALUE_BYTES_MAX {
        return Err(too_long());
    }
    Ok(values.join(separator))
}

/// Largest length of a label value in bytes. Nested functions could otherwise double it again and
/// again.
const VALUE_BYTES_MAX: usize = 1 << 20;

fn too_long() -> QueryError {
    QueryError::execution(format!("a label value would be longer than {VALUE_BYTES_MAX} bytes"))
}

/// Expands `$1`, `${1}`, `$name`, `${name}` and `$$` as Go's `Regexp.Expand` does: names are as
/// long as possible, an unknown name is empty, and a `$` without a name is literal. Returns `None`
/// if the result exceeds [`VALUE_BYTES_MAX`].
fn expand(template: &str, captures: &Captures<'_>) -> Option<String> {
    let mut out = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        if let Some(next) = after.strip_prefix('$') {
            out.push('$');
            rest = next;
            continue;
        }
        let Some((name, next)) = reference(after) else {
            out.push('$');
            rest = after;
            continue;
        };
        let group = if name.bytes().all(|byte| byte.is_ascii_digit()) {
            name.parse().ok().and_then(|number| captures.get(number))
        } else {
            captures.name(name)
        };
        let value = group.unwrap_or_default();
        if out.len().saturating_add(value.len()) > VALUE_BYTES_MAX {
            return None;
        }
        out.push_str(value);
        rest = next;
    }
    out.push_str(rest);
    (out.len() <= VALUE_BYTES_MAX).then_some(out)
}

/// Splits off the name after a `$`.
fn reference(text: &str) -> Option<(&str, &str)> {
    let (braced, body) = text.strip_prefix('{').map_or((false, text), |body| (true, body));
    let is_word = |c: char| c == '_' || c.is_alphanumeric();
    let end = body.find(|c| !is_word(c)).unwrap_or(body.len());
    let (name, rest) = body.split_at(end);
    if name.is_empty() {
        return None;
    }
    if braced { rest.strip_prefix('}').map(|rest| (name, rest)) } else { Some((name, rest)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_expand_as_in_go() {
        let pattern = Pattern::new("(?P<word>[a-z]+)-([0-9]+)").expect("valid");
        let captures = pattern.captures("ab-12").expect("matches");
        let cases = [
            ("$1", "ab"),
            ("${2}x", "12x"),
            ("$2x", ""),
            ("$word.$2", "ab.12"),
            ("$$1", "$1"),
            ("$", "$"),
            ("a$-b", "a$-b"),
            ("${1", "${1"),
            ("$9|${none}", "|"),
            ("$0", "ab-12"),
        ];
        for (template, expected) in cases {
            assert_eq!(expand(template, &captures).as_deref(), Some(expected), "{template}");
        }
    }
}
