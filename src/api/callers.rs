//! Identifies the caller of a request and what it may access (docs/specification.md B1).
//!
//! The credential layer examines the credential of a request once, charges the request, and stores
//! a [`RequestIdentity`] in its extensions. The extractors decide which kinds of caller a handler
//! accepts, and charge API keys, whose limits depend on the operation:
//!
//! * [`SessionCaller`] accepts a session;
//! * [`MemberCaller`] accepts a session of a member whom the guard of the route has admitted;
//! * [`QueryCaller`] accepts a session, an embed token or a public link;
//! * [`PrometheusCaller`] accepts a session, an embed token, or an API key with the scope `read`;
//! * [`IngestCaller`] accepts an API key with the scope `ingest`, or a session of an editor;
//! * [`AlertingCaller`] accepts an API key with the scope `alerting`, or a session of an editor;
//! * [`MintCaller`] accepts an API key with the scope `embed`, or a session of an editor;
//! * [`AnyCaller`] accepts any request.
//!
//! [`StandingCaller`] repeats the check of a `QueryCaller` while a response is streamed.
//!
//! `MemberCaller` has entered the organisation in the path. The other extractors name no
//! organisation; their method `enter` does. Only `enter` of a caller that reads returns an
//! [`Access`](crate::model::Access).

mod authorization;
mod extractors;
mod grant;
mod member;
mod permissions;

use std::borrow::Cow;
use std::future::Future;
use std::sync::{Arc, OnceLock};

use axum::body::Body;
use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, Method, header};
use axum::response::{IntoResponse, Response};
use data_encoding::BASE64URL_NOPAD;

use super::cookies::{self, Cookies, NoCookies};
use super::cors::AllowedOrigins;
use super::edge::ConnectionSlot;
use super::embed_use::{EmbedUsage, EmbedUse, EmbedUses};
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
    ApiKey, Client, EmbedGrant, EmbedRequest, Identity, KeyId, Origin, PublicLink, Session, SessionCheck,
    SessionId, UserId, with_origin,
};
use crate::model::{OrgId, Timestamp};
use authorization::{
    AuthorizationHeader, INVALID_KEY_CHARACTER, UNKNOWN_BEARER, authorization, authorization_parameter,
};
pub(super) use extractors::StandingKey;
pub use extractors::{
    AlertingCaller, AnyCaller, IngestCaller, MintCaller, PrometheusCaller, QueryCaller, SessionCaller,
    StandingCaller, org_not_found,
};
use extractors::{org_mismatch, session_required};
pub use grant::Grant;
pub(super) use grant::Permission;
pub use member::MemberCaller;
pub use permissions::{AlertingAccess, IngestAccess, QueryAccess, Quota, Sender};

/// The dependencies of the credential layer.
#[derive(Debug)]
pub struct Callers {
    /// Sessions, API keys, embed tokens and memberships.
    pub identity: Arc<Identity>,
    /// The thread pools for the few checks that sync the disk or compile matchers.
    pub lanes: Lanes,
    /// The wall clock.
    pub clock: Clock,
    /// The rate limits that requests are charged to.
    pub limits: Arc<Limits>,
    /// The use of embed tokens.
    pub embeds: Arc<EmbedUses>,
    /// The names and attributes of cookies.
    pub cookies: Cookies,
    /// The proxies whose statement of the client's address is trusted.
    pub proxies: TrustedProxies,
    /// Recognises requests from this machine.
    pub local: LocalRequests,
    /// The origin of the public URL, in lower case.
    pub own_origin: Box<str>,
}

/// The identity of a request's caller, an extension of the request.
#[derive(Debug)]
struct RequestIdentity {
    callers: Arc<Callers>,
    credential: ApiResult<Credential>,
    /// A JWT or a public link was sent, valid or not. Cabinet endpoints then treat it as a request
    /// without a session, even with a valid cookie.
    sent_token: bool,
    /// The address that is charged and logged, and the browser.
    client: Client,
    local: bool,
    /// The request has an `Origin` header, so the response needs CORS headers.
    from_page: bool,
    coding: Coding,
    /// No other connection has sent a request within the last two milliseconds. The thread of the
    /// connection may then evaluate a fast query itself.
    sole_connection: bool,
    /// The charge of an embed token with a valid signature or of a public link, also if a later
    /// check refused it.
    token_charge: Option<TokenCharge>,
    charge: OnceLock<Charge>,
}

/// The charge of a verified embed token to its key, or of a public link.
#[derive(Debug)]
struct TokenCharge {
    charge: ApiResult<Charge>,
    /// The allowed origins of the token and those of its key, or those of the link.
    origins: Vec<Vec<String>>,
    usage: EmbedUsage,
}

