//! Matchers against families: each distinct value is tested once, rows are compared as numbers.
//!
//! **Locks.** The table is locked for short stretches ([`Stretches`]): a writer that waits for it waits for rows, which
//! are compared as numbers, and never for a pattern. Values whose test takes long are noted under the lock and tested
//! without it. In between series may be added. That is safe, because
//!
//! * codes of names and values are never given to other texts while a store is open;
//! * a scan looks at the families that existed when its tests were made, so that a label that it knows nothing of cannot
//!   appear in one, and at rows whose values existed then;
//! * rows are added at the end of their family. Where one was inserted before others ([`Family::moved`]), which happens
//!   during a start alone, the read is given up.
//!
//! A series that is added meanwhile may be found or not. The labels of a series never change.

use std::sync::{Arc, RwLockReadGuard};

use super::presence::look;
use super::{Paced, Snapshot};
use crate::model::{METRIC_NAME, MatchOp, Matcher, Pace, Stopped, TimeRange};
use crate::tsdb::series::columns::{Codes, Column};
use crate::tsdb::series::dictionary::Dictionary;
use crate::tsdb::series::table::{Family, Table};
use crate::tsdb::store::OrgStore;

/// A series that was found, and its row when it was.
#[derive(Clone, Copy, Debug)]
pub(super) struct FoundSeries {
    pub(super) id: u32,
    /// The number of its family.
    pub(super) family: u32,
    row: u32,
}

/// A series that was found, in the locked table.
#[derive(Clone, Copy)]
pub(super) struct Hit<'t> {
    pub(super) id: u32,
    pub(super) family: &'t Family,
    pub(super) row: usize,
}

/// Looks up series in the table. Those that are not there, which cannot be, are left out.
///
/// # Errors
/// [`Stopped`] where there is no memory for it.
pub(super) fn located<'t>(
    table: &'t Table,
    found: &[FoundSeries],
    pace: &Pace<'_>,
) -> Result<Vec<Hit<'t>>, Stopped> {
    pace.hold_each(found.len(), size_of::<Hit<'_>>())?;
    pace.spend_each(found.len(), 4)?;
    let hit = |one: &FoundSeries| {
        let family = table.families.get(one.family as usize)?;
        let row = one.row as usize;
        let row = if family.ids.get(row) == Some(&one.id) {
            row
        } else {
            family.ids.binary_search(&one.id).ok()?
        };
        Some(Hit { id: one.id, family, row })
    };
    Ok(found.iter().filter_map(hit).collect())
}

/// A family, and those of its series that pass.
pub(super) struct Found {
    /// Its number in the table.
    pub(super) number: u32,
    pub(super) rows: Rows,
    /// [`Family::moved`] when the rows were found.
    moved: u32,
}

/// Rows that are copied under one lock, and between two looks at the pace.
const ROWS_AT_ONCE: usize = 1_024;
/// Values that are copied under one lock, to be tested without it.
const VALUES_AT_ONCE: usize = 1_024;
/// Work under one lock after which it is released, in units of about a nanosecond.
const STRETCH_UNITS: u64 = 1_000_000;
/// Units of tests of values under one lock, by their estimate. A test beyond it is made without the lock.
const TEST_UNITS: u64 = if cfg!(test) { 64 } else { 200_000 };

/// The table of an organisation, locked for one short stretch of work after another.
pub(super) struct Stretches<'s> {
    snapshot: &'s Snapshot,
    store: &'s OrgStore,
    table: Option<RwLockReadGuard<'s, Table>>,
    /// Units of work under the lock.
    units: u64,
    /// Units that are left for tests of values.
    tests: u64,
}

