//! Notifications of an organisation (docs/specification.md C14).

use std::time::Duration;

use axum::body::Body;
use axum::http::header;
use promlet::api::error::Code;
use promlet::identity::Role;
use promlet::model::{Alert, AlertSink as _, OrgId};
use promlet::notify::org::NotifyStatus;
use serde_json::{Value, json};

use crate::eventually::eventually;
use crate::members::person;
use crate::test_server::{Reply, TestServer, TestServerOptions, Who, ask};

const ORG: &str = "/api/v1/orgs/acme";
const CONFIGURATION: &str = "/api/v1/orgs/acme/notifications";
const SILENCES: &str = "/api/v1/orgs/acme/silences";
const MOUNT: &str = "/api/v1/orgs/acme/alertmanager/api/v2";

/// Mails to one address, without a wait.
fn mails() -> Value {
    json!({
        "route": { "receiver": "team", "group_by": ["alertname"], "group_wait": "0s" },
        "receivers": [{ "name": "team", "email_configs": [{ "id": "m", "to": ["ops@example.com"] }] }],
    })
}

async fn put(server: &TestServer, who: &Who, tag: &str, body: &Value) -> Reply {
    let request = ask("PUT", CONFIGURATION, who)
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::IF_MATCH, tag);
    server.send(request.body(Body::from(body.to_string())).expect("a request")).await
}

fn acme(server: &TestServer) -> OrgId {
    server.identity.org_by_slug("acme").expect("read").expect("there").id
}

/// Raises an alert, as rules do.
fn raise(server: &TestServer, name: &str) {
    let now = server.clock.now();
    let alert = Alert {
        has_own_end: false,
        labels: [("alertname".to_owned(), name.to_owned())].into(),
        annotations: [("summary".to_owned(), "It is down".to_owned())].into(),
        value: 1.0,
        starts_at: now,
        ends_at: now.plus_ms(240_000),
        resolved: false,
        expr: "up == 0".to_owned(),
    };
    server.notify.send(acme(server), vec![alert], now);
}

/// Waits for a state of the notifier without requests: the clock of a test stands still, so at most
/// 60 requests of a session are accepted.
fn wait_for(server: &TestServer, is_reached: impl Fn(&NotifyStatus) -> bool) {
    let org = acme(server);
    let status = || server.notify.status(org).expect("loaded").0;
    let failure = || format!("the notifier has {:?}", status());
    eventually(Duration::from_secs(60), failure, || is_reached(&status()).then_some(()));
}

/// Waits for a number of firing alerts.
fn wait_for_alerts(server: &TestServer, count: usize) {
    wait_for(server, |status| status.alerts == count);
}

#[tokio::test]
async fn a_configuration_is_stored_by_administrators_and_read_by_members_without_its_secrets() {
    let server = TestServer::new();
    let owner = server.log_in().await;
    let (viewer, _) = person(&server, "bo@example.com", Some(Role::Viewer));
    let (editor, _) = person(&server, "cy@example.com", Some(Role::Editor));
    let empty = server.get(CONFIGURATION, &viewer).await;
    assert_eq!((empty.value(), empty.header("etag")), (json!({}), "\"0\""));
    server.json("PUT", CONFIGURATION, &owner, mails()).await.is(428, "precondition_required");
    put(&server, &editor, "*", &mails()).await.is(403, "forbidden");
    let mut body = mails();
    body["receivers"][0]["webhook_configs"] =
        json!([{ "url": "http://example.com/hook", "secret": "a signing key" }]);
    let stored = put(&server, &owner, "\"0\"", &body).await;
    assert_eq!((stored.status.as_u16(), stored.header("etag")), (200, "\"1\""), "{}", stored.body);
    assert!(!stored.body.contains("a signing key"), "{}", stored.body);
    let shown = server.get(CONFIGURATION, &viewer).await;
    assert_eq!(shown.value(), stored.value());
    let hook = &shown.value()["receivers"][0]["webhook_configs"][0];
    assert_eq!((&hook["has_secret"], hook["id"].is_string()), (&json!(true), true));
    put(&server, &owner, "\"0\"", &shown.value()).await.is(412, "version_conflict");
    // What was read can be stored, and keeps the secret.
    assert_eq!(put(&server, &owner, "\"1\"", &shown.value()).await.status, 200);
    let kept = server.identity.notifications(acme(&server)).expect("read").expect("stored");
    assert!(kept.text.is_some_and(|text| text.contains("a signing key")));
    let mut wrong = mails();
    wrong["route"]["reciever"] = json!("x");
    wrong["receivers"][0]["email_configs"][0]["to"] = json!(["nobody"]);
    let refused = put(&server, &owner, "*", &wrong).await;
    refused.is(422, "validation_failed");
    let fields: Vec<Value> = refused.value()["errors"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| one["field"].clone())
        .collect();
    assert_eq!(fields, ["receivers[0].email_configs[0].to[0]", "route.reciever"]);
    let mut certificate = mails();
    certificate["alertmanagers"] =
        json!([{ "id": "am", "url": "https://am", "tls": { "ca_pem": "no certificate" } }]);
    put(&server, &owner, "*", &certificate).await.is(422, "validation_failed");
    assert_eq!(server.get(CONFIGURATION, &viewer).await.header("etag"), "\"2\"");
}

