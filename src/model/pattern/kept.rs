//! Compiled expressions, kept for the next query of the same organisation: to compile one takes 25 to 100 µs, to take it
//! from here less than one.
//!
//! **Nobody sees another's.** What is kept is found by organisation and text: whether an expression was compiled before,
//! which its time may tell, says nothing about what others ask.
//!
//! **Bounded.** [`ALL_MAX`] bytes for everybody, [`ORG_MAX`] for one organisation, which beyond that loses what it used
//! longest ago itself. Where everybody's is met, the organisation that holds most loses of its own: a flood of new
//! expressions, or of organisations, takes nothing from who holds less. What is larger than [`ONE_MAX`] is not kept. Bytes
//! are those that the package counts for the program; what a search needs beside it, which hostile values can make
//! megabytes, belongs to the clone that is handed out and goes with it.
//!
//! Whose query a thread is at work for is no argument of everything that may compile: the edge says it once for all that a
//! question does ([`KeptPatterns::with`]).

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use regex_automata::meta::Regex;

use super::{Pattern, PatternError, compile};
use crate::model::OrgId;

/// What is kept of everybody, bytes.
const ALL_MAX: usize = 16 << 20;
/// What is kept of one organisation, bytes: some hundreds of expressions, which take 5 to 20 KiB each.
const ORG_MAX: usize = 2 << 20;
/// The largest that is kept, bytes.
const ONE_MAX: usize = ORG_MAX / 8;
/// What an entry takes beside its text and its program, about.
const ENTRY_BYTES: usize = 256;

/// Expressions that were compiled, by organisation.
#[derive(Debug, Default)]
pub struct KeptPatterns {
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    orgs: HashMap<OrgId, Shelf>,
    bytes: usize,
    /// Counts uses up: an entry's last use.
    uses: u64,
}

/// Those of one organisation.
#[derive(Debug, Default)]
struct Shelf {
    entries: HashMap<Box<str>, Entry>,
    bytes: usize,
}

#[derive(Debug)]
struct Entry {
    /// Never searched with: its clones have what searches need.
    regex: Regex,
    bytes: usize,
    used: u64,
}

thread_local! {
    static CURRENT: RefCell<Option<(Arc<KeptPatterns>, OrgId)>> = const { RefCell::new(None) };
}

/// Puts what was current before back, also after a panic.
struct Restore(Option<(Arc<KeptPatterns>, OrgId)>);

impl Drop for Restore {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}

impl KeptPatterns {
    /// Runs `work`: what this thread compiles meanwhile is of this organisation, taken from here and kept here.
    pub fn with<T>(self: &Arc<KeptPatterns>, org: OrgId, work: impl FnOnce() -> T) -> T {
        let _restore = Restore(CURRENT.replace(Some((Arc::clone(self), org))));
        work()
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        // Whole entries and their sums: a panic elsewhere leaves nothing half done.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, org: OrgId, text: &str) -> Option<Regex> {
        let mut kept = self.lock();
        kept.uses += 1;
        let uses = kept.uses;
        let entry = kept.orgs.get_mut(&org)?.entries.get_mut(text)?;
        entry.used = uses;
        Some(entry.regex.clone())
    }

    fn keep(&self, org: OrgId, text: &str, regex: Regex) {
        let bytes = regex.memory_usage() + text.len() + ENTRY_BYTES;
        if bytes > ONE_MAX {
            return;
        }
        let mut kept = self.lock();
        kept.uses += 1;
        let used = kept.uses;
        let shelf = kept.orgs.entry(org).or_default();
        // Two of its queries may have compiled it at once.
        let before =
            shelf.entries.insert(text.into(), Entry { regex, bytes, used }).map_or(0, |old| old.bytes);
        shelf.bytes = shelf.bytes + bytes - before;
        kept.bytes = kept.bytes + bytes - before;
        while kept.orgs.get(&org).is_some_and(|shelf| shelf.bytes > ORG_MAX) {
            kept.drop_oldest_of(org);
        }
        while kept.bytes > ALL_MAX
            && let Some(most) = kept.orgs.iter().max_by_key(|(_, shelf)| shelf.bytes).map(|(org, _)| *org)
        {
            kept.drop_oldest_of(most);
        }
    }
}

