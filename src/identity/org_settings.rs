//! An organisation's own limits: which there are, who may change them, and all of them in memory (docs/specification.md C3).
//!
//! No request reads the store to know what its organisation may ask: after every change an organisation's settings are
//! loaded again from what is stored, under the lock, so that two changes at once leave what the later one stored.

use std::collections::HashMap;
use std::sync::{RwLock, RwLockWriteGuard};

use crate::model::{OrgId, Timestamp};
use crate::sync::IgnorePoison as _;

use super::audit::{self, Event};
use super::name::{self, NameError};
use super::org::OrgRow;
use super::store::read;
use super::user::active;
use super::{Identity, Limit, Org, OrgSettings, StoreError, UserId};

macro_rules! settings {
    ($($name:ident $field:ident,)+) => {
        /// One of [`OrgSettings`], by name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Setting {
            $(#[doc = concat!("`", stringify!($field), "`")] $name,)+
        }

        impl Setting {
            /// All, in the order of docs/specification.md C3.
            pub const ALL: &[Setting] = &[$(Setting::$name,)+];

            /// As the API writes it.
            pub const fn as_str(self) -> &'static str {
                match self { $(Setting::$name => stringify!($field),)+ }
            }
        }

        impl OrgSettings {
            /// One of them.
            pub const fn limit(&self, setting: Setting) -> Limit {
                match setting { $(Setting::$name => self.$field,)+ }
            }

            /// The same with one of them changed.
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
    /// The number that holds, where `default` is the server's; `None` is no limit.
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

/// What to change of an organisation; what is not named stays.
#[derive(Clone, Debug, Default)]
pub struct OrgChange {
    /// What people call it; at most 200 bytes.
    pub name: Option<String>,
    /// Its limits.
    pub settings: Vec<(Setting, Limit)>,
}

/// Why an organisation was not changed.
#[derive(Debug, thiserror::Error)]
pub enum OrgChangeError {
    /// It is gone: `org_not_found`.
    #[error("no such organisation")]
    UnknownOrg,
    /// The account of who asks is gone or disabled.
    #[error("no such account")]
    UnknownUser,
    /// The name is longer than 200 bytes: `validation_failed`.
    #[error(transparent)]
    Name(#[from] NameError),
    /// Only the instance administrator raises a limit above the server's default: `forbidden`.
    #[error("only the instance administrator raises {} above the server's default", .0.as_str())]
    AboveDefault(Setting),
    /// `storage_degraded`.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The settings of organisations that have any of their own.
#[derive(Debug, Default)]
pub(super) struct InMemory(RwLock<HashMap<OrgId, OrgSettings>>);

impl InMemory {
    /// Of one that is gone.
    pub(super) fn forget(&self, org: OrgId) {
        self.write().remove(&org);
    }

    fn write(&self) -> RwLockWriteGuard<'_, HashMap<OrgId, OrgSettings>> {
        self.0.write().ignore_poison()
    }
}

impl Identity {
    /// Loads all settings.
    pub(super) fn load_org_settings(&self) -> Result<(), StoreError> {
        let mut settings = self.org_settings.write();
        for org in self.orgs()? {
            settings.insert(org.id, org.settings);
        }
        settings.retain(|_, own| *own != OrgSettings::default());
        Ok(())
    }

    /// An organisation's own limits; the default for one that has none or is not there. Touches memory only.
    pub fn org_settings(&self, org: OrgId) -> OrgSettings {
        self.org_settings.0.read().ignore_poison().get(&org).cloned().unwrap_or_default()
    }

    /// Changes an organisation. That `actor` administers it is for the caller to see to (`None` is the command line);
    /// `defaults` is what the server says, a number or none: everybody may lower, only the instance administrator may
    /// raise above it. Blocks (commit).
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
            let mut said = Vec::new();
            if let Some(name) = change.name {
                row.name = name::parse(&name)?;
                said.push("name".to_owned());
            }
            for (setting, limit) in change.settings {
                if !is_admin && raises(row.settings.limit(setting), limit, defaults.limit(setting)) {
                    return Err(OrgChangeError::AboveDefault(setting));
                }
                row.settings = row.settings.with(setting, limit);
                said.push(format!("{}={limit}", setting.as_str()));
            }
            txn.put(&org, &row);
            let event = Event::by_actor(actor, "settings.changed").of(org).target(&row.slug);
            audit::note(txn, &event.detail(&said.join(" ")), now)?;
            Ok::<_, OrgChangeError>(())
        })?;
        let mut settings = self.org_settings.write();
        let stored = self.row::<OrgRow>(&org)?.ok_or(OrgChangeError::UnknownOrg)?.view(org)?;
        settings.insert(org, stored.settings.clone());
        Ok(stored)
    }
}

/// Whether `to` lets through more than both the server's default and what holds now.
fn raises(from: Limit, to: Limit, default: Limit) -> bool {
    let default = default.or(None);
    let number = |limit: Limit| limit.or(default).unwrap_or(u64::MAX);
    number(to) > number(from).max(default.unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lowering_is_free_and_raising_ends_at_the_default_or_at_what_holds() {
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
    fn every_setting_is_its_own_field() {
        for (place, one) in Setting::ALL.iter().enumerate() {
            let changed = OrgSettings::default().with(*one, Limit::At(7));
            for (other_place, other) in Setting::ALL.iter().enumerate() {
                let expected = if place == other_place { Limit::At(7) } else { Limit::Default };
                assert_eq!(changed.limit(*other), expected, "{} of {}", other.as_str(), one.as_str());
            }
        }
    }
}
