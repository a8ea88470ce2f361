//! Writes a scene as SVG 1.1. It has no scripts, styles, links or references to other files.

use std::borrow::Cow;
use std::fmt::Write as _;

use super::colours::Ink;
use super::scene::{Anchor, Item, Scene, Text, Vertex};

/// The fonts of `<metric-chart>`, and two of mail programs.
const FONTS: &str = "ui-sans-serif,system-ui,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif";
/// The radius of a point without neighbours.
pub(super) const DOT: f32 = 2.5;
/// The opacity of an area at its top.
pub(super) const AREA_OPACITY: f32 = 0.22;

/// Writes a scene.
pub(super) fn write(scene: &Scene) -> String {
    let Scene { width, height, .. } = scene;
    let mut out = String::with_capacity(4_096);
    put(
        &mut out,
        format_args!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" role=\"img\" font-family=\"{FONTS}\">\n\
             <title>{}</title>\n<desc>{}</desc>\n\
             <rect width=\"{width}\" height=\"{height}\" fill=\"{}\"/>\n",
            escaped(&scene.title),
            escaped(&scene.description),
            Hex(scene.background),
        ),
    );
    let mut areas = 0;
    for item in &scene.items {
        match item {
            Item::Line { from, to, width, dashes, ink } => put(
                &mut out,
                format_args!(
                    "<path d=\"M{} {}L{} {}\" stroke=\"{}\" stroke-width=\"{width}\"{}/>\n",
                    Short(from.0),
                    Short(from.1),
                    Short(to.0),
                    Short(to.1),
                    Hex(*ink),
                    Dashes(dashes)
                ),
            ),
            Item::Path { vertices, width, dashes, round, ink } => {
                out.push_str("<path d=\"");
                write_vertices(vertices, &mut out);
                let join = if *round { "round" } else { "bevel" };
                put(
                    &mut out,
                    format_args!(
                        "\" fill=\"none\" stroke=\"{}\" stroke-width=\"{width}\" stroke-linecap=\"round\" \
                         stroke-linejoin=\"{join}\"{}/>\n",
                        Hex(*ink),
                        Dashes(dashes)
                    ),
                );
            }
            Item::Dots { centres, ink } => {
                put(&mut out, format_args!("<g fill=\"{}\">", Hex(*ink)));
                for (x, y) in centres {
                    let (x, y) = (Short(*x), Short(*y));
                    put(&mut out, format_args!("<circle cx=\"{x}\" cy=\"{y}\" r=\"{DOT}\"/>"));
                }
                out.push_str("</g>\n");
            }
            Item::Area { corners, top, bottom, ink } => {
                areas += 1;
                put(
                    &mut out,
                    format_args!(
                        "<linearGradient id=\"fade{areas}\" gradientUnits=\"userSpaceOnUse\" x1=\"0\" \
                         y1=\"{top}\" x2=\"0\" y2=\"{bottom}\"><stop stop-color=\"{0}\" \
                         stop-opacity=\"{AREA_OPACITY}\"/><stop offset=\"1\" stop-color=\"{0}\" \
                         stop-opacity=\"0\"/></linearGradient>\n<path d=\"",
                        Hex(*ink)
                    ),
                );
                let corners: Vec<Vertex> = corners
                    .iter()
                    .enumerate()
                    .map(|(place, (x, y))| Vertex { x: *x, y: *y, begins: place == 0 })
                    .collect();
                write_vertices(&corners, &mut out);
                put(&mut out, format_args!("Z\" fill=\"url(#fade{areas})\"/>\n"));
            }
            Item::Fill { vertices, opacity, ink } => {
                out.push_str("<path d=\"");
                write_vertices(vertices, &mut out);
                put(
                    &mut out,
                    format_args!("\" fill=\"{}\" fill-opacity=\"{}\"/>\n", Hex(*ink), Short(*opacity)),
                );
            }
            Item::Text(text) => write_text(text, &mut out),
        }
    }
    out.push_str("</svg>\n");
    out
}

/// Appends formatted text.
fn put(out: &mut String, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("a String takes any text");
}

fn write_text(text: &Text, out: &mut String) {
    let anchor = match text.anchor {
        Anchor::Start => "",
        Anchor::Middle => " text-anchor=\"middle\"",
        Anchor::End => " text-anchor=\"end\"",
    };
    let weight = if text.bold { " font-weight=\"600\"" } else { "" };
    put(
        out,
        format_args!(
            "<text x=\"{}\" y=\"{}\" font-size=\"{}\" fill=\"{}\"{anchor}{weight}",
            Short(text.x),
            Short(text.y),
            text.size,
            Hex(text.ink),
        ),
    );
    if let Some(width) = text.width {
        put(out, format_args!(" textLength=\"{}\" lengthAdjust=\"spacingAndGlyphs\"", Short(width)));
    }
    put(out, format_args!(">{}</text>\n", escaped(&text.text)));
}

/// Writes the data of a path, with positions relative to the point before, which are short.
fn write_vertices(vertices: &[Vertex], out: &mut String) {
    // In hundredths of a pixel, so that roundings do not add up.
    let (mut x, mut y) = (0, 0);
    let mut drawing = false;
    for vertex in vertices {
        let (to_x, to_y) = (hundredths(vertex.x), hundredths(vertex.y));
        match vertex.begins {
            true => {
                put(out, format_args!("M{} {}", Hundredths(to_x), Hundredths(to_y)));
                drawing = false;
            }
            false => {
                if !drawing {
                    out.push('l');
                }
                let (dx, dy) = (Hundredths(to_x - x), Hundredths(to_y - y));
                let space = if drawing && to_x >= x { " " } else { "" };
                let between = if to_y >= y { " " } else { "" };
                put(out, format_args!("{space}{dx}{between}{dy}"));
                drawing = true;
            }
        }
        (x, y) = (to_x, to_y);
    }
}

fn hundredths(value: f32) -> i64 {
    super::convert::whole((f64::from(value) * 100.0).round())
}

/// Hundredths as a decimal number without zeros at its end.
struct Hundredths(i64);

impl std::fmt::Display for Hundredths {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let (whole, part) = (self.0.unsigned_abs() / 100, self.0.unsigned_abs() % 100);
        match (whole, part) {
            (_, 0) => write!(f, "{sign}{whole}"),
            (0, _) if part % 10 == 0 => write!(f, "{sign}.{}", part / 10),
            (0, _) => write!(f, "{sign}.{part:02}"),
            (_, _) if part % 10 == 0 => write!(f, "{sign}{whole}.{}", part / 10),
            (_, _) => write!(f, "{sign}{whole}.{part:02}"),
        }
    }
}

/// A position with at most two digits after the point.
struct Short(f32);

impl std::fmt::Display for Short {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        Hundredths(hundredths(self.0)).fmt(f)
    }
}

/// A colour as `#2563c9`.
struct Hex(Ink);

impl std::fmt::Display for Hex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Ink([red, green, blue]) = self.0;
        write!(f, "#{red:02x}{green:02x}{blue:02x}")
    }
}

/// The attribute of dashes; nothing for a solid line.
struct Dashes(&'static [f32]);

impl std::fmt::Display for Dashes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() {
            return Ok(());
        }
        let lengths: Vec<String> = self.0.iter().map(f32::to_string).collect();
        write!(f, " stroke-dasharray=\"{}\"", lengths.join(" "))
    }
}

/// Returns a text that cannot be markup, inside or outside of quotes. Its control characters have
/// been replaced already.
fn escaped(text: &str) -> Cow<'_, str> {
    if !text.contains(['&', '<', '>', '"', '\'']) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(other),
        }
    }
    Cow::Owned(out)
}
