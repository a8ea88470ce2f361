//! The four native query endpoints take their parameters as a form, too (docs/specification.md C5):
//! a `POST` has the response, the permissions and the limits of the `GET` with the same parameters.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::Frame;
use promlet::api::ApiOptions;
use serde_json::{Value, json};

use crate::embeds::heavy;
use crate::scope_law::comparable;
use crate::test_server::{Reply, TestServer, TestServerOptions, Who, ask};
use crate::wire::{DataFixture, NOW, escaped};

const FORM: &str = "application/x-www-form-urlencoded";
const PAGE: &str = "https://shop.example";
/// A query of each endpoint.
const QUERIES: [&str; 4] = [
    "query/range?metric=up",
    "query/instant?metric=up",
    "query/expr-range?expr=up",
    "query/expr-instant?expr=up",
];

/// Sends the same parameters in the URL and as a form. Returns both responses.
async fn both(fixture: &DataFixture, who: &Who, query: &str) -> (Reply, Reply) {
    (fixture.get_as(who, query).await, fixture.post_form(who, "acme", query).await)
}

/// Checks that both responses are equal, and returns one of them.
async fn equal(fixture: &DataFixture, who: &Who, query: &str) -> Reply {
    // A cached result has other statistics.
    let caches = query.contains("range?") && !query.contains("nocache");
    let query = &format!("{query}{}", if caches { "&nocache=1" } else { "" });
    let (get, post) = both(fixture, who, query).await;
    assert_eq!(comparable(query, &get), comparable(query, &post), "{query}");
    assert_eq!(get.refused, post.refused, "{query}");
    for header in ["content-type", "cache-control", "vary", "ratelimit-policy"] {
        assert_eq!(get.header(header), post.header(header), "{query}: {header}");
    }
    post
}

/// Sends a form to a path, with more headers.
async fn post(fixture: &DataFixture, who: &Who, path: &str, headers: &[(&str, &str)], body: Body) -> Reply {
    let mut request = ask("POST", &format!("/api/v1/orgs/acme/{path}"), who);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    fixture.server.send(request.body(body).expect("a request")).await
}

#[tokio::test]
async fn a_form_has_the_response_of_the_same_parameters_in_the_url() {
    let fixture = DataFixture::with_shop().await;
    let token = fixture.embed(json!({})).await;
    let times = format!("start={}&end={NOW}&step=60", NOW - 600);
    let rate = escaped("sum by (job) (rate(http_requests_total[5m]))");
    let answered = [
        format!(
            "query/range?metric=http_requests_total&match=tenant%3Da&match[]=job!%3D&fn=rate&agg=sum&by=job&{times}"
        ),
        format!("query/range?expr={rate}&{times}&nocache=1"),
        format!("query/expr-range?expr={rate}&{times}&explain=true&nocache=1"),
        format!("query/expr-range?query={rate}&{times}&limit=1"),
        format!("query/instant?metric=up&agg=count&time={NOW}&explain=true"),
        format!("query/instant?expr={rate}&time={NOW}&timeout=5s"),
        format!("query/expr-instant?expr={rate}&time={NOW}&unknown=x&_=1"),
        format!("query/expr-instant?expr={}&time=", escaped("\"a+b c&d=ü%\"")),
    ];
    let refused = [
        ("query/range", "invalid_parameter"),
        ("query/expr-range?expr=", "invalid_parameter"),
        ("query/instant?metric=up&metric=up", "duplicate_parameter"),
        ("query/instant?expr=up&query=up", "duplicate_parameter"),
        ("query/expr-instant?expr=up%7B", "bad_expr"),
        ("query/expr-instant?expr=%FF", "invalid_parameter"),
        ("query/range?metric=up&start=now-2y", "invalid_parameter"),
    ];
    for who in [&fixture.cabinet, &token] {
        for query in &answered {
            assert_eq!(equal(&fixture, who, query).await.status, 200, "{query}");
        }
        for (query, code) in refused {
            equal(&fixture, who, query).await.is(400, code);
        }
    }
}

#[tokio::test]
async fn url_and_form_are_one_list_of_any_content_type() {
    let fixture = DataFixture::with_shop().await;
    let token = fixture.embed(json!({})).await;
    for who in [&fixture.cabinet, &token] {
        for (path, media, form) in [
            (format!("query/expr-instant?time={NOW}"), FORM, "expr=sum(up)"),
            (format!("query/instant?time={NOW}"), "text/plain", "expr=sum%28up%29"),
            ("query/instant?agg=sum".to_owned(), "", "metric=up"),
            ("query/expr-instant?expr=sum(up)".to_owned(), "application/json", ""),
        ] {
            let reply = post(&fixture, who, &path, &[("content-type", media)], Body::from(form)).await;
            assert_eq!(reply.value()["data"]["result"][0]["value"][1], "2", "{path}: {}", reply.body);
        }
        for query in QUERIES {
            let (path, form) = query.split_once('?').expect("parameters");
            let name = form.split_once('=').expect("a parameter").0;
            let twice = post(&fixture, who, query, &[("content-type", FORM)], Body::from(form)).await;
            twice.is(400, "duplicate_parameter");
            assert_eq!(twice.value()["errors"][0]["field"], name, "{path}");
            // JSON is a form with one parameter of a long name, as on the Prometheus mount.
            let object = json!({ name: "up" }).to_string();
            let json =
                post(&fixture, who, path, &[("content-type", "application/json")], object.into()).await;
            json.is(400, "invalid_parameter");
        }
    }
}

