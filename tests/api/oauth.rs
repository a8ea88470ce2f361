//! Sign-in with external providers (docs/specification.md C1, C2, D6; threats 12, 15, 21, 22, 23,
//! 26), with a provider in this process. `tests/peers_oidc.rs` uses a real one.

mod idp;
mod refused;

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::header;
use data_encoding::BASE64URL_NOPAD;
use jsonwebtoken::Algorithm;
use promlet::api::auth::oauth::{OpenId, Providers, SignInClient};
use promlet::entropy::Entropy;
use promlet::identity::{Admission, Email, NewInvite, Provider, Role};
use promlet::outbound::{GithubClient, GithubOptions, HttpsOptions, MailKind, OidcClient, OidcOptions};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::test_server::{EMAIL, PASSWORD, Reply, TestServer, TestServerOptions, Who, ask};
use idp::{ACCESS_TOKEN, CLIENT, Idp, SECRET};

/// The initial time of the test server's clock.
const NOW_S: i64 = 1_800_000_000;

fn open_id(idp: &Idp, admission: Admission, https: HttpsOptions) -> SignInClient {
    let options = OidcOptions {
        issuer: idp.issuer.clone(),
        client_id: CLIENT.into(),
        client_secret: SECRET.into(),
        scopes: "openid email profile".into(),
        https,
    };
    let client = OidcClient::new(options).expect("a loopback issuer");
    SignInClient::OpenId(Box::new(OpenId { client, admission, name: "Test".into() }))
}

fn rules(domains: &[&str], trust_email: bool) -> Admission {
    Admission { domains: domains.iter().map(|&domain| domain.to_owned()).collect(), trust_email }
}

fn github(idp: &Idp, orgs: &[&str]) -> SignInClient {
    let options = GithubOptions {
        client_id: CLIENT.into(),
        client_secret: SECRET.into(),
        base_url: idp.issuer.clone(),
        api_url: idp.issuer.clone(),
        allowed_orgs: orgs.iter().map(|&org| org.to_owned()).collect(),
        https: HttpsOptions::default(),
    };
    SignInClient::Own(Box::new(GithubClient::new(options).expect("a loopback GitHub")))
}

fn server(providers: Providers) -> TestServer {
    let mut plan = TestServerOptions::default();
    plan.options.providers = providers;
    TestServer::build(plan)
}

/// Starts a server with the issuer as `oidc`.
async fn with_oidc(admission: Admission) -> (TestServer, Idp) {
    let idp = Idp::start(NOW_S).await;
    let oidc = open_id(&idp, admission, HttpsOptions::default());
    (server(Providers::default().with(Provider::Oidc, oidc)), idp)
}

/// A started sign-in.
#[derive(Clone, Debug)]
struct StartedSignIn {
    url: String,
    state: String,
    cookie: String,
}

async fn start_at(server: &TestServer, provider: &str, who: &Who, body: Value) -> StartedSignIn {
    let reply = server.post(&format!("/api/v1/auth/oauth/{provider}/start"), who, body).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    assert_eq!(reply.value()["expires_in"], 600);
    let (url, state) = (reply.text("authorize_url"), reply.text("state"));
    let cookie = state_cookie(&reply).expect("a state cookie");
    StartedSignIn { url, state, cookie }
}

async fn start(server: &TestServer) -> StartedSignIn {
    start_at(server, "oidc", &Who::Nobody, json!({})).await
}

/// Returns the value that the response gives to the cookie `ms_oauth`.
fn state_cookie(reply: &Reply) -> Option<String> {
    let set = reply.headers.get_all(header::SET_COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut ours = set.filter_map(|text| text.strip_prefix("ms_oauth="));
    let text = ours.next()?;
    for part in ["Path=/", "HttpOnly", "SameSite=Lax"] {
        assert!(text.contains(part), "{text}");
    }
    Some(text.split(';').next().unwrap_or_default().to_owned())
}

/// Sends the callback with the cookie `cookie` and the credential of `who`.
async fn callback(server: &TestServer, provider: &str, cookie: &str, who: &Who, body: &Value) -> Reply {
    let path = format!("/api/v1/auth/oauth/{provider}/callback");
    let request = ask("POST", &path, who)
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::COOKIE, format!("ms_oauth={cookie}"));
    server.send(request.body(Body::from(body.to_string())).expect("a request")).await
}

/// Runs the whole sign-in as a browser does.
async fn sign_in_at(server: &TestServer, idp: &Idp, provider: &str) -> Reply {
    let started = start_at(server, provider, &Who::Nobody, json!({})).await;
    let code = idp.agree(&started.url);
    callback(
        server,
        provider,
        &started.cookie,
        &Who::Nobody,
        &json!({ "code": code, "state": started.state }),
    )
    .await
}

async fn sign_in(server: &TestServer, idp: &Idp) -> Reply {
    sign_in_at(server, idp, "oidc").await
}

fn claim(idp: &Idp, claims: Value) {
    idp.script().claims = claims;
}

// -- successful sign-ins --------------------------------------------------------------------------

#[tokio::test]
async fn a_first_sign_in_creates_an_account_and_the_next_one_finds_it() {
    let (server, idp) = with_oidc(rules(&["example.com"], false)).await;
    let started = start_at(&server, "oidc", &Who::Nobody, json!({ "redirect": "/explore?x=1" })).await;
    assert!(started.url.starts_with(&format!("{}/auth?", idp.issuer)), "{}", started.url);
    for part in [
        "response_type=code",
        "response_mode=query",
        "scope=openid+email+profile",
        "redirect_uri=http%3A%2F%2F127.0.0.1%3A8095%2Fapi%2Fv1%2Fauth%2Foauth%2Foidc%2Fcallback",
    ] {
        assert!(started.url.contains(part), "{part} in {}", started.url);
    }
    let code = idp.agree(&started.url);
    let sent = json!({ "code": code, "state": started.state, "iss": idp.issuer });
    let reply = callback(&server, "oidc", &started.cookie, &Who::Nobody, &sent).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    let body = reply.value();
    assert_eq!(
        (&body["created"], &body["linked"], &body["redirect"]),
        (&json!(true), &json!(false), &json!("/explore?x=1"))
    );
    assert_eq!(body["user"]["email"], "alice@example.com");
    assert_eq!((&body["user"]["name"], &body["user"]["is_admin"]), (&json!("Alice"), &json!(false)));
    assert_eq!((&body["user"]["has_password"], &body["orgs"]), (&json!(false), &json!([])));
    assert_eq!(body["session"]["auth_method"], "oidc");
    assert_eq!(state_cookie(&reply).as_deref(), Some(""), "the state cookie is deleted");
    let cabinet = Who::Cookie(reply.session_cookie().expect("a session"));
    let me = server.get("/api/v1/auth/me", &cabinet).await.value();
    assert_eq!(me["identities"][0]["provider"], "oidc");
    assert_eq!(me["identities"][0]["email"], "alice@example.com");

    // The same subject with another address is the same account (CVE-2023-3128).
    claim(&idp, json!({ "email": "alice@other.example.com", "name": "Alicia" }));
    sign_in(&server, &idp).await.is(403, "domain_not_allowed");
    claim(&idp, json!({ "email": "alice.b@example.com" }));
    let again = sign_in(&server, &idp).await;
    assert_eq!(again.value()["user"]["id"], body["user"]["id"], "{}", again.body);
    assert_eq!(again.value()["user"]["email"], "alice@example.com");
    assert_eq!((&again.value()["created"], &again.value()["linked"]), (&json!(false), &json!(false)));
    // Another subject with that address is not.
    claim(&idp, json!({ "sub": "mallory" }));
    sign_in(&server, &idp).await.is(409, "link_required");
}

