//! The protocol of a standby (docs/standby.md) as a model that `stateright` explores: replication,
//! promotion and fencing of two nodes, and the log, seals and manifest of the follower. A fault is
//! planted in each rule of the model, and the exploration must find it.
//!
//! No run of the code is compared with the model. The unit tests of `src/standby` and the tests of
//! two processes (`tests/binary/standby.rs`) test the code. These rules of the code are not in the
//! model: the check of links, a second follower, the commit of a tombstone that fails in a running
//! process, the difference between journal and database, and the expiry of waiting requests.

#[path = "standby_model/replication.rs"]
mod replication;
#[path = "standby_model/sealing.rs"]
mod sealing;
#[path = "standby_model/steps.rs"]
mod steps;

use std::fmt::Debug;
use std::hash::Hash;

use stateright::{Checker as _, HasDiscoveries, Model};

use replication::{Bounds, Fault, Replication};
use sealing::{ALL_IS_SEALED, GOES_ON, QUERIES_SEE_THE_LOG, SEALS_ARE_IN_THE_LOG, SealFault, Sealing};
use steps::{
    A_PROMOTED_NODE_ANSWERS, ACCOUNTS_ARE_PREFIX, ANSWERED_IS_KEPT, BOTH_HAVE_ALL, FENCED_STAYS_SILENT,
    FOLLOWER_CAN_GO_ON, LOG_IS_PREFIX, ONE_PRIMARY, ORGS_ARE_SEPARATE,
};

/// The most states that an exploration visits. It fails if it would need more.
const STATES_MAX: usize = 1_000_000;

