//! The one way in: whatever the first factor, it ends here and becomes a session or asks for a code.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::entropy::Entropy;
use crate::kv::{Record, Txn};
use crate::model::Timestamp;

use super::audit::{self, Event};
use super::lockout::{AddressHash, Attempt, Network, Origin};
use super::master::SealingKey;
use super::session::{NewSession, Proof, SessionRow, issue, note_evicted};
use super::store::read;
use super::totp::{self, Checked, GivenFactor, TotpRow};
use super::user::{AddressRow, UserRow, active};
use super::{
    AuthMethod, Client, Email, Identity, Membership, Secret, SecretHash, SecretKind, Session, SessionId,
    StoreError, User, UserId,
};

/// What a proven first factor leads to. Neither is an error.
#[derive(Debug)]
pub enum LoginOutcome {
    /// In.
    LoggedIn(LoggedIn),
    /// The account has a second factor; no session yet.
    NeedsCode(PendingLogin),
}

/// A new session and whose it is.
#[derive(Debug)]
pub struct LoggedIn {
    /// `ses_...`: the value of the cookie `ms_session`.
    pub token: Secret,
    /// The session.
    pub session: Arc<Session>,
    /// Its owner.
    pub user: User,
    /// The owner's organisations, by slug.
    pub orgs: Vec<Membership>,
}

/// A login that waits for its second factor.
#[derive(Debug)]
pub struct PendingLogin {
    /// `tfp_...`.
    pub token: Secret,
    /// How long it waits: 300 s.
    pub expires_in: Duration,
}

/// An attempt with a password.
#[derive(Clone, Copy, Debug)]
pub struct PasswordLogin<'a> {
    /// As typed; one that is no address fails like an unknown one.
    pub email: &'a str,
    /// Byte-exact.
    pub password: Password<'a>,
    /// From where.
    pub client: &'a Client,
    /// The session cookie that came with the request, if any: revoked when the new session is issued.
    pub replaces: Option<&'a str>,
    /// The cookie `ms_device` that came with the request, if any ([`Identity::device_token`]).
    pub device: Option<&'a str>,
}

/// A password as typed. Prints as `***`.
#[derive(Clone, Copy)]
pub struct Password<'a>(pub &'a str);

impl std::fmt::Debug for Password<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

/// Why a password login failed.
#[derive(Debug, thiserror::Error)]
pub enum LoginError {
    /// Unknown address, no password, wrong password, disabled account: one answer, `invalid_credentials`.
    #[error("address and password do not belong together")]
    InvalidCredentials,
    /// Too many failures, decided before any hashing: `login_throttled`.
    #[error("too many failed logins, try again in {} s", retry_after.as_secs())]
    Throttled {
        /// Until an attempt will be looked at; whole seconds, at least 1.
        retry_after: Duration,
    },
    /// `storage_degraded`.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What proves the second factor.
#[derive(Clone, Copy)]
pub enum SecondFactor<'a> {
    /// Six digits; inner spaces are stripped.
    Code(&'a str),
    /// One of the ten recovery codes; dashes, spaces and letter case do not matter.
    RecoveryCode(&'a str),
}

impl std::fmt::Debug for SecondFactor<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            SecondFactor::Code(_) => "Code(***)",
            SecondFactor::RecoveryCode(_) => "RecoveryCode(***)",
        })
    }
}

/// An attempt to end a pending login.
#[derive(Clone, Copy, Debug)]
pub struct CodeLogin<'a> {
    /// `tfp_...` as given out.
    pub pending: &'a str,
    /// The code.
    pub factor: SecondFactor<'a>,
    /// From where.
    pub client: &'a Client,
    /// As in [`PasswordLogin::replaces`].
    pub replaces: Option<&'a str>,
}

