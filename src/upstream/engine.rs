//! One server that answers the reads of an organisation.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde::Deserialize;

use super::answer::{AnswerData, AnswerError, AnswerReader, QueryValue, UpstreamAnswer};
use super::breaker::{Admission, Breaker, CircuitState, Outcome};
use super::request::UpstreamRead;
use super::scope::Unsupported;
use crate::clock::Stopwatch;
use crate::model::{Matcher, Steps, Target, Tenant, Timestamp};
use crate::outbound::{
    Bytes, Egress, TargetClient, TargetError, TargetMethod, TargetRequest, TargetResponse,
};
use crate::promql::{Lease, QueryError, Value};
use crate::sync::IgnorePoison as _;

/// The most reads of one server that wait or run at once, inclusive.
const READS_MAX: usize = 512;
/// The number of reads at which those of embed tokens and public links are refused, so that members
/// find a place.
const TOKEN_READS_MAX: usize = READS_MAX / 2;
/// A timeout of a request that had less time says nothing about the server.
const TELLING_TIMEOUT: Duration = Duration::from_secs(5);
/// The most bytes of an error response that are read.
const ERROR_BYTES_MAX: usize = 64 << 10;
/// The most bytes of a server's message that are passed on.
const MESSAGE_BYTES_MAX: usize = 500;
/// The delay before the next request to a busy server that states none.
const RETRY_DEFAULT: Duration = Duration::from_secs(1);
/// The media type of forms.
pub(super) const FORM: &str = "application/x-www-form-urlencoded";

/// The limits of one read.
#[derive(Clone, Debug)]
pub struct FetchLimits {
    /// The time until the response must have ended.
    pub timeout: Duration,
    /// The most bytes of the response, inclusive.
    pub body_bytes_max: u64,
    /// The most values, inclusive.
    pub samples_max: u64,
    /// The most bytes of memory that the values may take, inclusive.
    pub memory_bytes_max: u64,
    /// Charged while the response is read.
    pub lease: Option<Arc<Lease>>,
    /// Whether the caller is an embed token or a public link.
    pub is_token: bool,
    /// Whether a partial answer is an error.
    pub is_whole: bool,
}

impl FetchLimits {
    /// Charges the memory of an answer.
    pub(super) fn hold(&self, needed: u64) -> Result<(), QueryError> {
        let allowed = self.memory_bytes_max;
        if needed > allowed {
            return Err(QueryError::TooMuchMemory { needed, allowed });
        }
        match &self.lease {
            Some(lease) => Ok(lease.grow_to(needed, &|| false)?),
            None => Ok(()),
        }
    }
}

/// The reason why a server does not answer a read.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum UpstreamError {
    /// The upstream does not support the request: 422 `upstream_unsupported`.
    #[error("the upstream cannot answer this: {0}")]
    Unsupported(String),
    /// The query has no result: 422 `query_failed`.
    #[error("{0}")]
    QueryFailed(String),
    /// A limit of the query.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// The circuit is open, or the server is busy: 503 `upstream_unavailable`.
    #[error("the upstream is not available: {why}")]
    Unavailable {
        /// The reason.
        why: String,
        /// The time after which a request may succeed.
        retry_after: Duration,
    },
    /// The upstream did not respond, or its response is invalid: 502 `upstream_error`.
    #[error("the upstream failed: {0}")]
    Failed(#[from] TargetError),
}

impl From<Unsupported> for UpstreamError {
    fn from(Unsupported(why): Unsupported) -> UpstreamError {
        UpstreamError::Unsupported(why)
    }
}

/// The state of a server, as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamStatus {
    /// The state of the circuit.
    pub circuit: CircuitState,
    /// The number of failures in a row.
    pub failures: u32,
    /// The last failure, unless a request succeeded since.
    pub last_error: Option<String>,
}

/// A server that answers reads.
#[derive(Debug)]
pub struct Upstream {
    client: TargetClient,
    tenant: Option<Matcher>,
    breaker: Mutex<Breaker>,
    last_error: Mutex<Option<String>>,
    /// The number of reads that wait or run.
    reads: AtomicUsize,
    since: Stopwatch,
}

/// Records the outcome of a request when it is dropped, at the latest.
#[derive(Debug)]
pub(super) struct Admitted {
    upstream: Arc<Upstream>,
    admission: Admission,
    outcome: Outcome,
}

