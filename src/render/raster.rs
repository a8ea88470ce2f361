//! Draws a scene as pixels. Texts are outlines of the font, so no font of the machine is used.

use tiny_skia::{
    Color, FillRule, GradientStop, LineCap, LineJoin, LinearGradient, Paint, Path, PathBuilder, Pixmap,
    Point, Rect, SpreadMode, Stroke, StrokeDash, Transform,
};
use ttf_parser::OutlineBuilder;

use super::Cancelled;
use super::colours::Ink;
use super::convert::channel;
use super::font::{Drawn, Font};
use super::png;
use super::scene::{Anchor, Item, Scene, Text, Vertex};
use super::svg::{AREA_OPACITY, DOT};

/// The stroke of the outline of a bold text, as a fraction of its size: the font has no bold
/// letters.
const BOLD: f32 = 0.04;

/// The pixels of a picture that is being drawn.
struct Canvas {
    pixels: Pixmap,
    transform: Transform,
    font: Font,
}

/// Draws a scene as PNG.
pub(super) fn png(scene: &Scene, continues: &dyn Fn() -> bool) -> Result<Vec<u8>, Cancelled> {
    let side = |length: usize| u32::try_from(length * scene.scale).unwrap_or(u32::MAX);
    let (width, height) = (side(scene.width), side(scene.height));
    // Only a picture without pixels or beyond the bounds of this room has none.
    let mut pixels = Pixmap::new(width, height).ok_or(Cancelled)?;
    pixels.fill(color(scene.background, 1.0));
    let scale = scene.scale as f32;
    let transform = Transform::from_scale(scale, scale);
    let mut canvas = Canvas { pixels, transform, font: Font::new() };
    for item in &scene.items {
        if !continues() {
            return Err(Cancelled);
        }
        canvas.draw(item);
    }
    png::encode(canvas.pixels.data(), width, height, continues)
}

impl Canvas {
    fn draw(&mut self, item: &Item) {
        match item {
            Item::Line { from, to, width, dashes, ink } => {
                let vertex = |(x, y), begins| Vertex { x, y, begins };
                let path = path_of(&[vertex(*from, true), vertex(*to, false)]);
                self.stroke(path, *width, dashes, (LineCap::Butt, LineJoin::Miter), *ink);
            }
            Item::Path { vertices, width, dashes, round, ink } => {
                let join = if *round { LineJoin::Round } else { LineJoin::Bevel };
                self.stroke(path_of(vertices), *width, dashes, (LineCap::Round, join), *ink);
            }
            Item::Dots { centres, ink } => {
                let mut path = PathBuilder::new();
                for (x, y) in centres {
                    path.push_circle(*x, *y, DOT);
                }
                self.fill(path.finish(), &paint(*ink));
            }
            Item::Area { corners, top, bottom, ink } => {
                let stops = [(0.0, AREA_OPACITY), (1.0, 0.0)]
                    .map(|(at, opacity)| GradientStop::new(at, color(*ink, opacity)));
                let (from, to) = (Point::from_xy(0.0, *top), Point::from_xy(0.0, *bottom));
                let fade =
                    LinearGradient::new(from, to, stops.to_vec(), SpreadMode::Pad, Transform::identity());
                let mut paint = paint(*ink);
                let Some(fade) = fade else { return };
                paint.shader = fade;
                let vertices: Vec<Vertex> = corners
                    .iter()
                    .enumerate()
                    .map(|(place, (x, y))| Vertex { x: *x, y: *y, begins: place == 0 })
                    .collect();
                self.fill(path_of(&vertices), &paint);
            }
            Item::Fill { vertices, opacity, ink } => {
                let mut paint = paint(*ink);
                paint.set_color(color(*ink, *opacity));
                self.fill(path_of(vertices), &paint);
            }
            Item::Text(text) => self.text(text),
        }
    }

    fn fill(&mut self, path: Option<Path>, paint: &Paint<'_>) {
        if let Some(path) = path {
            self.pixels.fill_path(&path, paint, FillRule::Winding, self.transform, None);
        }
    }

