//! Opening a store: what is on disk becomes what is in memory (STORAGE.md section 10, steps 5 to 8).
//!
//! Registry files give the names, the newest generation that holds gives the samples up to its `replay_seq`, the log
//! the rest. A generation that does not hold costs time and nothing else; so does a damaged registry, since the log is
//! not trimmed and has every definition. Only a damaged log costs samples: the store then opens read-only, with
//! everything readable in it, and the damaged files are kept in `quarantine/`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::checkpoint::{self, Folder};
use super::disk;
use super::error::{DiskError, OpenError};
use super::options::Options;
use super::report::{RecoveryMode, RecoveryReport};
use super::series::registry::{self, ReadRegistry};
use super::store::{Record, RowSeqs, Stores};
use super::wal::file::{self, MakeError, NewFile, SMALL_BYTES};
use super::wal::log::Resume;
use super::wal::record::{FILE_HEADER_BYTES, Found, Kind, OrgSpan, find_record};
use super::wal::replay::{self, LogEnd};
use super::wal::samples;
use crate::kv::with_sources;
use crate::model::{OrgId, StoreId, Timestamp};

/// A store that was read.
pub(super) struct Recovered {
    pub(super) stores: Arc<Stores>,
    pub(super) folder: Folder,
    pub(super) wal: PathBuf,
    /// None: read-only, for the reason in the report.
    pub(super) resume: Option<Resume>,
    pub(super) report: RecoveryReport,
}

/// Reads the folder and leaves it so that reading it again gives the same.
pub(super) fn recover(
    dir: &Path,
    store: StoreId,
    options: &Options,
    secret: [u8; 32],
    now: Timestamp,
) -> Result<Recovered, OpenError> {
    let at = |name: &str| dir.join(name);
    let made = make_folder(dir, store, options, now)?;
    let folder = Folder { head: at("head"), series: at("series"), store };
    remove_unfinished(&folder.head)?;
    let mut walk = Recovery { quarantine: at("quarantine"), now, report: RecoveryReport::default() };
    let (stores, done, rows, cuts) = walk.checkpoint(&folder, secret, options)?;
    let from_seq = done.map_or(0, |done| done.replay_seq);
    let end = walk.log(&at("wal"), store, from_seq, &stores, &rows)?;
    walk.count(&stores);
    if made {
        walk.report.mode = RecoveryMode::Fresh;
    }
    let resume = if walk.report.read_only.is_some() {
        None
    } else {
        for (path, end) in cuts {
            // What a checkpoint counted on and cannot be read is no torn tail: it is kept.
            if !walk.report.notes.is_empty() {
                walk.keep(&path, false)?;
            }
            registry::cut(&path, end)?;
        }
        walk.resume(&at("wal"), end)?
    };
    Ok(Recovered { stores: Arc::new(stores), folder, wal: at("wal"), resume, report: walk.report })
}

/// Makes what is missing of the folder; whether the store is a new one.
///
/// The first log file is durable before `series/` and `head/` are made, so that a log without any file beside one of
/// them is a log that was lost and never a store that is still empty.
fn make_folder(dir: &Path, store: StoreId, options: &Options, now: Timestamp) -> Result<bool, OpenError> {
    let wal = dir.join("wal");
    let is_new = !dir.join("series").exists() && !dir.join("head").exists();
    disk::create_dir(dir)?;
    disk::create_dir(&wal)?;
    disk::sync_dir(dir)?;
    remove_unfinished(&wal)?;
    let made = is_new && !disk::names(&wal)?.iter().any(|name| file::number_of(name).is_some());
    if made {
        let first = NewFile { number: 1, before: 0, bytes: SMALL_BYTES, created_ms: now.as_ms() };
        file::make(&options.disk, &wal, store, first).map_err(|e| match e {
            MakeError::Full { free, needed } => OpenError::DiskFull { free, needed },
            MakeError::Disk(e) => e.into(),
        })?;
    }
    for sub in ["series", "head", "quarantine"] {
        disk::create_dir(&dir.join(sub))?;
    }
    disk::sync_dir(dir)?;
    Ok(made)
}

