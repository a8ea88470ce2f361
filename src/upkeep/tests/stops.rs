//! Backup, restore, repair and the replacement of a damaged log, interrupted by a failure of any
//! file operation or by a power cut. The folder is in the old or in the new state, and a partial
//! folder is never accepted as complete.

use super::*;
use crate::kv::ops::recording::{Cut, Failing, Recording};
use crate::model::effort::rounds;

const EIO: i32 = 5;
/// The number of states tried after each operation.
const STATES: usize = 3;

/// Returns whether the folder is a store; an error if it is one and does not hold `held`.
fn is_whole(folder: &Path, held: &FolderContents) -> Result<bool, String> {
    let is_empty = fs::read_dir(folder).map_or(true, |mut names| names.next().is_none());
    if is_empty {
        return Ok(false);
    }
    match try_open(folder, false) {
        Err(_) => Ok(false),
        Ok(opened) if opened.said.is_empty() && opened.held() == *held => Ok(true),
        Ok(opened) => Err(format!("accepted as complete, but it is not: {:?}", opened.said)),
    }
}

/// Runs `make` once for each of its operations on the target, and lets that operation fail.
fn with_each_operation_failing(held: &FolderContents, make: impl Fn(&Path) -> Result<(), String>) {
    for left in (0..).step_by(rounds(6, 2)) {
        let parent = crate::kv::scratch::temporary_folder().expect("made");
        let target = parent.path().join("target");
        let failing = Failing::after(parent.path(), left, EIO, false);
        let made = make(&target);
        let met = failing.was_met();
        drop(failing);
        let whole = is_whole(&target, held).unwrap_or_else(|what| panic!("operation {left}: {what}"));
        assert!(whole || made.is_err(), "operation {left}: it reported success");
        if !met {
            assert!(made.is_ok() && left > 20, "operation {left}: {made:?}");
            return;
        }
        if fs::read_dir(&target).is_ok_and(|mut names| names.next().is_some()) {
            let again = make(&target).expect_err("an existing folder is not overwritten");
            assert!(again.contains("is not empty"), "{again}");
            fs::remove_dir_all(&target).expect("removed");
        }
        make(&target).expect("made in the end");
        assert_eq!(is_whole(&target, held), Ok(true), "operation {left}");
    }
}

/// Runs `make` and checks the target after each possible power cut.
fn with_cuts(held: &FolderContents, make: impl Fn(&Path) -> Result<(), String>) {
    let parent = crate::kv::scratch::temporary_folder().expect("made");
    let recording = Recording::start(parent.path());
    make(&parent.path().join("target")).expect("made");
    recording.answered(0);
    let judge = |cut: &Cut| {
        let parent = crate::kv::scratch::temporary_folder().expect("made");
        cut.put(parent.path());
        match is_whole(&parent.path().join("target"), held) {
            Ok(whole) if whole || cut.answered.is_empty() => None,
            Ok(_) => Some(format!("after {} operations: acknowledged, but missing", cut.at)),
            Err(what) => Some(format!("after {} operations: {what}", cut.at)),
        }
    };
    assert_eq!(recording.finish().cuts(STATES, &[], judge), None);
}

/// Makes a folder and a backup of it. Returns the backup and its contents.
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
fn an_interrupted_restore_leaves_no_store_or_a_complete_one() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let (backup, held) = backed_up(dir.path());
    with_each_operation_failing(&held, |target| restored(target, &backup));
    with_cuts(&held, |target| restored(target, &backup));
}

#[test]
fn an_interrupted_repair_leaves_no_store_or_a_complete_one() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let held = make(dir.path());
    let repaired = |target: &Path| repair_to(dir.path(), target).map(drop).map_err(|e| with_sources(&e));
    with_each_operation_failing(&held, repaired);
    with_cuts(&held, repaired);
}

