//! Groups that are due: a heap by time, and queues in which organisations take turns.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};

use super::view::RuleGroupKey;
use crate::model::{OrgId, Timestamp};

/// The evaluation of a group at a time. A newer plan of the same group has a higher number, and
/// makes this one void.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PlannedEvaluation {
    pub(super) due: Timestamp,
    pub(super) plan: u64,
    pub(super) key: RuleGroupKey,
}

/// The planned evaluations of all groups.
#[derive(Debug, Default)]
pub(super) struct DueQueue {
    planned: BinaryHeap<Reverse<PlannedEvaluation>>,
    ready: BTreeMap<OrgId, VecDeque<PlannedEvaluation>>,
    /// The number of evaluations that run, and the turn of the last one.
    turns: HashMap<OrgId, OrgTurn>,
    turn: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct OrgTurn {
    running: usize,
    last: u64,
}

impl DueQueue {
    /// Adds an evaluation.
    pub(super) fn plan(&mut self, planned: PlannedEvaluation) {
        self.planned.push(Reverse(planned));
    }

    /// Returns the time of the earliest evaluation that is not ready yet.
    pub(super) fn next_due(&self) -> Option<Timestamp> {
        self.planned.peek().map(|Reverse(planned)| planned.due)
    }

    /// Removes and returns all evaluations that are not ready yet.
    pub(super) fn take_planned(&mut self) -> Vec<PlannedEvaluation> {
        std::mem::take(&mut self.planned).into_iter().map(|Reverse(planned)| planned).collect()
    }

    /// Returns the next evaluation that is due at `now`: of the organisation with the fewest
    /// running evaluations, and among those of the one whose last turn is longest ago.
    pub(super) fn take(&mut self, now: Timestamp) -> Option<PlannedEvaluation> {
        while let Some(Reverse(planned)) = self.planned.peek() {
            if planned.due > now {
                break;
            }
            let Some(Reverse(planned)) = self.planned.pop() else { break };
            self.ready.entry(planned.key.org).or_default().push_back(planned);
        }
        let turn_of = |org: &OrgId| self.turns.get(org).copied().unwrap_or_default();
        let org = *self.ready.keys().min_by_key(|org| {
            let OrgTurn { running, last } = turn_of(org);
            (running, last)
        })?;
        let queue = self.ready.get_mut(&org)?;
        let taken = queue.pop_front();
        if queue.is_empty() {
            self.ready.remove(&org);
        }
        self.turn += 1;
        let turn = self.turns.entry(org).or_default();
        (turn.running, turn.last) = (turn.running + 1, self.turn);
        taken
    }

    /// Records the end of an evaluation of this organisation.
    pub(super) fn done(&mut self, org: OrgId) {
        if let Some(turn) = self.turns.get_mut(&org) {
            turn.running = turn.running.saturating_sub(1);
        }
    }

    /// Forgets the turns of an organisation without groups.
    pub(super) fn forget(&mut self, org: OrgId) {
        self.ready.remove(&org);
        self.turns.remove(&org);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::view::RuleSource;
    use super::*;

    fn planned(org: u32, due: i64) -> PlannedEvaluation {
        let key =
            RuleGroupKey { org: OrgId(org), source: RuleSource::Api(Arc::from("")), name: Arc::from("g") };
        PlannedEvaluation { due: Timestamp::from_ms(due), plan: 0, key }
    }

    #[test]
    fn organisations_take_turns_and_evaluations_wait_for_their_time() {
        let mut queue = DueQueue::default();
        for _ in 0..3 {
            queue.plan(planned(1, 5));
        }
        queue.plan(planned(2, 6));
        queue.plan(planned(3, 100));
        let mut order = Vec::new();
        while let Some(taken) = queue.take(Timestamp::from_ms(10)) {
            order.push(taken.key.org.0);
            queue.done(taken.key.org);
        }
        assert_eq!(order, [1, 2, 1, 1]);
        assert_eq!(queue.next_due(), Some(Timestamp::from_ms(100)));
    }

    #[test]
    fn an_organisation_with_a_running_evaluation_waits_for_one_without() {
        let mut queue = DueQueue::default();
        for org in [1, 1, 2, 2] {
            queue.plan(planned(org, 0));
        }
        let mut take = || queue.take(Timestamp::from_ms(0)).map(|taken| taken.key.org.0);
        assert_eq!([take(), take()], [Some(1), Some(2)]);
        queue.done(OrgId(2));
        let mut take = || queue.take(Timestamp::from_ms(0)).map(|taken| taken.key.org.0);
        assert_eq!([take(), take(), take()], [Some(2), Some(1), None]);
    }
}
