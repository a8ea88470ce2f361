//! Login in all four ways, second factor, recovery codes, links, proving again, logout, revocation, crashes and the clock,
//! in any order, against a model that fits on a few pages (docs/specification.md D3: no step can be skipped).

use std::collections::BTreeSet;

use proptest::prelude::*;
use totp_rs::{Algorithm, Builder};

use super::*;

/// One move of somebody, or of time. Numbers choose among what there is.
#[derive(Clone, Debug)]
enum Move {
    Login { right: bool },
    Code { pending: usize, given: Given },
    Recover { pending: usize, code: usize },
    Oauth,
    IssueLink,
    UseLink,
    RequestReset,
    UseReset,
    Reauth(usize),
    Use(usize),
    Logout(usize),
    Revoke(usize),
    RevokeAll { keep: Option<usize> },
    Enable(usize),
    BeginEnrolment(usize),
    ConfirmEnrolment(usize),
    Disable,
    AskAddress(usize),
    ConfirmAddress,
    BeginLinking(usize),
    Link(usize),
    ChangePassword(usize),
    Pass(i64),
    Tick,
    Crash,
    Restart,
}

#[derive(Clone, Copy, Debug)]
enum Given {
    Right,
    Wrong,
}

fn moves() -> impl Strategy<Value = Move> {
    let some = 0..8_usize;
    let minute = 60_000;
    let times = [1_000, 30_000, minute, 5 * minute, 11 * minute, DAY_MS, 29 * DAY_MS, 30 * DAY_MS];
    prop_oneof![
        4 => prop::bool::weighted(0.8).prop_map(|right| Move::Login { right }),
        4 => (some.clone(), prop::bool::weighted(0.7)).prop_map(|(pending, right)| Move::Code {
            pending,
            given: if right { Given::Right } else { Given::Wrong },
        }),
        2 => (some.clone(), 0..10_usize).prop_map(|(pending, code)| Move::Recover { pending, code }),
        2 => Just(Move::Oauth),
        1 => Just(Move::RequestReset),
        1 => Just(Move::UseReset),
        2 => some.clone().prop_map(Move::Reauth),
        1 => Just(Move::IssueLink),
        2 => Just(Move::UseLink),
        4 => some.clone().prop_map(Move::Use),
        1 => some.clone().prop_map(Move::Logout),
        1 => some.clone().prop_map(Move::Revoke),
        1 => prop::option::of(some.clone()).prop_map(|keep| Move::RevokeAll { keep }),
        2 => some.clone().prop_map(Move::Enable),
        2 => some.clone().prop_map(Move::BeginEnrolment),
        2 => some.clone().prop_map(Move::ConfirmEnrolment),
        2 => some.clone().prop_map(Move::AskAddress),
        2 => Just(Move::ConfirmAddress),
        2 => some.clone().prop_map(Move::BeginLinking),
        2 => some.clone().prop_map(Move::Link),
        1 => Just(Move::Disable),
        1 => some.prop_map(Move::ChangePassword),
        4 => prop::sample::select(times.to_vec()).prop_map(Move::Pass),
        1 => Just(Move::Tick),
        1 => Just(Move::Crash),
        1 => Just(Move::Restart),
    ]
}

const IDLE_MS: i64 = 30 * DAY_MS;
const GUARD_MS: i64 = 10 * 60_000;
const FRESH_MS: i64 = 15 * 60_000;

/// What the model knows of a session: it was last used at `last`, and the disk may have been given up to `latest` by
/// crashes.
struct Known {
    login: LoggedIn,
    last: i64,
    latest: i64,
    /// When its owner last proved who they are.
    proved: i64,
    over: bool,
}

impl Known {
    fn new(login: LoggedIn, now: i64) -> Known {
        Known { login, last: now, latest: now, proved: now, over: false }
    }

    /// Whether it must live (`Some(true)`), must not (`Some(false)`), or a crash may have left it either way.
    fn lives(&self, now: i64) -> Option<bool> {
        match (self.over, now < self.last + IDLE_MS, now < self.latest + IDLE_MS) {
            (true, ..) | (_, _, false) => Some(false),
            (false, true, _) => Some(true),
            (false, false, true) => None,
        }
    }
}

