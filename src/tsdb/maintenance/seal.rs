//! Sealing: moves the samples of a closed window from the head to segments (docs/storage.md section
//! 8).
//!
//! The steps for one organisation, in this order. An interruption at any point loses no data:
//! ```text
//! 1 commit a seal record {U} to the log; its number is S. Applying it closes the window: nothing
//!   before U changes
//! 2 write the samples before U to segments, family by family                      [encode]
//! 3 append to the registry and sync it; open and verify the segments
//! 4 ONE commit in control: list the segments and record (S, U); this moves the samples
//! 5 publish the new set, then release the samples from the head
//! 6 remove log files without other content
//! ```
//! A crash before 4 leaves unlisted files, which the next start removes. After a crash past 4, the
//! start continues with 5.

mod due;
mod encode;
mod import;
mod late;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard};

use super::checkpoint::{Folder, append_registry};
use super::compact::UpkeepError;
use super::log_mark::MarkWrite;
use crate::clock::Stopwatch;
use crate::kv::with_sources;
use crate::model::{OrgId, Timestamp};
use crate::sync::IgnorePoison as _;
use crate::tsdb::Tsdb;
use crate::tsdb::append::imported::ImportedSamples;
use crate::tsdb::disk;
use crate::tsdb::error::ManifestError;
use crate::tsdb::error::{AppendError, DiskError};
use crate::tsdb::segment::{Segment, SegmentMeta};
use crate::tsdb::store::OrgStore;
use crate::tsdb::store::manifest::{CHANGE_SEGMENTS_MAX, Manifest, ManifestChange, SealState};
use crate::tsdb::store::segments::{IndexedSegment, SegmentSet};
use crate::tsdb::wal::log::{Draft, FullFile, Log};
use crate::tsdb::wal::record::{OrgSpan, RecordKind, seal_body};
use crate::tsdb::wal::replay::{self, LogOrigin};
use crate::tsdb::wal::sink::Sink;
use crate::tsdb::wal::trimmed::Removed;
pub(in crate::tsdb) use due::Sealer;
use encode::{SealThrottle, SealWindow};

/// The result of a seal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SealReport {
    /// Organisations sealed.
    pub orgs: u64,
    /// Segments written.
    pub segments: u64,
    /// Number of samples in the segments.
    pub samples: u64,
    /// Bytes of the files of the segments.
    pub bytes: u64,
    /// Log files removed.
    pub log_files_removed: u64,
}

/// The reason why an organisation was not sealed. No data is lost: its samples stay in the head and
/// in the log.
#[derive(Debug, thiserror::Error)]
pub enum SealError {
    /// The store has no folder, or must not write to it.
    #[error("this store cannot seal: {0}")]
    Closed(String),
    /// Less space is free than the segments need.
    #[error("too little free space for a seal: {free} bytes free, {needed} needed")]
    DiskFull {
        /// Bytes free.
        free: u64,
        /// Bytes that must be free.
        needed: u64,
    },
    /// The seal record was not made durable.
    #[error("the seal record was not written")]
    Log(#[source] AppendError),
    /// A file operation failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// A segment could not be written or read back.
    #[error("a segment of organisation {org} failed: {what}")]
    Segment {
        /// The organisation of the segment.
        org: OrgId,
        /// The cause.
        what: String,
    },
    /// The list of segments was not changed.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// All samples are sealed, but the segments were not merged.
    #[error(transparent)]
    Upkeep(#[from] UpkeepError),
    /// A test stopped it here, as if the process had ended.
    #[error("stopped by a test")]
    Stopped,
}

/// Counters of seals since the start of the process.
#[derive(Debug, Default)]
pub(in crate::tsdb) struct SealCounts {
    pub(in crate::tsdb) made: AtomicU64,
    pub(in crate::tsdb) failed: AtomicU64,
    /// Log files that could not be unlinked, counted at each attempt.
    pub(in crate::tsdb) unlinks_failed: AtomicU64,
}

/// A seal of one organisation that is due.
#[derive(Debug)]
struct DueSeal {
    store: Arc<OrgStore>,
    /// The exclusive end of the window in ms.
    until: i64,
    /// Seal samples of any time.
    all: bool,
}

/// The content of a seal record.
#[derive(Clone, Copy, Debug)]
struct WindowEnd {
    until_ms: i64,
    /// The seal takes samples of any time.
    all: bool,
}

/// A seal record in the log.
#[derive(Clone, Copy, Debug)]
struct SealRecord {
    seq: u64,
    end: WindowEnd,
}

/// The segments of a seal, which are not listed yet.
struct NewSegments<'s> {
    written: &'s [SegmentMeta],
    /// The opened files of these segments.
    opened: Vec<Arc<IndexedSegment>>,
    /// The state after the segments are listed.
    state: SealState,
    seals_all: bool,
}

/// The parts of a writable store that sealing uses.
struct SealContext<'t> {
    folder: &'t Folder,
    log: &'t Log,
    manifest: &'t Manifest,
    /// Samples of an import, which are written and listed with those of the head.
    imported: Option<&'t ImportedSamples>,
}

