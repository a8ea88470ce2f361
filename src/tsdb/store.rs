//! What the store holds in memory: one [`OrgStore`] for each organisation, and the one function that changes it.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::decoded::{Decoded, Kept};
use super::deletion::Deletion;
use super::error::Damage;
use super::head::Head;
use super::manifest::{Manifest, ManifestChange, ManifestError};
use super::options::OrgLimits;
use super::quota::Usage;
use super::segments::{Obsolete, SegmentSet};
use super::series::identity::Secret;
use super::series::metadata::{self, Metadata};
use super::series::table::Table;
use super::series::{definition, registry};
use super::side::Side;
use super::side::record::decode_starts;
use super::store_version::StoreVersion;
use super::wal::log::{ApplyOutcome, Draft};
use super::wal::record::{RecordKind, parse_seal, record_bytes};
use super::wal::samples::{self, LogSample};
use crate::model::OrgId;
use crate::sync::IgnorePoison as _;

/// One organisation. Shares nothing with another but the log and the budget.
#[derive(Debug)]
pub(super) struct OrgStore {
    pub(super) org: OrgId,
    table: RwLock<Table>,
    /// What senders said about metrics. Apart from the table, which readers lock: the thread that writes the log changes
    /// this.
    metadata: RwLock<Metadata>,
    /// Series whose definitions became durable since the table was told last: the thread that writes the log does not
    /// wait for the table.
    durable: Mutex<Vec<u32>>,
    pub(super) head: Head,
    segments: RwLock<Arc<SegmentSet>>,
    /// Files that are to go when their last reader is gone.
    pub(super) obsolete: Mutex<Vec<Obsolete>>,
    /// Histograms, start timestamps, exemplars.
    pub(super) side: Side,
    limits: RwLock<Arc<OrgLimits>>,
    pub(super) usage: Usage,
    pub(super) stored_total: AtomicU64,
    pub(super) refused_total: AtomicU64,
    /// Descriptions of metrics that were too long or too many.
    pub(super) metadata_dropped_total: AtomicU64,
    /// How far the registry file reaches; checkpoints alone change it.
    registry: Mutex<registry::End>,
    /// Held while control and the published set are changed together.
    changing: Mutex<()>,
    /// Held by a seal of this organisation, and by whom its segments must not come in between. Taken before `changing`.
    sealing: Mutex<()>,
    /// The number that the next segment gets.
    pub(super) next_segment: AtomicU64,
    /// Samples before this are older than retention keeps: they are not shown, though their segment may be there still.
    pub(super) kept_from_ms: AtomicI64,
    /// The last applied record of any kind.
    pub(super) last_seq: AtomicU64,
    pub(super) arrivals: Arrivals,
    /// For those who keep answers.
    pub(super) changes: StoreVersion,
    /// Values of segments for the next query.
    pub(super) decoded: Arc<Kept>,
}

/// Which times came, for what is due to be sealed.
#[derive(Debug)]
pub(super) struct Arrivals {
    least_ms: AtomicI64,
    greatest_ms: AtomicI64,
}

impl Default for Arrivals {
    fn default() -> Arrivals {
        Arrivals { least_ms: AtomicI64::new(i64::MAX), greatest_ms: AtomicI64::new(i64::MIN) }
    }
}

impl Arrivals {
    /// Answers the least time; `i64::MAX`: there are none.
    fn note(&self, samples: &[LogSample]) -> i64 {
        let (mut least, mut greatest) = (i64::MAX, i64::MIN);
        for sample in samples {
            least = least.min(sample.at_ms);
            greatest = greatest.max(sample.at_ms);
        }
        self.least_ms.fetch_min(least, Ordering::Relaxed);
        self.greatest_ms.fetch_max(greatest, Ordering::Relaxed);
        least
    }

    fn note_time(&self, at_ms: i64) {
        self.least_ms.fetch_min(at_ms, Ordering::Relaxed);
        self.greatest_ms.fetch_max(at_ms, Ordering::Relaxed);
    }

    /// Forgets the greatest time: it was of a clock that was wrong.
    fn forget(&self) {
        self.greatest_ms.store(i64::MIN, Ordering::Relaxed);
    }

