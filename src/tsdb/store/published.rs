//! The published set of segments of an organisation, and its changes.

use std::sync::{Arc, MutexGuard};

use super::OrgStore;
use super::manifest::{Manifest, ManifestChange};
use super::segments::SegmentSet;
use crate::sync::IgnorePoison as _;
use crate::tsdb::error::ManifestError;

impl OrgStore {
    /// Returns the current set of segments.
    pub(in crate::tsdb) fn segments(&self) -> Arc<SegmentSet> {
        Arc::clone(&self.segments.read().ignore_poison())
    }

    /// Returns the current set of segments, unless it is `known`.
    pub(in crate::tsdb) fn segments_if_not(&self, known: &Arc<SegmentSet>) -> Option<Arc<SegmentSet>> {
        let now = self.segments.read().ignore_poison();
        (!Arc::ptr_eq(&now, known)).then(|| Arc::clone(&now))
    }

    /// Sets the set of segments that the start found.
    pub(in crate::tsdb) fn begin_with(&self, set: SegmentSet) {
        *self.segments.write().ignore_poison() = Arc::new(set);
    }

    /// Commits a change of the list of segments to control and then publishes the new set, so
    /// readers see only durable changes. The lock prevents other changes in between. `next` derives
    /// the new set from the current one.
    pub(in crate::tsdb) fn change_segments(
        &self,
        manifest: &Manifest,
        change: ManifestChange,
        next: impl FnOnce(&SegmentSet) -> SegmentSet,
    ) -> Result<(), ManifestError> {
        self.change_segments_if(manifest, |_| true, change, next).map(drop)
    }

    /// Like [`OrgStore::change_segments`], if `fits` returns true for the current set. Returns
    /// whether the set was replaced.
    pub(in crate::tsdb) fn change_segments_if(
        &self,
        manifest: &Manifest,
        fits: impl FnOnce(&SegmentSet) -> bool,
        change: ManifestChange,
        next: impl FnOnce(&SegmentSet) -> SegmentSet,
    ) -> Result<bool, ManifestError> {
        let guard = self.changing();
        if !fits(&self.segments()) {
            return Ok(false);
        }
        self.change_held(&guard, manifest, change, next).map(|()| true)
    }

    /// Locks the list of segments against other changes.
    pub(in crate::tsdb) fn changing(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().ignore_poison()
    }

    /// Like [`OrgStore::change_segments`]; the caller holds the `changing` lock.
    pub(in crate::tsdb) fn change_held(
        &self,
        _guard: &MutexGuard<'_, ()>,
        manifest: &Manifest,
        change: ManifestChange,
        next: impl FnOnce(&SegmentSet) -> SegmentSet,
    ) -> Result<(), ManifestError> {
        manifest.commit(self.org, change)?;
        let before = self.segments();
        let next = Arc::new(next(&before));
        *self.segments.write().ignore_poison() = Arc::clone(&next);
        self.forget_unlisted(&before, &next);
        Ok(())
    }

    /// Removes the cached values of segments that are no longer listed, even if queries still read
    /// them.
    fn forget_unlisted(&self, before: &SegmentSet, next: &SegmentSet) {
        let mut listed: Vec<u64> = next.parts.iter().map(|part| part.meta().seq).collect();
        listed.sort_unstable();
        let gone: Vec<u64> = before
            .parts
            .iter()
            .filter(|part| listed.binary_search(&part.meta().seq).is_err())
            .map(|part| {
                part.segment.retire();
                part.meta().seq
            })
            .collect();
        self.decoded.remove_segments(&gone);
    }
}
