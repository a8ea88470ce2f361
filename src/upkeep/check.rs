//! Reads a data folder or a backup and says what is wrong with it; changes nothing.

use std::path::{Path, PathBuf};

use super::manifest::{self, Manifest, ManifestError};
use super::tree::{self, TreeError};
use super::{LookError, Progress, Watch, backup, look, restore, start};
use crate::kv::{Finding, MasterKey, MasterKeySource, OfflineControl, Weight};
use crate::model::StoreId;
use crate::tsdb;

/// How to check.
#[derive(Clone, Debug)]
pub struct CheckOptions {
    /// Every block of every segment, every hash of a backup.
    pub deep: bool,
    /// The table of users: a store that has some must have its master key.
    pub users_table: u8,
    /// Where the server takes the master key from.
    pub master_key: MasterKeySource,
    /// The mark of a master key that control knows it by.
    pub key_mark: fn(&MasterKey, StoreId) -> [u8; 32],
    /// A folder that does not exist, for copies of databases; it is removed again.
    pub scratch: PathBuf,
}

/// A part of the folder, and what was read of it, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The part: "accounts", "log", "segments".
    pub part: &'static str,
    /// "120 changes, the last one 120".
    pub what: String,
}

/// What a check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckReport {
    /// Whether it is a backup.
    pub is_backup: bool,
    /// The store, in hex.
    pub store: String,
    /// What was read.
    pub seen: Vec<Seen>,
    /// What is wrong, the worst first.
    pub findings: Vec<Finding>,
}

impl CheckReport {
    /// The worst of it.
    pub fn weight(&self) -> Weight {
        self.findings.iter().map(|finding| finding.weight).max().unwrap_or(Weight::Note)
    }
}

/// Why nothing can be said.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The folder.
    #[error(transparent)]
    Look(#[from] LookError),
    /// A manifest that cannot be used.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// The samples cannot be looked at.
    #[error(transparent)]
    Samples(#[from] tsdb::OpenError),
}

/// Checks the data folder or backup `dir`, of which no server may be using it.
///
/// # Errors
/// [`CheckError`] where nothing can be said. Damage is no error.
pub fn check(dir: &Path, options: &CheckOptions, watch: Watch<'_>) -> Result<CheckReport, CheckError> {
    look::nobody_uses(dir)?;
    let mut findings = Vec::new();
    let manifest = read_manifest(dir, &mut findings)?;
    let is_backup = manifest.is_some();
    let mut seen = Vec::new();
    if let Some(manifest) = &manifest {
        seen.push(Seen {
            part: "backup",
            what: format!("of {}, {} files", manifest.made_at, manifest.files.len()),
        });
        if options.deep {
            let mut progress = Progress {
                files_all: manifest.files.len() as u64,
                bytes_all: manifest.files.iter().map(|file| file.bytes).sum(),
                ..Progress::default()
            };
            for (path, what) in
                restore::verify(manifest, dir, &mut progress, watch).map_err(LookError::Tree)?
            {
                findings.push(Finding::new(Weight::Loss, path, what));
            }
        }
    }
    let control = OfflineControl::read(dir, &options.scratch).map_err(LookError::Offline)?;
    let facts = control.facts();
    seen.push(Seen {
        part: "accounts",
        what: format!(
            "{} rows after change {}; {} exports, {} changes in {} journal files",
            facts.rows, facts.seq, facts.exports, facts.journal_records, facts.journal_files
        ),
    });
    let start = start::rehearse(dir, options, manifest.as_ref())?;
    start.judge(dir, &control, &mut findings);
    markers(dir, &control, options.users_table, &mut findings);
    let samples = tsdb::check(dir, &control, options.deep, &options.scratch, &mut |done| {
        watch(Progress {
            files: done.files,
            files_all: done.files_all,
            bytes: done.bytes,
            bytes_all: done.bytes_all,
        });
    })?;
    seen.extend(samples.seen.into_iter().map(|(part, what)| Seen { part, what }));
    findings.extend(samples.findings);
    leftovers(dir, &mut findings).map_err(LookError::Tree)?;
    findings.sort_by(|a, b| {
        b.weight.cmp(&a.weight).then_with(|| a.file.cmp(&b.file)).then(a.offset.cmp(&b.offset))
    });
    Ok(CheckReport { is_backup, store: control.store_id().to_string(), seen, findings })
}

/// The manifest of a backup; none for a data folder.
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

/// What must be there if there are users.
fn markers(dir: &Path, control: &OfflineControl, users_table: u8, findings: &mut Vec<Finding>) {
    let users = control.count(users_table);
    if users == 0 && dir.join("INITIALISED").exists() {
        let what = "it says that this store had users, but none are left: restore the accounts from a backup";
        findings.push(Finding::new(Weight::Loss, "INITIALISED", what));
    }
}

/// What the server keeps aside, and what it left half made.
fn leftovers(dir: &Path, findings: &mut Vec<Finding>) -> Result<(), TreeError> {
    let quarantine = dir.join("quarantine");
    if quarantine.is_dir() {
        let kept = tree::files(&quarantine)?;
        if !kept.is_empty() {
            let bytes: u64 = kept.iter().map(|(_, bytes)| bytes).sum();
            let what = format!(
                "{bytes} bytes that were found damaged or superfluous; remove them when you need them no more"
            );
            findings.push(Finding::new(Weight::Note, "quarantine", what).counting(kept.len() as u64));
        }
    }
    Ok(())
}
