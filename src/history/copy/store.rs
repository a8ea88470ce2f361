//! A store of samples as the destination of a copy.

use super::{CopyBatch, CopyLookup, CopySink, SampleCopyError, WrittenCounts};
use crate::clock::Clock;
use crate::model::{Access, HistogramColumns, Labels, Matcher, OrgId, RawSeries, Refusal, TimeRange};
use crate::tsdb::{AppendError, SampleColumns, SelectedSeries, Snapshot, Tsdb};

/// The samples after which the head is sealed, so that its memory stays small.
const SEAL_SAMPLES: u64 = 2_000_000;

/// Writes to an organisation of an open store.
#[derive(Debug)]
pub struct StoreSink<'t> {
    tsdb: &'t Tsdb,
    org: OrgId,
    clock: Clock,
    unsealed: u64,
}

impl<'t> StoreSink<'t> {
    /// Returns the sink of an organisation.
    pub const fn new(tsdb: &'t Tsdb, org: OrgId, clock: Clock) -> StoreSink<'t> {
        StoreSink { tsdb, org, clock, unsealed: 0 }
    }

    fn seal(&mut self) -> Result<(), SampleCopyError> {
        self.unsealed = 0;
        self.tsdb.seal(self.clock.now()).map(drop).map_err(|error| SampleCopyError::Sink(error.to_string()))
    }
}

impl CopySink for StoreSink<'_> {
    fn write(&mut self, batch: &CopyBatch) -> Result<WrittenCounts, SampleCopyError> {
        let builder = batch.builder();
        let mut appended = self.tsdb.append(self.org, &builder.batch(), self.clock.now());
        if let Err(AppendError::AtCapacity { .. } | AppendError::OutOfMemory(_)) = appended {
            self.seal()?;
            appended = self.tsdb.append(self.org, &builder.batch(), self.clock.now());
        }
        let report = appended.map_err(|error| SampleCopyError::Sink(error.to_string()))?;
        self.unsealed = self.unsealed.saturating_add(report.stored);
        if self.unsealed >= SEAL_SAMPLES {
            self.seal()?;
        }
        let reason = |one: &Refusal| format!("{}: {}", one.series, one.reason);
        Ok(WrittenCounts {
            stored: report.stored,
            refused: report.refused,
            reasons: report.refusals.iter().map(reason).collect(),
        })
    }
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
        read.map_err(SampleCopyError::Sink)
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
