//! Access of this room to the database of accounts.

mod users;

use std::sync::Arc;

use crate::kv::{CommitError, Record, SideRecord, TableKey, Txn};
use crate::model::OrgId;

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

    /// Applies `each` to all items in order, in as few changes as they fit in. Each item is changed
    /// as a whole. Blocks (commits).
    ///
    /// # Errors
    /// [`StoreError`]; items of earlier changes are changed then.
    pub(in crate::identity) fn change_each<T: Clone + Send + Sync + 'static>(
        &self,
        items: &[T],
        each: impl Fn(&mut Txn<'_>, &T) -> Result<(), StoreError> + Copy + Send + 'static,
    ) -> Result<(), StoreError> {
        let items: Arc<[T]> = items.into();
        let mut done = 0;
        while done < items.len() {
            let items = Arc::clone(&items);
            done +=
                self.change(move |txn| txn.as_many_as_fit(items.get(done..).unwrap_or_default(), each))?;
        }
        Ok(())
    }

    /// Removes the rows with these keys. Blocks (commits).
    ///
    /// # Errors
    /// Those of [`Identity::change_each`].
    pub(in crate::identity) fn remove_all<R: Record>(&self, keys: &[R::Key]) -> Result<(), StoreError>
    where
        R::Key: Clone + Send + Sync + 'static,
    {
        self.change_each(keys, |txn, key| {
            txn.remove::<R>(key);
            Ok(())
        })
    }

    /// Removes all rows of an organisation from a table. Reads them all at once. Blocks (commits).
    ///
    /// # Errors
    /// Those of [`Identity::change_each`].
    pub(in crate::identity) fn remove_rows_of<R: Record>(&self, org: OrgId) -> Result<(), StoreError>
    where
        R::Key: Clone + Send + Sync + 'static,
    {
        let keys: Vec<R::Key> = self.rows::<R>(&org)?.into_iter().map(|(key, _)| key).collect();
        self.remove_all::<R>(&keys)
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
