//! Accounts that people make themselves (docs/specification.md C2, `PROMLET_SIGNUP=open`).

use super::*;

const NEW: &str = "grace@example.org";

fn open_house(org_create: OrgCreate) -> House {
    let options =
        IdentityOptions { argon2: CHEAP, signup: SignupMode::Open, org_create, ..IdentityOptions::default() };
    let mut house = House::with(options);
    let bootstrap = Bootstrap { email: EMAIL, password: Password(PASSWORD), org: "acme" };
    house.identity().bootstrap(&bootstrap, house.now, &mut house.rng).expect("set up");
    house
}

fn asked(house: &mut House, address: &str) -> SignupMail {
    let email = Email::parse(address).expect("valid");
    let request = LinkRequest { email: &email, redirect: None, browser: Some("browser one") };
    let now = house.now;
    house.identity().request_signup(&request, now, &mut house.rng).expect("open")
}

fn mailed(house: &mut House, address: &str) -> Secret {
    match asked(house, address) {
        SignupMail::Link(link) => link.token,
        SignupMail::Known => panic!("{address} has an account"),
    }
}

fn account<'a>(token: &'a Secret, here: &'a Client) -> NewAccount<'a> {
    NewAccount {
        token: token.expose(),
        proof: LinkProof::Browser { cookie: Some("browser one"), email: None },
        password: Some(Password(PASSWORD)),
        name: "Grace",
        org: None,
        client: here,
        replaces: None,
    }
}

fn complete(house: &mut House, request: &NewAccount<'_>) -> Result<LoggedIn, SignupError> {
    let now = house.now;
    match house.identity().complete_signup(request, now, &mut house.rng)? {
        LoginOutcome::LoggedIn(login) => Ok(login),
        LoginOutcome::NeedsCode(_) => panic!("a new account has no second factor"),
    }
}

/// Threat 21: nothing can be planted on an address before its mail is read.
#[test]
fn an_account_exists_from_the_moment_its_link_is_used() {
    let mut house = open_house(OrgCreate::Admin);
    let token = mailed(&mut house, NEW);
    let exists = |house: &House| {
        house.identity().user_by_email(&Email::parse(NEW).expect("valid")).expect("read").is_some()
    };
    assert!(!exists(&house));
    assert!(house.login_as(NEW, PASSWORD, "192.0.2.1", None).is_err());
    let here = client("192.0.2.1");
    let login = complete(&mut house, &account(&token, &here)).expect("made");
    assert!(exists(&house));
    assert_eq!(login.session.auth_method, AuthMethod::Signup);
    assert!(!login.user.is_admin && login.user.has_password && login.orgs.is_empty());
    assert_eq!((house.check(&login.token), login.user.name.as_str()), ("live", "Grace"));
    let again = complete(&mut house, &account(&token, &here));
    assert!(matches!(again, Err(SignupError::Link(LinkError::Invalid))), "once");
    house.crash();
    assert_eq!(house.check(&login.token), "live");
    house.login_as(NEW, PASSWORD, "192.0.2.1", None).expect("durable");
}

#[test]
fn a_bad_choice_does_not_use_the_link_up() {
    let mut house = open_house(OrgCreate::Any);
    let token = mailed(&mut house, NEW);
    let here = client("192.0.2.1");
    let good = account(&token, &here);
    let long = "x".repeat(201);
    let org = |text: &str, name: &str| Some(NewOrg { slug: slug(text), name: name.into() });
    let cases = [
        NewAccount { password: Some(Password("short")), ..good.clone() },
        NewAccount { password: Some(Password(NEW)), ..good.clone() },
        NewAccount { password: Some(Password("grace-org")), org: org("grace-org", ""), ..good.clone() },
        NewAccount { name: &long, ..good.clone() },
        NewAccount { org: org("grace", &long), ..good.clone() },
        NewAccount { org: org("acme", ""), ..good.clone() },
    ];
    for request in cases {
        assert!(complete(&mut house, &request).is_err(), "{request:?}");
    }
    let other = NewAccount { proof: LinkProof::Browser { cookie: None, email: None }, ..good.clone() };
    assert!(matches!(complete(&mut house, &other), Err(SignupError::Link(LinkError::EmailRequired))));
    let retyped = LinkProof::Browser { cookie: None, email: Some(NEW) };
    let request = NewAccount { proof: retyped, org: org("grace", "Grace's"), ..good };
    let login = complete(&mut house, &request).expect("made");
    assert_eq!((login.orgs[0].org.slug.as_str(), login.orgs[0].role), ("grace", Role::Owner));
}

