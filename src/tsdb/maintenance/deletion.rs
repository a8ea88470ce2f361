//! Deletions of samples by selectors and time, and of whole organisations.
//!
//! A deletion is a record of the log, so its order among the writes is known: samples of earlier
//! records are deleted, those of later ones are new. Applying it removes samples from the head.
//! From then on a tombstone in control hides samples in segments, and the next compactions drop
//! them. A replay applies the deletion to the head in the same order, so it makes the same
//! decisions about the samples around it. The caller gets a response once the tombstone is durable.
//! A deletion without a response may have removed the samples that only the head had.
//!
//! The number of pending deletions is bounded. A deletion that covers an earlier one replaces it.
//! The samples are removed from the disk within a day (`compact::deletions`).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::compact::{MaintenanceContext, UpkeepError};
use crate::model::{Matcher, OrgId, Pace, Stopped, TimeRange, Timestamp};
use crate::sync::IgnorePoison as _;
use crate::tsdb::error::{AppendError, CopyError, ManifestError};
use crate::tsdb::series::registry;
use crate::tsdb::snapshot::Snapshot;
use crate::tsdb::store::OrgStore;
use crate::tsdb::store::deletion::Deletion;
use crate::tsdb::store::manifest::{
    ManifestChange, TOMBSTONE_RANGES_MAX, TOMBSTONES_MAX, TOMBSTONES_RANGES_MAX, Tombstone,
};
use crate::tsdb::wal::copy::CopiedRecord;
use crate::tsdb::wal::log::{ApplyOutcome, Draft};
use crate::tsdb::wal::record::RecordKind;
use crate::tsdb::wal::sink::Sink;
use crate::tsdb::{Tsdb, disk};

/// The limit of earlier deletions that one commit of 64 rows replaces.
const COVERED_AT_ONCE: usize = 48;

/// The result of a deletion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeleteReport {
    /// Series that had samples in the range.
    pub series: u64,
    /// Segments with hidden samples, which remain until the segments are merged.
    pub segments: u64,
}

/// The reason why a deletion failed.
#[derive(Debug, thiserror::Error)]
pub enum DeleteError {
    /// The request ended before anything was deleted.
    #[error("the request ended before all series to delete were found")]
    Stopped(#[from] Stopped),
    /// No selector was given, which would delete everything.
    #[error("a deletion needs a selector")]
    NoSelector,
    /// Earlier deletions must be carried out first. [`Tsdb::seal_and_merge`] removes them at once,
    /// maintenance within a day.
    #[error(
        "{waiting} deletions of {ranges} ranges of series are pending, which is the limit: wait for them, or run `promlet seal`, which carries them out"
    )]
    TooMany {
        /// Pending deletions.
        waiting: usize,
        /// Ranges of series in the pending deletions.
        ranges: usize,
    },
    /// The record was not made durable.
    #[error("the deletion was not written")]
    Log(#[from] AppendError),
    /// The tombstone was not made durable.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// A copied deletion was not stored.
    #[error(transparent)]
    Copy(#[from] CopyError),
}

/// The record of a deletion.
pub(in crate::tsdb) enum DeletionRecord {
    /// The record is to be created.
    New,
    /// A record from the primary, which is stored unchanged.
    Copied(CopiedRecord),
    /// The record with this number is in the log and applied.
    Logged(u64),
}

/// Groups ids into ranges, both ends inclusive.
fn ranges(mut ids: Vec<u32>) -> Vec<(u32, u32)> {
    ids.sort_unstable();
    ids.dedup();
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for id in ids {
        match ranges.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(id) => *last = id,
            _ => ranges.push((id, id)),
        }
    }
    ranges
}

impl Tsdb {
    /// Deletes the samples in `range` (both ends inclusive) of every series that all matchers of
    /// any selector match. After it returns, only queries in progress still see them.
    ///
    /// # Errors
    /// [`DeleteError`]. The deletion may then be partly done.
    pub fn delete(
        &self,
        org: OrgId,
        selectors: &[Vec<Matcher>],
        range: TimeRange,
        now: Timestamp,
    ) -> Result<DeleteReport, DeleteError> {
        self.delete_within(org, DeletedSamples { selectors, range }, now, &Pace::endless())
    }

