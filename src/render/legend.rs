//! The legend: marks and names in rows, and the number of the series that have no room.

use super::font::Font;
use super::text::grouped;

/// The most names, inclusive (`src/ui/assets/chart/legend.js`).
const NAMES_MAX: usize = 24;
/// The most rows, inclusive.
const ROWS_MAX: usize = 4;
/// The height of a row, and the distance between the tops of two rows, in pixels.
pub(super) const ROW: f32 = 24.0;
const ROW_GAP: f32 = 2.0;
/// Pixels before and after the contents of an entry, and between two entries.
const PADDING: f32 = 8.0;
const GAP: f32 = 4.0;
/// The width of a mark, and its distance from the name.
pub(super) const MARK: f32 = 14.0;
const MARK_GAP: f32 = 7.0;
/// The size of the names.
pub(super) const SIZE: f32 = 12.0;

/// A name with its mark, or the number of further series.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    /// The index of the series; `None` for the number of further series.
    pub(super) series: Option<usize>,
    pub(super) text: String,
    pub(super) row: usize,
    /// The left edge of the mark in pixels.
    pub(super) x: f32,
    /// The width of the text in pixels.
    pub(super) width: f32,
}

/// The entries, and the number of rows that they fill.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Legend {
    pub(super) entries: Vec<Entry>,
    pub(super) rows: usize,
}

impl Entry {
    /// Returns the left edge of the text in pixels.
    pub(super) fn text_x(&self) -> f32 {
        if self.series.is_some() { self.x + MARK + MARK_GAP } else { self.x }
    }

    fn end(&self) -> f32 {
        self.text_x() + self.width + PADDING
    }
}

impl Legend {
    /// Lays out the names within `width` and `height` pixels; `total` is the number of series. The
    /// legend is empty if not even a row fits.
    pub(super) fn new(font: &Font, names: &[String], total: usize, width: f32, height: f32) -> Legend {
        let rows_max = (1..=ROWS_MAX).rev().find(|rows| Legend::height_of(*rows) <= height).unwrap_or(0);
        let mut entries: Vec<Entry> = Vec::new();
        if rows_max == 0 {
            return Legend::default();
        }
        for (place, name) in names.iter().enumerate().take(NAMES_MAX) {
            let room = width - 2.0 * PADDING - MARK - MARK_GAP;
            let text = font.fitted(name, SIZE, room);
            let text_width = font.width(&text, SIZE);
            let Some(entry) = next(entries.last(), Some(place), text, text_width, width, rows_max) else {
                break;
            };
            entries.push(entry);
        }
        while entries.len() < total {
            let text = format!("{} more", grouped(total - entries.len()));
            let text_width = font.width(&text, SIZE);
            if let Some(more) = next(entries.last(), None, text, text_width, width, rows_max) {
                entries.push(more);
                break;
            }
            if entries.pop().is_none() {
                break;
            }
        }
        let rows = entries.last().map_or(0, |last| last.row + 1);
        Legend { entries, rows }
    }

    /// Returns the height of this many rows.
    fn height_of(rows: usize) -> f32 {
        rows as f32 * (ROW + ROW_GAP) - ROW_GAP
    }

    pub(super) fn height(&self) -> f32 {
        if self.rows == 0 { 0.0 } else { Legend::height_of(self.rows) }
    }

    /// Returns the vertical middle of a row, in pixels below the top of the legend.
    pub(super) fn middle(row: usize) -> f32 {
        row as f32 * (ROW + ROW_GAP) + ROW / 2.0
    }
}

/// Returns the entry after `last` in its row or in the next one; `None` if all rows are full.
fn next(
    last: Option<&Entry>,
    series: Option<usize>,
    text: String,
    text_width: f32,
    width: f32,
    rows_max: usize,
) -> Option<Entry> {
    let mut entry = Entry { series, text, row: 0, x: PADDING, width: text_width };
    if let Some(last) = last {
        (entry.row, entry.x) = (last.row, last.end() + GAP + PADDING);
        if entry.end() > width {
            (entry.row, entry.x) = (last.row + 1, PADDING);
        }
    }
    (entry.row < rows_max).then_some(entry)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn legend(names: usize, total: usize, width: f32, height: f32) -> Legend {
        let names: Vec<String> = (0..names).map(|n| format!("series number {n}")).collect();
        Legend::new(&Font::new(), &names, total, width, height)
    }

    #[test]
    fn the_legend_states_how_many_series_have_no_room() {
        let all = legend(5, 5, 2_000.0, 100.0);
        assert_eq!((all.entries.len(), all.rows), (5, 1));
        for (width, height) in [(300.0, 24.0), (300.0, 60.0), (100.0, 110.0), (2_000.0, 200.0)] {
            let cut = legend(200, 10_000, width, height);
            let (more, names) = cut.entries.split_last().expect("entries");
            assert_eq!(more.text, format!("{} more", grouped(10_000 - names.len())));
            assert!(names.iter().all(|entry| entry.series.is_some()) && cut.height() <= height);
            assert!(cut.entries.iter().all(|entry| entry.end() <= width), "{cut:?}");
        }
        assert_eq!(legend(5, 5, 300.0, 23.0), Legend::default());
    }
}
