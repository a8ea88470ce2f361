//! Imports of one organisation: samples go to segments, without the log.

use super::Tsdb;
use crate::kv::with_sources;
use crate::model::{OrgId, Timestamp, WriteBatch};
use crate::tsdb::append;
use crate::tsdb::append::imported::{ImportTimes, ImportedSamples, NewestSamples};
use crate::tsdb::error::AppendError;
use crate::tsdb::maintenance::compact::{DAY_MS, UpkeepError};
use crate::tsdb::maintenance::seal::SealError;
use crate::tsdb::report::AppendReport;
use crate::tsdb::wal::sink::Sink;

/// An import of one organisation into a store without other writers. Batches are durable, and their
/// samples visible, once [`SampleImport::flush`] has returned, or once the [`ImportSeal`] that took
/// them has run.
#[derive(Debug)]
pub struct SampleImport<'t> {
    tsdb: &'t Tsdb,
    org: OrgId,
    /// Whether samples go to segments without the log.
    skips_log: bool,
    samples: ImportedSamples,
    newest: NewestSamples,
    /// The end of the window that the last seal of this import closes, in ms, exclusive.
    closed_until: i64,
    /// The latest day on which the samples of a seal began, counted from the epoch.
    last_day: Option<i64>,
}

/// Samples of an import that wait to be written to segments. The import may continue on another
/// thread meanwhile: which of its samples are late, and which are refused, does not depend on when
/// the seal runs.
#[derive(Debug)]
pub struct ImportSeal<'t> {
    tsdb: &'t Tsdb,
    org: OrgId,
    samples: ImportedSamples,
    /// The end of the window, exclusive.
    until_ms: i64,
    /// Days that end before this time in ms have probably no further samples.
    merge_before: Option<i64>,
    now: Timestamp,
}

/// The memory of samples that are in segments, for further samples.
#[derive(Debug)]
pub struct ImportMemory(ImportedSamples);

impl Tsdb {
    /// Begins an import.
    pub fn import(&self, org: OrgId) -> SampleImport<'_> {
        SampleImport {
            tsdb: self,
            org,
            skips_log: self.may_skip_log(),
            samples: ImportedSamples::default(),
            newest: NewestSamples::default(),
            closed_until: i64::MIN,
            last_day: None,
        }
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

impl<'t> SampleImport<'t> {
    /// Returns whether samples go to segments without the log.
    pub const fn skips_log(&self) -> bool {
        self.skips_log
    }

    /// Takes a batch like [`Tsdb::append`]. Floats wait in memory, 16 bytes each, for
    /// [`SampleImport::flush`]. Histograms, exemplars, names and samples ahead of the clock go
    /// through the log at once, and so does everything if the log has consumers.
    ///
    /// Histograms must not be taken while an [`ImportSeal`] runs: they may be refused or replaced
    /// otherwise than after it.
    ///
    /// # Errors
    /// Those of [`Tsdb::append`].
    pub fn append(&mut self, batch: &WriteBatch<'_>, now: Timestamp) -> Result<AppendReport, AppendError> {
        if !self.skips_log {
            return self.tsdb.append(self.org, batch, now);
        }
        let store = self.tsdb.admit(self.org, batch, now)?;
        let mut prepared = append::prepare(&store, batch, self.tsdb.request_clock(now))?;
        // A seal that has begun may not have closed its window yet.
        let barrier_ms = store.head.barrier().max(self.closed_until);
        let times = ImportTimes { now_ms: now.as_ms(), barrier_ms };
        let newest = |series| store.head.newest(series);
        let taken = self.samples.take(&mut prepared.samples, times, &mut self.newest, newest);
        let mut appending = self.tsdb.appending(store, prepared, now);
        if let Some((_, greatest)) = self.samples.span() {
            appending.context.newest_ms = appending.context.newest_ms.max(greatest);
        }
        let mut outcomes = self.tsdb.commit(appending.drafts, now)?;
        outcomes.push(taken);
        Ok(appending.context.applied(outcomes).report())
    }

    /// Takes the samples that wait out of the import. At most one seal may wait or run at a time.
    /// Returns none if no sample waits; [`SampleImport::flush`] then writes everything else.
    pub fn begin_seal(&mut self, now: Timestamp) -> Option<ImportSeal<'t>> {
        let (least, greatest) = self.samples.span()?;
        let end = self.tsdb.import_end(self.org, greatest, now);
        self.closed_until = self.closed_until.max(end);
        // Most sources are in the order of time. The others repeat a day only if they come back
        // to it.
        let day = least.div_euclid(DAY_MS);
        let merges = self.last_day.is_some_and(|last| last < day);
        self.last_day = Some(self.last_day.map_or(day, |last| last.max(day)));
        Some(ImportSeal {
            tsdb: self.tsdb,
            org: self.org,
            samples: std::mem::take(&mut self.samples),
            until_ms: self.closed_until,
            merge_before: merges.then_some(least),
            now,
        })
    }

    /// Uses the memory of an earlier seal for further samples, if none wait.
    pub fn reuse(&mut self, ImportMemory(samples): ImportMemory) {
        if self.samples.span().is_none() {
            self.samples = samples;
        }
    }

    /// Writes everything to segments, like a seal. A store in memory has none. No [`ImportSeal`]
    /// may run meanwhile.
    ///
    /// # Errors
    /// [`SealError`]. The samples of batches since the last success may be lost.
    pub fn flush(&mut self, now: Timestamp) -> Result<(), SealError> {
        if let Some(seal) = self.begin_seal(now) {
            let memory = seal.run()?;
            self.reuse(memory);
            return Ok(());
        }
        if self.tsdb.folder.is_some() { self.tsdb.seal(now).map(drop) } else { Ok(()) }
    }
}

impl ImportSeal<'_> {
    /// Writes the samples to segments, like a seal, and makes them visible. Merges the segments of
    /// earlier days if the samples are the first ones of a later day.
    ///
    /// # Errors
    /// [`SealError`]. The samples may be lost.
    pub fn run(mut self) -> Result<ImportMemory, SealError> {
        self.samples.sort();
        self.tsdb.seal_imported(self.org, &self.samples, self.until_ms, self.now)?;
        self.samples.clear();
        if let Some(at_ms) = self.merge_before {
            match self.tsdb.compact_days_before(self.org, at_ms, self.now) {
                Ok(_) => {}
                Err(stopped @ UpkeepError::Stopped) => return Err(stopped.into()),
                // The samples are sealed. The merge at the end of the import reports the failure.
                Err(error) => tracing::warn!("segments were not merged: {}", with_sources(&error)),
            }
        }
        Ok(ImportMemory(self.samples))
    }
}
