//! Reauthentication for actions that a stolen session must not perform (docs/specification.md C2,
//! `POST /auth/reauth`).

use std::time::Duration;

use crate::kv::Txn;
use crate::model::Timestamp;

use crate::identity::Identity;
use crate::identity::audit::Event;
use crate::identity::auth::credentials::{Password, SecondFactor};
use crate::identity::auth::second_factor::{self, CodeCheck, GivenFactor};
use crate::identity::auth::session::{Client, Session, is_live};
use crate::identity::tables::session::{SessionKey, SessionRow};
use crate::identity::tables::store::{StoreError, read};
use crate::identity::tables::user::UserRow;

/// Evidence of the owner's identity.
#[derive(Clone, Copy, Debug)]
pub enum Reauth<'a> {
    /// The account's password.
    Password(Password<'a>),
    /// A code or recovery code of the second factor.
    Factor(SecondFactor<'a>),
}

/// Errors of a reauthentication.
#[derive(Debug, thiserror::Error)]
pub enum ReauthError {
    /// The password is wrong, or the account has none: `invalid_credentials`.
    #[error("wrong password")]
    InvalidCredentials,
    /// The code is wrong, or the account has no second factor: `invalid_code`.
    #[error("wrong code")]
    InvalidCode,
    /// `code_already_used`.
    #[error("this code was already used, wait for the next one")]
    AlreadyUsed {
        /// Time until the next code begins.
        retry_after: Duration,
    },
    /// `login_throttled` for a password, `twofa_throttled` for a code.
    #[error("too many failures, try again in {} s", retry_after.as_secs())]
    Throttled {
        /// Time until the next attempt is accepted.
        retry_after: Duration,
    },
    /// The session ended during the request: `session_invalid`.
    #[error("the session has ended")]
    SessionOver,
    /// `storage_degraded`.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A password that a session's owner gave.
#[derive(Clone, Copy)]
pub(super) struct GivenPassword<'a> {
    pub(super) password: Password<'a>,
    /// The client of the request.
    pub(super) client: &'a Client,
    /// The detail of the audit entry of a failure.
    pub(super) purpose: &'static str,
}

/// The result of checking the password of a session's owner.
pub(super) enum OwnPasswordCheck {
    Right,
    Wrong,
    /// The password was not checked; the time until the next check.
    Throttled(Duration),
}

/// Records within a change that the session's owner has reauthenticated.
fn prove(txn: &mut Txn<'_>, key: SessionKey, now: Timestamp) -> Result<(), ReauthError> {
    let row = read::<SessionRow>(txn, &key)?.ok_or(ReauthError::SessionOver)?;
    if !is_live(txn, key)? {
        return Err(ReauthError::SessionOver);
    }
    txn.put(&key, &SessionRow { auth_time: now, ..row });
    Ok(())
}

impl Identity {
    /// Makes a session fresh for 15 minutes. Failures count like those of a login. Blocks (hash,
    /// commit): run it on the password lane.
    ///
    /// # Errors
    /// [`ReauthError`].
    pub fn reauth(
        &self,
        session: &Session,
        given: Reauth<'_>,
        client: &Client,
        now: Timestamp,
    ) -> Result<(), ReauthError> {
        match given {
            Reauth::Password(password) => self.reauth_by_password(session, password, client, now)?,
            Reauth::Factor(factor) => self.reauth_by_factor(session, factor, now)?,
        }
        session.proved(now);
        Ok(())
    }

    /// Checks the password of a session's own account. A failure counts like that of a login and is
    /// recorded. Blocks (hash).
    pub(super) fn check_own_password(
        &self,
        session: &Session,
        account: &UserRow,
        given: GivenPassword<'_>,
        now: Timestamp,
    ) -> Result<OwnPasswordCheck, StoreError> {
        let attempt = self.attempt_of_session(session, &account.email);
        if let Err(retry_after) = self.login_throttle().admit(&attempt, now) {
            return Ok(OwnPasswordCheck::Throttled(retry_after));
        }
        if self.passwords.verify(given.password, account.password.as_deref()).map_err(StoreError::from)? {
            self.login_throttle().succeed(&attempt);
            return Ok(OwnPasswordCheck::Right);
        }
        self.login_throttle().fail(&attempt, now);
        let event = Event::by(session.user, "login.fail").at_ip(given.client.ip).detail(given.purpose);
        self.record_failure(event, now);
        Ok(OwnPasswordCheck::Wrong)
    }

    fn reauth_by_password(
        &self,
        session: &Session,
        password: Password<'_>,
        client: &Client,
        now: Timestamp,
    ) -> Result<(), ReauthError> {
        let account = self.row::<UserRow>(&session.user)?.ok_or(ReauthError::SessionOver)?;
        let given = GivenPassword { password, client, purpose: "reauth" };
        match self.check_own_password(session, &account, given, now)? {
            OwnPasswordCheck::Right => {}
            OwnPasswordCheck::Wrong => return Err(ReauthError::InvalidCredentials),
            OwnPasswordCheck::Throttled(retry_after) => return Err(ReauthError::Throttled { retry_after }),
        }
        let key = session.key();
        self.change(move |txn| prove(txn, key, now))
    }

    fn reauth_by_factor(
        &self,
        session: &Session,
        factor: SecondFactor<'_>,
        now: Timestamp,
    ) -> Result<(), ReauthError> {
        let (user, key) = (session.user, session.key());
        let (factor, sealing) = (GivenFactor::of(factor), self.sealing.clone());
        // A wrong code must be counted, so the refusal is the value of the change and not its
        // error.
        self.change::<Result<(), ReauthError>, ReauthError>(move |txn| {
            Ok(match second_factor::check(txn, user, &factor, &sealing, now)? {
                CodeCheck::Accepted => Ok(prove(txn, key, now)?),
                CodeCheck::Wrong | CodeCheck::NotEnabled => Err(ReauthError::InvalidCode),
                CodeCheck::AlreadyUsed(retry_after) => Err(ReauthError::AlreadyUsed { retry_after }),
                CodeCheck::Throttled(retry_after) => Err(ReauthError::Throttled { retry_after }),
            })
        })?
    }
}
