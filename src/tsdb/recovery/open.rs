//! Opens a store: loads the state on disk into memory (docs/storage.md section 10, steps 5 to 8).
//!
//! Control lists the segments, and registry files give the names. The newest valid generation gives
//! the unsealed samples up to its `replay_seq`, and the log the rest. An invalid generation costs
//! only time. So does a damaged registry, since the names are also in the segments and in the rest
//! of the log. A segment that cannot be opened costs its samples: queries of its time carry a
//! warning, and all other queries work. Only a damaged log closes the store to writes. It then
//! opens read-only, with everything readable in it, and copies of the damaged files are kept in
//! `quarantine/`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::registry_load;
use super::repair;
use super::replay_workers::ReplayWorkers;
use crate::kv::keyed::{KEYED_FILE_HEADER_BYTES, RecordKey};
use crate::kv::{self, Finding, Weight, with_sources};
use crate::model::{Exemplar, OrgId, StoreId, Timestamp};
use crate::sync::IgnorePoison as _;
use crate::tsdb::disk;
use crate::tsdb::error::{DiskError, OpenError};
use crate::tsdb::maintenance::checkpoint::{self, Folder};
use crate::tsdb::open_progress::{OpenStep, Phase, ProgressObserver};
use crate::tsdb::options::Options;
use crate::tsdb::report::{LogPlace, RecoveryMode, RecoveryReport};
use crate::tsdb::segment::{Segment, SegmentError, SegmentMeta};
use crate::tsdb::series::registry::{self, ReadRegistry};
use crate::tsdb::side_data::exemplars::NewestExemplars;
use crate::tsdb::side_data::sealed;
use crate::tsdb::store::deletion::Deletion;
use crate::tsdb::store::manifest::{
    self, Manifest, ManifestChange, OrgManifest, SealState, StoreManifest, Tombstone,
};
use crate::tsdb::store::segments::{IndexedSegment, Obsolete, SegmentSet, UnreadableSegment};
use crate::tsdb::store::{OrgStore, Record, RowSeqs, Stores};
use crate::tsdb::wal::file::{self, MakeError, NewFile, SMALL_BYTES};
use crate::tsdb::wal::log::Resume;
use crate::tsdb::wal::record::RecordKind;
use crate::tsdb::wal::replay::{self, LogEnd, LogOrigin, ReplayPosition, Tail};

/// The limit of reported notes. Further ones would repeat the same problem.
const NOTES_MAX: usize = 1_000;

/// The directories that a start creates if they are missing, besides `wal`.
const FOLDERS: [&str; 4] = ["series", "head", "segments", "quarantine"];

/// A loaded store.
pub(in crate::tsdb) struct Recovered {
    pub(in crate::tsdb) stores: Arc<Stores>,
    pub(in crate::tsdb) folder: Folder,
    pub(in crate::tsdb) wal: PathBuf,
    /// The position at which the log continues. `None` if the store is read-only; the report then
    /// has the reason.
    pub(in crate::tsdb) resume: Option<Resume>,
    pub(in crate::tsdb) report: RecoveryReport,
    /// Whether checkpoint and segments hold every record of a cleanly closed log.
    pub(in crate::tsdb) log_is_covered: bool,
}

/// The secrets of this process.
#[derive(Clone, Copy)]
pub(in crate::tsdb) struct Secrets {
    /// The key of the hashes of label sets.
    pub(in crate::tsdb) labels: [u8; 32],
    /// The key from which the secrets of new log files are derived.
    pub(in crate::tsdb) records: RecordKey,
}

/// Loads the folder, and changes it so that a second load gives the same result.
pub(in crate::tsdb) fn recover(
    dir: &Path,
    store: StoreId,
    manifest: &Manifest,
    options: &Options,
    secrets: Secrets,
    now: Timestamp,
) -> Result<Recovered, OpenError> {
    let Secrets { labels: secret, records: key } = secrets;
    let at = |name: &str| dir.join(name);
    let made = make_folder(dir, store, options, key, now)?;
    let folder = Folder { head: at("head"), series: at("series"), segments: at("segments"), store };
    remove_unfinished(&folder.head)?;
    remove_unfinished(&folder.series)?;
    let known = manifest.read_all()?;
    let begin = known.begin;
    let mut recovery = Recovery::new(dir, now, options, known);
    let (stores, done, rows, cuts) = recovery.checkpoint(&folder, secret, options)?;
    let from_seq = done.as_ref().map_or(0, |done| done.replay_seq);
    let log = LogSource { dir: at("wal"), store, begin, from_seq };
    let end = recovery.log(&log, &stores, &rows)?;
    let log_is_covered = recovery.is_covered(&folder, done.as_ref(), end.last_seq);
    stores.set_starting(false);
    for store in stores.all() {
        // A seal that was in progress at the last stop has ended.
        store.reopen();
    }
    recovery.count(&stores);
    if made {
        recovery.report.mode = RecoveryMode::Fresh;
    }
    let resume = if recovery.report.read_only.is_some() {
        None
    } else {
        for (path, end) in cuts {
            // Data that a checkpoint relied on and that cannot be read is not a torn tail, so a
            // copy is kept.
            if !recovery.report.notes.is_empty() {
                recovery.keep(&path, false)?;
            }
            registry::cut(&path, end)?;
        }
        let log_from = end.full.first().map_or(end.first_seq, |file| file.first_seq);
        recovery.unlisted(&folder, &stores, log_from..=end.last_seq)?;
        recovery.renew_registries(&folder, &stores, manifest);
        renew_copies(&folder, &stores);
        // Records may be appended from here on.
        checkpoint::ClosedMarker::remove(&folder)?;
        recovery.resume(&at("wal"), end, key)?
    };
    let (wal, report) = (at("wal"), recovery.report);
    Ok(Recovered { stores: Arc::new(stores), folder, wal, resume, report, log_is_covered })
}