#[tokio::test]
async fn the_login_page_lists_the_configured_providers() {
    let (server, _idp) = with_oidc(Admission::default()).await;
    let row = json!([{ "id": "oidc", "name": "Test", "start_url": "/api/v1/auth/oauth/oidc/start" }]);
    assert_eq!(server.get("/api/v1/auth/providers", &Who::Nobody).await.value(), json!({ "data": row }));
    assert_eq!(server.get("/api/v1/auth/config", &Who::Nobody).await.value()["providers"], row);
    // Decided before cookie and state are checked.
    for provider in ["google", "github", "nobody", "OIDC"] {
        let path = format!("/api/v1/auth/oauth/{provider}");
        server
            .post(&format!("{path}/start"), &Who::Nobody, json!({}))
            .await
            .is(404, "provider_not_configured");
        server.get(&format!("{path}/start"), &Who::Nobody).await.is(404, "provider_not_configured");
        callback(&server, provider, "x", &Who::Nobody, &json!({})).await.is(404, "provider_not_configured");
    }
}

#[tokio::test]
async fn a_browsers_sign_in_ends_on_pages() {
    let (server, idp) = with_oidc(rules(&["example.com"], false)).await;
    let start = server.get("/auth/oauth/oidc/start?redirect=/explore", &Who::Nobody).await;
    assert_eq!(start.status, 302, "{}", start.body);
    let (url, cookie) = (start.header("location").to_owned(), state_cookie(&start).expect("a state cookie"));
    let code = idp.agree(&url);
    let state = url.split_once("state=").expect("a state").1.split('&').next().expect("it").to_owned();
    let path = format!("/api/v1/auth/oauth/oidc/callback?code={code}&state={state}");
    let with_ticket = |method: &str, path: &str, cookie: &str| {
        let request = ask(method, path, &Who::Nobody).header(header::COOKIE, format!("ms_oauth={cookie}"));
        request.body(Body::empty()).expect("a request")
    };
    // `HEAD` uses up nothing.
    assert_eq!(server.send(with_ticket("HEAD", &path, &cookie)).await.header("location"), "/login");
    let reply = server.send(with_ticket("GET", &path, &cookie)).await;
    assert_eq!((reply.status.as_u16(), reply.header("location")), (303, "/explore"), "{}", reply.body);
    assert!(reply.session_cookie().expect("a session").starts_with("ses_"));
    assert_eq!(state_cookie(&reply).as_deref(), Some(""));
    for (path, cookie, code) in [
        (path.as_str(), cookie.as_str(), "oauth_error"),
        (path.as_str(), "", "invalid_state"),
        ("/api/v1/auth/oauth/oidc/callback", cookie.as_str(), "invalid_state"),
        ("/api/v1/auth/oauth/github/callback", cookie.as_str(), "provider_not_configured"),
        ("/api/v1/auth/oauth/oidc/callback?state=a&state=b", cookie.as_str(), "duplicate_parameter"),
    ] {
        let reply = server.send(with_ticket("GET", path, cookie)).await;
        assert_eq!(reply.status, 303);
        assert_eq!(reply.header("location"), format!("/login?error={code}"), "{path}");
        assert_eq!(reply.session_cookie(), None);
    }
    // A user who clicked a button gets a page.
    let start = ask("GET", "/auth/oauth/google/start", &Who::Nobody).header(header::ACCEPT, "text/html,*/*");
    let start = server.send(start.body(Body::empty()).expect("a request")).await;
    assert_eq!(start.header("location"), "/login?error=provider_not_configured");
    let denied = format!("/api/v1/auth/oauth/oidc/callback?error=access_denied&state={state}");
    let reply = server.send(with_ticket("GET", &denied, &cookie)).await;
    assert_eq!(reply.header("location"), "/login?error=oauth_error");
}

#[tokio::test]
async fn tokens_of_every_key_type_are_verified_and_a_profile_may_come_later() {
    let (server, idp) = with_oidc(rules(&["example.com"], false)).await;
    let hash = |token: &str| BASE64URL_NOPAD.encode(&Sha256::digest(token.as_bytes())[..16]);
    for (algorithm, claims) in [
        (Algorithm::RS256, json!({ "at_hash": hash(ACCESS_TOKEN), "azp": CLIENT })),
        (Algorithm::PS256, json!({ "aud": [CLIENT] })),
        (Algorithm::ES256, json!({ "aud": [CLIENT, "another"], "azp": CLIENT, "email_verified": "true" })),
        (Algorithm::EdDSA, json!({ "exp": NOW_S - 29, "nbf": NOW_S + 29 })),
    ] {
        idp.script().algorithm = algorithm;
        claim(&idp, claims);
        // PS256 uses RSA keys, too, but the key set names another algorithm for the key.
        let reply = sign_in(&server, &idp).await;
        match algorithm {
            Algorithm::PS256 => reply.is(400, "oauth_error"),
            _ => assert_eq!(reply.status, 200, "{algorithm:?}: {}", reply.body),
        }
    }
    // A token without a key id: one key fits.
    idp.script().algorithm = Algorithm::ES256;
    idp.script().kid = None;
    claim(&idp, json!({ "email": null, "email_verified": null, "name": null }));
    idp.script().userinfo = json!({ "sub": "alice", "email": "alice@example.com", "email_verified": true });
    assert_eq!(sign_in(&server, &idp).await.status, 200);
    idp.script().userinfo = json!({ "sub": "bob", "email": "bob@example.com", "email_verified": true });
    sign_in(&server, &idp).await.is(502, "idp_error");
    // Some issuers accept the client secret only in the form.
    let (server, idp) = with_oidc(rules(&["example.com"], false)).await;
    idp.script().discovery = json!({ "token_endpoint_auth_methods_supported": ["client_secret_post"] });
    assert_eq!(sign_in(&server, &idp).await.status, 200);
}

