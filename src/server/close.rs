//! Closes the rooms that store something.

use std::sync::Arc;

use super::ServerError;
use crate::identity::Identity;
use crate::kv::{self, Control, DataFolder};
use crate::model::Timestamp;
use crate::tsdb::{Tsdb, Writes};

/// Seals, writes a checkpoint, and closes the store. Returns the reason why the log accepts no
/// writes, if it accepted none before.
pub(super) fn close_samples(tsdb: &Tsdb, now: Timestamp) -> Option<String> {
    let fenced = match tsdb.health().writes {
        Writes::Fenced(why) | Writes::Stopped(why) | Writes::ReadOnly(why) => Some(why),
        Writes::Open | Writes::DiskFull { .. } | Writes::Closed => None,
    };
    // With everything in segments or a checkpoint, the next start replays nothing. The checkpoint
    // of an empty head is empty and spares the next start reading an older one.
    if let Err(error) = tsdb.seal(now) {
        tracing::warn!("not everything was sealed: {}", kv::with_sources(&error));
    }
    if let Err(error) = tsdb.checkpoint() {
        tracing::warn!(%error, "no final checkpoint was written; the next start replays the log instead");
    }
    tsdb.close();
    fenced
}

pub(super) fn close_accounts(
    identity: Arc<Identity>,
    control: Arc<Control>,
    now: Timestamp,
) -> Result<(), ServerError> {
    if identity.accepts_changes() {
        identity.close(now)?;
    }
    drop(identity);
    let control = Arc::try_unwrap(control).map_err(|_| ServerError::StillInUse("accounts"))?;
    Ok(control.close()?)
}

pub(super) fn close_folder(folder: Arc<DataFolder>, now: Timestamp) -> Result<(), ServerError> {
    let folder = Arc::try_unwrap(folder).map_err(|_| ServerError::StillInUse("the data folder"))?;
    folder.close_clean(now)?;
    tracing::info!("stopped cleanly");
    Ok(())
}
