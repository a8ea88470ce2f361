//! Decoder of the Prometheus text format 0.0.4 (with the quoted names of 1.0.0) and of OpenMetrics
//! 1.0 and 1.1, line by line.
//!
//! ```text
//! # TYPE http_requests_total counter
//! http_requests_total{method="post",code="200"} 1027 1395066363000
//! {"http.requests", method="post", "http.status"="200"} 3
//! ```
//!
//! An invalid line is refused with its number, and the others are stored. Both formats share one
//! grammar, in [`mod@line`], which is generous with blanks, as 0.0.4 is. They differ as follows:
//!
//! * Times are whole milliseconds in Prometheus, and seconds with fractions in OpenMetrics.
//! * `# {...} 1 2` after a sample is refused in Prometheus. In OpenMetrics it is the exemplar of
//!   the sample, for every type.
//! * `name_created`, where `name` is a counter, histogram or summary, is a series in Prometheus. In
//!   OpenMetrics it is the start timestamp of the series of `name` with these labels, and no series
//!   of its own, as in Prometheus' parser. If no type was given, it stays a series.
//! * `# EOF` is a comment in Prometheus, and required at the end in OpenMetrics.
//!
//! OpenMetrics without `# EOF` was truncated in transit. Its complete lines are stored, since the
//! sender would import them again anyway. A last line without a line end is refused, because `12`
//! may be the beginning of `123`. The missing `# EOF` is always reported as a refusal. All lines
//! after `# EOF` are refused together.
//!
//! Not enforced are rules of OpenMetrics for exposition: that families do not interleave, that
//! buckets are cumulative, and that the name of a counter ends in `_total`.
//!
//! Consecutive lines of one series form one series of the batch, whose labels are parsed once.

mod families;
mod layout;
mod line;

pub use layout::{series_ends, take_value};

use super::pairs::LabelPairs;
use super::{DecodeError, DecodeLimits, Translated, lines};
use crate::model::{Exemplar, Labels, Refusal, Sample, Timestamp};
use families::{CommentLine, CreatedTimes, MetadataTable};
use line::{LineCursor, LineError, SampleTail};

/// The end of the reason for refusing the end of a truncated body. The statement is true of pushed
/// bodies.
pub const COMPLETE_LINES_STORED: &str = "; its complete lines are stored";

/// The format of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The Prometheus text format 0.0.4 or 1.0.0.
    Prometheus,
    /// OpenMetrics 1.0 and 1.1.
    OpenMetrics,
}

impl Format {
    /// Returns the format that a `Content-Type` (empty if absent) names; `None` if it names
    /// anything else. For a generic type, such as curl's default, the format is OpenMetrics if the
    /// body ends with `# EOF`.
    pub fn of(content_type: &str, body: &[u8]) -> Option<Format> {
        let mut parts = content_type.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default();
        let is = |name: &str| media.eq_ignore_ascii_case(name);
        if is("application/openmetrics-text") {
            return Some(Format::OpenMetrics);
        }
        let has_version = parts.any(|part| part.len() > 8 && starts_with_ignore_case(part, "version="));
        if is("text/plain") && has_version {
            return Some(Format::Prometheus);
        }
        let generic = ["", "text/plain", "application/octet-stream", "application/x-www-form-urlencoded"];
        let ends = body.trim_ascii_end().strip_suffix(b"# EOF");
        let ends_with_eof = ends.is_some_and(|before| before.last().is_none_or(|byte| *byte == b'\n'));
        let guess = if ends_with_eof { Format::OpenMetrics } else { Format::Prometheus };
        generic.into_iter().any(is).then_some(guess)
    }
}

fn starts_with_ignore_case(part: &str, prefix: &str) -> bool {
    part.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}

/// Decodes a decompressed body. `default_at` is the time of samples without one. Cost: one pass,
/// for OpenMetrics two; per line, only the contents of the batch are allocated.
///
/// # Errors
/// [`DecodeError`], if the whole body is refused: it is empty or exceeds a limit. Invalid lines are
/// in [`Translated::refusals`].
pub fn decode(
    body: &[u8],
    format: Format,
    default_at: Timestamp,
    limits: &DecodeLimits,
) -> Result<Translated, DecodeError> {
    super::check_size(body, limits)?;
    let created = match format {
        Format::Prometheus => CreatedTimes::default(),
        Format::OpenMetrics => read_created(body, limits)?,
    };
    let mut reader = TextDecoder {
        format,
        default_at,
        limits,
        out: Translated::default(),
        families: MetadataTable::default(),
        created,
        pairs: LabelPairs::default(),
        exemplar_pairs: LabelPairs::default(),
        line_number: 0,
        previous_series: "",
        exemplars: 0,
        exemplar_labels: 0,
    };
    reader.read(body)?;
    reader.families.describe(&mut reader.out.batch);
    Ok(reader.out)
}

