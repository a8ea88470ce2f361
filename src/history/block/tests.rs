//! Blocks that are written, read again, and damaged.

#![expect(clippy::arithmetic_side_effects, reason = "tests compute with small numbers")]

use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::ingest::prometheus_chunk::{ChunkEncoder, ChunkSample, EncodedChunk};
use crate::model::effort::rounds;
use crate::model::{
    BucketSpan, CounterReset, Histogram, HistogramCounts, HistogramShape, Labels, STALE_NAN_BITS, Timestamp,
};

type SeriesSamples = (Labels, Vec<(i64, ChunkSample)>);

/// Encodes samples in chunks of at most `most` samples.
fn encoded(samples: &[(i64, ChunkSample)], most: u16) -> Vec<EncodedChunk> {
    let (mut chunk, mut all) = (ChunkEncoder::default(), Vec::new());
    for (at, sample) in samples {
        if chunk.samples() >= most || !chunk.push(*at, sample) {
            all.extend(chunk.take());
            assert!(chunk.push(*at, sample));
        }
    }
    all.extend(chunk.take());
    all
}

fn write(parent: &Path, series: &[SeriesSamples]) -> Option<WrittenBlock> {
    let ulid = Ulid::new(Timestamp::from_ms(1_795_731_540_000), 0x1234_5678_9abc_def0_1122);
    let mut writer =
        BlockWriter::create(parent, ulid, series.iter().map(|(labels, _)| labels)).expect("a folder");
    for (labels, samples) in series {
        writer.add_series(labels, &encoded(samples, 50)).expect("written");
    }
    writer.finish().expect("written")
}

fn read(folder: &Path) -> Result<Vec<SeriesSamples>, BlockError> {
    let mut block = BlockReader::open(folder)?;
    block.verify()?;
    let mut all = Vec::new();
    for place in 0..block.series_count() {
        let series = block.series(place)?;
        let mut samples = Vec::new();
        block.samples(&series, |at, sample| samples.push((at, sample)))?;
        all.push((series.labels, samples));
    }
    Ok(all)
}

fn native(count: u64, reset: CounterReset) -> ChunkSample {
    let spans = vec![BucketSpan { offset: -2, length: 2 }];
    let shape = HistogramShape::new(3, 0.001, Vec::new(), spans, Vec::new()).expect("valid");
    let counts = HistogramCounts::Integer { count: count + 3, zero: count, buckets: vec![1, 2] };
    ChunkSample::Native(Histogram::new(Arc::new(shape), reset, 1.5, counts).expect("valid"))
}

fn example() -> Vec<SeriesSamples> {
    let float = |at: i64| (at, ChunkSample::Float(at as f64 / 7.0));
    let mut mixed: Vec<(i64, ChunkSample)> = (0..20).map(|at| float(at * 1_000)).collect();
    mixed.push((30_000, native(1, CounterReset::Unknown)));
    mixed.push((31_000, native(2, CounterReset::NotReset)));
    mixed.push((32_000, ChunkSample::Native(Histogram::stale())));
    mixed.push((33_000, native(0, CounterReset::Reset)));
    mixed.push((40_000, ChunkSample::Float(f64::from_bits(STALE_NAN_BITS))));
    let long = (0..500).map(|at| float(at * 15_000 - 100_000)).collect();
    vec![
        (Labels::from_pairs([("__name__", "a"), ("zone", "ä")]), mixed),
        (Labels::from_pairs([("__name__", "b")]), long),
        (Labels::from_pairs([("__name__", "b"), ("job", "api")]), vec![float(7)]),
    ]
}

