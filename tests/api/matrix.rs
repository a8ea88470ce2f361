//! The authorisation matrix (docs/specification.md B1, C, F 30, 31, 36, 47): every route, called by
//! every kind of caller, answers as `api::access` says. A route without a row in that table does
//! not compile, and every route of the router is called here.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::header;
use promlet::api::ApiOptions;
use promlet::api::access::{AccessOutcome, Caller, Scope};
use promlet::api::error::Code;
use promlet::api::routes::{Auth, RouteDoc};
use promlet::identity::{DashboardDocument, Endpoint, ProvisionedDashboard, Role};
use serde_json::{Value, json};

use crate::test_server::{EMAIL, PASSWORD, Reply, TestServer, TestServerOptions, Who, ask};

/// The organisation in all requests; the instance administrator is not a member of it.
const ORG: &str = "shop";

struct TestInstance {
    server: TestServer,
    callers: Vec<(Caller, Who)>,
    /// A viewer who may be removed.
    bystander: String,
    key: String,
}

const ENDPOINTS: [(Endpoint, &str); 7] = [
    (Endpoint::Metrics, "metrics"),
    (Endpoint::Labels, "labels"),
    (Endpoint::Range, "range"),
    (Endpoint::Instant, "instant"),
    (Endpoint::Expr, "expr"),
    (Endpoint::Dashboard, "dashboard"),
    (Endpoint::Alerts, "alerts"),
];

impl TestInstance {
    /// Creates one caller of each kind as users do: by invitation, login, key and token.
    async fn build() -> TestInstance {
        let mut options = ApiOptions::new("http://127.0.0.1:8095");
        // All requests are sent within one instant of the clock.
        options.limits.cabinet_rps = 1_000_000;
        options.limits.anonymous_rps = 1_000_000;
        let server =
            TestServer::build(TestServerOptions { options, console: true, ..TestServerOptions::default() });
        let admin = server.log_in().await;
        let made = server.post("/api/v1/orgs", &admin, json!({ "slug": ORG })).await;
        assert_eq!(made.status, 201, "{}", made.body);
        let mut callers = Vec::new();
        for (name, org, role) in [
            ("viewer", ORG, "viewer"),
            ("editor", ORG, "editor"),
            ("admin", ORG, "admin"),
            ("owner", ORG, "owner"),
            ("stale", ORG, "owner"),
            ("expired", ORG, "owner"),
            ("revoked", ORG, "owner"),
            ("disabled", ORG, "owner"),
            ("bystander", ORG, "viewer"),
            ("stranger", "acme", "owner"),
            ("steward", "acme", "viewer"),
        ] {
            invited(&server, &admin, org, name, role).await;
        }
        let members = server.get(&format!("/api/v1/orgs/{ORG}/members"), &admin).await.value();
        let id = |name: &str| user_id(&members, &address(name));
        let left =
            server.delete(&format!("/api/v1/orgs/{ORG}/members/{}", id_of(&members, EMAIL)), &admin).await;
        assert_eq!(left.status, 204, "the administrator leaves: {}", left.body);
        callers.push((Caller::ExpiredSession, log_in(&server, "expired").await));
        server.pass(Duration::from_secs(31 * 86_400));
        callers.push((Caller::StaleOwner, log_in(&server, "stale").await));
        callers.push((Caller::StaleInstanceAdmin, log_in(&server, "steward").await));
        let owner = log_in(&server, "owner").await;
        callers.extend(dead_credentials(&server, &owner).await);
        server.pass(Duration::from_secs(16 * 60));
        for (caller, name) in [
            (Caller::Stranger, "stranger"),
            (Caller::Member(Role::Viewer), "viewer"),
            (Caller::Member(Role::Editor), "editor"),
            (Caller::Member(Role::Admin), "admin"),
            (Caller::Member(Role::Owner), "owner"),
            (Caller::RevokedSession, "revoked"),
            (Caller::DisabledAccount, "disabled"),
        ] {
            callers.push((caller, log_in(&server, name).await));
        }
        let who = |caller| find(&callers, caller).clone();
        let out = server.post("/api/v1/auth/logout", &who(Caller::RevokedSession), json!({})).await;
        assert_eq!(out.status, 204);
        let admin = server.log_in().await;
        let path = format!("/api/v1/admin/users/{}", id("disabled"));
        let disabled = server.json("PATCH", &path, &admin, json!({ "disabled": true })).await;
        assert_eq!(disabled.status, 200, "{}", disabled.body);
        let of_acme = server.get("/api/v1/orgs/acme/members", &admin).await.value();
        let path = format!("/api/v1/admin/users/{}", user_id(&of_acme, &address("steward")));
        let raised = server.json("PATCH", &path, &admin, json!({ "is_admin": true })).await;
        assert_eq!(raised.status, 200, "{}", raised.body);
        let (owner, stranger) = (who(Caller::Member(Role::Owner)), who(Caller::Stranger));
        callers.push((Caller::InstanceAdmin, admin));
        callers.push((Caller::Anonymous, Who::Nobody));
        let key = live_credentials(&server, &owner, &stranger, &mut callers).await;
        for caller in Caller::ALL {
            assert!(callers.iter().any(|(have, _)| have == caller), "nobody is {caller:?}");
        }
        TestInstance { server, callers, bystander: id("bystander"), key }
    }

