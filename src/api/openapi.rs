//! The OpenAPI 3.1 document, generated from the route table. So every served route is documented,
//! and every documented route is served.
//!
//! The callers of a route and their errors follow from its row ([`access`](super::access)). Its
//! parameters, body and responses are described in [`operations`], in the language of [`schema`].
//! The API tests check every response against this document.

mod operations;
mod parameters;
pub mod schema;
mod types;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, OnceLock};

use axum::body::Bytes;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::error::{Code, ErrorFormat};
use super::routes::{Auth, RouteDoc, Routes};
use crate::identity::{Endpoint, Provider};
use operations::{BodySchema, Operation};

/// Adds `GET /api/v1/openapi.json`, which describes `routes` and itself. `server` is their base
/// URL.
#[must_use]
pub fn document(routes: Routes, server: &str) -> Routes {
    let own = |document: Arc<ServedDocument>| {
        Routes::new().get("/api/v1/openapi.json", Auth::Public, "Get this document", serve).with(document)
    };
    let mut document = ServedDocument { server: server.to_owned(), ..ServedDocument::default() };
    let itself = own(Arc::default());
    document.rows = routes.rows().iter().chain(itself.rows()).cloned().collect();
    routes.merge(own(Arc::new(document)))
}

/// The document, which is written for its first request: otherwise it would be the longest part of
/// the start of a server without data.
#[derive(Debug, Default)]
struct ServedDocument {
    rows: Vec<RouteDoc>,
    server: String,
    text: OnceLock<Bytes>,
}

async fn serve(State(document): State<Arc<ServedDocument>>) -> Response {
    let body = document.text.get_or_init(|| Bytes::from(text(&document.rows, &document.server)));
    ([(header::CONTENT_TYPE, "application/json")], body.clone()).into_response()
}

/// The description of the API.
const ABOUT: &str = "A metrics server with Prometheus remote write and PromQL. If a request has an Authorization header, \
    other credentials are ignored. Errors are RFC 9457 problems with a stable `code`; the Prometheus mount returns \
    errors in Prometheus' format. `HEAD` works on every path with `GET`. A header block of more than 64 KiB is refused \
    with status 431. Paths below /auth are aliases of those below /api/v1/auth. Clients of Prometheus, a Pushgateway, \
    InfluxDB and OpenTelemetry may leave out the organisation: /api/v1/query, /api/v1/write, /metrics/job/..., /write, \
    /v1/metrics and the like stand for paths of the organisation that the API key or embed token names.";

/// Returns the document for these rows as JSON. `server` is their base URL.
///
/// The document is written path by path. As one JSON value it would take 14 MB, which the allocator
/// would not return to the system.
pub fn text(rows: &[RouteDoc], server: &str) -> String {
    let mut paths: BTreeMap<&str, Vec<&RouteDoc>> = BTreeMap::new();
    for row in rows {
        paths.entry(&row.path).or_default().push(row);
    }
    let paths = paths.into_iter().map(|(path, rows)| {
        let methods = rows.into_iter().map(|row| (row.method.to_ascii_lowercase(), operation(row)));
        (path, Value::Object(methods.collect()))
    });
    let info = json!({
        "title": "promlet",
        "version": env!("CARGO_PKG_VERSION"),
        "description": ABOUT,
        "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
    });
    let tags = TAGS.map(|(name, text)| json!({ "name": name, "description": text }));
    let head = [
        ("openapi", json!("3.1.0")),
        ("info", info),
        ("servers", json!([{ "url": server }])),
        ("tags", json!(tags)),
    ];
    let mut out = String::with_capacity(512 << 10);
    out.push('{');
    members(&mut out, head);
    out.push_str(",\"paths\":{");
    members(&mut out, paths);
    out.push_str("},\"components\":{");
    members(&mut out, [("securitySchemes", security_schemes())]);
    out.push_str(",\"schemas\":{");
    members(&mut out, types::TYPES.iter().map(|(name, text)| (*name, shape(text))));
    out.push_str("}}}");
    out.shrink_to_fit();
    out
}

/// Writes the members of an object, each as soon as the iterator returns it.
fn members<'n>(out: &mut String, all: impl IntoIterator<Item = (&'n str, Value)>) {
    for (index, (name, value)) in all.into_iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        // Writing into a String does not fail.
        let _ = write!(out, "{}:{value}", Value::from(name));
    }
}

