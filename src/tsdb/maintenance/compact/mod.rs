//! Compaction: merges small segments into larger ones, moves late samples to their place, and drops
//! deleted samples (docs/storage.md section 11).
//!
//! The steps for one organisation, in this order. An interruption at any point loses no data:
//! ```text
//! 1 choose a job                                                         [plan]
//! 2 merge its sources into new files, sync them and rename them          [merge]
//! 3 ONE commit in control: list the new segments, mark the sources as obsolete;
//!   this moves the samples
//! 4 publish the new set
//! 5 remove each source file when its last reader is gone, then its obsolete row
//! ```
//! A crash before step 3 leaves unlisted files that name the segments they replace, all of
//! which are listed. The next start removes those files. After a crash past 3, the next start
//! removes the sources.

mod caches;
mod deletions;
mod merge;
mod plan;

use std::collections::BTreeSet;
use std::sync::Arc;

use super::checkpoint::Folder;
use super::retention::Present;
use crate::kv::with_sources;
use crate::model::{OrgId, Timestamp};
use crate::sync::IgnorePoison as _;
use crate::tsdb::Tsdb;
use crate::tsdb::error::ManifestError;
use crate::tsdb::error::{AppendError, DiskError};
use crate::tsdb::segment::{HISTOGRAMS, LATE, NewSegment, Segment, SegmentMeta, trim_memory};
use crate::tsdb::store::OrgStore;
use crate::tsdb::store::manifest::{Manifest, ManifestChange, Tombstone};
use crate::tsdb::store::segments::{IndexedSegment, Obsolete, SegmentSet};
use crate::tsdb::wal::sink::Sink;
use deletions::{Age, PendingDeletions};
use merge::{Merge, MergeError, Throttle};
pub(in crate::tsdb) use plan::{DAY_MS, rank};
use plan::{MergeJob, PlanInput, Urgency};

/// The limit of jobs in one call, so that a plan that never ends is noticed.
const JOBS_MAX: usize = 10_000;

/// The result of a maintenance run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UpkeepReport {
    /// Compactions run.
    pub jobs: u64,
    /// Number of segments merged by the compactions.
    pub merged: u64,
    /// Number of segments written by the compactions.
    pub made: u64,
    /// Number of bytes written by the compactions.
    pub bytes: u64,
    /// Segments dropped by retention.
    pub expired: u64,
    /// Segment files removed.
    pub removed: u64,
    /// Segments that are too old by the wall clock, until the retention clock confirms it.
    pub waiting: u64,
}

/// The reason why maintenance stopped. No data is lost: the source segments remain in place.
#[derive(Debug, thiserror::Error)]
pub enum UpkeepError {
    /// The store has no folder, or must not write to it.
    #[error("cannot maintain this store: {0}")]
    Closed(String),
    /// Less space is free than a compaction needs.
    #[error("too little free space for a compaction: {free} bytes free, {needed} needed")]
    DiskFull {
        /// Bytes free.
        free: u64,
        /// Bytes that must be free.
        needed: u64,
    },
    /// A file operation failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// A segment could not be written or read.
    #[error("segments of organisation {org} were not merged: {what}")]
    Merge {
        /// The organisation of the segments.
        org: OrgId,
        /// The cause.
        what: String,
    },
    /// The list of segments was not changed.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// The log was not trimmed after deletions were carried out.
    #[error("deleted samples stay in the log: {0}")]
    Trim(String),
    /// The record of a dropped organisation was not made durable.
    #[error("the record was not written")]
    Log(#[source] AppendError),
    /// A test stopped it here, as if the process had ended.
    #[error("stopped by a test")]
    Stopped,
}

/// The state of compaction. Its lock admits one compaction at a time.
#[derive(Debug, Default)]
pub(in crate::tsdb) struct Compactor {
    /// Segments that could not be merged. They are not retried before the next start.
    failed: BTreeSet<(OrgId, u64)>,
    pending: PendingDeletions,
}

/// The parts of a writable store that maintenance uses.
#[derive(Clone, Copy)]
pub(in crate::tsdb) struct MaintenanceContext<'t> {
    pub(in crate::tsdb) folder: &'t Folder,
    pub(in crate::tsdb) manifest: &'t Manifest,
}

