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

pub(super) fn create(house: &mut House, key: NewApiKey) -> CreatedKey {
    let (org, owner, now) = (house.acme().id, house.owner().id, house.now);
    house.identity().create_key(org, Some(owner), key, now, &mut house.rng).expect("made")
}

#[test]
fn a_key_opens_by_its_secret_alone_and_the_secret_is_stored_nowhere() {
    let mut house = House::furnished();
    let created = create(&mut house, embed_key());
    let secret = created.secret.expose();
    assert_eq!(secret.len(), 67);
    assert_eq!(&secret[4..20], &created.key.id.to_string()[3..]);
    assert_eq!(created.key.hint, format!("msk_…{}", &secret[63..]));
    let found = house.identity().api_key(secret, house.now).expect("its own secret");
    assert_eq!(
        (found.id, found.org, found.slug.as_str(), found.embed.rate_limit_rps),
        (created.key.id, OrgId(1), "acme", 100)
    );
    house.restart();
    assert!(house.identity().api_key(secret, house.now).is_some(), "after a restart");
    assert!(!house.bytes().windows(secret.len()).any(|window| window == secret.as_bytes()));

    let mut flipped = secret.to_owned();
    flipped.replace_range(30..31, if &secret[30..31] == "a" { "b" } else { "a" });
    for foreign in
        ["", "msk_", &secret[..66], &format!("{secret}0"), &flipped, &secret.replace("msk_", "ses_"), "msk_ä"]
    {
        assert!(house.identity().api_key(foreign, house.now).is_none(), "{foreign}");
    }
}

#[test]
fn a_deleted_disabled_or_expired_key_is_refused_on_the_next_request() {
    let mut house = House::furnished();
    let expires_at = Some(house.now.plus_ms(60_000));
    let created = create(&mut house, NewApiKey { expires_at, ..embed_key() });
    let (org, id, secret) = (house.acme().id, created.key.id, created.secret);
    let works = |house: &House| house.identity().api_key(secret.expose(), house.now).is_some();
    assert!(works(&house));

    let set = |disabled| ApiKeyChange { disabled: Some(disabled), ..ApiKeyChange::default() };
    house.identity().change_key(org, None, id, set(true), house.now).expect("changed");
    assert!(!works(&house));
    house.identity().change_key(org, None, id, set(false), house.now).expect("changed");
    assert!(works(&house));

    house.advance_ms(60_000);
    assert!(!works(&house));
    let longer = ApiKeyChange { expires_at: Some(None), ..ApiKeyChange::default() };
    house.identity().change_key(org, None, id, longer, house.now).expect("changed");
    assert!(works(&house));

    house.identity().delete_key(org, None, id, house.now).expect("deleted");
    assert!(!works(&house));
    assert!(matches!(house.identity().delete_key(org, None, id, house.now), Err(KeyError::NotFound)));
    house.crash();
    assert!(!works(&house));
    assert!(house.identity().keys(org).is_empty());
}

/// Threat 31.
#[test]
fn another_organisations_key_is_not_there() {
    let mut house = House::furnished();
    let created = create(&mut house, embed_key());
    let (identity, id, other) = (house.identity(), created.key.id, OrgId(2));
    assert!(identity.key(other, id).is_none());
    assert!(identity.keys(other).is_empty());
    let change = identity.change_key(other, None, id, ApiKeyChange::default(), house.now);
    assert!(matches!(change, Err(KeyError::NotFound)));
    assert!(matches!(identity.revoke_tokens(other, None, id, house.now), Err(KeyError::NotFound)));
    assert!(matches!(identity.delete_key(other, None, id, house.now), Err(KeyError::NotFound)));
    let mint = MintRequest { key: id, ttl_s: 60, sub: None, ms: None };
    assert!(matches!(identity.mint(other, &mint, house.now), Err(MintError::UnknownKey)));
    assert!(identity.api_key(created.secret.expose(), house.now).is_some());
    let nowhere = identity.create_key(other, None, embed_key(), house.now, &mut house.rng);
    assert!(matches!(nowhere, Err(KeyError::NotFound)));
}

#[test]
fn what_does_not_fit_is_named_field_by_field() {
    let mut house = House::furnished();
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
        ("expires_at", NewApiKey { expires_at: Some(house.now), ..embed_key() }),
        ("embed.rate_limit_rps", with(EmbedSettings { rate_limit_rps: 0, ..embed() })),
        ("embed.rate_limit_rps", with(EmbedSettings { rate_limit_rps: 10_001, ..embed() })),
        ("embed.max_token_ttl_s", with(EmbedSettings { max_token_ttl_s: 59, ..embed() })),
        ("embed.max_token_ttl_s", with(EmbedSettings { max_token_ttl_s: 86_401, ..embed() })),
        ("embed.origins", with(EmbedSettings { origins: vec!["https://a.example/path".into()], ..embed() })),
        ("embed.origins", with(EmbedSettings { origins: vec!["*".into(); 33], ..embed() })),
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
    let org = house.acme().id;
    for (field, key) in cases {
        match house.identity().create_key(org, None, key, house.now, &mut house.rng) {
            Err(KeyError::Validation(found)) => {
                assert_eq!(found.iter().map(|e| e.field).collect::<Vec<_>>(), [field])
            }
            other => panic!("{field}: {other:?}"),
        }
    }
    assert!(house.identity().keys(org).is_empty());
}

