//! Translation of exponential histograms to native histograms.
//!
//! A scale is a schema: the bounds are the powers of `2^(2^-scale)`. Bucket `i` of OTLP is above
//! power `i` of the base, and bucket `i` of Prometheus below it, so the indices differ by one.
//! Scales above 8 are reduced to schema 8: each run of 2^n neighbours becomes one bucket with the
//! sum of their counts, which loses only the finer bounds.

use std::sync::Arc;

use super::super::protobuf::{WireReader, unzigzag};
use super::delta::check_change;
use super::points::PointHeader;
use super::translate::{MetricNames, Translator};
use super::{TranslateError, add_count, exemplars};
use crate::model::{
    BucketSpan, CounterReset, Histogram, HistogramCounts, HistogramError, HistogramShape, Timestamp,
};

const HISTOGRAM: &str = "ExponentialHistogramDataPoint";
const BUCKETS: &str = "Buckets";

/// The finest and the coarsest schema.
const SCHEMA_MAX: i32 = 8;
const SCHEMA_MIN: i32 = -4;
/// Zero threshold if the sender states none; the same as in Prometheus.
const ZERO_THRESHOLD: f64 = 1e-128;
/// Number of empty buckets up to which they are stored, rather than starting a new span.
const FILLED_GAP_MAX: i64 = 2;

impl From<HistogramError> for TranslateError {
    fn from(error: HistogramError) -> TranslateError {
        TranslateError::Point(error.code(), error.to_string())
    }
}

/// The fields of a point.
#[derive(Default)]
struct PointFields<'a> {
    count: u64,
    sum: f64,
    scale: i32,
    zero: u64,
    zero_threshold: f64,
    positive: &'a [u8],
    negative: &'a [u8],
}

impl Translator<'_> {
    /// Translates a point of an exponential histogram.
    pub(super) fn exponential(
        &mut self,
        message: &[u8],
        metric: &MetricNames,
    ) -> Result<Timestamp, TranslateError> {
        let (mut header, mut fields, mut has_exemplars) =
            (PointHeader::default(), PointFields::default(), false);
        let mut reader = WireReader::new(message);
        while let Some(field) = reader.field()? {
            if header.read(&field, HISTOGRAM)? {
                continue;
            }
            match field.number {
                1 => self.labels.add(field.bytes(HISTOGRAM)?)?,
                4 => fields.count = field.fixed64(HISTOGRAM)?,
                5 => fields.sum = field.double(HISTOGRAM)?,
                6 => fields.scale = sint32(field.uint64(HISTOGRAM)?, HISTOGRAM)?,
                7 => fields.zero = field.fixed64(HISTOGRAM)?,
                8 => fields.positive = field.bytes(HISTOGRAM)?,
                9 => fields.negative = field.bytes(HISTOGRAM)?,
                10 => header.read_flags(&field, HISTOGRAM)?,
                11 => has_exemplars = true,
                14 => fields.zero_threshold = field.double(HISTOGRAM)?,
                _ => {}
            }
        }
        self.labels.finish(message, 1, &self.resource, None)?;
        let at = header.at()?;
        let histogram = if header.is_stale {
            Histogram::stale()
        } else {
            fields.build(&mut self.sink.buckets, self.sink.limits.buckets_max)?
        };
        let [own, shared] = self.labels.parts(&self.resource);
        let series = [&metric.name, own, shared];
        let (mut histogram, mut start) = (histogram, header.start(true));
        if let Some(totals) = Translator::totals(&mut self.totals, self.is_delta) {
            if header.is_stale {
                totals.end(&series);
            } else {
                check_change(histogram.sum(), false)?;
                start = totals.admit(&series, header.interval(at))?;
                histogram = totals.add_histogram(&series, at, histogram)?;
            }
        }
        self.sink.add_histogram(&series, at, histogram, start)?;
        if has_exemplars {
            exemplars::each(message, 11, at, &mut self.sink, |exemplar, sink| sink.add_exemplar(exemplar))?;
        }
        Ok(at)
    }
}

/// Decodes a `sint32`.
///
/// # Errors
/// `histogram_spans`, if the value has more than 32 bits.
fn sint32(value: u64, message: &'static str) -> Result<i32, TranslateError> {
    let value = unzigzag(value);
    let wrong =
        || TranslateError::Point("histogram_spans", format!("a number of {message} has more than 32 bits"));
    i32::try_from(value).map_err(|_| wrong())
}

impl PointFields<'_> {
    /// Builds the native histogram. `entries` counts the buckets of the request, up to `allowed`.
    ///
    /// # Errors
    /// [`TranslateError`], if the histogram is invalid or the limit is exceeded.
    fn build(&self, entries: &mut usize, allowed: usize) -> Result<Histogram, TranslateError> {
        if self.scale < SCHEMA_MIN {
            let reason = format!("its scale is {}; the minimum is {SCHEMA_MIN}", self.scale);
            return Err(TranslateError::Point("histogram_schema", reason));
        }
        if self.zero_threshold.is_nan() || self.zero_threshold < 0.0 {
            let reason = format!("its zero threshold {} is not a non-negative number", self.zero_threshold);
            return Err(TranslateError::Point("histogram_zero_threshold", reason));
        }
        let zero_threshold = if self.zero_threshold > 0.0 { self.zero_threshold } else { ZERO_THRESHOLD };
        let schema = self.scale.min(SCHEMA_MAX);
        let downscale = u32::try_from(self.scale.saturating_sub(schema)).unwrap_or_default();
        let (mut positive, mut negative) = (SignedBuckets::default(), SignedBuckets::default());
        positive.read(self.positive, downscale, entries, allowed)?;
        negative.read(self.negative, downscale, entries, allowed)?;
        let shape = HistogramShape::new(schema, zero_threshold, Vec::new(), positive.spans, negative.spans)?;
        let mut buckets = positive.counts;
        buckets.extend(negative.counts);
        let counts = HistogramCounts::Integer { count: self.count, zero: self.zero, buckets };
        Ok(Histogram::new(Arc::new(shape), CounterReset::Unknown, self.sum, counts)?)
    }
}

