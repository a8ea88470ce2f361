//! Chunks of Prometheus, encoded chunks, and hostile bytes.

#![expect(clippy::arithmetic_side_effects, reason = "tests compute with small numbers")]

use std::sync::Arc;

use proptest::prelude::*;

use super::bit_writer::BitWriter;
use super::*;
use crate::model::{
    BucketSpan, CUSTOM_BUCKETS_SCHEMA, CounterReset, HistogramCounts, HistogramShape, STALE_NAN_BITS,
    is_stale,
};

/// The encoding and the bytes of chunks that Prometheus 3.5.3 has written: floats with a staleness
/// marker and a NaN with a payload, histograms with a marker and a changed layout, custom bounds,
/// float histograms and gauge histograms.
const WRITTEN_BY_PROMETHEUS: &[(u64, &str)] = &[
    (
        1,
        "\
        0008f08a889fc3683ff00000000000009875c26fff6001f07fff7b333333333336ffcac0499999999999\
        998753f00000000000000014038fc8791000eb3b715a23e3fe43c8800759d00038beffc0000000000004\
        ",
    ),
    (
        1,
        "\
        0001f08a889fc3683ff0000000000000\
        ",
    ),
    (
        2,
        "\
        000400ff3f50624dd2f1a9fc9ca578cdfc00034433e19041789ffc0000000000004631f83a989309dffe\
        c57100063e0ea60c5effe8000000000004\
        ",
    ),
    (
        2,
        "\
        000200ff3f50624dd2f1a9fc9ca778ca318ff0000d10cf8f68c5227fc000000000000115e2f83a98c2b6\
        034620\
        ",
    ),
    (
        2,
        "\
        00020000ee5c664ede3e9200e3f359ff4fd6dff0000d10cf86410587fe000000000000118c7e0ea624c2\
        5fff8ae0\
        ",
    ),
    (
        3,
        "\
        000300748ca48c5fc00034433e1904080180000000000007fc00000000000007fe80000000000007fe00\
        000000000007ff00000000000007fc0000000000001f07531ac4f6137ffbb01b5836d0fec07000d84cff\
        f0\
        ",
    ),
    (
        2,
        "\
        0003c0ff3f50624dd2f1a9fc9c647f0000d10cf86410547fe000000000000128fc1d4c59ac1dcc43095f\
        fd00\
        ",
    ),
];

fn bytes(hex: &str) -> Vec<u8> {
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).expect("ASCII"), 16).expect("hex");
    hex.as_bytes().chunks(2).map(byte).collect()
}

fn decoded(kind: ChunkKind, data: &[u8]) -> Result<Vec<(i64, ChunkSample)>, ChunkError> {
    let mut found = Vec::new();
    decode::<ChunkError>(kind, data, |at, sample| {
        found.push((at, sample));
        Ok(())
    })?;
    Ok(found)
}

/// Encodes samples in as many chunks as they need.
fn encoded(samples: &[(i64, ChunkSample)]) -> Vec<EncodedChunk> {
    let (mut chunk, mut all) = (ChunkEncoder::default(), Vec::new());
    for (at, sample) in samples {
        if !chunk.push(*at, sample) {
            all.extend(chunk.take());
            assert!(chunk.push(*at, sample), "an empty chunk takes every sample");
        }
    }
    all.extend(chunk.take());
    all
}

#[test]
fn chunks_of_prometheus_are_encoded_again_to_the_same_bytes() {
    for (number, hex) in WRITTEN_BY_PROMETHEUS {
        let (kind, data) = (ChunkKind::of(*number).expect("known"), bytes(hex));
        let samples = decoded(kind, &data).expect("a chunk");
        let again = encoded(&samples);
        assert_eq!(again.len(), 1, "{hex}");
        assert_eq!((again[0].kind, &again[0].data), (kind, &data));
        assert_eq!(usize::from(again[0].samples), samples.len());
        assert_eq!((again[0].first_ms, again[0].last_ms), (samples[0].0, samples[samples.len() - 1].0));
    }
}

#[test]
fn a_chunk_that_ends_early_is_truncated_at_every_byte() {
    for (number, hex) in WRITTEN_BY_PROMETHEUS {
        let (kind, data) = (ChunkKind::of(*number).expect("known"), bytes(hex));
        // The last byte may be padding only.
        for length in 0..data.len() - 1 {
            let refused = decoded(kind, &data[..length]);
            assert!(matches!(refused, Err(ChunkError::Truncated)), "{length} of {hex}: {refused:?}");
        }
    }
}

