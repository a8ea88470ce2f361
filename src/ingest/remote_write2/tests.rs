//! Decodes requests of an independent encoder: each is decoded as written, an unresolvable series
//! is refused alone, and no input panics.

#![expect(clippy::arithmetic_side_effects, reason = "a test that overflows fails")]

use proptest::prelude::*;

use super::*;
use crate::ingest::protobuf::{put_bytes, put_varint};
use crate::ingest::remote_write;
use crate::model::HistogramCounts;

type LabelList = Vec<(String, String)>;

/// A `TimeSeries` to encode.
#[derive(Clone, Debug, Default)]
struct SentSeries {
    labels: LabelList,
    /// Value, time and start; times in milliseconds, 0 for no start.
    samples: Vec<(f64, i64, i64)>,
    /// Encoded `Histogram` messages.
    histograms: Vec<Vec<u8>>,
    /// Labels, value and time in milliseconds.
    exemplars: Vec<(LabelList, f64, i64)>,
    /// Type number, help and unit.
    metadata: Option<(u8, String, String)>,
    created: i64,
}

fn put_number(field: u64, value: i64, out: &mut Vec<u8>) {
    // Zero is the default, which senders omit.
    if value != 0 {
        put_varint(field << 3, out);
        put_varint(value.cast_unsigned(), out);
    }
}

fn put_double(field: u64, value: f64, out: &mut Vec<u8>) {
    put_varint(field << 3 | 1, out);
    out.extend_from_slice(&value.to_le_bytes());
}

fn put_packed(field: u64, references: &[u64], out: &mut Vec<u8>) {
    let mut message = Vec::new();
    references.iter().for_each(|reference| put_varint(*reference, &mut message));
    put_bytes(field, &message, out);
}

/// The symbol table of one request.
struct SymbolTable(Vec<String>);

impl SymbolTable {
    fn reference(&mut self, text: &str) -> u64 {
        let known = self.0.iter().position(|have| have == text);
        let place = known.unwrap_or_else(|| {
            self.0.push(text.to_owned());
            self.0.len() - 1
        });
        place as u64
    }

    fn references(&mut self, labels: &[(String, String)]) -> Vec<u64> {
        labels.iter().flat_map(|(name, value)| [name, value]).map(|text| self.reference(text)).collect()
    }
}

fn encode_series(sent: &SentSeries, table: &mut SymbolTable) -> Vec<u8> {
    let mut out = Vec::new();
    put_packed(1, &table.references(&sent.labels), &mut out);
    for (value, at, start) in &sent.samples {
        let mut message = Vec::new();
        put_double(1, *value, &mut message);
        put_number(2, *at, &mut message);
        put_number(3, *start, &mut message);
        put_bytes(2, &message, &mut out);
    }
    sent.histograms.iter().for_each(|message| put_bytes(3, message, &mut out));
    for (labels, value, at) in &sent.exemplars {
        let mut message = Vec::new();
        put_packed(1, &table.references(labels), &mut message);
        put_double(2, *value, &mut message);
        put_number(3, *at, &mut message);
        put_bytes(4, &message, &mut out);
    }
    if let Some((kind, help, unit)) = &sent.metadata {
        let mut message = Vec::new();
        put_number(1, i64::from(*kind), &mut message);
        put_number(3, table.reference(help).cast_signed(), &mut message);
        put_number(4, table.reference(unit).cast_signed(), &mut message);
        put_bytes(5, &message, &mut out);
    }
    put_number(6, sent.created, &mut out);
    out
}

/// Encodes a request. The strings of `first` come first in the symbol table, as if other series had
/// been sent before.
fn encode(all: &[SentSeries], first: &[&str]) -> Vec<u8> {
    let mut table = SymbolTable(vec![String::new()]);
    table.0.extend(first.iter().map(|text| (*text).to_owned()));
    let series: Vec<Vec<u8>> = all.iter().map(|sent| encode_series(sent, &mut table)).collect();
    request(&table.0, &series)
}

fn request<T: AsRef<[u8]>>(symbols: &[T], series: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    symbols.iter().for_each(|text| put_bytes(4, text.as_ref(), &mut out));
    series.iter().for_each(|message| put_bytes(5, message, &mut out));
    out
}

