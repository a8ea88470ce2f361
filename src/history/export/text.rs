//! Series as JSON lines, CSV, OpenMetrics and Prometheus' text format.
//!
//! Floats have as many digits as needed to read the same bits again. No text format has native
//! histograms or staleness markers, which are left out; the histograms are counted.

use std::collections::{BTreeSet, HashSet};
use std::fmt::Write as _;
use std::io::Write;

use super::ExportSource;
use super::blocks::first_part;
use super::families::{description_of, family_of, text_order};
use crate::history::copy::SampleCopyError;
use crate::model::{Labels, METRIC_NAME, MetricMetadata, RawSeries, TimeRange, families_of, is_stale};

/// A text format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportFormat {
    /// JSON lines of VictoriaMetrics.
    JsonLines,
    /// Comma-separated values with a header.
    Csv,
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// The text format 0.0.4 of Prometheus.
    Prometheus,
}

impl ExportFormat {
    /// Returns the format with a name.
    pub fn parse(name: &str) -> Option<ExportFormat> {
        Some(match name {
            "jsonl" => ExportFormat::JsonLines,
            "csv" => ExportFormat::Csv,
            "openmetrics" => ExportFormat::OpenMetrics,
            "prometheus" => ExportFormat::Prometheus,
            _ => return None,
        })
    }

    /// Returns whether the format describes families of metrics.
    const fn has_types(self) -> bool {
        matches!(self, ExportFormat::OpenMetrics | ExportFormat::Prometheus)
    }

