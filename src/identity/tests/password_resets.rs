//! Password changes and password resets by mail (docs/specification.md C2).

use super::*;

const NEW: &str = "another long password";

fn change(
    instance: &mut TestInstance,
    session: &Session,
    current: Option<&str>,
    new: &str,
) -> Result<LoggedIn, PasswordChangeError> {
    let here = client("192.0.2.1");
    let request = PasswordChange { current: current.map(Password), new: Password(new), client: &here };
    let now = instance.now;
    instance.identity().change_password(session, &request, now, &mut instance.rng)
}

fn mailed(instance: &mut TestInstance, address: &str) -> Option<LinkMail> {
    let email = Email::parse(address).expect("valid");
    let request = LinkRequest { email: &email, redirect: None, browser: Some("browser one") };
    let now = instance.now;
    instance.identity().request_reset(&request, now, &mut instance.rng).expect("accepted")
}

fn reset(
    instance: &mut TestInstance,
    token: &Secret,
    browser: &str,
    new: &str,
) -> Result<Email, PasswordResetError> {
    reset_as(instance, token, LinkProof::Browser { cookie: Some(browser), email: None }, new)
}

fn reset_as(
    instance: &mut TestInstance,
    token: &Secret,
    proof: LinkProof<'_>,
    new: &str,
) -> Result<Email, PasswordResetError> {
    let here = client("192.0.2.1");
    let request = PasswordReset { token: token.expose(), proof, new: Password(new), client: &here };
    let now = instance.now;
    instance.identity().reset_password(&request, now, &mut instance.rng)
}

fn is_invalid(result: &Result<Email, PasswordResetError>) -> bool {
    matches!(result, Err(PasswordResetError::Link(LinkError::Invalid)))
}

#[test]
fn a_password_change_ends_all_links_pending_logins_and_sessions_except_the_new_one() {
    let mut instance = TestInstance::with_owner();
    let (mine, other) = (instance.session(), instance.session());
    let link = instance
        .identity()
        .issue_login_link(mine.user.id, None, instance.now, &mut instance.rng)
        .expect("made");
    let reset_link = mailed(&mut instance, EMAIL).expect("mailed").token;
    let changed = change(&mut instance, &mine.session, Some(PASSWORD), NEW).expect("right");
    assert_eq!(changed.session.auth_method, AuthMethod::Password);
    let states = |instance: &TestInstance| {
        [&mine.token, &other.token, &changed.token].map(|token| instance.check(token))
    };
    assert_eq!(states(&instance), ["unknown", "unknown", "live"]);
    assert!(is_invalid(&reset(&mut instance, &reset_link, "browser one", "yet another password")));
    let here = client("192.0.2.1");
    let attempt =
        LinkLogin { token: link.token.expose(), proof: LinkProof::Console, client: &here, replaces: None };
    let now = instance.now;
    assert!(matches!(
        instance.identity().use_link(&attempt, now, &mut instance.rng),
        Err(LinkError::Invalid)
    ));
    assert!(matches!(instance.login(PASSWORD), Err(LoginError::InvalidCredentials)));
    instance.login(NEW).expect("the new one");
    instance.crash();
    assert_eq!(states(&instance), ["unknown", "unknown", "live"]);
    instance.login(NEW).expect("durable");
}

#[test]
fn a_password_change_requires_the_current_one_and_guesses_are_throttled() {
    let mut instance = TestInstance::with_owner();
    let mine = instance.session();
    for wrong in [None, Some(""), Some("wrong password"), Some("w"), Some("w"), Some("w")] {
        let refused = change(&mut instance, &mine.session, wrong, NEW);
        assert!(matches!(refused, Err(PasswordChangeError::InvalidCredentials)), "{refused:?}");
    }
    let refused = change(&mut instance, &mine.session, Some(PASSWORD), NEW);
    assert!(matches!(refused, Err(PasswordChangeError::Throttled { .. })), "{refused:?}");
    assert_eq!(instance.check(&mine.token), "live");
    instance.login(PASSWORD).expect("only the session waits, not its owner");
    instance.advance_ms(300_000);
    change(&mut instance, &mine.session, Some(PASSWORD), NEW).expect("right, and in time");
}

