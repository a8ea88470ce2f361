//! The extractors: which kinds of caller a handler accepts, and how they enter an organisation.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;

use super::grant::{Grant, Permission};
use super::permissions::{AlertingAccess, IngestAccess, QueryAccess, Quota, Sender, require_any_labels};
use super::{Credential, Payer, RequestIdentity};
use crate::api::aliases::NO_SLUG;
use crate::api::cookies;
use crate::api::error::{ApiError, ApiResult, Code};
use crate::api::limits::Charge;
use crate::identity::{ApiKey, Client, Endpoint, KeyId, Membership, Role, Session, SessionId, UserId};
use crate::model::{Access, OrgId, Timestamp};

/// A caller of the discovery and query endpoints (docs/specification.md C5).
#[derive(Clone, Debug)]
pub struct QueryCaller(Arc<RequestIdentity>);

/// A caller of the Prometheus mount (docs/specification.md C6).
#[derive(Clone, Debug)]
pub struct PrometheusCaller(QueryCaller);

/// A caller of the ingestion endpoints (docs/specification.md C7).
#[derive(Clone, Debug)]
pub struct IngestCaller(Arc<RequestIdentity>);

/// A caller that changes rules and silences (docs/specification.md C13, C14).
#[derive(Clone, Debug)]
pub struct AlertingCaller(Arc<RequestIdentity>);

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

impl QueryCaller {
    /// Enters the organisation `slug` to query `endpoint`.
    ///
    /// # Errors
    /// 404 `org_not_found` for a session whose account is not a member, 403 `org_mismatch` for a
    /// token of another organisation, 403 `embed_restricted` if the token does not grant the
    /// endpoint, 429 `rate_limited` if the key of the token used up its evaluation time.
    pub fn enter(&self, slug: &str, endpoint: Endpoint) -> ApiResult<QueryAccess> {
        self.enter_for(slug, Some(endpoint))
    }

    /// Like [`QueryCaller::enter`]; `None` stands for endpoints that every token grants.
    pub(in crate::api) fn enter_for(&self, slug: &str, endpoint: Option<Endpoint>) -> ApiResult<QueryAccess> {
        let quota = |org| Quota::of(&self.0.callers.identity.org_settings(org));
        let RequestIdentity { coding, sole_connection, .. } = *self.0;
        let whole = |org, requester: String| QueryAccess {
            access: Access::whole(org),
            grant: Grant::default(),
            quota: quota(org),
            requester: requester.into(),
            coding,
            sole_connection,
            usage: None,
        };
        match self.0.credential()? {
            Credential::Session { session, .. } => {
                let member = self.0.membership(session.user, slug, Role::Viewer)?;
                Ok(whole(member.org.id, session.user.to_string()))
            }
            // The token was verified for the slug in the path, so it can enter no other
            // organisation.
            Credential::Token { slug: verified, .. } if verified != slug => Err(org_mismatch()),
            Credential::Link { link, .. } if link.slug().as_str() != slug => Err(org_mismatch()),
            Credential::Token { grant: token, usage, .. } | Credential::Link { grant: token, usage, .. } => {
                let grant = Grant::of(Arc::clone(token));
                if let Some(endpoint) = endpoint {
                    grant.require(Permission::Endpoint(endpoint))?;
                }
                usage.admit()?;
                Ok(QueryAccess {
                    access: Access { org: token.org, scope: token.scope.clone() },
                    grant,
                    quota: quota(token.org),
                    requester: token.key.to_string().into(),
                    coding,
                    sole_connection,
                    usage: Some(usage.clone()),
                })
            }
            Credential::Key(key) => key_enters(key, slug).map(|org| whole(org, key.id.to_string())),
        }
    }
}

/// A caller whose response is streamed for a long time: its permission is checked again and again.
#[derive(Clone, Debug)]
pub struct StandingCaller {
    caller: QueryCaller,
    slug: Box<str>,
}

/// A credential as of its verification. Callers with equal keys are refused at the same time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::api) enum StandingKey {
    /// A session, and the slug of the organisation that it has entered.
    Session(SessionId, Box<str>),
    /// The address in memory of the key that verified the token, and further checked data. The
    /// address belongs to no other key while a caller with this key exists.
    Token {
        /// The address of the key.
        key: usize,
        /// The expiry of the token.
        expires_at: Timestamp,
        /// The date of the token, and the dashboard that it grants, whose tokens may be revoked.
        issued_at: Option<Timestamp>,
        dashboard: Option<Box<str>>,
    },
    /// The address in memory of the key when the request arrived.
    Key(usize),
    /// The address in memory of the public link when the request arrived.
    Link(usize),
}

impl StandingCaller {
    /// Returns the caller of a response from the organisation `slug`, which the caller has entered.
    pub(in crate::api) fn new(caller: QueryCaller, slug: Box<str>) -> StandingCaller {
        StandingCaller { caller, slug }
    }