impl<'s> Stretches<'s> {
    pub(super) fn new(snapshot: &'s Snapshot, store: &'s OrgStore) -> Stretches<'s> {
        Stretches { snapshot, store, table: None, units: 0, tests: 0 }
    }

    /// The table, locked from now on.
    ///
    /// # Errors
    /// [`Stopped`] where it is not free and the snapshot does not wait.
    pub(super) fn table(&mut self) -> Result<&Table, Stopped> {
        let table = match self.table.take() {
            Some(table) => table,
            None => {
                (self.units, self.tests) = (0, TEST_UNITS);
                self.snapshot.table(self.store)?
            }
        };
        Ok(self.table.insert(table))
    }

    /// Units that are left for tests of values under this lock.
    fn tests_left(&mut self) -> Result<u64, Stopped> {
        self.table()?;
        Ok(self.tests)
    }

    /// Releases the lock.
    pub(super) fn release(&mut self) {
        self.table = None;
    }

    /// Counts work, and releases the lock after a long stretch of it.
    pub(super) fn pass(&mut self, units: u64) {
        self.units = self.units.saturating_add(units);
        if self.units > STRETCH_UNITS {
            self.release();
        }
    }
}

/// Some rows of a family, copied from the locked table. Its memory is used again.
#[derive(Default)]
pub(super) struct Chunk {
    rows: Vec<u32>,
    ids: Vec<u32>,
    codes: Vec<u32>,
}

impl Chunk {
    /// The rows, ascending.
    pub(super) fn rows(&self) -> &[u32] {
        &self.rows
    }

    /// The series of those rows.
    pub(super) fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// The codes of those rows; empty where no column was asked for, or the family has none of that name.
    pub(super) fn codes(&self) -> &[u32] {
        &self.codes
    }

    /// Replaces the content with some rows from the `from`th on.
    fn fill(&mut self, family: &Family, of: &Rows, from: usize, column: Option<&Column>) {
        let Chunk { rows, ids, codes } = self;
        rows.clear();
        ids.clear();
        codes.clear();
        match of {
            Rows::All(count) => {
                let to = (*count as usize).min(from + ROWS_AT_ONCE);
                ids.extend_from_slice(family.ids.get(from..to).unwrap_or_default());
                rows.extend((0u32..).skip(from).take(ids.len()));
            }
            Rows::Some(all) => {
                rows.extend(all.iter().skip(from).take(ROWS_AT_ONCE));
                ids.extend(rows.iter().filter_map(|row| family.ids.get(*row as usize)));
            }
        }
        if let Some(column) = column {
            codes.extend(rows.iter().filter_map(|row| column.code(*row as usize)));
        }
    }
}

impl Found {
    /// Series that pass, before their samples are looked at.
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// The family in the table.
    ///
    /// # Errors
    /// [`Stopped`] where rows have moved.
    pub(super) fn family<'t>(&self, table: &'t Table) -> Result<&'t Family, Stopped> {
        let family = table.families.get(self.number as usize);
        family.filter(|family| family.moved == self.moved).ok_or(Stopped)
    }

    /// Calls `each` with some rows after others until it answers false; the table is not locked meanwhile. `column`: the
    /// name whose codes are wanted. A row costs `units` of the pace.
    ///
    /// # Errors
    /// [`Stopped`].
    pub(super) fn chunks(
        &self,
        (paced, store): (&Paced<'_>, &OrgStore),
        (chunk, column): (&mut Chunk, Option<u32>),
        units: u64,
        mut each: impl FnMut(&Chunk) -> Result<bool, Stopped>,
    ) -> Result<(), Stopped> {
        for from in (0..self.len()).step_by(ROWS_AT_ONCE) {
            paced.pace.spend_each(ROWS_AT_ONCE.min(self.len() - from), units)?;
            {
                let table = paced.snapshot.table(store)?;
                let family = self.family(&table)?;
                chunk.fill(family, &self.rows, from, column.and_then(|name| family.column(name)));
            }
            if !each(chunk)? {
                break;
            }
        }
        Ok(())
    }
}

/// A matcher, the code of its label, and which of the label's values pass.
struct Test<'m> {
    matcher: &'m Matcher,
    name: Option<u32>,
    wanted: Wanted,
    /// Whether a series without the label passes, once asked.
    absent: Option<bool>,
}

/// Which of a label's values pass a matcher.
enum Wanted {
    /// The one with this code; none, if no series has such a value.
    One(Option<u32>),
    Known(Known),
}

