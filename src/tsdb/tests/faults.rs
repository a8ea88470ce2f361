//! Tests of injected faults: a log that cannot be written or synced, a full disk, and missing
//! resources.

use std::time::Duration;

use super::*;
use crate::kv::ops::recording::Failing;
use crate::model::effort::rounds;

fn check(fail: impl Fn(&Faults)) {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let faults = faults();
    let (tsdb, _) = open_with(dir.path(), options(&faults));
    write(&tsdb, ORG, &up("a"), &[ago(10, 1.0)]);
    let acknowledged = content(&tsdb, ORG);
    fail(&faults);
    let refused = try_write(&tsdb, ORG, &up("a"), &[ago(9, 2.0)]).expect_err("refused");
    assert!(matches!(&refused, AppendError::Fenced(why) if why.contains("injected fault")), "{refused:?}");
    // The fault has ended, but the log stays fenced, because the state after the failed call is
    // unknown.
    faults.log_syncs_left.store(-1, Ordering::SeqCst);
    faults.log_writes_left.store(-1, Ordering::SeqCst);
    assert!(matches!(try_write(&tsdb, ORG, &up("b"), &[ago(8, 2.0)]), Err(AppendError::Fenced(_))));
    assert!(matches!(tsdb.health().writes, Writes::Fenced(_)));
    assert_eq!(content(&tsdb, ORG), acknowledged, "reads continue and show nothing unacknowledged");
    tsdb.close();
    drop(tsdb);
    let (tsdb, report) = open(dir.path());
    assert_eq!(report.read_only, None);
    let found = content(&tsdb, ORG);
    for (series, samples) in &acknowledged {
        assert!(found[series].starts_with(samples), "{series}");
    }
    write(&tsdb, ORG, &up("b"), &[ago(0, 3.0)]);
}

#[test]
fn a_failed_sync_closes_the_log_until_a_restart() {
    check(|faults| faults.log_syncs_left.store(0, Ordering::SeqCst));
}

#[test]
fn a_failed_write_closes_the_log_until_a_restart() {
    check(|faults| faults.log_writes_left.store(0, Ordering::SeqCst));
}

fn by_interval(faults: &Arc<Faults>, interval: Duration) -> Options {
    Options { durability: Durability::Interval(interval), ..options(faults) }
}

#[test]
fn with_an_interval_a_killed_process_loses_nothing() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let (tsdb, _) = open_with(dir.path(), by_interval(&faults(), Duration::from_secs(3_600)));
    let syncs = tsdb.stats().wal_syncs;
    for n in 0..50 {
        write(&tsdb, ORG, &up(&format!("job-{}", n % 3)), &[ago(100 - n, n as f64)]);
    }
    // A killed process leaves the content of the page cache.
    let image = crate::kv::scratch::temporary_folder().expect("made");
    copy_tree(dir.path(), image.path());
    assert!(tsdb.stats().wal_syncs < syncs + 50, "not each write is synced");
    let (copy, report) = open(image.path());
    assert_eq!((report.read_only, report.samples), (None, 50));
    assert_eq!(content(&copy, ORG), content(&tsdb, ORG));
}

#[test]
fn with_an_interval_the_log_is_synced_without_further_writes() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let (tsdb, _) = open_with(dir.path(), by_interval(&faults(), Duration::from_millis(100)));
    let syncs = tsdb.stats().wal_syncs;
    write(&tsdb, ORG, &up("a"), &[ago(0, 1.0)]);
    while tsdb.stats().wal_syncs == syncs {
        std::thread::yield_now();
    }
}

