//! The steps of a move.

use std::time::Duration;

use super::batch::{BatchEncoder, BatchError, KnownSamples, MoveBatch};
use super::history::{BATCH_SAMPLES, HistoryError, HistoryReader, WINDOW_MS, next_window};
use super::readback::{ReadbackQuery, RemoteSeries, of_metric, of_series, parse_matrix, range_query};
use super::tail::{SentSeries, UnsureSeries};
use crate::forward::encode::{BodyCompression, EncodedRequest, WriteVersion};
use crate::identity::{HistoryCursor, MoveRow, MoveStep};
use crate::model::{Labels, TimeRange, Timestamp};
use crate::tsdb::Snapshot;

/// The first and the longest delay before a request is retried.
const RETRY_DELAYS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(30));
/// The longest delay that a target may ask for.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(300);
/// The most samples that are read back at once.
pub(super) const READBACK_SAMPLES_MAX: usize = 50_000;
/// The number of series of a metric above which all of the metric are read back at once.
const SINGLE_QUERIES_MAX: usize = 8;
/// The length of a window of the comparison in milliseconds.
pub(super) const COMPARED_WINDOW_MS: i64 = 12 * WINDOW_MS;
/// Refused samples before the switch after which no further batch is divided.
const REFUSED_MAX: u64 = 100;
/// Requests at most that look for the refused part of one batch after the switch.
const SPLITS_MAX: usize = 512;
/// The most reasons of refusals and differences that are kept.
const NOTES_MAX: usize = 20;

/// The delays between attempts: each is twice the previous one, up to the longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RetryDelay(Duration);

impl Default for RetryDelay {
    fn default() -> RetryDelay {
        RetryDelay(RETRY_DELAYS.0)
    }
}

impl RetryDelay {
    fn next(&mut self) -> Duration {
        let longer = (self.0 * 2).min(RETRY_DELAYS.1);
        std::mem::replace(&mut self.0, longer)
    }
}

/// The reason why a move does not continue. Its row is stored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MoveStop {
    /// The server stops, or an operator stopped the move. It continues later.
    #[error("the move was stopped; it continues with the next start")]
    Stopping,
    /// The organisation no longer exists.
    #[error("the organisation was removed")]
    Removed,
    /// An error that an operator has to resolve.
    #[error("{0}")]
    Failed(String),
}

impl From<HistoryError> for MoveStop {
    fn from(error: HistoryError) -> MoveStop {
        MoveStop::Failed(error.to_string())
    }
}

/// The reason why a request was not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteFailure {
    /// Retry: no connection, a timeout, 429, 5xx, or a wrong credential. The target may have
    /// accepted the request.
    Retry {
        /// The delay that the target asks for.
        after: Option<Duration>,
        /// A sentence.
        reason: String,
    },
    /// The samples are not acceptable: 400, 409, 413, 415, 422.
    Refused {
        /// The target's words.
        reason: String,
    },
}

/// The reason why a query has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadFailure {
    /// Retry.
    Retry {
        /// A sentence.
        reason: String,
    },
    /// The response exceeds the limit of its body, or the query a limit of the target.
    TooLarge {
        /// A sentence.
        reason: String,
    },
    /// The query is not acceptable.
    Refused {
        /// The target's words.
        reason: String,
    },
}

/// Records of the log.
#[derive(Clone, Debug, Default)]
pub struct TailBatch {
    /// The samples of the records.
    pub batch: MoveBatch,
    /// The number of the record after the last one of the batch.
    pub next: u64,
    /// Records that can be read without waiting.
    pub left: u64,
    /// Deletions among the records; they are not sent.
    pub deletions: u64,
    /// The number of requested records that the log no longer has.
    pub lost_records: u64,
}

/// The operations of a move on the store, the target and the clock.
pub trait MoveEnvironment {
    /// Stores the row durably.
    ///
    /// # Errors
    /// [`MoveStop`].
    fn save(&mut self, row: &MoveRow) -> Result<(), MoveStop>;

    /// Sends a request to the target.
    ///
    /// # Errors
    /// [`WriteFailure`].
    fn write(&mut self, request: EncodedRequest) -> Result<(), WriteFailure>;

