//! A store of samples as the destination of a copy.

use super::{CopyBatch, CopyLookup, CopySink, SampleCopyError, WrittenCounts};
use crate::clock::Clock;
use crate::model::{Access, HistogramColumns, Labels, Matcher, OrgId, RawSeries, TimeRange};
use crate::tsdb::{AppendError, SampleColumns, Snapshot, Tsdb};

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
        let append = |now| self.tsdb.append(self.org, &builder.batch(), now);
        let report = match append(self.clock.now()) {
            Err(AppendError::AtCapacity { .. } | AppendError::OutOfMemory(_)) => {
                self.seal()?;
                let append = self.tsdb.append(self.org, &builder.batch(), self.clock.now());
                append.map_err(|error| SampleCopyError::Sink(error.to_string()))?
            }
            outcome => outcome.map_err(|error| SampleCopyError::Sink(error.to_string()))?,
        };
        self.unsealed = self.unsealed.saturating_add(report.stored);
        if self.unsealed >= SEAL_SAMPLES {
            self.seal()?;
        }
        let reason = |one: &crate::model::Refusal| format!("{}: {}", one.series, one.reason);
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
        let mut raw = RawSeries::new(labels.clone());
        for one in self.snapshot.select(&matchers, range) {
            if one.labels == *labels {
                let (mut floats, mut natives) = (SampleColumns::default(), HistogramColumns::default());
                self.snapshot.read_both(one.id, range, range.start, &mut floats, &mut natives);
                (raw.times, raw.values, raw.histograms) = (floats.times, floats.values, natives);
            }
        }
        match self.snapshot.warnings().first() {
            Some(warning) => Err(SampleCopyError::Sink(warning.clone())),
            None => Ok(raw),
        }
    }
}
