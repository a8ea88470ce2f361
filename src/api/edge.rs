//! The accept loop, with the limits and timeouts of connections (docs/specification.md D9,
//! docs/storage.md section 18, finding 6).
//!
//! `axum::serve` gives hyper no timer, so a connection that sends half a header would stay open for
//! ever. Here every connection has one timeout at a time: 10 s for the first byte and a whole
//! header, 75 s until the next request, and 30 s for a client that reads nothing of a response.
//! Bodies have their own deadline, in [`body`](super::body). hyper's own header timeout cannot tell
//! a slow header from an idle connection, so it is set to the longer of the two as a fallback.
//!
//! With [`Certificates`] the timeouts apply below TLS: a handshake is part of the first header.
//!
//! The limits are in `admission`. A connection with a valid credential counts for its session or
//! API key, all others for their address.
//!
//! The last 16 of 1,024 connections without a credential are reserved. They serve health and logout
//! paths only, once each, and have a fifth of the header timeout. If none of them is free either,
//! the oldest connection that has not sent its first header within a second is closed for the next
//! one. If there is none, the oldest reserved connection that has not sent its header is closed.
//! Slow senders can therefore not hold the reserved connections, however many there are: operators
//! can still see that the process runs, and users can log out. In a flood of up to 1,024 silent
//! connections a second, a client has one second for its first header.

mod admission;
mod error_rewrite;
mod line_ends;

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, Sleep};

use super::error::ApiError;
use super::host::{Peer, TrustedProxies};
use super::layers::App;
use super::own_metrics::Counters;
use super::starting::SwitchableApp;
use super::tls::Certificates;
pub(in crate::api) use admission::ConnectionSlot;
use admission::{ConnectionLimiter, ConnectionPhase, PendingConnection, ProxiedBody};
use error_rewrite::ErrorRewriter;

/// The limits and timeouts of connections.
#[derive(Clone, Debug)]
pub struct EdgeOptions {
    /// The longest time from the first wait for a header until its end, and until a new connection
    /// sends its first byte.
    pub header_timeout: Duration,
    /// The longest time between two requests.
    pub idle_timeout: Duration,
    /// The longest time in which a client may read nothing of a response.
    pub write_timeout: Duration,
    /// How long requests may continue after a shutdown begins.
    pub drain_timeout: Duration,
    /// The number of connections without a valid credential that are open at once.
    pub connections_max: usize,
    /// The number of these connections that are reserved for health and logout.
    pub connections_reserved: usize,
    /// The number of connections of one address without a valid credential. Loopback and trusted
    /// proxies are exempt.
    pub connections_per_ip: usize,
    /// The number of connections with a valid credential. One organisation or account has at most
    /// three quarters of them, and fewer while other ones have many.
    pub known_connections_max: usize,
    /// The number of connections of one session. Further ones count for their address.
    pub connections_per_session: usize,
    /// The bytes of a request line and its headers together. A longer head is 431.
    pub header_bytes_max: usize,
    /// The number of headers of a request. More are 431.
    pub headers_max: usize,
    /// Peers that are exempt from the limit per address.
    pub proxies: TrustedProxies,
    /// The path of the public URL, which a proxy may pass on.
    pub prefix: String,
    /// The certificates for TLS; `None` serves plain HTTP.
    pub tls: Option<Arc<Certificates>>,
}

impl Default for EdgeOptions {
    fn default() -> EdgeOptions {
        EdgeOptions {
            header_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(75),
            write_timeout: Duration::from_secs(30),
            drain_timeout: Duration::from_secs(10),
            connections_max: 1_024,
            connections_reserved: 16,
            connections_per_ip: 128,
            known_connections_max: 15 * 1_024,
            connections_per_session: 128,
            header_bytes_max: 64 * 1024,
            headers_max: 100,
            proxies: TrustedProxies::default(),
            prefix: String::new(),
            tls: None,
        }
    }
}

