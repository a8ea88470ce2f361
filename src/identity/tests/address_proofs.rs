//! Unproven addresses: whether identities may be linked to them, and the credentials that the first
//! proof removes.

use super::*;
use crate::identity::tables::user::AddressProof;

const VICTIM: &str = "victim@example.org";

fn victim() -> Email {
    Email::parse(VICTIM).expect("valid")
}

fn accept(instance: &mut TestInstance, mailed: bool) -> LoggedIn {
    let (org, owner, now) = (instance.acme().id, instance.owner().id, instance.now);
    let wanted = NewInvite { email: victim(), role: Role::Viewer, mailed };
    let issued =
        instance.identity().invite(Some(owner), org, wanted, now, &mut instance.rng).expect("invited");
    let here = client("192.0.2.66");
    let attempt = AcceptInvite {
        token: issued.token.expose(),
        name: None,
        password: Some(Password(PASSWORD)),
        session: None,
        client: &here,
        replaces: None,
    };
    match instance.identity().accept_invite(&attempt, now, &mut instance.rng).expect("accepted") {
        Accepted::Made(LoginOutcome::LoggedIn(login)) => login,
        other => panic!("a new account logs in: {other:?}"),
    }
}

/// Creates an account with the victim's address through an invitation that the inviter accepts with
/// a password of their own.
fn planted(instance: &mut TestInstance) -> LoggedIn {
    accept(instance, false)
}

fn proof_of(instance: &TestInstance, user: UserId) -> AddressProof {
    instance.identity().row::<user::UserRow>(&user).expect("read").expect("there").address_proof
}

fn link(instance: &mut TestInstance) -> Secret {
    let (email, now) = (victim(), instance.now);
    let asked = LinkRequest { email: &email, redirect: None, browser: None };
    instance.identity().request_link(&asked, now, &mut instance.rng).expect("accepted").expect("mailed").token
}

