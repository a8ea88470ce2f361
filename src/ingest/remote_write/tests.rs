//! Remote write against an encoder of our own: what was written is read, and nothing that is sent makes it panic.

use proptest::prelude::*;

use super::*;
use crate::ingest::protobuf::{put_bytes as nested, put_varint as varint};
use crate::model::HistogramCounts;

/// A `TimeSeries` as a test writes it down, field by field, in any order.
#[derive(Clone, Debug)]
enum Part {
    Label(Vec<u8>, Vec<u8>),
    Sample(f64, i64),
    /// Labels, value, time.
    Exemplar(Vec<(&'static str, &'static str)>, f64, i64),
    /// An empty one at this time.
    Histogram(i64),
    Unknown,
}

fn encode_part(part: &Part, out: &mut Vec<u8>) {
    let mut message = Vec::new();
    match part {
        Part::Label(name, value) => {
            nested(1, name, &mut message);
            nested(2, value, &mut message);
            nested(1, &message, out);
        }
        Part::Sample(value, at) => {
            message.push(1 << 3 | 1);
            message.extend_from_slice(&value.to_le_bytes());
            // Zero is the default, which senders leave out.
            if *at != 0 {
                message.push(2 << 3);
                varint(at.cast_unsigned(), &mut message);
            }
            nested(2, &message, out);
        }
        Part::Exemplar(labels, value, at) => {
            for (name, value) in labels {
                let mut label = Vec::new();
                nested(1, name.as_bytes(), &mut label);
                nested(2, value.as_bytes(), &mut label);
                nested(1, &label, &mut message);
            }
            message.push(2 << 3 | 1);
            message.extend_from_slice(&value.to_le_bytes());
            message.push(3 << 3);
            varint(at.cast_unsigned(), &mut message);
            nested(3, &message, out);
        }
        Part::Histogram(at) => {
            message.push(15 << 3);
            varint(at.cast_unsigned(), &mut message);
            nested(4, &message, out);
        }
        Part::Unknown => out.extend_from_slice(&[15 << 3, 7]),
    }
}

fn encode(series: &[Vec<Part>]) -> Vec<u8> {
    let mut request = Vec::new();
    for parts in series {
        let mut message = Vec::new();
        parts.iter().for_each(|part| encode_part(part, &mut message));
        nested(1, &message, &mut request);
    }
    request
}

fn compress(bytes: &[u8]) -> Vec<u8> {
    snap::raw::Encoder::new().compress_vec(bytes).expect("compresses")
}

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;
/// Label pairs, and (time, value bits) of each sample.
type Read = Vec<(Pairs, Vec<(i64, u64)>)>;

/// What a store would see.
fn read(request: &[u8]) -> Result<Read, DecodeError> {
    let mut scratch = Scratch::default();
    let batch = decode(&compress(request), &Limits::default(), &mut scratch)?;
    let series = batch.series.iter().map(|series| {
        let mut pairs = Vec::new();
        (batch.parse_labels)(series.raw_labels, &mut pairs).expect("labels of the test are valid");
        let pairs = pairs.into_iter().map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
        let samples = &batch.samples[series.samples.clone()];
        (pairs, samples.iter().map(|sample| (sample.at.as_ms(), sample.value.to_bits())).collect())
    });
    Ok(series.collect())
}

/// The same, straight from what the test wrote: the oracle.
fn expected(series: &[Vec<Part>]) -> Read {
    let mut found = Vec::new();
    for parts in series {
        let mut labels = Pairs::new();
        let (mut samples, mut has_rare) = (Vec::new(), false);
        for part in parts {
            match part {
                Part::Label(name, value) => labels.push((name.clone(), value.clone())),
                Part::Sample(value, at) => samples.push((*at, value.to_bits())),
                Part::Exemplar(..) | Part::Histogram(_) => has_rare = true,
                Part::Unknown => {}
            }
        }
        if !samples.is_empty() || has_rare {
            found.push((labels, samples));
        }
    }
    found
}

fn label(name: &str, value: &str) -> Part {
    Part::Label(name.into(), value.into())
}

