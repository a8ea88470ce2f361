//! API keys and embed tokens, field by field (docs/specification.md C4).

use std::time::Duration;

use axum::body::Body;
use serde_json::{Value, json};

use crate::test_server::{Reply, TestServer, Who, ask, ask_from, signed};

const KEYS: &str = "/api/v1/orgs/acme/api-keys";
const MINT: &str = "/api/v1/orgs/acme/embed/tokens";
const INTROSPECT: &str = "/api/v1/orgs/acme/embed/introspect";
const RANGE: &str = "/api/v1/orgs/acme/query/probe-range";

const ED_PEM: &str = include_str!("../../src/identity/tests/material/ed.public.pem");
const RSA_PEM: &str = include_str!("../../src/identity/tests/material/rsa.public.pem");
const RSA_1024_PEM: &str = include_str!("../../src/identity/tests/material/rsa-1024.public.pem");

/// Public keys from RFC 8037 appendix A.2 and RFC 7515 appendices A.3 and A.2.
const ED_JWK: &str = r#"{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}"#;
const EC_JWK: &str = r#"{"kty":"EC","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}"#;
const RSA_JWK: &str = r#"{"kty":"RSA","n":"ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ","e":"AQAB"}"#;

async fn make(server: &TestServer, cabinet: &Who, embed: Value) -> Reply {
    server.post(KEYS, cabinet, json!({ "name": "x", "scopes": ["embed"], "embed": embed })).await
}

#[tokio::test]
async fn a_public_key_comes_as_pem_or_as_jwk_and_is_shown_as_pem() {
    let server = TestServer::new();
    let cabinet = server.log_in().await;
    let jwk = |text: &str| serde_json::from_str::<Value>(text).expect("JSON");
    for (alg, uploaded) in [
        ("EdDSA", json!(ED_PEM)),
        ("EdDSA", jwk(ED_JWK)),
        ("EdDSA", json!(ED_JWK)),
        ("ES256", jwk(EC_JWK)),
        ("RS256", json!(RSA_PEM)),
        ("RS256", jwk(RSA_JWK)),
    ] {
        let made = make(&server, &cabinet, json!({ "alg": alg, "public_key": uploaded })).await;
        assert_eq!(made.status, 201, "{alg} {uploaded}: {}", made.body);
        let pem = made.value()["embed"]["public_key"].as_str().expect("a text").to_owned();
        assert!(pem.starts_with("-----BEGIN PUBLIC KEY-----\n"), "{pem}");
        server
            .post(MINT, &cabinet, json!({ "api_key_id": made.text("id") }))
            .await
            .is(409, "key_is_asymmetric");
    }
}

