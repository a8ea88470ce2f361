//! Errors and reads of the database of accounts.

use crate::kv::{CommitFailure, DatabaseError, FolderError, Record, Txn};

use crate::identity::tables::master::SealError;

/// A stored hash that is malformed, or that requires more than 1 GiB, 16 passes or 16 lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a stored password hash is damaged, or its cost exceeds the limits")]
pub struct BadHash;

/// A failed change or read of the account store: 503 `storage_degraded`.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The change is not durable.
    #[error("the account store did not accept the change")]
    Commit(#[from] CommitFailure),
    /// A row could not be read.
    #[error("the account store could not be read")]
    Read(#[from] DatabaseError),
    /// A sealed secret could not be opened.
    #[error(transparent)]
    Sealed(#[from] SealError),
    /// A stored password hash is malformed.
    #[error(transparent)]
    Password(#[from] BadHash),
    /// The marker of a finished set-up could not be written.
    #[error("the marker of the finished set-up could not be written")]
    Mark(#[from] FolderError),
    /// A row refers to a missing row.
    #[error("the account store is inconsistent: {0}")]
    Inconsistent(&'static str),
}

/// Returns one row within a change.
pub(in crate::identity) fn read<R: Record>(txn: &Txn<'_>, key: &R::Key) -> Result<Option<R>, StoreError> {
    Ok(txn.get::<R>(key)?)
}