/// Removes what a crash left half made.
fn remove_unfinished(dir: &Path) -> Result<(), DiskError> {
    let names = disk::names(dir)?;
    let unfinished = || names.iter().filter(|name| name.ends_with(".new"));
    for name in unfinished() {
        let path = dir.join(name);
        if path.is_dir() { disk::remove_dir_all(&path) } else { disk::remove_file(&path) }?;
    }
    if unfinished().next().is_some() { disk::sync_dir(dir) } else { Ok(()) }
}

type Cuts = Vec<(PathBuf, registry::End)>;

struct Recovery {
    quarantine: PathBuf,
    now: Timestamp,
    report: RecoveryReport,
}

impl Recovery {
    /// Registries and the newest generation that holds.
    fn checkpoint(
        &mut self,
        folder: &Folder,
        secret: [u8; 32],
        options: &Options,
    ) -> Result<(Stores, Option<checkpoint::Done>, RowSeqs, Cuts), OpenError> {
        let (mut stores, mut cuts) = self.registries(folder, secret, options)?;
        for generation in checkpoint::generations(&folder.head)? {
            let mut rows = RowSeqs::default();
            match checkpoint::load(folder, generation, &stores, &mut rows) {
                Ok(done) => {
                    self.report.mode = RecoveryMode::Checkpoint;
                    let heads = stores.all();
                    let samples = heads.iter().map(|s| s.head.counters.samples.load(Ordering::Relaxed));
                    self.report.checkpoint_samples = samples.sum();
                    let bytes = heads.iter().map(|s| s.head.counters.bytes.load(Ordering::Relaxed));
                    stores.head_bytes.store(bytes.sum(), Ordering::Relaxed);
                    return Ok((stores, Some(done), rows, cuts));
                }
                Err(e) => {
                    self.report
                        .notes
                        .push(format!("generation {generation} cannot be used: {}", with_sources(&e)));
                    // Its rows are in the heads: begin anew.
                    (stores, cuts) = self.registries(folder, secret, options)?;
                }
            }
        }
        Ok((stores, None, RowSeqs::default(), cuts))
    }

    fn registries(
        &mut self,
        folder: &Folder,
        secret: [u8; 32],
        options: &Options,
    ) -> Result<(Stores, Cuts), OpenError> {
        let stores = Stores::new(secret, options.limits.clone());
        let mut cuts = Vec::new();
        let mut scratch = Vec::new();
        for name in disk::names(&folder.series)? {
            let Some(org) = registry::org_of(&name) else { continue };
            let path = folder.series.join(&name);
            let mut on_record = |kind, body: &[u8]| {
                stores.apply(Record { seq: 0, org, kind, body }, &mut scratch, None).is_ok()
            };
            match registry::read(&path, folder.store, org, &mut on_record)? {
                ReadRegistry::Valid(end) => {
                    *stores.org_or_new(org).registry() = end;
                    let bytes = std::fs::metadata(&path).map_err(DiskError::at("look at", &path))?.len();
                    if bytes > end.bytes {
                        cuts.push((path, end));
                    }
                }
                ReadRegistry::Damaged(what) => {
                    self.report
                        .notes
                        .push(format!("{}: {what}; the names come from the log", path.display()));
                    self.keep(&path, true)?;
                }
            }
        }
        Ok((stores, cuts))
    }

