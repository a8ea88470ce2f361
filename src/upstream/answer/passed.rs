//! A vector or a matrix whose series stay the text that the server sent.
//!
//! Most results are only passed on. To parse labels and values and to print them again takes longer
//! than to check their text and to copy it.

use std::cmp::Ordering;
use std::fmt::Write as _;
use std::ops::Range;

use serde_json::json;

use super::element::{LABELS_MAX, LabelPair};
use super::parse::SeriesParser;
use super::scan::Scanner;
use super::times::{StepTexts, TimeCheck};
use crate::model::{Label, Labels, Sample, Steps, Timestamp};
use crate::promql::{MatrixSeries, Value, VectorSample};

/// A vector or a matrix as JSON.
#[derive(Clone, Debug, PartialEq)]
pub struct PassedResult {
    is_vector: bool,
    /// The series with commas between them, in the form that [`PassedWriter`] writes.
    text: Vec<u8>,
    /// The end of each series in the text, exclusive.
    ends: Vec<usize>,
    /// The number of labels of all series.
    labels: usize,
}

impl PassedResult {
    /// Returns whether it is a vector.
    pub const fn is_vector(&self) -> bool {
        self.is_vector
    }

    /// Returns the number of series.
    pub fn series_count(&self) -> usize {
        self.ends.len()
    }

    /// Returns the first `limit` series as JSON, with commas between them.
    pub fn text(&self, limit: usize) -> &[u8] {
        let last = limit.min(self.ends.len()).checked_sub(1);
        let end = last.and_then(|last| self.ends.get(last)).copied().unwrap_or_default();
        self.text.get(..end).unwrap_or_default()
    }

    /// Returns the memory in bytes.
    pub fn held_bytes(&self) -> u64 {
        (self.text.capacity() + self.ends.capacity() * size_of::<usize>()) as u64
    }

    /// Returns an estimate of the memory of the parsed series in bytes.
    pub fn parsed_bytes(&self) -> u64 {
        // The shortest value has half as many bytes as a parsed one.
        (2 * self.text.len() + parsed_labels_bytes(self.labels)) as u64
    }

    /// Parses the first `limit` series. Returns `None` only if the text is not that of a
    /// [`PassedWriter`].
    pub fn parsed(&self, limit: usize) -> Option<Value> {
        let mut parser = SeriesParser::default();
        let series = elements(&self.text, &self.ends).take(limit).map(|one| parser.series(one));
        if !self.is_vector {
            let of = |(labels, samples)| MatrixSeries { labels, samples, histograms: Vec::new() };
            return series.map(|one| one.map(of)).collect::<Option<_>>().map(Value::Matrix);
        }
        let of = |(labels, samples): (Labels, Vec<Sample>)| {
            let Sample { at, value } = *samples.first()?;
            Some(VectorSample { labels, at, value, histogram: None })
        };
        series.map(|one| one.and_then(of)).collect::<Option<_>>().map(Value::Vector)
    }
}

/// Returns an estimate of the memory of labels in bytes, without their texts.
const fn parsed_labels_bytes(labels: usize) -> usize {
    const COUNTERS: usize = 16;
    labels * (size_of::<Label>() + COUNTERS)
}

/// Returns the texts of the series.
fn elements<'t>(text: &'t [u8], ends: &'t [usize]) -> impl Iterator<Item = &'t [u8]> {
    let starts = std::iter::once(0).chain(ends.iter().map(|end| end + 1));
    starts.zip(ends).map(|(start, end)| text.get(start..*end).unwrap_or_default())
}

/// A label in the text of a writer: `"name":"value"`.
#[derive(Clone, Copy, Debug)]
struct LabelPlace {
    start: usize,
    name_bytes: usize,
    end: usize,
}

impl LabelPlace {
    const fn whole(self) -> Range<usize> {
        self.start..self.end
    }

    const fn name(self) -> Range<usize> {
        self.start + 1..self.start + 1 + self.name_bytes
    }

    const fn value(self) -> Range<usize> {
        self.name().end + 3..self.end - 1
    }
}

