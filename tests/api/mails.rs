//! Mailed links: the same response for all, one use, limits (docs/specification.md B3, D5; threat
//! model rows 1, 15 to 19).

use std::time::Duration;

use axum::body::Body;
use axum::http::HeaderValue;
use promlet::identity::{Role, SignupMode};
use serde_json::json;
use tower::ServiceExt as _;

use crate::members::person;
use crate::test_server::{EMAIL, PASSWORD, Reply, TestServer, TestServerOptions, Who, ask, ask_from};

const REQUESTS: [&str; 3] = ["/auth/magic-link/request", "/auth/password/reset/request", "/auth/signup"];

fn open_server() -> TestServer {
    TestServer::build(TestServerOptions { signup: SignupMode::Open, ..TestServerOptions::default() })
}

/// Requests a mail from a separate network.
async fn mail_from(server: &TestServer, network: u32, path: &str, email: &str) -> Reply {
    let peer = format!("[2001:db8:{:x}:{:x}::1]:1", network >> 16, network & 0xffff);
    let request = ask_from(&peer, "POST", path, &Who::Nobody).header("content-type", "application/json");
    server.send(request.body(Body::from(json!({ "email": email }).to_string())).expect("a request")).await
}

/// The cookie of a browser that logged in to the account.
async fn device(server: &TestServer) -> String {
    let login = json!({ "email": EMAIL, "password": PASSWORD });
    let reply = server.post("/auth/login", &Who::Nobody, login).await;
    reply.cookie("ms_device").expect("a cookie of the device")
}

/// Requests a mail to the account from a browser that logged in to it. Returns the token of the
/// mail, if one was sent.
async fn owner_asks(server: &TestServer, device: &str, path: &str) -> Option<String> {
    let before = server.outbox.mails().len();
    let request = ask_from("192.0.2.1:1", "POST", path, &Who::Nobody).header("cookie", device);
    let request = request.header("content-type", "application/json");
    let body = Body::from(json!({ "email": EMAIL }).to_string());
    assert_eq!(server.send(request.body(body).expect("a request")).await.status, 202);
    let mails = server.outbox.mails();
    let mail = mails.get(before).filter(|mail| mail.to == EMAIL)?;
    Some(mail.url.split_once("token=").expect("a link").1.to_owned())
}

/// docs/specification.md F1: equal byte for byte except the request's id and the random cookie.
#[tokio::test]
async fn f01_every_response_for_an_address_is_the_same_whether_or_not_an_account_has_it() {
    let server = open_server();
    for path in REQUESTS {
        let mut answers = Vec::new();
        for email in [EMAIL, "nobody@example.com"] {
            let reply = server.post(path, &Who::Nobody, json!({ "email": email })).await;
            let names: Vec<_> = reply.headers.keys().map(|name| name.as_str().to_owned()).collect();
            answers.push((reply.status, reply.body, names));
        }
        assert_eq!(answers[0].0, 202, "{path}");
        assert_eq!(answers[0], answers[1], "{path}");
    }
    let mut answers = Vec::new();
    for email in [EMAIL, "nobody@example.com"] {
        let body = json!({ "email": email, "password": "wrong password" });
        let reply = server.post("/auth/login", &Who::Nobody, body).await;
        let id = reply.header("x-request-id").to_owned();
        let names: Vec<_> = reply.headers.keys().map(|name| name.as_str().to_owned()).collect();
        answers.push((reply.status, reply.body.replace(&id, ""), names));
    }
    assert_eq!(answers[0], answers[1]);
}

/// At most 3 mails in 15 minutes to one address from one network, and 20 an hour from all. The
/// response does not reveal it.
#[tokio::test]
async fn an_address_gets_three_mails_of_any_kind_in_a_quarter_of_an_hour() {
    let server = open_server();
    for path in REQUESTS.into_iter().cycle().take(9) {
        let reply = mail_from(&server, 1, path, EMAIL).await;
        assert_eq!(reply.status, 202, "{path}");
    }
    assert_eq!(server.outbox.mails().len(), 3);
    server.pass(Duration::from_secs(5 * 60));
    mail_from(&server, 1, REQUESTS[0], EMAIL).await;
    assert_eq!(server.outbox.mails().len(), 4, "one every five minutes from then on");
    for network in 2..40 {
        assert_eq!(mail_from(&server, network, REQUESTS[0], EMAIL).await.status, 202);
    }
    assert_eq!(server.outbox.mails().len(), 21, "20 at once, and one of the five minutes");
}

