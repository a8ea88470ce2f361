//! What control knows of the store of samples: which segments count, how far each organisation is sealed, what was
//! deleted, which files are to go. A commit here is the moment of truth of every seal, compaction and drop.
//!
//! Tables of control, bodies by the field order of their types ([`crate::kv::Record`]):
//! ```text
//! 0x20 key org, segment seq    a listed segment (SegmentRow)
//! 0x21 key org                 S, U, registry bytes (SealState): every sample with record seq <= S and time < U is in
//!                              a listed segment, every definition with seq <= S in that much of the registry
//! 0x22 key org, number         a deletion (Tombstone)
//! 0x23 key org, segment seq    a segment that is not listed any more and whose file is to go (Obsolete)
//! 0x24 no key                  where the log begins: committed before anything before it is unlinked (LogBegin)
//! 0x25 key org                 an organisation that was dropped (DroppedOrg)
//! 0x26 no key                  the last log record known to be durable (LogMark): a log that ends before it was rolled
//!                              back. Written with every checkpoint and log file, once a minute, and at a clean stop
//! 0x27 no key                  the clock that retention goes by (RetentionClock)
//! 0x28 key org                 the last seal of all times (SealedAll): every sample of a record up to it is in a listed
//!                              segment, whatever its time
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, RwLock};

use serde::{Deserialize, Serialize};

use super::retention::clock::RetentionClock;
use super::segment::SegmentMeta;
use super::wal::replay::Begin;
use crate::kv::{
    CommitError, CommitFailure, Control, DamagedRow, DatabaseError, OfflineControl, Record, Txn,
};
use crate::model::OrgId;
use crate::sync::IgnorePoison as _;

/// Segments of one change at most: with the other rows of a seal or a compaction they stay below control's 64 rows.
/// Tests take few, so that a seal of a week needs several changes.
pub(super) const CHANGE_SEGMENTS_MAX: usize = if cfg!(test) { 3 } else { 61 };
/// Rows of each of three kinds that one commit of 64 removes.
const FORGET_AT_ONCE: usize = 20;
/// Rows of a tombstone's series ids are split beyond this: 20,000 ranges of at most 10 bytes are below 192 KiB.
pub(super) const TOMBSTONE_RANGES_MAX: usize = 16_000;
/// Deletions of an organisation that wait to be carried out at most: every read of a segment looks at all of them.
pub(super) const TOMBSTONES_MAX: usize = 256;
/// Ranges of series ids in all of them at most: 8 MiB of memory.
pub(super) const TOMBSTONES_RANGES_MAX: usize = 1 << 20;

/// A listed segment, as stored. What its key says is not repeated.
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

/// How far an organisation is sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SealState {
    /// The last committed seal record.
    pub(super) seq: u64,
    /// The end of the sealed time, in ms. A seal of all times alone sets it to an earlier one.
    pub(super) until_ms: i64,
    /// How much of the registry file is durable and counted on.
    pub(super) registry_bytes: u64,
    /// The number that the next segment gets; numbers are never used twice.
    pub(super) next_segment: u64,
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

/// The last seal that took samples of any time.
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

/// Samples that were deleted: they are masked until no segment, log file or checkpoint holds them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Tombstone {
    /// The first deleted millisecond.
    pub(super) from_ms: i64,
    /// The last deleted millisecond.
    pub(super) to_ms: i64,
    /// Samples of later records are new ones.
    pub(super) upto_seq: u64,
    /// The number that the next segment had: none from there on holds what was deleted.
    pub(super) clean_from: u64,
    /// Ranges of series ids, both ends in; ascending, apart. At most [`TOMBSTONE_RANGES_MAX`].
    pub(super) series: Vec<(u32, u32)>,
}

impl Tombstone {
    /// Whether the series is among those it is about.
    pub(super) fn names(&self, series: u32) -> bool {
        let place = self.series.partition_point(|(_, last)| *last < series);
        self.series.get(place).is_some_and(|(first, _)| *first <= series)
    }

    /// Whether a segment may hold samples that it hides.
    pub(super) fn masks(&self, meta: &SegmentMeta) -> bool {
        self.masks_any_time(meta) && meta.min_ms <= self.to_ms && self.from_ms <= meta.max_ms
    }

    /// The same of exemplars: a segment holds those that came with its records, whatever their time.
    pub(super) fn masks_any_time(&self, meta: &SegmentMeta) -> bool {
        meta.seq < self.clean_from && meta.last_log_seq <= self.upto_seq
    }

