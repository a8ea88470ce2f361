//! Second factor: time-based codes (RFC 6238) and recovery codes (API.md D3).

use std::time::Duration;

use super::{Secret, StoreError};

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
    pub enabled_at: Option<crate::model::Timestamp>,
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
    /// `invalid_credentials`: the account has a password and this is not it.
    #[error("wrong password")]
    InvalidPassword,
    /// The account is gone.
    #[error("no such account")]
    UnknownUser,
    /// `storage_degraded`.
    #[error(transparent)]
    Store(#[from] StoreError),
}