/// Returns whether [`operations`] describes a route.
pub fn is_described(row: &RouteDoc) -> bool {
    operations::of(row.method, &row.path).is_some()
}

/// Converts a schema of our tables to JSON. An invalid one allows every value, and a test fails for
/// it.
fn shape(text: &str) -> Value {
    schema::schema(text).unwrap_or(Value::Bool(true))
}

fn security_schemes() -> Value {
    json!({
        "session": { "type": "apiKey", "in": "cookie", "name": "ms_session", "description": "The session cookie of a login; it expires 30 days after the last request." },
        "embedToken": { "type": "http", "scheme": "bearer", "bearerFormat": "JWT", "description": "An embed token, minted by the server or signed with an API key's secret." },
        "publicLink": { "type": "http", "scheme": "bearer", "description": "The secret of a public link of this dashboard; it begins with mpl_." },
        "embedTokenParameter": { "type": "apiKey", "in": "query", "name": "token", "description": "An embed token in the URL, for images, whose requests have no headers of their own." },
        "apiKey": { "type": "http", "scheme": "bearer", "description": "The secret of an API key; it begins with msk_." },
        "apiKeyBasic": { "type": "http", "scheme": "basic", "description": "The secret of an API key as the password. A user name that begins with ak_ must be the key's id." },
        "metricsToken": { "type": "http", "scheme": "bearer", "description": "The value of PROMLET_METRICS_TOKEN; not needed for requests from the same machine." },
    })
}

/// Returns the credentials of a route, any one of which is sufficient. Public routes need none.
fn security(auth: Auth) -> Value {
    let names: &[&str] = match auth {
        Auth::Public => &[],
        Auth::Account(_)
        | Auth::Member(..)
        | Auth::OneselfOr(_)
        | Auth::InstanceAdmin(_)
        | Auth::Founder
        | Auth::ScrapeAdmin => &["session"],
        Auth::QueryCaller(Endpoint::Dashboard) => &["session", "embedToken", "publicLink"],
        Auth::QueryCaller(_) => &["session", "embedToken"],
        Auth::PictureCaller(_) => &["session", "embedToken", "embedTokenParameter"],
        Auth::PrometheusCaller(_) => &["session", "embedToken", "apiKey", "apiKeyBasic"],
        Auth::IngestCaller | Auth::AlertingCaller | Auth::MintCaller => &["session", "apiKey", "apiKeyBasic"],
        Auth::Operator => return json!([{ "metricsToken": [] }, {}]),
    };
    names.iter().map(|name| json!({ *name: [] })).collect()
}

/// Returns the name of an endpoint in a token's `ms.endpoints`.
const fn word(endpoint: Endpoint) -> &'static str {
    match endpoint {
        Endpoint::Metrics => "metrics",
        Endpoint::Labels => "labels",
        Endpoint::Range => "range",
        Endpoint::Instant => "instant",
        Endpoint::Expr => "expr",
        Endpoint::Dashboard => "dashboard",
        Endpoint::Alerts => "alerts",
    }
}

/// Describes the callers of a route.
fn callers(auth: Auth) -> String {
    let fresh =
        |login| if login == super::routes::Login::Fresh { ", signed in within 15 minutes" } else { "" };
    match auth {
        Auth::Public => "Anyone.".into(),
        Auth::Account(login) => format!("Any session{}.", fresh(login)),
        Auth::Member(role, login) => {
            format!("A session with the role {} or higher{}.", role.as_str(), fresh(login))
        }
        Auth::OneselfOr(role) => {
            format!("A session of the member, or a session with the role {} or higher.", role.as_str())
        }
        Auth::InstanceAdmin(login) => format!("An administrator of the server{}.", fresh(login)),
        Auth::Founder => "An administrator of the server; any session if PROMLET_ORG_CREATE is any.".into(),
        Auth::ScrapeAdmin => {
            "An administrator of the server; any administrator of the organisation if PROMLET_SCRAPE_ORG_ADMINS is on."
                .into()
        }
        Auth::QueryCaller(Endpoint::Dashboard) => {
            "A session with the role viewer or higher, an embed token that grants the dashboard, or a public link of it."
                .into()
        }
        Auth::QueryCaller(endpoint) | Auth::PictureCaller(endpoint) => format!(
            "A session with the role viewer or higher, or an embed token that grants `{}`.",
            word(endpoint)
        ),
        Auth::PrometheusCaller(Some(endpoint)) => {
            format!(
                "A session with the role viewer or higher, an API key with the scope read, or an embed token that grants `{}`.",
                word(endpoint)
            )
        }
        Auth::PrometheusCaller(None) => {
            "A session with the role viewer or higher, an API key with the scope read, or an embed token."
                .into()
        }
        Auth::IngestCaller => {
            "An API key with the scope ingest, or a session with the role editor or higher.".into()
        }
        Auth::AlertingCaller => {
            "An API key with the scope alerting, or a session with the role editor or higher.".into()
        }
        Auth::MintCaller => {
            "An API key with the scope embed, or a session with the role editor or higher.".into()
        }
        Auth::Operator => "A request from the same machine, or with the metrics token.".into(),
    }
}

