//! Accounts and their addresses.

use serde::{Deserialize, Serialize};

use crate::kv::{Record, Txn, decode_body};
use crate::model::Timestamp;

use crate::identity::tables::id::UserId;
use crate::identity::tables::name::is_forbidden;
use crate::identity::tables::store::{StoreError, read};

/// A mail address in normal form: trimmed, lower case, at most 254 bytes. Its existence is not
/// checked.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Email(Box<str>);

/// A text that is not a mail address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "not a mail address: one @, text on both sides, no spaces or invisible characters, at most 254 bytes"
)]
pub struct EmailError;

impl Email {
    /// Trims and folds `text`.
    ///
    /// # Errors
    /// [`EmailError`] if it cannot be an address.
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

    /// Returns the address.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for Email {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// An account, as its owner sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The public id.
    pub id: UserId,
    /// The address, which is unique.
    pub email: Email,
    /// Display name; may be empty.
    pub name: String,
    /// Whether it administers this instance; this gives no access to organisations.
    pub is_admin: bool,
    /// Whether a login requires a second factor.
    pub twofa_enabled: bool,
    /// Whether a password is set.
    pub has_password: bool,
    /// Whether it is disabled and so cannot log in.
    pub disabled: bool,
    /// Time of creation.
    pub created_at: Timestamp,
}

/// A stored account.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::identity) struct UserRow {
    pub(in crate::identity) email: String,
    pub(in crate::identity) name: String,
    pub(in crate::identity) is_admin: bool,
    pub(in crate::identity) disabled: bool,
    /// PHC string of the hash.
    pub(in crate::identity) password: Option<String>,
    pub(in crate::identity) created_at: Timestamp,
    /// Sessions with a lower number have ended; one write ends any number of them.
    pub(in crate::identity) sessions_epoch: u32,
    /// The field exists since version 2.
    pub(in crate::identity) address_proof: AddressProof,
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

/// The evidence that an account's owner reads mail to its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::identity) enum AddressProof {
    // Variants are stored by their index: append new ones.
    /// The account was created by a version that did not record proofs, so its creator may have
    /// planted it: treated as `Missing`.
    Unknown,
    /// No holder of the account has shown that they read mail sent to the address.
    Missing,
    /// A link mailed to the address was used, a trusted provider vouched for it, or the operator
    /// created the account.
    Given,
}

impl AddressProof {
    /// Returns `Given` or `Missing`.
    pub(in crate::identity) const fn from_bool(given: bool) -> AddressProof {
        if given { AddressProof::Given } else { AddressProof::Missing }
    }
}

/// Maps an address to its account.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::identity) struct AddressRow(pub(in crate::identity) UserId);

impl Record for AddressRow {
    const TABLE: u8 = 0x02;
    const KIND: u8 = 0x02;
    const VERSION: u8 = 1;
    type Key = String;
}

impl UserRow {
    /// Returns the owner's view of the account.
    pub(in crate::identity) fn view(self, id: UserId, twofa_enabled: bool) -> User {
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

/// Returns an account that may log in; `None` if it is deleted or disabled.
pub(in crate::identity) fn active(txn: &Txn<'_>, user: UserId) -> Result<Option<UserRow>, StoreError> {
    Ok(read::<UserRow>(txn, &user)?.filter(|row| !row.disabled))
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