#[tokio::test]
async fn fields_that_contradict_each_other_are_refused_by_name() {
    let server = TestServer::new();
    let cabinet = server.log_in().await;
    let jwk = |text: &str, more: Value| {
        let mut jwk = serde_json::from_str::<Value>(text).expect("JSON");
        jwk.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        jwk
    };
    let cases = [
        json!({ "public_key": ED_PEM }),
        json!({ "alg": "HS256", "public_key": jwk(ED_JWK, json!({})) }),
        json!({ "alg": "EdDSA" }),
        json!({ "alg": "EdDSA", "public_key": null }),
        json!({ "alg": "ES256", "public_key": ED_PEM }),
        json!({ "alg": "ES256", "public_key": jwk(ED_JWK, json!({})) }),
        json!({ "alg": "RS256", "public_key": RSA_1024_PEM }),
        json!({ "alg": "EdDSA", "public_key": jwk(ED_JWK, json!({ "d": "AAAA" })) }),
        json!({ "alg": "EdDSA", "public_key": jwk(ED_JWK, json!({ "use": "enc" })) }),
        json!({ "alg": "EdDSA", "public_key": jwk(ED_JWK, json!({ "alg": "ES256" })) }),
        json!({ "alg": "EdDSA", "public_key": jwk(ED_JWK, json!({ "x": "AAAA" })) }),
        json!({ "alg": "ES256", "public_key": jwk(EC_JWK, json!({ "y": jwk(EC_JWK, json!({}))["x"] })) }),
        json!({ "alg": "RS256", "public_key": jwk(RSA_JWK, json!({ "n": "AQAB" })) }),
        json!({ "alg": "RS256", "public_key": jwk(RSA_JWK, json!({ "n": null })) }),
        json!({ "alg": "EdDSA", "public_key": "{" }),
        json!({ "alg": "EdDSA", "public_key": {} }),
    ];
    for embed in cases {
        let refused = make(&server, &cabinet, embed.clone()).await;
        assert_eq!(refused.status, 422, "{embed}: {}", refused.body);
        refused.is(422, "validation_failed");
        assert_eq!(refused.value()["errors"][0]["field"], "embed.public_key", "{embed}");
    }
    let reader =
        json!({ "name": "x", "scopes": ["read"], "embed": { "alg": "EdDSA", "public_key": ED_PEM } });
    let refused = server.post(KEYS, &cabinet, reader).await;
    refused.is(422, "validation_failed");
    assert_eq!(refused.value()["errors"][0]["field"], "scopes");
    let slow_reader = json!({ "name": "x", "scopes": ["read"], "embed": { "rate_limit_rps": 5 } });
    assert_eq!(
        server.post(KEYS, &cabinet, slow_reader).await.status,
        201,
        "the rate applies to reading as well"
    );
    // A restriction that does not apply to the key's scopes is refused.
    let restricted = |scopes: Value| json!({ "name": "x", "scopes": scopes, "embed": { "policy": { "match": ["tenant=\"a\""] } } });
    let labelled =
        |scopes: Value| json!({ "name": "x", "scopes": scopes, "ingest": { "labels": { "a": "b" } } });
    let read_at =
        |rps: u32, scopes: Value| json!({ "name": "x", "scopes": scopes, "read": { "rate_limit_rps": rps } });
    for (body, field) in [
        (read_at(50, json!(["ingest"])), "read.rate_limit_rps"),
        (read_at(50, json!(["ingest", "embed"])), "read.rate_limit_rps"),
        (restricted(json!(["read"])), "embed.policy"),
        (restricted(json!(["ingest", "read"])), "embed.policy"),
        (labelled(json!(["read", "embed"])), "ingest.labels"),
    ] {
        let refused = server.post(KEYS, &cabinet, body).await;
        refused.is(422, "validation_failed");
        assert_eq!(refused.value()["errors"][0]["field"], field);
    }
    assert_eq!(server.post(KEYS, &cabinet, restricted(json!(["read", "embed"]))).await.status, 201);
    assert_eq!(server.post(KEYS, &cabinet, labelled(json!(["ingest"]))).await.status, 201);
    assert_eq!(server.post(KEYS, &cabinet, read_at(50, json!(["read", "ingest"]))).await.status, 201);
    // Default values are accepted, because responses contain them.
    assert_eq!(server.post(KEYS, &cabinet, read_at(1_000, json!(["ingest"]))).await.status, 201);
    let whole = json!({ "name": "x", "scopes": ["read"], "embed": { "policy": { "match": [], "exprs": null } },
        "ingest": { "labels": {} } });
    assert_eq!(server.post(KEYS, &cabinet, whole).await.status, 201);
    let (reader, _) = server.key(&cabinet, json!({ "scopes": ["read"] })).await;
    let path = format!("{KEYS}/{reader}");
    let policy = json!({ "embed": { "policy": { "metrics": ["up"] } } });
    server.json("PATCH", &path, &cabinet, policy.clone()).await.is(422, "validation_failed");
    let both = json!({ "scopes": ["read", "embed"], "embed": policy["embed"] });
    assert_eq!(server.json("PATCH", &path, &cabinet, both).await.status, 200);
    // A key that loses the scope `read` keeps its read rate. Only the same value is accepted.
    let rate = |rps: u32| json!({ "read": { "rate_limit_rps": rps } });
    assert_eq!(server.json("PATCH", &path, &cabinet, rate(50)).await.status, 200);
    assert_eq!(server.json("PATCH", &path, &cabinet, json!({ "scopes": ["embed"] })).await.status, 200);
    assert_eq!(server.json("PATCH", &path, &cabinet, rate(50)).await.status, 200);
    server.json("PATCH", &path, &cabinet, rate(60)).await.is(422, "validation_failed");
    let without = json!({ "scopes": ["ingest"], "read": { "rate_limit_rps": 60 } });
    server.json("PATCH", &path, &cabinet, without).await.is(422, "validation_failed");
    let with = json!({ "scopes": ["read"], "read": { "rate_limit_rps": 60 } });
    assert_eq!(server.json("PATCH", &path, &cabinet, with).await.status, 200);
}

