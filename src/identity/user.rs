//! An account and its address.

use crate::model::Timestamp;

use super::UserId;

/// A mail address as accounts know it: trimmed, lower case, at most 254 bytes. Not checked to exist.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Email(Box<str>);

/// A text that is no mail address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a mail address: one @, text on both sides, no spaces, at most 254 bytes")]
pub struct EmailError;

impl Email {
    /// Trims and folds `text`.
    ///
    /// # Errors
    /// [`EmailError`] where it cannot be an address.
    pub fn parse(text: &str) -> Result<Email, EmailError> {
        let text = text.trim();
        if text.len() > 254 {
            return Err(EmailError);
        }
        let folded = text.to_lowercase();
        let (local, domain) = folded.split_once('@').ok_or(EmailError)?;
        let bad = |c: char| {
            c.is_whitespace() || c.is_control() || matches!(c, '<' | '>' | ',' | ';' | '"' | '\\' | '(' | ')')
        };
        if local.is_empty()
            || domain.is_empty()
            || domain.contains('@')
            || folded.len() > 254
            || folded.contains(bad)
        {
            return Err(EmailError);
        }
        Ok(Email(folded.into()))
    }

    /// The address.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for Email {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// An account, as its owner may see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// Its name in the API.
    pub id: UserId,
    /// Its address; unique.
    pub email: Email,
    /// What it wants to be called; may be empty.
    pub name: String,
    /// Administrator of this instance; no implicit access to organisations.
    pub is_admin: bool,
    /// A second factor is asked for at login.
    pub twofa_enabled: bool,
    /// A password is set.
    pub has_password: bool,
    /// May not log in.
    pub disabled: bool,
    /// When it came to be.
    pub created_at: Timestamp,
}
