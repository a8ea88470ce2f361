//! Tests of histogram blocks: golden bytes, round trips, damage and sizes.

use proptest::prelude::*;

use super::*;

/// Returns both blocks, and the length of the time block.
fn blocks(series: u32, histograms: &[Histogram]) -> (Vec<u8>, usize) {
    let samples: Vec<(i64, &Histogram)> = (0..).step_by(15_000).zip(histograms).collect();
    let mut out = Vec::new();
    assert_eq!(put(&mut out, series, &samples), histograms.len());
    let times = times_of(&out, &mut Vec::new()).expect("a time block");
    (out, times)
}

fn back(blocks: &[u8], series: u32) -> Result<Vec<Histogram>, Damage> {
    let mut out = HistogramColumns::default();
    of(blocks, series, &mut out).map(|()| {
        assert!(out.times.iter().copied().eq((0..).step_by(15_000).take(out.histograms.len())));
        out.histograms
    })
}

fn shape(schema: i32, offset: i32, lengths: &[u32]) -> Arc<HistogramShape> {
    let spans = || lengths.iter().map(|length| BucketSpan { offset, length: *length }).collect();
    let custom = schema == -53;
    let bounds = if custom { (0..64).map(f64::from).collect() } else { Vec::new() };
    let (threshold, negative) = if custom { (0.0, Vec::new()) } else { (1e-128, spans()) };
    Arc::new(HistogramShape::new(schema, threshold, bounds, spans(), negative).expect("valid"))
}

fn histograms() -> impl Strategy<Value = Vec<Histogram>> {
    let shapes =
        (prop::sample::select(vec![-53, -4, 0, 3, 8]), 0i32..4, prop::collection::vec(0u32..6, 0..4));
    let runs = (shapes, 1usize..30, any::<u64>(), any::<bool>(), prop::num::f64::ANY, 0u8..4);
    prop::collection::vec(runs, 1..5).prop_map(|runs| {
        let mut out = Vec::new();
        for ((schema, offset, lengths), rows, seed, float, sum, reset) in runs {
            let shape = shape(schema, offset, &lengths);
            let mut state = seed | 1;
            let mut random = move || {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state >> (seed % 40 + 20)
            };
            let mut counts = vec![0u64; shape.buckets()];
            for row in 0..rows {
                counts.iter_mut().for_each(|count| *count = count.wrapping_add(random()) >> 1);
                let zero = if schema == -53 { 0 } else { random() };
                let reset = CounterReset::from_number(reset).expect("known");
                let sum = if row % 7 == 3 { f64::from_bits(0x7ff0_0000_0000_0002) } else { sum };
                let counts = if float {
                    let buckets = counts.iter().map(|count| *count as f64 / 3.0).collect();
                    HistogramCounts::Float { count: 1.5, zero: zero as f64, buckets }
                } else {
                    let count = within(zero, &counts) + u64::from(sum.is_nan());
                    HistogramCounts::Integer { count, zero, buckets: counts.clone() }
                };
                out.push(Histogram::new(Arc::clone(&shape), reset, sum, counts).expect("valid"));
            }
        }
        out
    })
}

proptest! {
    #[test]
    fn histograms_decode_to_the_same_bits(histograms in histograms(), series: u32) {
        let (blocks, _) = blocks(series, &histograms);
        prop_assert_eq!(back(&blocks, series), Ok(histograms));
        prop_assert!(back(&blocks, series ^ 1).is_err());
    }

    #[test]
    fn hostile_histogram_blocks_never_panic(
        histograms in histograms(), at: prop::sample::Index, with: u8, cut: prop::sample::Index,
    ) {
        let (mut blocks, times) = blocks(3, &histograms);
        let length = blocks.len() - times - 4;
        blocks[times + 4 + at.index(length)] ^= with;
        blocks.truncate(blocks.len() - cut.index(length) / 8);
        set_crc(&mut blocks, times, |rest| value_crc(3, histograms.len(), rest));
        if let Ok(found) = back(&blocks, 3) {
            prop_assert_eq!(found.len(), histograms.len());
        }
    }

    #[test]
    fn any_histogram_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), count in 1usize..30) {
        let (mut blocks, times) = blocks(3, &vec![Histogram::stale(); count]);
        blocks.truncate(times + 4);
        blocks.extend_from_slice(&bytes);
        set_crc(&mut blocks, times, |rest| value_crc(3, count, rest));
        if let Ok(found) = back(&blocks, 3) {
            prop_assert_eq!(found.len(), count);
        }
    }
}

