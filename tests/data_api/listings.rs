//! The native discovery endpoints (docs/specification.md C5).

use serde_json::{Value, json};

use promlet::model::Timestamp;

use crate::test_server::{TestServer, TestServerOptions};
use crate::wire::{DataFixture, NOW, describe, post_block, snappy};

async fn get_json(fixture: &DataFixture, path: &str) -> Value {
    let reply = fixture.get(path).await;
    assert_eq!(reply.status, 200, "{path}: {}", reply.body);
    reply.value()
}

#[tokio::test]
async fn metrics_are_listed_with_metadata_and_series_counts() {
    let fixture = DataFixture::with_shop().await;
    let body = describe("http_requests_total", 1, "Requests", "requests");
    assert_eq!(post_block(&fixture.server, &fixture.agent, snappy(&body)).await.status, 204);
    let requests = json!({ "name": "http_requests_total", "type": "counter", "help": "Requests", "unit": "requests", "series": 3, "last_seen": NOW, "last_queried": null });
    let up = json!({ "name": "up", "type": "unknown", "help": "", "unit": "", "series": 2, "last_seen": NOW, "last_queried": null });
    let mut listed = get_json(&fixture, "metrics").await;
    let since = listed.as_object_mut().expect("an object").remove("queried_since");
    assert!(since.is_some_and(|since| since.as_f64().is_some_and(|since| since <= NOW as f64 + 1.0)));
    let expected =
        json!({ "status": "success", "data": [requests, up], "next_cursor": null, "warnings": [] });
    assert_eq!(listed, expected);
    assert_eq!(get_json(&fixture, "metrics?search=quest").await["data"], json!([requests]));
    assert_eq!(get_json(&fixture, "metrics?prefix=u").await["data"], json!([up]));
    assert_eq!(get_json(&fixture, "metrics?match=%7Btenant%3D%22b%22%7D").await["data"][0]["series"], 1);
    assert_eq!(get_json(&fixture, "metrics?start=1&end=2").await["data"], json!([]));
    assert_eq!(
        get_json(&fixture, "metrics?format=names").await["data"],
        json!(["http_requests_total", "up"])
    );
    fixture.get("metrics?format=short").await.is(400, "invalid_parameter");
}

/// Queries of members and tokens count for the metrics that they name; a token is not told.
#[tokio::test]
async fn members_see_when_a_metric_was_queried_last_and_tokens_do_not() {
    let fixture = DataFixture::with_shop().await;
    let last = async || {
        let listed = get_json(&fixture, "metrics").await;
        let of = |at: usize| listed["data"][at]["last_queried"].as_f64();
        (of(0), of(1))
    };
    assert_eq!(last().await, (None, None));
    assert_eq!(fixture.get("query/expr-instant?expr=rate(up%5B5m%5D)").await.status, 200);
    let (requests, first) = last().await;
    assert!(requests.is_none() && first.is_some());
    fixture.server.pass(std::time::Duration::from_secs(60));
    let token = fixture.embed(json!({})).await;
    // A cached result counts as well, and so does a structured query.
    assert_eq!(fixture.get_as(&token, "query/instant?metric=up").await.status, 200);
    assert_eq!(fixture.get_as(&token, "query/expr-range?expr=http_requests_total&step=60").await.status, 200);
    let (requests, second) = last().await;
    assert!(second > first && requests >= second, "{requests:?} {second:?}");
    let hidden = fixture.get_as(&token, "metrics").await;
    assert!(!hidden.body.contains("quer"), "{}", hidden.body);
    let names = get_json(&fixture, "metrics?format=names").await;
    assert!(names["queried_since"].is_null(), "{names}");
}

