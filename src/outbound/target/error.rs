//! The reasons why a target has no usable response.

use std::error::Error as _;
use std::io;
use std::time::Duration;

use tokio_rustls::rustls;

/// The reason why a request to a target failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// The address may not be connected to: `target_address_refused`.
    #[error("{host} {why}; the operator allows it with --outbound-allow (PROMLET_OUTBOUND_ALLOW)")]
    AddressRefused {
        /// The host, and the address if it is a name.
        host: String,
        /// The end of the sentence.
        why: &'static str,
    },
    /// The connection failed or ended early: `target_unreachable`.
    #[error("the target cannot be reached: {0}")]
    Unreachable(String),
    /// The response did not end in time: `target_timeout`.
    #[error("the target did not answer within {} ms", .0.as_millis())]
    Timeout(Duration),
    /// The certificate of either side is not accepted: `target_tls`.
    #[error("TLS failed: {0}")]
    Tls(String),
    /// A status of 400 to 499: `target_refused`.
    #[error("the target refused the request with status {status}{}", said(.message))]
    Refused {
        /// The status.
        status: u16,
        /// The beginning of the body.
        message: String,
    },
    /// A status of 500 to 599: `target_failed`.
    #[error("the target failed with status {status}{}", said(.message))]
    Failed {
        /// The status.
        status: u16,
        /// The beginning of the body.
        message: String,
    },
    /// A redirect, a cut body, or something that is not HTTP: `target_invalid_response`.
    #[error("the target's response is invalid: {0}")]
    InvalidResponse(String),
    /// The body of the response has more bytes than the caller accepts: `target_invalid_response`.
    #[error("the target's response has more than {0} bytes")]
    TooLarge(u64),
    /// The caller's request is not valid HTTP. This is a defect of promlet: `internal`.
    #[error("the request is invalid: {0}")]
    InvalidRequest(String),
}

fn said(message: &str) -> String {
    if message.is_empty() { String::new() } else { format!(": {message}") }
}

impl TargetError {
    /// Returns the stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            TargetError::AddressRefused { .. } => "target_address_refused",
            TargetError::Unreachable(_) => "target_unreachable",
            TargetError::Timeout(_) => "target_timeout",
            TargetError::Tls(_) => "target_tls",
            TargetError::Refused { .. } => "target_refused",
            TargetError::Failed { .. } => "target_failed",
            TargetError::InvalidResponse(_) | TargetError::TooLarge(_) => "target_invalid_response",
            TargetError::InvalidRequest(_) => "internal",
        }
    }

    /// Returns the error of an exchange.
    pub(super) fn of_exchange(error: &hyper::Error) -> TargetError {
        let mut source = error.source();
        let mut text = error.to_string();
        while let Some(cause) = source {
            let io = cause.downcast_ref::<io::Error>();
            if let Some(tls) = io.and_then(io::Error::get_ref).filter(|inner| inner.is::<rustls::Error>()) {
                return TargetError::Tls(tls.to_string());
            }
            text = format!("{text}: {cause}");
            source = cause.source();
        }
        match error.is_parse() || error.is_parse_too_large() {
            true => TargetError::InvalidResponse(text),
            false => TargetError::Unreachable(text),
        }
    }
}
