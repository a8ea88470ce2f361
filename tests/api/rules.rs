//! Rules of an organisation (docs/specification.md C13).

use std::time::Duration;

use axum::body::Body;
use axum::http::header;
use promlet::api::orgs::rules::reconcile;
use promlet::model::{Access, BatchBuilder, Labels, MatchOp, Matcher, Sample, TimeRange, is_stale};
use promlet::tsdb::SampleColumns;
use serde_json::{Value, json};

use crate::test_server::{Reply, TestServer, TestServerOptions, Who, ask};

pub(crate) const GROUPS: &str = "/api/v1/orgs/acme/rule-groups";
const MOUNT: &str = "/api/v1/orgs/acme/prometheus";
pub(crate) const RULER: &str = "/api/v1/orgs/acme/prometheus/config/v1/rules";

const GROUP: &str = "name: g
interval: 10s
rules:
- record: y
  expr: x * 2
  labels: {kind: double}
- alert: High
  expr: x > 1
  labels: {severity: page}
  annotations: {summary: '{{ $labels.job }} has {{ $value }}'}
";

pub(crate) async fn put(server: &TestServer, who: &Who, name: &str, yaml: &str, tag: Option<&str>) -> Reply {
    let mut request =
        ask("PUT", &format!("{GROUPS}/{name}"), who).header(header::CONTENT_TYPE, "application/json");
    if let Some(tag) = tag {
        request = request.header(header::IF_MATCH, tag);
    }
    let body = json!({ "yaml": yaml }).to_string();
    server.send(request.body(Body::from(body)).expect("a request")).await
}

/// Sends a group as mimirtool does.
pub(crate) async fn set(server: &TestServer, who: &Who, namespace: &str, yaml: &str) -> Reply {
    let request = ask("POST", &format!("{RULER}/{namespace}"), who)
        .header(header::CONTENT_TYPE, "application/yaml")
        .body(Body::from(yaml.to_owned()));
    server.send(request.expect("a request")).await
}

fn write(server: &TestServer, job: &str, ago_s: i64, value: f64) {
    let org = server.identity.orgs().expect("read")[0].id;
    let now = server.clock.now();
    let labels = Labels::from_pairs([("__name__", "x"), ("job", job)]);
    let mut batch = BatchBuilder::default();
    batch.series(&labels, [Sample { at: now.plus_ms(-ago_s * 1_000), value }]);
    server.tsdb.append(org, &batch.batch(), now).expect("stored");
}

/// Advances the clock and evaluates the due groups.
fn evaluate(server: &TestServer, seconds: u64) {
    server.pass(Duration::from_secs(seconds));
    server.rules.run_due(server.clock.now());
}

#[tokio::test]
async fn a_group_is_created_changed_with_its_version_and_removed() {
    let server = TestServer::new();
    let owner = server.log_in().await;
    let made = put(&server, &owner, "g", GROUP, None).await;
    assert_eq!((made.status.as_u16(), made.header("etag")), (201, "\"1\""), "{}", made.body);
    let made = made.value();
    assert_eq!(
        (&made["name"], &made["namespace"], &made["source"]),
        (&json!("g"), &json!("api"), &json!("api"))
    );
    assert_eq!(server.get(&format!("{GROUPS}/g"), &owner).await.value()["yaml"], GROUP);
    put(&server, &owner, "g", GROUP, None).await.is(428, "precondition_required");
    put(&server, &owner, "g", GROUP, Some("\"7\"")).await.is(412, "version_conflict");
    put(&server, &owner, "none", &GROUP.replace("name: g", "name: none"), Some("\"1\""))
        .await
        .is(404, "not_found");
    let changed = put(&server, &owner, "g", GROUP, Some("\"1\"")).await;
    assert_eq!((changed.status.as_u16(), changed.header("etag")), (200, "\"2\""));
    let other = put(&server, &owner, "infra%2Fg", GROUP, None).await;
    assert_eq!((other.status.as_u16(), &other.value()["name"]), (201, &json!("infra/g")));
    let listed = server.get(GROUPS, &owner).await.value();
    let names: Vec<_> =
        listed["data"].as_array().expect("rows").iter().map(|row| row["name"].clone()).collect();
    assert_eq!(names, [json!("g"), json!("infra/g")]);
    assert_eq!(server.rules.counters().groups, 2);
    let remove = ask("DELETE", &format!("{GROUPS}/g"), &owner).header(header::IF_MATCH, "\"1\"");
    server.send(remove.body(Body::empty()).expect("a request")).await.is(412, "version_conflict");
    assert_eq!(server.delete(&format!("{GROUPS}/g"), &owner).await.status, 204);
    server.delete(&format!("{GROUPS}/g"), &owner).await.is(404, "not_found");
    server.get(&format!("{GROUPS}/g"), &owner).await.is(404, "not_found");
    assert_eq!(server.rules.counters().groups, 1);
    let events = server.get("/api/v1/orgs/acme/audit?action=rules.*", &owner).await.value();
    let mut actions: Vec<&str> =
        events["data"].as_array().expect("rows").iter().filter_map(|row| row["action"].as_str()).collect();
    actions.sort_unstable();
    assert_eq!(actions, ["rules.changed", "rules.created", "rules.created", "rules.removed"]);
}

