//! A model test of authentication: all four login methods, second factor, recovery codes, links,
//! reauthentication, logout, revocation, crashes and the clock, in any order (docs/specification.md
//! D3: no step can be skipped).

use std::collections::BTreeSet;

use proptest::prelude::*;
use totp_rs::{Algorithm, Builder};

use super::*;

/// One action of a client or of time. Numbers select among the existing items.
#[derive(Clone, Debug)]
enum Action {
    Login { right: bool },
    Code { pending: usize, given: CodeChoice },
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
enum CodeChoice {
    Right,
    Wrong,
}

fn actions() -> impl Strategy<Value = Action> {
    let some = 0..8_usize;
    let minute = 60_000;
    let times = [1_000, 30_000, minute, 5 * minute, 11 * minute, DAY_MS, 29 * DAY_MS, 30 * DAY_MS];
    prop_oneof![
        4 => prop::bool::weighted(0.8).prop_map(|right| Action::Login { right }),
        4 => (some.clone(), prop::bool::weighted(0.7)).prop_map(|(pending, right)| Action::Code {
            pending,
            given: if right { CodeChoice::Right } else { CodeChoice::Wrong },
        }),
        2 => (some.clone(), 0..10_usize).prop_map(|(pending, code)| Action::Recover { pending, code }),
        2 => Just(Action::Oauth),
        1 => Just(Action::RequestReset),
        1 => Just(Action::UseReset),
        2 => some.clone().prop_map(Action::Reauth),
        1 => Just(Action::IssueLink),
        2 => Just(Action::UseLink),
        4 => some.clone().prop_map(Action::Use),
        1 => some.clone().prop_map(Action::Logout),
        1 => some.clone().prop_map(Action::Revoke),
        1 => prop::option::of(some.clone()).prop_map(|keep| Action::RevokeAll { keep }),
        2 => some.clone().prop_map(Action::Enable),
        2 => some.clone().prop_map(Action::BeginEnrolment),
        2 => some.clone().prop_map(Action::ConfirmEnrolment),
        2 => some.clone().prop_map(Action::AskAddress),
        2 => Just(Action::ConfirmAddress),
        2 => some.clone().prop_map(Action::BeginLinking),
        2 => some.clone().prop_map(Action::Link),
        1 => Just(Action::Disable),
        1 => some.prop_map(Action::ChangePassword),
        4 => prop::sample::select(times.to_vec()).prop_map(Action::Pass),
        1 => Just(Action::Tick),
        1 => Just(Action::Crash),
        1 => Just(Action::Restart),
    ]
}

const IDLE_MS: i64 = 30 * DAY_MS;
const GUARD_MS: i64 = 10 * 60_000;
const FRESH_MS: i64 = 15 * 60_000;

/// The model of a session: it was last used at `last`, and crashes may have added up to `latest` on
/// disk.
struct ModelSession {
    login: LoggedIn,
    last: i64,
    latest: i64,
    /// Time of the owner's last authentication.
    proved: i64,
    ended: bool,
}

impl ModelSession {
    fn new(login: LoggedIn, now: i64) -> ModelSession {
        ModelSession { login, last: now, latest: now, proved: now, ended: false }
    }

    /// Returns whether the session must be live (`Some(true)`), must not (`Some(false)`), or may be
    /// either after a crash.
    fn lives(&self, now: i64) -> Option<bool> {
        match (self.ended, now < self.last + IDLE_MS, now < self.latest + IDLE_MS) {
            (true, ..) | (_, _, false) => Some(false),
            (false, true, _) => Some(true),
            (false, false, true) => None,
        }
    }
}

struct ModelPending {
    token: Secret,
    since: i64,
    tries: u8,
    ended: bool,
}

#[derive(Default)]
struct Factor {
    secret: String,
    last_step: i64,
    failures: Vec<i64>,
    recovery: Vec<String>,
    /// The unused recovery codes.
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

/// Something that a session has started and that must not outlive it.
struct Started<T> {
    value: T,
    /// Index of the session.
    by: usize,
    until: i64,
}

struct LoginModel {
    instance: TestInstance,
    owner: UserId,
    /// The current address; it changes when a new one is confirmed.
    email: String,
    password: String,
    enrolment: Option<Started<String>>,
    /// The newest mailed link, and its address.
    address: Option<Started<(Secret, String)>>,
    linking: Option<Started<OauthTicket>>,
    sessions: Vec<ModelSession>,
    pending: Vec<ModelPending>,
    factor: Option<Factor>,
    /// The newest printed link, and its expiry.
    link: Option<(Secret, i64)>,
    /// The newest mailed reset link, and its expiry.
    reset: Option<(Secret, i64)>,
    attempts: u16,
}

impl LoginModel {
    fn new() -> LoginModel {
        let instance = TestInstance::with_mail_server();
        LoginModel {
            owner: instance.owner().id,
            instance,
            email: EMAIL.to_owned(),
            enrolment: None,
            address: None,
            linking: None,
            password: PASSWORD.to_owned(),
            sessions: Vec::new(),
            pending: Vec::new(),
            factor: None,
            link: None,
            reset: None,
            attempts: 0,
        }
    }

