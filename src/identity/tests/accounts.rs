//! What an owner changes about their account: name, address, its end (docs/specification.md C2).

use super::*;
use crate::identity::NameError;
use crate::identity::org::{MemberRow, MembershipRow};

fn join(house: &House, user: UserId, org: &Org, role: Role) {
    let (org, joined_at) = (org.id, house.now);
    house
        .identity()
        .change(move |txn| {
            txn.put(&(user, org), &MembershipRow { role, joined_at });
            txn.put(&(org, user), &MemberRow);
            Ok::<_, StoreError>(())
        })
        .expect("stored");
}

fn admin(house: &House, user: UserId) {
    house
        .identity()
        .change(move |txn| {
            let row = store::read::<user::UserRow>(txn, &user)?.expect("there");
            txn.put(&user, &user::UserRow { is_admin: true, ..row });
            Ok::<_, StoreError>(())
        })
        .expect("stored");
}

#[test]
fn a_name_is_changed_within_200_bytes() {
    let mut house = House::furnished();
    let owner = house.owner().id;
    assert_eq!(house.identity().rename_user(owner, "Ada L.").expect("stored").name, "Ada L.");
    house.crash();
    assert_eq!(house.owner().name, "Ada L.");
    let refused = house.identity().rename_user(owner, &"x".repeat(201));
    assert!(matches!(refused, Err(AccountChangeError::Name(NameError::TooLong(201)))));
    let nobody = UserId::random(&mut house.rng);
    assert!(matches!(house.identity().rename_user(nobody, "x"), Err(AccountChangeError::UnknownUser)));
}

/// Threat 50.
#[test]
fn the_only_owner_and_the_only_administrator_do_not_go() {
    let mut house = House::furnished();
    let (owner, here, acme) = (house.owner().id, client("192.0.2.1"), house.acme());
    let delete = |house: &House| house.identity().delete_user(owner, &here, house.now);
    match delete(&house) {
        Err(AccountChangeError::LastOwner(slug)) => assert_eq!(slug, "acme"),
        other => panic!("{other:?}"),
    }
    let grace = house.add_user("grace@example.org");
    join(&house, grace, &acme, Role::Admin);
    assert!(matches!(delete(&house), Err(AccountChangeError::LastOwner(_))), "an admin is no owner");
    join(&house, grace, &acme, Role::Owner);
    house.disable(grace);
    assert!(
        matches!(delete(&house), Err(AccountChangeError::LastOwner(_))),
        "who cannot log in manages nothing"
    );
    let rosa = house.add_user("rosa@example.org");
    join(&house, rosa, &acme, Role::Owner);
    assert!(matches!(delete(&house), Err(AccountChangeError::LastAdmin)));
    admin(&house, rosa);
    delete(&house).expect("somebody else may");
}

#[test]
fn two_owners_who_leave_at_once_do_not_both_go() {
    let mut house = House::furnished();
    let (owner, acme) = (house.owner().id, house.acme());
    let grace = house.add_user("grace@example.org");
    join(&house, grace, &acme, Role::Owner);
    admin(&house, grace);
    let (identity, now, here) = (house.identity(), house.now, client("192.0.2.1"));
    let both = [owner, grace];
    let gone = race(2, |number| identity.delete_user(both[number], &here, now).is_ok());
    assert_eq!(gone.into_iter().filter(|gone| *gone).count(), 1);
}

#[test]
fn a_deleted_account_leaves_nothing_that_opens_and_frees_its_address() {
    let mut house = House::furnished();
    let acme = house.acme();
    let grace = house.add_user("grace@example.org");
    join(&house, grace, &acme, Role::Editor);
    let login = |house: &mut House| house.login_as("grace@example.org", PASSWORD, "192.0.2.1", None);
    let Ok(LoginOutcome::LoggedIn(session)) = login(&mut house) else { panic!("right") };
    let link = house.identity().issue_login_link(grace, None, house.now, &mut house.rng).expect("made");
    house.identity().enroll_totp(&session.session, house.now, &mut house.rng).expect("begun");
    let here = client("192.0.2.1");
    house.identity().delete_user(grace, &here, house.now).expect("gone");
    for _ in 0..2 {
        assert_eq!(house.check(&session.token), "unknown");
        assert!(matches!(login(&mut house), Err(LoginError::InvalidCredentials)));
        let attempt = LinkLogin {
            token: link.token.expose(),
            proof: LinkProof::Console,
            client: &here,
            replaces: None,
        };
        let now = house.now;
        assert!(house.identity().use_link(&attempt, now, &mut house.rng).is_err());
        assert_eq!(house.identity().members(acme.id, house.now).expect("read").len(), 1);
        assert!(house.identity().row::<totp::TotpRow>(&grace).expect("read").is_none());
        house.crash();
    }
    house.identity().tick(house.now).expect("swept");
    assert_eq!(house.identity().rows::<session::SessionRow>(&()).expect("read").len(), 0);
    let again = house.add_user("grace@example.org");
    assert_ne!(again, grace);
    login(&mut house).expect("a new account of the same address");
}