    /// Returns the party that the response counts for.
    ///
    /// # Errors
    /// Those of the credential. A caller that has entered an organisation has a payer.
    pub(in crate::api) fn payer(&self) -> ApiResult<Payer> {
        self.caller.0.credential()?;
        self.caller
            .0
            .payer()
            .ok_or_else(|| ApiError::internal("a valid credential has no limit of connections"))
    }

    /// Returns the identity of the credential for [`StandingCaller::check`].
    ///
    /// # Errors
    /// As [`StandingCaller::payer`].
    pub(in crate::api) fn key(&self) -> ApiResult<StandingKey> {
        Ok(match self.caller.0.credential()? {
            Credential::Session { session, .. } => StandingKey::Session(session.id, self.slug.clone()),
            Credential::Token { grant, key, .. } => {
                let dashboard = grant.dashboard.as_ref().map(|one| one.uid.as_str().into());
                let (expires_at, issued_at) = (grant.expires_at, grant.issued_at);
                StandingKey::Token { key: Arc::as_ptr(key).addr(), expires_at, issued_at, dashboard }
            }
            Credential::Key(key) => StandingKey::Key(Arc::as_ptr(key).addr()),
            Credential::Link { link, .. } => StandingKey::Link(Arc::as_ptr(link).addr()),
        })
    }

    /// Checks that the credential still has the permissions that it had when the request arrived.
    /// Does not access the disk. Does not renew a session. Any change of an API key ends the
    /// responses of the key and of its tokens; the next request is checked by the new settings.
    ///
    /// # Errors
    /// 401 `session_invalid`, `token_expired`, `token_invalid`, `public_link_invalid` and
    /// `api_key_invalid`, 404 `org_not_found`.
    pub(in crate::api) fn check(&self, now: Timestamp) -> ApiResult<()> {
        let at = &self.caller.0;
        let unchanged = |key: &Arc<ApiKey>| {
            let current = at.callers.identity.key(key.org, key.id);
            current.is_some_and(|current| Arc::ptr_eq(&current, key)) && !key.is_refused(now)
        };
        match at.credential()? {
            Credential::Session { session, .. } => {
                if !session.is_live(now) {
                    return Err(ApiError::new(Code::SessionInvalid, "this session has ended; log in again"));
                }
                at.membership(session.user, &self.slug, Role::Viewer).map(drop)
            }
            Credential::Token { grant, .. } if grant.has_expired(now) => {
                Err(ApiError::new(Code::TokenExpired, "the embed token has expired"))
            }
            Credential::Token { grant, .. } if at.callers.identity.is_revoked(grant) => {
                let detail = "the embed tokens of this dashboard were revoked; get a new token";
                Err(ApiError::new(Code::TokenInvalid, detail))
            }
            Credential::Token { key, .. } if unchanged(key) => Ok(()),
            Credential::Token { .. } => {
                let detail = "the key of this embed token was changed or revoked; connect again";
                Err(ApiError::new(Code::TokenInvalid, detail))
            }
            Credential::Link { link, .. } => Ok(at.callers.identity.recheck_public_link(link, now)?),
            Credential::Key(key) if unchanged(key) => Ok(()),
            Credential::Key(_) => {
                let detail = "this API key was changed or revoked; connect again";
                Err(ApiError::new(Code::ApiKeyInvalid, detail))
            }
        }
    }
}

impl PrometheusCaller {
    /// Enters the organisation `slug` to query `endpoint`.
    ///
    /// # Errors
    /// As [`QueryCaller::enter`], and 403 `org_mismatch` for an API key of another organisation.
    pub fn enter(&self, slug: &str, endpoint: Endpoint) -> ApiResult<QueryAccess> {
        self.0.enter(slug, endpoint)
    }

    /// Enters the organisation `slug` for an endpoint that every token grants.
    ///
    /// # Errors
    /// As [`PrometheusCaller::enter`], without `embed_restricted`.
    pub fn enter_any(&self, slug: &str) -> ApiResult<QueryAccess> {
        self.0.enter_for(slug, None)
    }
}

impl From<PrometheusCaller> for QueryCaller {
    fn from(caller: PrometheusCaller) -> QueryCaller {
        caller.0
    }
}

impl IngestCaller {
    /// Enters the organisation `slug` to write samples.
    ///
    /// # Errors
    /// 403 `org_mismatch` for an API key of another organisation, 404 `org_not_found` for a session
    /// whose account is not a member, 403 `forbidden` for a viewer.
    pub fn enter(&self, slug: &str) -> ApiResult<IngestAccess> {
        let limits = Some(Arc::clone(&self.0.callers.limits));
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
            Credential::Token { .. } | Credential::Link { .. } => Err(token_cannot_write()),
        }
    }
}

