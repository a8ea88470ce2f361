//! Tests of the state on disk when the process or the machine stops, and of damaged files.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use super::*;
use crate::model::effort::rounds;
use crate::tsdb::wal::replay::{self, LogOrigin};

/// A kind of damage: its description, and the function that does it.
type DamageCase = (&'static str, fn(&Path));

/// Returns a folder with a closed log of some records, and the path of the log file.
fn small_log() -> (tempfile::TempDir, PathBuf) {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let (tsdb, _) = open(dir.path());
    for n in 0..6u32 {
        write(&tsdb, ORG, &up(&format!("job-{}", n % 3)), &[ago(100 - i64::from(n), f64::from(n) + 0.5)]);
    }
    tsdb.close();
    let path = dir.path().join("wal/0000000001.wal");
    (dir, path)
}

/// The offset of the first record.
const FIRST: usize = 4_128;

/// Returns the offset of the end of the last record.
fn log_bytes(path: &Path) -> usize {
    let end = replay::replay(
        path.parent().expect("in a folder"),
        STORE,
        LogOrigin::default(),
        0,
        &mut |_, _, _| Ok(()),
    )
    .expect("read");
    usize::try_from(end.tail.expect("a file").offset).expect("small")
}

/// Returns the records of a log, and whether it is damaged.
fn replayed(dir: &Path) -> (Vec<(u64, Vec<u8>)>, bool) {
    let mut records = Vec::new();
    let end = replay::replay(dir, STORE, LogOrigin::default(), 0, &mut |header, body, _| {
        records.push((header.seq, body.to_vec()));
        Ok(())
    })
    .expect("read");
    (records, end.damage.is_some())
}

#[test]
fn a_log_cut_anywhere_holds_a_prefix_of_its_records() {
    let (_dir, path) = small_log();
    let whole = std::fs::read(&path).expect("read");
    let content = &whole[..log_bytes(&path)];
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let file = dir.path().join("0000000001.wal");
    std::fs::write(&file, content).expect("written");
    let (all, damaged) = replayed(dir.path());
    assert!(!damaged && all.len() >= 10, "{} records", all.len());
    for zeros in [0, 64] {
        let mut longest = 0;
        for cut in FIRST..=content.len() {
            let mut bytes = content[..cut].to_vec();
            bytes.resize(cut + zeros, 0);
            std::fs::write(&file, &bytes).expect("written");
            let (records, damaged) = replayed(dir.path());
            assert!(!damaged, "cut at {cut}");
            assert!(
                all.starts_with(&records) && records.len() >= longest,
                "cut at {cut}: {} records",
                records.len()
            );
            longest = records.len();
        }
        assert_eq!(longest, all.len());
    }
}

#[test]
fn every_flipped_bit_of_a_log_is_detected_or_harmless() {
    let (_dir, path) = small_log();
    let whole = std::fs::read(&path).expect("read");
    let content = &whole[..log_bytes(&path) + 24];
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let file = dir.path().join("0000000001.wal");
    std::fs::write(&file, content).expect("written");
    let (all, _) = replayed(dir.path());
    let last_mark = all.last().expect("records").0;
    // The bytes between the copies of the secret are unused.
    for bit in (0..content.len() * 8).filter(|bit| !(100..4_090).contains(&(bit / 8))) {
        let mut bytes = content.to_vec();
        bytes[bit / 8] ^= 1 << (bit % 8);
        std::fs::write(&file, &bytes).expect("written");
        let (records, damaged) = replayed(dir.path());
        assert!(
            records.iter().all(|record| all.contains(record)),
            "bit {bit}: a record that was never written"
        );
        let missing: Vec<u64> = all.iter().filter(|r| !records.contains(r)).map(|r| r.0).collect();
        // The last mark vouches for all records before it, and no record vouches for the mark,
        // which holds no data.
        assert!(
            damaged || missing.is_empty() || missing == [last_mark],
            "bit {bit}: {missing:?} lost without a report"
        );
        assert!(missing.len() <= 1, "bit {bit}: {missing:?}");
    }
}

#[test]
fn a_log_damaged_in_the_middle_is_opened_read_only_and_not_changed() {
    let (dir, path) = small_log();
    let before = content(&open(dir.path()).0, ORG);
    let mut bytes = std::fs::read(&path).expect("read");
    // The last samples record but one: search its value's bytes (4.5: its code, two bytes of its
    // pattern) from the end.
    let at = bytes.windows(3).rposition(|three| three == [0x02, 0x40, 0x12]).expect("there");
    bytes[at + 2] ^= 1;
    std::fs::write(&path, &bytes).expect("written");
    for start in 0..2 {
        let (tsdb, report) = open(dir.path());
        let why = report.read_only.clone().expect("read-only");
        assert!(why.starts_with("log damaged at byte") && why.contains("unreadable"), "{why}");
        assert_eq!(report.quarantined, u64::from(start == 0), "kept once");
        assert_eq!(tsdb.health().writes, Writes::ReadOnly(why.clone()));
        assert_eq!(try_write(&tsdb, ORG, &up("x"), &[ago(0, 1.0)]), Err(AppendError::ReadOnly(why)));
        assert!(matches!(tsdb.checkpoint(), Err(CheckpointError::Closed(_))));
        let after = content(&tsdb, ORG);
        let samples = |content: &StoreContent| content.values().map(Vec::len).sum::<usize>();
        assert_eq!(samples(&after), samples(&before) - 1, "only the damaged record is lost");
        assert_eq!(std::fs::read(&path).expect("read"), bytes, "not a byte is changed");
    }
    let kept: Vec<_> = std::fs::read_dir(dir.path().join("quarantine")).expect("listed").collect();
    assert_eq!(kept.len(), 1);
}

#[test]
fn a_torn_tail_is_cleared_and_the_log_continues() {
    let (dir, path) = small_log();
    let mut bytes = std::fs::read(&path).expect("read");
    let end = log_bytes(&path);
    bytes[end..end + 100].fill(0xee);
    std::fs::write(&path, &bytes).expect("written");
    let (tsdb, report) = open(dir.path());
    assert_eq!((report.read_only, report.trimmed_bytes), (None, 100));
    write(&tsdb, ORG, &up("job-0"), &[ago(0, 9.0)]);
    let before = content(&tsdb, ORG);
    drop(tsdb);
    let (tsdb, report) = open(dir.path());
    assert_eq!((report.read_only, report.trimmed_bytes), (None, 0));
    assert_eq!(content(&tsdb, ORG), before);
}

#[test]
fn a_copy_taken_during_writes_holds_every_acknowledged_sample() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let (tsdb, _) = open(dir.path());
    let over = AtomicBool::new(false);
    let acknowledged = AtomicBool::new(false);
    let counts: Vec<_> = (0..3).map(|_| std::sync::atomic::AtomicI64::new(0)).collect();
    std::thread::scope(|scope| {
        for (number, count) in counts.iter().enumerate() {
            let (tsdb, over, acknowledged) = (&tsdb, &over, &acknowledged);
            scope.spawn(move || {
                for n in 0..20_000 {
                    if over.load(Ordering::SeqCst) {
                        break;
                    }
                    write(tsdb, ORG, &up(&format!("job-{number}-{}", n % 50)), &[ago(100_000 - n, n as f64)]);
                    count.store(n + 1, Ordering::SeqCst);
                    acknowledged.store(true, Ordering::SeqCst);
                }
            });
        }
        for _ in 0..rounds(4, 10) {
            let before: Vec<i64> = counts.iter().map(|c| c.load(Ordering::SeqCst)).collect();
            let image = crate::kv::scratch::temporary_folder().expect("made");
            copy_tree(dir.path(), image.path());
            let (copy, report) = open(image.path());
            assert_eq!(report.read_only, None);
            let found = content(&copy, ORG);
            for (number, count) in before.iter().enumerate() {
                for n in 0..*count {
                    let series = &found[&up(&format!("job-{number}-{}", n % 50)).to_string()];
                    let sample = (NOW.as_ms() - 100_000 + n, (n as f64).to_bits());
                    assert!(series.contains(&sample), "sample {n} of writer {number} is lost");
                }
            }
            drop(copy);
            assert_eq!(content(&open(image.path()).0, ORG), found, "a second start differs");
        }
        over.store(true, Ordering::SeqCst);
    });
    assert!(acknowledged.load(Ordering::SeqCst));
}