    /// Returns the content type.
    pub const fn content_type(self) -> &'static str {
        match self {
            ExportFormat::JsonLines => "application/x-ndjson",
            ExportFormat::Csv => "text/csv; charset=utf-8",
            ExportFormat::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            ExportFormat::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// A writer of series in one format.
#[derive(Debug)]
pub struct ExportWriter {
    format: ExportFormat,
    /// The labels that are columns of CSV, apart from the name of the metric.
    columns: Vec<String>,
    /// The families whose type was written.
    described: HashSet<String>,
    left_out: u64,
}

/// The names of columns that have another meaning, and those that may have a format behind a colon.
const RESERVED_COLUMNS: [&str; 2] = ["value", "metric"];
const TIME_COLUMNS: [&str; 2] = ["time", "timestamp"];

impl ExportWriter {
    /// Creates a writer of the series with these labels. Only CSV needs them, for its columns.
    pub fn new<'l>(format: ExportFormat, labels: impl IntoIterator<Item = &'l Labels>) -> ExportWriter {
        let mut columns = BTreeSet::new();
        if format == ExportFormat::Csv {
            for label in labels.into_iter().flat_map(Labels::iter) {
                if label.name != METRIC_NAME && !columns.contains(label.name) {
                    columns.insert(label.name.to_owned());
                }
            }
        }
        ExportWriter {
            format,
            columns: columns.into_iter().collect(),
            described: HashSet::new(),
            left_out: 0,
        }
    }

    /// Returns the label that cannot be a column of CSV because its name has another meaning
    /// there: a reserved word, a time with a format such as `time:unix_s`, or a name with white
    /// space around it, which is trimmed.
    pub fn impossible_column(&self) -> Option<&str> {
        let is_reserved = |name: &&String| {
            let word = name.split_once(':').map_or(name.as_str(), |(word, _)| word);
            name.trim() != name.as_str()
                || RESERVED_COLUMNS.iter().any(|reserved| reserved.eq_ignore_ascii_case(name))
                || TIME_COLUMNS.iter().any(|reserved| reserved.eq_ignore_ascii_case(word))
        };
        self.columns.iter().find(is_reserved).map(String::as_str)
    }

    /// Returns the number of native histograms that were left out.
    pub const fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Appends the text before the first series, such as the header of CSV.
    pub fn begin(&self, out: &mut Vec<u8>) {
        if self.format == ExportFormat::Csv {
            let mut line = "time:unix_ms,metric,value".to_owned();
            for name in &self.columns {
                line.push(',');
                put_cell(name, &mut line);
            }
            line.push('\n');
            out.extend_from_slice(line.as_bytes());
        }
    }

    /// Appends the text after the last series, such as `# EOF`.
    pub fn end(&self, out: &mut Vec<u8>) {
        if self.format == ExportFormat::OpenMetrics {
            out.extend_from_slice(b"# EOF\n");
        }
    }

    /// Appends the samples of a series. The samples of one series may be appended in several
    /// consecutive calls; series are appended in the order of their metrics.
    pub fn series(&mut self, series: &RawSeries, metadata: Option<MetricMetadata<'_>>, out: &mut Vec<u8>) {
        let natives = series.histograms.histograms.iter().filter(|one| !one.is_stale());
        self.left_out = self.left_out.saturating_add(natives.count() as u64);
        if series.times.is_empty() {
            return;
        }
        match self.format {
            ExportFormat::JsonLines => json_line(series, out),
            ExportFormat::Csv => self.csv_lines(series, out),
            ExportFormat::OpenMetrics | ExportFormat::Prometheus => {
                if let Some(metadata) = metadata {
                    self.describe(series.labels.metric_name(), &metadata, out);
                }
                self.text_lines(series, out);
            }
        }
    }

    fn csv_lines(&self, series: &RawSeries, out: &mut Vec<u8>) {
        let mut labels = String::new();
        for name in &self.columns {
            labels.push(',');
            put_cell(series.labels.value(name), &mut labels);
        }
        let mut metric = String::new();
        put_cell(series.labels.metric_name(), &mut metric);
        let mut line = String::new();
        for (at, value) in samples(series).filter(|(_, value)| !is_stale(*value)) {
            line.clear();
            // Writing to a string cannot fail.
            let _ = writeln!(line, "{at},{metric},{}{labels}", Number(value));
            out.extend_from_slice(line.as_bytes());
        }
    }

    fn describe(&mut self, series_name: &str, metadata: &MetricMetadata<'_>, out: &mut Vec<u8>) {
        let (name, kind) = family_of(self.format, series_name, metadata);
        if self.described.contains(&*name) {
            return;
        }
        self.described.insert(name.clone().into_owned());
        let is_open = self.format == ExportFormat::OpenMetrics;
        // OpenMetrics requires that the name of the family ends with the unit.
        let before = name.strip_suffix(metadata.unit).filter(|_| !metadata.unit.is_empty());
        let has_unit = is_open && before.is_some_and(|before| before.ends_with('_'));
        let mut text = String::new();
        let quoted = !is_plain(&name, true);
        let name = if quoted { format!("\"{}\"", Escaped(&name, true)) } else { name.into_owned() };
        let _ = writeln!(text, "# TYPE {name} {kind}");
        if has_unit {
            let _ = writeln!(text, "# UNIT {name} {}", metadata.unit);
        }
        if !metadata.help.is_empty() {
            let _ = writeln!(text, "# HELP {name} {}", Escaped(metadata.help, is_open));
        }
        out.extend_from_slice(text.as_bytes());
    }

    fn text_lines(&self, series: &RawSeries, out: &mut Vec<u8>) {
        let name = series.labels.metric_name();
        let is_quoted = !is_plain(name, true);
        let mut head = String::new();
        if !is_quoted {
            head.push_str(name);
        }
        let mut parts = Vec::new();
        if is_quoted && !name.is_empty() {
            parts.push(format!("\"{}\"", Escaped(name, true)));
        }
        for label in series.labels.iter().filter(|label| label.name != METRIC_NAME) {
            let value = Escaped(label.value, true);
            parts.push(match is_plain(label.name, false) {
                true => format!("{}=\"{value}\"", label.name),
                false => format!("\"{}\"=\"{value}\"", Escaped(label.name, true)),
            });
        }
        if !parts.is_empty() {
            let _ = write!(head, "{{{}}}", parts.join(","));
        }
        let mut line = String::new();
        for (at, value) in samples(series).filter(|(_, value)| !is_stale(*value)) {
            line.clear();
            let _ = match self.format {
                ExportFormat::OpenMetrics => writeln!(line, "{head} {} {}", Number(value), SecondsText(at)),
                _ => writeln!(line, "{head} {} {at}", Number(value)),
            };
            out.extend_from_slice(line.as_bytes());
        }
    }
}

fn samples(series: &RawSeries) -> impl Iterator<Item = (i64, f64)> + '_ {
    series.times.iter().copied().zip(series.values.iter().copied())
}

/// Returns the description of the family of a series, of those that `find` returns by name.
pub fn metadata_of<'m>(
    labels: &Labels,
    find: impl Fn(&str) -> Option<MetricMetadata<'m>>,
) -> Option<MetricMetadata<'m>> {
    families_of(labels.metric_name()).find_map(find)
}

