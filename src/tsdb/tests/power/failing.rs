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
fn live(dir: &Path, lasting: bool) -> Vec<usize> {
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
            _ => retain(&tsdb),
        }
    }
    let unfinished = half_made(dir);
    // One failure leaves nothing behind: a store that tries on would fill the disk. A lasting one may forbid to remove.
    assert!(lasting || unfinished.is_empty(), "{unfinished:?}");
    tsdb.close();
    stored
}

/// Another organisation whose samples of each round are too old by the next.
fn retain(tsdb: &Tsdb) {
    let other = OrgId(9);
    let retention = Some(std::time::Duration::from_secs(60));
    tsdb.set_limits(other, OrgLimits { retention, ..OrgLimits::default() });
    let mut batch = BatchBuilder::default();
    batch.series(&up("old"), [ago(1_000, 1.0)]);
    // Whether any of it comes through is not the point.
    drop(tsdb.append(other, &batch.batch(), NOW));
    drop(tsdb.seal(NOW));
    drop(tsdb.maintain(NOW.plus_ms(120_000)));
}

/// Files of segments that are not finished.
fn half_made(dir: &Path) -> Vec<String> {
    let dir = dir.join("segments").join(ORG.to_string());
    let mut names = if dir.exists() { disk::names(&dir).expect("listed") } else { Vec::new() };
    names.retain(|name| name.ends_with(".new"));
    names
}

fn every(os_error: i32, lasting: bool, first: usize) {
    for left in (first..).step_by(STEP) {
        let dir = tempfile::tempdir().expect("made");
        drop(open_with(dir.path(), small_files()));
        let failing = Failing::after(dir.path(), left, os_error, lasting);
        let stored = live(dir.path(), lasting);
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
