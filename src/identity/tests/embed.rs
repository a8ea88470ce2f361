//! Verification of embed tokens (docs/specification.md D7). Most tokens are made by hand, as an
//! attacker would.

use data_encoding::{BASE64, BASE64URL_NOPAD};
use hmac::{Hmac, KeyInit, Mac};
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};
use sha2::Sha256;

use super::keys::{create, embed_key};
use super::*;

const ED: (&str, &str) = (include_str!("material/ed.private.pem"), include_str!("material/ed.public.pem"));
const EC: (&str, &str) = (include_str!("material/ec.private.pem"), include_str!("material/ec.public.pem"));
const RSA: (&str, &str) = (include_str!("material/rsa.private.pem"), include_str!("material/rsa.public.pem"));
const RSA_1024: &str = include_str!("material/rsa-1024.public.pem");
const P384: &str = include_str!("material/ec-p384.public.pem");

/// Signs a JWT of two arbitrary texts with HMAC-SHA-256, without the library.
fn handmade(header: &str, claims: &str, secret: &[u8]) -> String {
    let message = format!(
        "{}.{}",
        BASE64URL_NOPAD.encode(header.as_bytes()),
        BASE64URL_NOPAD.encode(claims.as_bytes())
    );
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("any length");
    mac.update(message.as_bytes());
    format!("{message}.{}", BASE64URL_NOPAD.encode(&mac.finalize().into_bytes()))
}

/// An instance with an embed key, and its secret.
struct EmbedFixture {
    instance: TestInstance,
    key: KeyId,
    secret: String,
}

fn page_with(settings: EmbedSettings) -> EmbedFixture {
    let mut instance = TestInstance::with_owner();
    let created = create(&mut instance, NewApiKey { embed: settings, ..embed_key() });
    EmbedFixture { key: created.key.id, secret: created.secret.expose().to_owned(), instance }
}

fn page() -> EmbedFixture {
    page_with(EmbedSettings::default())
}

impl EmbedFixture {
    fn header(&self) -> Value {
        json!({"alg": "HS256", "typ": "JWT", "kid": self.key.to_string()})
    }

    fn claims(&self) -> Value {
        let now = self.instance.now.as_s();
        json!({"aud": "ms-embed", "org": "acme", "iat": now, "exp": now + 600})
    }

    fn token(&self, changes: &Value) -> String {
        let mut claims = self.claims();
        merge(&mut claims, changes);
        handmade(&self.header().to_string(), &claims.to_string(), self.secret.as_bytes())
    }

    fn ask(&self, token: &str) -> Result<EmbedGrant, TokenRefusal> {
        self.instance.identity().embed(&EmbedRequest { token, slug: "acme", origin: None }, self.instance.now)
    }

    fn reason(&self, token: &str) -> &'static str {
        match self.ask(token) {
            Ok(_) => "accepted",
            Err(refusal) => refusal.reason(),
        }
    }

    fn restricted(&self, ms: &Value) -> Result<EmbedGrant, TokenRefusal> {
        self.ask(&self.token(&json!({"ms": ms})))
    }
}

/// Sets each field of `changes`; a field with the value `"(none)"` is removed.
fn merge(claims: &mut Value, changes: &Value) {
    let (claims, changes) = (claims.as_object_mut().expect("object"), changes.as_object().expect("object"));
    for (name, value) in changes {
        match value.as_str() {
            Some("(none)") => claims.remove(name),
            _ => claims.insert(name.clone(), value.clone()),
        };
    }
}

#[test]
fn a_token_minted_offline_with_the_text_of_the_secret_is_accepted() {
    let page = page();
    let grant = page
        .ask(&page.token(&json!({"sub": "viewer-42", "nbf": page.instance.now.as_s()})))
        .expect("a plain token");
    assert_eq!((grant.key, grant.org, grant.rate_limit_rps), (page.key, page.instance.acme().id, 100));
    assert_eq!(
        (grant.sub.as_deref(), grant.expires_at),
        (Some("viewer-42"), page.instance.now.plus_ms(600_000))
    );
    assert!(grant.scope.is_whole() && !grant.restricts_exprs() && grant.allows(Endpoint::Expr));
}

/// Threat 29: the claims.
#[test]
fn each_wrong_or_missing_claim_is_refused() {
    let page = page();
    let now = page.instance.now.as_s();
    let cases = [
        (json!({}), "accepted"),
        (json!({"aud": ["other", "ms-embed"]}), "accepted"),
        (json!({"aud": "(none)"}), "aud"),
        (json!({"aud": "other"}), "aud"),
        (json!({"aud": 1}), "aud"),
        (json!({"aud": null}), "aud"),
        (json!({"aud": []}), "aud"),
        (json!({"org": "(none)"}), "claims"),
        (json!({"org": 7}), "claims"),
        (json!({"org": "other"}), "org"),
        (json!({"org": "ACME"}), "org"),
        (json!({"exp": "(none)"}), "claims"),
        (json!({"exp": format!("{}", now + 600)}), "claims"),
        (json!({"exp": null}), "claims"),
        (json!({"exp": -1}), "claims"),
        (json!({"exp": u64::MAX}), "claims"),
        (json!({"exp": now as f64 + 600.5}), "accepted"),
        (json!({"exp": now + 3_600}), "accepted"),
        (json!({"exp": now + 3_601}), "ttl"),
        (json!({"exp": now + 10 * 365 * 86_400}), "ttl"),
        (json!({"exp": now}), "ttl"),
        (json!({"iat": now - 700, "exp": now - 29}), "accepted"),
        (json!({"iat": now - 700, "exp": now - 30}), "expired"),
        (json!({"iat": "(none)"}), "claims"),
        (json!({"iat": format!("{now}")}), "claims"),
        (json!({"iat": now + 30}), "accepted"),
        (json!({"iat": now + 31}), "iat"),
        (json!({"nbf": now + 30}), "accepted"),
        (json!({"nbf": now + 31}), "nbf"),
        (json!({"nbf": "99999999999"}), "claims"),
        (json!({"iss": page.key.to_string()}), "accepted"),
        (json!({"iss": "acme"}), "iss"),
        (json!({"iss": 7}), "claims"),
        (json!({"jti": "x", "name": "Ada"}), "accepted"),
    ];
    for (changes, expected) in cases {
        assert_eq!(page.reason(&page.token(&changes)), expected, "{changes}");
    }
}

