//! Why something was not done, one enum per family of operations.

use std::io;
use std::path::{Path, PathBuf};

use super::open_progress::Stopped;
use super::report::Capacity;
use crate::kv::{HeadError, ReadPartError};
use crate::model::{OutOfMemory, Timestamp};

/// Why nothing of a batch was acknowledged. None of these is the sender's fault: all are a 503.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// The log could not be made durable; writes stay closed until a restart. Part of the batch may be kept.
    #[error("the log is fenced: {0}")]
    Fenced(String),
    /// The store was started read-only because its log is damaged.
    #[error("the store is read-only: {0}")]
    ReadOnly(String),
    /// Too little free space for a new log file; writes resume by themselves.
    #[error("the disk is full: {free} bytes free, {needed} needed")]
    DiskFull {
        /// Bytes free.
        free: u64,
        /// Bytes that must be free.
        needed: u64,
    },
    /// The operating system had no descriptor or no memory to write the log or to make a new file of it, or interrupted
    /// every attempt; the next request tries again. Nothing of the batch is stored, unless it went into more than one file.
    #[error("the operating system has no resources to write the log: {0}")]
    OutOfResources(String),
    /// The operating system has no memory for the batch and what the store makes of it. Nothing of it is stored.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
    /// The organisation has all that it may have of something that becomes free again.
    #[error("the organisation uses {used} of {allowed} bytes of {}", .what.as_str())]
    AtCapacity {
        /// Of what.
        what: Capacity,
        /// Bytes in use.
        used: u64,
        /// Bytes allowed now.
        allowed: u64,
    },
    /// A sample is too far ahead of a wall clock that may itself be behind. Nothing of the batch is stored.
    #[error("a sample's time {} is {} ms ahead of the clock, {why}", .at.as_ms(), .at.ms_since(*.now))]
    ClockUnconfirmed {
        /// The time of the latest sample.
        at: Timestamp,
        /// The wall clock's time.
        now: Timestamp,
        /// Why the wall clock may be behind.
        why: Unconfirmed,
    },
    /// The store is closing.
    #[error("the store is closed")]
    Closed,
    /// Nothing was stored: the batch was split by its looks, and they deceive.
    #[error("the batch must be decoded without guessing")]
    Guessed,
}

/// Why the wall clock may be behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unconfirmed {
    /// The process started a short time ago: a machine without a battery-backed clock starts with a time of the past.
    #[error(
        "which may still be wrong so soon after a start: nothing is stored, send it again; from {} on such samples are refused for good",
        .until.to_rfc3339()
    )]
    JustStarted {
        /// The wall clock's time at which it is believed.
        until: Timestamp,
    },
    /// The wall clock is earlier than the program.
    #[error(
        "which is wrong, since it is earlier than this program was built ({}): nothing is stored, send it again until the clock of the server is set right",
        .built.to_rfc3339()
    )]
    BeforeBuild {
        /// When the program was built.
        built: Timestamp,
    },
}

/// What the file system answered, to what, where.
#[derive(Debug, thiserror::Error)]
#[error("{action} {}", path.display())]
pub struct DiskError {
    /// The operation: "open", "sync", "rename".
    pub action: &'static str,
    /// The file or directory.
    pub path: PathBuf,
    /// The operating system's answer.
    pub source: io::Error,
}

impl DiskError {
    /// For `map_err`: names the operation and the path.
    pub(super) fn at(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> DiskError {
        let path = path.to_owned();
        move |source| DiskError { action, path, source }
    }

    /// The operation, the path and the cause in one line, for health texts.
    pub(super) fn line(&self) -> String {
        format!("{self}: {}", self.source)
    }
}

/// Why the store did not open at all. Damage is not among them: it opens read-only then.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file system refused.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// A file is of another store, or of a newer version: it is left alone, byte for byte.
    #[error("{}: {what}", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What it is.
        what: String,
    },
    /// There is no room for the first file of a new log.
    #[error("the disk is full: {free} bytes free, {needed} needed")]
    DiskFull {
        /// Bytes free.
        free: u64,
        /// Bytes that must be free.
        needed: u64,
    },
    /// The list of segments cannot be read.
    #[error(transparent)]
    Manifest(#[from] super::manifest::ManifestError),
    /// A thread could not be started.
    #[error("could not start a thread")]
    Thread(#[source] io::Error),
    /// Who looked on has ended it ([`super::Options::onlooker`]).
    #[error("stopped before the store was open")]
    Stopped,
}

/// Why a checkpoint was not made; the one before it still holds and the log has everything.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The store has no folder, or must not write to it.
    #[error("this store takes no checkpoints: {0}")]
    Closed(String),
    /// Too little free space (docs/storage.md section 12).
    #[error("too little free space for a checkpoint: {free} bytes free, {needed} needed")]
    DiskFull {
        /// Bytes free.
        free: u64,
        /// Bytes that must be free.
        needed: u64,
    },
    /// The file system refused.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// A part could not be written.
    #[error("head part could not be written")]
    Part(#[from] HeadError),
}

/// Bytes that are not what their drawing says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("byte {offset}: {what}")]
pub struct Damage {
    /// Where, from the start of the body or file at hand.
    pub offset: u64,
    /// What was found.
    pub what: &'static str,
}

impl Damage {
    pub(super) fn new(offset: usize, what: &'static str) -> Damage {
        Damage { offset: offset as u64, what }
    }
}

/// Why a generation cannot be used; recovery then takes an older one or the whole log.
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
    /// Whether there is nothing wrong with the generation: who looks on has ended the start.
    pub(super) fn is_stop(&self) -> bool {
        matches!(self, GenerationError::Part(ReadPartError::Row(RowError::Stopped(_))))
    }
}

/// Why a row of a generation was not taken.
#[derive(Debug, thiserror::Error)]
pub(super) enum RowError {
    #[error(transparent)]
    Damage(#[from] Damage),
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

impl From<Stopped> for OpenError {
    fn from(_: Stopped) -> OpenError {
        OpenError::Stopped
    }
}
