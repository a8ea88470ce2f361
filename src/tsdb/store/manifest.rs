//! The samples' part of control: the listed segments, the sealed time of each organisation,
//! deletions, and files to remove. A commit here decides whether a seal, compaction or drop took
//! place.
//!
//! Tables of control. Bodies follow the field order of their types ([`crate::kv::Record`]):
//! ```text
//! 0x20 key org, segment seq    a listed segment (SegmentRow)
//! 0x21 key org                 S, U, registry bytes (SealState): every sample with record seq <= S
//!                              and time < U is in a listed segment, every definition with
//!                              seq <= S in that much of the registry
//! 0x22 key org, number         a deletion (Tombstone)
//! 0x23 key org, segment seq    a segment that is no longer listed and whose file is to be removed
//!                              (ObsoleteRow)
//! 0x24 no key                  where the log begins: committed before any earlier file is unlinked
//!                              (LogBegin)
//! 0x25 key org                 a dropped organisation (DroppedOrg)
//! 0x26 no key                  the last log record known to be durable (LogMark): a log that ends
//!                              before it was rolled back. Written with every checkpoint and log
//!                              file, every few seconds while records arrive, and at a clean stop
//! 0x27 no key                  the clock of retention (RetentionClock)
//! 0x28 key org                 the last seal of all times (SealedAll): every sample of a record up
//!                              to it is in a listed segment, whatever its time
//! 0x29 key consumer            the first log record that a consumer needs ([`super::pins`])
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, RwLock};

use serde::{Deserialize, Serialize};

use super::pins::{ConsumerId, PinRow};
use super::retention_clock::RetentionClock;
use crate::kv::{CommitError, Control, DamagedRow, OfflineControl, Record, Txn};
use crate::model::OrgId;
use crate::sync::IgnorePoison as _;
use crate::tsdb::error::ManifestError;
use crate::tsdb::segment::SegmentMeta;
use crate::tsdb::wal::replay::LogOrigin;

/// The limit of segments in one change. Together with the other rows of a seal or a compaction they
/// stay below the 64 rows of a change. Tests use a low limit, so that a seal of a week needs
/// several changes.
pub(in crate::tsdb) const CHANGE_SEGMENTS_MAX: usize = if cfg!(test) { 3 } else { 61 };
/// The number of rows of each of three kinds that one commit of 64 rows removes.
const FORGET_AT_ONCE: usize = 20;
/// The limit of pins in one change.
const CHANGE_PINS_MAX: usize = 32;
/// The limit of series ranges in one tombstone. Longer ones are split: 20,000 ranges of at most 10
/// bytes are below 192 KiB.
pub(in crate::tsdb) const TOMBSTONE_RANGES_MAX: usize = 16_000;
/// The limit of pending deletions of an organisation. Every read of a segment checks all of them.
pub(in crate::tsdb) const TOMBSTONES_MAX: usize = 256;
/// The limit of series ranges in all of them: 8 MiB of memory.
pub(in crate::tsdb) const TOMBSTONES_RANGES_MAX: usize = 1 << 20;

/// A listed segment, as stored. The fields of the key are not repeated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SegmentRow {
    level: u8,
    flags: u8,
    series: u32,
    min_ms: i64,
    max_ms: i64,
    file_bytes: u64,
    samples: u64,
    first_log_seq: u64,
    last_log_seq: u64,
    footer_crc: u32,
    sha256: [u8; 16],
    replaces: Vec<u64>,
}

impl Record for SegmentRow {
    const TABLE: u8 = 0x20;
    const KIND: u8 = 0x20;
    const VERSION: u8 = 1;
    type Key = (OrgId, u64);
}

impl SegmentRow {
    fn of(meta: &SegmentMeta) -> SegmentRow {
        SegmentRow {
            level: meta.level,
            flags: meta.flags,
            series: meta.series,
            min_ms: meta.min_ms,
            max_ms: meta.max_ms,
            file_bytes: meta.file_bytes,
            samples: meta.samples,
            first_log_seq: meta.first_log_seq,
            last_log_seq: meta.last_log_seq,
            footer_crc: meta.footer_crc,
            sha256: meta.sha256,
            replaces: meta.replaces.clone(),
        }
    }

