//! Changes that owners make to their own account: name, address, deletion (docs/specification.md
//! C2).

use super::*;
use crate::identity::NameError;
use crate::identity::tables::org::{MemberRow, MembershipRow};

fn join(instance: &TestInstance, user: UserId, org: &Org, role: Role) {
    let (org, joined_at) = (org.id, instance.now);
    instance
        .identity()
        .change(move |txn| {
            txn.put(&(user, org), &MembershipRow { role, joined_at });
            txn.put(&(org, user), &MemberRow);
            Ok::<_, StoreError>(())
        })
        .expect("stored");
}

fn admin(instance: &TestInstance, user: UserId) {
    instance
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
    let mut instance = TestInstance::with_owner();
    let owner = instance.owner().id;
    assert_eq!(instance.identity().rename_user(owner, "Ada L.").expect("stored").name, "Ada L.");
    instance.crash();
    assert_eq!(instance.owner().name, "Ada L.");
    let refused = instance.identity().rename_user(owner, &"x".repeat(201));
    assert!(matches!(refused, Err(AccountChangeError::Name(NameError::TooLong(201)))));
    let nobody = UserId::random(&mut instance.rng);
    assert!(matches!(instance.identity().rename_user(nobody, "x"), Err(AccountChangeError::UnknownUser)));
}

/// Threat 50.
#[test]
fn the_only_owner_and_the_only_administrator_cannot_be_deleted() {
    let mut instance = TestInstance::with_owner();
    let (owner, here, acme) = (instance.owner().id, client("192.0.2.1"), instance.acme());
    let delete = |instance: &TestInstance| instance.identity().delete_user(owner, &here, instance.now);
    match delete(&instance) {
        Err(AccountChangeError::LastOwner(slug)) => assert_eq!(slug, "acme"),
        other => panic!("{other:?}"),
    }
    let grace = instance.add_user("grace@example.org");
    join(&instance, grace, &acme, Role::Admin);
    assert!(matches!(delete(&instance), Err(AccountChangeError::LastOwner(_))), "an admin is not an owner");
    join(&instance, grace, &acme, Role::Owner);
    instance.disable(grace);
    assert!(
        matches!(delete(&instance), Err(AccountChangeError::LastOwner(_))),
        "a disabled owner does not count"
    );
    let rosa = instance.add_user("rosa@example.org");
    join(&instance, rosa, &acme, Role::Owner);
    assert!(matches!(delete(&instance), Err(AccountChangeError::LastAdmin)));
    admin(&instance, rosa);
    delete(&instance).expect("another owner and administrator exists");
}

#[test]
fn of_two_owners_deleted_concurrently_one_stays() {
    let mut instance = TestInstance::with_owner();
    let (owner, acme) = (instance.owner().id, instance.acme());
    let grace = instance.add_user("grace@example.org");
    join(&instance, grace, &acme, Role::Owner);
    admin(&instance, grace);
    let (identity, now, here) = (instance.identity(), instance.now, client("192.0.2.1"));
    let both = [owner, grace];
    let gone = race(2, |number| identity.delete_user(both[number], &here, now).is_ok());
    assert_eq!(gone.into_iter().filter(|gone| *gone).count(), 1);
}

#[test]
fn a_deleted_account_leaves_no_access_and_frees_its_address() {
    let mut instance = TestInstance::with_owner();
    let acme = instance.acme();
    let grace = instance.add_user("grace@example.org");
    join(&instance, grace, &acme, Role::Editor);
    let login =
        |instance: &mut TestInstance| instance.login_as("grace@example.org", PASSWORD, "192.0.2.1", None);
    let Ok(LoginOutcome::LoggedIn(session)) = login(&mut instance) else { panic!("right") };
    let link =
        instance.identity().issue_login_link(grace, None, instance.now, &mut instance.rng).expect("made");
    instance.identity().enroll_totp(&session.session, instance.now, &mut instance.rng).expect("begun");
    let here = client("192.0.2.1");
    instance.identity().delete_user(grace, &here, instance.now).expect("gone");
    for _ in 0..2 {
        assert_eq!(instance.check(&session.token), "unknown");
        assert!(matches!(login(&mut instance), Err(LoginError::InvalidCredentials)));
        let attempt = LinkLogin {
            token: link.token.expose(),
            proof: LinkProof::Console,
            client: &here,
            replaces: None,
        };
        let now = instance.now;
        assert!(instance.identity().use_link(&attempt, now, &mut instance.rng).is_err());
        assert_eq!(instance.identity().members(acme.id, instance.now).expect("read").len(), 1);
        assert!(instance.identity().row::<TotpRow>(&grace).expect("read").is_none());
        instance.crash();
    }
    instance.identity().tick(instance.now).expect("swept");
    assert_eq!(instance.identity().rows::<SessionRow>(&()).expect("read").len(), 0);
    let again = instance.add_user("grace@example.org");
    assert_ne!(again, grace);
    login(&mut instance).expect("a new account of the same address");
}