/// Loads the folder like [`recover`] and returns its report, without any change to it. `head` is a
/// copy of `head/`, since sled opens no database without writing to it.
pub(in crate::tsdb) fn look(
    dir: &Path,
    head: PathBuf,
    store: StoreId,
    known: StoreManifest,
    options: &Options,
) -> Result<RecoveryReport, OpenError> {
    for name in ["wal"].iter().chain(&FOLDERS) {
        refuse_file(&dir.join(name))?;
    }
    let is_new = !dir.join("series").exists() && !dir.join("head").exists();
    let begin = known.begin;
    let folder = Folder { head, series: dir.join("series"), segments: dir.join("segments"), store };
    let mut recovery = Recovery::new(dir, Timestamp::from_ms(0), options, known);
    recovery.changes = false;
    let (stores, done, rows, _) = recovery.checkpoint(&folder, [0; 32], options)?;
    let from_seq = done.as_ref().map_or(0, |done| done.replay_seq);
    let wal = repair::log_dir(dir);
    let has_log = names_in(&wal)?.iter().any(|name| file::number_of(name).is_some());
    let is_empty = begin == LogOrigin::default() && recovery.listed.is_empty() && recovery.mark == 0;
    let end = if is_new && !has_log && is_empty {
        // The start of a new store creates the first file.
        LogEnd::default()
    } else {
        recovery.log(&LogSource { dir: wal, store, begin, from_seq }, &stores, &rows)?
    };
    if recovery.report.read_only.is_some() && recovery.is_covered(&folder, done.as_ref(), end.last_seq) {
        recovery.report.read_only = None;
        recovery.report.findings.retain(|finding| !finding.file.starts_with("wal"));
        let what = "damaged after a clean stop; nothing is lost, segments and the checkpoint have everything";
        recovery.report.findings.push(Finding::new(Weight::Repairable, "wal", what));
    }
    if recovery.report.read_only.is_none() {
        let log_from = end.full.first().map_or(end.first_seq, |file| file.first_seq);
        recovery.unlisted(&folder, &stores, log_from..=end.last_seq)?;
    }
    Ok(recovery.report)
}

/// Fails like [`disk::create_dir`] if another kind of file has the name.
fn refuse_file(path: &Path) -> Result<(), DiskError> {
    if std::fs::symlink_metadata(path).is_err() || path.is_dir() {
        return Ok(());
    }
    Err(DiskError::at("create directory", path)(std::io::ErrorKind::AlreadyExists.into()))
}

/// Returns the names in a directory; none if it does not exist.
fn names_in(dir: &Path) -> Result<Vec<String>, DiskError> {
    if dir.is_dir() { disk::names(dir) } else { Ok(Vec::new()) }
}

/// Creates the missing parts of the folder. Returns whether the store is new.
///
/// The first log file is durable before `series/` and `head/` are created. So if one of them exists
/// without any log file, the log was lost; the store is not merely empty.
fn make_folder(
    dir: &Path,
    store: StoreId,
    options: &Options,
    key: RecordKey,
    now: Timestamp,
) -> Result<bool, OpenError> {
    let wal = dir.join("wal");
    repair::finish_mending(dir)?;
    let is_new = !dir.join("series").exists() && !dir.join("head").exists();
    disk::create_dir(dir)?;
    disk::create_dir(&wal)?;
    disk::sync_dir(dir)?;
    remove_unfinished(&wal)?;
    let made = is_new && !disk::names(&wal)?.iter().any(|name| file::number_of(name).is_some());
    if made {
        let (number, created_ms, key) = (1, now.as_ms(), key.derive(1, 0));
        let first =
            NewFile { number, before: 0, bytes: SMALL_BYTES, created_ms, urgent: false, key, group_bytes: 0 };
        file::make(&options.disk, &wal, store, first).map_err(|e| match e {
            MakeError::Full { free, needed } => OpenError::DiskFull { free, needed },
            MakeError::Disk(e) => e.into(),
        })?;
    }
    for sub in FOLDERS {
        disk::create_dir(&dir.join(sub))?;
    }
    disk::sync_dir(dir)?;
    Ok(made)
}

