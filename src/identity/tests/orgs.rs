//! Organisations and their members (docs/specification.md C3).

use super::*;
use crate::identity::NameError;

fn new_org(text: &str) -> NewOrg {
    NewOrg { slug: slug(text), name: String::new() }
}

/// docs/specification.md A15: "not a member" and "no such organisation" are the same response.
#[test]
fn an_organisation_is_visible_only_to_its_members() {
    let mut instance = TestInstance::with_owner();
    let stranger = instance.add_user("eve@example.org");
    let identity = instance.identity();
    let acme = identity.membership(instance.owner().id, "acme").expect("read").expect("a member");
    assert_eq!(
        (acme.role, acme.org.settings, acme.org.id),
        (Role::Owner, OrgSettings::default(), crate::model::OrgId(1))
    );
    for (user, text) in [
        (stranger, "acme"),
        (stranger, "nothing"),
        (instance.owner().id, "nothing"),
        (instance.owner().id, "../acme"),
    ] {
        assert_eq!(identity.membership(user, text).expect("read"), None, "{text}");
    }
    assert_eq!(identity.memberships(stranger).expect("read"), []);
}

#[test]
fn the_creator_owns_an_organisation_and_slugs_and_numbers_are_never_reused() {
    let mut instance = TestInstance::with_owner();
    let owner = instance.owner().id;
    for (text, number) in [("zeta", 2), ("beta", 3)] {
        let made = instance
            .identity()
            .create_org(owner, new_org(text), instance.now, &mut instance.rng)
            .expect("made");
        assert_eq!((made.role, made.org.id.0), (Role::Owner, number));
    }
    let taken = instance.identity().create_org(owner, new_org("acme"), instance.now, &mut instance.rng);
    assert!(matches!(taken, Err(OrgError::SlugTaken(_))));
    instance.crash();
    let made = instance
        .identity()
        .create_org(owner, new_org("gamma"), instance.now, &mut instance.rng)
        .expect("made");
    assert_eq!(made.org.id.0, 4, "a refused one cost no number");
    let slugs: Vec<String> = instance
        .identity()
        .memberships(owner)
        .expect("read")
        .iter()
        .map(|m| m.org.slug.to_string())
        .collect();
    assert_eq!(slugs, ["acme", "beta", "gamma", "zeta"]);
    assert_eq!(instance.identity().orgs().expect("read").len(), 4);
}

#[test]
fn the_operator_decides_who_may_create_organisations() {
    let mut instance = TestInstance::with_owner();
    let user = instance.add_user("eve@example.org");
    let refused = instance.identity().create_org(user, new_org("eves"), instance.now, &mut instance.rng);
    assert!(matches!(refused, Err(OrgError::Forbidden)));
    let options = IdentityOptions { argon2: CHEAP, org_create: OrgCreate::Any, ..Default::default() };
    instance.restart_with(options, MasterKey([9; 32]));
    instance.identity().create_org(user, new_org("eves"), instance.now, &mut instance.rng).expect("made");
    instance.disable(user);
    let refused = instance.identity().create_org(user, new_org("more"), instance.now, &mut instance.rng);
    assert!(matches!(refused, Err(OrgError::UnknownUser)));
    let long = NewOrg { slug: slug("long"), name: "x".repeat(201) };
    let owner = instance.owner().id;
    assert!(matches!(
        instance.identity().create_org(owner, long, instance.now, &mut instance.rng),
        Err(OrgError::Name(NameError::TooLong(201)))
    ));
}

/// If all accounts may create organisations, none may fill the server with them.
#[test]
fn an_account_owns_at_most_a_hundred_organisations() {
    let options = IdentityOptions { argon2: CHEAP, org_create: OrgCreate::Any, ..Default::default() };
    let mut instance = TestInstance::with_owner();
    instance.restart_with(options, MasterKey([9; 32]));
    let user = instance.add_user("eve@example.org");
    let make = |instance: &mut TestInstance, who: UserId, name: String| {
        instance.identity().create_org(who, new_org(&name), instance.now, &mut instance.rng).map(drop)
    };
    for number in 0..100 {
        make(&mut instance, user, format!("eve-{number}")).expect("made");
    }
    assert!(matches!(make(&mut instance, user, "eve-more".into()), Err(OrgError::TooMany)));
    let org = instance.identity().membership(user, "eve-0").expect("read").expect("hers").org.id;
    instance.identity().delete_org(Some(user), org, instance.now).expect("deleted");
    instance.identity().finish_removal(org).expect("removed");
    make(&mut instance, user, "eve-more".into()).expect("below the limit again");
    let boss = instance.owner().id;
    make(&mut instance, boss, "boss".into()).expect("made");
}

#[test]
fn of_concurrent_requests_for_one_slug_one_succeeds() {
    let instance = TestInstance::with_owner();
    let (identity, owner, now) = (instance.identity(), instance.owner().id, instance.now);
    let won = race(8, |number| {
        identity.create_org(owner, new_org("wanted"), now, &mut Entropy::seeded(number as u64)).is_ok()
    });
    assert_eq!(won.into_iter().filter(|won| *won).count(), 1);
}