#[test]
fn an_interrupted_backup_is_invalid_or_complete() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let folder = dir.path().join("folder");
    let held = make(&folder);
    let opened = open(&folder);
    let staged = dir.path().join("staged");
    let facts = stage(&opened, &folder, &staged);
    // Restores the backup if it is accepted as complete.
    let is_whole_backup = |backup: &Path| {
        let target = crate::kv::scratch::temporary_folder().expect("made");
        let target = target.path().join("restored");
        restored(&target, backup).is_ok().then(|| assert_eq!(is_whole(&target, &held), Ok(true))).is_some()
    };
    for left in 0.. {
        let out = crate::kv::scratch::temporary_folder().expect("made");
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
    // Both are in one folder, because a backup links to staged files.
    let root = crate::kv::scratch::temporary_folder().expect("made");
    copy_tree(&staged, &root.path().join("staged"));
    let recording = Recording::start(root.path());
    let (staged, backup) = (root.path().join("staged"), root.path().join("backup"));
    finish_backup(&staged, &backup, &facts, &mut |_| ()).expect("backed up");
    recording.answered(0);
    let judge = |cut: &Cut| {
        let root = crate::kv::scratch::temporary_folder().expect("made");
        cut.put(root.path());
        let whole = is_whole_backup(&root.path().join("backup"));
        (!whole && !cut.answered.is_empty()).then(|| format!("after {} operations", cut.at))
    };
    assert_eq!(recording.finish().cuts(STATES, &[], judge), None);
}

/// The offset of the first record in a log file.
const RECORDS: usize = 4_128;

/// Flips bits in the newest log file that has records. No checkpoint holds those records.
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

/// Makes a folder with a damaged log. Returns the samples of a read-only start, and those of a
/// start that accepts the loss.
fn damaged(dir: &Path) -> (FolderContents, FolderContents) {
    let held = make(dir);
    damage_log(dir);
    // The journal rebuilds the database. A recording does not see the database, so it must not hold
    // the only copy of anything.
    fs::remove_dir_all(dir.join("control")).expect("removed");
    let states = [false, true].map(|accept| {
        let copy = crate::kv::scratch::temporary_folder().expect("made");
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

/// Returns what is wrong with a folder in which a damaged log was replaced, or was to be replaced.
fn old_or_new(dir: &Path, (old, new): &(FolderContents, FolderContents), is_done: bool) -> Option<String> {
    let opened = match try_open(dir, false) {
        Ok(opened) => opened,
        Err(why) => return Some(format!("it does not open: {why}")),
    };
    let read_only = opened.said.iter().any(|said| said.starts_with("read-only"));
    if read_only && is_done {
        return Some("the accepted loss must be accepted again".to_owned());
    }
    let expected = if read_only { old } else { new };
    if opened.read().0 != *expected {
        return Some(format!("neither the old nor the new state: {:?}", opened.said));
    }
    drop(opened);
    match try_open(dir, true) {
        Ok(opened) if opened.held() == *new => None,
        Ok(opened) => Some(format!("a second attempt does not lead to the new state: {:?}", opened.said)),
        Err(why) => Some(format!("a second attempt: {why}")),
    }
}

#[test]
fn an_interrupted_replacement_of_a_damaged_log_leaves_the_old_or_the_new_one() {
    let origin = crate::kv::scratch::temporary_folder().expect("made");
    let states = damaged(origin.path());
    for left in (0..).step_by(rounds(6, 2)) {
        let dir = crate::kv::scratch::temporary_folder().expect("made");
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
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    copy_tree(origin.path(), dir.path());
    let recording = Recording::start(dir.path());
    let opened = try_open(dir.path(), true).expect("opens");
    recording.answered(0);
    drop(opened);
    let judge = |cut: &Cut| {
        let dir = crate::kv::scratch::temporary_folder().expect("made");
        cut.put(dir.path());
        let wrong = old_or_new(dir.path(), &states, !cut.answered.is_empty());
        wrong.map(|what| format!("after {} operations: {what}", cut.at))
    };
    assert_eq!(recording.finish().cuts(STATES, &[], judge), None);
}
