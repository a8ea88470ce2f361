//! The OpenAPI 3.1 document, made from the rows of the route table: a route that is served is documented, and the other
//! way round.

mod parameters;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use super::routes::{Auth, RouteDoc, Routes};

/// Adds `GET /api/v1/openapi.json`, which describes `routes` and itself.
#[must_use]
pub fn document(routes: Routes) -> Routes {
    let own = |body| {
        Routes::new().get("/api/v1/openapi.json", Auth::Public, "This document", serve).with(Served(body))
    };
    let rows: Vec<RouteDoc> = routes.rows().iter().chain(own(Bytes::new()).rows()).cloned().collect();
    let body = describe(&rows).to_string();
    routes.merge(own(Bytes::from(body)))
}

#[derive(Clone, Debug)]
struct Served(Bytes);

async fn serve(State(Served(body)): State<Served>) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}

/// The document for these rows.
pub fn describe(rows: &[RouteDoc]) -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for row in rows {
        let path = paths.entry(row.path.clone()).or_insert_with(|| json!({}));
        if let Value::Object(methods) = path {
            methods.insert(row.method.to_ascii_lowercase(), operation(row));
        }
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "promlet",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Remote write in, PromQL out. Data endpoints take a session cookie or an embed token; the \
                Prometheus mount also takes an API key. A credential in the Authorization header is the only one looked at.",
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "paths": paths,
        "components": { "securitySchemes": security_schemes(), "schemas": merged(schemas(), cost_schemas()) },
    })
}

fn security_schemes() -> Value {
    json!({
        "session": { "type": "apiKey", "in": "cookie", "name": "ms_session", "description": "Set by a login; 30 days from the last request." },
        "embedToken": { "type": "http", "scheme": "bearer", "bearerFormat": "JWT", "description": "Minted by the server or with an API key's secret." },
        "apiKey": { "type": "http", "scheme": "bearer", "description": "msk_…" },
        "apiKeyBasic": { "type": "http", "scheme": "basic", "description": "The API key as password; the user is ignored." },
        "metricsToken": { "type": "http", "scheme": "bearer", "description": "PROMLET_METRICS_TOKEN; not needed from this machine." },
    })
}

/// Any one of these is enough; public routes need none.
fn security(auth: Auth) -> Value {
    let names: &[&str] = match auth {
        Auth::Public => &[],
        Auth::Account(_) | Auth::Member(..) | Auth::OneselfOr(_) | Auth::InstanceAdmin | Auth::Founder => {
            &["session"]
        }
        Auth::Reader(_) => &["session", "embedToken"],
        Auth::MountReader(_) => &["session", "embedToken", "apiKey", "apiKeyBasic"],
        Auth::Machine | Auth::Minter => &["session", "apiKey", "apiKeyBasic"],
        Auth::Operator => &["metricsToken"],
    };
    names.iter().map(|name| json!({ *name: [] })).collect()
}

fn operation(row: &RouteDoc) -> Value {
    let mut operation = json!({
        "operationId": operation_id(row),
        "summary": row.summary,
        "tags": [tag(&row.path)],
        "security": security(row.auth),
        "responses": responses(row),
    });
    let form = row.method == "POST";
    let mut listed: Vec<Value> = path_parameters(&row.path);
    let known = parameters::of(&row.path);
    if form && row.path.contains("/prometheus/") && !known.is_empty() {
        operation["requestBody"] = json!({ "content": { "application/x-www-form-urlencoded": { "schema": parameters::form(&known) } } });
    } else {
        listed.extend(known.iter().map(|parameter| parameter.to_json()));
    }
    if row.auth == Auth::Machine {
        operation["requestBody"] = json!({
            "required": true,
            "description": "A prometheus.WriteRequest in protobuf, as one snappy block",
            "content": { "application/x-protobuf": { "schema": { "type": "string", "format": "binary" } } },
        });
    }
    if takes_json(row) {
        operation["requestBody"] = json!({ "required": true, "content": { "application/json": { "schema": { "type": "object" } } } });
    }
    if !listed.is_empty() {
        operation["parameters"] = Value::Array(listed);
    }
    operation
}

/// `get_orgs_slug_metrics`: stable as long as the path is.
fn operation_id(row: &RouteDoc) -> String {
    let path = row.path.strip_prefix("/api/v1").unwrap_or(&row.path);
    let words = path.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.fold(row.method.to_ascii_lowercase(), |id, word| format!("{id}_{word}"))
}

