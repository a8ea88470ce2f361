//! Remote write 2.0 against an encoder of our own: what was written is read, what cannot be resolved refuses its series
//! alone, and nothing that is sent makes it panic.

#![expect(clippy::arithmetic_side_effects, reason = "a test that overflows fails")]

use proptest::prelude::*;

use super::*;
use crate::ingest::protobuf::{put_bytes as nested, put_varint as varint};
use crate::ingest::remote_write;
use crate::model::HistogramCounts;

type Pairs = Vec<(String, String)>;

/// A `TimeSeries` as a test writes it down.
#[derive(Clone, Debug, Default)]
struct Sent {
    labels: Pairs,
    /// Value, time, start.
    samples: Vec<(f64, i64, i64)>,
    /// Messages.
    histograms: Vec<Vec<u8>>,
    /// Labels, value, time.
    exemplars: Vec<(Pairs, f64, i64)>,
    /// Kind, help, unit.
    metadata: Option<(u8, String, String)>,
    created: i64,
}

fn number(field: u64, value: i64, out: &mut Vec<u8>) {
    // Zero is the default, which senders leave out.
    if value != 0 {
        varint(field << 3, out);
        varint(value.cast_unsigned(), out);
    }
}

fn double(field: u64, value: f64, out: &mut Vec<u8>) {
    varint(field << 3 | 1, out);
    out.extend_from_slice(&value.to_le_bytes());
}

fn packed(field: u64, references: &[u64], out: &mut Vec<u8>) {
    let mut message = Vec::new();
    references.iter().for_each(|reference| varint(*reference, &mut message));
    nested(field, &message, out);
}

/// The table of symbols of one request.
struct Table(Vec<String>);

