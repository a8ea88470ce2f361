//! A log whose end was lost: the loss is reported, and samples acknowledged afterwards survive
//! every later kill.

use std::path::PathBuf;

use super::*;
use crate::model::{MatchOp, Matcher};
use crate::tsdb::wal::replay::{self, LogOrigin};

const NEW_SAMPLES: i64 = 400;

/// The kind of loss at the end of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    CutBeforeTheDeletion,
    Emptied,
    ZerosFromTheDeletion,
}

/// Returns the newest log file with records, and the end of its last record.
fn end_of_log(dir: &Path) -> (PathBuf, usize) {
    end_of_log_from(dir, LogOrigin::default())
}

/// Like [`end_of_log`], for a log with removed files before `origin`.
fn end_of_log_from(dir: &Path, origin: LogOrigin) -> (PathBuf, usize) {
    let end = replay::replay(&dir.join("wal"), STORE, origin, 0, &mut |_, _, _| Ok(())).expect("read");
    let tail = end.tail.expect("a file");
    (tail.path, usize::try_from(tail.offset).expect("small"))
}

fn lose(path: &Path, from: usize, loss: Loss) {
    let mut content = std::fs::read(path).expect("read");
    match loss {
        Loss::CutBeforeTheDeletion => content.truncate(from),
        Loss::Emptied => content.clear(),
        Loss::ZerosFromTheDeletion => content.get_mut(from..).expect("within").fill(0),
    }
    std::fs::write(path, content).expect("written");
}

fn accept(dir: &Path) -> Vec<crate::kv::Finding> {
    let (control, folder) = control(dir);
    let home = Home { dir, store: STORE, control: Arc::clone(&control) };
    let lost = accept_loss(&home, &mut Entropy::seeded(5), NOW).expect("accepted");
    drop((home, control, folder));
    lost
}

fn delete_all(tsdb: &Tsdb, job: &str) {
    let matcher = Matcher::new("job", MatchOp::Equal, job).expect("a matcher");
    tsdb.delete(ORG, &[vec![matcher]], TimeRange::ALL, NOW).expect("deleted");
}

#[test]
fn samples_acknowledged_after_an_accepted_loss_survive_a_deletion_whose_record_was_lost() {
    for loss in [Loss::CutBeforeTheDeletion, Loss::Emptied, Loss::ZerosFromTheDeletion] {
        let live = crate::kv::scratch::temporary_folder().expect("made");
        let (tsdb, _) = open(live.path());
        write(&tsdb, ORG, &up("a"), &[ago(9_000_000, 1.0), ago(8_000_000, 2.0)]);
        write(&tsdb, ORG, &up("b"), &[ago(9_000_000, 3.0)]);
        let (_, deletion_at) = end_of_log(live.path());
        delete_all(&tsdb, "a");
        let dir = crate::kv::scratch::temporary_folder().expect("made");
        copy_tree(live.path(), dir.path());
        drop(tsdb);
        lose(&end_of_log(dir.path()).0, deletion_at, loss);

        let (tsdb, report) = open(dir.path());
        let why = report.read_only.unwrap_or_default();
        assert!(why.contains("deletion") || loss == Loss::Emptied, "{loss:?}: {why}");
        assert!(!why.is_empty(), "{loss:?}");
        assert!(!content(&tsdb, ORG).contains_key(&up("a").to_string()), "deleted samples stay deleted");
        drop(tsdb);

        assert!(!accept(dir.path()).is_empty(), "{loss:?}: the loss is reported");
        let (tsdb, report) = open(dir.path());
        assert_eq!(report.read_only, None, "{loss:?}");
        for n in 0..NEW_SAMPLES {
            let stored = write(&tsdb, ORG, &up("a"), &[ago(7_000_000 - n * 1_000, n as f64)]);
            assert_eq!(stored.stored, 1);
        }
        let seen = content(&tsdb, ORG);
        assert_eq!(seen[&up("a").to_string()].len() as i64, NEW_SAMPLES, "{loss:?}");
        let killed = crate::kv::scratch::temporary_folder().expect("made");
        copy_tree(dir.path(), killed.path());
        drop(tsdb);
        let (tsdb, report) = open(killed.path());
        assert_eq!((report.read_only, content(&tsdb, ORG)), (None, seen), "{loss:?}");
    }
}

#[test]
fn a_lost_deletion_hides_earlier_samples_and_not_later_readable_ones() {
    let live = crate::kv::scratch::temporary_folder().expect("made");
    let (tsdb, _) = open(live.path());
    write(&tsdb, ORG, &up("a"), &[ago(9_000_000, 1.0)]);
    let (_, deletion_at) = end_of_log(live.path());
    delete_all(&tsdb, "a");
    write(&tsdb, ORG, &up("a"), &[ago(8_000_000, 2.0)]);
    write(&tsdb, ORG, &up("a"), &[ago(7_000_000, 3.0)]);
    let seen = content(&tsdb, ORG);
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    copy_tree(live.path(), dir.path());
    drop(tsdb);
    let (path, _) = end_of_log(dir.path());
    let mut bytes = std::fs::read(&path).expect("read");
    // The body of the deletion, after the 24 or 32 bytes of its header.
    *bytes.get_mut(deletion_at + 34).expect("within") ^= 1;
    std::fs::write(&path, bytes).expect("written");
    let (tsdb, report) = open(dir.path());
    assert!(report.read_only.is_some());
    assert_eq!(content(&tsdb, ORG), seen);
    drop(tsdb);
    accept(dir.path());
    let (tsdb, report) = open(dir.path());
    assert_eq!((report.read_only, content(&tsdb, ORG)), (None, seen));
}

