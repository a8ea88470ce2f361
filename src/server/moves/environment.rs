//! The world of a move in a server: the store, the log, the accounts and two clients of the target.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::Handle;

use super::target::MoveTarget;
use super::{MoveState, Moves, StopFlag, consumer_of};
use crate::clock::Clock;
use crate::entropy::Entropy;
use crate::forward::encode::{BodyCompression, EncodedRequest, WriteVersion};
use crate::forward::sender::Answer;
use crate::forward::starts::SeriesStarts;
use crate::forward::{ForwardProtocol, edge};
use crate::identity::{Identity, MoveRow, MoveStateError, MoveStep};
use crate::kv::with_sources;
use crate::model::{
    Access, BatchBuilder, METRIC_NAME, OrgId, Pace, Sample, StartChange, TimeRange, Timestamp, families_of,
    percent_encoded,
};
use crate::moves::{
    BatchSeries, MoveBatch, MoveEnvironment, MoveStop, ReadFailure, ReadbackQuery, TailBatch, WriteFailure,
    parse_names, parse_one,
};
use crate::outbound::{Egress, TargetClient, TargetError, TargetMethod, TargetRequest};
use crate::server::query_string::DecimalSeconds;
use crate::sync::IgnorePoison as _;
use crate::tsdb::{
    ConsumerId, Description, LogPosition, LogTail, MetricFilter, RecordKind, SeriesId, Snapshot, TailContent,
    TailError, TailRecord, Tsdb,
};

/// The longest time of a query.
const QUERY_TIMEOUT: Duration = Duration::from_secs(60);
/// The longest time of a query that probes the target.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);
/// The most bytes of a response.
const RESPONSE_BYTES_MAX: usize = 16 << 20;
/// The samples and exemplars after which a batch of the log is complete.
const TAIL_SAMPLES: usize = 5_000;
/// How long the tail waits for a record.
const TAIL_WAIT: Duration = Duration::from_millis(10);
/// How long the start of a move waits until the records before it are visible.
const VISIBLE_WAIT: Duration = Duration::from_secs(30);
/// The most families whose metadata waits for a sample.
const METADATA_MAX: usize = 10_000;

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
    starts: SeriesStarts,
    /// Metadata in the log that was not sent yet, by family.
    metadata: HashMap<Arc<str>, Description>,
    state: Arc<Mutex<MoveState>>,
    stop: Arc<StopFlag>,
}

/// The outcome of a query: a status that is not 2xx, or no response.
enum QueryFailure {
    Status { status: u16, text: String },
    TooLarge,
    Unreachable(String),
}

/// Words of a target that refuses a query because of its size, in lower case.
const SIZE_WORDS: [&str; 4] = ["too many samples", "too long", "too large", "exceeds the limit"];

impl QueryFailure {
    /// Returns whether the target refuses the query because of its size, so that a smaller one may
    /// succeed.
    fn is_too_large(&self) -> bool {
        match self {
            QueryFailure::Status { status: 422 | 413, .. } | QueryFailure::TooLarge => true,
            QueryFailure::Status { status: 400, text } => {
                let text = text.to_ascii_lowercase();
                SIZE_WORDS.iter().any(|words| text.contains(words))
            }
            _ => false,
        }
    }

    fn text(self) -> String {
        match self {
            QueryFailure::Status { status, text } => refused(status, &text),
            QueryFailure::TooLarge => "the response is too large".to_owned(),
            QueryFailure::Unreachable(text) => text,
        }
    }
}

fn refused(status: u16, text: &str) -> String {
    format!("the target responded {status}: {text}")
}

/// The reason why a request has no answer when the move stops.
const STOPPED: &str = "the move is being stopped";

impl From<TargetError> for QueryFailure {
    fn from(error: TargetError) -> QueryFailure {
        QueryFailure::Unreachable(with_sources(&error))
    }
}

fn failed(error: &dyn std::error::Error) -> MoveStop {
    MoveStop::Failed(with_sources(error))
}

