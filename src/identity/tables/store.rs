//! Access of this room to the database of accounts.
//!
//! Tables of control (the first byte of every key): 0x01 users, 0x02 addresses, 0x03 second
//! factors, 0x04 pending logins, 0x05 sessions, 0x06 last use of sessions, 0x07 links, 0x08
//! outstanding links of an address, 0x09 organisations, 0x0a slugs, 0x0b memberships, 0x0c members,
//! 0x0d counters, 0x0e API keys, 0x0f last use of API keys, 0x10 audit log, 0x11 previous secrets
//! of API keys, 0x12 samples that organisations stored today, 0x18 invitations, 0x19 links of
//! invitations, 0x1a organisations being removed, 0x1c linked identities, 0x1d identities of an
//! account, 0x1e used sign-in states.

use crate::kv::{CommitError, CommitFailure, DatabaseError, FolderError, Record, SideRecord, TableKey, Txn};

use crate::identity::Identity;
use crate::identity::tables::audit;
use crate::identity::tables::master::SealError;

/// A stored hash that is malformed, or that requires more than 1 GiB, 16 passes or 16 lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a stored password hash is damaged or costs too much")]
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

impl Identity {
    /// Runs `change` on the committer thread and waits until it is durable. The change must check
    /// its own preconditions: no other change runs between its reads and its writes.
    pub(in crate::identity) fn change<T, E>(
        &self,
        change: impl FnOnce(&mut Txn<'_>) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        // Entries recorded on the committer's thread get the origin of the waiting request.
        let origin = audit::origin();
        self.control.commit(move |txn| audit::with_origin(&origin, || change(txn))).map_err(|error| {
            match error {
                CommitError::Refused(refusal) => refusal,
                CommitError::Failed(failure) => StoreError::from(failure).into(),
            }
        })
    }

    /// Writes rows that are ignored without their main row.
    pub(in crate::identity) fn put_side<R>(&self, rows: Vec<(R::Key, R)>) -> Result<(), StoreError>
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

    pub(in crate::identity) fn row<R: Record>(&self, key: &R::Key) -> Result<Option<R>, StoreError> {
        Ok(self.control.get::<R>(key)?)
    }

    /// Like [`Identity::rows`], but from the end: returns the last `limit` rows below the key
    /// `below`.
    pub(in crate::identity) fn rows_back<R: Record>(
        &self,
        leading: &impl TableKey,
        below: Option<&R::Key>,
        limit: usize,
    ) -> Result<Vec<(R::Key, R)>, StoreError> {
        Ok(self.control.scan_back::<R>(leading, below, limit)?)
    }

    pub(in crate::identity) fn rows<R: Record>(
        &self,
        leading: &impl TableKey,
    ) -> Result<Vec<(R::Key, R)>, StoreError> {
        Ok(self.control.scan::<R>(leading)?)
    }
}
