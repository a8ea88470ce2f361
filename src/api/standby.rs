//! The requests of a follower, below `/api/v1/standby/` (docs/standby.md, section 4).
//!
//! They are not routes of the REST API: they exist only on a server with `--standby`, and only the
//! standby token opens them. The layers pass them on before any other credential is read. Streams
//! have threads of their own, because they wait for the log. Acknowledgements have one more thread,
//! because the lanes may be full of changes that wait for acknowledgements.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Json;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use hyper::body::Frame;
use serde_json::json;
use tokio::sync::{mpsc, oneshot};

use super::error::{ApiError, Code};
use super::router::ResponseFuture;
use crate::identity::SecretHash;
use crate::model::{StandbyRefusal, StoreId};
use crate::standby::{Acknowledgement, Primary, Refused, StreamRequest};

/// The beginning of the paths.
const PREFIX: &str = "/api/v1/standby/";
/// The pieces of a response that wait for the connection.
const PIECES_MAX: usize = 4;
/// The streams and bases at once: a new stream ends the previous one.
const STREAMS_MAX: usize = 4;
/// The acknowledgements and fences that wait.
const ORDERS_MAX: usize = 16;

/// The longest wait of a response for earlier account changes, and the interval of its checks.
const SETTLE_MAX: Duration = Duration::from_secs(10);
const SETTLE_POLL: Duration = Duration::from_millis(5);

/// An acknowledgement or a fence, with its reply.
enum Order {
    Acknowledge(Acknowledgement, oneshot::Sender<Result<u64, Refused>>),
    Fence(StoreId, u64, oneshot::Sender<Result<u64, Refused>>),
}

/// The requests of a follower.
pub struct StandbyRequests {
    primary: Arc<Primary>,
    token: SecretHash,
    orders: mpsc::Sender<Order>,
    streams: Arc<AtomicUsize>,
}

impl std::fmt::Debug for StandbyRequests {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StandbyRequests")
    }
}

/// Counts a stream until it is dropped.
struct StreamSlot(Arc<AtomicUsize>);

impl StreamSlot {
    fn take(streams: &Arc<AtomicUsize>) -> Option<StreamSlot> {
        let slot = StreamSlot(Arc::clone(streams));
        (streams.fetch_add(1, Ordering::SeqCst) < STREAMS_MAX).then_some(slot)
    }
}

impl Drop for StreamSlot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl StandbyRequests {
    /// Starts the thread of acknowledgements, which ends with the last reference.
    ///
    /// # Errors
    /// The operating system's error if the thread cannot be started.
    pub fn start(primary: Arc<Primary>, token: &str) -> std::io::Result<Arc<StandbyRequests>> {
        let (orders, mut queue) = mpsc::channel(ORDERS_MAX);
        let worker = Arc::clone(&primary);
        std::thread::Builder::new().name("standby-acks".to_owned()).spawn(move || {
            while let Some(order) = queue.blocking_recv() {
                // A client that no longer waits has its effect all the same.
                let _ = match order {
                    Order::Acknowledge(ack, reply) => reply.send(worker.acknowledge(ack)),
                    Order::Fence(store, epoch, reply) => reply.send(worker.fence_store(store, epoch)),
                };
            }
        })?;
        let (token, streams) = (SecretHash::of(token), Arc::default());
        Ok(Arc::new(StandbyRequests { primary, token, orders, streams }))
    }

    /// Returns the primary.
    pub fn primary(&self) -> &Arc<Primary> {
        &self.primary
    }

    /// Returns whether `path` is one of a follower's requests.
    pub(super) fn includes(path: &str) -> bool {
        path.starts_with(PREFIX)
    }

    /// Waits until the follower has every account change that was made before this call, also for
    /// requests that changed nothing because an earlier one did, whose client got an error.
    ///
    /// # Errors
    /// 503 `standby_missing` after ten seconds.
    pub(super) async fn settle(&self) -> Result<(), ApiError> {
        let deadline = tokio::time::Instant::now() + SETTLE_MAX;
        let wanted = self.primary.last_account_change();
        while !self.primary.has_accounts_up_to(wanted) {
            if tokio::time::Instant::now() >= deadline {
                return Err(StandbyRefusal::Missing.into());
            }
            tokio::time::sleep(SETTLE_POLL).await;
        }
        Ok(())
    }

    /// Handles a request.
    pub(super) fn answer(self: &Arc<Self>, request: &Request) -> ResponseFuture {
        let requests = Arc::clone(self);
        let (method, uri) = (request.method().clone(), request.uri().clone());
        let is_follower = self.is_follower(request.headers());
        Box::pin(async move {
            if !is_follower {
                return ApiError::new(Code::TokenInvalid, "this is not the standby token").into_response();
            }
            let query = Query(uri.query().unwrap_or_default());
            let path = uri.path().strip_prefix(PREFIX).unwrap_or_default();
            match (method, path) {
                (Method::GET, "base") => requests.base().await,
                (Method::GET, "stream") => requests.stream(&query).await,
                (Method::POST, "ack") => requests.acknowledge(&query).await,
                (Method::POST, "fence") => requests.fence(&query).await,
                (method, _) => super::layers::not_found(&method, &uri).into_response(),
            }
        })
    }

    /// Compares hashes, so that the duration reveals nothing about the token.
    fn is_follower(&self, headers: &HeaderMap) -> bool {
        let sent = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let bearer = sent.and_then(|text| text.split_once(' '));
        bearer.is_some_and(|(scheme, token)| {
            scheme.eq_ignore_ascii_case("bearer") && SecretHash::of(token.trim()) == self.token
        })
    }

