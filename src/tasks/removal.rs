//! Removal of deleted organisations from the disk.

use crate::identity::{Identity, StoreError};
use crate::model::Timestamp;
use crate::tsdb::{Tsdb, UpkeepError};

/// The reason why data of a deleted organisation remains. The removal stays recorded, and the next
/// call continues it.
#[derive(Debug, thiserror::Error)]
pub enum RemovalError {
    /// The samples could not be removed.
    #[error("the samples of a deleted organisation are not all removed")]
    Samples(#[from] UpkeepError),
    /// The accounts could not be removed.
    #[error("the accounts of a deleted organisation are not all removed")]
    Accounts(#[from] StoreError),
}

/// Removes the data of deleted organisations, samples first, so that the record of a removal is
/// deleted last. Without such a record the call does nothing and does not read the disk. Returns
/// the number of removed organisations. Blocks.
///
/// # Errors
/// The [`RemovalError`] of the first organisation that failed. All others are removed.
pub fn remove_deleted(identity: &Identity, tsdb: &Tsdb, now: Timestamp) -> Result<usize, RemovalError> {
    let mut removed = 0;
    let mut failed = None;
    for org in identity.removals() {
        let done = tsdb.drop_org(org, now).map_err(RemovalError::from);
        match done.and_then(|()| Ok(identity.finish_removal(org)?)) {
            Ok(()) => removed += 1,
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    failed.map_or(Ok(removed), Err)
}
