//! The slow path of a series: its bytes taken apart, checked (API.md C7), sorted.

use crate::model::{METRIC_NAME, Refusal, WriteBatch};
use crate::tsdb::options::OrgLimits;

/// A label set that may be registered: sorted by name, unique, no empty values, with a metric name.
pub(in crate::tsdb) type Pairs<'a> = Vec<(&'a str, &'a str)>;

/// Takes a series of a batch apart.
///
/// Names that Prometheus' old rules forbid are fine: label names and metric names are any UTF-8.
///
/// # Errors
/// A refusal for the sender.
pub(in crate::tsdb) fn parse<'a>(
    batch: &'a WriteBatch<'_>,
    raw: &'a [u8],
    limits: &OrgLimits,
) -> Result<Pairs<'a>, Refusal> {
    let mut bytes = Vec::new();
    if let Err(what) = (batch.parse_labels)(raw, &mut bytes) {
        return Err(refusal(&bytes, "invalid_encoding", what.to_owned()));
    }
    let mut pairs: Pairs<'a> = Vec::with_capacity(bytes.len() + batch.forced_labels.len());
    for (name, value) in &bytes {
        let (Ok(name), Ok(value)) = (std::str::from_utf8(name), std::str::from_utf8(value)) else {
            return Err(refusal(&bytes, "invalid_utf8", "a label is not UTF-8".to_owned()));
        };
        if !batch.forced_labels.iter().any(|(forced, _)| **forced == *name) {
            pairs.push((name, value));
        }
    }
    pairs.extend(batch.forced_labels.iter().map(|(name, value)| (&**name, &**value)));
    // Labels come sorted from every sender that follows the rules; the sort then only looks.
    pairs.sort_unstable_by_key(|(name, _)| *name);
    match problem(&pairs, limits) {
        Some((code, reason)) => Err(refusal(&bytes, code, reason)),
        None => {
            pairs.retain(|(_, value)| !value.is_empty());
            Ok(pairs)
        }
    }
}

fn problem(sorted: &[(&str, &str)], limits: &OrgLimits) -> Option<(&'static str, String)> {
    for ((name, _), (next, _)) in sorted.iter().zip(sorted.iter().skip(1)) {
        if name == next {
            return Some(("duplicate_label", format!("label name {:?} is there twice", cut(name))));
        }
    }
    let count = sorted.iter().filter(|(_, value)| !value.is_empty()).count();
    if count > limits.labels_max {
        return Some(("too_many_labels", format!("{count} labels, at most {} are taken", limits.labels_max)));
    }
    for (name, value) in sorted {
        if name.is_empty() {
            return Some(("invalid_label", "a label name is empty".to_owned()));
        }
        if name.len() > limits.name_bytes_max {
            let (bytes, allowed) = (name.len(), limits.name_bytes_max);
            let reason = format!("label name {:?} has {bytes} bytes, at most {allowed} are taken", cut(name));
            return Some(("label_name_too_long", reason));
        }
        if *name == METRIC_NAME && value.len() > limits.name_bytes_max {
            let (bytes, allowed) = (value.len(), limits.name_bytes_max);
            let reason =
                format!("metric name {:?} has {bytes} bytes, at most {allowed} are taken", cut(value));
            return Some(("metric_name_too_long", reason));
        }
        if value.len() > limits.value_bytes_max {
            let (bytes, allowed) = (value.len(), limits.value_bytes_max);
            let reason =
                format!("the value of {:?} has {bytes} bytes, at most {allowed} are taken", cut(name));
            return Some(("label_value_too_long", reason));
        }
    }
    let named = sorted.iter().any(|(name, value)| *name == METRIC_NAME && !value.is_empty());
    (!named).then(|| ("missing_metric_name", "the series has no metric name (__name__)".to_owned()))
}

fn refusal(bytes: &[(&[u8], &[u8])], code: &'static str, reason: String) -> Refusal {
    let shown: Vec<(String, String)> = bytes
        .iter()
        .take(16)
        .map(|(name, value)| {
            let text = |bytes: &[u8]| {
                String::from_utf8_lossy(bytes.get(..Refusal::SERIES_BYTES_MAX).unwrap_or(bytes)).into_owned()
            };
            (text(name), text(value))
        })
        .collect();
    let pairs = shown.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    Refusal { series: Refusal::series_text(pairs), code, reason }
}

fn cut(name: &str) -> String {
    name.chars().take(64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    type Raw<'a> = &'a [(&'a [u8], &'a [u8])];

    // The test's own encoding: u8 length before each text.
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

    fn check(labels: Raw<'_>, forced: &[(&str, &str)], expected: Result<&[(&str, &str)], &str>) {
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
        let found = parse(&batch, &raw, &limits);
        match (&found, expected) {
            (Ok(pairs), Ok(expected)) => assert_eq!(pairs, expected),
            (Err(refusal), Err(code)) => assert_eq!(refusal.code, code, "{refusal:?}"),
            _ => panic!("{labels:?}: {found:?}, expected {expected:?}"),
        }
    }

    /// API.md C7.
    #[test]
    fn label_sets_are_what_the_contract_says() {
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
