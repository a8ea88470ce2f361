//! Request bodies: bounded in bytes and in time before anybody reads them.
//!
//! The layer [`bound`] wraps every body, so that no handler can forget a limit; [`Json`] and [`read`] are how handlers
//! get at the bytes. The JSON media type is required, which forces a CORS preflight on any cross-origin attempt.
//!
//! A request that is refused before its body was read is answered while its client still writes. To close then would
//! make the client's system throw the answer away (a reset, RFC 9112 section 9.6), so what is left of such a body is
//! read and thrown away, within [`DRAINED_BYTES_MAX`], [`BodyDeadlines::drain`] and [`DRAINS_MAX`].

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

/// How long a body may take to arrive.
#[derive(Clone, Copy, Debug)]
pub struct BodyDeadlines {
    /// On ingestion paths.
    pub ingest: Duration,
    /// Everywhere else.
    pub other: Duration,
    /// For what is left of a body after its request was refused.
    pub drain: Duration,
}

/// Bytes of a refused request's body that are read for its client's sake; twice what any path takes.
const DRAINED_BYTES_MAX: u64 = 16 << 20;
/// Bodies that are drained at once; a client beyond them may see a reset in place of its answer.
const DRAINS_MAX: usize = 128;

/// Room for bodies that nobody wants any more.
#[derive(Clone, Debug)]
pub struct Drains {
    room: Arc<Semaphore>,
    within: Duration,
}

impl Drains {
    /// None are under way.
    pub fn new(deadlines: BodyDeadlines) -> Drains {
        Drains { room: Arc::new(Semaphore::new(DRAINS_MAX)), within: deadlines.drain }
    }

