//! Exports, and the journal that they allow to trim: the remaining files always suffice for a
//! rebuild, or the start is refused.

use super::tests::{
    NOW, TestUser, copy_tree, damage_file, folder, missing, open, opened, put, remove, user, users,
};
use super::*;
use crate::entropy::Entropy;
use crate::kv::control::export::{self, Export};
use crate::kv::frame::{self, Frame};
use crate::kv::{DataFolder, files};
use crate::model::StoreId;
use std::collections::BTreeMap;
use std::path::PathBuf;

const MINUTE_MS: i64 = 60_000;

fn later(minutes: i64) -> Timestamp {
    NOW.plus_ms(minutes * MINUTE_MS)
}

fn names(dir: &Path) -> Vec<String> {
    files::names(dir).expect("listed")
}

/// Returns a value of about 60 KB in the journal: five of them fill a journal file.
fn big(n: u32) -> TestUser {
    TestUser { name: n.to_string(), bio: vec![n.to_le_bytes()[0]; 50_000] }
}

/// Creates a folder with a trimmed journal: exports after 30 and 60 changes, 70 changes in all,
/// ended by a crash.
fn trimmed(dir: &Path) -> (DataFolder, Vec<(u32, TestUser)>) {
    let folder = folder(dir);
    let control = opened(&folder);
    for n in 0..70_u32 {
        put(&control, n % 20, big(n)).expect("put");
        if n == 29 || n == 59 {
            control.export_if_due(later(i64::from(n))).expect("exported").expect("due");
        }
    }
    let all = control.scan::<TestUser>(&()).expect("scan");
    (folder, all)
}

#[test]
fn an_export_is_due_after_two_mib_or_fifteen_minutes_with_a_change_and_at_a_clean_stop() {
    let temp = crate::kv::scratch::temporary_folder().expect("temp");
    let folder = folder(temp.path());
    let exports = folder.path().join("exports");
    let control = opened(&folder);
    assert_eq!(control.export_if_due(later(60)).expect("asked"), None, "nothing changed");
    put(&control, 1, user("a")).expect("put");
    assert_eq!(control.export_if_due(later(14)).expect("asked"), None, "too soon");
    let made = control.export_if_due(later(15)).expect("asked").expect("due");
    assert_eq!((made.seq, made.rows, made.journal_files_removed), (1, 1, 0));
    assert_eq!(control.export_if_due(later(60)).expect("asked"), None, "nothing changed since");
    put(&control, 2, user("b")).expect("put");
    control.close().expect("clean");
    assert_eq!(names(&exports), ["control-0000000001.plx", "control-0000000002.plx"]);
    let control = opened(&folder);
    control.close().expect("clean");
    assert_eq!(names(&exports).len(), 2, "nothing changed, so nothing is exported");
    // Two MiB of changes trigger an export, before the next change's reply at the latest.
    let control = opened(&folder);
    for n in 0..50 {
        put(&control, n, big(n)).expect("put");
    }
    drop(control);
    let [older, newer] = &names(&exports)[..] else { panic!("two") };
    assert!(older == "control-0000000002.plx" && newer.as_str() > "control-0000000040.plx", "{newer}");
}

