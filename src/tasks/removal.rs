//! What is left of deleted organisations, from the disk.

use crate::identity::{Identity, StoreError};
use crate::model::Timestamp;
use crate::tsdb::{Tsdb, UpkeepError};

/// Why something of a deleted organisation is left. It stays noted, and the next call goes on.
#[derive(Debug, thiserror::Error)]
pub enum RemovalError {
    /// Samples.
    #[error("the samples of a deleted organisation are not all removed")]
    Samples(#[from] UpkeepError),
    /// Accounts.
    #[error("the accounts of a deleted organisation are not all removed")]
    Accounts(#[from] StoreError),
}

/// Removes what deleted organisations left: samples first, so that the note of it outlives everything else. Does nothing
/// where there is none, which it knows without a look at the disk. Blocks.
///
/// # Errors
/// [`RemovalError`] of the first that failed; the others are removed.
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
