//! Matching of selectors against families. Each distinct label value is tested once; rows are
//! compared as numbers.
//!
//! **Locks.** The table is locked for short periods ([`TableLock`]). A waiting writer waits for
//! comparisons of numbers and never for a pattern: values whose test is expensive are recorded
//! under the lock and tested without it. Series may be added in between. That is safe, because
//!
//! * the codes of names and values are never reused for other texts while a store is open;
//! * a scan looks at the families that existed when its tests were created, so no such family has a
//!   label that the tests do not know, and at rows whose values existed then;
//! * rows are appended to their family. If a row was inserted before others ([`Family::moved`]),
//!   which happens only during a start, the read is abandoned.
//!
//! A scan may or may not find a series that is added meanwhile. The labels of a series never
//! change.

use std::sync::Arc;

use super::liveness::with_liveness;
use crate::model::{METRIC_NAME, MatchOp, Matcher, Pace, Stopped, TimeRange};
use crate::tsdb::series::columns::{CodeColumn, Codes};
use crate::tsdb::series::dictionary::Dictionary;
use crate::tsdb::series::table::{Family, Table};
use crate::tsdb::snapshot::{Paced, Snapshot};
use crate::tsdb::store::OrgStore;
use crate::tsdb::store::table_guard::TableGuard;

/// A matched series, and its row at the time of the match.
#[derive(Clone, Copy, Debug)]
pub(in crate::tsdb::snapshot) struct MatchedSeries {
    pub(in crate::tsdb::snapshot) id: u32,
    /// The number of its family.
    pub(in crate::tsdb::snapshot) family: u32,
    row: u32,
}

/// A matched series in the locked table.
#[derive(Clone, Copy)]
pub(in crate::tsdb::snapshot) struct SeriesRow<'t> {
    pub(in crate::tsdb::snapshot) id: u32,
    pub(in crate::tsdb::snapshot) family: &'t Family,
    pub(in crate::tsdb::snapshot) row: usize,
}

/// Finds matched series in the table. Series that are missing from it, which cannot happen, are
/// skipped.
///
/// # Errors
/// [`Stopped`] if the pace refuses the memory.
pub(in crate::tsdb::snapshot) fn locate_rows<'t>(
    table: &'t Table,
    found: &[MatchedSeries],
    pace: &Pace<'_>,
) -> Result<Vec<SeriesRow<'t>>, Stopped> {
    pace.hold_each(found.len(), size_of::<SeriesRow<'_>>())?;
    pace.spend_each(found.len(), 4)?;
    let hit = |one: &MatchedSeries| {
        let family = table.families.get(one.family as usize)?;
        let row = one.row as usize;
        let row = if family.ids.get(row) == Some(&one.id) {
            row
        } else {
            family.ids.binary_search(&one.id).ok()?
        };
        Some(SeriesRow { id: one.id, family, row })
    };
    Ok(found.iter().filter_map(hit).collect())
}

/// A family and the rows of its series that match.
pub(in crate::tsdb::snapshot) struct FamilyMatch {
    /// The number in the table.
    pub(in crate::tsdb::snapshot) number: u32,
    pub(in crate::tsdb::snapshot) rows: MatchedRows,
    /// [`Family::moved`] when the rows were found.
    moved: u32,
}

/// Rows that are copied under one lock, and between two checks of the pace.
const ROWS_AT_ONCE: usize = 1_024;
/// Values that are copied under one lock, to be tested without it.
const VALUES_AT_ONCE: usize = 1_024;
/// The work after which the lock is released, in units of about a nanosecond.
const LOCK_UNITS: u64 = 1_000_000;
/// The estimated cost of value tests under one lock, in the same units. Further tests are made
/// without the lock.
const TEST_UNITS: u64 = if cfg!(test) { 64 } else { 200_000 };

/// A lock on the table of an organisation that is released and taken again between short periods of
/// work.
pub(in crate::tsdb::snapshot) struct TableLock<'s> {
    snapshot: &'s Snapshot,
    store: &'s OrgStore,
    table: Option<TableGuard<'s>>,
    /// Units of work under the current lock.
    units: u64,
    /// Units left for value tests.
    tests: u64,
}

