//! Regular expressions as PromQL means them: RE2's dialect, fully anchored, dot matches newline, linear time.

mod cache;
mod re2;
mod stepped;

use std::sync::{Arc, OnceLock};

use regex_automata::meta::{BuildError, Config, Regex};
use stepped::Stepped;

use super::{Pace, Stopped};

pub use cache::{MayCompile, PatternCache};

/// A compiled, fully anchored expression (`^(?s:RE)$`, prometheus/model/labels/regexp.go). Cheap to clone.
///
/// Literals, alternations of literals and prefixes (`api|db`, `foo.*`, `.+`) are compared as text.
#[derive(Clone, Debug)]
pub struct Pattern(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    text: Box<str>,
    form: Form,
    regex: OnceLock<Regex>,
    /// For values that are long for this expression.
    stepped: OnceLock<Option<Stepped>>,
}

#[derive(Debug)]
enum Form {
    /// One of these texts; sorted, each once.
    Set(Box<[Box<str>]>),
    /// `prefix.*`.
    Prefix(Box<str>),
    /// `prefix.+`.
    LongerThan(Box<str>),
    /// Everything else; `Inner::regex` is there.
    Regex,
}

/// What compiling an expression may take.
#[derive(Clone, Copy, Debug)]
pub struct CompileLimits {
    /// Bytes of the program in one direction.
    pub bytes: usize,
    /// Estimated nanoseconds. The size of the program does not bound the time: `(?i)\pL{0}` compiles to nothing.
    pub units: u64,
}

/// The groups of a match, by number and by name.
#[derive(Debug)]
pub struct Captures<'v> {
    value: &'v str,
    groups: Groups,
}

#[derive(Debug)]
enum Groups {
    Found(regex_automata::util::captures::Captures),
    /// The form of the expression tells: the whole value, and `first` whether group 1 is the same.
    Whole {
        first: bool,
    },
}

impl<'v> Captures<'v> {
    /// What a group held; the whole match is number 0.
    pub fn get(&self, number: usize) -> Option<&'v str> {
        match &self.groups {
            Groups::Found(groups) => groups.get_group(number).and_then(|span| self.value.get(span.range())),
            Groups::Whole { first } => (number == 0 || number == 1 && *first).then_some(self.value),
        }
    }

    /// What the group of this name held.
    pub fn name(&self, name: &str) -> Option<&'v str> {
        match &self.groups {
            Groups::Found(groups) => {
                groups.get_group_by_name(name).and_then(|span| self.value.get(span.range()))
            }
            // An expression with a named group is searched.
            Groups::Whole { .. } => None,
        }
    }
}

/// Why a text is no pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// It does not parse.
    #[error("error parsing regexp: {0}")]
    Syntax(String),
    /// It compiles to more than [`Pattern::SIZE_MAX`] bytes, or would take too long to compile.
    #[error(
        "regular expression too large: it compiles to more than {} bytes, or has too many Unicode classes, \
         case-insensitive ranges or repeated classes",
        Pattern::SIZE_MAX
    )]
    TooLarge,
    /// The request that it would be compiled for has to end; see [`PatternCache::with_check`].
    #[error("the regular expression was not compiled: the request has to end")]
    Refused,
}

impl Pattern {
    /// What one compiled expression may take in memory (docs/specification.md C5).
    pub const SIZE_MAX: usize = 1 << 20;

    /// Longer texts are not looked at as sets or prefixes, so that what they compile to stays bounded.
    const TEXT_MAX: usize = 64 << 10;

    /// A search of no more than this many visits of states is done at once: it takes a millisecond at most, and mostly
    /// far less, because a state is rarely visited for each byte.
    const UNITS_AT_ONCE: u64 = 1 << 18;

    /// Limits of any expression. The slowest one found within them takes 20 ms; 1 KiB of a dashboard's kind takes less
    /// than 1 ms.
    pub const LIMITS: CompileLimits = CompileLimits { bytes: Pattern::SIZE_MAX, units: 16_000_000 };

    /// What compiling an expression takes at most, about.
    pub const COMPILE_UNITS: u64 = 20_000_000;

    /// Captures are searched for at once, so that their cost is bounded: some tenths of a second.
    const CAPTURE_UNITS_MAX: u64 = 1 << 27;

