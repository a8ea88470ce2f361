//! The reasons why a scrape failed.

use crate::ingest::DecodeError;
use crate::outbound::TargetError;

/// The most bytes of an error that a status shows.
const SHOWN_BYTES_MAX: usize = 1_024;

/// The reason why a scrape failed. Nothing of its response is stored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScrapeError {
    /// There is no response.
    #[error(transparent)]
    Fetch(#[from] TargetError),
    /// The status is not 200.
    #[error("the target returned HTTP status {0}")]
    Status(u16),
    /// The body is longer than `body_size_limit`, before or after decompression.
    #[error("the body has more than {0} bytes (body_size_limit)")]
    BodySize(u64),
    /// The format of the response is unknown.
    #[error("{0}")]
    ContentType(String),
    /// The body cannot be decoded.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// A line or a metric is not valid.
    #[error("{reason}{}", of_series(.series))]
    Invalid {
        /// The reason, with the number of the line.
        reason: String,
        /// The series, if it could be read.
        series: String,
    },
    /// There are too many samples.
    #[error("the scrape has {found} samples after relabelling; at most {allowed} are allowed (sample_limit)")]
    SampleLimit {
        /// The number of samples.
        found: u64,
        /// The limit.
        allowed: u64,
    },
    /// A series has too many labels, or a label is too long.
    #[error("the series {series} has {found} {what}; at most {allowed} are allowed ({limit})")]
    LabelLimit {
        /// The series.
        series: String,
        /// What is counted.
        what: &'static str,
        /// How many there are.
        found: usize,
        /// The limit.
        allowed: u64,
        /// The key of the limit in the configuration.
        limit: &'static str,
    },
    /// A native histogram has too many buckets, even in the lowest resolution.
    #[error(
        "a native histogram has {found} buckets; at most {allowed} are allowed (native_histogram_bucket_limit)"
    )]
    BucketLimit {
        /// The number of buckets.
        found: usize,
        /// The limit.
        allowed: u64,
    },
    /// The job has more targets than `target_limit`, or another reason that is not the target's.
    #[error("{0}")]
    Job(String),
    /// promlet failed while it worked on the response.
    #[error("the scrape failed inside promlet; the log of the server has the reason")]
    Panicked,
}

fn of_series(series: &str) -> String {
    if series.is_empty() { String::new() } else { format!(" (series {series})") }
}

impl ScrapeError {
    /// Returns whether the body was longer than `body_size_limit`.
    pub const fn is_body_size(&self) -> bool {
        matches!(self, ScrapeError::BodySize(_))
    }

    /// Formats the error in at most 1,024 bytes of printable text.
    pub fn shown(&self) -> String {
        shown(&self.to_string())
    }
}

/// Returns at most 1,024 bytes of a text, with spaces instead of control characters.
pub(super) fn shown(text: &str) -> String {
    let cut = text.get(..text.floor_char_boundary(SHOWN_BYTES_MAX)).unwrap_or_default();
    cut.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
