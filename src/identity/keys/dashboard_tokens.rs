//! Revocation of all embed tokens that name a dashboard, of all signing keys.
//!
//! The first valid date of each revoked dashboard is stored by organisation and uid. It stays when
//! the dashboard is deleted, so that its tokens do not work for a later one with the same uid.

use std::collections::{BTreeMap, HashMap};
use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::model::{OrgId, Timestamp};
use crate::sync::IgnorePoison as _;

use crate::identity::Identity;
use crate::identity::audit::{self, Event};
use crate::identity::keys::embed_token::{EmbedGrant, first_date_after, whole_second};
use crate::identity::tables::id::UserId;
use crate::identity::tables::key::DashboardTokensRow;
use crate::identity::tables::store::{StoreError, read};

/// Maximum number of revoked dashboards of one organisation; then the oldest one is replaced.
const REVOKED_MAX: usize = 10_000;

/// The first valid dates of tokens that name a dashboard.
#[derive(Debug, Default)]
pub(in crate::identity) struct DashboardTokens(RwLock<BTreeMap<OrgId, HashMap<String, Timestamp>>>);

impl DashboardTokens {
    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<OrgId, HashMap<String, Timestamp>>> {
        self.0.read().ignore_poison()
    }

    fn write(&self) -> RwLockWriteGuard<'_, BTreeMap<OrgId, HashMap<String, Timestamp>>> {
        self.0.write().ignore_poison()
    }

    pub(in crate::identity) fn first_valid(&self, org: OrgId, uid: &str) -> Option<Timestamp> {
        self.read().get(&org)?.get(uid).copied()
    }

    /// Forgets a deleted organisation.
    pub(in crate::identity) fn forget(&self, org: OrgId) {
        self.write().remove(&org);
    }
}

impl Identity {
    /// Refuses every token accepted at `now` that names the dashboard `uid`, itself or by its key.
    ///
    /// The first valid date follows the rule of [`Identity::revoke_tokens`]. The caller checks that
    /// the dashboard exists. Blocks (commit).
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn revoke_dashboard_tokens(
        &self,
        org: OrgId,
        actor: Option<UserId>,
        uid: &str,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let replaced = self.replaced_revocation(org, uid)?;
        let removed = replaced.clone();
        let key = (org, uid.to_owned());
        let first = self.change(move |txn| {
            let before = read::<DashboardTokensRow>(txn, &key)?.map(|row| row.0);
            let first = first_date_after(before, now);
            if let Some(removed) = removed {
                txn.remove::<DashboardTokensRow>(&(org, removed));
            }
            txn.put(&key, &DashboardTokensRow(first));
            let event = Event::by_actor(actor, "dashboard.tokens_revoked").of(org).target(&key.1);
            audit::record(txn, &event, now)?;
            Ok::<_, StoreError>(first)
        })?;
        let mut all = self.dashboard_tokens.write();
        let own = all.entry(org).or_default();
        if let Some(replaced) = replaced {
            own.remove(&replaced);
        }
        let date = own.entry(uid.to_owned()).or_insert(first);
        *date = first.max(*date);
        Ok(())
    }

    /// Returns the oldest revocation if the organisation has [`REVOKED_MAX`] of them and none of
    /// `uid`. Its tokens have expired, unless as many dashboards were revoked within a day.
    fn replaced_revocation(&self, org: OrgId, uid: &str) -> Result<Option<String>, StoreError> {
        if self.dashboard_tokens.first_valid(org, uid).is_some() {
            return Ok(None);
        }
        let stored = self.rows::<DashboardTokensRow>(&org)?;
        let oldest = stored.iter().min_by_key(|(_, row)| row.0);
        let full = oldest.filter(|_| stored.len() >= REVOKED_MAX);
        Ok(full.map(|((_, uid), _)| uid.clone()))
    }

    /// Returns whether the tokens of a grant's dashboard were revoked since the grant was issued.
    /// Changes memory only.
    pub fn is_revoked(&self, grant: &EmbedGrant) -> bool {
        let first =
            grant.dashboard.as_ref().and_then(|one| self.dashboard_tokens.first_valid(grant.org, &one.uid));
        first.zip(grant.issued_at).is_some_and(|(first, issued)| issued.as_s() < whole_second(first))
    }

    /// Loads the first valid dates.
    pub(in crate::identity) fn load_dashboard_tokens(&self) -> Result<(), StoreError> {
        let mut all = self.dashboard_tokens.write();
        let mut loaded: BTreeMap<OrgId, HashMap<String, Timestamp>> = BTreeMap::new();
        for ((org, uid), DashboardTokensRow(first)) in self.rows::<DashboardTokensRow>(&())? {
            loaded.entry(org).or_default().insert(uid, first);
        }
        *all = loaded;
        Ok(())
    }
}
