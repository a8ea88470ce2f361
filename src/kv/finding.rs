//! Findings of a check: a sentence with its position and severity, for people and for programs.

use std::path::PathBuf;

use crate::model::{OrgId, Timestamp};

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weight {
    /// Information; nothing is wrong.
    Note,
    /// The next start repairs it, and nothing confirmed is lost.
    Repairable,
    /// Something that was confirmed can no longer be read.
    Loss,
}

/// One finding of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The severity.
    pub weight: Weight,
    /// The file or folder, relative to the data folder.
    pub file: PathBuf,
    /// Byte offset in the file.
    pub offset: Option<u64>,
    /// The organisation of the affected samples.
    pub org: Option<OrgId>,
    /// First and last time of the affected samples, both inclusive.
    pub range: Option<(Timestamp, Timestamp)>,
    /// Number of affected samples, records or changes.
    pub count: Option<u64>,
    /// Description.
    pub what: String,
}

impl Finding {
    /// Creates a finding about a whole file.
    pub fn new(weight: Weight, file: impl Into<PathBuf>, what: impl Into<String>) -> Finding {
        let (file, what) = (file.into(), what.into());
        Finding { weight, file, offset: None, org: None, range: None, count: None, what }
    }

    /// Sets the byte offset.
    #[must_use]
    pub fn at(self, offset: u64) -> Finding {
        Finding { offset: Some(offset), ..self }
    }

    /// Sets the number of affected samples, records or changes.
    #[must_use]
    pub fn counting(self, count: u64) -> Finding {
        Finding { count: Some(count), ..self }
    }
}
