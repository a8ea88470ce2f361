//! Who is calling, and what that lets them do (docs/specification.md B1).
//!
//! The credential layer looks at a request once, charges it, and leaves what it found with the request. The extractors
//! here only say which kinds of caller a handler accepts: [`Cabinet`] a session, [`Reader`] a session or an embed token,
//! [`MountReader`] those or an API key that may read, [`Machine`] an API key that may ingest or a session of an editor,
//! [`Minter`] an API key that may mint or a session of an editor, [`Visitor`] anyone. None of them names an organisation
//! yet: `enter` does, and is the only way to an [`Access`].

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
use super::dispatch::{decoded, of_org};
use super::encoding::Coding;
use super::error::{ApiError, ApiResult, Code};
use super::host::{self, LocalRequests, Peer, TrustedProxies};
use super::lanes::{self, Lane, Lanes};
use super::limits::{Charge, Limits};
use super::request_id::RequestId;
use crate::clock::Clock;
pub use crate::identity::Endpoint;
use crate::identity::{
    ApiKey, Client, EmbedGrant, EmbedRequest, Identity, KeyId, Limit, Membership, OrgSettings, Origin, Role,
    Session, SessionCheck, UserId, with_origin,
};
use crate::model::{Access, OrgId, Timestamp};

/// What the credential layer works with.
#[derive(Debug)]
pub struct Callers {
    /// Sessions, keys, tokens, memberships.
    pub identity: Arc<Identity>,
    /// For the few checks that end in a disk sync.
    pub lanes: Lanes,
    /// What time it is.
    pub clock: Clock,
    /// What callers are charged to.
    pub limits: Arc<Limits>,
    /// How cookies are written.
    pub cookies: Cookies,
    /// Whose word about the client's address is taken.
    pub proxies: TrustedProxies,
    /// Which requests come from this machine.
    pub local: LocalRequests,
}

/// What the credential layer found; left with the request.
#[derive(Debug)]
struct Identified {
    callers: Arc<Callers>,
    who: ApiResult<Who>,
    /// A JWT was sent, good or bad: on cabinet endpoints it is no session whatever it is.
    sent_jwt: bool,
    /// An address for whom to charge and to write into lists.
    client: Client,
    local: bool,
    /// A page asks: which origins may read the answer is of interest.
    from_page: bool,
    coding: Coding,
    /// No other connection has sent a request of late.
    alone: bool,
    /// Of a verified embed token, whatever became of it afterwards.
    token_charge: Option<TokenCharge>,
    charge: OnceLock<Charge>,
}

/// The charge of a verified embed token to its key.
#[derive(Debug)]
struct TokenCharge {
    charge: ApiResult<Charge>,
    /// The allow-lists of origins of the token and its key.
    origins: Vec<Vec<String>>,
}

#[derive(Debug)]
enum Who {
    Session { session: Arc<Session>, cookie: String },
    Token { grant: Box<EmbedGrant>, slug: String },
    Key(Arc<ApiKey>),
}

// -- extractors -----------------------------------------------------------------------------------------------------

/// A session or an embed token: discover and query (docs/specification.md C5).
#[derive(Clone, Debug)]
pub struct Reader(Arc<Identified>);

/// As [`Reader`], or an API key with the scope `read`: the Prometheus mount (docs/specification.md C6).
#[derive(Clone, Debug)]
pub struct MountReader(Reader);

/// An API key with the scope `ingest`, or a session of an editor: ingestion (docs/specification.md C7).
#[derive(Clone, Debug)]
pub struct Machine(Arc<Identified>);

/// An API key with the scope `embed`, or a session of an editor: minting tokens (docs/specification.md C4).
#[derive(Clone, Debug)]
pub struct Minter(Arc<Identified>);

/// A session: everything of the cabinet.
#[derive(Clone, Debug)]
pub struct Cabinet {
    at: Arc<Identified>,
    session: Arc<Session>,
}

/// Anyone, with what is known about them.
#[derive(Clone, Debug)]
pub struct Visitor {
    at: Arc<Identified>,
    link: Option<String>,
    device: Option<String>,
}

