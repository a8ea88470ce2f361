//! Dashboards for their viewers: `dashboards/{uid}/view`, `data`, `options` and `live`, as members
//! and as embed tokens whose variables are locked, open or fixed (docs/specification.md C5 and D7).

use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, header};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::test_server::{Reply, Who, ask, signed};
use crate::wire::{DataFixture, NOW, Series, escaped};

pub(crate) const A: &str = "/api/v1/orgs/acme/dashboards/a";
const B: &str = "/api/v1/orgs/acme/dashboards/b";

pub(crate) type Labels = &'static [(&'static str, &'static str)];

/// The series of the tenant whose values a token locks.
pub(crate) const ALPHA: [Labels; 3] = [
    &[("__name__", "http_total"), ("job", "api"), ("tenant", "alpha"), ("env", "prod")],
    &[("__name__", "http_total"), ("job", "web"), ("tenant", "alpha"), ("env", "prod")],
    &[("__name__", "http_total"), ("job", "a.i"), ("tenant", "alpha"), ("env", "stage")],
];

/// The series of others. All names and values contain `bravo`, or have no tenant.
const OTHERS: [Labels; 4] = [
    &[("__name__", "http_total"), ("job", "bravo-api"), ("tenant", "bravo"), ("env", "prod")],
    &[("__name__", "http_total"), ("job", "api"), ("tenant", "bravo"), ("env", "bravo")],
    &[("__name__", "bravo_total"), ("bravo_label", "x"), ("tenant", "bravo")],
    &[("__name__", "up"), ("job", "bravo-up")],
];

/// Returns a server with these series.
pub(crate) async fn with_series(all: &[Labels]) -> DataFixture {
    let fixture = DataFixture::new().await;
    let samples: Vec<(i64, f64)> = (0..=60).map(|n| ((NOW - 900 + n * 15) * 1_000, n as f64)).collect();
    let series: Vec<Series<'_>> = all.iter().map(|labels| (*labels, &samples[..])).collect();
    fixture.write(&series).await;
    fixture
}

pub(crate) async fn with_tenants() -> DataFixture {
    with_series(&[&ALPHA[..], &OTHERS[..]].concat()).await
}

pub(crate) fn target(ref_id: &str, expr: &str) -> Value {
    json!({ "refId": ref_id, "expr": expr, "legendFormat": "{{job}}" })
}

/// The variables of the dashboards: `tenant` is saved with the value of another tenant.
fn variables() -> Value {
    let options = json!([{ "text": "alpha", "value": "alpha" }, { "text": "bravo", "value": "bravo" }]);
    json!([
        { "name": "tenant", "type": "query", "query": "label_values(http_total, tenant)", "options": options,
          "current": { "text": "bravo", "value": "bravo" }, "definition": "label_values(http_total, tenant)" },
        { "name": "job", "type": "query", "query": "label_values(http_total{tenant=\"$tenant\"}, job)",
          "multi": true, "includeAll": true, "current": { "text": ["All"], "value": ["$__all"] } },
        { "name": "one", "type": "textbox", "query": "api", "current": { "text": "api", "value": "api" } },
        { "name": "env", "type": "custom", "query": "prod,stage", "current": { "text": "prod", "value": "prod" } },
        { "name": "n", "type": "textbox", "query": "5" },
        { "name": "chained", "type": "query", "query": "label_values(http_total{tenant=\"$tenant\",job=~\"$job\"}, tenant)" },
        { "name": "free", "type": "textbox", "query": "" },
        { "name": "filters", "type": "adhoc", "filters": [{ "key": "tenant", "operator": "!=", "value": "none" }] },
    ])
}

pub(crate) fn document(uid: &str, targets: &[Value]) -> Value {
    json!({
        "uid": uid,
        "title": format!("Dashboard {uid}"),
        "tags": ["x"],
        "templating": { "list": variables() },
        "annotations": { "list": [
            { "name": "Built in", "builtIn": 1, "type": "dashboard", "expr": "bravo_total" },
            { "name": "Deploys of {{job}}", "iconColor": "red", "step": "30s", "filter": { "ids": [1] },
              "target": { "expr": "http_total{tenant=\"$tenant\", job=~\"$job\"}", "refId": "bravo" } },
            { "name": "off", "enable": false, "expr": "bravo_total" },
            { "name": "logs", "datasource": { "type": "loki" }, "expr": "bravo_total" },
            { "name": "all", "expr": "{__name__=~\"http_total|bravo_total|up\"}" },
        ] },
        "links": [
            { "type": "link", "url": "https://docs.example/x", "title": "Docs" },
            { "type": "link", "url": "/d/other-uid/x", "title": "Other" },
            { "type": "dashboards", "tags": ["other-uid"] },
        ],
        "panels": [
            { "id": 1, "type": "timeseries", "title": "Requests of $tenant", "targets": targets,
              "gridPos": { "x": 0, "y": 0, "w": 12, "h": 8 },
              "fieldConfig": { "defaults": { "links": [{ "url": "/d/other-uid", "title": "x" }] } } },
            { "id": 2, "type": "logs", "title": "Logs", "datasource": { "type": "loki", "uid": "x" },
              "targets": [{ "refId": "A", "expr": "{job=\"secret\"}" }] },
            { "id": 3, "type": "row", "collapsed": true, "repeat": "env", "panels": [
                { "id": 4, "type": "stat", "targets": [target("A", "count(http_total{env=\"$env\"})")] },
            ] },
        ],
    })
}