/// The values of a series that is printed.
pub(super) enum PrintedValues {
    /// The value of a vector.
    One(f64),
    /// Values whose times ascend.
    Many(Vec<Sample>),
}

/// Collects the series of a result as text.
#[derive(Debug)]
pub(super) struct PassedWriter {
    /// A label that is left out.
    hidden: Option<Box<str>>,
    /// The steps of a range query; `None` allows all times.
    steps: Option<StepTexts>,
    /// The time of an instant query.
    at: Timestamp,
    text: Vec<u8>,
    ends: Vec<usize>,
    labels: usize,
    /// The number of series with one value.
    ones: usize,
    /// Whether the labels of each series are known to follow those of the series before it.
    is_sorted: bool,
    /// The labels of the last series in the usual form.
    previous: Vec<LabelPlace>,
    /// The labels of the current one.
    current: Vec<LabelPlace>,
}

impl PassedWriter {
    pub(super) fn new(hidden: Option<Box<str>>, steps: Option<Steps>, at: Timestamp) -> PassedWriter {
        PassedWriter {
            hidden,
            steps: steps.map(StepTexts::new),
            at,
            text: Vec::new(),
            ends: Vec::new(),
            labels: 0,
            ones: 0,
            is_sorted: true,
            previous: Vec::new(),
            current: Vec::new(),
        }
    }

    /// Returns the memory in bytes. It includes that of a later sort.
    pub(super) fn held_bytes(&self) -> usize {
        let sort = if self.needs_sort() { self.text.len() + parsed_labels_bytes(self.labels) } else { 0 };
        let steps = self.steps.as_ref().map_or(0, StepTexts::held_bytes);
        self.text.capacity() + self.ends.capacity() * size_of::<usize>() + sort + steps
    }

    /// Returns the number of series.
    pub(super) const fn series_count(&self) -> usize {
        self.ends.len()
    }

    /// Returns whether the series have to be sorted. A vector has the order of the server.
    pub(super) const fn needs_sort(&self) -> bool {
        !self.is_sorted && self.ones == 0
    }

    /// Copies the series at the beginning of `text` if it has the form that servers write:
    /// `{"metric":{"a":"b"},"values":[[1,"2"]]}` without whitespace and escapes, its labels sorted
    /// by name. The time of a vector is that of the query. Returns the bytes of the series, and the
    /// number of its values. `None` for any other text.
    pub(super) fn copy(&mut self, text: &[u8]) -> Option<(usize, usize)> {
        let begun = self.text.len();
        let copied = self.copy_series(text);
        if copied.is_none() {
            self.text.truncate(begun);
        }
        copied
    }

