//! Tests of blocks: exact decoding, golden bytes, and the detection of damage.

use proptest::prelude::*;

use super::*;

const STALE: u64 = 0x7ff0_0000_0000_0002;

fn time_block(times: &[i64]) -> Vec<u8> {
    let mut out = Vec::new();
    put_times(&mut out, times);
    out
}

fn value_block(series: u32, values: &[u64]) -> Vec<u8> {
    let mut out = Vec::new();
    ValueEncoder::default().put_values(&mut out, series, values);
    out
}

fn times_back(block: &[u8]) -> Result<Vec<i64>, Damage> {
    let mut out = Vec::new();
    let used = times_of(block, &mut out)?;
    assert_eq!(used, block.len());
    Ok(out)
}

fn values_back(block: &[u8], series: u32, count: usize) -> Result<Vec<u64>, Damage> {
    let mut out = Vec::new();
    values_within(block, series, count, 0..count, &mut out)?;
    Ok(out.into_iter().map(f64::to_bits).collect())
}

fn bits(values: &[f64]) -> Vec<u64> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// Values as monitored machines send them or could send them: steady, noisy, rare, few, decimal,
/// float, any bits.
fn values() -> impl Strategy<Value = Vec<u64>> {
    let lengths = prop_oneof![1usize..20, 100usize..140, 1usize..=BLOCK_SAMPLES];
    let shapes = (0u8..9, any::<u64>(), 0u32..60, 0u8..19);
    (lengths, shapes, any::<u64>(), 0u8..4).prop_map(
        |(length, (shape, start, width, exponent), seed, odd)| {
            let mut state = seed | 1;
            let mut random = move || {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state
            };
            let at = |number: u64| usize::try_from(number).unwrap();
            let power = 10f64.powi(i32::from(exponent));
            let mask = (1u64 << width) - 1;
            let mut level = (start & mask) as f64;
            let mut total = start as f64;
            let next = |index: usize| {
                let noise = random();
                let small = (noise & mask) as f64;
                match shape {
                    0 => start,
                    1 => ((noise & mask) as i64 - (mask / 2) as i64).cast_unsigned(),
                    2 => (small / power).to_bits(),
                    3 => {
                        level += small;
                        (level / power).to_bits()
                    }
                    4 => {
                        level += if noise.is_multiple_of(50) { small } else { 0.0 };
                        level.to_bits()
                    }
                    5 => {
                        total += small * 1.1;
                        total.to_bits()
                    }
                    6 => [start, !start, noise & 1, STALE][at(noise % 4)],
                    7 => (level + index as f64 * f64::from(width)).to_bits(),
                    _ => noise,
                }
            };
            let mut values: Vec<u64> = (0..length).map(next).collect();
            let specials = [STALE, f64::NAN.to_bits(), (-0.0f64).to_bits(), f64::INFINITY.to_bits(), 1, 0];
            for place in 0..usize::from(odd) {
                let index = at(seed >> (8 * place)) % length;
                values[index] = specials[at(start >> place) % specials.len()];
            }
            values
        },
    )
}

/// Ascending times: regular, jittered, irregular, far apart, at both ends of the range of i64.
fn times() -> impl Strategy<Value = Vec<i64>> {
    let wild = prop::collection::btree_set(any::<i64>(), 1..=BLOCK_SAMPLES);
    let ends =
        prop::collection::btree_set(any::<i8>(), 1..200).prop_map(|ends| {
            ends.into_iter()
                .map(|end| {
                    if end < 0 { i64::MIN + (i64::from(end) + 128) } else { i64::MAX - 127 + i64::from(end) }
                })
                .collect()
        });
    let grid = (any::<i32>(), 1i64..100_000, 0i64..3_000, any::<u64>(), 1i64..=BLOCK_SAMPLES as i64)
        .prop_map(|(start, step, jitter, seed, count)| {
            let place = |index: i64| {
                let off = (seed.wrapping_mul(index as u64 | 1) >> 33) as i64 % (jitter.min(step / 2) + 1);
                i64::from(start) + index * step + off
            };
            let mut times: Vec<i64> = (0..count).map(place).collect();
            times.dedup();
            times
        });
    prop_oneof![wild.prop_map(|set| set.into_iter().collect()), ends, grid]
}

