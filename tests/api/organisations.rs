//! Organisations, API keys, embed tokens (docs/specification.md C3, C4).

use std::time::Duration;

use promlet::api::ApiOptions;
use serde_json::{Value, json};

use crate::test_server::{TestServer, TestServerOptions, Who};

#[tokio::test]
async fn an_organisation_is_created_listed_and_shown() {
    let server = TestServer::new();
    let cabinet = server.log_in().await;
    let made = server.post("/api/v1/orgs", &cabinet, json!({ "slug": "shop", "name": "Shop" })).await;
    assert_eq!(made.status, 201, "{}", made.body);
    assert_eq!((made.text("slug").as_str(), made.text("role").as_str()), ("shop", "owner"));
    let list = server.get("/api/v1/orgs", &cabinet).await.value();
    let slugs: Vec<&str> =
        list["data"].as_array().expect("rows").iter().filter_map(|row| row["slug"].as_str()).collect();
    assert_eq!(slugs, ["acme", "shop"]);
    let shown = server.get("/api/v1/orgs/shop", &cabinet).await.value();
    assert!(shown["id"].as_str().expect("an id").starts_with("org_"));
    assert_eq!(shown["settings"]["retention_days"], Value::Null);
    assert_eq!(shown["defaults"]["max_labels"], 64);
    assert_eq!(shown["usage"]["series"], 0);
    server.post("/api/v1/orgs", &cabinet, json!({ "slug": "shop" })).await.is(409, "slug_taken");
    for bad in ["-x", "UP", "api", ""] {
        server.post("/api/v1/orgs", &cabinet, json!({ "slug": bad })).await.is(422, "validation_failed");
    }
    server.get("/api/v1/orgs", &Who::Nobody).await.is(401, "unauthenticated");
}

#[tokio::test]
async fn a_key_shows_its_secret_once() {
    let server = TestServer::new();
    let cabinet = server.log_in().await;
    let body = json!({ "name": "website", "scopes": ["embed", "ingest"], "expires_at": "2030-01-01T00:00:00Z",
        "embed": { "rate_limit_rps": 50, "origins": ["https://app.example.com"], "policy": { "metrics": ["http_*"] } },
        "ingest": { "labels": { "source": "laptop" } } });
    let made = server.post("/api/v1/orgs/acme/api-keys", &cabinet, body).await;
    assert_eq!(made.status, 201, "{}", made.body);
    let (id, secret) = (made.text("id"), made.text("secret"));
    assert!(id.starts_with("ak_") && secret.starts_with("msk_"), "{id}");
    let shown = server.get(&format!("/api/v1/orgs/acme/api-keys/{id}"), &cabinet).await;
    let list = server.get("/api/v1/orgs/acme/api-keys", &cabinet).await;
    for reply in [&shown, &list] {
        assert!(!reply.body.contains(&secret));
    }
    let key = shown.value();
    assert_eq!(key["scopes"], json!(["ingest", "embed"]));
    assert_eq!(key["expires_at"], "2030-01-01T00:00:00Z");
    assert_eq!(key["last_used_at"], Value::Null);
    assert_eq!(key["embed"]["alg"], "HS256");
    assert_eq!(key["embed"]["rate_limit_rps"], 50);
    assert_eq!(key["embed"]["max_token_ttl_s"], 3_600);
    assert_eq!(key["embed"]["policy"]["metrics"], json!(["http_*"]));
    assert_eq!(
        key["ingest"],
        json!({ "rate_limit_rps": 100, "samples_per_s": 2_000_000, "labels": { "source": "laptop" } })
    );
    assert!(
        secret.ends_with(
            key["hint"].as_str().expect("a hint").trim_start_matches("msk_").trim_start_matches('…')
        )
    );
    assert_eq!(list.value()["data"].as_array().expect("rows").len(), 1);
    let path = format!("/api/v1/orgs/acme/api-keys/{id}");
    let changed = server
        .json(
            "PATCH",
            &path,
            &cabinet,
            json!({ "name": "site", "expires_at": null, "embed": { "rate_limit_rps": 7 } }),
        )
        .await;
    assert_eq!(changed.status, 200, "{}", changed.body);
    let key = changed.value();
    assert_eq!(
        (&key["name"], &key["expires_at"], &key["embed"]["rate_limit_rps"]),
        (&json!("site"), &Value::Null, &json!(7))
    );
    assert_eq!(key["embed"]["origins"], json!(["https://app.example.com"]), "what is not sent stays");
    server
        .json("PATCH", &path, &cabinet, json!({ "embed": { "alg": "ES256" } }))
        .await
        .is(422, "validation_failed");
}

