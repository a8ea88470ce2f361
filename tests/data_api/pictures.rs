//! `render.svg` and `render.png` (docs/specification.md C5): what a picture shows, its credential,
//! and how long it may be kept.

use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, header};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tower::ServiceExt as _;
use zune_png::PngDecoder;
use zune_png::zune_core::bytestream::ZCursor;
use zune_png::zune_core::options::DecoderOptions;

use crate::test_server::{Reply, TestServerOptions, Who, ask, signed};
use crate::wire::{DataFixture, NOW, escaped};

const EXPR: &str = "sum%20by%20(job)%20(http_requests_total)";

fn svg(more: &str) -> String {
    format!("render.svg?expr={EXPR}&start={}&end={NOW}&step=15{more}", NOW - 900)
}

/// Sends a request to `/api/v1/orgs/acme/` with additional headers, and without a credential.
async fn get_with(fixture: &DataFixture, path: &str, headers: &[(header::HeaderName, &str)]) -> Reply {
    let request = ask("GET", &format!("/api/v1/orgs/acme/{path}"), &Who::Nobody);
    let request = headers.iter().fold(request, |request, (name, value)| request.header(name, *value));
    fixture.server.send(request.body(Body::empty()).expect("a request")).await
}

/// Returns the headers, the width, the height and the pixels of a PNG.
async fn png(fixture: &DataFixture, path: &str) -> (HeaderMap, usize, usize, Vec<u8>) {
    let request = ask("GET", &format!("/api/v1/orgs/acme/{path}"), &fixture.cabinet);
    let request = request.body(Body::empty()).expect("a request");
    let response = fixture.server.router.clone().oneshot(request).await.expect("infallible");
    assert_eq!(response.status(), 200, "{path}");
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await.expect("a body").to_bytes();
    let options = DecoderOptions::default().set_strict_mode(true);
    let mut decoder = PngDecoder::new_with_options(ZCursor::new(bytes), options);
    let pixels = decoder.decode_raw().expect("a picture");
    let (width, height) = decoder.dimensions().expect("decoded");
    (parts.headers, width, height, pixels)
}

#[tokio::test]
async fn a_picture_shows_the_series_of_its_query() {
    let fixture = DataFixture::with_shop().await;
    let reply = fixture.get(&svg("&title=Shop&legend=job+%7B%7Bjob%7D%7D&unit=req/s&tz=%2B02:00")).await;
    assert_eq!((reply.status.as_u16(), reply.header("content-type")), (200, "image/svg+xml"));
    for text in ["Shop</text>", "job api</text>", "job web</text>", "req/s</text>", "UTC+2</text>"] {
        assert!(reply.body.contains(text), "{text}: {}", reply.body);
    }
    assert_eq!(reply.body.matches("stroke-linecap=\"round\"").count(), 2, "a line for each series");
    let structured = format!("render.svg?metric=up&match=job%3D%22web%22&start={}&end={NOW}", NOW - 900);
    let reply = fixture.get(&structured).await;
    assert!(reply.body.contains("up{job=&quot;web&quot;}</text>"), "{}", reply.body);

    let path = svg("&width=300&height=120&scale=2&theme=dark").replace("render.svg", "render.png");
    let (headers, width, height, pixels) = png(&fixture, &path).await;
    assert_eq!((headers["content-type"].as_bytes(), width, height), (&b"image/png"[..], 600, 240));
    assert_eq!(pixels[..3], [0x15, 0x17, 0x1e], "a dark background");
    for ink in [[0x7a, 0xae, 0xff], [0xff, 0x9d, 0x5c]] {
        assert!(pixels.chunks(3).any(|pixel| pixel == ink), "the colour of a series: {ink:?}");
    }
}

