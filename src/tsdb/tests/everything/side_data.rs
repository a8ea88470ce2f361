//! The side data in the random run: native histograms, which follow the rules of floats, exemplars,
//! start timestamps and descriptions.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{FloatSeries, OrgId, labels, name};
use crate::model::{
    Access, BatchBuilder, Exemplar, Histogram, HistogramColumns, MetricKind, TimeRange, Timestamp,
};
use crate::tsdb::Tsdb;
use crate::tsdb::side_data::tests::exponential;

/// The number of exemplars that a series keeps.
const RING: usize = 100;

/// The side data of one series. A histogram is stored as the number from which [`histogram`] makes
/// it.
#[derive(Clone, Debug, Default)]
pub(super) struct SideModel {
    pub(super) histograms: FloatSeries,
    pub(super) exemplars: VecDeque<(i64, u64)>,
    /// Exemplars that the ring dropped, or that were too old. A start may load them from segments
    /// when there is room again.
    old_exemplars: Vec<(i64, u64)>,
    /// The start timestamp of each sample time.
    pub(super) starts: BTreeMap<i64, i64>,
}

/// Makes histograms of two shapes and with float counts, so that blocks consist of several runs.
pub(super) fn histogram(number: u64) -> Histogram {
    if number == 3 {
        return Histogram::stale();
    }
    let (spans, buckets): (&[(i32, u32)], &[u64]) =
        if number.is_multiple_of(2) { (&[(-1, 2)], &[7, 1 << 40]) } else { (&[(0, 1), (2, 2)], &[1, 2, 3]) };
    exponential(2, 1e-6, spans, &[], number as f64 / 3.0, number, buckets)
}

pub(super) fn exemplar(at: i64, number: u64) -> Exemplar {
    let labels = labels(&[("trace_id", &number.to_string())]);
    Exemplar { labels, value: 0.5, at: Timestamp::from_ms(at) }
}

pub(super) fn describe(batch: &mut BatchBuilder, metric: &str, number: u64) {
    batch.describe(metric, MetricKind::Gauge, &format!("help {number}"), "");
}

impl SideModel {
    /// Adds an exemplar by the rules of the ring. Returns whether the exemplar is in the ring now.
    pub(super) fn put_exemplar(&mut self, at: i64, number: u64) -> bool {
        if self.exemplars.contains(&(at, number)) {
            return true;
        }
        if self.exemplars.back().is_some_and(|(newest, _)| at < *newest) {
            return false;
        }
        self.exemplars.push_back((at, number));
        if self.exemplars.len() > RING {
            self.old_exemplars.extend(self.exemplars.pop_front());
        }
        true
    }

    pub(super) fn delete(&mut self, from: i64, to: i64) {
        self.histograms.delete(from, to);
        self.exemplars.retain(|(at, _)| *at < from || to < *at);
        self.old_exemplars.retain(|(at, _)| *at < from || to < *at);
    }

    pub(super) fn hide(&mut self, kept_from: i64) {
        self.histograms.hide(kept_from);
        self.starts.retain(|at, _| *at >= kept_from);
        while let Some(old) = self.exemplars.pop_front_if(|(at, _)| *at < kept_from) {
            self.old_exemplars.push(old);
        }
    }
}

/// The side data of one series in the store.
struct StoredSideData {
    histograms: Vec<(i64, Histogram)>,
    exemplars: Vec<Exemplar>,
}

/// Describes what is wrong with the side data of an organisation, if anything.
pub(super) fn complaint(
    tsdb: &Tsdb,
    org: OrgId,
    all: &[SideModel],
    descriptions: &BTreeMap<String, u64>,
) -> Option<String> {
    let snapshot = tsdb.snapshot(&Access::whole(org));
    let mut ids = BTreeMap::new();
    let mut found: BTreeMap<String, StoredSideData> = BTreeMap::new();
    let mut out = HistogramColumns::default();
    for series in snapshot.select(&[], TimeRange::ALL) {
        snapshot.read_histograms(series.id, TimeRange::ALL, &mut out);
        let histograms = out.times.iter().copied().zip(out.histograms.iter().cloned()).collect();
        ids.insert(series.labels.to_string(), series.id);
        found.insert(series.labels.to_string(), StoredSideData { histograms, exemplars: Vec::new() });
    }
    for series in snapshot.exemplars(&[&[]], TimeRange::ALL, usize::MAX).items {
        let empty = || StoredSideData { histograms: Vec::new(), exemplars: Vec::new() };
        found.entry(series.labels.to_string()).or_insert_with(empty).exemplars = series.exemplars;
    }
    for (number, expected) in all.iter().enumerate() {
        let name = name(number).to_string();
        let mut histograms = found.get(&name).map_or_else(Vec::new, |found| found.histograms.clone());
        histograms.retain(|(at, have)| {
            let old = expected.histograms.hidden.get(at);
            expected.histograms.samples.contains_key(at) || old.is_none_or(|old| histogram(*old) != *have)
        });
        let times: BTreeSet<i64> = histograms.iter().map(|(at, _)| *at).collect();
        let lost = expected.histograms.samples.keys().filter(|at| !times.contains(at)).take(3);
        let lost: Vec<&i64> = lost.collect();
        let wrong = histograms.iter().find(|(at, have)| {
            expected.histograms.samples.get(at).is_none_or(|number| histogram(*number) != *have)
        });
        if !lost.is_empty() || wrong.is_some() {
            let wrong = wrong.map(|(at, have)| (*at, have.count()));
            return Some(format!("histograms of {name}: missing {lost:?}, wrong {wrong:?}"));
        }
        let exemplars = found.get(&name).map_or(&[][..], |found| &found.exemplars);
        let kept: Vec<Exemplar> =
            expected.exemplars.iter().map(|(at, number)| exemplar(*at, *number)).collect();
        // Some older ones may have been loaded again.
        let older = exemplars.iter().take_while(|one| !kept.contains(one)).count();
        let is_old =
            |one: &Exemplar| expected.old_exemplars.iter().any(|(at, number)| exemplar(*at, *number) == *one);
        let (old, new) = exemplars.split_at(older);
        let is_right = old.iter().all(is_old) && new == kept;
        if !is_right {
            let times = |some: &[Exemplar], others: &[Exemplar]| {
                let only = some.iter().filter(|one| !others.contains(one)).take(5);
                only.map(|one| one.at.as_ms()).collect::<Vec<_>>()
            };
            let (lost, strange) = (times(&kept, exemplars), times(exemplars, &kept));
            let (all, here) = (kept.len(), exemplars.len());
            return Some(format!(
                "exemplars of {name}: {here} of {all}, missing {lost:?}, too many {strange:?}"
            ));
        }
        let Some(id) = ids.get(&name) else { continue };
        for (at, start) in &expected.starts {
            let moment = TimeRange::new(Timestamp::from_ms(*at), Timestamp::from_ms(*at));
            let reported = snapshot.starts(*id, moment).last().map(|change| change.start.as_ms());
            if reported != Some(*start) {
                return Some(format!("start of {name} at {at}: {reported:?}, not {start}"));
            }
        }
    }
    let known: BTreeMap<String, String> = snapshot
        .metadata(None, usize::MAX)
        .items
        .into_iter()
        .map(|known| (known.name.to_string(), known.help.to_string()))
        .collect();
    let expected: BTreeMap<String, String> =
        descriptions.iter().map(|(name, number)| (name.clone(), format!("help {number}"))).collect();
    (known != expected).then(|| format!("descriptions {known:?}, not {expected:?}"))
}
