//! Deletion of an organisation (docs/specification.md C3): immediate for all requests, in the
//! background on the disk.
//!
//! One change removes the organisation's own row and records the pending removal of its data. From
//! then on no membership, key, token or invitation of it is valid. The remaining data (memberships,
//! keys, dashboards, invitations, its audit log, and all of its samples) is removed step by step,
//! and the pending removal last of all, so an interrupted removal continues after the next start.
//! The row of the slug stays forever, so that no other organisation can get the old address.

use crate::model::{OrgId, Timestamp};
use crate::sync::IgnorePoison as _;

use crate::identity::Identity;
use crate::identity::audit::{self, Event};
use crate::identity::orgs::invite;
use crate::identity::orgs::member;
use crate::identity::tables::audit::AuditRow;
use crate::identity::tables::engine::EngineRow;
use crate::identity::tables::forward::ForwardRow;
use crate::identity::tables::id::UserId;
use crate::identity::tables::invite::InviteRow;
use crate::identity::tables::key::{DashboardTokensRow, KeyRow, RotatedRow, UsedRow};
use crate::identity::tables::moving::MoveRow;
use crate::identity::tables::notify::{NotifyDocumentRow, NotifyStateRow};
use crate::identity::tables::org::{DailyUsageRow, MemberRow, MembershipRow, OrgRow, RemovalRow, Role};
use crate::identity::tables::push::PushRow;
use crate::identity::tables::rule_group::{FileRuleGroupRow, RuleGroupRow};
use crate::identity::tables::scrape::ScrapeRow;
use crate::identity::tables::store::{StoreError, read};
use crate::identity::tables::user::active;

/// Errors of deleting an organisation.
#[derive(Debug, thiserror::Error)]
pub enum OrgRemovalError {
    /// The organisation no longer exists, or the actor is no longer a member: `org_not_found`.
    #[error("no such organisation")]
    UnknownOrg,
    /// The actor is no longer an owner: `forbidden`.
    #[error("only an owner deletes an organisation")]
    Forbidden,
    /// `storage_degraded`.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Number of rows of the audit log that are read at once.
const EVENTS_AT_ONCE: usize = 60;

impl Identity {
    /// Deletes an organisation. When this returns, no request can use it any more, and the removal
    /// of its data is pending: [`Identity::removals`]. `actor` is `None` on the command line.
    /// Blocks (commit).
    ///
    /// # Errors
    /// [`OrgRemovalError`]; then nothing is changed.
    pub fn delete_org(
        &self,
        actor: Option<UserId>,
        org: OrgId,
        now: Timestamp,
    ) -> Result<(), OrgRemovalError> {
        self.change(move |txn| {
            let row = read::<OrgRow>(txn, &org)?.ok_or(OrgRemovalError::UnknownOrg)?;
            if let Some(actor) = actor {
                let role = read::<MembershipRow>(txn, &(actor, org))?.map(|row| row.role);
                match (role, active(txn, actor)?) {
                    (Some(Role::Owner), Some(_)) => {}
                    (Some(_), _) => return Err(OrgRemovalError::Forbidden),
                    (None, _) => return Err(OrgRemovalError::UnknownOrg),
                }
            }
            txn.remove::<OrgRow>(&org);
            let removal =
                RemovalRow { key: row.key, slug: row.slug.clone(), deleted_at: now, deleted_by: actor };
            txn.put(&org, &removal);
            // The organisation's own audit log is removed as well; that of the instance records the
            // deletion.
            let event = Event::by_actor(actor, "org.deleted").target(&row.slug);
            Ok(audit::record(txn, &event.detail(&row.key.to_string()), now)?)
        })?;
        self.removing().insert(org);
        self.forget_keys_of(org);
        self.dashboard_tokens.forget(org);
        self.public_links.forget_org(org);
        self.org_settings.forget(org);
        self.engines.forget(org);
        self.forwarding.forget(org);
        Ok(())
    }

    fn removing(&self) -> std::sync::MutexGuard<'_, std::collections::BTreeSet<OrgId>> {
        self.removing.lock().ignore_poison()
    }

    /// Returns the deleted organisations that still have data. Does not access the disk.
    pub fn removals(&self) -> Vec<OrgId> {
        self.removing().iter().copied().collect()
    }

    pub(in crate::identity) fn is_being_removed(&self, org: OrgId) -> bool {
        if self.removing().contains(&org) {
            return true;
        }
        // The change may be committed and not yet in memory. If the row cannot be read, the
        // caller's next read reports the error.
        matches!(self.row::<RemovalRow>(&org), Ok(Some(_)))
    }

    /// Loads the pending removals.
    pub(in crate::identity) fn load_removals(&self) -> Result<(), StoreError> {
        let mut removing = self.removing();
        *removing = self.rows::<RemovalRow>(&())?.into_iter().map(|(org, _)| org).collect();
        Ok(())
    }

    /// Removes the rows of a deleted organisation and then its pending removal. Call it when the
    /// store of samples has removed its data. Blocks (commits).
    ///
    /// # Errors
    /// [`StoreError`]; the removal then stays pending.
    pub fn finish_removal(&self, org: OrgId) -> Result<(), StoreError> {
        if self.row::<OrgRow>(&org)?.is_some() {
            return Err(StoreError::Inconsistent("an organisation that is there is to be removed"));
        }
        let members: Vec<UserId> =
            self.rows::<MemberRow>(&org)?.into_iter().map(|((_, user), _)| user).collect();
        self.change_each(&members, move |txn, user| {
            member::leave(txn, *user, org);
            Ok(())
        })?;
        let keys: Vec<_> = self.rows::<KeyRow>(&org)?.into_iter().map(|(key, _)| key).collect();
        self.change_each(&keys, |txn, key| {
            txn.remove::<KeyRow>(key);
            txn.remove::<UsedRow>(key);
            txn.remove::<RotatedRow>(key);
            Ok(())
        })?;
        self.remove_rows_of::<DashboardTokensRow>(org)?;
        self.remove_dashboards_of(org)?;
        self.remove_rows_of::<ForwardRow>(org)?;
        self.remove_rows_of::<RuleGroupRow>(org)?;
        self.remove_rule_versions_of(org)?;
        self.remove_rows_of::<FileRuleGroupRow>(org)?;
        self.remove_rows_of::<NotifyStateRow>(org)?;
        self.remove_rows_of::<PushRow>(org)?;
        let invites = self.rows::<InviteRow>(&org)?;
        self.change_each(&invites, |txn, (key, row)| {
            invite::remove(txn, key, row);
            Ok(())
        })?;
        loop {
            let events = self.rows_back::<AuditRow>(&org, None, EVENTS_AT_ONCE)?;
            let keys: Vec<_> = events.into_iter().map(|(key, _)| key).collect();
            self.remove_all::<AuditRow>(&keys)?;
            if keys.len() < EVENTS_AT_ONCE {
                break;
            }
        }
        self.remove_all::<NotifyDocumentRow>(&[org])?;
        self.remove_all::<DailyUsageRow>(&[org])?;
        self.remove_all::<MoveRow>(&[org])?;
        self.remove_all::<EngineRow>(&[org])?;
        self.remove_all::<ScrapeRow>(&[org])?;
        // The last one: until then an interrupted removal continues after the next start.
        self.remove_all::<RemovalRow>(&[org])?;
        self.removing().remove(&org);
        Ok(())
    }
}
