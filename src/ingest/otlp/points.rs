//! Translation of the points of gauges, sums and summaries.

use super::super::DecodeError;
use super::super::protobuf::{Field, WireError, WireReader, double_pair};
use super::delta::{DeltaTimes, check_change};
use super::translate::{MetricNames, Translator};
use super::{TranslateError, exemplars};
use crate::model::{RenderedLabels, Sample, Timestamp, stale_nan};

const NUMBER: &str = "NumberDataPoint";
const SUMMARY: &str = "SummaryDataPoint";
const QUANTILE: &str = "ValueAtQuantile";

/// Quantiles of one summary, at most.
const QUANTILES_MAX: usize = 1_024;
/// Bit of the flags of a point: the point has no recorded value.
const NO_RECORDED_VALUE: u64 = 1;

/// The fields that points of all kinds have: start (2), time (3) and flags.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PointHeader {
    start_ns: u64,
    time_ns: u64,
    /// The flags state that there is no value, so the sample is a staleness marker.
    pub(super) is_stale: bool,
}

impl PointHeader {
    /// Reads field 2 or 3. Returns false if the field is another.
    #[inline]
    pub(super) fn read(&mut self, field: &Field<'_>, message: &'static str) -> Result<bool, WireError> {
        match field.number {
            2 => self.start_ns = field.fixed64(message)?,
            3 => self.time_ns = field.fixed64(message)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    pub(super) fn read_flags(&mut self, field: &Field<'_>, message: &'static str) -> Result<(), WireError> {
        self.is_stale = field.uint64(message)? & NO_RECORDED_VALUE != 0;
        Ok(())
    }

    /// Returns the time.
    ///
    /// # Errors
    /// `missing_time`, if it is zero.
    pub(super) fn at(&self) -> Result<Timestamp, TranslateError> {
        if self.time_ns == 0 {
            return Err(TranslateError::Point("missing_time", "it has no time (timeUnixNano)".to_owned()));
        }
        Ok(from_ns(self.time_ns))
    }

    /// Returns the start timestamp; `None` if it is absent or the metric is not cumulative.
    pub(super) fn start(&self, is_cumulative: bool) -> Option<Timestamp> {
        Some(from_ns(self.start_ns)).filter(|start| is_cumulative && start.as_ms() != 0)
    }

    /// Returns the interval of a point of delta temporality.
    pub(super) fn interval(&self, at: Timestamp) -> DeltaTimes {
        DeltaTimes { start: self.start(true), at }
    }

    /// Returns a sample of this value, or a staleness marker if the point has no recorded value.
    pub(super) fn sample(&self, at: Timestamp, value: f64) -> Sample {
        Sample { at, value: if self.is_stale { stale_nan() } else { value } }
    }
}

/// Converts nanoseconds to milliseconds, rounding down; the result always fits.
pub(super) fn from_ns(ns: u64) -> Timestamp {
    Timestamp::from_ms(i64::try_from(ns / 1_000_000).unwrap_or(i64::MAX))
}

/// Converts a count to a double, as PromQL does: beyond 2^53 to the nearest one.
#[expect(clippy::cast_precision_loss, reason = "counts beyond 2^53 are rounded, as everywhere in PromQL")]
pub(super) const fn double(count: u64) -> f64 {
    count as f64
}

/// Converts the bits of an `sfixed64` to a double, like [`double`].
#[expect(clippy::cast_precision_loss, reason = "as above")]
pub(super) const fn signed_double(value: u64) -> f64 {
    value.cast_signed() as f64
}

impl Translator<'_> {
    /// Translates a point of a gauge or a sum.
    pub(super) fn number(
        &mut self,
        message: &[u8],
        metric: &MetricNames,
    ) -> Result<Timestamp, TranslateError> {
        let (mut header, mut value, mut has_exemplars) = (PointHeader::default(), None, false);
        let mut reader = WireReader::new(message);
        loop {
            // Most bytes of a point are attributes.
            while let Some(attribute) = reader.nested(7 << 3 | 2) {
                self.labels.add(attribute)?;
            }
            let Some(field) = reader.field()? else { break };
            match field.number {
                7 => self.labels.add(field.bytes(NUMBER)?)?,
                2 | 3 => _ = header.read(&field, NUMBER)?,
                4 => value = Some(field.double(NUMBER)?),
                6 => value = Some(signed_double(field.fixed64(NUMBER)?)),
                5 => has_exemplars = true,
                8 => header.read_flags(&field, NUMBER)?,
                _ => {}
            }
        }
        self.labels.finish(message, 7, &self.resource, None)?;
        let at = header.at()?;
        let Some(value) = value.or(header.is_stale.then_some(0.0)) else {
            return Err(TranslateError::Point(
                "missing_value",
                "it has no value (asDouble or asInt)".to_owned(),
            ));
        };
        let [own, shared] = self.labels.parts(&self.resource);
        let series = [&metric.name, own, shared];
        let (mut value, mut start) = (value, header.start(metric.is_cumulative));
        if let Some(totals) = Translator::totals(&mut self.totals, self.is_delta) {
            if header.is_stale {
                totals.end(&series);
            } else {
                check_change(value, metric.is_cumulative)?;
                let origin = totals.admit(&series, header.interval(at))?;
                value = totals.add(&series, at, value);
                start = origin.filter(|_| metric.is_cumulative);
            }
        }
        self.sink.add(&series, header.sample(at, value), start)?;
        if has_exemplars {
            exemplars::each(message, 5, at, &mut self.sink, |exemplar, sink| sink.add_exemplar(exemplar))?;
        }
        Ok(at)
    }

    /// Translates all points of a summary.
    pub(super) fn summaries(&mut self, message: &[u8], metric: &MetricNames) -> Result<(), DecodeError> {
        let names = [metric.with_suffix("_sum"), metric.with_suffix("_count")];
        self.each_point(message, metric, |this, point, metric| this.summary(point, metric, &names))
    }

    /// Translates a point of a summary to a sum, a count and a sample per quantile.
    fn summary(
        &mut self,
        message: &[u8],
        metric: &MetricNames,
        [name_sum, name_count]: &[RenderedLabels; 2],
    ) -> Result<Timestamp, TranslateError> {
        let (mut header, mut count, mut sum, mut quantiles) = (PointHeader::default(), 0, 0.0, Vec::new());
        let mut reader = WireReader::new(message);
        while let Some(field) = reader.field()? {
            if header.read(&field, SUMMARY)? {
                continue;
            }
            match field.number {
                4 => count = field.fixed64(SUMMARY)?,
                5 => sum = field.double(SUMMARY)?,
                6 if quantiles.len() < QUANTILES_MAX => {
                    quantiles.push(double_pair(field.bytes(SUMMARY)?, QUANTILE)?)
                }
                6 => {
                    let reason = format!("it has more than {QUANTILES_MAX} quantiles");
                    return Err(TranslateError::Point("summary_quantiles", reason));
                }
                7 => self.labels.add(field.bytes(SUMMARY)?)?,
                8 => header.read_flags(&field, SUMMARY)?,
                _ => {}
            }
        }
        self.labels.finish(message, 7, &self.resource, Some("quantile"))?;
        let (at, start) = (header.at()?, header.start(true));
        if let Some((wrong, _)) = quantiles.iter().find(|(rank, _)| !(0.0..=1.0).contains(rank)) {
            let reason = format!("its quantile {wrong} is not between 0 and 1");
            return Err(TranslateError::Point("summary_quantiles", reason));
        }
        let [own, shared] = self.labels.parts(&self.resource);
        self.sink.add(&[name_sum, own, shared], header.sample(at, sum), start)?;
        self.sink.add(&[name_count, own, shared], header.sample(at, double(count)), start)?;
        let mut label = RenderedLabels::default();
        for (rank, value) in quantiles {
            label.clear();
            label.push("quantile", &rank.to_string());
            self.sink.add(&[&metric.name, own, shared, &label], header.sample(at, value), None)?;
        }
        Ok(at)
    }
}