#[test]
fn a_request_is_read_byte_by_byte() {
    #[rustfmt::skip]
    let request = [
        0x0a, 0x1d, // series, 29 bytes
        0x0a, 0x0e, 0x0a, 8, b'_', b'_', b'n', b'a', b'm', b'e', b'_', b'_', 0x12, 2, b'u', b'p', // label
        0x12, 0x0b, 0x09, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f, 0x10, 0x05, // sample 1.0 at 5 ms
        0x1a, 0x0d, 0x08, 1, 0x12, 2, b'u', b'p', 0x22, 1, b'h', 0x2a, 2, b'm', b's', // metadata
    ];
    let mut scratch = Scratch::default();
    let batch = decode(&compress(&request), &Limits::default(), &mut scratch).expect("valid");
    assert_eq!((batch.encoding, batch.series.len()), (1, 1));
    assert_eq!(batch.series[0].raw_labels, &request[2..18]);
    assert_eq!(batch.samples, [Sample { at: Timestamp::from_ms(5), value: 1.0 }]);
    let metadata = MetricMetadata { name: "up", kind: MetricKind::Counter, help: "h", unit: "ms" };
    assert_eq!(batch.metadata, [metadata]);
}

#[test]
fn a_run_of_labels_is_known_by_the_same_bytes_wherever_it_stands() {
    let labels = [label("__name__", "up"), label("job", "a")];
    let sample = |at| Part::Sample(1.0, at);
    let before = vec![labels[0].clone(), labels[1].clone(), sample(1)];
    let after = vec![sample(2), Part::Unknown, labels[0].clone(), labels[1].clone()];
    let mut scratch = Scratch::default();
    let batch =
        decode(&compress(&encode(&[before, after])), &Limits::default(), &mut scratch).expect("valid");
    assert_eq!(batch.series[0].raw_labels, batch.series[1].raw_labels);
}

#[test]
fn labels_with_samples_between_them_are_all_read() {
    let series = vec![vec![
        label("b", "2"),
        Part::Sample(1.0, 1),
        label("a", "1"),
        Part::Histogram(1),
        label("c", ""),
    ]];
    assert_eq!(read(&encode(&series)), Ok(expected(&series)));
}

#[test]
fn a_stale_marker_and_every_other_nan_keep_their_bits() {
    for bits in [crate::model::STALE_NAN_BITS, 0x7ff8_0000_0000_0001, 0xfff8_0000_0000_0000] {
        let series = vec![vec![label("__name__", "up"), Part::Sample(f64::from_bits(bits), -1)]];
        assert_eq!(read(&encode(&series)).expect("valid")[0].1, [(-1, bits)]);
    }
}

#[test]
fn exemplars_come_with_the_place_of_their_series() {
    let series = [
        vec![label("__name__", "plain"), Part::Sample(1.0, 1)],
        vec![label("__name__", "nothing")],
        vec![label("__name__", "traced"), Part::Exemplar(vec![("trace_id", "ab"), ("b", "")], 0.5, -7)],
    ];
    let mut scratch = Scratch::default();
    let batch = decode(&compress(&encode(&series)), &Limits::default(), &mut scratch).expect("valid");
    assert_eq!((batch.series.len(), batch.samples.len(), batch.histograms.len()), (2, 1, 0));
    let exemplar = &batch.exemplars[0];
    assert_eq!((exemplar.series, exemplar.value, exemplar.at), (1, 0.5, Timestamp::from_ms(-7)));
    assert_eq!(batch.exemplar_labels[exemplar.labels.clone()], [("trace_id", "ab"), ("b", "")]);
}

/// One field of a histogram: number, wire type, payload.
fn number(field: u64, value: u64, out: &mut Vec<u8>) {
    varint(field << 3, out);
    varint(value, out);
}

fn double(field: u64, value: f64, out: &mut Vec<u8>) {
    varint(field << 3 | 1, out);
    out.extend_from_slice(&value.to_le_bytes());
}

fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63).cast_unsigned()
}

fn spans(field: u64, spans: &[(i64, u64)], out: &mut Vec<u8>) {
    for (offset, length) in spans {
        let mut span = Vec::new();
        number(1, zigzag(*offset), &mut span);
        number(2, *length, &mut span);
        nested(field, &span, out);
    }
}

fn deltas(field: u64, packed: bool, deltas: &[i64], out: &mut Vec<u8>) {
    let mut bytes = Vec::new();
    for delta in deltas {
        match packed {
            true => varint(zigzag(*delta), &mut bytes),
            false => number(field, zigzag(*delta), &mut bytes),
        }
    }
    if packed { nested(field, &bytes, out) } else { out.extend(bytes) }
}

fn doubles(field: u64, packed: bool, values: &[f64], out: &mut Vec<u8>) {
    let mut bytes = Vec::new();
    for value in values {
        match packed {
            true => bytes.extend_from_slice(&value.to_le_bytes()),
            false => double(field, *value, &mut bytes),
        }
    }
    if packed { nested(field, &bytes, out) } else { out.extend(bytes) }
}

