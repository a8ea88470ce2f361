//! From a backup to a data folder.

use std::path::{Path, PathBuf};

use super::backup;
use super::manifest::{Entry, Manifest, ManifestError};
use super::tree::{self, TreeError};
use super::{Progress, Watch};

/// A restored folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoreReport {
    /// Files copied.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// When the backup was made, RFC 3339.
    pub made_at: String,
    /// Whether the master key came with it; if not, it must be put in place before the first start.
    pub with_key: bool,
}

/// Why a backup was not restored.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The manifest.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// The file system refused.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// Files of the backup are not what was backed up. Nothing was written.
    #[error("the backup is damaged, nothing was restored:{}", list(what))]
    Damaged {
        /// Each file, and what is wrong with it.
        what: Vec<(PathBuf, String)>,
    },
}

fn list(what: &[(PathBuf, String)]) -> String {
    what.iter().map(|(path, what)| format!("\n  {}: {what}", path.display())).collect()
}

/// Copies the backup `from` into `dir`, which must not exist or be empty, after every size and hash was verified.
///
/// # Errors
/// [`RestoreError`]. What is left by a restore that was stopped is no data folder: `STORE` comes last.
pub fn restore(dir: &Path, from: &Path, watch: Watch<'_>) -> Result<RestoreReport, RestoreError> {
    let manifest = Manifest::read(from)?;
    let bytes: u64 = manifest.files.iter().map(|file| file.bytes).sum();
    let mut progress = Progress {
        files_all: manifest.files.len() as u64 * 2,
        bytes_all: bytes.saturating_mul(2),
        ..Progress::default()
    };
    let damaged = verify(&manifest, from, &mut progress, watch)?;
    if !damaged.is_empty() {
        return Err(RestoreError::Damaged { what: damaged });
    }
    tree::make_new(dir)?;
    let (last, rest): (Vec<_>, Vec<_>) =
        manifest.files.iter().partition(|file| file.path == Path::new("STORE"));
    for mut files in [rest, last] {
        files.retain(|file| file.path != Path::new(backup::MARKER));
        for file in &files {
            tree::make_way(dir, &file.path)?;
            let (source, target) = (from.join(&file.path), dir.join(&file.path));
            if file.path == Path::new("STORE") {
                tree::copy_whole(&source, &target)?;
                progress.bytes += file.bytes;
            } else {
                tree::copy(&source, &target, |more| {
                    progress.bytes += more;
                    watch(progress);
                })?;
            }
            progress.files += 1;
            watch(progress);
        }
        tree::sync_dirs(dir, files.iter().map(|file| file.path.clone()))?;
    }
    let files = manifest.files.len() as u64;
    Ok(RestoreReport { files, bytes, made_at: manifest.made_at, with_key: manifest.with_key })
}

/// What is wrong with the files of a backup.
pub(super) fn verify(
    manifest: &Manifest,
    from: &Path,
    progress: &mut Progress,
    watch: Watch<'_>,
) -> Result<Vec<(PathBuf, String)>, TreeError> {
    let mut damaged = Vec::new();
    for file in &manifest.files {
        let wrong = wrong_with(file, from, progress, watch)?;
        damaged.extend(wrong.map(|what| (file.path.clone(), what)));
    }
    Ok(damaged)
}

/// What is wrong with one file of a backup, if anything.
pub(super) fn wrong_with(
    file: &Entry,
    from: &Path,
    progress: &mut Progress,
    watch: Watch<'_>,
) -> Result<Option<String>, TreeError> {
    let path = from.join(&file.path);
    let wrong = match std::fs::metadata(&path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Some("it is missing".to_owned()),
        Err(e) => return Err(tree::at("look at", &path)(e)),
        Ok(found) if found.len() != file.bytes => {
            Some(format!("{} bytes where {} were backed up", found.len(), file.bytes))
        }
        Ok(_) => {
            let hash = tree::hash(&path, |more| {
                progress.bytes += more;
                watch(*progress);
            })?;
            (hash != file.sha256).then(|| "its SHA-256 differs".to_owned())
        }
    };
    progress.files += 1;
    watch(*progress);
    Ok(wrong)
}
