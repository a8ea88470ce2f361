//! Changing the password, and setting a new one by mail (docs/specification.md C2).

use super::*;

const NEW: &str = "another long password";

fn change(
    house: &mut House,
    session: &Session,
    current: Option<&str>,
    new: &str,
) -> Result<LoggedIn, PasswordChangeError> {
    let here = client("192.0.2.1");
    let request = PasswordChange { current: current.map(Password), new: Password(new), client: &here };
    let now = house.now;
    house.identity().change_password(session, &request, now, &mut house.rng)
}

fn mailed(house: &mut House, address: &str) -> Option<LinkMail> {
    let email = Email::parse(address).expect("valid");
    let request = LinkRequest { email: &email, redirect: None, browser: Some("browser one") };
    let now = house.now;
    house.identity().request_reset(&request, now, &mut house.rng).expect("accepted")
}

fn reset(house: &mut House, token: &Secret, browser: &str, new: &str) -> Result<Email, PasswordResetError> {
    reset_as(house, token, LinkProof::Browser { cookie: Some(browser), email: None }, new)
}

fn reset_as(
    house: &mut House,
    token: &Secret,
    proof: LinkProof<'_>,
    new: &str,
) -> Result<Email, PasswordResetError> {
    let here = client("192.0.2.1");
    let request = PasswordReset { token: token.expose(), proof, new: Password(new), client: &here };
    let now = house.now;
    house.identity().reset_password(&request, now, &mut house.rng)
}

fn is_invalid(result: &Result<Email, PasswordResetError>) -> bool {
    matches!(result, Err(PasswordResetError::Link(LinkError::Invalid)))
}

#[test]
fn a_changed_password_ends_all_sessions_links_and_pending_logins_but_the_new_session() {
    let mut house = House::furnished();
    let (mine, other) = (house.session(), house.session());
    let link =
        house.identity().issue_login_link(mine.user.id, None, house.now, &mut house.rng).expect("made");
    let reset_link = mailed(&mut house, EMAIL).expect("mailed").token;
    let changed = change(&mut house, &mine.session, Some(PASSWORD), NEW).expect("right");
    assert_eq!(changed.session.auth_method, AuthMethod::Password);
    let states = |house: &House| [&mine.token, &other.token, &changed.token].map(|token| house.check(token));
    assert_eq!(states(&house), ["unknown", "unknown", "live"]);
    assert!(is_invalid(&reset(&mut house, &reset_link, "browser one", "yet another password")));
    let here = client("192.0.2.1");
    let attempt =
        LinkLogin { token: link.token.expose(), proof: LinkProof::Console, client: &here, replaces: None };
    let now = house.now;
    assert!(matches!(house.identity().use_link(&attempt, now, &mut house.rng), Err(LinkError::Invalid)));
    assert!(matches!(house.login(PASSWORD), Err(LoginError::InvalidCredentials)));
    house.login(NEW).expect("the new one");
    house.crash();
    assert_eq!(states(&house), ["unknown", "unknown", "live"]);
    house.login(NEW).expect("durable");
}

#[test]
fn a_change_needs_the_current_password_and_guessing_it_is_throttled() {
    let mut house = House::furnished();
    let mine = house.session();
    for wrong in [None, Some(""), Some("wrong password"), Some("w"), Some("w"), Some("w")] {
        let refused = change(&mut house, &mine.session, wrong, NEW);
        assert!(matches!(refused, Err(PasswordChangeError::InvalidCredentials)), "{refused:?}");
    }
    let refused = change(&mut house, &mine.session, Some(PASSWORD), NEW);
    assert!(matches!(refused, Err(PasswordChangeError::Throttled { .. })), "{refused:?}");
    assert_eq!(house.check(&mine.token), "live");
    house.login(PASSWORD).expect("it is the session that waits, not its owner");
    house.advance_ms(300_000);
    change(&mut house, &mine.session, Some(PASSWORD), NEW).expect("right, and in time");
}

#[test]
fn a_weak_password_is_refused_wherever_it_is_new() {
    let mut house = House::furnished();
    let mine = house.session();
    let token = mailed(&mut house, EMAIL).expect("mailed").token;
    for weak in ["short", "password123", EMAIL, "ADA@example.org", &"x".repeat(1_025)] {
        let refused = change(&mut house, &mine.session, Some(PASSWORD), weak);
        assert!(matches!(refused, Err(PasswordChangeError::Weak(_))), "{weak}: {refused:?}");
        let refused = reset(&mut house, &token, "browser one", weak);
        assert!(matches!(refused, Err(PasswordResetError::Weak(_))), "{weak}: {refused:?}");
    }
    reset(&mut house, &token, "browser one", NEW).expect("the link is not used up by a bad choice");
}

#[test]
fn who_has_no_password_sets_one_by_a_fresh_login() {
    let mut house = House::furnished();
    let owner = house.owner().id;
    house
        .identity()
        .change(move |txn| {
            let row = store::read::<user::UserRow>(txn, &owner)?.expect("there");
            txn.put(&owner, &user::UserRow { password: None, ..row });
            Ok::<_, StoreError>(())
        })
        .expect("stored");
    assert!(matches!(house.login(PASSWORD), Err(LoginError::InvalidCredentials)));
    let link = house.identity().issue_login_link(owner, None, house.now, &mut house.rng).expect("made");
    let (here, now) = (client("192.0.2.1"), house.now);
    let attempt =
        LinkLogin { token: link.token.expose(), proof: LinkProof::Console, client: &here, replaces: None };
    let outcome = house.identity().use_link(&attempt, now, &mut house.rng).expect("right");
    let LoginOutcome::LoggedIn(mine) = outcome.login else { panic!("no second factor") };
    house.advance_ms(15 * 60_000 + 1);
    let refused = change(&mut house, &mine.session, None, NEW);
    assert!(matches!(refused, Err(PasswordChangeError::NotFresh)), "{refused:?}");
    house.advance_ms(-1);
    change(&mut house, &mine.session, None, NEW).expect("fresh");
    house.login(NEW).expect("set");
}

