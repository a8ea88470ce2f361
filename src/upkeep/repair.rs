//! Makes a new folder from the intact data of a damaged one, which is not changed.

use std::path::Path;

use super::file_tree::{self, TreeError};
use super::{FolderAccessError, FolderPart, ProgressCallback, UpkeepProgress, folder_access};
use crate::entropy::Entropy;
use crate::kv::{ExportError, Finding, OfflineControl, Weight};
use crate::tsdb;

/// The reason why nothing was repaired.
#[derive(Debug, thiserror::Error)]
pub enum RepairError {
    /// The damaged folder cannot be read.
    #[error(transparent)]
    Look(#[from] FolderAccessError),
    /// The accounts cannot be written.
    #[error("the accounts cannot be saved")]
    Export(#[from] ExportError),
    /// The samples cannot be saved.
    #[error("the samples cannot be saved")]
    Samples(#[from] tsdb::RepairError),
}

/// The result of a repair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepairReport {
    /// The parts in the new folder.
    pub saved: Vec<FolderPart>,
    /// The data that is lost.
    pub lost: Vec<Finding>,
}

/// Makes the data folder `to`, which must not exist or must be empty, from the intact data of
/// `dir`. `scratch` is the folder for temporary copies, as for a check.
///
/// # Errors
/// [`RepairError`]. `STORE` is written last, so a partial `to` is not a data folder.
pub fn repair(
    dir: &Path,
    to: &Path,
    scratch: &Path,
    rng: &mut Entropy,
    report_progress: ProgressCallback<'_>,
) -> Result<RepairReport, RepairError> {
    folder_access::ensure_unused(dir)?;
    let mut control = OfflineControl::read(dir, scratch).map_err(FolderAccessError::Offline)?;
    let mut lost: Vec<Finding> = control.findings().to_vec();
    lost.retain(|finding| finding.weight == Weight::Loss);
    if !lost.is_empty() {
        let seq = control.facts().seq;
        let what = format!(
            "the accounts are those of change {seq}: keys, sessions and members that were removed later are back; look through them"
        );
        lost.push(Finding::new(Weight::Loss, "exports", what));
    }
    file_tree::create_empty(to).map_err(FolderAccessError::Tree)?;
    let samples = tsdb::repair(dir, to, &mut control, rng, &mut |done| {
        report_progress(UpkeepProgress {
            files: done.files,
            files_all: done.files_all,
            bytes: done.bytes,
            bytes_all: done.bytes_all,
        });
    })?;
    copy_checkpoints(dir, to).map_err(FolderAccessError::Tree)?;
    let export = control.export(to)?;
    let accounts = format!("{} rows after change {}", export.rows, export.seq);
    let mut saved = vec![FolderPart { part: "accounts", what: accounts }];
    saved.extend(samples.saved.into_iter().map(|(part, what)| FolderPart { part, what }));
    lost.extend(samples.lost);
    for names in [&["INITIALISED", "master.key"][..], &["STORE"]] {
        for name in names.iter().filter(|name| dir.join(name).exists()) {
            file_tree::copy_atomically(&dir.join(name), &to.join(name)).map_err(FolderAccessError::Tree)?;
        }
        // All other files are durable before the one that makes the folder a data folder.
        let files = file_tree::files(to).map_err(FolderAccessError::Tree)?;
        file_tree::sync_dirs(to, files.into_iter().map(|(path, _)| path)).map_err(FolderAccessError::Tree)?;
    }
    Ok(RepairReport { saved, lost })
}

/// Copies checkpoints. They have their own checksums, and a start uses only an intact one, which
/// may hold samples that the log has lost.
fn copy_checkpoints(dir: &Path, to: &Path) -> Result<(), TreeError> {
    let head = dir.join("head");
    if !head.is_dir() {
        return Ok(());
    }
    // The marker of a cleanly closed log applies to the old log only.
    for (path, _) in file_tree::files(&head)?.into_iter().filter(|(path, _)| path != Path::new("CLOSED")) {
        let below = Path::new("head").join(path);
        file_tree::create_parents(to, &below)?;
        file_tree::copy(&dir.join(&below), &to.join(&below), |_| ())?;
    }
    Ok(())
}
