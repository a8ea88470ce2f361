//! What is provably good of a damaged store: put into a new folder, or, for the log alone, into its place.
//!
//! The log is written anew from the records that a start would apply. In the place of each one that cannot be read stands
//! a mark with its number, so that the numbers go on without a gap and nothing looks damaged any more; what is lost is
//! told. A segment is copied where every block of it can be read, else written anew without what cannot ([`segments`]). In
//! place the new log is built as `wal.mending`, named `wal.mended`, and takes the place of `wal`, which goes to
//! `quarantine/`: a start that finds `wal.mended` and no `wal` finishes that.

mod segments;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use super::checkpoint;
use super::deletion::Deletion;
use super::disk;
use super::error::{DiskError, OpenError};
use super::manifest::{self, Listed, Manifest, ManifestError};
use super::options::OrgLimits;
use super::segment::{Segment, SegmentWriteError};
use super::series::registry;
use super::side::record;
use super::store::{Record, Stores};
use super::wal::file::{self, LARGE_BYTES, SMALL_BYTES};
use super::wal::record::{FileHeader, Header, Kind, Layout, MAGIC_WAL, Mark, NewRecord, parse_seal};
use super::wal::replay::{self, Begin};
use super::wal::samples::{self, LogSample};
use super::{CheckProgress, Home};
use crate::entropy::Entropy;
use crate::kv::keyed::RecordKey;
use crate::kv::{DamagedRow, Finding, OfflineControl, Weight, with_sources};
use crate::model::{OrgId, StoreId, Timestamp};
use segments::Saving;

/// Lost records that are replaced by marks at most: 4 GiB of them.
const MARKS_MAX: u64 = 100_000_000;
/// Ranges of lost records that are told one by one.
const TOLD_MAX: usize = 100;

