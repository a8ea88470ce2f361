//! Second factor: time-based codes (RFC 6238) and recovery codes (docs/specification.md D3).
//!
//! Codes use SHA-1, six digits, steps of 30 seconds, a skew of one step in both directions, and a
//! secret of 160 bits. The `totp-rs` crate returns the step of a code. This module accepts no step
//! twice; the change that the code authorises stores the step.

use std::time::Duration;

use data_encoding::{BASE32_NOPAD, Encoding, Specification};
use totp_rs::{Algorithm, Builder, Totp};

use crate::entropy::Entropy;
use crate::kv::Txn;
use crate::model::Timestamp;

use crate::identity::Identity;
use crate::identity::audit::{self, Event};
use crate::identity::auth::login::{LoggedIn, Password, SecondFactor};
use crate::identity::auth::reauth::OwnPasswordCheck;
use crate::identity::auth::session::{Client, LoginProof, Session, end_all, is_live, issue};
use crate::identity::tables::id::{Secret, SecretHash, UserId};
use crate::identity::tables::master::{SealedFor, SealingKey};
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
    /// Time until it must be confirmed: 600 s.
    pub expires_in: Duration,
}

/// Ten recovery codes, shown once.
#[derive(Debug)]
pub struct RecoveryCodes(pub Vec<Secret>);

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
const STEP_S: u64 = 30;
const SECRET_BYTES: usize = 20;
const RECOVERY_CODES: usize = 10;
/// Limits of wrong codes of one account: five in a quarter of an hour, twenty in a day. 20 x 3 /
/// 10^6 is 0.006 % a day.
const FAILURES: [(usize, i64); 2] = [(5, 15 * 60 * 1_000), (20, 24 * 3_600 * 1_000)];

impl TotpRow {
    /// Returns the time for which no code is accepted, if any.
    fn throttled(&self, now: Timestamp) -> Option<Duration> {
        FAILURES.into_iter().find_map(|(count, window_ms)| {
            let oldest = self.failures.len().checked_sub(count).and_then(|at| self.failures.get(at))?;
            let left_ms = oldest.plus_ms(window_ms).ms_since(now);
            // Rounded up to whole seconds. A clock that was set back must not extend the wait
            // beyond the window.
            (left_ms > 0).then(|| Duration::from_secs(left_ms.min(window_ms).unsigned_abs().div_ceil(1_000)))
        })
    }

    fn fail(&mut self, now: Timestamp) {
        self.failures.push(now);
        let keep = self.failures.len().saturating_sub(20);
        self.failures.drain(..keep);
    }

    fn totp(&self, user: UserId, sealing: &SealingKey) -> Result<Totp, StoreError> {
        let secret = sealing.open(sealed_for(&user), &self.sealed)?;
        totp(secret, "-").ok_or(StoreError::Inconsistent("a second factor with an impossible secret"))
    }

    /// Checks a code. Records a wrong code, and the step of an accepted one.
    fn accept(&mut self, totp: &Totp, code: &str, now: Timestamp) -> CodeCheck {
        let Ok(now_s) = u64::try_from(now.as_s()) else { return CodeCheck::Wrong };
        match totp.check(code, now_s) {
            None => {
                self.fail(now);
                CodeCheck::Wrong
            }
            Some(step) if step <= self.last_step => {
                let next_ms = i64::try_from(self.last_step.saturating_add(1).saturating_mul(STEP_S * 1_000))
                    .unwrap_or(i64::MAX);
                let wait_ms = Timestamp::from_ms(next_ms).ms_since(now).clamp(1, 90_000);
                CodeCheck::AlreadyUsed(Duration::from_millis(wait_ms.unsigned_abs()))
            }
            Some(step) => {
                self.last_step = step;
                CodeCheck::Accepted
            }
        }
    }
}

fn sealed_for(user: &UserId) -> SealedFor<'_> {
    SealedFor { kind: "totp", id: user.as_bytes() }
}

fn totp(secret: Vec<u8>, account: &str) -> Option<Totp> {
    let builder =
        Builder::new().with_algorithm(Algorithm::SHA1).with_digits(6).with_skew(1).with_step_duration(STEP_S);
    // A colon would end the issuer in the URL.
    let account = account.replace(':', "_");
    builder.with_secret(secret).with_issuer(Some("promlet")).with_account_name(account).build().ok()
}

