//! Versions of groups of rules (docs/specification.md C13).

use std::time::Duration;

use promlet::api::orgs::rules::reconcile;
use promlet::api::orgs::rules::replaced::end_replaced;
use promlet::model::{Access, TimeRange, is_stale};
use promlet::promql::syntax::{Caps, parse_selector};
use promlet::rules::{RuleFileOptions, RuleSource, decode_rule_group};
use promlet::tsdb::SampleColumns;
use serde_json::{Value, json};

use crate::rules::{GROUPS, RULER, put, set};
use crate::test_server::{TestServer, TestServerOptions, Who};

fn group(expr: &str) -> String {
    format!("name: g\nrules:\n- record: y\n  expr: {expr} # a comment\n")
}

/// Returns the numbers, begins and ends of versions.
fn spans(listed: &Value) -> Vec<(Value, Value, Value)> {
    let rows = listed["data"].as_array().expect("rows").iter();
    rows.map(|row| (row["version"].clone(), row["valid_from"].clone(), row["valid_until"].clone())).collect()
}

#[tokio::test]
async fn a_changed_group_keeps_its_versions_with_their_times_and_authors() {
    let server = TestServer::new();
    let owner = server.log_in().await;
    let versions = format!("{GROUPS}/g/versions");
    server.get(&versions, &owner).await.is(404, "not_found");
    server.get(&format!("{versions}/1"), &owner).await.is(404, "not_found");
    let first = put(&server, &owner, "g", &group("x"), None).await.value();
    server.pass(Duration::from_secs(60));
    let second = put(&server, &owner, "g", &group("x * 2"), Some("\"1\"")).await.value();
    let listed = server.get(&versions, &owner).await.value();
    let (from, until) = (&first["updated_at"], &second["updated_at"]);
    assert_ne!(from, until);
    let expected = [(json!(2), until.clone(), Value::Null), (json!(1), from.clone(), until.clone())];
    assert_eq!(spans(&listed), expected);
    assert_eq!(listed["data"][0]["updated_by"], second["updated_by"]);
    assert!(listed["data"][1]["updated_by"].is_string());
    assert_eq!(listed["data"][1]["bytes"], json!(group("x").len()));
    assert_eq!(server.get(&format!("{GROUPS}/g"), &owner).await.value()["version"], 2);
    for (version, expr) in [(1, "x"), (2, "x * 2")] {
        let text = server.get(&format!("{versions}/{version}"), &owner).await;
        assert_eq!(text.body, group(expr));
        assert_eq!((text.header("content-type"), text.header("etag").len()), ("application/yaml", 3));
    }
    for gone in ["0", "3", "x", "-1", "4294967296"] {
        server.get(&format!("{versions}/{gone}"), &owner).await.is(404, "not_found");
    }
    let page = server.get(&format!("{versions}?limit=1"), &owner).await.value();
    assert_eq!(page["data"][0]["version"], 2);
    let next = page["next_cursor"].as_str().expect("a cursor");
    let page = server.get(&format!("{versions}?limit=1&cursor={next}"), &owner).await.value();
    assert_eq!((&page["data"][0]["version"], &page["next_cursor"]), (&json!(1), &Value::Null));
    server.get(&format!("{versions}?limit=0"), &owner).await.is(400, "invalid_parameter");
    server.get(&format!("{versions}?limit=1&limit=1"), &owner).await.is(400, "duplicate_parameter");
    // An older version is restored by an ordinary change.
    let old = server.get(&format!("{versions}/1"), &owner).await.body;
    let restored = put(&server, &owner, "g", &old, Some("\"2\"")).await;
    assert_eq!((restored.status.as_u16(), restored.header("etag")), (200, "\"3\""));
}

#[tokio::test]
async fn a_removed_group_keeps_its_versions_and_continues_their_numbers() {
    let server = TestServer::new();
    let owner = server.log_in().await;
    let (_, secret) = server.key(&owner, json!({ "scopes": ["alerting"] })).await;
    let key = Who::Bearer(secret);
    let stored = set(&server, &key, "infra", &group("x")).await;
    assert_eq!(stored.status, 202, "{}", stored.body);
    let versions = format!("{GROUPS}/infra%2Fg/versions");
    let listed = server.get(&versions, &owner).await.value();
    assert_eq!((&listed["data"][0]["version"], &listed["data"][0]["updated_by"]), (&json!(1), &Value::Null));
    server.pass(Duration::from_secs(60));
    assert_eq!(server.delete(&format!("{RULER}/infra/g"), &key).await.status, 202);
    server.get(&format!("{GROUPS}/infra%2Fg"), &owner).await.is(404, "not_found");
    let listed = server.get(&versions, &owner).await.value();
    assert!(listed["data"][0]["valid_until"].is_string(), "{listed}");
    assert_eq!(server.get(&format!("{versions}/1"), &owner).await.body, group("x"));
    let again = put(&server, &owner, "infra%2Fg", &group("x * 2"), None).await;
    assert_eq!((again.status.as_u16(), again.header("etag")), (201, "\"2\""), "{}", again.body);
    assert_eq!(spans(&server.get(&versions, &owner).await.value()).len(), 2);
    // The text of the version before the removal is not the current one.
    put(&server, &owner, "infra%2Fg", &group("x"), Some("\"1\"")).await.is(412, "version_conflict");
}

