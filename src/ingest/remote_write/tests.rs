//! Decodes requests of an independent encoder: each is decoded as written, and no input panics.

use proptest::prelude::*;

use super::*;
use crate::ingest::protobuf::{put_bytes, put_varint};
use crate::model::HistogramCounts;

/// A field of a `TimeSeries`. A series is a list of them in any order.
#[derive(Clone, Debug)]
enum SeriesField {
    Label(Vec<u8>, Vec<u8>),
    Sample(f64, i64),
    /// Labels, value, time.
    Exemplar(Vec<(&'static str, &'static str)>, f64, i64),
    /// A histogram without observations at this time.
    Histogram(i64),
    Unknown,
}

fn encode_field(series_field: &SeriesField, out: &mut Vec<u8>) {
    let mut message = Vec::new();
    match series_field {
        SeriesField::Label(name, value) => {
            put_bytes(1, name, &mut message);
            put_bytes(2, value, &mut message);
            put_bytes(1, &message, out);
        }
        SeriesField::Sample(value, at) => {
            message.push(1 << 3 | 1);
            message.extend_from_slice(&value.to_le_bytes());
            // Zero is the default, which senders omit.
            if *at != 0 {
                message.push(2 << 3);
                put_varint(at.cast_unsigned(), &mut message);
            }
            put_bytes(2, &message, out);
        }
        SeriesField::Exemplar(labels, value, at) => {
            for (name, value) in labels {
                let mut label = Vec::new();
                put_bytes(1, name.as_bytes(), &mut label);
                put_bytes(2, value.as_bytes(), &mut label);
                put_bytes(1, &label, &mut message);
            }
            message.push(2 << 3 | 1);
            message.extend_from_slice(&value.to_le_bytes());
            message.push(3 << 3);
            put_varint(at.cast_unsigned(), &mut message);
            put_bytes(3, &message, out);
        }
        SeriesField::Histogram(at) => {
            message.push(15 << 3);
            put_varint(at.cast_unsigned(), &mut message);
            put_bytes(4, &message, out);
        }
        SeriesField::Unknown => out.extend_from_slice(&[15 << 3, 7]),
    }
}

fn encode(series: &[Vec<SeriesField>]) -> Vec<u8> {
    let mut request = Vec::new();
    for fields in series {
        let mut message = Vec::new();
        fields.iter().for_each(|series_field| encode_field(series_field, &mut message));
        put_bytes(1, &message, &mut request);
    }
    request
}

fn compress(bytes: &[u8]) -> Vec<u8> {
    snap::raw::Encoder::new().compress_vec(bytes).expect("compresses")
}

type LabelList = Vec<(Vec<u8>, Vec<u8>)>;
/// Labels, and time and value bits of each sample.
type DecodedSeries = Vec<(LabelList, Vec<(i64, u64)>)>;

/// Decodes a request and parses its labels, as the store does.
fn read(request: &[u8]) -> Result<DecodedSeries, DecodeError> {
    let mut scratch = DecodeScratch::default();
    let batch = decode(&compress(request), &DecodeLimits::default(), &mut scratch)?;
    let series = batch.series.iter().map(|series| {
        let mut pairs = Vec::new();
        (batch.parse_labels)(series.raw_labels, &mut pairs).expect("labels of the test are valid");
        let pairs = pairs.into_iter().map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
        let samples = &batch.samples[series.samples.clone()];
        (pairs, samples.iter().map(|sample| (sample.at.as_ms(), sample.value.to_bits())).collect())
    });
    Ok(series.collect())
}

/// Returns the expected result of `read`, derived from the fields without decoding.
fn expected(series: &[Vec<SeriesField>]) -> DecodedSeries {
    let mut found = Vec::new();
    for fields in series {
        let mut labels = LabelList::new();
        let (mut samples, mut has_side_data) = (Vec::new(), false);
        for series_field in fields {
            match series_field {
                SeriesField::Label(name, value) => labels.push((name.clone(), value.clone())),
                SeriesField::Sample(value, at) => samples.push((*at, value.to_bits())),
                SeriesField::Exemplar(..) | SeriesField::Histogram(_) => has_side_data = true,
                SeriesField::Unknown => {}
            }
        }
        if !samples.is_empty() || has_side_data {
            found.push((labels, samples));
        }
    }
    found
}

