//! The journal byte by byte: drawings, cuts, flips, and what proves that damage is no torn tail.

use std::path::Path;

use proptest::prelude::*;

use super::scan::{decode_rows, scan_file, vouching};
use super::*;
use crate::kv::frame::{self, Frame, hex};

const STORE: StoreId = StoreId(*b"store-of-a-test!");

fn at(ms: i64) -> Timestamp {
    Timestamp::from_ms(ms)
}

fn put(key: &[u8], body: &[u8]) -> (Vec<u8>, Option<Vec<u8>>) {
    (key.to_vec(), Some(frame::seal(key, Frame { version: 1, kind: 2, flags: 0 }, body)))
}

fn change(n: u8, body_bytes: usize) -> Rows {
    Rows::from([put(&[1, n], &vec![n; body_bytes]), (vec![2, n], None)])
}

/// A journal in `dir` with these groups of changes.
fn written(dir: &Path, groups: &[Vec<Rows>]) {
    let found = survey(dir, STORE).expect("whole");
    let mut journal = Journal::open(dir, STORE, &found, at(1_000)).expect("open");
    for group in groups {
        journal.append(group).expect("append");
        journal.make_ready().expect("ready");
    }
}

fn changes(dir: &Path) -> Result<(Survey, Vec<Rows>), JournalError> {
    let found = survey(dir, STORE)?;
    let mut all = Vec::new();
    replay::<JournalError>(&found, STORE, 1, |_, rows| {
        all.push(rows);
        Ok(())
    })?;
    Ok((found, all))
}

#[test]
fn header_and_record_are_the_ones_that_are_drawn() {
    let header =
        encode_header(&Header { store: STORE, number: 3, previous: 2, created: at(1_700_000_000_000) });
    assert_eq!(
        hex(&header),
        "50524f4d4a4e4c31010040000000040073746f72652d6f662d612d7465737421\
         03000000000000000068e5cf8b01000002000000000000000000000099353ae9"
    );
    let mut record = Vec::new();
    encode_record(&mut record, 7, 2, &change(5, 3));
    assert_eq!(record.len(), record_bytes(&change(5, 3)));
    assert_eq!(
        hex(&record),
        "1f00000078b11a1207000000000000000000000010010200020001020001050f\
         000102000003000000fc16f53a0505050202000205000000"
    );
}

#[test]
fn what_was_appended_is_replayed_over_many_files_and_after_reopening() {
    let temp = tempfile::tempdir().expect("temp");
    let groups: Vec<Vec<Rows>> = (0..200).map(|n| vec![change(n, 3_900), change(n, 10)]).collect();
    for half in groups.chunks(100) {
        written(temp.path(), half);
    }
    let (found, all) = changes(temp.path()).expect("whole");
    assert_eq!((found.first_seq, found.last_seq, found.records), (Some(1), 400, 400));
    assert_eq!(all, groups.concat());
    assert!(found.files.len() >= 4 && found.files.iter().zip(1..).all(|(file, n)| file.0 == n));
    // All but the ones in use are full, and one is ready behind.
    assert_eq!(found.current, found.files.len() - 2);
    for (_, path) in &found.files {
        assert_eq!(std::fs::metadata(path).expect("there").len(), FILE_BYTES as u64);
    }
    std::fs::remove_file(&found.files[1].1).expect("removed");
    assert!(matches!(survey(temp.path(), STORE), Err(JournalError::FileMissing { number: 2, .. })));
    // Without the first, it is whole in itself; control sees that it does not begin with change 1.
    std::fs::remove_file(&found.files[0].1).expect("removed");
    assert!(survey(temp.path(), STORE).expect("whole").first_seq > Some(100));
}

