//! The labels of one series while its line is parsed: slices of the body, or text that was
//! unescaped into a buffer.

use crate::model::{METRIC_NAME, Refusal};

/// Labels of one series that are parsed, at most. The store allows fewer and reports the excess.
pub const LABELS_PARSED_MAX: usize = 1_024;

/// Number of labels up to which each name is compared with all names before it. Longer label sets
/// are sorted to find duplicates.
const PAIRWISE_MAX: usize = 24;

/// Bytes of a label name that an error message quotes.
const NAME_QUOTED_MAX: usize = 64;

/// A slice of the body, or a range of the unescaped text in [`LabelPairs`].
#[derive(Clone, Copy, Debug)]
pub(super) enum TextSlice<'a> {
    Borrowed(&'a str),
    Unescaped { start: usize, end: usize },
}

/// Label names and values in the sender's order. Reused from line to line, so that no line
/// allocates.
#[derive(Debug, Default)]
pub(super) struct LabelPairs<'a> {
    pairs: Vec<(TextSlice<'a>, TextSlice<'a>)>,
    unescaped: String,
}

/// An error of a label set as a whole. The `usize` is the index of the label at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LabelSetError {
    EmptyName(usize),
    Duplicate(usize),
    NoMetricName,
}

impl LabelSetError {
    /// Returns the refusal code, which is the one that the store uses for the same error.
    pub(super) const fn code(self) -> &'static str {
        match self {
            LabelSetError::EmptyName(_) => "invalid_label",
            LabelSetError::Duplicate(_) => "duplicate_label",
            LabelSetError::NoMetricName => "missing_metric_name",
        }
    }
}

impl<'a> LabelPairs<'a> {
    pub(super) fn clear(&mut self) {
        self.pairs.clear();
        self.unescaped.clear();
    }

    pub(super) fn len(&self) -> usize {
        self.pairs.len()
    }

    #[inline]
    pub(super) fn push(&mut self, name: TextSlice<'a>, value: TextSlice<'a>) {
        self.pairs.push((name, value));
    }

    /// Stores text that differs from the bytes of the body; `write` appends it to the given buffer.
    pub(super) fn unescape(&mut self, write: impl FnOnce(&mut String)) -> TextSlice<'a> {
        let start = self.unescaped.len();
        write(&mut self.unescaped);
        TextSlice::Unescaped { start, end: self.unescaped.len() }
    }

    #[inline]
    pub(super) fn text<'t>(&'t self, text: TextSlice<'a>) -> &'t str {
        match text {
            TextSlice::Borrowed(text) => text,
            TextSlice::Unescaped { start, end } => self.unescaped.get(start..end).unwrap_or_default(),
        }
    }

    /// Returns the name and value of a label; both are empty if `index` is out of range.
    pub(super) fn pair(&self, index: usize) -> (&str, &str) {
        self.pairs.get(index).map_or(("", ""), |(name, value)| (self.text(*name), self.text(*value)))
    }

    #[inline]
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &str)> + Clone {
        self.pairs.iter().map(|(name, value)| (self.text(*name), self.text(*value)))
    }

    /// Returns the error message.
    pub(super) fn message(&self, error: LabelSetError) -> String {
        match error {
            LabelSetError::EmptyName(_) => "a label name is empty".to_owned(),
            LabelSetError::NoMetricName => "the series has no metric name".to_owned(),
            LabelSetError::Duplicate(index) => {
                format!("label name {:?} occurs twice", truncated(self.pair(index).0, NAME_QUOTED_MAX))
            }
        }
    }

    /// Returns the metric name; empty if there is none.
    pub(super) fn metric_name(&self) -> &str {
        self.iter().find(|(name, _)| *name == METRIC_NAME).map_or("", |(_, value)| value)
    }

    /// Returns the first error of the label set. The store refuses the same label sets, but cannot
    /// name the line.
    #[inline]
    pub(super) fn find_error(&self) -> Option<LabelSetError> {
        let mut named = false;
        for (index, (name, value)) in self.iter().enumerate() {
            if name.is_empty() {
                return Some(LabelSetError::EmptyName(index));
            }
            named |= name == METRIC_NAME && !value.is_empty();
            if index < PAIRWISE_MAX && self.iter().take(index).any(|(before, _)| before == name) {
                return Some(LabelSetError::Duplicate(index));
            }
        }
        if self.len() > PAIRWISE_MAX
            && let Some(index) = self.find_duplicate()
        {
            return Some(LabelSetError::Duplicate(index));
        }
        (!named).then_some(LabelSetError::NoMetricName)
    }

    /// Returns the lowest index of a label whose name occurs before it.
    #[cold]
    fn find_duplicate(&self) -> Option<usize> {
        let mut names: Vec<(&str, usize)> =
            self.iter().enumerate().map(|(index, (name, _))| (name, index)).collect();
        names.sort_unstable();
        let neighbours = names.iter().zip(names.iter().skip(1));
        neighbours.filter(|(one, next)| one.0 == next.0).map(|(_, next)| next.1).min()
    }

    /// Formats the series as `{__name__="up", job="a"}`, truncated to `Refusal::SERIES_BYTES_MAX`
    /// bytes. Returns an empty string if there are no labels.
    pub(super) fn display_series(&self) -> String {
        if self.pairs.is_empty() {
            return String::new();
        }
        Refusal::series_text(self.iter())
    }
}

