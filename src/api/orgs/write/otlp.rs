//! OTLP/HTTP: metrics as OpenTelemetry's SDKs and collectors send them, in protobuf or JSON.
//!
//! What is refused of a request is no error of the request (OTLP 1.x, "Partial Success"): the answer is 200 and counts it.
//! Refusals of the whole are a `google.rpc.Status` in the request's encoding, which the outermost layer writes
//! ([`ErrorFormat::Otlp`](crate::api::error::ErrorFormat::Otlp)).

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};

use super::{DURABILITY, Format, Incoming, Translate, WriteDeps, gzip, media, take, unsupported};
use crate::api::callers::IngestCaller;
use crate::api::error::ApiResult;
use crate::api::params::PathOf;
use crate::api::routes::{Auth, Routes};
use crate::ingest::otlp;

const SUMMARY: &str = "Write samples: OpenTelemetry metrics (OTLP/HTTP)";

pub(super) fn routes() -> Routes<Arc<WriteDeps>> {
    let paths = ["/orgs/{slug}/otlp/v1/metrics", "/orgs/{slug}/prometheus/api/v1/otlp/v1/metrics"];
    paths
        .into_iter()
        .fold(Routes::new(), |routes, path| routes.post(path, Auth::IngestCaller, SUMMARY, export))
}

async fn export(
    State(deps): State<Arc<WriteDeps>>,
    machine: IngestCaller,
    PathOf(slug): PathOf<String>,
    request: Request,
) -> ApiResult<Response> {
    let (content_type, coding) = media(request.headers());
    let (encoding, gzip) = (otlp::Encoding::of(content_type), gzip(coding));
    let stored = take(deps, machine, &slug, request, |_| {
        let encoding = encoding
            .ok_or_else(|| unsupported("Content-Type: application/x-protobuf or application/json"))?;
        let gzip = gzip.ok_or_else(|| unsupported("Content-Encoding: gzip, or none"))?;
        let decode: Translate = Box::new(move |body, limits| otlp::decode(body, encoding, limits));
        Ok(Incoming { format: Format::Translated { gzip, decode }, labels: Vec::new() })
    })
    .await?;
    let encoding = encoding.unwrap_or(otlp::Encoding::Protobuf);
    let body = otlp::response(encoding, stored.report.refused, &stored.first_refusals());
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(encoding.content_type())),
        (DURABILITY, stored.durability),
    ];
    Ok((headers, body).into_response())
}