fn histogram_of(message: &[u8]) -> crate::model::HistogramSample {
    let (mut series, mut request) = (Vec::new(), Vec::new());
    encode_part(&label("__name__", "native"), &mut series);
    nested(4, message, &mut series);
    nested(1, &series, &mut request);
    let mut scratch = Scratch::default();
    let mut batch = decode(&compress(&request), &Limits::default(), &mut scratch).expect("valid");
    batch.histograms.pop().expect("one")
}

#[test]
fn a_histogram_of_integers_is_read_whole_packed_or_not() {
    for packed in [true, false] {
        let mut message = Vec::new();
        number(1, 16, &mut message);
        double(3, 2.5, &mut message);
        number(4, zigzag(-1), &mut message);
        double(5, 0.001, &mut message);
        number(6, 2, &mut message);
        spans(8, &[(3, 1)], &mut message);
        deltas(9, packed, &[4], &mut message);
        spans(11, &[(-2, 2), (5, 1)], &mut message);
        deltas(12, packed, &[3, 2, -3], &mut message);
        number(14, 3, &mut message);
        number(15, 77, &mut message);
        let sample = histogram_of(&message);
        let histogram = sample.value.expect("valid");
        assert_eq!((sample.series, sample.at), (0, Timestamp::from_ms(77)));
        assert_eq!((histogram.sum(), histogram.reset() as u8), (2.5, 3));
        let shape = histogram.shape();
        assert_eq!((shape.schema(), shape.zero_threshold()), (-1, 0.001));
        assert_eq!((shape.positive().len(), shape.negative().len()), (2, 1));
        assert_eq!((shape.positive()[0].offset, shape.positive()[1].length), (-2, 1));
        let HistogramCounts::Integer { count, zero, buckets } = histogram.counts() else { panic!("floats") };
        assert_eq!((*count, *zero, buckets.as_slice()), (16, 2, &[3, 5, 2, 4][..]));
    }
}

#[test]
fn a_histogram_of_floats_and_one_with_bounds_of_its_own_are_read_whole() {
    for packed in [true, false] {
        let mut message = Vec::new();
        double(2, 3.5, &mut message);
        double(7, 0.5, &mut message);
        spans(8, &[(0, 1)], &mut message);
        doubles(10, packed, &[1.0], &mut message);
        spans(11, &[(0, 2)], &mut message);
        doubles(13, packed, &[0.25, 1.75], &mut message);
        let histogram = histogram_of(&message).value.expect("valid");
        let HistogramCounts::Float { count, zero, buckets } = histogram.counts() else { panic!("integers") };
        assert_eq!((*count, *zero, buckets.as_slice()), (3.5, 0.5, &[0.25, 1.75, 1.0][..]));
        let mut message = Vec::new();
        number(1, 3, &mut message);
        number(4, zigzag(-53), &mut message);
        spans(11, &[(1, 2)], &mut message);
        deltas(12, packed, &[1, 1], &mut message);
        doubles(16, packed, &[0.1, 1.0], &mut message);
        let histogram = histogram_of(&message).value.expect("valid");
        assert_eq!(histogram.shape().custom_values(), [0.1, 1.0]);
    }
}

#[test]
fn what_is_wrong_with_a_histogram_refuses_it_alone() {
    let of = |fill: fn(&mut Vec<u8>)| {
        let mut message = Vec::new();
        fill(&mut message);
        histogram_of(&message).value.expect_err("refused").code()
    };
    assert_eq!(of(|m| number(4, zigzag(9), m)), "histogram_schema");
    assert_eq!(of(|m| number(4, u64::MAX, m)), "histogram_schema");
    assert_eq!(of(|m| number(1, 1, m)), "histogram_count_mismatch");
    assert_eq!(of(|m| double(2, -1.0, m)), "histogram_negative_count");
    assert_eq!(of(|m| spans(11, &[(0, 2)], m)), "histogram_spans");
    assert_eq!(of(|m| spans(11, &[(0, 5_000)], m)), "histogram_too_large");
    assert_eq!(of(|m| spans(11, &[(0, u64::MAX)], m)), "histogram_spans");
    let one_sided = |m: &mut Vec<u8>| {
        number(1, 2, m);
        spans(8, &[(0, 1)], m);
        spans(11, &[(0, 1)], m);
        deltas(12, true, &[1, 0], m);
    };
    assert_eq!(of(one_sided), "histogram_spans", "buckets of one side are none of the other");
    let falling = |m: &mut Vec<u8>| {
        spans(11, &[(0, 2)], m);
        deltas(12, true, &[1, -2], m);
    };
    assert_eq!(of(falling), "histogram_negative_count");
}

