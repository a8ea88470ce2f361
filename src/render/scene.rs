//! A picture as shapes and texts at positions, before it becomes SVG or pixels.

use super::Cancelled;
use super::colours::Ink;
use super::{raster, svg};

/// The memory of one vertex.
pub(super) const VERTEX_BYTES: usize = size_of::<Vertex>();

/// A point of a line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Vertex {
    pub(super) x: f32,
    pub(super) y: f32,
    /// The line begins here instead of coming from the previous point.
    pub(super) begins: bool,
}

/// The point of a text that its position denotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// A text on one line.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Text {
    pub(super) x: f32,
    /// The baseline.
    pub(super) y: f32,
    pub(super) anchor: Anchor,
    pub(super) size: f32,
    pub(super) bold: bool,
    pub(super) ink: Ink,
    pub(super) text: String,
    /// The width that other items leave. Viewers of SVG have other fonts, and adapt the text.
    pub(super) width: Option<f32>,
}

/// A shape or a text.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Item {
    /// A straight line.
    Line { from: (f32, f32), to: (f32, f32), width: f32, dashes: &'static [f32], ink: Ink },
    /// The line of a series.
    Path { vertices: Vec<Vertex>, width: f32, dashes: &'static [f32], round: bool, ink: Ink },
    /// Points without neighbours.
    Dots { centres: Vec<(f32, f32)>, ink: Ink },
    /// A filled polygon that fades towards `bottom`.
    Area { corners: Vec<(f32, f32)>, top: f32, bottom: f32, ink: Ink },
    /// Filled polygons, each from a vertex that begins to the next one.
    Fill { vertices: Vec<Vertex>, opacity: f32, ink: Ink },
    /// A text.
    Text(Text),
}

/// A picture that has been laid out.
#[derive(Clone, Debug, PartialEq)]
pub struct Scene {
    pub(super) width: usize,
    pub(super) height: usize,
    pub(super) scale: usize,
    pub(super) background: Ink,
    pub(super) items: Vec<Item>,
    /// The name of the picture for readers that do not show it.
    pub(super) title: String,
    /// The description of the picture, for screen readers.
    pub(super) description: String,
}

impl Scene {
    /// Writes the picture as SVG.
    pub fn svg(&self) -> String {
        svg::write(self)
    }

    /// Draws the picture as PNG. `continues` is called before each item and each block of rows.
    ///
    /// # Errors
    /// [`Cancelled`] once `continues` returns false.
    pub fn png(&self, continues: &dyn Fn() -> bool) -> Result<Vec<u8>, Cancelled> {
        raster::png(self, continues)
    }
}