struct Waiting {
    token: Secret,
    since: i64,
    tries: u8,
    over: bool,
}

#[derive(Default)]
struct Factor {
    secret: String,
    last_step: i64,
    failures: Vec<i64>,
    recovery: Vec<String>,
    /// Those that were not used.
    left: BTreeSet<String>,
}

impl Factor {
    fn throttled(&self, now: i64) -> bool {
        let within = |ms: i64| self.failures.iter().filter(|at| **at + ms > now).count();
        within(15 * 60_000) >= 5 || within(DAY_MS) >= 20
    }

    fn code(&self, now: Timestamp) -> String {
        let bytes = data_encoding::BASE32_NOPAD.decode(self.secret.as_bytes()).expect("base32");
        let app = Builder::new().with_algorithm(Algorithm::SHA1).with_digits(6).with_secret(bytes);
        app.build().expect("an app").generate(u64::try_from(now.as_s()).expect("after 1970")).to_string()
    }
}

/// Something that a session began, which must not outlive it.
struct Begun<T> {
    what: T,
    /// Its place in the list of sessions.
    by: usize,
    until: i64,
}

struct Model {
    house: House,
    owner: UserId,
    /// Changes when an address is confirmed.
    email: String,
    password: String,
    enrolment: Option<Begun<String>>,
    /// The newest mailed link, and the address it is for.
    address: Option<Begun<(Secret, String)>>,
    linking: Option<Begun<OauthTicket>>,
    sessions: Vec<Known>,
    waiting: Vec<Waiting>,
    factor: Option<Factor>,
    /// The newest printed link, and until when it works.
    link: Option<(Secret, i64)>,
    /// The newest mailed link that sets a password, and until when it works.
    reset: Option<(Secret, i64)>,
    attempts: u16,
}

impl Model {
    fn new() -> Model {
        let house = House::mailing();
        Model {
            owner: house.owner().id,
            house,
            email: EMAIL.to_owned(),
            enrolment: None,
            address: None,
            linking: None,
            password: PASSWORD.to_owned(),
            sessions: Vec::new(),
            waiting: Vec::new(),
            factor: None,
            link: None,
            reset: None,
            attempts: 0,
        }
    }

    fn now(&self) -> i64 {
        self.house.now.as_ms()
    }

    /// A new network each time: throttling has tests of its own.
    fn stranger(&mut self) -> Client {
        self.attempts += 1;
        client(&format!("2001:db8:{:x}::1", self.attempts))
    }

    /// What giving a second factor to a login that waits comes to.
    fn given(&mut self, at: usize, factor: SecondFactor<'_>) -> Result<LoggedIn, CodeError> {
        let (here, now) = (self.stranger(), self.house.now);
        let pending = self.waiting[at].token.clone();
        let attempt = CodeLogin { pending: pending.expose(), factor, client: &here, replaces: None };
        self.house.identity().verify_code(&attempt, now, &mut self.house.rng)
    }

    fn came_in(&mut self, outcome: LoginOutcome) {
        let now = self.now();
        match (outcome, &self.factor) {
            (LoginOutcome::LoggedIn(login), None) => {
                self.sessions.push(Known::new(login, now));
            }
            (LoginOutcome::NeedsCode(pending), Some(_)) => {
                self.waiting.push(Waiting { token: pending.token, since: now, tries: 0, over: false });
            }
            (outcome, factor) => panic!("{outcome:?} with a second factor: {}", factor.is_some()),
        }
    }

    /// Everything that was open before is closed: sessions but one, and pending logins.
    fn end_all(&mut self, keep: Option<SessionId>) {
        for known in &mut self.sessions {
            known.over |= Some(known.login.session.id) != keep;
        }
        self.waiting.iter_mut().for_each(|waiting| waiting.over = true);
    }

    /// A session that certainly lives, chosen by a number.
    fn live(&self, number: usize) -> Option<usize> {
        let live: Vec<usize> = (0..self.sessions.len())
            .filter(|at| self.sessions[*at].lives(self.now()) == Some(true))
            .collect();
        live.get(number % live.len().max(1)).copied()
    }