#[test]
fn some_things_about_a_key_do_not_change() {
    let mut house = House::furnished();
    let org = house.acme().id;
    let reader = NewApiKey { scopes: KeyScopes { read: true, ..KeyScopes::default() }, ..embed_key() };
    let id = create(&mut house, reader).key.id;
    let refused = |house: &House, change: ApiKeyChange| match house
        .identity()
        .change_key(org, None, id, change, house.now)
    {
        Err(KeyError::Validation(found)) => found[0].field,
        other => panic!("{other:?}"),
    };
    let other = EmbedChange { alg: Some(TokenAlgorithm::Es256), ..EmbedChange::default() };
    assert_eq!(refused(&house, ApiKeyChange { embed: other, ..Default::default() }), "embed.alg");
    assert_eq!(refused(&house, ApiKeyChange { name: Some(String::new()), ..Default::default() }), "name");
    let faster = EmbedChange { rate_limit_rps: Some(7), ..EmbedChange::default() };
    let change = ApiKeyChange { name: Some("renamed".into()), embed: faster, ..Default::default() };
    let changed = house.identity().change_key(org, None, id, change, house.now).expect("changed");
    assert_eq!((changed.name.as_str(), changed.embed.rate_limit_rps), ("renamed", 7));
    house.crash();
    assert_eq!(house.identity().key(org, id).expect("there").name, "renamed");
}

/// docs/specification.md C4: any setting but `alg` changes. What was never kept of a secret is not there, though, before it is rotated.
#[test]
fn a_key_that_is_given_embed_later_signs_once_it_was_rotated() {
    let mut house = House::furnished();
    let (org, now) = (house.acme().id, house.now);
    let reader = NewApiKey { scopes: KeyScopes { read: true, ..KeyScopes::default() }, ..embed_key() };
    let made = create(&mut house, reader);
    let key = made.key.id;
    let scopes = KeyScopes { read: true, embed: true, ..KeyScopes::default() };
    let change = ApiKeyChange { scopes: Some(scopes), ..ApiKeyChange::default() };
    let changed = house.identity().change_key(org, None, key, change, now).expect("changed");
    assert!(changed.scopes.embed && changed.lacks_secret());
    let mint = MintRequest { key, ttl_s: 60, sub: None, ms: None };
    assert!(matches!(house.identity().mint(org, &mint, now), Err(MintError::SecretNotKept)));
    assert!(house.identity().api_key(made.secret.expose(), now).is_some(), "it goes on reading");
    let rotation = Rotation { org, key, actor: None, overlap: Duration::from_secs(60) };
    let rotated = house.identity().rotate_key(rotation, now, &mut house.rng).expect("rotated");
    assert!(!rotated.key.lacks_secret());
    let token = house.identity().mint(org, &mint, now).expect("minted").token;
    house.crash();
    let request = EmbedRequest { token: token.expose(), slug: "acme", origin: None };
    assert!(house.identity().embed(&request, now).is_ok());
    assert!(house.identity().api_key(made.secret.expose(), now).is_some(), "as long as the overlap");
    assert!(!house.bytes().windows(67).any(|window| window == rotated.secret.expose().as_bytes()));
    // Without the scope the next secret is not kept any more.
    let scopes = KeyScopes { read: true, ..KeyScopes::default() };
    let change = ApiKeyChange { scopes: Some(scopes), ..ApiKeyChange::default() };
    house.identity().change_key(org, None, key, change, now).expect("changed");
    house.identity().rotate_key(rotation, now, &mut house.rng).expect("rotated");
    assert!(!house.identity().key(org, key).expect("there").secret_kept);
}

#[test]
fn the_last_use_is_written_at_most_once_a_minute_and_not_after_deletion() {
    let mut house = House::furnished();
    let org = house.acme().id;
    let created = create(&mut house, embed_key());
    let used = |house: &House| house.identity().key(org, created.key.id).expect("there").last_used();
    assert_eq!(used(&house), None);
    assert!(house.identity().api_key(created.secret.expose(), house.now).is_some());
    assert_eq!(used(&house), Some(house.now));
    house.identity().tick(house.now).expect("written");
    let first = house.now;
    house.advance_ms(59_999);
    assert!(house.identity().api_key(created.secret.expose(), house.now).is_some());
    house.identity().tick(house.now).expect("nothing to write");
    house.crash();
    assert_eq!(used(&house), Some(first));

    house.advance_ms(60_000);
    assert!(house.identity().api_key(created.secret.expose(), house.now).is_some());
    house.identity().delete_key(org, None, created.key.id, house.now).expect("deleted");
    house.identity().tick(house.now).expect("dropped");
    assert_eq!(house.identity().rows::<keyring::UsedRow>(&()).expect("read").len(), 0);
}

