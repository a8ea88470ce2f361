//! Request bodies, limited in bytes and in time.
//!
//! The layer [`bound`] wraps every body, so that no handler can omit the limits. Handlers read
//! bodies with [`Json`] and [`read`]. The JSON media type is required, so that browsers send a CORS
//! preflight before any cross-origin request.
//!
//! A request may be refused while its client still sends the body. Closing the connection then
//! would reset it, and the client's system would discard the response (RFC 9112, section 9.6). So
//! the rest of the body is read and discarded, within [`DRAIN_BYTES_MAX`], [`BodyDeadlines::drain`]
//! and [`DRAINS_MAX`].

mod unique;

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, Method, header};
use axum::response::{IntoResponse, Response};
use http_body_util::BodyExt;
use hyper::body::{Frame, SizeHint};
use serde::de::DeserializeOwned;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use super::callers::slug_of;
use super::error::{ApiError, ApiResult, Code};
use super::limits::jittered_retry;
use super::params::shortened;
use super::router::of_org;
use crate::model::{OutOfMemory, check_available, try_with_capacity};
use crate::sync::IgnorePoison as _;

/// The longest times for a body to arrive.
#[derive(Clone, Copy, Debug)]
pub struct BodyDeadlines {
    /// The time on ingestion paths.
    pub ingest: Duration,
    /// The time on all other paths.
    pub other: Duration,
    /// The time for the rest of a body after its request was refused.
    pub drain: Duration,
}

/// The most bytes that are drained from the body of a refused request: twice the largest limit of a
/// path.
const DRAIN_BYTES_MAX: u64 = 16 << 20;
/// The most bodies that are drained at once. Other clients may see a reset instead of their
/// response.
const DRAINS_MAX: usize = 128;

/// Drains the bodies of refused requests in the background. Clones share the limit.
#[derive(Clone, Debug)]
pub struct Drains {
    permits: Arc<Semaphore>,
    timeout: Duration,
}

impl Drains {
    /// Returns a drainer with the deadline [`BodyDeadlines::drain`].
    pub fn new(deadlines: BodyDeadlines) -> Drains {
        Drains { permits: Arc::new(Semaphore::new(DRAINS_MAX)), timeout: deadlines.drain }
    }

    /// Reads the rest of `body` in the background, within the limits. If [`DRAINS_MAX`] bodies are
    /// being drained, the body and its connection are dropped.
    fn drain(&self, mut body: Body) {
        // Without a runtime there is no connection.
        let Ok(runtime) = Handle::try_current() else { return };
        let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() else { return };
        let timeout = self.timeout;
        runtime.spawn(async move {
            let read_rest = async {
                let mut left = DRAIN_BYTES_MAX;
                while let Some(Ok(frame)) = body.frame().await {
                    let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
                    let Some(rest) = left.checked_sub(bytes) else { return };
                    left = rest;
                }
            };
            let _ = tokio::time::timeout(timeout, read_rest).await;
            drop(permit);
        });
    }
}

impl Default for BodyDeadlines {
    fn default() -> BodyDeadlines {
        BodyDeadlines {
            ingest: Duration::from_secs(60),
            other: Duration::from_secs(30),
            drain: Duration::from_secs(5),
        }
    }
}

/// The bytes of bodies with samples, dashboards or batches of queries in memory, over all requests.
/// A body is held from its arrival to its response, and a thousand connections with 8 MiB each
/// would hold 8 GiB. One organisation holds at most half of the limit.
#[derive(Debug)]
pub struct BodyBytes {
    bytes_max: u64,
    used: Mutex<BodyUsage>,
}

#[derive(Debug, Default)]
struct BodyUsage {
    all: u64,
    /// The bytes of each organisation, by percent-decoded slug. No body is read before its sender
    /// was admitted to that organisation.
    of_org: HashMap<Box<str>, u64>,
}

