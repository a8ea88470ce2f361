//! What the store holds in memory: one [`OrgStore`] for each organisation, and the one function that changes it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::error::Damage;
use super::head::Head;
use super::options::OrgLimits;
use super::series::identity::Secret;
use super::series::table::Table;
use super::series::{definition, metadata, registry};
use super::wal::log::Outcome;
use super::wal::record::Kind;
use super::wal::samples::{self, LogSample};
use crate::model::OrgId;

/// One organisation. Shares nothing with another but the log and the budget.
#[derive(Debug)]
pub(super) struct OrgStore {
    pub(super) org: OrgId,
    table: RwLock<Table>,
    pub(super) head: Head,
    limits: RwLock<Arc<OrgLimits>>,
    pub(super) stored_total: AtomicU64,
    pub(super) refused_total: AtomicU64,
    /// Descriptions of metrics that were too long or too many.
    pub(super) metadata_dropped_total: AtomicU64,
    /// How far the registry file reaches; checkpoints alone change it.
    registry: Mutex<registry::End>,
}

impl OrgStore {
    // Poisoned locks are taken over: a panic of one request must not end the others, and every change of a table or a
    // stripe is either a single push or done by the applying thread, whose end closes the log.
    pub(super) fn table(&self) -> RwLockReadGuard<'_, Table> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn table_mut(&self) -> RwLockWriteGuard<'_, Table> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn limits(&self) -> Arc<OrgLimits> {
        Arc::clone(&self.limits.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn registry(&self) -> MutexGuard<'_, registry::End> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// For replay: up to which record each series is in the checkpoint.
#[derive(Debug, Default)]
pub(super) struct RowSeqs {
    by_org: BTreeMap<OrgId, Vec<u64>>,
}

impl RowSeqs {
    pub(super) fn set(&mut self, org: OrgId, series: u32, seq: u64) {
        let seqs = self.by_org.entry(org).or_default();
        if seqs.len() <= series as usize {
            seqs.resize(series as usize + 1, 0);
        }
        if let Some(place) = seqs.get_mut(series as usize) {
            *place = seq;
        }
    }

    fn of(&self, org: OrgId) -> &[u64] {
        self.by_org.get(&org).map_or(&[], Vec::as_slice)
    }
}

/// A durable record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record<'b> {
    pub(super) seq: u64,
    pub(super) org: OrgId,
    pub(super) kind: Kind,
    pub(super) body: &'b [u8],
}

/// All organisations.
#[derive(Debug)]
pub(super) struct Stores {
    secret: [u8; 32],
    limits: OrgLimits,
    orgs: RwLock<BTreeMap<OrgId, Arc<OrgStore>>>,
    /// Estimated memory of all heads.
    pub(super) head_bytes: AtomicU64,
    /// Samples stored since the last checkpoint.
    pub(super) uncovered: AtomicU64,
}

impl Stores {
    pub(super) fn new(secret: [u8; 32], limits: OrgLimits) -> Stores {
        let (head_bytes, uncovered) = (AtomicU64::new(0), AtomicU64::new(0));
        Stores { secret, limits, orgs: RwLock::default(), head_bytes, uncovered }
    }

    pub(super) fn org(&self, org: OrgId) -> Option<Arc<OrgStore>> {
        self.orgs.read().unwrap_or_else(PoisonError::into_inner).get(&org).map(Arc::clone)
    }

    pub(super) fn org_or_new(&self, org: OrgId) -> Arc<OrgStore> {
        if let Some(store) = self.org(org) {
            return store;
        }
        let mut orgs = self.orgs.write().unwrap_or_else(PoisonError::into_inner);
        let fresh = || {
            Arc::new(OrgStore {
                org,
                table: RwLock::new(Table::new(Secret::of(&self.secret, org.0))),
                head: Head::default(),
                limits: RwLock::new(Arc::new(self.limits.clone())),
                stored_total: AtomicU64::new(0),
                refused_total: AtomicU64::new(0),
                metadata_dropped_total: AtomicU64::new(0),
                registry: Mutex::default(),
            })
        };
        Arc::clone(orgs.entry(org).or_insert_with(fresh))
    }

    /// In order of id.
    pub(super) fn all(&self) -> Vec<Arc<OrgStore>> {
        self.orgs.read().unwrap_or_else(PoisonError::into_inner).values().map(Arc::clone).collect()
    }

    pub(super) fn set_limits(&self, org: OrgId, limits: OrgLimits) {
        *self.org_or_new(org).limits.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(limits);
    }

    /// Does what a durable record says: the same while running and in replay.
    ///
    /// `rows`, in replay, says what the checkpoint has already; samples of series that nothing defines are then counted
    /// as orphans. While running every series is known, since its definition comes before its samples.
    ///
    /// # Errors
    /// [`Damage`] where the body is not what its type says, though its checksum holds.
    pub(super) fn apply(
        &self,
        record: Record<'_>,
        scratch: &mut Vec<LogSample>,
        rows: Option<&RowSeqs>,
    ) -> Result<Outcome, Damage> {
        let Record { seq, org, kind, body } = record;
        match kind {
            Kind::Samples => {
                samples::decode(body, scratch)?;
                let store = self.org_or_new(org);
                let mut orphans = 0;
                if rows.is_some() {
                    let table = store.table();
                    let all = scratch.len();
                    scratch.retain(|sample| table.knows(sample.series));
                    orphans = (all - scratch.len()) as u64;
                }
                let skip = rows.map_or(&[][..], |rows| rows.of(org));
                let before = store.head.counters.bytes.load(Ordering::Relaxed);
                let mut outcome = store
                    .head
                    .apply(seq, scratch, |series| skip.get(series as usize).is_some_and(|have| seq <= *have));
                outcome.orphans = orphans;
                let after = store.head.counters.bytes.load(Ordering::Relaxed);
                self.head_bytes.fetch_add(after.saturating_sub(before), Ordering::Relaxed);
                self.head_bytes.fetch_sub(before.saturating_sub(after), Ordering::Relaxed);
                self.uncovered.fetch_add(outcome.stored, Ordering::Relaxed);
                Ok(outcome)
            }
            Kind::Series | Kind::RegistrySeries => {
                let store = self.org_or_new(org);
                let mut table = store.table_mut();
                let mut wrong = None;
                definition::decode(body, &mut |id, pairs| {
                    if let Err(what) = table.define(id, pairs, kind == Kind::RegistrySeries) {
                        wrong.get_or_insert(what);
                    }
                })?;
                wrong.map_or_else(|| Ok(Outcome::default()), |what| Err(Damage::new(0, what)))
            }
            Kind::Metadata | Kind::RegistryMetadata => {
                let store = self.org_or_new(org);
                let mut table = store.table_mut();
                metadata::decode(body, &mut |said| table.metadata.set(said, kind == Kind::RegistryMetadata))?;
                Ok(Outcome::default())
            }
            Kind::Mark | Kind::Switch => Ok(Outcome::default()),
        }
    }
}
