//! Operations on whole data folders: backup and restore, check, repair.
//!
//! * [`finish_backup`] makes a folder with `MANIFEST.json` from the links and copies that a server
//!   staged.
//! * [`restore()`] makes a data folder from a backup, after every hash was verified.
//! * [`restore_one()`] replaces a damaged or missing segment by that of a backup.
//! * [`check()`] reads everything and changes nothing.
//! * [`repair()`] makes a new folder with the data that is provably intact.

mod backup;
mod check;
mod file_tree;
mod folder_access;
mod manifest;
mod rehearsal;
mod repair;
mod restore;
mod restore_one;

pub use backup::{BackupReport, finish_backup};
pub use check::{CheckError, CheckOptions, CheckReport, FolderPart, check};
pub use file_tree::TreeError;
pub use folder_access::FolderAccessError;
pub use manifest::{Facts, ManifestError};
pub use repair::{RepairError, RepairReport, repair};
pub use restore::{RestoreError, RestoreReport, restore};
pub use restore_one::{RestoreOneError, RestoredOne, SegmentPaths, restore_one};

pub use crate::kv::{Finding, Weight};

/// The progress of a long operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UpkeepProgress {
    /// The number of finished files.
    pub files: u64,
    /// The number of all files.
    pub files_all: u64,
    /// The number of finished bytes.
    pub bytes: u64,
    /// The number of all bytes.
    pub bytes_all: u64,
}

/// A callback that receives the progress. It is called often, so it must be fast.
pub type ProgressCallback<'w> = &'w mut dyn FnMut(UpkeepProgress);

#[cfg(test)]
mod tests;