/// Values by code, and what is known of them. Filled as rows ask.
struct Known {
    /// One of the constants below. Values that were added later have none, and do not pass.
    answers: Vec<u8>,
    /// Codes that rows asked for and that are to be tested without a lock.
    postponed: Vec<u32>,
}

impl Known {
    const UNKNOWN: u8 = 0;
    const FAILS: u8 = 1;
    const PASSES: u8 = 2;
    const POSTPONED: u8 = 3;

    const fn answer(passes: bool) -> u8 {
        if passes { Known::PASSES } else { Known::FAILS }
    }

    /// Whether a value passes, or may pass: it is tested at once if that is cheap, and postponed if not. After a refusal
    /// of the pace none passes, and none is tested.
    #[inline]
    fn may_pass(&mut self, code: u32, asking: &mut Asking<'_>) -> bool {
        let Some(answer) = self.answers.get_mut(code as usize) else { return false };
        if *answer == Known::UNKNOWN {
            *answer = asking.ask(code);
            if *answer == Known::POSTPONED {
                self.postponed.push(code);
            }
        }
        *answer >= Known::PASSES
    }
}

/// What values are tested with under a lock.
struct Asking<'a> {
    matcher: &'a Matcher,
    values: Option<&'a Dictionary>,
    pace: &'a Pace<'a>,
    left: &'a mut u64,
}

impl Asking<'_> {
    #[cold]
    fn ask(&mut self, code: u32) -> u8 {
        let Some(text) = self.values.and_then(|values| values.text(code)) else { return Known::FAILS };
        let Some(left) = self.left.checked_sub(self.matcher.match_units(text)) else {
            return Known::POSTPONED;
        };
        *self.left = left;
        // A refusal stops the pace, and nothing that was found counts.
        self.matcher.matches_within(text, self.pace).map_or(Known::UNKNOWN, Known::answer)
    }
}

impl<'m> Test<'m> {
    fn new(matcher: &'m Matcher, table: &Table, pace: &Pace<'_>) -> Result<Test<'m>, Stopped> {
        let name = table.names.code(matcher.name());
        let values = name.and_then(|name| table.values(name));
        // A series has no empty values: the empty text is asked of what its family lacks.
        let wanted = if matcher.op() == MatchOp::Equal {
            Wanted::One(values.and_then(|values| values.code(matcher.value())))
        } else {
            let codes = values.map_or(0, Dictionary::len);
            pace.spend(codes as u64 / 16)?;
            pace.hold(codes as u64)?;
            Wanted::Known(Known { answers: vec![Known::UNKNOWN; codes], postponed: Vec::new() })
        };
        Ok(Test { matcher, name, wanted, absent: None })
    }

    /// Keeps the rows that pass, and those whose values were postponed; a label that the family has not counts as the
    /// empty text. `left`: units that are left for tests of values.
    fn retain(
        &mut self,
        table: &Table,
        family: &Family,
        rows: &mut Rows,
        (pace, left): (&Pace<'_>, &mut u64),
    ) -> Result<(), Stopped> {
        let Some(column) = self.name.and_then(|name| family.column(name)) else {
            let passes = match self.absent {
                Some(passes) => passes,
                None => *self.absent.insert(self.matcher.matches_within("", pace)?),
            };
            if !passes {
                *rows = Rows::none();
            }
            return Ok(());
        };
        let values = self.name.and_then(|name| table.values(name));
        let mut asking = Asking { matcher: self.matcher, values, pace, left };
        match (&mut self.wanted, column) {
            (Wanted::One(None), _) => *rows = Rows::none(),
            (Wanted::One(Some(wanted)), Column::Same(code)) => {
                if code != wanted {
                    *rows = Rows::none();
                }
            }
            (Wanted::One(Some(wanted)), Column::Each(codes)) => {
                // Many codes are compared at a time.
                pace.spend(rows.len() as u64 / 4)?;
                rows.retain_of(codes, *wanted);
            }
            (Wanted::Known(known), Column::Same(code)) => {
                if !known.may_pass(*code, &mut asking) {
                    *rows = Rows::none();
                }
            }
            (Wanted::Known(known), Column::Each(codes)) => {
                pace.spend_each(rows.len(), 2)?;
                rows.retain(codes, |code| known.may_pass(code, &mut asking));
            }
        }
        // A refusal looks like values that do not pass.
        if pace.is_stopped() { Err(Stopped) } else { Ok(()) }
    }

    /// Whether values were postponed.
    fn is_due(&self) -> bool {
        matches!(&self.wanted, Wanted::Known(known) if !known.postponed.is_empty())
    }

    /// Tests the values that were postponed, without a lock.
    fn catch_up(&mut self, stretches: &mut Stretches<'_>, pace: &Pace<'_>) -> Result<(), Stopped> {
        let (Wanted::Known(known), Some(name)) = (&mut self.wanted, self.name) else { return Ok(()) };
        let postponed = std::mem::take(&mut known.postponed);
        let bytes = postponed.len() * size_of::<u32>();
        pace.hold(bytes as u64)?;
        for codes in postponed.chunks(VALUES_AT_ONCE) {
            let values = stretches.table()?.values(name);
            let texts: Vec<Option<Arc<str>>> =
                codes.iter().map(|code| values?.text(*code).map(Arc::clone)).collect();
            stretches.release();
            for (code, text) in codes.iter().zip(texts) {
                let passes = text.map_or(Ok(false), |text| self.matcher.matches_within(&text, pace))?;
                if let Some(answer) = known.answers.get_mut(*code as usize) {
                    *answer = Known::answer(passes);
                }
            }
        }
        pace.release(bytes as u64);
        Ok(())
    }
}

