//! What is planned, as tables.

use super::*;
use crate::model::OrgId;

const HOUR: i64 = 3_600_000;
const MIB: u64 = 1 << 20;

/// Number, last record, level, times in minutes, bytes in KiB.
#[derive(Clone, Copy)]
struct Row(u64, u64, u8, i64, i64, u64);

fn meta(row: &Row, flags: u8) -> SegmentMeta {
    let Row(seq, last_log_seq, level, from, to, kib) = *row;
    SegmentMeta {
        org: OrgId(1),
        seq,
        level,
        flags,
        series: 1,
        min_ms: from * 60_000,
        max_ms: to * 60_000 - 1,
        file_bytes: kib << 10,
        samples: 1,
        first_log_seq: 1,
        last_log_seq,
        footer_crc: 0,
        sha256: [0; 16],
        replaces: Vec::new(),
    }
}

fn main(rows: &[Row]) -> Vec<SegmentMeta> {
    rows.iter().map(|row| meta(row, 0)).collect()
}

fn late(row: Row) -> SegmentMeta {
    meta(&row, LATE)
}

fn find(segments: &[SegmentMeta], sealed_until: i64, zeal: Zeal) -> Option<Job> {
    find_with(segments, sealed_until, zeal, &[], &[])
}

fn find_with(
    segments: &[SegmentMeta],
    sealed_until: i64,
    zeal: Zeal,
    tombstones: &[&Tombstone],
    avoid: &[u64],
) -> Option<Job> {
    let mut segments: Vec<&SegmentMeta> = segments.iter().collect();
    segments.sort_unstable_by_key(|meta| meta.seq);
    let avoid = avoid.iter().copied().collect();
    plan(View { segments: &segments, sealed_until, tombstones, avoid: &avoid }, zeal)
}

/// Sources, level, cut in days.
fn check(found: Option<Job>, expected: Option<(&[u64], u8, Option<i64>)>) {
    let found = found.map(|job| (job.sources, job.level, job.cut_ms.map(|cut| cut / DAY_MS)));
    assert_eq!(found, expected.map(|(sources, level, cut)| (sources.to_vec(), level, cut)));
}

/// Half hours from 00:00, of one MiB.
fn half_hours(count: i64) -> Vec<SegmentMeta> {
    let row = |n: i64| Row(n.unsigned_abs() + 1, n.unsigned_abs() * 10 + 10, 0, n * 30, n * 30 + 30, 1_024);
    main(&(0..count).map(row).collect::<Vec<_>>())
}

#[test]
fn two_hours_are_merged_when_they_are_over() {
    check(find(&[], 0, Zeal::Due), None);
    check(find(&half_hours(1), HOUR, Zeal::Due), None);
    check(find(&half_hours(3), HOUR + HOUR / 2, Zeal::Due), None);
    check(find(&half_hours(4), 2 * HOUR, Zeal::Due), Some((&[1, 2, 3, 4], 1, None)));
    check(find(&half_hours(5), 2 * HOUR + HOUR / 2, Zeal::Due), Some((&[1, 2, 3, 4], 1, None)));
    let mut list = main(&[Row(9, 40, 1, 0, 120, 4_096)]);
    list.extend(half_hours(8).into_iter().skip(4));
    check(find(&list, 4 * HOUR, Zeal::Due), Some((&[5, 6, 7, 8], 1, None)));
    check(find(&list[..4], 4 * HOUR - 1, Zeal::Due), None);
}

#[test]
fn a_day_is_merged_when_it_is_over() {
    let hours: Vec<Row> = (0..12u64)
        .map(|n| Row(50 + n, n, 1, n.cast_signed() * 120, n.cast_signed() * 120 + 120, 4_096))
        .collect();
    let all: Vec<u64> = (50..62).collect();
    check(find(&main(&hours), DAY_MS - 1, Zeal::Due), None);
    check(find(&main(&hours), DAY_MS, Zeal::Due), Some((&all, 2, None)));
    // What reaches over midnight is cut there.
    let mut over = main(&hours[..11]);
    over.push(meta(&Row(61, 11, 1, 22 * 60, 25 * 60, 4_096), 0));
    check(find(&over, 25 * HOUR, Zeal::Due), Some((&all, 2, Some(1))));
    // Unless both days together are not worth two files.
    let small: Vec<SegmentMeta> =
        over.iter().map(|meta| SegmentMeta { file_bytes: 1_000, ..meta.clone() }).collect();
    check(find(&small, 25 * HOUR, Zeal::Due), Some((&all, 2, None)));
}

#[test]
fn asked_for_each_day_becomes_one_segment_today_included() {
    check(find(&half_hours(1), HOUR / 2, Zeal::All), None);
    check(find(&half_hours(3), HOUR + HOUR / 2, Zeal::All), Some((&[1, 2, 3], 1, None)));
    let two_days = main(&[Row(1, 1, 2, 0, 1_440, 4), Row(2, 2, 1, 1_440, 1_500, 4)]);
    check(find(&two_days, 26 * HOUR, Zeal::All), None);
    let before_1970 = main(&[Row(1, 1, 0, -60, -30, 4), Row(2, 2, 0, -30, 0, 4), Row(3, 3, 0, 0, 30, 4)]);
    check(find(&before_1970, HOUR / 2, Zeal::All), Some((&[1, 2], 2, None)));
}

