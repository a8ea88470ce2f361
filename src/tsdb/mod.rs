//! Samples in, snapshots out. (Scaffold: in memory; the real room replaces it behind the same names.)

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use crate::model::{Access, Labels, LabelsBuilder, Matcher, OrgId, Refusal, Sample, Scope, TimeRange, Timestamp, WriteBatch};

/// A series' number within its organisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeriesId(pub u32);

/// What happened to a batch.
#[derive(Clone, Debug, Default)]
pub struct AppendReport {
    /// Samples stored, or already there bit for bit.
    pub stored: u64,
    /// Samples refused.
    pub refused: u64,
    /// The first ten refusals.
    pub refusals: Vec<Refusal>,
}

/// Why nothing of a batch was stored.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// The log could not be made durable; writes stay closed until a restart.
    #[error("the log is fenced: {0}")]
    Fenced(String),
}

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

    /// Whether a scope may have hidden something: answers carry a warning then.
    pub fn is_scoped(&self) -> bool {
        !self.scope.is_whole()
    }
}
