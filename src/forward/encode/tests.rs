//! Requests are decoded by `ingest`, which is independent of the encoder, and compared with the
//! pushed samples. Golden bytes are those of Google's protobuf library for Prometheus' definitions.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::ingest::{DecodeLimits, DecodeScratch, remote_write, remote_write2};
use crate::model::{
    BucketSpan, CounterReset, HistogramCounts, HistogramShape, METRIC_NAME, MetricKind, WriteBatch,
};

/// A series with owned parts.
#[derive(Clone, Debug, Default)]
struct Sent {
    labels: Labels,
    samples: Vec<Sample>,
    histograms: Vec<(Timestamp, Histogram)>,
    exemplars: Vec<Exemplar>,
    starts: Vec<StartChange>,
    /// Kind, help and unit.
    metadata: Option<(MetricKind, String, String)>,
}

impl Sent {
    fn outgoing(&self) -> OutgoingSeries<'_> {
        let metadata = self.metadata.as_ref().map(|(kind, help, unit)| MetricMetadata {
            name: self.labels.value(METRIC_NAME),
            kind: *kind,
            help,
            unit,
        });
        let Sent { labels, samples, histograms, exemplars, starts, .. } = self;
        OutgoingSeries { labels, label_fields: &[], samples, histograms, exemplars, starts, metadata }
    }
}

/// The content of a request as a receiver decodes it: lines, in order of series and time.
#[derive(Clone, Debug, Default, PartialEq)]
struct Received {
    samples: Vec<(Labels, i64, u64)>,
    histograms: Vec<(Labels, i64, Histogram)>,
    exemplars: Vec<(Labels, Exemplar)>,
    /// Series, time and start.
    starts: Vec<(Labels, i64, i64)>,
    metadata: Vec<(String, MetricKind, String, String)>,
}

fn labels_of(batch: &WriteBatch<'_>, series: usize) -> Labels {
    let mut pairs = Vec::new();
    (batch.parse_labels)(batch.series[series].raw_labels, &mut pairs).expect("labels");
    let text = |bytes: &[u8]| std::str::from_utf8(bytes).expect("UTF-8").to_owned();
    assert!(pairs.is_sorted_by(|a, b| a.0 < b.0), "sorted by name");
    Labels::from_pairs(pairs.into_iter().map(|(name, value)| (text(name), text(value))))
}

fn received(batch: &WriteBatch<'_>) -> Received {
    let mut found = Received::default();
    for (place, series) in batch.series.iter().enumerate() {
        let labels = labels_of(batch, place);
        for sample in &batch.samples[series.samples.clone()] {
            found.samples.push((labels.clone(), sample.at.as_ms(), sample.value.to_bits()));
        }
    }
    for sample in &batch.histograms {
        let histogram = sample.value.clone().expect("valid");
        found.histograms.push((labels_of(batch, sample.series), sample.at.as_ms(), histogram));
    }
    for exemplar in &batch.exemplars {
        let labels = Labels::from_pairs(batch.exemplar_labels[exemplar.labels.clone()].iter().copied());
        let (value, at) = (exemplar.value, exemplar.at);
        found.exemplars.push((labels_of(batch, exemplar.series), Exemplar { labels, value, at }));
    }
    for start in &batch.starts {
        found.starts.push((labels_of(batch, start.series), start.at.as_ms(), start.start.as_ms()));
    }
    for MetricMetadata { name, kind, help, unit } in &batch.metadata {
        found.metadata.push(((*name).to_owned(), *kind, (*help).to_owned(), (*unit).to_owned()));
    }
    found
}

/// The expected content.
fn expected(all: &[Sent], version: WriteVersion) -> Received {
    let mut found = Received::default();
    for sent in all {
        let labels = &sent.labels;
        let with_start = |at: Timestamp| (labels.clone(), at.as_ms(), sent.outgoing().start_of(at));
        let times = sent.samples.iter().map(|sample| sample.at);
        let mut starts: Vec<_> = times.chain(sent.histograms.iter().map(|(at, _)| *at)).collect();
        starts.sort_unstable();
        if version == WriteVersion::V2 {
            found.starts.extend(starts.into_iter().map(with_start).filter(|(_, _, start)| *start != 0));
        }
        let sample = |sample: &Sample| (labels.clone(), sample.at.as_ms(), sample.value.to_bits());
        found.samples.extend(sent.samples.iter().map(sample));
        let histogram = |(at, value): &(Timestamp, Histogram)| (labels.clone(), at.as_ms(), value.clone());
        found.histograms.extend(sent.histograms.iter().map(histogram));
        found.exemplars.extend(sent.exemplars.iter().map(|exemplar| (labels.clone(), exemplar.clone())));
        if let Some((kind, help, unit)) = &sent.metadata {
            let name = labels.value(METRIC_NAME).to_owned();
            if !found.metadata.iter().any(|(known, ..)| *known == name) {
                found.metadata.push((name, *kind, help.clone(), unit.clone()));
            }
        }
    }
    found
}

