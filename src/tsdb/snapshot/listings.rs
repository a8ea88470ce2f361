//! What there is: names, values, series, metrics, descriptions. The scope holds in every one of them.
//!
//! Answered from the table's columns: a name or a value that was seen is not looked for again, so a question ends with
//! what is distinct and not with what is there; only what is still unseen costs a look at a series' samples.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Paced;
use super::find::{Chunk, Found};
use super::presence::{Presence, look, look_from};
use crate::model::{Labels, METRIC_NAME, Matcher, MetricKind, Pace, Stopped, TimeRange, Timestamp};
use crate::tsdb::report::{Description, LabelSummary, Listing, Metric, MetricFilter};
use crate::tsdb::series::dictionary::ordered;
use crate::tsdb::series::metadata::{Known, Metadata};
use crate::tsdb::series::table::{Dictionary, Table};
use crate::tsdb::store::OrgStore;

/// What senders append to a metric's (family) name in the names of its series.
const SUFFIXES: [&str; 6] = ["_bucket", "_count", "_sum", "_total", "_created", "_info"];

/// Codes of a dictionary that were seen.
pub(super) struct Seen {
    bits: Vec<u64>,
    count: usize,
    codes: usize,
}

impl Seen {
    /// No code of so many was seen yet. Codes that are given later are not taken in.
    ///
    /// # Errors
    /// [`Stopped`].
    pub(super) fn new(codes: usize, pace: &Pace<'_>) -> Result<Seen, Stopped> {
        let words = codes.div_ceil(64);
        pace.spend(words as u64)?;
        pace.hold_each(words, size_of::<u64>())?;
        Ok(Seen { bits: vec![0; words], count: 0, codes })
    }

    pub(super) fn has(&self, code: u32) -> bool {
        self.bits.get(code as usize / 64).is_some_and(|word| word >> (code % 64) & 1 == 1)
    }

    /// Answers whether it is new.
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

