//! Tokens of OAuth 2.0 client credentials (RFC 6749, section 4.4).

use std::time::Duration;

use form_urlencoded::{Serializer, byte_serialize};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue, USER_AGENT};
use hyper::{Method, Request};
use serde::Deserialize;
use tokio::sync::Mutex;

use super::address::Egress;
use super::connections::TargetServer;
use super::error::TargetError;
use super::{PROGRAM, basic, sensitive};
use crate::clock::Stopwatch;
use crate::model::{TargetSecret, TargetUrl};
use crate::outbound::connection::TlsSettings;
use crate::outbound::https::error_code;

/// The most bytes of a token endpoint's response, inclusive.
const TOKEN_BYTES_MAX: usize = 64 << 10;
/// A token is replaced this long before it expires.
const EARLY: Duration = Duration::from_secs(30);
/// The lifetime of a token whose endpoint states none.
const LIFETIME_DEFAULT: Duration = Duration::from_secs(300);
/// The longest lifetime of a token that is believed.
const LIFETIME_MAX: Duration = Duration::from_secs(86_400);
/// How long a failure is reported to further callers instead of another request.
const FAILURE_KEPT: Duration = Duration::from_secs(1);

/// The endpoint of tokens, and the credentials for it.
pub(super) struct TokenOptions<'o> {
    pub(super) url: &'o TargetUrl,
    /// Certificates (PEM) that are trusted in addition to those of public authorities.
    pub(super) roots: Option<&'o [u8]>,
    pub(super) client_id: &'o str,
    pub(super) client_secret: &'o TargetSecret,
    pub(super) scopes: &'o [String],
}

/// The client of a token endpoint.
struct TokenClient {
    endpoint: TargetServer,
    path: String,
    client_id: String,
    client_secret: TargetSecret,
    /// The scopes, separated by spaces; may be empty.
    scope: String,
    egress: Egress,
}

/// The token of a target.
pub(super) struct TokenSource {
    client: TokenClient,
    /// Locked during a request: concurrent callers wait for it and share its result.
    state: Mutex<Option<TokenState>>,
}

struct TokenState {
    result: Result<HeaderValue, TargetError>,
    since: Stopwatch,
    valid: Duration,
}

#[derive(Deserialize)]
struct TokenBody {
    access_token: String,
    token_type: Option<String>,
    expires_in: Option<f64>,
}

#[derive(Deserialize)]
struct TokenFault {
    error: String,
}

impl TokenSource {
    /// Creates a source; sends no request.
    ///
    /// # Errors
    /// A sentence, if a certificate or the host of the endpoint is not valid.
    pub(super) fn new(options: &TokenOptions<'_>, egress: &Egress) -> Result<TokenSource, String> {
        let TokenOptions { url, roots, client_id, client_secret, scopes } = *options;
        let connector = TlsSettings { roots, with_public: true, identity: None }.connector()?;
        let client = TokenClient {
            endpoint: TargetServer::new(url, None, connector)?,
            path: if url.path().is_empty() { "/" } else { url.path() }.to_owned(),
            client_id: client_id.to_owned(),
            client_secret: client_secret.clone(),
            scope: scopes.join(" "),
            egress: egress.clone(),
        };
        Ok(TokenSource { client, state: Mutex::const_new(None) })
    }

    /// Returns the value of `Authorization`.
    ///
    /// # Errors
    /// [`TargetError`] of the token endpoint.
    pub(super) async fn token(&self) -> Result<HeaderValue, TargetError> {
        let mut state = self.state.lock().await;
        if let Some(known) = state.as_ref().filter(|known| known.since.elapsed() < known.valid) {
            return known.result.clone();
        }
        let since = Stopwatch::start();
        let (result, valid) = match self.client.request().await {
            Ok((token, valid)) => (Ok(token), valid),
            Err(error) => (Err(error), FAILURE_KEPT),
        };
        let result = &state.insert(TokenState { result, since, valid }).result;
        result.clone()
    }

    /// Forgets a token that the target refused.
    pub(super) async fn forget(&self, token: &HeaderValue) {
        let mut state = self.state.lock().await;
        if state.as_ref().is_some_and(|known| known.result.as_ref() == Ok(token)) {
            *state = None;
        }
    }
}

impl TokenClient {
    /// Requests a token. The credentials are sent in the header; an endpoint that refuses this gets
    /// them in the body.
    async fn request(&self) -> Result<(HeaderValue, Duration), TargetError> {
        let (mut status, mut body) = self.post(true).await?;
        if matches!(status, 400 | 401) {
            (status, body) = self.post(false).await?;
        }
        if !(200..300).contains(&status) {
            let fault: Option<TokenFault> = serde_json::from_slice(&body).ok();
            let message = match fault {
                Some(fault) => format!("the token endpoint reports {}", error_code(&fault.error)),
                None => "at the token endpoint".to_owned(),
            };
            return Err(match status {
                500.. => TargetError::Failed { status, message },
                400.. => TargetError::Refused { status, message },
                _ => TargetError::InvalidResponse(format!("token endpoint: status {status}")),
            });
        }
        let invalid = |why: String| TargetError::InvalidResponse(format!("token endpoint: {why}"));
        let token: TokenBody = serde_json::from_slice(&body).map_err(|error| invalid(error.to_string()))?;
        if token.token_type.is_some_and(|kind| !kind.eq_ignore_ascii_case("bearer")) {
            return Err(invalid("the token type is not Bearer".to_owned()));
        }
        let lifetime = token.expires_in.map_or(LIFETIME_DEFAULT, |seconds| {
            Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(LIFETIME_MAX).min(LIFETIME_MAX)
        });
        let header = sensitive(&format!("Bearer {}", token.access_token)).map_err(invalid)?;
        Ok((header, lifetime.saturating_sub(EARLY)))
    }

    async fn post(&self, in_header: bool) -> Result<(u16, Bytes), TargetError> {
        let request = self.token_request(in_header).map_err(TargetError::InvalidRequest)?;
        let mut connection = self.endpoint.connect(&self.egress).await?;
        let response = connection.send(request).await.map_err(|error| TargetError::of_exchange(&error))?;
        let status = response.status().as_u16();
        let body = Limited::new(response.into_body(), TOKEN_BYTES_MAX).collect().await;
        let body = body.map_err(|error| TargetError::InvalidResponse(format!("token endpoint: {error}")))?;
        Ok((status, body.to_bytes()))
    }

    fn token_request(&self, in_header: bool) -> Result<Request<Full<Bytes>>, String> {
        let mut form = Serializer::new(String::new());
        form.append_pair("grant_type", "client_credentials");
        if !self.scope.is_empty() {
            form.append_pair("scope", &self.scope);
        }
        let (id, secret) = (&self.client_id, self.client_secret.reveal());
        if !in_header {
            form.append_pair("client_id", id).append_pair("client_secret", secret);
        }
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(&self.path)
            .header(HOST, self.endpoint.authority())
            .header(USER_AGENT, PROGRAM)
            .header(ACCEPT, "application/json")
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        if in_header {
            let encoded = |text: &str| byte_serialize(text.as_bytes()).collect::<String>();
            request = request.header(AUTHORIZATION, basic(&encoded(id), &encoded(secret))?);
        }
        request.body(Full::new(Bytes::from(form.finish()))).map_err(|error| error.to_string())
    }
}
