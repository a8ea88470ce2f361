//! Results that stay text.

use proptest::prelude::*;

use super::*;

fn text(result: &PassedResult) -> String {
    String::from_utf8(result.text(usize::MAX).to_vec()).expect("UTF-8")
}

#[test]
fn printed_values_are_json_that_is_parsed_again() {
    let values = [
        (-1_001, 0.1, r#"[-1.001,"0.1"]"#),
        (0, 0.0, r#"[0,"0"]"#),
        (1_500, -0.0, r#"[1.500,"-0"]"#),
        (2_000, 1e20, r#"[2,"100000000000000000000"]"#),
        (3_000, 1e300, r#"[3,"1e+300"]"#),
        (4_000, -2.5e-7, r#"[4,"-2.5e-07"]"#),
        (5_000, f64::INFINITY, r#"[5,"+Inf"]"#),
        (6_000, f64::NEG_INFINITY, r#"[6,"-Inf"]"#),
    ];
    let samples: Vec<Sample> =
        values.iter().map(|(ms, value, _)| Sample { at: Timestamp::from_ms(*ms), value: *value }).collect();
    let labels = Labels::from_pairs([("a", "\"\\\n\u{1}é😀")]);
    let result = PassedResult::printed(&[(labels.clone(), samples.clone()), (Labels::default(), Vec::new())]);
    let expected = values.map(|(.., text)| text).join(",");
    let first = format!(r#"{{"metric":{{"a":"\"\\\n\u0001é😀"}},"values":[{expected}]}}"#);
    // The series are sorted.
    assert_eq!(text(&result), format!(r#"{{"metric":{{}}}},{first}"#));
    assert_eq!(result.text(1), br#"{"metric":{}}"#);
    assert_eq!(result.text(0), b"");
    let Some(Value::Matrix(parsed)) = result.parsed(usize::MAX) else { panic!("matrix") };
    assert_eq!((&parsed[1].labels, &parsed[1].samples), (&labels, &samples));
    assert_eq!((parsed.len(), parsed[0].samples.len()), (2, 0));
    let nan = [Sample { at: Timestamp::from_ms(1), value: f64::NAN }].to_vec();
    let nan = PassedResult::printed(&[(Labels::default(), nan)]);
    assert_eq!(text(&nan), r#"{"metric":{},"values":[[0.001,"NaN"]]}"#);
    let Some(Value::Matrix(parsed)) = nan.parsed(1) else { panic!("matrix") };
    assert!(parsed[0].samples[0].value.is_nan());
}

#[test]
fn times_are_steps_in_any_text_and_after_series_with_other_steps() {
    let steps = Steps::new(Timestamp::from_ms(98_500), Timestamp::from_s(110), 500).expect("steps");
    let mut writer = PassedWriter::new(None, Some(steps), Timestamp::from_s(1));
    let mut is_copied = |times: &[&str]| {
        let points: Vec<String> = times.iter().map(|time| format!("[{time},\"1\"]")).collect();
        let one = format!("{{\"metric\":{{}},\"values\":[{}]}}", points.join(","));
        writer.copy(one.as_bytes()) == Some((one.len(), times.len()))
    };
    // Each is read with the texts of those before it.
    for (times, is_usual) in [
        (&["99", "100", "110"][..], true),
        (&["98.500", "99", "99.5", "100", "100.500"], true),
        (&["98.5", "99.000", "99.500", "109.5", "110"], true),
        (&["99", "99"], false),
        (&["100", "99"], false),
        (&["110", "110.5"], false),
        (&["98"], false),
        (&["99.1"], false),
        (&["99.", "100"], false),
        (&["99", "100", "1e2"], false),
        (&["98.500", "99", "110"], true),
    ] {
        assert_eq!(is_copied(times), is_usual, "{times:?}");
    }
}

#[test]
fn a_vector_is_passed_in_the_order_of_the_server_and_without_the_hidden_label() {
    let mut writer = PassedWriter::new(Some("tenant".into()), None, Timestamp::from_ms(1_500));
    let of = |labels: &str, time: &str, value: &str| {
        format!(r#"{{"metric":{{{labels}}},"value":[{time},"{value}"]}}"#)
    };
    let mut is_copied = |one: &str| writer.copy(one.as_bytes()) == Some((one.len(), 1));
    assert!(is_copied(&of(r#""a":"x","b":"y""#, "1.500", "2.5")));
    assert!(is_copied(&of(r#""a":"b","e":"","tenant":"7""#, "1.5", "NaN")));
    assert!(is_copied(&of(r#""tenant":"7""#, "1.500", "-1e+20")));
    assert!(!is_copied(&of("", "2", "1")), "another time");
    assert!(!is_copied(&of(r#""b":"x","a":"y""#, "1.5", "1")), "not sorted by name");
    assert!(!is_copied(&of(r#""a":"\u0061""#, "1.5", "1")), "an escape");
    let vector = writer.into_vector().expect("one value");
    let expected =
        [of(r#""a":"x","b":"y""#, "1.500", "2.5"), of(r#""a":"b""#, "1.5", "NaN"), of("", "1.500", "-1e+20")];
    assert_eq!(text(&vector), expected.join(","));
    let Some(Value::Vector(parsed)) = vector.parsed(2) else { panic!("vector") };
    assert_eq!((parsed.len(), parsed[0].at, parsed[0].value), (2, Timestamp::from_ms(1_500), 2.5));
    assert_eq!(parsed[1].labels, Labels::from_pairs([("a", "b")]));
}

proptest! {
    /// The values have all characters around the quote and the comma, which end a value.
    #[test]
    fn series_are_known_to_be_sorted_exactly_if_they_are(
        all in prop::collection::vec(prop::collection::btree_map("[ab]{1,2}", "[ !#+,\\-}ab]{1,2}", 0..4), 0..6),
        is_ordered: bool,
    ) {
        let mut all: Vec<Labels> = all.into_iter().map(Labels::from_pairs).collect();
        if is_ordered {
            all.sort();
            all.dedup();
        }
        let mut writer = PassedWriter::new(None, None, Timestamp::from_s(1));
        for labels in &all {
            let pairs: Vec<String> = labels.iter().map(|l| format!("\"{}\":\"{}\"", l.name, l.value)).collect();
            let one = format!("{{\"metric\":{{{}}},\"values\":[[1,\"2\"]]}}", pairs.join(","));
            prop_assert_eq!(writer.copy(one.as_bytes()), Some((one.len(), 1)));
        }
        prop_assert_eq!(writer.is_sorted, all.is_sorted_by(|a, b| a < b));
        let (result, has_equal) = writer.into_matrix().expect("many values");
        all.sort();
        prop_assert_eq!(has_equal, all.windows(2).any(|pair| pair[0] == pair[1]));
        let Some(Value::Matrix(parsed)) = result.parsed(usize::MAX) else { panic!("matrix") };
        prop_assert_eq!(parsed.into_iter().map(|one| one.labels).collect::<Vec<_>>(), all);
    }
}