/// A stranger knows only the address. Despite all their requests, links of the owner stay valid,
/// and the owner's browser gets another one.
#[tokio::test]
async fn strangers_neither_void_nor_block_the_links_of_an_owner() {
    for (path, opens) in
        [(REQUESTS[0], "/auth/magic-link/verify"), (REQUESTS[1], "/auth/password/reset/confirm")]
    {
        let server = TestServer::new();
        let device = device(&server).await;
        let first = owner_asks(&server, &device, path).await.expect("mailed");
        for network in 0..60 {
            for path in REQUESTS {
                mail_from(&server, network, path, EMAIL).await;
            }
        }
        let mailed = server.outbox.mails().len();
        let second = owner_asks(&server, &device, path).await.expect("mailed");
        assert_eq!(server.outbox.mails().len(), mailed + 1, "{path}: the owner's browser is let through");
        let open = async |token: &str| {
            let body = json!({ "token": token, "email": EMAIL, "new_password": "quite another phrase 7" });
            server.post(opens, &Who::Nobody, body).await
        };
        let opened = open(&first).await;
        assert!(opened.status.is_success(), "{path}: {}", opened.body);
        open(&second).await.is(401, "link_invalid");
    }
}

/// Threat 54: mails caused by strangers and other accounts have separate limits.
#[tokio::test]
async fn no_flood_of_mails_to_others_blocks_the_links_of_a_known_device() {
    let server = open_server();
    let device = device(&server).await;
    // Sign-ups of invented addresses.
    for network in 0..20 {
        for n in 0..10 {
            mail_from(&server, network, "/auth/signup", &format!("x{network}-{n}@example.org")).await;
        }
    }
    assert_eq!(server.outbox.mails().len(), 100);
    for path in &REQUESTS[..2] {
        assert!(owner_asks(&server, &device, path).await.is_some(), "{path}: after sign-ups");
    }
    mail_from(&server, 5_000, REQUESTS[1], EMAIL).await;
    assert_eq!(server.outbox.mails().len(), 103, "nor do sign-ups block a browser that is not known");
    // Links of other accounts.
    for n in 0..8 {
        let email = format!("p{n}@example.org");
        person(&server, &email, None);
        for network in 0..20 {
            mail_from(&server, 1_000 + n * 100 + network, REQUESTS[0], &email).await;
        }
    }
    assert_eq!(server.outbox.mails().len(), 103 + 99);
    for path in &REQUESTS[..2] {
        assert!(owner_asks(&server, &device, path).await.is_some(), "{path}: after links");
    }
}

#[tokio::test]
async fn invitations_are_limited_per_organisation_and_account_and_block_no_link() {
    let server = TestServer::new();
    let device = device(&server).await;
    let (admin, other) = (server.log_in().await, person(&server, "eve@example.com", Some(Role::Admin)).0);
    let invite = async |who: &Who, org: &str, n: usize| {
        server.pass(Duration::from_millis(20));
        let body = json!({ "email": format!("i{n}@example.org"), "role": "viewer" });
        server.post(&format!("/api/v1/orgs/{org}/invites"), who, body).await
    };
    for n in 0..100 {
        assert_eq!(invite(&other, "acme", n).await.status, 201, "{n}");
    }
    let refused = invite(&other, "acme", 100).await;
    refused.is(429, "mail_throttled");
    assert!(refused.header("retry-after").parse::<u64>().expect("seconds") <= 36);
    invite(&admin, "acme", 101).await.is(429, "mail_throttled");
    for org in ["shop", "shed"] {
        let made = server.post("/api/v1/orgs", &admin, json!({ "slug": org, "name": org })).await;
        assert_eq!(made.status, 201, "{}", made.body);
    }
    assert_eq!(invite(&admin, "shop", 102).await.status, 201, "another organisation");
    for n in 103..202 {
        invite(&admin, "shop", n).await;
    }
    invite(&admin, "shed", 202).await.is(429, "mail_throttled");
    for path in &REQUESTS[..2] {
        assert!(owner_asks(&server, &device, path).await.is_some(), "{path}");
        mail_from(&server, 1, path, EMAIL).await;
    }
    assert_eq!(server.outbox.mails().iter().filter(|mail| mail.to == EMAIL).count(), 4);
}

/// In console mode nothing is mailed, so nothing is counted.
#[tokio::test]
async fn invitations_that_are_not_mailed_are_not_limited() {
    let server = TestServer::build(TestServerOptions { console: true, ..TestServerOptions::default() });
    let admin = server.log_in().await;
    for n in 0..120 {
        server.pass(Duration::from_millis(20));
        let body = json!({ "email": format!("i{}@example.org", n % 10), "role": "viewer" });
        let made = server.post("/api/v1/orgs/acme/invites", &admin, body).await;
        assert_eq!(made.status, 201, "{n}: {}", made.body);
    }
}

