//! Signing in by an account elsewhere (docs/specification.md D6): whose account it opens, and that each state opens one session.

use super::*;
use crate::identity::oauth::{OwnIdentityRow, UsedStateRow};

fn somebody(subject: &str, email: &str) -> ExternalAccount {
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
    ExternalAccount { welcome: true, ..somebody(subject, "new@example.org") }
}

/// A sign-in that came back.
fn attempt(house: &mut House) -> OauthAttempt {
    let now = house.now;
    let ticket = house.identity().begin_oauth(Provider::Oidc, OauthMode::LogIn, "/x", now, &mut house.rng);
    let (cookie, state) = (ticket.cookie.expose(), ticket.state.expose());
    house.identity().resume_oauth(Provider::Oidc, cookie, state, now).expect("its own state")
}

fn sign_in(
    house: &mut House,
    attempt: &OauthAttempt,
    account: &ExternalAccount,
) -> Result<OauthOutcome, OauthError> {
    let login = OauthLogin { attempt, account, client: &client("192.0.2.1"), replaces: None };
    let now = house.now;
    house.identity().oauth_login(&login, now, &mut house.rng)
}

fn come(house: &mut House, account: &ExternalAccount) -> Result<OauthOutcome, OauthError> {
    let attempt = attempt(house);
    sign_in(house, &attempt, account)
}

fn user(outcome: &OauthOutcome) -> UserId {
    match &outcome.login {
        LoginOutcome::LoggedIn(login) => login.user.id,
        LoginOutcome::NeedsCode(_) => panic!("no second factor is set up"),
    }
}

#[test]
fn the_mode_of_sign_up_decides_who_gets_an_account() {
    let modes = [SignupMode::First, SignupMode::Open, SignupMode::Invite, SignupMode::Closed];
    for (mode, stranger, invited, expected) in modes
        .map(|mode| (mode, mode == SignupMode::Open, mode != SignupMode::Closed, mode != SignupMode::Closed))
    {
        let mut house = House::furnished();
        let options = IdentityOptions { signup: mode, argon2: CHEAP, ..IdentityOptions::default() };
        house.restart_with(options, MasterKey([9; 32]));
        let (org, owner, now) = (house.acme().id, house.owner().id, house.now);
        let wanted = NewInvite {
            email: Email::parse("guest@example.org").expect("valid"),
            role: Role::Viewer,
            mailed: true,
        };
        house.identity().invite(Some(owner), org, wanted, now, &mut house.rng).expect("invited");
        let came = |house: &mut House, account: &ExternalAccount| match come(house, account) {
            Ok(outcome) => outcome.created,
            Err(OauthError::SignupClosed(_)) => false,
            Err(other) => panic!("{mode:?}: {other}"),
        };
        assert_eq!(came(&mut house, &somebody("a", "stranger@example.org")), stranger, "{mode:?}");
        assert_eq!(came(&mut house, &somebody("b", "guest@example.org")), invited, "{mode:?}");
        assert_eq!(came(&mut house, &welcome("c")), expected, "{mode:?}");
        let unverified = ExternalAccount { email_verified: false, ..welcome("d") };
        let unverified = ExternalAccount { email: Some(Email::parse("x@y.z").expect("valid")), ..unverified };
        assert!(!came(&mut house, &unverified), "{mode:?}: an address that nobody vouches for");
    }
}

/// docs/specification.md F9 and F19, for states.
#[test]
fn a_used_state_stays_used_after_a_crash_and_is_forgotten_when_its_cookie_is_over() {
    let mut house = House::furnished();
    let begun = attempt(&mut house);
    sign_in(&mut house, &begun, &welcome("a")).expect("the first use");
    house.crash();
    assert!(matches!(sign_in(&mut house, &begun, &welcome("a")), Err(OauthError::InvalidState)));
    let kept = |house: &House| house.identity().rows::<UsedStateRow>(&()).expect("read").len();
    assert_eq!(kept(&house), 1);
    house.advance_ms(10 * 60 * 1_000);
    house.identity().tick(house.now).expect("swept");
    assert_eq!(kept(&house), 0);
}

#[test]
fn fifty_threads_with_one_state_get_one_session_and_with_fifty_one_account() {
    let mut house = House::furnished();
    let (identity, now, here, account) = (house.identity(), house.now, client("192.0.2.1"), welcome("a"));
    let one = attempt(&mut house);
    let sign_in = |attempt: &OauthAttempt, number: usize| {
        let login = OauthLogin { attempt, account: &account, client: &here, replaces: None };
        identity.oauth_login(&login, now, &mut Entropy::seeded(number as u64))
    };
    let won = race(50, |number| sign_in(&one, number).is_ok());
    assert_eq!(won.into_iter().filter(|won| *won).count(), 1);
    let other = ExternalAccount { subject: "b".into(), email: None, ..account.clone() };
    assert!(matches!(come(&mut house, &other), Err(OauthError::SignupClosed(_))));

    let account = ExternalAccount { email: Some(Email::parse("b@example.org").expect("valid")), ..other };
    let attempts: Vec<OauthAttempt> = (0..50).map(|_| attempt(&mut house)).collect();
    let outcomes = race(50, |number| {
        let login =
            OauthLogin { attempt: &attempts[number], account: &account, client: &here, replaces: None };
        identity.oauth_login(&login, now, &mut Entropy::seeded(1_000 + number as u64)).expect("a session")
    });
    assert_eq!(outcomes.iter().filter(|outcome| outcome.created).count(), 1);
    assert!(outcomes.iter().all(|outcome| user(outcome) == user(&outcomes[0])));
}

