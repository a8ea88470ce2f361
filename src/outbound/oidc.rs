//! A client of an OpenID Connect issuer: discovery, tokens for a code, keys, and the user's data.
//!
//! Discovery and keys are cached for an hour. If a token names an unknown key, the keys are fetched
//! again, at most once a minute.

use std::sync::Arc;

use data_encoding::BASE64;
use form_urlencoded::Serializer;
use serde::Deserialize;
use tokio::sync::Mutex;

use super::https::{
    HttpsClient, HttpsOptions, ProviderError, ProviderRequest, ProviderResponse, error_code, json,
    may_follow, may_request,
};
use crate::model::Timestamp;

/// The operator's settings for an issuer.
#[derive(Clone)]
pub struct OidcOptions {
    /// The issuer's identifier, exactly as in its discovery document.
    pub issuer: String,
    /// The client id of promlet at the issuer.
    pub client_id: String,
    /// The client secret.
    pub client_secret: String,
    /// The requested scopes, separated by spaces; must contain `openid`.
    pub scopes: String,
    /// The connection settings.
    pub https: HttpsOptions,
}

impl std::fmt::Debug for OidcOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OidcOptions").field("issuer", &self.issuer).finish_non_exhaustive()
    }
}

/// The parameters of an authorization request.
#[derive(Clone, Copy)]
pub struct Authorization<'a> {
    /// The URL to which the provider redirects the browser afterwards.
    pub redirect_uri: &'a str,
    /// Returned by the provider with the code.
    pub state: &'a str,
    /// Returned by the provider inside the ID token.
    pub nonce: &'a str,
    /// The PKCE code challenge, method S256.
    pub challenge: &'a str,
}

/// The tokens that a code was redeemed for. The `Debug` output shows no secret.
#[derive(Deserialize)]
pub struct Tokens {
    /// The token for the userinfo endpoint.
    pub access_token: String,
    /// The token that identifies the user.
    pub id_token: String,
    token_type: String,
}

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tokens(***)")
    }
}

#[derive(Debug, Deserialize)]
struct Discovery {
    issuer: String,
    authorization_endpoint: String,
    token_endpoint: String,
    jwks_uri: String,
    userinfo_endpoint: Option<String>,
    #[serde(default)]
    token_endpoint_auth_methods_supported: Vec<String>,
    #[serde(default)]
    authorization_response_iss_parameter_supported: bool,
}

#[derive(Deserialize)]
struct TokenError {
    error: String,
}

/// How long discovery and keys are cached, in milliseconds.
const CACHE_MS: i64 = 3_600 * 1_000;
/// The minimal time between two fetches for unknown keys, in milliseconds.
const KEYS_REFETCH_MS: i64 = 60 * 1_000;

/// A cached document with the time at which it was fetched.
type CachedDocument<T> = Mutex<Option<(Timestamp, Arc<T>)>>;

/// A client of one issuer.
#[derive(Debug)]
pub struct OidcClient {
    options: OidcOptions,
    https: HttpsClient,
    discovery: CachedDocument<Discovery>,
    keys: CachedDocument<str>,
}

impl OidcClient {
    /// Creates a client; sends no request.
    ///
    /// # Errors
    /// A sentence, if the issuer is not a URL that may be requested or the certificates cannot be
    /// read.
    pub fn new(options: OidcOptions) -> Result<OidcClient, String> {
        if !may_request(&options.issuer) {
            return Err(format!(
                "the issuer {:?} is not an https:// URL (http:// is allowed for this machine only)",
                options.issuer
            ));
        }
        let https = HttpsClient::new(&options.https)?;
        Ok(OidcClient { options, https, discovery: CachedDocument::default(), keys: Mutex::new(None) })
    }

    /// Returns the issuer's identifier.
    pub fn issuer(&self) -> &str {
        &self.options.issuer
    }

