//! Deleting an organisation (docs/specification.md C3): at once for everybody who asks, in the background on the disk.
//!
//! One change takes the organisation's own row away and notes that the rest is to go. From then on no membership, key,
//! token or invitation of it opens anything. What is left (memberships, keys, invitations, its log of events, and in the
//! store of samples everything) is removed step by step, and the note last of all: a stop in between goes on after the
//! next start. The slug's row stays for good, and so no other organisation is ever met under an old address.

use serde::{Deserialize, Serialize};

use crate::kv::Record;
use crate::model::{OrgId, Timestamp};
use crate::sync::IgnorePoison as _;

use super::audit::{self, AuditRow, Event};
use super::day::DayRow;
use super::invite::{self, InviteRow};
use super::keyring::{KeyRow, UsedRow};
use super::member;
use super::org::{MemberRow, MembershipRow, OrgRow};
use super::rotation::RotatedRow;
use super::store::read;
use super::user::active;
use super::{Identity, OrgKey, Role, StoreError, UserId};

/// Why an organisation was not deleted.
#[derive(Debug, thiserror::Error)]
pub enum OrgRemovalError {
    /// It is gone, or who asks is not its member any more: `org_not_found`.
    #[error("no such organisation")]
    UnknownOrg,
    /// Who asks is not its owner any more: `forbidden`.
    #[error("only an owner deletes an organisation")]
    Forbidden,
    /// `storage_degraded`.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// An organisation that is gone and of which something is left.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct RemovalRow {
    pub(super) key: OrgKey,
    pub(super) slug: String,
    pub(super) deleted_at: Timestamp,
    /// `None` at the command line.
    pub(super) deleted_by: Option<UserId>,
}

impl Record for RemovalRow {
    const TABLE: u8 = 0x1a;
    const KIND: u8 = 0x1a;
    const VERSION: u8 = 1;
    type Key = OrgId;
}

/// What one change removes: a change has at most 64 rows, a key three.
const ROWS_A_CHANGE: usize = 20;
/// Rows of the log of events removed in one change.
const EVENTS_A_CHANGE: usize = 60;

impl Identity {
    /// Deletes an organisation. When this returns it is gone for everybody, and what it stored is noted to go:
    /// [`Identity::removals`]. `actor` is `None` at the command line. Blocks (commit).
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
            // Its own log of events goes with it: the instance's says that it was.
            let event = Event::by_actor(actor, "org.deleted").target(&row.slug);
            Ok(audit::note(txn, &event.detail(&row.key.to_string()), now)?)
        })?;
        self.removing().insert(org);
        self.forget_keys_of(org);
        self.org_settings.forget(org);
        Ok(())
    }

    fn removing(&self) -> std::sync::MutexGuard<'_, std::collections::BTreeSet<OrgId>> {
        self.removing.lock().ignore_poison()
    }

    /// Organisations that were deleted and of which something is left. Touches memory only.
    pub fn removals(&self) -> Vec<OrgId> {
        self.removing().iter().copied().collect()
    }

    pub(super) fn is_being_removed(&self, org: OrgId) -> bool {
        if self.removing().contains(&org) {
            return true;
        }
        // Between the change and the note of it in memory; what cannot be read is told by who reads on.
        matches!(self.row::<RemovalRow>(&org), Ok(Some(_)))
    }

    /// Loads what is left to be done.
    pub(super) fn load_removals(&self) -> Result<(), StoreError> {
        let found = self.rows::<RemovalRow>(&())?.into_iter().map(|(org, _)| org);
        self.removing().extend(found);
        Ok(())
    }

    /// Removes what accounts keep of a deleted organisation, and then the note that it is to go: to be called once the
    /// store of samples has let go of it. Blocks (commits).
    ///
    /// # Errors
    /// [`StoreError`]; what is left stays noted.
    pub fn finish_removal(&self, org: OrgId) -> Result<(), StoreError> {
        if self.row::<OrgRow>(&org)?.is_some() {
            return Err(StoreError::Inconsistent("an organisation that is there is to be removed"));
        }
        let members: Vec<UserId> =
            self.rows::<MemberRow>(&org)?.into_iter().map(|((_, user), _)| user).collect();
        self.in_steps(&members, ROWS_A_CHANGE, move |txn, user| member::leave(txn, *user, org))?;
        let keys: Vec<_> = self.rows::<KeyRow>(&org)?.into_iter().map(|(key, _)| key).collect();
        self.in_steps(&keys, ROWS_A_CHANGE, |txn, key| {
            txn.remove::<KeyRow>(key);
            txn.remove::<UsedRow>(key);
            txn.remove::<RotatedRow>(key);
        })?;
        let invites = self.rows::<InviteRow>(&org)?;
        self.in_steps(&invites, ROWS_A_CHANGE, |txn, (key, row)| invite::remove(txn, key, row))?;
        loop {
            let events = self.rows_back::<AuditRow>(&org, None, EVENTS_A_CHANGE)?;
            let keys: Vec<_> = events.into_iter().map(|(key, _)| key).collect();
            self.in_steps(&keys, EVENTS_A_CHANGE, |txn, key| txn.remove::<AuditRow>(key))?;
            if keys.len() < EVENTS_A_CHANGE {
                break;
            }
        }
        self.change(move |txn| {
            txn.remove::<DayRow>(&org);
            txn.remove::<RemovalRow>(&org);
            Ok::<_, StoreError>(())
        })?;
        self.removing().remove(&org);
        Ok(())
    }

    fn in_steps<T: Clone + Send + 'static>(
        &self,
        all: &[T],
        at_once: usize,
        each: impl Fn(&mut crate::kv::Txn<'_>, &T) + Copy + Send + 'static,
    ) -> Result<(), StoreError> {
        for some in all.chunks(at_once) {
            let some = some.to_vec();
            self.change(move |txn| {
                some.iter().for_each(|one| each(txn, one));
                Ok::<_, StoreError>(())
            })?;
        }
        Ok(())
    }
}