/// Removes unfinished files and directories that a crash left.
fn remove_unfinished(dir: &Path) -> Result<(), DiskError> {
    let names = disk::names(dir)?;
    let unfinished = || names.iter().filter(|name| name.ends_with(".new"));
    for name in unfinished() {
        let path = dir.join(name);
        if path.is_dir() { disk::remove_dir_all(&path) } else { disk::remove_file(&path) }?;
    }
    if unfinished().next().is_some() { disk::sync_dir(dir) } else { Ok(()) }
}

/// The part of the log to read.
struct LogSource {
    dir: PathBuf,
    store: StoreId,
    begin: LogOrigin,
    from_seq: u64,
}

/// Registries with bytes after their valid end, and that end.
type RegistryCuts = Vec<(PathBuf, registry::End)>;

/// The state of a start while it loads the folder.
struct Recovery {
    dir: PathBuf,
    quarantine: PathBuf,
    now: Timestamp,
    /// Whether the folder may be changed. False for a check.
    changes: bool,
    /// Organisations with a damaged registry, or one shorter than control says.
    short: BTreeSet<OrgId>,
    listed: BTreeMap<OrgId, OrgManifest>,
    /// Dropped organisations. Their data is ignored, and the first maintenance run removes it.
    dropped: BTreeSet<OrgId>,
    /// The last log record that control knows to be durable.
    mark: u64,
    report: RecoveryReport,
    observer: ProgressObserver,
    replay_threads: usize,
}

impl Recovery {
    fn new(dir: &Path, now: Timestamp, options: &Options, known: StoreManifest) -> Recovery {
        let StoreManifest { mut listed, dropped, mark, .. } = known;
        listed.retain(|org, _| !dropped.contains(org));
        Recovery {
            dir: dir.to_owned(),
            quarantine: dir.join("quarantine"),
            now,
            changes: true,
            short: BTreeSet::new(),
            listed,
            dropped,
            mark,
            report: RecoveryReport::default(),
            observer: options.observer.clone(),
            // The threads fill heads, which a queue does not have.
            replay_threads: if options.queue_only { 0 } else { options.replay_threads },
        }
    }

    /// Returns whether checkpoint and segments hold every record that the log ever held: the log
    /// was closed cleanly after that checkpoint, and nothing was written since.
    fn is_covered(&self, folder: &Folder, done: Option<&checkpoint::GenerationInfo>, last_seq: u64) -> bool {
        let closed = checkpoint::ClosedMarker::read(folder);
        let known = manifest::newest_record(&self.listed, self.mark);
        closed.zip(done).is_some_and(|(closed, done)| {
            closed.last_seq == done.replay_seq && last_seq <= closed.last_seq && known <= closed.last_seq
        })
    }

    /// Loads registries, segments and the newest valid generation.
    fn checkpoint(
        &mut self,
        folder: &Folder,
        secret: [u8; 32],
        options: &Options,
    ) -> Result<(Stores, Option<checkpoint::GenerationInfo>, RowSeqs, RegistryCuts), OpenError> {
        let (mut stores, mut cuts) = self.base(folder, secret, options)?;
        let generations =
            if folder.head.is_dir() { checkpoint::generations(&folder.head)? } else { Vec::new() };
        for generation in generations {
            let mut rows = RowSeqs::default();
            self.observer.report(&OpenStep { phase: Phase::Checkpoint, ..OpenStep::default() })?;
            match checkpoint::load(folder, generation, &stores, &mut rows, &self.observer) {
                Ok(done) => {
                    self.report.mode = RecoveryMode::Checkpoint;
                    let heads = stores.all();
                    let samples = heads.iter().map(|s| s.head.counters.samples.load(Ordering::Relaxed));
                    self.report.checkpoint_samples = samples.sum();
                    return Ok((stores, Some(done), rows, cuts));
                }
                Err(e) if e.is_stop() => return Err(OpenError::Stopped),
                Err(e) => {
                    self.note(
                        Weight::Repairable,
                        &self.dir.join("head").join(generation.to_string()),
                        format!("generation {generation} cannot be used: {}", with_sources(&e)),
                    );
                    // The heads hold some of its rows, so start over.
                    (stores, cuts) = self.base(folder, secret, options)?;
                }
            }
        }
        Ok((stores, None, RowSeqs::default(), cuts))
    }

    /// Loads names and segments, that is, everything except heads.
    fn base(
        &mut self,
        folder: &Folder,
        secret: [u8; 32],
        options: &Options,
    ) -> Result<(Stores, RegistryCuts), OpenError> {
        let (stores, cuts) = self.registries(folder, secret, options)?;
        let files = self.listed.values().map(|listed| listed.segments.len() as u64).sum();
        let mut step = OpenStep { phase: Phase::Segments, files, all: files, ..OpenStep::default() };
        for (org, listed) in std::mem::take(&mut self.listed) {
            self.segments(folder, &stores.org_or_new(org), &listed, &mut step)?;
            self.listed.insert(org, listed);
        }
        Ok((stores, cuts))
    }

