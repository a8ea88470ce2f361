//! Sealing: samples of a closed window move from the head to segments (STORAGE.md section 8).

use super::error::DiskError;
use super::manifest::ManifestError;
use super::{AppendError, Tsdb};
use crate::model::{OrgId, Timestamp};

/// What a seal did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SealReport {
    /// Organisations of which something was sealed.
    pub orgs: u64,
    /// Segments written.
    pub segments: u64,
    /// Samples in them.
    pub samples: u64,
    /// Bytes of their files.
    pub bytes: u64,
    /// Log files removed.
    pub log_files_removed: u64,
}

/// Why an organisation was not sealed. Nothing is lost: its samples stay in the head and in the log.
#[derive(Debug, thiserror::Error)]
pub enum SealError {
    /// The store has no folder, or must not write to it.
    #[error("this store cannot seal: {0}")]
    Closed(String),
    /// Too little free space for the segments.
    #[error("too little free space for a seal: {free} bytes free, {needed} needed")]
    DiskFull {
        /// Bytes free.
        free: u64,
        /// Bytes that must be free.
        needed: u64,
    },
    /// The seal record was not made durable.
    #[error("the seal record was not written")]
    Log(#[source] AppendError),
    /// The file system refused.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// A segment was not written, or could not be read back.
    #[error("a segment of organisation {org} failed: {what}")]
    Segment {
        /// Whose.
        org: OrgId,
        /// How.
        what: String,
    },
    /// The list of segments was not changed.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
}

impl Tsdb {
    /// Seals everything of every organisation now, trims the log and gives its spare file back.
    ///
    /// # Errors
    /// [`SealError`] of the first organisation that could not be sealed; the others are.
    pub fn seal(&self, _now: Timestamp) -> Result<SealReport, SealError> {
        Err(SealError::Closed("sealing is not wired yet".to_owned()))
    }

    /// Seals what is due; to be asked every ten seconds.
    ///
    /// # Errors
    /// As [`Tsdb::seal`].
    pub fn seal_if_due(&self, _now: Timestamp) -> Result<SealReport, SealError> {
        Ok(SealReport::default())
    }
}
