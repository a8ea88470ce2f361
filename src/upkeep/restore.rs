//! Restores a backup to a data folder.

use std::path::{Path, PathBuf};

use super::backup;
use super::file_tree::{self, TreeError};
use super::manifest::{Manifest, ManifestError, ManifestFile};
use super::{ProgressCallback, UpkeepProgress};

/// The result of a restore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoreReport {
    /// The number of copied files.
    pub files: u64,
    /// The size of the files in bytes.
    pub bytes: u64,
    /// The time of the backup, RFC 3339.
    pub made_at: String,
    /// Whether the backup contained the master key. If not, it must be put in place before the
    /// first start.
    pub with_key: bool,
}

/// The reason why a backup was not restored.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The manifest cannot be used.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// The file system refused an operation.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// Files of the backup are damaged or missing. No file was written.
    #[error("the backup is damaged; nothing was restored:{}", list(what))]
    Damaged {
        /// Each damaged file with its damage.
        what: Vec<(PathBuf, String)>,
    },
}

fn list(what: &[(PathBuf, String)]) -> String {
    what.iter().map(|(path, what)| format!("\n  {}: {what}", path.display())).collect()
}

/// Copies the backup `from` into `dir`, which must not exist or must be empty, after every size and
/// hash was verified.
///
/// # Errors
/// [`RestoreError`]. `STORE` is written last, so a partial restore is not a data folder.
pub fn restore(
    dir: &Path,
    from: &Path,
    report_progress: ProgressCallback<'_>,
) -> Result<RestoreReport, RestoreError> {
    let manifest = Manifest::read(from)?;
    let bytes: u64 = manifest.files.iter().map(|file| file.bytes).sum();
    let mut progress = UpkeepProgress {
        files_all: manifest.files.len() as u64 * 2,
        bytes_all: bytes.saturating_mul(2),
        ..UpkeepProgress::default()
    };
    let damaged = verify(&manifest, from, &mut progress, report_progress)?;
    if !damaged.is_empty() {
        return Err(RestoreError::Damaged { what: damaged });
    }
    file_tree::create_empty(dir)?;
    let (last, rest): (Vec<_>, Vec<_>) =
        manifest.files.iter().partition(|file| file.path == Path::new("STORE"));
    for mut files in [rest, last] {
        files.retain(|file| file.path != Path::new(backup::MARKER));
        for file in &files {
            file_tree::create_parents(dir, &file.path)?;
            let (source, target) = (from.join(&file.path), dir.join(&file.path));
            if file.path == Path::new("STORE") {
                file_tree::copy_atomically(&source, &target)?;
                progress.bytes += file.bytes;
            } else {
                file_tree::copy(&source, &target, |more| {
                    progress.bytes += more;
                    report_progress(progress);
                })?;
            }
            progress.files += 1;
            report_progress(progress);
        }
        file_tree::sync_dirs(dir, files.iter().map(|file| file.path.clone()))?;
    }
    let files = manifest.files.len() as u64;
    Ok(RestoreReport { files, bytes, made_at: manifest.made_at, with_key: manifest.with_key })
}

/// Verifies all files of a backup. Returns the damaged ones with their damage.
pub(super) fn verify(
    manifest: &Manifest,
    from: &Path,
    progress: &mut UpkeepProgress,
    report_progress: ProgressCallback<'_>,
) -> Result<Vec<(PathBuf, String)>, TreeError> {
    let mut damaged = Vec::new();
    for file in &manifest.files {
        let wrong = damage_of(file, from, progress, report_progress)?;
        damaged.extend(wrong.map(|what| (file.path.clone(), what)));
    }
    Ok(damaged)
}

/// Verifies one file of a backup. Returns its damage, if there is any.
pub(super) fn damage_of(
    file: &ManifestFile,
    from: &Path,
    progress: &mut UpkeepProgress,
    report_progress: ProgressCallback<'_>,
) -> Result<Option<String>, TreeError> {
    let path = from.join(&file.path);
    let wrong = match std::fs::metadata(&path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Some("it is missing".to_owned()),
        Err(e) => return Err(file_tree::at("look at", &path)(e)),
        Ok(found) if found.len() != file.bytes => {
            Some(format!("{} bytes where {} were backed up", found.len(), file.bytes))
        }
        Ok(_) => {
            let hash = file_tree::hash(&path, |more| {
                progress.bytes += more;
                report_progress(*progress);
            })?;
            (hash != file.sha256).then(|| "its SHA-256 differs".to_owned())
        }
    };
    progress.files += 1;
    report_progress(*progress);
    Ok(wrong)
}