#[test]
fn rare_fields_are_bounded_before_they_cost_anything() {
    let limits = Limits {
        histograms_max: 2,
        buckets_max: 4,
        exemplars_max: 2,
        exemplar_labels_max: 3,
        ..Limits::default()
    };
    let refused = |parts: Vec<Part>| {
        let error =
            decode(&compress(&encode(&[parts])), &limits, &mut Scratch::default()).expect_err("too many");
        assert!(error.is_size());
        error.to_string()
    };
    let found = refused(vec![Part::Histogram(1); 3]);
    assert_eq!(found, "the request has 3 histograms, more than the 2 that are allowed");
    let found = refused(vec![Part::Exemplar(vec![], 1.0, 1); 3]);
    assert_eq!(found, "the request has 3 exemplars, more than the 2 that are allowed");
    let found = refused(vec![Part::Exemplar(vec![("a", "1"), ("b", "2")], 1.0, 1); 2]);
    assert_eq!(found, "the request has 4 exemplar labels, more than the 3 that are allowed");
    let (mut message, mut series, mut request) = (Vec::new(), Vec::new(), Vec::new());
    deltas(12, true, &[0; 5], &mut message);
    nested(4, &message, &mut series);
    nested(1, &series, &mut request);
    let error = decode(&compress(&request), &limits, &mut Scratch::default()).expect_err("too many");
    assert_eq!(error.to_string(), "the request has 5 histogram buckets, more than the 4 that are allowed");
}

#[test]
fn malformed_messages_are_refused_whole() {
    let cases: [(&[u8], &str); 8] = [
        (b"\x0a\x05\x0a", "protobuf: a field at byte 2 declares 5 bytes where 1 are left"),
        (b"\x08\x01", "protobuf: field 1 of WriteRequest has wire type 0, not 2"),
        (b"\x0a\x02\x10\x01", "protobuf: field 2 of TimeSeries has wire type 0, not 2"),
        (b"\x0a\x02\x08\x01", "protobuf: field 1 of TimeSeries has wire type 0, not 2"),
        (b"\x0a\x04\x12\x02\x08\x01", "protobuf: field 1 of Sample has wire type 0, not 1"),
        (b"\x0a\x05\x12\x03\x12\x01x", "protobuf: field 2 of Sample has wire type 2, not 0"),
        (b"\x1a\x03\x12\x01\xff", "protobuf: field 2 of MetricMetadata is not UTF-8"),
        (b"\x00", "protobuf: no valid field begins at byte 0"),
    ];
    for (request, expected) in cases {
        assert_eq!(read(request).expect_err("malformed").to_string(), expected, "{request:02x?}");
    }
}

#[test]
fn a_broken_label_refuses_its_series_when_it_is_parsed() {
    for raw in [&b"\x0a\x03\x0a\x05x"[..], b"\x0a\x02\x08\x01", b"\x0a\x05", b"\x08\x01"] {
        assert_eq!(parse_labels(raw, &mut Vec::new()), Err("a label is not valid protobuf"), "{raw:02x?}");
    }
}

#[test]
fn an_empty_message_is_an_empty_batch_but_an_empty_body_is_refused() {
    assert_eq!(read(b""), Ok(Vec::new()));
    let found = decode(b"", &Limits::default(), &mut Scratch::default()).map(|_| ());
    assert_eq!(found, Err(DecodeError::Empty));
}

#[test]
fn entries_are_limited_beside_bytes() {
    let series = vec![label("__name__", "up"), Part::Sample(1.0, 1), Part::Sample(1.0, 2)];
    let mut request = encode(&[series.clone(), series]);
    request.extend_from_slice(b"\x1a\x00\x1a\x00");
    let body = compress(&request);
    let of = |series_max, samples_max, metadata_max| {
        let limits = Limits { series_max, samples_max, metadata_max, ..Limits::default() };
        decode(&body, &limits, &mut Scratch::default()).map(|_| ())
    };
    assert_eq!(of(2, 4, 2), Ok(()));
    assert_eq!(of(1, 4, 2), Err(DecodeError::TooLarge { what: "series", found: 2, allowed: 1 }));
    assert_eq!(of(2, 3, 2), Err(DecodeError::TooLarge { what: "samples", found: 4, allowed: 3 }));
    assert_eq!(of(2, 4, 1), Err(DecodeError::TooLarge { what: "metric descriptions", found: 2, allowed: 1 }));
    assert!(of(2, 4, 1).expect_err("too large").is_size());
}

