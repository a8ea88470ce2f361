//! The thread of a target, which drives the sender and sends its requests.
//!
//! The thread reads the log and encodes. Requests run as tasks of the server's runtime and return
//! their answers through a channel, so a slow target holds up no other one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::Handle;

use super::encode::{BodyCompression, RequestEncoder, WriteVersion};
use super::received::ReceivedBodies;
use super::sender::{
    Answer, ForwardProtocol, OutgoingRequest, REQUEST_WAIT, Sender, SenderOptions, refuses_samples,
};
use super::status::{ForwardCounts, ForwardStatus, SenderState};
use crate::clock::{Clock, Stopwatch};
use crate::entropy::Entropy;
use crate::model::{OrgId, Target, Tenant, Timestamp};
use crate::outbound::{Bytes, Egress, TargetClient, TargetMethod, TargetRequest, TargetResponse};
use crate::relabel::RelabelRules;
use crate::sync::IgnorePoison as _;
use crate::tsdb::{ConsumerId, ConsumerKind, LogPosition, PinError, PinReport, TailError, Tsdb};

/// The longest time for one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// The most bytes of a response's body.
const RESPONSE_BYTES_MAX: u64 = 64 << 10;
/// The most bytes of a response that a status shows.
const SHOWN_BYTES: usize = 4 << 10;
/// The interval between two reads of the log.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// The longest wait for the end of a response whose status is already known.
const DRAIN_TIME: Duration = Duration::from_secs(1);
/// The delay after an error of the log.
const AGAIN_AFTER: Duration = Duration::from_secs(10);
/// The most targets that run at once. Each has a thread.
pub const RUNNING_MAX: usize = 256;

/// A target, and the samples that are sent to it.
#[derive(Clone, Debug)]
pub struct ForwardSpec {
    /// The consumer of the log, which has the pin.
    pub consumer: ConsumerId,
    /// The organisation whose samples are sent.
    pub org: OrgId,
    /// The name in log lines.
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

/// The parts of the process that senders use.
#[derive(Clone, Debug)]
pub struct ForwardDeps {
    /// The samples.
    pub tsdb: Arc<Tsdb>,
    /// The addresses to which connections are allowed.
    pub egress: Egress,
    /// The runtime of the requests.
    pub runtime: Handle,
    /// The wall clock, for reports.
    pub clock: Clock,
    /// The bodies that targets may get as they were received.
    pub received: Arc<ReceivedBodies>,
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
    /// [`RUNNING_MAX`] targets run already.
    #[error("{RUNNING_MAX} targets are running, which is the limit of this server")]
    TooMany,
}

enum Event {
    Answered {
        shard: usize,
        answer: Answer,
    },
    /// A body was received.
    Received,
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
    /// [`ForwardError`]. The pin of the log may exist after an error.
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
        let mut sender = Sender::new(Arc::clone(&deps.tsdb), options, from, rng)?;
        let pins = deps.tsdb.pins();
        sender.count_lost(pins.iter().filter(|pin| pin.consumer == spec.consumer).map(|pin| pin.lost).sum());
        let status = Arc::new(Mutex::new(starting(spec.protocol)));
        let (events, received) = mpsc::channel();
        let awakened = events.clone();
        // Sending fails only if the thread has ended.
        let wake = move || drop(awakened.send(Event::Received));
        sender.pass_on(|format| deps.received.queue(spec.org, format, deps.tsdb.log_end(), wake));
        let run = TargetThread {
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
        let mut status = self.status.lock().ignore_poison().clone();
        if self.has_failed() {
            status.state = SenderState::Damaged { text: "its thread has failed".to_owned() };
        }
        status
    }

    /// Returns whether the thread has ended by a panic.
    fn has_failed(&self) -> bool {
        let has_ended = self.thread.lock().ignore_poison().as_ref().is_some_and(JoinHandle::is_finished);
        has_ended && self.status.lock().ignore_poison().state != SenderState::Stopped
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

fn starting(protocol: ForwardProtocol) -> ForwardStatus {
    ForwardStatus {
        state: SenderState::Running,
        counts: ForwardCounts::default(),
        lag_ms: 0,
        lag_bytes: 0,
        lag_samples: 0,
        shards: 1,
        protocol: match protocol {
            ForwardProtocol::V1 => WriteVersion::V1,
            ForwardProtocol::Auto | ForwardProtocol::V2 => WriteVersion::V2,
        }
        .as_str(),
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
                Ok(Event::Received) | Err(RecvTimeoutError::Timeout) => {}
            }
        }
        self.deps.tsdb.advance_pin(self.spec.consumer, self.sender.position());
        self.status.lock().ignore_poison().state = SenderState::Stopped;
    }

