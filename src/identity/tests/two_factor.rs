//! The second factor (docs/specification.md D3), through every way in.

use totp_rs::{Algorithm, Builder};

use super::*;

/// What an authenticator app shows for `secret` at `now`.
pub(super) fn code(secret: &str, now: Timestamp) -> String {
    let bytes = data_encoding::BASE32_NOPAD.decode(secret.as_bytes()).expect("base32");
    let app = Builder::new()
        .with_algorithm(Algorithm::SHA1)
        .with_digits(6)
        .with_secret(bytes)
        .build()
        .expect("an app");
    app.generate(u64::try_from(now.as_s()).expect("after 1970")).to_string()
}

/// A code that is wrong in the whole window.
fn wrong(secret: &str, now: Timestamp) -> String {
    let right: Vec<String> = (-2..=2).map(|step| code(secret, now.plus_ms(step * 30_000))).collect();
    (0..).map(|n: u32| format!("{n:06}")).find(|text| !right.contains(text)).expect("a million codes")
}

/// The owner's account with a second factor; its secret, and the recovery codes. The clock stands in a fresh step.
fn enrolled() -> (House, String, RecoveryCodes) {
    let mut house = House::furnished();
    let session = house.session();
    let enrolment = house.identity().enroll_totp(&session.session, house.now, &mut house.rng).expect("begun");
    let secret = enrolment.secret.expose().to_owned();
    let now = house.now;
    let (codes, _) = house
        .identity()
        .confirm_totp(&session.session, &code(&secret, now), now, &mut house.rng)
        .expect("confirmed");
    house.advance_ms(60_000);
    (house, secret, codes)
}

fn pending(house: &mut House) -> Secret {
    match house.login(PASSWORD).expect("the right password") {
        LoginOutcome::NeedsCode(pending) => {
            assert_eq!(pending.expires_in, Duration::from_secs(300));
            pending.token
        }
        LoginOutcome::LoggedIn(_) => panic!("a second factor is set up"),
    }
}

fn verify(house: &mut House, pending: &Secret, factor: SecondFactor<'_>) -> Result<LoggedIn, CodeError> {
    let attempt =
        CodeLogin { pending: pending.expose(), factor, client: &client("192.0.2.1"), replaces: None };
    let now = house.now;
    house.identity().verify_code(&attempt, now, &mut house.rng)
}

/// Spec: no cookie before the second factor.
#[test]
fn a_password_alone_gives_no_session_and_the_code_does() {
    let (mut house, secret, _) = enrolled();
    let before = house.identity().sessions(house.owner().id, house.now).len();
    let token = pending(&mut house);
    assert_eq!(house.identity().sessions(house.owner().id, house.now).len(), before);
    let now = house.now;
    let spaced = code(&secret, now).replacen("", " ", 4);
    let session = verify(&mut house, &token, SecondFactor::Code(&spaced)).expect("the code");
    assert!(session.session.second_factor && session.user.twofa_enabled);
    assert_eq!(house.check(&session.token), "live");
    let again = code(&secret, now.plus_ms(30_000));
    assert!(
        matches!(verify(&mut house, &token, SecondFactor::Code(&again)), Err(CodeError::PendingInvalid)),
        "used"
    );
}

/// Threat 25.
#[test]
fn a_used_code_is_refused_even_within_its_thirty_seconds() {
    let (mut house, secret, _) = enrolled();
    let first = pending(&mut house);
    let text = code(&secret, house.now);
    verify(&mut house, &first, SecondFactor::Code(&text)).expect("the code");
    let second = pending(&mut house);
    match verify(&mut house, &second, SecondFactor::Code(&text)) {
        Err(CodeError::AlreadyUsed { retry_after }) => {
            assert!((1..=30_000).contains(&retry_after.as_millis()))
        }
        other => panic!("{other:?}"),
    }
    house.crash();
    assert!(matches!(
        verify(&mut house, &second, SecondFactor::Code(&text)),
        Err(CodeError::AlreadyUsed { .. })
    ));
    // An older step than the used one is inside the skew, and refused as well.
    let older = code(&secret, house.now.plus_ms(-30_000));
    assert!(matches!(
        verify(&mut house, &second, SecondFactor::Code(&older)),
        Err(CodeError::AlreadyUsed { .. })
    ));
    house.advance_ms(30_000);
    let next = code(&secret, house.now);
    verify(&mut house, &second, SecondFactor::Code(&next)).expect("the next code");
}

