//! A new folder with what is provably good in a damaged one. The damaged one is not changed.

use std::path::Path;

use super::tree::{self, TreeError};
use super::{LookError, Progress, Seen, Watch, look};
use crate::entropy::Entropy;
use crate::kv::{ExportError, Finding, OfflineControl, Weight};
use crate::tsdb;

/// Why nothing was repaired.
#[derive(Debug, thiserror::Error)]
pub enum RepairError {
    /// The folder.
    #[error(transparent)]
    Look(#[from] LookError),
    /// The accounts could not be written.
    #[error("the accounts cannot be saved")]
    Export(#[from] ExportError),
    /// The samples could not be saved.
    #[error("the samples cannot be saved")]
    Samples(#[from] tsdb::RepairError),
}

/// What was saved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepairReport {
    /// What is in the new folder.
    pub saved: Vec<Seen>,
    /// What is not.
    pub lost: Vec<Finding>,
}

/// Makes the data folder `to`, which must not exist or be empty, of what is good in `dir`. `scratch` as for a check.
///
/// # Errors
/// [`RepairError`]; what is left in `to` is no data folder: `STORE` comes last.
pub fn repair(
    dir: &Path,
    to: &Path,
    scratch: &Path,
    rng: &mut Entropy,
    watch: Watch<'_>,
) -> Result<RepairReport, RepairError> {
    look::nobody_uses(dir)?;
    let mut control = OfflineControl::read(dir, scratch).map_err(LookError::Offline)?;
    let mut lost: Vec<Finding> = control.findings().to_vec();
    lost.retain(|finding| finding.weight == Weight::Loss);
    if !lost.is_empty() {
        let seq = control.facts().seq;
        let what = format!(
            "the accounts are those of change {seq}: keys, sessions and members that were removed later are back; look through them"
        );
        lost.push(Finding::new(Weight::Loss, "exports", what));
    }
    tree::make_new(to).map_err(LookError::Tree)?;
    let samples = tsdb::repair(dir, to, &mut control, rng, &mut |done| {
        watch(Progress {
            files: done.files,
            files_all: done.files_all,
            bytes: done.bytes,
            bytes_all: done.bytes_all,
        });
    })?;
    copy_checkpoints(dir, to).map_err(LookError::Tree)?;
    let export = control.export(to)?;
    let accounts = format!("{} rows after change {}", export.rows, export.seq);
    let mut saved = vec![Seen { part: "accounts", what: accounts }];
    saved.extend(samples.saved.into_iter().map(|(part, what)| Seen { part, what }));
    lost.extend(samples.lost);
    for names in [&["INITIALISED", "master.key"][..], &["STORE"]] {
        for name in names.iter().filter(|name| dir.join(name).exists()) {
            tree::copy_whole(&dir.join(name), &to.join(name)).map_err(LookError::Tree)?;
        }
        // All names are durable before the one that makes it a data folder.
        let files = tree::files(to).map_err(LookError::Tree)?;
        tree::sync_dirs(to, files.into_iter().map(|(path, _)| path)).map_err(LookError::Tree)?;
    }
    Ok(RepairReport { saved, lost })
}

/// Checkpoints have sums of their own: a start uses one only if it is whole, and it may hold what the log has lost.
fn copy_checkpoints(dir: &Path, to: &Path) -> Result<(), TreeError> {
    let head = dir.join("head");
    if !head.is_dir() {
        return Ok(());
    }
    // The marker of a log that ended in order speaks of the old log alone.
    for (path, _) in tree::files(&head)?.into_iter().filter(|(path, _)| path != Path::new("CLOSED")) {
        let below = Path::new("head").join(path);
        tree::make_way(to, &below)?;
        tree::copy(&dir.join(&below), &to.join(&below), |_| ())?;
    }
    Ok(())
}
