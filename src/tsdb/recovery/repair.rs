//! Repairs a damaged store: copies all verified data into a new folder, or rewrites only the log in
//! place.
//!
//! The log is rewritten from the records that a start would apply. Each unreadable record is
//! replaced by a mark with its number, so that the numbers continue without a gap and the new log
//! has no damage. Losses are reported. A segment is copied if every block of it can be read,
//! otherwise rewritten without the unreadable ones ([`segments`]). In place, the new log is built
//! as `wal.mending` and renamed to `wal.mended`. Then it replaces `wal`, which is moved to
//! `quarantine/`. A start that finds `wal.mended` and no `wal` completes this.

mod segments;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use super::check::CheckProgress;
use super::open;
use crate::entropy::Entropy;
use crate::kv::keyed::RecordKey;
use crate::kv::{DamagedRow, Finding, OfflineControl, Weight, with_sources};
use crate::model::{OrgId, StoreId, Timestamp};
use crate::tsdb::disk;
use crate::tsdb::error::ManifestError;
use crate::tsdb::error::{DiskError, OpenError};
use crate::tsdb::maintenance::checkpoint;
use crate::tsdb::options::Home;
use crate::tsdb::options::OrgLimits;
use crate::tsdb::segment::{Segment, SegmentWriteError};
use crate::tsdb::series::registry;
use crate::tsdb::side_data::record;
use crate::tsdb::store::deletion::Deletion;
use crate::tsdb::store::manifest::{self, Manifest, OrgManifest};
use crate::tsdb::store::{Record, Stores};
use crate::tsdb::wal::file::{self, LARGE_BYTES, SMALL_BYTES};
use crate::tsdb::wal::record::{
    FileHeader, Layout, MAGIC_WAL, Mark, NewRecord, RecordHeader, RecordKind, parse_seal,
};
use crate::tsdb::wal::replay::{self, LogOrigin};
use crate::tsdb::wal::samples::{self, LogSample};
use segments::SegmentRepair;

/// The limit of marks for lost records: 4 GiB of them.
const MARKS_MAX: u64 = 100_000_000;
/// The limit of ranges of lost records that are reported one by one.
const REPORTED_MAX: usize = 100;

