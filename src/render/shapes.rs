//! Bars, points, stacks and filled areas, as the panels of a dashboard draw them
//! (`src/ui/assets/plot`).

use super::convert::{index, pixels};
use super::lines::{Positions, Summary};
use super::scene::Vertex;
use super::{Cancelled, ChartSeries};
use crate::model::{Sample, Steps};

/// How the samples of a series are drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Draw {
    /// A line through the samples.
    #[default]
    Line,
    /// A bar from zero to each sample.
    Bars,
    /// A point at each sample.
    Points,
}

/// The stacking of series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stacking {
    /// Each series begins at zero.
    #[default]
    None,
    /// Each series begins at the sum of those before it; negative series are stacked separately.
    Normal,
    /// As `Normal`, with each sample as a part of the sum of its step.
    Percent,
}

/// The shapes of a picture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// How samples are drawn.
    pub draw: Draw,
    /// The stacking of series.
    pub stacking: Stacking,
    /// The opacity of bars and of areas below lines, in percent. `None` fills the area of a single
    /// line, which fades.
    pub fill_percent: Option<u8>,
}

impl Shape {
    /// Returns the opacity of bars, and of areas below lines.
    pub(super) fn opacity(self) -> f32 {
        match (self.fill_percent, self.draw) {
            (None, Draw::Bars) => 0.7,
            (None, _) => 0.0,
            (Some(percent), Draw::Bars) => f32::from(percent.clamp(10, 100)) / 100.0,
            (Some(percent), _) => f32::from(percent.min(100)) / 100.0,
        }
    }
}

/// The samples of a series after stacking, and the lower edge at each of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Stacked {
    pub(super) samples: Vec<Sample>,
    pub(super) bases: Vec<f64>,
}

/// Stacks series in their order. Positive and negative series are stacked apart; values that are
/// not finite are left out.
pub(super) fn stacked(
    series: &[ChartSeries<'_>],
    steps: Steps,
    is_percent: bool,
    continues: &dyn Fn() -> bool,
) -> Result<Vec<Stacked>, Cancelled> {
    let place = |sample: &Sample| {
        let passed = sample.at.as_ms().saturating_sub(steps.start().as_ms()).max(0);
        usize::try_from(passed / steps.step_ms().max(1)).unwrap_or(usize::MAX)
    };
    let finite = |one: &ChartSeries<'_>| {
        let samples = one.samples.iter().filter(|sample| sample.value.is_finite());
        samples.map(|sample| (place(sample), *sample)).filter(|(at, _)| *at < steps.len()).collect::<Vec<_>>()
    };
    let mut totals = vec![0.0; if is_percent { steps.len() } else { 0 }];
    for one in series.iter().filter(|_| is_percent) {
        for (at, sample) in finite(one) {
            totals[at] += sample.value.abs();
        }
    }
    let mut sums = [vec![0.0; steps.len()], vec![0.0; steps.len()]];
    let mut all = Vec::with_capacity(series.len());
    for one in series {
        if !continues() {
            return Err(Cancelled);
        }
        let samples = finite(one);
        let is_below = samples.iter().any(|(_, sample)| sample.value < 0.0)
            && !samples.iter().any(|(_, sample)| sample.value > 0.0);
        let sum = &mut sums[usize::from(is_below)];
        let mut stacked = Stacked::default();
        for (at, sample) in samples {
            let part = match totals.get(at) {
                Some(total) if *total == 0.0 => 0.0,
                Some(total) => sample.value / total,
                None => sample.value,
            };
            stacked.bases.push(sum[at]);
            sum[at] += part;
            stacked.samples.push(Sample { value: sum[at], ..sample });
        }
        all.push(stacked);
    }
    Ok(all)
}

