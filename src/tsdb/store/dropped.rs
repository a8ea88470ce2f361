//! Removed organisations.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard};

use super::{OrgStore, Stores};
use crate::model::OrgId;
use crate::sync::IgnorePoison as _;

/// The remains of a removed organisation.
#[derive(Clone, Debug, Default)]
pub(super) struct DroppedOrg {
    /// Whether its rows and files are removed.
    finished: bool,
    /// The former state, which a running seal may still use.
    store: Option<Arc<OrgStore>>,
}

impl Stores {
    /// Removes an organisation. Its current readers continue with the state that they have.
    pub(super) fn drop_org(&self, org: OrgId) {
        // Marked first, so that no caller creates it again.
        self.dropped().insert(org, DroppedOrg::default());
        let gone = self.orgs.write().ignore_poison().remove(&org);
        if let Some(store) = gone {
            let bytes = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
            let freed = bytes(&store.head.counters.bytes) + bytes(&store.side.counters.bytes);
            self.head_bytes.fetch_sub(freed, Ordering::Relaxed);
            self.forget_names(&store);
            store.decoded.close();
            self.dropped().insert(org, DroppedOrg { finished: false, store: Some(store) });
        }
    }

    fn dropped(&self) -> MutexGuard<'_, BTreeMap<OrgId, DroppedOrg>> {
        self.dropped.lock().ignore_poison()
    }

    /// Marks the organisations that the start found removed.
    pub(in crate::tsdb) fn set_dropped(&self, orgs: &BTreeSet<OrgId>) {
        self.dropped().extend(orgs.iter().map(|org| (*org, DroppedOrg::default())));
    }

    pub(in crate::tsdb) fn is_dropped(&self, org: OrgId) -> bool {
        self.dropped().contains_key(&org)
    }

    /// Returns the removed organisations that may still have rows and files, and their former
    /// state.
    pub(in crate::tsdb) fn dropped_unfinished(&self) -> Vec<(OrgId, Option<Arc<OrgStore>>)> {
        let dropped = self.dropped();
        let left = dropped.iter().filter(|(_, dropped)| !dropped.finished);
        left.map(|(org, dropped)| (*org, dropped.store.clone())).collect()
    }

    pub(in crate::tsdb) fn drop_is_finished(&self, org: OrgId) {
        self.dropped().insert(org, DroppedOrg { finished: true, store: None });
    }

    /// Returns whether an organisation was removed completely. The log need not keep its records.
    pub(in crate::tsdb) fn is_gone(&self, org: OrgId) -> bool {
        self.dropped().get(&org).is_some_and(|dropped| dropped.finished)
    }
}