#[test]
fn a_weak_password_is_refused_by_changes_and_resets() {
    let mut instance = TestInstance::with_owner();
    let mine = instance.session();
    let token = mailed(&mut instance, EMAIL).expect("mailed").token;
    for weak in ["short", "password123", EMAIL, "ADA@example.org", &"x".repeat(1_025)] {
        let refused = change(&mut instance, &mine.session, Some(PASSWORD), weak);
        assert!(matches!(refused, Err(PasswordChangeError::Weak(_))), "{weak}: {refused:?}");
        let refused = reset(&mut instance, &token, "browser one", weak);
        assert!(matches!(refused, Err(PasswordResetError::Weak(_))), "{weak}: {refused:?}");
    }
    reset(&mut instance, &token, "browser one", NEW).expect("a weak password does not use the link up");
}

#[test]
fn an_account_without_a_password_sets_one_after_a_fresh_login() {
    let mut instance = TestInstance::with_owner();
    let owner = instance.owner().id;
    instance
        .identity()
        .change(move |txn| {
            let row = store::read::<user::UserRow>(txn, &owner)?.expect("there");
            txn.put(&owner, &user::UserRow { password: None, ..row });
            Ok::<_, StoreError>(())
        })
        .expect("stored");
    assert!(matches!(instance.login(PASSWORD), Err(LoginError::InvalidCredentials)));
    let link =
        instance.identity().issue_login_link(owner, None, instance.now, &mut instance.rng).expect("made");
    let (here, now) = (client("192.0.2.1"), instance.now);
    let attempt =
        LinkLogin { token: link.token.expose(), proof: LinkProof::Console, client: &here, replaces: None };
    let outcome = instance.identity().use_link(&attempt, now, &mut instance.rng).expect("right");
    let LoginOutcome::LoggedIn(mine) = outcome.login else { panic!("no second factor") };
    instance.advance_ms(15 * 60_000 + 1);
    let refused = change(&mut instance, &mine.session, None, NEW);
    assert!(matches!(refused, Err(PasswordChangeError::NotFresh)), "{refused:?}");
    instance.advance_ms(-1);
    change(&mut instance, &mine.session, None, NEW).expect("fresh");
    instance.login(NEW).expect("set");
}

#[test]
fn of_concurrent_password_changes_one_succeeds_and_only_its_session_lives() {
    let mut instance = TestInstance::with_owner();
    let mine = instance.session();
    let (identity, now) = (instance.identity(), instance.now);
    let done = race(8, |number| {
        let new = format!("new password number {number}");
        let here = client("192.0.2.1");
        let request =
            PasswordChange { current: Some(Password(PASSWORD)), new: Password(&new), client: &here };
        let mut rng = Entropy::seeded(900 + number as u64);
        identity.change_password(&mine.session, &request, now, &mut rng).ok().map(|login| (new, login.token))
    });
    drop(identity);
    let won: Vec<_> = done.into_iter().flatten().collect();
    assert_eq!(won.len(), 1);
    instance.crash();
    assert_eq!(instance.check(&won[0].1), "live");
    instance.login(&won[0].0).expect("the winner's");
}

/// Threats 1 and 26: it creates no session, the second factor stays (see two_factor), everything
/// else ends.
#[test]
fn a_reset_sets_the_password_once_ends_all_sessions_and_clears_failures() {
    let mut instance = TestInstance::with_owner();
    let before = instance.session();
    for _ in 0..6 {
        let _ = instance.login("wrong password");
    }
    assert!(matches!(instance.login(PASSWORD), Err(LoginError::Throttled { .. })));
    let token = mailed(&mut instance, EMAIL).expect("mailed").token;
    assert_eq!(reset(&mut instance, &token, "browser one", NEW).expect("right").as_str(), EMAIL);
    assert_eq!(instance.check(&before.token), "unknown");
    assert_eq!(instance.identity().sessions(before.user.id, instance.now).len(), 0, "no session is created");
    instance.login(NEW).expect("failures are forgotten");
    assert!(is_invalid(&reset(&mut instance, &token, "browser one", "yet another password")), "once");
    instance.crash();
    assert!(is_invalid(&reset(&mut instance, &token, "browser one", "yet another password")), "durable");
    instance.login(NEW).expect("durable");
    let entries = instance.identity().audit(None, 100).expect("read");
    assert!(entries.iter().any(|entry| entry.action == "password.reset"));
    assert!(!format!("{entries:?}").contains(NEW));
}