fn json_line(series: &RawSeries, out: &mut Vec<u8>) {
    let mut line = "{\"metric\":{".to_owned();
    for (place, label) in series.labels.iter().enumerate() {
        let comma = if place == 0 { "" } else { "," };
        let _ = write!(line, "{comma}{}:{}", JsonText(label.name), JsonText(label.value));
    }
    line.push_str("},\"values\":[");
    let kept = || samples(series).filter(|(_, value)| !is_stale(*value));
    for (place, (_, value)) in kept().enumerate() {
        line.push_str(if place == 0 { "" } else { "," });
        let _ = match value {
            value if value.is_nan() => write!(line, "null"),
            f64::INFINITY => write!(line, "\"Infinity\""),
            f64::NEG_INFINITY => write!(line, "\"-Infinity\""),
            value => write!(line, "{}", Number(value)),
        };
    }
    line.push_str("],\"timestamps\":[");
    for (place, (at, _)) in kept().enumerate() {
        let comma = if place == 0 { "" } else { "," };
        let _ = write!(line, "{comma}{at}");
    }
    line.push_str("]}\n");
    if kept().next().is_some() {
        out.extend_from_slice(line.as_bytes());
    }
}

/// Appends a cell of CSV.
fn put_cell(text: &str, out: &mut String) {
    let needs_quotes = text.contains(['"', ',', '\n', '\r']) || text.starts_with(' ') || text.ends_with(' ');
    if needs_quotes {
        out.push('"');
        out.push_str(&text.replace('"', "\"\""));
        out.push('"');
    } else {
        out.push_str(text);
    }
}

/// Returns whether a name needs no quotes.
fn is_plain(name: &str, is_metric: bool) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_' || is_metric && byte == b':';
    let mut bytes = name.bytes();
    bytes.next().is_some_and(is_letter) && bytes.all(|byte| is_letter(byte) || byte.is_ascii_digit())
}

/// A float with as many digits as needed.
struct Number(f64);

impl std::fmt::Display for Number {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            value if value.is_nan() => f.write_str("NaN"),
            f64::INFINITY => f.write_str("+Inf"),
            f64::NEG_INFINITY => f.write_str("-Inf"),
            // This form has an exponent if the number would have many digits.
            value => {
                let text = format!("{value:?}");
                f.write_str(text.strip_suffix(".0").unwrap_or(&text))
            }
        }
    }
}

/// A time in milliseconds, as seconds.
struct SecondsText(i64);

impl std::fmt::Display for SecondsText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let ms = self.0.unsigned_abs();
        let (seconds, rest) = (ms / 1_000, ms % 1_000);
        if rest == 0 { write!(f, "{sign}{seconds}") } else { write!(f, "{sign}{seconds}.{rest:03}") }
    }
}

/// A text in which backslashes and line ends are escaped, and quotes if `.1` is true.
struct Escaped<'t>(&'t str, bool);

impl std::fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for character in self.0.chars() {
            match character {
                '\\' => f.write_str("\\\\")?,
                '\n' => f.write_str("\\n")?,
                '"' if self.1 => f.write_str("\\\"")?,
                other => f.write_char(other)?,
            }
        }
        Ok(())
    }
}

/// A string of JSON.
struct JsonText<'t>(&'t str);

impl std::fmt::Display for JsonText<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&serde_json::to_string(self.0).map_err(|_| std::fmt::Error)?)
    }
}

/// The settings of an export as text.
#[derive(Clone, Copy, Debug)]
pub struct TextExport {
    /// The format.
    pub format: ExportFormat,
    /// The times, both ends inclusive.
    pub range: TimeRange,
}

/// The state of a running export as text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TextStep {
    /// Written samples.
    pub samples: u64,
    /// Written series.
    pub done: u64,
    /// All series.
    pub all: u64,
    /// Written bytes.
    pub bytes: u64,
    /// Native histograms that were left out.
    pub left_out: u64,
}

/// The bytes after which a piece ends.
const PIECE_BYTES: usize = 64 << 10;
/// The parts of series after which a piece ends.
const PIECE_PARTS: usize = 256;
/// The samples after which a piece ends.
const PIECE_SAMPLES: usize = 1 << 20;

