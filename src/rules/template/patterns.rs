//! The regular expressions of templates: `match` and `reReplaceAll`.
//!
//! [`Pattern`] matches whole values only, so a search is made of one: a prefix as short as
//! possible, the expression, and the rest. A search after an earlier match begins one character
//! before its start, so that `\b` and `^` see what precedes them.

use std::sync::{Arc, Mutex};

use crate::model::{CaptureError, Captures, CompileLimits, Conductor, Pace, Pattern, PatternError};
use crate::sync::IgnorePoison as _;

/// The most expressions that a template keeps.
const KEPT_MAX: usize = 16;
/// The most expressions that one expansion compiles.
const COMPILED_MAX: usize = 16;
/// The most bytes of an expression.
const PATTERN_BYTES_MAX: usize = 1 << 10;
/// The work of all searches of one expansion, in about nanoseconds.
const SEARCH_UNITS_MAX: u64 = 100_000_000;
/// The limits of compiling one of the three forms of an expression.
const COMPILE_LIMITS: CompileLimits = CompileLimits { bytes: 256 << 10, units: 2_000_000 };

/// The expressions that a template has compiled, least recently compiled first.
#[derive(Debug, Default)]
pub(super) struct PatternStore(Mutex<CompiledPatterns>);

#[derive(Debug, Default)]
struct CompiledPatterns {
    patterns: Vec<Arc<SearchPattern>>,
    compiled_total: u64,
}

impl PatternStore {
    fn kept(&self, text: &str) -> Option<Arc<SearchPattern>> {
        self.0.lock().ignore_poison().patterns.iter().find(|kept| kept.text == text).cloned()
    }

    #[cfg(test)]
    /// Returns how many expressions were compiled.
    pub(super) fn compiled_total(&self) -> u64 {
        self.0.lock().ignore_poison().compiled_total
    }
}

/// An expression in the forms that a search needs.
#[derive(Debug)]
struct SearchPattern {
    text: String,
    /// Matches a value in which the expression is found.
    first: Pattern,
    /// Like `first`, after the first character.
    following: Pattern,
}

/// The budget of the searches of one expansion.
#[derive(Debug)]
pub(super) struct SearchBudget<'s> {
    store: &'s PatternStore,
    compiled: usize,
    units_left: u64,
}

/// Admits searches up to a number of units.
struct UnitLimit(std::cell::Cell<u64>);

impl Conductor for UnitLimit {
    fn admits(&self, units: u64) -> bool {
        match self.0.get().checked_sub(units) {
            Some(left) => {
                self.0.set(left);
                true
            }
            None => false,
        }
    }

    fn holds(&self, _bytes: u64) -> bool {
        true
    }
}

