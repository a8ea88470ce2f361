//! Regular expressions as PromQL means them: RE2's dialect, fully anchored, dot matches newline, linear time.

mod kept;
mod re2;

use std::sync::{Arc, OnceLock};

use regex_automata::meta::{BuildError, Config, Regex};

pub use kept::KeptPatterns;

/// A compiled, fully anchored expression (`^(?s:RE)$`, prometheus/model/labels/regexp.go). Cheap to clone.
///
/// Literals, alternations of literals and prefixes (`api|db`, `foo.*`, `.+`) are compared as text; a regex is compiled
/// for them only where captures are asked for.
#[derive(Clone, Debug)]
pub struct Pattern(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    text: Box<str>,
    form: Form,
    regex: OnceLock<Regex>,
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

/// The groups of a match, by number and by name.
#[derive(Debug)]
pub struct Captures<'v> {
    value: &'v str,
    groups: regex_automata::util::captures::Captures,
}

impl<'v> Captures<'v> {
    /// What a group held; the whole match is number 0.
    pub fn get(&self, number: usize) -> Option<&'v str> {
        self.groups.get_group(number).and_then(|span| self.value.get(span.range()))
    }

    /// What the group of this name held.
    pub fn name(&self, name: &str) -> Option<&'v str> {
        self.groups.get_group_by_name(name).and_then(|span| self.value.get(span.range()))
    }
}

/// Why a text is no pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// It does not parse.
    #[error("error parsing regexp: {0}")]
    Syntax(String),
    /// It compiles to more than [`Pattern::SIZE_MAX`] bytes.
    #[error("regular expression too large: it compiles to more than {} bytes", Pattern::SIZE_MAX)]
    TooLarge,
}

impl Pattern {
    /// What one compiled expression may take in memory (API.md C5).
    pub const SIZE_MAX: usize = 1 << 20;

    /// Longer texts are not looked at as sets or prefixes, so that what they compile to stays bounded.
    const TEXT_MAX: usize = 64 << 10;

    /// Compiles `text`, or takes what is kept of an earlier time ([`KeptPatterns::with`]).
    ///
    /// # Errors
    /// [`PatternError`] for what RE2 would not accept, and for what would be too large.
    pub fn new(text: &str) -> Result<Pattern, PatternError> {
        Pattern::of(text, || kept::compiled(text))
    }

    /// As [`Pattern::new`] for one that is compiled often: within `size_max` bytes, which is what bounds the time.
    ///
    /// # Errors
    /// As [`Pattern::new`].
    pub fn new_within(text: &str, size_max: usize) -> Result<Pattern, PatternError> {
        Pattern::of(text, || compile(text, size_max.min(Pattern::SIZE_MAX)))
    }

    fn of(
        text: &str,
        compiled: impl FnOnce() -> Result<Regex, PatternError>,
    ) -> Result<Pattern, PatternError> {
        let form = Form::of(text);
        let regex = OnceLock::new();
        if matches!(form, Form::Regex) {
            let compiled = compiled()?;
            regex.get_or_init(|| compiled);
        }
        Ok(Pattern(Arc::new(Inner { text: text.into(), form, regex })))
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
            Form::Regex => self.regex().is_match(value),
        }
    }

    /// The captures of a whole match, for `label_replace`: number and name of each group, and what it held.
    pub fn captures<'v>(&self, value: &'v str) -> Option<Captures<'v>> {
        let regex = self.regex();
        let mut groups = regex.create_captures();
        regex.captures(value, &mut groups);
        groups.is_match().then_some(Captures { value, groups })
    }

    fn regex(&self) -> &Regex {
        self.0.regex.get_or_init(|| {
            // Sixteen MiB hold the largest set: TEXT_MAX literal bytes take some dozens of bytes each.
            compile(&self.0.text, 16 << 20)
                .expect("literals of bounded length are a valid expression of bounded size")
        })
    }
}

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

fn compile(text: &str, size_max: usize) -> Result<Regex, PatternError> {
    let translated = re2::translate(text).map_err(PatternError::Syntax)?;
    let config = Config::new().nfa_size_limit(Some(size_max));
    // `\A` and `\z`, because `(?m)` inside must not reach the anchors.
    let built = Regex::builder().configure(config).build(&format!(r"\A(?s:{translated})\z"));
    built.map_err(|error: BuildError| match (error.size_limit(), error.syntax_error()) {
        (Some(_), _) => PatternError::TooLarge,
        // What remains are repetitions too deep, unknown Unicode classes and the like; the last line is the reason.
        (None, Some(reason)) => PatternError::Syntax(last_line(&reason.to_string())),
        (None, None) => PatternError::Syntax(last_line(&error.to_string())),
    })
}

fn last_line(text: &str) -> String {
    text.lines().last().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests;
