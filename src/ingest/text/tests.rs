//! Decodes the text formats: samples round-trip, errors are reported with their line, and no input
//! panics.

use proptest::prelude::*;

use super::*;
use crate::ingest::protobuf::{put_bytes, put_varint};
use crate::ingest::remote_write;
use crate::model::{BatchBuilder, MetricKind, WriteBatch};

const NOW: Timestamp = Timestamp::from_ms(1_700_000_000_000);

/// A sample: printed labels, milliseconds, printed value.
type TextSample = (String, i64, String);

fn decoded(text: &[u8], format: Format) -> Translated {
    decode(text, format, NOW, &DecodeLimits::default()).expect("within the limits")
}

fn labels(batch: &WriteBatch<'_>, raw: &[u8]) -> Labels {
    let mut pairs = Vec::new();
    (batch.parse_labels)(raw, &mut pairs).expect("labels");
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("UTF-8");
    Labels::from_pairs(pairs.into_iter().map(|(name, value)| (text(name), text(value))))
}

fn rows_of(batch: &WriteBatch<'_>) -> Vec<TextSample> {
    let of = |series: &crate::model::WriteSeries<'_>| {
        let labels = labels(batch, series.raw_labels).to_string();
        let samples = batch.samples[series.samples.clone()].to_vec();
        samples.into_iter().map(move |s| (labels.clone(), s.at.as_ms(), format!("{:?}", s.value)))
    };
    batch.series.iter().flat_map(of).collect()
}

fn rows(builder: &BatchBuilder) -> Vec<TextSample> {
    rows_of(&builder.batch())
}

fn reasons(translated: &Translated) -> Vec<&str> {
    translated.refusals.iter().map(|refusal| &*refusal.reason).collect()
}

