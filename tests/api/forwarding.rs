//! Forwarding targets of an organisation (docs/specification.md C12).

use promlet::api::orgs::forward::reconcile;
use promlet::entropy::Entropy;
use promlet::forward::edge::Forwarders;
use promlet::model::{BatchBuilder, Labels, Sample};
use promlet::tsdb::LogPosition;
use serde_json::{Value, json};

use crate::test_server::{Reply, TestServer, TestServerOptions, Who};

const LIST: &str = "/api/v1/orgs/acme/forward";

fn server() -> TestServer {
    TestServer::build(TestServerOptions { stored: true, ..TestServerOptions::default() })
}

fn target(name: &str, url: &str) -> Value {
    json!({ "name": name, "target": { "url": url } })
}

async fn add(server: &TestServer, owner: &Who, body: Value) -> Reply {
    server.post(LIST, owner, body).await
}

#[tokio::test]
async fn a_target_is_created_shown_changed_probed_and_removed() {
    let server = server();
    let owner = server.log_in().await;
    let mut body = target("there", "http://127.0.0.1:9/write");
    body["rules"] = json!([{ "action": "drop", "source_labels": ["job"], "regex": "x" }]);
    let made = add(&server, &owner, body.clone()).await;
    assert_eq!(made.status, 201, "{}", made.body);
    let made = made.value();
    assert_eq!(
        (&made["id"], &made["protocol"], &made["enabled"]),
        (&json!("1"), &json!("auto"), &json!(true))
    );
    assert_eq!(made["rules"][0]["separator"], ";", "with the defaults of Prometheus");
    add(&server, &owner, body.clone()).await.is(409, "already_exists");
    let path = format!("{LIST}/1");
    let listed = server.get(LIST, &owner).await.value();
    assert_eq!(listed["data"].as_array().map(Vec::len), Some(1));
    assert_eq!(server.get(&path, &owner).await.value()["name"], "there");
    body["name"] = json!("renamed");
    body["enabled"] = json!(false);
    let changed = server.json("PUT", &path, &owner, body.clone()).await;
    assert_eq!(changed.status, 200, "{}", changed.body);
    let changed = changed.value();
    assert_eq!((&changed["version"], &changed["status"]), (&json!(2), &Value::Null));
    let second = add(&server, &owner, target("second", "http://127.0.0.1:9/write")).await.value();
    assert_eq!(second["id"], "2");
    body["name"] = json!("second");
    server.json("PUT", &path, &owner, body.clone()).await.is(409, "already_exists");
    // The address needs a setting of the operator.
    let probe = server.post(&format!("{path}/probe"), &owner, Value::Null).await.value();
    assert_eq!((&probe["ok"], &probe["code"]), (&json!(false), &json!("target_address_refused")), "{probe}");
    let refused = server.get(&format!("{path}/refused"), &owner).await.value();
    assert_eq!(refused, json!({ "data": [], "refused_samples": 0 }));
    assert_eq!(server.tsdb.pins().len(), 2, "a pin for each");
    assert_eq!(server.delete(&path, &owner).await.status, 204);
    assert_eq!(server.tsdb.pins().len(), 1);
    server.delete(&path, &owner).await.is(404, "not_found");
    server.get(&path, &owner).await.is(404, "not_found");
    server.json("PUT", &path, &owner, body).await.is(404, "not_found");
    server.post(&format!("{path}/probe"), &owner, Value::Null).await.is(404, "not_found");
    server.get(&format!("{path}/refused"), &owner).await.is(404, "not_found");
    let events = server.get("/api/v1/orgs/acme/audit?action=forward.*", &owner).await.value();
    let mut actions: Vec<&str> =
        events["data"].as_array().expect("rows").iter().filter_map(|row| row["action"].as_str()).collect();
    // The clock stands still, and events of one millisecond have no order.
    actions.sort_unstable();
    assert_eq!(actions, ["forward.changed", "forward.created", "forward.created", "forward.removed"]);
}

#[tokio::test]
async fn a_target_that_is_created_disabled_has_its_place_in_the_log() {
    let server = server();
    let owner = server.log_in().await;
    let mut body = target("later", "http://127.0.0.1:9/write");
    body["enabled"] = json!(false);
    assert_eq!(add(&server, &owner, body).await.status, 201);
    let from = server.tsdb.log_end();
    let pins = server.tsdb.pins();
    assert_eq!(pins.iter().map(|pin| pin.next).collect::<Vec<_>>(), [from]);
}

