//! Tests of reads of written, damaged and hostile segments.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::path::Path;

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::model::{METRIC_NAME, OrgId, TimeRange, Timestamp};
use crate::tsdb::report::SampleColumns;
use crate::tsdb::segment::{HISTOGRAMS, LATE, NewSegment, SegmentWriteError, SegmentWriter};

const STORE: StoreId = StoreId([9; 16]);
const STALE: u64 = 0x7ff0_0000_0000_0002;

/// Label values of a series, and its samples as times and bit patterns.
type WrittenSeries = (Vec<String>, Vec<(i64, u64)>);
/// Series by id, by metric name and other label names.
type SegmentContent = BTreeMap<(String, Vec<String>), BTreeMap<u32, WrittenSeries>>;

fn new_segment(flags: u8) -> NewSegment {
    NewSegment {
        org: OrgId(3),
        seq: 12,
        level: 1,
        flags,
        first_log_seq: 100,
        last_log_seq: 230,
        replaces: vec![4, 5, 9],
    }
}

/// Returns all label names of a family, and the index of the metric name among them.
fn all_names(others: &[String]) -> (Vec<&str>, usize) {
    let mut names: Vec<&str> = others.iter().map(String::as_str).collect();
    let place = names.partition_point(|name| *name < METRIC_NAME);
    names.insert(place, METRIC_NAME);
    (names, place)
}

fn write(dir: &Path, content: &SegmentContent, flags: u8) -> SegmentMeta {
    let mut writer = SegmentWriter::create(dir, STORE, new_segment(flags)).expect("created");
    // The caller's order of families differs from that in the file.
    for ((metric, others), rows) in content.iter().rev() {
        let (names, place) = all_names(others);
        writer.family(&names).expect("a family");
        for (id, (values, samples)) in rows {
            let mut values: Vec<&str> = values.iter().map(String::as_str).collect();
            values.insert(place, metric);
            let (times, bits): (Vec<i64>, Vec<u64>) = samples.iter().copied().unzip();
            writer.series(*id, &values, &times, &bits).expect("a series");
        }
    }
    writer.finish().expect("finished")
}

/// Finds the family of a metric name with exactly these label names.
fn family_of(segment: &Segment, metric: &str, names: &[&str]) -> Option<usize> {
    (0..segment.families()).find(|family| {
        segment.metric(*family).is_ok_and(|found| found.as_deref() == Some(metric))
            && segment.names(*family).is_ok_and(|found| found == names)
    })
}

fn read(
    segment: &Segment,
    family: usize,
    row: usize,
    range: TimeRange,
) -> Result<Vec<(i64, u64)>, SegmentDamage> {
    let mut out = SampleColumns::default();
    segment.read(
        FamilyRow { rows: &segment.rows(family)?, row },
        range,
        &mut TimelineCache::default(),
        None,
        &mut out,
    )?;
    Ok(out.times.iter().copied().zip(out.values.iter().map(|value| value.to_bits())).collect())
}

/// Checks that every read returns the written content or an error.
fn check(segment: &Segment, content: &SegmentContent, ranges: &[TimeRange]) -> Result<(), SegmentDamage> {
    for ((metric, others), rows) in content {
        let (names, place) = all_names(others);
        let rows: Vec<_> = rows.iter().filter(|(_, (_, samples))| !samples.is_empty()).collect();
        let Some(family) = family_of(segment, metric, &names) else {
            segment.intact()?;
            assert!(rows.is_empty(), "no family {metric} {names:?}");
            continue;
        };
        assert_eq!(segment.names(family)?, names);
        assert_eq!(segment.metric(family)?.as_deref(), Some(metric.as_str()));
        let Some(ids) = segment.ids(family) else { return segment.intact() };
        let found: Vec<u32> = ids.iter().collect();
        segment.intact()?;
        assert_eq!(found, rows.iter().map(|(id, _)| **id).collect::<Vec<_>>());
        for (row, (id, (values, samples))) in rows.iter().enumerate() {
            assert_eq!(segment.row_of(family, **id), Some(row));
            // The search succeeds from any row, and for absent series.
            for near in [0, row.saturating_sub(1), row, row + 1, rows.len() / 2, rows.len(), rows.len() + 5] {
                assert_eq!(ids.row_near(near, **id), Some(row), "from {near}");
                let next = found.binary_search(&id.wrapping_add(1)).ok();
                assert_eq!(ids.row_near(near, id.wrapping_add(1)), next, "from {near}");
            }
            let span = samples.first().zip(samples.last()).map(|(first, last)| (first.0, last.0));
            assert_eq!(segment.span(family, row), span);
            let labels = segment.series_labels(family, row)?;
            let mut expected: Vec<&str> = values.iter().map(String::as_str).collect();
            expected.insert(place, metric);
            assert_eq!(labels.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), names);
            assert_eq!(labels.iter().map(|(_, value)| value.as_str()).collect::<Vec<_>>(), expected);
            for range in ranges {
                let within = |time| range.contains(Timestamp::from_ms(time));
                let expected: Vec<_> = samples.iter().copied().filter(|(time, _)| within(*time)).collect();
                assert_eq!(read(segment, family, row, *range)?, expected, "{range:?}");
            }
        }
    }
    Ok(())
}

