//! A scripted sign-in provider in this process: an OpenID issuer, and GitHub's API.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use data_encoding::{BASE64, BASE64URL_NOPAD};
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

pub(super) const CLIENT: &str = "ms";
pub(super) const SECRET: &str = "ms secret & more";
pub(super) const ACCESS_TOKEN: &str = "an-access-token";

/// The responses of the provider, and the requests that it got.
pub(super) struct Script {
    /// Merged over the valid claims; `null` removes one.
    pub(super) claims: Value,
    /// Merged over the valid discovery document.
    pub(super) discovery: Value,
    /// The signing key.
    pub(super) algorithm: Algorithm,
    pub(super) kid: Option<String>,
    /// Sent instead of a signed token.
    pub(super) id_token: Option<String>,
    /// Key ids of the published key set.
    pub(super) published: Vec<String>,
    /// Sent instead of the valid response: path, status, body.
    pub(super) instead: Vec<(&'static str, u16, Vec<u8>)>,
    /// `Location` of a 302 of `instead`.
    pub(super) location: String,
    /// Accepts a code more than once, as no provider should.
    pub(super) codes_last: bool,
    /// Paths that are never answered.
    pub(super) silent: Option<&'static str>,
    pub(super) userinfo: Value,
    pub(super) github_user: Value,
    pub(super) github_emails: Value,
    pub(super) github_orgs: Vec<&'static str>,
    pub(super) asked: Vec<String>,
    now_s: i64,
    codes: HashMap<String, Issued>,
}

struct Issued {
    nonce: String,
    challenge: String,
    redirect_uri: String,
    used: bool,
}

#[derive(Clone)]
pub(super) struct Idp {
    pub(super) issuer: String,
    pub(super) script: Arc<Mutex<Script>>,
}

fn material(name: &str) -> Vec<u8> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/identity/tests/material");
    std::fs::read(format!("{path}/{name}")).expect("test material")
}

fn signer(algorithm: Algorithm) -> EncodingKey {
    match algorithm {
        Algorithm::ES256 => EncodingKey::from_ec_pem(&material("ec.private.pem")),
        Algorithm::EdDSA => EncodingKey::from_ed_pem(&material("ed.private.pem")),
        Algorithm::HS256 => Ok(EncodingKey::from_secret(SECRET.as_bytes())),
        _ => EncodingKey::from_rsa_pem(&material("rsa.private.pem")),
    }
    .expect("a key")
}

/// Merges the fields of `over` into `base`; `null` removes one.
fn merge(base: &mut Value, over: &Value) {
    let base = base.as_object_mut().expect("an object");
    for (name, value) in over.as_object().expect("an object") {
        match value {
            Value::Null => drop(base.remove(name)),
            value => drop(base.insert(name.clone(), value.clone())),
        }
    }
}

impl Idp {
    /// `now_s` is the time of the test server's clock.
    pub(super) async fn start(now_s: i64) -> Idp {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a loopback port");
        let issuer = format!("http://{}", listener.local_addr().expect("bound"));
        let script = Script {
            claims: json!({}),
            discovery: json!({}),
            algorithm: Algorithm::RS256,
            kid: Some("one".into()),
            id_token: None,
            published: vec!["one".into()],
            instead: Vec::new(),
            location: String::new(),
            codes_last: false,
            silent: None,
            userinfo: json!({}),
            github_user: json!({ "id": 7, "login": "ada", "name": "Ada L" }),
            github_emails: json!([]),
            github_orgs: Vec::new(),
            asked: Vec::new(),
            now_s,
            codes: HashMap::new(),
        };
        let idp = Idp { issuer, script: Arc::new(Mutex::new(script)) };
        let router = Router::new().fallback(answer).with_state(idp.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        idp
    }

    pub(super) fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().expect("unpoisoned")
    }

    /// Returns the number of requests to a path.
    pub(super) fn asked(&self, path: &str) -> usize {
        self.script().asked.iter().filter(|asked| *asked == path).count()
    }

    /// The user consents. Returns the code that the browser carries to the callback.
    pub(super) fn agree(&self, authorize_url: &str) -> String {
        let query = authorize_url.split_once('?').expect("a query").1;
        let sent: HashMap<String, String> = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
        assert_eq!(sent["client_id"], CLIENT);
        assert_eq!(sent["code_challenge_method"], "S256");
        assert_eq!(sent["state"].len(), 43);
        let mut script = self.script();
        let code = format!("code-{}", script.codes.len());
        let issued = Issued {
            nonce: sent.get("nonce").cloned().unwrap_or_default(),
            challenge: sent["code_challenge"].clone(),
            redirect_uri: sent["redirect_uri"].clone(),
            used: false,
        };
        script.codes.insert(code.clone(), issued);
        code
    }
}