impl BodyBytes {
    /// Returns a counter with the limit `bytes_max`, inclusive.
    pub fn new(bytes_max: u64) -> BodyBytes {
        BodyBytes { bytes_max, used: Mutex::default() }
    }

    fn used(&self) -> MutexGuard<'_, BodyUsage> {
        self.used.lock().ignore_poison()
    }
}

/// The bytes of [`BodyBytes`] that one request holds. They are released on drop.
#[derive(Debug)]
pub(super) struct BodyBytesGuard {
    of: Arc<BodyBytes>,
    slug: Box<str>,
    bytes: AtomicU64,
}

impl BodyBytesGuard {
    /// Adds bytes. Returns false, and adds none, if they exceed a limit.
    fn grow(&self, bytes: u64) -> bool {
        let mut used = self.of.used();
        let of_org = used.of_org.get(&self.slug).copied().unwrap_or_default().saturating_add(bytes);
        let all = used.all.saturating_add(bytes);
        if all > self.of.bytes_max || of_org > self.of.bytes_max / 2 {
            return false;
        }
        used.all = all;
        match used.of_org.get_mut(&self.slug) {
            Some(held) => *held = of_org,
            None => drop(used.of_org.insert(self.slug.clone(), of_org)),
        }
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        true
    }
}

impl Drop for BodyBytesGuard {
    fn drop(&mut self) {
        let bytes = self.bytes.load(Ordering::Relaxed);
        if bytes == 0 {
            return;
        }
        let mut used = self.of.used();
        used.all = used.all.saturating_sub(bytes);
        let left = used.of_org.get(&self.slug).map_or(0, |held| held.saturating_sub(bytes));
        match left {
            0 => drop(used.of_org.remove(&self.slug)),
            left => drop(used.of_org.insert(self.slug.clone(), left)),
        }
    }
}

/// The most bytes of a body with samples, before decompression, inclusive.
const INGEST_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// The most bytes of a body with a dashboard. Its handler reads at most about 1 MiB of it, and then
/// refuses it with the limit of dashboards.
const DASHBOARD_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// The bytes of a body between two checks of the available memory.
const MEMORY_CHECK_BYTES: u64 = 1 << 20;

/// The kind of a path, which determines the limit of its bodies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BodyClass {
    Auth,
    QueryForm,
    QueryBatch,
    Ingest,
    Dashboard,
    Other,
}

impl BodyClass {
    fn of(method: &Method, path: &str) -> BodyClass {
        if path.starts_with("/auth/") || path.starts_with("/api/v1/auth/") {
            return BodyClass::Auth;
        }
        let Some(parts) = of_org(path) else { return BodyClass::Other };
        let mut parts = parts.skip(1);
        match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some("write" | "import" | "otlp" | "influx" | "push"), ..) => BodyClass::Ingest,
            (Some("dashboards"), Some(_), Some("data"), None) => BodyClass::QueryBatch,
            (Some("dashboards"), Some(_), Some("live" | "options"), None) => BodyClass::QueryForm,
            (Some("dashboards"), ..) | (Some("scrape-config"), None, ..) => BodyClass::Dashboard,
            (Some("rule-groups" | "rules"), ..) | (Some("prometheus"), Some("config"), ..) => {
                BodyClass::QueryBatch
            }
            (Some("prometheus"), Some("api"), Some("v1"), Some("write" | "otlp" | "import")) => {
                BodyClass::Ingest
            }
            (Some("prometheus"), ..) if method == Method::POST => BodyClass::QueryForm,
            (Some("notifications" | "alertmanager"), ..) => BodyClass::QueryBatch,
            (Some("query"), Some("batch"), None, _) => BodyClass::QueryBatch,
            (Some("query"), Some("live" | "range" | "instant" | "expr-range" | "expr-instant"), None, _) => {
                BodyClass::QueryForm
            }
            _ => BodyClass::Other,
        }
    }

    /// Returns the most bytes of a body, inclusive (docs/specification.md B and C7).
    const fn bytes_max(self) -> u64 {
        match self {
            BodyClass::Auth => 16 * 1024,
            BodyClass::Other => 64 * 1024,
            BodyClass::QueryForm => 256 * 1024,
            BodyClass::QueryBatch => 1024 * 1024,
            BodyClass::Dashboard => DASHBOARD_BYTES_MAX,
            BodyClass::Ingest => INGEST_BYTES_MAX,
        }
    }
}

