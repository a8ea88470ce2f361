//! `label op "value"`: the matchers of embed policies.
//!
//! PromQL's own parser (`promql::syntax::parse_matcher`) belongs to a higher room, and it takes the
//! whole rest of the text as an unquoted value, `x or b=~".*"` included. This is safe in a query,
//! whose result can only shrink. In a policy such a text is a mistake and must be refused. This
//! parser accepts exactly one matcher. Both parsers read the texts that it accepts alike: a
//! property test beside the handlers that pass policies to both checks this.
//!
//! A classic label name has no quotes. Any UTF-8 is a name in double quotes, single quotes or
//! backquotes, with the escapes of PromQL. The value is in double or single quotes, with `\n`,
//! `\t`, `\r`, `\\` and the quote itself escaped. It may be bare if it consists of letters, digits
//! and `_ - . : / @ + * |` only.

use std::borrow::Cow;

use crate::model::{CompileLimits, MatchOp, Matcher, PatternError, is_label_name, quoted_length, unquoted};

/// Compile limits of the patterns in one policy of at most 8 matchers.
#[derive(Clone, Copy, Debug)]
pub(in crate::identity) struct PatternLimits {
    /// Limits of one pattern.
    one: CompileLimits,
    /// Bytes that all matchers of the policy may use together.
    all: usize,
}

impl PatternLimits {
    /// For the policy of an API key, which is compiled when the key is loaded or changed.
    pub(in crate::identity) const KEY: PatternLimits =
        PatternLimits { one: CompileLimits { bytes: 128 << 10, units: 2_000_000 }, all: usize::MAX };
    /// For the policy of an embed token, which is compiled during a request and is chosen by the
    /// holder of the key's secret.
    pub(super) const TOKEN: PatternLimits =
        PatternLimits { one: CompileLimits { bytes: 32 << 10, units: 500_000 }, all: 128 << 10 };
}

/// Errors of parsing a matcher.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PolicyMatcherError {
    /// The text does not begin with a label name.
    #[error("{0:?} does not begin with a label name")]
    Name(String),
    /// No operator follows the label name.
    #[error("{0:?} has none of = != =~ !~ after its label")]
    Operator(String),
    /// The value is not closed, has an unknown escape, or is followed by more text.
    #[error("{0:?} does not end in one value")]
    Value(String),
    /// The pattern is invalid.
    #[error(transparent)]
    Pattern(PatternError),
    /// The pattern compiles to more than this number of bytes, or would take too long to compile.
    #[error(
        "a regular expression that restricts may compile to {0} bytes at most, and have few Unicode classes, \
         case-insensitive ranges and repeated classes"
    )]
    TooLarge(usize),
    /// The matchers of one policy compile to more than this number of bytes together.
    #[error("the regular expressions of a policy may compile to {0} bytes together at most")]
    TooLargeTogether(usize),
}

/// Compiles the matchers of one policy.
///
/// # Errors
/// The first [`PolicyMatcherError`].
pub(super) fn parse_all(texts: &[String], limits: PatternLimits) -> Result<Vec<Matcher>, PolicyMatcherError> {
    let mut bytes = 0;
    let mut matchers = Vec::with_capacity(texts.len());
    for text in texts {
        let matcher = parse_within(text, limits.one)?;
        bytes += matcher.memory_usage();
        if bytes > limits.all {
            return Err(PolicyMatcherError::TooLargeTogether(limits.all));
        }
        matchers.push(matcher);
    }
    Ok(matchers)
}

/// Parses one matcher with the limits of an API key's policy.
#[cfg(test)]
pub(crate) fn parse(text: &str) -> Result<Matcher, PolicyMatcherError> {
    parse_within(text, PatternLimits::KEY.one)
}

/// Parses one matcher whose pattern stays within `limits`.
fn parse_within(text: &str, limits: CompileLimits) -> Result<Matcher, PolicyMatcherError> {
    let trimmed = text.trim();
    let (name, rest) = split_name(trimmed).ok_or_else(|| PolicyMatcherError::Name(text.to_owned()))?;
    let rest = rest.trim_start();
    let ops =
        [("=~", MatchOp::Regex), ("!~", MatchOp::NotRegex), ("!=", MatchOp::NotEqual), ("=", MatchOp::Equal)];
    let found = ops.into_iter().find_map(|(sign, op)| rest.strip_prefix(sign).map(|value| (op, value)));
    let Some((op, value)) = found else { return Err(PolicyMatcherError::Operator(text.to_owned())) };
    let value = read_value(value.trim_start()).ok_or_else(|| PolicyMatcherError::Value(text.to_owned()))?;
    Matcher::new_within(&name, op, &value, limits).map_err(|error| match error {
        PatternError::TooLarge | PatternError::Refused => PolicyMatcherError::TooLarge(limits.bytes),
        error => PolicyMatcherError::Pattern(error),
    })
}

