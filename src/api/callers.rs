//! Identifies the caller of a request and what it may access (docs/specification.md B1).
//!
//! The credential layer examines the credential of a request once, charges the request, and stores
//! a [`RequestIdentity`] in its extensions. The extractors here only decide which kinds of caller a
//! handler accepts:
//!
//! * [`SessionCaller`]: a session;
//! * [`QueryCaller`]: a session or an embed token;
//! * [`PrometheusCaller`]: as `QueryCaller`, or an API key with the scope `read`;
//! * [`IngestCaller`]: an API key with the scope `ingest`, or a session of an editor;
//! * [`MintCaller`]: an API key with the scope `embed`, or a session of an editor;
//! * [`AnyCaller`]: anyone.
//!
//! An extractor names no organisation. Its method `enter` does, and only `enter` returns an
//! [`Access`].

use std::borrow::Cow;
use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, header};
use axum::response::{IntoResponse, Response};
use data_encoding::BASE64;

use super::cookies::{self, Cookies, NoCookies};
use super::cors::AllowedOrigins;
use super::encoding::Coding;
use super::error::{ApiError, ApiResult, Code};
use super::host::{self, LocalRequests, Peer, TrustedProxies};
use super::lanes::{self, Lane, Lanes};
use super::limits::{Charge, Limits};
use super::request_id::RequestId;
use super::router::{decoded, of_org};
use crate::clock::Clock;
pub use crate::identity::Endpoint;
use crate::identity::{
    ApiKey, Client, EmbedGrant, EmbedRequest, Identity, KeyId, Limit, Membership, OrgSettings, Origin, Role,
    Session, SessionCheck, UserId, with_origin,
};
use crate::model::{Access, OrgId, Timestamp};

/// The dependencies of the credential layer.
#[derive(Debug)]
pub struct Callers {
    /// Sessions, API keys, embed tokens and memberships.
    pub identity: Arc<Identity>,
    /// The thread pools for the few checks that sync the disk.
    pub lanes: Lanes,
    /// The wall clock.
    pub clock: Clock,
    /// The rate limits that requests are charged to.
    pub limits: Arc<Limits>,
    /// The names and attributes of cookies.
    pub cookies: Cookies,
    /// The proxies whose statement of the client's address is trusted.
    pub proxies: TrustedProxies,
    /// Recognises requests from this machine.
    pub local: LocalRequests,
}

/// The identity of a request's caller, an extension of the request.
#[derive(Debug)]
struct RequestIdentity {
    callers: Arc<Callers>,
    credential: ApiResult<Credential>,
    /// A JWT was sent, valid or not. Cabinet endpoints then require a session, whatever the cookies
    /// say.
    sent_jwt: bool,
    /// The address that is charged and logged, and the browser.
    client: Client,
    local: bool,
    /// The request has an `Origin` header, so the response needs CORS headers.
    from_page: bool,
    coding: Coding,
    /// No other connection has sent a request recently.
    sole_connection: bool,
    /// The charge of an embed token with a valid signature, also if a later check refused it.
    token_charge: Option<TokenCharge>,
    charge: OnceLock<Charge>,
}

/// The charge of a verified embed token to its key.
#[derive(Debug)]
struct TokenCharge {
    charge: ApiResult<Charge>,
    /// The allowed origins of the token, and those of its key.
    origins: Vec<Vec<String>>,
}

#[derive(Debug)]
enum Credential {
    Session { session: Arc<Session>, cookie: String },
    Token { grant: Box<EmbedGrant>, slug: String },
    Key(Arc<ApiKey>),
}

// -- extractors -----------------------------------------------------------------------------------

/// A caller of the discovery and query endpoints (docs/specification.md C5).
#[derive(Clone, Debug)]
pub struct QueryCaller(Arc<RequestIdentity>);

/// A caller of the Prometheus mount (docs/specification.md C6).
#[derive(Clone, Debug)]
pub struct PrometheusCaller(QueryCaller);

/// A caller of the ingestion endpoints (docs/specification.md C7).
#[derive(Clone, Debug)]
pub struct IngestCaller(Arc<RequestIdentity>);

/// A caller that mints embed tokens (docs/specification.md C4).
#[derive(Clone, Debug)]
pub struct MintCaller(Arc<RequestIdentity>);

/// A caller of the cabinet: a live session.
#[derive(Clone, Debug)]
pub struct SessionCaller {
    at: Arc<RequestIdentity>,
    session: Arc<Session>,
}