    /// Opens the listed segments of an organisation.
    fn segments(
        &mut self,
        folder: &Folder,
        store: &OrgStore,
        listed: &OrgManifest,
        step: &mut OpenStep,
    ) -> Result<(), OpenError> {
        let dir = folder.segments_of(store.org);
        let mut opened = Vec::with_capacity(listed.segments.len());
        let mut bad = Vec::new();
        for meta in &listed.segments {
            step.file += 1;
            self.observer.report(step)?;
            step.done += 1;
            match Segment::open(&dir, folder.store, meta) {
                Ok(segment) => opened.push(segment),
                Err(SegmentError::Newer { path, version, known }) => {
                    let what = format!("segment of version {version}, {known} is the newest known");
                    return Err(OpenError::Foreign { path, what });
                }
                Err(e) => {
                    let why = with_sources(&e);
                    let text = format!(
                        "segment {} of organisation {} cannot be used, {} samples from {} to {} are missing: {why}",
                        meta.seq,
                        meta.org,
                        meta.samples,
                        Timestamp::from_ms(meta.min_ms).to_rfc3339(),
                        Timestamp::from_ms(meta.max_ms).to_rfc3339(),
                    );
                    self.note(Weight::Loss, &dir.join(meta.file_name()), text);
                    bad.push(UnreadableSegment { meta: meta.clone() });
                }
            }
        }
        let have = store.registry().bytes;
        if have < listed.state.registry_bytes {
            let text = format!(
                "the registry of organisation {} has {have} valid bytes of {}: names come from its segments and the log",
                store.org, listed.state.registry_bytes
            );
            self.note(Weight::Repairable, &registry::path_of(&folder.series, store.org), text);
            self.short.insert(store.org);
            self.names(store, &opened);
        }
        let table = store.table();
        let parts =
            opened.into_iter().map(|segment| Arc::new(IndexedSegment::new(segment, &table))).collect();
        drop(table);
        let state = listed.state;
        store.next_segment.store(state.next_segment, Ordering::Relaxed);
        store.last_seq.store(state.seq, Ordering::Relaxed);
        store.close_window(state.until_ms);
        let mut set = SegmentSet {
            seal_seq: state.seq,
            sealed_until: state.until_ms,
            sealed_all_seq: listed.sealed_all_seq,
            parts,
            bad,
            tombstones: listed.tombstones.iter().map(|(n, t)| (*n, Arc::new(t.clone()))).collect(),
        };
        set.order();
        self.load_side_data(store, &set, &dir);
        store.begin_with(set);
        Ok(())
    }

    /// Loads the newest exemplars into their rings, and records whether there are histograms.
    fn load_side_data(&mut self, store: &OrgStore, set: &SegmentSet, dir: &Path) {
        // A merged segment has a greater number than another, but may hold older exemplars.
        let mut newest = NewestExemplars::default();
        for part in set.beside() {
            store.side.note_sealed(part.meta().samples);
            let loaded = part.segment.side_data(sealed::EXEMPLARS_ID).and_then(|run| {
                let hidden = |series, at_ms| set.tombstones_of(part, series).any(|t| t.hides(series, at_ms));
                let load = |series, exemplar: Exemplar| {
                    if !hidden(series, exemplar.at.as_ms()) {
                        newest.push(series, exemplar);
                    }
                };
                let read = sealed::read_exemplars(run.unwrap_or_default(), load);
                read.map_err(|damage| part.segment.side_data_damage(damage))
            });
            if let Err(damage) = loaded {
                let text = format!("exemplars of organisation {} are missing: {damage}", store.org);
                self.note(Weight::Loss, &dir.join(part.meta().file_name()), text);
            }
        }
        let ends = set.beside().map(|part| part.meta().max_ms.saturating_add(1)).max();
        store.side.load_exemplars(newest, ends.unwrap_or(i64::MIN));
    }

    /// Defines the series of segments that the registry no longer has.
    fn names(&mut self, store: &OrgStore, segments: &[Segment]) {
        let mut table = store.table_mut();
        for segment in segments {
            for family in 0..segment.families() {
                for row in 0..segment.ids(family).map_or(0, |ids| ids.len()) {
                    let Some(id) = segment.ids(family).and_then(|ids| ids.get(row)) else { continue };
                    if table.knows(id) {
                        continue;
                    }
                    let defined =
                        segment.series_labels(family, row).map_err(|e| e.to_string()).and_then(|labels| {
                            let pairs: Vec<(&str, &str)> =
                                labels.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
                            table.define(id, &pairs).map_err(str::to_owned)
                        });
                    if let Err(what) = defined {
                        let text = format!("series {id} of organisation {} has no name: {what}", store.org);
                        self.note(Weight::Loss, &self.dir.join("series"), text);
                    }
                }
            }
        }
        store.usage.record_table(&table);
    }

