//! Tests with the bytes of whole records in senders' data: a torn or damaged log never applies
//! them.

use std::path::PathBuf;

use super::*;
use crate::kv::keyed::RecordKey;
use crate::model::effort::rounds;
use crate::tsdb::store::deletion::Deletion;
use crate::tsdb::wal::record::{FileHeader, Layout, MAGIC_WAL, NewRecord, ParsedRecord, put_record};
use crate::tsdb::wal::replay::{self, LogOrigin};
use crate::tsdb::wal::samples;

const OTHER: OrgId = OrgId(4);

/// Encodes a record of version 1 as text, so that a label value can hold it. `body` makes a body
/// from a number.
fn as_text(seq: u64, org: OrgId, kind: RecordKind, body: impl Fn(i64) -> Vec<u8>) -> String {
    let texts = (0..100_000).filter_map(|n| {
        let mut record = Vec::new();
        put_record(&mut record, seq, org, kind, seq - 1, &body(n));
        String::from_utf8(record).ok()
    });
    texts.into_iter().next().expect("one of them is text")
}

/// Returns forged records that would harm the other organisation.
fn forgeries(seq: u64) -> [String; 4] {
    let deletion = |n: i64| Deletion { from_ms: n, to_ms: i64::MAX >> 1, series: vec![(0, 40)] };
    let deletion = |n: i64| {
        // The greatest time whose bytes are text.
        Deletion { to_ms: 0x7f7f_7f7f_7f7f_7f7f, ..deletion(n) }.encode()
    };
    // One sample: count, base time, the runs of series 0 and of the base time, the decimal 5.
    let sample = |n: i64| {
        let at_ms: i64 = 0x0160_0000_0000 + n;
        [&[1][..], &at_ms.to_le_bytes(), &[0, 1, 0, 1, 1, 10]].concat()
    };
    [
        as_text(seq, OTHER, RecordKind::Delete, deletion),
        as_text(seq, OTHER, RecordKind::Samples, sample),
        as_text(seq, OTHER, RecordKind::Dropped, |n| vec![0; 1 + usize::try_from(n).unwrap_or(0)]),
        as_text(1 << 40, OTHER, RecordKind::Delete, deletion),
    ]
}

/// The byte range of a record in a file.
#[derive(Clone, Copy, Debug)]
struct RecordRange {
    start: usize,
    end: usize,
}

/// Returns the ranges of all records of the only log file.
fn records(content: &[u8]) -> Vec<RecordRange> {
    let layout = Layout::of(content, 1);
    let (mut found, mut start) = (Vec::new(), layout.first_record());
    while let ParsedRecord::Record(_, _, bytes) = layout.parse(&content[start..]) {
        found.push(RecordRange { start, end: start + bytes });
        start += bytes;
    }
    found
}

fn log_file(dir: &Path) -> PathBuf {
    dir.join("wal/0000000001.wal")
}

/// Rewrites the only log file of a folder with the same records in version 1, as an earlier version
/// left it.
fn make_plain(dir: &Path) {
    let path = log_file(dir);
    let content = std::fs::read(&path).expect("read");
    let header = FileHeader::parse(&content, MAGIC_WAL).expect("a header");
    let mut plain = FileHeader { layout: Layout::Plain, ..header }.encode(MAGIC_WAL);
    for record in records(&content) {
        let ParsedRecord::Record(found, body, _) = header.layout.parse(&content[record.start..]) else {
            panic!("one")
        };
        let durable = found.seq - u64::from(found.lag);
        put_record(&mut plain, found.seq, found.org, found.kind.expect("known"), durable, body);
    }
    plain.resize(content.len(), 0);
    std::fs::write(&path, plain).expect("written");
}

/// A folder of a killed process with a planted record.
struct Planted {
    dir: tempfile::TempDir,
    /// The record whose body holds a forgery, aligned so that a search could find it.
    around: RecordRange,
    /// The content of the other organisation.
    held: StoreContent,
}