/// Threat 35: a mistyped restriction.
#[test]
fn a_typo_in_a_restriction_is_refused_and_grants_nothing() {
    let page = page();
    for ms in [
        json!({"matchs": ["tenant=\"a\""]}),
        json!({"match": "tenant=\"a\""}),
        json!({"match": null}),
        json!({"match": ["tenant=\"a\" or tenant=~\".*\""]}),
        json!({"match": ["tenant"]}),
        json!({"match": vec!["a=1"; 9]}),
        json!({"metrics": null}),
        json!({"endpoints": ["everything"]}),
        json!({"max_range_s": -1}),
        json!({"max_lookback_s": "1d"}),
        json!(null),
        json!([]),
        json!([["range"]]),
        json!("x"),
    ] {
        assert!(page.restricted(&ms).is_err(), "{ms}");
    }
    for beside in [
        "endpoints",
        "metrics",
        "match",
        "exprs",
        "max_range_s",
        "max_lookback_s",
        "min_step_s",
        "origins",
        "dashboard",
    ] {
        assert_eq!(page.reason(&page.token(&json!({beside: []}))), "policy", "{beside} beside ms, not in it");
    }
    for spelled in ["MS", "Ms", "mS", "Match", "METRICS"] {
        assert_eq!(page.reason(&page.token(&json!({spelled: {"match": ["a=1"]}}))), "policy", "{spelled}");
    }
    let twice = format!(
        "{{\"aud\":\"ms-embed\",\"org\":\"acme\",\"iat\":{now},\"exp\":{end},\"ms\":{{\"match\":[\"a=1\"]}},\"ms\":{{}}}}",
        now = page.instance.now.as_s(),
        end = page.instance.now.as_s() + 60
    );
    assert_eq!(page.reason(&handmade(&page.header().to_string(), &twice, page.secret.as_bytes())), "claims");
}

/// Threats 27 and 28: the header.
#[test]
fn no_header_selects_another_key_or_algorithm() {
    let page = page();
    let claims = page.claims().to_string();
    let with = |changes: Value| {
        let mut header = page.header();
        merge(&mut header, &changes);
        handmade(&header.to_string(), &claims, page.secret.as_bytes())
    };
    let kid = page.key.to_string();
    let cases = [
        (json!({}), "accepted"),
        (json!({"typ": "(none)"}), "accepted"),
        (json!({"alg": "none"}), "alg"),
        (json!({"alg": "None"}), "alg"),
        (json!({"alg": "HS384"}), "alg"),
        (json!({"alg": "HS512"}), "alg"),
        (json!({"alg": "RS256"}), "alg"),
        (json!({"alg": "(none)"}), "alg"),
        (json!({"kid": "(none)"}), "kid"),
        (json!({"kid": null}), "kid"),
        (json!({"kid": ""}), "kid"),
        (json!({"kid": format!("../{kid}")}), "kid"),
        (json!({"kid": format!("{kid}' OR '1'='1")}), "kid"),
        (json!({"kid": kid.to_uppercase()}), "kid"),
        (json!({"kid": format!("{kid}\u{0}")}), "kid"),
        (json!({"kid": "ak_aaaaaaaaaaaaaaaa"}), "key"),
        (json!({"crit": ["b64"]}), "header"),
        (json!({"crit": null}), "header"),
        (json!({"jku": "http://127.0.0.1:1/"}), "header"),
        (json!({"jwk": {"kty": "oct", "k": "AAAA"}}), "header"),
        (json!({"x5u": "http://127.0.0.1:1/"}), "header"),
        (json!({"x5c": ["AAAA"]}), "header"),
        (json!({"zip": "DEF"}), "header"),
    ];
    for (changes, expected) in cases {
        assert_eq!(page.reason(&with(changes.clone())), expected, "{changes}");
    }
    let unsigned = |alg: &str| {
        let header = json!({"alg": alg, "kid": kid}).to_string();
        format!(
            "{}.{}.",
            BASE64URL_NOPAD.encode(header.as_bytes()),
            BASE64URL_NOPAD.encode(claims.as_bytes())
        )
    };
    for alg in ["none", "HS256"] {
        assert_ne!(page.reason(&unsigned(alg)), "accepted", "no signature, alg {alg}");
    }
    for secret in ["", "msk_", &page.key.to_string(), &page.secret[4..]] {
        assert_eq!(
            page.reason(&handmade(&page.header().to_string(), &claims, secret.as_bytes())),
            "signature"
        );
    }
}

