//! Requests to the targets of organisations: HTTP/1.1 over kept connections, with TLS and a
//! credential, to the addresses that the operator allows (docs/specification.md D10).
//!
//! Redirects are not followed, because they would lead a credential to another server. Heads,
//! bodies, connections and times are bounded. Dropping a future or a body ends its request.

mod address;
mod body;
mod connections;
mod error;
mod pull;
mod token;

pub use address::Egress;
pub use body::TargetBody;
pub use error::TargetError;
pub use pull::{PullAuth, PullClient, PullOptions, PullRequest, PullResponse, PullServer};

use std::sync::Arc;
use std::time::Duration;

use data_encoding::BASE64;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT_ENCODING, AUTHORIZATION, HOST, HeaderName, HeaderValue, LOCATION, USER_AGENT};
use hyper::{HeaderMap, Method, Request, Response, Uri};

use super::connection::TlsSettings;
use crate::clock::Clock;
use crate::model::{Target, TargetAuth, TargetSecret, TargetTls, Tenant, Timestamp};
use connections::{Connections, Exchange, TargetServer};
use token::{TokenOptions, TokenSource};

/// The method of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetMethod {
    /// `GET`.
    Get,
    /// `POST`.
    Post,
}

/// One request.
#[derive(Clone, Debug)]
pub struct TargetRequest {
    /// The method.
    pub method: TargetMethod,
    /// Appended to the path of the target's URL: empty, or begins with `/` or `?`.
    pub suffix: String,
    /// Further headers.
    pub headers: Vec<(&'static str, String)>,
    /// The body; may be empty.
    pub body: Bytes,
    /// The longest time from now to the last byte of the response.
    pub timeout: Duration,
    /// The most bytes of the response's body, inclusive.
    pub body_bytes_max: u64,
}

/// The head of a response, and its body, which has not been read yet. The status is never that of
/// a redirect.
#[derive(Debug)]
pub struct TargetResponse {
    /// The status, 200 to 299 or 400 to 599.
    pub status: u16,
    headers: HeaderMap,
    /// The body.
    pub body: TargetBody,
}

impl TargetResponse {
    /// Returns a header, if it is present and visible ASCII.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Returns the delay that the target asks for, in seconds. A date counts from that of the
    /// response, so the clock of this server does not matter.
    pub fn retry_after_s(&self) -> Option<u64> {
        let text = self.header("retry-after")?.trim();
        if let Ok(seconds) = text.parse() {
            return Some(seconds);
        }
        let now = self.header("date").and_then(Timestamp::from_http_date);
        let ms = Timestamp::from_http_date(text)?.ms_since(now.unwrap_or_else(|| Clock::System.now()));
        u64::try_from(ms.max(0)).ok().map(|ms| ms.div_ceil(1_000))
    }

    /// Reads the beginning of the body of an unsuccessful response, and returns it as an error.
    pub async fn into_error(self) -> TargetError {
        /// The most bytes of a body that an error shows.
        const SHOWN_BYTES: usize = 4 << 10;
        let status = self.status;
        let message = self.body.beginning(SHOWN_BYTES).await;
        match status {
            500.. => TargetError::Failed { status, message },
            _ => TargetError::Refused { status, message },
        }
    }
}

/// A client of one target. Clones share its connections and its token.
#[derive(Clone)]
pub struct TargetClient(Arc<ClientState>);

struct ClientState {
    target: Target,
    /// The headers of every request.
    headers: Vec<(HeaderName, HeaderValue)>,
    credential: TargetCredential,
    connections: Arc<Connections>,
}

enum TargetCredential {
    None,
    Fixed(HeaderValue),
    Token(Box<TokenSource>),
}

impl std::fmt::Debug for TargetClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TargetClient").field("url", &self.0.target.url).finish_non_exhaustive()
    }
}

fn sensitive(text: &str) -> Result<HeaderValue, String> {
    let mut value = HeaderValue::try_from(text).map_err(|error| error.to_string())?;
    value.set_sensitive(true);
    Ok(value)
}

/// Returns the certificates that a target's client trusts and presents.
fn tls_settings(tls: &TargetTls) -> TlsSettings<'_> {
    let key = tls.client_key_pem.as_ref().map(TargetSecret::reveal);
    let identity = tls.client_cert_pem.as_deref().zip(key);
    TlsSettings {
        roots: tls.ca_pem.as_deref().map(str::as_bytes),
        with_public: false,
        identity: identity.map(|(chain, key)| (chain.as_bytes(), key.as_bytes())),
    }
}

/// Returns the value of `Authorization: Basic`.
fn basic(username: &str, password: &str) -> Result<HeaderValue, String> {
    sensitive(&format!("Basic {}", BASE64.encode(format!("{username}:{password}").as_bytes())))
}

