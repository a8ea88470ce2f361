//! The samples' part of `promlet check`. It reads every valid file and changes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::open;
use super::repair;
use crate::kv::{Finding, OfflineControl, Weight, with_sources};
use crate::model::{HistogramColumns, OrgId, StoreId, Timestamp};
use crate::tsdb::disk;
use crate::tsdb::error::{DiskError, OpenError};
use crate::tsdb::maintenance::checkpoint;
use crate::tsdb::options::Options;
use crate::tsdb::report::{RecoveryReport, SampleColumns};
use crate::tsdb::segment::{HISTOGRAMS, Segment, SegmentDamage, SegmentError, SegmentMeta};
use crate::tsdb::series::registry::{self, ReadRegistry};
use crate::tsdb::side_data::sealed;
use crate::tsdb::store::manifest::{self, OrgManifest, StoreManifest};
use crate::tsdb::wal::replay::{self, LogEnd, LogOrigin};
use crate::tsdb::wal::samples;

/// The limit of damaged blocks of one segment that are reported one by one.
const BLOCKS_REPORTED_MAX: u64 = 100;

/// The progress of a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckProgress {
    /// Files completed.
    pub files: u64,
    /// Files in total.
    pub files_all: u64,
    /// Bytes completed.
    pub bytes: u64,
    /// Bytes in total.
    pub bytes_all: u64,
}

/// The result of a check.
#[derive(Clone, Debug, Default)]
pub struct Checked {
    /// The parts that were read, each with a description of its amount.
    pub seen: Vec<(&'static str, String)>,
    /// The problems found.
    pub findings: Vec<Finding>,
}

/// Checks the samples of the stopped folder or backup `dir`, whose accounts have already been read.
/// `deep` reads every block. `scratch` is a folder that does not exist; it is created for copies of
/// checkpoints and removed afterwards.
///
/// The findings of a start come from the function that a start uses. The rest of the check adds
/// offsets and details, and reads the files that a start does not read.
///
/// # Errors
/// [`OpenError`] if a file cannot be read, or belongs to another store or a newer version. Damage
/// is not an error.
pub fn check(
    dir: &Path,
    control: &OfflineControl,
    deep: bool,
    scratch: &Path,
    watch: &mut dyn FnMut(CheckProgress),
) -> Result<Checked, OpenError> {
    let mut check = StoreCheck {
        dir,
        store: control.store_id(),
        deep,
        watch,
        progress: CheckProgress::default(),
        checked: Checked::default(),
    };
    let StoreManifest { listed, dropped, begin, mark } = match manifest::offline(control) {
        Ok(known) => known,
        Err(bad) => {
            check.find(Finding::new(
                Weight::Loss,
                "control",
                format!("the list of segments cannot be read: {bad}"),
            ));
            StoreManifest::default()
        }
    };
    let known = StoreManifest { listed: listed.clone(), dropped, begin, mark };
    let all = listed.values().flat_map(|listed| &listed.segments);
    check.progress.files_all = all.clone().count() as u64;
    check.progress.bytes_all = all.map(|meta| meta.file_bytes).sum();
    check.segments(&listed)?;
    let start = rehearse(dir, scratch, check.store, known)?;
    check.log(begin, mark, &listed, start.read_only.is_some())?;
    check.registries(&listed)?;
    check.generations()?;
    check.add_start(start.findings);
    Ok(check.checked)
}

/// Returns the report of a start, by the start's own function, without any change to the folder.
fn rehearse(
    dir: &Path,
    scratch: &Path,
    store: StoreId,
    known: StoreManifest,
) -> Result<RecoveryReport, OpenError> {
    disk::create_dir(scratch)?;
    let report = copy_generations(&dir.join("head"), scratch).map_err(OpenError::from).and_then(|()| {
        let options = Options { decoded_bytes_max: 0, ..Options::default() };
        open::look(dir, scratch.to_owned(), store, known, &options)
    });
    disk::remove_dir_all(scratch)?;
    report
}

/// Copies `head/`, since sled opens no database without writing to it.
fn copy_generations(from: &Path, to: &Path) -> Result<(), DiskError> {
    if !from.is_dir() {
        return Ok(());
    }
    for entry in std::fs::read_dir(from).map_err(DiskError::at("list", from))? {
        let path = entry.map_err(DiskError::at("list", from))?.path();
        let target = to.join(path.file_name().unwrap_or_default());
        if path.is_dir() {
            disk::create_dir(&target)?;
            copy_generations(&path, &target)?;
        } else if path.is_file() {
            std::fs::copy(&path, &target).map_err(DiskError::at("copy", &path))?;
        }
    }
    Ok(())
}

/// The state of a check.
struct StoreCheck<'w> {
    dir: &'w Path,
    store: StoreId,
    deep: bool,
    watch: &'w mut dyn FnMut(CheckProgress),
    progress: CheckProgress,
    checked: Checked,
}

