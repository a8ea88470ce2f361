//! Samples of an older source beneath a snapshot: raw samples that were fetched from an upstream
//! before the query runs (docs/specification.md C11). Selections and reads see one store that has
//! the samples of both sources.
//!
//! **Precedence.** At a time at which the store has a sample of a series, the older source's sample
//! of that time is invisible, of whichever kind both are.
//!
//! **Numbers.** A series of both sources has the number that the store gave it. A series that only
//! the older source has is numbered from [`FIRST_OLDER`] on. The series that the store knows are
//! looked up once, when the samples are attached. A series that is stored for the first time
//! afterwards is read from the older source only, as if its samples had arrived after the query.
//!
//! **Scope.** Series outside the scope are dropped when the samples are attached. The scope's time
//! clips every read. The organisation's retention does not: it applies only to samples that are
//! stored here.
//!
//! **Limits.** The caller bounds the samples in bytes and charges them to the memory of the query.
//! Start timestamps and exemplars do not exist in the older source.

use std::ops::Range;
use std::sync::Arc;

use rapidhash::RapidHashMap;

use super::select::grouped::{Grouped, GroupedSeries, NamedSeries};
use super::{Paced, ReadColumns, SelectedSeries, Snapshot};
use crate::model::{
    Histogram, HistogramColumns, Labels, Matcher, Pace, RawSeries, Stopped, TimeRange, Timestamp,
};
use crate::tsdb::report::{SampleColumns, SeriesId};
use crate::tsdb::series::table::Lookup;

/// The most series of an older source.
pub const OLDER_SERIES_MAX: usize = 1 << 24;
/// The number of the first series that only the older source has. The store's own numbers ascend
/// from 0, and its memory ends long before this.
const FIRST_OLDER: u32 = u32::MAX - (1 << 24);
/// Series that are looked up in the table under one lock.
const LOOKUPS_AT_ONCE: usize = if cfg!(test) { 3 } else { 1_024 };
/// The cost of a lookup of one label in the table, in units of about a nanosecond.
const LABEL_UNITS: u64 = 50;
/// The cost of a comparison of two label sets.
const ORDER_UNITS: u64 = 100;

/// Raw samples of an older source: in order of labels, each series once, without empty series.
/// Copies share the samples.
#[derive(Clone, Debug, Default)]
pub struct OlderSamples {
    series: Vec<Arc<RawSeries>>,
}

impl OlderSamples {
    /// Sorts series by their labels, and merges those with equal labels. At equal times, samples of
    /// later entries take precedence.
    pub fn new(mut raw: Vec<RawSeries>) -> OlderSamples {
        // The sort is stable: later entries of a series stay later.
        raw.sort_by(|a, b| a.labels.cmp(&b.labels));
        let mut merged: Vec<RawSeries> = Vec::with_capacity(raw.len());
        for series in raw {
            match merged.last_mut().filter(|last| last.labels == series.labels) {
                Some(last) => last.append(series),
                None => merged.push(series),
            }
        }
        merged.iter_mut().for_each(RawSeries::finish);
        merged.retain(|series| !series.is_empty());
        OlderSamples { series: merged.into_iter().map(Arc::new).collect() }
    }

    /// Returns the number of series.
    pub fn len(&self) -> usize {
        self.series.len()
    }

    /// Returns whether there are no samples.
    pub fn is_empty(&self) -> bool {
        self.series.is_empty()
    }

    /// Returns the estimated memory in bytes.
    pub fn bytes(&self) -> u64 {
        self.series.iter().fold(0, |bytes, series| bytes.saturating_add(series.bytes()))
    }
}

/// The series of an older source that the scope admits, in order of labels.
#[derive(Debug, Default)]
pub(super) struct OlderSource {
    series: Vec<OlderSeries>,
    /// The index of each series that the store has as well, by the store's number.
    by_local: RapidHashMap<u32, u32>,
    has_histograms: bool,
}

/// A series of the older source.
#[derive(Debug)]
pub(super) struct OlderSeries {
    /// The number that the store gave the series.
    local: Option<SeriesId>,
    samples: Arc<RawSeries>,
}

impl OlderSource {
    /// Returns the number in the store of a series, and its part of the older source.
    fn parts(&self, id: SeriesId) -> (Option<SeriesId>, Option<&OlderSeries>) {
        match id.0.checked_sub(FIRST_OLDER) {
            Some(index) => (None, self.series.get(index as usize)),
            None => {
                let index = self.by_local.get(&id.0);
                (Some(id), index.and_then(|index| self.series.get(*index as usize)))
            }
        }
    }
}

impl OlderSeries {
    fn has_any(&self, range: TimeRange) -> bool {
        let RawSeries { times, histograms, .. } = &*self.samples;
        !within(times, range).is_empty() || !within(&histograms.times, range).is_empty()
    }

