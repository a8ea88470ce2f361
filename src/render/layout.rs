//! Lays out a chart: heading, plot with axes, legend and notes, from top to bottom.

use super::axis::{ValueAxis, moment_text, time_ticks};
use super::colours::{Ink, Palette, line_dashes, mark_dashes};
use super::convert::{index, pixels};
use super::font::Font;
use super::legend::{self, Legend, MARK, ROW};
use super::lines::{Plot, Positions, SeriesLine, Summary};
use super::names::{is_nameless, names};
use super::number::tick_text;
use super::scene::{Anchor, Item, Scene, Text};
use super::shapes::{Draw, Shape, Stacked, Stacking, extent, stacked};
use super::text::{clean, grouped};
use super::{Cancelled, Chart, ChartSeries, SERIES_MAX, TEXT_CHARS_MAX, VERTICES_MAX};

/// The number of lines above which lines are thin (`src/ui/assets/chart/paint.js`).
const THIN_LINES_ABOVE: usize = 40;
/// The size of the texts at the axes.
const TICK_SIZE: f32 = 11.0;
const TITLE_SIZE: f32 = 14.0;
const STATE_SIZE: f32 = 13.0;
const NOTE_SIZE: f32 = 12.0;
/// Pixels between the edge of the picture and texts.
const MARGIN: f32 = 8.0;
/// The height of the heading, and of the notes.
const TITLE_HEIGHT: f32 = 30.0;
const NOTE_HEIGHT: f32 = 20.0;
/// The height of the plot below which heading, legend and notes are left out.
const PLOT_MIN: f32 = 90.0;
/// The most messages in the picture (`src/ui/assets/chart/state.js`).
const MESSAGES_MAX: usize = 3;

/// The items of a picture, and the tools that add to them.
struct Sketch<'c> {
    chart: &'c Chart<'c>,
    palette: &'static Palette,
    font: Font,
    items: Vec<Item>,
}

/// The parts above and below the plot, and the height of the plot with its axes.
struct Parts {
    title: String,
    legend: Legend,
    note: String,
    top: f32,
    plot_height: f32,
}

/// Lays out a picture.
pub(super) fn scene(chart: &Chart<'_>, continues: &dyn Fn() -> bool) -> Result<Scene, Cancelled> {
    let shape = chart.style.shape;
    let drawn = &chart.series[..chart.series.len().min(SERIES_MAX)];
    let is_percent = shape.stacking == Stacking::Percent;
    let stacks = match shape.stacking {
        Stacking::None => Vec::new(),
        Stacking::Normal | Stacking::Percent => stacked(drawn, chart.steps, is_percent, continues)?,
    };
    let on_stacks: Vec<ChartSeries<'_>> = drawn
        .iter()
        .zip(&stacks)
        .map(|(series, stacked)| ChartSeries { samples: &stacked.samples, ..*series })
        .collect();
    let chart = &match stacks.is_empty() {
        true => *chart,
        false => Chart { series: &on_stacks, ..*chart },
    };
    let style = chart.style;
    let drawn = &chart.series[..chart.series.len().min(SERIES_MAX)];
    let mut sums = Vec::with_capacity(drawn.len());
    for series in drawn {
        if !continues() {
            return Err(Cancelled);
        }
        sums.push(Summary::of(series));
    }
    let all = sums.iter().fold(Summary::EMPTY, |all, one| Summary {
        low: all.low.min(one.low),
        high: all.high.max(one.high),
        infinite: all.infinite + one.infinite,
    });
    let is_empty = !all.is_finite() && all.infinite == 0;
    let mut sketch = Sketch { chart, palette: style.theme.palette(), font: Font::new(), items: Vec::new() };
    let parts = sketch.parts(drawn.len(), &sums, is_empty);
    let unit = if is_percent { "percent".to_owned() } else { clean(&style.unit, TEXT_CHARS_MAX) };
    let (low, high) = if all.is_finite() { extent(shape, all, &stacks) } else { (0.0, 1.0) };
    let count = index(f64::from((parts.plot_height / 52.0).round())).max(2);
    let axis = ValueAxis::around(low, high, count, &unit);
    let texts = match is_empty {
        true => Vec::new(),
        false => sketch.tick_texts(&axis, &unit),
    };
    let left = texts.iter().map(|text| sketch.font.width(text, TICK_SIZE)).fold(24.0, f32::max).ceil() + 12.0;
    let plot = Plot {
        left: f64::from(left),
        top: f64::from(parts.top) + 8.0,
        right: style.width as f64 - 10.0,
        bottom: f64::from(parts.top + parts.plot_height) - 24.0,
    };
    let positions = Positions { plot, axis: &axis, steps: chart.steps };
    sketch.heading(&parts);
    sketch.value_axis(&positions, &texts);
    sketch.time_axis(&positions);
    if !is_empty {
        sketch.series(&positions, drawn.len(), &stacks, continues)?;
    }
    sketch.state(&plot, is_empty, all.is_finite());
    sketch.legend(&parts);
    sketch.note(&parts);
    Ok(sketch.finish())
}

