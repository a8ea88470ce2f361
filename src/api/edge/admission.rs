//! The limits of connections: those of strangers, of whom each may be an attacker, and those that
//! have shown a valid credential.
//!
//! A connection begins as a stranger's. It takes one of few places, counts for its address, and is
//! closed for others if it sends nothing. With the first valid credential it becomes known: it then
//! counts for its session or API key instead, and its place is free for the next stranger. A
//! credential with too many connections keeps further ones among the strangers. So a page with many
//! viewers behind one address is not refused, and no number of strangers takes the places of the
//! viewers.
//!
//! An organisation (by all of its API keys and public links) and an account (by all of its
//! sessions) may have three times as many known connections as are free. So one of them alone gets
//! three quarters, N that want all get `3 / (1 + 3 N)` each, and a newcomer always finds free ones.
//!
//! A connection of a trusted proxy carries requests of many clients, so each request counts for the
//! address of its client while it is being answered.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::http::HeaderMap;
use hyper::body::{Frame, SizeHint};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::EdgeOptions;
use crate::api::callers::Payer;
use crate::api::limits::network;
use crate::api::own_metrics::Counters;
use crate::identity::UserId;
use crate::model::OrgId;
use crate::sync::IgnorePoison as _;

/// Divides the first header's timeout of any connection while no connection is free.
const CROWDED_HEADER_DIVISOR: u32 = 10;
/// An organisation or account may have at most this many times the free known connections.
const SHARE_OF_FREE: usize = 3;

pub(super) struct ConnectionLimiter {
    /// The places of strangers.
    open: Arc<Semaphore>,
    per_ip: Mutex<HashMap<IpAddr, usize>>,
    /// The connections that may be closed for new ones, the oldest first. Includes some that have
    /// ended or sent their header since.
    silent: Mutex<VecDeque<PendingConnection>>,
    /// The number of known connections of each session and API key.
    known: Mutex<KnownConnections>,
    pub(super) options: EdgeOptions,
    pub(super) counters: Arc<Counters>,
}

#[derive(Debug, Default)]
struct KnownConnections {
    all: usize,
    of_payer: HashMap<Payer, usize>,
    of_tenant: HashMap<Tenant, usize>,
}

/// The account or organisation to which a known connection counts. All of its credentials share one
/// count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Tenant {
    Account(UserId),
    Org(OrgId),
}

impl Payer {
    fn tenant(self) -> Tenant {
        match self {
            Payer::Session(account, _) => Tenant::Account(account),
            Payer::Key(org, _) => Tenant::Org(org),
        }
    }
}

/// A connection that may be closed for a new one until it has sent a whole header.
pub(super) struct PendingConnection {
    pub(super) task: AbortHandle,
    pub(super) phase: Arc<ConnectionPhase>,
    pub(super) reserved: bool,
    pub(super) since: Instant,
}

impl PendingConnection {
    /// Returns whether the connection may still be closed. A reserved connection closes after its
    /// first response anyway.
    fn is_silent(&self) -> bool {
        !self.task.is_finished() && self.phase.now() == ConnectionPhase::FIRST_HEAD
    }
}

/// The place that a connection occupies until it is dropped.
pub(in crate::api) struct ConnectionSlot {
    pub(super) peer: SocketAddr,
    pub(super) reserved: bool,
    standing: Mutex<Standing>,
    /// The address of the client whose request a proxy passes on.
    client: Mutex<Option<AddressPlace>>,
    limiter: Arc<ConnectionLimiter>,
}

/// The limits that a connection counts towards. Dropping the value releases its place.
enum Standing {
    Stranger { _permit: OwnedSemaphorePermit, _address: Option<AddressPlace> },
    Known(KnownPlace),
}

/// One connection or request of an address.
struct AddressPlace {
    ip: IpAddr,
    limiter: Arc<ConnectionLimiter>,
}

/// One connection of a session or an API key.
struct KnownPlace {
    payer: Payer,
    limiter: Arc<ConnectionLimiter>,
}

impl ConnectionLimiter {
    pub(super) fn new(options: EdgeOptions, counters: Arc<Counters>) -> Arc<ConnectionLimiter> {
        Arc::new(ConnectionLimiter {
            open: Arc::new(Semaphore::new(options.connections_max.max(1))),
            per_ip: Mutex::default(),
            silent: Mutex::default(),
            known: Mutex::default(),
            options,
            counters,
        })
    }

