//! The state of the store in memory: one [`OrgStore`] for each organisation, and the function that
//! applies records to it.

pub(super) mod deletion;
pub(super) mod manifest;
pub(super) mod quota;
pub(super) mod retention_clock;
pub(super) mod segments;
pub(super) mod table_guard;
mod version;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::block_cache::{BlockCache, OrgCache};
use super::error::Damage;
use super::head::Head;
use super::options::OrgLimits;
use super::series::identity::HashSecret;
use super::series::metadata::{self, Metadata};
use super::series::table::Table;
use super::series::{definition, registry};
use super::side_data::record::decode_starts;
use super::side_data::{SideRecord, SideTable};
use super::wal::log::{ApplyOutcome, Draft};
use super::wal::record::{RecordKind, parse_seal, record_bytes};
use super::wal::samples::{self, LogSample};
use crate::model::OrgId;
use crate::sync::IgnorePoison as _;
use crate::tsdb::error::ManifestError;
use deletion::Deletion;
use manifest::{Manifest, ManifestChange};
use quota::Usage;
use segments::{Obsolete, SegmentSet};
use table_guard::{TableGuard, ThreadLock};
use version::StoreVersion;

/// The state of one organisation. Organisations share only the log and the memory budget.
#[derive(Debug)]
pub(super) struct OrgStore {
    pub(super) org: OrgId,
    table: RwLock<Table>,
    /// Metadata of metrics. It has its own lock because readers lock the table, and the thread that
    /// writes the log changes the metadata.
    metadata: RwLock<Metadata>,
    /// Series whose definitions became durable and are still pending in the table. With this list,
    /// the thread that writes the log does not wait for the table.
    durable: Mutex<Vec<u32>>,
    pub(super) head: Head,
    segments: RwLock<Arc<SegmentSet>>,
    /// Files to be removed when their last reader is done.
    pub(super) obsolete: Mutex<Vec<Obsolete>>,
    /// Native histograms, start timestamps and exemplars.
    pub(super) side: SideTable,
    limits: RwLock<Arc<OrgLimits>>,
    pub(super) usage: Usage,
    pub(super) stored_total: AtomicU64,
    pub(super) refused_total: AtomicU64,
    /// Descriptions of metrics that were dropped because they were too long or too many.
    pub(super) metadata_dropped_total: AtomicU64,
    /// The end of the registry file. Only checkpoints and seals change it.
    registry: Mutex<registry::End>,
    /// Held while control and the published set are changed together.
    changing: Mutex<()>,
    /// Held by a seal of this organisation, and by operations that must not overlap one. It is
    /// locked before `changing`.
    sealing: Mutex<()>,
    /// The number of the next segment.
    pub(super) next_segment: AtomicU64,
    /// Samples before this time are older than the retention, and are hidden even if their segment
    /// still exists.
    pub(super) kept_from_ms: AtomicI64,
    /// The sequence number of the last applied record of any kind.
    pub(super) last_seq: AtomicU64,
    pub(super) arrivals: Arrivals,
    /// The version for result caches.
    pub(super) changes: StoreVersion,
    /// BlockCache values of segments, cached for later queries.
    pub(super) decoded: Arc<OrgCache>,
}

/// The times of arriving samples, which decide when a seal is due.
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
    /// Records the times of samples, and returns the least time, or `i64::MAX` if there are no
    /// samples.
    fn record(&self, samples: &[LogSample]) -> i64 {
        let (mut least, mut greatest) = (i64::MAX, i64::MIN);
        for sample in samples {
            least = least.min(sample.at_ms);
            greatest = greatest.max(sample.at_ms);
        }
        self.least_ms.fetch_min(least, Ordering::Relaxed);
        self.greatest_ms.fetch_max(greatest, Ordering::Relaxed);
        least
    }

    fn record_time(&self, at_ms: i64) {
        self.least_ms.fetch_min(at_ms, Ordering::Relaxed);
        self.greatest_ms.fetch_max(at_ms, Ordering::Relaxed);
    }

    /// Resets the greatest time, which came from a wrong clock.
    fn reset_greatest(&self) {
        self.greatest_ms.store(i64::MIN, Ordering::Relaxed);
    }

    /// Returns the least time since the last call, or `i64::MAX` if no sample came.
    pub(super) fn take_least(&self) -> i64 {
        self.least_ms.swap(i64::MAX, Ordering::Relaxed)
    }

    /// Returns the greatest time of any sample.
    pub(super) fn greatest(&self) -> i64 {
        self.greatest_ms.load(Ordering::Relaxed)
    }
}

