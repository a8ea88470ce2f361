//! Passwords, throttling, the first account.

use super::*;

/// Threat 1 and 2: one answer, and the same work.
#[test]
fn unknown_wrong_and_disabled_are_one_answer_after_the_same_work() {
    let mut house = House::furnished();
    let gone = house.add_user("gone@example.org");
    house.disable(gone);
    let cases = [
        (EMAIL, "wrong password"),
        ("nobody@example.org", PASSWORD),
        ("gone@example.org", PASSWORD),
        ("no address", PASSWORD),
        (EMAIL, ""),
        (EMAIL, &"x".repeat(5_000)),
    ];
    for (number, (email, password)) in cases.into_iter().enumerate() {
        let before = house.identity().passwords_verified();
        let refused = house.login_as(email, password, &format!("192.0.2.{number}"), None);
        assert!(matches!(refused, Err(LoginError::InvalidCredentials)), "{email}");
        assert_eq!(house.identity().passwords_verified(), before + 1, "{email}: one hash, whoever asks");
    }
}

/// Threat 2: an account whose hash is of another cost than today's takes the work that nobody's takes.
#[test]
fn hashes_of_older_costs_take_the_same_work_as_no_account_at_all() {
    let mut house = House::furnished();
    house.add_user("dear@example.org");
    let argon2 = |memory_kib, passes| IdentityOptions {
        argon2: Argon2Cost { memory_kib, passes, lanes: 1 },
        ..IdentityOptions::default()
    };
    // 8 x 1 is Ada's and what `dear` will leave; 64 x 3 is Rosa's; 16 x 2 is today's.
    house.restart_with(argon2(64, 3), MasterKey([9; 32]));
    house.add_user("rosa@example.org");
    house.restart_with(argon2(16, 2), MasterKey([9; 32]));
    house.add_user("grace@example.org");
    let everybody =
        [EMAIL, "dear@example.org", "rosa@example.org", "grace@example.org", "nobody@example.org", "none"];
    let mut networks = 0..;
    let mut spent = |house: &mut House, email: &str| {
        let before = (house.identity().password_work_kib(), house.identity().passwords_verified());
        let network = format!("192.0.2.{}", networks.next().expect("many"));
        let refused = house.login_as(email, "wrong password", &network, None);
        assert!(matches!(refused, Err(LoginError::InvalidCredentials)), "{email}");
        assert_eq!(house.identity().passwords_verified(), before.1 + 1);
        house.identity().password_work_kib() - before.0
    };
    for email in everybody {
        assert_eq!(spent(&mut house, email), 8 + 16 * 2 + 64 * 3, "{email}");
    }
    // Who logs in gets a hash of today's cost; when the last of a cost has, it costs nobody anything.
    for email in [EMAIL, "rosa@example.org"] {
        house.login_as(email, PASSWORD, "192.0.2.200", None).expect("right");
    }
    house.advance_ms(11 * 60_000);
    house.identity().tick(house.now).expect("swept");
    for email in everybody {
        assert_eq!(spent(&mut house, email), 8 + 16 * 2, "{email}");
    }
    house.login_as("dear@example.org", PASSWORD, "192.0.2.200", None).expect("right");
    house.crash();
    for email in everybody {
        assert_eq!(spent(&mut house, email), 16 * 2, "{email}");
    }
}

#[test]
fn the_right_password_gives_a_session_and_the_address_may_be_typed_in_any_case() {
    let mut house = House::furnished();
    let outcome = house.login_as("  ADA@Example.org ", PASSWORD, "192.0.2.1", None).expect("right");
    let LoginOutcome::LoggedIn(session) = outcome else { panic!("no second factor") };
    assert_eq!((session.user.email.as_str(), session.user.is_admin), (EMAIL, true));
    assert_eq!(session.orgs.len(), 1);
    assert_eq!((session.orgs[0].org.slug.as_str(), session.orgs[0].role), ("acme", Role::Owner));
    assert_eq!(session.session.auth_method, AuthMethod::Password);
    assert_eq!(house.check(&session.token), "live");
}

/// CVE-2022-46146: whoever reads a stored hash cannot log in with it.
#[test]
fn a_stored_hash_is_no_password() {
    let mut house = House::furnished();
    let owner = house.owner().id;
    let row = house.identity().row::<user::UserRow>(&owner).expect("read").expect("there");
    let stored = row.password.expect("a password");
    let output = stored.rsplit('$').next().expect("a hash").to_owned();
    for (number, text) in [&stored, &output, "", "$argon2id$"].into_iter().enumerate() {
        let refused = house.login_as(EMAIL, text, &format!("192.0.2.{number}"), None);
        assert!(matches!(refused, Err(LoginError::InvalidCredentials)), "{text}");
    }
}

