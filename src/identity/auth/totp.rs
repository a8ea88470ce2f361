//! Enrolling, changing and disabling a second factor (docs/specification.md D3).

use std::time::Duration;

use data_encoding::BASE32_NOPAD;

use crate::entropy::Entropy;
use crate::model::Timestamp;

use crate::identity::Identity;
use crate::identity::audit::{self, Event};
use crate::identity::auth::credentials::{Password, SecondFactor};
use crate::identity::auth::login::LoggedIn;
use crate::identity::auth::reauth::{GivenPassword, OwnPasswordCheck};
use crate::identity::auth::second_factor::{
    CodeCheck, GivenFactor, RecoveryCodes, check, draw_recovery_codes, plain_code, sealed_for, totp,
};
use crate::identity::auth::session::{Client, LoginProof, Session, end_all, is_live, issue};
use crate::identity::tables::id::{Secret, UserId};
use crate::identity::tables::store::{StoreError, read};
use crate::identity::tables::totp::TotpRow;
use crate::identity::tables::user::UserRow;

/// The data for an authenticator app.
#[derive(Debug)]
pub struct Enrolment {
    /// The secret in base32, for typing.
    pub secret: Secret,
    /// `otpauth://...`, for scanning.
    pub otpauth_url: Secret,
    /// Time until the enrolment must be confirmed: 600 s.
    pub expires_in: Duration,
}

/// The state of an account's second factor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TwoFactorStatus {
    /// Whether a login requires it.
    pub enabled: bool,
    /// Time of confirmation.
    pub enabled_at: Option<Timestamp>,
    /// Number of unused recovery codes.
    pub recovery_codes_left: u8,
}

/// Errors of changing the second factor.
#[derive(Debug, thiserror::Error)]
pub enum TwoFactorError {
    /// `twofa_already_enabled`.
    #[error("a second factor is already enabled")]
    AlreadyEnabled,
    /// `twofa_not_enabled`: no second factor is enabled or waits for confirmation.
    #[error("no second factor is enabled or waiting for its first code")]
    NotEnabled,
    /// `invalid_code`.
    #[error("wrong code")]
    InvalidCode,
    /// `code_already_used`.
    #[error("this code was already used, wait for the next one")]
    AlreadyUsed {
        /// Time until the next code begins.
        retry_after: Duration,
    },
    /// `twofa_throttled`.
    #[error("too many wrong codes, try again in {} s", retry_after.as_secs())]
    Throttled {
        /// Time until the next code is accepted.
        retry_after: Duration,
    },
    /// `login_throttled`.
    #[error("too many wrong passwords, try again in {} s", retry_after.as_secs())]
    PasswordThrottled {
        /// Time until the next password is accepted.
        retry_after: Duration,
    },
    /// `invalid_credentials`: the account has a password, and the given one is missing or wrong.
    #[error("the password is wrong, or was not sent")]
    InvalidPassword,
    /// The account no longer exists.
    #[error("no such account")]
    UnknownUser,
    /// The session ended during the request: `session_invalid`.
    #[error("the session has ended")]
    SessionOver,
    /// `storage_degraded`.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Time within which an enrolment must be confirmed with its first code.
const ENROLMENT_MS: i64 = 10 * 60 * 1_000;
const SECRET_BYTES: usize = 20;

impl Identity {
    /// Returns the state of an account's second factor.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn twofa_status(&self, user: UserId) -> Result<TwoFactorStatus, StoreError> {
        let row = self.row::<TotpRow>(&user)?.filter(|row| row.enabled_at.is_some());
        Ok(TwoFactorStatus {
            enabled: row.is_some(),
            enabled_at: row.as_ref().and_then(|row| row.enabled_at),
            recovery_codes_left: row.map_or(0, |row| u8::try_from(row.recovery.len()).unwrap_or(u8::MAX)),
        })
    }