    /// Returns the client id of promlet at the issuer.
    pub fn client_id(&self) -> &str {
        &self.options.client_id
    }

    /// Returns the URL to which the browser is redirected.
    ///
    /// # Errors
    /// [`ProviderError`], if discovery fails.
    pub async fn authorize_url(
        &self,
        authorization: Authorization<'_>,
        now: Timestamp,
    ) -> Result<String, ProviderError> {
        let discovery = self.discovery(now).await?;
        let query = Serializer::new(String::new())
            .append_pair("response_type", "code")
            .append_pair("response_mode", "query")
            .append_pair("client_id", &self.options.client_id)
            .append_pair("redirect_uri", authorization.redirect_uri)
            .append_pair("scope", &self.options.scopes)
            .append_pair("state", authorization.state)
            .append_pair("nonce", authorization.nonce)
            .append_pair("code_challenge", authorization.challenge)
            .append_pair("code_challenge_method", "S256")
            .finish();
        Ok(with_query(&discovery.authorization_endpoint, &query))
    }

    /// Returns whether authorization responses of this issuer always name it (RFC 9207), so that a
    /// response without it is not from this issuer.
    ///
    /// # Errors
    /// [`ProviderError`], if discovery fails.
    pub async fn names_itself(&self, now: Timestamp) -> Result<bool, ProviderError> {
        Ok(self.discovery(now).await?.authorization_response_iss_parameter_supported)
    }

    /// Redeems a code for tokens.
    ///
    /// # Errors
    /// [`ProviderError`]; `Refused` for a code that is not valid.
    pub async fn redeem(
        &self,
        code: &str,
        verifier: &str,
        redirect_uri: &str,
        now: Timestamp,
    ) -> Result<Tokens, ProviderError> {
        let discovery = self.discovery(now).await?;
        let methods = &discovery.token_endpoint_auth_methods_supported;
        let basic = methods.is_empty() || methods.iter().any(|method| method == "client_secret_basic");
        let (id, secret) = (&self.options.client_id, &self.options.client_secret);
        let credentials = [("client_id", id), ("client_secret", secret)];
        let form = Serializer::new(String::new())
            .append_pair("grant_type", "authorization_code")
            .append_pair("code", code)
            .append_pair("redirect_uri", redirect_uri)
            .append_pair("code_verifier", verifier)
            .extend_pairs(credentials.into_iter().filter(|_| !basic))
            .finish();
        let authorization = basic.then(|| basic_credentials(id, secret));
        let request = ProviderRequest {
            url: &discovery.token_endpoint,
            form: Some(form),
            authorization,
            accept: "application/json",
        };
        let response = self.https.send(request).await?;
        check_refusal(&response)?;
        let tokens: Tokens = json(&response, "token endpoint")?;
        if !tokens.token_type.eq_ignore_ascii_case("bearer") {
            return Err(ProviderError::Misbehaved("token endpoint: the token type is not Bearer".into()));
        }
        Ok(tokens)
    }

    /// Returns the issuer's keys as JSON. `unlike` is a key set that lacks a requested key; then
    /// the result is `None` if no newer set may be fetched yet.
    ///
    /// # Errors
    /// [`ProviderError`], if the fetch fails.
    pub async fn keys(
        &self,
        unlike: Option<&Arc<str>>,
        now: Timestamp,
    ) -> Result<Option<Arc<str>>, ProviderError> {
        let discovery = self.discovery(now).await?;
        // Single flight: concurrent callers wait for this fetch and share its result.
        let mut cached = self.https.in_time(self.keys.lock()).await?;
        if let Some((at, keys)) = &*cached {
            let age_ms = now.ms_since(*at);
            let is_other = unlike.is_none_or(|unlike| !Arc::ptr_eq(unlike, keys));
            if is_other && age_ms < CACHE_MS {
                return Ok(Some(Arc::clone(keys)));
            }
            if !is_other && age_ms < KEYS_REFETCH_MS {
                return Ok(None);
            }
        }
        let response = self.get(&discovery.jwks_uri).await?;
        let _: serde_json::Map<String, serde_json::Value> = json(&response, "keys")?;
        let text = std::str::from_utf8(&response.body);
        let keys: Arc<str> = text.map_err(|error| ProviderError::Misbehaved(error.to_string()))?.into();
        *cached = Some((now, Arc::clone(&keys)));
        Ok(Some(keys))
    }