#[tokio::test]
async fn what_runs_is_what_is_stored_and_a_number_begins_anew() {
    let server = server();
    let owner = server.log_in().await;
    // A pin that the removal of an earlier target left behind.
    let org = server.identity.org_by_slug("acme").expect("read").expect("exists").id;
    let consumer = Forwarders::consumer_of(org, 1);
    assert_eq!(Forwarders::target_of(consumer), (org, 1));
    server.tsdb.pin(consumer, LogPosition(1)).expect("pinned");
    let now = server.clock.now();
    let mut batch = BatchBuilder::default();
    batch.series(&Labels::from_pairs([("__name__", "up")]), [Sample { at: now, value: 1.0 }]);
    server.tsdb.append(org, &batch.batch(), now).expect("stored");
    let made = add(&server, &owner, target("a", "http://127.0.0.1:9/write")).await;
    assert_eq!((made.status.as_u16(), &made.value()["id"]), (201, &json!("1")));
    let begin = server.tsdb.pins()[0].next;
    assert!(begin > LogPosition(1), "the new target does not get what waited for the old one");
    // The reconciliation stores positions, which only move forward, and restarts what differs.
    let reconcile = || reconcile(&server.identity, &server.forwarders, &server.tsdb, server.clock.now());
    reconcile();
    assert!(server.forwarders.is_running(org, 1, 1));
    server.forwarders.stop(org, 1);
    reconcile();
    assert!(server.forwarders.is_running(org, 1, 1));
    let positions = [(org, 1, begin.0 + 5), (org, 9, 3)];
    server.identity.set_forward_positions(&positions).expect("stored");
    server.identity.set_forward_positions(&[(org, 1, 1)]).expect("stored");
    let stored = server.identity.forward_target(org, 1).expect("read");
    assert_eq!((stored.from_seq, stored.version), (begin.0 + 5, 1));
}

#[tokio::test]
async fn readyz_counts_targets_that_need_a_look_and_names_none() {
    let server = server();
    let owner = server.log_in().await;
    assert_eq!(add(&server, &owner, target("a", "http://127.0.0.1:9/write")).await.status, 201);
    let org = server.identity.org_by_slug("acme").expect("read").expect("exists").id;
    server.forwarders.start((org, 1), 1, Err("intern.example is wrong".to_owned()), Entropy::seeded(1));
    let ready = server.get("/readyz", &Who::Nobody).await;
    assert!(ready.body.contains("of 1 forwarding targets, 1 cannot send, and 0 lost"), "{}", ready.body);
    assert!(!ready.body.contains("intern.example"), "{}", ready.body);
    let shown = server.get(&format!("{LIST}/1"), &owner).await.value();
    assert_eq!(shown["status"]["error"], "intern.example is wrong");
    // The next reconciliation tries again.
    assert!(!server.forwarders.is_running(org, 1, 1));
    reconcile(&server.identity, &server.forwarders, &server.tsdb, server.clock.now());
    assert!(server.forwarders.is_running(org, 1, 1));
}

#[tokio::test]
async fn wrong_targets_are_refused_with_the_field() {
    let server = server();
    let owner = server.log_in().await;
    let good = target("a", "http://127.0.0.1:9/write");
    for (name, value) in [
        ("name", json!("")),
        ("name", json!("x".repeat(65))),
        ("protocol", json!("rw3")),
        ("compression", json!("gzip")),
        ("rules", json!([{ "regex": "(" }])),
        ("from", json!("yesterday")),
        ("target", json!({ "url": "ftp://x" })),
        ("target", json!({ "url": "http://x/", "auth": { "type": "bearer" } })),
        ("target", json!({ "url": "http://x/", "tenant": { "type": "path", "value": "a" } })),
    ] {
        let mut body = good.clone();
        body[name] = value;
        add(&server, &owner, body.clone()).await.is(422, "validation_failed");
    }
    assert_eq!(server.get(LIST, &owner).await.value()["data"], json!([]));
}

#[tokio::test]
async fn an_organisation_has_a_limit_of_forwarding_targets() {
    let server = server();
    let owner = server.log_in().await;
    for number in 0..16 {
        let body = target(&format!("t{number}"), "http://127.0.0.1:9/write");
        assert_eq!(add(&server, &owner, body).await.status, 201);
    }
    add(&server, &owner, target("more", "http://127.0.0.1:9/write")).await.is(409, "limit_reached");
}

#[tokio::test]
async fn secrets_of_a_forwarding_target_are_write_only_and_stay_with_their_origin() {
    let server = server();
    let owner = server.log_in().await;
    let secret = "s3cr3t-of-the-target";
    let with = |url: &str, auth: Value| json!({ "name": "a", "target": { "url": url, "auth": auth, "headers": { "x-key": secret } } });
    let auth = json!({ "type": "bearer", "token": secret });
    let made = add(&server, &owner, with("https://one.example/write", auth)).await;
    assert_eq!(made.status, 201, "{}", made.body);
    assert!(!made.body.contains(secret), "{}", made.body);
    assert_eq!(made.value()["target"]["auth"], json!({ "type": "bearer", "has_secret": true }));
    let path = format!("{LIST}/1");
    let kept = json!({ "name": "a", "target": { "url": "https://one.example/other", "auth": { "type": "bearer" }, "headers": { "x-key": null } } });
    let changed = server.json("PUT", &path, &owner, kept.clone()).await;
    assert_eq!(changed.status, 200, "{}", changed.body);
    assert!(!changed.body.contains(secret));
    let mut moved = kept;
    moved["target"]["url"] = json!("https://two.example/write");
    server.json("PUT", &path, &owner, moved).await.is(422, "validation_failed");
    assert!(!server.get(LIST, &owner).await.body.contains(secret));
}