/// A metric whose last sample is older than 24 hours is listed only for an explicit time range.
#[tokio::test]
async fn metrics_are_listed_by_default_with_samples_in_the_head_or_of_the_last_24_hours() {
    let server = TestServer::build(TestServerOptions { stored: true, ..TestServerOptions::default() });
    let fixture = DataFixture::of(server).await;
    let hour = 3_600;
    let ago = |name: &'static str, seconds: i64| (name, (NOW - seconds) * 1_000);
    let write =
        async |(name, at): (&'static str, i64)| fixture.write(&[(&[("__name__", name)], &[(at, 1.0)])]).await;
    for metric in
        [ago("ended", 72 * hour), ago("left", 24 * hour + 1), ago("recent", 24 * hour), ago("up", hour)]
    {
        write(metric).await;
    }
    let names =
        async |query: &str| get_json(&fixture, &format!("metrics?format=names{query}")).await["data"].clone();
    let all = json!(["ended", "left", "recent", "up"]);
    assert_eq!(names("").await, all, "the head holds them");
    fixture.server.tsdb.seal(Timestamp::from_s(NOW)).expect("sealed");
    assert_eq!(names("").await, json!(["recent", "up"]));
    assert_eq!(names("&search=e").await, json!(["recent"]));
    assert_eq!(names("&start=0").await, all);
    assert_eq!(names(&format!("&end={NOW}")).await, all);
    assert_eq!(names(&format!("&start={}&end={}", NOW - 80 * hour, NOW - 70 * hour)).await, json!(["ended"]));
    let scoped = fixture.embed(json!({ "match": ["__name__!=\"up\""] })).await;
    let reply = fixture.get_as(&scoped, "metrics?format=names").await.value();
    assert_eq!(reply["data"], json!(["recent"]));
    // A late sample stays in the head.
    write(ago("ended", 71 * hour)).await;
    assert_eq!(names("").await, json!(["ended", "recent", "up"]));
}

#[tokio::test]
async fn cursors_lead_through_all_pages() {
    let fixture = DataFixture::with_shop().await;
    for (path, expected) in [
        ("metrics?format=names", json!(["http_requests_total", "up"])),
        ("labels/job/values?x=1", json!(["api", "web"])),
    ] {
        let mut found = Vec::new();
        let mut cursor = String::new();
        for _ in 0..2 {
            let page = get_json(&fixture, &format!("{path}&limit=1{cursor}")).await;
            found.push(page["data"][0].clone());
            cursor =
                page["next_cursor"].as_str().map(|cursor| format!("&cursor={cursor}")).unwrap_or_default();
        }
        assert_eq!((json!(found), cursor), (expected, String::new()), "{path}");
        fixture.get(&format!("{path}&cursor=%21")).await.is(400, "invalid_parameter");
    }
}

#[tokio::test]
async fn labels_of_a_metric_are_listed_with_some_values() {
    let fixture = DataFixture::with_shop().await;
    let job = |values: Value| json!({ "name": "job", "values_count": 2, "values": values });
    let tenant = json!({ "name": "tenant", "values_count": 2, "values": ["a", "b"] });
    let path = "metrics/http_requests_total/labels";
    assert_eq!(
        get_json(&fixture, path).await,
        json!({ "status": "success", "data": [job(json!(["api", "web"])), tenant], "warnings": [] })
    );
    assert_eq!(get_json(&fixture, &format!("{path}?values=1")).await["data"][0], job(json!(["api"])));
    assert_eq!(
        get_json(&fixture, &format!("{path}?values=0")).await["data"][0],
        json!({ "name": "job", "values_count": 2 })
    );
    assert_eq!(
        get_json(&fixture, &format!("{path}?match=%7Btenant%3D%22b%22%7D")).await["data"][0]["values"],
        json!(["api"])
    );
    assert_eq!(get_json(&fixture, &format!("{path}?start=1&end=2")).await["data"], json!([]));
    fixture.get("metrics/nonsense/labels").await.is(404, "metric_not_found");
    fixture.get("metrics/%ff/labels").await.is(400, "bad_request");
}

#[tokio::test]
async fn label_values_can_be_searched_and_filtered() {
    let fixture = DataFixture::with_shop().await;
    let expected =
        json!({ "status": "success", "data": ["api", "web"], "next_cursor": null, "warnings": [] });
    assert_eq!(get_json(&fixture, "labels/job/values").await, expected);
    assert_eq!(get_json(&fixture, "labels/job/values?search=e").await["data"], json!(["web"]));
    assert_eq!(get_json(&fixture, "labels/job/values?search=x").await["data"], json!([]));
    assert_eq!(
        get_json(&fixture, "labels/job/values?match=http_requests_total%7Btenant%3D%22b%22%7D").await["data"],
        json!(["api"])
    );
    fixture.get("labels/nonsense/values").await.is(404, "label_not_found");
}

#[tokio::test]
async fn too_many_selectors_are_refused() {
    let fixture = DataFixture::with_shop().await;
    let many = "match=up&".repeat(33);
    fixture.get(&format!("metrics?{many}")).await.is(400, "invalid_parameter");
    let patterns = (0..17).map(|n| format!("match=%7Bjob%3D~%22x.%2B{n}%22%7D&")).collect::<String>();
    fixture.get(&format!("metrics?{patterns}")).await.is(400, "bad_expr");
}

/// Listings have no parameter `timeout`. The native endpoints name it in their warnings as unused;
/// the mount ignores it, as Prometheus does.
#[tokio::test]
async fn listings_do_not_use_a_timeout_parameter() {
    let fixture = DataFixture::with_shop().await;
    for path in ["metrics", "metrics/up/labels", "labels/job/values"] {
        let value = get_json(&fixture, &format!("{path}?timeout=never")).await;
        assert_eq!(value["warnings"], json!(["the parameter \"timeout\" was not used"]), "{path}");
    }
    for path in ["series?match[]=up&", "labels?", "label/job/values?", "metadata?", "status/tsdb?"] {
        let whole =
            get_json(&fixture, &format!("prometheus/api/v1/{}", path.trim_end_matches(['?', '&']))).await;
        assert_eq!(
            get_json(&fixture, &format!("prometheus/api/v1/{path}timeout=never")).await,
            whole,
            "{path}"
        );
    }
}