#[test]
fn with_an_interval_a_failed_sync_closes_the_log_as_well() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let faults = faults();
    let (tsdb, _) = open_with(dir.path(), by_interval(&faults, Duration::from_secs(3_600)));
    faults.log_syncs_left.store(0, Ordering::SeqCst);
    write(&tsdb, ORG, &up("a"), &[ago(10, 1.0)]);
    assert!(matches!(tsdb.checkpoint(), Err(CheckpointError::Closed(why)) if why.contains("injected fault")));
    assert!(matches!(try_write(&tsdb, ORG, &up("a"), &[ago(9, 2.0)]), Err(AppendError::Fenced(_))));
    assert!(matches!(tsdb.health().writes, Writes::Fenced(_)));
}

#[test]
fn a_closed_store_serves_reads_and_refuses_writes() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let (tsdb, _) = open(dir.path());
    write(&tsdb, ORG, &up("a"), &[ago(10, 1.0)]);
    tsdb.close();
    tsdb.close();
    assert_eq!(try_write(&tsdb, ORG, &up("a"), &[ago(9, 2.0)]), Err(AppendError::Closed));
    assert_eq!(tsdb.health().writes, Writes::Closed);
    assert_eq!(content(&tsdb, ORG).len(), 1);
}

#[test]
fn a_full_head_refuses_new_series() {
    let options = Options { head_bytes_max: 1_000, ..Options::default() };
    let tsdb = Tsdb::in_memory(options, [0; 32]);
    for n in 0..10 {
        match try_write(&tsdb, ORG, &up(&n.to_string()), &[ago(0, 1.0)]) {
            Ok(_) => assert!(n < 9),
            Err(e) => return assert!(matches!(e, AppendError::AtCapacity { .. }), "{e:?}"),
        }
    }
    panic!("never full");
}

#[test]
fn once_the_disk_has_space_again_no_write_is_refused_for_an_earlier_failure_to_create_a_file() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let faults = faults();
    faults.log_file_bytes.store(8_160, Ordering::SeqCst);
    let (tsdb, _) = open_with(dir.path(), options(&faults));
    let mut now_ms = 0;
    for round in 0..12 {
        faults.free_bytes.store(200 << 20, Ordering::SeqCst);
        let full = (0..1_000).find_map(|n| try_write(&tsdb, ORG, &up(&n.to_string()), &[ago(0, 1.0)]).err());
        assert!(matches!(full, Some(AppendError::DiskFull { .. })), "{full:?}");
        // Deletions still create log files of their own. During some of them the spare file cannot
        // be created.
        for n in 0..10 + 10 * round {
            let one = [vec![crate::model::Matcher::equal("job", &n.to_string())]];
            tsdb.delete(ORG, &one, TimeRange::ALL, NOW).expect("deleted");
        }
        faults.free_bytes.store(1 << 40, Ordering::SeqCst);
        for _ in 0..100 {
            now_ms += 1;
            write(&tsdb, ORG, &up("a"), &[Sample { at: NOW.plus_ms(now_ms - 10_000), value: 1.0 }]);
        }
    }
}

/// The shortage of descriptors or memory may end. Afterwards nothing of the refused requests may be
/// stored.
#[test]
fn without_descriptors_or_memory_for_a_new_file_the_log_refuses_and_continues_afterwards() {
    for errno in [rustix::io::Errno::MFILE, rustix::io::Errno::NFILE, rustix::io::Errno::NOMEM] {
        let dir = crate::kv::scratch::temporary_folder().expect("made");
        let faults = faults();
        faults.log_file_bytes.store(8_160, Ordering::SeqCst);
        let (tsdb, _) = open_with(dir.path(), options(&faults));
        let mut stored = Vec::new();
        let mut try_next = |n: usize| {
            let name = format!("{}-{n}", errno.raw_os_error());
            let tried = try_write(&tsdb, ORG, &up(&name), &[ago(0, 1.0)]);
            if tried.is_ok() {
                stored.push(name);
            }
            tried.map(drop)
        };
        let next = dir.path().join("wal/0000000002.wal.new");
        let failing = Failing::after(&next, 0, errno.raw_os_error(), true);
        let refused = (0..1_000).find_map(|n| try_next(n).err());
        assert!(matches!(refused, Some(AppendError::OutOfResources(_))), "{refused:?}");
        assert!(failing.was_met());
        assert!(matches!(try_next(2_000), Err(AppendError::OutOfResources(_))));
        assert_eq!(tsdb.health().writes, Writes::Open);
        drop(failing);
        // Attempts that fail a few times in a row cause no error.
        let once = Failing::after(&next, 0, errno.raw_os_error(), false);
        for n in 3_000..3_100 {
            try_next(n).expect("there are descriptors again");
        }
        assert!(once.was_met());
        tsdb.seal(NOW).expect("sealed");
        drop(tsdb);
        let (tsdb, _) = open_with(dir.path(), options(&faults));
        let content = content(&tsdb, ORG);
        for name in &stored {
            assert!(
                content.keys().any(|key| key.contains(&format!("\"{name}\""))),
                "{name} was acknowledged"
            );
        }
    }
}