/// A body that arrives in these chunks, without a declared length.
struct ChunkedBody(Vec<Bytes>);

impl HttpBody for ChunkedBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready((!self.0.is_empty()).then(|| Ok(Frame::data(self.0.remove(0)))))
    }
}

#[tokio::test]
async fn a_form_may_have_256_kib_also_in_chunks_and_more_than_a_url() {
    const BYTES_MAX: usize = 256 * 1_024;
    let fixture = DataFixture::with_shop().await;
    let token = fixture.embed(json!({})).await;
    let padded = |form: &str, bytes: usize| format!("{form}&_={}", "x".repeat(bytes - form.len() - 3));
    for who in [&fixture.cabinet, &token] {
        for query in QUERIES {
            let (path, form) = query.split_once('?').expect("parameters");
            let fits = post(&fixture, who, path, &[], padded(form, BYTES_MAX).into()).await;
            assert_eq!(fits.status, 200, "{path}: {}", fits.body);
            let large = padded(form, BYTES_MAX + 1);
            let chunks = large.as_bytes().chunks(60_000).map(Bytes::copy_from_slice);
            let chunked = Body::new(ChunkedBody(chunks.collect()));
            for body in [Body::from(large), chunked] {
                let reply = post(&fixture, who, path, &[], body).await;
                reply.is(413, "body_too_large");
                assert_eq!(reply.value()["limit_bytes"], BYTES_MAX, "{path}");
            }
        }
    }
}

#[tokio::test]
async fn the_restrictions_of_a_token_hold_for_forms() {
    let fixture = DataFixture::with_shop().await;
    let tokens = [
        json!({ "endpoints": ["range"] }),
        json!({ "endpoints": ["instant"] }),
        json!({ "endpoints": ["expr"] }),
        json!({ "endpoints": ["metrics"] }),
        json!({ "match": ["tenant=\"b\""] }),
        json!({ "metrics": ["http_*"] }),
        json!({ "exprs": ["sum(up)"] }),
        json!({ "max_range_s": 600, "min_step_s": 30 }),
    ];
    let queries = [
        "query/range?metric=up",
        "query/range?metric=http_requests_total&start=now-601s&step=60",
        "query/range?metric=http_requests_total&start=now-10m&step=29",
        "query/range?expr=up",
        "query/range?metric=nonsense",
        "query/instant?metric=up",
        "query/instant?metric=http_requests_total&fn=rate&window=11m",
        "query/instant?expr=sum(up)",
        "query/expr-range?expr=http_requests_total&start=now-5m&step=30",
        "query/expr-range?expr=http_requests_total&start=now-1h",
        "query/expr-instant?expr=http_requests_total",
        "query/expr-instant?expr=sum%28+up+%29&explain=1",
        "query/expr-instant?expr=max_over_time(up%5B601s%5D)",
    ];
    let (mut answered, mut refused) = (0, 0);
    for restrictions in tokens {
        let token = fixture.embed(restrictions).await;
        for query in queries {
            match equal(&fixture, &token, query).await.status.as_u16() {
                200 => answered += 1,
                403 => refused += 1,
                status => panic!("{query}: {status}"),
            }
        }
    }
    assert!(answered > 20 && refused > 40, "{answered} answered, {refused} refused");
}

#[tokio::test]
async fn a_form_needs_the_credential_of_a_query() {
    let fixture = DataFixture::with_shop().await;
    let (_, secret) = fixture.server.key(&fixture.cabinet, json!({ "scopes": ["read", "embed"] })).await;
    for query in QUERIES {
        let ask = async |who: &Who, slug: &str| fixture.post_form(who, slug, query).await;
        ask(&Who::Nobody, "acme").await.is(401, "unauthenticated");
        ask(&Who::Bearer(secret.clone()), "acme").await.is(401, "api_key_not_allowed");
        ask(&fixture.cabinet, "other").await.is(404, "org_not_found");
        assert_eq!(ask(&fixture.cabinet, "acme").await.status, 200, "{query}");
    }
}