fn range(start: i64, end: i64) -> TimeRange {
    TimeRange::new(Timestamp::from_ms(start), Timestamp::from_ms(end))
}

fn samples() -> impl Strategy<Value = Vec<(i64, u64)>> {
    let bits = prop_oneof![
        (0u32..1_000).prop_map(|n| f64::from(n).to_bits()),
        (0u32..1_000).prop_map(|n| (f64::from(n) / 100.0).to_bits()),
        any::<u64>(),
        Just(STALE),
        Just((-0.0f64).to_bits()),
    ];
    let start = prop_oneof![Just(-20_000i64), Just(0), Just(1_700_000_000_000), -3_000_000_000_000i64..0];
    let step = prop_oneof![Just(15_000i64), 1i64..40_000];
    (start, prop::collection::vec((step, bits), 0..40), 1usize..80).prop_map(|(start, steps, copies)| {
        let mut at = start;
        // Some series are longer than a block.
        let many = if steps.len() > 30 { copies } else { 1 };
        let next = |(step, bits): &(i64, u64)| {
            at += step;
            (at, *bits)
        };
        steps.iter().cycle().take(steps.len() * many).map(next).collect()
    })
}

fn content() -> impl Strategy<Value = SegmentContent> {
    let value = || prop_oneof!["[ab]{1,3}", "ä?[x-z]{0,2}"];
    let names = prop::sample::subsequence(vec!["Zone", "job", "le", "pod"], 0..=3);
    let key =
        ("(up|down|a:b)", names.prop_map(|names| names.into_iter().map(str::to_owned).collect::<Vec<_>>()));
    let series = (prop::collection::vec(value(), 3), samples());
    let rows = prop::collection::btree_map(prop_oneof![0u32..40, Just(u32::MAX)], series, 1..8);
    prop::collection::btree_map(key, rows, 1..5).prop_map(|mut content| {
        for ((_, names), rows) in &mut content {
            rows.values_mut().for_each(|(values, _)| values.truncate(names.len()));
        }
        content
    })
}

