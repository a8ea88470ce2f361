//! Pictures of fixed and of random results, as SVG and as PNG.

use proptest::prelude::*;
use zune_png::PngDecoder;
use zune_png::zune_core::bit_depth::BitDepth;
use zune_png::zune_core::bytestream::ZCursor;
use zune_png::zune_core::colorspace::ColorSpace;
use zune_png::zune_core::options::DecoderOptions;

use super::colours::Ink;
use super::*;
use crate::model::{Timestamp, stale_nan};

/// 2026-11-26 12:00:00 UTC.
const NOON_S: i64 = 1_795_694_400;
const STEP_S: i64 = 15;

/// Labels and values, one a step; `None` is a step without a sample.
type Row = (Labels, Vec<Option<f64>>);

fn row(pairs: &[(&str, &str)], values: impl IntoIterator<Item = Option<f64>>) -> Row {
    (Labels::from_pairs(pairs.iter().copied()), values.into_iter().collect())
}

fn wave(name: &str, low: f64) -> Row {
    row(&[("job", name)], (0..41).map(|n| Some(low + f64::from(n % 7))))
}

fn style() -> Style {
    Style {
        width: 400,
        height: 200,
        scale: 1,
        theme: Theme::Light,
        title: "Requests".to_owned(),
        unit: String::new(),
        zone: Zone::default(),
        shape: Shape::default(),
    }
}

fn scene_of(rows: &[Row], style: &Style, messages: &[String], total: usize) -> Scene {
    named_scene(rows, style, messages, total, None)
}

fn named_scene(
    rows: &[Row],
    style: &Style,
    messages: &[String],
    total: usize,
    legend: Option<&str>,
) -> Scene {
    let steps = rows.iter().map(|(_, values)| values.len()).max().unwrap_or(41);
    let last = NOON_S + STEP_S * (i64::try_from(steps).expect("few") - 1).max(0);
    let steps =
        Steps::new(Timestamp::from_s(NOON_S), Timestamp::from_s(last), STEP_S * 1_000).expect("valid");
    let samples: Vec<Vec<Sample>> = rows
        .iter()
        .map(|(_, values)| {
            let at = |(place, value): (usize, &Option<f64>)| {
                value.map(|value| Sample { at: steps.at(place), value })
            };
            values.iter().enumerate().filter_map(at).collect()
        })
        .collect();
    let series: Vec<ChartSeries<'_>> = rows
        .iter()
        .zip(&samples)
        .map(|((labels, _), samples)| ChartSeries { labels, samples, has_histograms: false, legend })
        .collect();
    let chart = Chart { series: &series, total, steps, style, messages };
    chart.scene(&|| true).expect("never cancelled")
}

fn scene(rows: &[Row], style: &Style) -> Scene {
    scene_of(rows, style, &[], rows.len())
}

/// Returns the pixels of a PNG, and their number in each direction.
fn pixels(picture: &[u8]) -> (Vec<Ink>, usize, usize) {
    let options = DecoderOptions::default().set_strict_mode(true);
    let mut decoder = PngDecoder::new_with_options(ZCursor::new(picture), options);
    let bytes = decoder.decode_raw().expect("a picture");
    assert_eq!((decoder.colorspace(), decoder.depth()), (Some(ColorSpace::RGB), Some(BitDepth::Eight)));
    let (width, height) = decoder.dimensions().expect("decoded");
    assert_eq!(bytes.len(), width * height * 3);
    (bytes.chunks(3).map(|rgb| Ink([rgb[0], rgb[1], rgb[2]])).collect(), width, height)
}

