//! Links that sign in (docs/specification.md D5).

use super::*;

fn email() -> Email {
    Email::parse(EMAIL).expect("valid")
}

fn request(instance: &mut TestInstance, to: &Email, browser: Option<&str>) -> Option<LinkMail> {
    let asked = LinkRequest { email: to, redirect: Some("/dashboards/1"), browser };
    let now = instance.now;
    instance.identity().request_link(&asked, now, &mut instance.rng).expect("accepted")
}

fn mailed(instance: &mut TestInstance) -> Secret {
    request(instance, &email(), Some("browser one")).expect("an account").token
}

fn open(instance: &mut TestInstance, token: &Secret, proof: LinkProof<'_>) -> Result<LinkOutcome, LinkError> {
    let attempt = LinkLogin { token: token.expose(), proof, client: &client("192.0.2.1"), replaces: None };
    let now = instance.now;
    instance.identity().use_link(&attempt, now, &mut instance.rng)
}

fn logged_in(outcome: LinkOutcome) -> LoggedIn {
    match outcome.login {
        LoginOutcome::LoggedIn(session) => session,
        LoginOutcome::NeedsCode(_) => panic!("no second factor is set up"),
    }
}

#[test]
fn a_link_signs_in_once() {
    let mut instance = TestInstance::with_owner();
    let token = mailed(&mut instance);
    let outcome = open(&mut instance, &token, LinkProof::Console).expect("the first time");
    assert_eq!(outcome.redirect.as_deref(), Some("/dashboards/1"));
    let session = logged_in(outcome);
    assert_eq!(
        (instance.check(&session.token), session.session.auth_method),
        ("live", AuthMethod::MagicLink)
    );
    assert!(matches!(open(&mut instance, &token, LinkProof::Console), Err(LinkError::Invalid)));
    instance.crash();
    assert!(matches!(open(&mut instance, &token, LinkProof::Console), Err(LinkError::Invalid)));
}

/// Threat 19.
#[test]
fn of_fifty_concurrent_uses_of_a_link_one_signs_in() {
    let mut instance = TestInstance::with_owner();
    let token = mailed(&mut instance);
    let (identity, now, here) = (instance.identity(), instance.now, client("192.0.2.1"));
    let won = race(50, |number| {
        let attempt =
            LinkLogin { token: token.expose(), proof: LinkProof::Console, client: &here, replaces: None };
        identity.use_link(&attempt, now, &mut Entropy::seeded(number as u64)).is_ok()
    });
    assert_eq!(won.into_iter().filter(|won| *won).count(), 1);
    assert_eq!(identity.sessions(instance.owner().id, now).len(), 1);
}

#[test]
fn a_link_is_valid_for_ten_minutes() {
    let mut instance = TestInstance::with_owner();
    let link = mailed(&mut instance);
    instance.advance_ms(600_000);
    assert!(matches!(open(&mut instance, &link, LinkProof::Console), Err(LinkError::Invalid)));
    let link = mailed(&mut instance);
    instance.advance_ms(599_999);
    open(&mut instance, &link, LinkProof::Console).expect("in time");
}

#[test]
fn a_request_voids_no_older_link_and_the_use_of_one_ends_the_others() {
    let mut instance = TestInstance::with_owner();
    let links: Vec<Secret> = (0..3).map(|_| mailed(&mut instance)).collect();
    open(&mut instance, &links[1], LinkProof::Console).expect("outstanding");
    for link in &links {
        assert!(matches!(open(&mut instance, link, LinkProof::Console), Err(LinkError::Invalid)));
    }
    assert_eq!(instance.identity().rows::<OutstandingRow>(&()).expect("read").len(), 0);
    let another = mailed(&mut instance);
    assert!(matches!(open(&mut instance, &links[2], LinkProof::Console), Err(LinkError::Invalid)));
    open(&mut instance, &another, LinkProof::Console).expect("newer than the one that was used");
}

#[test]
fn a_burned_link_voids_no_other_link_of_its_address() {
    let mut instance = TestInstance::with_owner();
    let (burned, kept) = (mailed(&mut instance), mailed(&mut instance));
    let wrong = LinkProof::Browser { cookie: None, email: Some("eve@example.org") };
    for _ in 0..5 {
        assert!(matches!(open(&mut instance, &burned, wrong), Err(LinkError::Invalid)));
    }
    assert!(matches!(open(&mut instance, &burned, LinkProof::Console), Err(LinkError::Invalid)));
    open(&mut instance, &kept, LinkProof::Console).expect("outstanding");
}

/// The number of rows of one address is bounded, independent of the rate limits of mails.
#[test]
fn beyond_the_limit_the_oldest_outstanding_link_is_removed() {
    let mut instance = TestInstance::with_owner();
    let links: Vec<Secret> = (0..=OUTSTANDING_LINKS_MAX).map(|_| mailed(&mut instance)).collect();
    assert_eq!(instance.identity().rows::<LinkRow>(&()).expect("read").len(), OUTSTANDING_LINKS_MAX);
    assert!(matches!(open(&mut instance, &links[0], LinkProof::Console), Err(LinkError::Invalid)));
    open(&mut instance, &links[1], LinkProof::Console).expect("outstanding");
}

#[test]
fn only_the_newest_printed_link_is_valid() {
    let mut instance = TestInstance::with_owner();
    let owner = instance.owner().id;
    let mut printed = || {
        instance
            .identity()
            .issue_login_link(owner, None, instance.now, &mut instance.rng)
            .expect("made")
            .token
    };
    let (old, new) = (printed(), printed());
    assert!(matches!(open(&mut instance, &old, LinkProof::Console), Err(LinkError::Invalid)));
    logged_in(open(&mut instance, &new, LinkProof::Console).expect("the newest"));
}