/// Rows of a family that are still in; ascending.
pub(super) enum Rows {
    All(u32),
    Some(Vec<u32>),
}

impl Rows {
    const fn none() -> Rows {
        Rows::Some(Vec::new())
    }

    /// Keeps the rows with this code.
    fn retain_of(&mut self, codes: &Codes, wanted: u32) {
        match self {
            Rows::All(_) => *self = Rows::Some(codes.rows_of(wanted)),
            Rows::Some(rows) => rows.retain(|row| codes.get(*row as usize) == Some(wanted)),
        }
    }

    fn retain(&mut self, codes: &Codes, mut keep: impl FnMut(u32) -> bool) {
        match self {
            Rows::All(_) => *self = Rows::Some(codes.rows_where(keep)),
            Rows::Some(rows) => rows.retain(|row| codes.get(*row as usize).is_some_and(&mut keep)),
        }
    }

    fn len(&self) -> usize {
        match self {
            Rows::All(count) => *count as usize,
            Rows::Some(rows) => rows.len(),
        }
    }

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Those of both.
    fn with(self, other: Rows) -> Rows {
        match (self, other) {
            (Rows::Some(mut rows), Rows::Some(more)) => {
                rows.extend(more);
                rows.sort_unstable();
                rows.dedup();
                Rows::Some(rows)
            }
            (all @ Rows::All(_), _) | (_, all) => all,
        }
    }
}

