//! Log files from before the log's start. They are no longer part of the log. The files are
//! unlinked at once. If the file system refuses, the unlinking is retried, at the latest by the
//! next start.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use super::log::FullFile;
use crate::sync::IgnorePoison as _;
use crate::tsdb::disk;
use crate::tsdb::error::DiskError;

/// The trimmed files that could not be unlinked yet.
#[derive(Debug, Default)]
pub(in crate::tsdb) struct Trimmed {
    /// Locked while files are unlinked.
    remaining: Mutex<Vec<FullFile>>,
    /// The number of those files, readable while files are unlinked.
    files: AtomicU64,
    /// The bytes of those files, readable while files are unlinked.
    bytes: AtomicU64,
}

/// The result of an attempt to unlink files.
#[derive(Debug, Default)]
pub(in crate::tsdb) struct Removed {
    /// The files that were unlinked.
    pub(in crate::tsdb) unlinked: Vec<FullFile>,
    /// The first error.
    pub(in crate::tsdb) refused: Option<DiskError>,
}

impl Trimmed {
    /// Unlinks `more` and the files that earlier attempts could not unlink.
    pub(in crate::tsdb) fn remove(&self, dir: &Path, more: Vec<FullFile>) -> Removed {
        let mut remaining = self.remaining();
        remaining.extend(more);
        let mut removed = Removed::default();
        for file in std::mem::take(&mut *remaining) {
            // A file that another program removed counts as unlinked.
            match disk::remove_if_there(&file.path) {
                Ok(_) => removed.unlinked.push(file),
                Err(e) => {
                    removed.refused.get_or_insert(e);
                    remaining.push(file);
                }
            }
        }
        self.files.store(remaining.len() as u64, Ordering::Relaxed);
        self.bytes.store(remaining.iter().map(|file| file.bytes).sum(), Ordering::Relaxed);
        // A name that reappears after a power cut is removed by the next start.
        if !removed.unlinked.is_empty()
            && let Err(e) = disk::sync_dir(dir)
        {
            removed.refused.get_or_insert(e);
        }
        removed
    }

    /// Returns the number and the bytes of the files that the last attempt could not unlink. Does
    /// not wait for an attempt in progress.
    pub(in crate::tsdb) fn size(&self) -> (u64, u64) {
        (self.files.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }

    fn remaining(&self) -> MutexGuard<'_, Vec<FullFile>> {
        self.remaining.lock().ignore_poison()
    }
}
