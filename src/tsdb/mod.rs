//! Samples in, snapshots out. (Scaffold: in memory; the real room replaces it behind the same names.)

mod disk;
mod error;
mod options;
mod report;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex};

pub use disk::{Disk, Faults};
pub use error::{AppendError, CheckpointError, Damage, DiskError, OpenError};
pub use options::{Durability, Options, OrgLimits};
pub use report::{
    AppendReport, CheckpointReport, Description, Health, Listing, Metric, MetricFilter, OrgStats, RecoveryMode,
    RecoveryReport, SeriesId, Stats, Writes,
};

use crate::entropy::Entropy;

use crate::model::{
    Access, Labels, LabelsBuilder, Matcher, OrgId, Sample, Scope, StoreId, TimeRange, Timestamp, WriteBatch,
};

/// All organisations' samples.
#[derive(Debug, Default)]
pub struct Tsdb {
    orgs: Mutex<BTreeMap<OrgId, Vec<Arc<(Labels, Vec<Sample>)>>>>,
}

impl Tsdb {
    /// In memory, for tests of the rooms above.
    pub fn scaffold() -> Tsdb {
        Tsdb::default()
    }

    /// Opens the store in `dir` (its `wal/`, `series/`, `head/`, `quarantine/`), recovering what is there.
    pub fn open(
        dir: &Path,
        store: StoreId,
        options: Options,
        rng: &mut Entropy,
        now: Timestamp,
    ) -> Result<(Tsdb, RecoveryReport), OpenError> {
        let _ = (dir, store, options, rng, now);
        Ok((Tsdb::default(), RecoveryReport::default()))
    }

    /// Sets what one organisation may store.
    pub fn set_limits(&self, org: OrgId, limits: OrgLimits) {
        let _ = (org, limits);
    }

    /// Writes a checkpoint, so that the next start replays less of the log.
    pub fn checkpoint(&self, now: Timestamp) -> Result<CheckpointReport, CheckpointError> {
        let _ = now;
        Ok(CheckpointReport::default())
    }

    /// Whether a checkpoint is due: by age or by samples.
    pub fn checkpoint_due(&self) -> bool {
        false
    }

    /// Plain counters.
    pub fn stats(&self) -> Stats {
        Stats::default()
    }

    /// Whether it takes samples, and what an operator should know.
    pub fn health(&self) -> Health {
        Health::default()
    }

    /// Ends writing: what waits is made durable, the threads end. Reads go on. A second call does nothing.
    pub fn close(&self) {}

    /// Stores a batch.
    pub fn append(&self, org: OrgId, batch: &WriteBatch<'_>, _now: Timestamp) -> Result<AppendReport, AppendError> {
        let mut orgs = self.orgs.lock().expect("unpoisoned");
        let store = orgs.entry(org).or_default();
        let mut report = AppendReport::default();
        for series in &batch.series {
            let mut pairs = Vec::new();
            (batch.parse_labels)(series.raw_labels, &mut pairs).expect("scaffold");
            let mut labels = LabelsBuilder::default();
            for (name, value) in pairs {
                labels.set(String::from_utf8_lossy(name).into_owned(), String::from_utf8_lossy(value).into_owned());
            }
            let labels = labels.build();
            let samples = &batch.samples[series.samples.clone()];
            report.stored += samples.len() as u64;
            match store.iter_mut().find(|have| have.0 == labels) {
                Some(have) => Arc::make_mut(have).1.extend_from_slice(samples),
                None => store.push(Arc::new((labels, samples.to_vec()))),
            }
        }
        Ok(report)
    }

    /// What one query sees.
    pub fn snapshot(&self, access: &Access) -> Snapshot {
        let orgs = self.orgs.lock().expect("unpoisoned");
        Snapshot { series: orgs.get(&access.org).cloned().unwrap_or_default(), scope: access.scope.clone() }
    }
}

/// One organisation within one scope, fixed when it was taken. The only way to read.
#[derive(Clone, Debug)]
pub struct Snapshot {
    series: Vec<Arc<(Labels, Vec<Sample>)>>,
    scope: Scope,
}