#[test]
fn a_layout_that_declares_more_spans_or_buckets_than_there_may_be_is_refused_before_it_is_allocated() {
    for (spans, length) in [(1_u64 << 40, 1_u64), (1, 1 << 40), (3, 4_000)] {
        let mut bits = BitWriter::default();
        bits.byte(0);
        bits.varbit_int(0);
        bits.varbit_uint(spans);
        for _ in 0..spans.min(8) {
            bits.varbit_uint(length);
            bits.varbit_int(1);
        }
        bits.varbit_uint(0);
        (0..64).for_each(|_| bits.byte(0));
        let chunk = [&[0, 1, 0][..], &bits.finish()].concat();
        let refused = decoded(ChunkKind::Histograms, &chunk).expect_err("refused");
        assert!(matches!(refused, ChunkError::Invalid(_) | ChunkError::Histogram(_)), "{refused}");
    }
}

#[test]
fn a_histogram_starts_a_new_chunk_where_prometheus_starts_one() {
    let of = |which: usize, float: bool, reset: CounterReset| {
        ChunkSample::Native(native(&shape(which), float, &[3, 1, 4], 1.5, reset))
    };
    let first = of(0, false, CounterReset::Unknown);
    let marker = ChunkSample::Native(Histogram::stale());
    for (next, fits) in [
        (of(0, false, CounterReset::NotReset), true),
        (of(0, false, CounterReset::Unknown), false),
        (of(0, false, CounterReset::Reset), false),
        (of(0, false, CounterReset::Gauge), false),
        (of(1, false, CounterReset::NotReset), false),
        (of(0, true, CounterReset::NotReset), false),
        (ChunkSample::Float(1.0), false),
        (marker.clone(), true),
    ] {
        let mut chunk = ChunkEncoder::default();
        assert!(chunk.push(1, &first));
        assert_eq!(chunk.push(2, &next), fits, "{next:?}");
        if next == marker {
            assert!(!chunk.push(3, &of(0, false, CounterReset::NotReset)), "a marker ends the chunk");
            assert!(chunk.push(3, &marker));
        }
    }
}

#[test]
fn a_chunk_takes_as_many_samples_as_its_counter_can_count() {
    let mut chunk = ChunkEncoder::default();
    assert!((0..i64::from(u16::MAX)).all(|at| chunk.push_float(at, 1.0)));
    assert!(!chunk.push_float(1 << 20, 1.0));
    let chunk = chunk.take().expect("samples");
    assert_eq!(decoded(chunk.kind, &chunk.data).expect("a chunk").len(), 65_535);
}

fn native(
    shape: &Arc<HistogramShape>,
    float: bool,
    seed: &[u16],
    sum: f64,
    reset: CounterReset,
) -> Histogram {
    let count = |index: usize| u64::from(seed[index % seed.len()]);
    let buckets: Vec<u64> = (0..shape.buckets()).map(count).collect();
    let zero = if shape.is_custom() { 0 } else { count(7) };
    let total = zero + buckets.iter().sum::<u64>();
    let half = |count: u64| count as f64 / 2.0;
    let counts = if float {
        let buckets = buckets.into_iter().map(half).collect();
        HistogramCounts::Float { count: half(total), zero: half(zero), buckets }
    } else {
        HistogramCounts::Integer { count: total, zero, buckets }
    };
    Histogram::new(Arc::clone(shape), reset, sum, counts).expect("valid")
}

fn shape(number: usize) -> Arc<HistogramShape> {
    let span = |(offset, length)| BucketSpan { offset, length };
    let spans = |all: &[(i32, u32)]| all.iter().copied().map(span).collect::<Vec<_>>();
    let (schema, zero, custom, positive, negative): (_, _, &[f64], &[_], &[_]) = match number {
        0 => (3, 0.001, &[], &[(-2, 3), (0, 0), (4, 2)], &[(1, 1)]),
        1 => (-4, 0.25, &[], &[], &[(-900, 2)]),
        2 => (CUSTOM_BUCKETS_SCHEMA, 0.0, &[-0.5, -0.0, 1.0, 33_554.431, 40_000.0], &[(1, 3)], &[]),
        3 => (2, 1_024.0, &[], &[(1, 1)], &[]),
        _ => (8, f64::MIN_POSITIVE, &[], &[(100_000, 1)], &[]),
    };
    let shape = HistogramShape::new(schema, zero, custom.to_vec(), spans(positive), spans(negative));
    Arc::new(shape.expect("valid"))
}

