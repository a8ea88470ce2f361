//! The stored state of moves to another engine and back.

use std::collections::BTreeSet;
use std::sync::RwLock;

use crate::entropy::Entropy;
use crate::model::{OrgId, Target, Timestamp};
use crate::sync::IgnorePoison as _;

use crate::identity::Identity;
use crate::identity::audit::{self, Event};
use crate::identity::orgs::forward::ForwardTarget;
use crate::identity::tables::engine::{EngineKind, EngineRow};
use crate::identity::tables::master::SealedFor;
use crate::identity::tables::moving::{MoveRow, MoveStep};
use crate::identity::tables::org::OrgRow;
use crate::identity::tables::store::{StoreError, read};

/// Errors of the state of a move.
#[derive(Debug, thiserror::Error)]
pub enum MoveStateError {
    /// The organisation no longer exists.
    #[error("the organisation no longer exists")]
    UnknownOrg,
    /// The organisation has a move that is not complete, or was moved and did not return.
    #[error("this organisation already has a move")]
    Exists,
    /// The move was stopped.
    #[error("this organisation has no move")]
    UnknownMove,
    /// Another server answers the organisation's queries.
    #[error(
        "older samples of this organisation are on another server: set its engine to local first, or move them there"
    )]
    OtherEngine,
    /// The organisation forwards its samples to the same target.
    #[error("this organisation already forwards its samples to this target ({0:?}): disable that first")]
    Forwards(String),
    /// The store of accounts failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The organisations whose samples another engine has, in memory.
#[derive(Debug, Default)]
pub(in crate::identity) struct MovedOrgs(RwLock<BTreeSet<OrgId>>);

impl MovedOrgs {
    fn set(&self, org: OrgId, is_moved: bool) {
        let mut all = self.0.write().ignore_poison();
        if is_moved {
            all.insert(org);
        } else {
            all.remove(&org);
        }
    }
}

fn sealed_for(org: &[u8; 4]) -> SealedFor<'_> {
    SealedFor { kind: "move", id: org }
}

impl Identity {
    /// Checks whether a move to the place of `target` can begin.
    ///
    /// # Errors
    /// [`MoveStateError`].
    pub fn check_move(&self, org: OrgId, target: &Target) -> Result<(), MoveStateError> {
        if self.row::<MoveRow>(&org)?.is_some_and(|row| row.step != MoveStep::Returned) {
            return Err(MoveStateError::Exists);
        }
        if self.row::<EngineRow>(&org)?.is_some() {
            return Err(MoveStateError::OtherEngine);
        }
        let place = target.place();
        let is_same = |other: &ForwardTarget| {
            other.enabled && other.target.as_ref().is_some_and(|target| target.place() == place)
        };
        match self.forward_targets(org)?.into_iter().find(is_same) {
            Some(other) => Err(MoveStateError::Forwards(other.name)),
            None => Ok(()),
        }
    }

    /// Stores a new move to `target`, the URL of which is that for remote write. `description` has
    /// the credentials of the target and is stored sealed. Blocks (commit).
    ///
    /// # Errors
    /// [`MoveStateError`]; then nothing is stored.
    pub fn begin_move(
        &self,
        org: OrgId,
        (target, description): (&Target, &[u8]),
        accept_differences: bool,
        now: Timestamp,
        rng: &mut Entropy,
    ) -> Result<MoveRow, MoveStateError> {
        self.check_move(org, target)?;
        let sealed = self.sealing.seal(sealed_for(&org.0.to_le_bytes()), description, rng);
        let row = MoveRow { accept_differences, ..MoveRow::new(sealed, target.place(), now) };
        let new = row.clone();
        self.change(move |txn| {
            let owner = read::<OrgRow>(txn, &org)?.ok_or(MoveStateError::UnknownOrg)?;
            if read::<MoveRow>(txn, &org)?.is_some_and(|row| row.step != MoveStep::Returned) {
                return Err(MoveStateError::Exists);
            }
            if read::<EngineRow>(txn, &org)?.is_some() {
                return Err(MoveStateError::OtherEngine);
            }
            txn.put(&org, &new);
            let event = Event::unattributed("move.started").of(org).target(&owner.slug);
            audit::record(txn, &event, now)?;
            Ok(())
        })?;
        Ok(row)
    }

