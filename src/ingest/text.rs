//! Prometheus' text format 0.0.4 (with the quoted names of 1.0.0) and OpenMetrics 1.0 and 1.1, line by line.
//!
//! ```text
//! # TYPE http_requests_total counter
//! http_requests_total{method="post",code="200"} 1027 1395066363000
//! {"http.requests", method="post", "http.status"="200"} 3
//! ```
//!
//! A line that is wrong is refused with its number, and the others are stored. One grammar, drawn in [`mod@line`], serves both
//! formats; it is generous with blanks, as 0.0.4 is. They differ in three things:
//!
//! | | Prometheus | OpenMetrics |
//! |---|---|---|
//! | times | whole milliseconds | seconds, with fractions |
//! | `# {...} 1 2` behind a sample | refused | its exemplar, whatever the sample's type |
//! | `name_created` where `name` is a counter, histogram or summary | a series | since when the series of `name` with these labels count: their start timestamp, and no series of its own, as Prometheus reads it. Those of a type that was not told stay series |
//! | `# EOF` | a comment | must stand at the end |
//!
//! OpenMetrics without `# EOF` was cut short on its way. What arrived whole is stored, since that is what its sender
//! would do by hand next; a last line without a line end is refused, because `12` may be the beginning of `123`; and the
//! refusal that names the missing `# EOF` is told in any case. What follows `# EOF` is refused in one.
//!
//! That families must not be interleaved, that buckets must add up, that a counter's name must end in `_total`: rules of
//! OpenMetrics for those who expose are not made rules for those who import.
//!
//! Lines of one series that follow each other are one series of the batch, whose labels are read once.

mod families;
mod line;

use super::pairs::LabelPairs;
use super::{DecodeError, DecodeLimits, Translated, lines};
use crate::model::{Exemplar, Labels, Refusal, Sample, Timestamp};
use families::{Created, Families, Remark};
use line::{Bad, Cursor, Tail};

/// Which of the two formats a body is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The text format 0.0.4, and 1.0.0.
    Prometheus,
    /// OpenMetrics 1.0 and 1.1.
    OpenMetrics,
}

impl Format {
    /// The format that a `Content-Type` (absent: empty) names; none where it names something else. What says nothing of
    /// the kind, curl's own choice among them, is OpenMetrics where the body ends with `# EOF`.
    pub fn of(content_type: &str, body: &[u8]) -> Option<Format> {
        let mut parts = content_type.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default();
        let is = |name: &str| media.eq_ignore_ascii_case(name);
        if is("application/openmetrics-text") {
            return Some(Format::OpenMetrics);
        }
        let has_version = parts.any(|part| part.len() > 8 && cut_is(part, "version="));
        if is("text/plain") && has_version {
            return Some(Format::Prometheus);
        }
        let silent = ["", "text/plain", "application/octet-stream", "application/x-www-form-urlencoded"];
        let ends = body.trim_ascii_end().strip_suffix(b"# EOF");
        let openmetrics = ends.is_some_and(|before| before.last().is_none_or(|byte| *byte == b'\n'));
        let guess = if openmetrics { Format::OpenMetrics } else { Format::Prometheus };
        silent.into_iter().any(is).then_some(guess)
    }
}

fn cut_is(part: &str, prefix: &str) -> bool {
    part.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}

/// Reads a decompressed body. Samples without a time are of `default_at`. Cost: one pass, for OpenMetrics two; per line
/// nothing is allocated but what the batch holds.
///
/// # Errors
/// [`DecodeError`], where nothing is to be stored: an empty body, one beyond the limits. Lines that are wrong are in
/// [`Translated::refusals`].
pub fn decode(
    body: &[u8],
    format: Format,
    default_at: Timestamp,
    limits: &DecodeLimits,
) -> Result<Translated, DecodeError> {
    super::check_size(body, limits)?;
    let created = match format {
        Format::Prometheus => Created::default(),
        Format::OpenMetrics => read_created(body, limits)?,
    };
    let mut reader = TextDecoder {
        format,
        default_at,
        limits,
        out: Translated::default(),
        families: Families::default(),
        created,
        pairs: LabelPairs::default(),
        exemplar_pairs: LabelPairs::default(),
        number: 0,
        series_text: "",
        exemplars: 0,
        exemplar_labels: 0,
    };
    reader.read(body)?;
    reader.families.describe(&mut reader.out.batch);
    Ok(reader.out)
}