fn encoded(all: &[Sent], version: WriteVersion, compression: BodyCompression) -> EncodedRequest {
    let mut encoder = RequestEncoder::new(version, compression, RequestEncoder::BYTES_MAX);
    all.iter().for_each(|sent| encoder.push(&sent.outgoing()).expect("fits"));
    let bytes = encoder.plain_bytes();
    let request = encoder.finish().expect("compresses");
    assert_eq!(request.plain_bytes, bytes);
    request
}

fn decoded(body: &[u8], version: WriteVersion) -> Received {
    let mut scratch = DecodeScratch::default();
    let limits = DecodeLimits::default();
    let batch = match version {
        WriteVersion::V1 => remote_write::decode(body, &limits, &mut scratch),
        WriteVersion::V2 => remote_write2::decode(body, &limits, &mut scratch),
    };
    received(&batch.expect("decodes"))
}

fn plain(request: &EncodedRequest) -> Vec<u8> {
    snap::raw::Decoder::new().decompress_vec(&request.body).expect("snappy")
}

fn at(ms: i64) -> Timestamp {
    Timestamp::from_ms(ms)
}

fn integer_histogram(count: u64) -> Histogram {
    let (positive, negative) = (
        vec![BucketSpan { offset: -2, length: 2 }, BucketSpan { offset: 3, length: 1 }],
        vec![BucketSpan { offset: 1, length: 1 }],
    );
    let shape = HistogramShape::new(3, 0.001, Vec::new(), positive, negative).expect("valid");
    let counts = HistogramCounts::Integer { count, zero: 1, buckets: vec![5, 2, 7, count - 15] };
    Histogram::new(Arc::new(shape), CounterReset::NotReset, 18.5, counts).expect("valid")
}

fn custom_histogram() -> Histogram {
    let spans = vec![BucketSpan { offset: 0, length: 3 }];
    let shape = HistogramShape::new(-53, 0.0, vec![0.1, 1.0], spans, Vec::new()).expect("valid");
    let counts = HistogramCounts::Float { count: 4.5, zero: 0.0, buckets: vec![0.5, 0.0, 4.0] };
    Histogram::new(Arc::new(shape), CounterReset::Gauge, -0.0, counts).expect("valid")
}

/// The series of the golden requests.
fn golden() -> Vec<Sent> {
    let counter = Sent {
        labels: Labels::from_pairs([(METRIC_NAME, "requests_total"), ("job", "api"), ("path", "/ä")]),
        samples: vec![
            Sample { at: at(1_700_000_000_000), value: 1.5 },
            Sample { at: at(1_700_000_015_000), value: 0.0 },
            Sample { at: at(-1), value: crate::model::stale_nan() },
        ],
        exemplars: vec![Exemplar {
            labels: Labels::from_pairs([("trace_id", "4bf92f3577b34da6")]),
            value: 0.25,
            at: at(1_700_000_000_001),
        }],
        starts: vec![StartChange { at: at(-2), start: at(1_699_999_990_000) }],
        metadata: Some((MetricKind::Counter, "Requests.".into(), "requests".into())),
        ..Sent::default()
    };
    let histogram = Sent {
        labels: Labels::from_pairs([(METRIC_NAME, "latency_seconds"), ("job", "api")]),
        histograms: vec![(at(1_700_000_000_000), integer_histogram(20)), (at(0), custom_histogram())],
        ..Sent::default()
    };
    vec![counter, histogram]
}

/// The golden series, encoded by Google's protobuf library from `prompb/types.proto`.
const GOLDEN_V1: &str = "0a96010a1a0a085f5f6e616d655f5f120e72657175657374735f746f74616c0a0a0a036a6f6212036170690a0b0a\
     047061746812032fc3a4121009000000000000f83f1080d095ffbc3112071098c596ffbc31121409020000000000\
     f07f10ffffffffffffffffff011a2e0a1c0a0874726163655f696412103462663932663335373762333464613611\
     000000000000d03f1881d095ffbc310ab8010a1b0a085f5f6e616d655f5f120f6c6174656e63795f7365636f6e64\
     730a0a0a036a6f621203617069223b0814190000000000803240200629fca9f1d24d62503f30014204080210014a\
     010a5a04080310025a040806100162030a050a70027880d095ffbc31225011000000000000124019000000000000\
     008020693900000000000000005a0210036a18000000000000e03f00000000000000000000000000001040700382\
     01109a9999999999b93f000000000000f03f1a270801120e72657175657374735f746f74616c2209526571756573\
     74732e2a087265717565737473";

