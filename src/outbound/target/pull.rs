//! GET requests to many servers with the settings of one job: TLS and credential are shared, and
//! each server keeps at most one connection.
//!
//! Redirects are followed only to the scheme, host and port of the first request, so that a
//! credential never reaches another server.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body as _, Bytes};
use hyper::header::{
    AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, HOST, HeaderName, HeaderValue, LOCATION, USER_AGENT,
};
use hyper::{HeaderMap, Request, Uri};
use tokio_rustls::TlsConnector;

use super::address::Egress;
use super::connections::{OpenConnection, TargetServer};
use super::error::TargetError;
use super::token::{TokenOptions, TokenSource};
use super::{HttpResponse, PROGRAM, TargetCredential, basic, redirect, sensitive, tls_settings};
use crate::clock::Stopwatch;
use crate::model::{ByteBudget, ByteCharge, TargetSecret, TargetTls, TargetUrl};

/// The most redirects of a request, inclusive.
const REDIRECTS_MAX: usize = 10;
/// The longest time that a connection waits for the next request. Servers close theirs after 60 s
/// or more.
const IDLE_TIME_MAX: Duration = Duration::from_secs(300);
/// The size of a connection's buffer, which is kept while the connection is idle. It also bounds
/// the head of a response.
const BUFFER_BYTES: usize = 16 << 10;

/// The settings of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PullOptions {
    /// The credential.
    pub auth: PullAuth,
    /// Certificates and the expected name.
    pub tls: TargetTls,
    /// Whether any certificate of a server is accepted.
    pub accepts_any_certificate: bool,
    /// Headers of every request, with lower-case names; their values may be secret.
    pub headers: Vec<(String, TargetSecret)>,
    /// Whether redirects within a server are followed.
    pub follow_redirects: bool,
}

/// The credential of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PullAuth {
    /// No credential.
    #[default]
    None,
    /// `Authorization: Basic`. Both texts may be empty.
    Basic {
        /// The user name.
        username: String,
        /// The password.
        password: TargetSecret,
    },
    /// `Authorization: <scheme> <credentials>`.
    Authorization {
        /// The scheme, such as `Bearer`.
        scheme: String,
        /// The credentials, which follow the scheme.
        credentials: TargetSecret,
    },
    /// A token that the client requests with its own credentials (RFC 6749, section 4.4).
    OAuth2 {
        /// The URL of the token endpoint.
        token_url: TargetUrl,
        /// The id of the client.
        client_id: String,
        /// The secret of the client.
        client_secret: TargetSecret,
        /// The requested scopes; may be empty.
        scopes: Vec<String>,
    },
}

/// A GET request.
#[derive(Clone, Debug)]
pub struct PullRequest {
    /// Path and query; begins with `/`.
    pub path_and_query: String,
    /// Further headers, with lower-case names.
    pub headers: Vec<(&'static str, String)>,
    /// The longest time from now to the last byte of the response.
    pub timeout: Duration,
    /// The most bytes of the response's body as sent, inclusive.
    pub body_bytes_max: u64,
}

/// A response. The body is read only if the status is 200.
#[derive(Debug)]
pub struct PullResponse {
    /// The status.
    pub status: u16,
    /// The `Content-Type`; empty if it is absent or not ASCII.
    pub content_type: String,
    /// The `Content-Encoding` in lower case; empty if it is absent or not ASCII.
    pub content_encoding: String,
    /// The body as sent.
    pub body: Vec<u8>,
    charge: Option<ByteCharge>,
}

impl PullResponse {
    /// # Errors
    /// [`TargetError::InvalidResponse`], if too few bytes of the budget would stay free.
    fn charge_bytes(&mut self, bytes: u64) -> Result<(), TargetError> {
        let Some(charge) = &mut self.charge else { return Ok(()) };
        match charge.grow(bytes) {
            true => Ok(()),
            false => Err(TargetError::InvalidResponse(format!(
                "the responses of all targets at once use too much of {} bytes of memory",
                charge.bytes_max()
            ))),
        }
    }
}

/// The client of a job. Clones share its settings and its token.
#[derive(Clone)]
pub struct PullClient(Arc<PullState>);

struct PullState {
    connector: TlsConnector,
    server_name: Option<String>,
    headers: HeaderMap,
    credential: TargetCredential,
    follow_redirects: bool,
    egress: Egress,
}

impl std::fmt::Debug for PullClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PullClient").finish_non_exhaustive()
    }
}

