//! Questions that are known to be brief are answered where they arrive.
//!
//! A question that takes a twentieth of a millisecond spends twice as long on its way to a thread of the query lane and
//! back, when the machine is idle: each of two threads that sleep has to be woken. So what its like took is remembered, and
//! the next one is answered by the edge's own thread, which holds a place of the lane meanwhile, as any other work on it.
//!
//! What is worked on there keeps all other connections waiting. So it is done only
//!
//! * where the like of it, of the same organisation and about the same time, was answered within a millisecond a minute or two
//!   ago: it read then what it will read now, so that it waits for no disk;
//! * while nobody else asks: another connection's request within the last 2 ms sends it to the lane, where organisations
//!   take turns and there are as many threads as cores have use for;
//! * for 2 ms at most, and one piece of work of at most half a millisecond: what takes longer after all is begun anew on
//!   the lane, and is not brief any more. This bound does not depend on what its like took. All work of a query asks
//!   before each piece, and a piece that is too long is not begun here: matching, listings, reading, writing the answer.

use std::collections::HashSet;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hash as _, Hasher as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::api::params::Params;
use crate::clock::Stopwatch;
use crate::model::{OrgId, TimeRange, Timestamp};

/// What takes no longer is brief.
const BRIEF: Duration = Duration::from_millis(1);
/// After this it is begun anew on the lane.
const PATIENCE: Duration = Duration::from_millis(2);
/// No longer piece of work is begun where a request arrived, in units of about a nanosecond.
const PIECE_UNITS_MAX: u64 = 500_000;
/// No longer answer is written there: about a millisecond of writing.
pub(super) const BODY_BYTES_MAX: usize = 512 << 10;
/// No longer answer is compressed there: about two milliseconds of compressing.
pub(super) const CODED_BYTES_MAX: usize = 128 << 10;
/// Kinds of questions that are remembered, twice. An organisation that asks for more has others go over the lane once more.
const KEPT: usize = 4_096;
/// How long they are remembered at least, and half of the most.
const FRESH: Duration = Duration::from_secs(60);
/// Windows that slide look at about the same time for so long.
const ABOUT_MS: i64 = 600_000;

/// The kinds of questions that were brief of late.
#[derive(Debug)]
pub struct Brief {
    keys: RandomState,
    known: Mutex<Known>,
}

/// Two generations: when the young one is full or a minute old, it is the old one, and that is forgotten.
#[derive(Debug)]
struct Known {
    young: HashSet<u64>,
    old: HashSet<u64>,
    since: Stopwatch,
}

/// A kind of question: everything that it says but when, and about when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::api::orgs) struct Likeness {
    words: u64,
    about: (i64, i64),
}

/// Work that is done where it arrived.
#[derive(Clone, Debug)]
pub(super) struct Here {
    since: Stopwatch,
    overstayed: Arc<AtomicBool>,
}

impl Default for Brief {
    fn default() -> Brief {
        let known = Known { young: HashSet::new(), old: HashSet::new(), since: Stopwatch::start() };
        Brief { keys: RandomState::new(), known: Mutex::new(known) }
    }
}

