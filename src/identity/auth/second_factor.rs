//! Checking second factors within a change: time-based codes (RFC 6238) and recovery codes
//! (docs/specification.md D3).
//!
//! Codes use SHA-1, six digits, steps of 30 seconds, a skew of one step in both directions, and a
//! secret of 160 bits. The `totp-rs` crate returns the step of a code. This module accepts no step
//! twice; the change that the code authorises stores the step.

use std::time::Duration;

use data_encoding::{Encoding, Specification};
use totp_rs::{Algorithm, Builder, Totp};

use crate::entropy::Entropy;
use crate::kv::Txn;
use crate::model::Timestamp;

use crate::identity::audit::{self, Event};
use crate::identity::auth::credentials::SecondFactor;
use crate::identity::tables::id::{Secret, SecretHash, UserId};
use crate::identity::tables::master::{SealedFor, SealingKey};
use crate::identity::tables::store::{StoreError, read};
use crate::identity::tables::totp::TotpRow;

pub(super) const STEP_S: u64 = 30;
const RECOVERY_CODES: usize = 10;
/// Limits of wrong codes of one account: five in a quarter of an hour, twenty in a day. 20 x 3 /
/// 10^6 is 0.006 % a day.
const FAILURES: [(usize, i64); 2] = [(5, 15 * 60 * 1_000), (20, 24 * 3_600 * 1_000)];

/// Ten recovery codes, shown once.
#[derive(Debug)]
pub struct RecoveryCodes(pub Vec<Secret>);

impl TotpRow {
    /// Returns the time for which no code is accepted, if any.
    pub(super) fn throttled(&self, now: Timestamp) -> Option<Duration> {
        FAILURES.into_iter().find_map(|(count, window_ms)| {
            let oldest = self.failures.len().checked_sub(count).and_then(|at| self.failures.get(at))?;
            let left_ms = oldest.plus_ms(window_ms).ms_since(now);
            // Rounded up to whole seconds. A clock that was set back must not extend the wait
            // beyond the window.
            (left_ms > 0).then(|| Duration::from_secs(left_ms.min(window_ms).unsigned_abs().div_ceil(1_000)))
        })
    }

    pub(super) fn fail(&mut self, now: Timestamp) {
        self.failures.push(now);
        let keep = self.failures.len().saturating_sub(20);
        self.failures.drain(..keep);
    }

    pub(super) fn totp(&self, user: UserId, sealing: &SealingKey) -> Result<Totp, StoreError> {
        let secret = sealing.open(sealed_for(&user), &self.sealed)?;
        totp(secret, "-").ok_or(StoreError::Inconsistent("a second factor with an impossible secret"))
    }

    /// Checks a code. Records a wrong code, and the step of an accepted one.
    pub(super) fn accept(&mut self, totp: &Totp, code: &str, now: Timestamp) -> CodeCheck {
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

pub(super) fn sealed_for(user: &UserId) -> SealedFor<'_> {
    SealedFor { kind: "totp", id: user.as_bytes() }
}

pub(super) fn totp(secret: Vec<u8>, account: &str) -> Option<Totp> {
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
pub(super) fn plain_code(code: &str) -> String {
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

pub(super) fn draw_recovery_codes(rng: &mut Entropy) -> RecoveryCodes {
    let code = |_| {
        let bytes: [u8; 15] = rng.bytes();
        let plain = recovery_encoding().encode(&bytes);
        let groups: Vec<&str> = (0..24).step_by(4).filter_map(|at| plain.get(at..at + 4)).collect();
        Secret::new(groups.join("-"))
    };
    RecoveryCodes((0..RECOVERY_CODES).map(code).collect())
}

impl RecoveryCodes {
    pub(super) fn hashes(&self) -> Vec<SecretHash> {
        self.0.iter().map(|code| recovery_hash(code.expose())).collect()
    }
}

/// The result of checking a code.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::identity) enum CodeCheck {
    /// The code is correct, and is used from now on.
    Accepted,
    /// The code is wrong; it was counted.
    Wrong,
    /// The code is correct, but its step was accepted before. The time until the next code begins.
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