/// The buckets of one sign in the form of a native histogram.
#[derive(Default)]
struct SignedBuckets {
    spans: Vec<BucketSpan>,
    counts: Vec<u64>,
    /// The index after the last bucket.
    next: i64,
}

impl SignedBuckets {
    /// Reads a `Buckets` message and reduces its scale by `downscale`. `entries` counts the buckets
    /// of the request.
    fn read(
        &mut self,
        message: &[u8],
        downscale: u32,
        entries: &mut usize,
        allowed: usize,
    ) -> Result<(), TranslateError> {
        let mut offset = 0;
        let mut reader = WireReader::new(message);
        while let Some(field) = reader.field()? {
            if field.number == 1 {
                offset = sint32(field.uint64(BUCKETS)?, BUCKETS)?;
            }
        }
        // From 63 on, all non-negative indices are one bucket and all negative ones another.
        let downscale = downscale.min(63);
        let mut index = i64::from(offset);
        let mut reader = WireReader::new(message);
        while let Some(field) = reader.field()? {
            if field.number == 2 {
                field.varints(BUCKETS, |count| {
                    add_count("histogram buckets", entries, 1, allowed)?;
                    let bucket = index.checked_shr(downscale).unwrap_or_default().saturating_add(1);
                    index = index.saturating_add(1);
                    self.add(bucket, count)
                })?;
            }
        }
        Ok(())
    }

    /// Adds `count` to a bucket, which must be the last one or lie after it.
    fn add(&mut self, bucket: i64, count: u64) -> Result<(), TranslateError> {
        if count == 0 {
            return Ok(());
        }
        let gap = bucket.saturating_sub(self.next);
        if let (Some(last), true) = (self.counts.last_mut(), gap < 0) {
            *last = last.saturating_add(count);
            return Ok(());
        }
        match self.spans.last_mut() {
            Some(span) if gap <= FILLED_GAP_MAX => {
                let empty = usize::try_from(gap).unwrap_or_default();
                self.counts.resize(self.counts.len().saturating_add(empty), 0);
                let longer = u32::try_from(gap.saturating_add(1)).unwrap_or_default();
                span.length = span.length.saturating_add(longer);
            }
            _ => {
                let out_of_range = |_| {
                    let reason = format!("the index of its bucket {bucket} is out of range");
                    TranslateError::Point("histogram_spans", reason)
                };
                let offset = i32::try_from(gap).map_err(out_of_range)?;
                self.spans.push(BucketSpan { offset, length: 1 });
            }
        }
        if self.counts.len() >= HistogramShape::BUCKETS_MAX {
            let (what, allowed) = ("buckets", HistogramShape::BUCKETS_MAX);
            return Err(HistogramError::TooLarge { what, found: allowed.saturating_add(1), allowed }.into());
        }
        self.counts.push(count);
        self.next = bucket.saturating_add(1);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::protobuf::put_varint;
    use super::*;

    fn side(offset: i32, counts: &[u64], downscale: u32) -> (Vec<(i32, u32)>, Vec<u64>) {
        let mut message = Vec::new();
        let zigzag = (i64::from(offset) << 1 ^ i64::from(offset) >> 63).cast_unsigned();
        message.push(1 << 3);
        put_varint(zigzag, &mut message);
        for count in counts {
            message.push(2 << 3);
            put_varint(*count, &mut message);
        }
        let mut side = SignedBuckets::default();
        side.read(&message, downscale, &mut 0, 1_000_000).expect("valid");
        (side.spans.iter().map(|span| (span.offset, span.length)).collect(), side.counts)
    }

    #[test]
    fn bucket_indices_shift_by_one_and_short_gaps_are_filled() {
        assert_eq!(side(0, &[4, 2], 0), (vec![(1, 2)], vec![4, 2]));
        assert_eq!(side(-3, &[1, 0, 0, 2], 0), (vec![(-2, 4)], vec![1, 0, 0, 2]));
        assert_eq!(side(-3, &[1, 0, 0, 0, 2, 0], 0), (vec![(-2, 1), (3, 1)], vec![1, 2]));
        assert_eq!(side(5, &[0, 0, 0, 0], 0), (vec![], vec![]));
        assert_eq!(side(5, &[0, 7], 0), (vec![(7, 1)], vec![7]));
    }

    #[test]
    fn a_finer_scale_is_merged_down_to_the_schema() {
        // At half the resolution, indices 0 and 1 become index 0, and -1 and -2 become index -1.
        assert_eq!(side(-3, &[1, 2, 4, 8, 16, 32], 1), (vec![(-1, 4)], vec![1, 6, 24, 32]));
        assert_eq!(side(0, &[1; 16], 2), (vec![(1, 4)], vec![4; 4]));
        assert_eq!(side(-8, &[1; 16], 40), (vec![(0, 2)], vec![8, 8]));
        assert_eq!(side(i32::MIN, &[1], 63), (vec![(0, 1)], vec![1]));
    }
}
