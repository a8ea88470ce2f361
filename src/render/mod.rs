//! Draws the result of a range query as a picture, for mail, chat and pages without scripts.
//!
//! ```text
//! Chart -> layout (axis, zone, names, font) -> Scene -> svg -> text
//!                                                   \-> raster -> png -> bytes
//! ```
//!
//! The picture is the one of the web component `<metric-chart>` (`src/ui/assets/chart`): the same
//! ticks, texts of numbers, colours, dashes and gaps.
//!
//! **Invariant:** pure functions: no I/O, no clock. Sizes, series, vertices and texts are bounded
//! for every result. Texts of labels never become markup.

mod axis;
mod colours;
mod convert;
mod font;
mod layout;
mod legend;
mod lines;
mod names;
mod number;
mod png;
mod raster;
mod scene;
mod shapes;
mod svg;
mod text;
mod zone;

#[cfg(test)]
mod tests;

use std::ops::RangeInclusive;

use crate::model::{Labels, Sample, Steps};

pub use axis::nice_step_s;
pub use colours::Theme;
pub use scene::Scene;
pub use shapes::{Draw, Shape, Stacking};
pub use zone::{Zone, ZoneError};

/// The widths of a picture, in CSS pixels.
pub const WIDTH: RangeInclusive<usize> = 100..=2_000;
/// The heights of a picture, in CSS pixels.
pub const HEIGHT: RangeInclusive<usize> = 60..=2_000;
/// The pixels of a PNG for one CSS pixel, in each direction.
pub const SCALE: RangeInclusive<usize> = 1..=3;
/// The most pixels of a PNG, inclusive.
pub const PIXELS_MAX: usize = 4_000_000;
/// The most series that are drawn, inclusive. More lines would be unreadable.
pub const SERIES_MAX: usize = 200;
/// The most characters of a title and a unit, inclusive; longer ones are cut.
pub const TEXT_CHARS_MAX: usize = 256;
/// The approximate number of vertices of all lines, above which lines lose detail.
const VERTICES_MAX: usize = 100_000;

/// The picture could not be finished: its caller cancelled it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the drawing was cancelled")]
pub struct Cancelled;

/// The look of a picture.
#[derive(Clone, Debug, PartialEq)]
pub struct Style {
    /// CSS pixels, within [`WIDTH`].
    pub width: usize,
    /// CSS pixels, within [`HEIGHT`].
    pub height: usize,
    /// Pixels of a PNG for one CSS pixel, within [`SCALE`]. The pixels are at most [`PIXELS_MAX`].
    pub scale: usize,
    /// Light or dark.
    pub theme: Theme,
    /// The heading; empty for none.
    pub title: String,
    /// `bytes`, `bytes/s`, `seconds`, `percent` (of 1), a suffix, or empty.
    pub unit: String,
    /// The zone of the time axis.
    pub zone: Zone,
    /// Lines, bars or points, and stacks of them.
    pub shape: Shape,
}

/// One series of a result.
#[derive(Clone, Copy, Debug)]
pub struct ChartSeries<'a> {
    /// The labels of the series.
    pub labels: &'a Labels,
    /// Float samples in ascending order of time.
    pub samples: &'a [Sample],
    /// Whether the series also has native histograms, which are not drawn.
    pub has_histograms: bool,
    /// The name, with `{{label}}` in it. `None` names the series by the labels that differ.
    pub legend: Option<&'a str>,
}

/// A result and the look of its picture.
#[derive(Clone, Copy, Debug)]
pub struct Chart<'a> {
    /// The first [`SERIES_MAX`] series of the result, or all.
    pub series: &'a [ChartSeries<'a>],
    /// The number of series of the result.
    pub total: usize,
    /// The steps of the query.
    pub steps: Steps,
    /// The look of the picture.
    pub style: &'a Style,
    /// The warnings and infos of the result. The picture shows the first three.
    pub messages: &'a [String],
}

impl Chart<'_> {
    /// Lays out the picture. `continues` is called before each series.
    ///
    /// # Errors
    /// [`Cancelled`] once `continues` returns false.
    pub fn scene(&self, continues: &dyn Fn() -> bool) -> Result<Scene, Cancelled> {
        layout::scene(self, continues)
    }
}

/// Returns an upper bound of the bytes that drawing holds, the picture included.
pub fn memory_bytes(style: &Style, series: usize, steps: usize, is_png: bool) -> u64 {
    /// Texts, names and the tables of the rasteriser.
    const FIXED: usize = 1 << 20;
    let vertices = series.min(SERIES_MAX).saturating_mul(steps.min(4 * style.width)).min(4 * VERTICES_MAX);
    let picture = match is_png {
        // The pixels, and a compressed picture that is as large as its rows.
        true => style.width * style.height * style.scale * style.scale * 8,
        false => vertices.saturating_mul(16),
    };
    // Samples and edges after stacking, and the corners of areas and bars.
    let shapes = match style.shape == Shape::default() {
        true => 0,
        false => {
            let samples = series.min(SERIES_MAX).saturating_mul(steps);
            samples.saturating_mul(64).saturating_add(2 * VERTICES_MAX * scene::VERTEX_BYTES)
        }
    };
    (FIXED + vertices.saturating_mul(scene::VERTEX_BYTES) + picture).saturating_add(shapes) as u64
}
