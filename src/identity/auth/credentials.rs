//! Credentials as typed. They print as `***`.

/// A password as typed. It prints as `***`.
#[derive(Clone, Copy)]
pub struct Password<'a>(pub &'a str);

impl std::fmt::Debug for Password<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

/// Evidence of the second factor.
#[derive(Clone, Copy)]
pub enum SecondFactor<'a> {
    /// Six digits; spaces are removed.
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