#[tokio::test]
async fn a_wrong_group_is_refused_with_its_position_and_nothing_changes() {
    let server = TestServer::new();
    let owner = server.log_in().await;
    for (yaml, part) in [
        ("name: g\nintervall: 1m\n", "line 2, column 1: unknown key \\\"intervall\\\"; did you mean"),
        ("name: g\nrules:\n- {record: a, expr: 'sum(x'}\n", "line 3"),
        ("name: g\nrules:\n- {alert: a, expr: x, labels: {l: '{{ bad'}}\n", "line 3"),
        ("name: other\n", "the group has the name"),
    ] {
        let refused = put(&server, &owner, "g", yaml, None).await;
        refused.is(422, "validation_failed");
        assert!(refused.body.contains(part), "{yaml}: {}", refused.body);
    }
    assert_eq!(server.get(GROUPS, &owner).await.value(), json!({ "data": [] }));
    assert_eq!(server.rules.counters().groups, 0);
}

#[tokio::test]
async fn a_group_with_a_slash_in_its_name_has_a_path_with_its_namespace() {
    let server = TestServer::new();
    let owner = server.log_in().await;
    let yaml = "name: a/b\ninterval: 10s\n";
    for (path, correct) in [
        ("a%2Fb", "rule-groups/api%2Fa%2Fb"),
        ("b", "rule-groups/api%2Fa%2Fb"),
        ("team%2Fb", "rule-groups/team%2Fa%2Fb"),
    ] {
        let refused = put(&server, &owner, path, yaml, None).await;
        refused.is(422, "validation_failed");
        assert!(
            refused.body.contains("the first / separates the namespace from the name"),
            "{}",
            refused.body
        );
        assert!(refused.body.contains(&format!("write {correct}\"")), "{}", refused.body);
    }
    for (path, name) in [("api%2Fa%2Fb", "api/a/b"), ("team%2Fa%2Fb", "team/a/b")] {
        assert_eq!(put(&server, &owner, path, yaml, None).await.status, 201);
        let listed = server.get(GROUPS, &owner).await.value();
        let names: Vec<&str> =
            listed["data"].as_array().expect("groups").iter().flat_map(|one| one["name"].as_str()).collect();
        assert_eq!(names, [name]);
        let path = format!("{GROUPS}/{}", name.replace('/', "%2F"));
        let shown = server.get(&path, &owner).await;
        assert_eq!((shown.status.as_u16(), shown.value()["yaml"].as_str()), (200, Some(yaml)));
        assert_eq!(server.get(&format!("{path}/versions/1"), &owner).await.body, yaml);
        assert_eq!(server.delete(&path, &owner).await.status, 204);
    }
}

