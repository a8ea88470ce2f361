//! The n-th file operation fails, for every kind of operation: once with EIO, or with ENOSPC until
//! space is free again. All acknowledged samples are present after the next start, which is a
//! normal one.

use super::*;
use crate::kv::ops::recording::Failing;

const EIO: i32 = 5;
const ENOSPC: i32 = 28;
/// Opens a store. Any operation may fail.
fn start(dir: &Path) -> Option<Opened> {
    let folder = DataFolder::open(&dir.join("accounts"), NOW, &mut Entropy::seeded(2)).ok()?;
    let (control, _) = Control::open(&folder, &ControlOptions { now: NOW, users_table: 1 }).ok()?;
    let control = Arc::new(control);
    let home = Home { dir, store: STORE, control: Arc::clone(&control) };
    let (tsdb, _) = Tsdb::open(home, small_files(), &mut Entropy::seeded(1), NOW).ok()?;
    Some(Opened { tsdb: Arc::new(tsdb), _control: control, _folder: folder })
}

/// Runs all writing operations and ignores their failures. Returns the stored batches.
fn live(dir: &Path, lasting: bool) -> Vec<usize> {
    let mut stored = Vec::new();
    let Some(tsdb) = start(dir) else { return stored };
    for (number, (series, samples)) in batches().iter().enumerate() {
        if try_write(&tsdb, ORG, series, samples).is_ok() {
            stored.push(number);
        }
        // These operations may be refused at any time, which must lose nothing.
        match number % 5 {
            1 => drop(tsdb.checkpoint()),
            2 | 4 => drop(tsdb.seal(NOW)),
            3 => drop(tsdb.compact(NOW)),
            _ => retain(&tsdb),
        }
    }
    let unfinished = unfinished_files(dir);
    // A single failure leaves no unfinished file, since retries would otherwise fill the disk. A
    // lasting one may prevent the removal.
    assert!(lasting || unfinished.is_empty(), "{unfinished:?}");
    tsdb.close();
    stored
}

/// Writes samples of another organisation that are too old by the next round.
fn retain(tsdb: &Tsdb) {
    let other = OrgId(9);
    let retention = Some(std::time::Duration::from_secs(60));
    tsdb.set_limits(other, OrgLimits { retention, ..OrgLimits::default() });
    let mut batch = BatchBuilder::default();
    batch.series(&up("old"), [ago(1_000, 1.0)]);
    // The results of these operations do not matter.
    drop(tsdb.append(other, &batch.batch(), NOW));
    drop(tsdb.seal(NOW));
    drop(tsdb.maintain(NOW.plus_ms(120_000)));
}

/// Returns the unfinished segment files.
fn unfinished_files(dir: &Path) -> Vec<String> {
    let dir = dir.join("segments").join(ORG.to_string());
    let mut names = if dir.exists() { disk::names(&dir).expect("listed") } else { Vec::new() };
    names.retain(|name| name.ends_with(".new"));
    names
}

fn fail_every_stride(os_error: i32, lasting: bool, first: usize) {
    // Each kind of failure begins with another operation.
    for left in (first..).step_by(rounds(12, 4)) {
        let dir = crate::kv::scratch::temporary_folder().expect("made");
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
fn an_operation_that_fails_once_loses_no_acknowledged_sample() {
    fail_every_stride(EIO, false, 1);
}

#[test]
fn a_disk_that_is_full_from_any_operation_on_loses_no_acknowledged_sample() {
    fail_every_stride(ENOSPC, true, 3);
}
