//! The metadata lines of a document, and the start timestamps of its series.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::Format;
use super::line::{LineCursor, LineError};
use crate::ingest::pairs::{LabelPairs, TextSlice};
use crate::ingest::{DecodeError, DecodeLimits};
use crate::model::{BatchBuilder, METRIC_NAME, MetricKind};

/// Suffixes of sample names that are not part of the family name.
const SUFFIXES: [&str; 6] = ["_total", "_bucket", "_count", "_sum", "_gcount", "_gsum"];

/// Suffix of an OpenMetrics sample whose value is the start timestamp of the other samples of its
/// family.
pub(super) const CREATED_SUFFIX: &str = "_created";

/// A line that begins with `#`.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CommentLine<'a> {
    /// A comment without meaning here.
    Comment,
    /// `# EOF`.
    Eof,
    Kind(Cow<'a, str>, MetricKind),
    Help(Cow<'a, str>, Cow<'a, str>),
    Unit(Cow<'a, str>, &'a str),
}

/// Parses a line that begins with `#`. `scratch` is a buffer for quoted names with escapes.
///
/// # Errors
/// [`LineError`], if a `TYPE`, `HELP` or `UNIT` line is malformed.
pub(super) fn comment_line<'a>(
    line: &'a str,
    format: Format,
    scratch: &mut LabelPairs<'a>,
) -> Result<CommentLine<'a>, LineError<'a>> {
    let mut cursor = LineCursor::new(line, 0);
    cursor.skip_blanks();
    cursor.consume(b'#');
    let after = cursor.at();
    cursor.skip_blanks();
    // `#HELP`, without a blank, is a plain comment.
    if cursor.at() == after {
        return Ok(CommentLine::Comment);
    }
    let start = cursor.at();
    let word = cursor.word();
    if word == "EOF" && cursor.rest().trim_ascii().is_empty() {
        return Ok(CommentLine::Eof);
    }
    if !matches!(word, "TYPE" | "HELP" | "UNIT") {
        return Ok(CommentLine::Comment);
    }
    cursor.skip_blanks();
    scratch.clear();
    let name = if cursor.rest().starts_with('"') {
        match cursor.quoted(scratch)? {
            TextSlice::Borrowed(name) => Cow::Borrowed(name),
            unescaped @ TextSlice::Unescaped { .. } => Cow::Owned(scratch.text(unescaped).to_owned()),
        }
    } else {
        Cow::Borrowed(cursor.word())
    };
    if name.is_empty() {
        return Err(LineError::new(start, "invalid_line", "this word must be followed by a metric name"));
    }
    let is_separated = cursor.consume(b' ') || cursor.consume(b'\t');
    if !is_separated && !cursor.rest().is_empty() {
        return Err(LineError::new(
            cursor.at(),
            "invalid_line",
            "the metric name must be followed by a blank",
        ));
    }
    cursor.skip_blanks();
    let rest = cursor.rest();
    Ok(match word {
        "HELP" => CommentLine::Help(name, unescaped(rest, format)),
        "UNIT" => CommentLine::Unit(name, rest.trim_ascii_end()),
        _ => {
            let unknown = LineError::new(
                cursor.at(),
                "invalid_line",
                "the type must be counter, gauge, histogram, gaugehistogram, summary, info, stateset or unknown",
            );
            CommentLine::Kind(name, kind(rest.trim_ascii_end()).ok_or(unknown)?)
        }
    })
}

fn kind(word: &str) -> Option<MetricKind> {
    if word == "untyped" {
        return Some(MetricKind::Unknown);
    }
    (0..=u8::MAX).map_while(MetricKind::from_number).find(|kind| kind.as_str() == word)
}

/// Unescapes a help text: `\\` and `\n` are escapes, in OpenMetrics `\"` as well. Other backslashes
/// stand for themselves.
fn unescaped(text: &str, format: Format) -> Cow<'_, str> {
    if !text.contains('\\') {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match rest.clone().next() {
            Some('n') => out.push('\n'),
            Some('\\') => out.push('\\'),
            Some('"') if format == Format::OpenMetrics => out.push('"'),
            _ => {
                out.push('\\');
                continue;
            }
        }
        rest.next();
    }
    Cow::Owned(out)
}

#[derive(Debug)]
struct FamilyMetadata<'a> {
    kind: MetricKind,
    help: Cow<'a, str>,
    unit: &'a str,
}

/// The metadata of all families described so far, by name.
#[derive(Debug, Default)]
pub(super) struct MetadataTable<'a> {
    families: BTreeMap<Cow<'a, str>, FamilyMetadata<'a>>,
}