pub(crate) async fn store(fixture: &DataFixture, document: &Value) {
    let path = "/api/v1/orgs/acme/dashboards";
    let made = fixture.server.post(path, &fixture.cabinet, json!({ "dashboard": document })).await;
    assert_eq!(made.status, 201, "{}", made.body);
}

/// The queries of panel 1 in dashboard `a`.
fn targets() -> Vec<Value> {
    vec![
        target("A", "sum by (tenant, job, env) (http_total{tenant=\"$tenant\", job=~\"$job\"})"),
        target("B", "http_total{job=\"${one:raw}\"}"),
        target("C", "topk($n, http_total{job='$one'})"),
        target("D", "http_total{job=~`$one`} # $one"),
        target("E", "count by ($free) (http_total{env=\"$env\"})"),
        target("F", "http_total{tenant=~\"${tenant:raw}\"}"),
        target("G", "[[free]]"),
        json!({ "refId": "H", "expr": "bravo_total", "hide": true }),
    ]
}

/// Two tenants, and the dashboards `a` and `b`.
async fn staged() -> DataFixture {
    let fixture = with_tenants().await;
    store(&fixture, &document("a", &targets())).await;
    store(&fixture, &document("b", &[target("A", "bravo_total")])).await;
    fixture
}

/// Restrictions of a token that shows `a` for the tenant `alpha`.
fn locked() -> Value {
    json!({ "dashboard": { "uid": "a", "locked": { "tenant": "alpha" },
        "open": { "job": null, "one": null, "n": null, "free": null } } })
}

pub(crate) fn query(panel: i64, ref_id: &str) -> Value {
    json!({ "id": format!("{panel}:{ref_id}"), "panel": panel, "ref": ref_id, "type": "range" })
}

async fn data_of(
    fixture: &DataFixture,
    who: &Who,
    path: &str,
    variables: &Value,
    queries: &[Value],
) -> Vec<Value> {
    let body = json!({ "variables": variables, "start": NOW - 300, "end": NOW, "queries": queries });
    let reply = fixture.server.post(&format!("{path}/data"), who, body).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    let mut lines: Vec<Value> =
        reply.body.lines().map(|line| serde_json::from_str(line).expect("a line")).collect();
    assert_eq!(lines.pop().expect("a last line")["done"], true);
    lines.sort_by_key(|line| line["id"].to_string());
    lines
}

pub(crate) async fn data(
    fixture: &DataFixture,
    who: &Who,
    variables: &Value,
    queries: &[Value],
) -> Vec<Value> {
    data_of(fixture, who, A, variables, queries).await
}

async fn options(fixture: &DataFixture, who: &Who, body: &Value) -> Reply {
    fixture.server.post(&format!("{A}/options"), who, body.clone()).await
}

fn jobs(line: &Value) -> Vec<String> {
    let rows = line["data"]["result"].as_array();
    let rows = rows.expect("a result");
    let mut jobs: Vec<String> =
        rows.iter().map(|row| row["metric"]["job"].as_str().unwrap_or_default().to_owned()).collect();
    jobs.sort();
    jobs
}

#[tokio::test]
async fn a_viewer_gets_a_dashboard_without_its_queries_and_without_values_of_others() {
    let fixture = staged().await;
    let token = fixture.embed(locked()).await;
    let reply = fixture.server.get(&format!("{A}/view"), &token).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    for secret in ["http_total", "bravo", "label_values", "other-uid", "secret", "loki"] {
        assert!(!reply.body.contains(secret), "{secret}: {}", reply.body);
    }
    let view = reply.value();
    assert_eq!(
        (&view["uid"], &view["title"], &view["version"]),
        (&json!("a"), &json!("Dashboard a"), &json!(1))
    );
    assert_eq!(view["variables"]["tenant"], json!({ "access": "locked", "value": ["alpha"] }));
    assert_eq!(view["variables"]["job"], json!({ "access": "open", "values": null }));
    assert_eq!(view["variables"]["env"], json!({ "access": "fixed", "value": ["prod"] }));
    let panels = &view["dashboard"]["panels"];
    assert_eq!(panels[0]["targets"][0], json!({ "refId": "A", "legendFormat": "{{job}}", "queried": true }));
    assert_eq!(
        (&panels[0]["targets"][7]["queried"], &panels[0]["targets"][7]["hide"]),
        (&json!(false), &json!(true))
    );
    assert_eq!(panels[1], json!({ "id": 2, "type": "logs", "title": "Logs" }));
    assert_eq!(panels[2]["panels"][0]["targets"][0]["queried"], true);
    assert_eq!(view["dashboard"]["links"].as_array().expect("links").len(), 1);
    let tag = reply.header("etag").to_owned();
    let again = |who: &Who, tag: &str| {
        let request = ask("GET", &format!("{A}/view"), who).header(header::IF_NONE_MATCH, tag);
        request.body(Body::empty()).expect("a request")
    };
    assert_eq!(fixture.server.send(again(&token, &tag)).await.status, 304);
    assert_eq!(fixture.server.send(again(&fixture.cabinet, &tag)).await.status, 200, "another grant");
    let member = fixture.server.get(&format!("{A}/view"), &fixture.cabinet).await.value();
    assert_eq!(member["variables"]["tenant"], json!({ "access": "open", "values": null }));
    let list = fixture
        .embed(json!({ "max_range_s": 600, "min_step_s": 15,
            "dashboard": { "uid": "a", "open": { "env": ["stage"], "job": ["api"] } } }))
        .await;
    let view = fixture.server.get(&format!("{A}/view"), &list).await.value();
    assert_eq!((&view["max_range_s"], &view["min_step_s"]), (&json!(600), &json!(15)));
    let env = &view["dashboard"]["templating"]["list"][3];
    assert_eq!((&env["current"]["value"], &env["options"][0]["value"]), (&json!("stage"), &json!("stage")));
}

