//! Samples as people and scripts write them: Prometheus' text, OpenMetrics, JSON lines, CSV.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use serde_json::json;

use super::{
    DURABILITY, Format, Incoming, Stored, Translate, WriteDeps, essence, gzip, media, take, unsupported,
};
use crate::api::body::Json;
use crate::api::callers::IngestCaller;
use crate::api::error::{ApiError, ApiResult};
use crate::api::params::{Params, PathOf, shortened};
use crate::api::routes::{Auth, Routes};
use crate::ingest::{csv, json_lines, text};
use crate::model::Timestamp;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    JsonLines,
    Csv,
}

const ROWS: &[(&str, Kind, &str)] = &[
    ("/orgs/{slug}/import", Kind::Text, "Write samples: Prometheus' text format or OpenMetrics"),
    ("/orgs/{slug}/import/prometheus", Kind::Text, "Write samples: Prometheus' text format or OpenMetrics"),
    (
        "/orgs/{slug}/import/jsonl",
        Kind::JsonLines,
        "Write samples: JSON lines, as VictoriaMetrics exports them",
    ),
    ("/orgs/{slug}/import/csv", Kind::Csv, "Write samples: CSV"),
];

pub(super) fn routes() -> Routes<Arc<WriteDeps>> {
    ROWS.iter().fold(Routes::new(), |routes, (path, kind, summary)| {
        let handler =
            move |State(deps): State<Arc<WriteDeps>>,
                  machine: IngestCaller,
                  PathOf(slug): PathOf<String>,
                  request: Request| { import(deps, *kind, machine, slug, request) };
        routes.post(path, Auth::IngestCaller, summary, handler)
    })
}

async fn import(
    deps: Arc<WriteDeps>,
    kind: Kind,
    machine: IngestCaller,
    slug: String,
    request: Request,
) -> ApiResult<Response> {
    let now = deps.clock.now();
    let stored = take(deps, machine, &slug, request, |parts| incoming(kind, parts, now)).await?;
    answer(&stored)
}

/// What curl says of a body that it was told nothing about, and what says nothing at all.
const ANYTHING: [&str; 3] = ["", "application/x-www-form-urlencoded", "application/octet-stream"];

fn incoming(kind: Kind, parts: &Parts, now: Timestamp) -> ApiResult<Incoming> {
    let (content_type, encoding) = media(&parts.headers);
    let essence = essence(content_type);
    let is_one_of = |types: &[&str]| ANYTHING.contains(&&*essence) || types.contains(&&*essence);
    let mut params = Params::of_query(parts.uri.query())?;
    let at = params.time("timestamp", now)?.unwrap_or(now);
    let labels = labels(params.many(&["labels"]))?;
    let decode: Translate = match kind {
        Kind::Text => {
            let wanted = "Content-Type: text/plain or application/openmetrics-text";
            // What says neither is told by its end, which is not there yet.
            let content_type = content_type.to_owned();
            let format = move |body: &[u8]| text::Format::of(&content_type, body);
            if format(b"").is_none() {
                return Err(unsupported(wanted));
            }
            Box::new(move |body, limits| {
                text::decode(body, format(body).unwrap_or(text::Format::Prometheus), at, limits)
            })
        }
        Kind::JsonLines if is_one_of(&JSON_LINES) => Box::new(json_lines::decode),
        Kind::JsonLines => return Err(unsupported("Content-Type: application/x-ndjson")),
        Kind::Csv if is_one_of(&["text/csv", "text/plain"]) => {
            let wrong = |error: csv::ColumnsError| ApiError::invalid_parameter("format", error.to_string());
            // What is not told is in the body's first line.
            let columns = params.one(&["format"])?.map(|format| csv::CsvColumns::parse(&format));
            let columns = columns.transpose().map_err(wrong)?.unwrap_or_else(csv::CsvColumns::header);
            Box::new(move |body, limits| csv::decode(body, &columns, at, limits))
        }
        Kind::Csv => return Err(unsupported("Content-Type: text/csv")),
    };
    let gzip = gzip(encoding).ok_or_else(|| unsupported("Content-Encoding: gzip, or none"))?;
    Ok(Incoming { format: Format::Translated { gzip, decode }, labels })
}

const JSON_LINES: [&str; 6] = [
    "application/x-ndjson",
    "application/ndjson",
    "application/jsonl",
    "application/stream+json",
    "application/json",
    "text/plain",
];

/// `labels=name=value`, repeated.
fn labels(given: Vec<String>) -> ApiResult<Vec<(Box<str>, Box<str>)>> {
    /// As many as a series may have.
    const LABELS_MAX: usize = 64;
    let wrong = |message: String| ApiError::invalid_parameter("labels", message);
    if given.len() > LABELS_MAX {
        return Err(wrong(format!("{} labels are given, at most {LABELS_MAX} are taken", given.len())));
    }
    let mut labels: Vec<(Box<str>, Box<str>)> = Vec::with_capacity(given.len());
    for text in given {
        let pair = text.split_once('=').filter(|(name, _)| !name.is_empty());
        let Some((name, value)) = pair else {
            return Err(wrong(format!("{:?} is not name=value", shortened(&text))));
        };
        if labels.iter().any(|(known, _)| **known == *name) {
            return Err(wrong(format!("{:?} is given twice", shortened(name))));
        }
        labels.push((name.into(), value.into()));
    }
    Ok(labels)
}

fn answer(stored: &Stored) -> ApiResult<Response> {
    if !stored.is_whole() {
        return Err(stored.partly(["accepted", "rejected"]));
    }
    let body = json!({ "accepted": stored.report.stored, "rejected": 0, "errors": [] });
    Ok(([(DURABILITY, stored.durability.clone())], Json(body)).into_response())
}
