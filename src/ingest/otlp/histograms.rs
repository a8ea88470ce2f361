//! Histograms with bounds of their own: series of cumulative buckets, a sum and a count.

use super::super::DecodeError;
use super::super::protobuf::WireReader;
use super::points::{Common, double};
use super::translate::{Metric, Translator};
use super::{Trouble, charge, exemplars};
use crate::model::{Exemplar, RenderedLabels, Timestamp};

const HISTOGRAM: &str = "HistogramDataPoint";

/// The buckets of the point that is being read, and the labels of those of the point before, which mostly has the same.
#[derive(Debug, Default)]
pub(super) struct Buckets {
    bounds: Vec<f64>,
    counts: Vec<u64>,
    /// The bounds that are rendered: with `le`, as Prometheus writes a float.
    rendered_of: Vec<f64>,
    rendered: Vec<RenderedLabels>,
    infinity: RenderedLabels,
}

impl Buckets {
    fn render(&mut self) {
        if self.infinity.bytes() == 0 {
            self.infinity.push("le", "+Inf");
        }
        let same = |(a, b): (&f64, &f64)| a.to_bits() == b.to_bits();
        let (have, want) = (&self.rendered_of, &self.bounds);
        if have.len() == want.len() && have.iter().zip(want).all(same) {
            return;
        }
        self.rendered.clear();
        self.rendered.extend(want.iter().map(|bound| {
            let mut label = RenderedLabels::default();
            label.push("le", &bound.to_string());
            label
        }));
        self.rendered_of.clone_from(want);
    }

    fn check(&mut self, is_stale: bool) -> Result<(), Trouble> {
        let (bounds, counts) = (self.bounds.len(), self.counts.len());
        let fits = counts == bounds.saturating_add(1) || (bounds, counts) == (0, 0);
        let wrong = |reason: String| Err(Trouble::Point("histogram_buckets", reason));
        // One that ends has its bounds, so that it is known what ends, and need not have counts.
        if !fits && !is_stale {
            return wrong(format!("it has {bounds} bounds and {counts} counts, not one more"));
        }
        if self.bounds.iter().any(|bound| bound.is_nan()) || !self.bounds.is_sorted_by(|a, b| a < b) {
            return wrong("its bounds do not ascend".to_owned());
        }
        // The last bucket has no bound, whether that is written down or not.
        if self.bounds.last() == Some(&f64::INFINITY) {
            self.bounds.pop();
        }
        Ok(())
    }
}

impl Translator<'_> {
    pub(super) fn histograms(&mut self, message: &[u8], metric: &Metric) -> Result<(), DecodeError> {
        let endings = ["_sum", "_count", "_bucket"].map(|ending| metric.ending(ending));
        self.each_point(message, metric, |this, point, _| this.histogram(point, &endings))
    }

    fn histogram(
        &mut self,
        message: &[u8],
        [name_sum, name_count, name_bucket]: &[RenderedLabels; 3],
    ) -> Result<Timestamp, Trouble> {
        let (mut common, mut count, mut sum) = (Common::default(), 0, None);
        let mut examples = Vec::new();
        self.buckets.bounds.clear();
        self.buckets.counts.clear();
        let (entries, allowed) = (&mut self.sink.buckets, self.sink.limits.buckets_max);
        let mut reader = WireReader::new(message);
        while let Some(field) = reader.field()? {
            if common.read(&field, HISTOGRAM)? {
                continue;
            }
            match field.number {
                4 => count = field.fixed64(HISTOGRAM)?,
                5 => sum = Some(field.double(HISTOGRAM)?),
                6 => field.fixed64s(HISTOGRAM, |count| {
                    charge("histogram buckets", entries, 1, allowed)?;
                    self.buckets.counts.push(count);
                    Ok::<_, DecodeError>(())
                })?,
                7 => field.doubles(HISTOGRAM, |bound| {
                    charge("histogram buckets", entries, 1, allowed)?;
                    self.buckets.bounds.push(bound);
                    Ok::<_, DecodeError>(())
                })?,
                9 => self.labels.add(field.bytes(HISTOGRAM)?)?,
                10 => common.read_flags(&field, HISTOGRAM)?,
                _ => {}
            }
        }
        self.labels.finish((message, 9), &self.resource, Some("le"))?;
        let (at, start) = (common.at()?, common.start(true));
        self.buckets.check(common.is_stale)?;
        self.buckets.render();
        let bounds = &self.buckets.bounds;
        exemplars::each(message, 8, at, &mut self.sink, |exemplar, sink| {
            // They are counted again when they are added; until then they wait here.
            charge("exemplars", &mut examples.len(), 1, sink.limits.exemplars_max)?;
            examples.push((bounds.partition_point(|bound| *bound < exemplar.value), exemplar));
            Ok(())
        })?;
        examples.sort_by_key(|(bucket, _)| *bucket);

        let [own, shared] = self.labels.parts(&self.resource);
        if let Some(sum) = sum {
            self.sink.add(&[name_sum, own, shared], common.sample(at, sum), start)?;
        }
        let all = common.sample(at, double(count));
        self.sink.add(&[name_count, own, shared], all, start)?;
        let (mut below, mut examples) = (0_u64, examples.into_iter().peekable());
        let counts = self.buckets.counts.iter().copied().chain(std::iter::repeat(0));
        for (place, (label, count)) in self.buckets.rendered.iter().zip(counts).enumerate() {
            below = below.saturating_add(count);
            self.sink.add(&[name_bucket, own, shared, label], common.sample(at, double(below)), start)?;
            while let Some((_, exemplar)) =
                examples.next_if(|(bucket, _): &(usize, Exemplar)| *bucket == place)
            {
                self.sink.add_exemplar(exemplar)?;
            }
        }
        self.sink.add(&[name_bucket, own, shared, &self.buckets.infinity], all, start)?;
        for (_, exemplar) in examples {
            self.sink.add_exemplar(exemplar)?;
        }
        Ok(at)
    }
}