    fn login(&mut self, right: bool) {
        let (here, now) = (self.stranger(), self.house.now);
        let password = if right { self.password.clone() } else { "wrong password".to_owned() };
        let password = Password(&password);
        let email = &self.email;
        let attempt = PasswordLogin { email, password, client: &here, replaces: None, device: None };
        match self.house.identity().login(&attempt, now, &mut self.house.rng) {
            Ok(outcome) if right => self.came_in(outcome),
            Err(LoginError::InvalidCredentials) if !right => {}
            other => panic!("right: {right}, {other:?}"),
        }
    }

    fn use_link(&mut self) {
        let Some((token, until)) = self.link.clone() else { return };
        let (here, now) = (self.stranger(), self.house.now);
        let proof = LinkProof::Console;
        let attempt = LinkLogin { token: token.expose(), proof, client: &here, replaces: None };
        match self.house.identity().use_link(&attempt, now, &mut self.house.rng) {
            Ok(outcome) => {
                assert!(now.as_ms() < until, "expired");
                self.link = Some((token, i64::MIN));
                self.came_in(outcome.login);
            }
            Err(LinkError::Invalid) => assert!(now.as_ms() >= until, "good"),
            Err(error) => panic!("{error:?}"),
        }
    }

    /// A provider that is believed for addresses; its state is good for one sign-in.
    fn oauth(&mut self) {
        let (here, now) = (self.stranger(), self.house.now);
        let identity = self.house.identity();
        let ticket = identity.begin_oauth(Provider::Oidc, OauthMode::LogIn, "/", now, &mut self.house.rng);
        let (cookie, state) = (ticket.cookie.expose(), ticket.state.expose());
        let attempt = identity.resume_oauth(Provider::Oidc, cookie, state, now).expect("its own state");
        let account = ExternalAccount {
            provider: Provider::Oidc,
            issuer: "https://idp.example".into(),
            subject: "ada".into(),
            email: Some(Email::parse(&self.email).expect("valid")),
            email_verified: true,
            email_trusted: true,
            name: String::new(),
            welcome: false,
        };
        let login = OauthLogin { attempt: &attempt, account: &account, client: &here, replaces: None };
        let outcome = identity.oauth_login(&login, now, &mut self.house.rng).expect("believed");
        self.came_in(outcome.login);
        let again = identity.oauth_login(&login, now, &mut self.house.rng);
        assert!(matches!(again, Err(OauthError::InvalidState)), "{again:?}");
    }

    /// Whether a waiting login takes no code any more.
    fn is_dead(&self, waiting: usize) -> bool {
        let one = &self.waiting[waiting];
        one.over || one.tries >= 5 || self.now() >= one.since + 5 * 60_000
    }

    fn recover(&mut self, number: usize, code: usize) {
        let Some(at) = number.checked_rem(self.waiting.len()) else { return };
        let now_ms = self.now();
        let text =
            self.factor.as_ref().and_then(|factor| factor.recovery.get(code)).cloned().unwrap_or_default();
        let found = self.given(at, SecondFactor::RecoveryCode(&text));
        let dead = self.is_dead(at);
        let waiting = &mut self.waiting[at];
        let Some(known) = self.factor.as_mut().filter(|_| !dead) else {
            assert!(matches!(found, Err(CodeError::PendingInvalid)), "{found:?}");
            return;
        };
        match found {
            Err(CodeError::Throttled { .. }) => assert!(known.throttled(now_ms)),
            _ if known.throttled(now_ms) => panic!("throttled, but answered"),
            Ok(login) => {
                assert!(known.left.remove(&text), "used before");
                waiting.over = true;
                self.sessions.push(Known::new(login, now_ms));
            }
            Err(CodeError::Invalid { attempts_left, .. }) => {
                assert!(!known.left.contains(&text), "good");
                waiting.tries += 1;
                known.failures.push(now_ms);
                assert_eq!(attempts_left, 5 - waiting.tries);
            }
            found => panic!("{found:?}"),
        }
    }

    fn request_reset(&mut self) {
        let email = Email::parse(&self.email).expect("valid");
        let request = LinkRequest { email: &email, redirect: None, browser: Some("a browser") };
        let now = self.house.now;
        let mailed = self.house.identity().request_reset(&request, now, &mut self.house.rng);
        self.reset = Some((mailed.expect("written").expect("mailed").token, self.now() + 600_000));
    }

