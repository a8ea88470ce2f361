//! One segment from a backup back into a stopped data folder, where it is damaged or gone (docs/storage.md section 17).
//!
//! Segments alone: they never change, so what was backed up is what the folder lacks. Every other file went on since.

use std::path::{Path, PathBuf};

use super::manifest::{Entry, Manifest, ManifestError};
use super::tree::{self, TreeError};
use super::{LookError, Progress, Watch, look, restore};
use crate::entropy::Entropy;
use crate::kv::{DataFolder, FileError, FolderError, LastStop, OfflineControl, ops};
use crate::model::Timestamp;
use crate::tsdb;

/// Why a file was not restored; the folder is as it was.
#[derive(Debug, thiserror::Error)]
pub enum RestoreOneError {
    /// The data folder.
    #[error(transparent)]
    Look(#[from] LookError),
    /// The backup's manifest.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// The file system refused.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// What is in its place cannot be moved away.
    #[error(transparent)]
    File(#[from] FileError),
    /// Only segments never change.
    #[error(
        "{} is no segment: only segments/<org>/<name>.seg are restored one by one, since every other file went on after the backup",
        path.display()
    )]
    NoSegment {
        /// What was asked for.
        path: PathBuf,
    },
    /// The backup does not have it.
    #[error("the backup of {made_at} holds no {}", path.display())]
    NotInBackup {
        /// What was asked for.
        path: PathBuf,
        /// When the backup was made.
        made_at: String,
    },
    /// The backup is of another store.
    #[error("the backup is of store {backup}, the folder holds store {folder}")]
    OtherStore {
        /// The backup's.
        backup: String,
        /// The folder's.
        folder: String,
    },
    /// The backup's file is not what was backed up.
    #[error("the backup is damaged, nothing was restored: {}: {what}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The store does not want it, or not this one.
    #[error(transparent)]
    Segment(#[from] tsdb::UnfitSegment),
}

/// What was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoredOne {
    /// Its bytes.
    pub bytes: u64,
    /// When the backup was made, RFC 3339.
    pub made_at: String,
    /// The file was whole already: nothing was changed.
    pub was_whole: bool,
    /// Where that is now which was in its place.
    pub quarantined: Option<PathBuf>,
}

/// Puts the segment `file` (relative to the folder) of the backup `from` into the stopped data folder `dir`, after its hash,
/// its checksums and the folder's own list of segments were compared. `scratch` as for a check.
///
/// # Errors
/// [`RestoreOneError`].
pub fn restore_one(
    (dir, from, file): (&Path, &Path, &Path),
    scratch: &Path,
    now: Timestamp,
    rng: &mut Entropy,
    watch: Watch<'_>,
) -> Result<RestoredOne, RestoreOneError> {
    let in_segments = file.starts_with("segments") && file.extension().is_some_and(|ending| ending == "seg");
    if !in_segments || !tree::is_inside(file) {
        return Err(RestoreOneError::NoSegment { path: file.to_owned() });
    }
    let manifest = Manifest::read(from)?;
    let made_at = manifest.made_at.clone();
    let entry =
        manifest.files.iter().find(|entry| entry.path == file).ok_or_else(|| {
            RestoreOneError::NotInBackup { path: file.to_owned(), made_at: made_at.clone() }
        })?;
    look::nobody_uses(dir)?;
    let looked = |e: FolderError| RestoreOneError::Look(LookError::Folder(e));
    if !dir.join("STORE").exists() {
        return Err(looked(FolderError::NoStore { path: dir.to_owned() }));
    }
    // Held until the end: no server starts meanwhile.
    let folder = DataFolder::open(dir, now, rng).map_err(looked)?;
    let was_clean = folder.last_stop() == LastStop::Clean;
    let wanted = Wanted { manifest: &manifest, entry, from, folder: &folder };
    let done = wanted.put_back(scratch, now, watch);
    if was_clean {
        folder.close_clean(now).map_err(looked)?;
    }
    done
}

struct Wanted<'a> {
    manifest: &'a Manifest,
    entry: &'a Entry,
    from: &'a Path,
    folder: &'a DataFolder,
}

impl Wanted<'_> {
    fn put_back(
        &self,
        scratch: &Path,
        now: Timestamp,
        watch: Watch<'_>,
    ) -> Result<RestoredOne, RestoreOneError> {
        let Wanted { manifest, entry, from, folder } = self;
        let (dir, file) = (folder.path(), entry.path.as_path());
        let own = folder.store_id().to_string();
        if manifest.store != own {
            return Err(RestoreOneError::OtherStore { backup: manifest.store.clone(), folder: own });
        }
        let mut progress =
            Progress { files_all: 2, bytes_all: entry.bytes.saturating_mul(2), ..Progress::default() };
        if let Some(what) = restore::wrong_with(entry, from, &mut progress, watch)? {
            return Err(RestoreOneError::Damaged { path: file.to_owned(), what });
        }
        let control = OfflineControl::read(dir, scratch).map_err(LookError::Offline)?;
        tsdb::fits_list(from, &control, file)?;
        let mut done = RestoredOne {
            bytes: entry.bytes,
            made_at: manifest.made_at.clone(),
            was_whole: false,
            quarantined: None,
        };
        let place = dir.join(file);
        if place.is_file() && tree::hash(&place, |_| ())? == entry.sha256 {
            done.was_whole = true;
            return Ok(done);
        }
        let new = place.with_extension("seg.new");
        tree::make_way(dir, file)?;
        // Of a restore that was stopped.
        match ops::remove_file(&new) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                return Err(tree::at("remove", &new)(e).into());
            }
            _ => {}
        }
        tree::copy(&from.join(file), &new, |more| {
            progress.bytes += more;
            watch(progress);
        })?;
        if place.exists() {
            done.quarantined = Some(folder.quarantine(&place, now)?);
        }
        ops::rename(&new, &place).map_err(tree::at("rename", &new))?;
        tree::sync_dirs(dir, std::iter::once(file.to_owned()))?;
        Ok(done)
    }
}