/// Users cannot change their name at the provider, so it is cleaned, not refused.
#[tokio::test]
async fn names_from_a_provider_are_cleaned() {
    for (told, kept) in [
        ("  Al\u{202e}ice\r\nSet-Cookie: x\u{1b}[2J ", "Alice  Set-Cookie: x[2J"),
        ("\u{200d}\u{3164}", ""),
        ("\u{1f469}\u{200d}\u{1f4bb} \u{674e}", "\u{1f469}\u{200d}\u{1f4bb} \u{674e}"),
    ] {
        let (server, idp) = with_oidc(rules(&["example.com"], false)).await;
        claim(&idp, json!({ "email": "alice@example.com", "email_verified": true, "name": told }));
        let reply = sign_in(&server, &idp).await;
        assert_eq!(
            (reply.status.as_u16(), &reply.value()["user"]["name"]),
            (200, &json!(kept)),
            "{}",
            reply.body
        );
    }
}

// -- threat 21: the account of a sign-in ----------------------------------------------------------

#[tokio::test]
async fn no_account_is_created_if_the_settings_forbid_it() {
    let (server, idp) = with_oidc(Admission::default()).await;
    let refused = sign_in(&server, &idp).await;
    refused.is(403, "signup_closed");
    assert_eq!(refused.session_cookie(), None);
    let (server, idp) = with_oidc(rules(&["example.com"], false)).await;
    claim(&idp, json!({ "email_verified": false }));
    sign_in(&server, &idp).await.is(403, "domain_not_allowed");
    claim(&idp, json!({ "email_verified": null }));
    sign_in(&server, &idp).await.is(403, "domain_not_allowed");
    for email in ["alice@example.com.evil", "alice@evil", "@example.com", "a@b@example.com"] {
        claim(&idp, json!({ "email": email }));
        sign_in(&server, &idp).await.is(403, "domain_not_allowed");
    }
    // Before the first account exists, set-up comes first.
    let idp = Idp::start(NOW_S).await;
    let oidc = open_id(&idp, rules(&["example.com"], true), HttpsOptions::default());
    let mut plan = TestServerOptions { set_up: false, ..TestServerOptions::default() };
    plan.options.providers = Providers::default().with(Provider::Oidc, oidc);
    let bare = TestServer::build(plan);
    sign_in(&bare, &idp).await.is(403, "signup_closed");
    assert!(bare.identity.needs_setup());
}

/// docs/specification.md F21.
#[tokio::test]
async fn an_address_finds_its_account_only_for_a_trusted_provider() {
    let (server, idp) = with_oidc(Admission::default()).await;
    claim(&idp, json!({ "email": EMAIL }));
    sign_in(&server, &idp).await.is(409, "link_required");

    let (server, idp) = with_oidc(rules(&[], true)).await;
    claim(&idp, json!({ "email": EMAIL, "email_verified": false }));
    sign_in(&server, &idp).await.is(409, "link_required");
    assert!(server.outbox.mails().is_empty());
    claim(&idp, json!({ "email": "  ADA@Example.com " }));
    let reply = sign_in(&server, &idp).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    assert_eq!((&reply.value()["created"], &reply.value()["linked"]), (&json!(false), &json!(true)));
    assert_eq!(reply.value()["user"]["email"], EMAIL);
    let mails = server.outbox.mails();
    assert_eq!(mails.len(), 1);
    assert_eq!((mails[0].to.as_str(), mails[0].kind), (EMAIL, MailKind::IdentityLinked));
    let noted = server.identity.audit(None, 10).expect("readable");
    assert!(noted.iter().any(|entry| entry.action == "oauth.linked" && entry.target == "oidc"));
}

fn trusting_server(idp: &Idp, console: bool) -> TestServer {
    let oidc = open_id(idp, rules(&[], true), HttpsOptions::default());
    let mut plan = TestServerOptions { console, ..TestServerOptions::default() };
    plan.options.providers = Providers::default().with(Provider::Oidc, oidc);
    TestServer::build(plan)
}

async fn accept_invitation(server: &TestServer, token: &str) -> Who {
    let body = json!({ "token": token, "password": PASSWORD });
    let joined = server.post("/api/v1/auth/invites/accept", &Who::Nobody, body).await;
    assert_eq!(joined.status, 201, "{}", joined.body);
    Who::Cookie(joined.session_cookie().expect("a session"))
}

/// With console mail the inviter holds the link, so they may choose the password of an account with
/// an address that they do not read.
#[tokio::test]
async fn an_account_that_its_inviter_may_have_planted_is_not_linked_by_its_address() {
    let idp = Idp::start(NOW_S).await;
    let server = trusting_server(&idp, true);
    let owner = server.log_in().await;
    let invite = json!({ "email": "alice@example.com", "role": "viewer" });
    let url = server.post("/api/v1/orgs/acme/invites", &owner, invite).await.text("url");
    let planted = accept_invitation(&server, url.split_once("#token=").expect("a link").1).await;
    sign_in(&server, &idp).await.is(409, "link_required");
    let me = server.get("/api/v1/auth/me", &planted).await.value();
    assert_eq!((&me["user"]["email"], &me["identities"]), (&json!("alice@example.com"), &json!([])));
}