/// Threat 3 and 4.
#[test]
fn the_wait_is_the_same_for_known_and_unknown_addresses_and_costs_no_hash() {
    let mut house = House::furnished();
    let mut waits = Vec::new();
    for email in [EMAIL, "nobody@example.org"] {
        let mut seen = Vec::new();
        for _ in 0..7 {
            let before = house.identity().passwords_verified();
            seen.push(match house.login_as(email, "wrong password", "192.0.2.1", None) {
                Err(LoginError::InvalidCredentials) => 0,
                Err(LoginError::Throttled { retry_after }) => {
                    assert_eq!(house.identity().passwords_verified(), before, "decided before hashing");
                    retry_after.as_secs()
                }
                other => panic!("{other:?}"),
            });
        }
        waits.push(seen);
    }
    assert_eq!(waits[0], [0, 0, 0, 0, 0, 1, 1]);
    assert_eq!(waits[0], waits[1]);

    assert!(matches!(house.login(PASSWORD), Err(LoginError::Throttled { .. })), "even the right one waits");
    house.advance_ms(1_000);
    house.session();
    for _ in 0..4 {
        assert!(
            matches!(house.login("wrong password"), Err(LoginError::InvalidCredentials)),
            "a success starts over"
        );
    }
}

/// Threat 5.
#[test]
fn a_guesser_elsewhere_does_not_lock_the_owner_out() {
    let mut house = House::furnished();
    for _ in 0..200 {
        let _ = house.login_as(EMAIL, "wrong password", "203.0.113.9", None);
    }
    assert!(matches!(
        house.login_as(EMAIL, PASSWORD, "203.0.113.9", None),
        Err(LoginError::Throttled { .. })
    ));
    house.session();
}

/// docs/specification.md D4, key 3: many networks, one address. Who logged in before is not a stranger.
#[test]
fn a_guesser_everywhere_slows_strangers_down_and_not_the_owners_browser() {
    let mut house = House::furnished();
    let device = house.identity().device_token(EMAIL, house.now, &mut house.rng);
    let others = house.identity().device_token("eve@example.org", house.now, &mut house.rng);
    for n in 0..100 {
        let _ = house.login_as(EMAIL, "wrong password", &format!("2001:db8:{n:x}::1"), None);
    }
    let attempt = |house: &mut House, device: Option<&str>| {
        let (here, now) = (client("2001:db8:ffff::1"), house.now);
        let password = Password(PASSWORD);
        let attempt = PasswordLogin { email: EMAIL, password, client: &here, replaces: None, device };
        house.identity().login(&attempt, now, &mut house.rng)
    };
    let before = house.identity().passwords_verified();
    for stranger in [None, Some(""), Some("dvc_x"), Some(others.expose())] {
        match attempt(&mut house, stranger) {
            Err(LoginError::Throttled { retry_after }) => assert_eq!(retry_after.as_secs(), 60),
            other => panic!("{stranger:?}: {other:?}"),
        }
    }
    assert_eq!(house.identity().passwords_verified(), before, "decided before hashing");
    let tampered = device.expose().replacen("dvc_", "dvc_A", 1);
    assert!(attempt(&mut house, Some(&tampered[..device.expose().len()])).is_err());

    // A link opens the door meanwhile, too; and the success of the known browser ends the wait for all.
    let asked = LinkRequest { email: &Email::parse(EMAIL).expect("valid"), redirect: None, browser: None };
    let now = house.now;
    assert!(house.identity().request_link(&asked, now, &mut house.rng).expect("written").is_some());
    attempt(&mut house, Some(device.expose())).expect("the owner's browser");
    attempt(&mut house, None).expect("nobody waits any more");
}

/// The same address from the same network: behind one proxy, say.
#[test]
fn a_guesser_next_door_does_not_lock_the_owners_browser_out() {
    let mut house = House::furnished();
    let device = house.identity().device_token(EMAIL, house.now, &mut house.rng);
    for _ in 0..200 {
        let _ = house.login("wrong password");
        house.advance_ms(1_000);
    }
    assert!(matches!(house.login(PASSWORD), Err(LoginError::Throttled { .. })));
    let (here, now) = (client("192.0.2.1"), house.now);
    let (password, device) = (Password(PASSWORD), Some(device.expose()));
    let attempt = PasswordLogin { email: EMAIL, password, client: &here, replaces: None, device };
    assert!(house.identity().login(&attempt, now, &mut house.rng).is_ok());
}