#[tokio::test]
async fn every_setting_but_the_algorithm_can_be_changed() {
    let server = TestServer::new();
    let cabinet = server.log_in().await;
    let made = make(&server, &cabinet, json!({ "alg": "EdDSA", "public_key": ED_PEM })).await;
    let path = format!("{KEYS}/{}", made.text("id"));
    let policy = json!({ "endpoints": ["range"], "metrics": ["http_*"], "match": ["a=\"b\""],
        "exprs": ["sum by(x)(up)"], "max_range_s": 1, "max_lookback_s": 2, "min_step_s": 3 });
    let change = json!({ "name": "y", "scopes": ["embed", "ingest", "read"], "expires_at": "2030-01-01T00:00:00Z",
        "disabled": true,
        "embed": { "public_key": serde_json::from_str::<Value>(ED_JWK).expect("JSON"), "rate_limit_rps": 9,
            "max_token_ttl_s": 60, "origins": ["https://a.example"], "policy": policy },
        "ingest": { "rate_limit_rps": 7, "samples_per_s": 8, "labels": { "source": "laptop" } },
        "read": { "rate_limit_rps": 11 } });
    let changed = server.json("PATCH", &path, &cabinet, change).await;
    assert_eq!(changed.status, 200, "{}", changed.body);
    let key = server.get(&path, &cabinet).await.value();
    assert_eq!(key["scopes"], json!(["ingest", "read", "embed"]));
    assert_eq!((&key["name"], &key["disabled"]), (&json!("y"), &json!(true)));
    assert_ne!(key["embed"]["public_key"], made.value()["embed"]["public_key"]);
    let mut printed = policy.clone();
    printed["exprs"] = json!(["sum by (x) (up)"]);
    printed["dashboard"] = Value::Null;
    printed["alerts"] = Value::Null;
    assert_eq!(key["embed"]["policy"], printed, "expressions are kept as the grammar prints them");
    assert_eq!(key["embed"]["max_token_ttl_s"], 60);
    assert_eq!(
        key["ingest"],
        json!({ "rate_limit_rps": 7, "samples_per_s": 8, "labels": { "source": "laptop" } })
    );
    assert_eq!(key["read"], json!({ "rate_limit_rps": 11 }));
    for field in ["id", "created_by", "created_at", "hint", "last_used_at"] {
        assert_eq!(key[field], made.value()[field], "{field}");
    }
    for (wrong, named) in [
        (json!({ "embed": { "alg": "HS256" } }), "embed.alg"),
        (json!({ "embed": { "public_key": null } }), "embed.public_key"),
        (json!({ "scopes": ["read"] }), "scopes"),
        (json!({ "embed": { "policy": { "exprs": ["up{"] } } }), "embed.policy"),
        (json!({ "expires_at": "2020-01-01T00:00:00Z" }), "expires_at"),
    ] {
        let refused = server.json("PATCH", &path, &cabinet, wrong.clone()).await;
        assert_eq!(refused.status, 422, "{wrong}: {}", refused.body);
        assert_eq!(refused.value()["errors"][0]["field"], named, "{wrong}");
    }
    assert_eq!(server.get(&path, &cabinet).await.value(), key, "a refused change has no effect");
}

#[tokio::test]
async fn the_last_use_is_shown() {
    let server = TestServer::new();
    let cabinet = server.log_in().await;
    let (id, secret) = server.key(&cabinet, json!({ "scopes": ["read", "embed"] })).await;
    let token = server.token(&cabinet, &id, json!({})).await;
    let path = format!("{KEYS}/{id}");
    let mut shown = Vec::new();
    for who in [None, Some(Who::Bearer(secret)), Some(token)] {
        server.pass(Duration::from_secs(1));
        if let Some(who) = who {
            server.get("/api/v1/orgs/acme/prometheus/api/v1/probe", &who).await;
        }
        shown.push(server.get(&path, &cabinet).await.value()["last_used_at"].clone());
    }
    let now = server.clock.now();
    assert_eq!(shown, [Value::Null, json!(now.plus_ms(-1_000).to_rfc3339()), json!(now.to_rfc3339())]);
}

