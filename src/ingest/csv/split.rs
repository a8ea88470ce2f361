//! Splits a body into records and cells by RFC 4180: commas separate cells, and quotes enclose
//! those that contain commas, quotes or line ends.

/// Cells of one record, at most.
const CELLS_MAX: usize = 2_048;

/// The current record, and the position after it.
#[derive(Debug)]
pub(super) struct CsvRecord<'a> {
    body: &'a [u8],
    /// Position of the next record.
    at: usize,
    /// Number of lines before that position.
    lines: usize,
    /// Line number of the current record, from 1.
    line: usize,
    text: &'a str,
    cells: Vec<CellRange>,
    /// The text of cells that contain `""`, with `"` in its place.
    unescaped: String,
}

/// A range of `text`, or of `unescaped` if the cell contains `""`.
#[derive(Clone, Copy, Debug)]
struct CellRange {
    start: usize,
    end: usize,
    is_unescaped: bool,
}

/// The reason why a record is refused.
#[derive(Debug)]
pub(super) struct RecordError {
    pub(super) code: &'static str,
    pub(super) reason: &'static str,
    /// Number of lines that are refused.
    pub(super) lines: usize,
}

impl RecordError {
    const fn new(code: &'static str, reason: &'static str) -> RecordError {
        RecordError { code, reason, lines: 1 }
    }
}

impl<'a> CsvRecord<'a> {
    pub(super) fn new(body: &'a [u8]) -> CsvRecord<'a> {
        let (cells, unescaped) = (Vec::new(), String::new());
        CsvRecord { body, at: 0, lines: 0, line: 0, text: "", cells, unescaped }
    }

    pub(super) fn line(&self) -> usize {
        self.line
    }

    pub(super) fn len(&self) -> usize {
        self.cells.len()
    }

    /// Returns the text of a cell; empty if there is no such cell.
    pub(super) fn cell(&self, index: usize) -> &str {
        let Some(CellRange { start, end, is_unescaped }) = self.cells.get(index).copied() else { return "" };
        let text = if is_unescaped { &self.unescaped } else { self.text };
        text.get(start..end).unwrap_or_default()
    }

    /// Returns the text of a cell if it is a slice of the body; `None` if it was unescaped.
    pub(super) fn borrowed(&self, index: usize) -> Option<&'a str> {
        let cell = self.cells.get(index)?;
        if cell.is_unescaped { None } else { self.text.get(cell.start..cell.end) }
    }

    /// Reads the next record that is not an empty line. Returns false after the last one.
    ///
    /// # Errors
    /// [`RecordError`]; the next call continues after the invalid line.
    pub(super) fn read_next(&mut self) -> Result<bool, RecordError> {
        loop {
            self.cells.clear();
            self.unescaped.clear();
            self.line = self.lines.saturating_add(1);
            let Some(rest) = self.body.get(self.at..).filter(|rest| !rest.is_empty()) else {
                return Ok(false);
            };
            let split = self.split(rest);
            let length = match split {
                Ok(length) => length,
                Err((at, error)) => return Err(self.skip_line(rest, at, error)),
            };
            let record = rest.get(..length).unwrap_or_default();
            self.move_past(record);
            let text = std::str::from_utf8(record);
            self.text = text.map_err(|_| RecordError::new("invalid_utf8", "it is not UTF-8"))?;
            let is_empty = record.iter().all(|byte| matches!(byte, b'\n' | b'\r' | b' ' | b'\t'));
            if !is_empty {
                self.unescape_cells();
                return Ok(true);
            }
        }
    }

    fn move_past(&mut self, record: &[u8]) {
        let ends = record.iter().filter(|byte| **byte == b'\n').count();
        self.at = self.at.saturating_add(record.len());
        self.lines = self.lines.saturating_add(ends.max(1));
    }