#[test]
fn who_is_disabled_or_gone_does_not_come_in() {
    let mut house = House::furnished();
    let made = user(&come(&mut house, &welcome("a")).expect("made"));
    house.disable(made);
    assert!(matches!(come(&mut house, &welcome("a")), Err(OauthError::Disabled)));
    let other =
        ExternalAccount { email: Some(Email::parse("b@example.org").expect("valid")), ..welcome("b") };
    let gone = user(&come(&mut house, &other).expect("made"));
    let now = house.now;
    house.identity().delete_user(gone, &client("192.0.2.1"), now).expect("deleted");
    assert!(house.identity().rows::<OwnIdentityRow>(&gone).expect("read").is_empty());
    let again = come(&mut house, &other).expect("made anew");
    assert!(again.created && user(&again) != gone);
}

/// Asking a provider takes a while, and nothing that is begun outlives the session that began it.
#[test]
fn who_is_logged_out_meanwhile_links_nothing() {
    let mut house = House::furnished();
    let session = house.session().session;
    let now = house.now;
    let begin = |house: &mut House, session: &Session| {
        let mode = session.link_mode();
        let ticket = house.identity().begin_oauth(Provider::Oidc, mode, "/", now, &mut house.rng);
        let (cookie, state) = (ticket.cookie.expose(), ticket.state.expose());
        house.identity().resume_oauth(Provider::Oidc, cookie, state, now).expect("its own state")
    };
    let attempt = begin(&mut house, &session);
    house.identity().end_session(&session, now).expect("written");
    let refused = house.identity().oauth_link(&attempt, &welcome("a"), &session, now, &mut house.rng);
    assert!(matches!(refused, Err(OauthError::SessionOver)), "{refused:?}");
    assert!(house.identity().identities(session.user).expect("read").is_empty());
    let session = house.session().session;
    let refused = house.identity().oauth_link(&attempt, &welcome("a"), &session, now, &mut house.rng);
    assert!(matches!(refused, Err(OauthError::InvalidState)), "another session's attempt: {refused:?}");
    let attempt = begin(&mut house, &session);
    // Its row is still there when all sessions end: it is dead by its number.
    house.identity().revoke_sessions(session.user, None, now).expect("written");
    let refused = house.identity().oauth_link(&attempt, &welcome("a"), &session, now, &mut house.rng);
    assert!(matches!(refused, Err(OauthError::SessionOver)), "{refused:?}");
    let session = house.session().session;
    let attempt = begin(&mut house, &session);
    let linked = house.identity().oauth_link(&attempt, &welcome("a"), &session, now, &mut house.rng);
    assert!(linked.expect("its own session"));
}

/// The issuer is part of the name: the same subject elsewhere is somebody else.
#[test]
fn the_same_subject_of_another_issuer_is_another_person() {
    let mut house = House::furnished();
    come(&mut house, &welcome("a")).expect("made");
    for other in [
        ExternalAccount { issuer: "https://idp.example/".into(), ..welcome("a") },
        ExternalAccount { provider: Provider::Google, ..welcome("a") },
        ExternalAccount { issuer: "https://idp.examplea".into(), subject: String::new(), ..welcome("a") },
    ] {
        assert!(matches!(come(&mut house, &other), Err(OauthError::LinkRequired)));
    }
}

#[test]
fn a_ticket_opens_with_its_state_provider_and_key_alone() {
    let mut house = House::furnished();
    let now = house.now;
    let mode = house.session().session.link_mode();
    let ticket = house.identity().begin_oauth(Provider::Oidc, mode, "/x", now, &mut house.rng);
    let (cookie, state) = (ticket.cookie.expose(), ticket.state.expose());
    let open = |house: &House, provider, cookie: &str, state: &str, now| {
        house
            .identity()
            .resume_oauth(provider, cookie, state, now)
            .map(|attempt| (attempt.mode, attempt.redirect))
    };
    let whole = Some((mode, "/x".to_owned()));
    assert_eq!(open(&house, Provider::Oidc, cookie, state, now.plus_ms(599_999)), whole);
    assert_eq!(open(&house, Provider::Oidc, cookie, state, now.plus_ms(600_000)), None);
    assert_eq!(open(&house, Provider::Google, cookie, state, now), None);
    assert_eq!(open(&house, Provider::Oidc, cookie, &state[1..], now), None);
    let digest = data_encoding::BASE64URL_NOPAD.encode(&<sha2::Sha256 as sha2::Digest>::digest(b""));
    assert_ne!(ticket.challenge, digest);
    house.restart_with(IdentityOptions { argon2: CHEAP, ..IdentityOptions::default() }, MasterKey([8; 32]));
    assert_eq!(open(&house, Provider::Oidc, cookie, state, now), None, "another master key");
}
