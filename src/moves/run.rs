//! The steps of a move.

use std::collections::HashMap;
use std::time::Duration;

use super::batch::{Batch, BatchEncoder, BatchError, BatchSeries, KnownTimes};
use super::compare::{Comparison, compare};
use super::history::{HistoryError, HistoryReader, WINDOW_MS, next_window, read_series, window_of};
use super::readback::{ReadbackQuery, RemoteSeries, of_metric, of_series, parse_matrix, range_query};
use crate::forward::encode::{BodyCompression, EncodedRequest, WriteVersion};
use crate::identity::{HistoryCursor, MoveDirection, MoveRow, MoveStep};
use crate::model::{Labels, METRIC_NAME, Matcher, Sample, TimeRange, Timestamp};
use crate::tsdb::Snapshot;

/// The first and the longest delay before a request is retried.
const RETRY_DELAYS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(30));
/// The longest delay that a target may ask for.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(300);
/// How long a target may take to show samples that it accepted.
const SETTLE: Duration = Duration::from_secs(2);
/// Comparisons of the same series and window before they count as different.
const COMPARISONS_MAX: usize = 4;
/// The most samples that are read back at once.
const READBACK_SAMPLES_MAX: usize = 50_000;
/// The number of series of a metric above which all of the metric are read back at once.
const SINGLE_QUERIES_MAX: usize = 8;
/// The length of a window of the comparison in milliseconds.
const COMPARED_WINDOW_MS: i64 = 12 * WINDOW_MS;
/// The most time in milliseconds that may be compared for the last time before the switch.
const LAST_PART_MS: i64 = 30_000;
/// The most series whose newest time is remembered. Samples of others are looked up at the target.
const NEWEST_MAX: usize = 4 << 20;
/// The most reasons of refusals and differences that are kept.
const NOTES_MAX: usize = 20;

/// The reason why a move does not continue. Its row is stored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MoveStop {
    /// The server stops, or an operator stopped the move. It continues later.
    #[error("the move was stopped; it continues with the next start")]
    Stopping,
    /// Something that a person has to look at.
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
    /// The response exceeds the limit of its body.
    TooLarge,
    /// The query is not acceptable.
    Refused {
        /// The target's words.
        reason: String,
    },
}

/// Records of the log.
#[derive(Clone, Debug, Default)]
pub struct TailBatch {
    /// Their samples.
    pub batch: Batch,
    /// The record after the last one.
    pub next: u64,
    /// Records that can be read without waiting.
    pub left: u64,
    /// Deletions among them, which are not sent.
    pub deletions: u64,
}

/// The world outside of a move.
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

    /// Asks the target, and returns the body of the response.
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
    /// the log to remove earlier records.
    ///
    /// # Errors
    /// [`MoveStop`].
    fn tail(&mut self, from: u64, until: Option<u64>) -> Result<TailBatch, MoveStop>;

    /// Returns a view of the organisation's samples.
    fn snapshot(&self) -> Snapshot;

    /// Returns the time after the newest sample in milliseconds; none without samples.
    fn after_newest_ms(&self) -> Option<i64>;

    /// Stores samples here. Returns the number of those that are not accepted.
    ///
    /// # Errors
    /// [`MoveStop`].
    fn store(&mut self, batch: &Batch) -> Result<u64, MoveStop>;

    /// Switches the organisation's engine and stores the row in one commit. Away: later records of
    /// the log, from `log_from` on, are forwarded to the target.
    ///
    /// # Errors
    /// [`MoveStop`].
    fn switch(&mut self, row: &MoveRow, log_from: Option<u64>) -> Result<(), MoveStop>;

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
    /// Whether the switch is made although series differ or samples were refused.
    pub accept_differences: bool,
}

/// A move that is being carried out.
pub struct Mover<'e, E> {
    env: &'e mut E,
    row: MoveRow,
    options: MoverOptions,
    encoder: BatchEncoder,
    /// The newest time in milliseconds that the tail sent, by series.
    newest: HashMap<Labels, i64>,
    notes: Vec<String>,
}