/// Checks that `Content-Length` does not exceed the limit of the path.
///
/// # Errors
/// 413 `body_too_large`.
pub(super) fn admit_length(request: &Request) -> ApiResult<()> {
    let bytes_max = BodyClass::of(request.method(), request.uri().path()).bytes_max();
    let declared = request.headers().get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok());
    if declared.and_then(|v| v.parse::<u64>().ok()).is_some_and(|bytes| bytes > bytes_max) {
        return Err(too_large(bytes_max));
    }
    Ok(())
}

/// Limits a request's body according to its path: reading it fails with 413, 408 or 503. The caller
/// holds the returned guard until the response is complete. The part of the body that no handler
/// reads is drained.
pub(super) fn bound(
    request: Request,
    deadlines: BodyDeadlines,
    held: &Arc<BodyBytes>,
    drains: &Drains,
) -> (Request, Option<Arc<BodyBytesGuard>>) {
    let class = BodyClass::of(request.method(), request.uri().path());
    let bytes_max = class.bytes_max();
    // A client that expects `100 Continue` sends no body after a refusal. Reading the body would
    // send the status 100 to such a client.
    let expects_continue = request.headers().contains_key(header::EXPECT);
    let drains = (!expects_continue).then(|| drains.clone());
    let timeout = if class == BodyClass::Ingest { deadlines.ingest } else { deadlines.other };
    let is_large = matches!(class, BodyClass::Ingest | BodyClass::Dashboard | BodyClass::QueryBatch);
    let guard = is_large.then(|| {
        let slug = slug_of(request.uri().path()).unwrap_or_default().into();
        Arc::new(BodyBytesGuard { of: Arc::clone(held), slug, bytes: AtomicU64::new(0) })
    });
    let body_guard = guard.clone();
    let request = request.map(|body| {
        if body.is_end_stream() {
            return body;
        }
        Body::new(BoundedBody {
            inner: body,
            left: bytes_max,
            bytes_max,
            timeout,
            deadline: None,
            guard: body_guard,
            drains,
        })
    });
    (request, guard)
}

fn too_large(bytes_max: u64) -> ApiError {
    let advice = match bytes_max {
        INGEST_BYTES_MAX => ": compress it (imports and OTLP accept gzip), or split it into several requests",
        _ => "",
    };
    ApiError::new(Code::BodyTooLarge, format!("this body may have at most {bytes_max} bytes{advice}"))
        .with("limit_bytes", bytes_max)
}

/// The reason why a body could not be read completely.
#[derive(Clone, Copy, Debug, thiserror::Error)]
enum BodyError {
    #[error("the body exceeds {0} bytes")]
    Large(u64),
    #[error("the body did not arrive within {} s", .0.as_secs())]
    Slow(Duration),
    #[error("too many request bodies are in memory")]
    Full,
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
}

/// A body that ends with an error at its limit or its deadline. The deadline starts when a read
/// first has to wait.
struct BoundedBody {
    inner: Body,
    left: u64,
    bytes_max: u64,
    timeout: Duration,
    deadline: Option<Pin<Box<tokio::time::Sleep>>>,
    guard: Option<Arc<BodyBytesGuard>>,
    /// `None` if the body must not be drained.
    drains: Option<Drains>,
}

impl Drop for BoundedBody {
    fn drop(&mut self) {
        let Some(drains) = self.drains.take().filter(|_| !self.inner.is_end_stream()) else { return };
        drains.drain(std::mem::take(&mut self.inner));
    }
}

