//! Whole folders with all kinds of data: floats, native histograms, start timestamps, exemplars,
//! metadata and accounts. Operations on them are interrupted at every file operation, and checked
//! after every power cut.

#[path = "../../tests/folder/mod.rs"]
#[expect(dead_code, reason = "shared with tests/old_formats.rs")]
mod folder;
mod stops;

use std::fs;
use std::path::{Path, PathBuf};

use folder::{AccountRow, FolderContents, NOW, OpenedFolder, copy_tree, try_open, write};

use super::*;
use crate::entropy::Entropy;
use crate::kv::keyed::KEYED_FILE_HEADER_BYTES;
use crate::kv::zeros::written_bytes;
use crate::kv::{MasterKeySource, Record, with_sources};

fn open(dir: &Path) -> OpenedFolder {
    try_open(dir, false).expect("opens")
}

/// Returns a stopped folder in the state after a kill: the next start replays the log.
fn make(dir: &Path) -> FolderContents {
    folder::make(dir).1
}

fn files_below(dir: &Path, ending: &str) -> Vec<PathBuf> {
    let found = file_tree::files(dir).expect("listed").into_iter().map(|(path, _)| dir.join(path));
    found.filter(|path| path.to_string_lossy().ends_with(ending)).collect()
}

fn check_deep(dir: &Path) -> CheckReport {
    let scratch = crate::kv::scratch::temporary_folder().expect("made");
    let options = CheckOptions {
        deep: true,
        users_table: AccountRow::TABLE,
        master_key: MasterKeySource::Folder,
        key_mark: |key, _| key.0,
        scratch: scratch.path().join("scratch"),
    };
    check(dir, &options, &mut |_| ()).expect("checked")
}

fn repair_to(dir: &Path, to: &Path) -> Result<RepairReport, RepairError> {
    let scratch = crate::kv::scratch::temporary_folder().expect("made");
    repair(dir, to, &scratch.path().join("scratch"), &mut Entropy::seeded(6), &mut |_| ())
}

/// Stages a backup as the server does.
fn stage(opened: &OpenedFolder, dir: &Path, to: &Path) -> Facts {
    fs::create_dir(to).expect("made");
    let mut changes = 0;
    let staged = opened.tsdb.stage_backup(to, &mut || {
        changes = opened.control.copy_to(to).map_err(|e| with_sources(&e))?.seq;
        Ok(())
    });
    for name in ["STORE", "INITIALISED", "master.key"] {
        fs::copy(dir.join(name), to.join(name)).expect("copied");
    }
    Facts {
        store: opened.folder.store_id().to_string(),
        made_at: NOW.to_rfc3339(),
        with_key: true,
        account_changes: changes,
        log_records: staged.expect("set aside"),
    }
}

#[test]
fn a_backup_and_a_repaired_copy_hold_everything_that_the_folder_holds() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let held = make(dir.path());
    assert_eq!(check_deep(dir.path()).findings, []);
    let out = crate::kv::scratch::temporary_folder().expect("made");
    let (staged, backup) = (dir.path().join("backup.new"), out.path().join("backup"));
    let opened = open(dir.path());
    let facts = stage(&opened, dir.path(), &staged);
    write(&opened.tsdb, 3_000, 5);
    finish_backup(&staged, &backup, &facts, &mut |_| ()).expect("backed up");
    drop(opened);
    assert_eq!(check_deep(&backup).findings, []);
    let restored = out.path().join("restored");
    restore(&restored, &backup, &mut |_| ()).expect("restored");
    let repaired = out.path().join("repaired");
    let report = repair_to(&backup, &repaired).expect("repaired");
    assert_eq!(report.lost, []);
    for folder in [&restored, &repaired] {
        let opened = open(folder);
        assert_eq!(opened.said, Vec::<String>::new());
        assert!(opened.held() == held, "{}", folder.display());
        opened.tsdb.seal_and_merge(NOW).expect("sealed");
        assert!(opened.held() == held, "{}, sealed", folder.display());
        opened.close();
        assert_eq!(check_deep(folder).findings, []);
    }
}