/// Returns at most the first `bytes` bytes of `text`, ending at a character boundary.
pub(super) fn truncated(text: &str, bytes: usize) -> &str {
    text.get(..text.floor_char_boundary(bytes)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of<'a>(labels: &[(&'a str, &'a str)]) -> LabelPairs<'a> {
        let mut pairs = LabelPairs::default();
        for (name, value) in labels {
            pairs.push(TextSlice::Borrowed(name), TextSlice::Borrowed(value));
        }
        pairs
    }

    #[test]
    fn a_duplicate_name_is_found_in_short_and_long_label_sets() {
        assert_eq!(of(&[("__name__", "up"), ("a", "1")]).find_error(), None);
        assert_eq!(
            of(&[("a", "1"), ("__name__", "up"), ("a", "")]).find_error(),
            Some(LabelSetError::Duplicate(2))
        );
        assert_eq!(
            of(&[("__name__", "up"), ("__name__", "up")]).find_error(),
            Some(LabelSetError::Duplicate(1))
        );
        assert_eq!(of(&[("__name__", "up"), ("", "1")]).find_error(), Some(LabelSetError::EmptyName(1)));
        assert_eq!(of(&[("a", "1")]).find_error(), Some(LabelSetError::NoMetricName));
        assert_eq!(of(&[("__name__", "")]).find_error(), Some(LabelSetError::NoMetricName));
        let names: Vec<String> = (0..60).map(|n| format!("label{n}")).collect();
        for (one, other) in [(3, 4), (3, 50), (23, 24), (24, 25), (40, 59)] {
            let mut labels = vec![("__name__", "up")];
            labels.extend(names.iter().map(|name| (name.as_str(), "x")));
            assert_eq!(of(&labels).find_error(), None);
            labels[other] = labels[one];
            assert_eq!(of(&labels).find_error(), Some(LabelSetError::Duplicate(other)), "{one} {other}");
        }
    }

    #[test]
    fn a_series_is_displayed_in_at_most_200_bytes() {
        assert_eq!(of(&[("__name__", "up"), ("a", "\"\n")]).display_series(), r#"{__name__="up", a="\"\n"}"#);
        assert_eq!(of(&[]).display_series(), "");
        let long = "ä".repeat(1_000);
        let display_series = of(&[("__name__", &long), (&long, "x")]).display_series();
        assert!(
            display_series.len() <= Refusal::SERIES_BYTES_MAX && display_series.ends_with("..."),
            "{display_series}"
        );
    }
}
