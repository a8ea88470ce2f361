//! Checks a data folder or a backup without changing it.

use std::path::{Path, PathBuf};

use super::file_tree::{self, TreeError};
use super::manifest::{self, Manifest, ManifestError};
use super::{FolderAccessError, ProgressCallback, UpkeepProgress, backup, folder_access, rehearsal, restore};
use crate::kv::{Finding, MasterKey, MasterKeySource, OfflineControl, Weight};
use crate::model::StoreId;
use crate::tsdb;

/// The options of a check.
#[derive(Clone, Debug)]
pub struct CheckOptions {
    /// Whether to read every block of every segment, and to verify every hash of a backup.
    pub deep: bool,
    /// The table of users. A store that has users must have its master key.
    pub users_table: u8,
    /// The source from which the server takes the master key.
    pub master_key: MasterKeySource,
    /// Computes the mark by which control recognises a master key.
    pub key_mark: fn(&MasterKey, StoreId) -> [u8; 32],
    /// A folder that does not exist, for copies of databases. It is removed again.
    pub scratch: PathBuf,
}

/// A part of the folder, and a summary of its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FolderPart {
    /// The part, such as "accounts", "log" or "segments".
    pub part: &'static str,
    /// The summary, such as "120 changes, the last one 120".
    pub what: String,
}

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckReport {
    /// Whether the folder is a backup.
    pub is_backup: bool,
    /// The store id in hexadecimal.
    pub store: String,
    /// The parts that were read.
    pub seen: Vec<FolderPart>,
    /// The findings, the most severe first.
    pub findings: Vec<Finding>,
}

impl CheckReport {
    /// Returns the severity of the worst finding.
    pub fn weight(&self) -> Weight {
        self.findings.iter().map(|finding| finding.weight).max().unwrap_or(Weight::Note)
    }
}

/// The reason why a check has no result.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The folder cannot be read.
    #[error(transparent)]
    Look(#[from] FolderAccessError),
    /// The manifest cannot be used.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// The samples cannot be read.
    #[error(transparent)]
    Samples(#[from] tsdb::OpenError),
}

/// Checks the data folder or backup `dir`, which no server may be using.
///
/// # Errors
/// [`CheckError`] if there is no result. Damage is a finding, not an error.
pub fn check(
    dir: &Path,
    options: &CheckOptions,
    report_progress: ProgressCallback<'_>,
) -> Result<CheckReport, CheckError> {
    folder_access::ensure_unused(dir)?;
    let mut findings = Vec::new();
    let manifest = read_manifest(dir, &mut findings)?;
    let is_backup = manifest.is_some();
    let mut seen = Vec::new();
    if let Some(manifest) = &manifest {
        seen.push(FolderPart {
            part: "backup",
            what: format!("of {}, {} files", manifest.made_at, manifest.files.len()),
        });
        if options.deep {
            let mut progress = UpkeepProgress {
                files_all: manifest.files.len() as u64,
                bytes_all: manifest.files.iter().map(|file| file.bytes).sum(),
                ..UpkeepProgress::default()
            };
            for (path, what) in restore::verify(manifest, dir, &mut progress, report_progress)
                .map_err(FolderAccessError::Tree)?
            {
                findings.push(Finding::new(Weight::Loss, path, what));
            }
        }
    }
    let control = OfflineControl::read(dir, &options.scratch).map_err(FolderAccessError::Offline)?;
    let facts = control.facts();
    seen.push(FolderPart {
        part: "accounts",
        what: format!(
            "{} rows after change {}; {} exports, {} changes in {} journal files",
            facts.rows, facts.seq, facts.exports, facts.journal_records, facts.journal_files
        ),
    });
    let rehearsal = rehearsal::rehearse(dir, options, manifest.as_ref())?;
    rehearsal.judge(dir, &control, &mut findings);
    check_markers(dir, &control, options.users_table, &mut findings);
    let samples = tsdb::check(dir, &control, options.deep, &options.scratch, &mut |done| {
        report_progress(UpkeepProgress {
            files: done.files,
            files_all: done.files_all,
            bytes: done.bytes,
            bytes_all: done.bytes_all,
        });
    })?;
    seen.extend(samples.seen.into_iter().map(|(part, what)| FolderPart { part, what }));
    findings.extend(samples.findings);
    check_quarantine(dir, &mut findings).map_err(FolderAccessError::Tree)?;
    findings.sort_by(|a, b| {
        b.weight.cmp(&a.weight).then_with(|| a.file.cmp(&b.file)).then(a.offset.cmp(&b.offset))
    });
    Ok(CheckReport { is_backup, store: control.store_id().to_string(), seen, findings })
}

/// Reads the manifest of a backup; `None` for a data folder.
fn read_manifest(dir: &Path, findings: &mut Vec<Finding>) -> Result<Option<Manifest>, CheckError> {
    match Manifest::read(dir) {
        Ok(manifest) => Ok(Some(manifest)),
        Err(ManifestError::Missing { .. }) => {
            if dir.join(backup::MARKER).exists() {
                let what =
                    "missing: the backup was never finished, or lost it; nothing of it can be relied on";
                findings.push(Finding::new(Weight::Loss, manifest::NAME, what));
            }
            Ok(None)
        }
        Err(ManifestError::Damaged { path, what }) => {
            let file = path.file_name().unwrap_or_default();
            findings.push(Finding::new(
                Weight::Loss,
                file,
                format!("{what}: nothing of this backup can be relied on"),
            ));
            Ok(None)
        }
        Err(e) => Err(e.into()),
    }
}

/// Checks the markers that must agree with the accounts.
fn check_markers(dir: &Path, control: &OfflineControl, users_table: u8, findings: &mut Vec<Finding>) {
    let users = control.count(users_table);
    if users == 0 && dir.join("INITIALISED").exists() {
        let what =
            "it states that this store had users, but none are left: restore the accounts from a backup";
        findings.push(Finding::new(Weight::Loss, "INITIALISED", what));
    }
}

/// Reports files in quarantine.
fn check_quarantine(dir: &Path, findings: &mut Vec<Finding>) -> Result<(), TreeError> {
    let quarantine = dir.join("quarantine");
    if quarantine.is_dir() {
        let quarantined = file_tree::files(&quarantine)?;
        if !quarantined.is_empty() {
            let bytes: u64 = quarantined.iter().map(|(_, bytes)| bytes).sum();
            let what = format!(
                "{bytes} bytes of damaged or superfluous files; delete them when you no longer need them"
            );
            findings.push(Finding::new(Weight::Note, "quarantine", what).counting(quarantined.len() as u64));
        }
    }
    Ok(())
}