#[test]
fn a_written_block_is_read_again_with_the_same_samples() {
    let dir = tempfile::tempdir().expect("a folder");
    let block = write(dir.path(), &example()).expect("a block");
    assert_eq!(block.folder.file_name().and_then(|name| name.to_str()), Some(block.meta.ulid.as_str()));
    assert_eq!((block.meta.min_time, block.meta.max_time), (-100_000, 499 * 15_000 - 100_000 + 1));
    assert_eq!(BlockMeta::read(&block.folder).expect("a description"), block.meta);
    let found = read(&block.folder).expect("a block");
    assert_eq!(format!("{found:?}"), format!("{:?}", example()));
    let counts = BlockReader::open(&block.folder).expect("a block").verify().expect("undamaged");
    assert_eq!((counts.series, counts.chunks, counts.samples), (3, block.meta.stats.num_chunks, 526));
    assert_eq!(block.meta.stats.num_histogram_samples, 4);
    assert_eq!(std::fs::read_dir(dir.path()).expect("a folder").count(), 1, "the temporary folder is gone");
}

#[test]
fn a_block_without_samples_is_not_written() {
    let dir = tempfile::tempdir().expect("a folder");
    let none = vec![(Labels::from_pairs([("__name__", "a")]), Vec::new())];
    assert_eq!(write(dir.path(), &none), None);
    assert_eq!(std::fs::read_dir(dir.path()).expect("a folder").count(), 0);
}

#[test]
fn series_out_of_order_and_overlapping_chunks_are_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    let series = example();
    let labels = series.iter().map(|(labels, _)| labels);
    let mut writer =
        BlockWriter::create(dir.path(), Ulid::new(Timestamp::from_ms(1), 1), labels).expect("a folder");
    let chunks = encoded(&series[2].1, 50);
    writer.add_series(&series[2].0, &chunks).expect("written");
    for (labels, chunks) in [(&series[1].0, &chunks), (&series[2].0, &chunks)] {
        assert!(matches!(writer.add_series(labels, chunks), Err(BlockError::Limit(_))));
    }
    let twice = [chunks[0].clone(), chunks[0].clone()];
    let later = Labels::from_pairs([("__name__", "b"), ("job", "zoo")]);
    assert!(matches!(writer.add_series(&later, &twice), Err(BlockError::Limit(_))));
}

#[test]
fn the_tombstones_of_a_block_hide_samples() {
    let dir = tempfile::tempdir().expect("a folder");
    let block = write(dir.path(), &example()).expect("a block");
    let number = BlockReader::open(&block.folder).expect("a block").series(1).expect("a series").number;
    let mut content = Vec::new();
    super::bytes::put_uvarint(number, &mut content);
    super::bytes::put_varint(-100_000, &mut content);
    super::bytes::put_varint(50_000, &mut content);
    let mut file = vec![0x01, 0x30, 0xba, 0x30, 1];
    file.extend_from_slice(&content);
    file.extend_from_slice(&checksum(&content).to_be_bytes());
    std::fs::write(block.folder.join("tombstones"), &file).expect("written");
    let found = read(&block.folder).expect("a block");
    assert_eq!((found[1].1.len(), found[1].1[0].0), (489, 65_000));
    assert_eq!(found[0].1.len(), 25, "the other series is whole");
    for place in 0..file.len() {
        let mut broken = file.clone();
        broken[place] ^= 4;
        std::fs::write(block.folder.join("tombstones"), &broken).expect("written");
        assert!(matches!(read(&block.folder), Err(BlockError::Damaged { .. })), "{place}");
    }
}

#[test]
fn a_flipped_bit_in_each_part_of_a_block_is_found_with_its_file() {
    let dir = tempfile::tempdir().expect("a folder");
    let block = write(dir.path(), &example()).expect("a block");
    let expected = format!("{:?}", read(&block.folder).expect("a block"));
    for name in ["index", "chunks/000001"] {
        let path = block.folder.join(name);
        let whole = std::fs::read(&path).expect("a file");
        let mut unnoticed = 0;
        for place in (0..whole.len()).step_by(rounds(5, 1)) {
            let mut broken = whole.clone();
            broken[place] ^= 1 << (place % 8);
            std::fs::write(&path, &broken).expect("written");
            match read(&block.folder) {
                Ok(found) => {
                    // Bytes that align the next part, and positions that no reader uses.
                    unnoticed += 1;
                    assert_eq!(format!("{found:?}"), expected, "byte {place} of {name}");
                }
                Err(BlockError::Damaged { file, offset, .. }) => {
                    assert!(file == path || name == "index", "byte {place} of {name}: {}", file.display());
                    assert!(offset <= whole.len() as u64);
                }
                Err(other) => panic!("byte {place} of {name}: {other}"),
            }
        }
        assert!(unnoticed < 80, "{unnoticed} of {name}");
        std::fs::write(&path, &whole).expect("written");
    }
}