/// Collects the `_created` samples, which stand behind those that they are about.
fn read_created(body: &[u8], limits: &DecodeLimits) -> Result<Created, DecodeError> {
    let (mut created, mut families) = (Created::default(), Families::default());
    let (mut pairs, mut exemplar) = (LabelPairs::default(), LabelPairs::default());
    let mut rest = lines::strip_bom(body);
    while let Some((line, _)) = lines::next(&mut rest) {
        let head = line.trim_ascii_start();
        if head.starts_with(b"#") {
            if let Ok(Ok(remark)) =
                std::str::from_utf8(line).map(|line| families::remark(line, Format::OpenMetrics, &mut pairs))
            {
                if remark == Remark::End {
                    break;
                }
                families.hear(remark, limits)?;
            }
            continue;
        }
        let name_end = head.iter().position(|byte| matches!(byte, b' ' | b'\t' | b'{')).unwrap_or(head.len());
        let name = head.get(..name_end).unwrap_or_default();
        if !(name.is_empty() || name.ends_with(families::CREATED.as_bytes())) {
            continue;
        }
        let Ok(line) = std::str::from_utf8(head) else { continue };
        let mut cursor = Cursor::new(line, 0);
        pairs.clear();
        exemplar.clear();
        if cursor.series(&mut pairs).is_err() {
            continue;
        }
        let Some(family) = families.of_created(pairs.metric_name()) else { continue };
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
    families: Families<'a>,
    created: Created,
    pairs: LabelPairs<'a>,
    exemplar_pairs: LabelPairs<'a>,
    /// The line's, from 1.
    number: usize,
    /// Name and labels of the series added last, as they were written; empty where the next line is none of its.
    series_text: &'a str,
    exemplars: usize,
    exemplar_labels: usize,
}

impl<'a> TextDecoder<'a, '_> {
    fn read(&mut self, body: &'a [u8]) -> Result<(), DecodeError> {
        let mut rest = lines::strip_bom(body);
        while let Some((bytes, ended)) = lines::next(&mut rest) {
            self.number = self.number.saturating_add(1);
            let line = match std::str::from_utf8(bytes) {
                Ok(line) => line,
                Err(e) => {
                    let (good, _) = bytes.split_at_checked(e.valid_up_to()).unwrap_or_default();
                    let bad = Bad::new(good.len(), "invalid_utf8", "this byte is not UTF-8");
                    self.pairs.clear();
                    self.refuse(std::str::from_utf8(good).unwrap_or_default(), bad);
                    continue;
                }
            };
            match line.as_bytes().iter().find(|byte| !matches!(byte, b' ' | b'\t')) {
                None => continue,
                Some(b'#') => {
                    if self.remark(line)? {
                        self.refuse_rest(rest);
                        return Ok(());
                    }
                }
                Some(_) if !ended && self.format == Format::OpenMetrics => {
                    self.pairs.clear();
                    self.refuse(line, Bad::new(line.len(), "cut_short", "the body ends within this line"));
                }
                Some(_) => self.sample(line)?,
            }
        }
        if self.format == Format::OpenMetrics {
            self.number = self.number.saturating_add(1);
            self.pairs.clear();
            let what = "the body ends without `# EOF`: it was truncated short, or its sender does not speak OpenMetrics; \
                        the lines that arrived whole are stored";
            self.refuse("", Bad::new(0, "missing_eof", what));
        }
        Ok(())
    }

    /// A line that begins with `#`: whether it is OpenMetrics' last.
    fn remark(&mut self, line: &'a str) -> Result<bool, DecodeError> {
        match families::remark(line, self.format, &mut self.pairs) {
            Ok(Remark::End) => Ok(self.format == Format::OpenMetrics),
            Ok(remark) => self.families.hear(remark, self.limits).map(|()| false),
            Err(bad) => {
                self.pairs.clear();
                self.refuse(line, bad);
                Ok(false)
            }
        }
    }

    fn refuse_rest(&mut self, mut rest: &[u8]) {
        let mut lines: usize = 0;
        let first = self.number.saturating_add(1);
        while let Some((line, _)) = lines::next(&mut rest) {
            lines = lines.saturating_add(usize::from(!line.trim_ascii().is_empty()));
        }
        if lines > 0 {
            self.out.refuse(lines, || Refusal {
                series: String::new(),
                code: "after_eof",
                reason: format!("line {first}: what follows `# EOF` is not read ({lines} lines)"),
            });
        }
    }

    #[cold]
    fn refuse(&mut self, line: &str, bad: Bad<'_>) {
        let TextDecoder { out, number, pairs, .. } = self;
        out.refuse(1, || Refusal {
            series: pairs.display_series(),
            code: bad.code,
            reason: format!("line {number}: {}", bad.reason(line, pairs)),
        });
        self.series_text = "";
    }

    #[inline]
    fn sample(&mut self, line: &'a str) -> Result<(), DecodeError> {
        let (found, allowed) = (self.out.batch.len(), self.limits.samples_max);
        if found >= allowed {
            let found = found.saturating_add(1);
            return Err(DecodeError::TooLarge { what: "samples", found, allowed });
        }
        if let Some(tail) = self.after_same_series(line) {
            return match tail {
                Ok(tail) => self.add(None, &tail),
                Err(bad) => {
                    self.refuse(line, bad);
                    Ok(())
                }
            };
        }
        self.pairs.clear();
        let mut cursor = Cursor::new(line, 0);
        cursor.skip_blanks();
        if let Err(bad) = cursor.series(&mut self.pairs) {
            self.refuse(line, bad);
            return Ok(());
        }
        let series = line.get(..cursor.at()).unwrap_or_default().trim_ascii_end();
        if self.format == Format::OpenMetrics && self.families.of_created(self.pairs.metric_name()).is_some()
        {
            if let Err(bad) = cursor.start() {
                self.refuse(line, bad);
            }
            return Ok(());
        }
        self.exemplar_pairs.clear();
        match cursor.tail(self.format, &mut self.exemplar_pairs) {
            Ok(tail) => self.add(Some(series), &tail),
            Err(bad) => {
                self.refuse(line, bad);
                Ok(())
            }
        }
    }

    /// What stands behind the series, where it is the one of the line before.
    #[inline]
    fn after_same_series(&mut self, line: &'a str) -> Option<Result<Tail, Bad<'a>>> {
        let same = self.series_text;
        let rest = line.strip_prefix(same).filter(|_| !same.is_empty())?;
        // Labels may follow a name behind a blank.
        if !rest.starts_with([' ', '\t']) || rest.trim_ascii_start().starts_with('{') {
            return None;
        }
        self.exemplar_pairs.clear();
        Some(Cursor::new(line, same.len()).tail(self.format, &mut self.exemplar_pairs))
    }

    /// Adds a sample: to the series of the line before, or to a new one.
    #[inline]
    fn add(&mut self, new: Option<&'a str>, tail: &Tail) -> Result<(), DecodeError> {
        let at = tail.at.map_or(self.default_at, Timestamp::from_ms);
        let sample = Sample { at, value: tail.value };
        match new {
            None => {
                self.out.batch.more([sample]);
            }
            Some(text) => {
                self.series_text = text;
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