    /// Moves past the line of the error at `at`. If `at` is `None`, records can no longer be told
    /// apart, and the rest of the body is skipped.
    fn skip_line(&mut self, rest: &[u8], at: Option<usize>, error: RecordError) -> RecordError {
        let Some(at) = at else {
            let lines =
                rest.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty()).count();
            self.move_past(rest);
            return RecordError { lines, ..error };
        };
        let line_end = rest.get(at..).and_then(|after| after.iter().position(|byte| *byte == b'\n'));
        let length = line_end.map_or(rest.len(), |end| at.saturating_add(end).saturating_add(1));
        self.move_past(rest.get(..length).unwrap_or(rest));
        error
    }

    /// Finds the cells of the record at the start of `rest`. Returns its length with its line end.
    ///
    /// # Errors
    /// The error, and the position from which to search for the next line, if there is one.
    fn split(&mut self, rest: &[u8]) -> Result<usize, (Option<usize>, RecordError)> {
        let mut at: usize = 0;
        loop {
            if self.cells.len() >= CELLS_MAX {
                return Err((Some(at), RecordError::new("invalid_line", "it has more than 2048 cells")));
            }
            let (cell, after) = match rest.get(at) {
                Some(b'"') => quoted(rest, at)?,
                _ => plain(rest, at),
            };
            self.cells.push(cell);
            at = after.saturating_add(1);
            match rest.get(after) {
                Some(b',') => {}
                Some(_) => return Ok(at),
                None => return Ok(after),
            }
        }
    }

    /// Unescapes the cells that contain doubled quotes.
    fn unescape_cells(&mut self) {
        let CsvRecord { text, cells, unescaped, .. } = self;
        for cell in cells.iter_mut().filter(|cell| cell.is_unescaped) {
            let start = unescaped.len();
            let mut rest = text.get(cell.start..cell.end).unwrap_or_default();
            while let Some((before, after)) = rest.split_once("\"\"") {
                unescaped.push_str(before);
                unescaped.push('"');
                rest = after;
            }
            unescaped.push_str(rest);
            (cell.start, cell.end) = (start, unescaped.len());
        }
    }
}

/// Reads an unquoted cell. Returns it and the position of the comma or line end after it.
fn plain(rest: &[u8], start: usize) -> (CellRange, usize) {
    let bytes = rest.get(start..).unwrap_or_default();
    let length = bytes.iter().position(|byte| matches!(byte, b',' | b'\n')).unwrap_or(bytes.len());
    let after = start.saturating_add(length);
    let has_cr =
        rest.get(after) != Some(&b',') && bytes.get(..length).is_some_and(|cell| cell.ends_with(b"\r"));
    let end = after.saturating_sub(usize::from(has_cr));
    (CellRange { start, end, is_unescaped: false }, after)
}

/// Reads a quoted cell whose opening quote is at `open`. Returns it and the position of the comma
/// or line end after it.
fn quoted(rest: &[u8], open: usize) -> Result<(CellRange, usize), (Option<usize>, RecordError)> {
    let start = open.saturating_add(1);
    let mut at = start;
    let mut is_unescaped = false;
    loop {
        let quote = rest.get(at..).and_then(|after| after.iter().position(|byte| *byte == b'"'));
        let Some(before) = quote else {
            let reason = "a quote is not closed; the rest of the body is not read";
            return Err((None, RecordError::new("invalid_line", reason)));
        };
        let end = at.saturating_add(before);
        let after = end.saturating_add(1);
        if rest.get(after) == Some(&b'"') {
            is_unescaped = true;
            at = after.saturating_add(1);
            continue;
        }
        let rest_after = rest.get(after..).unwrap_or_default();
        let after = if rest_after.starts_with(b"\r\n") { after.saturating_add(1) } else { after };
        if !matches!(rest.get(after), None | Some(b',' | b'\n')) {
            let reason = "a closing quote must be followed by a comma or a line end";
            return Err((Some(after), RecordError::new("invalid_line", reason)));
        }
        return Ok((CellRange { start, end, is_unescaped }, after));
    }
}

/// Returns whether a line ends inside a quoted cell, so that its record continues in the next line.
/// `is_quoted` is the result for the line before it. This agrees with [`CsvRecord::read_next`].
pub fn ends_in_quotes(line: &[u8], mut is_quoted: bool) -> bool {
    let after_first = |text: &'_ [u8], byte: u8| {
        let at = text.iter().position(|other| *other == byte)?;
        Some(at.saturating_add(1))
    };
    let mut rest = line;
    loop {
        if is_quoted {
            let Some(end) = after_first(rest, b'"') else { return true };
            rest = rest.get(end..).unwrap_or_default();
            if let Some(after) = rest.strip_prefix(b"\"") {
                rest = after;
                continue;
            }
            // The line ends here, or something else follows the quotes and the line is refused.
            let Some(after) = rest.strip_prefix(b",") else { return false };
            rest = after;
        }
        is_quoted = rest.starts_with(b"\"");
        let cell_end = if is_quoted { Some(1) } else { after_first(rest, b',') };
        let Some(end) = cell_end else { return false };
        rest = rest.get(end..).unwrap_or_default();
    }
}
