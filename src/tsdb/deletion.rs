//! Deletions: of samples by selectors and time, and of whole organisations.
//!
//! A deletion is a record of the log, so that its order among the writes is known: samples of earlier records are gone,
//! those of later ones are new. Applying it removes samples from the head; a tombstone in control hides those in segments
//! from then on; the next compactions leave them out. Replay does the same to the head, so that what becomes of the samples
//! around it is decided as it was. Answered when the tombstone is durable. One that was not answered may have removed what
//! the head alone had.
//!
//! Deletions that wait to be carried out are bounded in number; one that covers an earlier one replaces it. The samples are
//! gone from the disk within a day (`compact::deletions`).
//!
//! Body of the record (type 8):
//! ```text
//! i64 first ms, i64 last ms, both included;   varint ranges n;
//! n x { varint first series id - the id after the range before, varint series - 1 }
//! ```
//! The record of an organisation that was dropped (type 6) has a body of one zero byte.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::codec::{Reader, put_varint};
use super::compact::{Place, UpkeepError};
use super::error::{AppendError, Damage};
use super::manifest::{
    Change, ManifestError, TOMBSTONE_RANGES_MAX, TOMBSTONES_MAX, TOMBSTONES_RANGES_MAX, Tombstone,
};
use super::series::registry;
use super::store::OrgStore;
use super::wal::log::{Draft, Outcome};
use super::wal::record::Kind;
use super::{Sink, Snapshot, Tsdb, disk};
use crate::model::{Matcher, OrgId, Pace, Scope, Stopped, TimeRange, Timestamp};
use crate::sync::IgnorePoison as _;

/// Earlier deletions that one commit of 64 rows replaces.
const COVERED_AT_ONCE: usize = 48;

/// What a deletion did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeleteReport {
    /// Series that had samples in the range.
    pub series: u64,
    /// Segments that hold some of the samples, hidden, until they are merged.
    pub segments: u64,
}

/// Why nothing was deleted.
#[derive(Debug, thiserror::Error)]
pub enum DeleteError {
    /// The request had to end before anything was deleted.
    #[error("the series to delete were not all looked for")]
    Stopped(#[from] Stopped),
    /// No selector: that would be everything.
    #[error("a deletion needs a selector")]
    NoSelector,
    /// Earlier deletions are to be carried out first: [`Tsdb::seal_and_merge`] does so at once, upkeep by itself.
    #[error(
        "{waiting} deletions of {ranges} ranges of series wait to be carried out, which is as many as may: wait for them, or seal (`promlet seal`), which carries them out"
    )]
    TooMany {
        /// Deletions.
        waiting: usize,
        /// Ranges of series in them.
        ranges: usize,
    },
    /// The record was not made durable.
    #[error("the deletion was not written")]
    Log(#[from] AppendError),
    /// The tombstone was not made durable.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
}

/// A deletion as its record says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Deletion {
    pub(super) from_ms: i64,
    pub(super) to_ms: i64,
    /// Both ends in; ascending, apart.
    pub(super) series: Vec<(u32, u32)>,
}