#[test]
fn a_signup_link_lives_ten_minutes_and_ends_the_others() {
    let mut house = open_house(OrgCreate::Admin);
    let here = client("192.0.2.1");
    let is_invalid = |house: &mut House, token: &Secret| {
        matches!(complete(house, &account(token, &here)), Err(SignupError::Link(LinkError::Invalid)))
    };
    let expired = mailed(&mut house, NEW);
    house.advance_ms(600_000);
    assert!(is_invalid(&mut house, &expired));
    let (newer, newest) = (mailed(&mut house, NEW), mailed(&mut house, NEW));
    house.advance_ms(599_999);
    complete(&mut house, &account(&newer, &here)).expect("in time");
    assert!(is_invalid(&mut house, &newest));
    house.advance_ms(1);
    house.identity().tick(house.now).expect("swept");
    assert_eq!(house.identity().rows::<link::LinkRow>(&()).expect("read").len(), 0);
}

#[test]
fn an_organisation_of_ones_own_needs_the_operators_leave_and_a_password_is_no_must() {
    let mut house = open_house(OrgCreate::Admin);
    let token = mailed(&mut house, NEW);
    let here = client("192.0.2.1");
    let own = Some(NewOrg { slug: slug("grace"), name: String::new() });
    let request = NewAccount { org: own, ..account(&token, &here) };
    assert!(matches!(complete(&mut house, &request), Err(SignupError::Org(OrgError::Forbidden))));
    let request = NewAccount { password: None, ..account(&token, &here) };
    assert!(!complete(&mut house, &request).expect("made").user.has_password);
}

/// Threat 1: who asks is told the same, by the same work; who reads the mail is told what is so.
#[test]
fn an_address_with_an_account_is_told_so_by_mail() {
    let mut house = open_house(OrgCreate::Admin);
    let rows = |house: &House| house.identity().rows::<link::LinkRow>(&()).expect("read").len();
    assert!(matches!(asked(&mut house, EMAIL), SignupMail::Known));
    assert_eq!(rows(&house), 1);
    assert!(matches!(asked(&mut house, NEW), SignupMail::Link(_)));
    assert_eq!(rows(&house), 2);
    let bytes = house.bytes();
    assert!(
        !bytes.windows(NEW.len()).any(|window| window == NEW.as_bytes()),
        "sealed until it is an account"
    );
}

#[test]
fn an_address_that_got_an_account_meanwhile_is_taken() {
    let mut house = open_house(OrgCreate::Admin);
    let token = mailed(&mut house, NEW);
    house.add_user(NEW);
    let here = client("192.0.2.1");
    let refused = complete(&mut house, &account(&token, &here));
    assert!(matches!(refused, Err(SignupError::EmailTaken)), "{refused:?}");
}

#[test]
fn of_fifty_uses_at_once_one_makes_the_account() {
    let mut house = open_house(OrgCreate::Admin);
    let token = mailed(&mut house, NEW);
    let (identity, now, here) = (house.identity(), house.now, client("192.0.2.1"));
    let won = race(50, |number| {
        let mut rng = Entropy::seeded(number as u64);
        identity.complete_signup(&account(&token, &here), now, &mut rng).is_ok()
    });
    assert_eq!(won.into_iter().filter(|won| *won).count(), 1);
    assert_eq!(identity.users().expect("read").len(), 2);
}

#[test]
fn nobody_signs_up_where_it_is_not_open() {
    for mode in [SignupMode::First, SignupMode::Invite, SignupMode::Closed] {
        let mut house = open_house(OrgCreate::Admin);
        let token = mailed(&mut house, NEW);
        let options = IdentityOptions { argon2: CHEAP, signup: mode, ..IdentityOptions::default() };
        house.restart_with(options, MasterKey([9; 32]));
        let email = Email::parse(NEW).expect("valid");
        let request = LinkRequest { email: &email, redirect: None, browser: None };
        let now = house.now;
        let refused = house.identity().request_signup(&request, now, &mut house.rng);
        assert!(matches!(refused, Err(SignupError::Closed)), "{mode:?}");
        let here = client("192.0.2.1");
        let refused = complete(&mut house, &account(&token, &here));
        assert!(matches!(refused, Err(SignupError::Closed)), "{mode:?}: closed meanwhile");
        assert_eq!(mode.takes_invited(), mode != SignupMode::Closed);
    }
}

#[test]
fn a_set_up_token_is_no_signup_link() {
    let mut house = open_house(OrgCreate::Admin);
    let token = house.identity().issue_setup_token(house.now, &mut house.rng);
    let here = client("192.0.2.1");
    let refused = complete(&mut house, &account(&token, &here));
    assert!(matches!(refused, Err(SignupError::Link(LinkError::Invalid))));
}