#[test]
fn a_deleted_member_of_many_organisations_leaves_them_all() {
    let mut instance = TestInstance::with_owner();
    let owner = instance.owner().id;
    let grace = instance.add_user("grace@example.org");
    for number in 0..50 {
        let new = NewOrg { slug: slug(&format!("org-{number}")), name: String::new() };
        let now = instance.now;
        let made = instance.identity().create_org(owner, new, now, &mut instance.rng).expect("made");
        join(&instance, grace, &made.org, Role::Viewer);
    }
    instance.identity().delete_user(grace, &client("192.0.2.1"), instance.now).expect("gone");
    let left = instance.identity().rows::<MemberRow>(&()).expect("read");
    assert!(left.iter().all(|((_, user), _)| *user == owner));
    assert!(instance.identity().rows::<MembershipRow>(&grace).expect("read").is_empty());
}

fn ask_change(instance: &mut TestInstance, session: &Session, new: &str) -> Option<Secret> {
    let (email, now) = (Email::parse(new).expect("valid"), instance.now);
    let mail =
        instance.identity().request_email_change(session, &email, now, &mut instance.rng).expect("stored");
    mail.map(|mail| {
        assert_eq!(mail.to.as_str(), new);
        mail.token
    })
}

#[test]
fn an_address_changes_once_the_new_one_is_confirmed_and_the_old_one_is_reported() {
    let mut instance = TestInstance::with_owner();
    let mine = instance.session();
    let here = client("192.0.2.1");
    let token = ask_change(&mut instance, &mine.session, "ada@new.example").expect("free");
    assert_eq!(instance.owner().email.as_str(), EMAIL, "unchanged before the confirmation");
    let old_link = instance
        .identity()
        .issue_login_link(mine.user.id, None, instance.now, &mut instance.rng)
        .expect("made");
    let changed = instance.identity().confirm_email(token.expose(), &here, instance.now).expect("right");
    assert_eq!((changed.old.as_str(), changed.new.as_str()), (EMAIL, "ada@new.example"));
    for _ in 0..2 {
        assert!(instance.login(PASSWORD).is_err(), "the old address has no account");
        instance.login_as("ada@new.example", PASSWORD, "192.0.2.1", None).expect("the new one");
        assert_eq!(instance.check(&mine.token), "live");
        assert!(instance.identity().confirm_email(token.expose(), &here, instance.now).is_err(), "once");
        instance.crash();
    }
    let attempt = LinkLogin {
        token: old_link.token.expose(),
        proof: LinkProof::Console,
        client: &here,
        replaces: None,
    };
    let now = instance.now;
    assert!(
        instance.identity().use_link(&attempt, now, &mut instance.rng).is_err(),
        "links of the old address end"
    );
}

#[test]
fn a_taken_address_gets_no_link_and_one_taken_meanwhile_is_refused() {
    let mut instance = TestInstance::with_owner();
    let mine = instance.session();
    instance.add_user("grace@example.org");
    let here = client("192.0.2.1");
    assert!(ask_change(&mut instance, &mine.session, "grace@example.org").is_none());
    let token = ask_change(&mut instance, &mine.session, "ada@new.example").expect("free");
    instance.add_user("ada@new.example");
    let refused = instance.identity().confirm_email(token.expose(), &here, instance.now);
    assert!(matches!(refused, Err(AddressChangeError::Taken)));
    assert_eq!(instance.owner().email.as_str(), EMAIL);
}

#[test]
fn only_the_newest_address_link_is_valid_and_for_ten_minutes() {
    let mut instance = TestInstance::with_owner();
    let mine = instance.session();
    let here = client("192.0.2.1");
    let old = ask_change(&mut instance, &mine.session, "one@new.example").expect("free");
    let new = ask_change(&mut instance, &mine.session, "two@new.example").expect("free");
    assert!(
        instance.identity().confirm_email(old.expose(), &here, instance.now).is_err(),
        "whatever its address"
    );
    instance.advance_ms(600_000);
    assert!(instance.identity().confirm_email(new.expose(), &here, instance.now).is_err());
    let newer = ask_change(&mut instance, &mine.session, "two@new.example").expect("free");
    let (identity, now) = (instance.identity(), instance.now);
    let won = race(50, |_| identity.confirm_email(newer.expose(), &here, now).is_ok());
    assert_eq!(won.into_iter().filter(|won| *won).count(), 1);
}