#[tokio::test]
async fn members_and_tokens_get_the_results_of_panels_with_their_values() {
    let fixture = staged().await;
    let token = fixture.embed(locked()).await;
    let all = [query(1, "A"), query(1, "B"), query(1, "C"), query(1, "D")];
    let lines = data(&fixture, &token, &json!({}), &all).await;
    assert_eq!(jobs(&lines[0]), ["a.i", "api", "web"], "All, and the locked tenant");
    assert_eq!(lines[0]["query"]["expr"], "", "the expression stays on the server");
    for line in &lines[1..] {
        assert_eq!(jobs(line), ["api"], "{line}");
    }
    let chosen =
        data(&fixture, &token, &json!({ "job": ["a.i", "web"], "one": ["web"], "n": ["1"] }), &all).await;
    assert_eq!(jobs(&chosen[0]), ["a.i", "web"], "a dot matches itself");
    assert_eq!(jobs(&chosen[1]), ["web"]);
    let own =
        json!({ "id": "x", "panel": 1, "ref": "A", "type": "instant", "variables": { "job": ["api"] } });
    assert_eq!(jobs(&data(&fixture, &token, &json!({}), &[own]).await[0]), ["api"], "values of one query");
    let member = data(&fixture, &fixture.cabinet, &json!({ "tenant": ["alpha"] }), &all).await;
    assert_eq!(jobs(&member[0]), ["a.i", "api", "web"]);
    assert!(member[0]["query"]["expr"].as_str().expect("a text").contains("tenant=\"alpha\""));
    let saved = data(&fixture, &fixture.cabinet, &json!({}), &all).await;
    assert_eq!(jobs(&saved[0]), ["api", "bravo-api"], "the saved tenant");

    let job = options(&fixture, &token, &json!({ "variable": "job" })).await;
    assert_eq!(job.value()["data"], json!(["a.i", "api", "web"]));
    let member = options(&fixture, &fixture.cabinet, &json!({ "variable": "tenant" })).await;
    assert_eq!(member.value()["data"], json!(["alpha", "bravo"]));
    let listed = fixture.embed(json!({ "dashboard": { "uid": "a", "open": { "job": ["api", "x"] } } })).await;
    let given = options(&fixture, &listed, &json!({ "variable": "job" })).await;
    assert_eq!(given.value()["data"], json!(["api", "x"]), "a list is its own options");
    let all = data(&fixture, &listed, &json!({ "job": ["$__all"] }), &[query(1, "A")]).await;
    assert_eq!(jobs(&all[0]), ["api"], "All of a list is the list, here of the saved tenant");
    options(&fixture, &fixture.cabinet, &json!({ "variable": "env" })).await.is(400, "invalid_parameter");
}