/// docs/specification.md B4: a browser sends a form to another origin without a preflight, with the
/// cookies of that origin.
#[tokio::test]
async fn a_form_of_another_site_needs_a_token_of_its_origin() {
    let fixture = DataFixture::with_shop().await;
    let embed = json!({ "scopes": ["embed"], "embed": { "origins": [PAGE], "rate_limit_rps": 10_000 } });
    let (key, _) = fixture.server.key(&fixture.cabinet, embed).await;
    let token = fixture.server.token(&fixture.cabinet, &key, json!({})).await;
    for query in QUERIES {
        let (path, form) = query.split_once('?').expect("parameters");
        let send = async |who: &Who, origin: &str, site: &str| {
            let headers = [("content-type", FORM), ("origin", origin), ("sec-fetch-site", site)];
            post(&fixture, who, path, &headers, Body::from(form)).await
        };
        for media in [FORM, "text/plain"] {
            let headers = [("content-type", media), ("origin", PAGE)];
            post(&fixture, &fixture.cabinet, path, &headers, form.into()).await.is(403, "csrf_rejected");
        }
        for site in ["cross-site", "same-site"] {
            let refused = send(&fixture.cabinet, PAGE, site).await;
            refused.is(403, "csrf_rejected");
            assert_eq!(refused.header("access-control-allow-origin"), "");
        }
        let own = send(&fixture.cabinet, "http://127.0.0.1:8095", "same-origin").await;
        assert_eq!(own.status, 200, "{path}: {}", own.body);
        let shown = send(&token, PAGE, "cross-site").await;
        assert_eq!((shown.status.as_u16(), shown.header("access-control-allow-origin")), (200, PAGE));
        let other = send(&token, "https://evil.example", "cross-site").await;
        other.is(403, "origin_not_allowed");
        assert_eq!(other.header("access-control-allow-origin"), "");
    }
}

#[tokio::test]
async fn forms_and_urls_share_the_rate_limit_and_the_counts_of_a_key() {
    let fixture = DataFixture::with_shop().await;
    let limited = json!({ "scopes": ["embed"], "embed": { "rate_limit_rps": 4 } });
    let (key, _) = fixture.server.key(&fixture.cabinet, limited).await;
    let token = fixture.server.token(&fixture.cabinet, &key, json!({})).await;
    for query in ["query/range?metric=up", "query/expr-instant?expr=up"] {
        equal(&fixture, &token, query).await;
    }
    let (get, post) = both(&fixture, &token, QUERIES[0]).await;
    get.is(429, "rate_limited");
    post.is(429, "rate_limited");
    let list = fixture.server.get("/api/v1/orgs/acme/embeds", &fixture.cabinet).await.value();
    let row = &list["data"][0];
    assert_eq!((&row["requests"], &row["refused"]), (&json!(6), &json!(2)), "{list}");
    assert!(row["samples"].as_u64() > Some(0), "{row}");
}

#[tokio::test]
async fn forms_are_charged_to_the_budget_of_their_key() {
    let fixture = DataFixture::with_shop().await;
    let limits = json!({ "rate_limit_rps": 10_000, "query_seconds_per_minute": 1 });
    let (key, _) =
        fixture.server.key(&fixture.cabinet, json!({ "scopes": ["embed"], "embed": limits })).await;
    let token = fixture.server.token(&fixture.cabinet, &key, json!({})).await;
    let mut refused = None;
    for n in 0..2_000 {
        let path = heavy(n % 1_000);
        let query = path.strip_prefix("/api/v1/orgs/acme/").expect("a path of the organisation");
        let reply = fixture.post_form(&token, "acme", query).await;
        if reply.status != 200 {
            refused = Some(reply);
            break;
        }
    }
    let refused = refused.expect("two thousand heavy queries take more than a second");
    refused.is(429, "rate_limited");
    assert_eq!(refused.value()["scope"], "embed_budget");
    fixture.server.get(&heavy(0), &token).await.is(429, "rate_limited");
}

#[tokio::test]
async fn a_query_by_form_counts_as_a_query_of_its_metric() {
    let fixture = DataFixture::with_shop().await;
    let last = async || {
        let list = fixture.get("metrics?search=up").await.value();
        list["data"][0]["last_queried"].clone()
    };
    assert_eq!(last().await, Value::Null);
    assert_eq!(fixture.post_form(&fixture.cabinet, "acme", "query/range?metric=up").await.status, 200);
    assert_eq!(last().await, NOW);
}

/// A session sends one request more than its rate limit, as a form.
#[tokio::test]
async fn forms_are_charged_to_the_rate_limit_of_a_session() {
    let mut options = ApiOptions::new("http://127.0.0.1:8095");
    options.limits.cabinet_rps = 4;
    let server = TestServer::build(TestServerOptions { options, ..TestServerOptions::default() });
    let fixture = DataFixture::of(server).await;
    fixture.server.pass(std::time::Duration::from_secs(2));
    let mut statuses = Vec::new();
    for query in QUERIES.into_iter().chain(["query/range?metric=up"]) {
        statuses.push(fixture.post_form(&fixture.cabinet, "acme", query).await.status.as_u16());
    }
    assert_eq!(statuses, [200, 200, 200, 200, 429]);
}
