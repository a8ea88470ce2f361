//! The thread of a target: it drives the sender, and sends its requests.
//!
//! The thread reads the log and encodes. Requests run as tasks of the server's runtime and return
//! their answers through a channel, so a slow target holds up no other one.

use std::collections::BTreeMap;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::Handle;

use super::encode::{BodyCompression, RequestEncoder, WriteVersion};
use super::relabel::RelabelRules;
use super::sender::{Answer, ForwardProtocol, OutgoingRequest, REQUEST_WAIT, Sender, SenderOptions};
use super::status::{ForwardCounts, ForwardStatus, SenderState};
use crate::clock::{Clock, Stopwatch};
use crate::entropy::Entropy;
use crate::model::{OrgId, Target, Tenant};
use crate::outbound::{Bytes, Egress, TargetClient, TargetMethod, TargetRequest, TargetResponse};
use crate::sync::IgnorePoison as _;
use crate::tsdb::{ConsumerId, LogPosition, PinError, TailError, Tsdb};

/// The longest time for one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// The most bytes of a response's body.
const RESPONSE_BYTES_MAX: u64 = 64 << 10;
/// The most bytes of a response that a status shows.
const SHOWN_BYTES: usize = 4 << 10;
/// The time between two looks at the log.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// The delay after an error of the log.
const AGAIN_AFTER: Duration = Duration::from_secs(10);
/// The most targets that run at once. Each has a thread.
pub const RUNNING_MAX: usize = 256;

/// A target, and what is sent to it.
#[derive(Clone, Debug)]
pub struct ForwardSpec {
    /// The consumer of the log, which has the pin.
    pub consumer: ConsumerId,
    /// The organisation whose samples are sent.
    pub org: OrgId,
    /// The name, for the log of the program.
    pub name: String,
    /// The target. The URL is that of remote write.
    pub target: Target,
    /// The protocol.
    pub protocol: ForwardProtocol,
    /// The compression of requests.
    pub compression: BodyCompression,
    /// The rules that series pass.
    pub rules: RelabelRules,
    /// The first record that is sent, unless the consumer has a pin already.
    pub from: LogPosition,
}

/// What senders need of the process.
#[derive(Clone, Debug)]
pub struct ForwardDeps {
    /// The samples.
    pub tsdb: Arc<Tsdb>,
    /// The addresses that may be connected to.
    pub egress: Egress,
    /// The runtime of the requests.
    pub runtime: Handle,
    /// The wall clock, for reports.
    pub clock: Clock,
}