/// Any caller, identified or not, with the values of its magic link and device cookies.
#[derive(Clone, Debug)]
pub struct AnyCaller {
    at: Arc<RequestIdentity>,
    link: Option<String>,
    device: Option<String>,
}

/// The permission of a caller to query one organisation.
#[derive(Clone, Debug)]
pub struct QueryAccess {
    /// What snapshots may see. `scope.min_time` already includes the token's look-back.
    pub access: Access,
    /// The restrictions on expressions, range and step.
    pub grant: Grant,
    /// The organisation's limits of one query.
    pub quota: Quota,
    /// The id of the user or the API key, for the list of active queries.
    pub requester: Box<str>,
    /// The content coding of the response.
    pub coding: Coding,
    /// No other connection has sent a request recently.
    pub sole_connection: bool,
}

/// An organisation's own limits of one query (docs/specification.md C3). `Default` leaves both to
/// the server.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Quota {
    /// The number of samples that a query may read.
    pub samples: Limit,
    /// The time that a query may take, in seconds.
    pub timeout_s: Limit,
}

impl Quota {
    /// Returns the limits in an organisation's settings.
    pub fn of(settings: &OrgSettings) -> Quota {
        Quota { samples: settings.max_samples_per_query, timeout_s: settings.query_timeout_s }
    }

    /// Returns the number of samples that one query may read.
    pub fn samples_max(&self, default: u64) -> u64 {
        self.samples.or(Some(default)).unwrap_or(u64::MAX)
    }

    /// Returns how long one query may take.
    pub fn timeout(&self, default: Duration) -> Duration {
        match self.timeout_s {
            Limit::Default => default,
            Limit::Unlimited => Duration::MAX,
            Limit::At(seconds) => Duration::from_secs(seconds),
        }
    }
}

/// The restrictions of an embed token and its key apart from the series. `Default` restricts
/// nothing.
#[derive(Clone, Debug, Default)]
pub struct Grant {
    /// The caller is an embed token. Responses then report that the scope may have hidden series.
    pub embed: bool,
    /// The allowed expressions in canonical form, one list of the token and one of the key's
    /// policy. An expression must be in each list.
    pub exprs: Vec<Vec<String>>,
    /// The greatest `end - start`, in milliseconds.
    pub max_range_ms: Option<i64>,
    /// The smallest `step`, in milliseconds.
    pub min_step_ms: Option<i64>,
}

/// The permission of a caller to write samples to one organisation.
#[derive(Clone, Debug)]
pub struct IngestAccess {
    /// The organisation that receives the samples.
    pub org: OrgId,
    /// The labels that the API key sets on every series.
    pub forced_labels: Vec<(Box<str>, Box<str>)>,
    key: Option<Arc<ApiKey>>,
    user: Option<UserId>,
    limits: Arc<Limits>,
}

/// The sender of samples, as the list of refused samples shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sender {
    /// An API key.
    Key {
        /// Its id.
        id: KeyId,
        /// The name that its creator gave it.
        name: String,
    },
    /// The account of a session.
    User(UserId),
}

impl IngestAccess {
    /// Returns the sender of the samples.
    pub fn sender(&self) -> Option<Sender> {
        let key = self.key.as_ref().map(|key| Sender::Key { id: key.id, name: key.name.clone() });
        key.or_else(|| self.user.map(Sender::User))
    }

    /// Charges `samples` to the API key's limit of samples per second. A session has no such limit.
    ///
    /// # Errors
    /// 503 `ingest_throttled` with a jittered `Retry-After`: Prometheus keeps the samples and
    /// resends them after a 503 (docs/specification.md B3).
    pub fn charge_samples(&self, samples: usize) -> ApiResult<()> {
        match &self.key {
            Some(key) => self.limits.charge_samples(key.id, &key.ingest, samples),
            None => Ok(()),
        }
    }
}

