//! Logs and head chunks as Prometheus writes them, and damaged ones.

#![expect(clippy::arithmetic_side_effects, reason = "tests compute with small numbers")]

use std::path::Path;

use proptest::prelude::*;

use super::record::{LogEntry, decode};
use super::*;
use crate::history::block::checksum;
use crate::ingest::prometheus_chunk::{ChunkEncoder, ChunkSample};

fn fragment(kind: u8, data: &[u8], out: &mut Vec<u8>) {
    out.push(kind);
    out.extend_from_slice(&u16::try_from(data.len()).expect("short").to_be_bytes());
    out.extend_from_slice(&checksum(data).to_be_bytes());
    out.extend_from_slice(data);
}

/// Writes records into pages, as Prometheus does. `compression` is 0, 1 (snappy) or 2 (zstd).
fn segment(records: &[Vec<u8>], compression: u8) -> Vec<u8> {
    let mut out = Vec::new();
    for record in records {
        let bytes = match compression {
            1 => snap::raw::Encoder::new().compress_vec(record).expect("compressed"),
            2 => zstd::bulk::compress(record, 1).expect("compressed"),
            _ => record.clone(),
        };
        let mut rest = &bytes[..];
        let mut is_first = true;
        loop {
            let mut left = 32_768 - out.len() % 32_768;
            if left < 8 {
                out.resize(out.len() + left, 0);
                left = 32_768;
            }
            let (some, more) = rest.split_at(rest.len().min(left - 7));
            let kind = match (is_first, more.is_empty()) {
                (true, true) => 1,
                (true, false) => 2,
                (false, false) => 3,
                (false, true) => 4,
            };
            fragment(kind | compression << 3, some, &mut out);
            (rest, is_first) = (more, false);
            if rest.is_empty() {
                break;
            }
        }
    }
    out.resize(out.len().next_multiple_of(32_768), 0);
    out
}

fn series(number: u64, labels: &[(&str, &str)]) -> Vec<u8> {
    let mut out = vec![1];
    out.extend_from_slice(&number.to_be_bytes());
    out.push(u8::try_from(labels.len()).expect("few"));
    for text in labels.iter().flat_map(|(name, value)| [name, value]) {
        out.push(u8::try_from(text.len()).expect("short"));
        out.extend_from_slice(text.as_bytes());
    }
    out
}

fn varint(value: i64, out: &mut Vec<u8>) {
    let mut value = (value << 1 ^ value >> 63).cast_unsigned();
    while value >= 0x80 {
        out.push(u8::try_from(value & 0x7f).expect("small") | 0x80);
        value >>= 7;
    }
    out.push(u8::try_from(value).expect("small"));
}

fn floats(samples: &[(u64, i64, f64)]) -> Vec<u8> {
    let mut out = vec![2];
    let (first, time, _) = samples[0];
    out.extend_from_slice(&first.to_be_bytes());
    out.extend_from_slice(&time.to_be_bytes());
    for (number, at, value) in samples {
        varint(number.wrapping_sub(first).cast_signed(), &mut out);
        varint(at - time, &mut out);
        out.extend_from_slice(&value.to_be_bytes());
    }
    out
}

fn deletion(number: u64, start: i64, end: i64) -> Vec<u8> {
    let mut out = vec![3];
    out.extend_from_slice(&number.to_be_bytes());
    varint(start, &mut out);
    varint(end, &mut out);
    out
}

/// The series of a chunk, its samples, and whether they arrived out of order.
type TestChunk<'c> = (u64, &'c [(i64, f64)], bool);