#[test]
fn who_is_logged_out_meanwhile_enables_nothing_and_gets_no_session() {
    let mut house = House::furnished();
    let session = house.session().session;
    let now = house.now;
    let enrolment = house.identity().enroll_totp(&session, now, &mut house.rng).expect("begun");
    house.identity().end_session(&session, now).expect("written");
    let text = code(enrolment.secret.expose(), now);
    let refused = house.identity().confirm_totp(&session, &text, now, &mut house.rng);
    assert!(matches!(refused, Err(TwoFactorError::SessionOver)), "{refused:?}");
    assert!(!house.identity().twofa_status(session.user).expect("read").enabled);
    assert!(house.identity().sessions(session.user, now).is_empty());
}

/// A fresh session begins it, any session of the account ends it; but one that was ended begins nothing that lasts.
#[test]
fn an_enrolment_dies_with_the_session_that_began_it() {
    let mut house = House::furnished();
    let (stolen, own) = (house.session().session, house.session().session);
    let now = house.now;
    let begin = |house: &mut House, session: &Session| {
        let enrolment = house.identity().enroll_totp(session, now, &mut house.rng).expect("begun");
        code(enrolment.secret.expose(), now)
    };
    let confirm = |house: &mut House, session: &Session, text: &str| {
        house.identity().confirm_totp(session, text, now, &mut house.rng)
    };
    let text = begin(&mut house, &stolen);
    house.identity().revoke_sessions(own.user, Some(own.id), now).expect("written");
    for _ in 0..2 {
        let refused = confirm(&mut house, &own, &text);
        assert!(matches!(refused, Err(TwoFactorError::NotEnabled)), "{refused:?}");
        house.crash();
    }
    // All sessions may end while a code is being looked at: their rows are still there, and dead by their number.
    let text = begin(&mut house, &own);
    house.identity().revoke_sessions(own.user, None, now).expect("written");
    let refused = confirm(&mut house, &own, &text);
    assert!(matches!(refused, Err(TwoFactorError::SessionOver)), "{refused:?}");
    let (first, second) = (house.session().session, house.session().session);
    let text = begin(&mut house, &first);
    confirm(&mut house, &second, &text).expect("both live");
}

#[test]
fn fifty_threads_with_one_code_get_one_session() {
    let (mut house, secret, _) = enrolled();
    let tokens: Vec<Secret> = (0..50).map(|_| pending(&mut house)).collect();
    let text = code(&secret, house.now);
    let (identity, now, here) = (house.identity(), house.now, client("192.0.2.1"));
    let won = race(50, |number| {
        let factor = SecondFactor::Code(&text);
        let attempt = CodeLogin { pending: tokens[number].expose(), factor, client: &here, replaces: None };
        identity.verify_code(&attempt, now, &mut Entropy::seeded(number as u64)).is_ok()
    });
    assert_eq!(won.into_iter().filter(|won| *won).count(), 1);
}

#[test]
fn fifty_threads_with_one_recovery_code_get_one_session() {
    let (mut house, _, codes) = enrolled();
    let tokens: Vec<Secret> = (0..50).map(|_| pending(&mut house)).collect();
    let (identity, now, here) = (house.identity(), house.now, client("192.0.2.1"));
    let won = race(50, |number| {
        let factor = SecondFactor::RecoveryCode(codes.0[3].expose());
        let attempt = CodeLogin { pending: tokens[number].expose(), factor, client: &here, replaces: None };
        identity.verify_code(&attempt, now, &mut Entropy::seeded(number as u64)).is_ok()
    });
    assert_eq!(won.into_iter().filter(|won| *won).count(), 1);
    assert_eq!(identity.twofa_status(house.owner().id).expect("read").recovery_codes_left, 9);
}

#[test]
fn fifty_threads_with_one_pending_login_get_one_session() {
    let (mut house, _, codes) = enrolled();
    let token = pending(&mut house);
    let (identity, now, here) = (house.identity(), house.now, client("192.0.2.1"));
    let won = race(50, |number| {
        let factor = SecondFactor::RecoveryCode(codes.0[number % 10].expose());
        let attempt = CodeLogin { pending: token.expose(), factor, client: &here, replaces: None };
        identity.verify_code(&attempt, now, &mut Entropy::seeded(number as u64)).is_ok()
    });
    assert_eq!(won.into_iter().filter(|won| *won).count(), 1);
}

