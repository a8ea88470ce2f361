//! Tests of patterns: accepted and refused syntax and its meaning, as tables and properties.

use proptest::prelude::*;

use std::cell::Cell;

use super::stepped::SteppedSearch;
use super::{CaptureError, CompileLimits, Pattern, PatternError};
use crate::model::{Conductor, Pace, Stopped};

fn pattern(text: &str) -> Pattern {
    Pattern::new(text).unwrap_or_else(|error| panic!("{text:?}: {error}"))
}

fn check(cases: &[(&str, &str, bool)]) {
    for (text, value, expected) in cases {
        assert_eq!(pattern(text).matches(value), *expected, "{text:?} on {value:?}");
        // Captures of a whole match exist exactly if it matches, also for forms compared as text.
        assert_eq!(pattern(text).captures(value).is_some(), *expected, "captures of {text:?} on {value:?}");
    }
}

#[test]
fn patterns_have_the_semantics_of_re2() {
    let cases: &[(&str, &str, bool)] = &[
        // Anchored at both ends, dot matches newline.
        ("a", "a", true),
        ("a", "ab", false),
        ("a", "ba", false),
        ("a.b", "a\nb", true),
        (".*", "x\ny", true),
        ("(?-s)a.b", "a\nb", false),
        ("a|bc", "bc", true),
        ("a|bc", "ac", false),
        ("a|", "", true),
        ("", "", true),
        ("", "a", false),
        ("(?m)^b$|a", "a\nb", false),
        ("(?m)a$\n^b", "a\nb", true),
        // ASCII classes.
        (r"\d+", "123", true),
        (r"\d", "٣", false),
        (r"\w", "é", false),
        (r"\W", "é", true),
        (r"\s", "\u{a0}", false),
        (r"\S", "\u{a0}", true),
        (r"\s", "\x0c", true),
        (r"\s", "\x0b", false),
        (r"[\d_]+", "1_2", true),
        (r"[^\d]", "٣", true),
        (r"[\D]", "1", false),
        (r"[\W\d]", "é", true),
        (r".*\bé.*", "é", false),
        (r"a\b.*", "aé", true),
        (r"a\B.*", "ab", true),
        // Case folding follows Unicode.
        ("(?i)straße", "STRAßE", true),
        ("(?i)k", "\u{212a}", true),
        ("(?i:A)b", "ab", true),
        ("(?i:A)b", "aB", false),
        ("(?i-i:A)", "a", false),
        ("x(?i)y|z", "Z", true),
    ];
    check(cases);
}

