//! Moves an organisation's samples to another engine, and back.
//!
//! ```text
//! Planned -> History -> Tail -> Switched        to the other engine
//! Switched -> Fetch -> Returned                 back
//! ```
//!
//! `History` reads the store up to a time `cut_ms` that is later than every stored sample, after
//! the log was pinned. `Tail` sends the records of the log since then. A sample of the tail that is
//! not newer than all before it may have been sent, so the sample is first read back from the
//! target. Then both sides are compared by digests, and one commit switches the organisation.
//!
//! **Invariant:** the row of the move is stored before a request is sent, and describes the samples
//! of the request ([`crate::identity::MoveStep`]). After an interruption, and after a request whose
//! outcome is unknown, the samples of the target are read back before the rest is sent. So nothing
//! is lost or sent twice.
//!
//! This room does no network I/O: [`MoveEnvironment`] is implemented by `server`, and by tests that
//! stop at every step.

mod batch;
mod compare;
mod fetch;
mod history;
mod readback;
mod run;
mod tail;
#[cfg(test)]
mod tests;
mod verify;

use crate::tsdb::Snapshot;

pub use batch::{BatchSeries, MoveBatch};
pub use history::{FIRST_MS, HistoryError};
pub use readback::{ReadbackQuery, parse_names, parse_one};
pub use run::{MoveEnvironment, MoveStop, Mover, MoverOptions, ReadFailure, TailBatch, WriteFailure};

/// Returns the start of the first window with samples in milliseconds, if there is any.
///
/// # Errors
/// [`HistoryError`].
pub fn first_window_ms(snapshot: &Snapshot) -> Result<Option<i64>, HistoryError> {
    history::next_window(snapshot, i64::MIN, i64::MAX)
}
