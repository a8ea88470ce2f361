//! The sender of one target: it reads the log, applies the target's rules, and decides which
//! samples are sent, and when. It does no I/O but the reads of the log; time and randomness are
//! arguments.
//!
//! ```text
//! log tail -> relabel -> shard by series -> batches -> one request in flight for each shard
//! ```
//! There is no second queue: a few batches wait in memory, and everything behind them waits in the
//! log, which a pin keeps. A body that has just been stored is passed on in place of its records if
//! nothing would change ([`super::received`]), while there is one shard. The samples of a series
//! pass through one shard, so they arrive in the order of the log. A target that answers anything
//! but 2xx gets a batch again. So each sample arrives at least once, and again after a restart
//! within the last seconds.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::batch::{ForwardedSeries, ForwardedValue, Item, SampleBatch, first_ms};
use super::encode::{BodyCompression, RequestEncoder, WriteVersion, labels_of_fields};
use super::received::{BodyFormat, ReceivedQueue};
use super::series_cache::SeriesCache;
use super::starts::SeriesStarts;
use super::status::{ForwardCounts, RefusedBody, SenderState};
use crate::entropy::Entropy;
use crate::ingest::prompb::put_label;
use crate::model::{Access, Labels, OrgId, Pace, Sample, Timestamp, families_of};
use crate::outbound::Bytes;
use crate::relabel::{LabelPairs, RelabelRules};
use crate::tsdb::{
    Description, LogPosition, LogSample, LogTail, RecordKind, SeriesId, TailContent, TailError, TailRecord,
    Tsdb,
};

/// The most samples of a request, inclusive. A native histogram counts as sixteen.
pub const REQUEST_SAMPLES_MAX: usize = 2_000;
/// The longest time that a sample waits for others of its request.
pub const REQUEST_WAIT: Duration = Duration::from_secs(5);
/// The most bytes of protobuf in a request.
const REQUEST_BYTES_MAX: usize = 8 << 20;
/// The most requests in flight for one target.
pub const SHARDS_MAX: usize = 8;
/// The number of batches of a shard that wait while one is in flight. At this number, no more of
/// the log is read.
const BATCHES_WAITING: usize = 2;
/// The records that are read before outcomes are handled.
const RECORDS_AT_ONCE: usize = 256;
/// The accepted batches under full load after which the number of shards is doubled.
const LOADED_BATCHES: u32 = 16;
/// The time without work after which one shard is left.
const IDLE: Duration = Duration::from_secs(60);
/// The time for which received bodies are read from the log after a target was too slow for one
/// shard, or refused a body.
const PASS_PAUSE: Duration = Duration::from_secs(60);
/// The longest time that a received body waits for others that are sent in the same request.
const PASS_WAIT: Duration = Duration::from_millis(200);
/// The metrics whose metadata is remembered. All are forgotten at this number.
const METRICS_MAX: usize = 1 << 16;
/// The first delay of a repeated request.
const BACKOFF_MIN: Duration = Duration::from_millis(30);
/// The longest delay of a repeated request, unless the target asks for a longer one.
const BACKOFF_MAX: Duration = Duration::from_secs(60);
/// The longest delay that a target may ask for.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(300);

/// The protocol of a target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForwardProtocol {
    /// 2.0, and 1.0 if the target does not understand it.
    #[default]
    Auto,
    /// Remote write 1.0.
    V1,
    /// Remote write 2.0.
    V2,
}

impl ForwardProtocol {
    /// Returns the name in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            ForwardProtocol::Auto => "auto",
            ForwardProtocol::V1 => "rw1",
            ForwardProtocol::V2 => "rw2",
        }
    }

    /// Returns the protocol with this name.
    pub fn parse(name: &str) -> Option<ForwardProtocol> {
        [ForwardProtocol::Auto, ForwardProtocol::V1, ForwardProtocol::V2]
            .into_iter()
            .find(|protocol| protocol.as_str() == name)
    }
}

