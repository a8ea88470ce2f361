//! A store of samples as the destination of a copy.

use std::thread::{Builder, Scope, ScopedJoinHandle};

use super::{CopyBatch, CopyLookup, CopySink, SampleCopyError, WrittenCounts};
use crate::clock::Clock;
use crate::model::{Access, HistogramColumns, Labels, Matcher, OrgId, RawSeries, Refusal, TimeRange};
use crate::tsdb::{
    AppendError, ImportMemory, SampleColumns, SampleImport, SealError, SelectedSeries, Snapshot, Tsdb,
};

/// The memory of samples after which they are written to segments, in bytes: three million samples.
/// As many are written while the next ones arrive. Debug builds, which tests run, write smaller
/// segments, so that a small import has several.
const FLUSH_BYTES: usize = if cfg!(debug_assertions) { 512 << 10 } else { 48 << 20 };
/// Like [`FLUSH_BYTES`], for samples that the head holds, which needs more memory for each.
const LOGGED_FLUSH_BYTES: usize = FLUSH_BYTES / 3 * 2;

/// Writes to an organisation of an open store. Segments are written on a thread of their own, if
/// the sink has a scope for it; the stored samples do not depend on that.
#[derive(Debug)]
pub struct StoreSink<'s, 't> {
    import: SampleImport<'t>,
    clock: Clock,
    scope: Option<&'s Scope<'s, 't>>,
    sealing: Option<RunningSeal<'s>>,
    /// The memory of the samples that were written last.
    spare: Option<ImportMemory>,
    /// The batches since the last seal began, and their estimated memory in bytes.
    waiting_batches: usize,
    waiting_bytes: usize,
    /// The bytes after which a seal is due.
    flush_bytes: usize,
}

/// A thread that writes samples to segments.
#[derive(Debug)]
struct RunningSeal<'s> {
    thread: ScopedJoinHandle<'s, Result<ImportMemory, SealError>>,
    /// The batches that it makes durable.
    batches: usize,
}

impl<'s, 't: 's> StoreSink<'s, 't> {
    /// Returns the sink of an organisation. With a scope, a thread writes the segments while the
    /// caller continues.
    pub fn new(
        tsdb: &'t Tsdb,
        org: OrgId,
        clock: Clock,
        scope: Option<&'s Scope<'s, 't>>,
    ) -> StoreSink<'s, 't> {
        let import = tsdb.import(org);
        let flush_bytes = if import.skips_log() { FLUSH_BYTES } else { LOGGED_FLUSH_BYTES };
        StoreSink {
            import,
            clock,
            scope,
            sealing: None,
            spare: None,
            waiting_batches: 0,
            waiting_bytes: 0,
            flush_bytes,
        }
    }

    /// Waits for the thread that writes segments, if there is one.
    fn join(&mut self) -> Result<(), SampleCopyError> {
        let Some(RunningSeal { thread, .. }) = self.sealing.take() else { return Ok(()) };
        let panicked = |_| SampleCopyError::Sink("the thread that writes segments panicked".to_owned());
        self.spare = Some(thread.join().map_err(panicked)?.map_err(|error| failed(&error))?);
        Ok(())
    }

    /// Begins to write the samples that wait to segments, after those before them are written.
    fn begin_seal(&mut self) -> Result<(), SampleCopyError> {
        let Some(scope) = self.scope.filter(|_| self.import.skips_log()) else { return self.seal() };
        self.join()?;
        let Some(seal) = self.import.begin_seal(self.clock.now()) else { return self.seal() };
        let thread = Builder::new().name("history-seal".to_owned());
        let thread = thread.spawn_scoped(scope, move || seal.run()).map_err(|error| failed(&error))?;
        self.sealing = Some(RunningSeal { thread, batches: self.waiting_batches });
        if let Some(memory) = self.spare.take() {
            self.import.reuse(memory);
        }
        (self.waiting_batches, self.waiting_bytes) = (0, 0);
        Ok(())
    }

    /// Writes everything to segments, and waits for that.
    fn seal(&mut self) -> Result<(), SampleCopyError> {
        self.join()?;
        self.import.flush(self.clock.now()).map_err(|error| failed(&error))?;
        (self.waiting_batches, self.waiting_bytes) = (0, 0);
        Ok(())
    }
}

