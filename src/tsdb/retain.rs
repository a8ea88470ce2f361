//! Retention: whole segments go when their last sample is too old, or when an organisation has more bytes than it may
//! keep, the oldest first. A segment that is partly too old stays; what is too old in it is masked at reading.
//!
//! Ages count from the organisation's newest sample ([`horizon`]), so one that stopped sending keeps what it has. A segment
//! that overrides values of another never goes before that one.

use std::sync::Arc;
use std::time::Duration;

use super::Tsdb;
use super::compact::{Place, UpkeepError, UpkeepReport, rank, retire};
use super::manifest::Change;
use super::segment::SegmentMeta;
use super::segments::{Obsolete, Part};
use super::store::OrgStore;
use crate::model::Timestamp;

/// Segments of one commit at most: each takes two rows of 64.
const AT_ONCE: usize = 24;

/// What an organisation keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Keep {
    /// None: any age.
    pub(super) age: Option<Duration>,
    /// None: any number.
    pub(super) bytes: Option<u64>,
}

/// Where begins what is kept by age: so long before the newest sample, or before now where that is earlier. None: nothing
/// is too old.
///
/// Neither alone will do. By the clock alone, a server that is started while the clock is a year ahead would drop
/// everything, and an organisation that stopped sending would lose the history that it stopped at. By the newest sample
/// alone, one sample from the future would drop everything.
pub(super) fn horizon(age: Option<Duration>, newest: Option<Timestamp>, now: Timestamp) -> Option<Timestamp> {
    Some(newest?.min(now).minus(age?))
}

/// A segment, and what decides when it goes.
struct Leaving<'a> {
    meta: &'a SegmentMeta,
    /// The last time of it and of all that it wins over, and they over others: before those are gone it must stay, or
    /// values that it overrides would be seen again.
    last_ms: i64,
}

/// In the order in which they may go: whatever is left of this list when it is cut short, no value comes back.
fn by_age<'a>(segments: &[&'a SegmentMeta]) -> Vec<Leaving<'a>> {
    let mut metas = segments.to_vec();
    metas.sort_unstable_by_key(|meta| rank(meta));
    let mut all: Vec<Leaving<'a>> = Vec::with_capacity(metas.len());
    for meta in metas {
        let beaten =
            all.iter().filter(|other| other.meta.min_ms <= meta.max_ms && meta.min_ms <= other.meta.max_ms);
        let last_ms =
            beaten.map(|other| other.last_ms).max().map_or(meta.max_ms, |last| last.max(meta.max_ms));
        all.push(Leaving { meta, last_ms });
    }
    // Stable: of those that go at the same time, the ones that others win over go first.
    all.sort_by_key(|leaving| leaving.last_ms);
    all
}

