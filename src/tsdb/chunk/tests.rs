//! Properties and golden bytes of chunks.

use proptest::prelude::*;

use super::*;
use crate::model::STALE_NAN_BITS;

fn all(chunk: &[u8]) -> Result<Vec<(i64, u64)>, Damage> {
    let mut minis = decode(chunk);
    let mut out = Vec::new();
    while let Some(mini) = minis.next()? {
        out.extend(mini.times().iter().copied().zip(mini.values().iter().copied()));
    }
    Ok(out)
}

fn check(samples: &[(i64, u64)]) -> usize {
    let (times, values): (Vec<i64>, Vec<u64>) = samples.iter().copied().unzip();
    let chunk = encode(&times, &values);
    assert_eq!(all(&chunk).as_deref(), Ok(samples));
    chunk.len()
}

fn value() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u64>(),
        Just(STALE_NAN_BITS),
        (-1_000_000i64..1_000_000, 0u8..4).prop_map(|(m, e)| (m as f64 / 10f64.powi(i32::from(e))).to_bits()),
        prop::sample::select(vec![0.0f64, -0.0, 1.0, f64::MAX, f64::MIN_POSITIVE, f64::INFINITY, 9.007e15])
            .prop_map(f64::to_bits),
    ]
}

fn samples() -> impl Strategy<Value = Vec<(i64, u64)>> {
    let times = prop_oneof![
        prop::collection::btree_set(any::<i64>(), 1..60),
        prop::collection::btree_set(prop_oneof![0i64..200, Just(i64::MIN), Just(i64::MAX)], 1..60),
    ];
    times.prop_flat_map(|times| {
        let count = times.len();
        (Just(times), prop::collection::vec(value(), count))
            .prop_map(|(times, values)| times.into_iter().zip(values).collect())
    })
}

proptest! {
    #[test]
    fn decode_after_encode_is_identity(samples in samples()) {
        check(&samples);
    }

    #[test]
    fn a_reader_never_panics_on_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = all(&bytes);
    }

    #[test]
    fn damaged_chunks_never_panic(samples in samples(), at: prop::sample::Index, bit in 0u8..8) {
        let (times, values): (Vec<i64>, Vec<u64>) = samples.into_iter().unzip();
        let mut chunk = encode(&times, &values);
        let at = at.index(chunk.len());
        chunk[at] ^= 1 << bit;
        let _ = all(&chunk);
        let _ = all(&chunk[..at]);
    }
}

#[test]
fn the_bytes_match_the_documented_format() {
    let hex = |samples: &[(i64, f64)]| {
        let (times, values): (Vec<i64>, Vec<u64>) = samples.iter().map(|(t, v)| (*t, v.to_bits())).unzip();
        encode(&times, &values).iter().map(|b| format!("{b:02x}")).collect::<String>()
    };
    // One sample, value 1.0 = 3ff0..: count 0, zigzag 2000, two kept bytes.
    assert_eq!(hex(&[(1_000, 1.0)]), "00d00f023ff0");
    // Regular step 15,000, integers 10, 12, 13, 17: exponent 0, mantissa 10, least difference 1,
    // width 2, then 1 0 3.
    assert_eq!(
        hex(&[(0, 10.0), (15_000, 12.0), (30_000, 13.0), (45_000, 17.0)]),
        "43009875001402023 1".replace(' ', "")
    );
    // Steps 10, 11; values pi, 2 pi, -0: xor.
    let pi = std::f64::consts::PI;
    assert_eq!(
        hex(&[(0, pi), (10, 2.0 * pi), (21, -0.0)]),
        "92000a0208400921fb54442d18111008c01921fb54442d18"
    );
}

#[test]
fn ordinary_series_stay_small() {
    let at = |i: i64| 1_700_000_000_000 + i * 15_000;
    let bytes = |value: &dyn Fn(i64) -> f64| {
        check(&(0..128).map(|i| (at(i), value(i).to_bits())).collect::<Vec<_>>())
    };
    // The bounds for 128 samples are the present sizes, rounded up to the next tenth of a byte per
    // sample.
    assert!(bytes(&|_| 7.0) <= 84, "constant: {}", bytes(&|_| 7.0));
    assert!(bytes(&|i| (i * 37 + i % 5) as f64) <= 166, "counter: {}", bytes(&|i| (i * 37 + i % 5) as f64));
    assert!(
        bytes(&|i| f64::from((i * 7919 % 1000) as i32) / 10.0) <= 280,
        "gauge: {}",
        bytes(&|i| f64::from((i * 7919 % 1000) as i32) / 10.0)
    );
}