impl Kept {
    /// Removes what this organisation used longest ago; some hundreds are looked at, once for one that is compiled.
    fn drop_oldest_of(&mut self, org: OrgId) {
        let Some(shelf) = self.orgs.get_mut(&org) else { return };
        let oldest = shelf.entries.iter().min_by_key(|(_, entry)| entry.used).map(|(text, _)| text.clone());
        if let Some(entry) = oldest.and_then(|text| shelf.entries.remove(&text)) {
            shelf.bytes -= entry.bytes;
            self.bytes -= entry.bytes;
        }
        if shelf.entries.is_empty() {
            self.orgs.remove(&org);
        }
    }
}

/// Compiled, or taken from what is kept for whom this thread is at work.
pub(super) fn compiled(text: &str) -> Result<Regex, PatternError> {
    let Some((patterns, org)) = CURRENT.with_borrow(Clone::clone) else {
        return compile(text, Pattern::SIZE_MAX);
    };
    if let Some(regex) = patterns.find(org, text) {
        return Ok(regex);
    }
    let regex = compile(text, Pattern::SIZE_MAX)?;
    patterns.keep(org, text, regex.clone());
    Ok(regex)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{MatchOp, Matcher};

    fn texts(patterns: &KeptPatterns, org: OrgId) -> usize {
        patterns.lock().orgs.get(&org).map_or(0, |shelf| shelf.entries.len())
    }

    /// What is held, added up anew.
    fn check_sums(patterns: &KeptPatterns) {
        let kept = patterns.lock();
        for shelf in kept.orgs.values() {
            assert_eq!(shelf.bytes, shelf.entries.values().map(|entry| entry.bytes).sum::<usize>());
            assert!(shelf.bytes <= ORG_MAX);
        }
        assert_eq!(kept.bytes, kept.orgs.values().map(|shelf| shelf.bytes).sum::<usize>());
        assert!(kept.bytes <= ALL_MAX);
    }

    #[test]
    fn what_was_compiled_for_an_organisation_is_there_for_its_next_query_and_for_no_other() {
        let patterns = Arc::new(KeptPatterns::default());
        let ask = || Matcher::new("x", MatchOp::Regex, "a.*b").expect("valid");
        let first = patterns.with(OrgId(1), ask);
        assert_eq!((texts(&patterns, OrgId(1)), texts(&patterns, OrgId(2))), (1, 0));
        let second = patterns.with(OrgId(1), ask);
        assert_eq!(texts(&patterns, OrgId(1)), 1);
        assert!(patterns.find(OrgId(2), "a.*b").is_none());
        for matcher in [first, second] {
            assert!(matcher.matches("a-b") && !matcher.matches("a-c"));
        }
        patterns.with(OrgId(2), || Pattern::new("b.*c").expect("valid").captures("b-c").is_some());
        assert_eq!((texts(&patterns, OrgId(1)), texts(&patterns, OrgId(2))), (1, 1));
        check_sums(&patterns);
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
        check_sums(&patterns);
        assert!(texts(&patterns, OrgId(2)) < 3_000, "the bound was met");
        assert!(patterns.find(OrgId(1), "mine.*[0-9]+").is_some());
        assert!(patterns.find(OrgId(2), "used.*[0-9]+").is_some(), "what is used stays");
        assert!(patterns.find(OrgId(2), "0.*[a-z]{40}").is_none());
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
        check_sums(&patterns);
        assert!(patterns.find(OrgId(0), "small.?").is_some());
        let held: Vec<usize> = {
            let kept = patterns.lock();
            (1..=12).map(|org| kept.orgs.get(&OrgId(org)).map_or(0, |shelf| shelf.bytes)).collect()
        };
        assert!(held.iter().all(|bytes| *bytes >= ALL_MAX / 12 - ONE_MAX), "each has its part: {held:?}");
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