impl Tsdb {
    /// Seals all samples of every organisation now, trims the log and removes its spare file.
    /// Samples stay in the head if their time is after `now` but within the limit for senders.
    /// Later ones are sealed with the others, whether the clock was ahead when they arrived or is
    /// behind now.
    ///
    /// # Errors
    /// The [`SealError`] of the first organisation that could not be sealed. The others are sealed.
    pub fn seal(&self, now: Timestamp) -> Result<SealReport, SealError> {
        let context = self.seal_context()?;
        let mut sealer = self.hurry_sealer();
        let mut report = SealReport::default();
        if self.is_follower() {
            return self.seal_copied(&context, now, &mut sealer, report);
        }
        let mut failed = None;
        let logged = self.greatest_logged(&context)?;
        let latest = self.options.latest_plausible(now);
        for store in self.stores.all() {
            let newest_logged = logged.get(&store.org).copied();
            let has_logged_later = newest_logged.is_some_and(|newest| newest > latest.as_ms());
            let due = match has_logged_later || needs_seal_of_all(&store, context.log, latest) {
                true => DueSeal { until: window_end(now), all: true, store },
                false => {
                    let until = forced_until(&store, newest_logged, now);
                    DueSeal { until, all: false, store }
                }
            };
            if !due.all && !has_unsealed(&due.store, due.until, context.log) {
                continue;
            }
            if let Err(e) = self.seal_org(&context, &due, now, &mut sealer, &SealThrottle::Full, &mut report)
            {
                failed.get_or_insert(e);
            }
        }
        if let Some(stopped @ SealError::Stopped) = failed {
            return Err(stopped);
        }
        // The new file makes the current one, with the last seal records, removable.
        context.log.settle();
        let trimmed = self.trim(&context, &mut report);
        match (failed, trimmed) {
            (Some(e), _) | (None, Err(e)) => Err(e),
            (None, Ok(())) => Ok(report),
        }
    }

    /// Seals like [`Tsdb::seal`], then merges the segments of each day into one (`promlet seal`).
    ///
    /// # Errors
    /// [`SealError`]. Sealed samples stay sealed.
    pub fn seal_and_merge(&self, now: Timestamp) -> Result<SealReport, SealError> {
        let report = self.seal(now)?;
        self.compact(now)?;
        Ok(report)
    }

    /// Seals the organisations that are due. `tasks` calls it every ten seconds. A store without a
    /// folder seals nothing.
    ///
    /// # Errors
    /// Like [`Tsdb::seal`]. A failed seal is retried after a minute.
    pub fn seal_if_due(&self, now: Timestamp) -> Result<SealReport, SealError> {
        let mut report = SealReport::default();
        let Ok(context) = self.seal_context() else { return Ok(report) };
        self.remove_trimmed(&context, &mut report);
        self.record_log_end(MarkWrite::IfDue);
        self.save_pins();
        let mut sealer = self.sealer();
        if self.is_follower() {
            return self.seal_copied(&context, now, &mut sealer, report);
        }
        let counters = context.log.counters();
        let is_large = counters.file_bytes.load(Ordering::Relaxed) > self.options.seal_log_bytes;
        if is_large && self.pins.sealed_seq.load(Ordering::Relaxed) == 0 {
            // After a start it is not known yet which files only consumers keep. A seal would not
            // release them.
            let sealed = self.sealed_files(&context)?;
            counters.held_bytes.store(sealed.iter().map(|file| file.bytes).sum(), Ordering::Relaxed);
        }
        let clock = due::SealClock { now, latest: self.latest_time(now) };
        let all_due = sealer.due(&self.stores, &self.options, context.log, clock);
        let mut failed = None;
        for due in all_due {
            let throttle = SealThrottle::HalfCore { rest: &self.options.rest, waiting: &self.seals_waiting };
            if let Err(e) = self.seal_org(&context, &due, now, &mut sealer, &throttle, &mut report) {
                failed.get_or_insert(e);
            }
        }
        if (report.orgs > 0 || context.log.counters().held_bytes.load(Ordering::Relaxed) > 0)
            && let Err(e) = self.trim(&context, &mut report)
        {
            failed.get_or_insert(e);
        }
        failed.map_or(Ok(report), Err)
    }