    /// Starts an enrolment, which ends with the session. Replaces an unconfirmed enrolment. Blocks
    /// (commit).
    ///
    /// # Errors
    /// [`TwoFactorError`].
    pub fn enroll_totp(
        &self,
        session: &Session,
        now: Timestamp,
        rng: &mut Entropy,
    ) -> Result<Enrolment, TwoFactorError> {
        let (user, begun_by) = session.key();
        let account =
            self.row::<UserRow>(&user).map_err(TwoFactorError::Store)?.ok_or(TwoFactorError::UnknownUser)?;
        let secret: [u8; SECRET_BYTES] = rng.bytes();
        let sealed = self.sealing.seal(sealed_for(&user), &secret, rng);
        self.change(move |txn| {
            let old = read::<TotpRow>(txn, &user)?;
            if old.as_ref().is_some_and(|row| row.enabled_at.is_some()) {
                return Err(TwoFactorError::AlreadyEnabled);
            }
            // The failures stay; otherwise another enrolment would allow further guesses.
            let failures = old.map(|row| row.failures).unwrap_or_default();
            let row = TotpRow {
                sealed,
                started_at: now,
                enabled_at: None,
                last_step: 0,
                recovery: Vec::new(),
                failures,
                begun_by: Some(begun_by),
            };
            txn.put(&user, &row);
            Ok(())
        })?;
        let totp = totp(secret.to_vec(), &account.email)
            .ok_or(StoreError::Inconsistent("a secret of 160 bits is refused"))?;
        let url = totp
            .to_url()
            .map_err(|_| StoreError::Inconsistent("an address that no otpauth URL can carry"))?;
        Ok(Enrolment {
            secret: Secret::new(BASE32_NOPAD.encode(&secret)),
            otpauth_url: Secret::new(url),
            expires_in: Duration::from_millis(ENROLMENT_MS.unsigned_abs()),
        })
    }

    /// Confirms an enrolment with its first code, uses that code up, ends all sessions, and returns
    /// a new one. Blocks (commit).
    ///
    /// # Errors
    /// [`TwoFactorError`].
    pub fn confirm_totp(
        &self,
        session: &Session,
        code: &str,
        now: Timestamp,
        rng: &mut Entropy,
    ) -> Result<(RecoveryCodes, LoggedIn), TwoFactorError> {
        let (user, method) = (session.user, session.auth_method);
        let codes = draw_recovery_codes(rng);
        let drawn = self.draw(user, &session.client, None, rng);
        let (new, hashes, sealing, code) =
            (drawn.new.clone(), codes.hashes(), self.sealing.clone(), plain_code(code));
        let own = session.key();
        let (row, epoch) = self.change(move |txn| {
            // A session that ended during the request must not get a new one.
            if !is_live(txn, own)? {
                return Err(TwoFactorError::SessionOver);
            }
            let mut totp_row = read::<TotpRow>(txn, &user)?.ok_or(TwoFactorError::NotEnabled)?;
            if totp_row.enabled_at.is_some() {
                return Err(TwoFactorError::AlreadyEnabled);
            }
            // The session that started the enrolment may have ended, perhaps because another person
            // had it.
            let begun_by = totp_row.begun_by.ok_or(TwoFactorError::NotEnabled)?;
            if now.ms_since(totp_row.started_at) >= ENROLMENT_MS || !is_live(txn, (user, begun_by))? {
                return Err(TwoFactorError::NotEnabled);
            }
            if let Some(retry_after) = totp_row.throttled(now) {
                return Err(TwoFactorError::Throttled { retry_after });
            }
            let totp = totp_row.totp(user, &sealing)?;
            let checked = totp_row.accept(&totp, &code, now);
            if checked != CodeCheck::Accepted {
                // The count of failures must be stored, so the refusal is the value of the change.
                txn.put(&user, &totp_row);
                return Ok(Err(TwoFactorError::InvalidCode));
            }
            let row = TotpRow { enabled_at: Some(now), recovery: hashes, begun_by: None, ..totp_row };
            txn.put(&user, &row);
            let epoch = end_all(txn, user, None)?;
            let account = read::<UserRow>(txn, &user)?.ok_or(TwoFactorError::UnknownUser)?;
            let session = issue(txn, user, &account, &new, LoginProof { method, second_factor: true }, now);
            audit::record(txn, &Event::by(user, "twofa.enabled").at_ip(new.client.ip), now)?;
            Ok(Ok((session, epoch)))
        })??;
        let (_, ended) = self.end_in_memory(user, None);
        self.apply_epoch(user, epoch, None, &ended);
        Ok((codes, self.logged_in(user, drawn.session, &drawn.new, row)?))
    }