impl PullClient {
    /// Creates a client; sends no request.
    ///
    /// # Errors
    /// A sentence, if a certificate or a header is not valid.
    pub fn new(options: &PullOptions, egress: Egress) -> Result<PullClient, String> {
        let tls = tls_settings(&options.tls);
        let connector = match options.accepts_any_certificate {
            true => tls.unverified_connector(),
            false => tls.connector(),
        };
        let mut headers = HeaderMap::new();
        headers.insert(USER_AGENT, HeaderValue::from_static(PROGRAM));
        for (name, value) in &options.headers {
            let name = HeaderName::try_from(name.as_str()).map_err(|error| error.to_string())?;
            headers.append(name, sensitive(value.reveal())?);
        }
        Ok(PullClient(Arc::new(PullState {
            connector: connector.map_err(|error| format!("tls: {error}"))?,
            server_name: options.tls.server_name.clone(),
            headers,
            credential: credential(&options.auth, &egress)?,
            follow_redirects: options.follow_redirects,
            egress,
        })))
    }

    /// Returns a server that requests are sent to.
    ///
    /// # Errors
    /// A sentence, if the name of its certificate is not a host name.
    pub fn server(&self, url: &TargetUrl) -> Result<PullServer, String> {
        let state = &self.0;
        let server = TargetServer::new(url, state.server_name.as_deref(), state.connector.clone())?;
        let server = server.with_buffer(BUFFER_BYTES);
        let scheme = if url.is_tls() { "https" } else { "http" };
        Ok(PullServer {
            client: self.clone(),
            server,
            origin: format!("{scheme}://{}", url.authority()),
            host: HeaderValue::try_from(url.authority()).map_err(|error| error.to_string())?,
            kept: None,
            last_body_bytes: 0,
            budget: None,
        })
    }
}

fn credential(auth: &PullAuth, egress: &Egress) -> Result<TargetCredential, String> {
    Ok(match auth {
        PullAuth::None => TargetCredential::None,
        PullAuth::Basic { username, password } => {
            TargetCredential::Fixed(basic(username, password.reveal())?)
        }
        PullAuth::Authorization { scheme, credentials } => {
            TargetCredential::Fixed(sensitive(format!("{scheme} {}", credentials.reveal()).trim_end())?)
        }
        PullAuth::OAuth2 { token_url: url, client_id, client_secret, scopes } => {
            let options = TokenOptions { url, roots: None, client_id, client_secret, scopes };
            TargetCredential::Token(Box::new(TokenSource::new(&options, egress)?))
        }
    })
}

/// A server, and the connection that is kept for its next request.
pub struct PullServer {
    client: PullClient,
    server: TargetServer,
    /// `scheme://host:port`.
    origin: String,
    host: HeaderValue,
    kept: Option<(OpenConnection, Stopwatch)>,
    last_body_bytes: usize,
    budget: Option<ByteBudget>,
}

impl std::fmt::Debug for PullServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PullServer").field("origin", &self.origin).finish_non_exhaustive()
    }
}

impl PullServer {
    /// Charges the bodies of responses to a budget, until each response is dropped.
    #[must_use]
    pub fn with_budget(self, budget: &ByteBudget) -> PullServer {
        PullServer { budget: Some(budget.clone()), ..self }
    }

    /// Sends a request and reads the response. If the server has closed the kept connection, the
    /// request is sent once more. Dropping the future closes the connection.
    ///
    /// # Errors
    /// [`TargetError`]. Any status is a response, except a redirect that is not followed.
    pub async fn get(&mut self, request: &PullRequest) -> Result<PullResponse, TargetError> {
        let timeout = request.timeout;
        let answered = tokio::time::timeout(timeout, self.get_untimed(request)).await;
        answered.unwrap_or(Err(TargetError::Timeout(timeout)))
    }

