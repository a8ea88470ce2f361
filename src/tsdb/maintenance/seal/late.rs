//! Seals of late samples, for imports that wait for them.

use std::sync::TryLockError;
use std::sync::atomic::Ordering;

use super::{DueSeal, SealError, SealReport, SealThrottle};
use crate::model::{OrgId, Timestamp};
use crate::tsdb::Tsdb;

impl Tsdb {
    /// Returns whether an organisation has so many late samples in memory that an import should
    /// wait for [`Tsdb::seal_late`].
    pub fn has_many_late(&self, org: OrgId) -> bool {
        self.stores.org(org).is_some_and(|store| {
            store.head.counters.late.load(Ordering::Relaxed) > self.options.seal_late_samples
        })
    }

    /// Seals the late samples of an organisation if there are many, at half the speed of a core. It
    /// closes no window. Does nothing while another seal runs, and within a minute after a failed
    /// one.
    ///
    /// # Errors
    /// [`SealError`]. No data is lost.
    pub fn seal_late(&self, org: OrgId, now: Timestamp) -> Result<SealReport, SealError> {
        let mut report = SealReport::default();
        let context = self.seal_context()?;
        let mut sealer = match self.sealer.try_lock() {
            Ok(sealer) => sealer,
            // A panic of another seal left the schedule as it was.
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(report),
        };
        let Some(store) = self.stores.org(org).filter(|_| self.has_many_late(org)) else {
            return Ok(report);
        };
        if self.is_follower() || sealer.failed_recently(org, now) {
            return Ok(report);
        }
        // A seal never ends before the window that is closed already.
        let due = DueSeal { store, until: i64::MIN, all: false };
        let throttle = SealThrottle::HalfCore { rest: &self.options.rest, waiting: &self.seals_waiting };
        let done = sealer.done(org);
        let sealed = self.seal_org(&context, &due, now, &mut sealer, &throttle, &mut report);
        sealer.set_done(org, done);
        sealed?;
        self.trim(&context, &mut report)?;
        Ok(report)
    }
}
