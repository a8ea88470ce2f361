//! Carries what organisations stored today over a restart: read at the start, noted each minute in which it grew.

use std::collections::BTreeMap;

use crate::identity::{Identity, StoreError};
use crate::model::{OrgId, Timestamp};
use crate::tsdb::Tsdb;

/// Takes up what was noted before the stop.
pub(super) fn resume(identity: &Identity, tsdb: &Tsdb, now: Timestamp) -> Result<(), StoreError> {
    for (org, samples) in identity.stored_on(now.as_days())? {
        tsdb.resume_today(org, samples, now);
    }
    Ok(())
}

/// What is on the disk.
#[derive(Debug, Default)]
pub(super) struct Noted(BTreeMap<OrgId, (i64, u64)>);

impl Noted {
    /// Notes what grew since the last call; a store that nobody writes to costs a look at memory.
    pub(super) fn note(
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
