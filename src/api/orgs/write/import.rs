//! Imports of text formats: Prometheus text, OpenMetrics, JSON lines, CSV, and InfluxDB's line
//! protocol.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderName, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use super::{
    BodyDecoder, BodyDescription, DURABILITY, IngestOutcome, TranslateFn, TranslatedFormat, WriteDeps,
    essence, gzip, handle, media, unsupported,
};
use crate::api::body::Json;
use crate::api::callers::{IngestAccess, IngestCaller};
use crate::api::error::{ApiError, ApiResult, Code};
use crate::api::params::{Params, PathOf, shortened};
use crate::api::routes::{Auth, Routes};
use crate::ingest::{csv, graphite, influx, json_lines, text};
use crate::model::Timestamp;

/// A text format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::api) enum ImportFormat {
    /// Prometheus' text format or OpenMetrics.
    Text,
    /// The export format of VictoriaMetrics.
    JsonLines,
    /// Columns that the request names.
    Csv,
    /// InfluxDB's line protocol.
    Influx,
    /// Graphite's plaintext protocol.
    Graphite,
}

/// The response after every sample was stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::api) enum ImportReply {
    /// 200 with the counts.
    Counts,
    /// 204, as clients of VictoriaMetrics and InfluxDB expect.
    Empty,
}

/// Path, format, response and summary of each route.
const ROWS: &[(&str, ImportFormat, ImportReply, &str)] = &[
    ("/orgs/{slug}/import", ImportFormat::Text, ImportReply::Counts, TEXT),
    ("/orgs/{slug}/import/prometheus", ImportFormat::Text, ImportReply::Counts, TEXT),
    ("/orgs/{slug}/import/jsonl", ImportFormat::JsonLines, ImportReply::Counts, JSON_LINES),
    ("/orgs/{slug}/import/csv", ImportFormat::Csv, ImportReply::Counts, "Write samples: CSV"),
    ("/orgs/{slug}/import/graphite", ImportFormat::Graphite, ImportReply::Counts, GRAPHITE),
    ("/orgs/{slug}/prometheus/api/v1/import", ImportFormat::JsonLines, ImportReply::Empty, JSON_LINES),
    ("/orgs/{slug}/prometheus/api/v1/import/prometheus", ImportFormat::Text, ImportReply::Empty, TEXT),
    ("/orgs/{slug}/influx/write", ImportFormat::Influx, ImportReply::Empty, INFLUX),
    ("/orgs/{slug}/influx/api/v2/write", ImportFormat::Influx, ImportReply::Empty, INFLUX),
];

const TEXT: &str = "Write samples: Prometheus text format or OpenMetrics";
const JSON_LINES: &str = "Write samples: JSON lines in the export format of VictoriaMetrics";
const GRAPHITE: &str = "Write samples: plaintext protocol of Graphite";
const INFLUX: &str = "Write samples: line protocol of InfluxDB";

pub(super) fn routes() -> Routes<Arc<WriteDeps>> {
    ROWS.iter()
        .fold(Routes::new(), |routes, (path, format, reply, summary)| {
            let handler = move |State(deps): State<Arc<WriteDeps>>,
                                machine: IngestCaller,
                                PathOf(slug): PathOf<String>,
                                request: Request| {
                let access = machine.enter(&slug);
                async move { import_as(deps, *format, *reply, access?, request).await }
            };
            routes.post(path, Auth::IngestCaller, summary, handler)
        })
        .post(
            "/orgs/{slug}/prometheus/api/v1/import/native",
            Auth::Public,
            "VictoriaMetrics: import in its native format; always refused",
            import_native,
        )
        .get("/orgs/{slug}/influx/ping", Auth::Public, "InfluxDB: check that the server responds", ping)
        .get("/orgs/{slug}/influx/health", Auth::Public, "InfluxDB 2: check that the server responds", health)
}

async fn import_native() -> ApiResult<Response> {
    let detail = "the native format of VictoriaMetrics is not supported: use /api/v1/import, which has JSON lines \
                  (vmctl: --vm-native-disable-binary-protocol)";
    Err(ApiError::new(Code::BadRequest, detail))
}

/// The version of InfluxDB whose write requests are understood. Clients print it.
const INFLUX_VERSION: &str = "1.8.10";
const INFLUX_VERSION_HEADER: HeaderName = HeaderName::from_static("x-influxdb-version");

async fn ping() -> Response {
    (StatusCode::NO_CONTENT, [(INFLUX_VERSION_HEADER, INFLUX_VERSION)]).into_response()
}

async fn health() -> Response {
    let body = json!({
        "name": "promlet",
        "status": "pass",
        "message": "ready for queries and writes",
        "version": INFLUX_VERSION,
        "checks": [],
    });
    Json(body).into_response()
}

/// Stores the samples of an admitted caller.
pub(in crate::api) async fn import_as(
    deps: Arc<WriteDeps>,
    format: ImportFormat,
    reply: ImportReply,
    access: IngestAccess,
    request: Request,
) -> ApiResult<Response> {
    let now = deps.clock.now();
    let outcome = handle(deps, access, request, |parts| describe_body(format, parts, now)).await?;
    respond(&outcome, format, reply)
}

/// The number of fields of a request that are not numbers, if there are any.
const SKIPPED: HeaderName = HeaderName::from_static("skipped-fields");

/// Content types that name no format: no content type, curl's default, and arbitrary bytes.
const UNSPECIFIC_TYPES: [&str; 3] = ["", "application/x-www-form-urlencoded", "application/octet-stream"];