impl Brief {
    /// What is asked of an endpoint, and of what its path says beside, with these parameters, of which none may have been
    /// taken yet. Those that say when are left out.
    pub(in crate::api::orgs) fn like(&self, endpoint: (&'static str, &str), params: &Params) -> Likeness {
        let mut hasher = self.keys.build_hasher();
        endpoint.hash(&mut hasher);
        params.hash_without(&["time", "start", "end"], &mut hasher);
        Likeness { words: hasher.finish(), about: (0, 0) }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        // Whole after every statement.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether such a question was brief of late.
    pub(super) fn knows(&self, org: OrgId, likeness: Likeness) -> bool {
        let key = self.keys.hash_one((org.0, likeness));
        let mut known = self.lock();
        known.age();
        known.young.contains(&key) || known.old.contains(&key)
    }

    /// Such a question took this long.
    pub(super) fn took(&self, org: OrgId, likeness: Likeness, time: Duration) {
        let key = self.keys.hash_one((org.0, likeness));
        let mut known = self.lock();
        known.age();
        if time > BRIEF {
            known.old.remove(&key);
            known.young.remove(&key);
        } else {
            if known.young.len() >= KEPT {
                known.turn();
            }
            known.young.insert(key);
        }
    }
}

impl Known {
    fn age(&mut self) {
        let age = self.since.elapsed();
        if age >= 2 * FRESH {
            self.young.clear();
        }
        if age >= FRESH {
            self.turn();
        }
    }

    fn turn(&mut self) {
        self.old = std::mem::take(&mut self.young);
        self.since = Stopwatch::start();
    }
}

impl Likeness {
    /// The same about this time.
    #[must_use]
    pub(in crate::api::orgs) fn over(self, range: TimeRange) -> Likeness {
        let about = |at: Timestamp| at.as_ms().div_euclid(ABOUT_MS);
        Likeness { about: (about(range.start), about(range.end)), ..self }
    }
}

impl Here {
    pub(super) fn begin() -> Here {
        Here { since: Stopwatch::start(), overstayed: Arc::default() }
    }

    /// Whether it took too long for this place; once it did, it is not asked again.
    pub(super) fn is_over(&self) -> bool {
        if self.since.elapsed() > PATIENCE {
            self.leave();
        }
        self.overstayed()
    }

    /// Whether a piece of `units` of work may be done here.
    pub(super) fn admits(&self, units: u64) -> bool {
        if units > PIECE_UNITS_MAX {
            self.leave();
        }
        !self.is_over()
    }

    /// What is done here belongs on the lane.
    pub(super) fn leave(&self) {
        self.overstayed.store(true, Ordering::Relaxed);
    }

    /// Whether it took too long, or was refused a piece of work.
    pub(super) fn overstayed(&self) -> bool {
        self.overstayed.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORG: OrgId = OrgId(1);
    const QUICK: Duration = Duration::from_micros(40);
    const SLOW: Duration = Duration::from_micros(1_001);

    fn like(brief: &Brief, query: &str) -> Likeness {
        brief.like(("query", ""), &Params::of_query(Some(query)).expect("parameters"))
    }

    #[test]
    fn a_kind_of_question_is_what_it_says_but_when() {
        let brief = Brief::default();
        let one = like(&brief, "query=up&time=1");
        assert_eq!(one, like(&brief, "query=up&time=2"));
        assert_eq!(one, like(&brief, "start=7&query=up"));
        for other in ["query=down", "query=up&limit=1", "query=up&query=up", "queryu=p", "query=up&step=15"] {
            assert_ne!(one, like(&brief, other), "{other}");
        }
        let params = Params::of_query(Some("query=up")).expect("parameters");
        assert_ne!(one, brief.like(("query_range", ""), &params));
        assert_ne!(one, brief.like(("query", "a"), &params));
    }

    #[test]
    fn what_was_brief_is_known_to_be_so_for_its_organisation_and_about_that_time() {
        let brief = Brief::default();
        let range = |from_s, to_s| TimeRange::new(Timestamp::from_s(from_s), Timestamp::from_s(to_s));
        let asked = like(&brief, "query=up").over(range(1_200, 4_800));
        assert!(!brief.knows(ORG, asked));
        brief.took(ORG, asked, QUICK);
        assert!(brief.knows(ORG, asked) && !brief.knows(OrgId(2), asked));
        for (from_s, to_s, same) in [(1_799, 5_399, true), (1_199, 4_800, false), (1_200, 5_400, false)] {
            let at = like(&brief, "query=up").over(range(from_s, to_s));
            assert_eq!(brief.knows(ORG, at), same, "{from_s} to {to_s}");
        }
        let _ = like(&brief, "query=up").over(TimeRange::ALL);
    }

    #[test]
    fn what_took_longer_is_not_brief_any_more() {
        let brief = Brief::default();
        let asked = like(&brief, "query=up");
        brief.took(ORG, asked, SLOW);
        assert!(!brief.knows(ORG, asked));
        brief.took(ORG, asked, QUICK);
        brief.lock().turn();
        brief.took(ORG, asked, QUICK);
        assert!(brief.knows(ORG, asked));
        brief.took(ORG, asked, SLOW);
        assert!(!brief.knows(ORG, asked), "of either generation");
    }

    #[test]
    fn no_more_than_two_generations_are_remembered() {
        let brief = Brief::default();
        let first = like(&brief, "query=first");
        brief.took(ORG, first, QUICK);
        for n in 0..2 * KEPT {
            brief.took(ORG, like(&brief, &format!("query={n}")), QUICK);
            let known = brief.lock();
            assert!(known.young.len() <= KEPT && known.old.len() <= KEPT);
        }
        assert!(!brief.knows(ORG, first));
        assert!(brief.knows(ORG, like(&brief, &format!("query={}", 2 * KEPT - 1))));
    }

    #[test]
    fn who_was_told_that_it_takes_too_long_stays_told() {
        let here = Here::begin();
        here.leave();
        assert!(here.is_over() && here.overstayed() && !here.admits(0));
        let begun = Here::begin();
        assert!(!begun.overstayed(), "nobody has asked yet");
        assert!(!begun.admits(PIECE_UNITS_MAX + 1), "a piece is refused before it is begun");
        assert!(begun.overstayed() && begun.is_over());
    }
}
