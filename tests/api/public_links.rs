//! Public links of dashboards, and the pages that show them (docs/specification.md C9).

use std::time::Duration;

use axum::body::Body;
use axum::http::header;
use promlet::entropy::Entropy;
use promlet::identity::{DashboardPolicy, NewPublicLink, Role};
use serde_json::{Value, json};

use crate::dashboards::DASHBOARDS;
use crate::members::person;
use crate::test_server::{Reply, TestServer, Who, ask, ask_from, signed};

const PROBE: &str = "/api/v1/orgs/acme/query/probe-dashboard";
const OWN_ORIGIN: &str = "http://127.0.0.1:8095";

fn links(uid: &str) -> String {
    format!("{DASHBOARDS}/{uid}/links")
}

async fn allow(server: &TestServer, who: &Who, on: bool) {
    let body = json!({ "settings": { "public_links": on } });
    let reply = server.json("PATCH", "/api/v1/orgs/acme", who, body).await;
    assert_eq!((reply.status.as_u16(), &reply.value()["settings"]["public_links"]), (200, &json!(on)));
}

async fn with_dashboard(uid: &str) -> (TestServer, Who) {
    let server = TestServer::new();
    let ada = server.log_in().await;
    let made = server.post(DASHBOARDS, &ada, json!({ "dashboard": { "uid": uid, "title": "T" } })).await;
    assert_eq!(made.status, 201, "{}", made.body);
    allow(&server, &ada, true).await;
    (server, ada)
}

/// Creates a link of the dashboard `node`. Returns its path and its secret.
async fn link(server: &TestServer, who: &Who, fields: Value) -> (String, Who) {
    let made = server.post(&links("node"), who, fields).await;
    assert_eq!(made.status, 201, "{}", made.body);
    (format!("{}/{}", links("node"), made.text("id")), Who::Bearer(secret(&made)))
}

fn secret(made: &Reply) -> String {
    let url = made.text("url");
    url.strip_prefix("http://127.0.0.1:8095/share?link=").expect("the public URL").to_owned()
}

async fn from_page(server: &TestServer, path: &str, who: &Who, origin: &str) -> Reply {
    let request = ask("GET", path, who).header(header::ORIGIN, origin);
    server.send(request.body(Body::empty()).expect("a request")).await
}