impl Script {
    fn keys(&self) -> Value {
        let all = [Algorithm::RS256, Algorithm::ES256, Algorithm::EdDSA];
        let mut keys = Vec::new();
        for kid in &self.published {
            for algorithm in all {
                let mut key = Jwk::from_encoding_key(&signer(algorithm), algorithm).expect("a key");
                key.common.key_id = Some(kid.clone());
                keys.push(serde_json::to_value(key).expect("JSON"));
            }
        }
        // Keys of an unknown type must not make the set invalid.
        keys.push(json!({ "kty": "QC", "kid": "one", "alg": "QC1", "use": "sig" }));
        json!({ "keys": keys })
    }

    fn redeem(&mut self, issuer: &str, form: &HashMap<String, String>) -> Result<String, &'static str> {
        let issued = self.codes.get_mut(&form["code"]).ok_or("invalid_grant")?;
        let challenge = BASE64URL_NOPAD.encode(&Sha256::digest(form["code_verifier"].as_bytes()));
        let used = std::mem::replace(&mut issued.used, true);
        if (used && !self.codes_last)
            || challenge != issued.challenge
            || form["redirect_uri"] != issued.redirect_uri
        {
            return Err("invalid_grant");
        }
        if let Some(token) = &self.id_token {
            return Ok(token.clone());
        }
        let mut claims = json!({
            "iss": issuer, "sub": "alice", "aud": CLIENT, "exp": self.now_s + 60, "iat": self.now_s, "nonce": issued.nonce,
            "email": "alice@example.com", "email_verified": true, "name": "Alice",
        });
        merge(&mut claims, &self.claims);
        let header = Header { kid: self.kid.clone(), ..Header::new(self.algorithm) };
        Ok(jsonwebtoken::encode(&header, &claims, &signer(self.algorithm)).expect("signed"))
    }
}

fn json_answer(status: u16, body: &Value) -> Response {
    let status = StatusCode::from_u16(status).expect("a status");
    (status, [(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response()
}

async fn answer(
    State(idp): State<Idp>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let silent = {
        let mut script = idp.script();
        script.asked.push(uri.path().to_owned());
        script.silent == Some(uri.path()) || (script.silent.is_some() && script.silent == Some("*"))
    };
    if silent {
        std::future::pending::<()>().await;
    }
    let mut script = idp.script();
    if let Some((_, status, body)) = script.instead.iter().find(|(path, ..)| *path == uri.path()) {
        return Response::builder()
            .status(*status)
            .header(header::LOCATION, &script.location)
            .body(Body::from(body.clone()))
            .expect("an answer");
    }
    let form: HashMap<String, String> = form_urlencoded::parse(&body).into_owned().collect();
    let bearer = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
    assert!(!headers.contains_key(header::COOKIE) && headers.contains_key(header::USER_AGENT));
    match (method.as_str(), uri.path()) {
        ("GET", "/.well-known/openid-configuration") => {
            let at = |path: &str| format!("{}{path}", idp.issuer);
            let mut document = json!({
                "issuer": idp.issuer, "authorization_endpoint": at("/auth"), "token_endpoint": at("/token"),
                "jwks_uri": at("/jwks"), "userinfo_endpoint": at("/userinfo"),
            });
            merge(&mut document, &script.discovery);
            json_answer(200, &document)
        }
        ("GET", "/jwks") => json_answer(200, &script.keys()),
        ("POST", "/token") => {
            let pair = form_urlencoded::byte_serialize(SECRET.as_bytes()).collect::<String>();
            let basic = format!("Basic {}", BASE64.encode(format!("{CLIENT}:{pair}").as_bytes()));
            let posted = form.get("client_secret").is_some_and(|secret| secret == SECRET);
            if bearer != basic && !posted {
                return json_answer(401, &json!({ "error": "invalid_client" }));
            }
            match script.redeem(&idp.issuer, &form) {
                Ok(token) => json_answer(
                    200,
                    &json!({ "access_token": ACCESS_TOKEN, "id_token": token, "token_type": "Bearer" }),
                ),
                Err(error) => json_answer(400, &json!({ "error": error })),
            }
        }
        ("GET", "/userinfo") => {
            assert_eq!(bearer, format!("Bearer {ACCESS_TOKEN}"));
            json_answer(200, &script.userinfo)
        }
        ("POST", "/login/oauth/access_token") => match script.redeem(&idp.issuer, &form) {
            Ok(_) => json_answer(200, &json!({ "access_token": ACCESS_TOKEN, "token_type": "bearer" })),
            // GitHub's form.
            Err(_) => json_answer(200, &json!({ "error": "bad_verification_code" })),
        },
        ("GET", "/user") => json_answer(200, &script.github_user),
        ("GET", "/user/emails") => json_answer(200, &script.github_emails),
        ("GET", path) if path.starts_with("/user/memberships/orgs/") => {
            let org = path.rsplit('/').next().unwrap_or_default();
            match script.github_orgs.contains(&org) {
                true => json_answer(200, &json!({ "state": "active" })),
                false => json_answer(404, &json!({})),
            }
        }
        _ => json_answer(404, &json!({})),
    }
}