/// A second factor in normalised, owned form, for a change.
#[derive(Clone)]
pub(in crate::identity) enum GivenFactor {
    Code(String),
    Recovery(SecretHash),
}

impl GivenFactor {
    pub(in crate::identity) fn of(given: SecondFactor<'_>) -> GivenFactor {
        match given {
            SecondFactor::Code(code) => GivenFactor::Code(plain_code(code)),
            SecondFactor::RecoveryCode(code) => GivenFactor::Recovery(recovery_hash(code)),
        }
    }
}

/// Removes the spaces that apps show. Truncates the text, because no code is longer.
fn plain_code(code: &str) -> String {
    code.chars().filter(|c| !c.is_whitespace()).take(16).collect()
}

/// Returns the encoding of recovery codes: Crockford's base32 in lower case; codes are written in
/// groups of four.
fn recovery_encoding() -> Encoding {
    let mut specification = Specification::new();
    specification.symbols.push_str("0123456789abcdefghjkmnpqrstvwxyz");
    specification.encoding().expect("32 distinct ASCII symbols")
}

/// Hashes a recovery code as people type it: in any case, with or without dashes, `o` for 0, `i`
/// and `l` for 1.
fn recovery_hash(code: &str) -> SecretHash {
    let plain =
        code.chars().filter(|c| c.is_ascii_alphanumeric()).take(64).map(|c| match c.to_ascii_lowercase() {
            'o' => '0',
            'i' | 'l' => '1',
            c => c,
        });
    SecretHash::of(&plain.collect::<String>())
}

fn draw_recovery_codes(rng: &mut Entropy) -> RecoveryCodes {
    let code = |_| {
        let bytes: [u8; 15] = rng.bytes();
        let plain = recovery_encoding().encode(&bytes);
        let groups: Vec<&str> = (0..24).step_by(4).filter_map(|at| plain.get(at..at + 4)).collect();
        Secret::new(groups.join("-"))
    };
    RecoveryCodes((0..RECOVERY_CODES).map(code).collect())
}

impl RecoveryCodes {
    fn hashes(&self) -> Vec<SecretHash> {
        self.0.iter().map(|code| recovery_hash(code.expose())).collect()
    }
}

/// The result of checking a code.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::identity) enum CodeCheck {
    /// The code is right and now used.
    Accepted,
    /// The code is wrong; it was counted.
    Wrong,
    /// The code is right, but its step was accepted before. The time until the next code begins.
    AlreadyUsed(Duration),
    /// The code was not checked. The time until the next check.
    Throttled(Duration),
    /// The account has no second factor.
    NotEnabled,
}

/// Returns whether codes of an account are not accepted at the moment.
pub(super) fn is_throttled(txn: &Txn<'_>, user: UserId, now: Timestamp) -> Result<bool, StoreError> {
    Ok(read::<TotpRow>(txn, &user)?.is_some_and(|row| row.throttled(now).is_some()))
}

/// Checks a factor within a change and stores the consequences.
pub(in crate::identity) fn check(
    txn: &mut Txn<'_>,
    user: UserId,
    factor: &GivenFactor,
    sealing: &SealingKey,
    now: Timestamp,
) -> Result<CodeCheck, StoreError> {
    let Some(mut row) = read::<TotpRow>(txn, &user)?.filter(|row| row.enabled_at.is_some()) else {
        return Ok(CodeCheck::NotEnabled);
    };
    let checked = match factor {
        GivenFactor::Code(code) => {
            if let Some(wait) = row.throttled(now) {
                return Ok(CodeCheck::Throttled(wait));
            }
            let totp = row.totp(user, sealing)?;
            row.accept(&totp, code, now)
        }
        // Recovery codes are never throttled: 120 random bits cannot be guessed, and a flood of
        // wrong codes must not lock the owner out. The tries of a pending login bound the work.
        GivenFactor::Recovery(hash) => match row.recovery.iter().position(|left| left == hash) {
            Some(at) => {
                row.recovery.remove(at);
                audit::record(txn, &Event::by(user, "recovery_code.used"), now)?;
                CodeCheck::Accepted
            }
            None => CodeCheck::Wrong,
        },
    };
    txn.put(&user, &row);
    Ok(checked)
}

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

    /// Starts an enrolment, which ends with the session. Replaces an unconfirmed one. Blocks
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
            match self.check_own_password(session, &account, given, (client, "2fa disable"), now)? {
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
