//! Regular expressions with the semantics of PromQL: RE2's dialect, fully anchored, dot matches
//! newline, linear time.

mod cache;
mod re2;
mod stepped;

use std::sync::{Arc, OnceLock};

use regex_automata::meta::{BuildError, Config, Regex};
use stepped::SteppedSearch;

use super::{Pace, Stopped};

pub use cache::{MayCompile, PatternCache};

/// A compiled, fully anchored expression (`^(?s:RE)$`, prometheus/model/labels/regexp.go). Cheap to
/// clone.
///
/// Literals, alternations of literals and prefixes (`api|db`, `foo.*`, `.+`) are compared as text.
#[derive(Clone, Debug)]
pub struct Pattern(Arc<PatternInner>);

#[derive(Debug)]
struct PatternInner {
    text: Box<str>,
    form: PatternForm,
    regex: OnceLock<Regex>,
    /// A cancellable search, for values that are long for this expression.
    stepped: OnceLock<Option<SteppedSearch>>,
}

#[derive(Debug)]
enum PatternForm {
    /// One of these texts, which are sorted and distinct.
    Set(Box<[Box<str>]>),
    /// `prefix.*`.
    Prefix(Box<str>),
    /// `prefix.+`.
    LongerThan(Box<str>),
    /// Any other expression; `PatternInner::regex` is set.
    Regex,
}

/// Limits of compiling an expression.
#[derive(Clone, Copy, Debug)]
pub struct CompileLimits {
    /// Size of the program in one direction, in bytes.
    pub bytes: usize,
    /// Estimated nanoseconds. The size of the program does not bound the time: `(?i)\pL{0}`
    /// compiles to nothing.
    pub units: u64,
}

/// The groups of a match, by number and by name.
#[derive(Debug)]
pub struct Captures<'v> {
    value: &'v str,
    groups: CaptureGroups,
}

#[derive(Debug)]
enum CaptureGroups {
    Found(regex_automata::util::captures::Captures),
    /// Known from the form of the expression: the whole value, and whether group 1 (`first`) equals
    /// it.
    Whole {
        first: bool,
    },
}

impl<'v> Captures<'v> {
    /// Returns the text of a group; the whole match is number 0.
    pub fn get(&self, number: usize) -> Option<&'v str> {
        match &self.groups {
            CaptureGroups::Found(groups) => {
                groups.get_group(number).and_then(|span| self.value.get(span.range()))
            }
            CaptureGroups::Whole { first } => (number == 0 || number == 1 && *first).then_some(self.value),
        }
    }

    /// Returns the text of the group with this name.
    pub fn name(&self, name: &str) -> Option<&'v str> {
        match &self.groups {
            CaptureGroups::Found(groups) => {
                groups.get_group_by_name(name).and_then(|span| self.value.get(span.range()))
            }
            // Expressions with named groups are always searched.
            CaptureGroups::Whole { .. } => None,
        }
    }
}

/// Reasons why a text is not a pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// The expression cannot be parsed.
    #[error("error parsing regexp: {0}")]
    Syntax(String),
    /// The expression compiles to more than [`Pattern::SIZE_MAX`] bytes, or would take too long to
    /// compile.
    #[error(
        "regular expression too large: it compiles to more than {} bytes, or has too many Unicode classes, \
         case-insensitive ranges or repeated classes",
        Pattern::SIZE_MAX
    )]
    TooLarge,
    /// The request timed out or was cancelled before the expression was compiled; see
    /// [`PatternCache::with_check`].
    #[error("the regular expression was not compiled, because the request timed out or was cancelled")]
    Refused,
}

impl Pattern {
    /// Returns an expression that matches exactly `text`.
    pub fn escape(text: &str) -> String {
        let mut pattern = String::with_capacity(text.len());
        for character in text.chars() {
            if r"\.+*?()|[]{}^$".contains(character) {
                pattern.push('\\');
            }
            pattern.push(character);
        }
        pattern
    }