/// Plants the output of `forge`, called with the number after that of the record around it. A later
/// record follows.
fn planted(forge: impl Fn(u64) -> String, is_plain: bool) -> Planted {
    for attempt in 0..40 {
        let live = crate::kv::scratch::temporary_folder().expect("made");
        let (tsdb, _) = open(live.path());
        write(&tsdb, OTHER, &up("b"), &[ago(9_000, 1.0), ago(8_000, 2.0)]);
        let held = content(&tsdb, OTHER);
        let enclosing = tsdb.stats().last_seq + 1;
        let forgery = forge(enclosing + 1);
        let value = format!("{}{forgery}", "p".repeat(attempt % 8));
        write(&tsdb, ORG, &labels(&[("__name__", "up"), ("job", &value)]), &[ago(7_000, 3.0)]);
        write(&tsdb, ORG, &up("later"), &[ago(7_000, 3.0)]);
        let dir = crate::kv::scratch::temporary_folder().expect("made");
        copy_tree(live.path(), dir.path());
        drop(tsdb);
        if is_plain {
            make_plain(dir.path());
        }
        let bytes = std::fs::read(log_file(dir.path())).expect("read");
        let at =
            bytes.windows(forgery.len()).position(|found| found == forgery.as_bytes()).expect("verbatim");
        let around = records(&bytes).into_iter().find(|record| (record.start..record.end).contains(&at));
        let around = around.expect("a record");
        let seq = u64::from_le_bytes(bytes[around.start + 8..around.start + 16].try_into().expect("eight"));
        // A mark of the log may have been written in between.
        if at % 8 == 0 && seq == enclosing {
            return Planted { dir, around, held };
        }
    }
    panic!("no padding aligns it");
}

#[test]
fn a_record_planted_in_a_label_value_is_never_applied() {
    for (number, is_plain) in (0..4).flat_map(|number| [(number, false), (number, true)]) {
        let Planted { dir: origin, around, held } = planted(|seq| forgeries(seq)[number].clone(), is_plain);
        let whole = std::fs::read(log_file(origin.path())).expect("read");
        let header_bytes = Layout::of(&whole, 1).header_bytes();
        let flips = (0..header_bytes + 8).step_by(rounds(16, 3)).map(|at| (at, false));
        for (at, is_torn) in flips.chain([(8, true), (24, true), (32, true)]) {
            let what = format!("forgery {number}, plain {is_plain}, byte {at}, torn {is_torn}");
            let mut bytes = whole.clone();
            if is_torn {
                bytes[around.start..around.start + at].fill(0);
                bytes[around.end..].fill(0);
            } else {
                bytes[around.start + at] ^= 0x10;
            }
            let dir = crate::kv::scratch::temporary_folder().expect("made");
            copy_tree(origin.path(), dir.path());
            std::fs::write(log_file(dir.path()), bytes).expect("written");
            let (tsdb, report) = open(dir.path());
            assert_eq!(content(&tsdb, OTHER), held, "{what}");
            let is_read_only = report.read_only.is_some();
            // In a file of version 1 a tear that looks like damage counts as damage.
            assert!(is_torn || is_read_only, "{what}");
            assert!(!is_torn || is_plain || !is_read_only, "{what}: {:?}", report.read_only);
            assert!(is_torn || content(&tsdb, ORG).contains_key(&up("later").to_string()), "{what}");
            drop(tsdb);
            let (control, folder) = control(dir.path());
            let home = Home { dir: dir.path(), store: STORE, control: Arc::clone(&control) };
            accept_loss(&home, &mut Entropy::seeded(5), NOW).expect("accepted");
            drop((home, control, folder));
            let (tsdb, report) = open(dir.path());
            assert_eq!((report.read_only, content(&tsdb, OTHER)), (None, held.clone()), "{what}");
            assert!(tsdb.stats().last_seq < 1_000, "{what}");
            write(&tsdb, OTHER, &up("b"), &[ago(1, 9.0)]);
        }
    }
}

/// Forges several consecutive records, so that the numbers continue without a gap.
fn chain(seq: u64) -> String {
    let body = |n| vec![0; 1 + usize::try_from(n).unwrap_or(0)];
    (seq..seq + 3).map(|seq| as_text(seq, OTHER, RecordKind::Dropped, body)).collect()
}

