//! Typed tables over sled, made durable by our own means; the data folder they live in.
//!
//! sled is an index here, never the truth: account changes are in a journal first, samples in the log. Its `flush`
//! alone does not survive a power cut, large rows do not either, and a damaged file makes it panic, so every opening
//! is guarded, every value is framed with a checksum, and counts are kept beside it (docs/storage.md section 0).
//!
//! * [`DataFolder`]: the folder, its lock, its identity, its markers.
//! * [`Control`]: accounts; one committer thread, journal first, then sled.
//! * [`OfflineControl`]: accounts of a folder that nobody has open, read and not changed.
//! * [`HeadWriter`], [`read_part`]: write-once databases for checkpoints of the head.
//! * [`keyed`]: what verifies the records of log and journal; [`plain`]: those of version 1.
//!
//! The only room that says sled or bincode.

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

pub use control::{
    CHANGE_BYTES_MAX, CHANGE_ROWS_MAX, ChangeError, CloseError, CommitError, CommitFailure, Control,
    ControlOptions, ExportError, ExportReport, Fenced, KeyBinding, OfflineControl, OfflineError,
    OfflineFacts, OpenError, RecoveryReport, SideReport, Start, Txn,
};
pub use database::{DatabaseError, EngineError};
pub use files::FileError;
pub(crate) use files::is_no_room;
pub use finding::{Finding, Weight};
pub use folder::{DataFolder, FolderError, Initialised, LastStop, MasterKey, MasterKeySource, holder};
pub use frame::{BODY_BYTES_MAX, DamagedRow, KEY_BYTES_MAX, VALUE_BYTES_MAX};
pub use head::{HeadError, HeadKey, HeadWriter, PartSummary, ReadPartError, read_part};
pub use journal::JournalError;
pub use key::TableKey;
pub use record::{Record, SideRecord, decode_body, encode_body};
pub use rows::{RowError, VALUE_BODY_BYTES_MAX};

/// An error and what caused it, in one line.
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
