//! What there is: names, values, series, metrics, descriptions. The scope holds in every one of them.
//!
//! Answered from the table's columns: a name or a value that was seen is not looked for again, so a question ends with
//! what is distinct and not with what is there; only what is still unseen costs a look at a series' samples.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::find::Found;
use super::labelled::labelled;
use super::presence::{Presence, look, look_from};
use super::{Paced, order};
use crate::model::{Labels, METRIC_NAME, Matcher, MetricKind, Pace, Stopped, TimeRange, Timestamp};
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
    /// No code was seen yet.
    ///
    /// # Errors
    /// [`Stopped`].
    pub(super) fn new(dictionary: &Dictionary, pace: &Pace<'_>) -> Result<Seen, Stopped> {
        let codes = dictionary.len();
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
    ///
    /// # Errors
    /// [`Stopped`].
    pub(super) fn texts<'d>(
        &self,
        dictionary: &'d Dictionary,
        limit: usize,
        pace: &Pace<'_>,
    ) -> Result<Vec<&'d Arc<str>>, Stopped> {
        /// Work for one text among many that are sorted: a comparison for each doubling.
        const SORT_UNITS: u64 = 300;
        /// Sorting everything once, for good, costs less than sorting so many parts of it each time.
        const PART: usize = 16;
        if self.count >= dictionary.len() / PART {
            pace.spend_each(dictionary.unordered(), SORT_UNITS)?;
            pace.spend_each(dictionary.len(), 2)?;
            pace.hold_each(self.count.min(limit), size_of::<&Arc<str>>())?;
            let order = dictionary.order();
            let seen = order.iter().filter(|code| self.has(**code));
            return Ok(seen.take(limit).filter_map(|code| dictionary.text(*code)).collect());
        }
        pace.spend_each(self.count, SORT_UNITS)?;
        pace.spend(self.bits.len() as u64)?;
        pace.hold_each(self.count, size_of::<&Arc<str>>())?;
        let mut texts: Vec<&Arc<str>> = self.codes().filter_map(|code| dictionary.text(code)).collect();
        texts.sort_unstable();
        texts.truncate(limit);
        Ok(texts)
    }

    fn listing(
        &self,
        dictionary: &Dictionary,
        limit: usize,
        pace: &Pace<'_>,
    ) -> Result<Listing<Arc<str>>, Stopped> {
        let texts = self.texts(dictionary, limit, pace)?;
        pace.spend_each(texts.len(), 4)?;
        pace.hold_each(texts.len(), size_of::<Arc<str>>())?;
        let items = texts.into_iter().map(Arc::clone).collect();
        Ok(Listing { items, truncated: self.count > limit })
    }
}