    fn use_reset(&mut self) {
        let Some((token, until)) = self.reset.clone() else { return };
        let (here, now) = (self.stranger(), self.house.now);
        let new = format!("password number {}", self.attempts);
        let proof = LinkProof::Browser { cookie: Some("a browser"), email: None };
        let request = PasswordReset { token: token.expose(), proof, new: Password(&new), client: &here };
        match self.house.identity().reset_password(&request, now, &mut self.house.rng) {
            Ok(_) => {
                assert!(now.as_ms() < until, "expired");
                self.has_new_password(new);
            }
            Err(PasswordResetError::Link(LinkError::Invalid)) => assert!(now.as_ms() >= until, "good"),
            Err(error) => panic!("{error:?}"),
        }
    }

    /// Everything that was open before is closed, links as well.
    fn has_new_password(&mut self, new: String) {
        self.end_all(None);
        self.password = new;
        for link in [&mut self.link, &mut self.reset] {
            *link = link.take().map(|(token, _)| (token, i64::MIN));
        }
    }

    fn reauth(&mut self, number: usize) {
        let Some(at) = self.live(number) else { return };
        let (here, now) = (self.stranger(), self.house.now);
        let (identity, owner) = (self.house.identity(), self.owner);
        let known = &mut self.sessions[at];
        let listed = identity.sessions(owner, now);
        let session = listed.iter().find(|session| session.id == known.login.session.id).expect("it lives");
        let given = Reauth::Password(Password(&self.password));
        identity.reauth(session, given, &here, now).expect("the right password");
        known.proved = now.as_ms();
    }

    fn code(&mut self, number: usize, given: Given) {
        let count = self.waiting.len();
        let Some(at) = number.checked_rem(count) else { return };
        let (now, now_ms) = (self.house.now, self.now());
        let right = self.factor.as_ref().map(|factor| factor.code(now)).unwrap_or_default();
        let code = match given {
            Given::Right => right,
            // Not a code of this step, nor of its neighbours but once in a million.
            Given::Wrong => format!("{:06}", (right.parse::<u32>().unwrap_or(0) + 500_000) % 1_000_000),
        };
        let found = self.given(at, SecondFactor::Code(&code));
        let dead = self.is_dead(at);
        let waiting = &mut self.waiting[at];
        let Some(known) = self.factor.as_mut().filter(|_| !dead) else {
            assert!(matches!(found, Err(CodeError::PendingInvalid)), "{found:?}");
            return;
        };
        let step = now_ms / 30_000;
        match (found, given) {
            (Err(CodeError::Throttled { .. }), _) => assert!(known.throttled(now_ms)),
            (_, _) if known.throttled(now_ms) => panic!("throttled, but answered"),
            (Ok(login), Given::Right) => {
                assert!(step > known.last_step, "used before");
                assert!(login.session.second_factor);
                known.last_step = step;
                waiting.over = true;
                self.sessions.push(Known::new(login, now_ms));
            }
            (Err(CodeError::AlreadyUsed { .. }), Given::Right) => {
                assert!(step <= known.last_step, "fresh");
                waiting.tries += 1;
            }
            (Err(CodeError::Invalid { attempts_left, .. }), Given::Wrong) => {
                waiting.tries += 1;
                known.failures.push(now_ms);
                assert_eq!(attempts_left, 5 - waiting.tries);
            }
            (found, given) => panic!("{given:?}: {found:?}"),
        }
    }

    fn use_session(&mut self, number: usize) {
        let Some(at) = number.checked_rem(self.sessions.len()) else { return };
        let (now, now_ms) = (self.house.now, self.now());
        let known = &mut self.sessions[at];
        let identity = self.house.identity();
        let lives = match identity.session(known.login.token.expose(), now) {
            SessionCheck::Live(_) => true,
            SessionCheck::LiveOncePersisted(session) => {
                identity.persist_session(&session).expect("written");
                true
            }
            SessionCheck::Expired(session) => {
                identity.end_session(&session, now).expect("written");
                false
            }
            SessionCheck::Ended(_) => unreachable!("the disk of this model takes everything"),
            SessionCheck::Unknown => false,
        };
        assert!(known.lives(now_ms).is_none_or(|expected| expected == lives), "{:?}", known.login.session.id);
        known.over |= !lives;
        if lives {
            (known.last, known.latest) = (now_ms, now_ms);
        }
    }