impl Admitted {
    /// Records a failure, and its effect on the state of the upstream.
    fn fail(&mut self, error: &TargetError, timeout: Duration) {
        self.outcome = match error {
            TargetError::Timeout(_) if timeout < TELLING_TIMEOUT => Outcome::Unknown,
            TargetError::Timeout(_) => Outcome::TimedOut,
            TargetError::InvalidRequest(_) | TargetError::Refused { .. } => Outcome::Unknown,
            // The server does not offer this request.
            TargetError::Failed { status: 501, .. } => Outcome::Unknown,
            _ => Outcome::Failed,
        };
        *self.upstream.last_error.lock().ignore_poison() = Some(error.to_string());
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let now = self.upstream.since.elapsed();
        if self.outcome == Outcome::Answered {
            *self.upstream.last_error.lock().ignore_poison() = None;
        }
        self.upstream.breaker().record(self.outcome, self.admission, now);
        self.upstream.reads.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A response that has arrived. [`FetchedAnswer::finish`] makes it an answer.
#[derive(Debug)]
pub struct FetchedAnswer(FetchedData);

#[derive(Debug)]
enum FetchedData {
    Finished(UpstreamAnswer),
    Arrived { reader: Box<AnswerReader>, admitted: Admitted, media: String, limits: FetchLimits },
}

impl FetchedAnswer {
    /// Returns the bytes that are held.
    pub fn held_bytes(&self) -> u64 {
        match &self.0 {
            FetchedData::Finished(answer) => answer.bytes,
            FetchedData::Arrived { reader, .. } => reader.held_bytes(),
        }
    }

    /// Returns the part of the held bytes that is checked, sorted or parsed by
    /// [`FetchedAnswer::finish`] or later. The rest is text that can be passed on.
    pub fn unfinished_bytes(&self) -> u64 {
        match &self.0 {
            FetchedData::Finished(answer) => answer.bytes,
            FetchedData::Arrived { reader, .. } => reader.unfinished_bytes(),
        }
    }

    /// Checks and sorts the answer, which may take too long for a network thread.
    ///
    /// # Errors
    /// [`UpstreamError`].
    pub fn finish(self) -> Result<UpstreamAnswer, UpstreamError> {
        let (reader, mut admitted, media, limits) = match self.0 {
            FetchedData::Finished(answer) => return Ok(answer),
            FetchedData::Arrived { reader, admitted, media, limits } => (reader, admitted, media, limits),
        };
        let answer = reader.finish().map_err(|error| of_answer(error, &media));
        let answer = answer.and_then(|answer| match limits.hold(answer.bytes) {
            Ok(()) => Ok(answer),
            Err(error) => Err(error.into()),
        });
        settle(&mut admitted, answer.as_ref().err());
        answer
    }
}

/// The error response of Prometheus' API.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReportedError {
    status: String,
    #[serde(default)]
    error_type: String,
    #[serde(default)]
    error: String,
}

impl Upstream {
    /// Creates a client of a server; sends no request.
    ///
    /// # Errors
    /// A sentence, if the target is not valid.
    pub fn new(target: Target, egress: Egress) -> Result<Upstream, String> {
        let tenant = match &target.tenant {
            Tenant::Label { name, value } => Some(Matcher::equal(name, value)),
            Tenant::None | Tenant::Header { .. } | Tenant::Path { .. } => None,
        };
        let client = TargetClient::new(target, egress)?;
        let (breaker, last_error, reads) = (Mutex::default(), Mutex::default(), AtomicUsize::new(0));
        Ok(Upstream { client, tenant, breaker, last_error, reads, since: Stopwatch::start() })
    }

    fn breaker(&self) -> MutexGuard<'_, Breaker> {
        self.breaker.lock().ignore_poison()
    }

    /// Returns the target.
    pub fn target(&self) -> &Target {
        self.client.target()
    }

    /// Returns the matcher of the tenant's label, if the tenant has one. The label is removed from
    /// answers.
    pub fn tenant(&self) -> Option<&Matcher> {
        self.tenant.as_ref()
    }

