//! Chunks of native histograms of one series and one shape. Each histogram is stored as its
//! difference from the previous one.
//!
//! ```text
//! u8 kind (0 integers, 1 floats), i8 schema, u64 zero threshold (bit pattern),
//! varint n, n x u64 custom bound (bit pattern),
//! varint n, n x {zigzag offset, varint length} positive spans,   the same for negative ones
//! rows to the end, at most 128: {
//!   zigzag difference of the time step      the first row's: the time; the second's: the step
//!   u8 reset hint
//!   sum as of floats
//!   count, zero count, one after another, then the buckets, each as its difference from the row
//!   before, at first from 0:
//!     integers   zigzag of the difference (wrapping)
//!     floats     varint of the exclusive-or of the bit patterns, its bits in reverse: low zero
//!                bits cost nothing
//!   in buckets only, a difference of 0 is a varint 0 and a varint: how many buckets in a row have
//!   not changed
//! }
//! ```

use std::sync::Arc;

use crate::model::{CounterReset, Histogram, HistogramCounts, HistogramShape};
use crate::tsdb::codec::{Reader, put_varint, put_zigzag, unzigzag, zigzag};
use crate::tsdb::error::Damage;
use crate::tsdb::segment::{is_float, put_shape, take_shape};

/// Rows of a chunk at most.
pub(in crate::tsdb) const ROWS_MAX: u16 = 128;
/// A chunk accepts no more rows once it has this many bytes, since a read decodes from its start.
const BYTES_SOFT: usize = 4_096;

/// All numbers of a row as 64-bit patterns, and the time step that led to it.
#[derive(Clone, Debug, Default)]
struct DeltaRow {
    at: i64,
    step: i64,
    sum: u64,
    count: u64,
    zero: u64,
    buckets: Vec<u64>,
}

/// A chunk that accepts rows.
#[derive(Debug)]
pub(in crate::tsdb) struct HistogramEncoder {
    shape: Arc<HistogramShape>,
    float: bool,
    bytes: Vec<u8>,
    last: DeltaRow,
    rows: u16,
    first_at: i64,
}

impl HistogramEncoder {
    /// Begins a chunk with its first row.
    pub(in crate::tsdb) fn new(at: i64, histogram: &Histogram) -> HistogramEncoder {
        let shape = Arc::clone(histogram.shape());
        let float = is_float(histogram);
        let mut bytes = Vec::with_capacity(64);
        put_shape(&mut bytes, &shape, float);
        let last = DeltaRow { buckets: vec![0; shape.buckets()], ..DeltaRow::default() };
        let mut encoder = HistogramEncoder { shape, float, bytes, last, rows: 0, first_at: at };
        encoder.put(at, histogram);
        encoder
    }

    /// Appends a row and returns true if it has the shape of the chunk and the chunk is not full.
    /// Times may have any order.
    #[must_use]
    pub(in crate::tsdb) fn push(&mut self, at: i64, histogram: &Histogram) -> bool {
        let full = self.rows >= ROWS_MAX || self.bytes.len() >= BYTES_SOFT;
        let fits = !full
            && is_float(histogram) == self.float
            && (Arc::ptr_eq(histogram.shape(), &self.shape) || *histogram.shape() == self.shape);
        if fits {
            self.put(at, histogram);
        }
        fits
    }

    /// Appends a row to the encoded bytes.
    fn put(&mut self, at: i64, histogram: &Histogram) {
        let HistogramEncoder { float, bytes, last, .. } = self;
        let step = at.wrapping_sub(last.at);
        if self.rows == 0 {
            put_zigzag(bytes, at);
        } else {
            put_zigzag(bytes, step.wrapping_sub(last.step));
            last.step = step;
        }
        last.at = at;
        bytes.push(histogram.reset() as u8);
        let sum = histogram.sum().to_bits();
        put_varint(bytes, (sum ^ last.sum).reverse_bits());
        last.sum = sum;
        match histogram.counts() {
            HistogramCounts::Integer { count, zero, buckets } => {
                put_counts(bytes, last, *float, *count, *zero, buckets.iter().copied());
            }
            HistogramCounts::Float { count, zero, buckets } => {
                let buckets = buckets.iter().map(|count| count.to_bits());
                put_counts(bytes, last, *float, count.to_bits(), zero.to_bits(), buckets);
            }
        }
        self.rows += 1;
    }

    pub(in crate::tsdb) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(in crate::tsdb) const fn rows(&self) -> u16 {
        self.rows
    }

    pub(in crate::tsdb) const fn first_at(&self) -> i64 {
        self.first_at
    }

    pub(in crate::tsdb) const fn last_at(&self) -> i64 {
        self.last.at
    }

    /// Returns the estimated memory in bytes.
    pub(in crate::tsdb) fn memory(&self) -> usize {
        size_of::<HistogramEncoder>()
            + self.bytes.capacity()
            + 8 * self.last.buckets.len()
            + self.shape.bytes()
    }

    pub(in crate::tsdb) fn into_bytes(self) -> Box<[u8]> {
        self.bytes.into_boxed_slice()
    }
}

