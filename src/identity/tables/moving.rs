//! The stored state of a move: one row an organisation, from which a move continues after any
//! interruption.
//!
//! Control table 0x34, key organisation. Before each request a row is stored that describes the
//! samples of the request (`sending`), and the row of the next request acknowledges it. So after an
//! interruption at most one batch is uncertain, and the samples of that batch are read back from
//! the target.

use serde::{Deserialize, Serialize};

use crate::kv::Record;
use crate::model::{OrgId, Timestamp};

/// The direction of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MoveDirection {
    /// The move to another engine.
    Away,
    /// The move from the other engine to this server.
    Back,
}

/// A position in the history. History is sent window by window, oldest first, and within a window
/// series by series. So the times of consecutive samples differ by at most a window, which
/// receivers without a window for late samples need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct HistoryCursor {
    /// Start of the window in milliseconds, inclusive.
    pub window_ms: i64,
    /// The next series of the window.
    pub series: u32,
    /// The time in milliseconds from which samples of that series are wanted, inclusive.
    pub from_ms: i64,
}

impl HistoryCursor {
    /// Returns the position at the start of a window.
    pub const fn at(window_ms: i64) -> HistoryCursor {
        HistoryCursor { window_ms, series: 0, from_ms: window_ms }
    }
}

/// The step of a move, and the position within it. Times are milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MoveStep {
    /// No sample was sent.
    Planned,
    /// Samples before `cut_ms` are sent from the store.
    History {
        /// The first record of the log that the tail sends.
        log_from: u64,
        /// The exclusive end of the history. No sample at or after it was stored before `log_from`.
        cut_ms: i64,
        /// Everything before this position is at the target.
        next: HistoryCursor,
        /// The end of the batch that may have been sent.
        sending: Option<HistoryCursor>,
    },
    /// Records of the log are sent, and the samples of the target are compared with the store.
    Tail {
        /// The same as in `History`. A record with an earlier sample repeats or completes the
        /// history.
        cut_ms: i64,
        /// Everything before this record is at the target.
        next: u64,
        /// The end of the records that may have been sent, exclusive.
        sending: Option<u64>,
        /// Samples before this time were compared.
        compared_ms: i64,
        /// The least time of a sample that arrived behind `compared_ms`; `i64::MAX` if none did.
        late_ms: i64,
    },
    /// Queries are answered by the other engine, and the log is sent to it.
    Switched {
        /// The same as in `Tail`.
        next: u64,
        /// The same as in `Tail`.
        sending: Option<u64>,
    },
    /// Samples of the other engine are stored here, and the log is still sent to it (back only).
    Fetch {
        /// The start of the window that is read next.
        next_ms: i64,
        /// The exclusive end.
        until_ms: i64,
        /// The same as in `Tail`.
        next: u64,
        /// The same as in `Tail`.
        sending: Option<u64>,
    },
    /// Queries are answered here again.
    Returned,
}

impl MoveStep {
    /// Returns the name of the step in reports.
    pub const fn name(&self) -> &'static str {
        match self {
            MoveStep::Planned => "planned",
            MoveStep::History { .. } => "history",
            MoveStep::Tail { .. } => "tail",
            MoveStep::Switched { .. } => "switched",
            MoveStep::Fetch { .. } => "fetch",
            MoveStep::Returned => "returned",
        }
    }

    /// Returns whether the organisation was switched.
    pub const fn is_complete(&self) -> bool {
        matches!(self, MoveStep::Switched { .. } | MoveStep::Returned)
    }

    /// Returns whether the other engine answers queries, so that the log is sent there.
    pub const fn is_moved(&self) -> bool {
        matches!(self, MoveStep::Switched { .. } | MoveStep::Fetch { .. })
    }

    /// Returns the next record of the log, and the end of the records that may have been sent; none
    /// if the log is not sent.
    pub const fn log_position(&self) -> Option<(u64, Option<u64>)> {
        match *self {
            MoveStep::Tail { next, sending, .. }
            | MoveStep::Switched { next, sending }
            | MoveStep::Fetch { next, sending, .. } => Some((next, sending)),
            MoveStep::Planned | MoveStep::History { .. } | MoveStep::Returned => None,
        }
    }

    /// Returns the first record of the log that the move still needs; none if it needs none.
    pub const fn log_from(&self) -> Option<u64> {
        match *self {
            MoveStep::History { log_from, .. } => Some(log_from),
            MoveStep::Tail { next, .. } | MoveStep::Switched { next, .. } | MoveStep::Fetch { next, .. } => {
                Some(next)
            }
            MoveStep::Planned | MoveStep::Returned => None,
        }
    }

    /// Returns the step with another position in the log.
    #[must_use]
    pub const fn at_record(mut self, to: u64, until: Option<u64>) -> MoveStep {
        match &mut self {
            MoveStep::Tail { next, sending, .. }
            | MoveStep::Switched { next, sending }
            | MoveStep::Fetch { next, sending, .. } => (*next, *sending) = (to, until),
            MoveStep::Planned | MoveStep::History { .. } | MoveStep::Returned => {}
        }
        self
    }
}