/// `PROMLET_MAGIC_LINK_TTL` applies to sign-in links only.
#[test]
fn a_sign_in_link_has_the_configured_lifetime() {
    let mut instance = TestInstance::with_owner();
    let link_ttl = Duration::from_secs(3_600);
    let options = IdentityOptions { argon2: CHEAP, link_ttl, ..IdentityOptions::default() };
    instance.restart_with(options, MasterKey([9; 32]));
    let mail = request(&mut instance, &email(), None).expect("an account");
    assert_eq!(mail.expires_in, link_ttl);
    let asked = LinkRequest { email: &email(), redirect: None, browser: None };
    let now = instance.now;
    let reset =
        instance.identity().request_reset(&asked, now, &mut instance.rng).expect("accepted").expect("mailed");
    assert_eq!(reset.expires_in, LINK_TTL);
    instance.advance_ms(3_599_999);
    logged_in(open(&mut instance, &mail.token, LinkProof::Console).expect("in time"));
}

/// Threat 1: the caller always responds 202; this test checks that the same rows are written.
#[test]
fn an_unknown_address_gets_no_mail_after_the_same_work() {
    let mut instance = TestInstance::with_owner();
    let gone = instance.add_user("gone@example.org");
    instance.disable(gone);
    let rows = |instance: &TestInstance| instance.identity().rows::<LinkRow>(&()).expect("read").len();
    for (number, address) in ["nobody@example.org", "gone@example.org", EMAIL].into_iter().enumerate() {
        let mail = request(&mut instance, &Email::parse(address).expect("valid"), None);
        assert_eq!(mail.is_some(), address == EMAIL, "{address}");
        assert_eq!(rows(&instance), number + 1, "{address}");
    }
    let bytes = instance.bytes();
    assert!(
        !bytes.windows(18).any(|window| window == b"nobody@example.org"),
        "unknown addresses are not stored"
    );
}

/// Threat 18.
#[test]
fn another_browser_types_the_address_and_five_wrong_ones_burn_the_link() {
    let mut instance = TestInstance::with_owner();
    let other = |email| LinkProof::Browser { cookie: Some("browser two"), email };
    let token = mailed(&mut instance);
    assert!(matches!(open(&mut instance, &token, other(None)), Err(LinkError::EmailRequired)));
    assert!(matches!(open(&mut instance, &token, other(Some("eve@example.org"))), Err(LinkError::Invalid)));
    assert!(matches!(open(&mut instance, &token, other(Some(""))), Err(LinkError::Invalid)));
    logged_in(open(&mut instance, &token, other(Some(" ADA@example.org"))).expect("the right address"));

    let token = mailed(&mut instance);
    for _ in 0..5 {
        assert!(matches!(
            open(&mut instance, &token, other(Some("eve@example.org"))),
            Err(LinkError::Invalid)
        ));
    }
    assert!(matches!(open(&mut instance, &token, other(Some(EMAIL))), Err(LinkError::Invalid)), "burned");

    let token = mailed(&mut instance);
    let same = LinkProof::Browser { cookie: Some("browser one"), email: None };
    logged_in(open(&mut instance, &token, same).expect("the same browser"));

    let unbound = request(&mut instance, &email(), None).expect("an account").token;
    let no_cookie = LinkProof::Browser { cookie: None, email: None };
    assert!(
        matches!(open(&mut instance, &unbound, no_cookie), Err(LinkError::EmailRequired)),
        "two missing cookies prove nothing"
    );
}

#[test]
fn a_printed_link_needs_no_proof_and_no_request_for_a_mail_voids_it() {
    let mut instance = TestInstance::with_owner();
    let owner = instance.owner().id;
    let printed =
        instance.identity().issue_login_link(owner, None, instance.now, &mut instance.rng).expect("made");
    mailed(&mut instance);
    let no_cookie = LinkProof::Browser { cookie: None, email: None };
    logged_in(open(&mut instance, &printed.token, no_cookie).expect("handed to the operator"));
    let stranger = UserId::random(&mut instance.rng);
    assert!(instance.identity().issue_login_link(stranger, None, instance.now, &mut instance.rng).is_err());
}

#[test]
fn malformed_links_and_links_of_disabled_accounts_are_refused() {
    let mut instance = TestInstance::with_owner();
    for foreign in
        ["", "mgl_", "mgl_x", &format!("mgl_{}", "A".repeat(43)), &format!("ses_{}", "A".repeat(43))]
    {
        assert!(matches!(
            open(&mut instance, &Secret::new(foreign), LinkProof::Console),
            Err(LinkError::Invalid)
        ));
    }
    let token = mailed(&mut instance);
    instance.disable(instance.owner().id);
    assert!(matches!(open(&mut instance, &token, LinkProof::Console), Err(LinkError::Invalid)));
}

#[test]
fn expired_links_and_pending_logins_are_swept() {
    let mut instance = TestInstance::with_owner();
    for number in 0..40 {
        request(&mut instance, &Email::parse(&format!("u{number}@example.org")).expect("valid"), None);
    }
    mailed(&mut instance);
    instance.advance_ms(3_600_000);
    instance.identity().tick(instance.now).expect("swept");
    assert_eq!(instance.identity().rows::<LinkRow>(&()).expect("read").len(), 0);
    assert_eq!(instance.identity().rows::<OutstandingRow>(&()).expect("read").len(), 0);
}
