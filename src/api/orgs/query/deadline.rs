//! The deadline of a query, and its cancellation.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::inline::InlineDeadline;
use crate::api::error::ApiError;
use crate::api::lanes::CancelOnDrop;
use crate::clock::Stopwatch;
use crate::model::{MayCompile, OrgId, Pattern, PatternCache};
use crate::promql::QueryError;

/// The deadline and the cancellation flag of a query.
#[derive(Clone)]
pub(in crate::api::orgs) struct QueryDeadline {
    pub(super) since: Stopwatch,
    pub(super) timeout: Duration,
    pub(super) cancelled: Arc<AtomicBool>,
    /// Set while the query runs inline.
    pub(super) inline: Option<InlineDeadline>,
}

impl QueryDeadline {
    /// Starts a deadline `timeout` from now. Dropping the returned guard cancels the work.
    pub(in crate::api::orgs) fn start(timeout: Duration) -> (QueryDeadline, CancelOnDrop) {
        let cancelled = Arc::new(AtomicBool::new(false));
        let guard = CancelOnDrop::new(Arc::clone(&cancelled));
        (QueryDeadline { since: Stopwatch::start(), timeout, cancelled, inline: None }, guard)
    }

    /// Returns whether the deadline, or the shorter deadline of inline work, has passed.
    pub(super) fn is_expired(&self) -> bool {
        self.since.elapsed() >= self.timeout || self.inline.as_ref().is_some_and(InlineDeadline::check)
    }

    /// Checks that work of `units` (about one nanosecond each) may start.
    ///
    /// # Errors
    /// [`QueryError::Cancelled`] after a cancellation. [`QueryError::Timeout`] after the deadline,
    /// or if the work takes too long to run inline.
    pub(in crate::api::orgs) fn admit(&self, units: u64) -> Result<(), QueryError> {
        if self.cancelled.load(Ordering::Relaxed) {
            return Err(QueryError::Cancelled);
        }
        let admitted = self.inline.as_ref().is_none_or(|deadline| deadline.admits(units));
        if !admitted || self.is_expired() { Err(QueryError::Timeout) } else { Ok(()) }
    }

    /// Runs `work` with an organisation's cache of compiled patterns. The deadline is checked
    /// before each pattern that is not cached is compiled. Compiling one takes too long for inline
    /// work.
    pub(in crate::api::orgs) fn with_patterns<T>(
        &self,
        patterns: &Arc<PatternCache>,
        org: OrgId,
        work: impl FnOnce() -> T,
    ) -> T {
        let deadline = self.clone();
        let may_compile: MayCompile = Rc::new(move || deadline.admit(Pattern::COMPILE_UNITS).is_ok());
        patterns.with_check(org, Some(may_compile), work)
    }

    /// Returns the timeout or cancellation if one has occurred, otherwise `error`, the error of a
    /// text that was not parsed. Parsing also fails because the deadline passed.
    pub(in crate::api::orgs) fn error_or(&self, error: ApiError) -> ApiError {
        self.admit(0).map_or_else(ApiError::from, |()| error)
    }
}