/// The context of maintenance for one organisation.
#[derive(Clone, Copy)]
struct OrgContext<'t> {
    maintenance: MaintenanceContext<'t>,
    store: &'t Arc<OrgStore>,
}

/// The clocks of a maintenance run.
#[derive(Clone, Copy)]
struct MaintenanceTime<'t> {
    /// The wall clock.
    now: Timestamp,
    /// The retention clock.
    present: &'t Present,
}

/// The segments of an organisation when a job begins, and those that it merges.
#[derive(Clone, Copy)]
struct JobInput<'t> {
    before: &'t SegmentSet,
    sources: &'t [Arc<IndexedSegment>],
}

impl Tsdb {
    /// Returns the parts for maintenance; an error if the store is read-only or in memory.
    pub(in crate::tsdb) fn maintenance_context(&self) -> Result<MaintenanceContext<'_>, UpkeepError> {
        match (&self.folder, &self.log, &self.manifest) {
            (Some(folder), Sink::Log(_), Some(manifest)) => Ok(MaintenanceContext { folder, manifest }),
            (_, Sink::ReadOnly { why, .. }, _) => Err(UpkeepError::Closed(why.clone())),
            _ => Err(UpkeepError::Closed("it is in memory only".to_owned())),
        }
    }

    /// Runs the due maintenance. Releases decoded values and series orders that no query uses,
    /// drops expired segments, removes files without readers, and runs at most one merge for each
    /// organisation. `tasks` calls it every ten seconds. Does nothing while another call is
    /// running.
    ///
    /// # Errors
    /// The [`UpkeepError`] of the first organisation that failed. The work for the others is done.
    pub fn maintain(&self, now: Timestamp) -> Result<UpkeepReport, UpkeepError> {
        if self.stores.decoded.evict_idle(now) > 0 {
            trim_memory();
        }
        self.stores.all().iter().for_each(|store| store.table().age_orders());
        let mut report = UpkeepReport::default();
        let Ok(maintenance) = self.maintenance_context() else { return Ok(report) };
        let Ok(mut compactor) = self.compactor.try_lock() else { return Ok(report) };
        self.finish_drops(maintenance)?;
        let all = self.stores.all();
        compactor.pending.refresh(&all, now);
        let present = self.retention_present(maintenance, now);
        let mut failed = None;
        // A failure of one organisation's disk or control must not delay the others.
        for store in &all {
            match self.maintain_org(maintenance, store, &present, &mut report) {
                Err(UpkeepError::Stopped) => return Err(UpkeepError::Stopped),
                done => failed = failed.or(done.err()),
            }
        }
        self.record_waiting(report.waiting);
        for store in &all {
            match self.run_due_job(OrgContext { maintenance, store }, now, &mut compactor, &mut report) {
                Err(UpkeepError::Stopped) => return Err(UpkeepError::Stopped),
                done => failed = failed.or(done.err()),
            }
        }
        let begin = maintenance.manifest.log_begin()?.seq;
        if let Some(seq) = compactor.pending.due_in_log(&all, begin, now) {
            let gone = self.release_records(seq).map_err(|e| UpkeepError::Trim(with_sources(&e)));
            failed = failed.or(gone.err());
        }
        failed.map_or(Ok(report), Err)
    }

    /// Expires segments, removes tombstones and removes files of one organisation.
    fn maintain_org(
        &self,
        maintenance: MaintenanceContext<'_>,
        store: &Arc<OrgStore>,
        present: &Present,
        report: &mut UpkeepReport,
    ) -> Result<(), UpkeepError> {
        self.expire(maintenance, store, present, report)?;
        self.forget_tombstones(maintenance, store)?;
        self.sweep(maintenance, store, report)
    }

    /// Runs the due merge of one organisation, if there is one.
    fn run_due_job(
        &self,
        context: OrgContext<'_>,
        now: Timestamp,
        compactor: &mut Compactor,
        report: &mut UpkeepReport,
    ) -> Result<(), UpkeepError> {
        let Some(job) = next_job(context.store, compactor, Urgency::Due, now) else { return Ok(()) };
        let mut throttle = Throttle::new(Some(&self.options.rest));
        self.run_job(context, &job, compactor, &mut throttle, report)?;
        self.forget_tombstones(context.maintenance, context.store)?;
        self.sweep(context.maintenance, context.store, report)
    }

    /// Merges segments until each day is one segment, today included, at full speed. Waits for a
    /// maintenance run in progress.
    ///
    /// # Errors
    /// The [`UpkeepError`] of the first organisation that failed. The work for the others is done.
    pub fn compact(&self, now: Timestamp) -> Result<UpkeepReport, UpkeepError> {
        let mut report = UpkeepReport::default();
        let maintenance = self.maintenance_context()?;
        let mut compactor = self.compactor.lock().ignore_poison();
        let mut failed = None;
        let present = self.retention_present(maintenance, now);
        let time = MaintenanceTime { now, present: &present };
        for store in self.stores.all() {
            if let Err(e) = self.compact_org(maintenance, &store, time, &mut compactor, &mut report) {
                failed.get_or_insert(e);
            }
        }
        self.record_waiting(report.waiting);
        failed.map_or(Ok(report), Err)
    }

    /// Merges the segments of an organisation until each day before the one of `at_ms` is one
    /// segment, at full speed. Days with segments that reach beyond are left out.
    ///
    /// # Errors
    /// [`UpkeepError`]; a later compaction does the rest.
    pub(in crate::tsdb) fn compact_days_before(
        &self,
        org: OrgId,
        at_ms: i64,
        now: Timestamp,
    ) -> Result<UpkeepReport, UpkeepError> {
        let mut report = UpkeepReport::default();
        let maintenance = self.maintenance_context()?;
        let Some(store) = self.stores.org(org) else { return Ok(report) };
        let mut compactor = self.compactor.lock().ignore_poison();
        let urgency = Urgency::DaysBefore(at_ms.div_euclid(DAY_MS));
        for _ in 0..JOBS_MAX {
            let Some(job) = next_job(&store, &compactor, urgency, now) else { break };
            let context = OrgContext { maintenance, store: &store };
            self.run_job(context, &job, &mut compactor, &mut Throttle::new(None), &mut report)?;
        }
        self.sweep(maintenance, &store, &mut report)?;
        Ok(report)
    }

    fn compact_org(
        &self,
        maintenance: MaintenanceContext<'_>,
        store: &Arc<OrgStore>,
        time: MaintenanceTime<'_>,
        compactor: &mut Compactor,
        report: &mut UpkeepReport,
    ) -> Result<(), UpkeepError> {
        self.expire(maintenance, store, time.present, report)?;
        for _ in 0..JOBS_MAX {
            let Some(job) = next_job(store, compactor, Urgency::All, time.now) else { break };
            let context = OrgContext { maintenance, store };
            self.run_job(context, &job, compactor, &mut Throttle::new(None), report)?;
        }
        self.forget_tombstones(maintenance, store)?;
        self.sweep(maintenance, store, report)
    }

    fn run_job(
        &self,
        context: OrgContext<'_>,
        job: &MergeJob,
        compactor: &mut Compactor,
        throttle: &mut Throttle<'_>,
        report: &mut UpkeepReport,
    ) -> Result<(), UpkeepError> {
        let OrgContext { maintenance, store } = context;
        // Files whose listing is uncertain stay. Retries without this check would fill the disk.
        maintenance.manifest.admit()?;
        let before = store.segments();
        let sources: Vec<Arc<IndexedSegment>> = job
            .sources
            .iter()
            .filter_map(|seq| before.parts.iter().find(|part| part.meta().seq == *seq).map(Arc::clone))
            .collect();
        let bytes: u64 = sources.iter().map(|part| part.meta().file_bytes).sum();
        let space = self.options.disk.space(&maintenance.folder.segments)?;
        let needed = space.growth_needs(bytes.saturating_mul(2));
        if space.free < needed {
            return Err(UpkeepError::DiskFull { free: space.free, needed });
        }
        let mut written = Vec::new();
        let input = JobInput { before: &before, sources: &sources };
        let done = self.merge_and_list(context, job, input, throttle, &mut written);
        match &done {
            Ok(()) => {
                report.jobs += 1;
                report.merged += sources.len() as u64;
                report.made += written.len() as u64;
                report.bytes += written.iter().map(|meta| meta.file_bytes).sum::<u64>();
                let (from, to) = (sources.len(), written.len());
                tracing::info!(
                    org = store.org.0,
                    level = job.level,
                    from,
                    to,
                    why = job.why,
                    "merged segments"
                );
            }
            Err(UpkeepError::Stopped) => {}
            Err(e) => {
                if !matches!(e, UpkeepError::Manifest(e) if !e.is_certain()) {
                    merge::remove_files(&maintenance.folder.segments_of(store.org), &written)?;
                }
                if matches!(e, UpkeepError::Merge { .. }) {
                    compactor.failed.extend(job.sources.iter().map(|seq| (store.org, *seq)));
                }
            }
        }
        done
    }

    /// Runs steps 2 to 4. `written` gets the written segments even on failure.
    fn merge_and_list(
        &self,
        context: OrgContext<'_>,
        job: &MergeJob,
        input: JobInput<'_>,
        throttle: &mut Throttle<'_>,
        written: &mut Vec<SegmentMeta>,
    ) -> Result<(), UpkeepError> {
        let OrgContext { maintenance, store } = context;
        let JobInput { before, sources } = input;
        let step = || if self.options.disk.upkeep_goes_on() { Ok(()) } else { Err(UpkeepError::Stopped) };
        step()?;
        let dir = maintenance.folder.segments_of(store.org);
        let tombstones: Vec<Arc<Tombstone>> = before.tombstones.iter().map(|(_, t)| Arc::clone(t)).collect();
        let merge = Merge {
            sources,
            tombstones: &tombstones,
            new: output_of(store.org, job, before, sources),
            cut_ms: job.cut_ms,
            dir: &dir,
            store: maintenance.folder.store,
            next_segment: &store.next_segment,
        };
        let failed = |what: String| UpkeepError::Merge { org: store.org, what };
        merge::merge(&merge, throttle, written).map_err(|e| match e {
            MergeError::Write(crate::tsdb::segment::SegmentWriteError::Disk(e)) => UpkeepError::Disk(e),
            other => failed(with_sources(&other)),
        })?;
        step()?;
        let opened = written.iter().map(|meta| Segment::open(&dir, maintenance.folder.store, meta));
        let opened = opened.collect::<Result<Vec<_>, _>>().map_err(|e| failed(with_sources(&e)))?;
        let table = store.table();
        let parts: Vec<Arc<IndexedSegment>> =
            opened.into_iter().map(|segment| Arc::new(IndexedSegment::new(segment, &table))).collect();
        drop(table);
        let change = ManifestChange {
            add: written.clone(),
            drop: sources.iter().map(|part| (part.meta().clone(), "it was merged into another")).collect(),
            ..ManifestChange::default()
        };
        let mut continues = true;
        let known_tombstones: Vec<u64> = before.tombstones.iter().map(|(number, _)| *number).collect();
        let fits =
            |now: &SegmentSet| now.tombstones.iter().all(|(number, _)| known_tombstones.contains(number));
        // A backup copies the list and links the files under this lock.
        let removal = self.removal.lock().ignore_poison();
        let listed = store.change_segments_if(maintenance.manifest, fits, change, |now| {
            continues = self.options.disk.upkeep_goes_on();
            if continues { now.with(&job.sources, parts) } else { now.clone() }
        })?;
        drop(removal);
        if !continues {
            return Err(UpkeepError::Stopped);
        }
        if !listed {
            // A deletion arrived during the merge, whose output still has those samples. The next
            // tick starts over.
            merge::remove_files(&dir, written)?;
            written.clear();
            return Ok(());
        }
        retire(store, maintenance.folder, sources, "it was merged into another");
        step()
    }

    /// Removes tombstones that are no longer needed: no segment holds samples that they hide, and
    /// the log has no record that old.
    fn forget_tombstones(
        &self,
        maintenance: MaintenanceContext<'_>,
        store: &OrgStore,
    ) -> Result<(), UpkeepError> {
        let set = store.segments();
        if set.tombstones.is_empty() {
            return Ok(());
        }
        let begin = maintenance.manifest.log_begin()?.seq;
        let idle = |tombstone: &Tombstone| {
            let has = |meta: &&SegmentMeta| match meta.flags & HISTOGRAMS {
                0 => tombstone.masks(meta),
                _ => tombstone.masks_any_time(meta),
            };
            tombstone.upto_seq < begin && !set.metas().iter().any(has)
        };
        let idle = set.tombstones.iter().filter(|(_, tombstone)| idle(tombstone));
        let numbers: Vec<u64> = idle.map(|(number, _)| *number).collect();
        // A commit takes 64 rows.
        for numbers in numbers.chunks(48) {
            let change = ManifestChange { remove_tombstones: numbers.to_vec(), ..ManifestChange::default() };
            store.change_segments(maintenance.manifest, change, |now| {
                let mut next = now.clone();
                next.tombstones.retain(|(number, _)| !numbers.contains(number));
                next
            })?;
        }
        Ok(())
    }

    /// Removes the files of unlisted segments without readers, and then their rows in control.
    pub(in crate::tsdb) fn sweep(
        &self,
        maintenance: MaintenanceContext<'_>,
        store: &OrgStore,
        report: &mut UpkeepReport,
    ) -> Result<(), UpkeepError> {
        let free: Vec<Obsolete> = {
            let mut obsolete = store.obsolete.lock().ignore_poison();
            // A commit takes 64 rows. The rest follows with the next call.
            obsolete.extract_if(.., |file| file.is_free()).take(48).collect()
        };
        if free.is_empty() {
            return Ok(());
        }
        let gone: Vec<u64> = free.iter().map(|file| file.seq).collect();
        let removed = self.unlink(maintenance, store, &free);
        if removed.is_err() {
            store.obsolete.lock().ignore_poison().extend(free);
        }
        report.removed += removed?;
        if !self.options.disk.upkeep_goes_on() {
            return Err(UpkeepError::Stopped);
        }
        Ok(maintenance.manifest.commit(store.org, ManifestChange { gone, ..ManifestChange::default() })?)
    }

    fn unlink(
        &self,
        maintenance: MaintenanceContext<'_>,
        store: &OrgStore,
        files: &[Obsolete],
    ) -> Result<u64, UpkeepError> {
        let _removal = self.removal.lock().ignore_poison();
        let mut removed = 0;
        for Obsolete { path, reason, .. } in files {
            if crate::tsdb::disk::remove_if_there(path)? {
                tracing::info!(path = %path.display(), reason, "a segment file was removed");
                removed += 1;
            }
        }
        crate::tsdb::disk::sync_dir(&maintenance.folder.segments_of(store.org))?;
        Ok(removed)
    }
}

