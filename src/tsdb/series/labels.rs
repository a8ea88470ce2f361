//! Parsing of label sets that are not known yet: decoded, checked (docs/specification.md C7), and
//! sorted.

use std::ops::Range;

use crate::model::{METRIC_NAME, Refusal, WriteBatch};
use crate::tsdb::options::OrgLimits;

/// The pairs of a label set, sorted by name.
pub(in crate::tsdb) type Pairs<'a> = Vec<(&'a str, &'a str)>;

/// The most bytes of a label set under any limits: 64 labels at the default limits are 270 kB.
const BYTES_MAX: usize = 300 << 10;

/// A parser of the label sets of a batch. It allocates nothing once its buffers have grown.
#[derive(Default)]
pub(in crate::tsdb) struct Parser<'a> {
    bytes: Vec<(&'a [u8], &'a [u8])>,
    pairs: Pairs<'a>,
}

impl<'a> Parser<'a> {
    /// Removes the parsed label sets.
    pub(in crate::tsdb) fn clear(&mut self) {
        self.pairs.clear();
    }

    /// Returns the pairs of a label set that [`Parser::parse`] returned.
    pub(in crate::tsdb) fn pairs(&self, label_set: &Range<usize>) -> &[(&'a str, &'a str)] {
        self.pairs.get(label_set.clone()).unwrap_or_default()
    }

    /// Parses a series of a batch into a label set that may be registered: sorted by name, names
    /// unique, without empty values, with a metric name.
    ///
    /// Names that Prometheus' former rules forbid are accepted: label names and metric names are
    /// any UTF-8.
    ///
    /// # Errors
    /// [`Invalid`], which is reported to the sender.
    pub(in crate::tsdb) fn parse(
        &mut self,
        batch: &'a WriteBatch<'_>,
        raw: &'a [u8],
        limits: &OrgLimits,
    ) -> Result<Range<usize>, Invalid<'a>> {
        let first = self.pairs.len();
        let parsed = self.parse_after(first, batch, raw, limits);
        if parsed.is_err() {
            self.pairs.truncate(first);
        }
        parsed.map(|()| first..self.pairs.len())
    }

    /// Returns the refusal of the label set that was parsed last.
    pub(in crate::tsdb) fn refusal(&self, invalid: &Invalid<'_>) -> Refusal {
        let text = |bytes: &[u8]| {
            String::from_utf8_lossy(bytes.get(..Refusal::SERIES_BYTES_MAX).unwrap_or(bytes)).into_owned()
        };
        let shown: Vec<(String, String)> =
            self.bytes.iter().take(16).map(|(name, value)| (text(name), text(value))).collect();
        let series = Refusal::series_text(shown.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        Refusal { series, code: invalid.code(), reason: invalid.reason() }
    }

    fn parse_after(
        &mut self,
        first: usize,
        batch: &'a WriteBatch<'_>,
        raw: &'a [u8],
        limits: &OrgLimits,
    ) -> Result<(), Invalid<'a>> {
        self.bytes.clear();
        (batch.parse_labels)(raw, &mut self.bytes).map_err(Invalid::Encoding)?;
        for (name, value) in &self.bytes {
            let (Ok(name), Ok(value)) = (std::str::from_utf8(name), std::str::from_utf8(value)) else {
                return Err(Invalid::Utf8);
            };
            if !batch.forced_labels.iter().any(|(forced, _)| **forced == *name) {
                self.pairs.push((name, value));
            }
        }
        self.pairs.extend(batch.forced_labels.iter().map(|(name, value)| (&**name, &**value)));
        let sorted = self.pairs.get_mut(first..).unwrap_or_default();
        // Senders that follow the rules send sorted labels, so the sort mostly only checks the
        // order.
        sorted.sort_unstable_by_key(|(name, _)| *name);
        let empty = check(sorted, limits)?;
        if empty {
            let mut at = 0;
            self.pairs.retain(|(_, value)| {
                at += 1;
                at <= first || !value.is_empty()
            });
        }
        Ok(())
    }
}