/// Why nothing was repaired.
#[derive(Debug, thiserror::Error)]
pub enum RepairError {
    /// The file system refused.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// A file is another store's or a newer version's.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The list of segments cannot be read.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// A row of the accounts is not what was written.
    #[error("the list of segments cannot be read")]
    Row(#[from] DamagedRow),
    /// A segment could not be written anew.
    #[error("a segment cannot be written anew: {0}")]
    Segment(String),
    /// So much is missing that the log cannot be continued behind it.
    #[error("{missing} records are missing, {MARKS_MAX} at most can be replaced by marks")]
    TooManyMissing {
        /// How many.
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

/// What was saved, and what was not.
#[derive(Clone, Debug, Default)]
pub struct Repaired {
    /// The part, and how much in words.
    pub saved: Vec<(&'static str, String)>,
    /// What is lost, or was not copied.
    pub lost: Vec<Finding>,
}

/// Puts what is good of the samples in `dir` into the new folder `to`. Takes what it cannot save out of `control`'s list.
///
/// # Errors
/// [`RepairError`]; what was made in `to` stays.
pub fn repair(
    dir: &Path,
    to: &Path,
    control: &mut OfflineControl,
    rng: &mut Entropy,
    watch: &mut dyn FnMut(CheckProgress),
) -> Result<Repaired, RepairError> {
    let manifest::Known { listed, begin, mark, .. } = manifest::offline(control)?;
    let mut repaired = Repaired::default();
    copy_registries(dir, to, control.store_id())?;
    for name in ["wal", "segments", "head", "quarantine"] {
        disk::create_dir(&to.join(name))?;
    }
    let mut saving = Saving::new(dir, to, control, &mut repaired);
    let mut progress = CheckProgress::default();
    let all = listed.values().flat_map(|listed| &listed.segments);
    progress.files_all = all.clone().count() as u64;
    progress.bytes_all = all.map(|meta| meta.file_bytes).sum();
    for (org, listed) in &listed {
        for meta in &listed.segments {
            saving.segment(*org, meta)?;
            progress.files += 1;
            progress.bytes += meta.file_bytes;
            watch(progress);
        }
    }
    let saved = saving.in_words();
    repaired.saved.push(("segments", saved));
    let upto = manifest::newest_record(&listed, mark);
    let mended = Log::new(dir, control.store_id(), begin, &listed, upto)?
        .mend(&to.join("wal"), RecordKey::random(rng))?;
    repaired.saved.push(("log", format!("{} files, {} records", mended.files, mended.records)));
    repaired.lost.extend(mended.lost);
    disk::sync_dir(to)?;
    Ok(repaired)
}

/// Ends a read-only start: the log of the store is written anew without what cannot be read, the old one is kept in
/// `quarantine/`. Answers what is lost; nothing is changed where nothing is. The folder is locked by the caller.
///
/// # Errors
/// [`RepairError`]; the log is as it was, or as it will be.
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
    let mended = Log::new(dir, home.store, begin, &listed, upto)?.mend(&mending, RecordKey::random(rng))?;
    if mended.lost.is_empty() {
        disk::remove_dir_all(&mending)?;
        return Ok(Vec::new());
    }
    let quarantine = dir.join("quarantine");
    disk::create_dir(&quarantine)?;
    disk::rename(&mending, &dir.join("wal.mended"))?;
    disk::sync_dir(dir)?;
    let wal = dir.join("wal");
    // A log that is gone altogether leaves nothing to keep.
    if wal.exists() {
        let free = (now.as_ms()..).map(|ms| quarantine.join(format!("{ms}-wal"))).find(|path| !path.exists());
        disk::rename(&wal, &free.unwrap_or_else(|| quarantine.join("wal")))?;
    }
    disk::sync_dir(&quarantine)?;
    finish_mending(dir)?;
    Ok(mended.lost)
}

/// Where the log of the folder `dir` is: a start gives a mended log its name where a crash came before that.
pub(super) fn log_dir(dir: &Path) -> PathBuf {
    let (wal, mended) = (dir.join("wal"), dir.join("wal.mended"));
    if mended.exists() && !wal.exists() { mended } else { wal }
}

/// Gives a mended log its name, if a crash came before that.
pub(super) fn finish_mending(dir: &Path) -> Result<(), DiskError> {
    let (wal, mended) = (dir.join("wal"), dir.join("wal.mended"));
    if mended.exists() {
        if wal.exists() {
            // The old log was not moved away: nothing was accepted yet.
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
        // The next start cuts what is not valid and takes those names from segments and log.
        copy(&registry::longest(&from, store, org)?, &registry::path_of(&to, org))?;
    }
    Ok(disk::sync_dir(&to)?)
}

fn copy(from: &Path, to: &Path) -> Result<(), DiskError> {
    let mut source = File::open(from).map_err(DiskError::at("open", from))?;
    let target = disk::create_file(to)?;
    let (mut piece, mut place) = (vec![0; 1 << 20], 0);
    loop {
        let n = source.read(&mut piece).map_err(DiskError::at("read", from))?;
        let Some(bytes) = piece.get(..n).filter(|bytes| !bytes.is_empty()) else { break };
        disk::write_at(&target, to, bytes, place)?;
        place += n as u64;
    }
    disk::sync_file(&target, to)
}

/// A log to be written anew.
struct Log<'l> {
    from: PathBuf,
    store: StoreId,
    begin: Begin,
    listed: &'l BTreeMap<OrgId, Listed>,
    /// Whose series are defined.
    stores: Stores,
    /// The log must go at least that far: control or a checkpoint knows of such a record.
    upto: u64,
}

struct Mended {
    files: u64,
    records: u64,
    lost: Vec<Finding>,
}

impl<'l> Log<'l> {
    fn new(
        dir: &Path,
        store: StoreId,
        begin: Begin,
        listed: &'l BTreeMap<OrgId, Listed>,
        known: u64,
    ) -> Result<Log<'l>, RepairError> {
        let stores = Stores::new([0; 32], OrgLimits::default());
        define_registered(&stores, dir, store)?;
        for (org, listed) in listed {
            define_sealed(&stores, &dir.join("segments").join(org.0.to_string()), store, listed);
        }
        let upto = known.max(checkpoint::newest_replay_seq(&dir.join("head"), store));
        Ok(Log { from: log_dir(dir), store, begin, listed, stores, upto })
    }

    /// Writes it into the directory `to`. The secrets of its files are derived from `key`.
    fn mend(self, to: &Path, key: RecordKey) -> Result<Mended, RepairError> {
        let mut out = Out::new(to, self.store, self.begin, key);
        let mut lost = Lost::default();
        let mut scratch = Vec::new();
        let mut failed: Option<RepairError> = None;
        let damage = if self.from.is_dir() {
            let end = replay::replay(&self.from, self.store, self.begin, 0, &mut |header, body, _| {
                if failed.is_none() {
                    failed = self.take(header, body, &mut scratch, &mut out, &mut lost).err();
                }
                Ok(())
            })?;
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
        Ok(Mended { files, records, lost: lost.findings(damage) })
    }

    fn take(
        &self,
        header: &Header,
        body: &[u8],
        scratch: &mut Vec<LogSample>,
        out: &mut Out<'_>,
        lost: &mut Lost,
    ) -> Result<(), RepairError> {
        let Header { seq, org, kind: Some(kind), .. } = *header else { return Ok(()) };
        if seq > out.next {
            lost.records(out.next, seq - 1);
            out.marks_until(seq)?;
        }
        match kind {
            // It names a file of the old log.
            Kind::Switch => out.marks_until(seq + 1),
            Kind::Samples | Kind::SamplesV1 => {
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
                        out.record(seq, org, Kind::Samples, &filtered)
                    }
                }
            }
            Kind::Histograms | Kind::Exemplars | Kind::Starts => {
                let has = self.has(seq, org);
                match record::keep(kind, body, has) {
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
            Kind::Series | Kind::Metadata => {
                if self.stores.apply(Record::read(seq, org, kind, body), scratch, None).is_err() {
                    lost.records(seq, seq);
                    return out.marks_until(seq + 1);
                }
                out.record(seq, org, kind, body)
            }
            Kind::Seal | Kind::SealAll if parse_seal(body).is_err() => {
                lost.records(seq, seq);
                out.marks_until(seq + 1)
            }
            Kind::Delete if Deletion::decode(body).is_err() => {
                lost.records(seq, seq);
                out.marks_until(seq + 1)
            }
            _ => out.record(seq, org, kind, body),
        }
    }

    /// Takes out the samples of series that nothing defines, but for those that segments have anyway.
    fn drop_orphans(&self, seq: u64, org: OrgId, samples: &mut Vec<LogSample>) -> u64 {
        let has = self.has(seq, org);
        let all = samples.len();
        samples.retain(|sample| has(sample.series, sample.at_ms));
        (all - samples.len()) as u64
    }

    /// Whether something defines a series of a record, or segments have what it says of that time anyway.
    fn has(&self, seq: u64, org: OrgId) -> impl Fn(u32, i64) -> bool + use<> {
        let listed = self.listed.get(&org);
        let (state, all_seq) = listed.map(|listed| (listed.state, listed.sealed_all_seq)).unwrap_or_default();
        let is_sealed = move |at_ms| seq <= all_seq || (seq <= state.seq && at_ms < state.until_ms);
        let store = self.stores.org_or_new(org);
        move |series, at_ms| is_sealed(at_ms) || store.table().knows(series)
    }
}

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

/// The series of segments that can be opened: a start takes their names from there if it must.
fn define_sealed(stores: &Stores, dir: &Path, store: StoreId, listed: &Listed) {
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
                // A name that does not fit defines nothing: its samples are orphans then, as at a start.
                let _ = table.define(id, &pairs, false);
            }
        }
        org.usage.record_table(&table);
    }
}