#[tokio::test]
async fn an_organisation_has_a_limit_of_rules() {
    let server = TestServer::new();
    let owner = server.log_in().await;
    let many = |name: &str, count: usize| {
        format!("name: {name}\nrules:\n{}", "- {record: a, expr: '1'}\n".repeat(count))
    };
    for group in 0..5 {
        let made = put(&server, &owner, &format!("g{group}"), &many(&format!("g{group}"), 4_000), None).await;
        assert_eq!(made.status, 201, "{}", made.body);
    }
    put(&server, &owner, "more", &many("more", 1), None).await.is(409, "limit_reached");
    put(&server, &owner, "%2Fmore", &many("more", 1), None).await.is(400, "invalid_parameter");
    let (_, secret) = server.key(&owner, json!({ "scopes": ["alerting"] })).await;
    assert_eq!(set(&server, &Who::Bearer(secret), "infra", &many("more", 1)).await.status, 409);
    put(&server, &owner, "large", &many("large", 6_000), None).await.is(422, "validation_failed");
    let name = "n".repeat(201);
    put(&server, &owner, &name, &many(&name, 1), None).await.is(422, "validation_failed");
}

#[tokio::test]
async fn the_audit_log_names_the_key_that_changes_rules() {
    let server = TestServer::new();
    let owner = server.log_in().await;
    let (_, secret) = server.key(&owner, json!({ "scopes": ["alerting"] })).await;
    let key = Who::Bearer(secret);
    let one = |record: &str| format!("name: g\nrules: [{{record: {record}, expr: '1'}}]\n");
    for record in ["a", "b"] {
        assert_eq!(set(&server, &key, "infra", &one(record)).await.status, 202);
    }
    assert_eq!(server.delete(&format!("{RULER}/infra/g"), &key).await.status, 202);
    assert_eq!(set(&server, &key, "infra", &one("c")).await.status, 202);
    assert_eq!(server.delete(&format!("{RULER}/infra"), &key).await.status, 202);
    assert_eq!(set(&server, &owner, "infra", &one("d")).await.status, 202);
    for (action, actors) in [
        ("rules.created", ["api_key", "api_key", "user"].as_slice()),
        ("rules.changed", &["api_key"]),
        ("rules.removed", &["api_key", "api_key"]),
    ] {
        let events = server.get(&format!("/api/v1/orgs/acme/audit?action={action}"), &owner).await.value();
        let rows = events["data"].as_array().expect("rows").iter();
        let mut found: Vec<&str> = rows.filter_map(|row| row["actor"]["type"].as_str()).collect();
        // Entries of one millisecond have no order.
        found.sort_unstable();
        assert_eq!(found, actors, "{action}");
    }
}

