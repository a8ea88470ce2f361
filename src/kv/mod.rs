//! Typed tables over sled with additional durability, and the data folder that contains them.
//!
//! sled is an index here, never the only copy: account changes are written to a journal first,
//! samples to the log. Its `flush` alone does not survive a power cut, large rows do not either,
//! and a damaged file makes it panic. So every opening is guarded, every value is framed with a
//! checksum, and row counts are stored (docs/storage.md section 0).
//!
//! * [`DataFolder`]: the folder, its lock, its identity, its markers.
//! * [`Control`]: accounts; one committer thread, journal first, then sled.
//! * [`OfflineControl`]: read-only access to the accounts of a folder that no server uses.
//! * [`HeadWriter`], [`read_part`]: write-once databases for checkpoints of the head.
//! * [`keyed`]: verification of the records of log and journal; [`plain`]: that of version 1.
//!
//! This is the only room that names sled or bincode.

mod control;
mod database;
pub(crate) mod descriptors;
mod files;
mod finding;
mod folder;
mod frame;
mod head;
mod journal;
mod key;
pub(crate) mod keyed;
pub(crate) mod ops;
pub(crate) mod plain;
mod record;
mod reserve;
mod rows;
#[cfg(test)]
pub(crate) mod scratch;
pub(crate) mod zeros;

pub use control::{
    AccountCopyError, CHANGE_BYTES_MAX, CHANGE_ROWS_MAX, ChangeError, CloseError, CommitError, CommitFailure,
    Control, ControlOptions, CopiedChange, ExportError, ExportReport, Fenced, KeyBinding, KnownChanges,
    OfflineControl, OfflineError, OfflineFacts, OpenError, RecoveryReport, SideReport, StandbyRole,
    StandbyRow, Start, Txn, no_rows_check,
};
pub use database::{DatabaseError, EngineError};
pub use files::FileError;
pub(crate) use files::is_no_room;
pub use finding::{Finding, Weight};
pub use folder::{
    DataFolder, FOLLOWING, FolderError, Initialised, LastStop, MasterKey, MasterKeySource, holder,
};
pub use frame::{BODY_BYTES_MAX, DamagedRow, KEY_BYTES_MAX, VALUE_BYTES_MAX};
pub use head::{HeadError, HeadKey, HeadWriter, PartSummary, ReadPartError, read_part};
pub use journal::JournalError;
pub use key::TableKey;
pub use record::{Record, SideRecord, decode_body, encode_body};
pub use rows::{RowError, VALUE_BODY_BYTES_MAX};

/// Formats an error and its causes in one line.
pub(crate) fn with_sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
