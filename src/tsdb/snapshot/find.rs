//! Matchers against families: each distinct value is tested once, rows are compared as numbers.

use super::Snapshot;
use super::presence::look;
use crate::model::{METRIC_NAME, MatchOp, Matcher, TimeRange};
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

impl Found<'_> {
    /// Calls `each` with row and series id until it answers false.
    pub(super) fn while_true(&self, mut each: impl FnMut(usize, u32) -> bool) {
        let ids = &self.family.ids;
        match &self.rows {
            Rows::All(_) => {
                for (row, id) in ids.iter().enumerate() {
                    if !each(row, *id) {
                        return;
                    }
                }
            }
            Rows::Some(rows) => {
                for row in rows {
                    let row = *row as usize;
                    if ids.get(row).is_some_and(|id| !each(row, *id)) {
                        return;
                    }
                }
            }
        }
    }

    /// Whether `test` holds for any of the series.
    pub(super) fn any(&self, mut test: impl FnMut(u32) -> bool) -> bool {
        let mut found = false;
        self.while_true(|_, id| {
            found = test(id);
            !found
        });
        found
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
    fn new(matcher: &'m Matcher, table: &Table) -> Test<'m> {
        let name = table.names.code(matcher.name());
        let values = name.and_then(|name| table.values(name));
        // A series has no empty values: the empty text is asked of what its family lacks.
        let wanted = if matcher.op() == MatchOp::Equal {
            Wanted::One(values.and_then(|values| values.code(matcher.value())))
        } else {
            Wanted::Known(vec![0; values.map_or(0, Dictionary::len)])
        };
        Test { matcher, name, wanted }
    }

    /// Keeps the rows that pass; a label that the family has not counts as the empty text.
    fn retain(&mut self, table: &Table, family: &Family, rows: &mut Rows) {
        let Some(column) = self.name.and_then(|name| family.column(name)) else {
            if !self.matcher.matches("") {
                *rows = Rows::none();
            }
            return;
        };
        let values = self.name.and_then(|name| table.values(name));
        match (&mut self.wanted, column) {
            (Wanted::One(None), _) => *rows = Rows::none(),
            (Wanted::One(Some(wanted)), Column::Same(code)) => {
                if code != wanted {
                    *rows = Rows::none();
                }
            }
            (Wanted::One(Some(wanted)), Column::Each(codes)) => rows.retain_of(codes, *wanted),
            (Wanted::Known(known), Column::Same(code)) => {
                if !passes(self.matcher, values, known, *code) {
                    *rows = Rows::none();
                }
            }
            (Wanted::Known(known), Column::Each(codes)) => {
                rows.retain(codes, |code| passes(self.matcher, values, known, code));
            }
        }
    }
}

/// Whether a value passes: each is asked once.
#[inline]
fn passes(matcher: &Matcher, values: Option<&Dictionary>, known: &mut [u8], code: u32) -> bool {
    #[cold]
    fn ask(matcher: &Matcher, values: Option<&Dictionary>, code: u32) -> u8 {
        let text = values.and_then(|values| values.text(code));
        1 + u8::from(text.is_some_and(|text| matcher.matches(text)))
    }
    let Some(known) = known.get_mut(code as usize) else { return false };
    if *known == 0 {
        *known = ask(matcher, values, code);
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

    fn is_empty(&self) -> bool {
        match self {
            Rows::All(count) => *count == 0,
            Rows::Some(rows) => rows.is_empty(),
        }
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

impl Snapshot {
    /// The series that pass all matchers of any selector and the scope, and whose samples reach into `range`; each
    /// once, in no order. No selector at all: every series of the scope.
    pub(super) fn find<'t>(
        &self,
        store: &OrgStore,
        table: &'t Table,
        selectors: &[&[Matcher]],
        range: TimeRange,
    ) -> Vec<Hit<'t>> {
        let found = self.families(table, selectors);
        look(self, store, range, |presence| {
            let mut hits = Vec::new();
            for one in &found {
                let Found { number, family, .. } = *one;
                one.while_true(|row, id| {
                    if presence.has(number, id) {
                        hits.push(Hit { id, family, row });
                    }
                    true
                });
            }
            hits
        })
    }

    /// The families of which any series passes all matchers of any selector and the scope, each once. Time is not
    /// looked at.
    pub(super) fn families<'t>(&self, table: &'t Table, selectors: &[&[Matcher]]) -> Vec<Found<'t>> {
        let Some((first, more)) = selectors.split_first() else { return self.scan(table, &[]) };
        let mut all = self.scan(table, first);
        for matchers in more {
            all.extend(self.scan(table, matchers));
        }
        if !more.is_empty() {
            // Stable and by number: those of one family are neighbours.
            all.sort_by_key(|found| found.number);
            let mut joined: Vec<Found<'t>> = Vec::with_capacity(all.len());
            for found in all {
                match joined.pop_if(|last| last.number == found.number) {
                    Some(last) => joined.push(Found { rows: last.rows.with(found.rows), ..last }),
                    None => joined.push(found),
                }
            }
            all = joined;
        }
        all
    }

    fn scan<'t>(&self, table: &'t Table, matchers: &[Matcher]) -> Vec<Found<'t>> {
        let all = || matchers.iter().chain(&self.scope.matchers);
        let mut tests: Vec<Test<'_>> = all().map(|matcher| Test::new(matcher, table)).collect();
        let named =
            all().find(|m| m.op() == MatchOp::Equal && m.name() == METRIC_NAME && !m.value().is_empty());
        let mut found = Vec::new();
        let mut look_at = |number: u32, family: &'t Family| {
            let name = table.metric_name(family).map_or("", |name| name);
            if !self.scope.admits_name(name) {
                return;
            }
            let mut rows = Rows::All(u32::try_from(family.ids.len()).unwrap_or(u32::MAX));
            for test in &mut tests {
                if rows.is_empty() {
                    return;
                }
                test.retain(table, family, &mut rows);
            }
            if !rows.is_empty() {
                found.push(Found { number, family, rows });
            }
        };
        match named {
            Some(matcher) => {
                table.families_of(matcher.value()).for_each(|(number, family)| look_at(number, family))
            }
            None => (0u32..).zip(&table.families).for_each(|(number, family)| look_at(number, family)),
        }
        found
    }
}
