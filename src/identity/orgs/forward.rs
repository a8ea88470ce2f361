//! The forwarding targets of an organisation (docs/specification.md C12).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::RwLock;

use crate::entropy::Entropy;
use crate::model::{OrgId, Target, Timestamp};
use crate::sync::IgnorePoison as _;

use crate::identity::Identity;
use crate::identity::audit::{self, Event};
use crate::identity::tables::forward::ForwardRow;
use crate::identity::tables::id::UserId;
use crate::identity::tables::master::SealedFor;
use crate::identity::tables::moving::{MoveRow, MoveStep};
use crate::identity::tables::org::OrgRow;
use crate::identity::tables::store::{StoreError, read};
use crate::identity::tables::target::SealedTarget;

/// The most targets of an organisation, inclusive.
pub const FORWARD_TARGETS_MAX: usize = 16;

/// A forwarding target.
#[derive(Clone, Debug, PartialEq)]
pub struct ForwardTarget {
    /// The number, from 1.
    pub number: u32,
    /// The name.
    pub name: String,
    /// The server; `None` if it cannot be unsealed with this master key.
    pub target: Option<Target>,
    /// `auto`, `rw1` or `rw2`.
    pub protocol: String,
    /// `snappy` or `zstd`.
    pub compression: String,
    /// The relabelling rules as JSON.
    pub rules: String,
    /// Whether samples are sent. A disabled target keeps its place in the log.
    pub enabled: bool,
    /// The first log record that is sent.
    pub from_seq: u64,
    /// Increases with each change; never 0.
    pub version: u32,
    /// The time of the last change.
    pub updated_at: Timestamp,
}

/// A new or changed target.
#[derive(Clone, Debug)]
pub struct NewForwardTarget {
    /// The name.
    pub name: String,
    /// A target that [`Target::check`] accepts.
    pub target: Target,
    /// The same as [`ForwardTarget::protocol`].
    pub protocol: String,
    /// The same as [`ForwardTarget::compression`].
    pub compression: String,
    /// The same as [`ForwardTarget::rules`].
    pub rules: String,
    /// The same as [`ForwardTarget::enabled`].
    pub enabled: bool,
    /// The same as [`ForwardTarget::from_seq`]. A change keeps the stored number.
    pub from_seq: u64,
}

/// Errors of changing a target.
#[derive(Debug, thiserror::Error)]
pub enum ForwardTargetError {
    /// The organisation no longer exists: `org_not_found`.
    #[error("no such organisation")]
    UnknownOrg,
    /// `not_found`.
    #[error("no such forwarding target")]
    NotFound,
    /// `already_exists`.
    #[error("a forwarding target of this name exists")]
    Exists,
    /// `limit_reached`.
    #[error("an organisation has at most {FORWARD_TARGETS_MAX} forwarding targets")]
    TooMany,
    /// 409 `conflict`.
    #[error("this organisation is moved to the same target, which already gets its samples")]
    MovedThere,
    /// `storage_degraded`.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The organisations with an enabled target, in memory.
#[derive(Debug, Default)]
pub(in crate::identity) struct ForwardingOrgs(RwLock<BTreeSet<OrgId>>);

impl ForwardingOrgs {
    /// Removes a deleted organisation.
    pub(in crate::identity) fn forget(&self, org: OrgId) {
        self.0.write().ignore_poison().remove(&org);
    }
}

/// The record that a target is sealed for: organisation and number.
fn id_of(org: OrgId, number: u32) -> [u8; 8] {
    let mut id = [0; 8];
    id[..4].copy_from_slice(&org.0.to_be_bytes());
    id[4..].copy_from_slice(&number.to_be_bytes());
    id
}

impl Identity {
    /// Returns whether an organisation has an enabled target. Does not access the disk.
    pub fn is_forwarding(&self, org: OrgId) -> bool {
        self.forwarding.0.read().ignore_poison().contains(&org)
    }

    /// Loads which organisations have an enabled target.
    pub(in crate::identity) fn load_forwarding(&self) -> Result<(), StoreError> {
        // Rows are read under the lock, so the rows of the last change are the ones that stay.
        let mut known = self.forwarding.0.write().ignore_poison();
        let enabled = self.rows::<ForwardRow>(&())?.into_iter().filter(|(_, row)| row.enabled);
        *known = enabled.map(|((org, _), _)| org).collect();
        Ok(())
    }

    /// Returns the targets of an organisation in order of number.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn forward_targets(&self, org: OrgId) -> Result<Vec<ForwardTarget>, StoreError> {
        let rows = self.rows::<ForwardRow>(&org)?;
        Ok(rows.into_iter().map(|((org, number), row)| self.open_forward(org, number, row)).collect())
    }

