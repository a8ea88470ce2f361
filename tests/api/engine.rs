//! The engine of an organisation: its routes and their refusals.

use axum::body::Body;
use promlet::model::EgressRules;
use promlet::outbound::Egress;
use serde_json::json;

use crate::fake_upstream::FakeUpstream;
use crate::test_server::{TestServer, TestServerOptions, ask};

const ENGINE: &str = "/api/v1/orgs/acme/engine";

/// Allows the addresses of this machine.
pub(crate) fn loopback() -> Egress {
    Egress::new(EgressRules::parse(["127.0.0.0/8"]).expect("a network"), &[])
}

#[tokio::test]
async fn an_engine_is_probed_stored_versioned_and_removed() {
    let mut plan = TestServerOptions::default();
    plan.options.egress = loopback();
    let server = TestServer::build(plan);
    let owner = server.log_in().await;
    let one =
        r#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"1"]}]}}"#;
    let well = FakeUpstream::answering("200 OK", "application/json", one);
    let wrong = FakeUpstream::answering("401 Unauthorized", "text/plain", "no");
    let engine = |fake: &FakeUpstream| json!({ "engine": "upstream", "url": fake.url() });
    assert_eq!(server.get(ENGINE, &owner).await.value(), json!({ "engine": "local" }));
    let probe = format!("{ENGINE}/probe");
    server.post(&probe, &owner, json!({})).await.is(422, "validation_failed");
    let refused = server.post(&probe, &owner, engine(&wrong)).await.value();
    assert_eq!((&refused["ok"], &refused["code"]), (&json!(false), &json!("target_refused")));
    let reply = server.json("PUT", ENGINE, &owner, engine(&wrong)).await;
    reply.is(422, "probe_failed");
    assert_eq!(reply.value()["target_error"], "target_refused");
    assert_eq!(server.get(ENGINE, &owner).await.value(), json!({ "engine": "local" }));

    let reply = server.json("PUT", ENGINE, &owner, engine(&well)).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    let first = reply.header("etag").to_owned();
    let probed = server.post(&probe, &owner, json!({})).await.value();
    assert_eq!(probed["ok"], json!(true));
    let put = async |query: &str, tag: &str| {
        let request = ask("PUT", &format!("{ENGINE}{query}"), &owner)
            .header("content-type", "application/json")
            .header("if-match", tag);
        server.send(request.body(Body::from(engine(&well).to_string())).expect("a request")).await
    };
    put("", "\"7\"").await.is(412, "version_conflict");
    let second = put("", &first).await.header("etag").to_owned();
    assert_ne!(first, second);
    put("?probe=perhaps", "*").await.is(400, "invalid_parameter");
    put("?probe=1&probe=1", "*").await.is(400, "duplicate_parameter");
    for (body, field) in [
        (json!({ "engine": "split", "url": "http://a" }), "split_after_s"),
        (json!({ "engine": "upstream" }), "url"),
        (json!({ "engine": "upstream", "url": "http://u:p@a" }), "url"),
        (json!({ "engine": "upstream", "url": "http://a", "auth": { "type": "magic" } }), "auth.type"),
        (json!({ "engine": "upstream", "url": "http://a", "auth": { "type": "bearer" } }), "auth.token"),
        (
            json!({ "engine": "upstream", "url": "http://a", "tenant": { "type": "path", "value": "7" } }),
            "url",
        ),
        (json!({ "engine": "upstream", "url": "http://a", "headers": { "host": "b" } }), "headers"),
        (
            json!({ "engine": "upstream", "url": "http://a", "tls": { "client_cert_pem": "x" } }),
            "tls.client_key_pem",
        ),
    ] {
        let reply = server.json("PUT", ENGINE, &owner, body.clone()).await;
        reply.is(422, "validation_failed");
        assert_eq!(reply.value()["errors"][0]["field"], field, "{body}");
    }
    let remove = async |tag: &str| {
        let request = ask("DELETE", ENGINE, &owner).header("if-match", tag);
        server.send(request.body(Body::empty()).expect("a request")).await
    };
    remove(&first).await.is(412, "version_conflict");
    assert_eq!(remove(&second).await.status, 204);
    assert_eq!(server.get(ENGINE, &owner).await.value(), json!({ "engine": "local" }));
    // An engine that is set anew has none of the versions of the one before it.
    assert_eq!(put("", "\"0\"").await.status, 200);
    for old in [&first, &second] {
        put("", old).await.is(412, "version_conflict");
    }
}

#[tokio::test]
async fn samples_on_another_server_are_not_deleted_here() {
    let mut plan = TestServerOptions::default();
    plan.options.egress = loopback();
    let server = TestServer::build(plan);
    let owner = server.log_in().await;
    let put = format!("{ENGINE}?probe=false");
    let set = async |engine| assert_eq!(server.json("PUT", &put, &owner, engine).await.status, 200);
    let delete = async |range: &str| {
        let path = "/api/v1/orgs/acme/prometheus/api/v1/admin/tsdb/delete_series?match[]=m";
        server
            .send(ask("POST", &format!("{path}{range}"), &owner).body(Body::empty()).expect("a request"))
            .await
    };
    let now = server.clock.now().as_s();
    set(json!({ "engine": "upstream", "url": "http://127.0.0.1:1" })).await;
    assert!(delete("").await.refuses(promlet::api::error::Code::EngineUpstream));
    set(json!({ "engine": "split", "url": "http://127.0.0.1:1", "split_after_s": 600 })).await;
    assert!(delete("").await.refuses(promlet::api::error::Code::EngineUpstream));
    let older = format!("&start={}", now - 700);
    assert!(delete(&older).await.refuses(promlet::api::error::Code::EngineUpstream));
    assert_eq!(delete(&format!("&start={}", now - 500)).await.status, 204);
}