fn times() -> impl Strategy<Value = Vec<i64>> {
    let regular = (
        any::<i32>(),
        1i64..100_000,
        prop::collection::vec(prop_oneof![9 => Just(0i64), 1 => -3i64..90_000], 1..60),
    );
    prop_oneof![
        prop::collection::vec(any::<i64>(), 1..40),
        regular.prop_map(|(start, step, jitters)| {
            let mut now = i64::from(start);
            jitters
                .into_iter()
                .map(|jitter| {
                    now += step + jitter;
                    now
                })
                .collect()
        }),
    ]
}

fn value() -> impl Strategy<Value = f64> {
    prop_oneof![
        any::<u64>().prop_map(f64::from_bits),
        (0u32..1_000).prop_map(f64::from),
        (-100i32..100).prop_map(|tenths| f64::from(tenths) / 10.0),
        Just(f64::from_bits(STALE_NAN_BITS)),
        Just(f64::from_bits(0x7ff8_0000_0000_0001)),
    ]
}

proptest! {
    #[test]
    fn encoded_float_chunks_are_decoded_bit_by_bit(times in times(), values in prop::collection::vec(value(), 60)) {
        let samples: Vec<(i64, ChunkSample)> =
            times.into_iter().zip(values).map(|(at, value)| (at, ChunkSample::Float(value))).collect();
        let chunks = encoded(&samples);
        prop_assert_eq!(chunks.len(), 1);
        let found = decoded(ChunkKind::Floats, &chunks[0].data).expect("a chunk");
        prop_assert_eq!(bits_of(&found), bits_of(&samples));
    }

    #[test]
    fn encoded_histogram_chunks_are_decoded_bit_by_bit(
        times in times(),
        parts in prop::collection::vec((0usize..5, any::<bool>(), 0u8..4, prop::collection::vec(any::<u16>(), 9), value(), 0u8..8), 60),
        is_steady: bool,
    ) {
        let (steady_shape, steady_float) = (parts[0].0, parts[0].1);
        let samples: Vec<(i64, ChunkSample)> = times.into_iter().zip(parts).map(|(at, (which, float, reset, seed, sum, stale))| {
            if stale == 0 || is_stale(sum) {
                return (at, ChunkSample::Native(Histogram::stale()));
            }
            let (which, float, reset) = if is_steady { (steady_shape, steady_float, 2) } else { (which, float, reset) };
            let reset = CounterReset::from_number(reset).expect("a hint");
            (at, ChunkSample::Native(native(&shape(which), float, &seed, sum, reset)))
        }).collect();
        let mut found = Vec::new();
        for chunk in encoded(&samples) {
            let some = decoded(chunk.kind, &chunk.data).expect("a chunk");
            prop_assert_eq!(some.len(), usize::from(chunk.samples));
            found.extend(some);
        }
        prop_assert_eq!(found, samples);
    }

    #[test]
    fn arbitrary_bytes_never_panic_the_decoder_of_chunks(
        data in prop::collection::vec(any::<u8>(), 0..300),
        which in 0usize..7,
        place: prop::sample::Index,
        bit in 0u8..8,
    ) {
        for kind in [ChunkKind::Floats, ChunkKind::Histograms, ChunkKind::FloatHistograms] {
            let _ = decoded(kind, &data);
        }
        let (number, hex) = WRITTEN_BY_PROMETHEUS[which];
        let mut broken = bytes(hex);
        let place = place.index(broken.len());
        broken[place] ^= 1 << bit;
        let _ = decoded(ChunkKind::of(number).expect("known"), &broken);
    }
}

/// Returns times and values as numbers, because a NaN does not equal itself.
fn bits_of(samples: &[(i64, ChunkSample)]) -> Vec<(i64, u64)> {
    let bits = |sample: &ChunkSample| match sample {
        ChunkSample::Float(value) => value.to_bits(),
        ChunkSample::Native(histogram) => histogram.sum().to_bits(),
    };
    samples.iter().map(|(at, sample)| (*at, bits(sample))).collect()
}