    /// Compiles `text`, or returns the cached expression ([`PatternCache::with`]).
    ///
    /// # Errors
    /// [`PatternError`] for what RE2 would not accept, and for what would be too large.
    pub fn new(text: &str) -> Result<Pattern, PatternError> {
        Pattern::of(text, || cache::compiled(text))
    }

    /// As [`Pattern::new`], within limits below [`Pattern::LIMITS`] and without the cache.
    ///
    /// # Errors
    /// As [`Pattern::new`].
    pub fn new_within(text: &str, limits: CompileLimits) -> Result<Pattern, PatternError> {
        Pattern::of(text, || compile(text, limits))
    }

    fn of(
        text: &str,
        compiled: impl FnOnce() -> Result<Regex, PatternError>,
    ) -> Result<Pattern, PatternError> {
        let form = Form::of(text);
        let (regex, stepped) = (OnceLock::new(), OnceLock::new());
        if matches!(form, Form::Regex) {
            let compiled = compiled()?;
            regex.get_or_init(|| compiled);
        }
        Ok(Pattern(Arc::new(Inner { text: text.into(), form, regex, stepped })))
    }

    /// The text as given.
    pub fn as_str(&self) -> &str {
        &self.0.text
    }

    /// The bytes that the text and what was made of it take in memory, without scratch space of a search.
    pub fn memory_usage(&self) -> usize {
        let form = match &self.0.form {
            Form::Set(values) => values.iter().map(|value| value.len() + size_of::<Box<str>>()).sum(),
            Form::Prefix(prefix) | Form::LongerThan(prefix) => prefix.len(),
            Form::Regex => 0,
        };
        self.0.text.len() + form + self.0.regex.get().map_or(0, Regex::memory_usage)
    }

    /// Whether `text` is a literal or an alternation of literals: a set, which costs no more than its bytes.
    pub fn is_set(text: &str) -> bool {
        matches!(Form::of(text), Form::Set(_))
    }

    /// Exactly the values that match, sorted, where the pattern is a literal or an alternation of literals.
    pub fn set_matches(&self) -> Option<&[Box<str>]> {
        match &self.0.form {
            Form::Set(values) => Some(values),
            _ => None,
        }
    }

    /// A prefix of every value that matches, where the pattern is one followed by `.*` or `.+`.
    pub fn prefix(&self) -> Option<&str> {
        match &self.0.form {
            Form::Prefix(prefix) | Form::LongerThan(prefix) => Some(prefix),
            _ => None,
        }
    }

    /// Whether the whole of `value` matches.
    pub fn matches(&self, value: &str) -> bool {
        match &self.0.form {
            Form::Set(values) => values.binary_search_by(|have| (**have).cmp(value)).is_ok(),
            Form::Prefix(prefix) => value.starts_with(&**prefix),
            Form::LongerThan(prefix) => value.len() > prefix.len() && value.starts_with(&**prefix),
            Form::Regex => self.0.regex.get().is_some_and(|regex| regex.is_match(value)),
        }
    }