/// Returns the values that an axis shows: those of the series, the lower edges of stacks, and the
/// lower end of bars.
pub(super) fn extent(shape: Shape, sum: Summary, stacks: &[Stacked]) -> (f64, f64) {
    let bases = stacks.iter().flat_map(|stacked| &stacked.bases).copied();
    let ground = (shape.draw == Draw::Bars).then_some(0.0);
    let values = bases.chain(ground).filter(|value| value.is_finite());
    values.fold((sum.low, sum.high), |(low, high), value| (low.min(value), high.max(value)))
}

impl Positions<'_> {
    /// Returns the rectangles of a series. `slot` are its place beside other series and their
    /// number.
    pub(super) fn bars(
        &self,
        samples: &[Sample],
        bases: Option<&[f64]>,
        slot: (usize, usize),
    ) -> Vec<Vertex> {
        /// The part of a step that the bars of all series have.
        const FACTOR: f64 = 0.6;
        let ground = self.ground();
        let step = self.x(self.steps.start().as_ms() + self.steps.step_ms()) - self.plot.left;
        let all = (step * FACTOR).clamp(1.0, 200.0);
        let width = (all / slot.1 as f64).max(1.0);
        let shift = slot.0 as f64 * width - all / 2.0;
        let mut vertices = Vec::with_capacity(samples.len() * 4);
        for (at, sample) in samples.iter().enumerate().filter(|(_, sample)| sample.value.is_finite()) {
            let left = (self.x(sample.at.as_ms()) + shift).clamp(self.plot.left, self.plot.right);
            let right = (left + width).min(self.plot.right);
            let bottom = bases.and_then(|bases| bases.get(at)).map_or(ground, |base| self.y(*base));
            let top = self.y(sample.value);
            for (corner, (x, y)) in
                [(left, bottom), (left, top), (right, top), (right, bottom)].into_iter().enumerate()
            {
                vertices.push(Vertex { x: pixels(x), y: pixels(y), begins: corner == 0 });
            }
        }
        vertices
    }

    /// Returns the polygons between the line of a series and its lower edge, one for each run
    /// without a gap.
    pub(super) fn filled(&self, samples: &[Sample], bases: Option<&[f64]>) -> Vec<Vertex> {
        let ground = self.ground();
        let points: Vec<(i64, f64, f64)> = samples
            .iter()
            .enumerate()
            .filter(|(_, sample)| sample.value.is_finite())
            .map(|(at, sample)| {
                let bottom = bases.and_then(|bases| bases.get(at)).map_or(ground, |base| self.y(*base));
                (sample.at.as_ms(), self.y(sample.value), bottom)
            })
            .collect();
        let is_run = |one: &(i64, f64, f64), next: &(i64, f64, f64)| {
            next.0.saturating_sub(one.0) <= self.steps.step_ms()
        };
        let mut vertices = Vec::with_capacity(points.len() * 2);
        for run in points.chunk_by(is_run).filter(|run| run.len() > 1) {
            let there = run.iter().map(|(at, top, _)| (self.x(*at), *top));
            let back = run.iter().rev().map(|(at, _, bottom)| (self.x(*at), *bottom));
            for (place, (x, y)) in there.chain(back).enumerate() {
                vertices.push(Vertex { x: pixels(x), y: pixels(y), begins: place == 0 });
            }
        }
        vertices
    }

    /// Returns the points of a series.
    pub(super) fn points(&self, samples: &[Sample]) -> Vec<(f32, f32)> {
        let finite = samples.iter().filter(|sample| sample.value.is_finite());
        finite.map(|sample| (pixels(self.x(sample.at.as_ms())), pixels(self.y(sample.value)))).collect()
    }

    /// Returns the height of zero, or of the edge that is nearest to it.
    fn ground(&self) -> f64 {
        self.y(0.0_f64.clamp(self.axis.low, self.axis.high))
    }

    /// Returns whether this many samples can be drawn as shapes: more would be wider than their
    /// steps, or too many.
    pub(super) fn has_room(&self, samples: usize, most: usize) -> bool {
        self.steps.len() <= index(self.plot.right - self.plot.left).max(1) && samples <= most
    }
}
