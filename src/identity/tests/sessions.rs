//! Expiry, durability and end of sessions (docs/specification.md D1).

use super::*;

/// docs/specification.md D1: sliding expiry of 30 days.
#[test]
fn a_session_used_every_29_days_lives_and_one_unused_for_31_ends_for_good() {
    let mut instance = TestInstance::with_owner();
    let session = instance.session();
    for _ in 0..3 {
        instance.advance_ms(29 * DAY_MS);
        let SessionCheck::LiveOncePersisted(live) =
            instance.identity().session(session.token.expose(), instance.now)
        else {
            panic!("live, and the disk lags")
        };
        instance.identity().persist_session(&live).expect("written");
        assert_eq!(instance.check(&session.token), "live");
    }
    instance.advance_ms(31 * DAY_MS);
    let SessionCheck::Expired(dead) = instance.identity().session(session.token.expose(), instance.now)
    else {
        panic!("idle")
    };
    instance.identity().end_session(&dead, instance.now).expect("written");
    assert_eq!(instance.check(&session.token), "unknown");
    instance.crash();
    assert_eq!(instance.check(&session.token), "unknown", "the time added after a crash does not revive it");
}

#[test]
fn a_session_expires_exactly_30_days_after_its_last_use() {
    let mut instance = TestInstance::with_owner();
    let session = instance.session();
    instance.advance_ms(30 * DAY_MS);
    assert_eq!(instance.check(&session.token), "expired");
    instance.advance_ms(-1);
    assert_eq!(instance.check(&session.token), "live once persisted");
}

/// A small lag is not written, a longer one is queued, and the longest makes the request wait.
#[test]
fn renewals_are_written_after_a_lag_and_waited_for_after_a_long_one() {
    let mut instance = TestInstance::with_owner();
    let session = instance.session();
    let mut writes = 0;
    // Ten minutes with one request a second and a tick every five seconds.
    for second in 0..600 {
        instance.advance_ms(1_000);
        assert_eq!(instance.check(&session.token), "live", "second {second}");
        if second % 5 == 0 {
            writes += instance.identity().flush_sessions().expect("written");
        }
    }
    assert!((8..=10).contains(&writes), "{writes} writes for 600 requests");

    instance.advance_ms(10 * 60_000);
    assert_eq!(instance.check(&session.token), "live once persisted");
}

/// docs/specification.md D1: 600 requests around the lag of a minute, a tick every five seconds.
#[test]
fn six_hundred_requests_cause_at_most_two_writes() {
    let mut instance = TestInstance::with_owner();
    let session = instance.session();
    let mut batches = 0;
    for request in 0..600 {
        // Sixty requests a second.
        instance.advance_ms(if request % 3 == 0 { 18 } else { 16 });
        assert_eq!(instance.check(&session.token), "live");
        if request % 300 == 299 {
            batches += usize::from(instance.identity().flush_sessions().expect("written") > 0);
        }
    }
    assert!(batches <= 2, "{batches}");
    // The result is the same if the minute ends during the requests.
    instance.advance_ms(55_000);
    for request in 0..600 {
        instance.advance_ms(16);
        assert_eq!(instance.check(&session.token), "live");
        if request % 300 == 299 {
            batches += usize::from(instance.identity().flush_sessions().expect("written") > 0);
        }
    }
    assert!((1..=2).contains(&batches), "{batches}");
}

#[test]
fn a_crash_never_shortens_a_session() {
    let mut instance = TestInstance::with_owner();
    let session = instance.session();
    // Idle since day 0, one request on day 29.99 with a response after its write, then kill -9.
    let late = 29 * DAY_MS + 23 * 3_600_000;
    instance.advance_ms(late);
    let SessionCheck::LiveOncePersisted(live) =
        instance.identity().session(session.token.expose(), instance.now)
    else {
        panic!("live, and the disk lags")
    };
    instance.identity().persist_session(&live).expect("written");
    drop(live);
    instance.crash();
    instance.advance_ms(late);
    assert_eq!(instance.check(&session.token), "live once persisted");
}

#[test]
fn after_a_crash_sessions_are_extended_by_at_most_ten_minutes() {
    let mut instance = TestInstance::with_owner();
    let session = instance.session();
    // A response nine minutes after the login without a write: the stored time is still that of the
    // login.
    instance.advance_ms(9 * 60_000);
    assert_eq!(instance.check(&session.token), "live");
    let seen = instance.now;
    instance.crash();
    instance.now = seen.plus_ms(30 * DAY_MS - 1);
    let listed = instance.identity().sessions(instance.owner().id, instance.now);
    assert_eq!(listed.len(), 1, "not before 30 days after the last response");
    assert!(listed[0].last_seen().ms_since(seen) <= 60_000, "at most ten minutes after the stored time");

    let mut instance = TestInstance::with_owner();
    let session = instance.session();
    instance.advance_ms(60_000);
    instance.crash();
    assert_eq!(
        instance.identity().sessions(instance.owner().id, instance.now)[0].last_seen(),
        instance.now,
        "never in the future"
    );
    assert_eq!(instance.check(&session.token), "live");
}

