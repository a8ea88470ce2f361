//! Links that sign in (docs/specification.md D5).

use super::*;

fn email() -> Email {
    Email::parse(EMAIL).expect("valid")
}

fn request(house: &mut House, to: &Email, browser: Option<&str>) -> Option<LinkMail> {
    let asked = LinkRequest { email: to, redirect: Some("/dashboards/1"), browser };
    let now = house.now;
    house.identity().request_link(&asked, now, &mut house.rng).expect("accepted")
}

fn mailed(house: &mut House) -> Secret {
    request(house, &email(), Some("browser one")).expect("an account").token
}

fn open(house: &mut House, token: &Secret, proof: LinkProof<'_>) -> Result<LinkOutcome, LinkError> {
    let attempt = LinkLogin { token: token.expose(), proof, client: &client("192.0.2.1"), replaces: None };
    let now = house.now;
    house.identity().use_link(&attempt, now, &mut house.rng)
}

fn logged_in(outcome: LinkOutcome) -> LoggedIn {
    match outcome.login {
        LoginOutcome::LoggedIn(session) => session,
        LoginOutcome::NeedsCode(_) => panic!("no second factor is set up"),
    }
}

#[test]
fn a_link_signs_in_once() {
    let mut house = House::furnished();
    let token = mailed(&mut house);
    let outcome = open(&mut house, &token, LinkProof::Console).expect("the first time");
    assert_eq!(outcome.redirect.as_deref(), Some("/dashboards/1"));
    let session = logged_in(outcome);
    assert_eq!((house.check(&session.token), session.session.auth_method), ("live", AuthMethod::MagicLink));
    assert!(matches!(open(&mut house, &token, LinkProof::Console), Err(LinkError::Invalid)));
    house.crash();
    assert!(matches!(open(&mut house, &token, LinkProof::Console), Err(LinkError::Invalid)));
}

/// Threat 19.
#[test]
fn of_fifty_uses_at_once_one_signs_in() {
    let mut house = House::furnished();
    let token = mailed(&mut house);
    let (identity, now, here) = (house.identity(), house.now, client("192.0.2.1"));
    let won = race(50, |number| {
        let attempt =
            LinkLogin { token: token.expose(), proof: LinkProof::Console, client: &here, replaces: None };
        identity.use_link(&attempt, now, &mut Entropy::seeded(number as u64)).is_ok()
    });
    assert_eq!(won.into_iter().filter(|won| *won).count(), 1);
    assert_eq!(identity.sessions(house.owner().id, now).len(), 1);
}

#[test]
fn a_link_is_good_for_ten_minutes() {
    let mut house = House::furnished();
    let link = mailed(&mut house);
    house.advance_ms(600_000);
    assert!(matches!(open(&mut house, &link, LinkProof::Console), Err(LinkError::Invalid)));
    let link = mailed(&mut house);
    house.advance_ms(599_999);
    open(&mut house, &link, LinkProof::Console).expect("in time");
}

#[test]
fn a_request_voids_no_older_link_and_using_one_ends_the_others() {
    let mut house = House::furnished();
    let links: Vec<Secret> = (0..3).map(|_| mailed(&mut house)).collect();
    open(&mut house, &links[1], LinkProof::Console).expect("outstanding");
    for link in &links {
        assert!(matches!(open(&mut house, link, LinkProof::Console), Err(LinkError::Invalid)));
    }
    assert_eq!(house.identity().rows::<link::OutstandingRow>(&()).expect("read").len(), 0);
    let another = mailed(&mut house);
    assert!(matches!(open(&mut house, &links[2], LinkProof::Console), Err(LinkError::Invalid)));
    open(&mut house, &another, LinkProof::Console).expect("newer than the one that was used");
}

#[test]
fn a_burned_link_leaves_the_others_of_its_address() {
    let mut house = House::furnished();
    let (burned, kept) = (mailed(&mut house), mailed(&mut house));
    let wrong = LinkProof::Browser { cookie: None, email: Some("eve@example.org") };
    for _ in 0..5 {
        assert!(matches!(open(&mut house, &burned, wrong), Err(LinkError::Invalid)));
    }
    assert!(matches!(open(&mut house, &burned, LinkProof::Console), Err(LinkError::Invalid)));
    open(&mut house, &kept, LinkProof::Console).expect("outstanding");
}

/// The rows of one address are bounded, whatever the limits of mails admit.
#[test]
fn of_too_many_outstanding_links_the_oldest_goes() {
    let mut house = House::furnished();
    let links: Vec<Secret> = (0..=OUTSTANDING_LINKS_MAX).map(|_| mailed(&mut house)).collect();
    assert_eq!(house.identity().rows::<link::LinkRow>(&()).expect("read").len(), OUTSTANDING_LINKS_MAX);
    assert!(matches!(open(&mut house, &links[0], LinkProof::Console), Err(LinkError::Invalid)));
    open(&mut house, &links[1], LinkProof::Console).expect("outstanding");
}

#[test]
fn of_printed_links_only_the_newest_is_good() {
    let mut house = House::furnished();
    let owner = house.owner().id;
    let mut printed =
        || house.identity().issue_login_link(owner, None, house.now, &mut house.rng).expect("made").token;
    let (old, new) = (printed(), printed());
    assert!(matches!(open(&mut house, &old, LinkProof::Console), Err(LinkError::Invalid)));
    logged_in(open(&mut house, &new, LinkProof::Console).expect("the newest"));
}

