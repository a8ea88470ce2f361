//! The decision which queries are evaluated inline: on the thread that received them, and not on
//! the query lane.
//!
//! A query that takes 50 µs spends twice as long on its way to a thread of the lane and back when
//! the machine is idle, because two sleeping threads have to be woken. So the time of each kind of
//! query is recorded, and the edge thread evaluates the next fast one itself. It holds a permit of
//! the lane meanwhile, as other work on it does.
//!
//! All other connections wait for inline work. So a query runs inline only
//!
//! * if a query with the same fingerprint, of the same organisation and about the same time range,
//!   took at most a millisecond within the last minute or two: it read the same data, so this one
//!   does not wait for the disk;
//! * if no other connection sent a request within the last 2 ms. Otherwise it goes to the lane,
//!   where organisations take turns and there are as many threads as the cores can use;
//! * for 2 ms at most, and no piece of work longer than half a millisecond. A query beyond that
//!   starts again on the lane and does not count as fast any more. This bound does not depend on
//!   earlier queries. All work of a query checks before each piece, and does not start a longer
//!   one: matching, listings, reading, encoding the result;
//! * for both steps of a query that another server answers: its preparation, and the encoding of a
//!   short answer. The thread does not wait for the server;
//! * as long as it finds the table of series, metadata and exemplars unlocked. Otherwise it starts
//!   again on the lane: a connection's thread does not wait for a query, or for a writer that waits
//!   for one.

use std::collections::HashSet;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hash as _, Hasher as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use crate::api::params::Params;
use crate::clock::Stopwatch;
use crate::model::{OrgId, TimeRange, Timestamp};
use crate::sync::IgnorePoison as _;

/// The most time of a fast query, inclusive.
const FAST_MAX: Duration = Duration::from_millis(1);
/// After this time an inline query starts again on the lane.
const DEADLINE: Duration = Duration::from_millis(2);
/// The longest piece of inline work, in units of about a nanosecond, inclusive.
const PIECE_UNITS_MAX: u64 = 500_000;
/// The largest body that is encoded inline; that takes about a millisecond.
pub(super) const BODY_BYTES_MAX: usize = 512 << 10;
/// The largest body that is compressed inline; that takes about two milliseconds.
pub(super) const CODED_BYTES_MAX: usize = 128 << 10;
/// Fingerprints of one generation. With more kinds of queries, older ones go to the lane once more.
const FINGERPRINTS_MAX: usize = 4_096;
/// The time after which a generation ends. A fingerprint is remembered for one to two of these.
const GENERATION: Duration = Duration::from_secs(60);
/// Sliding time ranges within this many milliseconds have the same fingerprint.
const RANGE_GRAIN_MS: i64 = 600_000;

/// The fingerprints of queries that were fast.
#[derive(Debug)]
pub struct InlinePolicy {
    keys: RandomState,
    fast: Mutex<FastQueries>,
}

/// Two generations. When the young one is full or a minute old, it replaces the old one.
#[derive(Debug)]
struct FastQueries {
    young: HashSet<u64>,
    old: HashSet<u64>,
    since: Stopwatch,
}

/// A hash of a query without its times, and its time range rounded to [`RANGE_GRAIN_MS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::api::orgs) struct QueryFingerprint {
    hash: u64,
    about: (i64, i64),
}

/// The deadline of inline work, [`DEADLINE`] after its start.
#[derive(Clone, Debug)]
pub(super) struct InlineDeadline {
    since: Stopwatch,
    exceeded: Arc<AtomicBool>,
}

impl Default for InlinePolicy {
    fn default() -> InlinePolicy {
        let fast = FastQueries { young: HashSet::new(), old: HashSet::new(), since: Stopwatch::start() };
        InlinePolicy { keys: RandomState::new(), fast: Mutex::new(fast) }
    }
}

impl InlinePolicy {
    /// Returns the fingerprint of a request: a hash of `endpoint`, which is the pattern of its path
    /// and the metric or label in its path, and of its parameters except times. No parameter may
    /// have been taken from `params` yet.
    pub(in crate::api::orgs) fn fingerprint(
        &self,
        endpoint: (&str, &str),
        params: &Params,
    ) -> QueryFingerprint {
        let mut hasher = self.keys.build_hasher();
        endpoint.hash(&mut hasher);
        params.hash_without(&["time", "start", "end"], &mut hasher);
        QueryFingerprint { hash: hasher.finish(), about: (0, 0) }
    }

    fn lock(&self) -> MutexGuard<'_, FastQueries> {
        // Consistent after every statement.
        self.fast.lock().ignore_poison()
    }

    /// Returns whether a recent query of `org` with this fingerprint was fast.
    pub(super) fn is_fast(&self, org: OrgId, fingerprint: QueryFingerprint) -> bool {
        let key = self.keys.hash_one((org.0, fingerprint));
        let mut fast = self.lock();
        fast.age();
        fast.young.contains(&key) || fast.old.contains(&key)
    }

    /// Records the duration of a query with this fingerprint.
    pub(super) fn record(&self, org: OrgId, fingerprint: QueryFingerprint, time: Duration) {
        let key = self.keys.hash_one((org.0, fingerprint));
        let mut fast = self.lock();
        fast.age();
        if time > FAST_MAX {
            fast.old.remove(&key);
            fast.young.remove(&key);
        } else {
            if fast.young.len() >= FINGERPRINTS_MAX {
                fast.end_generation();
            }
            fast.young.insert(key);
        }
    }
}

impl FastQueries {
    fn age(&mut self) {
        let age = self.since.elapsed();
        if age >= 2 * GENERATION {
            self.young.clear();
        }
        if age >= GENERATION {
            self.end_generation();
        }
    }