impl<'s> TableLock<'s> {
    pub(in crate::tsdb::snapshot) fn new(snapshot: &'s Snapshot, store: &'s OrgStore) -> TableLock<'s> {
        TableLock { snapshot, store, table: None, units: 0, tests: 0 }
    }

    /// Locks the table, unless it is locked already.
    ///
    /// # Errors
    /// [`Stopped`] if the lock is taken and the snapshot does not wait.
    pub(in crate::tsdb::snapshot) fn table(&mut self) -> Result<&Table, Stopped> {
        let table = match self.table.take() {
            Some(table) => table,
            None => {
                (self.units, self.tests) = (0, TEST_UNITS);
                self.snapshot.table(self.store)?
            }
        };
        Ok(self.table.insert(table))
    }

    /// Returns the units left for value tests under this lock.
    fn units_left(&mut self) -> Result<u64, Stopped> {
        self.table()?;
        Ok(self.tests)
    }

    /// Releases the lock.
    pub(in crate::tsdb::snapshot) fn release(&mut self) {
        self.table = None;
    }

    /// Adds work, and releases the lock if it was held for long.
    pub(in crate::tsdb::snapshot) fn add_work(&mut self, units: u64) {
        self.units = self.units.saturating_add(units);
        if self.units > LOCK_UNITS {
            self.release();
        }
    }
}

/// Some rows of a family, copied from the locked table. The buffers are reused.
#[derive(Default)]
pub(in crate::tsdb::snapshot) struct RowBatch {
    /// The label name whose codes are copied, if any.
    pub(in crate::tsdb::snapshot) column: Option<u32>,
    rows: Vec<u32>,
    ids: Vec<u32>,
    codes: Vec<u32>,
}

impl RowBatch {
    /// The rows, ascending.
    pub(in crate::tsdb::snapshot) fn rows(&self) -> &[u32] {
        &self.rows
    }

    /// The series of those rows, in the same order.
    pub(in crate::tsdb::snapshot) fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// The codes of those rows. Empty if no column was requested, or the family has none of that
    /// name.
    pub(in crate::tsdb::snapshot) fn codes(&self) -> &[u32] {
        &self.codes
    }

    /// Replaces the content with at most `ROWS_AT_ONCE` rows, starting with the `from`th.
    fn fill(&mut self, family: &Family, of: &MatchedRows, from: usize) {
        let RowBatch { column, rows, ids, codes } = self;
        rows.clear();
        ids.clear();
        codes.clear();
        match of {
            MatchedRows::All(count) => {
                let to = (*count as usize).min(from + ROWS_AT_ONCE);
                ids.extend_from_slice(family.ids.get(from..to).unwrap_or_default());
                rows.extend((0u32..).skip(from).take(ids.len()));
            }
            MatchedRows::Some(all) => {
                rows.extend(all.iter().skip(from).take(ROWS_AT_ONCE));
                ids.extend(rows.iter().filter_map(|row| family.ids.get(*row as usize)));
            }
        }
        if let Some(column) = column.and_then(|name| family.column(name)) {
            codes.extend(rows.iter().filter_map(|row| column.code(*row as usize)));
        }
    }
}

impl FamilyMatch {
    /// Returns the number of matching series, with and without samples.
    pub(in crate::tsdb::snapshot) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns the family in the table.
    ///
    /// # Errors
    /// [`Stopped`] if rows have moved.
    pub(in crate::tsdb::snapshot) fn family<'t>(&self, table: &'t Table) -> Result<&'t Family, Stopped> {
        let family = table.families.get(self.number as usize);
        family.filter(|family| family.moved == self.moved).ok_or(Stopped)
    }

    /// Calls `each` with one batch of rows after another until it returns false. The table is not
    /// locked during the call. Each row costs `units` of the pace.
    ///
    /// # Errors
    /// [`Stopped`] if the pace stops the request.
    pub(in crate::tsdb::snapshot) fn batches(
        &self,
        paced: &Paced<'_>,
        store: &OrgStore,
        batch: &mut RowBatch,
        units: u64,
        mut each: impl FnMut(&RowBatch) -> Result<bool, Stopped>,
    ) -> Result<(), Stopped> {
        for from in (0..self.len()).step_by(ROWS_AT_ONCE) {
            paced.pace.spend_each(ROWS_AT_ONCE.min(self.len() - from), units)?;
            {
                let table = paced.snapshot.table(store)?;
                let family = self.family(&table)?;
                batch.fill(family, &self.rows, from);
            }
            if !each(batch)? {
                break;
            }
        }
        Ok(())
    }
}

/// A matcher, the code of its label name, and the label values that pass.
struct MatcherTest<'m> {
    matcher: &'m Matcher,
    name: Option<u32>,
    passing: PassingValues,
    /// Whether a series without the label passes; None until it is tested.
    absent: Option<bool>,
}