    /// As [`Pattern::matches`], within `pace`: it is asked before the search, and during one that may take long.
    ///
    /// # Errors
    /// [`Stopped`].
    pub fn matches_within(&self, value: &str, pace: &Pace<'_>) -> Result<bool, Stopped> {
        if !matches!(self.0.form, Form::Regex) {
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
        let stepped = self.0.stepped.get_or_init(|| Stepped::compile(&anchored(&self.0.text)?));
        match stepped {
            Some(stepped) => stepped.matches(value, self.states(), pace),
            None => {
                pace.spend(units)?;
                Ok(self.matches(value))
            }
        }
    }

    /// The work that [`Pattern::matches_within`] asks for at most, in units of about a nanosecond.
    pub fn match_units(&self, value: &str) -> u64 {
        if matches!(self.0.form, Form::Regex) { self.units(value) } else { value.len() as u64 + 8 }
    }

    /// As [`Pattern::captures`], within `pace`.
    ///
    /// # Errors
    /// [`CaptureError`].
    pub fn captures_within<'v>(
        &self,
        value: &'v str,
        pace: &Pace<'_>,
    ) -> Result<Option<Captures<'v>>, CaptureError> {
        if matches!(self.0.form, Form::Regex) {
            let units = self.units(value);
            if units > Pattern::UNITS_AT_ONCE {
                // A search for groups cannot be interrupted; one that only looks for a match can.
                if !self.matches_within(value, pace)? {
                    return Ok(None);
                }
                if units > Pattern::CAPTURE_UNITS_MAX {
                    return Err(CaptureError::TooDear);
                }
            }
            pace.spend(units)?;
        }
        Ok(self.captures(value))
    }

    /// Bytes of memory that the compiled expression takes, and its searches: the states that they keep are bounded, and
    /// a small expression has few.
    pub fn bytes(&self) -> usize {
        /// A search forward and one backward keep 2 MiB of states each.
        const SCRATCH_MAX: usize = 4 << 20;
        let regex = self.0.regex.get().map_or(0, Regex::memory_usage);
        regex + regex.saturating_mul(16).min(SCRATCH_MAX) + self.0.text.len()
    }

    /// States of the compiled expression, estimated from its size.
    fn states(&self) -> u64 {
        (self.0.regex.get().map_or(0, Regex::memory_usage) / BYTES_PER_STATE) as u64 + 1
    }

    /// What a search of this value costs at most: each byte may visit each state.
    fn units(&self, value: &str) -> u64 {
        self.states().saturating_mul(value.len() as u64 + 1)
    }

    /// The captures of a whole match, for `label_replace`: number and name of each group, and what it held.
    pub fn captures<'v>(&self, value: &'v str) -> Option<Captures<'v>> {
        let Some(regex) = self.0.regex.get() else {
            let body = self.0.text.strip_prefix('^').unwrap_or(&self.0.text);
            let groups = Groups::Whole { first: body.starts_with('(') && !body.starts_with("(?:") };
            return self.matches(value).then_some(Captures { value, groups });
        };
        let mut groups = regex.create_captures();
        regex.captures(value, &mut groups);
        groups.is_match().then_some(Captures { value, groups: Groups::Found(groups) })
    }
}

/// Why no captures were searched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CaptureError {
    /// The pace was refused.
    #[error(transparent)]
    Stopped(#[from] Stopped),
    /// The value is so long, and the expression so large, that groups cannot be found in bounded time.
    #[error("the regular expression is too large for a label value of this length")]
    TooDear,
}

/// Heap of one state of a compiled expression, forward and reverse, about.
const BYTES_PER_STATE: usize = 128;

impl Form {
    fn of(text: &str) -> Form {
        if text.len() > Pattern::TEXT_MAX {
            return Form::Regex;
        }
        // The whole is anchored anyway.
        let body = text.strip_prefix('^').unwrap_or(text);
        let body = body.strip_suffix('$').filter(|rest| !rest.ends_with('\\')).unwrap_or(body);
        if let Some(literal) = body.strip_suffix(".*").and_then(literal) {
            return Form::Prefix(literal.into());
        }
        if let Some(literal) = body.strip_suffix(".+").and_then(literal) {
            return Form::LongerThan(literal.into());
        }
        let group = body.strip_prefix("(?:").or_else(|| body.strip_prefix('('));
        let inner = group.and_then(|rest| rest.strip_suffix(')')).unwrap_or(body);
        match literals(inner) {
            Some(mut values) => {
                values.sort_unstable();
                values.dedup();
                Form::Set(values.into_iter().map(String::into_boxed_str).collect())
            }
            None => Form::Regex,
        }
    }
}

/// The one text that matches, where there are neither operators nor alternatives.
fn literal(text: &str) -> Option<String> {
    let mut values = literals(text)?;
    let only = values.pop();
    only.filter(|_| values.is_empty())
}

/// The alternatives, where none of them has an operator. Escaped punctuation (`\.`) is a literal.
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
        // What remains are repetitions too deep, unknown Unicode classes and the like; the last line is the reason.
        (None, Some(reason)) => PatternError::Syntax(last_line(&reason.to_string())),
        (None, None) => PatternError::Syntax(last_line(&error.to_string())),
    })
}

/// Anchored by `\A` and `\z`, because `(?m)` inside must not reach the anchors.
fn whole(translated: &str) -> String {
    format!(r"\A(?s:{translated})\z")
}

/// The text that is compiled for a valid expression.
fn anchored(text: &str) -> Option<String> {
    re2::translate(text).ok().map(|translated| whole(&translated.text))
}

fn last_line(text: &str) -> String {
    text.lines().last().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests;