#[tokio::test]
async fn keys_are_listed_in_pages() {
    let server = TestServer::new();
    let cabinet = server.log_in().await;
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.push(server.key(&cabinet, json!({ "scopes": ["read"] })).await.0);
        server.pass(Duration::from_millis(20));
    }
    let page = async |query: &str| {
        let value = server.get(&format!("{KEYS}{query}"), &cabinet).await.value();
        let data = value["data"].as_array().expect("a list").clone();
        let ids: Vec<String> =
            data.iter().map(|key| key["id"].as_str().expect("a text").to_owned()).collect();
        (ids, value["next_cursor"].as_str().map(str::to_owned))
    };
    assert_eq!(page("").await, (ids.clone(), None));
    assert_eq!(page("?limit=5").await, (ids.clone(), None), "no page follows");
    let (first, next) = page("?limit=2").await;
    assert_eq!(first, ids[..2]);
    // The next page starts after the last key of the previous page, even if that key was deleted.
    assert_eq!(server.delete(&format!("{KEYS}/{}", ids[1]), &cabinet).await.status, 204);
    let (second, next) = page(&format!("?limit=2&cursor={}", next.expect("more"))).await;
    assert_eq!(second, ids[2..4]);
    let (third, next) = page(&format!("?limit=2&cursor={}", next.expect("more"))).await;
    assert_eq!((&third[..], next), (&ids[4..], None));
    for wrong in ["?limit=0", "?limit=1001", "?cursor=x", "?cursor=QUFB", "?limit=1&limit=2"] {
        let refused = server.get(&format!("{KEYS}{wrong}"), &cabinet).await;
        assert_eq!(refused.status, 400, "{wrong}: {}", refused.body);
    }
}

#[tokio::test]
async fn a_token_is_minted_within_the_keys_policy() {
    let server = TestServer::new();
    let cabinet = server.log_in().await;
    let policy = json!({ "endpoints": ["range", "expr"], "metrics": ["http_*", "up"], "match": ["env=\"prod\""],
        "exprs": ["sum(rate(http_total[5m]))", "up"], "max_range_s": 3_600, "max_lookback_s": 86_400, "min_step_s": 15 });
    let embed = json!({ "policy": policy, "origins": ["https://a.example"], "max_token_ttl_s": 600 });
    let (key, _) = server.key(&cabinet, json!({ "scopes": ["embed"], "embed": embed })).await;
    let beyond = [
        json!({ "endpoints": ["instant"] }),
        json!({ "metrics": ["*"] }),
        json!({ "metrics": ["http_total", "upper"] }),
        json!({ "exprs": ["sum(rate(http_total[6m]))"] }),
        json!({ "exprs": ["up{"] }),
        json!({ "max_range_s": 3_601 }),
        json!({ "max_lookback_s": 86_401 }),
        json!({ "min_step_s": 14 }),
        json!({ "origins": ["https://b.example"] }),
        json!({ "origins": ["*"] }),
    ];
    for ms in beyond {
        let refused = server.post(MINT, &cabinet, json!({ "api_key_id": key, "ms": ms })).await;
        assert_eq!(refused.status, 422, "{ms}: {}", refused.body);
        let field = ms.as_object().and_then(|ms| ms.keys().next()).expect("one").clone();
        let error = &refused.value()["errors"][0];
        assert!(error["field"] == "ms" && error["message"].to_string().contains(&field), "{ms}: {error}");
    }
    server.pass(Duration::from_secs(1));
    let within = [
        json!({ "metrics": ["http_*_total", "http_x", "up"] }),
        json!({ "exprs": ["sum( rate(http_total[300s]) )"] }),
        json!({ "endpoints": ["range"], "max_range_s": 60, "max_lookback_s": 60, "min_step_s": 60 }),
        json!({ "match": ["tenant=\"t42\""], "origins": ["https://a.example"] }),
        json!({}),
    ];
    for ms in within {
        let minted = server.post(MINT, &cabinet, json!({ "api_key_id": key, "ms": ms })).await;
        assert_eq!(minted.status, 201, "{ms}: {}", minted.body);
    }
    server
        .post(MINT, &cabinet, json!({ "api_key_id": key, "ttl_s": 601 }))
        .await
        .is(422, "validation_failed");
}

/// Two administrators who change one key at the same time do not overwrite each other's fields.
#[tokio::test(flavor = "multi_thread")]
async fn concurrent_changes_of_different_fields_are_all_kept() {
    let server = TestServer::new();
    let cabinet = server.log_in().await;
    let (key, _) = server.key(&cabinet, json!({ "scopes": ["embed", "ingest"] })).await;
    let path = format!("{KEYS}/{key}");
    for round in 1..=20 {
        let name = format!("m{round}");
        let changes = [
            json!({ "embed": { "policy": { "metrics": [name] } } }),
            json!({ "embed": { "rate_limit_rps": round } }),
            json!({ "embed": { "max_token_ttl_s": 100 + round }, "ingest": { "samples_per_s": round } }),
            json!({ "ingest": { "labels": { "round": name } } }),
        ];
        let [one, two, three, four] = changes.map(|change| server.json("PATCH", &path, &cabinet, change));
        let replies = tokio::join!(one, two, three, four);
        for reply in [replies.0, replies.1, replies.2, replies.3] {
            assert_eq!(reply.status, 200, "{}", reply.body);
        }
        let key = server.get(&path, &cabinet).await.value();
        let (embed, ingest) = (&key["embed"], &key["ingest"]);
        assert_eq!((&embed["policy"]["metrics"], &embed["rate_limit_rps"]), (&json!([name]), &json!(round)));
        assert_eq!(
            (&embed["max_token_ttl_s"], &ingest["samples_per_s"]),
            (&json!(100 + round), &json!(round))
        );
        assert_eq!(ingest["labels"], json!({ "round": name }));
        server.pass(Duration::from_secs(1));
    }
}