#[test]
fn malformed_tokens_are_refused_before_any_lookup() {
    let page = page();
    let good = page.token(&json!({}));
    let long = page.token(&json!({"pad": "x".repeat(4_096)}));
    let cases = [
        ("", "form"),
        ("..", "form"),
        ("a.b", "form"),
        ("a.b.c.d", "form"),
        ("ä.ä.ä", "form"),
        (&good.replace('.', "..")[..], "form"),
        (&good[1..], "form"),
        (&format!("{good}="), "signature"),
        (&long, "size"),
    ];
    for (token, expected) in cases {
        assert_eq!(page.reason(token), expected, "{token}");
    }
    for at in 0..good.len() {
        assert_ne!(page.reason(&good[..at]), "accepted", "cut at {at}");
    }
}

proptest::proptest! {
    #[test]
    fn arbitrary_tokens_never_panic(header in "\\PC{0,60}", claims in "\\PC{0,60}", signature in "[A-Za-z0-9_-]{0,50}") {
        let encode = |text: &str| BASE64URL_NOPAD.encode(text.as_bytes());
        let _ = embed_token::key_id(&format!("{}.{}.{signature}", encode(&header), encode(&claims)));
        let _ = embed_token::key_id(&header);
    }
}

/// Threat 27: a public key used as a secret.
#[test]
fn uploaded_public_keys_verify_their_own_algorithm_and_nothing_else() {
    let cases = [
        (TokenAlgorithm::EdDsa, Algorithm::EdDSA, ED, EncodingKey::from_ed_pem(ED.0.as_bytes())),
        (TokenAlgorithm::Es256, Algorithm::ES256, EC, EncodingKey::from_ec_pem(EC.0.as_bytes())),
        (TokenAlgorithm::Rs256, Algorithm::RS256, RSA, EncodingKey::from_rsa_pem(RSA.0.as_bytes())),
    ];
    for (alg, wire, (_, public), private) in cases {
        let page =
            page_with(EmbedSettings { alg, public_key: Some(public.into()), ..EmbedSettings::default() });
        let header = Header { kid: Some(page.key.to_string()), ..Header::new(wire) };
        let private = private.expect("our own test key");
        let token = jsonwebtoken::encode(&header, &page.claims(), &private).expect("signed");
        assert_eq!(page.reason(&token), "accepted", "{wire:?}");

        let confused = json!({"alg": "HS256", "kid": page.key.to_string()}).to_string();
        for secret in [public.as_bytes(), public.trim().as_bytes(), page.secret.as_bytes()] {
            assert_eq!(
                page.reason(&handmade(&confused, &page.claims().to_string(), secret)),
                "alg",
                "{wire:?}"
            );
        }
        let mint = MintRequest { key: page.key, ttl_s: 60, sub: None, ms: None };
        let minted = page.instance.identity().mint(page.instance.acme().id, &mint, page.instance.now);
        assert!(matches!(minted, Err(MintError::Asymmetric)));
    }
}

#[test]
fn a_public_key_that_cannot_verify_is_refused_when_it_is_uploaded() {
    // An Ed25519 key of 31 bytes, well-formed otherwise: a verification with it would panic in the
    // library.
    let mut der = vec![0x30, 0x29, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x20, 0x00];
    der.extend([7; 31]);
    let short = format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n", BASE64.encode(&der));
    let cases = [
        (TokenAlgorithm::EdDsa, short.as_str()),
        (TokenAlgorithm::EdDsa, EC.1),
        (TokenAlgorithm::EdDsa, ED.0),
        (TokenAlgorithm::Es256, RSA.1),
        (TokenAlgorithm::Es256, P384),
        (TokenAlgorithm::Rs256, ED.1),
        (TokenAlgorithm::Rs256, RSA_1024),
        (TokenAlgorithm::Rs256, ""),
        (TokenAlgorithm::Rs256, "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"),
    ];
    let mut instance = TestInstance::with_owner();
    let org = instance.acme().id;
    for (alg, pem) in cases {
        let embed = EmbedSettings { alg, public_key: Some(pem.into()), ..EmbedSettings::default() };
        let refused = instance.identity().create_key(
            org,
            None,
            NewApiKey { embed, ..embed_key() },
            instance.now,
            &mut instance.rng,
        );
        match refused {
            Err(KeyError::Validation(found)) => assert_eq!(found[0].field, "embed.public_key"),
            other => panic!("{alg:?} {pem}: {other:?}"),
        }
    }
}

/// Threat 30.
#[test]
fn a_good_token_on_another_path_is_a_mismatch_whether_that_organisation_exists_or_not() {
    let mut page = page();
    let owner = page.instance.owner().id;
    let other = NewOrg { slug: slug("other"), name: String::new() };
    page.instance
        .identity()
        .create_org(owner, other, page.instance.now, &mut page.instance.rng)
        .expect("made");
    let token = page.token(&json!({}));
    for path in ["other", "nothing", "", "ACME", "acme/"] {
        let request = EmbedRequest { token: &token, slug: path, origin: None };
        assert_eq!(
            page.instance.identity().embed(&request, page.instance.now).err(),
            Some(TokenRefusal::OrgMismatch),
            "{path}"
        );
    }
}