/// Numbers are never reused: data stored under an old number would belong to another organisation.
#[test]
fn without_a_free_number_no_organisation_is_created() {
    let mut instance = TestInstance::with_owner();
    instance
        .identity()
        .change(|txn| {
            txn.put(&(), &NextOrgRow(u32::MAX));
            Ok::<_, StoreError>(())
        })
        .expect("stored");
    let (owner, now) = (instance.owner().id, instance.now);
    let refused = instance.identity().create_org(owner, new_org("more"), now, &mut instance.rng);
    assert!(matches!(refused, Err(OrgError::Exhausted)), "{refused:?}");
}

/// Adds a member to `acme`.
fn join(instance: &TestInstance, user: UserId, role: Role) {
    let (org, joined_at) = (instance.acme().id, instance.now);
    instance
        .identity()
        .change(move |txn| {
            txn.put(&(user, org), &MembershipRow { role, joined_at });
            txn.put(&(org, user), &MemberRow);
            Ok::<_, StoreError>(())
        })
        .expect("stored");
}

/// docs/specification.md C3: administrators may lower a limit, only the instance administrator may
/// raise it above the server's default.
#[test]
fn only_the_instance_administrator_raises_above_the_default() {
    let mut instance = TestInstance::with_owner();
    let (boss, admin, org) = (instance.owner().id, instance.add_user("adam@example.org"), instance.acme().id);
    join(&instance, admin, Role::Admin);
    let defaults = OrgSettings { max_series: Limit::At(10), ..OrgSettings::default() };
    let set = |instance: &TestInstance, who: UserId, limit: Limit| {
        let change = OrgChange { settings: vec![(Setting::MaxSeries, limit)], ..OrgChange::default() };
        instance
            .identity()
            .change_org(Some(who), org, change, &defaults, instance.now)
            .map(|org| org.settings.max_series)
    };
    assert_eq!(set(&instance, admin, Limit::At(3)).expect("lower"), Limit::At(3));
    for above in [Limit::At(11), Limit::Unlimited] {
        let refused = set(&instance, admin, above);
        assert!(matches!(refused, Err(OrgChangeError::AboveDefault(Setting::MaxSeries))), "{refused:?}");
    }
    assert_eq!(instance.identity().org_settings(org).max_series, Limit::At(3));
    assert_eq!(set(&instance, boss, Limit::At(50)).expect("raised"), Limit::At(50));
    instance.crash();
    assert_eq!(instance.identity().org_settings(org).max_series, Limit::At(50), "after a restart");
    assert_eq!(set(&instance, admin, Limit::Default).expect("back"), Limit::Default);
    let entries = instance.identity().audit(Some(org), 10).expect("read");
    assert_eq!((entries[0].actor, entries[0].action.as_str()), (Some(admin), "settings.changed"));
    assert!(entries.iter().any(|entry| entry.detail == "max_series=50" && entry.actor == Some(boss)));
    instance.disable(admin);
    assert!(matches!(set(&instance, admin, Limit::At(1)), Err(OrgChangeError::UnknownUser)));
}

#[test]
fn a_change_is_applied_completely_or_not_at_all() {
    let instance = TestInstance::with_owner();
    let (boss, org, now) = (instance.owner().id, instance.acme().id, instance.now);
    let change = |name: String, org| {
        let change = OrgChange {
            name: Some(name),
            settings: vec![(Setting::MaxLabels, Limit::At(9))],
            ..OrgChange::default()
        };
        instance.identity().change_org(Some(boss), org, change, &OrgSettings::default(), now)
    };
    assert!(matches!(change("x".repeat(201), org), Err(OrgChangeError::Name(NameError::TooLong(201)))));
    assert!(matches!(change("x".into(), crate::model::OrgId(9)), Err(OrgChangeError::UnknownOrg)));
    assert_eq!(instance.identity().org_settings(org), OrgSettings::default());
    let changed = change("Acme, Inc.".into(), org).expect("changed");
    assert_eq!((changed.name.as_str(), changed.settings.max_labels), ("Acme, Inc.", Limit::At(9)));
    assert_eq!(instance.acme(), changed);
}

#[test]
fn members_are_listed_in_the_order_they_joined() {
    let mut instance = TestInstance::with_owner();
    instance.advance_ms(1_000);
    let viewer = instance.add_user("vera@example.org");
    join(&instance, viewer, Role::Viewer);
    instance.session();
    let members = instance.identity().members(instance.acme().id, instance.now).expect("read");
    let shown: Vec<_> = members.iter().map(|m| (m.user.email.as_str(), m.role, m.last_seen_at)).collect();
    assert_eq!(shown, [(EMAIL, Role::Owner, Some(instance.now)), ("vera@example.org", Role::Viewer, None)]);
}
