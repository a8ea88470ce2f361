//! Gauges, sums and summaries: points of a few numbers.

use super::super::DecodeError;
use super::super::protobuf::{Field, WireError, WireReader};
use super::translate::{Metric, Translator};
use super::{Trouble, exemplars};
use crate::model::{RenderedLabels, Sample, Timestamp, stale_nan};

const NUMBER: &str = "NumberDataPoint";
const SUMMARY: &str = "SummaryDataPoint";
const QUANTILE: &str = "ValueAtQuantile";

/// Quantiles of one summary.
const QUANTILES_MAX: usize = 1_024;
/// Of a point's flags: there is nothing to tell at this time.
const NO_RECORDED_VALUE: u64 = 1;

/// What points of every kind have: fields 2 and 3, and flags.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Common {
    start_ns: u64,
    time_ns: u64,
    /// The series has ended, or paused: a staleness marker.
    pub(super) is_stale: bool,
}

impl Common {
    /// Reads field 2 or 3, or says that it is another.
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

    /// When.
    pub(super) fn at(&self) -> Result<Timestamp, Trouble> {
        if self.time_ns == 0 {
            return Err(Trouble::Point("missing_time", "it has no time (timeUnixNano)".to_owned()));
        }
        Ok(from_ns(self.time_ns))
    }

    /// Since when, where that is known.
    pub(super) fn start(&self, counts: bool) -> Option<Timestamp> {
        Some(from_ns(self.start_ns)).filter(|start| counts && start.as_ms() != 0)
    }

    /// A sample of this value, or a staleness marker.
    pub(super) fn sample(&self, at: Timestamp, value: f64) -> Sample {
        Sample { at, value: if self.is_stale { stale_nan() } else { value } }
    }
}

/// Nanoseconds to milliseconds, always within 63 bits.
pub(super) fn from_ns(ns: u64) -> Timestamp {
    Timestamp::from_ms(i64::try_from(ns / 1_000_000).unwrap_or(i64::MAX))
}

/// A count as PromQL has it: beyond 2^53 the nearest double.
#[expect(clippy::cast_precision_loss, reason = "counts beyond 2^53 are rounded, as everywhere in PromQL")]
pub(super) const fn double(count: u64) -> f64 {
    count as f64
}

/// The same of a signed number.
#[expect(clippy::cast_precision_loss, reason = "as above")]
pub(super) const fn signed_double(value: u64) -> f64 {
    value.cast_signed() as f64
}

impl Translator<'_> {
    /// A point of a gauge or a sum.
    pub(super) fn number(&mut self, message: &[u8], metric: &Metric) -> Result<Timestamp, Trouble> {
        let (mut common, mut value, mut has_exemplars) = (Common::default(), None, false);
        let mut reader = WireReader::new(message);
        loop {
            // Most of a point is its attributes.
            while let Some(attribute) = reader.nested(7 << 3 | 2) {
                self.labels.add(attribute)?;
            }
            let Some(field) = reader.field()? else { break };
            match field.number {
                7 => self.labels.add(field.bytes(NUMBER)?)?,
                2 | 3 => _ = common.read(&field, NUMBER)?,
                4 => value = Some(field.double(NUMBER)?),
                6 => value = Some(signed_double(field.fixed64(NUMBER)?)),
                5 => has_exemplars = true,
                8 => common.read_flags(&field, NUMBER)?,
                _ => {}
            }
        }
        self.labels.finish((message, 7), &self.resource, None)?;
        let at = common.at()?;
        let Some(value) = value.or(common.is_stale.then_some(0.0)) else {
            return Err(Trouble::Point("missing_value", "it has no value (asDouble or asInt)".to_owned()));
        };
        let [own, shared] = self.labels.parts(&self.resource);
        self.sink.add(&[&metric.name, own, shared], common.sample(at, value), common.start(metric.counts))?;
        if has_exemplars {
            exemplars::each(message, 5, at, &mut self.sink, |exemplar, sink| sink.add_exemplar(exemplar))?;
        }
        Ok(at)
    }

    pub(super) fn summaries(&mut self, message: &[u8], metric: &Metric) -> Result<(), DecodeError> {
        let endings = [metric.ending("_sum"), metric.ending("_count")];
        self.each_point(message, metric, |this, point, metric| this.summary(point, metric, &endings))
    }

    fn summary(
        &mut self,
        message: &[u8],
        metric: &Metric,
        [name_sum, name_count]: &[RenderedLabels; 2],
    ) -> Result<Timestamp, Trouble> {
        let (mut common, mut count, mut sum, mut quantiles) = (Common::default(), 0, 0.0, Vec::new());
        let mut reader = WireReader::new(message);
        while let Some(field) = reader.field()? {
            if common.read(&field, SUMMARY)? {
                continue;
            }
            match field.number {
                4 => count = field.fixed64(SUMMARY)?,
                5 => sum = field.double(SUMMARY)?,
                6 if quantiles.len() < QUANTILES_MAX => quantiles.push(quantile(field.bytes(SUMMARY)?)?),
                6 => {
                    let reason = format!("it has more than {QUANTILES_MAX} quantiles");
                    return Err(Trouble::Point("summary_quantiles", reason));
                }
                7 => self.labels.add(field.bytes(SUMMARY)?)?,
                8 => common.read_flags(&field, SUMMARY)?,
                _ => {}
            }
        }
        self.labels.finish((message, 7), &self.resource, Some("quantile"))?;
        let (at, start) = (common.at()?, common.start(true));
        if let Some((wrong, _)) = quantiles.iter().find(|(rank, _)| !(0.0..=1.0).contains(rank)) {
            let reason = format!("a quantile is between 0 and 1, and not {wrong}");
            return Err(Trouble::Point("summary_quantiles", reason));
        }
        let [own, shared] = self.labels.parts(&self.resource);
        self.sink.add(&[name_sum, own, shared], common.sample(at, sum), start)?;
        self.sink.add(&[name_count, own, shared], common.sample(at, double(count)), start)?;
        let mut label = RenderedLabels::default();
        for (rank, value) in quantiles {
            label.clear();
            label.push("quantile", &rank.to_string());
            self.sink.add(&[&metric.name, own, shared, &label], common.sample(at, value), None)?;
        }
        Ok(at)
    }
}

/// Rank and value.
fn quantile(message: &[u8]) -> Result<(f64, f64), WireError> {
    let (mut rank, mut value) = (0.0, 0.0);
    let mut reader = WireReader::new(message);
    while let Some(field) = reader.field()? {
        match field.number {
            1 => rank = field.double(QUANTILE)?,
            2 => value = field.double(QUANTILE)?,
            _ => {}
        }
    }
    Ok((rank, value))
}
