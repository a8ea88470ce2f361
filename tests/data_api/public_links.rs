//! Public links on the endpoints of a dashboard (docs/specification.md C9): what a viewer gets, and
//! what ends a stream.

use std::time::Duration;

use axum::body::Body;
use axum::http::header;
use promlet::identity::{DashboardDocument, ProvisionedDashboard};
use serde_json::{Value, json};

use crate::live::Stream;
use crate::test_server::{Reply, Who, ask};
use crate::wire::DataFixture;

const DASHBOARDS: &str = "/api/v1/orgs/acme/dashboards";

/// A dashboard with one query, whose variable `job` is a label of the series.
fn document(uid: &str) -> Value {
    json!({
        "uid": uid,
        "title": "Jobs",
        "templating": { "list": [{ "name": "job", "type": "custom", "query": "api,web", "current": { "value": "web" } }] },
        "panels": [{ "id": 4, "type": "timeseries", "targets": [{ "refId": "A", "expr": "count by (job) (up)" }] }],
    })
}

struct LinkFixture {
    data: DataFixture,
}

impl LinkFixture {
    async fn new() -> LinkFixture {
        let data = DataFixture::with_shop().await;
        for uid in ["jobs", "other"] {
            let made =
                data.server.post(DASHBOARDS, &data.cabinet, json!({ "dashboard": document(uid) })).await;
            assert_eq!(made.status, 201, "{}", made.body);
        }
        let fixture = LinkFixture { data };
        fixture.allow(true).await;
        fixture
    }

    async fn allow(&self, on: bool) {
        let body = json!({ "settings": { "public_links": on } });
        let reply = self.data.server.json("PATCH", "/api/v1/orgs/acme", &self.data.cabinet, body).await;
        assert_eq!(reply.status, 200, "{}", reply.body);
    }

    /// Creates a link of a dashboard. Returns its path and its secret.
    async fn link(&self, uid: &str, fields: Value) -> (String, Who) {
        let path = format!("{DASHBOARDS}/{uid}/links");
        let made = self.data.server.post(&path, &self.data.cabinet, fields).await;
        assert_eq!(made.status, 201, "{}", made.body);
        let secret = made.text("url").split_once("link=").expect("a secret").1.to_owned();
        (format!("{path}/{}", made.text("id")), Who::Bearer(secret))
    }

    async fn change(&self, link: &str, fields: Value) {
        let reply = self.data.server.json("PATCH", link, &self.data.cabinet, fields).await;
        assert_eq!(reply.status, 200, "{}", reply.body);
    }

    async fn view(&self, uid: &str, link: &Who) -> Reply {
        self.data.server.get(&format!("{DASHBOARDS}/{uid}/view"), link).await
    }

    /// Returns the jobs in the result of the query, or the code of its error.
    async fn jobs(&self, uid: &str, link: &Who, variables: Value) -> Result<Vec<String>, String> {
        let query = json!({ "id": "q", "panel": 4, "ref": "A", "type": "instant" });
        let body = json!({ "variables": variables, "queries": [query] });
        let reply = self.data.server.post(&format!("{DASHBOARDS}/{uid}/data"), link, body).await;
        let line: Value =
            serde_json::from_str(reply.body.lines().next().unwrap_or_default()).expect("a line");
        if let Some(code) = line["code"].as_str() {
            return Err(code.to_owned());
        }
        let series = line["data"]["result"].as_array().expect("series").iter();
        Ok(series.map(|one| one["metric"]["job"].as_str().unwrap_or_default().to_owned()).collect())
    }

    async fn stream(&self, uid: &str, link: &Who) -> Stream {
        let query = json!({ "id": "q", "panel": 4, "ref": "A", "step": "1h" });
        let request = ask("POST", &format!("{DASHBOARDS}/{uid}/live"), link)
            .header(header::CONTENT_TYPE, "application/json")
            .body(Body::from(json!({ "queries": [query] }).to_string()));
        Stream::of(&self.data, request.expect("a request")).await
    }
}

