//! Tests of the decoder of line protocol.

use proptest::prelude::*;

use super::*;
use crate::ingest::text;
use crate::ingest::text::Format;

const NOW: Timestamp = Timestamp::from_ms(1_700_000_000_000);

fn options(precision: &str) -> InfluxOptions {
    let precision = Precision::parse(precision).expect("a unit");
    InfluxOptions { precision, database: String::new(), default_at: NOW }
}

fn decoded(text: &str) -> Translated {
    decode(text.as_bytes(), &options("ns"), &DecodeLimits::default()).expect("within the limits")
}

/// Each sample as its series, time and value, in order.
fn samples(read: &Translated) -> Vec<(String, i64, f64)> {
    let batch = read.batch.batch();
    let of = |series: &crate::model::WriteSeries<'_>| {
        let labels = series.raw_labels.to_vec();
        let all = batch.samples[series.samples.clone()].iter();
        all.map(move |one| (format!("{labels:?}"), one.at.as_ms(), one.value)).collect::<Vec<_>>()
    };
    let mut all: Vec<_> = batch.series.iter().flat_map(of).collect();
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all
}

/// The samples of lines in the text format, with which those of line protocol are compared.
fn text_samples(text: &str) -> Vec<(String, i64, f64)> {
    samples(&text::decode(text.as_bytes(), Format::Prometheus, NOW, &DecodeLimits::default()).expect("valid"))
}

#[test]
fn every_field_with_a_number_is_a_sample() {
    let read = decoded(concat!(
        "# a comment\n\n",
        "cpu,host=web\\ 1,region=eu\\,north,empty= usage_user=3.5,usage_system=1i,up=true 1700000000123456789\r\n",
        "disk\\,root,path\\=of=/var\\x free=18446744073709551615u,ok=F,name=\"a \\\"b\\\",c=1\n 7=\"\n",
        "  weather temp=-1e2 -1\n",
        "last v=0",
    ));
    assert_eq!(read.refusals, []);
    assert_eq!(read.skipped, 1);
    let cpu = "{host=\"web 1\",region=\"eu,north\"}";
    assert_eq!(
        samples(&read),
        text_samples(&format!(
            "cpu_usage_user{cpu} 3.5 1700000000123\ncpu_usage_system{cpu} 1 1700000000123\n\
             cpu_up{cpu} 1 1700000000123\n\
             {{\"disk,root_free\",\"path=of\"=\"/var\\\\x\"}} 18446744073709551615\n\
             {{\"disk,root_ok\",\"path=of\"=\"/var\\\\x\"}} 0\n\
             weather_temp -100 -1\nlast_v 0\n"
        ))
    );
}

#[test]
fn the_precision_is_the_unit_of_times() {
    let at = |precision: &str, time: &str| {
        let body = format!("m v=1 {time}");
        let read = decode(body.as_bytes(), &options(precision), &DecodeLimits::default()).expect("decodes");
        samples(&read).first().map(|one| one.1)
    };
    for (precision, time, ms) in [
        ("", "1999999", 1),
        ("ns", "-1", -1),
        ("us", "1999", 1),
        ("ms", "5", 5),
        ("s", "5", 5_000),
        ("m", "5", 300_000),
        ("h", "-5", -18_000_000),
    ] {
        assert_eq!(at(precision, time), Some(ms), "{precision}");
    }
    assert_eq!(at("h", "9223372036854775807"), None, "out of range");
    assert_eq!(Precision::parse("d"), None);
}

#[test]
fn the_database_is_a_label_unless_a_tag_has_its_name() {
    let named = InfluxOptions { database: "telegraf".to_owned(), ..options("ns") };
    let read = decode(b"m v=1\nm,db=own v=2", &named, &DecodeLimits::default()).expect("decodes");
    assert_eq!(samples(&read), text_samples("m_v{db=\"own\"} 2\nm_v{db=\"telegraf\"} 1\n"));
}

