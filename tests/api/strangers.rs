//! Password guessing, and its effect on owners (docs/specification.md D4; threat model rows 3 to 5,
//! 45).

use std::time::Duration;

use axum::body::Body;
use serde_json::json;

use crate::test_server::{EMAIL, PASSWORD, Reply, TestServer, Who, ask_from};

async fn log_in_from(
    server: &TestServer,
    peer: &str,
    email: &str,
    password: &str,
    cookie: Option<&str>,
) -> Reply {
    let mut request = ask_from(&format!("{peer}:1"), "POST", "/auth/login", &Who::Nobody)
        .header("content-type", "application/json");
    if let Some(cookie) = cookie {
        request = request.header("cookie", cookie);
    }
    let body = json!({ "email": email, "password": password }).to_string();
    server.send(request.body(Body::from(body)).expect("a request")).await
}

/// docs/specification.md F3, F4: an unknown address has the same waits, which rise and are exact.
#[tokio::test]
async fn f04_waits_rise_are_exact_and_reveal_nothing_about_accounts() {
    let server = TestServer::new();
    let mut seen = Vec::new();
    for (email, peer) in [(EMAIL, "192.0.2.1"), ("nobody@example.com", "192.0.2.2")] {
        let mut waits = Vec::new();
        for failures in 1..=8 {
            log_in_from(&server, peer, email, "wrong password", None).await.is(401, "invalid_credentials");
            if failures < 5 {
                continue;
            }
            let refused = log_in_from(&server, peer, email, PASSWORD, None).await;
            refused.is(429, "login_throttled");
            let wait: u64 = refused.header("retry-after").parse().expect("seconds");
            waits.push(wait);
            server.pass(Duration::from_secs(wait));
        }
        seen.push(waits);
    }
    assert_eq!(seen, [[1, 2, 4, 8], [1, 2, 4, 8]]);
    assert_eq!(log_in_from(&server, "192.0.2.1", EMAIL, PASSWORD, None).await.status, 200);
    log_in_from(&server, "192.0.2.1", EMAIL, "wrong password", None).await.is(401, "invalid_credentials");
    assert_eq!(log_in_from(&server, "192.0.2.1", EMAIL, PASSWORD, None).await.status, 200, "started over");
}

/// docs/specification.md F5: guesses from one other network, from many, and from the owner's own
/// network.
#[tokio::test]
async fn f05_no_guesses_lock_an_owner_out() {
    let server = TestServer::new();
    let first = log_in_from(&server, "192.0.2.1", EMAIL, PASSWORD, None).await;
    let known = first.cookie("ms_device").expect("known from now on");
    let set = first.headers.get_all("set-cookie").iter().filter_map(|value| value.to_str().ok());
    let device = set.filter(|text| text.starts_with("ms_device=dvc_")).collect::<Vec<_>>();
    assert!(
        device[0].contains("HttpOnly") && device[0].contains("SameSite=Lax") && device[0].contains("Path=/")
    );

    // Another limit refuses two hundred in a second.
    for _ in 0..150 {
        log_in_from(&server, "203.0.113.9", EMAIL, "wrong password", None).await;
    }
    log_in_from(&server, "203.0.113.9", EMAIL, PASSWORD, None).await.is(429, "login_throttled");
    assert_eq!(log_in_from(&server, "192.0.2.1", EMAIL, PASSWORD, None).await.status, 200, "from elsewhere");

    for n in 0..120 {
        log_in_from(&server, &format!("[2001:db8:{n:x}::1]"), EMAIL, "wrong password", None).await;
    }
    log_in_from(&server, "192.0.2.77", EMAIL, PASSWORD, None).await.is(429, "login_throttled");
    let own = log_in_from(&server, "192.0.2.77", EMAIL, PASSWORD, Some(&known)).await;
    assert_eq!(own.status, 200, "a known browser, from everywhere: {}", own.body);

    for _ in 0..40 {
        log_in_from(&server, "192.0.2.1", EMAIL, "wrong password", None).await;
        server.pass(Duration::from_secs(1));
    }
    log_in_from(&server, "192.0.2.1", EMAIL, PASSWORD, None).await.is(429, "login_throttled");
    let own = log_in_from(&server, "192.0.2.1", EMAIL, PASSWORD, Some(&known)).await;
    assert_eq!(own.status, 200, "a known browser, from the same network: {}", own.body);
}

/// A stolen cookie of a known browser does not allow guessing.
#[tokio::test]
async fn guesses_from_a_known_browser_are_throttled_like_others() {
    let server = TestServer::new();
    let first = log_in_from(&server, "192.0.2.1", EMAIL, PASSWORD, None).await;
    let known = first.cookie("ms_device").expect("known");
    for n in 0..5 {
        let peer = format!("198.51.100.{n}");
        log_in_from(&server, &peer, EMAIL, "wrong password", Some(&known))
            .await
            .is(401, "invalid_credentials");
    }
    log_in_from(&server, "198.51.100.9", EMAIL, PASSWORD, Some(&known)).await.is(429, "login_throttled");
    assert_eq!(log_in_from(&server, "198.51.100.9", EMAIL, PASSWORD, None).await.status, 200);
}

/// docs/specification.md F45: a client's own statement of its address is ignored.
#[tokio::test]
async fn f45_a_forged_address_resets_no_count() {
    let server = TestServer::new();
    let mut last = None;
    for n in 0..8 {
        let request = ask_from("192.0.2.1:1", "POST", "/auth/login", &Who::Nobody)
            .header("content-type", "application/json")
            .header("x-forwarded-for", format!("198.51.100.{n}"));
        let body = json!({ "email": EMAIL, "password": "wrong password" }).to_string();
        last = Some(server.send(request.body(Body::from(body)).expect("a request")).await);
    }
    last.expect("asked").is(429, "login_throttled");
}

/// Threat 6, by work: a throttled attempt costs neither a hash nor a place in the queue.
#[tokio::test]
async fn a_throttled_login_is_refused_before_the_queue() {
    let server = TestServer::new();
    for _ in 0..5 {
        log_in_from(&server, "192.0.2.1", EMAIL, "wrong password", None).await;
    }
    let before = server.identity.passwords_verified();
    for _ in 0..100 {
        log_in_from(&server, "192.0.2.1", EMAIL, PASSWORD, None).await.is(429, "login_throttled");
    }
    assert_eq!(server.identity.passwords_verified(), before);
}