/// Checks that a text is well-formed XML with only the elements of pictures, and returns its texts.
fn texts_of(svg: &str) -> Vec<String> {
    const ELEMENTS: [&str; 10] =
        ["svg", "title", "desc", "rect", "path", "g", "circle", "linearGradient", "stop", "text"];
    assert!(svg.chars().all(|c| c == '\n' || !c.is_control()), "a control character: {svg:?}");
    let (mut open, mut texts) = (Vec::new(), Vec::new());
    let mut rest = svg.trim_end();
    while let Some(tag) = rest.strip_prefix('<') {
        let (tag, after) = tag.split_once('>').expect("a tag ends");
        let name = tag.trim_start_matches('/').split([' ', '/']).next().expect("a name");
        assert!(ELEMENTS.contains(&name), "an element {name:?}");
        assert_eq!(tag.matches('"').count() % 2, 0, "quotes of {tag}");
        match (tag.starts_with('/'), tag.ends_with('/')) {
            (true, _) => assert_eq!(open.pop(), Some(name)),
            (false, false) => open.push(name),
            (false, true) => {}
        }
        let (text, after) = after.split_at(after.find('<').unwrap_or(after.len()));
        for entity in text.split('&').skip(1) {
            let known = ["amp;", "lt;", "gt;", "quot;", "#39;"].iter().any(|known| entity.starts_with(known));
            assert!(known, "an entity in {text}");
        }
        if !text.trim().is_empty() {
            texts.push(text.to_owned());
        }
        rest = after;
    }
    assert!(open.is_empty() && rest.is_empty(), "{open:?} {rest}");
    texts
}

#[test]
fn the_picture_of_a_fixed_result_is_the_stored_one() {
    let rows = [
        row(&[("job", "api")], [1.0, 2.0, 4.0, 3.0, 5.0].map(Some)),
        row(&[("job", "web <1>")], [Some(2.0), None, Some(1.0), Some(1.5), Some(f64::NAN)]),
    ];
    let svg = scene(&rows, &Style { width: 240, height: 160, ..style() }).svg();
    assert_eq!(svg, include_str!("tests/golden.svg"), "the new picture:\n{svg}");
}

#[test]
fn a_png_has_the_size_and_the_colours_of_its_scene() {
    for (theme, scale) in [(Theme::Light, 1), (Theme::Dark, 2)] {
        let palette = theme.palette();
        let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
        let rows = names.map(|name| wave(name, 3.0));
        let drawn = scene(&rows, &Style { theme, scale, ..style() });
        let (inks, width, height) = pixels(&drawn.png(&|| true).expect("never cancelled"));
        assert_eq!((width, height, inks.len()), (400 * scale, 200 * scale, 80_000 * scale * scale));
        assert_eq!(inks[0], palette.background);
        for (ink, name) in palette.series.iter().zip(names) {
            assert!(inks.contains(ink), "the colour of {name}");
        }
    }
}

#[test]
fn a_series_has_gaps_at_nan_infinite_stale_and_missing_values() {
    let values = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11].map(f64::from);
    for gap in [Some(f64::NAN), Some(f64::INFINITY), Some(f64::NEG_INFINITY), Some(stale_nan()), None] {
        let gapped = values.map(|value| if value == 4.0 || value == 8.0 { gap } else { Some(value) });
        let drawn = scene(&[row(&[], gapped)], &style());
        let lines = drawn.items.iter().filter_map(|item| match item {
            scene::Item::Path { vertices, .. } => Some(vertices),
            _ => None,
        });
        let begins: Vec<usize> =
            lines.map(|line| line.iter().filter(|vertex| vertex.begins).count()).collect();
        assert_eq!(begins, [3], "{gap:?}");
        let is_infinite = gap.is_some_and(f64::is_infinite);
        let noted =
            texts_of(&drawn.svg()).contains(&"Infinite values of one series are not drawn.".to_owned());
        assert_eq!(noted, is_infinite, "{gap:?}");
    }
}

#[test]
fn a_point_without_neighbours_is_a_dot() {
    let lone = |n| (0..9).map(move |step| (step == n).then_some(1.0));
    let svg = scene(&[row(&[("a", "1")], lone(3)), row(&[("a", "2")], lone(8))], &style()).svg();
    assert_eq!(svg.matches("<circle").count(), 2);
    let single = scene(&[row(&[], [Some(1.0)])], &style()).svg();
    assert_eq!(single.matches("<circle").count(), 1);
}

#[test]
fn a_result_without_values_has_a_picture_that_says_so() {
    let messages = ["the metric \"nope\" is not known".to_owned()];
    let texts = texts_of(&scene_of(&[], &style(), &messages, 0).svg());
    for text in ["Requests", "No data in this range", "the metric &quot;nope&quot; is not known", "UTC"] {
        assert!(texts.iter().any(|found| found == text), "{text}: {texts:?}");
    }
    let nan = texts_of(&scene(&[row(&[], [Some(f64::NAN), None])], &style()).svg());
    assert!(nan.iter().any(|text| text == "No data in this range"), "{nan:?}");
    let infinite = texts_of(&scene(&[row(&[], [Some(f64::INFINITY)])], &style()).svg());
    assert!(infinite.iter().any(|text| text == "Every value is infinite"), "{infinite:?}");
}

