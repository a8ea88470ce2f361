//! The notifications of an organisation: the stored configuration and state
//! (docs/specification.md C14). Their meaning belongs to the room `notify`.

use std::collections::BTreeSet;

use crate::entropy::Entropy;
use crate::model::{OrgId, Timestamp};

use crate::identity::Identity;
use crate::identity::audit::{self, Event};
use crate::identity::tables::id::{KeyId, UserId};
use crate::identity::tables::master::SealedFor;
use crate::identity::tables::notify::{NotifyDocumentRow, NotifyStateRow};
use crate::identity::tables::org::OrgRow;
use crate::identity::tables::store::{StoreError, read};

/// The most rows that one commit changes.
const ROWS_A_COMMIT: usize = 2_000;

/// A stored configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredNotifications {
    /// The JSON text with its secrets; `None` if it was sealed with another master key.
    pub text: Option<String>,
    /// Increases with each change; never 0.
    pub version: u32,
    /// The time of the last change.
    pub updated_at: Timestamp,
}

/// A change of one row of the state; `value` is `None` to remove it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotifyStateChange {
    /// The kind.
    pub kind: u8,
    /// The id, unique within the kind.
    pub id: [u8; 16],
    /// The new value.
    pub value: Option<Vec<u8>>,
}

/// The credential that changes silences or acknowledges alerts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlertActor {
    /// An account.
    User(UserId),
    /// An API key.
    Key(KeyId),
}

/// Errors of storing a configuration.
#[derive(Debug, thiserror::Error)]
pub enum NotificationsError {
    /// The organisation no longer exists: `org_not_found`.
    #[error("no such organisation")]
    UnknownOrg,
    /// 412 `version_conflict`.
    #[error("the stored version is {stored}, not the one that this change replaces")]
    Version {
        /// The stored version; 0 if none is stored.
        stored: u32,
    },
    /// `storage_degraded`.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Kind, id and value of a row of the state of notifications.
pub type StoredNotifyState = (u8, [u8; 16], Vec<u8>);

impl Identity {
    /// Returns the configuration of an organisation's notifications.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn notifications(&self, org: OrgId) -> Result<Option<StoredNotifications>, StoreError> {
        let Some(row) = self.row::<NotifyDocumentRow>(&org)? else { return Ok(None) };
        let id = org.0.to_be_bytes();
        let text = self.sealing.open(SealedFor { kind: "notify", id: &id }, &row.sealed);
        let text = text.ok().and_then(|text| String::from_utf8(text).ok());
        Ok(Some(StoredNotifications { text, version: row.version, updated_at: row.updated_at }))
    }

    /// Stores a configuration. `replaces` is the version that it replaces, 0 for none. The caller
    /// must check that `actor` administers the organisation. Blocks (commit).
    ///
    /// # Errors
    /// [`NotificationsError`]; then nothing is changed.
    pub fn set_notifications(
        &self,
        actor: UserId,
        org: OrgId,
        (text, replaces): (&str, u32),
        now: Timestamp,
        rng: &mut Entropy,
    ) -> Result<u32, NotificationsError> {
        let id = org.0.to_be_bytes();
        let sealed = self.sealing.seal(SealedFor { kind: "notify", id: &id }, text.as_bytes(), rng);
        self.change(move |txn| {
            read::<OrgRow>(txn, &org)?.ok_or(NotificationsError::UnknownOrg)?;
            let stored = read::<NotifyDocumentRow>(txn, &org)?.map_or(0, |row| row.version);
            if replaces != stored {
                return Err(NotificationsError::Version { stored });
            }
            let version = stored.wrapping_add(1).max(1);
            let row = NotifyDocumentRow { sealed, version, updated_at: now, updated_by: Some(actor) };
            txn.put(&org, &row);
            let event = Event::by(actor, "notifications.changed").of(org);
            audit::record(txn, &event.detail(&format!("version {version}")), now)?;
            Ok(version)
        })
    }

    /// Returns the organisations with a configuration or a state of notifications.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn orgs_with_notifications(&self) -> Result<BTreeSet<OrgId>, StoreError> {
        let mut orgs: BTreeSet<OrgId> =
            self.rows::<NotifyDocumentRow>(&())?.into_iter().map(|(org, _)| org).collect();
        orgs.extend(self.rows::<NotifyStateRow>(&())?.into_iter().map(|((org, _, _), _)| org));
        Ok(orgs)
    }

    /// Returns the state of an organisation's notifications: kind, id and value of each row.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn notify_state(&self, org: OrgId) -> Result<Vec<StoredNotifyState>, StoreError> {
        let rows = self.rows::<NotifyStateRow>(&org)?;
        Ok(rows.into_iter().map(|((_, kind, id), row)| (kind, id, row.value)).collect())
    }

    /// Changes rows of the state. Has no effect if the organisation does not exist. Blocks
    /// (commit).
    ///
    /// # Errors
    /// [`StoreError`]. Up to [`ROWS_A_COMMIT`] changes are stored together or not at all.
    pub fn change_notify_state(&self, org: OrgId, changes: Vec<NotifyStateChange>) -> Result<(), StoreError> {
        let mut changes = changes.into_iter();
        loop {
            let some: Vec<NotifyStateChange> = changes.by_ref().take(ROWS_A_COMMIT).collect();
            if some.is_empty() {
                return Ok(());
            }
            self.change(move |txn| {
                if read::<OrgRow>(txn, &org)?.is_none() {
                    return Ok(());
                }
                for NotifyStateChange { kind, id, value } in some {
                    let key = (org, kind, id);
                    match value {
                        Some(value) => txn.put(&key, &NotifyStateRow { value }),
                        None => txn.remove::<NotifyStateRow>(&key),
                    };
                }
                Ok::<_, StoreError>(())
            })?;
        }
    }

    /// Records an action on silences or alerts in the audit log. Blocks (commit).
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn note_alert_action(
        &self,
        actor: AlertActor,
        (org, action): (OrgId, &'static str),
        target: &str,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let event = match actor {
            AlertActor::User(user) => Event::by(user, action),
            AlertActor::Key(key) => Event::unattributed(action).by_key(key),
        };
        let event = event.of(org).target(target);
        self.change(move |txn| audit::record(txn, &event, now))
    }
}