/// A reader inside an organisation.
#[derive(Clone, Debug)]
pub struct Entered {
    /// What its snapshot may see; `scope.min_time` is already the token's look-back.
    pub access: Access,
    /// What it may ask.
    pub grant: Grant,
    /// What the organisation lets one question cost.
    pub quota: Quota,
    /// A user's or a key's id, for the list of questions under way.
    pub asker: Box<str>,
    /// How the answer may be coded.
    pub coding: Coding,
    /// No other connection has sent a request of late.
    pub alone: bool,
}

/// An organisation's own limits of one question (docs/specification.md C3). The default leaves both to the server.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Quota {
    /// Samples.
    pub samples: Limit,
    /// Seconds.
    pub timeout_s: Limit,
}

impl Quota {
    /// As the organisation's settings say.
    pub fn of(settings: &OrgSettings) -> Quota {
        Quota { samples: settings.max_samples_per_query, timeout_s: settings.query_timeout_s }
    }

    /// Samples that one question may read.
    pub fn samples_max(&self, default: u64) -> u64 {
        self.samples.or(Some(default)).unwrap_or(u64::MAX)
    }

    /// How long one question may take.
    pub fn timeout(&self, default: Duration) -> Duration {
        match self.timeout_s {
            Limit::Default => default,
            Limit::Unlimited => Duration::MAX,
            Limit::At(seconds) => Duration::from_secs(seconds),
        }
    }
}

/// What a token and its key restrict beside the series themselves. The default restricts nothing.
#[derive(Clone, Debug, Default)]
pub struct Grant {
    /// Whether an embed token asks: its answers say so when the scope may have hidden series.
    pub embed: bool,
    /// The only expressions allowed, printed canonically; each list must hold it (token ∩ key policy).
    pub exprs: Vec<Vec<String>>,
    /// `end - start` at most, in milliseconds.
    pub max_range_ms: Option<i64>,
    /// `step` at least, in milliseconds.
    pub min_step_ms: Option<i64>,
}

/// A machine inside an organisation.
#[derive(Clone, Debug)]
pub struct Writing {
    /// Whose series are written.
    pub org: OrgId,
    /// Labels that the key forces onto every series.
    pub forced_labels: Vec<(Box<str>, Box<str>)>,
    key: Option<Arc<ApiKey>>,
    user: Option<UserId>,
    limits: Arc<Limits>,
}

/// Who sent samples, as the list of refusals names them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sender {
    /// An API key.
    Key {
        /// Its id.
        id: KeyId,
        /// What its maker called it.
        name: String,
    },
    /// A session's account.
    User(UserId),
}

impl Writing {
    /// Who sends.
    pub fn sender(&self) -> Option<Sender> {
        let key = self.key.as_ref().map(|key| Sender::Key { id: key.id, name: key.name.clone() });
        key.or_else(|| self.user.map(Sender::User))
    }

    /// Charges `samples` to the key's samples per second; a session is not limited here.
    ///
    /// # Errors
    /// 503 `ingest_throttled` with a jittered `Retry-After`: Prometheus keeps and resends on 503 (docs/specification.md B3).
    pub fn charge_samples(&self, samples: usize) -> ApiResult<()> {
        match &self.key {
            Some(key) => self.limits.charge_samples(key.id, &key.ingest, samples),
            None => Ok(()),
        }
    }
}

