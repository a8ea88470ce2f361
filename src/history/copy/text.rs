//! Files of lines as a source: OpenMetrics, Prometheus' text format, JSON lines, CSV and Influx.
//!
//! The file is decoded in pieces of whole lines. The earlier lines that a piece depends on are
//! written in front of the piece: the header of CSV, and the comments of the current family of
//! OpenMetrics.

use std::io::{BufRead as _, BufReader, Read};

use super::{CopyBatch, CopyPosition, CopyShare, CopySource, SampleCopyError};
use crate::ingest::csv::CsvColumns;
use crate::ingest::influx::{InfluxOptions, Precision};
use crate::ingest::text::Format;
use crate::ingest::{DecodeLimits, csv, influx, json_lines, text};
use crate::model::Timestamp;

/// A piece ends at the first line end after this many bytes.
const PIECE_BYTES: usize = 2 << 20;
/// The most bytes of a line, or of lines that belong together.
const LINE_BYTES_MAX: usize = 32 << 20;
/// The most bytes of comments that are repeated in front of a piece.
const COMMENT_BYTES_MAX: usize = 64 << 10;
/// The bytes at the beginning of the file that identify it.
const IDENTITY_BYTES: usize = 4 << 10;
const EOF: &[u8] = b"# EOF";

/// The format of a file of lines.
#[derive(Clone, Debug)]
pub enum TextFormat {
    /// OpenMetrics 1.0, which ends with `# EOF`.
    OpenMetrics,
    /// The text format 0.0.4 of Prometheus.
    Prometheus,
    /// JSON lines of VictoriaMetrics.
    JsonLines,
    /// Comma-separated values; the meaning of the columns, or none if the first line states it.
    Csv(Option<CsvColumns>),
    /// Lines of InfluxDB.
    Influx {
        /// The unit of the times.
        precision: Precision,
        /// The value of the label `db`; empty for none.
        database: String,
    },
}

/// A file of lines.
pub struct TextSource<R> {
    input: BufReader<R>,
    format: TextFormat,
    /// The time of samples without one.
    default_at: Timestamp,
    /// The size of the file in bytes; 0 if it is unknown.
    size: u64,
    position: CopyPosition,
    /// The first bytes, for the identity.
    beginning: Vec<u8>,
    /// The lines in front of each piece.
    prefix: Vec<u8>,
    /// The number of lines in `prefix`.
    prefix_lines: u64,
    has_ended: bool,
    has_eof: bool,
    problems: Vec<String>,
}

impl<R> std::fmt::Debug for TextSource<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TextSource").field("position", &self.position).finish_non_exhaustive()
    }
}

impl<R: Read> TextSource<R> {
    /// Returns the source of a file, which is read from its beginning. `size` is its length in
    /// bytes, 0 if that is unknown.
    ///
    /// # Errors
    /// [`SampleCopyError::Source`] if the file cannot be read.
    pub fn new(
        input: R,
        format: TextFormat,
        default_at: Timestamp,
        size: u64,
    ) -> Result<TextSource<R>, SampleCopyError> {
        let mut input = BufReader::with_capacity(256 << 10, input);
        let beginning = input.fill_buf().map_err(|error| unreadable(&error))?;
        let beginning = beginning.get(..IDENTITY_BYTES.min(beginning.len())).unwrap_or_default().to_vec();
        let mut source = TextSource {
            input,
            format,
            default_at,
            size,
            position: CopyPosition::default(),
            beginning,
            prefix: Vec::new(),
            prefix_lines: 0,
            has_ended: false,
            has_eof: false,
            problems: Vec::new(),
        };
        source.read_header()?;
        Ok(source)
    }

    /// Reads the header of CSV.
    fn read_header(&mut self) -> Result<(), SampleCopyError> {
        if let TextFormat::Csv(None) = self.format {
            let mut header = Vec::new();
            self.read_line(&mut header)?;
            self.advance(&header);
            self.prefix = header;
            self.prefix_lines = 1;
        }
        Ok(())
    }

    fn advance(&mut self, bytes: &[u8]) {
        let lines = bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
        self.position.offset = self.position.offset.saturating_add_unsigned(bytes.len() as u64);
        self.position.lines = self.position.lines.saturating_add(lines);
    }

