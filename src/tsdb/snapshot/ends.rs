//! Times after which a snapshot hides samples: a reader sees series as they were before later
//! samples of them were written.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::Snapshot;
use crate::model::{Labels, TimeRange, Timestamp};
use crate::tsdb::report::SeriesId;
use crate::tsdb::store::OrgStore;

/// The last visible time of series, inclusive. Other series have no end.
#[derive(Clone, Debug, Default)]
pub struct SeriesEnds {
    /// That of all series of a metric.
    pub metrics: BTreeMap<String, Timestamp>,
    /// That of single series of these metrics, in place of the one of the metric.
    pub series: HashMap<Labels, Timestamp>,
}

impl Snapshot {
    /// Hides the samples after these ends from all reads, native histograms and start timestamps
    /// included. Selections may return series of which all samples are hidden, as they do for a
    /// range between two samples. Exemplars and listings do not change.
    #[must_use]
    pub fn with_ends(self, ends: SeriesEnds) -> Snapshot {
        let ends = (!ends.metrics.is_empty()).then(|| Arc::new(ends));
        Snapshot { ends, ..self }
    }

    /// Clips a range to the visible times of a series: those of [`Snapshot::within`], until the end
    /// of the series.
    pub(super) fn visible(&self, store: &OrgStore, id: SeriesId, range: TimeRange) -> TimeRange {
        let range = self.within(range);
        let end = self.ends.as_ref().and_then(|ends| self.end_of(ends, store, id));
        TimeRange::new(range.start, end.map_or(range.end, |end| range.end.min(end)))
    }

