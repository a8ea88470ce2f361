//! Sign-in at a provider (docs/specification.md D6): the account that is signed in to, and the
//! single use of a state.

use super::*;
use crate::identity::tables::oauth::{OwnIdentityRow, UsedStateRow};

fn external(subject: &str, email: &str) -> ExternalAccount {
    ExternalAccount {
        provider: Provider::Oidc,
        issuer: "https://idp.example".into(),
        subject: subject.into(),
        email: Some(Email::parse(email).expect("an address")),
        email_verified: true,
        email_trusted: false,
        name: String::new(),
        welcome: false,
    }
}

fn welcome(subject: &str) -> ExternalAccount {
    ExternalAccount { welcome: true, ..external(subject, "new@example.org") }
}

/// Starts a sign-in and returns from the provider.
fn attempt(instance: &mut TestInstance) -> OauthAttempt {
    let now = instance.now;
    let ticket =
        instance.identity().begin_oauth(Provider::Oidc, OauthMode::LogIn, "/x", now, &mut instance.rng);
    let (cookie, state) = (ticket.cookie.expose(), ticket.state.expose());
    instance.identity().resume_oauth(Provider::Oidc, cookie, state, now).expect("its own state")
}

fn sign_in(
    instance: &mut TestInstance,
    attempt: &OauthAttempt,
    account: &ExternalAccount,
) -> Result<OauthOutcome, OauthError> {
    let login = OauthLogin { attempt, account, client: &client("192.0.2.1"), replaces: None };
    let now = instance.now;
    instance.identity().oauth_login(&login, now, &mut instance.rng)
}

fn sign_in_anew(instance: &mut TestInstance, account: &ExternalAccount) -> Result<OauthOutcome, OauthError> {
    let attempt = attempt(instance);
    sign_in(instance, &attempt, account)
}

fn user(outcome: &OauthOutcome) -> UserId {
    match &outcome.login {
        LoginOutcome::LoggedIn(login) => login.user.id,
        LoginOutcome::NeedsCode(_) => panic!("no second factor is set up"),
    }
}

#[test]
fn the_sign_up_mode_decides_who_gets_an_account() {
    let modes = [SignupMode::First, SignupMode::Open, SignupMode::Invite, SignupMode::Closed];
    for (mode, stranger, invited, expected) in modes
        .map(|mode| (mode, mode == SignupMode::Open, mode != SignupMode::Closed, mode != SignupMode::Closed))
    {
        let mut instance = TestInstance::with_owner();
        let options = IdentityOptions { signup: mode, argon2: CHEAP, ..IdentityOptions::default() };
        instance.restart_with(options, MasterKey([9; 32]));
        let (org, owner, now) = (instance.acme().id, instance.owner().id, instance.now);
        let wanted = NewInvite {
            email: Email::parse("guest@example.org").expect("valid"),
            role: Role::Viewer,
            mailed: true,
        };
        instance.identity().invite(Some(owner), org, wanted, now, &mut instance.rng).expect("invited");
        let created =
            |instance: &mut TestInstance, account: &ExternalAccount| match sign_in_anew(instance, account) {
                Ok(outcome) => outcome.created,
                Err(OauthError::SignupClosed(_)) => false,
                Err(other) => panic!("{mode:?}: {other}"),
            };
        assert_eq!(created(&mut instance, &external("a", "stranger@example.org")), stranger, "{mode:?}");
        assert_eq!(created(&mut instance, &external("b", "guest@example.org")), invited, "{mode:?}");
        assert_eq!(created(&mut instance, &welcome("c")), expected, "{mode:?}");
        let unverified = ExternalAccount { email_verified: false, ..welcome("d") };
        let unverified = ExternalAccount { email: Some(Email::parse("x@y.z").expect("valid")), ..unverified };
        assert!(!created(&mut instance, &unverified), "{mode:?}: an unverified address");
    }
}

/// docs/specification.md F9 and F19, for states.
#[test]
fn a_used_state_stays_used_after_a_crash_until_its_cookie_expires() {
    let mut instance = TestInstance::with_owner();
    let started = attempt(&mut instance);
    sign_in(&mut instance, &started, &welcome("a")).expect("the first use");
    instance.crash();
    assert!(matches!(sign_in(&mut instance, &started, &welcome("a")), Err(OauthError::InvalidState)));
    let kept = |instance: &TestInstance| instance.identity().rows::<UsedStateRow>(&()).expect("read").len();
    assert_eq!(kept(&instance), 1);
    instance.advance_ms(10 * 60 * 1_000);
    instance.identity().tick(instance.now).expect("swept");
    assert_eq!(kept(&instance), 0);
}

#[test]
fn fifty_threads_with_one_state_get_one_session_and_with_fifty_one_account() {
    let mut instance = TestInstance::with_owner();
    let (identity, now, here, account) =
        (instance.identity(), instance.now, client("192.0.2.1"), welcome("a"));
    let one = attempt(&mut instance);
    let sign_in = |attempt: &OauthAttempt, number: usize| {
        let login = OauthLogin { attempt, account: &account, client: &here, replaces: None };
        identity.oauth_login(&login, now, &mut Entropy::seeded(number as u64))
    };
    let won = race(50, |number| sign_in(&one, number).is_ok());
    assert_eq!(won.into_iter().filter(|won| *won).count(), 1);
    let other = ExternalAccount { subject: "b".into(), email: None, ..account.clone() };
    assert!(matches!(sign_in_anew(&mut instance, &other), Err(OauthError::SignupClosed(_))));

    let account = ExternalAccount { email: Some(Email::parse("b@example.org").expect("valid")), ..other };
    let attempts: Vec<OauthAttempt> = (0..50).map(|_| attempt(&mut instance)).collect();
    let outcomes = race(50, |number| {
        let login =
            OauthLogin { attempt: &attempts[number], account: &account, client: &here, replaces: None };
        identity.oauth_login(&login, now, &mut Entropy::seeded(1_000 + number as u64)).expect("a session")
    });
    assert_eq!(outcomes.iter().filter(|outcome| outcome.created).count(), 1);
    assert!(outcomes.iter().all(|outcome| user(outcome) == user(&outcomes[0])));
}

