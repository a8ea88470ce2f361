//! Samples as blocks of Prometheus, one for each window of time.
//!
//! The name of a block follows from its window, the source and the selection. So a repeated export
//! continues after the last complete block, and writes none twice.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::Path;
use std::sync::Arc;

use crate::history::block::{BlockWriter, Ulid, WrittenBlock, compare_labels};
use crate::history::copy::{SampleCopyError, read_series};
use crate::ingest::prometheus_chunk::{ChunkEncoder, EncodedChunk};
use crate::model::{
    Histogram, HistogramColumns, Labels, Matcher, MetricMetadata, Pace, RawSeries, TimeRange, Timestamp,
};
use crate::tsdb::{Description, SelectedSeries, Snapshot};

/// The samples after which a chunk ends, as in Prometheus.
const CHUNK_SAMPLES: u16 = 120;
/// The bytes after which a chunk of histograms ends, as in Prometheus.
const CHUNK_BYTES: usize = 1_024;

/// A reader of the samples that are exported.
pub trait ExportSource {
    /// Selects the series with samples in a range, and returns their labels in the order of
    /// Prometheus.
    ///
    /// # Errors
    /// [`SampleCopyError`].
    fn select(&mut self, range: TimeRange) -> Result<Vec<Labels>, SampleCopyError>;

    /// Returns the samples of a selected series, by its index.
    ///
    /// # Errors
    /// [`SampleCopyError`].
    fn read(&mut self, place: usize, range: TimeRange) -> Result<RawSeries, SampleCopyError>;

    /// Returns the description of a metric family.
    fn metadata(&self, _name: &str) -> Option<MetricMetadata<'_>> {
        None
    }
}

/// The longest part of a series that is in memory at once, in milliseconds.
const PART_MS: i64 = 32 * 86_400_000;

/// Returns the first part of a range of times, which has at most [`PART_MS`], and the rest; no rest
/// after the last part.
pub(super) fn first_part(range: TimeRange) -> (TimeRange, Option<TimeRange>) {
    let last_ms = range.start.as_ms().saturating_add(PART_MS - 1);
    if last_ms >= range.end.as_ms() {
        return (range, None);
    }
    let rest = TimeRange::new(Timestamp::from_ms(last_ms.saturating_add(1)), range.end);
    (TimeRange::new(range.start, Timestamp::from_ms(last_ms)), Some(rest))
}

/// The settings of an export to blocks.
#[derive(Clone, Debug)]
pub struct BlockExport<'e> {
    /// The folder of the blocks.
    pub folder: &'e Path,
    /// The times, both ends inclusive.
    pub range: TimeRange,
    /// The window of a block in milliseconds.
    pub block_ms: i64,
    /// A text that identifies the source and the selection.
    pub identity: &'e str,
}

/// The state of a running export.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExportStep {
    /// Complete blocks, including those of earlier runs.
    pub blocks: u64,
    /// Written samples.
    pub samples: u64,
    /// Milliseconds of the range that are complete.
    pub done_ms: u64,
    /// Milliseconds of the range.
    pub all_ms: u64,
}

/// Writes the samples of a source as blocks. `observe` is called for each series and returns
/// whether the export may continue.
///
/// # Errors
/// [`SampleCopyError`]; complete blocks stay.
pub fn export_blocks(
    source: &mut dyn ExportSource,
    export: &BlockExport<'_>,
    observe: &mut dyn FnMut(ExportStep) -> bool,
) -> Result<Vec<WrittenBlock>, SampleCopyError> {
    let (first_ms, last_ms) = (export.range.start.as_ms(), export.range.end.as_ms());
    let since = |ms: i64| u64::try_from(ms.saturating_sub(first_ms)).unwrap_or_default();
    let mut step = ExportStep { all_ms: since(last_ms.saturating_add(1)), ..ExportStep::default() };
    let mut written = Vec::new();
    let mut next_ms = first_ms;
    while next_ms <= last_ms {
        let window = next_ms.checked_div_euclid(export.block_ms.max(1)).unwrap_or_default();
        let end_ms = window.saturating_add(1).saturating_mul(export.block_ms).min(last_ms.saturating_add(1));
        let range = TimeRange::new(Timestamp::from_ms(next_ms), Timestamp::from_ms(end_ms.saturating_sub(1)));
        let ulid = name_of(range, export.identity);
        step.done_ms = since(next_ms);
        if export.folder.join(ulid.to_string()).exists() {
            step.blocks = step.blocks.saturating_add(1);
        } else if let Some(block) = export_one(source, export.folder, ulid, range, &mut step, observe)? {
            step.blocks = step.blocks.saturating_add(1);
            written.push(block);
        }
        next_ms = end_ms;
    }
    Ok(written)
}