fn has_samples(content: &SegmentContent) -> bool {
    content.values().flat_map(BTreeMap::values).any(|(_, samples)| !samples.is_empty())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn a_segment_returns_what_was_written(content in content(), a in -30_000i64..300_000, b in -30_000i64..300_000, flags in 0u8..4) {
        prop_assume!(has_samples(&content));
        let dir = TempDir::new().expect("a folder");
        let meta = write(dir.path(), &content, flags);
        let segment = Segment::open(dir.path(), STORE, &meta).expect("opened");
        let ranges = [TimeRange::ALL, range(a, b), range(1_700_000_000_000, 1_700_000_100_000), range(b, b)];
        check(&segment, &content, &ranges).expect("whole");
        segment.verify(true).expect("whole");
        let series = content.values().flat_map(BTreeMap::values).filter(|(_, samples)| !samples.is_empty());
        let all: Vec<i64> = series.clone().flat_map(|(_, samples)| samples).map(|(time, _)| *time).collect();
        prop_assert_eq!(meta.samples, all.len() as u64);
        prop_assert_eq!(meta.series as usize, series.count());
        prop_assert_eq!((Some(&meta.min_ms), Some(&meta.max_ms)), (all.iter().min(), all.iter().max()));
        prop_assert_eq!(meta.file_bytes, fs::metadata(segment.path.as_path()).expect("there").len());
        let hash = <sha2::Sha256 as sha2::Digest>::digest(fs::read(segment.path.as_path()).expect("read"));
        prop_assert_eq!(&meta.sha256[..], &hash[..16]);
        // The file alone gives the same entry.
        let alone = Segment::open_unlisted(segment.path.as_path(), STORE, None).expect("opened");
        prop_assert_eq!(&SegmentMeta { sha256: meta.sha256, ..alone.meta().clone() }, &meta);
    }

    #[test]
    fn damage_is_an_error_and_never_returns_other_data(
        content in content(),
        flips in prop::collection::vec((any::<prop::sample::Index>(), 1u8..=255), 0..3),
        cut in prop::option::of(any::<prop::sample::Index>()),
        listed: bool,
    ) {
        prop_assume!(has_samples(&content));
        let dir = TempDir::new().expect("a folder");
        let meta = write(dir.path(), &content, LATE);
        let path = dir.path().join(meta.file_name());
        let mut bytes = fs::read(&path).expect("read");
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        for (place, bits) in flips {
            if !bytes.is_empty() {
                let place = place.index(bytes.len());
                bytes[place] ^= bits;
            }
        }
        fs::write(&path, &bytes).expect("written");
        let opened = if listed {
            Segment::open(dir.path(), STORE, &meta)
        } else {
            Segment::open_unlisted(&path, STORE, None)
        };
        if let Ok(segment) = opened {
            let _ = check(&segment, &content, &[TimeRange::ALL]);
            let _ = segment.verify(true);
        }
    }

    /// A hostile directory with matching checksums causes no panic.
    #[test]
    fn a_hostile_directory_never_panics(content in content(), flips in prop::collection::vec((any::<prop::sample::Index>(), 1u8..=255), 1..4)) {
        prop_assume!(has_samples(&content));
        let dir = TempDir::new().expect("a folder");
        let meta = write(dir.path(), &content, 0);
        let path = dir.path().join(meta.file_name());
        let mut bytes = fs::read(&path).expect("read");
        let Footer { mut sections, .. } = Footer::decode(&bytes, STORE, meta.org, meta.flags).expect("whole");
        let start = usize::try_from(sections[COLUMNS].offset).expect("small");
        let end = usize::try_from(sections[DICTIONARIES].offset + sections[DICTIONARIES].bytes).expect("small");
        for (place, bits) in flips {
            bytes[start + place.index(end - start)] ^= bits;
        }
        for section in [COLUMNS, FAMILIES, DICTIONARIES] {
            let from = usize::try_from(sections[section].offset).expect("small");
            let to = from + usize::try_from(sections[section].bytes).expect("small");
            sections[section].crc = crc32c::crc32c(&bytes[from..to]);
        }
        let footer_at = bytes.len() - TAIL_BYTES - 120 - 56 - 8 * meta.replaces.len();
        let mut footer = Footer { sections, meta };
        bytes.truncate(footer_at);
        let encoded = footer.encode(STORE, footer_at as u64);
        bytes.extend_from_slice(&encoded);
        fs::write(&path, &bytes).expect("written");
        if let Ok(segment) = Segment::open(dir.path(), STORE, &footer.meta) {
            for family in 0..segment.families().min(100) {
                let _ = (segment.names(family), segment.metric(family));
                for row in 0..20 {
                    let _ = (segment.span(family, row), segment.series_labels(family, row));
                    let _ = read(&segment, family, row, TimeRange::ALL);
                }
                let _ = segment.row_of(family, 7);
            }
            let _ = segment.verify(true);
        }
    }
}

/// Three families and five series of 3,000 samples each, so that the blocks fill several pages.
fn plain() -> SegmentContent {
    let mut content = SegmentContent::new();
    for (metric, id) in [("up", 1i32), ("up", 2), ("up", 7), ("down", 3), ("load", 4)] {
        let value = |n: i64| (f64::from(id) * 1e3 + (n * n % 977) as f64 / 8.0).sqrt().to_bits();
        let samples = (0..3_000).map(|n| (1_700_000_000_000 + n * 15_000, value(n))).collect();
        let rows = content.entry((metric.to_owned(), vec!["job".to_owned()])).or_default();
        rows.insert(id.unsigned_abs(), (vec![format!("job-{id}")], samples));
    }
    content
}

#[test]
fn truncating_the_file_of_an_open_segment_is_an_error_with_an_offset() {
    let dir = TempDir::new().expect("a folder");
    let content = plain();
    let meta = write(dir.path(), &content, 0);
    let segment = Segment::open(dir.path(), STORE, &meta).expect("opened");
    let [family, other] =
        ["up", "down"].map(|metric| family_of(&segment, metric, &[METRIC_NAME, "job"]).expect("there"));
    let file = OpenOptions::new().write(true).open(segment.path.as_path()).expect("opened");
    // The first page stays, with the header and the first blocks.
    file.set_len(4_096).expect("cut");
    let damage = read(&segment, family, 2, TimeRange::ALL).expect_err("pages are gone");
    assert_eq!((damage.path.as_path(), damage.what), (segment.path.as_path(), UNREADABLE));
    assert!(damage.offset > 0 && damage.to_string().contains("0000000012-L1.seg, byte "), "{damage}");
    assert!(read(&segment, other, 0, TimeRange::ALL).is_err());
    assert!(segment.intact().is_err() && segment.verify(false).is_err());
}

