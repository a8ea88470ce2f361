//! The connections to one target: at most [`CONNECTIONS_MAX`], of which [`IDLE_MAX`] are kept for
//! later requests.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_body_util::Full;
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http1::SendRequest;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use super::HttpResponse;
use super::address::Egress;
use super::error::TargetError;
use crate::clock::Stopwatch;
use crate::model::TargetUrl;
use crate::outbound::connection::{ConnectionTask, handshake_with_buffer};
use crate::sync::IgnorePoison as _;

/// The most connections to one target at once, inclusive. A further request waits within its
/// timeout.
const CONNECTIONS_MAX: usize = 64;
/// The most connections that wait for the next request, inclusive.
const IDLE_MAX: usize = 16;
/// The longest time that a connection waits. Servers close theirs after 60 s or more.
const IDLE_TIME_MAX: Duration = Duration::from_secs(50);
/// The longest time to connect to one of several addresses.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(5);

/// Builds a request, which may be sent twice.
type BuildRequest<'b> = dyn Fn() -> Result<Request<Full<Bytes>>, TargetError> + Sync + 'b;

/// A server to connect to.
pub(super) struct TargetServer {
    host: String,
    port: u16,
    /// `None` connects without TLS.
    tls: Option<(TlsConnector, ServerName<'static>)>,
    /// The constant size of the buffer of a connection; `None` lets it grow.
    buffer_bytes: Option<usize>,
}

impl TargetServer {
    /// Returns the server of a URL.
    ///
    /// # Errors
    /// A sentence, if the name of its certificate is not a host name.
    pub(super) fn new(
        url: &TargetUrl,
        server_name: Option<&str>,
        connector: TlsConnector,
    ) -> Result<TargetServer, String> {
        let name = server_name.unwrap_or(url.host()).to_owned();
        let name = || ServerName::try_from(name).map_err(|error| error.to_string());
        let tls = if url.is_tls() { Some((connector, name()?)) } else { None };
        Ok(TargetServer { host: url.host().to_owned(), port: url.port(), tls, buffer_bytes: None })
    }

    /// Gives each connection a buffer of this size.
    pub(super) fn with_buffer(self, bytes: usize) -> TargetServer {
        TargetServer { buffer_bytes: Some(bytes), ..self }
    }

    /// Returns `host:port`.
    pub(super) fn authority(&self) -> String {
        let TargetServer { host, port, .. } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }

    /// Opens a connection to an allowed address.
    ///
    /// # Errors
    /// [`TargetError`].
    pub(super) async fn connect(&self, egress: &Egress) -> Result<OpenConnection, TargetError> {
        let addresses = egress.resolve(&self.host, self.port).await?;
        let mut last = TargetError::Unreachable("there is no address".to_owned());
        let mut stream = None;
        for (place, address) in addresses.iter().enumerate() {
            let is_last = place + 1 == addresses.len();
            let limit = if is_last { Duration::MAX } else { CONNECT_TIME_MAX };
            match tokio::time::timeout(limit, TcpStream::connect(address)).await {
                Ok(Ok(connected)) => {
                    stream = Some(connected);
                    break;
                }
                Ok(Err(error)) => last = TargetError::Unreachable(format!("{address}: {error}")),
                Err(_) => last = TargetError::Timeout(limit),
            }
        }
        let Some(stream) = stream else { return Err(last) };
        // Without it, small requests wait for the acknowledgement of the previous ones.
        stream.set_nodelay(true).map_err(|error| TargetError::Unreachable(error.to_string()))?;
        let opened = match &self.tls {
            None => handshake_with_buffer(stream, self.buffer_bytes).await,
            Some((connector, name)) => {
                let stream = connector.connect(name.clone(), stream).await;
                let stream = stream.map_err(|error| TargetError::Tls(error.to_string()))?;
                handshake_with_buffer(stream, self.buffer_bytes).await
            }
        };
        let (sender, task) = opened.map_err(|error| TargetError::of_exchange(&error))?;
        Ok(OpenConnection { sender, _task: task })
    }