    /// Whether every caller with a valid session still has it.
    async fn is_whole(&self) -> bool {
        for (caller, who) in &self.callers {
            let lives =
                Auth::Account(promlet::api::routes::Login::Any).outcome(*caller) == AccessOutcome::Served;
            if lives && self.server.get("/api/v1/auth/me", who).await.status != 200 {
                return false;
            }
        }
        true
    }

    async fn ask(&self, row: &RouteDoc, who: &Who, count: usize) -> Reply {
        let path = row
            .path
            .replace("{slug}", ORG)
            .replace("{user_id}", &self.bystander)
            .replace("{provider}", "oidc")
            .replace("{name}", "up")
            .replace("{label}", "job")
            .replace("{group}", "none");
        let path = match path.split_once('{') {
            Some((before, rest)) => {
                let end = rest.split_once('}').map_or("", |(_, end)| end);
                // The tokens and the link of the test end with those of the dashboard "none".
                let id = if end == "/revoke-embeds" { "other" } else { "none" };
                format!("{before}{id}{end}")
            }
            None => path,
        };
        let question = match row.auth {
            _ if row.path.ends_with("/query/live") && row.method == "GET" => "?expr=up&count=1",
            Auth::PrometheusCaller(_) => "?query=up&match[]=up&start=0&end=1&step=1",
            Auth::QueryCaller(Endpoint::Expr) => "?expr=up",
            Auth::QueryCaller(Endpoint::Range | Endpoint::Instant) | Auth::PictureCaller(_) => "?metric=up",
            _ => "",
        };
        let request = ask(row.method, &format!("{path}{question}"), who);
        let body = match (row.method, row.auth) {
            _ if row.path.ends_with("/query/batch") => json!({ "queries": [] }).to_string(),
            ("POST", _) if row.path.ends_with("/query/live") => {
                json!({ "queries": [{ "id": "A", "expr": "up" }], "count": 1 }).to_string()
            }
            ("GET", _) | (_, Auth::IngestCaller | Auth::AlertingCaller | Auth::PrometheusCaller(_)) => {
                String::new()
            }
            (_, Auth::Founder) => json!({ "slug": format!("made-{count}") }).to_string(),
            (_, Auth::MintCaller) if matches!(who, Who::Cookie(_)) => {
                json!({ "api_key_id": self.key }).to_string()
            }
            _ => "{}".to_owned(),
        };
        let request = match body.as_str() {
            "" => request,
            _ => request.header(header::CONTENT_TYPE, "application/json"),
        };
        self.server.send(request.body(Body::from(body)).expect("a request")).await
    }
}

fn address(name: &str) -> String {
    format!("{name}@example.com")
}

fn id_of(members: &Value, email: &str) -> String {
    user_id(members, email)
}

fn user_id(members: &Value, email: &str) -> String {
    let rows = members["data"].as_array().expect("rows");
    let row = rows.iter().find(|row| row["email"] == email).expect("a member");
    row["user_id"].as_str().expect("an id").to_owned()
}

fn find(callers: &[(Caller, Who)], wanted: Caller) -> &Who {
    callers.iter().find(|(caller, _)| *caller == wanted).map(|(_, who)| who).expect("one of each")
}

/// Creates an account with that name and `PASSWORD`, by an invitation.
async fn invited(server: &TestServer, admin: &Who, org: &str, name: &str, role: &str) {
    let invite = json!({ "email": address(name), "role": role });
    let invite = server.post(&format!("/api/v1/orgs/{org}/invites"), admin, invite).await;
    assert_eq!(invite.status, 201, "{name}: {}", invite.body);
    let url = invite.text("url");
    let token = url.split("token=").nth(1).expect("a token in the link").to_owned();
    let accept = json!({ "token": token, "name": name, "password": PASSWORD });
    let accepted = server.post("/api/v1/auth/invites/accept", &Who::Nobody, accept).await;
    assert_eq!(accepted.status, 201, "{name}: {}", accepted.body);
}