/// An operator prints an invitation with `promlet org invite`, and any person who has it may accept
/// it.
#[tokio::test]
async fn the_first_mailed_link_ends_other_credentials_of_an_unproven_account() {
    let uses = [
        ("/auth/magic-link/request", "/auth/magic-link/verify"),
        ("/auth/password/reset/request", "/auth/password/reset/confirm"),
    ];
    for (request, open) in uses {
        let idp = Idp::start(NOW_S).await;
        let server = trusting_server(&idp, false);
        let (acme, now) =
            (server.identity.org_by_slug("acme").expect("read").expect("there"), server.clock.now());
        let email = Email::parse("alice@example.com").expect("an address");
        let wanted = NewInvite { email, role: Role::Viewer, mailed: false };
        let printed =
            server.identity.invite(None, acme.id, wanted, now, &mut Entropy::seeded(9)).expect("invited");
        let planted = accept_invitation(&server, printed.token.expose()).await;
        claim(&idp, json!({ "sub": "eve", "email": "eve@example.com" }));
        assert_eq!(link(&server, &idp, &planted).await.value()["linked"], true);
        claim(&idp, json!({ "sub": "alice", "email": "alice@example.com" }));
        sign_in(&server, &idp).await.is(409, "link_required");

        server.post(request, &Who::Nobody, json!({ "email": "alice@example.com" })).await;
        let mail = server.outbox.mails().pop().expect("a mail");
        assert_eq!(mail.to, "alice@example.com");
        let token = mail.url.split_once("token=").expect("a link").1.to_owned();
        let body =
            json!({ "token": token, "email": "alice@example.com", "new_password": "quite another phrase 7" });
        let opened = server.post(open, &Who::Nobody, body).await;
        assert!(opened.status.is_success(), "{open}: {}", opened.body);

        server.get("/api/v1/auth/me", &planted).await.is(401, "session_invalid");
        let body = json!({ "email": "alice@example.com", "password": PASSWORD });
        server.post("/auth/login", &Who::Nobody, body).await.is(401, "invalid_credentials");
        claim(&idp, json!({ "sub": "eve", "email": "eve@example.com" }));
        let eve = sign_in(&server, &idp).await;
        assert_ne!(eve.value()["user"]["email"], "alice@example.com", "{}", eve.body);
        claim(&idp, json!({ "sub": "alice", "email": "alice@example.com" }));
        let alice = sign_in(&server, &idp).await;
        assert_eq!((&alice.value()["linked"], alice.status.as_u16()), (&json!(true), 200), "{}", alice.body);
    }
}

/// For domains of others Google knows only the past owner of an address.
#[tokio::test]
async fn google_is_trusted_only_for_its_mailboxes_and_its_customers_domains() {
    let idp = Idp::start(NOW_S).await;
    let google = |domains: &[&str]| {
        let google = open_id(&idp, rules(domains, false), HttpsOptions::default());
        server(Providers::default().with(Provider::Google, google))
    };
    let open = google(&[]);
    claim(&idp, json!({ "email": EMAIL }));
    sign_in_at(&open, &idp, "google").await.is(409, "link_required");
    claim(&idp, json!({ "email": EMAIL, "hd": "example.com" }));
    assert_eq!(sign_in_at(&open, &idp, "google").await.value()["linked"], true);
    let domain = google(&["example.com"]);
    claim(&idp, json!({ "email": "eve@example.com" }));
    sign_in_at(&domain, &idp, "google").await.is(403, "domain_not_allowed");
    claim(&idp, json!({ "email": "eve@example.com", "hd": "example.com" }));
    assert_eq!(sign_in_at(&domain, &idp, "google").await.value()["created"], true);
    let gmail = google(&["gmail.com"]);
    claim(&idp, json!({ "email": "eve@gmail.com" }));
    assert_eq!(sign_in_at(&gmail, &idp, "google").await.value()["session"]["auth_method"], "google");
}

#[tokio::test]
async fn github_supplies_the_number_the_verified_address_and_the_organisation() {
    let idp = Idp::start(NOW_S).await;
    let open = server(Providers::default().with(Provider::GitHub, github(&idp, &[])));
    let address = |email: &str, primary: bool, verified: bool| json!({ "email": email, "primary": primary, "verified": verified });
    idp.script().github_emails = json!([address(EMAIL, true, false), address("ada@work", false, true)]);
    sign_in_at(&open, &idp, "github").await.is(403, "signup_closed");
    idp.script().github_emails = json!([address("x@y.z", false, true), address(EMAIL, true, true)]);
    let linked = sign_in_at(&open, &idp, "github").await;
    assert_eq!(linked.value()["linked"], true, "{}", linked.body);
    assert_eq!(linked.value()["session"]["auth_method"], "github");
    // A renamed account is the same; a new one with the old name is another.
    idp.script().github_user = json!({ "id": 7, "login": "ada2", "name": null });
    idp.script().github_emails = json!([]);
    assert_eq!(sign_in_at(&open, &idp, "github").await.value()["user"]["email"], EMAIL);
    idp.script().github_user = json!({ "id": 8, "login": "ada", "name": null });
    sign_in_at(&open, &idp, "github").await.is(403, "signup_closed");

    let members = server(Providers::default().with(Provider::GitHub, github(&idp, &["acme", "other"])));
    idp.script().github_emails = json!([address("eve@example.org", true, true)]);
    sign_in_at(&members, &idp, "github").await.is(403, "domain_not_allowed");
    idp.script().github_orgs = vec!["other"];
    let made = sign_in_at(&members, &idp, "github").await;
    assert_eq!((&made.value()["created"], &made.value()["user"]["name"]), (&json!(true), &json!("ada")));
    // GitHub refuses an invalid code with a 200 and an error in the body.
    let started = start_at(&open, "github", &Who::Nobody, json!({})).await;
    assert!(started.url.contains("scope=read%3Auser+user%3Aemail&"), "{}", started.url);
    let sent = json!({ "code": "never-issued", "state": started.state });
    callback(&open, "github", &started.cookie, &Who::Nobody, &sent).await.is(400, "oauth_error");
    let sent = json!({ "code": "x", "state": started.state, "iss": "https://github.com" });
    callback(&open, "github", &started.cookie, &Who::Nobody, &sent).await.is(400, "invalid_state");
}

// -- threats 12 and 22: mismatched callbacks ------------------------------------------------------