/// Checks that any part of the values can be decoded alone, and is appended to existing values.
fn check_range(
    block: &[u8],
    values: &[u64],
    a: prop::sample::Index,
    b: prop::sample::Index,
) -> Result<(), TestCaseError> {
    let (a, b) = (a.index(values.len() + 1), b.index(values.len() + 1));
    let range = a.min(b)..a.max(b);
    let mut out = vec![1.5];
    values_within(block, 9, values.len(), range.clone(), &mut out).unwrap();
    prop_assert_eq!(out.remove(0), 1.5);
    let out: Vec<u64> = out.into_iter().map(f64::to_bits).collect();
    prop_assert_eq!(&out, &values[range]);
    Ok(())
}

proptest! {
    #[test]
    fn values_decode_to_the_same_bits(values in values(), series: u32) {
        let block = value_block(series, &values);
        prop_assert!(block.len() <= values.len() * 8 + 5, "never larger than raw");
        prop_assert_eq!(values_back(&block, series, values.len()).unwrap(), values);
    }

    #[test]
    fn a_reused_encoder_writes_the_same_bytes_as_a_new_one(blocks in prop::collection::vec(values(), 1..6)) {
        let mut codec = ValueEncoder::default();
        for values in blocks {
            let mut block = Vec::new();
            codec.put_values(&mut block, 7, &values);
            prop_assert_eq!(block, value_block(7, &values));
        }
    }

    #[test]
    fn any_bit_patterns_decode_to_the_same_bits(values in prop::collection::vec(any::<u64>(), 1..300)) {
        let block = value_block(1, &values);
        prop_assert_eq!(values_back(&block, 1, values.len()).unwrap(), values);
    }

    #[test]
    fn times_decode_to_the_same_times(times in times()) {
        let block = time_block(&times);
        prop_assert_eq!(times_back(&block).unwrap(), times.clone());
        let header = time_header(&block).unwrap();
        let TimeHeader { bytes, count, first, last, step } = header;
        prop_assert_eq!((bytes, count), (block.len(), times.len()));
        prop_assert_eq!((first, last), (times[0], times[times.len() - 1]));
        if let Some(step) = step {
            prop_assert!(times.windows(2).all(|pair| pair[1] - pair[0] == step), "{step}: {times:?}");
        }
    }

    #[test]
    fn a_header_has_the_step_of_three_or_more_regular_times(
        first in -1_000_000i64..1_000_000,
        step in 1i64..100_000,
        count in 3i64..1_024,
    ) {
        let times: Vec<i64> = (0..count).map(|n| first + n * step).collect();
        prop_assert_eq!(time_header(&time_block(&times)).unwrap().step, Some(step));
    }

    #[test]
    fn any_range_of_the_values_can_be_decoded(values in values(), a: prop::sample::Index, b: prop::sample::Index) {
        check_range(&value_block(9, &values), &values, a, b)?;
    }

    /// The first version wrote forward blocks, and histograms still do.
    #[test]
    fn any_range_of_a_forward_block_can_be_decoded(values in values(), a: prop::sample::Index, b: prop::sample::Index) {
        let mut block = vec![0; 4];
        values::put(&mut block, &values, &mut values::ValueBuffers::default());
        set_crc(&mut block, 0, |rest| value_crc(9, values.len(), rest));
        prop_assert_ne!(block[4] & 7, 6);
        check_range(&block, &values, a, b)?;
    }

    /// With any damage the newest values are right or an error, and a read of the whole block
    /// detects every damage.
    #[test]
    fn a_flipped_bit_never_changes_a_decoded_value(values in values(), bit: prop::sample::Index, newest in 1usize..200) {
        let block = value_block(9, &values);
        let count = values.len();
        let flip = bit.index(block.len() * 8);
        let mut damaged = block.clone();
        damaged[flip / 8] ^= 1 << (flip % 8);
        let mut out = Vec::new();
        let range = count - newest.min(count)..count;
        if values_within(&damaged, 9, count, range.clone(), &mut out).is_ok() {
            let out: Vec<u64> = out.iter().map(|value| value.to_bits()).collect();
            prop_assert_eq!(&out, &values[range]);
        } else {
            prop_assert!(out.is_empty());
        }
        prop_assert!(values_back(&damaged, 9, count).is_err());
        prop_assert!(verified(&damaged, 9, count).is_err());
    }

    #[test]
    fn adjacent_time_blocks_are_decoded_separately(times_a in times(), times_b in times()) {
        let mut out = time_block(&times_a);
        let first = out.len();
        put_times(&mut out, &times_b);
        let mut back = Vec::new();
        prop_assert_eq!(times_of(&out, &mut back), Ok(first));
        times_of(&out[first..], &mut back).unwrap();
        prop_assert_eq!(back, [times_a, times_b].concat());
    }

    /// Hostile bytes with a matching checksum may give any result except a panic or more values
    /// than the block may hold.
    #[test]
    fn hostile_value_blocks_never_panic(
        body in prop::collection::vec(any::<u8>(), 0..600), kind in 0u8..8, count in 1usize..=BLOCK_SAMPLES,
    ) {
        let mut block = vec![0; 4];
        block.extend_from_slice(&body);
        if let Some(tag) = block.get_mut(4) {
            *tag = *tag & !7 | kind;
        }
        set_crc(&mut block, 0, |rest| value_crc(3, count, rest));
        let mut out = Vec::new();
        let answer = values_within(&block, 3, count, 0..count, &mut out);
        prop_assert_eq!(out.len(), if answer.is_ok() { count } else { 0 });
        let mut out = Vec::new();
        if values_within(&block, 3, count, 1..count / 2, &mut out).is_ok() {
            prop_assert_eq!(out.len(), (count / 2).saturating_sub(1));
        }
        let mut out = Vec::new();
        let newest = values_within(&block, 3, count, count.saturating_sub(9)..count, &mut out);
        prop_assert_eq!(out.len(), if newest.is_ok() { count.min(9) } else { 0 });
    }

    #[test]
    fn a_damaged_block_with_a_right_checksum_never_panics(
        values in values(), at: prop::sample::Index, with: u8, cut: prop::sample::Index,
    ) {
        let mut block = value_block(3, &values);
        let at = 4 + at.index(block.len() - 4);
        block[at] ^= with;
        block.truncate(block.len() - cut.index(block.len() - 4) / 8);
        set_crc(&mut block, 0, |rest| value_crc(3, values.len(), rest));
        let mut out = Vec::new();
        let answer = values_within(&block, 3, values.len(), 0..values.len(), &mut out);
        prop_assert_eq!(out.len(), if answer.is_ok() { values.len() } else { 0 });
    }

    #[test]
    fn hostile_time_blocks_never_panic(times in times(), at: prop::sample::Index, with: u8) {
        let mut block = time_block(&times);
        let at = 4 + at.index(block.len() - 4);
        block[at] ^= with;
        set_crc(&mut block, 0, crc32c::crc32c);
        let mut out = vec![7];
        if times_of(&block, &mut out).is_err() {
            // With another length the checksum is elsewhere, so it usually fails.
            prop_assert_eq!(out, [7]);
        } else {
            prop_assert!(out.len() <= BLOCK_SAMPLES + 1 && out[1..].is_sorted_by(|a, b| a < b));
        }
    }
}