#[test]
fn journal_files_are_removed_once_the_older_export_covers_them_and_either_export_suffices() {
    let whole = crate::kv::scratch::temporary_folder().expect("temp");
    let (kept, all) = trimmed(whole.path());
    let journal = names(&kept.path().join("journal"));
    assert!(!journal.contains(&"00000001.jnl".to_owned()), "{journal:?}");
    let exports = ["control-0000000030.plx", "control-0000000060.plx"];
    assert_eq!(names(&kept.path().join("exports")), exports);
    // The bits select which of control, older export and newer export are intact.
    for bits in 0..8_u8 {
        let temp = crate::kv::scratch::temporary_folder().expect("temp");
        copy_tree(kept.path(), &temp.path().join("store"));
        let folder = folder(temp.path());
        let [control, older, newer] = [1, 2, 4].map(|bit| bits & bit != 0);
        if !control {
            std::fs::remove_dir_all(folder.path().join("control")).expect("removed");
        }
        for (name, is_whole) in exports.iter().zip([older, newer]) {
            if !is_whole {
                damage_file(&folder.path().join("exports").join(name), 70_000);
            }
        }
        let found = open(&folder);
        if bits == 0 {
            let (first, last) = missing(found);
            assert!(first == 1 && (20..=30).contains(&last), "{first}-{last}");
            continue;
        }
        let (opened, report) = found.expect("opened");
        assert_eq!(opened.scan::<TestUser>(&()).expect("scan"), all, "{bits}");
        match report.start {
            Start::Intact => assert!(control),
            Start::Rebuilt { export, .. } => assert_eq!(export, Some(if newer { 60 } else { 30 }), "{bits}"),
            other => panic!("{bits}: {other:?}"),
        }
        assert_eq!(report.notes.is_empty(), newer, "{bits}: {:?}", report.notes);
        // A damaged export never counts as one of the two: after more exports, both are intact.
        for n in 0..2 {
            put(&opened, 300 + n, user("after")).expect("put");
            opened.export_if_due(later(100 + 20 * i64::from(n))).expect("exported").expect("due");
        }
        drop(opened);
        std::fs::remove_dir_all(folder.path().join("control")).expect("removed");
        let newest = folder.path().join("exports/control-0000000072.plx");
        damage_file(&newest, 90);
        assert_eq!(users(&super::tests::opened(&folder)).len(), all.len() + 2, "{bits}");
    }
}

#[test]
fn an_export_truncated_or_changed_at_any_byte_is_never_used() {
    let temp = crate::kv::scratch::temporary_folder().expect("temp");
    let folder = folder(temp.path());
    let control = opened(&folder);
    for n in 0..4 {
        put(&control, n, user("someone")).expect("put");
    }
    control.close().expect("clean");
    let path = folder.path().join("exports/control-0000000004.plx");
    let export = Export { seq: 4, path: path.clone() };
    let whole = std::fs::read(&path).expect("read");
    assert_eq!(export::verify(&export, folder.store_id()).expect("whole"), 4);
    for cut in 0..whole.len() {
        std::fs::write(&path, &whole[..cut]).expect("written");
        assert!(export::verify(&export, folder.store_id()).is_err(), "cut at {cut}");
    }
    for bit in 0..whole.len() * 8 {
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        std::fs::write(&path, &bytes).expect("written");
        assert!(export::verify(&export, folder.store_id()).is_err(), "bit {bit}");
    }
    std::fs::write(&path, [&whole[..], &[0]].concat()).expect("written");
    assert!(export::verify(&export, folder.store_id()).is_err(), "one byte more");
    std::fs::write(&path, &whole).expect("written");
    assert!(export::verify(&export, StoreId([9; 16])).is_err(), "another store's");
    assert!(export::verify(&Export { seq: 5, path }, folder.store_id()).is_err(), "another name");
}

#[test]
fn the_export_has_the_documented_layout() {
    let temp = crate::kv::scratch::temporary_folder().expect("temp");
    let folder = folder(temp.path());
    let control = opened(&folder);
    put(&control, 7, user("a")).expect("put");
    control.close().expect("clean");
    let bytes = std::fs::read(folder.path().join("exports/control-0000000001.plx")).expect("read");
    let mut drawn = b"PROMPLX1\x01\x00\x40\x00\x00\x00\x00\x00".to_vec();
    drawn.extend_from_slice(&folder.store_id().0);
    drawn.extend_from_slice(&1_u64.to_le_bytes());
    drawn.extend_from_slice(&[0; 20]);
    drawn.extend_from_slice(&crc32c::crc32c(&drawn).to_le_bytes());
    let key = [1, 0, 0, 0, 7];
    let value = frame::seal(&key, Frame { version: 2, kind: 1, flags: 0 }, &[1, b'a', 0]);
    drawn.extend_from_slice(&[5, 0, 15, 0]);
    drawn.extend_from_slice(&key);
    drawn.extend_from_slice(&value);
    drawn.extend_from_slice(&[0; 4]);
    drawn.extend_from_slice(&1_u64.to_le_bytes());
    drawn.extend_from_slice(&1_u64.to_le_bytes());
    drawn.extend_from_slice(b"PROMPLXE");
    drawn.extend_from_slice(&crc32c::crc32c(&drawn).to_le_bytes());
    assert_eq!(frame::hex(&bytes), frame::hex(&drawn));
    assert_eq!(frame::hex(&bytes[64..88]), "05000f0001000000070201000003000000549cdbf1016100", "golden");
}