    /// Reads the log. Returns an error that the operator has to handle.
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
            // The store is closing, and the target will be stopped.
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

    /// Logs the first failure after a success.
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
        let newest = tsdb.newest_sample(self.spec.org).map(|newest| newest.min(self.deps.clock.now()));
        let lag_ms = match (newest, self.sender.first_queued_ms()) {
            (Some(newest), Some(first)) => Some(newest.as_ms().saturating_sub(first).max(0)),
            // Nothing is queued, but the log has more records, whose times are not known.
            _ if log_error.is_some() || self.sender.can_read() => None,
            _ => Some(0),
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
        status.lag_ms = lag_ms.map_or(status.lag_ms, i64::unsigned_abs);
        status.lag_bytes = if lag_samples > 0 || log_error.is_some() { lag_bytes } else { 0 };
        status.lag_samples = lag_samples;
        status.shards = self.sender.shards();
        status.protocol = self.sender.version().as_str();
    }

    fn send(&self, request: OutgoingRequest) {
        let (client, events) = (self.client.clone(), self.events.clone());
        self.deps.runtime.spawn(async move {
            let OutgoingRequest { shard, body, version, compression } = request;
            let answer = exchange(&client, body, version, compression).await;
            // Sending fails only if the thread has ended.
            let _ = events.send(Event::Answered { shard, answer });
        });
    }
}

/// Sends one request of remote write.
pub(crate) async fn exchange(
    client: &TargetClient,
    body: Bytes,
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
        body,
        timeout: REQUEST_TIMEOUT,
        body_bytes_max: RESPONSE_BYTES_MAX,
    };
    let response = match client.send(request).await {
        Ok(response) => response,
        Err(error) => return Answer::Failed { code: error.code(), text: error.to_string() },
    };
    let status = response.status;
    // An HTML page comes from a proxy or a login form, so its status says nothing about the
    // samples, except for 413: a proxy may refuse a body as too large.
    if is_page(&response) && (matches!(status, 200..300) || refuses_samples(status)) && status != 413 {
        let page = response.body.beginning(SHOWN_BYTES).await;
        let text = format!("status {status} with a page in HTML, which no receiver sends: {page}");
        return Answer::Failed { code: "target_invalid_response", text };
    }
    if (200..300).contains(&status) {
        return accepted(response).await;
    }
    let retry_after = response.retry_after_s().map(Duration::from_secs);
    let text = response.body.beginning(SHOWN_BYTES).await;
    Answer::Status { status, text, retry_after }
}

/// Returns whether the media type of a response is HTML.
fn is_page(response: &TargetResponse) -> bool {
    let media = response.header("content-type").and_then(|kind| kind.split(';').next());
    media.is_some_and(|media| {
        let media = media.trim();
        media.eq_ignore_ascii_case("text/html") || media.eq_ignore_ascii_case("application/xhtml+xml")
    })
}

/// Returns the outcome of a 2xx response.
async fn accepted(response: TargetResponse) -> Answer {
    let count = |name| response.header(name).and_then(|text| text.trim().parse::<u64>().ok());
    let samples = count("x-prometheus-remote-write-samples-written");
    let histograms = count("x-prometheus-remote-write-histograms-written");
    let written = samples.map(|samples| samples.saturating_add(histograms.unwrap_or(0)));
    // The end of the response frees the connection. Neither its content nor its end matters: the
    // status is the acknowledgement.
    drop(tokio::time::timeout(DRAIN_TIME, response.body.bytes()).await);
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
    /// The description of the error, or the text of the target's response.
    pub message: Option<String>,
    /// The time until the response, in milliseconds.
    pub latency_ms: u64,
}

