//! Questions over HTTPS, one connection each: no redirects, bounded in time, size and number (docs/specification.md D6, threat 23).
//!
//! Where they go is the operator's word alone, or that of the issuer that the operator named. `http` is for loopback
//! only, and only where the operator's own URL says so.

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

/// Longest answer, bytes.
const BODY_BYTES_MAX: usize = 1 << 20;
/// Longest head of an answer, bytes.
const HEAD_BYTES_MAX: usize = 64 * 1_024;
/// Questions under way at once, and how long one more waits for its turn within its own time.
const AT_ONCE: usize = 16;

/// Why a provider gave no usable answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProviderError {
    /// It cannot be reached, does not answer in time, or says that it is down: `idp_unavailable`.
    #[error("the provider cannot be reached: {0}")]
    Unavailable(String),
    /// It answers what it must not, or does not know us: `idp_error`.
    #[error("the provider's answer does not fit: {0}")]
    Misbehaved(String),
    /// It refuses this sign-in, by an OAuth error code: `oauth_error`.
    #[error("the provider refused: {0}")]
    Refused(String),
}

/// How providers are reached.
#[derive(Clone, Debug)]
pub struct HttpsOptions {
    /// From the first byte of the connection to the last of the answer.
    pub timeout: Duration,
    /// Certificates (PEM) that are trusted beside the public ones.
    pub more_roots: Option<Vec<u8>>,
}

impl Default for HttpsOptions {
    fn default() -> HttpsOptions {
        HttpsOptions { timeout: Duration::from_secs(10), more_roots: None }
    }
}

/// What is asked.
pub(super) struct Question<'a> {
    pub(super) url: &'a str,
    /// A form to post; `None` is a `GET`.
    pub(super) form: Option<String>,
    /// The whole value.
    pub(super) authorization: Option<String>,
    pub(super) accept: &'static str,
}

/// What was answered.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: Bytes,
}

/// Asks.
#[derive(Clone)]
pub(super) struct Https {
    tls: TlsConnector,
    timeout: Duration,
    turns: Arc<Semaphore>,
}

/// Ends a connection's task with its question.
struct Connection(AbortHandle);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Https {
    /// # Errors
    /// In words: the certificates cannot be read.
    pub(super) fn new(options: &HttpsOptions) -> Result<Https, String> {
        let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
        if let Some(pem) = &options.more_roots {
            let mut found = 0_usize;
            for certificate in CertificateDer::pem_slice_iter(pem) {
                let certificate = certificate.map_err(|error| error.to_string())?;
                roots.add(certificate).map_err(|error| error.to_string())?;
                found += 1;
            }
            if found == 0 {
                return Err("there is no certificate in it".to_owned());
            }
        }
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Https {
            tls: TlsConnector::from(Arc::new(config)),
            timeout: options.timeout,
            turns: Arc::new(Semaphore::new(AT_ONCE)),
        })
    }

    /// Asks, and reads the whole answer.
    ///
    /// # Errors
    /// [`ProviderError::Unavailable`], [`ProviderError::Misbehaved`] for an answer that is too long.
    pub(super) async fn ask(&self, question: Question<'_>) -> Result<Answer, ProviderError> {
        self.in_time(self.answer(question)).await?
    }

    /// Waits for as long as an answer may take, and no longer: also behind others who wait for one.
    ///
    /// # Errors
    /// [`ProviderError::Unavailable`].
    pub(super) async fn in_time<F: Future>(&self, waited_for: F) -> Result<F::Output, ProviderError> {
        let late = |_| ProviderError::Unavailable(format!("no answer in {} ms", self.timeout.as_millis()));
        tokio::time::timeout(self.timeout, waited_for).await.map_err(late)
    }

    async fn answer(&self, question: Question<'_>) -> Result<Answer, ProviderError> {
        let bad_url = || ProviderError::Misbehaved(format!("{:?} is no URL", question.url));
        let uri: Uri = question.url.parse().map_err(|_| bad_url())?;
        let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return Err(bad_url());
        };
        let tls = scheme == "https";
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        let port = authority.port_u16().unwrap_or(if tls { 443 } else { 80 });
        let _turn = self.turns.acquire().await.map_err(|_| unavailable(&"closed"))?;
        let stream = TcpStream::connect((host, port)).await.map_err(|error| unavailable(&error))?;
        let request = request(&uri, authority.as_str(), question)?;
        if tls {
            let name = ServerName::try_from(host.to_owned()).map_err(|error| unavailable(&error))?;
            let stream = self.tls.connect(name, stream).await.map_err(|error| unavailable(&error))?;
            exchange(stream, request).await
        } else {
            exchange(stream, request).await
        }
    }
}

fn unavailable(error: &dyn std::fmt::Display) -> ProviderError {
    ProviderError::Unavailable(error.to_string())
}

fn request(
    uri: &Uri,
    authority: &str,
    question: Question<'_>,
) -> Result<Request<Full<Bytes>>, ProviderError> {
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let mut request = Request::builder()
        .method(if question.form.is_some() { Method::POST } else { Method::GET })
        .uri(path)
        .header(HOST, host)
        .header(USER_AGENT, concat!("promlet/", env!("CARGO_PKG_VERSION")))
        .header(ACCEPT, question.accept);
    if let Some(authorization) = question.authorization {
        request = request.header(AUTHORIZATION, authorization);
    }
    if question.form.is_some() {
        request = request.header(CONTENT_TYPE, "application/x-www-form-urlencoded");
    }
    let body = question.form.unwrap_or_default();
    request.body(Full::new(body.into())).map_err(|error| ProviderError::Misbehaved(error.to_string()))
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Full<Bytes>>,
) -> Result<Answer, ProviderError> {
    let (mut sender, connection) = http1::Builder::new()
        .max_buf_size(HEAD_BYTES_MAX)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|error| unavailable(&error))?;
    // Its end is seen by the sender.
    let _connection = Connection(tokio::spawn(async move { drop(connection.await) }).abort_handle());
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
    Ok(Answer { status, body: body.into() })
}

impl std::fmt::Debug for Https {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Https").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

/// Whether the operator's own URL may be asked: `https`, or `http` on this machine.
pub(super) fn is_reachable_by(url: &str) -> bool {
    is_http_url(url, "https") || is_loopback_http(url)
}

/// Whether a URL that the issuer `base` names may be asked: `https`, or `http` on this machine where the issuer itself is.
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

/// A JSON object of an answer with status 200.
///
/// # Errors
/// [`ProviderError`]: 5xx and 429 are `Unavailable`, everything else `Misbehaved`.
pub(super) fn json<T: serde::de::DeserializeOwned>(answer: &Answer, what: &str) -> Result<T, ProviderError> {
    match answer.status {
        200 => {}
        429 | 500.. => return Err(ProviderError::Unavailable(format!("{what}: status {}", answer.status))),
        status => return Err(ProviderError::Misbehaved(format!("{what}: status {status}"))),
    }
    let wrong = |error| ProviderError::Misbehaved(format!("{what}: {error}"));
    serde_json::from_slice(&answer.body).map_err(wrong)
}

/// An OAuth error code, without what does not belong into a log or an answer.
pub(super) fn error_code(text: &str) -> String {
    text.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.')).take(64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_https_is_asked_but_for_this_machine() {
        for url in [
            "https://accounts.example",
            "https://a.b:8443/x",
            "http://127.0.0.1:9",
            "http://[::1]:9/x",
            "http://localhost",
        ] {
            assert!(is_reachable_by(url), "{url}");
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
            assert!(!is_reachable_by(url), "{url}");
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
