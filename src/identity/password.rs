//! Password hashing and policy (API.md D2).

/// What one hash costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Argon2Cost {
    /// Memory, KiB.
    pub memory_kib: u32,
    /// Passes over it.
    pub passes: u32,
    /// Lanes.
    pub lanes: u32,
}

impl Default for Argon2Cost {
    /// OWASP's minimum: 19,456 KiB, 2 passes, 1 lane.
    fn default() -> Argon2Cost {
        Argon2Cost { memory_kib: 19_456, passes: 2, lanes: 1 }
    }
}

/// Shortest password, characters.
pub const PASSWORD_CHARS_MIN: usize = 8;
/// Longest password, bytes.
pub const PASSWORD_BYTES_MAX: usize = 1_024;

/// Why a new password is refused: `weak_password`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WeakPassword {
    /// Fewer than eight characters.
    #[error("a password has at least {PASSWORD_CHARS_MIN} characters")]
    TooShort,
    /// More than 1,024 bytes.
    #[error("a password has at most {PASSWORD_BYTES_MAX} bytes")]
    TooLong,
    /// Among the most common ones.
    #[error("this password is among the most common ones")]
    Common,
    /// The address or the organisation's name.
    #[error("a password may not be the address or the organisation's name")]
    Personal,
}
