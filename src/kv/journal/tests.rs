//! Byte-level tests of the journal: layout, truncation, bit flips, and the distinction of damage
//! from a torn tail.

use std::path::Path;

use proptest::prelude::*;

use super::scan::{decode_rows, scan_file};
use super::*;
use crate::kv::frame::{self, Frame, hex};
use crate::model::effort::rounds;

const STORE: StoreId = StoreId(*b"store-of-a-test!");
/// Offset of the first record.
const FIRST: usize = KEYED_FILE_HEADER_BYTES;

fn key() -> RecordKey {
    RecordKey::from_bytes([7; 16])
}

fn at(ms: i64) -> Timestamp {
    Timestamp::from_ms(ms)
}

fn put(key: &[u8], body: &[u8]) -> (Vec<u8>, Option<Vec<u8>>) {
    (key.to_vec(), Some(frame::seal(key, Frame { version: 1, kind: 2, flags: 0 }, body)))
}

fn change(n: u8, body_bytes: usize) -> RowChanges {
    RowChanges::from([put(&[1, n], &vec![n; body_bytes]), (vec![2, n], None)])
}

/// Writes a journal in `dir` with these groups of changes.
fn written(dir: &Path, groups: &[Vec<RowChanges>]) {
    let found = survey(dir, STORE).expect("whole");
    let last_seq = found.last_seq();
    let mut journal = Journal::open(dir, STORE, key(), &found, last_seq, at(1_000)).expect("open");
    for group in groups {
        journal.append(group).expect("append");
        journal.make_ready().expect("ready");
    }
}

fn changes(dir: &Path) -> Result<(Survey, Vec<RowChanges>), JournalError> {
    let found = survey(dir, STORE)?;
    let mut all = Vec::new();
    replay::<JournalError>(&found, 1, |_, rows| {
        all.push(rows);
        Ok(())
    })?;
    Ok((found, all))
}

#[test]
fn header_and_record_have_the_documented_layout() {
    let created = at(1_700_000_000_000);
    let header = JournalHeader { store: STORE, number: 3, previous: 2, created, layout: Layout::Plain };
    assert_eq!(
        hex(&encode_header(&header)),
        "50524f4d4a4e4c31010040000000040073746f72652d6f662d612d7465737421\
         03000000000000000068e5cf8b01000002000000000000000000000099353ae9"
    );
    let mut record = Vec::new();
    encode_record(&mut record, Layout::Plain, 7, 2, &change(5, 3));
    assert_eq!(
        hex(&record),
        "1f00000078b11a1207000000000000000000000010010200020001020001050f\
         000102000003000000fc16f53a0505050202000205000000"
    );
    let layout = Layout::Keyed(key());
    let keyed = encode_header(&JournalHeader { layout, ..header });
    assert_eq!(hex(&keyed[..16]), "50524f4d4a4e4c310200201000000400");
    assert_eq!(keyed[16..60], encode_header(&header)[16..60]);
    assert_eq!(keyed[60..64], crc32c::crc32c(&keyed[..60]).to_le_bytes());
    assert_eq!(hex(&keyed[64..92]), "0707070707070707070707070707070703000000000000004b455932");
    assert_eq!((&keyed[4_096..], keyed.len()), (&keyed[64..96], FIRST));
    let mut record = Vec::new();
    encode_record(&mut record, layout, 7, 2, &change(5, 3));
    assert_eq!(record.len(), record_bytes(&change(5, 3)));
    assert_eq!(hex(&record[..4]), "1f000000");
    assert_eq!(record[4..8], crc32c::crc32c(&record[32..32 + 31]).to_le_bytes());
    assert_eq!(hex(&record[8..24]), "07000000000000000000000010010200");
    assert_eq!(hex(&record[32..]), "020001020001050f000102000003000000fc16f53a0505050202000205000000");
}