fn label(name: &str, value: &str) -> SeriesField {
    SeriesField::Label(name.into(), value.into())
}

#[test]
fn a_request_is_decoded_from_the_bytes_of_the_specification() {
    #[rustfmt::skip]
    let request = [
        0x0a, 0x1d, // series, 29 bytes
        // label
        0x0a, 0x0e, 0x0a, 8, b'_', b'_', b'n', b'a', b'm', b'e', b'_', b'_', 0x12, 2, b'u', b'p',
        0x12, 0x0b, 0x09, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f, 0x10, 0x05, // sample 1.0 at 5 ms
        0x1a, 0x0d, 0x08, 1, 0x12, 2, b'u', b'p', 0x22, 1, b'h', 0x2a, 2, b'm', b's', // metadata
    ];
    let mut scratch = DecodeScratch::default();
    let batch = decode(&compress(&request), &DecodeLimits::default(), &mut scratch).expect("valid");
    assert_eq!((batch.encoding, batch.series.len()), (1, 1));
    assert_eq!(batch.series[0].raw_labels, &request[2..18]);
    assert_eq!(batch.samples, [Sample { at: Timestamp::from_ms(5), value: 1.0 }]);
    let metadata = MetricMetadata { name: "up", kind: MetricKind::Counter, help: "h", unit: "ms" };
    assert_eq!(batch.metadata, [metadata]);
}

#[test]
fn a_run_of_labels_gives_the_same_bytes_at_any_position() {
    let labels = [label("__name__", "up"), label("job", "a")];
    let sample = |at| SeriesField::Sample(1.0, at);
    let before = vec![labels[0].clone(), labels[1].clone(), sample(1)];
    let after = vec![sample(2), SeriesField::Unknown, labels[0].clone(), labels[1].clone()];
    let mut scratch = DecodeScratch::default();
    let batch =
        decode(&compress(&encode(&[before, after])), &DecodeLimits::default(), &mut scratch).expect("valid");
    assert_eq!(batch.series[0].raw_labels, batch.series[1].raw_labels);
}

#[test]
fn labels_with_other_fields_between_them_are_all_parsed() {
    let series = vec![vec![
        label("b", "2"),
        SeriesField::Sample(1.0, 1),
        label("a", "1"),
        SeriesField::Histogram(1),
        label("c", ""),
    ]];
    assert_eq!(read(&encode(&series)), Ok(expected(&series)));
}

#[test]
fn staleness_markers_and_other_nans_keep_their_bits() {
    for bits in [crate::model::STALE_NAN_BITS, 0x7ff8_0000_0000_0001, 0xfff8_0000_0000_0000] {
        let series = vec![vec![label("__name__", "up"), SeriesField::Sample(f64::from_bits(bits), -1)]];
        assert_eq!(read(&encode(&series)).expect("valid")[0].1, [(-1, bits)]);
    }
}

#[test]
fn exemplars_refer_to_the_index_of_their_series() {
    let series = [
        vec![label("__name__", "plain"), SeriesField::Sample(1.0, 1)],
        vec![label("__name__", "nothing")],
        vec![
            label("__name__", "traced"),
            SeriesField::Exemplar(vec![("trace_id", "ab"), ("b", "")], 0.5, -7),
        ],
    ];
    let mut scratch = DecodeScratch::default();
    let batch = decode(&compress(&encode(&series)), &DecodeLimits::default(), &mut scratch).expect("valid");
    assert_eq!((batch.series.len(), batch.samples.len(), batch.histograms.len()), (2, 1, 0));
    let exemplar = &batch.exemplars[0];
    assert_eq!((exemplar.series, exemplar.value, exemplar.at), (1, 0.5, Timestamp::from_ms(-7)));
    assert_eq!(batch.exemplar_labels[exemplar.labels.clone()], [("trace_id", "ab"), ("b", "")]);
}

/// Appends a varint field.
fn put_number(field: u64, value: u64, out: &mut Vec<u8>) {
    put_varint(field << 3, out);
    put_varint(value, out);
}