/// docs/specification.md C4: the reason why a token fails, and its effective restrictions.
#[tokio::test]
async fn introspection_gives_a_reason_and_a_detail() {
    let server = TestServer::new();
    let cabinet = server.log_in().await;
    let (key, secret) = server
        .key(&cabinet, json!({ "scopes": ["embed"], "embed": { "origins": ["https://a.example"] } }))
        .await;
    let path = format!("{KEYS}/{key}");
    let now = server.clock.now().as_s();
    let sign = |claims: Value| {
        let mut all = json!({ "aud": "ms-embed", "org": "acme", "iat": now, "exp": now + 600 });
        all.as_object_mut().expect("an object").extend(claims.as_object().expect("an object").clone());
        signed(&key, &secret, &all)
    };
    let said = async |token: String, more: Value| {
        let mut body = json!({ "token": token });
        body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        let reply = server.post(INTROSPECT, &cabinet, body).await;
        assert_eq!(reply.status, 200, "{}", reply.body);
        server.pass(Duration::from_millis(20));
        reply.value()
    };
    let cases = [
        (sign(json!({ "aud": "other" })), "aud", "ms-embed"),
        (sign(json!({ "org": "other" })), "org", "slug"),
        (sign(json!({ "iat": now + 90, "exp": now + 100 })), "iat", "clocks"),
        (sign(json!({ "exp": now + 3_601 })), "ttl", "max_token_ttl_s"),
        (sign(json!({ "iat": now - 200, "exp": now - 100 })), "exp", "new token"),
        (sign(json!({ "nbf": now + 90 })), "nbf", "yet"),
        (sign(json!({ "iss": "me" })), "iss", "API key's id"),
        (sign(json!({ "ms": { "matchs": [] } })), "claims", "unknown field `matchs`"),
        (sign(json!({ "ms": { "max_range_s": "x" } })), "claims", "in ms: invalid type"),
        (sign(json!({ "exp": "x" })), "claims", "numbers of seconds"),
        (sign(json!({ "match": [] })), "policy", "instead of a field of ms"),
        (signed(&key, "another", &json!({})), "signature", "not signed with"),
        (signed("ak_aaaaaaaaaaaaaaaa", &secret, &json!({})), "key", "no API key of this organisation"),
        (signed("x", &secret, &json!({})), "kid", "kid"),
        ("a.b".to_owned(), "form", "three"),
        ("x".repeat(5_000), "size", "4,096"),
    ];
    for (token, reason, sentence) in cases {
        let seen = said(token.clone(), json!({})).await;
        assert_eq!((&seen["valid"], &seen["reason"]), (&json!(false), &json!(reason)), "{seen}");
        assert!(seen["detail"].as_str().expect("a sentence").contains(sentence), "{reason}: {seen}");
        assert_eq!(seen["effective"], Value::Null);
    }
    let good = sign(json!({ "sub": "v", "ms": { "max_range_s": 60, "metrics": ["http_*"] } }));
    let seen = said(good.clone(), json!({})).await;
    assert_eq!(
        (&seen["valid"], &seen["reason"], &seen["detail"]),
        (&json!(true), &Value::Null, &Value::Null)
    );
    let effective = &seen["effective"];
    assert_eq!((&effective["max_range_s"], &effective["sub"]), (&json!(60), &json!("v")));
    assert_eq!((&effective["metrics"], &effective["rate_limit_rps"]), (&json!([["http_*"]]), &json!(100)));
    assert_eq!(effective["origins"], json!([["https://a.example"]]));
    let seen = said(good.clone(), json!({ "origin": "https://a.example" })).await;
    assert_eq!(seen["valid"], true);
    let seen = said(good.clone(), json!({ "origin": "https://b.example" })).await;
    assert_eq!((&seen["valid"], &seen["reason"]), (&json!(false), &json!("origin")));
    assert_eq!(
        server.get(&path, &cabinet).await.value()["last_used_at"],
        Value::Null,
        "introspection does not count as use"
    );

    assert_eq!(server.json("PATCH", &path, &cabinet, json!({ "disabled": true })).await.status, 200);
    assert_eq!(said(good.clone(), json!({})).await["detail"], "the API key is disabled");
    let expires = server.clock.now().plus_ms(10).to_rfc3339();
    let soon = json!({ "disabled": false, "expires_at": expires });
    assert_eq!(server.json("PATCH", &path, &cabinet, soon).await.status, 200);
    server.pass(Duration::from_secs(1));
    assert_eq!(said(good.clone(), json!({})).await["detail"], "the API key has expired");
    let forever = json!({ "expires_at": null });
    assert_eq!(server.json("PATCH", &path, &cabinet, forever).await.status, 200);
    assert_eq!(server.post(&format!("{path}/revoke-tokens"), &cabinet, json!({})).await.status, 204);
    assert_eq!(said(good, json!({})).await["reason"], "revoked");
}