/// docs/specification.md F35: a misspelled restriction is an error and grants nothing.
#[tokio::test]
async fn unknown_fields_in_restrictions_are_refused() {
    let server = TestServer::new();
    let cabinet = server.log_in().await;
    let keys = "/api/v1/orgs/acme/api-keys";
    for wrong in [
        json!({ "name": "x", "scopes": ["embed"], "embed": { "policy": { "matchs": ["a=\"b\""] } } }),
        json!({ "name": "x", "scopes": ["embed"], "embed": { "origin": ["*"] } }),
        json!({ "name": "x", "scopes": ["embed"], "ingest": { "label": {} } }),
        json!({ "name": "x", "scopes": ["embed"], "expires": "2030-01-01T00:00:00Z" }),
        json!({ "name": "x", "scopes": ["embd"] }),
        json!({ "name": "x", "scopes": [] }),
        json!({ "name": "", "scopes": ["read"] }),
        json!({ "name": "x", "scopes": ["read"], "expires_at": "tomorrow" }),
        json!({ "name": "x", "scopes": ["embed"], "embed": { "max_token_ttl_s": 1 } }),
        json!({ "name": "x", "scopes": ["embed"], "embed": { "public_key": "-----BEGIN PUBLIC KEY-----" } }),
    ] {
        let reply = server.post(keys, &cabinet, wrong.clone()).await;
        assert_eq!(reply.status, 422, "{wrong}: {}", reply.body);
        reply.is(422, "validation_failed");
    }
    let (key, _) = server.key(&cabinet, json!({ "scopes": ["embed"] })).await;
    let mint = "/api/v1/orgs/acme/embed/tokens";
    for wrong in [
        json!({ "api_key_id": key, "ms": { "matchs": [] } }),
        json!({ "api_key_id": key, "ttl": 5 }),
        json!({ "api_key_id": key, "ttl_s": 100_000 }),
        json!({ "api_key_id": key, "ms": { "match": ["not a matcher"] } }),
        json!({}),
    ] {
        let reply = server.post(mint, &cabinet, wrong.clone()).await;
        assert_eq!(reply.status, 422, "{wrong}: {}", reply.body);
    }
}

#[tokio::test]
async fn creating_a_key_needs_a_fresh_login() {
    let server = TestServer::new();
    let cabinet = server.log_in().await;
    server.pass(Duration::from_secs(15 * 60 + 1));
    let body = json!({ "name": "x", "scopes": ["read"] });
    server.post("/api/v1/orgs/acme/api-keys", &cabinet, body).await.is(403, "reauth_required");
    assert_eq!(server.get("/api/v1/orgs/acme/api-keys", &cabinet).await.status, 200);
}