/// A series that a selection found.
#[derive(Clone, Debug)]
pub struct SelectedSeries {
    /// Hand this to [`Snapshot::read`].
    pub id: SeriesId,
    /// Its whole label set, metric name included.
    pub labels: Labels,
}

/// Samples of one series as columns, ascending in time. Reused between reads.
#[derive(Clone, Debug, Default)]
pub struct SampleColumns {
    /// Milliseconds since the epoch.
    pub times: Vec<i64>,
    /// The values, staleness markers included.
    pub values: Vec<f64>,
}

impl Snapshot {
    /// The series that pass every matcher and the scope, and may have samples in `range`; sorted by labels.
    pub fn select(&self, matchers: &[Matcher], range: TimeRange) -> Vec<SelectedSeries> {
        let mut found: Vec<SelectedSeries> = self
            .series
            .iter()
            .enumerate()
            .filter(|(_, s)| matchers.iter().chain(&self.scope.matchers).all(|m| m.admits(&s.0)) && self.scope.admits_name(s.0.metric_name()))
            .filter(|(_, s)| s.1.iter().any(|x| range.contains(x.at)))
            .map(|(i, s)| SelectedSeries { id: SeriesId(i as u32), labels: s.0.clone() })
            .collect();
        found.sort_by(|a, b| a.labels.cmp(&b.labels));
        found
    }

    /// Replaces `out` with the samples of `id` inside `range` and the scope's time.
    pub fn read(&self, id: SeriesId, range: TimeRange, out: &mut SampleColumns) {
        out.times.clear();
        out.values.clear();
        for sample in &self.series[id.0 as usize].1 {
            if range.contains(sample.at) && self.scope.min_time.is_none_or(|min| sample.at >= min) {
                out.times.push(sample.at.as_ms());
                out.values.push(sample.value);
            }
        }
    }

    /// The label names of all series that pass any of the selectors (none given: all), the scope and the range; sorted.
    pub fn label_names(&self, selectors: &[Vec<Matcher>], range: TimeRange, limit: usize) -> Listing<Arc<str>> {
        let series = self.any(selectors, range);
        cut(series.iter().flat_map(|s| s.iter().map(|l| l.name.clone())).collect(), limit)
    }

    /// The values of one label among those series; sorted.
    pub fn label_values(
        &self,
        name: &str,
        selectors: &[Vec<Matcher>],
        range: TimeRange,
        limit: usize,
    ) -> Listing<Arc<str>> {
        cut(self.any(selectors, range).iter().filter_map(|s| s.get(name).cloned()).collect(), limit)
    }

    /// The label sets of those series; sorted.
    pub fn series(&self, selectors: &[Vec<Matcher>], range: TimeRange, limit: usize) -> Listing<Labels> {
        cut(self.any(selectors, range), limit)
    }

    /// Metrics with samples in `range`; sorted by name.
    pub fn metrics(&self, filter: &MetricFilter<'_>, range: TimeRange, limit: usize) -> Listing<Metric> {
        let _ = (filter, range, limit);
        Listing::default()
    }

    /// What senders said about metrics of which at least one series is visible; sorted by name.
    pub fn metadata(&self, metric: Option<&str>, limit: usize) -> Listing<Description> {
        let _ = (metric, limit);
        Listing::default()
    }

    fn any(&self, selectors: &[Vec<Matcher>], range: TimeRange) -> BTreeSet<Labels> {
        let all = [Vec::new()];
        let selectors = if selectors.is_empty() { &all } else { selectors };
        selectors.iter().flat_map(|matchers| self.select(matchers, range)).map(|s| s.labels).collect()
    }

    /// Whether a scope may have hidden something: answers carry a warning then.
    pub fn is_scoped(&self) -> bool {
        !self.scope.is_whole()
    }
}

fn cut<T>(all: BTreeSet<T>, limit: usize) -> Listing<T> {
    Listing { truncated: all.len() > limit, items: all.into_iter().take(limit).collect() }
}