#[test]
fn series_without_samples_count_as_well() {
    let mut request = encode(&[vec![label("__name__", "up"), Part::Sample(1.0, 1)]]);
    request.extend_from_slice(&b"\x0a\x00".repeat(3));
    let body = compress(&request);
    let of = |series_max| {
        let limits = Limits { series_max, ..Limits::default() };
        decode(&body, &limits, &mut Scratch::default()).map(|batch| batch.series.len())
    };
    assert_eq!(of(4), Ok(1));
    assert_eq!(of(3), Err(DecodeError::TooLarge { what: "series", found: 4, allowed: 3 }));
}

#[test]
fn no_more_labels_are_taken_apart_than_any_store_takes() {
    let mut raw = Vec::new();
    encode_part(&label("__name__", "up"), &mut raw);
    raw.extend_from_slice(&b"\x0a\x00".repeat(1_023));
    let mut pairs = Vec::new();
    assert_eq!((parse_labels(&raw, &mut pairs), pairs.len()), (Ok(()), 1_024));
    raw.extend_from_slice(&b"\x0a\x00".repeat(100_000));
    let mut pairs = Vec::new();
    assert_eq!((parse_labels(&raw, &mut pairs), pairs.len()), (Err("it has more than 1024 labels"), 1_024));
}

#[test]
fn the_content_type_says_which_version() {
    let cases = [
        ("application/x-protobuf", true),
        ("Application/X-Protobuf", true),
        ("", true),
        ("application/x-protobuf;proto=prometheus.WriteRequest", true),
        ("application/x-protobuf; proto=\"prometheus.WriteRequest\"", true),
        ("application/x-protobuf; charset=utf-8", true),
        ("application/x-protobuf;proto=io.prometheus.write.v2.Request", false),
        ("application/x-protobuf;proto=", false),
        ("application/json", false),
        ("text/plain", false),
    ];
    for (content_type, expected) in cases {
        assert_eq!(accepts_type(content_type), expected, "{content_type}");
    }
    for (encoding, expected) in
        [("snappy", true), ("Snappy", true), ("", true), ("zstd", false), ("gzip", false)]
    {
        assert_eq!(accepts_encoding(encoding), expected, "{encoding}");
    }
}

fn part() -> impl Strategy<Value = Part> {
    let text = || proptest::collection::vec(any::<u8>(), 0..200);
    prop_oneof![
        4 => (text(), text()).prop_map(|(name, value)| Part::Label(name, value)),
        4 => (any::<u64>(), any::<i64>()).prop_map(|(bits, at)| Part::Sample(f64::from_bits(bits), at)),
        1 => (any::<f64>(), any::<i64>()).prop_map(|(value, at)| Part::Exemplar(vec![("id", "a")], value, at)),
        1 => any::<i64>().prop_map(Part::Histogram),
        1 => Just(Part::Unknown),
    ]
}

proptest! {
    #[test]
    fn whatever_was_encoded_is_read(series in proptest::collection::vec(proptest::collection::vec(part(), 0..8), 0..8)) {
        prop_assert_eq!(read(&encode(&series)), Ok(expected(&series)));
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let mut scratch = Scratch::default();
        let _ = decode(&bytes, &Limits::default(), &mut scratch).map(|_| ());
        let _ = decode(&compress(&bytes), &Limits::default(), &mut scratch).map(|_| ());
        let _ = parse_labels(&bytes, &mut Vec::new());
    }

    /// Damage deep inside a valid request reaches code that random bytes never do.
    #[test]
    fn no_flipped_or_lost_byte_makes_it_panic(
        series in proptest::collection::vec(proptest::collection::vec(part(), 0..5), 1..4),
        at: proptest::sample::Index,
        to: u8,
        cut: bool,
    ) {
        let mut request = encode(&series);
        let at = at.index(request.len());
        if cut { request.truncate(at) } else { request[at] = to }
        let mut scratch = Scratch::default();
        if let Ok(batch) = decode(&compress(&request), &Limits::default(), &mut scratch) {
            for series in &batch.series {
                prop_assert!(batch.samples.get(series.samples.clone()).is_some());
                let _ = (batch.parse_labels)(series.raw_labels, &mut Vec::new());
            }
            for exemplar in &batch.exemplars {
                prop_assert!(batch.exemplar_labels.get(exemplar.labels.clone()).is_some());
            }
            let places = batch.exemplars.iter().map(|e| e.series).chain(batch.histograms.iter().map(|h| h.series));
            prop_assert!(places.into_iter().all(|place| place < batch.series.len()));
        }
    }
}