    /// The first of the texts in order. They are sorted while the table is not locked, unless that takes little time.
    ///
    /// # Errors
    /// [`Stopped`].
    fn texts(
        &self,
        (paced, store): (&Paced<'_>, &OrgStore),
        of: Of,
        limit: usize,
    ) -> Result<Vec<Arc<str>>, Stopped> {
        /// Work for one text among many that are sorted: a comparison for each doubling.
        const SORT_UNITS: u64 = 300;
        /// Sorting everything once, for good, costs less than sorting so many parts of it each time.
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
        let order = match dictionary.order_at_once(SORTED_UNDER_LOCK) {
            Some(order) => order,
            None => {
                drop(table);
                sorted(paced, store, of)?
            }
        };
        let table = paced.table(store)?;
        let Some(dictionary) = of.dictionary(&table) else { return Ok(Vec::new()) };
        let seen = order.iter().filter(|code| self.has(**code));
        Ok(seen.take(limit).filter_map(|code| dictionary.text(*code).map(Arc::clone)).collect())
    }

    fn listing(
        &self,
        paced: (&Paced<'_>, &OrgStore),
        of: Of,
        limit: usize,
    ) -> Result<Listing<Arc<str>>, Stopped> {
        Ok(Listing { items: self.texts(paced, of, limit)?, truncated: self.count > limit })
    }
}

/// Texts that are sorted, or merged with others in order, while the table is locked: some milliseconds of work.
const SORTED_UNDER_LOCK: usize = if cfg!(test) { 3 } else { 1 << 14 };

/// A dictionary of the table.
#[derive(Clone, Copy)]
enum Of {
    Names,
    /// The values of the name with this code.
    Values(u32),
}

impl Of {
    fn dictionary(self, table: &Table) -> Option<&Dictionary> {
        match self {
            Of::Names => Some(&table.names),
            Of::Values(name) => table.values(name),
        }
    }
}

/// The codes of a dictionary in order of their texts, which are copied and sorted without a lock. The order is kept.
fn sorted(paced: &Paced<'_>, store: &OrgStore, of: Of) -> Result<Arc<[u32]>, Stopped> {
    let mut texts: Vec<Arc<str>> = Vec::new();
    let known = loop {
        let table = paced.table(store)?;
        let Some(dictionary) = of.dictionary(&table) else { return Ok(Arc::default()) };
        let copied = texts.len();
        texts.extend(dictionary.texts().iter().skip(copied).take(SORTED_UNDER_LOCK).map(Arc::clone));
        paced.pace.hold_each(texts.len() - copied, size_of::<Arc<str>>() + size_of::<u32>())?;
        if texts.len() - copied < SORTED_UNDER_LOCK {
            break dictionary.known_order();
        }
    };
    let order = ordered(&texts, &known);
    paced.pace.release((texts.len() * size_of::<Arc<str>>()) as u64);
    let table = paced.table(store)?;
    if let Some(dictionary) = of.dictionary(&table) {
        dictionary.keep_order(&order);
    }
    Ok(order)
}

/// Takes in the values of one label among the rows of a family.
///
/// # Errors
/// [`Stopped`].
fn see_values(
    (paced, store): (&Paced<'_>, &OrgStore),
    (found, name): (&Found, u32),
    (presence, chunk): (&mut Presence<'_>, &mut Chunk),
    seen: &mut Seen,
) -> Result<(), Stopped> {
    paced.pace.spend(8)?;
    let same = {
        let table = paced.table(store)?;
        let Some(column) = found.family(&table)?.column(name) else { return Ok(()) };
        column.same()
    };
    if let Some(code) = same {
        if !seen.has(code) && presence.has_any(found, (paced, store))? {
            seen.insert(code);
        }
        return Ok(());
    }
    let (number, units) = (found.number, presence.row_units());
    found.chunks((paced, store), (chunk, Some(name)), units, |chunk| {
        let rows = || chunk.codes().iter().zip(chunk.ids());
        // The head first, for all: no stripe of it is locked while segments are looked at.
        for (code, id) in rows() {
            if !seen.has(*code) && presence.is_in_head(number, *id) {
                seen.insert(*code);
            }
        }
        presence.release();
        for (code, id) in rows() {
            if !seen.has(*code) && presence.is_sealed(number, *id) {
                seen.insert(*code);
            }
        }
        Ok(!seen.is_full())
    })
}

impl Paced<'_> {
    /// The label names of all series that pass any of the selectors (none given: all), the scope and the range; sorted.
    ///
    /// # Errors
    /// [`Stopped`].
    pub fn label_names(
        &self,
        selectors: &[Vec<Matcher>],
        range: TimeRange,
        limit: usize,
    ) -> Result<Listing<Arc<str>>, Stopped> {
        let Some(store) = &self.snapshot.store else { return Ok(Listing::default()) };
        let found = self.families(store, &slices(selectors))?;
        let count = self.table(store)?.names.len();
        let seen = look(self.snapshot, store, range, |presence| {
            let mut seen = Seen::new(count, self.pace)?;
            for one in &found {
                let is_new = {
                    let table = self.table(store)?;
                    let names = &one.family(&table)?.names;
                    self.pace.spend_each(names.len(), 4)?;
                    names.iter().any(|name| !seen.has(*name))
                };
                if is_new && presence.has_any(one, (self, store))? {
                    let table = self.table(store)?;
                    for name in &one.family(&table)?.names {
                        seen.insert(*name);
                    }
                }
            }
            Ok(seen)
        })?;
        seen.listing((self, store), Of::Names, limit)
    }

    /// The values of one label among those series; sorted.
    ///
    /// # Errors
    /// [`Stopped`].
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
        let seen = look(self.snapshot, store, range, |presence| {
            let (mut seen, mut chunk) = (Seen::new(count, self.pace)?, Chunk::default());
            for one in &found {
                if seen.is_full() {
                    break;
                }
                see_values((self, store), (one, name), (presence, &mut chunk), &mut seen)?;
            }
            Ok(seen)
        })?;
        seen.listing((self, store), Of::Values(name), limit)
    }

    /// The labels of those series but the metric name, each with the number of its values and the first of them.
    ///
    /// # Errors
    /// [`Stopped`].
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
        let mut summaries: Vec<LabelSummary> = look(self.snapshot, store, range, |presence| {
            let (mut summaries, mut chunk) = (Vec::new(), Chunk::default());
            for name in names.iter().filter(|name| Some(**name) != metric) {
                let (count, text) = {
                    let table = self.table(store)?;
                    let (Some(values), Some(text)) = (table.values(*name), table.names.text(*name)) else {
                        continue;
                    };
                    (values.len(), Arc::clone(text))
                };
                let mut seen = Seen::new(count, self.pace)?;
                for one in &found {
                    see_values((self, store), (one, *name), (presence, &mut chunk), &mut seen)?;
                }
                presence.release();
                if seen.count() > 0 {
                    let values = seen.texts((self, store), Of::Values(*name), values_max)?;
                    summaries.push(LabelSummary { name: text, count: seen.count(), values });
                }
                self.pace.release(seen.bits.len() as u64 * 8);
            }
            Ok(summaries)
        })?;
        summaries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(summaries)
    }

    /// Whether any series passes.
    ///
    /// # Errors
    /// [`Stopped`].
    pub fn exists(&self, selectors: &[Vec<Matcher>], range: TimeRange) -> Result<bool, Stopped> {
        let Some(store) = &self.snapshot.store else { return Ok(false) };
        let found = self.families(store, &slices(selectors))?;
        look(self.snapshot, store, range, |presence| {
            for one in &found {
                if presence.has_any(one, (self, store))? {
                    return Ok(true);
                }
            }
            Ok(false)
        })
    }

    /// The label sets of those series; sorted.
    ///
    /// # Errors
    /// [`Stopped`].
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
        let labelled = self.labelled(store, &found, &|_| true)?;
        let items = labelled.into_iter().map(|series| series.labels).collect();
        Ok(Listing { items, truncated })
    }