#[test]
fn disabled_and_deleted_accounts_cannot_sign_in() {
    let mut instance = TestInstance::with_owner();
    let made = user(&sign_in_anew(&mut instance, &welcome("a")).expect("made"));
    instance.disable(made);
    assert!(matches!(sign_in_anew(&mut instance, &welcome("a")), Err(OauthError::Disabled)));
    let other =
        ExternalAccount { email: Some(Email::parse("b@example.org").expect("valid")), ..welcome("b") };
    let gone = user(&sign_in_anew(&mut instance, &other).expect("made"));
    let now = instance.now;
    instance.identity().delete_user(gone, &client("192.0.2.1"), now).expect("deleted");
    assert!(instance.identity().rows::<OwnIdentityRow>(&gone).expect("read").is_empty());
    let again = sign_in_anew(&mut instance, &other).expect("created again");
    assert!(again.created && user(&again) != gone);
}

/// The request to a provider takes time. An attempt must not outlive the session that started it.
#[test]
fn a_session_that_ended_meanwhile_links_nothing() {
    let mut instance = TestInstance::with_owner();
    let session = instance.session().session;
    let now = instance.now;
    let begin = |instance: &mut TestInstance, session: &Session| {
        let mode = session.link_mode();
        let ticket = instance.identity().begin_oauth(Provider::Oidc, mode, "/", now, &mut instance.rng);
        let (cookie, state) = (ticket.cookie.expose(), ticket.state.expose());
        instance.identity().resume_oauth(Provider::Oidc, cookie, state, now).expect("its own state")
    };
    let attempt = begin(&mut instance, &session);
    instance.identity().end_session(&session, now).expect("written");
    let refused = instance.identity().oauth_link(&attempt, &welcome("a"), &session, now, &mut instance.rng);
    assert!(matches!(refused, Err(OauthError::SessionOver)), "{refused:?}");
    assert!(instance.identity().identities(session.user).expect("read").is_empty());
    let session = instance.session().session;
    let refused = instance.identity().oauth_link(&attempt, &welcome("a"), &session, now, &mut instance.rng);
    assert!(matches!(refused, Err(OauthError::InvalidState)), "another session's attempt: {refused:?}");
    let attempt = begin(&mut instance, &session);
    // Ending all sessions keeps their rows; they are invalid because of their epoch.
    instance.identity().revoke_sessions(session.user, None, now).expect("written");
    let refused = instance.identity().oauth_link(&attempt, &welcome("a"), &session, now, &mut instance.rng);
    assert!(matches!(refused, Err(OauthError::SessionOver)), "{refused:?}");
    let session = instance.session().session;
    let attempt = begin(&mut instance, &session);
    let linked = instance.identity().oauth_link(&attempt, &welcome("a"), &session, now, &mut instance.rng);
    assert!(linked.expect("its own session"));
}

/// The issuer is part of the identity: the same subject at another issuer is another person.
#[test]
fn the_same_subject_of_another_issuer_is_another_person() {
    let mut instance = TestInstance::with_owner();
    sign_in_anew(&mut instance, &welcome("a")).expect("made");
    for other in [
        ExternalAccount { issuer: "https://idp.example/".into(), ..welcome("a") },
        ExternalAccount { provider: Provider::Google, ..welcome("a") },
        ExternalAccount { issuer: "https://idp.examplea".into(), subject: String::new(), ..welcome("a") },
    ] {
        assert!(matches!(sign_in_anew(&mut instance, &other), Err(OauthError::LinkRequired)));
    }
}

#[test]
fn a_state_cookie_opens_only_with_its_state_provider_and_key() {
    let mut instance = TestInstance::with_owner();
    let now = instance.now;
    let mode = instance.session().session.link_mode();
    let ticket = instance.identity().begin_oauth(Provider::Oidc, mode, "/x", now, &mut instance.rng);
    let (cookie, state) = (ticket.cookie.expose(), ticket.state.expose());
    let open = |instance: &TestInstance, provider, cookie: &str, state: &str, now| {
        instance
            .identity()
            .resume_oauth(provider, cookie, state, now)
            .map(|attempt| (attempt.mode, attempt.redirect))
    };
    let whole = Some((mode, "/x".to_owned()));
    assert_eq!(open(&instance, Provider::Oidc, cookie, state, now.plus_ms(599_999)), whole);
    assert_eq!(open(&instance, Provider::Oidc, cookie, state, now.plus_ms(600_000)), None);
    assert_eq!(open(&instance, Provider::Google, cookie, state, now), None);
    assert_eq!(open(&instance, Provider::Oidc, cookie, &state[1..], now), None);
    let digest = data_encoding::BASE64URL_NOPAD.encode(&<sha2::Sha256 as sha2::Digest>::digest(b""));
    assert_ne!(ticket.challenge, digest);
    instance
        .restart_with(IdentityOptions { argon2: CHEAP, ..IdentityOptions::default() }, MasterKey([8; 32]));
    assert_eq!(open(&instance, Provider::Oidc, cookie, state, now), None, "another master key");
}
