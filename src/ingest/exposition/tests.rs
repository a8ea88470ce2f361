//! Decodes bodies of an independent encoder, golden bytes, and malformed bodies.

#![expect(clippy::arithmetic_side_effects, reason = "a test that overflows fails")]

use proptest::prelude::*;

use super::*;
use crate::ingest::protobuf::{put_bytes, put_varint};
use crate::model::HistogramCounts;

const NOW: Timestamp = Timestamp::from_ms(1_700_000_000_000);

/// A message that is being encoded.
#[derive(Clone, Default)]
struct Message(Vec<u8>);

impl Message {
    fn text(mut self, field: u64, text: &str) -> Message {
        put_bytes(field, text.as_bytes(), &mut self.0);
        self
    }

    fn message(mut self, field: u64, inner: &Message) -> Message {
        put_bytes(field, &inner.0, &mut self.0);
        self
    }

    fn varint(mut self, field: u64, value: u64) -> Message {
        put_varint(field << 3, &mut self.0);
        put_varint(value, &mut self.0);
        self
    }

    fn double(mut self, field: u64, value: f64) -> Message {
        put_varint(field << 3 | 1, &mut self.0);
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    fn label(self, field: u64, name: &str, value: &str) -> Message {
        self.message(field, &Message::default().text(1, name).text(2, value))
    }

    fn time(self, field: u64, seconds: u64, nanos: u64) -> Message {
        self.message(field, &Message::default().varint(1, seconds).varint(2, nanos))
    }

    fn zigzag(self, field: u64, value: i64) -> Message {
        self.varint(field, (value << 1 ^ value >> 63).cast_unsigned())
    }

    fn span(self, field: u64, offset: i64, length: u64) -> Message {
        self.message(field, &Message::default().zigzag(1, offset).varint(2, length))
    }
}

fn family(name: &str, kind: u64, metrics: &[Message]) -> Message {
    let header = Message::default().text(1, name).text(2, "Help.").varint(3, kind);
    metrics.iter().fold(header, |family, metric| family.message(4, metric))
}

/// Delimits messages.
fn body(families: &[Message]) -> Vec<u8> {
    let mut out = Vec::new();
    for family in families {
        put_varint(family.0.len() as u64, &mut out);
        out.extend_from_slice(&family.0);
    }
    out
}

fn options(classic: bool) -> ExpositionOptions {
    ExpositionOptions { default_at: NOW, classic, float_labels: FloatLabels::OpenMetrics }
}

fn decoded(body: &[u8], classic: bool) -> Translated {
    let options = options(classic);
    decode(body, options, &DecodeLimits::default()).expect("decoded")
}

/// Formats a batch: series with samples, histograms, exemplars, starts, and metadata.
fn lines(out: &Translated) -> Vec<String> {
    let batch = out.batch.batch();
    let mut lines = Vec::new();
    for (place, series) in batch.series.iter().enumerate() {
        let mut pairs = Vec::new();
        (batch.parse_labels)(series.raw_labels, &mut pairs).expect("labels");
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("UTF-8");
        let labels: Vec<String> =
            pairs.iter().map(|(name, value)| format!("{}={}", text(name), text(value))).collect();
        let mut line = labels.join(",");
        for sample in &batch.samples[series.samples.clone()] {
            line += &format!(" {}@{}", sample.value, sample.at.ms_since(NOW));
        }
        for one in batch.histograms.iter().filter(|one| one.series == place) {
            let value = one.value.as_ref().expect("valid");
            line += &format!(" h{:?}/{}@{}", value.counts(), value.sum(), one.at.ms_since(NOW));
        }
        for one in batch.exemplars.iter().filter(|one| one.series == place) {
            let labels = &batch.exemplar_labels[one.labels.clone()];
            line += &format!(" #{labels:?}={}@{}", one.value, one.at.ms_since(NOW));
        }
        for one in batch.starts.iter().filter(|one| one.series == place) {
            line += &format!(" ^{}", one.start.as_ms());
        }
        lines.push(line);
    }
    lines.extend(
        batch
            .metadata
            .iter()
            .map(|one| format!("{} {} {:?} {:?}", one.name, one.kind.as_str(), one.help, one.unit)),
    );
    lines
}

fn metric() -> Message {
    Message::default().label(1, "a", "b")
}

#[test]
fn the_golden_bytes_of_a_counter_are_decoded() {
    // Written by hand after metrics.proto: name "c_total", type 0, one metric {a="b"} 3 at 5 ms.
    let bytes = [
        &b"\x27\x0a\x07c_total\x12\x01h\x18\x00"[..],
        &b"\x22\x17\x0a\x06\x0a\x01a\x12\x01b\x1a\x09\x09\x00\x00\x00\x00\x00\x00\x08\x40\x30\x05\x2a\x00"[..],
    ]
    .concat();
    let out = decoded(&bytes, false);
    let at = 5 - NOW.as_ms();
    assert_eq!(
        lines(&out),
        [format!("__name__=c_total,a=b 3@{at}"), "c_total counter \"h\" \"\"".to_owned()]
    );
}

#[test]
fn every_type_becomes_the_series_that_prometheus_makes_of_it() {
    let exemplar = Message::default().label(1, "trace", "x").double(2, 0.5).time(3, 1_700_000_000, 7_999_999);
    let counter = Message::default().double(1, 3.0).message(2, &exemplar).time(3, 9, 1_000_000);
    let value = |value: f64| Message::default().double(1, value);
    let summary = Message::default()
        .varint(1, 10)
        .double(2, 4.5)
        .message(3, &Message::default().double(1, 0.5).double(2, 0.2))
        .message(3, &Message::default().double(1, 1.0).double(2, f64::NAN))
        .time(4, 8, 0);
    let bucket = |bound: f64, count| Message::default().varint(1, count).double(2, bound);
    let classic = Message::default().varint(1, 7).double(2, 1.5).message(3, &bucket(1e6, 5));
    let families = [
        family("c_total", 0, &[metric().message(3, &counter)]).text(5, "s"),
        family(
            "g",
            1,
            &[metric().message(2, &value(-1.0)).varint(6, NOW.plus_ms(5).as_ms().cast_unsigned())],
        ),
        family("s", 2, &[metric().message(4, &summary)]),
        family("u", 3, &[Message::default().message(5, &value(2.0))]),
        family("h", 4, &[metric().message(7, &classic)]),
    ];
    let expected = [
        "__name__=c_total,a=b 3@0 #[(\"trace\", \"x\")]=0.5@7 ^9001",
        "__name__=g,a=b -1@5",
        "__name__=s_count,a=b 10@0 ^8000",
        "__name__=s_sum,a=b 4.5@0 ^8000",
        "__name__=s,a=b,quantile=0.5 0.2@0 ^8000",
        "__name__=s,a=b,quantile=1.0 NaN@0 ^8000",
        "__name__=u 2@0",
        "__name__=h_count,a=b 7@0",
        "__name__=h_sum,a=b 1.5@0",
        "__name__=h_bucket,a=b,le=1e+06 5@0",
        "__name__=h_bucket,a=b,le=+Inf 7@0",
        "c_total counter \"Help.\" \"s\"",
        "g gauge \"Help.\" \"\"",
        "s summary \"Help.\" \"\"",
        "u unknown \"Help.\" \"\"",
        "h histogram \"Help.\" \"\"",
    ];
    assert_eq!(lines(&decoded(&body(&families), false)), expected);
}

/// A histogram with both kinds of buckets.
fn both() -> Message {
    let exemplar = Message::default().label(1, "trace", "x").double(2, 0.5).time(3, 1_700_000_000, 0);
    let bucket = Message::default().varint(1, 3).double(2, 1.0).message(3, &exemplar);
    Message::default()
        .varint(1, 6)
        .double(2, 9.0)
        .message(3, &bucket)
        .zigzag(5, 3)
        .double(6, 0.001)
        .varint(7, 1)
        .span(12, -2, 2)
        .zigzag(13, 2)
        .zigzag(13, 1)
}

#[test]
fn a_native_histogram_hides_its_classic_buckets_unless_both_are_wanted() {
    let sent = body(&[family("h", 4, &[metric().message(7, &both())])]);
    let native = "__name__=h,a=b hInteger { count: 6, zero: 1, buckets: [2, 3] }/9@0 \
                  #[(\"trace\", \"x\")]=0.5@0";
    assert_eq!(lines(&decoded(&sent, false)), [native, "h histogram \"Help.\" \"\""]);
    let both = lines(&decoded(&sent, true));
    assert_eq!(both.len(), 6, "{both:?}");
    assert!(both[2].starts_with("__name__=h_bucket,a=b,le=1.0 3@0 #") && both[4] == native, "{both:?}");
}

#[test]
fn float_and_empty_native_histograms_are_decoded() {
    let mut packed = Message::default().double(4, 2.5).double(2, 1.0).zigzag(5, -1).span(12, 0, 2);
    let counts: Vec<u8> = [1.0_f64, 1.5].iter().flat_map(|count| count.to_le_bytes()).collect();
    put_bytes(14, &counts, &mut packed.0);
    let empty = Message::default().span(12, 0, 0);
    let out = decoded(
        &body(&[
            family("f", 5, &[metric().message(7, &packed)]),
            family("e", 4, &[metric().message(7, &empty)]),
        ]),
        false,
    );
    let batch = out.batch.batch();
    let values: Vec<_> = batch.histograms.iter().map(|one| one.value.clone().expect("valid")).collect();
    assert_eq!(
        *values[0].counts(),
        HistogramCounts::Float { count: 2.5, zero: 0.0, buckets: vec![1.0, 1.5] }
    );
    assert_eq!(values[0].reset(), crate::model::CounterReset::Gauge);
    assert_eq!(values[1].count().to_bits(), 0.0_f64.to_bits());
    assert_eq!(values[1].shape().buckets(), 0);
}

#[test]
fn an_invalid_metric_is_refused_alone_with_its_series() {
    let good = metric().message(2, &Message::default().double(1, 1.0));
    let twice = good.clone().label(1, "a", "c");
    let named = good.clone().label(1, "__name__", "c");
    let wrong = Message::default().zigzag(5, 99).span(12, 0, 1).zigzag(13, 1).varint(1, 1);
    let out = decoded(
        &body(&[
            family("g", 1, &[good.clone(), twice, named, metric()]),
            family("h", 4, &[metric().message(7, &wrong)]),
            family("x", 77, std::slice::from_ref(&good)),
            family("", 1, &[good]),
        ]),
        false,
    );
    let codes: Vec<&str> = out.refusals.iter().map(|refusal| refusal.code).collect();
    let expected = [
        "invalid_label",
        "invalid_label",
        "missing_value",
        "histogram_schema",
        "invalid_type",
        "missing_metric_name",
    ];
    assert_eq!((codes.as_slice(), out.refused), (&expected[..], 6));
    assert_eq!(out.refusals[2].series, r#"{__name__="g", a="b"}"#);
    assert_eq!(out.batch.len(), 1);
}

#[test]
fn a_truncated_body_is_refused_whole() {
    let sent = body(&[family("h", 4, &[metric().message(7, &both())])]);
    let options = options(true);
    for length in 1..sent.len() {
        let found = decode(&sent[..length], options, &DecodeLimits::default());
        assert!(matches!(found, Err(DecodeError::Wire(_))), "{length}: {found:?}");
    }
    assert!(matches!(decode(&[], options, &DecodeLimits::default()), Err(DecodeError::Empty)));
}

#[test]
fn bombs_are_refused_at_the_limit() {
    let options = options(true);
    let limits = DecodeLimits {
        series_max: 50,
        samples_max: 1_000,
        metadata_max: 20,
        histograms_max: 20,
        buckets_max: 500,
        exemplars_max: 20,
        exemplar_labels_max: 20,
        label_bytes_max: 100_000,
        ..DecodeLimits::default()
    };
    let what = |families: &[Message]| match decode(&body(families), options, &limits) {
        Err(DecodeError::TooLarge { what, .. }) => what,
        other => panic!("{other:?}"),
    };
    let gauge = Message::default().message(2, &Message::default());
    let histogram = |inner: &Message| family("h", 4, &[Message::default().message(7, inner)]);
    let many = |inner: Message, field, count| {
        (0..count).fold(Message::default(), |all, _| all.message(field, &inner))
    };
    assert_eq!(what(&[family("g", 1, &vec![gauge.clone(); 100])]), "series");
    assert_eq!(what(&vec![family("g", 1, &[]); 100]), "metric descriptions");
    assert_eq!(what(&[histogram(&many(Message::default(), 3, 100))]), "series");
    assert_eq!(what(&[histogram(&many(Message::default(), 16, 100))]), "exemplars");
    assert_eq!(what(&[histogram(&many(Message::default(), 12, 600))]), "histogram buckets");
    let long = "x".repeat(20_000);
    let repeated = Message::default().label(1, "a", &long).message(7, &many(Message::default(), 3, 20));
    assert_eq!(what(&[family("h", 4, &[repeated])]), "bytes of labels");
    let labels = (0..2_000).fold(Message::default(), |all, _| all.message(1, &Message::default()));
    assert_eq!(what(&[family("g", 1, &[labels.message(2, &Message::default())])]), "labels of a metric");
    let empty = Message::default().span(12, 0, 0);
    let natives = vec![Message::default().message(7, &empty); 30];
    assert_eq!(what(&[family("h", 4, &natives)]), "histograms");
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic_the_exposition(bytes in prop::collection::vec(any::<u8>(), 0..300), classic: bool) {
        let options = options(classic);
        let _ = decode(&bytes, options, &DecodeLimits::default());
    }

    #[test]
    fn damaged_expositions_never_panic(at in 0_usize..120, byte: u8, classic: bool) {
        let mut sent = body(&[family("h", 4, &[metric().message(7, &both())])]);
        let place = at % sent.len();
        sent[place] = byte;
        let options = options(classic);
        let _ = decode(&sent, options, &DecodeLimits::default());
    }

    #[test]
    fn gauges_round_trip(values in prop::collection::vec((any::<u64>(), "[a-z]{1,5}", ".{0,8}", any::<i64>()), 1..20)) {
        let metrics: Vec<Message> = values.iter().map(|(bits, name, value, at)| {
            let gauge = Message::default().double(1, f64::from_bits(*bits));
            Message::default().label(1, name, value).message(2, &gauge).varint(6, at.cast_unsigned())
        }).collect();
        let out = decoded(&body(&[family("g", 1, &metrics)]), false);
        let batch = out.batch.batch();
        prop_assert_eq!(batch.series.len(), values.len());
        for (sample, (bits, _, _, at)) in batch.samples.iter().zip(&values) {
            prop_assert_eq!((sample.value.to_bits(), sample.at.as_ms()), (*bits, *at));
        }
    }
}