/// The party that connections and long responses count for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Payer {
    /// A session of an account.
    Session(UserId, SessionId),
    /// An API key of an organisation, for itself and all of its tokens, or a public link.
    Key(OrgId, KeyId),
}

#[derive(Debug)]
enum Credential {
    Session {
        session: Arc<Session>,
        cookie: String,
    },
    /// `key` is the key as it was when the token was verified.
    Token {
        grant: Arc<EmbedGrant>,
        slug: String,
        key: Arc<ApiKey>,
        usage: EmbedUsage,
    },
    /// `link` is the link as it was when the request arrived.
    Link {
        grant: Arc<EmbedGrant>,
        link: Arc<PublicLink>,
        usage: EmbedUsage,
    },
    Key(Arc<ApiKey>),
}

/// The error of a request without a credential.
const NO_CREDENTIAL: &str = "no credential was sent: send an API key or an embed token as `Authorization: Bearer …`, \
                             or an API key as the password of `Authorization: Basic …`; people sign in for a session cookie";

/// The header with which clients of Mimir name an organisation.
const TENANT: HeaderName = HeaderName::from_static("x-scope-orgid");

/// Returns the values of the parameter `token`.
pub(super) fn token_parameters(query: Option<&str>) -> impl Iterator<Item = Cow<'_, str>> {
    let all = form_urlencoded::parse(query.unwrap_or_default().as_bytes());
    all.filter(|(name, _)| name == "token").map(|(_, value)| value)
}

/// Identifies and charges the caller, runs `next`, and renews the session that the caller used.
/// `token_parameter` is set if the route of the request admits an embed token as a parameter and
/// the request has one.
pub(super) async fn credential<N, F>(
    callers: &Arc<Callers>,
    request: Request,
    id: &RequestId,
    token_parameter: bool,
    next: N,
) -> Response
where
    N: FnOnce(Request) -> F,
    F: Future<Output = Response>,
{
    if !is_api(request.uri().path()) {
        callers.credit_page(&request);
        return next(request).await;
    }
    let (parts, body) = request.into_parts();
    let origin = callers.origin(&parts, id);
    // Boxed, because a future is copied whole into each of the seven futures around this one.
    let answered = Box::pin(identify_and_charge(callers, parts, body, token_parameter, next));
    lanes::ORIGIN.scope(origin, answered).await
}