/// Token timestamps are whole seconds. No token survives a second revocation within the same
/// second, or one by a clock that was ahead, and no token outlives the requested lifetime.
#[tokio::test]
async fn every_revocation_ends_the_tokens_minted_since_the_last_one() {
    let server = TestServer::new();
    let cabinet = server.log_in().await;
    let (key, _) = server.key(&cabinet, json!({ "scopes": ["embed"] })).await;
    let revoke = format!("{KEYS}/{key}/revoke-tokens");
    let mint = async |ttl_s: u64| {
        let body = json!({ "api_key_id": key, "ttl_s": ttl_s });
        let minted = server.post(MINT, &cabinet, body).await;
        let latest = server.clock.now().plus(Duration::from_secs(ttl_s)).to_rfc3339();
        assert!(minted.text("expires_at") <= latest, "{} > {latest}", minted.body);
        let token = Who::Bearer(minted.text("token"));
        assert_eq!(server.get(RANGE, &token).await.status, 200);
        token
    };
    let mut tokens = vec![mint(600).await];
    for _ in 0..3 {
        assert_eq!(server.post(&revoke, &cabinet, json!({})).await.status, 204);
        server.get(RANGE, tokens.last().expect("minted")).await.is(401, "token_invalid");
        tokens.push(mint(1).await);
        tokens.push(mint(600).await);
    }
    let acme = server.identity.org_by_slug("acme").expect("read").expect("there").id;
    let ahead = server.clock.now().plus(Duration::from_secs(3_600));
    server.identity.revoke_tokens(acme, None, key.parse().expect("an id"), ahead).expect("revoked");
    server.get(RANGE, tokens.last().expect("minted")).await.is(401, "token_invalid");
    let short = mint(600).await;
    server.pass(Duration::from_secs(631));
    server.get(RANGE, &short).await.is(401, "token_expired");
    tokens.push(mint(600).await);
    assert_eq!(server.post(&revoke, &cabinet, json!({})).await.status, 204);
    for token in &tokens {
        assert_ne!(server.get(RANGE, token).await.status, 200);
    }
    mint(600).await;
}

/// docs/specification.md F31: introspection reveals nothing about keys of other organisations.
#[tokio::test]
async fn introspection_reveals_nothing_about_tokens_of_other_organisations() {
    let server = TestServer::new();
    let cabinet = server.log_in().await;
    assert_eq!(server.post("/api/v1/orgs", &cabinet, json!({ "slug": "other" })).await.status, 201);
    let (key, secret) = server.key(&cabinet, json!({ "scopes": ["embed"] })).await;
    let now = server.clock.now().as_s();
    let good =
        signed(&key, &secret, &json!({ "aud": "ms-embed", "org": "acme", "iat": now, "exp": now + 60 }));
    let forged = signed(&key, "guess", &json!({}));
    for token in [good, forged] {
        let seen = server
            .post("/api/v1/orgs/other/embed/introspect", &cabinet, json!({ "token": token }))
            .await
            .value();
        assert_eq!((&seen["reason"], &seen["effective"]), (&json!("key"), &Value::Null));
        assert_eq!(seen["detail"], "the header's kid names no API key of this organisation");
    }
}