    fn copy_series(&mut self, text: &[u8]) -> Option<(usize, usize)> {
        let mut scanner = Scanner::new(text);
        scanner.take(br#"{"metric":{"#)?;
        self.begin();
        let order = self.copy_labels(&mut scanner)?;
        let after_labels = scanner.rest();
        scanner.take(br#","value"#)?;
        let (is_one, values) = match scanner.byte()? {
            b's' => {
                scanner.take(b"\":")?;
                (false, skip_values(&mut scanner, self.steps.as_mut())?)
            }
            b'"' => {
                scanner.take(b":[")?;
                if scanner.time()? != self.at {
                    return None;
                }
                scanner.take(b",\"")?;
                scanner.skip_value()?;
                scanner.take(b"]")?;
                (true, 1)
            }
            _ => return None,
        };
        scanner.take(b"}")?;
        let rest = scanner.rest();
        self.text.extend_from_slice(after_labels.get(..after_labels.len() - rest.len())?);
        self.is_sorted &= self.ends.is_empty() || order == Ordering::Greater;
        std::mem::swap(&mut self.previous, &mut self.current);
        self.end(self.previous.len(), is_one);
        Some((text.len() - rest.len(), values))
    }

    /// Writes the text before the labels of a series.
    fn begin(&mut self) {
        if !self.ends.is_empty() {
            self.text.push(b',');
        }
        self.text.extend_from_slice(br#"{"metric":{"#);
    }

    /// Records the end of a series.
    fn end(&mut self, labels: usize, is_one: bool) {
        self.labels += labels;
        self.ones += usize::from(is_one);
        self.ends.push(self.text.len());
    }

    /// Copies the labels of a series and the brace after them. Returns how they compare to those of
    /// the series before it.
    fn copy_labels(&mut self, scanner: &mut Scanner<'_>) -> Option<Ordering> {
        self.current.clear();
        let (mut order, mut count) = (Ordering::Equal, 0);
        let mut is_end = scanner.take(b"}").is_some();
        while !is_end {
            order = order.then(self.copy_label(scanner)?);
            count += 1;
            is_end = match scanner.byte()? {
                b',' if count < LABELS_MAX => false,
                b'}' => true,
                _ => return None,
            };
        }
        self.text.push(b'}');
        Some(order.then(self.current.len().cmp(&self.previous.len())))
    }

    /// Copies a label, unless it is hidden or its value is empty. Returns how it compares to the
    /// label at the same place of the series before.
    fn copy_label(&mut self, scanner: &mut Scanner<'_>) -> Option<Ordering> {
        let from = scanner.rest();
        let before = self.previous.get(self.current.len()).copied();
        // Most labels of a series are those of the series before it.
        let known = before.filter(|label| scanner.take_slice(self.text_at(label.whole())).is_some());
        let (name_bytes, order) = match known {
            Some(label) => (label.name_bytes, Ordering::Equal),
            None => {
                let name = scanner.text()?;
                scanner.take(b":")?;
                let value = scanner.text()?;
                if value.is_empty() || Some(name) == self.hidden.as_deref() {
                    return Some(Ordering::Equal);
                }
                (name.len(), self.compare((name, value), before))
            }
        };
        let last = self.current.last().map_or(&[][..], |last| self.text_at(last.name()));
        // The general parser sorts other labels, and refuses those that occur twice.
        if from.get(1..=name_bytes)? <= last {
            return None;
        }
        if !self.current.is_empty() {
            self.text.push(b',');
        }
        let start = self.text.len();
        self.text.extend_from_slice(from.get(..from.len() - scanner.rest().len())?);
        self.current.push(LabelPlace { start, name_bytes, end: self.text.len() });
        Some(order)
    }

    /// Compares a label to the one at the same place of the series before.
    fn compare(&self, (name, value): (&str, &str), before: Option<LabelPlace>) -> Ordering {
        let Some(before) = before else { return Ordering::Greater };
        let names = name.as_bytes().cmp(self.text_at(before.name()));
        names.then_with(|| value.as_bytes().cmp(self.text_at(before.value())))
    }

    fn text_at(&self, range: Range<usize>) -> &[u8] {
        self.text.get(range).unwrap_or_default()
    }

    /// Writes a series, whose labels are sorted by name, with numbers as Prometheus prints them.
    pub(super) fn print(&mut self, labels: &[LabelPair<'_>], values: &PrintedValues) {
        self.begin();
        let mut text = String::new();
        for (place, (name, value)) in labels.iter().enumerate() {
            let comma = if place > 0 { "," } else { "" };
            // Writing to a String cannot fail.
            let _ = write!(text, "{comma}{}:{}", json!(name), json!(value));
        }
        text.push('}');
        match values {
            PrintedValues::One(value) => {
                text.push_str(",\"value\":");
                print_point(Sample { at: self.at, value: *value }, &mut text);
            }
            PrintedValues::Many(samples) => {
                for (place, sample) in samples.iter().enumerate() {
                    text.push_str(if place > 0 { "," } else { ",\"values\":[" });
                    print_point(*sample, &mut text);
                }
                text.push_str(if samples.is_empty() { "" } else { "]" });
            }
        }
        text.push('}');
        self.text.extend_from_slice(text.as_bytes());
        // Labels with escapes cannot be compared as text.
        self.is_sorted = false;
        self.previous.clear();
        self.end(labels.len(), matches!(values, PrintedValues::One(_)));
    }

    /// Returns a vector in the order of the server. `None` if a series has not one value.
    pub(super) fn into_vector(self) -> Option<PassedResult> {
        let PassedWriter { text, ends, labels, ones, .. } = self;
        (ones == ends.len()).then_some(PassedResult { is_vector: true, text, ends, labels })
    }

    /// Returns a matrix, sorted by labels, and whether two series have the same labels. `None` if a
    /// series has one value.
    pub(super) fn into_matrix(self) -> Option<(PassedResult, bool)> {
        let needs_sort = self.needs_sort();
        let PassedWriter { text, ends, labels, ones, .. } = self;
        if ones > 0 {
            return None;
        }
        let mut result = PassedResult { is_vector: false, text, ends, labels };
        if !needs_sort {
            return Some((result, false));
        }
        let mut parser = SeriesParser::default();
        let mut sorted = Vec::with_capacity(result.ends.len());
        for element in elements(&result.text, &result.ends) {
            sorted.push((parser.labels(element)?, element));
        }
        sorted.sort_by(|(a, _), (b, _)| a.cmp(b));
        let has_equal = sorted.windows(2).any(|pair| matches!(pair, [(a, _), (b, _)] if a == b));
        let (mut text, mut ends) = (Vec::with_capacity(result.text.len()), Vec::with_capacity(sorted.len()));
        for (_, element) in sorted {
            if !ends.is_empty() {
                text.push(b',');
            }
            text.extend_from_slice(element);
            ends.push(text.len());
        }
        (result.text, result.ends) = (text, ends);
        Some((result, has_equal))
    }
}

/// Reads values without whitespace and escapes, up to the bracket after the last one. Their times
/// ascend and are `steps`. Returns their number, or `None` for any other text.
fn skip_values(scanner: &mut Scanner<'_>, mut steps: Option<&mut StepTexts>) -> Option<usize> {
    scanner.take(b"[")?;
    let (mut times, mut next_step, mut count) = (TimeCheck::new(None), 0, 0);
    loop {
        scanner.take(b"[")?;
        match &mut steps {
            Some(steps) => next_step = steps.take(scanner, next_step)? + 1,
            None => {
                if !times.admits(scanner.time()?) {
                    return None;
                }
                scanner.take(b",\"")?;
            }
        }
        scanner.skip_value()?;
        scanner.take(b"]")?;
        count += 1;
        match scanner.byte()? {
            b',' => {}
            b']' => return Some(count),
            _ => return None,
        }
    }
}

/// Writes a time and a value: `[1435781430.781,"1"]`.
fn print_point(Sample { at, value }: Sample, text: &mut String) {
    let (sign, ms) = (if at.as_ms() < 0 { "-" } else { "" }, at.as_ms().unsigned_abs());
    // Writing to a String cannot fail.
    let _ = match ms % 1_000 {
        0 => write!(text, "[{sign}{},\"", ms / 1_000),
        fraction => write!(text, "[{sign}{}.{fraction:03},\"", ms / 1_000),
    };
    let _ = match value.abs() {
        _ if value.is_nan() => write!(text, "NaN"),
        f64::INFINITY if value.is_sign_negative() => write!(text, "-Inf"),
        f64::INFINITY => write!(text, "+Inf"),
        0.0 | 1e-6..1e21 => write!(text, "{value}"),
        _ => write!(text, "{}", exponent_form(value)),
    };
    text.push_str("\"]");
}

/// Returns a value in the exponent form of Prometheus, which has a sign and at least two digits.
fn exponent_form(value: f64) -> String {
    let text = format!("{value:e}");
    match text.split_once('e').map(|(digits, exponent)| (digits, exponent.parse::<i32>())) {
        Some((digits, Ok(exponent))) => format!("{digits}e{exponent:+03}"),
        _ => text,
    }
}

#[cfg(test)]
impl PassedResult {
    /// Returns a matrix with printed series, which are sorted by labels.
    pub fn printed(series: &[(Labels, Vec<Sample>)]) -> PassedResult {
        let mut writer = PassedWriter::new(None, None, Timestamp::MIN);
        for (labels, samples) in series {
            let pairs: Vec<_> = labels.iter().map(|l| (l.name.into(), l.value.into())).collect();
            writer.print(&pairs, &PrintedValues::Many(samples.clone()));
        }
        writer.into_matrix().expect("many values").0
    }
}

#[cfg(test)]
mod tests;