impl StoreCheck<'_> {
    fn find(&mut self, finding: Finding) {
        self.checked.findings.push(finding);
    }

    fn relative(&self, path: &Path) -> PathBuf {
        path.strip_prefix(self.dir).unwrap_or(path).to_owned()
    }

    fn segments(&mut self, listed: &BTreeMap<OrgId, OrgManifest>) -> Result<(), OpenError> {
        let (mut files, mut samples, mut bytes) = (0_u64, 0_u64, 0_u64);
        for (org, listed) in listed {
            let dir = self.dir.join("segments").join(org.0.to_string());
            for meta in &listed.segments {
                self.segment(&dir, meta)?;
                files += 1;
                samples += meta.samples;
                bytes += meta.file_bytes;
                self.progress.files += 1;
                self.progress.bytes += meta.file_bytes;
                (self.watch)(self.progress);
            }
            self.unlisted(&dir, listed)?;
        }
        let how = if self.deep { "all blocks read" } else { "opened, blocks not read" };
        self.checked
            .seen
            .push(("segments", format!("{files} files, {samples} samples, {bytes} bytes; {how}")));
        Ok(())
    }

    fn segment(&mut self, dir: &Path, meta: &SegmentMeta) -> Result<(), OpenError> {
        let file = self.relative(&dir.join(meta.file_name()));
        let lost = |what: String| Finding {
            org: Some(meta.org),
            range: Some((Timestamp::from_ms(meta.min_ms), Timestamp::from_ms(meta.max_ms))),
            count: Some(meta.samples),
            ..Finding::new(Weight::Loss, file.clone(), what)
        };
        match Segment::open(dir, self.store, meta) {
            Err(SegmentError::Newer { path, version, known }) => {
                let what = format!("segment of version {version}, {known} is the newest known");
                Err(OpenError::Foreign { path, what })
            }
            Err(SegmentError::Disk(e)) => Err(e.into()),
            Err(SegmentError::Damaged(damage)) => {
                self.find(lost(format!("the segment cannot be opened: {}", damage.what)).at(damage.offset));
                Ok(())
            }
            Err(e) => {
                self.find(lost(with_sources(&e)));
                Ok(())
            }
            Ok(segment) => {
                if self.deep
                    && let Err(damage) = segment.verify(true)
                {
                    self.blocks(&segment, &file, &damage);
                }
                Ok(())
            }
        }
    }

    /// Reports the unreadable blocks of a damaged segment.
    fn blocks(&mut self, segment: &Segment, file: &Path, first: &SegmentDamage) {
        let org = segment.meta().org;
        let mut reported = 0;
        each_bad_block(segment, &mut |bad| {
            reported += 1;
            if reported <= BLOCKS_REPORTED_MAX {
                self.checked.findings.push(bad.finding(org, file));
            }
        });
        if reported == 0 {
            let what = format!("the damage is outside of all blocks: {}", first.what);
            self.find(Finding { org: Some(org), ..Finding::new(Weight::Loss, file, what).at(first.offset) });
        } else if reported > BLOCKS_REPORTED_MAX {
            let what = "more damaged blocks";
            self.find(Finding::new(Weight::Loss, file, what).counting(reported - BLOCKS_REPORTED_MAX));
        }
    }

    /// Reports unlisted segment files.
    fn unlisted(&mut self, dir: &Path, listed: &OrgManifest) -> Result<(), OpenError> {
        if !dir.is_dir() {
            return Ok(());
        }
        let known: BTreeSet<String> = listed.segments.iter().map(SegmentMeta::file_name).collect();
        for name in disk::names(dir)?.into_iter().filter(|name| !known.contains(name)) {
            let going = listed.obsolete.iter().any(|(_, obsolete)| obsolete.file == name);
            let what = if going {
                "no longer listed; the next start removes it"
            } else {
                "not listed; the next start removes it if its samples are elsewhere, otherwise moves it to quarantine"
            };
            let weight = if going { Weight::Note } else { Weight::Repairable };
            self.find(Finding::new(weight, self.relative(&dir.join(name)), what));
        }
        Ok(())
    }

    /// Adds the findings of a start, unless a more exact finding about the same file is known.
    fn add_start(&mut self, findings: Vec<Finding>) {
        for finding in findings {
            let is_known = self.checked.findings.iter().any(|known| {
                known.weight >= finding.weight
                    && (known.file == finding.file || known.file.starts_with(&finding.file))
            });
            if !is_known {
                self.find(finding);
            }
        }
    }

    /// Reads the whole log, including the part that a checkpoint covers and a start does not read.
    /// `is_lost` is true if a start would be read-only. Otherwise segments or the checkpoint hold
    /// the unreadable records.
    fn log(
        &mut self,
        begin: LogOrigin,
        mark: u64,
        listed: &BTreeMap<OrgId, OrgManifest>,
        is_lost: bool,
    ) -> Result<(), OpenError> {
        let weight = if is_lost { Weight::Loss } else { Weight::Repairable };
        let elsewhere = if is_lost { "" } else { "; segments or the checkpoint have it" };
        let wal = repair::log_dir(self.dir);
        if !wal.is_dir() {
            if is_lost {
                self.find(Finding::new(
                    weight,
                    "wal",
                    "there is no log: records that were only there are lost",
                ));
            }
            return Ok(());
        }
        let replay_seq = checkpoint::newest_replay_seq(&self.dir.join("head"), self.store);
        let (mut samples, mut scratch) = (0_u64, Vec::new());
        let mut undecodable = Vec::new();
        let end: LogEnd = replay::replay(&wal, self.store, begin, 0, &mut |header, body, _| {
            let Some(kind) = header.kind.filter(|kind| kind.is_samples()) else { return Ok(()) };
            match samples::decode(kind, body, &mut scratch) {
                Ok(()) => samples += scratch.len() as u64,
                Err(damage) => undecodable.push((header.seq, header.org, damage)),
            }
            Ok(())
        })?;
        let known = manifest::newest_record(listed, mark).max(replay_seq);
        if let Some(damage) = &end.damage {
            let path = damage.files.first().map_or_else(|| PathBuf::from("wal"), |path| self.relative(path));
            let finding = Finding::new(weight, path, format!("{}{elsewhere}", damage.text));
            self.find(Finding { offset: damage.offset, ..finding });
        }
        for (seq, org, damage) in undecodable.into_iter().take(100) {
            let what = format!("record {seq} cannot be decoded: {}{elsewhere}", damage.what);
            self.find(Finding { org: Some(org), ..Finding::new(weight, "wal", what) });
        }
        for path in end.tail.iter().map(|tail| &tail.path).chain(&end.spares) {
            if let Some(text) = replay::cut_short(path)? {
                self.find(Finding::new(weight, self.relative(path), format!("{text}{elsewhere}")));
            }
        }
        let torn = end.tail.as_ref().and_then(|tail| open::torn_finding(tail, self.dir, end.last_seq, known));
        torn.into_iter().for_each(|finding| self.find(finding));
        if end.files == 0 && is_lost {
            self.find(Finding::new(
                weight,
                "wal",
                "the log has no file: records that were only there are lost",
            ));
        } else {
            for known in manifest::records_beyond(listed, mark, end.last_seq) {
                let what = format!("the log ends at record {}, {known}", end.last_seq);
                let tail = end.tail.as_ref();
                let file = tail.map_or_else(|| PathBuf::from("wal"), |tail| self.relative(&tail.path));
                let finding = Finding::new(weight, file, what);
                self.find(match tail {
                    Some(tail) => finding.at(tail.offset),
                    None => finding,
                });
            }
        }
        let (files, records, last) = (end.files, end.records, end.last_seq);
        self.checked
            .seen
            .push((
                "log",
                format!(
                    "{files} files, {records} records to number {last} (known to have been durable up to {}), {samples} samples",
                    known.min(last)
                ),
            ));
        Ok(())
    }

    fn registries(&mut self, listed: &BTreeMap<OrgId, OrgManifest>) -> Result<(), OpenError> {
        let dir = self.dir.join("series");
        let names = if dir.is_dir() { disk::names(&dir)? } else { Vec::new() };
        let mut seen = 0;
        for name in &names {
            let Some(org) = registry::org_of(name) else { continue };
            seen += 1;
            let path = dir.join(name);
            let file = self.relative(&path);
            let needed = listed.get(&org).map_or(0, |listed| listed.state.registry_bytes);
            let found = match registry::read(&path, self.store, org, &mut |_, _| true)? {
                ReadRegistry::Valid(end) if end.bytes < needed => {
                    Some(format!("{} valid bytes of {needed}", end.bytes))
                }
                ReadRegistry::Valid(_) => None,
                ReadRegistry::Damaged(what) => Some(what.to_owned()),
            };
            if let Some(what) = found {
                let what = format!("{what}; names come from its copy, or from segments and the log");
                self.find(Finding { org: Some(org), ..Finding::new(Weight::Repairable, file, what) });
            } else if registry::copy_of(&dir, org).exists() && registry::copy_differs(&dir, org)? {
                let what = "the copy of the registry differs from it; the next start rewrites the copy";
                let file = self.relative(&registry::copy_of(&dir, org));
                self.find(Finding { org: Some(org), ..Finding::new(Weight::Repairable, file, what) });
            }
        }
        self.checked.seen.push(("series", format!("{seen} registries")));
        Ok(())
    }

    /// Checks the checkpoints. They are copies, so damage to them costs only time.
    fn generations(&mut self) -> Result<(), OpenError> {
        let dir = self.dir.join("head");
        if !dir.is_dir() {
            return Ok(());
        }
        for name in disk::names(&dir)?.into_iter().filter(|name| name != checkpoint::CLOSED) {
            let file = self.relative(&dir.join(&name));
            if name.ends_with(".new") {
                let what = "an unfinished checkpoint; the next start removes it";
                self.find(Finding::new(Weight::Repairable, file, what));
            } else if !dir.join(&name).join("DONE").is_file() {
                let what = "a checkpoint without DONE; the next start takes longer";
                self.find(Finding::new(Weight::Repairable, file, what));
            }
        }
        Ok(())
    }
}