fn not_stored(error: &MoveStateError) -> MoveStop {
    match error {
        MoveStateError::UnknownOrg => MoveStop::Removed,
        error => failed(error),
    }
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
            starts: SeriesStarts::default(),
            metadata: HashMap::new(),
            state,
            stop,
        })
    }

    /// Asks whether the target answers queries and accepts samples. Returns whether the target is
    /// VictoriaMetrics, which names its host in each response.
    pub(super) fn probe(&self, target: &MoveTarget, egress: Egress) -> Result<bool, String> {
        let request = TargetRequest {
            method: TargetMethod::Get,
            suffix: "/api/v1/query?query=vector(1)".to_owned(),
            headers: Vec::new(),
            body: Vec::new().into(),
            timeout: PROBE_TIMEOUT,
            body_bytes_max: RESPONSE_BYTES_MAX as u64,
        };
        let silent = |reason: String| format!("{} does not answer queries: {reason}", target.read_url);
        let answer = self.until_stopped(receive(&self.read, request)).ok_or(STOPPED)?;
        let (body, is_victoria) = answer.map_err(|failure| silent(failure.text()))?;
        parse_one(&body).map_err(silent)?;
        let protocol = match self.version {
            WriteVersion::V1 => ForwardProtocol::V1,
            WriteVersion::V2 => ForwardProtocol::V2,
        };
        let probe = edge::probe(target.write()?, protocol, self.compression, egress);
        let report = self.until_stopped(probe).ok_or(STOPPED)??;
        match report.ok {
            true => Ok(is_victoria),
            false => {
                let reason = report.message.unwrap_or_default();
                Err(format!("{} does not accept samples: {reason}", target.write_url))
            }
        }
    }

    /// Runs a request; none if the move stops meanwhile.
    fn until_stopped<T>(&self, request: impl Future<Output = T>) -> Option<T> {
        self.runtime.block_on(async {
            tokio::select! {
                biased;
                () = self.stop.is_set() => None,
                answer = request => Some(answer),
            }
        })
    }

    fn check_stop(&self) -> Result<(), MoveStop> {
        if self.stop.wait(Duration::ZERO) { Err(MoveStop::Stopping) } else { Ok(()) }
    }

    fn consumer(&self) -> ConsumerId {
        consumer_of(self.org)
    }

    fn send(&self, request: TargetRequest) -> Result<Vec<u8>, QueryFailure> {
        let answer = self.until_stopped(receive(&self.read, request));
        answer.unwrap_or_else(|| Err(QueryFailure::Unreachable(STOPPED.to_owned()))).map(|(body, _)| body)
    }

    /// Sends a form to a path of the query API.
    fn ask(&self, path: &str, form: &str) -> Result<Vec<u8>, QueryFailure> {
        let request = TargetRequest {
            method: TargetMethod::Post,
            suffix: path.to_owned(),
            headers: vec![("content-type", "application/x-www-form-urlencoded".to_owned())],
            body: form.to_owned().into(),
            timeout: QUERY_TIMEOUT,
            body_bytes_max: u64::MAX,
        };
        self.send(request)
    }

    /// Returns the tail at a position, or at the first record after it that the log has, and the
    /// number of records between.
    fn tail_at(&mut self, from: u64) -> Result<(LogTail, u64), TailError> {
        match self.tail.take() {
            Some(tail) if tail.position() == LogPosition(from) => Ok((tail, 0)),
            _ => match self.tsdb.tail(LogPosition(from)) {
                Err(TailError::Trimmed { lost_to, .. }) => {
                    let next = lost_to.saturating_add(1);
                    Ok((self.tsdb.tail(LogPosition(next))?, next.saturating_sub(from)))
                }
                found => Ok((found?, 0)),
            },
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
                    collected.samples += 1;
                }
            }
            TailContent::Starts(starts) if self.version == WriteVersion::V2 => {
                starts.iter().for_each(|one| self.starts.put(one.series, one.at_ms, one.start_ms));
            }
            TailContent::Deletion { .. } => collected.deletions += 1,
            TailContent::Metadata(families) => {
                for one in families {
                    let name: Arc<str> = one.name.into();
                    let found = Description {
                        name: Arc::clone(&name),
                        kind: one.kind,
                        help: one.help.into(),
                        unit: one.unit.into(),
                    };
                    if self.metadata.len() < METADATA_MAX || self.metadata.contains_key(&name) {
                        self.metadata.insert(name, found);
                    }
                }
            }
            TailContent::Dropped => return Err(MoveStop::Removed),
            TailContent::Starts(_)
            | TailContent::Series(_)
            | TailContent::Seal { .. }
            | TailContent::Mark
            | TailContent::Switch { .. } => {}
        }
        Ok(())
    }

    /// Returns the place of a series in the batch, with its start timestamp.
    fn place(&mut self, id: SeriesId, collected: &mut Collected, at: Timestamp) -> Result<usize, MoveStop> {
        let place = match collected.places.get(&id) {
            Some(place) => *place,
            None => {
                let labels = self.tsdb.series_labels(self.org, id);
                let labels = labels
                    .ok_or_else(|| MoveStop::Failed(format!("series {} of the log is unknown", id.0)))?;
                let metadata = self.family_of(labels.metric_name());
                let series = BatchSeries { id: Some(id), labels, metadata, ..BatchSeries::default() };
                collected.batch.series.push(series);
                let place = collected.batch.series.len() - 1;
                collected.places.insert(id, place);
                place
            }
        };
        let start = Timestamp::from_ms(self.starts.of(id.0, at.as_ms()));
        if start != Timestamp::from_ms(0) {
            collected.batch.series[place].add_start(StartChange { at, start });
        }
        Ok(place)
    }

    /// Returns the metadata of a metric's family, once.
    fn family_of(&mut self, metric: &str) -> Option<Description> {
        if self.metadata.is_empty() {
            return None;
        }
        families_of(metric).find_map(|family| self.metadata.remove(family))
    }
}