/// Sends a request without samples, and reports whether the target accepts it.
///
/// # Errors
/// A message, if the target is not valid.
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
    let answer = exchange(&client, empty.body.into(), version, compression).await;
    let latency_ms = u64::try_from(watch.elapsed().as_millis()).unwrap_or(u64::MAX);
    let failed = |status, code, message: String| ProbeReport {
        ok: false,
        status,
        code: Some(code),
        message: Some(message),
        latency_ms,
    };
    Ok(match answer {
        Answer::Accepted { .. } => {
            ProbeReport { ok: true, status: None, code: None, message: None, latency_ms }
        }
        // Some receivers refuse a request without samples, after they have accepted the credential.
        // Others refuse a tenant like this, so the text is shown.
        Answer::Status { status: status @ (400 | 422), text, .. } => ProbeReport {
            ok: true,
            status: Some(status),
            code: None,
            message: Some(format!("status {status}: {text}")),
            latency_ms,
        },
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
    /// Held while a stored target is changed and the change is applied, so that running and stored
    /// targets are equal.
    changes: Mutex<ForwardChanges>,
    running: Mutex<BTreeMap<(OrgId, u32), RunningTarget>>,
    /// Targets that could not be started, with the reason.
    failed: Mutex<BTreeMap<(OrgId, u32), String>>,
    /// The records that targets had lost at the start of the process.
    lost_before: BTreeMap<ConsumerId, u64>,
}

/// The data that the lock [`Forwarders::changes`] guards.
#[derive(Debug, Default)]
pub struct ForwardChanges {
    /// The time at which the positions of targets were last stored.
    pub positions_at: Option<Timestamp>,
}

#[derive(Debug)]
struct RunningTarget {
    /// The version of the stored target.
    version: u32,
    forwarding: Forwarding,
}

impl Forwarders {
    /// Creates an empty set.
    pub fn new(deps: ForwardDeps) -> Forwarders {
        let lost_before = deps.tsdb.pins().into_iter().map(|pin| (pin.consumer, pin.lost)).collect();
        Forwarders {
            deps,
            changes: Mutex::default(),
            running: Mutex::default(),
            failed: Mutex::default(),
            lost_before,
        }
    }

    /// Returns the bodies that targets may get as they were received.
    pub fn received(&self) -> Arc<ReceivedBodies> {
        Arc::clone(&self.deps.received)
    }

    /// Returns the consumer of the log for a target.
    pub fn consumer_of(org: OrgId, number: u32) -> ConsumerId {
        ConsumerId { kind: ConsumerKind::Forward, number: u64::from(org.0) << 32 | u64::from(number) }
    }

    /// Returns the organisation and the number of the target with this consumer.
    pub fn target_of(consumer: ConsumerId) -> (OrgId, u32) {
        let part = |bits: u64| u32::try_from(bits & u64::from(u32::MAX)).unwrap_or_default();
        (OrgId(part(consumer.number >> 32)), part(consumer.number))
    }

    /// Begins a change of a stored target. Others wait until the guard is dropped.
    pub fn changes(&self) -> MutexGuard<'_, ForwardChanges> {
        self.changes.lock().ignore_poison()
    }

    fn running(&self) -> MutexGuard<'_, BTreeMap<(OrgId, u32), RunningTarget>> {
        self.running.lock().ignore_poison()
    }

    /// Returns whether a target runs with this version of its settings.
    pub fn is_running(&self, org: OrgId, number: u32, version: u32) -> bool {
        let running = self.running();
        running.get(&(org, number)).is_some_and(|one| one.version == version && !one.forwarding.has_failed())
    }

    /// Starts a target, in place of the one that runs under this number. A failure is logged once
    /// and shown in its state. `spec` is an error if the stored target cannot be used.
    pub fn start(
        &self,
        (org, number): (OrgId, u32),
        version: u32,
        spec: Result<ForwardSpec, String>,
        rng: Entropy,
    ) {
        let before = self.stopped(org, number);
        let has_room = self.running().len() < RUNNING_MAX;
        let started = spec.and_then(|spec| {
            let started = match has_room {
                true => Forwarding::start(spec, self.deps.clone(), rng),
                false => Err(ForwardError::TooMany),
            };
            started.map_err(|error| with_cause(&error))
        });
        match started {
            Ok(forwarding) => {
                self.running().insert((org, number), RunningTarget { version, forwarding });
            }
            Err(why) => self.fail((org, number), before.as_deref(), why),
        }
    }

    /// Stops a target, and keeps the log for it from its position on, or from `from` if it has
    /// none.
    pub fn hold(&self, org: OrgId, number: u32, from: LogPosition) {
        let before = self.stopped(org, number);
        if let Err(error) = self.deps.tsdb.pin(Forwarders::consumer_of(org, number), from) {
            self.fail((org, number), before.as_deref(), error.to_string());
        }
    }

    /// Stops a target. Returns the reason why it was not running, if it was not.
    fn stopped(&self, org: OrgId, number: u32) -> Option<String> {
        let before = self.failed.lock().ignore_poison().remove(&(org, number));
        self.stop(org, number);
        before
    }

    fn fail(&self, (org, number): (OrgId, u32), before: Option<&str>, why: String) {
        if before != Some(&*why) {
            tracing::warn!(org = org.0, target = number, "a forwarding target does not run: {why}");
        }
        self.failed.lock().ignore_poison().insert((org, number), why);
    }

    /// Stops a target, if it runs. The pin stays.
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
            let _ = running.forwarding.events.send(Event::Stop);
        }
        drop(stopped);
    }

    /// Returns the state of a target; `None` if it should not run.
    pub fn status(&self, org: OrgId, number: u32) -> Option<ForwardStatus> {
        if let Some(running) = self.running().get(&(org, number)) {
            return Some(running.forwarding.status());
        }
        self.failed.lock().ignore_poison().get(&(org, number)).map(|why| not_running(why))
    }

    /// Returns the states of all targets that run or should run, in order of organisation and
    /// number.
    pub fn statuses(&self) -> Vec<((OrgId, u32), ForwardStatus)> {
        let failed = self.failed.lock().ignore_poison().clone();
        let failed = failed.iter().map(|(key, why)| (*key, not_running(why)));
        let mut all: BTreeMap<_, _> = failed.collect();
        all.extend(self.running().iter().map(|(key, running)| (*key, running.forwarding.status())));
        all.into_iter().collect()
    }

    /// Returns a message for `/readyz` if some targets have errors. The page is public, so the
    /// message has only their number.
    pub fn note(&self) -> Option<String> {
        let statuses = self.statuses();
        let needs_look = |state: &SenderState| {
            matches!(state, SenderState::Damaged { .. } | SenderState::Misconfigured { .. })
        };
        let failing = statuses.iter().filter(|(_, status)| needs_look(&status.state)).count();
        let pins = self.deps.tsdb.pins();
        let pins = pins.iter().filter(|pin| pin.consumer.kind == ConsumerKind::Forward);
        let has_lost =
            |pin: &&PinReport| pin.lost > self.lost_before.get(&pin.consumer).copied().unwrap_or_default();
        let lost = pins.clone().filter(has_lost).count();
        let ran = statuses.iter().map(|((org, number), _)| Forwarders::consumer_of(*org, *number));
        let all: BTreeSet<ConsumerId> = pins.map(|pin| pin.consumer).chain(ran).collect();
        (failing > 0 || lost > 0).then(|| {
            format!(
                "of {} forwarding targets, {failing} cannot send, and {lost} lost log records that were removed \
                 before they were sent",
                all.len()
            )
        })
    }
}

fn not_running(why: &str) -> ForwardStatus {
    ForwardStatus {
        state: SenderState::Misconfigured { text: why.to_owned() },
        ..starting(ForwardProtocol::Auto)
    }
}

/// Formats an error with its cause.
fn with_cause(error: &ForwardError) -> String {
    let cause = std::error::Error::source(error);
    cause.map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_panicked_is_shown_and_not_taken_for_a_running_one() {
        let (events, _received) = mpsc::channel();
        let thread = std::thread::Builder::new().spawn(|| panic!("of a test")).expect("started");
        while !thread.is_finished() {
            std::thread::yield_now();
        }
        let status = Arc::new(Mutex::new(starting(ForwardProtocol::V1)));
        let forwarding = Forwarding { status: Arc::clone(&status), events, thread: Mutex::new(Some(thread)) };
        assert!(forwarding.has_failed());
        assert_eq!(forwarding.status().state.as_str(), "damaged");
        status.lock().ignore_poison().state = SenderState::Stopped;
        assert_eq!(forwarding.status().state, SenderState::Stopped, "the end of an organisation");
    }
}