fn compress(bytes: &[u8]) -> Vec<u8> {
    snap::raw::Encoder::new().compress_vec(bytes).expect("compresses")
}

fn with<T>(request: &[u8], look: impl FnOnce(&WriteBatch<'_>) -> T) -> Result<T, DecodeError> {
    with_limits(request, &DecodeLimits::default(), look)
}

fn with_limits<T>(
    request: &[u8],
    limits: &DecodeLimits,
    look: impl FnOnce(&WriteBatch<'_>) -> T,
) -> Result<T, DecodeError> {
    let mut scratch = DecodeScratch::default();
    let batch = decode(&compress(request), limits, &mut scratch)?;
    Ok(look(&batch))
}

/// Returns the parsed labels of the series at this index.
fn labels(batch: &WriteBatch<'_>, place: usize) -> Result<LabelList, &'static str> {
    let mut pairs = Vec::new();
    (batch.parse_labels)(batch.series[place].raw_labels, &mut pairs)?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(pairs.into_iter().map(|(name, value)| (text(name), text(value))).collect())
}

fn pairs(labels: &[(&str, &str)]) -> LabelList {
    labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn up(job: &str) -> SentSeries {
    let labels = pairs(&[("__name__", "up"), ("job", job)]);
    SentSeries { labels, samples: vec![(1.0, 1_000, 0)], ..SentSeries::default() }
}

#[test]
fn a_request_is_decoded_from_the_bytes_of_the_specification() {
    // Symbols "", "__name__" and "up"; one series with references 1 and 2, the sample 1.0 at 5 ms
    // with start 3 ms, and the metadata of a gauge.
    let request = b"\x22\x00\x22\x08__name__\x22\x02up\
        \x2a\x19\x0a\x02\x01\x02\x12\x0d\x09\0\0\0\0\0\0\xf0\x3f\x10\x05\x18\x03\x2a\x04\x08\x02\x18\x02";
    with(request, |batch| {
        assert_eq!(labels(batch, 0), Ok(pairs(&[("__name__", "up")])));
        let sample = batch.samples[batch.series[0].samples.start];
        assert_eq!((sample.at.as_ms(), sample.value), (5, 1.0));
        assert_eq!(batch.starts, [WriteStart { series: 0, at: sample.at, start: Timestamp::from_ms(3) }]);
        let metadata = MetricMetadata { name: "up", kind: MetricKind::Gauge, help: "up", unit: "" };
        assert_eq!(batch.metadata, [metadata]);
    })
    .expect("valid");
}

#[test]
fn label_bytes_of_a_series_do_not_depend_on_the_rest_of_the_request() {
    let raw = |request: &[u8], place: usize| {
        with(request, |batch| batch.series[place].raw_labels.to_vec()).expect("valid")
    };
    let alone = raw(&encode(&[up("a")], &[]), 0);
    assert_eq!(raw(&encode(&[up("b"), up("a")], &["x", "a", "y"]), 1), alone);
    assert_ne!(raw(&encode(&[up("b")], &[]), 0), alone);
    let mut swapped = up("a");
    swapped.labels.reverse();
    assert_ne!(raw(&encode(&[swapped], &[]), 0), alone);
    // Symbols that follow the series, and references that are not packed.
    let mut series = Vec::new();
    (1..5).for_each(|reference| put_number(1, reference, &mut series));
    put_bytes(2, &[], &mut series);
    let mut late = Vec::new();
    put_bytes(5, &series, &mut late);
    late.extend(request(&["", "__name__", "up", "job", "a"], &[]));
    assert_eq!(raw(&late, 0), alone);
}

#[test]
fn an_unresolvable_series_is_refused_alone() {
    let symbols: &[&[u8]] = &[b"", b"__name__", b"up", b"trace_id", b"\xff"];
    let sampled = |references: &[u64]| {
        let mut out = Vec::new();
        put_packed(1, references, &mut out);
        put_bytes(2, &[0x10, 1], &mut out);
        out
    };
    let exemplar = |references: &[u64]| {
        let (mut out, mut message) = (sampled(&[1, 2]), Vec::new());
        put_packed(1, references, &mut message);
        put_bytes(4, &message, &mut out);
        out
    };
    let described = |help: i64, unit: i64| {
        let (mut out, mut message) = (sampled(&[1, 2]), Vec::new());
        put_number(1, 1, &mut message);
        put_number(3, help, &mut message);
        put_number(4, unit, &mut message);
        put_bytes(5, &message, &mut out);
        out
    };
    let (odd, beyond, utf8) = (
        "it has an odd number of label references",
        "it refers to a symbol that is not in the symbol table",
        "a string of its exemplars or metadata is not UTF-8",
    );
    let good = sampled(&[1, 2]);
    let cases = [
        (sampled(&[1]), odd),
        (sampled(&[1, 2, 3]), odd),
        (sampled(&[1, 5]), beyond),
        (sampled(&[u64::from(u32::MAX), 2]), beyond),
        (sampled(&[u64::MAX, 2, 1, 2]), beyond),
        (exemplar(&[3]), odd),
        (exemplar(&[3, 9]), beyond),
        (exemplar(&[3, 4]), utf8),
        (described(9, 0), beyond),
        (described(0, i64::MAX), beyond),
        (described(4, 0), utf8),
        (sampled(&[1, 2].repeat(1_025)), "it has more than 1024 labels"),
    ];
    for (bad, expected) in cases {
        let request = request(symbols, &[good.clone(), bad, good.clone()]);
        with(&request, |batch| {
            assert_eq!((batch.series.len(), batch.samples.len()), (3, 3));
            assert_eq!(labels(batch, 1), Err(expected));
            assert!(!(batch.is_labels)(batch.series[1].raw_labels));
            for place in [0, 2] {
                assert_eq!(labels(batch, place), Ok(pairs(&[("__name__", "up")])));
            }
        })
        .expect("a valid request");
    }
    // The store refuses labels that are not UTF-8 and duplicate names, as in version 1.0.
    let found = with(&request(symbols, &[sampled(&[1, 4, 1, 2])]), |batch| labels(batch, 0).map(|l| l.len()));
    assert_eq!(found, Ok(Ok(2)));
}

#[test]
fn repeated_references_to_a_long_symbol_are_limited() {
    let long = "x".repeat(200 << 10);
    let mut series = Vec::new();
    put_packed(1, &[1, 1, 1, 1], &mut series);
    put_bytes(2, &[0x10, 1], &mut series);
    let symbols = ["", &long];
    let request = request(&symbols, &vec![series; 200]);
    let error = "its labels have more than 512 KiB";
    let found = with(&request, |batch| labels(batch, 199));
    assert!(matches!(found, Err(DecodeError::TooLarge { what: "bytes of labels", .. })), "{found:?}");
    let few = super::tests::request(&symbols, &request_series(&request)[..3]);
    assert_eq!(with(&few, |batch| labels(batch, 2)), Ok(Err(error)));
}

/// Returns the encoded series of a request.
fn request_series(request: &[u8]) -> Vec<Vec<u8>> {
    let (mut reader, mut found) = (WireReader::new(request), Vec::new());
    while let Some(field) = reader.field().expect("valid") {
        if field.number == 5 {
            found.push(field.bytes("").expect("valid").to_vec());
        }
    }
    found
}

#[test]
fn start_timestamps_come_from_samples_or_from_the_series() {
    let start = |batch: &WriteBatch<'_>| {
        batch.starts.iter().map(|s| (s.series, s.at.as_ms(), s.start.as_ms())).collect::<Vec<_>>()
    };
    let mut counter = up("a");
    counter.samples = vec![(1.0, 10, 5), (2.0, 20, 0), (0.0, 30, 25)];
    let mut native = Vec::new();
    put_number(15, 40, &mut native);
    put_number(17, 35, &mut native);
    counter.histograms = vec![native.clone()];
    let request = encode(&[up("b"), counter.clone()], &[]);
    assert_eq!(with(&request, start), Ok(vec![(1, 10, 5), (1, 30, 25), (1, 40, 35)]));
    // An older sender states the start once, for the whole series.
    let mut older = up("a");
    older.samples = vec![(1.0, 10, 0), (2.0, 20, 0)];
    older.histograms = vec![native[..2].to_vec()];
    older.created = 7;
    assert_eq!(with(&encode(&[older], &[]), start), Ok(vec![(0, 10, 7), (0, 20, 7), (0, 40, 7)]));
    // If a sender does both, the starts of the samples win.
    counter.created = 3;
    assert_eq!(with(&encode(&[counter], &[]), start), Ok(vec![(0, 10, 5), (0, 30, 25), (0, 40, 35)]));
}

#[test]
fn a_metric_is_described_once_under_its_family_name() {
    let of = |name: &str, kind: u8, help: &str, unit: &str| SentSeries {
        labels: pairs(&[("__name__", name), ("job", "a")]),
        samples: vec![(1.0, 1, 0)],
        metadata: Some((kind, help.to_owned(), unit.to_owned())),
        ..SentSeries::default()
    };
    let mut sent: Vec<SentSeries> = (0..100).map(|_| of("http_requests_total", 1, "Requests", "")).collect();
    sent.extend(["x_bucket", "x_sum", "x_count"].map(|name| of(name, 3, "X", "seconds")));
    sent.extend(["y", "y_sum"].map(|name| of(name, 5, "Y", "")));
    sent.extend([
        of("z_gsum", 4, "Z", ""),
        of("_count", 3, "", ""),
        of("unknown", 0, "", ""),
        of("n", 99, "N", ""),
    ]);
    let found = with(&encode(&sent, &[]), |batch| {
        let said =
            batch.metadata.iter().map(|m| format!("{} {} {} {}", m.name, m.kind.as_str(), m.help, m.unit));
        said.collect::<Vec<_>>()
    });
    let expected = [
        "http_requests_total counter Requests ",
        "x histogram X seconds",
        "x histogram X seconds",
        "x histogram X seconds",
        "y summary Y ",
        "y summary Y ",
        "z gaugehistogram Z ",
        "_count histogram  ",
        "n unknown N ",
    ];
    assert_eq!(found, Ok(expected.map(str::to_owned).to_vec()));
    // A series with only metadata is not stored, but its metadata is.
    let only = SentSeries { samples: Vec::new(), ..of("a", 2, "A", "") };
    let found = with(&encode(&[only], &[]), |batch| (batch.series.len(), batch.metadata.len()));
    assert_eq!(found, Ok((0, 1)));
}

#[test]
fn histograms_and_exemplars_are_decoded_as_in_version_1() {
    let mut native = Vec::new();
    put_number(1, 3, &mut native);
    put_double(3, 5.0, &mut native);
    put_bytes(11, &[2 << 3, 2], &mut native);
    put_bytes(12, &[2, 2], &mut native);
    put_number(14, 1, &mut native);
    put_number(15, 77, &mut native);
    let trace = pairs(&[("trace_id", "abc"), ("span_id", "")]);
    let sent = SentSeries {
        labels: pairs(&[("__name__", "native")]),
        histograms: vec![native],
        exemplars: vec![(trace, 0.5, 76), (Vec::new(), 0.25, 77)],
        ..SentSeries::default()
    };
    with(&encode(&[up("a"), sent], &[]), |batch| {
        let sample = &batch.histograms[0];
        let histogram = sample.value.as_ref().expect("valid");
        assert_eq!((sample.series, sample.at.as_ms(), histogram.reset() as u8), (1, 77, 1));
        let HistogramCounts::Integer { buckets, .. } = histogram.counts() else { panic!("floats") };
        assert_eq!(buckets.as_slice(), [1, 2]);
        let [traced, bare] = &batch.exemplars[..] else { panic!("two") };
        assert_eq!((traced.series, traced.value, traced.at.as_ms()), (1, 0.5, 76));
        assert_eq!(batch.exemplar_labels[traced.labels.clone()], [("trace_id", "abc"), ("span_id", "")]);
        assert!(bare.labels.is_empty());
    })
    .expect("valid");
}

#[test]
fn all_entries_of_a_request_are_limited() {
    let mut sent = up("a");
    sent.samples = vec![(1.0, 1, 0); 2];
    sent.exemplars = vec![(pairs(&[("t", "1")]), 0.5, 1); 2];
    sent.histograms = vec![vec![15 << 3, 1]; 2];
    sent.metadata = Some((1, "help".to_owned(), String::new()));
    let mut other = sent.clone();
    other.labels[0].1 = "down".to_owned();
    let request = encode(&[sent, other], &[]);
    let exact = DecodeLimits {
        series_max: 2,
        samples_max: 4,
        metadata_max: 2,
        histograms_max: 4,
        exemplars_max: 4,
        exemplar_labels_max: 4,
        symbols_max: 9,
        labels_max: 4,
        ..DecodeLimits::default()
    };
    assert!(with_limits(&request, &exact, |_| ()).is_ok());
    let cases = [
        ("series", DecodeLimits { series_max: 1, ..exact }),
        ("samples", DecodeLimits { samples_max: 3, ..exact }),
        ("metric descriptions", DecodeLimits { metadata_max: 1, ..exact }),
        ("histograms", DecodeLimits { histograms_max: 3, ..exact }),
        ("exemplars", DecodeLimits { exemplars_max: 3, ..exact }),
        ("exemplar labels", DecodeLimits { exemplar_labels_max: 3, ..exact }),
        ("symbols", DecodeLimits { symbols_max: 7, ..exact }),
        ("labels", DecodeLimits { labels_max: 3, ..exact }),
    ];
    for (what, limits) in cases {
        let found = with_limits(&request, &limits, |_| ()).expect_err(what);
        assert!(
            matches!(found, DecodeError::TooLarge { what: found, .. } if found == what),
            "{what}: {found}"
        );
    }
}

#[test]
fn a_malformed_version_2_request_is_refused_as_a_whole() {
    let cases: [(&[u8], &str); 7] = [
        (b"\x22\x05x", "protobuf: a field at byte 2 declares 5 bytes, but only 1 are left"),
        (b"\x20\x01", "protobuf: field 4 of Request has wire type 0, not 2"),
        (b"\x28\x01", "protobuf: field 5 of Request has wire type 0, not 2"),
        (b"\x2a\x03\x0a\x01\x80", "protobuf: the message is truncated at byte 0"),
        (b"\x2a\x04\x12\x02\x08\x01", "protobuf: field 1 of Sample has wire type 0, not 1"),
        (b"\x2a\x04\x2a\x02\x1a\x00", "protobuf: field 3 of Metadata has wire type 2, not 0"),
        (b"\x2a\x02\x32\x00", "protobuf: field 6 of TimeSeries has wire type 2, not 0"),
    ];
    for (request, expected) in cases {
        let found = with(request, |_| ()).expect_err("malformed").to_string();
        assert_eq!(found, expected, "{request:02x?}");
    }
    assert_eq!(
        decode(b"", &DecodeLimits::default(), &mut DecodeScratch::default()).map(drop),
        Err(DecodeError::Empty)
    );
    // A message of version 1.0 has other field numbers, so nothing is stored.
    assert_eq!(with(b"\x0a\x02\x12\x00\x1a\x00", |batch| batch.series.len()), Ok(0));
}

#[test]
fn a_content_type_selects_at_most_one_version() {
    let v2 = "application/x-protobuf;proto=io.prometheus.write.v2.Request";
    let cases = [
        (v2, true),
        ("application/x-protobuf; proto=\"io.prometheus.write.v2.Request\"", true),
        ("Application/X-Protobuf ; Proto = io.prometheus.write.v2.Request; charset=utf-8", true),
        ("application/x-protobuf", false),
        ("", false),
        ("application/x-protobuf;proto=prometheus.WriteRequest", false),
        ("application/x-protobuf;proto=io.prometheus.write.v3.Request", false),
        ("application/json;proto=io.prometheus.write.v2.Request", false),
        ("application/x-protobuf;proto=io.prometheus.write.v2.Request;proto=prometheus.WriteRequest", false),
    ];
    for (content_type, expected) in cases {
        assert_eq!(accepts_type(content_type), expected, "{content_type}");
        assert!(!(expected && remote_write::accepts_type(content_type)), "{content_type}");
    }
}

fn texts() -> impl Strategy<Value = LabelList> {
    let name = prop_oneof![Just("__name__".to_owned()), "[a-c]{0,3}", ".{0,40}"];
    proptest::collection::vec((name, prop_oneof!["[a-c]{0,3}", "[a-z]{120,140}"]), 0..6)
}

fn sent() -> impl Strategy<Value = SentSeries> {
    let sample = (any::<u64>(), any::<i64>(), prop_oneof![3 => Just(0), 1 => any::<i64>()]);
    let samples = proptest::collection::vec(sample, 0..4);
    let exemplar = (texts(), any::<u64>(), any::<i64>());
    let histogram = any::<i64>().prop_map(|at| {
        let mut message = Vec::new();
        put_number(15, at, &mut message);
        message
    });
    let rare = (proptest::collection::vec(exemplar, 0..2), proptest::collection::vec(histogram, 0..2));
    (texts(), samples, rare, prop::option::of((0u8..9, "[a-z]{0,9}", "[a-z]{0,9}"))).prop_map(
        |(labels, samples, (exemplars, histograms), metadata)| {
            let float = f64::from_bits;
            let samples = samples.into_iter().map(|(bits, at, start)| (float(bits), at, start)).collect();
            let exemplars = exemplars.into_iter().map(|(l, bits, at)| (l, float(bits), at)).collect();
            SentSeries { labels, samples, histograms, exemplars, metadata, created: 0 }
        },
    )
}

/// A `TimeSeries` with fields in the usual order and present-day times. Its references may be any
/// number of any value.
fn usual() -> impl Strategy<Value = Vec<u8>> {
    let reference = prop_oneof![20 => 0_u64..130, 20 => 0_u64..210, 1 => any::<u64>()];
    let references = proptest::collection::vec(reference.clone(), 0..24);
    let samples = proptest::collection::vec((any::<u64>(), 1_700_000_000_000_i64..1_800_000_000_000), 0..4);
    let metadata = prop::option::of((0_i64..10, reference.clone(), reference));
    (references, samples, metadata).prop_map(|(references, samples, metadata)| {
        // Mostly complete pairs.
        let even = references.len() / 2 * 2;
        let references = if references.len() < 20 { &references[..even] } else { &references[..] };
        let mut out = Vec::new();
        put_packed(1, references, &mut out);
        for (bits, at) in samples {
            let mut message = Vec::new();
            put_double(1, f64::from_bits(bits), &mut message);
            put_number(2, at, &mut message);
            put_bytes(2, &message, &mut out);
        }
        if let Some((kind, help, unit)) = metadata {
            let mut message = Vec::new();
            put_number(1, kind, &mut message);
            put_number(3, help.cast_signed(), &mut message);
            put_number(4, unit.cast_signed(), &mut message);
            put_bytes(5, &message, &mut out);
        }
        out
    })
}

proptest! {
    #[test]
    fn encoded_version_2_requests_round_trip(all in proptest::collection::vec(sent(), 0..6), first in proptest::collection::vec("[a-c]{0,2}", 0..200)) {
        let first: Vec<&str> = first.iter().map(String::as_str).collect();
        let request = encode(&all, &first);
        let checked = with(&request, |batch| {
            let mut place = 0;
            let mut starts = Vec::new();
            for sent in &all {
                if sent.samples.is_empty() && sent.histograms.is_empty() && sent.exemplars.is_empty() {
                    continue;
                }
                prop_assert_eq!(labels(batch, place), Ok(sent.labels.clone()));
                let samples = &batch.samples[batch.series[place].samples.clone()];
                let found: Vec<_> = samples.iter().map(|s| (s.value.to_bits(), s.at.as_ms())).collect();
                let expected: Vec<_> = sent.samples.iter().map(|(v, at, _)| (v.to_bits(), *at)).collect();
                prop_assert_eq!(found, expected);
                let own = sent.samples.iter().filter(|(.., start)| *start != 0);
                starts.extend(own.map(|(_, at, start)| (place, *at, *start)));
                let exemplars: Vec<_> = batch.exemplars.iter().filter(|e| e.series == place).collect();
                prop_assert_eq!(exemplars.len(), sent.exemplars.len());
                for (found, (labels, value, at)) in exemplars.iter().zip(&sent.exemplars) {
                    prop_assert_eq!((found.value.to_bits(), found.at.as_ms()), (value.to_bits(), *at));
                    let borrowed: Vec<_> = labels.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
                    prop_assert_eq!(&batch.exemplar_labels[found.labels.clone()], borrowed.as_slice());
                }
                let histograms = batch.histograms.iter().filter(|h| h.series == place).count();
                prop_assert_eq!(histograms, sent.histograms.len());
                place += 1;
            }
            prop_assert_eq!(batch.series.len(), place);
            let found: Vec<_> = batch.starts.iter().map(|s| (s.series, s.at.as_ms(), s.start.as_ms())).collect();
            prop_assert_eq!(found, starts);
            Ok(())
        });
        checked.expect("valid")?;
    }

    /// A field with an unknown number makes the fast path decline a series, so that the general
    /// decoder reads it.
    #[test]
    fn the_fast_path_agrees_with_the_general_decoder(
        symbols in proptest::collection::vec(
            prop_oneof![5 => "[a-z]{0,9}", 2 => "[a-z]{28,40}", 1 => "[a-z]{250,260}", 1 => Just("__name__".to_owned())],
            0..200,
        ),
        all in proptest::collection::vec(usual(), 1..8),
        damage in prop::option::of((any::<proptest::sample::Index>(), any::<u8>())),
        (samples_max, labels_max) in (0_usize..20, 0_usize..40),
    ) {
        let damaged = |mut message: Vec<u8>, place: usize| {
            if let Some((at, to)) = &damage && place == 0 && !message.is_empty() {
                let at = at.index(message.len());
                message[at] = *to;
            }
            message
        };
        let plain: Vec<Vec<u8>> =
            all.iter().enumerate().map(|(place, message)| damaged(message.clone(), place)).collect();
        let other: Vec<Vec<u8>> = plain.iter().map(|message| {
            // At the start, so that a truncated message stays truncated.
            let mut other = Vec::new();
            put_number(15, 1, &mut other);
            other.extend(message);
            other
        }).collect();
        for limits in [DecodeLimits::default(), DecodeLimits { samples_max, labels_max, ..DecodeLimits::default() }] {
            let read = |series: &[Vec<u8>]| {
                with_limits(&request(&symbols, series), &limits, |batch| {
                    let series: Vec<_> =
                        batch.series.iter().map(|one| (one.raw_labels.to_vec(), one.samples.clone())).collect();
                    let samples: Vec<_> = batch.samples.iter().map(|s| (s.at, s.value.to_bits())).collect();
                    let rare = format!("{:?} {:?} {:?} {:?}", batch.metadata, batch.starts, batch.exemplars, batch.histograms);
                    (series, samples, rare)
                })
            };
            match (read(&plain), read(&other)) {
                (Ok(plain), Ok(other)) => prop_assert_eq!(plain, other),
                // Positions in the errors differ by the two bytes of the extra field.
                (Err(plain), Err(other)) => {
                    prop_assert_eq!(std::mem::discriminant(&plain), std::mem::discriminant(&other));
                }
                (plain, other) => prop_assert!(false, "{:?} and {:?}", plain, other),
            }
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic_the_version_2_decoder(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let mut scratch = DecodeScratch::default();
        let _ = decode(&bytes, &DecodeLimits::default(), &mut scratch).map(drop);
        let _ = decode(&compress(&bytes), &DecodeLimits::default(), &mut scratch).map(drop);
        let _ = parse_labels(&bytes, &mut Vec::new());
    }

    /// Damage inside a valid request reaches code that random bytes never do.
    #[test]
    fn damaged_version_2_requests_never_panic_the_decoder(
        all in proptest::collection::vec(sent(), 1..4),
        at: proptest::sample::Index,
        to: u8,
        cut: bool,
    ) {
        let mut request = encode(&all, &[]);
        let at = at.index(request.len());
        if cut { request.truncate(at) } else { request[at] = to }
        let _ = with(&request, |batch| {
            for series in &batch.series {
                prop_assert!(batch.samples.get(series.samples.clone()).is_some());
                let parsed = (batch.parse_labels)(series.raw_labels, &mut Vec::new());
                prop_assert_eq!(parsed.is_ok(), (batch.is_labels)(series.raw_labels));
            }
            for exemplar in &batch.exemplars {
                prop_assert!(batch.exemplar_labels.get(exemplar.labels.clone()).is_some());
            }
            let rare = batch.exemplars.iter().map(|e| e.series).chain(batch.histograms.iter().map(|h| h.series));
            let indices = rare.chain(batch.starts.iter().map(|s| s.series));
            prop_assert!(indices.into_iter().all(|place| place < batch.series.len()));
            Ok(())
        }).map_or(Ok(()), |checked| checked);
    }
}