#[test]
fn tokens_end_with_their_key_however_the_key_ends() {
    let mut page = page();
    let (org, key) = (page.instance.acme().id, page.key);
    let identity = page.instance.identity();
    let token = page.token(&json!({}));
    assert_eq!(page.reason(&token), "accepted");
    let set = |disabled| ApiKeyChange { disabled: Some(disabled), ..ApiKeyChange::default() };
    identity.change_key(org, None, key, set(true), page.instance.now).expect("changed");
    assert_eq!(page.reason(&token), "key");
    identity.change_key(org, None, key, set(false), page.instance.now).expect("changed");

    let no_embed = KeyScopes { read: true, ..KeyScopes::default() };
    let change = ApiKeyChange { scopes: Some(no_embed), ..ApiKeyChange::default() };
    identity.change_key(org, None, key, change, page.instance.now).expect("changed");
    assert_eq!(page.reason(&token), "key");
    let back =
        ApiKeyChange { scopes: Some(KeyScopes { embed: true, ..no_embed }), ..ApiKeyChange::default() };
    identity.change_key(org, None, key, back, page.instance.now).expect("its secret is still kept");
    assert_eq!(page.reason(&token), "accepted");

    page.instance.advance_ms(500);
    let now = page.instance.now.as_s();
    let ahead = page.token(&json!({"iat": now + 30, "exp": now + 600}));
    assert_eq!(page.reason(&ahead), "accepted", "dated ahead within the permitted skew");
    identity.revoke_tokens(org, None, key, page.instance.now).expect("revoked");
    assert_eq!(page.reason(&token), "revoked");
    assert_eq!(page.reason(&ahead), "revoked");
    let mint = MintRequest { key, ttl_s: 60, sub: None, ms: None };
    let fresh = identity.mint(org, &mint, page.instance.now).expect("minted in the same second");
    assert_eq!(page.reason(fresh.token.expose()), "accepted");
    page.instance.advance_ms(31_000);
    assert_eq!(page.reason(&ahead), "revoked", "for good");

    identity.delete_key(org, None, key, page.instance.now).expect("deleted");
    assert_eq!(page.reason(fresh.token.expose()), "key");
    drop(identity);
    page.instance.crash();
    assert_eq!(page.reason(fresh.token.expose()), "key");
}

/// Threat 8.
#[test]
fn with_another_master_key_no_token_verifies_but_the_key_still_reads() {
    let mut page = page();
    let token = page.token(&json!({}));
    page.instance.restart_with(IdentityOptions { argon2: CHEAP, ..Default::default() }, MasterKey([1; 32]));
    assert_eq!(page.reason(&token), "key");
    assert!(page.instance.identity().api_key(&page.secret, page.instance.now).is_some());
}

#[test]
fn the_grant_is_the_intersection_of_token_and_key() {
    let policy = EmbedPolicy {
        endpoints: Some(vec![Endpoint::Range, Endpoint::Instant]),
        metrics: Some(vec!["http_*".into()]),
        matchers: vec!["env=\"prod\"".into()],
        exprs: Some(vec!["up".into()]),
        max_range_s: Some(3_600),
        max_lookback_s: Some(86_400),
        min_step_s: Some(15),
        origins: None,
        dashboard: None,
        alerts: None,
    };
    let page = page_with(EmbedSettings {
        policy,
        origins: vec!["https://a.example".into(), "https://b.example".into()],
        ..Default::default()
    });
    let grant = page
        .restricted(&json!({
            "endpoints": ["range", "expr"], "metrics": ["*_total", "up"], "match": ["tenant=\"t42\"", "zone=~\"a|b\""],
            "exprs": ["up", "down"], "max_range_s": 7_200, "max_lookback_s": 600, "min_step_s": 60,
            "origins": ["https://b.example", "https://c.example"]
        }))
        .expect("restricted");
    let matchers: Vec<String> = grant.scope.matchers.iter().map(ToString::to_string).collect();
    assert_eq!(matchers, ["env=\"prod\"", "tenant=\"t42\"", "zone=~\"a|b\""]);
    for (name, admitted) in
        [("http_requests_total", true), ("http_x", false), ("up", false), ("y_total", false)]
    {
        assert_eq!(grant.scope.admits_name(name), admitted, "{name}");
    }
    assert_eq!(grant.endpoints, Some(vec![Endpoint::Range]));
    assert_eq!(grant.exprs, [vec!["up".to_owned()], vec!["up".into(), "down".into()]]);
    assert_eq!(
        (grant.max_range_s, grant.max_lookback_s, grant.min_step_s),
        (Some(3_600), Some(600), Some(60))
    );
    assert_eq!(grant.scope.min_time, Some(page.instance.now.plus_ms(-600_000)));
    for (origin, allowed) in
        [("https://a.example", false), ("https://b.example", true), ("https://c.example", false)]
    {
        assert_eq!(grant.allows_origin(Some(origin)), allowed, "{origin}");
    }

    let whole = page.ask(&page.token(&json!({}))).expect("only the key's policy");
    assert_eq!(whole.endpoints, Some(vec![Endpoint::Range, Endpoint::Instant]));
    assert_eq!(
        (whole.max_range_s, whole.max_lookback_s, whole.min_step_s),
        (Some(3_600), Some(86_400), Some(15))
    );
    assert!(!whole.scope.is_whole());

    let nothing =
        page.restricted(&json!({"endpoints": [], "metrics": [], "exprs": []})).expect("nothing at all");
    assert!(
        !nothing.allows(Endpoint::Range) && !nothing.scope.admits_name("http_x_total"),
        "an empty list admits nothing"
    );
    let absurd = page.restricted(&json!({"max_lookback_s": u64::MAX})).expect("the key's own is smaller");
    assert_eq!(absurd.max_lookback_s, Some(86_400));
}

fn of_dashboard(page: &EmbedFixture, dashboard: &Value) -> Result<EmbedGrant, TokenRefusal> {
    page.restricted(&json!({ "dashboard": dashboard }))
}

fn scope_of(grant: &EmbedGrant) -> Vec<String> {
    grant.scope.matchers.iter().map(ToString::to_string).collect()
}