    /// Sends a query to the target, and returns the body of the response.
    ///
    /// # Errors
    /// [`ReadFailure`].
    fn query(&mut self, query: &ReadbackQuery) -> Result<Vec<u8>, ReadFailure>;

    /// Returns the names of the metrics at the target with samples in the range.
    ///
    /// # Errors
    /// [`ReadFailure`].
    fn metric_names(&mut self, range: TimeRange) -> Result<Vec<String>, ReadFailure>;

    /// Pins the log, and returns its end. Every earlier record is visible in snapshots.
    ///
    /// # Errors
    /// [`MoveStop`].
    fn pin_log(&mut self) -> Result<u64, MoveStop>;

    /// Returns records from `from` on: up to `until` (exclusive), or some thousand samples. Allows
    /// the log to remove earlier records. If the log ends before `from`, `next` is its end.
    ///
    /// # Errors
    /// [`MoveStop`].
    fn tail(&mut self, from: u64, until: Option<u64>) -> Result<TailBatch, MoveStop>;

    /// Returns a view of the organisation's samples.
    fn snapshot(&self) -> Snapshot;

    /// Returns the time of the newest sample plus one millisecond; `None` without samples.
    fn after_newest_ms(&self) -> Option<i64>;

    /// Stores samples in this store. Returns the number of refused samples.
    ///
    /// # Errors
    /// [`MoveStop`].
    fn store(&mut self, batch: &MoveBatch) -> Result<u64, MoveStop>;

    /// Switches the organisation's engine and stores the row in one commit.
    ///
    /// # Errors
    /// [`MoveStop`].
    fn switch(&mut self, row: &MoveRow) -> Result<(), MoveStop>;

    /// Waits.
    ///
    /// # Errors
    /// [`MoveStop::Stopping`] as soon as the move is to stop.
    fn pause(&mut self, time: Duration) -> Result<(), MoveStop>;

    /// Shows the state.
    fn report(&mut self, row: &MoveRow, notes: &[String], waits_for: Option<&str>);
}

/// The settings of a move.
#[derive(Clone, Debug)]
pub struct MoverOptions {
    /// The version of remote write.
    pub version: WriteVersion,
    /// The compression of requests.
    pub compression: BodyCompression,
    /// The label by which the target separates tenants: name and value.
    pub tenant_label: Option<(String, String)>,
    /// How long the target may take to show samples that it accepted.
    pub settle: Duration,
}

/// A move that is being carried out.
pub struct Mover<'e, E> {
    pub(super) env: &'e mut E,
    pub(super) row: MoveRow,
    pub(super) options: MoverOptions,
    encoder: BatchEncoder,
    /// Whether the target may have accepted samples that it does not show yet.
    pub(super) is_unsettled: bool,
    /// The last samples that the tail sent, by series.
    pub(super) sent: SentSeries,
    /// Samples of the tail that the target may have.
    pub(super) unsure: UnsureSeries,
    /// The changes of the row that are not stored.
    pub(super) unsaved: Unsaved,
    pub(super) notes: Vec<String>,
    /// The reason why the last response was too large.
    too_large: String,
}

/// The last change of a row since it was stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Unsaved {
    /// Nothing.
    Nothing,
    /// The position in the log moved, and no sample was sent.
    Position,
    /// A request has ended.
    Request,
}

