//! Organisations, their members, and the roles of members (docs/specification.md C3).

use crate::entropy::Entropy;
use crate::kv::Txn;
use crate::model::{OrgId, OrgSlug, SlugError, Timestamp};

use crate::identity::Identity;
use crate::identity::audit::{self, Event};
use crate::identity::options::OrgCreate;
use crate::identity::tables::id::{OrgKey, UserId};
use crate::identity::tables::name::{self, NameError};
use crate::identity::tables::org::{
    MemberRow, Membership, MembershipRow, NextOrgRow, Org, OrgRow, OrgSettings, Role, SlugRow,
};
use crate::identity::tables::store::{StoreError, read};
use crate::identity::tables::user::UserRow;

/// A request to create an organisation.
#[derive(Clone, Debug)]
pub struct NewOrg {
    /// The name in URLs, validated.
    pub slug: OrgSlug,
    /// Display name; may be empty; at most 200 bytes.
    pub name: String,
}

/// Errors of creating an organisation.
#[derive(Debug, thiserror::Error)]
pub enum OrgError {
    /// Only the instance administrator may create organisations (`org_create = admin`):
    /// `forbidden`.
    #[error("only the instance administrator may create organisations")]
    Forbidden,
    /// Another organisation has or had this slug: `slug_taken`.
    #[error("the slug {0} is taken; slugs of deleted organisations are not reused")]
    SlugTaken(OrgSlug),
    /// The text is not a slug: `validation_failed`.
    #[error(transparent)]
    Slug(#[from] SlugError),
    /// `validation_failed`.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The account does not administer the server and owns [`OWNED_MAX`] organisations:
    /// `validation_failed`.
    #[error("an account owns at most {OWNED_MAX} organisations")]
    TooMany,
    /// All 4,294,967,294 numbers have been assigned.
    #[error("no organisation number is left")]
    Exhausted,
    /// The creator's account is deleted or disabled.
    #[error("no such account")]
    UnknownUser,
    /// `storage_degraded`.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Maximum number of organisations that an account may own if all accounts may create them: people
/// who sign up must not fill the server.
const OWNED_MAX: usize = 100;

/// Creates an organisation owned by `owner` within a change.
pub(in crate::identity) fn create(
    txn: &mut Txn<'_>,
    owner: UserId,
    org: &NewOrg,
    key: OrgKey,
    now: Timestamp,
) -> Result<Membership, OrgError> {
    let name = name::parse(&org.name)?;
    let slug = org.slug.as_str().to_owned();
    if read::<SlugRow>(txn, &slug)?.is_some() {
        return Err(OrgError::SlugTaken(org.slug.clone()));
    }
    let NextOrgRow(number) = read::<NextOrgRow>(txn, &())?.unwrap_or(NextOrgRow(1));
    let next = number.checked_add(1).ok_or(OrgError::Exhausted)?;
    let id = OrgId(number);
    let row = OrgRow { key, slug: slug.clone(), name, created_at: now, settings: OrgSettings::default() };
    txn.put(&(), &NextOrgRow(next));
    txn.put(&slug, &SlugRow(id));
    txn.put(&id, &row);
    txn.put(&(owner, id), &MembershipRow { role: Role::Owner, joined_at: now });
    txn.put(&(id, owner), &MemberRow);
    Ok(Membership { org: row.view(id)?, role: Role::Owner, joined_at: now })
}

impl Identity {
    /// Creates an organisation that its creator owns. Blocks (commit).
    ///
    /// # Errors
    /// [`OrgError`].
    pub fn create_org(
        &self,
        creator: UserId,
        org: NewOrg,
        now: Timestamp,
        rng: &mut Entropy,
    ) -> Result<Membership, OrgError> {
        self.create_org_for(Some(creator), creator, org, now, rng)
    }

    /// Creates an organisation that `owner` owns. `actor` is `None` on the command line, which is
    /// not restricted. Blocks (commit).
    ///
    /// # Errors
    /// [`OrgError`].
    pub fn create_org_for(
        &self,
        actor: Option<UserId>,
        owner: UserId,
        org: NewOrg,
        now: Timestamp,
        rng: &mut Entropy,
    ) -> Result<Membership, OrgError> {
        let key = OrgKey::random(rng);
        let anyone = self.options.org_create == OrgCreate::Any;
        self.change(move |txn| {
            let active = |user| Ok::<_, OrgError>(read::<UserRow>(txn, &user)?.filter(|row| !row.disabled));
            if active(owner)?.is_none() {
                return Err(OrgError::UnknownUser);
            }
            if let Some(actor) = actor {
                let user = active(actor)?.ok_or(OrgError::UnknownUser)?;
                if !anyone && !user.is_admin {
                    return Err(OrgError::Forbidden);
                }
                let own = txn.scan::<MembershipRow>(&owner).map_err(StoreError::from)?;
                let owned = own.iter().filter(|(_, row)| row.role == Role::Owner).count();
                if !user.is_admin && owned >= OWNED_MAX {
                    return Err(OrgError::TooMany);
                }
            }
            let made = create(txn, owner, &org, key, now)?;
            let event = Event::by_actor(actor, "org.created").of(made.org.id).target(org.slug.as_str());
            audit::record(txn, &event, now)?;
            Ok(made)
        })
    }

    /// Returns a user's organisations, ordered by slug.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn memberships(&self, user: UserId) -> Result<Vec<Membership>, StoreError> {
        let rows = self.rows::<MembershipRow>(&user)?;
        let mut found = rows
            .into_iter()
            .filter_map(|((_, org), row)| self.member_of(user, org, row).transpose())
            .collect::<Result<Vec<_>, _>>()?;
        found.sort_by(|a, b| a.org.slug.cmp(&b.org.slug));
        Ok(found)
    }

    /// Returns the membership of a row. Returns `None` for an organisation that is being removed:
    /// its memberships are removed one by one.
    fn member_of(
        &self,
        user: UserId,
        org: OrgId,
        row: MembershipRow,
    ) -> Result<Option<Membership>, StoreError> {
        match self.row::<OrgRow>(&org)? {
            Some(found) => {
                let org = found.view(org)?;
                Ok(Some(Membership { org, role: row.role, joined_at: row.joined_at }))
            }
            None if self.is_being_removed(org) => Ok(None),
            // The removal of the organisation has finished since the row was read.
            None if self.row::<MembershipRow>(&(user, org))?.is_none() => Ok(None),
            None => Err(StoreError::Inconsistent("a membership of no organisation")),
        }
    }

    /// Returns a user's membership in the organisation with this slug. Returns `None` both if there
    /// is no such organisation and if the user is not a member: always 404 `org_not_found`.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn membership(&self, user: UserId, slug: &str) -> Result<Option<Membership>, StoreError> {
        let Ok(slug) = OrgSlug::parse(slug) else { return Ok(None) };
        let Some(SlugRow(org)) = self.row::<SlugRow>(&slug.as_str().to_owned())? else { return Ok(None) };
        match self.row::<MembershipRow>(&(user, org))? {
            Some(row) => self.member_of(user, org, row),
            None => Ok(None),
        }
    }

