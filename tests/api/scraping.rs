//! The scrape configuration of an organisation, and its targets in the Prometheus API
//! (docs/specification.md C15).

use std::time::Duration;

use serde_json::{Value, json};

use crate::eventually::eventually;
use crate::members::change_in_two_parts;
use crate::test_server::{PASSWORD, Reply, TestServer, TestServerOptions, Who};

const CONFIG: &str = "/api/v1/orgs/acme/scrape-config";
const MOUNT: &str = "/api/v1/orgs/acme/prometheus/api/v1";

const TEXT: &str = "global: {scrape_interval: 1h}\n\
scrape_configs:\n\
- job_name: web\n  \
  basic_auth: {username: me, password: sesame}\n  \
  static_configs: [{targets: ['web.example:80', 'gone.example:80'], labels: {zone: eu}}]\n  \
  relabel_configs:\n  \
  - {source_labels: [__address__], regex: 'gone.*', action: drop}\n  \
  - {target_label: team, replacement: a}\n\
- {job_name: empty}\n";

/// Waits until this number of targets runs.
fn wait_for(server: &TestServer, count: usize) {
    let org = server.identity.orgs().expect("readable").first().expect("one").id;
    let running = || server.scrapers.view(org).reports.len();
    let failure = || format!("{} targets instead of {count}", running());
    eventually(Duration::from_secs(60), failure, || (running() == count).then_some(()));
}

/// Returns the member `data` of a response.
async fn data(server: &TestServer, who: &Who, path: &str) -> Value {
    let reply = server.get(&format!("{MOUNT}/{}", escaped(path)), who).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    reply.value()["data"].clone()
}

async fn put(server: &TestServer, who: &Who, text: &str) -> Reply {
    server.json("PUT", CONFIG, who, json!({ "text": text })).await
}

/// Creates a member of the organisation by an invitation, and logs in.
async fn joined(server: &TestServer, admin: &Who, name: &str, role: &str) -> Who {
    let email = format!("{name}@example.com");
    let body = json!({ "email": email, "role": role });
    let invite = server.post("/api/v1/orgs/acme/invites", admin, body).await;
    assert_eq!(invite.status, 201, "{}", invite.body);
    let url = invite.text("url");
    let token = url.split("token=").nth(1).expect("a token in the link").to_owned();
    let accept = json!({ "token": token, "name": name, "password": PASSWORD });
    let accepted = server.post("/api/v1/auth/invites/accept", &Who::Nobody, accept).await;
    assert_eq!(accepted.status, 201, "{}", accepted.body);
    let body = json!({ "email": email, "password": PASSWORD });
    let reply = server.post("/api/v1/auth/login", &Who::Nobody, body).await;
    Who::Cookie(reply.session_cookie().expect("a session"))
}

/// Escapes the characters of JSON and selectors in a URL.
fn escaped(text: &str) -> String {
    text.replace('{', "%7B").replace('}', "%7D").replace('"', "%22")
}

#[tokio::test]
async fn a_scrape_configuration_is_set_shown_without_secrets_and_removed() {
    let server = TestServer::new();
    let admin = server.log_in().await;
    server.get(CONFIG, &admin).await.is(404, "not_found");
    let set = put(&server, &admin, TEXT).await;
    assert_eq!(set.status, 200, "{}", set.body);
    let shown = server.get(CONFIG, &admin).await.value();
    assert_eq!((&shown["version"], &shown["problem"]), (&json!(1), &Value::Null));
    assert_eq!(shown["text"], TEXT.replace("sesame", "<secret>"));
    let again = put(&server, &admin, shown["text"].as_str().expect("a text")).await;
    again.is(422, "validation_failed");
    assert!(again.body.contains("replace <secret> by the secret"), "{}", again.body);
    for (text, part) in [
        ("scrape_config: []\n", "line 1, column 1: unknown key"),
        (
            "scrape_configs:\n- {job_name: a, bearer_token_file: /etc/passwd}\n",
            "line 2, column 36: a configuration that is set by the API",
        ),
    ] {
        let refused = put(&server, &admin, text).await;
        refused.is(422, "validation_failed");
        assert!(refused.body.contains(part), "{}", refused.body);
    }
    let large = put(&server, &admin, &" ".repeat((1 << 20) + 1)).await;
    large.is(413, "body_too_large");
    let shown = server.get(CONFIG, &admin).await.value();
    assert_eq!(shown["version"], 1, "a refused configuration changes nothing");
    assert_eq!(put(&server, &admin, "scrape_configs: []\n").await.value()["version"], 2);
    assert_eq!(server.delete(CONFIG, &admin).await.status, 204);
    server.delete(CONFIG, &admin).await.is(404, "not_found");
    let events = server.get("/api/v1/orgs/acme/audit?action=scrape.*", &admin).await.value();
    let rows = events["data"].as_array().expect("rows");
    // They happened at one time of the clock.
    let mut actions: Vec<_> = rows.iter().map(|row| row["action"].as_str().unwrap_or_default()).collect();
    actions.sort_unstable();
    assert_eq!(actions, ["scrape.changed", "scrape.changed", "scrape.removed"]);
    const UNKNOWN: &str = "/api/v1/orgs/none/scrape-config";
    server.get(UNKNOWN, &admin).await.is(404, "org_not_found");
    server.json("PUT", UNKNOWN, &admin, json!({ "text": TEXT })).await.is(404, "org_not_found");
    server.delete(UNKNOWN, &admin).await.is(404, "org_not_found");
}