    /// Maximum size of a compiled expression in bytes (docs/specification.md C5).
    pub const SIZE_MAX: usize = 1 << 20;

    /// Maximum length of a text that is handled as a set or prefix, so that its compiled size is
    /// bounded.
    const TEXT_MAX: usize = 64 << 10;

    /// Maximum number of state visits of a search that is run in one call. It takes a millisecond
    /// at most, usually far less, because a byte rarely visits every state.
    const UNITS_AT_ONCE: u64 = 1 << 18;

    /// Limits of any expression. The slowest known expression within them takes 20 ms; 1 KiB of a
    /// typical dashboard's expressions takes less than 1 ms.
    pub const LIMITS: CompileLimits = CompileLimits { bytes: Pattern::SIZE_MAX, units: 16_000_000 };

    /// Approximate maximum cost of compiling an expression.
    pub const COMPILE_UNITS: u64 = 20_000_000;

    /// Maximum cost of a search for captures, which is run in one call: some tenths of a second.
    const CAPTURE_UNITS_MAX: u64 = 1 << 27;

    /// Compiles `text`, or returns the cached expression ([`PatternCache::with`]).
    ///
    /// # Errors
    /// [`PatternError`] for expressions that RE2 refuses, and for those beyond the limits.
    pub fn new(text: &str) -> Result<Pattern, PatternError> {
        Pattern::of(text, || cache::compiled(text))
    }

    /// Like [`Pattern::new`], with limits below [`Pattern::LIMITS`] and without the cache.
    ///
    /// # Errors
    /// As for [`Pattern::new`].
    pub fn new_within(text: &str, limits: CompileLimits) -> Result<Pattern, PatternError> {
        Pattern::of(text, || compile(text, limits))
    }

    fn of(
        text: &str,
        compiled: impl FnOnce() -> Result<Regex, PatternError>,
    ) -> Result<Pattern, PatternError> {
        let form = PatternForm::of(text);
        let (regex, stepped) = (OnceLock::new(), OnceLock::new());
        if matches!(form, PatternForm::Regex) {
            let compiled = compiled()?;
            regex.get_or_init(|| compiled);
        }
        Ok(Pattern(Arc::new(PatternInner { text: text.into(), form, regex, stepped })))
    }

    /// Returns the text as given.
    pub fn as_str(&self) -> &str {
        &self.0.text
    }

    /// Returns the memory of the text and of its compiled form in bytes, without the scratch space
    /// of searches.
    pub fn memory_usage(&self) -> usize {
        let form = match &self.0.form {
            PatternForm::Set(values) => values.iter().map(|value| value.len() + size_of::<Box<str>>()).sum(),
            PatternForm::Prefix(prefix) | PatternForm::LongerThan(prefix) => prefix.len(),
            PatternForm::Regex => 0,
        };
        size_of::<PatternInner>()
            + self.0.text.len()
            + form
            + self.0.regex.get().map_or(0, Regex::memory_usage)
    }

    /// Returns whether `text` is a literal or an alternation of literals: a set, which costs no
    /// more than its bytes.
    pub fn is_set(text: &str) -> bool {
        matches!(PatternForm::of(text), PatternForm::Set(_))
    }

    /// Returns whether the pattern is a compiled expression, and neither a set nor a prefix.
    pub fn is_compiled(&self) -> bool {
        matches!(self.0.form, PatternForm::Regex)
    }

    /// Returns exactly the values that match, sorted, if the pattern is a literal or an alternation
    /// of literals.
    pub fn set_matches(&self) -> Option<&[Box<str>]> {
        match &self.0.form {
            PatternForm::Set(values) => Some(values),
            _ => None,
        }
    }

    /// Returns a prefix of every matching value, if the pattern is a prefix followed by `.*` or
    /// `.+`.
    pub fn prefix(&self) -> Option<&str> {
        match &self.0.form {
            PatternForm::Prefix(prefix) | PatternForm::LongerThan(prefix) => Some(prefix),
            _ => None,
        }
    }