impl HttpBody for BoundedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = &mut *self;
        match Pin::new(&mut this.inner).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
                if this.guard.as_ref().is_some_and(|guard| !guard.grow(bytes)) {
                    return Poll::Ready(Some(Err(axum::Error::new(BodyError::Full))));
                }
                match this.left.checked_sub(bytes) {
                    Some(left) => {
                        // Once per `MEMORY_CHECK_BYTES`, because the body stays in memory until it
                        // is complete.
                        if left / MEMORY_CHECK_BYTES < this.left / MEMORY_CHECK_BYTES
                            && let Err(error) = check_available(MEMORY_CHECK_BYTES)
                        {
                            return Poll::Ready(Some(Err(axum::Error::new(BodyError::from(error)))));
                        }
                        this.left = left;
                        Poll::Ready(Some(Ok(frame)))
                    }
                    None => Poll::Ready(Some(Err(axum::Error::new(BodyError::Large(this.bytes_max))))),
                }
            }
            Poll::Pending => {
                let timeout = this.timeout;
                let deadline = this.deadline.get_or_insert_with(|| Box::pin(tokio::time::sleep(timeout)));
                ready!(deadline.as_mut().poll(cx));
                // A slow client gets no further time to send the rest.
                this.drains = None;
                Poll::Ready(Some(Err(axum::Error::new(BodyError::Slow(timeout)))))
            }
            done => {
                this.drains = None;
                done
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// Reads a whole body of at most `bytes_max` bytes. The limit of its path applies as well.
///
/// # Errors
/// 413 `body_too_large`, 408 `request_timeout`, 400 if the client disconnects before the end, 503
/// `busy` if there is no memory for the body.
pub async fn read(body: Body, bytes_max: usize) -> ApiResult<Bytes> {
    let mut body = http_body_util::Limited::new(body, bytes_max);
    let mut chunks = Vec::new();
    while let Some(frame) = body.frame().await {
        match frame.map(Frame::into_data) {
            // Most bodies have one chunk, which is used without a copy.
            Ok(Ok(whole)) if chunks.is_empty() && body.is_end_stream() => return Ok(whole),
            Ok(Ok(chunk)) => chunks.push(chunk),
            Ok(Err(_trailers)) => {}
            Err(error) => return Err(read_error(error.as_ref(), bytes_max as u64)),
        }
    }
    let whole = try_with_capacity(chunks.iter().map(Bytes::len).sum());
    let mut whole: Vec<u8> = whole.map_err(out_of_memory)?;
    for chunk in chunks {
        whole.extend_from_slice(&chunk);
    }
    Ok(whole.into())
}

fn out_of_memory(error: OutOfMemory) -> ApiError {
    ApiError::new(Code::Busy, error.to_string()).with_retry_after(jittered_retry())
}

fn read_error(error: &(dyn std::error::Error + 'static), bytes_max: u64) -> ApiError {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.is::<http_body_util::LengthLimitError>() {
            return too_large(bytes_max);
        }
        match error.downcast_ref::<BodyError>() {
            Some(BodyError::Large(bytes_max)) => return too_large(*bytes_max),
            Some(slow @ BodyError::Slow(_)) => {
                return ApiError::new(Code::RequestTimeout, slow.to_string())
                    .with_header(header::CONNECTION, header::HeaderValue::from_static("close"));
            }
            Some(full @ BodyError::Full) => {
                return ApiError::new(Code::Busy, full.to_string()).with_retry_after(jittered_retry());
            }
            Some(BodyError::OutOfMemory(error)) => return out_of_memory(*error),
            None => cause = error.source(),
        }
    }
    ApiError::new(Code::BadRequest, "the body could not be read completely")
}

/// A JSON body of a request or a response.
#[derive(Clone, Copy, Debug)]
pub struct Json<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Json<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> ApiResult<Json<T>> {
        parse_json(&read_json(request).await?).map(Json)
    }
}

