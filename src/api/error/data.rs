//! Maps the errors of promql, tsdb and ingest to codes. There are no wildcards, so a new variant
//! must choose its code.

use super::{ApiError, Code};
use crate::api::limits::jittered_retry;
use crate::api::prom_json::BodyTooLarge;
use crate::ingest::DecodeError;
use crate::model::StandbyRefusal;
use crate::promql::QueryError;
use crate::promql::syntax::SyntaxError;
use crate::tsdb::{AppendError, Capacity, DeleteError};

/// Prometheus uses 400 (bad data), 422 (execution) and 503 (timeout) for the same kinds.
impl From<QueryError> for ApiError {
    fn from(error: QueryError) -> ApiError {
        let code = match &error {
            QueryError::TooManySamples { .. }
            | QueryError::TooManySeries { .. }
            | QueryError::TooMuchMemory { .. } => Code::QueryTooExpensive,
            QueryError::MemoryBusy { .. } | QueryError::OutOfMemory(_) => {
                return ApiError::new(Code::Busy, error.to_string()).with_retry_after(jittered_retry());
            }
            QueryError::Timeout => Code::QueryTimeout,
            QueryError::Cancelled => Code::QueryCancelled,
            QueryError::BadQuery(_) => Code::BadExpr,
            QueryError::Execution(_) => Code::QueryFailed,
        };
        ApiError::new(code, error.to_string())
    }
}

impl From<BodyTooLarge> for ApiError {
    fn from(error: BodyTooLarge) -> ApiError {
        ApiError::new(Code::QueryTooExpensive, error.to_string())
    }
}

/// Returns the error for invalid PromQL in a parameter.
pub fn bad_expression(parameter: &'static str, error: &SyntaxError) -> ApiError {
    ApiError::new(Code::BadExpr, error.to_string()).with_field(parameter, "parse", error.message.clone())
}

impl From<StandbyRefusal> for ApiError {
    fn from(refusal: StandbyRefusal) -> ApiError {
        let code = match refusal {
            StandbyRefusal::Follower => Code::Follower,
            StandbyRefusal::Fenced { .. } => Code::Fenced,
            StandbyRefusal::Missing => Code::StandbyMissing,
        };
        ApiError::new(code, refusal.to_string()).with_retry_after(jittered_retry())
    }
}

/// Senders keep samples that a 503 refused and resend them. The cause is logged for the operator.
impl From<AppendError> for ApiError {
    fn from(error: AppendError) -> ApiError {
        let degraded = |detail: &'static str| {
            tracing::error!("samples were not stored: {error}");
            ApiError::new(Code::StorageDegraded, detail).with_retry_after(jittered_retry())
        };
        match &error {
            AppendError::Fenced(_) => degraded("the store accepts no samples until it is restarted"),
            AppendError::ReadOnly(_) => degraded("the store accepts no samples until it is repaired"),
            AppendError::DiskFull { .. } => degraded("the disk is full"),
            AppendError::OutOfResources(_) => {
                degraded("the server has no file descriptors or no memory left")
            }
            AppendError::AtCapacity { what, .. } => {
                let limit = match what {
                    Capacity::Memory => "max_memory_bytes",
                    Capacity::MemoryShare => "memory_share",
                    Capacity::Disk => "max_disk_bytes",
                };
                // The limit of the organisation; nothing is wrong with the server.
                tracing::debug!("samples wait with their sender: {error}");
                ApiError::new(Code::AtCapacity, error.to_string())
                    .with("limit", limit)
                    .with_retry_after(jittered_retry())
            }
            AppendError::OutOfMemory(_) => {
                ApiError::new(Code::Busy, error.to_string()).with_retry_after(jittered_retry())
            }
            AppendError::ClockUnconfirmed { .. } => {
                tracing::debug!("samples wait with their sender: {error}");
                ApiError::new(Code::ClockUnconfirmed, error.to_string()).with_retry_after(jittered_retry())
            }
            AppendError::Closed => ApiError::shutting_down(),
            AppendError::Standby(why) => ApiError::from(*why),
        }
    }
}