    fn now(&self) -> i64 {
        self.instance.now.as_ms()
    }

    /// Returns a client in a new network; throttling has its own tests.
    fn stranger(&mut self) -> Client {
        self.attempts += 1;
        client(&format!("2001:db8:{:x}::1", self.attempts))
    }

    /// Sends a second factor to a pending login.
    fn given(&mut self, at: usize, factor: SecondFactor<'_>) -> Result<LoggedIn, CodeError> {
        let (here, now) = (self.stranger(), self.instance.now);
        let pending = self.pending[at].token.clone();
        let attempt = CodeLogin { pending: pending.expose(), factor, client: &here, replaces: None };
        self.instance.identity().verify_code(&attempt, now, &mut self.instance.rng)
    }

    fn finish(&mut self, outcome: LoginOutcome) {
        let now = self.now();
        match (outcome, &self.factor) {
            (LoginOutcome::LoggedIn(login), None) => {
                self.sessions.push(ModelSession::new(login, now));
            }
            (LoginOutcome::NeedsCode(pending), Some(_)) => {
                self.pending.push(ModelPending { token: pending.token, since: now, tries: 0, ended: false });
            }
            (outcome, factor) => panic!("{outcome:?} with a second factor: {}", factor.is_some()),
        }
    }

    /// Ends all sessions but one, and all pending logins.
    fn end_all(&mut self, keep: Option<SessionId>) {
        for known in &mut self.sessions {
            known.ended |= Some(known.login.session.id) != keep;
        }
        self.pending.iter_mut().for_each(|pending| pending.ended = true);
    }

    /// Returns the index of a session that is certainly live, selected by a number.
    fn live(&self, number: usize) -> Option<usize> {
        let live: Vec<usize> = (0..self.sessions.len())
            .filter(|at| self.sessions[*at].lives(self.now()) == Some(true))
            .collect();
        live.get(number % live.len().max(1)).copied()
    }

    fn login(&mut self, right: bool) {
        let (here, now) = (self.stranger(), self.instance.now);
        let password = if right { self.password.clone() } else { "wrong password".to_owned() };
        let password = Password(&password);
        let email = &self.email;
        let attempt = PasswordLogin { email, password, client: &here, replaces: None, device: None };
        match self.instance.identity().login(&attempt, now, &mut self.instance.rng) {
            Ok(outcome) if right => self.finish(outcome),
            Err(LoginError::InvalidCredentials) if !right => {}
            other => panic!("right: {right}, {other:?}"),
        }
    }

    fn use_link(&mut self) {
        let Some((token, until)) = self.link.clone() else { return };
        let (here, now) = (self.stranger(), self.instance.now);
        let proof = LinkProof::Console;
        let attempt = LinkLogin { token: token.expose(), proof, client: &here, replaces: None };
        match self.instance.identity().use_link(&attempt, now, &mut self.instance.rng) {
            Ok(outcome) => {
                assert!(now.as_ms() < until, "expired");
                self.link = Some((token, i64::MIN));
                self.finish(outcome.login);
            }
            Err(LinkError::Invalid) => assert!(now.as_ms() >= until, "good"),
            Err(error) => panic!("{error:?}"),
        }
    }

    /// Signs in at a provider that is trusted for addresses; its state can be used once.
    fn oauth(&mut self) {
        let (here, now) = (self.stranger(), self.instance.now);
        let identity = self.instance.identity();
        let ticket = identity.begin_oauth(Provider::Oidc, OauthMode::LogIn, "/", now, &mut self.instance.rng);
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
        let outcome = identity.oauth_login(&login, now, &mut self.instance.rng).expect("believed");
        self.finish(outcome.login);
        let again = identity.oauth_login(&login, now, &mut self.instance.rng);
        assert!(matches!(again, Err(OauthError::InvalidState)), "{again:?}");
    }

