//! Chooses the segments to merge next. A pure function from a list of segments to a job.
//!
//! Segments of level 0 come from seals and span half an hour each. Level 1 spans two hours, level 2
//! one day in UTC. Late samples have their own segments, which overlap with others and are merged
//! with them.
//!
//! If two segments have a sample of a series at the same time, the one with the later last record
//! wins, then the one with the greater number. The output of a job ranks like its last source. So a
//! job must include every segment between its first and its last that overlaps with it in time:
//! [`closed`] adds those, or rejects the job.

use std::collections::{BTreeMap, BTreeSet};

use crate::tsdb::segment::{LATE, SegmentMeta};
use crate::tsdb::store::manifest::Tombstone;

pub(in crate::tsdb) const DAY_MS: i64 = 24 * 3_600_000;
const TWO_HOURS_MS: i64 = 2 * 3_600_000;
/// The limit of a job's sources. Each takes two rows of the commit, which has at most 64.
const SOURCES_MAX: usize = 24;
/// The limit of commit rows for a job's sources and outputs together.
const ROWS_MAX: usize = 56;
/// The least bytes for which a day gets a file of its own.
const DAY_BYTES_MIN: u64 = 1 << 20;
/// The number of late segments that justifies rewriting a whole day.
const LATE_MANY: usize = 8;
/// Late segments with one tenth of a day's bytes justify rewriting it, too.
const LATE_SHARE: u64 = 10;

/// The input of the planner.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlanInput<'a> {
    /// All listed segments, in order of number.
    pub(super) segments: &'a [&'a SegmentMeta],
    /// The exclusive end of the sealed time in ms.
    pub(super) sealed_until: i64,
    /// The deletions to carry out.
    pub(super) tombstones: &'a [&'a Tombstone],
    /// Unreadable segments. They are not merged, and neither are segments that would have to be
    /// merged with them.
    pub(super) avoid: &'a BTreeSet<u64>,
}

/// The amount of work to plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Urgency {
    /// Work that pays, in the background.
    Due,
    /// All work until each day is one segment, today included.
    All,
    /// The same for the days before this one, counted from the epoch, whose segments all end before
    /// it.
    DaysBefore(i64),
}

/// A merge of segments into new ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MergeJob {
    /// The numbers of the sources. If two have a sample of a series at the same time, the later in
    /// this list wins.
    pub(super) sources: Vec<u64>,
    /// The level of the output.
    pub(super) level: u8,
    /// The output is cut at multiples of this many ms since the epoch; none: not cut.
    pub(super) cut_ms: Option<i64>,
    pub(super) why: &'static str,
}

/// Returns the next job; none if no work is left.
pub(super) fn plan(input: PlanInput<'_>, urgency: Urgency) -> Option<MergeJob> {
    let days = days(input);
    let day_jobs = days.iter().filter_map(|day| day_job(input, *day, urgency));
    let hours = || {
        let open = days.iter().filter(|day| !is_over(input, **day));
        open.filter_map(|day| hours_job(input, *day)).min_by_key(|job| job.sources.first().copied())
    };
    // The smallest job comes first: it waits for no other, and the next job does not rewrite its
    // output.
    let day_job = day_jobs.min_by_key(|job| bytes(input, &job.sources));
    if let Urgency::DaysBefore(_) = urgency {
        return day_job;
    }
    day_job.or_else(|| if urgency == Urgency::Due { hours() } else { None }).or_else(|| tombstone_job(input))
}

/// Returns the days with more than one segment, counted from the epoch.
fn days(input: PlanInput<'_>) -> Vec<i64> {
    // Only the first and last day of each segment count, so that a segment over a thousand years
    // costs no more than one over a day.
    let mut days = BTreeSet::new();
    for meta in input.segments {
        days.insert(meta.min_ms.div_euclid(DAY_MS));
        days.insert(meta.max_ms.div_euclid(DAY_MS));
    }
    days.into_iter().filter(|day| of_day(input, *day).take(2).count() == 2).collect()
}

fn of_day<'a>(input: PlanInput<'a>, day: i64) -> impl Iterator<Item = &'a SegmentMeta> {
    let reaches = move |meta: &&&SegmentMeta| {
        meta.min_ms.div_euclid(DAY_MS) <= day && day <= meta.max_ms.div_euclid(DAY_MS)
    };
    input.segments.iter().filter(reaches).copied()
}

fn is_over(input: PlanInput<'_>, day: i64) -> bool {
    day.saturating_add(1).saturating_mul(DAY_MS) <= input.sealed_until
}

/// Returns whether the segments are the output of one job, which needs no merge.
fn are_one(segments: &[&SegmentMeta]) -> bool {
    let same = |a: &SegmentMeta, b: &SegmentMeta| (a.level, &a.replaces) == (b.level, &b.replaces);
    match segments {
        [] | [_] => true,
        [first, rest @ ..] => !first.replaces.is_empty() && rest.iter().all(|meta| same(first, meta)),
    }
}

