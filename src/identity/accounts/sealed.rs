//! Removal of sealed secrets after the loss of their master key, with a report of the owners.
//!
//! Nothing that was lost with the key is guessed. Accounts lose their second factor, because no
//! code could be checked any more. API keys stay valid, but those that sign embed tokens with their
//! secret must be rotated first. Mailed links end. Public links of dashboards still work for those
//! who have them, but their addresses can no longer be shown.

use crate::model::{OrgId, Timestamp};

use crate::identity::Identity;
use crate::identity::accounts::administration::AdministrationError;
use crate::identity::audit;
use crate::identity::auth::link::remove_link;
use crate::identity::keys::keyring::event;
use crate::identity::tables::id::KeyId;
use crate::identity::tables::key::{KeyRow, RotatedRow};
use crate::identity::tables::link::LinkRow;
use crate::identity::tables::store::{StoreError, read};
use crate::identity::tables::totp::TotpRow;
use crate::identity::tables::user::UserRow;

/// The secrets that were lost with a master key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DroppedSecrets {
    /// Addresses of accounts that lost their second factor.
    pub second_factors: Vec<String>,
    /// API keys whose embed tokens fail until a rotation, as "ak_… of slug".
    pub api_keys: Vec<String>,
    /// Number of mailed links that ended.
    pub links: usize,
    /// Number of public links of dashboards whose addresses are no longer known.
    pub public_links: usize,
}

impl Identity {
    /// Removes all sealed secrets. Call it at a start with a new master key, before requests are
    /// served. Blocks (commits).
    ///
    /// # Errors
    /// [`StoreError`]; some secrets are removed, and another call continues with the rest.
    pub fn drop_sealed(&self, now: Timestamp) -> Result<DroppedSecrets, StoreError> {
        let mut dropped = DroppedSecrets::default();
        for (user, row) in self.rows::<TotpRow>(&())? {
            let address = self.row::<UserRow>(&user)?.map(|account| account.email);
            match self.reset_two_factor(user, now) {
                Ok(_) | Err(AdministrationError::UnknownUser) => {}
                Err(AdministrationError::Store(error)) => return Err(error),
                Err(_) => return Err(StoreError::Inconsistent("a second factor cannot be removed")),
            }
            // An enrolment that was never confirmed was not a second factor.
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
        dropped.public_links = self.drop_link_secrets()?;
        // The slots of links were derived from the lost key, so a new link would not end the older
        // ones.
        let links = self.rows::<LinkRow>(&())?;
        dropped.links = links.len();
        self.change_each(&links, |txn, (hash, link)| remove_link(txn, *hash, link))?;
        Ok(dropped)
    }

    fn drop_key_secret(&self, org: OrgId, key: KeyId, now: Timestamp) -> Result<(), StoreError> {
        self.change(move |txn| {
            if let Some(row) = read::<KeyRow>(txn, &(org, key))? {
                txn.put(&(org, key), &KeyRow { sealed: None, ..row });
                let event = event(None, "key.updated", org, key);
                audit::record(txn, &event.detail("secret lost with the master key: rotate it"), now)?;
            }
            Ok::<_, StoreError>(())
        })?;
        self.reload_key(org, key)?;
        Ok(())
    }
}
