//! One server that answers the reads of an organisation.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde::Deserialize;

use super::answer::{AnswerData, AnswerError, AnswerReader, UpstreamAnswer};
use super::breaker::{Breaker, CircuitState, Outcome};
use super::request::UpstreamRead;
use super::scope::Unsupported;
use crate::clock::Stopwatch;
use crate::model::{Matcher, Steps, Target, Tenant, Timestamp};
use crate::outbound::{
    Bytes, Egress, TargetClient, TargetError, TargetMethod, TargetRequest, TargetResponse,
};
use crate::promql::{Lease, QueryError, Value};
use crate::sync::IgnorePoison as _;

/// A timeout of a request that had less time says nothing about the server.
const TELLING_TIMEOUT: Duration = Duration::from_secs(5);
/// The most bytes of an error response that are read.
const ERROR_BYTES_MAX: usize = 64 << 10;
/// The most bytes of a server's message that are passed on.
const MESSAGE_BYTES_MAX: usize = 500;
/// The delay after which a busy server is asked again, if it states none.
const RETRY_DEFAULT: Duration = Duration::from_secs(1);
/// The media type of forms.
const FORM: &str = "application/x-www-form-urlencoded";

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
}

/// The reason why a server answers a read not at all.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum UpstreamError {
    /// It cannot be asked this: 422 `upstream_unsupported`.
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
    /// It did not answer, or not as it should: 502 `upstream_error`.
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
    since: Stopwatch,
}

/// Records the outcome of a request when it is dropped, at the latest.
struct Admitted<'u> {
    upstream: &'u Upstream,
    outcome: Outcome,
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        let now = self.upstream.since.elapsed();
        if self.outcome == Outcome::Answered {
            *self.upstream.last_error.lock().ignore_poison() = None;
        }
        self.upstream.breaker().record(self.outcome, now);
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
        let (breaker, last_error) = (Mutex::default(), Mutex::default());
        Ok(Upstream { client, tenant, breaker, last_error, since: Stopwatch::start() })
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

    /// Returns whether requests are sent. Does not admit one.
    ///
    /// # Errors
    /// [`UpstreamError::Unavailable`].
    fn admit(&self) -> Result<Admitted<'_>, UpstreamError> {
        self.breaker().admit(self.since.elapsed()).map_err(|retry_after| {
            let last = self.last_error.lock().ignore_poison().clone();
            let why = format!("it failed repeatedly: {}", last.as_deref().unwrap_or("no answer"));
            UpstreamError::Unavailable { why, retry_after }
        })?;
        Ok(Admitted { upstream: self, outcome: Outcome::Unknown })
    }

    /// Sends a request and returns a response with a status of 200 to 299, whose body the caller
    /// reads. Other responses are errors.
    ///
    /// # Errors
    /// [`UpstreamError`].
    pub async fn send(&self, request: TargetRequest) -> Result<TargetResponse, UpstreamError> {
        let (response, mut admitted) = self.exchange(request).await?;
        admitted.outcome = Outcome::Answered;
        Ok(response)
    }

    /// Sends a request. The outcome of a successful response is recorded by the caller.
    async fn exchange(
        &self,
        request: TargetRequest,
    ) -> Result<(TargetResponse, Admitted<'_>), UpstreamError> {
        let timeout = request.timeout;
        let mut admitted = self.admit()?;
        let response = match self.client.send(request).await {
            Ok(response) => response,
            Err(error) => {
                admitted.outcome = self.failure(&error, timeout);
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
                admitted.outcome = self.failure(&error, timeout);
                error.into()
            }
            _ => {
                let error = TargetError::Refused { status, message };
                admitted.outcome = self.failure(&error, timeout);
                error.into()
            }
        })
    }

    /// Records a failure, and returns what it says about the server.
    fn failure(&self, error: &TargetError, timeout: Duration) -> Outcome {
        *self.last_error.lock().ignore_poison() = Some(error.to_string());
        match error {
            TargetError::Timeout(_) if timeout < TELLING_TIMEOUT => Outcome::Unknown,
            TargetError::InvalidRequest(_) | TargetError::Refused { .. } => Outcome::Unknown,
            _ => Outcome::Failed,
        }
    }

    /// Answers a read. Dropping the future cancels the request.
    ///
    /// # Errors
    /// [`UpstreamError`].
    pub async fn fetch(
        &self,
        read: &UpstreamRead,
        limits: &FetchLimits,
    ) -> Result<UpstreamAnswer, UpstreamError> {
        let request = read.request();
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
        let (response, mut admitted) = self.exchange(request).await?;
        let answer = self.read(read, response, limits).await;
        match &answer {
            Err(UpstreamError::Failed(error)) => admitted.outcome = self.failure(error, limits.timeout),
            _ => admitted.outcome = Outcome::Answered,
        }
        answer
    }

    async fn read(
        &self,
        read: &UpstreamRead,
        mut response: TargetResponse,
        limits: &FetchLimits,
    ) -> Result<UpstreamAnswer, UpstreamError> {
        if let Some(coding) = response.header("content-encoding").filter(|coding| *coding != "identity") {
            let why = format!("the body has the coding {coding:?}, which was not requested");
            return Err(TargetError::InvalidResponse(why).into());
        }
        let media = response.header("content-type").unwrap_or_default();
        let media = media.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let wrong = |error: AnswerError| match error {
            AnswerError::Query(error) => UpstreamError::Query(error),
            AnswerError::Unsupported(why) => UpstreamError::Unsupported(why),
            AnswerError::Reported(why) => UpstreamError::QueryFailed(why),
            AnswerError::Invalid(why) if media == "application/json" => {
                TargetError::InvalidResponse(why).into()
            }
            AnswerError::Invalid(why) => {
                TargetError::InvalidResponse(format!("it has the type {media:?}, not JSON: {why}")).into()
            }
        };
        let hidden = self.tenant.as_ref().map(Matcher::name);
        let element_max = usize::try_from(limits.body_bytes_max).unwrap_or(usize::MAX);
        let mut reader = AnswerReader::new(read, hidden, element_max, limits.samples_max);
        while let Some(bytes) = response.body.next().await.map_err(of_target)? {
            reader.push(&bytes).map_err(wrong)?;
            let (needed, allowed) = (reader.held_bytes(), limits.memory_bytes_max);
            if needed > allowed {
                return Err(QueryError::TooMuchMemory { needed, allowed }.into());
            }
            if let Some(lease) = &limits.lease {
                lease.grow_to(needed, &|| false).map_err(QueryError::from)?;
            }
        }
        reader.finish().map_err(wrong)
    }

    /// Checks that the server answers this organisation: `vector(1)` is 1 at the time `at`.
    ///
    /// # Errors
    /// [`UpstreamError`].
    pub async fn probe(&self, at: Timestamp, timeout: Duration) -> Result<Duration, UpstreamError> {
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
        };
        let answer = self.fetch(&read, &limits).await?;
        match answer.data {
            AnswerData::Query(answer) if is_one(&answer.value) => Ok(since.elapsed()),
            _ => Err(TargetError::InvalidResponse("vector(1) is not 1".to_owned()).into()),
        }
    }
}

/// A request that took too long is a query that did.
fn of_target(error: TargetError) -> UpstreamError {
    match error {
        TargetError::Timeout(_) => UpstreamError::Query(QueryError::Timeout),
        error => UpstreamError::Failed(error),
    }
}

fn is_one(value: &Value) -> bool {
    matches!(value, Value::Vector(series) if series.len() == 1 && series.iter().all(|one| (one.value - 1.0).abs() < f64::EPSILON))
}
