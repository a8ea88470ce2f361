//! The requests of a follower to its primary: one response without end, and short ones on a
//! connection that stays open. The methods block; they run on the follower's thread.
//!
//! The operator alone determines the URL. It is `https`, or `http` on this machine, or `http` to a
//! host that the operator allowed explicitly: only TLS proves to the follower who the primary is.

use std::future::Future;
use std::net::ToSocketAddrs as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_body_util::{BodyExt as _, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{AUTHORIZATION, HOST, USER_AGENT};
use hyper::{Method, Request, Response, Uri};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use super::connection::{HEAD_BYTES_MAX, TlsSettings};
use crate::sync::IgnorePoison as _;

/// The time limit of a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// The time limit of the head of a response.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// The time limit of a short request.
const SHORT_TIMEOUT: Duration = Duration::from_secs(2);
/// The interval at which a waiting request looks whether it is still wanted.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The reason why a request without TLS is refused.
const NEEDS_TLS: &str = "http sends the token and everything else in the clear, and proves nothing about the                          primary: use https, or --insecure-http in a network that you trust";
/// The limit of the body of a short response.
const SHORT_BODY_MAX: usize = 64 << 10;

/// The reason why a request to the primary failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StandbyRequestError {
    /// The primary was not reached, or did not respond in time.
    Unreachable(String),
    /// The primary responded with another status than 200.
    Refused {
        /// The status.
        status: u16,
        /// The body.
        body: String,
    },
    /// The response has ended.
    Ended,
}

/// A client of one primary.
pub struct StandbyClient {
    runtime: Arc<Runtime>,
    tls: Option<TlsConnector>,
    /// Whether `http` may leave this machine.
    allows_http: bool,
    host: String,
    port: u16,
    authority: String,
    /// The path of the URL, which precedes every target.
    prefix: String,
    authorization: String,
    /// The connection for short requests.
    idle: Mutex<Option<SendRequest<Empty<Bytes>>>>,
}

/// A response that is read piece by piece.
pub struct StandbyResponse {
    runtime: Arc<Runtime>,
    body: Incoming,
    /// Keeps the connection open.
    _sender: SendRequest<Empty<Bytes>>,
}

fn unreachable(error: &dyn std::fmt::Display) -> StandbyRequestError {
    StandbyRequestError::Unreachable(error.to_string())
}

impl StandbyClient {
    /// Creates a client for the primary at `url`. `more_roots` are certificates (PEM) to trust in
    /// addition to the public ones. Without `allows_http`, an `http` URL must lead to this machine.
    ///
    /// # Errors
    /// A sentence, if the URL or the certificates cannot be used.
    pub fn new(
        url: &str,
        token: &str,
        more_roots: Option<&[u8]>,
        allows_http: bool,
    ) -> Result<StandbyClient, String> {
        let uri: Uri = url.parse().map_err(|_| format!("{url:?} is not a URL"))?;
        let (scheme, authority) = match (uri.scheme_str(), uri.authority()) {
            (Some(scheme @ ("http" | "https")), Some(authority)) => (scheme, authority),
            _ => return Err(format!("{url:?} does not begin with http:// or https://")),
        };
        let is_tls = scheme == "https";
        let roots = more_roots;
        let tls = is_tls.then(|| TlsSettings { roots, with_public: true, identity: None }.connector());
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        let port = authority.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        // A name that cannot be resolved now is checked with each connection.
        let mut addresses = (host.as_str(), port).to_socket_addrs().into_iter().flatten();
        if !is_tls && !allows_http && addresses.any(|address| !address.ip().is_loopback()) {
            return Err(NEEDS_TLS.to_owned());
        }
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .thread_name("follow-net")
            .build()
            .map_err(|error| error.to_string())?;
        Ok(StandbyClient {
            runtime: Arc::new(runtime),
            tls: tls.transpose()?,
            allows_http,
            host,
            port,
            authority: authority.as_str().rsplit('@').next().unwrap_or_default().to_owned(),
            prefix: uri.path().trim_end_matches('/').to_owned(),
            authorization: format!("Bearer {token}"),
            idle: Mutex::new(None),
        })
    }

