//! The position of a place inside a text of the file.

use crate::yaml::Position;

/// Returns the position in `file` of the place `inner` inside the value that begins at `start`.
/// `None` if the value is not written in the file as it is: folded, or with escapes.
pub(super) fn within(file: &str, start: Position, value: &str, inner: Position) -> Option<Position> {
    let line_no = usize::try_from(start.line).ok()?.checked_sub(1)?;
    let mut lines = file.lines().skip(line_no);
    let line = lines.next()?;
    let skipped = usize::try_from(start.column).ok()?.checked_sub(1)?;
    let offset = line.char_indices().nth(skipped).map_or(line.len(), |(offset, _)| offset);
    let written = line.get(offset..)?;
    let first = value.lines().next()?;
    if written.starts_with('|') {
        return in_block(lines, start, value, inner);
    }
    // Only the first line: YAML folds the others.
    if inner.line != 1 || value.trim_end_matches('\n').contains('\n') {
        return None;
    }
    let quotes = u64::from(written.starts_with(['"', '\'']));
    let plain = written.get(usize::try_from(quotes).ok()?..)?;
    if !plain.starts_with(first) {
        return None;
    }
    let characters = chars_before(first, inner.column)?;
    Some(Position { line: start.line, column: start.column + quotes + characters })
}

/// Returns the position inside a literal block, whose lines follow the line with its `|`.
fn in_block<'f>(
    mut lines: impl Iterator<Item = &'f str>,
    start: Position,
    value: &str,
    inner: Position,
) -> Option<Position> {
    let place = usize::try_from(inner.line).ok()?.checked_sub(1)?;
    let (text, written) = (value.lines().nth(place)?, lines.nth(place)?);
    let indentation = written.len().checked_sub(text.len())?;
    if !written.ends_with(text) {
        return None;
    }
    let characters = chars_before(text, inner.column)?;
    let column = u64::try_from(indentation).ok()? + characters + 1;
    Some(Position { line: start.line + inner.line, column })
}

/// Returns the number of characters before a byte column from 1.
fn chars_before(line: &str, column: u64) -> Option<u64> {
    let bytes = usize::try_from(column).ok()?.checked_sub(1)?.min(line.len());
    let before = line.get(..line.floor_char_boundary(bytes))?;
    u64::try_from(before.chars().count()).ok()
}