#[tokio::test]
async fn rules_and_alerts_are_listed_as_prometheus_lists_them_with_all_filters() {
    let server = TestServer::new();
    let owner = server.log_in().await;
    write(&server, "a", 0, 5.0);
    put(&server, &owner, "g", GROUP, None).await;
    put(&server, &owner, "h", "name: h\nrules: [{record: z, expr: '1'}]\n", None).await;
    evaluate(&server, 0);
    evaluate(&server, 10);
    let rules = async |query: &str| server.get(&format!("{MOUNT}/api/v1/rules{query}"), &owner).await.value();
    let all = rules("").await;
    let group = &all["data"]["groups"][0];
    assert_eq!(
        (&group["name"], &group["file"], &group["interval"], &group["limit"]),
        (&json!("g"), &json!("api"), &json!(10), &json!(0))
    );
    let recording = &group["rules"][0];
    assert_eq!((&recording["type"], &recording["health"]), (&json!("recording"), &json!("ok")));
    assert_eq!(recording["labels"], json!({ "kind": "double" }));
    let alerting = &group["rules"][1];
    assert_eq!((&alerting["state"], &alerting["duration"]), (&json!("firing"), &json!(0)));
    assert_eq!(alerting["alerts"][0]["annotations"]["summary"], "a has 5");
    assert_eq!(alerting["alerts"][0]["value"], "5e+00");
    let never = &all["data"]["groups"][1]["rules"][0];
    assert_eq!(
        (&never["health"], &never["lastEvaluation"]),
        (&json!("unknown"), &json!("0001-01-01T00:00:00Z"))
    );
    let counts = |answer: &Value| -> Vec<usize> {
        let groups = answer["data"]["groups"].as_array().expect("groups").iter();
        groups.map(|group| group["rules"].as_array().map_or(0, Vec::len)).collect()
    };
    for (query, expected) in [
        ("", vec![2, 1]),
        ("?type=alert", vec![1]),
        ("?type=record", vec![1, 1]),
        ("?rule_name[]=High&rule_name[]=z", vec![1, 1]),
        ("?rule_group[]=h", vec![1]),
        ("?file[]=api", vec![2, 1]),
        ("?file[]=other", vec![]),
        ("?match[]=%7Bseverity=%22page%22%7D", vec![1]),
        ("?match[]=%7Bkind=~%22d.*%22%7D&match[]=%7Bseverity=%22page%22%7D", vec![2]),
        ("?group_limit=1", vec![2]),
    ] {
        assert_eq!(counts(&rules(query).await), expected, "{query}");
    }
    assert_eq!(rules("?exclude_alerts=true").await["data"]["groups"][0]["rules"][1]["alerts"], json!([]));
    let token = rules("?group_limit=1").await["data"]["groupNextToken"].as_str().expect("a token").to_owned();
    let second = rules(&format!("?group_limit=1&group_next_token={token}")).await;
    assert_eq!((counts(&second), &second["data"]["groupNextToken"]), (vec![1], &Value::Null));
    for query in [
        "?type=x",
        "?exclude_alerts=x",
        "?group_limit=0",
        "?group_next_token=x",
        "?group_limit=1&group_next_token=x",
    ] {
        let refused = server.get(&format!("{MOUNT}/api/v1/rules{query}"), &owner).await;
        assert_eq!(refused.status, 400, "{query}: {}", refused.body);
    }
    let alerts = server.get(&format!("{MOUNT}/api/v1/alerts"), &owner).await.value();
    assert_eq!(alerts["data"]["alerts"][0]["labels"]["alertname"], "High");
}

#[tokio::test]
async fn a_token_sees_no_rules_and_only_the_alerts_of_its_scope() {
    let server = TestServer::new();
    let owner = server.log_in().await;
    write(&server, "a", 0, 5.0);
    write(&server, "b", 0, 6.0);
    put(&server, &owner, "g", GROUP, None).await;
    evaluate(&server, 0);
    evaluate(&server, 10);
    let fields = json!({ "scopes": ["embed"], "embed": { "policy": { "alerts": {} } } });
    let (key, _) = server.key(&owner, fields).await;
    let scoped = json!({ "alerts": {}, "match": ["job=\"a\""] });
    let named = json!({ "alerts": {}, "metrics": ["x"] });
    // Any token could list them otherwise, such as one that lists expressions.
    let without = json!({ "exprs": ["sum(x)"] });
    for (policy, expected) in [(scoped, vec!["a"]), (named, vec![]), (without, vec![])] {
        let token = server.token(&owner, &key, json!({ "ms": policy })).await;
        let rules = server.get(&format!("{MOUNT}/api/v1/rules"), &token).await.value();
        assert_eq!(rules["data"], json!({ "groups": [] }));
        let alerts = server.get(&format!("{MOUNT}/api/v1/alerts"), &token).await.value();
        let alerts = alerts["data"]["alerts"].as_array().expect("alerts").clone();
        let jobs: Vec<&str> = alerts.iter().filter_map(|alert| alert["labels"]["job"].as_str()).collect();
        assert_eq!(jobs, expected);
        assert!(alerts.iter().all(|alert| alert["annotations"] == json!({}) && alert["value"] == "1e+00"));
        assert_eq!(server.get(RULER, &token).await.status, 404);
    }
}