/// Values at the limits of each decoding path: levels up to 2^53, distances around 2^22 to 2^25,
/// factors around 2^20, steady runs that cross 2^52; whole minis, parts of minis, and one number
/// more.
#[test]
fn values_at_the_limits_of_each_decoding_path_decode_to_the_same_bits() {
    let mut state = 11u64;
    let mut random = move |below: i64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        i64::try_from(state >> 33).unwrap() % below
    };
    const EXACT: i64 = 1 << 53;
    for base in [0, 1 << 52, (1 << 52) - 900, EXACT - (1 << 40), EXACT] {
        for factor in [1, 1_000, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 1 << 24] {
            for width in [0, 5, 22, 23, 24, 25, 26] {
                for (count, drift) in [(2, 0), (9, 1), (129, 0), (130, 1 << 22), (257, -(1 << 23)), (300, 1)]
                {
                    let mut level = 0i64;
                    let mut next = |index: i64| {
                        let noise = random(1 << width) - (1 << width) / 2;
                        level += drift + noise;
                        let off = if count == 300 { noise + index * drift } else { level };
                        let x = (base - off.abs().saturating_mul(factor)).clamp(-EXACT, EXACT);
                        (x as f64).to_bits()
                    };
                    let values: Vec<u64> = (0..count).map(&mut next).collect();
                    for sign in [0, 1 << 63] {
                        let values: Vec<u64> = values.iter().map(|bits| bits ^ sign).collect();
                        let block = value_block(5, &values);
                        let back = values_back(&block, 5, values.len()).unwrap();
                        assert!(back == values, "base {base}, factor {factor}, width {width}, {count}");
                        for range in [1..2, 1..values.len(), values.len() - 2..values.len()] {
                            let mut out = Vec::new();
                            values_within(&block, 5, values.len(), range.clone(), &mut out).unwrap();
                            assert!(bits(&out) == values[range]);
                        }
                    }
                }
            }
        }
    }
}