    /// Removes the second factor. Requires the password if the account has one; a wrong one counts
    /// like that of a login. Wrong codes throttle codes only, never recovery codes. Blocks (hash,
    /// commit).
    ///
    /// # Errors
    /// [`TwoFactorError`].
    pub fn disable_totp(
        &self,
        session: &Session,
        password: Option<Password<'_>>,
        factor: SecondFactor<'_>,
        client: &Client,
        now: Timestamp,
    ) -> Result<(), TwoFactorError> {
        let (user, own) = (session.user, session.key());
        let account =
            self.row::<UserRow>(&user).map_err(TwoFactorError::Store)?.ok_or(TwoFactorError::UnknownUser)?;
        let factor = GivenFactor::of(factor);
        if matches!(factor, GivenFactor::Code(_)) {
            // Checked before the hash; the change below checks again.
            let status = self.row::<TotpRow>(&user).map_err(TwoFactorError::Store)?;
            if let Some(retry_after) = status.and_then(|row| row.throttled(now)) {
                return Err(TwoFactorError::Throttled { retry_after });
            }
        }
        if account.password.is_some() {
            let given = password.ok_or(TwoFactorError::InvalidPassword)?;
            let given = GivenPassword { password: given, client, purpose: "2fa disable" };
            match self.check_own_password(session, &account, given, now)? {
                OwnPasswordCheck::Right => {}
                OwnPasswordCheck::Wrong => return Err(TwoFactorError::InvalidPassword),
                OwnPasswordCheck::Throttled(retry_after) => {
                    return Err(TwoFactorError::PasswordThrottled { retry_after });
                }
            }
        }
        let sealing = self.sealing.clone();
        self.change::<Result<(), TwoFactorError>, TwoFactorError>(move |txn| {
            if !is_live(txn, own)? {
                return Err(TwoFactorError::SessionOver);
            }
            Ok(match check(txn, user, &factor, &sealing, now)? {
                CodeCheck::Accepted => {
                    txn.remove::<TotpRow>(&user);
                    audit::record(txn, &Event::by(user, "twofa.disabled"), now)?;
                    Ok(())
                }
                refused => Err(refusal(&refused)),
            })
        })?
    }

    /// Replaces the recovery codes. Requires a code, not a recovery code. Blocks (commit).
    ///
    /// # Errors
    /// [`TwoFactorError`].
    pub fn renew_recovery_codes(
        &self,
        user: UserId,
        code: &str,
        now: Timestamp,
        rng: &mut Entropy,
    ) -> Result<RecoveryCodes, TwoFactorError> {
        let codes = draw_recovery_codes(rng);
        let (factor, sealing, hashes) =
            (GivenFactor::Code(plain_code(code)), self.sealing.clone(), codes.hashes());
        self.change::<Result<(), TwoFactorError>, TwoFactorError>(move |txn| {
            let checked = check(txn, user, &factor, &sealing, now)?;
            if checked != CodeCheck::Accepted {
                return Ok(Err(refusal(&checked)));
            }
            let row = read::<TotpRow>(txn, &user)?.ok_or(TwoFactorError::NotEnabled)?;
            txn.put(&user, &TotpRow { recovery: hashes, ..row });
            Ok(Ok(()))
        })??;
        Ok(codes)
    }
}

fn refusal(checked: &CodeCheck) -> TwoFactorError {
    match checked {
        CodeCheck::Accepted | CodeCheck::Wrong => TwoFactorError::InvalidCode,
        CodeCheck::NotEnabled => TwoFactorError::NotEnabled,
        CodeCheck::AlreadyUsed(retry_after) => TwoFactorError::AlreadyUsed { retry_after: *retry_after },
        CodeCheck::Throttled(retry_after) => TwoFactorError::Throttled { retry_after: *retry_after },
    }
}