    fn enable(&mut self, number: usize) {
        let Some(at) = self.live(number).filter(|_| self.factor.is_none()) else { return };
        let (now, now_ms) = (self.house.now, self.now());
        let session = Arc::clone(&self.sessions[at].login.session);
        let enrolment = self.house.identity().enroll_totp(&session, now, &mut self.house.rng).expect("begun");
        self.enrolment = None;
        let secret = enrolment.secret.expose().to_owned();
        let mut factor = Factor { secret, last_step: now_ms / 30_000, ..Factor::default() };
        let code = factor.code(now);
        let (codes, login) =
            self.house.identity().confirm_totp(&session, &code, now, &mut self.house.rng).expect("confirmed");
        factor.recovery = codes.0.iter().map(|code| code.expose().to_owned()).collect();
        factor.left = factor.recovery.iter().cloned().collect();
        self.end_all(None);
        self.factor = Some(factor);
        self.sessions.push(Known::new(login, now_ms));
    }

    /// A live session that has just been used, as a request would, so that time alone does not end what it begins.
    fn begins(&mut self, number: usize) -> Option<(usize, Arc<Session>)> {
        let at = self.live(number)?;
        self.use_session(at);
        Some((at, Arc::clone(&self.sessions[at].login.session)))
    }

    /// Whether what a session began is still good.
    fn is_good<T>(&self, begun: &Begun<T>) -> bool {
        !self.sessions[begun.by].over && self.now() < begun.until
    }

    fn begin_enrolment(&mut self, number: usize) {
        let Some((by, session)) = self.begins(number) else { return };
        let now = self.house.now;
        match self.house.identity().enroll_totp(&session, now, &mut self.house.rng) {
            Ok(enrolment) => {
                assert!(self.factor.is_none(), "enabled");
                let what = enrolment.secret.expose().to_owned();
                self.enrolment = Some(Begun { what, by, until: self.now() + 600_000 });
            }
            Err(TwoFactorError::AlreadyEnabled) => assert!(self.factor.is_some(), "not enabled"),
            Err(error) => panic!("{error:?}"),
        }
    }

    fn confirm_enrolment(&mut self, number: usize) {
        let Some(at) = self.live(number) else { return };
        let session = Arc::clone(&self.sessions[at].login.session);
        let (now, now_ms) = (self.house.now, self.now());
        let good = self.enrolment.as_ref().is_some_and(|begun| self.is_good(begun));
        let nothing = || "A".repeat(32);
        let secret = self.enrolment.as_ref().map_or_else(nothing, |begun| begun.what.clone());
        let mut factor = Factor { secret, last_step: now_ms / 30_000, ..Factor::default() };
        let code = factor.code(now);
        match self.house.identity().confirm_totp(&session, &code, now, &mut self.house.rng) {
            Ok((codes, login)) => {
                assert!(good && self.factor.is_none(), "of nothing that is good");
                factor.recovery = codes.0.iter().map(|code| code.expose().to_owned()).collect();
                factor.left = factor.recovery.iter().cloned().collect();
                self.end_all(None);
                (self.factor, self.enrolment) = (Some(factor), None);
                self.sessions.push(Known::new(login, now_ms));
            }
            Err(TwoFactorError::AlreadyEnabled) => assert!(self.factor.is_some()),
            Err(TwoFactorError::NotEnabled) => assert!(!good, "good"),
            Err(error) => panic!("{error:?}"),
        }
    }

    fn ask_address(&mut self, number: usize) {
        let Some((by, session)) = self.begins(number) else { return };
        self.attempts += 1;
        let (new, now) = (format!("ada{}@example.org", self.attempts), self.house.now);
        let email = Email::parse(&new).expect("valid");
        let mail = self.house.identity().request_email_change(&session, &email, now, &mut self.house.rng);
        let token = mail.expect("written").expect("nobody has it").token;
        self.address = Some(Begun { what: (token, new), by, until: self.now() + 600_000 });
    }