#[test]
fn a_browser_is_forgotten_a_year_after_its_login() {
    let mut house = House::furnished();
    let device = house.identity().device_token(EMAIL, house.now, &mut house.rng);
    let known =
        |house: &House| house.identity().known_device(Some(device.expose()), EMAIL, house.now).is_some();
    house.advance_ms(365 * DAY_MS - 1);
    assert!(known(&house));
    house.advance_ms(1);
    assert!(!known(&house));
}

#[test]
fn good_logins_are_never_throttled() {
    let mut house = House::furnished();
    for _ in 0..60 {
        house.session();
    }
}

/// Threat 7.
#[test]
fn a_login_makes_a_new_session_and_ends_the_one_it_came_with() {
    let mut house = House::furnished();
    let first = house.session();
    let planted = format!("ses_{}", "A".repeat(43));
    for (old, expected) in [(first.token.expose(), "unknown"), (&planted, "unknown")] {
        let outcome = house.login_as(EMAIL, PASSWORD, "192.0.2.1", Some(old)).expect("right");
        let LoginOutcome::LoggedIn(new) = outcome else { panic!("no second factor") };
        assert_ne!(new.token.expose(), old);
        assert_eq!(house.check(&Secret::new(old)), expected);
        assert_eq!(house.check(&new.token), "live");
    }
    house.crash();
    assert_eq!(house.check(&first.token), "unknown", "durable");
}

#[test]
fn a_login_after_the_cost_changed_hashes_again() {
    let mut house = House::furnished();
    let stored = |house: &House| {
        let owner = house.owner().id;
        house.identity().row::<user::UserRow>(&owner).expect("read").expect("there").password.expect("set")
    };
    let before = stored(&house);
    house.session();
    assert_eq!(stored(&house), before);
    let dearer =
        IdentityOptions { argon2: Argon2Cost { memory_kib: 16, passes: 1, lanes: 1 }, ..Default::default() };
    house.restart_with(dearer, MasterKey([9; 32]));
    house.session();
    assert!(stored(&house).contains("m=16,"));
    house.session();
}

#[test]
fn failures_stand_in_the_audit_log_after_the_next_tick_without_any_secret() {
    let mut house = House::furnished();
    let _ = house.login("wrong password");
    house.session();
    house.identity().tick(house.now).expect("written");
    let entries = house.identity().audit(None, 100).expect("read");
    let actions: Vec<&str> = entries.iter().map(|entry| entry.action.as_str()).collect();
    for expected in ["login.ok", "login.fail", "admin.set_up"] {
        assert!(actions.contains(&expected), "{expected} in {actions:?}");
    }
    assert!(!format!("{entries:?}").contains("wrong password"));
}

#[test]
fn a_flood_of_failures_is_counted_and_not_listed() {
    let house = House::furnished();
    for number in 0..1_000 {
        let event = audit::Event::by_nobody("token.rejected").target(&number.to_string());
        house.identity().note_failure(event, house.now);
    }
    house.identity().tick(house.now).expect("written");
    let entries = house.identity().audit(None, 10_000).expect("read");
    let rejected: Vec<_> = entries.iter().filter(|entry| entry.action == "token.rejected").collect();
    assert_eq!((rejected.len(), &*rejected[0].detail), (1, ""), "{rejected:?}");
    house.identity().close(house.now).expect("written");
    let entries = house.identity().audit(None, 10_000).expect("read");
    let count = entries.iter().filter(|entry| entry.detail == "and 999 more within a minute").count();
    assert_eq!(count, 1, "{entries:?}");
}

#[test]
fn old_audit_entries_are_swept() {
    let mut house = House::furnished();
    house.session();
    assert!(!house.identity().audit(None, 10).expect("read").is_empty());
    house.advance_ms(91 * DAY_MS);
    house.identity().tick(house.now).expect("swept");
    assert_eq!(house.identity().audit(None, 10).expect("read"), []);
}

fn set_up<'a>(client: &'a Client, token: Option<&'a str>, peer: SetUpPeer) -> SetUp<'a> {
    let org = NewOrg { slug: slug("acme"), name: "Acme".into() };
    SetUp { token, peer, email: EMAIL, password: Password(PASSWORD), name: "Ada", org, client }
}

