//! Sessions slide, survive, and end (docs/specification.md D1).

use super::*;

/// Spec: sliding 30 days.
#[test]
fn a_session_used_every_29_days_lives_and_one_left_for_31_dies_for_good() {
    let mut house = House::furnished();
    let session = house.session();
    for _ in 0..3 {
        house.advance_ms(29 * DAY_MS);
        let SessionCheck::LiveOncePersisted(live) =
            house.identity().session(session.token.expose(), house.now)
        else {
            panic!("live, and the disk lags")
        };
        house.identity().persist_session(&live).expect("written");
        assert_eq!(house.check(&session.token), "live");
    }
    house.advance_ms(31 * DAY_MS);
    let SessionCheck::Expired(dead) = house.identity().session(session.token.expose(), house.now) else {
        panic!("idle")
    };
    house.identity().end_session(&dead, house.now).expect("written");
    assert_eq!(house.check(&session.token), "unknown");
    house.crash();
    assert_eq!(house.check(&session.token), "unknown", "no guard brings it back");
}

#[test]
fn a_session_ends_exactly_30_days_after_it_was_last_seen() {
    let mut house = House::furnished();
    let session = house.session();
    house.advance_ms(30 * DAY_MS);
    assert_eq!(house.check(&session.token), "expired");
    house.advance_ms(-1);
    assert_eq!(house.check(&session.token), "live once persisted");
}

/// The rule by lag: nothing, queued, waited for.
#[test]
fn only_a_lag_is_written_and_only_a_long_one_is_waited_for() {
    let mut house = House::furnished();
    let session = house.session();
    let mut writes = 0;
    // Ten minutes at one request a second, a tick every five.
    for second in 0..600 {
        house.advance_ms(1_000);
        assert_eq!(house.check(&session.token), "live", "second {second}");
        if second % 5 == 0 {
            writes += house.identity().flush_sessions().expect("written");
        }
    }
    assert!((8..=10).contains(&writes), "{writes} writes for 600 requests");

    house.advance_ms(10 * 60_000);
    assert_eq!(house.check(&session.token), "live once persisted");
}

/// docs/specification.md D1: 600 requests within their minute of grace, a tick every five seconds.
#[test]
fn six_hundred_requests_at_the_limit_are_two_writes_at_most() {
    let mut house = House::furnished();
    let session = house.session();
    let mut batches = 0;
    for request in 0..600 {
        // Sixty a second.
        house.advance_ms(if request % 3 == 0 { 18 } else { 16 });
        assert_eq!(house.check(&session.token), "live");
        if request % 300 == 299 {
            batches += usize::from(house.identity().flush_sessions().expect("written") > 0);
        }
    }
    assert!(batches <= 2, "{batches}");
    // Also where the minute ends within them.
    house.advance_ms(55_000);
    for request in 0..600 {
        house.advance_ms(16);
        assert_eq!(house.check(&session.token), "live");
        if request % 300 == 299 {
            batches += usize::from(house.identity().flush_sessions().expect("written") > 0);
        }
    }
    assert!((1..=2).contains(&batches), "{batches}");
}

#[test]
fn a_crash_never_shortens_a_session() {
    let mut house = House::furnished();
    let session = house.session();
    // Idle since day 0, one request on day 29.99, answered after its write, then kill -9.
    let late = 29 * DAY_MS + 23 * 3_600_000;
    house.advance_ms(late);
    let SessionCheck::LiveOncePersisted(live) = house.identity().session(session.token.expose(), house.now)
    else {
        panic!("live, and the disk lags")
    };
    house.identity().persist_session(&live).expect("written");
    drop(live);
    house.crash();
    house.advance_ms(late);
    assert_eq!(house.check(&session.token), "live once persisted");
}

#[test]
fn what_a_crash_took_is_given_back_and_no_more_than_ten_minutes() {
    let mut house = House::furnished();
    let session = house.session();
    // Answered nine minutes after login without a write: the disk still says "login".
    house.advance_ms(9 * 60_000);
    assert_eq!(house.check(&session.token), "live");
    let seen = house.now;
    house.crash();
    house.now = seen.plus_ms(30 * DAY_MS - 1);
    let listed = house.identity().sessions(house.owner().id, house.now);
    assert_eq!(listed.len(), 1, "not earlier than 30 days after the last answer");
    assert!(listed[0].last_seen().ms_since(seen) <= 60_000, "at most ten minutes after what the disk says");

    let mut house = House::furnished();
    let session = house.session();
    house.advance_ms(60_000);
    house.crash();
    assert_eq!(
        house.identity().sessions(house.owner().id, house.now)[0].last_seen(),
        house.now,
        "never in the future"
    );
    assert_eq!(house.check(&session.token), "live");
}