    /// Sends a request on the kept connection, or on a new one. If the server has closed the kept
    /// connection, the request is sent once more.
    ///
    /// # Errors
    /// [`TargetError`].
    pub(super) async fn exchange(
        &self,
        kept: Option<OpenConnection>,
        egress: &Egress,
        build: &BuildRequest<'_>,
    ) -> Result<(HttpResponse, OpenConnection), TargetError> {
        if let Some(mut kept) = kept {
            match kept.send(build()?).await {
                Ok(response) => return Ok((response, kept)),
                // The server may have closed the connection before it read the request.
                Err(error) if error.is_parse() => return Err(TargetError::of_exchange(&error)),
                Err(error) => tracing::debug!("a kept connection to a target ended: {error}"),
            }
        }
        let mut opened = self.connect(egress).await?;
        let response = opened.send(build()?).await.map_err(|error| TargetError::of_exchange(&error))?;
        Ok((response, opened))
    }
}

/// An open connection that no response is being read from.
pub(super) struct OpenConnection {
    pub(super) sender: SendRequest<Full<Bytes>>,
    _task: ConnectionTask,
}

/// A connection in use. It is closed on drop unless it is given back.
pub(super) struct ConnectionLease {
    connection: OpenConnection,
    connections: Arc<Connections>,
    _permit: OwnedSemaphorePermit,
}

impl ConnectionLease {
    /// Keeps the connection for the next request. The response must have been read to its end.
    pub(super) fn give_back(self) {
        let ConnectionLease { connection, connections, .. } = self;
        connections.keep(connection);
    }
}

/// The head of a response, and the connection that its body arrives on.
pub(super) struct Exchange {
    pub(super) response: HttpResponse,
    pub(super) lease: ConnectionLease,
}

/// The connections to a target.
pub(super) struct Connections {
    endpoint: TargetServer,
    egress: Egress,
    slots: Arc<Semaphore>,
    /// The kept connections, the newest last, each with the time since its last use.
    idle: Mutex<Vec<(OpenConnection, Stopwatch)>>,
}

impl Connections {
    pub(super) fn new(endpoint: TargetServer, egress: Egress) -> Connections {
        let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        Connections { endpoint, egress, slots, idle: Mutex::default() }
    }

    fn take(&self) -> Option<OpenConnection> {
        let mut idle = self.idle.lock().ignore_poison();
        idle.retain(|(kept, since)| !kept.sender.is_closed() && since.elapsed() < IDLE_TIME_MAX);
        idle.pop().map(|(kept, _)| kept)
    }

    fn keep(&self, connection: OpenConnection) {
        if connection.sender.is_closed() {
            return;
        }
        let mut idle = self.idle.lock().ignore_poison();
        if idle.len() >= IDLE_MAX {
            idle.remove(0);
        }
        idle.push((connection, Stopwatch::start()));
    }

    /// Sends a request on a kept or a new connection.
    ///
    /// # Errors
    /// [`TargetError`].
    pub(super) async fn exchange(
        self: &Arc<Self>,
        build: &BuildRequest<'_>,
    ) -> Result<Exchange, TargetError> {
        let closed = |_| TargetError::Unreachable("the client is closed".to_owned());
        let permit = Arc::clone(&self.slots).acquire_owned().await.map_err(closed)?;
        let (response, connection) = self.endpoint.exchange(self.take(), &self.egress, build).await?;
        let lease = ConnectionLease { connection, connections: Arc::clone(self), _permit: permit };
        Ok(Exchange { response, lease })
    }
}

impl OpenConnection {
    /// Sends a request and returns the head of the response.
    pub(super) async fn send(&mut self, request: Request<Full<Bytes>>) -> hyper::Result<HttpResponse> {
        self.sender.ready().await?;
        self.sender.send_request(request).await
    }
}
