//! Listings of names, values, series, metrics and metadata. Each is restricted to the scope.
//!
//! Listings are computed from the table's columns. A name or value that was seen is not looked up
//! again, so a listing ends when all distinct texts are seen. Only unseen ones cost a probe of a
//! series' samples.

mod cardinality;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Paced;
use super::select::liveness::{Liveness, with_liveness, with_liveness_from};
use super::select::matching::FamilyMatch;
use crate::model::{
    Labels, METRIC_NAME, Matcher, MetricKind, Pace, Stopped, TimeRange, Timestamp, families_of,
};
use crate::tsdb::report::{Description, LabelSummary, Listing, Metric, MetricFilter};
use crate::tsdb::series::dictionary::ordered;
use crate::tsdb::series::metadata::{Metadata, StoredMetadata};
use crate::tsdb::series::table::{Dictionary, Table};
use crate::tsdb::store::OrgStore;

/// A set of codes of a dictionary.
pub(super) struct CodeSet {
    bits: Vec<u64>,
    count: usize,
    codes: usize,
}

impl CodeSet {
    /// Creates an empty set for codes below `codes`. Codes that are added to the dictionary later
    /// are ignored.
    ///
    /// # Errors
    /// [`Stopped`] if the pace stops the request.
    pub(super) fn new(codes: usize, pace: &Pace<'_>) -> Result<CodeSet, Stopped> {
        let words = codes.div_ceil(64);
        pace.spend(words as u64)?;
        pace.hold_each(words, size_of::<u64>())?;
        Ok(CodeSet { bits: vec![0; words], count: 0, codes })
    }

    pub(super) fn has(&self, code: u32) -> bool {
        self.bits.get(code as usize / 64).is_some_and(|word| word >> (code % 64) & 1 == 1)
    }

    /// Inserts a code, and returns whether it is new.
    pub(super) fn insert(&mut self, code: u32) -> bool {
        let known = (code as usize) < self.codes;
        let Some(word) = self.bits.get_mut(code as usize / 64).filter(|_| known) else { return false };
        let is_new = *word >> (code % 64) & 1 == 0;
        *word |= 1 << (code % 64);
        self.count += usize::from(is_new);
        is_new
    }

    pub(super) const fn count(&self) -> usize {
        self.count
    }

    /// Returns whether the set has all codes.
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

    /// Returns the first `limit` texts in order. A long sort runs while the table is not locked.
    ///
    /// # Errors
    /// [`Stopped`] if the pace stops the request.
    fn texts(
        &self,
        paced: &Paced<'_>,
        store: &OrgStore,
        of: DictionaryRef,
        limit: usize,
    ) -> Result<Vec<Arc<str>>, Stopped> {
        /// The cost of one text in a sort: one comparison per doubling.
        const SORT_UNITS: u64 = 300;
        /// One sort of the whole dictionary, which is cached, costs less than repeated sorts of
        /// more than 1 / `PART` of it.
        const PART: usize = 16;
        let pace = paced.pace;
        let table = paced.table(store)?;
        let Some(dictionary) = of.dictionary(&table) else { return Ok(Vec::new()) };
        pace.hold_each(self.count, size_of::<Arc<str>>())?;
        if self.count < dictionary.len() / PART {
            pace.spend_each(self.count, SORT_UNITS)?;
            pace.spend(self.bits.len() as u64)?;
            let seen = self.codes().filter_map(|code| dictionary.text(code));
            let mut texts: Vec<Arc<str>> = seen.map(Arc::clone).collect();
            drop(table);
            texts.sort_unstable();
            texts.truncate(limit);
            return Ok(texts);
        }
        pace.spend_each(dictionary.unordered(), SORT_UNITS)?;
        pace.spend_each(dictionary.len(), 2)?;
        let order = dictionary.order_at_once(SORTED_UNDER_LOCK);
        // A second read lock beside this one would wait for a writer that waits for this one.
        drop(table);
        let order = match order {
            Some(order) => order,
            None => sorted(paced, store, of)?,
        };
        let table = paced.table(store)?;
        let Some(dictionary) = of.dictionary(&table) else { return Ok(Vec::new()) };
        let seen = order.iter().filter(|code| self.has(**code));
        Ok(seen.take(limit).filter_map(|code| dictionary.text(*code).map(Arc::clone)).collect())
    }