/// The reason why a repair failed.
#[derive(Debug, thiserror::Error)]
pub enum RepairError {
    /// A file operation failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// A file belongs to another store or a newer version.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The list of segments cannot be read.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// A row of the accounts' database is damaged.
    #[error("the list of segments cannot be read")]
    Row(#[from] DamagedRow),
    /// A segment could not be rewritten.
    #[error("a segment cannot be rewritten: {0}")]
    Segment(String),
    /// Too many records are missing for the log to be continued after them.
    #[error("{missing} records are missing; at most {MARKS_MAX} can be replaced by marks")]
    TooManyMissing {
        /// The number of missing records.
        missing: u64,
    },
    /// A changed row cannot be stored.
    #[error("the list of segments cannot be changed: {0}")]
    List(String),
}

impl From<SegmentWriteError> for RepairError {
    fn from(error: SegmentWriteError) -> RepairError {
        RepairError::Segment(with_sources(&error))
    }
}

/// The result of a repair.
#[derive(Clone, Debug, Default)]
pub struct Repaired {
    /// The saved parts, each with a description of its amount.
    pub saved: Vec<(&'static str, String)>,
    /// The data that is lost or was not copied.
    pub lost: Vec<Finding>,
}

/// Copies the verified samples of `dir` into the new folder `to`. Removes everything that it cannot
/// save from the list in `control`.
///
/// # Errors
/// [`RepairError`]. The files created in `to` remain.
pub fn repair(
    dir: &Path,
    to: &Path,
    control: &mut OfflineControl,
    rng: &mut Entropy,
    watch: &mut dyn FnMut(CheckProgress),
) -> Result<Repaired, RepairError> {
    let manifest::StoreManifest { listed, begin, mark, .. } = manifest::offline(control)?;
    let mut repaired = Repaired::default();
    copy_registries(dir, to, control.store_id())?;
    for name in ["wal", "segments", "head", "quarantine"] {
        disk::create_dir(&to.join(name))?;
    }
    let mut segments_repair = SegmentRepair::new(dir, to, control, &mut repaired);
    let mut progress = CheckProgress::default();
    let all = listed.values().flat_map(|listed| &listed.segments);
    progress.files_all = all.clone().count() as u64;
    progress.bytes_all = all.map(|meta| meta.file_bytes).sum();
    for (org, listed) in &listed {
        for meta in &listed.segments {
            segments_repair.segment(*org, meta)?;
            progress.files += 1;
            progress.bytes += meta.file_bytes;
            watch(progress);
        }
    }
    let saved = segments_repair.description();
    repaired.saved.push(("segments", saved));
    let upto = manifest::newest_record(&listed, mark);
    let mended = LogRewrite::new(dir, control.store_id(), begin, &listed, upto)?
        .mend(&to.join("wal"), RecordKey::random(rng))?;
    repaired.saved.push(("log", format!("{} files, {} records", mended.files, mended.records)));
    repaired.lost.extend(mended.lost);
    repaired.lost.extend(mended.torn);
    disk::sync_dir(to)?;
    Ok(repaired)
}

/// Ends a read-only start: rewrites the log without its unreadable records, and moves the old log
/// to `quarantine/`. Returns the losses, and changes nothing if there are none. The caller holds
/// the lock of the folder.
///
/// # Errors
/// [`RepairError`]. The log is then either unchanged or completely rewritten.
pub fn accept_loss(home: &Home<'_>, rng: &mut Entropy, now: Timestamp) -> Result<Vec<Finding>, RepairError> {
    let dir = home.dir;
    finish_mending(dir)?;
    let manifest = Manifest::new(std::sync::Arc::clone(&home.control));
    let (listed, begin) = (manifest.read()?, manifest.log_begin()?);
    let mending = dir.join("wal.mending");
    if mending.exists() {
        disk::remove_dir_all(&mending)?;
    }
    disk::create_dir(&mending)?;
    let upto = manifest::newest_record(&listed, manifest.log_mark()?);
    let mended =
        LogRewrite::new(dir, home.store, begin, &listed, upto)?.mend(&mending, RecordKey::random(rng))?;
    if mended.lost.is_empty() {
        disk::remove_dir_all(&mending)?;
        return Ok(Vec::new());
    }
    let quarantine = dir.join("quarantine");
    disk::create_dir(&quarantine)?;
    disk::rename(&mending, &dir.join("wal.mended"))?;
    disk::sync_dir(dir)?;
    let wal = dir.join("wal");
    // A log that is lost altogether leaves nothing to keep.
    if wal.exists() {
        let free = (now.as_ms()..).map(|ms| quarantine.join(format!("{ms}-wal"))).find(|path| !path.exists());
        disk::rename(&wal, &free.unwrap_or_else(|| quarantine.join("wal")))?;
    }
    disk::sync_dir(&quarantine)?;
    finish_mending(dir)?;
    Ok(mended.lost.into_iter().chain(mended.torn).collect())
}

/// Returns the folder of the log: `wal`, or the mended log if a crash came before it was renamed.
pub(in crate::tsdb) fn log_dir(dir: &Path) -> PathBuf {
    let (wal, mended) = (dir.join("wal"), dir.join("wal.mended"));
    if mended.exists() && !wal.exists() { mended } else { wal }
}

/// Renames a mended log, if a crash came before that.
pub(in crate::tsdb) fn finish_mending(dir: &Path) -> Result<(), DiskError> {
    let (wal, mended) = (dir.join("wal"), dir.join("wal.mended"));
    if mended.exists() {
        if wal.exists() {
            // The old log was not moved away, so the loss was not accepted yet.
            disk::remove_dir_all(&mended)?;
        } else {
            disk::rename(&mended, &wal)?;
        }
        disk::sync_dir(dir)?;
    }
    Ok(())
}

fn copy_registries(dir: &Path, to: &Path, store: StoreId) -> Result<(), RepairError> {
    let (from, to) = (dir.join("series"), to.join("series"));
    disk::create_dir(&to)?;
    for org in registry::orgs_in(&from)? {
        // The next start cuts invalid bytes and takes those names from segments and log.
        copy(&registry::longest(&from, store, org)?, &registry::path_of(&to, org))?;
    }
    Ok(disk::sync_dir(&to)?)
}

fn copy(from: &Path, to: &Path) -> Result<(), DiskError> {
    let mut source = File::open(from).map_err(DiskError::at("open", from))?;
    let target = disk::create_file(to)?;
    let (mut buffer, mut offset) = (vec![0; 1 << 20], 0);
    loop {
        let n = source.read(&mut buffer).map_err(DiskError::at("read", from))?;
        let Some(bytes) = buffer.get(..n).filter(|bytes| !bytes.is_empty()) else { break };
        disk::write_at(&target, to, bytes, offset)?;
        offset += n as u64;
    }
    disk::sync_file(&target, to)
}

/// The log to rewrite.
struct LogRewrite<'l> {
    from: PathBuf,
    store: StoreId,
    begin: LogOrigin,
    listed: &'l BTreeMap<OrgId, OrgManifest>,
    /// The stores with the defined series.
    stores: Stores,
    /// The last record that control or a checkpoint knows. The new log must reach it.
    upto: u64,
}

/// A rewritten log.
struct Mended {
    files: u64,
    records: u64,
    lost: Vec<Finding>,
    /// An incomplete record at the end, which was not copied. A start clears and reports it.
    torn: Option<Finding>,
}

impl<'l> LogRewrite<'l> {
    fn new(
        dir: &Path,
        store: StoreId,
        begin: LogOrigin,
        listed: &'l BTreeMap<OrgId, OrgManifest>,
        known: u64,
    ) -> Result<LogRewrite<'l>, RepairError> {
        let stores = Stores::new([0; 32], OrgLimits::default());
        define_registered(&stores, dir, store)?;
        for (org, listed) in listed {
            define_sealed(&stores, &dir.join("segments").join(org.0.to_string()), store, listed);
        }
        let upto = known.max(checkpoint::newest_replay_seq(&dir.join("head"), store));
        Ok(LogRewrite { from: log_dir(dir), store, begin, listed, stores, upto })
    }