impl Reader {
    /// Enters the organisation `slug` to ask for `endpoint`.
    ///
    /// # Errors
    /// 404 `org_not_found` for a session that is not its member, 403 `org_mismatch` for a token of another one, 403
    /// `embed_restricted` where the token does not grant the endpoint.
    pub fn enter(&self, slug: &str, endpoint: Endpoint) -> ApiResult<Entered> {
        let quota = |org| Quota::of(&self.0.callers.identity.org_settings(org));
        let Identified { coding, alone, .. } = *self.0;
        let whole = |org, asker: String| Entered {
            access: Access::whole(org),
            grant: Grant::default(),
            quota: quota(org),
            asker: asker.into(),
            coding,
            alone,
        };
        match self.0.who()? {
            Who::Session { session, .. } => {
                let member = self.0.membership(session.user, slug, Role::Viewer)?;
                Ok(whole(member.org.id, session.user.to_string()))
            }
            // The token was verified for the slug in the path; a handler cannot enter another one with it.
            Who::Token { slug: verified, .. } if verified != slug => Err(org_mismatch()),
            Who::Token { grant, .. } if !grant.allows(endpoint) => {
                Err(ApiError::new(Code::EmbedRestricted, "this token does not grant this endpoint"))
            }
            Who::Token { grant, .. } => Ok(Entered {
                access: Access { org: grant.org, scope: grant.scope.clone() },
                grant: Grant {
                    embed: true,
                    exprs: grant.exprs.clone(),
                    max_range_ms: grant.max_range_s.map(ms),
                    min_step_ms: grant.min_step_s.map(ms),
                },
                quota: quota(grant.org),
                asker: grant.key.to_string().into(),
                coding,
                alone,
            }),
            Who::Key(key) => key_enters(key, slug).map(|org| whole(org, key.id.to_string())),
        }
    }
}

fn ms(seconds: u64) -> i64 {
    i64::try_from(seconds.saturating_mul(1_000)).unwrap_or(i64::MAX)
}

impl MountReader {
    /// As [`Reader::enter`]; an API key of another organisation is 403 `org_mismatch`.
    ///
    /// # Errors
    /// As [`Reader::enter`].
    pub fn enter(&self, slug: &str, endpoint: Endpoint) -> ApiResult<Entered> {
        self.0.enter(slug, endpoint)
    }
}

impl Machine {
    /// Enters the organisation `slug` to write.
    ///
    /// # Errors
    /// 403 `org_mismatch` for a key of another organisation, 404 `org_not_found` for a session that is not its member,
    /// 403 `forbidden` for a viewer.
    pub fn enter(&self, slug: &str) -> ApiResult<Writing> {
        let limits = Arc::clone(&self.0.callers.limits);
        match self.0.who()? {
            Who::Key(key) => {
                let org = key_enters(key, slug)?;
                let forced = key
                    .ingest
                    .labels
                    .iter()
                    .map(|(name, value)| (name.as_str().into(), value.as_str().into()));
                let (forced_labels, key) = (forced.collect(), Some(Arc::clone(key)));
                Ok(Writing { org, forced_labels, key, user: None, limits })
            }
            Who::Session { session, .. } => {
                let org = self.0.membership(session.user, slug, Role::Editor)?.org.id;
                let user = Some(session.user);
                Ok(Writing { org, forced_labels: Vec::new(), key: None, user, limits })
            }
            Who::Token { .. } => Err(no_writing_token()),
        }
    }
}

impl Minter {
    /// Enters the organisation `slug` to mint; the key is the caller's, where a key calls.
    ///
    /// # Errors
    /// As [`Machine::enter`].
    pub fn enter(&self, slug: &str) -> ApiResult<(OrgId, Option<KeyId>)> {
        match self.0.who()? {
            Who::Key(key) => Ok((key_enters(key, slug)?, Some(key.id))),
            Who::Session { session, .. } => {
                Ok((self.0.membership(session.user, slug, Role::Editor)?.org.id, None))
            }
            Who::Token { .. } => Err(session_required()),
        }
    }

    /// The person who mints, if it is one.
    pub fn user(&self) -> Option<UserId> {
        match self.0.who() {
            Ok(Who::Session { session, .. }) => Some(session.user),
            _ => None,
        }
    }

    /// Charges a token to the key that signs it: a key that calls is charged before anything is read.
    ///
    /// # Errors
    /// 429 `rate_limited`, scope `api_key`.
    pub fn charge(&self, key: KeyId) -> ApiResult<()> {
        self.0.callers.limits.charge_minting(key).map(drop)
    }
}

impl Cabinet {
    /// The session.
    pub fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// Whose it is.
    pub fn user(&self) -> UserId {
        self.session.user
    }

    /// Whether the account administers this server.
    ///
    /// # Errors
    /// 503 `storage_degraded`.
    pub fn is_instance_admin(&self) -> ApiResult<bool> {
        Ok(self.at.callers.identity.user(self.session.user)?.is_some_and(|user| user.is_admin))
    }

