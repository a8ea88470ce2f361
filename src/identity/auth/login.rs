//! The common end of all logins: every first factor ends here, with a session or with the request
//! for a code.

use std::sync::Arc;
use std::time::Duration;

use crate::entropy::Entropy;
use crate::kv::Txn;
use crate::model::Timestamp;

use crate::identity::Identity;
use crate::identity::audit::{self, Event};
use crate::identity::auth::credentials::{Password, SecondFactor};
use crate::identity::auth::login_throttle::{AddressHash, Attempt, AttemptOrigin};
use crate::identity::auth::second_factor::{self, CodeCheck, GivenFactor};
use crate::identity::auth::session::{Client, LoginProof, NewSession, Session, issue, record_evicted};
use crate::identity::network::Network;
use crate::identity::tables::id::{Secret, SecretHash, SecretKind, SessionId, UserId};
use crate::identity::tables::master::SealingKey;
use crate::identity::tables::org::Membership;
use crate::identity::tables::session::{AuthMethod, PendingRow, SessionRow};
use crate::identity::tables::store::{StoreError, read};
use crate::identity::tables::totp::TotpRow;
use crate::identity::tables::user::{AddressRow, Email, User, UserRow, active};

/// The result of a verified first factor. Neither case is an error.
#[derive(Debug)]
pub enum LoginOutcome {
    /// A session was created.
    LoggedIn(LoggedIn),
    /// The account has a second factor; there is no session yet.
    NeedsCode(PendingLogin),
}

/// A new session and its owner.
#[derive(Debug)]
pub struct LoggedIn {
    /// `ses_...`: the value of the cookie `ms_session`.
    pub token: Secret,
    /// The session.
    pub session: Arc<Session>,
    /// The owner.
    pub user: User,
    /// The owner's organisations, ordered by slug.
    pub orgs: Vec<Membership>,
}

/// A login that waits for its second factor.
#[derive(Debug)]
pub struct PendingLogin {
    /// `tfp_...`.
    pub token: Secret,
    /// The lifetime: 300 s.
    pub expires_in: Duration,
}

/// A login attempt with a password.
#[derive(Clone, Copy, Debug)]
pub struct PasswordLogin<'a> {
    /// The address as typed. A text that is not an address fails like an unknown one.
    pub email: &'a str,
    /// The password, compared byte by byte.
    pub password: Password<'a>,
    /// The client of the request.
    pub client: &'a Client,
    /// The session cookie of the request, if any: its session is revoked when the new one is
    /// issued.
    pub replaces: Option<&'a str>,
    /// The cookie `ms_device` of the request, if any ([`Identity::device_token`]).
    pub device: Option<&'a str>,
}

/// Errors of a password login.
#[derive(Debug, thiserror::Error)]
pub enum LoginError {
    /// Unknown address, account without password, wrong password, or disabled account: always
    /// `invalid_credentials`.
    #[error("the address or the password is wrong")]
    InvalidCredentials,
    /// Too many failures, decided before any hashing: `login_throttled`.
    #[error("too many failed logins, try again in {} s", retry_after.as_secs())]
    Throttled {
        /// Time until the next attempt is accepted; whole seconds, at least 1.
        retry_after: Duration,
    },
    /// `storage_degraded`.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// An attempt to complete a pending login.
#[derive(Clone, Copy, Debug)]
pub struct CodeLogin<'a> {
    /// Token of the pending login, `tfp_...`.
    pub pending: &'a str,
    /// The code.
    pub factor: SecondFactor<'a>,
    /// The client of the request.
    pub client: &'a Client,
    /// The same as [`PasswordLogin::replaces`].
    pub replaces: Option<&'a str>,
}

