//! The n-th file operation fails, for every kind of operation that comes: once with EIO, or with ENOSPC until there is
//! space again. Whatever was answered is there after the next start, which is an ordinary one.

use super::*;
use crate::kv::ops::recording::Failing;

const EIO: i32 = 5;
const ENOSPC: i32 = 28;
/// Every so manieth operation is tried, beginning with another for each kind of failure.
const STEP: usize = 4;

/// A start that may fail at any operation.
fn start(dir: &Path) -> Option<Opened> {
    let folder = DataFolder::open(&dir.join("accounts"), NOW, &mut Entropy::seeded(2)).ok()?;
    let (control, _) = Control::open(&folder, &ControlOptions { now: NOW, users_table: 1 }).ok()?;
    let control = Arc::new(control);
    let home = Home { dir, store: STORE, control: Arc::clone(&control) };
    let (tsdb, _) = Tsdb::open(home, small_files(), &mut Entropy::seeded(1), NOW).ok()?;
    Some(Opened { tsdb, _control: control, _folder: folder })
}

/// Everything that writes, whatever it is told; answers which batches were stored.
fn live(dir: &Path) -> Vec<usize> {
    let mut stored = Vec::new();
    let Some(tsdb) = start(dir) else { return stored };
    for (number, (series, samples)) in batches().iter().enumerate() {
        if try_write(&tsdb, ORG, series, samples).is_ok() {
            stored.push(number);
        }
        // Refusals of these are the point: they may come at any place, and must cost nothing.
        match number % 5 {
            1 => drop(tsdb.checkpoint(NOW)),
            2 | 4 => drop(tsdb.seal(NOW)),
            3 => drop(tsdb.compact(NOW)),
            _ => {}
        }
    }
    tsdb.close();
    stored
}

fn every(os_error: i32, lasting: bool, first: usize) {
    for left in (first..).step_by(STEP) {
        let dir = tempfile::tempdir().expect("made");
        drop(open_with(dir.path(), small_files()));
        let failing = Failing::after(dir.path(), left, os_error, lasting);
        let stored = live(dir.path());
        let met = failing.was_met();
        drop(failing);
        let (tsdb, report) = open_with(dir.path(), small_files());
        assert_eq!(report.read_only, None, "operation {left}");
        let lost = judge_stored(&stored.into_iter().collect(), &tsdb);
        assert_eq!(lost, None, "operation {left}");
        write(&tsdb, ORG, &up("after"), &[ago(0, 1.0)]);
        if !met {
            assert!(left > 60, "only {left} operations");
            return;
        }
    }
}

#[test]
fn an_operation_that_fails_once_costs_nothing_that_was_answered() {
    every(EIO, false, 1);
}

#[test]
fn a_disk_that_is_full_from_any_operation_on_costs_nothing_that_was_answered() {
    every(ENOSPC, true, 3);
}
