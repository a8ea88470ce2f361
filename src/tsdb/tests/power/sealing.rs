//! Seals, compactions and the removal of log files, on a disk that loses power at any time. The
//! accounts' journal is on that disk as well, because the list of segments depends on it. sled's
//! files are not, so each start rebuilds them.

use super::*;

/// The number of states tried after each operation. Opening one creates a new database of accounts.
const STATES: usize = 3;

fn sealed_trace() -> Trace {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    // The folder exists already; first starts have their own test.
    drop(open_with(dir.path(), small_files()));
    std::fs::remove_dir_all(dir.path().join("accounts/control")).expect("removed");
    let recording = Recording::start(dir.path());
    let (tsdb, _) = open_with(dir.path(), small_files());
    for (number, (series, samples)) in batches().iter().enumerate() {
        write(&tsdb, ORG, series, samples);
        recording.answered(number);
        if number % 3 == 2 {
            tsdb.seal(NOW).expect("sealed");
        }
        if number == 5 {
            tsdb.compact(NOW).expect("merged");
        }
    }
    drop(tsdb);
    recording.finish()
}

pub(super) fn judge_sealed(cut: &Cut) -> Option<String> {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let (tsdb, complaint) = match opened(cut, dir.path()) {
        Ok(opened) => opened,
        Err(complaint) => return Some(complaint),
    };
    complaint.map_or_else(
        || judge_content(cut, &tsdb),
        |why| Some(format!("after {} operations it complains: {why}", cut.at)),
    )
}

#[test]
fn every_state_that_a_power_cut_can_leave_of_seals_and_merges_opens_with_all_acknowledged_samples() {
    assert_eq!(sealed_trace().cuts(STATES, &[], judge_sealed), None);
}

#[test]
fn without_any_one_sync_of_a_segment_its_name_or_the_registry_some_power_cut_loses_samples() {
    let trace = sealed_trace();
    let of_interest = |name: &str| name.starts_with("segments/") || name.starts_with("series");
    let syncs: Vec<(usize, String)> =
        trace.syncs().into_iter().filter(|(_, name)| of_interest(name)).collect();
    assert!(syncs.len() > 6, "{syncs:?}");
    let redundant: Vec<&(usize, String)> = syncs
        .iter()
        .step_by(rounds(9, 1))
        .filter(|(index, _)| trace.cuts(STATES, &[*index], judge_sealed).is_none())
        .collect();
    assert_eq!(redundant, [] as [&(usize, String); 0]);
}
