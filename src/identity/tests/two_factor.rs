//! The second factor (docs/specification.md D3), after every first factor.

use totp_rs::{Algorithm, Builder};

use super::*;

/// Returns the code that an authenticator app shows for `secret` at `now`.
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

/// Returns a code that is wrong at all accepted steps.
fn wrong(secret: &str, now: Timestamp) -> String {
    let right: Vec<String> = (-2..=2).map(|step| code(secret, now.plus_ms(step * 30_000))).collect();
    (0..).map(|n: u32| format!("{n:06}")).find(|text| !right.contains(text)).expect("a million codes")
}

/// Opens an instance whose owner has a second factor. Returns its secret and the recovery codes.
/// The clock is in an unused step.
fn enrolled() -> (TestInstance, String, RecoveryCodes) {
    let mut instance = TestInstance::with_owner();
    let session = instance.session();
    let enrolment =
        instance.identity().enroll_totp(&session.session, instance.now, &mut instance.rng).expect("begun");
    let secret = enrolment.secret.expose().to_owned();
    let now = instance.now;
    let (codes, _) = instance
        .identity()
        .confirm_totp(&session.session, &code(&secret, now), now, &mut instance.rng)
        .expect("confirmed");
    instance.advance_ms(60_000);
    (instance, secret, codes)
}

fn pending(instance: &mut TestInstance) -> Secret {
    match instance.login(PASSWORD).expect("the right password") {
        LoginOutcome::NeedsCode(pending) => {
            assert_eq!(pending.expires_in, Duration::from_secs(300));
            pending.token
        }
        LoginOutcome::LoggedIn(_) => panic!("a second factor is set up"),
    }
}

fn verify(
    instance: &mut TestInstance,
    pending: &Secret,
    factor: SecondFactor<'_>,
) -> Result<LoggedIn, CodeError> {
    let attempt =
        CodeLogin { pending: pending.expose(), factor, client: &client("192.0.2.1"), replaces: None };
    let now = instance.now;
    instance.identity().verify_code(&attempt, now, &mut instance.rng)
}

/// docs/specification.md D3: no cookie before the second factor.
#[test]
fn a_password_alone_gives_no_session_and_the_code_does() {
    let (mut instance, secret, _) = enrolled();
    let before = instance.identity().sessions(instance.owner().id, instance.now).len();
    let token = pending(&mut instance);
    assert_eq!(instance.identity().sessions(instance.owner().id, instance.now).len(), before);
    let now = instance.now;
    let spaced = code(&secret, now).replacen("", " ", 4);
    let session = verify(&mut instance, &token, SecondFactor::Code(&spaced)).expect("the code");
    assert!(session.session.second_factor && session.user.twofa_enabled);
    assert_eq!(instance.check(&session.token), "live");
    let again = code(&secret, now.plus_ms(30_000));
    assert!(
        matches!(verify(&mut instance, &token, SecondFactor::Code(&again)), Err(CodeError::PendingInvalid)),
        "used"
    );
}

/// Threat 25.
#[test]
fn a_used_code_is_refused_even_within_its_thirty_seconds() {
    let (mut instance, secret, _) = enrolled();
    let first = pending(&mut instance);
    let text = code(&secret, instance.now);
    verify(&mut instance, &first, SecondFactor::Code(&text)).expect("the code");
    let second = pending(&mut instance);
    match verify(&mut instance, &second, SecondFactor::Code(&text)) {
        Err(CodeError::AlreadyUsed { retry_after }) => {
            assert!((1..=30_000).contains(&retry_after.as_millis()))
        }
        other => panic!("{other:?}"),
    }
    instance.crash();
    assert!(matches!(
        verify(&mut instance, &second, SecondFactor::Code(&text)),
        Err(CodeError::AlreadyUsed { .. })
    ));
    // An older step than the used one is within the skew, and refused as well.
    let older = code(&secret, instance.now.plus_ms(-30_000));
    assert!(matches!(
        verify(&mut instance, &second, SecondFactor::Code(&older)),
        Err(CodeError::AlreadyUsed { .. })
    ));
    instance.advance_ms(30_000);
    let next = code(&secret, instance.now);
    verify(&mut instance, &second, SecondFactor::Code(&next)).expect("the next code");
}