#[tokio::test]
async fn an_alert_is_mailed_and_a_test_is_sent_and_limited() {
    let server = TestServer::new();
    let owner = server.log_in().await;
    assert_eq!(put(&server, &owner, "*", &mails()).await.status, 200);
    raise(&server, "Down");
    let status = format!("{CONFIGURATION}/status");
    wait_for(&server, |status| status.integrations.iter().any(|one| one.counts.sent == 1));
    let state = server.get(&status, &owner).await.value();
    assert_eq!(state["integrations"][0]["sent"], 1);
    assert_eq!((&state["alerts"], &state["received"]), (&json!(1), &json!(1)));
    let mails = server.outbox.plain_mails();
    assert_eq!((mails[0].to.as_str(), mails[0].subject.as_str()), ("ops@example.com", "[FIRING:1] Down"));
    assert!(mails[0].text.contains("/explore?org=acme&expr=up%20%3D%3D%200"), "{}", mails[0].text);
    assert!(mails[0].text.contains("/alerts?org=acme"), "{}", mails[0].text);
    let test = format!("{CONFIGURATION}/test");
    let sent = server.post(&test, &owner, json!({ "receiver": "team" })).await.value();
    let report = json!({ "id": "m/ops@example.com", "type": "email", "ok": true, "error": null });
    assert_eq!(sent, json!({ "data": [report] }));
    assert_eq!(server.outbox.plain_mails().len(), 2);
    server.post(&test, &owner, json!({ "receiver": "x" })).await.is(404, "not_found");
    for _ in 1..20 {
        assert_eq!(server.post(&test, &owner, json!({ "receiver": "team" })).await.status, 200);
    }
    server.post(&test, &owner, json!({ "receiver": "team" })).await.is(409, "limit_reached");
    let own = server.get("/metrics", &Who::Nobody).await.body;
    let row = "promlet_notify_sent_total{org=\"acme\",type=\"email\",receiver=\"m\"} 1";
    assert!(own.contains(row), "{own}");
}

#[tokio::test]
async fn a_webhook_at_a_private_address_needs_the_setting_of_the_operator() {
    let server = TestServer::new();
    let owner = server.log_in().await;
    let body = json!({
        "route": { "receiver": "team" },
        "receivers": [{ "name": "team", "webhook_configs": [{ "id": "h", "url": "http://127.0.0.1:9/" }] }],
    });
    assert_eq!(put(&server, &owner, "*", &body).await.status, 200);
    let test = format!("{CONFIGURATION}/test");
    let report = server.post(&test, &owner, json!({ "receiver": "team" })).await.value();
    assert_eq!(report["data"][0]["ok"], false);
    let why = report["data"][0]["error"].as_str().expect("a text").to_owned();
    assert!(why.contains("is not a public address"), "{why}");
}

/// The end of a silence, in an hour.
fn soon(server: &TestServer) -> String {
    server.clock.now().plus_ms(3_600_000).to_rfc3339()
}

