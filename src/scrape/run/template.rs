//! Templates of bodies: the text between the values of a target's last body.
//!
//! Targets send the same series in the same order, with the same comments, scrape after scrape. So
//! a body is a sequence of constant texts, each followed by a value and perhaps a time:
//!
//! ```text
//! # HELP queue Jobs.⏎# TYPE queue gauge⏎queue{kind="a"} | 3 | ⏎queue{kind="b"} | 5 | ⏎
//! ```
//!
//! A template has the length and the hash of each constant text, and the key of each series.
//! If all texts of a body are those of the template, its series, fates, types and start timestamps
//! are, too, and only the values are parsed. Any other body is decoded.

use super::known::{KnownFate, KnownOne};
use super::response::{NO_TIME, ScrapeBody, ScrapeFormat};
use super::samples::{ScrapeCounts, series_of};
use crate::ingest::text::{self, Format};
use crate::model::{ByteBudget, ByteCharge, Sample, Timestamp, WriteBatch, WriteStart};
use crate::tsdb::LabelsKey;

/// The most bytes of all templates, inclusive, unless it is configured otherwise: 256 MiB, which
/// are about nine million series. An organisation has at most as much as stays free. The bodies of
/// further targets are decoded.
pub(super) const TEMPLATES_BYTES_MAX: u64 = 256 << 20;

/// The most bodies without a template between two with one, inclusive.
const BACKOFF_BODIES_MAX: u32 = 63;

/// The bound on the templates of a target whose texts change with each body. After a template that
/// no scrape used, more and more bodies are decoded before the next one.
#[derive(Debug, Default)]
pub(super) struct TemplateBackoff {
    remaining: u32,
    next: u32,
}

impl TemplateBackoff {
    /// Returns whether the next body gets a template. A new value allows it.
    pub(super) fn allows(&mut self) -> bool {
        if self.remaining > 0 {
            self.remaining -= 1;
            return false;
        }
        self.remaining = self.next;
        self.next = (self.next * 2 + 1).min(BACKOFF_BODIES_MAX);
        true
    }
}

/// A constant text of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ConstantText {
    length: u32,
    hash: u64,
}

/// A constant text, and what follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TemplateSample {
    hash: u64,
    length: u32,
    /// Whether the sample has a time of its own.
    has_time: bool,
    /// Whether relabelling keeps it.
    is_kept: bool,
}

/// The template of a target's bodies.
#[derive(Debug)]
pub(super) struct BodyTemplate {
    format: Format,
    samples: Vec<TemplateSample>,
    /// The text after the last value.
    end: ConstantText,
    /// The start timestamps by kept sample.
    starts: Vec<(u32, Timestamp)>,
    kept: usize,
    /// The store's keys of the kept series, and of the series about the scrape; empty until they
    /// are set.
    pub(super) keys: Vec<LabelsKey>,
    _charge: ByteCharge,
}

/// A scrape whose body has been decoded.
#[derive(Clone, Copy)]
pub(super) struct DecodedScrape<'a> {
    pub(super) body: ScrapeBody<'a>,
    pub(super) sent: &'a WriteBatch<'a>,
    /// The series of `sent`, in order.
    pub(super) known: &'a [KnownOne],
}