/// Reads the events of a stream up to its end. Returns the code.
async fn end(stream: &mut Stream) -> String {
    loop {
        let (name, _, data) = stream.next().await.expect("an event before the end of the stream");
        match name.as_str() {
            "end" => return data["code"].as_str().expect("a code").to_owned(),
            other => assert_ne!(other, "error", "{data}"),
        }
    }
}

#[tokio::test]
async fn a_link_shows_the_series_of_its_lock_in_its_own_dashboard_alone() {
    let fixture = LinkFixture::new().await;
    let (_, locked) = fixture.link("jobs", json!({ "locked": { "job": "api" } })).await;
    let (_, plain) = fixture.link("jobs", json!({ "open": { "job": ["web"] } })).await;
    let view = fixture.view("jobs", &locked).await;
    assert_eq!(view.status, 200, "{}", view.body);
    assert_eq!(view.value()["variables"]["job"], json!({ "access": "locked", "value": ["api"] }));
    assert!(!view.body.contains("count by"), "no expression: {}", view.body);
    assert_eq!(fixture.jobs("jobs", &locked, json!({})).await, Ok(vec!["api".to_owned()]));
    let widened = fixture.jobs("jobs", &locked, json!({ "job": ["web"] })).await;
    assert_eq!(widened, Err("embed_restricted".to_owned()));
    let all = fixture.jobs("jobs", &plain, json!({ "job": ["web"] })).await.expect("both");
    assert!(all.contains(&"api".to_owned()) && all.contains(&"web".to_owned()), "{all:?}");
    assert!(fixture.jobs("jobs", &plain, json!({ "job": ["api"] })).await.is_err());
    for link in [&locked, &plain] {
        assert_eq!(fixture.jobs("other", link, json!({})).await, Err("embed_restricted".to_owned()));
        fixture.view("other", link).await.is(403, "embed_restricted");
        fixture.view("none", link).await.is(403, "embed_restricted");
        for closed in ["metrics", "metrics/up/labels", "query/expr-instant?expr=up", "query/live?expr=up"] {
            fixture.data.get_as(link, closed).await.is(403, "embed_restricted");
        }
        let batch = json!({ "queries": [{ "id": "q", "expr": "up", "type": "instant" }] });
        let batch = fixture.data.server.post("/api/v1/orgs/acme/query/batch", link, batch).await;
        batch.is(403, "embed_restricted");
        fixture.data.server.get(&format!("{DASHBOARDS}/jobs"), link).await.is(401, "session_required");
    }
}

#[tokio::test]
async fn a_link_that_ends_ends_its_streams_within_a_second_of_the_next_check() {
    let fixture = LinkFixture::new().await;
    let (other, kept) = fixture.link("other", json!({})).await;
    let mut kept = fixture.stream("other", &kept).await;
    assert_eq!(kept.next().await.expect("an event").0, "points");

    let (path, link) = fixture.link("jobs", json!({})).await;
    let mut changed = fixture.stream("jobs", &link).await;
    fixture.change(&path, json!({ "locked": { "job": "api" } })).await;
    assert_eq!(end(&mut changed).await, "public_link_invalid");

    let mut disabled = fixture.stream("jobs", &link).await;
    fixture.change(&path, json!({ "disabled": true })).await;
    assert_eq!(end(&mut disabled).await, "public_link_invalid");
    fixture.change(&path, json!({ "disabled": false })).await;

    let soon = fixture.data.server.clock.now().plus(Duration::from_secs(5)).to_rfc3339();
    fixture.change(&path, json!({ "expires_at": soon })).await;
    let mut expired = fixture.stream("jobs", &link).await;
    fixture.data.server.pass(Duration::from_secs(5));
    assert_eq!(end(&mut expired).await, "public_link_invalid");
    fixture.change(&path, json!({ "expires_at": null })).await;

    let mut deleted = fixture.stream("jobs", &link).await;
    assert_eq!(fixture.data.server.delete(&path, &fixture.data.cabinet).await.status, 204);
    assert_eq!(end(&mut deleted).await, "public_link_invalid");

    let (_, link) = fixture.link("jobs", json!({})).await;
    let mut gone = fixture.stream("jobs", &link).await;
    let dashboard = format!("{DASHBOARDS}/jobs");
    assert_eq!(fixture.data.server.delete(&dashboard, &fixture.data.cabinet).await.status, 204);
    assert_eq!(end(&mut gone).await, "public_link_invalid");

    // A file that is taken away ends the streams of its links, too.
    let provision = |uids: &[&str]| {
        let one = |uid: &&str| {
            let parsed = DashboardDocument::parse(document(uid).to_string()).expect("a dashboard");
            let at = fixture.data.server.clock.now();
            let file = ProvisionedDashboard::new((*uid).to_owned(), &parsed, String::new(), at);
            ((*uid).to_owned(), file.into())
        };
        fixture.data.server.identity.set_provisioned_dashboards(uids.iter().map(one).collect());
    };
    provision(&["file"]);
    let (_, link) = fixture.link("file", json!({})).await;
    let mut file = fixture.stream("file", &link).await;
    provision(&[]);
    assert_eq!(end(&mut file).await, "public_link_invalid");
    fixture.view("file", &link).await.is(404, "not_found");

    // The stream of another link continued until links are turned off.
    fixture.allow(false).await;
    assert_eq!(end(&mut kept).await, "public_link_invalid");
    fixture.allow(true).await;
    assert_eq!(fixture.data.server.delete(&other, &fixture.data.cabinet).await.status, 204);
}