impl AlertingCaller {
    /// Enters the organisation `slug` to change its rules and silences.
    ///
    /// # Errors
    /// As [`IngestCaller::enter`], and 403 `forbidden` for an API key with forced labels: rules and
    /// silences concern series of any labels.
    pub fn enter(&self, slug: &str) -> ApiResult<AlertingAccess> {
        match self.0.credential()? {
            Credential::Key(key) => {
                let org = key_enters(key, slug)?;
                require_any_labels(key)?;
                Ok(AlertingAccess { org, sender: Sender::of_key(key) })
            }
            Credential::Session { session, .. } => {
                let org = self.0.membership(session.user, slug, Role::Editor)?.org.id;
                Ok(AlertingAccess { org, sender: Sender::User(session.user) })
            }
            Credential::Token { .. } | Credential::Link { .. } => Err(token_cannot_write()),
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
            Credential::Token { .. } | Credential::Link { .. } => Err(session_required()),
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

    /// Requires that the account is an administrator of this server.
    ///
    /// # Errors
    /// 403 `forbidden` and 503 `storage_degraded`.
    pub fn require_instance_admin(&self) -> ApiResult<()> {
        match self.at.callers.identity.user(self.session.user)? {
            Some(user) if user.is_admin => Ok(()),
            _ => Err(ApiError::new(Code::Forbidden, "this needs an administrator of the server")),
        }
    }

    /// Returns the membership in the organisation `slug` if its role is at least `needed`.
    ///
    /// # Errors
    /// 404 `org_not_found` and 403 `forbidden`.
    pub(in crate::api) fn membership(&self, slug: &str, needed: Role) -> ApiResult<Membership> {
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

    /// Returns whether the request comes from this machine, by the rules of
    /// [`LocalRequests`](crate::api::host::LocalRequests).
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
        if slug == NO_SLUG {
            return Err(ApiError::new(
                Code::OrgNotFound,
                "this path takes its organisation from an API key or an embed token, and a session names none: \
                 use <public URL>/api/v1/orgs/<slug>/…",
            ));
        }
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
    /// key's own buckets count only requests that keys may make. Without any charge, a key would be
    /// a way around the limit of anonymous requests.
    fn charge_misplaced_key(&self) -> ApiResult<()> {
        match &self.credential {
            Ok(Credential::Key(_)) => {
                self.callers.limits.charge_address(self.client.ip).map(|charge| self.record_charge(charge))
            }
            _ => Ok(()),
        }
    }

    /// Records the charge that the response headers report. Only the first charge of a request is
    /// recorded.
    pub(super) fn record_charge(&self, charge: Charge) {
        let _ = self.charge.set(charge);
    }

    /// Charges a read, or a change of rules and silences, by an API key to the key's own window.
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

pub(super) fn org_mismatch() -> ApiError {
    ApiError::new(Code::OrgMismatch, "this credential belongs to another organisation")
}

pub(super) fn session_required() -> ApiError {
    ApiError::new(
        Code::SessionRequired,
        "this endpoint needs a session cookie; tokens and API keys are not accepted",
    )
}

fn token_cannot_write() -> ApiError {
    ApiError::new(Code::EmbedRestricted, "embed tokens and public links cannot write")
}

fn link_shows_one_dashboard() -> ApiError {
    ApiError::new(Code::EmbedRestricted, "a public link shows one dashboard and grants no other endpoint")
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
            Credential::Session { .. } | Credential::Token { .. } | Credential::Link { .. } => {
                Ok(QueryCaller(at))
            }
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
        match at.credential()? {
            Credential::Session { .. } | Credential::Token { .. } => {}
            Credential::Link { .. } => return Err(link_shows_one_dashboard()),
            Credential::Key(key) => {
                at.charge_reader(key)?;
                if !key.scopes.read {
                    return Err(missing_scope("read"));
                }
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
            Credential::Token { .. } | Credential::Link { .. } => return Err(token_cannot_write()),
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

impl<S: Send + Sync> FromRequestParts<S> for AlertingCaller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> ApiResult<AlertingCaller> {
        let at = request_identity(parts)?;
        match at.credential()? {
            Credential::Session { .. } => {}
            Credential::Token { .. } | Credential::Link { .. } => return Err(token_cannot_write()),
            Credential::Key(key) => {
                at.charge_reader(key)?;
                if !key.scopes.alerting {
                    return Err(missing_scope("alerting"));
                }
            }
        }
        Ok(AlertingCaller(at))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for MintCaller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> ApiResult<MintCaller> {
        let at = request_identity(parts)?;
        if at.sent_token {
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
        if at.sent_token {
            return Err(session_required());
        }
        match at.credential()? {
            Credential::Session { session, .. } => Ok(SessionCaller { session: Arc::clone(session), at }),
            Credential::Key(_) => {
                at.charge_misplaced_key()?;
                Err(session_required())
            }
            Credential::Token { .. } | Credential::Link { .. } => Err(session_required()),
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