#[test]
fn what_one_job_wrote_in_pieces_is_not_merged_again() {
    let mut pieces = main(&[Row(7, 9, 2, 0, 1_440, 4_000_000), Row(8, 9, 2, 0, 1_440, 4_000_000)]);
    for piece in &mut pieces {
        piece.replaces = vec![1, 2, 3];
    }
    check(find(&pieces, DAY_MS, Zeal::Due), None);
    check(find(&pieces, DAY_MS, Zeal::All), None);
    pieces.push(late(Row(9, 12, 0, 60, 61, 400_000)));
    check(find(&pieces, DAY_MS, Zeal::Due), None);
    check(find(&pieces, DAY_MS, Zeal::All), Some((&[7, 8, 9], 2, None)));
}

#[test]
fn late_samples_join_a_day_when_they_are_many() {
    let with = |count: u64, kib: u64| {
        let mut list = main(&[Row(1, 1, 2, 0, 1_440, 10_240)]);
        list.extend((0..count).map(|n| late(Row(2 + n, 2 + n, 0, 10, 20, kib))));
        list
    };
    check(find(&with(1, 1_000), DAY_MS, Zeal::Due), None);
    check(find(&with(1, 1_200), DAY_MS, Zeal::Due), Some((&[1, 2], 2, None)));
    check(find(&with(7, 10), DAY_MS, Zeal::Due), None);
    check(find(&with(8, 10), DAY_MS, Zeal::Due), Some((&[1, 2, 3, 4, 5, 6, 7, 8, 9], 2, None)));
}

#[test]
fn a_job_takes_along_what_stands_between_its_sources() {
    // Late samples of 00:10 to 05:00, sealed between the half hours; they must not be left behind.
    let mut list = half_hours(4);
    list.push(late(Row(100, 25, 0, 10, 300, 10)));
    check(find(&list, 2 * HOUR, Zeal::Due), Some((&[1, 2, 100, 3, 4], 1, None)));
    // Those that came after all of them may stay: they win before and after.
    list.pop();
    list.push(late(Row(100, 99, 0, 10, 300, 10)));
    check(find(&list, 2 * HOUR, Zeal::Due), Some((&[1, 2, 3, 4], 1, None)));
    // One that cannot be read stands in the way.
    list.pop();
    list.push(late(Row(100, 25, 0, 10, 300, 10)));
    check(find_with(&list, 2 * HOUR, Zeal::Due, &[], &[100]), None);
    check(find_with(&half_hours(4), 2 * HOUR, Zeal::Due, &[], &[2]), None);
}

#[test]
fn too_many_sources_are_merged_in_turns_the_latest_first() {
    let list = half_hours(48);
    let first: Vec<u64> = (25..=48).collect();
    check(find(&list, DAY_MS, Zeal::Due), Some((&first, 2, None)));
    let mut then = list[..24].to_vec();
    then.push(meta(&Row(99, 490, 2, 720, 1_440, 24_576), 0));
    let second: Vec<u64> = (2..=24).chain([99]).collect();
    check(find(&then, DAY_MS, Zeal::Due), Some((&second, 2, None)));
}

#[test]
fn what_was_deleted_is_taken_out_when_nothing_else_is_to_do() {
    let tombstone = |upto_seq, clean_from| Tombstone {
        from_ms: 0,
        to_ms: HOUR,
        upto_seq,
        clean_from,
        series: vec![(1, 1)],
    };
    let list = main(&[Row(1, 10, 2, 0, 1_440, 4), Row(2, 20, 1, 1_440, 1_500, 4)]);
    check(find_with(&list, 26 * HOUR, Zeal::Due, &[&tombstone(15, 3)], &[]), Some((&[1], 2, None)));
    check(find_with(&list, 26 * HOUR, Zeal::Due, &[&tombstone(9, 3)], &[]), None);
    check(find_with(&list, 26 * HOUR, Zeal::Due, &[&tombstone(15, 1)], &[]), None);
    check(find_with(&list, 26 * HOUR, Zeal::Due, &[&tombstone(15, 3)], &[1]), None);
}

#[test]
fn a_long_time_is_cut_into_few_files() {
    // 40 days of late samples over two segments of a day.
    let list = |kib| {
        let mut list = main(&[Row(1, 1, 2, 0, 1_440, kib), Row(2, 2, 2, 1_440, 2_880, kib)]);
        list.push(late(Row(3, 3, 0, 0, 40 * 1_440, kib)));
        list
    };
    check(find(&list((100 * MIB) >> 10), 40 * DAY_MS, Zeal::All), Some((&[2, 3], 2, Some(1))));
    check(find(&list((4 * MIB) >> 10), 40 * DAY_MS, Zeal::All), Some((&[2, 3], 2, Some(6))));
    check(find(&list(1), 40 * DAY_MS, Zeal::All), Some((&[2, 3], 2, None)));
}