    fn into_meta(self, org: OrgId, seq: u64) -> SegmentMeta {
        SegmentMeta {
            org,
            seq,
            level: self.level,
            flags: self.flags,
            series: self.series,
            min_ms: self.min_ms,
            max_ms: self.max_ms,
            file_bytes: self.file_bytes,
            samples: self.samples,
            first_log_seq: self.first_log_seq,
            last_log_seq: self.last_log_seq,
            footer_crc: self.footer_crc,
            sha256: self.sha256,
            replaces: self.replaces,
        }
    }
}

/// The sealed part of an organisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::tsdb) struct SealState {
    /// The last committed seal record.
    pub(in crate::tsdb) seq: u64,
    /// The exclusive end of the sealed time, in ms. Only a seal of all times sets it to an earlier
    /// one.
    pub(in crate::tsdb) until_ms: i64,
    /// The bytes of the registry file that are durable and relied on.
    pub(in crate::tsdb) registry_bytes: u64,
    /// The number of the next segment. Numbers are never used twice.
    pub(in crate::tsdb) next_segment: u64,
}

impl Default for SealState {
    fn default() -> SealState {
        SealState { seq: 0, until_ms: i64::MIN, registry_bytes: 0, next_segment: 1 }
    }
}

impl Record for SealState {
    const TABLE: u8 = 0x21;
    const KIND: u8 = 0x21;
    const VERSION: u8 = 1;
    type Key = OrgId;
}

/// The last seal of samples of any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SealedAll {
    seq: u64,
}

impl Record for SealedAll {
    const TABLE: u8 = 0x28;
    const KIND: u8 = 0x28;
    const VERSION: u8 = 1;
    type Key = OrgId;
}

/// Deleted samples. They are hidden until no segment, log file or checkpoint holds them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::tsdb) struct Tombstone {
    /// The first deleted millisecond.
    pub(in crate::tsdb) from_ms: i64,
    /// The last deleted millisecond.
    pub(in crate::tsdb) to_ms: i64,
    /// The last record whose samples are deleted. Samples of later records are new.
    pub(in crate::tsdb) upto_seq: u64,
    /// The number of the next segment at the deletion. Segments from this number on hold no deleted
    /// sample.
    pub(in crate::tsdb) clean_from: u64,
    /// Ranges of series ids, at most [`TOMBSTONE_RANGES_MAX`]: both ends inclusive, ascending and
    /// not adjacent.
    pub(in crate::tsdb) series: Vec<(u32, u32)>,
}

impl Tombstone {
    /// Returns whether it applies to the series.
    pub(in crate::tsdb) fn names(&self, series: u32) -> bool {
        let index = self.series.partition_point(|(_, last)| *last < series);
        self.series.get(index).is_some_and(|(first, _)| *first <= series)
    }

    /// Returns whether a segment may hold samples that it hides.
    pub(in crate::tsdb) fn masks(&self, meta: &SegmentMeta) -> bool {
        self.masks_any_time(meta) && meta.min_ms <= self.to_ms && self.from_ms <= meta.max_ms
    }

    /// Returns the same for exemplars. A segment holds exemplars of its records with any time.
    pub(in crate::tsdb) fn masks_any_time(&self, meta: &SegmentMeta) -> bool {
        meta.seq < self.clean_from && meta.last_log_seq <= self.upto_seq
    }

    /// Returns whether it hides everything that an earlier one hides.
    pub(in crate::tsdb) fn covers(&self, earlier: &Tombstone) -> bool {
        let covered = |(first, last): &(u32, u32)| {
            let index = self.series.partition_point(|(_, end)| end < first);
            self.series.get(index).is_some_and(|(start, end)| start <= first && last <= end)
        };
        self.from_ms <= earlier.from_ms
            && earlier.to_ms <= self.to_ms
            && earlier.upto_seq <= self.upto_seq
            && earlier.clean_from <= self.clean_from
            && earlier.series.iter().all(covered)
    }

