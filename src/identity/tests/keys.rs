//! API keys (docs/specification.md C4).

use super::*;
use crate::model::OrgId;

pub(super) fn embed_key() -> NewApiKey {
    NewApiKey {
        name: "website".into(),
        scopes: KeyScopes { embed: true, ..KeyScopes::default() },
        expires_at: None,
        embed: EmbedSettings::default(),
        ingest: IngestSettings::default(),
        read: ReadSettings::default(),
    }
}

pub(super) fn create(instance: &mut TestInstance, key: NewApiKey) -> CreatedKey {
    let (org, owner, now) = (instance.acme().id, instance.owner().id, instance.now);
    instance.identity().create_key(org, Some(owner), key, now, &mut instance.rng).expect("made")
}

#[test]
fn only_the_secret_identifies_a_key_and_it_is_not_stored() {
    let mut instance = TestInstance::with_owner();
    let created = create(&mut instance, embed_key());
    let secret = created.secret.expose();
    assert_eq!(secret.len(), 67);
    assert_eq!(&secret[4..20], &created.key.id.to_string()[3..]);
    assert_eq!(created.key.hint, format!("msk_…{}", &secret[63..]));
    let found = instance.identity().api_key(secret, instance.now).expect("its own secret");
    assert_eq!(
        (found.id, found.org, found.slug.as_str(), found.embed.rate_limit_rps),
        (created.key.id, OrgId(1), "acme", 100)
    );
    instance.restart();
    assert!(instance.identity().api_key(secret, instance.now).is_some(), "after a restart");
    assert!(!instance.bytes().windows(secret.len()).any(|window| window == secret.as_bytes()));

    let mut flipped = secret.to_owned();
    flipped.replace_range(30..31, if &secret[30..31] == "a" { "b" } else { "a" });
    for foreign in
        ["", "msk_", &secret[..66], &format!("{secret}0"), &flipped, &secret.replace("msk_", "ses_"), "msk_ä"]
    {
        assert!(instance.identity().api_key(foreign, instance.now).is_none(), "{foreign}");
    }
}

#[test]
fn a_deleted_disabled_or_expired_key_is_refused_on_the_next_request() {
    let mut instance = TestInstance::with_owner();
    let expires_at = Some(instance.now.plus_ms(60_000));
    let created = create(&mut instance, NewApiKey { expires_at, ..embed_key() });
    let (org, id, secret) = (instance.acme().id, created.key.id, created.secret);
    let works =
        |instance: &TestInstance| instance.identity().api_key(secret.expose(), instance.now).is_some();
    assert!(works(&instance));

    let set = |disabled| ApiKeyChange { disabled: Some(disabled), ..ApiKeyChange::default() };
    instance.identity().change_key(org, None, id, set(true), instance.now).expect("changed");
    assert!(!works(&instance));
    instance.identity().change_key(org, None, id, set(false), instance.now).expect("changed");
    assert!(works(&instance));

    instance.advance_ms(60_000);
    assert!(!works(&instance));
    let longer = ApiKeyChange { expires_at: Some(None), ..ApiKeyChange::default() };
    instance.identity().change_key(org, None, id, longer, instance.now).expect("changed");
    assert!(works(&instance));

    instance.identity().delete_key(org, None, id, instance.now).expect("deleted");
    assert!(!works(&instance));
    assert!(matches!(instance.identity().delete_key(org, None, id, instance.now), Err(KeyError::NotFound)));
    instance.crash();
    assert!(!works(&instance));
    assert!(instance.identity().keys(org).is_empty());
}