#[test]
fn an_invalid_line_is_refused_with_its_number_and_the_others_are_stored() {
    for (line, reason, count) in [
        (",host=a v=1", "the measurement is empty", 1),
        ("m", "no field of the form name=value where one is expected", 1),
        ("m,tag v=1", "a tag has no equals sign", 1),
        ("m,=x v=1", "a label name is empty", 1),
        ("m,a=1,a=2 v=1", "label name \"a\" occurs twice", 1),
        ("m =1", "no field of the form name=value where one is expected", 1),
        ("m v=", "\"\" is not a number, a number with i or u, true, false, or a string in quotes", 1),
        ("m v=1.5i", "\"1.5i\" is not a number, a number with i or u, true, false, or a string in quotes", 1),
        ("m v=-1e400", "\"-1e400\" is out of range: the greatest value is about 1.8e308", 1),
        ("m a=1,b=2,", "no field of the form name=value where one is expected", 2),
        ("m v=\"x\"y", "text follows the end of a string", 1),
        ("m v=\"x", "a string does not end within 65536 bytes", 1),
        ("m v=1 soon", "\"soon\" is not a time: a whole number", 1),
        ("m v=1 1 2", "\"1 2\" is not a time: a whole number", 1),
    ] {
        let read = decoded(&format!("up v=1\n\n{line}\nup v=2 7\n"));
        let reasons: Vec<&str> = read.refusals.iter().map(|one| &*one.reason).collect();
        assert_eq!(reasons, [format!("line 3: {reason}")], "{line}");
        assert_eq!((read.refused, read.batch.len()), (count, 2), "{line}");
    }
    let read = decode(b"a v=1\n\xff v=1\n", &options("ns"), &DecodeLimits::default()).expect("decodes");
    assert_eq!(
        (read.refusals[0].code, &*read.refusals[0].reason),
        ("invalid_utf8", "line 2: byte 1 is not UTF-8")
    );
}

#[test]
fn a_string_that_does_not_end_costs_its_own_line_only() {
    let long = "x".repeat(STRING_BYTES_MAX);
    for line in [format!("m s=\"{long}\""), format!("m s=\"{long}"), "  # s=\"".to_owned()] {
        let read = decoded(&format!("{line}\nup v=1\nup v=2 7\n"));
        assert_eq!(read.batch.len(), 2, "{}", &line[..8]);
        assert_eq!(read.refused, usize::from(line.starts_with('m')));
    }
}

#[test]
fn a_body_beyond_a_limit_is_refused_as_a_whole() {
    let limits = DecodeLimits { samples_max: 2, ..DecodeLimits::default() };
    let read = |body: &str| decode(body.as_bytes(), &options("ns"), &limits);
    assert!(read("m a=1,b=2").is_ok());
    assert!(matches!(read("m a=1,b=2\nm c=3"), Err(DecodeError::TooLarge { what: "samples", .. })));
    assert!(matches!(read(""), Err(DecodeError::Empty)));
    let limits = DecodeLimits { series_max: 1, ..DecodeLimits::default() };
    let many = decode(b"m a=1,b=2", &options("ns"), &limits);
    assert!(matches!(many, Err(DecodeError::TooLarge { what: "series", .. })));
}

fn escaped(text: &str) -> String {
    text.chars().flat_map(|c| ", =".contains(c).then_some('\\').into_iter().chain([c])).collect()
}

proptest! {
    #[test]
    fn any_bytes_decode_without_a_panic(body in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = decode(&body, &options("ns"), &DecodeLimits::default());
    }

    #[test]
    fn lines_of_tokens_decode_without_a_panic(
        tokens in prop::collection::vec(
            prop::sample::select(vec!["m", ",", "=", " ", "\\", "\"", "\n", "1", "i", "t", "#", "ä", "x=1"]), 0..60),
    ) {
        let body = tokens.concat();
        if !body.is_empty() {
            let read = decoded(&body);
            let values: usize = [read.refused, read.batch.len(), read.skipped].iter().sum();
            prop_assert!(values <= body.len());
        }
    }

    #[test]
    fn names_and_tags_are_read_as_they_were_written(
        name in "[a-z, =]{1,8}[a-z]", tag in "[a-z, =]{1,8}[a-z]", value in "[a-z, =\"]{1,8}[a-z]", field in "[a-z, =]{0,8}[a-z]",
    ) {
        let name = format!("n{name}");
        let tag = format!("t{tag}");
        let line = format!("{},{}={} {}=1 5", escaped(&name), escaped(&tag), escaped(&value), escaped(&field));
        let read = decode(line.as_bytes(), &options("ms"), &DecodeLimits::default()).expect("decodes");
        prop_assert_eq!(&read.refusals, &[]);
        let mut expected = Translated::default();
        let metric = format!("{name}_{field}");
        let sample = Sample { at: Timestamp::from_ms(5), value: 1.0 };
        expected.batch.samples_of([(METRIC_NAME, &*metric), (&*tag, &*value)], [sample]);
        prop_assert_eq!(samples(&read), samples(&expected));
    }
}