    /// Returns the latest time of a sample from a correct clock, by the later of wall clock and
    /// retention clock.
    fn latest_time(&self, now: Timestamp) -> Timestamp {
        let present = self.retention.latest().map_or(now, |latest| latest.max(now));
        self.options.latest_plausible(present)
    }

    fn seal_context(&self) -> Result<SealContext<'_>, SealError> {
        match (&self.folder, &self.log, &self.manifest) {
            (Some(folder), Sink::Log(log), Some(manifest)) => {
                Ok(SealContext { folder, log, manifest, imported: None })
            }
            (_, Sink::ReadOnly { why, .. }, _) => Err(SealError::Closed(why.clone())),
            _ => Err(SealError::Closed("it is in memory only".to_owned())),
        }
    }

    pub(in crate::tsdb) fn sealer(&self) -> MutexGuard<'_, Sealer> {
        self.sealer.lock().ignore_poison()
    }

    /// Blocks seals of one organisation until the guard is dropped. Speeds up the organisation's
    /// seal in progress, and waits only for that seal.
    pub(in crate::tsdb) fn block_seals_of<'s>(&self, store: &'s OrgStore) -> MutexGuard<'s, ()> {
        self.seals_waiting.fetch_add(1, Ordering::SeqCst);
        let guard = store.sealing();
        self.seals_waiting.fetch_sub(1, Ordering::SeqCst);
        guard
    }

    /// Begins a new log file if the current one has a record up to `seq`, and removes the earlier
    /// files whose samples are all in segments.
    ///
    /// # Errors
    /// [`SealError`]. No data is lost.
    pub(in crate::tsdb) fn release_records(&self, seq: u64) -> Result<(), SealError> {
        let context = self.seal_context()?;
        if context.log.counters().file_first_seq.load(Ordering::Acquire) <= seq {
            context.log.settle();
        }
        self.trim(&context, &mut SealReport::default())
    }

    /// Waits for the seal in progress, which then runs at full speed.
    pub(in crate::tsdb) fn hurry_sealer(&self) -> MutexGuard<'_, Sealer> {
        self.seals_waiting.fetch_add(1, Ordering::SeqCst);
        let sealer = self.sealer();
        self.seals_waiting.fetch_sub(1, Ordering::SeqCst);
        sealer
    }

    /// Seals one organisation up to the due time, or further if an earlier attempt closed a longer
    /// window.
    #[expect(clippy::too_many_arguments, reason = "one call with everything that a seal needs and reports")]
    fn seal_org(
        &self,
        context: &SealContext<'_>,
        due: &DueSeal,
        now: Timestamp,
        sealer: &mut Sealer,
        throttle: &SealThrottle<'_>,
        report: &mut SealReport,
    ) -> Result<(), SealError> {
        let watch = Stopwatch::start();
        let store = &due.store;
        let guard = store.sealing();
        if self.stores.is_dropped(store.org) {
            return Ok(());
        }
        let sealed = if due.all {
            self.try_seal_all(context, due, now, throttle)
        } else {
            // After a failed seal of all times the end of the window may be before that of the
            // segments.
            let closed = store.head.barrier().max(store.segments().sealed_until);
            let end = WindowEnd { until_ms: due.until.max(closed), all: false };
            self.try_seal(context, store, end, now, throttle)
        };
        drop(guard);
        match &sealed {
            Ok(metas) => {
                sealer.record_success(store.org);
                self.seals.made.fetch_add(1, Ordering::Relaxed);
                report.orgs += 1;
                report.segments += metas.len() as u64;
                report.samples += metas.iter().map(|meta| meta.samples).sum::<u64>();
                report.bytes += metas.iter().map(|meta| meta.file_bytes).sum::<u64>();
                let samples: u64 = metas.iter().map(|meta| meta.samples).sum();
                let ms = watch.elapsed_ms();
                tracing::info!(org = store.org.0, segments = metas.len(), samples, "sealed in {ms:.0} ms");
            }
            Err(e) => {
                sealer.record_failure(store.org, now, with_sources(e));
                self.seals.failed.fetch_add(1, Ordering::Relaxed);
            }
        }
        sealed.map(drop)
    }

    /// Seals all samples of an organisation, those ahead of the clock included, and sets the end of
    /// the window back to the time of the clock.
    ///
    /// The first of two seals takes the samples in order, however many there are. The second one
    /// takes the samples that arrived during the first. Without it, everything before their times
    /// would be late until the clock reaches them.
    fn try_seal_all(
        &self,
        context: &SealContext<'_>,
        due: &DueSeal,
        now: Timestamp,
        throttle: &SealThrottle<'_>,
    ) -> Result<Vec<SegmentMeta>, SealError> {
        let store = &due.store;
        let mut written = Vec::new();
        if let Some(greatest) = store.greatest_ms().filter(|greatest| *greatest >= due.until) {
            let sealed_until = store.segments().sealed_until;
            let until_ms = greatest.saturating_add(1).max(store.head.barrier()).max(sealed_until);
            written = self.try_seal(context, store, WindowEnd { until_ms, all: false }, now, throttle)?;
        }
        let end = WindowEnd { until_ms: due.until, all: true };
        written.extend(self.try_seal(context, store, end, now, throttle)?);
        tracing::warn!(
            org = store.org.0,
            "sealed samples that are ahead of the clock: this clock or that of a sender is or was wrong"
        );
        Ok(written)
    }

    fn try_seal(
        &self,
        context: &SealContext<'_>,
        store: &Arc<OrgStore>,
        end: WindowEnd,
        now: Timestamp,
        throttle: &SealThrottle<'_>,
    ) -> Result<Vec<SegmentMeta>, SealError> {
        self.admit_seal(context, store)?;
        let kind = if end.all { RecordKind::SealAll } else { RecordKind::Seal };
        let draft = Draft::new(store.org, kind, seal_body(end.until_ms));
        let outcomes = context.log.commit(vec![draft], now).map_err(SealError::Log)?;
        let seq = outcomes.first().map_or(0, |outcome| outcome.record_seq);
        self.move_or_reopen(context, store, SealRecord { seq, end }, throttle)
    }

    /// Checks that segments can be written and listed.
    fn admit_seal(&self, context: &SealContext<'_>, store: &OrgStore) -> Result<(), SealError> {
        // Files whose listing is uncertain stay. Retries without this check would fill the disk.
        context.manifest.admit()?;
        let space = self.options.disk.space(&context.folder.segments)?;
        let imported = context.imported.map_or(0, ImportedSamples::bytes);
        let needed = space.samples_floor() + store.head.counters.bytes.load(Ordering::Relaxed) + imported;
        if space.free < needed {
            return Err(SealError::DiskFull { free: space.free, needed });
        }
        Ok(())
    }

    /// Moves the samples of a closed window. On failure the head holds them as before.
    fn move_or_reopen(
        &self,
        context: &SealContext<'_>,
        store: &Arc<OrgStore>,
        record: SealRecord,
        throttle: &SealThrottle<'_>,
    ) -> Result<Vec<SegmentMeta>, SealError> {
        let mut written = Vec::new();
        let moved = self.move_window(context, store, record, throttle, &mut written);
        if let Err(e) = &moved
            && !matches!(e, SealError::Stopped)
        {
            let listed = matches!(e, SealError::Manifest(e) if !e.is_certain());
            if !listed {
                self.remove_files(context, store, &written);
            }
            store.reopen();
        }
        moved.map(|()| written)
    }

    /// Seals the organisations of a follower whose window was closed by a copied record.
    ///
    /// The state (S, U), with the present barrier U and the last applied record S, is equivalent to
    /// a seal record at S with the same U.
    fn seal_copied(
        &self,
        context: &SealContext<'_>,
        now: Timestamp,
        sealer: &mut Sealer,
        mut report: SealReport,
    ) -> Result<SealReport, SealError> {
        let throttle = SealThrottle::HalfCore { rest: &self.options.rest, waiting: &self.seals_waiting };
        let mut failed = None;
        for store in self.stores.all() {
            let is_closed = store.head.barrier() > store.segments().sealed_until;
            if !is_closed && !self.copies.to_seal().contains(&store.org) {
                continue;
            }
            let guard = store.sealing();
            if self.stores.is_dropped(store.org) {
                continue;
            }
            let watch = Stopwatch::start();
            self.copies.to_seal().remove(&store.org);
            let sealed = self.admit_seal(context, &store).and_then(|()| {
                let record = context.log.between_records(|seq| {
                    let until_ms = store.head.barrier().max(store.segments().sealed_until);
                    store.close_window(until_ms);
                    SealRecord { seq, end: WindowEnd { until_ms, all: false } }
                });
                self.move_or_reopen(context, &store, record, &throttle)
            });
            drop(guard);
            match sealed {
                Ok(metas) => {
                    sealer.record_success(store.org);
                    self.seals.made.fetch_add(1, Ordering::Relaxed);
                    report.orgs += 1;
                    report.segments += metas.len() as u64;
                    report.samples += metas.iter().map(|meta| meta.samples).sum::<u64>();
                    let (segments, ms) = (metas.len(), watch.elapsed_ms());
                    tracing::info!(org = store.org.0, segments, "sealed in {ms:.0} ms");
                }
                Err(e) => {
                    self.copies.to_seal().insert(store.org);
                    sealer.record_failure(store.org, now, with_sources(&e));
                    self.seals.failed.fetch_add(1, Ordering::Relaxed);
                    failed.get_or_insert(e);
                }
            }
        }
        if (report.orgs > 0 || context.log.counters().held_bytes.load(Ordering::Relaxed) > 0)
            && let Err(e) = self.trim(context, &mut report)
        {
            failed.get_or_insert(e);
        }
        failed.map_or(Ok(report), Err)
    }

    /// Moves the samples that the seal of all times with the record `seq` takes, which is the last
    /// record. The caller blocks other seals of the organisation.
    pub(in crate::tsdb) fn move_all(&self, store: &Arc<OrgStore>, seq: u64) -> Result<(), SealError> {
        let context = self.seal_context()?;
        self.admit_seal(&context, store)?;
        let end = WindowEnd { until_ms: store.head.barrier(), all: true };
        self.move_or_reopen(&context, store, SealRecord { seq, end }, &SealThrottle::Full).map(drop)
    }

    fn is_follower(&self) -> bool {
        self.gate.as_ref().is_some_and(|gate| gate.is_follower())
    }

    /// Runs steps 2 to 5. `written` gets the written segments even on failure.
    fn move_window(
        &self,
        context: &SealContext<'_>,
        store: &Arc<OrgStore>,
        record: SealRecord,
        throttle: &SealThrottle<'_>,
        written: &mut Vec<SegmentMeta>,
    ) -> Result<(), SealError> {
        let SealRecord { seq: seal_seq, end } = record;
        // The S in control must not exceed the end of the log after a power cut.
        context.log.flush().map_err(SealError::Log)?;
        let before = store.segments();
        let step = || if self.options.disk.seal_goes_on() { Ok(()) } else { Err(SealError::Stopped) };
        step()?;
        let dir = context.folder.segments_of(store.org);
        disk::create_dir(&dir)?;
        disk::sync_dir(&context.folder.segments)?;
        let mut window = SealWindow {
            since: before.sealed_until,
            until: end.until_ms,
            first_log_seq: first_unsealed(context.log, store.org, &before),
            last_log_seq: seal_seq,
            imported: context.imported,
        };
        if end.all {
            // All its samples may overlap with other segments.
            let greatest = store.greatest_ms().map_or(i64::MIN, |greatest| greatest.saturating_add(1));
            (window.since, window.until) = (i64::MAX, end.until_ms.max(greatest));
        }
        encode::write(store, &dir, context.folder.store, &window, throttle, written)?;
        step()?;
        let registry_bytes = append_registry(context.folder, store)?.bytes;
        let opened = self.open_written(context, store, written)?;
        step()?;
        let state = SealState {
            seq: seal_seq,
            until_ms: end.until_ms,
            registry_bytes,
            next_segment: store.next_segment.load(Ordering::Relaxed),
        };
        self.list(context, store, NewSegments { written, opened, state, seals_all: end.all })?;
        step()?;
        store.release_closed();
        step()
    }

    /// Runs steps 4 and 5 for the new segments. Segments beyond the limit of one change are listed
    /// in several changes. Until the last change moves the samples, the head holds them as well,
    /// and both copies agree.
    fn list(
        &self,
        context: &SealContext<'_>,
        store: &OrgStore,
        new: NewSegments<'_>,
    ) -> Result<(), SealError> {
        let NewSegments { written, mut opened, state, seals_all } = new;
        let mut left = written;
        loop {
            let (some, rest) = left.split_at(left.len().min(CHANGE_SEGMENTS_MAX));
            left = rest;
            let is_last = left.is_empty();
            let change = ManifestChange {
                state: is_last.then_some(state),
                seals_all: is_last && seals_all,
                add: some.to_vec(),
                ..ManifestChange::default()
            };
            let parts: Vec<Arc<IndexedSegment>> = opened.drain(..some.len().min(opened.len())).collect();
            let mut continues = true;
            store.change_segments(context.manifest, change, |now| {
                continues = self.options.disk.seal_goes_on();
                if !continues {
                    return now.clone();
                }
                let mut next = now.with(&[], parts);
                if is_last {
                    (next.seal_seq, next.sealed_until) = (state.seq, state.until_ms);
                    if seals_all {
                        next.sealed_all_seq = state.seq;
                    }
                }
                next
            })?;
            if !continues {
                return Err(SealError::Stopped);
            }
            if is_last {
                return Ok(());
            }
        }
    }

    /// Opens the segments that were just written.
    fn open_written(
        &self,
        context: &SealContext<'_>,
        store: &OrgStore,
        written: &[SegmentMeta],
    ) -> Result<Vec<Arc<IndexedSegment>>, SealError> {
        let dir = context.folder.segments_of(store.org);
        let opened = written.iter().map(|meta| Segment::open(&dir, context.folder.store, meta));
        let segments = opened
            .collect::<Result<Vec<_>, _>>()
            .map_err(|e| SealError::Segment { org: store.org, what: with_sources(&e) })?;
        let table = store.table();
        Ok(segments.into_iter().map(|segment| Arc::new(IndexedSegment::new(segment, &table))).collect())
    }

    /// Removes the unlisted files of a failed seal. The next start removes those that cannot be
    /// removed now.
    fn remove_files(&self, context: &SealContext<'_>, store: &OrgStore, written: &[SegmentMeta]) {
        let dir = context.folder.segments_of(store.org);
        let set = store.segments();
        let is_listed = |meta: &SegmentMeta| set.parts.iter().any(|part| part.meta().seq == meta.seq);
        for meta in written.iter().filter(|meta| !is_listed(meta)) {
            let path = dir.join(meta.file_name());
            match disk::remove_file(&path) {
                Ok(()) => {
                    tracing::info!(path = %path.display(), reason = "its seal failed", "a segment file was removed");
                }
                Err(e) => tracing::warn!("{}", e.line()),
            }
        }
    }

    /// Removes the first log files whose content is in segments and registries and that neither a
    /// pin nor a follower needs (docs/storage.md section 9).
    fn trim(&self, context: &SealContext<'_>, report: &mut SealReport) -> Result<(), SealError> {
        let _removal = self.removal.lock().ignore_poison();
        let sealed = self.sealed_files(context)?;
        let count = self.removable_count(context, &sealed)?;
        let mut first = 0;
        if let Some(last) = count.checked_sub(1).and_then(|last| sealed.get(last)) {
            let begin = LogOrigin { file: last.number + 1, seq: last.last_seq + 1 };
            self.break_pins(context, begin.seq)?;
            context.manifest.set_log_begin(begin)?;
            if !self.options.disk.seal_goes_on() {
                return Err(SealError::Stopped);
            }
            first = begin.file;
        }
        let held = sealed.get(count..).unwrap_or_default().iter().map(|file| file.bytes).sum();
        context.log.counters().held_bytes.store(held, Ordering::Relaxed);
        self.report_removed(context.log.remove_before(first), report);
        Ok(())
    }

    /// Returns the first log files whose content is in segments and registries.
    fn sealed_files(&self, context: &SealContext<'_>) -> Result<Vec<FullFile>, SealError> {
        let mut full = context.log.full_files();
        let last_seq = context.log.counters().last_seq.load(Ordering::Acquire);
        let known = self.pins.sealed_seq.load(Ordering::Relaxed);
        let mut sealed = 0;
        for file in &full {
            // The file with the last record states how far the log is durable. A follower may stop
            // between a switch and the mark after it.
            if file.last_seq >= last_seq || (file.last_seq > known && !self.is_sealed(file)?) {
                break;
            }
            self.pins.sealed_seq.fetch_max(file.last_seq, Ordering::Relaxed);
            sealed += 1;
        }
        full.truncate(sealed);
        Ok(full)
    }

    /// Returns the number of the first files in `sealed` that may be removed: those that neither a
    /// follower nor a pin needs, and more of those of pins if the log exceeds its limit for pins or
    /// the disk is nearly full. Records that a follower needs have a limit of their own
    /// (docs/standby.md).
    fn removable_count(&self, context: &SealContext<'_>, sealed: &[FullFile]) -> Result<usize, SealError> {
        let unheld = sealed.iter().take_while(|file| !self.copies.holds(file.last_seq)).count();
        let sealed = sealed.get(..unheld).unwrap_or_default();
        let Some(needed) = self.pins.least_stored() else { return Ok(sealed.len()) };
        let mut count = sealed.iter().take_while(|file| file.last_seq < needed).count();
        let freed: u64 = sealed.iter().take(count).map(|file| file.bytes).sum();
        let space = self.options.disk.space(&context.folder.segments)?;
        let floor = space.samples_floor().saturating_add(space.samples_floor() / 4);
        let mut log_bytes = context.log.counters().file_bytes.load(Ordering::Relaxed).saturating_sub(freed);
        let mut free = space.free.saturating_add(freed);
        while let Some(file) = sealed.get(count)
            && (log_bytes > self.options.pinned_log_bytes || free < floor)
        {
            log_bytes = log_bytes.saturating_sub(file.bytes);
            free = free.saturating_add(file.bytes);
            count += 1;
        }
        Ok(count)
    }

    /// Moves the pins that need a record before `begin` there, durably. Their consumers lose those
    /// records.
    fn break_pins(&self, context: &SealContext<'_>, begin: u64) -> Result<(), SealError> {
        let broken = self.pins.broken_by(begin);
        let rows: Vec<_> = broken.iter().map(|(consumer, row, _)| (*consumer, *row)).collect();
        context.manifest.update_pins(&rows)?;
        self.pins.saved(&rows);
        for (consumer, row, lost) in broken.iter().filter(|(_, _, lost)| *lost > 0) {
            tracing::warn!(
                ?consumer,
                lost,
                lost_to = row.lost_to,
                "a consumer of the log lost records that it had not read: the log reached its limit for consumers \
                 (--forward-log-bytes), or the disk is nearly full"
            );
        }
        Ok(())
    }

    /// Retries to unlink the trimmed log files.
    fn remove_trimmed(&self, context: &SealContext<'_>, report: &mut SealReport) {
        if context.log.trimmed().size() != (0, 0) {
            let _removal = self.removal.lock().ignore_poison();
            self.report_removed(context.log.remove_before(0), report);
        }
    }

    fn report_removed(&self, removed: Removed, report: &mut SealReport) {
        for file in removed.unlinked {
            let FullFile { path, first_seq, last_seq, .. } = &file;
            let reason = "its samples are in segments";
            tracing::info!(path = %path.display(), first_seq, last_seq, reason, "a log file was removed");
            report.log_files_removed += 1;
        }
        if let Some(refused) = removed.refused {
            self.seals.unlinks_failed.fetch_add(1, Ordering::Relaxed);
            tracing::warn!("cannot remove a log file that is no longer needed: {}", refused.line());
        }
    }

    /// Returns the greatest sample time in the log for each organisation. Empty unless deletions
    /// wait for the log to be trimmed: times of samples deleted since are only in the log, and
    /// after a start only the log files know them.
    fn greatest_logged(&self, context: &SealContext<'_>) -> Result<BTreeMap<OrgId, i64>, SealError> {
        let mut greatest = BTreeMap::new();
        if self.stores.all().iter().all(|store| store.segments().tombstones.is_empty()) {
            return Ok(greatest);
        }
        // Includes the records of the current file.
        context.log.settle();
        for file in context.log.full_files() {
            for OrgSpan { org, greatest_ms, .. } in spans_of(&file)? {
                let entry: &mut i64 = greatest.entry(org).or_insert(i64::MIN);
                *entry = greatest_ms.max(*entry);
            }
        }
        Ok(greatest)
    }

    /// Returns whether all samples and series of a log file are in segments and registries.
    fn is_sealed(&self, file: &FullFile) -> Result<bool, SealError> {
        Ok(spans_of(file)?.iter().all(|span| match self.stores.org(span.org) {
            Some(store) => store.segments().covers(span),
            None => self.stores.is_gone(span.org),
        }))
    }
}