    /// Returns an organisation by its number. It checks no membership: for internal use only.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn org(&self, id: OrgId) -> Result<Option<Org>, StoreError> {
        self.row::<OrgRow>(&id)?.map(|row| row.view(id)).transpose()
    }

    /// Returns the organisation with this slug. It checks no membership: for the administrator of
    /// the server and the command line only.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn org_by_slug(&self, slug: &str) -> Result<Option<Org>, StoreError> {
        let Ok(slug) = OrgSlug::parse(slug) else { return Ok(None) };
        match self.row::<SlugRow>(&slug.as_str().to_owned())? {
            Some(SlugRow(org)) => self.org(org),
            None => Ok(None),
        }
    }

    /// Returns all organisations. It checks no membership: for the store's retention and limits,
    /// and the command line only.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn orgs(&self) -> Result<Vec<Org>, StoreError> {
        self.rows::<OrgRow>(&())?.into_iter().map(|(id, row)| row.view(id)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_includes_the_permissions_of_the_roles_before_it() {
        let roles = [Role::Viewer, Role::Editor, Role::Admin, Role::Owner];
        for (rank, role) in roles.into_iter().enumerate() {
            assert_eq!(Role::parse(role.as_str()), Some(role));
            for (needed_rank, needed) in roles.into_iter().enumerate() {
                assert_eq!(role.allows(needed), rank >= needed_rank, "{role:?} for {needed:?}");
            }
        }
        assert_eq!(Role::parse("Owner"), None);
    }
}
