//! Exponential histograms, which are native histograms with other words.
//!
//! A scale is a schema: bounds are the powers of `2^(2^-scale)`. OTLP's bucket `i` lies above the power `i`, Prometheus' one
//! below it: indices are one apart. Of a finer scale than 8, 2^n neighbours are one bucket at 8: they are added up, and
//! nothing is lost but the finer bounds.

use std::sync::Arc;

use super::super::protobuf::{WireReader, unzigzag};
use super::points::Common;
use super::translate::{Metric, Translator};
use super::{Trouble, charge, exemplars};
use crate::model::{
    BucketSpan, CounterReset, Histogram, HistogramCounts, HistogramError, HistogramShape, Timestamp,
};

const HISTOGRAM: &str = "ExponentialHistogramDataPoint";
const BUCKETS: &str = "Buckets";

/// The finest and the coarsest schema.
const SCHEMA_MAX: i32 = 8;
const SCHEMA_MIN: i32 = -4;
/// Where observations are zero, if the sender does not say; as Prometheus assumes.
const ZERO_THRESHOLD: f64 = 1e-128;
/// So many empty buckets are written down rather than a new span begun.
const GAP_MAX: i64 = 2;

impl From<HistogramError> for Trouble {
    fn from(error: HistogramError) -> Trouble {
        Trouble::Point(error.code(), error.to_string())
    }
}

/// A point field by field.
#[derive(Default)]
struct Parts<'a> {
    count: u64,
    sum: f64,
    scale: i32,
    zero: u64,
    zero_threshold: f64,
    positive: &'a [u8],
    negative: &'a [u8],
}

impl Translator<'_> {
    /// A point of an exponential histogram.
    pub(super) fn exponential(&mut self, message: &[u8], metric: &Metric) -> Result<Timestamp, Trouble> {
        let (mut common, mut parts, mut has_exemplars) = (Common::default(), Parts::default(), false);
        let mut reader = WireReader::new(message);
        while let Some(field) = reader.field()? {
            if common.read(&field, HISTOGRAM)? {
                continue;
            }
            match field.number {
                1 => self.labels.add(field.bytes(HISTOGRAM)?)?,
                4 => parts.count = field.fixed64(HISTOGRAM)?,
                5 => parts.sum = field.double(HISTOGRAM)?,
                6 => parts.scale = signed(field.uint64(HISTOGRAM)?, HISTOGRAM)?,
                7 => parts.zero = field.fixed64(HISTOGRAM)?,
                8 => parts.positive = field.bytes(HISTOGRAM)?,
                9 => parts.negative = field.bytes(HISTOGRAM)?,
                10 => common.read_flags(&field, HISTOGRAM)?,
                11 => has_exemplars = true,
                14 => parts.zero_threshold = field.double(HISTOGRAM)?,
                _ => {}
            }
        }
        self.labels.finish((message, 1), &self.resource, None)?;
        let at = common.at()?;
        let histogram = if common.is_stale {
            Histogram::stale()
        } else {
            parts.build(&mut self.sink.buckets, self.sink.limits.buckets_max)?
        };
        let [own, shared] = self.labels.parts(&self.resource);
        self.sink.add_histogram(&[&metric.name, own, shared], at, histogram, common.start(true))?;
        if has_exemplars {
            exemplars::each(message, 11, at, &mut self.sink, |exemplar, sink| sink.add_exemplar(exemplar))?;
        }
        Ok(at)
    }
}

/// A sint32.
fn signed(value: u64, message: &'static str) -> Result<i32, Trouble> {
    let value = unzigzag(value);
    let wrong = || Trouble::Point("histogram_spans", format!("a number of {message} has more than 32 bits"));
    i32::try_from(value).map_err(|_| wrong())
}

impl Parts<'_> {
    fn build(&self, entries: &mut usize, allowed: usize) -> Result<Histogram, Trouble> {
        if self.scale < SCHEMA_MIN {
            let reason = format!("its scale is {}, at least {SCHEMA_MIN} is taken", self.scale);
            return Err(Trouble::Point("histogram_schema", reason));
        }
        if self.zero_threshold.is_nan() || self.zero_threshold < 0.0 {
            let reason = format!("its zero threshold is {}", self.zero_threshold);
            return Err(Trouble::Point("histogram_zero_threshold", reason));
        }
        let zero_threshold = if self.zero_threshold > 0.0 { self.zero_threshold } else { ZERO_THRESHOLD };
        let schema = self.scale.min(SCHEMA_MAX);
        let finer = u32::try_from(self.scale.saturating_sub(schema)).unwrap_or_default();
        let (mut positive, mut negative) = (Side::default(), Side::default());
        positive.read(self.positive, finer, entries, allowed)?;
        negative.read(self.negative, finer, entries, allowed)?;
        let shape = HistogramShape::new(schema, zero_threshold, Vec::new(), positive.spans, negative.spans)?;
        let mut buckets = positive.counts;
        buckets.extend(negative.counts);
        let counts = HistogramCounts::Integer { count: self.count, zero: self.zero, buckets };
        Ok(Histogram::new(Arc::new(shape), CounterReset::Unknown, self.sum, counts)?)
    }
}

