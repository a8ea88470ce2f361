//! Backup, restore, repair and the exchange of a damaged log, stopped by a failure of any one file operation, or by a cut of
//! the power: what is left is what was there before or what there is to be, and nothing half made is taken for whole.

use super::*;
use crate::kv::ops::recording::{Cut, Failing, Recording};

const EIO: i32 = 5;
/// States tried after each operation.
const STATES: usize = 3;

/// Whether the folder is a store now; what is wrong if it is one and does not hold this.
fn is_whole(folder: &Path, held: &FolderContents) -> Result<bool, String> {
    let is_empty = fs::read_dir(folder).map_or(true, |mut names| names.next().is_none());
    if is_empty {
        return Ok(false);
    }
    match try_open(folder, false) {
        Err(_) => Ok(false),
        Ok(opened) if opened.said.is_empty() && opened.held() == *held => Ok(true),
        Ok(opened) => Err(format!("taken for whole, and it is not: {:?}", opened.said)),
    }
}

/// Runs `make` with every operation on its target failing in turn.
fn with_each_operation_failing(held: &FolderContents, make: impl Fn(&Path) -> Result<(), String>) {
    for left in (0..).step_by(2) {
        let parent = tempfile::tempdir().expect("made");
        let target = parent.path().join("target");
        let failing = Failing::after(parent.path(), left, EIO, false);
        let made = make(&target);
        let met = failing.was_met();
        drop(failing);
        let whole = is_whole(&target, held).unwrap_or_else(|what| panic!("operation {left}: {what}"));
        assert!(whole || made.is_err(), "operation {left}: it said that it was done");
        if !met {
            assert!(made.is_ok() && left > 20, "operation {left}: {made:?}");
            return;
        }
        if fs::read_dir(&target).is_ok_and(|mut names| names.next().is_some()) {
            let again = make(&target).expect_err("what is there is not written over");
            assert!(again.contains("is not empty"), "{again}");
            fs::remove_dir_all(&target).expect("removed");
        }
        make(&target).expect("made at last");
        assert_eq!(is_whole(&target, held), Ok(true), "operation {left}");
    }
}

/// Runs `make` and looks at what cuts of the power leave of its target.
fn with_cuts(held: &FolderContents, make: impl Fn(&Path) -> Result<(), String>) {
    let parent = tempfile::tempdir().expect("made");
    let recording = Recording::start(parent.path());
    make(&parent.path().join("target")).expect("made");
    recording.answered(0);
    let judge = |cut: &Cut| {
        let parent = tempfile::tempdir().expect("made");
        cut.put(parent.path());
        match is_whole(&parent.path().join("target"), held) {
            Ok(whole) if whole || cut.answered.is_empty() => None,
            Ok(_) => Some(format!("after {} operations: answered, and not there", cut.at)),
            Err(what) => Some(format!("after {} operations: {what}", cut.at)),
        }
    };
    assert_eq!(recording.finish().cuts(STATES, 1, &[], judge), None);
}

/// A folder, a backup of it, and what they hold.
fn backed_up(dir: &Path) -> (PathBuf, FolderContents) {
    let folder = dir.join("folder");
    let held = make(&folder);
    let opened = open(&folder);
    let (staged, backup) = (dir.join("staged"), dir.join("backup"));
    let facts = stage(&opened, &folder, &staged);
    finish_backup(&staged, &backup, &facts, &mut |_| ()).expect("backed up");
    (backup, held)
}

fn restored(target: &Path, backup: &Path) -> Result<(), String> {
    restore(target, backup, &mut |_| ()).map(drop).map_err(|e| with_sources(&e))
}

#[test]
fn a_restore_that_is_stopped_leaves_no_store_or_the_whole_one() {
    let dir = tempfile::tempdir().expect("made");
    let (backup, held) = backed_up(dir.path());
    with_each_operation_failing(&held, |target| restored(target, &backup));
    with_cuts(&held, |target| restored(target, &backup));
}

#[test]
fn a_repair_that_is_stopped_leaves_no_store_or_the_whole_one() {
    let dir = tempfile::tempdir().expect("made");
    let held = make(dir.path());
    let repaired = |target: &Path| repair_to(dir.path(), target).map(drop).map_err(|e| with_sources(&e));
    with_each_operation_failing(&held, repaired);
    with_cuts(&held, repaired);
}

