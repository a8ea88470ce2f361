//! Compiled expressions, kept for the next query of the same organisation: to compile one takes 25 to 100 µs, to take it
//! from here less than one.
//!
//! What is kept is never searched with: what a search needs beside the program, which hostile values can make megabytes,
//! belongs to the clone that is handed out and goes with it. Bytes are those that the package counts for the program.
//!
//! Whose query a thread is at work for is no argument of everything that may compile: the edge says it once for all that a
//! question does ([`KeptPatterns::with`]).

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use regex_automata::meta::Regex;

use super::{Pattern, PatternError, compile};
use crate::model::{OrgId, ShelfBounds, Shelves};

/// Some hundreds of expressions of one organisation, which take 5 to 20 KiB each.
const BOUNDS: ShelfBounds = ShelfBounds { all: 16 << 20, org: 2 << 20, one: 256 << 10 };
/// What an entry takes beside its text and its program, about.
const ENTRY_BYTES: usize = 256;

/// Expressions that were compiled, by organisation.
#[derive(Debug)]
pub struct KeptPatterns(Shelves<Regex>);

impl Default for KeptPatterns {
    fn default() -> KeptPatterns {
        KeptPatterns(Shelves::within(BOUNDS))
    }
}

/// Whether one more expression may be compiled.
pub type MayCompile = Rc<dyn Fn() -> bool>;

#[derive(Clone)]
struct Current {
    patterns: Arc<KeptPatterns>,
    org: OrgId,
    may_compile: Option<MayCompile>,
}

thread_local! {
    static CURRENT: RefCell<Option<Current>> = const { RefCell::new(None) };
}

/// Puts what was current before back, also after a panic.
struct Restore(Option<Current>);

impl Drop for Restore {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}

impl KeptPatterns {
    /// Runs `work`: what this thread compiles meanwhile is of this organisation, taken from here and kept here.
    pub fn with<T>(self: &Arc<KeptPatterns>, org: OrgId, work: impl FnOnce() -> T) -> T {
        self.with_check(org, None, work)
    }

    /// As [`KeptPatterns::with`]. `may_compile` is asked before each expression that is not kept: compiling one takes up
    /// to some tens of milliseconds, which no deadline interrupts. A refusal is [`PatternError::Refused`].
    pub fn with_check<T>(
        self: &Arc<KeptPatterns>,
        org: OrgId,
        may_compile: Option<MayCompile>,
        work: impl FnOnce() -> T,
    ) -> T {
        let _restore =
            Restore(CURRENT.replace(Some(Current { patterns: Arc::clone(self), org, may_compile })));
        work()
    }
}