    /// Returns whether it hides a sample, provided that the sample's record is early enough.
    pub(in crate::tsdb) fn hides(&self, series: u32, at_ms: i64) -> bool {
        (self.from_ms..=self.to_ms).contains(&at_ms) && self.names(series)
    }
}

impl Record for Tombstone {
    const TABLE: u8 = 0x22;
    const KIND: u8 = 0x22;
    const VERSION: u8 = 1;
    type Key = (OrgId, u64);
}

/// A segment file that is removed once it has no reader.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::tsdb) struct ObsoleteRow {
    /// The file in `segments/<org>`.
    pub(in crate::tsdb) file: String,
    /// The reason, for the log line of the removal.
    pub(in crate::tsdb) reason: String,
}

impl Record for ObsoleteRow {
    const TABLE: u8 = 0x23;
    const KIND: u8 = 0x23;
    const VERSION: u8 = 1;
    type Key = (OrgId, u64);
}

/// The start of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct LogBegin {
    file: u64,
    seq: u64,
}

impl Record for LogBegin {
    const TABLE: u8 = 0x24;
    const KIND: u8 = 0x24;
    const VERSION: u8 = 1;
    type Key = ();
}

/// The high-water mark of the log, outside of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct LogMark {
    seq: u64,
}

impl Record for LogMark {
    const TABLE: u8 = 0x26;
    const KIND: u8 = 0x26;
    const VERSION: u8 = 1;
    type Key = ();
}

/// A dropped organisation. Any data of it is to be removed. The row stays, since the number is
/// never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct DroppedOrg {}

impl Record for DroppedOrg {
    const TABLE: u8 = 0x25;
    const KIND: u8 = 0x25;
    const VERSION: u8 = 1;
    type Key = OrgId;
}

/// The state of one organisation's samples in control.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::tsdb) struct OrgManifest {
    pub(in crate::tsdb) state: SealState,
    /// The record of the last seal of all times; 0 if there was none.
    pub(in crate::tsdb) sealed_all_seq: u64,
    /// The segments in order of number.
    pub(in crate::tsdb) segments: Vec<SegmentMeta>,
    /// The tombstones in order of number.
    pub(in crate::tsdb) tombstones: Vec<(u64, Tombstone)>,
    /// The obsolete rows in order of number.
    pub(in crate::tsdb) obsolete: Vec<(u64, ObsoleteRow)>,
}

/// The state of all samples in control.
#[derive(Clone, Debug, Default)]
pub(in crate::tsdb) struct StoreManifest {
    pub(in crate::tsdb) listed: BTreeMap<OrgId, OrgManifest>,
    /// Dropped organisations.
    pub(in crate::tsdb) dropped: BTreeSet<OrgId>,
    /// The start of the log.
    pub(in crate::tsdb) begin: LogOrigin,
    /// The last log record known to be durable; 0 if none was recorded.
    pub(in crate::tsdb) mark: u64,
}