fn operation(row: &RouteDoc) -> Value {
    let described = operations::of(row.method, &row.path);
    let mut operation = json!({
        "operationId": operation_id(row),
        "summary": row.summary,
        "description": callers(row.auth),
        "tags": [tag(&row.path)],
        "security": security(row.auth),
        "responses": responses(row, described.as_ref()),
    });
    let mut listed: Vec<Value> = path_parameters(&row.path);
    if let Some(described) = &described {
        let all = described.query.concat();
        if described.body == BodySchema::Form {
            operation["requestBody"] = json!({ "content": { "application/x-www-form-urlencoded": { "schema": parameters::form(&all) } } });
        } else {
            listed.extend(all.iter().map(|parameter| parameter.to_json()));
        }
        if let Some(body) = body(described.body) {
            operation["requestBody"] = body;
        }
    }
    if !listed.is_empty() {
        operation["parameters"] = Value::Array(listed);
    }
    operation
}

fn body(body: BodySchema) -> Option<Value> {
    match body {
        BodySchema::Empty | BodySchema::Form => None,
        BodySchema::Json(text) => {
            Some(json!({ "required": true, "content": { "application/json": { "schema": shape(text) } } }))
        }
        BodySchema::JsonOrForm(text) => Some(json!({ "required": true, "content": {
            "application/json": { "schema": shape(text) },
            "application/x-www-form-urlencoded": { "schema": shape(text) },
        } })),
        BodySchema::Bytes { media, description } => Some(json!({
            "required": true, "description": description,
            "content": media.iter().map(|media| ((*media).to_owned(), binary())).collect::<serde_json::Map<_, _>>(),
        })),
    }
}

/// Returns the schema of binary data.
fn binary() -> Value {
    json!({ "schema": { "type": "string", "format": "binary" } })
}

/// Returns the operation id, such as `get_orgs_slug_metrics`. It depends only on the method and the
/// path.
fn operation_id(row: &RouteDoc) -> String {
    let path = row.path.strip_prefix("/api/v1").unwrap_or(&row.path);
    let words = path.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.fold(row.method.to_ascii_lowercase(), |id, word| format!("{id}_{word}"))
}

const TAGS: [(&str, &str); 7] = [
    ("Authentication", "Sign-in, sessions, and the account"),
    ("Organisations", "Organisations, members, API keys, and embed tokens"),
    ("Dashboards", "Dashboards in Grafana's JSON, and their versions"),
    ("Discover and query", "Metrics, labels, and queries"),
    ("Prometheus", "The Prometheus HTTP API of each organisation"),
    ("Ingestion", "Ingestion of samples"),
    ("Operations", "Health, metrics of the server, and administration"),
];

fn tag(path: &str) -> &'static str {
    let below = |part: &str| path.contains(part);
    match path {
        _ if path.starts_with("/api/v1/admin/") => "Operations",
        _ if below("/auth/") => "Authentication",
        _ if path.ends_with("/write")
            || below("/import")
            || below("/otlp/")
            || below("/ingest/")
            || below("/push/") =>
        {
            "Ingestion"
        }
        _ if below("/prometheus") => "Prometheus",
        _ if below("/dashboards") => "Dashboards",
        _ if path.ends_with("{slug}/alerts") => "Discover and query",
        _ if ["quer", "metrics", "labels", "render."]
            .iter()
            .any(|part| below(&format!("{{slug}}/{part}"))) =>
        {
            "Discover and query"
        }
        _ if below("/orgs") && !below("/admin/") => "Organisations",
        _ => "Operations",
    }
}