/// Errors of verifying a code.
#[derive(Debug, thiserror::Error)]
pub enum CodeError {
    /// Unknown, older than five minutes, used, or without tries left: `pending_login_invalid`.
    #[error("this login is no longer valid; start again")]
    PendingInvalid,
    /// `invalid_code`.
    #[error("wrong code, {attempts_left} attempts left")]
    Invalid {
        /// Remaining tries of this pending login.
        attempts_left: u8,
        /// The address to alert: with this code the account has too many wrong ones, all from
        /// clients that passed the first factor.
        alarm: Option<Email>,
    },
    /// The code is correct, but was used before: `code_already_used`.
    #[error("this code was already used, wait for the next one")]
    AlreadyUsed {
        /// Time until the next code begins.
        retry_after: Duration,
    },
    /// Too many wrong codes for this account: `twofa_throttled`.
    #[error("too many wrong codes, try again in {} s", retry_after.as_secs())]
    Throttled {
        /// Time until the next attempt is accepted.
        retry_after: Duration,
    },
    /// `storage_degraded`.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Lifetime of a pending login: five minutes.
pub(super) const PENDING_MS: i64 = 5 * 60 * 1_000;
/// Number of codes that a pending login accepts.
pub(super) const PENDING_TRIES: u8 = 5;

/// The secrets of a login, drawn before its change; either may be needed.
#[derive(Debug)]
pub(in crate::identity) struct LoginSecrets {
    pub(in crate::identity) session: Secret,
    pub(in crate::identity) pending: Secret,
    pub(in crate::identity) new: NewSession,
    pub(in crate::identity) pending_hash: SecretHash,
}

impl LoginSecrets {
    /// Returns the part that [`finish_login`] stores.
    pub(in crate::identity) fn for_change(&self) -> (NewSession, SecretHash) {
        (self.new.clone(), self.pending_hash)
    }
}

/// The result of the change of a login.
#[derive(Debug)]
pub(in crate::identity) enum FinishedLogin {
    /// A session is stored.
    Session(SessionRow),
    /// A pending login is stored.
    Pending,
}

/// Finishes a login within its change. An account with a second factor gets a pending login and no
/// session, for every kind of first factor.
///
/// A login path has three steps around its change, and this is the last step within the change:
///
/// ```text
/// let drawn = self.draw(user, client, replaces, rng);  // outside of the transaction
/// let for_change = drawn.for_change();
/// let finished = self.change(move |txn| {
///     let row = active(txn, user)?.ok_or(..)?; // check and use the first factor
///     Ok(finish_login(txn, user, &row, AuthMethod::MagicLink, &for_change, now)?)
/// })?;
/// self.outcome(user, drawn, finished)                          // LoggedIn or NeedsCode
/// ```
///
/// `AuthDeps::outcome` turns the outcome into a response. If the change creates the account, `row`
/// is the row it has put.
pub(in crate::identity) fn finish_login(
    txn: &mut Txn<'_>,
    user: UserId,
    row: &UserRow,
    method: AuthMethod,
    drawn: &(NewSession, SecretHash),
    now: Timestamp,
) -> Result<FinishedLogin, StoreError> {
    let (new, pending_hash) = drawn;
    let second_factor = read::<TotpRow>(txn, &user)?.is_some_and(|totp| totp.enabled_at.is_some());
    if second_factor {
        let pending = PendingRow { user, method, created_at: now, tries: 0, epoch: row.sessions_epoch };
        txn.put(pending_hash, &pending);
        return Ok(FinishedLogin::Pending);
    }
    let session = issue(txn, user, row, new, LoginProof { method, second_factor: false }, now);
    record_evicted(txn, user, new, now)?;
    let event = Event::by(user, "login.ok").at_ip(new.client.ip).detail(method.as_str());
    audit::record(txn, &event, now)?;
    Ok(FinishedLogin::Session(session))
}

impl Identity {
    /// Draws the secrets that a login of `user` may need.
    pub(in crate::identity) fn draw(
        &self,
        user: UserId,
        client: &Client,
        replaces: Option<&str>,
        rng: &mut Entropy,
    ) -> LoginSecrets {
        let session = Secret::random(SecretKind::Session, rng);
        let pending = Secret::random(SecretKind::PendingLogin, rng);
        let (ends, evicts) = self.displaced(user, replaces);
        let (hash, id) = (session.hash(), SessionId::random(rng));
        let new = NewSession { hash, id, client: client.clone(), ends, evicts };
        let pending_hash = pending.hash();
        LoginSecrets { session, pending, new, pending_hash }
    }

    /// Returns the outcome for the caller after the change.
    pub(in crate::identity) fn outcome(
        &self,
        user: UserId,
        drawn: LoginSecrets,
        finished: FinishedLogin,
    ) -> Result<LoginOutcome, StoreError> {
        match finished {
            FinishedLogin::Pending => {
                let expires_in = Duration::from_millis(PENDING_MS.unsigned_abs());
                Ok(LoginOutcome::NeedsCode(PendingLogin { token: drawn.pending, expires_in }))
            }
            FinishedLogin::Session(row) => {
                self.logged_in(user, drawn.session, &drawn.new, row).map(LoginOutcome::LoggedIn)
            }
        }
    }