/// The selection of samples for a target, and their encoding.
#[derive(Clone, Debug)]
pub struct SenderOptions {
    /// The organisation whose samples are sent.
    pub org: OrgId,
    /// The protocol.
    pub protocol: ForwardProtocol,
    /// The compression of requests.
    pub compression: BodyCompression,
    /// The rules that series pass.
    pub rules: RelabelRules,
    /// The label that separates the tenants of the target.
    pub tenant_label: Option<(String, String)>,
    /// The longest time that a sample waits for others: [`REQUEST_WAIT`].
    pub wait: Duration,
}

/// A request that is to be sent.
#[derive(Debug)]
pub struct OutgoingRequest {
    /// The shard that the answer belongs to.
    pub shard: usize,
    /// The compressed body.
    pub body: Bytes,
    /// The protocol version of the body.
    pub version: WriteVersion,
    /// The compression of the body.
    pub compression: BodyCompression,
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A 2xx. `written` is the number of samples and histograms that the target says it wrote.
    Accepted {
        /// The sum of the counts in the response; none without such headers.
        written: Option<u64>,
    },
    /// Another status.
    Status {
        /// The status.
        status: u16,
        /// The beginning of the body.
        text: String,
        /// The delay that the target asks for.
        retry_after: Option<Duration>,
    },
    /// No response: the connection, TLS, the address, a redirect, or something that is not HTTP.
    Failed {
        /// The stable code of the error.
        code: &'static str,
        /// The description.
        text: String,
    },
}

/// Returns whether a receiver refuses the samples of a request for good with this status. All other
/// failures are repeated.
pub(super) const fn refuses_samples(status: u16) -> bool {
    matches!(status, 400 | 409 | 413 | 422)
}

/// Items of the series of one hash.
#[derive(Debug, Default)]
struct Shard {
    pending: Vec<Item>,
    weight: usize,
    /// When the first pending item was read.
    since: Option<Duration>,
    waiting: VecDeque<SampleBatch>,
    in_flight: Option<SampleBatch>,
    retry_at: Duration,
}

impl Shard {
    fn first_seq(&self) -> Option<u64> {
        let batches = self.waiting.iter().chain(&self.in_flight).map(SampleBatch::first_seq);
        batches.chain(self.pending.first().map(|item| item.seq)).min()
    }

    fn first_ms(&self) -> Option<i64> {
        let batches = self.in_flight.iter().chain(&self.waiting).filter_map(SampleBatch::first_ms);
        batches.min().or_else(|| first_ms(&self.pending))
    }

    fn is_empty(&self) -> bool {
        self.pending.is_empty() && self.waiting.is_empty() && self.in_flight.is_none()
    }

    fn close(&mut self) {
        if !self.pending.is_empty() {
            self.waiting.push_back(SampleBatch::new(std::mem::take(&mut self.pending)));
        }
        (self.weight, self.since) = (0, None);
    }

    fn push(&mut self, item: Item, now: Duration) {
        self.since.get_or_insert(now);
        self.weight += item.weight();
        self.pending.push(item);
        if self.weight >= REQUEST_SAMPLES_MAX {
            self.close();
        }
    }
}

/// The sender of one target.
#[derive(Debug)]
pub struct Sender {
    tail: LogTail,
    queue: SendQueue,
    wanted_shards: usize,
    /// Batches that were accepted in a row while more waited.
    loaded: u32,
    idle_since: Option<Duration>,
    encoder: RequestEncoder,
    /// Whether the target has shown that it understands the protocol.
    agreed: bool,
    rng: Entropy,
    /// The number of log bytes that were read or skipped, from which the backlog is estimated.
    read_bytes: u64,
    counts: ForwardCounts,
    state: SenderState,
    refused: VecDeque<RefusedBody>,
    /// The received bodies, unless something would change.
    received: Option<Arc<ReceivedQueue>>,
    /// When received bodies are passed on again.
    pass_at: Duration,
    /// Whether received bodies were passed on since the number of shards was doubled.
    has_passed: bool,
    /// Since when the next received bodies wait for others.
    run_since: Option<Duration>,
}

/// A step of [`Sender::fill`].
enum PassStep {
    /// Received bodies were queued.
    Passed,
    /// Received bodies wait for others, or for the end of the other shards.
    Waits,
    /// The next records come from the log.
    ReadsLog,
}