#[tokio::test]
async fn a_result_without_series_and_one_of_many_have_pictures_that_say_so() {
    let fixture = DataFixture::new().await;
    let names: Vec<String> = (0..300).map(|n| format!("{n:03}")).collect();
    let labels: Vec<[(&str, &str); 2]> =
        names.iter().map(|name| [("__name__", "many"), ("n", name.as_str())]).collect();
    let samples = [((NOW - 15) * 1_000, 1.0)];
    let series: Vec<crate::wire::Series<'_>> =
        labels.iter().map(|labels| (&labels[..], &samples[..])).collect();
    fixture.write(&series).await;
    let many = fixture.get("render.svg?expr=many&height=600").await;
    assert!(many.body.contains("Drawing 200 of 300 series.") && many.body.contains("276 more</text>"));
    let none = fixture.get("render.svg?metric=nonsense").await;
    assert!(none.body.contains("No data in this range</text>"), "{}", none.body);
    assert!(none.body.contains("the metric &quot;nonsense&quot; is not known</text>"), "{}", none.body);
}

#[tokio::test]
async fn parameters_of_the_look_are_bounded() {
    let fixture = DataFixture::with_shop().await;
    let long = "x".repeat(257);
    for (more, parameter) in [
        ("&width=99", "width"),
        ("&width=2001", "width"),
        ("&height=59", "height"),
        ("&height=2001", "height"),
        ("&scale=0", "scale"),
        ("&scale=4", "scale"),
        ("&width=2000&height=2000&scale=2", "scale"),
        ("&theme=pink", "theme"),
        ("&tz=Mars/Base", "tz"),
        (&format!("&title={long}"), "title"),
        (&format!("&unit={long}"), "unit"),
        (&format!("&legend={long}"), "legend"),
        ("&explain=true", "explain"),
        ("&step=1ms", "step"),
    ] {
        for format in ["svg", "png"] {
            let path = format!("render.{format}?expr=up&start={}&end={NOW}{more}", NOW - 900);
            let reply = fixture.get(&path).await;
            reply.is(400, "invalid_parameter");
            assert_eq!(reply.value()["errors"][0]["field"], parameter, "{more}: {}", reply.body);
        }
    }
    for more in
        ["&width=100&height=60", "&width=2000&height=2000", "&title=%00%1b%3Cscript%3E&tz=europe/berlin"]
    {
        let reply = fixture.get(&svg(more)).await;
        assert!(reply.status == 200 && !reply.body.contains("<script"), "{more}: {}", reply.body);
    }
}

#[tokio::test]
async fn a_token_sees_only_its_series_in_a_picture() {
    let fixture = DataFixture::with_shop().await;
    let ms =
        json!({ "match": ["tenant=\"a\""], "metrics": ["http_*"], "max_range_s": 3_600, "min_step_s": 15 });
    let token = fixture.embed(ms).await;
    let all = "render.svg?expr=%7B__name__!%3D%22%22%7D&start=now-15m&step=15";
    let whole = fixture.get(all).await;
    let scoped = fixture.get_as(&token, all).await;
    let lines = |reply: &Reply| reply.body.matches("stroke-linecap=\"round\"").count();
    assert_eq!((lines(&whole), lines(&scoped)), (5, 2));
    assert!(whole.body.contains("tenant=b</text>") && whole.body.contains(">5 series,"), "{}", whole.body);
    assert!(!scoped.body.contains("tenant=b") && scoped.body.contains(">2 series,"), "{}", scoped.body);
    // Neither a warning nor the number of hidden series.
    assert!(!scoped.body.contains("this token"), "{}", scoped.body);
    fixture.get_as(&token, "render.svg?metric=up").await.is(403, "metric_not_allowed");
    fixture.get_as(&token, "render.png?metric=up").await.is(403, "metric_not_allowed");
    fixture.get_as(&token, "render.svg?expr=up&start=now-2h").await.is(403, "embed_restricted");
    fixture.get_as(&token, "render.svg?expr=up&start=now-1m&step=5").await.is(403, "embed_restricted");
    let empty = fixture.get_as(&token, "render.svg?expr=up").await;
    assert!(empty.body.contains("No data in this range"), "{}", empty.body);
    let ranges = fixture.embed(json!({ "endpoints": ["range"] })).await;
    assert_eq!(fixture.get_as(&ranges, "render.svg?metric=up").await.status, 200);
    fixture.get_as(&ranges, "render.svg?expr=up").await.is(403, "embed_restricted");
}

