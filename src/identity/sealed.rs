//! What becomes of sealed secrets when the key they were sealed with is lost: they are dropped, and it is told whose they were.
//!
//! Nothing that was lost with the key is guessed: accounts lose their second factor, since no code could be checked any
//! more; API keys go on, but what signed embed tokens with their secret must be rotated first; links in mails end.

use crate::model::{OrgId, Timestamp};

use super::keyring::{KeyRow, event};
use super::link::{LinkRow, remove_link};
use super::rotation::RotatedRow;
use super::store::read;
use super::totp::TotpRow;
use super::user::UserRow;
use super::{AdministrationError, Identity, KeyId, StoreError, audit};

/// Rows changed in one change at most: each link may take a note along.
const LINKS_A_CHANGE: usize = 30;

/// What was dropped with a lost master key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DroppedSecrets {
    /// The addresses of accounts that have no second factor any more.
    pub second_factors: Vec<String>,
    /// API keys whose embed tokens fail until they are rotated, as "ak_… of slug".
    pub api_keys: Vec<String>,
    /// Links in mails that open nothing any more.
    pub links: usize,
}

impl Identity {
    /// Drops everything that is sealed. For a start with a new master key, before anyone is answered. Blocks (commits).
    ///
    /// # Errors
    /// [`StoreError`]: some of it is dropped; asked again, this goes on with the rest.
    pub fn drop_sealed(&self, now: Timestamp) -> Result<DroppedSecrets, StoreError> {
        let mut dropped = DroppedSecrets::default();
        for (user, row) in self.rows::<TotpRow>(&())? {
            let address = self.row::<UserRow>(&user)?.map(|account| account.email);
            match self.reset_two_factor(user, now) {
                Ok(_) | Err(AdministrationError::UnknownUser) => {}
                Err(AdministrationError::Store(error)) => return Err(error),
                Err(_) => return Err(StoreError::Inconsistent("a second factor that cannot be taken away")),
            }
            // One that was begun and never confirmed was none.
            dropped.second_factors.extend(address.filter(|_| row.enabled_at.is_some()));
        }
        for ((org, key), _) in self.rows::<KeyRow>(&())?.into_iter().filter(|(_, row)| row.sealed.is_some()) {
            self.drop_key_secret(org, key, now)?;
            let slug = self.org(org)?.map(|org| org.slug.to_string()).unwrap_or_default();
            dropped.api_keys.push(format!("{key} of {slug}"));
        }
        for ((org, key), row) in self.rows::<RotatedRow>(&())? {
            if row.sealed.is_some() {
                self.change(move |txn| {
                    if let Some(row) = read::<RotatedRow>(txn, &(org, key))? {
                        txn.put(&(org, key), &RotatedRow { sealed: None, ..row });
                    }
                    Ok::<_, StoreError>(())
                })?;
                self.reload_key(org, key)?;
            }
        }
        // Where the newest link of an address is noted was derived from the lost key: an older one would not end with it.
        let links = self.rows::<LinkRow>(&())?;
        dropped.links = links.len();
        for some in links.chunks(LINKS_A_CHANGE) {
            let some = some.to_vec();
            self.change(move |txn| some.iter().try_for_each(|(hash, link)| remove_link(txn, *hash, link)))?;
        }
        Ok(dropped)
    }

    fn drop_key_secret(&self, org: OrgId, key: KeyId, now: Timestamp) -> Result<(), StoreError> {
        self.change(move |txn| {
            if let Some(row) = read::<KeyRow>(txn, &(org, key))? {
                txn.put(&(org, key), &KeyRow { sealed: None, ..row });
                let event = event(None, "key.updated", org, key);
                audit::note(txn, &event.detail("secret lost with the master key: rotate it"), now)?;
            }
            Ok::<_, StoreError>(())
        })?;
        self.reload_key(org, key)?;
        Ok(())
    }
}