/// The number of attempts of an operation that lacks resources.
const ATTEMPTS: usize = 8;

/// Waits until the log's own thread has written its mark, so that only requests write the log.
fn wait_for_mark(tsdb: &Tsdb) {
    let Sink::Log(log) = &tsdb.log else { panic!("a log on disk") };
    while !log.is_marked() {
        std::thread::yield_now();
    }
}

/// A flush holds the lock of an idle log, which waits without a timeout.
#[test]
fn records_that_arrive_while_a_flush_holds_the_log_are_written() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let (tsdb, _) = open(dir.path());
    let Sink::Log(log) = &tsdb.log else { panic!("a log on disk") };
    for n in 0..rounds(5, 20) {
        write(&tsdb, ORG, &up("a"), &[ago(1_000 - 2 * n, 1.0)]);
        wait_for_mark(&tsdb);
        std::thread::scope(|threads| {
            let (done, written) = std::sync::mpsc::channel();
            log.hold(|| {
                let tsdb = &tsdb;
                threads.spawn(move || {
                    let report = write(tsdb, ORG, &up("a"), &[ago(999 - 2 * n, 1.0)]);
                    done.send(report.stored).expect("the test waits");
                });
                while log.waiting_records() == 0 {
                    std::thread::yield_now();
                }
                // The caller of the write finds the lock taken, if it is not very late.
                (0..1_000).for_each(|_| std::thread::yield_now());
            });
            let stored = written.recv_timeout(Duration::from_secs(60));
            // Another write would end the wait, so that a failure does not hang.
            write(&tsdb, ORG, &up("b"), &[ago(1_000 - n, 1.0)]);
            assert_eq!(stored, Ok(1), "round {n}");
        });
    }
}

#[test]
fn a_write_that_lacks_resources_is_refused_and_nothing_of_it_reappears() {
    for errno in [rustix::io::Errno::NOMEM, rustix::io::Errno::INTR] {
        let dir = crate::kv::scratch::temporary_folder().expect("made");
        let (tsdb, _) = open(dir.path());
        write(&tsdb, ORG, &up("a"), &[ago(100_000, 0.5)]);
        let log = dir.path().join("wal/0000000001.wal");
        // Two records. The second one begins at the offset at which the next group, the first
        // record alone, will end.
        let first: Vec<Sample> = (1..=16_384).map(|n| ago(50_000 - n, n as f64)).collect();
        let both: Vec<Sample> = first.iter().copied().chain((1..100).map(|n| ago(20_000 - n, 1.0))).collect();
        wait_for_mark(&tsdb);
        // The attempts to write, and one to clear the bytes that they left. The next request starts
        // by clearing them.
        let failing = Failing::leaving_bytes(&log, ATTEMPTS + 1, errno.raw_os_error());
        let refused = try_write(&tsdb, ORG, &up("a"), &both);
        assert!(matches!(refused, Err(AppendError::OutOfResources(_))), "{refused:?}");
        assert_eq!(tsdb.health().writes, Writes::Open);
        assert_eq!(content(&tsdb, ORG).values().map(Vec::len).sum::<usize>(), 1);
        assert_eq!(write(&tsdb, ORG, &up("a"), &first).stored, 16_384);
        drop(failing);
        wait_for_mark(&tsdb);
        // Like before, but the bytes that the attempts left are cleared at once.
        let failing = Failing::leaving_bytes(&log, ATTEMPTS, errno.raw_os_error());
        let refused = try_write(&tsdb, ORG, &up("b"), &[ago(9, 1.0)]);
        assert!(matches!(refused, Err(AppendError::OutOfResources(_))), "{refused:?}");
        drop(failing);
        let expected = content(&tsdb, ORG);
        assert_eq!(expected.values().map(Vec::len).sum::<usize>(), 16_385);
        // The state that a killed process leaves.
        let image = crate::kv::scratch::temporary_folder().expect("made");
        copy_tree(dir.path(), image.path());
        let (killed, report) = open(image.path());
        assert_eq!((report.read_only, content(&killed, ORG)), (None, expected));
        write(&tsdb, ORG, &up("b"), &[ago(8, 2.0)]);
    }
}