#[test]
fn appended_changes_are_replayed_over_many_files_and_after_reopening() {
    let temp = crate::kv::scratch::temporary_folder().expect("temp");
    let groups: Vec<Vec<RowChanges>> = (0..200).map(|n| vec![change(n, 3_900), change(n, 10)]).collect();
    for half in groups.chunks(100) {
        written(temp.path(), half);
    }
    let (found, all) = changes(temp.path()).expect("whole");
    assert_eq!((found.first_seq(), found.last_seq(), found.records()), (Some(1), 400, 400));
    assert_eq!(all, groups.concat());
    assert!(found.files.len() >= 4 && found.files.iter().zip(1..).all(|(file, n)| file.number == n));
    // All files before the current one are full, and one spare follows it.
    assert_eq!(found.current, found.files.len() - 2);
    for file in &found.files {
        assert_eq!(std::fs::metadata(&file.path).expect("there").len(), FILE_BYTES as u64);
    }
    // Without a file in the middle, all other changes can still be read, and the missing ones are
    // reported.
    let (first, last) = (found.last_seq_in(0) + 1, found.last_seq_in(1));
    std::fs::remove_file(&found.files[1].path).expect("removed");
    let (without, rest) = changes(temp.path()).expect("read");
    assert_eq!((without.missing(1, 400), rest.len() as u64), (Some((first, last)), 400 - (last + 1 - first)));
    assert_eq!((without.damage.len(), &without.damage[0].path), (1, &found.files[1].path));
    // Without the first file as well, the journal is consistent by itself; control notices that it
    // does not begin with change 1.
    std::fs::remove_file(&found.files[0].path).expect("removed");
    let rest = survey(temp.path(), STORE).expect("read");
    assert_eq!(
        (rest.first_seq(), rest.missing(1, 400), rest.damage.len()),
        (Some(last + 1), Some((1, last)), 0)
    );
}

#[test]
fn covered_files_are_removed_oldest_first_and_the_rest_is_a_journal() {
    let temp = crate::kv::scratch::temporary_folder().expect("temp");
    let groups: Vec<Vec<RowChanges>> = (0..250).map(|n| vec![change(n, 3_900)]).collect();
    let found = survey(temp.path(), STORE).expect("empty");
    let mut journal = Journal::open(temp.path(), STORE, key(), &found, 0, at(1_000)).expect("open");
    groups.iter().for_each(|group| assert!(journal.append(group).is_ok()));
    let whole = survey(temp.path(), STORE).expect("whole");
    let ends: Vec<u64> = (0..whole.files.len()).map(|place| whole.last_seq_in(place)).collect();
    assert_eq!(journal.trim(ends[0] - 1).expect("trimmed"), 0);
    assert_eq!(journal.trim(ends[1]).expect("trimmed"), 2);
    assert_eq!(journal.trim(u64::MAX).expect("trimmed"), ends.len() as u64 - 3, "never the current one");
    let left = survey(temp.path(), STORE).expect("whole");
    assert_eq!(
        (left.first_seq(), left.last_seq(), left.damage.len()),
        (Some(ends[ends.len() - 2] + 1), 250, 0)
    );
    journal.append(&[change(1, 1)]).expect("append");
    assert_eq!(survey(temp.path(), STORE).expect("whole").last_seq(), 251);
}

#[test]
fn a_journal_torn_at_any_byte_gives_a_prefix() {
    let temp = crate::kv::scratch::temporary_folder().expect("temp");
    let all: Vec<RowChanges> = (0..6).map(|n| change(n, usize::from(n) * 9)).collect();
    written(temp.path(), std::slice::from_ref(&all));
    let found = survey(temp.path(), STORE).expect("whole");
    let path = &found.files[0].path;
    let whole = std::fs::read(path).expect("read");
    let ends: Vec<usize> = record_ends(&whole);
    std::fs::remove_file(&found.files[1].path).expect("the spare is not needed");
    for cut in FIRST..*ends.last().expect("six") + 8 {
        // A power cut keeps the length of the file and leaves zeros in place of unwritten bytes.
        let mut torn = whole.clone();
        torn[cut..].fill(0);
        std::fs::write(path, &torn).expect("write");
        let (found, got) = changes(temp.path()).expect("a torn tail");
        assert_eq!((&got[..], found.damage.len()), (&all[..got.len()], 0), "{cut}");
        // A record that loses only zeros is intact.
        let is_whole = |end: &&usize| whole.get(cut..**end).is_none_or(|lost| lost.iter().all(|b| *b == 0));
        assert_eq!(got.len(), ends.iter().filter(is_whole).count(), "{cut}");
        if let Some(torn) = &found.torn {
            trim(torn).expect("trimmed");
            let (again, same) = changes(temp.path()).expect("whole");
            assert_eq!((&again.torn, same, again.offset), (&None, got, found.offset));
            written(temp.path(), &[vec![change(9, 1)]]);
            let after = survey(temp.path(), STORE).expect("whole");
            assert_eq!(after.last_seq(), found.last_seq() + 1);
            std::fs::remove_file(&after.files[1].path).expect("removed");
        }
    }
}