fn put_double(field: u64, value: f64, out: &mut Vec<u8>) {
    put_varint(field << 3 | 1, out);
    out.extend_from_slice(&value.to_le_bytes());
}

fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63).cast_unsigned()
}

fn put_spans(field: u64, spans: &[(i64, u64)], out: &mut Vec<u8>) {
    for (offset, length) in spans {
        let mut span = Vec::new();
        put_number(1, zigzag(*offset), &mut span);
        put_number(2, *length, &mut span);
        put_bytes(field, &span, out);
    }
}

fn put_deltas(field: u64, packed: bool, deltas: &[i64], out: &mut Vec<u8>) {
    let mut bytes = Vec::new();
    for delta in deltas {
        match packed {
            true => put_varint(zigzag(*delta), &mut bytes),
            false => put_number(field, zigzag(*delta), &mut bytes),
        }
    }
    if packed { put_bytes(field, &bytes, out) } else { out.extend(bytes) }
}

fn put_doubles(field: u64, packed: bool, values: &[f64], out: &mut Vec<u8>) {
    let mut bytes = Vec::new();
    for value in values {
        match packed {
            true => bytes.extend_from_slice(&value.to_le_bytes()),
            false => put_double(field, *value, &mut bytes),
        }
    }
    if packed { put_bytes(field, &bytes, out) } else { out.extend(bytes) }
}

fn histogram_of(message: &[u8]) -> crate::model::HistogramSample {
    let (mut series, mut request) = (Vec::new(), Vec::new());
    encode_field(&label("__name__", "native"), &mut series);
    put_bytes(4, message, &mut series);
    put_bytes(1, &series, &mut request);
    let mut scratch = DecodeScratch::default();
    let mut batch = decode(&compress(&request), &DecodeLimits::default(), &mut scratch).expect("valid");
    batch.histograms.pop().expect("one")
}

