//! Accounts that people create themselves (docs/specification.md C2, `PROMLET_SIGNUP=open`).

use super::*;

const NEW: &str = "grace@example.org";

fn open_instance(org_create: OrgCreate) -> TestInstance {
    let options =
        IdentityOptions { argon2: CHEAP, signup: SignupMode::Open, org_create, ..IdentityOptions::default() };
    let mut instance = TestInstance::with(options);
    let bootstrap = Bootstrap { email: EMAIL, password: Password(PASSWORD), org: "acme" };
    instance.identity().bootstrap(&bootstrap, instance.now, &mut instance.rng).expect("set up");
    instance
}

fn request_signup(instance: &mut TestInstance, address: &str) -> SignupMail {
    let email = Email::parse(address).expect("valid");
    let request = LinkRequest { email: &email, redirect: None, browser: Some("browser one") };
    let now = instance.now;
    instance.identity().request_signup(&request, now, &mut instance.rng).expect("open")
}

fn mailed(instance: &mut TestInstance, address: &str) -> Secret {
    match request_signup(instance, address) {
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

fn complete(instance: &mut TestInstance, request: &NewAccount<'_>) -> Result<LoggedIn, SignupError> {
    let now = instance.now;
    match instance.identity().complete_signup(request, now, &mut instance.rng)? {
        LoginOutcome::LoggedIn(login) => Ok(login),
        LoginOutcome::NeedsCode(_) => panic!("a new account has no second factor"),
    }
}

/// Threat 21: no account can be planted on an address before its mail is read.
#[test]
fn an_account_exists_only_once_its_link_is_used() {
    let mut instance = open_instance(OrgCreate::Admin);
    let token = mailed(&mut instance, NEW);
    let exists = |instance: &TestInstance| {
        instance.identity().user_by_email(&Email::parse(NEW).expect("valid")).expect("read").is_some()
    };
    assert!(!exists(&instance));
    assert!(instance.login_as(NEW, PASSWORD, "192.0.2.1", None).is_err());
    let here = client("192.0.2.1");
    let login = complete(&mut instance, &account(&token, &here)).expect("made");
    assert!(exists(&instance));
    assert_eq!(login.session.auth_method, AuthMethod::Signup);
    assert!(!login.user.is_admin && login.user.has_password && login.orgs.is_empty());
    assert_eq!((instance.check(&login.token), login.user.name.as_str()), ("live", "Grace"));
    let again = complete(&mut instance, &account(&token, &here));
    assert!(matches!(again, Err(SignupError::Link(LinkError::Invalid))), "once");
    instance.crash();
    assert_eq!(instance.check(&login.token), "live");
    instance.login_as(NEW, PASSWORD, "192.0.2.1", None).expect("durable");
}

#[test]
fn an_invalid_request_does_not_use_the_link_up() {
    let mut instance = open_instance(OrgCreate::Any);
    let token = mailed(&mut instance, NEW);
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
        assert!(complete(&mut instance, &request).is_err(), "{request:?}");
    }
    let other = NewAccount { proof: LinkProof::Browser { cookie: None, email: None }, ..good.clone() };
    assert!(matches!(complete(&mut instance, &other), Err(SignupError::Link(LinkError::EmailRequired))));
    let retyped = LinkProof::Browser { cookie: None, email: Some(NEW) };
    let request = NewAccount { proof: retyped, org: org("grace", "Grace's"), ..good };
    let login = complete(&mut instance, &request).expect("made");
    assert_eq!((login.orgs[0].org.slug.as_str(), login.orgs[0].role), ("grace", Role::Owner));
}

#[test]
fn a_sign_up_link_is_valid_for_ten_minutes_and_its_use_ends_the_others() {
    let mut instance = open_instance(OrgCreate::Admin);
    let here = client("192.0.2.1");
    let is_invalid = |instance: &mut TestInstance, token: &Secret| {
        matches!(complete(instance, &account(token, &here)), Err(SignupError::Link(LinkError::Invalid)))
    };
    let expired = mailed(&mut instance, NEW);
    instance.advance_ms(600_000);
    assert!(is_invalid(&mut instance, &expired));
    let (newer, newest) = (mailed(&mut instance, NEW), mailed(&mut instance, NEW));
    instance.advance_ms(599_999);
    complete(&mut instance, &account(&newer, &here)).expect("in time");
    assert!(is_invalid(&mut instance, &newest));
    instance.advance_ms(1);
    instance.identity().tick(instance.now).expect("swept");
    assert_eq!(instance.identity().rows::<LinkRow>(&()).expect("read").len(), 0);
}

#[test]
fn an_own_organisation_requires_permission_and_a_password_is_optional() {
    let mut instance = open_instance(OrgCreate::Admin);
    let token = mailed(&mut instance, NEW);
    let here = client("192.0.2.1");
    let own = Some(NewOrg { slug: slug("grace"), name: String::new() });
    let request = NewAccount { org: own, ..account(&token, &here) };
    assert!(matches!(complete(&mut instance, &request), Err(SignupError::Org(OrgError::Forbidden))));
    let request = NewAccount { password: None, ..account(&token, &here) };
    assert!(!complete(&mut instance, &request).expect("made").user.has_password);
}

/// Threat 1: the response and the work are the same; only the reader of the mail learns the
/// difference.
#[test]
fn only_the_mail_reveals_that_an_address_has_an_account() {
    let mut instance = open_instance(OrgCreate::Admin);
    let rows = |instance: &TestInstance| instance.identity().rows::<LinkRow>(&()).expect("read").len();
    assert!(matches!(request_signup(&mut instance, EMAIL), SignupMail::Known));
    assert_eq!(rows(&instance), 1);
    assert!(matches!(request_signup(&mut instance, NEW), SignupMail::Link(_)));
    assert_eq!(rows(&instance), 2);
    let bytes = instance.bytes();
    assert!(
        !bytes.windows(NEW.len()).any(|window| window == NEW.as_bytes()),
        "sealed until the account exists"
    );
}

#[test]
fn an_address_that_got_an_account_meanwhile_is_refused() {
    let mut instance = open_instance(OrgCreate::Admin);
    let token = mailed(&mut instance, NEW);
    instance.add_user(NEW);
    let here = client("192.0.2.1");
    let refused = complete(&mut instance, &account(&token, &here));
    assert!(matches!(refused, Err(SignupError::EmailTaken)), "{refused:?}");
}

#[test]
fn of_fifty_concurrent_uses_of_a_sign_up_link_one_creates_the_account() {
    let mut instance = open_instance(OrgCreate::Admin);
    let token = mailed(&mut instance, NEW);
    let (identity, now, here) = (instance.identity(), instance.now, client("192.0.2.1"));
    let won = race(50, |number| {
        let mut rng = Entropy::seeded(number as u64);
        identity.complete_signup(&account(&token, &here), now, &mut rng).is_ok()
    });
    assert_eq!(won.into_iter().filter(|won| *won).count(), 1);
    assert_eq!(identity.users().expect("read").len(), 2);
}

#[test]
fn sign_up_is_refused_unless_it_is_open() {
    for mode in [SignupMode::First, SignupMode::Invite, SignupMode::Closed] {
        let mut instance = open_instance(OrgCreate::Admin);
        let token = mailed(&mut instance, NEW);
        let options = IdentityOptions { argon2: CHEAP, signup: mode, ..IdentityOptions::default() };
        instance.restart_with(options, MasterKey([9; 32]));
        let email = Email::parse(NEW).expect("valid");
        let request = LinkRequest { email: &email, redirect: None, browser: None };
        let now = instance.now;
        let refused = instance.identity().request_signup(&request, now, &mut instance.rng);
        assert!(matches!(refused, Err(SignupError::Closed)), "{mode:?}");
        let here = client("192.0.2.1");
        let refused = complete(&mut instance, &account(&token, &here));
        assert!(matches!(refused, Err(SignupError::Closed)), "{mode:?}: closed meanwhile");
        assert_eq!(mode.takes_invited(), mode != SignupMode::Closed);
    }
}

#[test]
fn a_set_up_token_is_not_accepted_as_a_sign_up_link() {
    let mut instance = open_instance(OrgCreate::Admin);
    let token = instance.identity().issue_setup_token(&mut instance.rng);
    let here = client("192.0.2.1");
    let refused = complete(&mut instance, &account(&token, &here));
    assert!(matches!(refused, Err(SignupError::Link(LinkError::Invalid))));
}