#[tokio::test]
async fn silences_are_created_changed_and_ended_by_editors_and_recorded() {
    let server = TestServer::build(TestServerOptions { stored: true, ..TestServerOptions::default() });
    let (editor, _) = person(&server, "cy@example.com", Some(Role::Editor));
    let (viewer, _) = person(&server, "bo@example.com", Some(Role::Viewer));
    let mut body = json!({ "matchers": ["job=\"x\""], "endsAt": soon(&server), "comment": "works" });
    server.post(SILENCES, &viewer, body.clone()).await.is(403, "forbidden");
    let made = server.post(SILENCES, &editor, body.clone()).await;
    assert_eq!(made.status, 201, "{}", made.body);
    let made = made.value();
    assert_eq!((&made["createdBy"], &made["status"]["state"]), (&json!("cy@example.com"), &json!("active")));
    assert_eq!(made["matchers"], json!([{ "name": "job", "value": "x", "isRegex": false, "isEqual": true }]));
    let path = format!("{SILENCES}/{}", made["id"].as_str().expect("an id"));
    assert_eq!(server.get(&path, &viewer).await.value(), made);
    assert_eq!(server.get(SILENCES, &viewer).await.value(), json!({ "data": [made] }));
    // What was read can be sent back.
    let mut changed = made.clone();
    changed["comment"] = json!("more works");
    let reply = server.json("PUT", &path, &editor, changed).await;
    assert_eq!((reply.status.as_u16(), &reply.value()["id"]), (200, &made["id"]), "{}", reply.body);
    assert_eq!(server.delete(&path, &editor).await.status, 204);
    assert_eq!(server.get(&path, &viewer).await.value()["status"]["state"], "expired");
    let none = format!("{SILENCES}/none");
    server.get(&none, &viewer).await.is(404, "not_found");
    server.json("PUT", &none, &editor, body.clone()).await.is(404, "not_found");
    server.delete(&none, &editor).await.is(404, "not_found");
    for (field, value) in
        [("matchers", json!([])), ("matchers", json!(["job=~\"(\""])), ("endsAt", json!("soon"))]
    {
        let mut wrong = body.clone();
        wrong[field] = value;
        server.post(SILENCES, &editor, wrong).await.is(422, "validation_failed");
    }
    let admin = server.log_in().await;
    let events = server.get(&format!("{ORG}/audit?action=silence.*"), &admin).await.value();
    assert_eq!(events["data"].as_array().map(Vec::len), Some(3), "{events}");
    let stored = server.identity.notify_state(acme(&server)).expect("read");
    assert_eq!(stored.len(), 1, "one silence is durable");
    // 999 more.
    let org = acme(&server);
    for number in 0..999 {
        body["comment"] = json!(number.to_string());
        let created = server.notify.with_org(org, |notifier, now| {
            let mut matchers = promlet::notify::matcher::AlertMatchers::default();
            matchers.push_text("a=b").expect("valid");
            let (created_by, comment) = (String::new(), String::new());
            let ends_at = now.plus_ms(60_000);
            let new = promlet::notify::silence::NewSilence {
                matchers,
                starts_at: now,
                ends_at,
                created_by,
                comment,
            };
            notifier.set_silence(None, new, now).is_ok()
        });
        assert_eq!(created, Ok(true));
    }
    server.post(SILENCES, &editor, body.clone()).await.is(409, "limit_reached");
    server.json("PUT", &path, &editor, body.clone()).await.is(409, "limit_reached");
    let mount = format!("{MOUNT}/silences");
    server.post(&mount, &editor, body).await.refuses_as_alertmanager(400, "limit_reached");
}

#[tokio::test]
async fn an_alert_is_acknowledged_until_it_ends() {
    let server = TestServer::new();
    let (editor, _) = person(&server, "cy@example.com", Some(Role::Editor));
    raise(&server, "Down");
    wait_for_alerts(&server, 1);
    let alerts = server.get(&format!("{MOUNT}/alerts"), &editor).await.value();
    assert_eq!(alerts.as_array().map(Vec::len), Some(1), "{alerts}");
    let print = alerts[0]["fingerprint"].as_str().expect("a text");
    let path = format!("{ORG}/alerts/{print}/acknowledgement");
    let done = server.post(&path, &editor, json!({ "comment": "on it" })).await;
    assert_eq!((done.status.as_u16(), &done.value()["author"]), (200, &json!("cy@example.com")));
    let alerts = server.get(&format!("{MOUNT}/alerts"), &editor).await.value();
    assert_eq!(alerts[0]["acknowledgement"]["comment"], "on it");
    assert_eq!(server.delete(&path, &editor).await.status, 204);
    server.delete(&path, &editor).await.is(404, "not_found");
    let none = format!("{ORG}/alerts/0000000000000000/acknowledgement");
    server.post(&none, &editor, json!({})).await.is(404, "not_found");
    server.post(&path, &editor, json!({ "comment": "x".repeat(1_025) })).await.is(422, "validation_failed");
}

