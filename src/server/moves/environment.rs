//! The world of a move in a server: the store, the log, the accounts and two clients of the target.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::Handle;

use super::target::MoveTarget;
use super::{MoveState, Moves, StopFlag};
use crate::clock::Clock;
use crate::forward::encode::{BodyCompression, EncodedRequest, WriteVersion};
use crate::identity::{Identity, MoveRow, MoveStep};
use crate::kv::with_sources;
use crate::model::{
    Access, BatchBuilder, METRIC_NAME, OrgId, Pace, Sample, StartChange, TimeRange, Timestamp,
};
use crate::moves::{
    Batch, BatchSeries, MoveEnvironment, MoveStop, ReadFailure, ReadbackQuery, TailBatch, WriteFailure,
};
use crate::outbound::{TargetClient, TargetError, TargetMethod, TargetRequest, TargetResponse};
use crate::sync::IgnorePoison as _;
use crate::tsdb::{
    ConsumerId, ConsumerKind, LogPosition, LogTail, MetricFilter, RecordKind, SeriesId, Snapshot,
    TailContent, TailError, TailRecord, Tsdb,
};

/// The longest time of a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// The most bytes of a response.
const RESPONSE_BYTES_MAX: usize = 16 << 20;
/// The samples after which a batch of the log is complete.
const TAIL_SAMPLES: usize = 5_000;
/// How long the tail waits for a record.
const TAIL_WAIT: Duration = Duration::from_millis(200);
/// How long the start of a move waits until the records before it are visible.
const VISIBLE_WAIT: Duration = Duration::from_secs(30);
/// The most series whose start timestamp is remembered.
const STARTS_MAX: usize = 1 << 20;

/// The environment of one move.
pub(super) struct ServerMove {
    identity: Arc<Identity>,
    tsdb: Arc<Tsdb>,
    clock: Clock,
    runtime: Handle,
    org: OrgId,
    write: TargetClient,
    read: TargetClient,
    version: WriteVersion,
    compression: BodyCompression,
    tail: Option<LogTail>,
    /// The last start timestamp of a series in the log.
    starts: HashMap<SeriesId, StartChange>,
    state: Arc<Mutex<MoveState>>,
    stop: Arc<StopFlag>,
}

/// The outcome of a request: a status that is not 2xx, or no response.
enum RequestFailure {
    Status { status: u16, after: Option<Duration>, text: String },
    TooLarge,
    Unreachable(String),
}

impl RequestFailure {
    /// Returns whether the target will never accept the request.
    fn is_final(&self) -> bool {
        matches!(self, RequestFailure::Status { status: 400 | 409 | 413 | 415 | 422, .. })
    }

    fn text(self) -> String {
        match self {
            RequestFailure::Status { status, text, .. } => format!("the target responded {status}: {text}"),
            RequestFailure::TooLarge => "the response is too large".to_owned(),
            RequestFailure::Unreachable(text) => text,
        }
    }
}

impl From<TargetError> for RequestFailure {
    fn from(error: TargetError) -> RequestFailure {
        RequestFailure::Unreachable(with_sources(&error))
    }
}

fn failed(error: &dyn std::error::Error) -> MoveStop {
    MoveStop::Failed(with_sources(error))
}

impl ServerMove {
    pub(super) fn new(
        moves: &Moves,
        org: OrgId,
        target: &MoveTarget,
        state: Arc<Mutex<MoveState>>,
        stop: Arc<StopFlag>,
    ) -> Result<ServerMove, String> {
        Ok(ServerMove {
            identity: Arc::clone(&moves.identity),
            tsdb: Arc::clone(&moves.tsdb),
            clock: moves.clock.clone(),
            runtime: moves.runtime.clone(),
            org,
            write: TargetClient::new(target.write()?, moves.egress.clone())?,
            read: TargetClient::new(target.query()?, moves.egress.clone())?,
            version: target.version(),
            compression: target.body_compression(),
            tail: None,
            starts: HashMap::new(),
            state,
            stop,
        })
    }