/// An unreadable block, series or run of side data.
pub(in crate::tsdb) struct BadBlock {
    /// A description of the part.
    what: String,
    range: Option<(i64, i64)>,
    samples: Option<u64>,
    damage: SegmentDamage,
    /// Whether the damage loses data.
    pub(in crate::tsdb) weight: Weight,
}

impl BadBlock {
    pub(in crate::tsdb) fn finding(self, org: OrgId, file: &Path) -> Finding {
        let what = format!("{}: {}", self.what, self.damage.what);
        Finding {
            org: Some(org),
            range: self.range.map(|(from, to)| (Timestamp::from_ms(from), Timestamp::from_ms(to))),
            count: self.samples,
            ..Finding::new(self.weight, file, what).at(self.damage.offset)
        }
    }
}

/// Decodes every block of a segment and its side data, and reports the unreadable ones.
pub(in crate::tsdb) fn each_bad_block(segment: &Segment, report: &mut dyn FnMut(BadBlock)) {
    // The rows of histograms repeat the side data.
    let (weight, of) = if segment.meta().flags & HISTOGRAMS == 0 {
        (Weight::Loss, "a block of")
    } else {
        // Such damage loses no data.
        (Weight::Repairable, "the observation counts (repair derives them from the histograms) of")
    };
    for family in 0..segment.families() {
        for row in 0..segment.ids(family).map_or(0, |ids| ids.len()) {
            let name = || named(segment, family, row);
            let walked = segment.each_block(family, row, |id, block| {
                if let Err(damage) = segment.decode(id, &block, &mut SampleColumns::default()) {
                    let (range, samples) = (Some((block.first, block.last)), Some(block.count as u64));
                    report(BadBlock {
                        what: format!("{of} {} is damaged", name()),
                        range,
                        samples,
                        damage,
                        weight,
                    });
                }
                Ok(true)
            });
            if let Err(damage) = walked {
                let what = format!("{} cannot be read", name());
                report(BadBlock { what, range: None, samples: None, damage, weight });
            }
        }
    }
    for id in segment.side_data_ids() {
        let read = segment.side_data(id).and_then(|run| {
            let read = run.map_or(Ok(()), |run| sealed::verify(id, run));
            read.map_err(|damage| segment.side_data_damage(damage))
        });
        if let Err(damage) = read {
            report(bad_run(segment, id, damage));
        }
    }
}