/// Explores all states of a model. Returns the names of the properties for which an example or a
/// counterexample was found, with its steps, and the number of states.
fn explore<M>(model: M, end: HasDiscoveries) -> (Vec<(&'static str, String)>, usize)
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync,
    M::Action: Clone + Debug + PartialEq + Send + Sync,
{
    let builder = model.checker().threads(2).target_state_count(STATES_MAX).finish_when(end);
    let checker = builder.spawn_bfs().join();
    assert!(checker.state_count() < STATES_MAX, "the bounds are too wide");
    let found = checker.discoveries().into_iter();
    let found = found.map(|(name, path)| (name, format!("{:?}", path.into_actions()))).collect();
    (found, checker.unique_state_count())
}

/// Asserts that every invariant holds in all states within the bounds, that the examples occur, and
/// that the exploration is not trivial.
#[track_caller]
fn holds(bounds: Bounds, examples: &[&str], states_min: usize) {
    let (found, states) = explore(Replication { bounds, fault: None }, HasDiscoveries::All);
    let broken: Vec<_> = found.iter().filter(|(name, _)| name.starts_with('I')).collect();
    assert!(broken.is_empty(), "{broken:#?}");
    for example in examples {
        assert!(found.iter().any(|(name, _)| name == example), "no state in which {example}: {found:?}");
    }
    assert!(states >= states_min, "{states} states");
}

/// Asserts that the exploration finds the fault, by this invariant.
#[track_caller]
fn finds(fault: Fault, bounds: Bounds, invariant: &str) {
    let (found, states) = explore(Replication { bounds, fault: Some(fault) }, HasDiscoveries::AnyFailures);
    let broken: Vec<_> = found.iter().filter(|(name, _)| name.starts_with('I')).collect();
    assert!(broken.iter().any(|(name, _)| *name == invariant), "{fault:?}, {states} states: {found:#?}");
}

fn log_and_crashes() -> Bounds {
    Bounds { records: 2, kills: 1, power_cuts: 1, disconnects: 1, ..Bounds::default() }
}

fn promotion() -> Bounds {
    Bounds { records: 2, changes: 1, promotions: 1, disconnects: 1, ..Bounds::default() }
}

fn repetitions() -> Bounds {
    let faults = Bounds { kills: 1, promotions: 1, disconnects: 1, ..Bounds::default() };
    Bounds { records: 1, changes: 1, repetitions: 1, ..faults }
}

fn crashes_during_promotion() -> Bounds {
    Bounds { records: 2, kills: 1, power_cuts: 1, promotions: 1, ..Bounds::default() }
}

fn accounts() -> Bounds {
    Bounds { changes: 2, kills: 1, disconnects: 1, trims: true, promotions: 1, ..Bounds::default() }
}

fn trims() -> Bounds {
    Bounds { records: 3, kills: 1, disconnects: 1, trims: true, ..Bounds::default() }
}

fn first_base() -> Bounds {
    let base = Bounds { records: 3, trims: true, bases: 1, ..Bounds::default() };
    Bounds { asynchronous: true, without_follower: true, ..base }
}

fn next_base() -> Bounds {
    Bounds { records: 2, promotions: 2, bases: 1, ..Bounds::default() }
}

fn fence() -> Bounds {
    Bounds { records: 2, kills: 1, promotions: 1, asynchronous: true, ..Bounds::default() }
}

fn organisations() -> Bounds {
    let orgs = Bounds { records: 2, changes: 3, promotions: 1, ..Bounds::default() };
    Bounds { organisations: true, asynchronous: true, ..orgs }
}

fn restored_backup() -> Bounds {
    Bounds { records: 2, changes: 2, restores: 1, trims: true, asynchronous: true, ..Bounds::default() }
}

fn restored_follower() -> Bounds {
    Bounds { records: 2, follower_restores: 1, ..Bounds::default() }
}

#[test]
fn answered_samples_survive_kills_power_cuts_and_lost_connections() {
    holds(log_and_crashes(), &[BOTH_HAVE_ALL], 5_000);
}

#[test]
fn answered_changes_survive_a_promotion_at_any_point() {
    holds(promotion(), &[A_PROMOTED_NODE_ANSWERS], 3_000);
    holds(crashes_during_promotion(), &[], 5_000);
    holds(next_base(), &[A_PROMOTED_NODE_ANSWERS], 500);
}

#[test]
fn a_repeated_request_is_answered_once_the_follower_has_its_effect() {
    holds(repetitions(), &[A_PROMOTED_NODE_ANSWERS], 3_000);
}

#[test]
fn account_changes_survive_a_trimmed_journal() {
    holds(accounts(), &[BOTH_HAVE_ALL], 5_000);
}

#[test]
fn a_trimmed_log_leads_on_from_the_position_of_the_follower() {
    holds(trims(), &[BOTH_HAVE_ALL], 1_000);
    holds(first_base(), &[BOTH_HAVE_ALL], 100);
}

#[test]
fn a_fenced_node_answers_nothing_even_in_asynchronous_mode() {
    holds(fence(), &[], 500);
}

#[test]
fn samples_stay_with_their_organisation_across_a_promotion() {
    holds(organisations(), &[], 10_000);
}

#[test]
fn a_restored_backup_of_either_side_does_not_join_another_history() {
    holds(restored_backup(), &[], 500);
    holds(restored_follower(), &[BOTH_HAVE_ALL], 100);
}

/// Makes a test for each planted fault.
macro_rules! finds {
    ($($name:ident: $fault:ident in $bounds:ident by $invariant:ident;)+) => {$(
        #[test]
        fn $name() {
            finds(Fault::$fault, $bounds(), $invariant);
        }
    )+};
}

finds! {
    finds_a_record_that_is_sent_before_its_sync: SendsBeforeSync in log_and_crashes by LOG_IS_PREFIX;
    finds_an_acknowledgement_before_the_sync: AcknowledgesBeforeSync in log_and_crashes by ANSWERED_IS_KEPT;
    finds_a_start_that_does_not_sync: StartsWithoutSync in log_and_crashes by ANSWERED_IS_KEPT;
    finds_an_answer_without_the_follower: AnswersWithoutFollower in promotion by ANSWERED_IS_KEPT;
    finds_a_repetition_that_is_answered_at_once: AnswersRepetitionsAtOnce in repetitions by ANSWERED_IS_KEPT;
    finds_a_start_that_forgets_what_waits: ForgetsChangesAtStart in repetitions by ANSWERED_IS_KEPT;
    finds_a_stream_that_outlives_its_promotion: AcknowledgesDuringPromotion in fence by LOG_IS_PREFIX;
    finds_a_promotion_without_a_new_epoch: KeepsEpoch in promotion by ONE_PRIMARY;
    finds_a_primary_that_ignores_a_higher_epoch: IgnoresHigherEpoch in fence by FENCED_STAYS_SILENT;
    finds_a_fence_that_a_crash_forgets: FencesInMemory in fence by FENCED_STAYS_SILENT;
    finds_a_base_without_its_epoch: ForgetsEpochOfBase in next_base by ONE_PRIMARY;
    finds_an_acknowledgement_of_an_earlier_stream: AcceptsOldAcknowledgements in restored_follower by ANSWERED_IS_KEPT;
    finds_a_handshake_without_a_check_of_the_log: SkipsCheckOfLog in restored_backup by LOG_IS_PREFIX;
    finds_a_handshake_without_a_check_of_the_accounts: SkipsCheckOfAccounts in restored_backup by ACCOUNTS_ARE_PREFIX;
    finds_a_position_that_cannot_be_compared: AcceptsUncheckedPosition in restored_backup by LOG_IS_PREFIX;
    finds_a_trim_beyond_the_hold: IgnoresHold in trims by FOLLOWER_CAN_GO_ON;
    finds_a_hold_that_begins_after_its_base: HoldsAfterBase in first_base by FOLLOWER_CAN_GO_ON;
    finds_records_that_overtake_account_changes: RecordsOvertakeChanges in organisations by ORGS_ARE_SEPARATE;
    finds_samples_without_an_organisation: KeepsOrphans in organisations by ORGS_ARE_SEPARATE;
    finds_rows_that_are_replaced_in_place: CopiesRowsInPlace in accounts by ANSWERED_IS_KEPT;
}

#[test]
fn a_follower_that_seals_on_its_own_shows_what_the_log_says_after_any_crash() {
    let (found, states) = explore(Sealing { fault: None, crashes: 2 }, HasDiscoveries::All);
    let broken: Vec<_> = found.iter().filter(|(name, _)| name.starts_with('I')).collect();
    assert!(broken.is_empty(), "{broken:#?}");
    assert!(found.iter().any(|(name, _)| *name == ALL_IS_SEALED) && states > 1_000, "{states}: {found:?}");
}

/// Asserts that the exploration finds the fault of sealing, by this invariant.
#[track_caller]
fn finds_in_seal(fault: SealFault, invariant: &str) {
    let (found, states) = explore(Sealing { fault: Some(fault), crashes: 1 }, HasDiscoveries::AnyFailures);
    let broken: Vec<_> = found.iter().filter(|(name, _)| name.starts_with('I')).collect();
    assert!(broken.iter().any(|(name, _)| *name == invariant), "{fault:?}, {states} states: {found:#?}");
}

/// Makes a test for each planted fault of sealing.
macro_rules! finds_in_seal {
    ($($name:ident: $fault:ident by $invariant:ident;)+) => {$(
        #[test]
        fn $name() {
            finds_in_seal(SealFault::$fault, $invariant);
        }
    )+};
}

finds_in_seal! {
    finds_a_segment_without_late_samples: LeavesLateSamples by QUERIES_SEE_THE_LOG;
    finds_a_seal_position_that_is_read_last: ReadsPositionLast by QUERIES_SEE_THE_LOG;
    finds_a_release_of_unwritten_samples: ReleasesUnwritten by QUERIES_SEE_THE_LOG;
    finds_a_release_before_the_listing: ReleasesBeforeListing by QUERIES_SEE_THE_LOG;
    finds_a_seal_of_records_that_are_not_synced: SealsBeforeSync by SEALS_ARE_IN_THE_LOG;
    finds_a_listed_segment_that_is_not_synced: ListsBeforeSync by QUERIES_SEE_THE_LOG;
    finds_a_trim_of_unsealed_records: TrimsUnsealed by QUERIES_SEE_THE_LOG;
    finds_a_node_that_goes_on_without_a_tombstone: GoesOnWithoutTombstone by GOES_ON;
    finds_a_start_without_a_tombstone: StartsWithoutTombstone by GOES_ON;
}