/// Collects the `_created` samples in a pass of its own, since they follow the samples that they
/// describe.
fn read_created(body: &[u8], limits: &DecodeLimits) -> Result<CreatedTimes, DecodeError> {
    let (mut created, mut families) = (CreatedTimes::default(), MetadataTable::default());
    let (mut pairs, mut exemplar) = (LabelPairs::default(), LabelPairs::default());
    let mut rest = lines::strip_bom(body);
    while let Some((line, _)) = lines::next(&mut rest) {
        let head = line.trim_ascii_start();
        if head.starts_with(b"#") {
            if let Ok(Ok(comment_line)) = std::str::from_utf8(line)
                .map(|line| families::comment_line(line, Format::OpenMetrics, &mut pairs))
            {
                if comment_line == CommentLine::Eof {
                    break;
                }
                families.record(comment_line, limits)?;
            }
            continue;
        }
        let name_end = head.iter().position(|byte| matches!(byte, b' ' | b'\t' | b'{')).unwrap_or(head.len());
        let name = head.get(..name_end).unwrap_or_default();
        if !(name.is_empty() || name.ends_with(families::CREATED_SUFFIX.as_bytes())) {
            continue;
        }
        let Ok(line) = std::str::from_utf8(head) else { continue };
        let mut cursor = LineCursor::new(line, 0);
        pairs.clear();
        exemplar.clear();
        if cursor.series(&mut pairs).is_err() {
            continue;
        }
        let Some(family) = families.family_of_created(pairs.metric_name()) else { continue };
        if let Ok(start) = cursor.start() {
            created.put(family, &pairs, start, limits)?;
        }
    }
    Ok(created)
}

struct TextDecoder<'a, 'l> {
    format: Format,
    default_at: Timestamp,
    limits: &'l DecodeLimits,
    out: Translated,
    families: MetadataTable<'a>,
    created: CreatedTimes,
    pairs: LabelPairs<'a>,
    exemplar_pairs: LabelPairs<'a>,
    /// The number of the current line, from 1.
    line_number: usize,
    /// The text of name and labels of the series that was added last; empty if the next line starts
    /// a new series.
    previous_series: &'a str,
    exemplars: usize,
    exemplar_labels: usize,
}