impl OrgStore {
    // Poisoned locks are ignored: a panic of one request must not fail the others. A change of a
    // table or a stripe is either a single push, or made by the applying thread, whose end closes
    // the log.
    pub(super) fn table(&self) -> TableGuard<'_> {
        let lock = ThreadLock::add(&self.table);
        TableGuard::new(self.table.read().ignore_poison(), lock)
    }

    /// Returns the locked table, unless the lock is taken.
    pub(super) fn try_table(&self) -> Option<TableGuard<'_>> {
        let lock = ThreadLock::add(&self.table);
        self.table.try_read().ignore_poison().map(|table| TableGuard::new(table, lock))
    }

    pub(super) fn table_mut(&self) -> RwLockWriteGuard<'_, Table> {
        self.table.write().ignore_poison()
    }

    /// Locks the metadata of metrics, for a short operation without pattern matching.
    pub(super) fn metadata(&self) -> RwLockReadGuard<'_, Metadata> {
        self.metadata.read().ignore_poison()
    }

    /// Returns the locked metadata, unless the lock is taken.
    pub(super) fn try_metadata(&self) -> Option<RwLockReadGuard<'_, Metadata>> {
        self.metadata.try_read().ignore_poison()
    }

    pub(super) fn metadata_mut(&self) -> RwLockWriteGuard<'_, Metadata> {
        self.metadata.write().ignore_poison()
    }

    /// Marks the definitions in `durable` as durable in the table.
    pub(super) fn take_durable(&self) {
        if self.durable().is_empty() {
            return;
        }
        let mut table = self.table_mut();
        // Taken while the table is locked, so that the next caller finds the table up to date.
        let ids = std::mem::take(&mut *self.durable());
        table.mark_durable(ids.into_iter());
    }

    fn durable(&self) -> MutexGuard<'_, Vec<u32>> {
        self.durable.lock().ignore_poison()
    }

    pub(super) fn limits(&self) -> Arc<OrgLimits> {
        Arc::clone(&self.limits.read().ignore_poison())
    }

    /// Sets the limits. Samples that a longer retention keeps are visible at once and not only
    /// after the next upkeep, because samples of that time may already have been written.
    fn set_limits(&self, limits: OrgLimits) {
        let mut held = self.limits.write().ignore_poison();
        let hidden = self.kept_from_ms.load(Ordering::Relaxed);
        let kept = match (held.retention, limits.retention) {
            (Some(_), None) => i64::MIN,
            (Some(before), Some(after)) if after > before => {
                let longer = i64::try_from((after - before).as_millis()).unwrap_or(i64::MAX);
                hidden.saturating_sub(longer)
            }
            // A shorter retention hides samples when it removes them.
            _ => hidden,
        };
        self.kept_from_ms.store(kept, Ordering::Relaxed);
        *held = Arc::new(limits);
        drop(held);
        if kept < hidden {
            self.changes.note(kept);
        }
    }

    /// Hides samples before the time that `oldest_ms` derives from the limits, which do not change
    /// meanwhile.
    pub(super) fn hide_before(&self, oldest_ms: impl FnOnce(&OrgLimits) -> i64) -> Arc<OrgLimits> {
        let held = self.limits.read().ignore_poison();
        self.kept_from_ms.store(oldest_ms(&held), Ordering::Relaxed);
        Arc::clone(&held)
    }

    /// Returns the current set of segments.
    pub(super) fn segments(&self) -> Arc<SegmentSet> {
        Arc::clone(&self.segments.read().ignore_poison())
    }

    /// Returns the current set of segments, unless it is `known`.
    pub(super) fn segments_if_not(&self, known: &Arc<SegmentSet>) -> Option<Arc<SegmentSet>> {
        let now = self.segments.read().ignore_poison();
        (!Arc::ptr_eq(&now, known)).then(|| Arc::clone(&now))
    }

    /// Sets the set of segments that the start found.
    pub(super) fn begin_with(&self, set: SegmentSet) {
        *self.segments.write().ignore_poison() = Arc::new(set);
    }

    /// Commits a change of the list of segments to control and then publishes the new set, so
    /// readers see only durable changes. The lock prevents other changes in between. `next` derives
    /// the new set from the current one.
    pub(super) fn change_segments(
        &self,
        manifest: &Manifest,
        change: ManifestChange,
        next: impl FnOnce(&SegmentSet) -> SegmentSet,
    ) -> Result<(), ManifestError> {
        self.change_segments_if(manifest, |_| true, change, next).map(drop)
    }

    /// Like [`OrgStore::change_segments`], if `fits` returns true for the current set. Returns
    /// whether it did.
    pub(super) fn change_segments_if(
        &self,
        manifest: &Manifest,
        fits: impl FnOnce(&SegmentSet) -> bool,
        change: ManifestChange,
        next: impl FnOnce(&SegmentSet) -> SegmentSet,
    ) -> Result<bool, ManifestError> {
        let guard = self.changing();
        if !fits(&self.segments()) {
            return Ok(false);
        }
        self.change_held(&guard, manifest, change, next).map(|()| true)
    }

    /// Locks the list of segments against other changes.
    pub(super) fn changing(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().ignore_poison()
    }

    /// Locks this organisation against seals; waits for a running one.
    pub(super) fn sealing(&self) -> MutexGuard<'_, ()> {
        self.sealing.lock().ignore_poison()
    }

    /// Like [`OrgStore::change_segments`]; the caller holds the `changing` lock.
    pub(super) fn change_held(
        &self,
        _guard: &MutexGuard<'_, ()>,
        manifest: &Manifest,
        change: ManifestChange,
        next: impl FnOnce(&SegmentSet) -> SegmentSet,
    ) -> Result<(), ManifestError> {
        manifest.commit(self.org, change)?;
        let before = self.segments();
        let next = Arc::new(next(&before));
        *self.segments.write().ignore_poison() = Arc::clone(&next);
        self.forget_unlisted(&before, &next);
        Ok(())
    }

    /// Removes the cached values of segments that are no longer listed, even if queries still read
    /// them.
    fn forget_unlisted(&self, before: &SegmentSet, next: &SegmentSet) {
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
        self.decoded.remove_segments(&gone);
    }

    // The steps of a seal, for floats and for side data.

    pub(super) fn close_window(&self, until_ms: i64) {
        self.head.close_window(until_ms);
        self.side.close_window(until_ms);
    }

    /// Like [`OrgStore::close_window`], for samples of any time. The window may end earlier than
    /// before.
    pub(super) fn close_all(&self, until_ms: i64) {
        self.head.close_all(until_ms);
        self.side.close_all(until_ms);
        self.arrivals.reset_greatest();
    }

    /// Sets the end of the window to that of a checkpoint, without closing a window.
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
        let side = self.side.extent().map(|(least, _)| least);
        self.head.least_ms().into_iter().chain(side).min()
    }

    pub(super) fn greatest_ms(&self) -> Option<i64> {
        self.head.greatest_ms().max(self.side.extent().map(|(_, greatest)| greatest))
    }

    /// Adds a record to the organisation's bytes in the log.
    pub(super) fn count_record(&self, body: &[u8]) {
        self.usage.log_bytes.fetch_add(record_bytes(body.len()) as u64, Ordering::Relaxed);
    }

    /// Removes the samples of a replayed record that the head must not take. Returns the number of
    /// samples whose series have no definition.
    pub(super) fn retain_replayed(&self, seq: u64, samples: &mut Vec<LogSample>) -> u64 {
        // Samples that are in segments are not loaded again.
        let sealed = self.segments();
        samples.retain(|sample| !sealed.has_record(seq, sample.at_ms));
        let table = self.table();
        let all = samples.len();
        samples.retain(|sample| table.knows(sample.series));
        (all - samples.len()) as u64
    }

    /// Records that the head is about to apply a record of samples. Returns the least time, or
    /// `i64::MAX` if there are no samples.
    pub(super) fn record_samples(&self, seq: u64, samples: &[LogSample]) -> i64 {
        let least_ms = self.arrivals.record(samples);
        self.last_seq.store(seq, Ordering::Release);
        least_ms
    }

    pub(super) fn registry(&self) -> MutexGuard<'_, registry::End> {
        self.registry.lock().ignore_poison()
    }
}