    fn listing(
        &self,
        paced: &Paced<'_>,
        store: &OrgStore,
        of: DictionaryRef,
        limit: usize,
    ) -> Result<Listing<Arc<str>>, Stopped> {
        Ok(Listing { items: self.texts(paced, store, of, limit)?, truncated: self.count > limit })
    }
}

/// Texts that are sorted, or merged into a sorted list, while the table is locked: some
/// milliseconds of work.
const SORTED_UNDER_LOCK: usize = if cfg!(test) { 3 } else { 1 << 14 };

/// A reference to a dictionary of the table.
#[derive(Clone, Copy)]
enum DictionaryRef {
    Names,
    /// The values of the name with this code.
    Values(u32),
}

impl DictionaryRef {
    fn dictionary(self, table: &Table) -> Option<&Dictionary> {
        match self {
            DictionaryRef::Names => Some(&table.names),
            DictionaryRef::Values(name) => table.values(name),
        }
    }
}

/// Returns the codes of a dictionary in order of their texts, and caches the order. The texts are
/// copied and sorted without a lock.
fn sorted(paced: &Paced<'_>, store: &OrgStore, of: DictionaryRef) -> Result<Arc<[u32]>, Stopped> {
    let mut texts: Vec<Arc<str>> = Vec::new();
    let known = loop {
        let table = paced.table(store)?;
        let Some(dictionary) = of.dictionary(&table) else { return Ok(Arc::default()) };
        let copied = texts.len();
        texts.extend(dictionary.texts().iter().skip(copied).take(SORTED_UNDER_LOCK).map(Arc::clone));
        paced.pace.hold_each(texts.len() - copied, size_of::<Arc<str>>() + size_of::<u32>())?;
        if texts.len() - copied < SORTED_UNDER_LOCK {
            break dictionary.cached_order();
        }
    };
    let order = ordered(&texts, &known);
    paced.pace.release((texts.len() * size_of::<Arc<str>>()) as u64);
    let table = paced.table(store)?;
    if let Some(dictionary) = of.dictionary(&table) {
        dictionary.cache_order(&order);
    }
    Ok(order)
}

/// Adds the values of one label of the matching rows of a family.
///
/// # Errors
/// [`Stopped`] if the pace stops the request.
fn insert_values(
    paced: &Paced<'_>,
    store: &OrgStore,
    found: &FamilyMatch,
    name: u32,
    liveness: &mut Liveness<'_>,
    seen: &mut CodeSet,
) -> Result<(), Stopped> {
    paced.pace.spend(8)?;
    let same = {
        let table = paced.table(store)?;
        let Some(column) = found.family(&table)?.column(name) else { return Ok(()) };
        column.same()
    };
    if let Some(code) = same {
        if !seen.has(code) && liveness.has_any(found, paced, store)? {
            seen.insert(code);
        }
        return Ok(());
    }
    let (number, units) = (found.number, liveness.row_units());
    let mut batch = std::mem::take(&mut liveness.batch);
    batch.column = Some(name);
    found.batches(paced, store, &mut batch, units, |batch| {
        let rows = || batch.codes().iter().zip(batch.ids());
        // The head is probed first, for all rows, so no stripe is locked while segments are read.
        for (code, id) in rows() {
            if !seen.has(*code) && liveness.is_in_head(number, *id) {
                seen.insert(*code);
            }
        }
        liveness.release();
        for (code, id) in rows() {
            if !seen.has(*code) && liveness.is_sealed(number, *id) {
                seen.insert(*code);
            }
        }
        Ok(!seen.is_full())
    })?;
    batch.column = None;
    liveness.batch = batch;
    Ok(())
}

