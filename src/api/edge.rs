//! The accept loop: connections, their limits and their clocks (docs/specification.md D9, docs/storage.md section 18, finding 6).
//!
//! `axum::serve` gives hyper no timer, so a connection that sends half a header stays for ever. Here every connection
//! has one clock at a time: the first byte and a whole header within 10 s, the next request within 75 s, and a reader
//! that takes nothing for 30 s is let go. (Bodies have their own deadline, in [`body`](super::body).) hyper's own
//! header timer cannot tell a slow header from an idle connection, so it stands behind ours, at the longer of the two.
//!
//! With [`Certificates`] the clocks stand below TLS: a handshake is the beginning of the first header.
//!
//! Of 1,024 connections the last 16 are answered only on health and logout paths, once each, and get a fifth of the time
//! for their header. Where none of those is free either, the oldest connection that has not sent its first header within
//! a second makes room for the next, or, where there is none, the oldest silent one of the last 16. So slow senders do not
//! hold those as well, however many there are: whatever holds the others, an operator still sees that the process lives,
//! and people get out. A client has a second for its first header in a flood of up to 1,024 silent connections a second.

mod line_ends;
mod worded;

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
use super::layers::Site;
use super::limits::network;
use super::own_metrics::Counters;
use super::starting::Front;
use super::tls::Certificates;
use crate::sync::IgnorePoison as _;
use worded::Worded;

/// How connections are treated.
#[derive(Clone, Debug)]
pub struct EdgeOptions {
    /// From the first look for a request's header to its end; also how soon a new connection must send something.
    pub header_timeout: Duration,
    /// Between requests.
    pub idle_timeout: Duration,
    /// While a client takes nothing of a response.
    pub write_timeout: Duration,
    /// How long requests may go on after a stop.
    pub drain_timeout: Duration,
    /// Connections open at once.
    pub connections_max: usize,
    /// Of those, kept for health and logout.
    pub connections_reserved: usize,
    /// Of one address; loopback and trusted proxies are exempt.
    pub connections_per_ip: usize,
    /// Bytes of a request line and its headers together; beyond it 431.
    pub header_bytes_max: usize,
    /// Headers of a request; beyond it 431.
    pub headers_max: usize,
    /// Peers that are exempt from the limit per address.
    pub proxies: TrustedProxies,
    /// The path of the public URL, which a proxy may hand on.
    pub prefix: String,
    /// Connections speak TLS with these.
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

/// Serves what `front` answers until `shutdown` ends; then accepts no more, lets requests finish for `drain_timeout`, and drops what
/// is left. Answers how many connections were dropped.
pub async fn serve(
    listener: TcpListener,
    front: impl Into<Front>,
    options: EdgeOptions,
    counters: Arc<Counters>,
    shutdown: impl Future<Output = ()> + Send,
) -> usize {
    let front = front.into();
    let door = Arc::new(Door {
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
            accepted = door.accept(&listener) => accepted,
        };
        while tasks.try_join_next().is_some() {}
        if let Some((stream, place)) = accepted {
            let phase = Arc::new(Phase::default());
            let (reserved, since) = (place.reserved, Instant::now());
            let connection = connection(&door, stream, place, &phase, front.clone());
            let watcher = graceful.watcher();
            let task = tasks.spawn(async move { connection(watcher).await });
            door.remember(Silent { task, phase, reserved, since });
        }
    }
    drop(listener);
    if tokio::time::timeout(door.options.drain_timeout, graceful.shutdown()).await.is_ok() {
        while tasks.join_next().await.is_some() {}
        return 0;
    }
    while tasks.try_join_next().is_some() {}
    let dropped = tasks.len();
    tasks.shutdown().await;
    dropped
}

/// Bytes of one read at most, and of what a connection holds unread. Most bodies of remote write (2,000 samples are some
/// 90 KB) arrive in one piece so, which is used where it lies; two pieces are copied into one. A connection begins with
/// 8 KiB and gets here by filling what it has.
const READ_BYTES_MAX: usize = 128 * 1024;

type Served = Pin<Box<dyn Future<Output = ()> + Send>>;

/// One connection, ready to be watched over and run.
fn connection(
    door: &Arc<Door>,
    stream: TcpStream,
    place: Place,
    phase: &Arc<Phase>,
    front: Front,
) -> impl FnOnce(hyper_util::server::graceful::Watcher) -> Served + Send + 'static {
    let (door, phase) = (Arc::clone(door), Arc::clone(phase));
    move |watcher| {
        let options = &door.options;
        let peer = Peer(place.peer);
        let reserved: Option<Arc<str>> = place.reserved.then(|| options.prefix.as_str().into());
        let mut clocks = Clocked::new(stream, Arc::clone(&phase), options);
        if place.reserved {
            clocks.hurry();
        }
        let service = service_fn(move |request: hyper::Request<Incoming>| {
            phase.set(Phase::BUSY);
            let (site, phase, reserved) = (front.site(), Arc::clone(&phase), reserved.clone());
            async move {
                let response = answer(site, request, peer, reserved.as_deref()).await;
                phase.set(Phase::IDLE);
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
                    .watch(http.serve_connection(TokioIo::new(Worded::new(clocks)), service))
                    .await
                    .map_err(Into::into),
                Some(acceptor) => match acceptor.accept(clocks).await {
                    Ok(stream) => watcher
                        .watch(http.serve_connection(TokioIo::new(Worded::new(stream)), service))
                        .await
                        .map_err(Into::into),
                    Err(error) => Err(error.into()),
                },
            };
            if let Err(error) = ended {
                if is_timeout(error.as_ref()) {
                    door.counters.connections_timed_out.fetch_add(1, Ordering::Relaxed);
                }
                tracing::debug!("a connection ended early: {error}");
            }
            drop(place);
        })
    }
}