    /// Adds the floats in `range` and the histograms in `histograms_range` at times that `out` and
    /// `histograms` do not have. With `newest_only`, all floats but the newest may be left out.
    pub(super) fn add_to(
        &self,
        range: TimeRange,
        histograms_range: TimeRange,
        newest_only: bool,
        out: &mut ReadColumns,
        histograms: &mut HistogramColumns,
    ) {
        let own = within(&self.samples.histograms.times, histograms_range);
        let times = self.samples.histograms.times.get(own.clone()).unwrap_or_default();
        let values = self.samples.histograms.histograms.get(own).unwrap_or_default();
        let is_hidden =
            |at: &i64| out.times().binary_search(at).is_ok() || histograms.times.binary_search(at).is_ok();
        let shown = times.iter().zip(values).filter(|(at, _)| !is_hidden(at));
        let mut all: Vec<(i64, Histogram)> = shown.map(|(at, value)| (*at, value.clone())).collect();
        let mut floats = within(&self.samples.times, range);
        if newest_only {
            floats.start = floats.start.max(floats.end.saturating_sub(1));
        }
        if !floats.is_empty() {
            self.add_floats(floats, &histograms.times, out.change());
        }
        if !all.is_empty() {
            let stored = std::mem::take(histograms);
            all.extend(stored.times.into_iter().zip(stored.histograms));
            all.sort_by_key(|(at, _)| *at);
            histograms.extend(all);
        }
    }

    /// Merges floats into those of the store, except at times of `histograms`.
    fn add_floats(&self, floats: Range<usize>, histograms: &[i64], out: &mut SampleColumns) {
        let times = self.samples.times.get(floats.clone()).unwrap_or_default();
        let values = self.samples.values.get(floats).unwrap_or_default();
        let older = times.iter().zip(values).filter(|(at, _)| histograms.binary_search(at).is_err());
        let newer = std::mem::take(out);
        let mut newer = newer.times.into_iter().zip(newer.values).peekable();
        out.times.reserve(newer.len().saturating_add(times.len()));
        out.values.reserve(newer.len().saturating_add(times.len()));
        let mut push = |at: i64, value: f64| {
            out.times.push(at);
            out.values.push(value);
        };
        for (at, value) in older {
            while let Some((time, value)) = newer.next_if(|(time, _)| time < at) {
                push(time, value);
            }
            if newer.peek().is_none_or(|(time, _)| time != at) {
                push(*at, *value);
            }
        }
        newer.for_each(|(at, value)| push(at, value));
    }
}

/// Returns the indexes of the times in a range.
fn within(times: &[i64], range: TimeRange) -> Range<usize> {
    let (start, end) = (range.start.as_ms(), range.end.as_ms());
    let from = times.partition_point(|at| *at < start);
    let to = times.partition_point(|at| *at <= end);
    from..to.max(from)
}

impl Snapshot {
    /// Puts samples of an older source beneath this snapshot. Series outside the scope are dropped.
    ///
    /// # Errors
    /// [`Stopped`] if the pace stops the request, or if there are more than [`OLDER_SERIES_MAX`]
    /// series.
    pub fn with_older(mut self, samples: &OlderSamples, pace: &Pace<'_>) -> Result<Snapshot, Stopped> {
        if samples.len() > OLDER_SERIES_MAX {
            return Err(Stopped);
        }
        pace.hold_each(samples.len(), size_of::<OlderSeries>() + 2 * size_of::<(u32, u32)>())?;
        let mut admitted = Vec::with_capacity(samples.len());
        for series in &samples.series {
            if self.admits_within(&series.labels, pace)? {
                admitted.push(series);
            }
        }
        let mut older = OlderSource::default();
        for some in admitted.chunks(LOOKUPS_AT_ONCE) {
            pace.spend_each(some.iter().map(|series| series.labels.len()).sum(), LABEL_UNITS)?;
            let table = match &self.store {
                Some(store) => Some(self.table(store)?),
                None => None,
            };
            let mut lookup = Lookup::default();
            for series in some {
                let pairs: Vec<(&str, &str)> =
                    series.labels.iter().map(|label| (label.name, label.value)).collect();
                let local = table.as_ref().and_then(|table| table.known(&pairs, &mut lookup));
                if let (Some(id), Ok(index)) = (local, u32::try_from(older.series.len())) {
                    older.by_local.insert(id, index);
                }
                older.has_histograms |= !series.histograms.is_empty();
                let samples = Arc::clone(series);
                older.series.push(OlderSeries { local: local.map(SeriesId), samples });
            }
        }
        self.older = Some(Arc::new(older));
        Ok(self)
    }

    /// Returns whether samples of an older source are beneath this snapshot.
    pub fn has_older(&self) -> bool {
        self.older.is_some()
    }

    pub(super) fn older_has_histograms(&self) -> bool {
        self.older.as_ref().is_some_and(|older| older.has_histograms)
    }

    /// Returns the number of a series in the store, and its part of the older source.
    pub(super) fn parts(&self, id: SeriesId) -> (Option<SeriesId>, Option<&OlderSeries>) {
        self.older.as_ref().map_or((Some(id), None), |older| older.parts(id))
    }