    /// Handles unlisted segment files: removes the output of an interrupted seal or compaction and
    /// the files of obsolete segments, and moves other files to quarantine.
    fn unlisted(
        &mut self,
        folder: &Folder,
        stores: &Stores,
        in_log: std::ops::RangeInclusive<u64>,
    ) -> Result<(), OpenError> {
        for name in names_in(&folder.segments)? {
            let Some(org) = name.parse().ok().map(OrgId).filter(|org| !self.dropped.contains(org)) else {
                continue;
            };
            let dir = folder.segments_of(org);
            if self.changes {
                remove_unfinished(&dir)?;
            }
            let listed = self.listed.get(&org).cloned().unwrap_or_default();
            let keep: BTreeSet<String> = listed.segments.iter().map(SegmentMeta::file_name).collect();
            let mut greatest = 0;
            for name in disk::names(&dir)? {
                let number = name.split('-').next().and_then(|digits| digits.parse().ok());
                greatest = greatest.max(number.unwrap_or(0));
                if keep.contains(&name) || name.ends_with(".new") {
                    continue;
                }
                let path = dir.join(&name);
                let found = Segment::open_unlisted(&path, folder.store, None);
                let reason = match (number, found.as_ref().map(Segment::meta)) {
                    (Some(number), _) if listed.obsolete.iter().any(|(seq, _)| *seq == number) => {
                        "it is no longer listed"
                    }
                    (_, Ok(meta)) if meta.org == org && is_repeated(meta, &listed, &in_log) => {
                        "its seal or merge was not committed"
                    }
                    (_, found) => {
                        let what = found.map_or_else(
                            |e| with_sources(e),
                            |meta| {
                                format!(
                                    "its records {}-{} are not in the log",
                                    meta.first_log_seq, meta.last_log_seq
                                )
                            },
                        );
                        let text =
                            format!("{} is not listed and was moved to quarantine: {what}", path.display());
                        self.note(Weight::Repairable, &path, text);
                        self.keep(&path, true)?;
                        continue;
                    }
                };
                if self.changes {
                    disk::remove_file(&path)?;
                    tracing::info!(path = %path.display(), reason, "a segment file was removed");
                }
            }
            if self.changes {
                disk::sync_dir(&dir)?;
            }
            let store = stores.org_or_new(org);
            store.next_segment.fetch_max(greatest.saturating_add(1), Ordering::Relaxed);
            let gone = listed.obsolete.iter().map(|(seq, obsolete)| Obsolete {
                seq: *seq,
                path: dir.join(&obsolete.file),
                reason: obsolete.reason.clone(),
                part: None,
            });
            store.obsolete.lock().ignore_poison().extend(gone);
        }
        Ok(())
    }

    /// Adds a finding once, though a start may meet it twice.
    fn note(&mut self, weight: Weight, path: &Path, text: String) {
        if !self.report.notes.contains(&text) && self.report.notes.len() < NOTES_MAX {
            let file = path.strip_prefix(&self.dir).unwrap_or(path);
            self.report.findings.push(Finding::new(weight, file, text.clone()));
            self.report.notes.push(text);
        }
    }

    /// Rewrites lost or damaged registries from the known names, so that the next start finds them
    /// valid. A failure is retried by the next start.
    fn renew_registries(&mut self, folder: &Folder, stores: &Stores, manifest: &Manifest) {
        for org in std::mem::take(&mut self.short) {
            let Some(store) = stores.org(org) else { continue };
            let state = self.listed.get(&org).map(|listed| listed.state).unwrap_or_default();
            let renewed =
                checkpoint::append_registry(folder, &store).map_err(|e| with_sources(&e)).and_then(|end| {
                    if end.bytes >= state.registry_bytes {
                        return Ok(());
                    }
                    let state = SealState { registry_bytes: end.bytes, ..state };
                    let change = ManifestChange { state: Some(state), ..ManifestChange::default() };
                    manifest.commit(org, change).map_err(|e| with_sources(&e))
                });
            if let Err(why) = renewed {
                tracing::warn!("cannot rewrite the registry of organisation {org}: {why}");
            }
        }
    }

