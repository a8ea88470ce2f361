//! The elements of a response: series with their values, label sets, texts and exemplars.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, de};

use super::passed::{PassedSeries, TimeCheck, next_point};
use super::scan::Scanner;
use super::{AnswerError, invalid, time_of};
use crate::model::{Exemplar, Label, Labels, Sample, Steps, Timestamp};
use crate::promql::{QueryError, VectorSample};
use crate::tsdb::SeriesExemplars;

/// The most labels of a series, inclusive.
const LABELS_MAX: usize = 1_024;

/// Reads elements, and counts their contents.
#[derive(Debug)]
pub(super) struct ElementReader {
    /// A label that is removed.
    hidden: Option<Box<str>>,
    /// The steps of a range query; `None` allows all times.
    steps: Option<Steps>,
    samples_max: u64,
    samples: u64,
    bytes: u64,
    /// Texts of labels, of which each is in memory once.
    texts: HashSet<Arc<str>>,
    /// The labels of the last series in the usual form, in the order of the response and with
    /// those that are left out. Most labels of a series are those of the series before it.
    previous: Vec<Label>,
}

/// A series with its values.
#[derive(Debug)]
pub(super) struct SeriesPoints {
    labels: Labels,
    values: SeriesValues,
}

#[derive(Debug)]
enum SeriesValues {
    One(f64),
    /// Values as JSON, and their number.
    Many(Box<[u8]>, usize),
}

impl SeriesPoints {
    pub(super) fn matrix(self) -> Option<PassedSeries> {
        match self.values {
            SeriesValues::Many(points, count) => Some(PassedSeries::new(self.labels, (points, count))),
            SeriesValues::One(_) => None,
        }
    }

    pub(super) fn vector(self, at: Timestamp) -> Option<VectorSample> {
        match self.values {
            SeriesValues::One(value) => {
                Some(VectorSample { labels: self.labels, at, value, histogram: None })
            }
            SeriesValues::Many(..) => None,
        }
    }
}

#[derive(Deserialize)]
struct SeriesElement<'a> {
    #[serde(borrow)]
    metric: LabelPairs<'a>,
    value: Option<Point>,
    values: Option<Vec<Point>>,
    histogram: Option<IgnoredAny>,
    histograms: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExemplarsElement<'a> {
    #[serde(borrow)]
    series_labels: LabelPairs<'a>,
    exemplars: Vec<ExemplarElement<'a>>,
}

#[derive(Deserialize)]
struct ExemplarElement<'a> {
    #[serde(borrow)]
    labels: LabelPairs<'a>,
    #[serde(borrow)]
    value: Text<'a>,
    timestamp: f64,
}

/// A text that is borrowed unless it has escapes.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// The labels of a series in the order of the response.
struct LabelPairs<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl<'de: 'a, 'a> Deserialize<'de> for LabelPairs<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<LabelPairs<'a>, D::Error> {
        struct PairsVisitor;

        impl<'de> Visitor<'de> for PairsVisitor {
            type Value = LabelPairs<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("labels")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<LabelPairs<'de>, A::Error> {
                let mut pairs = Vec::new();
                while let Some((Text(name), Text(value))) = map.next_entry()? {
                    if pairs.len() == LABELS_MAX {
                        return Err(A::Error::custom(format!("more than {LABELS_MAX} labels")));
                    }
                    pairs.push((name, value));
                }
                Ok(LabelPairs(pairs))
            }
        }

        from.deserialize_map(PairsVisitor)
    }
}

/// A time and a value: `[1435781430.781,"1"]`.
struct Point(Sample);

impl<'de> Deserialize<'de> for Point {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Point, D::Error> {
        struct PointVisitor;

        impl<'de> Visitor<'de> for PointVisitor {
            type Value = Point;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a time and a value")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut pair: A) -> Result<Point, A::Error> {
                let short = || A::Error::custom("a time and a value are expected");
                let seconds: f64 = pair.next_element()?.ok_or_else(short)?;
                let Text(text) = pair.next_element()?.ok_or_else(short)?;
                if pair.next_element::<IgnoredAny>()?.is_some() {
                    return Err(short());
                }
                let at = time_of(seconds).ok_or_else(|| A::Error::custom("the time is out of range"))?;
                let value = text
                    .parse()
                    .map_err(|_| A::Error::invalid_value(de::Unexpected::Str(&text), &"a number"))?;
                Ok(Point(Sample { at, value }))
            }
        }