    fn log(
        &mut self,
        wal: &Path,
        store: StoreId,
        from_seq: u64,
        stores: &Stores,
        rows: &RowSeqs,
    ) -> Result<LogEnd, OpenError> {
        let (mut samples, mut orphans) = (0, 0);
        let mut scratch = Vec::new();
        let mut unreadable = Vec::new();
        let mut end = replay::replay(wal, store, from_seq, &mut |header, body| {
            let Some(kind) = header.kind else { return };
            match stores.apply(
                Record { seq: header.seq, org: header.org, kind, body },
                &mut scratch,
                Some(rows),
            ) {
                Ok(outcome) => {
                    samples += outcome.stored;
                    orphans += outcome.orphans;
                }
                Err(e) if unreadable.len() < 10 => unreadable.push(format!("record {}: {e}", header.seq)),
                Err(_) => {}
            }
        })?;
        self.report.records = end.records;
        self.report.samples = samples;
        self.report.orphans = orphans;
        self.report.last_seq = end.last_seq.max(from_seq);
        if end.files > 0 && self.report.mode == RecoveryMode::Fresh {
            self.report.mode = RecoveryMode::Log;
        }
        let mut texts = unreadable;
        if let Some(damage) = end.damage.take() {
            for path in &damage.files {
                self.keep(path, false)?;
            }
            texts.insert(0, damage.text);
        }
        if end.files == 0 {
            texts.push(format!("{} holds no log file: what was only there is lost", wal.display()));
        }
        for path in end.tail.iter().map(|tail| &tail.path).chain(&end.spares) {
            if let Some(text) = replay::cut_short(path)? {
                texts.push(text);
                self.keep(path, false)?;
            }
        }
        // Nothing trims the log before segments exist; then what it held and the seals say whether it may be gone.
        if let Some(gone) = &end.gone {
            texts.push(format!("log file {} is missing", gone.number));
        }
        if end.last_seq < from_seq {
            texts.push(format!(
                "the log in {} ends at record {}, the checkpoint at {from_seq}",
                wal.display(),
                end.last_seq
            ));
        }
        if orphans > 0 {
            texts.push(format!("{orphans} samples are of series that nothing defines"));
        }
        if !texts.is_empty() {
            self.report.read_only = Some(texts.join("; "));
        }
        Ok(end)
    }

    /// Keeps a damaged file in `quarantine/`: moved where it is in the way, else copied, and copied only once.
    fn keep(&mut self, path: &Path, moved: bool) -> Result<(), OpenError> {
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

    fn count(&mut self, stores: &Stores) {
        self.report.series = stores.all().iter().map(|store| u64::from(store.table().live())).sum();
    }

    /// Where the log goes on: after its last record, the torn tail cleared, spares removed. None: there is no log.
    fn resume(&mut self, wal: &Path, end: LogEnd) -> Result<Option<Resume>, DiskError> {
        for spare in &end.spares {
            disk::remove_file(spare)?;
        }
        if !end.spares.is_empty() {
            disk::sync_dir(wal)?;
        }
        let files = end.files - end.spares.len() as u64;
        let last_seq = end.last_seq;
        let Some(tail) = end.tail else { return Ok(None) };
        self.report.trimmed_bytes = tail.torn_bytes as u64;
        let file = replay::resume(&tail)?;
        let records = tail.content.get(FILE_HEADER_BYTES..tail.offset).unwrap_or_default();
        let spans = spans(records);
        let first_mark = records.is_empty().then(|| {
            let before = tail.content_before.get(FILE_HEADER_BYTES..).unwrap_or_default();
            self::spans(before).into_values().collect()
        });
        let offset = u32::try_from(tail.offset).unwrap_or(u32::MAX);
        Ok(Some(Resume { file, offset, first_mark, last_seq, spans, files, file_bytes: end.file_bytes }))
    }
}

/// What a file holds of each organisation, for the first mark of the next one.
fn spans(records: &[u8]) -> BTreeMap<OrgId, OrgSpan> {
    let mut spans = BTreeMap::new();
    let mut scratch = Vec::new();
    let mut rest = records;
    while let Found::Record(header, body, bytes) = find_record(rest) {
        rest = rest.get(bytes..).unwrap_or_default();
        let org = header.org;
        if matches!(header.kind, Some(Kind::Mark | Kind::Switch)) {
            continue;
        }
        let span = spans.entry(org).or_insert(OrgSpan { org, greatest_ms: i64::MIN, last_seq: 0 });
        span.last_seq = header.seq;
        if header.kind == Some(Kind::Samples) && samples::decode(body, &mut scratch).is_ok() {
            let greatest = scratch.iter().map(|sample| sample.at_ms).max();
            span.greatest_ms = span.greatest_ms.max(greatest.unwrap_or(i64::MIN));
        }
    }
    spans
}