/// The values of a label that pass a matcher.
enum PassingValues {
    /// The value with this code; None if no series has the value.
    One(Option<u32>),
    Tested(ValueVerdicts),
}

/// The results of value tests by code, filled on demand.
struct ValueVerdicts {
    /// One of the constants below. Values that were added later have no entry and do not pass.
    by_code: Vec<u8>,
    /// Codes of requested values that must be tested without a lock.
    postponed: Vec<u32>,
}

impl ValueVerdicts {
    const UNKNOWN: u8 = 0;
    const FAILS: u8 = 1;
    const PASSES: u8 = 2;
    const POSTPONED: u8 = 3;

    const fn answer(passes: bool) -> u8 {
        if passes { ValueVerdicts::PASSES } else { ValueVerdicts::FAILS }
    }

    /// Returns whether a value passes or may pass. Cheap tests are made at once, others are
    /// postponed. After the pace has stopped, no value passes and no further value is tested.
    #[inline]
    fn may_pass(&mut self, code: u32, tester: &mut ValueTester<'_>) -> bool {
        let Some(answer) = self.by_code.get_mut(code as usize) else { return false };
        if *answer == ValueVerdicts::UNKNOWN {
            *answer = tester.test(code);
            if *answer == ValueVerdicts::POSTPONED {
                self.postponed.push(code);
            }
        }
        *answer >= ValueVerdicts::PASSES
    }
}

/// The context of a value test under a lock.
struct ValueTester<'a> {
    matcher: &'a Matcher,
    values: Option<&'a Dictionary>,
    pace: &'a Pace<'a>,
    left: &'a mut u64,
}

impl ValueTester<'_> {
    #[cold]
    fn test(&mut self, code: u32) -> u8 {
        let Some(text) = self.values.and_then(|values| values.text(code)) else {
            return ValueVerdicts::FAILS;
        };
        let Some(left) = self.left.checked_sub(self.matcher.match_units(text)) else {
            return ValueVerdicts::POSTPONED;
        };
        *self.left = left;
        // If the pace stops, the whole result is discarded.
        self.matcher.matches_within(text, self.pace).map_or(ValueVerdicts::UNKNOWN, ValueVerdicts::answer)
    }
}

impl<'m> MatcherTest<'m> {
    fn new(matcher: &'m Matcher, table: &Table, pace: &Pace<'_>) -> Result<MatcherTest<'m>, Stopped> {
        let name = table.names.code(matcher.name());
        let values = name.and_then(|name| table.values(name));
        // No series has an empty value: the empty text is tested for families without the label.
        let passing = if matcher.op() == MatchOp::Equal {
            PassingValues::One(values.and_then(|values| values.code(matcher.value())))
        } else {
            let codes = values.map_or(0, Dictionary::len);
            pace.spend(codes as u64 / 16)?;
            pace.hold(codes as u64)?;
            PassingValues::Tested(ValueVerdicts {
                by_code: vec![ValueVerdicts::UNKNOWN; codes],
                postponed: Vec::new(),
            })
        };
        Ok(MatcherTest { matcher, name, passing, absent: None })
    }

    /// Keeps the rows that pass, and those whose values were postponed. A missing label counts as
    /// the empty text. `left` counts the units left for value tests.
    fn retain(
        &mut self,
        table: &Table,
        family: &Family,
        rows: &mut MatchedRows,
        pace: &Pace<'_>,
        left: &mut u64,
    ) -> Result<(), Stopped> {
        let Some(column) = self.name.and_then(|name| family.column(name)) else {
            let passes = match self.absent {
                Some(passes) => passes,
                None => *self.absent.insert(self.matcher.matches_within("", pace)?),
            };
            if !passes {
                *rows = MatchedRows::none();
            }
            return Ok(());
        };
        let values = self.name.and_then(|name| table.values(name));
        let mut tester = ValueTester { matcher: self.matcher, values, pace, left };
        match (&mut self.passing, column) {
            (PassingValues::One(None), _) => *rows = MatchedRows::none(),
            (PassingValues::One(Some(passing)), CodeColumn::Same(code)) => {
                if code != passing {
                    *rows = MatchedRows::none();
                }
            }
            (PassingValues::One(Some(passing)), CodeColumn::Each(codes)) => {
                // Several codes are compared per instruction.
                pace.spend(rows.len() as u64 / 4)?;
                rows.retain_of(codes, *passing);
            }
            (PassingValues::Tested(verdicts), CodeColumn::Same(code)) => {
                if !verdicts.may_pass(*code, &mut tester) {
                    *rows = MatchedRows::none();
                }
            }
            (PassingValues::Tested(verdicts), CodeColumn::Each(codes)) => {
                pace.spend_each(rows.len(), 2)?;
                rows.retain(codes, |code| verdicts.may_pass(code, &mut tester));
            }
        }
        // After the pace has stopped, remaining values look as if they did not pass.
        if pace.is_stopped() { Err(Stopped) } else { Ok(()) }
    }

    /// Returns whether values were postponed.
    fn has_postponed(&self) -> bool {
        matches!(&self.passing, PassingValues::Tested(verdicts) if !verdicts.postponed.is_empty())
    }

    /// Tests the postponed values without a lock.
    fn test_postponed(&mut self, lock: &mut TableLock<'_>, pace: &Pace<'_>) -> Result<(), Stopped> {
        let (PassingValues::Tested(verdicts), Some(name)) = (&mut self.passing, self.name) else {
            return Ok(());
        };
        let postponed = std::mem::take(&mut verdicts.postponed);
        let bytes = postponed.len() * size_of::<u32>();
        pace.hold(bytes as u64)?;
        for codes in postponed.chunks(VALUES_AT_ONCE) {
            let values = lock.table()?.values(name);
            let texts: Vec<Option<Arc<str>>> =
                codes.iter().map(|code| values?.text(*code).map(Arc::clone)).collect();
            lock.release();
            for (code, text) in codes.iter().zip(texts) {
                let passes = text.map_or(Ok(false), |text| self.matcher.matches_within(&text, pace))?;
                if let Some(answer) = verdicts.by_code.get_mut(*code as usize) {
                    *answer = ValueVerdicts::answer(passes);
                }
            }
        }
        pace.release(bytes as u64);
        Ok(())
    }
}