#[test]
fn lines_of_the_text_format_are_read() {
    let up = r#"{__name__="up"}"#;
    let ab = r#"{__name__="up", a="b"}"#;
    let now = NOW.as_ms();
    let cases: &[(&str, &str, i64, &str)] = &[
        ("up 1", up, now, "1.0"),
        ("  up\t 1  ", up, now, "1.0"),
        ("up 1 1395066363000", up, 1_395_066_363_000, "1.0"),
        ("up 1 -3982045", up, -3_982_045, "1.0"),
        ("up{} 1", up, now, "1.0"),
        ("up {} 1", up, now, "1.0"),
        ("up{}1", up, now, "1.0"),
        (r#"up{a="b"} 1"#, ab, now, "1.0"),
        (r#"up{a="b",} 1"#, ab, now, "1.0"),
        (r#"up { a = "b" , } 1 5"#, ab, 5, "1.0"),
        (r#"up{a="b"}+Inf"#, ab, now, "inf"),
        (r#"{"up"} 1"#, up, now, "1.0"),
        (r#"{"up",a="b"} 1"#, ab, now, "1.0"),
        (r#"{a="b","up"} 1"#, ab, now, "1.0"),
        (r#"{__name__="up","a"="b"} 1"#, ab, now, "1.0"),
        (r#"up{b="",a="b"} 1"#, ab, now, "1.0"),
        (
            r#"{"my \"metric\"\\","a\nb"="x"} 3"#,
            "{__name__=\"my \\\"metric\\\"\\\\\", a\nb=\"x\"}",
            now,
            "3.0",
        ),
        (r#"up{a="x\\y\"z\n\t"} 1"#, r#"{__name__="up", a="x\\y\"z\n\\t"}"#, now, "1.0"),
        (r#"up{a="},{ # \\"} 1"#, r#"{__name__="up", a="},{ # \\"}"#, now, "1.0"),
        (r#"up{le="+Inf",__x="日本"} NaN"#, r#"{__name__="up", __x="日本", le="+Inf"}"#, now, "NaN"),
        ("a:b_c9:d -Inf", r#"{__name__="a:b_c9:d"}"#, now, "-inf"),
        ("up -1.7560473e+07", up, now, "-17560473.0"),
    ];
    for (line, labels, at, value) in cases {
        let read = decoded(line.as_bytes(), Format::Prometheus);
        assert_eq!(read.refusals, [], "{line}");
        let expected = ((*labels).to_owned(), *at, (*value).to_owned());
        assert_eq!(rows(&read.batch), [expected], "{line}");
    }
    let nan = decoded(b"up nan", Format::Prometheus);
    assert_eq!(nan.batch.batch().samples[0].value.to_bits(), 0x7ff8_0000_0000_0001);
}

#[test]
fn an_invalid_text_line_is_refused_with_its_position_and_the_others_are_stored() {
    let cases = [
        ("up", "column 3: the value is missing"),
        ("up ", "column 4: the value is missing"),
        (r#"up{a="b"}"#, "column 10: the value is missing"),
        ("up x", "column 4: \"x\" is not a number"),
        ("up 1e400", "column 4: \"1e400\" is out of range: the greatest value is about 1.8e308"),
        ("up 1 2 3", "column 8: \"3\" is unexpected: a line is a series, a value and a time"),
        (
            "up 1 1.5",
            "column 6: \"1.5\" is not a time in whole milliseconds (OpenMetrics has seconds with fractions)",
        ),
        (
            r#"up 1 # {a="b"} 1"#,
            "column 6: exemplars need OpenMetrics: send Content-Type application/openmetrics-text",
        ),
        (
            "9up 1",
            "column 1: \"9up\" is not a valid metric name: it must begin with a letter, `_` or `:`, or be quoted as in {\"the name\"}",
        ),
        (
            "my.metric 1",
            "column 1: \"my.metric\" is not a valid metric name without quotes: write {\"the name\", label=\"value\"}",
        ),
        (
            "\"up\" 1",
            "column 1: \"\\\"up\\\"\" is not a valid metric name: it must begin with a letter, `_` or `:`, or be quoted as in {\"the name\"}",
        ),
        ("{} 1", "the series has no metric name"),
        (r#"{a="b"} 1"#, "the series has no metric name"),
        (r#"{""} 1"#, "the series has no metric name"),
        (r#"up{a="b" 1"#, "column 10: `,` or `}` is missing here"),
        (r#"up{a="b"#, "column 6: this quote is not closed"),
        (r#"up{a="b\"} 1"#, "column 6: this quote is not closed"),
        (r#"up{a="b""#, "column 3: this brace is not closed"),
        (r#"up{a="b","#, "column 3: this brace is not closed"),
        (r#"up{a=b} 1"#, "column 6: a label value must be in double quotes"),
        (r#"up{a} 1"#, "column 5: the label name must be followed by `=` and a value in quotes"),
        (
            r#"up{a="b",,} 1"#,
            "column 10: \",}\" is not a valid label name: it must begin with a letter or `_`, or be quoted",
        ),
        (
            r#"up{ä="b"} 1"#,
            "column 4: \"ä=\\\"b\\\"}\" is not a valid label name: it must begin with a letter or `_`, or be quoted",
        ),
        (
            r#"üp{a="b} 1"#,
            "column 1: \"üp{a=\\\"b}\" is not a valid metric name: it must begin with a letter, `_` or `:`, or be quoted as in {\"the name\"}",
        ),
        (r#"up{""="b"} 1"#, "a label name is empty"),
        (r#"up{a="b",a="c"} 1"#, "label name \"a\" occurs twice"),
        (r#"up{__name__="up"} 1"#, "label name \"__name__\" occurs twice"),
        (r#"up{"up"} 1"#, "column 4: the metric already has a name"),
        (r#"{"up","up"} 1"#, "column 7: the metric already has a name"),
        (
            "# TYPE up number",
            "column 11: the type must be counter, gauge, histogram, gaugehistogram, summary, info, stateset or unknown",
        ),
        (
            "# TYPE up",
            "column 10: the type must be counter, gauge, histogram, gaugehistogram, summary, info, stateset or unknown",
        ),
        ("# HELP", "column 3: this word must be followed by a metric name"),
    ];
    for (line, reason) in cases {
        let body = format!("before 1\n{line}\nafter 2\n");
        let read = decoded(body.as_bytes(), Format::Prometheus);
        assert_eq!(reasons(&read), [format!("line 2: {}", reason)], "{line}");
        assert_eq!(read.refused, 1);
        let names: Vec<String> = rows(&read.batch).into_iter().map(|(labels, ..)| labels).collect();
        assert_eq!(names, [r#"{__name__="before"}"#, r#"{__name__="after"}"#], "{line}");
    }
    let read = decoded(b"a 1\nup{x=\"\xff\"} 2\nb 3\n", Format::Prometheus);
    assert_eq!(reasons(&read), ["line 2: column 7: this byte is not UTF-8"]);
    assert_eq!(rows(&read.batch).len(), 2);
    let read = decoded(b"up{job=\"api\"} 1\nup{job=\"api\"} x\n", Format::Prometheus);
    assert_eq!(read.refusals[0].series, r#"{__name__="up", job="api"}"#);
    assert_eq!(read.refusals[0].code, "invalid_value");
}

#[test]
fn ten_of_many_invalid_lines_are_listed_and_all_are_counted() {
    let read = decoded("up x\n".repeat(1_000).as_bytes(), Format::Prometheus);
    assert_eq!((read.refused, read.refusals.len()), (1_000, Translated::REFUSALS_LISTED_MAX));
    assert_eq!(reasons(&read)[9], "line 10: column 4: \"x\" is not a number");
}

#[test]
fn type_help_and_unit_lines_become_metadata() {
    let text = "# HELP a_total Line\\none \\\\ \\x \"q\"\n# TYPE a_total counter\n# just a comment\n#TYPE b gauge\n\
                # TYPE \"c.d\" untyped\n# UNIT e seconds\n# HELP e\n# TYPE e gauge\n# HELP a_total Last word\\n\n";
    let read = decoded(text.as_bytes(), Format::Prometheus);
    assert_eq!(read.refusals, []);
    let batch = read.batch.batch();
    let described: Vec<_> = batch.metadata.iter().map(|m| (m.name, m.kind, m.help, m.unit)).collect();
    assert_eq!(
        described,
        [
            ("a_total", MetricKind::Counter, "Last word\n", ""),
            ("c.d", MetricKind::Unknown, "", ""),
            ("e", MetricKind::Gauge, "", "seconds"),
        ]
    );
    let help = decoded(b"# HELP a Line\\none \\\\ \\x \"q\"\n", Format::Prometheus);
    assert_eq!(help.batch.batch().metadata[0].help, "Line\none \\ \\x \"q\"");
    let quotes =
        |format| decoded(b"# HELP a \\\"q\\\"\n# EOF\n", format).batch.batch().metadata[0].help.to_owned();
    assert_eq!(quotes(Format::Prometheus), "\\\"q\\\"", "no escape of 0.0.4");
    assert_eq!(quotes(Format::OpenMetrics), "\"q\"");
}

/// All types of metrics of OpenMetrics 1.0, with all optional parts of a line.
const OPENMETRICS: &str = r#"# TYPE acme_http_router_request_seconds summary
# UNIT acme_http_router_request_seconds seconds
# HELP acme_http_router_request_seconds Latency though all of ACME's HTTP request router.
acme_http_router_request_seconds{path="/api/v1",method="GET",quantile="0.5"} 0.1
acme_http_router_request_seconds_sum{path="/api/v1",method="GET"} 9036.32
acme_http_router_request_seconds_count{path="/api/v1",method="GET"} 807283.0
acme_http_router_request_seconds_created{method="GET",path="/api/v1"} 1605281325.0
acme_http_router_request_seconds_count{path="/api/v2",method="POST"} 34
# TYPE go_goroutines gauge
# HELP go_goroutines Number of goroutines that currently exist.
go_goroutines 69 1520879607.789
# TYPE foo counter
foo_total{a="b"} 17.0 1520879607.789 # {trace_id="KOO5S4vxi0o"} 0.67 1520879606
foo_created{a="b"} 1520430000.123 1520879607.789
foo_total{a="c"} 1 # {} 0.5
# TYPE bar histogram
bar_bucket{le="0.1"} 8 # {} 0.054
bar_bucket{le="+Inf"} 17 # {trace_id="oHg5SJYRHA0"} 9.8 1520879607.9
bar_sum 324789.3
bar_count 17
bar_created 1520430000.5
# TYPE gh gaugehistogram
gh_bucket{le="+Inf"} 42
gh_gcount 42
gh_gsum 3289.3
gh_created 3
# TYPE build info
build_info{version="8.2.7"} 1
# TYPE state stateset
state{state="on"} 0
state{state="off"} 1
none_created 5
# EOF
"#;

#[test]
fn openmetrics_has_exemplars_start_timestamps_and_times_in_seconds() {
    let read = decoded(OPENMETRICS.as_bytes(), Format::OpenMetrics);
    assert_eq!(read.refusals, []);
    let batch = read.batch.batch();
    let names: Vec<(String, i64)> = rows_of(&batch).into_iter().map(|(labels, at, _)| (labels, at)).collect();
    let place = |labels: &str| {
        names.iter().position(|(name, _)| name == labels).unwrap_or_else(|| panic!("no {labels}"))
    };
    // Every series has one sample, so the index of a row is that of its series.
    assert_eq!(names.len(), batch.series.len());
    assert_eq!(names[place(r#"{__name__="go_goroutines"}"#)].1, 1_520_879_607_789);
    let created: Vec<&String> =
        names.iter().map(|(name, _)| name).filter(|n| n.contains("_created")).collect();
    assert_eq!(
        created,
        [r#"{__name__="gh_created"}"#, r#"{__name__="none_created"}"#],
        "not of a counter, histogram or summary"
    );

    let mut starts: Vec<(&str, i64, i64)> = batch
        .starts
        .iter()
        .map(|start| (&*names[start.series].0, start.at.as_ms(), start.start.as_ms()))
        .collect();
    starts.sort_unstable();
    let (now, at) = (NOW.as_ms(), 1_520_879_607_789);
    assert_eq!(
        starts,
        [
            (
                r#"{__name__="acme_http_router_request_seconds", method="GET", path="/api/v1", quantile="0.5"}"#,
                now,
                1_605_281_325_000
            ),
            (
                r#"{__name__="acme_http_router_request_seconds_count", method="GET", path="/api/v1"}"#,
                now,
                1_605_281_325_000
            ),
            (
                r#"{__name__="acme_http_router_request_seconds_sum", method="GET", path="/api/v1"}"#,
                now,
                1_605_281_325_000
            ),
            (r#"{__name__="bar_bucket", le="+Inf"}"#, now, 1_520_430_000_500),
            (r#"{__name__="bar_bucket", le="0.1"}"#, now, 1_520_430_000_500),
            (r#"{__name__="bar_count"}"#, now, 1_520_430_000_500),
            (r#"{__name__="bar_sum"}"#, now, 1_520_430_000_500),
            (r#"{__name__="foo_total", a="b"}"#, at, 1_520_430_000_123),
        ]
    );

    let exemplars: Vec<_> = batch
        .exemplars
        .iter()
        .map(|e| {
            (&*names[e.series].0, batch.exemplar_labels[e.labels.clone()].to_vec(), e.value, e.at.as_ms())
        })
        .collect();
    assert_eq!(
        exemplars,
        [
            (r#"{__name__="foo_total", a="b"}"#, vec![("trace_id", "KOO5S4vxi0o")], 0.67, 1_520_879_606_000),
            (r#"{__name__="foo_total", a="c"}"#, vec![], 0.5, now),
            (r#"{__name__="bar_bucket", le="0.1"}"#, vec![], 0.054, now),
            (
                r#"{__name__="bar_bucket", le="+Inf"}"#,
                vec![("trace_id", "oHg5SJYRHA0")],
                9.8,
                1_520_879_607_900
            ),
        ]
    );
    let kinds: Vec<_> = batch.metadata.iter().map(|m| (m.name, m.kind)).collect();
    assert!(kinds.contains(&("state", MetricKind::StateSet)) && kinds.contains(&("build", MetricKind::Info)));
}

#[test]
fn an_invalid_exemplar_or_start_refuses_its_line() {
    let cases = [
        ("foo_total 1 # x", "column 15: an exemplar must begin with its labels in braces"),
        ("foo_total 1 # {a=\"b\"}", "column 22: the value is missing"),
        (
            "foo_total 1 # {\"b\"} 1",
            "column 19: the label name must be followed by `=` and a value in quotes",
        ),
        ("foo_total 1 # {} 1 x", "column 20: \"x\" is not a time in seconds"),
        (
            "foo_total 1 # {} 1 2 3",
            "column 22: \"3\" is unexpected: an exemplar is labels, a value and a time",
        ),
        ("foo_total 1 NaN", "column 13: \"NaN\" is not a time in seconds"),
        ("foo_created NaN", "column 13: \"NaN\" is not a time in seconds"),
        ("foo_created", "column 12: the value is missing"),
    ];
    for (line, reason) in cases {
        let read =
            decoded(format!("# TYPE foo counter\n{line}\nok 1\n# EOF").as_bytes(), Format::OpenMetrics);
        let expected = format!("line 2: {reason}");
        assert_eq!(reasons(&read), [expected], "{line}");
        assert_eq!(rows(&read.batch).len(), 1, "{line}");
    }
}

#[test]
fn openmetrics_without_eof_is_reported_as_truncated() {
    const MISSING: &str = "column 1: the body ends without `# EOF`: it was truncated, or is not OpenMetrics; \
                           its complete lines are stored";
    let whole = decoded(b"a 1\nb 123\n", Format::OpenMetrics);
    assert_eq!(reasons(&whole), [format!("line 3: {MISSING}")]);
    assert_eq!((rows(&whole.batch).len(), whole.refused), (2, 1));
    let torn = decoded(b"a 1\nb 12", Format::OpenMetrics);
    let reason = "line 2: column 5: the body ends inside this line";
    assert_eq!(reasons(&torn), [reason.to_owned(), format!("line 3: {MISSING}")]);
    assert_eq!((rows(&torn.batch).len(), torn.refused), (1, 2));
    let more = decoded(b"a 1\n# EOF\n\nb 1\nc 1\n", Format::OpenMetrics);
    assert_eq!(reasons(&more), ["line 3: the 2 lines after `# EOF` are not read"]);
    assert_eq!((rows(&more.batch).len(), more.refused), (1, 2));
    assert_eq!(decoded(b"a 1\n# EOF\nb 2\n", Format::Prometheus).refused, 0, "a comment there");
    assert_eq!(decoded(b"a 1\n# EOF \n\n", Format::OpenMetrics).refused, 0);
}

#[test]
fn consecutive_lines_of_a_series_form_one_series() {
    let text = "up{a=\"b\"} 1 1\nup{a=\"b\"}\t2 2\nup{a=\"b\"} x 3\nup{a=\"b\"} 4 4\nup{a=\"bc\"} 5 5\n\
                up 6 6\nup 7 7\nupper 8 8\n# up\nup{a=\"b\"} 9 9\nup 10 10\nup {a=\"b\"} 11 11\n";
    let read = decoded(text.as_bytes(), Format::Prometheus);
    let batch = read.batch.batch();
    let lengths: Vec<usize> = batch.series.iter().map(|series| series.samples.len()).collect();
    assert_eq!(lengths, [3, 1, 2, 1, 1, 1, 1], "an invalid line does not split a series");
    let times: Vec<i64> = batch.samples.iter().map(|sample| sample.at.as_ms()).collect();
    assert_eq!(times, [1, 2, 4, 5, 6, 7, 8, 9, 10, 11]);
    for same in [4, 6] {
        assert_eq!(batch.series[0].raw_labels, batch.series[same].raw_labels, "equal label bytes");
    }
}

#[test]
fn limits_of_text_bodies_are_enforced() {
    let few = DecodeLimits {
        decompressed_bytes_max: 200,
        series_max: 3,
        samples_max: 4,
        metadata_max: 1,
        exemplars_max: 1,
        exemplar_labels_max: 1,
        ..DecodeLimits::default()
    };
    let error_of = |text: &str| {
        decode(text.as_bytes(), Format::OpenMetrics, NOW, &few).map(|_| ()).map_err(|e| e.to_string())
    };
    let too_many = |n: usize, what: &str, most: usize| {
        Err(format!("the request has {n} {what}; at most {most} are allowed"))
    };
    assert_eq!(error_of("a 1\nb 1\nc 1\n# EOF"), Ok(()));
    assert_eq!(error_of("a 1\nb 1\nc 1\nd 1\n# EOF"), too_many(4, "series", 3));
    assert_eq!(error_of("a 1\na 1\na 1\na 1\na 1\n# EOF"), too_many(5, "samples", 4));
    assert_eq!(
        error_of("# TYPE a gauge\n# HELP a x\n# TYPE b gauge\n"),
        too_many(2, "metric descriptions", 1)
    );
    assert_eq!(error_of("a 1 # {} 1\na 1 # {} 1\n"), too_many(2, "exemplars", 1));
    assert_eq!(error_of("a 1 # {a=\"b\",c=\"d\"} 1\n"), too_many(2, "exemplar labels", 1));
    let starts: String = (0..4).map(|n| format!("a_created{{n=\"{n}\"}} 1\n")).collect();
    assert_eq!(error_of(&format!("# TYPE a counter\n{starts}")), too_many(4, "start timestamps", 3));
    assert_eq!(error_of(&"x".repeat(201)), too_many(201, "bytes after decompression", 200));
    assert_eq!(error_of(""), Err("the body is empty".to_owned()));
}

#[test]
fn lines_with_very_many_labels_or_very_long_texts_are_refused_cheaply() {
    let mut body = String::from("up{");
    for n in 0..100_000 {
        body.push_str(&format!("l{n}=\"\","));
    }
    body.push_str("} 1\nok 1\n");
    body.push_str(&"a".repeat(4 << 20));
    body.push_str("\nlong{a=\"");
    body.push_str(&"\\\\".repeat(2 << 20));
    body.push_str("\"} 1\nlast 1");
    let read = decoded(body.as_bytes(), Format::Prometheus);
    let error_of = reasons(&read);
    assert!(error_of[0].ends_with("the series has more than 1024 labels"), "{error_of:?}");
    assert_eq!(error_of[1], "line 3: column 4194305: the value is missing");
    assert!(read.refusals.iter().all(|refusal| refusal.series.len() <= 200 && refusal.reason.len() <= 400));
    assert_eq!(read.refused, 2);
    assert_eq!(rows(&read.batch).len(), 3, "the store refuses what is too long for it");
}

#[test]
fn content_type_or_the_end_of_the_body_selects_the_format() {
    use Format::{OpenMetrics, Prometheus};
    let cases = [
        ("text/plain; version=0.0.4; charset=utf-8; escaping=underscores", "a 1\n# EOF\n", Some(Prometheus)),
        ("text/plain;version=1.0.0", "", Some(Prometheus)),
        ("Application/OpenMetrics-text; version=1.0.0", "a 1\n", Some(OpenMetrics)),
        ("", "a 1\n", Some(Prometheus)),
        ("", "a 1\n# EOF\n", Some(OpenMetrics)),
        ("", "# EOF", Some(OpenMetrics)),
        ("text/plain", "a 1\r\n# EOF\r\n", Some(OpenMetrics)),
        ("application/x-www-form-urlencoded", "a 1 # EOF", Some(Prometheus)),
        ("application/json", "a 1\n", None),
    ];
    for (content_type, body, format) in cases {
        assert_eq!(Format::of(content_type, body.as_bytes()), format, "{content_type} {body}");
    }
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', r"\\").replace('\n', r"\n").replace('"', "\\\""))
}

fn is_plain(name: &str, colon: bool) -> bool {
    let of = |c: char| c.is_ascii_alphanumeric() || c == '_' || (colon && c == ':');
    name.chars().all(of) && !name.starts_with(|c: char| c.is_ascii_digit())
}

/// Formats a series as an exporter does: names are quoted only where necessary.
fn written(name: &str, labels: &[(String, String)]) -> String {
    let label = |(name, value): &(String, String)| {
        let name = if is_plain(name, false) { name.clone() } else { quoted(name) };
        format!("{name}={}", quoted(value))
    };
    let labels: Vec<String> = labels.iter().map(label).collect();
    if is_plain(name, true) {
        return if labels.is_empty() { name.to_owned() } else { format!("{name}{{{}}}", labels.join(",")) };
    }
    let inside: Vec<String> = std::iter::once(quoted(name)).chain(labels).collect();
    format!("{{{}}}", inside.join(","))
}

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[a-z_][a-z0-9_]{0,6}",
        1 => "[ -~]{1,8}",
        1 => r#"["\\n\n{}=,# ]{1,6}"#,
        1 => any::<String>().prop_map(|s| s.replace('\r', "")).prop_filter("not empty", |s| !s.is_empty()),
    ]
}

prop_compose! {
    fn any_series()(
        name in any_text(),
        labels in prop::collection::btree_map(any_text(), any_text(), 0..6),
    ) -> NamedSeries {
        (name, labels.into_iter().filter(|(name, _)| name != "__name__").collect())
    }
}

/// A metric name and labels.
type NamedSeries = (String, Vec<(String, String)>);

fn any_samples() -> impl Strategy<Value = Vec<(NamedSeries, f64, i64)>> {
    let times = -62_135_596_800_000_i64..=253_402_300_799_999;
    prop::collection::vec((any_series(), any::<f64>(), times), 1..12)
}

proptest! {
    #[test]
    fn label_sets_and_values_round_trip_to_the_bit(samples in any_samples()) {
        let (mut text, mut openmetrics) = (String::new(), String::new());
        let mut request = Vec::new();
        for ((name, labels), value, at) in &samples {
            let series = written(name, labels);
            text.push_str(&format!("{series} {value:?} {at}\n"));
            let (sign, ms) = (if *at < 0 { "-" } else { "" }, at.unsigned_abs());
            openmetrics.push_str(&format!("{series} {value:e} {sign}{}.{:03}\n", ms / 1_000, ms % 1_000));
            let mut message = Vec::new();
            for (name, value) in std::iter::once(&("__name__".to_owned(), name.clone())).chain(labels) {
                let mut label = Vec::new();
                put_bytes(1, name.as_bytes(), &mut label);
                put_bytes(2, value.as_bytes(), &mut label);
                put_bytes(1, &label, &mut message);
            }
            let mut sample = vec![1 << 3 | 1];
            sample.extend_from_slice(&value.to_le_bytes());
            sample.push(2 << 3);
            put_varint(at.cast_unsigned(), &mut sample);
            put_bytes(2, &sample, &mut message);
            put_bytes(1, &message, &mut request);
        }
        openmetrics.push_str("# EOF\n");
        let text = decoded(text.as_bytes(), Format::Prometheus);
        prop_assert_eq!(&text.refusals, &[]);
        let expected: Vec<u64> = samples.iter().map(|(_, value, _)| value.to_bits()).collect();
        let found: Vec<u64> = text.batch.batch().samples.iter().map(|s| s.value.to_bits()).collect();
        for (found, expected) in found.into_iter().zip(expected) {
            prop_assert!(found == expected || f64::from_bits(expected).is_nan());
        }
        let openmetrics = decoded(openmetrics.as_bytes(), Format::OpenMetrics);
        prop_assert_eq!(rows(&text.batch), rows(&openmetrics.batch));

        let body = snap::raw::Encoder::new().compress_vec(&request).expect("small");
        let mut scratch = Default::default();
        let sent = remote_write::decode(&body, &DecodeLimits::default(), &mut scratch).expect("valid");
        prop_assert_eq!(rows(&text.batch), rows_of(&sent));
    }

    #[test]
    fn line_ends_and_blanks_make_no_difference(samples in any_samples(), seed: u64) {
        let (mut plain, mut spaced) = (String::from("# TYPE a gauge\n"), String::from("\u{feff}#  TYPE \ta  gauge\r\n\r\n"));
        let mut state = seed;
        let mut blanks = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            [" ", "  ", "\t", " \t "][usize::try_from(state >> 62).expect("two bits")]
        };
        for ((name, labels), value, at) in &samples {
            let series = written(name, labels);
            plain.push_str(&format!("{series} {value:?} {at}\n"));
            spaced.push_str(&format!("{}{series}{}{value:?}{}{at}{}\r\n\r\n", blanks(), blanks(), blanks(), blanks()));
        }
        let plain = decoded(plain.as_bytes(), Format::Prometheus);
        let spaced = decoded(spaced.as_bytes(), Format::Prometheus);
        prop_assert_eq!(&spaced.refusals, &[]);
        prop_assert_eq!(rows(&plain.batch), rows(&spaced.batch));
        prop_assert_eq!(plain.batch.batch().metadata, spaced.batch.batch().metadata);
    }

    #[test]
    fn arbitrary_text_bodies_are_decoded_or_refused(
        bytes in prop::collection::vec(any::<u8>(), 1..400),
        pieces in prop::collection::vec(
            prop::sample::select(vec!["up", "{", "}", "a=\"b\"", ",", " ", "1", "\n", "\"", "\\", "# ", "TYPE ", "EOF", "_created", "counter", "é", "\r"]),
            1..60,
        ),
    ) {
        let few = DecodeLimits { series_max: 5, samples_max: 9, metadata_max: 2, exemplars_max: 1, exemplar_labels_max: 2, ..DecodeLimits::default() };
        for format in [Format::Prometheus, Format::OpenMetrics] {
            for body in [&bytes[..], pieces.concat().as_bytes()] {
                let Ok(read) = decode(body, format, NOW, &few) else { continue };
                // One more for the missing end.
                let lines = body.split(|byte| *byte == b'\n').count().saturating_add(1);
                let batch = read.batch.batch();
                prop_assert!(batch.samples.len().saturating_add(read.refused) <= lines);
                prop_assert!(batch.series.len() <= 5 && batch.samples.len() <= 9 && batch.metadata.len() <= 2);
                prop_assert!(batch.exemplars.len() <= 1 && batch.exemplar_labels.len() <= 2);
                prop_assert_eq!(read.refusals.len(), read.refused.min(Translated::REFUSALS_LISTED_MAX).min(read.refusals.len()));
                prop_assert!(read.refusals.iter().all(|refusal| refusal.reason.starts_with("line ") && refusal.series.len() <= 200));
            }
        }
    }
}