impl Deletion {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(24 + self.series.len() * 4);
        out.extend_from_slice(&self.from_ms.to_le_bytes());
        out.extend_from_slice(&self.to_ms.to_le_bytes());
        put_varint(&mut out, self.series.len() as u64);
        let mut next = 0u64;
        for (first, last) in &self.series {
            put_varint(&mut out, u64::from(*first).saturating_sub(next));
            put_varint(&mut out, u64::from(last.saturating_sub(*first)));
            next = u64::from(*last) + 1;
        }
        out
    }

    /// # Errors
    /// [`Damage`] where the bytes are no such body.
    pub(super) fn decode(body: &[u8]) -> Result<Deletion, Damage> {
        let mut reader = Reader::new(body);
        let (from_ms, to_ms) = (reader.i64()?, reader.i64()?);
        let ranges = reader.count(2)?;
        if ranges > TOMBSTONE_RANGES_MAX {
            return Err(reader.damage("too many ranges of series"));
        }
        let mut series = Vec::with_capacity(ranges);
        let mut next = 0u64;
        for _ in 0..ranges {
            let first = next.checked_add(reader.varint()?);
            let last = first.zip(Some(reader.varint()?)).and_then(|(first, more)| first.checked_add(more));
            let range = first
                .zip(last)
                .and_then(|(first, last)| Some((u32::try_from(first).ok()?, u32::try_from(last).ok()?)));
            let Some((first, last)) = range else { return Err(reader.damage("series ids over 32 bits")) };
            series.push((first, last));
            next = u64::from(last) + 1;
        }
        reader.end()?;
        Ok(Deletion { from_ms, to_ms, series })
    }

    fn range(&self) -> TimeRange {
        TimeRange::new(Timestamp::from_ms(self.from_ms), Timestamp::from_ms(self.to_ms))
    }

    /// Removes from the head what it has, but for series whose rows of a checkpoint (`floats`, `beside`) tell of it.
    /// `exemplars`: whether those that are there came before it.
    pub(super) fn apply(
        &self,
        store: &OrgStore,
        floats: impl Fn(u32) -> bool,
        beside: impl Fn(u32) -> bool,
        exemplars: bool,
    ) {
        // The thread that writes the log does not wait for the table.
        let end = store.usage.ids_end();
        for (first, last) in &self.series {
            for id in *first..(*last).saturating_add(1).min(end) {
                if !floats(id) {
                    store.head.delete(id, self.range());
                }
                if !beside(id) {
                    store.side.delete(id, self.range());
                }
                if exemplars {
                    store.side.delete_exemplars(id, self.range());
                }
            }
        }
    }
}