#[tokio::test]
async fn a_callback_must_belong_to_a_sign_in_started_here() {
    let idp = Idp::start(NOW_S).await;
    let both = || open_id(&idp, rules(&["example.com"], false), HttpsOptions::default());
    let server = server(Providers::default().with(Provider::Oidc, both()).with(Provider::Google, both()));
    let mine = start(&server).await;
    let code = idp.agree(&mine.url);
    let other = start(&server).await;
    let at_google = start_at(&server, "google", &Who::Nobody, json!({})).await;
    let sent = json!({ "code": code, "state": mine.state });
    // With its last letter changed.
    let other_end = if mine.cookie.ends_with('A') { "B" } else { "A" };
    let damaged = format!("{}{other_end}", &mine.cookie[..mine.cookie.len() - 1]);
    for cookie in ["", "x", &other.cookie, &at_google.cookie, &damaged, &"A".repeat(5_000)] {
        callback(&server, "oidc", cookie, &Who::Nobody, &sent).await.is(400, "invalid_state");
    }
    // The cookie of another provider, even with its own state.
    callback(&server, "google", &mine.cookie, &Who::Nobody, &sent).await.is(400, "invalid_state");
    for sent in [
        json!({ "code": code }),
        json!({ "code": code, "state": "" }),
        json!({ "code": code, "state": other.state }),
        json!({ "code": code, "state": mine.state, "iss": "https://evil.example" }),
        json!({ "code": code, "state": mine.state, "iss": format!("{}/", idp.issuer) }),
        json!({ "error": "access_denied", "state": other.state }),
    ] {
        callback(&server, "oidc", &mine.cookie, &Who::Nobody, &sent).await.is(400, "invalid_state");
    }
    assert_eq!(idp.asked("/token"), 0, "no request was sent");
    // The code of another sign-in matches neither verifier nor nonce.
    let foreign = idp.agree(&other.url);
    let injected = json!({ "code": foreign, "state": mine.state });
    callback(&server, "oidc", &mine.cookie, &Who::Nobody, &injected).await.is(400, "oauth_error");
    for (sent, why) in [
        (json!({ "state": mine.state, "error": "access_denied" }), "access_denied"),
        (json!({ "state": mine.state }), "no code"),
        (json!({ "state": mine.state, "code": "" }), "no code"),
        (json!({ "state": mine.state, "code": "x".repeat(3_000) }), "no code"),
        (json!({ "state": mine.state, "code": "unknown" }), "invalid_grant"),
    ] {
        let reply = callback(&server, "oidc", &mine.cookie, &Who::Nobody, &sent).await;
        reply.is(400, "oauth_error");
        assert!(reply.text("detail").contains(why), "{}", reply.body);
    }
    assert_eq!(callback(&server, "oidc", &mine.cookie, &Who::Nobody, &sent).await.status, 200);
    // Used: the provider no longer accepts the code.
    callback(&server, "oidc", &mine.cookie, &Who::Nobody, &sent).await.is(400, "oauth_error");
    // A sign-in expires after ten minutes.
    let late = start(&server).await;
    let sent = json!({ "code": idp.agree(&late.url), "state": late.state });
    server.pass(Duration::from_secs(600));
    callback(&server, "oidc", &late.cookie, &Who::Nobody, &sent).await.is(400, "invalid_state");
}

#[tokio::test]
async fn an_issuer_that_sends_iss_must_always_send_it() {
    let (server, idp) = with_oidc(rules(&["example.com"], false)).await;
    idp.script().discovery = json!({ "authorization_response_iss_parameter_supported": true });
    sign_in(&server, &idp).await.is(400, "invalid_state");
    let started = start(&server).await;
    let sent = json!({ "code": idp.agree(&started.url), "state": started.state, "iss": idp.issuer });
    assert_eq!(callback(&server, "oidc", &started.cookie, &Who::Nobody, &sent).await.status, 200);
}

#[tokio::test]
async fn every_claim_of_a_token_is_checked() {
    let (server, idp) = with_oidc(rules(&["example.com"], false)).await;
    let cases = [
        ("nonce", json!({ "nonce": "another" })),
        ("nonce", json!({ "nonce": null })),
        ("at_hash", json!({ "at_hash": "AAAAAAAAAAAAAAAAAAAAAA" })),
        ("iss", json!({ "iss": "https://evil.example" })),
        ("iss", json!({ "iss": format!("{}/", idp.issuer) })),
        ("aud", json!({ "aud": "another" })),
        ("aud", json!({ "aud": [] })),
        ("azp", json!({ "azp": "another" })),
        ("azp", json!({ "aud": [CLIENT, "another"] })),
        ("azp", json!({ "aud": [CLIENT, "another"], "azp": "another" })),
        ("exp", json!({ "exp": NOW_S - 30 })),
        ("exp", json!({ "exp": -1 })),
        ("iat", json!({ "iat": NOW_S + 31 })),
        ("nbf", json!({ "nbf": NOW_S + 31 })),
        ("sub", json!({ "sub": "" })),
        ("sub", json!({ "sub": "x".repeat(256) })),
        ("claims", json!({ "exp": null })),
        ("claims", json!({ "iat": null })),
        ("claims", json!({ "aud": null })),
        ("claims", json!({ "sub": null })),
        ("claims", json!({ "exp": "99999999999" })),
    ];
    for (why, claims) in cases {
        claim(&idp, claims.clone());
        let reply = sign_in(&server, &idp).await;
        reply.is(400, "oauth_error");
        assert!(reply.text("detail").contains(&format!("({why})")), "{claims}: {}", reply.body);
    }
    assert!(server.identity.users().expect("readable").len() == 1, "no account was created");
}

#[tokio::test]
async fn a_token_must_be_signed_by_a_key_of_the_issuer() {
    let (server, idp) = with_oidc(rules(&["example.com"], false)).await;
    // The client secret is not a signing key.
    idp.script().algorithm = Algorithm::HS256;
    sign_in(&server, &idp).await.is(400, "oauth_error");
    idp.script().algorithm = Algorithm::RS256;
    idp.script().kid = Some("two".into());
    sign_in(&server, &idp).await.is(400, "oauth_error");
    idp.script().kid = Some("one".into());
    let part = |json: &Value| BASE64URL_NOPAD.encode(json.to_string().as_bytes());
    let claims =
        part(&json!({ "iss": idp.issuer, "sub": "x", "aud": CLIENT, "exp": NOW_S + 9, "iat": NOW_S }));
    for (header, signature) in [
        (json!({ "alg": "none" }), String::new()),
        (json!({ "alg": "RS256", "kid": "one" }), String::new()),
        (json!({ "alg": "RS256", "kid": "one" }), BASE64URL_NOPAD.encode(&[1; 256])),
        (json!({ "alg": "RS256", "kid": "one", "crit": ["b64"], "b64": false }), String::new()),
        (json!({ "alg": "RS256", "kid": 1 }), String::new()),
        (json!({ "alg": "EdDSA", "kid": "one", "jwk": {} }), BASE64URL_NOPAD.encode(&[1; 64])),
        (json!([]), String::new()),
    ] {
        idp.script().id_token = Some(format!("{}.{claims}.{signature}", part(&header)));
        sign_in(&server, &idp).await.is(400, "oauth_error");
    }
    for token in ["", ".", "..", "a.b.c", &"x".repeat(70_000)] {
        idp.script().id_token = Some(token.to_owned());
        sign_in(&server, &idp).await.is(400, "oauth_error");
    }
}

