//! A preview of a copy: the samples that it would write, and the times at which the destination has
//! other values.

use std::collections::{BTreeMap, HashSet};
use std::hash::{DefaultHasher, Hasher as _};

use super::verify::samples_of;
use super::{CopyFilter, CopyLookup, CopySeries, CopyShare, CopySource, SampleCopyError};
use crate::model::{Labels, TimeRange};

/// The most metrics whose series are counted one by one.
const METRICS_MAX: usize = 100_000;
/// The metrics with the most series that a preview lists.
const METRICS_LISTED: usize = 10;
/// The most labels whose values are counted one by one.
const LABELS_MAX: usize = 1_000;
/// The most conflicts that are listed.
const CONFLICTS_LISTED: usize = 10;

/// The content of a source, after the filter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CopyPreview {
    /// Series.
    pub series: u64,
    /// Number of samples; duplicates in the source count each time.
    pub samples: u64,
    /// The least and the greatest time; none without samples.
    pub range: Option<TimeRange>,
    /// The metrics with the most series.
    pub metrics: Vec<(String, u64)>,
    /// The labels with the most values.
    pub labels: Vec<(String, u64)>,
    /// Samples for which the destination has another value.
    pub conflicts: u64,
    /// The first conflicts: the series and the time in milliseconds.
    pub conflicts_listed: Vec<(Labels, i64)>,
    /// Samples that the destination has already, with the same values.
    pub known: u64,
    /// Samples that cannot be read.
    pub refused: u64,
    /// The first reasons, and the parts that cannot be read.
    pub reasons: Vec<String>,
}

/// The counts behind a preview.
#[derive(Debug, Default)]
struct PreviewState {
    found: CopyPreview,
    /// Hashes of the label sets.
    series: HashSet<u64>,
    metrics: BTreeMap<String, u64>,
    labels: BTreeMap<String, HashSet<u64>>,
}

fn hash_of(value: &impl std::hash::Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Reads a source to its end, and writes nothing. Conflicts are looked for if there is a `lookup`.
///
/// # Errors
/// [`SampleCopyError`].
pub fn preview(
    source: &mut dyn CopySource,
    filter: &CopyFilter,
    mut lookup: Option<&mut dyn CopyLookup>,
    observe: &mut dyn FnMut(CopyShare, u64) -> bool,
) -> Result<CopyPreview, SampleCopyError> {
    let mut state = PreviewState::default();
    while let Some(mut batch) = source.next()? {
        state.found.refused = state.found.refused.saturating_add(batch.refused);
        state.found.reasons.append(&mut batch.reasons);
        state.found.reasons.truncate(super::CopyBatch::REASONS_MAX);
        filter.apply(&mut batch);
        for series in &batch.series {
            state.add(series);
            if let Some(lookup) = &mut lookup {
                state.compare(series, &mut **lookup)?;
            }
        }
        if !observe(source.share(), state.found.samples) {
            return Err(SampleCopyError::Stopped);
        }
    }
    let mut found = state.found;
    found.reasons.extend(source.problems());
    found.metrics = greatest(state.metrics.into_iter());
    found.labels = greatest(state.labels.into_iter().map(|(name, values)| (name, values.len() as u64)));
    Ok(found)
}

fn greatest(counts: impl Iterator<Item = (String, u64)>) -> Vec<(String, u64)> {
    let mut all: Vec<(String, u64)> = counts.collect();
    all.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    all.truncate(METRICS_LISTED);
    all
}

impl PreviewState {
    fn add(&mut self, series: &CopySeries) {
        let found = &mut self.found;
        found.samples = found.samples.saturating_add(series.len() as u64);
        if let Some(range) = series.range() {
            let all = found.range.unwrap_or(range);
            found.range = Some(TimeRange::new(all.start.min(range.start), all.end.max(range.end)));
        }
        if !self.series.insert(hash_of(&series.labels)) {
            return;
        }
        found.series = found.series.saturating_add(1);
        let name = series.labels.metric_name();
        if let Some(count) = self.metrics.get_mut(name) {
            *count = count.saturating_add(1);
        } else if self.metrics.len() < METRICS_MAX {
            self.metrics.insert(name.to_owned(), 1);
        }
        for label in series.labels.iter() {
            let value = hash_of(&label.value);
            if let Some(values) = self.labels.get_mut(label.name) {
                values.insert(value);
            } else if self.labels.len() < LABELS_MAX {
                self.labels.insert(label.name.to_owned(), HashSet::from([value]));
            }
        }
    }

    fn compare(&mut self, series: &CopySeries, lookup: &mut dyn CopyLookup) -> Result<(), SampleCopyError> {
        let Some(range) = series.range() else { return Ok(()) };
        let stored = samples_of(&lookup.samples(&series.labels, range)?.into());
        for (at_ms, value) in samples_of(series) {
            match stored.get(&at_ms) {
                None => {}
                Some(known) if *known == value => self.found.known = self.found.known.saturating_add(1),
                Some(_) => {
                    self.found.conflicts = self.found.conflicts.saturating_add(1);
                    if self.found.conflicts_listed.len() < CONFLICTS_LISTED {
                        self.found.conflicts_listed.push((series.labels.clone(), at_ms));
                    }
                }
            }
        }
        Ok(())
    }
}
