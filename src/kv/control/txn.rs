//! A change while its closure runs. It sees the committed rows, the earlier changes of its group,
//! and its own.

use super::state::{self, ControlState};
use crate::kv::database::DatabaseError;
use crate::kv::frame;
use crate::kv::journal;
use crate::kv::key::TableKey;
use crate::kv::record::{self, Record, SideRecord};
use crate::kv::rows::{self, KeyAndValue, RowChanges, RowError};

/// Maximum number of rows of one change.
pub const CHANGE_ROWS_MAX: usize = 64;
/// Maximum size of one change in the journal in bytes: below a file of 256 KiB, above the longest
/// value.
pub const CHANGE_BYTES_MAX: usize = 240 * 1024;

/// Reasons why a change cannot be stored although its closure succeeded.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// A key or value is too long.
    #[error("table {table:#04x}")]
    Row {
        /// Tag of the table.
        table: u8,
        /// The exceeded limit.
        source: RowError,
    },
    /// The value could not be encoded.
    #[error("table {table:#04x}: {what}")]
    Encode {
        /// Tag of the table.
        table: u8,
        /// Message of the encoder.
        what: String,
    },
    /// More rows than one commit may have.
    #[error("a change has more than {CHANGE_ROWS_MAX} rows")]
    TooManyRows,
    /// More bytes than one commit may have.
    #[error("a change has {bytes} bytes; at most {CHANGE_BYTES_MAX} are allowed")]
    TooLarge {
        /// Size of the change in bytes.
        bytes: usize,
    },
    /// A stored row could not be read.
    #[error(transparent)]
    Read(#[from] DatabaseError),
}

/// A change in progress.
pub struct Txn<'g> {
    state: &'g ControlState,
    /// Earlier changes of the group, not durable yet.
    group: &'g RowChanges,
    own: RowChanges,
    failure: Option<ChangeError>,
}