fn tag(path: &str) -> &'static str {
    let below = |part: &str| path.contains(part);
    match path {
        _ if below("/auth/") => "Authentication",
        _ if path.ends_with("/write") => "Ingestion",
        _ if below("/prometheus") => "Prometheus",
        _ if below("{slug}/quer") || below("{slug}/metrics") || below("{slug}/labels") => {
            "Discover and query"
        }
        _ if below("/orgs") => "Organisations",
        _ => "Operations",
    }
}

/// Changes of accounts and organisations take a JSON object, but for those that need nothing said.
fn takes_json(row: &RouteDoc) -> bool {
    let changes = matches!(row.method, "POST" | "PATCH")
        && row.auth != Auth::Machine
        && !row.path.contains("/prometheus/");
    changes && !["/logout", "/2fa/enroll", "/revoke-tokens"].iter().any(|end| row.path.ends_with(end))
}

fn path_parameters(path: &str) -> Vec<Value> {
    let names = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    names
        .map(|name| {
            let text = match name {
                "slug" => "The organisation",
                "name" => "A metric name, percent-encoded",
                "label" => "A label name, percent-encoded",
                _ => "An id",
            };
            json!({ "name": name, "in": "path", "required": true, "description": text, "schema": { "type": "string" } })
        })
        .collect()
}

fn responses(row: &RouteDoc) -> Value {
    let schema = |name: &str| json!({ "schema": { "$ref": format!("#/components/schemas/{name}") } });
    let refused = match tag(&row.path) {
        "Prometheus" => {
            json!({ "description": "Refused", "content": { "application/json": schema("PrometheusError") } })
        }
        _ => {
            json!({ "description": "Refused", "content": { "application/problem+json": schema("Problem") } })
        }
    };
    if row.auth == Auth::Machine {
        let text = "Every sample is stored and synced";
        return json!({ "204": { "description": text, "headers": { "Durability": { "schema": { "type": "string", "const": "synced" } } } }, "default": refused });
    }
    let good = match parameters::answer(&row.path) {
        Some(name) => json!({ "description": "The answer", "content": { "application/json": schema(name) } }),
        None => json!({ "description": "Done" }),
    };
    let status = if parameters::answer(&row.path).is_some() { "200" } else { "2XX" };
    json!({ status: good, "default": refused })
}

fn merged(mut all: Value, more: Value) -> Value {
    if let (Value::Object(all), Value::Object(more)) = (&mut all, more) {
        all.extend(more);
    }
    all
}

/// What queries cost, and those that run.
fn cost_schemas() -> Value {
    let (text, status) = (json!({ "type": "string" }), json!({ "const": "success" }));
    let texts = json!({ "type": "array", "items": text });
    let cost = object(
        json!({ "series": { "type": "integer" }, "samples": { "type": "integer" }, "memory_bytes": { "type": "integer" } }),
        &["series", "samples", "memory_bytes"],
    );
    json!({
        "PlanNode": object(
            json!({
                "node": text, "estimated": cost.clone(),
                "actual": object(json!({ "series": { "type": "integer" }, "samples": { "type": "integer" }, "elapsed_ms": { "type": "number" } }), &[]),
                "inputs": { "type": "array", "items": { "$ref": "#/components/schemas/PlanNode" } },
            }),
            &["node", "estimated", "inputs"],
        ),
        "Estimate": object(json!({ "status": status, "data": cost, "warnings": texts }), &["status", "data", "warnings"]),
        "Queries": object(
            json!({ "status": status, "data": { "type": "array", "description": "In order of arrival", "items": object(
                json!({
                    "id": text, "query": text, "user": text, "started_at": text, "elapsed_ms": { "type": "number" },
                    "samples": { "type": "integer" }, "memory_bytes": { "type": "integer" },
                    "progress": { "type": "number", "minimum": 0, "maximum": 1 },
                }),
                &["id", "query", "user", "started_at", "elapsed_ms", "samples", "memory_bytes", "progress"],
            ) } }),
            &["status", "data"],
        )
    })
}

fn object(properties: Value, required: &[&str]) -> Value {
    let mut object = json!({ "type": "object", "required": required });
    object["properties"] = properties;
    object
}