#[test]
fn a_result_of_ten_thousand_series_is_bounded_and_says_what_is_left_out() {
    let rows: Vec<Row> = (0..SERIES_MAX + 1)
        .map(|n| row(&[("n", &n.to_string())], (0..800).map(|step| Some(f64::from(step % 97)))))
        .collect();
    let style = Style { width: 600, height: 400, ..style() };
    let drawn = scene_of(&rows, &style, &[], 10_000);
    let vertices = |item: &scene::Item| match item {
        scene::Item::Path { vertices, .. } => vertices.len(),
        _ => 0,
    };
    let all: usize = drawn.items.iter().map(vertices).sum();
    assert!(all <= VERTICES_MAX + 4 * SERIES_MAX, "{all}");
    let svg = drawn.svg();
    let lines = drawn.items.iter().filter(|item| vertices(item) > 0).count();
    assert_eq!(lines, SERIES_MAX);
    let texts = texts_of(&svg);
    assert!(texts.iter().any(|text| text == "Drawing 200 of 10,000 series."), "{texts:?}");
    assert!(texts.iter().any(|text| text == "9,976 more"), "{texts:?}");
    assert!((svg.len() as u64) < memory_bytes(&style, 10_000, 800, false));
    let style = Style { width: 150, height: 100, ..style };
    let picture = scene_of(&rows, &style, &[], 10_000).png(&|| true).expect("never cancelled");
    assert!((picture.len() as u64) < memory_bytes(&style, 10_000, 800, true));
}

#[test]
fn a_large_picture_is_charged_for_its_pixels_and_its_bytes() {
    let style = Style { width: 1_000, height: 1_200, ..style() };
    let picture = scene(&[wave("a", 1.0)], &style).png(&|| true).expect("never cancelled");
    let held = 4 * style.width * style.height + picture.len();
    assert!(held as u64 <= memory_bytes(&style, 1, 41, true));
    assert!(memory_bytes(&style, 1, 41, false) < 2 << 20, "SVG has no pixels");
}

#[test]
fn a_cancelled_drawing_ends() {
    let rows = [wave("a", 1.0)];
    let drawn = scene(&rows, &style());
    assert_eq!(drawn.png(&|| false), Err(Cancelled));
    // Each check may be the one that cancels.
    for allowed in 0_usize.. {
        let left = std::cell::Cell::new(allowed);
        let continues = || left.replace(left.get().saturating_sub(1)) > 0;
        if drawn.png(&continues).is_ok() {
            assert!(allowed > drawn.items.len(), "a check for each item");
            break;
        }
    }
}

#[test]
fn characters_that_the_font_does_not_have_are_boxes() {
    let drawn = |title: &str| {
        let scene = scene(&[wave("a", 1.0)], &Style { title: title.to_owned(), ..style() });
        let (inks, ..) = pixels(&scene.png(&|| true).expect("never cancelled"));
        inks[..400 * 28].iter().filter(|ink| **ink != Theme::Light.palette().background).count()
    };
    assert_eq!(drawn(" "), 0);
    assert!(drawn("漢字") > 40 && drawn("漢字") > drawn("漢"));
}

/// Any text, and texts that end a tag, an attribute or a comment.
fn hostile() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        "[<>&\"'/= ]{0,12}",
        Just("</text><script>alert(1)</script>".to_owned()),
        Just("\" onload=\"alert(1)".to_owned()),
        Just("]]>&#0;\u{0}\u{7}\u{202e}\u{fffe}\u{1f600}漢".to_owned()),
        Just("x".repeat(5_000)),
    ]
}

/// Returns the filled shapes of a picture with their opacities.
fn fills(drawn: &Scene) -> Vec<(&[scene::Vertex], f32)> {
    let filled = drawn.items.iter().filter_map(|item| match item {
        scene::Item::Fill { vertices, opacity, .. } => Some((&vertices[..], *opacity)),
        _ => None,
    });
    filled.collect()
}