#[test]
fn intact_blocks_are_read_though_another_block_is_damaged() {
    let dir = TempDir::new().expect("a folder");
    let content = plain();
    let meta = write(dir.path(), &content, 0);
    let path = dir.path().join(meta.file_name());
    let mut bytes = fs::read(&path).expect("read");
    bytes[100] ^= 1;
    fs::write(&path, &bytes).expect("written");
    let segment = Segment::open(dir.path(), STORE, &meta).expect("opened");
    let mut damaged = 0;
    for ((metric, _), rows) in &content {
        let family = family_of(&segment, metric, &[METRIC_NAME, "job"]).expect("there");
        for (row, (_, samples)) in rows.values().enumerate() {
            match read(&segment, family, row, TimeRange::ALL) {
                Ok(found) => assert_eq!(&found, samples),
                Err(damage) => {
                    assert_eq!((damage.offset, damage.what), (68, "wrong checksum of a value block"));
                    damaged += 1;
                }
            }
        }
    }
    assert_eq!(damaged, 1);
    let found = segment.verify(false).expect_err("damaged");
    assert_eq!((found.offset, found.what), (64, "wrong checksum of the value blocks"));
}

#[test]
fn a_segment_that_differs_from_the_manifest_is_refused_with_the_reason() {
    let dir = TempDir::new().expect("a folder");
    let meta = write(dir.path(), &plain(), HISTOGRAMS);
    let open = |store, meta: &SegmentMeta| Segment::open(dir.path(), store, meta);
    assert!(
        matches!(open(StoreId([8; 16]), &meta), Err(SegmentError::Foreign { what, .. }) if what.contains("store 0909"))
    );
    let other = SegmentMeta { org: OrgId(4), ..meta.clone() };
    assert!(
        matches!(open(STORE, &other), Err(SegmentError::Foreign { what, .. }) if what.contains("organisation 3, not 4"))
    );
    let renamed = SegmentMeta { seq: 13, ..meta.clone() };
    assert!(matches!(open(STORE, &renamed), Err(SegmentError::Missing { .. })));
    fs::copy(dir.path().join(meta.file_name()), dir.path().join(renamed.file_name())).expect("copied");
    assert!(
        matches!(open(STORE, &renamed), Err(SegmentError::Foreign { what, .. }) if what.contains("segment 12 of organisation 3"))
    );
    let longer = SegmentMeta { file_bytes: meta.file_bytes + 1, ..meta.clone() };
    assert!(
        matches!(open(STORE, &longer), Err(SegmentError::Damaged(damage)) if damage.offset == meta.file_bytes)
    );
    let more = SegmentMeta { samples: meta.samples + 1, ..meta.clone() };
    assert!(matches!(open(STORE, &more), Err(SegmentError::Damaged(_))));
    let path = dir.path().join(meta.file_name());
    let mut bytes = fs::read(&path).expect("read");
    bytes[8] = 3;
    fs::write(&path, &bytes).expect("written");
    assert!(matches!(open(STORE, &meta), Err(SegmentError::Newer { version: 3, known: 2, .. })));
    fs::write(&path, b"short").expect("written");
    assert!(matches!(open(STORE, &meta), Err(SegmentError::Damaged(damage)) if damage.offset == 5));
}