/// The definitions of `prompb/io/prometheus/write/v2/types.proto`.
const GOLDEN_V2: &str = "220022085f5f6e616d655f5f220e72657175657374735f746f74616c22036a6f6222036170692204706174682203\
     2fc3a4220874726163655f6964221034626639326633353737623334646136220952657175657374732e22087265\
     717565737473220f6c6174656e63795f7365636f6e64732a730a06010203040506121709000000000000f83f1080\
     d095ffbc3118f08195ffbc31120e1098c596ffbc3118f08195ffbc31121b09020000000000f07f10ffffffffffff\
     ffffff0118f08195ffbc3122140a02070811000000000000d03f1881d095ffbc312a0608011809200a30f08195ff\
     bc312a95010a04010b03041a3b0814190000000000803240200629fca9f1d24d62503f30014204080210014a010a\
     5a04080310025a040806100162030a050a70027880d095ffbc311a50110000000000001240190000000000000080\
     20693900000000000000005a0210036a18000000000000e03f000000000000000000000000000010407003820110\
     9a9999999999b93f000000000000f03f";

#[test]
fn requests_have_the_bytes_of_an_official_encoder() {
    let hex = |bytes: &[u8]| data_encoding::HEXLOWER.encode(bytes);
    for (version, expected) in [(WriteVersion::V1, GOLDEN_V1), (WriteVersion::V2, GOLDEN_V2)] {
        let request = encoded(&golden(), version, BodyCompression::Snappy);
        assert_eq!(hex(&plain(&request)), expected, "{version:?}");
        let counts = EncodedCounts { series: 2, samples: 3, histograms: 2, exemplars: 1 };
        assert_eq!(request.counts, counts);
    }
}

#[test]
fn a_zstd_body_holds_the_same_message() {
    for version in [WriteVersion::V1, WriteVersion::V2] {
        let snappy = encoded(&golden(), version, BodyCompression::Snappy);
        let zstd = encoded(&golden(), version, BodyCompression::Zstd);
        let message = zstd::bulk::decompress(&zstd.body, zstd.plain_bytes).expect("zstd");
        assert_eq!(message, plain(&snappy));
    }
}

#[test]
fn a_negative_zero_keeps_its_sign() {
    let samples = vec![Sample { at: at(0), value: -0.0 }, Sample { at: at(1), value: 0.0 }];
    let sent = [Sent { labels: Labels::from_pairs([(METRIC_NAME, "x")]), samples, ..Sent::default() }];
    for version in [WriteVersion::V1, WriteVersion::V2] {
        let request = encoded(&sent, version, BodyCompression::Snappy);
        assert_eq!(decoded(&request.body, version), expected(&sent, version));
    }
}

#[test]
fn samples_and_histograms_of_a_series_stay_in_order_of_time() {
    let sample = |ms| Sample { at: at(ms), value: 1.0 };
    let histogram = |ms| (at(ms), integer_histogram(16));
    let sent = Sent {
        labels: Labels::from_pairs([(METRIC_NAME, "x")]),
        samples: vec![sample(1), sample(2), sample(5), sample(8)],
        histograms: vec![histogram(2), histogram(3), histogram(7), histogram(9)],
        exemplars: vec![Exemplar { labels: Labels::default(), value: 1.0, at: at(4) }],
        starts: vec![StartChange { at: at(9), start: at(8) }],
        ..Sent::default()
    };
    let runs = |with_starts| {
        let mut runs = Vec::new();
        each_run(&sent.outgoing(), with_starts, |run| {
            let samples: Vec<i64> = run.samples.iter().map(|sample| sample.at.as_ms()).collect();
            let histograms: Vec<i64> = run.histograms.iter().map(|(at, _)| at.as_ms()).collect();
            runs.push((samples, histograms, run.start_ms, run.exemplars.len()));
        });
        runs
    };
    let first = [
        (vec![1, 2], vec![], 0, 0),
        (vec![], vec![2, 3], 0, 0),
        (vec![5], vec![], 0, 0),
        (vec![], vec![7], 0, 0),
        (vec![8], vec![], 0, 0),
    ];
    let last = [(vec![], vec![9], 8, 1)];
    assert_eq!(runs(true), [&first[..], &last].concat());
    assert_eq!(runs(false).last(), Some(&(vec![], vec![9], 0, 1)));
}