#[test]
fn stacked_areas_stand_on_each_other_and_are_drawn_from_the_top_down() {
    let flat = |value: f64| row(&[("job", "x")], (0..5).map(|_| Some(value)));
    let shape = Shape { stacking: Stacking::Normal, fill_percent: Some(30), ..Shape::default() };
    let drawn = scene(&[flat(10.0), flat(20.0), flat(-10.0)], &Style { shape, ..style() });
    let areas = fills(&drawn);
    assert_eq!(areas.len(), 3);
    assert!(areas.iter().all(|(vertices, opacity)| vertices.len() == 10 && *opacity == 0.3));
    // The first area that is drawn is that of the last series, below zero; the upper edge of the
    // first series is the lower edge of the second.
    let [below, upper, lower] = [areas[0].0, areas[1].0, areas[2].0];
    let zero = lower[9].y;
    assert_eq!((below[0].y > zero, below[9].y), (true, zero), "y grows downwards");
    assert_eq!(upper[9].y, lower[0].y);
    assert!(upper[0].y < upper[9].y && lower[0].y < zero);
    assert!((zero - lower[0].y) * 2.0 - (upper[9].y - upper[0].y) < 0.01, "twice as high");
    // A gap makes two areas of one series.
    let gap = row(&[("job", "g")], [Some(1.0), Some(2.0), None, Some(3.0), Some(4.0)]);
    let drawn = scene(&[gap], &Style { shape, ..style() });
    let (vertices, _) = fills(&drawn)[0];
    assert_eq!(vertices.iter().filter(|vertex| vertex.begins).count(), 2);
    assert!(drawn.svg().contains("fill-opacity="), "{}", drawn.svg());
}

#[test]
fn parts_of_the_sum_fill_the_plot_and_their_axis_is_in_percent() {
    let flat = |value: f64| row(&[("job", "x")], (0..5).map(|_| Some(value)));
    let shape = Shape { stacking: Stacking::Percent, fill_percent: Some(50), ..Shape::default() };
    let drawn = scene(&[flat(30.0), flat(10.0)], &Style { shape, unit: "bytes".into(), ..style() });
    let svg = drawn.svg();
    assert!(svg.contains(">100 %<") && !svg.contains("KiB"), "{svg}");
    let areas = fills(&drawn);
    let [upper, lower] = [areas[0].0, areas[1].0];
    assert!(((lower[9].y - lower[0].y) - 3.0 * (upper[9].y - upper[0].y)).abs() < 0.1);
}

#[test]
fn bars_stand_beside_each_other_or_on_each_other_and_begin_at_zero() {
    let flat = |value: f64| row(&[("job", "x")], (0..5).map(|_| Some(value)));
    let bars = Shape { draw: Draw::Bars, ..Shape::default() };
    let drawn = scene(&[flat(90.0), flat(100.0)], &Style { shape: bars, ..style() });
    let all = fills(&drawn);
    assert_eq!(all.len(), 2);
    let (first, second) = (all[0].0, all[1].0);
    assert_eq!((first.len(), all[0].1), (5 * 4, 0.7));
    assert!((first[4].y, first[7].y) == (second[4].y.max(first[4].y), first[4].y), "the same ground");
    assert!((second[4].x - first[6].x).abs() < 0.01, "the second begins where the first ends");
    assert!(drawn.svg().contains(">0<"), "the axis has zero: {}", drawn.svg());
    let stacked = Shape { stacking: Stacking::Normal, ..bars };
    let drawn = scene(&[flat(90.0), flat(100.0)], &Style { shape: stacked, ..style() });
    let all = fills(&drawn);
    let (upper, lower) = (all[0].0, all[1].0);
    assert_eq!((upper[4].x, upper[4].y), (lower[5].x, lower[5].y));
    // More bars than pixels are lines.
    let many = row(&[("job", "x")], (0..5_000).map(|n| Some(f64::from(n % 9))));
    let drawn = scene(&[many], &Style { shape: bars, ..style() });
    assert!(fills(&drawn).is_empty());
    assert!(drawn.items.iter().any(|item| matches!(item, scene::Item::Path { .. })));
}