fn path_parameters(path: &str) -> Vec<Value> {
    let names = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    names
        .map(|name| {
            let providers = sign_in_providers();
            let text = match name {
                "slug" => "The slug of the organisation",
                "name" => "The metric name, percent-encoded",
                "label" => "The label name, percent-encoded",
                "provider" => providers.as_str(),
                "user_id" => "The id of the user",
                "uid" => "The uid of the dashboard",
                "version" => "The number of the version",
                "fingerprint" => "The fingerprint of the alert: 16 hexadecimal digits",
                "namespace" => "The namespace of the groups of rules",
                "group" => "The name of the group of rules",
                "grouping" => "The labels of the group: job/<job>{/<label>/<value>}, with slashes as they are or percent-encoded",
                _ => "The id of the object",
            };
            json!({ "name": name, "in": "path", "required": true, "description": text, "schema": { "type": "string", "minLength": 1 } })
        })
        .collect()
}

fn sign_in_providers() -> String {
    let [others @ .., last] = Provider::ALL.map(Provider::as_str);
    format!("The sign-in provider: {} or {last}", others.join(", "))
}

fn responses(row: &RouteDoc, described: Option<&Operation>) -> Value {
    let mut responses: BTreeMap<String, Value> = BTreeMap::new();
    match described {
        None => {
            responses.insert("2XX".into(), json!({ "description": "Success" }));
        }
        Some(described) => {
            for (status, text, description) in described.responses {
                let mut response = json!({ "description": description });
                match *text {
                    "" => {}
                    "yaml" => {
                        response["content"] =
                            json!({ "application/yaml": { "schema": { "type": "string" } } })
                    }
                    "text" => {
                        response["content"] = json!({ "text/plain": { "schema": { "type": "string" } } })
                    }
                    "protobuf" => {
                        response["content"] = json!({
                            "application/x-protobuf": binary(),
                            "application/json": { "schema": shape("map<any>") },
                        })
                    }
                    "samples" => {
                        response["content"] = json!({
                            "application/x-ndjson": { "schema": {} },
                            "text/csv": { "schema": { "type": "string" } },
                            "application/openmetrics-text": { "schema": { "type": "string" } },
                            "text/plain": { "schema": { "type": "string" } },
                        })
                    }
                    "read" => {
                        response["content"] = json!({
                            "application/x-streamed-protobuf": binary(),
                            "application/x-protobuf": binary(),
                        })
                    }
                    "events" => response["content"] = json!({ "text/event-stream": { "schema": {} } }),
                    media if media.starts_with("image/") => response["content"] = json!({ media: binary() }),
                    text if text.starts_with("ndjson ") => {
                        let line = text.trim_start_matches("ndjson ");
                        response["content"] = json!({ "application/x-ndjson": { "schema": shape(line) } });
                    }
                    text => {
                        let json = text.strip_prefix("html ").unwrap_or(text);
                        response["content"] = json!({ "application/json": { "schema": shape(json) } });
                        if json != text {
                            response["content"]["text/html"] = json!({ "schema": { "type": "string" } });
                        }
                    }
                }
                responses.insert(status.to_string(), response);
            }
        }
    }
    let mut by_status: BTreeMap<u16, Vec<Code>> = BTreeMap::new();
    for code in refusals(row, described) {
        let status = ErrorFormat::of_path(&row.path).status(code);
        by_status.entry(status.as_u16()).or_default().push(code);
    }
    for (status, codes) in by_status {
        let mut refused = refused(row, &codes);
        if matches!(described.map(|described| described.body), Some(BodySchema::JsonOrForm(_))) {
            refused["content"]["text/html"] = json!({ "schema": { "type": "string" } });
        }
        let name = status.to_string();
        match responses.get_mut(&name) {
            // `/readyz` has a 503 response of its own.
            Some(own) => {
                let own_schema = own["content"]["application/json"]["schema"].take();
                own["content"] = refused["content"].clone();
                own["content"]["application/json"] = json!({ "schema": own_schema });
            }
            None => {
                responses.insert(name, refused);
            }
        }
    }
    json!(responses)
}

