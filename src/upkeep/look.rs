//! What stands in the way of looking at a whole folder: the same for a check and a repair.

use std::path::{Path, PathBuf};

use super::tree::TreeError;
use crate::kv::{self, FolderError, OfflineError};

/// Why a folder cannot be looked at.
#[derive(Debug, thiserror::Error)]
pub enum LookError {
    /// A server runs on it: what is read would change meanwhile.
    #[error("{} is in use ({holder}): stop the server, or take a backup of it and look at that", dir.display())]
    InUse {
        /// The folder.
        dir: PathBuf,
        /// Who.
        holder: String,
    },
    /// It is no store, or a newer program's.
    #[error(transparent)]
    Offline(#[from] OfflineError),
    /// Its lock cannot be looked at.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The file system refused.
    #[error(transparent)]
    Tree(#[from] TreeError),
}

/// Nobody may be using the folder.
pub(super) fn nobody_uses(dir: &Path) -> Result<(), LookError> {
    match kv::holder(dir)? {
        Some(holder) => Err(LookError::InUse { dir: dir.to_owned(), holder }),
        None => Ok(()),
    }
}
