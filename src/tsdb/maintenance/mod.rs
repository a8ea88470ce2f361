//! Work on the data while the store runs: checkpoints, seals, merges of segments, retention,
//! deletions, and the staging of backups. The methods of [`Tsdb`](super::Tsdb) that start it are
//! here.

pub(super) mod backup;
pub(super) mod checkpoint;
pub(super) mod checkpointer;
pub(super) mod compact;
pub(super) mod copies;
pub(super) mod deletion;
pub(super) mod log_mark;
mod pins;
pub(super) mod retention;
pub(super) mod seal;
