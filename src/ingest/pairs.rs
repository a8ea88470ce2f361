//! The labels of one series while its line is read: slices of the body, and what was written in escapes beside them.

use crate::model::{METRIC_NAME, Refusal};

/// Labels of one series that are taken apart; the store takes far fewer and says so.
pub(super) const LABELS_READ_MAX: usize = 1_024;

/// Up to so many labels each is held against each; more are sorted first.
const COMPARED_MAX: usize = 24;

/// Bytes of a label name in a sentence.
const NAME_SHOWN_MAX: usize = 64;

/// A piece of the body, or a piece of [`Pairs`] that was written in escapes there.
#[derive(Clone, Copy, Debug)]
pub(super) enum Text<'a> {
    Sent(&'a str),
    Undone { start: usize, end: usize },
}

/// Names and values in the sender's order. Used again for the next line, so that no line allocates.
#[derive(Debug, Default)]
pub(super) struct Pairs<'a> {
    pairs: Vec<(Text<'a>, Text<'a>)>,
    undone: String,
}

/// What is wrong with a label set as a whole, and which of its labels says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Problem {
    EmptyName(usize),
    Twice(usize),
    NoMetricName,
}

impl Problem {
    /// The word that the store has for it, too.
    pub(super) const fn code(self) -> &'static str {
        match self {
            Problem::EmptyName(_) => "invalid_label",
            Problem::Twice(_) => "duplicate_label",
            Problem::NoMetricName => "missing_metric_name",
        }
    }
}

impl<'a> Pairs<'a> {
    pub(super) fn clear(&mut self) {
        self.pairs.clear();
        self.undone.clear();
    }

    pub(super) fn len(&self) -> usize {
        self.pairs.len()
    }

    #[inline]
    pub(super) fn push(&mut self, name: Text<'a>, value: Text<'a>) {
        self.pairs.push((name, value));
    }

    /// Keeps a text that the body has in another form.
    pub(super) fn undo(&mut self, write: impl FnOnce(&mut String)) -> Text<'a> {
        let start = self.undone.len();
        write(&mut self.undone);
        Text::Undone { start, end: self.undone.len() }
    }

    #[inline]
    pub(super) fn text<'t>(&'t self, text: Text<'a>) -> &'t str {
        match text {
            Text::Sent(text) => text,
            Text::Undone { start, end } => self.undone.get(start..end).unwrap_or_default(),
        }
    }

    /// Name and value; empty where there are none.
    pub(super) fn pair(&self, place: usize) -> (&str, &str) {
        self.pairs.get(place).map_or(("", ""), |(name, value)| (self.text(*name), self.text(*value)))
    }

    #[inline]
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &str)> + Clone {
        self.pairs.iter().map(|(name, value)| (self.text(*name), self.text(*value)))
    }

    /// A problem in words.
    pub(super) fn told(&self, problem: Problem) -> String {
        match problem {
            Problem::EmptyName(_) => "a label name is empty".to_owned(),
            Problem::NoMetricName => "the series has no metric name".to_owned(),
            Problem::Twice(place) => {
                format!("label name {:?} is there twice", cut(self.pair(place).0, NAME_SHOWN_MAX))
            }
        }
    }

    /// The metric name; empty where there is none.
    pub(super) fn metric_name(&self) -> &str {
        self.iter().find(|(name, _)| *name == METRIC_NAME).map_or("", |(_, value)| value)
    }

    /// The first thing that is wrong: the store would refuse it as well, and could not name the line.
    #[inline]
    pub(super) fn problem(&self) -> Option<Problem> {
        let mut named = false;
        for (place, (name, value)) in self.iter().enumerate() {
            if name.is_empty() {
                return Some(Problem::EmptyName(place));
            }
            named |= name == METRIC_NAME && !value.is_empty();
            if place < COMPARED_MAX && self.iter().take(place).any(|(before, _)| before == name) {
                return Some(Problem::Twice(place));
            }
        }
        if self.len() > COMPARED_MAX
            && let Some(place) = self.twice()
        {
            return Some(Problem::Twice(place));
        }
        (!named).then_some(Problem::NoMetricName)
    }

    #[cold]
    fn twice(&self) -> Option<usize> {
        let mut names: Vec<(&str, usize)> =
            self.iter().enumerate().map(|(place, (name, _))| (name, place)).collect();
        names.sort_unstable();
        let neighbours = names.iter().zip(names.iter().skip(1));
        neighbours.filter(|(one, next)| one.0 == next.0).map(|(_, next)| next.1).min()
    }

    /// `{__name__="up", job="a"}`, cut to 200 bytes.
    pub(super) fn shown(&self) -> String {
        if self.pairs.is_empty() {
            return String::new();
        }
        Refusal::series_text(self.iter())
    }
}

/// The first `bytes` of a text, or a little less where a character would be torn apart.
pub(super) fn cut(text: &str, bytes: usize) -> &str {
    text.get(..text.floor_char_boundary(bytes)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of<'a>(labels: &[(&'a str, &'a str)]) -> Pairs<'a> {
        let mut pairs = Pairs::default();
        for (name, value) in labels {
            pairs.push(Text::Sent(name), Text::Sent(value));
        }
        pairs
    }

    #[test]
    fn a_name_that_stands_twice_is_found_among_few_and_among_many() {
        assert_eq!(of(&[("__name__", "up"), ("a", "1")]).problem(), None);
        assert_eq!(of(&[("a", "1"), ("__name__", "up"), ("a", "")]).problem(), Some(Problem::Twice(2)));
        assert_eq!(of(&[("__name__", "up"), ("__name__", "up")]).problem(), Some(Problem::Twice(1)));
        assert_eq!(of(&[("__name__", "up"), ("", "1")]).problem(), Some(Problem::EmptyName(1)));
        assert_eq!(of(&[("a", "1")]).problem(), Some(Problem::NoMetricName));
        assert_eq!(of(&[("__name__", "")]).problem(), Some(Problem::NoMetricName));
        let names: Vec<String> = (0..60).map(|n| format!("label{n}")).collect();
        for (one, other) in [(3, 4), (3, 50), (23, 24), (24, 25), (40, 59)] {
            let mut labels = vec![("__name__", "up")];
            labels.extend(names.iter().map(|name| (name.as_str(), "x")));
            assert_eq!(of(&labels).problem(), None);
            labels[other] = labels[one];
            assert_eq!(of(&labels).problem(), Some(Problem::Twice(other)), "{one} {other}");
        }
    }

    #[test]
    fn a_series_is_shown_in_200_bytes_at_most() {
        assert_eq!(of(&[("__name__", "up"), ("a", "\"\n")]).shown(), r#"{__name__="up", a="\"\n"}"#);
        assert_eq!(of(&[]).shown(), "");
        let long = "ä".repeat(1_000);
        let shown = of(&[("__name__", &long), (&long, "x")]).shown();
        assert!(shown.len() <= Refusal::SERIES_BYTES_MAX && shown.ends_with("..."), "{shown}");
    }
}
