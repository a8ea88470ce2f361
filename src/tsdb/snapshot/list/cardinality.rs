//! Cardinality: the metrics, labels and values with the most series in an organisation.
//!
//! It takes one pass over the columns of the families. Samples are read only if the scope hides
//! time.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::{METRIC_NAME, Pace, Stopped, TimeRange, Timestamp};
use crate::tsdb::report::{Cardinality, Tally};
use crate::tsdb::snapshot::select::liveness::with_liveness;
use crate::tsdb::snapshot::select::matching::RowBatch;
use crate::tsdb::snapshot::{Paced, Snapshot};

/// Values whose texts are read under one lock.
const VALUES_AT_ONCE: usize = 1 << 14;

/// The series of one label.
#[derive(Default)]
struct LabelCounts {
    /// The number of series by the code of the value.
    series: Vec<u64>,
}

impl Paced<'_> {
    /// Returns counts of the scope's series, and the `limit` greatest of each kind.
    ///
    /// # Errors
    /// [`Stopped`] if the pace stops the request.
    pub fn cardinality(&self, limit: usize) -> Result<Cardinality, Stopped> {
        let Paced { snapshot, pace } = self;
        let Some(store) = &snapshot.store else { return Ok(Cardinality::default()) };
        let found = self.families(store, &[])?;
        // Series count with and without samples, because they take memory either way. If the scope
        // hides time, series with only hidden samples must not be revealed.
        let hides_time = snapshot.scope.min_time.is_some();
        let (series, labels) = with_liveness(self, store, TimeRange::ALL, |liveness| {
            let mut labels: BTreeMap<u32, LabelCounts> = BTreeMap::new();
            let mut series = 0u64;
            let (mut batch, mut is_live) = (RowBatch::default(), Vec::new());
            for one in &found {
                let units = if hides_time { liveness.row_units() } else { 4 };
                pace.hold_each(one.len(), size_of::<u32>())?;
                let mut rows: Vec<u32> = Vec::new();
                one.batches(self, store, &mut batch, units, |batch| {
                    if hides_time {
                        liveness.mark(one.number, batch.ids(), &mut is_live);
                        let shown = batch.rows().iter().zip(&is_live).filter(|(_, is_live)| **is_live);
                        rows.extend(shown.map(|(row, _)| row));
                    } else {
                        rows.extend(batch.rows());
                    }
                    Ok(true)
                })?;
                series += rows.len() as u64;
                let names = one.family(&*self.table(store)?)?.names.clone();
                for name in names {
                    // The table is locked for one column at a time, which takes a few milliseconds
                    // at most.
                    let table = self.table(store)?;
                    let column = one.family(&table)?.column(name);
                    let (Some(column), Some(values)) = (column, table.values(name)) else { continue };
                    let label = labels.entry(name).or_default();
                    let more = values.len().saturating_sub(label.series.len());
                    pace.hold_each(more, size_of::<u64>())?;
                    pace.spend_each(more, 1)?;
                    label.series.resize(values.len(), 0);
                    if column.same().is_none() {
                        pace.spend_each(rows.len(), 4)?;
                    }
                    let mut add = |code: u32, more: u64| {
                        if let Some(count) = label.series.get_mut(code as usize) {
                            *count += more;
                        }
                    };
                    match column.same() {
                        Some(code) => add(code, rows.len() as u64),
                        None => {
                            let codes = rows.iter().filter_map(|row| column.code(*row as usize));
                            codes.for_each(|code| add(code, 1));
                        }
                    }
                }
                pace.release((one.len() * size_of::<u32>()) as u64);
            }
            Ok((series, labels))
        })?;
        let metric = self.table(store)?.names.code(METRIC_NAME);
        let mut result = Cardinality { series, ..Cardinality::default() };
        let (mut metrics, mut pairs) = (TopCounts::new(limit), TopCounts::new(limit));
        let (mut values_of, mut bytes_of) = (TopCounts::new(limit), TopCounts::new(limit));
        for (name, label) in &labels {
            let Some(text) = self.table(store)?.names.text(*name).map(Arc::clone) else { continue };
            let (mut distinct, mut bytes) = (0, 0);
            let counts = label.series.chunks(VALUES_AT_ONCE);
            for (first, counts) in (0u32..).step_by(VALUES_AT_ONCE).zip(counts) {
                pace.spend_each(counts.len(), 20)?;
                let table = self.table(store)?;
                let Some(values) = table.values(*name) else { continue };
                for (code, series) in (first..).zip(counts).filter(|(_, series)| **series > 0) {
                    let Some(value) = values.text(code) else { continue };
                    distinct += 1;
                    bytes += value.len() as u64;
                    pairs.offer(*series, pace, || format!("{text}={value}"))?;
                    if Some(*name) == metric {
                        metrics.offer(*series, pace, || value.to_string())?;
                    }
                }
            }
            result.label_pairs += distinct;
            if distinct > 0 {
                values_of.offer(distinct, pace, || text.to_string())?;
                bytes_of.offer(bytes, pace, || text.to_string())?;
            }
        }
        result.series_by_metric = metrics.finish();
        result.series_by_pair = pairs.finish();
        result.values_by_label = values_of.finish();
        result.bytes_by_label = bytes_of.finish();
        (result.oldest, result.newest) = snapshot.reach();
        Ok(result)
    }
}