/// Reads a JSON body without parsing it. The limit of its path applies.
///
/// # Errors
/// 415 `unsupported_media_type`, and those of [`read`].
pub async fn read_json(request: Request) -> ApiResult<Bytes> {
    if !is_json(request.headers()) {
        return Err(ApiError::new(Code::UnsupportedMediaType, "send Content-Type: application/json"));
    }
    read(request.into_body(), usize::MAX).await
}

/// Returns whether the content type is `application/json`, with or without parameters.
pub fn is_json(headers: &HeaderMap) -> bool {
    let media = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = media.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/json")
}

/// Parses a JSON object.
///
/// # Errors
/// 400 `invalid_json` for text that is not JSON. 422 `validation_failed` for JSON with other
/// members than `T`, with a duplicate member, or that is not an object.
pub fn parse_json<T: DeserializeOwned>(bytes: &[u8]) -> ApiResult<T> {
    // serde accepts an array for a struct and assigns its items to the fields in order. No body has
    // that form.
    if bytes.trim_ascii_start().starts_with(b"[") {
        return Err(ApiError::new(Code::ValidationFailed, "the body must be a JSON object").with_field(
            "",
            "shape",
            "must be an object",
        ));
    }
    if let Some(name) = unique::duplicate_member(bytes) {
        let name = shortened(&name);
        let message = format!("the member {name:?} is given twice");
        return Err(ApiError::new(Code::ValidationFailed, message.clone()).with_field(
            name,
            "duplicate",
            message,
        ));
    }
    let shape: serde_json::Result<T> = serde_json::from_slice(bytes);
    shape.map_err(|error| match error.classify() {
        serde_json::error::Category::Data => {
            let message = error.to_string();
            let (field, code) = field_of(&message);
            ApiError::new(Code::ValidationFailed, "the body does not have the expected fields").with_field(
                field.to_owned(),
                code,
                message,
            )
        }
        _ => ApiError::new(Code::InvalidJson, format!("the body is not JSON: {error}")),
    })
}

/// Returns the field that an error message of serde names, if it is missing or unknown, and an
/// error code.
fn field_of(message: &str) -> (&str, &'static str) {
    for (prefix, code) in [("missing field `", "required"), ("unknown field `", "unknown")] {
        if let Some((field, _)) = message.strip_prefix(prefix).and_then(|rest| rest.split_once('`')) {
            return (field, code);
        }
    }
    ("", "shape")
}

