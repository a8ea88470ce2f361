//! The stored state of a move: one row an organisation, from which a move continues after any
//! interruption.
//!
//! Control table 0x34, key organisation. A row is stored before each request with what the request
//! covers (`sending`), and the row of the next request acknowledges it. So after an interruption at
//! most one batch is uncertain, and the target is asked which of its samples it has.

use serde::{Deserialize, Serialize};

use crate::kv::Record;
use crate::model::{OrgId, Timestamp};

/// The direction of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MoveDirection {
    /// To another engine.
    Away,
    /// From the other engine to this server.
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
    /// Nothing was sent.
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
    /// Records of the log are sent, and what is at the target is compared with the store.
    Tail {
        /// As in `History`. A record with an earlier sample repeats or completes the history.
        cut_ms: i64,
        /// Everything before this record is at the target.
        next: u64,
        /// The end of the records that may have been sent, exclusive.
        sending: Option<u64>,
        /// Samples before this time were compared.
        compared_ms: i64,
    },
    /// Samples of the other engine are stored here (back only).
    Fetch {
        /// The start of the window that is read next.
        next_ms: i64,
        /// The exclusive end.
        until_ms: i64,
    },
    /// Queries are answered by the new engine.
    Switched,
    /// The samples here were removed as well.
    Dropped,
}

impl MoveStep {
    /// Returns the name of the step in reports.
    pub const fn name(&self) -> &'static str {
        match self {
            MoveStep::Planned => "planned",
            MoveStep::History { .. } => "history",
            MoveStep::Tail { .. } => "tail",
            MoveStep::Fetch { .. } => "fetch",
            MoveStep::Switched => "switched",
            MoveStep::Dropped => "dropped",
        }
    }

    /// Returns whether the move has work left that a start resumes.
    pub const fn is_running(&self) -> bool {
        !matches!(self, MoveStep::Switched | MoveStep::Dropped)
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
}

/// The state of an organisation's move.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveRow {
    /// The direction.
    pub direction: MoveDirection,
    /// The target with its credentials, sealed.
    pub sealed_target: Vec<u8>,
    /// Start of the move.
    pub started_at: Timestamp,
    /// The step.
    pub step: MoveStep,
    /// Counts so far.
    pub counts: MoveCounts,
}

impl Record for MoveRow {
    const TABLE: u8 = 0x34;
    const KIND: u8 = 0x34;
    const VERSION: u8 = 1;
    type Key = OrgId;
}

impl MoveDirection {
    /// Returns the action of the audit entry about a start.
    pub(in crate::identity) const fn started(self) -> &'static str {
        match self {
            MoveDirection::Away => "move.started",
            MoveDirection::Back => "move.back_started",
        }
    }
}

impl MoveRow {
    /// Returns the row of a new move.
    pub fn new(direction: MoveDirection, sealed_target: Vec<u8>, now: Timestamp) -> MoveRow {
        MoveRow {
            direction,
            sealed_target,
            started_at: now,
            step: MoveStep::Planned,
            counts: MoveCounts::default(),
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
        let new = MoveRow::new(MoveDirection::Away, vec![9, 9], Timestamp::from_ms(5));
        let row = MoveRow { step, counts, ..new };
        let golden = "000209090a01071002020501080008 01fb2c01000000000000".replace(' ', "");
        let bytes = encode_body(&row).expect("short");
        assert_eq!(data_encoding::HEXLOWER.encode(&bytes), golden);
        assert_eq!(decode_body::<MoveRow>(&bytes), Ok(row));
    }
}