/// Serves `apps` until `shutdown` completes. Then stops accepting, lets requests finish for
/// `drain_timeout`, and drops the remaining connections. Returns how many were dropped.
pub async fn serve(
    listener: TcpListener,
    apps: impl Into<SwitchableApp>,
    options: EdgeOptions,
    counters: Arc<Counters>,
    shutdown: impl Future<Output = ()> + Send,
) -> usize {
    let apps = apps.into();
    let limiter = ConnectionLimiter::new(options, counters);
    let graceful = GracefulShutdown::new();
    let mut tasks = tokio::task::JoinSet::new();
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            () = &mut shutdown => break,
            accepted = limiter.accept(&listener) => accepted,
        };
        while tasks.try_join_next().is_some() {}
        if let Some((stream, slot)) = accepted {
            let phase = Arc::new(ConnectionPhase::default());
            let (reserved, since) = (slot.reserved, Instant::now());
            let connection = connection(&limiter, stream, slot, &phase, apps.clone());
            let watcher = graceful.watcher();
            let task = tasks.spawn(async move { connection(watcher).await });
            limiter.register(PendingConnection { task, phase, reserved, since });
        }
    }
    drop(listener);
    if tokio::time::timeout(limiter.options.drain_timeout, graceful.shutdown()).await.is_ok() {
        while tasks.join_next().await.is_some() {}
        return 0;
    }
    while tasks.try_join_next().is_some() {}
    let dropped = tasks.len();
    tasks.shutdown().await;
    dropped
}

/// The greatest size of one read, in bytes, and of a connection's unread input. Most remote write
/// bodies (2,000 samples are about 90 KB) arrive in one piece this way and are used in place; two
/// pieces would be copied into one. A connection starts with 8 KiB and grows as it fills its
/// buffer.
const READ_BYTES_MAX: usize = 128 * 1024;

type ConnectionFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Prepares a connection. The returned function runs it under a watcher.
fn connection(
    limiter: &Arc<ConnectionLimiter>,
    stream: TcpStream,
    slot: Arc<ConnectionSlot>,
    phase: &Arc<ConnectionPhase>,
    apps: SwitchableApp,
) -> impl FnOnce(hyper_util::server::graceful::Watcher) -> ConnectionFuture + Send + 'static {
    let (limiter, phase) = (Arc::clone(limiter), Arc::clone(phase));
    move |watcher| {
        let options = &limiter.options;
        let answering = Arc::clone(&slot);
        let reserved: Option<Arc<str>> = slot.reserved.then(|| options.prefix.as_str().into());
        let mut clocks = TimedStream::new(stream, Arc::clone(&phase), options);
        if slot.reserved {
            clocks.shorten_header_timeout();
        }
        let service = service_fn(move |request: hyper::Request<Incoming>| {
            phase.set(ConnectionPhase::BUSY);
            let (app, phase, reserved) = (apps.app(), Arc::clone(&phase), reserved.clone());
            let slot = Arc::clone(&answering);
            async move {
                let response = answer(app, request, &slot, reserved.as_deref()).await;
                phase.set(ConnectionPhase::IDLE);
                Ok::<_, Infallible>(response)
            }
        });
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new())
            .header_read_timeout(options.idle_timeout.max(options.header_timeout))
            .max_buf_size(options.header_bytes_max.max(READ_BYTES_MAX))
            .max_header_size(options.header_bytes_max)
            .max_headers(options.headers_max)
            .half_close(false);
        let acceptor = options.tls.as_ref().map(|certificates| certificates.acceptor());
        Box::pin(async move {
            let ended: Result<(), Box<dyn std::error::Error + Send + Sync>> = match acceptor {
                None => watcher
                    .watch(http.serve_connection(TokioIo::new(ErrorRewriter::new(clocks)), service))
                    .await
                    .map_err(Into::into),
                Some(acceptor) => match acceptor.accept(clocks).await {
                    Ok(stream) => watcher
                        .watch(http.serve_connection(TokioIo::new(ErrorRewriter::new(stream)), service))
                        .await
                        .map_err(Into::into),
                    Err(error) => Err(error.into()),
                },
            };
            if let Err(error) = ended {
                if is_timeout(error.as_ref()) {
                    limiter.counters.connections_timed_out.fetch_add(1, Ordering::Relaxed);
                }
                tracing::debug!("a connection ended early: {error}");
            }
            drop(slot);
        })
    }
}

