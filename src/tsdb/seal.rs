//! Sealing: samples of a closed window move from the head to segments (docs/storage.md section 8).
//!
//! For one organisation, in this order; whatever stops it in between loses nothing:
//! ```text
//! 1 a seal record {U} goes through the log; its number is S. Applying it closes the window: nothing before U changes
//! 2 what lies before U is written to segments, family by family                       [encode]
//! 3 the registry is appended and synced; the segments are opened and verified
//! 4 ONE commit in control: the segments are listed, (S, U) is noted                    the samples have moved
//! 5 the new set is published, then the head lets go
//! 6 log files that hold nothing else are removed
//! ```
//! Before 4 a crash leaves unlisted files, which the next start removes; after it, it goes on from 5.

mod due;
mod encode;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard};

use super::checkpoint::{Folder, append_registry};
use super::compact::UpkeepError;
use super::disk;
use super::error::{AppendError, DiskError};
use super::log_mark::Noting;
use super::manifest::{CHANGE_SEGMENTS_MAX, Change, Manifest, ManifestError, SealState};
use super::segment::{Segment, SegmentMeta};
use super::segments::{Part, SegmentSet};
use super::store::OrgStore;
use super::wal::log::{Draft, FullFile, Log};
use super::wal::record::{Kind, OrgSpan, seal_body};
use super::wal::replay::{self, Begin};
use super::wal::trimmed::Removed;
use super::{Sink, Tsdb};
use crate::clock::Stopwatch;
use crate::kv::with_sources;
use crate::model::{OrgId, Timestamp};
use crate::sync::IgnorePoison as _;
pub(super) use due::Sealer;
use encode::{Pace, Window};

/// What a seal did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SealReport {
    /// Organisations that were sealed.
    pub orgs: u64,
    /// Segments written.
    pub segments: u64,
    /// Samples in them.
    pub samples: u64,
    /// Bytes of their files.
    pub bytes: u64,
    /// Log files removed.
    pub log_files_removed: u64,
}

/// Why an organisation was not sealed. Nothing is lost: its samples stay in the head and in the log.
#[derive(Debug, thiserror::Error)]
pub enum SealError {
    /// The store has no folder, or must not write to it.
    #[error("this store cannot seal: {0}")]
    Closed(String),
    /// Too little free space for the segments.
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
    /// The file system refused.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// A segment was not written, or could not be read back.
    #[error("a segment of organisation {org} failed: {what}")]
    Segment {
        /// Whose.
        org: OrgId,
        /// How.
        what: String,
    },
    /// The list of segments was not changed.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// Everything is sealed, and the segments were not merged.
    #[error(transparent)]
    Upkeep(#[from] UpkeepError),
    /// A test stopped it here, as if the process had ended.
    #[error("stopped by a test")]
    Stopped,
}

/// Seals since the start of the process.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) made: AtomicU64,
    pub(super) failed: AtomicU64,
    /// Attempts to unlink log files that the file system refused.
    pub(super) unlinks_failed: AtomicU64,
}

/// An organisation that is to be sealed.
#[derive(Debug)]
struct Due {
    store: Arc<OrgStore>,
    /// The end of the window.
    until: i64,
    /// Samples of any time are to be sealed.
    all: bool,
}

/// What a seal record says.
#[derive(Clone, Copy, Debug)]
struct WindowEnd {
    until_ms: i64,
    /// The seal takes samples of any time.
    all: bool,
}

/// What sealing needs of a store that writes.
struct Parts<'t> {
    folder: &'t Folder,
    log: &'t Log,
    manifest: &'t Manifest,
}