#[test]
fn marks_and_switches_that_lack_resources_are_written_later() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let faults = faults();
    faults.log_file_bytes.store(8_160, Ordering::SeqCst);
    let (tsdb, _) = open_with(dir.path(), options(&faults));
    let mut stored = 0;
    for n in 0..600 {
        let failing = (n % 3 == 0).then(|| {
            let code = rustix::io::Errno::NOMEM.raw_os_error();
            // Sometimes as many failures as a group takes, sometimes a few that are retried at
            // once.
            Failing::leaving_bytes(&dir.path().join("wal"), if n % 60 == 0 { ATTEMPTS + 1 } else { 2 }, code)
        });
        match try_write(&tsdb, ORG, &up(&n.to_string()), &[ago(0, 1.0)]) {
            Ok(_) => stored += 1,
            Err(refused) => assert!(matches!(refused, AppendError::OutOfResources(_)), "{refused:?}"),
        }
        drop(failing);
        if n % 50 == 7 {
            tsdb.seal(NOW).expect("sealed");
        }
    }
    assert_eq!(tsdb.health().writes, Writes::Open);
    assert!((400..600).contains(&stored), "{stored} stored");
    let expected = content(&tsdb, ORG);
    assert_eq!(expected.len(), stored);
    let image = crate::kv::scratch::temporary_folder().expect("made");
    copy_tree(dir.path(), image.path());
    let (killed, report) = open(image.path());
    assert_eq!((report.read_only, content(&killed, ORG)), (None, expected));
}

#[test]
fn a_sync_of_the_log_that_a_signal_interrupts_is_retried() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let (tsdb, _) = open(dir.path());
    let log = dir.path().join("wal/0000000001.wal");
    let code = rustix::io::Errno::INTR.raw_os_error();
    let interrupted = Failing::after(&log, 1, code, false);
    write(&tsdb, ORG, &up("a"), &[ago(10, 1.0)]);
    assert!(interrupted.was_met());
    assert_eq!(tsdb.health().writes, Writes::Open);
    drop(interrupted);
    // The state after a sync without memory is as unknown as after any other failure.
    let _failing = Failing::after(&log, 1, rustix::io::Errno::NOMEM.raw_os_error(), false);
    let refused = try_write(&tsdb, ORG, &up("a"), &[ago(9, 1.0)]);
    assert!(matches!(refused, Err(AppendError::Fenced(_))), "{refused:?}");
}

