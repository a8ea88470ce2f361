//! Native histograms to write: stored by bucket index, encoded for remote write 1.0.

use promlet::model::stale_nan;

use super::chance::Chance;
use super::data::Value;
use super::harness::{field, varint};

/// The value of `ResetHint` for gauges.
const GAUGE: u64 = 3;

/// The schema of custom buckets.
const CUSTOM: i32 = -53;

#[derive(Clone, Debug, Default)]
pub(crate) struct Native {
    schema: i32,
    zero_threshold: f64,
    zero_count: u32,
    sum: f64,
    /// Bucket index and count, ascending; counts are whole numbers.
    positive: Vec<(i32, u32)>,
    negative: Vec<(i32, u32)>,
    bounds: Vec<f64>,
    hint: u64,
    /// Whether the histogram is sent with float counts.
    floating: bool,
}

impl Native {
    fn stale() -> Native {
        Native { sum: stale_nan(), ..Native::default() }
    }

    fn count(&self) -> u64 {
        let all = self.positive.iter().chain(&self.negative).map(|(_, count)| u64::from(*count));
        all.sum::<u64>() + u64::from(self.zero_count)
    }

    /// Encodes a `Histogram` message of remote write 1.0.
    pub(crate) fn encode(&self, at_ms: i64) -> Vec<u8> {
        let mut out = Vec::new();
        let whole = |out: &mut Vec<u8>, number: u8, value: u64| {
            key(out, number, 0);
            varint(out, value);
        };
        if self.floating {
            double(&mut out, 2, self.count() as f64);
        } else {
            whole(&mut out, 1, self.count());
        }
        double(&mut out, 3, self.sum);
        whole(&mut out, 4, zigzag(self.schema.into()));
        double(&mut out, 5, self.zero_threshold);
        if self.floating {
            double(&mut out, 7, f64::from(self.zero_count));
        } else {
            whole(&mut out, 6, self.zero_count.into());
        }
        for (buckets, spans, deltas, counts) in [(&self.negative, 8, 9, 10), (&self.positive, 11, 12, 13)] {
            self.encode_buckets(&mut out, buckets, [spans, deltas, counts]);
        }
        whole(&mut out, 14, self.hint);
        whole(&mut out, 15, at_ms.cast_unsigned());
        let bounds: Vec<u8> = self.bounds.iter().flat_map(|bound| bound.to_le_bytes()).collect();
        if !bounds.is_empty() {
            long_field(&mut out, 16, &bounds);
        }
        out
    }

    fn encode_buckets(&self, out: &mut Vec<u8>, buckets: &[(i32, u32)], [spans, deltas, counts]: [u8; 3]) {
        let mut runs: Vec<(i32, u32)> = Vec::new();
        let mut next = None;
        for (index, _) in buckets {
            match runs.last_mut() {
                Some((_, length)) if next == Some(*index) => *length += 1,
                _ => runs.push((index - next.unwrap_or(0), 1)),
            }
            next = Some(index + 1);
        }
        for (offset, length) in runs {
            let mut span = Vec::new();
            key(&mut span, 1, 0);
            varint(&mut span, zigzag(offset.into()));
            key(&mut span, 2, 0);
            varint(&mut span, length.into());
            field(out, spans, &span);
        }
        let mut packed = Vec::new();
        let mut before = 0;
        for (_, count) in buckets {
            if self.floating {
                packed.extend_from_slice(&f64::from(*count).to_le_bytes());
            } else {
                varint(&mut packed, zigzag(i64::from(*count) - before));
                before = i64::from(*count);
            }
        }
        if !packed.is_empty() {
            field(out, if self.floating { counts } else { deltas }, &packed);
        }
    }
}

fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)).cast_unsigned()
}

fn key(out: &mut Vec<u8>, number: u8, wire: u8) {
    varint(out, u64::from(number) << 3 | u64::from(wire));
}

fn double(out: &mut Vec<u8>, number: u8, value: f64) {
    key(out, number, 1);
    out.extend_from_slice(&value.to_le_bytes());
}

/// Writes a field of bytes whose key may need two bytes.
fn long_field(out: &mut Vec<u8>, number: u8, bytes: &[u8]) {
    key(out, number, 2);
    varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Counters: they grow, reset, change their schema and may end.
pub(crate) fn counted(chance: &mut Chance, times: &[i64], odd: bool, floating: bool) -> Vec<(i64, Value)> {
    let fresh = |schema| Native { schema, zero_threshold: 0.001, floating, ..Native::default() };
    let mut now = fresh(1);
    let mut samples = Vec::new();
    for (i, at) in times.iter().enumerate() {
        if odd && i == 120 {
            now = fresh(0);
        }
        if chance.percent(1) {
            now = fresh(now.schema);
        }
        if odd && chance.percent(2) {
            samples.push((*at, Value::Native(Box::new(Native::stale()))));
            continue;
        }
        for _ in 0..chance.between(0, 4) {
            let index = i32::try_from(chance.between(-3, 6)).expect("small");
            if chance.percent(15) {
                now.zero_count += 1;
            } else if odd && chance.percent(20) {
                now.sum -= 1.5;
                add(&mut now.negative, index);
            } else {
                now.sum += 2.25;
                add(&mut now.positive, index);
            }
        }
        samples.push((*at, Value::Native(Box::new(now.clone()))));
    }
    samples
}

fn add(buckets: &mut Vec<(i32, u32)>, index: i32) {
    match buckets.binary_search_by_key(&index, |(index, _)| *index) {
        Ok(position) => buckets[position].1 += 1,
        Err(position) => buckets.insert(position, (index, 1)),
    }
}

/// Gauges: their buckets change from sample to sample.
pub(crate) fn of_gauges(chance: &mut Chance, times: &[i64]) -> Vec<(i64, Value)> {
    let sample = |at: &i64| {
        let mut now = Native { schema: 0, zero_threshold: 1e-128, hint: GAUGE, ..Native::default() };
        for _ in 0..chance.between(0, 12) {
            let index = i32::try_from(chance.between(-2, 5)).expect("small");
            now.sum += 1.0;
            add(&mut now.positive, index);
        }
        (*at, Value::Native(Box::new(now)))
    };
    times.iter().map(sample).collect()
}

/// Counters with custom bounds.
pub(crate) fn custom(chance: &mut Chance, times: &[i64]) -> Vec<(i64, Value)> {
    let bounds = vec![0.1, 0.5, 1.0, 10.0];
    let fresh = Native { schema: CUSTOM, bounds, ..Native::default() };
    let mut now = fresh.clone();
    let sample = |at: &i64| {
        if chance.percent(1) {
            now = fresh.clone();
        }
        for _ in 0..chance.between(0, 5) {
            let index = i32::try_from(chance.between(0, 4)).expect("small");
            now.sum += 0.75;
            add(&mut now.positive, index);
        }
        (*at, Value::Native(Box::new(now.clone())))
    };
    times.iter().map(sample).collect()
}