#[test]
fn a_series_that_does_not_fit_leaves_the_request_as_it_was() {
    let all = golden();
    for version in [WriteVersion::V1, WriteVersion::V2] {
        let alone = encoded(&all[..1], version, BodyCompression::Snappy);
        let mut encoder = RequestEncoder::new(version, BodyCompression::Snappy, alone.plain_bytes);
        encoder.push(&all[0].outgoing()).expect("fits");
        for other in (0..1_000).map(|number| format!("metric_{number}")) {
            let labels = Labels::from_pairs([(METRIC_NAME, other.as_str()), ("job", "api")]);
            let sent = Sent { labels, ..all[1].clone() };
            let full = encoder.push(&sent.outgoing()).expect_err("full");
            assert!(full.needed > full.bytes_max && full.bytes_max == alone.plain_bytes);
        }
        assert!(!encoder.is_empty());
        let request = encoder.finish().expect("compresses");
        assert_eq!(request, alone, "{version:?}");
        assert!(encoder.is_empty());
        assert!(RequestEncoder::new(version, BodyCompression::Snappy, 10).push(&all[1].outgoing()).is_err());
    }
}

#[test]
fn a_metric_is_described_once_in_a_request_of_version_1() {
    let describe = |path: &str, kind| Sent {
        labels: Labels::from_pairs([(METRIC_NAME, "x"), ("path", path)]),
        metadata: Some((kind, "Help.".into(), String::new())),
        ..Sent::default()
    };
    let all = [describe("/a", MetricKind::Counter), describe("/b", MetricKind::Counter)];
    let request = encoded(&all, WriteVersion::V1, BodyCompression::Snappy);
    assert_eq!(decoded(&request.body, WriteVersion::V1), expected(&all[..1], WriteVersion::V1));
}

#[test]
fn many_symbols_are_found_again() {
    let mut table = SymbolTable::default();
    table.clear();
    let text = |number: u64| format!("text {number}");
    for number in 0..10_000 {
        assert_eq!(table.insert(&text(number)), (number, true));
    }
    table.truncate(5_000);
    for number in 0..10_000 {
        assert_eq!(table.insert(&text(number)), (number, number >= 5_000));
    }
    table.clear();
    assert_eq!(table.insert(&text(7)), (0, true));
}

fn arb_labels(names: std::ops::Range<usize>) -> impl Strategy<Value = Labels> {
    prop::collection::vec(("[a-z]{1,3}", "[a-zä]{0,40}"), names).prop_map(Labels::from_pairs)
}

/// Ascending times.
fn arb_times(count: std::ops::Range<usize>) -> impl Strategy<Value = Vec<Timestamp>> {
    prop::collection::btree_set(-1_000i64..2_000_000_000_000, count)
        .prop_map(|times| times.into_iter().map(Timestamp::from_ms).collect())
}

fn arb_histogram() -> impl Strategy<Value = Histogram> {
    let buckets = || prop::collection::vec(0u64..1 << 40, 0..6);
    let counts = (buckets(), buckets(), 0u64..9, any::<bool>(), any::<bool>());
    let shape = (-4i32..=8, -5i32..5, 0i32..5, 0.0f64..1.0, 0u8..4, any::<u64>());
    (counts, shape).prop_map(|((positive, negative, zero, is_float, is_custom), shape)| {
        let (schema, offset, gap, threshold, reset, sum) = shape;
        let spans = |offset: i32, count: usize| match u32::try_from(count).expect("small") {
            0 => Vec::new(),
            1 => vec![BucketSpan { offset, length: 1 }],
            count => {
                vec![BucketSpan { offset, length: 1 }, BucketSpan { offset: gap, length: count - 1 }]
            }
        };
        let reset = CounterReset::from_number(reset).expect("exists");
        #[expect(clippy::cast_precision_loss, reason = "any number does")]
        let floats = |buckets: &[u64]| buckets.iter().map(|count| *count as f64 / 3.0).collect();
        if is_custom {
            let bounds = (0..20u32).map(f64::from).collect();
            let positive_spans = spans(offset.max(0), positive.len());
            let shape = HistogramShape::new(-53, 0.0, bounds, positive_spans, Vec::new()).expect("valid");
            let counts = HistogramCounts::Float { count: 0.5, zero: 0.0, buckets: floats(&positive) };
            return Histogram::new(Arc::new(shape), reset, f64::from_bits(sum), counts).expect("valid");
        }
        let (of_positive, of_negative) = (spans(offset, positive.len()), spans(offset, negative.len()));
        let shape =
            HistogramShape::new(schema, threshold, Vec::new(), of_positive, of_negative).expect("valid");
        let buckets = [positive, negative].concat();
        let count = buckets.iter().sum::<u64>() + zero;
        let counts = if is_float {
            HistogramCounts::Float { count: -0.0, zero: f64::NAN, buckets: floats(&buckets) }
        } else {
            HistogramCounts::Integer { count, zero, buckets }
        };
        Histogram::new(Arc::new(shape), reset, f64::from_bits(sum), counts).expect("valid")
    })
}