#[tokio::test]
async fn a_token_for_one_dashboard_asks_nothing_of_another() {
    let fixture = staged().await;
    let key = fixture.server.key(&fixture.cabinet, json!({ "scopes": ["embed"] })).await;
    let claims = |ms: Value| {
        let claims = json!({ "aud": "ms-embed", "org": "acme", "iat": NOW, "exp": NOW + 600, "ms": ms });
        Who::Bearer(signed(&key.0, &key.1, &claims))
    };
    let of_a = claims(locked());
    let plain = claims(json!({}));
    let withheld = claims(json!({ "endpoints": ["range"], "dashboard": { "uid": "b" } }));
    let live = json!({ "queries": [{ "id": "x", "panel": 1, "ref": "A" }] });
    for (who, path) in
        [(&of_a, B), (&of_a, "/api/v1/orgs/acme/dashboards/none"), (&plain, A), (&plain, B), (&withheld, B)]
    {
        fixture.server.get(&format!("{path}/view"), who).await.is(403, "embed_restricted");
        for (below, body) in [
            ("data", json!({ "queries": [query(1, "A")] })),
            ("options", json!({ "variable": "job" })),
            ("live", live.clone()),
        ] {
            fixture.server.post(&format!("{path}/{below}"), who, body).await.is(403, "embed_restricted");
        }
    }
    for path in ["query/expr-instant?expr=up", "query/range?metric=up", "labels/job/values", "metrics"] {
        fixture.get_as(&of_a, path).await.is(403, "embed_restricted");
    }
    // Members may see every dashboard, and learn what does not exist.
    for (below, body) in [
        ("data", json!({ "queries": [] })),
        ("options", json!({ "variable": "job" })),
        ("live", live.clone()),
    ] {
        let path = format!("/api/v1/orgs/acme/dashboards/none/{below}");
        fixture.server.post(&path, &fixture.cabinet, body).await.is(404, "not_found");
    }
    fixture.server.get("/api/v1/orgs/acme/dashboards/none/view", &fixture.cabinet).await.is(404, "not_found");
    options(&fixture, &fixture.cabinet, &json!({ "variable": "none" })).await.is(404, "not_found");
    options(&fixture, &of_a, &json!({ "variable": "none" })).await.is(403, "embed_restricted");

    let unknown = [query(9, "A"), query(1, "Z"), query(1, "H"), query(2, "A"), query(3, "A")];
    for line in data(&fixture, &of_a, &json!({}), &unknown).await {
        assert_eq!(
            (&line["code"], &line["http_status"]),
            (&json!("embed_restricted"), &json!(403)),
            "{line}"
        );
    }
    for line in data(&fixture, &fixture.cabinet, &json!({}), &unknown).await {
        assert_eq!((&line["code"], &line["http_status"]), (&json!("not_found"), &json!(404)), "{line}");
    }
}

/// Values that would end a string, a matcher or the expression, if they were code.
pub(crate) const HOSTILE: [&str; 27] = [
    ".*",
    ".+",
    "bravo",
    "alpha|bravo",
    "alpha\"} or http_total{tenant=~\".*",
    "alpha'} or http_total{tenant=~'.*",
    "alpha`} or http_total{tenant=~`.*",
    "\\",
    "\\\"",
    "\\\\\"} or up #",
    "\"} or {__name__=~\".+\"} #",
    "x\n} or up\n",
    "x\r\nor up",
    "x # y",
    "$tenant",
    "${tenant:raw}",
    "$free",
    "[[tenant]]",
    "$__all",
    "up or bravo_total",
    "bravo_total",
    "tenant) (http_total) or up or sum by (tenant",
    "1, http_total) or up or topk(1",
    "5[1h:1s]",
    "\u{202e}\"",
    "a\u{0}\"",
    "label_replace(up,\"tenant\",\"alpha\",\"\",\"\")",
];

/// docs/specification.md F: the threats of locked variables. Whatever a viewer sends, no response
/// has anything of other tenants.
#[tokio::test]
async fn no_value_of_a_viewer_widens_a_locked_variable() {
    let fixture = staged().await;
    let token = fixture.embed(locked()).await;
    let all = ["A", "B", "C", "D", "E", "F", "G"].map(|ref_id| query(1, ref_id));
    let names = ["job", "one", "n", "free"];
    for value in HOSTILE {
        for name in names {
            for line in data(&fixture, &token, &json!({ name: [value] }), &all).await {
                let shown = line["data"].to_string();
                let leaks =
                    shown.contains("bravo-") || shown.contains("\"bravo\"") || shown.contains("bravo_");
                assert!(!leaks, "{name}={value:?}: {line}");
            }
            for variable in ["job", "one", "free"] {
                let body = json!({ "variable": variable, "variables": { name: [value] } });
                let found = options(&fixture, &token, &body).await;
                let shown = serde_json::from_str::<Value>(&found.body).expect("JSON")["data"].to_string();
                assert!(!shown.contains("bravo"), "{name}={value:?}: {}", found.body);
            }
        }
        // Neither the body, nor a query, nor a list sets a locked or a fixed variable.
        for name in ["tenant", "env", "chained", "none"] {
            for values in [json!([value]), json!(["alpha", value]), json!([])] {
                let by_body = data(&fixture, &token, &json!({ name: values }), &all).await;
                let each = |ref_id: &str| json!({ "id": ref_id, "panel": 1, "ref": ref_id, "type": "range", "variables": { name: values } });
                let by_query = data(&fixture, &token, &json!({}), &[each("A"), each("F")]).await;
                for line in by_body.iter().chain(&by_query) {
                    assert_eq!(line["code"], "embed_restricted", "{name}={values}: {line}");
                }
                let body = json!({ "variable": "job", "variables": { name: values } });
                options(&fixture, &token, &body).await.is(403, "embed_restricted");
            }
            options(&fixture, &token, &json!({ "variable": name })).await.is(403, "embed_restricted");
        }
    }
    // A member that is given twice, in any map of the body.
    for body in [
        "{\"variables\":{\"job\":[\"api\"],\"job\":[\".*\"]},\"queries\":[]}",
        "{\"variables\":{},\"variables\":{\"tenant\":[\"bravo\"]},\"queries\":[]}",
    ] {
        let request =
            ask("POST", &format!("{A}/data"), &token).header(header::CONTENT_TYPE, "application/json");
        let reply = fixture.server.send(request.body(Body::from(body)).expect("a request")).await;
        reply.is(422, "validation_failed");
    }
    for path in [format!("{A}/view?var-tenant=bravo"), format!("{A}/view?tenant=bravo")] {
        let view = fixture.server.get(&path, &token).await.value();
        assert_eq!(view["variables"]["tenant"]["value"], json!(["alpha"]), "the address sets nothing");
    }
}

