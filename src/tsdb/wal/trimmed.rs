//! Log files from before the log's beginning. They are no part of it any more, whatever becomes of them: unlinked at
//! once, or tried again where the file system refuses, at the latest by the next start.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use super::log::FullFile;
use crate::sync::IgnorePoison as _;
use crate::tsdb::disk;
use crate::tsdb::error::DiskError;

/// Those that could not be unlinked yet.
#[derive(Debug, Default)]
pub(in crate::tsdb) struct Trimmed {
    /// Locked while files are unlinked.
    left: Mutex<Vec<FullFile>>,
    /// How many those are, and their bytes: readable while files are unlinked.
    files: AtomicU64,
    bytes: AtomicU64,
}

/// What an attempt did.
#[derive(Debug, Default)]
pub(in crate::tsdb) struct Removed {
    /// Unlinked.
    pub(in crate::tsdb) gone: Vec<FullFile>,
    /// The first refusal.
    pub(in crate::tsdb) refused: Option<DiskError>,
}

impl Trimmed {
    /// Unlinks `more` and what was left.
    pub(in crate::tsdb) fn remove(&self, dir: &Path, more: Vec<FullFile>) -> Removed {
        let mut left = self.left();
        left.extend(more);
        let mut removed = Removed::default();
        for file in std::mem::take(&mut *left) {
            // One that somebody else has removed is gone as well.
            match disk::remove_if_there(&file.path) {
                Ok(_) => removed.gone.push(file),
                Err(e) => {
                    removed.refused.get_or_insert(e);
                    left.push(file);
                }
            }
        }
        self.files.store(left.len() as u64, Ordering::Relaxed);
        self.bytes.store(left.iter().map(|file| file.bytes).sum(), Ordering::Relaxed);
        // A name that comes back after a power cut is removed by the next start.
        if !removed.gone.is_empty()
            && let Err(e) = disk::sync_dir(dir)
        {
            removed.refused.get_or_insert(e);
        }
        removed
    }

    /// How many files were left by the last attempt, and their bytes. Waits for no attempt under way.
    pub(in crate::tsdb) fn size(&self) -> (u64, u64) {
        (self.files.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }

    fn left(&self) -> MutexGuard<'_, Vec<FullFile>> {
        self.left.lock().ignore_poison()
    }
}