/// Small blocks of every kind, and their bytes after the checksum.
fn golden_values() -> Vec<(&'static str, Vec<u64>, Vec<u8>)> {
    let noisy = |index: u64| index * 40 + (index * index * 7 + index) % 23;
    let mut odd_ones: Vec<u64> =
        (0..30).map(|index| ((1_000.0 + (noisy(index) % 19) as f64) / 100.0).to_bits()).collect();
    odd_ones[0] = f64::NAN.to_bits();
    odd_ones[7] = (-0.0f64).to_bits();
    odd_ones[29] = STALE;
    let outlier = |index: u8| if index == 20 { 1e12 } else { f64::from(index % 7) };
    vec![
        ("same: zero", vec![0; 5], vec![0x00]),
        ("same: one", bits(&[1.0; 1024]), vec![0x00, 0x3f, 0xf0]),
        ("same: stale", vec![STALE; 2], vec![0x00, 0x7f, 0xf0, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02]),
        ("whole, level", bits(&[3.0, 7.0, 1.0, 6.0]), vec![0x01, 0x06, 0x06, 0x41, 0x02, 0xc2]),
        ("whole, steady", bits(&[10.0, 25.0, 40.0, 55.0, 70.0]), vec![0x69, 0x14, 0x0f, 0x02, 0x00]),
        (
            "whole, difference",
            (0..12).map(|index| (noisy(index) as f64).to_bits()).collect(),
            vec![0x09, 0x00, 0x50, 0x06, 0x50, 0xa0, 0x95, 0xe4, 0x06, 0x70, 0xa3, 0x99, 0x01],
        ),
        (
            "whole, change",
            (0..10).map(|index| (f64::from(index) * f64::from(index)).to_bits()).collect(),
            vec![0x11, 0x00, 0x02, 0x03, 0x20, 0x49, 0x92, 0x04],
        ),
        (
            "whole, pages",
            bits(&[40_960.0, 45_056.0, 45_056.0, 61_440.0, 36_864.0]),
            vec![0x41, 0x80, 0x80, 0x05, 0x80, 0x20, 0x02, 0x82, 0x0c, 0x0b, 0x06],
        ),
        (
            "decimal",
            bits(&[0.25, 0.5, 0.31, 0.28, 0.44]),
            vec![0x02, 0x02, 0x32, 0x26, 0x05, 0x2c, 0x7f, 0x00],
        ),
        (
            "decimal, odd ones",
            odd_ones.clone(),
            vec![
                0x8a, 0x03, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xf8, 0x7f, 0x06, 0x00, 0x00, 0x00,
                0x00, 0x00, 0x00, 0x00, 0x80, 0x15, 0x02, 0x00, 0x00, 0x00, 0x00, 0x00, 0xf0, 0x7f, 0x02,
                0xe4, 0x0f, 0x00, 0x43, 0xd0, 0x29, 0x23, 0x27, 0x3c, 0x64, 0x88, 0x10, 0x9d, 0x33, 0x05,
                0xdf, 0x31, 0xcb, 0x2a, 0xd3, 0x84, 0x78,
            ],
        ),
        (
            "sparse",
            (0..100).map(|index| f64::from(3 + u8::from(index > 60)).to_bits()).collect(),
            vec![0x29, 0x06, 0x00, 0x01, 0x06, 0x3c, 0x01, 0x01],
        ),
        (
            "ordered",
            (0..9).map(|index| (f64::from(index) / 7.0 + 3.0).to_bits()).collect(),
            vec![
                0x0b, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x88, 0x80, 0x01, 0x92, 0xc9, 0xa4, 0x92,
                0xc9, 0xa4, 0x92, 0x01, 0x97, 0x90, 0x01, 0x00, 0x00, 0x24, 0x49, 0x12, 0x01, 0x00, 0x00,
                0x00, 0x02, 0xf2, 0xc8, 0xa4, 0x12,
            ],
        ),
        (
            "few",
            [1e300, 1.0, 1e300, 1e-300].map(f64::to_bits).repeat(4),
            vec![
                0x04, 0x02, 0x08, 0x7e, 0x37, 0xe4, 0x3c, 0x88, 0x00, 0x75, 0x9c, 0x02, 0x3f, 0xf0, 0x08,
                0x01, 0xa5, 0x6e, 0x1f, 0xc2, 0xf8, 0xf3, 0x59, 0x00, 0x00, 0x81, 0x55, 0x55, 0xff, 0x6d,
                0x0b,
            ],
        ),
        (
            "an outlier",
            (0..40).map(|index| outlier(index).to_bits()).collect(),
            vec![
                0x09, 0x00, 0x02, 0x40, 0x3f, 0x00, 0xf8, 0x03, 0x80, 0x1f, 0x00, 0x00, 0x00, 0x20, 0x00,
                0x00, 0x00, 0xc0, 0x1f, 0x00, 0xfc, 0x01, 0xc0, 0x07, 0xd4, 0xbf, 0xa8, 0xca, 0x9a, 0x3a,
                0xe1, 0xbf, 0xa8, 0xca, 0x9a, 0x3a,
            ],
        ),
        (
            "raw",
            vec![0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210, 0x5555_aaaa_5555_aaaa],
            vec![
                0x05, 0xef, 0xcd, 0xab, 0x89, 0x67, 0x45, 0x23, 0x01, 0x10, 0x32, 0x54, 0x76, 0x98, 0xba,
                0xdc, 0xfe, 0xaa, 0xaa, 0x55, 0x55, 0xaa, 0xaa, 0x55, 0x55,
            ],
        ),
    ]
}