/// A recording rule would write series without the forced labels, from series that the key cannot
/// read.
#[tokio::test]
async fn a_key_with_forced_labels_changes_no_rules_alerts_and_silences() {
    let server = TestServer::new();
    let owner = server.log_in().await;
    let fields =
        json!({ "scopes": ["ingest", "read", "alerting"], "ingest": { "labels": { "customer": "a" } } });
    let (_, secret) = server.key(&owner, fields).await;
    let key = Who::Bearer(secret);
    assert_eq!(set(&server, &key, "infra", GROUP).await.status, 403);
    assert_eq!(set(&server, &owner, "infra", GROUP).await.status, 202);
    assert_eq!(server.delete(&format!("{RULER}/infra/g"), &key).await.status, 403);
    assert_eq!(server.delete(&format!("{RULER}/infra"), &key).await.status, 403);
    let alerts = "/api/v1/orgs/acme/alertmanager/api/v2/alerts";
    let posted = server.post(alerts, &key, json!([{ "labels": { "alertname": "Mine" } }])).await;
    posted.refuses_as_alertmanager(403, "forbidden");
    let matcher = json!({ "name": "alertname", "value": ".*", "isRegex": true });
    let silence = json!({ "matchers": [matcher], "endsAt": "2099-01-01T00:00:00Z", "comment": "all" });
    let silences = "/api/v1/orgs/acme/alertmanager/api/v2/silences";
    server.post(silences, &key, silence).await.refuses_as_alertmanager(403, "forbidden");
    let none = "/api/v1/orgs/acme/alertmanager/api/v2/silence/none";
    server.delete(none, &key).await.refuses_as_alertmanager(403, "forbidden");
}

#[tokio::test]
async fn mimirtool_lists_sets_and_removes_groups_by_namespace() {
    let server = TestServer::new();
    let owner = server.log_in().await;
    let (_, secret) = server.key(&owner, json!({ "scopes": ["alerting", "read"] })).await;
    let tool = Who::Basic("acme".into(), secret);
    assert_eq!(server.get(RULER, &tool).await.status, 404);
    let send = async |namespace: &str, yaml: &str| set(&server, &tool, namespace, yaml).await;
    let stored = send("infra", GROUP).await;
    assert_eq!(stored.status, 202, "{}", stored.body);
    assert_eq!(stored.value()["status"], "success");
    assert_eq!(send("infra", GROUP).await.status, 202, "a change replaces any version");
    assert_eq!(send("infra", "name: [").await.status, 400);
    let all = server.get(RULER, &tool).await;
    assert_eq!(all.header("content-type"), "application/yaml");
    assert!(
        all.body.starts_with("\"infra\":\n    - name: g\n      interval: 10s\n      rules:\n"),
        "{}",
        all.body
    );
    assert_eq!(server.get(&format!("{RULER}/infra"), &tool).await.body, all.body);
    let one = server.get(&format!("{RULER}/infra/g"), &tool).await;
    assert!(one.body.starts_with("name: g\n"), "{}", one.body);
    assert_eq!(server.get(&format!("{RULER}/other"), &tool).await.status, 404);
    assert_eq!(server.get(&format!("{RULER}/infra/other"), &tool).await.status, 404);
    assert_eq!(server.get(&format!("{GROUPS}/infra%2Fg"), &owner).await.value()["version"], 2);
    assert_eq!(server.delete(&format!("{RULER}/infra/g"), &tool).await.status, 202);
    assert_eq!(server.delete(&format!("{RULER}/infra/g"), &tool).await.status, 404);
    send("infra", GROUP).await;
    assert_eq!(server.delete(&format!("{RULER}/infra"), &tool).await.status, 202);
    assert_eq!(server.delete(&format!("{RULER}/infra"), &tool).await.status, 404);
    assert_eq!(server.rules.counters().groups, 0);
}

