//! The route table: every route is served and documented.

use axum::body::Body;
use serde_json::Value;

use crate::test_server::{TestServer, Who, ask, is_test_route};

#[tokio::test]
async fn every_route_is_served_and_documented() {
    let server = TestServer::new();
    let document = server.get("/api/v1/openapi.json", &Who::Nobody).await;
    assert_eq!((document.status.as_u16(), document.header("content-type")), (200, "application/json"));
    let document = document.value();
    assert_eq!(document["openapi"], "3.1.0");
    let rows: Vec<_> = server.rows.iter().filter(|row| !is_test_route(&row.path)).collect();
    for row in &rows {
        let operation = &document["paths"][&row.path][row.method.to_ascii_lowercase()];
        assert_eq!(operation["summary"], row.summary, "{} {}", row.method, row.path);
        let path = row.path.replace("{slug}", "acme").replace(['{', '}'], "");
        let request = ask(row.method, &path, &Who::Nobody).body(Body::empty()).expect("a request");
        let reply = server.send(request).await;
        let code = if reply.body.starts_with('{') { reply.value()["code"].clone() } else { Value::Null };
        assert!(
            reply.status != 405 && code != "not_found",
            "{} {}: {} {}",
            row.method,
            row.path,
            reply.status,
            reply.body
        );
        server.pass(std::time::Duration::from_millis(20));
    }
    let documented = document["paths"]
        .as_object()
        .expect("paths")
        .values()
        .map(|methods| methods.as_object().map_or(0, |m| m.len()));
    assert_eq!(documented.sum::<usize>(), rows.len());
}

#[tokio::test]
async fn operation_ids_are_unique_and_all_path_parameters_are_documented() {
    let server = TestServer::new();
    let document = server.get("/api/v1/openapi.json", &Who::Nobody).await.value();
    let operations = document["paths"].as_object().expect("paths").iter();
    let mut ids: Vec<&str> = Vec::new();
    for (path, methods) in operations {
        for (method, operation) in methods.as_object().expect("methods") {
            ids.push(operation["operationId"].as_str().expect("an id"));
            let names: Vec<&str> = operation["parameters"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|p: &Value| p["name"].as_str())
                .collect();
            let in_path = path.split('/').filter(|part| part.starts_with('{')).count();
            assert!(names.len() >= in_path, "{method} {path}: {names:?}");
        }
    }
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), count, "operation ids are unique");
    let range = &document["paths"]["/api/v1/orgs/{slug}/query/range"]["get"];
    assert_eq!(range["parameters"].as_array().expect("a list").len(), 19);
}