/// A change of one organisation in one commit.
#[derive(Clone, Debug, Default)]
pub(in crate::tsdb) struct ManifestChange {
    /// The new state; none: unchanged, except that `next_segment` exceeds the added segments.
    pub(in crate::tsdb) state: Option<SealState>,
    /// Whether the new state is that of a seal of all times.
    pub(in crate::tsdb) seals_all: bool,
    pub(in crate::tsdb) add: Vec<SegmentMeta>,
    /// Segments that are no longer listed, with the reason for the removal of their files.
    pub(in crate::tsdb) drop: Vec<(SegmentMeta, &'static str)>,
    pub(in crate::tsdb) add_tombstones: Vec<(u64, Tombstone)>,
    pub(in crate::tsdb) remove_tombstones: Vec<u64>,
    /// Segments whose files were removed. Their rows are removed as well.
    pub(in crate::tsdb) gone: Vec<u64>,
}

/// The rows of all organisations, from an open or a closed control.
struct OrgRows {
    states: Vec<(OrgId, SealState)>,
    sealed_all: Vec<(OrgId, SealedAll)>,
    segments: Vec<((OrgId, u64), SegmentRow)>,
    tombstones: Vec<((OrgId, u64), Tombstone)>,
    obsolete: Vec<((OrgId, u64), ObsoleteRow)>,
}

impl OrgRows {
    fn by_org(self) -> BTreeMap<OrgId, OrgManifest> {
        let mut all: BTreeMap<OrgId, OrgManifest> = BTreeMap::new();
        for (org, state) in self.states {
            all.entry(org).or_default().state = state;
        }
        for (org, SealedAll { seq }) in self.sealed_all {
            all.entry(org).or_default().sealed_all_seq = seq;
        }
        for ((org, seq), row) in self.segments {
            all.entry(org).or_default().segments.push(row.into_meta(org, seq));
        }
        for ((org, number), tombstone) in self.tombstones {
            all.entry(org).or_default().tombstones.push((number, tombstone));
        }
        for ((org, seq), obsolete) in self.obsolete {
            all.entry(org).or_default().obsolete.push((seq, obsolete));
        }
        all
    }
}

/// Reads the state of all samples from a closed control.
///
/// # Errors
/// [`DamagedRow`] if a row is not as it was written.
pub(in crate::tsdb) fn offline(control: &OfflineControl) -> Result<StoreManifest, DamagedRow> {
    let all = OrgRows {
        states: control.scan(&())?,
        sealed_all: control.scan(&())?,
        segments: control.scan(&())?,
        tombstones: control.scan(&())?,
        obsolete: control.scan(&())?,
    }
    .by_org();
    let dropped = control.scan::<DroppedOrg>(&())?.into_iter().map(|(org, _)| org).collect();
    let begin = control.scan::<LogBegin>(&())?.pop();
    let begin = begin.map_or_else(LogOrigin::default, |((), LogBegin { file, seq })| LogOrigin { file, seq });
    let mark = control.scan::<LogMark>(&())?.pop().map_or(0, |((), mark)| mark.seq);
    Ok(StoreManifest { listed: all, dropped, begin, mark })
}

/// Describes the log records after `last_seq` that control knows. If there are any, the end of the
/// log is lost.
pub(in crate::tsdb) fn records_beyond(
    listed: &BTreeMap<OrgId, OrgManifest>,
    mark: u64,
    last_seq: u64,
) -> Vec<String> {
    let mut beyond = Vec::new();
    for (org, listed) in listed {
        let OrgManifest { state, segments, tombstones, .. } = listed;
        let segment = segments.iter().map(|meta| meta.last_log_seq).max().unwrap_or(0);
        let deletion = tombstones.iter().map(|(_, tombstone)| tombstone.upto_seq).max().unwrap_or(0);
        if state.seq > last_seq {
            beyond.push(format!("organisation {org} is sealed to record {}", state.seq));
        }
        if segment > last_seq.max(state.seq) {
            beyond.push(format!("a segment of organisation {org} holds record {segment}"));
        }
        if deletion > last_seq {
            beyond.push(format!("a deletion of organisation {org} is record {deletion}"));
        }
    }
    if beyond.is_empty() && mark > last_seq {
        beyond.push(format!("record {mark} was durable"));
    }
    beyond
}

/// Returns the greatest number of a log record that control knows. A repaired log continues after
/// it.
pub(in crate::tsdb) fn newest_record(listed: &BTreeMap<OrgId, OrgManifest>, mark: u64) -> u64 {
    let of_one = |listed: &OrgManifest| {
        let segments = listed.segments.iter().map(|meta| meta.last_log_seq);
        let deletions = listed.tombstones.iter().map(|(_, tombstone)| tombstone.upto_seq);
        segments.chain(deletions).fold(listed.state.seq, u64::max)
    };
    listed.values().map(of_one).fold(mark, u64::max)
}

/// Removes a segment from the list of a repaired store.
pub(in crate::tsdb) fn unlist(control: &mut OfflineControl, meta: &SegmentMeta) {
    control.remove::<SegmentRow>(&(meta.org, meta.seq));
}

/// Adds a segment to the list of a repaired store.
///
/// # Errors
/// The reason why the row cannot be stored.
pub(in crate::tsdb) fn list(control: &mut OfflineControl, meta: &SegmentMeta) -> Result<(), String> {
    control.put(&(meta.org, meta.seq), &SegmentRow::of(meta))
}

/// Access to the samples' part of control.
pub(in crate::tsdb) struct Manifest {
    /// `None` once the store is closed, so that the owner can close control.
    control: RwLock<Option<Arc<Control>>>,
}

impl std::fmt::Debug for Manifest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Manifest").finish_non_exhaustive()
    }
}