/// The states that a crash during an export, or during the removals after it, leaves.
#[test]
fn a_crash_at_any_step_of_an_export_leaves_a_folder_that_opens_and_can_be_rebuilt() {
    let before = crate::kv::scratch::temporary_folder().expect("temp");
    let kept = folder(before.path());
    let control = opened(&kept);
    for n in 0..40 {
        put(&control, n % 9, big(n)).expect("put");
        if n == 9 || n == 29 {
            control.export_if_due(later(i64::from(n) + 15)).expect("exported").expect("due");
        }
    }
    let before_dir = before.path().join("before");
    copy_tree(kept.path(), &before_dir);
    control.export_if_due(later(100)).expect("exported").expect("due");
    let all = control.scan::<TestUser>(&()).expect("scan");
    drop(control);
    let exports = |dir: &Path| dir.join("exports");
    let gone: Vec<String> = {
        let left = names(&kept.path().join("journal"));
        names(&before_dir.join("journal")).into_iter().filter(|name| !left.contains(name)).collect()
    };
    assert!(!gone.is_empty(), "the export made journal files superfluous");
    let newest = names(&exports(kept.path())).pop().expect("one");
    let bytes = std::fs::read(exports(kept.path()).join(&newest)).expect("read");
    // Stage 0: half of the export exists under its first name. Stage 1: it is complete, and the
    // oldest one is still present. Later stages remove one journal file each.
    for step in 0..2 + gone.len() {
        for without_control in [false, true] {
            let temp = crate::kv::scratch::temporary_folder().expect("temp");
            let store = temp.path().join("store");
            copy_tree(&before_dir, &store);
            match step {
                0 => std::fs::write(
                    exports(&store).join("control-0000000040.plx.new"),
                    &bytes[..bytes.len() / 2],
                ),
                _ => std::fs::write(exports(&store).join(&newest), &bytes),
            }
            .expect("written");
            for name in gone.iter().take(step.saturating_sub(1)) {
                std::fs::remove_file(store.join("journal").join(name)).expect("removed");
            }
            if without_control {
                std::fs::remove_dir_all(store.join("control")).expect("removed");
            }
            let folder = folder(temp.path());
            let (control, report) = open(&folder).unwrap_or_else(|e| panic!("step {step}: {e}"));
            assert_eq!(control.scan::<TestUser>(&()).expect("scan"), all, "step {step}");
            assert!(report.notes.is_empty() && report.exported.is_none(), "step {step}: {report:?}");
            assert!(names(&exports(&store)).iter().all(|name| !name.ends_with(".new")));
        }
    }
}

/// The replacement of a damaged journal by a new one, stopped after each of its steps.
#[test]
fn a_crash_at_any_step_of_replacing_the_journal_leaves_a_folder_that_opens_and_can_be_rebuilt() {
    let whole = crate::kv::scratch::temporary_folder().expect("temp");
    let (kept, all) = trimmed(whole.path());
    let old: Vec<PathBuf> = names(&kept.path().join("journal"))
        .iter()
        .map(|name| kept.path().join("journal").join(name))
        .collect();
    damage_file(&old[0], 100_000);
    let old_bytes: Vec<Vec<u8>> = old.iter().map(|path| std::fs::read(path).expect("read")).collect();
    let (control, report) = open(&kept).expect("opened");
    assert_eq!(report.exported, Some(70));
    drop(control);
    for back in 0..=old.len() {
        for without_control in [false, true] {
            let temp = crate::kv::scratch::temporary_folder().expect("temp");
            let store = temp.path().join("store");
            copy_tree(kept.path(), &store);
            // The last `back` files have not been moved away yet.
            for (path, bytes) in old.iter().zip(&old_bytes).skip(old.len() - back) {
                let name = path.file_name().expect("a name");
                std::fs::write(store.join("journal").join(name), bytes).expect("written");
            }
            if without_control {
                std::fs::remove_dir_all(store.join("control")).expect("removed");
            }
            let folder = folder(temp.path());
            for _ in 0..2 {
                let control = opened(&folder);
                assert_eq!(control.scan::<TestUser>(&()).expect("scan"), all, "{back} {without_control}");
            }
            put(&opened(&folder), 99, user("after")).expect("still works");
            assert_eq!(opened(&folder).get::<TestUser>(&99).expect("get"), Some(user("after")));
        }
    }
}

