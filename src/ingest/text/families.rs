//! What a document says about its metrics, and since when their counts run.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::Format;
use super::line::{Bad, Cursor};
use crate::ingest::pairs::{LabelPairs, TextSlice};
use crate::ingest::{DecodeError, DecodeLimits};
use crate::model::{BatchBuilder, METRIC_NAME, MetricKind};

/// Ends of names that belong to a family rather than being a metric's own.
const ENDS: [&str; 6] = ["_total", "_bucket", "_count", "_sum", "_gcount", "_gsum"];

/// The end of an OpenMetrics sample that says since when its neighbours count.
pub(super) const CREATED: &str = "_created";

/// A line that begins with `#`.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Remark<'a> {
    /// Nothing for us.
    Comment,
    /// `# EOF`.
    End,
    Kind(Cow<'a, str>, MetricKind),
    Help(Cow<'a, str>, Cow<'a, str>),
    Unit(Cow<'a, str>, &'a str),
}

/// Reads a line that begins with `#`. `scratch` is for names in escapes.
pub(super) fn remark<'a>(
    line: &'a str,
    format: Format,
    scratch: &mut LabelPairs<'a>,
) -> Result<Remark<'a>, Bad<'a>> {
    let mut cursor = Cursor::new(line, 0);
    cursor.skip_blanks();
    cursor.takes(b'#');
    let after = cursor.at();
    cursor.skip_blanks();
    // `#HELP` is a comment like any other.
    if cursor.at() == after {
        return Ok(Remark::Comment);
    }
    let start = cursor.at();
    let word = cursor.word();
    if word == "EOF" && cursor.rest().trim_ascii().is_empty() {
        return Ok(Remark::End);
    }
    if !matches!(word, "TYPE" | "HELP" | "UNIT") {
        return Ok(Remark::Comment);
    }
    cursor.skip_blanks();
    scratch.clear();
    let name = if cursor.rest().starts_with('"') {
        match cursor.quoted(scratch)? {
            TextSlice::Borrowed(name) => Cow::Borrowed(name),
            undone @ TextSlice::Unescaped { .. } => Cow::Owned(scratch.text(undone).to_owned()),
        }
    } else {
        Cow::Borrowed(cursor.word())
    };
    if name.is_empty() {
        return Err(Bad::new(start, "invalid_line", "a metric name is missing behind this word"));
    }
    let is_apart = cursor.takes(b' ') || cursor.takes(b'\t');
    if !is_apart && !cursor.rest().is_empty() {
        return Err(Bad::new(cursor.at(), "invalid_line", "a blank is missing behind the metric name"));
    }
    cursor.skip_blanks();
    let rest = cursor.rest();
    Ok(match word {
        "HELP" => Remark::Help(name, unescaped(rest, format)),
        "UNIT" => Remark::Unit(name, rest.trim_ascii_end()),
        _ => {
            let unknown = Bad::new(
                cursor.at(),
                "invalid_line",
                "a type is counter, gauge, histogram, gaugehistogram, summary, info, stateset or unknown",
            );
            Remark::Kind(name, kind(rest.trim_ascii_end()).ok_or(unknown)?)
        }
    })
}

fn kind(word: &str) -> Option<MetricKind> {
    if word == "untyped" {
        return Some(MetricKind::Unknown);
    }
    (0..=u8::MAX).map_while(MetricKind::from_number).find(|kind| kind.as_str() == word)
}

/// A help text: `\\` and `\n` are escapes, in OpenMetrics `\"` as well; other backslashes stand for themselves.
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
struct Family<'a> {
    kind: MetricKind,
    help: Cow<'a, str>,
    unit: &'a str,
}

/// Every family that was described so far.
#[derive(Debug, Default)]
pub(super) struct Families<'a> {
    by_name: BTreeMap<Cow<'a, str>, Family<'a>>,
}