/// The part of the sender that takes records.
#[derive(Debug)]
struct SendQueue {
    tsdb: Arc<Tsdb>,
    options: SenderOptions,
    shards: Vec<Shard>,
    series: SeriesCache,
    starts: SeriesStarts,
    /// Metadata by family.
    metadata: BTreeMap<Arc<str>, Arc<Description>>,
    /// The metadata of the series with the same number of [`Tsdb::each_series_label`].
    metadata_by_number: HashMap<u32, Option<Arc<Description>>>,
    /// Whether requests are of version 1.0.
    is_v1: bool,
    /// The labels of a series as fields of version 1.0.
    fields: Vec<u8>,
    scratch: Vec<LogSample>,
    read_samples: u64,
    is_dropped: bool,
}

/// The most refused bodies that are kept.
pub const REFUSED_KEPT: usize = 16;

impl Sender {
    /// Creates a sender that begins with the log record `from`.
    ///
    /// # Errors
    /// [`TailError`] if the log cannot be read from there.
    pub fn new(
        tsdb: Arc<Tsdb>,
        options: SenderOptions,
        from: LogPosition,
        rng: Entropy,
    ) -> Result<Sender, TailError> {
        let tail = tsdb.tail(from)?;
        let version = match options.protocol {
            ForwardProtocol::V1 => WriteVersion::V1,
            ForwardProtocol::Auto | ForwardProtocol::V2 => WriteVersion::V2,
        };
        let encoder = RequestEncoder::new(version, options.compression, REQUEST_BYTES_MAX);
        let agreed = options.protocol != ForwardProtocol::Auto;
        let mut queue = SendQueue {
            tsdb,
            options,
            shards: vec![Shard::default()],
            series: SeriesCache::default(),
            starts: SeriesStarts::default(),
            metadata: BTreeMap::new(),
            metadata_by_number: HashMap::new(),
            is_v1: version == WriteVersion::V1,
            fields: Vec::new(),
            scratch: Vec::new(),
            read_samples: 0,
            is_dropped: false,
        };
        queue.load_metadata();
        Ok(Sender {
            tail,
            queue,
            wanted_shards: 1,
            loaded: 0,
            idle_since: None,
            encoder,
            agreed,
            rng,
            read_bytes: 0,
            counts: ForwardCounts::default(),
            state: SenderState::Running,
            refused: VecDeque::new(),
            received: None,
            pass_at: Duration::ZERO,
            has_passed: false,
            run_since: None,
        })
    }

    /// Passes on the bodies that `queue` returns for this format, unless their series would change.
    pub fn pass_on(&mut self, queue: impl FnOnce(BodyFormat) -> Arc<ReceivedQueue>) {
        let SenderOptions { rules, tenant_label, .. } = &self.queue.options;
        if rules.is_empty() && tenant_label.is_none() {
            self.received = Some(queue(self.format()));
        }
    }

    /// Returns the encoding of requests.
    fn format(&self) -> BodyFormat {
        BodyFormat { version: self.encoder.version(), compression: self.encoder.compression() }
    }

    /// Reads records until batches wait in a shard or no record is ready.
    ///
    /// # Errors
    /// [`TailError`]. After [`TailError::Trimmed`] the sender continues behind the lost records; in
    /// all other cases the position stays.
    pub fn fill(&mut self, now: Duration) -> Result<(), TailError> {
        self.reshard(now);
        let mut read = 0;
        while read < RECORDS_AT_ONCE && !self.changes_shards() && !self.queue.is_full() {
            match self.pass_next(now) {
                PassStep::Passed => {
                    read += 1;
                    continue;
                }
                PassStep::Waits => break,
                PassStep::ReadsLog => {}
            }
            match self.tail.next(Duration::ZERO) {
                Ok(Some(record)) => {
                    self.read_bytes += record.body.len() as u64;
                    if let Err(error) = self.queue.take(&record, now) {
                        // The record was read, but not all of its samples are queued.
                        self.tail = self.queue.tsdb.tail(LogPosition(record.seq))?;
                        return Err(error);
                    }
                }
                Ok(None) => break,
                Err(TailError::Trimmed { lost_from, lost_to }) => {
                    self.tail = self.queue.tsdb.tail(LogPosition(lost_to.saturating_add(1)))?;
                    self.counts.lost_records += lost_to.saturating_add(1).saturating_sub(lost_from);
                    return Err(TailError::Trimmed { lost_from, lost_to });
                }
                Err(other) => return Err(other),
            }
            read += 1;
        }
        let wait = if self.changes_shards() { Duration::ZERO } else { self.queue.options.wait };
        for shard in &mut self.queue.shards {
            if shard.since.is_some_and(|since| now >= since.saturating_add(wait)) {
                shard.close();
            }
        }
        Ok(())
    }

