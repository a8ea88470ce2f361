//! The loop of a copy.

use serde::{Deserialize, Serialize};

use super::{CopyBatch, CopyFilter, CopyShare, CopySink, CopySource, ProgressFile, SampleCopyError};

/// The samples after which the position is stored.
const SAVE_SAMPLES: u64 = 1_000_000;
/// The batches after which the position is stored.
const SAVE_BATCHES: u32 = 64;

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

/// Copies a source to a sink, from the stored position on. `observe` is called after each batch and
/// returns whether the copy may continue.
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
    let (mut unsaved, mut batches) = (0_u64, 0_u32);
    while let Some(mut batch) = source.next()? {
        totals.add_refused(batch.refused, &batch.reasons);
        filter.apply(&mut batch);
        if !batch.series.is_empty() || !batch.metadata.is_empty() {
            let written = sink.write(&batch)?;
            totals.stored = totals.stored.saturating_add(written.stored);
            totals.add_refused(written.refused, &written.reasons);
            unsaved = unsaved.saturating_add(written.stored);
        }
        batches = batches.saturating_add(1);
        let may_continue = observe(CopyStep { totals: &totals, share: source.share() });
        if unsaved >= SAVE_SAMPLES || batches >= SAVE_BATCHES || !may_continue {
            progress.save(source.position(), &totals)?;
            (unsaved, batches) = (0, 0);
        }
        if !may_continue {
            return Err(SampleCopyError::Stopped);
        }
    }
    for problem in source.problems() {
        totals.add_refused(0, &[problem]);
    }
    progress.remove()?;
    Ok(totals)
}
