//! The second half of a backup: the files that a server staged become a folder with a manifest.
//!
//! The server makes the first half within a moment: links to sealed segments and full log files,
//! and copies of the files that still grow (docs/storage.md section 13). The staged files do not
//! change, so this half may take long.

use std::path::Path;

use super::file_tree::{self, TreeError};
use super::manifest::{self, Facts, Manifest, ManifestFile};
use super::{ProgressCallback, UpkeepProgress};

/// The size of a finished backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackupReport {
    /// The number of its files.
    pub files: u64,
    /// The size of the files in bytes.
    pub bytes: u64,
}

/// A file that every backup has and no data folder has. If it has no manifest beside it, the backup
/// was never finished or has lost its manifest, even if all other files are intact.
pub(super) const MARKER: &str = "BACKUP";

/// Makes the backup `out`, which must not exist or must be empty, from `staged`. The backup is
/// durable on return.
///
/// # Errors
/// [`TreeError`]. The folder is left without `MANIFEST.json`, so it is not a backup. `STORE` is
/// written last but for the manifest, so the folder almost never contains it, and neither a check
/// nor a server takes it for a complete data folder.
pub fn finish_backup(
    staged: &Path,
    out: &Path,
    facts: &Facts,
    report: ProgressCallback<'_>,
) -> Result<BackupReport, TreeError> {
    file_tree::create_empty(out)?;
    let marker = out.join(MARKER);
    let text = b"promlet backup: restore it with `promlet restore`\n";
    file_tree::write_atomically(&marker, text)?;
    let files = file_tree::files(staged)?;
    let mut progress = UpkeepProgress {
        files_all: files.len() as u64,
        bytes_all: files.iter().map(|(_, bytes)| bytes).sum(),
        ..UpkeepProgress::default()
    };
    let sha256 = file_tree::hash(&marker, |_| ())?;
    let mut entries = vec![ManifestFile { path: MARKER.into(), bytes: text.len() as u64, sha256 }];
    let (last, rest): (Vec<_>, Vec<_>) = files.into_iter().partition(|(path, _)| path == Path::new("STORE"));
    for (path, bytes) in rest.into_iter().chain(last) {
        if path == Path::new("STORE") {
            // Everything else is made durable before the file that makes the folder a store.
            file_tree::sync_dirs(out, entries.iter().map(|entry: &ManifestFile| entry.path.clone()))?;
        }
        let to = out.join(&path);
        file_tree::create_parents(out, &path)?;
        file_tree::link_or_copy(&staged.join(&path), &to)?;
        let sha256 = file_tree::hash(&to, |more| {
            progress.bytes += more;
            report(progress);
        })?;
        // A copy of the server becomes durable here; a linked file already is.
        file_tree::sync(&to)?;
        progress.files += 1;
        report(progress);
        entries.push(ManifestFile { path, bytes, sha256 });
    }
    file_tree::sync_dirs(out, entries.iter().map(|entry| entry.path.clone()))?;
    entries.sort_unstable_by(|a, b| a.path.cmp(&b.path));
    let report = BackupReport { files: entries.len() as u64, bytes: progress.bytes_all };
    file_tree::write_atomically(
        &out.join(manifest::NAME),
        Manifest::new(facts, entries).encode().as_bytes(),
    )?;
    Ok(report)
}
