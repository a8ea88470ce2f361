//! The lines of series, as `src/ui/assets/chart/paint.js` draws them.

use super::ChartSeries;
use super::axis::ValueAxis;
use super::convert::pixels;
use super::scene::Vertex;
use crate::model::Steps;

/// The rectangle inside the axes, in pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Plot {
    pub(super) left: f64,
    pub(super) top: f64,
    pub(super) right: f64,
    pub(super) bottom: f64,
}

/// The positions of times and values.
#[derive(Clone, Copy, Debug)]
pub(super) struct Positions<'a> {
    pub(super) plot: Plot,
    pub(super) axis: &'a ValueAxis,
    pub(super) steps: Steps,
}

/// The line of one series.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct SeriesLine {
    pub(super) vertices: Vec<Vertex>,
    /// Points without neighbours.
    pub(super) dots: Vec<(f32, f32)>,
}

/// The lowest and the highest finite value, and the number of infinite ones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Summary {
    pub(super) low: f64,
    pub(super) high: f64,
    pub(super) infinite: usize,
}

impl Summary {
    pub(super) const EMPTY: Summary = Summary { low: f64::INFINITY, high: f64::NEG_INFINITY, infinite: 0 };

    pub(super) fn of(series: &ChartSeries<'_>) -> Summary {
        series.samples.iter().fold(Summary::EMPTY, |sum, sample| match sample.value {
            value if value.is_finite() => {
                Summary { low: sum.low.min(value), high: sum.high.max(value), ..sum }
            }
            value => Summary { infinite: sum.infinite + usize::from(value.is_infinite()), ..sum },
        })
    }

    pub(super) fn is_finite(&self) -> bool {
        self.low <= self.high
    }
}

impl Positions<'_> {
    pub(super) fn y(&self, value: f64) -> f64 {
        self.plot.bottom - self.axis.fraction(value) * (self.plot.bottom - self.plot.top)
    }

    /// Returns the position of a time in milliseconds since 1970.
    pub(super) fn x(&self, at_ms: i64) -> f64 {
        let start = self.steps.start();
        let range = self.end_ms().saturating_sub(start.as_ms()).max(self.steps.step_ms());
        let part = at_ms.saturating_sub(start.as_ms()) as f64 / range as f64;
        self.plot.left + part * (self.plot.right - self.plot.left)
    }

    /// Returns the time of the last step.
    pub(super) fn end_ms(&self) -> i64 {
        self.steps.at(self.steps.len() - 1).as_ms()
    }

    /// Returns the line of a series through its finite values, with a gap where a step has none.
    pub(super) fn line(&self, series: &ChartSeries<'_>) -> SeriesLine {
        let mut line = SeriesLine::default();
        let step_ms = self.steps.step_ms();
        let finite = || series.samples.iter().filter(|sample| sample.value.is_finite());
        let mut following = finite().skip(1);
        let mut before: Option<i64> = None;
        for sample in finite() {
            let at = sample.at.as_ms();
            let next = following.next().map(|next| next.at.as_ms());
            let is_neighbour = |first: i64, second: i64| second.saturating_sub(first) <= step_ms;
            let begins = !before.is_some_and(|before| is_neighbour(before, at));
            let (x, y) = (pixels(self.x(at)), pixels(self.y(sample.value)));
            if begins && !next.is_some_and(|next| is_neighbour(at, next)) {
                line.dots.push((x, y));
            } else {
                line.vertices.push(Vertex { x, y, begins });
            }
            before = Some(at);
        }
        line
    }

    /// Returns the line of a series with more points than pixels: the lowest and the highest value
    /// of each column of `grain` pixels.
    pub(super) fn dense_line(&self, series: &ChartSeries<'_>, grain: f64) -> SeriesLine {
        let mut vertices = Vec::new();
        let step_ms = self.steps.step_ms();
        let mut column: Option<Column> = None;
        let mut before: Option<i64> = None;
        for sample in series.samples.iter().filter(|sample| sample.value.is_finite()) {
            let at = sample.at.as_ms();
            let x = (self.x(at) / grain).round() * grain;
            let is_gap = before.is_some_and(|before| at.saturating_sub(before) > step_ms);
            before = Some(at);
            #[expect(clippy::float_cmp, reason = "both are multiples of the grain")]
            if let Some(open) = column.as_mut().filter(|open| open.x == x && !is_gap) {
                open.low = open.low.min(sample.value);
                open.high = open.high.max(sample.value);
                continue;
            }
            let from = column.take().map(|done| self.push_column(&done, &mut vertices));
            let from = from.filter(|_| !is_gap);
            column = Some(Column { x, low: sample.value, high: sample.value, from });
        }
        if let Some(last) = column {
            self.push_column(&last, &mut vertices);
        }
        SeriesLine { vertices, dots: Vec::new() }
    }

    /// Adds the vertical line of a column, and returns the height at which it ends.
    fn push_column(&self, column: &Column, vertices: &mut Vec<Vertex>) -> f64 {
        let (low, high) = (self.y(column.low), self.y(column.high));
        // The nearer end first, so that the stroke between two columns is short.
        let is_low_nearer = column.from.is_none_or(|from| (from - low).abs() <= (from - high).abs());
        let (near, far) = if is_low_nearer { (low, high) } else { (high, low) };
        let x = pixels(column.x);
        vertices.push(Vertex { x, y: pixels(near), begins: column.from.is_none() });
        // A column of one value has a length, too, so that its round ends are drawn.
        vertices.push(Vertex { x: x + 0.01, y: pixels(far), begins: false });
        far
    }

    /// Returns the polygons between a line and zero, or the edge of the plot nearest to zero.
    pub(super) fn areas(&self, line: &SeriesLine) -> Vec<Vec<(f32, f32)>> {
        let ground = pixels(self.y(0.0_f64.clamp(self.axis.low, self.axis.high)));
        let mut areas: Vec<Vec<(f32, f32)>> = Vec::new();
        for vertex in &line.vertices {
            match areas.last_mut().filter(|_| !vertex.begins) {
                Some(area) => area.push((vertex.x, vertex.y)),
                None => areas.push(vec![(vertex.x, ground), (vertex.x, vertex.y)]),
            }
        }
        for area in &mut areas {
            if let Some((x, _)) = area.last().copied() {
                area.push((x, ground));
            }
        }
        areas
    }
}

/// A column of pixels that is not drawn yet.
struct Column {
    x: f64,
    low: f64,
    high: f64,
    /// The height at which the column before it ended; `None` after a gap.
    from: Option<f64>,
}