impl Manifest {
    pub(in crate::tsdb) fn new(control: Arc<Control>) -> Manifest {
        Manifest { control: RwLock::new(Some(control)) }
    }

    /// Checks whether control is fenced, so that it would accept no change before the next start.
    ///
    /// # Errors
    /// [`ManifestError::Commit`] if it is fenced.
    pub(in crate::tsdb) fn admit(&self) -> Result<(), ManifestError> {
        match self.control() {
            Ok(control) => control.health().map_err(|fenced| ManifestError::Commit(fenced.into())),
            // The log was closed before control, and reports that itself.
            Err(_) => Ok(()),
        }
    }

    /// Releases control.
    pub(in crate::tsdb) fn close(&self) {
        *self.control.write().ignore_poison() = None;
    }

    fn control(&self) -> Result<Arc<Control>, ManifestError> {
        let control = self.control.read().ignore_poison();
        control.clone().ok_or(ManifestError::Closed)
    }

    /// Returns the state of all organisations.
    pub(in crate::tsdb) fn read(&self) -> Result<BTreeMap<OrgId, OrgManifest>, ManifestError> {
        let control = self.control()?;
        Ok(OrgRows {
            states: control.scan(&())?,
            sealed_all: control.scan(&())?,
            segments: control.scan(&())?,
            tombstones: control.scan(&())?,
            obsolete: control.scan(&())?,
        }
        .by_org())
    }

    /// Returns the start of the log: its first file and record if nothing was trimmed.
    pub(in crate::tsdb) fn log_begin(&self) -> Result<LogOrigin, ManifestError> {
        let found = self.control()?.get::<LogBegin>(&())?;
        Ok(found.map_or_else(LogOrigin::default, |LogBegin { file, seq }| LogOrigin { file, seq }))
    }

    /// Returns the state of all samples.
    pub(in crate::tsdb) fn read_all(&self) -> Result<StoreManifest, ManifestError> {
        let (listed, dropped) = (self.read()?, self.dropped()?);
        Ok(StoreManifest { listed, dropped, begin: self.log_begin()?, mark: self.log_mark()? })
    }

    /// Returns the last log record known to be durable; 0 if none was recorded.
    pub(in crate::tsdb) fn log_mark(&self) -> Result<u64, ManifestError> {
        Ok(self.control()?.get::<LogMark>(&())?.map_or(0, |mark| mark.seq))
    }

    /// Records that the log is durable up to record `seq`.
    pub(in crate::tsdb) fn set_log_mark(&self, seq: u64) -> Result<(), ManifestError> {
        let committed = self.control()?.commit(move |tx| {
            tx.put(&(), &LogMark { seq });
            Ok::<_, std::convert::Infallible>(())
        });
        committed.map_err(|e| match e {
            CommitError::Refused(never) => match never {},
            CommitError::Failed(failure) => ManifestError::Commit(failure),
        })
    }