    /// Loads the registries, or their copies.
    fn registries(
        &mut self,
        folder: &Folder,
        secret: [u8; 32],
        options: &Options,
    ) -> Result<(Stores, RegistryCuts), OpenError> {
        let stores = Stores::with_block_cache(options.decoded_bytes_max, secret, options.limits.clone())
            .queue_only(options.queue_only);
        stores.set_starting(true);
        stores.set_dropped(&self.dropped);
        let mut orgs = registry::orgs_in(&folder.series)?;
        orgs.retain(|org| !self.dropped.contains(org));
        let path_of = |org: &OrgId| registry::path_of(&folder.series, *org);
        let registries: Vec<registry_load::Registry> =
            orgs.iter().map(|org| (*org, path_of(org))).filter(|(_, path)| path.exists()).collect();
        let read = registry_load::load(folder, &stores, &registries, &self.observer)?;
        let mut found: BTreeMap<OrgId, ReadRegistry> =
            registries.into_iter().map(|(org, _)| org).zip(read).collect();
        let mut cuts = Vec::new();
        for org in orgs {
            let path = path_of(&org);
            let found = found.remove(&org);
            let have = if let Some(ReadRegistry::Valid(end)) = &found { end.bytes } else { 0 };
            let mut scratch = Vec::new();
            let copy =
                registry::read_longer_copy(&folder.series, folder.store, org, have, &mut |kind, body| {
                    stores.apply(Record::read(0, org, kind, body), &mut scratch, None).is_ok()
                })?;
            if let Some(end) = copy {
                let from = registry::copy_of(&folder.series, org);
                let bytes = std::fs::metadata(&from).map_err(DiskError::at("look at", &from))?.len();
                self.take_copy(folder, org, found.as_ref(), end)?;
                *stores.org_or_new(org).registry() = end;
                if bytes > end.bytes {
                    cuts.push((path, end));
                }
                continue;
            }
            match found {
                None => {}
                Some(ReadRegistry::Valid(end)) => {
                    *stores.org_or_new(org).registry() = end;
                    let bytes = std::fs::metadata(&path).map_err(DiskError::at("look at", &path))?.len();
                    if bytes > end.bytes {
                        cuts.push((path, end));
                    }
                }
                Some(ReadRegistry::Damaged(what)) => {
                    let text =
                        format!("{}: {what}; the names come from segments and the log", path.display());
                    self.note(Weight::Repairable, &path, text);
                    self.short.insert(org);
                    self.keep(&path, true)?;
                }
            }
        }
        Ok((stores, cuts))
    }

    /// Replaces a registry by its longer copy, which is valid up to `end`. `found` is the state of
    /// the registry.
    fn take_copy(
        &mut self,
        folder: &Folder,
        org: OrgId,
        found: Option<&ReadRegistry>,
        end: registry::End,
    ) -> Result<(), OpenError> {
        let path = registry::path_of(&folder.series, org);
        let what = match found {
            None => "the registry is missing".to_owned(),
            Some(ReadRegistry::Valid(have)) => format!("{} valid bytes of {}", have.bytes, end.bytes),
            Some(ReadRegistry::Damaged(what)) => (*what).to_owned(),
        };
        let text = format!("{}: {what}; its copy has the names", path.display());
        self.note(Weight::Repairable, &path, text);
        if found.is_some() {
            self.keep(&path, true)?;
        }
        if self.changes {
            registry::take_copy(&folder.series, org)?;
        }
        Ok(())
    }

    /// Replays the log, and reports damage and lost records.
    fn log(&mut self, log: &LogSource, stores: &Stores, rows: &RowSeqs) -> Result<LogEnd, OpenError> {
        let LogSource { dir: wal, store, begin, from_seq } = log;
        let (store, from_seq) = (*store, *from_seq);
        let mut unreadable = Vec::new();
        let mut deletions = Deletions::of(stores, from_seq.max(begin.seq.saturating_sub(1)));
        let observer = self.observer.clone();
        observer.report(&OpenStep { phase: Phase::Log, ..OpenStep::default() })?;
        let (mut end, (samples, orphans)) = std::thread::scope(|scope| -> Result<_, OpenError> {
            let mut workers = ReplayWorkers::start(scope, self.replay_threads, stores, rows)?;
            let end = replay::replay(wal, store, *begin, from_seq, &mut |header, body, place| {
                let Some(kind) = header.kind else { return Ok(()) };
                let deleted_org = (kind == RecordKind::Delete).then_some(header.org);
                deletions.before(header.seq, deleted_org, &mut workers)?;
                let taken = workers.take(Record::read(header.seq, header.org, kind, body))?;
                if let Err(damage) = taken
                    && unreadable.len() < 10
                {
                    unreadable.push(format!("record {}: {damage}", header.seq));
                }
                Ok(observer.report(&log_step(place, workers.stored()))?)
            })?;
            deletions.before(u64::MAX, None, &mut workers)?;
            Ok((end, workers.finish()?))
        })?;
        self.report.records = end.records;
        self.report.samples = samples;
        self.report.orphans = orphans;
        self.report.last_seq = end.last_seq.max(from_seq);
        if end.files > 0 && self.report.mode == RecoveryMode::Fresh {
            self.report.mode = RecoveryMode::Log;
        }
        let mut texts = unreadable;
        self.secrets(wal)?;
        let known = manifest::newest_record(&self.listed, self.mark).max(from_seq);
        if let Some(tail) = end.tail.as_ref().filter(|_| end.damage.is_none())
            && let Some(mut finding) = torn_finding(tail, &self.dir, end.last_seq, known)
        {
            finding.what = format!("{}: {}", tail.path.display(), finding.what);
            self.report.torn_tail = Some(finding.what.clone());
            self.report.findings.push(finding);
        }
        if let Some(damage) = end.damage.take() {
            for (place, path) in damage.files.iter().enumerate() {
                self.keep(path, false)?;
                let offset = damage.offset.filter(|_| place == 0);
                self.log_damage(path, offset);
            }
            texts.insert(0, damage.text);
        }
        if end.files == 0 {
            texts.push(format!("{} holds no log file: records that were only there are lost", wal.display()));
        }
        for path in end.tail.iter().map(|tail| &tail.path).chain(&end.spares) {
            if let Some(text) = replay::cut_short(path)? {
                texts.push(text);
                self.keep(path, false)?;
                let length = std::fs::metadata(path).map_err(DiskError::at("look at", path))?.len();
                self.log_damage(path, Some(length));
            }
        }
        if end.last_seq < from_seq {
            texts.push(format!(
                "the log in {} ends at record {}, the checkpoint at {from_seq}",
                wal.display(),
                end.last_seq
            ));
        }
        for known in manifest::records_beyond(&self.listed, self.mark, end.last_seq) {
            let place = end.tail.as_ref().map_or_else(String::new, |tail| {
                format!(" (byte {} of {})", tail.offset, tail.path.display())
            });
            texts.push(format!(
                "the log in {} ends at record {}{place}, {known}",
                wal.display(),
                end.last_seq
            ));
        }
        if orphans > 0 {
            texts.push(format!("{orphans} samples belong to series without a definition"));
        }
        if !texts.is_empty() {
            if self.report.log_damage.is_empty() {
                self.log_damage(wal, None);
            }
            let findings = texts.iter().map(|text| Finding::new(Weight::Loss, "wal", text.clone()));
            self.report.findings.extend(findings);
            self.report.read_only = Some(texts.join("; "));
        }
        Ok(end)
    }