#[test]
fn a_journal_cut_at_any_byte_gives_a_prefix() {
    let temp = tempfile::tempdir().expect("temp");
    let all: Vec<Rows> = (0..6).map(|n| change(n, usize::from(n) * 9)).collect();
    written(temp.path(), std::slice::from_ref(&all));
    let found = survey(temp.path(), STORE).expect("whole");
    let path = &found.files[0].1;
    let whole = std::fs::read(path).expect("read");
    let ends: Vec<usize> = scan_file(&whole, 1).records.iter().map(|r| r.end).collect();
    std::fs::remove_file(&found.files[1].1).expect("the spare is not needed");
    for cut in 0..*ends.last().expect("six") + 8 {
        std::fs::write(path, &whole[..cut]).expect("write");
        if cut < HEADER_BYTES {
            assert!(matches!(survey(temp.path(), STORE), Err(JournalError::Damaged { seq: 1, .. })), "{cut}");
            continue;
        }
        let (found, got) = changes(temp.path()).expect("a torn tail");
        assert_eq!(got, all[..got.len()], "{cut}");
        // What is cut reads as zeros, so a record that loses only zeros is whole.
        let is_whole = |end: &&usize| whole.get(cut..**end).is_none_or(|lost| lost.iter().all(|b| *b == 0));
        assert_eq!(got.len(), ends.iter().filter(is_whole).count(), "{cut}");
        if let Some(torn) = &found.torn {
            trim(torn).expect("trimmed");
            let (again, same) = changes(temp.path()).expect("whole");
            assert_eq!((again.torn, same, again.offset), (None, got, found.offset));
            written(temp.path(), &[vec![change(9, 1)]]);
            assert_eq!(survey(temp.path(), STORE).expect("whole").last_seq, found.last_seq + 1);
            let spare = &survey(temp.path(), STORE).expect("whole").files[1].1.clone();
            std::fs::remove_file(spare).expect("removed");
        }
    }
}

/// What flipping any one bit does, in a journal whose changes came in `groups`.
fn flip_every_bit(groups: &[Vec<Rows>]) {
    let all = groups.concat();
    let last_group = all.len() - groups.last().expect("one").len();
    let temp = tempfile::tempdir().expect("temp");
    written(temp.path(), groups);
    let path = survey(temp.path(), STORE).expect("whole").files[0].1.clone();
    let whole = std::fs::read(&path).expect("read");
    let records: Vec<(usize, usize)> = {
        let scan = scan_file(&whole, 1);
        let ends: Vec<usize> = scan.records.iter().map(|r| r.end).collect();
        std::iter::once(HEADER_BYTES).chain(ends.iter().copied()).zip(ends.iter().copied()).collect()
    };
    let end = records.last().expect("some").1;
    let file = std::fs::OpenOptions::new().write(true).open(&path).expect("open");
    for bit in 0..(end + 16) * 8 {
        let byte = whole[bit / 8] ^ (1 << (bit % 8));
        std::os::unix::fs::FileExt::write_all_at(&file, &[byte], (bit / 8) as u64).expect("write");
        let result = changes(temp.path());
        std::os::unix::fs::FileExt::write_all_at(&file, &whole[bit / 8..=bit / 8], (bit / 8) as u64)
            .expect("write");
        let hit = records.iter().position(|(from, to)| (*from..*to).contains(&(bit / 8)));
        match (hit, result) {
            (None, Err(_)) if bit / 8 < HEADER_BYTES => {}
            (None, Ok((found, got))) if bit / 8 >= end => {
                assert_eq!((got, found.torn.is_some()), (all.clone(), true), "bit {bit} behind the end");
            }
            (Some(hit), Err(JournalError::Damaged { seq, .. })) if hit < last_group => {
                assert_eq!(seq, hit as u64 + 1, "bit {bit}");
            }
            (Some(hit), Ok((found, got))) if hit >= last_group && found.torn.is_some() => {
                assert_eq!(got, all[..hit], "bit {bit}");
            }
            // Nothing is torn and nothing is wrong: then it was padding, and all of it is there.
            (Some(hit), Ok((_, got))) => {
                assert!(bit / 8 + 8 > records[hit].1, "bit {bit} of record {hit} was not noticed");
                assert_eq!(got, all, "bit {bit}");
            }
            (hit, result) => panic!("bit {bit} in {hit:?}: {:?}", result.map(|r| r.1.len())),
        }
    }
}