    /// Queues the next received bodies if they continue at the position.
    fn pass_next(&mut self, now: Duration) -> PassStep {
        let Some(received) = self.received.clone() else { return PassStep::ReadsLog };
        let run = received.next_run(self.tail.position(), self.tail.readable_to());
        let Some(run) = run.filter(|_| self.agreed && now >= self.pass_at) else {
            self.run_since = None;
            return PassStep::ReadsLog;
        };
        let since = *self.run_since.get_or_insert(now);
        if !run.is_full && now < since.saturating_add(PASS_WAIT) {
            return PassStep::Waits;
        }
        self.run_since = None;
        if run.bodies == 0 {
            return PassStep::ReadsLog;
        }
        // The sender has caught up, so it needs one shard, which can pass on bodies.
        self.wanted_shards = 1;
        self.reshard(now);
        if self.changes_shards() {
            return PassStep::Waits;
        }
        let bodies = received.pop(run.bodies);
        let Some(last) = bodies.last().map(|body| body.span.last) else { return PassStep::ReadsLog };
        let Some(batch) = SampleBatch::of_received(bodies) else { return PassStep::ReadsLog };
        let end = LogPosition(last.0.saturating_add(1));
        let log_bytes = |from| self.queue.tsdb.log_bytes_from(from);
        self.read_bytes += log_bytes(self.tail.position()).saturating_sub(log_bytes(end));
        self.queue.read_samples += batch.samples();
        self.tail.skip_to(end);
        self.queue.pass(batch);
        self.has_passed = true;
        PassStep::Passed
    }

    /// Returns when received bodies are passed on that wait for others, unless there is no room for
    /// them yet.
    fn pass_due(&self) -> Option<Duration> {
        let since = self.run_since.filter(|_| !self.changes_shards() && !self.queue.is_full());
        since.map(|since| since.saturating_add(PASS_WAIT))
    }

    /// Counts records that the consumer lost before this sender began.
    pub fn count_lost(&mut self, records: u64) {
        self.counts.lost_records = self.counts.lost_records.saturating_add(records);
    }

    /// Sends the queued samples without waiting for more, at the end of the process.
    pub fn flush(&mut self) {
        self.queue.shards.iter_mut().for_each(Shard::close);
    }

    /// Returns whether the number of shards is about to change. Until then no record is read, so no
    /// sample would join a partial batch.
    fn changes_shards(&self) -> bool {
        self.wanted_shards != self.queue.shards.len()
    }

    /// Changes the number of shards once nothing is queued, so that no two requests of a series are
    /// in flight.
    fn reshard(&mut self, now: Duration) {
        let is_empty = self.queue.shards.iter().all(Shard::is_empty);
        let is_idle = is_empty && self.tail.ready_records() == 0;
        if !is_idle {
            self.idle_since = None;
        } else if now >= self.idle_since.get_or_insert(now).saturating_add(IDLE) {
            self.wanted_shards = 1;
        }
        if is_empty && self.changes_shards() {
            self.queue.shards.resize_with(self.wanted_shards, Shard::default);
        }
    }