fn flip(path: &Path, at: usize) {
    let mut bytes = std::fs::read(path).expect("read");
    bytes[at] ^= 1;
    std::fs::write(path, bytes).expect("written");
}

#[test]
fn damage_outside_the_log_costs_time_only() {
    let damages: [DamageCase; 9] = [
        ("DONE of a newer version", |dir| {
            let path = dir.join("head/1/DONE");
            let text = std::fs::read_to_string(&path).expect("read").replace("head 2\n", "head 3\n");
            let (covered, _) = text.split_at(text.len() - "crc 00000000\n".len());
            let crc = crc32c::crc32c(covered.as_bytes());
            std::fs::write(path, format!("{covered}crc {crc:08x}\n")).expect("written");
        }),
        ("DONE flipped", |dir| flip(&dir.join("head/1/DONE"), 40)),
        ("DONE gone", |dir| std::fs::remove_file(dir.join("head/1/DONE")).expect("removed")),
        ("part gone", |dir| std::fs::remove_dir_all(dir.join("head/1/00")).expect("removed")),
        ("generations gone", |dir| std::fs::remove_dir_all(dir.join("head")).expect("removed")),
        ("registry header flipped", |dir| flip(&dir.join("series/3.reg"), 20)),
        ("registry record flipped", |dir| flip(&dir.join("series/3.reg"), 100)),
        ("registry cut", |dir| {
            let file =
                std::fs::OpenOptions::new().write(true).open(dir.join("series/3.reg")).expect("opened");
            file.set_len(90).expect("cut");
        }),
        ("registry gone", |dir| std::fs::remove_file(dir.join("series/3.reg")).expect("removed")),
    ];
    for (what, damage) in damages {
        let dir = crate::kv::scratch::temporary_folder().expect("made");
        let (tsdb, _) = open(dir.path());
        for n in 0..100u32 {
            write(&tsdb, ORG, &up(&format!("job-{}", n % 7)), &[ago(100 - i64::from(n), f64::from(n))]);
        }
        tsdb.checkpoint().expect("made");
        write(&tsdb, ORG, &up("after"), &[ago(0, 1.0)]);
        let before = content(&tsdb, ORG);
        tsdb.close();
        drop(tsdb);
        damage(dir.path());
        for start in 0..2 {
            let (tsdb, report) = open(dir.path());
            // A damaged registry is replaced by its copy, so the checkpoint can be used.
            let mode = if what.contains("registry") { RecoveryMode::Checkpoint } else { RecoveryMode::Log };
            assert_eq!((&report.read_only, report.mode), (&None, mode), "{what}: {report:?}");
            assert_eq!(
                start == 0 && what.contains("registry"),
                report.notes.iter().any(|n| n.contains("copy"))
            );
            assert_eq!(content(&tsdb, ORG), before, "{what}");
        }
        // The next checkpoint repairs the state.
        let (tsdb, _) = open(dir.path());
        tsdb.checkpoint().expect("made");
        drop(tsdb);
        let (tsdb, report) = open(dir.path());
        assert_eq!((report.mode, report.notes), (RecoveryMode::Checkpoint, Vec::new()), "{what}");
        assert_eq!(content(&tsdb, ORG), before, "{what}");
    }
}