impl<'s> SearchBudget<'s> {
    pub(super) const fn new(store: &'s PatternStore) -> SearchBudget<'s> {
        SearchBudget { store, compiled: 0, units_left: SEARCH_UNITS_MAX }
    }

    /// Returns whether the expression is found anywhere in `text`.
    pub(super) fn matches(&mut self, pattern: &str, text: &str) -> Result<bool, String> {
        let pattern = self.pattern(pattern)?;
        self.within(|pace| pattern.first.matches_within(text, pace).map_err(|stopped| stopped.to_string()))
    }

    /// Replaces every match, from left to right; `$1` and `${name}` in the replacement are groups.
    pub(super) fn replace_all(
        &mut self,
        pattern: &str,
        replacement: &str,
        text: &str,
        bytes_max: usize,
    ) -> Result<String, String> {
        let pattern = self.pattern(pattern)?;
        self.within(|pace| replace_within(&pattern, replacement, text, bytes_max, pace))
    }

    fn within<T>(&mut self, work: impl FnOnce(&Pace<'_>) -> Result<T, String>) -> Result<T, String> {
        let limit = UnitLimit(std::cell::Cell::new(self.units_left));
        let result = work(&Pace::of(&limit));
        self.units_left = limit.0.get();
        result
    }

    /// Returns an expression, compiled now or by an earlier expansion.
    fn pattern(&mut self, text: &str) -> Result<Arc<SearchPattern>, String> {
        if let Some(kept) = self.store.kept(text) {
            return Ok(kept);
        }
        if self.compiled >= COMPILED_MAX {
            return Err(format!("more than {COMPILED_MAX} regular expressions in one expansion"));
        }
        if text.len() > PATTERN_BYTES_MAX {
            return Err(format!("a regular expression has more than {PATTERN_BYTES_MAX} bytes"));
        }
        self.compiled += 1;
        let compiled = Arc::new(SearchPattern::new(text).map_err(|error| match error {
            PatternError::Syntax(message) if !message.contains('`') => {
                format!("error parsing regexp: {message}: `{text}`")
            }
            other => other.to_string(),
        })?);
        let mut kept = self.store.0.lock().ignore_poison();
        kept.compiled_total += 1;
        if kept.patterns.len() >= KEPT_MAX {
            kept.patterns.remove(0);
        }
        kept.patterns.push(Arc::clone(&compiled));
        Ok(compiled)
    }
}

impl SearchPattern {
    fn new(text: &str) -> Result<SearchPattern, PatternError> {
        // Alone first: parentheses must pair within the expression itself.
        Pattern::new_within(text, COMPILE_LIMITS)?;
        let search = format!("((?s:.*?))((?-s:{text}))(?s:.*)");
        Ok(SearchPattern {
            text: text.to_owned(),
            first: Pattern::new_within(&search, COMPILE_LIMITS)?,
            following: Pattern::new_within(&format!("(?s:.){search}"), COMPILE_LIMITS)?,
        })
    }
}

fn replace_within(
    pattern: &SearchPattern,
    replacement: &str,
    text: &str,
    bytes_max: usize,
    pace: &Pace<'_>,
) -> Result<String, String> {
    let mut out = String::new();
    // The end of the text that `out` covers, and the start of the next search.
    let (mut copied, mut from) = (0, 0);
    while from <= text.len() {
        let context =
            text.get(..from).and_then(|before| before.chars().next_back()).map_or(0, char::len_utf8);
        let haystack = text.get(from - context..).unwrap_or_default();
        let form = if from == 0 { &pattern.first } else { &pattern.following };
        let found = form.captures_within(haystack, pace).map_err(|error| match error {
            CaptureError::Stopped(_) => "the regular expressions take too long".to_owned(),
            error => error.to_string(),
        })?;
        let Some(groups) = found else { break };
        let start = from + groups.get(1).unwrap_or_default().len();
        let found = groups.get(2).unwrap_or_default();
        let end = start + found.len();
        // An empty match directly after the previous match does not count, as in Go.
        let repeated = found.is_empty() && start == copied && copied > 0;
        out.push_str(text.get(copied..start).unwrap_or_default());
        if !repeated {
            expand_groups(&mut out, replacement, &groups);
        }
        if out.len() > bytes_max {
            return Err(format!("the text has more than {bytes_max} bytes"));
        }
        copied = end;
        let next = text.get(end..).and_then(|rest| rest.chars().next()).map_or(1, char::len_utf8);
        from = if found.is_empty() { end + next } else { end };
    }
    out.push_str(text.get(copied..).unwrap_or_default());
    Ok(out)
}

/// Appends a replacement with its groups; unknown groups are empty and `$$` is a dollar sign.
fn expand_groups(out: &mut String, replacement: &str, groups: &Captures<'_>) {
    let mut rest = replacement;
    while let Some(at) = rest.find('$') {
        out.push_str(rest.get(..at).unwrap_or_default());
        rest = rest.get(at + 1..).unwrap_or_default();
        if let Some(after) = rest.strip_prefix('$') {
            out.push('$');
            rest = after;
            continue;
        }
        let braced = rest.strip_prefix('{').and_then(|inner| inner.split_once('}'));
        let word = |text: &str| text.find(|c: char| c != '_' && !c.is_alphanumeric()).unwrap_or(text.len());
        let (name, after) = match braced {
            Some((name, after)) if word(name) == name.len() => (name, after),
            _ => rest.split_at(word(rest)),
        };
        if name.is_empty() {
            out.push('$');
            continue;
        }
        rest = after;
        let group = match name.parse::<usize>() {
            // Groups 1 and 2 are those of the search.
            Ok(0) => groups.get(2),
            Ok(number) => number.checked_add(2).and_then(|number| groups.get(number)),
            Err(_) => groups.name(name),
        };
        out.push_str(group.unwrap_or_default());
    }
    out.push_str(rest);
}