impl Tsdb {
    /// Seals everything of every organisation now, trims the log and gives its spare file back. Samples as far ahead of the
    /// wall clock as senders may be stay in the head; later ones are sealed with the others, whether the clock was ahead
    /// when they came or is behind now.
    ///
    /// # Errors
    /// [`SealError`] of the first organisation that could not be sealed; the others are.
    pub fn seal(&self, now: Timestamp) -> Result<SealReport, SealError> {
        let parts = self.parts()?;
        let mut sealer = self.sealer_at_once();
        let mut report = SealReport::default();
        let mut failed = None;
        let logged = self.logged(&parts)?;
        let latest = self.options.latest_plausible(now);
        for store in self.stores.all() {
            let newest_logged = logged.get(&store.org).copied();
            let has_logged_later = newest_logged.is_some_and(|newest| newest > latest.as_ms());
            let due = match has_logged_later || needs_seal_of_all(&store, parts.log, latest) {
                true => Due { until: window_end(now), all: true, store },
                false => {
                    let until = forced_until(&store, newest_logged, now);
                    Due { until, all: false, store }
                }
            };
            if !due.all && !has_news(&due.store, due.until) {
                continue;
            }
            if let Err(e) = self.seal_org(&parts, &due, now, &mut sealer, &Pace::Full, &mut report) {
                failed.get_or_insert(e);
            }
        }
        if let Some(stopped @ SealError::Stopped) = failed {
            return Err(stopped);
        }
        // Its last seal records go with the file at hand.
        parts.log.settle();
        let trimmed = self.trim(&parts, &mut report);
        match (failed, trimmed) {
            (Some(e), _) | (None, Err(e)) => Err(e),
            (None, Ok(())) => Ok(report),
        }
    }

    /// As [`Tsdb::seal`], and then merges the segments of each day into one: `promlet seal`.
    ///
    /// # Errors
    /// [`SealError`]; what is sealed stays sealed.
    pub fn seal_and_merge(&self, now: Timestamp) -> Result<SealReport, SealError> {
        let report = self.seal(now)?;
        self.compact(now)?;
        Ok(report)
    }

    /// Seals what is due; to be asked every ten seconds. A store without a folder has nothing due.
    ///
    /// # Errors
    /// As [`Tsdb::seal`]; it is tried again after a minute.
    pub fn seal_if_due(&self, now: Timestamp) -> Result<SealReport, SealError> {
        let mut report = SealReport::default();
        let Ok(parts) = self.parts() else { return Ok(report) };
        self.remove_trimmed(&parts, &mut report);
        self.note_log_end(Noting::IfDue);
        let mut sealer = self.sealer();
        let all_due = sealer.due(&self.stores, &self.options, parts.log, (now, self.latest_time(now)));
        let mut failed = None;
        for due in all_due {
            let pace = Pace::Half { rest: &self.options.rest, hurry: &self.seals_waiting };
            if let Err(e) = self.seal_org(&parts, &due, now, &mut sealer, &pace, &mut report) {
                failed.get_or_insert(e);
            }
        }
        if report.orgs > 0
            && let Err(e) = self.trim(&parts, &mut report)
        {
            failed.get_or_insert(e);
        }
        failed.map_or(Ok(report), Err)
    }

    /// The latest time that a sample may have without a clock having been wrong, unless the wall clock is behind.
    fn latest_time(&self, now: Timestamp) -> Timestamp {
        let present = self.retention.latest().map_or(now, |latest| latest.max(now));
        self.options.latest_plausible(present)
    }