    /// Returns whether a pending login accepts no more codes.
    fn accepts_no_code(&self, pending: usize) -> bool {
        let one = &self.pending[pending];
        one.ended || one.tries >= 5 || self.now() >= one.since + 5 * 60_000
    }

    fn recover(&mut self, number: usize, code: usize) {
        let Some(at) = number.checked_rem(self.pending.len()) else { return };
        let now_ms = self.now();
        let text =
            self.factor.as_ref().and_then(|factor| factor.recovery.get(code)).cloned().unwrap_or_default();
        let found = self.given(at, SecondFactor::RecoveryCode(&text));
        let rejected = self.accepts_no_code(at);
        let pending = &mut self.pending[at];
        let Some(known) = self.factor.as_mut().filter(|_| !rejected) else {
            assert!(matches!(found, Err(CodeError::PendingInvalid)), "{found:?}");
            return;
        };
        match found {
            Err(CodeError::Throttled { .. }) => assert!(known.throttled(now_ms)),
            _ if known.throttled(now_ms) => panic!("throttled, but answered"),
            Ok(login) => {
                assert!(known.left.remove(&text), "used before");
                pending.ended = true;
                self.sessions.push(ModelSession::new(login, now_ms));
            }
            Err(CodeError::Invalid { attempts_left, .. }) => {
                assert!(!known.left.contains(&text), "good");
                pending.tries += 1;
                known.failures.push(now_ms);
                assert_eq!(attempts_left, 5 - pending.tries);
            }
            found => panic!("{found:?}"),
        }
    }

    fn request_reset(&mut self) {
        let email = Email::parse(&self.email).expect("valid");
        let request = LinkRequest { email: &email, redirect: None, browser: Some("a browser") };
        let now = self.instance.now;
        let mailed = self.instance.identity().request_reset(&request, now, &mut self.instance.rng);
        self.reset = Some((mailed.expect("written").expect("mailed").token, self.now() + 600_000));
    }

    fn use_reset(&mut self) {
        let Some((token, until)) = self.reset.clone() else { return };
        let (here, now) = (self.stranger(), self.instance.now);
        let new = format!("password number {}", self.attempts);
        let proof = LinkProof::Browser { cookie: Some("a browser"), email: None };
        let request = PasswordReset { token: token.expose(), proof, new: Password(&new), client: &here };
        match self.instance.identity().reset_password(&request, now, &mut self.instance.rng) {
            Ok(_) => {
                assert!(now.as_ms() < until, "expired");
                self.has_new_password(new);
            }
            Err(PasswordResetError::Link(LinkError::Invalid)) => assert!(now.as_ms() >= until, "good"),
            Err(error) => panic!("{error:?}"),
        }
    }

    /// Ends all sessions, pending logins and links after a change of the password.
    fn has_new_password(&mut self, new: String) {
        self.end_all(None);
        self.password = new;
        for link in [&mut self.link, &mut self.reset] {
            *link = link.take().map(|(token, _)| (token, i64::MIN));
        }
    }

    fn reauth(&mut self, number: usize) {
        let Some(at) = self.live(number) else { return };
        let (here, now) = (self.stranger(), self.instance.now);
        let (identity, owner) = (self.instance.identity(), self.owner);
        let known = &mut self.sessions[at];
        let listed = identity.sessions(owner, now);
        let session = listed.iter().find(|session| session.id == known.login.session.id).expect("it lives");
        let given = Reauth::Password(Password(&self.password));
        identity.reauth(session, given, &here, now).expect("the right password");
        known.proved = now.as_ms();
    }