    /// Writes the new log into the directory `to`. The secrets of its files are derived from `key`.
    fn mend(self, to: &Path, key: RecordKey) -> Result<Mended, RepairError> {
        let mut out = LogOutput::new(to, self.store, self.begin, key);
        let mut lost = LostRecords::default();
        let mut scratch = Vec::new();
        let mut failed: Option<RepairError> = None;
        let mut torn = None;
        let damage = if self.from.is_dir() {
            let end = replay::replay(&self.from, self.store, self.begin, 0, &mut |header, body, _| {
                if failed.is_none() {
                    failed = self.take(header, body, &mut scratch, &mut out, &mut lost).err();
                }
                Ok(())
            })?;
            if let Some(tail) = end.tail.as_ref().filter(|_| end.damage.is_none()) {
                let dir = self.from.parent().unwrap_or(&self.from);
                torn = open::torn_finding(tail, dir, end.last_seq, self.upto);
            }
            let mut texts: Vec<String> = end.damage.into_iter().map(|damage| damage.text).collect();
            for path in end.tail.iter().map(|tail| &tail.path).chain(&end.spares) {
                texts.extend(replay::cut_short(path)?);
            }
            if end.files == 0 {
                texts.push("the log has no file".to_owned());
            }
            texts
        } else {
            vec!["there is no log".to_owned()]
        };
        if let Some(e) = failed {
            return Err(e);
        }
        if out.next <= self.upto {
            lost.records(out.next, self.upto);
            out.marks_until(self.upto + 1)?;
        }
        let (files, records) = out.finish()?;
        Ok(Mended { files, records, lost: lost.findings(damage), torn })
    }