#[test]
fn files_of_another_store_or_a_newer_version_are_not_changed() {
    let (dir, path) = small_log();
    let other = StoreId([8; 16]);
    let opened = try_open(dir.path(), other, options(&faults()));
    assert!(matches!(opened, Err(OpenError::Foreign { .. })));
    let mut bytes = std::fs::read(&path).expect("read");
    bytes[8] = 3;
    let crc = crc32c::crc32c(&bytes[..60]).to_le_bytes();
    bytes[60..64].copy_from_slice(&crc);
    std::fs::write(&path, &bytes).expect("written");
    let opened = try_open(dir.path(), STORE, options(&faults()));
    assert!(matches!(opened, Err(OpenError::Foreign { .. })));
    assert_eq!(std::fs::read(&path).expect("read"), bytes);
}

/// Writes batches that fill files: values without a pattern, 9 bytes each.
fn fill(tsdb: &Tsdb, from: u64, batches: u64) -> Result<(), AppendError> {
    for batch in from..from + batches {
        let value =
            |n: u64| f64::from_bits(0x3ff0_0000_0000_0000 | n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 12);
        let samples: Vec<Sample> =
            (0..10_000).map(|n| ago(100_000_000 - (batch * 10_000 + n) as i64, value(n))).collect();
        try_write(tsdb, ORG, &up("full"), &samples)?;
    }
    Ok(())
}

#[test]
fn a_full_log_file_is_followed_by_the_next_and_a_missing_one_is_damage() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let (tsdb, _) = open(dir.path());
    fill(&tsdb, 0, 220).expect("stored");
    let before = content(&tsdb, ORG);
    assert!(tsdb.stats().wal_files >= 3, "{:?}", tsdb.stats());
    drop(tsdb);
    let (tsdb, report) = open(dir.path());
    assert_eq!((report.read_only, report.samples), (None, 2_200_000));
    assert!(content(&tsdb, ORG) == before);
    drop(tsdb);
    std::fs::remove_file(dir.path().join("wal/0000000002.wal")).expect("removed");
    let (tsdb, report) = open(dir.path());
    assert!(report.read_only.is_some_and(|why| why.contains("wal/0000000002.wal is missing")));
    assert!(tsdb.stats().samples < 2_200_000);
}