impl QueryCaller {
    /// Enters the organisation `slug` to query `endpoint`.
    ///
    /// # Errors
    /// 404 `org_not_found` for a session whose account is not a member, 403 `org_mismatch` for a
    /// token of another organisation, 403 `embed_restricted` if the token does not grant the
    /// endpoint.
    pub fn enter(&self, slug: &str, endpoint: Endpoint) -> ApiResult<QueryAccess> {
        let quota = |org| Quota::of(&self.0.callers.identity.org_settings(org));
        let RequestIdentity { coding, sole_connection, .. } = *self.0;
        let whole = |org, requester: String| QueryAccess {
            access: Access::whole(org),
            grant: Grant::default(),
            quota: quota(org),
            requester: requester.into(),
            coding,
            sole_connection,
        };
        match self.0.credential()? {
            Credential::Session { session, .. } => {
                let member = self.0.membership(session.user, slug, Role::Viewer)?;
                Ok(whole(member.org.id, session.user.to_string()))
            }
            // The token was verified for the slug in the path, so it can enter no other
            // organisation.
            Credential::Token { slug: verified, .. } if verified != slug => Err(org_mismatch()),
            Credential::Token { grant, .. } if !grant.allows(endpoint) => {
                Err(ApiError::new(Code::EmbedRestricted, "this token does not grant this endpoint"))
            }
            Credential::Token { grant, .. } => Ok(QueryAccess {
                access: Access { org: grant.org, scope: grant.scope.clone() },
                grant: Grant {
                    embed: true,
                    exprs: grant.exprs.clone(),
                    max_range_ms: grant.max_range_s.map(ms),
                    min_step_ms: grant.min_step_s.map(ms),
                },
                quota: quota(grant.org),
                requester: grant.key.to_string().into(),
                coding,
                sole_connection,
            }),
            Credential::Key(key) => key_enters(key, slug).map(|org| whole(org, key.id.to_string())),
        }
    }
}

fn ms(seconds: u64) -> i64 {
    i64::try_from(seconds.saturating_mul(1_000)).unwrap_or(i64::MAX)
}

impl PrometheusCaller {
    /// Enters the organisation `slug` to query `endpoint`.
    ///
    /// # Errors
    /// As [`QueryCaller::enter`], and 403 `org_mismatch` for an API key of another organisation.
    pub fn enter(&self, slug: &str, endpoint: Endpoint) -> ApiResult<QueryAccess> {
        self.0.enter(slug, endpoint)
    }
}

impl IngestCaller {
    /// Enters the organisation `slug` to write samples.
    ///
    /// # Errors
    /// 403 `org_mismatch` for an API key of another organisation, 404 `org_not_found` for a session
    /// whose account is not a member, 403 `forbidden` for a viewer.
    pub fn enter(&self, slug: &str) -> ApiResult<IngestAccess> {
        let limits = Arc::clone(&self.0.callers.limits);
        match self.0.credential()? {
            Credential::Key(key) => {
                let org = key_enters(key, slug)?;
                let forced = key
                    .ingest
                    .labels
                    .iter()
                    .map(|(name, value)| (name.as_str().into(), value.as_str().into()));
                let (forced_labels, key) = (forced.collect(), Some(Arc::clone(key)));
                Ok(IngestAccess { org, forced_labels, key, user: None, limits })
            }
            Credential::Session { session, .. } => {
                let org = self.0.membership(session.user, slug, Role::Editor)?.org.id;
                let user = Some(session.user);
                Ok(IngestAccess { org, forced_labels: Vec::new(), key: None, user, limits })
            }
            Credential::Token { .. } => Err(token_cannot_write()),
        }
    }
}

impl MintCaller {
    /// Enters the organisation `slug` to mint embed tokens. The key is `Some` if the caller is an
    /// API key.
    ///
    /// # Errors
    /// As [`IngestCaller::enter`].
    pub fn enter(&self, slug: &str) -> ApiResult<(OrgId, Option<KeyId>)> {
        match self.0.credential()? {
            Credential::Key(key) => Ok((key_enters(key, slug)?, Some(key.id))),
            Credential::Session { session, .. } => {
                Ok((self.0.membership(session.user, slug, Role::Editor)?.org.id, None))
            }
            Credential::Token { .. } => Err(session_required()),
        }
    }

    /// Returns the account that mints, unless the caller is an API key.
    pub fn user(&self) -> Option<UserId> {
        match self.0.credential() {
            Ok(Credential::Session { session, .. }) => Some(session.user),
            _ => None,
        }
    }

    /// Charges a minted token to the API key that signs it. A caller that is an API key has already
    /// been charged by the extractor.
    ///
    /// # Errors
    /// 429 `rate_limited`, scope `api_key`.
    pub fn charge(&self, key: KeyId) -> ApiResult<()> {
        self.0.callers.limits.charge_minting(key).map(drop)
    }
}

impl SessionCaller {
    /// The session.
    pub fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// Returns the account of the session.
    pub fn user(&self) -> UserId {
        self.session.user
    }

