//! The members of an organisation, and their changes (docs/specification.md C3).
//!
//! Permissions are checked within the change: two owners that demote each other concurrently leave
//! one owner.

use crate::kv::Txn;
use crate::model::{OrgId, Timestamp};

use crate::identity::Identity;
use crate::identity::audit::{self, Event};
use crate::identity::tables::dashboard::DashboardMarksRow;
use crate::identity::tables::id::UserId;
use crate::identity::tables::org::{MemberRow, MembershipRow, OrgRow, Role};
use crate::identity::tables::store::{StoreError, read};
use crate::identity::tables::user::{User, active};

/// A member of an organisation.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// The account.
    pub user: User,
    /// The role.
    pub role: Role,
    /// Time of joining.
    pub joined_at: Timestamp,
    /// Last use of any of its live sessions.
    pub last_seen_at: Option<Timestamp>,
}

/// Errors of changing a membership.
#[derive(Debug, thiserror::Error)]
pub enum MemberError {
    /// The organisation no longer exists, or the actor is no longer a member: `org_not_found`.
    #[error("no such organisation")]
    UnknownOrg,
    /// The organisation has no such member: `not_found`.
    #[error("no such member of this organisation")]
    UnknownMember,
    /// The actor is not an administrator, or the change concerns an owner and the actor is not one:
    /// `forbidden`.
    #[error("this needs the role {}", .0.as_str())]
    Forbidden(Role),
    /// The organisation would have no owner: `last_owner`.
    #[error("this is the last owner: appoint another owner first")]
    LastOwner,
    /// The account is a member already; only on the command line: `already_member`.
    #[error("this account is already a member")]
    AlreadyMember,
    /// `storage_degraded`.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Returns the role of `actor` in the organisation; the command line (`None`) acts as an owner.
fn authority(txn: &Txn<'_>, actor: Option<UserId>, org: OrgId) -> Result<Role, MemberError> {
    if read::<OrgRow>(txn, &org)?.is_none() {
        return Err(MemberError::UnknownOrg);
    }
    match actor {
        None => Ok(Role::Owner),
        Some(actor) => {
            read::<MembershipRow>(txn, &(actor, org))?.map(|row| row.role).ok_or(MemberError::UnknownOrg)
        }
    }
}

/// Returns whether another account than `user` owns the organisation and may log in. An
/// organisation that is being removed needs no owner.
pub(in crate::identity) fn has_other_owner(
    txn: &Txn<'_>,
    org: OrgId,
    user: UserId,
) -> Result<bool, StoreError> {
    if read::<OrgRow>(txn, &org)?.is_none() {
        return Ok(true);
    }
    for ((_, other), MemberRow) in txn.scan::<MemberRow>(&org)? {
        let owns = other != user
            && read::<MembershipRow>(txn, &(other, org))?.is_some_and(|row| row.role == Role::Owner)
            && active(txn, other)?.is_some();
        if owns {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Adds a member within a change.
pub(in crate::identity) fn join(txn: &mut Txn<'_>, user: UserId, org: OrgId, role: Role, now: Timestamp) {
    txn.put(&(user, org), &MembershipRow { role, joined_at: now });
    txn.put(&(org, user), &MemberRow);
}

/// Removes a member within a change.
pub(in crate::identity) fn leave(txn: &mut Txn<'_>, user: UserId, org: OrgId) {
    txn.remove::<MembershipRow>(&(user, org));
    txn.remove::<MemberRow>(&(org, user));
    txn.remove::<DashboardMarksRow>(&(org, user));
}

impl Identity {
    /// Returns an organisation's members, ordered by the time of joining.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn members(&self, org: OrgId, now: Timestamp) -> Result<Vec<Member>, StoreError> {
        let mut found = Vec::new();
        for ((_, user), MemberRow) in self.rows::<MemberRow>(&org)? {
            // A member who is being removed may be missing from one of the two tables, or from both
            // by now.
            let Some(row) = self.row::<MembershipRow>(&(user, org))? else { continue };
            let last_seen_at = self.sessions(user, now).first().map(|session| session.last_seen());
            let Some(account) = self.user(user)? else {
                if self.row::<MembershipRow>(&(user, org))?.is_none() {
                    continue;
                }
                return Err(StoreError::Inconsistent("a member without an account"));
            };
            found.push(Member { user: account, role: row.role, joined_at: row.joined_at, last_seen_at });
        }
        found.sort_by_key(|member| (member.joined_at, member.user.id));
        Ok(found)
    }

    /// Returns a member; `None` for other accounts.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn member(&self, org: OrgId, user: UserId, now: Timestamp) -> Result<Option<Member>, StoreError> {
        let Some(row) = self.row::<MembershipRow>(&(user, org))? else { return Ok(None) };
        let Some(account) = self.user(user)? else { return Ok(None) };
        let last_seen_at = self.sessions(user, now).first().map(|session| session.last_seen());
        Ok(Some(Member { user: account, role: row.role, joined_at: row.joined_at, last_seen_at }))
    }

    /// Changes the role of a member; `actor` is `None` on the command line. Blocks (commit).
    ///
    /// # Errors
    /// [`MemberError`]; then nothing is changed.
    pub fn change_role(
        &self,
        actor: Option<UserId>,
        org: OrgId,
        user: UserId,
        role: Role,
        now: Timestamp,
    ) -> Result<(), MemberError> {
        self.change(move |txn| {
            let own = authority(txn, actor, org)?;
            if !own.allows(Role::Admin) {
                return Err(MemberError::Forbidden(Role::Admin));
            }
            let row = read::<MembershipRow>(txn, &(user, org))?.ok_or(MemberError::UnknownMember)?;
            let concerns_owner = row.role == Role::Owner || role == Role::Owner;
            if concerns_owner && own != Role::Owner {
                return Err(MemberError::Forbidden(Role::Owner));
            }
            if row.role == role {
                return Ok(());
            }
            if row.role == Role::Owner && !has_other_owner(txn, org, user)? {
                return Err(MemberError::LastOwner);
            }
            txn.put(&(user, org), &MembershipRow { role, ..row });
            let event = Event::by_actor(actor, "member.role").of(org).target(&user.to_string());
            let detail = format!("{} -> {}", row.role.as_str(), role.as_str());
            Ok(audit::record(txn, &event.detail(&detail), now)?)
        })
    }

    /// Removes a member. Administrators may remove all but owners, owners may remove everyone, and
    /// all members may remove themselves. `actor` is `None` on the command line. Blocks (commit).
    ///
    /// # Errors
    /// [`MemberError`]; then nothing is changed.
    pub fn remove_member(
        &self,
        actor: Option<UserId>,
        org: OrgId,
        user: UserId,
        now: Timestamp,
    ) -> Result<(), MemberError> {
        self.change(move |txn| {
            let own = authority(txn, actor, org)?;
            let is_self = actor == Some(user);
            if !is_self && !own.allows(Role::Admin) {
                return Err(MemberError::Forbidden(Role::Admin));
            }
            let row = read::<MembershipRow>(txn, &(user, org))?.ok_or(MemberError::UnknownMember)?;
            if row.role == Role::Owner {
                if own != Role::Owner {
                    return Err(MemberError::Forbidden(Role::Owner));
                }
                if !has_other_owner(txn, org, user)? {
                    return Err(MemberError::LastOwner);
                }
            }
            leave(txn, user, org);
            let event = Event::by_actor(actor, "member.removed").of(org).target(&user.to_string());
            Ok(audit::record(txn, &event.detail(row.role.as_str()), now)?)
        })
    }

    /// Adds an account to an organisation without an invitation; only on the command line. Blocks
    /// (commit).
    ///
    /// # Errors
    /// [`MemberError`]; then nothing is changed.
    pub fn add_member(
        &self,
        org: OrgId,
        user: UserId,
        role: Role,
        now: Timestamp,
    ) -> Result<(), MemberError> {
        self.change(move |txn| {
            authority(txn, None, org)?;
            if read::<crate::identity::tables::user::UserRow>(txn, &user)?.is_none() {
                return Err(MemberError::UnknownMember);
            }
            if read::<MembershipRow>(txn, &(user, org))?.is_some() {
                return Err(MemberError::AlreadyMember);
            }
            join(txn, user, org, role, now);
            let event = Event::unattributed("member.added").of(org).target(&user.to_string());
            Ok(audit::record(txn, &event.detail(role.as_str()), now)?)
        })
    }
}