#[tokio::test]
async fn a_fixed_variable_keeps_its_saved_value_and_a_repeated_panel_takes_one_of_it() {
    let fixture = staged().await;
    let both = json!({ "name": "env", "type": "custom", "query": "prod,stage,bravo", "multi": true,
        "current": { "text": ["prod", "stage"], "value": ["prod", "stage"] } });
    let mut repeated = document("c", &targets());
    repeated["templating"]["list"][3] = both;
    repeated["panels"][2]["panels"][0]["targets"][0]["expr"] =
        json!("count by (env) (http_total{env=~\"$env\"})");
    store(&fixture, &repeated).await;
    let ms = json!({ "dashboard": { "uid": "c", "locked": { "tenant": "alpha" }, "open": ["job"] } });
    let token = fixture.embed(ms).await;
    let path = "/api/v1/orgs/acme/dashboards/c";
    let with = |panel: i64, values: Value| json!({ "id": "x", "panel": panel, "ref": "A", "type": "instant", "variables": { "env": values } });
    let rows = |line: &Value| line["data"]["result"].as_array().map(Vec::len);
    let whole = data_of(&fixture, &token, path, &json!({}), &[query(4, "A")]).await;
    assert_eq!(rows(&whole[0]), Some(2));
    let one = data_of(&fixture, &token, path, &json!({}), &[with(4, json!(["stage"]))]).await;
    assert_eq!(rows(&one[0]), Some(1), "{}", one[0]);
    for refused in
        [with(4, json!(["bravo"])), with(4, json!([])), with(4, json!(["$__all"])), with(1, json!(["stage"]))]
    {
        let line = data_of(&fixture, &token, path, &json!({}), std::slice::from_ref(&refused)).await;
        assert_eq!(line[0]["code"], "embed_restricted", "{refused}");
    }
}

#[tokio::test]
async fn an_edit_of_the_dashboard_does_not_widen_a_token() {
    let fixture = staged().await;
    let token = fixture.embed(locked()).await;
    assert_eq!(jobs(&data(&fixture, &token, &json!({}), &[query(1, "A")]).await[0]).len(), 3);
    let mut edited = document("a", &[target("A", "{__name__=~\".+\"} or on() vector(1)")]);
    edited["templating"]["list"] = json!([{ "name": "tenant", "type": "constant", "query": "bravo" }]);
    let request = ask("PUT", A, &fixture.cabinet).header(header::CONTENT_TYPE, "application/json");
    let request = request.header(header::IF_MATCH, "*");
    let stored = fixture
        .server
        .send(request.body(Body::from(json!({ "dashboard": edited }).to_string())).expect("a request"))
        .await;
    assert_eq!(stored.status, 200, "{}", stored.body);
    let lines = data(&fixture, &token, &json!({}), &[query(1, "A"), query(1, "B")]).await;
    assert_eq!(jobs(&lines[0]), ["a.i", "api", "web"], "the lock is below the query: {}", lines[0]);
    assert_eq!(lines[1]["code"], "embed_restricted", "the query is gone");
    let view = fixture.server.get(&format!("{A}/view"), &token).await.value();
    assert_eq!((&view["version"], &view["variables"]["tenant"]["value"]), (&json!(2), &json!(["alpha"])));
}