/// Checks sorted pairs, and returns whether any value is empty.
fn check<'a>(sorted: &[(&'a str, &'a str)], limits: &OrgLimits) -> Result<bool, Invalid<'a>> {
    for ((name, _), (next, _)) in sorted.iter().zip(sorted.iter().skip(1)) {
        if name == next {
            return Err(Invalid::Duplicate { name });
        }
    }
    let count = sorted.iter().filter(|(_, value)| !value.is_empty()).count();
    if count > limits.labels_max {
        return Err(Invalid::TooMany { count, allowed: limits.labels_max });
    }
    let (mut is_named, mut set_bytes) = (false, 0);
    for (name, value) in sorted {
        let is_metric = *name == METRIC_NAME;
        if name.is_empty() {
            return Err(Invalid::EmptyName);
        }
        if name.len() > limits.name_bytes_max {
            return Err(Invalid::LongName { name, allowed: limits.name_bytes_max });
        }
        if is_metric && value.len() > limits.name_bytes_max {
            return Err(Invalid::LongMetricName { value, allowed: limits.name_bytes_max });
        }
        if value.len() > limits.value_bytes_max {
            return Err(Invalid::LongValue { name, bytes: value.len(), allowed: limits.value_bytes_max });
        }
        is_named |= is_metric && !value.is_empty();
        set_bytes += if value.is_empty() { 0 } else { name.len() + value.len() };
    }
    if !is_named {
        return Err(Invalid::NoMetricName);
    }
    if set_bytes > BYTES_MAX {
        return Err(Invalid::TooLong { bytes: set_bytes });
    }
    Ok(count < sorted.len())
}

