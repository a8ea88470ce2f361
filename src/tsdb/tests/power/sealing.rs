//! Seals, compactions and what they remove from the log, on a disk that loses power at any moment. The accounts' journal
//! is on that disk, too: the list of segments rests on it. sled's files are not, so that each start rebuilds them.

use super::*;

/// States tried after each operation: opening one costs a new database of accounts.
const STATES: usize = 3;

fn sealed_trace() -> Trace {
    let dir = tempfile::tempdir().expect("made");
    // A folder that is there already: what a first start does has its own test.
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

fn judge_sealed(cut: &Cut) -> Option<String> {
    let dir = tempfile::tempdir().expect("made");
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
fn every_state_that_a_power_cut_can_leave_of_seals_and_merges_opens_with_all_that_was_answered() {
    assert_eq!(sealed_trace().cuts(STATES, 1, &[], judge_sealed), None);
}

#[test]
fn each_sync_of_a_segment_and_its_name_and_of_the_registry_left_out_loses_something() {
    let trace = sealed_trace();
    let of_interest = |name: &str| name.starts_with("segments/") || name.starts_with("series");
    let syncs: Vec<(usize, String)> =
        trace.syncs().into_iter().filter(|(_, name)| of_interest(name)).collect();
    assert!(syncs.len() > 6, "{syncs:?}");
    let needless: Vec<&(usize, String)> =
        syncs.iter().filter(|(place, _)| trace.cuts(STATES, 1, &[*place], judge_sealed).is_none()).collect();
    assert_eq!(needless, [] as [&(usize, String); 0]);
}
