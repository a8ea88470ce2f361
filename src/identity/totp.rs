//! Second factor: time-based codes (RFC 6238) and recovery codes (docs/specification.md D3).
//!
//! SHA-1, six digits, 30 seconds, one step of skew either way, a secret of 160 bits. The crate says which step a code
//! belongs to; that no step is accepted twice is our rule, kept in the change that the code opens.

use std::time::Duration;

use data_encoding::{BASE32_NOPAD, Encoding, Specification};
use serde::{Deserialize, Serialize};
use totp_rs::{Algorithm, Builder, Totp};

use crate::entropy::Entropy;
use crate::kv::{Record, Txn, decode_body};
use crate::model::Timestamp;

use super::audit::{self, Event};
use super::master::{SealedFor, SealingKey};
use super::reauth::OwnPassword;
use super::session::{Proof, end_all, issue, stands};
use super::store::read;
use super::user::UserRow;
use super::{
    Client, Identity, LoggedIn, Password, SecondFactor, Secret, SecretHash, Session, StoreError, UserId,
};

/// What an authenticator app needs.
#[derive(Debug)]
pub struct Enrolment {
    /// The secret in base32, to be typed.
    pub secret: Secret,
    /// `otpauth://...`, to be scanned.
    pub otpauth_url: Secret,
    /// Until it must be confirmed: 600 s.
    pub expires_in: Duration,
}

/// Ten codes, shown once.
#[derive(Debug)]
pub struct RecoveryCodes(pub Vec<Secret>);

/// Whether an account has a second factor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TwoFactorStatus {
    /// It is asked for at login.
    pub enabled: bool,
    /// Since when.
    pub enabled_at: Option<Timestamp>,
    /// Recovery codes not used yet.
    pub recovery_codes_left: u8,
}

/// Why a change of the second factor was refused.
#[derive(Debug, thiserror::Error)]
pub enum TwoFactorError {
    /// `twofa_already_enabled`.
    #[error("a second factor is already enabled")]
    AlreadyEnabled,
    /// `twofa_not_enabled`: nothing enabled, or nothing to confirm.
    #[error("no second factor is enabled or waiting for its first code")]
    NotEnabled,
    /// `invalid_code`.
    #[error("wrong code")]
    InvalidCode,
    /// `code_already_used`.
    #[error("this code was already used, wait for the next one")]
    AlreadyUsed {
        /// Until the next code begins.
        retry_after: Duration,
    },
    /// `twofa_throttled`.
    #[error("too many wrong codes, try again in {} s", retry_after.as_secs())]
    Throttled {
        /// Until an attempt will be looked at.
        retry_after: Duration,
    },
    /// `login_throttled`.
    #[error("too many wrong passwords, try again in {} s", retry_after.as_secs())]
    PasswordThrottled {
        /// Until a password will be looked at.
        retry_after: Duration,
    },
    /// `invalid_credentials`: the account has a password and this is not it.
    #[error("the password is wrong, or was not sent")]
    InvalidPassword,
    /// The account is gone.
    #[error("no such account")]
    UnknownUser,
    /// The session ended meanwhile: `session_invalid`.
    #[error("the session is over")]
    SessionOver,
    /// `storage_degraded`.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// An enrolment waits this long for its first code.
const ENROLMENT_MS: i64 = 10 * 60 * 1_000;
const STEP_S: u64 = 30;
const SECRET_BYTES: usize = 20;
const RECOVERY_CODES: usize = 10;
/// Wrong codes of one account: five in a quarter of an hour, twenty in a day. 20 x 3 / 10^6 is 0.006 % a day.
const FAILURES: [(usize, i64); 2] = [(5, 15 * 60 * 1_000), (20, 24 * 3_600 * 1_000)];

/// A second factor as stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct TotpRow {
    /// 20 bytes, sealed for the user.
    pub(super) sealed: Vec<u8>,
    pub(super) started_at: Timestamp,
    /// `None` until the first code.
    pub(super) enabled_at: Option<Timestamp>,
    /// The newest step that was accepted; this and older ones are refused.
    pub(super) last_step: u64,
    /// Of the codes not used yet.
    pub(super) recovery: Vec<SecretHash>,
    /// Wrong codes, at most twenty, oldest first.
    pub(super) failures: Vec<Timestamp>,
    /// The session that began it, with which an enrolment dies; since version 2.
    pub(super) begun_by: Option<SecretHash>,
}

/// Version 1 of [`TotpRow`].
#[derive(Deserialize)]
struct TotpRowV1 {
    sealed: Vec<u8>,
    started_at: Timestamp,
    enabled_at: Option<Timestamp>,
    last_step: u64,
    recovery: Vec<SecretHash>,
    failures: Vec<Timestamp>,
}