#[tokio::test]
async fn editors_create_list_change_and_delete_public_links() {
    let server = TestServer::new();
    let ada = server.log_in().await;
    let (viewer, _) = person(&server, "v@example.com", Some(Role::Viewer));
    let (editor, _) = person(&server, "e@example.com", Some(Role::Editor));
    server.post(DASHBOARDS, &ada, json!({ "dashboard": { "uid": "node", "title": "T" } })).await;
    let off = server.post(&links("node"), &ada, json!({})).await;
    off.is(403, "public_links_off");
    assert!(off.text("detail").contains("an administrator or owner turns them on"), "{}", off.body);
    let on = json!({ "settings": { "public_links": true } });
    server.json("PATCH", "/api/v1/orgs/acme", &editor, on).await.is(403, "forbidden");
    allow(&server, &ada, true).await;

    server.get(&links("node"), &viewer).await.is(403, "forbidden");
    server.post(&links("node"), &viewer, json!({})).await.is(403, "forbidden");
    let plain = server.post(&links("node"), &editor, json!({})).await;
    assert_eq!(plain.status, 201, "{}", plain.body);
    let value = plain.value();
    let expected = [
        ("name", json!("")),
        ("dashboard", json!("node")),
        ("expires_at", Value::Null),
        ("disabled", json!(false)),
        ("last_used_at", Value::Null),
        ("locked", json!({})),
        ("open", json!({})),
        ("max_range_s", Value::Null),
        ("origins", json!(["*"])),
        ("rate_limit_rps", json!(20)),
    ];
    for (field, expected) in expected {
        assert_eq!(value[field], expected, "{field}");
    }
    server.pass(Duration::from_secs(1));
    let soon = server.clock.now().plus(Duration::from_secs(600)).to_rfc3339();
    let settings = json!({
        "name": "for a customer",
        "locked": { "tenant": "t42", "host": { "label": "instance", "values": ["a:9100", "b:9100"] } },
        "open": { "route": ["/a", "/b"], "zone": null },
        "max_range_s": 3_600, "max_lookback_s": 86_400, "min_step_s": 15,
        "origins": ["https://app.example.com"], "rate_limit_rps": 50, "expires_at": soon,
    });
    let full = server.post(&links("node"), &editor, settings.clone()).await;
    for (field, expected) in settings.as_object().expect("an object") {
        assert_eq!(&full.value()[field], expected, "{field}");
    }
    let list = server.get(&links("node"), &editor).await.value();
    assert_eq!(list["data"], json!([value, full.value()]), "with the addresses");
    assert_eq!(server.get(&format!("{}?limit=1", links("node")), &ada).await.value()["data"][0], value);
    server.get(&format!("{}?limit=x", links("node")), &ada).await.is(400, "invalid_parameter");
    server.get(&format!("{}?limit=1&limit=1", links("node")), &ada).await.is(400, "duplicate_parameter");

    let path = format!("{}/{}", links("node"), full.text("id"));
    let change = json!({ "disabled": true, "open": ["route"], "max_range_s": null, "expires_at": null });
    let changed = server.json("PATCH", &path, &editor, change).await.value();
    assert_eq!(changed["open"], json!(["route"]));
    assert_eq!((&changed["max_range_s"], &changed["expires_at"]), (&Value::Null, &Value::Null));
    assert_eq!((&changed["locked"], &changed["url"]), (&settings["locked"], &full.value()["url"]));
    assert_eq!(changed["disabled"], true);
    server.json("PATCH", &path, &viewer, json!({})).await.is(403, "forbidden");
    server.delete(&path, &viewer).await.is(403, "forbidden");

    // While links are turned off they are listed, disabled and deleted, but not enabled.
    allow(&server, &ada, false).await;
    assert_eq!(server.get(&links("node"), &editor).await.value()["data"].as_array().map(Vec::len), Some(2));
    server.json("PATCH", &path, &editor, json!({ "disabled": false })).await.is(403, "public_links_off");
    assert_eq!(server.json("PATCH", &path, &editor, json!({ "name": "x" })).await.status, 200);
    assert_eq!(server.delete(&path, &editor).await.status, 204);
    server.delete(&path, &editor).await.is(404, "not_found");
    server.json("PATCH", &path, &editor, json!({})).await.is(404, "not_found");
    server.delete(&format!("{}/none", links("node")), &editor).await.is(404, "not_found");
    server.get(&links("none"), &editor).await.is(404, "not_found");
    allow(&server, &ada, true).await;
    server.post(&links("none"), &editor, json!({})).await.is(404, "not_found");

    let entries = server.get("/api/v1/orgs/acme/audit", &ada).await.value();
    let actions: Vec<&str> =
        entries["data"].as_array().expect("rows").iter().filter_map(|row| row["action"].as_str()).collect();
    for action in ["public_link.created", "public_link.updated", "public_link.deleted", "settings.changed"] {
        assert!(actions.contains(&action), "{action}: {actions:?}");
    }
    assert!(!entries.to_string().contains("mpl_"), "no secret in the audit log");
}