#[tokio::test]
async fn an_administrator_reloads_the_file_and_is_told_what_is_wrong_with_it() {
    let why = "prometheus.yml: line 1, column 19: unknown key \"job_nam\"";
    for file in [None, Some(Ok(2)), Some(Err(why))] {
        let options = TestServerOptions { scrape_file: file, ..TestServerOptions::default() };
        let server = TestServer::build(options);
        let admin = server.log_in().await;
        let reload = server.post("/api/v1/admin/scrape/reload", &admin, Value::Null).await;
        match file {
            None => reload.is(404, "not_found"),
            Some(Ok(jobs)) => {
                assert_eq!((reload.status.as_u16(), &reload.value()["jobs"]), (200, &json!(jobs)))
            }
            Some(Err(why)) => {
                reload.is(422, "validation_failed");
                assert!(reload.text("detail").contains(why), "{}", reload.body);
            }
        }
    }
}

#[tokio::test]
async fn a_secret_in_several_lines_hides_the_whole_text() {
    let server = TestServer::new();
    let admin = server.log_in().await;
    let text = "scrape_configs:\n- job_name: a\n  basic_auth:\n    password: \"ses\\x61me\"\n";
    assert_eq!(put(&server, &admin, text).await.status, 200);
    let shown = server.get(CONFIG, &admin).await;
    assert_eq!(shown.value()["text"], Value::Null);
    assert!(!shown.body.contains("ses"), "{}", shown.body);
}

#[tokio::test]
async fn administrators_of_organisations_configure_scraping_only_where_the_operator_allows_it() {
    for allowed in [false, true] {
        let options =
            TestServerOptions { scrape_org_admins: allowed, console: true, ..TestServerOptions::default() };
        let server = TestServer::build(options);
        let admin = server.log_in().await;
        let mut members = Vec::new();
        for (name, role) in [("admin", "admin"), ("editor", "editor")] {
            members.push(joined(&server, &admin, name, role).await);
        }
        let status = put(&server, &members[0], "").await.status.as_u16();
        assert_eq!(status, if allowed { 200 } else { 403 }, "an administrator of the organisation");
        assert_eq!(put(&server, &members[1], "").await.status, 403, "an editor");
    }
}

#[tokio::test]
async fn an_administrator_whose_role_is_withdrawn_while_the_body_arrives_configures_no_scraping() {
    let options =
        TestServerOptions { scrape_org_admins: true, console: true, ..TestServerOptions::default() };
    let server = TestServer::build(options);
    let owner = server.log_in().await;
    let admin = joined(&server, &owner, "admin", "admin").await;
    let account = server.get("/api/v1/auth/me", &admin).await.value();
    let member = format!("/api/v1/orgs/acme/members/{}", account["user"]["id"].as_str().expect("an id"));
    let withdraw = async {
        assert_eq!(server.json("PATCH", &member, &owner, json!({ "role": "viewer" })).await.status, 200);
    };
    let parts = ["{\"text\":", "\"\"}"];
    let reply = change_in_two_parts(&server, ("PUT", CONFIG, &admin), parts, withdraw).await;
    reply.is(403, "forbidden");
    server.get(CONFIG, &owner).await.is(404, "not_found");
}