/// A stolen old session must not widen a key, and may always restrict one.
#[tokio::test]
async fn changing_what_a_key_can_do_needs_a_fresh_login_and_disabling_it_does_not() {
    let server = TestServer::new();
    let cabinet = server.log_in().await;
    let (id, _) = server.key(&cabinet, json!({ "scopes": ["embed"] })).await;
    server.pass(Duration::from_secs(15 * 60 + 1));
    let path = format!("/api/v1/orgs/acme/api-keys/{id}");
    let shown = server.get(&path, &cabinet).await.value();
    for change in [
        json!({ "scopes": ["embed", "read"] }),
        json!({ "expires_at": null }),
        json!({ "expires_at": "2040-01-01T00:00:00Z" }),
        json!({ "embed": { "public_key": null } }),
        json!({ "embed": { "policy": {} } }),
        json!({ "embed": { "origins": ["*"] } }),
        json!({ "ingest": { "labels": {} } }),
        json!({ "read": { "rate_limit_rps": 5 } }),
        json!({ "disabled": false }),
        json!({ "disabled": true, "scopes": ["read"] }),
    ] {
        server.json("PATCH", &path, &cabinet, change).await.is(403, "reauth_required");
    }
    assert_eq!(server.get(&path, &cabinet).await.value(), shown, "nothing was changed");
    for change in [json!({ "name": "renamed" }), json!({ "disabled": true })] {
        assert_eq!(server.json("PATCH", &path, &cabinet, change).await.status, 200);
    }
}

#[tokio::test]
async fn a_key_mints_for_itself_only() {
    let server = TestServer::new();
    let cabinet = server.log_in().await;
    let (key, secret) =
        server.key(&cabinet, json!({ "scopes": ["embed"], "embed": { "max_token_ttl_s": 600 } })).await;
    let (other, _) = server.key(&cabinet, json!({ "scopes": ["embed"] })).await;
    let who = Who::Bearer(secret);
    let minted = server.post("/api/v1/orgs/acme/embed/tokens", &who, json!({})).await;
    assert_eq!(minted.status, 201, "{}", minted.body);
    assert_eq!(minted.text("kid"), key);
    assert_eq!(
        minted.text("expires_at"),
        server.clock.now().plus_ms(600_000).to_rfc3339(),
        "capped by its key"
    );
    server
        .post("/api/v1/orgs/acme/embed/tokens", &who, json!({ "api_key_id": other }))
        .await
        .is(403, "forbidden");
    let (_, reader) = server.key(&cabinet, json!({ "scopes": ["read"] })).await;
    server.post("/api/v1/orgs/acme/embed/tokens", &Who::Bearer(reader), json!({})).await.is(403, "forbidden");
}

/// docs/specification.md C3.
#[tokio::test]
async fn an_organisation_is_renamed_and_its_limits_are_changed() {
    let server = TestServer::new();
    let cabinet = server.log_in().await;
    let path = "/api/v1/orgs/acme";
    // As the instance administrator, beyond the server's defaults.
    for settings in [
        json!({ "max_series": 2_000_000 }),
        json!({ "max_samples_per_query": 2_000_000_000u64 }),
        json!({ "query_timeout_s": 300 }),
    ] {
        let reply = server.json("PATCH", path, &cabinet, json!({ "settings": settings })).await;
        assert_eq!(reply.status, 200, "{}", reply.body);
    }
    let reply = server
        .json("PATCH", path, &cabinet, json!({ "name": "Acme, Inc.", "settings": { "retention_days": "none", "query_timeout_s": null } }))
        .await;
    assert_eq!((reply.status.as_u16(), reply.text("name").as_str()), (200, "Acme, Inc."), "{}", reply.body);
    let shown = server.get(path, &cabinet).await.value();
    assert_eq!(shown, reply.value());
    let settings = &shown["settings"];
    assert_eq!((&settings["max_series"], &settings["retention_days"]), (&json!(2_000_000), &json!("none")));
    assert_eq!(
        (&settings["max_samples_per_query"], &settings["query_timeout_s"]),
        (&json!(2_000_000_000u64), &Value::Null)
    );
    for wrong in [
        json!({ "settings": { "max_serie": 1 } }),
        json!({ "settings": { "max_series": 0 } }),
        json!({ "settings": { "max_series": "all" } }),
        json!({ "settings": { "max_disk_bytes": 1 } }),
        json!({ "max_series": 1 }),
        json!({ "name": "x".repeat(201) }),
    ] {
        server.json("PATCH", path, &cabinet, wrong).await.is(422, "validation_failed");
    }
    assert_eq!(server.get(path, &cabinet).await.value(), shown, "what was refused changed nothing");
    server.json("PATCH", "/api/v1/orgs/other", &cabinet, json!({})).await.is(404, "org_not_found");
    server.json("PATCH", path, &Who::Nobody, json!({})).await.is(401, "unauthenticated");
}

