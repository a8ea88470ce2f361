//! When metrics were queried last, for the view of cardinality: a bounded table in memory.
//!
//! A query counts for each metric that one of its selectors names (`up`, `{__name__="up"}`), for
//! every caller, and whether or not its result was cached. Nothing is written to disk, so the table
//! begins again when the server starts. A table that is full forgets the metrics that were queried
//! least recently, those of the organisation with the most metrics first. For each organisation it
//! knows the time of the last eviction, so a metric that is not listed was not queried since that
//! time.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::model::{METRIC_NAME, MatchOp, Matcher, OrgId, Timestamp};
use crate::sync::IgnorePoison as _;

/// The most metrics of one organisation, inclusive.
const ORG_METRICS_MAX: usize = 5_000;
/// The most metrics of all organisations, inclusive.
const METRICS_MAX: usize = 50_000;
/// The most organisations with metrics that are forgotten for others, inclusive.
const ORGS_MAX: usize = 10_000;
/// Longer names are not stored, so no metric has one.
const NAME_BYTES_MAX: usize = 128;

/// The last queries of metrics.
#[derive(Debug)]
pub struct QueriedMetrics {
    start: Timestamp,
    bounds: Bounds,
    table: Mutex<Table>,
}

#[derive(Clone, Copy, Debug)]
struct Bounds {
    org: usize,
    all: usize,
    orgs: usize,
}

#[derive(Debug, Default)]
struct Table {
    orgs: HashMap<OrgId, OrgMetrics>,
    metrics: usize,
    /// The greatest time that was forgotten with a whole organisation.
    forgotten: Option<Timestamp>,
}

/// The metrics of an organisation.
#[derive(Debug, Default)]
struct OrgMetrics {
    last: HashMap<Arc<str>, Queried>,
    /// The names by the order of their last queries.
    order: BTreeMap<u64, Arc<str>>,
    turns: u64,
    /// The greatest time of a metric that was forgotten.
    forgotten: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug)]
struct Queried {
    turn: u64,
    at: Timestamp,
}

impl OrgMetrics {
    fn record(&mut self, name: &str, at: Timestamp) -> bool {
        self.turns += 1;
        let turn = self.turns;
        let (is_new, name) = match self.last.get_key_value(name) {
            Some((known, before)) => {
                self.order.remove(&before.turn);
                (false, Arc::clone(known))
            }
            None => (true, Arc::from(name)),
        };
        self.order.insert(turn, Arc::clone(&name));
        self.last.insert(name, Queried { turn, at });
        is_new
    }

    /// Forgets the metric that was queried least recently. Returns whether a metric was removed.
    fn forget(&mut self) -> bool {
        let Some((_, name)) = self.order.pop_first() else { return false };
        let at = self.last.remove(&name).map(|queried| queried.at);
        self.forgotten = self.forgotten.max(at);
        true
    }
}

impl QueriedMetrics {
    /// Returns an empty table of a server that started at `start`.
    pub fn new(start: Timestamp) -> QueriedMetrics {
        QueriedMetrics::within(start, Bounds { org: ORG_METRICS_MAX, all: METRICS_MAX, orgs: ORGS_MAX })
    }

    fn within(start: Timestamp, bounds: Bounds) -> QueriedMetrics {
        QueriedMetrics { start, bounds, table: Mutex::default() }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // No code that can panic runs under the lock.
        self.table.lock().ignore_poison()
    }

    /// Returns the start of the server.
    pub(in crate::api::orgs) fn started_at(&self) -> Timestamp {
        self.start
    }

    /// Records a query of an organisation with these selectors.
    pub(super) fn record(&self, org: OrgId, selectors: &[&[Matcher]], now: Timestamp) {
        let named = |matcher: &&Matcher| matcher.name() == METRIC_NAME && matcher.op() == MatchOp::Equal;
        let names = selectors.iter().filter_map(|matchers| matchers.iter().find(named));
        let mut names = names.map(Matcher::value).filter(|name| name.len() <= NAME_BYTES_MAX).peekable();
        if names.peek().is_none() {
            return;
        }
        let mut table = self.table();
        let Table { orgs, metrics, forgotten } = &mut *table;
        if orgs.len() >= self.bounds.orgs && !orgs.contains_key(&org) {
            let newest = |metrics: &OrgMetrics| metrics.last.values().map(|queried| queried.at).max();
            for gone in orgs.values() {
                *forgotten = (*forgotten).max(gone.forgotten).max(newest(gone));
            }
            orgs.clear();
            *metrics = 0;
        }
        let own = orgs.entry(org).or_default();
        for name in names {
            *metrics += usize::from(own.record(name, now));
            if own.last.len() > self.bounds.org {
                *metrics -= usize::from(own.forget());
            }
        }
        while *metrics > self.bounds.all {
            let most = orgs.values_mut().max_by_key(|metrics| metrics.last.len());
            if !most.is_some_and(OrgMetrics::forget) {
                break;
            }
            *metrics -= 1;
        }
    }

