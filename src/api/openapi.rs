//! The OpenAPI 3.1 document, made from the rows of the route table: a route that is served is documented, and the other
//! way round.
//!
//! Who may call a route and how it refuses them follows from its row ([`access`](super::access)); what it takes and
//! answers stands in [`operations`], in the small language of [`schema`]. The tests of the API hold every answer they get
//! against this document.

mod operations;
mod parameters;
pub mod schema;
mod types;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::error::{Code, ErrorFormat};
use super::routes::{Auth, RouteDoc, Routes};
use crate::identity::Endpoint;
use operations::{Operation, Takes};

/// Adds `GET /api/v1/openapi.json`, which describes `routes` and itself; `server` is where they are reached.
#[must_use]
pub fn document(routes: Routes, server: &str) -> Routes {
    let own = |body| {
        Routes::new().get("/api/v1/openapi.json", Auth::Public, "This document", serve).with(Served(body))
    };
    let rows: Vec<RouteDoc> = routes.rows().iter().chain(own(Bytes::new()).rows()).cloned().collect();
    routes.merge(own(Bytes::from(text(&rows, server))))
}

#[derive(Clone, Debug)]
struct Served(Bytes);

async fn serve(State(Served(body)): State<Served>) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}

const ABOUT: &str = "Remote write in, PromQL out. A credential in the Authorization header is the only one looked at. Errors are \
    RFC 9457 problems with a stable `code`; the Prometheus mount answers Prometheus' own errors. `HEAD` works wherever \
    `GET` does. Requests with a header block of more than 64 KiB are 431. Paths below /auth are an alias of /api/v1/auth.";

/// The document for these rows, which are reached at `server`, as JSON.
///
/// Written path by path: as one value it takes 14 MB while it is made, and an idle process would keep them.
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

/// Writes the members of an object, each as soon as it is made.
fn members<'n>(out: &mut String, all: impl IntoIterator<Item = (&'n str, Value)>) {
    for (place, (name, value)) in all.into_iter().enumerate() {
        if place > 0 {
            out.push(',');
        }
        // Writing into a String does not fail.
        let _ = write!(out, "{}:{value}", Value::from(name));
    }
}

/// Whether anybody wrote down what a route takes and answers.
pub fn is_described(row: &RouteDoc) -> bool {
    operations::of(row.method, &row.path).is_some()
}

/// A text of ours as a schema. One that cannot be read allows everything, and a test does not let it pass.
fn shape(text: &str) -> Value {
    schema::schema(text).unwrap_or(Value::Bool(true))
}

fn security_schemes() -> Value {
    json!({
        "session": { "type": "apiKey", "in": "cookie", "name": "ms_session", "description": "Set by a login; 30 days from the last request." },
        "embedToken": { "type": "http", "scheme": "bearer", "bearerFormat": "JWT", "description": "Minted by the server or with an API key's secret." },
        "apiKey": { "type": "http", "scheme": "bearer", "description": "msk_…" },
        "apiKeyBasic": { "type": "http", "scheme": "basic", "description": "The API key as password; a user that begins ak_ must be the key's id." },
        "metricsToken": { "type": "http", "scheme": "bearer", "description": "PROMLET_METRICS_TOKEN; not needed from this machine." },
    })
}

/// Any one of these is enough; public routes need none.
fn security(auth: Auth) -> Value {
    let names: &[&str] = match auth {
        Auth::Public => &[],
        Auth::Account(_) | Auth::Member(..) | Auth::OneselfOr(_) | Auth::InstanceAdmin(_) | Auth::Founder => {
            &["session"]
        }
        Auth::QueryCaller(_) => &["session", "embedToken"],
        Auth::PrometheusCaller(_) => &["session", "embedToken", "apiKey", "apiKeyBasic"],
        Auth::IngestCaller | Auth::MintCaller => &["session", "apiKey", "apiKeyBasic"],
        Auth::Operator => return json!([{ "metricsToken": [] }, {}]),
    };
    names.iter().map(|name| json!({ *name: [] })).collect()
}

/// An endpoint as a token's `ms.endpoints` names it.
const fn word(endpoint: Endpoint) -> &'static str {
    match endpoint {
        Endpoint::Metrics => "metrics",
        Endpoint::Labels => "labels",
        Endpoint::Range => "range",
        Endpoint::Instant => "instant",
        Endpoint::Expr => "expr",
    }
}

