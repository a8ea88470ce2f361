//! One label test.

use super::{CompileLimits, Labels, Pace, Pattern, PatternError, Stopped};

/// How a matcher compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MatchOp {
    /// `=`
    Equal,
    /// `!=`
    NotEqual,
    /// `=~`
    Regex,
    /// `!~`
    NotRegex,
}

impl MatchOp {
    /// As written in PromQL.
    pub const fn as_str(self) -> &'static str {
        match self {
            MatchOp::Equal => "=",
            MatchOp::NotEqual => "!=",
            MatchOp::Regex => "=~",
            MatchOp::NotRegex => "!~",
        }
    }
}

/// A test of one label; an absent label counts as the empty text for every operator.
#[derive(Clone, Debug)]
pub struct Matcher {
    name: Box<str>,
    value: Box<str>,
    test: Test,
}

#[derive(Clone, Debug)]
enum Test {
    Equal,
    NotEqual,
    Regex(Pattern),
    NotRegex(Pattern),
}

impl Matcher {
    /// Builds a test, compiling the pattern where the operator has one.
    ///
    /// # Errors
    /// [`PatternError`] where `value` is no valid pattern.
    pub fn new(name: &str, op: MatchOp, value: &str) -> Result<Matcher, PatternError> {
        Matcher::of(name, op, value, Pattern::new)
    }

    /// As [`Matcher::new`], with a pattern within `limits`.
    ///
    /// # Errors
    /// As [`Matcher::new`].
    pub fn new_within(
        name: &str,
        op: MatchOp,
        value: &str,
        limits: CompileLimits,
    ) -> Result<Matcher, PatternError> {
        Matcher::of(name, op, value, |text| Pattern::new_within(text, limits))
    }

    fn of(
        name: &str,
        op: MatchOp,
        value: &str,
        pattern: impl FnOnce(&str) -> Result<Pattern, PatternError>,
    ) -> Result<Matcher, PatternError> {
        let test = match op {
            MatchOp::Equal => Test::Equal,
            MatchOp::NotEqual => Test::NotEqual,
            MatchOp::Regex => Test::Regex(pattern(value)?),
            MatchOp::NotRegex => Test::NotRegex(pattern(value)?),
        };
        Ok(Matcher { name: name.into(), value: value.into(), test })
    }

    /// `name="value"`; cannot fail.
    pub fn equal(name: &str, value: &str) -> Matcher {
        Matcher { name: name.into(), value: value.into(), test: Test::Equal }
    }

    /// Which label.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The value or pattern as written.
    pub fn value(&self) -> &str {
        &self.value
    }

    /// Which operator.
    pub const fn op(&self) -> MatchOp {
        match self.test {
            Test::Equal => MatchOp::Equal,
            Test::NotEqual => MatchOp::NotEqual,
            Test::Regex(_) => MatchOp::Regex,
            Test::NotRegex(_) => MatchOp::NotRegex,
        }
    }

    /// The bytes that the name, the value and a compiled pattern take in memory.
    pub fn memory_usage(&self) -> usize {
        let pattern = match &self.test {
            Test::Equal | Test::NotEqual => 0,
            Test::Regex(pattern) | Test::NotRegex(pattern) => pattern.memory_usage(),
        };
        self.name.len() + self.value.len() + pattern
    }

    /// Memory of a compiled pattern and of what searching with it may take; none for a literal.
    pub fn pattern_bytes(&self) -> usize {
        match &self.test {
            Test::Regex(pattern) | Test::NotRegex(pattern) => pattern.bytes(),
            Test::Equal | Test::NotEqual => 0,
        }
    }

    /// Whether this value passes; pass the empty text for an absent label.
    pub fn matches(&self, value: &str) -> bool {
        match &self.test {
            Test::Equal => *value == *self.value,
            Test::NotEqual => *value != *self.value,
            Test::Regex(pattern) => pattern.matches(value),
            Test::NotRegex(pattern) => !pattern.matches(value),
        }
    }

    /// As [`Matcher::matches`], within `pace`.
    ///
    /// # Errors
    /// [`Stopped`].
    pub fn matches_within(&self, value: &str, pace: &Pace<'_>) -> Result<bool, Stopped> {
        match &self.test {
            Test::Regex(pattern) => pattern.matches_within(value, pace),
            Test::NotRegex(pattern) => pattern.matches_within(value, pace).map(|matches| !matches),
            Test::Equal | Test::NotEqual => {
                pace.spend(value.len() as u64)?;
                Ok(self.matches(value))
            }
        }
    }

    /// The work that [`Matcher::matches_within`] asks for at most, in units of about a nanosecond.
    pub fn match_units(&self, value: &str) -> u64 {
        match &self.test {
            Test::Equal | Test::NotEqual => value.len() as u64,
            Test::Regex(pattern) | Test::NotRegex(pattern) => pattern.match_units(value),
        }
    }

    /// As [`Matcher::admits`], within `pace`.
    ///
    /// # Errors
    /// [`Stopped`].
    pub fn admits_within(&self, labels: &Labels, pace: &Pace<'_>) -> Result<bool, Stopped> {
        self.matches_within(labels.value(&self.name), pace)
    }

    /// Whether a series with these labels passes.
    pub fn admits(&self, labels: &Labels) -> bool {
        self.matches(labels.value(&self.name))
    }
}

/// As PromQL writes it: `job=~"api|db"`.
impl std::fmt::Display for Matcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}{:?}", self.name, self.op().as_str(), self.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absent_label_is_the_empty_text_for_every_operator() {
        let labels = Labels::from_pairs([("a", "1")]);
        let cases = [
            (MatchOp::Equal, "", true),
            (MatchOp::NotEqual, "y", true),
            (MatchOp::Regex, "y|", true),
            (MatchOp::Regex, "y", false),
            (MatchOp::NotRegex, ".+", true),
        ];
        for (op, value, expected) in cases {
            assert_eq!(
                Matcher::new("x", op, value).expect("valid").admits(&labels),
                expected,
                "x{}{value:?}",
                op.as_str()
            );
        }
    }
}