/// `PROMLET_MAGIC_LINK_TTL` may be an hour, in which strangers can request many more links.
#[tokio::test]
async fn strangers_void_no_link_within_a_ttl_of_an_hour() {
    let link_ttl = Duration::from_secs(3_600);
    let server = TestServer::build(TestServerOptions { link_ttl, ..TestServerOptions::default() });
    let device = device(&server).await;
    let link = owner_asks(&server, &device, REQUESTS[0]).await.expect("mailed");
    for minute in 0..59 {
        for network in 0..if minute == 0 { 25 } else { 2 } {
            mail_from(&server, minute * 100 + network, REQUESTS[0], EMAIL).await;
        }
        server.pass(Duration::from_secs(60));
    }
    assert!(server.outbox.mails().len() >= 40, "{}", server.outbox.mails().len());
    let body = json!({ "token": link, "email": EMAIL });
    let opened = server.post("/auth/magic-link/verify", &Who::Nobody, body).await;
    assert_eq!(opened.status, 200, "{}", opened.body);
}

#[tokio::test]
async fn a_network_is_limited_to_ten_requests_in_a_quarter_of_an_hour() {
    let server = open_server();
    for number in 0..10 {
        let email = format!("n{number}@example.com");
        assert_eq!(mail_from(&server, 1, REQUESTS[number % 3], &email).await.status, 202);
    }
    for path in REQUESTS {
        let refused = mail_from(&server, 1, path, "n10@example.com").await;
        refused.is(429, "mail_throttled");
        assert!(refused.header("retry-after").parse::<u64>().expect("seconds") >= 1);
    }
    assert_eq!(mail_from(&server, 2, REQUESTS[0], "n10@example.com").await.status, 202);
}

/// Addresses without an account use up no limit, so strangers cannot keep the server from mailing
/// its users.
#[tokio::test]
async fn the_server_sends_a_hundred_sign_up_mails_an_hour_and_unknown_addresses_do_not_count() {
    let server = open_server();
    for network in 0..150 {
        mail_from(&server, network, REQUESTS[0], &format!("nobody{network}@example.com")).await;
    }
    mail_from(&server, 1_000, REQUESTS[0], EMAIL).await;
    assert_eq!(server.outbox.mails().len(), 1);
    for network in 0..150 {
        let reply =
            mail_from(&server, network + 2_000, "/auth/signup", &format!("new{network}@example.com")).await;
        assert_eq!(reply.status, 202);
    }
    assert_eq!(server.outbox.mails().len(), 1 + 100);
}

/// docs/specification.md F15.
#[tokio::test]
async fn f15_a_link_leads_only_to_this_server() {
    let server = TestServer::new();
    let foreign = [
        "//e",
        "///e",
        "/\\e",
        "/\\/e",
        "\\\\e",
        "https:e",
        "https://e",
        "http:/e",
        "e",
        "javascript:alert(1)",
        "/%0d",
        "/%0a",
        "/%0D%0ASet-Cookie:x",
        "/../",
        "/a/../..//e",
        "/%2e%2e/x",
        "/.%2E/",
        "/\t/e",
        "/\n",
        " /a",
        "/a b",
        "/\u{7f}",
        "/%5ce",
        "/%5Ce",
        "/%2f/e",
        "/%2Fe",
        "data:text/html,x",
        "?a",
        "@e",
        "/%00",
    ];
    for redirect in foreign {
        let body = json!({ "email": EMAIL, "redirect": redirect });
        let asked = server.post("/auth/magic-link/request", &Who::Nobody, body).await;
        assert_eq!(asked.status, 202, "{redirect:?}: {}", asked.body);
        let url = server.outbox.mails().pop().expect("mailed").url;
        let token = url.split("token=").nth(1).expect("a token");
        let form = ask("POST", "/auth/magic-link/verify", &Who::Nobody)
            .header("content-type", "application/x-www-form-urlencoded")
            .header("cookie", asked.cookie("ms_ml").expect("a browser"))
            .body(Body::from(format!("token={token}")));
        let done = server.send(form.expect("a request")).await;
        assert_eq!((done.status.as_u16(), done.header("location")), (303, "/"), "{redirect:?}");
        server.pass(Duration::from_secs(15 * 60));
    }
}

