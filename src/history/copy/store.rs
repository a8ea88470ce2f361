//! A store of samples as the destination of a copy.

use super::{CopyBatch, CopyLookup, CopySink, SampleCopyError, WrittenCounts};
use crate::clock::Clock;
use crate::model::{Access, HistogramColumns, Labels, Matcher, OrgId, RawSeries, Refusal, TimeRange};
use crate::tsdb::{AppendError, SampleColumns, SampleImport, SelectedSeries, Snapshot, Tsdb};

/// The memory of samples after which they are written to segments, in bytes: six million samples.
/// Debug builds, which tests run, write smaller segments, so that a small import has several.
const FLUSH_BYTES: usize = if cfg!(debug_assertions) { 512 << 10 } else { 96 << 20 };
/// Like [`FLUSH_BYTES`], for samples that the head holds, which needs more memory for each.
const LOGGED_FLUSH_BYTES: usize = FLUSH_BYTES / 3;

/// Writes to an organisation of an open store.
#[derive(Debug)]
pub struct StoreSink<'t> {
    import: SampleImport<'t>,
    clock: Clock,
    /// The estimated memory of the batches since the last flush, in bytes.
    unflushed_bytes: usize,
    /// The bytes after which a flush is due.
    flush_bytes: usize,
}

impl<'t> StoreSink<'t> {
    /// Returns the sink of an organisation.
    pub fn new(tsdb: &'t Tsdb, org: OrgId, clock: Clock) -> StoreSink<'t> {
        let import = tsdb.import(org);
        let flush_bytes = if import.skips_log() { FLUSH_BYTES } else { LOGGED_FLUSH_BYTES };
        StoreSink { import, clock, unflushed_bytes: 0, flush_bytes }
    }

    fn seal(&mut self) -> Result<(), SampleCopyError> {
        self.import.flush(self.clock.now()).map_err(|error| failed(&error))?;
        self.unflushed_bytes = 0;
        Ok(())
    }
}

impl CopySink for StoreSink<'_> {
    fn write(&mut self, batch: &CopyBatch) -> Result<WrittenCounts, SampleCopyError> {
        let mut builder = batch.builder();
        let taken = builder.take_batch();
        let mut appended = self.import.append(&taken, self.clock.now());
        if let Err(AppendError::AtCapacity { .. } | AppendError::OutOfMemory(_)) = appended {
            self.seal()?;
            appended = self.import.append(&taken, self.clock.now());
        }
        let report = appended.map_err(|error| failed(&error))?;
        // A batch without samples counts as one byte, because it has descriptions.
        self.unflushed_bytes = self.unflushed_bytes.saturating_add(batch.bytes()).saturating_add(1);
        if self.unflushed_bytes >= self.flush_bytes {
            self.seal()?;
        }
        let reason = |one: &Refusal| format!("{}: {}", one.series, one.reason);
        Ok(WrittenCounts {
            stored: report.stored,
            refused: report.refused,
            reasons: report.refusals.iter().map(reason).collect(),
        })
    }

    fn is_flushed(&self) -> bool {
        self.unflushed_bytes == 0
    }

    fn flush(&mut self) -> Result<(), SampleCopyError> {
        if self.unflushed_bytes > 0 { self.seal() } else { Ok(()) }
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
