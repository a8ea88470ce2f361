//! Compaction: small segments into larger ones, late samples into their place, deleted samples out (docs/storage.md section 11).
//!
//! For one organisation, in this order; whatever stops it in between loses nothing:
//! ```text
//! 1 a job is chosen                                                                    [plan]
//! 2 its sources are merged into new files, synced and named                            [merge]
//! 3 ONE commit in control: the new segments are listed, the sources are obsolete       the samples have moved
//! 4 the new set is published
//! 5 the files of the sources are removed, each when its last reader has let go; then their obsolete rows
//! ```
//! A crash before 3 leaves files that name the segments they replace, which are all listed: the next start removes them.
//! After it, the next start removes the sources.

mod deletions;
mod known;
mod merge;
mod plan;

use std::collections::BTreeSet;
use std::sync::Arc;

use super::checkpoint::Folder;
use super::error::{AppendError, DiskError};
use super::manifest::{Change, Manifest, ManifestError, Tombstone};
use super::retention::Present;
use super::segment::{HISTOGRAMS, LATE, NewSegment, Segment, SegmentMeta, trim_memory};
use super::segments::{Obsolete, Part, SegmentSet};
use super::store::OrgStore;
use super::{Sink, Tsdb};
use crate::kv::with_sources;
use crate::model::{OrgId, Timestamp};
use crate::sync::IgnorePoison as _;
use deletions::{Age, Waiting};
use merge::{Merge, MergeError, Pace};
pub(super) use plan::rank;
use plan::{Job, View, Zeal};

/// Jobs of one call at most, so that a plan that never ends is noticed and not followed.
const JOBS_MAX: usize = 10_000;

/// What upkeep did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UpkeepReport {
    /// Compactions.
    pub jobs: u64,
    /// Segments they merged.
    pub merged: u64,
    /// Segments they made.
    pub made: u64,
    /// Bytes of those.
    pub bytes: u64,
    /// Segments that retention dropped.
    pub expired: u64,
    /// Files removed.
    pub removed: u64,
    /// Segments that are too old by the wall clock and wait until the retention clock has confirmed it.
    pub waiting: u64,
}

/// Why upkeep stopped. Nothing is lost: what was there is there.
#[derive(Debug, thiserror::Error)]
pub enum UpkeepError {
    /// The store has no folder, or must not write to it.
    #[error("this store has no upkeep: {0}")]
    Closed(String),
    /// Too little free space for what a compaction writes.
    #[error("too little free space for a compaction: {free} bytes free, {needed} needed")]
    DiskFull {
        /// Bytes free.
        free: u64,
        /// Bytes that must be free.
        needed: u64,
    },
    /// The file system refused.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// A segment was not written, or could not be read.
    #[error("segments of organisation {org} were not merged: {what}")]
    Merge {
        /// Whose.
        org: OrgId,
        /// How.
        what: String,
    },
    /// The list of segments was not changed.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// The log was not trimmed after deletions were carried out.
    #[error("what was deleted stays in the log: {0}")]
    Trim(String),
    /// The record of a dropped organisation was not made durable.
    #[error("the record was not written")]
    Log(#[source] AppendError),
    /// A test stopped it here, as if the process had ended.
    #[error("stopped by a test")]
    Stopped,
}

/// Held by the one who compacts: never two at once.
#[derive(Debug, Default)]
pub(super) struct Compactor {
    /// Segments that could not be merged: they are not tried again before the next start.
    failed: BTreeSet<(OrgId, u64)>,
    waiting: Waiting,
}

/// What upkeep needs of a store that writes.
#[derive(Clone, Copy)]
pub(super) struct Place<'t> {
    pub(super) folder: &'t Folder,
    pub(super) manifest: &'t Manifest,
}

/// One organisation's part of it.
#[derive(Clone, Copy)]
struct Shelf<'t> {
    place: Place<'t>,
    store: &'t Arc<OrgStore>,
}