fn refused(row: &RouteDoc, codes: &[Code]) -> Value {
    let words: Vec<&str> = codes.iter().map(|code| code.as_str()).collect();
    let (media, schema) = match ErrorFormat::of_path(&row.path) {
        ErrorFormat::Prometheus => {
            ("application/json", json!({ "$ref": "#/components/schemas/PrometheusError" }))
        }
        ErrorFormat::Alertmanager => ("application/json", json!({ "type": "string" })),
        ErrorFormat::Problem | ErrorFormat::Data | ErrorFormat::Otlp(_) => (
            "application/problem+json",
            json!({ "allOf": [
                { "$ref": "#/components/schemas/Problem" },
                { "properties": { "code": { "enum": words } } },
            ] }),
        ),
    };
    let mut refused = json!({
        "description": words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", "),
        "content": { media: { "schema": schema } },
    });
    if is_otlp(row) {
        refused["content"]["application/json"] = json!({ "schema": shape("{ message: string }") });
        refused["content"]["application/x-protobuf"] = binary();
    }
    if ErrorFormat::of_path(&row.path) == ErrorFormat::Alertmanager {
        let schema = json!({ "type": "string", "enum": words });
        refused["headers"]["x-error-code"] = json!({ "schema": schema, "description": "The code" });
    }
    if codes.iter().any(|code| matches!(code.status().as_u16(), 429 | 503)) {
        refused["headers"]["Retry-After"] = json!({ "schema": { "type": "integer", "minimum": 1 }, "description": "The seconds after which the client may retry" });
    }
    refused
}

/// Returns whether a route ignores its caller. Such a request stores nothing, so it cannot fail
/// with `storage_degraded`.
fn ignores_caller(path: &str) -> bool {
    let below = [
        "/auth/providers",
        "/openapi.json",
        "/api/v1/health",
        "/prometheus/-/healthy",
        "/prometheus/-/ready",
        "/prometheus/health",
        "/influx/ping",
        "/influx/health",
        "/import/native",
        "/export/native",
    ];
    below.iter().any(|end| path.ends_with(end))
}

/// Returns whether errors of a route are a `google.rpc.Status` in the request's encoding. If the
/// request has none of the encodings, they are problems.
fn is_otlp(row: &RouteDoc) -> bool {
    row.path.ends_with("/otlp/v1/metrics")
}

/// Returns the codes of all errors of a route, each once: its own, those of its row, and those of
/// any request.
fn refusals(row: &RouteDoc, described: Option<&Operation>) -> Vec<Code> {
    let mut codes: Vec<Code> = described.map_or(&[][..], |described| described.errors).to_vec();
    codes.extend(row.auth.refusals());
    // The errors of any request: its host, its length, and internal errors.
    codes.extend([
        Code::BadRequest,
        Code::NotAcceptable,
        Code::UriTooLong,
        Code::HostNotAllowed,
        Code::BodyTooLarge,
        Code::Internal,
    ]);
    // Health checks and metrics are exempt from the limits of concurrency.
    if !matches!(row.path.as_str(), "/healthz" | "/readyz" | "/metrics" | "/api/v1/health") {
        codes.push(Code::Busy);
    }
    if !matches!(row.path.as_str(), "/healthz" | "/readyz") {
        codes.push(Code::Starting);
    }
    let takes_samples = !row.path.contains("/alertmanager/");
    if row.auth == Auth::IngestCaller && row.method != "GET" && takes_samples {
        codes.extend([Code::ShuttingDown, Code::EngineUpstream]);
    }
    codes.extend(upstream_refusals(row, &codes));
    if row.path.starts_with("/api/") {
        codes.push(Code::RateLimited);
    }
    if row.path.starts_with("/api/") && !ignores_caller(&row.path) {
        codes.push(Code::StorageDegraded);
    }
    if matches!(
        row.auth,
        Auth::QueryCaller(_)
            | Auth::PictureCaller(_)
            | Auth::PrometheusCaller(_)
            | Auth::IngestCaller
            | Auth::AlertingCaller
    ) {
        codes.extend([Code::TokenNotYetValid, Code::OriginNotAllowed, Code::TokenInvalid]);
    } else if row.auth != Auth::Public && row.auth != Auth::Operator {
        // The error of an unknown credential in the Authorization header.
        codes.push(Code::TokenInvalid);
    }
    if row.method != "GET" {
        codes.push(Code::CsrfRejected);
    }
    if described.is_some_and(|described| described.body != BodySchema::Empty) {
        codes.push(Code::RequestTimeout);
    }
    if matches!(
        described.map(|described| described.body),
        Some(BodySchema::Json(_) | BodySchema::JsonOrForm(_))
    ) {
        codes.extend([Code::InvalidJson, Code::UnsupportedMediaType, Code::ValidationFailed]);
    }
    codes.sort_by_key(|code| Code::ALL.iter().position(|one| one == code));
    codes.dedup();
    codes
}