/// Describes the loss by a damaged run: the histograms in damaged blocks, and everything that only
/// the checksum of the run covers.
fn bad_run(segment: &Segment, id: u32, damage: SegmentDamage) -> BadBlock {
    let weight = Weight::Loss;
    if id == sealed::EXEMPLARS_ID {
        return BadBlock { what: "exemplars".to_owned(), range: None, samples: None, damage, weight };
    }
    let position = (0..segment.families()).find_map(|family| Some((family, segment.row_of(family, id)?)));
    let Some((family, row)) = position else {
        let what = format!("start timestamps of series {id}");
        return BadBlock { what, range: None, samples: None, damage, weight };
    };
    let mut left = HistogramColumns::default();
    if let Some(run) = segment.side_data_unverified(id) {
        sealed::salvage_histograms(run, &mut left);
    }
    let mut all = 0;
    let walked = segment.each_block(family, row, |_, block| {
        all += block.count as u64;
        Ok(true)
    });
    let what =
        format!("histograms of {}, and their start timestamps if they had any", named(segment, family, row));
    let samples = walked.is_ok().then(|| all.saturating_sub(left.len() as u64));
    BadBlock { what, range: segment.span(family, row), samples, damage, weight }
}

/// Formats the labels of a series, or a phrase for it if they are unreadable.
fn named(segment: &Segment, family: usize, row: usize) -> String {
    match segment.series_labels(family, row) {
        Ok(labels) => {
            let pairs: Vec<String> = labels.iter().map(|(name, value)| format!("{name}={value:?}")).collect();
            format!("{{{}}}", pairs.join(", "))
        }
        Err(_) => "a series with unreadable labels".to_owned(),
    }
}
