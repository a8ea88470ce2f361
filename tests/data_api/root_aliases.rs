//! Paths without an organisation, through the router (docs/specification.md C7, root aliases).

use axum::body::Body;
use serde_json::json;

use crate::test_server::{Reply, Who, ask};
use crate::wire::{DataFixture, NOW, encode, snappy};

const UP: &[(&str, &str)] = &[("__name__", "up"), ("job", "a")];

async fn send(fixture: &DataFixture, method: &str, path: &str, who: &Who, body: impl Into<Body>) -> Reply {
    fixture.server.send(ask(method, path, who).body(body.into()).expect("a request")).await
}

async fn remote_write(fixture: &DataFixture, path: &str, who: &Who) -> Reply {
    let body = snappy(&encode(&[(UP, &[(NOW * 1_000, 1.0)])]));
    let request = ask("POST", path, who)
        .header("content-type", "application/x-protobuf")
        .header("content-encoding", "snappy")
        .body(Body::from(body));
    fixture.server.send(request.expect("a request")).await
}

async fn reader(fixture: &DataFixture) -> Who {
    Who::Bearer(fixture.server.key(&fixture.cabinet, json!({ "scopes": ["read"] })).await.1)
}

#[tokio::test]
async fn a_key_names_the_organisation_of_paths_without_one() {
    let fixture = DataFixture::new().await;
    for path in ["/api/v1/write", "/api/v1/push", "/prometheus/api/v1/write"] {
        assert_eq!(remote_write(&fixture, path, &fixture.agent).await.status, 204, "{path}");
    }
    let at_ms = NOW * 1_000;
    let line = json!({ "metric": { "__name__": "lines" }, "values": [3], "timestamps": [at_ms] }).to_string();
    let point = json!({ "timeUnixNano": format!("{NOW}000000000"), "asDouble": 5.0 });
    let otlp = json!({ "resourceMetrics": [{ "scopeMetrics": [{ "metrics": [
        { "name": "otlp", "gauge": { "dataPoints": [point] } },
    ] }] }] });
    for (path, body, status) in [
        ("/api/v1/import", line, 204),
        ("/api/v1/import/prometheus", "text 4\n".to_owned(), 204),
        ("/write?precision=s", format!("influx value=2 {NOW}"), 204),
        ("/api/v2/write?precision=s", format!("influx2 value=2 {NOW}"), 204),
    ] {
        let reply = send(&fixture, "POST", path, &fixture.agent, body).await;
        assert_eq!(reply.status, status, "{path}: {}", reply.body);
    }
    for path in ["/v1/metrics", "/otlp/v1/metrics", "/api/v1/otlp/v1/metrics"] {
        let request = ask("POST", path, &fixture.agent)
            .header("content-type", "application/json")
            .body(Body::from(otlp.to_string()));
        let reply = fixture.server.send(request.expect("a request")).await;
        assert_eq!(reply.status, 200, "{path}: {}", reply.body);
    }
    let who = reader(&fixture).await;
    let count = format!("/api/v1/query?query=count(%7B__name__!%3D%22%22%7D)&time={NOW}");
    let reply = fixture.server.get(&count, &who).await;
    assert_eq!(reply.value()["data"]["result"][0]["value"][1], "6", "{}", reply.body);
    for (path, status) in [
        ("/api/v1/labels", 200),
        ("/api/v1/label/job/values", 200),
        ("/api/v1/series?match[]=up", 200),
        ("/api/v1/status/buildinfo", 200),
        ("/api/v1/metadata", 200),
        ("/federate?match[]=up", 200),
        ("/-/healthy", 200),
        ("/ping", 204),
        ("/health", 200),
    ] {
        let reply = fixture.server.get(path, &who).await;
        assert_eq!(reply.status, status, "{path}: {}", reply.body);
    }
}

/// The restrictions of a token hold, because the request takes the path of its organisation.
#[tokio::test]
async fn restrictions_of_tokens_hold_on_paths_without_an_organisation() {
    let fixture = DataFixture::with_shop().await;
    let token = fixture.embed(json!({ "match": ["job=\"api\""] })).await;
    let query = format!("/api/v1/query?query=count(up)&time={NOW}");
    let reply = fixture.server.get(&query, &token).await;
    assert_eq!(reply.value()["data"]["result"][0]["value"][1], "1", "{}", reply.body);
    let federated = fixture.server.get("/federate?match[]=up", &token).await;
    assert!(
        federated.body.contains("job=\"api\"") && !federated.body.contains("job=\"web\""),
        "{}",
        federated.body
    );
    let values = fixture.server.get("/api/v1/label/job/values", &token).await;
    assert_eq!(values.value()["data"], json!(["api"]));
    let range_only = fixture.embed(json!({ "endpoints": ["range"] })).await;
    for path in [query.as_str(), "/federate?match[]=up", "/api/v1/labels", "/api/v1/series?match[]=up"] {
        assert_eq!(fixture.server.get(path, &range_only).await.status, 403, "{path}");
    }
    let listed = fixture.embed(json!({ "exprs": ["count(up)"] })).await;
    assert_eq!(fixture.server.get(&query, &listed).await.status, 200);
    assert_eq!(fixture.server.get("/federate?match[]=up", &listed).await.status, 403);
    assert_eq!(remote_write(&fixture, "/api/v1/write", &token).await.status, 403);
}