    /// Asks whether the target answers queries.
    pub(super) fn probe(&mut self) -> Result<(), String> {
        self.ask("/api/v1/query", "query=vector(1)").map(drop).map_err(RequestFailure::text)
    }

    fn consumer(&self) -> ConsumerId {
        ConsumerId { kind: ConsumerKind::Move, number: u64::from(self.org.0) }
    }

    fn send(&self, client: &TargetClient, request: TargetRequest) -> Result<Vec<u8>, RequestFailure> {
        self.runtime.block_on(async {
            let response = client.send(request).await?;
            if !(200..300).contains(&response.status) {
                return Err(refusal(response).await);
            }
            let mut body = response.body;
            let mut all = Vec::new();
            while let Some(some) = body.next().await? {
                if all.len() + some.len() > RESPONSE_BYTES_MAX {
                    return Err(RequestFailure::TooLarge);
                }
                all.extend_from_slice(&some);
            }
            Ok(all)
        })
    }

    /// Sends a form to a path of the query API.
    fn ask(&self, path: &str, form: &str) -> Result<Vec<u8>, RequestFailure> {
        let request = TargetRequest {
            method: TargetMethod::Post,
            suffix: path.to_owned(),
            headers: vec![("content-type", "application/x-www-form-urlencoded".to_owned())],
            body: form.to_owned().into(),
            timeout: REQUEST_TIMEOUT,
            body_bytes_max: u64::MAX,
        };
        self.send(&self.read, request)
    }

    /// Returns the tail at a position.
    fn tail_at(&mut self, from: u64) -> Result<LogTail, MoveStop> {
        match self.tail.take() {
            Some(tail) if tail.position() == LogPosition(from) => Ok(tail),
            _ => self.tsdb.tail(LogPosition(from)).map_err(|error| failed(&error)),
        }
    }

    fn add(&mut self, record: &TailRecord<'_>, collected: &mut Collected) -> Result<(), MoveStop> {
        match record.content().map_err(|error| failed(&error))? {
            TailContent::Samples(samples) => {
                for one in samples {
                    let sample =
                        Sample { at: Timestamp::from_ms(one.at_ms), value: f64::from_bits(one.bits) };
                    let place = self.place(SeriesId(one.series), collected, sample.at)?;
                    collected.batch.series[place].samples.push(sample);
                    collected.samples += 1;
                }
            }
            TailContent::Histograms(histograms) => {
                for (series, at_ms, histogram) in histograms {
                    let at = Timestamp::from_ms(at_ms);
                    let place = self.place(series, collected, at)?;
                    collected.batch.series[place].histograms.push((at, histogram));
                    collected.samples += 1;
                }
            }
            TailContent::Exemplars(exemplars) => {
                for (series, exemplar) in exemplars {
                    let place = self.place(series, collected, exemplar.at)?;
                    collected.batch.series[place].exemplars.push(exemplar);
                }
            }
            TailContent::Starts(starts) if self.version == WriteVersion::V2 => {
                for start in starts {
                    let change = StartChange {
                        at: Timestamp::from_ms(start.at_ms),
                        start: Timestamp::from_ms(start.start_ms),
                    };
                    if self.starts.len() < STARTS_MAX || self.starts.contains_key(&SeriesId(start.series)) {
                        self.starts.insert(SeriesId(start.series), change);
                    }
                }
            }
            TailContent::Deletion { .. } => collected.deletions += 1,
            TailContent::Dropped => return Err(MoveStop::Failed("the organisation was removed".to_owned())),
            TailContent::Starts(_)
            | TailContent::Series(_)
            | TailContent::Metadata(_)
            | TailContent::Seal { .. }
            | TailContent::Mark
            | TailContent::Switch { .. } => {}
        }
        Ok(())
    }

