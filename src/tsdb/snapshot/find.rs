//! Matchers against families: each distinct value is tested once, rows are compared as numbers.

use super::presence::look;
use super::{Paced, Snapshot};
use crate::model::{METRIC_NAME, MatchOp, Matcher, Pace, Stopped, TimeRange};
use crate::tsdb::series::columns::{Codes, Column};
use crate::tsdb::series::dictionary::Dictionary;
use crate::tsdb::series::table::{Family, Table};
use crate::tsdb::store::OrgStore;

/// A series that was found.
#[derive(Clone, Copy)]
pub(super) struct Hit<'t> {
    pub(super) id: u32,
    pub(super) family: &'t Family,
    pub(super) row: usize,
}

/// A family, and those of its series that pass.
pub(super) struct Found<'t> {
    /// Its number in the table.
    pub(super) number: u32,
    pub(super) family: &'t Family,
    pub(super) rows: Rows,
}

/// Rows between two looks at the pace.
const ROWS_AT_ONCE: usize = 1_024;

impl Found<'_> {
    /// Series that pass, before their samples are looked at.
    pub(super) fn len(&self) -> usize {
        match &self.rows {
            Rows::All(count) => *count as usize,
            Rows::Some(rows) => rows.len(),
        }
    }

    /// Calls `each` with row and series id until it answers false. A row costs `units` of `pace`.
    ///
    /// # Errors
    /// [`Stopped`].
    pub(super) fn while_true(
        &self,
        (pace, units): (&Pace<'_>, u64),
        mut each: impl FnMut(usize, u32) -> bool,
    ) -> Result<(), Stopped> {
        let ids = &self.family.ids;
        match &self.rows {
            Rows::All(_) => {
                let mut row = 0;
                for some in ids.chunks(ROWS_AT_ONCE) {
                    pace.spend_each(some.len(), units)?;
                    for id in some {
                        if !each(row, *id) {
                            return Ok(());
                        }
                        row += 1;
                    }
                }
            }
            Rows::Some(rows) => {
                for some in rows.chunks(ROWS_AT_ONCE) {
                    pace.spend_each(some.len(), units)?;
                    for row in some {
                        let row = *row as usize;
                        if ids.get(row).is_some_and(|id| !each(row, *id)) {
                            return Ok(());
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Whether `test` holds for any of the series; each costs `units` of `pace`.
    ///
    /// # Errors
    /// [`Stopped`].
    pub(super) fn any(
        &self,
        pace: (&Pace<'_>, u64),
        mut test: impl FnMut(u32) -> bool,
    ) -> Result<bool, Stopped> {
        let mut found = false;
        self.while_true(pace, |_, id| {
            found = test(id);
            !found
        })?;
        Ok(found)
    }
}

/// A matcher, the code of its label, and which of the label's values pass.
struct Test<'m> {
    matcher: &'m Matcher,
    name: Option<u32>,
    wanted: Wanted,
}

/// Which of a label's values pass a matcher.
enum Wanted {
    /// The one with this code; none, if no series has such a value.
    One(Option<u32>),
    /// By value code: 0 not asked yet, 1 no, 2 yes. Filled as rows ask.
    Known(Vec<u8>),
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
            Wanted::Known(vec![0; codes])
        };
        Ok(Test { matcher, name, wanted })
    }

    /// Keeps the rows that pass; a label that the family has not counts as the empty text.
    fn retain(
        &mut self,
        table: &Table,
        family: &Family,
        rows: &mut Rows,
        pace: &Pace<'_>,
    ) -> Result<(), Stopped> {
        let Some(column) = self.name.and_then(|name| family.column(name)) else {
            if !self.matcher.matches_within("", pace)? {
                *rows = Rows::none();
            }
            return Ok(());
        };
        let values = self.name.and_then(|name| table.values(name));
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
                if !passes((self.matcher, pace), values, known, *code) {
                    *rows = Rows::none();
                }
            }
            (Wanted::Known(known), Column::Each(codes)) => {
                pace.spend_each(rows.len(), 2)?;
                rows.retain(codes, |code| passes((self.matcher, pace), values, known, code));
            }
        }
        // A refusal looks like values that do not pass.
        if pace.is_stopped() { Err(Stopped) } else { Ok(()) }
    }
}

/// Whether a value passes: each is asked once. After a refusal of the pace none passes, and none is asked.
#[inline]
fn passes(
    (matcher, pace): (&Matcher, &Pace<'_>),
    values: Option<&Dictionary>,
    known: &mut [u8],
    code: u32,
) -> bool {
    #[cold]
    fn ask(matcher: &Matcher, pace: &Pace<'_>, values: Option<&Dictionary>, code: u32) -> Option<u8> {
        let Some(text) = values.and_then(|values| values.text(code)) else { return Some(1) };
        matcher.matches_within(text, pace).ok().map(|passes| 1 + u8::from(passes))
    }
    let Some(known) = known.get_mut(code as usize) else { return false };
    if *known == 0 {
        let Some(answer) = ask(matcher, pace, values, code) else { return false };
        *known = answer;
    }
    *known == 2
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
    /// once, in no order. No selector at all: every series of the scope.
    pub(super) fn find<'t>(
        &self,
        store: &OrgStore,
        table: &'t Table,
        selectors: &[&[Matcher]],
        range: TimeRange,
    ) -> Result<Vec<Hit<'t>>, Stopped> {
        let found = self.families(table, selectors)?;
        let most: usize = found.iter().map(Found::len).sum();
        self.pace.hold_each(most, size_of::<Hit<'_>>())?;
        look(self.snapshot, store, range, |presence| {
            let units = presence.row_units();
            let mut hits = Vec::new();
            for one in &found {
                let Found { number, family, .. } = *one;
                one.while_true((self.pace, units), |row, id| {
                    if presence.has(number, id) {
                        hits.push(Hit { id, family, row });
                    }
                    true
                })?;
            }
            Ok(hits)
        })
    }

    /// The families of which any series passes all matchers of any selector and the scope, each once. Time is not
    /// looked at.
    pub(super) fn families<'t>(
        &self,
        table: &'t Table,
        selectors: &[&[Matcher]],
    ) -> Result<Vec<Found<'t>>, Stopped> {
        let Some((first, more)) = selectors.split_first() else { return self.scan(table, &[]) };
        let mut all = self.scan(table, first)?;
        for matchers in more {
            all.extend(self.scan(table, matchers)?);
        }
        if !more.is_empty() {
            // Stable and by number: those of one family are neighbours.
            self.pace.spend_each(all.len(), 64)?;
            all.sort_by_key(|found| found.number);
            let mut joined: Vec<Found<'t>> = Vec::with_capacity(all.len());
            for found in all {
                self.pace.spend_each(found.len(), 8)?;
                match joined.pop_if(|last| last.number == found.number) {
                    Some(last) => joined.push(Found { rows: last.rows.with(found.rows), ..last }),
                    None => joined.push(found),
                }
            }
            all = joined;
        }
        Ok(all)
    }

    fn scan<'t>(&self, table: &'t Table, matchers: &[Matcher]) -> Result<Vec<Found<'t>>, Stopped> {
        let Paced { snapshot: Snapshot { scope, .. }, pace } = self;
        let all = || matchers.iter().chain(&scope.matchers);
        let tests: Result<Vec<Test<'_>>, Stopped> =
            all().map(|matcher| Test::new(matcher, table, pace)).collect();
        let mut tests = tests?;
        let named =
            all().find(|m| m.op() == MatchOp::Equal && m.name() == METRIC_NAME && !m.value().is_empty());
        let mut found = Vec::new();
        let mut look_at = |number: u32, family: &'t Family| {
            pace.spend(16)?;
            let name = table.metric_name(family).map_or("", |name| name);
            if !scope.names.is_empty() {
                pace.spend((scope.names.len() as u64).saturating_mul(name.len() as u64 + 1))?;
            }
            if !scope.admits_name(name) {
                return Ok(());
            }
            let mut rows = Rows::All(u32::try_from(family.ids.len()).unwrap_or(u32::MAX));
            for test in &mut tests {
                if rows.is_empty() {
                    return Ok(());
                }
                test.retain(table, family, &mut rows, pace)?;
            }
            if !rows.is_empty() {
                if let Rows::Some(rows) = &rows {
                    pace.hold_each(rows.len(), size_of::<u32>())?;
                }
                found.push(Found { number, family, rows });
            }
            Ok(())
        };
        match named {
            Some(matcher) => {
                let mut families = table.families_of(matcher.value());
                families.try_for_each(|(number, family)| look_at(number, family))
            }
            None => (0u32..).zip(&table.families).try_for_each(|(number, family)| look_at(number, family)),
        }?;
        Ok(found)
    }
}
