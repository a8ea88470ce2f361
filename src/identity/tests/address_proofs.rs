//! Addresses that were never proven: what may be linked to them, and what the first proof ends.

use super::address_proof::AddressProof;
use super::*;

const VICTIM: &str = "victim@example.org";

fn victim() -> Email {
    Email::parse(VICTIM).expect("valid")
}

fn accept(house: &mut House, mailed: bool) -> LoggedIn {
    let (org, owner, now) = (house.acme().id, house.owner().id, house.now);
    let wanted = NewInvite { email: victim(), role: Role::Viewer, mailed };
    let issued = house.identity().invite(Some(owner), org, wanted, now, &mut house.rng).expect("invited");
    let here = client("192.0.2.66");
    let attempt = AcceptInvite {
        token: issued.token.expose(),
        name: None,
        password: Some(Password(PASSWORD)),
        session: None,
        client: &here,
        replaces: None,
    };
    match house.identity().accept_invite(&attempt, now, &mut house.rng).expect("accepted") {
        Accepted::Made(LoginOutcome::LoggedIn(login)) => login,
        other => panic!("a new account logs in: {other:?}"),
    }
}

/// An account on the victim's address that an inviter made with a password of their own.
fn planted(house: &mut House) -> LoggedIn {
    accept(house, false)
}

fn proof_of(house: &House, user: UserId) -> AddressProof {
    house.identity().row::<user::UserRow>(&user).expect("read").expect("there").address_proof
}

fn link(house: &mut House) -> Secret {
    let (email, now) = (victim(), house.now);
    let asked = LinkRequest { email: &email, redirect: None, browser: None };
    house.identity().request_link(&asked, now, &mut house.rng).expect("accepted").expect("mailed").token
}

fn use_link(house: &mut House, token: &Secret) -> LoginOutcome {
    let here = client("192.0.2.1");
    let proof = LinkProof::Browser { cookie: None, email: Some(VICTIM) };
    let attempt = LinkLogin { token: token.expose(), proof, client: &here, replaces: None };
    let now = house.now;
    house.identity().use_link(&attempt, now, &mut house.rng).expect("valid").login
}

fn identity(number: usize, email: &str, email_trusted: bool) -> ExternalAccount {
    ExternalAccount {
        provider: Provider::Oidc,
        issuer: "https://idp.example".into(),
        subject: format!("subject {number}"),
        email: Some(Email::parse(email).expect("valid")),
        email_verified: true,
        email_trusted,
        name: String::new(),
        welcome: true,
    }
}

fn attempt(house: &mut House, mode: OauthMode) -> OauthAttempt {
    let now = house.now;
    let ticket = house.identity().begin_oauth(Provider::Oidc, mode, "/", now, &mut house.rng);
    let (cookie, state) = (ticket.cookie.expose(), ticket.state.expose());
    house.identity().resume_oauth(Provider::Oidc, cookie, state, now).expect("its own state")
}

fn sign_in(house: &mut House, account: &ExternalAccount) -> Result<OauthOutcome, OauthError> {
    let attempt = attempt(house, OauthMode::LogIn);
    let login = OauthLogin { attempt: &attempt, account, client: &client("192.0.2.1"), replaces: None };
    let now = house.now;
    house.identity().oauth_login(&login, now, &mut house.rng)
}

fn link_identity(house: &mut House, session: &Session, account: &ExternalAccount) {
    let attempt = attempt(house, session.link_mode());
    let now = house.now;
    let linked = house.identity().oauth_link(&attempt, account, session, now, &mut house.rng);
    assert!(linked.expect("linked"));
}

#[test]
fn only_an_account_with_a_proven_address_is_linked_by_its_address() {
    let mut house = House::mailing();
    planted(&mut house);
    let refused = sign_in(&mut house, &identity(1, VICTIM, true));
    assert!(matches!(refused, Err(OauthError::LinkRequired)), "{refused:?}");

    let mut house = House::mailing();
    let made = accept(&mut house, true).user.id;
    assert_eq!(proof_of(&house, made), AddressProof::Given);
    assert!(sign_in(&mut house, &identity(1, VICTIM, true)).expect("proven by the mailed invitation").linked);
}