    /// Records a later start of the log.
    pub(in crate::tsdb) fn set_log_begin(&self, begin: LogOrigin) -> Result<(), ManifestError> {
        self.put_row((), LogBegin { file: begin.file, seq: begin.seq })
    }

    /// Returns the clock of retention; none if the store never had one.
    pub(in crate::tsdb) fn retention_clock(&self) -> Result<Option<RetentionClock>, ManifestError> {
        Ok(self.control()?.get::<RetentionClock>(&())?)
    }

    /// Stores the clock of retention.
    pub(in crate::tsdb) fn set_retention_clock(&self, clock: &RetentionClock) -> Result<(), ManifestError> {
        self.put_row((), clock.clone())
    }

    /// Returns the pins of the log's consumers.
    pub(in crate::tsdb) fn read_pins(&self) -> Result<Vec<(ConsumerId, PinRow)>, ManifestError> {
        Ok(self.control()?.scan::<PinRow>(&())?)
    }

    /// Stores a new pin.
    pub(in crate::tsdb) fn add_pin(&self, consumer: ConsumerId, row: PinRow) -> Result<(), ManifestError> {
        self.put_row(consumer, row)
    }

    /// Removes a pin.
    pub(in crate::tsdb) fn remove_pin(&self, consumer: ConsumerId) -> Result<(), ManifestError> {
        let committed = self.control()?.commit(move |tx| {
            tx.remove::<PinRow>(&consumer);
            Ok::<_, std::convert::Infallible>(())
        });
        committed.map_err(|e| match e {
            CommitError::Refused(never) => match never {},
            CommitError::Failed(failure) => ManifestError::Commit(failure),
        })
    }

    /// Stores pins that exist. A pin that was removed meanwhile is not stored again.
    pub(in crate::tsdb) fn update_pins(&self, rows: &[(ConsumerId, PinRow)]) -> Result<(), ManifestError> {
        for some in rows.chunks(CHANGE_PINS_MAX) {
            let some = some.to_vec();
            let committed = self.control()?.commit(move |tx| {
                for (consumer, row) in &some {
                    if tx.get::<PinRow>(consumer)?.is_some() {
                        tx.put(consumer, row);
                    }
                }
                Ok::<_, ManifestError>(())
            });
            committed.map_err(|e| match e {
                CommitError::Refused(refused) => refused,
                CommitError::Failed(failure) => ManifestError::Commit(failure),
            })?;
        }
        Ok(())
    }

    /// Makes one row durable.
    fn put_row<R: Record + Send + 'static>(&self, key: R::Key, row: R) -> Result<(), ManifestError>
    where
        R::Key: Send + 'static,
    {
        let committed = self.control()?.commit(move |tx| {
            tx.put(&key, &row);
            Ok::<_, std::convert::Infallible>(())
        });
        committed.map_err(|e| match e {
            CommitError::Refused(never) => match never {},
            CommitError::Failed(failure) => ManifestError::Commit(failure),
        })
    }

    /// Makes one change of one organisation durable, or none of it.
    ///
    /// # Errors
    /// [`ManifestError`]. After a [`ManifestError::Commit`] that fenced control, the change may
    /// still reappear at the next start.
    pub(in crate::tsdb) fn commit(&self, org: OrgId, change: ManifestChange) -> Result<(), ManifestError> {
        let control = self.control()?;
        control.commit(move |tx| apply(tx, org, &change)).map_err(|e| match e {
            CommitError::Refused(refused) => refused,
            CommitError::Failed(failure) => ManifestError::Commit(failure),
        })
    }

    /// Returns the dropped organisations.
    pub(in crate::tsdb) fn dropped(&self) -> Result<BTreeSet<OrgId>, ManifestError> {
        Ok(self.control()?.scan::<DroppedOrg>(&())?.into_iter().map(|(org, _)| org).collect())
    }

