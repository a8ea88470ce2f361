//! The state of a target, as pages, metrics and health show it.

use crate::model::Timestamp;

/// The state of a sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SenderState {
    /// Samples are sent, or there are none to send.
    Running,
    /// The last request failed and is repeated.
    Retrying {
        /// The stable code of the error.
        code: &'static str,
        /// The description.
        text: String,
    },
    /// The target refuses the credential, the tenant, the path or the format. No samples are
    /// dropped; requests are repeated until the configuration is corrected.
    Misconfigured {
        /// The description.
        text: String,
    },
    /// The log cannot be read. No sample is skipped.
    Damaged {
        /// The description, with file and offset.
        text: String,
    },
    /// The sender has ended.
    Stopped,
}

impl SenderState {
    /// Returns the name in the API.
    pub const fn as_str(&self) -> &'static str {
        match self {
            SenderState::Running => "running",
            SenderState::Retrying { .. } => "retrying",
            SenderState::Misconfigured { .. } => "misconfigured",
            SenderState::Damaged { .. } => "damaged",
            SenderState::Stopped => "stopped",
        }
    }

    /// Returns the description of the last error; none while samples are accepted.
    pub fn error(&self) -> Option<&str> {
        match self {
            SenderState::Running | SenderState::Stopped => None,
            SenderState::Retrying { text, .. }
            | SenderState::Misconfigured { text }
            | SenderState::Damaged { text } => Some(text),
        }
    }
}

/// Counters since the start of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ForwardCounts {
    /// Samples and histograms that the target acknowledged.
    pub accepted_samples: u64,
    /// Samples and histograms that the target refused for good.
    pub refused_samples: u64,
    /// Samples and histograms that the target acknowledged and says it did not write.
    pub forgotten_samples: u64,
    /// Log records that were removed before they were read, since the target exists.
    pub lost_records: u64,
    /// Requests sent.
    pub requests: u64,
    /// Requests whose body was passed on as it was received.
    pub passed_requests: u64,
    /// Requests that failed and were repeated.
    pub retried_requests: u64,
    /// Bytes of bodies sent.
    pub sent_bytes: u64,
}

/// A body that the target refused for good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedBody {
    /// The time of the refusal.
    pub at: Timestamp,
    /// The status; 0 if it was not sent because it is too large.
    pub status: u16,
    /// The beginning of the response.
    pub text: String,
    /// Number of samples and histograms in the body.
    pub samples: u64,
    /// The first series of the body.
    pub first_series: String,
}

/// The state of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwardStatus {
    /// The state of the sender.
    pub state: SenderState,
    /// Counters.
    pub counts: ForwardCounts,
    /// How far the first sample that is not acknowledged is behind the newest stored one, in
    /// milliseconds. A newest one ahead of the clock counts as now. 0 without a backlog.
    pub lag_ms: u64,
    /// The bytes of the log that are not acknowledged, estimated within a file.
    pub lag_bytes: u64,
    /// The samples that are not acknowledged, estimated for the part that was not read.
    pub lag_samples: u64,
    /// The requests that may be in flight.
    pub shards: usize,
    /// The protocol in use: `rw1` or `rw2`.
    pub protocol: &'static str,
    /// The last refused bodies, the oldest first.
    pub refused: Vec<RefusedBody>,
}