fn small() -> Vec<Histogram> {
    let shape = shape(3, 1, &[2]);
    let row = |row: u64| {
        let buckets = vec![10 + row, 4 * row, 7, row];
        let counts = HistogramCounts::Integer { count: 20 + 6 * row, zero: 3, buckets };
        Histogram::new(Arc::clone(&shape), CounterReset::Unknown, row as f64 / 4.0, counts).expect("valid")
    };
    (0..3).map(row).chain([Histogram::stale()]).collect()
}

#[test]
fn the_bytes_match_the_documented_format() {
    let drawn = [
        0x03, 0x00, 0x03, 0x9d, 0x97, 0x8c, 0xcf, 0x08, 0xba, 0x5b, 0x25, 0x00, 0x01, 0x02, 0x02, 0x01, 0x02,
        0x02, 0x04, 0x00, 0x00, 0x00, 0x06, 0x6a, 0x02, 0x00, 0x19, 0x02, 0x00, 0x04, 0x06, 0x00, 0x00, 0x05,
        0x14, 0x02, 0x00, 0x0d, 0x00, 0x04, 0x02, 0x00, 0x04, 0x0e, 0x00, 0x00, 0x05, 0x00, 0x02, 0x00, 0x04,
        0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
        0x00, 0x00, 0x09, 0x00, 0x7f, 0xf0, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x00, 0x00, 0x00, 0x00,
    ];
    let (blocks, times) = blocks(7, &small());
    let block = &blocks[times..];
    assert_eq!(block[4..], drawn, "{:#04x?}", &block[4..]);
    assert_eq!(block[..4], value_crc(7, 4, &drawn).to_le_bytes());
}

#[test]
fn every_flipped_bit_and_every_truncation_is_detected() {
    let (blocks, _) = blocks(7, &small());
    for bit in 0..blocks.len() * 8 {
        let mut damaged = blocks.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(back(&damaged, 7).is_err(), "bit {bit}");
    }
    for cut in 0..blocks.len() {
        assert!(back(&blocks[..cut], 7).is_err(), "cut at {cut}");
    }
    let mut out = HistogramColumns::default();
    out.push(1, Histogram::stale());
    assert!(of(&blocks[..40], 7, &mut out).is_err());
    assert_eq!(out.len(), 1, "what was there stays");
}

#[test]
fn a_block_takes_at_most_its_limit_of_cells() {
    let wide = shape(8, 0, &[1_000]);
    let counts = HistogramCounts::Integer { count: 0, zero: 0, buckets: vec![0; wide.buckets()] };
    let one = Histogram::new(wide, CounterReset::Gauge, 0.0, counts).expect("valid");
    let dated = |histogram| (0i64..2_000).map(|at| (at, histogram)).collect::<Vec<(i64, &Histogram)>>();
    let mut out = Vec::new();
    assert_eq!(put(&mut out, 1, &dated(&one)), CELLS_MAX / 2_006);
    let mut columns = HistogramColumns::default();
    assert_eq!(of(&out, 1, &mut columns), Ok(()));
    assert_eq!(columns.histograms, vec![one.clone(); CELLS_MAX / 2_006]);
    assert_eq!(put(&mut out, 1, &dated(&Histogram::stale())), BLOCK_SAMPLES);
    assert_eq!(put(&mut out, 1, &[]), 0);
}

/// The latency of a service for an hour: forty buckets, most of which change now and then.
#[test]
fn an_ordinary_histogram_series_is_small() {
    let shape = shape(3, 1, &[20]);
    let mut counts = vec![0u64; 40];
    let mut rows = Vec::new();
    for row in 0..240u64 {
        for (bucket, count) in (0u64..).zip(&mut counts) {
            *count += (row * row + bucket * 7_919).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 59 & bucket;
        }
        let counts =
            HistogramCounts::Integer { count: within(row, &counts), zero: row, buckets: counts.clone() };
        let sum = row as f64 * 12.25;
        rows.push(Histogram::new(Arc::clone(&shape), CounterReset::NotReset, sum, counts).expect("valid"));
    }
    let bytes = blocks(1, &rows).0.len();
    assert!(bytes < 240 * 24, "{bytes} bytes for {} counts", 240 * 42);
}