impl Paced<'_> {
    /// Returns the label names of all series that pass the scope, the range and any of the
    /// selectors, sorted. Without selectors, all series pass.
    ///
    /// # Errors
    /// [`Stopped`] if the pace stops the request.
    pub fn label_names(
        &self,
        selectors: &[Vec<Matcher>],
        range: TimeRange,
        limit: usize,
    ) -> Result<Listing<Arc<str>>, Stopped> {
        let Some(store) = &self.snapshot.store else { return Ok(Listing::default()) };
        let found = self.families(store, &slices(selectors))?;
        let count = self.table(store)?.names.len();
        let seen = with_liveness(self, store, range, |liveness| {
            let mut seen = CodeSet::new(count, self.pace)?;
            for one in &found {
                let is_new = {
                    let table = self.table(store)?;
                    let names = &one.family(&table)?.names;
                    self.pace.spend_each(names.len(), 4)?;
                    names.iter().any(|name| !seen.has(*name))
                };
                if is_new && liveness.has_any(one, self, store)? {
                    let table = self.table(store)?;
                    for name in &one.family(&table)?.names {
                        seen.insert(*name);
                    }
                }
            }
            Ok(seen)
        })?;
        seen.listing(self, store, DictionaryRef::Names, limit)
    }

    /// Returns the values of one label of those series, sorted.
    ///
    /// # Errors
    /// [`Stopped`] if the pace stops the request.
    pub fn label_values(
        &self,
        name: &str,
        selectors: &[Vec<Matcher>],
        range: TimeRange,
        limit: usize,
    ) -> Result<Listing<Arc<str>>, Stopped> {
        let Some(store) = &self.snapshot.store else { return Ok(Listing::default()) };
        let Some(name) = self.table(store)?.names.code(name) else { return Ok(Listing::default()) };
        let found = self.families(store, &slices(selectors))?;
        let count = self.table(store)?.values(name).map_or(0, Dictionary::len);
        let seen = with_liveness(self, store, range, |liveness| {
            let mut seen = CodeSet::new(count, self.pace)?;
            for one in &found {
                if seen.is_full() {
                    break;
                }
                insert_values(self, store, one, name, liveness, &mut seen)?;
            }
            Ok(seen)
        })?;
        seen.listing(self, store, DictionaryRef::Values(name), limit)
    }

    /// Returns the labels of those series except the metric name, each with the number of its
    /// values and the first `values_max` of them.
    ///
    /// # Errors
    /// [`Stopped`] if the pace stops the request.
    pub fn label_summaries(
        &self,
        selectors: &[Vec<Matcher>],
        range: TimeRange,
        values_max: usize,
    ) -> Result<Vec<LabelSummary>, Stopped> {
        let Some(store) = &self.snapshot.store else { return Ok(Vec::new()) };
        let found = self.families(store, &slices(selectors))?;
        let metric = self.table(store)?.names.code(METRIC_NAME);
        let mut names: BTreeSet<u32> = BTreeSet::new();
        for one in &found {
            let table = self.table(store)?;
            let of_family = &one.family(&table)?.names;
            self.pace.spend_each(of_family.len(), 20)?;
            names.extend(of_family);
        }
        let mut summaries: Vec<LabelSummary> = with_liveness(self, store, range, |liveness| {
            let mut summaries = Vec::new();
            for name in names.iter().filter(|name| Some(**name) != metric) {
                let (count, text) = {
                    let table = self.table(store)?;
                    let (Some(values), Some(text)) = (table.values(*name), table.names.text(*name)) else {
                        continue;
                    };
                    (values.len(), Arc::clone(text))
                };
                let mut seen = CodeSet::new(count, self.pace)?;
                for one in &found {
                    insert_values(self, store, one, *name, liveness, &mut seen)?;
                }
                liveness.release();
                if seen.count() > 0 {
                    let values = seen.texts(self, store, DictionaryRef::Values(*name), values_max)?;
                    summaries.push(LabelSummary { name: text, count: seen.count(), values });
                }
                self.pace.release(seen.bits.len() as u64 * 8);
            }
            Ok(summaries)
        })?;
        summaries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(summaries)
    }

    /// Returns whether any series passes.
    ///
    /// # Errors
    /// [`Stopped`] if the pace stops the request.
    pub fn exists(&self, selectors: &[Vec<Matcher>], range: TimeRange) -> Result<bool, Stopped> {
        if self.exists_in_older(selectors, range)? {
            return Ok(true);
        }
        let Some(store) = &self.snapshot.store else { return Ok(false) };
        let found = self.families(store, &slices(selectors))?;
        with_liveness(self, store, range, |liveness| {
            for one in &found {
                if liveness.has_any(one, self, store)? {
                    return Ok(true);
                }
            }
            Ok(false)
        })
    }

    /// Returns the label sets of those series, sorted.
    ///
    /// # Errors
    /// [`Stopped`] if the pace stops the request.
    pub fn series(
        &self,
        selectors: &[Vec<Matcher>],
        range: TimeRange,
        limit: usize,
    ) -> Result<Listing<Labels>, Stopped> {
        let Some(store) = &self.snapshot.store else { return Ok(Listing::default()) };
        let found = self.find(store, &slices(selectors), range)?;
        let mut found = self.in_order(store, &found)?;
        let truncated = found.len() > limit;
        found.truncate(limit);
        let series = self.with_labels(store, &found, &|_| true)?;
        let items = series.into_iter().map(|series| series.labels).collect();
        Ok(Listing { items, truncated })
    }

    /// Returns the metrics with samples in `range` that pass the filter, sorted by name. For the
    /// next page, set `after` to the last name.
    ///
    /// # Errors
    /// [`Stopped`] if the pace stops the request.
    pub fn metrics(
        &self,
        filter: &MetricFilter<'_>,
        range: TimeRange,
        limit: usize,
    ) -> Result<Listing<Metric>, Stopped> {
        let Some(store) = &self.snapshot.store else { return Ok(Listing::default()) };
        let mut by_name: BTreeMap<Arc<str>, Vec<FamilyMatch>> = BTreeMap::new();
        for one in self.families(store, &slices(filter.selectors))? {
            let name = {
                let table = self.table(store)?;
                let Some(name) = table.metric_name(one.family(&table)?) else { continue };
                Arc::clone(name)
            };
            self.pace.spend(name.len() as u64 + 200)?;
            let paged = filter.after.is_none_or(|after| &*name > after);
            if paged && name.starts_with(filter.prefix) && name.contains(filter.search) {
                self.pace.hold(size_of::<FamilyMatch>() as u64 + 64)?;
                by_name.entry(name).or_default().push(one);
            }
        }
        let everything = filter.selectors.is_empty()
            && self.snapshot.scope.matchers.is_empty()
            && self.snapshot.scope.min_time.is_none()
            && by_name.len() <= limit;
        let sealed_from = filter.sealed_from.unwrap_or(range.start);
        with_liveness_from(self, store, range, sealed_from, |liveness| {
            let counted =
                if everything { HeadCounts::of(self, store, liveness)? } else { HeadCounts::default() };
            let mut items: Vec<Metric> = Vec::new();
            for (name, families) in &by_name {
                // One more than the limit shows whether there are more.
                if items.len() > limit {
                    break;
                }
                let found = counted.finish(self, store, families, liveness)?;
                if let Some((series, last_seen)) = found {
                    self.pace.hold(size_of::<Metric>() as u64)?;
                    items.push(described(&*self.snapshot.locked_metadata(store)?, name, series, last_seen));
                }
            }
            let truncated = items.len() > limit;
            items.truncate(limit);
            Ok(Listing { items, truncated })
        })
    }

    /// Returns the metadata of metrics of which the scope admits at least one series, sorted by
    /// name. `metric` restricts the result to this (family) name.
    ///
    /// # Errors
    /// [`Stopped`] if the pace stops the request.
    pub fn metadata(&self, metric: Option<&str>, limit: usize) -> Result<Listing<Description>, Stopped> {
        let Some(store) = &self.snapshot.store else { return Ok(Listing::default()) };
        let mut visible: Option<BTreeSet<Arc<str>>> = None;
        if self.snapshot.is_scoped() {
            let found = self.families(store, &[])?;
            visible = Some(with_liveness(self, store, TimeRange::ALL, |liveness| {
                let mut names = BTreeSet::new();
                for one in &found {
                    self.pace.spend(200)?;
                    let name = {
                        let table = self.table(store)?;
                        table.metric_name(one.family(&table)?).map(Arc::clone)
                    };
                    let Some(name) = name else { continue };
                    let known = describe(&*self.snapshot.locked_metadata(store)?, &name)
                        .map(|(name, _)| Arc::clone(name));
                    if let Some(known) = known
                        && liveness.has_any(one, self, store)?
                    {
                        names.insert(known);
                    }
                }
                Ok(names)
            })?);
        }
        let mut listing = Listing::default();
        for (name, known) in self.snapshot.locked_metadata(store)?.iter() {
            self.pace.spend(100)?;
            let matches = metric.is_none_or(|metric| metric == &**name);
            if !matches || visible.as_ref().is_some_and(|visible| !visible.contains(name)) {
                continue;
            }
            if listing.items.len() == limit {
                listing.truncated = true;
                break;
            }
            self.pace.hold(size_of::<Description>() as u64)?;
            let StoredMetadata { kind, help, unit } = known.clone();
            listing.items.push(Description { name: Arc::clone(name), kind, help, unit });
        }
        Ok(listing)
    }
}

