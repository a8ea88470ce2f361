//! The body of a target's response, read piece by piece within its limits.

use std::pin::Pin;
use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::HeaderMap;
use hyper::body::{Body as _, Bytes, Incoming};
use tokio::time::Sleep;

use super::connections::ConnectionLease;
use super::error::TargetError;

/// Other tasks of the thread run after this many bytes of a body, because callers parse them.
const YIELD_BYTES: usize = 1 << 20;

/// A body that arrives. Dropping it before its end closes the connection.
pub struct TargetBody {
    incoming: Incoming,
    /// The connection, which is returned to the pool at the end of the body.
    lease: Option<ConnectionLease>,
    deadline: Pin<Box<Sleep>>,
    timeout: Duration,
    bytes_max: u64,
    bytes: u64,
    trailers: HeaderMap,
    /// The bytes that were returned since other tasks could run.
    since_yield: usize,
}

impl std::fmt::Debug for TargetBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TargetBody").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl TargetBody {
    pub(super) fn new(
        incoming: Incoming,
        lease: ConnectionLease,
        (deadline, timeout): (Pin<Box<Sleep>>, Duration),
        bytes_max: u64,
    ) -> TargetBody {
        TargetBody {
            incoming,
            lease: Some(lease),
            deadline,
            timeout,
            bytes_max,
            bytes: 0,
            trailers: HeaderMap::new(),
            since_yield: 0,
        }
    }

    /// Returns the next bytes, which are not empty, or `None` at the end.
    ///
    /// # Errors
    /// [`TargetError::TooLarge`], [`TargetError::InvalidResponse`] if the body is cut, and
    /// [`TargetError::Timeout`].
    pub async fn next(&mut self) -> Result<Option<Bytes>, TargetError> {
        if self.incoming.size_hint().lower() > self.bytes_max.saturating_sub(self.bytes) {
            return Err(TargetError::TooLarge(self.bytes_max));
        }
        if self.since_yield >= YIELD_BYTES {
            self.since_yield = 0;
            tokio::task::yield_now().await;
        }
        self.piece().await
    }

    /// Returns the next bytes, also of a body that says it will be too long.
    async fn piece(&mut self) -> Result<Option<Bytes>, TargetError> {
        loop {
            let frame = tokio::select! {
                biased;
                () = &mut self.deadline => return Err(TargetError::Timeout(self.timeout)),
                frame = self.incoming.frame() => frame,
            };
            let Some(frame) = frame else {
                if let Some(lease) = self.lease.take() {
                    lease.give_back();
                }
                return Ok(None);
            };
            let cut = |error| TargetError::InvalidResponse(format!("the body ended early: {error}"));
            let data = match frame.map_err(cut)?.into_data() {
                Ok(data) => data,
                Err(other) => {
                    self.trailers = other.into_trailers().unwrap_or_default();
                    continue;
                }
            };
            self.bytes = self.bytes.saturating_add(data.len() as u64);
            if self.bytes > self.bytes_max {
                return Err(TargetError::TooLarge(self.bytes_max));
            }
            if !data.is_empty() {
                self.since_yield = self.since_yield.saturating_add(data.len());
                return Ok(Some(data));
            }
        }
    }

    /// Returns a trailer after the end of the body, if it is present and visible ASCII.
    pub fn trailer(&self, name: &str) -> Option<&str> {
        self.trailers.get(name)?.to_str().ok()
    }

    /// Reads the whole body.
    ///
    /// # Errors
    /// Those of [`TargetBody::next`].
    pub async fn bytes(mut self) -> Result<Vec<u8>, TargetError> {
        let mut all = Vec::new();
        while let Some(some) = self.next().await? {
            all.extend_from_slice(&some);
        }
        Ok(all)
    }

    /// Reads at most `bytes` and returns them as one line of printable text. Errors end the text.
    pub async fn beginning(mut self, bytes: usize) -> String {
        let mut all = Vec::new();
        while all.len() < bytes {
            let Ok(Some(some)) = self.piece().await else { break };
            all.extend_from_slice(some.get(..bytes - all.len()).unwrap_or(&some));
        }
        let text = String::from_utf8_lossy(&all);
        let printable = |c: char| if c.is_control() { ' ' } else { c };
        text.trim().chars().map(printable).collect()
    }
}