fn golden_times() -> Vec<(Vec<i64>, Vec<u8>)> {
    vec![
        (vec![5], vec![0x04, 0x01, 0x00, 0x00, 0x0a]),
        (vec![1_000, 2_000, 3_000], vec![0x0a, 0x03, 0xd0, 0x0f, 0x0d, 0xd0, 0x0f, 0xe8, 0x07, 0x02, 0x00]),
        (
            (0..30).map(|index| index * 15_000 + index * index * 7 % 11).collect(),
            vec![
                0x19, 0x1e, 0xba, 0xc6, 0x1a, 0x03, 0x00, 0x0e, 0x98, 0x75, 0x42, 0x64, 0x9a, 0x11, 0x99,
                0x66, 0x44, 0xa6, 0x01, 0xa7, 0xf2, 0x78, 0x2a, 0x8f, 0xa7, 0x12,
            ],
        ),
        (
            vec![-5, 100, 101, 400, 2_000],
            vec![0x0e, 0x05, 0xd5, 0x0f, 0x02, 0x09, 0xd2, 0x01, 0x8a, 0x0e, 0xce, 0x4c, 0x99, 0x22, 0x13],
        ),
        (
            vec![i64::MIN, i64::MAX],
            vec![
                0x18, 0x02, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 0x04, 0xff, 0xff,
                0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 0x01, 0x00,
            ],
        ),
    ]
}