impl From<DeleteError> for ApiError {
    fn from(error: DeleteError) -> ApiError {
        match error {
            DeleteError::Stopped(_) => QueryError::Timeout.into(),
            DeleteError::NoSelector => ApiError::new(Code::InvalidParameter, error.to_string()),
            DeleteError::TooMany { .. } => ApiError::new(Code::AtCapacity, error.to_string())
                .with("limit", "deletions")
                .with_retry_after(jittered_retry()),
            DeleteError::Log(refused) => refused.into(),
            DeleteError::Copy(_) | DeleteError::Manifest(_) => {
                tracing::error!("samples were not deleted: {error}");
                ApiError::new(Code::StorageDegraded, "the deletion could not be made durable")
                    .with_retry_after(jittered_retry())
            }
        }
    }
}

impl From<DecodeError> for ApiError {
    fn from(error: DecodeError) -> ApiError {
        if matches!(error, DecodeError::OutOfMemory(_)) {
            return ApiError::new(Code::Busy, error.to_string()).with_retry_after(jittered_retry());
        }
        match error.is_size() {
            true => ApiError::new(Code::BodyTooLarge, format!("{error}: split it into several requests")),
            false => ApiError::new(Code::BadRequest, error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ingest::SnappyError;
    use crate::model::{OutOfMemory, Timestamp};
    use crate::tsdb::Unconfirmed;

    fn clock_unconfirmed() -> AppendError {
        let (at, now) = (Timestamp::from_s(3_600), Timestamp::from_s(0));
        AppendError::ClockUnconfirmed { at, now, why: Unconfirmed::BeforeBuild { built: at } }
    }

    #[test]
    fn the_store_never_makes_a_sender_drop_samples() {
        let cases = [
            (AppendError::Fenced("x".into()), Code::StorageDegraded),
            (AppendError::ReadOnly("x".into()), Code::StorageDegraded),
            (AppendError::DiskFull { free: 1, needed: 2 }, Code::StorageDegraded),
            (AppendError::OutOfResources("x".into()), Code::StorageDegraded),
            (AppendError::OutOfMemory(OutOfMemory { bytes: 1 }), Code::Busy),
            (AppendError::AtCapacity { what: Capacity::MemoryShare, used: 2, allowed: 1 }, Code::AtCapacity),
            (clock_unconfirmed(), Code::ClockUnconfirmed),
            (AppendError::Closed, Code::ShuttingDown),
        ];
        for (error, code) in cases {
            let error = ApiError::from(error);
            assert_eq!((error.code(), error.code().status().as_u16()), (code, 503));
        }
    }

    #[test]
    fn a_query_fails_with_prometheus_kinds() {
        let cases = [
            (QueryError::TooManySamples { allowed: 1 }, 422, "execution"),
            (QueryError::TooManySeries { found: 2, allowed: 1 }, 422, "execution"),
            (QueryError::TooMuchMemory { needed: 2, allowed: 1 }, 422, "execution"),
            (QueryError::MemoryBusy { needed: 2, held: 1, allowed: 2 }, 503, "internal"),
            (QueryError::OutOfMemory(OutOfMemory { bytes: 1 }), 503, "internal"),
            (QueryError::Timeout, 503, "timeout"),
            (QueryError::Cancelled, 503, "internal"),
            (QueryError::BadQuery("x".into()), 400, "bad_data"),
            (QueryError::Execution("x".into()), 422, "execution"),
        ];
        for (error, status, kind) in cases {
            let code = ApiError::from(error).code();
            assert_eq!((code.status().as_u16(), code.error_type()), (status, kind), "{code:?}");
            assert_ne!(code, Code::ValidationFailed, "a query is no form with fields");
        }
        assert_eq!(ApiError::from(BodyTooLarge { bytes_max: 1 }).code(), Code::QueryTooExpensive);
    }

    #[test]
    fn a_body_that_is_too_large_is_not_merely_bad() {
        let large = DecodeError::TooLarge { what: "samples", found: 2, allowed: 1 };
        assert_eq!(ApiError::from(large).code(), Code::BodyTooLarge);
        assert_eq!(
            ApiError::from(DecodeError::OutOfMemory(OutOfMemory { bytes: 1 })).code().status().as_u16(),
            503
        );
        for bad in [DecodeError::Empty, DecodeError::Snappy(SnappyError::Block(String::new()))] {
            assert_eq!(ApiError::from(bad).code(), Code::BadRequest);
        }
    }
}