impl Sketch<'_> {
    fn text(&mut self, text: String, x: f32, y: f32, size: f32, ink: Ink) -> &mut Text {
        let text = Text { x, y, anchor: Anchor::Start, size, bold: false, ink, text, width: None };
        self.items.push(Item::Text(text));
        match self.items.last_mut() {
            Some(Item::Text(text)) => text,
            _ => unreachable!("a text was pushed"),
        }
    }

    fn line(&mut self, from: (f32, f32), to: (f32, f32), ink: Ink) {
        self.items.push(Item::Line { from, to, width: 1.0, dashes: &[], ink });
    }

    /// Divides the height. Heading, notes and legend are left out, in this order from the last,
    /// where the plot would be too low.
    fn parts(&self, drawn: usize, sums: &[Summary], is_empty: bool) -> Parts {
        let style = self.chart.style;
        let (width, mut left) = (style.width as f32, style.height as f32);
        let mut take = |height: f32, wanted: bool| {
            let fits = wanted && left - height >= PLOT_MIN;
            left -= if fits { height } else { 0.0 };
            fits
        };
        let room = width - 2.0 * MARGIN;
        let title = clean(&style.title, TEXT_CHARS_MAX);
        let has_title = take(TITLE_HEIGHT, !title.is_empty());
        let note = if is_empty { String::new() } else { self.notes(drawn, sums) };
        let has_note = take(NOTE_HEIGHT, !note.is_empty());
        let series = &self.chart.series[..drawn];
        let mut legend = Legend::default();
        if !is_empty && !is_nameless(series) {
            let names = names(series);
            legend = Legend::new(&self.font, &names, self.chart.total, width, left - PLOT_MIN - 6.0);
        }
        let legend_height = if legend.rows == 0 { 0.0 } else { legend.height() + 6.0 };
        Parts {
            title: if has_title { self.font.fitted(&title, TITLE_SIZE, room / 1.08) } else { String::new() },
            note: if has_note { self.font.fitted(&note, NOTE_SIZE, room) } else { String::new() },
            top: if has_title { TITLE_HEIGHT } else { 0.0 },
            plot_height: left - legend_height,
            legend,
        }
    }

    /// Returns notes about the parts of the result that are not drawn, and its first messages.
    fn notes(&self, drawn: usize, sums: &[Summary]) -> String {
        let Chart { series, total, messages, .. } = *self.chart;
        let mut notes = Vec::new();
        if total > drawn {
            notes.push(format!("Drawing {} of {} series.", grouped(drawn), grouped(total)));
        }
        let affected = |count| match count {
            1 => "one series are".to_owned(),
            _ => format!("{count} series are"),
        };
        let infinite = sums.iter().filter(|sum| sum.infinite > 0).count();
        if infinite > 0 {
            notes.push(format!("Infinite values of {} not drawn.", affected(infinite)));
        }
        let histograms = series[..drawn].iter().filter(|one| one.has_histograms).count();
        if histograms > 0 {
            notes.push(format!("Histograms of {} not drawn.", affected(histograms)));
        }
        notes.extend(messages.iter().take(MESSAGES_MAX).map(|text| clean(text, TEXT_CHARS_MAX)));
        notes.join(" · ")
    }

    fn heading(&mut self, parts: &Parts) {
        if !parts.title.is_empty() {
            let width = self.font.width(&parts.title, TITLE_SIZE) * 1.08;
            let title = self.text(parts.title.clone(), MARGIN, 21.0, TITLE_SIZE, self.palette.text);
            (title.bold, title.width) = (true, Some(width));
        }
    }

    /// Returns the texts of the value axis, each at most a third of the picture wide.
    fn tick_texts(&self, axis: &ValueAxis, unit: &str) -> Vec<String> {
        let room = self.chart.style.width as f32 / 3.0;
        let texts = axis.ticks.iter().map(|tick| tick_text(*tick, unit, axis.step));
        texts.map(|text| self.font.fitted(&text, TICK_SIZE, room)).collect()
    }

    fn value_axis(&mut self, at: &Positions<'_>, texts: &[String]) {
        let (left, right) = (pixels(at.plot.left), pixels(at.plot.right));
        for (place, (text, tick)) in texts.iter().zip(&at.axis.ticks).enumerate() {
            // A line of one pixel at a half-pixel coordinate covers exactly one pixel.
            let y = pixels(at.y(*tick)).round() + 0.5;
            let is_axis = *tick == 0.0 || place == 0;
            self.line((left, y), (right, y), if is_axis { self.palette.axis } else { self.palette.grid });
            let width = self.font.width(text, TICK_SIZE);
            let text = self.text(text.clone(), left - 8.0, y + 4.0, TICK_SIZE, self.palette.muted);
            (text.anchor, text.width) = (Anchor::End, Some(width));
        }
        if texts.is_empty() {
            let y = pixels(at.plot.bottom).round() + 0.5;
            self.line((left, y), (right, y), self.palette.axis);
        }
    }

    /// Adds the time axis. The zone is at its right end; ticks have no text there.
    fn time_axis(&mut self, at: &Positions<'_>) {
        let (Plot { left, top, right, bottom }, width) = (at.plot, self.chart.style.width as f32);
        let (start_ms, end_ms) = (at.steps.start().as_ms(), at.end_ms());
        let zone = &self.chart.style.zone;
        let label = zone.label(start_ms.div_euclid(1_000), end_ms.div_euclid(1_000));
        let label = self.font.fitted(&label, TICK_SIZE, width / 2.0);
        let baseline = pixels(bottom) + 18.0;
        let taken = width - 2.0 - self.font.width(&label, TICK_SIZE);
        let count = index((right - left) / 58.0).max(2);
        let seconds = |ms: i64| ms as f64 / 1_000.0;
        // A single step has a range of one step, as in `Positions::x`.
        for tick in time_ticks(seconds(start_ms), seconds(end_ms), count, zone) {
            let x = pixels(at.x(tick.at.saturating_mul(1_000))).round() + 0.5;
            let ink = if tick.major { self.palette.axis } else { self.palette.grid };
            self.line((x, pixels(top)), (x, pixels(bottom) + 4.0), ink);
            let half = self.font.width(&tick.text, TICK_SIZE) / 2.0;
            let middle = x.max(half + 1.0);
            if middle + half + 6.0 > taken {
                continue;
            }
            let ink = if tick.major { self.palette.text } else { self.palette.muted };
            self.text(tick.text, middle, baseline, TICK_SIZE, ink).anchor = Anchor::Middle;
        }
        let label = self.text(label, width - 2.0, baseline, TICK_SIZE, self.palette.muted);
        label.anchor = Anchor::End;
    }

    /// Adds the shapes of all series. Where there is no room for bars or points, these are lines.
    fn series(
        &mut self,
        at: &Positions<'_>,
        drawn: usize,
        stacks: &[Stacked],
        continues: &dyn Fn() -> bool,
    ) -> Result<(), Cancelled> {
        let shape = self.chart.style.shape;
        let samples: usize = self.chart.series[..drawn].iter().map(|series| series.samples.len()).sum();
        let has_room = at.has_room(samples, VERTICES_MAX / 4);
        if !has_room || shape == Shape::default() {
            return self.lines(at, drawn, continues);
        }
        // Stacks from the top down, so that no area hides a line.
        let places: Vec<usize> = match stacks.is_empty() {
            true => (0..drawn).collect(),
            false => (0..drawn).rev().collect(),
        };
        for place in places {
            if !continues() {
                return Err(Cancelled);
            }
            let series = &self.chart.series[place];
            let bases = stacks.get(place).map(|stacked| &stacked.bases[..]);
            let (ink, opacity) = (self.palette.of(place), shape.opacity());
            match shape.draw {
                Draw::Bars => {
                    let slot = if bases.is_some() { (0, 1) } else { (place, drawn) };
                    let vertices = at.bars(series.samples, bases, slot);
                    self.items.push(Item::Fill { vertices, opacity, ink });
                }
                Draw::Points => self.items.push(Item::Dots { centres: at.points(series.samples), ink }),
                Draw::Line => {
                    if opacity > 0.0 {
                        let vertices = at.filled(series.samples, bases);
                        self.items.push(Item::Fill { vertices, opacity, ink });
                    }
                    self.series_line(at.line(series), place, (drawn > THIN_LINES_ABOVE, false));
                }
            }
        }
        Ok(())
    }

    fn lines(
        &mut self,
        at: &Positions<'_>,
        drawn: usize,
        continues: &dyn Fn() -> bool,
    ) -> Result<(), Cancelled> {
        let (width, steps) = (at.plot.right - at.plot.left, at.steps.len());
        let is_dense = steps as f64 > 1.5 * width || steps.saturating_mul(drawn) > VERTICES_MAX;
        // Two vertices of each column.
        let grain = (2.0 * width * drawn as f64 / VERTICES_MAX as f64).ceil().max(1.0);
        let is_crowd = is_dense || drawn > THIN_LINES_ABOVE;
        for (place, series) in self.chart.series[..drawn].iter().enumerate() {
            if !continues() {
                return Err(Cancelled);
            }
            let line = if is_dense { at.dense_line(series, grain) } else { at.line(series) };
            let ink = self.palette.of(place);
            if drawn == 1 && self.chart.style.shape.fill_percent.is_none() {
                let (top, bottom) = (pixels(at.plot.top), pixels(at.plot.bottom));
                let areas = at.areas(&line).into_iter();
                self.items.extend(areas.map(|corners| Item::Area { corners, top, bottom, ink }));
            }
            self.series_line(line, place, (is_crowd, is_dense));
        }
        Ok(())
    }

    /// Adds the line of a series, thin among many, and without dashes if it is dense.
    fn series_line(
        &mut self,
        SeriesLine { vertices, dots }: SeriesLine,
        place: usize,
        (is_crowd, is_dense): (bool, bool),
    ) {
        let ink = self.palette.of(place);
        if !vertices.is_empty() {
            let dashes: &[f32] = if is_dense { &[] } else { line_dashes(place) };
            let width = if is_crowd { 1.1 } else { 1.75 };
            self.items.push(Item::Path { vertices, width, dashes, round: !is_crowd, ink });
        }
        if !dots.is_empty() {
            self.items.push(Item::Dots { centres: dots, ink });
        }
    }

    /// Adds the text in the middle of a plot without lines.
    fn state(&mut self, plot: &Plot, is_empty: bool, is_finite: bool) {
        let (heading, mut details) = match (is_empty, is_finite) {
            (true, _) => ("No data in this range", self.chart.messages.to_vec()),
            (false, false) => {
                ("Every value is infinite", vec!["An infinite value has no place on the axis.".to_owned()])
            }
            (false, true) => return,
        };
        details.truncate(MESSAGES_MAX);
        let (middle, width) = (self.chart.style.width as f32 / 2.0, self.chart.style.width as f32);
        let height = pixels(plot.bottom - plot.top);
        // Lines that do not fit into the plot are left out.
        details.truncate(index(f64::from((height - 20.0) / 20.0)));
        let mut y = pixels(plot.top) + height / 2.0 + 5.0 - 10.0 * details.len() as f32;
        let room = width - 2.0 * MARGIN;
        let heading = self.font.fitted(heading, STATE_SIZE, room);
        let text = self.text(heading, middle, y, STATE_SIZE, self.palette.text);
        (text.anchor, text.bold) = (Anchor::Middle, true);
        for detail in details {
            y += 20.0;
            let detail = self.font.fitted(&clean(&detail, TEXT_CHARS_MAX), NOTE_SIZE, room);
            self.text(detail, middle, y, NOTE_SIZE, self.palette.muted).anchor = Anchor::Middle;
        }
    }

    fn legend(&mut self, parts: &Parts) {
        let top = parts.top + parts.plot_height + 6.0;
        for entry in &parts.legend.entries {
            let middle = top + Legend::middle(entry.row);
            debug_assert!(middle + ROW / 2.0 <= self.chart.style.height as f32);
            let ink = match entry.series {
                Some(place) => {
                    let (from, to) = ((entry.x, middle), (entry.x + MARK, middle));
                    let (dashes, ink) = (mark_dashes(place), self.palette.of(place));
                    self.items.push(Item::Line { from, to, width: 3.0, dashes, ink });
                    self.palette.text
                }
                None => self.palette.muted,
            };
            let text = self.text(entry.text.clone(), entry.text_x(), middle + 4.0, legend::SIZE, ink);
            text.width = Some(entry.width);
        }
    }

    fn note(&mut self, parts: &Parts) {
        let y = self.chart.style.height as f32 - 7.0;
        self.text(parts.note.clone(), MARGIN, y, NOTE_SIZE, self.palette.muted);
    }

    fn finish(mut self) -> Scene {
        self.items.retain(|item| !matches!(item, Item::Text(text) if text.text.is_empty()));
        let Chart { total, steps, style, .. } = *self.chart;
        let seconds = |ms: i64| ms.div_euclid(1_000);
        let (start, end) = (seconds(steps.start().as_ms()), seconds(steps.at(steps.len() - 1).as_ms()));
        let [from, to] = [start, end].map(|at| moment_text(at, &style.zone));
        let zone = style.zone.label(start, end);
        let title = clean(&style.title, TEXT_CHARS_MAX);
        Scene {
            width: style.width,
            height: style.height,
            scale: style.scale,
            background: self.palette.background,
            items: self.items,
            title: if title.is_empty() { "Chart".to_owned() } else { title },
            description: format!("{} series, {from} to {to}, {zone}", grouped(total)),
        }
    }
}