#[test]
fn a_description_with_a_flipped_bit_is_refused_or_means_the_same_samples() {
    let dir = tempfile::tempdir().expect("a folder");
    let block = write(dir.path(), &example()).expect("a block");
    let expected = format!("{:?}", read(&block.folder).expect("a block"));
    let path = block.folder.join("meta.json");
    let whole = std::fs::read(&path).expect("a file");
    for place in (0..whole.len() * 8).step_by(rounds(7, 1)) {
        let mut broken = whole.clone();
        broken[place / 8] ^= 1 << (place % 8);
        std::fs::write(&path, &broken).expect("written");
        if let Ok(found) = read(&block.folder) {
            assert_eq!(format!("{found:?}"), expected);
        }
    }
}

#[test]
fn a_truncated_block_and_a_block_without_a_file_are_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    let block = write(dir.path(), &example()).expect("a block");
    for name in ["index", "chunks/000001", "meta.json"] {
        let path = block.folder.join(name);
        let whole = std::fs::read(&path).expect("a file");
        for length in [0, 4, 7, whole.len() / 2, whole.len() - 1] {
            std::fs::write(&path, &whole[..length]).expect("written");
            assert!(read(&block.folder).is_err(), "{length} bytes of {name}");
        }
        std::fs::remove_file(&path).expect("removed");
        assert!(read(&block.folder).is_err(), "no {name}");
        std::fs::write(&path, &whole).expect("written");
    }
    assert!(read(&block.folder).is_ok());
}

#[test]
fn a_length_beyond_the_file_is_refused_before_memory_is_allocated() {
    let dir = tempfile::tempdir().expect("a folder");
    let block = write(dir.path(), &example()).expect("a block");
    let path = block.folder.join("index");
    let mut bytes = std::fs::read(&path).expect("a file");
    // The length of the symbols.
    bytes[5..9].copy_from_slice(&[0xff; 4]);
    std::fs::write(&path, &bytes).expect("written");
    let refused = read(&block.folder).expect_err("refused").to_string();
    assert!(refused.contains("index at byte 5: a section of 4294967295 bytes"), "{refused}");
}

#[test]
fn a_ulid_is_written_as_it_is_parsed() {
    for text in ["01KB2H0FM06E1DH7PBJP0KX5T9", "00000000000000000000000000", "7ZZZZZZZZZZZZZZZZZZZZZZZZZ"] {
        assert_eq!(Ulid::parse(text).map(|ulid| ulid.to_string()).as_deref(), Some(text));
    }
    for text in ["", "8ZZZZZZZZZZZZZZZZZZZZZZZZZ", "01KB2H0FM06E1DH7PBJP0KX5T", "01kb2h0fm06e1dh7pbjp0kx5t9"]
    {
        assert_eq!(Ulid::parse(text), None, "{text}");
    }
    let earlier = Ulid::new(Timestamp::from_ms(1_000), u128::MAX);
    assert!(earlier < Ulid::new(Timestamp::from_ms(1_001), 0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn arbitrary_files_never_panic_the_reader_of_blocks(
        index in prop::collection::vec(any::<u8>(), 0..400),
        chunks in prop::collection::vec(any::<u8>(), 0..200),
        tombstones in prop::collection::vec(any::<u8>(), 0..60),
    ) {
        let dir = tempfile::tempdir().expect("a folder");
        let block = write(dir.path(), &example()).expect("a block");
        for (name, bytes) in [("tombstones", &tombstones), ("chunks/000001", &chunks), ("index", &index)] {
            std::fs::write(block.folder.join(name), bytes).expect("written");
            prop_assert!(read(&block.folder).is_err());
        }
    }
}