/// The series of a source as text, in the order of their metrics, piece by piece.
#[derive(Debug)]
pub struct TextPieces<S> {
    source: S,
    range: TimeRange,
    writer: ExportWriter,
    /// The places of the series in the order in which they are written.
    places: Vec<usize>,
    /// The times of the current series that are not written yet.
    rest: TimeRange,
    step: TextStep,
    state: PiecesState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PiecesState {
    Beginning,
    Series,
    Ended,
}

impl<S: ExportSource> TextPieces<S> {
    /// Selects the series of a source.
    ///
    /// # Errors
    /// [`SampleCopyError`], also if a label cannot be a column of CSV.
    pub fn new(mut source: S, export: TextExport) -> Result<TextPieces<S>, SampleCopyError> {
        let labels = source.select(export.range)?;
        let places = if export.format.has_types() {
            text_order(&labels, export.format, |name| source.metadata(name))
        } else {
            let mut places: Vec<usize> = (0..labels.len()).collect();
            places.sort_by_key(|place| labels.get(*place).map(Labels::metric_name));
            places
        };
        let writer = ExportWriter::new(export.format, &labels);
        if let Some(column) = writer.impossible_column() {
            let message =
                format!("the label {column} cannot be a column of CSV, where it has another meaning");
            return Err(SampleCopyError::Source(message));
        }
        let step = TextStep { all: places.len() as u64, ..TextStep::default() };
        let (range, rest) = (export.range, export.range);
        Ok(TextPieces { source, range, writer, places, rest, step, state: PiecesState::Beginning })
    }

    /// Returns the state after the last piece.
    pub const fn step(&self) -> TextStep {
        self.step
    }

    /// Appends the next part of a series. Returns the number of samples, none after the last part.
    fn part(&mut self, text: &mut Vec<u8>) -> Result<Option<usize>, SampleCopyError> {
        let place = usize::try_from(self.step.done).ok().and_then(|done| self.places.get(done));
        let Some(place) = place.copied() else { return Ok(None) };
        let (part, rest) = first_part(self.rest);
        let series = self.source.read(place, part)?;
        let metadata = description_of(&series.labels, |name| self.source.metadata(name));
        self.writer.series(&series, metadata, text);
        self.step.samples = self.step.samples.saturating_add(series.len() as u64);
        self.step.left_out = self.writer.left_out();
        self.rest = rest.unwrap_or(self.range);
        if rest.is_none() {
            self.step.done = self.step.done.saturating_add(1);
        }
        Ok(Some(series.len()))
    }
}

/// The trailer of a response with the number of native histograms that a text leaves out.
pub const LEFT_OUT_TRAILER: &str = "x-promlet-left-out-histograms";

/// A text or a stream of bytes that is made piece by piece.
pub trait ExportPieces {
    /// Returns the next piece, which may be empty; none after the last one.
    ///
    /// # Errors
    /// [`SampleCopyError`].
    fn next_piece(&mut self) -> Result<Option<Vec<u8>>, SampleCopyError>;

    /// Returns the number of native histograms that the pieces so far left out; none if the format
    /// has native histograms.
    fn left_out(&self) -> Option<u64> {
        None
    }
}

impl<S: ExportSource> ExportPieces for TextPieces<S> {
    fn left_out(&self) -> Option<u64> {
        Some(self.step.left_out)
    }

    fn next_piece(&mut self) -> Result<Option<Vec<u8>>, SampleCopyError> {
        let mut text = Vec::new();
        match self.state {
            PiecesState::Ended => return Ok(None),
            PiecesState::Beginning => self.writer.begin(&mut text),
            PiecesState::Series => {}
        }
        self.state = PiecesState::Series;
        let (mut parts, mut samples) = (0_usize, 0_usize);
        while text.len() < PIECE_BYTES && parts < PIECE_PARTS && samples < PIECE_SAMPLES {
            let Some(more) = self.part(&mut text)? else {
                self.writer.end(&mut text);
                self.state = PiecesState::Ended;
                break;
            };
            (parts, samples) = (parts.saturating_add(1), samples.saturating_add(more));
        }
        self.step.bytes = self.step.bytes.saturating_add(text.len() as u64);
        Ok(Some(text))
    }
}

/// Writes the series of a source. `observe` is called for each piece and returns whether the export
/// may continue.
///
/// # Errors
/// [`SampleCopyError`].
pub fn export_text<S: ExportSource>(
    source: S,
    export: TextExport,
    out: &mut dyn Write,
    observe: &mut dyn FnMut(TextStep) -> bool,
) -> Result<TextStep, SampleCopyError> {
    let mut pieces = TextPieces::new(source, export)?;
    while let Some(piece) = pieces.next_piece()? {
        out.write_all(&piece).map_err(|error| SampleCopyError::Sink(error.to_string()))?;
        if !observe(pieces.step()) {
            return Err(SampleCopyError::Stopped);
        }
    }
    Ok(pieces.step())
}