#[tokio::test]
async fn a_typo_or_an_invalid_setting_of_a_public_link_is_refused() {
    let (server, ada) = with_dashboard("node").await;
    let (path, _) = link(&server, &ada, json!({})).await;
    for (body, field) in [
        (json!({ "lokced": {} }), None),
        (json!({ "disabled": 1 }), None),
        (json!({ "max_range_s": -1 }), None),
        (json!({ "name": "x".repeat(201) }), Some("name")),
        (json!({ "locked": { "tenant": [] } }), Some("locked")),
        (json!({ "locked": { "tenant": { "label": "", "values": ["x"] } } }), Some("locked")),
        (json!({ "locked": { "tenant": { "values": ["x"], "extra": 1 } } }), Some("locked")),
        (json!({ "locked": ["tenant"] }), Some("locked")),
        (json!({ "open": "route" }), Some("open")),
        (json!({ "open": ["route", "route"] }), Some("open")),
        (json!({ "origins": ["https://a.example; default-src *"] }), Some("origins")),
        (json!({ "rate_limit_rps": 0 }), Some("rate_limit_rps")),
        (json!({ "expires_at": "soon" }), Some("expires_at")),
        (json!({ "expires_at": "2001-01-01T00:00:00Z" }), Some("expires_at")),
    ] {
        for reply in [
            server.post(&links("node"), &ada, body.clone()).await,
            server.json("PATCH", &path, &ada, body.clone()).await,
        ] {
            let stated = reply.value()["errors"][0]["field"].as_str().map(str::to_owned);
            assert_eq!(reply.status, 422, "{body}: {}", reply.body);
            assert!(field.is_none_or(|field| stated.as_deref() == Some(field)), "{body}: {}", reply.body);
        }
    }
    assert_eq!(server.get(&links("node"), &ada).await.value()["data"].as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn a_public_link_opens_the_endpoints_of_its_dashboard_and_nothing_else() {
    let (server, ada) = with_dashboard("node").await;
    let (path, link) = link(&server, &ada, json!({ "locked": { "tenant": "t42" } })).await;
    let entered = server.get(PROBE, &link).await;
    assert_eq!(entered.status, 200, "{}", entered.body);
    assert!(entered.body.contains("tenant") && entered.body.contains("t42"), "{}", entered.body);
    assert_eq!(entered.header("ratelimit-policy"), "\"embed\";q=20;w=1");
    for refused in ["query/probe-range", "query/probe-expr", "metrics", "query/expr-instant?query=up"] {
        server.get(&format!("/api/v1/orgs/acme/{refused}"), &link).await.is(403, "embed_restricted");
    }
    for mount in ["query?query=up", "status/buildinfo", "labels", "format_query?query=up"] {
        let reply = server.get(&format!("/api/v1/orgs/acme/prometheus/api/v1/{mount}"), &link).await;
        assert_eq!(
            (reply.status.as_u16(), reply.refused.map(|code| code.as_str())),
            (403, Some("embed_restricted"))
        );
    }
    server.post("/api/v1/orgs/acme/import/probe", &link, json!({})).await.is(403, "embed_restricted");
    for closed in ["orgs/acme", "orgs/acme/api-keys", "orgs/acme/audit", "admin/stats", "auth/me"] {
        server.get(&format!("/api/v1/{closed}"), &link).await.is(401, "session_required");
    }
    server.get(&links("node"), &link).await.is(401, "session_required");
    server.delete(&path, &link).await.is(401, "session_required");
    server.post("/api/v1/orgs/acme/embed/tokens", &link, json!({})).await.is(401, "session_required");
    let listed = server.get(&links("node"), &ada).await.value();
    assert!(listed["data"][0]["last_used_at"].is_string(), "{listed}");
}

#[tokio::test]
async fn a_public_link_is_no_api_key() {
    let (server, ada) = with_dashboard("node").await;
    let (path, link) = link(&server, &ada, json!({})).await;
    let id = path.rsplit('/').next().expect("an id").to_owned();
    let keys = "/api/v1/orgs/acme/api-keys";
    assert_eq!(server.get(keys, &ada).await.value()["data"], json!([]));
    let key = format!("{keys}/{id}");
    server.get(&key, &ada).await.is(404, "not_found");
    server.json("PATCH", &key, &ada, json!({ "name": "x" })).await.is(404, "not_found");
    server.delete(&key, &ada).await.is(404, "not_found");
    server.post(&format!("{key}/rotate"), &ada, json!({ "overlap_s": 0 })).await.is(404, "not_found");
    server.post(&format!("{key}/revoke-tokens"), &ada, json!({})).await.is(404, "not_found");
    let mint = json!({ "api_key_id": id });
    server.post("/api/v1/orgs/acme/embed/tokens", &ada, mint).await.is(404, "not_found");
    let as_password = Who::Basic("any".into(), link.secret().into());
    server.get(PROBE, &as_password).await.is(401, "api_key_invalid");
    let now = server.clock.now().as_s();
    let claims = json!({ "aud": "ms-embed", "org": "acme", "iat": now, "exp": now + 60 });
    let token = Who::Bearer(signed(&id, link.secret(), &claims));
    server.get(PROBE, &token).await.is(401, "token_invalid");
    assert_eq!(server.get(PROBE, &link).await.status, 200, "it still works as a link");
}

#[tokio::test]
async fn a_disabled_expired_or_deleted_link_is_refused_and_so_are_all_while_links_are_off() {
    let (server, ada) = with_dashboard("node").await;
    let soon = server.clock.now().plus(Duration::from_secs(60)).to_rfc3339();
    let (path, link) = link(&server, &ada, json!({ "expires_at": soon })).await;
    let refused = async |reason: &str| {
        let reply = server.get(PROBE, &link).await;
        reply.is(401, "public_link_invalid");
        assert!(reply.text("detail").contains(reason), "{reason}: {}", reply.body);
        let page = server.get(&format!("/share?link={}", link.secret()), &Who::Nobody).await;
        assert_eq!(page.status, 404);
        assert!(page.body.contains("content=\"public_link_invalid\""), "{}", page.body);
    };
    assert_eq!(server.get(PROBE, &link).await.status, 200);
    server.json("PATCH", &path, &ada, json!({ "disabled": true })).await;
    refused("disabled").await;
    server.json("PATCH", &path, &ada, json!({ "disabled": false })).await;
    allow(&server, &ada, false).await;
    refused("turned off").await;
    allow(&server, &ada, true).await;
    assert_eq!(server.get(PROBE, &link).await.status, 200);
    server.pass(Duration::from_secs(60));
    refused("expired").await;
    server.json("PATCH", &path, &ada, json!({ "expires_at": null })).await;
    assert_eq!(server.get(PROBE, &link).await.status, 200);
    server.delete(&path, &ada).await;
    refused("no such public link").await;
    // A deleted dashboard takes its links along.
    let (_, link) = self::link(&server, &ada, json!({})).await;
    assert_eq!(server.delete(&format!("{DASHBOARDS}/node"), &ada).await.status, 204);
    server.get(PROBE, &link).await.is(401, "public_link_invalid");
    let again = server.post(DASHBOARDS, &ada, json!({ "dashboard": { "uid": "node", "title": "T" } })).await;
    assert_eq!(again.status, 201);
    server.get(PROBE, &link).await.is(401, "public_link_invalid");
    assert_eq!(server.get(&links("node"), &ada).await.value()["data"], json!([]));
}

#[tokio::test]
async fn a_link_of_another_organisation_is_a_mismatch_and_cookies_never_help() {
    let (server, ada) = with_dashboard("node").await;
    assert_eq!(server.post("/api/v1/orgs", &ada, json!({ "slug": "other" })).await.status, 201);
    let (_, link) = link(&server, &ada, json!({})).await;
    let other = PROBE.replace("acme", "other");
    server.get(&other, &link).await.is(403, "org_mismatch");
    server.get(&PROBE.replace("acme", "none"), &link).await.is(403, "org_mismatch");
    // The session of an owner of both does not stand in for a link that grants less or nothing.
    let with_cookie = async |path: &str, bearer: &str| {
        let request = ask("GET", path, &ada).header(header::AUTHORIZATION, format!("Bearer {bearer}"));
        server.send(request.body(Body::empty()).expect("a request")).await
    };
    with_cookie(&other, link.secret()).await.is(403, "org_mismatch");
    with_cookie("/api/v1/orgs/acme/query/probe-expr", link.secret()).await.is(403, "embed_restricted");
    with_cookie("/api/v1/orgs/acme", link.secret()).await.is(401, "session_required");
    with_cookie(PROBE, "mpl_none").await.is(401, "public_link_invalid");
    let served = with_cookie(PROBE, link.secret()).await;
    assert_eq!((served.status.as_u16(), served.headers.contains_key(header::SET_COOKIE)), (200, false));
}

#[tokio::test]
async fn guesses_of_links_are_charged_to_their_address_and_uses_to_the_link() {
    let (server, ada) = with_dashboard("node").await;
    let (_, link) = link(&server, &ada, json!({ "rate_limit_rps": 3 })).await;
    for _ in 0..3 {
        assert_eq!(server.get(PROBE, &link).await.status, 200);
    }
    let refused = server.get(PROBE, &link).await;
    refused.is(429, "rate_limited");
    assert_eq!(refused.text("scope"), "api_key");
    let guess = |n: u32| {
        let guess = Who::Bearer(format!("mpl_{n:0>16}_{n:0>46}"));
        ask_from("192.0.2.7:1", "GET", PROBE, &guess).body(Body::empty()).expect("a request")
    };
    let mut refused = None;
    for n in 0..1_000 {
        let reply = server.send(guess(n)).await;
        if reply.status == 429 {
            refused = Some((n, reply.text("scope")));
            break;
        }
        reply.is(401, "public_link_invalid");
    }
    let (after, scope) = refused.expect("guessing is limited");
    assert!(after <= 400 && scope == "ip", "{after} {scope}");
    // The pages are charged to the same address, so they cannot be used to avoid a limit.
    let page = ask_from("192.0.2.7:1", "GET", "/share?link=mpl_x", &Who::Nobody);
    let page = server.send(page.body(Body::empty()).expect("a request")).await;
    assert_eq!(page.status, 429, "{}", page.body);
    assert_eq!(server.get("/share?link=mpl_x", &Who::Nobody).await.status, 404, "another address");
}

#[tokio::test]
async fn pages_of_other_origins_use_a_link_only_if_it_allows_them() {
    let (server, ada) = with_dashboard("node").await;
    let (_, any) = link(&server, &ada, json!({})).await;
    let (_, one) = link(&server, &ada, json!({ "origins": ["https://a.example"] })).await;
    let allowed = |reply: &Reply| reply.header("access-control-allow-origin").to_owned();
    for (link, origin, status) in [
        (&any, "https://b.example", 200),
        (&one, "https://a.example", 200),
        (&one, "https://b.example", 403),
        (&one, "null", 403),
        (&one, "https://a.example.evil", 403),
    ] {
        let reply = from_page(&server, PROBE, link, origin).await;
        assert_eq!(reply.status.as_u16(), status, "{origin}: {}", reply.body);
        assert_eq!(allowed(&reply), if status == 200 { origin } else { "" }, "{origin}");
    }
    // The script of a frame has the origin of this server, whatever page shows the frame.
    assert_eq!(from_page(&server, PROBE, &one, OWN_ORIGIN).await.status, 200);
    let (key, _) = server.key(&ada, json!({ "scopes": ["embed"] })).await;
    let ms = json!({ "ms": { "dashboard": { "uid": "node" }, "origins": ["https://a.example"] } });
    let token = server.token(&ada, &key, ms).await;
    assert_eq!(from_page(&server, PROBE, &token, OWN_ORIGIN).await.status, 200);
    from_page(&server, PROBE, &token, "http://127.0.0.1:8096").await.is(403, "origin_not_allowed");
    // An expired link can be told from a broken network by a page of any origin.
    let invalid = from_page(&server, PROBE, &Who::Bearer("mpl_none".into()), "https://b.example").await;
    assert_eq!(allowed(&invalid), "https://b.example");
}

/// Checks the headers that every response of the two pages has.
fn assert_page(page: &Reply, ancestors: &str) {
    let policy =
        format!("default-src 'self'; frame-ancestors {ancestors}; base-uri 'none'; form-action 'none'");
    assert_eq!(page.header("content-security-policy"), policy);
    for (name, expected) in [
        ("content-type", "text/html; charset=utf-8"),
        ("referrer-policy", "no-referrer"),
        ("x-robots-tag", "noindex"),
        ("cache-control", "no-store"),
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", ""),
        ("set-cookie", ""),
    ] {
        assert_eq!(page.header(name), expected, "{name}");
    }
}

fn meta(page: &Reply, name: &str) -> String {
    let start = format!("name=\"promlet-{name}\" content=\"");
    let rest = page.body.split_once(&start).map_or("", |(_, rest)| rest);
    rest.split('"').next().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn the_pages_name_their_dashboard_and_are_framed_by_the_listed_origins_only() {
    let (server, ada) = with_dashboard("node").await;
    let (_, any) = link(&server, &ada, json!({})).await;
    let two = json!({ "origins": ["https://a.example", "http://b.example:8080"] });
    let (_, two) = link(&server, &ada, two).await;
    let (_, none) = link(&server, &ada, json!({ "origins": [] })).await;
    let share = |link: &Who| format!("/share?link={}&from=now-1h&theme=dark", link.secret());
    for (link, ancestors) in
        [(&any, "*"), (&two, "https://a.example http://b.example:8080"), (&none, "'none'")]
    {
        // With and without the session of a member the page is the same.
        let page = server.get(&share(link), &ada).await;
        assert_eq!(
            (page.status.as_u16(), &page.body),
            (200, &server.get(&share(link), &Who::Nobody).await.body)
        );
        assert_page(&page, ancestors);
        assert_eq!((meta(&page, "org"), meta(&page, "dashboard")), ("acme".into(), "node".into()));
        assert_eq!(meta(&page, "refusal"), "");
        assert!(!page.body.contains("mpl_"), "the page does not repeat the secret");
    }
    let key =
        json!({ "scopes": ["embed"], "embed": { "origins": ["https://a.example", "https://c.example"] } });
    let (key, secret) = server.key(&ada, key).await;
    let frame = |token: &Who| format!("/frame?token={}", token.secret());
    let now = server.clock.now().as_s();
    // As a backend signs it: minting refuses origins that the key does not allow.
    let token = |ttl_s: i64, ms: Value| {
        let claims = json!({ "aud": "ms-embed", "org": "acme", "iat": now, "exp": now + ttl_s, "ms": ms });
        Who::Bearer(signed(&key, &secret, &claims))
    };
    let dashboard = json!({ "uid": "node" });
    let of = |origins: &[&str]| token(600, json!({ "dashboard": dashboard, "origins": origins }));
    let (disjoint, without) = (of(&["https://b.example"]), token(600, json!({})));
    let short = token(1, json!({ "dashboard": dashboard }));
    let token = of(&["https://b.example", "https://a.example"]);
    let page = server.get(&frame(&token), &Who::Nobody).await;
    assert_page(&page, "https://a.example");
    assert_eq!(
        (page.status.as_u16(), meta(&page, "org"), meta(&page, "dashboard")),
        (200, "acme".into(), "node".into())
    );

    assert_page(&server.get(&frame(&disjoint), &Who::Nobody).await, "'none'");
    server.pass(Duration::from_secs(60));
    for (path, refusal) in [
        ("/share".to_owned(), "public_link_invalid"),
        ("/share?link=".to_owned(), "public_link_invalid"),
        ("/share?link=mpl_%22%3E%3Cscript%3E".to_owned(), "public_link_invalid"),
        (format!("/share?link={}", token.secret()), "public_link_invalid"),
        (format!("/share?token={}", any.secret()), "public_link_invalid"),
        (format!("/share?link={}&token=", any.secret()), "public_link_invalid"),
        (format!("/frame?token={}&link=", token.secret()), "token_invalid"),
        ("/frame".to_owned(), "token_invalid"),
        (format!("/frame?token={}", any.secret()), "token_invalid"),
        (format!("/frame?token={}x", token.secret()), "token_invalid"),
        (frame(&short), "token_expired"),
        (frame(&without), "embed_restricted"),
    ] {
        let page = server.get(&path, &Who::Nobody).await;
        assert_page(&page, "'none'");
        assert_eq!((page.status.as_u16(), meta(&page, "refusal").as_str()), (404, refusal), "{path}");
        assert_eq!((meta(&page, "org"), meta(&page, "dashboard")), (String::new(), String::new()), "{path}");
        assert!(!page.body.contains("<script>"), "{path}");
    }
    server.get("/share?link=a&link=b", &Who::Nobody).await.is(400, "duplicate_parameter");
    let posted = ask("POST", &share(&any), &Who::Nobody).body(Body::empty()).expect("a request");
    server.send(posted).await.is(405, "method_not_allowed");
    let foreign = ask("GET", &share(&any), &Who::Nobody);
    let mut foreign = foreign.body(Body::empty()).expect("a request");
    foreign.headers_mut().insert(header::HOST, "evil.example".parse().expect("a value"));
    server.send(foreign).await.is(421, "host_not_allowed");
}

#[tokio::test]
async fn a_view_of_a_page_is_charged_neither_to_the_link_nor_to_the_key() {
    let (server, ada) = with_dashboard("node").await;
    let (_, link) = link(&server, &ada, json!({ "rate_limit_rps": 1 })).await;
    for _ in 0..5 {
        let page = server.get(&format!("/share?link={}", link.secret()), &Who::Nobody).await;
        assert_eq!(page.status, 200);
    }
    assert_eq!(server.get(PROBE, &link).await.status, 200, "its one request of this second");
    server.get(PROBE, &link).await.is(429, "rate_limited");
    assert_eq!(server.get(&links("node"), &ada).await.value()["data"].as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn the_hundred_and_first_link_of_a_dashboard_is_refused() {
    let (server, ada) = with_dashboard("node").await;
    let (org, now) =
        (server.identity.org_by_slug("acme").expect("read").expect("there").id, server.clock.now());
    for _ in 0..100 {
        let new = NewPublicLink {
            name: String::new(),
            dashboard: DashboardPolicy { uid: "node".into(), ..DashboardPolicy::default() },
            max_range_s: None,
            max_lookback_s: None,
            min_step_s: None,
            origins: Vec::new(),
            rate_limit_rps: 1,
            query_seconds_per_minute: 1,
            expires_at: None,
        };
        let made = server.identity.create_public_link(org, None, new, now, &mut Entropy::system());
        made.expect("made");
    }
    server.post(&links("node"), &ada, json!({})).await.is(409, "limit_reached");
}
