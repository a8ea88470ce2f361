//! A server as a source, which is read in one window of time after another: remote read and the
//! export of VictoriaMetrics.

use super::batch::BatchSize;
use super::{CopyBatch, CopyPosition, CopySeries, CopyShare, CopySource, SampleCopyError};
use crate::model::{TimeRange, Timestamp};

/// The first and the longest window in milliseconds.
const WINDOW_FIRST_MS: i64 = 2 * 3_600_000;
const WINDOW_MAX_MS: i64 = 32 * 24 * 3_600_000;
/// The shortest window in milliseconds.
const WINDOW_MIN_MS: i64 = 1_000;
/// A window with fewer samples is doubled.
const SAMPLES_FEW: usize = 500_000;

/// The reason why a window was not fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FetchFailure {
    /// The window has too many samples for one response.
    TooLarge(String),
    /// The server does not answer, or not as expected.
    Failed(String),
}

/// Fetches the samples of a server.
pub trait FetchWindow {
    /// Returns a text that identifies the server and the selection.
    fn identity(&self) -> String;

    /// Returns the samples in a range.
    ///
    /// # Errors
    /// [`FetchFailure`].
    fn fetch(&mut self, range: TimeRange) -> Result<CopyBatch, FetchFailure>;
}

/// A server that is read window by window.
#[derive(Debug)]
pub struct WindowSource<F> {
    fetch: F,
    range: TimeRange,
    next_ms: i64,
    /// The end of the last window whose parts were all returned.
    done_ms: i64,
    window_ms: i64,
    /// Parts of the last window that were not returned yet, from the last to the first.
    parts: Vec<CopyBatch>,
}

impl<F: FetchWindow> WindowSource<F> {
    /// Returns the source of the samples in a range.
    pub const fn new(fetch: F, range: TimeRange) -> WindowSource<F> {
        let start = range.start.as_ms();
        WindowSource {
            fetch,
            range,
            next_ms: start,
            done_ms: start,
            window_ms: WINDOW_FIRST_MS,
            parts: Vec::new(),
        }
    }

    fn fetch_next(&mut self) -> Result<CopyBatch, SampleCopyError> {
        loop {
            let last_ms =
                self.next_ms.saturating_add(self.window_ms.saturating_sub(1)).min(self.range.end.as_ms());
            let window = TimeRange::new(Timestamp::from_ms(self.next_ms), Timestamp::from_ms(last_ms));
            match self.fetch.fetch(window) {
                Ok(batch) => {
                    self.next_ms = last_ms.saturating_add(1);
                    if batch.sample_count() < SAMPLES_FEW {
                        self.window_ms = self.window_ms.saturating_mul(2).min(WINDOW_MAX_MS);
                    }
                    return Ok(batch);
                }
                Err(FetchFailure::TooLarge(reason)) if self.window_ms <= WINDOW_MIN_MS => {
                    return Err(SampleCopyError::Source(format!(
                        "one second from {} on has too many samples: {reason}; copy it in parts with --match",
                        window.start.to_rfc3339()
                    )));
                }
                Err(FetchFailure::TooLarge(_)) => {
                    self.window_ms = self.window_ms.checked_div(4).unwrap_or_default().max(WINDOW_MIN_MS);
                }
                Err(FetchFailure::Failed(reason)) => return Err(SampleCopyError::Source(reason)),
            }
        }
    }
}

impl<F: FetchWindow + Send> CopySource for WindowSource<F> {
    fn identity(&self) -> String {
        self.fetch.identity()
    }

    fn resume(&mut self, position: CopyPosition) -> Result<(), SampleCopyError> {
        self.next_ms = position.offset.max(self.range.start.as_ms());
        self.done_ms = self.next_ms;
        Ok(())
    }

    fn next(&mut self) -> Result<Option<CopyBatch>, SampleCopyError> {
        while self.parts.is_empty() {
            if self.next_ms > self.range.end.as_ms() {
                return Ok(None);
            }
            let batch = self.fetch_next()?;
            self.parts = in_parts(batch);
            self.parts.reverse();
        }
        let part = self.parts.pop();
        if self.parts.is_empty() {
            self.done_ms = self.next_ms;
        }
        Ok(part)
    }

    fn position(&self) -> CopyPosition {
        CopyPosition { part: 0, offset: self.done_ms, lines: 0 }
    }

    fn share(&self) -> CopyShare {
        let since = |ms: i64| u64::try_from(ms.saturating_sub(self.range.start.as_ms())).unwrap_or_default();
        CopyShare { done: since(self.next_ms), all: since(self.range.end.as_ms().saturating_add(1)) }
    }

    fn problems(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Splits a batch into batches of at most about [`super::BATCH_SAMPLES`] samples.
fn in_parts(batch: CopyBatch) -> Vec<CopyBatch> {
    let CopyBatch { series, metadata, refused, reasons } = batch;
    let (mut parts, mut size) = (Vec::new(), BatchSize::default());
    let mut part = CopyBatch { series: Vec::new(), metadata, refused, reasons };
    for mut one in series {
        while one.samples.len() > super::BATCH_SAMPLES {
            let rest = one.samples.split_off(super::BATCH_SAMPLES);
            let samples = std::mem::replace(&mut one.samples, rest);
            part.series.push(CopySeries { labels: one.labels.clone(), samples, ..CopySeries::default() });
            parts.push(std::mem::take(&mut part));
            size = BatchSize::default();
        }
        size.add_series(&one);
        part.series.push(one);
        if size.is_full() {
            parts.push(std::mem::take(&mut part));
            size = BatchSize::default();
        }
    }
    if !part.series.is_empty() || !part.metadata.is_empty() || part.refused > 0 {
        parts.push(part);
    }
    parts
}
