//! Groups whose change is being stored. None of their evaluations begins meanwhile, so the version
//! before has no samples after the time of the change. A start after a kill relies on that: it ends
//! the series of that version as of this time.

use super::RuleEngine;
use super::view::RuleGroupKey;

/// Groups that are held until this is dropped.
#[derive(Debug)]
#[must_use]
pub struct HeldGroups<'e> {
    engine: &'e RuleEngine,
    keys: Vec<RuleGroupKey>,
}

impl RuleEngine {
    /// Lets no evaluation of these groups begin until the result is dropped. Evaluations that run
    /// are not waited for: they have begun before. Unknown groups have no effect.
    pub fn hold(&self, keys: Vec<RuleGroupKey>) -> HeldGroups<'_> {
        let mut state = self.lock();
        let is_known = |key: &RuleGroupKey| state.slots.get_mut(key).map(|slot| slot.holds += 1).is_some();
        let keys = keys.into_iter().filter(is_known).collect();
        drop(state);
        HeldGroups { engine: self, keys }
    }
}

impl Drop for HeldGroups<'_> {
    fn drop(&mut self) {
        let mut state = self.engine.lock();
        for key in &self.keys {
            let Some(slot) = state.slots.get_mut(key) else { continue };
            slot.holds = slot.holds.saturating_sub(1);
            if slot.holds == 0
                && let Some(due) = slot.held_due.take()
            {
                state.plan(key, due);
            }
        }
        drop(state);
        self.engine.wake.notify_all();
    }
}
