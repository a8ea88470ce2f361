//! Imports of one organisation: samples go to segments, without the log.

use super::Tsdb;
use crate::model::{OrgId, Timestamp, WriteBatch};
use crate::tsdb::append;
use crate::tsdb::append::imported::{ImportTimes, ImportedSamples};
use crate::tsdb::error::AppendError;
use crate::tsdb::maintenance::seal::SealError;
use crate::tsdb::report::AppendReport;
use crate::tsdb::wal::sink::Sink;

/// An import of one organisation into a store without other writers. Batches are durable, and their
/// samples visible, once [`SampleImport::flush`] has returned.
#[derive(Debug)]
pub struct SampleImport<'t> {
    tsdb: &'t Tsdb,
    org: OrgId,
    /// Whether samples go to segments without the log.
    skips_log: bool,
    samples: ImportedSamples,
}

impl Tsdb {
    /// Begins an import.
    pub fn import(&self, org: OrgId) -> SampleImport<'_> {
        SampleImport { tsdb: self, org, skips_log: self.may_skip_log(), samples: ImportedSamples::default() }
    }

    /// Returns whether samples may go to segments without the log. A follower and other consumers
    /// of the log would not get them.
    fn may_skip_log(&self) -> bool {
        self.folder.is_some()
            && matches!(self.log, Sink::Log(_))
            && !self.options.queue_only
            && self.pins.least_stored().is_none()
            && !self.copies.has_follower()
    }
}

impl SampleImport<'_> {
    /// Returns whether samples go to segments without the log.
    pub const fn skips_log(&self) -> bool {
        self.skips_log
    }

    /// Takes a batch like [`Tsdb::append`]. Floats wait in memory, 16 bytes each, for
    /// [`SampleImport::flush`]. Histograms, exemplars, names and samples ahead of the clock go
    /// through the log at once, and so does everything if the log has consumers.
    ///
    /// # Errors
    /// Those of [`Tsdb::append`].
    pub fn append(&mut self, batch: &WriteBatch<'_>, now: Timestamp) -> Result<AppendReport, AppendError> {
        if !self.skips_log {
            return self.tsdb.append(self.org, batch, now);
        }
        let store = self.tsdb.admit(self.org, batch, now)?;
        let mut prepared = append::prepare(&store, batch, self.tsdb.request_clock(now))?;
        let times = ImportTimes { now_ms: now.as_ms(), barrier_ms: store.head.barrier() };
        let newest = |series| store.head.newest(series);
        let taken = self.samples.take(&mut prepared.samples, times, newest);
        let mut appending = self.tsdb.appending(store, prepared, now);
        if let Some((_, greatest)) = self.samples.span() {
            appending.context.newest_ms = appending.context.newest_ms.max(greatest);
        }
        let mut outcomes = self.tsdb.commit(appending.drafts, now)?;
        outcomes.push(taken);
        Ok(appending.context.applied(outcomes).report())
    }

    /// Writes everything to segments, like a seal. A store in memory has none.
    ///
    /// # Errors
    /// [`SealError`]. The samples of batches since the last success may be lost.
    pub fn flush(&mut self, now: Timestamp) -> Result<(), SealError> {
        if self.samples.span().is_some() {
            self.samples.sort();
            self.tsdb.seal_imported(self.org, &self.samples, now)?;
            self.samples.clear();
            return Ok(());
        }
        if self.tsdb.folder.is_some() { self.tsdb.seal(now).map(drop) } else { Ok(()) }
    }
}
