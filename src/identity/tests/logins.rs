//! Passwords, throttling, the first account.

use super::*;

/// Threats 1 and 2: the same response after the same work.
#[test]
fn unknown_wrong_and_disabled_logins_get_the_same_error_after_the_same_work() {
    let mut instance = TestInstance::with_owner();
    let gone = instance.add_user("gone@example.org");
    instance.disable(gone);
    let cases = [
        (EMAIL, "wrong password"),
        ("nobody@example.org", PASSWORD),
        ("gone@example.org", PASSWORD),
        ("no address", PASSWORD),
        (EMAIL, ""),
        (EMAIL, &"x".repeat(5_000)),
    ];
    for (number, (email, password)) in cases.into_iter().enumerate() {
        let before = instance.identity().passwords_verified();
        let refused = instance.login_as(email, password, &format!("192.0.2.{number}"), None);
        assert!(matches!(refused, Err(LoginError::InvalidCredentials)), "{email}");
        assert_eq!(instance.identity().passwords_verified(), before + 1, "{email}: one hash for everyone");
    }
}

/// Threat 2: verifying a hash of an older cost takes the same work as an unknown address.
#[test]
fn hashes_of_older_costs_take_the_same_work_as_unknown_addresses() {
    let mut instance = TestInstance::with_owner();
    instance.add_user("costly@example.org");
    let argon2 = |memory_kib, passes| IdentityOptions {
        argon2: Argon2Cost { memory_kib, passes, lanes: 1 },
        ..IdentityOptions::default()
    };
    // 8 x 1 is the cost of Ada's hash and of that of `costly`; 64 x 3 is Rosa's; 16 x 2 is today's.
    instance.restart_with(argon2(64, 3), MasterKey([9; 32]));
    instance.add_user("rosa@example.org");
    instance.restart_with(argon2(16, 2), MasterKey([9; 32]));
    instance.add_user("grace@example.org");
    let everybody =
        [EMAIL, "costly@example.org", "rosa@example.org", "grace@example.org", "nobody@example.org", "none"];
    let mut networks = 0..;
    let mut spent = |instance: &mut TestInstance, email: &str| {
        let before = (instance.identity().password_work_kib(), instance.identity().passwords_verified());
        let network = format!("192.0.2.{}", networks.next().expect("many"));
        let refused = instance.login_as(email, "wrong password", &network, None);
        assert!(matches!(refused, Err(LoginError::InvalidCredentials)), "{email}");
        assert_eq!(instance.identity().passwords_verified(), before.1 + 1);
        instance.identity().password_work_kib() - before.0
    };
    for email in everybody {
        assert_eq!(spent(&mut instance, email), 8 + 16 * 2 + 64 * 3, "{email}");
    }
    // A login replaces the hash by one of today's cost. A cost adds no work after the last account
    // with it has logged in.
    for email in [EMAIL, "rosa@example.org"] {
        instance.login_as(email, PASSWORD, "192.0.2.200", None).expect("right");
    }
    instance.advance_ms(11 * 60_000);
    instance.identity().tick(instance.now).expect("swept");
    for email in everybody {
        assert_eq!(spent(&mut instance, email), 8 + 16 * 2, "{email}");
    }
    instance.login_as("costly@example.org", PASSWORD, "192.0.2.200", None).expect("right");
    instance.crash();
    for email in everybody {
        assert_eq!(spent(&mut instance, email), 16 * 2, "{email}");
    }
}

#[test]
fn the_right_password_gives_a_session_and_the_address_may_be_typed_in_any_case() {
    let mut instance = TestInstance::with_owner();
    let outcome = instance.login_as("  ADA@Example.org ", PASSWORD, "192.0.2.1", None).expect("right");
    let LoginOutcome::LoggedIn(session) = outcome else { panic!("no second factor") };
    assert_eq!((session.user.email.as_str(), session.user.is_admin), (EMAIL, true));
    assert_eq!(session.orgs.len(), 1);
    assert_eq!((session.orgs[0].org.slug.as_str(), session.orgs[0].role), ("acme", Role::Owner));
    assert_eq!(session.session.auth_method, AuthMethod::Password);
    assert_eq!(instance.check(&session.token), "live");
}

/// CVE-2022-46146: a stored hash must not be accepted as a password.
#[test]
fn a_stored_hash_is_not_accepted_as_a_password() {
    let mut instance = TestInstance::with_owner();
    let owner = instance.owner().id;
    let row = instance.identity().row::<user::UserRow>(&owner).expect("read").expect("there");
    let stored = row.password.expect("a password");
    let output = stored.rsplit('$').next().expect("a hash").to_owned();
    for (number, text) in [&stored, &output, "", "$argon2id$"].into_iter().enumerate() {
        let refused = instance.login_as(EMAIL, text, &format!("192.0.2.{number}"), None);
        assert!(matches!(refused, Err(LoginError::InvalidCredentials)), "{text}");
    }
}