impl Tsdb {
    pub(super) fn place(&self) -> Result<Place<'_>, UpkeepError> {
        match (&self.folder, &self.log, &self.manifest) {
            (Some(folder), Sink::Log(_), Some(manifest)) => Ok(Place { folder, manifest }),
            (_, Sink::ReadOnly { why, .. }, _) => Err(UpkeepError::Closed(why.clone())),
            _ => Err(UpkeepError::Closed("it lives in memory alone".to_owned())),
        }
    }

    /// Does what is due: gives back decoded values and orders of series that no query uses, drops what retention lets go of, removes files that nobody reads any more, and merges segments
    /// of each organisation in one job at most. To be asked every ten seconds; does nothing while another call is at work.
    ///
    /// # Errors
    /// [`UpkeepError`] of the first organisation where it failed; what is due for the others is done.
    pub fn maintain(&self, now: Timestamp) -> Result<UpkeepReport, UpkeepError> {
        if self.stores.decoded.age(now) > 0 {
            trim_memory();
        }
        self.stores.all().iter().for_each(|store| store.table().age_orders());
        let mut report = UpkeepReport::default();
        let Ok(place) = self.place() else { return Ok(report) };
        let Ok(mut compactor) = self.compactor.try_lock() else { return Ok(report) };
        self.finish_drops(place)?;
        let all = self.stores.all();
        compactor.waiting.look(&all, now);
        let present = self.retention_present(place, now);
        let mut failed = None;
        // One whose disk space or control fails holds nobody else up.
        for store in &all {
            match self.keep_up(place, store, &present, &mut report) {
                Err(UpkeepError::Stopped) => return Err(UpkeepError::Stopped),
                done => failed = failed.or(done.err()),
            }
        }
        self.note_waiting(report.waiting);
        for store in &all {
            match self.one_job(Shelf { place, store }, now, &mut compactor, &mut report) {
                Err(UpkeepError::Stopped) => return Err(UpkeepError::Stopped),
                done => failed = failed.or(done.err()),
            }
        }
        if let Some(seq) = compactor.waiting.in_the_log(&all, place.manifest.log_begin()?.seq, now) {
            let gone = self.let_records_go(seq).map_err(|e| UpkeepError::Trim(with_sources(&e)));
            failed = failed.or(gone.err());
        }
        failed.map_or(Ok(report), Err)
    }

    fn keep_up(
        &self,
        place: Place<'_>,
        store: &Arc<OrgStore>,
        present: &Present,
        report: &mut UpkeepReport,
    ) -> Result<(), UpkeepError> {
        self.expire(place, store, present, report)?;
        self.forget_tombstones(place, store)?;
        self.sweep(place, store, report)
    }

    /// What is due for one organisation, if anything.
    fn one_job(
        &self,
        shelf: Shelf<'_>,
        now: Timestamp,
        compactor: &mut Compactor,
        report: &mut UpkeepReport,
    ) -> Result<(), UpkeepError> {
        let Some(job) = next_job(shelf.store, compactor, Zeal::Due, now) else { return Ok(()) };
        let mut pace = Pace::new(Some(&self.options.rest));
        self.run_job(shelf, &job, compactor, &mut pace, report)?;
        self.forget_tombstones(shelf.place, shelf.store)?;
        self.sweep(shelf.place, shelf.store, report)
    }

    /// Merges segments until each day is one, today included, as fast as it goes; waits for a job under way.
    ///
    /// # Errors
    /// [`UpkeepError`] of the first organisation where it failed; the others are done.
    pub fn compact(&self, now: Timestamp) -> Result<UpkeepReport, UpkeepError> {
        let mut report = UpkeepReport::default();
        let place = self.place()?;
        let mut compactor = self.compactor.lock().ignore_poison();
        let mut failed = None;
        let present = self.retention_present(place, now);
        for store in self.stores.all() {
            if let Err(e) = self.compact_org(place, &store, (now, &present), &mut compactor, &mut report) {
                failed.get_or_insert(e);
            }
        }
        self.note_waiting(report.waiting);
        failed.map_or(Ok(report), Err)
    }

    fn compact_org(
        &self,
        place: Place<'_>,
        store: &Arc<OrgStore>,
        (now, present): (Timestamp, &Present),
        compactor: &mut Compactor,
        report: &mut UpkeepReport,
    ) -> Result<(), UpkeepError> {
        self.expire(place, store, present, report)?;
        for _ in 0..JOBS_MAX {
            let Some(job) = next_job(store, compactor, Zeal::All, now) else { break };
            self.run_job(Shelf { place, store }, &job, compactor, &mut Pace::new(None), report)?;
        }
        self.forget_tombstones(place, store)?;
        self.sweep(place, store, report)
    }

    fn run_job(
        &self,
        shelf: Shelf<'_>,
        job: &Job,
        compactor: &mut Compactor,
        pace: &mut Pace<'_>,
        report: &mut UpkeepReport,
    ) -> Result<(), UpkeepError> {
        let Shelf { place, store } = shelf;
        // Files of which it is not known whether they are listed stay: a store that tries on would fill the disk.
        place.manifest.admit()?;
        let before = store.segments();
        let sources: Vec<Arc<Part>> = job
            .sources
            .iter()
            .filter_map(|seq| before.parts.iter().find(|part| part.meta().seq == *seq).map(Arc::clone))
            .collect();
        let bytes: u64 = sources.iter().map(|part| part.meta().file_bytes).sum();
        let space = self.options.disk.space(&place.folder.segments)?;
        let needed = space.growth_needs(bytes.saturating_mul(2));
        if space.free < needed {
            return Err(UpkeepError::DiskFull { free: space.free, needed });
        }
        let mut written = Vec::new();
        let done = self.merge_and_list(shelf, job, (&before, &sources), pace, &mut written);
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
                    merge::throw_away(&place.folder.segments_of(store.org), &written)?;
                }
                if matches!(e, UpkeepError::Merge { .. }) {
                    compactor.failed.extend(job.sources.iter().map(|seq| (store.org, *seq)));
                }
            }
        }
        done
    }

    /// Steps 2 to 4; `written` has the files even where it fails.
    fn merge_and_list(
        &self,
        Shelf { place, store }: Shelf<'_>,
        job: &Job,
        (before, sources): (&SegmentSet, &[Arc<Part>]),
        pace: &mut Pace<'_>,
        written: &mut Vec<SegmentMeta>,
    ) -> Result<(), UpkeepError> {
        let step = || if self.options.disk.upkeep_goes_on() { Ok(()) } else { Err(UpkeepError::Stopped) };
        step()?;
        let dir = place.folder.segments_of(store.org);
        let tombstones: Vec<Arc<Tombstone>> = before.tombstones.iter().map(|(_, t)| Arc::clone(t)).collect();
        let merge = Merge {
            sources,
            tombstones: &tombstones,
            new: what_comes_out(store.org, job, before, sources),
            cut_ms: job.cut_ms,
            dir: &dir,
            store: place.folder.store,
            next_segment: &store.next_segment,
        };
        let failed = |what: String| UpkeepError::Merge { org: store.org, what };
        merge::merge(&merge, pace, written).map_err(|e| match e {
            MergeError::Write(super::segment::SegmentWriteError::Disk(e)) => UpkeepError::Disk(e),
            other => failed(with_sources(&other)),
        })?;
        step()?;
        let opened = written.iter().map(|meta| Segment::open(&dir, place.folder.store, meta));
        let opened = opened.collect::<Result<Vec<_>, _>>().map_err(|e| failed(with_sources(&e)))?;
        let table = store.table();
        let parts: Vec<Arc<Part>> =
            opened.into_iter().map(|segment| Arc::new(Part::new(segment, &table))).collect();
        drop(table);
        let change = Change {
            add: written.clone(),
            drop: sources.iter().map(|part| (part.meta().clone(), "it was merged into another")).collect(),
            ..Change::default()
        };
        let mut goes_on = true;
        let known: Vec<u64> = before.tombstones.iter().map(|(number, _)| *number).collect();
        let fits = |now: &SegmentSet| now.tombstones.iter().all(|(number, _)| known.contains(number));
        // A backup sets list and files aside under this lock.
        let still = self.removal.lock().ignore_poison();
        let listed = store.change_segments_if(place.manifest, fits, change, |now| {
            goes_on = self.options.disk.upkeep_goes_on();
            if goes_on { now.with(&job.sources, parts) } else { now.clone() }
        })?;
        drop(still);
        if !goes_on {
            return Err(UpkeepError::Stopped);
        }
        if !listed {
            // What was deleted meanwhile would come back with what was read before. The next tick begins again.
            merge::throw_away(&dir, written)?;
            written.clear();
            return Ok(());
        }
        retire(store, place.folder, sources, "it was merged into another");
        step()
    }

    /// Removes tombstones that nothing needs any more: no segment holds what they hide, and the log has no record so old.
    fn forget_tombstones(&self, place: Place<'_>, store: &OrgStore) -> Result<(), UpkeepError> {
        let set = store.segments();
        if set.tombstones.is_empty() {
            return Ok(());
        }
        let begin = place.manifest.log_begin()?.seq;
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
            let change = Change { remove_tombstones: numbers.to_vec(), ..Change::default() };
            store.change_segments(place.manifest, change, |now| {
                let mut next = now.clone();
                next.tombstones.retain(|(number, _)| !numbers.contains(number));
                next
            })?;
        }
        Ok(())
    }

    /// Removes the files of segments that are listed no more and that nobody reads any more; then what control noted of
    /// them.
    pub(super) fn sweep(
        &self,
        place: Place<'_>,
        store: &OrgStore,
        report: &mut UpkeepReport,
    ) -> Result<(), UpkeepError> {
        let free: Vec<Obsolete> = {
            let mut obsolete = store.obsolete.lock().ignore_poison();
            // A commit takes 64 rows; the rest goes next time.
            obsolete.extract_if(.., |file| file.is_free()).take(48).collect()
        };
        if free.is_empty() {
            return Ok(());
        }
        let gone: Vec<u64> = free.iter().map(|file| file.seq).collect();
        let removed = self.unlink(place, store, &free);
        if removed.is_err() {
            store.obsolete.lock().ignore_poison().extend(free);
        }
        report.removed += removed?;
        if !self.options.disk.upkeep_goes_on() {
            return Err(UpkeepError::Stopped);
        }
        Ok(place.manifest.commit(store.org, Change { gone, ..Change::default() })?)
    }

    fn unlink(&self, place: Place<'_>, store: &OrgStore, files: &[Obsolete]) -> Result<u64, UpkeepError> {
        let _removal = self.removal.lock().ignore_poison();
        let mut removed = 0;
        for Obsolete { path, reason, .. } in files {
            if super::disk::remove_if_there(path)? {
                tracing::info!(path = %path.display(), reason, "a segment file was removed");
                removed += 1;
            }
        }
        super::disk::sync_dir(&place.folder.segments_of(store.org))?;
        Ok(removed)
    }
}