/// Returns the spans of a log file for each organisation. Files of an earlier process are read for
/// them.
fn spans_of(file: &FullFile) -> Result<Vec<OrgSpan>, SealError> {
    Ok(match &file.spans {
        Some(spans) => spans.clone(),
        None => replay::spans_of_file(&file.path)?.into_values().collect(),
    })
}

/// Returns the end of a seal of everything: just after the last sample that is not ahead of the
/// clock. A deleted last sample counts, because its record is in the log and would prevent the
/// removal of the file. `logged` is the last time in the log, if known.
fn forced_until(store: &OrgStore, logged: Option<i64>, now: Timestamp) -> i64 {
    let newest = store.usage.newest().map(Timestamp::as_ms).max(store.greatest_ms()).max(logged);
    let greatest = newest.unwrap_or(i64::MIN).min(now.as_ms());
    greatest.saturating_add(1).max(store.head.barrier())
}

/// Returns whether a seal up to `until` would move samples or release records.
fn has_unsealed(store: &OrgStore, until: i64, log: &Log) -> bool {
    due::has_work(store, until, log) || store.last_seq.load(Ordering::Acquire) > store.segments().seal_seq
}

/// Returns the end of the last window that has ended by the clock, in ms.
fn window_end(now: Timestamp) -> i64 {
    now.as_ms().div_euclid(due::WINDOW_MS).saturating_mul(due::WINDOW_MS)
}

/// Returns whether an organisation has samples, an end of the sealed time or log records later than
/// `latest`, which only a wrong clock explains. Waiting for the clock to reach that time would keep
/// log files.
fn needs_seal_of_all(store: &OrgStore, log: &Log, latest: Timestamp) -> bool {
    let latest_ms = latest.as_ms();
    let set = store.segments();
    store.greatest_ms().is_some_and(|greatest| greatest > latest_ms)
        || store.head.barrier().max(set.sealed_until) > latest_ms
        || log
            .full_files()
            .iter()
            .flat_map(|file| file.spans.iter().flatten())
            .any(|span| span.org == store.org && span.greatest_ms > latest_ms && !set.covers(span))
}

/// Returns the number of the first record that may hold samples of the organisation that are not in
/// segments.
fn first_unsealed(log: &Log, org: OrgId, set: &SegmentSet) -> u64 {
    let full = log.full_files();
    let unsealed = full.iter().find(|file| {
        // A file with unknown content may hold some.
        file.spans.as_ref().is_none_or(|spans| spans.iter().any(|span| span.org == org && !set.covers(span)))
    });
    let at_hand = log.counters().file_first_seq.load(Ordering::Acquire);
    unsealed.map_or(at_hand, |file| file.first_seq)
}
