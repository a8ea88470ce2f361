//! Prometheus remote write, 1.0 and 2.0 by one path: the content type says which.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};

use super::{DURABILITY, Format, Incoming, Stored, WriteDeps, media, take, unsupported};
use crate::api::callers::IngestCaller;
use crate::api::error::ApiResult;
use crate::api::params::PathOf;
use crate::api::routes::{Auth, Routes};
use crate::ingest::{PROTOCOLS, Protocol};
use crate::tsdb::AppendReport;

const SUMMARY: &str = "Write samples: Prometheus remote write 1.0 and 2.0";
const WANTED: &str = "Content-Encoding: snappy and Content-Type: application/x-protobuf, for remote write 2.0 with \
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
    let protocol = protocol(request.headers());
    let stored = take(deps, machine, &slug, request, |_| {
        let protocol = protocol.ok_or_else(|| unsupported(WANTED))?;
        Ok(Incoming { format: Format::Borrowed(protocol), labels: Vec::new() })
    })
    .await?;
    let written = protocol.filter(|protocol| protocol.reports_written).map(|_| written(&stored.report));
    answer(&stored, written)
}

fn protocol(headers: &HeaderMap) -> Option<&'static Protocol> {
    let (content_type, encoding) = media(headers);
    PROTOCOLS
        .iter()
        .find(|protocol| (protocol.accepts_type)(content_type) && (protocol.accepts_encoding)(encoding))
}

/// How much of a request was stored, or was there already: remote write 2.0 has its receivers say so, and its senders
/// count what is missing as failed.
type Written = [(HeaderName, u64); 3];

fn written(report: &AppendReport) -> Written {
    let floats = report.stored.saturating_sub(report.histograms);
    [
        (HeaderName::from_static("x-prometheus-remote-write-samples-written"), floats),
        (HeaderName::from_static("x-prometheus-remote-write-histograms-written"), report.histograms),
        (HeaderName::from_static("x-prometheus-remote-write-exemplars-written"), report.exemplars),
    ]
}

fn answer(stored: &Stored, written: Option<Written>) -> ApiResult<Response> {
    let written = written.into_iter().flatten().map(|(name, count)| (name, HeaderValue::from(count)));
    if stored.is_whole() {
        let durability = [(DURABILITY, stored.durability.clone())];
        let mut response = (StatusCode::NO_CONTENT, durability, Body::empty()).into_response();
        response.headers_mut().extend(written);
        return Ok(response);
    }
    let error = stored.partly(["stored", "refused"]);
    Err(written.fold(error, |error, (name, count)| error.with_header(name, count)))
}