    /// Clips a range to the scope's time.
    pub(super) fn visible_in_older(&self, range: TimeRange) -> TimeRange {
        let least = self.scope.min_time.unwrap_or(Timestamp::MIN);
        TimeRange::new(range.start.max(least), range.end)
    }
}

impl Paced<'_> {
    /// Returns the union of series that the store selected, in order of labels, and of those that
    /// the older source has for the same selection.
    pub(super) fn with_older(
        &self,
        stored: Vec<SelectedSeries>,
        matchers: &[Matcher],
        range: TimeRange,
    ) -> Result<Vec<SelectedSeries>, Stopped> {
        let Some(older) = &self.snapshot.older else { return Ok(stored) };
        let range = self.snapshot.visible_in_older(range);
        self.pace.spend_each(older.series.len().saturating_add(stored.len()), ORDER_UNITS)?;
        self.pace.hold_each(older.series.len(), size_of::<SelectedSeries>())?;
        let mut all = Vec::with_capacity(stored.len().saturating_add(older.series.len()));
        let mut stored = stored.into_iter().peekable();
        for (number, series) in (FIRST_OLDER..).zip(&older.series) {
            let labels = &series.samples.labels;
            let mut passes = true;
            for matcher in matchers {
                passes = passes && matcher.admits_within(labels, self.pace)?;
            }
            if !passes {
                continue;
            }
            while let Some(one) = stored.next_if(|one| one.labels < *labels) {
                all.push(one);
            }
            let same = stored.next_if(|one| one.labels == *labels);
            if same.is_none() && !series.has_any(range) {
                continue;
            }
            let id = series.local.unwrap_or(SeriesId(number));
            let labels = same.map_or_else(|| labels.clone(), |same| same.labels);
            all.push(SelectedSeries { id, labels });
        }
        all.extend(stored);
        Ok(all)
    }

    /// Like [`Paced::select_grouped`], for selections from both sources.
    pub(super) fn group_both(
        &self,
        all: Vec<SelectedSeries>,
        is_group_label: &dyn Fn(&str) -> bool,
        is_dropped: &dyn Fn(&str) -> bool,
    ) -> Result<Grouped, Stopped> {
        self.pace.spend_each(all.len(), ORDER_UNITS)?;
        self.pace.hold_each(all.len(), size_of::<GroupedSeries>() + 2 * size_of::<(Labels, u32)>())?;
        let name = all.first().map_or_else(|| "".into(), |first| Arc::from(first.labels.metric_name()));
        let differ = differ(&all, is_dropped);
        let mut numbers: RapidHashMap<Labels, u32> = RapidHashMap::default();
        let mut groups: Vec<Labels> = Vec::new();
        let mut series = Vec::with_capacity(all.len());
        for one in all {
            let labels = one.labels.filtered(is_group_label);
            let group = match numbers.get(&labels) {
                Some(group) => *group,
                None => {
                    let group = u32::try_from(groups.len()).map_err(|_| Stopped)?;
                    groups.push(labels.clone());
                    numbers.insert(labels, group);
                    group
                }
            };
            series.push(GroupedSeries { id: one.id, group });
        }
        Ok(Grouped { series, groups, name, differ })
    }

    /// Like [`Paced::select_without`], for selections from both sources.
    pub(super) fn drop_labels(
        &self,
        mut all: Vec<SelectedSeries>,
        is_dropped: &dyn Fn(&str) -> bool,
    ) -> Result<Option<NamedSeries>, Stopped> {
        self.pace.spend_each(all.len(), ORDER_UNITS)?;
        if differ(&all, is_dropped) {
            return Ok(None);
        }
        let name = all.first().map_or_else(|| "".into(), |first| Arc::from(first.labels.metric_name()));
        for one in &mut all {
            one.labels = one.labels.filtered(|name| !is_dropped(name));
        }
        Ok(Some((name, all)))
    }

    /// Returns whether a series of the older source passes any of the selectors and has samples in
    /// the range. Without selectors, all series pass.
    pub(super) fn exists_in_older(
        &self,
        selectors: &[Vec<Matcher>],
        range: TimeRange,
    ) -> Result<bool, Stopped> {
        let Some(older) = &self.snapshot.older else { return Ok(false) };
        let range = self.snapshot.visible_in_older(range);
        self.pace.spend_each(older.series.len(), ORDER_UNITS)?;
        for series in older.series.iter().filter(|series| series.has_any(range)) {
            let mut passes = selectors.is_empty();
            for matchers in selectors {
                let mut all = true;
                for matcher in matchers {
                    all = all && matcher.admits_within(&series.samples.labels, self.pace)?;
                }
                passes = passes || all;
            }
            if passes {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Returns whether any two series differ in a dropped label.
fn differ(all: &[SelectedSeries], is_dropped: &dyn Fn(&str) -> bool) -> bool {
    let Some((first, more)) = all.split_first() else { return false };
    let first = first.labels.filtered(is_dropped);
    more.iter().any(|series| series.labels.filtered(is_dropped) != first)
}

#[cfg(test)]
pub(super) mod tests;
