//! Raw samples of a server: by remote read, or by its query API.
//!
//! The body is returned as it is. It is decoded on a thread of the query lane
//! ([`crate::ingest::remote_read`]), because that takes longer than a network thread may.

use std::sync::Arc;

use super::answer::{AnswerData, RawAnswer, UpstreamAnswer};
use super::engine::{FORM, FetchLimits, Upstream, UpstreamError, of_target, settle};
use super::request::{ApiRequest, UpstreamRead};
use crate::outbound::{Bytes, TargetError, TargetMethod, TargetRequest, TargetResponse};

impl UpstreamRead {
    /// Returns whether this is a read for raw samples, whose answer is decoded later.
    pub(super) const fn is_raw(&self) -> bool {
        matches!(self, UpstreamRead::RemoteRead { .. } | UpstreamRead::RawMatrix { .. })
    }
}

impl Upstream {
    /// Answers a read for raw samples.
    ///
    /// # Errors
    /// [`UpstreamError`].
    pub(super) async fn fetch_raw(
        self: &Arc<Self>,
        read: &UpstreamRead,
        limits: &FetchLimits,
    ) -> Result<UpstreamAnswer, UpstreamError> {
        let ApiRequest { suffix, form } = read.request(limits.is_whole);
        let (headers, body) = match read {
            UpstreamRead::RemoteRead { body } => {
                let headers = vec![
                    ("content-type", "application/x-protobuf".to_owned()),
                    ("content-encoding", "snappy".to_owned()),
                    ("x-prometheus-remote-read-version", "0.1.0".to_owned()),
                ];
                (headers, body.clone())
            }
            _ => (vec![("content-type", FORM.to_owned())], Bytes::from(form.unwrap_or_default())),
        };
        let is_remote_read = matches!(read, UpstreamRead::RemoteRead { .. });
        let request = TargetRequest {
            method: TargetMethod::Post,
            suffix,
            headers,
            body,
            timeout: limits.timeout,
            body_bytes_max: limits.body_bytes_max.min(limits.memory_bytes_max),
        };
        let (response, mut admitted) = match self.exchange(request, limits.is_token).await {
            Err(UpstreamError::Failed(error)) if is_remote_read && is_path_unknown(&error) => {
                return Ok(UpstreamAnswer::of(AnswerData::NoRemoteRead));
            }
            exchanged => exchanged?,
        };
        let answer = read_body(response, limits).await;
        settle(&mut admitted, answer.as_ref().err());
        answer.map(|raw| {
            // The memory is charged as in `read_body`.
            let bytes = 2 * raw.body.len() as u64;
            UpstreamAnswer { bytes, ..UpstreamAnswer::of(AnswerData::Raw(raw)) }
        })
    }
}

/// Returns whether a server without remote read answers so. VictoriaMetrics answers 400 with a text
/// for paths that it does not know; an error in JSON is about the request instead.
fn is_path_unknown(error: &TargetError) -> bool {
    matches!(
        error,
        TargetError::Refused { status: 400 | 404 | 405 | 410, .. } | TargetError::Failed { status: 501, .. }
    )
}

async fn read_body(mut response: TargetResponse, limits: &FetchLimits) -> Result<RawAnswer, UpstreamError> {
    let content_type = response.header("content-type").unwrap_or_default().to_owned();
    let mut body = Vec::new();
    while let Some(bytes) = response.body.next().await.map_err(of_target)? {
        // The capacity of a vector is at most twice its length.
        limits.hold(2 * (body.len().saturating_add(bytes.len())) as u64)?;
        body.extend_from_slice(&bytes);
    }
    Ok(RawAnswer { content_type, body: body.into() })
}
