//! The samples of an organisation up to a time, in batches: window by window, oldest first, and
//! within a window series by series in the order of their numbers.
//!
//! Memory holds the series of one window and the samples of one series in that window.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::batch::{BatchSeries, MoveBatch};
use crate::identity::HistoryCursor;
use crate::model::{Exemplar, HistogramColumns, Labels, Pace, Sample, Stopped, TimeRange, Timestamp};
use crate::tsdb::{Description, ReadColumns, SelectedSeries, SeriesId, Snapshot};

/// The length of a window in milliseconds. A receiver without a window for late samples takes a
/// sample if it is at most an hour older than the newest one that it has.
pub(super) const WINDOW_MS: i64 = 30 * 60 * 1_000;
/// The samples after which a batch is complete.
pub(super) const BATCH_SAMPLES: usize = 5_000;
/// The first millisecond that a sample may have: the year 1.
pub const FIRST_MS: i64 = -62_135_596_800_000;
/// The most exemplars of a window that are sent.
const EXEMPLARS_MAX: usize = 100_000;

/// The reason why history cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HistoryError {
    /// A file is damaged, so a part of the history is missing.
    #[error("the history cannot be read completely: {0}")]
    Damaged(String),
    /// The selection was stopped.
    #[error("reading the history was stopped")]
    Stopped,
}

impl From<Stopped> for HistoryError {
    fn from(_: Stopped) -> HistoryError {
        HistoryError::Stopped
    }
}

/// A reader of the history.
#[derive(Debug)]
pub(super) struct HistoryReader {
    snapshot: Snapshot,
    /// The exclusive end in milliseconds.
    cut_ms: i64,
    with_starts: bool,
    window: Option<HistoryWindow>,
    metadata: BTreeMap<Arc<str>, Description>,
    /// The families whose metadata was returned.
    described: BTreeSet<Arc<str>>,
}

/// The series with samples in a window, ordered by number.
#[derive(Debug)]
struct HistoryWindow {
    start_ms: i64,
    series: Vec<SelectedSeries>,
    exemplars: BTreeMap<Labels, Vec<Exemplar>>,
}

/// Returns the start of the window that contains a time.
pub(super) const fn window_of(at_ms: i64) -> i64 {
    at_ms.saturating_sub(at_ms.rem_euclid(WINDOW_MS))
}

/// Returns the samples of one series in a range.
pub(super) fn read_series(
    snapshot: &Snapshot,
    id: SeriesId,
    labels: &Labels,
    range: TimeRange,
) -> BatchSeries {
    let (mut columns, mut histograms) = (ReadColumns::default(), HistogramColumns::default());
    snapshot.reader(range, range.start).read(id, &mut columns, &mut histograms);
    let samples = columns.times().iter().zip(columns.values());
    let histograms = histograms.times.into_iter().zip(histograms.histograms);
    BatchSeries {
        id: Some(id),
        labels: labels.clone(),
        samples: samples.map(|(at, value)| Sample { at: Timestamp::from_ms(*at), value: *value }).collect(),
        histograms: histograms.map(|(at, histogram)| (Timestamp::from_ms(at), histogram)).collect(),
        ..BatchSeries::default()
    }
}

/// Returns the start of the first window at or after `from_ms` that has samples before `cut_ms`, if
/// any. Periods without samples cost a number of look-ups that grows with their logarithm.
///
/// # Errors
/// [`HistoryError::Stopped`].
pub(super) fn next_window(
    snapshot: &Snapshot,
    from_ms: i64,
    cut_ms: i64,
) -> Result<Option<i64>, HistoryError> {
    let pace = Pace::endless();
    let paced = snapshot.paced(&pace);
    let (mut start, mut span) = (window_of(from_ms.max(FIRST_MS)), WINDOW_MS);
    while start < cut_ms {
        let end = start.saturating_add(span).min(cut_ms).saturating_sub(1);
        let range = TimeRange::new(Timestamp::from_ms(start.max(from_ms)), Timestamp::from_ms(end));
        if !paced.exists(&[Vec::new()], range)? {
            start = start.saturating_add(span);
            span = span.saturating_mul(2);
        } else if span == WINDOW_MS {
            return Ok(Some(start));
        } else {
            span /= 2;
        }
    }
    Ok(None)
}

impl HistoryReader {
    /// Creates a reader of the samples before `cut_ms`.
    ///
    /// # Errors
    /// [`HistoryError::Stopped`].
    pub(super) fn new(
        snapshot: Snapshot,
        cut_ms: i64,
        with_starts: bool,
    ) -> Result<HistoryReader, HistoryError> {
        let listed = snapshot.paced(&Pace::endless()).metadata(None, usize::MAX)?;
        let metadata = listed.items.into_iter().map(|one| (Arc::clone(&one.name), one)).collect();
        let (window, described) = (None, BTreeSet::new());
        Ok(HistoryReader { snapshot, cut_ms, with_starts, window, metadata, described })
    }

