//! An organisation's own limits: the settings, their permissions, and a copy in memory
//! (docs/specification.md C3).
//!
//! No request reads the store for its organisation's limits. After every change an organisation's
//! settings are loaded again from the store under the lock, so that the copy holds the later of two
//! concurrent changes.

use std::collections::HashMap;
use std::sync::{RwLock, RwLockWriteGuard};

use crate::model::{OrgId, Timestamp};
use crate::sync::IgnorePoison as _;

use crate::identity::Identity;
use crate::identity::audit::{self, Event};
use crate::identity::tables::id::UserId;
use crate::identity::tables::name::{self, NameError};
use crate::identity::tables::org::{Limit, Org, OrgRow, OrgSettings};
use crate::identity::tables::store::{StoreError, read};
use crate::identity::tables::user::active;

macro_rules! settings {
    ($($name:ident $field:ident,)+) => {
        /// The name of one field of [`OrgSettings`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Setting {
            $(#[doc = concat!("`", stringify!($field), "`")] $name,)+
        }

        impl Setting {
            /// All settings, in the order of docs/specification.md C3.
            pub const ALL: &[Setting] = &[$(Setting::$name,)+];

            /// Returns the name used in the API.
            pub const fn as_str(self) -> &'static str {
                match self { $(Setting::$name => stringify!($field),)+ }
            }
        }

        impl OrgSettings {
            /// Returns the value of a setting.
            pub const fn limit(&self, setting: Setting) -> Limit {
                match setting { $(Setting::$name => self.$field,)+ }
            }

            /// Returns the settings with one value replaced.
            #[must_use]
            pub const fn with(mut self, setting: Setting, limit: Limit) -> OrgSettings {
                match setting { $(Setting::$name => self.$field = limit,)+ }
                self
            }
        }
    };
}

settings! {
    RetentionDays retention_days,
    RetentionBytes retention_bytes,
    MaxSeries max_series,
    MaxNewSeriesPerS max_new_series_per_s,
    MaxLabels max_labels,
    MaxLabelValueBytes max_label_value_bytes,
    MaxDiskBytes max_disk_bytes,
    MaxMemoryBytes max_memory_bytes,
    MaxSamplesPerQuery max_samples_per_query,
    QueryTimeoutS query_timeout_s,
    OooWindowS ooo_window_s,
}

impl Limit {
    /// Returns the effective number, given the server's `default`; `None` is no limit.
    pub const fn or(self, default: Option<u64>) -> Option<u64> {
        match self {
            Limit::Default => default,
            Limit::Unlimited => None,
            Limit::At(number) => Some(number),
        }
    }
}

impl std::fmt::Display for Limit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Limit::Default => f.write_str("default"),
            Limit::Unlimited => f.write_str("none"),
            Limit::At(number) => number.fmt(f),
        }
    }
}

/// A change of an organisation; settings that are not listed stay.
#[derive(Clone, Debug, Default)]
pub struct OrgChange {
    /// Display name; at most 200 bytes.
    pub name: Option<String>,
    /// New limits.
    pub settings: Vec<(Setting, Limit)>,
    /// Whether public links of dashboards may be created and used.
    pub public_links: Option<bool>,
}

/// Errors of changing an organisation.
#[derive(Debug, thiserror::Error)]
pub enum OrgChangeError {
    /// The organisation no longer exists: `org_not_found`.
    #[error("no such organisation")]
    UnknownOrg,
    /// The actor's account is deleted or disabled.
    #[error("no such account")]
    UnknownUser,
    /// The name is longer than 200 bytes: `validation_failed`.
    #[error(transparent)]
    Name(#[from] NameError),
    /// Only the instance administrator raises a limit above the server's default: `forbidden`.
    #[error("only the instance administrator may raise {} above the server's default", .0.as_str())]
    AboveDefault(Setting),
    /// `storage_degraded`.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The settings of organisations that have any of their own.
#[derive(Debug, Default)]
pub(in crate::identity) struct SettingsCache(RwLock<HashMap<OrgId, OrgSettings>>);

impl SettingsCache {
    /// Removes the settings of a deleted organisation.
    pub(in crate::identity) fn forget(&self, org: OrgId) {
        self.write().remove(&org);
    }

    fn write(&self) -> RwLockWriteGuard<'_, HashMap<OrgId, OrgSettings>> {
        self.0.write().ignore_poison()
    }
}

impl Identity {
    /// Loads all settings.
    pub(in crate::identity) fn load_org_settings(&self) -> Result<(), StoreError> {
        let mut settings = self.org_settings.write();
        let stored = self.orgs()?.into_iter().map(|org| (org.id, org.settings));
        *settings = stored.filter(|(_, own)| *own != OrgSettings::default()).collect();
        Ok(())
    }

