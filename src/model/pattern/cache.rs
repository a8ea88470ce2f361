//! A cache of compiled regular expressions per organisation. Compiling an ordinary one takes 25 to
//! 100 µs, a look-up less than 1 µs.
//!
//! Cached expressions are never used for a search: a search needs buffers, which hostile values can
//! grow to megabytes. The buffers belong to the clone that a look-up returns, and are freed with
//! it. The size of an entry is the one that `regex-automata` reports for the compiled program.
//!
//! The organisation is not a parameter of every function that may compile: the edge sets it once
//! per query for the thread ([`PatternCache::with`]).

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use regex_automata::meta::Regex;

use super::{Pattern, PatternError, compile};
use crate::model::{LruBounds, OrgId, OrgLru};

/// Bounds for some hundreds of expressions of one organisation, of 5 to 20 KiB each.
const BOUNDS: LruBounds = LruBounds { all: 16 << 20, org: 2 << 20, one: 256 << 10 };
/// Estimated size of an entry without its text and its program, in bytes.
const ENTRY_BYTES: usize = 256;

/// Compiled regular expressions by organisation.
#[derive(Debug)]
pub struct PatternCache(OrgLru<Regex>);

impl Default for PatternCache {
    fn default() -> PatternCache {
        PatternCache(OrgLru::new(BOUNDS))
    }
}

/// Returns whether one more expression may be compiled.
pub type MayCompile = Rc<dyn Fn() -> bool>;

#[derive(Clone)]
struct CurrentOrg {
    patterns: Arc<PatternCache>,
    org: OrgId,
    may_compile: Option<MayCompile>,
}

thread_local! {
    static CURRENT: RefCell<Option<CurrentOrg>> = const { RefCell::new(None) };
}

/// Guard that restores the previous value of [`CURRENT`] on drop, also after a panic.
struct RestoreCurrent(Option<CurrentOrg>);

impl Drop for RestoreCurrent {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}

impl PatternCache {
    /// Runs `work`. Expressions that this thread compiles during it are cached for the
    /// organisation.
    pub fn with<T>(self: &Arc<PatternCache>, org: OrgId, work: impl FnOnce() -> T) -> T {
        self.with_check(org, None, work)
    }

    /// Like [`PatternCache::with`]. Calls `may_compile` before each expression that is not cached,
    /// because compiling one takes up to [`Pattern::COMPILE_UNITS`] and cannot be interrupted. If
    /// it returns `false`, the result is [`PatternError::Refused`].
    pub fn with_check<T>(
        self: &Arc<PatternCache>,
        org: OrgId,
        may_compile: Option<MayCompile>,
        work: impl FnOnce() -> T,
    ) -> T {
        let _restore = RestoreCurrent(CURRENT.replace(Some(CurrentOrg {
            patterns: Arc::clone(self),
            org,
            may_compile,
        })));
        work()
    }
}

/// Compiles an expression, or returns it from the cache of the thread's current organisation.
pub(super) fn compiled(text: &str) -> Result<Regex, PatternError> {
    let Some(CurrentOrg { patterns, org, may_compile }) = CURRENT.with_borrow(Clone::clone) else {
        return compile(text, Pattern::LIMITS);
    };
    if let Some(regex) = patterns.0.get(org, text) {
        return Ok(regex);
    }
    if may_compile.is_some_and(|may| !may()) {
        return Err(PatternError::Refused);
    }
    let regex = compile(text, Pattern::LIMITS)?;
    let bytes = regex.memory_usage() + text.len() + ENTRY_BYTES;
    patterns.0.insert(org, text, regex.clone(), bytes);
    Ok(regex)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{MatchOp, Matcher};

    fn texts(patterns: &PatternCache, org: OrgId) -> usize {
        patterns.0.held(org).0
    }

    #[test]
    fn compiled_expressions_are_cached_for_their_organisation_and_for_no_other() {
        let patterns = Arc::new(PatternCache::default());
        let ask = || Matcher::new("x", MatchOp::Regex, "a.*b").expect("valid");
        let first = patterns.with(OrgId(1), ask);
        assert_eq!((texts(&patterns, OrgId(1)), texts(&patterns, OrgId(2))), (1, 0));
        let second = patterns.with(OrgId(1), ask);
        assert_eq!(texts(&patterns, OrgId(1)), 1);
        assert!(patterns.0.get(OrgId(2), "a.*b").is_none());
        for matcher in [first, second] {
            assert!(matcher.matches("a-b") && !matcher.matches("a-c"));
        }
        patterns.with(OrgId(2), || Pattern::new("b.*c").expect("valid").captures("b-c").is_some());
        assert_eq!((texts(&patterns, OrgId(1)), texts(&patterns, OrgId(2))), (1, 1));
        patterns.0.check_sums();
    }

    #[test]
    fn sets_prefixes_and_patterns_outside_of_queries_are_not_cached() {
        let patterns = Arc::new(PatternCache::default());
        patterns.with(OrgId(1), || {
            for text in ["a|b", "a.*", ".+", ""] {
                Pattern::new(text).expect("valid");
            }
            Pattern::new_within("a.b", Pattern::LIMITS).expect("valid");
            Pattern::new("a(").expect_err("open");
        });
        Pattern::new("a.b").expect("valid");
        assert_eq!(texts(&patterns, OrgId(1)), 0);
        // Calls nest, and the previous organisation is restored.
        patterns.with(OrgId(1), || {
            patterns.with(OrgId(2), || Pattern::new("x.y").expect("valid"));
            Pattern::new("y.z").expect("valid")
        });
        assert!(CURRENT.with_borrow(Option::is_none));
        assert_eq!((texts(&patterns, OrgId(1)), texts(&patterns, OrgId(2))), (1, 1));
    }

    #[test]
    fn a_flood_of_expressions_evicts_only_entries_of_its_own_organisation() {
        let patterns = Arc::new(PatternCache::default());
        let ask = |org: u32, text: &str| patterns.with(OrgId(org), || Pattern::new(text).expect("valid"));
        ask(1, "mine.*[0-9]+");
        ask(2, "used.*[0-9]+");
        for n in 0..3_000 {
            ask(2, &format!("{n}.*[a-z]{{40}}"));
            ask(2, "used.*[0-9]+");
        }
        patterns.0.check_sums();
        assert!(texts(&patterns, OrgId(2)) < 3_000, "the bound was reached");
        assert!(patterns.0.get(OrgId(1), "mine.*[0-9]+").is_some());
        assert!(patterns.0.get(OrgId(2), "used.*[0-9]+").is_some(), "used recently");
        assert!(patterns.0.get(OrgId(2), "0.*[a-z]{40}").is_none());
    }

    #[test]
    fn at_the_total_bound_the_organisation_with_the_most_bytes_loses_entries() {
        let patterns = Arc::new(PatternCache::default());
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
        assert!(patterns.0.get(OrgId(0), "small.?").is_some());
        let held: Vec<usize> = (1..=12).map(|org| patterns.0.held(OrgId(org)).1).collect();
        assert!(
            held.iter().all(|bytes| *bytes >= BOUNDS.all / 12 - BOUNDS.one),
            "each keeps its share: {held:?}"
        );
    }

    #[test]
    fn a_very_large_pattern_is_compiled_and_not_cached() {
        let patterns = Arc::new(PatternCache::default());
        let large =
            patterns.with(OrgId(1), || Pattern::new(&"[a-z]{1000}".repeat(8)).expect("within its bound"));
        assert!(!large.matches("a"));
        assert_eq!(texts(&patterns, OrgId(1)), 0);
    }
}