    fn end_of(&self, ends: &SeriesEnds, store: &OrgStore, id: SeriesId) -> Option<Timestamp> {
        let table = self.table(store).ok()?;
        let family = table.families.get(table.family_of(id.0)? as usize)?;
        let end = *ends.metrics.get(&**table.metric_name(family)?)?;
        if ends.series.is_empty() {
            return Some(end);
        }
        let labels = table.labels(id.0)?;
        drop(table);
        Some(ends.series.get(&labels).map_or(end, |end| *end))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::older::tests::{Kind, ORG, Samples, fill, kinds, labels, newest_of, read_all, store};
    use super::*;
    use crate::model::{Access, BatchBuilder, HistogramColumns, Sample, StartChange};
    use crate::tsdb::report::SampleColumns;
    use crate::tsdb::tests::open_with;
    use crate::tsdb::{Options, Tsdb};

    fn until(samples: &Samples, end: i64) -> Samples {
        samples.range(..=end).map(|(at, kind)| (*at, *kind)).collect()
    }

    proptest! {
        /// Some series of a metric have ends of their own, and some samples are sealed.
        #[test]
        fn a_snapshot_with_ends_reads_what_a_store_without_the_later_samples_has(
            all in prop::collection::btree_map(
                0u8..6, prop::collection::btree_map(0i64..40, kinds(), 0..20), 1..6,
            ),
            end in -1i64..45, own in prop::option::of((0u8..3, -1i64..45)), is_sealed: bool,
            (from, to, back) in (0i64..40, 0i64..40, 0i64..10),
        ) {
            let dir = tempfile::tempdir().expect("a folder");
            let opened = is_sealed.then(|| open_with(dir.path(), Options::default()).0);
            let in_memory = Tsdb::scaffold();
            let full = opened.as_deref().unwrap_or(&in_memory);
            fill(full, &all);
            if is_sealed {
                full.seal(Timestamp::from_ms(1_000)).expect("sealed");
            }
            let mut cut = all.clone();
            let metric = labels(0).metric_name().to_owned();
            let mut ends = SeriesEnds::default();
            ends.metrics.insert(metric.clone(), Timestamp::from_ms(end));
            let own = own.map(|(place, end)| (place * 2, end));
            ends.series.extend(own.map(|(series, end)| (labels(series), Timestamp::from_ms(end))));
            for (series, samples) in &mut cut {
                if labels(*series).metric_name() == metric {
                    let own = own.filter(|(owner, _)| owner == series).map(|(_, end)| end);
                    *samples = until(samples, own.unwrap_or(end));
                }
            }
            let cut = store(&cut);
            let range = TimeRange::new(Timestamp::from_ms(from), Timestamp::from_ms(to));
            let histograms_from = range.start.plus_ms(-back);
            let [shown, expected] = [full, &cut].map(|tsdb| tsdb.snapshot(&Access::whole(ORG)));
            let shown = shown.with_ends(ends);
            prop_assert_eq!(
                read_all(&shown, range, histograms_from, false),
                read_all(&expected, range, histograms_from, false)
            );
            prop_assert_eq!(
                newest_of(read_all(&shown, range, range.start, true)),
                newest_of(read_all(&expected, range, range.start, true))
            );
        }
    }

    #[test]
    fn every_read_of_a_snapshot_with_ends_hides_later_samples() {
        let samples =
            [(10, Kind::Float(1)), (20, Kind::Native(2)), (30, Kind::Float(3)), (40, Kind::Native(4))];
        let tsdb = store(&[(0, samples.into())].into());
        let whole = tsdb.snapshot(&Access::whole(ORG));
        let id = whole.select(&[], TimeRange::ALL)[0].id;
        let all = TimeRange::ALL;
        let times = |snapshot: &Snapshot| {
            let (mut read, mut both) = (SampleColumns::default(), SampleColumns::default());
            let (mut histograms, mut natives) = (HistogramColumns::default(), HistogramColumns::default());
            snapshot.read(id, all, &mut read);
            snapshot.read_both(id, all, all.start, &mut both, &mut natives);
            snapshot.read_histograms(id, all, &mut histograms);
            [read.times, both.times, natives.times, histograms.times]
        };
        let until = |end: i64, own: Option<i64>| {
            let metrics = [(labels(0).metric_name().to_owned(), Timestamp::from_ms(end))].into();
            let series = own.map(|end| (labels(0), Timestamp::from_ms(end))).into_iter().collect();
            times(&whole.clone().with_ends(SeriesEnds { metrics, series }))
        };
        let shown = |floats: &[i64], natives: &[i64]| [floats, floats, natives, natives].map(<[i64]>::to_vec);
        assert_eq!(times(&whole), shown(&[10, 30], &[20, 40]));
        assert_eq!(until(39, None), shown(&[10, 30], &[20]));
        assert_eq!(until(20, None), shown(&[10], &[20]));
        assert_eq!(until(19, None), shown(&[10], &[]));
        assert_eq!(until(9, None), shown(&[], &[]));
        assert_eq!(until(9, Some(30)), shown(&[10, 30], &[20]));
    }

    #[test]
    fn a_snapshot_with_ends_has_no_start_timestamps_of_later_samples() {
        let (tsdb, labels, mut batch) = (Tsdb::scaffold(), labels(0), BatchBuilder::default());
        let at = Timestamp::from_ms;
        batch.series(&labels, [10, 20].map(|ms| Sample { at: at(ms), value: 1.0 }));
        batch.start(at(10), at(5)).start(at(20), at(15));
        tsdb.append(ORG, &batch.batch(), at(1_000)).expect("stored");
        let starts = |end: i64, range: TimeRange| -> Vec<StartChange> {
            let metrics = [(labels.metric_name().to_owned(), at(end))].into();
            let ends = SeriesEnds { metrics, series: HashMap::new() };
            let snapshot = tsdb.snapshot(&Access::whole(ORG)).with_ends(ends);
            let id = snapshot.select(&[], TimeRange::ALL)[0].id;
            snapshot.starts(id, range)
        };
        let first = StartChange { at: at(10), start: at(5) };
        let second = StartChange { at: at(20), start: at(15) };
        assert_eq!(starts(20, TimeRange::ALL), [first, second]);
        assert_eq!(starts(19, TimeRange::ALL), [first]);
        assert_eq!(starts(9, TimeRange::ALL), []);
        assert_eq!(starts(9, TimeRange::new(at(15), at(30))), []);
    }

    #[test]
    fn a_cached_result_of_a_snapshot_with_ends_is_not_kept() {
        let samples = Samples::from([(1, Kind::Float(1))]);
        let tsdb = store(&[(0, samples)].into());
        let snapshot = tsdb.snapshot(&Access::whole(ORG));
        assert!(snapshot.version().is_some());
        let metrics = [(labels(0).metric_name().to_owned(), Timestamp::from_ms(0))].into();
        let ends = SeriesEnds { metrics, series: HashMap::new() };
        assert_eq!(snapshot.with_ends(ends).version(), None);
    }
}