#[tokio::test]
async fn clients_of_alertmanager_read_with_a_key_and_write_with_another() {
    let server = TestServer::new();
    let owner = server.log_in().await;
    assert_eq!(put(&server, &owner, "*", &mails()).await.status, 200);
    let reader = Who::Bearer(server.key(&owner, json!({ "scopes": ["read"] })).await.1);
    let writer = Who::Bearer(server.key(&owner, json!({ "scopes": ["ingest"] })).await.1);
    let silencer = Who::Bearer(server.key(&owner, json!({ "scopes": ["alerting"] })).await.1);
    let status = server.get(&format!("{MOUNT}/status"), &reader).await.value();
    assert_eq!(status["cluster"]["status"], "disabled");
    assert!(status["config"]["original"].as_str().is_some_and(|text| text.contains("\"team\"")));
    let receivers = server.get(&format!("{MOUNT}/receivers"), &reader).await.value();
    assert_eq!(receivers, json!([{ "name": "team" }]));
    let alerts = format!("{MOUNT}/alerts");
    let sent = json!([
        { "labels": { "alertname": "Posted", "job": "x" }, "endsAt": "0001-01-01T00:00:00Z" },
        { "labels": { "alertname": "Other" }, "annotations": { "summary": "s" } },
    ]);
    assert_eq!(server.post(&alerts, &writer, sent).await.status, 200);
    wait_for_alerts(&server, 2);
    let found = async |query: &str| server.get(&format!("{alerts}?{query}"), &reader).await.value();
    assert_eq!(found("filter=job%3D%22x%22").await.as_array().map(Vec::len), Some(1));
    assert_eq!(found("receiver=te.*&silenced=false").await.as_array().map(Vec::len), Some(2));
    assert_eq!(found("receiver=x").await, json!([]));
    let groups = server.get(&format!("{MOUNT}/alerts/groups"), &reader).await.value();
    assert_eq!(groups.as_array().map(Vec::len), Some(2), "{groups}");
    assert_eq!(groups[0]["receiver"]["name"], "team");
    for path in [&alerts, &format!("{MOUNT}/alerts/groups")] {
        server
            .get(&format!("{path}?active=x"), &reader)
            .await
            .refuses_as_alertmanager(400, "invalid_parameter");
        server
            .get(&format!("{path}?active=1&active=0"), &reader)
            .await
            .refuses_as_alertmanager(400, "duplicate_parameter");
    }
    server
        .post(&alerts, &writer, json!([{ "labels": {} }]))
        .await
        .refuses_as_alertmanager(400, "validation_failed");
    server.post(&alerts, &writer, json!("x")).await.refuses_as_alertmanager(400, "invalid_json");
    let text = ask("POST", &alerts, &writer).header(header::CONTENT_TYPE, "text/plain");
    let text = server.send(text.body(Body::from("[]")).expect("a request")).await;
    text.refuses_as_alertmanager(415, "unsupported_media_type");
    silences_of_clients(&server, &reader, &silencer).await;
    let events = server.get(&format!("{ORG}/audit?action=silence.*"), &owner).await.value();
    // Events of the same millisecond have any order.
    let mut actions: Vec<&str> = events["data"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| one["action"].as_str().unwrap_or_default())
        .collect();
    actions.sort_unstable();
    assert_eq!(actions, ["silence.created", "silence.created", "silence.ended"]);
    let prometheus = format!("{ORG}/prometheus/api/v1/alertmanagers");
    let found = server.get(&prometheus, &reader).await.value();
    let expected = json!({ "activeAlertmanagers": [], "droppedAlertmanagers": [] });
    assert_eq!(found, json!({ "status": "success", "data": expected }));
}