    /// Begins a `GET` whose response is read piece by piece. Gives up soon after `is_over` returns
    /// true.
    ///
    /// # Errors
    /// [`StandbyRequestError`].
    pub fn open(
        &self,
        target: &str,
        is_over: &dyn Fn() -> bool,
    ) -> Result<StandbyResponse, StandbyRequestError> {
        let opening = async {
            let mut sender = within(CONNECT_TIMEOUT, self.connect()).await?;
            let request = self.request(Method::GET, target)?;
            let body = within(HEAD_TIMEOUT, async { accepted(send(&mut sender, request).await?).await });
            Ok(StandbyResponse { runtime: Arc::clone(&self.runtime), body: body.await?, _sender: sender })
        };
        self.runtime.block_on(async {
            let mut opening = std::pin::pin!(opening);
            loop {
                match tokio::time::timeout(LOOK_EVERY, &mut opening).await {
                    Ok(opened) => return opened,
                    Err(_) if is_over() => return Err(unreachable(&"the request was cancelled")),
                    Err(_) => {}
                }
            }
        })
    }

    /// Sends a `POST` without a body and waits for the response.
    ///
    /// # Errors
    /// [`StandbyRequestError`].
    pub fn post(&self, target: &str) -> Result<(), StandbyRequestError> {
        let idle = self.idle.lock().ignore_poison().take();
        let sender = self.runtime.block_on(within(SHORT_TIMEOUT, async {
            let mut sender = match idle.filter(|idle| !idle.is_closed()) {
                Some(idle) => idle,
                None => self.connect().await?,
            };
            let response = send(&mut sender, self.request(Method::POST, target)?).await?;
            let mut body = accepted(response).await?;
            let mut bytes = 0;
            while let Some(frame) = body.frame().await {
                let frame = frame.map_err(|error| unreachable(&error))?;
                bytes += frame.data_ref().map_or(0, Bytes::len);
                if bytes > SHORT_BODY_MAX {
                    return Err(unreachable(&"its response is too long"));
                }
            }
            Ok(sender)
        }))?;
        *self.idle.lock().ignore_poison() = Some(sender);
        Ok(())
    }

    async fn connect(&self) -> Result<SendRequest<Empty<Bytes>>, StandbyRequestError> {
        let stream =
            TcpStream::connect((self.host.as_str(), self.port)).await.map_err(|e| unreachable(&e))?;
        let peer = stream.peer_addr().map_err(|e| unreachable(&e))?;
        if self.tls.is_none() && !self.allows_http && !peer.ip().is_loopback() {
            return Err(unreachable(&NEEDS_TLS));
        }
        // Acknowledgements are short and must not wait for more bytes.
        stream.set_nodelay(true).map_err(|error| unreachable(&error))?;
        let mut http = http1::Builder::new();
        http.max_buf_size(HEAD_BYTES_MAX.max(512 << 10));
        match &self.tls {
            Some(tls) => {
                let name = ServerName::try_from(self.host.clone()).map_err(|error| unreachable(&error))?;
                let stream = tls.connect(name, stream).await.map_err(|error| unreachable(&error))?;
                let (sender, connection) =
                    http.handshake(TokioIo::new(stream)).await.map_err(|error| unreachable(&error))?;
                // The sender notices when the connection ends.
                tokio::spawn(async move { drop(connection.await) });
                Ok(sender)
            }
            None => {
                let (sender, connection) =
                    http.handshake(TokioIo::new(stream)).await.map_err(|error| unreachable(&error))?;
                tokio::spawn(async move { drop(connection.await) });
                Ok(sender)
            }
        }
    }

    fn request(&self, method: Method, target: &str) -> Result<Request<Empty<Bytes>>, StandbyRequestError> {
        Request::builder()
            .method(method)
            .uri(format!("{}{target}", self.prefix))
            .header(HOST, &self.authority)
            .header(USER_AGENT, concat!("promlet/", env!("CARGO_PKG_VERSION")))
            .header(AUTHORIZATION, &self.authorization)
            .body(Empty::new())
            .map_err(|error| unreachable(&error))
    }
}

