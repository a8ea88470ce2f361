//! What there is: names, values, series, metrics, descriptions. The scope holds in every one of them.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use super::Snapshot;
use super::find::Hit;
use crate::model::{Labels, Matcher, MetricKind, TimeRange, Timestamp};
use crate::tsdb::report::{Description, Listing, Metric, MetricFilter};
use crate::tsdb::series::metadata::{Known, Metadata};
use crate::tsdb::series::table::Family;

/// What senders append to a metric's (family) name in the names of its series.
const SUFFIXES: [&str; 6] = ["_bucket", "_count", "_sum", "_total", "_created", "_info"];

impl Snapshot {
    /// The label names of all series that pass any of the selectors (none given: all), the scope and the range; sorted.
    pub fn label_names(
        &self,
        selectors: &[Vec<Matcher>],
        range: TimeRange,
        limit: usize,
    ) -> Listing<Arc<str>> {
        let Some(store) = &self.store else { return Listing::default() };
        let table = store.table();
        let mut codes = HashSet::new();
        let mut families = HashSet::new();
        for hit in self.find(store, &table, &slices(selectors), range) {
            if families.insert(first_id(hit.family)) {
                codes.extend(hit.family.names.iter().copied());
            }
        }
        let names = codes.into_iter().filter_map(|code| table.names.text(code).map(Arc::clone));
        cut(names.collect(), limit)
    }

    /// The values of one label among those series; sorted.
    pub fn label_values(
        &self,
        name: &str,
        selectors: &[Vec<Matcher>],
        range: TimeRange,
        limit: usize,
    ) -> Listing<Arc<str>> {
        let Some(store) = &self.store else { return Listing::default() };
        let table = store.table();
        let Some(name) = table.names.code(name) else { return Listing::default() };
        let mut codes = HashSet::new();
        for hit in self.find(store, &table, &slices(selectors), range) {
            let column =
                hit.family.names.iter().position(|n| *n == name).and_then(|at| hit.family.columns.get(at));
            codes.extend(column.and_then(|column| column.code(hit.row)));
        }
        let values = table.values(name);
        let texts = codes.into_iter().filter_map(|code| values.and_then(|v| v.text(code)).map(Arc::clone));
        cut(texts.collect(), limit)
    }

    /// The label sets of those series; sorted.
    pub fn series(&self, selectors: &[Vec<Matcher>], range: TimeRange, limit: usize) -> Listing<Labels> {
        let Some(store) = &self.store else { return Listing::default() };
        let table = store.table();
        let hits = self.find(store, &table, &slices(selectors), range);
        cut(hits.iter().map(|hit| table.row_labels(hit.family, hit.row)).collect(), limit)
    }

    /// Metrics with samples in `range`, by filter; sorted by name. For the next page ask for names after the last one.
    pub fn metrics(&self, filter: &MetricFilter<'_>, range: TimeRange, limit: usize) -> Listing<Metric> {
        let Some(store) = &self.store else { return Listing::default() };
        let table = store.table();
        let mut by_name: BTreeMap<&Arc<str>, (u64, i64)> = BTreeMap::new();
        let hits = self.find(store, &table, &slices(filter.selectors), range);
        let set = store.segments();
        for Hit { id, family, last_in_head, .. } in hits {
            let Some(name) = table.metric_name(family) else { continue };
            let paged = filter.after.is_none_or(|after| &**name > after);
            if paged && name.starts_with(filter.prefix) && name.contains(filter.search) {
                let (series, last_seen) = by_name.entry(name).or_insert((0, i64::MIN));
                *series += 1;
                let Some(number) = table.family_of(id) else { continue };
                *last_seen = Snapshot::last_of(&set, number, id, last_in_head).max(*last_seen);
            }
        }
        let truncated = by_name.len() > limit;
        let metric = |(name, (series, last_seen)): (&Arc<str>, (u64, i64))| {
            let known = describe(&table.metadata, name).map(|(_, known)| known.clone());
            let Known { kind, help, unit } = known.unwrap_or_else(unknown);
            Metric {
                name: Arc::clone(name),
                kind,
                help,
                unit,
                series,
                last_seen: Timestamp::from_ms(last_seen),
            }
        };
        Listing { items: by_name.into_iter().take(limit).map(metric).collect(), truncated }
    }

    /// What senders said about metrics of which the scope admits at least one series; sorted by name. `metric`: only
    /// this (family) name.
    pub fn metadata(&self, metric: Option<&str>, limit: usize) -> Listing<Description> {
        let Some(store) = &self.store else { return Listing::default() };
        let table = store.table();
        let visible: Option<BTreeSet<&Arc<str>>> = self.is_scoped().then(|| {
            let hits = self.find(store, &table, &[], TimeRange::ALL);
            let seen: HashSet<u32> = hits.iter().map(|hit| first_id(hit.family)).collect();
            let families = table.families.iter().filter(|family| seen.contains(&first_id(family)));
            let described =
                families.filter_map(|family| describe(&table.metadata, table.metric_name(family)?));
            described.map(|(name, _)| name).collect()
        });
        let mut listing = Listing::default();
        for (name, known) in table.metadata.iter() {
            let asked = metric.is_none_or(|metric| metric == &**name);
            if !asked || visible.as_ref().is_some_and(|visible| !visible.contains(name)) {
                continue;
            }
            if listing.items.len() == limit {
                listing.truncated = true;
                break;
            }
            let Known { kind, help, unit } = known.clone();
            listing.items.push(Description { name: Arc::clone(name), kind, help, unit });
        }
        listing
    }
}

/// A family's own number: no two have the same first series.
fn first_id(family: &Family) -> u32 {
    family.ids.first().copied().unwrap_or(u32::MAX)
}

fn unknown() -> Known {
    Known { kind: MetricKind::Unknown, help: "".into(), unit: "".into() }
}

/// What was said about the metric that a series' name belongs to: under that name, or without its suffix.
fn describe<'m>(metadata: &'m Metadata, series_name: &str) -> Option<(&'m Arc<str>, &'m Known)> {
    let stripped = || SUFFIXES.iter().filter_map(|suffix| series_name.strip_suffix(suffix));
    metadata.get(series_name).or_else(|| stripped().find_map(|name| metadata.get(name)))
}

fn slices(selectors: &[Vec<Matcher>]) -> Vec<&[Matcher]> {
    selectors.iter().map(Vec::as_slice).collect()
}

fn cut<T: Ord>(mut all: Vec<T>, limit: usize) -> Listing<T> {
    all.sort_unstable();
    let truncated = all.len() > limit;
    all.truncate(limit);
    Listing { items: all, truncated }
}