/// docs/specification.md C4, similar to F40: a sender that knows a key's id cannot displace the
/// organisation's audit log with invalid tokens.
#[tokio::test]
async fn a_flood_of_invalid_tokens_is_one_audit_entry_and_minting_is_recorded() {
    let server = TestServer::new();
    let cabinet = server.log_in().await;
    let (key, secret) = server.key(&cabinet, json!({ "scopes": ["embed"] })).await;
    for n in 0..100 {
        let forged = Who::Bearer(signed(&key, &format!("guess {n}"), &json!({})));
        server.get(RANGE, &forged).await.is(401, "token_invalid");
    }
    for who in [&cabinet, &cabinet, &Who::Bearer(secret.clone()), &Who::Bearer(secret)] {
        assert_eq!(server.post(MINT, who, json!({ "api_key_id": key })).await.status, 201);
    }
    server.identity.tick(server.clock.now()).expect("written");
    let org = server.identity.orgs().expect("read")[0].id;
    let log = server.identity.audit(Some(org), 1_000).expect("read");
    let of = |action: &str| log.iter().filter(|entry| entry.action == action).collect::<Vec<_>>();
    let rejected = of("token.rejected");
    assert_eq!((rejected.len(), rejected[0].detail.as_str()), (1, "signature"));
    let minted = of("token.minted");
    assert_eq!(
        minted.iter().filter(|entry| entry.actor.is_some()).count(),
        2,
        "each that a person asked for"
    );
    assert_eq!(minted.iter().filter(|entry| entry.actor.is_none()).count(), 1, "a key's own once a minute");
    assert!(minted.iter().all(|entry| entry.target == key));
    assert!(minted.iter().all(|entry| entry.ip.is_some() && entry.request_id.is_some()), "{minted:?}");
    let told = server.get("/api/v1/orgs/acme/audit?action=token.minted", &cabinet).await.value();
    let rows = told["data"].as_array().expect("rows");
    let by_key = rows.iter().filter(|row| row["actor"]["type"] == "api_key").collect::<Vec<_>>();
    assert_eq!((by_key.len(), &by_key[0]["actor"]["id"]), (1, &json!(key)), "{told}");
    let change = json!({ "name": "y", "disabled": false, "embed": { "rate_limit_rps": 100, "policy": { "metrics": ["up"] } } });
    assert_eq!(server.json("PATCH", &format!("{KEYS}/{key}"), &cabinet, change).await.status, 200);
    let told = server.get("/api/v1/orgs/acme/audit?action=key.updated", &cabinet).await.value();
    assert_eq!(told["data"][0]["meta"]["detail"], "name embed.policy", "what was changed, by name");
}

/// Failed logins are recorded once per network and minute, so a flood of them displaces no other
/// entry.
#[tokio::test]
async fn a_flood_of_throttled_logins_displaces_no_entry_of_a_minted_token() {
    let server = TestServer::new();
    let cabinet = server.log_in().await;
    let (key, _) = server.key(&cabinet, json!({ "scopes": ["embed"] })).await;
    let login = async |n: u32| {
        let peer = format!("[2001:db8:{:x}:{:x}::1]:50000", n / 4 / 1_000, n / 4 % 1_000);
        let body = json!({ "email": "ada@example.com", "password": "a wrong password" }).to_string();
        let request = ask_from(&peer, "POST", "/api/v1/auth/login", &Who::Nobody);
        let request = request.header("content-type", "application/json").body(Body::from(body));
        server.send(request.expect("a request")).await.status
    };
    let mut throttled = 0;
    for n in 0..1_200 {
        throttled += u32::from(login(n).await == 429);
        if n % 80 == 0 {
            assert_eq!(server.post(MINT, &cabinet, json!({ "api_key_id": key })).await.status, 201);
        }
    }
    assert!(throttled > 1_000, "{throttled}");
    server.identity.tick(server.clock.now()).expect("written");
    let org = server.identity.orgs().expect("read")[0].id;
    let of = |org, action: &str| {
        let log = server.identity.audit(org, 10_000).expect("read");
        log.into_iter().filter(|entry| entry.action == action).collect::<Vec<_>>()
    };
    assert_eq!(of(Some(org), "token.minted").len(), 15);
    let failures = of(None, "login.throttled").len() + of(None, "login.fail").len();
    assert!((1..=64).contains(&failures), "{failures} rows within a minute");
    server.identity.close(server.clock.now()).expect("written");
    let overflow = of(None, "audit.overflow");
    assert!(overflow.len() == 1 && overflow[0].detail.ends_with("entries not listed"), "{overflow:?}");
}

