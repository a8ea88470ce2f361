//! Restores one segment of a backup to a stopped data folder, where it is damaged or missing
//! (docs/storage.md section 17).
//!
//! Only segments can be restored one by one: they never change, so the segment of the backup is the
//! one that the folder lacks. Every other file has changed since.

use std::path::{Path, PathBuf};

use super::file_tree::{self, TreeError};
use super::manifest::{Manifest, ManifestError, ManifestFile};
use super::{FolderAccessError, ProgressCallback, UpkeepProgress, folder_access, restore};
use crate::entropy::Entropy;
use crate::kv::{DataFolder, FileError, FolderError, LastStop, OfflineControl, ops};
use crate::model::Timestamp;
use crate::tsdb;

/// The reason why a file was not restored. The folder is unchanged, except that the replaced file
/// may already be in quarantine.
#[derive(Debug, thiserror::Error)]
pub enum RestoreOneError {
    /// The data folder cannot be read.
    #[error(transparent)]
    Look(#[from] FolderAccessError),
    /// The backup's manifest cannot be used.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// The file system refused an operation.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// The damaged file cannot be moved away.
    #[error(transparent)]
    File(#[from] FileError),
    /// The file is not a segment.
    #[error(
        "{} is not a segment: only segments/<org>/<name>.seg can be restored one by one, because every other file has changed since the backup",
        path.display()
    )]
    NotASegment {
        /// The requested file.
        path: PathBuf,
    },
    /// The backup does not contain the file.
    #[error("the backup of {made_at} has no {}", path.display())]
    NotInBackup {
        /// The requested file.
        path: PathBuf,
        /// The time of the backup.
        made_at: String,
    },
    /// The backup belongs to another store.
    #[error("the backup is of store {backup}, but the folder has store {folder}")]
    OtherStore {
        /// The store of the backup.
        backup: String,
        /// The store of the folder.
        folder: String,
    },
    /// The file of the backup is damaged.
    #[error("the backup is damaged; nothing was restored: {}: {what}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The damage.
        what: String,
    },
    /// The store does not list this segment, or lists another version of it.
    #[error(transparent)]
    Segment(#[from] tsdb::UnfitSegment),
}

/// The result of a restored segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoredOne {
    /// The size in bytes.
    pub bytes: u64,
    /// The time of the backup, RFC 3339.
    pub made_at: String,
    /// Whether the file in the folder was intact; then nothing was changed.
    pub was_whole: bool,
    /// The quarantine path of the file that was replaced, if there was one.
    pub quarantined: Option<PathBuf>,
}

/// The paths of a segment to restore.
#[derive(Clone, Copy, Debug)]
pub struct SegmentPaths<'p> {
    /// The stopped data folder.
    pub dir: &'p Path,
    /// The backup.
    pub backup: &'p Path,
    /// The segment, relative to both.
    pub file: &'p Path,
}

/// Restores a segment of a backup to a stopped data folder, after its hash, its checksums and the
/// folder's list of segments were compared. `scratch` has the same meaning as for a check.
///
/// # Errors
/// [`RestoreOneError`], if the segment was not restored.
pub fn restore_one(
    paths: SegmentPaths<'_>,
    scratch: &Path,
    now: Timestamp,
    rng: &mut Entropy,
    report_progress: ProgressCallback<'_>,
) -> Result<RestoredOne, RestoreOneError> {
    let SegmentPaths { dir, backup: from, file } = paths;
    let in_segments = file.starts_with("segments") && file.extension().is_some_and(|ending| ending == "seg");
    if !in_segments || !file_tree::is_inside(file) {
        return Err(RestoreOneError::NotASegment { path: file.to_owned() });
    }
    let manifest = Manifest::read(from)?;
    let made_at = manifest.made_at.clone();
    let entry =
        manifest.files.iter().find(|entry| entry.path == file).ok_or_else(|| {
            RestoreOneError::NotInBackup { path: file.to_owned(), made_at: made_at.clone() }
        })?;
    folder_access::ensure_unused(dir)?;
    let folder_error = |e: FolderError| RestoreOneError::Look(FolderAccessError::Folder(e));
    if !dir.join("STORE").exists() {
        return Err(folder_error(FolderError::NoStore { path: dir.to_owned() }));
    }
    // The lock is held until the end, so no server can start meanwhile.
    let folder = DataFolder::open(dir, now, rng).map_err(folder_error)?;
    let was_clean = folder.last_stop() == LastStop::Clean;
    let segment_restore = SegmentRestore { manifest: &manifest, entry, from, folder: &folder };
    let done = segment_restore.run(scratch, now, report_progress);
    if was_clean {
        folder.close_clean(now).map_err(folder_error)?;
    }
    done
}

struct SegmentRestore<'a> {
    manifest: &'a Manifest,
    entry: &'a ManifestFile,
    from: &'a Path,
    folder: &'a DataFolder,
}

impl SegmentRestore<'_> {
    fn run(
        &self,
        scratch: &Path,
        now: Timestamp,
        report_progress: ProgressCallback<'_>,
    ) -> Result<RestoredOne, RestoreOneError> {
        let SegmentRestore { manifest, entry, from, folder } = self;
        let (dir, file) = (folder.path(), entry.path.as_path());
        let own = folder.store_id().to_string();
        if manifest.store != own {
            return Err(RestoreOneError::OtherStore { backup: manifest.store.clone(), folder: own });
        }
        let mut progress = UpkeepProgress {
            files_all: 2,
            bytes_all: entry.bytes.saturating_mul(2),
            ..UpkeepProgress::default()
        };
        if let Some(what) = restore::damage_of(entry, from, &mut progress, report_progress)? {
            return Err(RestoreOneError::Damaged { path: file.to_owned(), what });
        }
        let control = OfflineControl::read(dir, scratch).map_err(FolderAccessError::Offline)?;
        tsdb::fits_list(from, &control, file)?;
        let mut done = RestoredOne {
            bytes: entry.bytes,
            made_at: manifest.made_at.clone(),
            was_whole: false,
            quarantined: None,
        };
        let place = dir.join(file);
        if place.is_file() && file_tree::hash(&place, |_| ())? == entry.sha256 {
            done.was_whole = true;
            return Ok(done);
        }
        let new = place.with_extension("seg.new");
        file_tree::create_parents(dir, file)?;
        // The file may remain from an interrupted restore.
        match ops::remove_file(&new) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                return Err(file_tree::at("remove", &new)(e).into());
            }
            _ => {}
        }
        file_tree::copy(&from.join(file), &new, |more| {
            progress.bytes += more;
            report_progress(progress);
        })?;
        if place.exists() {
            done.quarantined = Some(folder.quarantine(&place, now)?);
        }
        ops::rename(&new, &place).map_err(file_tree::at("rename", &new))?;
        file_tree::sync_dirs(dir, std::iter::once(file.to_owned()))?;
        Ok(done)
    }
}