#[test]
fn a_backup_that_is_stopped_is_none_or_the_whole_one() {
    let dir = tempfile::tempdir().expect("made");
    let folder = dir.path().join("folder");
    let held = make(&folder);
    let opened = open(&folder);
    let staged = dir.path().join("staged");
    let facts = stage(&opened, &folder, &staged);
    // Made from a backup wherever one is taken for whole.
    let is_whole_backup = |backup: &Path| {
        let target = tempfile::tempdir().expect("made");
        let target = target.path().join("restored");
        restored(&target, backup).is_ok().then(|| assert_eq!(is_whole(&target, &held), Ok(true))).is_some()
    };
    for left in 0.. {
        let out = tempfile::tempdir().expect("made");
        let backup = out.path().join("backup");
        let failing = Failing::after(out.path(), left, EIO, false);
        let made = finish_backup(&staged, &backup, &facts, &mut |_| ());
        let met = failing.was_met();
        drop(failing);
        assert!(is_whole_backup(&backup) || made.is_err(), "operation {left}");
        if !met {
            assert!(made.is_ok() && left > 15, "operation {left}");
            break;
        }
    }
    // Both in one place, since a backup has second names for what was set aside.
    let root = tempfile::tempdir().expect("made");
    copy_tree(&staged, &root.path().join("staged"));
    let recording = Recording::start(root.path());
    let (staged, backup) = (root.path().join("staged"), root.path().join("backup"));
    finish_backup(&staged, &backup, &facts, &mut |_| ()).expect("backed up");
    recording.answered(0);
    let judge = |cut: &Cut| {
        let root = tempfile::tempdir().expect("made");
        cut.put(root.path());
        let whole = is_whole_backup(&root.path().join("backup"));
        (!whole && !cut.answered.is_empty()).then(|| format!("after {} operations", cut.at))
    };
    assert_eq!(recording.finish().cuts(STATES, 1, &[], judge), None);
}

/// Where the records of a log file begin.
const RECORDS: usize = 4_128;

/// Flips bits here and there in the newest log file that holds records: no checkpoint has them.
fn damage_log(dir: &Path) {
    let written = |log: &PathBuf| {
        let bytes = fs::read(log).expect("read");
        let end = bytes.iter().rposition(|byte| *byte != 0).expect("a header");
        (end > RECORDS + 1_000).then_some((log.clone(), bytes, end))
    };
    let logs = files_below(&dir.join("wal"), ".wal");
    let (log, mut bytes, end) = logs.iter().rev().find_map(written).expect("records");
    let records = end - RECORDS;
    for place in (RECORDS + records / 3..end).step_by(records / 9) {
        bytes[place] ^= 1;
    }
    fs::write(log, bytes).expect("written");
}

/// A folder with a damaged log, as a start leaves it; what a read-only start shows, and one that accepts the loss.
fn damaged(dir: &Path) -> (FolderContents, FolderContents) {
    let held = make(dir);
    damage_log(dir);
    // The journal rebuilds it: what a recording does not see must not be the only place of anything.
    fs::remove_dir_all(dir.join("control")).expect("removed");
    let states = [false, true].map(|accept| {
        let copy = tempfile::tempdir().expect("made");
        copy_tree(dir, copy.path());
        let opened = try_open(copy.path(), accept).expect("opens");
        assert_eq!(opened.said.iter().any(|said| said.starts_with("read-only")), !accept);
        assert_eq!(opened.said.iter().any(|said| said.starts_with("accepted")), accept);
        let (left, warnings) = opened.read();
        assert_eq!(warnings.iter().any(|text| text.contains("wal/")), !accept, "{warnings:?}");
        assert!(held.missing(&left).expect("nothing is invented").0 > 0, "something is lost");
        left
    });
    states.into()
}

/// What is wrong with a folder in which a log was, or was not, exchanged.
fn old_or_new(dir: &Path, (old, new): &(FolderContents, FolderContents), is_done: bool) -> Option<String> {
    let opened = match try_open(dir, false) {
        Ok(opened) => opened,
        Err(why) => return Some(format!("it does not open: {why}")),
    };
    let read_only = opened.said.iter().any(|said| said.starts_with("read-only"));
    if read_only && is_done {
        return Some("what was accepted is asked for again".to_owned());
    }
    let expected = if read_only { old } else { new };
    if opened.read().0 != *expected {
        return Some(format!("neither old nor new: {:?}", opened.said));
    }
    drop(opened);
    match try_open(dir, true) {
        Ok(opened) if opened.held() == *new => None,
        Ok(opened) => Some(format!("a second try does not lead to the new state: {:?}", opened.said)),
        Err(why) => Some(format!("a second try: {why}")),
    }
}

#[test]
fn an_exchange_of_a_damaged_log_that_is_stopped_leaves_the_old_one_or_the_new_one() {
    let origin = tempfile::tempdir().expect("made");
    let states = damaged(origin.path());
    for left in (0..).step_by(2) {
        let dir = tempfile::tempdir().expect("made");
        copy_tree(origin.path(), dir.path());
        let failing = Failing::after(dir.path(), left, EIO, false);
        let opened = try_open(dir.path(), true).map(drop);
        let met = failing.was_met();
        drop(failing);
        assert_eq!(old_or_new(dir.path(), &states, !met), None, "operation {left}");
        if !met {
            assert!(opened.is_ok() && left > 30, "operation {left}");
            break;
        }
    }
    let dir = tempfile::tempdir().expect("made");
    copy_tree(origin.path(), dir.path());
    let recording = Recording::start(dir.path());
    let opened = try_open(dir.path(), true).expect("opens");
    recording.answered(0);
    drop(opened);
    let judge = |cut: &Cut| {
        let dir = tempfile::tempdir().expect("made");
        cut.put(dir.path());
        let wrong = old_or_new(dir.path(), &states, !cut.answered.is_empty());
        wrong.map(|what| format!("after {} operations: {what}", cut.at))
    };
    assert_eq!(recording.finish().cuts(STATES, 1, &[], judge), None);
}
