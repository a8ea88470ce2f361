//! The OpenAPI document (docs/specification.md C8): it contains every route. `contract.rs` checks
//! every response of every test here against the document, and `whole_document.rs` that all
//! responses occur.

use std::collections::BTreeSet;

use promlet::api::ApiOptions;
use promlet::api::openapi::is_described;
use serde_json::Value;

use crate::test_server::{TestServer, TestServerOptions, Who, is_test_route};

#[tokio::test]
async fn every_route_is_in_the_document_and_described() {
    let server = TestServer::new();
    let document = server.get("/api/v1/openapi.json", &Who::Nobody).await.value();
    assert_eq!(document["openapi"], "3.1.0");
    assert_eq!(document["servers"][0]["url"], "http://127.0.0.1:8095");
    let mut undescribed = Vec::new();
    for row in server.rows.iter().filter(|row| !is_test_route(&row.path)) {
        let operation = &document["paths"][&row.path][row.method.to_ascii_lowercase()];
        assert_eq!(operation["summary"], row.summary, "{} {}", row.method, row.path);
        if !is_described(row) {
            undescribed.push(format!("{} {}", row.method, row.path));
        }
    }
    assert!(undescribed.is_empty(), "api::openapi::operations says nothing of: {undescribed:#?}");
    let documented: usize = document["paths"]
        .as_object()
        .expect("paths")
        .values()
        .map(|path| path.as_object().map_or(0, serde_json::Map::len))
        .sum();
    assert_eq!(documented, server.rows.iter().filter(|row| !is_test_route(&row.path)).count());
}

#[tokio::test]
async fn operation_ids_are_unique_and_references_resolve() {
    let server = TestServer::new();
    let document = server.get("/api/v1/openapi.json", &Who::Nobody).await.value();
    let mut names = BTreeSet::new();
    for operation in document["paths"]
        .as_object()
        .expect("paths")
        .values()
        .flat_map(Value::as_object)
        .flat_map(serde_json::Map::values)
    {
        let name = operation["operationId"].as_str().expect("a name");
        assert!(names.insert(name.to_owned()), "{name} twice");
        assert!(operation["responses"].as_object().is_some_and(|all| all.len() > 5), "{name}");
    }
    let text = document.to_string();
    for rest in text.split("\"#/components/schemas/").skip(1) {
        let name = rest.split('"').next().expect("a name");
        assert!(document["components"]["schemas"][name].is_object(), "{name}");
    }
    for scheme in ["session", "embedToken", "apiKey", "apiKeyBasic", "metricsToken"] {
        assert!(document["components"]["securitySchemes"][scheme].is_object(), "{scheme}");
    }
}

#[tokio::test]
async fn docs_off_means_no_document() {
    let mut options = ApiOptions::new("http://127.0.0.1:8095");
    options.docs = false;
    let server = TestServer::build(TestServerOptions { options, ..TestServerOptions::default() });
    server.get("/api/v1/openapi.json", &Who::Nobody).await.is(404, "not_found");
}
