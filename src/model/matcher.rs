//! Matchers: tests of one label.

use super::{CompileLimits, Labels, Pace, Pattern, PatternError, Stopped, is_label_name};

/// The operator of a matcher.
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
    /// Returns the operator as written in PromQL.
    pub const fn as_str(self) -> &'static str {
        match self {
            MatchOp::Equal => "=",
            MatchOp::NotEqual => "!=",
            MatchOp::Regex => "=~",
            MatchOp::NotRegex => "!~",
        }
    }
}

/// A test of one label. An absent label counts as the empty text for every operator.
#[derive(Clone, Debug)]
pub struct Matcher {
    name: Box<str>,
    value: Box<str>,
    test: MatchTest,
}

#[derive(Clone, Debug)]
enum MatchTest {
    Equal,
    NotEqual,
    Regex(Pattern),
    NotRegex(Pattern),
}

impl Matcher {
    /// Creates a matcher and compiles its pattern, if any.
    ///
    /// # Errors
    /// [`PatternError`] if `value` is not a valid pattern.
    pub fn new(name: &str, op: MatchOp, value: &str) -> Result<Matcher, PatternError> {
        Matcher::of(name, op, value, Pattern::new)
    }

    /// Like [`Matcher::new`], with a pattern within `limits`.
    ///
    /// # Errors
    /// As for [`Matcher::new`].
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
            MatchOp::Equal => MatchTest::Equal,
            MatchOp::NotEqual => MatchTest::NotEqual,
            MatchOp::Regex => MatchTest::Regex(pattern(value)?),
            MatchOp::NotRegex => MatchTest::NotRegex(pattern(value)?),
        };
        Ok(Matcher { name: name.into(), value: value.into(), test })
    }

    /// Creates the matcher `name="value"`, which cannot fail.
    pub fn equal(name: &str, value: &str) -> Matcher {
        Matcher { name: name.into(), value: value.into(), test: MatchTest::Equal }
    }

    /// Returns the label name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the value or pattern as written.
    pub fn value(&self) -> &str {
        &self.value
    }

    /// Returns the operator.
    pub const fn op(&self) -> MatchOp {
        match self.test {
            MatchTest::Equal => MatchOp::Equal,
            MatchTest::NotEqual => MatchOp::NotEqual,
            MatchTest::Regex(_) => MatchOp::Regex,
            MatchTest::NotRegex(_) => MatchOp::NotRegex,
        }
    }

    /// Returns the memory of the name, the value and the compiled pattern, in bytes.
    pub fn memory_usage(&self) -> usize {
        self.name.len() + self.value.len() + self.pattern().map_or(0, Pattern::memory_usage)
    }

    /// Returns the pattern of `=~` and `!~`.
    pub fn pattern(&self) -> Option<&Pattern> {
        match &self.test {
            MatchTest::Regex(pattern) | MatchTest::NotRegex(pattern) => Some(pattern),
            MatchTest::Equal | MatchTest::NotEqual => None,
        }
    }

    /// Returns the memory in bytes of the compiled pattern and its searches; 0 for a literal.
    pub fn pattern_bytes(&self) -> usize {
        self.pattern().map_or(0, Pattern::bytes)
    }

    /// Returns whether a value matches; pass the empty text for an absent label.
    pub fn matches(&self, value: &str) -> bool {
        match &self.test {
            MatchTest::Equal => *value == *self.value,
            MatchTest::NotEqual => *value != *self.value,
            MatchTest::Regex(pattern) => pattern.matches(value),
            MatchTest::NotRegex(pattern) => !pattern.matches(value),
        }
    }

    /// Like [`Matcher::matches`], within `pace`.
    ///
    /// # Errors
    /// [`Stopped`].
    pub fn matches_within(&self, value: &str, pace: &Pace<'_>) -> Result<bool, Stopped> {
        match &self.test {
            MatchTest::Regex(pattern) => pattern.matches_within(value, pace),
            MatchTest::NotRegex(pattern) => pattern.matches_within(value, pace).map(|matches| !matches),
            MatchTest::Equal | MatchTest::NotEqual => {
                pace.spend(value.len() as u64)?;
                Ok(self.matches(value))
            }
        }
    }

    /// Returns the maximum work that [`Matcher::matches_within`] requests, in units of about a
    /// nanosecond.
    pub fn match_units(&self, value: &str) -> u64 {
        match &self.test {
            MatchTest::Equal | MatchTest::NotEqual => value.len() as u64,
            MatchTest::Regex(pattern) | MatchTest::NotRegex(pattern) => pattern.match_units(value),
        }
    }

    /// Like [`Matcher::admits`], within `pace`.
    ///
    /// # Errors
    /// [`Stopped`].
    pub fn admits_within(&self, labels: &Labels, pace: &Pace<'_>) -> Result<bool, Stopped> {
        self.matches_within(labels.value(&self.name), pace)
    }

    /// Returns whether a series with these labels matches.
    pub fn admits(&self, labels: &Labels) -> bool {
        self.matches(labels.value(&self.name))
    }
}

/// Formats the matcher as in PromQL: `job=~"api|db"`.
impl std::fmt::Display for Matcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match is_label_name(&self.name) {
            true => f.write_str(&self.name)?,
            false => write!(f, "{:?}", self.name)?,
        }
        write!(f, "{}{:?}", self.op().as_str(), self.value)
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