impl BodyTemplate {
    /// Makes the template of a body. `None` if the body has no template, because a series has
    /// several samples or there are histograms or exemplars, or if the budget is used up. `hash`
    /// returns the hash of a text.
    pub(super) fn of(
        scrape: DecodedScrape<'_>,
        budget: &ByteBudget,
        hash: impl Fn(&[u8]) -> u64,
    ) -> Option<BodyTemplate> {
        let DecodedScrape { body, sent, known } = scrape;
        let ScrapeFormat::Text(format) = body.format else { return None };
        let is_simple = sent.histograms.is_empty()
            && sent.exemplars.is_empty()
            && sent.series.len() == sent.samples.len()
            && known.iter().all(|one| !one.is_repeated);
        if !is_simple || sent.series.is_empty() || sent.series.len() != known.len() {
            return None;
        }
        let size = size_of::<TemplateSample>() + size_of::<LabelsKey>();
        let starts_size = sent.starts.len().saturating_mul(size_of::<(u32, Timestamp)>());
        let bytes = sent.series.len().saturating_mul(size).saturating_add(starts_size);
        let mut charge = budget.charge();
        if !charge.grow(bytes as u64) {
            return None;
        }
        let constant =
            |text: &[u8]| Some(ConstantText { length: text.len().try_into().ok()?, hash: hash(text) });
        let ends = text::series_ends(body.bytes, format)?;
        if ends.len() != known.len() {
            return None;
        }
        let mut samples = Vec::with_capacity(known.len());
        // The place of each series among those that are kept.
        let mut places = Vec::with_capacity(known.len());
        let (mut at, mut kept) = (0, 0);
        for ((end, one), series) in ends.into_iter().zip(known).zip(series_of(sent)) {
            let text = constant(body.bytes.get(at..end)?)?;
            let mut rest = body.bytes.get(end..)?;
            let (value, time) = text::take_value(&mut rest, format)?;
            let time = time.unwrap_or(NO_TIME);
            // The decoder decides which lines are samples.
            let decoded = series.samples.first()?;
            if series.samples.len() != 1 || decoded.at != time || decoded.value.to_bits() != value.to_bits() {
                return None;
            }
            at = body.bytes.len() - rest.len();
            let is_kept = one.fate != KnownFate::Dropped;
            places.push(is_kept.then_some(kept));
            kept += u32::from(is_kept);
            let ConstantText { length, hash } = text;
            samples.push(TemplateSample { hash, length, has_time: time != NO_TIME, is_kept });
        }
        let place = |series: usize| places.get(series).copied().flatten();
        let starts = sent.starts.iter().filter_map(|one| Some((place(one.series)?, one.start)));
        Some(BodyTemplate {
            format,
            samples,
            end: constant(body.bytes.get(at..)?)?,
            starts: starts.collect(),
            kept: usize::try_from(kept).ok()?,
            keys: Vec::new(),
            _charge: charge,
        })
    }

    /// Returns the samples of a body that are kept, in order; `None` if its texts are not those of
    /// the template. Samples without a time have [`NO_TIME`].
    pub(super) fn read(&self, body: ScrapeBody<'_>, hash: impl Fn(&[u8]) -> u64) -> Option<Vec<Sample>> {
        if body.format != ScrapeFormat::Text(self.format) {
            return None;
        }
        let mut rest = body.bytes;
        // Samples about the scrape follow.
        let mut kept = Vec::with_capacity(self.kept + 8);
        for sample in &self.samples {
            let (text, after) = rest.split_at_checked(usize::try_from(sample.length).ok()?)?;
            if hash(text) != sample.hash {
                return None;
            }
            rest = after;
            let (value, at) = text::take_value(&mut rest, self.format)?;
            let at = at.unwrap_or(NO_TIME);
            if (at != NO_TIME) != sample.has_time {
                return None;
            }
            if sample.is_kept {
                kept.push(Sample { at, value });
            }
        }
        let is_end = usize::try_from(self.end.length).ok()? == rest.len() && hash(rest) == self.end.hash;
        is_end.then_some(kept)
    }

    /// Returns the number of kept series.
    pub(super) const fn kept(&self) -> usize {
        self.kept
    }

    /// Returns the numbers of a scrape with this template.
    pub(super) const fn counts(&self) -> ScrapeCounts {
        ScrapeCounts { scraped: self.samples.len() as u64, kept: self.kept as u64, added: 0, duplicates: 0 }
    }

    /// Returns the start timestamps of samples that [`BodyTemplate::read`] returned.
    pub(super) fn starts(&self, samples: &[Sample]) -> Vec<WriteStart> {
        let start = |(place, start): &(u32, Timestamp)| {
            let series = usize::try_from(*place).ok()?;
            Some(WriteStart { series, at: samples.get(series)?.at, start: *start })
        };
        self.starts.iter().filter_map(start).collect()
    }
}
