//! The log behind its writer: every record once, in order, while files are created and removed; and
//! pins, which keep the files that a consumer needs.

use super::*;

const CONSUMER: ConsumerId = ConsumerId { kind: ConsumerKind::Forward, number: 7 };
const NOT_AT_ALL: Duration = Duration::ZERO;
/// Longer than any test runs.
const LONG: Duration = Duration::from_secs(500);

/// A record as a test compares it.
type SeenRecord = (u64, u32, RecordKind, Vec<u8>);

/// Reads all records that are ready.
fn ready(tail: &mut LogTail) -> Vec<SeenRecord> {
    let mut seen = Vec::new();
    while let Some(record) = tail.next(NOT_AT_ALL).expect("read") {
        seen.push((record.seq, record.org.0, record.kind, record.body.to_vec()));
    }
    seen
}

/// Returns the samples of records in their order.
fn samples_of(seen: &[SeenRecord]) -> Vec<(u32, i64, u64)> {
    let mut all = Vec::new();
    let mut scratch = Vec::new();
    for (seq, org, kind, body) in seen {
        let record = TailRecord { seq: *seq, org: OrgId(*org), kind: *kind, body };
        record.samples(&mut scratch).expect("decodes");
        all.extend(scratch.iter().map(|sample| (sample.series, sample.at_ms, sample.bits)));
    }
    all
}

fn assert_continuous(seen: &[SeenRecord], first: u64) {
    let seqs: Vec<u64> = seen.iter().map(|record| record.0).collect();
    assert_eq!(seqs, (first..first + seqs.len() as u64).collect::<Vec<_>>());
}

fn small_files() -> Arc<Faults> {
    let faults = faults();
    faults.log_file_bytes.store(8_192, Ordering::SeqCst);
    faults
}

/// Writes samples until the log has switched to another file.
fn fill_a_file(tsdb: &Tsdb, from: i64) -> Vec<(i64, u64)> {
    let files = tsdb.stats().wal_files;
    let mut written = Vec::new();
    while tsdb.stats().wal_files == files {
        let n = from + written.len() as i64;
        assert_eq!(write(tsdb, ORG, &up("a"), &[ago(5_000_000 - n, n as f64 + 0.25)]).refused, 0);
        written.push((NOW.plus_ms(n - 5_000_000).as_ms(), (n as f64 + 0.25).to_bits()));
    }
    written
}

#[test]
fn a_tail_returns_every_record_once_and_in_order_across_files_and_restarts() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let mut written = Vec::new();
    let mut read = Vec::new();
    let mut next = LogPosition(1);
    let mut first = 1;
    for round in 0..3 {
        let (tsdb, _) = open_with(dir.path(), options(&small_files()));
        tsdb.pin(CONSUMER, LogPosition(1)).expect("pinned");
        let mut tail = tsdb.tail(next).expect("a tail");
        for part in 0..3 {
            written.extend(fill_a_file(&tsdb, round * 100_000 + part * 10_000));
            let seen = ready(&mut tail);
            assert_continuous(&seen, first);
            first += seen.len() as u64;
            read.extend(samples_of(&seen));
        }
        let from_the_start = ready(&mut tsdb.tail(LogPosition(1)).expect("a tail"));
        assert_continuous(&from_the_start, 1);
        assert_eq!(samples_of(&from_the_start), read);
        next = tail.position();
        if round == 1 {
            // A clean stop. The other rounds end like a kill.
            tsdb.close();
            assert!(matches!(tail.next(NOT_AT_ALL), Ok(Some(_)) | Err(TailError::Closed)));
        }
    }
    let read: Vec<(i64, u64)> = read.into_iter().map(|(_, at_ms, bits)| (at_ms, bits)).collect();
    assert_eq!(read, written);
}