    /// Copies a record, or replaces it by a mark.
    fn take(
        &self,
        header: &RecordHeader,
        body: &[u8],
        scratch: &mut Vec<LogSample>,
        out: &mut LogOutput<'_>,
        lost: &mut LostRecords,
    ) -> Result<(), RepairError> {
        let RecordHeader { seq, org, kind: Some(kind), .. } = *header else { return Ok(()) };
        if seq > out.next {
            lost.records(out.next, seq - 1);
            out.marks_until(seq)?;
        }
        match kind {
            // The record names a file of the old log.
            RecordKind::Switch => out.marks_until(seq + 1),
            RecordKind::Samples | RecordKind::SamplesV1 => {
                if samples::decode(kind, body, scratch).is_err() {
                    lost.records(seq, seq);
                    return out.marks_until(seq + 1);
                }
                let orphans = self.drop_orphans(seq, org, scratch);
                lost.orphans += orphans;
                let mut filtered = Vec::new();
                match (orphans, scratch.is_empty()) {
                    (0, _) => out.record(seq, org, kind, body),
                    (_, true) => out.marks_until(seq + 1),
                    (_, false) => {
                        samples::encode(&mut filtered, scratch);
                        out.record(seq, org, RecordKind::Samples, &filtered)
                    }
                }
            }
            RecordKind::Histograms | RecordKind::Exemplars | RecordKind::Starts => {
                let has = self.has(seq, org);
                match record::filter(kind, body, has) {
                    Err(_) => {
                        lost.records(seq, seq);
                        out.marks_until(seq + 1)
                    }
                    Ok((_, 0)) => out.record(seq, org, kind, body),
                    Ok((kept, orphans)) => {
                        lost.orphans += orphans;
                        match kept {
                            Some(kept) => out.record(seq, org, kind, &kept),
                            None => out.marks_until(seq + 1),
                        }
                    }
                }
            }
            RecordKind::Series | RecordKind::Metadata => {
                if self.stores.apply(Record::read(seq, org, kind, body), scratch, None).is_err() {
                    lost.records(seq, seq);
                    return out.marks_until(seq + 1);
                }
                out.record(seq, org, kind, body)
            }
            RecordKind::Seal | RecordKind::SealAll if parse_seal(body).is_err() => {
                lost.records(seq, seq);
                out.marks_until(seq + 1)
            }
            RecordKind::Delete if Deletion::decode(body).is_err() => {
                lost.records(seq, seq);
                out.marks_until(seq + 1)
            }
            _ => out.record(seq, org, kind, body),
        }
    }

    /// Removes the samples of undefined series, except those that are in segments as well. Returns
    /// their number.
    fn drop_orphans(&self, seq: u64, org: OrgId, samples: &mut Vec<LogSample>) -> u64 {
        let has = self.has(seq, org);
        let all = samples.len();
        samples.retain(|sample| has(sample.series, sample.at_ms));
        (all - samples.len()) as u64
    }

    /// Returns a predicate for samples of a record: the series is defined, or segments hold the
    /// sample as well.
    fn has(&self, seq: u64, org: OrgId) -> impl Fn(u32, i64) -> bool + use<> {
        let listed = self.listed.get(&org);
        let (state, all_seq) = listed.map(|listed| (listed.state, listed.sealed_all_seq)).unwrap_or_default();
        let is_sealed = move |at_ms| seq <= all_seq || (seq <= state.seq && at_ms < state.until_ms);
        let store = self.stores.org_or_new(org);
        move |series, at_ms| is_sealed(at_ms) || store.table().knows(series)
    }
}

/// Defines the series of the registries.
fn define_registered(stores: &Stores, dir: &Path, store: StoreId) -> Result<(), RepairError> {
    let series = dir.join("series");
    let mut scratch = Vec::new();
    for org in registry::orgs_in(&series)? {
        let path = registry::longest(&series, store, org)?;
        registry::read(&path, store, org, &mut |kind, body| {
            stores.apply(Record::read(0, org, kind, body), &mut scratch, None).is_ok()
        })?;
    }
    Ok(())
}

/// Defines the series of all readable segments, from which a start takes names if it must.
fn define_sealed(stores: &Stores, dir: &Path, store: StoreId, listed: &OrgManifest) {
    for meta in &listed.segments {
        let Ok(segment) = Segment::open(dir, store, meta) else { continue };
        let org = stores.org_or_new(meta.org);
        let mut table = org.table_mut();
        for family in 0..segment.families() {
            for row in 0..segment.ids(family).map_or(0, |ids| ids.len()) {
                let Some(id) = segment.ids(family).and_then(|ids| ids.get(row)) else { continue };
                if table.knows(id) {
                    continue;
                }
                let Ok(labels) = segment.series_labels(family, row) else { continue };
                let pairs: Vec<(&str, &str)> = labels.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
                // An invalid name defines no series. Its samples are then orphans, as at a start.
                let _ = table.define(id, &pairs);
            }
        }
        org.usage.record_table(&table);
    }
}

/// The losses of a log.
#[derive(Default)]
struct LostRecords {
    ranges: Vec<(u64, u64)>,
    orphans: u64,
}

