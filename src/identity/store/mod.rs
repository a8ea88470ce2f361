//! Access of this room to the database of accounts.

mod users;

use crate::kv::{CommitError, Record, SideRecord, TableKey, Txn};

use crate::identity::Identity;
use crate::identity::origin::{origin, with_origin};
use crate::identity::tables::store::StoreError;

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
        let origin = origin();
        self.control.commit(move |txn| with_origin(&origin, || change(txn))).map_err(|error| match error {
            CommitError::Refused(refusal) => refusal,
            CommitError::Failed(failure) => StoreError::from(failure).into(),
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