    async fn get_untimed(&mut self, request: &PullRequest) -> Result<PullResponse, TargetError> {
        let mut path = request.path_and_query.clone();
        for _ in 0..=REDIRECTS_MAX {
            let credential = match &self.client.0.credential {
                TargetCredential::None => None,
                TargetCredential::Fixed(value) => Some(value.clone()),
                TargetCredential::Token(source) => Some(source.token().await?),
            };
            let is_usable = |(kept, since): &(OpenConnection, Stopwatch)| {
                !kept.sender.is_closed() && since.elapsed() < IDLE_TIME_MAX
            };
            let kept = self.kept.take().filter(is_usable).map(|(kept, _)| kept);
            let build = || self.build(&path, request, credential.as_ref());
            let egress = &self.client.0.egress;
            let (response, connection) = self.server.exchange(kept, egress, &build).await?;
            let status = response.status();
            if let (TargetCredential::Token(source), Some(used), 401) =
                (&self.client.0.credential, &credential, status.as_u16())
            {
                // The token may have been revoked; the next request fetches another.
                source.forget(used).await;
            }
            if status.is_redirection() && self.client.0.follow_redirects {
                path = self.redirected(&path, &response)?;
                continue;
            }
            if status.is_redirection() {
                return Err(TargetError::InvalidResponse(redirect(status.as_u16(), response.headers())));
            }
            return self.read(response, connection, request.body_bytes_max).await;
        }
        Err(TargetError::InvalidResponse(format!("more than {REDIRECTS_MAX} redirects")))
    }

    /// Returns the path and query that a redirect leads to.
    fn redirected(&self, path: &str, response: &HttpResponse) -> Result<String, TargetError> {
        let invalid = || {
            let reason = redirect(response.status().as_u16(), response.headers());
            TargetError::InvalidResponse(reason.replace(
                "redirects are not followed",
                "redirects are followed within the scheme, host and port of the target only",
            ))
        };
        let location = response.headers().get(LOCATION).and_then(|location| location.to_str().ok());
        let base = url::Url::parse(&format!("{}{path}", self.origin)).map_err(|_| invalid())?;
        let next = location.and_then(|location| base.join(location).ok()).ok_or_else(invalid)?;
        if next.origin() != base.origin() {
            return Err(invalid());
        }
        Ok(match next.query() {
            Some(query) => format!("{}?{query}", next.path()),
            None => next.path().to_owned(),
        })
    }

    async fn read(
        &mut self,
        response: HttpResponse,
        connection: OpenConnection,
        bytes_max: u64,
    ) -> Result<PullResponse, TargetError> {
        let (head, mut incoming) = response.into_parts();
        let text = |name| {
            let value = head.headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
            value.unwrap_or_default().to_owned()
        };
        let mut read = PullResponse {
            status: head.status.as_u16(),
            content_type: text(CONTENT_TYPE),
            content_encoding: text(CONTENT_ENCODING).to_ascii_lowercase(),
            body: Vec::new(),
            charge: self.budget.as_ref().map(ByteBudget::charge),
        };
        if read.status != 200 {
            return Ok(read);
        }
        if incoming.size_hint().lower() > bytes_max {
            return Err(TargetError::TooLarge(bytes_max));
        }
        // Usually the body is as long as the last one, and never needs to be copied.
        let likely = usize::try_from(incoming.size_hint().lower()).unwrap_or(0).max(self.last_body_bytes);
        read.body.reserve(likely.min(1 << 20));
        while let Some(frame) = incoming.frame().await {
            let cut = |error| TargetError::InvalidResponse(format!("the body ended early: {error}"));
            let Ok(data) = frame.map_err(cut)?.into_data() else { continue };
            if read.body.len().saturating_add(data.len()) as u64 > bytes_max {
                return Err(TargetError::TooLarge(bytes_max));
            }
            read.charge_bytes(data.len() as u64)?;
            read.body.extend_from_slice(&data);
        }
        self.last_body_bytes = read.body.len();
        self.kept = (!connection.sender.is_closed()).then(|| (connection, Stopwatch::start()));
        Ok(read)
    }

    fn build(
        &self,
        path: &str,
        request: &PullRequest,
        credential: Option<&HeaderValue>,
    ) -> Result<Request<Full<Bytes>>, TargetError> {
        let internal = |error: &dyn std::fmt::Display| TargetError::InvalidRequest(error.to_string());
        let uri: Uri = path.parse().map_err(|error| internal(&error))?;
        let mut built = Request::new(Full::new(Bytes::new()));
        *built.uri_mut() = uri;
        let headers = built.headers_mut();
        headers.clone_from(&self.client.0.headers);
        headers.insert(HOST, self.host.clone());
        if let Some(credential) = credential {
            headers.insert(AUTHORIZATION, credential.clone());
        }
        for (name, value) in &request.headers {
            let value = HeaderValue::try_from(value.as_str()).map_err(|error| internal(&error))?;
            headers.insert(HeaderName::from_static(name), value);
        }
        Ok(built)
    }
}
