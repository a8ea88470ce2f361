//! The groups of rules of an organisation (docs/specification.md C13). A group belongs to a
//! namespace, as in Mimir. This room stores its text; its callers have checked it. Older versions
//! are in [`super::rule_version`].

use crate::identity::Identity;
use crate::identity::audit;
use crate::identity::audit::event::AlertingActor;
use crate::identity::dashboards::store::ExpectedVersion;
use crate::identity::orgs::rule_version::{self, RULE_VERSIONS_MAX, RuleGroupVersion};
use crate::identity::tables::id::UserId;
use crate::identity::tables::org::OrgRow;
use crate::identity::tables::rule_group::RuleGroupRow;
use crate::identity::tables::store::{StoreError, read};
use crate::model::{OrgId, Timestamp};

/// The most stored groups of an organisation, inclusive.
pub const RULE_GROUPS_STORED_MAX: usize = 1_000;
/// The most rules of all stored groups of an organisation, inclusive.
pub const RULES_STORED_MAX: u32 = 20_000;
/// The most bytes of the text of a stored group, inclusive, so that it fits into one change.
pub const RULE_GROUP_BYTES_MAX: usize = 128 << 10;
/// The most bytes of the texts of all stored groups of an organisation, inclusive.
pub const RULE_TEXTS_BYTES_MAX: usize = 10 << 20;

/// The place of a stored group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RuleGroupPlace {
    /// The organisation.
    pub org: OrgId,
    /// The namespace.
    pub namespace: String,
    /// The name of the group.
    pub name: String,
}

/// A stored group.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredRuleGroup {
    /// The place of the group.
    pub place: RuleGroupPlace,
    /// The group as YAML.
    pub yaml: String,
    /// Increases with each change; never 0.
    pub version: u32,
    /// The time of the last change.
    pub updated_at: Timestamp,
    /// The account of the last change.
    pub updated_by: Option<UserId>,
}

/// A group to store.
#[derive(Clone, Debug)]
pub struct NewRuleGroup {
    /// The group as YAML.
    pub yaml: String,
    /// The number of its rules.
    pub rules: u32,
    /// The version that it replaces; `None` if there must be none.
    pub expected: Option<ExpectedVersion>,
}

/// A stored change of a group.
#[derive(Clone, Debug, PartialEq)]
pub struct RuleGroupWrite {
    /// The group as it is now.
    pub group: StoredRuleGroup,
    /// Whether there was no such group before. Its version may be above 1 even then.
    pub is_new: bool,
}

/// Errors of reading and changing groups.
#[derive(Debug, thiserror::Error)]
pub enum RuleGroupError {
    /// The organisation no longer exists: `org_not_found`.
    #[error("no such organisation")]
    UnknownOrg,
    /// `not_found`.
    #[error("this organisation has no such group of rules")]
    NotFound,
    /// `not_found`.
    #[error("version {0} of this group is not stored; the last {RULE_VERSIONS_MAX} replaced ones are")]
    NoVersion(u32),
    /// `precondition_required`.
    #[error("the group exists: send If-Match with the ETag of the version that you replace, or *")]
    Exists,
    /// `version_conflict`.
    #[error("the group has version {0} now: read it again, or send If-Match: * to replace it")]
    Conflict(u32),
    /// `limit_reached`.
    #[error("an organisation has at most {RULE_GROUPS_STORED_MAX} groups of rules")]
    TooManyGroups,
    /// `limit_reached`.
    #[error("an organisation has at most {RULES_STORED_MAX} rules")]
    TooManyRules,
    /// `limit_reached`.
    #[error("the groups of an organisation have at most {RULE_TEXTS_BYTES_MAX} bytes of text")]
    TooLarge,
    /// `storage_degraded`.
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn stored((org, namespace, name): (OrgId, String, String), row: RuleGroupRow) -> StoredRuleGroup {
    let RuleGroupRow { yaml, version, updated_at, updated_by, .. } = row;
    StoredRuleGroup { place: RuleGroupPlace { org, namespace, name }, yaml, version, updated_at, updated_by }
}

fn key_of(place: &RuleGroupPlace) -> (OrgId, String, String) {
    (place.org, place.namespace.clone(), place.name.clone())
}

fn check_version(
    row: Option<&RuleGroupRow>,
    expected: Option<ExpectedVersion>,
) -> Result<(), RuleGroupError> {
    match (row, expected) {
        (None, None | Some(ExpectedVersion::Any)) | (Some(_), Some(ExpectedVersion::Any)) => Ok(()),
        (Some(row), Some(ExpectedVersion::Exactly(version))) if row.version == version => Ok(()),
        (Some(row), Some(_)) => Err(RuleGroupError::Conflict(row.version)),
        (Some(_), None) => Err(RuleGroupError::Exists),
        (None, Some(_)) => Err(RuleGroupError::NotFound),
    }
}

impl Identity {
    /// Returns the groups of an organisation in the order of namespace and name.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn rule_groups(&self, org: OrgId) -> Result<Vec<StoredRuleGroup>, StoreError> {
        Ok(self.rows::<RuleGroupRow>(&org)?.into_iter().map(|(key, row)| stored(key, row)).collect())
    }