    /// Returns the organisation's last move, if there was one.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn move_of(&self, org: OrgId) -> Result<Option<MoveRow>, StoreError> {
        self.row::<MoveRow>(&org)
    }

    /// Returns the last move of every organisation.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn moves(&self) -> Result<Vec<(OrgId, MoveRow)>, StoreError> {
        self.rows::<MoveRow>(&())
    }

    /// Returns the target of a move, as it was passed to [`Identity::begin_move`].
    ///
    /// # Errors
    /// [`StoreError::Sealed`] with another master key.
    pub fn move_target(&self, org: OrgId, row: &MoveRow) -> Result<Vec<u8>, StoreError> {
        Ok(self.sealing.open(sealed_for(&org.0.to_le_bytes()), &row.sealed_target)?)
    }

    /// Replaces the credentials of a move's target. `engine` replaces those of the organisation's
    /// engine; it is `None` before the switch. Blocks (commit).
    ///
    /// # Errors
    /// [`MoveStateError`]; then nothing is changed.
    pub fn renew_move_target(
        &self,
        org: OrgId,
        description: &[u8],
        engine: Option<&Target>,
        now: Timestamp,
        rng: &mut Entropy,
    ) -> Result<(), MoveStateError> {
        let sealed_target = self.sealing.seal(sealed_for(&org.0.to_le_bytes()), description, rng);
        let engine = engine.map(|target| self.seal_engine(org, target, rng));
        self.change(move |txn| {
            let owner = read::<OrgRow>(txn, &org)?.ok_or(MoveStateError::UnknownOrg)?;
            let row = read::<MoveRow>(txn, &org)?.ok_or(MoveStateError::UnknownMove)?;
            txn.put(&org, &MoveRow { sealed_target, ..row });
            if let (Some(target), Some(row)) = (engine, read::<EngineRow>(txn, &org)?) {
                let version = row.version.wrapping_add(1).max(1);
                txn.put(&org, &EngineRow { target, version, updated_at: now, updated_by: None, ..row });
            }
            let event = Event::unattributed("move.changed").of(org).target(&owner.slug);
            audit::record(txn, &event, now)?;
            Ok::<_, MoveStateError>(())
        })?;
        self.reload_engine(org)?;
        Ok(())
    }

    /// Stores the state of a move. Blocks (commit).
    ///
    /// # Errors
    /// [`MoveStateError`].
    pub fn save_move(&self, org: OrgId, row: &MoveRow) -> Result<(), MoveStateError> {
        let (row, is_moved) = (row.clone(), row.step.is_moved());
        self.change(move |txn| {
            read::<OrgRow>(txn, &org)?.ok_or(MoveStateError::UnknownOrg)?;
            txn.put(&org, &row);
            Ok::<_, MoveStateError>(())
        })?;
        self.moved.set(org, is_moved);
        Ok(())
    }

    /// Stores the state of a move together with the engine of the organisation: `target` answers
    /// its queries from now on, or this server if it is `None`. Blocks (commit).
    ///
    /// # Errors
    /// [`MoveStateError`]; then nothing is changed.
    pub fn switch_engine(
        &self,
        org: OrgId,
        row: &MoveRow,
        target: Option<&Target>,
        now: Timestamp,
        rng: &mut Entropy,
    ) -> Result<(), MoveStateError> {
        let sealed = target.map(|target| self.seal_engine(org, target, rng));
        let (row, is_moved) = (row.clone(), row.step.is_moved());
        // Writes of a moved organisation are accepted, so it is one before its engine changes.
        self.moved.set(org, true);
        let changed = self.change(move |txn| {
            let owner = read::<OrgRow>(txn, &org)?.ok_or(MoveStateError::UnknownOrg)?;
            let version = read::<EngineRow>(txn, &org)?.map_or(0, |row| row.version).wrapping_add(1).max(1);
            let action = match sealed {
                Some(target) => {
                    let (kind, split_after_s, updated_by) = (EngineKind::Upstream, 0, None);
                    let engine =
                        EngineRow { kind, target, split_after_s, version, updated_at: now, updated_by };
                    txn.put(&org, &engine);
                    "move.switched"
                }
                None => {
                    txn.remove::<EngineRow>(&org);
                    "move.returned"
                }
            };
            txn.put(&org, &row);
            let event = Event::unattributed(action).of(org).target(&owner.slug);
            audit::record(txn, &event, now)?;
            Ok::<_, MoveStateError>(())
        });
        let reloaded = self.reload_engine(org);
        if changed.is_err() || !is_moved {
            self.moved.set(org, self.row::<MoveRow>(&org)?.is_some_and(|row| row.step.is_moved()));
        }
        changed?;
        reloaded?;
        Ok(())
    }

    /// Returns whether the organisation is moved: its log is sent to the engine that answers its
    /// queries. Does not access the disk.
    pub fn is_moved(&self, org: OrgId) -> bool {
        self.moved.0.read().ignore_poison().contains(&org)
    }

    /// Loads which organisations are moved.
    pub(in crate::identity) fn load_moved(&self) -> Result<(), StoreError> {
        let mut all = self.moved.0.write().ignore_poison();
        let moved = self.moves()?.into_iter().filter(|(_, row)| row.step.is_moved());
        *all = moved.map(|(org, _)| org).collect();
        Ok(())
    }

    /// Removes the state of a move. Samples that were sent stay at the target. Blocks (commit).
    ///
    /// # Errors
    /// [`MoveStateError`].
    pub fn forget_move(&self, org: OrgId) -> Result<(), MoveStateError> {
        self.change(move |txn| {
            txn.remove::<MoveRow>(&org);
            Ok::<_, MoveStateError>(())
        })?;
        self.moved.set(org, false);
        Ok(())
    }
}