/// Counts of series from one pass over the head.
#[derive(Default)]
struct HeadCounts {
    /// The number of series and the time of the newest sample, by number of the family.
    families: Vec<(u64, i64)>,
    /// A bit for each series that was counted.
    series: Vec<u64>,
}

impl HeadCounts {
    fn of(paced: &Paced<'_>, store: &OrgStore, liveness: &Liveness<'_>) -> Result<HeadCounts, Stopped> {
        let (families, ids_end) = {
            let table = paced.table(store)?;
            (table.families.len(), table.ids_end())
        };
        paced.pace.hold_each(families, size_of::<(u64, i64)>())?;
        paced.pace.hold(u64::from(ids_end) / 8)?;
        let mut counted = HeadCounts {
            families: vec![(0, i64::MIN); families],
            series: vec![0; (ids_end as usize).div_ceil(64)],
        };
        liveness.each_in_head(paced.pace, |in_stripe| {
            let table = paced.table(store)?;
            for (id, newest) in in_stripe {
                let family =
                    table.family_of(*id).and_then(|number| counted.families.get_mut(number as usize));
                if let (Some((series, last)), Some(word)) =
                    (family, counted.series.get_mut(*id as usize / 64))
                {
                    *series += 1;
                    *last = (*newest).max(*last);
                    *word |= 1 << (id % 64);
                }
            }
            Ok(())
        })?;
        Ok(counted)
    }