#[tokio::test]
async fn keys_are_cached_for_an_hour_and_fetched_again_at_most_once_a_minute() {
    let (server, idp) = with_oidc(rules(&["example.com"], false)).await;
    claim(&idp, json!({ "exp": NOW_S + 10_000 }));
    for _ in 0..3 {
        assert_eq!(sign_in(&server, &idp).await.status, 200);
    }
    assert_eq!((idp.asked("/jwks"), idp.asked("/.well-known/openid-configuration")), (1, 1));
    // The issuer rotates its keys; within the first minute they are not fetched again.
    idp.script().kid = Some("two".into());
    idp.script().published = vec!["one".into(), "two".into()];
    for _ in 0..3 {
        sign_in(&server, &idp).await.is(400, "oauth_error");
    }
    assert_eq!(idp.asked("/jwks"), 1);
    server.pass(Duration::from_secs(60));
    assert_eq!(sign_in(&server, &idp).await.status, 200);
    assert_eq!(idp.asked("/jwks"), 2);
    idp.script().kid = Some("three".into());
    server.pass(Duration::from_secs(60));
    for _ in 0..3 {
        sign_in(&server, &idp).await.is(400, "oauth_error");
    }
    assert_eq!(idp.asked("/jwks"), 3, "once for all who name a key that is not there");
    idp.script().kid = Some("two".into());
    server.pass(Duration::from_secs(3_600));
    assert_eq!(sign_in(&server, &idp).await.status, 200);
    assert_eq!((idp.asked("/jwks"), idp.asked("/.well-known/openid-configuration")), (4, 2));
}

// -- threat 23: a faulty issuer -------------------------------------------------------------------

