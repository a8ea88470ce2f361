//! The message `Histogram` of the exposition, with classic buckets, native buckets, or both.
//!
//! Fields that are read: 1 count (uint64), 2 sum (double), 3 `Bucket`, 4 count (double), 5 schema
//! (sint32), 6 zero threshold (double), 7 zero count (uint64), 8 zero count (double), 9 negative
//! `BucketSpan`, 10 negative deltas (sint64), 11 negative counts (double), 12 to 14 the same for
//! the positive side, 15 created `Timestamp`, 16 `Exemplar`.
//!
//! `Bucket`: 1 cumulative count (uint64), 2 upper bound (double), 3 `Exemplar`, 4 cumulative count
//! (double). `BucketSpan`: 1 offset (sint32), 2 length (uint32). A positive count in field 4 or 8
//! makes the histogram one of float counts.

use std::sync::Arc;

use super::{
    ExpositionDecoder, FamilyMetric, FamilyType, MetricSeries, SentExemplar, exemplar, float_of, timestamp,
};
use crate::ingest::DecodeError;
use crate::ingest::histogram::{check_count, span};
use crate::ingest::protobuf::{Field, WireReader, unzigzag};
use crate::model::{
    BucketSpan, CounterReset, Histogram, HistogramCounts, HistogramError, HistogramShape, Timestamp,
    counts_from_deltas,
};

const HISTOGRAM: &str = "Histogram";
const BUCKET: &str = "Bucket";

/// The fields of a `Histogram` without its classic buckets.
#[derive(Default)]
struct NativeFields<'a> {
    count: u64,
    float_count: f64,
    sum: f64,
    schema: i64,
    zero_threshold: f64,
    zero: u64,
    float_zero: f64,
    negative: NativeBuckets,
    positive: NativeBuckets,
    start: Option<Timestamp>,
    exemplars: Vec<SentExemplar<'a>>,
    has_classic: bool,
}

/// Buckets of one sign.
#[derive(Default)]
struct NativeBuckets {
    spans: Vec<BucketSpan>,
    deltas: Vec<i64>,
    counts: Vec<f64>,
}

/// A classic bucket.
#[derive(Default)]
struct ClassicBucket<'a> {
    count: u64,
    float_count: f64,
    upper_bound: f64,
    exemplar: Option<SentExemplar<'a>>,
}

impl<'a> ClassicBucket<'a> {
    fn read(message: &'a [u8]) -> Result<ClassicBucket<'a>, DecodeError> {
        let mut bucket = ClassicBucket::default();
        let mut reader = WireReader::new(message);
        while let Some(field) = reader.field()? {
            match field.number {
                1 => bucket.count = field.uint64(BUCKET)?,
                2 => bucket.upper_bound = field.double(BUCKET)?,
                3 => bucket.exemplar = Some(exemplar(field.bytes(BUCKET)?)?),
                4 => bucket.float_count = field.double(BUCKET)?,
                _ => {}
            }
        }
        Ok(bucket)
    }
}

impl ExpositionDecoder<'_> {
    pub(super) fn histogram(
        &mut self,
        metric: &FamilyMetric<'_, '_>,
        message: &[u8],
    ) -> Result<(), DecodeError> {
        let mut fields = self.native_fields(message)?;
        let is_native = fields.is_native();
        if !is_native || (self.options.classic && fields.has_classic) {
            self.classic(metric, message, &fields)?;
        }
        if !is_native {
            return Ok(());
        }
        check_count("histograms", self.histograms, self.limits.histograms_max)?;
        self.histograms = self.histograms.saturating_add(1);
        let (start, exemplars) = (fields.start, std::mem::take(&mut fields.exemplars));
        let has_own_exemplars = !exemplars.is_empty();
        let reset = match metric.family.kind {
            FamilyType::GaugeHistogram => CounterReset::Gauge,
            _ => CounterReset::Unknown,
        };
        let native = match fields.build(reset) {
            Ok(native) => native,
            Err(error) => {
                self.refuse(error.code(), metric.display(), error.to_string());
                return Ok(());
            }
        };
        self.add_series(metric, "", None, None)?;
        self.out.batch.histograms([(metric.at, native)]);
        self.start(metric, start);
        // Without a time, an exemplar of a native histogram cannot be told from that of the scrape
        // before.
        for sent in exemplars.iter().filter(|sent| sent.at.is_some()) {
            self.exemplar(metric, sent)?;
        }
        if !has_own_exemplars {
            self.bucket_exemplars(metric, message)?;
        }
        Ok(())
    }

