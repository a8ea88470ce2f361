//! Retention: whole segments go when their last sample is too old, or when an organisation has more bytes than it may
//! keep, the oldest first. A segment that is partly too old stays; what is too old in it is masked at reading.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Tsdb;
use super::compact::{Place, UpkeepError, UpkeepReport, retire};
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

/// The numbers of the segments that are to go, and why.
pub(super) fn expired(segments: &[&SegmentMeta], keep: Keep, now: Timestamp) -> Vec<(u64, &'static str)> {
    let oldest = keep.age.map_or(i64::MIN, |age| now.minus(age).as_ms());
    let mut gone: Vec<(u64, &'static str)> = Vec::new();
    let mut kept: Vec<&SegmentMeta> = Vec::new();
    for meta in segments {
        if meta.max_ms < oldest {
            gone.push((meta.seq, "it is older than is kept"));
        } else {
            kept.push(meta);
        }
    }
    kept.sort_unstable_by_key(|meta| (meta.max_ms, meta.seq));
    let mut bytes: u64 = kept.iter().map(|meta| meta.file_bytes).sum();
    for meta in kept {
        if keep.bytes.is_none_or(|most| bytes <= most) {
            break;
        }
        bytes -= meta.file_bytes;
        gone.push((meta.seq, "there are more bytes than are kept"));
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
        let keep = {
            let limits = store.limits();
            Keep { age: limits.retention, bytes: limits.retention_bytes }
        };
        let oldest = keep.age.map_or(i64::MIN, |age| now.minus(age).as_ms());
        store.kept_from_ms.store(oldest, Ordering::Relaxed);
        loop {
            let set = store.segments();
            let mut gone = expired(&set.metas(), keep, now);
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

    #[test]
    fn what_is_too_old_goes_and_then_the_oldest_until_the_bytes_fit() {
        let list = [meta(1, 0, 100, 10), meta(2, 100, 200, 10), meta(3, -50, 300, 10), meta(4, 200, 250, 10)];
        let list: Vec<&SegmentMeta> = list.iter().collect();
        let at = Timestamp::from_ms(1_200);
        let check = |age: Option<u64>, bytes: Option<u64>, expected: &[u64]| {
            let keep = Keep { age: age.map(Duration::from_millis), bytes };
            let found: Vec<u64> = expired(&list, keep, at).iter().map(|(seq, _)| *seq).collect();
            assert_eq!(found, expected, "{keep:?}");
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
}