impl<'a> TextDecoder<'a, '_> {
    fn read(&mut self, body: &'a [u8]) -> Result<(), DecodeError> {
        let mut rest = lines::strip_bom(body);
        while let Some((bytes, is_terminated)) = lines::next(&mut rest) {
            self.line_number = self.line_number.saturating_add(1);
            let line = match std::str::from_utf8(bytes) {
                Ok(line) => line,
                Err(e) => {
                    let (good, _) = bytes.split_at_checked(e.valid_up_to()).unwrap_or_default();
                    let error = LineError::new(good.len(), "invalid_utf8", "this byte is not UTF-8");
                    self.pairs.clear();
                    self.refuse(std::str::from_utf8(good).unwrap_or_default(), error);
                    continue;
                }
            };
            match line.as_bytes().iter().find(|byte| !matches!(byte, b' ' | b'\t')) {
                None => continue,
                Some(b'#') => {
                    if self.comment_line(line)? {
                        self.refuse_rest(rest);
                        return Ok(());
                    }
                }
                Some(_) if !is_terminated && self.format == Format::OpenMetrics => {
                    self.pairs.clear();
                    self.refuse(
                        line,
                        LineError::new(line.len(), "cut_short", "the body ends inside this line"),
                    );
                }
                Some(_) => self.sample(line)?,
            }
        }
        if self.format == Format::OpenMetrics {
            self.line_number = self.line_number.saturating_add(1);
            self.pairs.clear();
            let what = "the body ends without `# EOF`: it was truncated, or is not OpenMetrics; \
                        its complete lines are stored";
            self.refuse("", LineError::new(0, "missing_eof", what));
        }
        Ok(())
    }

    /// Handles a line that begins with `#`. Returns whether it is the end of an OpenMetrics body.
    fn comment_line(&mut self, line: &'a str) -> Result<bool, DecodeError> {
        match families::comment_line(line, self.format, &mut self.pairs) {
            Ok(CommentLine::Eof) => Ok(self.format == Format::OpenMetrics),
            Ok(comment_line) => self.families.record(comment_line, self.limits).map(|()| false),
            Err(error) => {
                self.pairs.clear();
                self.refuse(line, error);
                Ok(false)
            }
        }
    }

    /// Refuses all lines after `# EOF` together.
    fn refuse_rest(&mut self, mut rest: &[u8]) {
        let mut lines: usize = 0;
        let first = self.line_number.saturating_add(1);
        while let Some((line, _)) = lines::next(&mut rest) {
            lines = lines.saturating_add(usize::from(!line.trim_ascii().is_empty()));
        }
        if lines > 0 {
            self.out.refuse(lines, || Refusal {
                series: String::new(),
                code: "after_eof",
                reason: format!("line {first}: the {lines} lines after `# EOF` are not read"),
            });
        }
    }

    #[cold]
    fn refuse(&mut self, line: &str, error: LineError<'_>) {
        let TextDecoder { out, line_number, pairs, .. } = self;
        out.refuse(1, || Refusal {
            series: pairs.display_series(),
            code: error.code,
            reason: format!("line {line_number}: {}", error.reason(line, pairs)),
        });
        self.previous_series = "";
    }

    #[inline]
    fn sample(&mut self, line: &'a str) -> Result<(), DecodeError> {
        let (found, allowed) = (self.out.batch.len(), self.limits.samples_max);
        if found >= allowed {
            let found = found.saturating_add(1);
            return Err(DecodeError::TooLarge { what: "samples", found, allowed });
        }
        if let Some(tail) = self.parse_same_series(line) {
            return match tail {
                Ok(tail) => self.add(None, &tail),
                Err(error) => {
                    self.refuse(line, error);
                    Ok(())
                }
            };
        }
        self.pairs.clear();
        let mut cursor = LineCursor::new(line, 0);
        cursor.skip_blanks();
        if let Err(error) = cursor.series(&mut self.pairs) {
            self.refuse(line, error);
            return Ok(());
        }
        let series = line.get(..cursor.at()).unwrap_or_default().trim_ascii_end();
        if self.format == Format::OpenMetrics
            && self.families.family_of_created(self.pairs.metric_name()).is_some()
        {
            if let Err(error) = cursor.start() {
                self.refuse(line, error);
            }
            return Ok(());
        }
        self.exemplar_pairs.clear();
        match cursor.sample_tail(self.format, &mut self.exemplar_pairs) {
            Ok(tail) => self.add(Some(series), &tail),
            Err(error) => {
                self.refuse(line, error);
                Ok(())
            }
        }
    }

    /// Parses the rest of a line whose series is that of the previous line; `None` if it is
    /// another.
    #[inline]
    fn parse_same_series(&mut self, line: &'a str) -> Option<Result<SampleTail, LineError<'a>>> {
        let same = self.previous_series;
        let rest = line.strip_prefix(same).filter(|_| !same.is_empty())?;
        // Labels may follow a name after a blank.
        if !rest.starts_with([' ', '\t']) || rest.trim_ascii_start().starts_with('{') {
            return None;
        }
        self.exemplar_pairs.clear();
        Some(LineCursor::new(line, same.len()).sample_tail(self.format, &mut self.exemplar_pairs))
    }

    /// Adds a sample: to the previous series if `new` is `None`, else to a new series with this
    /// text.
    #[inline]
    fn add(&mut self, new: Option<&'a str>, tail: &SampleTail) -> Result<(), DecodeError> {
        let at = tail.at.map_or(self.default_at, Timestamp::from_ms);
        let sample = Sample { at, value: tail.value };
        match new {
            None => {
                self.out.batch.more([sample]);
            }
            Some(text) => {
                self.previous_series = text;
                self.out.batch.samples_of(self.pairs.iter(), [sample]);
                super::check_series(&self.out.batch, self.limits)?;
            }
        }
        if !self.created.is_empty()
            && let Some(start) = self.created.get(&self.pairs)
        {
            self.out.batch.start(at, Timestamp::from_ms(start));
        }
        if let Some(exemplar) = tail.exemplar {
            self.exemplars = self.exemplars.saturating_add(1);
            self.exemplar_labels = self.exemplar_labels.saturating_add(self.exemplar_pairs.len());
            let counted = [
                ("exemplars", self.exemplars, self.limits.exemplars_max),
                ("exemplar labels", self.exemplar_labels, self.limits.exemplar_labels_max),
            ];
            if let Some((what, found, allowed)) = counted.into_iter().find(|(_, found, most)| found > most) {
                return Err(DecodeError::TooLarge { what, found, allowed });
            }
            let labels = Labels::from_pairs(self.exemplar_pairs.iter());
            let at = exemplar.at.map_or(at, Timestamp::from_ms);
            self.out.batch.exemplar(Exemplar { labels, value: exemplar.value, at });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