impl CopySink for StoreSink<'_, '_> {
    fn write(&mut self, batch: &CopyBatch) -> Result<WrittenCounts, SampleCopyError> {
        // What the head does with other samples than floats may depend on the seal.
        let has_others = batch.series.iter().any(|series| !series.has_only_floats());
        if has_others || self.sealing.as_ref().is_some_and(|seal| seal.thread.is_finished()) {
            self.join()?;
        }
        let mut builder = batch.builder();
        let taken = builder.take_batch();
        let mut appended = self.import.append(&taken, self.clock.now());
        if let Err(AppendError::AtCapacity { .. } | AppendError::OutOfMemory(_)) = appended {
            self.seal()?;
            appended = self.import.append(&taken, self.clock.now());
        }
        let report = appended.map_err(|error| failed(&error))?;
        self.waiting_batches = self.waiting_batches.saturating_add(1);
        self.waiting_bytes = self.waiting_bytes.saturating_add(batch.bytes());
        if self.waiting_bytes >= self.flush_bytes {
            self.begin_seal()?;
        }
        let reason = |one: &Refusal| format!("{}: {}", one.series, one.reason);
        Ok(WrittenCounts {
            stored: report.stored,
            refused: report.refused,
            reasons: report.refusals.iter().map(reason).collect(),
        })
    }

    fn unflushed_batches(&self) -> usize {
        let sealing = self.sealing.as_ref().map_or(0, |seal| seal.batches);
        self.waiting_batches.saturating_add(sealing)
    }

    fn flush(&mut self) -> Result<(), SampleCopyError> {
        if self.waiting_batches > 0 { self.seal() } else { self.join() }
    }
}

fn failed(error: &dyn std::error::Error) -> SampleCopyError {
    SampleCopyError::Sink(error.to_string())
}

/// Reads from an organisation of an open store.
#[derive(Debug)]
pub struct StoreLookup {
    snapshot: Snapshot,
}

impl StoreLookup {
    /// Returns the reader of an organisation.
    pub fn new(tsdb: &Tsdb, org: OrgId) -> StoreLookup {
        StoreLookup { snapshot: tsdb.snapshot(&Access::whole(org)) }
    }
}

impl CopyLookup for StoreLookup {
    fn samples(&mut self, labels: &Labels, range: TimeRange) -> Result<RawSeries, SampleCopyError> {
        let matchers: Vec<Matcher> =
            labels.iter().map(|label| Matcher::equal(label.name, label.value)).collect();
        // Other series may have further labels.
        let found = self.snapshot.select(&matchers, range).into_iter().find(|one| one.labels == *labels);
        let read = match found {
            Some(one) => read_series(&self.snapshot, &one, range),
            None => undamaged(&self.snapshot, RawSeries::new(labels.clone())),
        };
        read.map_err(SampleCopyError::Lookup)
    }
}

/// Reads the samples of a series.
///
/// # Errors
/// A sentence, if any file could not be read through the snapshot.
pub(in crate::history) fn read_series(
    snapshot: &Snapshot,
    one: &SelectedSeries,
    range: TimeRange,
) -> Result<RawSeries, String> {
    let (mut floats, mut histograms) = (SampleColumns::default(), HistogramColumns::default());
    snapshot.read_both(one.id, range, range.start, &mut floats, &mut histograms);
    let SampleColumns { times, values } = floats;
    undamaged(snapshot, RawSeries { labels: one.labels.clone(), times, values, histograms })
}

/// Returns the samples, or the first warning of a file that could not be read.
fn undamaged(snapshot: &Snapshot, raw: RawSeries) -> Result<RawSeries, String> {
    snapshot.warnings().into_iter().next().map_or(Ok(raw), Err)
}