    /// Deletes samples like [`Tsdb::delete`]. The search for the series is bounded by `pace`, and
    /// nothing is deleted before it ends.
    ///
    /// # Errors
    /// Like [`Tsdb::delete`], and [`DeleteError::Stopped`].
    pub fn delete_within(
        &self,
        org: OrgId,
        samples: DeletedSamples<'_>,
        now: Timestamp,
        pace: &Pace<'_>,
    ) -> Result<DeleteReport, DeleteError> {
        let DeletedSamples { selectors, range } = samples;
        if selectors.is_empty() {
            return Err(DeleteError::NoSelector);
        }
        match &self.log {
            Sink::Log(log) => log.admit_giving_space()?,
            Sink::Memory(_) => {}
            Sink::ReadOnly { why, .. } => return Err(AppendError::ReadOnly(why.clone()).into()),
        }
        let mut report = DeleteReport::default();
        let Some(store) = self.stores.org(org) else { return Ok(report) };
        // Samples hidden by retention are deleted as well. They would reappear if the retention
        // were increased.
        let snapshot = Snapshot::ignoring_retention(Arc::clone(&store));
        let mut ids = Vec::new();
        for matchers in selectors {
            ids.extend(snapshot.paced(pace).ids(matchers, range)?);
        }
        let ranges = ranges(ids);
        report.series = ranges.iter().map(|(first, last)| u64::from(last - first) + 1).sum();
        for series in ranges.chunks(TOMBSTONE_RANGES_MAX) {
            let (from_ms, to_ms) = (range.start.as_ms(), range.end.as_ms());
            let deletion = Deletion { from_ms, to_ms, series: series.to_vec() };
            report.segments =
                report.segments.max(self.delete_some(&store, deletion, DeletionRecord::New, now)?);
        }
        // Waits for the follower, now that tombstones are stored and no lock is held.
        self.commit(Vec::new(), now)?;
        Ok(report)
    }

    /// Deletes the samples of some series. Returns the number of segments that the tombstone masks.
    pub(in crate::tsdb) fn delete_some(
        &self,
        store: &Arc<OrgStore>,
        deletion: Deletion,
        record: DeletionRecord,
        now: Timestamp,
    ) -> Result<u64, DeleteError> {
        let draft = Draft::new(store.org, RecordKind::Delete, deletion.encode());
        let Some(manifest) = &self.manifest else {
            self.commit(vec![draft], now)?;
            return Ok(0);
        };
        // A seal in progress may have copied deleted samples into a segment that is not listed yet.
        let _no_seal = self.block_seals_of(store);
        // No segment may be listed between the record and its tombstone: the tombstone would take a
        // segment merged from older and newer ones for a new one.
        let changing = store.changing();
        let set = store.segments();
        let clean_from = store.next_segment.load(Ordering::SeqCst);
        let Deletion { from_ms, to_ms, series } = deletion;
        // Greater than all record numbers, until its own number is known.
        let mut tombstone = Tombstone { from_ms, to_ms, upto_seq: u64::MAX, clean_from, series };
        let (covered, left): (Vec<_>, Vec<_>) =
            set.tombstones.iter().partition(|(_, earlier)| tombstone.covers(earlier));
        let ranges = left.iter().map(|(_, earlier)| earlier.series.len()).sum::<usize>();
        // A follower takes every deletion that its primary took.
        let is_new = matches!(record, DeletionRecord::New);
        if is_new && (left.len() >= TOMBSTONES_MAX || ranges + tombstone.series.len() > TOMBSTONES_RANGES_MAX)
        {
            return Err(DeleteError::TooMany { waiting: left.len(), ranges });
        }
        let covered: Vec<u64> = covered.iter().map(|(number, _)| *number).take(COVERED_AT_ONCE).collect();
        let upto_seq = match record {
            DeletionRecord::New => {
                let outcomes = self.commit(vec![draft], now)?;
                // A tombstone beyond the end of the log after a power cut would mask later samples.
                self.flush()?;
                outcomes.first().map_or(0, |outcome: &ApplyOutcome| outcome.record_seq)
            }
            DeletionRecord::Copied(record) => {
                let seq = record.seq;
                match &self.log {
                    Sink::Log(log) => log.append_copied(vec![record])?,
                    Sink::Memory(_) | Sink::ReadOnly { .. } => return Err(AppendError::Closed.into()),
                }
                seq
            }
            DeletionRecord::Logged(seq) => seq,
        };
        tombstone.upto_seq = upto_seq;
        let tombstone = Arc::new(tombstone);
        let masked = set.metas().iter().filter(|meta| tombstone.masks(meta)).count();
        let change = ManifestChange {
            add_tombstones: vec![(upto_seq, (*tombstone).clone())],
            remove_tombstones: covered.clone(),
            ..ManifestChange::default()
        };
        store.change_held(&changing, manifest, change, |now| {
            let mut next = now.clone();
            next.tombstones.retain(|(number, _)| !covered.contains(number));
            next.tombstones.push((upto_seq, tombstone));
            next
        })?;
        // The head has recorded its change. The samples in segments are hidden only now.
        store.changes.note(from_ms);
        Ok(masked as u64)
    }