    /// The least time that came since this was asked last; `i64::MAX`: nothing did.
    pub(super) fn take_least(&self) -> i64 {
        self.least_ms.swap(i64::MAX, Ordering::Relaxed)
    }

    /// The greatest time that ever came.
    pub(super) fn greatest(&self) -> i64 {
        self.greatest_ms.load(Ordering::Relaxed)
    }
}

impl OrgStore {
    // Poisoned locks are taken over: a panic of one request must not end the others, and every change of a table or a
    // stripe is either a single push or done by the applying thread, whose end closes the log.
    pub(super) fn table(&self) -> RwLockReadGuard<'_, Table> {
        self.table.read().ignore_poison()
    }

    /// The table if it is free at once.
    pub(super) fn try_table(&self) -> Option<RwLockReadGuard<'_, Table>> {
        self.table.try_read().ignore_poison()
    }

    pub(super) fn table_mut(&self) -> RwLockWriteGuard<'_, Table> {
        self.table.write().ignore_poison()
    }

    /// What senders said about metrics. Held for a short stretch of work without matching.
    pub(super) fn metadata(&self) -> RwLockReadGuard<'_, Metadata> {
        self.metadata.read().ignore_poison()
    }

    /// The metadata if they are free at once.
    pub(super) fn try_metadata(&self) -> Option<RwLockReadGuard<'_, Metadata>> {
        self.metadata.try_read().ignore_poison()
    }

    pub(super) fn metadata_mut(&self) -> RwLockWriteGuard<'_, Metadata> {
        self.metadata.write().ignore_poison()
    }

    /// Tells the table of definitions that became durable since this was called last.
    pub(super) fn take_durable(&self) {
        if self.durable().is_empty() {
            return;
        }
        let mut table = self.table_mut();
        // Taken with the table locked: whoever comes next finds the table told.
        let ids = std::mem::take(&mut *self.durable());
        table.are_durable(ids.into_iter());
    }

    fn durable(&self) -> MutexGuard<'_, Vec<u32>> {
        self.durable.lock().ignore_poison()
    }

    pub(super) fn limits(&self) -> Arc<OrgLimits> {
        Arc::clone(&self.limits.read().ignore_poison())
    }

    /// What a longer retention keeps is read from now on, not after the next upkeep only: it may have been written already.
    fn set_limits(&self, limits: OrgLimits) {
        let mut held = self.limits.write().ignore_poison();
        let hidden = self.kept_from_ms.load(Ordering::Relaxed);
        let kept = match (held.retention, limits.retention) {
            (Some(_), None) => i64::MIN,
            (Some(before), Some(after)) if after > before => {
                let longer = i64::try_from((after - before).as_millis()).unwrap_or(i64::MAX);
                hidden.saturating_sub(longer)
            }
            // What a shorter one lets go of is hidden when it goes.
            _ => hidden,
        };
        self.kept_from_ms.store(kept, Ordering::Relaxed);
        *held = Arc::new(limits);
        drop(held);
        if kept < hidden {
            self.changes.note(kept);
        }
    }

    /// Hides what is older than these limits say, which nobody changes meanwhile.
    pub(super) fn hide_before(&self, oldest_ms: impl FnOnce(&OrgLimits) -> i64) -> Arc<OrgLimits> {
        let held = self.limits.read().ignore_poison();
        self.kept_from_ms.store(oldest_ms(&held), Ordering::Relaxed);
        Arc::clone(&held)
    }

    /// The segments that count now.
    pub(super) fn segments(&self) -> Arc<SegmentSet> {
        Arc::clone(&self.segments.read().ignore_poison())
    }

    /// The segments that count now, if they are not these.
    pub(super) fn segments_if_not(&self, known: &Arc<SegmentSet>) -> Option<Arc<SegmentSet>> {
        let now = self.segments.read().ignore_poison();
        (!Arc::ptr_eq(&now, known)).then(|| Arc::clone(&now))
    }

    /// Makes the set that the start found the one that counts.
    pub(super) fn begin_with(&self, set: SegmentSet) {
        *self.segments.write().ignore_poison() = Arc::new(set);
    }

    /// Commits a change of the list of segments and then publishes the same: readers see what is durable, and nobody
    /// changes the list in between. `next` makes the new set of the one that counts now.
    pub(super) fn change_segments(
        &self,
        manifest: &Manifest,
        change: ManifestChange,
        next: impl FnOnce(&SegmentSet) -> SegmentSet,
    ) -> Result<(), ManifestError> {
        self.change_segments_if(manifest, |_| true, change, next).map(drop)
    }

    /// As [`OrgStore::change_segments`], if the set that counts now is as the change needs it; answers whether it was.
    pub(super) fn change_segments_if(
        &self,
        manifest: &Manifest,
        fits: impl FnOnce(&SegmentSet) -> bool,
        change: ManifestChange,
        next: impl FnOnce(&SegmentSet) -> SegmentSet,
    ) -> Result<bool, ManifestError> {
        let alone = self.changing();
        if !fits(&self.segments()) {
            return Ok(false);
        }
        self.change_held(&alone, manifest, change, next).map(|()| true)
    }

    /// Keeps everybody else from changing the list of segments.
    pub(super) fn changing(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().ignore_poison()
    }

    /// Keeps this organisation from being sealed; waits for a seal of it that is under way.
    pub(super) fn sealing(&self) -> MutexGuard<'_, ()> {
        self.sealing.lock().ignore_poison()
    }

    /// As [`OrgStore::change_segments`], by whom nobody can come in between.
    pub(super) fn change_held(
        &self,
        _alone: &MutexGuard<'_, ()>,
        manifest: &Manifest,
        change: ManifestChange,
        next: impl FnOnce(&SegmentSet) -> SegmentSet,
    ) -> Result<(), ManifestError> {
        manifest.commit(self.org, change)?;
        let before = self.segments();
        let next = Arc::new(next(&before));
        *self.segments.write().ignore_poison() = Arc::clone(&next);
        self.forget_decoded(&before, &next);
        Ok(())
    }

    /// What was kept of segments that are not listed any more goes, whoever reads them still.
    fn forget_decoded(&self, before: &SegmentSet, next: &SegmentSet) {
        let mut listed: Vec<u64> = next.parts.iter().map(|part| part.meta().seq).collect();
        listed.sort_unstable();
        let gone: Vec<u64> = before
            .parts
            .iter()
            .filter(|part| listed.binary_search(&part.meta().seq).is_err())
            .map(|part| {
                part.segment.retire();
                part.meta().seq
            })
            .collect();
        self.decoded.forget(&gone);
    }

    // What a seal asks of a window: of floats, and of what is beside them.

    pub(super) fn close_window(&self, until_ms: i64) {
        self.head.close_window(until_ms);
        self.side.close_window(until_ms);
    }

    /// As [`OrgStore::close_window`], for samples of any time: the window may end earlier than before.
    pub(super) fn close_all(&self, until_ms: i64) {
        self.head.close_all(until_ms);
        self.side.close_all(until_ms);
        self.arrivals.forget();
    }

    /// Sets the end of the window to that of a checkpoint, without closing anything.
    pub(super) fn set_barrier(&self, until_ms: i64) {
        self.head.set_barrier(until_ms);
        self.side.set_barrier(until_ms);
    }

    pub(super) fn release_closed(&self) {
        self.head.release_closed();
        self.side.release_closed();
    }

    pub(super) fn reopen(&self) {
        self.head.reopen();
        self.side.reopen();
    }

    pub(super) fn least_ms(&self) -> Option<i64> {
        let beside = self.side.extent().map(|(least, _)| least);
        self.head.least_ms().into_iter().chain(beside).min()
    }

    pub(super) fn greatest_ms(&self) -> Option<i64> {
        self.head.greatest_ms().max(self.side.extent().map(|(_, greatest)| greatest))
    }

    /// Counts a record of the log to the organisation's part of it.
    pub(super) fn count_record(&self, body: &[u8]) {
        self.usage.log_bytes.fetch_add(record_bytes(body.len()) as u64, Ordering::Relaxed);
    }

    /// Of the samples of a record that is read back those that the head is to take; answers how many others are of
    /// series that nothing defines.
    pub(super) fn keep_replayed(&self, seq: u64, samples: &mut Vec<LogSample>) -> u64 {
        // What segments have is not loaded again.
        let sealed = self.segments();
        samples.retain(|sample| !sealed.has_record(seq, sample.at_ms));
        let table = self.table();
        let all = samples.len();
        samples.retain(|sample| table.knows(sample.series));
        (all - samples.len()) as u64
    }

    /// Takes note of a record of samples that the head takes. Answers the least time; `i64::MAX`: there are none.
    pub(super) fn note_samples(&self, seq: u64, samples: &[LogSample]) -> i64 {
        let least_ms = self.arrivals.note(samples);
        self.last_seq.store(seq, Ordering::Release);
        least_ms
    }

    pub(super) fn registry(&self) -> MutexGuard<'_, registry::End> {
        self.registry.lock().ignore_poison()
    }
}