    /// Waits for a connection, then for a free slot. Returns `None` if the connection was refused
    /// or failed.
    pub(super) async fn accept(
        self: &Arc<ConnectionLimiter>,
        listener: &TcpListener,
    ) -> Option<(TcpStream, Arc<ConnectionSlot>)> {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!("no connection could be accepted: {error}");
                // The usual cause is a lack of file descriptors. An immediate retry would spin.
                tokio::time::sleep(Duration::from_millis(50)).await;
                return None;
            }
        };
        let Some(address) = self.count(peer.ip()) else {
            self.counters.connections_refused.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        let permit = match Arc::clone(&self.open).try_acquire_owned() {
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
        };
        let _ = stream.set_nodelay(true);
        Some((stream, self.slot(peer, address, permit)))
    }

    /// Returns the slot of a stranger's connection.
    fn slot(
        self: &Arc<ConnectionLimiter>,
        peer: SocketAddr,
        address: Option<AddressPlace>,
        permit: OwnedSemaphorePermit,
    ) -> Arc<ConnectionSlot> {
        self.counters.connections.fetch_add(1, Ordering::Relaxed);
        let reserved = self.open.available_permits() < self.options.connections_reserved;
        let standing = Mutex::new(Standing::Stranger { _permit: permit, _address: address });
        let limiter = Arc::clone(self);
        Arc::new(ConnectionSlot { peer, reserved, standing, client: Mutex::default(), limiter })
    }

    /// Registers a new connection. Once they may be half of the list, removes the entries that have
    /// ended or sent their header.
    pub(super) fn register(&self, new: PendingConnection) {
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

    /// Counts a connection or a request of an address. Returns `None` at the limit, `Some(None)` if
    /// the address is exempt, otherwise its place.
    fn count(self: &Arc<ConnectionLimiter>, ip: IpAddr) -> Option<Option<AddressPlace>> {
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
        Some(Some(AddressPlace { ip, limiter: Arc::clone(self) }))
    }

    /// Counts a known connection. Returns `None` if its session, its account or organisation, or
    /// all of them have too many.
    fn know(self: &Arc<ConnectionLimiter>, payer: Payer) -> Option<KnownPlace> {
        let mut known = self.known.lock().ignore_poison();
        let free = self.options.known_connections_max.saturating_sub(known.all);
        let tenant_max = free.saturating_mul(SHARE_OF_FREE);
        let payer_max = match payer {
            Payer::Session(..) => self.options.connections_per_session,
            // A key may have all connections of its organisation.
            Payer::Key(..) => tenant_max,
        };
        let of_payer = known.of_payer.get(&payer).copied().unwrap_or_default();
        let of_tenant = known.of_tenant.get(&payer.tenant()).copied().unwrap_or_default();
        if of_payer >= payer_max || of_tenant >= tenant_max {
            return None;
        }
        known.of_payer.insert(payer, of_payer + 1);
        known.of_tenant.insert(payer.tenant(), of_tenant + 1);
        known.all += 1;
        self.counters.connections_known.fetch_add(1, Ordering::Relaxed);
        Some(KnownPlace { payer, limiter: Arc::clone(self) })
    }
}

impl ConnectionSlot {
    /// Counts the connection for a session or an API key that has sent a valid request on it. The
    /// address of a client behind a proxy is not charged for the rest of the request.
    pub(in crate::api) fn credit(&self, payer: Payer) {
        if self.reserved {
            return;
        }
        let mut standing = self.standing.lock().ignore_poison();
        let is_credited = matches!(&*standing, Standing::Known(place) if place.payer == payer);
        if !is_credited {
            let Some(place) = self.limiter.know(payer) else { return };
            *standing = Standing::Known(place);
        }
        drop(standing);
        *self.client.lock().ignore_poison() = None;
    }

    /// Returns whether the connection counts for a session or an API key.
    pub(super) fn is_known(&self) -> bool {
        matches!(&*self.standing.lock().ignore_poison(), Standing::Known(_))
    }

    /// Counts a request that a trusted proxy passes on for its client. Returns `false` if the
    /// address of the client has too many.
    pub(super) fn begin_request(&self, headers: &HeaderMap) -> bool {
        let client = self.limiter.options.proxies.client(self.peer.ip(), headers);
        let counted = self.limiter.count(client);
        if counted.is_none() {
            self.limiter.counters.connections_refused.fetch_add(1, Ordering::Relaxed);
        }
        let is_admitted = counted.is_some();
        *self.client.lock().ignore_poison() = counted.flatten();
        is_admitted
    }

    /// Returns whether the peer is a trusted proxy.
    pub(super) fn is_proxied(&self) -> bool {
        self.limiter.options.proxies.trusts(self.peer.ip())
    }
}

impl std::fmt::Debug for ConnectionSlot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConnectionSlot").field("peer", &self.peer).finish_non_exhaustive()
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.limiter.counters.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for AddressPlace {
    fn drop(&mut self) {
        release(&mut self.limiter.per_ip.lock().ignore_poison(), &self.ip);
    }
}

impl Drop for KnownPlace {
    fn drop(&mut self) {
        self.limiter.counters.connections_known.fetch_sub(1, Ordering::Relaxed);
        let mut known = self.limiter.known.lock().ignore_poison();
        known.all -= 1;
        release(&mut known.of_payer, &self.payer);
        release(&mut known.of_tenant, &self.payer.tenant());
    }
}

/// Decrements the count of a key, and removes a count of 0.
fn release<K: Eq + Hash>(counts: &mut HashMap<K, usize>, key: &K) {
    if let Some(open) = counts.get_mut(key) {
        *open -= 1;
        if *open == 0 {
            counts.remove(key);
        }
    }
}

/// The body of a response through a proxy: its end releases the address of the client.
pub(super) struct ProxiedBody {
    pub(super) inner: Body,
    pub(super) slot: Arc<ConnectionSlot>,
}

impl HttpBody for ProxiedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.inner).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl Drop for ProxiedBody {
    fn drop(&mut self) {
        *self.slot.client.lock().ignore_poison() = None;
    }
}

/// The event that a connection waits for.
#[derive(Debug, Default)]
pub(super) struct ConnectionPhase(AtomicU8);

impl ConnectionPhase {
    /// The header of the first request.
    pub(super) const FIRST_HEAD: u8 = 0;
    /// The response of this server.
    pub(super) const BUSY: u8 = 1;
    /// The next request.
    pub(super) const IDLE: u8 = 2;
    /// The rest of the header of a later request.
    pub(super) const NEXT_HEAD: u8 = 3;

    pub(super) fn set(&self, phase: u8) {
        self.0.store(phase, Ordering::Relaxed);
    }

    pub(super) fn now(&self) -> u8 {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests;
