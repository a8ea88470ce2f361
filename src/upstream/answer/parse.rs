//! The series of a passed result as values.

use std::collections::HashSet;
use std::sync::Arc;

use serde::Deserialize;

use super::element::{LabelPair, LabelPairs, Point, SeriesElement};
use super::scan::Scanner;
use crate::model::{Label, Labels, Sample, Timestamp};

/// Texts of labels, of which each is in memory once.
#[derive(Debug, Default)]
pub(super) struct LabelTexts {
    all: HashSet<Arc<str>>,
    bytes: u64,
}

impl LabelTexts {
    /// Returns the memory in bytes.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    fn shared(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.all.get(text) {
            return Arc::clone(known);
        }
        let new: Arc<str> = text.into();
        // The text with its counters, and its places in the set.
        self.bytes = self.bytes.saturating_add(text.len() as u64 + 64);
        self.all.insert(Arc::clone(&new));
        new
    }

    /// Returns a label set of pairs that are sorted by name.
    pub(super) fn labels(&mut self, pairs: &[LabelPair<'_>]) -> Labels {
        let of = |(name, value): &LabelPair<'_>| Label { name: self.shared(name), value: self.shared(value) };
        let labels: Vec<Label> = pairs.iter().map(of).collect();
        Labels::from_sorted(labels)
    }
}

/// The labels of a series without its values.
#[derive(Deserialize)]
struct SeriesLabels<'a> {
    #[serde(borrow)]
    metric: LabelPairs<'a>,
}

/// Parses series in the form of a [`PassedResult`](super::PassedResult). All methods return `None`
/// for other texts.
#[derive(Debug, Default)]
pub(super) struct SeriesParser {
    texts: LabelTexts,
    /// The labels of the last series without escapes. Most labels of a series are those of the
    /// series before it.
    previous: Vec<Label>,
}

impl SeriesParser {
    /// Returns the labels and the values of a series.
    pub(super) fn series(&mut self, element: &[u8]) -> Option<(Labels, Vec<Sample>)> {
        self.plain_series(element).or_else(|| {
            let SeriesElement { metric: LabelPairs(pairs), value, values, .. } =
                serde_json::from_slice(element).ok()?;
            let all = value.into_iter().chain(values.into_iter().flatten());
            Some((self.texts.labels(&pairs), all.map(|Point(sample)| sample).collect()))
        })
    }

    /// Returns the labels of a series.
    pub(super) fn labels(&mut self, element: &[u8]) -> Option<Labels> {
        self.plain_labels(&mut Scanner::new(element)).or_else(|| {
            let SeriesLabels { metric: LabelPairs(pairs) } = serde_json::from_slice(element).ok()?;
            Some(self.texts.labels(&pairs))
        })
    }

    /// Like [`SeriesParser::series`], for a series that has values and no escapes.
    fn plain_series(&mut self, element: &[u8]) -> Option<(Labels, Vec<Sample>)> {
        let mut scanner = Scanner::new(element);
        let labels = self.plain_labels(&mut scanner)?;
        if scanner.take(br#","value":"#).is_some() {
            return Some((labels, vec![next_point(&mut scanner)?]));
        }
        scanner.take(br#","values":"#)?;
        // A point has 16 to 40 bytes.
        let mut samples = Vec::with_capacity(scanner.rest().len() / 24);
        while matches!(scanner.byte()?, b'[' | b',') {
            samples.push(next_point(&mut scanner)?);
        }
        Some((labels, samples))
    }

    /// Reads the labels of a series and the brace after them.
    fn plain_labels(&mut self, scanner: &mut Scanner<'_>) -> Option<Labels> {
        scanner.take(br#"{"metric":{"#)?;
        let mut labels: Vec<Label> = Vec::with_capacity(self.previous.len());
        let mut is_end = scanner.take(b"}").is_some();
        while !is_end {
            labels.push(self.plain_label(scanner, labels.len())?);
            is_end = match scanner.byte()? {
                b',' => false,
                b'}' => true,
                _ => return None,
            };
        }
        self.previous.truncate(labels.len());
        Some(Labels::from_sorted(labels))
    }

    /// Reads the label at this place.
    fn plain_label(&mut self, scanner: &mut Scanner<'_>, place: usize) -> Option<Label> {
        if let Some(known) = self.previous.get(place)
            && scanner.take_label(&known.name, &known.value).is_some()
        {
            return Some(known.clone());
        }
        let name = scanner.text()?;
        scanner.take(b":")?;
        let value = scanner.text()?;
        let known = self.previous.get(place).filter(|known| *known.name == *name);
        let known = known.map(|known| Arc::clone(&known.name));
        let name = known.unwrap_or_else(|| self.texts.shared(name));
        let label = Label { name, value: self.texts.shared(value) };
        match self.previous.get_mut(place) {
            Some(known) => *known = label.clone(),
            None => self.previous.push(label.clone()),
        }
        Some(label)
    }
}

/// Reads a time and a value: `[1435781430.781,"1"]`.
#[inline]
fn next_point(scanner: &mut Scanner<'_>) -> Option<Sample> {
    scanner.take(b"[")?;
    let is_negative = scanner.take(b"-").is_some();
    let at = scanner.time()?;
    scanner.take(b",\"")?;
    let value = scanner.value()?;
    scanner.take(b"]")?;
    let at = if is_negative { Timestamp::from_ms(-at.as_ms()) } else { at };
    Some(Sample { at, value })
}