    /// Returns whether the whole of `value` matches.
    pub fn matches(&self, value: &str) -> bool {
        match &self.0.form {
            PatternForm::Set(values) => values.binary_search_by(|have| (**have).cmp(value)).is_ok(),
            PatternForm::Prefix(prefix) => value.starts_with(&**prefix),
            PatternForm::LongerThan(prefix) => value.len() > prefix.len() && value.starts_with(&**prefix),
            PatternForm::Regex => self.0.regex.get().is_some_and(|regex| regex.is_match(value)),
        }
    }

    /// Like [`Pattern::matches`], within `pace`, which is asked before the search and during a long
    /// one.
    ///
    /// # Errors
    /// [`Stopped`].
    pub fn matches_within(&self, value: &str, pace: &Pace<'_>) -> Result<bool, Stopped> {
        if !matches!(self.0.form, PatternForm::Regex) {
            pace.spend(value.len() as u64 + 8)?;
            return Ok(self.matches(value));
        }
        let units = self.units(value);
        if units <= Pattern::UNITS_AT_ONCE {
            pace.spend(units)?;
            return Ok(self.matches(value));
        }
        if self.0.stepped.get().is_none() {
            pace.spend(Pattern::COMPILE_UNITS)?;
        }
        let stepped = self.0.stepped.get_or_init(|| SteppedSearch::compile(&anchored(&self.0.text)?));
        match stepped {
            Some(stepped) => stepped.matches(value, self.states(), pace),
            None => {
                pace.spend(units)?;
                Ok(self.matches(value))
            }
        }
    }

    /// Returns the maximum work that [`Pattern::matches_within`] requests, in units of about a
    /// nanosecond.
    pub fn match_units(&self, value: &str) -> u64 {
        if matches!(self.0.form, PatternForm::Regex) { self.units(value) } else { value.len() as u64 + 8 }
    }

    /// Like [`Pattern::captures`], within `pace`.
    ///
    /// # Errors
    /// [`CaptureError`].
    pub fn captures_within<'v>(
        &self,
        value: &'v str,
        pace: &Pace<'_>,
    ) -> Result<Option<Captures<'v>>, CaptureError> {
        if matches!(self.0.form, PatternForm::Regex) {
            let units = self.units(value);
            if units > Pattern::UNITS_AT_ONCE {
                // A search for groups cannot be interrupted; one that only looks for a match can.
                if !self.matches_within(value, pace)? {
                    return Ok(None);
                }
                if units > Pattern::CAPTURE_UNITS_MAX {
                    return Err(CaptureError::TooExpensive);
                }
            }
            pace.spend(units)?;
        }
        Ok(self.captures(value))
    }

    /// Returns the memory in bytes of the compiled expression and its searches. Searches cache a
    /// bounded number of states, and a small expression has few.
    pub fn bytes(&self) -> usize {
        /// A forward and a backward search cache 2 MiB of states each.
        const SCRATCH_MAX: usize = 4 << 20;
        let regex = self.0.regex.get().map_or(0, Regex::memory_usage);
        regex + regex.saturating_mul(16).min(SCRATCH_MAX) + self.0.text.len()
    }

    /// Returns the number of states of the compiled expression, estimated from its size.
    fn states(&self) -> u64 {
        (self.0.regex.get().map_or(0, Regex::memory_usage) / BYTES_PER_STATE) as u64 + 1
    }

    /// Returns the maximum cost of a search of this value: each byte may visit each state.
    fn units(&self, value: &str) -> u64 {
        self.states().saturating_mul(value.len() as u64 + 1)
    }

    /// Returns the captures of a whole match, for `label_replace`: each group by number and name.
    pub fn captures<'v>(&self, value: &'v str) -> Option<Captures<'v>> {
        let Some(regex) = self.0.regex.get() else {
            let body = self.0.text.strip_prefix('^').unwrap_or(&self.0.text);
            let groups = CaptureGroups::Whole { first: body.starts_with('(') && !body.starts_with("(?:") };
            return self.matches(value).then_some(Captures { value, groups });
        };
        let mut groups = regex.create_captures();
        regex.captures(value, &mut groups);
        groups.is_match().then_some(Captures { value, groups: CaptureGroups::Found(groups) })
    }
}