/// Compiled, or taken from what is kept for whom this thread is at work.
pub(super) fn compiled(text: &str) -> Result<Regex, PatternError> {
    let Some(Current { patterns, org, may_compile }) = CURRENT.with_borrow(Clone::clone) else {
        return compile(text, Pattern::SIZE_MAX);
    };
    if let Some(regex) = patterns.0.find(org, text) {
        return Ok(regex);
    }
    if may_compile.is_some_and(|may| !may()) {
        return Err(PatternError::Refused);
    }
    let regex = compile(text, Pattern::SIZE_MAX)?;
    let bytes = regex.memory_usage() + text.len() + ENTRY_BYTES;
    patterns.0.keep(org, text, regex.clone(), bytes);
    Ok(regex)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{MatchOp, Matcher};

    fn texts(patterns: &KeptPatterns, org: OrgId) -> usize {
        patterns.0.held(org).0
    }

    #[test]
    fn what_was_compiled_for_an_organisation_is_there_for_its_next_query_and_for_no_other() {
        let patterns = Arc::new(KeptPatterns::default());
        let ask = || Matcher::new("x", MatchOp::Regex, "a.*b").expect("valid");
        let first = patterns.with(OrgId(1), ask);
        assert_eq!((texts(&patterns, OrgId(1)), texts(&patterns, OrgId(2))), (1, 0));
        let second = patterns.with(OrgId(1), ask);
        assert_eq!(texts(&patterns, OrgId(1)), 1);
        assert!(patterns.0.find(OrgId(2), "a.*b").is_none());
        for matcher in [first, second] {
            assert!(matcher.matches("a-b") && !matcher.matches("a-c"));
        }
        patterns.with(OrgId(2), || Pattern::new("b.*c").expect("valid").captures("b-c").is_some());
        assert_eq!((texts(&patterns, OrgId(1)), texts(&patterns, OrgId(2))), (1, 1));
        patterns.0.check_sums();
    }

    #[test]
    fn sets_prefixes_and_what_nobody_asks_for_are_not_kept() {
        let patterns = Arc::new(KeptPatterns::default());
        patterns.with(OrgId(1), || {
            for text in ["a|b", "a.*", ".+", ""] {
                Pattern::new(text).expect("valid");
            }
            Pattern::new_within("a.b", 1 << 16).expect("valid");
            Pattern::new("a(").expect_err("open");
        });
        Pattern::new("a.b").expect("valid");
        assert_eq!(texts(&patterns, OrgId(1)), 0);
        // After the work, and within another's, it is as it was.
        patterns.with(OrgId(1), || {
            patterns.with(OrgId(2), || Pattern::new("x.y").expect("valid"));
            Pattern::new("y.z").expect("valid")
        });
        assert!(CURRENT.with_borrow(Option::is_none));
        assert_eq!((texts(&patterns, OrgId(1)), texts(&patterns, OrgId(2))), (1, 1));
    }

    #[test]
    fn a_flood_of_expressions_takes_its_own_organisations_place_alone() {
        let patterns = Arc::new(KeptPatterns::default());
        let ask = |org: u32, text: &str| patterns.with(OrgId(org), || Pattern::new(text).expect("valid"));
        ask(1, "mine.*[0-9]+");
        ask(2, "used.*[0-9]+");
        for n in 0..3_000 {
            ask(2, &format!("{n}.*[a-z]{{40}}"));
            ask(2, "used.*[0-9]+");
        }
        patterns.0.check_sums();
        assert!(texts(&patterns, OrgId(2)) < 3_000, "the bound was met");
        assert!(patterns.0.find(OrgId(1), "mine.*[0-9]+").is_some());
        assert!(patterns.0.find(OrgId(2), "used.*[0-9]+").is_some(), "what is used stays");
        assert!(patterns.0.find(OrgId(2), "0.*[a-z]{40}").is_none());
    }

    #[test]
    fn where_everybodys_bound_is_met_who_holds_most_makes_room() {
        let patterns = Arc::new(KeptPatterns::default());
        patterns.with(OrgId(0), || Pattern::new("small.?").expect("valid"));
        let mut text = 0;
        for org in 1..=12 {
            patterns.with(OrgId(org), || {
                for _ in 0..300 {
                    text += 1;
                    Pattern::new(&format!("{text}.*[a-z]{{400}}")).expect("valid");
                }
            });
        }
        patterns.0.check_sums();
        assert!(patterns.0.find(OrgId(0), "small.?").is_some());
        let held: Vec<usize> = (1..=12).map(|org| patterns.0.held(OrgId(org)).1).collect();
        assert!(
            held.iter().all(|bytes| *bytes >= BOUNDS.all / 12 - BOUNDS.one),
            "each has its part: {held:?}"
        );
    }

    #[test]
    fn what_is_very_large_is_compiled_and_not_kept() {
        let patterns = Arc::new(KeptPatterns::default());
        let large =
            patterns.with(OrgId(1), || Pattern::new(&"[a-z]{1000}".repeat(8)).expect("within its bound"));
        assert!(!large.matches("a"));
        assert_eq!(texts(&patterns, OrgId(1)), 0);
    }
}
