//! The tasks of targets.

/// What became of a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrapeStored {
    /// The samples that the store refused.
    pub refused: u64,
    /// The first reason.
    pub reason: Option<String>,
}