#[test]
fn a_clean_stop_writes_every_delayed_renewal() {
    let mut instance = TestInstance::with_owner();
    let session = instance.session();
    instance.advance_ms(1_234);
    assert_eq!(instance.check(&session.token), "live");
    let seen = instance.now;
    instance.advance_ms(60_000);
    instance.restart();
    assert_eq!(instance.identity().sessions(instance.owner().id, instance.now)[0].last_seen(), seen);
}

/// Threat 9.
#[test]
fn a_revoked_session_stays_ended_even_if_its_renewal_is_queued() {
    let mut instance = TestInstance::with_owner();
    let (kept, revoked) = (instance.session(), instance.session());
    instance.advance_ms(2 * 60_000);
    assert_eq!(instance.check(&revoked.token), "live", "its renewal is queued");
    let owner = instance.owner().id;
    assert!(instance.identity().revoke_session(owner, revoked.session.id, instance.now).expect("written"));
    assert!(
        !instance.identity().revoke_session(owner, revoked.session.id, instance.now).expect("read"),
        "once"
    );
    instance.identity().tick(instance.now).expect("written");
    assert_eq!(instance.check(&revoked.token), "unknown");
    instance.crash();
    assert_eq!((instance.check(&revoked.token), instance.check(&kept.token)), ("unknown", "live"));
}

/// Threat 31.
#[test]
fn a_user_cannot_revoke_another_users_session() {
    let mut instance = TestInstance::with_owner();
    let session = instance.session();
    let stranger = instance.add_user("eve@example.org");
    assert!(!instance.identity().revoke_session(stranger, session.session.id, instance.now).expect("read"));
    assert_eq!(instance.check(&session.token), "live");
}

#[test]
fn ending_all_sessions_keeps_one_and_is_durable() {
    let mut instance = TestInstance::with_owner();
    let sessions: Vec<_> = (0..5).map(|_| instance.session()).collect();
    let owner = instance.owner().id;
    let keep = sessions[2].session.id;
    assert_eq!(instance.identity().revoke_sessions(owner, Some(keep), instance.now).expect("written"), 4);
    let states =
        |instance: &TestInstance| sessions.iter().map(|s| instance.check(&s.token)).collect::<Vec<_>>();
    assert_eq!(states(&instance), ["unknown", "unknown", "live", "unknown", "unknown"]);
    instance.crash();
    assert_eq!(states(&instance), ["unknown", "unknown", "live", "unknown", "unknown"]);
    instance.identity().tick(instance.now).expect("swept");
    assert_eq!(
        instance.identity().rows::<SessionRow>(&()).expect("read").len(),
        1,
        "rows of ended sessions are swept"
    );
    let after = instance.session();
    assert_eq!(instance.check(&after.token), "live");
    assert_eq!(instance.identity().revoke_sessions(owner, None, instance.now).expect("written"), 2);
    assert_eq!(instance.identity().sessions(owner, instance.now).len(), 0);
}

#[test]
fn logins_concurrent_with_the_end_of_all_sessions_leave_memory_and_disk_equal() {
    let mut instance = TestInstance::with_owner();
    let owner = instance.owner().id;
    let (identity, now) = (instance.identity(), instance.now);
    let tokens = race(12, |number| {
        let mut rng = Entropy::seeded(500 + number as u64);
        if number % 3 == 0 {
            identity.revoke_sessions(owner, None, now).expect("written");
            return None;
        }
        let here = client("192.0.2.1");
        let attempt = PasswordLogin {
            email: EMAIL,
            password: Password(PASSWORD),
            client: &here,
            replaces: None,
            device: None,
        };
        match identity.login(&attempt, now, &mut rng) {
            Ok(LoginOutcome::LoggedIn(session)) => Some(session.token),
            other => panic!("{other:?}"),
        }
    });
    drop(identity);
    let states = |instance: &TestInstance| {
        tokens.iter().flatten().map(|token| instance.check(token)).collect::<Vec<_>>()
    };
    let before = states(&instance);
    instance.crash();
    assert_eq!(states(&instance), before);
}

#[test]
fn the_user_agent_is_truncated_and_the_list_is_newest_first() {
    let mut instance = TestInstance::with_owner();
    let first = instance.session();
    instance.advance_ms(1_000);
    let here = Client { user_agent: "ä".repeat(1_000), ..client("192.0.2.1") };
    let attempt = PasswordLogin {
        email: EMAIL,
        password: Password(PASSWORD),
        client: &here,
        replaces: None,
        device: None,
    };
    let now = instance.now;
    instance.identity().login(&attempt, now, &mut instance.rng).expect("right");
    let listed = instance.identity().sessions(instance.owner().id, instance.now);
    assert_eq!(listed.len(), 2);
    assert_eq!((listed[0].client.user_agent.len(), listed[1].id), (256, first.session.id));
}