#[test]
fn a_journal_file_truncated_at_any_byte_gives_its_prefix_and_counts_as_damaged() {
    let temp = crate::kv::scratch::temporary_folder().expect("temp");
    let all: Vec<RowChanges> = (0..6).map(|n| change(n, usize::from(n) * 9)).collect();
    written(temp.path(), std::slice::from_ref(&all));
    let path = temp.path().join("00000001.jnl");
    let whole = std::fs::read(&path).expect("read");
    // No other row is stored between the copies of the secret.
    for cut in (0..*record_ends(&whole).last().expect("six") + 8).filter(|cut| !(100..4_090).contains(cut)) {
        std::fs::write(&path, &whole[..cut]).expect("write");
        let (found, got) = changes(temp.path()).expect("read");
        assert_eq!(got, all[..got.len()], "{cut}");
        let [damage] = &found.damage[..] else { panic!("{cut}: {:?}", found.damage) };
        assert!(damage.is_last && damage.path == path && found.torn.is_none(), "{cut}: {damage:?}");
    }
}

#[test]
fn a_damaged_spare_file_is_distinguished_from_one_that_had_changes() {
    let temp = crate::kv::scratch::temporary_folder().expect("temp");
    written(temp.path(), &[vec![change(1, 5)]]);
    let spare = temp.path().join("00000002.jnl");
    let whole = std::fs::read(&spare).expect("read");
    for bit in 0..HEADER_BYTES * 8 {
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        std::fs::write(&spare, &bytes).expect("write");
        let found = survey(temp.path(), STORE).expect("read");
        assert!(found.files[1].unusable.is_some() && found.damage.is_empty(), "bit {bit}");
    }
    // A spare file is never all zeros or empty.
    for bytes in [vec![0; FILE_BYTES], Vec::new()] {
        std::fs::write(&spare, &bytes).expect("write");
        assert!(survey(temp.path(), STORE).expect("read").damage[0].is_last);
    }
}

fn record_ends(bytes: &[u8]) -> Vec<usize> {
    let mut ends = Vec::new();
    for run in scan_file(bytes, scan::layout_of(bytes, 1), 0, Some(1)).runs {
        let mut from = run.start;
        for _ in run.first..=run.last {
            let length = u32::from_le_bytes(bytes[from..from + 4].try_into().expect("four"));
            from += Layout::Keyed(key()).record_bytes(length as usize);
            ends.push(from);
        }
    }
    ends
}