/// `PROMLET_MAGIC_LINK_TTL`: of sign-in links alone.
#[test]
fn a_sign_in_link_lives_as_long_as_the_operator_says() {
    let mut house = House::furnished();
    let link_ttl = Duration::from_secs(3_600);
    let options = IdentityOptions { argon2: CHEAP, link_ttl, ..IdentityOptions::default() };
    house.restart_with(options, MasterKey([9; 32]));
    let mail = request(&mut house, &email(), None).expect("an account");
    assert_eq!(mail.expires_in, link_ttl);
    let asked = LinkRequest { email: &email(), redirect: None, browser: None };
    let now = house.now;
    let reset =
        house.identity().request_reset(&asked, now, &mut house.rng).expect("accepted").expect("mailed");
    assert_eq!(reset.expires_in, LINK_TTL);
    house.advance_ms(3_599_999);
    logged_in(open(&mut house, &mail.token, LinkProof::Console).expect("in time"));
}

/// Threat 1: the caller always answers 202; here the same rows are written.
#[test]
fn an_unknown_address_gets_no_mail_after_the_same_work() {
    let mut house = House::furnished();
    let gone = house.add_user("gone@example.org");
    house.disable(gone);
    let rows = |house: &House| house.identity().rows::<link::LinkRow>(&()).expect("read").len();
    for (number, address) in ["nobody@example.org", "gone@example.org", EMAIL].into_iter().enumerate() {
        let mail = request(&mut house, &Email::parse(address).expect("valid"), None);
        assert_eq!(mail.is_some(), address == EMAIL, "{address}");
        assert_eq!(rows(&house), number + 1, "{address}");
    }
    let bytes = house.bytes();
    assert!(
        !bytes.windows(18).any(|window| window == b"nobody@example.org"),
        "unknown addresses are not kept"
    );
}

/// Threat 18.
#[test]
fn another_browser_types_the_address_and_five_wrong_ones_burn_the_link() {
    let mut house = House::furnished();
    let other = |email| LinkProof::Browser { cookie: Some("browser two"), email };
    let token = mailed(&mut house);
    assert!(matches!(open(&mut house, &token, other(None)), Err(LinkError::EmailRequired)));
    assert!(matches!(open(&mut house, &token, other(Some("eve@example.org"))), Err(LinkError::Invalid)));
    assert!(matches!(open(&mut house, &token, other(Some(""))), Err(LinkError::Invalid)));
    logged_in(open(&mut house, &token, other(Some(" ADA@example.org"))).expect("the right address"));

    let token = mailed(&mut house);
    for _ in 0..5 {
        assert!(matches!(open(&mut house, &token, other(Some("eve@example.org"))), Err(LinkError::Invalid)));
    }
    assert!(matches!(open(&mut house, &token, other(Some(EMAIL))), Err(LinkError::Invalid)), "burned");

    let token = mailed(&mut house);
    let same = LinkProof::Browser { cookie: Some("browser one"), email: None };
    logged_in(open(&mut house, &token, same).expect("the same browser"));

    let unbound = request(&mut house, &email(), None).expect("an account").token;
    let no_cookie = LinkProof::Browser { cookie: None, email: None };
    assert!(
        matches!(open(&mut house, &unbound, no_cookie), Err(LinkError::EmailRequired)),
        "no cookie equals no cookie is no proof"
    );
}

#[test]
fn a_printed_link_needs_no_proof_and_no_request_for_a_mail_voids_it() {
    let mut house = House::furnished();
    let owner = house.owner().id;
    let printed = house.identity().issue_login_link(owner, None, house.now, &mut house.rng).expect("made");
    mailed(&mut house);
    let no_cookie = LinkProof::Browser { cookie: None, email: None };
    logged_in(open(&mut house, &printed.token, no_cookie).expect("whoever runs the program"));
    let stranger = UserId::random(&mut house.rng);
    assert!(house.identity().issue_login_link(stranger, None, house.now, &mut house.rng).is_err());
}

#[test]
fn what_is_no_link_is_refused_and_a_disabled_account_has_none() {
    let mut house = House::furnished();
    for foreign in
        ["", "mgl_", "mgl_x", &format!("mgl_{}", "A".repeat(43)), &format!("ses_{}", "A".repeat(43))]
    {
        assert!(matches!(
            open(&mut house, &Secret::new(foreign), LinkProof::Console),
            Err(LinkError::Invalid)
        ));
    }
    let token = mailed(&mut house);
    house.disable(house.owner().id);
    assert!(matches!(open(&mut house, &token, LinkProof::Console), Err(LinkError::Invalid)));
}

#[test]
fn expired_links_and_pending_logins_are_swept() {
    let mut house = House::furnished();
    for number in 0..40 {
        request(&mut house, &Email::parse(&format!("u{number}@example.org")).expect("valid"), None);
    }
    mailed(&mut house);
    house.advance_ms(3_600_000);
    house.identity().tick(house.now).expect("swept");
    assert_eq!(house.identity().rows::<link::LinkRow>(&()).expect("read").len(), 0);
    assert_eq!(house.identity().rows::<link::OutstandingRow>(&()).expect("read").len(), 0);
}