#[test]
fn every_kind_of_record_is_decoded() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let (tsdb, _) = open(dir.path());
    let mut tail = tsdb.tail(tsdb.log_end()).expect("a tail");
    tsdb.pin(CONSUMER, tail.position()).expect("pinned");
    let mut builder = BatchBuilder::default();
    builder.series(&up("a"), [ago(1_000, f64::NAN), ago(900, -0.0)]);
    let mut batch = builder.batch();
    batch.metadata.push(crate::model::MetricMetadata {
        name: "up",
        kind: crate::model::MetricKind::Gauge,
        help: "Is it.",
        unit: "",
    });
    tsdb.append(ORG, &batch, NOW).expect("stored");
    let matcher = crate::model::Matcher::new("job", crate::model::MatchOp::Equal, "a").expect("a matcher");
    tsdb.delete(ORG, &[vec![matcher]], TimeRange::ALL, NOW).expect("deleted");
    tsdb.seal(NOW).expect("sealed");
    let mut kinds = Vec::new();
    let mut decoded = Vec::new();
    while let Some(record) = tail.next(NOT_AT_ALL).expect("read") {
        kinds.push(record.kind);
        match record.content().expect("decodes") {
            TailContent::Series(series) => {
                assert_eq!(series, [(SeriesId(0), up("a"))]);
                assert_eq!(tsdb.series_labels(record.org, SeriesId(0)), Some(up("a")));
            }
            TailContent::Metadata(metadata) => assert_eq!(metadata.first().map(|m| m.help), Some("Is it.")),
            TailContent::Samples(samples) => decoded = samples,
            TailContent::Deletion { series, .. } => assert_eq!(series, [(0, 0)]),
            TailContent::Seal { until_ms, .. } => assert!(until_ms <= NOW.as_ms() + 1),
            TailContent::Mark | TailContent::Switch { .. } => assert_eq!(record.org, OrgId(0)),
            other => panic!("{other:?}"),
        }
    }
    let bits: Vec<u64> = decoded.iter().map(|sample| sample.bits).collect();
    assert_eq!(bits, [f64::NAN.to_bits(), (-0.0f64).to_bits()]);
    for kind in [
        RecordKind::Series,
        RecordKind::Metadata,
        RecordKind::Samples,
        RecordKind::Delete,
        RecordKind::Seal,
        RecordKind::Switch,
    ] {
        assert!(kinds.contains(&kind), "{kind:?} in {kinds:?}");
    }
}

#[test]
fn a_waiting_tail_wakes_for_a_record_and_for_the_end() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let (tsdb, _) = open(dir.path());
    let mut tail = tsdb.tail(tsdb.log_end()).expect("a tail");
    std::thread::scope(|scope| {
        let reader = scope.spawn(move || {
            let mut kinds = Vec::new();
            loop {
                match tail.next(LONG) {
                    Ok(Some(record)) => kinds.push(record.kind),
                    Ok(None) => panic!("waited without a record"),
                    Err(TailError::Closed) => return kinds,
                    Err(e) => panic!("{e}"),
                }
            }
        });
        write(&tsdb, ORG, &up("a"), &[ago(1_000, 1.0)]);
        tsdb.close();
        let kinds = reader.join().expect("ended");
        assert!(kinds.contains(&RecordKind::Samples), "{kinds:?}");
    });
}

#[test]
fn records_that_are_not_synced_are_not_read() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let every = Durability::Interval(Duration::from_secs(3_600));
    let (tsdb, _) = open_with(dir.path(), Options { durability: every, ..options(&faults()) });
    let mut tail = tsdb.tail(tsdb.log_end()).expect("a tail");
    write(&tsdb, ORG, &up("a"), &[ago(1_000, 1.0)]);
    // The log's own thread may have written a mark, which syncs. A mark follows the samples then.
    let seen = ready(&mut tail);
    assert!(seen.is_empty() || seen.iter().any(|record| record.2 == RecordKind::Mark), "{seen:?}");
    tsdb.flush().expect("synced");
    let seen: Vec<SeenRecord> = seen.into_iter().chain(ready(&mut tail)).collect();
    assert_eq!(samples_of(&seen).len(), 1);
}

#[test]
fn a_record_whose_sync_failed_is_never_read() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let faults = faults();
    let (tsdb, _) = open_with(dir.path(), options(&faults));
    write(&tsdb, ORG, &up("a"), &[ago(2_000, 1.0)]);
    let mut tail = tsdb.tail(LogPosition(1)).expect("a tail");
    assert_eq!(samples_of(&ready(&mut tail)).len(), 1);
    faults.log_syncs_left.store(0, Ordering::SeqCst);
    try_write(&tsdb, ORG, &up("a"), &[ago(1_000, 2.0)]).expect_err("fenced");
    assert_eq!(samples_of(&ready(&mut tail)).len(), 0);
}