impl Snapshot {
    /// Returns the least and the greatest time of any stored sample, or None if the scope hides
    /// anything.
    fn reach(&self) -> (Option<Timestamp>, Option<Timestamp>) {
        let Some(store) = &self.store else { return (None, None) };
        let head = (store.least_ms(), store.greatest_ms());
        let set = store.segments();
        let metas = set.metas();
        let first = metas.iter().map(|meta| meta.min_ms).chain(head.0).min();
        let last = metas.iter().map(|meta| meta.max_ms).chain(head.1).max();
        let shown = |ms: i64| self.within(TimeRange::new(Timestamp::from_ms(ms), Timestamp::MAX)).start;
        // A restricted scope must not reveal the times of hidden samples.
        let whole = self.scope.is_whole();
        (first.filter(|_| whole).map(shown), last.filter(|_| whole).map(shown))
    }
}

/// The greatest counts so far. Texts are created only for entries that are kept, and their memory
/// is charged to the pace.
struct TopCounts {
    limit: usize,
    /// Unsorted until it has more than `2 * limit` entries.
    kept: Vec<(Reverse<u64>, Arc<str>)>,
    /// The count that a new entry needs.
    least: u64,
    /// Charged bytes of dropped texts.
    dropped: u64,
}

/// Returns the bytes of an entry with this text.
const fn bytes_of(text: &str) -> u64 {
    (text.len() + 48) as u64
}

impl TopCounts {
    fn new(limit: usize) -> TopCounts {
        TopCounts { limit, kept: Vec::new(), least: 0, dropped: 0 }
    }

    fn offer(&mut self, count: u64, pace: &Pace<'_>, text: impl FnOnce() -> String) -> Result<(), Stopped> {
        if count < self.least {
            return Ok(());
        }
        let text = text();
        pace.hold(bytes_of(&text))?;
        self.kept.push((Reverse(count), text.into()));
        if self.kept.len() > self.limit.saturating_mul(2) {
            self.cut();
            let least = self.kept.last().map_or(0, |(Reverse(count), _)| *count);
            self.least = least;
            pace.release(std::mem::take(&mut self.dropped));
        }
        Ok(())
    }

    fn cut(&mut self) {
        // Equal counts are ordered by text, so the same query always has the same result.
        self.kept.sort_unstable();
        let beyond = self.kept.get(self.limit..).unwrap_or_default();
        self.dropped += beyond.iter().map(|(_, text)| bytes_of(text)).sum::<u64>();
        self.kept.truncate(self.limit);
    }

    fn finish(mut self) -> Vec<Tally> {
        self.cut();
        self.kept.into_iter().map(|(Reverse(count), name)| Tally { name, count }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greatest_counts_are_kept_and_equal_counts_are_sorted_by_text() {
        for limit in [0, 1, 3, 1_000] {
            let mut top = TopCounts::new(limit);
            let offered: Vec<(u64, String)> =
                (0..200u64).map(|n| (n * 7 % 40, format!("{:03}", n * 13 % 200))).collect();
            for (count, text) in &offered {
                top.offer(*count, &Pace::endless(), || text.clone()).expect("endless");
            }
            let mut expected: Vec<(Reverse<u64>, &str)> =
                offered.iter().map(|(count, text)| (Reverse(*count), text.as_str())).collect();
            expected.sort_unstable();
            let kept = top.finish();
            let kept: Vec<(Reverse<u64>, &str)> =
                kept.iter().map(|one| (Reverse(one.count), &*one.name)).collect();
            assert_eq!(kept, expected[..limit.min(200)]);
        }
    }
}