        from.deserialize_seq(PointVisitor)
    }
}

impl ElementReader {
    pub(super) fn new(hidden: Option<&str>, steps: Option<Steps>, samples_max: u64) -> ElementReader {
        ElementReader {
            hidden: hidden.map(Box::from),
            steps,
            samples_max,
            samples: 0,
            bytes: 0,
            texts: HashSet::new(),
            previous: Vec::new(),
        }
    }

    /// Returns the number of values so far.
    pub(super) fn samples(&self) -> u64 {
        self.samples
    }

    /// Returns the bytes of the elements so far.
    pub(super) fn held_bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns whether a label is removed.
    pub(super) fn hides_label(&self) -> bool {
        self.hidden.is_some()
    }

    fn hold(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes as u64);
    }

    fn shared(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.texts.get(text) {
            return Arc::clone(known);
        }
        let new: Arc<str> = text.into();
        // The text with its counters, and its places in the set.
        self.hold(text.len() + 64);
        self.texts.insert(Arc::clone(&new));
        new
    }

    fn label_set(&mut self, LabelPairs(mut pairs): LabelPairs<'_>) -> Result<Labels, AnswerError> {
        pairs.retain(|(name, value)| !value.is_empty() && Some(&**name) != self.hidden.as_deref());
        pairs.sort();
        if pairs.windows(2).any(|pair| pair[0].0 == pair[1].0)
            || pairs.iter().any(|(name, _)| name.is_empty())
        {
            return invalid("a label occurs twice or has no name");
        }
        let of = |(name, value): &(Cow<'_, str>, Cow<'_, str>)| Label {
            name: self.shared(name),
            value: self.shared(value),
        };
        let labels: Vec<Label> = pairs.iter().map(of).collect();
        Ok(Labels::from_sorted(labels))
    }

    /// Reads a series with its values.
    pub(super) fn series(&mut self, element: &[u8]) -> Result<SeriesPoints, AnswerError> {
        let usual = self.usual_series(element).filter(|(_, length)| *length == element.len());
        let series = match usual {
            Some((series, _)) => series,
            None => self.any_series(element)?,
        };
        self.admit(series)
    }

    /// Reads the series at the beginning of a text, if it has the usual form. Returns the bytes
    /// that it has, too.
    pub(super) fn first_series(&mut self, text: &[u8]) -> Result<Option<(SeriesPoints, usize)>, AnswerError> {
        let Some((series, length)) = self.usual_series(text) else { return Ok(None) };
        Ok(Some((self.admit(series)?, length)))
    }

    /// Counts the values of a series.
    fn admit(&mut self, series: SeriesPoints) -> Result<SeriesPoints, AnswerError> {
        self.hold(Labels::own_bytes(series.labels.len()) + size_of::<SeriesPoints>());
        let values = match &series.values {
            SeriesValues::Many(points, count) => {
                self.hold(points.len());
                *count
            }
            SeriesValues::One(_) => 1,
        };
        self.samples = self.samples.saturating_add(values as u64);
        if self.samples > self.samples_max {
            return Err(QueryError::TooManySamples { allowed: self.samples_max }.into());
        }
        Ok(series)
    }

    /// Reads a series in any form.
    fn any_series(&mut self, element: &[u8]) -> Result<SeriesPoints, AnswerError> {
        let SeriesElement { metric, value, values, histogram, histograms } =
            serde_json::from_slice(element).or_else(invalid)?;
        if histogram.is_some() || histograms.is_some() {
            let why = "the result has native histograms, which are not passed on from an upstream";
            return Err(AnswerError::Unsupported(why.to_owned()));
        }
        let labels = self.label_set(metric)?;
        let values = match (value, values) {
            (Some(Point(sample)), None) => SeriesValues::One(sample.value),
            (None, Some(all)) => {
                let mut times = TimeCheck::new(self.steps.as_ref());
                if !all.iter().all(|Point(sample)| times.admits(sample.at)) {
                    return invalid("the times of a series do not ascend, or are no steps of the query");
                }
                let samples: Vec<Sample> = all.into_iter().map(|Point(sample)| sample).collect();
                SeriesValues::Many(PassedSeries::print(&samples), samples.len())
            }
            _ => return invalid("a series has neither one value nor many"),
        };
        Ok(SeriesPoints { labels, values })
    }

    /// Reads the series at the beginning of a text in the form that servers write:
    /// `{"metric":{"a":"b"},"values":[[1,"2"]]}` without whitespace and escapes, its labels sorted
    /// by name. Returns the bytes that it has, too. `None` for any other text.
    fn usual_series(&mut self, text: &[u8]) -> Option<(SeriesPoints, usize)> {
        let mut scanner = Scanner::new(text);
        scanner.take(br#"{"metric":{"#)?;
        let labels = self.usual_labels(&mut scanner)?;
        scanner.take(br#","value"#)?;
        let values = match scanner.byte()? {
            b's' => {
                scanner.take(b"\":")?;
                let (points, count) = PassedSeries::scan(&mut scanner, self.steps.as_ref())?;
                SeriesValues::Many(points, count)
            }
            b'"' => {
                scanner.take(b":")?;
                SeriesValues::One(next_point(&mut scanner)?.value)
            }
            _ => return None,
        };
        scanner.take(b"}")?;
        Some((SeriesPoints { labels, values }, text.len() - scanner.rest().len()))
    }

    /// Reads the labels of a series and the brace after them.
    fn usual_labels(&mut self, scanner: &mut Scanner<'_>) -> Option<Labels> {
        let mut labels: Vec<Label> = Vec::with_capacity(self.previous.len());
        let mut count = 0;
        if scanner.take(b"}").is_none() {
            loop {
                let label = self.usual_label(scanner, count)?;
                count += 1;
                if !label.value.is_empty() && Some(&*label.name) != self.hidden.as_deref() {
                    labels.push(label);
                }
                match scanner.byte()? {
                    b',' if count < LABELS_MAX => {}
                    b'}' => break,
                    _ => return None,
                }
            }
        }
        self.previous.truncate(count);
        // The general parser sorts other labels, and refuses those that occur twice.
        let is_usual = labels.is_sorted_by(|a, b| a.name < b.name)
            && labels.first().is_none_or(|first| !first.name.is_empty());
        is_usual.then(|| Labels::from_sorted(labels))
    }

    /// Reads the label at this place.
    fn usual_label(&mut self, scanner: &mut Scanner<'_>, place: usize) -> Option<Label> {
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
        let label = Label { name: known.unwrap_or_else(|| self.shared(name)), value: self.shared(value) };
        match self.previous.get_mut(place) {
            Some(known) => *known = label.clone(),
            None => self.previous.push(label.clone()),
        }
        Some(label)
    }

    /// Reads a label set.
    pub(super) fn labels(&mut self, element: &[u8]) -> Result<Labels, AnswerError> {
        let pairs = serde_json::from_slice(element).or_else(invalid)?;
        let labels = self.label_set(pairs)?;
        self.hold(Labels::own_bytes(labels.len()) + size_of::<Labels>());
        Ok(labels)
    }

    /// Reads the value of a label.
    pub(super) fn value(&mut self, element: &[u8]) -> Result<Arc<str>, AnswerError> {
        let Text(text) = serde_json::from_slice(element).or_else(invalid)?;
        self.hold(text.len() + 48);
        Ok(text.into())
    }

    /// Reads the name of a label; `None` for the removed one.
    pub(super) fn name(&mut self, element: &[u8]) -> Result<Option<Arc<str>>, AnswerError> {
        let name = self.value(element)?;
        Ok(Some(name).filter(|name| Some(&**name) != self.hidden.as_deref()))
    }
}

/// Reads the exemplars of a series.
pub(super) fn exemplars_of(
    reader: &mut ElementReader,
    element: &[u8],
) -> Result<SeriesExemplars, AnswerError> {
    let ExemplarsElement { series_labels, exemplars } = serde_json::from_slice(element).or_else(invalid)?;
    let labels = reader.label_set(series_labels)?;
    reader.hold(Labels::own_bytes(labels.len()) + size_of::<SeriesExemplars>());
    let mut read = Vec::with_capacity(exemplars.len());
    for ExemplarElement { labels, value: Text(value), timestamp } in exemplars {
        let Some(at) = time_of(timestamp) else { return invalid("the time of an exemplar is out of range") };
        let LabelPairs(pairs) = labels;
        let value = value.parse().or_else(invalid)?;
        reader.hold(size_of::<Exemplar>() + pairs.len() * 64);
        read.push(Exemplar { labels: Labels::from_pairs(pairs), value, at });
    }
    Ok(SeriesExemplars { labels, exemplars: read })
}
