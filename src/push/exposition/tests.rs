//! Bodies of pushes, the reasons of refusals, and the stored text.

use proptest::prelude::*;

use super::*;
use crate::ingest::{put_bytes, put_varint};

fn group() -> GroupingLabels {
    GroupingLabels::parse("job/batch/instance/a").expect("valid")
}

fn read(body: &str) -> Result<Exposition, PushBodyError> {
    let format = PushFormat::Text(Format::Prometheus);
    Exposition::read(body.as_bytes(), format, &group(), &DecodeLimits::default())
}

const HISTOGRAM: &str = "# HELP h A \"text\".\n# TYPE h histogram\nh_bucket{le=\"1\"} 1\nh_bucket{le=\"+Inf\"} 2\nh_sum 3\nh_count 2\n";

#[test]
fn labels_of_the_group_replace_those_of_the_body() {
    let found = read("m{job=\"x\",instance=\"y\",a=\"b\"} 1\n").expect("valid");
    assert_eq!(found, read("m{a=\"b\"} 1\n").expect("valid"));
}

#[test]
fn a_body_with_times_duplicates_or_invalid_lines_is_refused_as_a_whole() {
    assert!(matches!(read("m 1 1000\n"), Err(PushBodyError::Timestamp(_))));
    assert!(matches!(read("m 1\nn 1\nm 2\n"), Err(PushBodyError::Twice(_))));
    assert!(matches!(read("m 1\nm 2\n"), Err(PushBodyError::Twice(_))));
    assert!(matches!(read("m{job=\"x\"} 1\nn 1\nm{job=\"y\"} 2\n"), Err(PushBodyError::Twice(_))));
    assert!(matches!(read("m 1\nnonsense\n"), Err(PushBodyError::Invalid(_))));
    assert_eq!(read("\n"), Ok(Exposition::default()));
}

#[test]
fn a_histogram_is_one_family_and_is_replaced_as_a_whole() {
    let before = read(&format!("{HISTOGRAM}m 1\n")).expect("valid");
    assert_eq!(before.series_len(), 5);
    let after = before.merged(read("# TYPE h histogram\nh_sum 1\n").expect("valid"));
    assert_eq!(after.series_len(), 2, "the buckets are gone, m is kept");
}

#[test]
fn series_that_are_gone_get_a_staleness_marker() {
    let before = read("a 1\nb{x=\"1\"} 1\nb{x=\"2\"} 1\n").expect("valid");
    let after = read("b{x=\"1\"} 2\n").expect("valid");
    let mut batch = BatchBuilder::default();
    before.write_stale(&after, Timestamp::from_s(1), &mut batch);
    assert_eq!(batch.len(), 2);
    assert!(batch.batch().samples.iter().all(|sample| crate::model::is_stale(sample.value)));
}