/// Takes in the values of one label among the rows of a family.
///
/// # Errors
/// [`Stopped`].
pub(super) fn see_values(
    found: &Found<'_>,
    name: u32,
    presence: &mut Presence<'_>,
    seen: &mut Seen,
    pace: &Pace<'_>,
) -> Result<(), Stopped> {
    pace.spend(8)?;
    let Some(column) = found.family.column(name) else { return Ok(()) };
    let (number, units) = (found.number, presence.row_units());
    match column.same() {
        Some(code) => {
            if !seen.has(code) && presence.has_any(found, pace)? {
                seen.insert(code);
            }
            Ok(())
        }
        None => found.while_true((pace, units), |row, id| {
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
        let table = store.table();
        let found = self.families(&table, &slices(selectors))?;
        let seen = look(self.snapshot, store, range, |presence| {
            let mut seen = Seen::new(&table.names, self.pace)?;
            for one in &found {
                self.pace.spend_each(one.family.names.len(), 4)?;
                let is_new = one.family.names.iter().any(|name| !seen.has(*name));
                if is_new && presence.has_any(one, self.pace)? {
                    for name in &one.family.names {
                        seen.insert(*name);
                    }
                }
            }
            Ok(seen)
        })?;
        seen.listing(&table.names, limit, self.pace)
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
        let table = store.table();
        let Some(name) = table.names.code(name) else { return Ok(Listing::default()) };
        let Some(values) = table.values(name) else { return Ok(Listing::default()) };
        let found = self.families(&table, &slices(selectors))?;
        let seen = look(self.snapshot, store, range, |presence| {
            let mut seen = Seen::new(values, self.pace)?;
            for one in &found {
                if seen.is_full() {
                    break;
                }
                see_values(one, name, presence, &mut seen, self.pace)?;
            }
            Ok(seen)
        })?;
        seen.listing(values, limit, self.pace)
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
        let table = store.table();
        let found = self.families(&table, &slices(selectors))?;
        let metric = table.names.code(METRIC_NAME);
        let mut names: BTreeSet<u32> = BTreeSet::new();
        for one in &found {
            self.pace.spend_each(one.family.names.len(), 20)?;
            names.extend(one.family.names.iter().copied());
        }
        let mut summaries: Vec<LabelSummary> = look(self.snapshot, store, range, |presence| {
            let mut summaries = Vec::new();
            for name in names.iter().filter(|name| Some(**name) != metric) {
                let (Some(values), Some(text)) = (table.values(*name), table.names.text(*name)) else {
                    continue;
                };
                let mut seen = Seen::new(values, self.pace)?;
                for one in &found {
                    see_values(one, *name, presence, &mut seen, self.pace)?;
                }
                if seen.count() > 0 {
                    let shown = seen.texts(values, values_max, self.pace)?;
                    let values = shown.into_iter().map(Arc::clone).collect();
                    summaries.push(LabelSummary { name: Arc::clone(text), count: seen.count(), values });
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
        let table = store.table();
        let found = self.families(&table, &slices(selectors))?;
        look(self.snapshot, store, range, |presence| {
            for one in &found {
                if presence.has_any(one, self.pace)? {
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
        let table = store.table();
        let hits = self.find(store, &table, &slices(selectors), range)?;
        let mut hits = order::by_labels(&table, &hits, self.pace)?;
        let truncated = hits.len() > limit;
        hits.truncate(limit);
        let found = labelled(&table, &hits, &|_| true, self.pace)?;
        let items = found.into_iter().map(|series| series.labels).collect();
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
        let table = store.table();
        let mut by_name: BTreeMap<&Arc<str>, Vec<Found<'_>>> = BTreeMap::new();
        for one in self.families(&table, &slices(filter.selectors))? {
            let Some(name) = table.metric_name(one.family) else { continue };
            self.pace.spend(name.len() as u64 + 200)?;
            let paged = filter.after.is_none_or(|after| &**name > after);
            if paged && name.starts_with(filter.prefix) && name.contains(filter.search) {
                self.pace.hold(size_of::<Found<'_>>() as u64 + 64)?;
                by_name.entry(name).or_default().push(one);
            }
        }
        let everything = filter.selectors.is_empty()
            && self.snapshot.scope.matchers.is_empty()
            && self.snapshot.scope.min_time.is_none()
            && by_name.len() <= limit;
        let sealed_from = filter.sealed_from.unwrap_or(range.start);
        look_from(self.snapshot, store, range, sealed_from, |presence| {
            let counted =
                if everything { Counted::of(&table, presence, self.pace)? } else { Counted::default() };
            let mut items: Vec<Metric> = Vec::new();
            for (name, families) in &by_name {
                // One more than asked for tells whether there is more.
                if items.len() > limit {
                    break;
                }
                if let Some((series, last_seen)) = counted.finish(families, presence, self.pace)? {
                    self.pace.hold(size_of::<Metric>() as u64)?;
                    items.push(described(&table, name, series, last_seen));
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
        let table = store.table();
        let mut visible: Option<BTreeSet<&Arc<str>>> = None;
        if self.snapshot.is_scoped() {
            let found = self.families(&table, &[])?;
            visible = Some(look(self.snapshot, store, TimeRange::ALL, |presence| {
                let mut names = BTreeSet::new();
                for one in &found {
                    let known =
                        table.metric_name(one.family).and_then(|name| describe(&table.metadata, name));
                    self.pace.spend(200)?;
                    if let Some((name, _)) = known
                        && presence.has_any(one, self.pace)?
                    {
                        names.insert(name);
                    }
                }
                Ok(names)
            })?);
        }
        let mut listing = Listing::default();
        for (name, known) in table.metadata.iter() {
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
    fn of(table: &Table, presence: &Presence<'_>, pace: &Pace<'_>) -> Result<Counted, Stopped> {
        pace.hold_each(table.families.len(), size_of::<(u64, i64)>())?;
        pace.hold(u64::from(table.ids_end()) / 8)?;
        let mut counted = Counted {
            families: vec![(0, i64::MIN); table.families.len()],
            series: vec![0; (table.ids_end() as usize).div_ceil(64)],
        };
        presence.each_in_head(pace, |id, newest| {
            let family = table.family_of(id).and_then(|number| counted.families.get_mut(number as usize));
            if let (Some((series, last)), Some(word)) = (family, counted.series.get_mut(id as usize / 64)) {
                *series += 1;
                *last = newest.max(*last);
                *word |= 1 << (id % 64);
            }
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
        families: &[Found<'_>],
        presence: &mut Presence<'_>,
        pace: &Pace<'_>,
    ) -> Result<Option<(u64, i64)>, Stopped> {
        let units = presence.row_units();
        let (mut series, mut last_seen) = (0, i64::MIN);
        for one in families {
            let (before, newest) = self.families.get(one.number as usize).copied().unwrap_or((0, i64::MIN));
            series += before;
            last_seen = newest.max(last_seen);
            if before == one.family.ids.len() as u64 {
                continue;
            }
            one.while_true((pace, units), |_, id| {
                let is_counted =
                    self.series.get(id as usize / 64).is_some_and(|word| word >> (id % 64) & 1 == 1);
                if !is_counted && let Some(newest) = presence.newest(one.number, id) {
                    series += 1;
                    last_seen = newest.max(last_seen);
                }
                true
            })?;
        }
        Ok((series > 0).then_some((series, last_seen)))
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