impl TargetClient {
    /// Creates a client; sends no request.
    ///
    /// # Errors
    /// A sentence, if the target is not valid or its certificates cannot be read.
    pub fn new(target: Target, egress: Egress) -> Result<TargetClient, String> {
        target.check().map_err(|error| error.to_string())?;
        let tls = tls_settings(&target.tls);
        // Read in any case, so that a wrong certificate is reported when it is configured.
        let connector = tls.connector().map_err(|error| format!("tls: {error}"))?;
        let endpoint = TargetServer::new(&target.url, target.tls.server_name.as_deref(), connector)?;
        let credential = match &target.auth {
            TargetAuth::None => TargetCredential::None,
            TargetAuth::Basic { username, password } => {
                TargetCredential::Fixed(basic(username, password.reveal())?)
            }
            TargetAuth::Bearer { token } => {
                TargetCredential::Fixed(sensitive(&format!("Bearer {}", token.reveal()))?)
            }
            TargetAuth::OAuth2 { token_url: url, client_id, client_secret, scopes } => {
                let options = TokenOptions { url, roots: tls.roots, client_id, client_secret, scopes };
                TargetCredential::Token(Box::new(TokenSource::new(&options, &egress)?))
            }
        };
        let mut headers = Vec::with_capacity(target.headers.len() + 1);
        let tenant = match &target.tenant {
            Tenant::Header { name, value } => Some((name, value)),
            Tenant::None | Tenant::Path { .. } | Tenant::Label { .. } => None,
        };
        for (name, value) in target.headers.iter().map(|(name, value)| (name, value)).chain(tenant) {
            let name = HeaderName::try_from(name.as_str()).map_err(|error| error.to_string())?;
            headers.push((name, sensitive(value)?));
        }
        let connections = Arc::new(Connections::new(endpoint, egress));
        Ok(TargetClient(Arc::new(ClientState { target, headers, credential, connections })))
    }

    /// Returns the target.
    pub fn target(&self) -> &Target {
        &self.0.target
    }

    /// Sends a request and returns the head of the response. If the target has closed a kept
    /// connection, the request is sent once more, so the target may see it twice.
    ///
    /// # Errors
    /// [`TargetError`]. [`TargetError::Refused`] and [`TargetError::Failed`] are answers of the
    /// endpoint of tokens: a status of 400 or more of the target is a response.
    pub async fn send(&self, request: TargetRequest) -> Result<TargetResponse, TargetError> {
        let timeout = request.timeout;
        let mut deadline = Box::pin(tokio::time::sleep(timeout));
        let answered = tokio::select! {
            biased;
            answered = self.send_untimed(&request) => answered?,
            () = &mut deadline => return Err(TargetError::Timeout(timeout)),
        };
        let Exchange { response, lease } = answered;
        let (head, incoming) = response.into_parts();
        let status = head.status.as_u16();
        if head.status.is_redirection() {
            return Err(TargetError::InvalidResponse(redirect(status, &head.headers)));
        }
        if !(200..600).contains(&status) {
            return Err(TargetError::InvalidResponse(format!("status {status} is not expected")));
        }
        let body = TargetBody::new(incoming, lease, (deadline, timeout), request.body_bytes_max);
        Ok(TargetResponse { status, headers: head.headers, body })
    }

    async fn send_untimed(&self, request: &TargetRequest) -> Result<Exchange, TargetError> {
        let client = &*self.0;
        let credential = match &client.credential {
            TargetCredential::None => None,
            TargetCredential::Fixed(value) => Some(value.clone()),
            TargetCredential::Token(source) => Some(source.token().await?),
        };
        let exchange = client.exchange(request, credential.as_ref()).await?;
        match (&client.credential, credential) {
            // The token may have been revoked; a new one is tried once.
            (TargetCredential::Token(source), Some(used)) if exchange.response.status().as_u16() == 401 => {
                drop(exchange);
                source.forget(&used).await;
                let token = source.token().await?;
                client.exchange(request, Some(&token)).await
            }
            _ => Ok(exchange),
        }
    }
}

impl ClientState {
    async fn exchange(
        &self,
        request: &TargetRequest,
        credential: Option<&HeaderValue>,
    ) -> Result<Exchange, TargetError> {
        let build = || self.build(request, credential);
        self.connections.exchange(&build).await
    }

    fn build(
        &self,
        request: &TargetRequest,
        credential: Option<&HeaderValue>,
    ) -> Result<Request<Full<Bytes>>, TargetError> {
        let internal = |error: &dyn std::fmt::Display| TargetError::InvalidRequest(error.to_string());
        let path = self.target.path_and_query(&request.suffix);
        let uri: Uri = path.parse().map_err(|error| internal(&error))?;
        let mut built = Request::new(Full::new(request.body.clone()));
        *built.uri_mut() = uri;
        *built.method_mut() = match request.method {
            TargetMethod::Get => Method::GET,
            TargetMethod::Post => Method::POST,
        };
        let headers = built.headers_mut();
        let host = HeaderValue::try_from(self.target.url.authority()).map_err(|error| internal(&error))?;
        headers.insert(HOST, host);
        headers.insert(USER_AGENT, HeaderValue::from_static(PROGRAM));
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        if let Some(credential) = credential {
            headers.insert(AUTHORIZATION, credential.clone());
        }
        for (name, value) in &self.headers {
            headers.insert(name.clone(), value.clone());
        }
        // These headers are last, because they describe the body.
        for (name, value) in &request.headers {
            let value = HeaderValue::try_from(value.as_str()).map_err(|error| internal(&error))?;
            headers.insert(HeaderName::from_static(name), value);
        }
        Ok(built)
    }
}

/// The name and the version of this program.
const PROGRAM: &str = concat!("promlet/", env!("CARGO_PKG_VERSION"));

/// Returns a sentence about a redirect, with the host that it leads to.
fn redirect(status: u16, headers: &HeaderMap) -> String {
    let location = headers.get(LOCATION).and_then(|location| location.to_str().ok()?.parse::<Uri>().ok());
    let host = location.as_ref().and_then(Uri::host);
    match host {
        Some(host) => format!("status {status}, a redirect to {host}; redirects are not followed"),
        None => format!("status {status}, a redirect to another path; redirects are not followed"),
    }
}

/// A response whose body has not been read.
type HttpResponse = Response<Incoming>;

#[cfg(test)]
mod tests;