impl StandbyResponse {
    /// Returns the next bytes; `None` if none came within `longest`.
    ///
    /// # Errors
    /// [`StandbyRequestError::Ended`] at the end, and for a broken connection.
    pub fn read(&mut self, longest: Duration) -> Result<Option<Vec<u8>>, StandbyRequestError> {
        let body = &mut self.body;
        let read = self.runtime.block_on(async { tokio::time::timeout(longest, body.frame()).await });
        match read {
            Err(_) => Ok(None),
            Ok(None | Some(Err(_))) => Err(StandbyRequestError::Ended),
            Ok(Some(Ok(frame))) => Ok(Some(frame.into_data().map(|data| data.to_vec()).unwrap_or_default())),
        }
    }
}

async fn within<T>(
    longest: Duration,
    work: impl Future<Output = Result<T, StandbyRequestError>>,
) -> Result<T, StandbyRequestError> {
    let timed_out = |_| unreachable(&format!("no response within {} ms", longest.as_millis()));
    tokio::time::timeout(longest, work).await.map_err(timed_out)?
}

async fn send(
    sender: &mut SendRequest<Empty<Bytes>>,
    request: Request<Empty<Bytes>>,
) -> Result<Response<Incoming>, StandbyRequestError> {
    sender.ready().await.map_err(|error| unreachable(&error))?;
    sender.send_request(request).await.map_err(|error| unreachable(&error))
}

/// Returns the body of a response with status 200.
async fn accepted(response: Response<Incoming>) -> Result<Incoming, StandbyRequestError> {
    let status = response.status().as_u16();
    let mut body = response.into_body();
    if status == 200 {
        return Ok(body);
    }
    let mut text = Vec::new();
    while let Some(Ok(frame)) = body.frame().await {
        text.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
        if text.len() > SHORT_BODY_MAX {
            break;
        }
    }
    let body = String::from_utf8_lossy(&text).chars().take(2_000).collect();
    Err(StandbyRequestError::Refused { status, body })
}

impl std::fmt::Debug for StandbyClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StandbyClient").field("authority", &self.authority).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use super::*;
    use crate::clock::Stopwatch;

    fn client(url: &str, allows_http: bool) -> Result<StandbyClient, String> {
        StandbyClient::new(url, "token", None, allows_http)
    }

    #[test]
    fn http_to_another_machine_must_be_allowed() {
        for url in ["http://192.0.2.1", "http://[2001:db8::1]:9090", "http://198.51.100.7:8080/x"] {
            assert!(client(url, false).is_err_and(|why| why.contains("--insecure-http")), "{url}");
            assert!(client(url, true).is_ok(), "{url}");
        }
        for url in ["http://127.0.0.1:9090", "http://[::1]", "http://localhost:80", "https://192.0.2.1"] {
            assert!(client(url, false).is_ok(), "{url}");
        }
    }

    #[test]
    fn a_primary_that_stalls_in_its_response_holds_up_no_promotion() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let stalling = std::thread::spawn(move || {
            for head in ["", "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 9\r\n\r\n{"] {
                let (mut stream, _) = listener.accept().expect("accepted");
                let mut request = [0; 1_024];
                assert!(stream.read(&mut request).expect("read") > 0);
                stream.write_all(head.as_bytes()).expect("written");
                // The server waits until the client gives up.
                while stream.read(&mut request).is_ok_and(|bytes| bytes > 0) {}
            }
        });
        let client = client(&url, false).expect("a client");
        for _ in 0..2 {
            let watch = Stopwatch::start();
            let opened = client.open("/x", &|| watch.elapsed() > Duration::from_millis(300));
            assert!(opened.is_err());
            assert!(watch.elapsed() < HEAD_TIMEOUT, "{:?}", watch.elapsed());
        }
        stalling.join().expect("ended");
    }
}
