//! The state of a target, as pages and the API show it.

use std::sync::Arc;

use super::metadata::ScrapeMetadata;
use crate::model::Timestamp;

/// Whether the last scrape succeeded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ScrapeHealth {
    /// The target was not scraped yet.
    #[default]
    Unknown,
    /// The last scrape succeeded.
    Up,
    /// The last scrape failed.
    Down,
}

impl ScrapeHealth {
    /// Returns the word in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            ScrapeHealth::Unknown => "unknown",
            ScrapeHealth::Up => "up",
            ScrapeHealth::Down => "down",
        }
    }
}

/// The state of a target.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScrapeStatus {
    /// Whether the last scrape succeeded.
    pub health: ScrapeHealth,
    /// When the last scrape began.
    pub last_scrape: Option<Timestamp>,
    /// The duration of the last scrape in seconds, from its beginning to its last byte.
    pub last_duration_s: f64,
    /// The error of the last scrape; `None` if it succeeded.
    pub last_error: Option<String>,
    /// The reason why samples of the last scrape were not stored; `None` if all were.
    pub store_error: Option<String>,
    /// Samples of the last scrape before relabelling.
    pub samples_scraped: u64,
    /// Samples of the last scrape after relabelling.
    pub samples_kept: u64,
    /// Series of the last scrape that were new.
    pub series_added: u64,
    /// Bytes of the last body after decompression.
    pub body_bytes: u64,
    /// Scrapes since the start.
    pub scrapes: u64,
    /// Scrapes that failed since the start.
    pub failures: u64,
    /// Planned scrapes since the start that did not begin, because the one before took too long or
    /// the process did not run.
    pub skipped: u64,
    /// Responses since the start that were dropped, because too many of them wait.
    pub dropped: u64,
    /// Samples since the start that a scrape had twice without a timestamp. The first one counts.
    pub duplicates: u64,
    /// Samples that were not stored since the start, because of their time, their series or a
    /// limit.
    pub refused: u64,
    /// Panics since the start.
    pub panics: u64,
    /// The type, help and unit of the target's metrics.
    pub metadata: Arc<ScrapeMetadata>,
}

impl ScrapeStatus {
    /// Returns the error of the last scrape, and the reason why samples of it were not stored.
    /// Empty if there is neither.
    pub fn shown_error(&self) -> String {
        let errors: Vec<&str> = self.last_error.iter().chain(&self.store_error).map(String::as_str).collect();
        errors.join("; ")
    }
}