    fn code(&mut self, number: usize, given: CodeChoice) {
        let count = self.pending.len();
        let Some(at) = number.checked_rem(count) else { return };
        let (now, now_ms) = (self.instance.now, self.now());
        let right = self.factor.as_ref().map(|factor| factor.code(now)).unwrap_or_default();
        let code = match given {
            CodeChoice::Right => right,
            // Wrong at this step, and at its neighbours with a probability of one in a million.
            CodeChoice::Wrong => format!("{:06}", (right.parse::<u32>().unwrap_or(0) + 500_000) % 1_000_000),
        };
        let found = self.given(at, SecondFactor::Code(&code));
        let rejected = self.accepts_no_code(at);
        let pending = &mut self.pending[at];
        let Some(known) = self.factor.as_mut().filter(|_| !rejected) else {
            assert!(matches!(found, Err(CodeError::PendingInvalid)), "{found:?}");
            return;
        };
        let step = now_ms / 30_000;
        match (found, given) {
            (Err(CodeError::Throttled { .. }), _) => assert!(known.throttled(now_ms)),
            (_, _) if known.throttled(now_ms) => panic!("throttled, but answered"),
            (Ok(login), CodeChoice::Right) => {
                assert!(step > known.last_step, "used before");
                assert!(login.session.second_factor);
                known.last_step = step;
                pending.ended = true;
                self.sessions.push(ModelSession::new(login, now_ms));
            }
            (Err(CodeError::AlreadyUsed { .. }), CodeChoice::Right) => {
                assert!(step <= known.last_step, "fresh");
                pending.tries += 1;
            }
            (Err(CodeError::Invalid { attempts_left, .. }), CodeChoice::Wrong) => {
                pending.tries += 1;
                known.failures.push(now_ms);
                assert_eq!(attempts_left, 5 - pending.tries);
            }
            (found, given) => panic!("{given:?}: {found:?}"),
        }
    }

    fn use_session(&mut self, number: usize) {
        let Some(at) = number.checked_rem(self.sessions.len()) else { return };
        let (now, now_ms) = (self.instance.now, self.now());
        let known = &mut self.sessions[at];
        let identity = self.instance.identity();
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
        known.ended |= !lives;
        if lives {
            (known.last, known.latest) = (now_ms, now_ms);
        }
    }

    fn enable(&mut self, number: usize) {
        let Some(at) = self.live(number).filter(|_| self.factor.is_none()) else { return };
        let (now, now_ms) = (self.instance.now, self.now());
        let session = Arc::clone(&self.sessions[at].login.session);
        let enrolment =
            self.instance.identity().enroll_totp(&session, now, &mut self.instance.rng).expect("started");
        self.enrolment = None;
        let secret = enrolment.secret.expose().to_owned();
        let mut factor = Factor { secret, last_step: now_ms / 30_000, ..Factor::default() };
        let code = factor.code(now);
        let (codes, login) = self
            .instance
            .identity()
            .confirm_totp(&session, &code, now, &mut self.instance.rng)
            .expect("confirmed");
        factor.recovery = codes.0.iter().map(|code| code.expose().to_owned()).collect();
        factor.left = factor.recovery.iter().cloned().collect();
        self.end_all(None);
        self.factor = Some(factor);
        self.sessions.push(ModelSession::new(login, now_ms));
    }

    /// Uses a live session, as a request does, so that the flow that it starts does not fail
    /// because of the age of the session.
    fn used_live_session(&mut self, number: usize) -> Option<(usize, Arc<Session>)> {
        let at = self.live(number)?;
        self.use_session(at);
        Some((at, Arc::clone(&self.sessions[at].login.session)))
    }

    /// Returns whether something that a session started is still valid.
    fn is_valid<T>(&self, started: &Started<T>) -> bool {
        !self.sessions[started.by].ended && self.now() < started.until
    }

    fn begin_enrolment(&mut self, number: usize) {
        let Some((by, session)) = self.used_live_session(number) else { return };
        let now = self.instance.now;
        match self.instance.identity().enroll_totp(&session, now, &mut self.instance.rng) {
            Ok(enrolment) => {
                assert!(self.factor.is_none(), "enabled");
                let value = enrolment.secret.expose().to_owned();
                self.enrolment = Some(Started { value, by, until: self.now() + 600_000 });
            }
            Err(TwoFactorError::AlreadyEnabled) => assert!(self.factor.is_some(), "not enabled"),
            Err(error) => panic!("{error:?}"),
        }
    }