/// Threats 3 and 4.
#[test]
fn the_wait_is_the_same_for_known_and_unknown_addresses_and_costs_no_hash() {
    let mut instance = TestInstance::with_owner();
    let mut waits = Vec::new();
    for email in [EMAIL, "nobody@example.org"] {
        let mut seen = Vec::new();
        for _ in 0..7 {
            let before = instance.identity().passwords_verified();
            seen.push(match instance.login_as(email, "wrong password", "192.0.2.1", None) {
                Err(LoginError::InvalidCredentials) => 0,
                Err(LoginError::Throttled { retry_after }) => {
                    assert_eq!(instance.identity().passwords_verified(), before, "decided before hashing");
                    retry_after.as_secs()
                }
                other => panic!("{other:?}"),
            });
        }
        waits.push(seen);
    }
    assert_eq!(waits[0], [0, 0, 0, 0, 0, 1, 1]);
    assert_eq!(waits[0], waits[1]);

    assert!(
        matches!(instance.login(PASSWORD), Err(LoginError::Throttled { .. })),
        "the right one waits as well"
    );
    instance.advance_ms(1_000);
    instance.session();
    for _ in 0..4 {
        assert!(
            matches!(instance.login("wrong password"), Err(LoginError::InvalidCredentials)),
            "a success starts over"
        );
    }
}

/// Threat 5.
#[test]
fn a_guesser_elsewhere_does_not_lock_the_owner_out() {
    let mut instance = TestInstance::with_owner();
    for _ in 0..200 {
        let _ = instance.login_as(EMAIL, "wrong password", "203.0.113.9", None);
    }
    assert!(matches!(
        instance.login_as(EMAIL, PASSWORD, "203.0.113.9", None),
        Err(LoginError::Throttled { .. })
    ));
    instance.session();
}

/// docs/specification.md D4, key 3: many networks, one address. Known browsers are exempt.
#[test]
fn a_guesser_on_many_networks_delays_unknown_browsers_and_not_the_owners() {
    let mut instance = TestInstance::with_owner();
    let device = instance.identity().device_token(EMAIL, instance.now, &mut instance.rng);
    let others = instance.identity().device_token("eve@example.org", instance.now, &mut instance.rng);
    for n in 0..100 {
        let _ = instance.login_as(EMAIL, "wrong password", &format!("2001:db8:{n:x}::1"), None);
    }
    let attempt = |instance: &mut TestInstance, device: Option<&str>| {
        let (here, now) = (client("2001:db8:ffff::1"), instance.now);
        let password = Password(PASSWORD);
        let attempt = PasswordLogin { email: EMAIL, password, client: &here, replaces: None, device };
        instance.identity().login(&attempt, now, &mut instance.rng)
    };
    let before = instance.identity().passwords_verified();
    for stranger in [None, Some(""), Some("dvc_x"), Some(others.expose())] {
        match attempt(&mut instance, stranger) {
            Err(LoginError::Throttled { retry_after }) => assert_eq!(retry_after.as_secs(), 60),
            other => panic!("{stranger:?}: {other:?}"),
        }
    }
    assert_eq!(instance.identity().passwords_verified(), before, "decided before hashing");
    let tampered = device.expose().replacen("dvc_", "dvc_A", 1);
    assert!(attempt(&mut instance, Some(&tampered[..device.expose().len()])).is_err());

    // A link still works meanwhile, and a success of the known browser ends the wait for all.
    let asked = LinkRequest { email: &Email::parse(EMAIL).expect("valid"), redirect: None, browser: None };
    let now = instance.now;
    assert!(instance.identity().request_link(&asked, now, &mut instance.rng).expect("written").is_some());
    attempt(&mut instance, Some(device.expose())).expect("the owner's browser");
    attempt(&mut instance, None).expect("the wait has ended for all");
}

/// The logins have the same address and network, such as behind one proxy.
#[test]
fn a_guesser_on_the_same_network_does_not_lock_the_owners_browser_out() {
    let mut instance = TestInstance::with_owner();
    let device = instance.identity().device_token(EMAIL, instance.now, &mut instance.rng);
    for _ in 0..200 {
        let _ = instance.login("wrong password");
        instance.advance_ms(1_000);
    }
    assert!(matches!(instance.login(PASSWORD), Err(LoginError::Throttled { .. })));
    let (here, now) = (client("192.0.2.1"), instance.now);
    let (password, device) = (Password(PASSWORD), Some(device.expose()));
    let attempt = PasswordLogin { email: EMAIL, password, client: &here, replaces: None, device };
    assert!(instance.identity().login(&attempt, now, &mut instance.rng).is_ok());
}