/// The remaining rows of a family, ascending.
pub(in crate::tsdb::snapshot) enum MatchedRows {
    All(u32),
    Some(Vec<u32>),
}

impl MatchedRows {
    const fn none() -> MatchedRows {
        MatchedRows::Some(Vec::new())
    }

    /// Keeps the rows with this code.
    fn retain_of(&mut self, codes: &Codes, passing: u32) {
        match self {
            MatchedRows::All(_) => *self = MatchedRows::Some(codes.rows_of(passing)),
            MatchedRows::Some(rows) => rows.retain(|row| codes.get(*row as usize) == Some(passing)),
        }
    }

    fn retain(&mut self, codes: &Codes, mut keep: impl FnMut(u32) -> bool) {
        match self {
            MatchedRows::All(_) => *self = MatchedRows::Some(codes.rows_where(keep)),
            MatchedRows::Some(rows) => rows.retain(|row| codes.get(*row as usize).is_some_and(&mut keep)),
        }
    }

    fn len(&self) -> usize {
        match self {
            MatchedRows::All(count) => *count as usize,
            MatchedRows::Some(rows) => rows.len(),
        }
    }

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the union.
    fn union(self, other: MatchedRows) -> MatchedRows {
        match (self, other) {
            (MatchedRows::Some(mut rows), MatchedRows::Some(more)) => {
                rows.extend(more);
                rows.sort_unstable();
                rows.dedup();
                MatchedRows::Some(rows)
            }
            (all @ MatchedRows::All(_), _) | (_, all) => all,
        }
    }
}