/// No later record vouches for the last one, so it may have been acknowledged or not.
#[test]
fn a_repair_reports_an_incomplete_record_at_the_end_of_the_log_like_a_check() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    make(dir.path());
    let used = |path: &Path| written_bytes(&fs::read(path).expect("read"));
    let files = files_below(&dir.path().join("wal"), ".wal").into_iter();
    let last = files.filter(|path| used(path) > KEYED_FILE_HEADER_BYTES).max().expect("a file with records");
    let mut bytes = fs::read(&last).expect("read");
    bytes[used(&last) - 1] ^= 1;
    fs::write(&last, bytes).expect("written");

    let found = check_deep(dir.path()).findings;
    let [finding] = &found[..] else { panic!("{found:?}") };
    assert_eq!(
        (finding.weight, finding.file.as_path()),
        (Weight::Repairable, last.strip_prefix(dir.path()).expect("inside"))
    );
    assert!(finding.offset.is_some() && finding.what.contains("an incomplete record"), "{finding:?}");
    let to = dir.path().join("repaired");
    assert_eq!(repair_to(dir.path(), &to).expect("repaired").lost, found);
    assert_eq!(check_deep(&to).findings, []);
}

/// For any flipped bit of a segment, the deep check names the file, and a repair invents nothing.
/// Every missing sample is counted, and other missing data is reported.
#[test]
fn of_a_damaged_segment_every_sample_that_a_repair_loses_is_counted() {
    let origin = crate::kv::scratch::temporary_folder().expect("made");
    let held = make(origin.path());
    let segments = files_below(&origin.path().join("segments"), ".seg");
    assert_eq!(segments.len(), 2, "floats, and histograms");
    let (mut lossy, mut salvaged, mut reported_side_data) = (0, 0, 0);
    for segment in &segments {
        let bytes = fs::read(segment).expect("read");
        let stride = (bytes.len() / 24) | 1;
        for position in (3..bytes.len()).step_by(stride) {
            let copy = crate::kv::scratch::temporary_folder().expect("made");
            let (dir, to) = (copy.path().join("damaged"), copy.path().join("repaired"));
            copy_tree(origin.path(), &dir);
            let below = segment.strip_prefix(origin.path()).expect("inside");
            let mut damaged = bytes.clone();
            damaged[position] ^= 0x10;
            fs::write(dir.join(below), damaged).expect("written");
            let found = check_deep(&dir);
            let named = found.findings.iter().any(|finding| finding.file == below);
            let report = repair_to(&dir, &to).expect("repaired");
            let opened = open(&to);
            assert_eq!(opened.said, Vec::<String>::new(), "byte {position}");
            let (samples, starts, exemplars) =
                held.missing(&opened.held()).unwrap_or_else(|what| panic!("byte {position}: {what}"));
            assert!(named || (samples, starts, exemplars) == (0, 0, 0), "byte {position}: {found:?}");
            let whole = report.lost.iter().find(|finding| finding.file == below);
            assert_eq!(
                whole.and_then(|finding| finding.count).unwrap_or(0),
                samples,
                "byte {position}: {report:?}"
            );
            let says = |words: &str| report.lost.iter().any(|finding| finding.what.contains(words));
            let all = says("cannot be opened") || says("wrong") || says("damaged");
            assert!(starts == 0 || says("start timestamps") || all, "byte {position}: {report:?}");
            assert!(exemplars == 0 || says("exemplars") || all, "byte {position}: {report:?}");
            lossy += u64::from(samples > 0);
            salvaged += u64::from(samples > 0 && samples < 360);
            reported_side_data += u64::from(says("histograms of {") || says("exemplars"));
            drop(opened);
            assert!(check_deep(&to).findings.iter().all(|finding| finding.weight == Weight::Note));
        }
    }
    assert!(lossy > 20 && salvaged > 10 && reported_side_data > 3, "{lossy} {salvaged} {reported_side_data}");
}
