//! What there is: names, values, series, metrics, descriptions. The scope holds in every one of them.
//!
//! Answered from the table's columns: a name or a value that was seen is not looked for again, so a question ends with
//! what is distinct and not with what is there; only what is still unseen costs a look at a series' samples.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::find::Found;
use super::labelled::labelled;
use super::presence::{Presence, look};
use super::{Snapshot, order};
use crate::model::{Labels, METRIC_NAME, Matcher, MetricKind, TimeRange, Timestamp};
use crate::tsdb::report::{Description, LabelSummary, Listing, Metric, MetricFilter};
use crate::tsdb::series::metadata::{Known, Metadata};
use crate::tsdb::series::table::{Dictionary, Table};

/// What senders append to a metric's (family) name in the names of its series.
const SUFFIXES: [&str; 6] = ["_bucket", "_count", "_sum", "_total", "_created", "_info"];

/// Codes of a dictionary that were seen.
pub(super) struct Seen {
    bits: Vec<u64>,
    count: usize,
    codes: usize,
}

impl Seen {
    pub(super) fn new(dictionary: &Dictionary) -> Seen {
        let codes = dictionary.len();
        Seen { bits: vec![0; codes.div_ceil(64)], count: 0, codes }
    }

    pub(super) fn has(&self, code: u32) -> bool {
        self.bits.get(code as usize / 64).is_some_and(|word| word >> (code % 64) & 1 == 1)
    }

    /// Answers whether it is new.
    pub(super) fn insert(&mut self, code: u32) -> bool {
        let Some(word) = self.bits.get_mut(code as usize / 64) else { return false };
        let is_new = *word >> (code % 64) & 1 == 0;
        *word |= 1 << (code % 64);
        self.count += usize::from(is_new);
        is_new
    }

    pub(super) const fn count(&self) -> usize {
        self.count
    }

    /// Whether there is nothing left to see.
    pub(super) const fn is_full(&self) -> bool {
        self.count == self.codes
    }

    fn codes(&self) -> impl Iterator<Item = u32> {
        (0u32..).zip(&self.bits).flat_map(|(place, word)| {
            let mut left = *word;
            std::iter::from_fn(move || {
                let bit = left.trailing_zeros();
                left &= left.checked_sub(1)?;
                Some(place * 64 + bit)
            })
        })
    }

    /// The first of the texts in order.
    pub(super) fn texts<'d>(&self, dictionary: &'d Dictionary, limit: usize) -> Vec<&'d Arc<str>> {
        /// Sorting everything once, for good, costs less than sorting so many parts of it each time.
        const PART: usize = 16;
        if self.count >= dictionary.len() / PART {
            let order = dictionary.order();
            let seen = order.iter().filter(|code| self.has(**code));
            return seen.take(limit).filter_map(|code| dictionary.text(*code)).collect();
        }
        let mut texts: Vec<&Arc<str>> = self.codes().filter_map(|code| dictionary.text(code)).collect();
        texts.sort_unstable();
        texts.truncate(limit);
        texts
    }

    fn listing(&self, dictionary: &Dictionary, limit: usize) -> Listing<Arc<str>> {
        let items = self.texts(dictionary, limit).into_iter().map(Arc::clone).collect();
        Listing { items, truncated: self.count > limit }
    }
}