    async fn stream(&self, query: &Query<'_>) -> Response {
        let request = (|| {
            Some(StreamRequest {
                store: query.store()?,
                epoch: query.number("epoch")?,
                log: query.number("log")?,
                check: u32::try_from(query.number("check")?).ok()?,
                accounts: query.number("accounts")?,
                accounts_check: u32::try_from(query.number("rows_check")?).ok()?,
                link: query.number("link")?,
                all_rows: query.text("rows").is_some_and(|rows| rows == "all"),
            })
        })();
        let Some(request) = request else { return bad_query() };
        let primary = Arc::clone(&self.primary);
        self.on_thread(move |begun, pieces| match primary.begin(&request) {
            Err(refused) => drop(begun.send(Err(refused))),
            Ok(mut stream) => {
                drop(begun.send(Ok(())));
                while let Some(piece) = stream.next_piece() {
                    if pieces.blocking_send(Ok(piece.into())).is_err() {
                        break;
                    }
                }
            }
        })
        .await
    }

    async fn base(&self) -> Response {
        let primary = Arc::clone(&self.primary);
        self.on_thread(move |begun, pieces| {
            drop(begun.send(Ok(())));
            let sent = primary.send_base(&mut |piece| pieces.blocking_send(Ok(piece.into())).is_ok());
            if let Err(error) = sent {
                tracing::warn!("the base of a follower was not sent: {}", crate::kv::with_sources(&error));
                // The response ends early, so the follower notices.
                let _ = pieces.blocking_send(Err("the base is incomplete"));
            }
        })
        .await
    }

    /// Runs `work` on a thread of its own, whose pieces are the body of the response.
    async fn on_thread(
        &self,
        work: impl FnOnce(oneshot::Sender<Result<(), Refused>>, &mpsc::Sender<Result<Bytes, &'static str>>)
        + Send
        + 'static,
    ) -> Response {
        let Some(slot) = StreamSlot::take(&self.streams) else {
            return ApiError::busy(Duration::from_secs(2)).into_response();
        };
        let (begun, answer) = oneshot::channel();
        let (sender, pieces) = mpsc::channel(PIECES_MAX);
        let spawned = std::thread::Builder::new().name("standby-stream".to_owned()).spawn(move || {
            work(begun, &sender);
            drop(slot);
        });
        if spawned.is_err() {
            return ApiError::busy(Duration::from_secs(2)).into_response();
        }
        match answer.await {
            Ok(Ok(())) => {
                let mut response = Response::new(Body::new(PiecesBody(pieces)));
                let media = HeaderValue::from_static("application/octet-stream");
                response.headers_mut().insert(header::CONTENT_TYPE, media);
                response
            }
            Ok(Err(refused)) => refusal(&refused),
            Err(_) => refusal(&Refused::Failed("the stream did not begin".to_owned())),
        }
    }

    async fn acknowledge(&self, query: &Query<'_>) -> Response {
        let ack = (|| {
            Some(Acknowledgement {
                link: query.number("link")?,
                epoch: query.number("epoch")?,
                log: query.number("log")?,
                accounts: query.number("accounts")?,
            })
        })();
        let Some(ack) = ack else { return bad_query() };
        self.order(|reply| Order::Acknowledge(ack, reply)).await
    }

    async fn fence(&self, query: &Query<'_>) -> Response {
        let (Some(store), Some(epoch)) = (query.store(), query.number("epoch")) else { return bad_query() };
        self.order(|reply| Order::Fence(store, epoch, reply)).await
    }

    async fn order(&self, order: impl FnOnce(oneshot::Sender<Result<u64, Refused>>) -> Order) -> Response {
        let (reply, answer) = oneshot::channel();
        if self.orders.send(order(reply)).await.is_err() {
            return refusal(&Refused::Failed("the server is stopping".to_owned()));
        }
        match answer.await {
            Ok(Ok(epoch)) => Json(json!({ "epoch": epoch })).into_response(),
            Ok(Err(refused)) => refusal(&refused),
            Err(_) => refusal(&Refused::Failed("the server is stopping".to_owned())),
        }
    }
}

fn bad_query() -> Response {
    ApiError::new(Code::InvalidParameter, "a parameter is missing or invalid").into_response()
}

fn refusal(refused: &Refused) -> Response {
    let (code, status) = refused.code();
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
    (status, Json(json!({ "code": code, "detail": refused.to_string() }))).into_response()
}

/// The query string of a request.
struct Query<'q>(&'q str);

impl Query<'_> {
    fn text(&self, name: &str) -> Option<String> {
        let mut pairs = form_urlencoded::parse(self.0.as_bytes());
        pairs.find(|(found, _)| found == name).map(|(_, value)| value.into_owned())
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }

    fn store(&self) -> Option<StoreId> {
        let bytes = data_encoding::HEXLOWER.decode(self.text("store")?.as_bytes()).ok()?;
        bytes.try_into().ok().map(StoreId)
    }
}

/// A body whose pieces come from a thread.
struct PiecesBody(mpsc::Receiver<Result<Bytes, &'static str>>);

impl HttpBody for PiecesBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.0.poll_recv(cx).map(|piece| Some(piece?.map(Frame::data).map_err(axum::Error::new)))
    }
}
