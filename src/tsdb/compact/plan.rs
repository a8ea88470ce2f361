//! Which segments to merge next. Pure: a list in, a job out.
//!
//! Segments of level 0 come from seals, half an hour each; level 1 is two hours, level 2 a day of UTC. What came late lies
//! in segments of its own across the others, and is joined with them.
//!
//! Where two segments hold the same moment of a series, the one with the later last record wins, then the later number. What
//! a job writes stands where the last of its sources stood, so a job must have every segment between its first and its
//! last that overlaps with it in time: [`closed`] adds those, or gives the job up.

use std::collections::{BTreeMap, BTreeSet};

use crate::tsdb::manifest::Tombstone;
use crate::tsdb::segment::{LATE, SegmentMeta};

pub(super) const DAY_MS: i64 = 24 * 3_600_000;
const TWO_HOURS_MS: i64 = 2 * 3_600_000;
/// Sources of a job at most: each takes two rows of the commit, which has 64 at most.
const SOURCES_MAX: usize = 24;
/// Rows of a commit that a job's sources and outputs may take together.
const ROWS_MAX: usize = 56;
/// Days are told apart only where they are worth a file of their own.
const DAY_BYTES_MIN: u64 = 1 << 20;
/// So many late segments are worth writing a whole day again,
const LATE_MANY: usize = 8;
/// and so are late ones of a tenth of its bytes.
const LATE_SHARE: u64 = 10;

/// What the planner looks at.
#[derive(Clone, Copy, Debug)]
pub(super) struct View<'a> {
    /// Everything that is listed, in order of number.
    pub(super) segments: &'a [&'a SegmentMeta],
    /// Everything before this is sealed.
    pub(super) sealed_until: i64,
    /// Deletions that are to be carried out.
    pub(super) tombstones: &'a [&'a Tombstone],
    /// Segments that cannot be read: they are left alone, and so is what depends on them.
    pub(super) avoid: &'a BTreeSet<u64>,
}

/// How much is worth doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Zeal {
    /// What pays, in the background.
    Due,
    /// Until each day is one segment, today included.
    All,
}

/// Segments to be merged into new ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Job {
    /// Their numbers; where two hold the same moment of a series, the later in this list wins.
    pub(super) sources: Vec<u64>,
    /// Level of what is written.
    pub(super) level: u8,
    /// What is written is cut at multiples of so many ms since the epoch; none: not cut.
    pub(super) cut_ms: Option<i64>,
    pub(super) why: &'static str,
}

/// The next job; none: there is nothing to do.
pub(super) fn plan(view: View<'_>, zeal: Zeal) -> Option<Job> {
    let days = days(view);
    let day_jobs = days.iter().filter_map(|day| day_job(view, *day, zeal));
    let hours = || {
        let open = days.iter().filter(|day| !is_over(view, **day));
        open.filter_map(|day| hours_job(view, *day)).min_by_key(|job| job.sources.first().copied())
    };
    // The smallest first: it waits for no other, and what it writes is not written again by the next.
    let found = day_jobs.min_by_key(|job| bytes(view, &job.sources));
    found.or_else(|| if zeal == Zeal::Due { hours() } else { None }).or_else(|| tombstone_job(view))
}

/// The days that more than one segment reaches into: by number since the epoch.
fn days(view: View<'_>) -> Vec<i64> {
    // Borders of what a segment reaches over, so that one over a thousand years costs no more than one over a day.
    let mut days = BTreeSet::new();
    for meta in view.segments {
        days.insert(meta.min_ms.div_euclid(DAY_MS));
        days.insert(meta.max_ms.div_euclid(DAY_MS));
    }
    days.into_iter().filter(|day| of_day(view, *day).take(2).count() == 2).collect()
}

fn of_day<'a>(view: View<'a>, day: i64) -> impl Iterator<Item = &'a SegmentMeta> {
    let reaches = move |meta: &&&SegmentMeta| {
        meta.min_ms.div_euclid(DAY_MS) <= day && day <= meta.max_ms.div_euclid(DAY_MS)
    };
    view.segments.iter().filter(reaches).copied()
}

fn is_over(view: View<'_>, day: i64) -> bool {
    day.saturating_add(1).saturating_mul(DAY_MS) <= view.sealed_until
}

/// Whether these are what one job wrote: there is nothing to merge in them.
fn are_one(segments: &[&SegmentMeta]) -> bool {
    let same = |a: &SegmentMeta, b: &SegmentMeta| (a.level, &a.replaces) == (b.level, &b.replaces);
    match segments {
        [] | [_] => true,
        [first, rest @ ..] => !first.replaces.is_empty() && rest.iter().all(|meta| same(first, meta)),
    }
}