/// What was lost of a log.
#[derive(Default)]
struct Lost {
    ranges: Vec<(u64, u64)>,
    orphans: u64,
}

impl Lost {
    fn records(&mut self, first: u64, last: u64) {
        match self.ranges.last_mut().filter(|range| range.1 + 1 == first) {
            Some(range) => range.1 = last,
            None => self.ranges.push((first, last)),
        }
    }

    fn findings(self, damage: Vec<String>) -> Vec<Finding> {
        let about = |what: String| Finding::new(Weight::Loss, "wal", what);
        let mut found: Vec<Finding> = damage.into_iter().map(about).collect();
        let told = self.ranges.iter().take(TOLD_MAX).map(|(first, last)| {
            let what = if first == last {
                format!("record {first} is lost")
            } else {
                format!("records {first}-{last} are lost")
            };
            about(what).counting(last - first + 1)
        });
        found.extend(told);
        if let Some((_, rest)) = self.ranges.split_at_checked(TOLD_MAX).filter(|(_, rest)| !rest.is_empty()) {
            let count = rest.iter().map(|(first, last)| last - first + 1).sum();
            found.push(about("more records are lost".to_owned()).counting(count));
        }
        if self.orphans > 0 {
            found.push(
                about("samples of series that nothing defines any more".to_owned()).counting(self.orphans),
            );
        }
        found
    }
}

/// A log being written: file after file, all bytes of each written.
struct Out<'o> {
    dir: &'o Path,
    store: StoreId,
    /// The number of the file at hand.
    number: u64,
    key: RecordKey,
    /// Of the file at hand.
    layout: Layout,
    buffer: Vec<u8>,
    /// The number of the next record.
    next: u64,
    marks: u64,
    records: u64,
    files: u64,
}

impl Out<'_> {
    fn new(dir: &Path, store: StoreId, begin: Begin, key: RecordKey) -> Out<'_> {
        let (number, layout) = (begin.file, Layout::Keyed(key.derive(begin.file, 0)));
        let buffer = vec![0; layout.first_record()];
        Out { dir, store, number, key, layout, buffer, next: begin.seq, marks: 0, records: 0, files: 0 }
    }

    fn record(&mut self, seq: u64, org: OrgId, kind: Kind, body: &[u8]) -> Result<(), RepairError> {
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

    /// Marks in the place of what is not there, up to and without `seq`.
    fn marks_until(&mut self, seq: u64) -> Result<(), RepairError> {
        self.marks += seq.saturating_sub(self.next);
        if self.marks > MARKS_MAX {
            return Err(RepairError::TooManyMissing { missing: self.marks });
        }
        while self.next < seq {
            let next = self.next;
            let body = Mark { durable: next.saturating_sub(1), orgs: Vec::new() }.encode();
            self.record(next, OrgId(0), Kind::Mark, &body)?;
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