/// A deletion applies to the segments even if its record is lost with the record of the sample.
#[test]
fn a_sealed_sample_that_is_deleted_and_written_again_is_lost_with_its_record_and_reported() {
    let live = crate::kv::scratch::temporary_folder().expect("made");
    let (tsdb, _) = open(live.path());
    write(&tsdb, ORG, &up("a"), &[ago(9_000_000, 1.0), ago(8_000_000, 2.0)]);
    tsdb.seal_and_merge(NOW).expect("sealed");
    let origin = tsdb.manifest.as_ref().expect("on disk").log_begin().expect("read");
    let (_, deletion_at) = end_of_log_from(live.path(), origin);
    let matcher = Matcher::new("job", MatchOp::Equal, "a").expect("a matcher");
    let deleted = ago(9_000_000, 1.0).at;
    tsdb.delete(ORG, &[vec![matcher]], TimeRange::new(deleted, deleted), NOW).expect("deleted");
    let left = content(&tsdb, ORG);
    let (_, sample_at) = end_of_log_from(live.path(), origin);
    write(&tsdb, ORG, &up("a"), &[ago(9_000_000, 1.0)]);
    let written = content(&tsdb, ORG);
    assert_eq!([&left, &written].map(|found| found[&up("a").to_string()].len()), [1, 2]);
    let (path, _) = end_of_log_from(live.path(), origin);
    let name = Path::new("wal").join(path.file_name().expect("named"));
    let kill = || {
        let dir = crate::kv::scratch::temporary_folder().expect("made");
        copy_tree(live.path(), dir.path());
        dir
    };
    let killed = kill();
    assert_eq!(content(&open(killed.path()).0, ORG), written);
    for cut in [sample_at + 16, sample_at, deletion_at + 16, deletion_at] {
        let dir = kill();
        lose(&dir.path().join(&name), cut, Loss::CutBeforeTheDeletion);
        let (tsdb, report) = open(dir.path());
        assert_eq!(content(&tsdb, ORG), left, "cut at {cut}");
        assert!(report.read_only.is_some(), "cut at {cut}");
        let places: Vec<_> =
            report.log_damage.iter().map(|place| (place.file.clone(), place.offset)).collect();
        assert_eq!(places, [(name.clone(), Some(cut as u64))]);
        drop(tsdb);
        assert!(!accept(dir.path()).is_empty(), "cut at {cut}");
        let (tsdb, report) = open(dir.path());
        assert_eq!((report.read_only, content(&tsdb, ORG)), (None, left.clone()), "cut at {cut}");
        // The next one is new again.
        write(&tsdb, ORG, &up("a"), &[ago(9_000_000, 1.0)]);
        assert_eq!(content(&tsdb, ORG), written, "cut at {cut}");
        tsdb.seal_and_merge(NOW).expect("sealed");
        assert_eq!(content(&tsdb, ORG), written, "cut at {cut}");
    }
}

#[test]
fn a_log_file_replaced_by_an_older_copy_or_by_zeros_is_damage_after_a_clean_stop() {
    for zeros in [false, true] {
        let dir = crate::kv::scratch::temporary_folder().expect("made");
        let (tsdb, _) = open(dir.path());
        write(&tsdb, ORG, &up("a"), &[ago(9_000_000, 1.0)]);
        tsdb.close();
        drop(tsdb);
        let (path, end) = end_of_log(dir.path());
        let older = std::fs::read(&path).expect("read");
        let (tsdb, _) = open(dir.path());
        write(&tsdb, ORG, &up("a"), &[ago(8_000_000, 2.0)]);
        tsdb.close();
        drop(tsdb);
        let (tsdb, report) = open(dir.path());
        assert_eq!((report.read_only, content(&tsdb, ORG)[&up("a").to_string()].len()), (None, 2));
        drop(tsdb);
        assert_eq!(end_of_log(dir.path()).0, path, "the same file");
        if zeros {
            lose(&path, end, Loss::ZerosFromTheDeletion);
        } else {
            std::fs::write(&path, older).expect("written");
        }
        let (tsdb, report) = open(dir.path());
        let why = report.read_only.expect("damage");
        assert!(why.contains("was durable") && why.contains(&path.display().to_string()), "{why}");
        assert!(why.contains(&format!("byte {end} of")), "{why}, not {end}");
        drop(tsdb);
        accept(dir.path());
        let (tsdb, report) = open(dir.path());
        assert_eq!((report.read_only, content(&tsdb, ORG)[&up("a").to_string()].len()), (None, 1));
    }
}
