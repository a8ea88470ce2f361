//! The steps of the replication model, and the invariants that hold after each of them.

use stateright::{Model, Property};

use super::replication::*;

impl Model for Replication {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::new(&self.bounds)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let bounds = &self.bounds;
        for node in 0..2 {
            let of = &state.nodes[node];
            if self.accepts(state, node) {
                if of.log.len() < bounds.records {
                    actions.push(Action::WriteSample(node));
                }
                if of.accounts.len() < bounds.changes {
                    actions.push(match bounds.organisations {
                        true => Action::CreateOrg(node),
                        false => Action::ChangeAccount(node),
                    });
                    actions.push(Action::RemoveOrg(node));
                    actions.push(Action::ForgetOrg(node));
                }
                if of.log.len() < bounds.records {
                    actions.push(Action::DropOrg(node));
                }
            }
            if of.up && of.synced < of.log.len() {
                actions.push(Action::Sync(node));
            }
            if of.is_follower() && !of.stopped && state.stream.is_none() {
                actions.push(Action::Connect(node));
            }
            if of.up && state.kills < bounds.kills {
                actions.push(Action::Kill(node));
            }
            if state.power_cuts < bounds.power_cuts {
                actions.push(Action::PowerCut(node));
            }
            if !of.up {
                actions.push(Action::Start(node));
            }
            if bounds.trims && of.is_primary() {
                actions.extend([Action::Trim(node), Action::TrimJournal(node)]);
                if bounds.restores > 0 {
                    actions.push(Action::GiveUpHold(node));
                }
            }
            if of.is_follower() && state.promotions < bounds.promotions {
                actions.push(if of.stopped { Action::Promote(node) } else { Action::StopStream(node) });
            }
            actions.push(Action::Fence(node));
            if of.gate_closed {
                actions.push(Action::CommitFence(node));
            }
            if state.bases < bounds.bases {
                actions.push(Action::StageBase(node));
            }
            if state.restores < bounds.restores {
                actions.push(Action::RestoreBackup(node));
            }
        }
        if state.stream.is_some() {
            actions.extend([Action::SendRecord, Action::SendChange, Action::Receive, Action::Acknowledge]);
            if bounds.trims {
                actions.push(Action::MoveHold);
            }
            if state.disconnects < bounds.disconnects {
                actions.push(Action::Disconnect);
            }
        }
        actions.push(Action::EndRows);
        if state.follower_restores < bounds.follower_restores {
            actions.push(Action::RestoreFollower);
        }
        actions.extend((0..state.acks.len()).map(Action::DeliverAck));
        if state.base.is_some() {
            actions.push(Action::InstallBase);
        }
        for (at, request) in state.requests.iter().enumerate() {
            match request.outcome {
                Outcome::Waiting if state.repetitions < bounds.repetitions => {
                    actions.extend([Action::Answer(at), Action::Fail(at)]);
                }
                Outcome::Waiting => actions.push(Action::Answer(at)),
                Outcome::Failed if state.repetitions < bounds.repetitions => actions.push(Action::Repeat(at)),
                Outcome::Failed | Outcome::Answered => {}
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        let epochs = last.nodes.each_ref().map(|node| node.epoch);
        let is_base = action == Action::InstallBase;
        if !self.step(&mut state, action) {
            return None;
        }
        let is_base = is_base || matches!(action, Action::StageBase(_));
        let decreased = epochs.iter().zip(&state.nodes).any(|(before, node)| node.epoch < *before);
        state.epoch_decreased |= decreased && !is_base;
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Replication>> {
        vec![
            Property::always(LOG_IS_PREFIX, |_, state: &State| {
                let Some(stream) = &state.stream else { return true };
                let (primary, follower) = (&state.nodes[stream.primary], &state.nodes[other(stream.primary)]);
                primary.log.get(..primary.synced).is_some_and(|log| log.starts_with(&follower.log))
            }),
            Property::always(ACCOUNTS_ARE_PREFIX, |_, state: &State| {
                let Some(stream) = &state.stream else { return true };
                let (primary, follower) = (&state.nodes[stream.primary], &state.nodes[other(stream.primary)]);
                follower.incomplete || primary.accounts.starts_with(&follower.accounts)
            }),
            Property::always(ANSWERED_IS_KEPT, |model: &Replication, state: &State| {
                model.bounds.asynchronous || model.bounds.restores > 0 || state.keeps_answered()
            }),
            Property::always(ONE_PRIMARY, |_, state: &State| {
                let [a, b] = &state.nodes;
                let both = a.role == Role::Primary && b.role == Role::Primary;
                !(state.epoch_decreased || both && a.epoch == b.epoch)
            }),
            Property::always(FENCED_STAYS_SILENT, |_, state: &State| !state.fenced_answered),
            Property::always(FOLLOWER_CAN_GO_ON, |_, state: &State| {
                let [a, b] = &state.nodes;
                let goes_on = |primary: &Node, follower: &Node| {
                    primary.role != Role::Primary
                        || follower.role != Role::Follower
                        || primary.epoch != follower.epoch
                        || follower.log.len() >= primary.begin
                };
                state.gave_up || (goes_on(a, b) && goes_on(b, a))
            }),
            Property::always(ORGS_ARE_SEPARATE, |_, state: &State| {
                !state.leaked && state.nodes.iter().all(Node::keeps_orgs_apart)
            }),
            Property::sometimes(A_PROMOTED_NODE_ANSWERS, |model: &Replication, state: &State| {
                model.bounds.promotions == 0
                    || state.requests.iter().any(|request| {
                        request.outcome == Outcome::Answered && state.nodes[request.node].epoch > 1
                    })
            }),
            Property::sometimes(BOTH_HAVE_ALL, |model: &Replication, state: &State| {
                let [a, b] = &state.nodes;
                let full =
                    a.synced + a.accounts.len() >= (model.bounds.records + model.bounds.changes).min(2);
                full && a.synced == b.synced && a.accounts == b.accounts && a.log == b.log
            }),
        ]
    }
}

pub(crate) const LOG_IS_PREFIX: &str = "I1 the follower's log is a prefix of the primary's durable log";
pub(crate) const ACCOUNTS_ARE_PREFIX: &str = "I2 the follower's accounts are a prefix of the primary's";
pub(crate) const ANSWERED_IS_KEPT: &str = "I3 an answered change is durable on every node that may serve";
pub(crate) const ONE_PRIMARY: &str = "I4 one primary has the highest epoch, and no epoch decreases";
pub(crate) const FENCED_STAYS_SILENT: &str = "I5 a node that heard of a higher epoch answers nothing";
pub(crate) const FOLLOWER_CAN_GO_ON: &str = "I6 the primary keeps every record after the follower's position";
pub(crate) const ORGS_ARE_SEPARATE: &str = "I8 no organisation gets or loses samples by a promotion";
pub(crate) const A_PROMOTED_NODE_ANSWERS: &str = "a promoted node answers";
pub(crate) const BOTH_HAVE_ALL: &str = "both nodes have everything";