#[test]
fn a_pin_keeps_files_over_restarts_until_it_moves_on() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let (tsdb, _) = open_with(dir.path(), options(&small_files()));
    assert_eq!(tsdb.pin(CONSUMER, LogPosition(1)).expect("pinned"), LogPosition(1));
    let written = fill_a_file(&tsdb, 0).len() + fill_a_file(&tsdb, 10_000).len();
    tsdb.seal(NOW).expect("sealed");
    let files = tsdb.stats().wal_files;
    assert!(files >= 3, "{files}");
    let report = tsdb.pins();
    assert_eq!((report[0].consumer, report[0].next, report[0].lost), (CONSUMER, LogPosition(1), 0));
    assert!((8_192 * 2..8_192 * files).contains(&report[0].lag_bytes), "{report:?}");
    drop(tsdb);

    let (tsdb, report) = open_with(dir.path(), options(&small_files()));
    assert_eq!(report.read_only, None);
    assert_eq!(tsdb.pin(CONSUMER, LogPosition(900)).expect("pinned"), LogPosition(1), "as it was");
    let mut tail = tsdb.tail(LogPosition(1)).expect("a tail");
    assert_eq!(samples_of(&ready(&mut tail)).len(), written);
    tsdb.seal(NOW).expect("sealed");
    assert!(tsdb.stats().wal_files >= files);
    // Marks and switches of the seal.
    ready(&mut tail);
    tsdb.advance_pin(CONSUMER, tail.position());
    assert_eq!(tsdb.pins()[0].next, tail.position());
    // Storing the position and removing files is the work of the task.
    tsdb.seal_if_due(NOW).expect("nothing is due");
    tsdb.seal(NOW).expect("sealed");
    // The file with the record of this seal is still pinned.
    assert!(tsdb.stats().wal_files <= 2, "{} files", tsdb.stats().wal_files);
    let lost = tsdb.tail(LogPosition(1)).expect_err("trimmed");
    assert!(matches!(lost, TailError::Trimmed { lost_from: 1, lost_to } if lost_to > 1), "{lost}");
    assert!(matches!(tsdb.tail(LogPosition(1_000_000)), Err(TailError::Ahead { .. })));
}

#[test]
fn a_pin_that_comes_too_late_counts_what_it_lost() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let (tsdb, _) = open_with(dir.path(), options(&small_files()));
    fill_a_file(&tsdb, 0);
    fill_a_file(&tsdb, 10_000);
    tsdb.seal(NOW).expect("sealed");
    let begin = tsdb.log_begin();
    assert!(begin > LogPosition(5), "{begin:?}");
    assert_eq!(tsdb.pin(CONSUMER, LogPosition(5)).expect("pinned"), begin);
    assert_eq!(tsdb.pins()[0].lost, begin.0 - 5);
    let other = ConsumerId { number: 8, ..CONSUMER };
    assert_eq!(tsdb.pin(other, begin).expect("pinned"), begin);
    let ahead = ConsumerId { number: 9, ..CONSUMER };
    assert_eq!(tsdb.pin(ahead, LogPosition(1_000_000)).expect("pinned"), tsdb.log_end());
    assert!(tsdb.pins()[1..].iter().all(|pin| pin.lost == 0), "{:?}", tsdb.pins());
}

#[test]
fn start_timestamps_are_logged_before_their_samples() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let (tsdb, _) = open(dir.path());
    let mut tail = tsdb.tail(tsdb.log_end()).expect("a tail");
    let mut builder = BatchBuilder::default();
    builder.series(&up("a"), [ago(1_000, 1.0)]).start(NOW.plus_ms(-1_000), NOW.plus_ms(-2_000));
    tsdb.append(ORG, &builder.batch(), NOW).expect("stored");
    let kinds: Vec<RecordKind> = ready(&mut tail).iter().map(|record| record.2).collect();
    let expected = [RecordKind::Series, RecordKind::Starts, RecordKind::Samples];
    assert!(kinds.ends_with(&expected), "{kinds:?}");
}

