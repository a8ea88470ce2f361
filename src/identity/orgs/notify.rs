//! The notifications of an organisation: the stored configuration and state
//! (docs/specification.md C14). Their meaning belongs to the room `notify`.

use std::collections::BTreeSet;

use crate::entropy::Entropy;
use crate::kv::VALUE_BODY_BYTES_MAX;
use crate::model::{OrgId, Timestamp};

use crate::identity::Identity;
use crate::identity::audit::event::AlertingActor;
use crate::identity::audit::{self, Event};
use crate::identity::tables::compressed::{packed, unpacked};
use crate::identity::tables::id::UserId;
use crate::identity::tables::master::SealedFor;
use crate::identity::tables::notify::{NotifyDocumentRow, NotifyStateRow};
use crate::identity::tables::org::OrgRow;
use crate::identity::tables::store::{StoreError, read};

/// The most bytes of a value of the state, inclusive: with its length, a stored value.
const STATE_BYTES_MAX: usize = VALUE_BODY_BYTES_MAX - 16;

/// The most bytes of the text of a configuration, inclusive; the room `notify` allows less.
const DOCUMENT_BYTES_MAX: usize = 1 << 20;

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
    /// The text cannot be compressed: `body_too_large`.
    #[error("the configuration is too large")]
    TooLarge,
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
        let text = text.ok().and_then(|text| unpacked(text, DOCUMENT_BYTES_MAX));
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
        let packed = packed(text).map_err(|_| NotificationsError::TooLarge)?;
        let sealed = self.sealing.seal(SealedFor { kind: "notify", id: &id }, &packed, rng);
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

    /// Changes rows of the state. Has no effect if the organisation does not exist. A value that is
    /// too long for a row is left out and logged, so that it does not hold up the others. Blocks
    /// (commits).
    ///
    /// # Errors
    /// [`StoreError`]. The changes are stored in order, in as few commits as they fit in, so those
    /// before a failure may be stored.
    pub fn change_notify_state(
        &self,
        org: OrgId,
        mut changes: Vec<NotifyStateChange>,
    ) -> Result<(), StoreError> {
        changes.retain(|change| {
            let bytes = change.value.as_ref().map_or(0, Vec::len);
            let fits = bytes <= STATE_BYTES_MAX;
            if !fits {
                let kind = change.kind;
                tracing::warn!(org = org.0, kind, bytes, "a row of the state of notifications is too long");
            }
            fits
        });
        self.change_each(&changes, move |txn, change| {
            if read::<OrgRow>(txn, &org)?.is_none() {
                return Ok(());
            }
            let key = (org, change.kind, change.id);
            match &change.value {
                Some(value) => txn.put(&key, &NotifyStateRow { value: value.clone() }),
                None => txn.remove::<NotifyStateRow>(&key),
            }
            Ok(())
        })
    }

    /// Records an action on silences or alerts in the audit log. Blocks (commit).
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn note_alert_action(
        &self,
        actor: AlertingActor,
        (org, action): (OrgId, &'static str),
        target: &str,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let event = actor.event(action).of(org).target(target);
        self.change(move |txn| audit::record(txn, &event, now))
    }
}