#[test]
fn a_session_that_ended_meanwhile_enables_no_second_factor_and_gets_no_new_session() {
    let mut instance = TestInstance::with_owner();
    let session = instance.session().session;
    let now = instance.now;
    let enrolment = instance.identity().enroll_totp(&session, now, &mut instance.rng).expect("begun");
    instance.identity().end_session(&session, now).expect("written");
    let text = code(enrolment.secret.expose(), now);
    let refused = instance.identity().confirm_totp(&session, &text, now, &mut instance.rng);
    assert!(matches!(refused, Err(TwoFactorError::SessionOver)), "{refused:?}");
    assert!(!instance.identity().twofa_status(session.user).expect("read").enabled);
    assert!(instance.identity().sessions(session.user, now).is_empty());
}

/// One session may start an enrolment and another of the account may confirm it, but an ended
/// session leaves no enrolment.
#[test]
fn an_enrolment_ends_with_the_session_that_started_it() {
    let mut instance = TestInstance::with_owner();
    let (stolen, own) = (instance.session().session, instance.session().session);
    let now = instance.now;
    let begin = |instance: &mut TestInstance, session: &Session| {
        let enrolment = instance.identity().enroll_totp(session, now, &mut instance.rng).expect("begun");
        code(enrolment.secret.expose(), now)
    };
    let confirm = |instance: &mut TestInstance, session: &Session, text: &str| {
        instance.identity().confirm_totp(session, text, now, &mut instance.rng)
    };
    let text = begin(&mut instance, &stolen);
    instance.identity().revoke_sessions(own.user, Some(own.id), now).expect("written");
    for _ in 0..2 {
        let refused = confirm(&mut instance, &own, &text);
        assert!(matches!(refused, Err(TwoFactorError::NotEnabled)), "{refused:?}");
        instance.crash();
    }
    // All sessions may end while a code is checked: their rows still exist, and their epoch makes
    // them invalid.
    let text = begin(&mut instance, &own);
    instance.identity().revoke_sessions(own.user, None, now).expect("written");
    let refused = confirm(&mut instance, &own, &text);
    assert!(matches!(refused, Err(TwoFactorError::SessionOver)), "{refused:?}");
    let (first, second) = (instance.session().session, instance.session().session);
    let text = begin(&mut instance, &first);
    confirm(&mut instance, &second, &text).expect("both live");
}

#[test]
fn fifty_threads_with_one_code_get_one_session() {
    let (mut instance, secret, _) = enrolled();
    let tokens: Vec<Secret> = (0..50).map(|_| pending(&mut instance)).collect();
    let text = code(&secret, instance.now);
    let (identity, now, here) = (instance.identity(), instance.now, client("192.0.2.1"));
    let won = race(50, |number| {
        let factor = SecondFactor::Code(&text);
        let attempt = CodeLogin { pending: tokens[number].expose(), factor, client: &here, replaces: None };
        identity.verify_code(&attempt, now, &mut Entropy::seeded(number as u64)).is_ok()
    });
    assert_eq!(won.into_iter().filter(|won| *won).count(), 1);
}

#[test]
fn fifty_threads_with_one_recovery_code_get_one_session() {
    let (mut instance, _, codes) = enrolled();
    let tokens: Vec<Secret> = (0..50).map(|_| pending(&mut instance)).collect();
    let (identity, now, here) = (instance.identity(), instance.now, client("192.0.2.1"));
    let won = race(50, |number| {
        let factor = SecondFactor::RecoveryCode(codes.0[3].expose());
        let attempt = CodeLogin { pending: tokens[number].expose(), factor, client: &here, replaces: None };
        identity.verify_code(&attempt, now, &mut Entropy::seeded(number as u64)).is_ok()
    });
    assert_eq!(won.into_iter().filter(|won| *won).count(), 1);
    assert_eq!(identity.twofa_status(instance.owner().id).expect("read").recovery_codes_left, 9);
}

#[test]
fn fifty_threads_with_one_pending_login_get_one_session() {
    let (mut instance, _, codes) = enrolled();
    let token = pending(&mut instance);
    let (identity, now, here) = (instance.identity(), instance.now, client("192.0.2.1"));
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
    let (mut instance, secret, _) = enrolled();
    let token = pending(&mut instance);
    let bad = wrong(&secret, instance.now);
    for left in [4, 3, 2, 1, 0] {
        match verify(&mut instance, &token, SecondFactor::Code(&bad)) {
            Err(CodeError::Invalid { attempts_left, .. }) => assert_eq!(attempts_left, left),
            other => panic!("{other:?}"),
        }
    }
    let good = code(&secret, instance.now);
    assert!(matches!(
        verify(&mut instance, &token, SecondFactor::Code(&good)),
        Err(CodeError::PendingInvalid)
    ));
    instance.crash();
    let next = pending(&mut instance);
    match verify(&mut instance, &next, SecondFactor::Code(&good)) {
        Err(CodeError::Throttled { retry_after }) => assert_eq!(retry_after, Duration::from_secs(900)),
        other => panic!("{other:?}"),
    }
    instance.advance_ms(900_000);
    let next = pending(&mut instance);
    let good = code(&secret, instance.now);
    verify(&mut instance, &next, SecondFactor::Code(&good)).expect("the wait was exact");
}