    fn confirm_address(&mut self) {
        let Some(begun) = self.address.take() else { return };
        let (here, now, good) = (self.stranger(), self.house.now, self.is_good(&begun));
        match self.house.identity().confirm_email(begun.what.0.expose(), &here, now) {
            Ok(changed) => {
                assert!(good, "of a session that is over, or too late");
                assert_eq!(changed.old.as_str(), self.email);
                self.email.clone_from(&begun.what.1);
                // Links to the old address end with it.
                for link in [&mut self.link, &mut self.reset] {
                    *link = link.take().map(|(token, _)| (token, i64::MIN));
                }
            }
            Err(AddressChangeError::Link(LinkError::Invalid)) => assert!(!good, "good"),
            Err(error) => panic!("{error:?}"),
        }
    }

    fn begin_linking(&mut self, number: usize) {
        let Some((by, session)) = self.begins(number) else { return };
        let (mode, now) = (session.link_mode(), self.house.now);
        let what = self.house.identity().begin_oauth(Provider::GitHub, mode, "/", now, &mut self.house.rng);
        self.linking = Some(Begun { what, by, until: self.now() + 600_000 });
    }

    /// Some session comes back from a provider, also one that was ended while the provider was asked.
    fn link(&mut self, number: usize) {
        let (Some(begun), Some(at)) = (self.linking.take(), number.checked_rem(self.sessions.len())) else {
            return;
        };
        let (now, identity) = (self.house.now, self.house.identity());
        let (cookie, state) = (begun.what.cookie.expose(), begun.what.state.expose());
        let Some(attempt) = identity.resume_oauth(Provider::GitHub, cookie, state, now) else {
            assert!(now.as_ms() >= begun.until, "its own ticket");
            return;
        };
        let account = ExternalAccount {
            provider: Provider::GitHub,
            issuer: "https://github.com".into(),
            subject: "17".into(),
            email: None,
            email_verified: false,
            email_trusted: false,
            name: String::new(),
            welcome: false,
        };
        let session = Arc::clone(&self.sessions[at].login.session);
        match identity.oauth_link(&attempt, &account, &session, now, &mut self.house.rng) {
            Ok(_) => {
                assert!(at == begun.by && self.is_good(&begun), "another session, or one that is over");
                let again = identity.oauth_link(&attempt, &account, &session, now, &mut self.house.rng);
                assert!(matches!(again, Err(OauthError::InvalidState)), "{again:?}");
            }
            Err(OauthError::InvalidState) => assert_ne!(at, begun.by),
            Err(OauthError::SessionOver) => assert!(self.sessions[begun.by].over, "it lives"),
            Err(error) => panic!("{error:?}"),
        }
    }

    fn disable(&mut self) {
        let Some(at) = self.live(0) else { return };
        let (now, now_ms, password, here) =
            (self.house.now, self.now(), self.password.clone(), self.stranger());
        let Some(known) = &mut self.factor else { return };
        let (code, step) = (known.code(now), now_ms / 30_000);
        let (given, session) = (SecondFactor::Code(&code), &self.sessions[at].login.session);
        match self.house.identity().disable_totp(session, Some(Password(&password)), given, &here, now) {
            Ok(()) => {
                assert!(step > known.last_step && !known.throttled(now_ms));
                self.factor = None;
                self.waiting.iter_mut().for_each(|waiting| waiting.over = true);
            }
            Err(TwoFactorError::AlreadyUsed { .. }) => assert!(step <= known.last_step),
            Err(TwoFactorError::Throttled { .. }) => assert!(known.throttled(now_ms)),
            Err(error) => panic!("{error:?}"),
        }
    }

    fn change_password(&mut self, number: usize) {
        let Some(at) = self.live(number) else { return };
        let (here, now, now_ms) = (self.stranger(), self.house.now, self.now());
        let new = format!("password number {}", self.attempts);
        let session = Arc::clone(&self.sessions[at].login.session);
        let request =
            PasswordChange { current: Some(Password(&self.password)), new: Password(&new), client: &here };
        let changed = self.house.identity().change_password(&session, &request, now, &mut self.house.rng);
        let login = changed.expect("the right password");
        assert_eq!(login.session.second_factor, session.second_factor);
        self.has_new_password(new);
        self.sessions.push(Known::new(login, now_ms));
    }