/// Threat 31.
#[test]
fn another_organisations_key_is_not_found() {
    let mut instance = TestInstance::with_owner();
    let created = create(&mut instance, embed_key());
    let (identity, id, other) = (instance.identity(), created.key.id, OrgId(2));
    assert!(identity.key(other, id).is_none());
    assert!(identity.keys(other).is_empty());
    let change = identity.change_key(other, None, id, ApiKeyChange::default(), instance.now);
    assert!(matches!(change, Err(KeyError::NotFound)));
    assert!(matches!(identity.revoke_tokens(other, None, id, instance.now), Err(KeyError::NotFound)));
    assert!(matches!(identity.delete_key(other, None, id, instance.now), Err(KeyError::NotFound)));
    let mint = MintRequest { key: id, ttl_s: 60, sub: None, ms: None };
    assert!(matches!(identity.mint(other, &mint, instance.now), Err(MintError::UnknownKey)));
    assert!(identity.api_key(created.secret.expose(), instance.now).is_some());
    let nowhere = identity.create_key(other, None, embed_key(), instance.now, &mut instance.rng);
    assert!(matches!(nowhere, Err(KeyError::NotFound)));
}

#[test]
fn validation_errors_name_each_field() {
    let mut instance = TestInstance::with_owner();
    let embed = EmbedSettings::default;
    let with = |embed: EmbedSettings| NewApiKey { embed, ..embed_key() };
    let policy = |policy: EmbedPolicy| with(EmbedSettings { policy, ..embed() });
    let ingest = |ingest: IngestSettings| NewApiKey { ingest, ..embed_key() };
    let label = |name: &str| (name.to_owned(), "x".to_owned());
    let base = IngestSettings::default;
    let cases = [
        ("name", NewApiKey { name: " ".into(), ..embed_key() }),
        ("name", NewApiKey { name: "x".repeat(201), ..embed_key() }),
        ("name", NewApiKey { name: "web\u{202e}etis".into(), ..embed_key() }),
        ("scopes", NewApiKey { scopes: KeyScopes::default(), ..embed_key() }),
        ("expires_at", NewApiKey { expires_at: Some(instance.now), ..embed_key() }),
        ("embed.rate_limit_rps", with(EmbedSettings { rate_limit_rps: 0, ..embed() })),
        ("embed.rate_limit_rps", with(EmbedSettings { rate_limit_rps: 10_001, ..embed() })),
        ("embed.max_token_ttl_s", with(EmbedSettings { max_token_ttl_s: 59, ..embed() })),
        ("embed.max_token_ttl_s", with(EmbedSettings { max_token_ttl_s: 86_401, ..embed() })),
        ("embed.origins", with(EmbedSettings { origins: vec!["https://a.example/path".into()], ..embed() })),
        ("embed.origins", with(EmbedSettings { origins: vec!["*".into(); 33], ..embed() })),
        (
            "embed.query_seconds_per_minute",
            with(EmbedSettings { query_seconds_per_minute: Some(0), ..embed() }),
        ),
        (
            "embed.query_seconds_per_minute",
            with(EmbedSettings { query_seconds_per_minute: Some(3_601), ..embed() }),
        ),
        ("embed.blocked_origins", with(EmbedSettings { blocked_origins: vec!["*".into()], ..embed() })),
        (
            "embed.blocked_origins",
            with(EmbedSettings { blocked_origins: vec!["https://a.example".into(); 65], ..embed() }),
        ),
        ("embed.public_key", with(EmbedSettings { public_key: Some("x".into()), ..embed() })),
        ("embed.public_key", with(EmbedSettings { alg: TokenAlgorithm::EdDsa, ..embed() })),
        (
            "embed.policy",
            policy(EmbedPolicy { matchers: vec!["a=\"1\" or b=\"2\"".into()], ..Default::default() }),
        ),
        ("embed.policy", policy(EmbedPolicy { matchers: vec!["a=1".into(); 9], ..Default::default() })),
        ("embed.policy", policy(EmbedPolicy { metrics: Some(vec![String::new()]), ..Default::default() })),
        ("embed.policy", policy(EmbedPolicy { origins: Some(vec!["*".into()]), ..Default::default() })),
        ("read.rate_limit_rps", NewApiKey { read: ReadSettings { rate_limit_rps: 0 }, ..embed_key() }),
        ("read.rate_limit_rps", NewApiKey { read: ReadSettings { rate_limit_rps: 100_001 }, ..embed_key() }),
        ("ingest.rate_limit_rps", ingest(IngestSettings { rate_limit_rps: 0, ..base() })),
        ("ingest.samples_per_s", ingest(IngestSettings { samples_per_s: 100_000_001, ..base() })),
        ("ingest.labels", ingest(IngestSettings { labels: vec![label("__name__")], ..base() })),
        ("ingest.labels", ingest(IngestSettings { labels: vec![label("a-b")], ..base() })),
        ("ingest.labels", ingest(IngestSettings { labels: vec![label("a"), label("a")], ..base() })),
    ];
    let org = instance.acme().id;
    for (field, key) in cases {
        match instance.identity().create_key(org, None, key, instance.now, &mut instance.rng) {
            Err(KeyError::Validation(found)) => {
                assert_eq!(found.iter().map(|e| e.field).collect::<Vec<_>>(), [field])
            }
            other => panic!("{field}: {other:?}"),
        }
    }
    assert!(instance.identity().keys(org).is_empty());
}