    fn stroke(
        &mut self,
        path: Option<Path>,
        width: f32,
        dashes: &[f32],
        (line_cap, line_join): (LineCap, LineJoin),
        ink: Ink,
    ) {
        let dash = StrokeDash::new(dashes.to_vec(), 0.0);
        let stroke = Stroke { width, line_cap, line_join, dash, ..Stroke::default() };
        if let Some(path) = path {
            self.pixels.stroke_path(&path, &paint(ink), &stroke, self.transform, None);
        }
    }

    fn text(&mut self, text: &Text) {
        let width = self.font.width(&text.text, text.size);
        let mut outline = Outline {
            path: PathBuilder::new(),
            x: match text.anchor {
                Anchor::Start => text.x,
                Anchor::Middle => text.x - width / 2.0,
                Anchor::End => text.x - width,
            },
            y: text.y,
            factor: self.font.factor(text.size),
        };
        let mut boxes = PathBuilder::new();
        for character in text.text.chars() {
            let drawn = self.font.drawn(character);
            let advance = self.font.advance(drawn, text.size);
            match drawn {
                Drawn::Glyph(id) => {
                    // A glyph without an outline is a space.
                    self.font.face().outline_glyph(id, &mut outline);
                }
                Drawn::Box => {
                    let (left, top) = (outline.x + 1.0, text.y - 0.7 * text.size);
                    if let Some(rect) = Rect::from_xywh(left, top, advance - 2.0, 0.7 * text.size) {
                        boxes.push_rect(rect);
                    }
                }
            }
            outline.x += advance;
        }
        let path = outline.path.finish();
        if text.bold {
            let ends = (LineCap::Butt, LineJoin::Round);
            self.stroke(path.clone(), BOLD * text.size, &[], ends, text.ink);
        }
        self.fill(path, &paint(text.ink));
        self.stroke(boxes.finish(), 1.0, &[], (LineCap::Butt, LineJoin::Miter), text.ink);
    }
}

/// The outline of the letters of a text.
struct Outline {
    path: PathBuilder,
    /// The beginning of the current letter, on the baseline.
    x: f32,
    y: f32,
    factor: f32,
}

impl Outline {
    /// Returns a point of a letter in pixels. The y axis of the font points upwards.
    fn at(&self, x: f32, y: f32) -> (f32, f32) {
        (self.x + x * self.factor, self.y - y * self.factor)
    }
}

impl OutlineBuilder for Outline {
    fn move_to(&mut self, x: f32, y: f32) {
        let (x, y) = self.at(x, y);
        self.path.move_to(x, y);
    }

    fn line_to(&mut self, x: f32, y: f32) {
        let (x, y) = self.at(x, y);
        self.path.line_to(x, y);
    }

    fn quad_to(&mut self, x1: f32, y1: f32, x: f32, y: f32) {
        let ((x1, y1), (x, y)) = (self.at(x1, y1), self.at(x, y));
        self.path.quad_to(x1, y1, x, y);
    }

    fn curve_to(&mut self, x1: f32, y1: f32, x2: f32, y2: f32, x: f32, y: f32) {
        let ((x1, y1), (x2, y2), (x, y)) = (self.at(x1, y1), self.at(x2, y2), self.at(x, y));
        self.path.cubic_to(x1, y1, x2, y2, x, y);
    }

    fn close(&mut self) {
        self.path.close();
    }
}

fn path_of(vertices: &[Vertex]) -> Option<Path> {
    let mut path = PathBuilder::new();
    for vertex in vertices {
        match vertex.begins {
            true => path.move_to(vertex.x, vertex.y),
            false => path.line_to(vertex.x, vertex.y),
        }
    }
    path.finish()
}

fn color(Ink([red, green, blue]): Ink, opacity: f32) -> Color {
    Color::from_rgba8(red, green, blue, channel(opacity * 255.0))
}

fn paint(ink: Ink) -> Paint<'static> {
    let mut paint = Paint::default();
    paint.set_color(color(ink, 1.0));
    paint
}