#[test]
fn a_browser_is_forgotten_a_year_after_its_login() {
    let mut instance = TestInstance::with_owner();
    let device = instance.identity().device_token(EMAIL, instance.now, &mut instance.rng);
    let known = |instance: &TestInstance| {
        instance.identity().known_device(Some(device.expose()), EMAIL, instance.now).is_some()
    };
    instance.advance_ms(365 * DAY_MS - 1);
    assert!(known(&instance));
    instance.advance_ms(1);
    assert!(!known(&instance));
}

#[test]
fn good_logins_are_never_throttled() {
    let mut instance = TestInstance::with_owner();
    for _ in 0..60 {
        instance.session();
    }
}

/// Threat 7.
#[test]
fn a_login_creates_a_new_session_and_ends_that_of_its_request() {
    let mut instance = TestInstance::with_owner();
    let first = instance.session();
    let planted = format!("ses_{}", "A".repeat(43));
    for (old, expected) in [(first.token.expose(), "unknown"), (&planted, "unknown")] {
        let outcome = instance.login_as(EMAIL, PASSWORD, "192.0.2.1", Some(old)).expect("right");
        let LoginOutcome::LoggedIn(new) = outcome else { panic!("no second factor") };
        assert_ne!(new.token.expose(), old);
        assert_eq!(instance.check(&Secret::new(old)), expected);
        assert_eq!(instance.check(&new.token), "live");
    }
    instance.crash();
    assert_eq!(instance.check(&first.token), "unknown", "durable");
}

#[test]
fn a_login_after_a_change_of_the_cost_hashes_again() {
    let mut instance = TestInstance::with_owner();
    let stored = |instance: &TestInstance| {
        let owner = instance.owner().id;
        instance.identity().row::<user::UserRow>(&owner).expect("read").expect("there").password.expect("set")
    };
    let before = stored(&instance);
    instance.session();
    assert_eq!(stored(&instance), before);
    let dearer =
        IdentityOptions { argon2: Argon2Cost { memory_kib: 16, passes: 1, lanes: 1 }, ..Default::default() };
    instance.restart_with(dearer, MasterKey([9; 32]));
    instance.session();
    assert!(stored(&instance).contains("m=16,"));
    instance.session();
}

#[test]
fn failures_are_in_the_audit_log_after_the_next_tick_without_any_secret() {
    let mut instance = TestInstance::with_owner();
    let _ = instance.login("wrong password");
    instance.session();
    instance.identity().tick(instance.now).expect("written");
    let entries = instance.identity().audit(None, 100).expect("read");
    let actions: Vec<&str> = entries.iter().map(|entry| entry.action.as_str()).collect();
    for expected in ["login.ok", "login.fail", "admin.set_up"] {
        assert!(actions.contains(&expected), "{expected} in {actions:?}");
    }
    assert!(!format!("{entries:?}").contains("wrong password"));
}

#[test]
fn a_flood_of_failures_is_counted_and_not_listed() {
    let instance = TestInstance::with_owner();
    for number in 0..1_000 {
        let event = audit::Event::unattributed("token.rejected").target(&number.to_string());
        instance.identity().record_failure(event, instance.now);
    }
    instance.identity().tick(instance.now).expect("written");
    let entries = instance.identity().audit(None, 10_000).expect("read");
    let rejected: Vec<_> = entries.iter().filter(|entry| entry.action == "token.rejected").collect();
    assert_eq!((rejected.len(), &*rejected[0].detail), (1, ""), "{rejected:?}");
    instance.identity().close(instance.now).expect("written");
    let entries = instance.identity().audit(None, 10_000).expect("read");
    let count = entries.iter().filter(|entry| entry.detail == "and 999 more within a minute").count();
    assert_eq!(count, 1, "{entries:?}");
}

#[test]
fn old_audit_entries_are_swept() {
    let mut instance = TestInstance::with_owner();
    instance.session();
    assert!(!instance.identity().audit(None, 10).expect("read").is_empty());
    instance.advance_ms(91 * DAY_MS);
    instance.identity().tick(instance.now).expect("swept");
    assert_eq!(instance.identity().audit(None, 10).expect("read"), []);
}

fn set_up<'a>(client: &'a Client, token: Option<&'a str>, peer: SetUpPeer) -> SetUp<'a> {
    let org = NewOrg { slug: slug("acme"), name: "Acme".into() };
    SetUp { token, peer, email: EMAIL, password: Password(PASSWORD), name: "Ada", org, client }
}

