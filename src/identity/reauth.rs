//! Proving once more who one is, for what a stolen session must not do (docs/specification.md C2, `POST /auth/reauth`).

use std::time::Duration;

use crate::kv::Txn;
use crate::model::Timestamp;

use super::audit::Event;
use super::session::{SessionKey, SessionRow, stands};
use super::store::read;
use super::totp::{self, Checked, GivenFactor};
use super::user::UserRow;
use super::{Client, Identity, Password, SecondFactor, Session, StoreError};

/// What proves it.
#[derive(Clone, Copy, Debug)]
pub enum Reauth<'a> {
    /// The account's password.
    Password(Password<'a>),
    /// Its second factor.
    Factor(SecondFactor<'a>),
}

/// Why it was not proven.
#[derive(Debug, thiserror::Error)]
pub enum ReauthError {
    /// Wrong, or the account has no password: `invalid_credentials`.
    #[error("wrong password")]
    InvalidCredentials,
    /// Wrong, or the account has no second factor: `invalid_code`.
    #[error("wrong code")]
    InvalidCode,
    /// `code_already_used`.
    #[error("this code was already used, wait for the next one")]
    AlreadyUsed {
        /// Until the next code begins.
        retry_after: Duration,
    },
    /// `login_throttled` or `twofa_throttled`, by what was given.
    #[error("too many failures, try again in {} s", retry_after.as_secs())]
    Throttled {
        /// Until an attempt will be looked at.
        retry_after: Duration,
    },
    /// The session ended meanwhile: `session_invalid`.
    #[error("the session is over")]
    SessionOver,
    /// `storage_degraded`.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// How the owner of a session did at their password.
pub(super) enum OwnPassword {
    Right,
    Wrong,
    /// Not looked at, and how long until one is.
    Throttled(Duration),
}

/// Notes in a change that the session's owner proved who they are.
fn prove(txn: &mut Txn<'_>, key: SessionKey, now: Timestamp) -> Result<(), ReauthError> {
    let row = read::<SessionRow>(txn, &key)?.ok_or(ReauthError::SessionOver)?;
    if !stands(txn, key)? {
        return Err(ReauthError::SessionOver);
    }
    txn.put(&key, &SessionRow { auth_time: now, ..row });
    Ok(())
}

impl Identity {
    /// Makes a session fresh for 15 minutes. Failures count like those of a login. Blocks (hash, commit): run it on the
    /// password lane.
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

    /// Checks the password of a session's own account. A failure counts like that of a login, and is noted as one of
    /// `what`. Blocks (hash).
    pub(super) fn check_own_password(
        &self,
        session: &Session,
        account: &UserRow,
        password: Password<'_>,
        (client, what): (&Client, &str),
        now: Timestamp,
    ) -> Result<OwnPassword, StoreError> {
        let attempt = self.attempt_of_session(session, &account.email);
        if let Err(retry_after) = self.lockout().admit(&attempt, now) {
            return Ok(OwnPassword::Throttled(retry_after));
        }
        if self.passwords.verify(password, account.password.as_deref()).map_err(StoreError::from)? {
            self.lockout().succeed(&attempt);
            return Ok(OwnPassword::Right);
        }
        self.lockout().fail(&attempt, now);
        self.note_failure(Event::by(session.user, "login.fail").at_ip(client.ip).detail(what), now);
        Ok(OwnPassword::Wrong)
    }

    fn reauth_by_password(
        &self,
        session: &Session,
        password: Password<'_>,
        client: &Client,
        now: Timestamp,
    ) -> Result<(), ReauthError> {
        let account = self.row::<UserRow>(&session.user)?.ok_or(ReauthError::SessionOver)?;
        match self.check_own_password(session, &account, password, (client, "reauth"), now)? {
            OwnPassword::Right => {}
            OwnPassword::Wrong => return Err(ReauthError::InvalidCredentials),
            OwnPassword::Throttled(retry_after) => return Err(ReauthError::Throttled { retry_after }),
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
        // A wrong code is counted in the change, so it is its value and not its error.
        self.change::<Result<(), ReauthError>, ReauthError>(move |txn| {
            Ok(match totp::check(txn, user, &factor, &sealing, now)? {
                Checked::Accepted => Ok(prove(txn, key, now)?),
                Checked::Wrong | Checked::NotEnabled => Err(ReauthError::InvalidCode),
                Checked::AlreadyUsed(retry_after) => Err(ReauthError::AlreadyUsed { retry_after }),
                Checked::Throttled(retry_after) => Err(ReauthError::Throttled { retry_after }),
            })
        })?
    }
}
