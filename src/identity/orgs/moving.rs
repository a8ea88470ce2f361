//! The stored state of moves to another engine and back.

use crate::entropy::Entropy;
use crate::model::{OrgId, Timestamp};

use crate::identity::Identity;
use crate::identity::audit::{self, Event};
use crate::identity::tables::master::SealedFor;
use crate::identity::tables::moving::{MoveDirection, MoveRow};
use crate::identity::tables::org::OrgRow;
use crate::identity::tables::store::{StoreError, read};

/// Errors of the state of a move.
#[derive(Debug, thiserror::Error)]
pub enum MoveStateError {
    /// The organisation no longer exists.
    #[error("the organisation no longer exists")]
    UnknownOrg,
    /// Another move of the organisation is not complete.
    #[error("a move of this organisation is not complete: it continues by itself, or with the same command")]
    Running,
    /// The store of accounts failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn sealed_for(org: &[u8; 4]) -> SealedFor<'_> {
    SealedFor { kind: "move", id: org }
}

impl Identity {
    /// Stores a new move. `target` has the credentials of the target and is stored sealed. Blocks
    /// (commit).
    ///
    /// # Errors
    /// [`MoveStateError`]; then nothing is stored.
    pub fn begin_move(
        &self,
        org: OrgId,
        direction: MoveDirection,
        target: &[u8],
        now: Timestamp,
        rng: &mut Entropy,
    ) -> Result<MoveRow, MoveStateError> {
        let sealed = self.sealing.seal(sealed_for(&org.0.to_le_bytes()), target, rng);
        let row = MoveRow::new(direction, sealed, now);
        let new = row.clone();
        self.change(move |txn| {
            let owner = read::<OrgRow>(txn, &org)?.ok_or(MoveStateError::UnknownOrg)?;
            if read::<MoveRow>(txn, &org)?.is_some_and(|row| row.step.is_running()) {
                return Err(MoveStateError::Running);
            }
            txn.put(&org, &new);
            let event = Event::unattributed(direction.started()).of(org).target(&owner.slug);
            audit::record(txn, &event, now).map_err(StoreError::from)?;
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

    /// Stores the state of a move. Blocks (commit).
    ///
    /// # Errors
    /// [`MoveStateError`].
    pub fn save_move(&self, org: OrgId, row: &MoveRow) -> Result<(), MoveStateError> {
        let row = row.clone();
        self.change(move |txn| {
            read::<OrgRow>(txn, &org)?.ok_or(MoveStateError::UnknownOrg)?;
            txn.put(&org, &row);
            Ok(())
        })
    }

    /// Removes the state of a move. Nothing that was sent is removed. Blocks (commit).
    ///
    /// # Errors
    /// [`MoveStateError`].
    pub fn forget_move(&self, org: OrgId) -> Result<(), MoveStateError> {
        self.change(move |txn| {
            txn.remove::<MoveRow>(&org);
            Ok(())
        })
    }
}