/// Flips every bit of a journal whose changes came in `groups` and checks the result.
fn flip_every_bit(groups: &[Vec<RowChanges>]) {
    let all = groups.concat();
    let last_group = all.len() - groups.last().expect("one").len();
    let temp = crate::kv::scratch::temporary_folder().expect("temp");
    written(temp.path(), groups);
    let path = survey(temp.path(), STORE).expect("whole").files[0].path.clone();
    let whole = std::fs::read(&path).expect("read");
    let ends = record_ends(&whole);
    let records: Vec<(usize, usize)> =
        std::iter::once(FIRST).chain(ends.iter().copied()).zip(ends.iter().copied()).collect();
    let end = records.last().expect("some").1;
    let file = std::fs::OpenOptions::new().write(true).open(&path).expect("open");
    for bit in (0..(end + 16) * 8).filter(|bit| !(100..4_090).contains(&(bit / 8))) {
        let byte = whole[bit / 8] ^ (1 << (bit % 8));
        std::os::unix::fs::FileExt::write_all_at(&file, &[byte], (bit / 8) as u64).expect("write");
        let (found, got) = match changes(temp.path()) {
            Ok(read) => read,
            Err(e) => panic!("bit {bit}: {e}"),
        };
        std::os::unix::fs::FileExt::write_all_at(&file, &whole[bit / 8..=bit / 8], (bit / 8) as u64)
            .expect("write");
        let hit = records.iter().position(|(from, to)| (*from..*to).contains(&(bit / 8)));
        let missing = found.missing(1, all.len() as u64);
        match hit {
            None if bit / 8 < HEADER_BYTES => {
                assert_eq!((&got, found.damage.len(), missing), (&all, 1, None), "bit {bit} of the header");
            }
            None if bit / 8 < FIRST => {
                assert_eq!((&got, found.damage.len()), (&all, 0), "bit {bit} of one copy of the secret");
            }
            None => assert_eq!((&got, found.torn.is_some()), (&all, true), "bit {bit} behind the end"),
            // The file is neither torn nor damaged: the bit is padding, and all changes are
            // present.
            Some(hit) if found.torn.is_none() && found.damage.is_empty() => {
                assert!(bit / 8 + 8 > records[hit].1, "bit {bit} of record {hit} was not noticed");
                assert_eq!(got, all, "bit {bit}");
            }
            Some(hit) if hit < last_group => {
                let seq = hit as u64 + 1;
                assert_eq!((missing, found.damage[0].is_last), (Some((seq, seq)), false), "bit {bit}");
                let others: Vec<RowChanges> = [&all[..hit], &all[hit + 1..]].concat();
                assert_eq!(got, others, "bit {bit}");
            }
            Some(hit) => {
                assert!(found.torn.is_some() && found.damage.is_empty(), "bit {bit}");
                assert_eq!(got, all[..hit], "bit {bit}");
            }
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
fn a_later_file_proves_the_end_of_the_previous_one() {
    let temp = crate::kv::scratch::temporary_folder().expect("temp");
    let groups: Vec<Vec<RowChanges>> = (0..80).map(|n| vec![change(n, 3_900)]).collect();
    written(temp.path(), &groups);
    let found = survey(temp.path(), STORE).expect("whole");
    assert_eq!(found.current, 1);
    let (path, last) = (&found.files[0].path, found.last_seq_in(0));
    let mut bytes = std::fs::read(path).expect("read");
    let end = *record_ends(&bytes).last().expect("some");
    bytes[end - 100] ^= 1;
    std::fs::write(path, &bytes).expect("write");
    let found = survey(temp.path(), STORE).expect("read");
    assert_eq!((&found.damage[0].path, found.missing(1, 80)), (path, Some((last, last))));
    assert_eq!((&found.torn, found.last_seq()), (&None, 80));
}

/// Writes a journal of four changes, the second of which contains a whole record of version 1, or
/// of version 2 with another secret. The planted record has the number of the next change and
/// declares the second one durable.
fn with_a_planted_record(dir: &Path, layout: Layout, planted: Layout) -> (Vec<u8>, usize, usize) {
    let mut inner = Vec::new();
    encode_record(&mut inner, planted, 3, 1, &change(66, 3));
    let name = [1, 0, 0, 0, 0, 0, 0];
    let before = layout.record_header_bytes() + 2 + 5 + name.len() + 12;
    let mut value = vec![0; before.next_multiple_of(8) - before];
    value.extend_from_slice(&inner);
    let header = JournalHeader { store: STORE, number: 1, previous: 0, created: at(1), layout };
    let mut bytes = encode_header(&header);
    let changes = [change(1, 5), RowChanges::from([put(&name, &value)]), change(3, 5), change(4, 5)];
    let mut starts = Vec::new();
    for (seq, rows) in (1..).zip(&changes) {
        starts.push(bytes.len());
        encode_record(&mut bytes, layout, seq, 1, rows);
    }
    bytes.resize(FILE_BYTES, 0);
    let place = bytes.windows(inner.len()).position(|w| w == inner).expect("it is there");
    assert!(place % 8 == 0 && (starts[1]..starts[2]).contains(&place), "{place}");
    std::fs::write(dir.join("00000001.jnl"), &bytes).expect("write");
    (bytes, starts[1], starts[2])
}

#[test]
fn the_content_of_a_value_is_never_taken_for_a_record_after_any_damage_or_tear() {
    let others = Layout::Keyed(RecordKey::from_bytes([8; 16]));
    for (layout, planted) in [
        (Layout::Plain, Layout::Plain),
        (Layout::Keyed(key()), Layout::Plain),
        (Layout::Keyed(key()), others),
    ] {
        let temp = crate::kv::scratch::temporary_folder().expect("temp");
        let (whole, second, third) = with_a_planted_record(temp.path(), layout, planted);
        let path = temp.path().join("00000001.jnl");
        let forged = change(66, 3);
        // One flipped bit: the other changes are read.
        for byte in second..second + layout.record_header_bytes() + 8 {
            let mut bytes = whole.clone();
            bytes[byte] ^= 1;
            std::fs::write(&path, &bytes).expect("write");
            let (found, got) = changes(temp.path()).expect("read");
            assert_eq!(found.missing(1, 4), Some((2, 2)), "{layout:?} byte {byte}");
            assert_eq!(got, [change(1, 5), change(3, 5), change(4, 5)], "{layout:?} byte {byte}");
        }
        // Any other value of a byte of the header. In a file of version 1 a length that is too
        // small points into the value.
        let is_plain = layout == Layout::Plain;
        let every = rounds(5, 1);
        let values = |at: usize| (0..=u8::MAX).step_by(if at < 4 && is_plain { every } else { 23 });
        for (at, byte) in (0..layout.record_header_bytes()).flat_map(|at| values(at).map(move |b| (at, b))) {
            if whole[second + at] == byte {
                continue;
            }
            let mut bytes = whole.clone();
            bytes[second + at] = byte;
            std::fs::write(&path, &bytes).expect("write");
            let (found, got) = changes(temp.path()).expect("read");
            assert_eq!(found.missing(1, 4), Some((2, 2)), "{layout:?} byte {at} is {byte}");
            assert_eq!(got, [change(1, 5), change(3, 5), change(4, 5)], "{layout:?} byte {at} is {byte}");
        }
        // An unexplained length and checksum: the planted record is not read, and the damage is not
        // taken for a torn tail.
        for length in (0..third - second).step_by(rounds(40, 8)) {
            let mut bytes = whole.clone();
            bytes[second..second + 4].copy_from_slice(&u32::try_from(length).expect("small").to_le_bytes());
            bytes[second + 4] ^= 0x55;
            std::fs::write(&path, &bytes).expect("write");
            let (found, got) = changes(temp.path()).expect("read");
            assert!(!got.contains(&forged) && got.contains(&change(1, 5)), "{layout:?} length {length}");
            assert!(found.torn.is_none() && !found.damage.is_empty(), "{layout:?} length {length}");
        }
        // The header and everything after the record are zeroed, as by a torn write. In a file of
        // version 1 nothing is applied and the journal counts as damaged; in one of version 2 it is
        // a torn tail.
        for torn in [8, 24, 32] {
            let mut bytes = whole.clone();
            bytes[second..second + torn].fill(0);
            bytes[third..].fill(0);
            std::fs::write(&path, &bytes).expect("write");
            let (found, got) = changes(temp.path()).expect("read");
            assert!(!got.contains(&forged), "{layout:?}");
            assert_eq!(got, [change(1, 5)], "{layout:?}");
            assert_eq!((found.damage.len(), found.torn.is_none()), (usize::from(is_plain), is_plain));
        }
    }
}

#[test]
fn a_planted_number_cannot_be_greater_than_the_bytes_allow() {
    let temp = crate::kv::scratch::temporary_folder().expect("temp");
    let layout = Layout::Keyed(key());
    let header = JournalHeader { store: STORE, number: 1, previous: 0, created: at(1), layout };
    let mut bytes = encode_header(&header);
    encode_record(&mut bytes, layout, 1, 1, &change(1, 5));
    bytes.extend_from_slice(&[0xee; 64]);
    encode_record(&mut bytes, layout, 1 << 40, 1, &change(2, 5));
    bytes.resize(FILE_BYTES, 0);
    std::fs::write(temp.path().join("00000001.jnl"), &bytes).expect("write");
    let (found, got) = changes(temp.path()).expect("read");
    assert_eq!((found.last_seq(), got), (1, vec![change(1, 5)]));
}

#[test]
fn a_journal_of_version_1_continues_in_a_file_of_version_2() {
    let temp = crate::kv::scratch::temporary_folder().expect("temp");
    let plain = |number: u64, records: &[(u64, RowChanges)]| {
        let header = JournalHeader {
            store: STORE,
            number,
            previous: number - 1,
            created: at(1),
            layout: Layout::Plain,
        };
        let mut bytes = encode_header(&header);
        records.iter().for_each(|(seq, rows)| encode_record(&mut bytes, Layout::Plain, *seq, 1, rows));
        bytes.resize(FILE_BYTES, 0);
        std::fs::write(temp.path().join(file_name(number)), &bytes).expect("write");
        bytes
    };
    let first = plain(1, &[(1, change(1, 5)), (2, change(2, 5))]);
    plain(2, &[]);
    written(temp.path(), &[]);
    written(temp.path(), &[vec![change(3, 5)]]);
    written(temp.path(), &[vec![change(4, 5)]]);
    let (found, got) = changes(temp.path()).expect("whole");
    assert_eq!(got, [change(1, 5), change(2, 5), change(3, 5), change(4, 5)]);
    assert_eq!((found.damage.len(), &found.torn, found.files.len()), (0, &None, 3));
    assert!(!found.files[0].is_keyed && found.files[1].is_keyed && found.files[2].is_keyed);
    assert_eq!(std::fs::read(temp.path().join("00000001.jnl")).expect("read"), first, "left as it was");
}

#[test]
fn another_stores_a_newer_and_a_renamed_file_are_refused() {
    let temp = crate::kv::scratch::temporary_folder().expect("temp");
    written(temp.path(), &[vec![change(1, 1)]]);
    let other = StoreId([7; 16]);
    assert!(matches!(survey(temp.path(), other), Err(JournalError::Foreign { found: STORE, .. })));
    let path = temp.path().join("00000001.jnl");
    let whole = std::fs::read(&path).expect("read");
    let mut newer = whole.clone();
    newer[8] = 3;
    let crc = crc32c::crc32c(&newer[..60]).to_le_bytes();
    newer[60..64].copy_from_slice(&crc);
    std::fs::write(&path, &newer).expect("write");
    assert!(matches!(survey(temp.path(), STORE), Err(JournalError::Newer { found: 3, .. })));
    std::fs::write(&path, &whole).expect("write");
    std::fs::write(temp.path().join("00000002.jnl"), &whole).expect("write");
    let found = survey(temp.path(), STORE).expect("read");
    assert_eq!((found.records(), found.damage.len()), (1, 1), "the same file twice is read once");
}

proptest! {
    #[test]
    fn rows_survive_encoding_and_decoding(rows in prop::collection::btree_map(
        prop::collection::vec(any::<u8>(), 1..20), prop::option::of(prop::collection::vec(any::<u8>(), 0..50)), 0..10)
    ) {
        let rows: RowChanges = rows.into_iter().map(|(key, body)| match body {
            Some(body) => put(&key, &body),
            None => (key, None),
        }).collect();
        let mut record = Vec::new();
        let layout = Layout::Keyed(key());
        encode_record(&mut record, layout, 1, 1, &rows);
        prop_assert_eq!(record.len(), record_bytes(&rows));
        let mut file = vec![0; FIRST];
        file.extend_from_slice(&record);
        prop_assert_eq!(scan_file(&file, layout, 0, None).runs.len(), 1);
        prop_assert_eq!(decode_rows(&file[FIRST + 32..][..body_bytes(&rows)]), Ok(rows));
    }

    #[test]
    fn arbitrary_bytes_never_panic(mut bytes: Vec<u8>) {
        let _ = decode_rows(&bytes);
        for layout in [Layout::Plain, Layout::Keyed(key()), Layout::Lost] {
            let mut bytes = bytes.clone();
            bytes.splice(0..0, vec![0; layout.file_header_bytes()]);
            let _ = scan_file(&bytes, layout, 0, None);
            let _ = scan_file(&bytes, layout, 0, Some(1));
        }
    }
}

fn body_bytes(rows: &RowChanges) -> usize {
    2 + rows.iter().map(|(key, value)| 5 + key.len() + value.as_ref().map_or(0, Vec::len)).sum::<usize>()
}