    fn end(&mut self, number: usize, by_list: bool) {
        let Some(at) = self.live(number) else { return };
        let (identity, now) = (self.house.identity(), self.house.now);
        let known = &mut self.sessions[at];
        let session = &known.login.session;
        match by_list {
            true => assert!(identity.revoke_session(session.user, session.id, now).expect("written")),
            false => identity.end_session(session, now).expect("written"),
        }
        known.over = true;
    }

    fn revoke_all(&mut self, keep: Option<usize>) {
        let keep = keep.and_then(|number| self.live(number)).map(|at| self.sessions[at].login.session.id);
        self.house.identity().revoke_sessions(self.owner, keep, self.house.now).expect("written");
        self.end_all(keep);
    }

    fn restart(&mut self, crash: bool) {
        let now = self.now();
        if crash {
            self.house.crash();
            for known in &mut self.sessions {
                known.latest = known.latest.max(now.min(known.latest + GUARD_MS));
            }
        } else {
            self.house.restart();
        }
    }

    fn make(&mut self, step: &Move) {
        match step {
            Move::Login { right } => self.login(*right),
            Move::Code { pending, given } => self.code(*pending, *given),
            Move::IssueLink => {
                let (owner, now) = (self.owner, self.house.now);
                let link = self.house.identity().issue_login_link(owner, None, now, &mut self.house.rng);
                self.link = Some((link.expect("made").token, self.now() + 600_000));
            }
            Move::UseLink => self.use_link(),
            Move::Recover { pending, code } => self.recover(*pending, *code),
            Move::Oauth => self.oauth(),
            Move::RequestReset => self.request_reset(),
            Move::UseReset => self.use_reset(),
            Move::Reauth(number) => self.reauth(*number),
            Move::Use(number) => self.use_session(*number),
            Move::Logout(number) => self.end(*number, false),
            Move::Revoke(number) => self.end(*number, true),
            Move::RevokeAll { keep } => self.revoke_all(*keep),
            Move::Enable(number) => self.enable(*number),
            Move::BeginEnrolment(number) => self.begin_enrolment(*number),
            Move::ConfirmEnrolment(number) => self.confirm_enrolment(*number),
            Move::AskAddress(number) => self.ask_address(*number),
            Move::ConfirmAddress => self.confirm_address(),
            Move::BeginLinking(number) => self.begin_linking(*number),
            Move::Link(number) => self.link(*number),
            Move::Disable => self.disable(),
            Move::ChangePassword(number) => self.change_password(*number),
            Move::Pass(ms) => self.house.advance_ms(*ms),
            Move::Tick => self.house.identity().tick(self.house.now).expect("written"),
            Move::Crash => self.restart(true),
            Move::Restart => self.restart(false),
        }
    }

    /// The list of live sessions, which renews none, is the model's.
    fn compare(&mut self) {
        let listed = self.house.identity().sessions(self.owner, self.house.now);
        let now = self.now();
        for known in &self.sessions {
            let found = listed.iter().any(|session| session.id == known.login.session.id);
            let id = known.login.session.id;
            assert!(known.lives(now).is_none_or(|expected| expected == found), "{id} lives: {found}");
            let fresh = listed.iter().any(|session| session.id == id && session.is_fresh(self.house.now));
            assert_eq!(fresh, found && now <= known.proved + FRESH_MS, "{id} is fresh: {fresh}");
        }
        let ours = |session: &&Arc<Session>| self.sessions.iter().any(|k| k.login.session.id == session.id);
        assert_eq!(listed.iter().filter(|session| !ours(session)).count(), 0, "a session from nowhere");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]
    #[test]
    fn no_order_of_moves_opens_what_the_model_keeps_shut(steps in prop::collection::vec(moves(), 1..60)) {
        let mut model = Model::new();
        for step in &steps {
            model.make(step);
            model.compare();
        }
    }
}