/// Ids as ranges, both ends in.
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
    /// Deletes the samples in `range` (both ends in) of every series that passes all matchers of any selector. Once it
    /// answers they are never seen again, but for queries under way.
    ///
    /// # Errors
    /// [`DeleteError`]; the deletion may then be done in part.
    pub fn delete(
        &self,
        org: OrgId,
        selectors: &[Vec<Matcher>],
        range: TimeRange,
        now: Timestamp,
    ) -> Result<DeleteReport, DeleteError> {
        self.delete_within(org, (selectors, range), now, &Pace::endless())
    }

    /// As [`Tsdb::delete`]; the series are looked for within `pace`, and only then is anything deleted.
    ///
    /// # Errors
    /// As [`Tsdb::delete`], and [`DeleteError::Stopped`].
    pub fn delete_within(
        &self,
        org: OrgId,
        (selectors, range): (&[Vec<Matcher>], TimeRange),
        now: Timestamp,
        pace: &Pace<'_>,
    ) -> Result<DeleteReport, DeleteError> {
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
        // What retention hides goes as well: it would be seen again if more were kept.
        let snapshot = Snapshot::with_what_is_too_old(Arc::clone(&store), Scope::default());
        let mut ids = Vec::new();
        for matchers in selectors {
            ids.extend(snapshot.paced(pace).ids(matchers, range)?);
        }
        let ranges = ranges(ids);
        report.series = ranges.iter().map(|(first, last)| u64::from(last - first) + 1).sum();
        for series in ranges.chunks(TOMBSTONE_RANGES_MAX) {
            let (from_ms, to_ms) = (range.start.as_ms(), range.end.as_ms());
            let deletion = Deletion { from_ms, to_ms, series: series.to_vec() };
            report.segments = report.segments.max(self.delete_some(&store, deletion, now)?);
        }
        Ok(report)
    }

    /// Answers the segments that are masked.
    fn delete_some(
        &self,
        store: &Arc<OrgStore>,
        deletion: Deletion,
        now: Timestamp,
    ) -> Result<u64, DeleteError> {
        let draft = Draft::new(store.org, Kind::Delete, deletion.encode());
        let Some(manifest) = &self.manifest else {
            self.commit(vec![draft], now)?;
            return Ok(0);
        };
        // A seal at work may have copied what is deleted here and not named its segment yet.
        let _no_seal = self.no_seal_of(store);
        // No segment may be listed between the record and its tombstone: one merged from older and newer ones would be
        // taken for new.
        let alone = store.changing();
        let set = store.segments();
        let clean_from = store.next_segment.load(Ordering::SeqCst);
        let Deletion { from_ms, to_ms, series } = deletion;
        // Later than every record there is, until its own number is known.
        let mut tombstone = Tombstone { from_ms, to_ms, upto_seq: u64::MAX, clean_from, series };
        let (covered, left): (Vec<_>, Vec<_>) =
            set.tombstones.iter().partition(|(_, earlier)| tombstone.covers(earlier));
        let ranges = left.iter().map(|(_, earlier)| earlier.series.len()).sum::<usize>();
        if left.len() >= TOMBSTONES_MAX || ranges + tombstone.series.len() > TOMBSTONES_RANGES_MAX {
            return Err(DeleteError::TooMany { waiting: left.len(), ranges });
        }
        let covered: Vec<u64> = covered.iter().map(|(number, _)| *number).take(COVERED_AT_ONCE).collect();
        let outcomes = self.commit(vec![draft], now)?;
        // A tombstone beyond what the log holds after a power cut would mask what comes then.
        self.flush()?;
        let upto_seq = outcomes.first().map_or(0, |outcome: &Outcome| outcome.record_seq);
        tombstone.upto_seq = upto_seq;
        let tombstone = Arc::new(tombstone);
        let masked = set.metas().iter().filter(|meta| tombstone.masks(meta)).count();
        let change = Change {
            add_tombstones: vec![(upto_seq, (*tombstone).clone())],
            remove_tombstones: covered.clone(),
            ..Change::default()
        };
        store.change_held(&alone, manifest, change, |now| {
            let mut next = now.clone();
            next.tombstones.retain(|(number, _)| !covered.contains(number));
            next.tombstones.push((upto_seq, tombstone));
            next
        })?;
        // The head has noted it; what segments have goes only now.
        store.changes.note(from_ms);
        Ok(masked as u64)
    }

    /// Removes everything that an organisation stored: control notes that it is dropped, its record ends it in memory, then
    /// its rows and its files go. What a crash leaves of it is removed after the next start. Its number must not be used
    /// again; what still comes for it is thrown away.
    ///
    /// # Errors
    /// [`UpkeepError`]; once control has the note the organisation is gone, at the latest with the next start, and
    /// [`Tsdb::maintain`] removes the rest.
    pub fn drop_org(&self, org: OrgId, now: Timestamp) -> Result<(), UpkeepError> {
        let place = self.place()?;
        place.manifest.set_dropped(org)?;
        let draft = Draft::new(org, Kind::Dropped, vec![0]);
        self.commit(vec![draft], now).map_err(UpkeepError::Log)?;
        let _alone = self.compactor.lock().ignore_poison();
        self.finish_drops(place)
    }

    /// Removes rows and files of organisations that were dropped. Those of others are sealed meanwhile.
    pub(super) fn finish_drops(&self, place: Place<'_>) -> Result<(), UpkeepError> {
        for (org, store) in self.stores.dropped_unfinished() {
            // A seal of it that is under way would list and make what is removed here; one that comes to it later sees that
            // it is dropped.
            drop(store.as_ref().map(|store| self.no_seal_of(store)));
            // A backup sets list and files aside under the one, a checkpoint writes registries under the other.
            let _removal = self.removal.lock().ignore_poison();
            let _checkpoints = self.checkpoints.lock().ignore_poison();
            while place.manifest.forget(org)? {}
            disk::remove_dir_if_there(&place.folder.segments_of(org))?;
            disk::sync_dir(&place.folder.segments)?;
            disk::remove_if_there(&registry::path_of(&place.folder.series, org))?;
            disk::remove_if_there(&registry::copy_of(&place.folder.series, org))?;
            disk::sync_dir(&place.folder.series)?;
            self.stores.drop_is_finished(org);
            tracing::info!(org = org.0, "removed everything of an organisation that was dropped");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_deletion_comes_back(from_ms: i64, to_ms: i64, ids in prop::collection::vec(prop_oneof![0u32..50, any::<u32>()], 0..40)) {
            let series = ranges(ids.clone());
            let deletion = Deletion { from_ms, to_ms, series };
            prop_assert_eq!(Deletion::decode(&deletion.encode()), Ok(deletion.clone()));
            for id in ids {
                prop_assert!(deletion.series.iter().any(|(first, last)| (*first..=*last).contains(&id)));
            }
        }

        #[test]
        fn hostile_bytes_are_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = Deletion::decode(&bytes);
        }
    }

    #[test]
    fn the_body_is_as_drawn() {
        let deletion = Deletion { from_ms: 1, to_ms: -1, series: vec![(3, 3), (5, 300)] };
        assert_eq!(
            deletion.encode(),
            [&[1, 0, 0, 0, 0, 0, 0, 0][..], &[0xff; 8], &[2, 3, 0, 1, 0xa7, 0x02]].concat()
        );
    }
}