/// Returns the name of the block of a window.
fn name_of(range: TimeRange, identity: &str) -> Ulid {
    let mut hasher = DefaultHasher::new();
    (range.start.as_ms(), range.end.as_ms(), identity).hash(&mut hasher);
    Ulid::new(range.end, u128::from(hasher.finish()))
}

fn export_one(
    source: &mut dyn ExportSource,
    folder: &Path,
    ulid: Ulid,
    range: TimeRange,
    step: &mut ExportStep,
    observe: &mut dyn FnMut(ExportStep) -> bool,
) -> Result<Option<WrittenBlock>, SampleCopyError> {
    let series = source.select(range)?;
    if series.is_empty() {
        return if observe(*step) { Ok(None) } else { Err(SampleCopyError::Stopped) };
    }
    let mut writer = BlockWriter::create(folder, ulid, &series)?;
    for (place, labels) in series.iter().enumerate() {
        let raw = source.read(place, range)?;
        step.samples = step.samples.saturating_add(raw.len() as u64);
        writer.add_series(labels, &chunks_of(raw))?;
        if !observe(*step) {
            return Err(SampleCopyError::Stopped);
        }
    }
    Ok(writer.finish()?)
}

/// Encodes the samples of a series, whose times ascend, as chunks.
pub(super) fn chunks_of(raw: RawSeries) -> Vec<EncodedChunk> {
    let (mut chunk, mut all) = (ChunkEncoder::default(), Vec::new());
    let HistogramColumns { times, histograms } = raw.histograms;
    let mut natives = times.into_iter().zip(histograms).peekable();
    let put_native = |at_ms: i64, one: &Histogram, chunk: &mut ChunkEncoder, all: &mut Vec<EncodedChunk>| {
        let is_full = chunk.samples() >= CHUNK_SAMPLES || chunk.byte_len() >= CHUNK_BYTES;
        if is_full || !chunk.push_histogram(at_ms, one) {
            all.extend(chunk.take());
            chunk.push_histogram(at_ms, one);
        }
    };
    for (at_ms, value) in raw.times.into_iter().zip(raw.values) {
        while let Some((native_ms, one)) = natives.next_if(|(native_ms, _)| *native_ms < at_ms) {
            put_native(native_ms, &one, &mut chunk, &mut all);
        }
        if chunk.samples() >= CHUNK_SAMPLES || !chunk.push_float(at_ms, value) {
            all.extend(chunk.take());
            chunk.push_float(at_ms, value);
        }
    }
    natives.for_each(|(native_ms, one)| put_native(native_ms, &one, &mut chunk, &mut all));
    all.extend(chunk.take());
    all
}

/// An organisation of an open store.
#[derive(Debug)]
pub struct StoreExport {
    snapshot: Snapshot,
    /// The selectors; none if the series were selected before.
    selectors: Option<Vec<Vec<Matcher>>>,
    selected: Vec<SelectedSeries>,
    metadata: BTreeMap<Arc<str>, Description>,
}

impl StoreExport {
    /// Returns the samples that a snapshot shows, of the series that any of the selectors matches;
    /// of all series if there are none.
    pub fn new(snapshot: Snapshot, mut selectors: Vec<Vec<Matcher>>) -> StoreExport {
        if selectors.is_empty() {
            selectors.push(Vec::new());
        }
        let listed = snapshot.paced(&Pace::endless()).metadata(None, usize::MAX);
        let listed = listed.map(|listed| listed.items).unwrap_or_default();
        StoreExport { snapshot, selectors: Some(selectors), selected: Vec::new(), metadata: by_name(listed) }
    }

    /// Returns the samples of series that were selected before, and no descriptions.
    pub fn of_selected(snapshot: Snapshot, selected: Vec<SelectedSeries>) -> StoreExport {
        StoreExport { snapshot, selectors: None, selected: in_order(selected), metadata: BTreeMap::new() }
    }

    /// Returns the number of selected series.
    pub fn selected_len(&self) -> usize {
        self.selected.len()
    }

    /// Sets the descriptions of metrics.
    #[must_use]
    pub fn with_descriptions(self, all: Vec<Description>) -> StoreExport {
        StoreExport { metadata: by_name(all), ..self }
    }