/// Who may call, in words.
fn callers(auth: Auth) -> String {
    let fresh =
        |login| if login == super::routes::Login::Fresh { ", signed in within 15 minutes" } else { "" };
    match auth {
        Auth::Public => "Anyone.".into(),
        Auth::Account(login) => format!("Whoever is signed in{}.", fresh(login)),
        Auth::Member(role, login) => {
            format!("A session with the role {} or more{}.", role.as_str(), fresh(login))
        }
        Auth::OneselfOr(role) => {
            format!("The member themselves, or a session with the role {} or more.", role.as_str())
        }
        Auth::InstanceAdmin(login) => format!("An administrator of the server{}.", fresh(login)),
        Auth::Founder => {
            "An administrator of the server; anyone signed in with PROMLET_ORG_CREATE=any.".into()
        }
        Auth::QueryCaller(endpoint) => format!(
            "A session with the role viewer or more, or an embed token that grants `{}`.",
            word(endpoint)
        ),
        Auth::PrometheusCaller(Some(endpoint)) => {
            format!(
                "A session with the role viewer or more, an API key with the scope read, or an embed token that grants `{}`.",
                word(endpoint)
            )
        }
        Auth::PrometheusCaller(None) => {
            "A session with the role viewer or more, an API key with the scope read, or an embed token."
                .into()
        }
        Auth::IngestCaller => {
            "An API key with the scope ingest, or a session with the role editor or more.".into()
        }
        Auth::MintCaller => {
            "An API key with the scope embed, or a session with the role editor or more.".into()
        }
        Auth::Operator => "This machine, or whoever has the metrics token.".into(),
    }
}

fn operation(row: &RouteDoc) -> Value {
    let known = operations::of(row.method, &row.path);
    let mut operation = json!({
        "operationId": operation_id(row),
        "summary": row.summary,
        "description": callers(row.auth),
        "tags": [tag(&row.path)],
        "security": security(row.auth),
        "responses": responses(row, known.as_ref()),
    });
    let mut listed: Vec<Value> = path_parameters(&row.path);
    if let Some(known) = &known {
        let all = known.query.concat();
        if known.takes == Takes::Form {
            operation["requestBody"] = json!({ "content": { "application/x-www-form-urlencoded": { "schema": parameters::form(&all) } } });
        } else {
            listed.extend(all.iter().map(|parameter| parameter.to_json()));
        }
        if let Some(body) = body(known.takes) {
            operation["requestBody"] = body;
        }
    }
    if !listed.is_empty() {
        operation["parameters"] = Value::Array(listed);
    }
    operation
}

fn body(takes: Takes) -> Option<Value> {
    match takes {
        Takes::Nothing | Takes::Form => None,
        Takes::Json(text) => {
            Some(json!({ "required": true, "content": { "application/json": { "schema": shape(text) } } }))
        }
        Takes::JsonOrForm(text) => Some(json!({ "required": true, "content": {
            "application/json": { "schema": shape(text) },
            "application/x-www-form-urlencoded": { "schema": shape(text) },
        } })),
        Takes::Bytes { media, what } => Some(json!({
            "required": true, "description": what,
            "content": media.iter().map(|media| ((*media).to_owned(), binary())).collect::<serde_json::Map<_, _>>(),
        })),
    }
}

/// Bytes of some media type.
fn binary() -> Value {
    json!({ "schema": { "type": "string", "format": "binary" } })
}

/// `get_orgs_slug_metrics`: stable as long as the path is.
fn operation_id(row: &RouteDoc) -> String {
    let path = row.path.strip_prefix("/api/v1").unwrap_or(&row.path);
    let words = path.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.fold(row.method.to_ascii_lowercase(), |id, word| format!("{id}_{word}"))
}

const TAGS: [(&str, &str); 6] = [
    ("Authentication", "Signing in and out, and the account"),
    ("Organisations", "Organisations, members, API keys, embed tokens"),
    ("Discover and query", "What there is, and questions about it"),
    ("Prometheus", "Prometheus' own API, one mount for each organisation"),
    ("Ingestion", "Samples in"),
    ("Operations", "Health, figures, administration"),
];

fn tag(path: &str) -> &'static str {
    let below = |part: &str| path.contains(part);
    match path {
        _ if path.starts_with("/api/v1/admin/") => "Operations",
        _ if below("/auth/") => "Authentication",
        _ if path.ends_with("/write") || below("/import") || below("/otlp/") || below("/ingest/") => {
            "Ingestion"
        }
        _ if below("/prometheus") => "Prometheus",
        _ if below("{slug}/quer") || below("{slug}/metrics") || below("{slug}/labels") => {
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
            let text = match name {
                "slug" => "The organisation",
                "name" => "A metric name, percent-encoded",
                "label" => "A label name, percent-encoded",
                "provider" => "google, github or oidc",
                _ => "An id",
            };
            json!({ "name": name, "in": "path", "required": true, "description": text, "schema": { "type": "string", "minLength": 1 } })
        })
        .collect()
}