/// Counts since the move began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveCounts {
    /// Requests that the target accepted.
    pub requests: u64,
    /// Samples sent, histograms included.
    pub samples: u64,
    /// Samples that the target already had: after an interruption, or sent twice by their sender.
    pub known: u64,
    /// Samples that the target refused.
    pub refused: u64,
    /// Series and windows that were compared.
    pub compared: u64,
    /// Series and windows that differed.
    pub different: u64,
    /// Values that the target stores rounded.
    pub rounded: u64,
    /// Deletions during the move, which are not sent.
    pub deletions: u64,
    /// Records that the log removed before they were sent.
    pub lost_records: u64,
}

/// The state of an organisation's move.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveRow {
    /// The direction.
    pub direction: MoveDirection,
    /// The target with its credentials, sealed.
    pub sealed_target: Vec<u8>,
    /// The origin of its URL for remote write, and its tenant, in the form of
    /// [`crate::model::Target::place`].
    pub place: String,
    /// Start of the move.
    pub started_at: Timestamp,
    /// The step.
    pub step: MoveStep,
    /// Counts so far.
    pub counts: MoveCounts,
    /// Whether the samples here were removed after the switch.
    pub dropped: bool,
    /// Whether the switch is made although series differ or samples were refused.
    pub accept_differences: bool,
    /// The newest time of the samples that may have been sent, in milliseconds.
    pub sent_ms: i64,
}

impl Record for MoveRow {
    const TABLE: u8 = 0x34;
    const KIND: u8 = 0x34;
    const VERSION: u8 = 1;
    type Key = OrgId;
}

impl MoveRow {
    /// Returns the row of a new move to another engine.
    pub fn new(sealed_target: Vec<u8>, place: String, now: Timestamp) -> MoveRow {
        MoveRow {
            direction: MoveDirection::Away,
            sealed_target,
            place,
            started_at: now,
            step: MoveStep::Planned,
            counts: MoveCounts::default(),
            dropped: false,
            accept_differences: false,
            sent_ms: i64::MIN,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::{decode_body, encode_body};

    #[test]
    fn version_1_of_a_move_has_the_documented_bytes() {
        let next = HistoryCursor { window_ms: 1, series: 2, from_ms: -3 };
        let step = MoveStep::History { log_from: 7, cut_ms: 8, next, sending: Some(HistoryCursor::at(4)) };
        let counts = MoveCounts { requests: 1, samples: 300, ..MoveCounts::default() };
        let new = MoveRow::new(vec![9, 9], "p".to_owned(), Timestamp::from_ms(5));
        let row = MoveRow { step, counts, accept_differences: true, sent_ms: 3, ..new };
        let golden = "0002090901700a0107100202050108000801fb2c0100000000000000000106";
        let bytes = encode_body(&row).expect("short");
        assert_eq!(data_encoding::HEXLOWER.encode(&bytes), golden);
        assert_eq!(decode_body::<MoveRow>(&bytes), Ok(row));
    }
}
