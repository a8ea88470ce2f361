//! Cancellable search: a lazy DFA, driven byte by byte.
//!
//! The usual engines search a value in one call. For a large expression and a long value that call
//! can take a second, because each byte may visit each state of the NFA. Here the same states are
//! visited, but the pace is asked every few bytes.

use std::sync::Mutex;

use regex_automata::Input;
use regex_automata::hybrid::dfa::{Cache, Config, DFA};
use regex_automata::nfa::thompson;

use crate::model::{Pace, Stopped};
use crate::sync::IgnorePoison as _;

/// Units between two checks: some tens of microseconds.
const UNITS_PER_PIECE: u64 = 1 << 16;
/// Memory of the cached states; beyond it they are discarded and built again.
const CACHE_BYTES: usize = 1 << 20;

/// A compiled expression and its cached states.
#[derive(Debug)]
pub(super) struct SteppedSearch {
    dfa: DFA,
    cache: Mutex<Option<Box<Cache>>>,
}

impl SteppedSearch {
    /// Compiles a valid expression that is anchored at both ends. Returns `None` if it cannot be
    /// searched this way.
    pub(super) fn compile(anchored: &str) -> Option<SteppedSearch> {
        let config = Config::new().cache_capacity(CACHE_BYTES).skip_cache_capacity_check(true);
        let nfa = thompson::Config::new().nfa_size_limit(Some(super::Pattern::SIZE_MAX));
        let dfa = DFA::builder().configure(config).thompson(nfa).build(anchored).ok()?;
        Some(SteppedSearch { dfa, cache: Mutex::new(None) })
    }

    /// Returns whether the whole of `value` matches. A byte costs up to `states` units.
    ///
    /// # Errors
    /// [`Stopped`].
    pub(super) fn matches(&self, value: &str, states: u64, pace: &Pace<'_>) -> Result<bool, Stopped> {
        // One search at a time uses the cached states; a concurrent one starts without.
        let taken = self.cache.lock().ignore_poison().take();
        let mut cache = taken.unwrap_or_else(|| Box::new(self.dfa.create_cache()));
        let found = self.search(value, states, pace, &mut cache);
        *self.cache.lock().ignore_poison() = Some(cache);
        found
    }

    fn search(&self, value: &str, states: u64, pace: &Pace<'_>, cache: &mut Cache) -> Result<bool, Stopped> {
        let piece = usize::try_from(UNITS_PER_PIECE / states.max(1)).unwrap_or(usize::MAX).clamp(1, 4_096);
        pace.spend(states)?;
        let Ok(mut state) = self.dfa.start_state_forward(cache, &Input::new(value)) else { return Ok(false) };
        for bytes in value.as_bytes().chunks(piece) {
            pace.spend_each(bytes.len(), states)?;
            for byte in bytes {
                // The search never gives up, because no limit of cache clearings is set.
                let Ok(next) = self.dfa.next_state(cache, state, *byte) else { return Ok(false) };
                if next.is_dead() {
                    return Ok(false);
                }
                state = next;
            }
        }
        Ok(self.dfa.next_eoi_state(cache, state).is_ok_and(|last| last.is_match()))
    }
}