#[test]
fn an_integer_histogram_is_decoded_packed_and_unpacked() {
    for packed in [true, false] {
        let mut message = Vec::new();
        put_number(1, 16, &mut message);
        put_double(3, 2.5, &mut message);
        put_number(4, zigzag(-1), &mut message);
        put_double(5, 0.001, &mut message);
        put_number(6, 2, &mut message);
        put_spans(8, &[(3, 1)], &mut message);
        put_deltas(9, packed, &[4], &mut message);
        put_spans(11, &[(-2, 2), (5, 1)], &mut message);
        put_deltas(12, packed, &[3, 2, -3], &mut message);
        put_number(14, 3, &mut message);
        put_number(15, 77, &mut message);
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
fn float_and_custom_bucket_histograms_are_decoded() {
    for packed in [true, false] {
        let mut message = Vec::new();
        put_double(2, 3.5, &mut message);
        put_double(7, 0.5, &mut message);
        put_spans(8, &[(0, 1)], &mut message);
        put_doubles(10, packed, &[1.0], &mut message);
        put_spans(11, &[(0, 2)], &mut message);
        put_doubles(13, packed, &[0.25, 1.75], &mut message);
        let histogram = histogram_of(&message).value.expect("valid");
        let HistogramCounts::Float { count, zero, buckets } = histogram.counts() else { panic!("integers") };
        assert_eq!((*count, *zero, buckets.as_slice()), (3.5, 0.5, &[0.25, 1.75, 1.0][..]));
        let mut message = Vec::new();
        put_number(1, 3, &mut message);
        put_number(4, zigzag(-53), &mut message);
        put_spans(11, &[(1, 2)], &mut message);
        put_deltas(12, packed, &[1, 1], &mut message);
        put_doubles(16, packed, &[0.1, 1.0], &mut message);
        let histogram = histogram_of(&message).value.expect("valid");
        assert_eq!(histogram.shape().custom_values(), [0.1, 1.0]);
    }
}

#[test]
fn an_invalid_histogram_is_refused_alone() {
    let of = |fill: fn(&mut Vec<u8>)| {
        let mut message = Vec::new();
        fill(&mut message);
        histogram_of(&message).value.expect_err("refused").code()
    };
    assert_eq!(of(|m| put_number(4, zigzag(9), m)), "histogram_schema");
    assert_eq!(of(|m| put_number(4, u64::MAX, m)), "histogram_schema");
    assert_eq!(of(|m| put_number(1, 1, m)), "histogram_count_mismatch");
    assert_eq!(of(|m| put_double(2, -1.0, m)), "histogram_negative_count");
    assert_eq!(of(|m| put_spans(11, &[(0, 2)], m)), "histogram_spans");
    assert_eq!(of(|m| put_spans(11, &[(0, 5_000)], m)), "histogram_too_large");
    assert_eq!(of(|m| put_spans(11, &[(0, u64::MAX)], m)), "histogram_spans");
    let one_sided = |m: &mut Vec<u8>| {
        put_number(1, 2, m);
        put_spans(8, &[(0, 1)], m);
        put_spans(11, &[(0, 1)], m);
        put_deltas(12, true, &[1, 0], m);
    };
    assert_eq!(of(one_sided), "histogram_spans", "surplus buckets of one side do not fill the other");
    let falling = |m: &mut Vec<u8>| {
        put_spans(11, &[(0, 2)], m);
        put_deltas(12, true, &[1, -2], m);
    };
    assert_eq!(of(falling), "histogram_negative_count");
}

#[test]
fn histograms_and_exemplars_are_limited() {
    let limits = DecodeLimits {
        histograms_max: 2,
        buckets_max: 4,
        exemplars_max: 2,
        exemplar_labels_max: 3,
        ..DecodeLimits::default()
    };
    let refused = |fields: Vec<SeriesField>| {
        let error = decode(&compress(&encode(&[fields])), &limits, &mut DecodeScratch::default())
            .expect_err("too many");
        assert!(error.is_size());
        error.to_string()
    };
    let found = refused(vec![SeriesField::Histogram(1); 3]);
    assert_eq!(found, "the request has 3 histograms; at most 2 are allowed");
    let found = refused(vec![SeriesField::Exemplar(vec![], 1.0, 1); 3]);
    assert_eq!(found, "the request has 3 exemplars; at most 2 are allowed");
    let found = refused(vec![SeriesField::Exemplar(vec![("a", "1"), ("b", "2")], 1.0, 1); 2]);
    assert_eq!(found, "the request has 4 exemplar labels; at most 3 are allowed");
    let (mut message, mut series, mut request) = (Vec::new(), Vec::new(), Vec::new());
    put_deltas(12, true, &[0; 5], &mut message);
    put_bytes(4, &message, &mut series);
    put_bytes(1, &series, &mut request);
    let error = decode(&compress(&request), &limits, &mut DecodeScratch::default()).expect_err("too many");
    assert_eq!(error.to_string(), "the request has 5 histogram buckets; at most 4 are allowed");
}

#[test]
fn a_malformed_request_is_refused_as_a_whole() {
    let cases: [(&[u8], &str); 8] = [
        (b"\x0a\x05\x0a", "protobuf: a field at byte 2 declares 5 bytes, but only 1 are left"),
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
fn a_malformed_label_is_reported_when_it_is_parsed() {
    for raw in [&b"\x0a\x03\x0a\x05x"[..], b"\x0a\x02\x08\x01", b"\x0a\x05", b"\x08\x01"] {
        assert_eq!(parse_labels(raw, &mut Vec::new()), Err("a label is not valid protobuf"), "{raw:02x?}");
    }
}

#[test]
fn an_empty_message_is_an_empty_batch_but_an_empty_body_is_refused() {
    assert_eq!(read(b""), Ok(Vec::new()));
    let found = decode(b"", &DecodeLimits::default(), &mut DecodeScratch::default()).map(|_| ());
    assert_eq!(found, Err(DecodeError::Empty));
}

#[test]
fn series_samples_and_metadata_are_limited() {
    let series = vec![label("__name__", "up"), SeriesField::Sample(1.0, 1), SeriesField::Sample(1.0, 2)];
    let mut request = encode(&[series.clone(), series]);
    request.extend_from_slice(b"\x1a\x00\x1a\x00");
    let body = compress(&request);
    let of = |series_max, samples_max, metadata_max| {
        let limits = DecodeLimits { series_max, samples_max, metadata_max, ..DecodeLimits::default() };
        decode(&body, &limits, &mut DecodeScratch::default()).map(|_| ())
    };
    assert_eq!(of(2, 4, 2), Ok(()));
    assert_eq!(of(1, 4, 2), Err(DecodeError::TooLarge { what: "series", found: 2, allowed: 1 }));
    assert_eq!(of(2, 3, 2), Err(DecodeError::TooLarge { what: "samples", found: 4, allowed: 3 }));
    assert_eq!(of(2, 4, 1), Err(DecodeError::TooLarge { what: "metric descriptions", found: 2, allowed: 1 }));
    assert!(of(2, 4, 1).expect_err("too large").is_size());
}

#[test]
fn series_without_samples_count_towards_the_limit() {
    let mut request = encode(&[vec![label("__name__", "up"), SeriesField::Sample(1.0, 1)]]);
    request.extend_from_slice(&b"\x0a\x00".repeat(3));
    let body = compress(&request);
    let of = |series_max| {
        let limits = DecodeLimits { series_max, ..DecodeLimits::default() };
        decode(&body, &limits, &mut DecodeScratch::default()).map(|batch| batch.series.len())
    };
    assert_eq!(of(4), Ok(1));
    assert_eq!(of(3), Err(DecodeError::TooLarge { what: "series", found: 4, allowed: 3 }));
}

#[test]
fn at_most_1024_labels_are_parsed() {
    let mut raw = Vec::new();
    encode_field(&label("__name__", "up"), &mut raw);
    raw.extend_from_slice(&b"\x0a\x00".repeat(1_023));
    let mut pairs = Vec::new();
    assert_eq!((parse_labels(&raw, &mut pairs), pairs.len()), (Ok(()), 1_024));
    raw.extend_from_slice(&b"\x0a\x00".repeat(100_000));
    let mut pairs = Vec::new();
    assert_eq!((parse_labels(&raw, &mut pairs), pairs.len()), (Err("it has more than 1024 labels"), 1_024));
}

#[test]
fn content_type_and_encoding_select_version_1() {
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

fn series_field() -> impl Strategy<Value = SeriesField> {
    let text = || proptest::collection::vec(any::<u8>(), 0..200);
    prop_oneof![
        4 => (text(), text()).prop_map(|(name, value)| SeriesField::Label(name, value)),
        4 => (any::<u64>(), any::<i64>()).prop_map(|(bits, at)| SeriesField::Sample(f64::from_bits(bits), at)),
        1 => (any::<f64>(), any::<i64>()).prop_map(|(value, at)| SeriesField::Exemplar(vec![("id", "a")], value, at)),
        1 => any::<i64>().prop_map(SeriesField::Histogram),
        1 => Just(SeriesField::Unknown),
    ]
}

proptest! {
    #[test]
    fn encoded_requests_round_trip(series in proptest::collection::vec(proptest::collection::vec(series_field(), 0..8), 0..8)) {
        prop_assert_eq!(read(&encode(&series)), Ok(expected(&series)));
    }

    #[test]
    fn arbitrary_bytes_never_panic_the_decoder(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let mut scratch = DecodeScratch::default();
        let _ = decode(&bytes, &DecodeLimits::default(), &mut scratch).map(|_| ());
        let _ = decode(&compress(&bytes), &DecodeLimits::default(), &mut scratch).map(|_| ());
        let _ = parse_labels(&bytes, &mut Vec::new());
    }

    /// Damage inside a valid request reaches code that random bytes never do.
    #[test]
    fn damaged_requests_never_panic_the_decoder(
        series in proptest::collection::vec(proptest::collection::vec(series_field(), 0..5), 1..4),
        at: proptest::sample::Index,
        to: u8,
        cut: bool,
    ) {
        let mut request = encode(&series);
        let at = at.index(request.len());
        if cut { request.truncate(at) } else { request[at] = to }
        let mut scratch = DecodeScratch::default();
        if let Ok(batch) = decode(&compress(&request), &DecodeLimits::default(), &mut scratch) {
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