#[tokio::test]
async fn an_invalid_response_of_the_issuer_is_a_502_and_no_redirect_is_followed() {
    const DISCOVERY: &str = "/.well-known/openid-configuration";
    let elsewhere = Idp::start(NOW_S).await;
    let big = vec![b' '; 10 << 20];
    let cases: Vec<(&str, u16, Vec<u8>, &str)> = vec![
        (DISCOVERY, 302, Vec::new(), "idp_error"),
        (DISCOVERY, 200, b"<html>".to_vec(), "idp_error"),
        (DISCOVERY, 200, b"{}".to_vec(), "idp_error"),
        (DISCOVERY, 404, b"{}".to_vec(), "idp_error"),
        (DISCOVERY, 500, b"{}".to_vec(), "idp_unavailable"),
        (DISCOVERY, 200, big.clone(), "idp_error"),
        ("/jwks", 302, Vec::new(), "idp_error"),
        ("/jwks", 200, big.clone(), "idp_error"),
        ("/jwks", 200, b"[]".to_vec(), "idp_error"),
        ("/jwks", 200, br#"{"keys":{}}"#.to_vec(), "oauth_error"),
        ("/token", 307, Vec::new(), "idp_error"),
        ("/token", 503, Vec::new(), "idp_unavailable"),
        ("/token", 401, br#"{"error":"invalid_client"}"#.to_vec(), "idp_error"),
        ("/token", 400, br#"{"error":"invalid_grant"}"#.to_vec(), "oauth_error"),
        ("/token", 400, b"no".to_vec(), "idp_error"),
        ("/token", 200, br#"{"access_token":"x","token_type":"Bearer"}"#.to_vec(), "idp_error"),
        ("/token", 200, br#"{"access_token":"x","id_token":"x","token_type":"mac"}"#.to_vec(), "idp_error"),
    ];
    for (path, status, body, code) in cases {
        let (server, idp) = with_oidc(Admission::default()).await;
        idp.script().location = format!("{}{path}", elsewhere.issuer);
        idp.script().instead = vec![(path, status, body)];
        let reply = if path == DISCOVERY {
            server.post("/api/v1/auth/oauth/oidc/start", &Who::Nobody, json!({})).await
        } else {
            sign_in(&server, &idp).await
        };
        reply.is(if code == "oauth_error" { 400 } else { 502 }, code);
        assert_eq!(reply.session_cookie(), None);
    }
    assert!(elsewhere.script().asked.is_empty(), "no redirect was followed");
    for discovery in [
        json!({ "issuer": "https://evil.example" }),
        json!({ "jwks_uri": "http://192.0.2.1/jwks" }),
        json!({ "token_endpoint": "file:///etc/passwd" }),
        json!({ "authorization_endpoint": "javascript:alert(1)" }),
    ] {
        let (server, idp) = with_oidc(Admission::default()).await;
        idp.script().discovery = discovery;
        server.post("/api/v1/auth/oauth/oidc/start", &Who::Nobody, json!({})).await.is(502, "idp_error");
    }
}

#[tokio::test]
async fn an_issuer_that_does_not_respond_times_out() {
    let idp = Idp::start(NOW_S).await;
    idp.script().silent = Some("*");
    let https = HttpsOptions { timeout: Duration::from_millis(50), ..HttpsOptions::default() };
    let silent =
        server(Providers::default().with(Provider::Oidc, open_id(&idp, Admission::default(), https)));
    silent.post("/api/v1/auth/oauth/oidc/start", &Who::Nobody, json!({})).await.is(502, "idp_unavailable");
    let gone = Idp { issuer: "http://127.0.0.1:1".into(), ..idp };
    let oidc = open_id(&gone, Admission::default(), HttpsOptions::default());
    let server = server(Providers::default().with(Provider::Oidc, oidc));
    server.post("/api/v1/auth/oauth/oidc/start", &Who::Nobody, json!({})).await.is(502, "idp_unavailable");
}

// -- one state, one session -----------------------------------------------------------------------

/// A provider that accepts a code twice still gives one session here.
#[tokio::test]
async fn fifty_uses_of_one_state_and_code_make_one_session() {
    let (server, idp) = with_oidc(rules(&["example.com"], false)).await;
    idp.script().codes_last = true;
    let started = start(&server).await;
    let sent = json!({ "code": idp.agree(&started.url), "state": started.state });
    let mut running = tokio::task::JoinSet::new();
    let local = tokio::task::LocalSet::new();
    let server = Arc::new(server);
    for _ in 0..50 {
        let (server, started, sent) = (Arc::clone(&server), started.clone(), sent.clone());
        running.spawn_local_on(
            async move { callback(&server, "oidc", &started.cookie, &Who::Nobody, &sent).await },
            &local,
        );
    }
    let replies = local.run_until(running.join_all()).await;
    let (won, lost): (Vec<_>, Vec<_>) = replies.iter().partition(|reply| reply.status == 200);
    assert_eq!(won.len(), 1);
    // Of fifty at once some may find the lane full; no other request succeeds.
    for reply in lost {
        let code = reply.code();
        assert!(matches!(code.as_str(), "invalid_state" | "busy" | "idp_unavailable"), "{}", reply.body);
        assert_eq!(reply.session_cookie(), None);
    }
    callback(&server, "oidc", &started.cookie, &Who::Nobody, &sent).await.is(400, "invalid_state");
}

/// docs/specification.md F26: the second factor is required after any first factor.
#[tokio::test]
async fn an_account_with_a_second_factor_gets_no_cookie_from_a_provider_either() {
    let (server, idp) = with_oidc(rules(&[], true)).await;
    let cabinet = server.log_in().await;
    let secret = server.post("/auth/2fa/enroll", &cabinet, json!({})).await.text("secret");
    let code = |at: i64| {
        let secret = data_encoding::BASE32_NOPAD.decode(secret.as_bytes()).expect("base32");
        let totp = totp_rs::Builder::new().with_secret(secret).build().expect("a generator");
        totp.generate(u64::try_from(at).expect("after 1970")).to_string()
    };
    let confirmed = server.post("/auth/2fa/confirm", &cabinet, json!({ "code": code(NOW_S) })).await;
    assert_eq!(confirmed.status, 200, "{}", confirmed.body);
    claim(&idp, json!({ "email": EMAIL, "exp": NOW_S + 600 }));
    let live = Who::Cookie(confirmed.session_cookie().expect("a session"));
    let reply = sign_in(&server, &idp).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    assert_eq!(reply.headers.get(header::SET_COOKIE), None);
    // Nor does a browser with a session, whose cookie every other response renews.
    let started = start(&server).await;
    let sent = json!({ "code": idp.agree(&started.url), "state": started.state });
    let renewing = format!("{}; ms_session={}", started.cookie, live.secret());
    let again = callback(&server, "oidc", &renewing, &Who::Nobody, &sent).await;
    assert_eq!((again.status.as_u16(), &again.value()["requires_2fa"]), (200, &json!(true)));
    assert_eq!(again.headers.get(header::SET_COOKIE), None);
    let body = reply.value();
    let me = server.get("/api/v1/auth/me", &live).await;
    assert_eq!(me.value()["identities"], json!([]), "an address alone links nothing past a second factor");
    assert!(server.outbox.mails().iter().all(|mail| mail.kind != MailKind::IdentityLinked));
    assert_eq!((&body["requires_2fa"], &body["expires_in"]), (&json!(true), &json!(300)));
    assert_eq!(body.as_object().expect("an object").len(), 3, "{body}");
    server.pass(Duration::from_secs(60));
    let verify = json!({ "twofa_pending_login": body["twofa_pending_login"], "code": code(NOW_S + 60) });
    let done = server.post("/auth/2fa/verify", &Who::Nobody, verify).await;
    assert_eq!(done.value()["session"]["auth_method"], "oidc", "{}", done.body);
    let live_again = Who::Cookie(done.session_cookie().expect("a session"));
    // The browser's variant puts the pending login behind the `#`.
    let started = start(&server).await;
    let path = format!("/auth/oauth/oidc/callback?code={}&state={}", idp.agree(&started.url), started.state);
    let request = ask("GET", &path, &Who::Nobody)
        .header(header::COOKIE, format!("ms_oauth={}; ms_session={}", started.cookie, live_again.secret()));
    let page = server.send(request.body(Body::empty()).expect("a request")).await;
    let to = page.header("location");
    assert!(to.starts_with("/login/2fa#pending=tfp_") && !to.contains("redirect"), "{to}");
    assert_eq!(page.headers.get(header::SET_COOKIE), None);
    // The redirect target survives the second factor.
    let started = start_at(&server, "oidc", &Who::Nobody, json!({ "redirect": "/explore?q=a&b" })).await;
    let path = format!("/auth/oauth/oidc/callback?code={}&state={}", idp.agree(&started.url), started.state);
    let request =
        ask("GET", &path, &Who::Nobody).header(header::COOKIE, format!("ms_oauth={}", started.cookie));
    let page = server.send(request.body(Body::empty()).expect("a request")).await;
    assert!(page.header("location").ends_with("&redirect=%2Fexplore%3Fq%3Da%26b"), "{:?}", page.headers);
    let started = start_at(&server, "oidc", &Who::Nobody, json!({ "redirect": "/explore" })).await;
    let sent = json!({ "code": idp.agree(&started.url), "state": started.state });
    let reply = callback(&server, "oidc", &started.cookie, &Who::Nobody, &sent).await;
    assert_eq!((reply.session_cookie(), &reply.value()["redirect"]), (None, &json!("/explore")));
}

/// A `HEAD` starts no sign-in, because link checkers and previews send it.
#[tokio::test]
async fn a_head_on_the_start_of_a_sign_in_sets_no_cookie() {
    let (server, _idp) = with_oidc(rules(&["example.com"], false)).await;
    let path = "/api/v1/auth/oauth/oidc/start";
    let started = server.get(path, &Who::Nobody).await;
    assert!(started.status == 302 && state_cookie(&started).is_some(), "{:?}", started.headers);
    let request = ask("HEAD", path, &Who::Nobody).body(Body::empty()).expect("a request");
    let asked = server.send(request).await;
    assert_eq!((asked.status.as_u16(), asked.headers.get(header::SET_COOKIE)), (302, None));
    // Every request renews a session.
    let ada = server.log_in().await;
    let request = ask("HEAD", path, &ada).body(Body::empty()).expect("a request");
    assert_eq!(server.send(request).await.session_cookie().as_deref(), Some(ada.secret()));
}

// -- linking --------------------------------------------------------------------------------------

async fn link(server: &TestServer, idp: &Idp, who: &Who) -> Reply {
    let started = start_at(server, "oidc", who, json!({ "mode": "link", "redirect": "/settings" })).await;
    let sent = json!({ "code": idp.agree(&started.url), "state": started.state });
    callback(server, "oidc", &started.cookie, who, &sent).await
}

#[tokio::test]
async fn an_identity_is_linked_and_unlinked_by_its_logged_in_account() {
    let (server, idp) = with_oidc(Admission::default()).await;
    let start = "/api/v1/auth/oauth/oidc/start";
    server.post(start, &Who::Nobody, json!({ "mode": "link" })).await.is(401, "unauthenticated");
    server.post(start, &Who::Nobody, json!({ "mode": "x" })).await.is(400, "invalid_parameter");
    let ada = server.log_in().await;
    claim(&idp, json!({ "exp": NOW_S + 10_000 }));
    let reply = link(&server, &idp, &ada).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    let body = reply.value();
    assert_eq!(
        (&body["linked"], &body["created"], &body["redirect"]),
        (&json!(true), &json!(false), &json!("/settings"))
    );
    assert_eq!((&body["requires_2fa"], &body["user"]["email"]), (&json!(false), &json!(EMAIL)));
    assert_eq!(server.outbox.mails().last().expect("a mail").kind, MailKind::IdentityLinked);
    assert_eq!(link(&server, &idp, &ada).await.value()["linked"], false, "it was linked already");
    // Now it logs in to this account with any address.
    let signed_in = sign_in(&server, &idp).await;
    assert_eq!(signed_in.value()["user"]["email"], EMAIL, "{}", signed_in.body);

    // A link that one account started ends with that account, in its own session.
    let started = start_at(&server, "oidc", &ada, json!({ "mode": "link" })).await;
    let sent = json!({ "code": idp.agree(&started.url), "state": started.state });
    callback(&server, "oidc", &started.cookie, &Who::Nobody, &sent).await.is(401, "unauthenticated");
    let other = server.log_in().await;
    callback(&server, "oidc", &started.cookie, &other, &sent).await.is(400, "invalid_state");

    let me = server.get("/api/v1/auth/me", &ada).await.value();
    let id = me["identities"][0]["id"].as_str().expect("an id").to_owned();
    assert!(id.starts_with("idn_"));
    let path = |id: &str| format!("/api/v1/auth/identities/{id}");
    server.delete(&path("idn_aaaaaaaaaaaaaaaa"), &ada).await.is(404, "not_found");
    server.delete(&path("x"), &ada).await.is(404, "not_found");
    server.pass(Duration::from_secs(15 * 60 + 1));
    server.delete(&path(&id), &ada).await.is(403, "reauth_required");
    server.post(start, &ada, json!({ "mode": "link" })).await.is(403, "reauth_required");
    server.post("/auth/reauth", &ada, json!({ "password": PASSWORD })).await;
    assert_eq!(server.delete(&path(&id), &ada).await.status, 204);
    server.delete(&path(&id), &ada).await.is(404, "not_found");
    assert_eq!(server.get("/api/v1/auth/me", &ada).await.value()["identities"], json!([]));
    sign_in(&server, &idp).await.is(403, "signup_closed");
}

#[tokio::test]
async fn an_identity_belongs_to_one_account_and_the_last_login_method_remains() {
    let idp = Idp::start(NOW_S).await;
    let mut plan = TestServerOptions { console: true, ..TestServerOptions::default() };
    let oidc = open_id(&idp, rules(&["example.com"], false), HttpsOptions::default());
    plan.options.providers = Providers::default().with(Provider::Oidc, oidc);
    let server = TestServer::build(plan);
    let alice = sign_in(&server, &idp).await;
    let ada = server.log_in().await;
    link(&server, &idp, &ada).await.is(409, "identity_in_use");
    // Alice has no password, and mails go to the operator's console.
    let alice = Who::Cookie(alice.session_cookie().expect("a session"));
    let me = server.get("/api/v1/auth/me", &alice).await.value();
    let path = format!("/api/v1/auth/identities/{}", me["identities"][0]["id"].as_str().expect("an id"));
    server.delete(&path, &ada).await.is(404, "not_found");
    server.delete(&path, &alice).await.is(409, "conflict");
    claim(&idp, json!({ "sub": "alice's other account", "email": "a@example.com" }));
    assert_eq!(link(&server, &idp, &alice).await.value()["linked"], true);
    assert_eq!(server.delete(&path, &alice).await.status, 204, "there is another one");
}

#[tokio::test]
async fn a_disabled_account_gets_its_own_error_and_no_session() {
    let (server, idp) = with_oidc(rules(&["example.com"], false)).await;
    let id = sign_in(&server, &idp).await.value()["user"]["id"].as_str().expect("an id").to_owned();
    let admin = server.log_in().await;
    let path = format!("/api/v1/admin/users/{id}");
    let disabled = server.json("PATCH", &path, &admin, json!({ "disabled": true })).await;
    assert_eq!(disabled.status, 200, "{}", disabled.body);
    let refused = sign_in(&server, &idp).await;
    refused.is(403, "account_disabled");
    assert_eq!(refused.session_cookie(), None);
}

/// docs/specification.md F15.
#[tokio::test]
async fn a_sign_in_never_redirects_elsewhere() {
    let (server, idp) = with_oidc(rules(&["example.com"], false)).await;
    for redirect in ["//evil.example", "/\\evil.example", "https://evil.example", "/%0d%0aX:y", "/../x", ""] {
        let started = start_at(&server, "oidc", &Who::Nobody, json!({ "redirect": redirect })).await;
        let sent = json!({ "code": idp.agree(&started.url), "state": started.state });
        let reply = callback(&server, "oidc", &started.cookie, &Who::Nobody, &sent).await;
        assert_eq!(reply.value()["redirect"], "/", "{redirect}");
    }
    // The longest path still fits into a cookie that browsers accept.
    let longest = format!("/{}", "\"".repeat(2_047));
    let started = start_at(&server, "oidc", &Who::Nobody, json!({ "redirect": longest })).await;
    assert!(started.cookie.len() < 3_900, "{}", started.cookie.len());
}

/// Only a user whom the provider proved to be the account's owner gets the reason.
#[tokio::test]
async fn a_disabled_account_is_named_to_its_owner_and_gets_no_session() {
    let (server, idp) = with_oidc(rules(&["example.com"], false)).await;
    let made = sign_in(&server, &idp).await;
    assert_eq!(made.status, 200, "{}", made.body);
    let id = made.value()["user"]["id"].as_str().expect("an id").to_owned();
    let ada = server.log_in().await;
    let off =
        server.json("PATCH", &format!("/api/v1/admin/users/{id}"), &ada, json!({ "disabled": true })).await;
    assert_eq!(off.status, 200, "{}", off.body);
    let refused = sign_in(&server, &idp).await;
    refused.is(403, "account_disabled");
    assert_eq!(refused.session_cookie(), None);
}