impl<'e, E: MoveEnvironment> Mover<'e, E> {
    /// Prepares a move from its stored row.
    pub fn new(env: &'e mut E, row: MoveRow, options: MoverOptions) -> Mover<'e, E> {
        let encoder = BatchEncoder::new(options.version, options.compression);
        Mover { env, row, options, encoder, newest: HashMap::new(), notes: Vec::new() }
    }

    /// Carries the move out, up to and including the switch.
    ///
    /// # Errors
    /// [`MoveStop`].
    pub fn run(&mut self) -> Result<(), MoveStop> {
        loop {
            match (self.row.step, self.row.direction) {
                (MoveStep::Planned, MoveDirection::Away) => self.begin()?,
                (MoveStep::Planned, MoveDirection::Back) => self.begin_fetch()?,
                (MoveStep::History { log_from, cut_ms, next, sending }, _) => {
                    self.history(log_from, cut_ms, next, sending)?;
                }
                (MoveStep::Tail { .. }, _) => self.tail_and_compare()?,
                (MoveStep::Fetch { next_ms, until_ms }, _) => self.fetch(next_ms, until_ms)?,
                (MoveStep::Switched | MoveStep::Dropped, _) => return Ok(()),
            }
        }
    }

    fn set(&mut self, step: MoveStep) -> Result<(), MoveStop> {
        self.row.step = step;
        self.env.save(&self.row)?;
        self.env.report(&self.row, &self.notes, None);
        Ok(())
    }

    fn note(&mut self, text: impl FnOnce() -> String) {
        if self.notes.len() < NOTES_MAX {
            self.notes.push(text());
        }
    }

    fn begin(&mut self) -> Result<(), MoveStop> {
        let log_from = self.env.pin_log()?;
        let cut_ms = self.env.after_newest_ms().unwrap_or(0);
        let first = next_window(&self.env.snapshot(), i64::MIN, cut_ms)?.unwrap_or(cut_ms);
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
            self.env.pause(SETTLE)?;
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
        self.set(MoveStep::Tail { cut_ms, next: log_from, sending: None, compared_ms: first })
    }

    // ---- sending

    /// Sends those samples of a batch that the target does not have.
    fn send_unknown(&mut self, mut batch: Batch) -> Result<(), MoveStop> {
        self.remove_known(&mut batch)?;
        self.send(batch)
    }

    fn remove_known(&mut self, batch: &mut Batch) -> Result<(), MoveStop> {
        let known = self.known_times(batch)?;
        self.row.counts.known += batch.remove_known(&known) as u64;
        Ok(())
    }

    /// Sends a batch. If the target refuses it, its parts are sent, down to single samples.
    fn send(&mut self, batch: Batch) -> Result<(), MoveStop> {
        let mut waiting = vec![batch];
        while let Some(mut batch) = waiting.pop() {
            if batch.is_empty() {
                continue;
            }
            match self.send_whole(&mut batch)? {
                Ok(()) => {}
                Err(reason) => match batch.halves() {
                    Some((first, second)) => waiting.extend([second, first]),
                    None => self.refused(reason),
                },
            }
        }
        Ok(())
    }

    fn refused(&mut self, reason: String) {
        self.row.counts.refused += 1;
        self.note(|| format!("refused: {reason}"));
    }

    /// Sends a batch as one request, for as long as it takes. `Ok(Err(..))` is the reason of a
    /// refusal; the batch then has the samples that the target did not store.
    fn send_whole(&mut self, batch: &mut Batch) -> Result<Result<(), String>, MoveStop> {
        let mut delay = RETRY_DELAYS.0;
        loop {
            let request = match self.encode(batch) {
                Ok(request) => request,
                Err(BatchError::TooLarge) => return Ok(Err(BatchError::TooLarge.to_string())),
                Err(error) => return Err(MoveStop::Failed(error.to_string())),
            };
            let samples = batch.len() as u64;
            match self.env.write(request) {
                Ok(()) => {
                    self.row.counts.requests += 1;
                    self.row.counts.samples += samples;
                    return Ok(Ok(()));
                }
                Err(WriteFailure::Refused { reason }) => {
                    // Some receivers store the acceptable samples of a request that they refuse.
                    self.env.pause(SETTLE)?;
                    self.remove_known(batch)?;
                    return Ok(if batch.is_empty() { Ok(()) } else { Err(reason) });
                }
                Err(WriteFailure::Retry { after, reason }) => {
                    self.env.report(&self.row, &self.notes, Some(&reason));
                    let asked = after.map_or(delay, |after| after.min(RETRY_AFTER_MAX)).max(delay);
                    self.env.pause(asked)?;
                    delay = (delay * 2).min(RETRY_DELAYS.1);
                    self.remove_known(batch)?;
                    if batch.is_empty() {
                        return Ok(Ok(()));
                    }
                }
            }
        }
    }

    fn encode(&mut self, batch: &Batch) -> Result<EncodedRequest, BatchError> {
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

    /// Asks the target for the series of a query, for as long as it takes. None if the response is
    /// too large.
    fn read(
        &mut self,
        labels: &[(&str, &str)],
        range: TimeRange,
    ) -> Result<Option<Vec<RemoteSeries>>, MoveStop> {
        let tenant = self.options.tenant_label.clone();
        let own = tenant.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let query = range_query(labels.iter().copied().chain(own), range);
        let mut delay = RETRY_DELAYS.0;
        loop {
            let reason = match self.env.query(&query) {
                Ok(body) => {
                    match parse_matrix(&body, range, tenant.as_ref().map(|(name, _)| name.as_str())) {
                        Ok(series) => return Ok(Some(series)),
                        Err(reason) => reason,
                    }
                }
                Err(ReadFailure::TooLarge) => return Ok(None),
                Err(ReadFailure::Refused { reason }) => {
                    return Err(MoveStop::Failed(format!("the target cannot be read back: {reason}")));
                }
                Err(ReadFailure::Retry { reason }) => reason,
            };
            self.env.report(&self.row, &self.notes, Some(&reason));
            self.env.pause(delay)?;
            delay = (delay * 2).min(RETRY_DELAYS.1);
        }
    }

    /// Returns the times at which the target has samples of the series of a batch.
    fn known_times(&mut self, batch: &Batch) -> Result<KnownTimes, MoveStop> {
        let mut known = KnownTimes::default();
        for (name, all) in batch.by_metric() {
            if all.len() > SINGLE_QUERIES_MAX && !name.is_empty() {
                let start = all.iter().map(|(_, range)| range.start).min().unwrap_or(Timestamp::MIN);
                let end = all.iter().map(|(_, range)| range.end).max().unwrap_or(Timestamp::MAX);
                if let Some(found) = self.read(&of_metric(name), TimeRange::new(start, end))? {
                    add_times(&mut known, found);
                    continue;
                }
            }
            for (labels, range) in all {
                let found = self.read_one(labels, range)?;
                add_times(&mut known, found);
            }
        }
        Ok(known)
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
        for part in
            halves_of(range).ok_or_else(|| MoveStop::Failed(format!("{labels}: a response is too large")))?
        {
            all.extend(self.read_one(labels, part)?);
        }
        Ok(all)
    }

    // ---- tail

    fn tail_and_compare(&mut self) -> Result<(), MoveStop> {
        self.drain()?;
        loop {
            let MoveStep::Tail { compared_ms, .. } = self.row.step else { return Ok(()) };
            let until = self.env.after_newest_ms().unwrap_or(i64::MIN);
            let is_last = until.saturating_sub(compared_ms) <= LAST_PART_MS;
            self.compare_until(until)?;
            self.drain()?;
            if is_last {
                break;
            }
        }
        let counts = self.row.counts;
        if (counts.different > 0 || counts.refused > 0) && !self.options.accept_differences {
            let notes = self.notes.join("; ");
            self.compare_again()?;
            return Err(MoveStop::Failed(format!(
                "{} samples were refused and {} series and windows differ, so the organisation was not switched \
                 (repeat the command to compare again, with --accept-differences to switch): {notes}",
                counts.refused, counts.different
            )));
        }
        let MoveStep::Tail { next, .. } = self.row.step else { return Ok(()) };
        let switched = MoveRow { step: MoveStep::Switched, ..self.row.clone() };
        self.env.switch(&switched, Some(next))?;
        self.row = switched;
        self.env.report(&self.row, &self.notes, None);
        Ok(())
    }

    /// Resets the comparison, so that the next run repeats it.
    fn compare_again(&mut self) -> Result<(), MoveStop> {
        let MoveStep::Tail { cut_ms, next, sending, .. } = self.row.step else { return Ok(()) };
        (self.row.counts.different, self.row.counts.refused, self.row.counts.compared) = (0, 0, 0);
        let first = next_window(&self.env.snapshot(), i64::MIN, cut_ms)?.unwrap_or(cut_ms);
        self.set(MoveStep::Tail { cut_ms, next, sending, compared_ms: first })
    }

    /// Sends the log up to its end.
    fn drain(&mut self) -> Result<(), MoveStop> {
        let MoveStep::Tail { cut_ms, mut next, sending, compared_ms } = self.row.step else { return Ok(()) };
        if let Some(end) = sending {
            self.env.pause(SETTLE)?;
            while next < end {
                let read = self.env.tail(next, Some(end))?;
                self.send_unknown(read.batch)?;
                next = read.next;
            }
            self.set(MoveStep::Tail { cut_ms, next, sending: None, compared_ms })?;
        }
        let mut is_stored = true;
        loop {
            let read = self.env.tail(next, None)?;
            if read.next <= next {
                break;
            }
            self.row.counts.deletions += read.deletions;
            if !read.batch.is_empty() {
                let step = MoveStep::Tail { cut_ms, next, sending: Some(read.next), compared_ms };
                self.set(step)?;
                self.send_of_tail(read.batch)?;
            }
            (next, is_stored) = (read.next, false);
            self.row.step = MoveStep::Tail { cut_ms, next, sending: None, compared_ms };
            if read.left == 0 {
                break;
            }
        }
        if is_stored { Ok(()) } else { self.set(self.row.step) }
    }

    /// Sends samples of the log. Those of a series that are not newer than all before them may have
    /// been sent: with the history, or because their sender sent them twice.
    fn send_of_tail(&mut self, mut batch: Batch) -> Result<(), MoveStop> {
        batch.series.iter_mut().for_each(BatchSeries::keep_last_of_each_time);
        let (mut sure, mut suspicious) = (Batch::default(), Batch::default());
        for series in batch.series {
            let TimeRange { start, end } = series.range();
            let newest = self.newest.get(&series.labels).copied();
            let is_new = series.len() == 0 || newest.is_some_and(|newest| start.as_ms() > newest);
            if newest.is_some() || self.newest.len() < NEWEST_MAX {
                let newest = newest.unwrap_or(i64::MIN).max(end.as_ms());
                self.newest.insert(series.labels.clone(), newest);
            }
            if is_new { &mut sure } else { &mut suspicious }.series.push(series);
        }
        if !suspicious.is_empty() {
            self.remove_known(&mut suspicious)?;
        }
        suspicious.series.append(&mut sure.series);
        self.send(suspicious)
    }

    // ---- comparison

    fn compare_until(&mut self, until_ms: i64) -> Result<(), MoveStop> {
        loop {
            let MoveStep::Tail { cut_ms, next, sending, compared_ms } = self.row.step else { return Ok(()) };
            let snapshot = self.env.snapshot();
            let found =
                if compared_ms < until_ms { next_window(&snapshot, compared_ms, until_ms)? } else { None };
            let Some(start) = found.map(|start| start.max(compared_ms)) else {
                let step = MoveStep::Tail { cut_ms, next, sending, compared_ms: compared_ms.max(until_ms) };
                return self.set(step);
            };
            let end = window_of(start).saturating_add(COMPARED_WINDOW_MS).min(until_ms);
            let range = TimeRange::new(Timestamp::from_ms(start), Timestamp::from_ms(end.saturating_sub(1)));
            for name in metric_names(&snapshot, range) {
                self.compare_metric(&name, range)?;
            }
            if let MoveStep::Tail { compared_ms, .. } = &mut self.row.step {
                *compared_ms = end;
            }
            self.drain()?;
            self.set(self.row.step)?;
        }
    }

    /// Compares the series of one metric in a range. Missing samples are sent once more, in case the
    /// target acknowledged and forgot them.
    fn compare_metric(&mut self, name: &str, range: TimeRange) -> Result<(), MoveStop> {
        let here = read_metric(&self.env.snapshot(), name, range)?;
        if here.len() > READBACK_SAMPLES_MAX
            && let Some(parts) = halves_of(range)
        {
            drop(here);
            return parts.into_iter().try_for_each(|part| self.compare_metric(name, part));
        }
        let mut here = here;
        for attempt in 1.. {
            let Some(there) = self.read_compared(name, &here, range)? else {
                let Some(parts) = halves_of(range) else {
                    return Err(MoveStop::Failed(format!("{name}: a response is too large")));
                };
                return parts.into_iter().try_for_each(|part| self.compare_metric(name, part));
            };
            let Comparison { series, rounded, different } = compare(&here, &there);
            if different.is_empty() || attempt == COMPARISONS_MAX {
                self.row.counts.compared += series;
                self.row.counts.rounded += rounded;
                self.row.counts.different += different.len() as u64;
                for (labels, own, other) in different {
                    self.note(|| format!("{labels}: {} samples here, {} there", own.count, other.count));
                }
                return Ok(());
            }
            // The target may show what it accepted later, and samples may have come meanwhile.
            self.env.pause(SETTLE)?;
            self.drain()?;
            here = read_metric(&self.env.snapshot(), name, range)?;
            if attempt + 1 == COMPARISONS_MAX {
                let mut missing = here.clone();
                self.remove_known(&mut missing)?;
                self.send(missing)?;
                self.env.pause(SETTLE)?;
            }
        }
        Ok(())
    }

    fn read_compared(
        &mut self,
        name: &str,
        here: &Batch,
        range: TimeRange,
    ) -> Result<Option<Vec<RemoteSeries>>, MoveStop> {
        if !name.is_empty() {
            return self.read(&of_metric(name), range);
        }
        let mut all = Vec::new();
        for series in &here.series {
            all.extend(self.read_one(&series.labels, range)?);
        }
        Ok(Some(all))
    }

    // ---- back

    fn begin_fetch(&mut self) -> Result<(), MoveStop> {
        // Samples since the switch are stored here as well, so the newest one bounds what is missing.
        let until_ms = self.env.after_newest_ms().unwrap_or_default().max(self.row.started_at.as_ms());
        self.set(MoveStep::Fetch { next_ms: 0, until_ms })
    }

    fn fetch(&mut self, mut next_ms: i64, until_ms: i64) -> Result<(), MoveStop> {
        while let Some(start) = self.next_remote_window(next_ms, until_ms)? {
            let end = start.saturating_add(COMPARED_WINDOW_MS).min(until_ms);
            let range = TimeRange::new(Timestamp::from_ms(start), Timestamp::from_ms(end.saturating_sub(1)));
            for name in self.remote_names(range)? {
                self.fetch_metric(&name, range)?;
            }
            next_ms = end;
            self.set(MoveStep::Fetch { next_ms, until_ms })?;
        }
        if self.row.counts.refused > 0 && !self.options.accept_differences {
            let notes = self.notes.join("; ");
            let refused = std::mem::take(&mut self.row.counts.refused);
            self.set(MoveStep::Planned)?;
            return Err(MoveStop::Failed(format!(
                "{refused} samples could not be stored here, so the organisation was not switched (repeat the \
                 command to try again, with --accept-differences to switch): {notes}"
            )));
        }
        let switched = MoveRow { step: MoveStep::Switched, ..self.row.clone() };
        self.env.switch(&switched, None)?;
        self.row = switched;
        self.env.report(&self.row, &self.notes, None);
        Ok(())
    }

    /// Returns the start of the first window at or after `from_ms` in which the target may have
    /// samples.
    fn next_remote_window(&mut self, from_ms: i64, until_ms: i64) -> Result<Option<i64>, MoveStop> {
        let (mut start, mut span) = (from_ms, COMPARED_WINDOW_MS);
        while start < until_ms {
            let end = start.saturating_add(span).min(until_ms).saturating_sub(1);
            let range = TimeRange::new(Timestamp::from_ms(start), Timestamp::from_ms(end));
            if self.remote_names(range)?.is_empty() {
                start = start.saturating_add(span);
                span = span.saturating_mul(2);
            } else if span == COMPARED_WINDOW_MS {
                return Ok(Some(start));
            } else {
                span /= 2;
            }
        }
        Ok(None)
    }

    fn remote_names(&mut self, range: TimeRange) -> Result<Vec<String>, MoveStop> {
        let mut delay = RETRY_DELAYS.0;
        loop {
            let reason = match self.env.metric_names(range) {
                Ok(names) => return Ok(names),
                Err(ReadFailure::Retry { reason }) => reason,
                Err(ReadFailure::TooLarge) => {
                    return Err(MoveStop::Failed("the list of metrics is too large".to_owned()));
                }
                Err(ReadFailure::Refused { reason }) => {
                    return Err(MoveStop::Failed(format!("the target does not list its metrics: {reason}")));
                }
            };
            self.env.report(&self.row, &self.notes, Some(&reason));
            self.env.pause(delay)?;
            delay = (delay * 2).min(RETRY_DELAYS.1);
        }
    }

    /// Stores the samples of a metric that are at the target and not here.
    fn fetch_metric(&mut self, name: &str, range: TimeRange) -> Result<(), MoveStop> {
        let Some(there) = self.read(&of_metric(name), range)? else {
            let Some(parts) = halves_of(range) else {
                return Err(MoveStop::Failed(format!("{name}: a response is too large")));
            };
            return parts.into_iter().try_for_each(|part| self.fetch_metric(name, part));
        };
        let mut known = KnownTimes::default();
        for series in read_metric(&self.env.snapshot(), name, range)?.series {
            let floats = series.samples.iter().map(|one| one.at.as_ms());
            let times: Vec<i64> = floats.chain(series.histograms.iter().map(|(at, _)| at.as_ms())).collect();
            known.add(series.labels, times);
        }
        let mut missing = Batch::default();
        for RemoteSeries { labels, samples, histogram_times } in there {
            let has = |at: i64| known.0.get(&labels).is_some_and(|times| times.binary_search(&at).is_ok());
            let lost = histogram_times.iter().filter(|at| !has(**at)).count() as u64;
            if lost > 0 {
                self.row.counts.refused += lost;
                self.note(|| format!("{labels}: {lost} native histograms cannot be read back"));
            }
            let samples: Vec<Sample> = samples
                .into_iter()
                .filter(|(at, _)| !has(*at))
                .map(|(at, value)| Sample { at: Timestamp::from_ms(at), value })
                .collect();
            if !samples.is_empty() {
                missing.series.push(BatchSeries { labels, samples, ..BatchSeries::default() });
            }
        }
        self.row.counts.compared += 1;
        if missing.is_empty() {
            return Ok(());
        }
        let samples = missing.len() as u64;
        let refused = self.env.store(&missing)?;
        self.row.counts.samples += samples.saturating_sub(refused);
        self.row.counts.refused += refused;
        if refused > 0 {
            self.note(|| format!("{name}: {refused} samples are not accepted here"));
        }
        Ok(())
    }
}

fn add_times(known: &mut KnownTimes, found: Vec<RemoteSeries>) {
    for series in found {
        let times: Vec<i64> = series.times().collect();
        known.add(series.labels, times);
    }
}

/// Returns both halves of a range; none if it is a single millisecond.
fn halves_of(TimeRange { start, end }: TimeRange) -> Option<[TimeRange; 2]> {
    let half = end.ms_since(start) / 2;
    let middle = start.plus_ms(half);
    (start < end).then(|| [TimeRange::new(start, middle), TimeRange::new(middle.plus_ms(1), end)])
}

/// Returns the names of the metrics with samples in a range, sorted; an empty name for series
/// without one.
fn metric_names(snapshot: &Snapshot, range: TimeRange) -> Vec<String> {
    let all = snapshot.select(&[], range);
    let mut names: Vec<String> = all.iter().map(|one| one.labels.metric_name().to_owned()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Reads the series of a metric.
fn read_metric(snapshot: &Snapshot, name: &str, range: TimeRange) -> Result<Batch, MoveStop> {
    let all = snapshot.select(&[Matcher::equal(METRIC_NAME, name)], range);
    let series = all.iter().map(|one| read_series(snapshot, one, range)).filter(|series| series.len() > 0);
    let batch = Batch { series: series.collect() };
    match snapshot.warnings().into_iter().next() {
        Some(warning) => Err(HistoryError::Damaged(warning).into()),
        None => Ok(batch),
    }
}

impl<E> std::fmt::Debug for Mover<'_, E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mover").field("row", &self.row).finish_non_exhaustive()
    }
}