    /// Returns the batch at `from` and the position after it; none after the last sample. With
    /// `until`, the batch ends there at the latest.
    ///
    /// # Errors
    /// [`HistoryError`].
    pub(super) fn batch(
        &mut self,
        from: HistoryCursor,
        until: Option<HistoryCursor>,
    ) -> Result<Option<(MoveBatch, HistoryCursor)>, HistoryError> {
        let (mut batch, mut at) = (MoveBatch::default(), from);
        let mut room = BATCH_SAMPLES;
        while room > 0 && at.window_ms < self.cut_ms && until.is_none_or(|until| at < until) {
            if self.window.as_ref().is_none_or(|window| window.start_ms != at.window_ms) {
                self.load(at.window_ms)?;
            }
            let Some((one, exemplars)) = self.next_series(at.series) else {
                let next = next_window(&self.snapshot, at.window_ms.saturating_add(WINDOW_MS), self.cut_ms)?;
                at = HistoryCursor::at(next.unwrap_or(self.cut_ms));
                continue;
            };
            let first = if one.id.0 == at.series { at.from_ms } else { at.window_ms };
            let mut end = at.window_ms.saturating_add(WINDOW_MS).min(self.cut_ms);
            let mut next =
                HistoryCursor { window_ms: at.window_ms, series: one.id.0 + 1, from_ms: at.window_ms };
            if let Some(until) = until.filter(|until| *until < next) {
                (end, next) = (end.min(until.from_ms), until);
            }
            let range = TimeRange::new(Timestamp::from_ms(first), Timestamp::from_ms(end.saturating_sub(1)));
            let mut series = read_series(&self.snapshot, one.id, &one.labels, range);
            if series.sample_count() > room {
                let cut = cut_at(&mut series, room);
                next = HistoryCursor { from_ms: cut, series: one.id.0, ..at };
            } else if next.series > one.id.0 {
                series.exemplars = exemplars;
            }
            if !series.is_empty() {
                self.complete(&mut series, &one, range);
                room = room.saturating_sub(series.sample_count().max(1));
                batch.series.push(series);
            }
            at = next;
        }
        if let Some(warning) = self.snapshot.warnings().into_iter().next() {
            return Err(HistoryError::Damaged(warning));
        }
        // A batch without samples moves the position past samples that retention removed meanwhile.
        Ok((at > from).then_some((batch, at)))
    }

    fn load(&mut self, start_ms: i64) -> Result<(), HistoryError> {
        let end = start_ms.saturating_add(WINDOW_MS).min(self.cut_ms).saturating_sub(1);
        let range = TimeRange::new(Timestamp::from_ms(start_ms), Timestamp::from_ms(end));
        let mut series = self.snapshot.select(&[], range);
        series.sort_unstable_by_key(|one| one.id.0);
        let pace = Pace::endless();
        let exemplars = self.snapshot.paced(&pace).exemplars(&[&[]], range, EXEMPLARS_MAX)?;
        let exemplars = exemplars.items.into_iter().map(|one| (one.labels, one.exemplars)).collect();
        self.window = Some(HistoryWindow { start_ms, series, exemplars });
        Ok(())
    }

    /// Returns the first series of the window whose number is at least `number`.
    fn next_series(&self, number: u32) -> Option<(SelectedSeries, Vec<Exemplar>)> {
        let window = self.window.as_ref()?;
        let place = window.series.partition_point(|one| one.id.0 < number);
        let one = window.series.get(place)?;
        Some((one.clone(), window.exemplars.get(&one.labels).cloned().unwrap_or_default()))
    }

    /// Adds start timestamps and, once for each family, metadata.
    fn complete(&mut self, series: &mut BatchSeries, one: &SelectedSeries, range: TimeRange) {
        if self.with_starts {
            series.starts = self.snapshot.starts(one.id, range);
        }
        let name = series.labels.metric_name();
        let suffixes = ["", "_bucket", "_count", "_sum", "_total"];
        let families = suffixes.iter().filter_map(|suffix| name.strip_suffix(suffix));
        let found = families.filter_map(|family| self.metadata.get(family)).next();
        if let Some(found) = found.filter(|found| self.described.insert(Arc::clone(&found.name))) {
            series.metadata = Some(found.clone());
        }
    }
}

/// Keeps the first `count` samples. Returns the time of the first removed sample.
fn cut_at(series: &mut BatchSeries, count: usize) -> i64 {
    let samples = series.samples.iter().map(|one| one.at);
    let mut times: Vec<Timestamp> = samples.chain(series.histograms.iter().map(|(at, _)| *at)).collect();
    times.sort_unstable();
    let cut = times.get(count).copied().unwrap_or(Timestamp::MAX);
    series.samples.retain(|one| one.at < cut);
    series.histograms.retain(|(at, _)| *at < cut);
    cut.as_ms()
}