/// An issuer that is not trusted for addresses makes an account on whatever address it likes.
#[test]
fn an_account_made_on_the_word_of_an_untrusted_issuer_is_unproven() {
    let mut house = House::mailing();
    assert!(sign_in(&mut house, &identity(1, VICTIM, false)).expect("welcome").created);
    let refused = sign_in(&mut house, &identity(2, VICTIM, true));
    assert!(matches!(refused, Err(OauthError::LinkRequired)), "{refused:?}");

    let mut house = House::mailing();
    assert!(sign_in(&mut house, &identity(1, VICTIM, true)).expect("welcome").created);
    assert!(sign_in(&mut house, &identity(2, VICTIM, true)).expect("proven").linked);
}

/// As many rows as one change ends at most: the identities of an account are bounded.
#[test]
fn the_first_proof_ends_password_sessions_identities_and_links_at_once() {
    let mut house = House::mailing();
    let eve = planted(&mut house);
    for number in 0..20 {
        link_identity(&mut house, &eve.session, &identity(number, "eve@example.org", true));
    }
    let user = eve.user.id;
    let printed =
        house.identity().issue_login_link(user, None, house.now, &mut house.rng).expect("made").token;
    let token = link(&mut house);
    let LoginOutcome::LoggedIn(login) = use_link(&mut house, &token) else { panic!("no second factor") };
    let holds = |house: &mut House| {
        assert_eq!(house.check(&eve.token), "unknown");
        assert_eq!(house.check(&login.token), "live");
        assert!(house.login_as(VICTIM, PASSWORD, "192.0.2.66", None).is_err());
        assert_eq!(proof_of(house, user), AddressProof::Given);
        assert_eq!(house.identity().identities(user).expect("read").len(), 0);
    };
    holds(&mut house);
    house.crash();
    holds(&mut house);
    let here = client("192.0.2.66");
    let attempt =
        LinkLogin { token: printed.expose(), proof: LinkProof::Console, client: &here, replaces: None };
    let now = house.now;
    assert!(matches!(house.identity().use_link(&attempt, now, &mut house.rng), Err(LinkError::Invalid)));
    let noted = house.identity().audit(None, 20).expect("read");
    assert_eq!(noted.iter().filter(|entry| entry.action == "email.proven").count(), 1);
    assert!(sign_in(&mut house, &identity(30, VICTIM, true)).expect("proven").linked);

    // The second proof ends nothing.
    let token = link(&mut house);
    use_link(&mut house, &token);
    assert_eq!(house.check(&login.token), "live");
}

#[test]
fn a_reset_by_mail_is_a_first_proof_as_well() {
    let mut house = House::mailing();
    let eve = planted(&mut house);
    link_identity(&mut house, &eve.session, &identity(1, "eve@example.org", true));
    let (email, now) = (victim(), house.now);
    let asked = LinkRequest { email: &email, redirect: None, browser: None };
    let mail =
        house.identity().request_reset(&asked, now, &mut house.rng).expect("accepted").expect("mailed");
    let here = client("192.0.2.1");
    let request = PasswordReset {
        token: mail.token.expose(),
        proof: LinkProof::Browser { cookie: None, email: Some(VICTIM) },
        new: Password("a password of the victim"),
        client: &here,
    };
    house.identity().reset_password(&request, now, &mut house.rng).expect("set");
    assert_eq!(house.check(&eve.token), "unknown");
    assert_eq!(house.identity().identities(eve.user.id).expect("read").len(), 0);
    assert_eq!(proof_of(&house, eve.user.id), AddressProof::Given);
    house.login_as(VICTIM, "a password of the victim", "192.0.2.1", None).expect("the new one");
}

/// Otherwise a stolen mailbox would be enough to pass by the second factor of an unproven account.
#[test]
fn the_first_proof_leaves_the_second_factor() {
    let mut house = House::mailing();
    let eve = planted(&mut house);
    let now = house.now;
    let enrolment = house.identity().enroll_totp(&eve.session, now, &mut house.rng).expect("begun");
    let code = two_factor::code(enrolment.secret.expose(), now);
    house.identity().confirm_totp(&eve.session, &code, now, &mut house.rng).expect("confirmed");
    let token = link(&mut house);
    assert!(matches!(use_link(&mut house, &token), LoginOutcome::NeedsCode(_)));
    assert!(house.login_as(VICTIM, PASSWORD, "192.0.2.66", None).is_err());
    assert_eq!(house.identity().sessions(eve.user.id, house.now).len(), 0);
}