#[tokio::test]
async fn a_token_may_be_a_parameter_but_not_twice_and_not_beside_a_header() {
    let fixture = DataFixture::with_shop().await;
    let token = fixture.embed(json!({ "match": ["tenant=\"a\""] })).await;
    let jwt = token.secret().to_owned();
    let path = svg(&format!("&token={jwt}"));
    let by_parameter = get_with(&fixture, &path, &[]).await;
    let by_header = fixture.get_as(&token, &svg("")).await;
    assert_eq!((by_parameter.status.as_u16(), &by_parameter.body), (200, &by_header.body));
    assert!(!by_parameter.body.contains(&jwt));
    // A cookie of a member does not extend the access of a token.
    let scoped = "render.svg?expr=http_requests_total&start=now-15m&step=15";
    let cookie = format!("ms_session={}", fixture.cabinet.secret());
    let with_cookie =
        get_with(&fixture, &format!("{scoped}&token={jwt}"), &[(header::COOKIE, &cookie)]).await;
    assert!(with_cookie.body.contains(">2 series,"), "{}", with_cookie.body);
    let bad = get_with(&fixture, &svg("&token=x.y.z"), &[(header::COOKIE, &cookie)]).await;
    bad.is(401, "token_invalid");
    get_with(&fixture, &svg("&token="), &[(header::COOKIE, &cookie)]).await.is(401, "token_invalid");
    let bearer = format!("Bearer {jwt}");
    get_with(&fixture, &path, &[(header::AUTHORIZATION, &bearer)]).await.is(400, "invalid_parameter");
    get_with(&fixture, &format!("{path}&token={jwt}"), &[]).await.is(400, "duplicate_parameter");
    let (_, secret) = fixture.server.key(&fixture.cabinet, json!({ "scopes": ["read", "embed"] })).await;
    get_with(&fixture, &svg(&format!("&token={secret}")), &[]).await.is(401, "token_invalid");
    fixture.get_as(&Who::Bearer(secret), &svg("")).await.is(401, "api_key_not_allowed");
    get_with(&fixture, &svg(""), &[]).await.is(401, "unauthenticated");
}

#[tokio::test]
async fn only_pictures_take_a_token_as_a_parameter() {
    let fixture = DataFixture::with_shop().await;
    let token = fixture.embed(json!({})).await;
    let jwt = token.secret();
    let mut pictures = Vec::new();
    for row in fixture.server.rows.clone() {
        // An address has 200 requests without a credential a second.
        fixture.server.pass(Duration::from_secs(1));
        let path = row.path.replace("{slug}", "acme").replace("{name}", "up").replace("{label}", "job");
        // The token of a mailed link is another one, and a live query does not end.
        if !row.path.starts_with("/api/")
            || ["/magic-link/verify", "/live"].iter().any(|end| path.ends_with(end))
        {
            continue;
        }
        let question = "expr=up&match[]=up&start=now-1m&end=now&step=15";
        let ask_for = |credential: &str| {
            let target = format!("{}?{question}{credential}", path.replace(['{', '}'], ""));
            ask(row.method, &target, &Who::Nobody).body(Body::empty()).expect("a request")
        };
        let (with, without) = (
            fixture.server.send(ask_for(&format!("&token={jwt}"))).await,
            fixture.server.send(ask_for("")).await,
        );
        if row.path.contains("/render.") {
            assert_eq!((with.status.as_u16(), without.status.as_u16()), (200, 401), "{path}");
            pictures.push(row.path.clone());
        } else {
            assert_eq!((with.status, with.refused), (without.status, without.refused), "{path}");
        }
    }
    assert_eq!(pictures, ["/api/v1/orgs/{slug}/render.svg", "/api/v1/orgs/{slug}/render.png"]);
    // Other methods, and paths that only begin like one.
    for (method, path) in [
        ("POST", "render.svg"),
        ("GET", "render.svg/x"),
        ("GET", "render"),
        ("GET", "query/range"),
        ("GET", "query/../render.svg"),
    ] {
        let target = format!("/api/v1/orgs/acme/{path}?expr=up&token={jwt}");
        let reply = fixture
            .server
            .send(ask(method, &target, &Who::Nobody).body(Body::empty()).expect("a request"))
            .await;
        assert!(reply.status.is_client_error(), "{method} {path}: {}", reply.status);
    }
}

