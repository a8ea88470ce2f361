//! Prometheus remote write 1.0 and 2.0, on the same path; the content type selects the version.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};

use super::{
    BodyDecoder, BodyDescription, DURABILITY, GAVE_WAY, IngestOutcome, WriteDeps, handle, media, unsupported,
};
use crate::api::callers::{IngestAccess, IngestCaller};
use crate::api::error::ApiResult;
use crate::api::params::PathOf;
use crate::api::routes::{Auth, Routes};
use crate::forward::BodyFormat;
use crate::forward::encode::{BodyCompression, WriteVersion};
use crate::ingest::{PROTOCOLS, Protocol};
use crate::tsdb::AppendReport;

const SUMMARY: &str = "Write samples: Prometheus remote write 1.0 and 2.0";
const EXPECTED: &str = "Content-Encoding: snappy or zstd, and Content-Type: application/x-protobuf, for remote write 2.0 with \
    proto=io.prometheus.write.v2.Request";

pub(super) fn routes() -> Routes<Arc<WriteDeps>> {
    let paths = ["/orgs/{slug}/prometheus/api/v1/write", "/orgs/{slug}/write"];
    paths
        .into_iter()
        .fold(Routes::new(), |routes, path| routes.post(path, Auth::IngestCaller, SUMMARY, write))
}

async fn write(
    State(deps): State<Arc<WriteDeps>>,
    machine: IngestCaller,
    PathOf(slug): PathOf<String>,
    request: Request,
) -> ApiResult<Response> {
    write_as(deps, machine.enter(&slug)?, request).await
}

/// Stores the samples of an admitted caller.
pub(in crate::api) async fn write_as(
    deps: Arc<WriteDeps>,
    access: IngestAccess,
    request: Request,
) -> ApiResult<Response> {
    let protocol = protocol(request.headers());
    let outcome = handle(deps, access, request, |_| {
        let protocol = protocol.ok_or_else(|| unsupported(EXPECTED))?;
        Ok(BodyDescription { decoder: BodyDecoder::Borrowing(protocol), labels: Vec::new() })
    })
    .await?;
    let counts = protocol.filter(|protocol| protocol.reports_written);
    respond(&outcome, counts.map(|_| written_counts(&outcome.report)))
}

fn protocol(headers: &HeaderMap) -> Option<&'static Protocol> {
    let (content_type, encoding) = media(headers);
    PROTOCOLS
        .iter()
        .find(|protocol| (protocol.accepts_type)(content_type) && (protocol.accepts_encoding)(encoding))
}

/// Returns the encoding of the bodies that a protocol decodes.
pub(super) fn body_format(protocol: &Protocol) -> BodyFormat {
    let is_zstd = (protocol.accepts_encoding)("zstd");
    BodyFormat {
        version: if protocol.reports_written { WriteVersion::V2 } else { WriteVersion::V1 },
        compression: if is_zstd { BodyCompression::Zstd } else { BodyCompression::Snappy },
    }
}

/// The response headers of remote write 2.0 with the numbers of stored items. Items that were
/// stored before count as well. Senders count the others as failed.
type WrittenCounts = [(HeaderName, u64); 3];

fn written_counts(report: &AppendReport) -> WrittenCounts {
    let floats = report.stored.saturating_sub(report.histograms);
    [
        (HeaderName::from_static("x-prometheus-remote-write-samples-written"), floats),
        (HeaderName::from_static("x-prometheus-remote-write-histograms-written"), report.histograms),
        (HeaderName::from_static("x-prometheus-remote-write-exemplars-written"), report.exemplars),
    ]
}

fn respond(outcome: &IngestOutcome, written: Option<WrittenCounts>) -> ApiResult<Response> {
    let written = written.into_iter().flatten().map(|(name, count)| (name, HeaderValue::from(count)));
    let gave_way = outcome.has_waited.then_some((GAVE_WAY, HeaderValue::from_static("1")));
    let written = written.chain(gave_way);
    if outcome.is_complete() {
        let durability = [(DURABILITY, outcome.durability.clone())];
        let mut response = (StatusCode::NO_CONTENT, durability, Body::empty()).into_response();
        response.headers_mut().extend(written);
        return Ok(response);
    }
    let error = outcome.partial_error("stored", "refused");
    Err(written.fold(error, |error, (name, count)| error.with_header(name, count)))
}