fn head_chunks(chunks: &[TestChunk<'_>]) -> Vec<u8> {
    let mut out = vec![0x01, 0x30, 0xbc, 0x91, 1, 0, 0, 0];
    for (number, samples, is_late) in chunks {
        let mut encoder = ChunkEncoder::default();
        assert!(samples.iter().all(|(at, value)| encoder.push_float(*at, *value)));
        let chunk = encoder.take().expect("samples");
        let start = out.len();
        for word in [number.cast_signed(), chunk.first_ms, chunk.last_ms] {
            out.extend_from_slice(&word.to_be_bytes());
        }
        out.push(if *is_late { 0x81 } else { 1 });
        out.push(u8::try_from(chunk.data.len()).expect("short"));
        out.extend_from_slice(&chunk.data);
        let sum = checksum(&out[start..]);
        out.extend_from_slice(&sum.to_be_bytes());
    }
    out.resize(out.len() + 100, 0);
    out
}

fn put(data: &Path, name: &str, bytes: &[u8]) {
    let path = data.join(name);
    std::fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
    std::fs::write(path, bytes).expect("written");
}

fn read(data: &Path, valid_from_ms: i64) -> (Vec<(String, i64, f64)>, Vec<String>) {
    let mut head = HeadReader::open(data, valid_from_ms).expect("a head");
    let mut all = Vec::new();
    head.samples(&mut |one| {
        if let ChunkSample::Float(value) = one.sample {
            all.push((one.labels.metric_name().to_owned(), one.at_ms, value));
        }
        Ok(())
    })
    .expect("samples");
    all.sort_by(|a, b| a.partial_cmp(b).expect("no NaN"));
    (all, head.problems().to_vec())
}

fn example(data: &Path, compression: u8) {
    let old = segment(&[series(9, &[("__name__", "gone")])], compression);
    let checkpoint = segment(&[series(1, &[("__name__", "a"), ("job", "x")])], compression);
    let long = vec![("long", "x".repeat(100)); 1];
    let mut many = series(2, &[("__name__", "b")]);
    for number in 10..4_000_u64 {
        many.extend_from_slice(&series(number, &[("__name__", "filler"), (long[0].0, &long[0].1)])[1..]);
    }
    let records = [
        many,
        floats(&[(1, 1_000, 1.0), (2, 1_000, 2.0), (1, 2_000, 3.0), (77_777, 5, 0.0)]),
        deletion(2, 500, 1_500),
        floats(&[(2, 3_000, 4.0), (1, 3_000, 5.0)]),
    ];
    put(data, "wal/00000002", &old);
    put(data, "wal/checkpoint.00000002/00000000", &checkpoint);
    put(data, "wal/checkpoint.00000001/00000000", b"an older checkpoint is not read");
    put(data, "wal/00000003", &segment(&records, compression));
    put(
        data,
        "chunks_head/000001",
        &head_chunks(&[(1, &[(500, 0.5), (1_000, 1.0)], false), (2, &[(100, 0.1)], true)]),
    );
    put(data, "wbl/00000000", &segment(&[floats(&[(2, 90, 0.2)])], compression));
}

#[test]
fn the_head_has_the_samples_of_chunks_log_and_late_log_in_every_compression() {
    for compression in 0..3 {
        let dir = tempfile::tempdir().expect("a folder");
        example(dir.path(), compression);
        let (found, problems) = read(dir.path(), i64::MIN);
        let one = |name: &str, at: i64, value: f64| (name.to_owned(), at, value);
        let expected = [
            one("a", 500, 0.5),
            one("a", 1_000, 1.0),
            one("a", 2_000, 3.0),
            one("a", 3_000, 5.0),
            one("b", 90, 0.2),
            one("b", 100, 0.1),
            one("b", 3_000, 4.0),
        ];
        assert_eq!((found.as_slice(), problems.as_slice()), (&expected[..], &[][..]));
        let (found, _) = read(dir.path(), 2_500);
        assert_eq!(found.len(), 4, "samples in order before the end of the blocks are in blocks: {found:?}");
    }
}

#[test]
fn a_log_that_was_cut_off_ends_at_its_last_whole_record() {
    let dir = tempfile::tempdir().expect("a folder");
    example(dir.path(), 1);
    let path = dir.path().join("wal/00000003");
    let whole = std::fs::read(&path).expect("a file");
    let used = whole.iter().rposition(|byte| *byte != 0).expect("bytes") + 1;
    for length in (0..used).step_by(11) {
        std::fs::write(&path, &whole[..length]).expect("written");
        let (found, problems) = read(dir.path(), i64::MIN);
        assert!(problems.is_empty() && found.len() <= 7, "{length}: {problems:?}");
    }
}

#[test]
fn a_flipped_bit_in_a_log_or_a_head_chunk_is_named_with_file_and_offset_and_the_rest_is_read() {
    let dir = tempfile::tempdir().expect("a folder");
    example(dir.path(), 0);
    for (name, step) in [("wal/00000003", 9_973), ("chunks_head/000001", 1), ("wbl/00000000", 1)] {
        let path = dir.path().join(name);
        let whole = std::fs::read(&path).expect("a file");
        let used = whole.iter().rposition(|byte| *byte != 0).expect("bytes") + 1;
        let mut named = 0;
        for place in (0..used).step_by(step) {
            let mut broken = whole.clone();
            broken[place] ^= 1;
            std::fs::write(&path, &broken).expect("written");
            let (found, problems) = read(dir.path(), i64::MIN);
            named += usize::from(problems.iter().any(|one| one.contains(name) && one.contains("at byte")));
            assert!(found.len() <= 8, "{place} of {name}: {found:?}");
        }
        assert!(named * 10 > used.div_ceil(step) * 8, "{named} of {used} flips in {name} were named");
        std::fs::write(&path, &whole).expect("written");
    }
}

#[test]
fn a_record_that_decompresses_to_more_than_its_limit_is_refused() {
    for compression in [1, 2] {
        let dir = tempfile::tempdir().expect("a folder");
        put(dir.path(), "wal/00000000", &segment(&[vec![0; 80 << 20]], compression));
        let (found, problems) = read(dir.path(), i64::MIN);
        assert!(found.is_empty() && problems[0].contains("more than 67108864 bytes"), "{problems:?}");
    }
}

#[test]
fn histograms_of_a_record_are_decoded() {
    let mut record = vec![9];
    record.extend_from_slice(&7_u64.to_be_bytes());
    record.extend_from_slice(&1_000_u64.to_be_bytes());
    varint(0, &mut record);
    varint(5, &mut record);
    record.push(2);
    varint(-53, &mut record);
    record.extend_from_slice(&0_f64.to_be_bytes());
    record.extend_from_slice(&[0, 6]);
    record.extend_from_slice(&1.5_f64.to_be_bytes());
    // One positive span of three buckets with 1, 2 and 3 observations, no negative one.
    record.extend_from_slice(&[1, 0, 3, 0, 3, 2, 2, 2, 0]);
    record.push(2);
    record.extend_from_slice(&0.5_f64.to_be_bytes());
    record.extend_from_slice(&1_f64.to_be_bytes());
    let mut found = Vec::new();
    decode(&record, &mut |entry| found.push(entry)).expect("a record");
    let [LogEntry::Native { series: 7, at_ms: 1_005, value }] = &found[..] else { panic!("{found:?}") };
    assert_eq!((value.count(), value.sum(), value.shape().custom_values()), (6.0, 1.5, &[0.5, 1.0][..]));
}

proptest! {
    #[test]
    fn arbitrary_records_never_panic_the_decoder_of_records(
        kind in 0u8..14,
        rest in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let record = [&[kind][..], &rest].concat();
        let _ = decode(&record, &mut |_| {});
    }

    #[test]
    fn arbitrary_files_never_panic_the_reader_of_a_head(
        log in prop::collection::vec(any::<u8>(), 0..300),
        chunks in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let dir = tempfile::tempdir().expect("a folder");
        put(dir.path(), "wal/00000000", &log);
        put(dir.path(), "wal/00000001", &segment(std::slice::from_ref(&log), 0));
        put(dir.path(), "chunks_head/000001", &[&[0x01, 0x30, 0xbc, 0x91, 1, 0, 0, 0][..], &chunks].concat());
        let _ = read(dir.path(), 0);
    }
}
