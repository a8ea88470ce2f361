//! Why a query has no answer.

use crate::model::OutOfMemory;

/// Why a query has no answer; the texts are Prometheus' where it has one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    /// More samples than [`Limits::samples_max`](super::Limits) would be held at once.
    #[error("query processing would load too many samples into memory in query execution")]
    TooManySamples {
        /// The limit that was met.
        allowed: u64,
    },
    /// One selector found more series than [`Limits::series_max`](super::Limits).
    #[error("the selector finds {found} series, more than the {allowed} a query may read")]
    TooManySeries {
        /// How many it found.
        found: u64,
        /// The limit.
        allowed: u64,
    },
    /// More memory than [`Limits::memory_bytes_max`](super::Limits) would be needed.
    #[error("query processing would need {needed} bytes of memory, more than the {allowed} a query may use")]
    TooMuchMemory {
        /// What would be held at once.
        needed: u64,
        /// The limit.
        allowed: u64,
    },
    /// The memory that queries share is taken; it may be free in a moment.
    #[error(
        "the query needs {needed} bytes of memory; others hold {held} of the {allowed} that they may hold together"
    )]
    MemoryBusy {
        /// What it would hold at once.
        needed: u64,
        /// What others hold.
        held: u64,
        /// What all may hold, or all of one organisation.
        allowed: u64,
    },
    /// The operating system has no memory for the query; it may have some in a moment.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
    /// The deadline passed.
    #[error("query timed out in expression evaluation")]
    Timeout,
    /// The caller gave up.
    #[error("query was canceled in expression evaluation")]
    Cancelled,
    /// The expression cannot be evaluated this way at all: a wrong type, an unknown function.
    #[error("{0}")]
    BadQuery(String),
    /// The expression has no answer on this data.
    #[error("{0}")]
    Execution(String),
}

impl QueryError {
    /// An [`QueryError::Execution`].
    pub(super) fn execution(text: impl Into<String>) -> QueryError {
        QueryError::Execution(text.into())
    }
}
