//! The state of the store in memory: one [`OrgStore`] for each organisation, and the function that
//! applies records to it.

mod apply;
mod arrivals;
pub(super) mod deletion;
mod dropped;
pub(super) mod manifest;
mod org;
pub(super) mod pins;
mod published;
pub(super) mod quota;
pub(super) mod retention_clock;
mod row_seqs;
pub(super) mod segments;
pub(super) mod table_guard;
mod version;
mod window;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use super::block_cache::{BlockCache, OrgCache};
use super::head::Head;
use super::options::OrgLimits;
use super::series::identity::HashSecret;
use super::series::table::Table;
use super::side_data::SideTable;
use crate::model::OrgId;
use crate::sync::IgnorePoison as _;
pub(super) use apply::Record;
use arrivals::Arrivals;
use dropped::DroppedOrg;
pub(super) use org::OrgStore;
use quota::Usage;
pub(super) use row_seqs::{RowSeqs, skipped};
use version::StoreVersion;

/// The state of all organisations.
#[derive(Debug)]
pub(super) struct Stores {
    secret: [u8; 32],
    limits: OrgLimits,
    pub(super) decoded: Arc<BlockCache>,
    orgs: RwLock<BTreeMap<OrgId, Arc<OrgStore>>>,
    /// Estimated memory of all heads, in bytes.
    pub(super) head_bytes: Arc<AtomicU64>,
    /// Estimated memory of all names and series, in bytes.
    pub(super) name_bytes: AtomicU64,
    /// Samples stored since the last checkpoint.
    pub(super) uncovered: AtomicU64,
    /// Whether a start is filling the heads.
    starting: AtomicBool,
    /// Whether records of samples change only counters ([`super::options::Options::queue_only`]).
    queue_only: bool,
    dropped: Mutex<BTreeMap<OrgId, DroppedOrg>>,
}

impl Stores {
    /// Creates stores without a block cache.
    pub(super) fn new(secret: [u8; 32], limits: OrgLimits) -> Stores {
        Stores::with_block_cache(0, secret, limits)
    }

    /// Creates stores with a block cache of at most `decoded_bytes_max` bytes.
    pub(super) fn with_block_cache(decoded_bytes_max: u64, secret: [u8; 32], limits: OrgLimits) -> Stores {
        Stores {
            secret,
            limits,
            decoded: BlockCache::new(decoded_bytes_max),
            orgs: RwLock::default(),
            head_bytes: Arc::default(),
            name_bytes: AtomicU64::new(0),
            uncovered: AtomicU64::new(0),
            starting: AtomicBool::new(false),
            queue_only: false,
            dropped: Mutex::default(),
        }
    }

    /// Keeps samples and side data out of memory if `queue_only` is set.
    pub(super) fn queue_only(self, queue_only: bool) -> Stores {
        Stores { queue_only, ..self }
    }

    /// Sets whether a start is filling the heads. Tails stay short meanwhile, so that a start needs
    /// less memory than the running process did.
    pub(super) fn set_starting(&self, starting: bool) {
        self.starting.store(starting, Ordering::Relaxed);
        self.all().iter().for_each(|store| store.head.set_short_tails(starting));
    }

    /// Returns the secret that keys the hashes of an organisation's labels.
    pub(super) fn secret_of(&self, org: OrgId) -> HashSecret {
        HashSecret::of(&self.secret, org.0)
    }

    pub(super) fn org(&self, org: OrgId) -> Option<Arc<OrgStore>> {
        self.orgs.read().ignore_poison().get(&org).map(Arc::clone)
    }

    pub(super) fn org_or_new(&self, org: OrgId) -> Arc<OrgStore> {
        if let Some(store) = self.org(org) {
            return store;
        }
        let mut orgs = self.orgs.write().ignore_poison();
        let fresh = || {
            Arc::new(OrgStore {
                org,
                table: RwLock::new(Table::new(self.secret_of(org))),
                metadata: RwLock::default(),
                durable: Mutex::default(),
                head: Head::new(Arc::clone(&self.head_bytes), self.starting.load(Ordering::Relaxed)),
                segments: RwLock::default(),
                obsolete: Mutex::default(),
                side: SideTable::new(Arc::clone(&self.head_bytes)),
                limits: RwLock::new(Arc::new(self.limits.clone())),
                usage: Usage::default(),
                stored_total: AtomicU64::new(0),
                refused_total: AtomicU64::new(0),
                metadata_dropped_total: AtomicU64::new(0),
                registry: Mutex::default(),
                changing: Mutex::default(),
                sealing: Mutex::default(),
                next_segment: AtomicU64::new(1),
                kept_from_ms: AtomicI64::new(i64::MIN),
                last_seq: AtomicU64::new(0),
                arrivals: Arrivals::default(),
                changes: StoreVersion::default(),
                decoded: OrgCache::new(&self.decoded),
            })
        };
        if self.is_dropped(org) {
            // Late records of a removed organisation go to a store that is dropped. If it stayed in
            // `orgs`, the log could not be trimmed.
            return fresh();
        }
        Arc::clone(orgs.entry(org).or_insert_with(fresh))
    }

    /// Returns all organisations in order of id.
    pub(super) fn all(&self) -> Vec<Arc<OrgStore>> {
        self.orgs.read().ignore_poison().values().map(Arc::clone).collect()
    }

    pub(super) fn set_limits(&self, org: OrgId, limits: OrgLimits) {
        self.org_or_new(org).set_limits(limits);
    }
}