fn responses(row: &RouteDoc, known: Option<&Operation>) -> Value {
    let mut responses: BTreeMap<String, Value> = BTreeMap::new();
    match known {
        None => {
            responses.insert("2XX".into(), json!({ "description": "Done" }));
        }
        Some(known) => {
            for (status, text, what) in known.answers {
                let mut response = json!({ "description": what });
                match *text {
                    "" => {}
                    "text" => {
                        response["content"] = json!({ "text/plain": { "schema": { "type": "string" } } })
                    }
                    "protobuf" => {
                        response["content"] = json!({
                            "application/x-protobuf": binary(),
                            "application/json": { "schema": shape("map<any>") },
                        })
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
    for code in refusals(row, known) {
        by_status.entry(code.status().as_u16()).or_default().push(code);
    }
    for (status, codes) in by_status {
        let mut refused = refused(row, &codes);
        if matches!(known.map(|known| known.takes), Some(Takes::JsonOrForm(_))) {
            refused["content"]["text/html"] = json!({ "schema": { "type": "string" } });
        }
        let name = status.to_string();
        match responses.get_mut(&name) {
            // `/readyz` answers 503 of its own, too.
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
    if codes.iter().any(|code| matches!(code.status().as_u16(), 429 | 503)) {
        refused["headers"] = json!({ "Retry-After": { "schema": { "type": "integer", "minimum": 1 }, "description": "Seconds" } });
    }
    refused
}

/// Whether nobody looks at who asks there, so that nothing of theirs is stored either.
fn answers_all_alike(path: &str) -> bool {
    let below = [
        "/auth/providers",
        "/openapi.json",
        "/api/v1/health",
        "/prometheus/-/healthy",
        "/prometheus/-/ready",
    ];
    below.iter().any(|end| path.ends_with(end))
}

/// Whose refusals are a `google.rpc.Status` in the request's encoding, and problems where it has none.
fn is_otlp(row: &RouteDoc) -> bool {
    row.path.ends_with("/otlp/v1/metrics")
}

/// Every code a route can refuse with, each once: its own, those of its row, and those that any request may meet.
fn refusals(row: &RouteDoc, known: Option<&Operation>) -> Vec<Code> {
    let mut codes: Vec<Code> = known.map_or(&[][..], |known| known.refuses).to_vec();
    codes.extend(row.auth.refusals());
    // Of every request: its host, its length, and what can be wrong with us.
    codes.extend([
        Code::BadRequest,
        Code::NotAcceptable,
        Code::UriTooLong,
        Code::HostNotAllowed,
        Code::BodyTooLarge,
        Code::Internal,
    ]);
    // Who asks how it is finds a place, and is answered before there is anything else.
    if !matches!(row.path.as_str(), "/healthz" | "/readyz" | "/metrics" | "/api/v1/health") {
        codes.push(Code::Busy);
    }
    if !matches!(row.path.as_str(), "/healthz" | "/readyz") {
        codes.push(Code::Starting);
    }
    if row.auth == Auth::IngestCaller && row.method != "GET" {
        codes.push(Code::ShuttingDown);
    }
    if row.path.starts_with("/api/") {
        codes.push(Code::RateLimited);
    }
    if row.path.starts_with("/api/") && !answers_all_alike(&row.path) {
        codes.push(Code::StorageDegraded);
    }
    if matches!(row.auth, Auth::QueryCaller(_) | Auth::PrometheusCaller(_) | Auth::IngestCaller) {
        codes.extend([Code::TokenNotYetValid, Code::OriginNotAllowed, Code::TokenInvalid]);
    } else if row.auth != Auth::Public && row.auth != Auth::Operator {
        // An Authorization header that holds nothing we know.
        codes.push(Code::TokenInvalid);
    }
    if row.method != "GET" {
        codes.push(Code::CsrfRejected);
    }
    if known.is_some_and(|known| known.takes != Takes::Nothing) {
        codes.push(Code::RequestTimeout);
    }
    if matches!(known.map(|known| known.takes), Some(Takes::Json(_) | Takes::JsonOrForm(_))) {
        codes.extend([Code::InvalidJson, Code::UnsupportedMediaType, Code::ValidationFailed]);
    }
    codes.sort_by_key(|code| Code::ALL.iter().position(|one| one == code));
    codes.dedup();
    codes
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
    fn a_row_becomes_an_operation() {
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
            [RouteDoc { summary: "This document", ..row("GET", "/api/v1/openapi.json", Auth::Public) }]
        );
    }

    #[test]
    fn every_reference_leads_somewhere() {
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
    fn every_text_in_the_tables_is_a_schema() {
        for text in types::TYPES.iter().map(|(_, text)| *text).chain(operations::texts()) {
            assert_eq!(schema::schema(text).err(), None);
        }
    }
}
