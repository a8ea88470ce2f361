//! The state of one organisation in memory.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::arrivals::Arrivals;
use super::quota::Usage;
use super::segments::{Obsolete, SegmentSet};
use super::table_guard::{TableGuard, ThreadLock};
use super::version::StoreVersion;
use crate::model::OrgId;
use crate::sync::IgnorePoison as _;
use crate::tsdb::block_cache::OrgCache;
use crate::tsdb::head::Head;
use crate::tsdb::options::OrgLimits;
use crate::tsdb::series::metadata::Metadata;
use crate::tsdb::series::registry;
use crate::tsdb::series::table::Table;
use crate::tsdb::side_data::SideTable;
use crate::tsdb::wal::record::record_bytes;
use crate::tsdb::wal::samples::LogSample;

/// The state of one organisation. Organisations share only the log and the memory budget.
#[derive(Debug)]
pub(in crate::tsdb) struct OrgStore {
    pub(in crate::tsdb) org: OrgId,
    pub(super) table: RwLock<Table>,
    /// Metadata of metrics. It has its own lock because readers lock the table, and the thread that
    /// writes the log changes the metadata.
    pub(super) metadata: RwLock<Metadata>,
    /// Series whose definitions became durable and are still pending in the table. With this list,
    /// the thread that writes the log does not wait for the table.
    pub(super) durable: Mutex<Vec<u32>>,
    pub(in crate::tsdb) head: Head,
    pub(super) segments: RwLock<Arc<SegmentSet>>,
    /// Files to be removed when their last reader is done.
    pub(in crate::tsdb) obsolete: Mutex<Vec<Obsolete>>,
    /// Native histograms, start timestamps and exemplars.
    pub(in crate::tsdb) side: SideTable,
    pub(super) limits: RwLock<Arc<OrgLimits>>,
    pub(in crate::tsdb) usage: Usage,
    pub(in crate::tsdb) stored_total: AtomicU64,
    pub(in crate::tsdb) refused_total: AtomicU64,
    /// Descriptions of metrics that were dropped because they were too long or too many.
    pub(in crate::tsdb) metadata_dropped_total: AtomicU64,
    /// The end of the registry file. Only checkpoints and seals change it.
    pub(super) registry: Mutex<registry::End>,
    /// Held while control and the published set are changed together.
    pub(super) changing: Mutex<()>,
    /// Held by a seal of this organisation, and by operations that must not overlap one. It is
    /// locked before `changing`.
    pub(super) sealing: Mutex<()>,
    /// The number of the next segment.
    pub(in crate::tsdb) next_segment: AtomicU64,
    /// Samples before this time are older than the retention, and are hidden even if their segment
    /// still exists.
    pub(in crate::tsdb) kept_from_ms: AtomicI64,
    /// The sequence number of the last applied record of any kind.
    pub(in crate::tsdb) last_seq: AtomicU64,
    pub(in crate::tsdb) arrivals: Arrivals,
    /// The version for result caches.
    pub(in crate::tsdb) changes: StoreVersion,
    /// Decoded blocks of segments, cached for later queries.
    pub(in crate::tsdb) decoded: Arc<OrgCache>,
}

impl OrgStore {
    // Poisoned locks are ignored: a panic of one request must not fail the others. A change of a
    // table or a stripe is either a single push, or made by the applying thread, whose end closes
    // the log.
    pub(in crate::tsdb) fn table(&self) -> TableGuard<'_> {
        let lock = ThreadLock::add(&self.table);
        TableGuard::new(self.table.read().ignore_poison(), lock)
    }

    /// Returns the locked table, unless the lock is taken.
    pub(in crate::tsdb) fn try_table(&self) -> Option<TableGuard<'_>> {
        let lock = ThreadLock::add(&self.table);
        self.table.try_read().ignore_poison().map(|table| TableGuard::new(table, lock))
    }

    pub(in crate::tsdb) fn table_mut(&self) -> RwLockWriteGuard<'_, Table> {
        self.table.write().ignore_poison()
    }

    /// Locks the metadata of metrics, for a short operation without pattern matching.
    pub(in crate::tsdb) fn metadata(&self) -> RwLockReadGuard<'_, Metadata> {
        self.metadata.read().ignore_poison()
    }

    /// Returns the locked metadata, unless the lock is taken.
    pub(in crate::tsdb) fn try_metadata(&self) -> Option<RwLockReadGuard<'_, Metadata>> {
        self.metadata.try_read().ignore_poison()
    }

    pub(in crate::tsdb) fn metadata_mut(&self) -> RwLockWriteGuard<'_, Metadata> {
        self.metadata.write().ignore_poison()
    }

    /// Marks the definitions in `durable` as durable in the table.
    pub(in crate::tsdb) fn take_durable(&self) {
        if self.durable().is_empty() {
            return;
        }
        let mut table = self.table_mut();
        // Taken while the table is locked, so that the next caller finds the table up to date.
        let ids = std::mem::take(&mut *self.durable());
        table.mark_durable(ids.into_iter());
    }

    pub(super) fn durable(&self) -> MutexGuard<'_, Vec<u32>> {
        self.durable.lock().ignore_poison()
    }

    pub(in crate::tsdb) fn limits(&self) -> Arc<OrgLimits> {
        Arc::clone(&self.limits.read().ignore_poison())
    }

    /// Sets the limits. Samples that a longer retention keeps are visible at once and not only
    /// after the next upkeep, because samples of that time may already have been written.
    pub(super) fn set_limits(&self, limits: OrgLimits) {
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
    pub(in crate::tsdb) fn hide_before(&self, oldest_ms: impl FnOnce(&OrgLimits) -> i64) -> Arc<OrgLimits> {
        let held = self.limits.read().ignore_poison();
        self.kept_from_ms.store(oldest_ms(&held), Ordering::Relaxed);
        Arc::clone(&held)
    }

    /// Locks this organisation against seals; waits for a running one.
    pub(in crate::tsdb) fn sealing(&self) -> MutexGuard<'_, ()> {
        self.sealing.lock().ignore_poison()
    }

    /// Adds a record to the organisation's bytes in the log.
    pub(in crate::tsdb) fn count_record(&self, body: &[u8]) {
        self.usage.log_bytes.fetch_add(record_bytes(body.len()) as u64, Ordering::Relaxed);
    }

    /// Removes the samples of a replayed record that the head must not take. Returns the number of
    /// samples whose series have no definition.
    pub(in crate::tsdb) fn retain_replayed(&self, seq: u64, samples: &mut Vec<LogSample>) -> u64 {
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
    pub(in crate::tsdb) fn record_samples(&self, seq: u64, samples: &[LogSample]) -> i64 {
        let least_ms = self.arrivals.record(samples);
        self.last_seq.store(seq, Ordering::Release);
        least_ms
    }

    pub(in crate::tsdb) fn registry(&self) -> MutexGuard<'_, registry::End> {
        self.registry.lock().ignore_poison()
    }
}