    /// Reports each log file in which one of the two copies of its secret is damaged. Its records
    /// are read with the other copy.
    fn secrets(&mut self, wal: &Path) -> Result<(), DiskError> {
        for name in names_in(wal)? {
            let (path, Some(number)) = (wal.join(&name), file::number_of(&name)) else { continue };
            let start = disk::read_start(&path, KEYED_FILE_HEADER_BYTES as u64)?;
            if RecordKey::has_one_copy(&start, number) {
                let text = format!(
                    "{}: one of the two copies of the secret of its records is damaged; the file is read with the other",
                    path.display()
                );
                self.note(Weight::Repairable, &path, text);
            }
        }
        Ok(())
    }

    /// Records a log file, and the offset in it, that cannot be read.
    fn log_damage(&mut self, path: &Path, offset: Option<u64>) {
        let file = path.strip_prefix(&self.dir).unwrap_or(path).to_owned();
        let place = LogPlace { file, offset };
        if !self.report.log_damage.contains(&place) {
            self.report.log_damage.push(place);
        }
    }

    /// Keeps a damaged file in `quarantine/`: moves it if `moved` is set, otherwise copies it
    /// unless a copy exists.
    fn keep(&mut self, path: &Path, moved: bool) -> Result<(), OpenError> {
        if !self.changes {
            return Ok(());
        }
        match self.put_aside(path, moved) {
            // The file stays in place. The readable data is served all the same.
            Err(e) if kv::is_no_room(&e.source) => {
                tracing::warn!("no room for a copy in quarantine: {}", e.line());
                Ok(())
            }
            other => Ok(other?),
        }
    }

    fn put_aside(&mut self, path: &Path, moved: bool) -> Result<(), DiskError> {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let to = self.quarantine.join(format!("{}-{name}", self.now.as_ms()));
        if moved {
            disk::rename(path, &to)?;
            if let Some(parent) = path.parent() {
                disk::sync_dir(parent)?;
            }
        } else {
            let length = std::fs::metadata(path).map_err(DiskError::at("look at", path))?.len();
            let kept = disk::names(&self.quarantine)?.into_iter().any(|have| {
                let same =
                    std::fs::metadata(self.quarantine.join(&have)).is_ok_and(|found| found.len() == length);
                same && have.ends_with(&format!("-{name}"))
            });
            if kept {
                return Ok(());
            }
            std::fs::copy(path, &to).map_err(DiskError::at("copy", path))?;
            disk::open_file(&to)?.sync_all().map_err(DiskError::at("sync", &to))?;
        }
        self.report.quarantined += 1;
        disk::sync_dir(&self.quarantine)?;
        Ok(())
    }

    /// Counts the series of all organisations.
    fn count(&mut self, stores: &Stores) {
        self.report.series = stores.all().iter().map(|store| u64::from(store.table().live())).sum();
    }

    /// Prepares the log's last file for further records: clears the torn tail and removes spares
    /// and trimmed files. Returns none if there is no log file.
    fn resume(&mut self, wal: &Path, end: LogEnd, key: RecordKey) -> Result<Option<Resume>, DiskError> {
        for path in &end.trimmed {
            if let Err(e) = disk::remove_file(path) {
                // The file is no longer part of the log, so the start continues.
                let text = format!("cannot remove a log file that is no longer needed: {}", e.line());
                self.note(Weight::Note, path, text);
                continue;
            }
            tracing::info!(path = %path.display(), reason = "its samples are in segments", "a log file was removed");
        }
        for spare in &end.spares {
            disk::remove_file(spare)?;
        }
        if !end.spares.is_empty() || !end.trimmed.is_empty() {
            disk::sync_dir(wal)?;
        }
        let files = end.files - end.spares.len() as u64;
        let (last_seq, first_seq, full) = (end.last_seq, end.first_seq, end.full);
        let Some(tail) = end.tail else { return Ok(None) };
        self.report.trimmed_bytes = tail.torn_bytes;
        // First, so that the file holds only its records.
        let file = replay::resume(&tail)?;
        let spans = replay::spans_of_file(&tail.path)?;
        let first_mark = (tail.offset <= tail.header.layout.first_record() as u64)
            .then(|| tail.before.as_deref().map_or_else(|| Ok(BTreeMap::new()), replay::spans_of_file))
            .transpose()?
            .map(|spans| spans.into_values().collect());
        let offset = u32::try_from(tail.offset).unwrap_or(u32::MAX);
        let file_bytes = end.file_bytes;
        Ok(Some(Resume {
            file,
            offset,
            first_mark,
            last_seq,
            key,
            spans,
            first_seq,
            full,
            files,
            file_bytes,
        }))
    }
}