/// Takes in the values of one label among the rows of a family.
pub(super) fn see_values(found: &Found<'_>, name: u32, presence: &mut Presence<'_>, seen: &mut Seen) {
    let Some(column) = found.family.column(name) else { return };
    let number = found.number;
    match column.same() {
        Some(code) => {
            if !seen.has(code) && presence.has_any(found) {
                seen.insert(code);
            }
        }
        None => found.while_true(|row, id| {
            if let Some(code) = column.code(row)
                && !seen.has(code)
                && presence.has(number, id)
            {
                seen.insert(code);
            }
            !seen.is_full()
        }),
    }
}

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
        let found = self.families(&table, &slices(selectors));
        let seen = look(self, store, range, |presence| {
            let mut seen = Seen::new(&table.names);
            for one in &found {
                let is_new = one.family.names.iter().any(|name| !seen.has(*name));
                if is_new && presence.has_any(one) {
                    for name in &one.family.names {
                        seen.insert(*name);
                    }
                }
            }
            seen
        });
        seen.listing(&table.names, limit)
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
        let Some(values) = table.values(name) else { return Listing::default() };
        let found = self.families(&table, &slices(selectors));
        let seen = look(self, store, range, |presence| {
            let mut seen = Seen::new(values);
            for one in &found {
                if seen.is_full() {
                    break;
                }
                see_values(one, name, presence, &mut seen);
            }
            seen
        });
        seen.listing(values, limit)
    }

    /// The labels of those series but the metric name, each with the number of its values and the first of them.
    pub fn label_summaries(
        &self,
        selectors: &[Vec<Matcher>],
        range: TimeRange,
        values_max: usize,
    ) -> Vec<LabelSummary> {
        let Some(store) = &self.store else { return Vec::new() };
        let table = store.table();
        let found = self.families(&table, &slices(selectors));
        let metric = table.names.code(METRIC_NAME);
        let names: BTreeSet<u32> = found.iter().flat_map(|one| one.family.names.iter().copied()).collect();
        let mut summaries: Vec<LabelSummary> = look(self, store, range, |presence| {
            let all = names.iter().filter(|name| Some(**name) != metric).filter_map(|name| {
                let values = table.values(*name)?;
                let mut seen = Seen::new(values);
                for one in &found {
                    see_values(one, *name, presence, &mut seen);
                }
                let shown = seen.texts(values, values_max).into_iter().map(Arc::clone).collect();
                let name = Arc::clone(table.names.text(*name)?);
                Some(LabelSummary { name, count: seen.count(), values: shown })
            });
            all.filter(|summary| summary.count > 0).collect()
        });
        summaries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        summaries
    }

    /// Whether any series passes.
    pub fn exists(&self, selectors: &[Vec<Matcher>], range: TimeRange) -> bool {
        let Some(store) = &self.store else { return false };
        let table = store.table();
        let found = self.families(&table, &slices(selectors));
        look(self, store, range, |presence| found.iter().any(|one| presence.has_any(one)))
    }

    /// The label sets of those series; sorted.
    pub fn series(&self, selectors: &[Vec<Matcher>], range: TimeRange, limit: usize) -> Listing<Labels> {
        let Some(store) = &self.store else { return Listing::default() };
        let table = store.table();
        let mut hits = order::by_labels(&table, &self.find(store, &table, &slices(selectors), range));
        let truncated = hits.len() > limit;
        hits.truncate(limit);
        let items = labelled(&table, &hits, &|_| true).into_iter().map(|series| series.labels).collect();
        Listing { items, truncated }
    }

    /// Metrics with samples in `range`, by filter; sorted by name. For the next page ask for names after the last one.
    pub fn metrics(&self, filter: &MetricFilter<'_>, range: TimeRange, limit: usize) -> Listing<Metric> {
        let Some(store) = &self.store else { return Listing::default() };
        let table = store.table();
        let mut by_name: BTreeMap<&Arc<str>, Vec<Found<'_>>> = BTreeMap::new();
        for one in self.families(&table, &slices(filter.selectors)) {
            let Some(name) = table.metric_name(one.family) else { continue };
            let paged = filter.after.is_none_or(|after| &**name > after);
            if paged && name.starts_with(filter.prefix) && name.contains(filter.search) {
                by_name.entry(name).or_default().push(one);
            }
        }
        let everything = filter.selectors.is_empty()
            && self.scope.matchers.is_empty()
            && self.scope.min_time.is_none()
            && by_name.len() <= limit;
        look(self, store, range, |presence| {
            let counted = if everything { Counted::of(&table, presence) } else { Counted::default() };
            let metrics = by_name.iter().filter_map(|(name, families)| {
                let (series, last_seen) = counted.finish(families, presence)?;
                Some(described(&table, name, series, last_seen))
            });
            // One more than asked for tells whether there is more.
            let mut items: Vec<Metric> = metrics.take(limit.saturating_add(1)).collect();
            let truncated = items.len() > limit;
            items.truncate(limit);
            Listing { items, truncated }
        })
    }

    /// What senders said about metrics of which the scope admits at least one series; sorted by name. `metric`: only
    /// this (family) name.
    pub fn metadata(&self, metric: Option<&str>, limit: usize) -> Listing<Description> {
        let Some(store) = &self.store else { return Listing::default() };
        let table = store.table();
        let visible: Option<BTreeSet<&Arc<str>>> = self.is_scoped().then(|| {
            let found = self.families(&table, &[]);
            look(self, store, TimeRange::ALL, |presence| {
                let seen = found.iter().filter(|one| presence.has_any(one));
                seen.filter_map(|one| describe(&table.metadata, table.metric_name(one.family)?))
                    .map(|(name, _)| name)
                    .collect()
            })
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

/// What was counted in one pass over the head.
#[derive(Default)]
struct Counted {
    /// Series and the time of the newest sample, by number of the family.
    families: Vec<(u64, i64)>,
    /// A bit for each series that was counted.
    series: Vec<u64>,
}

impl Counted {
    fn of(table: &Table, presence: &Presence<'_>) -> Counted {
        let mut counted = Counted {
            families: vec![(0, i64::MIN); table.families.len()],
            series: vec![0; (table.ids_end() as usize).div_ceil(64)],
        };
        presence.each_in_head(|id, newest| {
            let family = table.family_of(id).and_then(|number| counted.families.get_mut(number as usize));
            if let (Some((series, last)), Some(word)) = (family, counted.series.get_mut(id as usize / 64)) {
                *series += 1;
                *last = newest.max(*last);
                *word |= 1 << (id % 64);
            }
        });
        counted
    }

    /// How many series of these families have samples, and the time of the newest; nothing where none has. Looks for
    /// those that were not counted.
    fn finish(&self, families: &[Found<'_>], presence: &mut Presence<'_>) -> Option<(u64, i64)> {
        let (mut series, mut last_seen) = (0, i64::MIN);
        for one in families {
            let (before, newest) = self.families.get(one.number as usize).copied().unwrap_or((0, i64::MIN));
            series += before;
            last_seen = newest.max(last_seen);
            if before == one.family.ids.len() as u64 {
                continue;
            }
            one.while_true(|_, id| {
                let is_counted =
                    self.series.get(id as usize / 64).is_some_and(|word| word >> (id % 64) & 1 == 1);
                if !is_counted && let Some(newest) = presence.newest(one.number, id) {
                    series += 1;
                    last_seen = newest.max(last_seen);
                }
                true
            });
        }
        (series > 0).then_some((series, last_seen))
    }
}

fn described(table: &Table, name: &Arc<str>, series: u64, last_seen: i64) -> Metric {
    let known = describe(&table.metadata, name).map(|(_, known)| known.clone());
    let Known { kind, help, unit } = known.unwrap_or_else(unknown);
    Metric { name: Arc::clone(name), kind, help, unit, series, last_seen: Timestamp::from_ms(last_seen) }
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