#[tokio::test]
async fn members_are_listed() {
    let server = TestServer::new();
    let cabinet = server.log_in().await;
    let list = server.get("/api/v1/orgs/acme/members", &cabinet).await.value();
    let row = &list["data"][0];
    assert_eq!(
        (&row["email"], &row["role"], &row["name"]),
        (&json!("ada@example.com"), &json!("owner"), &json!("Ada"))
    );
    assert!(row["user_id"].as_str().expect("an id").starts_with("usr_"));
    assert_eq!(
        (&row["twofa_enabled"], &row["last_seen_at"]),
        (&json!(false), &json!(server.clock.now().to_rfc3339()))
    );
    server.get("/api/v1/orgs/other/members", &cabinet).await.is(404, "org_not_found");
}

/// docs/specification.md C4.
#[tokio::test]
async fn a_rotated_key_accepts_both_secrets_until_the_overlap_ends() {
    let server = TestServer::new();
    let cabinet = server.log_in().await;
    let (id, old) = server.key(&cabinet, json!({ "scopes": ["read", "embed"] })).await;
    let path = format!("/api/v1/orgs/acme/api-keys/{id}/rotate");
    for wrong in
        [json!({}), json!({ "overlap_s": 604_801 }), json!({ "overlap_s": -1 }), json!({ "overlap": 1 })]
    {
        server.post(&path, &cabinet, wrong).await.is(422, "validation_failed");
    }
    let rotated = server.post(&path, &cabinet, json!({ "overlap_s": 60 })).await;
    assert_eq!(rotated.status, 200, "{}", rotated.body);
    let new = rotated.text("secret");
    assert_eq!((rotated.text("id"), new == old), (id, false));
    let probe = "/api/v1/orgs/acme/prometheus/api/v1/probe";
    for secret in [&old, &new] {
        assert_eq!(server.get(probe, &Who::Bearer(secret.clone())).await.status, 200);
    }
    server.pass(Duration::from_secs(60));
    assert_eq!(server.get(probe, &Who::Bearer(old)).await.status, 401);
    assert_eq!(server.get(probe, &Who::Bearer(new)).await.status, 200);
    let missing = "/api/v1/orgs/acme/api-keys/ak_aaaaaaaaaaaaaaaa/rotate";
    server.post(missing, &cabinet, json!({ "overlap_s": 0 })).await.is(404, "not_found");
    server.pass(Duration::from_secs(15 * 60));
    server.post(&path, &cabinet, json!({ "overlap_s": 0 })).await.is(403, "reauth_required");
}

#[tokio::test]
async fn the_operator_sets_the_rate_of_new_keys_and_hides_the_document() {
    let mut options = ApiOptions::new("http://127.0.0.1:8095");
    options.embed_rps_default = 7;
    options.docs = false;
    let server = TestServer::build(TestServerOptions { options, ..TestServerOptions::default() });
    let cabinet = server.log_in().await;
    for (embed, rate) in [(json!({}), 7), (json!({ "rate_limit_rps": 9 }), 9)] {
        let body = json!({ "name": "x", "scopes": ["embed"], "embed": embed });
        let made = server.post("/api/v1/orgs/acme/api-keys", &cabinet, body).await.value();
        assert_eq!(made["embed"]["rate_limit_rps"], rate);
    }
    server.get("/api/v1/openapi.json", &cabinet).await.is(404, "not_found");
    assert_eq!(TestServer::new().get("/api/v1/openapi.json", &Who::Nobody).await.status, 200);
}