    /// Returns the next request that is due. Its answer must be passed to [`Sender::answered`].
    pub fn request(&mut self, now: Duration, at: Timestamp) -> Option<OutgoingRequest> {
        let count = self.queue.shards.len();
        let mut place = 0;
        while place < count {
            let shard = self.queue.shards.get_mut(place)?;
            if shard.in_flight.is_some() || now < shard.retry_at {
                place += 1;
                continue;
            }
            let Some(mut batch) = shard.waiting.pop_front() else {
                place += 1;
                continue;
            };
            if batch.body.is_none() {
                match batch.encode(&mut self.encoder) {
                    Ok(Some(encoded)) => batch.body = Some(encoded.body.into()),
                    Ok(None) => {
                        let why = "a single series does not fit into a request";
                        self.split_or_refuse(place, batch, 0, why.to_owned(), at);
                        continue;
                    }
                    Err(error) => {
                        self.retry(place, batch, None, now);
                        self.state = SenderState::Retrying { code: "internal", text: error.to_string() };
                        place += 1;
                        continue;
                    }
                }
            }
            let body = batch.body.clone().unwrap_or_default();
            let is_received = batch.received_from().is_some();
            let (version, compression) = (self.encoder.version(), self.encoder.compression());
            if let Some(shard) = self.queue.shards.get_mut(place) {
                shard.in_flight = Some(batch);
            }
            self.counts.requests += 1;
            self.counts.passed_requests += u64::from(is_received);
            self.counts.sent_bytes += body.len() as u64;
            return Some(OutgoingRequest { shard: place, body, version, compression });
        }
        None
    }

    /// Handles the answer to the request of a shard.
    pub fn answered(&mut self, shard: usize, answer: Answer, now: Duration, at: Timestamp) {
        let Some(batch) = self.queue.shards.get_mut(shard).and_then(|shard| shard.in_flight.take()) else {
            return;
        };
        let is_v2 = self.encoder.version() == WriteVersion::V2;
        match answer {
            Answer::Accepted { written: None } if is_v2 && !self.agreed => self.fall_back(shard, batch),
            Answer::Accepted { written } => {
                let samples = batch.samples();
                self.agreed = true;
                self.counts.accepted_samples += samples;
                if is_v2 {
                    self.counts.forgotten_samples += samples.saturating_sub(written.unwrap_or(0));
                }
                self.state = SenderState::Running;
                if let Some(shard) = self.queue.shards.get_mut(shard) {
                    shard.retry_at = Duration::ZERO;
                }
                if batch.received_from().is_none() {
                    self.count_load(now);
                }
            }
            // Receivers of version 1.0 also answer 400 to a format or compression that they do not
            // know.
            Answer::Status { status: 400 | 415, .. } if !self.agreed => self.fall_back(shard, batch),
            Answer::Status { status, .. } if refuses_samples(status) && batch.received_from().is_some() => {
                self.read_again(shard, batch, now);
            }
            Answer::Status { status, text, .. } if refuses_samples(status) => match status {
                400 | 413 => self.split_or_refuse(shard, batch, status, text, at),
                _ => self.refuse(&batch, status, text, at),
            },
            Answer::Status { status, text, retry_after } => {
                let text = format!("status {status}: {text}");
                self.state = match status {
                    401 | 403..=405 | 407 | 415 => SenderState::Misconfigured { text },
                    _ => SenderState::Retrying { code: "target_failed", text },
                };
                self.retry(shard, batch, retry_after, now);
            }
            Answer::Failed { code, text } => {
                self.state = match code {
                    // `target_refused` is an answer of the endpoint of tokens to its client.
                    "target_address_refused" | "target_tls" | "target_refused" => {
                        SenderState::Misconfigured { text }
                    }
                    _ => SenderState::Retrying { code, text },
                };
                self.retry(shard, batch, None, now);
            }
        }
    }

    /// Repeats a batch in the simplest form of the protocol, which every target understands.
    fn fall_back(&mut self, shard: usize, batch: SampleBatch) {
        self.agreed = true;
        self.encoder = RequestEncoder::new(WriteVersion::V1, BodyCompression::Snappy, REQUEST_BYTES_MAX);
        self.queue.is_v1 = true;
        if let Some(shard) = self.queue.shards.get_mut(shard) {
            shard.waiting.push_front(batch);
        }
        for shard in &mut self.queue.shards {
            shard.waiting.iter_mut().for_each(|batch| batch.body = None);
        }
        if let Some(received) = &self.received {
            received.set_format(self.format());
        }
    }