/// Encodes the difference between a pattern and the previous one; 0 if they are equal.
const fn difference(float: bool, before: u64, now: u64) -> u64 {
    if float { (now ^ before).reverse_bits() } else { zigzag(now.wrapping_sub(before).cast_signed()) }
}

/// Applies a difference that [`difference`] has encoded.
const fn apply_difference(float: bool, before: u64, difference: u64) -> u64 {
    if float {
        before ^ difference.reverse_bits()
    } else {
        before.wrapping_add(unzigzag(difference).cast_unsigned())
    }
}

/// Appends the differences of all counts, and stores the counts in `last`.
fn put_counts(
    out: &mut Vec<u8>,
    last: &mut DeltaRow,
    float: bool,
    count: u64,
    zero: u64,
    buckets: impl Iterator<Item = u64>,
) {
    put_varint(out, difference(float, last.count, count));
    put_varint(out, difference(float, last.zero, zero));
    (last.count, last.zero) = (count, zero);
    let mut same = 0u64;
    for (before, now) in last.buckets.iter_mut().zip(buckets) {
        let differs = difference(float, *before, now);
        *before = now;
        if differs == 0 {
            same += 1;
            continue;
        }
        put_same(out, &mut same);
        put_varint(out, differs);
    }
    put_same(out, &mut same);
}

/// Appends a run of unchanged buckets, and resets its length.
fn put_same(out: &mut Vec<u8>, same: &mut u64) {
    if *same > 0 {
        put_varint(out, 0);
        put_varint(out, *same);
        *same = 0;
    }
}

/// Decodes a chunk row by row, and keeps only the last row and the shape in memory.
#[derive(Debug)]
pub(in crate::tsdb) struct HistogramDecoder<'a> {
    reader: Reader<'a>,
    shape: Arc<HistogramShape>,
    float: bool,
    reset: CounterReset,
    row: DeltaRow,
    rows: u16,
}