impl<'a> Families<'a> {
    /// Takes over what a line says; the last word counts.
    pub(super) fn hear(&mut self, remark: Remark<'a>, limits: &DecodeLimits) -> Result<(), DecodeError> {
        let (Remark::Kind(ref name, _) | Remark::Help(ref name, _) | Remark::Unit(ref name, _)) = remark
        else {
            return Ok(());
        };
        let allowed = limits.metadata_max;
        if self.by_name.len() >= allowed && !self.by_name.contains_key(name) {
            let found = self.by_name.len().saturating_add(1);
            return Err(DecodeError::TooLarge { what: "metric descriptions", found, allowed });
        }
        let unheard = || Family { kind: MetricKind::Unknown, help: Cow::Borrowed(""), unit: "" };
        match remark {
            Remark::Kind(name, kind) => self.by_name.entry(name).or_insert_with(unheard).kind = kind,
            Remark::Help(name, help) => self.by_name.entry(name).or_insert_with(unheard).help = help,
            Remark::Unit(name, unit) => self.by_name.entry(name).or_insert_with(unheard).unit = unit,
            Remark::Comment | Remark::End => {}
        }
        Ok(())
    }

    /// The family of a `_created` sample, where its type is one that has them.
    pub(super) fn of_created<'n>(&self, name: &'n str) -> Option<&'n str> {
        let family = name.strip_suffix(CREATED)?;
        let kind = self.by_name.get(family)?.kind;
        matches!(kind, MetricKind::Counter | MetricKind::Histogram | MetricKind::Summary).then_some(family)
    }

    pub(super) fn describe(&self, batch: &mut BatchBuilder) {
        for (name, family) in &self.by_name {
            batch.describe(name, family.kind, &family.help, family.unit);
        }
    }
}

/// Since when the series of a document count, by their family and those labels that are the metric's own.
#[derive(Debug, Default)]
pub(super) struct Created {
    /// By [`Key`]; milliseconds.
    starts: BTreeMap<Vec<u8>, i64>,
    key: Key,
}

impl Created {
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
        // There is one for each series at most, and one costs some 100 bytes here.
        let (found, allowed) = (self.starts.len().saturating_add(1), limits.series_max);
        if found > allowed {
            return Err(DecodeError::TooLarge { what: "start timestamps", found, allowed });
        }
        self.starts.insert(self.key.of(family, pairs, "").to_vec(), start_ms);
        Ok(())
    }

    /// The start of a sample of this name.
    pub(super) fn get(&mut self, pairs: &LabelPairs<'_>) -> Option<i64> {
        let name = pairs.metric_name();
        let end = ENDS.iter().find_map(|end| Some((name.strip_suffix(end)?, *end)));
        if let Some((family, end)) = end {
            let without = if end == "_bucket" { "le" } else { "" };
            if let Some(start) = self.starts.get(self.key.of(family, pairs, without)) {
                return Some(*start);
            }
        }
        // A summary's quantiles have no end, nor has a counter whose name is not OpenMetrics'.
        self.starts.get(self.key.of(name, pairs, "quantile")).copied()
    }
}

/// The family's name, then its labels in order of name; each text before its length, so that no two sets have one key.
#[derive(Debug, Default)]
struct Key {
    bytes: Vec<u8>,
    order: Vec<usize>,
}

impl Key {
    fn of(&mut self, family: &str, pairs: &LabelPairs<'_>, without: &str) -> &[u8] {
        let Key { bytes, order } = self;
        order.clear();
        let own = pairs
            .iter()
            .enumerate()
            .filter(|(_, (name, value))| *name != METRIC_NAME && *name != without && !value.is_empty());
        order.extend(own.map(|(place, _)| place));
        order.sort_unstable_by_key(|place| pairs.pair(*place).0);
        bytes.clear();
        let labels = order.iter().map(|place| pairs.pair(*place));
        for text in [family].into_iter().chain(labels.flat_map(|(name, value)| [name, value])) {
            bytes.extend_from_slice(text.as_bytes());
            bytes.extend_from_slice(&text.len().to_le_bytes());
        }
        bytes
    }
}
