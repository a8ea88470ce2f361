//! Tests of the parameters of a request: times, durations, selectors, limits.

use super::*;
use proptest::prelude::*;

const NOW: Timestamp = Timestamp::from_ms(1_795_226_400_123);

fn params(query: &str) -> Params {
    Params::of_query(Some(query)).expect("UTF-8")
}

#[test]
fn a_repeated_single_parameter_is_refused_in_query_and_form() {
    let mut same = Params::merged(Some("query=up"), b"query=up").expect("UTF-8");
    assert_eq!(same.one(&["query"]).expect_err("twice").code(), Code::DuplicateParameter);
    assert_eq!(
        params("expr=a&query=b").one(&["expr", "query"]).expect_err("twice").code(),
        Code::DuplicateParameter
    );
    assert_eq!(params("a=1&a=").one(&["a"]).expect_err("twice").code(), Code::DuplicateParameter);
    let mut merged = Params::merged(Some("query=a%2Bb"), b"time=4").expect("UTF-8");
    assert_eq!(merged.one(&["query"]).expect("once").as_deref(), Some("a+b"));
    assert_eq!(merged.time("time", NOW).expect("valid"), Some(Timestamp::from_s(4)));
}

#[test]
fn a_parameter_that_was_not_taken_is_named_once() {
    let mut params = params("metric=up&match[]=a&match=b&foo=1&foo=2&_=3&bar");
    assert_eq!(params.one(&["metric"]).expect("once").as_deref(), Some("up"));
    assert_eq!(params.many(&["match", "match[]"]), ["a", "b"]);
    assert_eq!(params.unknown(), ["foo", "bar"]);
}

#[test]
fn an_empty_value_counts_as_missing() {
    assert_eq!(params("start=&limit=").time("start", NOW).expect("none"), None);
}

#[test]
fn bytes_that_are_not_utf8_are_refused() {
    assert_eq!(Params::of_query(Some("match=%ff")).expect_err("not UTF-8").code(), Code::InvalidParameter);
    assert_eq!(
        Params::of_query(Some("a=%EF%BF%BD&b=%ff")).expect_err("not UTF-8").code(),
        Code::InvalidParameter
    );
    assert_eq!(params("a=%EF%bf%BD").one(&["a"]).expect("once").as_deref(), Some("\u{fffd}"));
}

#[test]
fn more_than_a_thousand_parameters_are_refused() {
    assert_eq!(params(&"a=1&".repeat(1_000)).many(&["a"]).len(), 1_000);
    for (query, form) in [("a&".repeat(1_001), String::new()), ("a&".repeat(500), "a&".repeat(501))] {
        let refused = Params::merged(Some(&query), form.as_bytes()).expect_err("too many");
        assert_eq!(refused.code(), Code::InvalidParameter);
        assert_eq!(refused.detail(), "a request has at most 1000 parameters");
    }
}

#[test]
fn times_are_parsed_in_all_formats() {
    let cases = [
        ("0", Some(0)),
        ("4", Some(4_000)),
        ("1795226400", Some(1_795_226_400_000)),
        ("1795226400.1234567", Some(1_795_226_400_123)),
        ("1.7952264e9", Some(1_795_226_400_000)),
        ("-1.5", Some(-1_500)),
        ("2026-11-21T10:00:00Z", Some(1_795_255_200_000)),
        ("2026-11-21T12:00:00.5+02:00", Some(1_795_255_200_500)),
        ("now", Some(NOW.as_ms())),
        ("now-15m", Some(NOW.as_ms() - 900_000)),
        ("now+1h", Some(NOW.as_ms() + 3_600_000)),
        ("now 1h", Some(NOW.as_ms() + 3_600_000)),
        ("-292273086-05-16T16:47:06Z", Some(-SECONDS_MAX * 1_000)),
        ("292277025-08-18T07:12:54.999999999Z", Some(SECONDS_MAX * 1_000)),
        ("1e300", None),
        ("9223372036854775", None),
        ("inf", None),
        ("NaN", None),
        ("yesterday", None),
        ("now-", None),
        ("now15m", None),
        ("now-1.5h", None),
        ("now--1h", None),
        ("2026-11-21", None),
        ("", None),
    ];
    for (text, ms) in cases {
        assert_eq!(parse_time(text, NOW).map(Timestamp::as_ms), ms, "{text}");
    }
}

#[test]
fn durations_have_seconds_or_units() {
    let cases = [
        ("15", Some(15_000)),
        ("0.5", Some(500)),
        ("1h30m", Some(5_400_000)),
        ("-1", Some(-1_000)),
        ("0.0001", Some(0)),
        ("-1h", None),
        ("1e300", None),
        ("9223372036", Some(9_223_372_036_000)),
        ("9223372037", None),
        ("300y", None),
        ("inf", None),
        ("1h 30m", None),
    ];
    for (text, ms) in cases {
        assert_eq!(parse_span(text), ms, "{text}");
    }
}

#[test]
fn errors_name_the_parameter() {
    let error = params("start=abc").time("start", NOW).expect_err("no time");
    assert_eq!(error.detail(), r#"invalid parameter "start": cannot parse "abc" to a valid timestamp"#);
    let error = params("limit=0").count("limit", 1, 10_000).expect_err("too few");
    assert_eq!(error.detail(), r#"invalid parameter "limit": 0 is not a whole number from 1 to 10000"#);
    let error = params("q=x").number::<f64>("q", "a number").expect_err("no number");
    assert_eq!(error.detail(), r#"invalid parameter "q": "x" is not a number"#);
    assert!(shortened(&"ä".repeat(1_000)).len() < 110);
}

#[test]
fn escaped_label_names_are_unescaped() {
    let cases = [
        ("U__my_2e_label", "my.label"),
        ("U__a__b", "a_b"),
        ("U__e4_", "U__e4_"),
        ("U___e4_", "ä"),
        ("job", "job"),
        ("U__bad_zz_", "U__bad_zz_"),
        ("U__a_d800_", "U__a_d800_"),
        ("U__open_2e", "U__open_2e"),
        ("U__", ""),
    ];
    for (escaped, name) in cases {
        assert_eq!(unescape_name(escaped), name, "{escaped}");
    }
}

proptest! {
    #[test]
    fn no_text_causes_a_panic(text in any::<String>(), bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
        let _ = parse_time(&text, NOW);
        let _ = parse_span(&text);
        let _ = unescape_name(&format!("U__{text}"));
        if let Ok(mut params) = Params::merged(Some(&text), &bytes) {
            let _ = params.one(&["a"]);
            let _ = params.unknown();
        }
    }
}
