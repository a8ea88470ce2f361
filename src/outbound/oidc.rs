//! An OpenID Connect issuer, as its client asks it: what it is (discovery), tokens for a code, its keys, who somebody is.
//!
//! Discovery and keys are kept for an hour. Keys are fetched anew when a token names one that is not there, at most once
//! a minute.

use std::sync::Arc;

use data_encoding::BASE64;
use form_urlencoded::Serializer;
use serde::Deserialize;
use tokio::sync::Mutex;

use super::https::{
    Answer, Https, HttpsOptions, ProviderError, Question, error_code, is_reachable_by, json, may_follow,
};
use crate::model::Timestamp;

/// What the operator says about an issuer.
#[derive(Clone)]
pub struct OidcOptions {
    /// To the letter, as its discovery document says it.
    pub issuer: String,
    /// Our name there.
    pub client_id: String,
    /// Proves that we are it.
    pub client_secret: String,
    /// What is asked for, separated by blanks; `openid` among it.
    pub scopes: String,
    /// How it is reached.
    pub https: HttpsOptions,
}

impl std::fmt::Debug for OidcOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OidcOptions").field("issuer", &self.issuer).finish_non_exhaustive()
    }
}

/// A sign-in that is about to go to the provider.
#[derive(Clone, Copy)]
pub struct Authorization<'a> {
    /// Where the provider sends the browser afterwards.
    pub redirect_uri: &'a str,
    /// Comes back with the code.
    pub state: &'a str,
    /// Comes back inside the ID token.
    pub nonce: &'a str,
    /// PKCE, S256.
    pub challenge: &'a str,
}

/// What a code was redeemed for. Prints nothing of it.
#[derive(Deserialize)]
pub struct Tokens {
    /// For the userinfo endpoint.
    pub access_token: String,
    /// Who it is.
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
struct Refusal {
    error: String,
}

/// Kept for so long.
const KEPT_MS: i64 = 3_600 * 1_000;
/// Between two looks for new keys.
const KEYS_AGAIN_MS: i64 = 60 * 1_000;

type Kept<T> = Mutex<Option<(Timestamp, Arc<T>)>>;

/// A client of one issuer.
#[derive(Debug)]
pub struct OidcClient {
    options: OidcOptions,
    https: Https,
    discovery: Kept<Discovery>,
    keys: Kept<str>,
}

impl OidcClient {
    /// Asks nobody yet.
    ///
    /// # Errors
    /// In words: the issuer is no URL that may be asked, or the certificates cannot be read.
    pub fn new(options: OidcOptions) -> Result<OidcClient, String> {
        if !is_reachable_by(&options.issuer) {
            return Err(format!(
                "the issuer {:?} is not an https:// URL (http:// is for this machine alone)",
                options.issuer
            ));
        }
        let https = Https::new(&options.https)?;
        Ok(OidcClient { options, https, discovery: Kept::default(), keys: Mutex::new(None) })
    }

    /// Its name for itself.
    pub fn issuer(&self) -> &str {
        &self.options.issuer
    }

    /// Our name there.
    pub fn client_id(&self) -> &str {
        &self.options.client_id
    }

    /// Where to send the browser.
    ///
    /// # Errors
    /// [`ProviderError`].
    pub async fn authorize_url(
        &self,
        sent: Authorization<'_>,
        now: Timestamp,
    ) -> Result<String, ProviderError> {
        let discovery = self.discovery(now).await?;
        let query = Serializer::new(String::new())
            .append_pair("response_type", "code")
            .append_pair("response_mode", "query")
            .append_pair("client_id", &self.options.client_id)
            .append_pair("redirect_uri", sent.redirect_uri)
            .append_pair("scope", &self.options.scopes)
            .append_pair("state", sent.state)
            .append_pair("nonce", sent.nonce)
            .append_pair("code_challenge", sent.challenge)
            .append_pair("code_challenge_method", "S256")
            .finish();
        Ok(with_query(&discovery.authorization_endpoint, &query))
    }

    /// Whether answers of this issuer always name it (RFC 9207), so that one without is not its.
    ///
    /// # Errors
    /// [`ProviderError`].
    pub async fn names_itself(&self, now: Timestamp) -> Result<bool, ProviderError> {
        Ok(self.discovery(now).await?.authorization_response_iss_parameter_supported)
    }

    /// Redeems a code.
    ///
    /// # Errors
    /// [`ProviderError`]; `Refused` for a code that is not good.
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
        let question = Question {
            url: &discovery.token_endpoint,
            form: Some(form),
            authorization,
            accept: "application/json",
        };
        let answer = self.https.ask(question).await?;
        refused(&answer)?;
        let tokens: Tokens = json(&answer, "token endpoint")?;
        if !tokens.token_type.eq_ignore_ascii_case("bearer") {
            return Err(ProviderError::Misbehaved("token endpoint: the token type is not Bearer".into()));
        }
        Ok(tokens)
    }

