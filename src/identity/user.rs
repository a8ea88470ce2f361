//! An account and its address.

use serde::{Deserialize, Serialize};

use crate::kv::{Record, Txn, decode_body};
use crate::model::Timestamp;

use super::address_proof::AddressProof;
use super::name::is_forbidden;
use super::store::read;
use super::totp::TotpRow;
use super::{Identity, StoreError, UserId};

/// A mail address as accounts know it: trimmed, lower case, at most 254 bytes. Not checked to exist.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Email(Box<str>);

/// A text that is no mail address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "not a mail address: one @, text on both sides, no spaces and nothing that is not seen, at most 254 bytes"
)]
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
            c.is_whitespace()
                || is_forbidden(c)
                || matches!(c, '<' | '>' | ',' | ';' | '"' | '\\' | '(' | ')')
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

/// An account as stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct UserRow {
    pub(super) email: String,
    pub(super) name: String,
    pub(super) is_admin: bool,
    pub(super) disabled: bool,
    /// PHC string.
    pub(super) password: Option<String>,
    pub(super) created_at: Timestamp,
    /// Sessions made under an older number are dead: ends any number of them in one row.
    pub(super) sessions_epoch: u32,
    /// Since version 2.
    pub(super) address_proof: AddressProof,
}

/// Version 1 of [`UserRow`].
#[derive(Deserialize)]
struct UserRowV1 {
    email: String,
    name: String,
    is_admin: bool,
    disabled: bool,
    password: Option<String>,
    created_at: Timestamp,
    sessions_epoch: u32,
}

impl Record for UserRow {
    const TABLE: u8 = 0x01;
    const KIND: u8 = 0x01;
    const VERSION: u8 = 2;
    type Key = UserId;

    fn from_older(version: u8, body: &[u8]) -> Result<UserRow, String> {
        let old: UserRowV1 = match version {
            1 => decode_body(body)?,
            _ => return Err(format!("version {version} of an account")),
        };
        Ok(UserRow {
            email: old.email,
            name: old.name,
            is_admin: old.is_admin,
            disabled: old.disabled,
            password: old.password,
            created_at: old.created_at,
            sessions_epoch: old.sessions_epoch,
            address_proof: AddressProof::Unknown,
        })
    }
}

/// Whose an address is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct AddressRow(pub(super) UserId);

impl Record for AddressRow {
    const TABLE: u8 = 0x02;
    const KIND: u8 = 0x02;
    const VERSION: u8 = 1;
    type Key = String;
}

impl UserRow {
    /// What its owner may see.
    pub(super) fn view(self, id: UserId, twofa_enabled: bool) -> User {
        User {
            id,
            email: Email(self.email.into()),
            name: self.name,
            is_admin: self.is_admin,
            twofa_enabled,
            has_password: self.password.is_some(),
            disabled: self.disabled,
            created_at: self.created_at,
        }
    }
}

/// An account that may log in; `None` when it is gone or disabled.
pub(super) fn active(txn: &Txn<'_>, user: UserId) -> Result<Option<UserRow>, StoreError> {
    Ok(read::<UserRow>(txn, &user)?.filter(|row| !row.disabled))
}

impl Identity {
    /// An account by its id.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn user(&self, user: UserId) -> Result<Option<User>, StoreError> {
        let Some(row) = self.row::<UserRow>(&user)? else { return Ok(None) };
        let twofa_enabled = self.row::<TotpRow>(&user)?.is_some_and(|totp| totp.enabled_at.is_some());
        Ok(Some(row.view(user, twofa_enabled)))
    }

    /// An account by its address.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn user_by_email(&self, email: &Email) -> Result<Option<User>, StoreError> {
        match self.row::<AddressRow>(&email.as_str().to_owned())? {
            Some(AddressRow(user)) => self.user(user),
            None => Ok(None),
        }
    }

    /// All accounts, by id: for the command line.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn users(&self) -> Result<Vec<User>, StoreError> {
        let rows = self.rows::<UserRow>(&())?;
        rows.into_iter()
            .map(|(id, row)| {
                let twofa_enabled = self.row::<TotpRow>(&id)?.is_some_and(|totp| totp.enabled_at.is_some());
                Ok(row.view(id, twofa_enabled))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_trimmed_folded_and_checked() {
        let email = |text: &str| Email::parse(text).map(|e| e.as_str().to_owned());
        assert_eq!(email("  Ada@Example.ORG "), Ok("ada@example.org".into()));
        assert_eq!(email("a@b"), Ok("a@b".into()));
        for bad in [
            "",
            "@",
            "a@",
            "@b",
            "a",
            "a@b@c",
            "a b@c",
            "a@b\nTo: c@d",
            "<a@b>",
            "a\u{200b}@b",
            "a@b\u{202e}",
            "a,b@c",
            &format!("{}@b", "a".repeat(253)),
        ] {
            assert_eq!(email(bad), Err(EmailError), "{bad:?}");
        }
    }
}