impl<'e, E: MoveEnvironment> Mover<'e, E> {
    /// Prepares a move from its stored row.
    pub fn new(env: &'e mut E, row: MoveRow, options: MoverOptions) -> Mover<'e, E> {
        let encoder = BatchEncoder::new(options.version, options.compression);
        Mover {
            env,
            options,
            encoder,
            is_unsettled: true,
            sent: SentSeries::after(row.sent_ms),
            unsure: UnsureSeries::default(),
            unsaved: Unsaved::Nothing,
            notes: Vec::new(),
            too_large: String::new(),
            row,
        }
    }

    /// Carries the move out, up to and including the switch.
    ///
    /// # Errors
    /// [`MoveStop`].
    pub fn run(&mut self) -> Result<(), MoveStop> {
        loop {
            match self.row.step {
                MoveStep::Planned => self.begin()?,
                MoveStep::History { log_from, cut_ms, next, sending } => {
                    self.history(log_from, cut_ms, next, sending)?;
                }
                MoveStep::Tail { .. } => self.tail_and_compare()?,
                MoveStep::Fetch { next_ms, until_ms, .. } => self.fetch(next_ms, until_ms)?,
                MoveStep::Switched { .. } | MoveStep::Returned => return Ok(()),
            }
        }
    }

    /// Returns whether the organisation is moved, so that its log is sent.
    pub fn forwards(&self) -> bool {
        self.row.step.is_moved()
    }

    /// Stores the row with another step. After an error the step is unchanged.
    pub(super) fn set(&mut self, step: MoveStep) -> Result<(), MoveStop> {
        let before = std::mem::replace(&mut self.row.step, step);
        if let Err(stop) = self.env.save(&self.row) {
            self.row.step = before;
            return Err(stop);
        }
        self.unsaved = Unsaved::Nothing;
        self.env.report(&self.row, &self.notes, None);
        Ok(())
    }

    pub(super) fn note(&mut self, text: impl FnOnce() -> String) {
        if self.notes.len() < NOTES_MAX {
            self.notes.push(text());
        }
    }

    /// Waits until the target shows all samples that it accepted.
    pub(super) fn settle(&mut self) -> Result<(), MoveStop> {
        if std::mem::take(&mut self.is_unsettled) {
            self.env.pause(self.options.settle)?;
        }
        Ok(())
    }

    fn begin(&mut self) -> Result<(), MoveStop> {
        let log_from = self.env.pin_log()?;
        let cut_ms = self.env.after_newest_ms().unwrap_or(0);
        let first = next_window(&self.env.snapshot(), i64::MIN, cut_ms)?.unwrap_or(cut_ms);
        self.row.sent_ms = cut_ms.saturating_sub(1);
        self.sent = SentSeries::after(self.row.sent_ms);
        self.set(MoveStep::History { log_from, cut_ms, next: HistoryCursor::at(first), sending: None })
    }

    // ---- history

    fn history(
        &mut self,
        log_from: u64,
        cut_ms: i64,
        mut next: HistoryCursor,
        sending: Option<HistoryCursor>,
    ) -> Result<(), MoveStop> {
        let with_starts = self.options.version == WriteVersion::V2;
        let mut reader = HistoryReader::new(self.env.snapshot(), cut_ms, with_starts)?;
        if let Some(end) = sending {
            while let Some((batch, after)) = reader.batch(next, Some(end))? {
                self.send_unknown(batch)?;
                next = after;
            }
        }
        while let Some((batch, after)) = reader.batch(next, None)? {
            // This also acknowledges the batch before.
            self.set(MoveStep::History { log_from, cut_ms, next, sending: Some(after) })?;
            self.send(batch)?;
            next = after;
        }
        let first = next_window(&self.env.snapshot(), i64::MIN, cut_ms)?.unwrap_or(cut_ms);
        let (sending, late_ms) = (None, i64::MAX);
        self.set(MoveStep::Tail { cut_ms, next: log_from, sending, compared_ms: first, late_ms })
    }

    // ---- sending

    /// Sends the samples of a batch that the target does not have.
    pub(super) fn send_unknown(&mut self, mut batch: MoveBatch) -> Result<(), MoveStop> {
        self.remove_known(&mut batch)?;
        self.send(batch)
    }

    pub(super) fn remove_known(&mut self, batch: &mut MoveBatch) -> Result<(), MoveStop> {
        if batch.sample_count() == 0 {
            return Ok(());
        }
        self.settle()?;
        let known = self.known_samples(batch)?;
        let removed = batch.remove_known(&known);
        self.row.counts.known += removed.count;
        for (labels, at_ms) in removed.different {
            self.differs(&labels, at_ms);
        }
        Ok(())
    }

    /// Counts a sample for whose time the target has another value.
    pub(super) fn differs(&mut self, labels: &Labels, at_ms: i64) {
        self.row.counts.different += 1;
        self.note(|| format!("{labels}: another value there at {}", Timestamp::from_ms(at_ms).to_rfc3339()));
    }

    /// Sends a batch. If the target refuses it, its parts are sent, down to single samples.
    pub(super) fn send(&mut self, batch: MoveBatch) -> Result<(), MoveStop> {
        let (mut waiting, mut splits) = (vec![batch], 0);
        while let Some(batch) = waiting.pop() {
            if batch.is_empty() {
                continue;
            }
            let before = batch.sample_count();
            let mut batch = match batch {
                batch if before > 2 * BATCH_SAMPLES => match batch.halves() {
                    Ok((first, second)) => {
                        waiting.extend([second, first]);
                        continue;
                    }
                    Err(batch) => batch,
                },
                batch => batch,
            };
            let reason = match self.send_whole(&mut batch)? {
                Ok(()) => continue,
                Err(reason) => reason,
            };
            if batch.sample_count() < before {
                // The target stored a part of the batch.
                waiting.push(batch);
                continue;
            }
            splits += 1;
            if self.refuses_whole(splits, &reason)? {
                self.refused(before, &reason);
                continue;
            }
            match batch.halves() {
                Ok((first, second)) => waiting.extend([second, first]),
                Err(mut batch) if batch.has_more_than_samples() => {
                    batch.keep_only_samples();
                    self.note(|| format!("refused with its exemplars and metadata: {reason}"));
                    waiting.push(batch);
                }
                Err(_) => self.refused(before, &reason),
            }
        }
        Ok(())
    }

    /// Returns whether a refused batch is given up as a whole instead of divided further. Before
    /// the switch, this needs the operator's consent; after it, later samples must not wait.
    fn refuses_whole(&self, splits: usize, reason: &str) -> Result<bool, MoveStop> {
        let refused = self.row.counts.refused;
        if self.row.step.is_moved() {
            return Ok(splits > SPLITS_MAX);
        }
        if refused < REFUSED_MAX || self.row.accept_differences {
            return Ok(refused >= REFUSED_MAX);
        }
        Err(MoveStop::Failed(format!(
            "the target refused {refused} samples, so the move stopped (repeat the command with \
             --accept-differences to leave such samples out): {reason}"
        )))
    }

    fn refused(&mut self, samples: usize, reason: &str) {
        self.row.counts.refused += samples as u64;
        self.note(|| format!("refused: {reason}"));
    }

    /// Sends a batch as one request, and retries until the target responds. `Ok(Err(..))` is the
    /// reason of a refusal; the batch then has the samples that the target did not store.
    fn send_whole(&mut self, batch: &mut MoveBatch) -> Result<Result<(), String>, MoveStop> {
        let mut delay = RetryDelay::default();
        loop {
            let request = match self.encode(batch) {
                Ok(request) => request,
                Err(BatchError::TooLarge) => return Ok(Err(BatchError::TooLarge.to_string())),
                Err(error) => return Err(MoveStop::Failed(error.to_string())),
            };
            let samples = batch.sample_count() as u64;
            self.is_unsettled = true;
            match self.env.write(request) {
                Ok(()) => {
                    self.row.counts.requests += 1;
                    self.row.counts.samples += samples;
                    return Ok(Ok(()));
                }
                Err(WriteFailure::Refused { reason }) => {
                    // Some receivers store the acceptable samples of a request that they refuse.
                    self.remove_known(batch)?;
                    return Ok(if batch.is_empty() { Ok(()) } else { Err(reason) });
                }
                Err(WriteFailure::Retry { after, reason }) => {
                    let asked = after.unwrap_or_default().min(RETRY_AFTER_MAX);
                    self.wait_to_retry(&mut delay, asked, &reason)?;
                    self.remove_known(batch)?;
                    if batch.is_empty() {
                        return Ok(Ok(()));
                    }
                }
            }
        }
    }

    /// Reports the reason of a retry, and waits for at least `asked`.
    pub(super) fn wait_to_retry(
        &mut self,
        delay: &mut RetryDelay,
        asked: Duration,
        reason: &str,
    ) -> Result<(), MoveStop> {
        self.env.report(&self.row, &self.notes, Some(reason));
        self.env.pause(delay.next().max(asked))
    }

    fn encode(&mut self, batch: &MoveBatch) -> Result<EncodedRequest, BatchError> {
        match &self.options.tenant_label {
            None => self.encoder.encode(batch),
            Some((name, value)) => {
                let mut batch = batch.clone();
                batch.set_label(name, value);
                self.encoder.encode(&batch)
            }
        }
    }

    // ---- reading back

    /// Reads the series of a query from the target, and retries until it responds. `None` if the
    /// response is too large.
    pub(super) fn read(
        &mut self,
        labels: &[(&str, &str)],
        range: TimeRange,
    ) -> Result<Option<Vec<RemoteSeries>>, MoveStop> {
        let tenant = self.options.tenant_label.clone();
        let own = tenant.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let query = range_query(labels.iter().copied().chain(own), range);
        let mut delay = RetryDelay::default();
        loop {
            let reason = match self.env.query(&query) {
                Ok(body) => {
                    match parse_matrix(&body, range, tenant.as_ref().map(|(name, _)| name.as_str())) {
                        Ok(series) => return Ok(Some(series)),
                        Err(reason) => reason,
                    }
                }
                Err(ReadFailure::TooLarge { reason }) => {
                    self.too_large = reason;
                    return Ok(None);
                }
                Err(ReadFailure::Refused { reason }) => {
                    return Err(MoveStop::Failed(format!("the target cannot be read back: {reason}")));
                }
                Err(ReadFailure::Retry { reason }) => reason,
            };
            self.wait_to_retry(&mut delay, Duration::ZERO, &reason)?;
        }
    }

    /// Returns the samples of the series of a batch that the target has around their times.
    fn known_samples(&mut self, batch: &MoveBatch) -> Result<KnownSamples, MoveStop> {
        let mut known = KnownSamples::default();
        for ((name, _), all) in batch.by_metric(COMPARED_WINDOW_MS) {
            if all.len() > SINGLE_QUERIES_MAX {
                let start = all.iter().map(|(_, range)| range.start).min().unwrap_or(Timestamp::MIN);
                let end = all.iter().map(|(_, range)| range.end).max().unwrap_or(Timestamp::MAX);
                if let Some(found) = self.read(&of_metric(name), TimeRange::new(start, end))? {
                    known.add(found);
                    continue;
                }
            }
            for (labels, range) in all {
                known.add(self.read_one(labels, range)?);
            }
        }
        Ok(known)
    }

    /// Returns the error of a response that is too large and cannot be divided.
    pub(super) fn too_large(&self, what: &str) -> MoveStop {
        MoveStop::Failed(format!("{what}: {}", self.too_large))
    }

    /// Reads one series back, in parts if its samples exceed the limit of a response.
    fn read_one(&mut self, labels: &Labels, range: TimeRange) -> Result<Vec<RemoteSeries>, MoveStop> {
        let matchers: Vec<_> = of_series(labels).collect();
        // The target returns the series whose labels include these.
        let only = |mut all: Vec<RemoteSeries>| {
            all.retain(|series| series.labels == *labels);
            all
        };
        if let Some(found) = self.read(&matchers, range)? {
            return Ok(only(found));
        }
        let mut all: Vec<RemoteSeries> = Vec::new();
        for part in halves_of(range).ok_or_else(|| self.too_large(&labels.to_string()))? {
            all.extend(self.read_one(labels, part)?);
        }
        Ok(all)
    }
}

/// Returns both halves of a range; `None` if it is a single millisecond.
pub(super) fn halves_of(TimeRange { start, end }: TimeRange) -> Option<[TimeRange; 2]> {
    let half = end.ms_since(start) / 2;
    let middle = start.plus_ms(half);
    (start < end).then(|| [TimeRange::new(start, middle), TimeRange::new(middle.plus_ms(1), end)])
}

impl<E> std::fmt::Debug for Mover<'_, E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mover").field("row", &self.row).finish_non_exhaustive()
    }
}