/// For replay: up to which record each series is in the checkpoint.
#[derive(Debug, Default)]
pub(super) struct RowSeqs {
    by_org: BTreeMap<OrgId, Vec<u64>>,
    /// The same of the side table.
    side_by_org: BTreeMap<OrgId, Vec<u64>>,
}

impl RowSeqs {
    pub(super) fn set(&mut self, org: OrgId, series: u32, seq: u64) {
        set(self.by_org.entry(org).or_default(), series, seq);
    }

    pub(super) fn set_side(&mut self, org: OrgId, series: u32, seq: u64) {
        set(self.side_by_org.entry(org).or_default(), series, seq);
    }

    pub(super) fn side_of(&self, org: OrgId) -> &[u64] {
        self.side_by_org.get(&org).map_or(&[], Vec::as_slice)
    }

    pub(super) fn of(&self, org: OrgId) -> &[u64] {
        self.by_org.get(&org).map_or(&[], Vec::as_slice)
    }
}

/// Whether the checkpoint has what a record says of a series.
pub(super) fn skipped(rows: Option<&RowSeqs>, org: OrgId, seq: u64) -> impl Fn(u32) -> bool + '_ {
    let rows = rows.map_or(&[][..], |rows| rows.of(org));
    move |series| rows.get(series as usize).is_some_and(|have| seq <= *have)
}