impl<T: serde::Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        axum::Json(self.0).into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A body that arrives in these chunks.
    struct ChunkedBody(Vec<Bytes>);

    impl HttpBody for ChunkedBody {
        type Data = Bytes;
        type Error = axum::Error;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
            Poll::Ready((!self.0.is_empty()).then(|| Ok(Frame::data(self.0.remove(0)))))
        }
    }

    #[tokio::test]
    async fn a_body_in_one_chunk_equals_a_body_in_many() {
        let whole = Bytes::from_static(b"0123456789");
        let one = read(Body::from(whole.clone()), 10).await.expect("within the limit");
        assert_eq!(one.as_ptr(), whole.as_ptr(), "one chunk is not copied");
        for size in 1..=11 {
            let chunked = || Body::new(ChunkedBody(whole.chunks(size).map(Bytes::copy_from_slice).collect()));
            assert_eq!(read(chunked(), 10).await.expect("within the limit"), whole);
            assert_eq!(read(chunked(), 9).await.expect_err("a byte more").code(), Code::BodyTooLarge);
        }
        assert!(read(Body::empty(), 0).await.expect("nothing").is_empty());
    }

    #[test]
    fn an_array_is_refused_even_if_its_items_match_the_fields() {
        #[derive(Debug, serde::Deserialize)]
        struct NamedBody {
            name: String,
        }
        assert_eq!(parse_json::<NamedBody>(br#"{"name":"a"}"#).expect("an object").name, "a");
        for array in [&br#"["a"]"#[..], b" \n[\"a\"]"] {
            assert_eq!(parse_json::<NamedBody>(array).expect_err("an array").code(), Code::ValidationFailed);
        }
    }

    /// docs/specification.md B2: `errors[]` names the field.
    #[test]
    fn a_missing_or_unknown_field_is_named() {
        #[derive(Debug, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct NamedBody {
            #[expect(dead_code, reason = "only its absence matters")]
            name: String,
        }
        let field_and_code = |body: &str| {
            let refused = parse_json::<NamedBody>(body.as_bytes()).expect_err("another shape");
            let body = refused.render(crate::api::error::ErrorFormat::Problem, None).into_body();
            let bytes = tokio::runtime::Builder::new_current_thread()
                .build()
                .expect("a runtime")
                .block_on(read(body, 9_999));
            let body: serde_json::Value = serde_json::from_slice(&bytes.expect("all of it")).expect("JSON");
            (
                body["errors"][0]["field"].as_str().unwrap_or_default().to_owned(),
                body["errors"][0]["code"].clone(),
            )
        };
        assert_eq!(field_and_code("{}"), ("name".to_owned(), "required".into()));
        assert_eq!(field_and_code(r#"{"name":"a","nmae":"b"}"#), ("nmae".to_owned(), "unknown".into()));
        assert_eq!(field_and_code(r#"{"name":7}"#), (String::new(), "shape".into()));
    }

    #[test]
    fn one_organisation_holds_at_most_half_of_the_memory_for_bodies() {
        let bytes = Arc::new(BodyBytes::new(1_000));
        let guard = |slug: &str| BodyBytesGuard {
            of: Arc::clone(&bytes),
            slug: slug.into(),
            bytes: AtomicU64::new(0),
        };
        let (first, second, other) = (guard("acme"), guard("acme"), guard("other"));
        assert!(first.grow(300) && second.grow(200) && !second.grow(1), "half of it, over two requests");
        assert!(other.grow(500), "another organisation can use the other half");
        assert!(!other.grow(1) && !guard("third").grow(1), "the limit is reached");
        drop(first);
        assert!(second.grow(300) && !second.grow(1), "a completed request releases its bytes");
        drop((second, other));
        let used = bytes.used();
        assert!(used.all == 0 && used.of_org.is_empty(), "{used:?}");
    }

    #[test]
    fn the_path_determines_the_limit_of_a_body() {
        let post = |path: &str| BodyClass::of(&Method::POST, path).bytes_max() / 1_024;
        assert_eq!(post("/auth/login"), 16);
        assert_eq!(post("/api/v1/auth/login"), 16);
        assert_eq!(post("/api/v1/orgs"), 64);
        assert_eq!(post("/api/v1/orgs/acme/api-keys"), 64);
        assert_eq!(post("/api/v1/orgs/acme/dashboards/a"), 4 * 1_024);
        assert_eq!(post("/api/v1/orgs/acme/prometheus/api/v1/query"), 256);
        for path in ["live", "range", "instant", "expr-range", "expr-instant"] {
            assert_eq!(post(&format!("/api/v1/orgs/acme/query/{path}")), 256, "{path}");
        }
        assert_eq!(post("/api/v1/orgs/acme/query/estimate"), 64);
        assert_eq!(post("/api/v1/orgs/acme/query/batch"), 1_024);
        assert_eq!(post("/api/v1/orgs/acme/query/batch/more"), 64);
        for path in [
            "/api/v1/orgs/acme/write",
            "/api/v1/orgs/acme/prometheus/api/v1/write",
            "/api/v1/orgs/acme/otlp/v1/metrics",
            "/api/v1/orgs/acme/import",
        ] {
            assert_eq!(post(path), 8 * 1_024, "{path}");
        }
    }
}