    /// Returns the state of the server.
    pub fn status(&self) -> UpstreamStatus {
        let (circuit, failures) = self.breaker().state(self.since.elapsed());
        let last_error = self.last_error.lock().ignore_poison().clone();
        UpstreamStatus { circuit, failures, last_error }
    }

    /// Admits a request.
    ///
    /// # Errors
    /// [`UpstreamError::Unavailable`].
    fn admit(self: &Arc<Self>, is_token: bool) -> Result<Admitted, UpstreamError> {
        let most = if is_token { TOKEN_READS_MAX } else { READS_MAX };
        let take = |reads: usize| (reads < most).then_some(reads + 1);
        if self.reads.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_err() {
            let why = format!("{most} requests wait for it");
            return Err(UpstreamError::Unavailable { why, retry_after: RETRY_DEFAULT });
        }
        let admission = self.breaker().admit(self.since.elapsed()).map_err(|retry_after| {
            self.reads.fetch_sub(1, Ordering::Relaxed);
            let last = self.last_error.lock().ignore_poison().clone();
            let why = format!("it failed repeatedly: {}", last.as_deref().unwrap_or("no answer"));
            UpstreamError::Unavailable { why, retry_after }
        })?;
        Ok(Admitted { upstream: Arc::clone(self), admission, outcome: Outcome::Unknown })
    }

    /// Sends a request. The outcome of a successful response is recorded by the caller.
    pub(super) async fn exchange(
        self: &Arc<Self>,
        request: TargetRequest,
        is_token: bool,
    ) -> Result<(TargetResponse, Admitted), UpstreamError> {
        let timeout = request.timeout;
        let mut admitted = self.admit(is_token)?;
        let response = match self.client.send(request).await {
            Ok(response) => response,
            Err(error) => {
                admitted.fail(&error, timeout);
                return Err(of_target(error));
            }
        };
        if (200..300).contains(&response.status) {
            return Ok((response, admitted));
        }
        let retry_after = response.retry_after_s().map_or(RETRY_DEFAULT, Duration::from_secs);
        let status = response.status;
        let body = response.body.beginning(ERROR_BYTES_MAX).await;
        let reported: Option<ReportedError> = serde_json::from_str(&body).ok();
        let reported = reported.filter(|reported| reported.status == "error");
        let message = reported.as_ref().map_or(body.as_str(), |reported| &reported.error);
        let message = message.get(..message.floor_char_boundary(MESSAGE_BYTES_MAX)).unwrap_or_default();
        let message = message.to_owned();
        let kind = reported.as_ref().map_or("", |reported| reported.error_type.as_str());
        // A server that reports an error in this form works.
        admitted.outcome = Outcome::Answered;
        Err(match (status, kind) {
            (_, "timeout") => UpstreamError::Query(QueryError::Timeout),
            (_, "canceled") => UpstreamError::Unavailable { why: message, retry_after },
            (400, _) if reported.is_some() => UpstreamError::Unsupported(message),
            (_, "execution") => UpstreamError::QueryFailed(message),
            (422, _) if reported.is_some() => UpstreamError::QueryFailed(message),
            (429, _) => UpstreamError::Unavailable { why: "it is busy".to_owned(), retry_after },
            (500.., _) => {
                let error = TargetError::Failed { status, message };
                admitted.fail(&error, timeout);
                error.into()
            }
            _ => {
                let error = TargetError::Refused { status, message };
                admitted.fail(&error, timeout);
                error.into()
            }
        })
    }

    /// Answers a read. Dropping the future cancels the request.
    ///
    /// # Errors
    /// [`UpstreamError`].
    pub async fn fetch(
        self: &Arc<Self>,
        read: &UpstreamRead,
        limits: FetchLimits,
    ) -> Result<FetchedAnswer, UpstreamError> {
        if read.is_raw() {
            let answer = self.fetch_raw(read, &limits).await?;
            return Ok(FetchedAnswer(FetchedData::Finished(answer)));
        }
        let request = read.request(limits.is_whole);
        let is_form = request.form.is_some();
        let mut headers = vec![("accept", "application/json".to_owned())];
        if is_form {
            headers.push(("content-type", FORM.to_owned()));
        }
        let request = TargetRequest {
            method: if is_form { TargetMethod::Post } else { TargetMethod::Get },
            suffix: request.suffix,
            headers,
            body: Bytes::from(request.form.unwrap_or_default()),
            timeout: limits.timeout,
            body_bytes_max: limits.body_bytes_max,
        };
        let (response, mut admitted) = self.exchange(request, limits.is_token).await?;
        match self.read(read, response, &limits).await {
            Ok((reader, media)) => {
                let reader = Box::new(reader);
                Ok(FetchedAnswer(FetchedData::Arrived { reader, admitted, media, limits }))
            }
            Err(error) => {
                settle(&mut admitted, Some(&error));
                Err(error)
            }
        }
    }