/// Splits a text into the label name at its start, bare or quoted, and the rest.
fn split_name(text: &str) -> Option<(Cow<'_, str>, &str)> {
    if text.starts_with(['"', '\'', '`']) {
        let (quoted, rest) = text.split_at_checked(quoted_length(text)?)?;
        let name = String::from_utf8(unquoted(quoted).ok()?).ok()?;
        return (!name.is_empty()).then_some((Cow::Owned(name), rest));
    }
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(text.len());
    let (name, rest) = text.split_at_checked(end)?;
    is_label_name(name).then_some((Cow::Borrowed(name), rest))
}

fn read_value(text: &str) -> Option<String> {
    let mut chars = text.chars();
    match chars.next()? {
        quote @ ('"' | '\'') => read_quoted(&mut chars, quote).filter(|_| chars.next().is_none()),
        _ => {
            let bare = |c: char| c.is_ascii_alphanumeric() || "_-.:/@+*|".contains(c);
            text.chars().all(bare).then(|| text.to_owned())
        }
    }
}

fn read_quoted(chars: &mut std::str::Chars<'_>, quote: char) -> Option<String> {
    let mut out = String::new();
    loop {
        match chars.next()? {
            c if c == quote => return Some(out),
            '\n' => return None,
            '\\' => out.push(match chars.next()? {
                'n' => '\n',
                't' => '\t',
                'r' => '\r',
                '\\' => '\\',
                c if c == quote => c,
                _ => return None,
            }),
            c => out.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn exactly_one_matcher_is_accepted() {
        let good = [
            (r#"tenant="t42""#, r#"tenant="t42""#),
            (r#" env =~ "prod|stage" "#, r#"env=~"prod|stage""#),
            ("tenant=t42", r#"tenant="t42""#),
            ("a!='b'", r#"a!="b""#),
            (r#"a!~"x.*""#, r#"a!~"x.*""#),
            (r#"a="\"\\n""#, r#"a="\"\\n""#),
            (r#"a="""#, r#"a="""#),
            (r#"__name__=~"http_.*""#, r#"__name__=~"http_.*""#),
            (r#""tenant"="t42""#, r#"tenant="t42""#),
            (r#""la.bel"="é""#, r#""la.bel"="é""#),
            (r#" 'la.bel' =~ "a|b" "#, r#""la.bel"=~"a|b""#),
            (r#""a\"=\"b"!=c"#, r#""a\"=\"b"!="c""#),
            (r#""\u00e9\x20\060"=x"#, r#""é 0"="x""#),
            (r#"`a\n`=x"#, r#""a\\n"="x""#),
        ];
        for (text, printed) in good {
            assert_eq!(parse(text).map(|m| m.to_string()), Ok(printed.to_owned()), "{text}");
        }
        let bad = [
            "",
            "tenant",
            "tenant=",
            "=x",
            "1a=b",
            "tenant==x",
            r#"tenant="a" or b=~".*""#,
            r#"tenant="a",b="c""#,
            r#"tenant="a"#,
            r#"{tenant="a"}"#,
            r#"tenant="\q""#,
            r#"tenant="\'""#,
            r#"a=~"(""#,
            "tenant=a b",
            "tenänt=a",
            "a=`b`",
            r#"a=~"(x{50}){50}""#,
            r#"a=b""#,
            r#"""="x""#,
            r#""a""#,
            r#""a"#,
            r#""a=b"#,
            r#""a"b"="c""#,
            r#""a","b"="c""#,
            r#""a\q"="c""#,
            r#""\xff"="c""#,
            "\"a\n\"=c",
            r#""a"="b" or "c"="d""#,
        ];
        for text in bad {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_value_survives_printing_and_parsing(value in "[^\\x00-\\x1f\\x7f]{0,20}") {
            let escaped = value.replace('\\', "\\\\").replace('"', "\\\"");
            prop_assert_eq!(parse(&format!("a=\"{escaped}\"")).map(|m| m.value().to_owned()), Ok(value));
        }

        #[test]
        fn arbitrary_text_never_panics(text in "\\PC{0,40}") {
            let _ = parse(&text);
        }
    }
}