    /// Returns the groups of all organisations, in the order of organisation, namespace and name.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn all_rule_groups(&self) -> Result<Vec<StoredRuleGroup>, StoreError> {
        Ok(self.rows::<RuleGroupRow>(&())?.into_iter().map(|(key, row)| stored(key, row)).collect())
    }

    /// Returns one group.
    ///
    /// # Errors
    /// [`RuleGroupError::NotFound`] or [`RuleGroupError::Store`].
    pub fn rule_group(&self, place: &RuleGroupPlace) -> Result<StoredRuleGroup, RuleGroupError> {
        let key = key_of(place);
        let row = self.row::<RuleGroupRow>(&key)?.ok_or(RuleGroupError::NotFound)?;
        Ok(stored(key, row))
    }

    /// Returns the versions of a group, the newest first. A removed group keeps its versions.
    ///
    /// # Errors
    /// [`RuleGroupError::NotFound`] without any version, or [`RuleGroupError::Store`].
    pub fn rule_group_versions(
        &self,
        place: &RuleGroupPlace,
    ) -> Result<Vec<RuleGroupVersion>, RuleGroupError> {
        let versions = self.rule_versions_of(&key_of(place))?;
        if versions.is_empty() { Err(RuleGroupError::NotFound) } else { Ok(versions) }
    }

    /// Returns the text of a version.
    ///
    /// # Errors
    /// [`RuleGroupError::NotFound`] without any version, [`RuleGroupError::NoVersion`] without this
    /// one, or [`RuleGroupError::Store`].
    pub fn rule_group_text(&self, place: &RuleGroupPlace, version: u32) -> Result<String, RuleGroupError> {
        match self.rule_text_of(&key_of(place), version)? {
            Some(text) => Ok(text),
            None => Err(self.rule_group_versions(place).err().unwrap_or(RuleGroupError::NoVersion(version))),
        }
    }

    /// Creates or replaces a group. The version that it replaces is stored in the same change. The
    /// caller must check the text, and that `actor` may edit. Blocks (commits).
    ///
    /// # Errors
    /// [`RuleGroupError`]; then nothing is changed.
    pub fn set_rule_group(
        &self,
        actor: AlertingActor,
        place: RuleGroupPlace,
        new: NewRuleGroup,
        now: Timestamp,
    ) -> Result<RuleGroupWrite, RuleGroupError> {
        self.store_long_rule_text(&key_of(&place))?;
        let org = place.org;
        let written = self.change(move |txn| {
            read::<OrgRow>(txn, &place.org)?.ok_or(RuleGroupError::UnknownOrg)?;
            let key = key_of(&place);
            let rows = txn.scan::<RuleGroupRow>(&place.org).map_err(StoreError::from)?;
            let before = rows.iter().find(|(other, _)| *other == key).map(|(_, row)| row);
            check_version(before, new.expected)?;
            let others = rows.iter().filter(|(other, _)| *other != key);
            let (mut groups, mut rules, mut bytes) = (1, new.rules, new.yaml.len());
            for (_, row) in others {
                groups += 1;
                rules = rules.saturating_add(row.rules);
                bytes += row.yaml.len();
            }
            match () {
                () if groups > RULE_GROUPS_STORED_MAX => return Err(RuleGroupError::TooManyGroups),
                () if rules > RULES_STORED_MAX => return Err(RuleGroupError::TooManyRules),
                () if bytes > RULE_TEXTS_BYTES_MAX => return Err(RuleGroupError::TooLarge),
                () => {}
            }
            let is_new = before.is_none();
            let next = rule_version::replace(txn, &key, before, now)?;
            let row = RuleGroupRow {
                yaml: new.yaml,
                rules: new.rules,
                version: next.version,
                updated_at: next.valid_from,
                updated_by: actor.user(),
            };
            txn.put(&key, &row);
            let event = actor.event(if is_new { "rules.created" } else { "rules.changed" });
            let event = event.of(place.org).target(&place.name);
            audit::record(txn, &event.detail(&place.namespace), now)?;
            Ok::<_, RuleGroupError>(RuleGroupWrite { group: stored(key, row), is_new })
        })?;
        self.trim_rule_versions(org);
        Ok(written)
    }

    /// Removes a group. The versions stay. Blocks (commits).
    ///
    /// # Errors
    /// [`RuleGroupError`]; then nothing is changed.
    pub fn remove_rule_group(
        &self,
        actor: AlertingActor,
        place: RuleGroupPlace,
        expected: ExpectedVersion,
        now: Timestamp,
    ) -> Result<(), RuleGroupError> {
        let org = place.org;
        self.remove_one_rule_group(actor, place, expected, now)?;
        self.trim_rule_versions(org);
        Ok(())
    }

    fn remove_one_rule_group(
        &self,
        actor: AlertingActor,
        place: RuleGroupPlace,
        expected: ExpectedVersion,
        now: Timestamp,
    ) -> Result<(), RuleGroupError> {
        self.store_long_rule_text(&key_of(&place))?;
        self.change(move |txn| {
            // After the deletion of the organisation its history would never be removed.
            read::<OrgRow>(txn, &place.org)?.ok_or(RuleGroupError::UnknownOrg)?;
            let key = key_of(&place);
            let row = read::<RuleGroupRow>(txn, &key)?.ok_or(RuleGroupError::NotFound)?;
            check_version(Some(&row), Some(expected))?;
            rule_version::replace(txn, &key, Some(&row), now)?;
            txn.remove::<RuleGroupRow>(&key);
            let event = actor.event("rules.removed").of(place.org).target(&place.name);
            Ok(audit::record(txn, &event.detail(&place.namespace), now)?)
        })
    }

    /// Removes all groups of a namespace one after another, and calls `removed` for each. `now`
    /// returns the time of each removal. Blocks (commits).
    ///
    /// # Errors
    /// [`RuleGroupError`]; then the groups before it are removed.
    pub fn remove_rule_namespace(
        &self,
        actor: AlertingActor,
        (org, namespace): (OrgId, String),
        now: impl Fn() -> Timestamp,
        mut removed: impl FnMut(&RuleGroupPlace),
    ) -> Result<(), RuleGroupError> {
        let rows = self.rows::<RuleGroupRow>(&(org, namespace))?;
        if rows.is_empty() {
            return Err(RuleGroupError::NotFound);
        }
        for (key, row) in rows {
            let place = stored(key, row).place;
            let gone = self.remove_one_rule_group(actor, place.clone(), ExpectedVersion::Any, now());
            match gone {
                Ok(()) => removed(&place),
                // Another request removed the group meanwhile.
                Err(RuleGroupError::NotFound) => {}
                Err(error) => return Err(error),
            }
        }
        self.trim_rule_versions(org);
        Ok(())
    }
}