/// Returns the errors of a read that another server answers. A batch and a stream of points report
/// them in their lines. Formatting an expression and listing rules read no samples, and costs and
/// cardinality are known for local samples only.
fn upstream_refusals(row: &RouteDoc, codes: &[Code]) -> &'static [Code] {
    let reads = matches!(row.auth, Auth::QueryCaller(_) | Auth::PictureCaller(_) | Auth::PrometheusCaller(_));
    let is_in_lines = ["/query/batch", "/query/live", "/format_query", "/data", "/live", "/view"];
    let is_elsewhere = is_in_lines.iter().any(|end| row.path.ends_with(end))
        || row.path.contains("/rules")
        || row.auth == Auth::QueryCaller(Endpoint::Alerts);
    if !reads || !codes.contains(&Code::QueryTimeout) || is_elsewhere {
        return &[];
    }
    match row.path.rsplit('/').next() {
        Some("estimate" | "tsdb" | "export" | "read") => &[Code::UpstreamUnsupported],
        _ => &[Code::UpstreamUnsupported, Code::UpstreamError, Code::UpstreamUnavailable],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(method: &'static str, path: &str, auth: Auth) -> RouteDoc {
        RouteDoc { method, path: path.into(), auth, summary: "S" }
    }

    fn read(rows: &[RouteDoc]) -> Value {
        serde_json::from_str(&text(rows, "http://localhost")).expect("JSON")
    }

    #[test]
    fn a_row_is_converted_to_an_operation() {
        let document = read(&[
            row("GET", "/api/v1/orgs/{slug}/query/range", Auth::QueryCaller(Endpoint::Range)),
            row("POST", "/api/v1/orgs/{slug}/write", Auth::IngestCaller),
        ]);
        let range = &document["paths"]["/api/v1/orgs/{slug}/query/range"]["get"];
        assert_eq!(range["operationId"], "get_orgs_slug_query_range");
        assert_eq!(range["security"], json!([{ "session": [] }, { "embedToken": [] }]));
        assert_eq!(range["parameters"][0]["name"], "slug");
        let names: Vec<&str> = range["parameters"]
            .as_array()
            .expect("a list")
            .iter()
            .filter_map(|p| p["name"].as_str())
            .collect();
        for name in [
            "metric", "match", "fn", "window", "agg", "by", "expr", "start", "end", "step", "limit",
            "timeout",
        ] {
            assert!(names.contains(&name), "{name}");
        }
        let write = &document["paths"]["/api/v1/orgs/{slug}/write"]["post"];
        assert!(write["requestBody"]["content"]["application/x-protobuf"].is_object());
        assert!(write["responses"]["204"].is_object());
    }

    #[test]
    fn the_document_describes_its_own_route() {
        let routes = document(Routes::new(), "http://localhost");
        assert_eq!(
            routes.rows(),
            [RouteDoc { summary: "Get this document", ..row("GET", "/api/v1/openapi.json", Auth::Public) }]
        );
    }

    #[test]
    fn every_reference_names_a_schema() {
        let rows: Vec<RouteDoc> = [
            "metrics",
            "metrics/{name}/labels",
            "labels/{label}/values",
            "query/range",
            "query/expr-instant",
            "prometheus/api/v1/query",
            "prometheus/api/v1/series",
        ]
        .iter()
        .map(|path| row("GET", &format!("/api/v1/orgs/{{slug}}/{path}"), Auth::QueryCaller(Endpoint::Range)))
        .collect();
        let document = read(&rows);
        let text = document.to_string();
        let schemas = document["components"]["schemas"].as_object().expect("an object");
        let mut found = 0;
        for (at, prefix) in text.match_indices("#/components/schemas/") {
            let name = text[at + prefix.len()..].split('"').next().expect("a name");
            assert!(schemas.contains_key(name), "{name}");
            found += 1;
        }
        assert!(found >= rows.len());
        assert!(schemas.values().all(Value::is_object), "every type is a schema");
    }

    #[test]
    fn every_text_in_the_tables_is_a_valid_schema() {
        for text in types::TYPES.iter().map(|(_, text)| *text).chain(operations::texts()) {
            assert_eq!(schema::schema(text).err(), None);
        }
    }
}