fn day_job(input: PlanInput<'_>, day: i64, urgency: Urgency) -> Option<MergeJob> {
    let is_over = is_over(input, day);
    let members: Vec<&SegmentMeta> = of_day(input, day).collect();
    if are_one(&members) {
        return None;
    }
    let pays = || {
        let late: Vec<&&SegmentMeta> = members.iter().filter(|meta| meta.flags & LATE != 0).collect();
        let all: u64 = members.iter().map(|meta| meta.file_bytes).sum();
        let late_bytes: u64 = late.iter().map(|meta| meta.file_bytes).sum();
        // Several outputs of one job for a day do not justify a merge, unless other segments
        // overlap with them.
        members.iter().any(|meta| meta.level < 2 && meta.flags & LATE == 0)
            || late.len() >= LATE_MANY
            || late_bytes.saturating_mul(LATE_SHARE) >= all
    };
    match urgency {
        Urgency::Due if !(is_over && pays()) => return None,
        Urgency::DaysBefore(end) if members.iter().any(|meta| meta.max_ms.div_euclid(DAY_MS) >= end) => {
            return None;
        }
        _ => {}
    }
    let level = if is_over { 2 } else { 1 };
    job(input, &members, level, if is_over { "the day is over" } else { "requested" })
}

/// Plans a merge of two hours within a day that is not over yet.
fn hours_job(input: PlanInput<'_>, day: i64) -> Option<MergeJob> {
    for window in 0..DAY_MS / TWO_HOURS_MS {
        let start = day.saturating_mul(DAY_MS).saturating_add(window * TWO_HOURS_MS);
        let end = start.saturating_add(TWO_HOURS_MS);
        if end > input.sealed_until {
            return None;
        }
        let small = |meta: &&&SegmentMeta| {
            meta.level < 2 && (start..end).contains(&meta.min_ms) && meta.max_ms - meta.min_ms <= TWO_HOURS_MS
        };
        let members: Vec<&SegmentMeta> = input.segments.iter().filter(small).copied().collect();
        let fresh = members.iter().filter(|meta| meta.level == 0);
        let worth = fresh.map(|meta| if meta.flags & LATE == 0 { 4 } else { 1 }).sum::<u32>();
        if members.len() < 2 || worth < 4 {
            continue;
        }
        if let Some(job) = job(input, &members, 1, "the two hours are over") {
            return Some(job);
        }
    }
    None
}

/// Plans the rewrite of a segment with deleted samples.
pub(super) fn tombstone_job(input: PlanInput<'_>) -> Option<MergeJob> {
    let masked = |meta: &&&SegmentMeta| input.tombstones.iter().any(|tombstone| tombstone.masks(meta));
    let usable = |meta: &&SegmentMeta| !input.avoid.contains(&meta.seq);
    input
        .segments
        .iter()
        .filter(masked)
        .copied()
        .filter(usable)
        .find_map(|meta| job(input, &[meta], meta.level, "it has deleted samples"))
}

fn job(input: PlanInput<'_>, members: &[&SegmentMeta], level: u8, why: &'static str) -> Option<MergeJob> {
    let chosen = closed(input, members)?;
    let span = |least: i64, most: i64| most.div_euclid(DAY_MS).saturating_sub(least.div_euclid(DAY_MS));
    let least = chosen.iter().map(|meta| meta.min_ms).min()?;
    let most = chosen.iter().map(|meta| meta.max_ms).max()?;
    let days = span(least, most).saturating_add(1);
    let bytes: u64 = chosen.iter().map(|meta| meta.file_bytes).sum();
    let files_max = (ROWS_MAX - 2 * chosen.len()) as u64;
    let files = i64::try_from((bytes / DAY_BYTES_MIN + 1).min(files_max)).unwrap_or(1);
    let cut_ms = (days > 1 && files > 1).then(|| {
        // The range may touch one file more than it has widths.
        let width = if days <= files { 1 } else { days / (files - 1) + 1 };
        width.saturating_mul(DAY_MS)
    });
    Some(MergeJob { sources: chosen.iter().map(|meta| meta.seq).collect(), level, cut_ms, why })
}

/// Returns the rank of a segment. The sample of the greater rank wins.
pub(in crate::tsdb) const fn rank(meta: &SegmentMeta) -> (u64, u64) {
    (meta.last_log_seq, meta.seq)
}

/// Returns the sources of a job: the given segments and those that must be merged with them. If
/// they are too many, returns the latest of them, which leave no segment in between behind.
fn closed<'a>(input: PlanInput<'a>, members: &[&'a SegmentMeta]) -> Option<Vec<&'a SegmentMeta>> {
    let mut chosen: BTreeMap<(u64, u64), &SegmentMeta> =
        members.iter().map(|meta| (rank(meta), *meta)).collect();
    while chosen.len() > SOURCES_MAX {
        chosen.pop_first();
    }
    loop {
        let first = *chosen.first_key_value()?.0;
        let (last, _) = *chosen.last_key_value()?.0;
        let least = chosen.values().map(|meta| meta.min_ms).min()?;
        let most = chosen.values().map(|meta| meta.max_ms).max()?;
        let missing = input.segments.iter().find(|meta| {
            let between = rank(meta) > first && meta.last_log_seq <= last;
            between && meta.min_ms <= most && least <= meta.max_ms && !chosen.contains_key(&rank(meta))
        });
        let Some(missing) = missing else { break };
        chosen.insert(rank(missing), missing);
        if chosen.len() > SOURCES_MAX {
            // The earliest one is left for a later job.
            chosen.pop_first();
        }
    }
    let readable = chosen.values().all(|meta| !input.avoid.contains(&meta.seq));
    // A merge of several segments must not shrink to one of them.
    (readable && (chosen.len() > 1 || members.len() == 1)).then(|| chosen.into_values().collect())
}

fn bytes(input: PlanInput<'_>, sources: &[u64]) -> u64 {
    input.segments.iter().filter(|meta| sources.contains(&meta.seq)).map(|meta| meta.file_bytes).sum()
}

#[cfg(test)]
mod tests;