#[test]
fn damage_in_the_middle_is_never_taken_for_a_torn_tail() {
    flip_every_bit(&(0..5).map(|n| vec![change(n, 20)]).collect::<Vec<_>>());
}

#[test]
fn damage_in_the_last_group_is_a_torn_tail() {
    flip_every_bit(&[vec![change(1, 5)], vec![change(2, 9), change(3, 1), change(4, 30)]]);
}

#[test]
fn a_later_file_vouches_for_the_end_of_the_one_before() {
    let temp = tempfile::tempdir().expect("temp");
    let groups: Vec<Vec<Rows>> = (0..80).map(|n| vec![change(n, 3_900)]).collect();
    written(temp.path(), &groups);
    let found = survey(temp.path(), STORE).expect("whole");
    assert_eq!(found.current, 1);
    let path = &found.files[0].1;
    let mut bytes = std::fs::read(path).expect("read");
    let last = scan_file(&bytes, 1).records.last().map(|r| (r.seq, r.end)).expect("some");
    bytes[last.1 - 100] ^= 1;
    std::fs::write(path, &bytes).expect("write");
    match survey(temp.path(), STORE) {
        Err(JournalError::Damaged { path: named, seq, .. }) => assert_eq!((&named, seq), (path, last.0)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn another_stores_a_newer_and_a_renamed_file_are_refused() {
    let temp = tempfile::tempdir().expect("temp");
    written(temp.path(), &[vec![change(1, 1)]]);
    let other = StoreId([7; 16]);
    assert!(matches!(survey(temp.path(), other), Err(JournalError::Foreign { found: STORE, .. })));
    let path = temp.path().join("00000001.jnl");
    let whole = std::fs::read(&path).expect("read");
    let mut newer = whole.clone();
    newer[8] = 2;
    let crc = crc32c::crc32c(&newer[..60]).to_le_bytes();
    newer[60..64].copy_from_slice(&crc);
    std::fs::write(&path, &newer).expect("write");
    assert!(matches!(survey(temp.path(), STORE), Err(JournalError::Newer { found: 2, .. })));
    std::fs::write(&path, &whole).expect("write");
    std::fs::write(temp.path().join("00000002.jnl"), &whole).expect("write");
    assert!(matches!(survey(temp.path(), STORE), Err(JournalError::Damaged { .. })));
}

proptest! {
    #[test]
    fn rows_come_back(rows in prop::collection::btree_map(
        prop::collection::vec(any::<u8>(), 1..20), prop::option::of(prop::collection::vec(any::<u8>(), 0..50)), 0..10)
    ) {
        let rows: Rows = rows.into_iter().map(|(key, body)| match body {
            Some(body) => put(&key, &body),
            None => (key, None),
        }).collect();
        let mut record = Vec::new();
        encode_record(&mut record, 1, 1, &rows);
        prop_assert_eq!(record.len(), record_bytes(&rows));
        let mut file = vec![0; HEADER_BYTES];
        file.extend_from_slice(&record);
        let scan = scan_file(&file, 1);
        prop_assert_eq!(scan.records.len(), 1);
        prop_assert_eq!(decode_rows(scan.records[0].body), Ok(rows));
    }

    #[test]
    fn hostile_bytes_are_only_refused(mut bytes: Vec<u8>, from in 0_usize..100, seq: u64) {
        let _ = decode_rows(&bytes);
        let _ = vouching(&bytes, from, seq);
        bytes.splice(0..0, [0; HEADER_BYTES]);
        let _ = scan_file(&bytes, seq);
    }
}