    /// Records that an organisation is dropped.
    pub(in crate::tsdb) fn set_dropped(&self, org: OrgId) -> Result<(), ManifestError> {
        self.put_row(org, DroppedOrg {})
    }

    /// Removes rows of a dropped organisation. Returns whether there may be more.
    pub(in crate::tsdb) fn forget(&self, org: OrgId) -> Result<bool, ManifestError> {
        let control = self.control()?;
        let segments: Vec<u64> =
            control.scan::<SegmentRow>(&org)?.into_iter().map(|((_, seq), _)| seq).collect();
        let obsolete: Vec<u64> =
            control.scan::<ObsoleteRow>(&org)?.into_iter().map(|((_, seq), _)| seq).collect();
        let tombstones: Vec<u64> =
            control.scan::<Tombstone>(&org)?.into_iter().map(|((_, n), _)| n).collect();
        let all = segments.len() + obsolete.len() + tombstones.len();
        let committed = control.commit(move |tx| {
            segments.iter().take(FORGET_AT_ONCE).for_each(|seq| tx.remove::<SegmentRow>(&(org, *seq)));
            obsolete.iter().take(FORGET_AT_ONCE).for_each(|seq| tx.remove::<ObsoleteRow>(&(org, *seq)));
            tombstones.iter().take(FORGET_AT_ONCE).for_each(|number| tx.remove::<Tombstone>(&(org, *number)));
            tx.remove::<SealState>(&org);
            tx.remove::<SealedAll>(&org);
            Ok::<_, std::convert::Infallible>(())
        });
        committed.map_err(|e| match e {
            CommitError::Refused(never) => match never {},
            CommitError::Failed(failure) => ManifestError::Commit(failure),
        })?;
        Ok(all > FORGET_AT_ONCE)
    }
}

/// Applies a change within a transaction.
fn apply(tx: &mut Txn<'_>, org: OrgId, change: &ManifestChange) -> Result<(), ManifestError> {
    let have = tx.get::<SealState>(&org)?.unwrap_or_default();
    let mut state = change.state.unwrap_or(have);
    if state.seq < have.seq || (state.until_ms < have.until_ms && !change.seals_all) {
        let (have, asked) = ((have.seq, have.until_ms), (state.seq, state.until_ms));
        return Err(ManifestError::Falls { org, have, asked });
    }
    let added = change.add.iter().map(|meta| meta.seq.saturating_add(1)).max().unwrap_or(0);
    state.next_segment = state.next_segment.max(have.next_segment).max(added);
    if state != have {
        tx.put(&org, &state);
    }
    if change.seals_all {
        tx.put(&org, &SealedAll { seq: state.seq });
    }
    for (meta, reason) in &change.drop {
        let key = (org, meta.seq);
        if tx.get::<SegmentRow>(&key)?.is_none() {
            return Err(ManifestError::NotListed { org, seq: meta.seq });
        }
        tx.remove::<SegmentRow>(&key);
        let reason = (*reason).to_owned();
        tx.put(&key, &ObsoleteRow { file: meta.file_name(), reason });
    }
    for meta in &change.add {
        tx.put(&(org, meta.seq), &SegmentRow::of(meta));
    }
    for number in &change.remove_tombstones {
        tx.remove::<Tombstone>(&(org, *number));
    }
    for (number, tombstone) in &change.add_tombstones {
        tx.put(&(org, *number), tombstone);
    }
    for seq in &change.gone {
        tx.remove::<ObsoleteRow>(&(org, *seq));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::decode_body;

    /// The bytes of a row that no fixture of an older version has.
    #[test]
    fn version_1_of_the_last_seal_of_all_times_is_read() {
        let bytes = data_encoding::HEXLOWER.decode(b"fb2c01").expect("hex");
        assert_eq!(decode_body::<SealedAll>(&bytes), Ok(SealedAll { seq: 300 }));
        assert_eq!((SealedAll::TABLE, SealedAll::KIND, SealedAll::VERSION), (0x28, 0x28, 1));
    }
}