    fn confirm_enrolment(&mut self, number: usize) {
        let Some(at) = self.live(number) else { return };
        let session = Arc::clone(&self.sessions[at].login.session);
        let (now, now_ms) = (self.instance.now, self.now());
        let good = self.enrolment.as_ref().is_some_and(|started| self.is_valid(started));
        let nothing = || "A".repeat(32);
        let secret = self.enrolment.as_ref().map_or_else(nothing, |started| started.value.clone());
        let mut factor = Factor { secret, last_step: now_ms / 30_000, ..Factor::default() };
        let code = factor.code(now);
        match self.instance.identity().confirm_totp(&session, &code, now, &mut self.instance.rng) {
            Ok((codes, login)) => {
                assert!(good && self.factor.is_none(), "of nothing that is good");
                factor.recovery = codes.0.iter().map(|code| code.expose().to_owned()).collect();
                factor.left = factor.recovery.iter().cloned().collect();
                self.end_all(None);
                (self.factor, self.enrolment) = (Some(factor), None);
                self.sessions.push(ModelSession::new(login, now_ms));
            }
            Err(TwoFactorError::AlreadyEnabled) => assert!(self.factor.is_some()),
            Err(TwoFactorError::NotEnabled) => assert!(!good, "good"),
            Err(error) => panic!("{error:?}"),
        }
    }

    fn ask_address(&mut self, number: usize) {
        let Some((by, session)) = self.used_live_session(number) else { return };
        self.attempts += 1;
        let (new, now) = (format!("ada{}@example.org", self.attempts), self.instance.now);
        let email = Email::parse(&new).expect("valid");
        let mail =
            self.instance.identity().request_email_change(&session, &email, now, &mut self.instance.rng);
        let token = mail.expect("written").expect("nobody has it").token;
        self.address = Some(Started { value: (token, new), by, until: self.now() + 600_000 });
    }