#[test]
fn of_many_changes_at_once_one_wins_and_its_session_alone_lives() {
    let mut house = House::furnished();
    let mine = house.session();
    let (identity, now) = (house.identity(), house.now);
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
    house.crash();
    assert_eq!(house.check(&won[0].1), "live");
    house.login(&won[0].0).expect("the winner's");
}

/// Threat 1, 26: no session comes of it, the second factor stays (see two_factor), everything else ends.
#[test]
fn a_reset_sets_the_password_once_ends_all_sessions_and_forgets_failures() {
    let mut house = House::furnished();
    let before = house.session();
    for _ in 0..6 {
        let _ = house.login("wrong password");
    }
    assert!(matches!(house.login(PASSWORD), Err(LoginError::Throttled { .. })));
    let token = mailed(&mut house, EMAIL).expect("mailed").token;
    assert_eq!(reset(&mut house, &token, "browser one", NEW).expect("right").as_str(), EMAIL);
    assert_eq!(house.check(&before.token), "unknown");
    assert_eq!(house.identity().sessions(before.user.id, house.now).len(), 0, "no session comes of it");
    house.login(NEW).expect("failures are forgotten");
    assert!(is_invalid(&reset(&mut house, &token, "browser one", "yet another password")), "once");
    house.crash();
    assert!(is_invalid(&reset(&mut house, &token, "browser one", "yet another password")), "durable");
    house.login(NEW).expect("durable");
    let entries = house.identity().audit(None, 100).expect("read");
    assert!(entries.iter().any(|entry| entry.action == "password.reset"));
    assert!(!format!("{entries:?}").contains(NEW));
}

#[test]
fn a_reset_link_lives_ten_minutes_opens_nothing_else_and_ends_the_others() {
    let mut house = House::furnished();
    let expired = mailed(&mut house, EMAIL).expect("mailed").token;
    house.advance_ms(600_000);
    assert!(is_invalid(&reset(&mut house, &expired, "browser one", NEW)));
    let newer = mailed(&mut house, EMAIL).expect("mailed").token;
    let newest = mailed(&mut house, EMAIL).expect("mailed").token;
    house.advance_ms(599_999);
    let here = client("192.0.2.1");
    // Neither as it is nor with the other kind's prefix.
    for text in [newer.expose().to_owned(), newer.expose().replace("rst_", "mgl_")] {
        let attempt = LinkLogin { token: &text, proof: LinkProof::Console, client: &here, replaces: None };
        let now = house.now;
        assert!(house.identity().use_link(&attempt, now, &mut house.rng).is_err());
        assert!(house.identity().confirm_email(&text, &here, now).is_err());
    }
    reset(&mut house, &newer, "browser one", NEW).expect("in time");
    assert!(is_invalid(&reset(&mut house, &newest, "browser one", "yet another password")));
}

#[test]
fn another_browser_retypes_the_address_of_a_reset_and_five_wrong_ones_burn_it() {
    let mut house = House::furnished();
    let other = |email| LinkProof::Browser { cookie: Some("browser two"), email };
    let token = mailed(&mut house, EMAIL).expect("mailed").token;
    assert!(matches!(
        reset_as(&mut house, &token, other(None), NEW),
        Err(PasswordResetError::Link(LinkError::EmailRequired))
    ));
    for _ in 0..4 {
        assert!(is_invalid(&reset_as(&mut house, &token, other(Some("eve@example.org")), NEW)));
    }
    house.crash();
    assert!(is_invalid(&reset_as(&mut house, &token, other(Some("eve@example.org")), NEW)), "the fifth");
    assert!(is_invalid(&reset_as(&mut house, &token, other(Some(EMAIL)), NEW)), "burned");
    let token = mailed(&mut house, EMAIL).expect("mailed").token;
    reset_as(&mut house, &token, other(Some(" ADA@example.org")), NEW).expect("the right address");
}

#[test]
fn of_fifty_resets_at_once_one_sets_the_password() {
    let mut house = House::furnished();
    let token = mailed(&mut house, EMAIL).expect("mailed").token;
    let (identity, now, here) = (house.identity(), house.now, client("192.0.2.1"));
    let won = race(50, |number| {
        let new = format!("new password number {number}");
        let proof = LinkProof::Browser { cookie: Some("browser one"), email: None };
        let request = PasswordReset { token: token.expose(), proof, new: Password(&new), client: &here };
        let mut rng = Entropy::seeded(number as u64);
        identity.reset_password(&request, now, &mut rng).is_ok().then_some(new)
    });
    let won: Vec<_> = won.into_iter().flatten().collect();
    assert_eq!(won.len(), 1);
    house.login(&won[0]).expect("the winner's");
}

/// Threat 1.
#[test]
fn a_reset_for_nobody_is_the_same_work_and_no_mail() {
    let mut house = House::furnished();
    let gone = house.add_user("gone@example.org");
    house.disable(gone);
    let rows = |house: &House| house.identity().rows::<link::LinkRow>(&()).expect("read").len();
    for (number, address) in ["nobody@example.org", "gone@example.org", EMAIL].into_iter().enumerate() {
        assert_eq!(mailed(&mut house, address).is_some(), address == EMAIL, "{address}");
        assert_eq!(rows(&house), number + 1, "{address}");
    }
    let token = mailed(&mut house, EMAIL).expect("mailed").token;
    house.disable(house.owner().id);
    assert!(is_invalid(&reset(&mut house, &token, "browser one", NEW)), "disabled meanwhile");
}