async fn silences_of_clients(server: &TestServer, reader: &Who, writer: &Who) {
    let silences = format!("{MOUNT}/silences");
    let mut body = json!({
        "matchers": [{ "name": "job", "value": "x", "isRegex": false }],
        "startsAt": server.clock.now().to_rfc3339(), "endsAt": soon(server),
        "createdBy": "ada", "comment": "works",
    });
    let made = server.post(&silences, writer, body.clone()).await;
    assert_eq!(made.status, 200, "{}", made.body);
    let id = made.text("silenceID");
    let one = format!("{MOUNT}/silence/{id}");
    assert_eq!(server.get(&one, reader).await.value()["createdBy"], "ada");
    let listed = server.get(&format!("{silences}?filter=job%3D%22x%22"), reader).await.value();
    assert_eq!(listed.as_array().map(Vec::len), Some(1));
    server
        .get(&format!("{silences}?filter=x"), reader)
        .await
        .refuses_as_alertmanager(400, "invalid_parameter");
    let held = server.get(&format!("{MOUNT}/alerts?active=false"), reader).await.value();
    assert_eq!(
        (&held[0]["status"]["state"], &held[0]["status"]["silencedBy"]),
        (&json!("suppressed"), &json!([id]))
    );
    body["id"] = json!("none");
    server.post(&silences, writer, body.clone()).await.refuses_as_alertmanager(404, "not_found");
    // Clients send an empty id with a new silence.
    body["id"] = json!("");
    assert_eq!(server.post(&silences, writer, body.clone()).await.status, 200);
    server
        .post(&silences, writer, json!({ "matchers": [] }))
        .await
        .refuses_as_alertmanager(400, "validation_failed");
    for (text, media, status, code) in
        [("{", "application/json", 400, "invalid_json"), ("{}", "text/plain", 415, "unsupported_media_type")]
    {
        let request = ask("POST", &silences, writer).header(header::CONTENT_TYPE, media);
        server
            .send(request.body(Body::from(text)).expect("a request"))
            .await
            .refuses_as_alertmanager(status, code);
    }
    assert_eq!(server.delete(&one, writer).await.status, 200);
    let none = format!("{MOUNT}/silence/none");
    server.get(&none, reader).await.refuses_as_alertmanager(404, "not_found");
    server.delete(&none, writer).await.refuses_as_alertmanager(404, "not_found");
}

#[tokio::test]
async fn a_key_that_sends_too_often_is_throttled_with_alerts_too() {
    let server = TestServer::new();
    let owner = server.log_in().await;
    let slow = json!({ "scopes": ["ingest"], "ingest": { "rate_limit_rps": 1 } });
    let busy = Who::Bearer(server.key(&owner, slow).await.1);
    let alerts = format!("{MOUNT}/alerts");
    assert_eq!(server.post(&alerts, &busy, json!([])).await.status, 200);
    server.post(&alerts, &busy, json!([])).await.refuses_as_alertmanager(503, "ingest_throttled");
    let slow = json!({ "scopes": ["read", "alerting"], "read": { "rate_limit_rps": 1 } });
    let busy = Who::Bearer(server.key(&owner, slow).await.1);
    server.delete(&format!("{MOUNT}/silence/none"), &busy).await.refuses_as_alertmanager(404, "not_found");
    server.delete(&format!("{MOUNT}/silence/none"), &busy).await.refuses_as_alertmanager(429, "rate_limited");
}

/// Keys that write lie on many machines.
#[tokio::test]
async fn a_key_that_writes_silences_no_alert_and_changes_no_rule() {
    let server = TestServer::new();
    let owner = server.log_in().await;
    let leaked = Who::Bearer(server.key(&owner, json!({ "scopes": ["ingest", "read", "embed"] })).await.1);
    let matcher = json!({ "name": "alertname", "value": ".*", "isRegex": true });
    let all = json!({ "matchers": [matcher], "endsAt": soon(&server), "comment": "all" });
    let lacks = async |method: &str, path: &str, body: String| {
        let request = ask(method, path, &leaked).header(header::CONTENT_TYPE, "application/json");
        let reply = server.send(request.body(Body::from(body)).expect("a request")).await;
        assert!(reply.refuses(Code::Forbidden), "{path}: {} {}", reply.status, reply.body);
        assert!(reply.body.contains("lacks the scope alerting"), "{}", reply.body);
    };
    lacks("POST", &format!("{MOUNT}/silences"), all.to_string()).await;
    let made = server.post(SILENCES, &owner, json!({ "matchers": ["a=b"], "endsAt": soon(&server) })).await;
    lacks("DELETE", &format!("{MOUNT}/silence/{}", made.text("id")), String::new()).await;
    let rules = format!("{ORG}/prometheus/config/v1/rules/infra");
    lacks("POST", &rules, "name: g\nrules: []\n".to_owned()).await;
    lacks("DELETE", &format!("{rules}/g"), String::new()).await;
    lacks("DELETE", &rules, String::new()).await;
    let listed = server.get(SILENCES, &owner).await.value();
    assert_eq!(listed["data"].as_array().map(Vec::len), Some(1), "{listed}");
    assert_eq!(listed["data"][0]["status"]["state"], "active");
}

