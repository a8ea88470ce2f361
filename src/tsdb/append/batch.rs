//! A batch on its way to the log: prepared, and then applied.

use std::sync::Arc;

use crate::model::{Refusal, Timestamp};
use crate::tsdb::report::{AppendReport, UNREADABLE};
use crate::tsdb::store::OrgStore;
use crate::tsdb::store::pins::LogPosition;
use crate::tsdb::wal::log::{ApplyOutcome, Draft};

/// A batch that is ready to be logged.
#[derive(Debug)]
pub struct Appending {
    pub(in crate::tsdb) drafts: Vec<Draft>,
    pub(in crate::tsdb) context: BatchContext,
}

impl Appending {
    /// Adds samples, histograms among them, and exemplars that the receiver's own rules dropped.
    /// They count as stored, so that their sender does not repeat them.
    #[must_use]
    pub fn with_dropped(mut self, samples: u64, histograms: u64, exemplars: u64) -> Appending {
        let report = &mut self.context.report;
        report.stored += samples;
        report.histograms += histograms;
        report.exemplars += exemplars;
        self
    }

    /// Adds values that the decoder left out because they are not numbers.
    #[must_use]
    pub fn with_skipped(mut self, values: u64) -> Appending {
        self.context.report.skipped += values;
        self
    }

    /// Adds samples that the decoder refused before there was a batch. They are counted with the
    /// code [`UNREADABLE`], and their refusals are reported before those of this batch.
    #[must_use]
    pub fn with_unreadable(mut self, refused: u64, mut refusals: Vec<Refusal>) -> Appending {
        let report = &mut self.context.report;
        if refused > 0 {
            report.count(refused, UNREADABLE);
        }
        refusals.append(&mut report.refusals);
        refusals.truncate(AppendReport::REFUSALS_MAX);
        report.refusals = refusals;
        self
    }
}

/// The outcome of the preparation of a guessed batch.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "the caller takes the batch out at once")]
pub enum GuessOutcome {
    /// The guess is correct. The batch is ready to be logged.
    Ready(Appending),
    /// The guess may be wrong. No series was prepared, and the body must be decoded completely.
    Doubtful,
}

/// The context in which the outcome of a batch is reported.
#[derive(Debug)]
pub(in crate::tsdb) struct BatchContext {
    pub(in crate::tsdb) store: Arc<OrgStore>,
    pub(in crate::tsdb) report: AppendReport,
    /// The outcome of samples that were refused as duplicates before the log.
    pub(in crate::tsdb) duplicates: ApplyOutcome,
    pub(in crate::tsdb) newest_ms: i64,
    pub(in crate::tsdb) now: Timestamp,
    /// Whether the stored samples count as samples of this day.
    pub(in crate::tsdb) is_usage: bool,
    /// Whether all records are definitions of series, samples, histograms and exemplars.
    pub(in crate::tsdb) has_samples_only: bool,
}

impl BatchContext {
    /// Counts the outcomes of the batch.
    pub(in crate::tsdb) fn applied(mut self, mut outcomes: Vec<ApplyOutcome>) -> Appended {
        let BatchContext { store, report, duplicates, newest_ms, now, is_usage, .. } = &mut self;
        if duplicates.refused > 0 {
            outcomes.push(std::mem::take(duplicates));
        }
        super::count(store, report, &outcomes);
        store.usage.record_time(*newest_ms);
        store.usage.count(if *is_usage { report.stored } else { 0 }, &report.refused_by_code, *now);
        Appended { context: self, outcomes }
    }
}

/// A batch whose records are applied, and durable according to
/// [`Durability`](crate::tsdb::Durability).
#[derive(Debug)]
pub struct Appended {
    context: BatchContext,
    outcomes: Vec<ApplyOutcome>,
}

/// The records of a batch in the log. No other record of the organisation is among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSpan {
    /// The organisation's record before the first one, if that was written since the store was
    /// opened; any lower position otherwise.
    pub before: LogPosition,
    /// The first record.
    pub first: LogPosition,
    /// The last record.
    pub last: LogPosition,
    /// The number of samples and histograms.
    pub samples: u64,
    /// The greatest time of a sample or histogram in ms.
    pub newest_ms: i64,
}

impl Appended {
    /// Returns the records of the batch. None if samples or labels were refused, or if the batch
    /// has records of other kinds than definitions of series, samples, histograms and exemplars, or
    /// no record at all.
    pub fn complete_span(&self) -> Option<LogSpan> {
        let Appended { context, outcomes } = self;
        let (first, last) = (outcomes.first()?, outcomes.last()?);
        let is_complete = context.has_samples_only
            && context.report.refused == 0
            && context.report.refusals.is_empty()
            && context.report.skipped == 0
            && first.record_seq > 0;
        is_complete.then_some(LogSpan {
            before: LogPosition(first.seq_before),
            first: LogPosition(first.record_seq),
            last: LogPosition(last.record_seq),
            samples: context.report.stored,
            newest_ms: context.newest_ms,
        })
    }

    /// Returns whether samples were refused.
    pub const fn has_refusals(&self) -> bool {
        self.context.report.refused > 0
    }

    /// Returns the numbers of stored and refused samples. Reads the labels of refused series, if
    /// there are any.
    pub fn report(self) -> AppendReport {
        let BatchContext { store, mut report, .. } = self.context;
        super::name(&store, &mut report, &self.outcomes);
        report
    }
}