#[test]
fn the_algorithm_and_the_validity_of_a_key_cannot_be_changed() {
    let mut instance = TestInstance::with_owner();
    let org = instance.acme().id;
    let reader = NewApiKey { scopes: KeyScopes { read: true, ..KeyScopes::default() }, ..embed_key() };
    let id = create(&mut instance, reader).key.id;
    let refused = |instance: &TestInstance, change: ApiKeyChange| match instance.identity().change_key(
        org,
        None,
        id,
        change,
        instance.now,
    ) {
        Err(KeyError::Validation(found)) => found[0].field,
        other => panic!("{other:?}"),
    };
    let other = EmbedChange { alg: Some(TokenAlgorithm::Es256), ..EmbedChange::default() };
    assert_eq!(refused(&instance, ApiKeyChange { embed: other, ..Default::default() }), "embed.alg");
    assert_eq!(refused(&instance, ApiKeyChange { name: Some(String::new()), ..Default::default() }), "name");
    let faster = EmbedChange { rate_limit_rps: Some(7), ..EmbedChange::default() };
    let change = ApiKeyChange { name: Some("renamed".into()), embed: faster, ..Default::default() };
    let changed = instance.identity().change_key(org, None, id, change, instance.now).expect("changed");
    assert_eq!((changed.name.as_str(), changed.embed.rate_limit_rps), ("renamed", 7));
    instance.crash();
    assert_eq!(instance.identity().key(org, id).expect("there").name, "renamed");
}

/// docs/specification.md C4: every setting but `alg` may change. A secret that was not stored is
/// missing before the next rotation.
#[test]
fn a_key_that_gets_embed_later_signs_after_a_rotation() {
    let mut instance = TestInstance::with_owner();
    let (org, now) = (instance.acme().id, instance.now);
    let reader = NewApiKey { scopes: KeyScopes { read: true, ..KeyScopes::default() }, ..embed_key() };
    let made = create(&mut instance, reader);
    let key = made.key.id;
    let scopes = KeyScopes { read: true, embed: true, ..KeyScopes::default() };
    let change = ApiKeyChange { scopes: Some(scopes), ..ApiKeyChange::default() };
    let changed = instance.identity().change_key(org, None, key, change, now).expect("changed");
    assert!(changed.scopes.embed && changed.lacks_secret());
    let mint = MintRequest { key, ttl_s: 60, sub: None, ms: None };
    assert!(matches!(instance.identity().mint(org, &mint, now), Err(MintError::SecretNotKept)));
    assert!(instance.identity().api_key(made.secret.expose(), now).is_some(), "it still reads");
    let rotation = Rotation { org, key, actor: None, overlap: Duration::from_secs(60) };
    let rotated = instance.identity().rotate_key(rotation, now, &mut instance.rng).expect("rotated");
    assert!(!rotated.key.lacks_secret());
    let token = instance.identity().mint(org, &mint, now).expect("minted").token;
    instance.crash();
    let request = EmbedRequest { token: token.expose(), slug: "acme", origin: None };
    assert!(instance.identity().embed(&request, now).is_ok());
    assert!(instance.identity().api_key(made.secret.expose(), now).is_some(), "as long as the overlap");
    assert!(!instance.bytes().windows(67).any(|window| window == rotated.secret.expose().as_bytes()));
    // Without the scope the next secret is not stored.
    let scopes = KeyScopes { read: true, ..KeyScopes::default() };
    let change = ApiKeyChange { scopes: Some(scopes), ..ApiKeyChange::default() };
    instance.identity().change_key(org, None, key, change, now).expect("changed");
    instance.identity().rotate_key(rotation, now, &mut instance.rng).expect("rotated");
    assert!(!instance.identity().key(org, key).expect("there").secret_kept);
}

