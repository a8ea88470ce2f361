//! OTLP/HTTP: metrics from OpenTelemetry SDKs and collectors, in protobuf or JSON.
//!
//! A request with some refused samples succeeds (OTLP 1.x, "Partial Success"): the response is 200
//! with the number of refused samples. The error of a whole request is a `google.rpc.Status` in the
//! request's encoding, which the outermost layer writes
//! ([`ErrorFormat::Otlp`](crate::api::error::ErrorFormat::Otlp)).

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};

use super::{
    BodyDecoder, BodyDescription, DURABILITY, TranslatedFormat, WriteDeps, gzip, handle, media, unsupported,
};
use crate::api::callers::{IngestAccess, IngestCaller};
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
    export_as(deps, machine.enter(&slug)?, request).await
}

/// Stores the samples of an admitted caller.
pub(in crate::api) async fn export_as(
    deps: Arc<WriteDeps>,
    access: IngestAccess,
    request: Request,
) -> ApiResult<Response> {
    let (content_type, coding) = media(request.headers());
    let (encoding, gzip) = (otlp::Encoding::of(content_type), gzip(coding));
    let outcome = handle(deps, access, request, |_| {
        let encoding = encoding
            .ok_or_else(|| unsupported("Content-Type: application/x-protobuf or application/json"))?;
        let gzip = gzip.ok_or_else(|| unsupported("Content-Encoding: gzip, or none"))?;
        let format = TranslatedFormat::Otlp(encoding);
        Ok(BodyDescription { decoder: BodyDecoder::Translating { gzip, format }, labels: Vec::new() })
    })
    .await?;
    let encoding = encoding.unwrap_or(otlp::Encoding::Protobuf);
    let body = otlp::response(encoding, outcome.report.refused, &outcome.first_refusals());
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(encoding.content_type())),
        (DURABILITY, outcome.durability),
    ];
    Ok((headers, body).into_response())
}