/// The samples of the records of one batch.
#[derive(Default)]
struct Collected {
    batch: MoveBatch,
    places: HashMap<SeriesId, usize>,
    samples: usize,
    deletions: u64,
}

/// Sends a query. Returns the body, and whether the target is VictoriaMetrics.
async fn receive(client: &TargetClient, request: TargetRequest) -> Result<(Vec<u8>, bool), QueryFailure> {
    let response = client.send(request).await?;
    let status = response.status;
    if !(200..300).contains(&status) {
        let text = match response.into_error().await {
            TargetError::Refused { message, .. } | TargetError::Failed { message, .. } => message,
            other => other.to_string(),
        };
        return Err(QueryFailure::Status { status, text });
    }
    let is_victoria = response.header("x-server-hostname").is_some();
    let (mut body, mut all) = (response.body, Vec::new());
    while let Some(some) = body.next().await? {
        if all.len() + some.len() > RESPONSE_BYTES_MAX {
            return Err(QueryFailure::TooLarge);
        }
        all.extend_from_slice(&some);
    }
    Ok((all, is_victoria))
}

impl MoveEnvironment for ServerMove {
    fn save(&mut self, row: &MoveRow) -> Result<(), MoveStop> {
        self.check_stop()?;
        self.identity.save_move(self.org, row).map_err(|error| not_stored(&error))?;
        if let Some((next, _)) = row.step.log_position() {
            self.tsdb.advance_pin(self.consumer(), LogPosition(next));
        }
        Ok(())
    }

    fn write(&mut self, request: EncodedRequest) -> Result<(), WriteFailure> {
        let sent = (request.counts.samples + request.counts.histograms) as u64;
        let exchange = edge::exchange(&self.write, request.body.into(), self.version, self.compression);
        let retry = |after, reason| Err(WriteFailure::Retry { after, reason });
        match self.until_stopped(exchange) {
            None => retry(None, STOPPED.to_owned()),
            Some(Answer::Accepted { written }) => match written.unwrap_or(0) {
                // Receivers of 1.0 do not count.
                written if self.version == WriteVersion::V2 && written < sent => {
                    let reason = format!("the target stored {written} of {sent} samples");
                    Err(WriteFailure::Refused { reason })
                }
                _ => Ok(()),
            },
            Some(Answer::Status { status: status @ (400 | 409 | 413 | 415 | 422), text, .. }) => {
                Err(WriteFailure::Refused { reason: refused(status, &text) })
            }
            Some(Answer::Status { status, text, retry_after }) => retry(retry_after, refused(status, &text)),
            Some(Answer::Failed { text, .. }) => retry(None, text),
        }
    }