fn set(seqs: &mut Vec<u64>, series: u32, seq: u64) {
    if seqs.len() <= series as usize {
        seqs.resize(series as usize + 1, 0);
    }
    if let Some(place) = seqs.get_mut(series as usize) {
        // Rows of one series say the same; the row of exemplars says 0 of series 0.
        *place = (*place).max(seq);
    }
}

/// A durable record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record<'b> {
    pub(super) seq: u64,
    pub(super) org: OrgId,
    pub(super) kind: RecordKind,
    pub(super) body: &'b [u8],
    /// What a body of [`RecordKind::Samples`] says, of a record that has just been logged; none of one that was read.
    pub(super) samples: Option<&'b [LogSample]>,
}

impl<'b> Record<'b> {
    /// What was read.
    pub(super) const fn read(seq: u64, org: OrgId, kind: RecordKind, body: &'b [u8]) -> Record<'b> {
        Record { seq, org, kind, body, samples: None }
    }

    /// What has just been logged.
    pub(super) fn of(seq: u64, draft: &'b Draft) -> Record<'b> {
        let Draft { org, kind, body, samples, .. } = draft;
        Record { seq, org: *org, kind: *kind, body, samples: Some(samples) }
    }
}

/// All organisations.
#[derive(Debug)]
pub(super) struct Stores {
    secret: [u8; 32],
    limits: OrgLimits,
    pub(super) decoded: Arc<Decoded>,
    orgs: RwLock<BTreeMap<OrgId, Arc<OrgStore>>>,
    /// Estimated memory of all heads.
    pub(super) head_bytes: Arc<AtomicU64>,
    /// Estimated memory of all names and series.
    pub(super) name_bytes: AtomicU64,
    /// Samples stored since the last checkpoint.
    pub(super) uncovered: AtomicU64,
    /// A start is reading what heads are to hold.
    starting: AtomicBool,
    dropped: Mutex<BTreeMap<OrgId, Dropped>>,
}

/// What is left of an organisation that was dropped.
#[derive(Clone, Debug, Default)]
struct Dropped {
    /// Its rows and files are gone.
    finished: bool,
    /// What it was while the process ran: a seal may be at work on it still.
    store: Option<Arc<OrgStore>>,
}

impl Stores {
    /// Keeps nothing decoded.
    pub(super) fn new(secret: [u8; 32], limits: OrgLimits) -> Stores {
        Stores::keeping(0, secret, limits)
    }

    /// Keeps so many bytes of decoded values at most.
    pub(super) fn keeping(decoded_bytes_max: u64, secret: [u8; 32], limits: OrgLimits) -> Stores {
        Stores {
            secret,
            limits,
            decoded: Decoded::new(decoded_bytes_max),
            orgs: RwLock::default(),
            head_bytes: Arc::default(),
            name_bytes: AtomicU64::new(0),
            uncovered: AtomicU64::new(0),
            starting: AtomicBool::new(false),
            dropped: Mutex::default(),
        }
    }

    /// Whether a start fills the heads: they keep their tails short while it does, and what a start takes is less than what
    /// the process takes that goes on.
    pub(super) fn set_starting(&self, starting: bool) {
        self.starting.store(starting, Ordering::Relaxed);
        self.all().iter().for_each(|store| store.head.set_sparing(starting));
    }

    /// What keys the hashes of an organisation's labels.
    pub(super) fn secret_of(&self, org: OrgId) -> Secret {
        Secret::of(&self.secret, org.0)
    }

    pub(super) fn org(&self, org: OrgId) -> Option<Arc<OrgStore>> {
        self.orgs.read().ignore_poison().get(&org).map(Arc::clone)
    }

    pub(super) fn org_or_new(&self, org: OrgId) -> Arc<OrgStore> {
        if let Some(store) = self.org(org) {
            return store;
        }
        let mut orgs = self.orgs.write().ignore_poison();
        let fresh = || {
            Arc::new(OrgStore {
                org,
                table: RwLock::new(Table::new(self.secret_of(org))),
                metadata: RwLock::default(),
                durable: Mutex::default(),
                head: Head::new(Arc::clone(&self.head_bytes), self.starting.load(Ordering::Relaxed)),
                segments: RwLock::default(),
                obsolete: Mutex::default(),
                side: Side::new(Arc::clone(&self.head_bytes)),
                limits: RwLock::new(Arc::new(self.limits.clone())),
                usage: Usage::default(),
                stored_total: AtomicU64::new(0),
                refused_total: AtomicU64::new(0),
                metadata_dropped_total: AtomicU64::new(0),
                registry: Mutex::default(),
                changing: Mutex::default(),
                sealing: Mutex::default(),
                next_segment: AtomicU64::new(1),
                kept_from_ms: AtomicI64::new(i64::MIN),
                last_seq: AtomicU64::new(0),
                arrivals: Arrivals::default(),
                changes: StoreVersion::default(),
                decoded: Kept::new(&self.decoded),
            })
        };
        if self.is_dropped(org) {
            // What still comes for it is thrown away: among the others it would keep the log from being trimmed.
            return fresh();
        }
        Arc::clone(orgs.entry(org).or_insert_with(fresh))
    }

    /// Lets go of an organisation; those who read it go on with what they have.
    fn drop_org(&self, org: OrgId) {
        // First, so that nobody makes it anew.
        self.dropped().insert(org, Dropped::default());
        let gone = self.orgs.write().ignore_poison().remove(&org);
        if let Some(store) = gone {
            let bytes = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
            let freed = bytes(&store.head.counters.bytes) + bytes(&store.side.counters.bytes);
            self.head_bytes.fetch_sub(freed, Ordering::Relaxed);
            self.forget_names(&store);
            store.decoded.close();
            self.dropped().insert(org, Dropped { finished: false, store: Some(store) });
        }
    }

    fn dropped(&self) -> MutexGuard<'_, BTreeMap<OrgId, Dropped>> {
        self.dropped.lock().ignore_poison()
    }

    /// What the start found dropped.
    pub(super) fn set_dropped(&self, orgs: &BTreeSet<OrgId>) {
        self.dropped().extend(orgs.iter().map(|org| (*org, Dropped::default())));
    }

    pub(super) fn is_dropped(&self, org: OrgId) -> bool {
        self.dropped().contains_key(&org)
    }

    /// Organisations of which rows and files may be left, and what they were.
    pub(super) fn dropped_unfinished(&self) -> Vec<(OrgId, Option<Arc<OrgStore>>)> {
        let dropped = self.dropped();
        let left = dropped.iter().filter(|(_, dropped)| !dropped.finished);
        left.map(|(org, dropped)| (*org, dropped.store.clone())).collect()
    }

    pub(super) fn drop_is_finished(&self, org: OrgId) {
        self.dropped().insert(org, Dropped { finished: true, store: None });
    }

    /// Whether an organisation was dropped and nothing is left of it: the log need not keep its records.
    pub(super) fn is_gone(&self, org: OrgId) -> bool {
        self.dropped().get(&org).is_some_and(|dropped| dropped.finished)
    }

    /// In order of id.
    pub(super) fn all(&self) -> Vec<Arc<OrgStore>> {
        self.orgs.read().ignore_poison().values().map(Arc::clone).collect()
    }

    /// As [`Stores::apply`], for what few series have.
    fn apply_side(&self, record: Record<'_>, rows: Option<&RowSeqs>) -> Result<ApplyOutcome, Damage> {
        let Record { seq, org, kind, body, .. } = record;
        let store = self.org_or_new(org);
        let table = rows.map(|_| store.table());
        let knows = |series| table.as_ref().is_none_or(|table| table.knows(series));
        let have = rows.map_or(&[][..], |rows| rows.side_of(org));
        let sealed = rows.map(|_| store.segments());
        // What segments have is not loaded again; nor is what a checkpoint has.
        let skip = |series: u32, at_ms| {
            have.get(series as usize).is_some_and(|have| seq <= *have)
                || sealed.as_ref().is_some_and(|sealed| sealed.has_record(seq, at_ms))
        };
        store.last_seq.store(seq, Ordering::Release);
        if kind == RecordKind::Exemplars && sealed.as_ref().is_some_and(|sealed| seq <= sealed.seal_seq) {
            // A seal takes every exemplar that came before it, whatever its time.
            return Ok(ApplyOutcome::default());
        }
        // Its times are known only when it is applied.
        let _open = (kind != RecordKind::Exemplars).then(|| store.changes.open());
        let least_ms = Cell::new(i64::MAX);
        if kind == RecordKind::Starts {
            decode_starts(body, |start| least_ms.set(least_ms.get().min(start.at_ms)))?;
        }
        let applied = store.side.apply((seq, kind, body), knows, skip, |at_ms| {
            least_ms.set(least_ms.get().min(at_ms));
            store.arrivals.note_time(at_ms);
        });
        if kind != RecordKind::Exemplars {
            // Of what is damaged in the middle a part may have been applied.
            store.changes.note(if applied.is_ok() { least_ms.get() } else { i64::MIN });
        }
        let outcome = applied?;
        self.uncovered.fetch_add(outcome.stored, Ordering::Relaxed);
        Ok(outcome)
    }

    /// As [`Stores::apply`], for a deletion.
    fn apply_deletion(&self, record: Record<'_>, rows: Option<&RowSeqs>) -> Result<ApplyOutcome, Damage> {
        let Record { seq, org, body, .. } = record;
        let deletion = Deletion::decode(body)?;
        let store = self.org_or_new(org);
        store.last_seq.store(seq, Ordering::Release);
        // A row of a checkpoint from after it tells of it, and may have newer samples in its place.
        let knows = |have: &[u64], series: u32| have.get(series as usize).is_some_and(|have| seq <= *have);
        let floats = rows.map_or(&[][..], |rows| rows.of(org));
        let beside = rows.map_or(&[][..], |rows| rows.side_of(org));
        // What the rings have of segments is what earlier deletions have left of it, and may be newer than this one.
        let exemplars = rows.is_none() || seq > store.segments().seal_seq;
        store.changes.note(deletion.from_ms);
        deletion.apply(&store, |series| knows(floats, series), |series| knows(beside, series), exemplars);
        store.changes.note(deletion.from_ms);
        // The rows of the last checkpoint have what was deleted: another one is due.
        self.uncovered.fetch_add(1, Ordering::Relaxed);
        Ok(ApplyOutcome { record_seq: seq, ..ApplyOutcome::default() })
    }

    pub(super) fn set_limits(&self, org: OrgId, limits: OrgLimits) {
        self.org_or_new(org).set_limits(limits);
    }

    /// Does what a durable record says: the same while running and in replay.
    ///
    /// `rows`, in replay, says what the checkpoint has already; samples of series that nothing defines are then counted
    /// as orphans. While running every series is known, since its definition comes before its samples.
    ///
    /// # Errors
    /// [`Damage`] where the body is not what its type says, though its checksum holds.
    pub(super) fn apply(
        &self,
        record: Record<'_>,
        scratch: &mut Vec<LogSample>,
        rows: Option<&RowSeqs>,
    ) -> Result<ApplyOutcome, Damage> {
        let Record { seq, org, kind, body, samples } = record;
        if kind == RecordKind::Dropped {
            self.drop_org(org);
            return Ok(ApplyOutcome { record_seq: seq, ..ApplyOutcome::default() });
        }
        if self.is_dropped(org) {
            return Ok(ApplyOutcome::default());
        }
        if kind != RecordKind::Mark {
            self.org_or_new(org).count_record(body);
        }
        match kind {
            RecordKind::Samples | RecordKind::SamplesV1 => {
                if samples.is_none() || cfg!(debug_assertions) {
                    samples::decode(kind, body, scratch)?;
                }
                debug_assert!(
                    samples.is_none_or(|samples| samples == &**scratch),
                    "another record was logged"
                );
                let store = self.org_or_new(org);
                let orphans = if rows.is_some() { store.keep_replayed(seq, scratch) } else { 0 };
                let samples = samples.unwrap_or(scratch);
                let least_ms = store.note_samples(seq, samples);
                let note_change = || (!samples.is_empty()).then(|| store.changes.note(least_ms));
                note_change();
                let mut outcome = store.head.apply(seq, samples, skipped(rows, org, seq));
                outcome.orphans = orphans;
                note_change();
                self.uncovered.fetch_add(outcome.stored, Ordering::Relaxed);
                Ok(outcome)
            }
            RecordKind::Histograms | RecordKind::Exemplars | RecordKind::Starts => {
                self.apply_side(record, rows)
            }
            RecordKind::Series if samples.is_some() => {
                // It has just been logged, by a caller who has put its series into the table before.
                let ids = definition::ids(body)?;
                let store = self.org_or_new(org);
                store.last_seq.store(seq, Ordering::Release);
                store.durable().extend(ids);
                Ok(ApplyOutcome::default())
            }
            RecordKind::Series | RecordKind::RegistrySeries => {
                let store = self.org_or_new(org);
                if kind == RecordKind::Series {
                    store.last_seq.store(seq, Ordering::Release);
                }
                let mut table = store.table_mut();
                let defined = table.define_all(body, kind == RecordKind::RegistrySeries);
                store.usage.record_table(&table);
                drop(table);
                self.settle_names(&store);
                defined.map(|()| ApplyOutcome::default())
            }
            RecordKind::Metadata | RecordKind::RegistryMetadata => {
                let store = self.org_or_new(org);
                if kind == RecordKind::Metadata {
                    store.last_seq.store(seq, Ordering::Release);
                }
                let mut known = store.metadata_mut();
                metadata::decode(body, &mut |said| known.set(said, kind == RecordKind::RegistryMetadata))?;
                Ok(ApplyOutcome::default())
            }
            RecordKind::Seal | RecordKind::SealAll => {
                let until_ms = parse_seal(body)?;
                let store = self.org_or_new(org);
                store.last_seq.store(seq, Ordering::Release);
                match kind {
                    RecordKind::SealAll => store.close_all(until_ms),
                    _ => store.close_window(until_ms),
                }
                // What was logged before is in segments soon, and the log is trimmed after them.
                store.usage.log_bytes.store(0, Ordering::Relaxed);
                Ok(ApplyOutcome { record_seq: seq, ..ApplyOutcome::default() })
            }
            RecordKind::Delete => self.apply_deletion(record, rows),
            RecordKind::Mark | RecordKind::Switch | RecordKind::Dropped => Ok(ApplyOutcome::default()),
        }
    }
}
