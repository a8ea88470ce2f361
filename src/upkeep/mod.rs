//! What is done to whole data folders: backups and their way back, checks, repair.
//!
//! * [`finish_backup`]: from the links and copies that a server sets aside to a folder with `MANIFEST.json`.
//! * [`restore()`]: from such a folder to a data folder, every hash verified first.
//! * [`restore_one()`]: a segment of it, where that is damaged or gone.
//! * [`check()`]: reads everything and changes nothing.
//! * [`repair()`]: a new folder with what is provably good.

mod backup;
mod check;
mod look;
mod manifest;
mod repair;
mod restore;
mod restore_one;
mod start;
mod tree;

pub use backup::{BackupReport, finish_backup};
pub use check::{CheckError, CheckOptions, CheckReport, Seen, check};
pub use look::LookError;
pub use manifest::{Facts, ManifestError};
pub use repair::{RepairError, RepairReport, repair};
pub use restore::{RestoreError, RestoreReport, restore};
pub use restore_one::{RestoreOneError, RestoredOne, restore_one};
pub use tree::TreeError;

pub use crate::kv::{Finding, Weight};

/// How far a long work is, for whoever watches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Files that are done.
    pub files: u64,
    /// Files in all.
    pub files_all: u64,
    /// Bytes that are done.
    pub bytes: u64,
    /// Bytes in all.
    pub bytes_all: u64,
}

/// Is told how far it is; called often, so it must be quick.
pub type Watch<'w> = &'w mut dyn FnMut(Progress);

#[cfg(test)]
mod tests;