#[test]
fn the_bytes_match_the_documented_format() {
    for (name, values, drawn) in golden_values() {
        let block = value_block(7, &values);
        assert_eq!(block[4..], drawn, "{name}: {:#04x?}", &block[4..]);
        let mut owner = vec![7, 0, 0, 0];
        owner.extend_from_slice(&u32::try_from(values.len()).unwrap().to_le_bytes());
        owner.extend_from_slice(&drawn);
        assert_eq!(block[..4], crc32c::crc32c(&owner).to_le_bytes(), "{name}");
        assert_eq!(values_back(&block, 7, values.len()), Ok(values), "{name}");
    }
    for (times, drawn) in golden_times() {
        let block = time_block(&times);
        assert_eq!(block[4..], drawn, "{times:?}: {:#04x?}", &block[4..]);
        assert_eq!(block[..4], crc32c::crc32c(&drawn).to_le_bytes(), "{times:?}");
        assert_eq!(times_back(&block), Ok(times));
    }
}

#[test]
fn every_flipped_bit_and_every_truncation_is_detected() {
    let flipped = |block: &[u8], bit: usize| {
        let mut block = block.to_vec();
        block[bit / 8] ^= 1 << (bit % 8);
        block
    };
    for (name, values, _) in golden_values() {
        let block = value_block(7, &values);
        for bit in 0..block.len() * 8 {
            assert!(values_back(&flipped(&block, bit), 7, values.len()).is_err(), "{name}: bit {bit}");
        }
        for cut in 0..block.len() {
            assert!(values_back(&block[..cut], 7, values.len()).is_err(), "{name}: cut at {cut}");
        }
    }
    for (times, _) in golden_times() {
        let block = time_block(&times);
        let mut out = Vec::new();
        for bit in 0..block.len() * 8 {
            assert!(times_of(&flipped(&block, bit), &mut out).is_err(), "{times:?}: bit {bit}");
            assert!(time_header(&flipped(&block, bit)).is_err(), "{times:?}: bit {bit}");
        }
        for cut in 0..block.len() {
            assert!(times_of(&block[..cut], &mut out).is_err(), "{times:?}: cut at {cut}");
        }
        assert!(out.is_empty());
    }
}

#[test]
fn a_block_of_another_series_or_count_is_detected() {
    let block = value_block(7, &[1, 2, 3]);
    assert!(values_back(&block, 8, 3).is_err());
    assert!(values_back(&block, 7, 2).is_err());
    assert!(verified(&block, 7, 3).is_ok());
    assert!(verified(&block, 8, 3).is_err());
}

#[test]
fn only_1_to_1024_samples_are_encoded() {
    assert!(value_block(1, &[]).is_empty());
    assert!(value_block(1, &[0; BLOCK_SAMPLES + 1]).is_empty());
    assert!(time_block(&[]).is_empty());
}

/// A counter that takes about a byte for each sample.
fn noisy_counter(count: u64) -> Vec<u64> {
    let scattered = |index: u64| (index * index).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 57;
    (0..count).map(|index| ((1_000 * index + scattered(index)) as f64).to_bits()).collect()
}