/// Threat 46.
#[test]
fn set_up_from_another_machine_needs_the_newest_token() {
    let mut house = House::empty();
    let identity = house.identity();
    let here = client("192.0.2.1");
    assert!(identity.needs_setup());
    let old = identity.issue_setup_token(house.now, &mut house.rng);
    let new = identity.issue_setup_token(house.now, &mut house.rng);
    for token in [None, Some(""), Some("sgn_x"), Some(old.expose())] {
        let refused = identity.set_up(&set_up(&here, token, SetUpPeer::Remote), house.now, &mut house.rng);
        assert!(matches!(refused, Err(SetUpError::TokenRequired)), "{token:?}");
    }
    let request = set_up(&here, Some(new.expose()), SetUpPeer::Remote);
    let made = identity.set_up(&request, house.now, &mut house.rng).expect("made");
    assert_eq!(house.check(&made.token), "live");
    assert!(made.user.is_admin && made.orgs[0].role == Role::Owner && made.user.name == "Ada");
    assert!(!identity.needs_setup());
    assert!(matches!(identity.set_up(&request, house.now, &mut house.rng), Err(SetUpError::Closed)));
    drop(identity);
    house.crash();
    assert!(!house.identity().needs_setup(), "durable");
    assert_eq!(house.check(&made.token), "live");
}

/// What is not durable is refused, and nothing is half done.
#[test]
fn a_disk_that_takes_no_change_refuses_every_login() {
    let mut house = House::furnished();
    let before = house.session();
    house.open.as_ref().expect("open").control.fail_syncs(true);
    assert!(matches!(house.login(PASSWORD), Err(LoginError::Store(_))));
    assert_eq!(house.check(&before.token), "live", "reading goes on");
    house.crash();
    assert_eq!(house.check(&before.token), "live");
    house.session();
}

#[test]
fn of_fifty_set_ups_at_once_one_wins() {
    let house = House::empty();
    let (identity, here) = (house.identity(), client("127.0.0.1"));
    let won = race(50, |number| {
        let mut rng = Entropy::seeded(100 + number as u64);
        identity.set_up(&set_up(&here, None, SetUpPeer::Local), house.now, &mut rng).is_ok()
    });
    assert_eq!(won.into_iter().filter(|won| *won).count(), 1);
    assert_eq!(identity.users().expect("read").len(), 1);
}

#[test]
fn a_first_account_that_does_not_fit_is_not_made() {
    let mut house = House::empty();
    let here = client("127.0.0.1");
    let good = set_up(&here, None, SetUpPeer::Local);
    let long = "x".repeat(201);
    let org = NewOrg { slug: slug("acme"), name: long.clone() };
    let cases = [
        (SetUp { email: "nobody", ..good.clone() }, "not a mail address"),
        (SetUp { password: Password("short"), ..good.clone() }, "at least 8 characters"),
        (SetUp { password: Password(EMAIL), ..good.clone() }, "may not be the address"),
        (SetUp { password: Password("password123"), ..good.clone() }, "most common"),
        (SetUp { name: &long, ..good.clone() }, "at most 200 bytes"),
        (SetUp { org, ..good.clone() }, "at most 200 bytes"),
    ];
    for (request, expected) in cases {
        let error = house.identity().set_up(&request, house.now, &mut house.rng).expect_err(expected);
        assert!(error.to_string().contains(expected), "{error}");
    }
    assert!(house.identity().needs_setup());
    assert_eq!(house.identity().users().expect("read"), []);
}

/// docs/specification.md E.
#[test]
fn bootstrap_is_ignored_once_an_account_exists() {
    let mut house = House::furnished();
    let again = Bootstrap { email: "eve@example.org", password: Password("another password"), org: "evil" };
    assert_eq!(house.identity().bootstrap(&again, house.now, &mut house.rng).expect("ignored"), None);
    assert_eq!(house.identity().users().expect("read").len(), 1);
    let mut empty = House::empty();
    for (org, password) in [("api", PASSWORD), ("acme", "short")] {
        let bad = Bootstrap { email: EMAIL, password: Password(password), org };
        assert!(empty.identity().bootstrap(&bad, empty.now, &mut empty.rng).is_err());
    }
}

/// Threat 8.
#[test]
fn no_issued_secret_stands_in_the_data_folder() {
    let mut house = House::furnished();
    let session = house.session();
    let link =
        house.identity().issue_login_link(house.owner().id, None, house.now, &mut house.rng).expect("made");
    house.identity().enroll_totp(&session.session, house.now, &mut house.rng).expect("begun");
    house.restart();
    let bytes = house.bytes();
    let holds = |text: &[u8]| bytes.windows(text.len()).any(|window| window == text);
    assert!(holds(EMAIL.as_bytes()), "the search works");
    for secret in [session.token.expose(), link.token.expose(), PASSWORD] {
        assert!(!holds(secret.as_bytes()));
    }
}
