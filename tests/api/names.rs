//! Names of people, organisations and keys in every request that sets one (docs/specification.md C2
//! to C4): invisible characters are refused, and removed from names that a provider sends
//! (`oauth.rs`).

use promlet::identity::{OrgCreate, SignupMode};
use serde_json::{Value, json};

use crate::test_server::{EMAIL, PASSWORD, Reply, TestServer, TestServerOptions, Who};

/// An escape sequence, a line end, a text direction override, an embedding, a zero-width character,
/// and fillers alone.
const HOSTILE: [&str; 7] =
    ["a\u{1b}[2Jb", "a\r\nX: y", "a\u{202e}b", "a\u{2066}b", "a\u{200b}b", "\u{feff}a", "\u{200d}\u{3164}"];

#[track_caller]
fn is_refused(reply: &Reply, name: &str) {
    reply.is(422, "validation_failed");
    let error = &reply.value()["errors"][0];
    assert_eq!(
        (&error["field"], &error["code"]),
        (&json!("name"), &json!("characters")),
        "{name:?}: {}",
        reply.body
    );
    assert!(!reply.body.contains('\u{202e}'), "the refusal does not repeat it");
}

#[tokio::test]
async fn invisible_characters_are_refused_in_every_name() {
    let options = TestServerOptions {
        signup: SignupMode::Open,
        org_create: OrgCreate::Any,
        set_up: false,
        ..TestServerOptions::default()
    };
    let server = TestServer::build(options);
    let first = |name: &str, org: &str| json!({ "email": EMAIL, "password": PASSWORD, "name": name, "org": { "slug": "acme", "name": org } });
    for name in HOSTILE {
        is_refused(&server.post("/api/v1/auth/signup", &Who::Nobody, first(name, "Acme")).await, name);
        is_refused(&server.post("/api/v1/auth/signup", &Who::Nobody, first("Ada", name)).await, name);
    }
    let made = server.post("/api/v1/auth/signup", &Who::Nobody, first("  Ada \u{3000}", "\tAcme\n")).await;
    assert_eq!(made.status, 201, "{}", made.body);
    assert_eq!(
        (&made.value()["user"]["name"], &made.value()["orgs"][0]["name"]),
        (&json!("Ada"), &json!("Acme"))
    );
    let owner = Who::Cookie(made.session_cookie().expect("a session"));

    let (key, _) = server.key(&owner, json!({ "name": " web\u{a0}site ", "scopes": ["read"] })).await;
    let key = format!("/api/v1/orgs/acme/api-keys/{key}");
    assert_eq!(
        server.get(&key, &owner).await.value()["name"],
        "web\u{a0}site",
        "trimmed outside, kept inside"
    );
    let invite = json!({ "email": "bo@example.com", "role": "viewer" });
    assert_eq!(server.post("/api/v1/orgs/acme/invites", &owner, invite).await.status, 201);
    let invited = mailed(&server);
    let new = json!({ "email": "grace@example.com" });
    assert_eq!(server.post("/api/v1/auth/signup", &Who::Nobody, new).await.status, 202);
    let signed_up = mailed(&server);
    for name in HOSTILE {
        let tries: [(&str, &str, Value); 8] = [
            ("PATCH", "/api/v1/auth/me", json!({ "name": name })),
            ("PATCH", "/api/v1/orgs/acme", json!({ "name": name })),
            ("POST", "/api/v1/orgs", json!({ "slug": "other", "name": name })),
            ("POST", "/api/v1/orgs/acme/api-keys", json!({ "name": name, "scopes": ["read"] })),
            ("PATCH", &key, json!({ "name": name })),
            (
                "POST",
                "/api/v1/auth/invites/accept",
                json!({ "token": invited, "name": name, "password": PASSWORD }),
            ),
            (
                "POST",
                "/api/v1/auth/signup/complete",
                json!({ "token": signed_up, "email": "grace@example.com", "name": name }),
            ),
            (
                "POST",
                "/api/v1/auth/signup/complete",
                json!({ "token": signed_up, "email": "grace@example.com", "org": { "slug": "grace", "name": name } }),
            ),
        ];
        for (method, path, body) in tries {
            let who = if path.contains("invites") || path.contains("signup") { &Who::Nobody } else { &owner };
            is_refused(&server.json(method, path, who, body).await, name);
        }
    }
    // Nothing was created, and the links remain valid.
    assert_eq!(server.get("/api/v1/orgs", &owner).await.value()["data"].as_array().map(Vec::len), Some(1));
    let good = json!({ "token": invited, "name": "Bo \u{1f469}\u{200d}\u{1f4bb}", "password": PASSWORD });
    let accepted = server.post("/api/v1/auth/invites/accept", &Who::Nobody, good).await;
    assert_eq!(
        (accepted.status.as_u16(), &accepted.value()["user"]["name"]),
        (201, &json!("Bo \u{1f469}\u{200d}\u{1f4bb}"))
    );
}

/// An address is a name, too: two addresses that look the same cannot be two accounts.
#[tokio::test]
async fn invisible_characters_are_refused_in_addresses() {
    let server = TestServer::new();
    let owner = server.log_in().await;
    for email in ["bo\u{200b}@example.com", "bo@exam\u{ad}ple.com", "bo@example.com\u{202e}"] {
        let invite = json!({ "email": email, "role": "viewer" });
        server.post("/api/v1/orgs/acme/invites", &owner, invite).await.is(422, "validation_failed");
        let link = json!({ "email": email });
        server.post("/api/v1/auth/magic-link/request", &Who::Nobody, link).await.is(422, "validation_failed");
    }
}

fn mailed(server: &TestServer) -> String {
    let url = server.outbox.mails().pop().expect("mailed").url;
    url.split("token=").nth(1).expect("a token").to_owned()
}