    /// Returns the place of a series in the batch, with its start timestamp.
    fn place(&self, id: SeriesId, collected: &mut Collected, at: Timestamp) -> Result<usize, MoveStop> {
        let place = match collected.places.get(&id) {
            Some(place) => *place,
            None => {
                let labels = self.tsdb.series_labels(self.org, id);
                let labels = labels
                    .ok_or_else(|| MoveStop::Failed(format!("series {} of the log is unknown", id.0)))?;
                collected.batch.series.push(BatchSeries { labels, ..BatchSeries::default() });
                let place = collected.batch.series.len() - 1;
                collected.places.insert(id, place);
                place
            }
        };
        if let Some(change) = self.starts.get(&id).filter(|change| change.at <= at) {
            let starts = &mut collected.batch.series[place].starts;
            if starts.last() != Some(change) {
                starts.push(*change);
            }
        }
        Ok(place)
    }
}

/// The samples of the records of one batch.
#[derive(Default)]
struct Collected {
    batch: Batch,
    places: HashMap<SeriesId, usize>,
    samples: usize,
    deletions: u64,
}

async fn refusal(response: TargetResponse) -> RequestFailure {
    let (status, after) = (response.status, response.retry_after_s().map(Duration::from_secs));
    let text = match response.into_error().await {
        TargetError::Refused { message, .. } | TargetError::Failed { message, .. } => message,
        other => other.to_string(),
    };
    RequestFailure::Status { status, after, text }
}

impl MoveEnvironment for ServerMove {
    fn save(&mut self, row: &MoveRow) -> Result<(), MoveStop> {
        self.identity.save_move(self.org, row).map_err(|error| failed(&error))?;
        if let MoveStep::Tail { next, .. } = row.step {
            self.tsdb.advance_pin(self.consumer(), LogPosition(next));
        }
        Ok(())
    }

    fn write(&mut self, request: EncodedRequest) -> Result<(), WriteFailure> {
        let headers = vec![
            ("content-type", self.version.content_type().to_owned()),
            ("content-encoding", self.compression.content_encoding().to_owned()),
            ("x-prometheus-remote-write-version", self.version.version_header().to_owned()),
        ];
        let request = TargetRequest {
            method: TargetMethod::Post,
            suffix: String::new(),
            headers,
            body: request.body.into(),
            timeout: REQUEST_TIMEOUT,
            body_bytes_max: u64::MAX,
        };
        match self.send(&self.write, request) {
            Ok(_) | Err(RequestFailure::TooLarge) => Ok(()),
            Err(failure) if failure.is_final() => Err(WriteFailure::Refused { reason: failure.text() }),
            Err(failure) => {
                let after = match &failure {
                    RequestFailure::Status { after, .. } => *after,
                    _ => None,
                };
                Err(WriteFailure::Retry { after, reason: failure.text() })
            }
        }
    }

    fn query(&mut self, query: &ReadbackQuery) -> Result<Vec<u8>, ReadFailure> {
        let seconds = Decimal(query.at_ms);
        let form = format!("query={}&time={seconds}", percent_encoded(&query.expression));
        self.ask("/api/v1/query", &form).map_err(read_failure)
    }

    fn metric_names(&mut self, range: TimeRange) -> Result<Vec<String>, ReadFailure> {
        let path = format!(
            "/api/v1/label/{METRIC_NAME}/values?start={}&end={}",
            Decimal(range.start.as_ms()),
            Decimal(range.end.as_ms())
        );
        let request = TargetRequest {
            method: TargetMethod::Get,
            suffix: path,
            headers: Vec::new(),
            body: Vec::new().into(),
            timeout: REQUEST_TIMEOUT,
            body_bytes_max: u64::MAX,
        };
        let body = self.send(&self.read, request).map_err(read_failure)?;
        let wrong = |reason: String| ReadFailure::Retry { reason };
        let json: serde_json::Value =
            serde_json::from_slice(&body).map_err(|error| wrong(format!("no list of names: {error}")))?;
        let names = json.get("data").and_then(serde_json::Value::as_array);
        let names = names.ok_or_else(|| wrong("no list of names".to_owned()))?;
        Ok(names.iter().filter_map(|name| Some(name.as_str()?.to_owned())).collect())
    }