/// Rewrites missing or different copies of registries. A failure is retried by the next start.
fn renew_copies(folder: &Folder, stores: &Stores) {
    for store in stores.all().iter().filter(|store| store.registry().bytes > 0) {
        let org = store.org;
        let renewed = registry::copy_differs(&folder.series, org)
            .and_then(|differs| if differs { registry::write_copy(&folder.series, org) } else { Ok(()) });
        if let Err(e) = renewed {
            tracing::warn!("cannot write the copy of the registry of organisation {org}: {}", e.line());
        }
    }
}

/// Describes the bytes after the last record for which no later record vouches. A crash leaves such
/// bytes of a record that was never acknowledged. A disk that loses confirmed writes can leave such
/// zeros in place of a synced record, so only records up to `known` were certainly durable. Returns
/// none if there are no such bytes.
pub(in crate::tsdb) fn torn_finding(tail: &Tail, dir: &Path, last_seq: u64, known: u64) -> Option<Finding> {
    let Tail { path, offset, torn_bytes, .. } = tail;
    let what = format!(
        "{torn_bytes} bytes from byte {offset} on are an incomplete record behind record {last_seq}, which may have been \
         answered: the log is known to have been durable up to record {known}"
    );
    let file = path.strip_prefix(dir).unwrap_or(path);
    let finding = Finding::new(Weight::Repairable, file, what).at(*offset).counting(*torn_bytes);
    (*torn_bytes > 0).then_some(finding)
}

/// Converts the position of the replay to a progress step.
fn log_step(place: &ReplayPosition, samples: u64) -> OpenStep {
    let ReplayPosition { file, files, bytes, bytes_all, records } = *place;
    OpenStep { phase: Phase::Log, file, files, done: bytes, all: bytes_all, records, samples }
}

/// Returns whether the samples of a segment are still in their source: in listed segments, or in
/// the log.
fn is_repeated(meta: &SegmentMeta, listed: &OrgManifest, in_log: &std::ops::RangeInclusive<u64>) -> bool {
    let from_segments = !meta.replaces.is_empty();
    let listed = |seq: &u64| listed.segments.iter().any(|other| other.seq == *seq);
    let from_log = in_log.contains(&meta.first_log_seq) && in_log.contains(&meta.last_log_seq);
    if from_segments { meta.replaces.iter().all(listed) } else { from_log }
}

/// Deletions in control whose records may be missing in a damaged log. Each is applied at the
/// position of its record, so that it removes samples of earlier records and keeps those of later
/// ones.
struct Deletions {
    /// The remaining deletions, in order of their record numbers.
    left: VecDeque<(u64, OrgId, Arc<Tombstone>)>,
}

impl Deletions {
    /// Collects the deletions whose records come after `from_seq`.
    fn of(stores: &Stores, from_seq: u64) -> Deletions {
        let mut left = Vec::new();
        for store in stores.all() {
            let set = store.segments();
            let later = set.tombstones.iter().filter(|(_, tombstone)| tombstone.upto_seq > from_seq);
            left.extend(later.map(|(_, tombstone)| (tombstone.upto_seq, store.org, Arc::clone(tombstone))));
        }
        left.sort_by_key(|(seq, org, _)| (*seq, *org));
        Deletions { left: left.into() }
    }

    /// Applies the deletions up to record `seq`, which is about to be applied. If that record is a
    /// deletion itself (`deletes` is its organisation), it is skipped here.
    fn before(
        &mut self,
        seq: u64,
        deletes: Option<OrgId>,
        workers: &mut ReplayWorkers<'_>,
    ) -> Result<(), OpenError> {
        while let Some((upto_seq, org, tombstone)) = self.left.pop_front_if(|(upto, ..)| *upto <= seq) {
            if upto_seq == seq && deletes == Some(org) {
                continue;
            }
            let Tombstone { from_ms, to_ms, series, .. } = (*tombstone).clone();
            let body = Deletion { from_ms, to_ms, series }.encode();
            // The body was just encoded, so it can be decoded.
            let _ = workers.take(Record::read(upto_seq, org, RecordKind::Delete, &body))?;
        }
        Ok(())
    }
}