/// Reasons why captures were not searched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CaptureError {
    /// The pace refused the work.
    #[error(transparent)]
    Stopped(#[from] Stopped),
    /// The value is so long, and the expression so large, that groups cannot be found in bounded
    /// time.
    #[error("the regular expression is too large for a label value of this length")]
    TooExpensive,
}

/// Approximate heap memory of one state of a compiled expression, forward and reverse.
const BYTES_PER_STATE: usize = 128;

impl PatternForm {
    fn of(text: &str) -> PatternForm {
        if text.len() > Pattern::TEXT_MAX {
            return PatternForm::Regex;
        }
        // The whole expression is anchored anyway.
        let body = text.strip_prefix('^').unwrap_or(text);
        let body = body.strip_suffix('$').filter(|rest| !rest.ends_with('\\')).unwrap_or(body);
        if let Some(literal) = body.strip_suffix(".*").and_then(literal) {
            return PatternForm::Prefix(literal.into());
        }
        if let Some(literal) = body.strip_suffix(".+").and_then(literal) {
            return PatternForm::LongerThan(literal.into());
        }
        let group = body.strip_prefix("(?:").or_else(|| body.strip_prefix('('));
        let inner = group.and_then(|rest| rest.strip_suffix(')')).unwrap_or(body);
        match literals(inner) {
            Some(mut values) => {
                values.sort_unstable();
                values.dedup();
                PatternForm::Set(values.into_iter().map(String::into_boxed_str).collect())
            }
            None => PatternForm::Regex,
        }
    }
}

/// Returns the only matching text, if there are neither operators nor alternatives.
fn literal(text: &str) -> Option<String> {
    let mut values = literals(text)?;
    let only = values.pop();
    only.filter(|_| values.is_empty())
}

/// Returns the alternatives, if none of them has an operator. Escaped punctuation (`\.`) is a
/// literal.
fn literals(text: &str) -> Option<Vec<String>> {
    let mut values = Vec::new();
    let mut value = String::new();
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '|' => values.push(std::mem::take(&mut value)),
            '\\' => value.push(characters.next().filter(char::is_ascii_punctuation)?),
            '.' | '*' | '+' | '?' | '(' | ')' | '[' | ']' | '{' | '}' | '^' | '$' => return None,
            other => value.push(other),
        }
    }
    values.push(value);
    Some(values)
}

fn compile(text: &str, limits: CompileLimits) -> Result<Regex, PatternError> {
    let translated = re2::translate(text).map_err(PatternError::Syntax)?;
    if translated.units > limits.units {
        return Err(PatternError::TooLarge);
    }
    let config = Config::new().nfa_size_limit(Some(limits.bytes));
    let built = Regex::builder().configure(config).build(&whole(&translated.text));
    built.map_err(|error: BuildError| match (error.size_limit(), error.syntax_error()) {
        (Some(_), _) => PatternError::TooLarge,
        // The remaining cases are repetitions too deep, unknown Unicode classes and the like; the
        // last line is the reason.
        (None, Some(reason)) => PatternError::Syntax(last_line(&reason.to_string())),
        (None, None) => PatternError::Syntax(last_line(&error.to_string())),
    })
}

/// Anchors an expression by `\A` and `\z`, because `(?m)` inside must not apply to the anchors.
fn whole(translated: &str) -> String {
    format!(r"\A(?s:{translated})\z")
}

/// Returns the text that is compiled for a valid expression.
fn anchored(text: &str) -> Option<String> {
    re2::translate(text).ok().map(|translated| whole(&translated.text))
}

fn last_line(text: &str) -> String {
    text.lines().last().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests;