/// Behind a proxy that adds a path prefix.
#[tokio::test]
async fn links_and_pages_are_below_the_path_of_the_public_url() {
    let mut plan = TestServerOptions::default();
    plan.options.public_url = "https://example.com/metrics".to_owned();
    let server = TestServer::build(plan);
    let request = ask("POST", "/auth/magic-link/request", &Who::Nobody)
        .header("content-type", "application/json")
        .body(Body::from(json!({ "email": EMAIL }).to_string()));
    let asked = server.send(request.expect("a request")).await;
    let url = server.outbox.mails().pop().expect("mailed").url;
    let token = url.strip_prefix("https://example.com/metrics/api/v1/auth/magic-link/verify?token=");
    let form = ask("POST", "/auth/magic-link/verify", &Who::Nobody)
        .header("content-type", "application/x-www-form-urlencoded")
        .header("cookie", asked.cookie("ms_ml").expect("a browser"))
        .body(Body::from(format!("token={}", token.expect("below the path"))));
    let done = server.send(form.expect("a request")).await;
    assert_eq!((done.status.as_u16(), done.header("location")), (303, "/metrics/"));
}

/// docs/specification.md F16, for every kind of mail and every header that a client of a careless
/// proxy could set.
#[tokio::test]
async fn f16_no_header_chooses_where_a_mailed_link_leads() {
    let server = open_server();
    // The first two are allowed hosts.
    let forged = [
        ("host", "evil.localhost:9"),
        ("host", "10.9.8.7"),
        ("x-forwarded-host", "evil.example"),
        ("forwarded", "host=evil.example;proto=https"),
        ("x-forwarded-proto", "https"),
        ("x-forwarded-port", "444"),
        ("x-forwarded-prefix", "/evil"),
        ("x-original-url", "https://evil.example/"),
    ];
    let mut sent = 0;
    for (n, (header, value)) in forged.into_iter().enumerate() {
        for path in REQUESTS {
            let email =
                if path.contains("signup") { format!("new{n}@example.com") } else { EMAIL.to_owned() };
            let request = ask("POST", path, &Who::Nobody).header("content-type", "application/json");
            let mut request =
                request.body(Body::from(json!({ "email": email }).to_string())).expect("a request");
            request.headers_mut().insert(header, HeaderValue::from_static(value));
            assert_eq!(server.send(request).await.status, 202, "{header}: {path}");
            sent += 1;
            let mails = server.outbox.mails();
            assert_eq!(mails.len(), sent, "{header}: {path}");
            let url = &mails[sent - 1].url;
            assert!(url.starts_with("http://127.0.0.1:8095/"), "{header}: {path}: {url}");
        }
        server.pass(Duration::from_secs(15 * 60));
    }
}

/// docs/specification.md F18: scanners that submit forms, and links that log a person in to
/// another's account.
#[tokio::test]
async fn f18_five_wrong_addresses_burn_a_link() {
    let server = TestServer::new();
    server.post("/auth/magic-link/request", &Who::Nobody, json!({ "email": EMAIL })).await;
    let url = server.outbox.mails().pop().expect("mailed").url;
    let token = url.split("token=").nth(1).expect("a token");
    let verify = |body: serde_json::Value| server.post("/auth/magic-link/verify", &Who::Nobody, body);
    for _ in 0..10 {
        verify(json!({ "token": token })).await.is(400, "email_confirmation_required");
    }
    for _ in 0..5 {
        verify(json!({ "token": token, "email": "eve@example.com" })).await.is(401, "link_invalid");
    }
    verify(json!({ "token": token, "email": EMAIL })).await.is(401, "link_invalid");
}

/// docs/specification.md F19 over HTTP: for each kind, one link is used fifty times at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn f19_of_fifty_concurrent_uses_one_succeeds() {
    let server = open_server();
    let cases = [
        ("/auth/magic-link/request", EMAIL, "/auth/magic-link/verify", 200),
        ("/auth/password/reset/request", EMAIL, "/auth/password/reset/confirm", 200),
        ("/auth/signup", "new@example.com", "/auth/signup/complete", 201),
    ];
    for (request, email, confirm, status) in cases {
        server.post(request, &Who::Nobody, json!({ "email": email })).await;
        let url = server.outbox.mails().pop().expect("mailed").url;
        let token = url.split("token=").nth(1).expect("a token");
        let body = json!({ "token": token, "email": email, "password": PASSWORD, "new_password": PASSWORD });
        let mut uses = tokio::task::JoinSet::new();
        for _ in 0..50 {
            let request = ask("POST", confirm, &Who::Nobody).header("content-type", "application/json");
            let request = request.body(Body::from(body.to_string())).expect("a request");
            let router = server.router.clone();
            uses.spawn(async move { router.oneshot(request).await.expect("infallible").status().as_u16() });
        }
        let answers = uses.join_all().await;
        assert_eq!(answers.iter().filter(|answer| **answer == status).count(), 1, "{confirm}: {answers:?}");
        // Two threads hash and 32 requests wait; the others may get `Retry-After`.
        assert!(answers.iter().all(|answer| [status, 401, 503].contains(answer)), "{confirm}: {answers:?}");
    }
}