#[test]
fn classes_escapes_and_repetitions_are_parsed_as_by_re2() {
    let cases: &[(&str, &str, bool)] = &[
        // Class syntax: no operations, no nesting.
        ("[a&&b]+", "&ab", true),
        ("[a[b]+", "[ab", true),
        ("[a~~b]+", "~", true),
        ("[]a]+", "]a", true),
        ("[^]a]", "]", false),
        ("[a-]+", "-a", true),
        ("[-a]+", "-a", true),
        (r"[a\]b]+", "]", true),
        (r"[\-x]+", "-", true),
        ("[[:alpha:]]+", "abC", true),
        ("[[:^alpha:]]", "a", false),
        ("[[:word:]-]+", "a-b", true),
        (r"[\x41-\x{43}]+", "ABC", true),
        ("[^a]", "\n", true),
        ("[:a]+", ":a", true),
        // Literals that look like operators.
        ("a{,5}", "a{,5}", true),
        ("a{b}", "a{b}", true),
        ("{", "{", true),
        ("}", "}", true),
        ("a{01}", "a{01}", true),
        (r"\<a\>", "<a>", true),
        (r"a\_b", "a_b", true),
        ("a]", "a]", true),
        ("a b#c", "a b#c", true),
        // Escapes.
        (r"\Qa.b*\E+", "a.b**", true),
        (r"\Qa.b", "a.b", true),
        (r"\Q\E", "", true),
        (r"\101", "A", true),
        (r"\0", "\0", true),
        (r"\x41", "A", true),
        (r"\x{1F600}", "😀", true),
        (r"\a\f\n\r\t\v", "\x07\x0c\n\r\t\x0b", true),
        (r"\Aa\z", "a", true),
        // Unicode classes.
        (r"\pN", "٣", true),
        (r"\PN", "a", true),
        (r"\p{Greek}+", "αβ", true),
        (r"\p{^Greek}", "α", false),
        (r"[\p{Lu}x]+", "ÄxZ", true),
        (r"(?i)[\p{Lu}x1-3]+", "äX2", true),
        (r"(?i)[^\PLa]+", "bÄ", true),
        (r"(?i)[^\PLa]", "A", false),
        (r"(?i)[^\PLa]", "1", false),
        (r"(?i)[\Da]+", "xA", true),
        (r"(?i)[[:^alpha:]k]+", "1\u{212a}K", true),
        (r"[^\p{Lu}a-c[:digit:]\D]", "5", false),
        (r"[^\p{Lu}a-c]", "d", true),
        (r"[^\p{Lu}a-c]", "b", false),
        // Repetitions.
        ("a{2}", "aa", true),
        ("a{2,}", "aaa", true),
        ("a{2,3}", "aaaa", false),
        ("(a*)*", "aa", true),
        ("a*?b+?c??", "aab", true),
        ("(?U)a+", "aa", true),
        ("x{1000}", "x", false),
        ("(?:)", "", true),
        ("^foo$", "foo", true),
        ("^*", "", true),
        // Forms that are compared as text.
        ("foo.*", "foo\nbar", true),
        ("foo.*", "fo", false),
        ("foo.+", "foo", false),
        ("foo.+", "food", true),
        (".+", "", false),
        (".*", "", true),
        (r"a\.b|c", "a.b", true),
        (r"a\.b|c", "axb", false),
        ("(a|b)", "b", true),
        ("(?:a|b)", "a", true),
    ];
    check(cases);
}

#[test]
fn syntax_that_re2_refuses_is_refused() {
    let cases = [
        ("a)|(b", "unexpected )"),
        ("(a", "missing closing )"),
        ("a)", "unexpected )"),
        ("[a", "missing closing ]"),
        ("[]", "missing closing ]"),
        ("[^]", "missing closing ]"),
        ("[b-a]", "invalid character class range: `b-a`"),
        ("[a--b]", "invalid character class range"),
        ("[[:foo:]]", "invalid character class range"),
        ("x**", "invalid nested repetition operator"),
        ("x+*", "invalid nested repetition operator"),
        ("x{2}{3}", "invalid nested repetition operator"),
        ("*", "missing argument to repetition operator"),
        ("a|*", "missing argument to repetition operator"),
        ("(+)", "missing argument to repetition operator"),
        ("x{1001}", "invalid repeat count"),
        ("x{99999999999999}", "invalid repeat count"),
        ("x{3,2}", "invalid repeat count"),
        ("((x{100}){11})", "invalid repeat count"),
        ("(?x)a b", "invalid or unsupported Perl syntax"),
        ("(?R)", "invalid or unsupported Perl syntax"),
        ("(?u:a)", "invalid or unsupported Perl syntax"),
        ("(?-u)a", "invalid or unsupported Perl syntax"),
        ("(?=a)", "invalid or unsupported Perl syntax"),
        ("(?-)", "invalid or unsupported Perl syntax"),
        ("(?i", "missing closing )"),
        ("(?P<a", "invalid named capture"),
        ("(?P<>a)", "invalid named capture"),
        ("(?P<a-b>a)", "invalid named capture"),
        ("(?P<a>x)(?P<a>y)", "duplicate"),
        (r"\u0041", "invalid escape sequence"),
        (r"\Z", "invalid escape sequence"),
        (r"\C", "invalid escape sequence"),
        (r"\1", "invalid escape sequence"),
        (r"\8", "invalid escape sequence"),
        (r"\E", "invalid escape sequence"),
        (r"\x4", "invalid escape sequence"),
        (r"\x{110000}", "invalid escape sequence"),
        (r"\é", "invalid escape sequence"),
        (r"[\b]", "invalid escape sequence"),
        (r"[a-\d]", "invalid escape sequence"),
        ("a\\", "trailing backslash"),
        (r"\p{greek}", "invalid character class range"),
        (r"\p{sc=Greek}", "invalid character class range"),
        (r"\p{", "invalid character class range"),
    ];
    for (text, reason) in cases {
        match Pattern::new(text) {
            Err(PatternError::Syntax(message)) => assert!(message.contains(reason), "{text:?}: {message}"),
            other => panic!("{text:?}: {other:?}"),
        }
    }
}

