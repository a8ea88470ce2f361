//! The outcome of a charge, and its response headers.

use std::time::Duration;

use axum::http::{HeaderName, HeaderValue, Response};

use crate::api::error::{ApiError, ApiResult, Code};

/// The state of a limit after a charge, for the headers `RateLimit-Policy` and `RateLimit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charge {
    /// `cabinet`, `embed`, `read`, `ip`, `minting`.
    pub policy: &'static str,
    /// The limit in requests a second.
    pub limit: u32,
    /// The requests that remain in this window.
    pub remaining: u32,
}

impl Charge {
    /// Sets the two rate limit headers (draft-ietf-httpapi-ratelimit-headers-11).
    pub fn write<B>(&self, response: &mut Response<B>) {
        let policy = format!("\"{}\";q={};w=1", self.policy, self.limit);
        let state = format!("\"{}\";r={};t=1", self.policy, self.remaining);
        for (name, text) in [("ratelimit-policy", policy), ("ratelimit", state)] {
            if let Ok(value) = HeaderValue::try_from(text) {
                response.headers_mut().insert(HeaderName::from_static(name), value);
            }
        }
    }
}

/// Returns the charge of a sliding window, or the error of a full one.
pub(super) fn charged(
    policy: &'static str,
    scope: &'static str,
    limit: u32,
    remaining: Result<u32, u64>,
) -> ApiResult<Charge> {
    match remaining {
        Ok(remaining) => Ok(Charge { policy, limit, remaining }),
        Err(wait_us) => Err(rate_limited(policy, scope, limit, Duration::from_micros(wait_us))),
    }
}

/// Returns the error of a limit that is used up for `wait`.
pub(super) fn rate_limited(
    policy: &'static str,
    scope: &'static str,
    limit: u32,
    wait: Duration,
) -> ApiError {
    let wait_ms = u64::try_from(wait.as_micros().div_ceil(1_000)).unwrap_or(u64::MAX).max(1);
    let mut headers: Response<()> = Response::new(());
    Charge { policy, limit, remaining: 0 }.write(&mut headers);
    let error = ApiError::new(Code::RateLimited, format!("at most {limit} requests a second"))
        .with("limit", limit)
        .with("window_s", 1)
        .with("retry_after_ms", wait_ms)
        .with("scope", scope)
        .with_retry_after(wait);
    headers
        .headers()
        .iter()
        .fold(error, |error, (name, value)| error.with_header(name.clone(), value.clone()))
}