/// Threat 46.
#[test]
fn set_up_from_another_machine_needs_the_newest_token() {
    let mut instance = TestInstance::empty();
    let identity = instance.identity();
    let here = client("192.0.2.1");
    assert!(identity.needs_setup());
    let old = identity.issue_setup_token(&mut instance.rng);
    let new = identity.issue_setup_token(&mut instance.rng);
    for token in [None, Some(""), Some("sgn_x"), Some(old.expose())] {
        let refused =
            identity.set_up(&set_up(&here, token, SetUpPeer::Remote), instance.now, &mut instance.rng);
        assert!(matches!(refused, Err(SetUpError::TokenRequired)), "{token:?}");
    }
    let request = set_up(&here, Some(new.expose()), SetUpPeer::Remote);
    let made = identity.set_up(&request, instance.now, &mut instance.rng).expect("made");
    assert_eq!(instance.check(&made.token), "live");
    assert!(made.user.is_admin && made.orgs[0].role == Role::Owner && made.user.name == "Ada");
    assert!(!identity.needs_setup());
    assert!(matches!(identity.set_up(&request, instance.now, &mut instance.rng), Err(SetUpError::Closed)));
    drop(identity);
    instance.crash();
    assert!(!instance.identity().needs_setup(), "durable");
    assert_eq!(instance.check(&made.token), "live");
}

/// A change that is not durable is refused as a whole.
#[test]
fn a_disk_that_rejects_writes_refuses_every_login() {
    let mut instance = TestInstance::with_owner();
    let before = instance.session();
    instance.open.as_ref().expect("open").control.fail_syncs();
    assert!(matches!(instance.login(PASSWORD), Err(LoginError::Store(_))));
    assert_eq!(instance.check(&before.token), "live", "reads still work");
    instance.crash();
    assert_eq!(instance.check(&before.token), "live");
    instance.session();
}

#[test]
fn of_fifty_concurrent_set_ups_one_succeeds() {
    let instance = TestInstance::empty();
    let (identity, here) = (instance.identity(), client("127.0.0.1"));
    let won = race(50, |number| {
        let mut rng = Entropy::seeded(100 + number as u64);
        identity.set_up(&set_up(&here, None, SetUpPeer::Local), instance.now, &mut rng).is_ok()
    });
    assert_eq!(won.into_iter().filter(|won| *won).count(), 1);
    assert_eq!(identity.users().expect("read").len(), 1);
}

#[test]
fn an_invalid_first_account_is_not_created() {
    let mut instance = TestInstance::empty();
    let here = client("127.0.0.1");
    let good = set_up(&here, None, SetUpPeer::Local);
    let long = "x".repeat(201);
    let org = NewOrg { slug: slug("acme"), name: long.clone() };
    let cases = [
        (SetUp { email: "nobody", ..good.clone() }, "not a mail address"),
        (SetUp { password: Password("short"), ..good.clone() }, "at least 8 characters"),
        (SetUp { password: Password(EMAIL), ..good.clone() }, "must not be the address"),
        (SetUp { password: Password("password123"), ..good.clone() }, "most common"),
        (SetUp { name: &long, ..good.clone() }, "at most 200 bytes"),
        (SetUp { org, ..good.clone() }, "at most 200 bytes"),
    ];
    for (request, expected) in cases {
        let error =
            instance.identity().set_up(&request, instance.now, &mut instance.rng).expect_err(expected);
        assert!(error.to_string().contains(expected), "{error}");
    }
    assert!(instance.identity().needs_setup());
    assert_eq!(instance.identity().users().expect("read"), []);
}

/// docs/specification.md E.
#[test]
fn bootstrap_is_ignored_once_an_account_exists() {
    let mut instance = TestInstance::with_owner();
    let again = Bootstrap { email: "eve@example.org", password: Password("another password"), org: "evil" };
    assert_eq!(
        instance.identity().bootstrap(&again, instance.now, &mut instance.rng).expect("ignored"),
        None
    );
    assert_eq!(instance.identity().users().expect("read").len(), 1);
    let mut empty = TestInstance::empty();
    for (org, password) in [("api", PASSWORD), ("acme", "short")] {
        let bad = Bootstrap { email: EMAIL, password: Password(password), org };
        assert!(empty.identity().bootstrap(&bad, empty.now, &mut empty.rng).is_err());
    }
}

/// Threat 8.
#[test]
fn no_issued_secret_is_in_the_data_folder() {
    let mut instance = TestInstance::with_owner();
    let session = instance.session();
    let link = instance
        .identity()
        .issue_login_link(instance.owner().id, None, instance.now, &mut instance.rng)
        .expect("made");
    instance.identity().enroll_totp(&session.session, instance.now, &mut instance.rng).expect("begun");
    instance.restart();
    let bytes = instance.bytes();
    let holds = |text: &[u8]| bytes.windows(text.len()).any(|window| window == text);
    assert!(holds(EMAIL.as_bytes()), "the search works");
    for secret in [session.token.expose(), link.token.expose(), PASSWORD] {
        assert!(!holds(secret.as_bytes()));
    }
}
