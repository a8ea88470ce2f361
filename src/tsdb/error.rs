//! The errors of this module, one enum per family of operations.

use std::io;
use std::path::{Path, PathBuf};

use super::open_progress::OpenStopped;
use super::report::Capacity;
use crate::kv::{CommitFailure, DatabaseError, HeadError, ReadPartError};
use crate::model::{OrgId, OutOfMemory, StandbyRefusal, Timestamp};

/// The reason why no sample of a batch was acknowledged. None of these is the sender's fault, and
/// all map to 503.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// The log could not be made durable. Writes stay closed until a restart. Part of the batch may
    /// be stored.
    #[error("the log is fenced: {0}")]
    Fenced(String),
    /// The store was started read-only because its log is damaged.
    #[error("the store is read-only: {0}")]
    ReadOnly(String),
    /// Too little space is free for a new log file. Writes resume by themselves.
    #[error("the disk is full: {free} bytes free, {needed} needed")]
    DiskFull {
        /// Bytes free.
        free: u64,
        /// Bytes that must be free.
        needed: u64,
    },
    /// The operating system had no descriptor or memory to write or create a log file, or
    /// interrupted every attempt. The next request tries again. No sample of the batch is stored,
    /// unless the batch needed more than one file.
    #[error("the operating system has no resources to write the log: {0}")]
    OutOfResources(String),
    /// The operating system has no memory for the batch and its processing. No sample of it is
    /// stored.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
    /// The organisation has reached a limit that becomes free again.
    #[error("the organisation uses {used} of {allowed} bytes of {}", .what.as_str())]
    AtCapacity {
        /// The limited resource.
        what: Capacity,
        /// Bytes in use.
        used: u64,
        /// Bytes allowed now.
        allowed: u64,
    },
    /// A sample is too far ahead of a wall clock that may itself be behind. No sample of the batch
    /// is stored.
    #[error("a sample's time {} is {} ms ahead of the clock, {why}", .at.as_ms(), .at.ms_since(*.now))]
    ClockUnconfirmed {
        /// The time of the latest sample.
        at: Timestamp,
        /// The time of the wall clock.
        now: Timestamp,
        /// The reason why the wall clock may be behind.
        why: Unconfirmed,
    },
    /// The store is closing.
    #[error("the store is closed")]
    Closed,
    /// This process accepts no records of its own, or no follower has confirmed them. In the second
    /// case they may be stored.
    #[error(transparent)]
    Standby(#[from] StandbyRefusal),
}

/// The reason why copied records were not stored, or records could not be read for a follower.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// The record does not follow the last one, or does not fit the log file. No part of the batch
    /// was stored.
    #[error("the log of the primary does not continue this log: {0}")]
    Diverged(String),
    /// The record is of an unknown kind, or its body is damaged.
    #[error("copied record {seq} is invalid: {what}")]
    Invalid {
        /// The number of the record.
        seq: u64,
        /// The problem.
        what: String,
    },
    /// The first wanted record is no longer in the log.
    #[error("the log begins with record {first}, but record {wanted} was requested")]
    Trimmed {
        /// The first record that is left.
        first: u64,
        /// The wanted record.
        wanted: u64,
    },
    /// A file of the log is damaged.
    #[error("{} is damaged at byte {offset}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The offset of the damage.
        offset: u64,
    },
    /// The log was not written.
    #[error(transparent)]
    Append(#[from] AppendError),
    /// Control did not store the deletion or the drop.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// A file operation failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

/// The reason why the wall clock may be behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unconfirmed {
    /// The process started a short time ago. A machine without a battery-backed clock starts with a
    /// past time.
    #[error(
        "which may still be wrong shortly after a start: nothing is stored, retry the request; from {} on such samples are refused for good",
        .until.to_rfc3339()
    )]
    JustStarted {
        /// The time of the wall clock at which it is accepted as right.
        until: Timestamp,
    },
    /// The wall clock is earlier than the build of the program.
    #[error(
        "which is wrong, since it is earlier than the build of this program ({}): nothing is stored, retry the request until the clock of the server is corrected",
        .built.to_rfc3339()
    )]
    BeforeBuild {
        /// The build time of the program.
        built: Timestamp,
    },
}

/// A failed file operation.
#[derive(Debug, thiserror::Error)]
#[error("{action} {}", path.display())]
pub struct DiskError {
    /// The operation: "open", "sync", "rename".
    pub action: &'static str,
    /// The file or directory.
    pub path: PathBuf,
    /// The operating system's error.
    pub source: io::Error,
}

impl DiskError {
    /// Returns a conversion for `map_err` that adds the operation and the path.
    pub(super) fn at(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> DiskError {
        let path = path.to_owned();
        move |source| DiskError { action, path, source }
    }

    /// Formats operation, path and cause in one line, for health texts.
    pub(super) fn line(&self) -> String {
        format!("{self}: {}", self.source)
    }
}

/// The reason why a store did not open at all. Damage is not among them: the store then opens
/// read-only.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A file operation failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// A file belongs to another store or a newer version. The file is not changed.
    #[error("{}: {what}", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// A description of the file.
        what: String,
    },
    /// No space is left for the first file of a new log.
    #[error("the disk is full: {free} bytes free, {needed} needed")]
    DiskFull {
        /// Bytes free.
        free: u64,
        /// Bytes that must be free.
        needed: u64,
    },
    /// The list of segments cannot be read.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// A thread could not be started.
    #[error("could not start a thread")]
    Thread(#[source] io::Error),
    /// The observer stopped the start ([`super::Options::observer`]).
    #[error("stopped before the store was open")]
    Stopped,
}