    /// Admits a durable session to memory and returns it with its owner.
    pub(in crate::identity) fn logged_in(
        &self,
        user: UserId,
        token: Secret,
        new: &NewSession,
        row: SessionRow,
    ) -> Result<LoggedIn, StoreError> {
        let session = self.admit_session(user, new.hash, row, &new.ends);
        let account = self.user(user)?.ok_or(StoreError::Inconsistent("a session of no account"))?;
        Ok(LoggedIn { token, session, user: account, orgs: self.memberships(user)? })
    }

    /// Returns whether an attempt would be accepted now. It is the check that [`Identity::login`]
    /// makes before it hashes, for callers that have not yet queued for the lane. Does not access
    /// the disk.
    ///
    /// # Errors
    /// [`LoginError::Throttled`].
    pub fn admits_login(&self, attempt: &PasswordLogin<'_>, now: Timestamp) -> Result<(), LoginError> {
        let (address, key) = self.login_attempt(attempt, now);
        self.admit_login(&address, &key, attempt.client, now)
    }

    fn admit_login(
        &self,
        address: &str,
        key: &Attempt,
        client: &Client,
        now: Timestamp,
    ) -> Result<(), LoginError> {
        let admitted = self.login_throttle().admit(key, now);
        admitted.map_err(|retry_after| {
            let event = Event::unattributed("login.throttled").target(address).at_ip(client.ip);
            self.record_failure(event, now);
            LoginError::Throttled { retry_after }
        })
    }

    /// Returns the normalised address and the throttling key of an attempt.
    fn login_attempt(&self, attempt: &PasswordLogin<'_>, now: Timestamp) -> (String, Attempt) {
        // A text that is not an address counts and costs like an unknown one. It is truncated, so
        // that a long one is not hashed in full.
        let address = Email::parse(attempt.email).map_or_else(
            |_| attempt.email.get(..attempt.email.floor_char_boundary(256)).unwrap_or_default().to_owned(),
            |email| email.as_str().to_owned(),
        );
        let from = match self.known_device(attempt.device, &address, now) {
            Some(device) => AttemptOrigin::Known(device),
            None => AttemptOrigin::Unknown(Network::of(attempt.client.ip)),
        };
        let key = Attempt { address: self.address_hash(&address), from };
        (address, key)
    }

    /// Logs in with a password as first factor. Blocks (hash, commit): run it on the password lane.
    ///
    /// # Errors
    /// [`LoginError`].
    pub fn login(
        &self,
        attempt: &PasswordLogin<'_>,
        now: Timestamp,
        rng: &mut Entropy,
    ) -> Result<LoginOutcome, LoginError> {
        let (address, key) = self.login_attempt(attempt, now);
        self.admit_login(&address, &key, attempt.client, now)?;
        match self.check_password(&address, attempt.password)? {
            Some((user, verified)) => {
                let outcome = self.finish_password_login(user, verified, attempt, now, rng);
                if outcome.is_ok() {
                    self.login_throttle().succeed(&key);
                }
                outcome
            }
            None => {
                self.login_throttle().fail(&key, now);
                let event = Event::unattributed("login.fail").target(&address).at_ip(attempt.client.ip);
                self.record_failure(event, now);
                Err(LoginError::InvalidCredentials)
            }
        }
    }

    /// Returns the key of an address in the maps of failures.
    pub(in crate::identity) fn address_hash(&self, address: &str) -> AddressHash {
        self.sealing.derive("address", address.as_bytes())
    }

    /// Returns the throttling key for password checks of a session's owner: that of the session.
    pub(super) fn attempt_of_session(&self, session: &Session, address: &str) -> Attempt {
        let mut id = [0; 16];
        id.iter_mut().zip(session.id.as_bytes()).for_each(|(to, from)| *to = *from);
        Attempt { address: self.address_hash(address), from: AttemptOrigin::Known(id) }
    }

    /// Verifies a password. Returns the account and the hash that it was verified against. Does the
    /// same work for an unknown address.
    fn check_password(
        &self,
        address: &str,
        password: Password<'_>,
    ) -> Result<Option<(UserId, String)>, StoreError> {
        let user = self.row::<AddressRow>(&address.to_owned())?.map(|row| row.0);
        let row = match user {
            Some(user) => self.row::<UserRow>(&user)?,
            None => None,
        };
        let stored = row.as_ref().and_then(|row| row.password.as_deref());
        let right = self.passwords.verify(password, stored)?;
        let disabled = row.as_ref().is_none_or(|row| row.disabled);
        Ok(user.zip(row.and_then(|row| row.password)).filter(|_| right && !disabled))
    }

