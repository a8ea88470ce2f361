//! The engine of an organisation: where its samples are read (docs/specification.md C10).
//!
//! Every read needs the engine, so all engines are in memory. After every change an engine is
//! loaded again from the store under the lock, so that the copy holds the later of two concurrent
//! changes.

use std::collections::HashMap;
use std::sync::{Arc, RwLock, RwLockWriteGuard};

use crate::entropy::Entropy;
use crate::kv::Txn;
use crate::model::{OrgId, Target, Timestamp};
use crate::sync::IgnorePoison as _;

use crate::identity::Identity;
use crate::identity::audit::{self, Event};
use crate::identity::tables::engine::{EngineKind, EngineRow};
use crate::identity::tables::id::UserId;
use crate::identity::tables::master::SealedFor;
use crate::identity::tables::moving::{MoveRow, MoveStep};
use crate::identity::tables::org::OrgRow;
use crate::identity::tables::store::{StoreError, read};
use crate::identity::tables::target::SealedTarget;

/// An engine that is not the local one.
#[derive(Clone, Debug, PartialEq)]
pub struct Engine {
    /// The engine that reads are sent to.
    pub kind: EngineKind,
    /// The server that is read; `None` if it cannot be unsealed with this master key. Reads then
    /// fail, because local samples are not the organisation's.
    pub target: Option<Target>,
    /// The age in seconds from which samples are read from the target; 0 unless the kind is
    /// [`EngineKind::Split`].
    pub split_after_s: u64,
    /// Increases with each change; never 0. Starts at a random number, so that the versions of an
    /// engine that was removed and set again do not occur twice.
    pub version: u32,
    /// The time of the last change.
    pub updated_at: Timestamp,
}

/// A new engine.
#[derive(Clone, Debug)]
pub struct NewEngine {
    /// The same as [`Engine::kind`].
    pub kind: EngineKind,
    /// A target that [`Target::check`] accepts.
    pub target: Target,
    /// The same as [`Engine::split_after_s`].
    pub split_after_s: u64,
    /// The version that is replaced, 0 if there is none; `None` replaces any.
    pub replaces: Option<u32>,
}

/// Errors of changing an engine.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The organisation no longer exists: `org_not_found`.
    #[error("no such organisation")]
    UnknownOrg,
    /// 409 `conflict`.
    #[error(
        "the organisation is being moved, or is moved, to another server, so the move determines its engine"
    )]
    Moved,
    /// 412 `version_conflict`.
    #[error("the engine has version {0}")]
    OtherVersion(u32),
    /// `storage_degraded`.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The engines in memory, and how often one has changed.
#[derive(Debug, Default)]
pub(in crate::identity) struct EngineCache(RwLock<HashMap<OrgId, Arc<Engine>>>);

impl EngineCache {
    /// Removes the engine of a deleted organisation.
    pub(in crate::identity) fn forget(&self, org: OrgId) {
        self.write().remove(&org);
    }

    fn write(&self) -> RwLockWriteGuard<'_, HashMap<OrgId, Arc<Engine>>> {
        self.0.write().ignore_poison()
    }
}

/// Refuses a change of the engine during a move and after it. The log of a moved organisation is
/// sent to its engine.
fn check_unmoved(txn: &Txn<'_>, org: &OrgId) -> Result<(), EngineError> {
    match read::<MoveRow>(txn, org)? {
        Some(row) if row.step != MoveStep::Returned => Err(EngineError::Moved),
        _ => Ok(()),
    }
}

/// The record that the target of an engine is sealed for.
fn sealed_for(id: &[u8; 4]) -> SealedFor<'_> {
    SealedFor { kind: "engine", id }
}

impl Identity {
    /// Seals the target of an organisation's engine.
    pub(in crate::identity) fn seal_engine(
        &self,
        org: OrgId,
        target: &Target,
        rng: &mut Entropy,
    ) -> SealedTarget {
        SealedTarget::seal(target, sealed_for(&org.0.to_be_bytes()), &self.sealing, rng)
    }

    /// Loads all engines.
    pub(in crate::identity) fn load_engines(&self) -> Result<(), StoreError> {
        let mut engines = self.engines.write();
        let rows = self.rows::<EngineRow>(&())?;
        let load = |(org, row): (OrgId, EngineRow)| {
            let engine = self.open_engine(org, &row);
            // Clients are kept as long as the `Arc` is the same.
            let kept = engines.get(&org).filter(|known| ***known == engine).cloned();
            (org, kept.unwrap_or_else(|| Arc::new(engine)))
        };
        let opened = rows.into_iter().map(load).collect();
        *engines = opened;
        Ok(())
    }