    /// The issuer's keys, as JSON. `unlike`: a set that lacks a key that was asked for; answers `None` where there is
    /// nothing newer to be had for now.
    ///
    /// # Errors
    /// [`ProviderError`].
    pub async fn keys(
        &self,
        unlike: Option<&Arc<str>>,
        now: Timestamp,
    ) -> Result<Option<Arc<str>>, ProviderError> {
        let discovery = self.discovery(now).await?;
        // Held while asking: whoever comes meanwhile waits for this answer instead of asking, too.
        let mut kept = self.https.in_time(self.keys.lock()).await?;
        if let Some((at, keys)) = &*kept {
            let age_ms = now.ms_since(*at);
            let other = unlike.is_none_or(|unlike| !Arc::ptr_eq(unlike, keys));
            if other && age_ms < KEPT_MS {
                return Ok(Some(Arc::clone(keys)));
            }
            if !other && age_ms < KEYS_AGAIN_MS {
                return Ok(None);
            }
        }
        let answer = self.get(&discovery.jwks_uri).await?;
        let _: serde_json::Map<String, serde_json::Value> = json(&answer, "keys")?;
        let text = std::str::from_utf8(&answer.body);
        let keys: Arc<str> = text.map_err(|error| ProviderError::Misbehaved(error.to_string()))?.into();
        *kept = Some((now, Arc::clone(&keys)));
        Ok(Some(keys))
    }

    /// What the issuer says about whom the token is of, as JSON; `None` where it has no place to ask.
    ///
    /// # Errors
    /// [`ProviderError`].
    pub async fn userinfo(
        &self,
        tokens: &Tokens,
        now: Timestamp,
    ) -> Result<Option<serde_json::Value>, ProviderError> {
        let discovery = self.discovery(now).await?;
        let Some(url) = &discovery.userinfo_endpoint else { return Ok(None) };
        let question = Question {
            url,
            form: None,
            authorization: Some(format!("Bearer {}", tokens.access_token)),
            accept: "application/json",
        };
        json(&self.https.ask(question).await?, "userinfo endpoint").map(Some)
    }

    async fn get(&self, url: &str) -> Result<Answer, ProviderError> {
        let question = Question { url, form: None, authorization: None, accept: "application/json" };
        self.https.ask(question).await
    }

    async fn discovery(&self, now: Timestamp) -> Result<Arc<Discovery>, ProviderError> {
        let mut kept = self.https.in_time(self.discovery.lock()).await?;
        if let Some((at, discovery)) = &*kept
            && now.ms_since(*at) < KEPT_MS
        {
            return Ok(Arc::clone(discovery));
        }
        let issuer = &self.options.issuer;
        let url = format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
        let found: Discovery = json(&self.get(&url).await?, "discovery")?;
        if found.issuer != *issuer {
            let said = format!("discovery: the issuer calls itself {:?}, not {issuer:?}", found.issuer);
            return Err(ProviderError::Misbehaved(said));
        }
        let ours = [Some(&found.token_endpoint), Some(&found.jwks_uri), found.userinfo_endpoint.as_ref()];
        let all = ours.into_iter().flatten().chain([&found.authorization_endpoint]);
        if let Some(url) = all.into_iter().find(|url| !may_follow(issuer, url)) {
            return Err(ProviderError::Misbehaved(format!("discovery: {url:?} is no https:// URL")));
        }
        let found = Arc::new(found);
        *kept = Some((now, Arc::clone(&found)));
        Ok(found)
    }
}

/// A code that is not good is the sign-in's end; a client that is not known is the operator's concern.
fn refused(answer: &Answer) -> Result<(), ProviderError> {
    if !(400..500).contains(&answer.status) || answer.status == 429 {
        return Ok(());
    }
    let said = serde_json::from_slice::<Refusal>(&answer.body).map(|refusal| error_code(&refusal.error));
    match said.as_deref() {
        Ok("invalid_grant") => Err(ProviderError::Refused("invalid_grant".into())),
        Ok(code) => Err(ProviderError::Misbehaved(format!("token endpoint: {code}"))),
        Err(_) => Ok(()),
    }
}

/// RFC 6749 section 2.3.1: both are form-encoded first.
fn basic_credentials(id: &str, secret: &str) -> String {
    let encoded = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
    let pair = format!("{}:{}", encoded(id), encoded(secret));
    format!("Basic {}", BASE64.encode(pair.as_bytes()))
}

pub(super) fn with_query(url: &str, query: &str) -> String {
    let joint = if url.contains('?') { '&' } else { '?' };
    format!("{url}{joint}{query}")
}