fn use_link(instance: &mut TestInstance, token: &Secret) -> LoginOutcome {
    let here = client("192.0.2.1");
    let proof = LinkProof::Browser { cookie: None, email: Some(VICTIM) };
    let attempt = LinkLogin { token: token.expose(), proof, client: &here, replaces: None };
    let now = instance.now;
    instance.identity().use_link(&attempt, now, &mut instance.rng).expect("valid").login
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

fn attempt(instance: &mut TestInstance, mode: OauthMode) -> OauthAttempt {
    let now = instance.now;
    let ticket = instance.identity().begin_oauth(Provider::Oidc, mode, "/", now, &mut instance.rng);
    let (cookie, state) = (ticket.cookie.expose(), ticket.state.expose());
    instance.identity().resume_oauth(Provider::Oidc, cookie, state, now).expect("its own state")
}

fn sign_in(instance: &mut TestInstance, account: &ExternalAccount) -> Result<OauthOutcome, OauthError> {
    let attempt = attempt(instance, OauthMode::LogIn);
    let login = OauthLogin { attempt: &attempt, account, client: &client("192.0.2.1"), replaces: None };
    let now = instance.now;
    instance.identity().oauth_login(&login, now, &mut instance.rng)
}

fn link_identity(instance: &mut TestInstance, session: &Session, account: &ExternalAccount) {
    let attempt = attempt(instance, session.link_mode());
    let now = instance.now;
    let linked = instance.identity().oauth_link(&attempt, account, session, now, &mut instance.rng);
    assert!(linked.expect("linked"));
}

#[test]
fn only_an_account_with_a_proven_address_is_linked_by_its_address() {
    let mut instance = TestInstance::with_mail_server();
    planted(&mut instance);
    let refused = sign_in(&mut instance, &identity(1, VICTIM, true));
    assert!(matches!(refused, Err(OauthError::LinkRequired)), "{refused:?}");

    let mut instance = TestInstance::with_mail_server();
    let made = accept(&mut instance, true).user.id;
    assert_eq!(proof_of(&instance, made), AddressProof::Given);
    assert!(
        sign_in(&mut instance, &identity(1, VICTIM, true)).expect("proven by the mailed invitation").linked
    );
}

/// An issuer that is not trusted for addresses can create an account with any address.
#[test]
fn an_account_created_by_an_untrusted_issuer_has_an_unproven_address() {
    let mut instance = TestInstance::with_mail_server();
    assert!(sign_in(&mut instance, &identity(1, VICTIM, false)).expect("welcome").created);
    let refused = sign_in(&mut instance, &identity(2, VICTIM, true));
    assert!(matches!(refused, Err(OauthError::LinkRequired)), "{refused:?}");

    let mut instance = TestInstance::with_mail_server();
    assert!(sign_in(&mut instance, &identity(1, VICTIM, true)).expect("welcome").created);
    assert!(sign_in(&mut instance, &identity(2, VICTIM, true)).expect("proven").linked);
}

/// Uses the maximum number of identities of an account, because one change must remove all their
/// rows.
#[test]
fn the_first_proof_ends_password_sessions_identities_and_links_at_once() {
    let mut instance = TestInstance::with_mail_server();
    let eve = planted(&mut instance);
    for number in 0..20 {
        link_identity(&mut instance, &eve.session, &identity(number, "eve@example.org", true));
    }
    let user = eve.user.id;
    let printed = instance
        .identity()
        .issue_login_link(user, None, instance.now, &mut instance.rng)
        .expect("made")
        .token;
    let token = link(&mut instance);
    let LoginOutcome::LoggedIn(login) = use_link(&mut instance, &token) else { panic!("no second factor") };
    let holds = |instance: &mut TestInstance| {
        assert_eq!(instance.check(&eve.token), "unknown");
        assert_eq!(instance.check(&login.token), "live");
        assert!(instance.login_as(VICTIM, PASSWORD, "192.0.2.66", None).is_err());
        assert_eq!(proof_of(instance, user), AddressProof::Given);
        assert_eq!(instance.identity().identities(user).expect("read").len(), 0);
    };
    holds(&mut instance);
    instance.crash();
    holds(&mut instance);
    let here = client("192.0.2.66");
    let attempt =
        LinkLogin { token: printed.expose(), proof: LinkProof::Console, client: &here, replaces: None };
    let now = instance.now;
    assert!(matches!(
        instance.identity().use_link(&attempt, now, &mut instance.rng),
        Err(LinkError::Invalid)
    ));
    let entries = instance.identity().audit(None, 20).expect("read");
    assert_eq!(entries.iter().filter(|entry| entry.action == "email.proven").count(), 1);
    assert!(sign_in(&mut instance, &identity(30, VICTIM, true)).expect("proven").linked);

    // The second proof ends nothing.
    let token = link(&mut instance);
    use_link(&mut instance, &token);
    assert_eq!(instance.check(&login.token), "live");
}

#[test]
fn a_reset_by_mail_is_a_first_proof_as_well() {
    let mut instance = TestInstance::with_mail_server();
    let eve = planted(&mut instance);
    link_identity(&mut instance, &eve.session, &identity(1, "eve@example.org", true));
    let (email, now) = (victim(), instance.now);
    let asked = LinkRequest { email: &email, redirect: None, browser: None };
    let mail =
        instance.identity().request_reset(&asked, now, &mut instance.rng).expect("accepted").expect("mailed");
    let here = client("192.0.2.1");
    let request = PasswordReset {
        token: mail.token.expose(),
        proof: LinkProof::Browser { cookie: None, email: Some(VICTIM) },
        new: Password("a password of the victim"),
        client: &here,
    };
    instance.identity().reset_password(&request, now, &mut instance.rng).expect("set");
    assert_eq!(instance.check(&eve.token), "unknown");
    assert_eq!(instance.identity().identities(eve.user.id).expect("read").len(), 0);
    assert_eq!(proof_of(&instance, eve.user.id), AddressProof::Given);
    instance.login_as(VICTIM, "a password of the victim", "192.0.2.1", None).expect("the new one");
}

/// Otherwise a stolen mailbox would be enough to bypass the second factor of an unproven account.
#[test]
fn the_first_proof_keeps_the_second_factor() {
    let mut instance = TestInstance::with_mail_server();
    let eve = planted(&mut instance);
    let now = instance.now;
    let enrolment = instance.identity().enroll_totp(&eve.session, now, &mut instance.rng).expect("begun");
    let code = two_factor::code(enrolment.secret.expose(), now);
    instance.identity().confirm_totp(&eve.session, &code, now, &mut instance.rng).expect("confirmed");
    let token = link(&mut instance);
    assert!(matches!(use_link(&mut instance, &token), LoginOutcome::NeedsCode(_)));
    assert!(instance.login_as(VICTIM, PASSWORD, "192.0.2.66", None).is_err());
    assert_eq!(instance.identity().sessions(eve.user.id, instance.now).len(), 0);
}

/// Links on the console are read by the operator.
#[test]
fn console_mail_and_printed_links_prove_nothing() {
    let mut instance = TestInstance::with_owner();
    let eve = planted(&mut instance);
    let token = link(&mut instance);
    use_link(&mut instance, &token);
    let printed = instance
        .identity()
        .issue_login_link(eve.user.id, None, instance.now, &mut instance.rng)
        .expect("made")
        .token;
    use_link(&mut instance, &printed);
    assert_eq!(proof_of(&instance, eve.user.id), AddressProof::Missing);
    assert_eq!(instance.check(&eve.token), "live");
}

/// Turns an account into one of an older version, which did not record proofs; it may have been
/// planted before the upgrade.
fn of_older_version(instance: &TestInstance, user: UserId) {
    instance
        .identity()
        .change(move |txn| {
            let row = store::read::<user::UserRow>(txn, &user)?.expect("there");
            txn.put(&user, &user::UserRow { address_proof: AddressProof::Unknown, ..row });
            Ok::<_, StoreError>(())
        })
        .expect("stored");
}

#[test]
fn the_first_proof_of_an_account_of_an_older_version_ends_its_old_credentials() {
    let mut instance = TestInstance::with_mail_server();
    let eve = planted(&mut instance);
    link_identity(&mut instance, &eve.session, &identity(1, "eve@example.org", true));
    of_older_version(&instance, eve.user.id);
    let printed = instance.identity().issue_login_link(eve.user.id, None, instance.now, &mut instance.rng);
    let printed = printed.expect("made").token;
    let token = link(&mut instance);
    let LoginOutcome::LoggedIn(login) = use_link(&mut instance, &token) else { panic!("no second factor") };
    assert_eq!((instance.check(&eve.token), instance.check(&login.token)), ("unknown", "live"));
    assert!(instance.login_as(VICTIM, PASSWORD, "192.0.2.66", None).is_err());
    assert_eq!(instance.identity().identities(eve.user.id).expect("read").len(), 0);
    let here = client("192.0.2.66");
    let attempt =
        LinkLogin { token: printed.expose(), proof: LinkProof::Console, client: &here, replaces: None };
    let now = instance.now;
    assert!(matches!(
        instance.identity().use_link(&attempt, now, &mut instance.rng),
        Err(LinkError::Invalid)
    ));
    assert!(sign_in(&mut instance, &identity(2, VICTIM, true)).expect("proven").linked);
}

/// Until the proof the owner logs in as before; afterwards a new password can be chosen without the
/// old one.
#[test]
fn the_owner_of_an_account_of_an_older_version_is_never_locked_out() {
    let mut instance = TestInstance::with_mail_server();
    let user = instance.add_user(VICTIM);
    of_older_version(&instance, user);
    instance.login_as(VICTIM, PASSWORD, "192.0.2.1", None).expect("as before");
    let refused = sign_in(&mut instance, &identity(1, VICTIM, true));
    assert!(matches!(refused, Err(OauthError::LinkRequired)), "{refused:?}");
    let token = link(&mut instance);
    let LoginOutcome::LoggedIn(login) = use_link(&mut instance, &token) else { panic!("no second factor") };
    let here = client("192.0.2.1");
    let request = PasswordChange { current: None, new: Password("a new and long password"), client: &here };
    let now = instance.now;
    instance.identity().change_password(&login.session, &request, now, &mut instance.rng).expect("chosen");
    instance.login_as(VICTIM, "a new and long password", "192.0.2.1", None).expect("the new one");
}

#[test]
fn a_new_address_is_proven_by_mail_and_unproven_by_the_console() {
    for (mail_leaves, expected) in [(true, AddressProof::Given), (false, AddressProof::Missing)] {
        let mut instance = TestInstance::with_owner();
        let options = IdentityOptions { argon2: CHEAP, mail_leaves, ..IdentityOptions::default() };
        instance.restart_with(options, MasterKey([9; 32]));
        let mine = instance.session();
        let now = instance.now;
        let mail = instance
            .identity()
            .request_email_change(&mine.session, &victim(), now, &mut instance.rng)
            .expect("accepted")
            .expect("free");
        instance.identity().confirm_email(mail.token.expose(), &client("192.0.2.1"), now).expect("changed");
        assert_eq!(proof_of(&instance, mine.user.id), expected);
    }
}
