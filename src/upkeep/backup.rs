//! The second half of a backup: what a server set aside becomes a folder with a manifest.
//!
//! The server makes the first half in a moment: links to sealed segments and full log files, copies of what still grows
//! (docs/storage.md section 13). Everything in it stays as it is from then on, so this half takes its time.

use std::path::Path;

use super::manifest::{self, Entry, Facts, Manifest};
use super::tree::{self, TreeError};
use super::{Progress, Watch};

/// A finished backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackupReport {
    /// Its files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// A file that every backup has and no data folder: without a manifest beside it the backup was never finished, or has
/// lost its manifest, however whole the rest of it looks.
pub(super) const MARKER: &str = "BACKUP";

/// Makes the backup `out`, which must not exist or be empty, from `staged`; durable when this answers.
///
/// # Errors
/// [`TreeError`]; a folder without `MANIFEST.json` is left, which is no backup, and as good as always one without
/// `STORE`, which comes last but for the manifest: neither a check nor a server takes it for a whole data folder.
pub fn finish_backup(
    staged: &Path,
    out: &Path,
    facts: &Facts,
    watch: Watch<'_>,
) -> Result<BackupReport, TreeError> {
    tree::make_new(out)?;
    let marker = out.join(MARKER);
    let text = b"promlet backup: restore it with `promlet restore`\n";
    tree::write_whole(&marker, text)?;
    let files = tree::files(staged)?;
    let mut progress = Progress {
        files_all: files.len() as u64,
        bytes_all: files.iter().map(|(_, bytes)| bytes).sum(),
        ..Progress::default()
    };
    let sha256 = tree::hash(&marker, |_| ())?;
    let mut entries = vec![Entry { path: MARKER.into(), bytes: text.len() as u64, sha256 }];
    let (last, rest): (Vec<_>, Vec<_>) = files.into_iter().partition(|(path, _)| path == Path::new("STORE"));
    for (path, bytes) in rest.into_iter().chain(last) {
        if path == Path::new("STORE") {
            // Everything else is durable before the file that makes it a store.
            tree::sync_dirs(out, entries.iter().map(|entry: &Entry| entry.path.clone()))?;
        }
        let to = out.join(&path);
        tree::make_way(out, &path)?;
        tree::link_or_copy(&staged.join(&path), &to)?;
        let sha256 = tree::hash(&to, |more| {
            progress.bytes += more;
            watch(progress);
        })?;
        // A copy that the server made is durable from here on; a link was all the time.
        tree::sync(&to)?;
        progress.files += 1;
        watch(progress);
        entries.push(Entry { path, bytes, sha256 });
    }
    tree::sync_dirs(out, entries.iter().map(|entry| entry.path.clone()))?;
    entries.sort_unstable_by(|a, b| a.path.cmp(&b.path));
    let report = BackupReport { files: entries.len() as u64, bytes: progress.bytes_all };
    tree::write_whole(&out.join(manifest::NAME), Manifest::new(facts, entries).encode().as_bytes())?;
    Ok(report)
}
