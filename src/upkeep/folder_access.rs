//! The conditions under which a whole folder can be read, for checks and repairs.

use std::path::{Path, PathBuf};

use super::file_tree::TreeError;
use crate::kv::{self, FolderError, OfflineError};

/// The reason why a folder cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum FolderAccessError {
    /// A server is using the folder, so the files may change meanwhile.
    #[error("{} is in use ({holder}): stop the server, or make a backup and check that", dir.display())]
    InUse {
        /// The folder.
        dir: PathBuf,
        /// The process that holds the lock.
        holder: String,
    },
    /// The folder is not a store, or a newer program made it.
    #[error(transparent)]
    Offline(#[from] OfflineError),
    /// The lock cannot be read.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The file system refused an operation.
    #[error(transparent)]
    Tree(#[from] TreeError),
}

/// Returns an error if a server is using the folder.
pub(super) fn ensure_unused(dir: &Path) -> Result<(), FolderAccessError> {
    match kv::holder(dir)? {
        Some(holder) => Err(FolderAccessError::InUse { dir: dir.to_owned(), holder }),
        None => Ok(()),
    }
}