#[tokio::test]
async fn targets_have_the_bodies_of_prometheus() {
    let server = TestServer::new();
    let admin = server.log_in().await;
    let none = data(&server, &admin, "targets").await;
    assert_eq!(none, json!({ "activeTargets": [], "droppedTargets": [], "droppedTargetCounts": {} }));
    assert_eq!(put(&server, &admin, TEXT).await.status, 200);
    wait_for(&server, 1);
    let all = data(&server, &admin, "targets").await;
    let discovered = |address: &str| {
        json!({
            "__address__": address,
            "__metrics_path__": "/metrics",
            "__scheme__": "http",
            "__scrape_interval__": "1h",
            "__scrape_timeout__": "10s",
            "job": "web",
            "zone": "eu",
        })
    };
    let active = json!([{
        "discoveredLabels": discovered("web.example:80"),
        "labels": { "instance": "web.example:80", "job": "web", "team": "a", "zone": "eu" },
        "scrapePool": "web",
        "scrapeUrl": "http://web.example:80/metrics",
        "globalUrl": "http://web.example:80/metrics",
        "lastError": "",
        "lastScrape": "0001-01-01T00:00:00Z",
        "lastScrapeDuration": 0.0,
        "health": "unknown",
        "scrapeInterval": "1h",
        "scrapeTimeout": "10s",
    }]);
    let dropped = json!([{ "discoveredLabels": discovered("gone.example:80"), "scrapePool": "web" }]);
    let counts = json!({ "empty": 0, "web": 1 });
    assert_eq!(
        all,
        json!({ "activeTargets": active, "droppedTargets": dropped, "droppedTargetCounts": counts })
    );
    let get = async |path: &str| data(&server, &admin, path).await;
    let only = get("targets?state=active").await;
    assert_eq!(only, json!({ "activeTargets": active, "droppedTargets": [], "droppedTargetCounts": null }));
    let only = get("targets?state=dropped").await;
    assert_eq!(
        only,
        json!({ "activeTargets": [], "droppedTargets": dropped, "droppedTargetCounts": counts })
    );
    let only = get("targets?scrapePool=empty").await;
    assert_eq!((&only["activeTargets"], &only["droppedTargets"]), (&json!([]), &json!([])));
    assert_eq!(get("scrape_pools").await, json!({ "scrapePools": ["empty", "web"] }));
    assert_eq!(get("targets/metadata?match_target={job=\"web\"}").await, json!([]));
    let steps =
        get("targets/relabel_steps?scrapePool=web&labels={\"__address__\":\"gone.example:80\"}").await;
    let steps = steps["steps"].as_array().expect("steps");
    assert_eq!((steps.len(), &steps[0]["keep"], &steps[0]["output"]), (1, &json!(false), &json!({})));
    assert_eq!(
        steps[0]["rule"],
        json!({ "source_labels": ["__address__"], "separator": ";", "regex": "gone.*", "replacement": "$1", "action": "drop" })
    );
    let steps = get("targets/relabel_steps?scrapePool=web&labels={\"__address__\":\"a\"}").await;
    assert_eq!(steps["steps"][1]["output"]["team"], "a");
    for wrong in ["?labels={}", "?scrapePool=web", "?scrapePool=none&labels={}", "?scrapePool=web&labels=x"] {
        let reply = server.get(&format!("{MOUNT}/targets/relabel_steps{}", escaped(wrong)), &admin).await;
        assert!(reply.status.is_client_error(), "{wrong}: {}", reply.body);
    }
    let shown = get("status/config").await["yaml"].as_str().expect("a text").to_owned();
    assert!(shown.contains("    password: <secret>\n    username: me\n"), "{shown}");
    assert!(shown.contains("    targets:\n    - \"web.example:80\"\n"), "{shown}");
    assert!(!shown.contains("sesame"), "{shown}");
    let (key, _) = server.key(&admin, json!({ "scopes": ["embed"] })).await;
    let token = server.token(&admin, &key, json!({})).await;
    assert_eq!(data(&server, &token, "status/config").await, json!({ "yaml": "" }), "it sees no targets");
    let removed = server.delete(CONFIG, &admin).await;
    assert_eq!(removed.status, 204);
    wait_for(&server, 0);
    assert_eq!(get("status/config").await, json!({ "yaml": "" }));
}