#[test]
fn who_is_in_many_organisations_leaves_them_all() {
    let mut house = House::furnished();
    let owner = house.owner().id;
    let grace = house.add_user("grace@example.org");
    for number in 0..50 {
        let new = NewOrg { slug: slug(&format!("org-{number}")), name: String::new() };
        let now = house.now;
        let made = house.identity().create_org(owner, new, now, &mut house.rng).expect("made");
        join(&house, grace, &made.org, Role::Viewer);
    }
    house.identity().delete_user(grace, &client("192.0.2.1"), house.now).expect("gone");
    let left = house.identity().rows::<MemberRow>(&()).expect("read");
    assert!(left.iter().all(|((_, user), _)| *user == owner));
    assert!(house.identity().rows::<MembershipRow>(&grace).expect("read").is_empty());
}

fn ask_change(house: &mut House, session: &Session, new: &str) -> Option<Secret> {
    let (email, now) = (Email::parse(new).expect("valid"), house.now);
    let mail = house.identity().request_email_change(session, &email, now, &mut house.rng).expect("stored");
    mail.map(|mail| {
        assert_eq!(mail.to.as_str(), new);
        mail.token
    })
}

#[test]
fn an_address_changes_when_the_new_one_is_read_and_the_old_one_is_named() {
    let mut house = House::furnished();
    let mine = house.session();
    let here = client("192.0.2.1");
    let token = ask_change(&mut house, &mine.session, "ada@new.example").expect("free");
    assert_eq!(house.owner().email.as_str(), EMAIL, "not before");
    let old_link =
        house.identity().issue_login_link(mine.user.id, None, house.now, &mut house.rng).expect("made");
    let changed = house.identity().confirm_email(token.expose(), &here, house.now).expect("right");
    assert_eq!((changed.old.as_str(), changed.new.as_str()), (EMAIL, "ada@new.example"));
    for _ in 0..2 {
        assert!(house.login(PASSWORD).is_err(), "the old address is nobody's");
        house.login_as("ada@new.example", PASSWORD, "192.0.2.1", None).expect("the new one");
        assert_eq!(house.check(&mine.token), "live");
        assert!(house.identity().confirm_email(token.expose(), &here, house.now).is_err(), "once");
        house.crash();
    }
    let attempt = LinkLogin {
        token: old_link.token.expose(),
        proof: LinkProof::Console,
        client: &here,
        replaces: None,
    };
    let now = house.now;
    assert!(
        house.identity().use_link(&attempt, now, &mut house.rng).is_err(),
        "links of the old address end"
    );
}

#[test]
fn a_taken_address_is_not_mailed_and_one_taken_meanwhile_is_refused() {
    let mut house = House::furnished();
    let mine = house.session();
    house.add_user("grace@example.org");
    let here = client("192.0.2.1");
    assert!(ask_change(&mut house, &mine.session, "grace@example.org").is_none());
    let token = ask_change(&mut house, &mine.session, "ada@new.example").expect("free");
    house.add_user("ada@new.example");
    let refused = house.identity().confirm_email(token.expose(), &here, house.now);
    assert!(matches!(refused, Err(AddressChangeError::Taken)));
    assert_eq!(house.owner().email.as_str(), EMAIL);
}

#[test]
fn an_address_link_lives_ten_minutes_and_is_the_accounts_newest() {
    let mut house = House::furnished();
    let mine = house.session();
    let here = client("192.0.2.1");
    let old = ask_change(&mut house, &mine.session, "one@new.example").expect("free");
    let new = ask_change(&mut house, &mine.session, "two@new.example").expect("free");
    assert!(
        house.identity().confirm_email(old.expose(), &here, house.now).is_err(),
        "whichever address it was"
    );
    house.advance_ms(600_000);
    assert!(house.identity().confirm_email(new.expose(), &here, house.now).is_err());
    let newer = ask_change(&mut house, &mine.session, "two@new.example").expect("free");
    let (identity, now) = (house.identity(), house.now);
    let won = race(50, |_| identity.confirm_email(newer.expose(), &here, now).is_ok());
    assert_eq!(won.into_iter().filter(|won| *won).count(), 1);
}
