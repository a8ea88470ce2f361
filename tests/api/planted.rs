//! Cookies that an attacker planted (docs/specification.md F12). Under TLS the cookie that binds a
//! sign-in to its browser has a name that browsers accept only from this very host, and no other
//! name is read. On plain `http://localhost` a server on another port can plant cookies;
//! `tests/peers_browser.rs` shows the effect, and that a host name of its own prevents it.

use axum::body::Body;
use axum::http::header;
use promlet::api::ApiOptions;
use promlet::api::auth::oauth::{Providers, SignInClient};
use promlet::identity::Provider;
use promlet::outbound::{GithubClient, GithubOptions, HttpsOptions};
use serde_json::{Value, json};

use crate::test_server::{EMAIL, Reply, TestServer, TestServerOptions, Who, ask};

fn server(public_url: &str) -> TestServer {
    // Never connected to: a refusal at the provider brings back an error and no code.
    let github = GithubOptions {
        client_id: "us".into(),
        client_secret: "ours".into(),
        base_url: "http://127.0.0.1:9".into(),
        api_url: "http://127.0.0.1:9".into(),
        allowed_orgs: Vec::new(),
        https: HttpsOptions::default(),
    };
    let client = GithubClient::new(github).expect("a loopback GitHub");
    let mut options = ApiOptions::new(public_url);
    options.providers = Providers::default().with(Provider::GitHub, SignInClient::Own(Box::new(client)));
    TestServer::build(TestServerOptions { options, ..TestServerOptions::default() })
}

async fn post_with(server: &TestServer, path: &str, cookie: &str, body: &Value) -> Reply {
    let request = ask("POST", path, &Who::Nobody)
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::COOKIE, cookie);
    server.send(request.body(Body::from(body.to_string())).expect("a request")).await
}

#[tokio::test]
async fn under_tls_a_planted_cookie_of_a_provider_sign_in_is_ignored() {
    for (url, name) in [("https://metrics.example", "__Host-ms_oauth"), ("http://127.0.0.1:8095", "ms_oauth")]
    {
        let server = server(url);
        let begun = server.post("/api/v1/auth/oauth/github/start", &Who::Nobody, json!({})).await;
        assert_eq!(begun.status, 200, "{}", begun.body);
        let cookie = begun.cookie(name).expect("a ticket");
        let ticket = cookie.split_once('=').expect("a value").1;
        let path = "/api/v1/auth/oauth/github/callback";
        let refused = json!({ "state": begun.text("state"), "error": "access_denied" });
        for other in
            ["ms_oauth", "__Secure-ms_oauth", "__host-ms_oauth"].into_iter().filter(|&other| other != name)
        {
            let planted = post_with(&server, path, &format!("{other}={ticket}"), &refused).await;
            planted.is(400, "invalid_state");
        }
        let own = post_with(&server, path, &cookie, &refused).await;
        own.is(400, "oauth_error");
        assert_eq!(own.cookie(name).as_deref(), Some(&*format!("{name}=")), "spent");
    }
}

#[tokio::test]
async fn under_tls_a_planted_cookie_of_a_mailed_link_is_ignored() {
    let server = server("https://metrics.example");
    let asked = server.post("/auth/magic-link/request", &Who::Nobody, json!({ "email": EMAIL })).await;
    let cookie = asked.cookie("__Host-ms_ml").expect("bound to a browser");
    let set = asked.header("set-cookie");
    assert!(set.contains("; Secure") && set.contains("; Path=/;") && !set.contains("Domain"), "{set}");
    let url = server.outbox.mails().pop().expect("mailed").url;
    let token = json!({ "token": url.split("token=").nth(1).expect("a token") });
    let planted = cookie.trim_start_matches("__Host-");
    let verify = "/auth/magic-link/verify";
    post_with(&server, verify, planted, &token).await.is(400, "email_confirmation_required");
    assert_eq!(post_with(&server, verify, &cookie, &token).await.status, 200);
}