#[tokio::test]
async fn a_picture_of_an_expired_or_foreign_token_is_refused() {
    let fixture = DataFixture::with_shop().await;
    let (key, secret) = fixture
        .server
        .key(&fixture.cabinet, json!({ "scopes": ["embed"], "embed": { "rate_limit_rps": 10_000 } }))
        .await;
    let minted = |org: &str, exp: i64| {
        let claims = json!({ "aud": "ms-embed", "org": org, "iat": exp - 600, "exp": exp });
        signed(&key, &secret, &claims)
    };
    let at = |token: String| svg(&format!("&token={token}"));
    assert_eq!(get_with(&fixture, &at(minted("acme", NOW + 60)), &[]).await.status, 200);
    let expired = get_with(&fixture, &at(minted("acme", NOW - 600)), &[]).await;
    expired.is(401, "token_expired");
    assert_eq!(expired.header("cache-control"), "no-store");
    get_with(&fixture, &at(minted("other", NOW + 60)), &[]).await.is(401, "token_invalid");
    let target = format!("/api/v1/orgs/other/{}", at(minted("acme", NOW + 60)));
    fixture.server.get(&target, &Who::Nobody).await.is(403, "org_mismatch");
}

#[tokio::test]
async fn a_picture_is_kept_for_a_step_by_one_client_and_not_longer_than_its_token() {
    let fixture = DataFixture::with_shop().await;
    let first = fixture.get("render.svg?expr=up&step=60").await;
    assert_eq!(first.header("cache-control"), "private, max-age=60");
    let vary: Vec<_> = first.headers.get_all("vary").iter().filter_map(|value| value.to_str().ok()).collect();
    assert!(vary.join(", ").starts_with("Accept-Encoding, Authorization, Cookie"), "{vary:?}");
    assert_eq!(first.header("cross-origin-resource-policy"), "same-origin");
    assert_eq!(first.header("content-security-policy"), "default-src 'none'; sandbox");
    assert_eq!(first.header("referrer-policy"), "no-referrer");
    let tag = first.header("etag").to_owned();
    assert!(tag.starts_with("W/\""), "{tag}");
    // Within the same step the picture is the same one.
    let again = |path: &'static str, tag: String| {
        let request = ask("GET", &format!("/api/v1/orgs/acme/{path}"), &fixture.cabinet);
        let request = request.header(header::IF_NONE_MATCH, tag).body(Body::empty()).expect("a request");
        fixture.server.send(request)
    };
    let path = "render.svg?expr=up&step=60";
    let unchanged = again(path, tag.clone()).await;
    assert_eq!((unchanged.status.as_u16(), unchanged.body.as_str()), (304, ""));
    assert_eq!((unchanged.header("etag"), unchanged.header("cache-control")), (&*tag, "private, max-age=60"));
    fixture.server.pass(Duration::from_secs(60));
    let changed = again(path, tag).await;
    assert_eq!(changed.status, 200, "a new step has a new picture");

    let (key, secret) = fixture
        .server
        .key(&fixture.cabinet, json!({ "scopes": ["embed"], "embed": { "rate_limit_rps": 10_000 } }))
        .await;
    let now = NOW + 60;
    let claims = json!({ "aud": "ms-embed", "org": "acme", "iat": now, "exp": now + 30 });
    let token = Who::Bearer(signed(&key, &secret, &claims));
    let brief = fixture.get_as(&token, path).await;
    assert_eq!(brief.header("cache-control"), "private, max-age=30");
    assert_eq!(brief.header("cross-origin-resource-policy"), "cross-origin");
}