#[tokio::test]
async fn key_and_token_endpoints_require_a_credential() {
    let server = TestServer::new();
    let cabinet = server.log_in().await;
    let (key, _) = server.key(&cabinet, json!({ "scopes": ["embed"] })).await;
    for (method, path) in [
        ("GET", KEYS.to_owned()),
        ("POST", KEYS.to_owned()),
        ("GET", format!("{KEYS}/{key}")),
        ("PATCH", format!("{KEYS}/{key}")),
        ("DELETE", format!("{KEYS}/{key}")),
        ("POST", format!("{KEYS}/{key}/rotate")),
        ("POST", format!("{KEYS}/{key}/revoke-tokens")),
        ("POST", INTROSPECT.to_owned()),
        ("POST", MINT.to_owned()),
    ] {
        let request = ask(method, &path, &Who::Nobody).body(Body::empty()).expect("a request");
        let reply = server.send(request).await;
        assert_eq!(reply.status, 401, "{method} {path}: {}", reply.body);
    }
}

/// JSON parsers disagree on duplicate members. Here the second value would lift the restriction of
/// the first.
#[tokio::test]
async fn duplicate_members_of_a_body_are_refused() {
    let server = TestServer::new();
    let cabinet = server.log_in().await;
    let (key, _) = server.key(&cabinet, json!({ "scopes": ["embed", "ingest"] })).await;
    let one = format!("{KEYS}/{key}");
    for (method, path, body, field) in [
        (
            "PATCH",
            one.as_str(),
            r#"{"embed":{"policy":{"match":["t=\"a\""],"match":[]}}}"#.to_owned(),
            "match",
        ),
        ("PATCH", &one, r#"{"ingest":{"labels":{"a":"1","\u0061":"2"}}}"#.to_owned(), "a"),
        (
            "PATCH",
            "/api/v1/orgs/acme",
            r#"{"settings":{"max_series":1,"max_series":null}}"#.to_owned(),
            "max_series",
        ),
        ("PATCH", "/api/v1/auth/me", r#"{"name":"a","name":"b"}"#.to_owned(), "name"),
        (
            "POST",
            "/api/v1/orgs/acme/embed/tokens",
            format!(r#"{{"api_key_id":"{key}","ms":{{"match":["t=\"a\""],"match":[]}}}}"#),
            "match",
        ),
    ] {
        let request = ask(method, path, &cabinet).header("content-type", "application/json");
        let refused = server.send(request.body(Body::from(body)).expect("a request")).await;
        refused.is(422, "validation_failed");
        let error = &refused.value()["errors"][0];
        assert_eq!((&error["field"], &error["code"]), (&json!(field), &json!("duplicate")), "{path}");
    }
    assert_eq!(
        server.get(&one, &cabinet).await.value()["embed"]["policy"]["match"],
        json!([]),
        "nothing was changed"
    );
}

/// The list of embeds has tests of its own in `tests/data_api/embeds.rs`; these are the responses
/// of its routes.
#[tokio::test]
async fn embeds_are_listed_and_an_origin_or_a_dashboard_is_revoked() {
    let server = TestServer::new();
    let cabinet = server.log_in().await;
    let (key, _) = server.key(&cabinet, json!({ "scopes": ["embed"] })).await;
    let token = server.token(&cabinet, &key, json!({ "ms": { "metrics": ["up"] } })).await;
    assert_eq!(server.get(RANGE, &token).await.status, 200);
    let listed = server.get("/api/v1/orgs/acme/embeds", &cabinet).await;
    assert_eq!(listed.value()["data"][0]["api_key"]["id"], json!(key), "{}", listed.body);
    let block = format!("{KEYS}/{key}/block-origin");
    let origin = json!({ "origin": "https://a.example" });
    let blocked = server.post(&block, &cabinet, origin.clone()).await;
    assert_eq!(blocked.value()["embed"]["blocked_origins"], json!(["https://a.example"]));
    server.post(&block, &cabinet, json!({ "origin": "a.example" })).await.is(422, "validation_failed");
    let unknown = format!("{KEYS}/ak_aaaaaaaaaaaaaaaa/block-origin");
    server.post(&unknown, &cabinet, origin).await.is(404, "not_found");
    let board = json!({ "dashboard": { "uid": "node", "title": "Node", "panels": [] } });
    assert_eq!(server.post("/api/v1/orgs/acme/dashboards", &cabinet, board).await.status, 201);
    let revoke = |uid: &str| format!("/api/v1/orgs/acme/dashboards/{uid}/revoke-embeds");
    assert_eq!(server.post(&revoke("node"), &cabinet, json!({})).await.status, 204);
    server.post(&revoke("none"), &cabinet, json!({})).await.is(404, "not_found");
}