#[test]
fn a_removed_pin_keeps_nothing() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let (tsdb, _) = open_with(dir.path(), options(&small_files()));
    tsdb.pin(CONSUMER, LogPosition(1)).expect("pinned");
    fill_a_file(&tsdb, 0);
    tsdb.seal(NOW).expect("sealed");
    assert!(tsdb.stats().wal_files > 1);
    tsdb.unpin(CONSUMER).expect("removed");
    tsdb.unpin(CONSUMER).expect("removed before");
    tsdb.advance_pin(CONSUMER, LogPosition(9));
    tsdb.seal_if_due(NOW).expect("trimmed");
    assert_eq!((tsdb.pins(), tsdb.stats().wal_files), (Vec::new(), 1));
    drop(tsdb);
    assert!(open(dir.path()).0.pins().is_empty());
}

/// Breaks a pin by a limit of bytes, or by a disk that is nearly full.
fn break_a_pin(disk_is_full: bool) {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let faults = small_files();
    let limit = if disk_is_full { u64::MAX } else { 3 * 8_192 };
    let (tsdb, _) = open_with(dir.path(), Options { pinned_log_bytes: limit, ..options(&faults) });
    tsdb.pin(CONSUMER, LogPosition(1)).expect("pinned");
    let mut tail = tsdb.tail(LogPosition(1)).expect("a tail");
    for file in 0..8 {
        fill_a_file(&tsdb, file * 10_000);
    }
    let before = content(&tsdb, ORG);
    if disk_is_full {
        tsdb.seal(NOW).expect("sealed");
        assert_eq!(tsdb.pins()[0].lost, 0);
        faults.free_bytes.store(300 << 20, Ordering::SeqCst);
        tsdb.seal_if_due(NOW).expect("trimmed");
        faults.free_bytes.store(1 << 40, Ordering::SeqCst);
    } else {
        tsdb.seal(NOW).expect("sealed");
        assert!(tsdb.stats().wal_file_bytes <= limit, "{}", tsdb.stats().wal_file_bytes);
    }
    let pin = tsdb.pins()[0];
    assert_eq!(pin.next.0, pin.lost + 1, "{pin:?}");
    assert_eq!(content(&tsdb, ORG), before, "nothing is lost here");
    let lost = tail.next(NOT_AT_ALL).expect_err("trimmed");
    assert!(
        matches!(lost, TailError::Trimmed { lost_from: 1, lost_to } if lost_to == pin.lost),
        "{lost}, {pin:?}"
    );
    let mut tail = tsdb.tail(pin.next).expect("continues");
    assert_continuous(&ready(&mut tail), pin.next.0);
    drop(tsdb);
    let (tsdb, _) = open_with(dir.path(), options(&small_files()));
    assert_eq!((tsdb.pins()[0].next, tsdb.pins()[0].lost), (pin.next, pin.lost), "after a restart");
}

#[test]
fn the_limit_of_bytes_removes_the_oldest_files_of_a_pin_and_no_more() {
    break_a_pin(false);
}

#[test]
fn a_nearly_full_disk_breaks_pins_before_it_refuses_samples() {
    break_a_pin(true);
}

#[test]
fn a_log_that_only_pins_keep_causes_no_early_seals() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let options = || Options { seal_log_bytes: 3 * 8_192, ..options(&small_files()) };
    let (tsdb, _) = open_with(dir.path(), options());
    tsdb.pin(CONSUMER, LogPosition(1)).expect("pinned");
    for file in 0..6 {
        fill_a_file(&tsdb, file * 10_000);
    }
    seal_due(&tsdb);
    let seals = tsdb.stats().seals;
    assert!(seals >= 1 && tsdb.stats().wal_file_bytes > 3 * 8_192);
    for minutes in 1..5 {
        write(&tsdb, ORG, &up("a"), &[Sample { at: NOW.plus_ms(minutes), value: 1.0 }]);
        tsdb.seal_if_due(NOW.plus_ms(minutes * 61_000)).expect("checked");
    }
    assert_eq!(tsdb.stats().seals, seals);
    drop(tsdb);
    let (tsdb, _) = open_with(dir.path(), options());
    write(&tsdb, ORG, &up("a"), &[Sample { at: NOW.plus_ms(5), value: 1.0 }]);
    tsdb.seal_if_due(NOW.plus_ms(400_000)).expect("checked");
    assert_eq!(tsdb.stats().seals, 0, "after a restart");
}

