//! How this room reads and changes what is stored.
//!
//! Tables of control (the first byte of every key): 0x01 users, 0x02 addresses, 0x03 second factors, 0x04 pending
//! logins, 0x05 sessions, 0x06 sessions last seen, 0x07 links, 0x08 the newest link of an address, 0x09 organisations,
//! 0x0a slugs, 0x0b memberships, 0x0c members, 0x0d counters, 0x0e API keys, 0x0f API keys last used, 0x10 audit,
//! 0x11 API keys' secrets before the last, 0x12 what organisations stored today,
//! 0x18 invitations, 0x19 what their links open, 0x1a organisations being removed,
//! 0x1c identities elsewhere, 0x1d the identities of an account, 0x1e states of sign-ins elsewhere that were used.

use crate::kv::{CommitError, CommitFailure, DatabaseError, FolderError, Record, SideRecord, TableKey, Txn};

use super::Identity;
use super::audit;
use super::master::SealError;
use super::password::BadHash;

/// The account store did not take a change, or could not be read: 503 `storage_degraded`.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The change is not durable.
    #[error("the account store did not take the change")]
    Commit(#[from] CommitFailure),
    /// A row could not be read.
    #[error("the account store could not be read")]
    Read(#[from] DatabaseError),
    /// A sealed secret does not open.
    #[error(transparent)]
    Sealed(#[from] SealError),
    /// A stored password hash is no hash.
    #[error(transparent)]
    Password(#[from] BadHash),
    /// The mark that set-up is over could not be made.
    #[error("the mark of the first set-up could not be made")]
    Mark(#[from] FolderError),
    /// A row points at another that is not there.
    #[error("the account store is inconsistent: {0}")]
    Inconsistent(&'static str),
}

/// One row, as the change sees it.
pub(super) fn read<R: Record>(txn: &Txn<'_>, key: &R::Key) -> Result<Option<R>, StoreError> {
    Ok(txn.get::<R>(key)?)
}

impl Identity {
    /// Runs `change` on the committer and waits until it is durable. What it must know about the state it checks itself:
    /// nobody else changes anything between its reads and its writes.
    pub(super) fn change<T, E>(
        &self,
        change: impl FnOnce(&mut Txn<'_>) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        // The committer's thread notes what happens, and it happens for whoever waits here.
        let origin = audit::origin();
        self.control.commit(move |txn| audit::with_origin(&origin, || change(txn))).map_err(|error| {
            match error {
                CommitError::Refused(refusal) => refusal,
                CommitError::Failed(failure) => StoreError::from(failure).into(),
            }
        })
    }

    /// Writes rows that mean nothing without their main row.
    pub(super) fn put_side<R>(&self, rows: Vec<(R::Key, R)>) -> Result<(), StoreError>
    where
        R: SideRecord + Send + 'static,
        R::Key: Send + 'static,
    {
        match self.control.put_side(rows) {
            Ok(_) => Ok(()),
            Err(CommitError::Refused(error)) => Err(error.into()),
            Err(CommitError::Failed(failure)) => Err(failure.into()),
        }
    }

    pub(super) fn row<R: Record>(&self, key: &R::Key) -> Result<Option<R>, StoreError> {
        Ok(self.control.get::<R>(key)?)
    }

    /// As [`Identity::rows`], from the end: the last `limit` below the key `below`.
    pub(super) fn rows_back<R: Record>(
        &self,
        leading: &impl TableKey,
        below: Option<&R::Key>,
        limit: usize,
    ) -> Result<Vec<(R::Key, R)>, StoreError> {
        Ok(self.control.scan_back::<R>(leading, below, limit)?)
    }

    pub(super) fn rows<R: Record>(&self, leading: &impl TableKey) -> Result<Vec<(R::Key, R)>, StoreError> {
        Ok(self.control.scan::<R>(leading)?)
    }
}