impl<'a> MetadataTable<'a> {
    /// Records the metadata of a line. If a family is described repeatedly, the last line counts.
    ///
    /// # Errors
    /// [`DecodeError::TooLarge`], if there are too many families.
    pub(super) fn record(
        &mut self,
        comment_line: CommentLine<'a>,
        limits: &DecodeLimits,
    ) -> Result<(), DecodeError> {
        let (CommentLine::Kind(ref name, _)
        | CommentLine::Help(ref name, _)
        | CommentLine::Unit(ref name, _)) = comment_line
        else {
            return Ok(());
        };
        let allowed = limits.metadata_max;
        if self.families.len() >= allowed && !self.families.contains_key(name) {
            let found = self.families.len().saturating_add(1);
            return Err(DecodeError::TooLarge { what: "metric descriptions", found, allowed });
        }
        let unknown_family =
            || FamilyMetadata { kind: MetricKind::Unknown, help: Cow::Borrowed(""), unit: "" };
        match comment_line {
            CommentLine::Kind(name, kind) => {
                self.families.entry(name).or_insert_with(unknown_family).kind = kind
            }
            CommentLine::Help(name, help) => {
                self.families.entry(name).or_insert_with(unknown_family).help = help
            }
            CommentLine::Unit(name, unit) => {
                self.families.entry(name).or_insert_with(unknown_family).unit = unit
            }
            CommentLine::Comment | CommentLine::Eof => {}
        }
        Ok(())
    }

    /// Returns the family of a `_created` sample; `None` unless its type is counter, histogram or
    /// summary.
    pub(super) fn family_of_created<'n>(&self, name: &'n str) -> Option<&'n str> {
        let family = name.strip_suffix(CREATED_SUFFIX)?;
        let kind = self.families.get(family)?.kind;
        matches!(kind, MetricKind::Counter | MetricKind::Histogram | MetricKind::Summary).then_some(family)
    }

    /// Adds the metadata of all families to the batch.
    pub(super) fn describe(&self, batch: &mut BatchBuilder) {
        for (name, family) in &self.families {
            batch.describe(name, family.kind, &family.help, family.unit);
        }
    }
}

/// The start timestamps of the series of a document, by family and by the labels of the metric
/// itself.
#[derive(Debug, Default)]
pub(super) struct CreatedTimes {
    /// Times in milliseconds, by the bytes of a [`CreatedKey`].
    starts: BTreeMap<Vec<u8>, i64>,
    key: CreatedKey,
}

impl CreatedTimes {
    pub(super) fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    pub(super) fn put(
        &mut self,
        family: &str,
        pairs: &LabelPairs<'_>,
        start_ms: i64,
        limits: &DecodeLimits,
    ) -> Result<(), DecodeError> {
        // There is at most one per series, and it takes about 100 bytes.
        let (found, allowed) = (self.starts.len().saturating_add(1), limits.series_max);
        if found > allowed {
            return Err(DecodeError::TooLarge { what: "start timestamps", found, allowed });
        }
        self.starts.insert(self.key.encode(family, pairs, "").to_vec(), start_ms);
        Ok(())
    }

    /// Returns the start timestamp, in milliseconds, of a sample with these labels.
    pub(super) fn get(&mut self, pairs: &LabelPairs<'_>) -> Option<i64> {
        let name = pairs.metric_name();
        let suffix = SUFFIXES.iter().find_map(|suffix| Some((name.strip_suffix(suffix)?, *suffix)));
        if let Some((family, suffix)) = suffix {
            let without = if suffix == "_bucket" { "le" } else { "" };
            if let Some(start) = self.starts.get(self.key.encode(family, pairs, without)) {
                return Some(*start);
            }
        }
        // The quantiles of a summary have no suffix, nor has a counter without OpenMetrics'
        // `_total`.
        self.starts.get(self.key.encode(name, pairs, "quantile")).copied()
    }
}

/// A buffer for a key: the family name, then the labels sorted by name. Each text is followed by
/// its length, so that no two label sets have the same key.
#[derive(Debug, Default)]
struct CreatedKey {
    bytes: Vec<u8>,
    order: Vec<usize>,
}

impl CreatedKey {
    /// Returns the key of a family and labels, leaving out the metric name, the label `without` and
    /// empty labels.
    fn encode(&mut self, family: &str, pairs: &LabelPairs<'_>, without: &str) -> &[u8] {
        let CreatedKey { bytes, order } = self;
        order.clear();
        let own = pairs
            .iter()
            .enumerate()
            .filter(|(_, (name, value))| *name != METRIC_NAME && *name != without && !value.is_empty());
        order.extend(own.map(|(index, _)| index));
        order.sort_unstable_by_key(|index| pairs.pair(*index).0);
        bytes.clear();
        let labels = order.iter().map(|index| pairs.pair(*index));
        for text in [family].into_iter().chain(labels.flat_map(|(name, value)| [name, value])) {
            bytes.extend_from_slice(text.as_bytes());
            bytes.extend_from_slice(&text.len().to_le_bytes());
        }
        bytes
    }
}