fn describe_body(format: ImportFormat, parts: &Parts, now: Timestamp) -> ApiResult<BodyDescription> {
    let (content_type, encoding) = media(&parts.headers);
    let essence = essence(content_type);
    let is_one_of = |types: &[&str]| UNSPECIFIC_TYPES.contains(&&*essence) || types.contains(&&*essence);
    let mut params = Params::of_query(parts.uri.query())?;
    let at = params.time("timestamp", now)?.unwrap_or(now);
    let labels = labels(params.many(&["labels"]))?;
    let decode: TranslateFn = match format {
        ImportFormat::Text => {
            // Without a specific content type, the end of the body decides, which has not arrived
            // yet.
            let content_type = content_type.to_owned();
            let format = move |body: &[u8]| text::Format::of(&content_type, body);
            if format(b"").is_none() {
                return Err(unsupported("Content-Type: text/plain or application/openmetrics-text"));
            }
            Box::new(move |body, limits| {
                text::decode(body, format(body).unwrap_or(text::Format::Prometheus), at, limits)
            })
        }
        ImportFormat::JsonLines if is_one_of(&JSON_LINES_TYPES) => Box::new(json_lines::decode),
        ImportFormat::JsonLines => return Err(unsupported("Content-Type: application/x-ndjson")),
        ImportFormat::Csv if is_one_of(&["text/csv", "text/plain"]) => {
            let wrong = |error: csv::ColumnsError| ApiError::invalid_parameter("format", error.to_string());
            // Without the parameter `format`, the first line of the body names the columns.
            let columns = params.one(&["format"])?.map(|format| csv::CsvColumns::parse(&format));
            let columns = columns.transpose().map_err(wrong)?.unwrap_or_else(csv::CsvColumns::header);
            Box::new(move |body, limits| csv::decode(body, &columns, at, limits))
        }
        ImportFormat::Csv => return Err(unsupported("Content-Type: text/csv")),
        ImportFormat::Influx if is_one_of(&["text/plain"]) => {
            let precision = params.one(&["precision"])?.unwrap_or_default();
            let unit = influx::Precision::parse(&precision).ok_or_else(|| {
                let expected = "is none of ns, us, ms, s, m and h";
                ApiError::invalid_parameter("precision", format!("{:?} {expected}", shortened(&precision)))
            })?;
            // The database of version 1, or the bucket of version 2.
            let database = params.one(&["db", "bucket"])?.unwrap_or_default();
            let options = influx::InfluxOptions { precision: unit, database, default_at: at };
            Box::new(move |body, limits| influx::decode(body, &options, limits))
        }
        ImportFormat::Graphite if is_one_of(&["text/plain"]) => {
            Box::new(move |body, limits| graphite::decode(body, at, limits))
        }
        ImportFormat::Influx | ImportFormat::Graphite => {
            return Err(unsupported("Content-Type: text/plain"));
        }
    };
    let gzip = gzip(encoding).ok_or_else(|| unsupported("Content-Encoding: gzip, or none"))?;
    Ok(BodyDescription {
        decoder: BodyDecoder::Translating { gzip, format: TranslatedFormat::Import(decode) },
        labels,
    })
}

const JSON_LINES_TYPES: [&str; 6] = [
    "application/x-ndjson",
    "application/ndjson",
    "application/jsonl",
    "application/stream+json",
    "application/json",
    "text/plain",
];

/// Parses the repeatable parameter `labels`, of the form `labels=name=value`.
fn labels(given: Vec<String>) -> ApiResult<Vec<(Box<str>, Box<str>)>> {
    /// The most labels of one request, inclusive; as many as a series may have.
    const LABELS_MAX: usize = 64;
    let wrong = |message: String| ApiError::invalid_parameter("labels", message);
    if given.len() > LABELS_MAX {
        return Err(wrong(format!("{} labels, more than the {LABELS_MAX} allowed", given.len())));
    }
    let mut labels: Vec<(Box<str>, Box<str>)> = Vec::with_capacity(given.len());
    for text in given {
        let pair = text.split_once('=').filter(|(name, _)| !name.is_empty());
        let Some((name, value)) = pair else {
            return Err(wrong(format!("{:?} is not name=value", shortened(&text))));
        };
        if labels.iter().any(|(other, _)| **other == *name) {
            return Err(wrong(format!("{:?} is given twice", shortened(name))));
        }
        labels.push((name.into(), value.into()));
    }
    Ok(labels)
}

fn respond(outcome: &IngestOutcome, format: ImportFormat, reply: ImportReply) -> ApiResult<Response> {
    if !outcome.is_complete() {
        let error = outcome.partial_error("accepted", "rejected");
        // Clients of InfluxDB show the members `error` (version 1) and `message` (version 2).
        return Err(match format {
            ImportFormat::Influx => {
                let detail = error.detail().to_owned();
                error.with("error", detail.clone()).with("message", detail)
            }
            _ => error,
        });
    }
    let mut response = match reply {
        ImportReply::Counts => {
            let body = json!({ "accepted": outcome.report.stored, "rejected": 0, "errors": [] });
            Json(body).into_response()
        }
        ImportReply::Empty => StatusCode::NO_CONTENT.into_response(),
    };
    response.headers_mut().insert(DURABILITY, outcome.durability.clone());
    if outcome.report.skipped > 0 {
        response.headers_mut().insert(SKIPPED, outcome.report.skipped.into());
    }
    Ok(response)
}