    /// Sends the samples of a refused body from the log, in batches that can be split. Bodies are
    /// passed on while there is one shard, so everything else in it comes later, and is read again,
    /// too.
    fn read_again(&mut self, shard: usize, batch: SampleBatch, now: Duration) {
        self.pass_at = now.saturating_add(PASS_PAUSE);
        let first = batch.received_from().unwrap_or(self.tail.position());
        match self.queue.tsdb.tail(first) {
            Ok(tail) => {
                self.tail = tail;
                self.queue.shards.iter_mut().for_each(|shard| *shard = Shard::default());
            }
            Err(error) => {
                self.retry(shard, batch, None, now);
                self.state = SenderState::Retrying { code: "internal", text: error.to_string() };
            }
        }
    }

    fn retry(&mut self, shard: usize, mut batch: SampleBatch, retry_after: Option<Duration>, now: Duration) {
        self.counts.retried_requests += 1;
        let doubled = BACKOFF_MIN.saturating_mul(1 << batch.attempts.min(16)).min(BACKOFF_MAX);
        batch.attempts = batch.attempts.saturating_add(1);
        let delay = doubled.mul_f64(0.5 + self.rng.unit() / 2.0);
        let delay = delay.max(retry_after.unwrap_or_default().min(RETRY_AFTER_MAX));
        if let Some(shard) = self.queue.shards.get_mut(shard) {
            shard.retry_at = now.saturating_add(delay);
            shard.waiting.push_front(batch);
        }
    }

    /// Sends both halves of a refused batch, or refuses it if it cannot be split.
    fn split_or_refuse(
        &mut self,
        shard: usize,
        batch: SampleBatch,
        status: u16,
        text: String,
        at: Timestamp,
    ) {
        match batch.halves() {
            Ok((first, second)) => {
                if let Some(shard) = self.queue.shards.get_mut(shard) {
                    shard.waiting.push_front(second);
                    shard.waiting.push_front(first);
                }
            }
            Err(batch) => self.refuse(&batch, status, text, at),
        }
    }

    /// Gives up a batch, and keeps the reason.
    fn refuse(&mut self, batch: &SampleBatch, status: u16, text: String, at: Timestamp) {
        let samples = batch.samples();
        self.counts.refused_samples += samples;
        self.state = SenderState::Running;
        if self.refused.len() == REFUSED_KEPT {
            self.refused.pop_front();
        }
        let first_series = batch.first_series();
        self.refused.push_back(RefusedBody { at, status, text, samples, first_series });
    }

    /// Asks for more shards if batches wait everywhere.
    fn count_load(&mut self, now: Duration) {
        let is_loaded = self.queue.shards.iter().all(|shard| !shard.waiting.is_empty());
        self.loaded = if is_loaded { self.loaded + 1 } else { 0 };
        if self.loaded >= LOADED_BATCHES && self.wanted_shards < SHARDS_MAX {
            self.loaded = 0;
            self.wanted_shards *= 2;
            if std::mem::take(&mut self.has_passed) {
                self.pass_at = now.saturating_add(PASS_PAUSE);
            }
        }
    }

    /// Returns how long nothing is due, at most `longest`.
    pub fn idle_for(&self, now: Duration, longest: Duration) -> Duration {
        let due = |shard: &Shard| match (&shard.in_flight, shard.waiting.is_empty(), shard.since) {
            (Some(_), ..) | (None, true, None) => None,
            (None, false, _) => Some(shard.retry_at),
            (None, true, Some(since)) => Some(since.saturating_add(self.queue.options.wait)),
        };
        let next = self.queue.shards.iter().filter_map(due).chain(self.pass_due()).min();
        next.map_or(longest, |next| next.saturating_sub(now).min(longest))
    }

    /// Returns whether a record could be read now.
    pub fn can_read(&self) -> bool {
        let waits = self.changes_shards() || self.pass_due().is_some() || self.queue.is_full();
        !waits && self.tail.ready_records() > 0
    }

    /// Returns the first log record that is still needed.
    pub fn position(&self) -> LogPosition {
        let first = self.queue.shards.iter().filter_map(Shard::first_seq).min();
        LogPosition(first.unwrap_or(self.tail.position().0))
    }

    /// Returns whether the organisation was removed, so that nothing follows.
    pub fn is_dropped(&self) -> bool {
        self.queue.is_dropped
    }

    /// Returns the counters.
    pub fn counts(&self) -> ForwardCounts {
        self.counts
    }

    /// Returns the state of the sender.
    pub fn state(&self) -> &SenderState {
        &self.state
    }