async fn identify_and_charge<N, F>(
    callers: &Arc<Callers>,
    parts: Parts,
    body: Body,
    token_parameter: bool,
    next: N,
) -> Response
where
    N: FnOnce(Request) -> F,
    F: Future<Output = Response>,
{
    let now = callers.clock.now();
    let logout = parts.method == Method::POST && parts.uri.path().ends_with("/auth/logout");
    let at = Arc::new(callers.identify(&parts, logout, token_parameter, now).await);
    // A logout may have a session that has ended.
    if let Some(slot) = parts.extensions.get::<Arc<ConnectionSlot>>().filter(|_| !logout)
        && let Some(payer) = at.payer()
    {
        slot.credit(payer);
    }
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
    /// Returns the party that the connection counts for, if the credential is valid.
    fn payer(&self) -> Option<Payer> {
        match self.credential.as_ref().ok()? {
            Credential::Session { session, .. } => Some(Payer::Session(session.user, session.id)),
            Credential::Token { key, .. } | Credential::Key(key) => Some(Payer::Key(key.org, key.id)),
            Credential::Link { link, .. } => Some(Payer::Key(link.key.org, link.key.id)),
        }
    }

    /// Charges the request to its verified caller, otherwise to its address.
    fn charge(&self) -> ApiResult<()> {
        let limits = &self.callers.limits;
        if let Some(token) = &self.token_charge {
            self.record_charge(token.charge.clone()?);
            return Ok(());
        }
        let charge = match &self.credential {
            Ok(Credential::Session { session, .. }) => limits.charge_session(session.id)?,
            // The charge of an API key depends on the operation, so its extractor charges it.
            // Tokens and links are charged above.
            Ok(Credential::Key(_) | Credential::Token { .. } | Credential::Link { .. }) => return Ok(()),
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
        if let Some(TokenCharge { usage, .. }) = &self.token_charge
            && matches!(response.status().as_u16(), 401 | 403 | 429)
        {
            usage.refused();
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
            Ok(Credential::Token { .. } | Credential::Link { .. } | Credential::Key(_)) | Err(_) => {}
        }
    }
}

impl Callers {
    /// Counts the connection of a page or file for the session of its cookie, which is not renewed.
    /// Browsers load files over connections of their own.
    fn credit_page(&self, request: &Request) {
        let Some(slot) = request.extensions().get::<Arc<ConnectionSlot>>() else { return };
        let now = self.clock.now();
        let cookies = cookies::values(request.headers(), cookies::SESSION, 4);
        let session = cookies.into_iter().find_map(|cookie| self.identity.live_session(cookie, now));
        if let Some(session) = session {
            slot.credit(Payer::Session(session.user, session.id));
        }
    }

    /// Returns the origin of the request for the audit log.
    fn origin(&self, parts: &Parts, id: &RequestId) -> Origin {
        let ip = self.proxies.client(host::peer(parts), &parts.headers);
        Origin { ip: Some(ip), request_id: Some(id.as_str().into()) }
    }

    async fn identify(
        self: &Arc<Callers>,
        parts: &Parts,
        logout: bool,
        token_parameter: bool,
        now: Timestamp,
    ) -> RequestIdentity {
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
        let mut sent_token = false;
        // With an Authorization header or a token as a parameter, cookies are ignored: a bad token
        // never falls back to a good cookie.
        let mut token_charge = None;
        let sent = if token_parameter {
            Some(authorization_parameter(&parts.headers, token_parameters(parts.uri.query())))
        } else {
            parts.headers.contains_key(header::AUTHORIZATION).then(|| authorization(&parts.headers))
        };
        let credential = if let Some(sent) = sent {
            match sent {
                Ok(AuthorizationHeader::Key { secret, id }) => self.key(&secret, id.as_deref(), now),
                Ok(AuthorizationHeader::Jwt(token)) => {
                    sent_token = true;
                    self.token(&token, parts, &client, &mut token_charge, now).await
                }
                Ok(AuthorizationHeader::Link(secret)) => {
                    sent_token = true;
                    self.link(&secret, parts, &client, &mut token_charge, now)
                }
                Err(refused) => Err(refused),
            }
        } else {
            self.cookie(&parts.headers, logout, now).await
        };
        let credential = credential.and_then(|sent| agrees_with_tenant(&parts.headers, sent));
        let local = self.local.includes(peer, parts.version, &parts.headers);
        let from_page = parts.headers.contains_key(header::ORIGIN);
        let coding = Coding::of(&parts.headers);
        RequestIdentity {
            callers: Arc::clone(self),
            credential,
            sent_token,
            client,
            local,
            from_page,
            coding,
            sole_connection,
            token_charge,
            charge: OnceLock::new(),
        }
    }

    /// Returns the slug of the organisation that a credential names, which is not verified. A
    /// session names none.
    pub(super) fn named_org(&self, headers: &HeaderMap) -> Option<String> {
        headers.get(header::AUTHORIZATION)?;
        match authorization(headers).ok()? {
            AuthorizationHeader::Key { secret, .. } => {
                let key = self.identity.api_key(&secret, self.clock.now())?;
                Some(key.slug.as_str().to_owned())
            }
            AuthorizationHeader::Jwt(token) => claimed_org(&token),
            AuthorizationHeader::Link(_) => None,
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
        client: &Client,
        token_charge: &mut Option<TokenCharge>,
        now: Timestamp,
    ) -> ApiResult<Credential> {
        let Some(slug) = slug_of(parts.uri.path()) else { return Err(session_required()) };
        let origin = self.foreign_origin(parts);
        let from = lanes::ORIGIN.try_with(Clone::clone).unwrap_or_default();
        let request = EmbedRequest { token, slug: &slug, origin };
        let verified = with_origin(&from, || self.identity.verify_token(&request, now));
        let verified = verified.map_err(|refusal| match refusal.is_no_token() {
            true => ApiError::new(Code::TokenInvalid, UNKNOWN_BEARER),
            false => refusal.into(),
        })?;
        let key = verified.source();
        let (dashboard, viewer) = (verified.dashboard(), verified.sub());
        let used = EmbedUse { key: &key, is_link: false, origin, dashboard, viewer, client: client.ip };
        let usage = self.charge_embed(used, verified.origins(), token_charge, now)?;
        let grant = if self.identity.grants_at_once(&verified) {
            with_origin(&from, || self.identity.grant(verified, now))?
        } else {
            let identity = Arc::clone(&self.identity);
            self.lanes.run(Lane::Query(verified.org()), move || identity.grant(verified, now)).await??
        };
        Ok(Credential::Token { grant: Arc::new(grant), slug: slug.into_owned(), key, usage })
    }

    /// Identifies a public link. The request is charged before any other step. Its matchers were
    /// compiled when it was loaded.
    fn link(
        &self,
        secret: &str,
        parts: &Parts,
        client: &Client,
        token_charge: &mut Option<TokenCharge>,
        now: Timestamp,
    ) -> ApiResult<Credential> {
        let Some(slug) = slug_of(parts.uri.path()) else { return Err(session_required()) };
        let link = self.identity.find_public_link(secret, now)?;
        if link.slug().as_str() != slug {
            return Err(org_mismatch());
        }
        let origins = AllowedOrigins(vec![link.key.embed.origins.clone()]);
        let origin = self.foreign_origin(parts);
        if origin.is_some_and(|origin| !origins.allows(origin)) {
            let detail = "this public link may not be used on this origin";
            return Err(ApiError::new(Code::OriginNotAllowed, detail));
        }
        let dashboard = Some(link.dashboard.as_str());
        let used =
            EmbedUse { key: &link.key, is_link: true, origin, dashboard, viewer: None, client: client.ip };
        let usage = self.charge_embed(used, origins.0, token_charge, now)?;
        let grant = self.identity.use_public_link(&link, now)?;
        Ok(Credential::Link { grant: Arc::new(grant), link, usage })
    }

    /// Charges a request with a token or link to its key, and records its use, also if it is
    /// refused.
    fn charge_embed(
        &self,
        used: EmbedUse<'_>,
        origins: Vec<Vec<String>>,
        token_charge: &mut Option<TokenCharge>,
        now: Timestamp,
    ) -> ApiResult<EmbedUsage> {
        let charge = self.limits.charge_key(used.key.id, used.key.embed.rate_limit_rps);
        let usage = self.embeds.record(used, now);
        *token_charge = Some(TokenCharge { charge: charge.clone(), origins, usage: usage.clone() });
        charge?;
        Ok(usage)
    }

    /// Returns the origin of the page that sent a request, unless it is a page of this server, such
    /// as one that a page of another origin shows in a frame. `frame-ancestors` names the origins
    /// that may show the page in a frame.
    fn foreign_origin<'p>(&self, parts: &'p Parts) -> Option<&'p str> {
        let origin = parts.headers.get(header::ORIGIN)?.to_str().unwrap_or("null");
        let is_own = *origin == *self.own_origin || host::is_origin_of(origin, &parts.uri, &parts.headers);
        (!is_own).then_some(origin)
    }

    /// Identifies the session of the cookies.
    ///
    /// Up to four cookies of this name are tried, because another application on this host may have
    /// set one, too. A logout does not persist the session first, because the disk may be unable
    /// to. If no session is live, a logout gets the ended one whose row is still on disk, so that
    /// it removes that row as well.
    async fn cookie(&self, headers: &HeaderMap, logout: bool, now: Timestamp) -> ApiResult<Credential> {
        let mut refused = ApiError::new(Code::Unauthenticated, NO_CREDENTIAL);
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

/// Returns the claim `org` of a token that is not verified yet.
fn claimed_org(token: &str) -> Option<String> {
    let claims = BASE64URL_NOPAD.decode(token.split('.').nth(1)?.as_bytes()).ok()?;
    let claims: serde_json::Value = serde_json::from_slice(&claims).ok()?;
    claims.get("org")?.as_str().map(str::to_owned)
}

/// Refuses a key, token or link if `X-Scope-OrgID` names another organisation. The header is never
/// a credential, and a session belongs to no single organisation.
fn agrees_with_tenant(headers: &HeaderMap, sent: Credential) -> ApiResult<Credential> {
    let Some(named) = headers.get(TENANT) else { return Ok(sent) };
    let own = match &sent {
        Credential::Session { .. } => return Ok(sent),
        Credential::Token { slug, .. } => slug.as_str(),
        Credential::Link { link, .. } => link.slug().as_str(),
        Credential::Key(key) => key.slug.as_str(),
    };
    if named.as_bytes() == own.as_bytes() {
        return Ok(sent);
    }
    Err(ApiError::new(
        Code::OrgMismatch,
        "X-Scope-OrgID names another organisation than the credential belongs to; leave the header out",
    ))
}

/// Returns the slug of the organisation in a path, percent-decoded like a handler's path
/// parameters, so that `acme` and `%61cme` are the same organisation in every check and counter.
/// Text that cannot be decoded is returned unchanged; no slug contains a percent sign.
pub(super) fn slug_of(path: &str) -> Option<Cow<'_, str>> {
    let slug = of_org(path)?.next().filter(|slug| !slug.is_empty())?;
    Some(decoded(slug).unwrap_or(Cow::Borrowed(slug)))
}