    fn finish_password_login(
        &self,
        user: UserId,
        verified: String,
        attempt: &PasswordLogin<'_>,
        now: Timestamp,
        rng: &mut Entropy,
    ) -> Result<LoginOutcome, LoginError> {
        let rehashed =
            self.passwords.is_outdated(&verified).then(|| self.passwords.hash(attempt.password, rng));
        let drawn = self.draw(user, attempt.client, attempt.replaces, rng);
        let for_change = drawn.for_change();
        let finished = self.change(move |txn| {
            let mut row = active(txn, user)?.ok_or(LoginError::InvalidCredentials)?;
            // The password was changed during the hashing.
            if row.password.as_deref() != Some(verified.as_str()) {
                return Err(LoginError::InvalidCredentials);
            }
            if let Some(rehashed) = rehashed {
                row.password = Some(rehashed);
                txn.put(&user, &row);
            }
            Ok(finish_login(txn, user, &row, AuthMethod::Password, &for_change, now)?)
        })?;
        Ok(self.outcome(user, drawn, finished)?)
    }

    /// Verifies the second factor of a pending login. Blocks (commit).
    ///
    /// # Errors
    /// [`CodeError`].
    pub fn verify_code(
        &self,
        attempt: &CodeLogin<'_>,
        now: Timestamp,
        rng: &mut Entropy,
    ) -> Result<LoggedIn, CodeError> {
        let hash = SecretKind::PendingLogin.hash_of(attempt.pending).ok_or(CodeError::PendingInvalid)?;
        let pending =
            self.row::<PendingRow>(&hash).map_err(CodeError::Store)?.ok_or(CodeError::PendingInvalid)?;
        let user = pending.user;
        let drawn = self.draw(user, attempt.client, attempt.replaces, rng);
        let (new, factor, sealing) =
            (drawn.new.clone(), GivenFactor::of(attempt.factor), self.sealing.clone());
        let result = self.change(move |txn| accept_code(txn, hash, &factor, &sealing, &new, now))?;
        match result {
            Ok(row) => Ok(self.logged_in(user, drawn.session, &drawn.new, row)?),
            Err(refusal) => Err(refusal),
        }
    }
}

/// Decides on a code within the change that creates the session. The number of tries, the step of
/// the code, the recovery code and the pending login are all read and written here, so two requests
/// cannot both use one.
///
/// A wrong code is stored as well, so the refusal is the value of the change and not its error.
fn accept_code(
    txn: &mut Txn<'_>,
    hash: SecretHash,
    factor: &GivenFactor,
    sealing: &SealingKey,
    new: &NewSession,
    now: Timestamp,
) -> Result<Result<SessionRow, CodeError>, CodeError> {
    let mut pending = read::<PendingRow>(txn, &hash)?.ok_or(CodeError::PendingInvalid)?;
    let user = pending.user;
    let row = active(txn, user)?.filter(|row| row.sessions_epoch == pending.epoch);
    let expired = now.ms_since(pending.created_at) >= PENDING_MS || pending.tries >= PENDING_TRIES;
    let (Some(row), false) = (row, expired) else { return Err(CodeError::PendingInvalid) };
    let checked = second_factor::check(txn, user, factor, sealing, now)?;
    let attempts_left = PENDING_TRIES.saturating_sub(pending.tries.saturating_add(1));
    let refusal = match checked {
        CodeCheck::Accepted => {
            txn.remove::<PendingRow>(&hash);
            let proof = LoginProof { method: pending.method, second_factor: true };
            let session = issue(txn, user, &row, new, proof, now);
            record_evicted(txn, user, new, now)?;
            let event = Event::by(user, "login.ok").at_ip(new.client.ip).detail(pending.method.as_str());
            audit::record(txn, &event, now)?;
            return Ok(Ok(session));
        }
        CodeCheck::Throttled(retry_after) => return Ok(Err(CodeError::Throttled { retry_after })),
        CodeCheck::NotEnabled => return Err(CodeError::PendingInvalid),
        CodeCheck::Wrong => {
            let too_many = second_factor::is_throttled(txn, user, now)?;
            CodeError::Invalid { attempts_left, alarm: Email::parse(&row.email).ok().filter(|_| too_many) }
        }
        CodeCheck::AlreadyUsed(retry_after) => CodeError::AlreadyUsed { retry_after },
    };
    pending.tries = pending.tries.saturating_add(1);
    txn.put(&hash, &pending);
    let event = Event::by(user, "twofa.fail").at_ip(new.client.ip);
    audit::record(txn, &event, now)?;
    Ok(Err(refusal))
}