#[test]
fn integers_of_all_sizes_decode_to_the_same_bits() {
    let sizes = (0..=53).flat_map(|shift| [1i64 << shift, -(1 << shift)]);
    let values: Vec<u64> = sizes
        .flat_map(|size| [size - 1, size, size + 1, size / 3 * 2])
        .filter(|x| x.abs() <= 1 << 53)
        .map(|x| (x as f64).to_bits())
        .collect();
    for values in [values.clone(), values.iter().rev().copied().collect(), values.repeat(2)] {
        assert_eq!(values_back(&value_block(7, &values), 7, values.len()), Ok(values));
    }
    // Each value is far from its neighbours in a column of whole numbers.
    for value in &values {
        let pair = [*value, 3.0f64.to_bits(), *value, 5.0f64.to_bits()];
        assert_eq!(values_back(&value_block(7, &pair), 7, 4), Ok(pair.to_vec()));
    }
}

#[test]
fn blocks_of_several_minis_begin_with_their_newest_values() {
    for (count, head) in [(300, vec![0x06, 0x09]), (1_024, vec![0x0e])] {
        let values = noisy_counter(count);
        let block = value_block(7, &values);
        assert_eq!(block[4..4 + head.len()], head, "{:#04x?}", &block[4..20]);
        assert_eq!(values_back(&block, 7, values.len()), Ok(values));
    }
    let values = noisy_counter(129);
    assert_eq!(value_block(7, &values)[4], 0x09, "one mini is read from the start");
    let values = noisy_counter(1_024);
    let block = value_block(7, &values);
    assert_eq!(block.len(), 1035);
    assert_eq!(crc32c::crc32c(&block), 0xefc73b15, "{:#04x?}", &block[..24]);
    // A read of the newest values does not look at anything behind the first mini.
    let mut damaged = block.clone();
    damaged[400..].fill(0);
    let mut out = Vec::new();
    assert!(values_within(&damaged, 7, 1_024, 895..1_024, &mut out).is_ok());
    assert!(out.iter().map(|value| value.to_bits()).eq(values[895..].iter().copied()));
    assert!(values_within(&damaged, 7, 1_024, 894..1_024, &mut out).is_err());
    assert!(values_within(&damaged, 8, 1_024, 1_000..1_024, &mut out).is_err(), "of another series");
    assert_eq!(out.len(), 129);
}

/// Bounds of the size of a counter that is scraped for an hour, and of a constant one.
#[test]
fn ordinary_series_are_small() {
    let scattered = |index: u64| (index * index).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
    let noisy = |index: u64| (1_000 * index + scattered(index)) as f64;
    let counter: Vec<u64> = (0..240).map(|index| noisy(index).to_bits()).collect();
    assert!(value_block(1, &counter).len() < 240 * 10 / 8);
    assert_eq!(value_block(1, &[0.5f64.to_bits(); 240]).len(), 7);
    let hour: Vec<i64> = (0..240).map(|index| 1_795_000_000_123 + index * 15_000).collect();
    assert!(time_block(&hour).len() < 32);
}

/// In long blocks only a sample of the errors is examined; a single change must be noticed
/// nevertheless.
#[test]
fn a_single_change_in_a_long_block_takes_few_bytes() {
    for at in [3, 500, 501, 1_005, 1_017, 1_021, 1_022] {
        let gauge: Vec<u64> = (0..1_024).map(|index| f64::from(u8::from(index >= at)).to_bits()).collect();
        let counter: Vec<u64> = (0..1_024)
            .map(|index| f64::from(index * 15 + 7_000 * i32::from(index >= at)).to_bits())
            .collect();
        for values in [gauge, counter] {
            let block = value_block(1, &values);
            assert!(block.len() <= 20, "{} bytes where one changes at {at}", block.len());
            assert_eq!(values_back(&block, 1, values.len()).unwrap(), values);
        }
    }
}