#[test]
fn a_pattern_that_compiles_to_more_than_a_mebibyte_is_refused() {
    assert_eq!(Pattern::new(r"\pL{1000}").err(), Some(PatternError::TooLarge));
    assert_eq!(
        Pattern::new("((((a{10}){10}){10}b{1000})|c{1000}){1}(?:[^a]{500}[^b]{500}){1}").err(),
        Some(PatternError::TooLarge)
    );
}

/// The compiled size of these is small, or counted too late; none of them is compiled here.
#[test]
fn patterns_that_take_long_to_compile_are_refused_before_they_are_compiled() {
    let long = [
        format!("(?i)(?:{}){{0}}a", r"\pL".repeat(250)),
        format!("(?i)(?:{}){{0}}a", r"[^\pL]".repeat(140)),
        format!("(?i){}", r"[\pL\PL]".repeat(100)),
        format!("(?i){}", "[\u{1}-\u{10ffff}]".repeat(100)),
        format!("(?i){}", r"\p{Any}".repeat(100)),
        format!("a(?-i:(?i:b))(?:{}|c)", r"\pL|\PL|".repeat(100)),
        format!("({}{{10}}){{100}}", r"\PN".repeat(3)),
        format!("[{}]{{1000}}", ('\u{4e00}'..).step_by(2).take(300).collect::<String>()),
    ];
    for text in long {
        assert!(text.len() <= 1_024);
        assert_eq!(Pattern::new(&text).err(), Some(PatternError::TooLarge), "{text}");
        let limits = CompileLimits { units: 500_000, ..Pattern::LIMITS };
        assert_eq!(Pattern::new_within(&text, limits).err(), Some(PatternError::TooLarge), "{text}");
    }
}

#[test]
fn patterns_of_dashboards_are_far_below_the_compile_limits() {
    let ordinary = [
        r"(?i).*(error|warn(ing)?|fatal).*",
        r"(?i)^prod[-_](eu|us)[-_]\w+$",
        r"(?i)[a-zäöüß -]+",
        r"[\p{L}\p{N}_.-]+",
        r"\pL\pL?\d*",
        r"[[:alpha:]][[:alnum:]_]*",
        r"[^/]+/[^/]+(:[0-9]+)?",
        r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*",
        r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}",
        r"([0-9]{1,3}\.){3}[0-9]{1,3}:\d+",
        r"(?i)(GET|POST|PUT|DELETE|PATCH) /api/v[0-9]+/.*",
        r"^(?:(?:cali|flannel|docker|veth|tun|lo|br-)[\w.-]*|eth\d+)$",
        r".+\.(?:svc|pod)\.cluster\.local.?",
        r"\S+ \D{3,100}\W",
    ];
    for text in ordinary {
        let units = super::re2::translate(text).expect("valid").units;
        assert!(units * 10 < Pattern::LIMITS.units, "{text}: {units}");
        pattern(text);
    }
    for text in [r"(?i)\pL+", r"(?i)[\p{L}\p{N} _.-]{1,3}", r"(?i)\w+ [^\pL]+", r"(?i)(?:.*\bé.*|[^a-z])"] {
        pattern(text);
    }
}