    /// Returns whether the account is an administrator of this server.
    ///
    /// # Errors
    /// 503 `storage_degraded`.
    pub fn is_instance_admin(&self) -> ApiResult<bool> {
        Ok(self.at.callers.identity.user(self.session.user)?.is_some_and(|user| user.is_admin))
    }

    /// Enters the organisation `slug` with at least the role `needed`.
    ///
    /// # Errors
    /// 404 `org_not_found` for an account that is not a member, as for an organisation that does
    /// not exist; 403 `forbidden` for a member with a lesser role.
    pub fn enter(&self, slug: &str, needed: Role) -> ApiResult<Membership> {
        self.at.membership(self.session.user, slug, needed)
    }

    /// Requires a fresh login: the owner proved the identity within the last 15 minutes.
    ///
    /// # Errors
    /// 403 `reauth_required`.
    pub fn require_fresh(&self) -> ApiResult<()> {
        if self.session.is_fresh(self.at.callers.clock.now()) {
            return Ok(());
        }
        Err(ApiError::new(
            Code::ReauthRequired,
            "log in again to do this: the last login is older than 15 minutes",
        ))
    }
}

impl AnyCaller {
    /// Returns the client's address and browser.
    pub fn client(&self) -> &Client {
        &self.at.client
    }

    /// Returns whether the request comes from this machine, by the rules of [`LocalRequests`].
    pub fn is_local(&self) -> bool {
        self.at.local
    }

    /// Returns the live session of this request and the value of its cookie.
    pub fn session(&self) -> Option<(&Arc<Session>, &str)> {
        match &self.at.credential {
            Ok(Credential::Session { session, cookie }) => Some((session, cookie)),
            _ => None,
        }
    }

    /// Returns the value of the magic link cookie, whose name depends on whether cookies are
    /// secure.
    pub fn magic_link_cookie(&self) -> Option<&str> {
        self.link.as_deref()
    }

    /// Returns the value of the cookie `ms_device`.
    pub fn device_cookie(&self) -> Option<&str> {
        self.device.as_deref()
    }
}

impl RequestIdentity {
    fn credential(&self) -> ApiResult<&Credential> {
        self.credential.as_ref().map_err(Clone::clone)
    }

    fn membership(&self, user: UserId, slug: &str, needed: Role) -> ApiResult<Membership> {
        let found = self.callers.identity.membership(user, slug)?;
        let member = found.ok_or_else(org_not_found)?;
        if !member.role.allows(needed) {
            let detail =
                format!("this needs the role {}, yours is {}", needed.as_str(), member.role.as_str());
            return Err(ApiError::new(Code::Forbidden, detail));
        }
        Ok(member)
    }

    /// Charges a request with an API key that this endpoint does not accept to its address. The
    /// key's own buckets are for what keys may do. Without any charge, a key would be a way around
    /// the limit of anonymous requests.
    fn charge_misplaced_key(&self) -> ApiResult<()> {
        match &self.credential {
            Ok(Credential::Key(_)) => {
                self.callers.limits.charge_address(self.client.ip).map(|charge| self.record_charge(charge))
            }
            _ => Ok(()),
        }
    }

    /// Records the charge that the response headers report. The first charge of a request wins.
    fn record_charge(&self, charge: Charge) {
        let _ = self.charge.set(charge);
    }

    /// Charges a read by an API key to the key's own window.
    fn charge_reader(&self, key: &ApiKey) -> ApiResult<()> {
        self.record_charge(self.callers.limits.charge_reader(key.id, key.read.rate_limit_rps)?);
        Ok(())
    }
}

/// Returns the error for an organisation that does not exist or that the caller is not a member of.
/// Both cases look the same to the caller.
pub fn org_not_found() -> ApiError {
    ApiError::new(Code::OrgNotFound, "there is no such organisation, or you are not its member")
}

fn org_mismatch() -> ApiError {
    ApiError::new(Code::OrgMismatch, "this credential belongs to another organisation")
}

fn session_required() -> ApiError {
    ApiError::new(
        Code::SessionRequired,
        "this endpoint needs a session cookie; tokens and API keys are not accepted",
    )
}

fn token_cannot_write() -> ApiError {
    ApiError::new(Code::EmbedRestricted, "an embed token cannot write")
}

fn missing_scope(scope: &str) -> ApiError {
    ApiError::new(Code::Forbidden, format!("this API key lacks the scope {scope}"))
}

fn key_enters(key: &ApiKey, slug: &str) -> ApiResult<OrgId> {
    if key.slug.as_str() == slug { Ok(key.org) } else { Err(org_mismatch()) }
}