impl<'a> HistogramDecoder<'a> {
    /// Begins to decode a chunk.
    ///
    /// # Errors
    /// [`Damage`] if the chunk does not begin with a shape.
    pub(in crate::tsdb) fn new(chunk: &'a [u8]) -> Result<HistogramDecoder<'a>, Damage> {
        let mut reader = Reader::new(chunk);
        let (shape, float) = take_shape(&mut reader)?;
        let row = DeltaRow { buckets: vec![0; shape.buckets()], ..DeltaRow::default() };
        Ok(HistogramDecoder {
            reader,
            shape: Arc::new(shape),
            float,
            reset: CounterReset::Unknown,
            row,
            rows: 0,
        })
    }

    /// Decodes the next row and returns its time; `None` at the end.
    ///
    /// # Errors
    /// [`Damage`] if the bytes are not a row. No later histogram can be decoded.
    pub(in crate::tsdb) fn advance(&mut self) -> Result<Option<i64>, Damage> {
        if self.reader.left() == 0 {
            return Ok(None);
        }
        if self.rows >= ROWS_MAX {
            return Err(self.reader.damage("a chunk with too many rows"));
        }
        let HistogramDecoder { reader, row, float, .. } = self;
        let delta = reader.zigzag()?;
        if self.rows == 0 {
            row.at = delta;
        } else {
            row.step = row.step.wrapping_add(delta);
            row.at = row.at.wrapping_add(row.step);
        }
        self.reset = CounterReset::from_number(reader.u8()?)
            .ok_or_else(|| reader.damage("unknown counter reset hint"))?;
        row.sum ^= reader.varint()?.reverse_bits();
        row.count = apply_difference(*float, row.count, reader.varint()?);
        row.zero = apply_difference(*float, row.zero, reader.varint()?);
        let mut bucket_index = 0;
        while bucket_index < row.buckets.len() {
            let differs = reader.varint()?;
            if differs > 0 {
                if let Some(bucket) = row.buckets.get_mut(bucket_index) {
                    *bucket = apply_difference(*float, *bucket, differs);
                }
                bucket_index += 1;
                continue;
            }
            let same = usize::try_from(reader.varint()?).unwrap_or(usize::MAX);
            if same == 0 || same > row.buckets.len() - bucket_index {
                return Err(reader.damage("a run extends beyond the buckets"));
            }
            bucket_index += same;
        }
        self.rows += 1;
        Ok(Some(self.row.at))
    }

    /// Returns the histogram of the row that was decoded last.
    ///
    /// # Errors
    /// [`Damage`] if its counts are not those of a histogram.
    pub(in crate::tsdb) fn histogram(&self) -> Result<Histogram, Damage> {
        let DeltaRow { sum, count, zero, buckets, .. } = &self.row;
        let counts = if self.float {
            let buckets = buckets.iter().map(|bits| f64::from_bits(*bits)).collect();
            HistogramCounts::Float { count: f64::from_bits(*count), zero: f64::from_bits(*zero), buckets }
        } else {
            HistogramCounts::Integer { count: *count, zero: *zero, buckets: buckets.clone() }
        };
        Histogram::new(Arc::clone(&self.shape), self.reset, f64::from_bits(*sum), counts)
            .map_err(|_| self.reader.damage("invalid histogram counts"))
    }

    /// Decodes the next row and returns its time and histogram.
    ///
    /// # Errors
    /// As [`HistogramDecoder::advance`] and [`HistogramDecoder::histogram`].
    pub(in crate::tsdb) fn next(&mut self) -> Result<Option<(i64, Histogram)>, Damage> {
        match self.advance()? {
            Some(at) => Ok(Some((at, self.histogram()?))),
            None => Ok(None),
        }
    }
}

/// Encodes histograms as chunks. Calls `each` with the first and last time, the number of rows, and
/// the bytes of each chunk.
pub(in crate::tsdb) fn encode<'h>(
    samples: impl IntoIterator<Item = (i64, &'h Histogram)>,
    mut each: impl FnMut(i64, i64, u16, Box<[u8]>),
) {
    let mut open: Option<HistogramEncoder> = None;
    let mut close = |encoder: HistogramEncoder| {
        each(encoder.first_at(), encoder.last_at(), encoder.rows(), encoder.into_bytes());
    };
    for (at, histogram) in samples {
        if open.as_mut().is_some_and(|open| open.push(at, histogram)) {
            continue;
        }
        if let Some(full) = open.replace(HistogramEncoder::new(at, histogram)) {
            close(full);
        }
    }
    if let Some(last) = open {
        close(last);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::{any_histogram, exponential};
    use super::*;

    fn decoded(chunk: &[u8]) -> Result<Vec<(i64, Histogram)>, Damage> {
        let mut decoder = HistogramDecoder::new(chunk)?;
        let mut found = Vec::new();
        while let Some(row) = decoder.next()? {
            found.push(row);
        }
        Ok(found)
    }

    proptest! {
        #[test]
        fn decode_after_encode_is_identity(
            samples in prop::collection::vec((any::<i64>(), any_histogram()), 1..20),
            same_shape: bool,
        ) {
            let mut back = Vec::new();
            let samples: Vec<_> = if same_shape {
                let shape = samples[0].1.shape().clone();
                samples.into_iter().filter(|(_, h)| *h.shape() == shape).collect()
            } else {
                samples
            };
            encode(samples.iter().map(|(at, h)| (*at, h)), |first, last, rows, chunk| {
                let part = decoded(&chunk).expect("decodes");
                assert_eq!((part[0].0, part[part.len() - 1].0, part.len()), (first, last, usize::from(rows)));
                back.extend(part);
            });
            prop_assert_eq!(back, samples);
        }

        #[test]
        fn a_reader_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200), start in any_histogram()) {
            let _ = decoded(&bytes);
            let mut chunk = HistogramEncoder::new(5, &start).into_bytes().into_vec();
            chunk.extend(bytes);
            let _ = decoded(&chunk);
        }

        #[test]
        fn a_truncated_chunk_has_fewer_rows_or_is_damaged(histogram in any_histogram(), cut: prop::sample::Index) {
            let mut encoder = HistogramEncoder::new(5, &histogram);
            prop_assert!(encoder.push(20, &histogram));
            let bytes = encoder.into_bytes();
            let cut = cut.index(bytes.len());
            if let Ok(found) = decoded(&bytes[..cut]) {
                prop_assert!(found.len() < 2);
            }
        }
    }

    #[test]
    fn the_bytes_match_the_documented_format() {
        let first = exponential(3, 0.5, &[(-2, 2), (1, 1)], &[(0, 1)], 1.5, 2, &[1, 0, 300, 4]);
        let second = exponential(3, 0.5, &[(-2, 2), (1, 1)], &[(0, 1)], 2.5, 2, &[1, 0, 301, 3]);
        let mut encoder = HistogramEncoder::new(1_000, &first);
        assert!(encoder.push(16_000, &second));
        let hex: String = encoder.bytes().iter().map(|b| format!("{b:02x}")).collect();
        let drawn = "00 03 000000000000e03f 00 02 0302 0201 01 0001 \
                     d00f 00 fc3f e604 04 02 0001 d804 08 \
                     b0ea01 00 fe7f 00 00 0002 02 01";
        assert_eq!(hex, drawn.replace(' ', ""));
    }

    #[test]
    fn a_sample_of_a_steady_histogram_is_small() {
        let sample = |n: u64| {
            let counts: Vec<u64> = (0..40).map(|b| n * (b % 5)).collect();
            exponential(3, 0.001, &[(0, 40)], &[], n as f64 * 0.25, 0, &counts)
        };
        let samples: Vec<(i64, Histogram)> =
            (0..100i64).map(|n| (1_700_000_000_000 + n * 15_000, sample(n.cast_unsigned()))).collect();
        let mut bytes = 0;
        encode(samples.iter().map(|(at, h)| (*at, h)), |_, _, _, chunk| bytes += chunk.len());
        assert!(bytes < 100 * 60, "{bytes} bytes for 100 samples of 40 buckets");
    }
}