    /// Fetches the issuer's data about the user of the tokens as JSON. Returns `None` if the issuer
    /// has no userinfo endpoint.
    ///
    /// # Errors
    /// [`ProviderError`], if the request fails.
    pub async fn userinfo(
        &self,
        tokens: &Tokens,
        now: Timestamp,
    ) -> Result<Option<serde_json::Value>, ProviderError> {
        let discovery = self.discovery(now).await?;
        let Some(url) = &discovery.userinfo_endpoint else { return Ok(None) };
        let request = ProviderRequest {
            url,
            form: None,
            authorization: Some(format!("Bearer {}", tokens.access_token)),
            accept: "application/json",
        };
        json(&self.https.send(request).await?, "userinfo endpoint").map(Some)
    }

    async fn get(&self, url: &str) -> Result<ProviderResponse, ProviderError> {
        let request = ProviderRequest { url, form: None, authorization: None, accept: "application/json" };
        self.https.send(request).await
    }

    async fn discovery(&self, now: Timestamp) -> Result<Arc<Discovery>, ProviderError> {
        let mut cached = self.https.in_time(self.discovery.lock()).await?;
        if let Some((at, discovery)) = &*cached
            && now.ms_since(*at) < CACHE_MS
        {
            return Ok(Arc::clone(discovery));
        }
        let issuer = &self.options.issuer;
        let url = format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
        let discovered: Discovery = json(&self.get(&url).await?, "discovery")?;
        if discovered.issuer != *issuer {
            let message =
                format!("discovery: the issuer calls itself {:?}, not {issuer:?}", discovered.issuer);
            return Err(ProviderError::Misbehaved(message));
        }
        let ours = [
            Some(&discovered.token_endpoint),
            Some(&discovered.jwks_uri),
            discovered.userinfo_endpoint.as_ref(),
        ];
        let all = ours.into_iter().flatten().chain([&discovered.authorization_endpoint]);
        if let Some(url) = all.into_iter().find(|url| !may_follow(issuer, url)) {
            return Err(ProviderError::Misbehaved(format!("discovery: {url:?} is not an https:// URL")));
        }
        let discovered = Arc::new(discovered);
        *cached = Some((now, Arc::clone(&discovered)));
        Ok(discovered)
    }
}

/// Returns the error of a refused code. An invalid code ends the sign-in only; an unknown client is
/// a misconfiguration.
fn check_refusal(response: &ProviderResponse) -> Result<(), ProviderError> {
    if !(400..500).contains(&response.status) || response.status == 429 {
        return Ok(());
    }
    let message =
        serde_json::from_slice::<TokenError>(&response.body).map(|refusal| error_code(&refusal.error));
    match message.as_deref() {
        Ok("invalid_grant") => Err(ProviderError::Refused("invalid_grant".into())),
        Ok(code) => Err(ProviderError::Misbehaved(format!("token endpoint: {code}"))),
        Err(_) => Ok(()),
    }
}

/// Returns the `Basic` credentials (RFC 6749 section 2.3.1: id and secret are form-encoded first).
fn basic_credentials(id: &str, secret: &str) -> String {
    let encoded = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
    let pair = format!("{}:{}", encoded(id), encoded(secret));
    format!("Basic {}", BASE64.encode(pair.as_bytes()))
}

pub(super) fn with_query(url: &str, query: &str) -> String {
    let joint = if url.contains('?') { '&' } else { '?' };
    format!("{url}{joint}{query}")
}
