//! The loop of a copy.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use serde::{Deserialize, Serialize};

use super::{
    CopyBatch, CopyFilter, CopyPosition, CopyShare, CopySink, CopySource, ProgressFile, SampleCopyError,
};

/// The samples after which the position is stored.
const SAVE_SAMPLES: u64 = 1_000_000;
/// The batches after which the position is stored. Debug builds, which tests run, store it more
/// often, so that a small copy has several positions.
const SAVE_BATCHES: u32 = if cfg!(debug_assertions) { 1 } else { 64 };
/// The batches after which they are made durable, and the position is stored.
const FLUSH_BATCHES: u32 = 1_024;

/// The outcome of a copy, including the runs before an interruption.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyTotals {
    /// Samples that are stored at the destination.
    pub stored: u64,
    /// Samples that the destination refused, and lines that could not be read.
    pub refused: u64,
    /// The first reasons.
    pub reasons: Vec<String>,
}

impl CopyTotals {
    /// Returns whether no sample, line or part of the source was left out.
    pub fn is_complete(&self) -> bool {
        self.refused == 0 && self.reasons.is_empty()
    }

    fn add_refused(&mut self, samples: u64, reasons: &[String]) {
        self.refused = self.refused.saturating_add(samples);
        for reason in reasons {
            if self.reasons.len() < CopyBatch::REASONS_MAX {
                self.reasons.push(reason.clone());
            }
        }
    }
}

/// The state of a running copy.
#[derive(Clone, Copy, Debug)]
pub struct CopyStep<'c> {
    /// The outcome so far.
    pub totals: &'c CopyTotals,
    /// How far the source has been read.
    pub share: CopyShare,
}

/// The batches that are read while the sink writes, at most.
const BATCHES_WAITING: usize = 2;

/// A batch, and the place behind it.
struct ReadBatch {
    batch: CopyBatch,
    position: CopyPosition,
    share: CopyShare,
}

/// Copies a source to a sink, from the stored position on. A thread reads the source while the
/// caller's thread writes. `observe` is called after each batch and returns whether the copy may
/// continue.
///
/// # Errors
/// [`SampleCopyError`]; the next call continues after the position that was stored last.
pub fn copy(
    source: &mut dyn CopySource,
    filter: &CopyFilter,
    sink: &mut dyn CopySink,
    progress: &ProgressFile,
    observe: &mut dyn FnMut(CopyStep<'_>) -> bool,
) -> Result<CopyTotals, SampleCopyError> {
    let mut totals = CopyTotals::default();
    if let Some((position, known)) = progress.load()? {
        source.resume(position)?;
        totals = known;
    }
    progress.check_writable()?;
    let reader = &mut *source;
    std::thread::scope(|scope| {
        let (sender, batches) = sync_channel(BATCHES_WAITING);
        let thread = std::thread::Builder::new().name("history-source".to_owned());
        let started = thread.spawn_scoped(scope, move || read(reader, &sender));
        started.map_err(|error| SampleCopyError::Source(error.to_string()))?;
        // The receiver is dropped at an error, so that the thread ends.
        write(batches, filter, sink, progress, observe, &mut totals)
    })?;
    for problem in source.problems() {
        totals.add_refused(0, &[problem]);
    }
    progress.remove()?;
    Ok(totals)
}

/// Sends the batches of a source until its end, its first error, or the end of the receiver.
fn read(source: &mut dyn CopySource, sender: &SyncSender<Result<ReadBatch, SampleCopyError>>) {
    loop {
        let read = match source.next() {
            Ok(None) => return,
            Ok(Some(batch)) => Ok(ReadBatch { batch, position: source.position(), share: source.share() }),
            Err(error) => Err(error),
        };
        let is_last = read.is_err();
        if sender.send(read).is_err() || is_last {
            return;
        }
    }
}

/// The positions after the last batches, to which a copy may return once they are durable.
#[derive(Debug, Default)]
struct WaitingPositions(VecDeque<(CopyPosition, CopyTotals)>);

impl WaitingPositions {
    /// Adds the position after a batch. One that was not written is as durable as that before it.
    fn push(&mut self, position: CopyPosition, totals: &CopyTotals, is_written: bool) {
        if !is_written {
            self.0.pop_back();
        }
        self.0.push_back((position, totals.clone()));
    }

    /// Returns the last position that only durable batches precede; none if it was returned before.
    fn take_durable(&mut self, unflushed_batches: usize) -> Option<(CopyPosition, CopyTotals)> {
        let durable = self.0.len().saturating_sub(unflushed_batches);
        self.0.drain(..durable).next_back()
    }
}

fn write(
    batches: Receiver<Result<ReadBatch, SampleCopyError>>,
    filter: &CopyFilter,
    sink: &mut dyn CopySink,
    progress: &ProgressFile,
    observe: &mut dyn FnMut(CopyStep<'_>) -> bool,
    totals: &mut CopyTotals,
) -> Result<(), SampleCopyError> {
    let (mut unsaved, mut unsaved_batches) = (0_u64, 0_u32);
    let mut positions = WaitingPositions::default();
    for read in batches {
        let ReadBatch { mut batch, position, share } = match read {
            Ok(read) => read,
            Err(error) => {
                // Samples that were read are stored, even if the source keeps failing.
                sink.flush()?;
                return Err(error);
            }
        };
        totals.add_refused(batch.refused, &batch.reasons);
        filter.apply(&mut batch);
        let is_written = !batch.series.is_empty() || !batch.metadata.is_empty();
        if is_written {
            let written = sink.write(&batch)?;
            totals.stored = totals.stored.saturating_add(written.stored);
            totals.add_refused(written.refused, &written.reasons);
            unsaved = unsaved.saturating_add(written.stored);
        }
        positions.push(position, totals, is_written);
        unsaved_batches = unsaved_batches.saturating_add(1);
        let may_continue = observe(CopyStep { totals, share });
        if unsaved_batches >= FLUSH_BATCHES || !may_continue {
            sink.flush()?;
        }
        let is_due = unsaved >= SAVE_SAMPLES || unsaved_batches >= SAVE_BATCHES || !may_continue;
        if is_due && let Some((position, totals)) = positions.take_durable(sink.unflushed_batches()) {
            progress.save(position, &totals)?;
            (unsaved, unsaved_batches) = (0, 0);
        }
        if !may_continue {
            return Err(SampleCopyError::Stopped);
        }
    }
    sink.flush()
}