#[tokio::test]
async fn values_that_do_not_fit_are_refused_with_the_reason() {
    let fixture = staged().await;
    let member = &fixture.cabinet;
    for (variables, reason) in [
        (json!({ "one": ["a", "b"] }), "takes one value"),
        (json!({ "one": [] }), "needs a value"),
        (json!({ "one": ["$__all"] }), "does not offer All"),
        (json!({ "job": ["api", "$__all"] }), "beside other values"),
    ] {
        let line = &data(&fixture, member, &variables, &[query(1, "A")]).await[0];
        assert_eq!(
            (&line["code"], &line["http_status"]),
            (&json!("invalid_parameter"), &json!(400)),
            "{line}"
        );
        assert!(line["detail"].to_string().contains(reason), "{line}");
    }
    let unknown = &data(&fixture, member, &json!({ "none": ["a"] }), &[query(1, "A")]).await[0];
    assert_eq!((&unknown["code"], &unknown["http_status"]), (&json!("not_found"), &json!(404)), "{unknown}");
    let outside = &data(&fixture, member, &json!({ "n": ["1) or up"] }), &[query(1, "C")]).await[0];
    assert!(outside["detail"].to_string().contains("not inside quotes"), "{outside}");
    let wrong = json!({ "id": "x", "panel": 1, "ref": "A", "type": "range", "interval": "soon" });
    assert_eq!(data(&fixture, member, &json!({}), &[wrong]).await[0]["code"], "invalid_parameter");
    let narrow = fixture.embed(json!({ "max_range_s": 60, "dashboard": { "uid": "a" } })).await;
    let line = &data(&fixture, &narrow, &json!({}), &[query(1, "A")]).await[0];
    assert_eq!(line["code"], "embed_restricted", "the range of the token: {line}");
}

/// An annotation is asked by its place in the document, and is restricted as the queries of panels.
#[tokio::test]
async fn annotations_are_asked_by_their_place_within_the_scope() {
    let fixture = staged().await;
    let (member, token) = (&fixture.cabinet, fixture.embed(locked()).await);
    let view = fixture.server.get(&format!("{A}/view"), &token).await.value();
    let deploys = json!({ "name": "Deploys of {{job}}", "iconColor": "red", "step": "30s", "filter": { "ids": [1] },
                          "queried": true, "place": 1 });
    let all = json!({ "name": "all", "queried": true, "place": 4 });
    assert_eq!(view["dashboard"]["annotations"], json!({ "list": [deploys, all] }));
    let annotation = |place: Value| json!({ "id": "x", "annotation": place, "type": "range", "step": 60 });
    let ask = async |who: &Who, variables: Value, query: Value| {
        data(&fixture, who, &variables, &[query]).await.remove(0)
    };
    let of_token = ask(&token, json!({ "job": ["$__all"] }), annotation(json!(1))).await;
    assert_eq!(jobs(&of_token), ["a.i", "api", "web"]);
    assert_eq!(of_token["query"]["expr"], "", "no expression");
    assert_eq!(jobs(&ask(&token, json!({ "job": ["web"] }), annotation(json!(1))).await), ["web"]);
    let everything = ask(&token, json!({}), annotation(json!(4))).await;
    assert_eq!(jobs(&everything).len(), 3, "the lock holds: {everything}");
    assert!(jobs(&ask(member, json!({}), annotation(json!(4))).await).len() > 3);
    for (place, code) in
        [(0, "built in"), (2, "disabled"), (3, "of another source"), (5, "missing"), (1_000, "missing")]
    {
        let refused = ask(&token, json!({}), annotation(json!(place))).await;
        assert_eq!(refused["code"], "embed_restricted", "{code}: {refused}");
        let told = ask(member, json!({}), annotation(json!(place))).await;
        assert_eq!(told["code"], "not_found", "{code}: {told}");
    }
    let mut both = annotation(json!(1));
    both["panel"] = json!(1);
    let mut scoped = annotation(json!(1));
    scoped["variables"] = json!({ "tenant": ["bravo"] });
    for wrong in [
        both,
        scoped,
        json!({ "id": "x", "type": "range" }),
        json!({ "id": "x", "panel": 1, "type": "range" }),
    ] {
        let refused = ask(&token, json!({}), wrong.clone()).await;
        assert_eq!(refused["code"], "invalid_parameter", "{wrong}: {refused}");
    }
    // Of another dashboard there is nothing.
    let body = json!({ "queries": [annotation(json!(1))] });
    fixture.server.post(&format!("{B}/data"), &token, body).await.is(403, "embed_restricted");
}