    /// Returns the refused bodies, the oldest first.
    pub fn refused(&self) -> impl Iterator<Item = &RefusedBody> {
        self.refused.iter()
    }

    /// Returns the present number of shards.
    pub fn shards(&self) -> usize {
        self.queue.shards.len()
    }

    /// Returns the protocol version in use.
    pub fn version(&self) -> WriteVersion {
        self.encoder.version()
    }

    /// Returns the time in ms of the first sample in the log that is not acknowledged; none if no
    /// sample is queued. The time of a record is that of its newest sample.
    pub fn first_queued_ms(&self) -> Option<i64> {
        self.queue.shards.iter().filter_map(Shard::first_ms).min()
    }

    /// Returns the number of samples that are not acknowledged. `log_bytes` is the part of the log
    /// that was not read; its samples are estimated from the part that was read before.
    pub fn lag_samples(&self, log_bytes: u64) -> u64 {
        let queued = |shard: &Shard| {
            let batches = shard.waiting.iter().chain(&shard.in_flight).map(SampleBatch::samples);
            batches.sum::<u64>() + shard.pending.len() as u64
        };
        let queued: u64 = self.queue.shards.iter().map(queued).sum();
        let behind = u128::from(log_bytes) * u128::from(self.queue.read_samples);
        let behind = behind.checked_div(u128::from(self.read_bytes)).unwrap_or_default();
        queued.saturating_add(if self.tail.ready_records() == 0 {
            0
        } else {
            u64::try_from(behind).unwrap_or(u64::MAX)
        })
    }

    /// Returns the position up to which the log was read.
    pub fn read_position(&self) -> LogPosition {
        self.tail.position()
    }
}

impl SendQueue {
    /// Queues received bodies behind everything else in the only shard.
    fn pass(&mut self, batch: SampleBatch) {
        if let Some(shard) = self.shards.first_mut() {
            shard.close();
            shard.waiting.push_back(batch);
        }
    }

    fn is_full(&self) -> bool {
        self.shards.iter().any(|shard| shard.waiting.len() >= BATCHES_WAITING)
    }

    fn load_metadata(&mut self) {
        let snapshot = self.tsdb.snapshot(&Access::whole(self.options.org));
        // An endless pace stops nothing.
        if let Ok(listed) = snapshot.paced(&Pace::endless()).metadata(None, usize::MAX) {
            self.metadata =
                listed.items.into_iter().map(|one| (Arc::clone(&one.name), Arc::new(one))).collect();
        }
    }

    /// Queues the samples of a record.
    fn take(&mut self, record: &TailRecord<'_>, now: Duration) -> Result<(), TailError> {
        if record.org != self.options.org {
            return Ok(());
        }
        let seq = record.seq;
        match record.kind {
            RecordKind::Samples | RecordKind::SamplesV1 => {
                let mut samples = std::mem::take(&mut self.scratch);
                record.samples(&mut samples)?;
                self.read_samples += samples.len() as u64;
                for sample in &samples {
                    let value =
                        Sample { at: Timestamp::from_ms(sample.at_ms), value: f64::from_bits(sample.bits) };
                    self.push(seq, sample.series, ForwardedValue::Sample(value), now);
                }
                self.scratch = samples;
            }
            RecordKind::Histograms
            | RecordKind::Exemplars
            | RecordKind::Starts
            | RecordKind::Metadata
            | RecordKind::Dropped => self.take_rare(record.content()?, seq, now),
            // Definitions are in the table of series. The others concern this store alone.
            RecordKind::Series
            | RecordKind::Mark
            | RecordKind::Seal
            | RecordKind::SealAll
            | RecordKind::Switch
            | RecordKind::Delete
            | RecordKind::RegistrySeries
            | RecordKind::RegistryMetadata => {}
        }
        Ok(())
    }