#[test]
fn a_clean_stop_writes_every_session_that_lags_at_all() {
    let mut house = House::furnished();
    let session = house.session();
    house.advance_ms(1_234);
    assert_eq!(house.check(&session.token), "live");
    let seen = house.now;
    house.advance_ms(60_000);
    house.restart();
    assert_eq!(house.identity().sessions(house.owner().id, house.now)[0].last_seen(), seen);
}

/// Threat 9.
#[test]
fn a_revoked_session_stays_dead_even_if_its_renewal_waits() {
    let mut house = House::furnished();
    let (kept, revoked) = (house.session(), house.session());
    house.advance_ms(2 * 60_000);
    assert_eq!(house.check(&revoked.token), "live", "its renewal waits for the flusher");
    let owner = house.owner().id;
    assert!(house.identity().revoke_session(owner, revoked.session.id, house.now).expect("written"));
    assert!(!house.identity().revoke_session(owner, revoked.session.id, house.now).expect("read"), "once");
    house.identity().tick(house.now).expect("written");
    assert_eq!(house.check(&revoked.token), "unknown");
    house.crash();
    assert_eq!((house.check(&revoked.token), house.check(&kept.token)), ("unknown", "live"));
}

/// Threat 31.
#[test]
fn nobody_can_revoke_another_users_session() {
    let mut house = House::furnished();
    let session = house.session();
    let stranger = house.add_user("eve@example.org");
    assert!(!house.identity().revoke_session(stranger, session.session.id, house.now).expect("read"));
    assert_eq!(house.check(&session.token), "live");
}

#[test]
fn all_sessions_end_but_the_one_kept_and_it_stays_so() {
    let mut house = House::furnished();
    let sessions: Vec<_> = (0..5).map(|_| house.session()).collect();
    let owner = house.owner().id;
    let keep = sessions[2].session.id;
    assert_eq!(house.identity().revoke_sessions(owner, Some(keep), house.now).expect("written"), 4);
    let states = |house: &House| sessions.iter().map(|s| house.check(&s.token)).collect::<Vec<_>>();
    assert_eq!(states(&house), ["unknown", "unknown", "live", "unknown", "unknown"]);
    house.crash();
    assert_eq!(states(&house), ["unknown", "unknown", "live", "unknown", "unknown"]);
    house.identity().tick(house.now).expect("swept");
    assert_eq!(
        house.identity().rows::<session::SessionRow>(&()).expect("read").len(),
        1,
        "dead rows are swept"
    );
    let after = house.session();
    assert_eq!(house.check(&after.token), "live");
    assert_eq!(house.identity().revoke_sessions(owner, None, house.now).expect("written"), 2);
    assert_eq!(house.identity().sessions(owner, house.now).len(), 0);
}

#[test]
fn logins_racing_with_the_end_of_all_sessions_leave_memory_and_disk_agreeing() {
    let mut house = House::furnished();
    let owner = house.owner().id;
    let (identity, now) = (house.identity(), house.now);
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
    let states = |house: &House| tokens.iter().flatten().map(|token| house.check(token)).collect::<Vec<_>>();
    let before = states(&house);
    house.crash();
    assert_eq!(states(&house), before);
}

#[test]
fn the_user_agent_is_cut_and_the_list_is_newest_first() {
    let mut house = House::furnished();
    let first = house.session();
    house.advance_ms(1_000);
    let here = Client { user_agent: "ä".repeat(1_000), ..client("192.0.2.1") };
    let attempt = PasswordLogin {
        email: EMAIL,
        password: Password(PASSWORD),
        client: &here,
        replaces: None,
        device: None,
    };
    let now = house.now;
    house.identity().login(&attempt, now, &mut house.rng).expect("right");
    let listed = house.identity().sessions(house.owner().id, house.now);
    assert_eq!(listed.len(), 2);
    assert_eq!((listed[0].client.user_agent.len(), listed[1].id), (256, first.session.id));
}