#[test]
fn the_last_use_is_written_at_most_once_a_minute_and_not_after_deletion() {
    let mut instance = TestInstance::with_owner();
    let org = instance.acme().id;
    let created = create(&mut instance, embed_key());
    let used =
        |instance: &TestInstance| instance.identity().key(org, created.key.id).expect("there").last_used();
    assert_eq!(used(&instance), None);
    assert!(instance.identity().api_key(created.secret.expose(), instance.now).is_some());
    assert_eq!(used(&instance), Some(instance.now));
    instance.identity().tick(instance.now).expect("written");
    let first = instance.now;
    instance.advance_ms(59_999);
    assert!(instance.identity().api_key(created.secret.expose(), instance.now).is_some());
    instance.identity().tick(instance.now).expect("nothing to write");
    instance.crash();
    assert_eq!(used(&instance), Some(first));

    instance.advance_ms(60_000);
    assert!(instance.identity().api_key(created.secret.expose(), instance.now).is_some());
    instance.identity().delete_key(org, None, created.key.id, instance.now).expect("deleted");
    instance.identity().tick(instance.now).expect("dropped");
    assert_eq!(instance.identity().rows::<UsedRow>(&()).expect("read").len(), 0);
}

#[test]
fn keys_are_listed_oldest_first() {
    let mut instance = TestInstance::with_owner();
    for name in ["first", "second", "third"] {
        create(&mut instance, NewApiKey { name: name.into(), ..embed_key() });
        instance.advance_ms(1);
    }
    let names = |instance: &TestInstance| {
        instance.identity().keys(instance.acme().id).iter().map(|k| k.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(names(&instance), ["first", "second", "third"]);
    instance.restart();
    assert_eq!(names(&instance), ["first", "second", "third"]);
}

fn rotate(instance: &mut TestInstance, key: KeyId, overlap_s: u64) -> CreatedKey {
    let (org, actor) = (instance.acme().id, Some(instance.owner().id));
    let rotation = Rotation { org, key, actor, overlap: std::time::Duration::from_secs(overlap_s) };
    instance.identity().rotate_key(rotation, instance.now, &mut instance.rng).expect("rotated")
}

fn mint(instance: &TestInstance, key: KeyId) -> Secret {
    let request = MintRequest { key, ttl_s: 600, sub: None, ms: None };
    instance.identity().mint(instance.acme().id, &request, instance.now).expect("minted").token
}

/// docs/specification.md C4: the old secret, and tokens signed with it, work until the overlap
/// ends.
#[test]
fn a_rotated_keys_old_secret_works_until_the_overlap_ends() {
    let mut instance = TestInstance::with_owner();
    let old = create(&mut instance, embed_key());
    let id = old.key.id;
    let old_token = mint(&instance, id);
    let new = rotate(&mut instance, id, 60);
    let new_token = mint(&instance, id);
    assert_eq!((new.key.id, new.key.hint != old.key.hint), (id, true));
    assert_eq!(&new.secret.expose()[..20], &old.secret.expose()[..20], "still the key's own id");
    let works = |instance: &TestInstance| {
        let (identity, now) = (instance.identity(), instance.now);
        let opens = |secret: &Secret| identity.api_key(secret.expose(), now).is_some();
        let verifies = |token: &Secret| {
            identity.embed(&EmbedRequest { token: token.expose(), slug: "acme", origin: None }, now).is_ok()
        };
        [opens(&old.secret), verifies(&old_token), opens(&new.secret), verifies(&new_token)]
    };
    assert_eq!(works(&instance), [true; 4]);
    instance.crash();
    instance.advance_ms(59_999);
    assert_eq!(works(&instance), [true; 4], "after a restart");
    instance.advance_ms(1);
    assert_eq!(works(&instance), [false, false, true, true]);
    instance.advance_ms(700_000);
    instance.identity().tick(instance.now).expect("swept");
    assert_eq!(instance.identity().rows::<RotatedRow>(&()).expect("read").len(), 0);
    assert!(instance.identity().api_key(new.secret.expose(), instance.now).is_some());
    let entries = instance.identity().audit(Some(instance.acme().id), 50).expect("read");
    let rotated = entries.iter().find(|entry| entry.action == "key.rotated").expect("recorded");
    assert_eq!(rotated.actor, Some(instance.owner().id));
}

#[test]
fn a_key_has_at_most_two_secrets_and_without_overlap_the_old_one_ends_at_once() {
    let mut instance = TestInstance::with_owner();
    let org = instance.acme().id;
    let first = create(&mut instance, embed_key());
    let id = first.key.id;
    let opens = |instance: &TestInstance, secret: &Secret| {
        instance.identity().api_key(secret.expose(), instance.now).is_some()
    };
    let second = rotate(&mut instance, id, 600);
    let third = rotate(&mut instance, id, 600);
    assert_eq!(
        [opens(&instance, &first.secret), opens(&instance, &second.secret), opens(&instance, &third.secret)],
        [false, true, true]
    );
    let fourth = rotate(&mut instance, id, 0);
    for gone in [&first, &second, &third] {
        assert!(!opens(&instance, &gone.secret));
    }
    assert!(opens(&instance, &fourth.secret));
    rotate(&mut instance, id, 600);
    instance.identity().delete_key(org, None, id, instance.now).expect("deleted");
    assert!(!opens(&instance, &fourth.secret));
    assert_eq!(instance.identity().rows::<RotatedRow>(&()).expect("read").len(), 0);
    let gone = Rotation { org, key: id, actor: None, overlap: std::time::Duration::ZERO };
    let refused = instance.identity().rotate_key(gone, instance.now, &mut instance.rng);
    assert!(matches!(refused, Err(KeyError::NotFound)));
}

/// A primary whose follower was lost reloads its accounts while requests change them.
#[test]
fn a_reload_beside_changes_brings_nothing_back_and_loses_nothing() {
    let mut instance = TestInstance::with_owner();
    let (org, now, identity) = (instance.acme().id, instance.now, instance.identity());
    // More keys make a reload take longer.
    for _ in 0..40 {
        create(&mut instance, embed_key());
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reloads = scope.spawn(|| {
            let mut reloads = 0;
            while !done.load(Ordering::SeqCst) {
                identity.reload(now).expect("read");
                reloads += 1;
            }
            reloads
        });
        for round in 0..60 {
            let created = create(&mut instance, embed_key());
            let secret = created.secret.expose();
            assert!(identity.api_key(secret, now).is_some(), "a new key in round {round}");
            let session = instance.session();
            assert_eq!(instance.check(&session.token), "live", "a new session in round {round}");
            identity.delete_key(org, None, created.key.id, now).expect("deleted");
            assert!(identity.api_key(secret, now).is_none(), "a deleted key in round {round}");
            let live = identity.live_session(session.token.expose(), now).expect("live");
            identity.end_session(&live, now).expect("ended");
            assert_eq!(instance.check(&session.token), "unknown", "after the logout of round {round}");
        }
        done.store(true, Ordering::SeqCst);
        assert!(reloads.join().expect("ended") > 10);
    });
    assert_eq!(identity.keys(org).len(), 40);
}
