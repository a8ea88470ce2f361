//! Organisations, their members, and the roles of members (docs/specification.md C3).

use serde::{Deserialize, Serialize};

use crate::entropy::Entropy;
use crate::kv::{Record, Txn};
use crate::model::{OrgId, OrgSlug, SlugError, Timestamp};

use crate::identity::Identity;
use crate::identity::tables::audit::{self, Event};
use crate::identity::tables::id::{OrgKey, UserId};
use crate::identity::tables::name::{self, NameError};
use crate::identity::tables::store::{StoreError, read};
use crate::identity::tables::user::UserRow;

/// The role of a member. Each role includes the permissions of the roles before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Role {
    /// Read and query.
    Viewer,
    /// Also import, and mint embed tokens.
    Editor,
    /// Also manage members, invitations, API keys and settings, and read the audit log.
    Admin,
    /// Also delete the organisation and change owners.
    Owner,
}

impl Role {
    /// Returns the name used in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Role::Viewer => "viewer",
            Role::Editor => "editor",
            Role::Admin => "admin",
            Role::Owner => "owner",
        }
    }

    /// Parses the name used in the API.
    pub fn parse(text: &str) -> Option<Role> {
        [Role::Viewer, Role::Editor, Role::Admin, Role::Owner].into_iter().find(|role| role.as_str() == text)
    }

    /// Returns whether this role includes `needed`.
    pub fn allows(self, needed: Role) -> bool {
        self >= needed
    }
}

/// An organisation.
#[derive(Clone, Debug, PartialEq)]
pub struct Org {
    /// Its number in the store; never reused.
    pub id: OrgId,
    /// Its public id.
    pub key: OrgKey,
    /// Its name in URLs; it never changes.
    pub slug: OrgSlug,
    /// Display name; may be empty.
    pub name: String,
    /// Time of creation.
    pub created_at: Timestamp,
    /// Its own limits.
    pub settings: OrgSettings,
}

/// A setting that may differ from the server's default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub enum Limit {
    /// `null` in the API: the server's default.
    #[default]
    Default,
    /// `"none"` in the API: no limit.
    Unlimited,
    /// A number in the unit of the setting.
    At(u64),
}

/// An organisation's own limits (docs/specification.md C3). By default all are the server's.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OrgSettings {
    /// Retention of samples, days.
    pub retention_days: Limit,
    /// Maximum size on disk, bytes; beyond it the oldest samples are removed.
    pub retention_bytes: Limit,
    /// Maximum number of live series.
    pub max_series: Limit,
    /// Maximum number of new series a second.
    pub max_new_series_per_s: Limit,
    /// Maximum number of labels of one series.
    pub max_labels: Limit,
    /// Maximum length of a label value, bytes.
    pub max_label_value_bytes: Limit,
    /// Size on disk in bytes beyond which writes are refused.
    pub max_disk_bytes: Limit,
    /// Maximum memory of the head, bytes.
    pub max_memory_bytes: Limit,
    /// Maximum number of samples that one query may read.
    pub max_samples_per_query: Limit,
    /// Maximum duration of a query, seconds.
    pub query_timeout_s: Limit,
    /// Maximum age of a late sample, seconds.
    pub ooo_window_s: Limit,
}

/// A user's membership in an organisation; it proves that the user may know of the organisation.
#[derive(Clone, Debug, PartialEq)]
pub struct Membership {
    /// The organisation.
    pub org: Org,
    /// The user's role.
    pub role: Role,
    /// Time of joining.
    pub joined_at: Timestamp,
}

/// A request to create an organisation.
#[derive(Clone, Debug)]
pub struct NewOrg {
    /// Its name in URLs, validated.
    pub slug: OrgSlug,
    /// Display name; may be empty; at most 200 bytes.
    pub name: String,
}

/// Errors of creating an organisation.
#[derive(Debug, thiserror::Error)]
pub enum OrgError {
    /// Only the instance administrator may create organisations (`org_create = admin`):
    /// `forbidden`.
    #[error("only the instance administrator creates organisations here")]
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

/// A stored organisation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::identity) struct OrgRow {
    pub(in crate::identity) key: OrgKey,
    pub(in crate::identity) slug: String,
    pub(in crate::identity) name: String,
    pub(in crate::identity) created_at: Timestamp,
    pub(in crate::identity) settings: OrgSettings,
}

impl Record for OrgRow {
    const TABLE: u8 = 0x09;
    const KIND: u8 = 0x09;
    const VERSION: u8 = 1;
    type Key = OrgId;
}

impl OrgRow {
    pub(in crate::identity) fn view(self, id: OrgId) -> Result<Org, StoreError> {
        let slug = OrgSlug::parse(&self.slug)
            .map_err(|_| StoreError::Inconsistent("an organisation's slug is none"))?;
        Ok(Org {
            id,
            key: self.key,
            slug,
            name: self.name,
            created_at: self.created_at,
            settings: self.settings,
        })
    }
}

/// Maps a slug to its present or former organisation. Slugs are never reused, or old tokens would
/// open another organisation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::identity) struct SlugRow(pub(in crate::identity) OrgId);

impl Record for SlugRow {
    const TABLE: u8 = 0x0a;
    const KIND: u8 = 0x0a;
    const VERSION: u8 = 1;
    type Key = String;
}

/// The role of a user in an organisation; by user.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::identity) struct MembershipRow {
    pub(in crate::identity) role: Role,
    pub(in crate::identity) joined_at: Timestamp,
}

impl Record for MembershipRow {
    const TABLE: u8 = 0x0b;
    const KIND: u8 = 0x0b;
    const VERSION: u8 = 1;
    type Key = (UserId, OrgId);
}

/// The membership of a user in an organisation; by organisation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::identity) struct MemberRow;

impl Record for MemberRow {
    const TABLE: u8 = 0x0c;
    const KIND: u8 = 0x0c;
    const VERSION: u8 = 1;
    type Key = (OrgId, UserId);
}

/// The number of the next organisation. It only grows. Number 0 is the instance itself.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::identity) struct NextOrgRow(pub(in crate::identity) u32);

impl Record for NextOrgRow {
    const TABLE: u8 = 0x0d;
    const KIND: u8 = 0x0d;
    const VERSION: u8 = 1;
    type Key = ();
}

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

/// Who may create organisations (`PROMLET_ORG_CREATE`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OrgCreate {
    /// The instance administrator.
    #[default]
    Admin,
    /// Every account.
    Any,
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