/// The filters of an ad hoc variable narrow every selector, if the token leaves the variable open.
#[tokio::test]
async fn filters_of_an_open_ad_hoc_variable_narrow_and_never_widen() {
    let fixture = staged().await;
    let closed = fixture.embed(locked()).await;
    let mut claims = locked();
    claims["dashboard"]["open"]["filters"] = Value::Null;
    let open = fixture.embed(claims.clone()).await;
    claims["dashboard"]["open"]["filters"] = json!(["job|=|web"]);
    let listed = fixture.embed(claims).await;
    let ask = async |who: &Who, filters: Value| {
        data(&fixture, who, &json!({ "job": ["$__all"], "filters": filters }), &[query(1, "A")])
            .await
            .remove(0)
    };
    assert_eq!(jobs(&ask(&open, json!([])).await), ["a.i", "api", "web"]);
    assert_eq!(jobs(&ask(&open, json!(["job|=|web"])).await), ["web"]);
    assert_eq!(jobs(&ask(&open, json!(["job|=~|a.*", "env|!=|stage"])).await), ["api"]);
    assert_eq!(jobs(&ask(&open, json!(["job|=~|api__gfp__web"])).await), ["api", "web"]);
    assert_eq!(jobs(&ask(&listed, json!(["job|=|web"])).await), ["web"]);
    assert_eq!(ask(&listed, json!(["job|=|api"])).await["code"], "embed_restricted");
    assert_eq!(ask(&closed, json!(["job|=|web"])).await["code"], "embed_restricted");
    for tenant in ["tenant|=|bravo", "tenant|=~|.*", "tenant|!=|alpha", "tenant|=~|bravo__gfp__alpha"] {
        let line = ask(&open, json!([tenant])).await;
        assert!(!line.to_string().contains("bravo"), "{tenant}: {line}");
    }
    let many = vec!["job|=|web"; 51];
    for wrong in [
        json!(["job=web"]),
        json!(["job|>|1"]),
        json!(["|=|a"]),
        json!(["job|=~|("]),
        json!(["a|=|b|c"]),
        json!(many),
    ] {
        assert_eq!(ask(&open, wrong.clone()).await["code"], "embed_restricted", "{wrong}");
        assert_eq!(ask(&fixture.cabinet, wrong.clone()).await["code"], "invalid_parameter", "{wrong}");
    }
    // Only viewers who may change the filters see the saved ones.
    let view =
        async |who: &Who| fixture.server.get(&format!("{A}/view"), who).await.body.contains("\"filters\":[");
    assert!(view(&open).await && !view(&closed).await && !view(&listed).await);
}

/// Returns the text of a live stream until it has an event of this name.
async fn live_until(fixture: &DataFixture, who: &Who, body: &Value, event: &str) -> String {
    let request = ask("POST", &format!("{A}/live"), who).header(header::CONTENT_TYPE, "application/json");
    let request: Request<Body> = request.body(Body::from(body.to_string())).expect("a request");
    let response = fixture.server.router.clone().oneshot(request).await.expect("infallible");
    let (parts, mut body) = response.into_parts();
    let mut text = String::new();
    while !text.contains(&format!("event: {event}")) {
        let frame =
            tokio::time::timeout(Duration::from_secs(20), body.frame()).await.expect("an event in time");
        let data = frame.expect("the stream goes on").expect("a frame").into_data().expect("data");
        text.push_str(std::str::from_utf8(&data).expect("a text"));
    }
    let reply = Reply { status: parts.status, refused: None, headers: parts.headers, body: text.clone() };
    fixture.server.assert_documented("POST", &format!("{A}/live"), &reply);
    text
}

#[tokio::test]
async fn a_live_stream_has_the_points_of_panels_within_the_scope() {
    let fixture = staged().await;
    let token = fixture.embed(locked()).await;
    let one = |ref_id: &str, variables: Value| json!({ "id": ref_id, "panel": 1, "ref": ref_id, "step": "15s", "variables": variables });
    let body = json!({ "variables": { "job": ["$__all"] }, "queries": [one("A", json!({}))] });
    let text = live_until(&fixture, &token, &body, "points").await;
    assert!(text.contains("a.i") && !text.contains("bravo") && !text.contains("http_total{"), "{text}");
    let refused = json!({ "queries": [one("H", json!({})), one("A", json!({ "tenant": ["bravo"] })), one("B", json!({}))] });
    let text = live_until(&fixture, &token, &refused, "error").await;
    assert!(text.contains("embed_restricted") && !text.contains("bravo"), "{text}");
}

/// The range that a panel shows is longer than the step of its stream.
#[tokio::test]
async fn the_range_of_a_live_query_is_the_one_that_its_panel_shows() {
    let fixture = DataFixture::new().await;
    store(
        &fixture,
        &document("a", &[target("A", "vector($__range_s) + 0 * $__range_ms"), target("B", "up[$__range]")]),
    )
    .await;
    let one = |range: Value| json!({ "id": "x", "panel": 1, "ref": "A", "step": "15s", "range": range });
    for (range, shown) in [(json!("6h"), "21600"), (json!(90), "90"), (Value::Null, "15")] {
        let mut item = one(range.clone());
        if range.is_null() {
            item.as_object_mut().expect("an object").remove("range");
        }
        let text = live_until(&fixture, &fixture.cabinet, &json!({ "queries": [item] }), "points").await;
        assert!(text.contains(&format!(",\"{shown}\"]")), "{range}: {text}");
    }
    for wrong in [json!("0s"), json!("2y"), json!("-1h"), json!("soon")] {
        let body = json!({ "queries": [one(wrong)] });
        let text = live_until(&fixture, &fixture.cabinet, &body, "error").await;
        assert!(text.contains("invalid_parameter") && text.contains("range"), "{text}");
    }
    // The window of a token bounds the range, too.
    let narrow = fixture.embed(json!({ "max_range_s": 60, "dashboard": { "uid": "a" } })).await;
    let mut wide = one(json!("6h"));
    wide["ref"] = json!("B");
    let text = live_until(&fixture, &narrow, &json!({ "queries": [wide] }), "error").await;
    assert!(text.contains("embed_restricted"), "{text}");
}

