//! The audit log: changes and logins, with the account or key that made them. It is append-only and
//! bounded in age and number of rows (docs/specification.md C3).
//!
//! An entry about a change is written within that change. An entry about a failure (a wrong
//! password, a refused token) is queued in memory (`queue`) and written by the next tick, so that a
//! guesser cannot load the disk. Rows of changes, of accesses and of failures are counted
//! separately, so that a flood of one class never removes rows of another ([`event::EventClass`]).
//! No row ever contains a secret, code or token.

pub(super) mod event;
pub(super) mod log;
pub(super) mod queue;
pub(super) mod sweep;

pub(in crate::identity) use event::{Event, record};

/// Maximum number of rows written or removed in one change.
const ROWS_A_CHANGE: usize = 50;
/// Number of rows read at once.
const ROWS_AT_ONCE: usize = 500;