    /// Reads `body` to its end in the background, within bounds; without room it is dropped, and its connection with it.
    fn drain(&self, mut body: Body) {
        // Outside of a runtime there is no connection either.
        let Ok(runtime) = Handle::try_current() else { return };
        let Ok(place) = Arc::clone(&self.room).try_acquire_owned() else { return };
        let within = self.within;
        runtime.spawn(async move {
            let to_the_end = async {
                let mut left = DRAINED_BYTES_MAX;
                while let Some(Ok(frame)) = body.frame().await {
                    let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
                    let Some(rest) = left.checked_sub(bytes) else { return };
                    left = rest;
                }
            };
            let _ = tokio::time::timeout(within, to_the_end).await;
            drop(place);
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

/// Bytes of ingest bodies in memory at once, over all requests: each is held from its arrival to its answer, and a
/// thousand connections with 8 MiB each would be 8 GiB. One organisation holds at most half of them.
#[derive(Debug)]
pub struct IngestBytes {
    most: u64,
    used: Mutex<Used>,
}

#[derive(Debug, Default)]
struct Used {
    all: u64,
    /// By percent-decoded slug: no body is read before its sender has entered that organisation.
    of_org: HashMap<Box<str>, u64>,
}

impl IngestBytes {
    /// At most so many bytes.
    pub fn new(most: u64) -> IngestBytes {
        IngestBytes { most, used: Mutex::default() }
    }

    fn used(&self) -> MutexGuard<'_, Used> {
        self.used.lock().ignore_poison()
    }
}

/// What one request holds of [`IngestBytes`]; given back when dropped.
#[derive(Debug)]
pub(super) struct Held {
    of: Arc<IngestBytes>,
    slug: Box<str>,
    bytes: AtomicU64,
}

impl Held {
    fn grow(&self, bytes: u64) -> bool {
        let mut used = self.of.used();
        let of_org = used.of_org.get(&self.slug).copied().unwrap_or_default().saturating_add(bytes);
        let all = used.all.saturating_add(bytes);
        if all > self.of.most || of_org > self.of.most / 2 {
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

impl Drop for Held {
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

/// Bytes of a body with samples, as it is sent.
const INGEST_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// Bytes of a body between two checks that the process can allocate more.
const MEMORY_PIECE: u64 = 1 << 20;

/// What a path lets a body be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Auth,
    QueryForm,
    Ingest,
    Other,
}

impl Class {
    fn of(method: &Method, path: &str) -> Class {
        if path.starts_with("/auth/") || path.starts_with("/api/v1/auth/") {
            return Class::Auth;
        }
        let Some(parts) = of_org(path) else { return Class::Other };
        let mut parts = parts.skip(1);
        match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some("write" | "import" | "otlp"), ..) => Class::Ingest,
            (Some("prometheus"), Some("api"), Some("v1"), Some("write" | "otlp")) => Class::Ingest,
            (Some("prometheus"), ..) if method == Method::POST => Class::QueryForm,
            _ => Class::Other,
        }
    }

    /// Bytes (docs/specification.md B and C7).
    const fn bytes_max(self) -> u64 {
        match self {
            Class::Auth => 16 * 1024,
            Class::Other => 64 * 1024,
            Class::QueryForm => 256 * 1024,
            Class::Ingest => INGEST_BYTES_MAX,
        }
    }
}

/// That `Content-Length` does not already say more than the path takes.
///
/// # Errors
/// 413.
pub(super) fn admit_length(request: &Request) -> ApiResult<()> {
    let bytes_max = Class::of(request.method(), request.uri().path()).bytes_max();
    let declared = request.headers().get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok());
    if declared.and_then(|v| v.parse::<u64>().ok()).is_some_and(|bytes| bytes > bytes_max) {
        return Err(too_large(bytes_max));
    }
    Ok(())
}

/// Bounds a request's body by its path: its reader gets 413, 408 and 503. The second part is held until the request is
/// answered. What nobody reads of the body is drained.
pub(super) fn bound(
    request: Request,
    deadlines: BodyDeadlines,
    ingest: &Arc<IngestBytes>,
    drains: &Drains,
) -> (Request, Option<Arc<Held>>) {
    let class = Class::of(request.method(), request.uri().path());
    let bytes_max = class.bytes_max();
    // A client that waits to be told to go on sends nothing after a refusal; to read would tell it to.
    let waits = request.headers().contains_key(header::EXPECT);
    let drains = (!waits).then(|| drains.clone());
    let within = if class == Class::Ingest { deadlines.ingest } else { deadlines.other };
    let held = (class == Class::Ingest).then(|| {
        let slug = slug_of(request.uri().path()).unwrap_or_default().into();
        Arc::new(Held { of: Arc::clone(ingest), slug, bytes: AtomicU64::new(0) })
    });
    let holds = held.clone();
    let request = request.map(|body| {
        if body.is_end_stream() {
            return body;
        }
        Body::new(Bounded {
            inner: body,
            left: bytes_max,
            bytes_max,
            within,
            deadline: None,
            held: holds,
            drains,
        })
    });
    (request, held)
}

fn too_large(bytes_max: u64) -> ApiError {
    let advice = match bytes_max {
        INGEST_BYTES_MAX => {
            ": compress it (gzip, where it is an import or OTLP) or split it into several requests"
        }
        _ => "",
    };
    ApiError::new(Code::BodyTooLarge, format!("this body may have at most {bytes_max} bytes{advice}"))
        .with("limit_bytes", bytes_max)
}

/// Why a body could not be read to its end.
#[derive(Clone, Copy, Debug, thiserror::Error)]
enum BodyError {
    #[error("the body exceeds {0} bytes")]
    Large(u64),
    #[error("the body did not arrive within {} s", .0.as_secs())]
    Slow(Duration),
    #[error("too many bodies are being taken in at once")]
    Full,
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
}

/// A body that ends with an error at its limit or its deadline. The deadline counts from the first read.
struct Bounded {
    inner: Body,
    left: u64,
    bytes_max: u64,
    within: Duration,
    deadline: Option<Pin<Box<tokio::time::Sleep>>>,
    held: Option<Arc<Held>>,
    /// `None` once there is nothing to be drained.
    drains: Option<Drains>,
}

impl Drop for Bounded {
    fn drop(&mut self) {
        let Some(drains) = self.drains.take().filter(|_| !self.inner.is_end_stream()) else { return };
        drains.drain(std::mem::take(&mut self.inner));
    }
}

impl HttpBody for Bounded {
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
                if this.held.as_ref().is_some_and(|held| !held.grow(bytes)) {
                    return Poll::Ready(Some(Err(axum::Error::new(BodyError::Full))));
                }
                match this.left.checked_sub(bytes) {
                    Some(left) => {
                        // Once for each piece: what is read of a body stays until all of it is there.
                        if left / MEMORY_PIECE < this.left / MEMORY_PIECE
                            && let Err(error) = check_available(MEMORY_PIECE)
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
                let within = this.within;
                let deadline = this.deadline.get_or_insert_with(|| Box::pin(tokio::time::sleep(within)));
                ready!(deadline.as_mut().poll(cx));
                // It had its time.
                this.drains = None;
                Poll::Ready(Some(Err(axum::Error::new(BodyError::Slow(within)))))
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

/// All bytes of a body, at most `bytes_max` (and at most what its path allows).
///
/// # Errors
/// 413 `body_too_large`, 408 `request_timeout`, 400 where the client went away in the middle, 503 `busy` where there is no
/// memory for it.
pub async fn read(body: Body, bytes_max: usize) -> ApiResult<Bytes> {
    let mut body = http_body_util::Limited::new(body, bytes_max);
    let mut pieces = Vec::new();
    while let Some(frame) = body.frame().await {
        match frame.map(Frame::into_data) {
            // As a rule the first piece is all of it, and used where it lies.
            Ok(Ok(whole)) if pieces.is_empty() && body.is_end_stream() => return Ok(whole),
            Ok(Ok(piece)) => pieces.push(piece),
            Ok(Err(_trailers)) => {}
            Err(error) => return Err(refused(error.as_ref(), bytes_max as u64)),
        }
    }
    let whole = try_with_capacity(pieces.iter().map(Bytes::len).sum());
    let mut whole: Vec<u8> = whole.map_err(out_of_memory)?;
    for piece in pieces {
        whole.extend_from_slice(&piece);
    }
    Ok(whole.into())
}

fn out_of_memory(error: OutOfMemory) -> ApiError {
    ApiError::new(Code::Busy, error.to_string()).with_retry_after(jittered_retry())
}

fn refused(error: &(dyn std::error::Error + 'static), bytes_max: u64) -> ApiError {
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
    ApiError::new(Code::BadRequest, "the body could not be read to its end")
}

/// A JSON body in, a JSON body out.
#[derive(Clone, Copy, Debug)]
pub struct Json<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Json<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> ApiResult<Json<T>> {
        if !is_json(request.headers()) {
            return Err(ApiError::new(Code::UnsupportedMediaType, "send Content-Type: application/json"));
        }
        let bytes = read(request.into_body(), usize::MAX).await?;
        parse_json(&bytes).map(Json)
    }
}

/// Whether the content type is JSON.
pub fn is_json(headers: &HeaderMap) -> bool {
    let media = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = media.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/json")
}

/// Reads JSON.
///
/// # Errors
/// 400 `invalid_json` for what is no JSON at all, 422 `validation_failed` for JSON of another shape or that says something
/// twice.
pub fn parse_json<T: DeserializeOwned>(bytes: &[u8]) -> ApiResult<T> {
    // An array would do for a structure, its fields told apart by their order alone; no body here is meant so.
    if bytes.trim_ascii_start().starts_with(b"[") {
        return Err(ApiError::new(Code::ValidationFailed, "the body must be a JSON object").with_field(
            "",
            "shape",
            "must be an object",
        ));
    }
    if let Some(name) = unique::member_given_twice(bytes) {
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
            let (field, code) = told_field(&message);
            ApiError::new(Code::ValidationFailed, "the body does not have the expected fields").with_field(
                field.to_owned(),
                code,
                message,
            )
        }
        _ => ApiError::new(Code::InvalidJson, format!("the body is not JSON: {error}")),
    })
}

/// The field that a message of serde's is about, where it is about one that is missing or that nobody knows.
fn told_field(message: &str) -> (&str, &'static str) {
    for (begins, code) in [("missing field `", "required"), ("unknown field `", "unknown")] {
        if let Some((field, _)) = message.strip_prefix(begins).and_then(|rest| rest.split_once('`')) {
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

    /// What a connection hands on piece by piece.
    struct Pieces(Vec<Bytes>);

    impl HttpBody for Pieces {
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
    async fn a_body_is_the_same_in_one_piece_and_in_many() {
        let whole = Bytes::from_static(b"0123456789");
        let one = read(Body::from(whole.clone()), 10).await.expect("within the limit");
        assert_eq!(one.as_ptr(), whole.as_ptr(), "one piece is used where it lies");
        for size in 1..=11 {
            let pieces = || Body::new(Pieces(whole.chunks(size).map(Bytes::copy_from_slice).collect()));
            assert_eq!(read(pieces(), 10).await.expect("within the limit"), whole);
            assert_eq!(read(pieces(), 9).await.expect_err("a byte more").code(), Code::BodyTooLarge);
        }
        assert!(read(Body::empty(), 0).await.expect("nothing").is_empty());
    }

    #[test]
    fn an_array_is_no_object_even_where_its_entries_would_fit() {
        #[derive(Debug, serde::Deserialize)]
        struct Named {
            name: String,
        }
        assert_eq!(parse_json::<Named>(br#"{"name":"a"}"#).expect("an object").name, "a");
        for array in [&br#"["a"]"#[..], b" \n[\"a\"]"] {
            assert_eq!(parse_json::<Named>(array).expect_err("an array").code(), Code::ValidationFailed);
        }
    }

    /// docs/specification.md B2: `errors[]` says which field.
    #[test]
    fn a_field_that_is_missing_or_unknown_is_named() {
        #[derive(Debug, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Named {
            #[expect(dead_code, reason = "only its absence matters")]
            name: String,
        }
        let told = |body: &str| {
            let refused = parse_json::<Named>(body.as_bytes()).expect_err("another shape");
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
        assert_eq!(told("{}"), ("name".to_owned(), "required".into()));
        assert_eq!(told(r#"{"name":"a","nmae":"b"}"#), ("nmae".to_owned(), "unknown".into()));
        assert_eq!(told(r#"{"name":7}"#), (String::new(), "shape".into()));
    }

    #[test]
    fn one_organisation_holds_at_most_half_of_the_memory_for_bodies() {
        let bytes = Arc::new(IngestBytes::new(1_000));
        let held = |slug: &str| Held { of: Arc::clone(&bytes), slug: slug.into(), bytes: AtomicU64::new(0) };
        let (first, second, other) = (held("acme"), held("acme"), held("other"));
        assert!(first.grow(300) && second.grow(200) && !second.grow(1), "half of it, over two requests");
        assert!(other.grow(500), "the other half is there for another");
        assert!(!other.grow(1) && !held("third").grow(1), "and that is all");
        drop(first);
        assert!(second.grow(300) && !second.grow(1), "what is answered is given back");
        drop((second, other));
        let used = bytes.used();
        assert!(used.all == 0 && used.of_org.is_empty(), "{used:?}");
    }

    #[test]
    fn the_path_decides_how_much_is_read() {
        let post = |path: &str| Class::of(&Method::POST, path).bytes_max() / 1_024;
        assert_eq!(post("/auth/login"), 16);
        assert_eq!(post("/api/v1/auth/login"), 16);
        assert_eq!(post("/api/v1/orgs"), 64);
        assert_eq!(post("/api/v1/orgs/acme/api-keys"), 64);
        assert_eq!(post("/api/v1/orgs/acme/prometheus/api/v1/query"), 256);
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
