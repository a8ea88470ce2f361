//! Positions inside of a value, as positions in its file.

use crate::yaml::Position;

/// Returns the position in `file` of `inner`, a position inside the value that begins at `start`.
/// `None` if the value is not written in the file as it is: folded, or with escapes.
pub(super) fn within(file: &str, start: Position, value: &str, inner: Position) -> Option<Position> {
    let first = file.lines().nth(usize::try_from(start.line).ok()?.checked_sub(1)?)?;
    let skipped = usize::try_from(start.column).ok()?.checked_sub(1)?;
    let offset = first.char_indices().nth(skipped).map_or(first.len(), |(offset, _)| offset);
    let written = first.get(offset..)?;
    let quotes = u64::from(written.starts_with(['"', '\'']));
    let written = written.get(usize::try_from(quotes).ok()?..)?;
    let place = usize::try_from(inner.line).ok()?.checked_sub(1)?;
    if place == 0 || value.trim_end_matches('\n').lines().nth(1).is_none() {
        // YAML folds the lines of a scalar into one, except in a block.
        let text = value.lines().next()?;
        let column = start.column + quotes + chars_before(text, inner.column)?;
        return written.starts_with(text).then_some(Position { line: start.line, column });
    }
    // The lines of a block, each with the same indentation.
    let line = start.line + inner.line - 1;
    let written = file.lines().nth(usize::try_from(line).ok()?.checked_sub(1)?)?;
    let text = value.lines().nth(place)?;
    let column = start.column + chars_before(text, inner.column)?;
    (written.get(skipped..) == Some(text)).then_some(Position { line, column })
}

/// Returns the number of characters before a byte column from 1.
fn chars_before(line: &str, column: u64) -> Option<u64> {
    let bytes = usize::try_from(column).ok()?.checked_sub(1)?.min(line.len());
    let before = line.get(..line.floor_char_boundary(bytes))?;
    u64::try_from(before.chars().count()).ok()
}