async fn log_in(server: &TestServer, name: &str) -> Who {
    let body = json!({ "email": address(name), "password": PASSWORD });
    let reply = server.post("/api/v1/auth/login", &Who::Nobody, body).await;
    assert_eq!(reply.status, 200, "{name}: {}", reply.body);
    Who::Cookie(reply.session_cookie().expect("a session"))
}

async fn key(server: &TestServer, cabinet: &Who, org: &str, fields: Value) -> (String, Who) {
    let mut body =
        json!({ "name": "test", "embed": { "rate_limit_rps": 10_000, "max_token_ttl_s": 86_400 } });
    body.as_object_mut().expect("an object").extend(fields.as_object().expect("an object").clone());
    let reply = server.post(&format!("/api/v1/orgs/{org}/api-keys"), cabinet, body).await;
    assert_eq!(reply.status, 201, "{}", reply.body);
    (reply.text("id"), Who::Bearer(reply.text("secret")))
}

async fn token(server: &TestServer, cabinet: &Who, org: &str, key: &str, fields: Value) -> Who {
    let mut body = json!({ "api_key_id": key, "ttl_s": 86_400 });
    body.as_object_mut().expect("an object").extend(fields.as_object().expect("an object").clone());
    let reply = server.post(&format!("/api/v1/orgs/{org}/embed/tokens"), cabinet, body).await;
    assert_eq!(reply.status, 201, "{}", reply.body);
    Who::Bearer(reply.text("token"))
}

/// Credentials that are invalid at once or within a quarter of an hour.
async fn dead_credentials(server: &TestServer, owner: &Who) -> Vec<(Caller, Who)> {
    let all = ["ingest", "read", "embed", "alerting"];
    let soon = server.clock.now().plus(Duration::from_secs(60)).to_rfc3339();
    let (_, expired_key) = key(server, owner, ORG, json!({ "scopes": all, "expires_at": soon })).await;
    let (disabled, disabled_key) = key(server, owner, ORG, json!({ "scopes": all })).await;
    let (revoked, revoked_key) = key(server, owner, ORG, json!({ "scopes": all })).await;
    let (signer, _) = key(server, owner, ORG, json!({ "scopes": ["embed"] })).await;
    let expired_token = token(server, owner, ORG, &signer, json!({ "ttl_s": 60 })).await;
    let revoked_token = token(server, owner, ORG, &signer, json!({})).await;
    server.pass(Duration::from_secs(1));
    let path = |id: &str| format!("/api/v1/orgs/{ORG}/api-keys/{id}");
    let off = server.json("PATCH", &path(&disabled), owner, json!({ "disabled": true })).await;
    let deleted = server.delete(&path(&revoked), owner).await;
    let ended = server.post(&format!("{}/revoke-tokens", path(&signer)), owner, json!({})).await;
    assert_eq!((off.status.as_u16(), deleted.status.as_u16(), ended.status.as_u16()), (200, 204, 204));
    vec![
        (Caller::ExpiredKey, expired_key),
        (Caller::DisabledKey, disabled_key),
        (Caller::RevokedKey, revoked_key),
        (Caller::ExpiredToken, expired_token),
        (Caller::RevokedToken, revoked_token),
    ]
}

/// Creates valid keys and tokens. Returns the id of a signing key.
async fn live_credentials(
    server: &TestServer,
    owner: &Who,
    stranger: &Who,
    callers: &mut Vec<(Caller, Who)>,
) -> String {
    for (scope, word) in [
        (Scope::Ingest, "ingest"),
        (Scope::Read, "read"),
        (Scope::Embed, "embed"),
        (Scope::Alerting, "alerting"),
    ] {
        callers.push((Caller::Key(scope), key(server, owner, ORG, json!({ "scopes": [word] })).await.1));
    }
    let embed = json!({ "rate_limit_rps": 10_000, "max_token_ttl_s": 86_400, "policy": { "alerts": {} } });
    let (signer, _) = key(server, owner, ORG, json!({ "scopes": ["embed"], "embed": embed })).await;
    // The uid in the requests is "none".
    let restrictions = |granted: &[&str]| json!({ "ms": { "endpoints": granted, "dashboard": { "uid": "none" }, "alerts": {} } });
    let all = restrictions(&ENDPOINTS.map(|(_, word)| word));
    callers.push((Caller::Token, token(server, owner, ORG, &signer, all).await));
    for (withheld, _) in ENDPOINTS {
        let granted: Vec<&str> =
            ENDPOINTS.iter().filter(|(endpoint, _)| *endpoint != withheld).map(|(_, word)| *word).collect();
        let restricted = restrictions(&granted);
        callers.push((Caller::TokenWithout(withheld), token(server, owner, ORG, &signer, restricted).await));
    }
    let foreign = json!({ "scopes": ["ingest", "read", "embed", "alerting"] });
    let (id, foreign) = key(server, stranger, "acme", foreign).await;
    callers.push((Caller::ForeignKey, foreign));
    callers.push((Caller::ForeignToken, token(server, stranger, "acme", &id, json!({})).await));
    provision(server);
    let (_, own) = public_link(server, owner, ORG).await;
    callers.push((Caller::PublicLink, own));
    let (deleted, link) = public_link(server, owner, ORG).await;
    let path = format!("/api/v1/orgs/{ORG}/dashboards/none/links/{deleted}");
    assert_eq!(server.delete(&path, owner).await.status, 204);
    callers.push((Caller::DeletedPublicLink, link));
    callers.push((Caller::ForeignPublicLink, public_link(server, stranger, "acme").await.1));
    signer
}

