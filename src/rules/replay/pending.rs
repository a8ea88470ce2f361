//! The samples of a slice of a backfill until they are written, and what a rule sees of the store
//! meanwhile.

use std::collections::{BTreeMap, BTreeSet};

use super::{BackfillReport, ReplayError};
use crate::model::{
    BatchBuilder, Histogram, Labels, METRIC_NAME, Sample, TimeRange, Timestamp, is_stale, stale_nan,
};
use crate::promql::HistogramPoint;
use crate::rules::run::{CompiledRule, RuleContext, WRITE_SAMPLES_MAX, stored_samples};
use crate::tsdb::{SeriesEnds, Snapshot};

/// The place of the rule that writes each metric; `None` if several rules of the group do.
pub(super) type MetricWriters = BTreeMap<String, Option<usize>>;

/// Samples of a slice that are not written yet.
pub(super) struct PendingWrites<'a> {
    report: &'a mut BackfillReport,
    pub(super) context: RuleContext<'a>,
    now: Timestamp,
    values: BatchBuilder,
    /// The number of samples in `values`.
    held: usize,
    /// The times of markers, which are written after the values.
    markers: BTreeMap<Labels, BTreeSet<Timestamp>>,
    /// The metrics of the rules whose samples are pending.
    pub(super) metrics: BTreeSet<String>,
    writers: &'a MetricWriters,
    /// The times of the slice that have a sample, by the series of shared metrics. The first sample
    /// stays, as in live evaluation; of late samples, the store would keep the last one.
    taken: BTreeMap<Labels, BTreeSet<Timestamp>>,
}

impl<'a> PendingWrites<'a> {
    pub(super) fn new(
        report: &'a mut BackfillReport,
        writers: &'a MetricWriters,
        context: RuleContext<'a>,
        now: Timestamp,
    ) -> PendingWrites<'a> {
        PendingWrites {
            report,
            context,
            now,
            values: BatchBuilder::default(),
            held: 0,
            markers: BTreeMap::new(),
            metrics: BTreeSet::new(),
            writers,
            taken: BTreeMap::new(),
        }
    }

    /// Returns whether a rule may read a sample that is pending.
    pub(super) fn are_read_by(&self, rule: &CompiledRule) -> bool {
        match rule.metrics_read() {
            None => !self.metrics.is_empty(),
            Some(names) => names.iter().any(|name| self.metrics.contains(name)),
        }
    }

    pub(super) fn add(
        &mut self,
        labels: &Labels,
        samples: Vec<Sample>,
        histograms: Vec<(Timestamp, Histogram)>,
    ) -> Result<(), ReplayError> {
        let count = samples.len() + histograms.len();
        if count == 0 {
            return Ok(());
        }
        if self.held + count > WRITE_SAMPLES_MAX {
            self.write_values()?;
        }
        self.held += count;
        self.values.series(labels, samples).histograms(histograms);
        Ok(())
    }

    /// Returns the store as the rule at a place of the group sees it at a time: of the series that
    /// the group writes, without later samples, and at that time with the samples of the rules
    /// before it only. Those are in the store: from this slice, or, of a metric with one writer,
    /// from an earlier run.
    pub(super) fn view(&self, place: usize, rule: &CompiledRule, at: Timestamp) -> Snapshot {
        let (mut ends, before) = (SeriesEnds::default(), at.plus_ms(-1));
        let own: Vec<_> = match rule.metrics_read() {
            Some(names) => names.iter().filter_map(|name| self.writers.get_key_value(name)).collect(),
            None => self.writers.iter().collect(),
        };
        for (name, writer) in own {
            let is_written = writer.is_some_and(|writer| writer < place);
            ends.metrics.insert(name.clone(), if is_written { at } else { before });
        }
        let taken = self.taken.iter().filter(|(_, times)| times.contains(&at));
        ends.series.extend(taken.map(|(labels, _)| (labels.clone(), at)));
        self.context.snapshot().with_ends(ends)
    }

    /// Takes a time of a series without a new sample: the store has one, of an earlier run.
    pub(super) fn take_time(&mut self, labels: &Labels, at: Timestamp) {
        if let Some(taken) = self.taken(labels) {
            taken.insert(at);
        }
    }

    /// Returns the taken times of a series of a shared metric.
    fn taken(&mut self, labels: &Labels) -> Option<&mut BTreeSet<Timestamp>> {
        let writer = labels.get(METRIC_NAME).and_then(|name| self.writers.get(&**name));
        let is_shared = writer.is_some_and(Option::is_none);
        is_shared.then(|| self.taken.entry(labels.clone()).or_default())
    }

    /// Takes the times of values. Removes the values whose times another rule has taken, and counts
    /// them as refused.
    pub(super) fn take_times(
        &mut self,
        labels: &Labels,
        samples: &mut Vec<Sample>,
        histograms: &mut Vec<HistogramPoint>,
    ) {
        let before = samples.len() + histograms.len();
        let Some(taken) = self.taken(labels) else { return };
        samples.retain(|sample| taken.insert(sample.at));
        histograms.retain(|point| taken.insert(point.at));
        let removed = before - samples.len() - histograms.len();
        self.report.refused += u64::try_from(removed).unwrap_or(u64::MAX);
    }

    pub(super) fn mark(&mut self, labels: &Labels, times: Vec<Timestamp>) {
        if !times.is_empty() {
            self.markers.entry(labels.clone()).or_default().extend(times);
        }
    }

    fn write_values(&mut self) -> Result<(), ReplayError> {
        self.held = 0;
        self.report.write(&std::mem::take(&mut self.values), self.context, self.now)
    }

    /// Writes the values, and then the markers.
    pub(super) fn write(&mut self) -> Result<(), ReplayError> {
        self.write_values()?;
        self.metrics.clear();
        if self.markers.is_empty() {
            return Ok(());
        }
        // Another rule may have written the series at the same time. The stored value wins.
        let snapshot = self.context.snapshot();
        let marker = |at| Sample { at, value: stale_nan() };
        for (labels, times) in std::mem::take(&mut self.markers) {
            let times: Vec<Timestamp> = times.into_iter().collect();
            let mut times = without_values(&snapshot, &labels, &times);
            if let Some(taken) = self.taken(&labels) {
                times.retain(|at| taken.insert(*at));
            }
            self.add(&labels, times.into_iter().map(marker).collect(), Vec::new())?;
        }
        self.write_values()
    }
}

/// Returns the times at which a series has no value in the store. `times` ascend.
fn without_values(snapshot: &Snapshot, labels: &Labels, times: &[Timestamp]) -> Vec<Timestamp> {
    let (Some(first), Some(last)) = (times.first(), times.last()) else { return Vec::new() };
    let (floats, histograms) = stored_samples(snapshot, labels, TimeRange::new(*first, *last));
    let has_float = |ms: i64| {
        let place = floats.times.binary_search(&ms).ok();
        place.and_then(|place| floats.values.get(place)).is_some_and(|value| !is_stale(*value))
    };
    let is_free = |at: &&Timestamp| !has_float(at.as_ms()) && !histograms.times.contains(&at.as_ms());
    times.iter().filter(is_free).copied().collect()
}

impl BackfillReport {
    fn write(
        &mut self,
        batch: &BatchBuilder,
        context: RuleContext<'_>,
        now: Timestamp,
    ) -> Result<(), ReplayError> {
        if batch.series_len() == 0 {
            return Ok(());
        }
        let written = context.tsdb.append(context.org, &batch.batch(), now);
        let written = written.map_err(|error| ReplayError::Store(error.to_string()))?;
        self.stored += written.stored;
        self.refused += written.refused;
        Ok(())
    }
}