    /// Removes all data of an organisation. Control records the drop, the log record ends the
    /// organisation in memory, then its rows and files are removed. The next start finishes the
    /// removal after a crash. Its number must not be used again, since later records for it are
    /// discarded.
    ///
    /// # Errors
    /// [`UpkeepError`]. Once control has recorded the drop, the organisation is gone, at the latest
    /// after the next start, and [`Tsdb::maintain`] removes the rest.
    pub fn drop_org(&self, org: OrgId, now: Timestamp) -> Result<(), UpkeepError> {
        let maintenance = self.maintenance_context()?;
        maintenance.manifest.set_dropped(org)?;
        let draft = Draft::new(org, RecordKind::Dropped, vec![0]);
        self.commit(vec![draft], now).map_err(UpkeepError::Log)?;
        let _alone = self.compactor.lock().ignore_poison();
        self.finish_drops(maintenance)
    }

    /// Removes rows and files of dropped organisations. Other organisations can be sealed
    /// meanwhile.
    pub(in crate::tsdb) fn finish_drops(
        &self,
        maintenance: MaintenanceContext<'_>,
    ) -> Result<(), UpkeepError> {
        for (org, store) in self.stores.dropped_unfinished() {
            // A seal of it in progress would list and write the files that are removed here. A
            // later seal sees that the organisation is dropped.
            drop(store.as_ref().map(|store| self.block_seals_of(store)));
            // A backup copies the list and links the files under the first lock; a checkpoint
            // writes registries under the second.
            let _removal = self.removal.lock().ignore_poison();
            let _checkpoints = self.checkpoints.lock().ignore_poison();
            while maintenance.manifest.forget(org)? {}
            disk::remove_dir_if_there(&maintenance.folder.segments_of(org))?;
            disk::sync_dir(&maintenance.folder.segments)?;
            disk::remove_if_there(&registry::path_of(&maintenance.folder.series, org))?;
            disk::remove_if_there(&registry::copy_of(&maintenance.folder.series, org))?;
            disk::sync_dir(&maintenance.folder.series)?;
            self.stores.drop_is_finished(org);
            tracing::info!(org = org.0, "removed all data of a dropped organisation");
        }
        Ok(())
    }
}

/// The samples to delete: those in `range` of all series that any selector matches.
#[derive(Clone, Copy, Debug)]
pub struct DeletedSamples<'s> {
    /// The matchers of each selector.
    pub selectors: &'s [Vec<Matcher>],
    /// The time, both ends inclusive.
    pub range: TimeRange,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_deletion_decodes_to_itself(from_ms: i64, to_ms: i64, ids in prop::collection::vec(prop_oneof![0u32..50, any::<u32>()], 0..40)) {
            let series = ranges(ids.clone());
            let deletion = Deletion { from_ms, to_ms, series };
            prop_assert_eq!(Deletion::decode(&deletion.encode()), Ok(deletion.clone()));
            for id in ids {
                prop_assert!(deletion.series.iter().any(|(first, last)| (*first..=*last).contains(&id)));
            }
        }

        #[test]
        fn hostile_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = Deletion::decode(&bytes);
        }
    }

    #[test]
    fn the_body_has_its_golden_bytes() {
        let deletion = Deletion { from_ms: 1, to_ms: -1, series: vec![(3, 3), (5, 300)] };
        assert_eq!(
            deletion.encode(),
            [&[1, 0, 0, 0, 0, 0, 0, 0][..], &[0xff; 8], &[2, 3, 0, 1, 0xa7, 0x02]].concat()
        );
    }
}
