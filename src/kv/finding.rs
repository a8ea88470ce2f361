//! What a check found: one sentence with its place and its weight, for people and for programs.

use std::path::PathBuf;

use crate::model::{OrgId, Timestamp};

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weight {
    /// Worth knowing, nothing is wrong.
    Note,
    /// The next start puts it right by itself, and nothing that was answered is lost.
    Repairable,
    /// Something that was answered cannot be read any more.
    Loss,
}

/// One thing that a check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub weight: Weight,
    /// The file or folder, relative to the data folder.
    pub file: PathBuf,
    /// Where in it.
    pub offset: Option<u64>,
    /// Whose samples it is about.
    pub org: Option<OrgId>,
    /// The first and last moment of the samples it is about.
    pub range: Option<(Timestamp, Timestamp)>,
    /// How many samples, records or changes it is about.
    pub count: Option<u64>,
    /// What it is, in words.
    pub what: String,
}

impl Finding {
    /// A finding about a whole file.
    pub fn new(weight: Weight, file: impl Into<PathBuf>, what: impl Into<String>) -> Finding {
        let (file, what) = (file.into(), what.into());
        Finding { weight, file, offset: None, org: None, range: None, count: None, what }
    }

    /// The same, at a place of the file.
    #[must_use]
    pub fn at(self, offset: u64) -> Finding {
        Finding { offset: Some(offset), ..self }
    }

    /// The same, about so many.
    #[must_use]
    pub fn counting(self, count: u64) -> Finding {
        Finding { count: Some(count), ..self }
    }
}