    fn parts(&self) -> Result<Parts<'_>, SealError> {
        match (&self.folder, &self.log, &self.manifest) {
            (Some(folder), Sink::Log(log), Some(manifest)) => Ok(Parts { folder, log, manifest }),
            (_, Sink::ReadOnly { why, .. }, _) => Err(SealError::Closed(why.clone())),
            _ => Err(SealError::Closed("it lives in memory alone".to_owned())),
        }
    }

    pub(super) fn sealer(&self) -> MutexGuard<'_, Sealer> {
        self.sealer.lock().ignore_poison()
    }

    /// Keeps one organisation from being sealed: asks a seal of it that is under way not to rest, and waits for that one
    /// alone.
    pub(super) fn no_seal_of<'s>(&self, store: &'s OrgStore) -> MutexGuard<'s, ()> {
        self.seals_waiting.fetch_add(1, Ordering::SeqCst);
        let alone = store.sealing();
        self.seals_waiting.fetch_sub(1, Ordering::SeqCst);
        alone
    }

    /// Begins a new log file if the one at hand has a record up to `seq`, and removes the files before whose samples are
    /// all in segments.
    ///
    /// # Errors
    /// [`SealError`]; nothing is lost.
    pub(super) fn let_records_go(&self, seq: u64) -> Result<(), SealError> {
        let parts = self.parts()?;
        if parts.log.counters().file_first_seq.load(Ordering::Acquire) <= seq {
            parts.log.settle();
        }
        self.trim(&parts, &mut SealReport::default())
    }

    /// Asks a seal under way not to rest, and waits for it.
    pub(super) fn sealer_at_once(&self) -> MutexGuard<'_, Sealer> {
        self.seals_waiting.fetch_add(1, Ordering::SeqCst);
        let sealer = self.sealer();
        self.seals_waiting.fetch_sub(1, Ordering::SeqCst);
        sealer
    }

    /// Seals one organisation up to where it is due, or further where an earlier try had closed more.
    #[expect(clippy::too_many_arguments, reason = "one call with everything that a seal needs and reports")]
    fn seal_org(
        &self,
        parts: &Parts<'_>,
        due: &Due,
        now: Timestamp,
        sealer: &mut Sealer,
        pace: &Pace<'_>,
        report: &mut SealReport,
    ) -> Result<(), SealError> {
        let watch = Stopwatch::start();
        let store = &due.store;
        let alone = store.sealing();
        if self.stores.is_dropped(store.org) {
            return Ok(());
        }
        let sealed = if due.all {
            self.try_seal_all(parts, due, now, pace)
        } else {
            // A seal of all times that failed may have left the end of the window before that of the segments.
            let closed = store.head.barrier().max(store.segments().sealed_until);
            let end = WindowEnd { until_ms: due.until.max(closed), all: false };
            self.try_seal(parts, store, end, now, pace)
        };
        drop(alone);
        match &sealed {
            Ok(metas) => {
                sealer.made(store.org);
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
                sealer.failed(store.org, now, with_sources(e));
                self.seals.failed.fetch_add(1, Ordering::Relaxed);
            }
        }
        sealed.map(drop)
    }

    /// Seals the samples of an organisation that a wrong clock let in together with all others, and sets the end of the
    /// window back to where the clock is.
    ///
    /// The first of two seals takes the samples in order, however many there are. The second one takes what came during
    /// the first: without it everything before those times would be late until the clock comes to them.
    fn try_seal_all(
        &self,
        parts: &Parts<'_>,
        due: &Due,
        now: Timestamp,
        pace: &Pace<'_>,
    ) -> Result<Vec<SegmentMeta>, SealError> {
        let store = &due.store;
        let mut written = Vec::new();
        if let Some(greatest) = store.greatest_ms().filter(|greatest| *greatest >= due.until) {
            let sealed_until = store.segments().sealed_until;
            let until_ms = greatest.saturating_add(1).max(store.head.barrier()).max(sealed_until);
            written = self.try_seal(parts, store, WindowEnd { until_ms, all: false }, now, pace)?;
        }
        let end = WindowEnd { until_ms: due.until, all: true };
        written.extend(self.try_seal(parts, store, end, now, pace)?);
        tracing::warn!(
            org = store.org.0,
            "samples ahead of the clock were sealed with the others: a clock is or was wrong, here or where they come from"
        );
        Ok(written)
    }

    fn try_seal(
        &self,
        parts: &Parts<'_>,
        store: &Arc<OrgStore>,
        end: WindowEnd,
        now: Timestamp,
        pace: &Pace<'_>,
    ) -> Result<Vec<SegmentMeta>, SealError> {
        // Files of which it is not known whether they are listed stay: a store that tries on would fill the disk.
        parts.manifest.admit()?;
        let space = self.options.disk.space(&parts.folder.segments)?;
        let needed = space.samples_floor() + store.head.counters.bytes.load(Ordering::Relaxed);
        if space.free < needed {
            return Err(SealError::DiskFull { free: space.free, needed });
        }
        let kind = if end.all { Kind::SealAll } else { Kind::Seal };
        let draft = Draft::new(store.org, kind, seal_body(end.until_ms));
        let outcomes = parts.log.commit(vec![draft], now).map_err(SealError::Log)?;
        let seal_seq = outcomes.first().map_or(0, |outcome| outcome.record_seq);
        let mut written = Vec::new();
        let moved = self.move_window(parts, store, (seal_seq, end), pace, &mut written);
        if let Err(e) = &moved
            && !matches!(e, SealError::Stopped)
        {
            let listed = matches!(e, SealError::Manifest(e) if !e.is_certain());
            if !listed {
                self.throw_away(parts, store, &written);
            }
            store.reopen();
        }
        moved.map(|()| written)
    }

    /// Steps 2 to 5; `written` has the files even where it fails.
    fn move_window(
        &self,
        parts: &Parts<'_>,
        store: &Arc<OrgStore>,
        (seal_seq, end): (u64, WindowEnd),
        pace: &Pace<'_>,
        written: &mut Vec<SegmentMeta>,
    ) -> Result<(), SealError> {
        // What control says of S must not be beyond what the log holds after a power cut.
        parts.log.flush().map_err(SealError::Log)?;
        let before = store.segments();
        let step = || if self.options.disk.seal_goes_on() { Ok(()) } else { Err(SealError::Stopped) };
        step()?;
        let dir = parts.folder.segments_of(store.org);
        disk::create_dir(&dir)?;
        disk::sync_dir(&parts.folder.segments)?;
        let mut window = Window {
            since: before.sealed_until,
            until: end.until_ms,
            first_log_seq: first_unsealed(parts.log, store.org, &before),
            last_log_seq: seal_seq,
        };
        if end.all {
            // Whatever it takes may lie across other segments.
            let greatest = store.greatest_ms().map_or(i64::MIN, |greatest| greatest.saturating_add(1));
            (window.since, window.until) = (i64::MAX, end.until_ms.max(greatest));
        }
        encode::write(store, &dir, parts.folder.store, &window, pace, written)?;
        step()?;
        let registry_bytes = append_registry(parts.folder, store)?.bytes;
        let opened = self.open_written(parts, store, written)?;
        step()?;
        let state = SealState {
            seq: seal_seq,
            until_ms: end.until_ms,
            registry_bytes,
            next_segment: store.next_segment.load(Ordering::Relaxed),
        };
        self.list(parts, store, (state, end.all), (written, opened))?;
        step()?;
        store.release_closed();
        step()
    }

    /// Steps 4 and 5 for what was written. More segments than fit one change are listed before the others: their samples
    /// are in the head, too, until the last change notes that they have moved, and where both have them they agree.
    fn list(
        &self,
        parts: &Parts<'_>,
        store: &OrgStore,
        (state, seals_all): (SealState, bool),
        (written, mut opened): (&[SegmentMeta], Vec<Arc<Part>>),
    ) -> Result<(), SealError> {
        let mut left = written;
        loop {
            let (some, rest) = left.split_at(left.len().min(CHANGE_SEGMENTS_MAX));
            left = rest;
            let is_last = left.is_empty();
            let change = Change {
                state: is_last.then_some(state),
                seals_all: is_last && seals_all,
                add: some.to_vec(),
                ..Change::default()
            };
            let parts_of_it: Vec<Arc<Part>> = opened.drain(..some.len().min(opened.len())).collect();
            let mut goes_on = true;
            store.change_segments(parts.manifest, change, |now| {
                goes_on = self.options.disk.seal_goes_on();
                if !goes_on {
                    return now.clone();
                }
                let mut next = now.with(&[], parts_of_it);
                if is_last {
                    (next.seal_seq, next.sealed_until) = (state.seq, state.until_ms);
                    if seals_all {
                        next.sealed_all_seq = state.seq;
                    }
                }
                next
            })?;
            if !goes_on {
                return Err(SealError::Stopped);
            }
            if is_last {
                return Ok(());
            }
        }
    }

    /// What was just written, read back.
    fn open_written(
        &self,
        parts: &Parts<'_>,
        store: &OrgStore,
        written: &[SegmentMeta],
    ) -> Result<Vec<Arc<Part>>, SealError> {
        let dir = parts.folder.segments_of(store.org);
        let opened = written.iter().map(|meta| Segment::open(&dir, parts.folder.store, meta));
        let segments = opened
            .collect::<Result<Vec<_>, _>>()
            .map_err(|e| SealError::Segment { org: store.org, what: with_sources(&e) })?;
        let table = store.table();
        Ok(segments.into_iter().map(|segment| Arc::new(Part::new(segment, &table))).collect())
    }

    /// Removes the files of a seal that failed, but for those that are listed. What cannot be removed is unlisted: the next start does it.
    fn throw_away(&self, parts: &Parts<'_>, store: &OrgStore, written: &[SegmentMeta]) {
        let dir = parts.folder.segments_of(store.org);
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

    /// Removes the log files at the front of which everything is in segments and registries (docs/storage.md section 9).
    fn trim(&self, parts: &Parts<'_>, report: &mut SealReport) -> Result<(), SealError> {
        let _removal = self.removal.lock().ignore_poison();
        let full = parts.log.full_files();
        let mut end = None;
        for file in &full {
            if !self.is_sealed(file)? {
                break;
            }
            end = Some(Begin { file: file.number + 1, seq: file.last_seq + 1 });
        }
        let mut first = 0;
        if let Some(begin) = end {
            parts.manifest.set_log_begin(begin)?;
            if !self.options.disk.seal_goes_on() {
                return Err(SealError::Stopped);
            }
            first = begin.file;
        }
        self.note_removed(parts.log.remove_before(first), report);
        Ok(())
    }

    /// Tries those log files again that could not be unlinked.
    fn remove_trimmed(&self, parts: &Parts<'_>, report: &mut SealReport) {
        if parts.log.trimmed().size() != (0, 0) {
            let _removal = self.removal.lock().ignore_poison();
            self.note_removed(parts.log.remove_before(0), report);
        }
    }

    fn note_removed(&self, removed: Removed, report: &mut SealReport) {
        for file in removed.gone {
            let FullFile { path, first_seq, last_seq, .. } = &file;
            let reason = "its samples are in segments";
            tracing::info!(path = %path.display(), first_seq, last_seq, reason, "a log file was removed");
            report.log_files_removed += 1;
        }
        if let Some(refused) = removed.refused {
            self.seals.unlinks_failed.fetch_add(1, Ordering::Relaxed);
            tracing::warn!("a log file that is needed no more stays for now: {}", refused.line());
        }
    }

    /// The greatest time that the log has of each organisation, if deletions wait for the log to go: what was deleted since
    /// is nowhere else, and after a start nobody else remembers it.
    fn logged(&self, parts: &Parts<'_>) -> Result<BTreeMap<OrgId, i64>, SealError> {
        let mut greatest = BTreeMap::new();
        if self.stores.all().iter().all(|store| store.segments().tombstones.is_empty()) {
            return Ok(greatest);
        }
        // What the file at hand has, too.
        parts.log.settle();
        for file in parts.log.full_files() {
            for OrgSpan { org, greatest_ms, .. } in spans_of(&file)? {
                let known: &mut i64 = greatest.entry(org).or_insert(i64::MIN);
                *known = greatest_ms.max(*known);
            }
        }
        Ok(greatest)
    }

    /// Whether a log file holds nothing that is not in segments and registries too.
    fn is_sealed(&self, file: &FullFile) -> Result<bool, SealError> {
        Ok(spans_of(file)?.iter().all(|span| match self.stores.org(span.org) {
            Some(store) => store.segments().covers(span),
            None => self.stores.is_gone(span.org),
        }))
    }
}

