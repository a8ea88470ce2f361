//! Ends of the series of removed groups and rules, besides those that are planned when a group is
//! removed: after a start, and before a stop.

use std::sync::Arc;

use super::job::AHEAD_MS_MAX;
use super::view::RuleGroupKey;
use super::{GroupSlot, RuleEngine};
use crate::model::Timestamp;
use crate::rules::group::RuleGroup;
use crate::rules::run::{GroupRun, RuleContext};

impl RuleEngine {
    /// Ends the series of a version of a group, or of some of its rules, that was replaced or
    /// removed at `replaced_at`, before the engine was created. They end as if the version had been
    /// removed then. If that time is past, groups that continue them have two intervals from now on
    /// to do so. Has no effect if `replaced_at` is too far ahead of the clock.
    pub fn end_replaced(&self, key: &RuleGroupKey, group: RuleGroup, replaced_at: Timestamp) {
        let now = self.parts.clock.now();
        let run = GroupRun::new(Arc::new(group), &self.parts.settings);
        let mut state = self.lock();
        if replaced_at.ms_since(now) <= AHEAD_MS_MAX && !state.slots.contains_key(key) {
            let slot = GroupSlot::new(key, run, Some(replaced_at));
            let due = slot.grid.end_of_removed(replaced_at.max(now));
            state.slots.insert(key.clone(), slot);
            state.plan(key, due);
        }
        drop(state);
        self.wake.notify_all();
    }

    /// Ends the series of removed groups and rules that wait for their end.
    pub(super) fn end_removed(&self, now: Timestamp) {
        let mut waiting = Vec::new();
        for (key, slot) in &mut self.lock().slots {
            let has_leftover = slot.run.as_ref().is_some_and(|run| !run.leftover.is_empty());
            let is_removed = slot.removed_at.is_some();
            if is_removed || has_leftover {
                waiting.extend(slot.run.take().map(|run| (key.org, is_removed, run)));
            }
        }
        for (org, is_removed, mut run) in waiting {
            let (settings, tsdb) = (&self.parts.settings, &self.parts.tsdb);
            let context = RuleContext::new(settings, tsdb, org);
            let Some(last_at) = run.last_at else { continue };
            let at = now.max(last_at.plus_ms(1));
            if is_removed {
                // If the store refuses it, the next start plans the end again.
                run.end(context, at, now);
            } else {
                run.end_removed_rules(context, at, now);
            }
        }
    }
}