#[tokio::test]
async fn a_page_of_an_allowed_origin_may_read_a_picture() {
    let fixture = DataFixture::with_shop().await;
    let token = fixture.embed(json!({ "origins": ["https://shop.example"] })).await;
    let path = svg(&format!("&token={}", token.secret()));
    let allowed = get_with(&fixture, &path, &[(header::ORIGIN, "https://shop.example")]).await;
    assert_eq!(
        (allowed.status.as_u16(), allowed.header("access-control-allow-origin")),
        (200, "https://shop.example")
    );
    let other = get_with(&fixture, &path, &[(header::ORIGIN, "https://evil.example")]).await;
    other.is(403, "origin_not_allowed");
}

#[tokio::test]
async fn a_picture_costs_what_its_query_costs() {
    let mut options = TestServerOptions::default();
    options.options.read.promql.limits.memory_bytes_max = 2 << 20;
    let fixture = DataFixture::of(crate::test_server::TestServer::build(options)).await;
    let fixture = DataFixture::with_shop_of(fixture).await;
    assert_eq!(fixture.get("query/range?expr=up").await.status, 200);
    assert_eq!(fixture.get("render.png?expr=up&width=100&height=60").await.status, 200);
    // The pixels alone need more memory than the query may use.
    let reply = fixture.get("render.png?expr=up&width=1000&height=1000").await;
    reply.is(422, "query_too_expensive");
    let expr = escaped("count_over_time(up[1h:1s])");
    let slow = fixture.get(&format!("render.svg?expr={expr}&start=now-1h&step=1&timeout=1ms")).await;
    assert!([422, 503].contains(&slow.status.as_u16()), "{}", slow.body);
    let listed: Value = fixture.get("queries").await.value();
    assert_eq!(listed["data"], json!([]), "no query is left");
}

/// A dashboard with a panel of two queries, and one of another data source.
fn document() -> Value {
    let target = |ref_id: &str, expr: &str, legend: &str| json!({ "refId": ref_id, "expr": expr, "legendFormat": legend });
    json!({
        "uid": "shop", "title": "Shop",
        "templating": { "list": [
            { "name": "tenant", "type": "custom", "query": "a,b", "current": { "text": "b", "value": "b" } },
            { "name": "job", "type": "custom", "query": "api,web", "current": { "text": "api", "value": "api" } },
        ] },
        "panels": [
            { "id": 4, "type": "timeseries", "title": "Requests of ${job} for $tenant",
              "fieldConfig": { "defaults": { "unit": "percentunit" } },
              "targets": [
                  target("A", "http_requests_total{tenant=\"$tenant\", job=\"$job\"}", "{{tenant}} of [[job]]"),
                  target("B", "up{job=\"$job\"} * $__interval_ms", "interval"),
                  json!({ "refId": "C", "expr": "vector(1)", "hide": true }),
              ] },
            { "id": 5, "type": "logs", "datasource": { "type": "loki", "uid": "x" },
              "targets": [{ "refId": "A", "expr": "{job=\"secret\"}" }] },
        ],
    })
}

