//! Organisations and who belongs to them (docs/specification.md C3).

use super::*;
use crate::identity::NameError;

fn new_org(text: &str) -> NewOrg {
    NewOrg { slug: slug(text), name: String::new() }
}

/// docs/specification.md A15: not a member and not there are one answer.
#[test]
fn an_organisation_is_there_only_for_its_members() {
    let mut house = House::furnished();
    let stranger = house.add_user("eve@example.org");
    let identity = house.identity();
    let acme = identity.membership(house.owner().id, "acme").expect("read").expect("a member");
    assert_eq!(
        (acme.role, acme.org.settings, acme.org.id),
        (Role::Owner, OrgSettings::default(), crate::model::OrgId(1))
    );
    for (user, text) in [
        (stranger, "acme"),
        (stranger, "nothing"),
        (house.owner().id, "nothing"),
        (house.owner().id, "../acme"),
    ] {
        assert_eq!(identity.membership(user, text).expect("read"), None, "{text}");
    }
    assert_eq!(identity.memberships(stranger).expect("read"), []);
}

#[test]
fn the_creator_owns_it_and_a_slug_or_number_is_never_given_twice() {
    let mut house = House::furnished();
    let owner = house.owner().id;
    for (text, number) in [("zeta", 2), ("beta", 3)] {
        let made =
            house.identity().create_org(owner, new_org(text), house.now, &mut house.rng).expect("made");
        assert_eq!((made.role, made.org.id.0), (Role::Owner, number));
    }
    let taken = house.identity().create_org(owner, new_org("acme"), house.now, &mut house.rng);
    assert!(matches!(taken, Err(OrgError::SlugTaken(_))));
    house.crash();
    let made = house.identity().create_org(owner, new_org("gamma"), house.now, &mut house.rng).expect("made");
    assert_eq!(made.org.id.0, 4, "a refused one cost no number");
    let slugs: Vec<String> =
        house.identity().memberships(owner).expect("read").iter().map(|m| m.org.slug.to_string()).collect();
    assert_eq!(slugs, ["acme", "beta", "gamma", "zeta"]);
    assert_eq!(house.identity().orgs().expect("read").len(), 4);
}

#[test]
fn who_may_make_organisations_is_the_operators_choice() {
    let mut house = House::furnished();
    let user = house.add_user("eve@example.org");
    let refused = house.identity().create_org(user, new_org("eves"), house.now, &mut house.rng);
    assert!(matches!(refused, Err(OrgError::Forbidden)));
    let options = IdentityOptions { argon2: CHEAP, org_create: OrgCreate::Any, ..Default::default() };
    house.restart_with(options, MasterKey([9; 32]));
    house.identity().create_org(user, new_org("eves"), house.now, &mut house.rng).expect("made");
    house.disable(user);
    let refused = house.identity().create_org(user, new_org("more"), house.now, &mut house.rng);
    assert!(matches!(refused, Err(OrgError::UnknownUser)));
    let long = NewOrg { slug: slug("long"), name: "x".repeat(201) };
    let owner = house.owner().id;
    assert!(matches!(
        house.identity().create_org(owner, long, house.now, &mut house.rng),
        Err(OrgError::Name(NameError::TooLong(201)))
    ));
}

/// Where everybody may make organisations, nobody fills the server with them.
#[test]
fn an_account_owns_so_many_organisations_and_no_more() {
    let options = IdentityOptions { argon2: CHEAP, org_create: OrgCreate::Any, ..Default::default() };
    let mut house = House::furnished();
    house.restart_with(options, MasterKey([9; 32]));
    let user = house.add_user("eve@example.org");
    let make = |house: &mut House, who: UserId, name: String| {
        house.identity().create_org(who, new_org(&name), house.now, &mut house.rng).map(drop)
    };
    for number in 0..100 {
        make(&mut house, user, format!("eve-{number}")).expect("made");
    }
    assert!(matches!(make(&mut house, user, "eve-more".into()), Err(OrgError::TooMany)));
    let org = house.identity().membership(user, "eve-0").expect("read").expect("hers").org.id;
    house.identity().delete_org(Some(user), org, house.now).expect("deleted");
    house.identity().finish_removal(org).expect("removed");
    make(&mut house, user, "eve-more".into()).expect("there is room again");
    let boss = house.owner().id;
    make(&mut house, boss, "boss".into()).expect("made");
}

#[test]
fn of_many_with_one_slug_one_is_made() {
    let house = House::furnished();
    let (identity, owner, now) = (house.identity(), house.owner().id, house.now);
    let won = race(8, |number| {
        identity.create_org(owner, new_org("wanted"), now, &mut Entropy::seeded(number as u64)).is_ok()
    });
    assert_eq!(won.into_iter().filter(|won| *won).count(), 1);
}

