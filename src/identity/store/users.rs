//! Reads of accounts.

use crate::identity::Identity;
use crate::identity::tables::id::UserId;
use crate::identity::tables::store::StoreError;
use crate::identity::tables::totp::TotpRow;
use crate::identity::tables::user::{AddressRow, Email, User, UserRow};

impl Identity {
    /// Returns an account by its id.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn user(&self, user: UserId) -> Result<Option<User>, StoreError> {
        let Some(row) = self.row::<UserRow>(&user)? else { return Ok(None) };
        let twofa_enabled = self.row::<TotpRow>(&user)?.is_some_and(|totp| totp.enabled_at.is_some());
        Ok(Some(row.view(user, twofa_enabled)))
    }

    /// Returns an account by its address.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn user_by_email(&self, email: &Email) -> Result<Option<User>, StoreError> {
        match self.row::<AddressRow>(&email.as_str().to_owned())? {
            Some(AddressRow(user)) => self.user(user),
            None => Ok(None),
        }
    }

    /// Returns all accounts, ordered by id; for the administrator and the command line.
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