#[tokio::test]
async fn a_preview_has_the_transitions_and_a_backfill_writes_the_series() {
    let server = TestServer::new();
    let owner = server.log_in().await;
    for step in 0..10 {
        write(&server, "a", 100 - step * 10, if (3..6).contains(&step) { 5.0 } else { 0.0 });
    }
    let now = server.clock.now().as_s();
    let ask = |yaml: &str| json!({ "yaml": yaml, "start": now - 100, "end": now - 10, "step": 10 });
    let path = "/api/v1/orgs/acme/rules/preview";
    let preview = server.post(path, &owner, ask("{alert: A, expr: x > 1, for: 10s}")).await.value();
    let states: Vec<_> =
        preview["transitions"].as_array().expect("list").iter().map(|one| one["state"].clone()).collect();
    assert_eq!(states, [json!("pending"), json!("firing"), json!("resolved")]);
    assert_eq!(preview["series"][0]["values"][0], json!([now as f64 - 70.0, "5"]));
    assert_eq!(preview["truncated"], false);
    assert_eq!(preview["estimate"]["series"], 1);
    server.post(path, &owner, ask("{alert: A, expr: 'x >'}")).await.is(422, "validation_failed");
    let failing = ask("{record: y, expr: 'label_replace(x, \"a\", \"b\", \"job\", \"(\")'}");
    server.post(path, &owner, failing.clone()).await.is(422, "query_failed");
    let mut wrong = ask("{alert: A, expr: x}");
    wrong["step"] = json!("0s");
    server.post(path, &owner, wrong).await.is(422, "validation_failed");
    let path = "/api/v1/orgs/acme/rules/backfill";
    let done = server.post(path, &owner, ask("{record: y, expr: x + 1}")).await.value();
    assert_eq!(done, json!({ "stored": 10, "refused": 0, "next": null }));
    let query = format!("{MOUNT}/api/v1/query?query=count_over_time(y[2m])&time={}", now - 10);
    assert_eq!(server.get(&query, &owner).await.value()["data"]["result"][0]["value"][1], "10");
    server.post(path, &owner, ask("{alert: A, expr: x}")).await.is(422, "validation_failed");
    server.post(path, &owner, failing).await.is(422, "query_failed");
    // Three samples and the marker of their end, also the second time.
    for _ in 0..2 {
        let done = server.post(path, &owner, ask("{record: v, expr: x > 1}")).await.value();
        assert_eq!(done, json!({ "stored": 4, "refused": 0, "next": null }));
    }
    // A preview evaluates all steps, and a backfill takes a request for each 10,000.
    let long =
        json!({ "yaml": "{record: l, expr: vector(1)}", "start": now - 12_000, "end": now, "step": 1 });
    server.post("/api/v1/orgs/acme/rules/preview", &owner, long.clone()).await.is(422, "validation_failed");
    let mut rest = long.clone();
    let (mut stored, mut requests) = (0, 0);
    while !rest["start"].is_null() {
        let done = server.post(path, &owner, rest.clone()).await.value();
        stored += done["stored"].as_u64().expect("a number");
        rest["start"] = done["next"].clone();
        requests += 1;
    }
    assert!(stored == 12_001 && requests > 1, "{stored} samples by {requests} requests");
    let limited =
        json!({ "yaml": "{record: w, expr: x}", "start": now - 9, "end": now, "step": 1, "limit": 1 });
    assert_eq!(server.post(path, &owner, limited.clone()).await.status, 200);
    for end in [json!(now + 1), json!("now+1h"), json!("2999-01-01T00:00:00Z")] {
        let mut future = limited.clone();
        (future["start"], future["end"]) = (end.clone(), end);
        let refused = server.post(path, &owner, future).await;
        assert!(refused.body.contains("\"end\""), "{}", refused.body);
        refused.is(422, "validation_failed");
    }
}