/// Numbers are never given twice: what is stored under one that was somebody's would be somebody else's.
#[test]
fn where_no_number_is_left_no_organisation_is_made() {
    let mut house = House::furnished();
    house
        .identity()
        .change(|txn| {
            txn.put(&(), &org::NextOrgRow(u32::MAX));
            Ok::<_, StoreError>(())
        })
        .expect("stored");
    let (owner, now) = (house.owner().id, house.now);
    let refused = house.identity().create_org(owner, new_org("more"), now, &mut house.rng);
    assert!(matches!(refused, Err(OrgError::Exhausted)), "{refused:?}");
}

/// Puts somebody into `acme`.
fn join(house: &House, user: UserId, role: Role) {
    let (org, joined_at) = (house.acme().id, house.now);
    house
        .identity()
        .change(move |txn| {
            txn.put(&(user, org), &org::MembershipRow { role, joined_at });
            txn.put(&(org, user), &org::MemberRow);
            Ok::<_, StoreError>(())
        })
        .expect("stored");
}

/// docs/specification.md C3: admins may lower, only the instance administrator raises above the server's default.
#[test]
fn only_the_instance_administrator_raises_above_the_default() {
    let mut house = House::furnished();
    let (boss, admin, org) = (house.owner().id, house.add_user("adam@example.org"), house.acme().id);
    join(&house, admin, Role::Admin);
    let defaults = OrgSettings { max_series: Limit::At(10), ..OrgSettings::default() };
    let set = |house: &House, who: UserId, limit: Limit| {
        let change = OrgChange { name: None, settings: vec![(Setting::MaxSeries, limit)] };
        house
            .identity()
            .change_org(Some(who), org, change, &defaults, house.now)
            .map(|org| org.settings.max_series)
    };
    assert_eq!(set(&house, admin, Limit::At(3)).expect("lower"), Limit::At(3));
    for above in [Limit::At(11), Limit::Unlimited] {
        let refused = set(&house, admin, above);
        assert!(matches!(refused, Err(OrgChangeError::AboveDefault(Setting::MaxSeries))), "{refused:?}");
    }
    assert_eq!(house.identity().org_settings(org).max_series, Limit::At(3));
    assert_eq!(set(&house, boss, Limit::At(50)).expect("raised"), Limit::At(50));
    house.crash();
    assert_eq!(house.identity().org_settings(org).max_series, Limit::At(50), "after a restart");
    assert_eq!(set(&house, admin, Limit::Default).expect("back"), Limit::Default);
    let said = house.identity().audit(Some(org), 10).expect("read");
    assert_eq!((said[0].actor, said[0].action.as_str()), (Some(admin), "settings.changed"));
    assert!(said.iter().any(|entry| entry.detail == "max_series=50" && entry.actor == Some(boss)));
    house.disable(admin);
    assert!(matches!(set(&house, admin, Limit::At(1)), Err(OrgChangeError::UnknownUser)));
}

#[test]
fn a_change_is_whole_or_not_at_all() {
    let house = House::furnished();
    let (boss, org, now) = (house.owner().id, house.acme().id, house.now);
    let change = |name: String, org| {
        let change = OrgChange { name: Some(name), settings: vec![(Setting::MaxLabels, Limit::At(9))] };
        house.identity().change_org(Some(boss), org, change, &OrgSettings::default(), now)
    };
    assert!(matches!(change("x".repeat(201), org), Err(OrgChangeError::Name(NameError::TooLong(201)))));
    assert!(matches!(change("x".into(), crate::model::OrgId(9)), Err(OrgChangeError::UnknownOrg)));
    assert_eq!(house.identity().org_settings(org), OrgSettings::default());
    let changed = change("Acme, Inc.".into(), org).expect("changed");
    assert_eq!((changed.name.as_str(), changed.settings.max_labels), ("Acme, Inc.", Limit::At(9)));
    assert_eq!(house.acme(), changed);
}

#[test]
fn members_are_listed_in_the_order_they_joined() {
    let mut house = House::furnished();
    house.advance_ms(1_000);
    let viewer = house.add_user("vera@example.org");
    join(&house, viewer, Role::Viewer);
    house.session();
    let members = house.identity().members(house.acme().id, house.now).expect("read");
    let shown: Vec<_> = members.iter().map(|m| (m.user.email.as_str(), m.role, m.last_seen_at)).collect();
    assert_eq!(shown, [(EMAIL, Role::Owner, Some(house.now)), ("vera@example.org", Role::Viewer, None)]);
}
