//! The engine of an organisation: its routes and their refusals.

use axum::body::Body;
use promlet::entropy::Entropy;
use promlet::identity::{MoveRow, MoveStateError, MoveStep};
use promlet::model::{EgressRules, Target, TargetUrl};
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
    // An engine that is set again has none of the versions of the one before it.
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

#[tokio::test]
async fn a_moved_organisation_keeps_its_engine_and_does_not_forward_to_its_target() {
    let mut plan = TestServerOptions { stored: true, ..TestServerOptions::default() };
    plan.options.egress = loopback();
    let server = TestServer::build(plan);
    let owner = server.log_in().await;
    let org = server.identity.org_by_slug("acme").expect("reads").expect("exists").id;
    let (now, mut rng) = (server.clock.now(), Entropy::seeded(7));
    let target = |url: &str| Target::new(TargetUrl::parse(url).expect("a URL"));
    let forward = |id: &str| format!("/api/v1/orgs/acme/forward{id}");
    let body = json!({ "name": "there", "target": { "url": "http://127.0.0.1:9/write" } });
    assert_eq!(server.post(&forward(""), &owner, body.clone()).await.status, 201);
    let (write, read) = (target("http://127.0.0.1:9/api/v1/push"), target("http://127.0.0.1:9"));
    let mut begin = || server.identity.begin_move(org, (&write, b"{}"), false, now, &mut rng);
    let refused = begin().expect_err("forwards there");
    assert!(matches!(refused, MoveStateError::Forwards(name) if name == "there"));
    let mut disabled = body.clone();
    disabled["enabled"] = json!(false);
    assert_eq!(server.json("PUT", &forward("/1"), &owner, disabled).await.status, 200);
    // Queries of older samples are answered elsewhere, so a move of the local ones would lose them.
    let engine = json!({ "engine": "split", "split_after_s": 86_400, "url": "http://127.0.0.1:9" });
    let unprobed = format!("{ENGINE}?probe=false");
    assert_eq!(server.json("PUT", &unprobed, &owner, engine.clone()).await.status, 200);
    assert!(matches!(begin(), Err(MoveStateError::OtherEngine)));
    assert_eq!(server.delete(ENGINE, &owner).await.status, 204);
    let row = begin().expect("begins");
    for is_switched in [false, true] {
        server.json("PUT", &unprobed, &owner, engine.clone()).await.is(409, "conflict");
        server.delete(ENGINE, &owner).await.is(409, "conflict");
        server.json("PUT", &forward("/1"), &owner, body.clone()).await.is(409, "conflict");
        let again = json!({ "name": "again", "target": { "url": "http://127.0.0.1:9/write" } });
        server.post(&forward(""), &owner, again).await.is(409, "conflict");
        if !is_switched {
            let step = MoveStep::Switched { next: 1, sending: None };
            let row = MoveRow { step, ..row.clone() };
            let switched =
                server.identity.switch_engine(org, &row, Some(&read), now, &mut Entropy::seeded(8));
            switched.expect("switches");
        }
    }
    assert_eq!(server.get(ENGINE, &owner).await.value()["engine"], "upstream");
}