/// A link on the console is read by whoever reads the console.
#[test]
fn console_mail_and_printed_links_prove_nothing() {
    let mut house = House::furnished();
    let eve = planted(&mut house);
    let token = link(&mut house);
    use_link(&mut house, &token);
    let printed =
        house.identity().issue_login_link(eve.user.id, None, house.now, &mut house.rng).expect("made").token;
    use_link(&mut house, &printed);
    assert_eq!(proof_of(&house, eve.user.id), AddressProof::Missing);
    assert_eq!(house.check(&eve.token), "live");
}

/// An older version did not note proofs, so the account may have been planted before the upgrade.
fn of_older_version(house: &House, user: UserId) {
    house
        .identity()
        .change(move |txn| {
            let row = store::read::<user::UserRow>(txn, &user)?.expect("there");
            txn.put(&user, &user::UserRow { address_proof: AddressProof::Unknown, ..row });
            Ok::<_, StoreError>(())
        })
        .expect("stored");
}

#[test]
fn the_first_proof_of_an_account_of_an_older_version_ends_what_opened_it() {
    let mut house = House::mailing();
    let eve = planted(&mut house);
    link_identity(&mut house, &eve.session, &identity(1, "eve@example.org", true));
    of_older_version(&house, eve.user.id);
    let printed = house.identity().issue_login_link(eve.user.id, None, house.now, &mut house.rng);
    let printed = printed.expect("made").token;
    let token = link(&mut house);
    let LoginOutcome::LoggedIn(login) = use_link(&mut house, &token) else { panic!("no second factor") };
    assert_eq!((house.check(&eve.token), house.check(&login.token)), ("unknown", "live"));
    assert!(house.login_as(VICTIM, PASSWORD, "192.0.2.66", None).is_err());
    assert_eq!(house.identity().identities(eve.user.id).expect("read").len(), 0);
    let here = client("192.0.2.66");
    let attempt =
        LinkLogin { token: printed.expose(), proof: LinkProof::Console, client: &here, replaces: None };
    let now = house.now;
    assert!(matches!(house.identity().use_link(&attempt, now, &mut house.rng), Err(LinkError::Invalid)));
    assert!(sign_in(&mut house, &identity(2, VICTIM, true)).expect("proven").linked);
}

/// Until then its owner enters as before, and afterwards chooses a password without knowing the old one.
#[test]
fn the_owner_of_an_account_of_an_older_version_is_never_locked_out() {
    let mut house = House::mailing();
    let user = house.add_user(VICTIM);
    of_older_version(&house, user);
    house.login_as(VICTIM, PASSWORD, "192.0.2.1", None).expect("as before");
    let refused = sign_in(&mut house, &identity(1, VICTIM, true));
    assert!(matches!(refused, Err(OauthError::LinkRequired)), "{refused:?}");
    let token = link(&mut house);
    let LoginOutcome::LoggedIn(login) = use_link(&mut house, &token) else { panic!("no second factor") };
    let here = client("192.0.2.1");
    let request = PasswordChange { current: None, new: Password("a new and long password"), client: &here };
    let now = house.now;
    house.identity().change_password(&login.session, &request, now, &mut house.rng).expect("chosen");
    house.login_as(VICTIM, "a new and long password", "192.0.2.1", None).expect("the new one");
}

#[test]
fn a_new_address_is_proven_by_mail_and_unproven_by_the_console() {
    for (mail_leaves, expected) in [(true, AddressProof::Given), (false, AddressProof::Missing)] {
        let mut house = House::furnished();
        let options = IdentityOptions { argon2: CHEAP, mail_leaves, ..IdentityOptions::default() };
        house.restart_with(options, MasterKey([9; 32]));
        let mine = house.session();
        let now = house.now;
        let mail = house
            .identity()
            .request_email_change(&mine.session, &victim(), now, &mut house.rng)
            .expect("accepted")
            .expect("free");
        house.identity().confirm_email(mail.token.expose(), &client("192.0.2.1"), now).expect("changed");
        assert_eq!(proof_of(&house, mine.user.id), expected);
    }
}