/// Handles a request. A reserved connection (`reserved` is the public path prefix) serves vital
/// paths only, and closes after its response. A request that a proxy passes on counts for its
/// client until the end of the response.
async fn answer(
    app: App,
    request: hyper::Request<Incoming>,
    slot: &Arc<ConnectionSlot>,
    reserved: Option<&str>,
) -> Response {
    let path = request.uri().path();
    let vital = is_vital(path) || reserved.and_then(|prefix| path.strip_prefix(prefix)).is_some_and(is_vital);
    let mut request: Request = request.map(Body::new);
    request.extensions_mut().insert(Peer(slot.peer));
    let is_proxied = slot.is_proxied();
    let is_admitted = vital || !is_proxied || slot.begin_request(request.headers());
    let mut response = match reserved {
        Some(_) if !vital => app.refuse(request, ApiError::busy(Duration::from_secs(2))).await,
        _ if !is_admitted => app.refuse(request, ApiError::busy(Duration::from_secs(2))).await,
        _ => {
            request.extensions_mut().insert(Arc::clone(slot));
            app.answer(request).await
        }
    };
    if is_proxied {
        response = response.map(|inner| Body::new(ProxiedBody { inner, slot: Arc::clone(slot) }));
    }
    // A 401 closes a known connection, because it counts for a credential that is no longer valid.
    let is_refused = response.status() == StatusCode::UNAUTHORIZED && slot.is_known();
    if reserved.is_some() || is_refused {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// Divides the header timeout of a reserved connection.
const RESERVED_HEADER_DIVISOR: u32 = 5;

/// Returns whether reserved connections serve `path`.
fn is_vital(path: &str) -> bool {
    matches!(
        path,
        "/healthz" | "/readyz" | "/metrics" | "/api/v1/health" | "/auth/logout" | "/api/v1/auth/logout"
    )
}

fn is_timeout(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        let own =
            error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::TimedOut);
        if own || error.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_timeout) {
            return true;
        }
        cause = error.source();
    }
    false
}

// -- the timeouts of a connection -----------------------------------------------------------------

/// A stream whose reads and writes fail with `TimedOut` if the client takes too long.
struct TimedStream {
    stream: TcpStream,
    phase: Arc<ConnectionPhase>,
    /// The phase that `read_by` was set for.
    read_by_phase: Option<u8>,
    read_by: Pin<Box<Sleep>>,
    write_by: Option<Pin<Box<Sleep>>>,
    header_timeout: Duration,
    idle_timeout: Duration,
    write_timeout: Duration,
}

impl TimedStream {
    fn new(stream: TcpStream, phase: Arc<ConnectionPhase>, options: &EdgeOptions) -> TimedStream {
        TimedStream {
            stream,
            phase,
            read_by_phase: Some(ConnectionPhase::FIRST_HEAD),
            read_by: Box::pin(tokio::time::sleep(options.header_timeout)),
            write_by: None,
            header_timeout: options.header_timeout,
            idle_timeout: options.idle_timeout,
            write_timeout: options.write_timeout,
        }
    }

    /// Reduces the header timeout to that of a reserved connection.
    fn shorten_header_timeout(&mut self) {
        self.header_timeout /= RESERVED_HEADER_DIVISOR;
        self.read_by.as_mut().reset(Instant::now() + self.header_timeout);
    }

    /// Stops the write timeout after progress, and starts or checks it otherwise.
    fn note_write(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.write_by = None;
            // A connection that still sends a response is not idle.
            self.read_by_phase =
                self.read_by_phase.filter(|read_by_phase| *read_by_phase != ConnectionPhase::IDLE);
            return written;
        }
        let timeout = self.write_timeout;
        let clock = self.write_by.get_or_insert_with(|| Box::pin(tokio::time::sleep(timeout)));
        ready!(clock.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client reads nothing")))
    }
}

impl AsyncRead for TimedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = buf.filled().len();
        let read = Pin::new(&mut this.stream).poll_read(cx, buf);
        if read.is_ready() {
            if buf.filled().len() > before && this.phase.now() == ConnectionPhase::IDLE {
                // The first bytes of the next request start its header timeout.
                this.phase.set(ConnectionPhase::NEXT_HEAD);
            }
            return read;
        }
        let phase = this.phase.now();
        if phase == ConnectionPhase::BUSY {
            this.read_by_phase = None;
            return Poll::Pending;
        }
        if this.read_by_phase != Some(phase) {
            let timeout =
                if phase == ConnectionPhase::IDLE { this.idle_timeout } else { this.header_timeout };
            this.read_by.as_mut().reset(Instant::now() + timeout);
            this.read_by_phase = Some(phase);
        }
        ready!(this.read_by.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client sends nothing")))
    }
}

impl AsyncWrite for TimedStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.note_write(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.note_write(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