/// At the last step of a request, such a rule would now read the sample of that step.
#[tokio::test]
async fn requests_of_a_rule_that_reads_its_own_samples_continue_one_another() {
    let server = TestServer::new();
    let owner = server.log_in().await;
    let now = server.clock.now().as_s();
    let first = now - 12_000;
    let path = "/api/v1/orgs/acme/rules/backfill";
    // The sample of each step ends at the next one.
    let rule = "{record: y, expr: 'vector(1) unless y'}";
    let one = json!({ "yaml": rule, "start": first, "end": first, "step": 1 });
    assert_eq!(server.post(path, &owner, one).await.value()["stored"], 1);
    let mut body = json!({ "yaml": rule, "start": first + 1, "end": now, "step": 1 });
    let mut nexts = Vec::new();
    while !body["start"].is_null() {
        let done = server.post(path, &owner, body.clone()).await;
        assert_eq!(done.status, 200, "{}", done.body);
        body["start"] = done.value()["next"].clone();
        nexts.push(body["start"].clone());
    }
    assert!(nexts.len() > 1, "{nexts:?}");
    // A repetition reads no sample of the requests before.
    let again = json!({ "yaml": rule, "start": first + 100, "end": first + 200, "step": 1 });
    let again = server.post(path, &owner, again).await.value();
    assert_eq!(again, json!({ "stored": 101, "refused": 0, "next": null }));
    let org = server.identity.orgs().expect("read")[0].id;
    let snapshot = server.tsdb.snapshot(&Access::whole(org));
    let matcher = Matcher::new("__name__", MatchOp::Equal, "y").expect("valid");
    let found = snapshot.select(&[matcher], TimeRange::ALL);
    let mut columns = SampleColumns::default();
    snapshot.read(found[0].id, TimeRange::ALL, &mut columns);
    assert_eq!(columns.times, (first..=now).map(|second| second * 1_000).collect::<Vec<_>>());
    let values = columns.values.iter().zip(0..);
    assert!(values.into_iter().all(|(value, step)| is_stale(*value) == (step % 2 == 1)));
}

