//! Tests of samples bodies: golden bytes, earlier versions, hostile counts and sizes.

use proptest::prelude::*;

use super::*;

fn sample() -> impl Strategy<Value = LogSample> {
    let value =
        prop_oneof![any::<u64>(), (-100_000i32..100_000).prop_map(|n| (f64::from(n) / 100.0).to_bits())];
    (any::<u32>(), any::<i64>(), value).prop_map(|(series, at_ms, bits)| LogSample { series, at_ms, bits })
}

/// Encodes a body of version 1, for the tests that read old logs.
fn encode_v1(out: &mut Vec<u8>, samples: &[LogSample]) {
    encode(out, samples);
    let mut values = Vec::new();
    put_values(&mut values, samples);
    out.truncate(out.len() - values.len());
    for sample in samples {
        let length = 8 - whole_bytes(sample.bits.trailing_zeros());
        out.push(PATTERN | length);
        out.extend_from_slice(&sample.bits.to_be_bytes()[..usize::from(length)]);
    }
}

proptest! {
    #[test]
    fn decode_after_encode_is_identity(samples in prop::collection::vec(sample(), 0..200)) {
        for (kind, encode) in [
            (RecordKind::Samples, encode as fn(&mut Vec<u8>, &[LogSample])),
            (RecordKind::SamplesV1, encode_v1),
        ] {
            let mut body = Vec::new();
            encode(&mut body, &samples);
            prop_assert!(body.len() <= 20 + samples.len() * SAMPLE_BYTES_MAX);
            let mut back = Vec::new();
            prop_assert_eq!(decode(kind, &body, &mut back), Ok(()));
            prop_assert_eq!(back, samples.clone());
        }
    }

    #[test]
    fn every_value_decodes_to_the_same_bits_and_is_never_longer_than_its_pattern(bits in any::<u64>()) {
        let near = f64::from_bits(bits).trunc().to_bits();
        let thousandths = ((bits >> 40) as f64 / 1_000.0).to_bits();
        for bits in [bits, near, thousandths, bits & 0xffff_ffff_0000_0000, bits >> 1, !bits] {
            let coded = code(bits);
            prop_assert!(coded.length <= 8 - whole_bytes(bits.trailing_zeros()));
            let word = coded.word.to_le_bytes();
            let mut reader = Reader::new(&word[..usize::from(coded.length)]);
            prop_assert_eq!(take_coded(&mut reader, coded.code), Ok(bits));
            prop_assert_eq!(reader.left(), 0);
        }
    }

    #[test]
    fn a_reader_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode(RecordKind::Samples, &bytes, &mut Vec::new());
        let _ = decode(RecordKind::SamplesV1, &bytes, &mut Vec::new());
    }

    #[test]
    fn a_changed_body_never_panics(
        samples in prop::collection::vec(sample(), 1..100),
        flips in prop::collection::vec((any::<usize>(), any::<u8>()), 1..4),
    ) {
        let mut body = Vec::new();
        encode(&mut body, &samples);
        for (at, byte) in flips {
            let at = at % body.len();
            body[at] = byte;
        }
        let _ = decode(RecordKind::Samples, &body, &mut Vec::new());
    }
}

fn hex(body: &[u8]) -> String {
    data_encoding::HEXLOWER.encode(body)
}

fn of(series: u32, at_ms: i64, value: f64) -> LogSample {
    LogSample { series, at_ms, bits: value.to_bits() }
}

#[test]
fn the_body_of_version_2_has_its_golden_bytes() {
    let mut body = Vec::new();
    encode(
        &mut body,
        &[
            of(5, 1_000, 1.5),
            of(6, 1_000, -3.0),
            of(7, 1_000, f64::INFINITY),
            of(7, 1_015, 0.0),
            of(8, 1_015, 77.4),
            of(9, 1_015, 258.0),
            of(10, 1_015, 2_019_301.0),
        ],
    );
    // n 7, base 1,000 | gaps 5 x1, 1 x2, 0 x1, 1 x3 | steps 0 x3, 15 x1, 0 x3
    // codes 2 2, 2 0, 15 10, 11
    // patterns 3ff8, c008, 7ff0, 0 | 77,400 thousandths | 258 | 2,019,301
    let drawn =
        "07e803000000000000 0a01020200010203 00031e010003 2202af0b 3ff8 c008 7ff0 582e0100 0201 e5cf1e";
    assert_eq!(hex(&body), drawn.replace(' ', ""));
}

#[test]
fn each_group_of_64_values_has_its_own_codes() {
    let samples: Vec<LogSample> = (0..65).map(|i| of(i, 0, 1.0)).collect();
    let mut body = Vec::new();
    encode(&mut body, &samples);
    let groups = format!("{}{}{}", "99".repeat(32), "01".repeat(64), "0901");
    assert!(hex(&body).ends_with(&groups), "{}", hex(&body));
}

#[test]
fn a_hostile_count_allocates_nothing() {
    for count in [1_u64 << 20, 1 << 21, u64::MAX] {
        let mut body = Vec::new();
        put_varint(&mut body, count);
        body.extend_from_slice(&[0; 64]);
        let mut out = Vec::new();
        assert!(decode(RecordKind::Samples, &body, &mut out).is_err() && out.capacity() == 0, "{count}");
    }
}

#[test]
fn a_code_without_a_value_is_damage() {
    let mut body = Vec::new();
    encode(&mut body, &[of(1, 0, 1.5)]);
    let codes = body.len() - 3;
    assert_eq!(body[codes], 0x02);
    body[codes] = 0x12;
    assert!(decode(RecordKind::Samples, &body, &mut Vec::new()).is_err());
}

#[test]
fn decimals_that_earlier_versions_wrote_are_read() {
    // As above: 15/10, -3, pattern 7ff0, 0; and 1,234.567.
    let mut body = vec![5, 0xe8, 3, 0, 0, 0, 0, 0, 0, 0x0a, 1, 2, 4, 0, 5];
    body.extend_from_slice(&[0x11, 0x1e, 0x01, 0x05, 0x82, 0x7f, 0xf0, 0x00, 0x33, 0x0e, 0xad, 0x25]);
    let mut samples = Vec::new();
    assert_eq!(decode(RecordKind::SamplesV1, &body, &mut samples), Ok(()));
    let values: Vec<f64> = samples.iter().map(|sample| f64::from_bits(sample.bits)).collect();
    assert_eq!(values, [1.5, -3.0, f64::INFINITY, 0.0, 1_234.567]);
}

#[test]
fn a_scrape_takes_at_most_two_and_a_half_bytes_per_sample() {
    let samples: Vec<LogSample> =
        (0..2_000).map(|i| LogSample { series: i, at_ms: 0, bits: f64::from(i).to_bits() }).collect();
    let mut body = Vec::new();
    encode(&mut body, &samples);
    assert!(body.len() <= 2_000 * 5 / 2 + 40, "{} bytes", body.len());
}