    fn native_fields<'a>(&mut self, message: &'a [u8]) -> Result<NativeFields<'a>, DecodeError> {
        let mut fields = NativeFields::default();
        let mut reader = WireReader::new(message);
        while let Some(field) = reader.field()? {
            match field.number {
                1 => fields.count = field.uint64(HISTOGRAM)?,
                2 => fields.sum = field.double(HISTOGRAM)?,
                3 => fields.has_classic = true,
                4 => fields.float_count = field.double(HISTOGRAM)?,
                5 => fields.schema = unzigzag(field.uint64(HISTOGRAM)?),
                6 => fields.zero_threshold = field.double(HISTOGRAM)?,
                7 => fields.zero = field.uint64(HISTOGRAM)?,
                8 => fields.float_zero = field.double(HISTOGRAM)?,
                9..=11 => self.buckets(&field, field.number.saturating_sub(9), &mut fields.negative)?,
                12..=14 => self.buckets(&field, field.number.saturating_sub(12), &mut fields.positive)?,
                15 => fields.start = Some(timestamp(field.bytes(HISTOGRAM)?)?),
                16 => {
                    check_count("exemplars", fields.exemplars.len(), self.limits.exemplars_max)?;
                    fields.exemplars.push(exemplar(field.bytes(HISTOGRAM)?)?);
                }
                _ => {}
            }
        }
        Ok(fields)
    }

    /// Reads a field of one sign: 0 is a span, 1 are deltas, 2 are counts.
    fn buckets(
        &mut self,
        field: &Field<'_>,
        which: u32,
        side: &mut NativeBuckets,
    ) -> Result<(), DecodeError> {
        let allowed = self.limits.buckets_max;
        let count = |found: &mut usize| {
            check_count("histogram buckets", *found, allowed)?;
            *found = found.saturating_add(1);
            Ok::<_, DecodeError>(())
        };
        match which {
            0 => {
                count(&mut self.buckets)?;
                side.spans.push(span(field.bytes(HISTOGRAM)?)?);
                Ok(())
            }
            1 => field.varints(HISTOGRAM, |delta| {
                count(&mut self.buckets)?;
                side.deltas.push(unzigzag(delta));
                Ok::<_, DecodeError>(())
            }),
            _ => field.doubles(HISTOGRAM, |value| {
                count(&mut self.buckets)?;
                side.counts.push(value);
                Ok::<_, DecodeError>(())
            }),
        }
    }

    /// Adds the series of a classic histogram. A missing bucket for `+Inf` is added.
    fn classic(
        &mut self,
        metric: &FamilyMetric<'_, '_>,
        message: &[u8],
        fields: &NativeFields<'_>,
    ) -> Result<(), DecodeError> {
        let all = fields.all_observations();
        for (suffix, value) in [("_count", all), ("_sum", fields.sum)] {
            self.series(metric, &MetricSeries { suffix, label: None, value })?;
            self.start(metric, fields.start);
        }
        let mut has_infinity = false;
        let mut reader = WireReader::new(message);
        while let Some(field) = reader.field()? {
            if field.number != 3 {
                continue;
            }
            let bucket = ClassicBucket::read(field.bytes(HISTOGRAM)?)?;
            has_infinity |= bucket.upper_bound == f64::INFINITY;
            let bound = self.options.float_labels.format(bucket.upper_bound);
            let value = if bucket.float_count > 0.0 { bucket.float_count } else { float_of(bucket.count) };
            let label = Some(("le", bound.as_str()));
            self.series(metric, &MetricSeries { suffix: "_bucket", label, value })?;
            self.start(metric, fields.start);
            if let Some(sent) = &bucket.exemplar {
                self.exemplar(metric, sent)?;
            }
        }
        if !has_infinity {
            let label = Some(("le", "+Inf"));
            self.series(metric, &MetricSeries { suffix: "_bucket", label, value: all })?;
            self.start(metric, fields.start);
        }
        Ok(())
    }

    /// Adds the exemplars of classic buckets, which have a time, to the last series.
    fn bucket_exemplars(&mut self, metric: &FamilyMetric<'_, '_>, message: &[u8]) -> Result<(), DecodeError> {
        let mut reader = WireReader::new(message);
        while let Some(field) = reader.field()? {
            if field.number != 3 {
                continue;
            }
            let bucket = ClassicBucket::read(field.bytes(HISTOGRAM)?)?;
            if let Some(sent) = bucket.exemplar.filter(|sent| sent.at.is_some()) {
                self.exemplar(metric, &sent)?;
            }
        }
        Ok(())
    }
}

impl NativeFields<'_> {
    fn is_native(&self) -> bool {
        !self.positive.spans.is_empty()
            || !self.negative.spans.is_empty()
            || self.zero_threshold > 0.0
            || self.zero > 0
            || self.float_zero > 0.0
    }

    fn is_float(&self) -> bool {
        self.float_count > 0.0 || self.float_zero > 0.0
    }

    /// Returns the number of observations.
    fn all_observations(&self) -> f64 {
        if self.float_count > 0.0 { self.float_count } else { float_of(self.count) }
    }

    fn build(self, reset: CounterReset) -> Result<Histogram, HistogramError> {
        let is_float = self.is_float();
        let schema = i32::try_from(self.schema).map_err(|_| HistogramError::Schema(i32::MAX))?;
        let NativeBuckets { spans: positive, deltas, counts } = self.positive;
        let negative = self.negative;
        // An empty span only marks a native histogram without observations.
        let used = |spans: Vec<BucketSpan>| match spans.as_slice() {
            [BucketSpan { offset: 0, length: 0 }] => Vec::new(),
            _ => spans,
        };
        let shape = HistogramShape::new(
            schema,
            self.zero_threshold,
            Vec::new(),
            used(positive),
            used(negative.spans),
        )?;
        let sent = |deltas: usize, counts: usize| if is_float { counts } else { deltas };
        for (expected, found) in [
            (shape.positive_buckets(), sent(deltas.len(), counts.len())),
            (shape.negative_buckets(), sent(negative.deltas.len(), negative.counts.len())),
        ] {
            if expected != found {
                return Err(HistogramError::Buckets { expected, found });
            }
        }
        let counts = if is_float {
            let buckets = counts.into_iter().chain(negative.counts).collect();
            HistogramCounts::Float { count: self.float_count, zero: self.float_zero, buckets }
        } else {
            let mut buckets = Vec::with_capacity(shape.buckets());
            counts_from_deltas(deltas, &mut buckets)?;
            counts_from_deltas(negative.deltas, &mut buckets)?;
            HistogramCounts::Integer { count: self.count, zero: self.zero, buckets }
        };
        Histogram::new(Arc::new(shape), reset, self.sum, counts)
    }
}