proptest! {
    #[test]
    fn a_stored_text_reads_back_the_same(
        series in prop::collection::btree_map(("[a-z.]{1,4}", "[a-c]", "\\PC{0,6}|[\"\\\\\n]{0,3}"), any::<f64>(), 0..6),
        help in "\\PC{0,8}|[\\\\\n]{0,3}",
    ) {
        let mut found = Exposition::default();
        for ((name, label, value), number) in series {
            let number = if number.is_nan() { f64::INFINITY } else { number };
            let labels = if value.is_empty() { Vec::new() } else { vec![(label, value)] };
            let _ = found.insert(name, labels, number);
        }
        if let Some(family) = found.families.values_mut().next() {
            family.kind = Some(MetricKind::Gauge);
            family.help = help.trim_ascii_start().to_owned();
        }
        let text = found.to_text();
        let back = Exposition::of_stored(text.as_bytes(), &group());
        prop_assert_eq!(back, Ok(found), "{}", text);
    }

    #[test]
    fn no_body_panics(body in "[a-z{}=\",0-9\n# ]{0,80}|\\PC{0,40}") {
        let _ = read(&body);
    }

    #[test]
    fn no_protobuf_body_panics(body in prop::collection::vec(any::<u8>(), 0..80)) {
        let _ = read_messages(&body);
    }

    /// Otherwise a group that was stored could not be read again.
    #[test]
    fn whatever_is_read_from_messages_reads_back_from_its_stored_text(
        families in prop::collection::vec(
            ("\\PC{1,4}|[ \t\r\n\"\\\\=,{}#]{1,4}", "\\PC{0,4}|[\r\n\\\\]{0,3}", 0..6_u64, "[ a\t]{0,3}"),
            0..4,
        ),
        label in "\\PC{1,4}|[ \r\n\"=,{}#]{1,3}|quantile",
        text in "\\PC{0,4}|[\r\n\"\\\\]{0,3}",
        value in any::<f64>(),
    ) {
        let mut body = Vec::new();
        for (name, help, kind, unit) in &families {
            let value = |field: u64| PushedMessage::default().double(field, value);
            let metric = match kind {
                0 => metric().message(3, &value(1)),
                1 => metric().message(2, &value(1)),
                2 => metric().message(4, &value(2).message(3, &value(2).double(1, 0.5))),
                3 => metric().message(5, &value(1)),
                _ => metric().message(7, &value(2).message(3, &PushedMessage::default().double(2, 2.0))),
            };
            let metric = metric.label(&label, &text);
            let family = PushedMessage::default().text(1, name).text(2, help).varint(3, *kind).text(5, unit);
            family.message(4, &metric).delimited(&mut body);
        }
        if let Ok(found) = read_messages(&body) {
            let stored = found.to_text();
            let back = Exposition::of_stored(stored.as_bytes(), &group());
            let content = |metrics: &Exposition| -> Vec<String> {
                let all = metrics.series();
                all.map(|one| format!("{:?} {:?} {} {:?}", one.name, one.labels, one.value, one.kind)).collect()
            };
            prop_assert_eq!(back.as_ref().map(content), Ok(content(&found)), "{}", stored);
        }
    }
}

/// A message that is being encoded.
#[derive(Clone, Default)]
struct PushedMessage(Vec<u8>);

impl PushedMessage {
    fn text(mut self, field: u64, text: &str) -> PushedMessage {
        put_bytes(field, text.as_bytes(), &mut self.0);
        self
    }

    fn message(mut self, field: u64, inner: &PushedMessage) -> PushedMessage {
        put_bytes(field, &inner.0, &mut self.0);
        self
    }

    fn varint(mut self, field: u64, value: u64) -> PushedMessage {
        put_varint(field << 3, &mut self.0);
        put_varint(value, &mut self.0);
        self
    }