/// The error of an invalid label set. Its text is created on demand, because most refusals are only
/// counted.
#[derive(Clone, Copy, Debug)]
pub(in crate::tsdb) enum Invalid<'a> {
    Encoding(&'static str),
    Utf8,
    Duplicate { name: &'a str },
    TooMany { count: usize, allowed: usize },
    EmptyName,
    LongName { name: &'a str, allowed: usize },
    LongMetricName { value: &'a str, allowed: usize },
    LongValue { name: &'a str, bytes: usize, allowed: usize },
    NoMetricName,
    TooLong { bytes: usize },
}

impl Invalid<'_> {
    /// Returns the code of the refusal.
    pub(in crate::tsdb) const fn code(&self) -> &'static str {
        match self {
            Invalid::Encoding(_) => "invalid_encoding",
            Invalid::Utf8 => "invalid_utf8",
            Invalid::Duplicate { .. } => "duplicate_label",
            Invalid::TooMany { .. } => "too_many_labels",
            Invalid::EmptyName => "invalid_label",
            Invalid::LongName { .. } => "label_name_too_long",
            Invalid::LongMetricName { .. } => "metric_name_too_long",
            Invalid::LongValue { .. } => "label_value_too_long",
            Invalid::NoMetricName => "missing_metric_name",
            Invalid::TooLong { .. } => "labels_too_long",
        }
    }

    /// Returns the reason for the sender.
    fn reason(&self) -> String {
        match self {
            Invalid::Encoding(what) => (*what).to_owned(),
            Invalid::Utf8 => "a label is not UTF-8".to_owned(),
            Invalid::Duplicate { name } => format!("label name {:?} occurs twice", cut(name)),
            Invalid::TooMany { count, allowed } => format!("{count} labels, at most {allowed} are allowed"),
            Invalid::EmptyName => "a label name is empty".to_owned(),
            Invalid::LongName { name, allowed } => {
                let bytes = name.len();
                format!("label name {:?} has {bytes} bytes, at most {allowed} are allowed", cut(name))
            }
            Invalid::LongMetricName { value, allowed } => {
                let bytes = value.len();
                format!("metric name {:?} has {bytes} bytes, at most {allowed} are allowed", cut(value))
            }
            Invalid::LongValue { name, bytes, allowed } => {
                format!("the value of {:?} has {bytes} bytes, at most {allowed} are allowed", cut(name))
            }
            Invalid::NoMetricName => "the series has no metric name (__name__)".to_owned(),
            Invalid::TooLong { bytes } => {
                format!("the labels have {bytes} bytes, at most {BYTES_MAX} are allowed")
            }
        }
    }
}

fn cut(name: &str) -> String {
    name.chars().take(64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    type RawPairs<'a> = &'a [(&'a [u8], &'a [u8])];

    // An encoding for tests: a u8 length before each text.
    fn parse_test<'a>(raw: &'a [u8], pairs: &mut Vec<(&'a [u8], &'a [u8])>) -> Result<(), &'static str> {
        let mut rest = raw;
        let mut text = || {
            let (length, after) = rest.split_first()?;
            let (text, after) = after.split_at_checked(usize::from(*length))?;
            rest = after;
            Some(text)
        };
        while let Some(name) = text() {
            pairs.push((name, text().ok_or("cut short")?));
        }
        Ok(())
    }

    fn check(labels: RawPairs<'_>, forced: &[(&str, &str)], expected: Result<&[(&str, &str)], &str>) {
        let limits =
            OrgLimits { labels_max: 3, name_bytes_max: 8, value_bytes_max: 10, ..OrgLimits::default() };
        let mut raw = Vec::new();
        for text in labels.iter().flat_map(|(name, value)| [name, value]) {
            raw.push(u8::try_from(text.len()).expect("short"));
            raw.extend_from_slice(text);
        }
        let forced_labels = forced.iter().map(|(n, v)| ((*n).into(), (*v).into())).collect();
        let mut batch = WriteBatch::new(9, parse_test, |_| true, 0);
        batch.forced_labels = forced_labels;
        let mut parser = Parser::default();
        for round in 0..2 {
            let found = parser.parse(&batch, &raw, &limits);
            match (&found, expected) {
                (Ok(label_set), Ok(expected)) => assert_eq!(parser.pairs(label_set), expected),
                (Err(invalid), Err(code)) => {
                    let refusal = parser.refusal(invalid);
                    assert_eq!((invalid.code(), refusal.code), (code, code), "{refusal:?}");
                }
                _ => panic!("{labels:?}: {found:?}, expected {expected:?}, round {round}"),
            }
        }
    }

    /// Checks the rules of docs/specification.md C7.
    #[test]
    fn label_sets_follow_the_specification() {
        let up = (&b"__name__"[..], &b"up"[..]);
        check(&[(b"job", b"a"), up], &[], Ok(&[("__name__", "up"), ("job", "a")]));
        check(&[up, (b"job", b"")], &[], Ok(&[("__name__", "up")]));
        check(&[up, ("ä.b".as_bytes(), b"x")], &[], Ok(&[("__name__", "up"), ("ä.b", "x")]));
        check(&[up, (b"job", b"a")], &[("job", "b")], Ok(&[("__name__", "up"), ("job", "b")]));
        check(&[up], &[("__name__", "x")], Ok(&[("__name__", "x")]));
        check(&[up, (b"a", b"1"), (b"a", b"2")], &[], Err("duplicate_label"));
        check(&[up, (b"a", b"1"), (b"a", b"")], &[], Err("duplicate_label"));
        check(&[(b"job", b"a")], &[], Err("missing_metric_name"));
        check(&[(b"__name__", b"")], &[], Err("missing_metric_name"));
        check(&[], &[], Err("missing_metric_name"));
        check(&[up, (b"", b"x")], &[], Err("invalid_label"));
        check(&[up, (b"a", b"\xff")], &[], Err("invalid_utf8"));
        check(&[up, (b"a", b"1"), (b"b", b"1"), (b"c", b"1")], &[], Err("too_many_labels"));
        check(
            &[up, (b"a", b"1"), (b"b", b"1"), (b"c", b"")],
            &[],
            Ok(&[("__name__", "up"), ("a", "1"), ("b", "1")]),
        );
        check(&[up, (b"abcdefghi", b"1")], &[], Err("label_name_too_long"));
        check(&[(b"__name__", b"abcdefgh")], &[], Ok(&[("__name__", "abcdefgh")]));
        check(&[(b"__name__", b"abcdefghi")], &[], Err("metric_name_too_long"));
        check(&[up, (b"a", b"12345678901")], &[], Err("label_value_too_long"));
    }
}