#[tokio::test]
async fn paths_without_an_organisation_need_a_credential_that_names_one() {
    let fixture = DataFixture::with_shop().await;
    let nobody = fixture.server.get("/api/v1/query?query=up", &Who::Nobody).await;
    assert_eq!(nobody.status, 401);
    assert!(nobody.text("error").contains("Authorization: Bearer"), "{}", nobody.body);
    let wrong = fixture.server.get("/api/v1/query?query=up", &Who::Bearer("msk_wrong".into())).await;
    assert_eq!(wrong.status, 401, "{}", wrong.body);
    let session = fixture.server.get("/api/v1/query?query=up", &fixture.cabinet).await;
    assert_eq!(session.status, 404);
    assert!(session.text("error").contains("/api/v1/orgs/<slug>"), "{}", session.body);
    let unknown = fixture.server.get("/api/v1/queries", &fixture.cabinet).await;
    unknown.is(404, "not_found");
    assert!(unknown.text("detail").contains("/api/v1/orgs/<slug>/prometheus"), "{}", unknown.body);
}

/// Programs may send a key as a password; a browser must not ask people for one.
#[tokio::test]
async fn a_program_is_offered_basic_and_a_browser_is_not() {
    let fixture = DataFixture::new().await;
    let offers = async |path: &str, headers: &[(&str, &str)]| {
        let request = ask("POST", path, &Who::Nobody);
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let reply = fixture.server.send(request.body(Body::empty()).expect("a request")).await;
        assert_eq!(reply.status, 401, "{path}");
        let offered: Vec<_> = reply.headers.get_all("www-authenticate").iter().cloned().collect();
        assert!(offered[0].as_bytes().starts_with(b"Bearer"), "{offered:?}");
        offered.iter().any(|one| one.as_bytes().starts_with(b"Basic"))
    };
    let write = "/api/v1/orgs/acme/write";
    for program in [&[][..], &[("user-agent", "collectd/5.12")], &[("user-agent", "curl/8.1")]] {
        assert!(offers(write, program).await, "{program:?}");
        assert!(offers("/api/v1/orgs/acme/prometheus/api/v1/query", program).await, "{program:?}");
    }
    for browser in [
        ("user-agent", "Mozilla/5.0 (X11; Linux x86_64)"),
        ("sec-fetch-mode", "cors"),
        ("cookie", "ms_session=x"),
    ] {
        assert!(!offers(write, &[browser]).await, "{browser:?}");
    }
    assert!(!offers("/api/v1/auth/password/change", &[]).await, "no key opens this path");
}

/// An alias has the limit of the path that it stands for.
#[tokio::test]
async fn bodies_on_paths_without_an_organisation_may_be_as_large_as_below_one() {
    let fixture = DataFixture::new().await;
    for path in [
        "/api/v1/write",
        "/api/v1/push",
        "/api/v1/import",
        "/api/v1/import/prometheus",
        "/api/v1/import/csv",
        "/api/v1/import/graphite",
        "/api/v1/otlp/v1/metrics",
        "/v1/metrics",
        "/write",
        "/api/v2/write",
        "/metrics/job/a",
    ] {
        for (bytes, is_refused) in [(8 << 20, false), ((8 << 20) + 1, true)] {
            let media = if path.ends_with("v1/metrics") { "application/json" } else { "text/plain" };
            let media = if path.ends_with("v1/write") || path.ends_with("push") {
                "application/x-protobuf"
            } else {
                media
            };
            let request = ask("POST", path, &fixture.agent).header("content-type", media);
            let body = Body::from(vec![b'\n'; bytes]);
            let reply = fixture.server.send(request.body(body).expect("a request")).await;
            assert_eq!(reply.status == 413, is_refused, "{path} {bytes}: {}", reply.body);
            fixture.server.pass(std::time::Duration::from_millis(50));
        }
    }
}