/// Their files may go when the last reader has let go.
pub(super) fn retire(store: &OrgStore, folder: &Folder, parts: &[Arc<Part>], reason: &str) {
    let dir = folder.segments_of(store.org);
    let gone = parts.iter().map(|part| Obsolete {
        seq: part.meta().seq,
        path: dir.join(part.meta().file_name()),
        reason: reason.to_owned(),
        part: Some(Arc::clone(part)),
    });
    store.obsolete.lock().ignore_poison().extend(gone);
}

fn next_job(store: &OrgStore, compactor: &Compactor, zeal: Zeal, now: Timestamp) -> Option<Job> {
    // Floats and histograms are never in one segment.
    let mut kinds = [0, HISTOGRAMS].into_iter();
    kinds.find_map(|kind| job_among(store, compactor, (zeal, kind), now))
}

fn job_among(
    store: &OrgStore,
    compactor: &Compactor,
    (zeal, kind): (Zeal, u8),
    now: Timestamp,
) -> Option<Job> {
    let set = store.segments();
    let mut segments = set.metas();
    segments.retain(|meta| meta.flags & HISTOGRAMS == kind);
    let mut avoid: BTreeSet<u64> = set.bad.iter().map(|bad| bad.meta.seq).collect();
    avoid.extend(compactor.failed.iter().filter(|(org, _)| *org == store.org).map(|(_, seq)| *seq));
    let of_age = |least: Age| -> Vec<&Tombstone> {
        let ages = set.tombstones.iter().map(|(number, tombstone)| {
            (compactor.waiting.age((store.org, *number), set.tombstones.len(), now), &**tombstone)
        });
        ages.filter(|(age, _)| *age >= least).map(|(_, tombstone)| tombstone).collect()
    };
    let overdue = of_age(Age::Overdue);
    let due = of_age(if zeal == Zeal::All { Age::Fresh } else { Age::Due });
    let view =
        |tombstones| View { segments: &segments, sealed_until: set.sealed_until, tombstones, avoid: &avoid };
    plan::tombstone_job(view(&overdue)).or_else(|| plan::plan(view(&due), zeal))
}

fn what_comes_out(org: OrgId, job: &Job, set: &SegmentSet, sources: &[Arc<Part>]) -> NewSegment {
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
        // What late samples were in it lie across other segments still.
        flags: histograms | if mixed && metas().any(|meta| meta.flags & LATE != 0) { LATE } else { 0 },
        first_log_seq: metas().map(|meta| meta.first_log_seq).min().unwrap_or(0),
        last_log_seq: metas().map(|meta| meta.last_log_seq).max().unwrap_or(0),
        replaces: metas().map(|meta| meta.seq).collect(),
    }
}
