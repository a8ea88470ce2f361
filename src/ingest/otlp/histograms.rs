//! Translation of histograms with explicit bounds to series of cumulative buckets, a sum and a
//! count.

use super::super::DecodeError;
use super::super::protobuf::WireReader;
use super::delta::check_change;
use super::points::{PointHeader, double};
use super::translate::{MetricNames, Translator};
use super::{TranslateError, add_count, exemplars};
use crate::model::{Exemplar, RenderedLabels, Timestamp};

const HISTOGRAM: &str = "HistogramDataPoint";

/// The buckets of the current point, and the rendered `le` labels of the previous one, which
/// usually has the same bounds.
#[derive(Debug, Default)]
pub(super) struct BucketBuffers {
    bounds: Vec<f64>,
    counts: Vec<u64>,
    /// The bounds of `rendered`.
    rendered_bounds: Vec<f64>,
    rendered: Vec<RenderedLabels>,
    infinity: RenderedLabels,
}

impl BucketBuffers {
    /// Renders the `le` labels of the bounds, as Prometheus writes floats.
    fn render(&mut self) {
        if self.infinity.bytes() == 0 {
            self.infinity.push("le", "+Inf");
        }
        let same = |(a, b): (&f64, &f64)| a.to_bits() == b.to_bits();
        let (rendered, bounds) = (&self.rendered_bounds, &self.bounds);
        if rendered.len() == bounds.len() && rendered.iter().zip(bounds).all(same) {
            return;
        }
        self.rendered.clear();
        self.rendered.extend(bounds.iter().map(|bound| {
            let mut label = RenderedLabels::default();
            label.push("le", &bound.to_string());
            label
        }));
        self.rendered_bounds.clone_from(bounds);
    }

    /// Checks the bounds and counts, and removes an infinite last bound.
    ///
    /// # Errors
    /// `histogram_buckets`, if their numbers do not match or the bounds are not ascending.
    fn check(&mut self, is_stale: bool) -> Result<(), TranslateError> {
        let (bounds, counts) = (self.bounds.len(), self.counts.len());
        let fits = counts == bounds.saturating_add(1) || (bounds, counts) == (0, 0);
        let wrong = |reason: String| Err(TranslateError::Point("histogram_buckets", reason));
        // A stale point needs bounds to identify its series, but no counts.
        if !fits && !is_stale {
            return wrong(format!(
                "it has {bounds} bounds and {counts} counts; there must be one count more than bounds"
            ));
        }
        if self.bounds.iter().any(|bound| bound.is_nan()) || !self.bounds.is_sorted_by(|a, b| a < b) {
            return wrong("its bounds are not ascending".to_owned());
        }
        // The last bucket is unbounded, whether or not the infinite bound is stated.
        if self.bounds.last() == Some(&f64::INFINITY) {
            self.bounds.pop();
        }
        Ok(())
    }
}

impl Translator<'_> {
    /// Translates all points of a histogram.
    pub(super) fn histograms(&mut self, message: &[u8], metric: &MetricNames) -> Result<(), DecodeError> {
        let names = ["_sum", "_count", "_bucket"].map(|suffix| metric.with_suffix(suffix));
        self.each_point(message, metric, |this, point, _| this.histogram(point, &names))
    }

    /// Translates a point of a histogram.
    fn histogram(
        &mut self,
        message: &[u8],
        [name_sum, name_count, name_bucket]: &[RenderedLabels; 3],
    ) -> Result<Timestamp, TranslateError> {
        let (mut header, mut count, mut sum) = (PointHeader::default(), 0, None);
        let mut exemplars_by_bucket = Vec::new();
        self.buckets.bounds.clear();
        self.buckets.counts.clear();
        let (entries, allowed) = (&mut self.sink.buckets, self.sink.limits.buckets_max);
        let mut reader = WireReader::new(message);
        while let Some(field) = reader.field()? {
            if header.read(&field, HISTOGRAM)? {
                continue;
            }
            match field.number {
                4 => count = field.fixed64(HISTOGRAM)?,
                5 => sum = Some(field.double(HISTOGRAM)?),
                6 => field.fixed64s(HISTOGRAM, |count| {
                    add_count("histogram buckets", entries, 1, allowed)?;
                    self.buckets.counts.push(count);
                    Ok::<_, DecodeError>(())
                })?,
                7 => field.doubles(HISTOGRAM, |bound| {
                    add_count("histogram buckets", entries, 1, allowed)?;
                    self.buckets.bounds.push(bound);
                    Ok::<_, DecodeError>(())
                })?,
                9 => self.labels.add(field.bytes(HISTOGRAM)?)?,
                10 => header.read_flags(&field, HISTOGRAM)?,
                _ => {}
            }
        }
        self.labels.finish(message, 9, &self.resource, Some("le"))?;
        let (at, start) = (header.at()?, header.start(true));
        self.buckets.check(header.is_stale)?;
        self.buckets.render();
        let bounds = &self.buckets.bounds;
        exemplars::each(message, 8, at, &mut self.sink, |exemplar, sink| {
            // The exemplars are added to the batch, and counted, after the buckets are sorted; this
            // limit bounds them until then.
            add_count("exemplars", &mut exemplars_by_bucket.len(), 1, sink.limits.exemplars_max)?;
            exemplars_by_bucket.push((bounds.partition_point(|bound| *bound < exemplar.value), exemplar));
            Ok(())
        })?;
        exemplars_by_bucket.sort_by_key(|(bucket, _)| *bucket);

        let [own, shared] = self.labels.parts(&self.resource);
        let mut totals = Translator::totals(&mut self.totals, self.is_delta);
        let mut start = start;
        if let Some(totals) = totals.as_mut().filter(|_| !header.is_stale) {
            check_change(sum.unwrap_or_default(), false)?;
            start = totals.admit(&[name_count, own, shared], header.interval(at))?;
        }
        let mut total = |series: &[&RenderedLabels], value: f64| match totals.as_mut() {
            None => value,
            Some(totals) if header.is_stale => {
                totals.end(series);
                value
            }
            Some(totals) => totals.add(series, at, value),
        };
        if let Some(sum) = sum {
            let series = [name_sum, own, shared];
            self.sink.add(&series, header.sample(at, total(&series, sum)), start)?;
        }
        let series = [name_count, own, shared];
        let all = header.sample(at, total(&series, double(count)));
        self.sink.add(&series, all, start)?;
        let (mut cumulative, mut exemplars_by_bucket) = (0_u64, exemplars_by_bucket.into_iter().peekable());
        let counts = self.buckets.counts.iter().copied().chain(std::iter::repeat(0));
        for (place, (label, count)) in self.buckets.rendered.iter().zip(counts).enumerate() {
            cumulative = cumulative.saturating_add(count);
            let series = [name_bucket, own, shared, label];
            self.sink.add(&series, header.sample(at, total(&series, double(cumulative))), start)?;
            while let Some((_, exemplar)) =
                exemplars_by_bucket.next_if(|(bucket, _): &(usize, Exemplar)| *bucket == place)
            {
                self.sink.add_exemplar(exemplar)?;
            }
        }
        let series = [name_bucket, own, shared, &self.buckets.infinity];
        self.sink.add(&series, header.sample(at, total(&series, double(count))), start)?;
        for (_, exemplar) in exemplars_by_bucket {
            self.sink.add_exemplar(exemplar)?;
        }
        Ok(at)
    }
}