#[tokio::test]
async fn embed_tokens_see_no_alerts_and_no_silences() {
    let server = TestServer::new();
    let owner = server.log_in().await;
    raise(&server, "Down");
    wait_for_alerts(&server, 1);
    let silence = json!({ "matchers": ["a=b"], "endsAt": soon(&server) });
    let made = server.post(SILENCES, &owner, silence).await.value();
    let (key, _) = server.key(&owner, json!({ "scopes": ["embed"] })).await;
    let token = server.token(&owner, &key, json!({})).await;
    for path in ["alerts", "alerts/groups", "silences", "receivers"] {
        assert_eq!(server.get(&format!("{MOUNT}/{path}"), &token).await.value(), json!([]), "{path}");
    }
    let one = format!("{MOUNT}/silence/{}", made["id"].as_str().expect("an id"));
    server.get(&one, &token).await.refuses_as_alertmanager(404, "not_found");
}

#[tokio::test]
async fn posted_alerts_are_checked_one_by_one_as_alertmanager_does() {
    let server = TestServer::new();
    let owner = server.log_in().await;
    assert_eq!(put(&server, &owner, "*", &mails()).await.status, 200);
    let now = server.clock.now();
    let (later, past) = (now.plus_ms(600_000).to_rfc3339(), now.plus_ms(-1_000).to_rfc3339());
    let alerts = format!("{MOUNT}/alerts");
    let label = |name: &str| json!({ name: "x" });
    let sent = json!([
        { "labels": label("good") },
        { "labels": label("") },
        { "labels": { "a": "1", "": "" } },
        { "labels": label("a"), "startsAt": later },
        { "labels": label("a"), "startsAt": now.to_rfc3339(), "endsAt": past },
        { "labels": { "a": "" } },
        { "labels": label("a"), "annotations": { "": "x" } },
    ]);
    let reply = server.post(&alerts, &owner, sent).await;
    reply.refuses_as_alertmanager(400, "validation_failed");
    let order = "start time must be before end time";
    let expected = format!(
        "invalid label set: invalid name \"\"; {order}; {order}; at least one label pair required; \
         invalid annotations: invalid name \"\""
    );
    assert_eq!(reply.value(), json!(expected));
    wait_for_alerts(&server, 2);
    let wrong = json!([{ "labels": label("b") }, { "labels": label("c"), "startsAt": "x" }]);
    server.post(&alerts, &owner, wrong).await.refuses_as_alertmanager(400, "validation_failed");
}

/// Alertmanager refuses a silence only if all matchers are `=` or `=~` and match the empty text.
#[tokio::test]
async fn silences_with_negative_matchers_alone_are_accepted() {
    let server = TestServer::new();
    let owner = server.log_in().await;
    let silences = format!("{MOUNT}/silences");
    let negative = json!({ "name": "alertname", "value": "Watchdog", "isRegex": false, "isEqual": false });
    let empty = json!({ "name": "a", "value": ".*", "isRegex": true });
    let body = |matchers: Value| json!({ "matchers": matchers, "endsAt": soon(&server), "comment": "c" });
    assert_eq!(server.post(&silences, &owner, body(json!([negative]))).await.status, 200);
    assert_eq!(server.post(SILENCES, &owner, body(json!([empty, negative]))).await.status, 201);
    let refused = server.post(&silences, &owner, body(json!([empty]))).await;
    refused.refuses_as_alertmanager(400, "validation_failed");
    assert_eq!(refused.value(), json!("at least one matcher must not match the empty text"));
}

#[tokio::test]
async fn notifications_of_a_removed_organisation_are_removed() {
    let server = TestServer::build(TestServerOptions { stored: true, ..TestServerOptions::default() });
    let owner = server.log_in().await;
    assert_eq!(put(&server, &owner, "*", &mails()).await.status, 200);
    let silence = json!({ "matchers": ["a=b"], "endsAt": soon(&server) });
    assert_eq!(server.post(SILENCES, &owner, silence).await.status, 201);
    let org = acme(&server);
    assert_eq!(server.post("/api/v1/orgs", &owner, json!({ "slug": "second" })).await.status, 201);
    let request = ask("DELETE", ORG, &owner).header(header::CONTENT_TYPE, "application/json");
    let removed = server.send(request.body(Body::from(r#"{"confirm":"acme"}"#)).expect("a request")).await;
    assert_eq!(removed.status, 202, "{}", removed.body);
    server.identity.finish_removal(org).expect("removed");
    assert_eq!(server.identity.notifications(org).expect("read"), None);
    assert_eq!(server.identity.notify_state(org).expect("read"), []);
    server.notify.retain(|_| false);
    assert!(server.notify.read_org(org, |_, _| ()).is_err());
}