#[test]
fn a_reset_link_is_valid_for_ten_minutes_and_resets_only_and_ends_the_others() {
    let mut instance = TestInstance::with_owner();
    let expired = mailed(&mut instance, EMAIL).expect("mailed").token;
    instance.advance_ms(600_000);
    assert!(is_invalid(&reset(&mut instance, &expired, "browser one", NEW)));
    let newer = mailed(&mut instance, EMAIL).expect("mailed").token;
    let newest = mailed(&mut instance, EMAIL).expect("mailed").token;
    instance.advance_ms(599_999);
    let here = client("192.0.2.1");
    // Neither the unchanged token nor the token with another prefix works.
    for text in [newer.expose().to_owned(), newer.expose().replace("rst_", "mgl_")] {
        let attempt = LinkLogin { token: &text, proof: LinkProof::Console, client: &here, replaces: None };
        let now = instance.now;
        assert!(instance.identity().use_link(&attempt, now, &mut instance.rng).is_err());
        assert!(instance.identity().confirm_email(&text, &here, now).is_err());
    }
    reset(&mut instance, &newer, "browser one", NEW).expect("in time");
    assert!(is_invalid(&reset(&mut instance, &newest, "browser one", "yet another password")));
}

#[test]
fn another_browser_retypes_the_address_of_a_reset_and_five_wrong_ones_burn_it() {
    let mut instance = TestInstance::with_owner();
    let other = |email| LinkProof::Browser { cookie: Some("browser two"), email };
    let token = mailed(&mut instance, EMAIL).expect("mailed").token;
    assert!(matches!(
        reset_as(&mut instance, &token, other(None), NEW),
        Err(PasswordResetError::Link(LinkError::EmailRequired))
    ));
    for _ in 0..4 {
        assert!(is_invalid(&reset_as(&mut instance, &token, other(Some("eve@example.org")), NEW)));
    }
    instance.crash();
    assert!(is_invalid(&reset_as(&mut instance, &token, other(Some("eve@example.org")), NEW)), "the fifth");
    assert!(is_invalid(&reset_as(&mut instance, &token, other(Some(EMAIL)), NEW)), "burned");
    let token = mailed(&mut instance, EMAIL).expect("mailed").token;
    reset_as(&mut instance, &token, other(Some(" ADA@example.org")), NEW).expect("the right address");
}

#[test]
fn of_fifty_concurrent_resets_one_sets_the_password() {
    let mut instance = TestInstance::with_owner();
    let token = mailed(&mut instance, EMAIL).expect("mailed").token;
    let (identity, now, here) = (instance.identity(), instance.now, client("192.0.2.1"));
    let won = race(50, |number| {
        let new = format!("new password number {number}");
        let proof = LinkProof::Browser { cookie: Some("browser one"), email: None };
        let request = PasswordReset { token: token.expose(), proof, new: Password(&new), client: &here };
        let mut rng = Entropy::seeded(number as u64);
        identity.reset_password(&request, now, &mut rng).is_ok().then_some(new)
    });
    let won: Vec<_> = won.into_iter().flatten().collect();
    assert_eq!(won.len(), 1);
    instance.login(&won[0]).expect("the winner's");
}

/// Threat 1.
#[test]
fn a_reset_of_an_unknown_address_does_the_same_work_and_sends_no_mail() {
    let mut instance = TestInstance::with_owner();
    let gone = instance.add_user("gone@example.org");
    instance.disable(gone);
    let rows = |instance: &TestInstance| instance.identity().rows::<LinkRow>(&()).expect("read").len();
    for (number, address) in ["nobody@example.org", "gone@example.org", EMAIL].into_iter().enumerate() {
        assert_eq!(mailed(&mut instance, address).is_some(), address == EMAIL, "{address}");
        assert_eq!(rows(&instance), number + 1, "{address}");
    }
    let token = mailed(&mut instance, EMAIL).expect("mailed").token;
    instance.disable(instance.owner().id);
    assert!(is_invalid(&reset(&mut instance, &token, "browser one", NEW)), "disabled meanwhile");
}
