//! `label_replace` and `label_join`: labels only, values pass through.

use crate::model::{Captures, LabelsBuilder, METRIC_NAME};
use crate::promql::QueryError;
use crate::promql::plan::Relabel;

use super::Context;
use super::rows::{Duplicates, Head, Rows};

impl Context<'_> {
    pub(super) fn relabel(&self, mut rows: Rows, relabel: &Relabel) -> Result<Rows, QueryError> {
        let (heads, charge) = rows.heads_and_charge();
        for head in heads {
            self.budget.check()?;
            match relabel {
                Relabel::Replace { target, replacement, source, pattern } => {
                    let Some(captures) = pattern.captures(head.labels.value(source)) else { continue };
                    let value = expand(replacement, &captures).ok_or_else(too_long)?;
                    charge.add_bytes(value.len() as u64)?;
                    set(head, target, value);
                }
                Relabel::Join { target, separator, sources } => {
                    let values: Vec<&str> = sources.iter().map(|name| head.labels.value(name)).collect();
                    let between = separator.len().saturating_mul(values.len());
                    if values.iter().map(|value| value.len()).sum::<usize>().saturating_add(between)
                        > VALUE_BYTES_MAX
                    {
                        return Err(too_long());
                    }
                    let value = values.join(separator);
                    charge.add_bytes(value.len() as u64)?;
                    set(head, target, value);
                }
            }
        }
        rows.merged(Duplicates::Merge)
    }
}

/// What one label value may become: functions around functions would double it again and again.
const VALUE_BYTES_MAX: usize = 1 << 20;

fn too_long() -> QueryError {
    QueryError::execution(format!("a label value would be longer than {VALUE_BYTES_MAX} bytes"))
}

/// Sets one label. A name that is set on purpose is no longer to be dropped.
fn set(head: &mut Head, target: &str, value: String) {
    let mut builder: LabelsBuilder = head.labels.to_builder();
    builder.set(target, value);
    head.labels = builder.build();
    if target == METRIC_NAME {
        head.drops_name = false;
    }
}

/// Fills `$1`, `${1}`, `$name`, `${name}` and `$$` in, as Go's `Regexp.Expand` does: the longest name of word
/// characters, an unknown one is empty, a `$` that starts nothing stays. `None` where it becomes too long.
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
        let held = group.unwrap_or_default();
        if out.len().saturating_add(held.len()) > VALUE_BYTES_MAX {
            return None;
        }
        out.push_str(held);
        rest = next;
    }
    out.push_str(rest);
    (out.len() <= VALUE_BYTES_MAX).then_some(out)
}

/// The name after a `$`, and what follows it.
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
    use crate::model::Pattern;

    #[test]
    fn templates_are_filled_as_go_fills_them() {
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
