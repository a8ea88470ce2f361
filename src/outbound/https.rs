//! HTTPS requests to sign-in providers, one connection each: without redirects, bounded in time,
//! size and number (docs/specification.md D6, threat 23).
//!
//! The operator alone determines the URLs, directly or by naming an issuer. `http` is allowed for
//! loopback only, and only if the operator's own URL uses it.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HOST, USER_AGENT};
use hyper::{Method, Request, Uri};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::ring};

/// The maximal length of a response body in bytes.
const BODY_BYTES_MAX: usize = 1 << 20;
/// The maximal length of a response head in bytes.
const HEAD_BYTES_MAX: usize = 64 * 1_024;
/// The maximal number of concurrent requests. A further request waits within its own timeout.
const CONCURRENT_MAX: usize = 16;

/// The reason why a provider returned no usable response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProviderError {
    /// The provider cannot be reached, does not respond in time, or reports that it is down:
    /// `idp_unavailable`.
    #[error("the provider cannot be reached: {0}")]
    Unavailable(String),
    /// The response violates the protocol, or the provider does not know this client: `idp_error`.
    #[error("the provider's response is invalid: {0}")]
    Misbehaved(String),
    /// The provider refuses this sign-in with an OAuth error code: `oauth_error`.
    #[error("the provider refused: {0}")]
    Refused(String),
}

/// The connection settings for a provider.
#[derive(Clone, Debug)]
pub struct HttpsOptions {
    /// The time limit, from connecting to the last byte of the response.
    pub timeout: Duration,
    /// Certificates (PEM) that are trusted in addition to the public ones.
    pub more_roots: Option<Vec<u8>>,
}

impl Default for HttpsOptions {
    fn default() -> HttpsOptions {
        HttpsOptions { timeout: Duration::from_secs(10), more_roots: None }
    }
}

/// One request.
pub(super) struct ProviderRequest<'a> {
    pub(super) url: &'a str,
    /// The form to post; `None` sends a `GET`.
    pub(super) form: Option<String>,
    /// The whole value of the `Authorization` header.
    pub(super) authorization: Option<String>,
    pub(super) accept: &'static str,
}

/// The response to a request.
#[derive(Debug)]
pub(super) struct ProviderResponse {
    pub(super) status: u16,
    pub(super) body: Bytes,
}

/// An HTTPS client for providers.
#[derive(Clone)]
pub(super) struct HttpsClient {
    tls: TlsConnector,
    timeout: Duration,
    slots: Arc<Semaphore>,
}

/// The task of a connection, which is aborted on drop.
struct ConnectionTask(AbortHandle);

impl Drop for ConnectionTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl HttpsClient {
    /// Creates a client.
    ///
    /// # Errors
    /// A sentence, if the certificates cannot be read.
    pub(super) fn new(options: &HttpsOptions) -> Result<HttpsClient, String> {
        Ok(HttpsClient {
            tls: tls_connector(options)?,
            timeout: options.timeout,
            slots: Arc::new(Semaphore::new(CONCURRENT_MAX)),
        })
    }

    /// Sends a request and reads the whole response.
    ///
    /// # Errors
    /// [`ProviderError::Unavailable`], or [`ProviderError::Misbehaved`] for a response that is too
    /// long.
    pub(super) async fn send(&self, request: ProviderRequest<'_>) -> Result<ProviderResponse, ProviderError> {
        self.in_time(self.send_untimed(request)).await?
    }

    /// Waits for a future, but no longer than a request may take. Also limits the wait behind other
    /// callers.
    ///
    /// # Errors
    /// [`ProviderError::Unavailable`], if the time limit passes.
    pub(super) async fn in_time<F: Future>(&self, future: F) -> Result<F::Output, ProviderError> {
        let timed_out =
            |_| ProviderError::Unavailable(format!("no response within {} ms", self.timeout.as_millis()));
        tokio::time::timeout(self.timeout, future).await.map_err(timed_out)
    }

    async fn send_untimed(&self, request: ProviderRequest<'_>) -> Result<ProviderResponse, ProviderError> {
        let bad_url = || ProviderError::Misbehaved(format!("{:?} is not a URL", request.url));
        let uri: Uri = request.url.parse().map_err(|_| bad_url())?;
        let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return Err(bad_url());
        };
        let tls = scheme == "https";
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        let port = authority.port_u16().unwrap_or(if tls { 443 } else { 80 });
        let _slot = self.slots.acquire().await.map_err(|_| unavailable(&"closed"))?;
        let stream = TcpStream::connect((host, port)).await.map_err(|error| unavailable(&error))?;
        let request = http_request(&uri, authority.as_str(), request)?;
        if tls {
            let name = ServerName::try_from(host.to_owned()).map_err(|error| unavailable(&error))?;
            let stream = self.tls.connect(name, stream).await.map_err(|error| unavailable(&error))?;
            exchange(stream, request).await
        } else {
            exchange(stream, request).await
        }
    }
}