#[test]
fn points_are_drawn_without_lines() {
    let points = Shape { draw: Draw::Points, ..Shape::default() };
    let drawn = scene(&[wave("a", 1.0)], &Style { shape: points, ..style() });
    let dots: usize = drawn
        .items
        .iter()
        .map(|item| match item {
            scene::Item::Dots { centres, .. } => centres.len(),
            scene::Item::Path { .. } | scene::Item::Area { .. } => 1_000,
            _ => 0,
        })
        .sum();
    assert_eq!(dots, 41);
}

fn value() -> impl Strategy<Value = Option<f64>> {
    prop_oneof![
        3 => any::<f64>().prop_map(Some),
        5 => (-1e6..1e6).prop_map(Some),
        1 => Just(None),
        1 => prop_oneof![Just(f64::MAX), Just(f64::MIN), Just(5e-324), Just(f64::INFINITY)].prop_map(Some),
    ]
}

fn any_shape() -> impl Strategy<Value = Shape> {
    let draw = prop_oneof![Just(Draw::Line), Just(Draw::Bars), Just(Draw::Points)];
    let stacking = prop_oneof![Just(Stacking::None), Just(Stacking::Normal), Just(Stacking::Percent)];
    let shape = (draw, stacking, proptest::option::of(0..=255_u8));
    shape.prop_map(|(draw, stacking, fill_percent)| Shape { draw, stacking, fill_percent })
}

fn any_style() -> impl Strategy<Value = Style> {
    let texts = (hostile(), hostile(), any_shape());
    let zones = prop_oneof![Just(""), Just("+05:45"), Just("America/New_York")];
    (WIDTH, HEIGHT, 1..=2_usize, any::<bool>(), texts, zones).prop_map(
        |(width, height, scale, is_dark, (title, unit, shape), zone)| Style {
            width,
            height,
            scale: if width * height * 4 > PIXELS_MAX { 1 } else { scale },
            theme: if is_dark { Theme::Dark } else { Theme::Light },
            title,
            unit,
            zone: Zone::parse(zone).expect("a zone"),
            shape,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn any_result_is_well_formed_and_stays_inside_its_picture(
        rows in prop::collection::vec((hostile(), hostile(), prop::collection::vec(value(), 0..40)), 0..50),
        style in any_style(),
        messages in prop::collection::vec(hostile(), 0..4),
        legend in proptest::option::of(hostile()),
    ) {
        let rows: Vec<Row> = rows
            .into_iter()
            .map(|(one, other, values)| row(&[("a", &one), ("b", &other)], values))
            .collect();
        let drawn = named_scene(&rows, &style, &messages, rows.len(), legend.as_deref());
        let svg = drawn.svg();
        let texts = texts_of(&svg);
        prop_assert!(texts.iter().all(|text| text.chars().count() < 2_000));
        prop_assert!(!svg.contains("NaN\"") && !svg.contains("inf\""));
        let (width, height) = (style.width as f32, style.height as f32);
        let inside = |x: f32, y: f32| x >= 0.0 && x <= width && y >= 0.0 && y <= height;
        for item in &drawn.items {
            match item {
                scene::Item::Line { from, to, .. } => {
                    prop_assert!(inside(from.0, from.1) && inside(to.0, to.1), "{item:?}");
                }
                scene::Item::Path { vertices, .. } => {
                    prop_assert!(vertices.iter().all(|vertex| inside(vertex.x, vertex.y)), "{item:?}");
                }
                scene::Item::Dots { centres, .. } => {
                    prop_assert!(centres.iter().all(|(x, y)| inside(*x, *y)), "{item:?}");
                }
                scene::Item::Area { corners, .. } => {
                    prop_assert!(corners.iter().all(|(x, y)| inside(*x, *y)), "{item:?}");
                }
                scene::Item::Fill { vertices, .. } => {
                    prop_assert!(vertices.iter().all(|vertex| inside(vertex.x, vertex.y)), "{item:?}");
                }
                scene::Item::Text(text) => prop_assert!(inside(text.x, text.y), "{item:?}"),
            }
        }
        if style.width * style.height < 100_000 {
            let (inks, ..) = pixels(&drawn.png(&|| true).expect("never cancelled"));
            prop_assert_eq!(inks.len(), style.width * style.height * style.scale * style.scale);
        }
    }
}