#[test]
fn no_changed_byte_of_a_header_of_version_1_lets_a_search_enter_the_body() {
    // Long enough that two bytes of the length matter.
    let repeated: fn(u64) -> String = |seq| forgeries(seq)[2].repeat(20);
    for forge in [repeated, chain] {
        let Planted { dir: origin, around, held } = planted(forge, true);
        let whole = std::fs::read(log_file(origin.path())).expect("read");
        let later = up("later").to_string();
        let mut hits = 0;
        let written = records(&whole).last().expect("some").end + 4_096;
        // Every value of the bytes of the length, some of the others.
        let values = |at: usize| (0..=u8::MAX).step_by(if at < 4 { 1 } else { 7 });
        for (at, byte) in (0..24).flat_map(|at| values(at).map(move |byte| (at, byte))) {
            let index = around.start + at;
            if whole[index] == byte {
                continue;
            }
            let mut bytes = whole[..written].to_vec();
            bytes[index] = byte;
            let length = u32::from_le_bytes(bytes[around.start..around.start + 4].try_into().expect("four"));
            let end = around.start + (24 + length as usize).next_multiple_of(8);
            hits += usize::from(
                end < around.end && matches!(Layout::Plain.parse(&bytes[end..]), ParsedRecord::Record(..)),
            );
            let dir = crate::kv::scratch::temporary_folder().expect("made");
            let file = dir.path().join("0000000001.wal");
            std::fs::write(&file, &bytes).expect("written");
            let (mut found, mut forged) = (Vec::new(), false);
            let end = replay::replay(dir.path(), STORE, LogOrigin::default(), 0, &mut |header, body, _| {
                forged |= header.kind == Some(RecordKind::Dropped);
                found.push((header.seq, body.to_vec()));
                Ok(())
            });
            let end = end.expect("read");
            assert!(!forged, "byte {at} is {byte}");
            assert!(end.damage.is_some(), "byte {at} is {byte}");
            // One record is lost, and those after it are not.
            let lost =
                u64::from_le_bytes(whole[around.start + 8..around.start + 16].try_into().expect("eight"));
            let seqs: Vec<u64> = found.iter().map(|(seq, _)| *seq).collect();
            let all = (1..=end.last_seq).filter(|seq| *seq != lost);
            assert_eq!(seqs, all.collect::<Vec<_>>(), "byte {at} is {byte}");
            assert!(end.last_seq > lost + 1, "byte {at} is {byte}");
        }
        assert!(hits > 0, "some value of the length leads to a forgery");
        // Opens the store for a few of them.
        for (at, byte) in [(0, 8), (0, 64), (1, 0), (1, 1), (9, 3), (20, 200)] {
            let mut bytes = whole.clone();
            if std::mem::replace(&mut bytes[around.start + at], byte) == byte {
                continue;
            }
            let dir = crate::kv::scratch::temporary_folder().expect("made");
            copy_tree(origin.path(), dir.path());
            std::fs::write(log_file(dir.path()), bytes).expect("written");
            let (tsdb, report) = open(dir.path());
            assert!(report.read_only.is_some() && content(&tsdb, OTHER) == held, "byte {at} is {byte}");
            assert!(content(&tsdb, ORG).contains_key(&later), "byte {at} is {byte}");
        }
    }
}

#[test]
fn two_changed_bytes_of_a_length_of_version_1_apply_no_forgery() {
    let Planted { dir: origin, around, .. } = planted(chain, true);
    let whole = std::fs::read(log_file(origin.path())).expect("read");
    for length in (0..around.end - around.start).step_by(8) {
        let mut bytes = whole.clone();
        let other = u32::try_from(length).expect("small").to_le_bytes();
        // The checksum is changed as well, so that no length explains it.
        bytes[around.start..around.start + 4].copy_from_slice(&other);
        bytes[around.start + 4] ^= 0x55;
        let dir = crate::kv::scratch::temporary_folder().expect("made");
        std::fs::write(dir.path().join("0000000001.wal"), &bytes).expect("written");
        let end = replay::replay(dir.path(), STORE, LogOrigin::default(), 0, &mut |header, _, _| {
            assert_ne!(header.kind, Some(RecordKind::Dropped), "length {length}");
            Ok(())
        });
        assert!(end.expect("read").damage.is_some(), "length {length}");
    }
}