    /// Returns the time since which every query of the organisation is known, and when these
    /// metrics were queried last.
    pub(in crate::api::orgs) fn last<'n>(
        &self,
        org: OrgId,
        names: impl Iterator<Item = &'n str>,
    ) -> (Timestamp, Vec<Option<Timestamp>>) {
        let table = self.table();
        let own = table.orgs.get(&org);
        let forgotten = own.and_then(|own| own.forgotten).max(table.forgotten);
        let since = forgotten.map_or(self.start, |at| at.max(self.start));
        (since, names.map(|name| Some(own?.last.get(name)?.at)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORG: OrgId = OrgId(1);

    fn at(s: i64) -> Timestamp {
        Timestamp::from_s(s)
    }

    fn query(table: &QueriedMetrics, org: OrgId, name: &str, s: i64) {
        table.record(org, &[&[Matcher::equal("job", "a"), Matcher::equal(METRIC_NAME, name)]], at(s));
    }

    fn last(table: &QueriedMetrics, org: OrgId, name: &str) -> (i64, Option<i64>) {
        let (since, mut found) = table.last(org, [name].into_iter());
        let seconds = |at: Timestamp| at.as_ms() / 1_000;
        (seconds(since), found.pop().flatten().map(seconds))
    }

    #[test]
    fn the_last_query_of_a_metric_counts_for_its_organisation_alone() {
        let table = QueriedMetrics::new(at(1));
        query(&table, ORG, "up", 5);
        query(&table, ORG, "up", 9);
        let pattern = Matcher::new(METRIC_NAME, MatchOp::Regex, "u.").expect("a pattern");
        table.record(ORG, &[&[pattern], &[]], at(20));
        query(&table, ORG, &"x".repeat(129), 20);
        assert_eq!(last(&table, ORG, "up"), (1, Some(9)));
        assert_eq!(last(&table, ORG, "down"), (1, None));
        assert_eq!(last(&table, OrgId(2), "up"), (1, None));
        assert_eq!(table.table().metrics, 1);
    }

    /// A metric that is not listed was not queried since the stated time, even if entries were
    /// evicted.
    #[test]
    fn a_full_table_forgets_the_least_recently_queried_and_says_since_when_it_knows_all() {
        let table = QueriedMetrics::within(at(1), Bounds { org: 3, all: 5, orgs: 3 });
        for (name, s) in [("a", 10), ("b", 11), ("c", 12), ("a", 13), ("d", 14)] {
            query(&table, ORG, name, s);
        }
        assert_eq!(last(&table, ORG, "b"), (11, None), "the least recently queried");
        assert_eq!(last(&table, ORG, "a"), (11, Some(13)));
        // An organisation with one metric keeps it while the organisation with the most metrics
        // adds more.
        query(&table, OrgId(2), "x", 15);
        for n in 0..1_000 {
            query(&table, ORG, &format!("m{n}"), 20 + n);
        }
        assert_eq!(last(&table, OrgId(2), "x"), (1, Some(15)));
        assert_eq!(last(&table, ORG, "m999").1, Some(1_019));
        assert_eq!(table.table().metrics, 4);
        query(&table, OrgId(3), "y", 1_100);
        query(&table, OrgId(3), "z", 1_101);
        assert_eq!(table.table().metrics, 5, "all organisations together");
        // With one organisation too many, all are forgotten, and the time since which queries are
        // known moves on.
        query(&table, OrgId(4), "y", 1_200);
        assert_eq!(last(&table, OrgId(2), "x"), (1_101, None));
        assert_eq!(last(&table, OrgId(4), "y"), (1_101, Some(1_200)));
    }
}