    fn query(&mut self, query: &ReadbackQuery) -> Result<Vec<u8>, ReadFailure> {
        let seconds = DecimalSeconds(query.at_ms);
        let form = format!("query={}&time={seconds}", percent_encoded(&query.expression));
        self.ask("/api/v1/query", &form).map_err(read_failure)
    }

    fn metric_names(&mut self, range: TimeRange) -> Result<Vec<String>, ReadFailure> {
        let path = format!(
            "/api/v1/label/{METRIC_NAME}/values?start={}&end={}",
            DecimalSeconds(range.start.as_ms()),
            DecimalSeconds(range.end.as_ms())
        );
        let request = TargetRequest {
            method: TargetMethod::Get,
            suffix: path,
            headers: Vec::new(),
            body: Vec::new().into(),
            timeout: QUERY_TIMEOUT,
            body_bytes_max: u64::MAX,
        };
        let body = self.send(request).map_err(read_failure)?;
        parse_names(&body).map_err(|reason| ReadFailure::Retry { reason })
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
        self.check_stop()?;
        let (mut tail, lost_records) = match self.tail_at(from) {
            Ok(found) => found,
            Err(TailError::Ahead { last, .. }) => {
                return Ok(TailBatch { next: last.saturating_add(1), ..TailBatch::default() });
            }
            Err(error) => return Err(failed(&error)),
        };
        let mut collected = Collected::default();
        while collected.samples < TAIL_SAMPLES
            && until.is_none_or(|until| tail.position() < LogPosition(until))
        {
            let wait = if collected.samples > 0 { Duration::ZERO } else { TAIL_WAIT };
            let record = match tail.next(wait) {
                // The next call continues after the removed records.
                Ok(None) | Err(TailError::Trimmed { .. }) => break,
                Ok(Some(record)) => record,
                Err(error) => return Err(failed(&error)),
            };
            if record.org == self.org && record.kind != RecordKind::Mark {
                self.add(&record, &mut collected)?;
            }
            if collected.samples == 0 {
                self.check_stop()?;
            }
        }
        let (next, left) = (tail.position().0, tail.ready_records());
        self.tail = Some(tail);
        let Collected { batch, deletions, .. } = collected;
        Ok(TailBatch { batch, next, left, deletions, lost_records })
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

    fn store(&mut self, batch: &MoveBatch) -> Result<u64, MoveStop> {
        self.check_stop()?;
        let mut refused = 0;
        for some in batch.series.chunks(1_000) {
            let mut builder = BatchBuilder::default();
            for series in some {
                builder.series(&series.labels, series.samples.iter().copied());
            }
            let report = self.tsdb.append(self.org, &builder.batch(), self.clock.now());
            refused += report.map_err(|error| failed(&error))?.refused;
        }
        // The row of the move must not become durable before the samples.
        self.tsdb.flush().map_err(|error| failed(&error))?;
        Ok(refused)
    }

    fn switch(&mut self, row: &MoveRow) -> Result<(), MoveStop> {
        let target = row.step.is_moved().then(|| self.read.target());
        let (now, rng) = (self.clock.now(), &mut Entropy::system());
        self.identity.switch_engine(self.org, row, target, now, rng).map_err(|error| not_stored(&error))?;
        if row.step == MoveStep::Returned {
            self.tsdb.unpin(self.consumer()).map_err(|error| failed(&error))?;
        }
        Ok(())
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

fn read_failure(failure: QueryFailure) -> ReadFailure {
    match failure {
        failure if failure.is_too_large() => ReadFailure::TooLarge { reason: failure.text() },
        QueryFailure::Status { status: status @ (400 | 409 | 415), text } => {
            ReadFailure::Refused { reason: refused(status, &text) }
        }
        failure => ReadFailure::Retry { reason: failure.text() },
    }
}