    /// Enters the organisation `slug` with at least the role `needed`.
    ///
    /// # Errors
    /// 404 `org_not_found` for a stranger, the same as for an organisation that does not exist; 403 `forbidden` for a
    /// member of a lesser role.
    pub fn enter(&self, slug: &str, needed: Role) -> ApiResult<Membership> {
        self.at.membership(self.session.user, slug, needed)
    }

    /// That the owner proved who they are in the last 15 minutes.
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

impl Visitor {
    /// Address and browser.
    pub fn client(&self) -> &Client {
        &self.at.client
    }

    /// Whether the request comes from this machine: [`LocalRequests`].
    pub fn is_local(&self) -> bool {
        self.at.local
    }

    /// The live session of this request, if any, and its cookie's value.
    pub fn session(&self) -> Option<(&Arc<Session>, &str)> {
        match &self.at.who {
            Ok(Who::Session { session, cookie }) => Some((session, cookie)),
            _ => None,
        }
    }

    /// The value of the cookie `ms_ml`, whatever its name is here.
    pub fn magic_link_cookie(&self) -> Option<&str> {
        self.link.as_deref()
    }

    /// The value of the cookie `ms_device`.
    pub fn device_cookie(&self) -> Option<&str> {
        self.device.as_deref()
    }
}

impl Identified {
    fn who(&self) -> ApiResult<&Who> {
        self.who.as_ref().map_err(Clone::clone)
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

    /// Charges a request to its address where an API key came along that says nothing here: its own buckets are for what
    /// keys do, and no bucket at all would be a way around the one for strangers.
    fn charge_misplaced_key(&self) -> ApiResult<()> {
        match &self.who {
            Ok(Who::Key(_)) => {
                self.callers.limits.charge_address(self.client.ip).map(|charge| self.leave(charge))
            }
            _ => Ok(()),
        }
    }

    /// What the answer's headers are to say, unless something else was charged before.
    fn leave(&self, charge: Charge) {
        let _ = self.charge.set(charge);
    }

    /// Charges a read with an API key to the key's own window.
    fn charge_reader(&self, key: &ApiKey) -> ApiResult<()> {
        self.leave(self.callers.limits.charge_reader(key.id, key.read.rate_limit_rps)?);
        Ok(())
    }
}

/// The one answer for an organisation that is not there and for one that is none of the caller's business.
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

fn no_writing_token() -> ApiError {
    ApiError::new(Code::EmbedRestricted, "an embed token cannot write")
}

fn missing_scope(scope: &str) -> ApiError {
    ApiError::new(Code::Forbidden, format!("this API key lacks the scope {scope}"))
}

fn key_enters(key: &ApiKey, slug: &str) -> ApiResult<OrgId> {
    if key.slug.as_str() == slug { Ok(key.org) } else { Err(org_mismatch()) }
}

fn identified(parts: &Parts) -> ApiResult<Arc<Identified>> {
    let found = parts.extensions.get::<Arc<Identified>>().cloned();
    found.ok_or_else(|| {
        ApiError::internal("a route that needs a caller stands outside of the credential layer")
    })
}

impl<S: Send + Sync> FromRequestParts<S> for Reader {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> ApiResult<Reader> {
        let at = identified(parts)?;
        match at.who()? {
            Who::Session { .. } | Who::Token { .. } => Ok(Reader(at)),
            Who::Key(_) => {
                at.charge_misplaced_key()?;
                Err(ApiError::new(Code::ApiKeyNotAllowed, "this endpoint takes a session cookie or an embed token")
                    .with("hint", "mint an embed token with this key, or use /api/v1/orgs/{slug}/prometheus with a key that has the scope read"))
            }
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for MountReader {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> ApiResult<MountReader> {
        let at = identified(parts)?;
        if let Who::Key(key) = at.who()? {
            at.charge_reader(key)?;
            if !key.scopes.read {
                return Err(missing_scope("read"));
            }
        }
        Ok(MountReader(Reader(at)))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Machine {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> ApiResult<Machine> {
        let at = identified(parts)?;
        match at.who()? {
            Who::Session { .. } => {}
            Who::Token { .. } => return Err(no_writing_token()),
            Who::Key(key) => {
                at.callers.limits.charge_ingest(key.id, &key.ingest)?;
                if !key.scopes.ingest {
                    return Err(missing_scope("ingest"));
                }
            }
        }
        Ok(Machine(at))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Minter {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> ApiResult<Minter> {
        let at = identified(parts)?;
        if at.sent_jwt {
            return Err(session_required());
        }
        if let Who::Key(key) = at.who()? {
            at.leave(at.callers.limits.charge_minting(key.id)?);
            if !key.scopes.embed {
                return Err(missing_scope("embed"));
            }
        }
        Ok(Minter(at))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Cabinet {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> ApiResult<Cabinet> {
        let at = identified(parts)?;
        if at.sent_jwt {
            return Err(session_required());
        }
        match at.who()? {
            Who::Session { session, .. } => Ok(Cabinet { session: Arc::clone(session), at }),
            Who::Key(_) => {
                at.charge_misplaced_key()?;
                Err(session_required())
            }
            Who::Token { .. } => Err(session_required()),
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Visitor {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> ApiResult<Visitor> {
        let cookie = |name| cookies::values(&parts.headers, name, 1).first().map(|&value| value.to_owned());
        let at = identified(parts)?;
        let (link, device) = (cookie(at.callers.cookies.magic_link_name()), cookie(cookies::DEVICE));
        at.charge_misplaced_key()?;
        // Whoever sent a session is not taken for nobody because we cannot store that it was used.
        if let Err(refused) = &at.who
            && refused.code().status().is_server_error()
        {
            return Err(refused.clone());
        }
        Ok(Visitor { at, link, device })
    }
}

// -- the credential layer -------------------------------------------------------------------------------------------

/// Finds out who is calling, charges them, goes on with `next`, and renews the session that they used.
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
    // A future is copied whole into the one around it, and seven are around this one: a box is cheaper.
    let answered = Box::pin(identified_and_charged(callers, parts, body, next));
    lanes::ORIGIN.scope(origin, answered).await
}

async fn identified_and_charged<N, F>(callers: &Arc<Callers>, parts: Parts, body: Body, next: N) -> Response
where
    N: FnOnce(Request) -> F,
    F: Future<Output = Response>,
{
    let now = callers.clock.now();
    let logout = parts.method == Method::POST && parts.uri.path().ends_with("/auth/logout");
    let at = Arc::new(callers.identify(&parts, logout, now).await);
    let mut request = Request::from_parts(parts, body);
    let mut response = match at.charge() {
        // A logout is counted and never refused: whoever wants out gets out.
        Err(refused) if !logout => refused.into_response(),
        _ => {
            request.extensions_mut().insert(Arc::clone(&at));
            next(request).await
        }
    };
    at.leave_marks(&mut response);
    response
}

/// Where callers are identified and charged: the API and its alias, not files, health or metrics.
pub fn is_api(path: &str) -> bool {
    path.starts_with("/api/") || path.starts_with("/auth/") || path == "/api" || path == "/auth"
}

impl Identified {
    /// Charges the request to whoever proved to be its sender, else to its address.
    fn charge(&self) -> ApiResult<()> {
        let limits = &self.callers.limits;
        if let Some(token) = &self.token_charge {
            self.leave(token.charge.clone()?);
            return Ok(());
        }
        let charge = match &self.who {
            Ok(Who::Session { session, .. }) => limits.charge_session(session.id)?,
            // What a key is charged to depends on what it does; its extractor knows. A token is charged above.
            Ok(Who::Key(_) | Who::Token { .. }) => return Ok(()),
            Err(_) => limits.charge_address(self.client.ip)?,
        };
        self.leave(charge);
        Ok(())
    }

    /// The sliding cookie, the rate headers, and which origins may read the answer.
    fn leave_marks(&self, response: &mut Response) {
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
        match &self.who {
            Ok(Who::Session { cookie, .. }) => {
                if sets_cookies && !cookies::decides_session(response.headers()) {
                    response.headers_mut().append(header::SET_COOKIE, self.callers.cookies.session(cookie));
                }
            }
            Ok(Who::Key(key)) if self.from_page => {
                response.extensions_mut().insert(AllowedOrigins(vec![key.embed.origins.clone()]));
            }
            Ok(Who::Token { .. } | Who::Key(_)) | Err(_) => {}
        }
    }
}

impl Callers {
    /// For the log of events.
    fn origin(&self, parts: &Parts, id: &RequestId) -> Origin {
        let ip = self.proxies.client(host::peer(parts), &parts.headers);
        Origin { ip: Some(ip), request_id: Some(id.as_str().into()) }
    }

    async fn identify(self: &Arc<Callers>, parts: &Parts, logout: bool, now: Timestamp) -> Identified {
        let peer = host::peer(parts);
        // Who comes without a connection is nobody that anybody waits for.
        let alone = parts.extensions.get::<Peer>().is_none_or(|Peer(from)| self.lanes.note_arrival(*from));
        let user_agent =
            parts.headers.get(header::USER_AGENT).map(|v| String::from_utf8_lossy(v.as_bytes()).into_owned());
        let client = Client {
            ip: self.proxies.client(peer, &parts.headers),
            user_agent: user_agent.unwrap_or_default(),
        };
        let mut sent_jwt = false;
        // An Authorization header is the only credential looked at: a bad token never falls through to a good cookie.
        let mut token_charge = None;
        let who = if parts.headers.contains_key(header::AUTHORIZATION) {
            match authorization(&parts.headers) {
                Ok(Sent::Key { secret, id }) => self.key(&secret, id.as_deref(), now),
                Ok(Sent::Jwt(token)) => {
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
        Identified {
            callers: Arc::clone(self),
            who,
            sent_jwt,
            client,
            local,
            from_page,
            coding,
            alone,
            token_charge,
            charge: OnceLock::new(),
        }
    }

    fn key(&self, secret: &str, id: Option<&str>, now: Timestamp) -> ApiResult<Who> {
        let invalid = || ApiError::new(Code::ApiKeyInvalid, "this API key is unknown, disabled or expired");
        if !secret.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            return Err(ApiError::new(Code::ApiKeyInvalid, STRANGE_CHARACTER));
        }
        let key = self.identity.api_key(secret, now).ok_or_else(invalid)?;
        match id {
            Some(id) if id != key.id.to_string() => Err(invalid()),
            _ => Ok(Who::Key(key)),
        }
    }

    /// Verifies an embed token. Its key is charged as soon as signature and claims are good, before the token's matchers
    /// are compiled: requests beyond the rate cost no more than their verification. Matchers that are not cached are
    /// compiled on the query lane, in the share of the key's organisation.
    async fn token(
        &self,
        token: &str,
        parts: &Parts,
        token_charge: &mut Option<TokenCharge>,
        now: Timestamp,
    ) -> ApiResult<Who> {
        let Some(slug) = slug_of(parts.uri.path()) else { return Err(session_required()) };
        let origin = parts.headers.get(header::ORIGIN).map(|value| value.to_str().unwrap_or("null"));
        let from = lanes::ORIGIN.try_with(Clone::clone).unwrap_or_default();
        let request = EmbedRequest { token, slug: &slug, origin };
        let verified = with_origin(&from, || self.identity.verify_token(&request, now));
        let verified = verified.map_err(|refusal| match refusal.is_no_token() {
            true => ApiError::new(Code::TokenInvalid, NO_CREDENTIAL),
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
        Ok(Who::Token { grant: Box::new(grant), slug: slug.into_owned() })
    }

    /// Up to four cookies of this name are tried, because another application on this host may have set one, too. What is
    /// about to be ended by a logout need not be renewed first: the disk may be what keeps it from that. Where none is live,
    /// a logout gets the one whose row the disk still has, so that it never says more than the disk knows.
    async fn cookie(&self, headers: &HeaderMap, logout: bool, now: Timestamp) -> ApiResult<Who> {
        let mut refused = ApiError::new(Code::Unauthenticated, "no credential was sent");
        let mut left = None;
        for cookie in cookies::values(headers, cookies::SESSION, 4) {
            let identity = Arc::clone(&self.identity);
            match self.identity.session(cookie, now) {
                SessionCheck::Live(session) => {
                    return Ok(Who::Session { session, cookie: cookie.to_owned() });
                }
                SessionCheck::LiveOncePersisted(session) if logout => {
                    return Ok(Who::Session { session, cookie: cookie.to_owned() });
                }
                SessionCheck::LiveOncePersisted(session) => {
                    let renewed = Arc::clone(&session);
                    self.lanes.run(Lane::Account, move || identity.persist_session(&renewed)).await??;
                    return Ok(Who::Session { session, cookie: cookie.to_owned() });
                }
                SessionCheck::Expired(session) | SessionCheck::Ended(session) if logout => {
                    left = Some(Who::Session { session, cookie: cookie.to_owned() });
                }
                // Its owner ended it and was told that this is not stored yet.
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

/// The organisation in a path, percent-decoded as a handler's path parameters are: `acme` and `%61cme` are the same
/// organisation for every check and every count. Text that cannot be decoded stays as it is; no slug has a percent sign.
pub(super) fn slug_of(path: &str) -> Option<Cow<'_, str>> {
    let slug = of_org(path)?.next().filter(|slug| !slug.is_empty())?;
    Some(decoded(slug).unwrap_or(Cow::Borrowed(slug)))
}

/// For a bearer that is of no known form, most often a variable that is not set or holds something else.
const NO_CREDENTIAL: &str = "this bearer is neither an API key, which begins with msk_, nor an embed token, which is a \
                             JWT: three parts between dots";

/// For a key that was copied from a place that shortens it, or with what stands beside it.
const STRANGE_CHARACTER: &str = "this API key contains a character that no key has: keys are made of letters, digits and _; \
                                 copy the whole key";

/// What an `Authorization` header holds.
enum Sent {
    Key { secret: String, id: Option<String> },
    Jwt(String),
}

/// Takes the one `Authorization` header apart; schemes in any letter case.
fn authorization(headers: &HeaderMap) -> ApiResult<Sent> {
    let invalid = |detail: &'static str| ApiError::new(Code::TokenInvalid, detail);
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return Err(invalid("more than one Authorization header"));
    };
    // No credential has a character beyond ASCII; which one it was meant to be is told all the same.
    let text = String::from_utf8_lossy(value.as_bytes());
    let (scheme, rest) = text
        .trim_ascii()
        .split_once(' ')
        .ok_or_else(|| invalid("the Authorization header holds no credential"))?;
    let rest = rest.trim_ascii();
    if scheme.eq_ignore_ascii_case("bearer") {
        return match rest.starts_with("msk_") {
            true => Ok(Sent::Key { secret: rest.to_owned(), id: None }),
            false => Ok(Sent::Jwt(rest.to_owned())),
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
    Ok(Sent::Key { secret: secret.to_owned(), id: user.starts_with("ak_").then(|| user.to_owned()) })
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn an_organisation_may_let_questions_cost_less_or_more() {
        let half_a_minute = Duration::from_secs(30);
        let quota = |limit| Quota { samples: limit, timeout_s: limit };
        let cost = |limit| (quota(limit).samples_max(9), quota(limit).timeout(half_a_minute));
        assert_eq!(cost(Limit::Default), (9, half_a_minute));
        assert_eq!(cost(Limit::At(300)), (300, Duration::from_secs(300)));
        assert_eq!(cost(Limit::Unlimited), (u64::MAX, Duration::MAX));
    }

    #[test]
    fn an_authorization_header_is_taken_apart() {
        let read = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::AUTHORIZATION, HeaderValue::from_str(text).expect("a value"));
            match authorization(&headers) {
                Ok(Sent::Key { secret, id: None }) => format!("key {secret}"),
                Ok(Sent::Key { secret, id: Some(id) }) => format!("key {secret} of {id}"),
                Ok(Sent::Jwt(token)) => format!("jwt {token}"),
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