/// On a reserved connection (of a server below that prefix) only what is vital.
async fn answer(
    site: Site,
    request: hyper::Request<Incoming>,
    peer: Peer,
    reserved: Option<&str>,
) -> Response {
    let path = request.uri().path();
    let vital = is_vital(path) || reserved.and_then(|prefix| path.strip_prefix(prefix)).is_some_and(is_vital);
    let mut request: Request = request.map(Body::new);
    request.extensions_mut().insert(peer);
    let mut response = match reserved {
        Some(_) if !vital => site.refuse(request, ApiError::busy(Duration::from_secs(2))).await,
        _ => site.answer(request).await,
    };
    if reserved.is_some() {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// How much faster a header must come on a reserved connection.
const RESERVED_HURRY: u32 = 5;

/// How much faster the first header of any connection must come while there is no free place.
const CROWDED_HURRY: u32 = 10;

/// What the reserved connections answer.
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

// -- who gets in ------------------------------------------------------------------------------------------------------

struct Door {
    open: Arc<Semaphore>,
    per_ip: Mutex<HashMap<IpAddr, usize>>,
    /// The connections that may have to make room, the oldest first; also some that ended or went on since.
    silent: Mutex<VecDeque<Silent>>,
    options: EdgeOptions,
    counters: Arc<Counters>,
}

/// A connection that may have to make room while it has not sent a whole header.
struct Silent {
    task: AbortHandle,
    phase: Arc<Phase>,
    reserved: bool,
    since: Instant,
}

impl Silent {
    /// Whether this may still be ended. A reserved connection ends with its first answer.
    fn is_silent(&self) -> bool {
        !self.task.is_finished() && self.phase.now() == Phase::FIRST_HEAD
    }
}

/// A connection's place; gone when it is dropped.
struct Place {
    peer: SocketAddr,
    reserved: bool,
    counted: Option<IpAddr>,
    door: Arc<Door>,
    /// None while it waits for one.
    permit: Option<OwnedSemaphorePermit>,
}

impl Door {
    /// Waits for a connection, then for a free place; `None` where it was refused or failed.
    async fn accept(self: &Arc<Door>, listener: &TcpListener) -> Option<(TcpStream, Place)> {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!("no connection could be accepted: {error}");
                // Out of descriptors, most likely: asking again at once would spin.
                tokio::time::sleep(Duration::from_millis(50)).await;
                return None;
            }
        };
        let Some(counted) = self.count(peer.ip()) else {
            self.counters.connections_refused.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        // What was counted is given back with the place, also if nobody waits for it any more.
        let mut place = Place { peer, reserved: false, counted, door: Arc::clone(self), permit: None };
        place.permit = Some(match Arc::clone(&self.open).try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => {
                // Resumes after the runtime has polled for input: a header that has arrived is seen before its
                // connection counts as silent. A burst of connections would otherwise be accepted without a poll.
                tokio::task::yield_now().await;
                if self.open.available_permits() == 0 {
                    self.make_room();
                }
                Arc::clone(&self.open).acquire_owned().await.ok()?
            }
        });
        self.counters.connections.fetch_add(1, Ordering::Relaxed);
        place.reserved = self.open.available_permits() < self.options.connections_reserved;
        let _ = stream.set_nodelay(true);
        Some((stream, place))
    }

    /// Notes a new connection, and forgets those that ended or sent their header once they may be half of the list.
    fn remember(&self, new: Silent) {
        let open = self.options.connections_max.saturating_sub(self.open.available_permits());
        let mut silent = self.silent.lock().ignore_poison();
        if silent.len() > 2 * open {
            silent.retain(Silent::is_silent);
        }
        silent.push_back(new);
    }

    /// Ends a connection that has not sent its first header: the oldest if it has had its time, otherwise the oldest of the
    /// reserved ones. One that is being answered stays.
    fn make_room(&self) {
        let mut silent = self.silent.lock().ignore_poison();
        silent.retain(Silent::is_silent);
        let patience = self.options.header_timeout / CROWDED_HURRY;
        let found = match silent.front() {
            Some(oldest) if oldest.since.elapsed() >= patience => Some(0),
            _ => silent.iter().position(|silent| silent.reserved),
        };
        if let Some(found) = found.and_then(|place| silent.remove(place)) {
            found.task.abort();
            self.counters.connections_timed_out.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts an address that has a limit; `None` at the limit.
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

impl Drop for Place {
    fn drop(&mut self) {
        if self.permit.is_some() {
            self.door.counters.connections.fetch_sub(1, Ordering::Relaxed);
        }
        let Some(ip) = self.counted else { return };
        let mut per_ip = self.door.per_ip.lock().ignore_poison();
        if let Some(open) = per_ip.get_mut(&ip) {
            *open -= 1;
            if *open == 0 {
                per_ip.remove(&ip);
            }
        }
    }
}

// -- the clocks of a connection ---------------------------------------------------------------------------------------

/// What a connection is waiting for.
#[derive(Debug, Default)]
struct Phase(AtomicU8);

impl Phase {
    /// The header of the first request.
    const FIRST_HEAD: u8 = 0;
    /// Our own answer.
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

/// A stream whose reads and writes end with `TimedOut` when the other side takes too long.
struct Clocked {
    stream: TcpStream,
    phase: Arc<Phase>,
    /// For which phase `read_by` was set.
    timed: Option<u8>,
    read_by: Pin<Box<Sleep>>,
    write_by: Option<Pin<Box<Sleep>>>,
    header_timeout: Duration,
    idle_timeout: Duration,
    write_timeout: Duration,
}

impl Clocked {
    fn new(stream: TcpStream, phase: Arc<Phase>, options: &EdgeOptions) -> Clocked {
        Clocked {
            stream,
            phase,
            timed: Some(Phase::FIRST_HEAD),
            read_by: Box::pin(tokio::time::sleep(options.header_timeout)),
            write_by: None,
            header_timeout: options.header_timeout,
            idle_timeout: options.idle_timeout,
            write_timeout: options.write_timeout,
        }
    }

    /// Gives the first header a fifth of its time.
    fn hurry(&mut self) {
        self.header_timeout /= RESERVED_HURRY;
        self.read_by.as_mut().reset(Instant::now() + self.header_timeout);
    }

    /// Notes progress or the lack of it in a write.
    fn wrote(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.write_by = None;
            // A response still on its way is no idleness.
            self.timed = self.timed.filter(|timed| *timed != Phase::IDLE);
            return written;
        }
        let timeout = self.write_timeout;
        let clock = self.write_by.get_or_insert_with(|| Box::pin(tokio::time::sleep(timeout)));
        ready!(clock.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client takes nothing")))
    }
}

impl AsyncRead for Clocked {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = buf.filled().len();
        let read = Pin::new(&mut this.stream).poll_read(cx, buf);
        if read.is_ready() {
            if buf.filled().len() > before && this.phase.now() == Phase::IDLE {
                // The first bytes of the next request: from here on the header clock runs.
                this.phase.set(Phase::NEXT_HEAD);
            }
            return read;
        }
        let phase = this.phase.now();
        if phase == Phase::BUSY {
            this.timed = None;
            return Poll::Pending;
        }
        if this.timed != Some(phase) {
            let timeout = if phase == Phase::IDLE { this.idle_timeout } else { this.header_timeout };
            this.read_by.as_mut().reset(Instant::now() + timeout);
            this.timed = Some(phase);
        }
        ready!(this.read_by.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client sends nothing")))
    }
}

impl AsyncWrite for Clocked {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.wrote(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.wrote(cx, written)
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

    fn door(options: EdgeOptions) -> Arc<Door> {
        let open = Arc::new(Semaphore::new(options.connections_max));
        let (per_ip, silent) = (Mutex::default(), Mutex::default());
        Arc::new(Door { open, per_ip, silent, options, counters: Arc::default() })
    }

    /// docs/specification.md B3: 128 connections of one address, an IPv6 network being one; loopback and trusted proxies are exempt.
    #[test]
    fn an_address_has_its_number_of_connections_and_gets_places_back() {
        let proxy = Network::parse("10.0.0.0/8").expect("a network");
        let options = EdgeOptions { proxies: TrustedProxies(vec![proxy]), ..EdgeOptions::default() };
        let door = door(options);
        let ip = |text: &str| -> IpAddr { text.parse().expect("an address") };
        let place = |text: &str| {
            let counted = door.count(ip(text))?;
            let permit = Arc::clone(&door.open).try_acquire_owned().ok()?;
            let peer = SocketAddr::new(ip(text), 1);
            Some(Place { peer, reserved: false, counted, door: Arc::clone(&door), permit: Some(permit) })
        };
        let mut held: Vec<Place> = (0..128).filter_map(|_| place("192.0.2.1")).collect();
        assert_eq!(held.len(), 128);
        assert!(place("192.0.2.1").is_none() && place("::ffff:192.0.2.1").is_none());
        let v6: Vec<Place> = (0..200).filter_map(|n| place(&format!("2001:db8::{n}"))).collect();
        assert_eq!(v6.len(), 128, "a /64 is one address");
        for exempt in ["127.0.0.1", "127.8.9.1", "::1", "10.1.2.3"] {
            assert_eq!((0..130).filter(|_| place(exempt).is_some()).count(), 130, "{exempt}");
        }
        held.pop();
        let again = place("192.0.2.1");
        assert!(again.is_some() && place("192.0.2.1").is_none(), "one place was given back");
        drop((held, again, v6));
        assert!(door.per_ip.lock().expect("no panic").is_empty(), "nobody is remembered for nothing");
    }

    /// The places of silent connections that make room, one after the other: an ordinary one, one that was answered, and
    /// two reserved ones.
    async fn making_room(header_timeout: Duration) -> Vec<usize> {
        let door = door(EdgeOptions { header_timeout, ..EdgeOptions::default() });
        let first = [Phase::FIRST_HEAD, Phase::NEXT_HEAD, Phase::FIRST_HEAD, Phase::FIRST_HEAD];
        let mut tasks = Vec::new();
        for (n, phase) in first.into_iter().enumerate() {
            let task = tokio::spawn(std::future::pending::<()>());
            let silent = Silent {
                task: task.abort_handle(),
                phase: Arc::new(Phase(AtomicU8::new(phase))),
                reserved: n >= 2,
                since: Instant::now(),
            };
            door.remember(silent);
            tasks.push((n, task));
        }
        let mut order = Vec::new();
        for _ in 0..5 {
            door.make_room();
            tokio::task::yield_now().await;
            order.extend(tasks.extract_if(.., |(_, task)| task.is_finished()).map(|(n, _)| n));
        }
        order
    }

    #[tokio::test]
    async fn silent_connections_make_room_once_they_had_their_time_and_reserved_ones_at_once() {
        assert_eq!(making_room(Duration::ZERO).await, [0, 2, 3], "all had their time");
        assert_eq!(making_room(Duration::from_secs(3_600)).await, [2, 3], "none had its time");
    }

    #[test]
    fn a_connection_that_was_refused_holds_no_place() {
        let door = door(EdgeOptions { connections_per_ip: 1, ..EdgeOptions::default() });
        let ip: IpAddr = "192.0.2.1".parse().expect("an address");
        assert!(door.count(ip).is_some());
        for _ in 0..1_000 {
            assert!(door.count(ip).is_none());
        }
        assert_eq!(door.per_ip.lock().expect("no panic").get(&ip), Some(&1));
    }
}