fn arb_sent() -> impl Strategy<Value = Sent> {
    let samples = (arb_times(0..8), prop::collection::vec(any::<u64>(), 8));
    let histograms = (arb_times(0..3), prop::collection::vec(arb_histogram(), 3));
    let exemplars = (arb_times(0..3), prop::collection::vec((arb_labels(0..3), any::<u64>()), 3));
    let starts = (arb_times(0..3), prop::collection::vec(-5i64..2_000_000_000_000, 3));
    let metadata = prop::option::of((1u8..8, "[a-z ]{0,9}", "[a-z]{0,3}"));
    let parts = (arb_labels(1..12), samples, histograms, exemplars, starts, metadata);
    parts.prop_map(|(labels, samples, histograms, exemplars, starts, metadata)| {
        let sample = |(at, bits)| Sample { at, value: f64::from_bits(bits) };
        let exemplar = |(at, (labels, bits))| Exemplar { labels, value: f64::from_bits(bits), at };
        Sent {
            labels: labels.to_builder().set(METRIC_NAME, "gauge").clone().build(),
            samples: samples.0.into_iter().zip(samples.1).map(sample).collect(),
            histograms: histograms.0.into_iter().zip(histograms.1).collect(),
            exemplars: exemplars.0.into_iter().zip(exemplars.1).map(exemplar).collect(),
            starts: starts
                .0
                .into_iter()
                .zip(starts.1)
                .map(|(at, start)| StartChange { at, start: Timestamp::from_ms(start) })
                .collect(),
            // A gauge: its family has the name of its series.
            metadata: metadata.map(|(_, help, unit)| (MetricKind::Gauge, help, unit)),
        }
    })
}

proptest! {
    #[test]
    fn a_decoder_finds_exactly_what_was_pushed(
        all in prop::collection::vec(arb_sent(), 0..6),
        is_v2: bool,
    ) {
        let version = if is_v2 { WriteVersion::V2 } else { WriteVersion::V1 };
        // A receiver skips series without data, with their metadata in version 2.0.
        let has_data = |sent: &Sent| {
            !sent.samples.is_empty() || !sent.histograms.is_empty() || !sent.exemplars.is_empty()
        };
        let mut all: Vec<Sent> = all.into_iter().filter(has_data).collect();
        // Version 2.0 repeats the description of a metric with each series; ours is sent once here.
        all.iter_mut().skip(1).for_each(|sent| sent.metadata = None);
        if all.is_empty() {
            return Ok(());
        }
        let request = encoded(&all, version, BodyCompression::Snappy);
        let mut found = decoded(&request.body, version);
        found.starts.sort_by(|a, b| (&a.0, a.1).cmp(&(&b.0, b.1)));
        let mut wanted = expected(&all, version);
        wanted.starts.sort_by(|a, b| (&a.0, a.1).cmp(&(&b.0, b.1)));
        prop_assert_eq!(found, wanted);
    }

    #[test]
    fn kept_label_fields_change_no_byte(all in prop::collection::vec(arb_sent(), 0..6), is_v2: bool) {
        let version = if is_v2 { WriteVersion::V2 } else { WriteVersion::V1 };
        let mut encoder = RequestEncoder::new(version, BodyCompression::Snappy, RequestEncoder::BYTES_MAX);
        // Twice: an encoder uses its buffers again.
        for _ in 0..2 {
            for sent in &all {
                let fields = label_fields(&sent.labels);
                prop_assert_eq!(&labels_of_fields(&fields), &sent.labels);
                encoder.push(&OutgoingSeries { label_fields: &fields, ..sent.outgoing() }).unwrap();
            }
            prop_assert_eq!(&encoder.finish().unwrap(), &encoded(&all, version, BodyCompression::Snappy));
        }
    }
}