    /// Returns how many series of these families have samples, and the time of the newest, or None
    /// if none has. Probes the series that were not counted.
    ///
    /// # Errors
    /// [`Stopped`] if the pace stops the request.
    fn finish(
        &self,
        paced: &Paced<'_>,
        store: &OrgStore,
        families: &[FamilyMatch],
        liveness: &mut Liveness<'_>,
    ) -> Result<Option<(u64, i64)>, Stopped> {
        let units = liveness.row_units();
        let (mut series, mut last_seen) = (0, i64::MIN);
        for one in families {
            let (before, newest) = self.families.get(one.number as usize).copied().unwrap_or((0, i64::MIN));
            series += before;
            last_seen = newest.max(last_seen);
            // All series of a counted family pass. A series that was added since may stand for one
            // that was not counted.
            if before >= one.len() as u64 {
                continue;
            }
            let mut batch = std::mem::take(&mut liveness.batch);
            one.batches(paced, store, &mut batch, units, |batch| {
                for id in batch.ids() {
                    let word = self.series.get(*id as usize / 64);
                    let is_counted = word.is_some_and(|word| word >> (id % 64) & 1 == 1);
                    if !is_counted && let Some(newest) = liveness.newest(one.number, *id) {
                        series += 1;
                        last_seen = newest.max(last_seen);
                    }
                }
                Ok(true)
            })?;
            liveness.batch = batch;
        }
        Ok((series > 0).then_some((series, last_seen)))
    }
}

fn described(metadata: &Metadata, name: &Arc<str>, series: u64, last_seen: i64) -> Metric {
    let known = describe(metadata, name).map(|(_, known)| known.clone());
    let StoredMetadata { kind, help, unit } = known.unwrap_or_else(unknown);
    Metric { name: Arc::clone(name), kind, help, unit, series, last_seen: Timestamp::from_ms(last_seen) }
}

fn unknown() -> StoredMetadata {
    StoredMetadata { kind: MetricKind::Unknown, help: "".into(), unit: "".into() }
}

/// Returns the metadata of the metric that a series name belongs to.
fn describe<'m>(metadata: &'m Metadata, series_name: &str) -> Option<(&'m Arc<str>, &'m StoredMetadata)> {
    families_of(series_name).find_map(|name| metadata.get(name))
}

fn slices(selectors: &[Vec<Matcher>]) -> Vec<&[Matcher]> {
    selectors.iter().map(Vec::as_slice).collect()
}