fn request_identity(parts: &Parts) -> ApiResult<Arc<RequestIdentity>> {
    let found = parts.extensions.get::<Arc<RequestIdentity>>().cloned();
    found.ok_or_else(|| ApiError::internal("a route that needs a caller is outside of the credential layer"))
}

impl<S: Send + Sync> FromRequestParts<S> for QueryCaller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> ApiResult<QueryCaller> {
        let at = request_identity(parts)?;
        match at.credential()? {
            Credential::Session { .. } | Credential::Token { .. } => Ok(QueryCaller(at)),
            Credential::Key(_) => {
                at.charge_misplaced_key()?;
                Err(ApiError::new(Code::ApiKeyNotAllowed, "this endpoint takes a session cookie or an embed token")
                    .with("hint", "mint an embed token with this key, or use /api/v1/orgs/{slug}/prometheus with a key that has the scope read"))
            }
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for PrometheusCaller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> ApiResult<PrometheusCaller> {
        let at = request_identity(parts)?;
        if let Credential::Key(key) = at.credential()? {
            at.charge_reader(key)?;
            if !key.scopes.read {
                return Err(missing_scope("read"));
            }
        }
        Ok(PrometheusCaller(QueryCaller(at)))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for IngestCaller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> ApiResult<IngestCaller> {
        let at = request_identity(parts)?;
        match at.credential()? {
            Credential::Session { .. } => {}
            Credential::Token { .. } => return Err(token_cannot_write()),
            Credential::Key(key) => {
                at.callers.limits.charge_ingest(key.id, &key.ingest)?;
                if !key.scopes.ingest {
                    return Err(missing_scope("ingest"));
                }
            }
        }
        Ok(IngestCaller(at))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for MintCaller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> ApiResult<MintCaller> {
        let at = request_identity(parts)?;
        if at.sent_jwt {
            return Err(session_required());
        }
        if let Credential::Key(key) = at.credential()? {
            at.record_charge(at.callers.limits.charge_minting(key.id)?);
            if !key.scopes.embed {
                return Err(missing_scope("embed"));
            }
        }
        Ok(MintCaller(at))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for SessionCaller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> ApiResult<SessionCaller> {
        let at = request_identity(parts)?;
        if at.sent_jwt {
            return Err(session_required());
        }
        match at.credential()? {
            Credential::Session { session, .. } => Ok(SessionCaller { session: Arc::clone(session), at }),
            Credential::Key(_) => {
                at.charge_misplaced_key()?;
                Err(session_required())
            }
            Credential::Token { .. } => Err(session_required()),
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for AnyCaller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> ApiResult<AnyCaller> {
        let cookie = |name| cookies::values(&parts.headers, name, 1).first().map(|&value| value.to_owned());
        let at = request_identity(parts)?;
        let (link, device) = (cookie(at.callers.cookies.magic_link_name()), cookie(cookies::DEVICE));
        at.charge_misplaced_key()?;
        // A session that cannot be checked because storage fails is not the same as no session.
        if let Err(refused) = &at.credential
            && refused.code().status().is_server_error()
        {
            return Err(refused.clone());
        }
        Ok(AnyCaller { at, link, device })
    }
}

// -- the credential layer -------------------------------------------------------------------------

/// Identifies and charges the caller, runs `next`, and renews the session that the caller used.
pub(super) async fn credential<N, F>(
    callers: &Arc<Callers>,
    request: Request,
    id: &RequestId,
    next: N,
) -> Response
where
    N: FnOnce(Request) -> F,
    F: Future<Output = Response>,
{
    if !is_api(request.uri().path()) {
        return next(request).await;
    }
    let (parts, body) = request.into_parts();
    let origin = callers.origin(&parts, id);
    // Boxed, because a future is copied whole into each of the seven futures around this one.
    let answered = Box::pin(identify_and_charge(callers, parts, body, next));
    lanes::ORIGIN.scope(origin, answered).await
}

async fn identify_and_charge<N, F>(callers: &Arc<Callers>, parts: Parts, body: Body, next: N) -> Response
where
    N: FnOnce(Request) -> F,
    F: Future<Output = Response>,
{
    let now = callers.clock.now();
    let logout = parts.method == Method::POST && parts.uri.path().ends_with("/auth/logout");
    let at = Arc::new(callers.identify(&parts, logout, now).await);
    let mut request = Request::from_parts(parts, body);
    let mut response = match at.charge() {
        // A logout is counted but never refused: everyone can always log out.
        Err(refused) if !logout => refused.into_response(),
        _ => {
            request.extensions_mut().insert(Arc::clone(&at));
            next(request).await
        }
    };
    at.decorate_response(&mut response);
    response
}

/// Returns whether callers of `path` are identified and charged. They are on the API and its
/// alias, but not on files, health and metrics.
pub fn is_api(path: &str) -> bool {
    path.starts_with("/api/") || path.starts_with("/auth/") || path == "/api" || path == "/auth"
}

impl RequestIdentity {
    /// Charges the request to its verified caller, otherwise to its address.
    fn charge(&self) -> ApiResult<()> {
        let limits = &self.callers.limits;
        if let Some(token) = &self.token_charge {
            self.record_charge(token.charge.clone()?);
            return Ok(());
        }
        let charge = match &self.credential {
            Ok(Credential::Session { session, .. }) => limits.charge_session(session.id)?,
            // The charge of an API key depends on the operation, so its extractor charges it. A
            // token is charged above.
            Ok(Credential::Key(_) | Credential::Token { .. }) => return Ok(()),
            Err(_) => limits.charge_address(self.client.ip)?,
        };
        self.record_charge(charge);
        Ok(())
    }

    /// Adds the renewed session cookie, the rate limit headers and the allowed origins to a
    /// response.
    fn decorate_response(&self, response: &mut Response) {
        if let Some(charge) = self.charge.get() {
            charge.write(response);
        }
        if let Some(token) = self.token_charge.as_ref().filter(|_| self.from_page) {
            response.extensions_mut().insert(AllowedOrigins(token.origins.clone()));
        }
        let sets_cookies = response.extensions().get::<NoCookies>().is_none();
        if !sets_cookies {
            response.headers_mut().remove(header::SET_COOKIE);
        }
        match &self.credential {
            Ok(Credential::Session { cookie, .. }) => {
                if sets_cookies && !cookies::decides_session(response.headers()) {
                    response.headers_mut().append(header::SET_COOKIE, self.callers.cookies.session(cookie));
                }
            }
            Ok(Credential::Key(key)) if self.from_page => {
                response.extensions_mut().insert(AllowedOrigins(vec![key.embed.origins.clone()]));
            }
            Ok(Credential::Token { .. } | Credential::Key(_)) | Err(_) => {}
        }
    }
}

impl Callers {
    /// Returns the origin of the request for the audit log.
    fn origin(&self, parts: &Parts, id: &RequestId) -> Origin {
        let ip = self.proxies.client(host::peer(parts), &parts.headers);
        Origin { ip: Some(ip), request_id: Some(id.as_str().into()) }
    }

    async fn identify(self: &Arc<Callers>, parts: &Parts, logout: bool, now: Timestamp) -> RequestIdentity {
        let peer = host::peer(parts);
        // A request without a peer address (in-process tests) never counts as concurrent.
        let sole_connection =
            parts.extensions.get::<Peer>().is_none_or(|Peer(from)| self.lanes.note_arrival(*from));
        let user_agent =
            parts.headers.get(header::USER_AGENT).map(|v| String::from_utf8_lossy(v.as_bytes()).into_owned());
        let client = Client {
            ip: self.proxies.client(peer, &parts.headers),
            user_agent: user_agent.unwrap_or_default(),
        };
        let mut sent_jwt = false;
        // With an Authorization header, cookies are ignored: a bad token never falls back to a good
        // cookie.
        let mut token_charge = None;
        let credential = if parts.headers.contains_key(header::AUTHORIZATION) {
            match authorization(&parts.headers) {
                Ok(AuthorizationHeader::Key { secret, id }) => self.key(&secret, id.as_deref(), now),
                Ok(AuthorizationHeader::Jwt(token)) => {
                    sent_jwt = true;
                    self.token(&token, parts, &mut token_charge, now).await
                }
                Err(refused) => Err(refused),
            }
        } else {
            self.cookie(&parts.headers, logout, now).await
        };
        let local = self.local.includes(peer, parts.version, &parts.headers);
        let from_page = parts.headers.contains_key(header::ORIGIN);
        let coding = Coding::of(&parts.headers);
        RequestIdentity {
            callers: Arc::clone(self),
            credential,
            sent_jwt,
            client,
            local,
            from_page,
            coding,
            sole_connection,
            token_charge,
            charge: OnceLock::new(),
        }
    }

    fn key(&self, secret: &str, id: Option<&str>, now: Timestamp) -> ApiResult<Credential> {
        let invalid = || ApiError::new(Code::ApiKeyInvalid, "this API key is unknown, disabled or expired");
        if !secret.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            return Err(ApiError::new(Code::ApiKeyInvalid, INVALID_KEY_CHARACTER));
        }
        let key = self.identity.api_key(secret, now).ok_or_else(invalid)?;
        match id {
            Some(id) if id != key.id.to_string() => Err(invalid()),
            _ => Ok(Credential::Key(key)),
        }
    }

    /// Verifies an embed token.
    ///
    /// Its key is charged as soon as signature and claims are valid, before the token's matchers
    /// are compiled, so a request beyond the rate limit costs no more than its verification.
    /// Matchers that are not cached are compiled on the query lane, in the share of the key's
    /// organisation.
    async fn token(
        &self,
        token: &str,
        parts: &Parts,
        token_charge: &mut Option<TokenCharge>,
        now: Timestamp,
    ) -> ApiResult<Credential> {
        let Some(slug) = slug_of(parts.uri.path()) else { return Err(session_required()) };
        let origin = parts.headers.get(header::ORIGIN).map(|value| value.to_str().unwrap_or("null"));
        let from = lanes::ORIGIN.try_with(Clone::clone).unwrap_or_default();
        let request = EmbedRequest { token, slug: &slug, origin };
        let verified = with_origin(&from, || self.identity.verify_token(&request, now));
        let verified = verified.map_err(|refusal| match refusal.is_no_token() {
            true => ApiError::new(Code::TokenInvalid, UNKNOWN_BEARER),
            false => refusal.into(),
        })?;
        let charge = self.limits.charge_key(verified.key(), verified.rate_limit_rps());
        *token_charge = Some(TokenCharge { charge: charge.clone(), origins: verified.origins() });
        charge?;
        let grant = if self.identity.grants_at_once(&verified) {
            with_origin(&from, || self.identity.grant(verified, now))?
        } else {
            let identity = Arc::clone(&self.identity);
            self.lanes.run(Lane::Query(verified.org()), move || identity.grant(verified, now)).await??
        };
        Ok(Credential::Token { grant: Box::new(grant), slug: slug.into_owned() })
    }

    /// Identifies the session of the cookies.
    ///
    /// Up to four cookies of this name are tried, because another application on this host may have
    /// set one, too. For a logout a session is not persisted first, because the disk may be what
    /// prevents that. If no session is live, a logout gets the ended one whose row is still on
    /// disk, so that it removes that row as well.
    async fn cookie(&self, headers: &HeaderMap, logout: bool, now: Timestamp) -> ApiResult<Credential> {
        let mut refused = ApiError::new(Code::Unauthenticated, "no credential was sent");
        let mut left = None;
        for cookie in cookies::values(headers, cookies::SESSION, 4) {
            let identity = Arc::clone(&self.identity);
            match self.identity.session(cookie, now) {
                SessionCheck::Live(session) => {
                    return Ok(Credential::Session { session, cookie: cookie.to_owned() });
                }
                SessionCheck::LiveOncePersisted(session) if logout => {
                    return Ok(Credential::Session { session, cookie: cookie.to_owned() });
                }
                SessionCheck::LiveOncePersisted(session) => {
                    let renewed = Arc::clone(&session);
                    self.lanes.run(Lane::Account, move || identity.persist_session(&renewed)).await??;
                    return Ok(Credential::Session { session, cookie: cookie.to_owned() });
                }
                SessionCheck::Expired(session) | SessionCheck::Ended(session) if logout => {
                    left = Some(Credential::Session { session, cookie: cookie.to_owned() });
                }
                // The owner ended this session and got an error, because the end is not stored yet.
                SessionCheck::Ended(session) if now < session.expires_at() => {}
                SessionCheck::Expired(session) | SessionCheck::Ended(session) => {
                    self.lanes.run(Lane::Account, move || identity.end_session(&session, now)).await??;
                }
                SessionCheck::Unknown => {}
            }
            refused = ApiError::new(Code::SessionInvalid, "this session has ended; log in again");
        }
        left.ok_or(refused)
    }
}

/// Returns the slug of the organisation in a path, percent-decoded like a handler's path
/// parameters, so that `acme` and `%61cme` are the same organisation in every check and counter.
/// Text that cannot be decoded is returned unchanged; no slug contains a percent sign.
pub(super) fn slug_of(path: &str) -> Option<Cow<'_, str>> {
    let slug = of_org(path)?.next().filter(|slug| !slug.is_empty())?;
    Some(decoded(slug).unwrap_or(Cow::Borrowed(slug)))
}

/// The message for a bearer credential of no known form. The usual cause is an environment variable
/// that is not set or holds another value.
const UNKNOWN_BEARER: &str = "this bearer is neither an API key, which begins with msk_, nor an embed token, which is a \
                             JWT: three parts between dots";

/// The message for an API key that was shortened or copied together with neighbouring text.
const INVALID_KEY_CHARACTER: &str = "this API key contains a character that no key has: keys are made of letters, digits and _; \
                                 copy the whole key";

/// The credential in an `Authorization` header.
enum AuthorizationHeader {
    Key { secret: String, id: Option<String> },
    Jwt(String),
}

/// Parses the `Authorization` header. Schemes are matched in any letter case.
fn authorization(headers: &HeaderMap) -> ApiResult<AuthorizationHeader> {
    let invalid = |detail: &'static str| ApiError::new(Code::TokenInvalid, detail);
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return Err(invalid("more than one Authorization header"));
    };
    // Credentials are ASCII. Other text is decoded all the same, so that the error can name the
    // kind of credential.
    let text = String::from_utf8_lossy(value.as_bytes());
    let (scheme, rest) = text
        .trim_ascii()
        .split_once(' ')
        .ok_or_else(|| invalid("the Authorization header holds no credential"))?;
    let rest = rest.trim_ascii();
    if scheme.eq_ignore_ascii_case("bearer") {
        return match rest.starts_with("msk_") {
            true => Ok(AuthorizationHeader::Key { secret: rest.to_owned(), id: None }),
            false => Ok(AuthorizationHeader::Jwt(rest.to_owned())),
        };
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return Err(invalid("the schemes are Bearer, and Basic with an API key as password"));
    }
    let refused = || ApiError::new(Code::ApiKeyInvalid, "Basic takes an API key as password");
    let decoded = BASE64
        .decode(rest.as_bytes())
        .ok()
        .and_then(|bytes| String::from_utf8(bytes).ok())
        .ok_or_else(refused)?;
    let (user, secret) = decoded.split_once(':').ok_or_else(refused)?;
    Ok(AuthorizationHeader::Key {
        secret: secret.to_owned(),
        id: user.starts_with("ak_").then(|| user.to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn an_organisation_can_lower_and_raise_the_limits_of_a_query() {
        let half_a_minute = Duration::from_secs(30);
        let quota = |limit| Quota { samples: limit, timeout_s: limit };
        let cost = |limit| (quota(limit).samples_max(9), quota(limit).timeout(half_a_minute));
        assert_eq!(cost(Limit::Default), (9, half_a_minute));
        assert_eq!(cost(Limit::At(300)), (300, Duration::from_secs(300)));
        assert_eq!(cost(Limit::Unlimited), (u64::MAX, Duration::MAX));
    }

    #[test]
    fn an_authorization_header_is_parsed() {
        let read = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::AUTHORIZATION, HeaderValue::from_str(text).expect("a value"));
            match authorization(&headers) {
                Ok(AuthorizationHeader::Key { secret, id: None }) => format!("key {secret}"),
                Ok(AuthorizationHeader::Key { secret, id: Some(id) }) => format!("key {secret} of {id}"),
                Ok(AuthorizationHeader::Jwt(token)) => format!("jwt {token}"),
                Err(refused) => refused.code().as_str().to_owned(),
            }
        };
        let basic = |text: &str| format!("bAsIc {}", BASE64.encode(text.as_bytes()));
        assert_eq!(read("Bearer a.b.c"), "jwt a.b.c");
        assert_eq!(read("BEARER msk_x"), "key msk_x");
        assert_eq!(read(&basic("any:msk_x")), "key msk_x");
        assert_eq!(read(&basic("ak_1:msk_x")), "key msk_x of ak_1");
        assert_eq!(read(&basic("nocolon")), "api_key_invalid");
        assert_eq!(read("Basic !"), "api_key_invalid");
        assert_eq!(read("Digest x"), "token_invalid");
        assert_eq!(read("Bearer"), "token_invalid");
        assert_eq!(read("Bearer msk_\u{2026}"), "key msk_\u{2026}");
        assert_eq!(read("Bearer \u{2026}"), "jwt \u{2026}");
        let mut two = HeaderMap::new();
        two.append(header::AUTHORIZATION, HeaderValue::from_static("Bearer a"));
        two.append(header::AUTHORIZATION, HeaderValue::from_static("Bearer b"));
        assert!(authorization(&two).is_err());
    }
}