/// The shapes of 100 queries: each place of a reference, with each format, around locked and open
/// variables.
pub(crate) fn templates() -> Vec<String> {
    shaped(&[
        "$one",
        "${one}",
        "[[one]]",
        "${one:raw}",
        "${one:regex}",
        "${one:csv}",
        "${one:pipe}",
        "${one:glob}",
        "${one:doublequote}",
        "${one.text}",
        "${one:json}",
        "$tenant",
        "${tenant:regex}",
    ])
}

/// Returns queries with each of these texts in each place of a reference.
pub(crate) fn shaped(texts: &[&str]) -> Vec<String> {
    let shapes = [
        "http_total{{job=\"@\"}}",
        "http_total{{job=~\"@\"}}",
        "{{job!~'@'}}",
        "count by (tenant, job) ({{__name__=~`@`}})",
        "label_replace(http_total, \"x\", \"@\", \"job\", \"(.*)\")",
        "count({{__name__!=\"\"}}) or @ # @",
        "sum by (@) (http_total)",
        "http_total{{tenant=~\"bravo|@\"}} or up",
    ];
    let pairs = texts.iter().flat_map(|text| shapes.iter().map(move |shape| (text, shape)));
    pairs.map(|(text, shape)| shape.replace("{{", "{").replace("}}", "}").replace('@', text)).collect()
}

/// Returns a response without its times and without the number of samples that were read: a result
/// that took long is cached, and the next response reads none.
pub(crate) fn timeless(mut value: Value) -> Value {
    if let Some(stats) = value["stats"].as_object_mut() {
        stats.remove("elapsed_ms");
        stats.remove("samples");
    }
    value
}

/// The escape differential: whatever a viewer of a locked dashboard sends, the response is the one
/// of an organisation that holds nothing but the series of the lock.
#[tokio::test]
async fn a_locked_dashboard_answers_as_if_there_were_no_other_series() {
    let (full, only) = (with_tenants().await, with_series(&ALPHA).await);
    let templates = templates();
    assert!(templates.len() >= 100, "{}", templates.len());
    let targets: Vec<Value> =
        templates.iter().enumerate().map(|(at, expr)| target(&format!("Q{at}"), expr)).collect();
    let endpoints = ["dashboard", "range", "instant", "expr", "labels", "metrics"];
    let ms = json!({ "endpoints": endpoints, "dashboard": { "uid": "a", "locked": { "tenant": "alpha" },
        "open": ["job", "one", "n", "free", "filters"] } });
    let mut tokens = Vec::new();
    for fixture in [&full, &only] {
        store(fixture, &document("a", &targets)).await;
        tokens.push(fixture.embed(ms.clone()).await);
    }
    let queries: Vec<Value> = (0..templates.len()).map(|at| query(1, &format!("Q{at}"))).collect();
    let (mut compared, mut answered) = (0, 0);
    for value in HOSTILE {
        let filter = format!("job|!=|{}", value.replace('|', "__gfp__"));
        let annotation =
            |place: usize| json!({ "id": format!("at {place}"), "annotation": place, "type": "range" });
        let queries: Vec<Value> = queries.iter().cloned().chain([annotation(1), annotation(4)]).collect();
        let variables = json!({ "one": [value], "filters": [filter] });
        let lines = data(&full, &tokens[0], &variables, &queries).await;
        for (line, other) in lines.iter().zip(data(&only, &tokens[1], &variables, &queries).await) {
            assert_eq!(timeless(line.clone()), timeless(other), "{value:?}");
            compared += 1;
            answered += usize::from(line["status"] == "success");
        }
        for variable in ["job", "one"] {
            let body = json!({ "variable": variable, "variables": variables });
            let replies = [options(&full, &tokens[0], &body).await, options(&only, &tokens[1], &body).await];
            let [reply, other] = replies.map(|reply| {
                let mut value = reply.value();
                value.as_object_mut().expect("an object").remove("request_id");
                value
            });
            assert_eq!(reply, other, "{variable} with {value:?}");
        }
    }
    assert!(compared > 2_000 && answered > compared / 4, "{answered} of {compared}");
    // The lock holds on the other endpoints that the token lists, for any expression.
    for expr in templates.iter().map(|template| template.replace("${one:raw}", "x").replace("$one", ".*")) {
        let text = escaped(&expr);
        for path in [
            format!("query/expr-instant?expr={text}"),
            format!("query/expr-range?expr={text}&step=60"),
            format!("query/range?metric=http_total&match={}", escaped("tenant=~\".*\"")),
            format!("query/instant?metric=up&match={}", escaped("job=~\".*\"")),
            "labels/tenant/values".to_owned(),
            "labels/job/values".to_owned(),
            "metrics".to_owned(),
        ] {
            let replies = [full.get_as(&tokens[0], &path).await, only.get_as(&tokens[1], &path).await];
            let [reply, other] = replies.map(|reply| {
                let mut value = timeless(reply.value());
                value.as_object_mut().expect("an object").remove("request_id");
                value
            });
            assert_eq!(reply, other, "{path}");
        }
    }
}