/// The viewers of a link use up its second of evaluation time; other links and members are served.
#[tokio::test]
async fn a_public_link_has_a_budget_of_its_own() {
    let fixture = LinkFixture::new().await;
    let heavy = "quantile_over_time(0.5, vector(time() + $job)[20m:1s])";
    let document = json!({
        "uid": "heavy",
        "title": "Heavy",
        "templating": { "list": [{ "name": "job", "type": "textbox", "query": "0" }] },
        "panels": [{ "id": 4, "type": "timeseries", "targets": [{ "refId": "A", "expr": heavy }] }],
    });
    let made =
        fixture.data.server.post(DASHBOARDS, &fixture.data.cabinet, json!({ "dashboard": document })).await;
    assert_eq!(made.status, 201, "{}", made.body);
    let open = json!({ "open": ["job"], "query_seconds_per_minute": 1, "rate_limit_rps": 10_000 });
    let (path, busy) = fixture.link("heavy", open).await;
    let (_, calm) = fixture.link("heavy", json!({ "open": ["job"] })).await;
    let mut refused = None;
    for n in 0..5_000 {
        match fixture.jobs("heavy", &busy, json!({ "job": [n.to_string()] })).await {
            Ok(_) => {}
            Err(code) => {
                refused = Some(code);
                break;
            }
        }
    }
    assert_eq!(
        refused.as_deref(),
        Some("rate_limited"),
        "five thousand heavy queries take more than a second"
    );
    let number = |n: &str| json!({ "job": [n] });
    assert!(fixture.jobs("heavy", &calm, number("5000")).await.is_ok(), "the budget of another link");
    assert!(fixture.jobs("heavy", &fixture.data.cabinet, number("5001")).await.is_ok(), "members have none");
    // The owner grants more.
    fixture.change(&path, json!({ "query_seconds_per_minute": 60 })).await;
    assert!(fixture.jobs("heavy", &busy, number("5002")).await.is_ok());
    let server = &fixture.data.server;
    let list = server.get(&format!("{DASHBOARDS}/heavy/links"), &fixture.data.cabinet).await.value();
    let budgets: Vec<&Value> = list["data"]
        .as_array()
        .expect("links")
        .iter()
        .map(|link| &link["query_seconds_per_minute"])
        .collect();
    assert_eq!(budgets, [&json!(60), &json!(60)]);
    for wrong in [0, 3_601] {
        let change = json!({ "query_seconds_per_minute": wrong });
        server.json("PATCH", &path, &fixture.data.cabinet, change).await.is(422, "validation_failed");
    }
}
