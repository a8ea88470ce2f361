//! Organisations and who belongs to them (API.md C3).

use super::*;

fn new_org(text: &str) -> NewOrg {
    NewOrg { slug: slug(text), name: String::new() }
}

/// API.md A15: not a member and not there are one answer.
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
        Err(OrgError::NameTooLong(201))
    ));
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