#[test]
fn a_writer_refuses_what_the_format_does_not_allow() {
    let dir = TempDir::new().expect("a folder");
    let mut writer = SegmentWriter::create(dir.path(), STORE, new_segment(0)).expect("created");
    let shape = |result: Result<(), SegmentWriteError>| matches!(result, Err(SegmentWriteError::Shape(_)));
    assert!(shape(writer.series(1, &[], &[1], &[1])), "no family yet");
    assert!(shape(writer.family(&["b", "a"])));
    writer.family(&[METRIC_NAME]).expect("a family");
    assert!(shape(writer.series(1, &[], &[1], &[1])), "no value");
    assert!(shape(writer.series(1, &["up"], &[1, 1], &[1, 1])), "times do not ascend");
    assert!(shape(writer.series(1, &["up"], &[1], &[1, 1])), "more values than times");
    writer.series(1, &["up"], &[], &[]).expect("a series without samples is left out");
    writer.series(1, &["up"], &[1], &[1]).expect("a series");
    assert!(shape(writer.series(1, &["up"], &[2], &[2])), "ids do not ascend");
    writer.abandon().expect("removed");
    let writer = SegmentWriter::create(dir.path(), STORE, new_segment(0)).expect("created");
    assert!(matches!(writer.finish(), Err(SegmentWriteError::Shape("a segment without samples"))));
    let mut writer = SegmentWriter::create(dir.path(), STORE, new_segment(0)).expect("created");
    for id in [1, 2] {
        writer.family(&[METRIC_NAME]).expect("a family");
        writer.series(id, &["up"], &[1], &[1]).expect("a series");
    }
    assert!(matches!(writer.finish(), Err(SegmentWriteError::Shape("duplicate family"))));
}

#[test]
fn an_unfinished_segment_has_the_ending_new() {
    let dir = TempDir::new().expect("a folder");
    let mut writer = SegmentWriter::create(dir.path(), STORE, new_segment(LATE)).expect("created");
    writer.family(&[METRIC_NAME]).expect("a family");
    writer.series(1, &["up"], &[1], &[1]).expect("a series");
    let names = || crate::tsdb::disk::names(dir.path()).expect("listed");
    assert_eq!(names(), ["0000000012-L1-ooo.seg.new"]);
    writer.finish().expect("finished");
    assert_eq!(names(), ["0000000012-L1-ooo.seg"]);
}

/// Two families and four series; one series is longer than a block.
fn small() -> SegmentContent {
    let mut content = SegmentContent::new();
    let regular = |id: i64, n: i64| (1_700_000_000_000 + n * 15_000, (id * 10 + n).unsigned_abs());
    for (metric, id, count) in [("up", 1, 3), ("up", 5, 1_030), ("up", 9, 3), ("down", 2, 1)] {
        #[expect(clippy::cast_precision_loss, reason = "small")]
        let samples =
            (0..count).map(|n| regular(id, n)).map(|(at, value)| (at, (value as f64 / 4.0).to_bits()));
        let rows = content.entry((metric.to_owned(), vec!["job".to_owned(), "zone".to_owned()])).or_default();
        let values = vec![format!("job-{id}"), "a".to_owned()];
        rows.insert(u32::try_from(id).expect("small"), (values, samples.collect()));
    }
    content
}

/// The fixture was written by the first version and must never be regenerated.
#[test]
fn the_fixture_of_version_1_is_still_readable() {
    reads_fixture(include_bytes!("v1.seg"), &small());
}

/// As above, with blocks that are written backward, with and without a checksum of the newest
/// values.
#[test]
fn the_fixture_of_version_2_is_still_written_and_readable() {
    const FIXTURE: &[u8] = include_bytes!("v2.seg");
    let mut content = small();
    let names = vec!["job".to_owned(), "zone".to_owned()];
    let rows = content.entry(("up".to_owned(), names)).or_default();
    for (id, count) in [(11, 300), (12, 1_200)] {
        let scattered = |n: i64| (n * n).unsigned_abs().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 57;
        #[expect(clippy::cast_precision_loss, reason = "small")]
        let value = |n: i64| (n * 100 + scattered(n).cast_signed()) as f64 / 10.0;
        let samples = (0..count).map(|n| (1_700_000_000_000 + n * 15_000, value(n).to_bits()));
        rows.insert(id, (vec![format!("job-{id}"), "b".to_owned()], samples.collect()));
    }
    let dir = TempDir::new().expect("a folder");
    let meta = write(dir.path(), &content, 0);
    let written = fs::read(dir.path().join(meta.file_name())).expect("read");
    assert!(written == FIXTURE, "the format changed: a new version, or a mistake");
    reads_fixture(FIXTURE, &content);
}

fn reads_fixture(fixture: &[u8], content: &SegmentContent) {
    let dir = TempDir::new().expect("a folder");
    let path = dir.path().join("fixture.seg");
    fs::write(&path, fixture).expect("written");
    let segment = Segment::open_unlisted(&path, STORE, None).expect("opened");
    segment.verify(true).expect("whole");
    let newest = range(1_700_000_000_000 + 1_190 * 15_000, i64::MAX);
    let between = range(1_700_000_000_000 + 500 * 15_000, 1_700_000_000_000 + 700 * 15_000);
    check(&segment, content, &[TimeRange::ALL, newest, between]).expect("whole");
}