/// Queues the files of unlisted segments for removal. Each is removed when its last reader has been
/// dropped.
pub(in crate::tsdb) fn retire(
    store: &OrgStore,
    folder: &Folder,
    parts: &[Arc<IndexedSegment>],
    reason: &str,
) {
    let dir = folder.segments_of(store.org);
    let gone = parts.iter().map(|part| Obsolete {
        seq: part.meta().seq,
        path: dir.join(part.meta().file_name()),
        reason: reason.to_owned(),
        part: Some(Arc::clone(part)),
    });
    store.obsolete.lock().ignore_poison().extend(gone);
}

/// Chooses the next merge of an organisation, if there is one.
fn next_job(store: &OrgStore, compactor: &Compactor, urgency: Urgency, now: Timestamp) -> Option<MergeJob> {
    // A segment holds either floats or histograms.
    let mut kinds = [0, HISTOGRAMS].into_iter();
    kinds.find_map(|kind| job_of_kind(store, compactor, JobFilter { urgency, kind }, now))
}

/// The jobs to consider.
#[derive(Clone, Copy)]
struct JobFilter {
    urgency: Urgency,
    /// [`HISTOGRAMS`] for segments with histograms, 0 for those with floats.
    kind: u8,
}

fn job_of_kind(
    store: &OrgStore,
    compactor: &Compactor,
    filter: JobFilter,
    now: Timestamp,
) -> Option<MergeJob> {
    let JobFilter { urgency, kind } = filter;
    let set = store.segments();
    let mut segments = set.metas();
    segments.retain(|meta| meta.flags & HISTOGRAMS == kind);
    let mut avoid: BTreeSet<u64> = set.bad.iter().map(|bad| bad.meta.seq).collect();
    avoid.extend(compactor.failed.iter().filter(|(org, _)| *org == store.org).map(|(_, seq)| *seq));
    let of_age = |least: Age| -> Vec<&Tombstone> {
        let ages = set.tombstones.iter().map(|(number, tombstone)| {
            (compactor.pending.age((store.org, *number), set.tombstones.len(), now), &**tombstone)
        });
        ages.filter(|(age, _)| *age >= least).map(|(_, tombstone)| tombstone).collect()
    };
    let overdue = match urgency {
        Urgency::DaysBefore(_) => Vec::new(),
        Urgency::Due | Urgency::All => of_age(Age::Overdue),
    };
    let due = of_age(if urgency == Urgency::All { Age::Fresh } else { Age::Due });
    let input = |tombstones| PlanInput {
        segments: &segments,
        sealed_until: set.sealed_until,
        tombstones,
        avoid: &avoid,
    };
    plan::tombstone_job(input(&overdue)).or_else(|| plan::plan(input(&due), urgency))
}