impl LostRecords {
    fn records(&mut self, first: u64, last: u64) {
        match self.ranges.last_mut().filter(|range| range.1 + 1 == first) {
            Some(range) => range.1 = last,
            None => self.ranges.push((first, last)),
        }
    }

    fn findings(self, damage: Vec<String>) -> Vec<Finding> {
        let about = |what: String| Finding::new(Weight::Loss, "wal", what);
        let mut found: Vec<Finding> = damage.into_iter().map(about).collect();
        let reported = self.ranges.iter().take(REPORTED_MAX).map(|(first, last)| {
            let what = if first == last {
                format!("record {first} is lost")
            } else {
                format!("records {first}-{last} are lost")
            };
            about(what).counting(last - first + 1)
        });
        found.extend(reported);
        if let Some((_, rest)) =
            self.ranges.split_at_checked(REPORTED_MAX).filter(|(_, rest)| !rest.is_empty())
        {
            let count = rest.iter().map(|(first, last)| last - first + 1).sum();
            found.push(about("more records are lost".to_owned()).counting(count));
        }
        if self.orphans > 0 {
            found.push(about("samples of series without a definition".to_owned()).counting(self.orphans));
        }
        found
    }
}

/// A writer of log files. It writes all bytes of each file.
struct LogOutput<'o> {
    dir: &'o Path,
    store: StoreId,
    /// The number of the current file.
    number: u64,
    key: RecordKey,
    /// The layout of the current file.
    layout: Layout,
    buffer: Vec<u8>,
    /// The number of the next record.
    next: u64,
    marks: u64,
    records: u64,
    files: u64,
}

impl LogOutput<'_> {
    fn new(dir: &Path, store: StoreId, begin: LogOrigin, key: RecordKey) -> LogOutput<'_> {
        let (number, layout) = (begin.file, Layout::Keyed(key.derive(begin.file, 0)));
        let buffer = vec![0; layout.first_record()];
        LogOutput { dir, store, number, key, layout, buffer, next: begin.seq, marks: 0, records: 0, files: 0 }
    }

    fn record(&mut self, seq: u64, org: OrgId, kind: RecordKind, body: &[u8]) -> Result<(), RepairError> {
        let room = LARGE_BYTES as usize;
        let is_empty = self.buffer.len() <= self.layout.first_record();
        if self.buffer.len() + self.layout.record_bytes(body.len()) > room && !is_empty {
            self.end_file(LARGE_BYTES)?;
        }
        let record = NewRecord { seq, org, kind, durable: seq.saturating_sub(1) };
        self.layout.put(&mut self.buffer, record, body);
        self.next = seq + 1;
        self.records += 1;
        Ok(())
    }

    /// Writes marks in place of missing records, up to and excluding `seq`.
    fn marks_until(&mut self, seq: u64) -> Result<(), RepairError> {
        self.marks += seq.saturating_sub(self.next);
        if self.marks > MARKS_MAX {
            return Err(RepairError::TooManyMissing { missing: self.marks });
        }
        while self.next < seq {
            let next = self.next;
            let body = Mark { durable: next.saturating_sub(1), orgs: Vec::new() }.encode();
            self.record(next, OrgId(0), RecordKind::Mark, &body)?;
        }
        Ok(())
    }

    fn end_file(&mut self, at_least: u32) -> Result<(), RepairError> {
        let bytes = self.buffer.len().max(at_least as usize);
        let file_bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let number = self.number;
        let header = FileHeader {
            file_bytes,
            store: self.store,
            number,
            created_ms: 0,
            before: number.saturating_sub(1),
            layout: self.layout,
        };
        let head = header.encode(MAGIC_WAL);
        self.buffer.iter_mut().zip(head).for_each(|(to, from)| *to = from);
        let path: PathBuf = file::path_of(self.dir, number);
        let file = disk::create_file(&path)?;
        disk::write_file(&file, &path, &self.buffer, u64::from(file_bytes))?;
        self.number += 1;
        self.layout = Layout::Keyed(self.key.derive(self.number, 0));
        self.buffer.truncate(self.layout.first_record());
        self.files += 1;
        Ok(())
    }

    fn finish(mut self) -> Result<(u64, u64), RepairError> {
        self.end_file(SMALL_BYTES)?;
        disk::sync_dir(self.dir)?;
        Ok((self.files, self.records))
    }
}