    /// Reads the elements of a response. Other tasks run between its parts.
    async fn read(
        &self,
        read: &UpstreamRead,
        mut response: TargetResponse,
        limits: &FetchLimits,
    ) -> Result<(AnswerReader, String), UpstreamError> {
        if let Some(coding) = response.header("content-encoding").filter(|coding| *coding != "identity") {
            let why = format!("the body has the coding {coding:?}, which was not requested");
            return Err(TargetError::InvalidResponse(why).into());
        }
        let media = response.header("content-type").unwrap_or_default();
        let media = media.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let hidden = self.tenant.as_ref().map(Matcher::name);
        let mut reader = AnswerReader::new(read, hidden, limits.samples_max, limits.is_whole);
        while let Some(bytes) = response.body.next().await.map_err(of_target)? {
            reader.push(&bytes).map_err(|error| of_answer(error, &media))?;
            limits.hold(reader.held_bytes())?;
        }
        Ok((reader, media))
    }

    /// Checks that the server answers this organisation: `vector(1)` is 1 at the time `at`.
    ///
    /// # Errors
    /// [`UpstreamError`].
    pub async fn probe(
        self: &Arc<Self>,
        at: Timestamp,
        timeout: Duration,
    ) -> Result<Duration, UpstreamError> {
        let since = Stopwatch::start();
        let read = UpstreamRead::Query {
            expr: "vector(1)".to_owned(),
            steps: Steps::once(at),
            instant: true,
            lookback_ms: None,
        };
        let bytes = 1 << 20;
        let limits = FetchLimits {
            timeout,
            body_bytes_max: bytes,
            samples_max: 10,
            memory_bytes_max: bytes,
            lease: None,
            is_token: false,
            is_whole: false,
        };
        let answer = self.fetch(&read, limits).await?.finish()?;
        match answer.data {
            AnswerData::Query(answer) if is_one(&answer.value) => Ok(since.elapsed()),
            _ => Err(TargetError::InvalidResponse("vector(1) is not 1".to_owned()).into()),
        }
    }
}

/// Records the outcome of a response whose body was read.
pub(super) fn settle(admitted: &mut Admitted, error: Option<&UpstreamError>) {
    match error {
        Some(UpstreamError::Failed(error)) => admitted.fail(error, TELLING_TIMEOUT),
        _ => admitted.outcome = Outcome::Answered,
    }
}

fn of_answer(error: AnswerError, media: &str) -> UpstreamError {
    match error {
        AnswerError::Query(error) => UpstreamError::Query(error),
        AnswerError::Unsupported(why) => UpstreamError::Unsupported(why),
        AnswerError::Reported(why) => UpstreamError::QueryFailed(why),
        AnswerError::Invalid(why) if media == "application/json" => TargetError::InvalidResponse(why).into(),
        AnswerError::Invalid(why) => {
            TargetError::InvalidResponse(format!("it has the type {media:?}, not JSON: {why}")).into()
        }
    }
}

/// A request that took too long, or a response that is too large, is a query that is.
pub(super) fn of_target(error: TargetError) -> UpstreamError {
    match error {
        TargetError::Timeout(_) => UpstreamError::Query(QueryError::Timeout),
        TargetError::TooLarge(allowed) => {
            UpstreamError::Query(QueryError::TooMuchMemory { needed: allowed.saturating_add(1), allowed })
        }
        error => UpstreamError::Failed(error),
    }
}

fn is_one(value: &QueryValue) -> bool {
    let QueryValue::Passed(series) = value else { return false };
    match series.parsed(2) {
        Some(Value::Vector(all)) => matches!(&*all, [one] if (one.value - 1.0).abs() < f64::EPSILON),
        _ => false,
    }
}
