//! The errors of a query.

use crate::model::OutOfMemory;

/// The reason why a query has no result. Texts are those of Prometheus, where it has one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    /// More samples than [`Limits::samples_max`](super::Limits) would be held at once.
    #[error("query processing would load too many samples into memory in query execution")]
    TooManySamples {
        /// The limit.
        allowed: u64,
    },
    /// One selector matches more series than [`Limits::series_max`](super::Limits).
    #[error("the selector finds {found} series, more than the {allowed} a query may read")]
    TooManySeries {
        /// The number of matching series.
        found: u64,
        /// The limit.
        allowed: u64,
    },
    /// More memory than [`Limits::memory_bytes_max`](super::Limits) would be needed.
    #[error("query processing would need {needed} bytes of memory, more than the {allowed} a query may use")]
    TooMuchMemory {
        /// The bytes that would be held at once.
        needed: u64,
        /// The limit.
        allowed: u64,
    },
    /// Other queries hold the shared memory; a later attempt may succeed.
    #[error(
        "the query needs {needed} bytes of memory; other queries hold {held} of the {allowed} bytes that all may use"
    )]
    MemoryBusy {
        /// The bytes that the query would hold at once.
        needed: u64,
        /// The bytes that others hold.
        held: u64,
        /// The bytes that all queries may hold together, or all queries of one organisation.
        allowed: u64,
    },
    /// The operating system has no memory for the query; a later attempt may succeed.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
    /// The deadline passed.
    #[error("query timed out in expression evaluation")]
    Timeout,
    /// The query was cancelled.
    #[error("query was canceled in expression evaluation")]
    Cancelled,
    /// The expression cannot be evaluated at all, for example because of a wrong type or an unknown
    /// function.
    #[error("{0}")]
    BadQuery(String),
    /// The expression has no result on this data.
    #[error("{0}")]
    Execution(String),
}

impl QueryError {
    /// Returns an [`QueryError::Execution`] with this text.
    pub(super) fn execution(text: impl Into<String>) -> QueryError {
        QueryError::Execution(text.into())
    }
}