    /// Returns an organisation's own limits; the default if it has none or does not exist. Does not
    /// access the disk.
    pub fn org_settings(&self, org: OrgId) -> OrgSettings {
        self.org_settings.0.read().ignore_poison().get(&org).cloned().unwrap_or_default()
    }

    /// Changes an organisation. The caller must check that `actor` administers it (`None` is the
    /// command line). `defaults` are the server's limits, each a number or none: every
    /// administrator may lower a limit, only the instance administrator may raise it above the
    /// default. Blocks (commit).
    ///
    /// # Errors
    /// [`OrgChangeError`]; then nothing is changed.
    pub fn change_org(
        &self,
        actor: Option<UserId>,
        org: OrgId,
        change: OrgChange,
        defaults: &OrgSettings,
        now: Timestamp,
    ) -> Result<Org, OrgChangeError> {
        let defaults = defaults.clone();
        self.change(move |txn| {
            let is_admin = match actor {
                Some(actor) => active(txn, actor)?.ok_or(OrgChangeError::UnknownUser)?.is_admin,
                None => true,
            };
            let mut row = read::<OrgRow>(txn, &org)?.ok_or(OrgChangeError::UnknownOrg)?;
            let mut changes = Vec::new();
            if let Some(name) = change.name {
                row.name = name::parse(&name)?;
                changes.push("name".to_owned());
            }
            for (setting, limit) in change.settings {
                if !is_admin && raises(row.settings.limit(setting), limit, defaults.limit(setting)) {
                    return Err(OrgChangeError::AboveDefault(setting));
                }
                row.settings = row.settings.with(setting, limit);
                changes.push(format!("{}={limit}", setting.as_str()));
            }
            if let Some(public_links) = change.public_links {
                row.settings.public_links = public_links;
                changes.push(format!("public_links={public_links}"));
            }
            txn.put(&org, &row);
            let event = Event::by_actor(actor, "settings.changed").of(org).target(&row.slug);
            audit::record(txn, &event.detail(&changes.join(" ")), now)?;
            Ok::<_, OrgChangeError>(())
        })?;
        let mut settings = self.org_settings.write();
        let stored = self.row::<OrgRow>(&org)?.ok_or(OrgChangeError::UnknownOrg)?.view(org)?;
        settings.insert(org, stored.settings.clone());
        Ok(stored)
    }
}

/// Returns whether `to` exceeds both the server's default and the current value.
fn raises(from: Limit, to: Limit, default: Limit) -> bool {
    let default = default.or(None);
    let number = |limit: Limit| limit.or(default).unwrap_or(u64::MAX);
    number(to) > number(from).max(default.unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_may_be_lowered_and_raised_up_to_the_default_or_the_current_value() {
        use Limit::{At, Default, Unlimited};
        let cases = [
            (Default, At(10), At(10), false),
            (Default, At(11), At(10), true),
            (Default, Unlimited, At(10), true),
            (At(3), Default, At(10), false),
            (At(3), At(10), At(10), false),
            (At(50), At(49), At(10), false),
            (At(50), At(51), At(10), true),
            (Unlimited, At(50), At(10), false),
            (At(50), Default, At(10), false),
            (Default, At(1), Unlimited, false),
            (At(1), Unlimited, Unlimited, false),
        ];
        for (from, to, default, raised) in cases {
            assert_eq!(raises(from, to, default), raised, "{from} to {to}, default {default}");
        }
    }

    #[test]
    fn every_setting_has_its_own_field() {
        for (index, one) in Setting::ALL.iter().enumerate() {
            let changed = OrgSettings::default().with(*one, Limit::At(7));
            for (other_index, other) in Setting::ALL.iter().enumerate() {
                let expected = if index == other_index { Limit::At(7) } else { Limit::Default };
                assert_eq!(changed.limit(*other), expected, "{} of {}", other.as_str(), one.as_str());
            }
        }
    }
}