    /// Appends a line with its line end; nothing at the end of the file.
    fn read_line(&mut self, out: &mut Vec<u8>) -> Result<(), SampleCopyError> {
        let most = LINE_BYTES_MAX.saturating_sub(out.len()).saturating_add(1) as u64;
        let read =
            self.input.by_ref().take(most).read_until(b'\n', out).map_err(|error| unreadable(&error))?;
        if out.len() > LINE_BYTES_MAX {
            let line = self.position.lines.saturating_add(1);
            return Err(SampleCopyError::Source(format!(
                "line {line}: more than {LINE_BYTES_MAX} bytes without an end of the line or of its quotes"
            )));
        }
        self.has_ended |= read == 0;
        Ok(())
    }

    /// Reads the next lines that belong together.
    fn read_piece(&mut self) -> Result<Vec<u8>, SampleCopyError> {
        let (mut piece, mut record, mut is_quoted) = (Vec::new(), 0_usize, false);
        while !self.has_ended && !self.has_eof && (piece.len() < PIECE_BYTES || is_quoted) {
            let start = piece.len();
            self.read_line(&mut piece)?;
            if !is_quoted {
                record = start;
            }
            let line = piece.get(start..).unwrap_or_default();
            match self.format {
                TextFormat::OpenMetrics => self.has_eof = is_eof(line),
                TextFormat::Csv(_) => is_quoted = csv::ends_in_quotes(line, is_quoted),
                TextFormat::Influx { .. } => {
                    is_quoted = influx::ends_in_string(piece.get(record..).unwrap_or_default());
                }
                TextFormat::Prometheus | TextFormat::JsonLines => {}
            }
        }
        Ok(piece)
    }

    fn decode(&mut self, piece: &[u8]) -> Result<CopyBatch, SampleCopyError> {
        let mut body = self.prefix.clone();
        body.extend_from_slice(piece);
        let lines = self.position.lines.saturating_sub(self.prefix_lines);
        let limits = DecodeLimits::default();
        let decoded = match &self.format {
            TextFormat::OpenMetrics => {
                // Only the end of the file may lack it.
                if !self.has_eof {
                    if !body.ends_with(b"\n") {
                        body.push(b'\n');
                    }
                    body.extend_from_slice(EOF);
                    body.push(b'\n');
                }
                text::decode(&body, Format::OpenMetrics, self.default_at, &limits)
            }
            TextFormat::Prometheus => text::decode(&body, Format::Prometheus, self.default_at, &limits),
            TextFormat::JsonLines => json_lines::decode(&body, &limits),
            TextFormat::Csv(columns) => {
                let header = CsvColumns::header();
                csv::decode(&body, columns.as_ref().unwrap_or(&header), self.default_at, &limits)
            }
            TextFormat::Influx { precision, database } => {
                let options = InfluxOptions {
                    precision: *precision,
                    database: database.clone(),
                    default_at: self.default_at,
                };
                influx::decode(&body, &options, &limits)
            }
        };
        let next = self.position.lines.saturating_add(1);
        let decoded =
            decoded.map_err(|error| SampleCopyError::Source(format!("the lines from {next} on: {error}")))?;
        Ok(CopyBatch::of_text(&decoded, lines))
    }

    /// Reads the lines after `# EOF`. Returns a batch that refuses those that are not blank; none
    /// if there are no such lines.
    fn refuse_rest(&mut self) -> Result<Option<CopyBatch>, SampleCopyError> {
        let (mut lines, mut first, mut is_blank) = (0_u64, None, true);
        loop {
            let buffer = self.input.fill_buf().map_err(|error| unreadable(&error))?;
            if buffer.is_empty() {
                break;
            }
            for byte in buffer {
                if *byte == b'\n' {
                    self.position.lines = self.position.lines.saturating_add(1);
                    is_blank = true;
                } else if is_blank && !byte.is_ascii_whitespace() {
                    is_blank = false;
                    lines = lines.saturating_add(1);
                    first.get_or_insert(self.position.lines.saturating_add(1));
                }
            }
            let read = buffer.len();
            self.input.consume(read);
            self.position.offset = self.position.offset.saturating_add_unsigned(read as u64);
        }
        Ok(first.map(|first| {
            let mut batch = CopyBatch::default();
            batch.refuse(lines, format!("line {first}: the {lines} lines after `# EOF` are not read"));
            batch
        }))
    }