/// docs/storage.md section 12, row by row.
#[test]
fn a_disk_that_fills_up_stops_growth_then_samples_and_never_operations_that_free_space() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let faults = faults();
    faults.log_file_bytes.store(8_160, Ordering::SeqCst);
    let (tsdb, _) = open_with(dir.path(), options(&faults));
    let free = |bytes: u64| faults.free_bytes.store(bytes, Ordering::SeqCst);
    let total = tsdb.stats().disk_bytes;
    let (growth, samples) = ((total / 20).clamp(1 << 30, 4 << 30), (total / 50).clamp(256 << 20, 1 << 30));
    write(&tsdb, ORG, &up("a"), &[ago(20, 1.0), ago(10, 2.0)]);
    assert_eq!(tsdb.health(), Health::default());

    free(samples + (64 << 10));
    let refused = tsdb.checkpoint();
    let Err(CheckpointError::DiskFull { needed, .. }) = refused else { panic!("{refused:?}") };
    assert!((samples + (64 << 10)..growth).contains(&needed), "{needed}: the rest is for samples");
    free(growth - 1);
    tsdb.checkpoint().expect("a small one");
    let health = tsdb.health();
    assert_eq!((health.writes, health.notes.len()), (Writes::Open, 1), "it continues with a note");
    assert!(health.notes[0].contains("large checkpoints and compactions wait"), "{:?}", health.notes);
    assert_eq!(tsdb.stats().disk_free_bytes, growth - 1);

    free(samples - 1);
    let full = (0..1_000).find_map(|n| try_write(&tsdb, ORG, &up(&n.to_string()), &[ago(0, 1.0)]).err());
    assert_eq!(full, Some(AppendError::DiskFull { free: samples - 1, needed: samples }), "no new file");
    assert!(matches!(tsdb.health().writes, Writes::DiskFull { .. }));
    assert!(content(&tsdb, ORG).len() > 1, "queries continue");
    for n in 0..100 {
        let one = [vec![crate::model::Matcher::equal("job", &n.to_string())]];
        tsdb.delete(ORG, &one, TimeRange::ALL, NOW).expect("deleted, though it takes more than one file");
    }
    assert!(content(&tsdb, ORG).contains_key(r#"{__name__="up", job="a"}"#));

    free(samples + samples / 10 - 1);
    assert!(try_write(&tsdb, ORG, &up("a"), &[ago(5, 3.0)]).is_err(), "not yet");
    free(samples + samples / 10);
    write(&tsdb, ORG, &up("a"), &[ago(5, 3.0)]);
    free(growth);
    tsdb.checkpoint().expect("made");
    assert_eq!(tsdb.health(), Health::default());
    drop(tsdb);
    let (tsdb, report) = open(dir.path());
    assert_eq!(report.read_only, None);
    let found = content(&tsdb, ORG);
    assert_eq!(found[r#"{__name__="up", job="a"}"#].len(), 3);
    assert!(!found.contains_key(r#"{__name__="up", job="7"}"#), "deleted samples stay deleted");
}

#[test]
fn without_free_inodes_writes_that_need_a_log_file_are_refused_until_there_are_some() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let faults = faults();
    faults.log_file_bytes.store(64 << 10, Ordering::SeqCst);
    let (tsdb, _) = open_with(dir.path(), options(&faults));
    write(&tsdb, ORG, &up("a"), &[ago(20, 1.0)]);
    faults.free_inodes.store(0, Ordering::SeqCst);
    let full =
        (0..10_000).find_map(|n| try_write(&tsdb, ORG, &up(&n.to_string()), &[ago(0, f64::from(n))]).err());
    assert!(matches!(full, Some(AppendError::DiskFull { .. })), "{full:?}");
    for _ in 0..3 {
        let writes = tsdb.health().writes;
        assert!(
            matches!(writes, Writes::DiskFull { .. }),
            "there is room in bytes, and no inode: {writes:?}"
        );
        assert!(try_write(&tsdb, ORG, &up("a"), &[ago(5, 3.0)]).is_err());
    }
    faults.free_inodes.store(100, Ordering::SeqCst);
    assert_eq!(tsdb.health().writes, Writes::Open);
    write(&tsdb, ORG, &up("a"), &[ago(5, 3.0)]);
}

/// Writes several full log files of 64 KiB.
fn fill_files(tsdb: &Tsdb) {
    for step in 0..20_i32 {
        let sample =
            |n: i32| ago(i64::from(30_000 - step * 1_000 - n) * 100, f64::from(step * 1_000 + n).sqrt());
        let samples: Vec<Sample> = (0..1_000).map(sample).collect();
        write(tsdb, ORG, &up("a"), &samples);
    }
    assert!(tsdb.stats().wal_files >= 3, "{:?}", tsdb.stats());
}

#[test]
fn a_log_file_that_cannot_be_unlinked_forces_no_seals_and_is_removed_as_soon_as_possible() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let faults = faults();
    faults.log_file_bytes.store(64 << 10, Ordering::SeqCst);
    // With one file more than the current one, everything would be sealed early, every minute.
    let (tsdb, _) = open_with(dir.path(), Options { seal_log_bytes: 64 << 10, ..options(&faults) });
    fill_files(&tsdb);
    let first = dir.path().join("wal").join("0000000001.wal");
    let stuck = Failing::after(&first, 0, 5, true);
    let sealed = tsdb.seal(NOW).expect("the seal itself is made");
    assert!(sealed.log_files_removed >= 2, "the others are removed: {sealed:?}");
    let stats = tsdb.stats();
    assert_eq!((stats.wal_files, stats.wal_file_bytes), (1, 64 << 10), "it is not part of the log");
    assert_eq!(
        (stats.wal_trimmed_files, stats.wal_trimmed_bytes, stats.wal_unlinks_failed),
        (1, 64 << 10, 1)
    );
    let notes = tsdb.health().notes;
    assert!(notes.iter().any(|note| note.contains("1 unneeded log files")), "{notes:?}");

    write(&tsdb, ORG, &up("a"), &[ago(0, 9.5)]);
    for minute in 1..4 {
        let due = tsdb.seal_if_due(NOW.plus_ms(minute * 60_000)).expect("asked");
        assert_eq!((due.orgs, due.log_files_removed), (0, 0), "minute {minute}");
    }
    assert_eq!(tsdb.stats().wal_unlinks_failed, 4, "each attempt is counted");
    assert!(first.exists());
    drop(stuck);
    assert_eq!(tsdb.seal_if_due(NOW.plus_ms(300_000)).expect("asked").log_files_removed, 1);
    assert!(!first.exists());
    let stats = tsdb.stats();
    assert_eq!((stats.wal_trimmed_files, stats.wal_trimmed_bytes), (0, 0));
    assert_eq!(tsdb.health().notes, Vec::<String>::new());
}

#[test]
fn a_trimmed_log_file_that_cannot_be_unlinked_does_not_prevent_a_start() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let first = dir.path().join("wal").join("0000000001.wal");
    let expected = {
        let faults = faults();
        faults.log_file_bytes.store(64 << 10, Ordering::SeqCst);
        let (tsdb, _) = open_with(dir.path(), options(&faults));
        fill_files(&tsdb);
        let _stuck = Failing::after(&first, 0, 5, true);
        tsdb.seal(NOW).expect("sealed");
        assert!(first.exists());
        content(&tsdb, ORG)
    };
    let stuck = Failing::after(&first, 0, 5, true);
    let (tsdb, report) = open(dir.path());
    assert_eq!(report.read_only, None);
    assert!(report.notes.iter().any(|note| note.contains("no longer needed")), "{:?}", report.notes);
    assert_eq!(content(&tsdb, ORG), expected);
    drop((tsdb, stuck));
    let (tsdb, report) = open(dir.path());
    assert_eq!((report.read_only, report.notes), (None, Vec::new()));
    assert_eq!(content(&tsdb, ORG), expected);
    assert!(!first.exists());
}