fn wal(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("wal/{number:010}.wal"))
}

/// Creates a folder whose log continues in a second file, and closes it.
fn two_files(checkpoint: bool) -> tempfile::TempDir {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let (tsdb, _) = open(dir.path());
    fill(&tsdb, 0, 13).expect("stored");
    if checkpoint {
        tsdb.checkpoint().expect("made");
    }
    write(&tsdb, ORG, &up("after"), &[ago(0, 1.0)]);
    assert_eq!(tsdb.stats().wal_files, 2);
    tsdb.close();
    dir
}

/// Checks that two starts are read-only for this reason and change no byte of the log.
fn stays_read_only(dir: &Path, says: &str) {
    let names = || crate::tsdb::disk::names(&dir.join("wal")).expect("listed");
    let before = names();
    for _ in 0..2 {
        let (tsdb, report) = open(dir);
        let why = report.read_only.expect("read-only");
        assert!(why.contains(says), "{why}");
        assert!(matches!(try_write(&tsdb, ORG, &up("x"), &[ago(0, 1.0)]), Err(AppendError::ReadOnly(_))));
    }
    assert_eq!(names(), before);
}

#[test]
fn the_deleted_newest_log_file_is_damage_with_the_range_of_records() {
    for checkpoint in [false, true] {
        let dir = two_files(checkpoint);
        std::fs::remove_file(wal(dir.path(), 2)).expect("removed");
        stays_read_only(dir.path(), "log file 2 is missing, as the end of log file 1 states: records from 1");
    }
}

#[test]
fn a_missing_or_damaged_log_file_is_detected_even_if_a_checkpoint_covers_it() {
    let damages: [DamageCase; 7] = [
        ("wal/0000000001.wal is missing", |file| std::fs::remove_file(file).expect("removed")),
        ("bytes of 1048576: records behind", |file| cut(file, 1_000_000)),
        ("file header checksum differs", |file| flip(file, 20)),
        ("record header does not verify", |file| flip(file, FIRST + 10)),
        ("record body differs from its checksum", |file| flip(file, FIRST + 33)),
        ("the secret of its records is damaged", |file| {
            flip(file, 70);
            flip(file, 4_100);
        }),
        ("there is no record, though later files have some", |file| {
            let opened = std::fs::OpenOptions::new().write(true).open(file).expect("opened");
            crate::tsdb::disk::write_zeros(&opened, file, FIRST as u64, 1 << 19).expect("written");
        }),
    ];
    for (says, damage) in damages {
        let dir = two_files(true);
        damage(&wal(dir.path(), 1));
        stays_read_only(dir.path(), says);
    }
}

/// The machine stopped between the switch and the first record of the next file, or within that
/// record.
#[test]
fn the_log_continues_in_the_file_that_a_switch_names() {
    for torn in [0, 300] {
        // The store is killed, because after a clean stop control knows of the records of the
        // second file.
        let dir = crate::kv::scratch::temporary_folder().expect("made");
        let (tsdb, _) = open(dir.path());
        fill(&tsdb, 0, 13).expect("stored");
        write(&tsdb, ORG, &up("after"), &[ago(0, 1.0)]);
        assert_eq!(tsdb.stats().wal_files, 2);
        drop(tsdb);
        let second = wal(dir.path(), 2);
        let header = std::fs::read(&second).expect("read")[..FIRST].to_vec();
        let mut bytes = header;
        bytes.resize(FIRST + torn, 0xee);
        bytes.resize(16 << 20, 0);
        std::fs::write(&second, &bytes).expect("written");
        let (tsdb, report) = open(dir.path());
        assert_eq!((report.read_only, report.trimmed_bytes), (None, torn as u64));
        assert!(report.samples > 100_000, "all of the first file");
        write(&tsdb, ORG, &up("next"), &[ago(0, 2.0)]);
        let before = content(&tsdb, ORG);
        drop(tsdb);
        let (tsdb, report) = open(dir.path());
        assert_eq!((report.read_only, tsdb.stats().wal_files), (None, 2));
        assert!(content(&tsdb, ORG) == before);
        drop(tsdb);
        // The first mark describes the file before, as if nothing had stopped.
        let wal = dir.path().join("wal");
        let end = replay::replay(&wal, STORE, LogOrigin::default(), 0, &mut |_, _, _| Ok(())).expect("read");
        let held = end.full[0].spans.as_ref().expect("known");
        assert_eq!((end.full.len(), held.len(), held[0].org), (1, 1, ORG));
        assert!(held[0].last_seq > 10 && held[0].greatest_ms < NOW.as_ms());
    }
}