/// The reason why a checkpoint failed. The previous one remains valid, and the log holds all
/// samples.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The store has no folder, or must not write to it.
    #[error("this store cannot write checkpoints: {0}")]
    Closed(String),
    /// Less space is free than required (docs/storage.md section 12).
    #[error("too little free space for a checkpoint: {free} bytes free, {needed} needed")]
    DiskFull {
        /// Bytes free.
        free: u64,
        /// Bytes that must be free.
        needed: u64,
    },
    /// A file operation failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// A part could not be written.
    #[error("a part of the checkpoint could not be written")]
    Part(#[from] HeadError),
}

/// Bytes that do not match their format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("byte {offset}: {what}")]
pub struct Damage {
    /// The offset from the start of the body or file.
    pub offset: u64,
    /// A description of the damage.
    pub what: &'static str,
}

impl Damage {
    pub(super) fn new(offset: usize, what: &'static str) -> Damage {
        Damage { offset: offset as u64, what }
    }
}

/// The reason why the log cannot be read behind its writer.
#[derive(Debug, thiserror::Error)]
pub enum TailError {
    /// The store has no log, or must not read it.
    #[error("this store has no log to read: {0}")]
    NoLog(String),
    /// Records were trimmed before they were read.
    #[error("log records {lost_from} to {lost_to} were removed before they were read")]
    Trimmed {
        /// The first removed record, inclusive, which is the wanted record.
        lost_from: u64,
        /// The last removed record, inclusive. The next one can be read.
        lost_to: u64,
    },
    /// The wanted record is beyond the end of the log, which was rolled back or replaced.
    #[error("log record {asked} was requested, but the log ends with record {last}")]
    Ahead {
        /// The wanted record.
        asked: u64,
        /// The last record of the log.
        last: u64,
    },
    /// The log is damaged, or a file is missing.
    #[error("log damaged at byte {offset} of {}: {what}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The offset of the record that cannot be read.
        offset: u64,
        /// A description of the damage.
        what: &'static str,
    },
    /// The body of a record does not match its type.
    #[error("log record {seq} cannot be decoded")]
    Body {
        /// The record.
        seq: u64,
        /// The damage of its body.
        source: Damage,
    },
    /// A file operation failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The store is closed, and every record was read.
    #[error("the store is closed")]
    Closed,
}

/// The reason why a pin was not stored.
#[derive(Debug, thiserror::Error)]
pub enum PinError {
    /// The store has no log.
    #[error("this store has no log: {0}")]
    NoLog(String),
    /// All pins are in use.
    #[error("the log has {0} pins, which is the limit")]
    TooMany(usize),
    /// The change was not made durable.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
}

/// The reason why a generation cannot be used. Recovery then uses an older one or the whole log.
#[derive(Debug, thiserror::Error)]
pub(super) enum GenerationError {
    #[error(transparent)]
    Disk(#[from] DiskError),
    #[error("DONE: {0}")]
    Done(String),
    #[error(transparent)]
    Part(#[from] ReadPartError<RowError>),
}

impl GenerationError {
    /// Returns whether the observer stopped the start, so that the generation itself is not at
    /// fault.
    pub(super) fn is_stop(&self) -> bool {
        matches!(self, GenerationError::Part(ReadPartError::Row(RowError::Stopped(_))))
    }
}

/// The reason why a row of a generation was not loaded.
#[derive(Debug, thiserror::Error)]
pub(super) enum RowError {
    #[error(transparent)]
    Damage(#[from] Damage),
    #[error(transparent)]
    Stopped(#[from] OpenStopped),
}

impl From<OpenStopped> for OpenError {
    fn from(_: OpenStopped) -> OpenError {
        OpenError::Stopped
    }
}

/// The reason why the list of segments could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// Reading control failed.
    #[error("the list of segments cannot be read")]
    Read(#[from] DatabaseError),
    /// The change was not made durable.
    #[error("the list of segments cannot be changed")]
    Commit(#[source] CommitFailure),
    /// A segment to be dropped is not listed, because another thread dropped it.
    #[error("segment {seq} of organisation {org} is not listed")]
    NotListed {
        /// The organisation.
        org: OrgId,
        /// The number of the segment.
        seq: u64,
    },
    /// The sealed time or its record would decrease.
    #[error("organisation {org} is sealed up to {have:?}; this end must not move back to {asked:?}")]
    Falls {
        /// The organisation.
        org: OrgId,
        /// The committed record and time.
        have: (u64, i64),
        /// The requested record and time.
        asked: (u64, i64),
    },
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
}

impl ManifestError {
    /// Returns whether the change certainly did not take place and will not after a restart.
    pub(in crate::tsdb) fn is_certain(&self) -> bool {
        !matches!(self, ManifestError::Commit(CommitFailure::Fenced(_) | CommitFailure::Closed))
    }
}