#[test]
fn at_ten_thousand_sessions_the_least_recently_seen_makes_room() {
    let mut house = House::furnished();
    let oldest = house.session();
    let owner = house.owner().id;
    // Straight into memory: ten thousand commits would say nothing more.
    for _ in 1..session::SESSIONS_MAX {
        house.advance_ms(1);
        let row = session::SessionRow {
            id: SessionId::random(&mut house.rng),
            created_at: house.now,
            auth_time: house.now,
            auth_method: AuthMethod::Password,
            second_factor: false,
            epoch: 0,
            ip: "192.0.2.1".parse().expect("ip"),
            user_agent: String::new(),
        };
        let hash = Secret::random(SecretKind::Session, &mut house.rng).hash();
        house.identity().admit_session(owner, hash, row, &[]);
    }
    house.advance_ms(1);
    let new = house.session();
    assert_eq!((house.check(&oldest.token), house.check(&new.token)), ("unknown", "live"));
    assert_eq!(house.identity().sessions(owner, house.now).len(), session::SESSIONS_MAX);
    let told = house.identity().audit(None, 10).expect("read").into_iter();
    let told: Vec<_> = told.filter(|entry| entry.action == "session.revoked").collect();
    assert_eq!((told.len(), &told[0].target), (1, &oldest.session.id.to_string()), "said why");
    // One that replaces its own makes no further room.
    let before = house.identity().sessions(owner, house.now).len();
    let replaces = new.token.expose().to_owned();
    house.login_as(EMAIL, PASSWORD, "192.0.2.1", Some(&replaces)).expect("right");
    assert_eq!(house.identity().sessions(owner, house.now).len(), before);
}

#[test]
fn an_absolute_lifetime_ends_even_a_busy_session() {
    let options = IdentityOptions {
        argon2: CHEAP,
        session_absolute: Some(Duration::from_secs(7 * 24 * 3_600)),
        ..IdentityOptions::default()
    };
    let mut house = House::with(options);
    let bootstrap = Bootstrap { email: EMAIL, password: Password(PASSWORD), org: "acme" };
    house.identity().bootstrap(&bootstrap, house.now, &mut house.rng).expect("set up");
    let session = house.session();
    for _ in 0..6 {
        house.advance_ms(DAY_MS);
        assert_ne!(house.check(&session.token), "expired");
        assert_eq!(
            session.session.expires_at(),
            session.session.created_at.plus_ms(7 * DAY_MS),
            "and says so"
        );
    }
    house.advance_ms(DAY_MS);
    assert_eq!(house.check(&session.token), "expired");
}

#[test]
fn expired_sessions_are_swept_without_being_asked_for() {
    let mut house = House::furnished();
    house.session();
    house.advance_ms(31 * DAY_MS);
    house.identity().tick(house.now).expect("swept");
    assert_eq!(house.identity().rows::<session::SessionRow>(&()).expect("read").len(), 0);
}

#[test]
fn what_is_no_session_token_is_unknown() {
    let house = House::furnished();
    for token in
        ["", "ses_", "mgl_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", "ses_ä", &"ses_".repeat(10_000)]
    {
        assert_eq!(house.check(&Secret::new(token)), "unknown");
    }
}

#[test]
fn a_session_is_fresh_for_a_quarter_of_an_hour_and_again_after_the_password() {
    let mut house = House::furnished();
    let session = house.session().session;
    let here = client("192.0.2.1");
    let prove = |house: &House, password: &str| {
        house.identity().reauth(&session, Reauth::Password(Password(password)), &here, house.now)
    };
    house.advance_ms(15 * 60_000);
    assert!(session.is_fresh(house.now));
    house.advance_ms(1);
    assert!(!session.is_fresh(house.now));
    assert!(matches!(prove(&house, "wrong password"), Err(ReauthError::InvalidCredentials)));
    assert!(!session.is_fresh(house.now));
    prove(&house, PASSWORD).expect("the right one");
    assert!(session.is_fresh(house.now));
    house.crash();
    let again = house.identity().sessions(house.owner().id, house.now);
    assert_eq!(again[0].auth_time(), house.now, "durable");
}

#[test]
fn proving_it_again_is_throttled_like_a_login_and_ends_with_the_session() {
    let mut house = House::furnished();
    let session = house.session().session;
    let here = client("192.0.2.1");
    let prove = |house: &House, given: Reauth<'_>| house.identity().reauth(&session, given, &here, house.now);
    for _ in 0..5 {
        let refused = prove(&house, Reauth::Password(Password("wrong password")));
        assert!(matches!(refused, Err(ReauthError::InvalidCredentials)));
    }
    let right = Reauth::Password(Password(PASSWORD));
    assert!(matches!(prove(&house, right), Err(ReauthError::Throttled { .. })));
    house.advance_ms(1_000);
    let no_factor = Reauth::Factor(SecondFactor::Code("123456"));
    assert!(matches!(prove(&house, no_factor), Err(ReauthError::InvalidCode)));
    house.identity().end_session(&session, house.now).expect("written");
    assert!(matches!(prove(&house, right), Err(ReauthError::SessionOver)));
}
