//! Public links of dashboards (docs/specification.md C9).

use std::collections::BTreeMap;

use super::keys::embed_key;
use super::*;
use crate::identity::tables::dashboard::{DashboardRemovalRow, DocumentRow};
use crate::identity::tables::public_link::{PublicLinkRow, PublicLinkUsedRow};
use crate::model::OrgId;

fn with_links() -> (TestInstance, OrgId) {
    let mut instance = TestInstance::with_owner();
    let org = instance.acme().id;
    allow(&instance, org, true);
    dashboard(&mut instance, org, "node");
    (instance, org)
}

fn allow(instance: &TestInstance, org: OrgId, on: bool) {
    let change = OrgChange { public_links: Some(on), ..OrgChange::default() };
    let defaults = OrgSettings::default();
    instance.identity().change_org(None, org, change, &defaults, instance.now).expect("changed");
}

fn dashboard(instance: &mut TestInstance, org: OrgId, uid: &str) -> Dashboard {
    let text = format!(r#"{{"title":"T","uid":"{uid}"}}"#);
    let packed = DashboardDocument::parse(text).expect("a dashboard").pack().expect("short");
    let write = DashboardWrite { packed, folder: None, message: String::new() };
    let now = instance.now;
    instance.identity().create_dashboard(org, None, write, now, &mut instance.rng).expect("made")
}

fn new_link(uid: &str) -> NewPublicLink {
    let tenant = LockedVariable { label: None, values: vec!["t42".into()] };
    NewPublicLink {
        name: "for a customer".into(),
        dashboard: DashboardPolicy {
            uid: uid.into(),
            locked: BTreeMap::from([("tenant".to_owned(), tenant)]),
            open: BTreeMap::from([("route".to_owned(), None)]),
        },
        max_range_s: Some(3_600),
        max_lookback_s: None,
        min_step_s: None,
        origins: vec!["*".into()],
        rate_limit_rps: LINK_RATE_DEFAULT,
        query_seconds_per_minute: LINK_QUERY_SECONDS_DEFAULT,
        expires_at: None,
    }
}

fn create(
    instance: &mut TestInstance,
    org: OrgId,
    link: NewPublicLink,
) -> Result<Arc<PublicLink>, PublicLinkError> {
    let now = instance.now;
    instance.identity().create_public_link(org, None, link, now, &mut instance.rng)
}

/// Creates a link of the dashboard `node`. Returns it with its key and its secret.
fn created(instance: &mut TestInstance, org: OrgId) -> (Arc<PublicLink>, LinkKey, Secret) {
    let link = create(instance, org, new_link("node")).expect("made");
    let secret = instance.identity().public_link_secret(&link).expect("sealed");
    let key = (org, link.dashboard.clone(), link.key.id);
    (link, key, secret)
}

fn refusal(instance: &TestInstance, secret: &Secret) -> Option<PublicLinkRefusal> {
    instance.identity().find_public_link(secret.expose(), instance.now).err()
}

#[test]
fn only_the_secret_identifies_a_link_and_only_the_master_key_shows_it_again() {
    let (mut instance, org) = with_links();
    let (link, _, secret) = created(&mut instance, org);
    assert!(secret.expose().starts_with("mpl_") && secret.expose().len() == 67);
    assert_eq!(&secret.expose()[4..20], &link.key.id.to_string()[3..]);
    assert_eq!(refusal(&instance, &secret), None);
    instance.restart();
    assert_eq!(refusal(&instance, &secret), None, "after a restart");
    let bytes = instance.bytes();
    let random = &secret.expose()[21..61];
    assert!(!bytes.windows(random.len()).any(|window| window == random.as_bytes()), "not in the folder");

    let text = secret.expose();
    let mut flipped = text.to_owned();
    flipped.replace_range(30..31, if &text[30..31] == "a" { "b" } else { "a" });
    let as_key = text.replace("mpl_", "msk_");
    for foreign in ["", "mpl_", &text[..66], &format!("{text}0"), &flipped, &as_key, "mpl_\u{e4}"] {
        let found = instance.identity().find_public_link(foreign, instance.now);
        assert_eq!(found.err(), Some(PublicLinkRefusal::Unknown), "{foreign}");
    }
    assert!(instance.identity().api_key(text, instance.now).is_none(), "a link is no key");
    assert!(instance.identity().api_key(&as_key, instance.now).is_none());

    // Another master key does not open the secret. A new one keeps links valid.
    let options = instance.options.clone();
    instance.restart_with(options, MasterKey([8; 32]));
    let link = instance.identity().public_links(org, "node").remove(0);
    assert!(instance.identity().public_link_secret(&link).is_none());
    assert_eq!(instance.identity().drop_sealed(instance.now).expect("dropped").public_links, 1);
    let link = instance.identity().public_links(org, "node").remove(0);
    assert!(instance.identity().public_link_secret(&link).is_none());
    assert_eq!(refusal(&instance, &secret), None);
}

#[test]
fn a_link_grants_its_dashboard_with_the_lock_as_a_matcher_and_nothing_else() {
    let (mut instance, org) = with_links();
    let (link, ..) = created(&mut instance, org);
    let grant = instance.identity().use_public_link(&link, instance.now).expect("granted");
    let matchers: Vec<String> = grant.scope.matchers.iter().map(ToString::to_string).collect();
    assert_eq!(matchers, [r#"tenant="t42""#]);
    assert_eq!((grant.org, grant.key, grant.max_range_s), (org, link.key.id, Some(3_600)));
    assert_eq!(grant.endpoints.as_deref(), Some(&[Endpoint::Dashboard][..]));
    let all = [Endpoint::Metrics, Endpoint::Labels, Endpoint::Range, Endpoint::Instant, Endpoint::Expr];
    assert!(grant.allows(Endpoint::Dashboard) && !all.iter().any(|endpoint| grant.allows(*endpoint)));
    let dashboard = grant.dashboard.expect("one");
    assert_eq!(dashboard.uid, "node");
    assert_eq!(dashboard.locked["tenant"], ["t42"]);
    assert!(dashboard.open.contains_key("route"));
}

#[test]
fn a_link_grants_what_a_token_of_a_key_with_its_policy_grants() {
    let (mut instance, org) = with_links();
    let (link, ..) = created(&mut instance, org);
    let embed = EmbedSettings { policy: link.key.embed.policy.clone(), ..EmbedSettings::default() };
    let now = instance.now;
    let key = instance
        .identity()
        .create_key(org, None, NewApiKey { embed, ..embed_key() }, now, &mut instance.rng)
        .expect("made");
    let mint = MintRequest { key: key.key.id, ttl_s: 60, sub: None, ms: None };
    let token = instance.identity().mint(org, &mint, now).expect("minted").token;
    let request = EmbedRequest { token: token.expose(), slug: "acme", origin: None };
    let of_token = instance.identity().embed(&request, now).expect("granted");
    let of_link = instance.identity().use_public_link(&link, now).expect("granted");
    let granted = |grant: &EmbedGrant| {
        let EmbedGrant { scope, endpoints, dashboard, exprs, origins, .. } = grant;
        let numbers = (grant.max_range_s, grant.max_lookback_s, grant.min_step_s);
        format!("{scope:?} {endpoints:?} {dashboard:?} {exprs:?} {origins:?} {numbers:?}")
    };
    assert_eq!(granted(&of_link), granted(&of_token));
}

#[test]
fn a_link_is_refused_at_once_when_it_is_changed_disabled_expired_deleted_or_turned_off() {
    let (mut instance, org) = with_links();
    let (link, key, secret) = created(&mut instance, org);
    let standing =
        |instance: &TestInstance, link| instance.identity().recheck_public_link(link, instance.now).err();
    let change = |instance: &TestInstance, change: PublicLinkChange| {
        let identity = instance.identity();
        identity.change_public_link(&key, None, change, instance.now).expect("changed")
    };
    assert_eq!(standing(&instance, &link), None);

    let renamed = change(&instance, PublicLinkChange { name: Some("b".into()), ..Default::default() });
    assert_eq!(standing(&instance, &link), Some(PublicLinkRefusal::Changed));
    assert_eq!((standing(&instance, &renamed), refusal(&instance, &secret)), (None, None));

    allow(&instance, org, false);
    assert_eq!(standing(&instance, &renamed), Some(PublicLinkRefusal::Off));
    assert_eq!(refusal(&instance, &secret), Some(PublicLinkRefusal::Off));
    let made = create(&mut instance, org, new_link("node"));
    assert!(matches!(made, Err(PublicLinkError::Off)));
    let enable = PublicLinkChange { disabled: Some(false), ..Default::default() };
    let enabled = instance.identity().change_public_link(&key, None, enable, instance.now);
    assert!(matches!(enabled, Err(PublicLinkError::Off)));
    allow(&instance, org, true);
    assert_eq!(refusal(&instance, &secret), None);

    let set = |disabled| PublicLinkChange { disabled: Some(disabled), ..Default::default() };
    let disabled = change(&instance, set(true));
    assert_eq!(refusal(&instance, &secret), Some(PublicLinkRefusal::Disabled));
    assert_eq!(standing(&instance, &renamed), Some(PublicLinkRefusal::Disabled));
    assert_eq!(standing(&instance, &disabled), Some(PublicLinkRefusal::Disabled));
    change(&instance, set(false));
    assert_eq!(refusal(&instance, &secret), None);

    let soon = Some(instance.now.plus_ms(60_000));
    let ending = change(&instance, PublicLinkChange { expires_at: Some(soon), ..Default::default() });
    instance.advance_ms(59_999);
    assert_eq!((standing(&instance, &ending), refusal(&instance, &secret)), (None, None));
    instance.advance_ms(1);
    assert_eq!(standing(&instance, &ending), Some(PublicLinkRefusal::Expired));
    assert_eq!(refusal(&instance, &secret), Some(PublicLinkRefusal::Expired));
    let endless = change(&instance, PublicLinkChange { expires_at: Some(None), ..Default::default() });
    assert_eq!(refusal(&instance, &secret), None);

    instance.identity().delete_public_link(&key, None, instance.now).expect("deleted");
    assert_eq!(standing(&instance, &endless), Some(PublicLinkRefusal::Unknown));
    assert_eq!(refusal(&instance, &secret), Some(PublicLinkRefusal::Unknown));
    let again = instance.identity().delete_public_link(&key, None, instance.now);
    assert!(matches!(again, Err(PublicLinkError::NotFound(_))));
    instance.crash();
    assert_eq!(refusal(&instance, &secret), Some(PublicLinkRefusal::Unknown));
}

#[test]
fn links_of_another_organisation_or_dashboard_are_not_found() {
    let (mut instance, org) = with_links();
    let (owner, now) = (instance.owner().id, instance.now);
    let other = NewOrg { slug: slug("other"), name: String::new() };
    let other = instance.identity().create_org(owner, other, now, &mut instance.rng).expect("made").org.id;
    allow(&instance, other, true);
    dashboard(&mut instance, org, "second");
    let (link, _, secret) = created(&mut instance, org);
    let nothing = create(&mut instance, other, new_link("node"));
    assert!(matches!(nothing, Err(PublicLinkError::NotFound(_))), "a dashboard of another organisation");
    for key in [(other, "node".to_owned(), link.key.id), (org, "second".to_owned(), link.key.id)] {
        let identity = instance.identity();
        assert!(identity.public_link(&key).is_none());
        let change = PublicLinkChange { disabled: Some(true), ..Default::default() };
        let changed = identity.change_public_link(&key, None, change, now);
        assert!(matches!(changed, Err(PublicLinkError::NotFound(_))));
        assert!(matches!(identity.delete_public_link(&key, None, now), Err(PublicLinkError::NotFound(_))));
    }
    assert_eq!(refusal(&instance, &secret), None);
    assert!(instance.identity().public_links(other, "node").is_empty());
}

#[test]
fn a_deleted_dashboard_takes_its_links_along_and_a_new_one_of_its_uid_has_none() {
    let (mut instance, org) = with_links();
    let (link, key, secret) = created(&mut instance, org);
    instance.identity().use_public_link(&link, instance.now).expect("granted");
    instance.identity().tick(instance.now).expect("written");
    let rows = |instance: &TestInstance| {
        let identity = instance.identity();
        let links = identity.rows::<PublicLinkRow>(&org).expect("read");
        (links, identity.rows::<PublicLinkUsedRow>(&org).expect("read").len())
    };
    let (stored, used) = rows(&instance);
    assert_eq!((stored.len(), used), (1, 1));
    let identity = instance.identity();
    let documents = identity.rows::<DocumentRow>(&org).expect("read");
    identity.delete_dashboard(org, None, "node", ExpectedVersion::Any, instance.now).expect("deleted");
    assert_eq!(refusal(&instance, &secret), Some(PublicLinkRefusal::Unknown));
    let standing = identity.recheck_public_link(&link, instance.now);
    assert_eq!(standing, Err(PublicLinkRefusal::Unknown));
    let (left, used) = rows(&instance);
    assert_eq!((left.len(), used), (0, 0));

    // Simulates a process that ends after the change that deletes the dashboard.
    let row = stored[0].1.clone();
    let link_key = key.clone();
    identity
        .change(move |txn| {
            txn.put(&link_key, &row);
            for (key, row) in &documents {
                txn.put(key, row);
            }
            txn.put(&(org, "node".to_owned(), 1), &DashboardRemovalRow(vec![(1, 10)]));
            Ok::<_, StoreError>(())
        })
        .expect("stored");
    drop(identity);
    instance.crash();
    assert_eq!(refusal(&instance, &secret), Some(PublicLinkRefusal::Unknown), "not loaded");
    let change = PublicLinkChange { disabled: Some(false), ..Default::default() };
    let changed = instance.identity().change_public_link(&key, None, change, instance.now);
    assert!(matches!(changed, Err(PublicLinkError::NotFound(_))), "and not brought back by a change");
    instance.identity().drop_sealed(instance.now).expect("dropped");
    assert_eq!(refusal(&instance, &secret), Some(PublicLinkRefusal::Unknown), "nor by a new master key");
    assert_eq!(dashboard(&mut instance, org, "node").version, 2);
    let (_, _, fresh) = created(&mut instance, org);
    instance.identity().tick(instance.now).expect("written");
    assert_eq!(rows(&instance).0.len(), 1, "the link of the deleted dashboard is removed");
    assert_eq!(refusal(&instance, &secret), Some(PublicLinkRefusal::Unknown));
    assert_eq!(refusal(&instance, &fresh), None, "that of the new one stays");
}

#[test]
fn a_provisioned_dashboard_has_links_whose_streams_end_with_its_file() {
    let (mut instance, org) = with_links();
    let provision = |instance: &TestInstance, uids: &[&str]| {
        let one = |uid: &&str| {
            let text = r#"{"title":"T"}"#.to_owned();
            let document = DashboardDocument::parse(text).expect("a dashboard");
            let file = ProvisionedDashboard::new((*uid).to_owned(), &document, String::new(), instance.now);
            ((*uid).to_owned(), Arc::new(file))
        };
        instance.identity().set_provisioned_dashboards(uids.iter().map(one).collect());
    };
    provision(&instance, &["file", "other"]);
    let link = create(&mut instance, org, new_link("file")).expect("made");
    let (node, ..) = created(&mut instance, org);
    let secret = instance.identity().public_link_secret(&link).expect("sealed");
    let shared = instance.identity().shared_by_link(secret.expose(), instance.now).expect("shared");
    assert_eq!((shared.slug.as_str(), shared.uid.as_str()), ("acme", "file"));
    provision(&instance, &["file"]);
    assert_eq!(instance.identity().recheck_public_link(&link, instance.now), Ok(()));
    provision(&instance, &["other"]);
    let standing = instance.identity().recheck_public_link(&link, instance.now);
    assert_eq!(standing, Err(PublicLinkRefusal::Changed), "its streams end");
    assert_eq!(instance.identity().recheck_public_link(&node, instance.now), Ok(()));
    let shared = instance.identity().shared_by_link(secret.expose(), instance.now);
    assert_eq!(shared, Err(PublicLinkRefusal::Unknown));
    provision(&instance, &["file"]);
    assert!(instance.identity().shared_by_link(secret.expose(), instance.now).is_ok());
    instance.crash();
    assert_eq!(refusal(&instance, &secret), None);
    assert!(create(&mut instance, org, new_link("file")).is_err(), "the files are not read yet");
}

#[test]
fn nothing_of_the_links_of_a_deleted_organisation_remains() {
    let (mut instance, org) = with_links();
    let (link, _, secret) = created(&mut instance, org);
    instance.identity().use_public_link(&link, instance.now).expect("granted");
    instance.identity().tick(instance.now).expect("written");
    instance.identity().delete_org(None, org, instance.now).expect("deleted");
    assert!(instance.identity().recheck_public_link(&link, instance.now).is_err());
    assert_eq!(refusal(&instance, &secret), Some(PublicLinkRefusal::Unknown));
    assert!(create(&mut instance, org, new_link("node")).is_err());
    instance.crash();
    assert_eq!(refusal(&instance, &secret), Some(PublicLinkRefusal::Unknown));
    instance.identity().finish_removal(org).expect("removed");
    assert!(instance.identity().rows::<PublicLinkRow>(&()).expect("read").is_empty());
    assert!(instance.identity().rows::<PublicLinkUsedRow>(&()).expect("read").is_empty());
}

#[test]
fn dashboards_and_organisations_have_a_limited_number_of_links() {
    let (mut instance, org) = with_links();
    for _ in 0..DASHBOARD_LINKS_MAX - 4 {
        create(&mut instance, org, new_link("node")).expect("made");
    }
    let (identity, now) = (instance.identity(), instance.now);
    let made = race(8, |seed| {
        let mut rng = Entropy::seeded(1_000 + seed as u64);
        identity.create_public_link(org, None, new_link("node"), now, &mut rng).is_ok()
    });
    assert_eq!(made.iter().filter(|made| **made).count(), 4, "concurrent requests do not exceed it");
    assert_eq!(identity.public_links(org, "node").len(), DASHBOARD_LINKS_MAX);
    let beyond = create(&mut instance, org, new_link("node")).expect_err("full");
    assert!(beyond.to_string().contains("100 public links"), "{beyond}");
    for number in 1..ORG_LINKS_MAX / DASHBOARD_LINKS_MAX {
        let uid = format!("d{number}");
        dashboard(&mut instance, org, &uid);
        for _ in 0..DASHBOARD_LINKS_MAX {
            create(&mut instance, org, new_link(&uid)).expect("made");
        }
    }
    dashboard(&mut instance, org, "last");
    let beyond = create(&mut instance, org, new_link("last")).expect_err("full");
    assert!(beyond.to_string().contains("1000 public links"), "{beyond}");
    // A dashboard with the most links is deleted in several changes.
    let identity = instance.identity();
    identity.delete_dashboard(org, None, "node", ExpectedVersion::Any, instance.now).expect("deleted");
    let rows = identity.rows::<PublicLinkRow>(&org).expect("read");
    assert_eq!(rows.len(), ORG_LINKS_MAX - DASHBOARD_LINKS_MAX);
    create(&mut instance, org, new_link("last")).expect("room again");
}

#[test]
fn invalid_settings_of_a_link_name_their_field() {
    let (mut instance, org) = with_links();
    let locked = |name: &str, label: Option<&str>, values: Vec<String>| {
        let mut link = new_link("node");
        let locked = LockedVariable { label: label.map(str::to_owned), values };
        link.dashboard.locked = BTreeMap::from([(name.to_owned(), locked)]);
        link
    };
    let large: Vec<String> = (0..64).map(|n| format!("{n:0>200}")).collect();
    let mut all_large = new_link("node");
    for n in 0..16 {
        let locked = LockedVariable { label: None, values: large.clone() };
        all_large.dashboard.locked.insert(format!("v{n}"), locked);
    }
    let base = || new_link("node");
    let cases = [
        ("name", NewPublicLink { name: "x".repeat(201), ..base() }),
        ("name", NewPublicLink { name: "a\u{202e}b".into(), ..base() }),
        ("expires_at", NewPublicLink { expires_at: Some(instance.now), ..base() }),
        ("rate_limit_rps", NewPublicLink { rate_limit_rps: 0, ..base() }),
        ("rate_limit_rps", NewPublicLink { rate_limit_rps: 10_001, ..base() }),
        ("query_seconds_per_minute", NewPublicLink { query_seconds_per_minute: 0, ..base() }),
        ("query_seconds_per_minute", NewPublicLink { query_seconds_per_minute: 3_601, ..base() }),
        ("origins", NewPublicLink { origins: vec!["https://a.example/".into()], ..base() }),
        ("origins", NewPublicLink { origins: vec!["https://a.example; script-src *".into()], ..base() }),
        ("origins", NewPublicLink { origins: vec!["'self'".into()], ..base() }),
        ("origins", NewPublicLink { origins: vec!["*".into(); 33], ..base() }),
        ("locked", locked("tenant", None, Vec::new())),
        ("locked", locked("tenant", Some(""), vec!["a".into()])),
        ("locked", locked("__range", None, vec!["a".into()])),
        ("locked", all_large),
    ];
    for (field, link) in cases {
        let Err(PublicLinkError::Validation(errors)) = create(&mut instance, org, link) else {
            panic!("{field} is accepted")
        };
        assert_eq!(errors.first().map(|error| error.field), Some(field), "{errors:?}");
    }
    // The variable is locked and open at once.
    let mut both = base();
    both.dashboard.open.insert("tenant".into(), None);
    assert!(matches!(create(&mut instance, org, both), Err(PublicLinkError::Validation(_))));
    assert!(instance.identity().public_links(org, "node").is_empty());
}