    fn take_rare(&mut self, content: TailContent<'_>, seq: u64, now: Duration) {
        match content {
            TailContent::Histograms(histograms) => {
                self.read_samples += histograms.len() as u64;
                for (series, at_ms, histogram) in histograms {
                    let at = Timestamp::from_ms(at_ms);
                    self.push(seq, series.0, ForwardedValue::Histogram(at, Box::new(histogram)), now);
                }
            }
            TailContent::Exemplars(exemplars) => {
                for (series, exemplar) in exemplars {
                    self.push(seq, series.0, ForwardedValue::Exemplar(Box::new(exemplar)), now);
                }
            }
            TailContent::Starts(starts) => {
                for start in starts {
                    self.starts.put(start.series, start.at_ms, start.start_ms);
                }
            }
            TailContent::Metadata(metadata) => {
                for metric in metadata {
                    let name: Arc<str> = metric.name.into();
                    let found = Description {
                        name: Arc::clone(&name),
                        kind: metric.kind,
                        help: metric.help.into(),
                        unit: metric.unit.into(),
                    };
                    self.metadata.insert(name, Arc::new(found));
                }
                // Series get their metadata when they are next looked up.
                self.series.clear();
                self.metadata_by_number.clear();
            }
            TailContent::Dropped => self.is_dropped = true,
            TailContent::Series(_)
            | TailContent::Samples(_)
            | TailContent::Deletion { .. }
            | TailContent::Seal { .. }
            | TailContent::Mark
            | TailContent::Switch { .. } => {}
        }
    }

    fn push(&mut self, seq: u64, id: u32, value: ForwardedValue, now: Duration) {
        let Some(series) = self.series(id) else { return };
        let start_ms = value.at_ms().map_or(0, |at_ms| self.starts.of(id, at_ms));
        // Neighbouring series go to one shard, so that a scrape is not spread over all.
        let shard = (id as usize / 64) % self.shards.len().max(1);
        if let Some(shard) = self.shards.get_mut(shard) {
            shard.push(Item { seq, id, series, value, start_ms }, now);
        }
    }

    /// Returns a series after relabelling; none if it is dropped.
    fn series(&mut self, id: u32) -> Option<Arc<ForwardedSeries>> {
        if let Some(known) = self.series.get(id) {
            return known;
        }
        let series = self.relabelled(id).map(Arc::new);
        self.series.insert(id, series.clone());
        series
    }

    fn relabelled(&mut self, id: u32) -> Option<ForwardedSeries> {
        let SenderOptions { org, rules, tenant_label, .. } = &self.options;
        if self.is_v1 && rules.is_empty() && tenant_label.is_none() {
            return self.encoded(id);
        }
        let labels = self.tsdb.series_labels(*org, SeriesId(id))?;
        let metadata = self.metadata_of(labels.metric_name());
        if rules.is_empty() && tenant_label.is_none() {
            return Some(ForwardedSeries::new(labels, metadata));
        }
        let mut pairs: LabelPairs<'_> =
            labels.iter().map(|label| (label.name.into(), label.value.into())).collect();
        if !rules.apply(&mut pairs) {
            return None;
        }
        let mut labels = Labels::from_pairs(pairs.iter().map(|(name, value)| (&**name, &**value)));
        if let Some((name, value)) = tenant_label {
            let mut builder = labels.to_builder();
            builder.set(name.as_str(), value.as_str());
            labels = builder.build();
        }
        Some(ForwardedSeries::new(labels, metadata))
    }

    /// Returns an unchanged series for requests of version 1.0.
    fn encoded(&mut self, id: u32) -> Option<ForwardedSeries> {
        let SendQueue { tsdb, options, fields, .. } = self;
        fields.clear();
        let put = |name: &str, value: &str| put_label(name, value, fields);
        let number = tsdb.each_series_label(options.org, SeriesId(id), put)?;
        let fields: Box<[u8]> = fields.as_slice().into();
        if let Some(known) = self.metadata_by_number.get(&number) {
            return Some(ForwardedSeries::encoded(fields, known.clone()));
        }
        let labels = labels_of_fields(&fields);
        let metadata = self.metadata_of(labels.metric_name());
        if self.metadata_by_number.len() >= METRICS_MAX {
            self.metadata_by_number.clear();
        }
        self.metadata_by_number.insert(number, metadata.clone());
        Some(ForwardedSeries::encoded(fields, metadata))
    }

    fn metadata_of(&self, name: &str) -> Option<Arc<Description>> {
        families_of(name).find_map(|family| self.metadata.get(family)).cloned()
    }
}

#[cfg(test)]
mod tests;