/// The reason why a target was not started.
#[derive(Debug, thiserror::Error)]
pub enum ForwardError {
    /// The target is not valid.
    #[error("{0}")]
    Target(String),
    /// The log cannot be kept for the target.
    #[error(transparent)]
    Pin(#[from] PinError),
    /// The log cannot be read.
    #[error(transparent)]
    Log(#[from] TailError),
    /// A thread could not be started.
    #[error("could not start a thread")]
    Thread(#[source] std::io::Error),
    /// As many targets run as are allowed.
    #[error("{RUNNING_MAX} targets are running, which is the limit of this server")]
    TooMany,
}

enum Event {
    Answered { shard: usize, answer: Answer },
    Stop,
}

/// A running target. It stops when it is dropped.
#[derive(Debug)]
pub struct Forwarding {
    status: Arc<Mutex<ForwardStatus>>,
    events: mpsc::Sender<Event>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Forwarding {
    /// Pins the log for the target, and starts to send.
    ///
    /// # Errors
    /// [`ForwardError`]. The pin may exist then.
    pub fn start(spec: ForwardSpec, deps: ForwardDeps, rng: Entropy) -> Result<Forwarding, ForwardError> {
        let client =
            TargetClient::new(spec.target.clone(), deps.egress.clone()).map_err(ForwardError::Target)?;
        let from = deps.tsdb.pin(spec.consumer, spec.from)?;
        let options = SenderOptions {
            org: spec.org,
            protocol: spec.protocol,
            compression: spec.compression,
            rules: spec.rules.clone(),
            tenant_label: match &spec.target.tenant {
                Tenant::Label { name, value } => Some((name.clone(), value.clone())),
                Tenant::None | Tenant::Header { .. } | Tenant::Path { .. } => None,
            },
            wait: REQUEST_WAIT,
        };
        let sender = Sender::new(Arc::clone(&deps.tsdb), options, from, rng)?;
        let status = Arc::new(Mutex::new(starting()));
        let (events, received) = mpsc::channel();
        let run = TargetThread {
            newest_at_start: deps.tsdb.newest_sample(spec.org).map(|newest| newest.as_ms()),
            spec,
            deps,
            client,
            sender,
            status: Arc::clone(&status),
            events: events.clone(),
            watch: Stopwatch::start(),
        };
        let thread = std::thread::Builder::new()
            .name("forward".to_owned())
            .spawn(move || run.run(&received))
            .map_err(ForwardError::Thread)?;
        Ok(Forwarding { status, events, thread: Mutex::new(Some(thread)) })
    }

    /// Returns the state of the target.
    pub fn status(&self) -> ForwardStatus {
        self.status.lock().ignore_poison().clone()
    }

    /// Ends the thread and waits for it. Requests in flight are abandoned and repeated after the
    /// next start.
    pub fn stop(&self) {
        // The thread may have ended already.
        let _ = self.events.send(Event::Stop);
        if let Some(thread) = self.thread.lock().ignore_poison().take() {
            // A panicked thread has already reported its panic.
            drop(thread.join());
        }
    }
}

impl Drop for Forwarding {
    fn drop(&mut self) {
        self.stop();
    }
}

fn starting() -> ForwardStatus {
    ForwardStatus {
        state: SenderState::Running,
        counts: ForwardCounts::default(),
        lag_ms: 0,
        lag_bytes: 0,
        lag_samples: 0,
        shards: 1,
        protocol: "rw1",
        refused: Vec::new(),
    }
}

struct TargetThread {
    spec: ForwardSpec,
    deps: ForwardDeps,
    client: TargetClient,
    sender: Sender,
    status: Arc<Mutex<ForwardStatus>>,
    events: mpsc::Sender<Event>,
    watch: Stopwatch,
    newest_at_start: Option<i64>,
}

impl TargetThread {
    fn run(mut self, received: &Receiver<Event>) {
        let mut log_error = None;
        let mut again_at = Duration::ZERO;
        loop {
            let now = self.watch.elapsed();
            if now >= again_at {
                log_error = self.fill(now);
                again_at = if log_error.is_some() { now.saturating_add(AGAIN_AFTER) } else { Duration::ZERO };
            }
            while let Some(request) = self.sender.request(now, self.deps.clock.now()) {
                self.send(request);
            }
            self.deps.tsdb.advance_pin(self.spec.consumer, self.sender.position());
            self.report(log_error.as_deref());
            if self.sender.is_dropped() {
                break;
            }
            let reads = log_error.is_none() && self.sender.can_read();
            let wait = if reads { Duration::ZERO } else { self.sender.idle_for(now, LOOK_EVERY) };
            match received.recv_timeout(wait) {
                Ok(Event::Answered { shard, answer }) => {
                    let (now, at) = (self.watch.elapsed(), self.deps.clock.now());
                    self.note_failure(&answer);
                    self.sender.answered(shard, answer, now, at);
                }
                Ok(Event::Stop) | Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
        self.deps.tsdb.advance_pin(self.spec.consumer, self.sender.position());
        self.status.lock().ignore_poison().state = SenderState::Stopped;
    }

    /// Reads the log. Returns an error that needs a look by the operator.
    fn fill(&mut self, now: Duration) -> Option<String> {
        match self.sender.fill(now) {
            Ok(()) => None,
            Err(TailError::Trimmed { lost_from, lost_to }) => {
                tracing::warn!(
                    org = self.spec.org.0,
                    target = self.spec.name,
                    lost_from,
                    lost_to,
                    "a target did not get log records that were removed before they were read"
                );
                None
            }
            // The store closes; the target is stopped next.
            Err(TailError::Closed) => Some(TailError::Closed.to_string()),
            Err(error) => {
                tracing::warn!(
                    org = self.spec.org.0,
                    target = self.spec.name,
                    "cannot read the log: {error}"
                );
                Some(error.to_string())
            }
        }
    }

    /// Writes the first failure after a success to the log of the program.
    fn note_failure(&self, answer: &Answer) {
        let text = match answer {
            Answer::Accepted { .. } => return,
            Answer::Status { status, text, .. } => format!("status {status}: {text}"),
            Answer::Failed { text, .. } => text.clone(),
        };
        if matches!(self.sender.state(), SenderState::Running) {
            tracing::warn!(
                org = self.spec.org.0,
                target = self.spec.name,
                "a target did not accept samples: {text}"
            );
        }
    }

    fn report(&self, log_error: Option<&str>) {
        let tsdb = &self.deps.tsdb;
        let position = self.sender.position();
        let has_backlog = position < tsdb.log_end();
        let lag_bytes = tsdb.log_bytes_from(position);
        let unread = tsdb.log_bytes_from(self.sender.read_position());
        let lag_samples = if has_backlog { self.sender.lag_samples(unread) } else { 0 };
        let newest = tsdb.newest_sample(self.spec.org).map(|newest| newest.as_ms());
        let reached = self.sender.newest_acknowledged_ms().or(self.newest_at_start);
        let lag_ms = match (newest, reached) {
            (Some(newest), Some(reached)) if lag_samples > 0 => newest.saturating_sub(reached).max(0),
            _ => 0,
        };
        let mut status = self.status.lock().ignore_poison();
        status.state = match log_error {
            Some(text) => SenderState::Damaged { text: text.to_owned() },
            None => self.sender.state().clone(),
        };
        let before = status.counts.refused_samples;
        status.counts = self.sender.counts();
        if status.counts.refused_samples != before {
            status.refused = self.sender.refused().cloned().collect();
        }
        status.lag_ms = lag_ms.unsigned_abs();
        status.lag_bytes = if lag_samples > 0 { lag_bytes } else { 0 };
        status.lag_samples = lag_samples;
        status.shards = self.sender.shards();
        status.protocol = match self.sender.version() {
            WriteVersion::V1 => "rw1",
            WriteVersion::V2 => "rw2",
        };
    }

    fn send(&self, request: OutgoingRequest) {
        let (client, events) = (self.client.clone(), self.events.clone());
        self.deps.runtime.spawn(async move {
            let OutgoingRequest { shard, body, version, compression } = request;
            let answer = exchange(&client, body, version, compression).await;
            // The thread has ended if nothing receives.
            let _ = events.send(Event::Answered { shard, answer });
        });
    }
}

/// Sends one request of remote write.
pub(crate) async fn exchange(
    client: &TargetClient,
    body: Vec<u8>,
    version: WriteVersion,
    compression: BodyCompression,
) -> Answer {
    let request = TargetRequest {
        method: TargetMethod::Post,
        suffix: String::new(),
        headers: vec![
            ("content-type", version.content_type().to_owned()),
            ("content-encoding", compression.content_encoding().to_owned()),
            ("x-prometheus-remote-write-version", version.version_header().to_owned()),
        ],
        body: Bytes::from(body),
        timeout: REQUEST_TIMEOUT,
        body_bytes_max: RESPONSE_BYTES_MAX,
    };
    match client.send(request).await {
        Ok(response) if (200..300).contains(&response.status) => accepted(response).await,
        Ok(response) => {
            let (status, seconds) = (response.status, response.retry_after_s());
            let text = response.body.beginning(SHOWN_BYTES).await;
            Answer::Status { status, text, retry_after: seconds.map(Duration::from_secs) }
        }
        Err(error) => Answer::Failed { code: error.code(), text: error.to_string() },
    }
}

/// Returns the answer of a 2xx. A page in HTML is that of a proxy or a login, and no receiver of
/// remote write.
async fn accepted(response: TargetResponse) -> Answer {
    let is_page = response.header("content-type").is_some_and(|kind| kind.starts_with("text/html"));
    if is_page {
        let text = format!("status {} with a page in HTML, which no receiver sends", response.status);
        return Answer::Failed { code: "target_invalid_response", text };
    }
    let count = |name| response.header(name).and_then(|text| text.trim().parse::<u64>().ok());
    let samples = count("x-prometheus-remote-write-samples-written");
    let histograms = count("x-prometheus-remote-write-histograms-written");
    let written = samples.map(|samples| samples.saturating_add(histograms.unwrap_or(0)));
    // The rest of the response frees the connection. Its content and its end do not matter: the
    // status is the acknowledgement.
    drop(response.body.bytes().await);
    Answer::Accepted { written }
}

/// The result of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeReport {
    /// Whether the target accepts requests with this credential and tenant.
    pub ok: bool,
    /// The status of the response; none without one.
    pub status: Option<u16>,
    /// The stable code of the error.
    pub code: Option<&'static str>,
    /// The description of the error.
    pub message: Option<String>,
    /// The time until the response, in milliseconds.
    pub latency_ms: u64,
}

/// Sends a request without samples, and reports whether the target accepts it.
///
/// # Errors
/// A sentence, if the target is not valid.
pub async fn probe(
    target: Target,
    protocol: ForwardProtocol,
    compression: BodyCompression,
    egress: Egress,
) -> Result<ProbeReport, String> {
    let client = TargetClient::new(target, egress)?;
    let version = if protocol == ForwardProtocol::V2 { WriteVersion::V2 } else { WriteVersion::V1 };
    let mut encoder = RequestEncoder::new(version, compression, 1 << 10);
    let empty = encoder.finish().map_err(|error| error.to_string())?;
    let watch = Stopwatch::start();
    let answer = exchange(&client, empty.body, version, compression).await;
    let latency_ms = u64::try_from(watch.elapsed().as_millis()).unwrap_or(u64::MAX);
    let failed = |status, code, message: String| ProbeReport {
        ok: false,
        status,
        code: Some(code),
        message: Some(message),
        latency_ms,
    };
    Ok(match answer {
        // Some receivers refuse a request without samples, after they have accepted the credential.
        Answer::Accepted { .. } | Answer::Status { status: 400 | 422, .. } => {
            ProbeReport { ok: true, status: None, code: None, message: None, latency_ms }
        }
        Answer::Status { status, text, .. } if status < 500 => {
            failed(Some(status), "target_refused", format!("status {status}: {text}"))
        }
        Answer::Status { status, text, .. } => {
            failed(Some(status), "target_failed", format!("status {status}: {text}"))
        }
        Answer::Failed { code, text } => failed(None, code, text),
    })
}

/// All running targets of a server, by organisation and number.
#[derive(Debug)]
pub struct Forwarders {
    deps: ForwardDeps,
    running: Mutex<BTreeMap<(OrgId, u32), Forwarding>>,
    /// Targets that could not be started, with the reason.
    failed: Mutex<BTreeMap<(OrgId, u32), String>>,
}

impl Forwarders {
    /// Creates an empty set.
    pub fn new(deps: ForwardDeps) -> Forwarders {
        Forwarders { deps, running: Mutex::default(), failed: Mutex::default() }
    }

    fn running(&self) -> MutexGuard<'_, BTreeMap<(OrgId, u32), Forwarding>> {
        self.running.lock().ignore_poison()
    }

    /// Starts a target, in place of the one that runs under this number.
    ///
    /// # Errors
    /// [`ForwardError`], which [`Forwarders::status`] then shows.
    pub fn start(&self, number: u32, spec: ForwardSpec, rng: Entropy) -> Result<(), ForwardError> {
        let key = (spec.org, number);
        self.stop(spec.org, number);
        let started = if self.running().len() >= RUNNING_MAX {
            Err(ForwardError::TooMany)
        } else {
            Forwarding::start(spec, self.deps.clone(), rng)
        };
        match started {
            Ok(running) => {
                self.running().insert(key, running);
                Ok(())
            }
            Err(error) => {
                self.failed.lock().ignore_poison().insert(key, with_cause(&error));
                Err(error)
            }
        }
    }

    /// Stops a target, if it runs. Its pin stays.
    pub fn stop(&self, org: OrgId, number: u32) {
        self.failed.lock().ignore_poison().remove(&(org, number));
        let stopped = self.running().remove(&(org, number));
        // Waits for the thread, so outside of the lock.
        drop(stopped);
    }

    /// Stops all targets, at the end of the process.
    pub fn stop_all(&self) {
        let stopped = std::mem::take(&mut *self.running());
        for running in stopped.values() {
            let _ = running.events.send(Event::Stop);
        }
        drop(stopped);
    }

    /// Returns the state of a target; none if it does not run.
    pub fn status(&self, org: OrgId, number: u32) -> Option<ForwardStatus> {
        if let Some(running) = self.running().get(&(org, number)) {
            return Some(running.status());
        }
        let failed = self.failed.lock().ignore_poison();
        let text = failed.get(&(org, number))?.clone();
        Some(ForwardStatus { state: SenderState::Misconfigured { text }, ..starting() })
    }

    /// Returns the states of all running targets, in order of organisation and number.
    pub fn statuses(&self) -> Vec<((OrgId, u32), ForwardStatus)> {
        self.running().iter().map(|(key, running)| (*key, running.status())).collect()
    }

    /// Returns sentences for `/readyz` about targets that need a look.
    pub fn notes(&self) -> Vec<String> {
        let note = |((org, number), status): ((OrgId, u32), ForwardStatus)| {
            let lost = status.counts.lost_records;
            match (&status.state, lost) {
                (SenderState::Damaged { text } | SenderState::Misconfigured { text }, _) => {
                    Some(format!("forwarding target {number} of organisation {org}: {text}"))
                }
                (_, 1..) => Some(format!(
                    "forwarding target {number} of organisation {org} lost {lost} log records: the log reached its limit"
                )),
                _ => None,
            }
        };
        self.statuses().into_iter().filter_map(note).take(NOTES_MAX).collect()
    }
}

/// The most targets that `/readyz` names.
const NOTES_MAX: usize = 8;

/// Formats an error with its cause.
fn with_cause(error: &ForwardError) -> String {
    let cause = std::error::Error::source(error);
    cause.map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
}