fn schemas() -> Value {
    let text = json!({ "type": "string" });
    let texts = json!({ "type": "array", "items": { "type": "string" } });
    let point = json!({ "type": "array", "prefixItems": [{ "type": "number" }, { "type": "string" }], "minItems": 2, "maxItems": 2 });
    let labels = json!({ "type": "object", "additionalProperties": { "type": "string" } });
    let status = json!({ "const": "success" });
    let data = object(
        json!({
            "resultType": { "enum": ["matrix", "vector", "scalar", "string"] },
            "result": { "type": "array", "description": "Series of a matrix or vector; a point of a scalar or string" },
        }),
        &["resultType", "result"],
    );
    let error =
        object(json!({ "field": text, "code": text, "message": text }), &["field", "code", "message"]);
    json!({
        "Problem": object(
            json!({
                "type": text, "title": text, "status": { "type": "integer" }, "code": text, "detail": text,
                "request_id": text, "errorType": text, "error": text, "errors": { "type": "array", "items": error },
            }),
            &["type", "title", "status", "code", "detail"],
        ),
        "PrometheusError": object(json!({ "status": { "const": "error" }, "errorType": text, "error": text }), &["status", "errorType", "error"]),
        "Point": point,
        "Labels": labels,
        "Series": object(
            json!({
                "metric": { "$ref": "#/components/schemas/Labels" },
                "value": { "$ref": "#/components/schemas/Point" },
                "values": { "type": "array", "items": { "$ref": "#/components/schemas/Point" } },
            }),
            &["metric"],
        ),
        "Result": data,
        "Query": object(
            json!({
                "status": status, "data": { "$ref": "#/components/schemas/Result" }, "warnings": texts, "infos": texts,
                "query": { "type": "object", "description": "The PromQL that was evaluated, and when" },
                "explain": { "$ref": "#/components/schemas/PlanNode" },
                "stats": object(json!({ "series": { "type": "integer" }, "samples": { "type": "integer" }, "elapsed_ms": { "type": "number" } }), &[]),
            }),
            &["status", "data", "query", "stats", "warnings"],
        ),
        "PrometheusQuery": object(json!({ "status": status, "data": { "$ref": "#/components/schemas/Result" }, "warnings": texts, "infos": texts }), &["status", "data"]),
        "PrometheusData": object(json!({ "status": status, "data": {}, "warnings": texts }), &["status", "data"]),
        "Rejects": object(
            json!({
                "data": { "type": "array", "description": "Newest first, 100 at most; the same again is counted", "items": object(
                    json!({
                        "at": text, "first_at": text, "count": { "type": "integer" }, "code": text, "reason": text,
                        "series": { "type": ["string", "null"], "description": "null: the whole request" },
                        "sender": object(json!({ "type": { "enum": ["api_key", "user"] }, "id": text, "name": text }), &["type", "id"]),
                    }),
                    &["at", "first_at", "count", "code", "reason", "series", "sender"],
                ) },
                "refused": { "type": "object", "description": "Samples by code, since the start of the process", "additionalProperties": { "type": "integer" } },
            }),
            &["data", "refused"],
        ),
        "Metrics": object(
            json!({
                "status": status,
                "data": { "type": "array", "items": { "oneOf": [text, object(
                    json!({ "name": text, "type": text, "help": text, "unit": text, "series": { "type": "integer" }, "last_seen": { "type": "number" } }),
                    &["name", "type", "help", "unit", "series", "last_seen"],
                )] } },
                "next_cursor": { "type": ["string", "null"] }, "warnings": texts,
            }),
            &["status", "data", "next_cursor"],
        ),
        "MetricLabels": object(
            json!({
                "status": status,
                "data": { "type": "array", "items": object(json!({ "name": text, "values_count": { "type": "integer" }, "values": texts }), &["name", "values_count"]) },
                "warnings": texts,
            }),
            &["status", "data"],
        ),
        "LabelValues": object(json!({ "status": status, "data": texts, "next_cursor": { "type": ["string", "null"] }, "warnings": texts }), &["status", "data", "next_cursor"]),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Endpoint;

    fn row(method: &'static str, path: &str, auth: Auth) -> RouteDoc {
        RouteDoc { method, path: path.into(), auth, summary: "S" }
    }

    #[test]
    fn a_row_becomes_an_operation() {
        let document = describe(&[
            row("GET", "/api/v1/orgs/{slug}/query/range", Auth::Reader(Endpoint::Range)),
            row("POST", "/api/v1/orgs/{slug}/write", Auth::Machine),
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
        let routes = document(Routes::new());
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
        .map(|path| row("GET", &format!("/api/v1/orgs/{{slug}}/{path}"), Auth::Reader(Endpoint::Range)))
        .collect();
        let document = describe(&rows);
        let text = document.to_string();
        let schemas = document["components"]["schemas"].as_object().expect("an object");
        let mut found = 0;
        for (at, prefix) in text.match_indices("#/components/schemas/") {
            let name = text[at + prefix.len()..].split('"').next().expect("a name");
            assert!(schemas.contains_key(name), "{name}");
            found += 1;
        }
        assert!(found >= rows.len());
    }
}
