//! The progress file of a copy: the position after which an interrupted copy continues.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{CopyPosition, CopyTotals, SampleCopyError};

/// The greatest size of the file in bytes.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// The content of the file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct StoredProgress {
    version: u32,
    /// The identity of the source, the destination and the options of the copy.
    identity: String,
    position: CopyPosition,
    totals: CopyTotals,
}

/// The progress file of one copy.
#[derive(Debug)]
pub struct ProgressFile {
    path: Option<PathBuf>,
    identity: String,
}

impl ProgressFile {
    /// Returns the file of a copy. `identity` describes source, destination and options.
    pub fn new(path: &Path, identity: String) -> ProgressFile {
        ProgressFile { path: Some(path.to_owned()), identity }
    }

    /// Returns a copy's progress that is not stored.
    pub fn none() -> ProgressFile {
        ProgressFile { path: None, identity: String::new() }
    }

    /// Returns the stored position and totals. There are none if the file is missing or belongs to
    /// another copy, which then begins again.
    ///
    /// # Errors
    /// [`SampleCopyError::Progress`] if the file cannot be read.
    pub fn load(&self) -> Result<Option<(CopyPosition, CopyTotals)>, SampleCopyError> {
        let Some(path) = &self.path else { return Ok(None) };
        let length = match std::fs::metadata(path) {
            Ok(metadata) => metadata.len(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.failed(error)),
        };
        if length > FILE_BYTES_MAX {
            return Ok(None);
        }
        let bytes = std::fs::read(path).map_err(|error| self.failed(error))?;
        let stored: Option<StoredProgress> = serde_json::from_slice(&bytes).ok();
        let stored = stored.filter(|stored| stored.version == 1 && stored.identity == self.identity);
        Ok(stored.map(|stored| (stored.position, stored.totals)))
    }

    /// Checks that the file can be written, so that a copy does not fail after hours of work.
    ///
    /// # Errors
    /// [`SampleCopyError::Progress`].
    pub fn check_writable(&self) -> Result<(), SampleCopyError> {
        let Some(path) = &self.path else { return Ok(()) };
        let temporary = path.with_extension("tmp");
        let tried = std::fs::File::create(&temporary).and_then(|_| std::fs::remove_file(&temporary));
        tried.map_err(|error| self.failed(error))
    }

    /// Stores a position. Either the old or the new one survives an interruption.
    ///
    /// # Errors
    /// [`SampleCopyError::Progress`].
    pub fn save(&self, position: CopyPosition, totals: &CopyTotals) -> Result<(), SampleCopyError> {
        let Some(path) = &self.path else { return Ok(()) };
        let stored =
            StoredProgress { version: 1, identity: self.identity.clone(), position, totals: totals.clone() };
        let bytes = serde_json::to_vec(&stored).map_err(|error| self.failed(error.into()))?;
        let temporary = path.with_extension("tmp");
        let write = || {
            let mut file = std::fs::File::create(&temporary)?;
            file.write_all(&bytes)?;
            file.sync_all()?;
            std::fs::rename(&temporary, path)
        };
        write().map_err(|error| self.failed(error))
    }

    /// Removes the file, after the end of the copy.
    ///
    /// # Errors
    /// [`SampleCopyError::Progress`].
    pub fn remove(&self) -> Result<(), SampleCopyError> {
        let Some(path) = &self.path else { return Ok(()) };
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(self.failed(error)),
            _ => Ok(()),
        }
    }

    fn failed(&self, source: std::io::Error) -> SampleCopyError {
        let file = self.path.as_deref().unwrap_or(Path::new("")).display().to_string();
        SampleCopyError::Progress { file, source }
    }
}