#[test]
fn only_literals_and_their_alternations_are_sets() {
    let sets: [(&str, &[&str]); 9] = [
        ("a", &["a"]),
        ("b|a|b", &["a", "b"]),
        ("(a|b)", &["a", "b"]),
        ("(?:a|b)", &["a", "b"]),
        ("^(a|b)$", &["a", "b"]),
        ("", &[""]),
        ("a|", &["", "a"]),
        (r"a\.b|c\|d", &["a.b", "c|d"]),
        ("10\\.0\\.0\\.1:9100", &["10.0.0.1:9100"]),
    ];
    for (text, expected) in sets {
        let pattern = pattern(text);
        let values: Vec<&str> = pattern.set_matches().expect("a set").iter().map(|value| &**value).collect();
        assert_eq!(values, expected, "{text:?}");
        assert!(Pattern::is_set(text));
    }
    for text in ["a.", "a*", "(a)|(b)", "(?i)a", "a|b.*", "[ab]", r"\d", "a{2}", ".+", "(a|b)c"] {
        assert!(!Pattern::is_set(text), "{text:?}");
        assert!(pattern(text).set_matches().is_none());
    }
    assert_eq!(pattern("foo.*").prefix(), Some("foo"));
    assert_eq!(pattern(".+").prefix(), Some(""));
    assert_eq!(pattern(r"a\.b.+").prefix(), Some("a.b"));
    for text in ["a|b.*", r"foo\.*", "fo*.*", "foo.*?", "(foo).*"] {
        assert_eq!(pattern(text).prefix(), None, "{text:?}");
    }
}

#[test]
fn captures_are_numbered_and_named() {
    let pattern = pattern("(?P<first>[a-z]+)-(.*)");
    let captures = pattern.captures("ab-cd\n").expect("matches");
    assert_eq!(captures.name("first"), Some("ab"));
    assert_eq!(captures.get(2), Some("cd\n"));
    assert!(pattern.captures("ab").is_none());
}

#[test]
fn captures_of_the_largest_set_and_prefix_still_compile() {
    let set = "a|".repeat(Pattern::TEXT_MAX / 2 - 1) + "b";
    assert!(pattern(&set).captures("b").is_some());
    let wide = "é".repeat(Pattern::TEXT_MAX / 2);
    assert!(pattern(&wide).captures(&wide).is_some());
    let prefix = "x".repeat(Pattern::TEXT_MAX - 2) + ".*";
    assert!(pattern(&prefix).captures("x").is_none());
}

/// A limiter that refuses everything after a number of requests.
struct CountdownLimiter(Cell<u32>);

impl Conductor for CountdownLimiter {
    fn admits(&self, _: u64) -> bool {
        let left = self.0.get();
        self.0.set(left.saturating_sub(1));
        left > 0
    }

    fn holds(&self, _: u64) -> bool {
        true
    }
}

/// Returns an expression whose DFA has a state for nearly every byte of a random text of a and b,
/// and such a text.
fn hostile(bytes: usize) -> (Pattern, String) {
    let mut state = 7u32;
    let mut letter = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        if state >> 31 == 0 { 'a' } else { 'b' }
    };
    (pattern("(?:[ab]*a.{900})x"), (0..bytes).map(|_| letter()).collect())
}

#[test]
fn one_search_of_a_long_value_is_cancelled_midway() {
    let (pattern, value) = hostile(4_000);
    let patient = CountdownLimiter(Cell::new(u32::MAX));
    assert_eq!(pattern.matches_within(&value, &Pace::of(&patient)), Ok(false));
    let asked = u32::MAX - patient.0.get();
    assert!(asked > 100, "asked {asked} times during one search");
    for patience in [0, 1, 50] {
        let patient = CountdownLimiter(Cell::new(patience));
        let pace = Pace::of(&patient);
        assert_eq!(pattern.matches_within(&value, &pace), Err(Stopped), "{patience}");
        assert_eq!(pattern.captures_within(&value, &pace).err(), Some(CaptureError::Stopped(Stopped)));
    }
    // A cancelled search leaves no state that a later search would stumble over.
    let matching = format!("{}a{}x", value.get(..1_000).expect("ASCII"), "b".repeat(900));
    assert_eq!(pattern.matches_within(&matching, &Pace::endless()), Ok(true));
}