#[test]
fn damage_is_reported_with_file_and_offset_and_nothing_is_skipped() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let (tsdb, _) = open_with(dir.path(), options(&small_files()));
    tsdb.pin(CONSUMER, LogPosition(1)).expect("pinned");
    fill_a_file(&tsdb, 0);
    fill_a_file(&tsdb, 10_000);
    let whole = ready(&mut tsdb.tail(LogPosition(1)).expect("a tail"));
    let path = dir.path().join("wal/0000000001.wal");
    let content = std::fs::read(&path).expect("read");
    let end = content.iter().rposition(|byte| *byte != 0).expect("written");
    for at in (4_128..end).step_by(97) {
        let mut bytes = content.clone();
        bytes[at] ^= 0x10;
        std::fs::write(&path, &bytes).expect("written");
        let mut tail = tsdb.tail(LogPosition(1)).expect("a tail");
        let mut seen = 0;
        let failed = loop {
            match tail.next(NOT_AT_ALL) {
                Ok(Some(record)) => {
                    assert_eq!((record.seq, record.body), (whole[seen].0, &*whole[seen].3));
                    seen += 1;
                }
                // A byte between two records has no meaning.
                Ok(None) => break None,
                Err(e) => break Some(e),
            }
        };
        match failed {
            None => assert_eq!(seen, whole.len()),
            Some(TailError::Damaged { path: named, offset, .. }) => {
                assert_eq!(named, path);
                assert!(offset <= at as u64 && at as u64 - offset < 600, "{offset} for {at}");
                assert_eq!(tail.position().0, seen as u64 + 1, "the position stays");
            }
            Some(other) => panic!("{other}"),
        }
    }
    // A tail that met damage reads the file again once it is repaired.
    let mut bytes = content.clone();
    bytes[5_000] ^= 0x10;
    std::fs::write(&path, &bytes).expect("written");
    let mut tail = tsdb.tail(LogPosition(1)).expect("a tail");
    while let Ok(Some(_)) = tail.next(NOT_AT_ALL) {}
    assert!(matches!(tail.next(NOT_AT_ALL), Err(TailError::Damaged { .. })));
    std::fs::write(&path, &content).expect("written");
    let seen = tail.position().0 - 1;
    assert_eq!(seen + ready(&mut tail).len() as u64, whole.len() as u64, "it continues");
    let second = dir.path().join("wal/0000000002.wal");
    let moved = second.with_extension("gone");
    std::fs::rename(&second, &moved).expect("moved");
    let mut tail = tsdb.tail(LogPosition(1)).expect("a tail");
    let failed = loop {
        match tail.next(NOT_AT_ALL) {
            Ok(Some(_)) => {}
            Ok(None) => panic!("the missing file was skipped"),
            Err(e) => break e,
        }
    };
    assert!(matches!(&failed, TailError::Damaged { path, .. } if *path == second), "{failed}");
    std::fs::rename(&moved, &second).expect("moved");
    let seen = tail.position().0 - 1;
    assert_eq!(seen + ready(&mut tail).len() as u64, whole.len() as u64, "it continues");
}

#[test]
fn a_tail_beside_writers_sees_what_they_wrote() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let (tsdb, _) = open_with(dir.path(), options(&small_files()));
    tsdb.pin(CONSUMER, LogPosition(1)).expect("pinned");
    let mut tail = tsdb.tail(LogPosition(1)).expect("a tail");
    let writers = 3;
    let each = 150;
    let mut seen = Vec::new();
    std::thread::scope(|scope| {
        for writer in 0..writers {
            let tsdb = &tsdb;
            scope.spawn(move || {
                for n in 0..each {
                    let series = up(&format!("writer-{writer}"));
                    write(tsdb, ORG, &series, &[ago(5_000_000 - n, n as f64)]);
                }
            });
        }
        while samples_of(&seen).len() < usize::try_from(writers * each).expect("small") {
            if let Some(record) = tail.next(LONG).expect("read") {
                seen.push((record.seq, record.org.0, record.kind, record.body.to_vec()));
            }
        }
    });
    assert_continuous(&seen, 1);
    let mut last: BTreeMap<u32, i64> = BTreeMap::new();
    for (series, at_ms, _) in samples_of(&seen) {
        assert!(last.insert(series, at_ms).is_none_or(|before| before < at_ms), "in order");
    }
}
