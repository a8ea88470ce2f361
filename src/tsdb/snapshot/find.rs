//! Matchers against families: each distinct value is tested once, rows are compared as numbers.

use std::collections::BTreeMap;

use super::Snapshot;
use crate::model::{METRIC_NAME, MatchOp, Matcher, TimeRange};
use crate::tsdb::head::stripe::Span;
use crate::tsdb::series::table::{Column, Family, Table};
use crate::tsdb::store::OrgStore;

/// A series that was found.
pub(super) struct Hit<'t> {
    pub(super) id: u32,
    pub(super) family: &'t Family,
    pub(super) row: usize,
    /// Where its samples lie.
    pub(super) span: Span,
}

/// A matcher, the code of its label, and what is known of each of the label's values.
struct Test<'m> {
    matcher: &'m Matcher,
    name: Option<u32>,
    /// By value code: 0 not asked yet, 1 no, 2 yes. Filled as rows ask.
    known: Vec<u8>,
}

impl<'m> Test<'m> {
    fn new(matcher: &'m Matcher, table: &Table) -> Test<'m> {
        Test { matcher, name: table.names.code(matcher.name()), known: Vec::new() }
    }

    fn passes(&mut self, table: &Table, code: u32) -> bool {
        let Some(values) = self.name.and_then(|name| table.values(name)) else { return false };
        if self.known.len() < values.len() {
            self.known.resize(values.len(), 0);
        }
        let Some(known) = self.known.get_mut(code as usize) else { return false };
        if *known == 0 {
            let passes = values.text(code).is_some_and(|text| self.matcher.matches(text));
            *known = 1 + u8::from(passes);
        }
        *known == 2
    }

    /// Keeps the rows that pass; a label that the family has not counts as the empty text.
    fn retain(&mut self, table: &Table, family: &Family, rows: &mut Rows) {
        let column = self.name.and_then(|name| family.names.iter().position(|n| *n == name));
        match column.and_then(|place| family.columns.get(place)) {
            None => {
                if !self.matcher.matches("") {
                    *rows = Rows::Some(Vec::new());
                }
            }
            Some(Column::Same(code)) => {
                if !self.passes(table, *code) {
                    *rows = Rows::Some(Vec::new());
                }
            }
            Some(Column::Each(codes)) => rows.retain(codes, |code| self.passes(table, code)),
        }
    }
}

/// Rows of a family that are still in.
enum Rows {
    All(usize),
    Some(Vec<u32>),
}

impl Rows {
    fn retain(&mut self, codes: &[u32], mut keep: impl FnMut(u32) -> bool) {
        match self {
            Rows::All(_) => {
                let kept = (0u32..).zip(codes).filter(|(_, code)| keep(**code)).map(|(row, _)| row);
                *self = Rows::Some(kept.collect());
            }
            Rows::Some(rows) => rows.retain(|row| codes.get(*row as usize).is_some_and(|code| keep(*code))),
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Rows::All(count) => *count == 0,
            Rows::Some(rows) => rows.is_empty(),
        }
    }

    fn each(&self) -> Box<dyn Iterator<Item = usize> + '_> {
        match self {
            Rows::All(count) => Box::new(0..*count),
            Rows::Some(rows) => Box::new(rows.iter().map(|row| *row as usize)),
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
        let everything: &[&[Matcher]] = &[&[]];
        let selectors = if selectors.is_empty() { everything } else { selectors };
        let mut places: Vec<(u32, &'t Family, usize)> = Vec::new();
        for matchers in selectors {
            self.scan(table, matchers, &mut places);
        }
        if selectors.len() > 1 {
            places.sort_unstable_by_key(|(id, ..)| *id);
            places.dedup_by_key(|(id, ..)| *id);
        }
        let ids: Vec<u32> = places.iter().map(|(id, ..)| *id).collect();
        let mut hits = Vec::with_capacity(ids.len());
        let mut beside = if store.side.has_histograms() { store.side.spans(&ids) } else { BTreeMap::new() };
        store.head.spans().overlapping(&ids, self.within(range), |place, span| {
            if let Some((id, family, row)) = places.get(place) {
                let span = beside.remove(&place).map_or(span, |other| span.with(other));
                hits.push(Hit { id: *id, family, row: *row, span });
            }
        });
        // Those that have histograms alone.
        for (place, span) in beside {
            if let (Some((id, family, row)), true) = (places.get(place), span.overlaps(self.within(range))) {
                hits.push(Hit { id: *id, family, row: *row, span });
            }
        }
        hits
    }

    fn scan<'t>(&self, table: &'t Table, matchers: &[Matcher], places: &mut Vec<(u32, &'t Family, usize)>) {
        let all = || matchers.iter().chain(&self.scope.matchers);
        let mut tests: Vec<Test<'_>> = all().map(|matcher| Test::new(matcher, table)).collect();
        let named =
            all().find(|m| m.op() == MatchOp::Equal && m.name() == METRIC_NAME && !m.value().is_empty());
        let families: Box<dyn Iterator<Item = &'t Family>> = match named {
            Some(matcher) => Box::new(table.families_of(matcher.value()).collect::<Vec<_>>().into_iter()),
            None => Box::new(table.families.iter()),
        };
        for family in families {
            let name = table.metric_name(family).map_or("", |name| name);
            if !self.scope.admits_name(name) {
                continue;
            }
            let mut rows = Rows::All(family.ids.len());
            for test in &mut tests {
                if rows.is_empty() {
                    break;
                }
                test.retain(table, family, &mut rows);
            }
            for row in rows.each() {
                if let Some(id) = family.ids.get(row) {
                    places.push((*id, family, row));
                }
            }
        }
    }
}
