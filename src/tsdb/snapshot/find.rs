//! Matchers against families: each distinct value is tested once, rows are compared as numbers.

use std::cmp::Reverse;
use std::sync::Arc;

use super::Snapshot;
use crate::model::{METRIC_NAME, MatchOp, Matcher, TimeRange};
use crate::tsdb::manifest::Tombstone;
use crate::tsdb::segment::{Ids, Spans};
use crate::tsdb::segments::{Part, SegmentSet};
use crate::tsdb::series::table::{Column, Family, Table};
use crate::tsdb::store::OrgStore;

/// A series that was found.
pub(super) struct Hit<'t> {
    pub(super) id: u32,
    pub(super) family: &'t Family,
    pub(super) row: usize,
    /// The time of its last sample in the head; none: it has none there.
    pub(super) last_in_head: Option<i64>,
}

/// A series that passes the matchers.
struct Place<'t> {
    id: u32,
    /// Number of the family.
    number: u32,
    family: &'t Family,
    row: usize,
}

/// The rows of one family in a segment.
struct PartRows<'p> {
    ids: Ids<'p>,
    spans: Spans<'p>,
    /// Behind the row that was found last: series come mostly in the same order here and there.
    next: usize,
}

impl PartRows<'_> {
    fn span(&mut self, id: u32) -> Option<(i64, i64)> {
        let row = if self.ids.get(self.next) == Some(id) { Some(self.next) } else { self.ids.row_of(id) }?;
        self.next = row + 1;
        self.spans.get(row)
    }
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
        let mut places: Vec<Place<'t>> = Vec::new();
        for matchers in selectors {
            self.scan(table, matchers, &mut places);
        }
        if selectors.len() > 1 {
            places.sort_unstable_by_key(|place| place.id);
            places.dedup_by_key(|place| place.id);
        }
        let range = self.within(range);
        let ids: Vec<u32> = places.iter().map(|place| place.id).collect();
        let mut found = vec![false; places.len()];
        let mut in_head = vec![None; places.len()];
        // The head first: what it lets go of meanwhile is in the segments that are asked for after it.
        store.head.spans().overlapping(&ids, TimeRange::ALL, |place, span| {
            if let (Some(found), Some(last)) = (found.get_mut(place), in_head.get_mut(place)) {
                *found = span.overlaps(range);
                *last = Some(span.last);
            }
        });
        if store.side.has_histograms() {
            for (place, span) in store.side.spans(&ids) {
                if let (Some(found), Some(last)) = (found.get_mut(place), in_head.get_mut(place)) {
                    *found |= span.overlaps(range);
                    *last = (*last).max(Some(span.last));
                }
            }
        }
        self.find_sealed(&store.segments(), &places, range, &mut found);
        let hits = places.into_iter().zip(found).zip(in_head).filter(|((_, found), _)| *found);
        hits.map(|((Place { id, family, row, .. }, _), last_in_head)| Hit { id, family, row, last_in_head })
            .collect()
    }

    /// Looks for those that are not found yet in the segments, the newest first.
    fn find_sealed(&self, set: &SegmentSet, places: &[Place<'_>], range: TimeRange, found: &mut [bool]) {
        set.bad_in(range).for_each(|bad| self.warnings.bad(bad));
        let mut left = found.iter().filter(|found| !**found).count();
        let mut parts: Vec<&Arc<Part>> = set.overlapping(range).collect();
        parts.sort_by_key(|part| Reverse(part.meta().max_ms));
        for part in parts {
            if left == 0 {
                return;
            }
            let mut rows: Option<(u32, Option<PartRows<'_>>)> = None;
            for (place, found) in places.iter().zip(found.iter_mut()).filter(|(_, found)| !**found) {
                let (_, here) = match rows.take() {
                    Some(here) if here.0 == place.number => rows.insert(here),
                    _ => rows.insert((place.number, self.rows_in(part, place.number))),
                };
                let Some((first, last)) = here.as_mut().and_then(|rows| rows.span(place.id)) else {
                    continue;
                };
                let (start, end) = (range.start.as_ms().max(first), range.end.as_ms().min(last));
                let deleted = |tombstone: &Tombstone| tombstone.from_ms <= start && end <= tombstone.to_ms;
                if start <= end && !set.tombstones_of(part, place.id).any(deleted) {
                    *found = true;
                    left -= 1;
                }
            }
            // What could not be read looks like ids and times that are not there.
            if let Err(damage) = part.segment.intact() {
                self.warnings.damage(part, &damage);
            }
        }
    }

    fn rows_in<'p>(&self, part: &'p Part, family: u32) -> Option<PartRows<'p>> {
        let number = part.family(family)?;
        let spans = part.segment.spans(number);
        let spans = spans.inspect_err(|damage| self.warnings.damage(part, damage)).ok()?;
        Some(PartRows { ids: part.segment.ids(number)?, spans, next: 0 })
    }

    /// The time of the newest sample of a series; `in_head`: of the newest that the head has.
    pub(super) fn last_of(set: &SegmentSet, family: u32, series: u32, in_head: Option<i64>) -> i64 {
        let mut newest = in_head.unwrap_or(i64::MIN);
        for part in set.parts.iter().rev() {
            if part.meta().max_ms <= newest {
                continue;
            }
            let last = part.family(family).and_then(|number| {
                let row = part.segment.row_of(number, series)?;
                part.segment.span(number, row).map(|(_, last)| last)
            });
            newest = newest.max(last.unwrap_or(i64::MIN));
        }
        newest
    }

    fn scan<'t>(&self, table: &'t Table, matchers: &[Matcher], places: &mut Vec<Place<'t>>) {
        let all = || matchers.iter().chain(&self.scope.matchers);
        let mut tests: Vec<Test<'_>> = all().map(|matcher| Test::new(matcher, table)).collect();
        let named =
            all().find(|m| m.op() == MatchOp::Equal && m.name() == METRIC_NAME && !m.value().is_empty());
        let families: Box<dyn Iterator<Item = &'t Family>> = match named {
            Some(matcher) => Box::new(table.families_of(matcher.value()).collect::<Vec<_>>().into_iter()),
            None => Box::new(table.families.iter()),
        };
        for family in families {
            let Some(number) = family.ids.first().and_then(|id| table.family_of(*id)) else { continue };
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
                    places.push(Place { id: *id, number, family, row });
                }
            }
        }
    }
}