#[tokio::test]
async fn versions_are_read_as_groups_are_and_groups_of_files_have_none() {
    let server = TestServer::build(TestServerOptions::default());
    let owner = server.log_in().await;
    put(&server, &owner, "g", &group("x"), None).await;
    put(&server, &owner, "g", &group("x * 2"), Some("*")).await;
    let made = server.post("/api/v1/orgs", &owner, json!({ "slug": "other" })).await;
    assert_eq!(made.status, 201, "{}", made.body);
    let elsewhere = "/api/v1/orgs/other/rule-groups/g/versions";
    server.get(elsewhere, &owner).await.is(404, "not_found");
    server.get(&format!("{elsewhere}/1"), &owner).await.is(404, "not_found");
    let versions = format!("{GROUPS}/g/versions");
    let (_, secret) = server.key(&owner, json!({ "scopes": ["read", "alerting"] })).await;
    for path in [&versions, &format!("{versions}/1")] {
        server.get(path, &Who::Nobody).await.is(401, "unauthenticated");
        server.get(path, &Who::Bearer(secret.clone())).await.is(401, "session_required");
    }
    let org = server.identity.orgs().expect("read")[0].id;
    let of_file = decode_rule_group(
        "name: f\nrules: [{record: z, expr: '1'}]\n",
        RuleFileOptions::within(&server.rules.settings().caps),
    );
    let source = RuleSource::File("rules/web.yml".into());
    server.rules.set_groups(org, &source, vec![of_file.expect("a group")]);
    let listed = server.get(&format!("{GROUPS}/f/versions"), &owner).await.value();
    assert_eq!(listed, json!({ "data": [], "next_cursor": null }));
    server.get(&format!("{GROUPS}/f/versions/0"), &owner).await.is(404, "not_found");
}

/// Returns the values of a series, markers as -1.
fn values(server: &TestServer, name: &str) -> Vec<f64> {
    let org = server.identity.orgs().expect("read")[0].id;
    let snapshot = server.tsdb.snapshot(&Access::whole(org));
    let matchers = parse_selector(name, &Caps::default()).expect("valid");
    let mut columns = SampleColumns::default();
    for series in snapshot.select(&matchers, TimeRange::ALL) {
        snapshot.read(series.id, TimeRange::ALL, &mut columns);
    }
    columns.values.into_iter().map(|value| if is_stale(value) { -1.0 } else { value }).collect()
}

#[tokio::test]
async fn rules_that_were_removed_edited_or_moved_before_a_kill_are_ended_by_the_stored_versions() {
    let server = TestServer::new();
    let owner = server.log_in().await;
    let org = server.identity.orgs().expect("read")[0].id;
    let text = |name: &str, rules: &str| format!("name: {name}\ninterval: 10s\nrules:\n{rules}");
    let rule = |name: &str, value: u8| format!("- {{record: {name}, expr: 'vector({value})'}}\n");
    let all = [rule("kept", 1), rule("dropped", 2), rule("changed", 3)].concat();
    put(&server, &owner, "g", &text("g", &all), None).await;
    put(&server, &owner, "h", &text("h", &[rule("gone", 4), rule("moved", 5)].concat()), None).await;
    let run = |seconds: u64| {
        for _ in 0..seconds {
            server.pass(Duration::from_secs(1));
            server.rules.run_due(server.clock.now());
        }
    };
    run(11);
    let edited = [rule("kept", 1), "- {record: changed, expr: 'vector(3) > 9'}\n".to_owned()].concat();
    put(&server, &owner, "g", &text("g", &edited), Some("\"1\"")).await;
    assert_eq!(server.delete(&format!("{GROUPS}/h"), &owner).await.status, 204);
    put(&server, &owner, "i", &text("i", &rule("moved", 5)), None).await;
    for _ in 0..2 {
        server.rules.forget_org(org);
        reconcile(&server.identity, &server.rules);
        end_replaced(&server.identity, &server.rules, server.clock.now());
        run(30);
    }
    for ended in ["dropped", "changed", "gone"] {
        let values = values(&server, ended);
        assert_eq!(values.iter().filter(|value| **value < 0.0).count(), 1, "{ended}: {values:?}");
        assert!(values.last().is_some_and(|last| *last < 0.0), "{ended}: {values:?}");
    }
    for kept in ["kept", "moved"] {
        assert!(values(&server, kept).iter().all(|value| *value > 0.0), "{kept}");
    }
    // Versions that were replaced long ago, and those of deleted organisations, have no effect.
    server.pass(Duration::from_secs(3_600));
    server.rules.forget_org(org);
    end_replaced(&server.identity, &server.rules, server.clock.now());
    assert_eq!(server.rules.orgs(), []);
    assert_eq!(server.delete(&format!("{GROUPS}/i"), &owner).await.status, 204);
    server.rules.forget_org(org);
    let owner = server.log_in().await;
    let removed = server.json("DELETE", "/api/v1/orgs/acme", &owner, json!({ "confirm": "acme" })).await;
    assert_eq!(removed.status, 202, "{}", removed.body);
    end_replaced(&server.identity, &server.rules, server.clock.now());
    assert_eq!(server.rules.orgs(), []);
}