/// Creates the connector of TLS connections that trust the public certificates and those of the
/// options.
///
/// # Errors
/// A sentence, if the certificates cannot be read.
pub(super) fn tls_connector(options: &HttpsOptions) -> Result<TlsConnector, String> {
    let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    if let Some(pem) = &options.more_roots {
        let mut found = 0_usize;
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate = certificate.map_err(|error| error.to_string())?;
            roots.add(certificate).map_err(|error| error.to_string())?;
            found += 1;
        }
        if found == 0 {
            return Err("it contains no certificate".to_owned());
        }
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

fn unavailable(error: &dyn std::fmt::Display) -> ProviderError {
    ProviderError::Unavailable(error.to_string())
}

fn http_request(
    uri: &Uri,
    authority: &str,
    request: ProviderRequest<'_>,
) -> Result<Request<Full<Bytes>>, ProviderError> {
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let mut builder = Request::builder()
        .method(if request.form.is_some() { Method::POST } else { Method::GET })
        .uri(path)
        .header(HOST, host)
        .header(USER_AGENT, concat!("promlet/", env!("CARGO_PKG_VERSION")))
        .header(ACCEPT, request.accept);
    if let Some(authorization) = request.authorization {
        builder = builder.header(AUTHORIZATION, authorization);
    }
    if request.form.is_some() {
        builder = builder.header(CONTENT_TYPE, "application/x-www-form-urlencoded");
    }
    let body = request.form.unwrap_or_default();
    builder.body(Full::new(body.into())).map_err(|error| ProviderError::Misbehaved(error.to_string()))
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Full<Bytes>>,
) -> Result<ProviderResponse, ProviderError> {
    let (mut sender, connection) = http1::Builder::new()
        .max_buf_size(HEAD_BYTES_MAX)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|error| unavailable(&error))?;
    // The sender notices when the connection ends.
    let _connection = ConnectionTask(tokio::spawn(async move { drop(connection.await) }).abort_handle());
    let response = sender.send_request(request).await.map_err(|error| unavailable(&error))?;
    let status = response.status().as_u16();
    let too_long = || ProviderError::Misbehaved(format!("more than {BODY_BYTES_MAX} bytes"));
    let declared =
        response.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    if declared.is_some_and(|length: u64| length > BODY_BYTES_MAX as u64) {
        return Err(too_long());
    }
    let mut incoming = response.into_body();
    let mut body = Vec::new();
    while let Some(frame) = incoming.frame().await {
        let frame = frame.map_err(|error| unavailable(&error))?;
        let Some(data) = frame.data_ref() else { continue };
        if body.len() + data.len() > BODY_BYTES_MAX {
            return Err(too_long());
        }
        body.extend_from_slice(data);
    }
    Ok(ProviderResponse { status, body: body.into() })
}

impl std::fmt::Debug for HttpsClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpsClient").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

/// Returns whether a URL of the operator may be requested: `https`, or `http` on this machine.
pub(super) fn may_request(url: &str) -> bool {
    is_http_url(url, "https") || is_loopback_http(url)
}

/// Returns whether a URL from the documents of the issuer `base` may be requested: `https`, or
/// `http` on this machine if the issuer itself is there.
pub(super) fn may_follow(base: &str, url: &str) -> bool {
    is_http_url(url, "https") || (is_loopback_http(base) && is_loopback_http(url))
}

fn is_http_url(url: &str, scheme: &str) -> bool {
    let uri: Option<Uri> = url.parse().ok();
    uri.is_some_and(|uri| {
        uri.scheme_str() == Some(scheme)
            && uri.authority().is_some_and(|at| !at.host().is_empty() && !at.as_str().contains('@'))
    })
}

fn is_loopback_http(url: &str) -> bool {
    let host = |uri: Uri| uri.host().map(|host| host.trim_matches(['[', ']']).to_owned());
    is_http_url(url, "http")
        && url.parse().ok().and_then(host).is_some_and(|host| {
            host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
        })
}

/// Parses the JSON body of a response with status 200.
///
/// # Errors
/// [`ProviderError`]: 5xx and 429 are `Unavailable`, everything else is `Misbehaved`.
pub(super) fn json<T: serde::de::DeserializeOwned>(
    response: &ProviderResponse,
    what: &str,
) -> Result<T, ProviderError> {
    match response.status {
        200 => {}
        429 | 500.. => return Err(ProviderError::Unavailable(format!("{what}: status {}", response.status))),
        status => return Err(ProviderError::Misbehaved(format!("{what}: status {status}"))),
    }
    let wrong = |error| ProviderError::Misbehaved(format!("{what}: {error}"));
    serde_json::from_slice(&response.body).map_err(wrong)
}

/// Reduces an OAuth error code to characters that are safe in logs and responses.
pub(super) fn error_code(text: &str) -> String {
    text.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.')).take(64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_https_urls_are_requested_except_on_this_machine() {
        for url in [
            "https://accounts.example",
            "https://a.b:8443/x",
            "http://127.0.0.1:9",
            "http://[::1]:9/x",
            "http://localhost",
        ] {
            assert!(may_request(url), "{url}");
        }
        for url in [
            "http://accounts.example",
            "http://127.0.0.1.evil.example",
            "http://localhost.evil.example",
            "ftp://x",
            "x",
            "",
            "https://",
            "https://a@b/",
            "file:///etc/passwd",
            "http://10.0.0.1",
        ] {
            assert!(!may_request(url), "{url}");
        }
    }

    #[test]
    fn a_public_issuer_leads_to_nothing_on_this_machine() {
        assert!(may_follow("https://idp.example", "https://keys.example/jwks"));
        assert!(!may_follow("https://idp.example", "http://127.0.0.1:1/jwks"));
        assert!(may_follow("http://127.0.0.1:9400", "http://127.0.0.1:9400/jwks"));
        assert!(!may_follow("http://127.0.0.1:9400", "http://idp.example/jwks"));
    }
}
