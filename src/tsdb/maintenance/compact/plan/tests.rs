//! Table-driven tests of the planner.

use super::*;
use crate::model::OrgId;

const HOUR: i64 = 3_600_000;
const MIB: u64 = 1 << 20;

/// A segment: number, last record, level, first and last time in minutes, size in KiB.
#[derive(Clone, Copy)]
struct SegmentSpec(u64, u64, u8, i64, i64, u64);

fn meta(row: &SegmentSpec, flags: u8) -> SegmentMeta {
    let SegmentSpec(seq, last_log_seq, level, from, to, kib) = *row;
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

fn main(rows: &[SegmentSpec]) -> Vec<SegmentMeta> {
    rows.iter().map(|row| meta(row, 0)).collect()
}

fn late(row: SegmentSpec) -> SegmentMeta {
    meta(&row, LATE)
}

fn find(segments: &[SegmentMeta], sealed_until: i64, urgency: Urgency) -> Option<MergeJob> {
    find_with(segments, sealed_until, urgency, &[], &[])
}

fn find_with(
    segments: &[SegmentMeta],
    sealed_until: i64,
    urgency: Urgency,
    tombstones: &[&Tombstone],
    avoid: &[u64],
) -> Option<MergeJob> {
    let mut segments: Vec<&SegmentMeta> = segments.iter().collect();
    segments.sort_unstable_by_key(|meta| meta.seq);
    let avoid = avoid.iter().copied().collect();
    plan(PlanInput { segments: &segments, sealed_until, tombstones, avoid: &avoid }, urgency)
}

/// Compares a job with the expected sources, level and cut in days.
fn check(found: Option<MergeJob>, expected: Option<(&[u64], u8, Option<i64>)>) {
    let found = found.map(|job| (job.sources, job.level, job.cut_ms.map(|cut| cut / DAY_MS)));
    assert_eq!(found, expected.map(|(sources, level, cut)| (sources.to_vec(), level, cut)));
}

/// Returns segments of half an hour each from 00:00 on, of one MiB.
fn half_hours(count: i64) -> Vec<SegmentMeta> {
    let row =
        |n: i64| SegmentSpec(n.unsigned_abs() + 1, n.unsigned_abs() * 10 + 10, 0, n * 30, n * 30 + 30, 1_024);
    main(&(0..count).map(row).collect::<Vec<_>>())
}

#[test]
fn two_hours_are_merged_once_they_are_over() {
    check(find(&[], 0, Urgency::Due), None);
    check(find(&half_hours(1), HOUR, Urgency::Due), None);
    check(find(&half_hours(3), HOUR + HOUR / 2, Urgency::Due), None);
    check(find(&half_hours(4), 2 * HOUR, Urgency::Due), Some((&[1, 2, 3, 4], 1, None)));
    check(find(&half_hours(5), 2 * HOUR + HOUR / 2, Urgency::Due), Some((&[1, 2, 3, 4], 1, None)));
    let mut list = main(&[SegmentSpec(9, 40, 1, 0, 120, 4_096)]);
    list.extend(half_hours(8).into_iter().skip(4));
    check(find(&list, 4 * HOUR, Urgency::Due), Some((&[5, 6, 7, 8], 1, None)));
    check(find(&list[..4], 4 * HOUR - 1, Urgency::Due), None);
}

#[test]
fn a_day_is_merged_once_it_is_over() {
    let hours: Vec<SegmentSpec> = (0..12u64)
        .map(|n| SegmentSpec(50 + n, n, 1, n.cast_signed() * 120, n.cast_signed() * 120 + 120, 4_096))
        .collect();
    let all: Vec<u64> = (50..62).collect();
    check(find(&main(&hours), DAY_MS - 1, Urgency::Due), None);
    check(find(&main(&hours), DAY_MS, Urgency::Due), Some((&all, 2, None)));
    // A segment that spans midnight is cut there.
    let mut over = main(&hours[..11]);
    over.push(meta(&SegmentSpec(61, 11, 1, 22 * 60, 25 * 60, 4_096), 0));
    check(find(&over, 25 * HOUR, Urgency::Due), Some((&all, 2, Some(1))));
    // A merge is not cut if both days together are too small for two files.
    let small: Vec<SegmentMeta> =
        over.iter().map(|meta| SegmentMeta { file_bytes: 1_000, ..meta.clone() }).collect();
    check(find(&small, 25 * HOUR, Urgency::Due), Some((&all, 2, None)));
}

#[test]
fn a_requested_merge_makes_one_segment_of_each_day_today_included() {
    check(find(&half_hours(1), HOUR / 2, Urgency::All), None);
    check(find(&half_hours(3), HOUR + HOUR / 2, Urgency::All), Some((&[1, 2, 3], 1, None)));
    let two_days = main(&[SegmentSpec(1, 1, 2, 0, 1_440, 4), SegmentSpec(2, 2, 1, 1_440, 1_500, 4)]);
    check(find(&two_days, 26 * HOUR, Urgency::All), None);
    let before_1970 = main(&[
        SegmentSpec(1, 1, 0, -60, -30, 4),
        SegmentSpec(2, 2, 0, -30, 0, 4),
        SegmentSpec(3, 3, 0, 0, 30, 4),
    ]);
    check(find(&before_1970, HOUR / 2, Urgency::All), Some((&[1, 2], 2, None)));
}

#[test]
fn several_outputs_of_one_job_are_not_merged_again() {
    let mut pieces =
        main(&[SegmentSpec(7, 9, 2, 0, 1_440, 4_000_000), SegmentSpec(8, 9, 2, 0, 1_440, 4_000_000)]);
    for piece in &mut pieces {
        piece.replaces = vec![1, 2, 3];
    }
    check(find(&pieces, DAY_MS, Urgency::Due), None);
    check(find(&pieces, DAY_MS, Urgency::All), None);
    pieces.push(late(SegmentSpec(9, 12, 0, 60, 61, 400_000)));
    check(find(&pieces, DAY_MS, Urgency::Due), None);
    check(find(&pieces, DAY_MS, Urgency::All), Some((&[7, 8, 9], 2, None)));
}

#[test]
fn late_samples_are_merged_into_their_day_once_they_are_many() {
    let with = |count: u64, kib: u64| {
        let mut list = main(&[SegmentSpec(1, 1, 2, 0, 1_440, 10_240)]);
        list.extend((0..count).map(|n| late(SegmentSpec(2 + n, 2 + n, 0, 10, 20, kib))));
        list
    };
    check(find(&with(1, 1_000), DAY_MS, Urgency::Due), None);
    check(find(&with(1, 1_200), DAY_MS, Urgency::Due), Some((&[1, 2], 2, None)));
    check(find(&with(7, 10), DAY_MS, Urgency::Due), None);
    check(find(&with(8, 10), DAY_MS, Urgency::Due), Some((&[1, 2, 3, 4, 5, 6, 7, 8, 9], 2, None)));
}

#[test]
fn a_job_includes_the_segments_between_its_sources() {
    // Late samples of 00:10 to 05:00, sealed between the half hours, must be included.
    let mut list = half_hours(4);
    list.push(late(SegmentSpec(100, 25, 0, 10, 300, 10)));
    check(find(&list, 2 * HOUR, Urgency::Due), Some((&[1, 2, 100, 3, 4], 1, None)));
    // Late samples after all of them may stay: they win before and after the merge.
    list.pop();
    list.push(late(SegmentSpec(100, 99, 0, 10, 300, 10)));
    check(find(&list, 2 * HOUR, Urgency::Due), Some((&[1, 2, 3, 4], 1, None)));
    // An unreadable segment prevents the merge.
    list.pop();
    list.push(late(SegmentSpec(100, 25, 0, 10, 300, 10)));
    check(find_with(&list, 2 * HOUR, Urgency::Due, &[], &[100]), None);
    check(find_with(&half_hours(4), 2 * HOUR, Urgency::Due, &[], &[2]), None);
}

#[test]
fn too_many_sources_are_merged_in_several_jobs_the_latest_first() {
    let list = half_hours(48);
    let first: Vec<u64> = (25..=48).collect();
    check(find(&list, DAY_MS, Urgency::Due), Some((&first, 2, None)));
    let mut then = list[..24].to_vec();
    then.push(meta(&SegmentSpec(99, 490, 2, 720, 1_440, 24_576), 0));
    let second: Vec<u64> = (2..=24).chain([99]).collect();
    check(find(&then, DAY_MS, Urgency::Due), Some((&second, 2, None)));
}

#[test]
fn deleted_samples_are_removed_when_no_other_work_is_left() {
    let tombstone = |upto_seq, clean_from| Tombstone {
        from_ms: 0,
        to_ms: HOUR,
        upto_seq,
        clean_from,
        series: vec![(1, 1)],
    };
    let list = main(&[SegmentSpec(1, 10, 2, 0, 1_440, 4), SegmentSpec(2, 20, 1, 1_440, 1_500, 4)]);
    check(find_with(&list, 26 * HOUR, Urgency::Due, &[&tombstone(15, 3)], &[]), Some((&[1], 2, None)));
    check(find_with(&list, 26 * HOUR, Urgency::Due, &[&tombstone(9, 3)], &[]), None);
    check(find_with(&list, 26 * HOUR, Urgency::Due, &[&tombstone(15, 1)], &[]), None);
    check(find_with(&list, 26 * HOUR, Urgency::Due, &[&tombstone(15, 3)], &[1]), None);
}

#[test]
fn a_long_range_of_time_is_cut_into_few_files() {
    // 40 days of late samples over two segments of a day.
    let list = |kib| {
        let mut list = main(&[SegmentSpec(1, 1, 2, 0, 1_440, kib), SegmentSpec(2, 2, 2, 1_440, 2_880, kib)]);
        list.push(late(SegmentSpec(3, 3, 0, 0, 40 * 1_440, kib)));
        list
    };
    check(find(&list((100 * MIB) >> 10), 40 * DAY_MS, Urgency::All), Some((&[2, 3], 2, Some(1))));
    check(find(&list((4 * MIB) >> 10), 40 * DAY_MS, Urgency::All), Some((&[2, 3], 2, Some(6))));
    check(find(&list(1), 40 * DAY_MS, Urgency::All), Some((&[2, 3], 2, None)));
}