#[test]
fn a_day_allows_at_most_twenty_wrong_codes() {
    let (mut instance, secret, _) = enrolled();
    for _ in 0..4 {
        let token = pending(&mut instance);
        let bad = wrong(&secret, instance.now);
        for _ in 0..5 {
            assert!(matches!(
                verify(&mut instance, &token, SecondFactor::Code(&bad)),
                Err(CodeError::Invalid { .. })
            ));
        }
        instance.advance_ms(3_600_000);
    }
    let token = pending(&mut instance);
    let good = code(&secret, instance.now);
    match verify(&mut instance, &token, SecondFactor::Code(&good)) {
        Err(CodeError::Throttled { retry_after }) => assert_eq!(retry_after, Duration::from_secs(20 * 3_600)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_pending_login_is_valid_for_five_minutes_and_ends_with_all_sessions() {
    let (mut instance, secret, _) = enrolled();
    let token = pending(&mut instance);
    instance.advance_ms(5 * 60_000);
    let good = code(&secret, instance.now);
    assert!(matches!(
        verify(&mut instance, &token, SecondFactor::Code(&good)),
        Err(CodeError::PendingInvalid)
    ));

    let token = pending(&mut instance);
    instance.identity().revoke_sessions(instance.owner().id, None, instance.now).expect("written");
    assert!(matches!(
        verify(&mut instance, &token, SecondFactor::Code(&good)),
        Err(CodeError::PendingInvalid)
    ));

    for foreign in ["", "tfp_", &format!("tfp_{}", "A".repeat(43)), "ses_x"] {
        let foreign = Secret::new(foreign);
        assert!(matches!(
            verify(&mut instance, &foreign, SecondFactor::Code(&good)),
            Err(CodeError::PendingInvalid)
        ));
    }
}

#[test]
fn the_confirming_code_is_used_up_and_other_sessions_end() {
    let mut instance = TestInstance::with_owner();
    let (session, other) = (instance.session(), instance.session());
    let owner = instance.owner().id;
    let enrolment =
        instance.identity().enroll_totp(&session.session, instance.now, &mut instance.rng).expect("begun");
    let url = enrolment.otpauth_url.expose();
    assert!(url.starts_with("otpauth://totp/promlet:ada%40example.org?"), "{url}");
    let secret = enrolment.secret.expose();
    let (now, text) = (instance.now, code(secret, instance.now));
    let bad = wrong(secret, now);
    let refused = instance.identity().confirm_totp(&session.session, &bad, now, &mut instance.rng);
    assert!(matches!(refused, Err(TwoFactorError::InvalidCode)));
    assert!(!instance.identity().twofa_status(owner).expect("read").enabled);
    let (codes, new) =
        instance.identity().confirm_totp(&session.session, &text, now, &mut instance.rng).expect("confirmed");
    assert_eq!(
        (instance.check(&session.token), instance.check(&other.token), instance.check(&new.token)),
        ("unknown", "unknown", "live")
    );
    assert_eq!(codes.0.len(), 10);
    let status = instance.identity().twofa_status(owner).expect("read");
    assert_eq!((status.enabled, status.enabled_at, status.recovery_codes_left), (true, Some(now), 10));

    let token = pending(&mut instance);
    assert!(matches!(
        verify(&mut instance, &token, SecondFactor::Code(&text)),
        Err(CodeError::AlreadyUsed { .. })
    ));
    let again = instance.identity().enroll_totp(&new.session, instance.now, &mut instance.rng);
    assert!(matches!(again, Err(TwoFactorError::AlreadyEnabled)));
    instance.crash();
    assert_eq!((instance.check(&session.token), instance.check(&new.token)), ("unknown", "live"));
}

#[test]
fn only_the_newest_enrolment_is_valid_and_for_ten_minutes() {
    let mut instance = TestInstance::with_owner();
    let session = instance.session();
    let begin = |instance: &mut TestInstance| {
        let now = instance.now;
        instance.identity().enroll_totp(&session.session, now, &mut instance.rng).expect("begun")
    };
    let (old, new) = (begin(&mut instance), begin(&mut instance));
    let now = instance.now;
    let refused = instance.identity().confirm_totp(
        &session.session,
        &code(old.secret.expose(), now),
        now,
        &mut instance.rng,
    );
    assert!(matches!(refused, Err(TwoFactorError::InvalidCode)));
    instance.advance_ms(600_000);
    let now = instance.now;
    let refused = instance.identity().confirm_totp(
        &session.session,
        &code(new.secret.expose(), now),
        now,
        &mut instance.rng,
    );
    assert!(matches!(refused, Err(TwoFactorError::NotEnabled)));
}

#[test]
fn a_recovery_code_works_once_in_any_spelling() {
    let (mut instance, _, codes) = enrolled();
    let typed = codes.0[3].expose().to_uppercase().replace('-', " ").replace('0', "O").replace('1', "l");
    let token = pending(&mut instance);
    verify(&mut instance, &token, SecondFactor::RecoveryCode(&typed)).expect("a recovery code");
    assert_eq!(instance.identity().twofa_status(instance.owner().id).expect("read").recovery_codes_left, 9);
    let token = pending(&mut instance);
    for used_or_foreign in [codes.0[3].expose(), "", "xxxx-xxxx-xxxx-xxxx-xxxx-xxxx"] {
        let refused = verify(&mut instance, &token, SecondFactor::RecoveryCode(used_or_foreign));
        assert!(matches!(refused, Err(CodeError::Invalid { .. })));
    }
    let actions: Vec<String> =
        instance.identity().audit(None, 100).expect("read").into_iter().map(|entry| entry.action).collect();
    assert!(actions.contains(&"recovery_code.used".to_owned()) && actions.contains(&"twofa.fail".to_owned()));
}

#[test]
fn new_recovery_codes_void_the_old_ones() {
    let (mut instance, secret, old) = enrolled();
    let (owner, now) = (instance.owner().id, instance.now);
    let bad = wrong(&secret, now);
    let refused = instance.identity().renew_recovery_codes(owner, &bad, now, &mut instance.rng);
    assert!(matches!(refused, Err(TwoFactorError::InvalidCode)));
    let new = instance
        .identity()
        .renew_recovery_codes(owner, &code(&secret, now), now, &mut instance.rng)
        .expect("renewed");
    let token = pending(&mut instance);
    let refused = verify(&mut instance, &token, SecondFactor::RecoveryCode(old.0[0].expose()));
    assert!(matches!(refused, Err(CodeError::Invalid { .. })));
    verify(&mut instance, &token, SecondFactor::RecoveryCode(new.0[0].expose())).expect("a new one");
}

/// Logs the owner in with a recovery code.
fn session_of(instance: &mut TestInstance, codes: &RecoveryCodes) -> Arc<Session> {
    let token = pending(instance);
    verify(instance, &token, SecondFactor::RecoveryCode(codes.0[9].expose())).expect("a session").session
}

fn disable(
    instance: &TestInstance,
    session: &Session,
    password: Option<&str>,
    factor: SecondFactor<'_>,
) -> Result<(), TwoFactorError> {
    let client = client("192.0.2.1");
    instance.identity().disable_totp(session, password.map(Password), factor, &client, instance.now)
}

#[test]
fn removing_the_second_factor_requires_password_and_code() {
    let (mut instance, secret, codes) = enrolled();
    let session = session_of(&mut instance, &codes);
    let (good, bad) = (code(&secret, instance.now), wrong(&secret, instance.now));
    let attempt =
        |password: Option<&str>, text: &str| disable(&instance, &session, password, SecondFactor::Code(text));
    assert!(matches!(attempt(None, &good), Err(TwoFactorError::InvalidPassword)));
    assert!(matches!(attempt(Some("wrong password"), &good), Err(TwoFactorError::InvalidPassword)));
    assert!(matches!(attempt(Some(PASSWORD), &bad), Err(TwoFactorError::InvalidCode)));
    attempt(Some(PASSWORD), &good).expect("removed");
    assert!(matches!(attempt(Some(PASSWORD), &good), Err(TwoFactorError::NotEnabled)));
    instance.session();
}

#[test]
fn wrong_passwords_at_removal_are_throttled_like_those_of_a_login() {
    let (mut instance, secret, codes) = enrolled();
    let session = session_of(&mut instance, &codes);
    let good = code(&secret, instance.now);
    for _ in 0..5 {
        let refused = disable(&instance, &session, Some("wrong password"), SecondFactor::Code(&good));
        assert!(matches!(refused, Err(TwoFactorError::InvalidPassword)));
    }
    let before = instance.identity().passwords_verified();
    let refused = disable(&instance, &session, Some(PASSWORD), SecondFactor::Code(&good));
    assert!(matches!(refused, Err(TwoFactorError::PasswordThrottled { .. })));
    assert_eq!(instance.identity().passwords_verified(), before);
    // Codes are counted separately.
    let token = pending(&mut instance);
    verify(&mut instance, &token, SecondFactor::Code(&good)).expect("not throttled");
}

/// A flood of wrong codes must not lock the owner out.
#[test]
fn wrong_codes_do_not_block_the_removal_with_a_recovery_code() {
    let (mut instance, secret, codes) = enrolled();
    let session = session_of(&mut instance, &codes);
    let (good, bad) = (code(&secret, instance.now), wrong(&secret, instance.now));
    for _ in 0..5 {
        let refused = disable(&instance, &session, Some(PASSWORD), SecondFactor::Code(&bad));
        assert!(matches!(refused, Err(TwoFactorError::InvalidCode)));
    }
    let before = instance.identity().passwords_verified();
    let refused = disable(&instance, &session, Some(PASSWORD), SecondFactor::Code(&good));
    assert!(matches!(refused, Err(TwoFactorError::Throttled { .. })));
    assert_eq!(instance.identity().passwords_verified(), before, "refused before the hash");
    disable(&instance, &session, Some(PASSWORD), SecondFactor::RecoveryCode(codes.0[0].expose()))
        .expect("removed");
}

/// Threat 26.
#[test]
fn no_login_method_bypasses_the_second_factor() {
    let (mut instance, secret, _) = enrolled();
    let owner = instance.owner().id;
    let link =
        instance.identity().issue_login_link(owner, None, instance.now, &mut instance.rng).expect("made");
    let attempt = LinkLogin {
        token: link.token.expose(),
        proof: LinkProof::Console,
        client: &client("192.0.2.1"),
        replaces: None,
    };
    let now = instance.now;
    let outcome = instance.identity().use_link(&attempt, now, &mut instance.rng).expect("used");
    let LoginOutcome::NeedsCode(pending) = outcome.login else { panic!("a second factor is set up") };
    let text = code(&secret, now);
    let session = verify(&mut instance, &pending.token, SecondFactor::Code(&text)).expect("the code");
    assert_eq!(session.session.auth_method, AuthMethod::MagicLink);
}

#[test]
fn a_disabled_account_is_stopped_at_its_second_factor() {
    let (mut instance, secret, _) = enrolled();
    let token = pending(&mut instance);
    instance.disable(instance.owner().id);
    let good = code(&secret, instance.now);
    assert!(matches!(
        verify(&mut instance, &token, SecondFactor::Code(&good)),
        Err(CodeError::PendingInvalid)
    ));
}

/// Threat 8: the database without its key.
#[test]
fn with_another_master_key_no_code_is_accepted() {
    let (mut instance, secret, _) = enrolled();
    instance.restart_with(IdentityOptions { argon2: CHEAP, ..Default::default() }, MasterKey([1; 32]));
    let token = pending(&mut instance);
    let good = code(&secret, instance.now);
    let refused = verify(&mut instance, &token, SecondFactor::Code(&good));
    assert!(matches!(refused, Err(CodeError::Store(StoreError::Sealed(_)))));
}

#[test]
fn a_code_makes_a_session_fresh_and_is_used_by_it() {
    let (mut instance, secret, _) = enrolled();
    let owner = instance.owner().id;
    let session = instance.identity().sessions(owner, instance.now).remove(0);
    instance.advance_ms(3_600_000);
    let text = code(&secret, instance.now);
    let prove = |instance: &TestInstance| {
        let given = Reauth::Factor(SecondFactor::Code(&text));
        instance.identity().reauth(&session, given, &client("192.0.2.1"), instance.now)
    };
    prove(&instance).expect("the code");
    assert!(session.is_fresh(instance.now));
    assert!(matches!(prove(&instance), Err(ReauthError::AlreadyUsed { .. })));
}