impl Table {
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

fn encode_series(sent: &Sent, table: &mut Table) -> Vec<u8> {
    let mut out = Vec::new();
    packed(1, &table.references(&sent.labels), &mut out);
    for (value, at, start) in &sent.samples {
        let mut message = Vec::new();
        double(1, *value, &mut message);
        number(2, *at, &mut message);
        number(3, *start, &mut message);
        nested(2, &message, &mut out);
    }
    sent.histograms.iter().for_each(|message| nested(3, message, &mut out));
    for (labels, value, at) in &sent.exemplars {
        let mut message = Vec::new();
        packed(1, &table.references(labels), &mut message);
        double(2, *value, &mut message);
        number(3, *at, &mut message);
        nested(4, &message, &mut out);
    }
    if let Some((kind, help, unit)) = &sent.metadata {
        let mut message = Vec::new();
        number(1, i64::from(*kind), &mut message);
        number(3, table.reference(help).cast_signed(), &mut message);
        number(4, table.reference(unit).cast_signed(), &mut message);
        nested(5, &message, &mut out);
    }
    number(6, sent.created, &mut out);
    out
}

/// A request; `first` texts stand in its table before all others, as if other series had been sent with these.
fn encode(all: &[Sent], first: &[&str]) -> Vec<u8> {
    let mut table = Table(vec![String::new()]);
    table.0.extend(first.iter().map(|text| (*text).to_owned()));
    let series: Vec<Vec<u8>> = all.iter().map(|sent| encode_series(sent, &mut table)).collect();
    request(&table.0, &series)
}

fn request<T: AsRef<[u8]>>(symbols: &[T], series: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    symbols.iter().for_each(|text| nested(4, text.as_ref(), &mut out));
    series.iter().for_each(|message| nested(5, message, &mut out));
    out
}

fn compress(bytes: &[u8]) -> Vec<u8> {
    snap::raw::Encoder::new().compress_vec(bytes).expect("compresses")
}

fn with<T>(request: &[u8], look: impl FnOnce(&WriteBatch<'_>) -> T) -> Result<T, DecodeError> {
    with_limits(request, &Limits::default(), look)
}

fn with_limits<T>(
    request: &[u8],
    limits: &Limits,
    look: impl FnOnce(&WriteBatch<'_>) -> T,
) -> Result<T, DecodeError> {
    let mut scratch = Scratch::default();
    let batch = decode(&compress(request), limits, &mut scratch)?;
    Ok(look(&batch))
}

/// The labels of a series of the batch.
fn labels(batch: &WriteBatch<'_>, place: usize) -> Result<Pairs, &'static str> {
    let mut pairs = Vec::new();
    (batch.parse_labels)(batch.series[place].raw_labels, &mut pairs)?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(pairs.into_iter().map(|(name, value)| (text(name), text(value))).collect())
}

fn pairs(labels: &[(&str, &str)]) -> Pairs {
    labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn up(job: &str) -> Sent {
    let labels = pairs(&[("__name__", "up"), ("job", job)]);
    Sent { labels, samples: vec![(1.0, 1_000, 0)], ..Sent::default() }
}

#[test]
fn the_bytes_of_a_request_are_those_of_the_specification() {
    // Symbols "", "__name__", "up"; one series with references 1 and 2, the sample 1.0 at 5 since 3, and a gauge's metadata.
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
fn a_series_has_the_same_label_bytes_whatever_else_is_sent_with_it() {
    let raw = |request: &[u8], place: usize| {
        with(request, |batch| batch.series[place].raw_labels.to_vec()).expect("valid")
    };
    let alone = raw(&encode(&[up("a")], &[]), 0);
    assert_eq!(raw(&encode(&[up("b"), up("a")], &["x", "a", "y"]), 1), alone);
    assert_ne!(raw(&encode(&[up("b")], &[]), 0), alone);
    let mut swapped = up("a");
    swapped.labels.reverse();
    assert_ne!(raw(&encode(&[swapped], &[]), 0), alone);
    // Symbols after the series that refer to them, and references that are not packed.
    let mut series = Vec::new();
    (1..5).for_each(|reference| number(1, reference, &mut series));
    nested(2, &[], &mut series);
    let mut late = Vec::new();
    nested(5, &series, &mut late);
    late.extend(request(&["", "__name__", "up", "job", "a"], &[]));
    assert_eq!(raw(&late, 0), alone);
}

#[test]
fn what_cannot_be_resolved_refuses_its_series_and_no_other() {
    let symbols: &[&[u8]] = &[b"", b"__name__", b"up", b"trace_id", b"\xff"];
    let sampled = |references: &[u64]| {
        let mut out = Vec::new();
        packed(1, references, &mut out);
        nested(2, &[0x10, 1], &mut out);
        out
    };
    let exemplar = |references: &[u64]| {
        let (mut out, mut message) = (sampled(&[1, 2]), Vec::new());
        packed(1, references, &mut message);
        nested(4, &message, &mut out);
        out
    };
    let described = |help: i64, unit: i64| {
        let (mut out, mut message) = (sampled(&[1, 2]), Vec::new());
        number(1, 1, &mut message);
        number(3, help, &mut message);
        number(4, unit, &mut message);
        nested(5, &message, &mut out);
        out
    };
    let (odd, beyond, utf8) = (
        "its label references are odd in number",
        "it refers to a symbol that is not in the table",
        "a text of its exemplars or metadata is not UTF-8",
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
        .expect("the request is fine");
    }
    // Labels that are no UTF-8, and two of one name, are the store's to refuse, as of version 1.0.
    let found = with(&request(symbols, &[sampled(&[1, 4, 1, 2])]), |batch| labels(batch, 0).map(|l| l.len()));
    assert_eq!(found, Ok(Ok(2)));
}

#[test]
fn a_long_symbol_that_is_named_often_costs_no_more_than_a_body_may() {
    let long = "x".repeat(200 << 10);
    let mut series = Vec::new();
    packed(1, &[1, 1, 1, 1], &mut series);
    nested(2, &[0x10, 1], &mut series);
    let symbols = ["", &long];
    let request = request(&symbols, &vec![series; 200]);
    let flaw = "its labels have more than 512 KiB";
    let found = with(&request, |batch| labels(batch, 199));
    assert!(matches!(found, Err(DecodeError::TooLarge { what: "bytes of labels", .. })), "{found:?}");
    let few = super::tests::request(&symbols, &request_series(&request)[..3]);
    assert_eq!(with(&few, |batch| labels(batch, 2)), Ok(Err(flaw)));
}

/// The series of a request, as messages.
fn request_series(request: &[u8]) -> Vec<Vec<u8>> {
    let (mut reader, mut found) = (Reader::new(request), Vec::new());
    while let Some(field) = reader.field().expect("valid") {
        if field.number == 5 {
            found.push(field.bytes("").expect("valid").to_vec());
        }
    }
    found
}

#[test]
fn starts_are_those_of_the_samples_or_of_the_series() {
    let start = |batch: &WriteBatch<'_>| {
        batch.starts.iter().map(|s| (s.series, s.at.as_ms(), s.start.as_ms())).collect::<Vec<_>>()
    };
    let mut counter = up("a");
    counter.samples = vec![(1.0, 10, 5), (2.0, 20, 0), (0.0, 30, 25)];
    let mut native = Vec::new();
    number(15, 40, &mut native);
    number(17, 35, &mut native);
    counter.histograms = vec![native.clone()];
    let request = encode(&[up("b"), counter.clone()], &[]);
    assert_eq!(with(&request, start), Ok(vec![(1, 10, 5), (1, 30, 25), (1, 40, 35)]));
    // An older sender says it once for all.
    let mut older = up("a");
    older.samples = vec![(1.0, 10, 0), (2.0, 20, 0)];
    older.histograms = vec![native[..2].to_vec()];
    older.created = 7;
    assert_eq!(with(&encode(&[older], &[]), start), Ok(vec![(0, 10, 7), (0, 20, 7), (0, 40, 7)]));
    // One that says both is believed where it says more.
    counter.created = 3;
    assert_eq!(with(&encode(&[counter], &[]), start), Ok(vec![(0, 10, 5), (0, 30, 25), (0, 40, 35)]));
}

#[test]
fn a_metric_is_described_once_and_by_the_name_of_its_family() {
    let of = |name: &str, kind: u8, help: &str, unit: &str| Sent {
        labels: pairs(&[("__name__", name), ("job", "a")]),
        samples: vec![(1.0, 1, 0)],
        metadata: Some((kind, help.to_owned(), unit.to_owned())),
        ..Sent::default()
    };
    let mut sent: Vec<Sent> = (0..100).map(|_| of("http_requests_total", 1, "Requests", "")).collect();
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
    // A series of nothing but metadata is no series, and describes its metric.
    let only = Sent { samples: Vec::new(), ..of("a", 2, "A", "") };
    let found = with(&encode(&[only], &[]), |batch| (batch.series.len(), batch.metadata.len()));
    assert_eq!(found, Ok((0, 1)));
}

#[test]
fn histograms_and_exemplars_are_read_as_version_1_reads_them() {
    let mut native = Vec::new();
    number(1, 3, &mut native);
    double(3, 5.0, &mut native);
    nested(11, &[2 << 3, 2], &mut native);
    nested(12, &[2, 2], &mut native);
    number(14, 1, &mut native);
    number(15, 77, &mut native);
    let trace = pairs(&[("trace_id", "abc"), ("span_id", "")]);
    let sent = Sent {
        labels: pairs(&[("__name__", "native")]),
        histograms: vec![native],
        exemplars: vec![(trace, 0.5, 76), (Vec::new(), 0.25, 77)],
        ..Sent::default()
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
fn entries_are_limited_beside_bytes() {
    let mut sent = up("a");
    sent.samples = vec![(1.0, 1, 0); 2];
    sent.exemplars = vec![(pairs(&[("t", "1")]), 0.5, 1); 2];
    sent.histograms = vec![vec![15 << 3, 1]; 2];
    sent.metadata = Some((1, "help".to_owned(), String::new()));
    let mut other = sent.clone();
    other.labels[0].1 = "down".to_owned();
    let request = encode(&[sent, other], &[]);
    let exact = Limits {
        series_max: 2,
        samples_max: 4,
        metadata_max: 2,
        histograms_max: 4,
        exemplars_max: 4,
        exemplar_labels_max: 4,
        symbols_max: 9,
        labels_max: 4,
        ..Limits::default()
    };
    assert!(with_limits(&request, &exact, |_| ()).is_ok());
    let cases = [
        ("series", Limits { series_max: 1, ..exact }),
        ("samples", Limits { samples_max: 3, ..exact }),
        ("metric descriptions", Limits { metadata_max: 1, ..exact }),
        ("histograms", Limits { histograms_max: 3, ..exact }),
        ("exemplars", Limits { exemplars_max: 3, ..exact }),
        ("exemplar labels", Limits { exemplar_labels_max: 3, ..exact }),
        ("symbols", Limits { symbols_max: 7, ..exact }),
        ("labels", Limits { labels_max: 3, ..exact }),
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
fn malformed_messages_are_refused_whole() {
    let cases: [(&[u8], &str); 7] = [
        (b"\x22\x05x", "protobuf: a field at byte 2 declares 5 bytes where 1 are left"),
        (b"\x20\x01", "protobuf: field 4 of Request has wire type 0, not 2"),
        (b"\x28\x01", "protobuf: field 5 of Request has wire type 0, not 2"),
        (b"\x2a\x03\x0a\x01\x80", "protobuf: the message is cut short at byte 0"),
        (b"\x2a\x04\x12\x02\x08\x01", "protobuf: field 1 of Sample has wire type 0, not 1"),
        (b"\x2a\x04\x2a\x02\x1a\x00", "protobuf: field 3 of Metadata has wire type 2, not 0"),
        (b"\x2a\x02\x32\x00", "protobuf: field 6 of TimeSeries has wire type 2, not 0"),
    ];
    for (request, expected) in cases {
        let found = with(request, |_| ()).expect_err("malformed").to_string();
        assert_eq!(found, expected, "{request:02x?}");
    }
    assert_eq!(decode(b"", &Limits::default(), &mut Scratch::default()).map(drop), Err(DecodeError::Empty));
    // A message of version 1.0 has other fields: nothing is misread, nothing is stored.
    assert_eq!(with(b"\x0a\x02\x12\x00\x1a\x00", |batch| batch.series.len()), Ok(0));
}

#[test]
fn one_content_type_means_one_version() {
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

fn texts() -> impl Strategy<Value = Pairs> {
    let name = prop_oneof![Just("__name__".to_owned()), "[a-c]{0,3}", ".{0,40}"];
    proptest::collection::vec((name, prop_oneof!["[a-c]{0,3}", "[a-z]{120,140}"]), 0..6)
}

fn sent() -> impl Strategy<Value = Sent> {
    let sample = (any::<u64>(), any::<i64>(), prop_oneof![3 => Just(0), 1 => any::<i64>()]);
    let samples = proptest::collection::vec(sample, 0..4);
    let exemplar = (texts(), any::<u64>(), any::<i64>());
    let histogram = any::<i64>().prop_map(|at| {
        let mut message = Vec::new();
        number(15, at, &mut message);
        message
    });
    let rare = (proptest::collection::vec(exemplar, 0..2), proptest::collection::vec(histogram, 0..2));
    (texts(), samples, rare, prop::option::of((0u8..9, "[a-z]{0,9}", "[a-z]{0,9}"))).prop_map(
        |(labels, samples, (exemplars, histograms), metadata)| {
            let float = f64::from_bits;
            let samples = samples.into_iter().map(|(bits, at, start)| (float(bits), at, start)).collect();
            let exemplars = exemplars.into_iter().map(|(l, bits, at)| (l, float(bits), at)).collect();
            Sent { labels, samples, histograms, exemplars, metadata, created: 0 }
        },
    )
}

/// A `TimeSeries` with fields in their order and times of today; its references may be of any number and to anything.
fn usual() -> impl Strategy<Value = Vec<u8>> {
    let reference = prop_oneof![20 => 0_u64..130, 20 => 0_u64..210, 1 => any::<u64>()];
    let references = proptest::collection::vec(reference.clone(), 0..24);
    let samples = proptest::collection::vec((any::<u64>(), 1_700_000_000_000_i64..1_800_000_000_000), 0..4);
    let metadata = prop::option::of((0_i64..10, reference.clone(), reference));
    (references, samples, metadata).prop_map(|(references, samples, metadata)| {
        // Mostly in pairs.
        let even = references.len() / 2 * 2;
        let references = if references.len() < 20 { &references[..even] } else { &references[..] };
        let mut out = Vec::new();
        packed(1, references, &mut out);
        for (bits, at) in samples {
            let mut message = Vec::new();
            double(1, f64::from_bits(bits), &mut message);
            number(2, at, &mut message);
            nested(2, &message, &mut out);
        }
        if let Some((kind, help, unit)) = metadata {
            let mut message = Vec::new();
            number(1, kind, &mut message);
            number(3, help.cast_signed(), &mut message);
            number(4, unit.cast_signed(), &mut message);
            nested(5, &message, &mut out);
        }
        out
    })
}

proptest! {
    #[test]
    fn whatever_was_encoded_is_read(all in proptest::collection::vec(sent(), 0..6), first in proptest::collection::vec("[a-c]{0,2}", 0..200)) {
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

    /// A series as nearly all are is read by a reader of its own; a field that nobody knows leaves it to the other one.
    #[test]
    fn the_reader_of_usual_series_says_what_the_other_says(
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
            // First, so that a message that is cut short stays so.
            let mut other = Vec::new();
            number(15, 1, &mut other);
            other.extend(message);
            other
        }).collect();
        for limits in [Limits::default(), Limits { samples_max, labels_max, ..Limits::default() }] {
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
                // Places in messages differ by the two bytes of the field.
                (Err(plain), Err(other)) => {
                    prop_assert_eq!(std::mem::discriminant(&plain), std::mem::discriminant(&other));
                }
                (plain, other) => prop_assert!(false, "{:?} and {:?}", plain, other),
            }
        }
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let mut scratch = Scratch::default();
        let _ = decode(&bytes, &Limits::default(), &mut scratch).map(drop);
        let _ = decode(&compress(&bytes), &Limits::default(), &mut scratch).map(drop);
        let _ = parse_labels(&bytes, &mut Vec::new());
    }

    /// Damage deep inside a valid request reaches code that random bytes never do.
    #[test]
    fn no_flipped_or_lost_byte_makes_it_panic(
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
            let places = rare.chain(batch.starts.iter().map(|s| s.series));
            prop_assert!(places.into_iter().all(|place| place < batch.series.len()));
            Ok(())
        }).map_or(Ok(()), |checked| checked);
    }
}