/// Threat 24.
#[test]
fn five_wrong_codes_end_the_pending_login_and_throttle_the_account_over_restarts() {
    let (mut house, secret, _) = enrolled();
    let token = pending(&mut house);
    let bad = wrong(&secret, house.now);
    for left in [4, 3, 2, 1, 0] {
        match verify(&mut house, &token, SecondFactor::Code(&bad)) {
            Err(CodeError::Invalid { attempts_left, .. }) => assert_eq!(attempts_left, left),
            other => panic!("{other:?}"),
        }
    }
    let good = code(&secret, house.now);
    assert!(matches!(verify(&mut house, &token, SecondFactor::Code(&good)), Err(CodeError::PendingInvalid)));
    house.crash();
    let next = pending(&mut house);
    match verify(&mut house, &next, SecondFactor::Code(&good)) {
        Err(CodeError::Throttled { retry_after }) => assert_eq!(retry_after, Duration::from_secs(900)),
        other => panic!("{other:?}"),
    }
    house.advance_ms(900_000);
    let next = pending(&mut house);
    let good = code(&secret, house.now);
    verify(&mut house, &next, SecondFactor::Code(&good)).expect("the wait was honest");
}

#[test]
fn twenty_wrong_codes_in_a_day_are_the_most() {
    let (mut house, secret, _) = enrolled();
    for _ in 0..4 {
        let token = pending(&mut house);
        let bad = wrong(&secret, house.now);
        for _ in 0..5 {
            assert!(matches!(
                verify(&mut house, &token, SecondFactor::Code(&bad)),
                Err(CodeError::Invalid { .. })
            ));
        }
        house.advance_ms(3_600_000);
    }
    let token = pending(&mut house);
    let good = code(&secret, house.now);
    match verify(&mut house, &token, SecondFactor::Code(&good)) {
        Err(CodeError::Throttled { retry_after }) => assert_eq!(retry_after, Duration::from_secs(20 * 3_600)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_pending_login_is_good_for_five_minutes_and_dies_with_all_sessions() {
    let (mut house, secret, _) = enrolled();
    let token = pending(&mut house);
    house.advance_ms(5 * 60_000);
    let good = code(&secret, house.now);
    assert!(matches!(verify(&mut house, &token, SecondFactor::Code(&good)), Err(CodeError::PendingInvalid)));

    let token = pending(&mut house);
    house.identity().revoke_sessions(house.owner().id, None, house.now).expect("written");
    assert!(matches!(verify(&mut house, &token, SecondFactor::Code(&good)), Err(CodeError::PendingInvalid)));

    for foreign in ["", "tfp_", &format!("tfp_{}", "A".repeat(43)), "ses_x"] {
        let foreign = Secret::new(foreign);
        assert!(matches!(
            verify(&mut house, &foreign, SecondFactor::Code(&good)),
            Err(CodeError::PendingInvalid)
        ));
    }
}

#[test]
fn the_code_that_confirms_enrolment_is_consumed_and_other_sessions_end() {
    let mut house = House::furnished();
    let (session, other) = (house.session(), house.session());
    let owner = house.owner().id;
    let enrolment = house.identity().enroll_totp(&session.session, house.now, &mut house.rng).expect("begun");
    let url = enrolment.otpauth_url.expose();
    assert!(url.starts_with("otpauth://totp/promlet:ada%40example.org?"), "{url}");
    let secret = enrolment.secret.expose();
    let (now, text) = (house.now, code(secret, house.now));
    let bad = wrong(secret, now);
    let refused = house.identity().confirm_totp(&session.session, &bad, now, &mut house.rng);
    assert!(matches!(refused, Err(TwoFactorError::InvalidCode)));
    assert!(!house.identity().twofa_status(owner).expect("read").enabled);
    let (codes, new) =
        house.identity().confirm_totp(&session.session, &text, now, &mut house.rng).expect("confirmed");
    assert_eq!(
        (house.check(&session.token), house.check(&other.token), house.check(&new.token)),
        ("unknown", "unknown", "live")
    );
    assert_eq!(codes.0.len(), 10);
    let status = house.identity().twofa_status(owner).expect("read");
    assert_eq!((status.enabled, status.enabled_at, status.recovery_codes_left), (true, Some(now), 10));

    let token = pending(&mut house);
    assert!(matches!(
        verify(&mut house, &token, SecondFactor::Code(&text)),
        Err(CodeError::AlreadyUsed { .. })
    ));
    let again = house.identity().enroll_totp(&new.session, house.now, &mut house.rng);
    assert!(matches!(again, Err(TwoFactorError::AlreadyEnabled)));
    house.crash();
    assert_eq!((house.check(&session.token), house.check(&new.token)), ("unknown", "live"));
}

#[test]
fn an_enrolment_waits_ten_minutes_and_the_newest_counts() {
    let mut house = House::furnished();
    let session = house.session();
    let begin = |house: &mut House| {
        let now = house.now;
        house.identity().enroll_totp(&session.session, now, &mut house.rng).expect("begun")
    };
    let (old, new) = (begin(&mut house), begin(&mut house));
    let now = house.now;
    let refused =
        house.identity().confirm_totp(&session.session, &code(old.secret.expose(), now), now, &mut house.rng);
    assert!(matches!(refused, Err(TwoFactorError::InvalidCode)));
    house.advance_ms(600_000);
    let now = house.now;
    let refused =
        house.identity().confirm_totp(&session.session, &code(new.secret.expose(), now), now, &mut house.rng);
    assert!(matches!(refused, Err(TwoFactorError::NotEnabled)));
}

#[test]
fn a_recovery_code_opens_once_however_it_is_typed() {
    let (mut house, _, codes) = enrolled();
    let typed = codes.0[3].expose().to_uppercase().replace('-', " ").replace('0', "O").replace('1', "l");
    let token = pending(&mut house);
    verify(&mut house, &token, SecondFactor::RecoveryCode(&typed)).expect("a recovery code");
    assert_eq!(house.identity().twofa_status(house.owner().id).expect("read").recovery_codes_left, 9);
    let token = pending(&mut house);
    for used_or_foreign in [codes.0[3].expose(), "", "xxxx-xxxx-xxxx-xxxx-xxxx-xxxx"] {
        let refused = verify(&mut house, &token, SecondFactor::RecoveryCode(used_or_foreign));
        assert!(matches!(refused, Err(CodeError::Invalid { .. })));
    }
    let actions: Vec<String> =
        house.identity().audit(None, 100).expect("read").into_iter().map(|entry| entry.action).collect();
    assert!(actions.contains(&"recovery_code.used".to_owned()) && actions.contains(&"twofa.fail".to_owned()));
}

#[test]
fn new_recovery_codes_void_the_old_ones() {
    let (mut house, secret, old) = enrolled();
    let (owner, now) = (house.owner().id, house.now);
    let bad = wrong(&secret, now);
    let refused = house.identity().renew_recovery_codes(owner, &bad, now, &mut house.rng);
    assert!(matches!(refused, Err(TwoFactorError::InvalidCode)));
    let new = house
        .identity()
        .renew_recovery_codes(owner, &code(&secret, now), now, &mut house.rng)
        .expect("renewed");
    let token = pending(&mut house);
    let refused = verify(&mut house, &token, SecondFactor::RecoveryCode(old.0[0].expose()));
    assert!(matches!(refused, Err(CodeError::Invalid { .. })));
    verify(&mut house, &token, SecondFactor::RecoveryCode(new.0[0].expose())).expect("a new one");
}

/// A session of the owner, opened with a recovery code.
fn session_of(house: &mut House, codes: &RecoveryCodes) -> Arc<Session> {
    let token = pending(house);
    verify(house, &token, SecondFactor::RecoveryCode(codes.0[9].expose())).expect("a session").session
}

fn disable(
    house: &House,
    session: &Session,
    password: Option<&str>,
    factor: SecondFactor<'_>,
) -> Result<(), TwoFactorError> {
    let client = client("192.0.2.1");
    house.identity().disable_totp(session, password.map(Password), factor, &client, house.now)
}

#[test]
fn removing_the_second_factor_takes_password_and_code() {
    let (mut house, secret, codes) = enrolled();
    let session = session_of(&mut house, &codes);
    let (good, bad) = (code(&secret, house.now), wrong(&secret, house.now));
    let attempt =
        |password: Option<&str>, text: &str| disable(&house, &session, password, SecondFactor::Code(text));
    assert!(matches!(attempt(None, &good), Err(TwoFactorError::InvalidPassword)));
    assert!(matches!(attempt(Some("wrong password"), &good), Err(TwoFactorError::InvalidPassword)));
    assert!(matches!(attempt(Some(PASSWORD), &bad), Err(TwoFactorError::InvalidCode)));
    attempt(Some(PASSWORD), &good).expect("removed");
    assert!(matches!(attempt(Some(PASSWORD), &good), Err(TwoFactorError::NotEnabled)));
    house.session();
}

#[test]
fn wrong_passwords_at_removal_are_throttled_like_those_of_a_login() {
    let (mut house, secret, codes) = enrolled();
    let session = session_of(&mut house, &codes);
    let good = code(&secret, house.now);
    for _ in 0..5 {
        let refused = disable(&house, &session, Some("wrong password"), SecondFactor::Code(&good));
        assert!(matches!(refused, Err(TwoFactorError::InvalidPassword)));
    }
    let before = house.identity().passwords_verified();
    let refused = disable(&house, &session, Some(PASSWORD), SecondFactor::Code(&good));
    assert!(matches!(refused, Err(TwoFactorError::PasswordThrottled { .. })));
    assert_eq!(house.identity().passwords_verified(), before);
    // Codes are counted apart.
    let token = pending(&mut house);
    verify(&mut house, &token, SecondFactor::Code(&good)).expect("not throttled");
}

/// A flood of wrong codes must not lock the owner out.
#[test]
fn wrong_codes_do_not_keep_a_recovery_code_from_removing_the_second_factor() {
    let (mut house, secret, codes) = enrolled();
    let session = session_of(&mut house, &codes);
    let (good, bad) = (code(&secret, house.now), wrong(&secret, house.now));
    for _ in 0..5 {
        let refused = disable(&house, &session, Some(PASSWORD), SecondFactor::Code(&bad));
        assert!(matches!(refused, Err(TwoFactorError::InvalidCode)));
    }
    let before = house.identity().passwords_verified();
    let refused = disable(&house, &session, Some(PASSWORD), SecondFactor::Code(&good));
    assert!(matches!(refused, Err(TwoFactorError::Throttled { .. })));
    assert_eq!(house.identity().passwords_verified(), before, "refused before the hash");
    disable(&house, &session, Some(PASSWORD), SecondFactor::RecoveryCode(codes.0[0].expose()))
        .expect("removed");
}

/// Threat 26.
#[test]
fn no_other_way_in_passes_by_the_second_factor() {
    let (mut house, secret, _) = enrolled();
    let owner = house.owner().id;
    let link = house.identity().issue_login_link(owner, None, house.now, &mut house.rng).expect("made");
    let attempt = LinkLogin {
        token: link.token.expose(),
        proof: LinkProof::Console,
        client: &client("192.0.2.1"),
        replaces: None,
    };
    let now = house.now;
    let outcome = house.identity().use_link(&attempt, now, &mut house.rng).expect("used");
    let LoginOutcome::NeedsCode(pending) = outcome.login else { panic!("a second factor is set up") };
    let text = code(&secret, now);
    let session = verify(&mut house, &pending.token, SecondFactor::Code(&text)).expect("the code");
    assert_eq!(session.session.auth_method, AuthMethod::MagicLink);
}

#[test]
fn a_disabled_account_is_stopped_at_its_second_factor() {
    let (mut house, secret, _) = enrolled();
    let token = pending(&mut house);
    house.disable(house.owner().id);
    let good = code(&secret, house.now);
    assert!(matches!(verify(&mut house, &token, SecondFactor::Code(&good)), Err(CodeError::PendingInvalid)));
}

/// Threat 8: the database without its key.
#[test]
fn with_another_master_key_no_code_is_accepted() {
    let (mut house, secret, _) = enrolled();
    house.restart_with(IdentityOptions { argon2: CHEAP, ..Default::default() }, MasterKey([1; 32]));
    let token = pending(&mut house);
    let good = code(&secret, house.now);
    let refused = verify(&mut house, &token, SecondFactor::Code(&good));
    assert!(matches!(refused, Err(CodeError::Store(StoreError::Sealed(_)))));
}

#[test]
fn a_code_makes_a_session_fresh_and_is_used_by_it() {
    let (mut house, secret, _) = enrolled();
    let owner = house.owner().id;
    let session = house.identity().sessions(owner, house.now).remove(0);
    house.advance_ms(3_600_000);
    let text = code(&secret, house.now);
    let prove = |house: &House| {
        let given = Reauth::Factor(SecondFactor::Code(&text));
        house.identity().reauth(&session, given, &client("192.0.2.1"), house.now)
    };
    prove(&house).expect("the code");
    assert!(session.is_fresh(house.now));
    assert!(matches!(prove(&house), Err(ReauthError::AlreadyUsed { .. })));
}