fn cut(path: &Path, bytes: u64) {
    std::fs::OpenOptions::new().write(true).open(path).and_then(|file| file.set_len(bytes)).expect("cut");
}

#[test]
fn a_shortened_or_missing_log_is_never_taken_for_an_empty_one() {
    let damages: [DamageCase; 5] = [
        ("wal/0000000001.wal has 300 bytes of 1048576", |dir| cut(&dir.join("wal/0000000001.wal"), 300)),
        ("wal/0000000001.wal has 64 bytes of 1048576", |dir| cut(&dir.join("wal/0000000001.wal"), 64)),
        ("wal holds no log file", |dir| {
            std::fs::remove_file(dir.join("wal/0000000001.wal")).expect("removed");
        }),
        ("wal holds no log file", |dir| std::fs::remove_dir_all(dir.join("wal")).expect("removed")),
        ("wal holds no log file", |dir| {
            std::fs::remove_dir_all(dir.join("wal")).expect("removed");
            std::fs::remove_dir_all(dir.join("head")).expect("removed");
        }),
    ];
    for (says, damage) in damages {
        let (dir, _) = small_log();
        damage(dir.path());
        for _ in 0..2 {
            let (tsdb, report) = open(dir.path());
            let why = report.read_only.expect("read-only");
            assert!(why.contains(says), "{why}");
            assert!(matches!(try_write(&tsdb, ORG, &up("x"), &[ago(0, 1.0)]), Err(AppendError::ReadOnly(_))));
        }
    }
}

#[test]
fn a_crash_before_the_first_log_file_leaves_a_new_store() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    std::fs::create_dir(dir.path().join("wal")).expect("made");
    std::fs::write(dir.path().join("wal/0000000001.wal.new"), [0; 100]).expect("written");
    let (tsdb, report) = open(dir.path());
    assert_eq!((report.read_only, report.mode), (None, RecoveryMode::Fresh));
    write(&tsdb, ORG, &up("a"), &[ago(0, 1.0)]);
}

#[test]
fn a_damaged_registry_that_a_checkpoint_relies_on_is_copied_before_it_is_cut() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let (tsdb, _) = open(dir.path());
    write(&tsdb, ORG, &up("a"), &[ago(0, 1.0)]);
    tsdb.checkpoint().expect("made");
    drop(tsdb);
    let path = dir.path().join("series/3.reg");
    flip(&path, 100);
    let damaged = std::fs::read(&path).expect("read");
    let (_, report) = open(dir.path());
    assert_eq!(report.quarantined, 1);
    let kept = std::fs::read_dir(dir.path().join("quarantine")).expect("listed").next().expect("one");
    assert_eq!(std::fs::read(kept.expect("entry").path()).expect("read"), damaged);
}

#[test]
fn a_full_disk_refuses_and_resumes_without_a_restart() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let faults = faults();
    let (tsdb, _) = open_with(dir.path(), options(&faults));
    faults.free_bytes.store(1_000, Ordering::SeqCst);
    let mut stored = 0;
    let refused = loop {
        match fill(&tsdb, stored, 1) {
            Ok(()) => stored += 1,
            Err(e) => break e,
        }
    };
    assert!(matches!(refused, AppendError::DiskFull { free: 1_000, .. }), "{refused:?}");
    assert!(stored > 3, "the file at hand is filled");
    assert!(matches!(tsdb.health().writes, Writes::DiskFull { .. }));
    assert!(matches!(fill(&tsdb, stored, 1), Err(AppendError::DiskFull { .. })));
    assert!(matches!(tsdb.checkpoint(), Err(CheckpointError::DiskFull { .. })));
    faults.free_bytes.store(1 << 40, Ordering::SeqCst);
    // The state changes before a write is tried, since a load balancer that reads it sends no write
    // until then.
    assert_eq!(tsdb.health().writes, Writes::Open);
    fill(&tsdb, stored, 1).expect("stored");
    drop(tsdb);
    assert!(open(dir.path()).0.stats().samples >= (stored + 1) * 10_000);
}