    /// Whether it hides all that an earlier one hides.
    pub(super) fn covers(&self, earlier: &Tombstone) -> bool {
        let covered = |(first, last): &(u32, u32)| {
            let place = self.series.partition_point(|(_, end)| end < first);
            self.series.get(place).is_some_and(|(start, end)| start <= first && last <= end)
        };
        self.from_ms <= earlier.from_ms
            && earlier.to_ms <= self.to_ms
            && earlier.upto_seq <= self.upto_seq
            && earlier.clean_from <= self.clean_from
            && earlier.series.iter().all(covered)
    }

    /// Whether it hides a sample, if that came early enough.
    pub(super) fn hides(&self, series: u32, at_ms: i64) -> bool {
        (self.from_ms..=self.to_ms).contains(&at_ms) && self.names(series)
    }
}

impl Record for Tombstone {
    const TABLE: u8 = 0x22;
    const KIND: u8 = 0x22;
    const VERSION: u8 = 1;
    type Key = (OrgId, u64);
}

/// A segment whose file is to go, once no reader holds it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Obsolete {
    /// Its file in `segments/<org>`.
    pub(super) file: String,
    /// Why, for the log line of the deletion.
    pub(super) reason: String,
}

impl Record for Obsolete {
    const TABLE: u8 = 0x23;
    const KIND: u8 = 0x23;
    const VERSION: u8 = 1;
    type Key = (OrgId, u64);
}

/// Where the log begins.
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

/// An organisation that was dropped: whatever is found of it is to go. Stays, since its number is not used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct DroppedOrg {}

impl Record for DroppedOrg {
    const TABLE: u8 = 0x25;
    const KIND: u8 = 0x25;
    const VERSION: u8 = 1;
    type Key = OrgId;
}

/// Everything that control knows of one organisation's samples.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) state: SealState,
    /// The last seal of all times; 0: there was none.
    pub(super) sealed_all_seq: u64,
    /// In order of number.
    pub(super) segments: Vec<SegmentMeta>,
    /// In order of number.
    pub(super) tombstones: Vec<(u64, Tombstone)>,
    /// In order of number.
    pub(super) obsolete: Vec<(u64, Obsolete)>,
}

/// The list of segments of a whole store.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    pub(super) listed: BTreeMap<OrgId, Listed>,
    /// Organisations that were dropped.
    pub(super) dropped: BTreeSet<OrgId>,
    /// Where the log begins.
    pub(super) begin: Begin,
    /// The last log record known to be durable; 0 where none was noted.
    pub(super) mark: u64,
}