    fn end_generation(&mut self) {
        self.old = std::mem::take(&mut self.young);
        self.since = Stopwatch::start();
    }
}

impl QueryFingerprint {
    /// Returns the fingerprint of the preparation of a query that another server answers.
    #[must_use]
    pub(super) fn of_preparation(self) -> QueryFingerprint {
        // Hashes are keyed, so this is as unlikely to be that of another query as any other one.
        QueryFingerprint { hash: !self.hash, ..self }
    }

    /// Returns the fingerprint of the same query over this time range.
    #[must_use]
    pub(in crate::api::orgs) fn over(self, range: TimeRange) -> QueryFingerprint {
        let about = |at: Timestamp| at.as_ms().div_euclid(RANGE_GRAIN_MS);
        QueryFingerprint { about: (about(range.start), about(range.end)), ..self }
    }
}

impl InlineDeadline {
    pub(super) fn start() -> InlineDeadline {
        InlineDeadline { since: Stopwatch::start(), exceeded: Arc::default() }
    }

    /// Checks the clock, and returns whether the work has to start again on the lane.
    pub(super) fn check(&self) -> bool {
        if self.since.elapsed() > DEADLINE {
            self.exceed();
        }
        self.exceeded()
    }

    /// Returns whether a piece of `units` of work may start inline.
    pub(super) fn admits(&self, units: u64) -> bool {
        if units > PIECE_UNITS_MAX {
            self.exceed();
        }
        !self.check()
    }

    /// Makes the work start again on the lane.
    pub(super) fn exceed(&self) {
        self.exceeded.store(true, Ordering::Relaxed);
    }

    /// Returns the flag that makes the work start again on the lane once it is set.
    pub(super) fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.exceeded)
    }

    /// Returns whether the work has to start again on the lane: the time had passed at a check, a
    /// piece of work was refused, or a lock was not free. Does not check the clock.
    pub(super) fn exceeded(&self) -> bool {
        self.exceeded.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORG: OrgId = OrgId(1);
    const QUICK: Duration = Duration::from_micros(40);
    const SLOW: Duration = Duration::from_micros(1_001);

    fn like(policy: &InlinePolicy, query: &str) -> QueryFingerprint {
        policy.fingerprint(("query", ""), &Params::of_query(Some(query)).expect("parameters"))
    }

    #[test]
    fn a_fingerprint_depends_on_all_but_times() {
        let policy = InlinePolicy::default();
        let one = like(&policy, "query=up&time=1");
        assert_eq!(one, like(&policy, "query=up&time=2"));
        assert_eq!(one, like(&policy, "start=7&query=up"));
        for other in ["query=down", "query=up&limit=1", "query=up&query=up", "queryu=p", "query=up&step=15"] {
            assert_ne!(one, like(&policy, other), "{other}");
        }
        let params = Params::of_query(Some("query=up")).expect("parameters");
        assert_ne!(one, policy.fingerprint(("query_range", ""), &params));
        assert_ne!(one, policy.fingerprint(("query", "a"), &params));
    }

    #[test]
    fn a_query_is_fast_only_for_its_organisation_and_a_similar_time_range() {
        let policy = InlinePolicy::default();
        let range = |from_s, to_s| TimeRange::new(Timestamp::from_s(from_s), Timestamp::from_s(to_s));
        let asked = like(&policy, "query=up").over(range(1_200, 4_800));
        assert!(!policy.is_fast(ORG, asked));
        policy.record(ORG, asked, QUICK);
        assert!(policy.is_fast(ORG, asked) && !policy.is_fast(OrgId(2), asked));
        for (from_s, to_s, same) in [(1_799, 5_399, true), (1_199, 4_800, false), (1_200, 5_400, false)] {
            let at = like(&policy, "query=up").over(range(from_s, to_s));
            assert_eq!(policy.is_fast(ORG, at), same, "{from_s} to {to_s}");
        }
        let _ = like(&policy, "query=up").over(TimeRange::ALL);
    }

    #[test]
    fn a_query_that_took_longer_is_not_fast_any_more() {
        let policy = InlinePolicy::default();
        let asked = like(&policy, "query=up");
        policy.record(ORG, asked, SLOW);
        assert!(!policy.is_fast(ORG, asked));
        policy.record(ORG, asked, QUICK);
        policy.lock().end_generation();
        policy.record(ORG, asked, QUICK);
        assert!(policy.is_fast(ORG, asked));
        policy.record(ORG, asked, SLOW);
        assert!(!policy.is_fast(ORG, asked), "of either generation");
    }

    #[test]
    fn at_most_two_generations_are_remembered() {
        let policy = InlinePolicy::default();
        let first = like(&policy, "query=first");
        policy.record(ORG, first, QUICK);
        for n in 0..2 * FINGERPRINTS_MAX {
            policy.record(ORG, like(&policy, &format!("query={n}")), QUICK);
            let fast = policy.lock();
            assert!(fast.young.len() <= FINGERPRINTS_MAX && fast.old.len() <= FINGERPRINTS_MAX);
        }
        assert!(!policy.is_fast(ORG, first));
        assert!(policy.is_fast(ORG, like(&policy, &format!("query={}", 2 * FINGERPRINTS_MAX - 1))));
    }

    #[test]
    fn an_exceeded_deadline_stays_exceeded() {
        let deadline = InlineDeadline::start();
        deadline.exceed();
        assert!(deadline.check() && deadline.exceeded() && !deadline.admits(0));
        let deadline = InlineDeadline::start();
        assert!(!deadline.exceeded(), "not checked yet");
        assert!(!deadline.admits(PIECE_UNITS_MAX + 1), "a long piece is refused before it starts");
        assert!(deadline.exceeded() && deadline.check());
    }
}
