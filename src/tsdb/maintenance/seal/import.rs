//! Seals that also write the samples of an import.
//!
//! The steps are those of any seal. Imported samples are in no log record, so after an interruption
//! before step 4 their segments are removed as those of the seal are, and the import repeats them.

use super::{DueSeal, SealContext, SealError, SealReport, SealThrottle, forced_until};
use crate::model::{OrgId, Timestamp};
use crate::tsdb::Tsdb;
use crate::tsdb::append::imported::ImportedSamples;

impl Tsdb {
    /// Returns the end of the window that a seal of imported samples closes, in ms, exclusive.
    /// `greatest` is the time of the latest one.
    pub(in crate::tsdb) fn import_end(&self, org: OrgId, greatest: i64, now: Timestamp) -> i64 {
        let store = self.stores.org_or_new(org);
        // The clock may have gone back since the samples were accepted.
        let end = forced_until(&store, Some(greatest), now).max(greatest.saturating_add(1));
        end.max(store.segments().sealed_until)
    }

    /// Seals an organisation up to `until_ms`, at least the [`Tsdb::import_end`] of the imported
    /// samples, and lists the segments of these in the same change. They are durable when this
    /// returns.
    ///
    /// # Errors
    /// [`SealError`]. If the samples need several changes, some of them may be stored.
    pub(in crate::tsdb) fn seal_imported(
        &self,
        org: OrgId,
        imported: &ImportedSamples,
        until_ms: i64,
        now: Timestamp,
    ) -> Result<SealReport, SealError> {
        let mut report = SealReport::default();
        let context = SealContext { imported: Some(imported), ..self.seal_context()? };
        let Some((least, _)) = imported.span() else { return Ok(report) };
        let mut sealer = self.hurry_sealer();
        let store = self.stores.org_or_new(org);
        let due = DueSeal { store, until: until_ms, all: false };
        due.store.changes.note(least);
        let sealed = self.seal_org(&context, &due, now, &mut sealer, &SealThrottle::Full, &mut report);
        due.store.changes.note(least);
        sealed?;
        self.trim(&context, &mut report)?;
        Ok(report)
    }
}