    /// Metrics with samples in `range`, by filter; sorted by name. For the next page ask for names after the last one.
    ///
    /// # Errors
    /// [`Stopped`].
    pub fn metrics(
        &self,
        filter: &MetricFilter<'_>,
        range: TimeRange,
        limit: usize,
    ) -> Result<Listing<Metric>, Stopped> {
        let Some(store) = &self.snapshot.store else { return Ok(Listing::default()) };
        let mut by_name: BTreeMap<Arc<str>, Vec<Found>> = BTreeMap::new();
        for one in self.families(store, &slices(filter.selectors))? {
            let name = {
                let table = self.table(store)?;
                let Some(name) = table.metric_name(one.family(&table)?) else { continue };
                Arc::clone(name)
            };
            self.pace.spend(name.len() as u64 + 200)?;
            let paged = filter.after.is_none_or(|after| &*name > after);
            if paged && name.starts_with(filter.prefix) && name.contains(filter.search) {
                self.pace.hold(size_of::<Found>() as u64 + 64)?;
                by_name.entry(name).or_default().push(one);
            }
        }
        let everything = filter.selectors.is_empty()
            && self.snapshot.scope.matchers.is_empty()
            && self.snapshot.scope.min_time.is_none()
            && by_name.len() <= limit;
        let sealed_from = filter.sealed_from.unwrap_or(range.start);
        look_from(self.snapshot, store, range, sealed_from, |presence| {
            let counted = if everything { Counted::of((self, store), presence)? } else { Counted::default() };
            let (mut items, mut chunk): (Vec<Metric>, Chunk) = Default::default();
            for (name, families) in &by_name {
                // One more than asked for tells whether there is more.
                if items.len() > limit {
                    break;
                }
                let found = counted.finish((self, store), families, (presence, &mut chunk))?;
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

    /// What senders said about metrics of which the scope admits at least one series; sorted by name. `metric`: only
    /// this (family) name.
    ///
    /// # Errors
    /// [`Stopped`].
    pub fn metadata(&self, metric: Option<&str>, limit: usize) -> Result<Listing<Description>, Stopped> {
        let Some(store) = &self.snapshot.store else { return Ok(Listing::default()) };
        let mut visible: Option<BTreeSet<Arc<str>>> = None;
        if self.snapshot.is_scoped() {
            let found = self.families(store, &[])?;
            visible = Some(look(self.snapshot, store, TimeRange::ALL, |presence| {
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
                        && presence.has_any(one, (self, store))?
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
            let asked = metric.is_none_or(|metric| metric == &**name);
            if !asked || visible.as_ref().is_some_and(|visible| !visible.contains(name)) {
                continue;
            }
            if listing.items.len() == limit {
                listing.truncated = true;
                break;
            }
            self.pace.hold(size_of::<Description>() as u64)?;
            let Known { kind, help, unit } = known.clone();
            listing.items.push(Description { name: Arc::clone(name), kind, help, unit });
        }
        Ok(listing)
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
    fn of((paced, store): (&Paced<'_>, &OrgStore), presence: &Presence<'_>) -> Result<Counted, Stopped> {
        let (families, ids_end) = {
            let table = paced.table(store)?;
            (table.families.len(), table.ids_end())
        };
        paced.pace.hold_each(families, size_of::<(u64, i64)>())?;
        paced.pace.hold(u64::from(ids_end) / 8)?;
        let mut counted = Counted {
            families: vec![(0, i64::MIN); families],
            series: vec![0; (ids_end as usize).div_ceil(64)],
        };
        presence.each_in_head(paced.pace, |in_stripe| {
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

    /// How many series of these families have samples, and the time of the newest; nothing where none has. Looks for
    /// those that were not counted.
    ///
    /// # Errors
    /// [`Stopped`].
    fn finish(
        &self,
        (paced, store): (&Paced<'_>, &OrgStore),
        families: &[Found],
        (presence, chunk): (&mut Presence<'_>, &mut Chunk),
    ) -> Result<Option<(u64, i64)>, Stopped> {
        let units = presence.row_units();
        let (mut series, mut last_seen) = (0, i64::MIN);
        for one in families {
            let (before, newest) = self.families.get(one.number as usize).copied().unwrap_or((0, i64::MIN));
            series += before;
            last_seen = newest.max(last_seen);
            // Where some were counted, the family passes whole; one that was added since may count for one that was not.
            if before >= one.len() as u64 {
                continue;
            }
            one.chunks((paced, store), (&mut *chunk, None), units, |chunk| {
                for id in chunk.ids() {
                    let word = self.series.get(*id as usize / 64);
                    let is_counted = word.is_some_and(|word| word >> (id % 64) & 1 == 1);
                    if !is_counted && let Some(newest) = presence.newest(one.number, *id) {
                        series += 1;
                        last_seen = newest.max(last_seen);
                    }
                }
                Ok(true)
            })?;
        }
        Ok((series > 0).then_some((series, last_seen)))
    }
}

fn described(metadata: &Metadata, name: &Arc<str>, series: u64, last_seen: i64) -> Metric {
    let known = describe(metadata, name).map(|(_, known)| known.clone());
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
