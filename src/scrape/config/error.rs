//! The reason why a configuration is refused, with its file and position.

use std::path::PathBuf;

use crate::yaml::{Position, Spanned, YamlError, position};

/// The reason why a configuration is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScrapeConfigError {
    /// The file, if the text is one.
    pub file: Option<PathBuf>,
    /// The position in the text, if there is one.
    pub position: Option<Position>,
    /// What is wrong, without file and position. It contains no secret.
    pub message: String,
}

impl std::fmt::Display for ScrapeConfigError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{}: ", file.display())?;
        }
        if let Some(position) = &self.position {
            write!(f, "{position}: ")?;
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for ScrapeConfigError {}

impl From<YamlError> for ScrapeConfigError {
    fn from(error: YamlError) -> ScrapeConfigError {
        ScrapeConfigError { file: None, position: Some(error.position), message: error.message }
    }
}

/// Returns an error at a position.
pub(super) fn problem(at: Position, message: impl Into<String>) -> ScrapeConfigError {
    ScrapeConfigError { file: None, position: Some(at), message: message.into() }
}

/// Refuses a value.
pub(super) fn refuse<T, V>(value: &Spanned<V>, message: impl Into<String>) -> Result<T, ScrapeConfigError> {
    Err(problem(position(value), message))
}