/// Provides the dashboard in the requests as a file, so that no request deletes it and its links.
fn provision(server: &TestServer) {
    let document = DashboardDocument::parse(r#"{"title":"T"}"#.to_owned()).expect("a dashboard");
    let at = server.clock.now();
    let file = ProvisionedDashboard::new("none".to_owned(), &document, String::new(), at);
    server.identity.set_provisioned_dashboards([("none".to_owned(), Arc::new(file))].into());
}

/// Creates a public link. Returns its id and its secret.
async fn public_link(server: &TestServer, owner: &Who, org: &str) -> (String, Who) {
    let on = json!({ "settings": { "public_links": true } });
    let on = server.json("PATCH", &format!("/api/v1/orgs/{org}"), owner, on).await;
    assert_eq!(on.status, 200, "{}", on.body);
    let path = format!("/api/v1/orgs/{org}/dashboards/none/links");
    let made = server.post(&path, owner, json!({ "rate_limit_rps": 10_000 })).await;
    assert_eq!(made.status, 201, "{}", made.body);
    let secret = made.text("url").split_once("link=").expect("a secret").1.to_owned();
    (made.text("id"), Who::Bearer(secret))
}

/// Errors that depend on the caller.
const FOR_WHO_THEY_ARE: [Code; 14] = [
    Code::Unauthenticated,
    Code::SessionRequired,
    Code::SessionInvalid,
    Code::TokenInvalid,
    Code::TokenExpired,
    Code::TokenNotYetValid,
    Code::ApiKeyInvalid,
    Code::ApiKeyNotAllowed,
    Code::PublicLinkInvalid,
    Code::Forbidden,
    Code::OrgMismatch,
    Code::EmbedRestricted,
    Code::ReauthRequired,
    Code::OrgNotFound,
];

/// What is wrong with an answer, if anything.
fn wrong(row: &RouteDoc, expected: AccessOutcome, reply: &Reply) -> Option<String> {
    let body: Value = serde_json::from_str(&reply.body).unwrap_or_default();
    let mount = row.path.contains("/prometheus") || row.path.contains("/alertmanager");
    let fits = match expected {
        AccessOutcome::Refused(code) => reply.refuses(code) && (mount || body["request_id"].is_string()),
        AccessOutcome::Served => {
            reply.status.as_u16() != 500 && !FOR_WHO_THEY_ARE.iter().any(|code| reply.refuses(*code))
        }
    };
    (!fits).then(|| format!("expected {expected:?}, got {} {}", reply.status.as_u16(), reply.body))
}

#[tokio::test]
async fn every_route_gives_every_caller_what_its_row_says() {
    let mut instance = TestInstance::build().await;
    let rows = instance.server.rows.clone();
    assert!(rows.len() > 70, "{}", rows.len());
    let mut asked: BTreeMap<String, usize> = BTreeMap::new();
    let mut mistakes = Vec::new();
    for row in &rows {
        // Answers 500 to every caller.
        if row.path.ends_with("probe-panic") {
            continue;
        }
        for (count, (caller, who)) in instance.callers.iter().enumerate() {
            let reply = instance.ask(row, who, count).await;
            *asked.entry(format!("{} {}", row.method, row.path)).or_default() += 1;
            if let Some(wrong) = wrong(row, row.auth.outcome(*caller), &reply) {
                mistakes.push(format!("{} {} as {caller:?}: {wrong}", row.method, row.path));
            }
        }
        // Some routes end their caller (a logout, an account's deletion), so the next route gets
        // new callers.
        if row.method != "GET" && !instance.is_whole().await {
            instance = TestInstance::build().await;
        }
    }
    assert!(mistakes.is_empty(), "{} of them:\n{}", mistakes.len(), mistakes.join("\n"));
    assert!(asked.values().all(|count| *count == Caller::ALL.len()));
}