/// Why a code was refused.
#[derive(Debug, thiserror::Error)]
pub enum CodeError {
    /// Unknown, older than five minutes, used, or five tries spent: `pending_login_invalid`.
    #[error("this login is over, start again")]
    PendingInvalid,
    /// `invalid_code`.
    #[error("wrong code, {attempts_left} attempts left")]
    Invalid {
        /// Of this pending login.
        attempts_left: u8,
        /// Whom to tell: with this code the account had too many wrong ones, all by somebody who came past the first factor.
        alarm: Option<Email>,
    },
    /// Right, but used before: `code_already_used`.
    #[error("this code was already used, wait for the next one")]
    AlreadyUsed {
        /// Until the next code begins.
        retry_after: Duration,
    },
    /// Too many wrong codes for this account: `twofa_throttled`.
    #[error("too many wrong codes, try again in {} s", retry_after.as_secs())]
    Throttled {
        /// Until an attempt will be looked at.
        retry_after: Duration,
    },
    /// `storage_degraded`.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A pending login is good for five minutes.
pub(super) const PENDING_MS: i64 = 5 * 60 * 1_000;
/// And for five codes.
pub(super) const PENDING_TRIES: u8 = 5;

/// A login that waits for its second factor, as stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct PendingRow {
    pub(super) user: UserId,
    /// What the first factor was.
    pub(super) method: AuthMethod,
    pub(super) created_at: Timestamp,
    pub(super) tries: u8,
    /// The user's `sessions_epoch`: ending all sessions ends pending logins, too.
    pub(super) epoch: u32,
}

impl Record for PendingRow {
    const TABLE: u8 = 0x04;
    const KIND: u8 = 0x04;
    const VERSION: u8 = 1;
    type Key = SecretHash;
}

/// The secrets of a login, drawn before its change: either may be needed.
#[derive(Debug)]
pub(super) struct Drawn {
    pub(super) session: Secret,
    pub(super) pending: Secret,
    pub(super) new: NewSession,
    pub(super) pending_hash: SecretHash,
}

impl Drawn {
    /// What [`finish_login`] stores of it.
    pub(super) fn for_change(&self) -> (NewSession, SecretHash) {
        (self.new.clone(), self.pending_hash)
    }
}

/// How a login's change ended.
#[derive(Debug)]
pub(super) enum Finished {
    /// A session is stored.
    Session(SessionRow),
    /// A pending login is stored.
    Pending,
}

/// The end of every login path: an account with a second factor gets a pending login and no session, whatever its
/// first factor was.
///
/// A path has three steps around its change, and this is the last thing in the change:
///
/// ```text
/// let drawn = self.draw(user, client, replaces, rng);          // chance stays outside of the change
/// let for_change = drawn.for_change();
/// let finished = self.change(move |txn| {
///     let row = active(txn, user)?.ok_or(..)?;                 // judge the first factor here, and use it up
///     Ok(finish_login(txn, user, &row, AuthMethod::Oidc, &for_change, now)?)
/// })?;
/// self.outcome(user, drawn, finished)                          // LoggedIn or NeedsCode
/// ```
///
/// `AuthDeps::outcome` makes the answer of it. An account that the change makes itself is `row` as it was put.
pub(super) fn finish_login(
    txn: &mut Txn<'_>,
    user: UserId,
    row: &UserRow,
    method: AuthMethod,
    drawn: &(NewSession, SecretHash),
    now: Timestamp,
) -> Result<Finished, StoreError> {
    let (new, pending_hash) = drawn;
    let second_factor = read::<TotpRow>(txn, &user)?.is_some_and(|totp| totp.enabled_at.is_some());
    if second_factor {
        let pending = PendingRow { user, method, created_at: now, tries: 0, epoch: row.sessions_epoch };
        txn.put(pending_hash, &pending);
        return Ok(Finished::Pending);
    }
    let session = issue(txn, user, row, new, Proof { method, second_factor: false }, now);
    note_evicted(txn, user, new, now)?;
    let event = Event::by(user, "login.ok").at_ip(new.client.ip).detail(method.as_str());
    audit::note(txn, &event, now)?;
    Ok(Finished::Session(session))
}

impl Identity {
    /// Draws what a login of `user` may need.
    pub(super) fn draw(
        &self,
        user: UserId,
        client: &Client,
        replaces: Option<&str>,
        rng: &mut Entropy,
    ) -> Drawn {
        let session = Secret::random(SecretKind::Session, rng);
        let pending = Secret::random(SecretKind::PendingLogin, rng);
        let (ends, evicts) = self.displaced(user, replaces);
        let (hash, id) = (session.hash(), SessionId::random(rng));
        let new = NewSession { hash, id, client: client.clone(), ends, evicts };
        let pending_hash = pending.hash();
        Drawn { session, pending, new, pending_hash }
    }

    /// What the caller gets after the change.
    pub(super) fn outcome(
        &self,
        user: UserId,
        drawn: Drawn,
        finished: Finished,
    ) -> Result<LoginOutcome, StoreError> {
        match finished {
            Finished::Pending => {
                let expires_in = Duration::from_millis(PENDING_MS.unsigned_abs());
                Ok(LoginOutcome::NeedsCode(PendingLogin { token: drawn.pending, expires_in }))
            }
            Finished::Session(row) => {
                self.logged_in(user, drawn.session, &drawn.new, row).map(LoginOutcome::LoggedIn)
            }
        }
    }

