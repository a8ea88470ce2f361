//! Encoders of chunks, as Prometheus writes them.

use super::*;

#[derive(Default)]
pub(super) struct BitWriter {
    pub(super) bytes: Vec<u8>,
    used: u32,
}

impl BitWriter {
    fn bit(&mut self, bit: bool) {
        if self.used.is_multiple_of(8) {
            self.bytes.push(0);
        }
        if bit {
            *self.bytes.last_mut().expect("a byte") |= 0x80 >> (self.used % 8);
        }
        self.used += 1;
    }

    fn bits(&mut self, value: u64, count: u32) {
        for place in (0..count).rev() {
            self.bit(value >> place & 1 == 1);
        }
    }

    pub(super) fn byte(&mut self, byte: u8) {
        self.bits(u64::from(byte), 8);
    }

    fn uvarint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bits(value & 0x7f | 0x80, 8);
            value >>= 7;
        }
        self.bits(value, 8);
    }

    fn ones(&mut self, ones: u32, most: u32) {
        (0..ones).for_each(|_| self.bit(true));
        if ones < most {
            self.bit(false);
        }
    }

    fn signed(&mut self, value: i64, sizes: &[u32]) {
        let most = u32::try_from(sizes.len()).expect("few") + 1;
        if value == 0 {
            return self.bit(false);
        }
        for (ones, size) in (1..).zip(sizes) {
            let half = 1_i64 << (size - 1);
            if -(half - 1) <= value && value <= half {
                self.ones(ones, most);
                return self.bits(value.cast_unsigned(), *size);
            }
        }
        self.ones(most, most);
        self.bits(value.cast_unsigned(), 64);
    }

    pub(super) fn varbit_int(&mut self, value: i64) {
        self.signed(value, &[3, 6, 9, 12, 18, 25, 56]);
    }

    pub(super) fn varbit_uint(&mut self, value: u64) {
        let sizes = [3, 6, 9, 12, 18, 25, 56];
        if value == 0 {
            return self.bit(false);
        }
        for (ones, size) in (1..).zip(sizes) {
            if value < 1 << size {
                self.ones(ones, 8);
                return self.bits(value, size);
            }
        }
        self.ones(8, 8);
        self.bits(value, 64);
    }

    fn xor(&mut self, before: &mut (u64, u32, u32), bits: u64) {
        let delta = before.0 ^ bits;
        before.0 = bits;
        if delta == 0 {
            return self.bit(false);
        }
        self.bit(true);
        let (leading, trailing) = (delta.leading_zeros().min(31), delta.trailing_zeros());
        let known = before.1 != u32::MAX && leading >= before.1 && trailing >= before.2;
        if !known {
            (before.1, before.2) = (leading, trailing);
        }
        self.bit(!known);
        let count = 64 - before.1 - before.2;
        if !known {
            self.bits(u64::from(before.1), 5);
            self.bits(u64::from(count), 6);
        }
        self.bits(delta >> before.2, count);
    }
}

/// Encodes a float chunk.
pub(super) fn floats(samples: &[(i64, f64)]) -> Vec<u8> {
    let mut out = BitWriter::default();
    out.bits(samples.len() as u64, 16);
    let (mut last, mut delta, mut value) = (0_i64, 0_i64, (0, u32::MAX, 0));
    for (number, (at, sample)) in samples.iter().enumerate() {
        match number {
            0 => {
                out.uvarint((at << 1 ^ at >> 63).cast_unsigned());
                out.bits(sample.to_bits(), 64);
                value.0 = sample.to_bits();
            }
            1 => {
                delta = at.wrapping_sub(last);
                out.uvarint(delta.cast_unsigned());
                out.xor(&mut value, sample.to_bits());
            }
            _ => {
                let next = at.wrapping_sub(last);
                out.signed(next.wrapping_sub(delta), &[14, 17, 20]);
                delta = next;
                out.xor(&mut value, sample.to_bits());
            }
        }
        last = *at;
    }
    out.bytes
}