    /// Keeps the comments of the family that the next piece may continue.
    fn keep_comments(&mut self, piece: &[u8]) {
        if !matches!(self.format, TextFormat::OpenMetrics | TextFormat::Prometheus) {
            return;
        }
        let mut follows_sample = true;
        let mut comments = std::mem::take(&mut self.prefix);
        for line in piece.split_inclusive(|byte| *byte == b'\n') {
            let is_comment = line.starts_with(b"# ") && line.ends_with(b"\n");
            if is_comment && follows_sample {
                comments.clear();
            }
            if is_comment && comments.len().saturating_add(line.len()) <= COMMENT_BYTES_MAX {
                comments.extend_from_slice(line);
            }
            follows_sample = !is_comment;
        }
        self.prefix_lines = comments.iter().filter(|byte| **byte == b'\n').count() as u64;
        self.prefix = comments;
    }
}

/// Returns whether a line ends a file of OpenMetrics.
fn is_eof(line: &[u8]) -> bool {
    line.trim_ascii_end() == EOF
}

fn unreadable(error: &std::io::Error) -> SampleCopyError {
    SampleCopyError::Source(format!("the file cannot be read: {error}"))
}

impl<R: Read + Send> CopySource for TextSource<R> {
    fn identity(&self) -> String {
        let sum = crate::history::block::checksum(&self.beginning);
        format!("{:?} {sum:08x} {}", self.format, self.beginning.len())
    }

    fn resume(&mut self, position: CopyPosition) -> Result<(), SampleCopyError> {
        let skipped = position.offset.saturating_sub(self.position.offset);
        let skipped = u64::try_from(skipped).unwrap_or_default();
        let is_open = matches!(self.format, TextFormat::OpenMetrics);
        let mut left = usize::try_from(skipped).unwrap_or(usize::MAX);
        let mut piece = Vec::new();
        let mut buffer = vec![0; 64 << 10];
        loop {
            let most = left.min(buffer.len());
            let read = self
                .input
                .read(buffer.get_mut(..most).unwrap_or_default())
                .map_err(|error| unreadable(&error))?;
            let bytes = buffer.get(..read).unwrap_or_default();
            left = left.saturating_sub(read);
            if bytes.is_empty() {
                break;
            }
            // The last comments before the position, which may be anywhere before it.
            piece.extend_from_slice(bytes);
            let whole = piece.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at.saturating_add(1));
            if whole > 0 {
                let rest = piece.split_off(whole);
                let lines = std::mem::replace(&mut piece, rest);
                self.keep_comments(&lines);
                self.has_eof |= is_open && lines.split(|byte| *byte == b'\n').any(is_eof);
            }
        }
        self.has_eof |= is_open && is_eof(&piece);
        self.position = position;
        Ok(())
    }

    fn next(&mut self) -> Result<Option<CopyBatch>, SampleCopyError> {
        loop {
            let piece = self.read_piece()?;
            if piece.is_empty() && self.has_eof {
                return self.refuse_rest();
            }
            if piece.is_empty() {
                if matches!(self.format, TextFormat::OpenMetrics) && !self.has_eof && self.problems.is_empty()
                {
                    self.problems.push("the file ends without `# EOF`: it may be incomplete".to_owned());
                }
                return Ok(None);
            }
            if piece.trim_ascii().is_empty() {
                self.advance(&piece);
                continue;
            }
            let batch = self.decode(&piece)?;
            self.advance(&piece);
            self.keep_comments(&piece);
            return Ok(Some(batch));
        }
    }

    fn position(&self) -> CopyPosition {
        self.position
    }

    fn share(&self) -> CopyShare {
        CopyShare { done: self.position.offset.max(0).cast_unsigned(), all: self.size }
    }

    fn problems(&self) -> Vec<String> {
        self.problems.clone()
    }
}
