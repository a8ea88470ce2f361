//! Preserves the number of samples that organisations stored today over a restart: loaded at the
//! start, and recorded each minute in which it grew.

use std::collections::BTreeMap;

use crate::identity::{Identity, StoreError};
use crate::model::{OrgId, Timestamp};
use crate::tsdb::Tsdb;

/// Loads the counts recorded before the restart.
pub(super) fn resume(identity: &Identity, tsdb: &Tsdb, now: Timestamp) -> Result<(), StoreError> {
    for (org, samples) in identity.stored_on(now.as_days())? {
        tsdb.resume_today(org, samples, now);
    }
    Ok(())
}

/// The counts on disk, by organisation: the day and the samples stored on it.
#[derive(Debug, Default)]
pub(super) struct DailyUsageRecorder(BTreeMap<OrgId, (i64, u64)>);

impl DailyUsageRecorder {
    /// Records the counts that grew since the last call. Does not write if no count has changed.
    pub(super) fn record(
        &mut self,
        identity: &Identity,
        tsdb: &Tsdb,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let day = now.as_days();
        let mut grown = tsdb.stored_today_by_org(now);
        grown.retain(|(org, samples)| *samples > 0 && self.0.get(org) != Some(&(day, *samples)));
        if grown.is_empty() {
            return Ok(());
        }
        identity.note_stored(day, &grown)?;
        self.0.extend(grown.into_iter().map(|(org, samples)| (org, (day, samples))));
        Ok(())
    }
}