    fn open_engine(&self, org: OrgId, row: &EngineRow) -> Engine {
        let target = row.target.open(sealed_for(&org.0.to_be_bytes()), &self.sealing);
        if target.is_err() {
            tracing::error!(org = org.0, "the engine of an organisation cannot be unsealed");
        }
        let EngineRow { kind, split_after_s, version, updated_at, .. } = *row;
        Engine { kind, target: target.ok(), split_after_s, version, updated_at }
    }

    /// Returns the engine of an organisation; `None` for local samples. The `Arc` stays the same
    /// until the engine changes. Does not access the disk.
    pub fn engine(&self, org: OrgId) -> Option<Arc<Engine>> {
        self.engines.0.read().ignore_poison().get(&org).cloned()
    }

    /// Returns all organisations whose engine is not the local one. Does not access the disk.
    pub fn engines(&self) -> Vec<(OrgId, Arc<Engine>)> {
        let engines = self.engines.0.read().ignore_poison();
        engines.iter().map(|(org, engine)| (*org, Arc::clone(engine))).collect()
    }

    /// Loads the engine of an organisation again after a change of its row.
    pub(in crate::identity) fn reload_engine(&self, org: OrgId) -> Result<Option<Arc<Engine>>, StoreError> {
        let mut engines = self.engines.write();
        // The row of a deleted organisation stays until its removal is finished.
        let exists = self.row::<OrgRow>(&org)?.is_some();
        let row = if exists { self.row::<EngineRow>(&org)? } else { None };
        let engine = row.map(|row| Arc::new(self.open_engine(org, &row)));
        match &engine {
            Some(engine) => engines.insert(org, Arc::clone(engine)),
            None => engines.remove(&org),
        };
        Ok(engine)
    }

    /// Sets the engine of an organisation. The caller must check that `actor` administers it
    /// (`None` is the command line). Blocks (commit).
    ///
    /// # Errors
    /// [`EngineError`]; then nothing is changed.
    pub fn set_engine(
        &self,
        actor: Option<UserId>,
        org: OrgId,
        new: NewEngine,
        now: Timestamp,
        rng: &mut Entropy,
    ) -> Result<Arc<Engine>, EngineError> {
        let NewEngine { kind, target, split_after_s, replaces } = new;
        let host = target.url.authority();
        let target = self.seal_engine(org, &target, rng);
        let first = (u32::from_be_bytes(rng.bytes()) >> 1).max(1);
        self.change(move |txn| {
            let slug = read::<OrgRow>(txn, &org)?.ok_or(EngineError::UnknownOrg)?.slug;
            check_unmoved(txn, &org)?;
            let row = read::<EngineRow>(txn, &org)?;
            let stored = row.as_ref().map_or(0, |row| row.version);
            if replaces.is_some_and(|expected| expected != stored) {
                return Err(EngineError::OtherVersion(stored));
            }
            let version = if row.is_some() { stored.wrapping_add(1).max(1) } else { first };
            let row = EngineRow { kind, target, split_after_s, version, updated_at: now, updated_by: actor };
            txn.put(&org, &row);
            let event = Event::by_actor(actor, "engine.changed").of(org).target(&slug);
            audit::record(txn, &event.detail(&format!("{} {host}", kind.as_str())), now)?;
            Ok(())
        })?;
        self.reload_engine(org)?.ok_or(EngineError::UnknownOrg)
    }

    /// Sets the local engine. Blocks (commit).
    ///
    /// # Errors
    /// [`EngineError`]; then nothing is changed.
    pub fn remove_engine(
        &self,
        actor: Option<UserId>,
        org: OrgId,
        replaces: Option<u32>,
        now: Timestamp,
    ) -> Result<(), EngineError> {
        self.change(move |txn| {
            let slug = read::<OrgRow>(txn, &org)?.ok_or(EngineError::UnknownOrg)?.slug;
            check_unmoved(txn, &org)?;
            let Some(row) = read::<EngineRow>(txn, &org)? else { return Ok(()) };
            if replaces.is_some_and(|expected| expected != row.version) {
                return Err(EngineError::OtherVersion(row.version));
            }
            txn.remove::<EngineRow>(&org);
            let event = Event::by_actor(actor, "engine.changed").of(org).target(&slug);
            audit::record(txn, &event.detail("local"), now)?;
            Ok(())
        })?;
        self.reload_engine(org)?;
        Ok(())
    }
}