    fn double(mut self, field: u64, value: f64) -> PushedMessage {
        put_varint(field << 3 | 1, &mut self.0);
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    fn label(self, name: &str, value: &str) -> PushedMessage {
        self.message(1, &PushedMessage::default().text(1, name).text(2, value))
    }

    fn delimited(&self, out: &mut Vec<u8>) {
        put_varint(self.0.len() as u64, out);
        out.extend_from_slice(&self.0);
    }
}

fn metric() -> PushedMessage {
    PushedMessage::default().label("a", "b \"c\"")
}

fn family(name: &str, kind: u64, metrics: &[PushedMessage]) -> Vec<u8> {
    let header = PushedMessage::default().text(1, name).text(2, "A \\ text.").varint(3, kind);
    let mut out = Vec::new();
    metrics.iter().fold(header, |family, metric| family.message(4, metric)).delimited(&mut out);
    out
}

fn read_messages(body: &[u8]) -> Result<Exposition, PushBodyError> {
    Exposition::read(body, PushFormat::Protobuf, &group(), &DecodeLimits::default())
}

fn histogram() -> PushedMessage {
    let time = PushedMessage::default().varint(1, 1_700_000_000);
    let exemplar = PushedMessage::default().label("trace", "x").double(2, 0.5);
    let bucket = |bound: f64, count: u64| PushedMessage::default().varint(1, count).double(2, bound);
    PushedMessage::default()
        .varint(1, 4)
        .double(2, 55.5)
        .message(3, &bucket(1.0, 1).message(3, &exemplar))
        .message(3, &bucket(2.5, 2))
        .message(3, &bucket(1e6, 3))
        .message(15, &time)
}

/// The text is that of Go's client for the same metrics.
#[test]
fn messages_are_read_as_the_text_of_the_same_metrics() {
    let value = |number: f64| PushedMessage::default().double(1, number);
    let quantile = PushedMessage::default().double(1, 1.0).double(2, 7.0);
    let summary = PushedMessage::default().varint(1, 3).double(2, 9.5).message(3, &quantile);
    let counter = value(3.0).message(3, &PushedMessage::default().varint(1, 1_700_000_000));
    let body = [
        family("c_total", 0, &[metric().message(3, &counter)]),
        family("g", 1, &[metric().message(2, &value(f64::NEG_INFINITY)).label("job", "other")]),
        family("s", 2, &[metric().message(4, &summary)]),
        family("u", 3, &[metric().message(5, &value(1.5)).label("empty", "")]),
        family("h", 4, &[metric().message(7, &histogram())]),
        family("none", 1, &[]),
    ];
    let text = r#"
# HELP c_total A \\ text.
# TYPE c_total counter
c_total{a="b \"c\""} 3
# HELP g A \\ text.
# TYPE g gauge
g{a="b \"c\"",job="other"} -Inf
# HELP s A \\ text.
# TYPE s summary
s{a="b \"c\"",quantile="1"} 7
s_sum{a="b \"c\""} 9.5
s_count{a="b \"c\""} 3
# HELP u A \\ text.
# TYPE u untyped
u{a="b \"c\"",empty=""} 1.5
# HELP h A \\ text.
# TYPE h histogram
h_bucket{a="b \"c\"",le="1"} 1
h_bucket{a="b \"c\"",le="2.5"} 2
h_bucket{a="b \"c\"",le="1e+06"} 3
h_bucket{a="b \"c\"",le="+Inf"} 4
h_sum{a="b \"c\""} 55.5
h_count{a="b \"c\""} 4
# HELP none A \\ text.
# TYPE none gauge
"#;
    assert_eq!(read_messages(&body.concat()), read(text));
    assert_eq!(read_messages(b""), Ok(Exposition::default()));
}

#[test]
fn messages_that_cannot_be_a_group_are_refused_with_the_reason() {
    let value = PushedMessage::default().double(1, 1.0);
    let gauge = |metric: PushedMessage| family("g", 1, &[metric.message(2, &value)]);
    let native = histogram().varint(5, 6).double(6, 1e-9).varint(7, 4);
    let unit = PushedMessage::default().text(1, "g").varint(3, 1).text(5, "a\nb");
    let mut bad_unit = Vec::new();
    unit.delimited(&mut bad_unit);
    let many = (0..LABELS_PARSED_MAX)
        .fold(PushedMessage::default(), |metric, n| metric.label(&format!("l{n}"), "x"));
    let quantiles = PushedMessage::default().message(3, &PushedMessage::default().double(1, 0.5));
    let cases = [
        (gauge(metric().varint(6, 1_000)), "no timestamp"),
        ([gauge(metric()), gauge(metric())].concat(), "the metric family g occurs twice"),
        (family("g", 1, &[metric().message(2, &value), metric().message(2, &value)]), "occurs twice"),
        (family("h", 4, &[metric().message(7, &native)]), "is a native histogram; groups of pushes"),
        (
            family("s", 2, &[metric().label("quantile", "x").message(4, &quantiles)]),
            "\"quantile\" occurs twice",
        ),
        (gauge(many), "1024 labels"),
        (gauge(metric().label("a", "c")), "\"a\" occurs twice"),
        (family("g", 0, &[metric().message(2, &value)]), "type counter has no value of this type: {__name__"),
        (family("g", 9, &[]), "metric type 9 does not exist"),
        (bad_unit, "line end"),
        (b"\x05\x0a".to_vec(), "protobuf"),
    ];
    for (body, reason) in cases {
        let error = read_messages(&body).map(|found| found.series_len()).expect_err(reason).to_string();
        assert!(error.contains(reason), "{error} / {reason}");
    }
}

/// A staleness marker is a NaN with its own bits, which the text format cannot state.
#[test]
fn a_staleness_marker_in_a_message_is_an_ordinary_nan() {
    let value = PushedMessage::default().double(1, stale_nan());
    let found = read_messages(&family("g", 1, &[metric().message(2, &value)])).expect("valid");
    assert!(found.series().all(|one| one.value.is_nan() && !crate::model::is_stale(one.value)));
}