impl Paced<'_> {
    /// Returns the series that pass the scope and all matchers of any selector, and that have
    /// samples in `range`. Each occurs once, and those of a family are neighbours in the order of
    /// their rows. Without selectors, returns every series of the scope.
    pub(in crate::tsdb::snapshot) fn find(
        &self,
        store: &OrgStore,
        selectors: &[&[Matcher]],
        range: TimeRange,
    ) -> Result<Vec<MatchedSeries>, Stopped> {
        let found = self.families(store, selectors)?;
        let most: usize = found.iter().map(FamilyMatch::len).sum();
        self.pace.hold_each(most, size_of::<MatchedSeries>())?;
        with_liveness(self, store, range, |liveness| {
            let units = liveness.row_units();
            let (mut all, mut batch, mut is_live) = (Vec::new(), RowBatch::default(), Vec::new());
            for one in &found {
                one.batches(self, store, &mut batch, units, |batch| {
                    liveness.mark(one.number, batch.ids(), &mut is_live);
                    let series = batch.rows().iter().zip(batch.ids()).zip(&is_live);
                    all.extend(series.filter(|(_, is_live)| **is_live).map(|((row, id), _)| MatchedSeries {
                        id: *id,
                        family: one.number,
                        row: *row,
                    }));
                    Ok(true)
                })?;
            }
            Ok(all)
        })
    }

    /// Returns the families with series that pass the scope and all matchers of any selector, each
    /// once, by ascending number. Times are not considered.
    pub(in crate::tsdb::snapshot) fn families(
        &self,
        store: &OrgStore,
        selectors: &[&[Matcher]],
    ) -> Result<Vec<FamilyMatch>, Stopped> {
        let Some((first, more)) = selectors.split_first() else { return self.scan(store, &[]) };
        let mut all = self.scan(store, first)?;
        for matchers in more {
            all.extend(self.scan(store, matchers)?);
        }
        if !more.is_empty() {
            // The sort is stable, so the matches of one family become neighbours.
            self.pace.spend_each(all.len(), 64)?;
            all.sort_by_key(|found| found.number);
            let mut joined: Vec<FamilyMatch> = Vec::with_capacity(all.len());
            for found in all {
                self.pace.spend_each(found.len(), 8)?;
                match joined.pop_if(|last| last.number == found.number) {
                    Some(last) if last.moved == found.moved => {
                        joined.push(FamilyMatch { rows: last.rows.union(found.rows), ..last });
                    }
                    Some(_) => return Err(Stopped),
                    None => joined.push(found),
                }
            }
            all = joined;
        }
        Ok(all)
    }

    fn scan(&self, store: &OrgStore, matchers: &[Matcher]) -> Result<Vec<FamilyMatch>, Stopped> {
        let Paced { snapshot: Snapshot { scope, .. }, pace } = self;
        let all = || matchers.iter().chain(&scope.matchers);
        let named =
            all().find(|m| m.op() == MatchOp::Equal && m.name() == METRIC_NAME && !m.value().is_empty());
        let mut lock = TableLock::new(self.snapshot, store);
        let table = lock.table()?;
        let tests: Result<Vec<MatcherTest<'_>>, Stopped> =
            all().map(|matcher| MatcherTest::new(matcher, table, pace)).collect();
        let mut tests = tests?;
        let mut found = Vec::new();
        // Only families that exist now are scanned: see the module's documentation.
        match named {
            Some(matcher) => {
                for number in table.families_of(matcher.value()).to_vec() {
                    found.extend(self.family(&mut lock, number, &mut tests)?);
                }
            }
            None => {
                for (number, _) in (0u32..).zip(0..table.families.len()) {
                    found.extend(self.family(&mut lock, number, &mut tests)?);
                }
            }
        }
        Ok(found)
    }

    /// Returns the rows of one family that pass all tests, or None if there are none.
    fn family(
        &self,
        lock: &mut TableLock<'_>,
        number: u32,
        tests: &mut [MatcherTest<'_>],
    ) -> Result<Option<FamilyMatch>, Stopped> {
        let Paced { snapshot: Snapshot { scope, .. }, pace } = self;
        pace.spend(16)?;
        let table = lock.table()?;
        let Some(family) = table.families.get(number as usize) else { return Ok(None) };
        let count = u32::try_from(family.ids.len()).unwrap_or(u32::MAX);
        let mut found = FamilyMatch { number, rows: MatchedRows::All(count), moved: family.moved };
        if !scope.names.is_empty() {
            let name = table.metric_name(family).map_or("", |name| name);
            pace.spend((scope.names.len() as u64).saturating_mul(name.len() as u64 + 1))?;
            if !scope.admits_name(name) {
                lock.add_work(64);
                return Ok(None);
            }
        }
        for test in tests {
            if found.rows.is_empty() {
                break;
            }
            // The second pass has the results of the postponed values.
            for last in [false, true] {
                let rows = found.rows.len() as u64;
                let mut left = lock.units_left()?;
                let table = lock.table()?;
                let family = found.family(table)?;
                test.retain(table, family, &mut found.rows, pace, &mut left)?;
                lock.tests = left;
                lock.add_work(16 + rows * 2);
                if last || !test.has_postponed() {
                    break;
                }
                test.test_postponed(lock, pace)?;
            }
        }
        if let MatchedRows::Some(rows) = &found.rows {
            pace.hold_each(rows.len(), size_of::<u32>())?;
        }
        Ok((!found.rows.is_empty()).then_some(found))
    }
}