/// Describes the segments that a job writes.
fn output_of(org: OrgId, job: &MergeJob, set: &SegmentSet, sources: &[Arc<IndexedSegment>]) -> NewSegment {
    let metas = || sources.iter().map(|part| part.meta());
    let least = metas().map(|meta| meta.min_ms).min().unwrap_or(i64::MAX);
    let most = metas().map(|meta| meta.max_ms).max().unwrap_or(i64::MIN);
    let histograms = metas().fold(0, |flags, meta| flags | meta.flags & HISTOGRAMS);
    let mut others = set.metas();
    others.retain(|meta| meta.flags & HISTOGRAMS == histograms);
    let mixed = others
        .iter()
        .any(|meta| !job.sources.contains(&meta.seq) && meta.min_ms <= most && least <= meta.max_ms);
    NewSegment {
        org,
        seq: 0,
        level: job.level,
        // Late samples of the sources still overlap with other segments.
        flags: histograms | if mixed && metas().any(|meta| meta.flags & LATE != 0) { LATE } else { 0 },
        first_log_seq: metas().map(|meta| meta.first_log_seq).min().unwrap_or(0),
        last_log_seq: metas().map(|meta| meta.last_log_seq).max().unwrap_or(0),
        replaces: metas().map(|meta| meta.seq).collect(),
    }
}