impl Record for TotpRow {
    const TABLE: u8 = 0x03;
    const KIND: u8 = 0x03;
    const VERSION: u8 = 2;
    type Key = UserId;

    fn from_older(version: u8, body: &[u8]) -> Result<TotpRow, String> {
        if version != 1 {
            return Err(format!("version {version} of a second factor"));
        }
        let old: TotpRowV1 = decode_body(body)?;
        Ok(TotpRow {
            sealed: old.sealed,
            started_at: old.started_at,
            enabled_at: old.enabled_at,
            last_step: old.last_step,
            recovery: old.recovery,
            failures: old.failures,
            begun_by: None,
        })
    }
}

impl TotpRow {
    /// How long no code is looked at, if so.
    fn throttled(&self, now: Timestamp) -> Option<Duration> {
        FAILURES.into_iter().find_map(|(count, window_ms)| {
            let oldest = self.failures.len().checked_sub(count).and_then(|at| self.failures.get(at))?;
            let left_ms = oldest.plus_ms(window_ms).ms_since(now);
            // Rounded up to whole seconds; a clock set back must not stretch the wait beyond the window.
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

    /// The step a code belongs to, accepted or refused as used.
    fn accept(&mut self, totp: &Totp, code: &str, now: Timestamp) -> Checked {
        let Ok(now_s) = u64::try_from(now.as_s()) else { return Checked::Wrong };
        match totp.check(code, now_s) {
            None => {
                self.fail(now);
                Checked::Wrong
            }
            Some(step) if step <= self.last_step => {
                let next_ms = i64::try_from(self.last_step.saturating_add(1).saturating_mul(STEP_S * 1_000))
                    .unwrap_or(i64::MAX);
                let wait_ms = Timestamp::from_ms(next_ms).ms_since(now).clamp(1, 90_000);
                Checked::AlreadyUsed(Duration::from_millis(wait_ms.unsigned_abs()))
            }
            Some(step) => {
                self.last_step = step;
                Checked::Accepted
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

/// A second factor as a change takes it: owned, normalised.
#[derive(Clone)]
pub(super) enum GivenFactor {
    Code(String),
    Recovery(SecretHash),
}

impl GivenFactor {
    pub(super) fn of(given: SecondFactor<'_>) -> GivenFactor {
        match given {
            SecondFactor::Code(code) => GivenFactor::Code(plain_code(code)),
            SecondFactor::RecoveryCode(code) => GivenFactor::Recovery(recovery_hash(code)),
        }
    }
}

/// Without the spaces that apps show; cut, since nothing longer is a code.
fn plain_code(code: &str) -> String {
    code.chars().filter(|c| !c.is_whitespace()).take(16).collect()
}

/// Crockford's digits in groups of four, lower case.
fn recovery_encoding() -> Encoding {
    let mut specification = Specification::new();
    specification.symbols.push_str("0123456789abcdefghjkmnpqrstvwxyz");
    specification.encoding().expect("32 distinct ASCII symbols")
}

/// As people type it: any case, with or without dashes, `o` for 0, `i` and `l` for 1.
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

/// What a code turned out to be.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Checked {
    /// Right, and used from here on.
    Accepted,
    /// Counted.
    Wrong,
    /// Right, but its step was accepted before.
    AlreadyUsed(Duration),
    /// Not looked at.
    Throttled(Duration),
    /// There is no second factor.
    NotEnabled,
}

/// Whether no code of an account is looked at for now.
pub(super) fn is_throttled(txn: &Txn<'_>, user: UserId, now: Timestamp) -> Result<bool, StoreError> {
    Ok(read::<TotpRow>(txn, &user)?.is_some_and(|row| row.throttled(now).is_some()))
}

/// Checks a factor in a change and notes what follows from it.
pub(super) fn check(
    txn: &mut Txn<'_>,
    user: UserId,
    factor: &GivenFactor,
    sealing: &SealingKey,
    now: Timestamp,
) -> Result<Checked, StoreError> {
    let Some(mut row) = read::<TotpRow>(txn, &user)?.filter(|row| row.enabled_at.is_some()) else {
        return Ok(Checked::NotEnabled);
    };
    let checked = match factor {
        GivenFactor::Code(code) => {
            if let Some(wait) = row.throttled(now) {
                return Ok(Checked::Throttled(wait));
            }
            let totp = row.totp(user, sealing)?;
            row.accept(&totp, code, now)
        }
        // Never throttled: 120 random bits cannot be guessed, and a flood of wrong codes must not lock the owner out.
        // The tries of a pending login bound the work.
        GivenFactor::Recovery(hash) => match row.recovery.iter().position(|left| left == hash) {
            Some(at) => {
                row.recovery.remove(at);
                audit::note(txn, &Event::by(user, "recovery_code.used"), now)?;
                Checked::Accepted
            }
            None => Checked::Wrong,
        },
    };
    txn.put(&user, &row);
    Ok(checked)
}

impl Identity {
    /// Whether a second factor is enabled.
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

    /// Begins enrolment, which lasts as long as the session; replaces an unconfirmed one. Blocks (commit).
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
            // Failures stay, or enrolling again would be a way to guess on.
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

    /// Confirms enrolment with its first code, consumes that code, ends all sessions and answers with a new one. Blocks.
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
            // Whoever was logged out meanwhile gets no new session for it.
            if !stands(txn, own)? {
                return Err(TwoFactorError::SessionOver);
            }
            let mut totp_row = read::<TotpRow>(txn, &user)?.ok_or(TwoFactorError::NotEnabled)?;
            if totp_row.enabled_at.is_some() {
                return Err(TwoFactorError::AlreadyEnabled);
            }
            // Of a session that was ended since, perhaps because somebody else had it.
            let begun_by = totp_row.begun_by.ok_or(TwoFactorError::NotEnabled)?;
            if now.ms_since(totp_row.started_at) >= ENROLMENT_MS || !stands(txn, (user, begun_by))? {
                return Err(TwoFactorError::NotEnabled);
            }
            if let Some(retry_after) = totp_row.throttled(now) {
                return Err(TwoFactorError::Throttled { retry_after });
            }
            let totp = totp_row.totp(user, &sealing)?;
            let checked = totp_row.accept(&totp, &code, now);
            if checked != Checked::Accepted {
                // Stored, though it is a refusal: the count is the value of the change.
                txn.put(&user, &totp_row);
                return Ok(Err(TwoFactorError::InvalidCode));
            }
            let row = TotpRow { enabled_at: Some(now), recovery: hashes, begun_by: None, ..totp_row };
            txn.put(&user, &row);
            let epoch = end_all(txn, user, None)?;
            let account = read::<UserRow>(txn, &user)?.ok_or(TwoFactorError::UnknownUser)?;
            let session = issue(txn, user, &account, &new, Proof { method, second_factor: true }, now);
            audit::note(txn, &Event::by(user, "twofa.enabled").at_ip(new.client.ip), now)?;
            Ok(Ok((session, epoch)))
        })??;
        let (_, ended) = self.kill_in_memory(user, None);
        self.settle_epoch(user, epoch, None, &ended);
        Ok((codes, self.logged_in(user, drawn.session, &drawn.new, row)?))
    }

    /// Removes the second factor. Needs the password where the account has one; a wrong one counts like that of a login.
    /// Wrong codes throttle codes alone, never recovery codes. Blocks (hash, commit).
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
            // Before the hash; the change below looks again.
            let status = self.row::<TotpRow>(&user).map_err(TwoFactorError::Store)?;
            if let Some(retry_after) = status.and_then(|row| row.throttled(now)) {
                return Err(TwoFactorError::Throttled { retry_after });
            }
        }
        if account.password.is_some() {
            let given = password.ok_or(TwoFactorError::InvalidPassword)?;
            match self.check_own_password(session, &account, given, (client, "2fa disable"), now)? {
                OwnPassword::Right => {}
                OwnPassword::Wrong => return Err(TwoFactorError::InvalidPassword),
                OwnPassword::Throttled(retry_after) => {
                    return Err(TwoFactorError::PasswordThrottled { retry_after });
                }
            }
        }
        let sealing = self.sealing.clone();
        self.change::<Result<(), TwoFactorError>, TwoFactorError>(move |txn| {
            if !stands(txn, own)? {
                return Err(TwoFactorError::SessionOver);
            }
            Ok(match check(txn, user, &factor, &sealing, now)? {
                Checked::Accepted => {
                    txn.remove::<TotpRow>(&user);
                    audit::note(txn, &Event::by(user, "twofa.disabled"), now)?;
                    Ok(())
                }
                refused => Err(refusal(&refused)),
            })
        })?
    }

    /// Replaces the recovery codes; needs a code, not a recovery code. Blocks (commit).
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
            if checked != Checked::Accepted {
                return Ok(Err(refusal(&checked)));
            }
            let row = read::<TotpRow>(txn, &user)?.ok_or(TwoFactorError::NotEnabled)?;
            txn.put(&user, &TotpRow { recovery: hashes, ..row });
            Ok(Ok(()))
        })??;
        Ok(codes)
    }
}

fn refusal(checked: &Checked) -> TwoFactorError {
    match checked {
        Checked::Accepted | Checked::Wrong => TwoFactorError::InvalidCode,
        Checked::NotEnabled => TwoFactorError::NotEnabled,
        Checked::AlreadyUsed(retry_after) => TwoFactorError::AlreadyUsed { retry_after: *retry_after },
        Checked::Throttled(retry_after) => TwoFactorError::Throttled { retry_after: *retry_after },
    }
}