    fn confirm_address(&mut self) {
        let Some(started) = self.address.take() else { return };
        let (here, now, good) = (self.stranger(), self.instance.now, self.is_valid(&started));
        match self.instance.identity().confirm_email(started.value.0.expose(), &here, now) {
            Ok(changed) => {
                assert!(good, "of a session that is over, or too late");
                assert_eq!(changed.old.as_str(), self.email);
                self.email.clone_from(&started.value.1);
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
        let Some((by, session)) = self.used_live_session(number) else { return };
        let (mode, now) = (session.link_mode(), self.instance.now);
        let value =
            self.instance.identity().begin_oauth(Provider::GitHub, mode, "/", now, &mut self.instance.rng);
        self.linking = Some(Started { value, by, until: self.now() + 600_000 });
    }

    /// Returns from a provider with any session, also one that ended during the sign-in.
    fn link(&mut self, number: usize) {
        let (Some(started), Some(at)) = (self.linking.take(), number.checked_rem(self.sessions.len())) else {
            return;
        };
        let (now, identity) = (self.instance.now, self.instance.identity());
        let (cookie, state) = (started.value.cookie.expose(), started.value.state.expose());
        let Some(attempt) = identity.resume_oauth(Provider::GitHub, cookie, state, now) else {
            assert!(now.as_ms() >= started.until, "its own ticket");
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
        match identity.oauth_link(&attempt, &account, &session, now, &mut self.instance.rng) {
            Ok(_) => {
                assert!(at == started.by && self.is_valid(&started), "another session, or one that is over");
                let again = identity.oauth_link(&attempt, &account, &session, now, &mut self.instance.rng);
                assert!(matches!(again, Err(OauthError::InvalidState)), "{again:?}");
            }
            Err(OauthError::InvalidState) => assert_ne!(at, started.by),
            Err(OauthError::SessionOver) => assert!(self.sessions[started.by].ended, "it lives"),
            Err(error) => panic!("{error:?}"),
        }
    }

    fn disable(&mut self) {
        let Some(at) = self.live(0) else { return };
        let (now, now_ms, password, here) =
            (self.instance.now, self.now(), self.password.clone(), self.stranger());
        let Some(known) = &mut self.factor else { return };
        let (code, step) = (known.code(now), now_ms / 30_000);
        let (given, session) = (SecondFactor::Code(&code), &self.sessions[at].login.session);
        match self.instance.identity().disable_totp(session, Some(Password(&password)), given, &here, now) {
            Ok(()) => {
                assert!(step > known.last_step && !known.throttled(now_ms));
                self.factor = None;
                self.pending.iter_mut().for_each(|pending| pending.ended = true);
            }
            Err(TwoFactorError::AlreadyUsed { .. }) => assert!(step <= known.last_step),
            Err(TwoFactorError::Throttled { .. }) => assert!(known.throttled(now_ms)),
            Err(error) => panic!("{error:?}"),
        }
    }

    fn change_password(&mut self, number: usize) {
        let Some(at) = self.live(number) else { return };
        let (here, now, now_ms) = (self.stranger(), self.instance.now, self.now());
        let new = format!("password number {}", self.attempts);
        let session = Arc::clone(&self.sessions[at].login.session);
        let request =
            PasswordChange { current: Some(Password(&self.password)), new: Password(&new), client: &here };
        let changed =
            self.instance.identity().change_password(&session, &request, now, &mut self.instance.rng);
        let login = changed.expect("the right password");
        assert_eq!(login.session.second_factor, session.second_factor);
        self.has_new_password(new);
        self.sessions.push(ModelSession::new(login, now_ms));
    }

    fn end(&mut self, number: usize, by_list: bool) {
        let Some(at) = self.live(number) else { return };
        let (identity, now) = (self.instance.identity(), self.instance.now);
        let known = &mut self.sessions[at];
        let session = &known.login.session;
        match by_list {
            true => assert!(identity.revoke_session(session.user, session.id, now).expect("written")),
            false => identity.end_session(session, now).expect("written"),
        }
        known.ended = true;
    }

    fn revoke_all(&mut self, keep: Option<usize>) {
        let keep = keep.and_then(|number| self.live(number)).map(|at| self.sessions[at].login.session.id);
        self.instance.identity().revoke_sessions(self.owner, keep, self.instance.now).expect("written");
        self.end_all(keep);
    }

    fn restart(&mut self, crash: bool) {
        let now = self.now();
        if crash {
            self.instance.crash();
            for known in &mut self.sessions {
                known.latest = known.latest.max(now.min(known.latest + GUARD_MS));
            }
        } else {
            self.instance.restart();
        }
    }

    fn run(&mut self, step: &Action) {
        match step {
            Action::Login { right } => self.login(*right),
            Action::Code { pending, given } => self.code(*pending, *given),
            Action::IssueLink => {
                let (owner, now) = (self.owner, self.instance.now);
                let link =
                    self.instance.identity().issue_login_link(owner, None, now, &mut self.instance.rng);
                self.link = Some((link.expect("made").token, self.now() + 600_000));
            }
            Action::UseLink => self.use_link(),
            Action::Recover { pending, code } => self.recover(*pending, *code),
            Action::Oauth => self.oauth(),
            Action::RequestReset => self.request_reset(),
            Action::UseReset => self.use_reset(),
            Action::Reauth(number) => self.reauth(*number),
            Action::Use(number) => self.use_session(*number),
            Action::Logout(number) => self.end(*number, false),
            Action::Revoke(number) => self.end(*number, true),
            Action::RevokeAll { keep } => self.revoke_all(*keep),
            Action::Enable(number) => self.enable(*number),
            Action::BeginEnrolment(number) => self.begin_enrolment(*number),
            Action::ConfirmEnrolment(number) => self.confirm_enrolment(*number),
            Action::AskAddress(number) => self.ask_address(*number),
            Action::ConfirmAddress => self.confirm_address(),
            Action::BeginLinking(number) => self.begin_linking(*number),
            Action::Link(number) => self.link(*number),
            Action::Disable => self.disable(),
            Action::ChangePassword(number) => self.change_password(*number),
            Action::Pass(ms) => self.instance.advance_ms(*ms),
            Action::Tick => self.instance.identity().tick(self.instance.now).expect("written"),
            Action::Crash => self.restart(true),
            Action::Restart => self.restart(false),
        }
    }

    /// Compares the list of live sessions with the model. The list renews no session.
    fn compare(&mut self) {
        let listed = self.instance.identity().sessions(self.owner, self.instance.now);
        let now = self.now();
        for known in &self.sessions {
            let found = listed.iter().any(|session| session.id == known.login.session.id);
            let id = known.login.session.id;
            assert!(known.lives(now).is_none_or(|expected| expected == found), "{id} lives: {found}");
            let fresh = listed.iter().any(|session| session.id == id && session.is_fresh(self.instance.now));
            assert_eq!(fresh, found && now <= known.proved + FRESH_MS, "{id} is fresh: {fresh}");
        }
        let in_model =
            |session: &&Arc<Session>| self.sessions.iter().any(|k| k.login.session.id == session.id);
        assert_eq!(listed.iter().filter(|session| !in_model(session)).count(), 0, "a session from nowhere");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]
    #[test]
    fn no_sequence_of_actions_gives_access_that_the_model_denies(steps in prop::collection::vec(actions(), 1..60)) {
        let mut model = LoginModel::new();
        for step in &steps {
            model.run(step);
            model.compare();
        }
    }
}