    /// Returns the least and the greatest time with a selected sample within `range`; none without
    /// samples.
    ///
    /// # Errors
    /// [`SampleCopyError::Stopped`].
    pub fn used_range(&self, range: TimeRange) -> Result<Option<TimeRange>, SampleCopyError> {
        let pace = Pace::endless();
        let selectors = self.selectors.as_deref().unwrap_or_default();
        let exists = |range| self.snapshot.paced(&pace).exists(selectors, range);
        used_range(range, exists).map_err(|_| SampleCopyError::Stopped)
    }
}

/// Returns the series in the order of Prometheus, each once.
fn in_order(mut selected: Vec<SelectedSeries>) -> Vec<SelectedSeries> {
    selected.sort_by(|a, b| compare_labels(&a.labels, &b.labels));
    selected.dedup_by(|a, b| a.labels == b.labels);
    selected
}

fn by_name(all: Vec<Description>) -> BTreeMap<Arc<str>, Description> {
    all.into_iter().map(|one| (Arc::clone(&one.name), one)).collect()
}

/// Returns the least and the greatest time of samples within `range`; none without samples.
/// `exists` reports whether there are samples in a range, and is called at most 130 times.
///
/// # Errors
/// Those of `exists`.
pub fn used_range<E>(
    range: TimeRange,
    exists: impl Fn(TimeRange) -> Result<bool, E>,
) -> Result<Option<TimeRange>, E> {
    let (first, last) = (range.start.as_ms(), range.end.as_ms());
    let exists = |first, last| exists(TimeRange::new(Timestamp::from_ms(first), Timestamp::from_ms(last)));
    if !exists(first, last)? {
        return Ok(None);
    }
    let start = least(first, last, |middle| exists(first, middle))?;
    // The greatest time is the least one whose negation is not after it.
    let end =
        least(last.saturating_neg(), start.saturating_neg(), |middle| exists(middle.saturating_neg(), last))?;
    Ok(Some(TimeRange::new(Timestamp::from_ms(start), Timestamp::from_ms(end.saturating_neg()))))
}

/// Returns a range without its first windows of `block_ms` milliseconds that have no samples; none
/// if there are no samples. The windows are those of [`export_blocks`]. `exists` reports whether
/// there are samples in a range, and is called at most 66 times.
///
/// # Errors
/// Those of `exists`.
pub fn without_empty_start<E>(
    range: TimeRange,
    block_ms: i64,
    exists: impl Fn(TimeRange) -> Result<bool, E>,
) -> Result<Option<TimeRange>, E> {
    let (first_ms, last_ms, block_ms) = (range.start.as_ms(), range.end.as_ms(), block_ms.max(1));
    if first_ms > last_ms || !exists(range)? {
        return Ok(None);
    }
    let window_of = |ms: i64| ms.checked_div_euclid(block_ms).unwrap_or_default();
    let window = least(window_of(first_ms), window_of(last_ms), |window| {
        let end_ms = window.saturating_add(1).saturating_mul(block_ms).saturating_sub(1).min(last_ms);
        exists(TimeRange::new(range.start, Timestamp::from_ms(end_ms)))
    })?;
    let start_ms = window.saturating_mul(block_ms).max(first_ms);
    Ok(Some(TimeRange::new(Timestamp::from_ms(start_ms), range.end)))
}

/// Returns the least number from `low` to `high` that `holds`, which holds for `high` and for all
/// numbers after the least one.
fn least<E>(mut low: i64, mut high: i64, holds: impl Fn(i64) -> Result<bool, E>) -> Result<i64, E> {
    while low < high {
        let middle = i64::midpoint(low, high).min(high.saturating_sub(1));
        if holds(middle)? { high = middle } else { low = middle.saturating_add(1) }
    }
    Ok(low)
}

impl ExportSource for StoreExport {
    fn metadata(&self, name: &str) -> Option<MetricMetadata<'_>> {
        let one = self.metadata.get(name)?;
        Some(MetricMetadata { name: &one.name, kind: one.kind, help: &one.help, unit: &one.unit })
    }

    fn select(&mut self, range: TimeRange) -> Result<Vec<Labels>, SampleCopyError> {
        if let Some(selectors) = &self.selectors {
            let found = selectors.iter().flat_map(|matchers| self.snapshot.select(matchers, range));
            self.selected = in_order(found.collect());
        }
        Ok(self.selected.iter().map(|one| one.labels.clone()).collect())
    }

    fn read(&mut self, place: usize, range: TimeRange) -> Result<RawSeries, SampleCopyError> {
        let Some(one) = self.selected.get(place) else { return Ok(RawSeries::default()) };
        read_series(&self.snapshot, one, range).map_err(SampleCopyError::Source)
    }
}
