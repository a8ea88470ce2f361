//! Regular expressions as PromQL means them: RE2's dialect, fully anchored, dot matches newline, linear time.

use regex::{Regex, RegexBuilder};

/// A compiled, fully anchored expression (`^(?s:RE)$`, prometheus/model/labels/regexp.go).
#[derive(Clone, Debug)]
pub struct Pattern {
    text: Box<str>,
    regex: Regex,
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

    /// Compiles `text`.
    ///
    /// # Errors
    /// [`PatternError`] for what RE2 would not accept, and for what would be too large.
    pub fn new(text: &str) -> Result<Pattern, PatternError> {
        let regex = RegexBuilder::new(&format!("^(?s:{text})$")).size_limit(Pattern::SIZE_MAX).build().map_err(|e| match e {
            regex::Error::CompiledTooBig(_) => PatternError::TooLarge,
            other => PatternError::Syntax(other.to_string()),
        })?;
        Ok(Pattern { text: text.into(), regex })
    }

    /// The text as given.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether the whole of `value` matches.
    pub fn matches(&self, value: &str) -> bool {
        self.regex.is_match(value)
    }

    /// The captures of a whole match, for `label_replace`: number and name of each group, and what it held.
    pub fn captures<'v>(&self, value: &'v str) -> Option<regex::Captures<'v>> {
        self.regex.captures(value)
    }
}