fn day_job(view: View<'_>, day: i64, zeal: Zeal) -> Option<Job> {
    let is_over = is_over(view, day);
    let members: Vec<&SegmentMeta> = of_day(view, day).collect();
    if are_one(&members) {
        return None;
    }
    let pays = || {
        let late: Vec<&&SegmentMeta> = members.iter().filter(|meta| meta.flags & LATE != 0).collect();
        let all: u64 = members.iter().map(|meta| meta.file_bytes).sum();
        let late_bytes: u64 = late.iter().map(|meta| meta.file_bytes).sum();
        // Pieces that a day was cut into are no reason, unless something else came to them.
        members.iter().any(|meta| meta.level < 2 && meta.flags & LATE == 0)
            || late.len() >= LATE_MANY
            || late_bytes.saturating_mul(LATE_SHARE) >= all
    };
    if zeal == Zeal::Due && !(is_over && pays()) {
        return None;
    }
    let level = if is_over { 2 } else { 1 };
    job(view, &members, level, if is_over { "its day is over" } else { "asked for" })
}

/// Two hours of a day that is not over yet.
fn hours_job(view: View<'_>, day: i64) -> Option<Job> {
    for window in 0..DAY_MS / TWO_HOURS_MS {
        let start = day.saturating_mul(DAY_MS).saturating_add(window * TWO_HOURS_MS);
        let end = start.saturating_add(TWO_HOURS_MS);
        if end > view.sealed_until {
            return None;
        }
        let small = |meta: &&&SegmentMeta| {
            meta.level < 2 && (start..end).contains(&meta.min_ms) && meta.max_ms - meta.min_ms <= TWO_HOURS_MS
        };
        let members: Vec<&SegmentMeta> = view.segments.iter().filter(small).copied().collect();
        let fresh = members.iter().filter(|meta| meta.level == 0);
        let worth = fresh.map(|meta| if meta.flags & LATE == 0 { 4 } else { 1 }).sum::<u32>();
        if members.len() < 2 || worth < 4 {
            continue;
        }
        if let Some(job) = job(view, &members, 1, "its two hours are over") {
            return Some(job);
        }
    }
    None
}

/// A segment that still holds what was deleted.
pub(super) fn tombstone_job(view: View<'_>) -> Option<Job> {
    let masked = |meta: &&&SegmentMeta| view.tombstones.iter().any(|tombstone| tombstone.masks(meta));
    let usable = |meta: &&SegmentMeta| !view.avoid.contains(&meta.seq);
    view.segments
        .iter()
        .filter(masked)
        .copied()
        .filter(usable)
        .find_map(|meta| job(view, &[meta], meta.level, "something in it was deleted"))
}

fn job(view: View<'_>, members: &[&SegmentMeta], level: u8, why: &'static str) -> Option<Job> {
    let chosen = closed(view, members)?;
    let span = |least: i64, most: i64| most.div_euclid(DAY_MS).saturating_sub(least.div_euclid(DAY_MS));
    let least = chosen.iter().map(|meta| meta.min_ms).min()?;
    let most = chosen.iter().map(|meta| meta.max_ms).max()?;
    let days = span(least, most).saturating_add(1);
    let bytes: u64 = chosen.iter().map(|meta| meta.file_bytes).sum();
    let room = (ROWS_MAX - 2 * chosen.len()) as u64;
    let files = i64::try_from((bytes / DAY_BYTES_MIN + 1).min(room)).unwrap_or(1);
    let cut_ms = (days > 1 && files > 1).then(|| {
        // One file more than widths may be touched.
        let width = if days <= files { 1 } else { days / (files - 1) + 1 };
        width.saturating_mul(DAY_MS)
    });
    Some(Job { sources: chosen.iter().map(|meta| meta.seq).collect(), level, cut_ms, why })
}

/// Who wins over whom.
pub(in crate::tsdb) const fn rank(meta: &SegmentMeta) -> (u64, u64) {
    (meta.last_log_seq, meta.seq)
}

/// The sources of a job: the segments named and those that must come with them. Too many: the latest of them, which leave
/// none in between behind.
fn closed<'a>(view: View<'a>, members: &[&'a SegmentMeta]) -> Option<Vec<&'a SegmentMeta>> {
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
        let missing = view.segments.iter().find(|meta| {
            let between = rank(meta) > first && meta.last_log_seq <= last;
            between && meta.min_ms <= most && least <= meta.max_ms && !chosen.contains_key(&rank(meta))
        });
        let Some(missing) = missing else { break };
        chosen.insert(rank(missing), missing);
        if chosen.len() > SOURCES_MAX {
            // The earliest stays behind.
            chosen.pop_first();
        }
    }
    let readable = chosen.values().all(|meta| !view.avoid.contains(&meta.seq));
    // A job of several must not have shrunk to one of them.
    (readable && (chosen.len() > 1 || members.len() == 1)).then(|| chosen.into_values().collect())
}

fn bytes(view: View<'_>, sources: &[u64]) -> u64 {
    view.segments.iter().filter(|meta| sources.contains(&meta.seq)).map(|meta| meta.file_bytes).sum()
}

#[cfg(test)]
mod tests;