/// The numbers of the segments that are to go, and why, in the order in which they may.
pub(super) fn expired(
    segments: &[&SegmentMeta],
    keep: Keep,
    newest: Option<Timestamp>,
    now: Timestamp,
) -> Vec<(u64, &'static str)> {
    let oldest = horizon(keep.age, newest, now).map_or(i64::MIN, Timestamp::as_ms);
    let mut bytes: u64 = segments.iter().map(|meta| meta.file_bytes).sum();
    let most = keep.bytes.unwrap_or(u64::MAX);
    if bytes <= most && segments.iter().all(|meta| meta.max_ms >= oldest) {
        // Nearly always.
        return Vec::new();
    }
    let mut gone: Vec<(u64, &'static str)> = Vec::new();
    for Leaving { meta, last_ms } in by_age(segments) {
        if last_ms < oldest {
            gone.push((meta.seq, "it is older than is kept"));
        } else if bytes > most {
            gone.push((meta.seq, "there are more bytes than are kept"));
        } else {
            break;
        }
        bytes -= meta.file_bytes;
    }
    gone
}

impl Tsdb {
    /// Drops what retention lets go of: control first, then the set, the files when nobody reads them.
    pub(super) fn expire(
        &self,
        place: Place<'_>,
        store: &Arc<OrgStore>,
        now: Timestamp,
        report: &mut UpkeepReport,
    ) -> Result<(), UpkeepError> {
        let newest = store.usage.newest();
        let mut oldest = i64::MIN;
        let limits = store.hide_before(|limits| {
            oldest = horizon(limits.retention, newest, now).map_or(i64::MIN, Timestamp::as_ms);
            oldest
        });
        let keep = Keep { age: limits.retention, bytes: limits.retention_bytes };
        loop {
            let set = store.segments();
            let mut gone = expired(&set.metas(), keep, newest, now);
            gone.truncate(AT_ONCE);
            if gone.is_empty() {
                return Ok(());
            }
            let numbers: Vec<u64> = gone.iter().map(|(seq, _)| *seq).collect();
            let metas = set.metas();
            let dropped = metas
                .iter()
                .filter_map(|meta| {
                    gone.iter().find(|(seq, _)| *seq == meta.seq).map(|(_, why)| ((*meta).clone(), *why))
                })
                .collect();
            let mut goes_on = true;
            // A backup sets list and files aside under this lock.
            let still = self.removal.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            store.change_segments(place.manifest, Change { drop: dropped, ..Change::default() }, |now| {
                goes_on = self.options.disk.upkeep_goes_on();
                if goes_on { now.with(&numbers, Vec::new()) } else { now.clone() }
            })?;
            drop(still);
            // What is too old is hidden already; what goes for its bytes was there to be read.
            let shown = metas.iter().filter(|meta| numbers.contains(&meta.seq) && meta.max_ms >= oldest);
            if let Some(least_ms) = shown.map(|meta| meta.min_ms).min() {
                store.changes.note(least_ms);
            }
            if !goes_on {
                return Err(UpkeepError::Stopped);
            }
            let parts: Vec<Arc<Part>> =
                set.parts.iter().filter(|part| numbers.contains(&part.meta().seq)).map(Arc::clone).collect();
            retire(store, place.folder, &parts, "retention");
            let dir = place.folder.segments_of(store.org);
            let bad = set.bad.iter().filter(|bad| numbers.contains(&bad.meta.seq)).map(|bad| Obsolete {
                seq: bad.meta.seq,
                path: dir.join(bad.meta.file_name()),
                reason: "retention".to_owned(),
                part: None,
            });
            store.obsolete.lock().unwrap_or_else(std::sync::PoisonError::into_inner).extend(bad);
            report.expired += numbers.len() as u64;
            tracing::info!(org = store.org.0, segments = numbers.len(), "retention dropped segments");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::OrgId;

    fn meta(seq: u64, min_ms: i64, max_ms: i64, file_bytes: u64) -> SegmentMeta {
        SegmentMeta {
            org: OrgId(1),
            seq,
            level: 0,
            flags: 0,
            series: 1,
            min_ms,
            max_ms,
            file_bytes,
            samples: 1,
            first_log_seq: 1,
            last_log_seq: seq,
            footer_crc: 0,
            sha256: [0; 16],
            replaces: Vec::new(),
        }
    }

    fn gone(
        list: &[SegmentMeta],
        keep: (Option<u64>, Option<u64>),
        newest: Option<i64>,
        now: i64,
    ) -> Vec<u64> {
        let list: Vec<&SegmentMeta> = list.iter().collect();
        let keep = Keep { age: keep.0.map(Duration::from_millis), bytes: keep.1 };
        let newest = newest.map(Timestamp::from_ms);
        expired(&list, keep, newest, Timestamp::from_ms(now)).iter().map(|(seq, _)| *seq).collect()
    }

    #[test]
    fn what_is_too_old_goes_and_then_the_oldest_until_the_bytes_fit() {
        let list = [meta(1, 0, 100, 10), meta(2, 101, 200, 10), meta(3, 260, 300, 10), meta(4, 201, 250, 10)];
        let check = |age: Option<u64>, bytes: Option<u64>, expected: &[u64]| {
            assert_eq!(gone(&list, (age, bytes), Some(1_200), 1_200), expected, "{age:?} {bytes:?}");
        };
        check(None, None, &[]);
        check(Some(1_100), None, &[]);
        check(Some(1_099), None, &[1]);
        check(Some(999), None, &[1, 2]);
        check(Some(950), None, &[1, 2]);
        check(Some(949), None, &[1, 2, 4]);
        check(None, Some(40), &[]);
        check(None, Some(39), &[1]);
        check(None, Some(15), &[1, 2, 4]);
        check(Some(1_099), Some(20), &[1, 2]);
        check(None, Some(0), &[1, 2, 4, 3]);
    }

    #[test]
    fn age_counts_from_the_newest_sample_or_from_now_if_that_is_earlier() {
        let list = [meta(1, 0, 100, 10), meta(2, 900, 1_000, 10)];
        let check = |newest: Option<i64>, now: i64, expected: &[u64]| {
            assert_eq!(gone(&list, (Some(500), None), newest, now), expected, "{newest:?} {now}");
        };
        check(Some(1_000), 1_000, &[1]);
        // A clock that is far ahead, or an organisation that stopped sending.
        check(Some(1_000), 1_000_000, &[1]);
        check(Some(600), 1_000_000, &[]);
        // A sample from the future.
        check(Some(1_000_000), 1_000, &[1]);
        // A clock that is behind.
        check(Some(1_000), 50, &[]);
        check(None, 1_000_000, &[]);
    }

    #[test]
    fn a_segment_that_overrides_values_goes_no_earlier_than_they() {
        // Late samples of an old time over a large segment, others of a yet older time over those, and one that has
        // nothing below it.
        let list = [meta(1, 0, 100, 50), meta(2, 10, 20, 5), meta(3, -10, 12, 5), meta(4, -50, -40, 5)];
        for (bytes, expected) in
            [(64, &[4][..]), (60, &[4]), (59, &[4, 1]), (9, &[4, 1, 2]), (4, &[4, 1, 2, 3])]
        {
            assert_eq!(gone(&list, (None, Some(bytes)), None, 0), expected, "{bytes}");
        }
        // By age, too: half of the large one stays, and with it what lies over it.
        assert_eq!(gone(&list, (Some(50), None), Some(100), 100), [4]);
        assert_eq!(gone(&list, (Some(50), None), Some(151), 151), [4, 1, 2, 3]);
    }
}