/// What each organisation has in a log file; those of an earlier process are read for it.
fn spans_of(file: &FullFile) -> Result<Vec<OrgSpan>, SealError> {
    Ok(match &file.spans {
        Some(spans) => spans.clone(),
        None => replay::spans_of_file(&file.path)?.into_values().collect(),
    })
}

/// Where a seal ends that takes everything: behind the last sample, but for those ahead of the clock. A last sample that
/// was deleted counts: its record is in the log, and would keep the log from ending behind it. `logged`: the last one of
/// the log, where that is known.
fn forced_until(store: &OrgStore, logged: Option<i64>, now: Timestamp) -> i64 {
    let newest = store.usage.newest().map(Timestamp::as_ms).max(store.greatest_ms()).max(logged);
    let greatest = newest.unwrap_or(i64::MIN).min(now.as_ms());
    greatest.saturating_add(1).max(store.head.barrier())
}

/// Whether a seal up to `until` would move samples, or let go of records.
fn has_news(store: &OrgStore, until: i64) -> bool {
    store.least_ms().is_some_and(|least| least < until)
        || store.last_seq.load(Ordering::Acquire) > store.segments().seal_seq
}

/// The end of the window that the clock is in.
fn window_end(now: Timestamp) -> i64 {
    now.as_ms().div_euclid(due::WINDOW_MS).saturating_mul(due::WINDOW_MS)
}

/// Whether an organisation has something that only a clock can explain that was wrong: samples, an end of the sealed time
/// or records of the log later than `latest`. Waiting for the clock to come there would keep the log from ending.
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

/// The first record that may hold samples of the organisation that are not in segments.
fn first_unsealed(log: &Log, org: OrgId, set: &SegmentSet) -> u64 {
    let full = log.full_files();
    let unsealed = full.iter().find(|file| {
        // Where it is not known what a file holds, it may hold some.
        file.spans.as_ref().is_none_or(|spans| spans.iter().any(|span| span.org == org && !set.covers(span)))
    });
    let at_hand = log.counters().file_first_seq.load(Ordering::Acquire);
    unsealed.map_or(at_hand, |file| file.first_seq)
}