    fn pin_log(&mut self) -> Result<u64, MoveStop> {
        // A pin of an earlier move is of no use.
        self.tsdb.unpin(self.consumer()).map_err(|error| failed(&error))?;
        let end = self.tsdb.pin(self.consumer(), self.tsdb.log_end()).map_err(|error| failed(&error))?;
        let Some(before) = end.0.checked_sub(1).filter(|before| *before > 0) else { return Ok(end.0) };
        match self.tsdb.tail(LogPosition(before)) {
            // A removed record is visible.
            Err(TailError::Trimmed { .. }) => Ok(end.0),
            Err(error) => Err(failed(&error)),
            Ok(mut tail) => match tail.next(VISIBLE_WAIT) {
                Ok(Some(_)) | Err(TailError::Trimmed { .. }) => Ok(end.0),
                Ok(None) => Err(MoveStop::Failed("the log does not become readable".to_owned())),
                Err(error) => Err(failed(&error)),
            },
        }
    }

    fn tail(&mut self, from: u64, until: Option<u64>) -> Result<TailBatch, MoveStop> {
        let mut tail = self.tail_at(from)?;
        let mut collected = Collected::default();
        while collected.samples < TAIL_SAMPLES
            && until.is_none_or(|until| tail.position() < LogPosition(until))
        {
            let wait = if collected.samples > 0 { Duration::ZERO } else { TAIL_WAIT };
            let Some(record) = tail.next(wait).map_err(|error| failed(&error))? else { break };
            if record.org == self.org && record.kind != RecordKind::Mark {
                self.add(&record, &mut collected)?;
            }
            if collected.samples == 0 && self.stop.wait(Duration::ZERO) {
                return Err(MoveStop::Stopping);
            }
        }
        let (next, left) = (tail.position().0, tail.ready_records());
        self.tail = Some(tail);
        Ok(TailBatch { batch: collected.batch, next, left, deletions: collected.deletions })
    }

    fn snapshot(&self) -> Snapshot {
        self.tsdb.snapshot(&Access::whole(self.org))
    }

    fn after_newest_ms(&self) -> Option<i64> {
        let (snapshot, pace) = (self.snapshot(), Pace::endless());
        let listed = snapshot.paced(&pace).metrics(&MetricFilter::default(), TimeRange::ALL, usize::MAX - 1);
        let newest = listed.ok()?.items.into_iter().map(|metric| metric.last_seen).max()?;
        Some(newest.as_ms().saturating_add(1))
    }

    fn store(&mut self, batch: &Batch) -> Result<u64, MoveStop> {
        let mut refused = 0;
        for some in batch.series.chunks(1_000) {
            let mut builder = BatchBuilder::default();
            for series in some {
                builder.series(&series.labels, series.samples.iter().copied());
            }
            let report = self.tsdb.append(self.org, &builder.batch(), self.clock.now());
            refused += report.map_err(|error| failed(&error))?.refused;
        }
        Ok(refused)
    }

    fn switch(&mut self, row: &MoveRow, _log_from: Option<u64>) -> Result<(), MoveStop> {
        self.save(row)
    }

    fn pause(&mut self, time: Duration) -> Result<(), MoveStop> {
        if self.stop.wait(time) { Err(MoveStop::Stopping) } else { Ok(()) }
    }

    fn report(&mut self, row: &MoveRow, notes: &[String], waits_for: Option<&str>) {
        let mut state = self.state.lock().ignore_poison();
        state.row = row.clone();
        state.notes = notes.to_vec();
        state.waits_for = waits_for.map(str::to_owned);
    }
}

fn read_failure(failure: RequestFailure) -> ReadFailure {
    match failure {
        RequestFailure::TooLarge => ReadFailure::TooLarge,
        failure if failure.is_final() => ReadFailure::Refused { reason: failure.text() },
        failure => ReadFailure::Retry { reason: failure.text() },
    }
}

/// Milliseconds, formatted as seconds with three decimals.
struct Decimal(i64);

impl std::fmt::Display for Decimal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let ms = self.0.unsigned_abs();
        write!(f, "{sign}{}.{:03}", ms / 1_000, ms % 1_000)
    }
}

/// Encodes a text for a form.
fn percent_encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len() * 2);
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(char::from(byte)),
            byte => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}