/// What one commit changes for one organisation.
#[derive(Clone, Debug, Default)]
pub(super) struct Change {
    /// The new state; none: as it is, but `next_segment` is raised over the added segments.
    pub(super) state: Option<SealState>,
    /// The new state is that of a seal of all times.
    pub(super) seals_all: bool,
    pub(super) add: Vec<SegmentMeta>,
    /// Segments that are listed no more, and why their files go.
    pub(super) drop: Vec<(SegmentMeta, &'static str)>,
    pub(super) add_tombstones: Vec<(u64, Tombstone)>,
    pub(super) remove_tombstones: Vec<u64>,
    /// Files that are gone: their rows are removed.
    pub(super) gone: Vec<u64>,
}

/// Why the manifest could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// Reading control failed.
    #[error("the list of segments cannot be read")]
    Read(#[from] DatabaseError),
    /// The change was not made durable.
    #[error("the list of segments cannot be changed")]
    Commit(#[source] CommitFailure),
    /// A segment to be dropped is not listed, so somebody else dropped it.
    #[error("segment {seq} of organisation {org} is not listed")]
    NotListed {
        /// Whose.
        org: OrgId,
        /// Which.
        seq: u64,
    },
    /// The sealed time or its record would fall.
    #[error("organisation {org} is sealed to {have:?}, which must not fall to {asked:?}")]
    Falls {
        /// Whose.
        org: OrgId,
        /// Record and time that are committed.
        have: (u64, i64),
        /// Record and time that were asked for.
        asked: (u64, i64),
    },
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
}

/// The store's rows, from a control that is open or from one that nobody has open.
struct Rows {
    states: Vec<(OrgId, SealState)>,
    sealed_all: Vec<(OrgId, SealedAll)>,
    segments: Vec<((OrgId, u64), SegmentRow)>,
    tombstones: Vec<((OrgId, u64), Tombstone)>,
    obsolete: Vec<((OrgId, u64), Obsolete)>,
}

impl Rows {
    fn by_org(self) -> BTreeMap<OrgId, Listed> {
        let mut all: BTreeMap<OrgId, Listed> = BTreeMap::new();
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

/// What a control that nobody has open knows: everything by organisation, what was dropped, and where the log begins.
///
/// # Errors
/// A row that is not what was written.
pub(super) fn offline(control: &OfflineControl) -> Result<Known, DamagedRow> {
    let all = Rows {
        states: control.scan(&())?,
        sealed_all: control.scan(&())?,
        segments: control.scan(&())?,
        tombstones: control.scan(&())?,
        obsolete: control.scan(&())?,
    }
    .by_org();
    let dropped = control.scan::<DroppedOrg>(&())?.into_iter().map(|(org, _)| org).collect();
    let begin = control.scan::<LogBegin>(&())?.pop();
    let begin = begin.map_or_else(Begin::default, |((), LogBegin { file, seq })| Begin { file, seq });
    let mark = control.scan::<LogMark>(&())?.pop().map_or(0, |((), mark)| mark.seq);
    Ok(Known { listed: all, dropped, begin, mark })
}

/// Names the log records after `last_seq` that control knows: with any of them the end of the log is lost.
pub(super) fn records_beyond(listed: &BTreeMap<OrgId, Listed>, mark: u64, last_seq: u64) -> Vec<String> {
    let mut beyond = Vec::new();
    for (org, listed) in listed {
        let Listed { state, segments, tombstones, .. } = listed;
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

/// The greatest number of a log record that control knows; a log that is begun again goes on behind it.
pub(super) fn newest_record(listed: &BTreeMap<OrgId, Listed>, mark: u64) -> u64 {
    let of_one = |listed: &Listed| {
        let segments = listed.segments.iter().map(|meta| meta.last_log_seq);
        let deletions = listed.tombstones.iter().map(|(_, tombstone)| tombstone.upto_seq);
        segments.chain(deletions).fold(listed.state.seq, u64::max)
    };
    listed.values().map(of_one).fold(mark, u64::max)
}

/// Takes a segment out of the list of a repaired store.
pub(super) fn unlist(control: &mut OfflineControl, meta: &SegmentMeta) {
    control.remove::<SegmentRow>(&(meta.org, meta.seq));
}

/// Puts a segment into the list of a repaired store.
///
/// # Errors
/// Why the row cannot be stored.
pub(super) fn list(control: &mut OfflineControl, meta: &SegmentMeta) -> Result<(), String> {
    control.put(&(meta.org, meta.seq), &SegmentRow::of(meta))
}

/// The store's part of control.
pub(super) struct Manifest {
    /// None once the store is closed: control can then be closed by its owner.
    control: RwLock<Option<Arc<Control>>>,
}

impl std::fmt::Debug for Manifest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Manifest").finish_non_exhaustive()
    }
}

impl ManifestError {
    /// Whether the change is certainly not there, now and after a restart.
    pub(super) fn is_certain(&self) -> bool {
        !matches!(self, ManifestError::Commit(CommitFailure::Fenced(_) | CommitFailure::Closed))
    }
}

impl Manifest {
    pub(super) fn new(control: Arc<Control>) -> Manifest {
        Manifest { control: RwLock::new(Some(control)) }
    }

    /// Whether control is fenced, so that a change would not be taken before the next start.
    ///
    /// # Errors
    /// [`ManifestError::Commit`].
    pub(super) fn admit(&self) -> Result<(), ManifestError> {
        match self.control() {
            Ok(control) => control.health().map_err(|fenced| ManifestError::Commit(fenced.into())),
            // Whoever closed it closed the log before, which says so.
            Err(_) => Ok(()),
        }
    }

    /// Lets go of control.
    pub(super) fn close(&self) {
        *self.control.write().ignore_poison() = None;
    }

    fn control(&self) -> Result<Arc<Control>, ManifestError> {
        let control = self.control.read().ignore_poison();
        control.clone().ok_or(ManifestError::Closed)
    }

    /// Everything, by organisation.
    pub(super) fn read(&self) -> Result<BTreeMap<OrgId, Listed>, ManifestError> {
        let control = self.control()?;
        Ok(Rows {
            states: control.scan(&())?,
            sealed_all: control.scan(&())?,
            segments: control.scan(&())?,
            tombstones: control.scan(&())?,
            obsolete: control.scan(&())?,
        }
        .by_org())
    }

    /// Where the log begins: its first file and record until something was trimmed.
    pub(super) fn log_begin(&self) -> Result<Begin, ManifestError> {
        let found = self.control()?.get::<LogBegin>(&())?;
        Ok(found.map_or_else(Begin::default, |LogBegin { file, seq }| Begin { file, seq }))
    }

    /// The list of segments of the whole store.
    pub(super) fn known(&self) -> Result<Known, ManifestError> {
        let (listed, dropped) = (self.read()?, self.dropped()?);
        Ok(Known { listed, dropped, begin: self.log_begin()?, mark: self.log_mark()? })
    }

    /// The last log record known to be durable; 0 where none was noted.
    pub(super) fn log_mark(&self) -> Result<u64, ManifestError> {
        Ok(self.control()?.get::<LogMark>(&())?.map_or(0, |mark| mark.seq))
    }

    /// Notes that the log is durable up to record `seq`.
    pub(super) fn set_log_mark(&self, seq: u64) -> Result<(), ManifestError> {
        let committed = self.control()?.commit(move |tx| {
            tx.put(&(), &LogMark { seq });
            Ok::<_, std::convert::Infallible>(())
        });
        committed.map_err(|e| match e {
            CommitError::Refused(never) => match never {},
            CommitError::Failed(failure) => ManifestError::Commit(failure),
        })
    }

    /// Notes that the log begins later than before.
    pub(super) fn set_log_begin(&self, begin: Begin) -> Result<(), ManifestError> {
        self.put_row((), LogBegin { file: begin.file, seq: begin.seq })
    }

    /// The clock that retention goes by; none in a store that never had one.
    pub(super) fn retention_clock(&self) -> Result<Option<RetentionClock>, ManifestError> {
        Ok(self.control()?.get::<RetentionClock>(&())?)
    }

    /// Stores the clock that retention goes by.
    pub(super) fn set_retention_clock(&self, clock: &RetentionClock) -> Result<(), ManifestError> {
        self.put_row((), clock.clone())
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
    /// [`ManifestError`]; after a [`ManifestError::Commit`] that fenced control the change may still turn up at the
    /// next start.
    pub(super) fn commit(&self, org: OrgId, change: Change) -> Result<(), ManifestError> {
        let control = self.control()?;
        control.commit(move |tx| apply(tx, org, &change)).map_err(|e| match e {
            CommitError::Refused(refused) => refused,
            CommitError::Failed(failure) => ManifestError::Commit(failure),
        })
    }

    /// The organisations that were dropped.
    pub(super) fn dropped(&self) -> Result<BTreeSet<OrgId>, ManifestError> {
        Ok(self.control()?.scan::<DroppedOrg>(&())?.into_iter().map(|(org, _)| org).collect())
    }

    /// Notes that an organisation is dropped.
    pub(super) fn set_dropped(&self, org: OrgId) -> Result<(), ManifestError> {
        self.put_row(org, DroppedOrg {})
    }

    /// Removes rows of an organisation that was dropped; answers whether there may be more.
    pub(super) fn forget(&self, org: OrgId) -> Result<bool, ManifestError> {
        let control = self.control()?;
        let segments: Vec<u64> =
            control.scan::<SegmentRow>(&org)?.into_iter().map(|((_, seq), _)| seq).collect();
        let obsolete: Vec<u64> =
            control.scan::<Obsolete>(&org)?.into_iter().map(|((_, seq), _)| seq).collect();
        let tombstones: Vec<u64> =
            control.scan::<Tombstone>(&org)?.into_iter().map(|((_, n), _)| n).collect();
        let all = segments.len() + obsolete.len() + tombstones.len();
        let committed = control.commit(move |tx| {
            segments.iter().take(FORGET_AT_ONCE).for_each(|seq| tx.remove::<SegmentRow>(&(org, *seq)));
            obsolete.iter().take(FORGET_AT_ONCE).for_each(|seq| tx.remove::<Obsolete>(&(org, *seq)));
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

fn apply(tx: &mut Txn<'_>, org: OrgId, change: &Change) -> Result<(), ManifestError> {
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
        tx.put(&key, &Obsolete { file: meta.file_name(), reason });
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
        tx.remove::<Obsolete>(&(org, *seq));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::decode_body;

    /// The rows whose bytes no fixture of an older version holds.
    #[test]
    fn version_1_of_the_last_seal_of_all_times_opens() {
        let bytes = data_encoding::HEXLOWER.decode(b"fb2c01").expect("hex");
        assert_eq!(decode_body::<SealedAll>(&bytes), Ok(SealedAll { seq: 300 }));
        assert_eq!((SealedAll::TABLE, SealedAll::KIND, SealedAll::VERSION), (0x28, 0x28, 1));
    }
}
