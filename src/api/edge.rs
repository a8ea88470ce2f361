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
//! The last 16 of 1,024 connections are reserved. They serve health and logout paths only, once
//! each, and have a fifth of the header timeout. If none of them is free either, the oldest
//! connection that has not sent its first header within a second is closed for the next one. If
//! there is none, the oldest reserved connection that has not sent its header is closed. Slow
//! senders can therefore not hold the reserved connections, however many there are: operators can
//! still see that the process runs, and users can log out. In a flood of up to 1,024 silent
//! connections a second, a client has one second for its first header.

mod error_rewrite;
mod line_ends;

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;
use tokio::time::{Instant, Sleep};

use super::error::ApiError;
use super::host::{Peer, TrustedProxies};
use super::layers::App;
use super::limits::network;
use super::own_metrics::Counters;
use super::starting::SwitchableApp;
use super::tls::Certificates;
use crate::sync::IgnorePoison as _;
use error_rewrite::ErrorRewriter;

/// The limits and timeouts of connections.
#[derive(Clone, Debug)]
pub struct EdgeOptions {
    /// From the first wait for a header until its end, and until a new connection sends its first
    /// byte.
    pub header_timeout: Duration,
    /// Between two requests.
    pub idle_timeout: Duration,
    /// While a client reads nothing of a response.
    pub write_timeout: Duration,
    /// How long requests may continue after a shutdown begins.
    pub drain_timeout: Duration,
    /// The number of connections open at once.
    pub connections_max: usize,
    /// How many of those are reserved for health and logout.
    pub connections_reserved: usize,
    /// The number of connections of one address. Loopback and trusted proxies are exempt.
    pub connections_per_ip: usize,
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
    let limiter = Arc::new(ConnectionLimiter {
        open: Arc::new(Semaphore::new(options.connections_max.max(1))),
        per_ip: Mutex::new(HashMap::new()),
        silent: Mutex::default(),
        options,
        counters,
    });
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
    slot: ConnectionSlot,
    phase: &Arc<ConnectionPhase>,
    apps: SwitchableApp,
) -> impl FnOnce(hyper_util::server::graceful::Watcher) -> ConnectionFuture + Send + 'static {
    let (limiter, phase) = (Arc::clone(limiter), Arc::clone(phase));
    move |watcher| {
        let options = &limiter.options;
        let peer = Peer(slot.peer);
        let reserved: Option<Arc<str>> = slot.reserved.then(|| options.prefix.as_str().into());
        let mut clocks = TimedStream::new(stream, Arc::clone(&phase), options);
        if slot.reserved {
            clocks.shorten_header_timeout();
        }
        let service = service_fn(move |request: hyper::Request<Incoming>| {
            phase.set(ConnectionPhase::BUSY);
            let (app, phase, reserved) = (apps.app(), Arc::clone(&phase), reserved.clone());
            async move {
                let response = answer(app, request, peer, reserved.as_deref()).await;
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
/// paths only, and closes after its response.
async fn answer(app: App, request: hyper::Request<Incoming>, peer: Peer, reserved: Option<&str>) -> Response {
    let path = request.uri().path();
    let vital = is_vital(path) || reserved.and_then(|prefix| path.strip_prefix(prefix)).is_some_and(is_vital);
    let mut request: Request = request.map(Body::new);
    request.extensions_mut().insert(peer);
    let mut response = match reserved {
        Some(_) if !vital => app.refuse(request, ApiError::busy(Duration::from_secs(2))).await,
        _ => app.answer(request).await,
    };
    if reserved.is_some() {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// Divides the header timeout of a reserved connection.
const RESERVED_HEADER_DIVISOR: u32 = 5;

/// Divides the first header's timeout of any connection while no connection is free.
const CROWDED_HEADER_DIVISOR: u32 = 10;

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

// -- admission ------------------------------------------------------------------------------------

struct ConnectionLimiter {
    open: Arc<Semaphore>,
    per_ip: Mutex<HashMap<IpAddr, usize>>,
    /// The connections that may be closed for new ones, the oldest first. Includes some that have
    /// ended or sent their header since.
    silent: Mutex<VecDeque<PendingConnection>>,
    options: EdgeOptions,
    counters: Arc<Counters>,
}

/// A connection that may be closed for a new one until it has sent a whole header.
struct PendingConnection {
    task: AbortHandle,
    phase: Arc<ConnectionPhase>,
    reserved: bool,
    since: Instant,
}

impl PendingConnection {
    /// Returns whether the connection may still be closed. A reserved connection closes after its
    /// first response anyway.
    fn is_silent(&self) -> bool {
        !self.task.is_finished() && self.phase.now() == ConnectionPhase::FIRST_HEAD
    }
}

/// The slot that a connection occupies until it is dropped.
struct ConnectionSlot {
    peer: SocketAddr,
    reserved: bool,
    counted: Option<IpAddr>,
    limiter: Arc<ConnectionLimiter>,
    /// `None` while the connection waits for a permit.
    permit: Option<OwnedSemaphorePermit>,
}

impl ConnectionLimiter {
    /// Waits for a connection, then for a free slot. Returns `None` if the connection was refused
    /// or failed.
    async fn accept(
        self: &Arc<ConnectionLimiter>,
        listener: &TcpListener,
    ) -> Option<(TcpStream, ConnectionSlot)> {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!("no connection could be accepted: {error}");
                // The usual cause is a lack of file descriptors. An immediate retry would spin.
                tokio::time::sleep(Duration::from_millis(50)).await;
                return None;
            }
        };
        let Some(counted) = self.count(peer.ip()) else {
            self.counters.connections_refused.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        // Dropping the slot releases the count, also if this future is cancelled.
        let mut slot =
            ConnectionSlot { peer, reserved: false, counted, limiter: Arc::clone(self), permit: None };
        slot.permit = Some(match Arc::clone(&self.open).try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => {
                // Resumes after the runtime has polled for input: a header that has arrived is seen
                // before its connection counts as silent. A burst of connections would otherwise be
                // accepted without a poll.
                tokio::task::yield_now().await;
                if self.open.available_permits() == 0 {
                    self.evict_one();
                }
                Arc::clone(&self.open).acquire_owned().await.ok()?
            }
        });
        self.counters.connections.fetch_add(1, Ordering::Relaxed);
        slot.reserved = self.open.available_permits() < self.options.connections_reserved;
        let _ = stream.set_nodelay(true);
        Some((stream, slot))
    }

    /// Registers a new connection. Once they may be half of the list, removes the entries that have
    /// ended or sent their header.
    fn register(&self, new: PendingConnection) {
        let open = self.options.connections_max.saturating_sub(self.open.available_permits());
        let mut silent = self.silent.lock().ignore_poison();
        if silent.len() > 2 * open {
            silent.retain(PendingConnection::is_silent);
        }
        silent.push_back(new);
    }

    /// Closes one connection that has not sent its first header: the oldest if its shortened
    /// timeout has passed, otherwise the oldest reserved one. Connections with a request in
    /// progress stay.
    fn evict_one(&self) {
        let mut silent = self.silent.lock().ignore_poison();
        silent.retain(PendingConnection::is_silent);
        let patience = self.options.header_timeout / CROWDED_HEADER_DIVISOR;
        let found = match silent.front() {
            Some(oldest) if oldest.since.elapsed() >= patience => Some(0),
            _ => silent.iter().position(|silent| silent.reserved),
        };
        if let Some(found) = found.and_then(|slot| silent.remove(slot)) {
            found.task.abort();
            self.counters.connections_timed_out.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts a connection of an address. Returns `None` at the limit, `Some(None)` if the address
    /// is exempt, otherwise the network that was counted.
    fn count(&self, ip: IpAddr) -> Option<Option<IpAddr>> {
        if ip.to_canonical().is_loopback() || self.options.proxies.trusts(ip) {
            return Some(None);
        }
        let ip = network(ip);
        let mut per_ip = self.per_ip.lock().ignore_poison();
        let open = per_ip.entry(ip).or_default();
        if *open >= self.options.connections_per_ip {
            return None;
        }
        *open += 1;
        Some(Some(ip))
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        if self.permit.is_some() {
            self.limiter.counters.connections.fetch_sub(1, Ordering::Relaxed);
        }
        let Some(ip) = self.counted else { return };
        let mut per_ip = self.limiter.per_ip.lock().ignore_poison();
        if let Some(open) = per_ip.get_mut(&ip) {
            *open -= 1;
            if *open == 0 {
                per_ip.remove(&ip);
            }
        }
    }
}

// -- the timeouts of a connection -----------------------------------------------------------------

/// What a connection waits for.
#[derive(Debug, Default)]
struct ConnectionPhase(AtomicU8);

impl ConnectionPhase {
    /// The header of the first request.
    const FIRST_HEAD: u8 = 0;
    /// The response of this server.
    const BUSY: u8 = 1;
    /// The next request.
    const IDLE: u8 = 2;
    /// The rest of the header of a later request.
    const NEXT_HEAD: u8 = 3;

    fn set(&self, phase: u8) {
        self.0.store(phase, Ordering::Relaxed);
    }

    fn now(&self) -> u8 {
        self.0.load(Ordering::Relaxed)
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::host::Network;

    fn limiter(options: EdgeOptions) -> Arc<ConnectionLimiter> {
        let open = Arc::new(Semaphore::new(options.connections_max));
        let (per_ip, silent) = (Mutex::default(), Mutex::default());
        Arc::new(ConnectionLimiter { open, per_ip, silent, options, counters: Arc::default() })
    }

    /// docs/specification.md B3: 128 connections of one address, where an IPv6 /64 is one address.
    /// Loopback and trusted proxies are exempt.
    #[test]
    fn an_address_has_a_limit_of_connections_and_gets_slots_back() {
        let proxy = Network::parse("10.0.0.0/8").expect("a network");
        let options = EdgeOptions { proxies: TrustedProxies(vec![proxy]), ..EdgeOptions::default() };
        let limiter = limiter(options);
        let ip = |text: &str| -> IpAddr { text.parse().expect("an address") };
        let slot = |text: &str| {
            let counted = limiter.count(ip(text))?;
            let permit = Arc::clone(&limiter.open).try_acquire_owned().ok()?;
            let peer = SocketAddr::new(ip(text), 1);
            Some(ConnectionSlot {
                peer,
                reserved: false,
                counted,
                limiter: Arc::clone(&limiter),
                permit: Some(permit),
            })
        };
        let mut held: Vec<ConnectionSlot> = (0..128).filter_map(|_| slot("192.0.2.1")).collect();
        assert_eq!(held.len(), 128);
        assert!(slot("192.0.2.1").is_none() && slot("::ffff:192.0.2.1").is_none());
        let v6: Vec<ConnectionSlot> = (0..200).filter_map(|n| slot(&format!("2001:db8::{n}"))).collect();
        assert_eq!(v6.len(), 128, "a /64 is one address");
        for exempt in ["127.0.0.1", "127.8.9.1", "::1", "10.1.2.3"] {
            assert_eq!((0..130).filter(|_| slot(exempt).is_some()).count(), 130, "{exempt}");
        }
        held.pop();
        let again = slot("192.0.2.1");
        assert!(again.is_some() && slot("192.0.2.1").is_none(), "one slot was released");
        drop((held, again, v6));
        assert!(
            limiter.per_ip.lock().expect("no panic").is_empty(),
            "addresses without connections are removed"
        );
    }

    /// Returns the indices of the connections in the order in which they are closed. Index 0 is
    /// silent, 1 has sent its first header, 2 and 3 are silent and reserved.
    async fn eviction_order(header_timeout: Duration) -> Vec<usize> {
        let limiter = limiter(EdgeOptions { header_timeout, ..EdgeOptions::default() });
        let first = [
            ConnectionPhase::FIRST_HEAD,
            ConnectionPhase::NEXT_HEAD,
            ConnectionPhase::FIRST_HEAD,
            ConnectionPhase::FIRST_HEAD,
        ];
        let mut tasks = Vec::new();
        for (n, phase) in first.into_iter().enumerate() {
            let task = tokio::spawn(std::future::pending::<()>());
            let silent = PendingConnection {
                task: task.abort_handle(),
                phase: Arc::new(ConnectionPhase(AtomicU8::new(phase))),
                reserved: n >= 2,
                since: Instant::now(),
            };
            limiter.register(silent);
            tasks.push((n, task));
        }
        let mut order = Vec::new();
        for _ in 0..5 {
            limiter.evict_one();
            tokio::task::yield_now().await;
            order.extend(tasks.extract_if(.., |(_, task)| task.is_finished()).map(|(n, _)| n));
        }
        order
    }

    #[tokio::test]
    async fn silent_connections_are_closed_after_their_timeout_and_reserved_ones_at_once() {
        assert_eq!(eviction_order(Duration::ZERO).await, [0, 2, 3], "every timeout has passed");
        assert_eq!(eviction_order(Duration::from_secs(3_600)).await, [2, 3], "no timeout has passed");
    }

    #[test]
    fn a_refused_connection_holds_no_slot() {
        let limiter = limiter(EdgeOptions { connections_per_ip: 1, ..EdgeOptions::default() });
        let ip: IpAddr = "192.0.2.1".parse().expect("an address");
        assert!(limiter.count(ip).is_some());
        for _ in 0..1_000 {
            assert!(limiter.count(ip).is_none());
        }
        assert_eq!(limiter.per_ip.lock().expect("no panic").get(&ip), Some(&1));
    }
}