/// Encodes a chunk of histograms with one layout; staleness markers have no buckets.
pub(super) fn histograms(
    shape: &HistogramShape,
    float: bool,
    flags: u8,
    samples: &[(i64, Histogram)],
) -> Vec<u8> {
    let mut out = BitWriter::default();
    out.bits(samples.len() as u64, 16);
    out.byte(flags);
    let zero = shape.zero_threshold();
    let exponent = (zero.to_bits() >> 52 & 0x7ff) as i64 - 1_022;
    if zero == 0.0 {
        out.byte(0);
    } else if zero.to_bits() << 12 == 0 && (-242..=11).contains(&exponent) {
        out.byte(u8::try_from(exponent + 243).expect("small"));
    } else {
        out.byte(255);
        out.bits(zero.to_bits(), 64);
    }
    out.varbit_int(i64::from(shape.schema()));
    for spans in [shape.positive(), shape.negative()] {
        out.varbit_uint(spans.len() as u64);
        for span in spans {
            out.varbit_uint(u64::from(span.length));
            out.varbit_int(i64::from(span.offset));
        }
    }
    if shape.is_custom() {
        out.varbit_uint(shape.custom_values().len() as u64);
        for bound in shape.custom_values() {
            let thousandths = bound * 1_000.0;
            let whole = thousandths.round();
            if (0.0..=33_554_430.0).contains(&thousandths) && whole / 1_000.0 == *bound {
                #[expect(clippy::cast_possible_truncation, reason = "a whole number of 25 bits")]
                out.varbit_uint(whole as u64 + 1);
            } else {
                out.bit(false);
                out.bits(bound.to_bits(), 64);
            }
        }
    }
    if float {
        float_histograms(&mut out, shape, samples)
    } else {
        integers(&mut out, shape, samples)
    }
    out.bytes
}

/// Returns the differences of the buckets of each sign to the bucket before.
fn deltas(shape: &HistogramShape, buckets: &[u64]) -> Vec<i64> {
    let (positive, negative) = buckets.split_at(shape.positive_buckets().min(buckets.len()));
    let mut all = Vec::new();
    for side in [positive, negative] {
        let mut before = 0;
        for bucket in side {
            all.push(bucket.cast_signed() - before);
            before = bucket.cast_signed();
        }
    }
    all
}

fn integers(out: &mut BitWriter, shape: &HistogramShape, samples: &[(i64, Histogram)]) {
    let (mut last, mut last_delta) = ([0_i64; 3], [0_i64; 3]);
    let (mut sum, mut buckets) = ((0, u32::MAX, 0), vec![(0_i64, 0_i64); shape.buckets()]);
    for (number, (at, native)) in samples.iter().enumerate() {
        let HistogramCounts::Integer { count, zero, buckets: own } = native.counts() else {
            panic!("integers")
        };
        let fields = [*at, count.cast_signed(), zero.cast_signed()];
        if number == 0 {
            out.varbit_int(*at);
            out.varbit_uint(*count);
            out.varbit_uint(*zero);
            out.bits(native.sum().to_bits(), 64);
            sum.0 = native.sum().to_bits();
            last = fields;
            for (bucket, delta) in buckets.iter_mut().zip(deltas(shape, own)) {
                out.varbit_int(delta);
                bucket.0 = delta;
            }
            continue;
        }
        for ((field, last), last_delta) in fields.iter().zip(&mut last).zip(&mut last_delta) {
            let delta = field - *last;
            out.varbit_int(delta - *last_delta);
            (*last, *last_delta) = (*field, delta);
        }
        out.xor(&mut sum, native.sum().to_bits());
        if !native.is_stale() {
            for (bucket, value) in buckets.iter_mut().zip(deltas(shape, own)) {
                let delta = value - bucket.0;
                out.varbit_int(delta - bucket.1);
                *bucket = (value, delta);
            }
        }
    }
}

fn float_histograms(out: &mut BitWriter, shape: &HistogramShape, samples: &[(i64, Histogram)]) {
    let (mut last, mut last_delta) = (0_i64, 0_i64);
    let mut fields = vec![(0_u64, u32::MAX, 0_u32); 3 + shape.buckets()];
    for (number, (at, native)) in samples.iter().enumerate() {
        let (count, zero, buckets) = match native.counts() {
            HistogramCounts::Float { count, zero, buckets } => (*count, *zero, buckets.clone()),
            HistogramCounts::Integer { .. } => (0.0, 0.0, Vec::new()),
        };
        let values = [count, zero, native.sum()].into_iter().chain(buckets);
        if number == 0 {
            out.varbit_int(*at);
            for (field, value) in fields.iter_mut().zip(values) {
                out.bits(value.to_bits(), 64);
                field.0 = value.to_bits();
            }
        } else {
            out.varbit_int(at - last - last_delta);
            last_delta = at - last;
            for (field, value) in fields.iter_mut().zip(values) {
                out.xor(field, value.to_bits());
            }
        }
        last = *at;
    }
}