#[test]
fn at_ten_thousand_sessions_the_least_recently_used_is_evicted() {
    let mut instance = TestInstance::with_owner();
    let oldest = instance.session();
    let owner = instance.owner().id;
    // Added to memory only; ten thousand commits would test nothing more.
    for _ in 1..session::SESSIONS_MAX {
        instance.advance_ms(1);
        let row = SessionRow {
            id: SessionId::random(&mut instance.rng),
            created_at: instance.now,
            auth_time: instance.now,
            auth_method: AuthMethod::Password,
            second_factor: false,
            epoch: 0,
            ip: "192.0.2.1".parse().expect("ip"),
            user_agent: String::new(),
        };
        let hash = Secret::random(SecretKind::Session, &mut instance.rng).hash();
        instance.identity().admit_session(owner, hash, row, &[]);
    }
    instance.advance_ms(1);
    let new = instance.session();
    assert_eq!((instance.check(&oldest.token), instance.check(&new.token)), ("unknown", "live"));
    assert_eq!(instance.identity().sessions(owner, instance.now).len(), session::SESSIONS_MAX);
    let entries = instance.identity().audit(None, 10).expect("read").into_iter();
    let evictions: Vec<_> = entries.filter(|entry| entry.action == "session.revoked").collect();
    assert_eq!((evictions.len(), &evictions[0].target), (1, &oldest.session.id.to_string()), "recorded");
    // A session that replaces another one of the same user evicts none.
    let before = instance.identity().sessions(owner, instance.now).len();
    let replaces = new.token.expose().to_owned();
    instance.login_as(EMAIL, PASSWORD, "192.0.2.1", Some(&replaces)).expect("right");
    assert_eq!(instance.identity().sessions(owner, instance.now).len(), before);
}

#[test]
fn an_absolute_lifetime_ends_even_a_busy_session() {
    let options = IdentityOptions {
        argon2: CHEAP,
        session_absolute: Some(Duration::from_secs(7 * 24 * 3_600)),
        ..IdentityOptions::default()
    };
    let mut instance = TestInstance::with(options);
    let bootstrap = Bootstrap { email: EMAIL, password: Password(PASSWORD), org: "acme" };
    instance.identity().bootstrap(&bootstrap, instance.now, &mut instance.rng).expect("set up");
    let session = instance.session();
    for _ in 0..6 {
        instance.advance_ms(DAY_MS);
        assert_ne!(instance.check(&session.token), "expired");
        assert_eq!(
            session.session.expires_at(),
            session.session.created_at.plus_ms(7 * DAY_MS),
            "as reported"
        );
    }
    instance.advance_ms(DAY_MS);
    assert_eq!(instance.check(&session.token), "expired");
}

#[test]
fn expired_sessions_are_swept_without_a_request() {
    let mut instance = TestInstance::with_owner();
    instance.session();
    instance.advance_ms(31 * DAY_MS);
    instance.identity().tick(instance.now).expect("swept");
    assert_eq!(instance.identity().rows::<SessionRow>(&()).expect("read").len(), 0);
}

#[test]
fn malformed_session_tokens_are_unknown() {
    let instance = TestInstance::with_owner();
    for token in
        ["", "ses_", "mgl_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", "ses_ä", &"ses_".repeat(10_000)]
    {
        assert_eq!(instance.check(&Secret::new(token)), "unknown");
    }
}

#[test]
fn a_session_is_fresh_for_a_quarter_of_an_hour_and_again_after_the_password() {
    let mut instance = TestInstance::with_owner();
    let session = instance.session().session;
    let here = client("192.0.2.1");
    let prove = |instance: &TestInstance, password: &str| {
        instance.identity().reauth(&session, Reauth::Password(Password(password)), &here, instance.now)
    };
    instance.advance_ms(15 * 60_000);
    assert!(session.is_fresh(instance.now));
    instance.advance_ms(1);
    assert!(!session.is_fresh(instance.now));
    assert!(matches!(prove(&instance, "wrong password"), Err(ReauthError::InvalidCredentials)));
    assert!(!session.is_fresh(instance.now));
    prove(&instance, PASSWORD).expect("the right one");
    assert!(session.is_fresh(instance.now));
    instance.crash();
    let again = instance.identity().sessions(instance.owner().id, instance.now);
    assert_eq!(again[0].auth_time(), instance.now, "durable");
}

#[test]
fn reauthentication_is_throttled_like_a_login_and_requires_a_live_session() {
    let mut instance = TestInstance::with_owner();
    let session = instance.session().session;
    let here = client("192.0.2.1");
    let prove = |instance: &TestInstance, given: Reauth<'_>| {
        instance.identity().reauth(&session, given, &here, instance.now)
    };
    for _ in 0..5 {
        let refused = prove(&instance, Reauth::Password(Password("wrong password")));
        assert!(matches!(refused, Err(ReauthError::InvalidCredentials)));
    }
    let right = Reauth::Password(Password(PASSWORD));
    assert!(matches!(prove(&instance, right), Err(ReauthError::Throttled { .. })));
    instance.advance_ms(1_000);
    let no_factor = Reauth::Factor(SecondFactor::Code("123456"));
    assert!(matches!(prove(&instance, no_factor), Err(ReauthError::InvalidCode)));
    instance.identity().end_session(&session, instance.now).expect("written");
    assert!(matches!(prove(&instance, right), Err(ReauthError::SessionOver)));
}