    /// Notes a durable session and tells its owner's story.
    pub(super) fn logged_in(
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

    /// Whether an attempt would be looked at now: the decision that [`Identity::login`] makes before it hashes, for those
    /// who would rather not wait in line to hear it. Touches memory only.
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
        let admitted = self.lockout().admit(key, now);
        admitted.map_err(|retry_after| {
            let event = Event::by_nobody("login.throttled").target(address).at_ip(client.ip);
            self.note_failure(event, now);
            LoginError::Throttled { retry_after }
        })
    }

    /// The address as it counts, and who tries it.
    fn login_attempt(&self, attempt: &PasswordLogin<'_>, now: Timestamp) -> (String, Attempt) {
        // What is no address counts and costs like an unknown one; cut, so that a long one is not hashed in full.
        let address = Email::parse(attempt.email).map_or_else(
            |_| attempt.email.get(..attempt.email.floor_char_boundary(256)).unwrap_or_default().to_owned(),
            |email| email.as_str().to_owned(),
        );
        let from = match self.known_device(attempt.device, &address, now) {
            Some(device) => Origin::Known(device),
            None => Origin::Stranger(Network::of(attempt.client.ip)),
        };
        let key = Attempt { address: self.address_hash(&address), from };
        (address, key)
    }

    /// First factor by password. Blocks (hash, commit): run it on the password lane.
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
                    self.lockout().succeed(&key);
                }
                outcome
            }
            None => {
                self.lockout().fail(&key, now);
                let event = Event::by_nobody("login.fail").target(&address).at_ip(attempt.client.ip);
                self.note_failure(event, now);
                Err(LoginError::InvalidCredentials)
            }
        }
    }

    /// What stands for an address in the maps of failures.
    pub(super) fn address_hash(&self, address: &str) -> AddressHash {
        self.sealing.derive("address", address.as_bytes())
    }

    /// Whose failures the password of a session's owner counts to: the session's own.
    pub(super) fn attempt_of_session(&self, session: &Session, address: &str) -> Attempt {
        let mut id = [0; 16];
        id.iter_mut().zip(session.id.as_bytes()).for_each(|(to, from)| *to = *from);
        Attempt { address: self.address_hash(address), from: Origin::Known(id) }
    }

    /// The account and the hash that a password was verified against; the same work where there is none.
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
            // Changed while we hashed: what was verified is not the password any more.
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

    /// Second factor of a pending login, whatever its first was. Blocks (commit).
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

/// The whole decision about a code, in the change that creates the session: the count of tries, the code's step, the
/// recovery code and the pending login are all read and written here, so two requests cannot both use one.
///
/// A wrong code is written as well, so it is the value of the change and not its error.
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
    let over = now.ms_since(pending.created_at) >= PENDING_MS || pending.tries >= PENDING_TRIES;
    let (Some(row), false) = (row, over) else { return Err(CodeError::PendingInvalid) };
    let checked = totp::check(txn, user, factor, sealing, now)?;
    let attempts_left = PENDING_TRIES.saturating_sub(pending.tries.saturating_add(1));
    let refusal = match checked {
        Checked::Accepted => {
            txn.remove::<PendingRow>(&hash);
            let proof = Proof { method: pending.method, second_factor: true };
            let session = issue(txn, user, &row, new, proof, now);
            note_evicted(txn, user, new, now)?;
            let event = Event::by(user, "login.ok").at_ip(new.client.ip).detail(pending.method.as_str());
            audit::note(txn, &event, now)?;
            return Ok(Ok(session));
        }
        Checked::Throttled(retry_after) => return Ok(Err(CodeError::Throttled { retry_after })),
        Checked::NotEnabled => return Err(CodeError::PendingInvalid),
        Checked::Wrong => {
            let too_many = totp::is_throttled(txn, user, now)?;
            CodeError::Invalid { attempts_left, alarm: Email::parse(&row.email).ok().filter(|_| too_many) }
        }
        Checked::AlreadyUsed(retry_after) => CodeError::AlreadyUsed { retry_after },
    };
    pending.tries = pending.tries.saturating_add(1);
    txn.put(&hash, &pending);
    let event = Event::by(user, "twofa.fail").at_ip(new.client.ip);
    audit::note(txn, &event, now)?;
    Ok(Err(refusal))
}
