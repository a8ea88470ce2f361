//! Imports on a disk that loses power at any time: samples before a completed flush survive.

use super::sealing::judge_sealed;
use super::*;

/// The number of states tried after each operation. Opening one creates a new database of accounts.
const STATES: usize = 3;

fn imported_trace() -> Trace {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    // The folder exists already; first starts have their own test.
    drop(open_with(dir.path(), small_files()));
    std::fs::remove_dir_all(dir.path().join("accounts/control")).expect("removed");
    let recording = Recording::start(dir.path());
    let (tsdb, _) = open_with(dir.path(), small_files());
    let mut import = tsdb.import(ORG);
    for (number, (series, samples)) in batches().iter().enumerate() {
        let mut batch = BatchBuilder::default();
        batch.series(series, samples.iter().copied());
        import.append(&batch.batch(), NOW).expect("taken");
        if number % 3 == 2 {
            import.flush(NOW).expect("sealed");
            (number - 2..=number).for_each(|number| recording.answered(number));
        }
    }
    drop(tsdb);
    recording.finish()
}

#[test]
fn every_state_that_a_power_cut_can_leave_of_an_import_opens_with_all_flushed_samples() {
    assert_eq!(imported_trace().cuts(STATES, &[], judge_sealed), None);
}