/// Buckets of one sign, as they are kept.
#[derive(Default)]
struct Side {
    spans: Vec<BucketSpan>,
    counts: Vec<u64>,
    /// The index after the last bucket.
    next: i64,
}

impl Side {
    /// Reads a `Buckets`, of a scale that is finer by so many steps.
    fn read(
        &mut self,
        message: &[u8],
        finer: u32,
        entries: &mut usize,
        allowed: usize,
    ) -> Result<(), Trouble> {
        let mut offset = 0;
        let mut reader = WireReader::new(message);
        while let Some(field) = reader.field()? {
            if field.number == 1 {
                offset = signed(field.uint64(BUCKETS)?, BUCKETS)?;
            }
        }
        // Beyond 63 steps all positive indices are one, and all negative ones.
        let finer = finer.min(63);
        let mut index = i64::from(offset);
        let mut reader = WireReader::new(message);
        while let Some(field) = reader.field()? {
            if field.number == 2 {
                field.varints(BUCKETS, |count| {
                    charge("histogram buckets", entries, 1, allowed)?;
                    let bucket = index.checked_shr(finer).unwrap_or_default().saturating_add(1);
                    index = index.saturating_add(1);
                    self.add(bucket, count)
                })?;
            }
        }
        Ok(())
    }

    /// Adds to a bucket, the last one or one after it.
    fn add(&mut self, bucket: i64, count: u64) -> Result<(), Trouble> {
        if count == 0 {
            return Ok(());
        }
        let gap = bucket.saturating_sub(self.next);
        if let (Some(last), true) = (self.counts.last_mut(), gap < 0) {
            *last = last.saturating_add(count);
            return Ok(());
        }
        match self.spans.last_mut() {
            Some(span) if gap <= GAP_MAX => {
                let empty = usize::try_from(gap).unwrap_or_default();
                self.counts.resize(self.counts.len().saturating_add(empty), 0);
                let longer = u32::try_from(gap.saturating_add(1)).unwrap_or_default();
                span.length = span.length.saturating_add(longer);
            }
            _ => {
                let out_of_range = |_| {
                    let reason = format!("its bucket {bucket} is beyond every bucket");
                    Trouble::Point("histogram_spans", reason)
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

    fn side(offset: i32, counts: &[u64], finer: u32) -> (Vec<(i32, u32)>, Vec<u64>) {
        let mut message = Vec::new();
        let zigzag = (i64::from(offset) << 1 ^ i64::from(offset) >> 63).cast_unsigned();
        message.push(1 << 3);
        put_varint(zigzag, &mut message);
        for count in counts {
            message.push(2 << 3);
            put_varint(*count, &mut message);
        }
        let mut side = Side::default();
        side.read(&message, finer, &mut 0, 1_000_000).expect("valid");
        (side.spans.iter().map(|span| (span.offset, span.length)).collect(), side.counts)
    }

    #[test]
    fn buckets_are_one_further_and_short_gaps_are_filled() {
        assert_eq!(side(0, &[4, 2], 0), (vec![(1, 2)], vec![4, 2]));
        assert_eq!(side(-3, &[1, 0, 0, 2], 0), (vec![(-2, 4)], vec![1, 0, 0, 2]));
        assert_eq!(side(-3, &[1, 0, 0, 0, 2, 0], 0), (vec![(-2, 1), (3, 1)], vec![1, 2]));
        assert_eq!(side(5, &[0, 0, 0, 0], 0), (vec![], vec![]));
        assert_eq!(side(5, &[0, 7], 0), (vec![(7, 1)], vec![7]));
    }

    #[test]
    fn a_finer_scale_is_added_up_two_by_two() {
        // Indices 0 and 1 are index 0 at half the resolution, -1 and -2 are index -1.
        assert_eq!(side(-3, &[1, 2, 4, 8, 16, 32], 1), (vec![(-1, 4)], vec![1, 6, 24, 32]));
        assert_eq!(side(0, &[1; 16], 2), (vec![(1, 4)], vec![4; 4]));
        assert_eq!(side(-8, &[1; 16], 40), (vec![(0, 2)], vec![8, 8]));
        assert_eq!(side(i32::MIN, &[1], 63), (vec![(0, 1)], vec![1]));
    }
}