    /// Returns the targets of all organisations.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn all_forward_targets(&self) -> Result<Vec<(OrgId, ForwardTarget)>, StoreError> {
        let rows = self.rows::<ForwardRow>(&())?;
        Ok(rows.into_iter().map(|((org, number), row)| (org, self.open_forward(org, number, row))).collect())
    }

    /// Returns one target.
    ///
    /// # Errors
    /// [`ForwardTargetError::NotFound`] or [`ForwardTargetError::Store`].
    pub fn forward_target(&self, org: OrgId, number: u32) -> Result<ForwardTarget, ForwardTargetError> {
        let row = self.row::<ForwardRow>(&(org, number))?.ok_or(ForwardTargetError::NotFound)?;
        Ok(self.open_forward(org, number, row))
    }

    fn open_forward(&self, org: OrgId, number: u32, row: ForwardRow) -> ForwardTarget {
        let id = id_of(org, number);
        let target = row.target.open(SealedFor { kind: "forward", id: &id }, &self.sealing);
        let ForwardRow { name, protocol, compression, rules, enabled, from_seq, version, updated_at, .. } =
            row;
        let target = target.ok();
        ForwardTarget {
            number,
            name,
            target,
            protocol,
            compression,
            rules,
            enabled,
            from_seq,
            version,
            updated_at,
        }
    }

    /// Creates a target (`number` is `None`) or replaces one. The caller must check that `actor`
    /// administers the organisation. Blocks (commit).
    ///
    /// # Errors
    /// [`ForwardTargetError`]; then nothing is changed.
    pub fn set_forward_target(
        &self,
        actor: Option<UserId>,
        (org, number): (OrgId, Option<u32>),
        new: NewForwardTarget,
        now: Timestamp,
        rng: &mut Entropy,
    ) -> Result<ForwardTarget, ForwardTargetError> {
        // The target is sealed for its number, so the number is chosen before the change, which
        // refuses it if another request took it meanwhile.
        let next = self.rows::<ForwardRow>(&org)?.last().map_or(1, |((_, last), _)| last.saturating_add(1));
        let is_new = number.is_none();
        let number = number.unwrap_or(next);
        let id = id_of(org, number);
        let sealed =
            SealedTarget::seal(&new.target, SealedFor { kind: "forward", id: &id }, &self.sealing, rng);
        let (host, place) = (new.target.url.authority(), new.target.place());
        let stored = self.change(move |txn| {
            read::<OrgRow>(txn, &org)?.ok_or(ForwardTargetError::UnknownOrg)?;
            let moved = read::<MoveRow>(txn, &org)?.filter(|row| row.step != MoveStep::Returned);
            if new.enabled && moved.is_some_and(|row| row.place == place) {
                return Err(ForwardTargetError::MovedThere);
            }
            let rows = txn.scan::<ForwardRow>(&org).map_err(StoreError::from)?;
            if rows.iter().any(|((_, other), row)| *other != number && row.name == new.name) {
                return Err(ForwardTargetError::Exists);
            }
            let before = rows.iter().find(|((_, other), _)| *other == number).map(|(_, row)| row);
            match before {
                None if !is_new => return Err(ForwardTargetError::NotFound),
                // Another request created the target meanwhile.
                Some(_) if is_new => return Err(ForwardTargetError::Exists),
                None if rows.len() >= FORWARD_TARGETS_MAX => return Err(ForwardTargetError::TooMany),
                _ => {}
            }
            let row = ForwardRow {
                name: new.name,
                target: sealed,
                protocol: new.protocol,
                compression: new.compression,
                rules: new.rules,
                enabled: new.enabled,
                from_seq: before.map_or(new.from_seq, |before| before.from_seq),
                version: before.map_or(1, |before| before.version.wrapping_add(1).max(1)),
                updated_at: now,
                updated_by: actor,
            };
            txn.put(&(org, number), &row);
            let event = Event::by_actor(actor, if is_new { "forward.created" } else { "forward.changed" });
            audit::record(txn, &event.of(org).target(&row.name).detail(&host), now)?;
            Ok(row)
        })?;
        self.load_forwarding()?;
        Ok(self.open_forward(org, number, stored))
    }

    /// Stores the first log records that targets still need: organisation, number, record. A
    /// position only moves forward. Blocks (commit) if one moved.
    ///
    /// # Errors
    /// [`StoreError`]; then nothing is changed.
    pub fn set_forward_positions(&self, positions: &[(OrgId, u32, u64)]) -> Result<(), StoreError> {
        let rows: BTreeMap<_, _> = self.rows::<ForwardRow>(&())?.into_iter().collect();
        let stored = |org, number| rows.get(&(org, number)).map(|row| row.from_seq);
        let has_moved = |(org, number, at): &&(OrgId, u32, u64)| stored(*org, *number) < Some(*at);
        let moved: Vec<_> = positions.iter().filter(has_moved).copied().collect();
        if moved.is_empty() {
            return Ok(());
        }
        self.change(move |txn| {
            for (org, number, at) in moved {
                if let Some(row) = read::<ForwardRow>(txn, &(org, number))? {
                    txn.put(&(org, number), &ForwardRow { from_seq: row.from_seq.max(at), ..row });
                }
            }
            Ok(())
        })
    }

    /// Removes a target. Blocks (commit).
    ///
    /// # Errors
    /// [`ForwardTargetError`]; then nothing is changed.
    pub fn remove_forward_target(
        &self,
        actor: Option<UserId>,
        org: OrgId,
        number: u32,
        now: Timestamp,
    ) -> Result<(), ForwardTargetError> {
        self.change(move |txn| {
            let row = read::<ForwardRow>(txn, &(org, number))?.ok_or(ForwardTargetError::NotFound)?;
            txn.remove::<ForwardRow>(&(org, number));
            let event = Event::by_actor(actor, "forward.removed").of(org).target(&row.name);
            audit::record(txn, &event, now)?;
            Ok::<_, ForwardTargetError>(())
        })?;
        Ok(self.load_forwarding()?)
    }
}