#[tokio::test]
async fn a_panel_of_a_dashboard_is_drawn_with_its_title_unit_and_names() {
    let fixture = DataFixture::with_shop().await;
    let path = "/api/v1/orgs/acme/dashboards";
    let made = fixture.server.post(path, &fixture.cabinet, json!({ "dashboard": document() })).await;
    assert_eq!(made.status, 201, "{}", made.body);
    let range = format!("start={}&end={NOW}&step=15", NOW - 900);
    let panel = |more: &str| format!("render.svg?dashboard=shop&panel=4&{range}{more}");
    let saved = fixture.get(&panel("")).await;
    for text in ["Requests of api for b</text>", ">b of api</text>", ">interval</text>", " %</text>"] {
        assert!(saved.body.contains(text), "{text}: {}", saved.body);
    }
    let chosen = fixture.get(&panel("&var-tenant=a&var-job=web&ref=A&title=Mine&unit=req&legend=x")).await;
    for text in ["Mine</text>", ">x</text>", " req</text>", ">1 series,"] {
        assert!(chosen.body.contains(text), "{text}: {}", chosen.body);
    }
    for (path, status, code) in [
        ("render.svg?dashboard=shop", 400, "invalid_parameter"),
        ("render.svg?dashboard=shop&panel=x", 400, "invalid_parameter"),
        ("render.svg?dashboard=shop&panel=4&expr=up", 400, "invalid_parameter"),
        ("render.svg?dashboard=shop&panel=4&var-none=a", 404, "not_found"),
        ("render.svg?dashboard=shop&panel=4&ref=C", 404, "not_found"),
        ("render.svg?dashboard=shop&panel=5", 404, "not_found"),
        ("render.svg?dashboard=other&panel=4", 404, "not_found"),
    ] {
        fixture.get(path).await.is(status, code);
    }
}

#[tokio::test]
async fn a_token_draws_only_its_dashboard_with_the_values_that_it_leaves_open() {
    let fixture = DataFixture::with_shop().await;
    let path = "/api/v1/orgs/acme/dashboards";
    let made = fixture.server.post(path, &fixture.cabinet, json!({ "dashboard": document() })).await;
    assert_eq!(made.status, 201, "{}", made.body);
    let token = fixture
        .embed(json!({ "dashboard": { "uid": "shop", "locked": { "tenant": "a" }, "open": ["job"] } }))
        .await;
    let jwt = token.secret();
    let range = format!("start={}&end={NOW}&step=15", NOW - 900);
    let panel = |more: &str| format!("render.svg?dashboard=shop&panel=4&ref=A&{range}{more}&token={jwt}");
    let own = get_with(&fixture, &panel("&var-job=web"), &[]).await;
    assert_eq!(own.status, 200, "{}", own.body);
    assert!(own.body.contains("Requests of web for a</text>") && own.body.contains(">a of web</text>"));
    assert!(!own.body.contains("http_requests_total"), "the expression stays hidden: {}", own.body);
    for more in
        ["&var-tenant=b", "&var-tenant=a", "&var-none=b", "&var-job=web%22%7D%20or%20vector(1)%20%23&panel=4"]
    {
        let reply = get_with(&fixture, &panel(more), &[]).await;
        let is_empty = reply.body.contains("No data in this range");
        assert!(reply.status == 403 || reply.status == 400 || is_empty, "{more}: {}", reply.body);
    }
    for path in [
        format!("render.svg?dashboard=other&panel=4&token={jwt}"),
        format!("render.svg?dashboard=shop&panel=9&token={jwt}"),
        format!("render.svg?dashboard=shop&panel=5&token={jwt}"),
        format!("render.svg?expr=up&token={jwt}"),
        format!("render.svg?metric=up&token={jwt}"),
    ] {
        get_with(&fixture, &path, &[]).await.is(403, "embed_restricted");
    }
    // A token without a dashboard draws no panel.
    let plain = fixture.embed(json!({ "match": ["tenant=\"a\""] })).await;
    fixture.get_as(&plain, "render.svg?dashboard=shop&panel=4").await.is(403, "embed_restricted");
}