#[test]
fn groups_are_not_searched_in_values_too_long_for_their_expression() {
    let (pattern, value) = hostile(1 << 16);
    assert!(matches!(pattern.captures_within(&value, &Pace::endless()), Ok(None)), "it does not match");
    let matching = format!("{value}a{}x", "b".repeat(900));
    assert_eq!(pattern.captures_within(&matching, &Pace::endless()).err(), Some(CaptureError::TooExpensive));
    let short = format!("a{}x", "b".repeat(900));
    assert!(matches!(pattern.captures_within(&short, &Pace::endless()), Ok(Some(_))));
}

#[test]
fn groups_of_sets_and_prefixes_need_no_search() {
    for (text, value, first) in [("(a|b)", "b", Some("b")), ("(?:a|b)", "b", None), ("^(a)$", "a", Some("a"))]
    {
        let pattern = pattern(text);
        let captures = pattern.captures(value).expect("matches");
        assert_eq!((captures.get(0), captures.get(1), captures.get(2)), (Some(value), first, None), "{text}");
        assert_eq!(captures.name("a"), None);
    }
    for (text, value) in [("a|b", "a"), ("foo.*", "food"), (r"\(a", "(a"), (".+", "x")] {
        let pattern = pattern(text);
        let captures = pattern.captures(value).expect("matches");
        assert_eq!((captures.get(0), captures.get(1)), (Some(value), None), "{text}");
    }
}

/// Matches by the translation, which must agree with the text form of a literal.
fn by_regex(text: &str, value: &str) -> bool {
    let translated = super::re2::translate(text).expect("valid");
    regex_automata::meta::Regex::new(&format!(r"\A(?s:{})\z", translated.text))
        .expect("valid")
        .is_match(value)
}

proptest! {
    #[test]
    fn any_text_is_a_pattern_or_an_error(text in "\\PC{0,40}", value in "\\PC{0,10}") {
        if let Ok(pattern) = Pattern::new(&text) {
            pattern.matches(&value);
        }
    }

    #[test]
    fn texts_full_of_operators_are_patterns_or_errors(
        pieces in prop::collection::vec(prop::sample::select(vec![
            "a", "é", "(", ")", "(?i)", "(?:", "(?P<n>", "[", "]", "^", "$", "-", "|", "*", "+", "?", "{", "}", "{2}", "{2,}",
            ",", "\\", "\\Q", "\\E", "\\d", "\\W", "\\b", "\\p", "{Greek}", "\\x", "41", "[:alpha:]", "&&", ".", "\n",
        ]), 0..20),
        value in "[a&\\-\n]{0,4}",
    ) {
        let text = pieces.concat();
        if let Ok(pattern) = Pattern::new(&text) {
            let expected = by_regex(&text, &value);
            prop_assert_eq!(pattern.matches(&value), expected, "{:?} on {:?}", text, value);
            let stepped = super::anchored(&text).and_then(|text| SteppedSearch::compile(&text)).expect("compiles");
            let found = stepped.matches(&value, 1, &Pace::endless());
            prop_assert_eq!(found, Ok(expected), "{:?} on {:?}, byte by byte", text, value);
        }
    }

    #[test]
    fn an_escaped_literal_matches_itself(text in "\\PC{0,20}", other in "\\PC{0,3}") {
        let escaped: String = text.chars().map(|c| if c.is_ascii_punctuation() { format!("\\{c}") } else { c.to_string() }).collect();
        let pattern = Pattern::new(&escaped).expect("a literal");
        prop_assert!(pattern.matches(&text));
        prop_assert_eq!(pattern.matches(&other), text == other);
        prop_assert!(by_regex(&escaped, &text));
    }
}
