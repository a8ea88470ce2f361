//! The requests of `mimirtool rules`, as its client sends them: paths below the address, escaped
//! segments, the tenant in `X-Scope-OrgID` and as the user name, bodies without a content type.

use axum::body::Body;
use axum::http::header;
use serde_json::json;

use crate::rules::RULER;
use crate::test_server::{Reply, TestServer, Who, ask};

/// A group as Go's YAML library writes it.
const LOADED: &str = "name: example
interval: 1m
query_offset: 30s
rules:
    - record: job:up:sum
      expr: sum by (job) (up)
    - alert: Down
      expr: up == 0
      for: 5m
      labels:
        severity: page
      annotations:
        summary: '{{ $labels.job }} is down'
";

struct Mimirtool<'a> {
    server: &'a TestServer,
    who: Who,
    tenant: &'static str,
}

impl Mimirtool<'_> {
    async fn send(&self, method: &str, path: &str, body: Option<&str>) -> Reply {
        let request = ask(method, &format!("{RULER}{path}"), &self.who)
            .header(header::USER_AGENT, "mimirtool/2.17.1 (version=2.17.1, branch=HEAD)")
            .header(header::ACCEPT_ENCODING, "gzip")
            .header("X-Scope-OrgID", self.tenant);
        let body = body.map_or_else(Body::empty, |body| Body::from(body.to_owned()));
        self.server.send(request.body(body).expect("a request")).await
    }
}

#[tokio::test]
async fn mimirtool_rules_load_diff_sync_list_get_and_delete_work() {
    let server = TestServer::new();
    let owner = server.log_in().await;
    let (_, secret) = server.key(&owner, json!({ "scopes": ["alerting", "read"] })).await;
    // `--user` is not set: the tenant is the user name.
    let basic = Who::Basic("acme".into(), secret.clone());
    for who in [basic, Who::Bearer(secret.clone())] {
        let tool = Mimirtool { server: &server, who, tenant: "acme" };
        // `list` and `diff` of a tenant without groups: 404 stands for none.
        assert_eq!(tool.send("GET", "", None).await.status, 404);
        // `load` asks for each group, and creates those that are missing. A space is escaped.
        assert_eq!(tool.send("GET", "/infra%20team/example", None).await.status, 404);
        assert_eq!(tool.send("POST", "/infra%20team", Some(LOADED)).await.status, 202);
        let got = tool.send("GET", "/infra%20team/example", None).await;
        assert_eq!((got.status.as_u16(), got.header("content-type")), (200, "application/yaml"));
        for line in ["name: example", "interval: 1m", "query_offset: 30s", "for: 5m", "severity: page"] {
            assert!(got.body.contains(line), "{line}: {}", got.body);
        }
        // `sync` and `diff` list all, `sync` then replaces, creates and deletes.
        let listed = tool.send("GET", "", None).await;
        assert!(listed.body.starts_with("\"infra team\":\n    - name: example\n"), "{}", listed.body);
        let changed = LOADED.replace("up == 0", "up < 1");
        assert_eq!(tool.send("POST", "/infra%20team", Some(&changed)).await.status, 202);
        let other = "name: a/b:c\nrules:\n    - record: y\n      expr: x\n";
        assert_eq!(tool.send("POST", "/other.yml", Some(other)).await.status, 202);
        let listed = tool.send("GET", "", None).await;
        assert!(
            listed.body.contains("up < 1") && listed.body.contains("\"other.yml\":\n"),
            "{}",
            listed.body
        );
        assert_eq!(tool.send("GET", "/other.yml", None).await.status, 200);
        assert_eq!(tool.send("GET", "/other.yml/a%2Fb:c", None).await.status, 200);
        assert_eq!(tool.send("DELETE", "/other.yml/a%2Fb:c", None).await.status, 202);
        assert_eq!(tool.send("DELETE", "/other.yml/a%2Fb:c", None).await.status, 404);
        // `delete-namespace`.
        assert_eq!(tool.send("DELETE", "/infra%20team", None).await.status, 202);
        assert_eq!(tool.send("GET", "", None).await.status, 404);
        // What Mimir refuses is no 404, which would count as a missing group.
        assert_eq!(
            tool.send("POST", "/infra%20team", Some("name: x\nrules: [{alert: A}]\n")).await.status,
            400
        );
        assert_eq!(tool.send("POST", "/a%2Fb", Some(LOADED)).await.status, 400);
    }
    let tool = Mimirtool { server: &server, who: Who::Bearer(secret), tenant: "other" };
    assert_eq!(tool.send("GET", "", None).await.status, 403, "another tenant");
}