impl Paced<'_> {
    /// The series that pass all matchers of any selector and the scope, and whose samples reach into `range`; each
    /// once, those of a family as neighbours in the order of their rows. No selector at all: every series of the scope.
    pub(super) fn find(
        &self,
        store: &OrgStore,
        selectors: &[&[Matcher]],
        range: TimeRange,
    ) -> Result<Vec<FoundSeries>, Stopped> {
        let found = self.families(store, selectors)?;
        let most: usize = found.iter().map(Found::len).sum();
        self.pace.hold_each(most, size_of::<FoundSeries>())?;
        look(self.snapshot, store, range, |presence| {
            let units = presence.row_units();
            let (mut all, mut chunk, mut there) = (Vec::new(), Chunk::default(), Vec::new());
            for one in &found {
                one.chunks((self, store), (&mut chunk, None), units, |chunk| {
                    presence.mark(one.number, chunk.ids(), &mut there);
                    let series = chunk.rows().iter().zip(chunk.ids()).zip(&there);
                    all.extend(series.filter(|(_, there)| **there).map(|((row, id), _)| FoundSeries {
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

    /// The families of which any series passes all matchers of any selector and the scope, each once, in order of their
    /// numbers. Time is not looked at.
    pub(super) fn families(&self, store: &OrgStore, selectors: &[&[Matcher]]) -> Result<Vec<Found>, Stopped> {
        let Some((first, more)) = selectors.split_first() else { return self.scan(store, &[]) };
        let mut all = self.scan(store, first)?;
        for matchers in more {
            all.extend(self.scan(store, matchers)?);
        }
        if !more.is_empty() {
            // Stable and by number: those of one family are neighbours.
            self.pace.spend_each(all.len(), 64)?;
            all.sort_by_key(|found| found.number);
            let mut joined: Vec<Found> = Vec::with_capacity(all.len());
            for found in all {
                self.pace.spend_each(found.len(), 8)?;
                match joined.pop_if(|last| last.number == found.number) {
                    Some(last) if last.moved == found.moved => {
                        joined.push(Found { rows: last.rows.with(found.rows), ..last });
                    }
                    Some(_) => return Err(Stopped),
                    None => joined.push(found),
                }
            }
            all = joined;
        }
        Ok(all)
    }

    fn scan(&self, store: &OrgStore, matchers: &[Matcher]) -> Result<Vec<Found>, Stopped> {
        let Paced { snapshot: Snapshot { scope, .. }, pace } = self;
        let all = || matchers.iter().chain(&scope.matchers);
        let named =
            all().find(|m| m.op() == MatchOp::Equal && m.name() == METRIC_NAME && !m.value().is_empty());
        let mut stretches = Stretches::new(self.snapshot, store);
        let table = stretches.table()?;
        let tests: Result<Vec<Test<'_>>, Stopped> =
            all().map(|matcher| Test::new(matcher, table, pace)).collect();
        let mut tests = tests?;
        let mut found = Vec::new();
        // Those that are here now: see above.
        match named {
            Some(matcher) => {
                for number in table.families_of(matcher.value()).to_vec() {
                    found.extend(self.family(&mut stretches, number, &mut tests)?);
                }
            }
            None => {
                for (number, _) in (0u32..).zip(0..table.families.len()) {
                    found.extend(self.family(&mut stretches, number, &mut tests)?);
                }
            }
        }
        Ok(found)
    }

    /// The rows of one family that pass all tests; none where there are none.
    fn family(
        &self,
        stretches: &mut Stretches<'_>,
        number: u32,
        tests: &mut [Test<'_>],
    ) -> Result<Option<Found>, Stopped> {
        let Paced { snapshot: Snapshot { scope, .. }, pace } = self;
        pace.spend(16)?;
        let table = stretches.table()?;
        let Some(family) = table.families.get(number as usize) else { return Ok(None) };
        let count = u32::try_from(family.ids.len()).unwrap_or(u32::MAX);
        let mut found = Found { number, rows: Rows::All(count), moved: family.moved };
        if !scope.names.is_empty() {
            let name = table.metric_name(family).map_or("", |name| name);
            pace.spend((scope.names.len() as u64).saturating_mul(name.len() as u64 + 1))?;
            if !scope.admits_name(name) {
                stretches.pass(64);
                return Ok(None);
            }
        }
        for test in tests {
            if found.rows.is_empty() {
                break;
            }
            // A second time with the answers of values that were postponed.
            for last in [false, true] {
                let rows = found.rows.len() as u64;
                let mut left = stretches.tests_left()?;
                let table = stretches.table()?;
                let family = found.family(table)?;
                test.retain(table, family, &mut found.rows, (pace, &mut left))?;
                stretches.tests = left;
                stretches.pass(16 + rows * 2);
                if last || !test.is_due() {
                    break;
                }
                test.catch_up(stretches, pace)?;
            }
        }
        if let Rows::Some(rows) = &found.rows {
            pace.hold_each(rows.len(), size_of::<u32>())?;
        }
        Ok((!found.rows.is_empty()).then_some(found))
    }
}
