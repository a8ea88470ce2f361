//! Seals that also write the samples of an import.
//!
//! The steps are those of any seal. Imported samples are in no log record, so after an interruption
//! before step 4 their segments are removed as those of the seal are, and the import repeats them.

use super::{DueSeal, SealContext, SealError, SealReport, SealThrottle, forced_until};
use crate::model::{OrgId, Timestamp};
use crate::tsdb::Tsdb;
use crate::tsdb::append::imported::ImportedSamples;

impl Tsdb {
    /// Seals an organisation, and lists the segments of the imported samples in the same change.
    /// They are durable when this returns.
    ///
    /// # Errors
    /// [`SealError`]. If the samples need several changes, some of them may be stored.
    pub(in crate::tsdb) fn seal_imported(
        &self,
        org: OrgId,
        imported: &ImportedSamples,
        now: Timestamp,
    ) -> Result<SealReport, SealError> {
        let mut report = SealReport::default();
        let context = SealContext { imported: Some(imported), ..self.seal_context()? };
        let Some((least, greatest)) = imported.span() else { return Ok(report) };
        let mut sealer = self.hurry_sealer();
        let store = self.stores.org_or_new(org);
        // Also if the clock went back since the samples were accepted.
        let until = forced_until(&store, Some(greatest), now).max(greatest.saturating_add(1));
        let due = DueSeal { store, until, all: false };
        due.store.changes.note(least);
        let sealed = self.seal_org(&context, &due, now, &mut sealer, &SealThrottle::Full, &mut report);
        due.store.changes.note(least);
        sealed?;
        self.trim(&context, &mut report)?;
        Ok(report)
    }
}