#[test]
fn revoked_rows_stay_revoked_after_any_damage_of_control_and_the_newest_export() {
    let temp = crate::kv::scratch::temporary_folder().expect("temp");
    let kept = folder(temp.path());
    let mut rng = Entropy::seeded(20_261_121);
    let mut control = opened(&kept);
    let mut model: BTreeMap<u32, TestUser> = BTreeMap::new();
    let yesterday = temp.path().join("yesterday");
    for step in 0..60_u32 {
        let [key, what, ..] = rng.bytes::<4>();
        let key = u32::from(key % 12);
        if what % 3 == 0 {
            remove(&control, key);
            model.remove(&key);
        } else {
            put(&control, key, big(step)).expect("put");
            model.insert(key, big(step));
        }
        match step {
            20 => copy_tree(&kept.path().join("control"), &yesterday),
            _ if step % 9 == 8 => {
                control.export_if_due(later(i64::from(step) * 20)).expect("asked").expect("due");
            }
            _ => {}
        }
        if step % 6 != 5 {
            continue;
        }
        // The machine stops here. The files are copied, because every confirmed change is synced.
        let expected: Vec<_> = model.iter().map(|(key, value)| (*key, value.clone())).collect();
        for damage in 0..4 {
            let crashed = crate::kv::scratch::temporary_folder().expect("temp");
            let store = crashed.path().join("store");
            copy_tree(kept.path(), &store);
            let newest = names(&store.join("exports")).pop();
            if damage != 0 {
                std::fs::remove_dir_all(store.join("control")).expect("removed");
            }
            match (damage, newest) {
                (2, Some(newest)) => damage_file(&store.join("exports").join(newest), 80),
                (3, _) if yesterday.exists() => copy_tree(&yesterday, &store.join("control")),
                _ => {}
            }
            let folder = folder(crashed.path());
            let (control, report) = open(&folder).unwrap_or_else(|e| panic!("step {step}, {damage}: {e}"));
            let found = control.scan::<TestUser>(&()).expect("scan");
            assert!(found == expected, "step {step}, damage {damage}: {:?}", report.start);
        }
        if step % 12 == 11 {
            control.close().expect("clean");
            control = opened(&kept);
        }
    }
}

#[test]
fn another_stores_export_is_ignored_and_a_newer_one_is_refused() {
    let temp = crate::kv::scratch::temporary_folder().expect("temp");
    let (folder, all) = trimmed(temp.path());
    let other = DataFolder::open(&temp.path().join("other"), NOW, &mut Entropy::seeded(2)).expect("folder");
    let control = opened(&other);
    put(&control, 1, user("stranger")).expect("put");
    control.close().expect("clean");
    let foreign = std::fs::read(other.path().join("exports/control-0000000001.plx")).expect("read");
    std::fs::write(folder.path().join("exports/control-0000000900.plx"), foreign).expect("written");
    std::fs::remove_dir_all(folder.path().join("control")).expect("removed");
    let (control, report) = open(&folder).expect("opened");
    assert_eq!(control.scan::<TestUser>(&()).expect("scan"), all);
    assert!(report.notes[0].contains("belongs to store"), "{:?}", report.notes);
    drop(control);
    std::fs::remove_file(folder.path().join("exports/control-0000000900.plx")).expect("removed");
    std::fs::remove_dir_all(folder.path().join("control")).expect("removed");
    let path = folder.path().join("exports/control-0000000060.plx");
    let mut bytes = std::fs::read(&path).expect("read");
    bytes[8] = 2;
    let crc = crc32c::crc32c(&bytes[..60]).to_le_bytes();
    bytes[60..64].copy_from_slice(&crc);
    std::fs::write(&path, &bytes).expect("written");
    assert!(matches!(open(&folder), Err(OpenError::Export(words)) if words.contains("version 2")));
}