impl<'g> Txn<'g> {
    pub(super) fn new(state: &'g ControlState, group: &'g RowChanges) -> Txn<'g> {
        Txn { state, group, own: RowChanges::new(), failure: None }
    }

    /// Returns the rows of the change, or the reason why it cannot be stored.
    pub(super) fn into_rows(self) -> Result<RowChanges, ChangeError> {
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        let bytes = journal::record_bytes(&self.own);
        if bytes > CHANGE_BYTES_MAX {
            return Err(ChangeError::TooLarge { bytes });
        }
        Ok(self.own)
    }

    fn row(&self, key: &[u8]) -> Result<Option<Vec<u8>>, DatabaseError> {
        match self.own.get(key).or_else(|| self.group.get(key)) {
            Some(changed) => Ok(changed.clone()),
            None => self.state.row(key),
        }
    }

    /// Returns the value under `key`, including this change's own writes.
    ///
    /// # Errors
    /// [`DatabaseError`] if the database fails or the row is damaged.
    pub fn get<R: Record>(&self, key: &R::Key) -> Result<Option<R>, DatabaseError> {
        let key = record::full_key::<R>(key);
        self.state.value(&key, &|row| self.row(row))
    }

    /// Returns every value whose key begins with `leading` (`&()` for the whole table), in key
    /// order.
    ///
    /// # Errors
    /// As for [`Txn::get`].
    pub fn scan<R: Record>(&self, leading: &impl TableKey) -> Result<Vec<(R::Key, R)>, DatabaseError> {
        let prefix = record::prefix::<R, _>(leading);
        let mut rows = self.state.rows(&prefix)?;
        for (key, value) in self.group.iter().chain(&self.own).filter(|(key, _)| key.starts_with(&prefix)) {
            match value {
                Some(value) => rows.insert(key.clone(), value.clone()),
                None => rows.remove(key),
            };
        }
        collect::<R>(&rows).map_err(|e| self.state.damaged(e))
    }

    /// Sets the value under `key`. If it cannot be stored (too long, too many rows), the whole
    /// change fails with a [`ChangeError`] after its closure.
    pub fn put<R: Record>(&mut self, key: &R::Key, value: &R) {
        let key = record::full_key::<R>(key);
        let stored = encode(&key, value).and_then(|rows| self.put_rows(&key, rows));
        self.note_failure(stored);
    }

    /// Replaces the rows of the value under `key` with `new`.
    fn put_rows(&mut self, key: &[u8], new: Vec<KeyAndValue>) -> Result<(), ChangeError> {
        let old = self.row_count(key)?;
        for number in u16::try_from(new.len()).unwrap_or(u16::MAX)..old {
            self.change(rows::numbered(key, number), None)?;
        }
        new.into_iter().try_for_each(|(key, value)| self.change(key, Some(value)))
    }

    /// Removes the value under `key`, if there is one.
    pub fn remove<R: Record>(&mut self, key: &R::Key) {
        let removed = self.remove_rows(&record::full_key::<R>(key));
        self.note_failure(removed);
    }

    fn remove_rows(&mut self, key: &[u8]) -> Result<(), ChangeError> {
        let count = self.row_count(key)?;
        (0..count).try_for_each(|number| self.change(rows::numbered(key, number), None))
    }

    /// Makes the change fail after its closure, with its first failure.
    fn note_failure(&mut self, done: Result<(), ChangeError>) {
        if let Err(e) = done {
            self.failure.get_or_insert(e);
        }
    }

    /// Applies `each` to the items in order, as long as the change stays within its limits. Returns
    /// the number of items that it was applied to; the next item, which was too much, is undone.
    /// At least one item is applied: if the first one exceeds the limits, the change fails.
    ///
    /// # Errors
    /// The first error of `each`.
    pub fn as_many_as_fit<T, E>(
        &mut self,
        items: &[T],
        mut each: impl FnMut(&mut Txn<'_>, &T) -> Result<(), E>,
    ) -> Result<usize, E> {
        for (place, item) in items.iter().enumerate() {
            let before = self.own.clone();
            each(self, item)?;
            let exceeds = match &self.failure {
                None => journal::record_bytes(&self.own) > CHANGE_BYTES_MAX,
                Some(failure) => matches!(failure, ChangeError::TooManyRows),
            };
            if exceeds && place > 0 {
                (self.own, self.failure) = (before, None);
                return Ok(place);
            }
            if self.failure.is_some() {
                return Ok(place + 1);
            }
        }
        Ok(items.len())
    }

    /// Sets a side row if its main row exists. Returns whether the main row exists.
    ///
    /// # Errors
    /// As for [`Txn::get`].
    pub fn put_side<R: SideRecord>(&mut self, key: &R::Key, value: &R) -> Result<bool, DatabaseError> {
        let exists = self.row(&record::full_key::<R::Main>(&R::main_key(key)))?.is_some();
        if exists {
            self.put(key, value);
        }
        Ok(exists)
    }

    /// Returns the number of rows of the value under `key`; 0 without a value.
    fn row_count(&self, key: &[u8]) -> Result<u16, DatabaseError> {
        match self.row(key)? {
            None => Ok(0),
            Some(first) => {
                let (frame, _, _) = frame::open(key, &first).map_err(|e| self.state.damaged(e))?;
                Ok(rows::count(frame))
            }
        }
    }

    fn change(&mut self, key: Vec<u8>, value: Option<Vec<u8>>) -> Result<(), ChangeError> {
        if self.own.len() >= CHANGE_ROWS_MAX && !self.own.contains_key(&key) {
            return Err(ChangeError::TooManyRows);
        }
        self.own.insert(key, value);
        Ok(())
    }
}

/// Returns the rows of a value.
fn encode<R: Record>(key: &[u8], value: &R) -> Result<Vec<KeyAndValue>, ChangeError> {
    let table = R::TABLE;
    let body = record::encode_body(value).map_err(|what| ChangeError::Encode { table, what })?;
    rows::split(key, R::VERSION, R::KIND, &body).map_err(|source| ChangeError::Row { table, source })
}

/// Returns the values in `rows` with their keys.
pub(super) fn collect<R: Record>(
    rows: &std::collections::BTreeMap<Vec<u8>, Vec<u8>>,
) -> Result<Vec<(R::Key, R)>, frame::DamagedRow> {
    let mut found = Vec::new();
    state::values(rows, &mut |key, frame, body| {
        found.push((record::decode_key::<R>(key)?, record::decode(key, frame, body)?));
        Ok(())
    })?;
    Ok(found)
}