#[test]
fn keys_are_listed_oldest_first() {
    let mut house = House::furnished();
    for name in ["first", "second", "third"] {
        create(&mut house, NewApiKey { name: name.into(), ..embed_key() });
        house.advance_ms(1);
    }
    let names = |house: &House| {
        house.identity().keys(house.acme().id).iter().map(|k| k.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(names(&house), ["first", "second", "third"]);
    house.restart();
    assert_eq!(names(&house), ["first", "second", "third"]);
}

fn rotate(house: &mut House, key: KeyId, overlap_s: u64) -> CreatedKey {
    let (org, actor) = (house.acme().id, Some(house.owner().id));
    let rotation = Rotation { org, key, actor, overlap: std::time::Duration::from_secs(overlap_s) };
    house.identity().rotate_key(rotation, house.now, &mut house.rng).expect("rotated")
}

fn mint(house: &House, key: KeyId) -> Secret {
    let request = MintRequest { key, ttl_s: 600, sub: None, ms: None };
    house.identity().mint(house.acme().id, &request, house.now).expect("minted").token
}

/// docs/specification.md C4: the old secret, and tokens signed with it, work until the overlap ends.
#[test]
fn a_rotated_keys_old_secret_works_until_the_overlap_ends() {
    let mut house = House::furnished();
    let old = create(&mut house, embed_key());
    let id = old.key.id;
    let old_token = mint(&house, id);
    let new = rotate(&mut house, id, 60);
    let new_token = mint(&house, id);
    assert_eq!((new.key.id, new.key.hint != old.key.hint), (id, true));
    assert_eq!(&new.secret.expose()[..20], &old.secret.expose()[..20], "still the key's own id");
    let works = |house: &House| {
        let (identity, now) = (house.identity(), house.now);
        let opens = |secret: &Secret| identity.api_key(secret.expose(), now).is_some();
        let verifies = |token: &Secret| {
            identity.embed(&EmbedRequest { token: token.expose(), slug: "acme", origin: None }, now).is_ok()
        };
        [opens(&old.secret), verifies(&old_token), opens(&new.secret), verifies(&new_token)]
    };
    assert_eq!(works(&house), [true; 4]);
    house.crash();
    house.advance_ms(59_999);
    assert_eq!(works(&house), [true; 4], "after a restart");
    house.advance_ms(1);
    assert_eq!(works(&house), [false, false, true, true]);
    house.advance_ms(700_000);
    house.identity().tick(house.now).expect("swept");
    assert_eq!(house.identity().rows::<rotation::RotatedRow>(&()).expect("read").len(), 0);
    assert!(house.identity().api_key(new.secret.expose(), house.now).is_some());
    let said = house.identity().audit(Some(house.acme().id), 50).expect("read");
    let rotated = said.iter().find(|entry| entry.action == "key.rotated").expect("noted");
    assert_eq!(rotated.actor, Some(house.owner().id));
}

#[test]
fn a_key_has_two_secrets_at_most_and_no_overlap_ends_the_old_one_at_once() {
    let mut house = House::furnished();
    let org = house.acme().id;
    let first = create(&mut house, embed_key());
    let id = first.key.id;
    let opens =
        |house: &House, secret: &Secret| house.identity().api_key(secret.expose(), house.now).is_some();
    let second = rotate(&mut house, id, 600);
    let third = rotate(&mut house, id, 600);
    assert_eq!(
        [opens(&house, &first.secret), opens(&house, &second.secret), opens(&house, &third.secret)],
        [false, true, true]
    );
    let fourth = rotate(&mut house, id, 0);
    for gone in [&first, &second, &third] {
        assert!(!opens(&house, &gone.secret));
    }
    assert!(opens(&house, &fourth.secret));
    rotate(&mut house, id, 600);
    house.identity().delete_key(org, None, id, house.now).expect("deleted");
    assert!(!opens(&house, &fourth.secret));
    assert_eq!(house.identity().rows::<rotation::RotatedRow>(&()).expect("read").len(), 0);
    let gone = Rotation { org, key: id, actor: None, overlap: std::time::Duration::ZERO };
    let refused = house.identity().rotate_key(gone, house.now, &mut house.rng);
    assert!(matches!(refused, Err(KeyError::NotFound)));
}