#[test]
fn a_copy_made_during_changes_suffices_to_rebuild_control() {
    let temp = crate::kv::scratch::temporary_folder().expect("temp");
    let (kept, _) = trimmed(temp.path());
    let control = opened(&kept);
    let copy = temp.path().join("copy");
    files::create_dir(&copy).expect("made");
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| (100..130).for_each(|n| put(&control, n, big(n)).expect("put")));
        let before = users(&control).len();
        control.copy_to(&copy).expect("copied");
        writer.join().expect("joined");
        assert!(users(&control).len() >= before);
    });
    let seen = control.scan::<TestUser>(&()).expect("scan");
    std::fs::copy(kept.path().join("STORE"), copy.join("STORE")).expect("copied");
    let restored = DataFolder::open(&copy, NOW, &mut Entropy::seeded(3)).expect("folder");
    let (built, report) = open(&restored).expect("built");
    assert!(matches!(report.start, Start::Rebuilt { export: Some(_), .. }), "{:?}", report.start);
    let found = built.scan::<TestUser>(&()).expect("scan");
    assert!(found.len() >= 20 && found.iter().all(|row| seen.contains(row)), "{} rows", found.len());
}

/// Records changes and exports. A reply to a change promises that all changes up to it are durable.
fn trace() -> crate::kv::ops::recording::Trace {
    let temp = crate::kv::scratch::temporary_folder().expect("temp");
    let recording = crate::kv::ops::recording::Recording::start(temp.path());
    let folder = folder(temp.path());
    let control = opened(&folder);
    for n in 0..14_u32 {
        put(&control, n % 5, big(n)).expect("put");
        recording.answered(n as usize);
        if n % 3 == 2 {
            control.export_if_due(later(i64::from(n + 1) * 15)).expect("exported").expect("due");
        }
    }
    drop(control);
    recording.finish()
}

/// Checks the state after a cut. The disk has no files of sled: only exports and journal are
/// tested.
fn judge(cut: &crate::kv::ops::recording::Cut) -> Option<String> {
    let temp = crate::kv::scratch::temporary_folder().expect("temp");
    cut.put(temp.path());
    if !temp.path().join("store").exists() {
        return None;
    }
    let folder = folder(temp.path());
    let (control, report) = match open(&folder) {
        Ok(opened) => opened,
        Err(e) => return Some(format!("after {} operations it does not open: {e}", cut.at)),
    };
    let answered = cut.answered.len() as u64;
    if report.seq < answered || report.seq > 14 {
        return Some(format!("after {} operations {} changes of {answered} are there", cut.at, report.seq));
    }
    let mut expected = BTreeMap::new();
    for n in 0..u32::try_from(report.seq).expect("few") {
        expected.insert(n % 5, big(n));
    }
    let found = control.scan::<TestUser>(&()).expect("scan");
    (found != expected.into_iter().collect::<Vec<_>>())
        .then(|| format!("after {} operations the rows are not those of change {}", cut.at, report.seq))
}

#[test]
fn every_state_that_a_power_cut_can_leave_of_journal_and_exports_has_all_confirmed_changes() {
    assert_eq!(trace().cuts(2, &[], judge), None);
}

#[test]
fn without_one_sync_of_the_journal_a_cut_loses_something() {
    let trace = trace();
    let of_a_group = |(_, name): &(usize, String)| name.ends_with("00000002.jnl");
    let (place, _) = trace.syncs().into_iter().find(of_a_group).expect("the second file was used");
    assert!(trace.cuts(4, &[place], judge).is_some());
}