/// The sequence number up to which the checkpoint contains each series, for the replay.
#[derive(Debug, Default)]
pub(super) struct RowSeqs {
    by_org: BTreeMap<OrgId, Vec<u64>>,
    /// The same for the side table.
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

/// Returns a function that tests whether the checkpoint already contains a record's samples of a
/// series.
pub(super) fn skipped(rows: Option<&RowSeqs>, org: OrgId, seq: u64) -> impl Fn(u32) -> bool + '_ {
    let rows = rows.map_or(&[][..], |rows| rows.of(org));
    move |series| rows.get(series as usize).is_some_and(|have| seq <= *have)
}

fn set(seqs: &mut Vec<u64>, series: u32, seq: u64) {
    if seqs.len() <= series as usize {
        seqs.resize(series as usize + 1, 0);
    }
    if let Some(place) = seqs.get_mut(series as usize) {
        // Rows of one series have the same number. The row of exemplars has 0 for series 0.
        *place = (*place).max(seq);
    }
}

/// A durable record of the log.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record<'b> {
    pub(super) seq: u64,
    pub(super) org: OrgId,
    pub(super) kind: RecordKind,
    pub(super) body: &'b [u8],
    /// The decoded body of [`RecordKind::Samples`], if the record has just been logged. None if it
    /// was read from a file.
    pub(super) samples: Option<&'b [LogSample]>,
}

