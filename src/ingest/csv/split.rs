//! Records and cells by RFC 4180: commas between cells, quotes around those that hold commas, quotes or line ends.

/// Cells of one record that are taken apart.
const CELLS_MAX: usize = 2_048;

/// One record, and the place behind it.
#[derive(Debug)]
pub(super) struct Record<'a> {
    body: &'a [u8],
    /// Where the next record begins.
    at: usize,
    /// Lines before that.
    lines: usize,
    /// The line of this record, from 1.
    line: usize,
    text: &'a str,
    cells: Vec<Cell>,
    /// Cells that have `""` in them, with `"` in its place.
    undone: String,
}

/// A piece of [`Record::text`], or of [`Record::undone`].
#[derive(Clone, Copy, Debug)]
struct Cell {
    start: usize,
    end: usize,
    is_undone: bool,
}

/// Why something is no record.
#[derive(Debug)]
pub(super) struct Broken {
    pub(super) code: &'static str,
    pub(super) what: &'static str,
    /// How many lines it is about.
    pub(super) lines: usize,
}

impl Broken {
    const fn new(code: &'static str, what: &'static str) -> Broken {
        Broken { code, what, lines: 1 }
    }
}

impl<'a> Record<'a> {
    pub(super) fn new(body: &'a [u8]) -> Record<'a> {
        let (cells, undone) = (Vec::new(), String::new());
        Record { body, at: 0, lines: 0, line: 0, text: "", cells, undone }
    }

    pub(super) fn line(&self) -> usize {
        self.line
    }

    pub(super) fn len(&self) -> usize {
        self.cells.len()
    }

    /// A cell's text; empty where there is no such cell.
    pub(super) fn cell(&self, place: usize) -> &str {
        let Some(Cell { start, end, is_undone }) = self.cells.get(place).copied() else { return "" };
        let text = if is_undone { &self.undone } else { self.text };
        text.get(start..end).unwrap_or_default()
    }

    /// As [`Record::cell`]; none where the body has it in another form.
    pub(super) fn sent(&self, place: usize) -> Option<&'a str> {
        let cell = self.cells.get(place)?;
        if cell.is_undone { None } else { self.text.get(cell.start..cell.end) }
    }

    /// Reads the next record that is not an empty line; false behind the last. Goes on behind one that is broken.
    pub(super) fn advance(&mut self) -> Result<bool, Broken> {
        loop {
            self.cells.clear();
            self.undone.clear();
            self.line = self.lines.saturating_add(1);
            let Some(rest) = self.body.get(self.at..).filter(|rest| !rest.is_empty()) else {
                return Ok(false);
            };
            let split = self.split(rest);
            let length = match split {
                Ok(length) => length,
                Err((at, broken)) => return Err(self.skip(rest, at, broken)),
            };
            let record = rest.get(..length).unwrap_or_default();
            self.go_on(record);
            let text = std::str::from_utf8(record);
            self.text = text.map_err(|_| Broken::new("invalid_utf8", "it is not UTF-8"))?;
            let is_empty = record.iter().all(|byte| matches!(byte, b'\n' | b'\r' | b' ' | b'\t'));
            if !is_empty {
                self.undo();
                return Ok(true);
            }
        }
    }

    fn go_on(&mut self, record: &[u8]) {
        let ends = record.iter().filter(|byte| **byte == b'\n').count();
        self.at = self.at.saturating_add(record.len());
        self.lines = self.lines.saturating_add(ends.max(1));
    }

    /// Goes behind the line in which something is wrong: behind everything, where nothing can be told apart any more.
    fn skip(&mut self, rest: &[u8], at: Option<usize>, broken: Broken) -> Broken {
        let Some(at) = at else {
            let lines =
                rest.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty()).count();
            self.go_on(rest);
            return Broken { lines, ..broken };
        };
        let line_end = rest.get(at..).and_then(|after| after.iter().position(|byte| *byte == b'\n'));
        let length = line_end.map_or(rest.len(), |end| at.saturating_add(end).saturating_add(1));
        self.go_on(rest.get(..length).unwrap_or(rest));
        broken
    }

    /// Finds the cells of the record at the start of `rest`, and its length with its line end. What is wrong comes with
    /// the place to look for the next line from, if there is one.
    fn split(&mut self, rest: &[u8]) -> Result<usize, (Option<usize>, Broken)> {
        let mut at: usize = 0;
        loop {
            if self.cells.len() >= CELLS_MAX {
                return Err((Some(at), Broken::new("invalid_line", "it has more than 2048 cells")));
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

    /// Writes down the cells with doubled quotes.
    fn undo(&mut self) {
        let Record { text, cells, undone, .. } = self;
        for cell in cells.iter_mut().filter(|cell| cell.is_undone) {
            let start = undone.len();
            let mut rest = text.get(cell.start..cell.end).unwrap_or_default();
            while let Some((before, after)) = rest.split_once("\"\"") {
                undone.push_str(before);
                undone.push('"');
                rest = after;
            }
            undone.push_str(rest);
            (cell.start, cell.end) = (start, undone.len());
        }
    }
}

/// A cell without quotes, and the place of the comma or line end behind it.
fn plain(rest: &[u8], start: usize) -> (Cell, usize) {
    let bytes = rest.get(start..).unwrap_or_default();
    let length = bytes.iter().position(|byte| matches!(byte, b',' | b'\n')).unwrap_or(bytes.len());
    let after = start.saturating_add(length);
    let has_cr =
        rest.get(after) != Some(&b',') && bytes.get(..length).is_some_and(|cell| cell.ends_with(b"\r"));
    let end = after.saturating_sub(usize::from(has_cr));
    (Cell { start, end, is_undone: false }, after)
}

/// A cell in quotes, the first of them at `open`, and the place of the comma or line end behind it.
fn quoted(rest: &[u8], open: usize) -> Result<(Cell, usize), (Option<usize>, Broken)> {
    let start = open.saturating_add(1);
    let mut at = start;
    let mut is_undone = false;
    loop {
        let quote = rest.get(at..).and_then(|after| after.iter().position(|byte| *byte == b'"'));
        let Some(before) = quote else {
            let what = "a quote opens here and is not closed: it and what follows is not read";
            return Err((None, Broken::new("invalid_line", what)));
        };
        let end = at.saturating_add(before);
        let after = end.saturating_add(1);
        if rest.get(after) == Some(&b'"') {
            is_undone = true;
            at = after.saturating_add(1);
            continue;
        }
        let behind = rest.get(after..).unwrap_or_default();
        let after = if behind.starts_with(b"\r\n") { after.saturating_add(1) } else { after };
        if !matches!(rest.get(after), None | Some(b',' | b'\n')) {
            let what = "a quote is closed, and neither a comma nor the line's end follows";
            return Err((Some(after), Broken::new("invalid_line", what)));
        }
        return Ok((Cell { start, end, is_undone }, after));
    }
}