/// A key that may store a recording rule may also write its past.
#[tokio::test]
async fn a_key_with_the_scope_alerting_backfills_and_others_are_refused() {
    const BACKFILL: &str = "/api/v1/orgs/acme/rules/backfill";
    let server = TestServer::new();
    let owner = server.log_in().await;
    write(&server, "a", 20, 3.0);
    let now = server.clock.now().as_s();
    let ask = |rule: &str| json!({ "yaml": rule, "start": now - 20, "end": now, "step": 10 });
    let key = async |fields: Value| Who::Bearer(server.key(&owner, fields).await.1);
    let alerting = key(json!({ "scopes": ["alerting"] })).await;
    let done = server.post(BACKFILL, &alerting, ask("{record: y, expr: x}")).await;
    assert_eq!(done.value(), json!({ "stored": 3, "refused": 0, "next": null }), "{}", done.body);
    server.post(BACKFILL, &owner, ask("{record: z, expr: x}")).await;
    // The same refusals as those of an editor, without an entry.
    server.post(BACKFILL, &alerting, ask("{alert: A, expr: x}")).await.is(422, "validation_failed");
    let mut future = ask("{record: y, expr: x}");
    future["end"] = json!(now + 1);
    server.post(BACKFILL, &alerting, future).await.is(422, "validation_failed");
    let twice = "{record: y, expr: 'label_replace(vector(1), \"a\", \"b\", \"\", \"(\")'}";
    let failed = server.post(BACKFILL, &alerting, ask(twice)).await;
    failed.is(422, "query_failed");
    assert_eq!(failed.value()["at"], server.clock.now().plus_ms(-20_000).to_rfc3339());

    let forced = json!({ "scopes": ["ingest", "read", "alerting"], "ingest": { "labels": { "a": "b" } } });
    for fields in [json!({ "scopes": ["ingest"] }), json!({ "scopes": ["read", "embed"] }), forced] {
        let refused = server.post(BACKFILL, &key(fields).await, ask("{record: no, expr: x}")).await;
        refused.is(403, "forbidden");
    }
    let (embed, _) = server.key(&owner, json!({ "scopes": ["embed"] })).await;
    let token = server.token(&owner, &embed, json!({})).await;
    server.post(BACKFILL, &token, ask("{record: no, expr: x}")).await.is(403, "embed_restricted");
    server.post(BACKFILL, &Who::Nobody, ask("{record: no, expr: x}")).await.is(401, "unauthenticated");
    server
        .post("/api/v1/orgs/other/rules/backfill", &alerting, ask("{record: no, expr: x}"))
        .await
        .is(403, "org_mismatch");
    let slow = key(json!({ "scopes": ["alerting", "read"], "read": { "rate_limit_rps": 1 } })).await;
    let mut statuses = Vec::new();
    for _ in 0..20 {
        statuses.push(server.post(BACKFILL, &slow, ask("{alert: A, expr: x}")).await.status.as_u16());
    }
    assert!(statuses.contains(&429), "the limit of the key: {statuses:?}");

    let events = server.get("/api/v1/orgs/acme/audit?action=rules.backfilled", &owner).await.value();
    let rows = events["data"].as_array().expect("rows").iter();
    let mut entries: Vec<String> =
        rows.map(|row| format!("{} by {}", row["target"], row["actor"]["type"])).collect();
    entries.sort();
    assert_eq!(entries, [r#""y" by "api_key""#, r#""y" by "api_key""#, r#""z" by "user""#]);
}

#[tokio::test]
async fn patterns_are_compiled_within_the_timeout_and_samples_elsewhere_have_no_past() {
    let mut plan = TestServerOptions::default();
    plan.options.read.timeout = Duration::ZERO;
    let server = TestServer::build(plan);
    let owner = server.log_in().await;
    let rule = "{record: y, expr: 'x{job=~\"a.*b?\"}'}";
    let group = format!("name: g\nrules:\n- {rule}\n");
    put(&server, &owner, "g", &group, None).await.is(503, "query_timeout");
    let past = json!({ "yaml": rule, "start": 0, "end": 10, "step": 1 });
    for path in ["preview", "backfill"] {
        let path = format!("/api/v1/orgs/acme/rules/{path}");
        server.post(&path, &owner, past.clone()).await.is(503, "query_timeout");
    }
    let (_, secret) = server.key(&owner, json!({ "scopes": ["alerting"] })).await;
    let late = set(&server, &Who::Bearer(secret), "infra", &group).await;
    assert_eq!(late.status, 503, "{}", late.body);

    let mut plan = TestServerOptions::default();
    plan.options.egress = crate::engine::loopback();
    let server = TestServer::build(plan);
    let owner = server.log_in().await;
    let engine = json!({ "engine": "upstream", "url": "http://127.0.0.1:1" });
    let engine = server.json("PUT", "/api/v1/orgs/acme/engine?probe=false", &owner, engine).await;
    assert_eq!(engine.status, 200, "{}", engine.body);
    let past = json!({ "yaml": "{record: y, expr: x}", "start": 0, "end": 10, "step": 1 });
    for path in ["preview", "backfill"] {
        let path = format!("/api/v1/orgs/acme/rules/{path}");
        server.post(&path, &owner, past.clone()).await.is(409, "engine_upstream");
    }
    assert_eq!(put(&server, &owner, "g", GROUP, None).await.status, 201);
    assert_eq!(server.rules.counters().groups, 0, "not evaluated here");
    let (_, secret) = server.key(&owner, json!({ "scopes": ["read"] })).await;
    let shown = server.get(RULER, &Who::Bearer(secret)).await;
    assert!(shown.body.starts_with("\"api\":\n    - name: g\n"), "{}", shown.body);
}

#[tokio::test]
async fn stored_groups_are_evaluated_after_a_restart_and_end_with_their_organisation() {
    let server = TestServer::new();
    let owner = server.log_in().await;
    put(&server, &owner, "g", GROUP, None).await;
    let org = server.identity.orgs().expect("read")[0].id;
    server.rules.forget_org(org);
    reconcile(&server.identity, &server.rules);
    assert_eq!(server.rules.groups(org).len(), 1);
    assert_eq!(server.rules.groups(org)[0].rules.len(), 2);
    let removed = server.json("DELETE", "/api/v1/orgs/acme", &owner, json!({ "confirm": "acme" })).await;
    assert_eq!(removed.status, 202, "{}", removed.body);
    server.identity.finish_removal(org).expect("removed");
    reconcile(&server.identity, &server.rules);
    assert_eq!(server.rules.groups(org).len(), 0);
    assert_eq!(server.identity.all_rule_groups().expect("read"), []);
}