impl<'b> Record<'b> {
    /// Creates a record that was read from a file.
    pub(super) const fn read(seq: u64, org: OrgId, kind: RecordKind, body: &'b [u8]) -> Record<'b> {
        Record { seq, org, kind, body, samples: None }
    }

    /// Creates a record that has just been logged.
    pub(super) fn of(seq: u64, draft: &'b Draft) -> Record<'b> {
        let Draft { org, kind, body, samples, .. } = draft;
        Record { seq, org: *org, kind: *kind, body, samples: Some(samples) }
    }
}

/// The state of all organisations.
#[derive(Debug)]
pub(super) struct Stores {
    secret: [u8; 32],
    limits: OrgLimits,
    pub(super) decoded: Arc<BlockCache>,
    orgs: RwLock<BTreeMap<OrgId, Arc<OrgStore>>>,
    /// Estimated memory of all heads, in bytes.
    pub(super) head_bytes: Arc<AtomicU64>,
    /// Estimated memory of all names and series, in bytes.
    pub(super) name_bytes: AtomicU64,
    /// Samples stored since the last checkpoint.
    pub(super) uncovered: AtomicU64,
    /// Whether a start is filling the heads.
    starting: AtomicBool,
    dropped: Mutex<BTreeMap<OrgId, DroppedOrg>>,
}

/// The remains of a removed organisation.
#[derive(Clone, Debug, Default)]
struct DroppedOrg {
    /// Whether its rows and files are removed.
    finished: bool,
    /// Its former state, which a running seal may still use.
    store: Option<Arc<OrgStore>>,
}

impl Stores {
    /// Creates stores without a block cache.
    pub(super) fn new(secret: [u8; 32], limits: OrgLimits) -> Stores {
        Stores::with_block_cache(0, secret, limits)
    }

    /// Creates stores with a block cache of at most `decoded_bytes_max` bytes.
    pub(super) fn with_block_cache(decoded_bytes_max: u64, secret: [u8; 32], limits: OrgLimits) -> Stores {
        Stores {
            secret,
            limits,
            decoded: BlockCache::new(decoded_bytes_max),
            orgs: RwLock::default(),
            head_bytes: Arc::default(),
            name_bytes: AtomicU64::new(0),
            uncovered: AtomicU64::new(0),
            starting: AtomicBool::new(false),
            dropped: Mutex::default(),
        }
    }

    /// Sets whether a start is filling the heads. Tails stay short meanwhile, so that a start needs
    /// less memory than the running process did.
    pub(super) fn set_starting(&self, starting: bool) {
        self.starting.store(starting, Ordering::Relaxed);
        self.all().iter().for_each(|store| store.head.set_short_tails(starting));
    }

    /// Returns the secret that keys the hashes of an organisation's labels.
    pub(super) fn secret_of(&self, org: OrgId) -> HashSecret {
        HashSecret::of(&self.secret, org.0)
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
                side: SideTable::new(Arc::clone(&self.head_bytes)),
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
                decoded: OrgCache::new(&self.decoded),
            })
        };
        if self.is_dropped(org) {
            // Late records of a removed organisation go to a store that is dropped. In `orgs` it
            // would prevent trimming the log.
            return fresh();
        }
        Arc::clone(orgs.entry(org).or_insert_with(fresh))
    }

    /// Removes an organisation. Its current readers continue with the state that they have.
    fn drop_org(&self, org: OrgId) {
        // Marked first, so that no caller creates it again.
        self.dropped().insert(org, DroppedOrg::default());
        let gone = self.orgs.write().ignore_poison().remove(&org);
        if let Some(store) = gone {
            let bytes = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
            let freed = bytes(&store.head.counters.bytes) + bytes(&store.side.counters.bytes);
            self.head_bytes.fetch_sub(freed, Ordering::Relaxed);
            self.forget_names(&store);
            store.decoded.close();
            self.dropped().insert(org, DroppedOrg { finished: false, store: Some(store) });
        }
    }

    fn dropped(&self) -> MutexGuard<'_, BTreeMap<OrgId, DroppedOrg>> {
        self.dropped.lock().ignore_poison()
    }

    /// Marks the organisations that the start found removed.
    pub(super) fn set_dropped(&self, orgs: &BTreeSet<OrgId>) {
        self.dropped().extend(orgs.iter().map(|org| (*org, DroppedOrg::default())));
    }

    pub(super) fn is_dropped(&self, org: OrgId) -> bool {
        self.dropped().contains_key(&org)
    }

    /// Returns the removed organisations that may still have rows and files, and their former
    /// state.
    pub(super) fn dropped_unfinished(&self) -> Vec<(OrgId, Option<Arc<OrgStore>>)> {
        let dropped = self.dropped();
        let left = dropped.iter().filter(|(_, dropped)| !dropped.finished);
        left.map(|(org, dropped)| (*org, dropped.store.clone())).collect()
    }

    pub(super) fn drop_is_finished(&self, org: OrgId) {
        self.dropped().insert(org, DroppedOrg { finished: true, store: None });
    }

    /// Returns whether an organisation was removed completely. The log need not keep its records.
    pub(super) fn is_gone(&self, org: OrgId) -> bool {
        self.dropped().get(&org).is_some_and(|dropped| dropped.finished)
    }

    /// Returns all organisations in order of id.
    pub(super) fn all(&self) -> Vec<Arc<OrgStore>> {
        self.orgs.read().ignore_poison().values().map(Arc::clone).collect()
    }

    /// Like [`Stores::apply`], for side data.
    fn apply_side(&self, record: Record<'_>, rows: Option<&RowSeqs>) -> Result<ApplyOutcome, Damage> {
        let Record { seq, org, kind, body, .. } = record;
        let store = self.org_or_new(org);
        let table = rows.map(|_| store.table());
        let knows = |series| table.as_ref().is_none_or(|table| table.knows(series));
        let have = rows.map_or(&[][..], |rows| rows.side_of(org));
        let sealed = rows.map(|_| store.segments());
        // Skip what segments or a checkpoint already contain.
        let skip = |series: u32, at_ms| {
            have.get(series as usize).is_some_and(|have| seq <= *have)
                || sealed.as_ref().is_some_and(|sealed| sealed.has_record(seq, at_ms))
        };
        store.last_seq.store(seq, Ordering::Release);
        if kind == RecordKind::Exemplars && sealed.as_ref().is_some_and(|sealed| seq <= sealed.seal_seq) {
            // A seal takes every exemplar before it, of any time.
            return Ok(ApplyOutcome::default());
        }
        // The times of the record are known only after it is applied.
        let _open = (kind != RecordKind::Exemplars).then(|| store.changes.open());
        let least_ms = Cell::new(i64::MAX);
        if kind == RecordKind::Starts {
            decode_starts(body, |start| least_ms.set(least_ms.get().min(start.at_ms)))?;
        }
        let applied = store.side.apply(SideRecord { seq, kind, body }, knows, skip, |at_ms| {
            least_ms.set(least_ms.get().min(at_ms));
            store.arrivals.record_time(at_ms);
        });
        if kind != RecordKind::Exemplars {
            // Part of a damaged body may have been applied.
            store.changes.note(if applied.is_ok() { least_ms.get() } else { i64::MIN });
        }
        let outcome = applied?;
        self.uncovered.fetch_add(outcome.stored, Ordering::Relaxed);
        Ok(outcome)
    }

    /// Like [`Stores::apply`], for a deletion.
    fn apply_deletion(&self, record: Record<'_>, rows: Option<&RowSeqs>) -> Result<ApplyOutcome, Damage> {
        let Record { seq, org, body, .. } = record;
        let deletion = Deletion::decode(body)?;
        let store = self.org_or_new(org);
        store.last_seq.store(seq, Ordering::Release);
        // A later row of the checkpoint already reflects the deletion, and may have newer samples.
        let knows = |have: &[u64], series: u32| have.get(series as usize).is_some_and(|have| seq <= *have);
        let floats = rows.map_or(&[][..], |rows| rows.of(org));
        let side = rows.map_or(&[][..], |rows| rows.side_of(org));
        // The rings of exemplars from segments reflect earlier deletions, and may have newer
        // exemplars.
        let exemplars = rows.is_none() || seq > store.segments().seal_seq;
        store.changes.note(deletion.from_ms);
        deletion.apply(&store, |series| knows(floats, series), |series| knows(side, series), exemplars);
        store.changes.note(deletion.from_ms);
        // The last checkpoint still has the deleted samples, so another one is due.
        self.uncovered.fetch_add(1, Ordering::Relaxed);
        Ok(ApplyOutcome { record_seq: seq, ..ApplyOutcome::default() })
    }

    pub(super) fn set_limits(&self, org: OrgId, limits: OrgLimits) {
        self.org_or_new(org).set_limits(limits);
    }

    /// Applies a durable record, in the same way while running and in a replay.
    ///
    /// In a replay, `rows` has what the checkpoint already contains, and samples of series without
    /// a definition are counted as orphans. While running every series is defined, because its
    /// definition precedes its samples.
    ///
    /// # Errors
    /// [`Damage`] if the body does not match its type although its checksum is correct.
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
                let orphans = if rows.is_some() { store.retain_replayed(seq, scratch) } else { 0 };
                let samples = samples.unwrap_or(scratch);
                let least_ms = store.record_samples(seq, samples);
                let record_change = || (!samples.is_empty()).then(|| store.changes.note(least_ms));
                record_change();
                let mut outcome = store.head.apply(seq, samples, skipped(rows, org, seq));
                outcome.orphans = orphans;
                record_change();
                self.uncovered.fetch_add(outcome.stored, Ordering::Relaxed);
                Ok(outcome)
            }
            RecordKind::Histograms | RecordKind::Exemplars | RecordKind::Starts => {
                self.apply_side(record, rows)
            }
            RecordKind::Series if samples.is_some() => {
                // The caller registered its series in the table before logging it.
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
                metadata::decode(body, &mut |metric| {
                    known.set(metric, kind == RecordKind::RegistryMetadata)
                })?;
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
                // Earlier records will soon be in segments, and the log is trimmed after that.
                store.usage.log_bytes.store(0, Ordering::Relaxed);
                Ok(ApplyOutcome { record_seq: seq, ..ApplyOutcome::default() })
            }
            RecordKind::Delete => self.apply_deletion(record, rows),
            RecordKind::Mark | RecordKind::Switch | RecordKind::Dropped => Ok(ApplyOutcome::default()),
        }
    }
}