#[test]
fn the_planted_sample_decodes_to_one_sample() {
    let record = forgeries(5)[1].clone();
    let ParsedRecord::Record(header, body, _) = Layout::Plain.parse(record.as_bytes()) else {
        panic!("no record")
    };
    let mut read = Vec::new();
    samples::decode(header.kind.expect("a kind"), body, &mut read).expect("samples");
    assert_eq!((header.seq, header.org, read.len(), read[0].series), (5, OTHER, 1, 0));
}

#[test]
fn a_log_of_version_1_opens_and_continues_in_a_file_of_version_2() {
    let live = crate::kv::scratch::temporary_folder().expect("made");
    let (tsdb, _) = open(live.path());
    for n in 0..5 {
        write(&tsdb, ORG, &up("a"), &[ago(9_000 - n, n as f64)]);
    }
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    copy_tree(live.path(), dir.path());
    drop(tsdb);
    make_plain(dir.path());
    let before = std::fs::read(log_file(dir.path())).expect("read");
    let (tsdb, report) = open(dir.path());
    assert_eq!((report.read_only, content(&tsdb, ORG)[&up("a").to_string()].len()), (None, 5));
    write(&tsdb, ORG, &up("a"), &[ago(1_000, 7.0)]);
    let held = content(&tsdb, ORG);
    tsdb.close();
    drop(tsdb);
    let after = std::fs::read(log_file(dir.path())).expect("read");
    let end = records(&before).last().expect("some").end;
    assert_eq!(after[..end], before[..end]);
    let added = records(&after).split_off(records(&before).len());
    assert_eq!(added.len(), 1, "the switch alone");
    let second = std::fs::read(dir.path().join("wal/0000000002.wal")).expect("read");
    assert!(matches!(Layout::of(&second, 2), Layout::Keyed(_)));
    for _ in 0..2 {
        let (tsdb, report) = open(dir.path());
        assert_eq!((report.read_only, content(&tsdb, ORG)), (None, held.clone()));
        tsdb.close();
    }
}

#[test]
fn a_verified_record_with_too_great_a_number_for_its_offset_is_not_applied() {
    let live = crate::kv::scratch::temporary_folder().expect("made");
    let (tsdb, _) = open(live.path());
    write(&tsdb, ORG, &up("a"), &[ago(9_000, 1.0)]);
    let held = content(&tsdb, ORG);
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    copy_tree(live.path(), dir.path());
    drop(tsdb);
    let path = log_file(dir.path());
    let mut bytes = std::fs::read(&path).expect("read");
    let (layout, end) = (Layout::of(&bytes, 1), records(&bytes).last().expect("some").end);
    let mut record = vec![0xee; 64];
    let forged = NewRecord { seq: 1 << 40, org: ORG, kind: RecordKind::Dropped, durable: 1 << 39 };
    layout.put(&mut record, forged, &[0]);
    bytes[end..end + record.len()].copy_from_slice(&record);
    std::fs::write(&path, bytes).expect("written");
    let (tsdb, report) = open(dir.path());
    assert!(report.read_only.is_some());
    assert_eq!(content(&tsdb, ORG), held);
    let end = replay::replay(&dir.path().join("wal"), STORE, LogOrigin::default(), 0, &mut |_, _, _| Ok(()));
    assert!(end.expect("read").last_seq < 100);
}

#[test]
fn secrets_of_log_files_differ() {
    let dir = crate::kv::scratch::temporary_folder().expect("made");
    let (tsdb, _) = open(dir.path());
    write(&tsdb, ORG, &up("a"), &[ago(9_000, 1.0)]);
    tsdb.seal(NOW).expect("sealed");
    tsdb.close();
    let mut keys: Vec<RecordKey> = Vec::new();
    for name in crate::tsdb::disk::names(&dir.path().join("wal")).expect("listed") {
        let content = std::fs::read(dir.path().join("wal").join(&name)).expect("read");
        let number = crate::tsdb::wal::file::number_of(&name).expect("a number");
        let Layout::Keyed(key) = Layout::of(&content, number) else { panic!("{name}") };
        assert!(!keys.contains(&key));
        keys.push(key);
    }
    assert!(!keys.is_empty());
}