#[test]
fn a_locked_variable_is_a_matcher_of_the_scope() {
    let page = page();
    let grant = of_dashboard(
        &page,
        &json!({
            "uid": "node",
            "locked": {
                "tenant": "t42",
                "env": ["prod", "st.age|x"],
                "host": {"label": "instance", "values": ["a:9100"]},
                "odd": "a\"b\\c\nd",
            },
            "open": ["route", "zone"],
        }),
    )
    .expect("a dashboard");
    assert_eq!(
        scope_of(&grant),
        [r#"env=~"prod|st\\.age\\|x""#, r#"instance="a:9100""#, r#"odd="a\"b\\c\nd""#, r#"tenant="t42""#]
    );
    let dashboard = grant.dashboard.clone().expect("granted");
    assert_eq!(
        (dashboard.uid.as_str(), dashboard.locked["host"].as_slice()),
        ("node", &["a:9100".to_owned()][..])
    );
    assert_eq!(dashboard.open, [("route".to_owned(), None), ("zone".to_owned(), None)].into());
    assert_eq!(grant.endpoints, Some(vec![Endpoint::Dashboard]), "a dashboard grants nothing else");

    let both = page
        .restricted(
            &json!({"endpoints": ["range"], "dashboard": {"uid": "node", "locked": {"tenant": "t42"}}}),
        )
        .expect("listed endpoints");
    assert!(both.allows(Endpoint::Range) && !both.allows(Endpoint::Dashboard), "listed, so withheld");
    assert_eq!(scope_of(&both), [r#"tenant="t42""#], "on every endpoint");
    let without = page.restricted(&json!({"endpoints": ["dashboard", "range"]})).expect("no dashboard");
    assert!(without.allows(Endpoint::Range) && !without.allows(Endpoint::Dashboard));
    assert!(!page.ask(&page.token(&json!({}))).expect("plain").allows(Endpoint::Dashboard));
}

/// Threat 35: a mistyped, doubled or empty restriction.
#[test]
fn a_restriction_to_a_dashboard_is_refused_if_it_is_not_exactly_one() {
    let page = page();
    let with = |name: &str, value: Value| json!({"uid": "node", name: value});
    let many = |count: usize| -> Value {
        (0..count).map(|at| (format!("v{at}"), json!("x"))).collect::<serde_json::Map<_, _>>().into()
    };
    let names = |count: usize| json!((0..count).map(|at| format!("v{at}")).collect::<Vec<_>>());
    for bad in [
        json!(null),
        json!("node"),
        json!(["node"]),
        json!([]),
        json!({}),
        json!({"uid": null}),
        json!({"uid": ""}),
        json!({"uid": "a/b"}),
        json!({"uid": "x".repeat(41)}),
        json!({"uid": "node", "lock": {}}),
        json!({"uid": "node", "Locked": {"tenant": "a"}}),
        with("locked", json!(null)),
        with("locked", json!([])),
        with("locked", json!({"tenant": null})),
        with("locked", json!({"tenant": ""})),
        with("locked", json!({"tenant": []})),
        with("locked", json!({"tenant": ["a", ""]})),
        with("locked", json!({"tenant": [1]})),
        with("locked", json!({"tenant": 7})),
        with("locked", json!({"tenant": "x".repeat(257)})),
        with("locked", json!({"tenant": vec!["x"; 65]})),
        with("locked", json!({"": "a"})),
        with("locked", json!({"a b": "a"})),
        with("locked", json!({"__all": "a"})),
        with("locked", json!({"tenant": {"values": ["a"]}})),
        with("locked", json!({"tenant": {"label": "t"}})),
        with("locked", json!({"tenant": {"label": "", "values": ["a"]}})),
        with("locked", json!({"tenant": {"label": "t", "values": []}})),
        with("locked", json!({"tenant": {"label": "t", "values": ["a"], "op": "!="}})),
        with("locked", json!({"tenant": ["t", ["a"]]})),
        with("locked", many(17)),
        with("open", json!(null)),
        with("open", json!("route")),
        with("open", json!(["route", "route"])),
        with("open", json!(["a-b"])),
        with("open", json!({"route": []})),
        with("open", json!({"route": "a"})),
        with("open", json!({"route": [""]})),
        with("open", names(33)),
        json!({"uid": "node", "locked": {"a": "x"}, "open": ["a"]}),
        json!({"uid": "node", "locked": {"a": "x"}, "open": {"a": ["x"]}}),
    ] {
        assert!(of_dashboard(&page, &bad).is_err(), "{bad}");
    }
    for good in [
        with("locked", many(16)),
        with("open", names(32)),
        with("locked", json!({"t": vec!["x"; 64]})),
        with("locked", json!({"t": "ä".repeat(256)})),
        with("locked", json!({"1a": {"label": "a", "values": ["x"]}})),
        json!({"uid": "x".repeat(40)}),
    ] {
        assert!(of_dashboard(&page, &good).is_ok(), "{good}");
    }
    let now = page.instance.now.as_s();
    for twice in [
        r#"{"uid":"node","uid":"other"}"#,
        r#"{"uid":"node","locked":{"tenant":"a"},"locked":{}}"#,
        r#"{"uid":"node","locked":{"tenant":"a","tenant":"b"}}"#,
        r#"{"uid":"node","locked":{"tenant":{"label":"t","values":["a"],"values":["b"]}}}"#,
        r#"{"uid":"node","open":{"route":["a"],"route":null}}"#,
        r#"{"uid":"node"},"dashboard":{"uid":"node"}"#,
    ] {
        let claims = format!(
            r#"{{"aud":"ms-embed","org":"acme","iat":{now},"exp":{end},"ms":{{"dashboard":{twice}}}}}"#,
            end = now + 60
        );
        let token = handmade(&page.header().to_string(), &claims, page.secret.as_bytes());
        assert_eq!(page.reason(&token), "claims", "{twice}");
    }
}

#[test]
fn the_dashboard_of_a_grant_is_the_intersection_of_token_and_key() {
    let policy = EmbedPolicy::from_json(&json!({
        "dashboard": {
            "uid": "node",
            "locked": {"tenant": ["a", "b"], "env": "prod"},
            "open": {"route": ["/a", "/b"], "zone": null, "host": null},
        }
    }));
    let page = page_with(EmbedSettings { policy: policy.expect("read"), ..Default::default() });
    let whole = page.ask(&page.token(&json!({}))).expect("only the key's policy");
    assert_eq!(whole.endpoints, Some(vec![Endpoint::Dashboard]));
    assert_eq!(whole.dashboard.expect("the key's").open.len(), 3);

    let grant = of_dashboard(
        &page,
        &json!({
            "uid": "node",
            "locked": {"tenant": ["b", "c"], "host": "h1"},
            "open": {"route": ["/b", "/c"], "zone": ["z"], "env": null, "other": null},
        }),
    )
    .expect("both");
    assert_eq!(
        scope_of(&grant),
        [r#"env="prod""#, r#"tenant=~"a|b""#, r#"host="h1""#, r#"tenant=~"b|c""#],
        "locks add up"
    );
    let dashboard = grant.dashboard.expect("both");
    assert_eq!(
        dashboard.locked,
        [
            ("env".to_owned(), vec!["prod".to_owned()]),
            ("host".to_owned(), vec!["h1".to_owned()]),
            ("tenant".to_owned(), vec!["b".to_owned()])
        ]
        .into()
    );
    assert_eq!(
        dashboard.open,
        [("route".to_owned(), Some(vec!["/b".to_owned()])), ("zone".to_owned(), Some(vec!["z".to_owned()]))]
            .into(),
        "the key's lock of env wins, and it does not open the other"
    );

    let other = of_dashboard(&page, &json!({"uid": "other"})).expect("a token");
    assert_eq!((other.endpoints, other.dashboard), (Some(Vec::new()), None), "nothing in common");
    let listed = page.restricted(&json!({"endpoints": ["range", "dashboard"]})).expect("a token");
    assert_eq!(listed.endpoints, Some(vec![Endpoint::Dashboard]), "the key grants nothing else");

    let policy = EmbedPolicy { endpoints: Some(vec![Endpoint::Range]), ..EmbedPolicy::default() };
    let withheld = page_with(EmbedSettings { policy, ..Default::default() });
    let grant = of_dashboard(&withheld, &json!({"uid": "node"})).expect("a token");
    assert!(!grant.allows(Endpoint::Dashboard), "the key lists endpoints without dashboard");
}

/// Threat 71: neither a token of a key without alerts nor a token that does not name them has
/// alerts, with any list of endpoints.
#[test]
fn alerts_are_granted_only_if_key_and_token_both_name_them() {
    let settings = |alerts, endpoints| {
        let policy = EmbedPolicy { alerts, endpoints, ..EmbedPolicy::default() };
        EmbedSettings { policy, ..Default::default() }
    };
    let named = |annotations: &[&str], value| AlertsPolicy {
        annotations: annotations.iter().map(|&name| name.to_owned()).collect(),
        value,
    };
    let every = json!(["metrics", "labels", "range", "instant", "expr", "dashboard", "alerts"]);
    let tokens = [json!({}), json!({ "endpoints": every }), json!({ "alerts": {} })];
    let granted = |page: &EmbedFixture| {
        tokens.clone().map(|ms| page.restricted(&ms).expect("a token").allows(Endpoint::Alerts))
    };
    assert_eq!(granted(&page()), [false; 3], "an old key");
    let grants_all = page_with(settings(Some(named(&["summary", "runbook"], true)), None));
    assert_eq!(granted(&grants_all), [false, false, true]);
    let listed = settings(Some(named(&[], false)), Some(vec![Endpoint::Range]));
    assert_eq!(granted(&page_with(listed)), [false; 3], "the key lists endpoints without alerts");

    let asked = json!({ "alerts": { "annotations": ["summary", "description"], "value": true } });
    let grant = grants_all.restricted(&asked).expect("a token");
    assert_eq!(grant.alerts, Some(named(&["summary"], true)), "the intersection");
    assert!(grant.allows(Endpoint::Range), "alerts are granted beside the rest");
    let grant = page_with(settings(Some(named(&[], false)), None)).restricted(&asked).expect("a token");
    assert_eq!(grant.alerts, Some(named(&[], false)));
    let beside = json!({ "exprs": ["up"], "alerts": {} });
    let grant = grants_all.restricted(&beside).expect("a token");
    assert_eq!(grant.endpoints, Some(vec![Endpoint::Expr, Endpoint::Alerts]));

    let many: Vec<String> = (0..17).map(|n| format!("a{n}")).collect();
    for wrong in [
        json!({ "alerts": true }),
        json!({ "alerts": null }),
        json!({ "alerts": [["summary"], true] }),
        json!({ "alerts": { "annotation": ["summary"] } }),
        json!({ "alerts": { "annotations": [""] } }),
        json!({ "alerts": { "annotations": many } }),
        json!({ "Alerts": {} }),
    ] {
        let refusal = grants_all.restricted(&wrong).expect_err("refused");
        assert!(["claims", "policy"].contains(&refusal.reason()), "{wrong}: {refusal:?}");
    }
    assert_eq!(grants_all.reason(&grants_all.token(&json!({ "alerts": {} }))), "policy", "beside ms");
}

#[test]
fn a_minted_restriction_to_a_dashboard_is_the_one_that_was_asked_for() {
    let dashboard = json!({
        "uid": "node",
        "locked": {"tenant": "t42", "env": ["a", "b"], "host": {"label": "i", "values": ["c"]}},
        "open": {"route": ["/a"], "zone": null},
    });
    let own = EmbedPolicy::from_json(
        &json!({"dashboard": {"uid": "node", "open": {"route": ["/a"], "zone": null}}}),
    );
    let page = page_with(EmbedSettings { policy: own.expect("read"), ..Default::default() });
    let org = page.instance.acme().id;
    let mint = |dashboard: &Value| {
        let ms = EmbedPolicy::from_json(&json!({ "dashboard": dashboard })).expect("read");
        let request = MintRequest { key: page.key, ttl_s: 60, sub: None, ms: Some(ms) };
        page.instance.identity().mint(org, &request, page.instance.now)
    };
    let minted = mint(&dashboard).expect("minted");
    let claims = minted.token.expose().split('.').nth(1).expect("claims").to_owned();
    let claims: Value =
        serde_json::from_slice(&BASE64URL_NOPAD.decode(claims.as_bytes()).expect("base64url")).expect("JSON");
    assert_eq!(claims["ms"], json!({ "dashboard": dashboard }));
    for beyond in [
        json!({"uid": "other"}),
        json!({"uid": "node", "open": ["route"]}),
        json!({"uid": "node", "open": {"route": ["/b"]}}),
        json!({"uid": "node", "open": ["host"]}),
    ] {
        let refused = mint(&beyond);
        assert!(matches!(&refused, Err(MintError::Validation(found)) if found[0].field == "ms"), "{beyond}");
    }
    for within in [json!({"uid": "node"}), json!({"uid": "node", "open": {"zone": ["x"]}})] {
        mint(&within).expect("within");
    }
}

#[test]
fn an_origin_must_be_allowed_by_token_and_key_and_a_server_sends_none() {
    let page =
        page_with(EmbedSettings { origins: vec!["https://a.example".into()], ..EmbedSettings::default() });
    let token = page.token(&json!({}));
    for (origin, expected) in [
        (None, None),
        (Some("https://a.example"), None),
        (Some("https://a.example.evil.example"), Some(TokenRefusal::OriginNotAllowed)),
        (Some("http://a.example"), Some(TokenRefusal::OriginNotAllowed)),
        (Some("null"), Some(TokenRefusal::OriginNotAllowed)),
    ] {
        let request = EmbedRequest { token: &token, slug: "acme", origin };
        assert_eq!(page.instance.identity().embed(&request, page.instance.now).err(), expected, "{origin:?}");
    }
}

#[test]
fn a_minted_token_has_the_requested_claims_and_no_others() {
    let page = page();
    let org = page.instance.acme().id;
    let ms = EmbedPolicy {
        matchers: vec!["tenant=\"t42\"".into()],
        min_step_s: Some(15),
        ..EmbedPolicy::default()
    };
    let request = MintRequest { key: page.key, ttl_s: 60, sub: Some("viewer".into()), ms: Some(ms) };
    let minted = page.instance.identity().mint(org, &request, page.instance.now).expect("minted");
    assert_eq!((minted.kid, minted.expires_at), (page.key, page.instance.now.plus_ms(60_000)));
    let parts: Vec<&str> = minted.token.expose().split('.').collect();
    let part = |at: usize| -> Value {
        serde_json::from_slice(&BASE64URL_NOPAD.decode(parts[at].as_bytes()).expect("base64url"))
            .expect("JSON")
    };
    let now = page.instance.now.as_s();
    assert_eq!(part(0), page.header());
    let ms = json!({"match": ["tenant=\"t42\""], "min_step_s": 15});
    assert_eq!(
        part(1),
        json!({"aud": "ms-embed", "org": "acme", "iat": now, "exp": now + 60, "sub": "viewer", "ms": ms})
    );
    let grant = page.ask(minted.token.expose()).expect("our own");
    assert_eq!(grant.scope.matchers.len(), 1);
    assert_eq!(format!("{:?}", minted.token), "***");
}

#[test]
fn a_token_beyond_the_keys_policy_is_not_minted_and_the_field_is_named() {
    let policy = EmbedPolicy {
        endpoints: Some(vec![Endpoint::Range]),
        max_range_s: Some(60),
        ..EmbedPolicy::default()
    };
    let page = page_with(EmbedSettings {
        policy,
        origins: vec!["https://a.example".into()],
        ..EmbedSettings::default()
    });
    let org = page.instance.acme().id;
    let plain = MintRequest { key: page.key, ttl_s: 60, sub: None, ms: None };
    let ms = |ms: EmbedPolicy| MintRequest { ms: Some(ms), ..plain.clone() };
    let cases = [
        (MintRequest { ttl_s: 0, ..plain.clone() }, "ttl_s"),
        (MintRequest { ttl_s: 3_601, ..plain.clone() }, "ttl_s"),
        (MintRequest { sub: Some("x".repeat(256)), ..plain.clone() }, "sub"),
        (ms(EmbedPolicy { endpoints: Some(vec![Endpoint::Expr]), ..Default::default() }), "ms"),
        (ms(EmbedPolicy { max_range_s: Some(61), ..Default::default() }), "ms"),
        (ms(EmbedPolicy { origins: Some(vec!["https://b.example".into()]), ..Default::default() }), "ms"),
        (ms(EmbedPolicy { matchers: vec!["x".into()], ..Default::default() }), "ms"),
        (ms(EmbedPolicy { exprs: Some(vec!["x".repeat(5_000)]), ..Default::default() }), "ms"),
    ];
    for (request, field) in cases {
        match page.instance.identity().mint(org, &request, page.instance.now) {
            Err(MintError::Validation(found)) => assert_eq!(found[0].field, field, "{request:?}"),
            other => panic!("{request:?}: {other:?}"),
        }
    }
    page.instance.identity().mint(org, &plain, page.instance.now).expect("within");
}

#[test]
fn a_policy_in_json_accepts_null_as_no_restriction_and_refuses_unknown_fields() {
    let policy =
        EmbedPolicy::from_json(&json!({"endpoints": null, "metrics": null, "match": [], "max_range_s": 60}))
            .expect("read");
    assert_eq!(policy, EmbedPolicy { max_range_s: Some(60), ..EmbedPolicy::default() });
    for bad in [
        json!({"matchs": []}),
        json!({"matchs": null}),
        json!([]),
        json!(null),
        json!({"match": "a=1"}),
        json!({"endpoints": ["x"]}),
    ] {
        assert!(EmbedPolicy::from_json(&bad).is_err(), "{bad}");
    }
}

#[test]
fn refused_tokens_are_in_the_organisations_audit_log() {
    let page = page();
    assert_eq!(page.reason(&page.token(&json!({"aud": "other"}))), "aud");
    page.instance.identity().tick(page.instance.now).expect("written");
    let entries = page.instance.identity().audit(Some(page.instance.acme().id), 10).expect("read");
    let entry = entries.iter().find(|entry| entry.action == "token.rejected").expect("noted");
    assert_eq!((entry.target.clone(), entry.detail.as_str()), (page.key.to_string(), "aud"));
}

/// The rule of dates is that of `revoke_tokens`: no earlier token stays valid, not even after a
/// clock that was ahead, a second revocation or a restart.
#[test]
fn revoked_tokens_of_a_dashboard_stay_refused_and_minted_ones_work() {
    let mut page = page();
    let org = page.instance.acme().id;
    let ms = |uid: &str| json!({"ms": {"dashboard": {"uid": uid}}});
    let now = page.instance.now.as_s();
    let ahead = page.token(&json!({"ms": {"dashboard": {"uid": "node"}}, "iat": now + 30}));
    let before = [page.token(&ms("node")), ahead];
    let (other, plain) = (page.token(&ms("other")), page.token(&json!({})));
    let mint = |page: &EmbedFixture| {
        let policy = EmbedPolicy::from_json(&json!({"dashboard": {"uid": "node"}})).expect("read");
        let request = MintRequest { key: page.key, ttl_s: 60, sub: None, ms: Some(policy) };
        let minted = page.instance.identity().mint(org, &request, page.instance.now).expect("minted");
        minted.token.expose().to_owned()
    };
    let grant = page.ask(&before[0]).expect("a token");
    let revoke = |page: &EmbedFixture, at| {
        page.instance.identity().revoke_dashboard_tokens(org, None, "node", at).expect("revoked");
    };
    assert!(!page.instance.identity().is_revoked(&grant));
    revoke(&page, page.instance.now);
    assert!(page.instance.identity().is_revoked(&grant), "an open stream ends");
    let fresh = mint(&page);
    let check = |page: &EmbedFixture| {
        for token in &before {
            assert_eq!(page.reason(token), "revoked");
        }
        assert_eq!([page.reason(&other), page.reason(&plain), page.reason(&fresh)], ["accepted"; 3]);
    };
    check(&page);
    assert!(!page.instance.identity().is_revoked(&page.ask(&fresh).expect("minted")));
    page.instance.crash();
    check(&page);
    // A second revocation, by a clock that is an hour ahead.
    revoke(&page, page.instance.now.plus_ms(3_600_000));
    assert_ne!(page.reason(&fresh), "accepted");
    assert_eq!(page.reason(&mint(&page)), "accepted", "minted ones bear the first valid date");
    // A dashboard that the key names counts as named by each of its tokens.
    let policy = EmbedPolicy::from_json(&json!({"dashboard": {"uid": "node"}})).expect("read");
    let page = page_with(EmbedSettings { policy, ..Default::default() });
    let token = page.token(&json!({}));
    assert_eq!(page.reason(&token), "accepted");
    let (org, now) = (page.instance.acme().id, page.instance.now);
    page.instance.identity().revoke_dashboard_tokens(org, None, "node", now).expect("revoked");
    assert_eq!(page.reason(&token), "revoked");
}

#[test]
fn a_blocked_origin_is_refused_whatever_key_and_token_allow() {
    let page = page();
    let (org, now, identity) = (page.instance.acme().id, page.instance.now, page.instance.identity());
    let token = page.token(&json!({"ms": {"origins": ["https://a.example"]}}));
    let ask = |origin| {
        let request = EmbedRequest { token: &token, slug: "acme", origin };
        identity.embed(&request, now).map(drop).map_err(|refusal| refusal.reason())
    };
    assert_eq!(ask(Some("https://a.example")), Ok(()));
    for _ in 0..2 {
        let key =
            identity.block_origin(org, None, page.key, "https://a.example".into(), now).expect("blocked");
        assert_eq!(key.embed.blocked_origins, ["https://a.example"], "once");
    }
    assert_eq!((ask(Some("https://a.example")), ask(None)), (Err("origin"), Ok(())));
    for n in 0..63 {
        identity.block_origin(org, None, page.key, format!("https://{n}.example"), now).expect("blocked");
    }
    let beyond = identity.block_origin(org, None, page.key, "https://b.example".into(), now);
    assert!(matches!(beyond, Err(KeyError::Validation(_))), "{beyond:?}");
    assert_eq!(ask(Some("https://a.example")), Err("origin"));
}
