//! The requests of discovery and query endpoints, from their extractors to the query that runs.

use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts as _, Request};
use axum::http::Method;

use super::deps::ReadDeps;
use super::inline::QueryFingerprint;
use crate::api::body;
use crate::api::callers::{Endpoint, Grant, PrometheusCaller, QueryAccess, QueryCaller, StandingCaller};
use crate::api::error::{ApiError, ApiResult};
use crate::api::params::{Params, PathOf};
use crate::api::router::{parameters, pattern, required_auth};
use crate::api::routes::Auth;
use crate::model::{OrgId, TimeRange};

/// The parameters of the URL and of the form, in one list.
pub(in crate::api::orgs) struct MergedParams(pub(in crate::api::orgs) Params);

impl<S: Send + Sync> FromRequest<S> for MergedParams {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> ApiResult<MergedParams> {
        /// The most bytes of a query form, inclusive (docs/specification.md B).
        const FORM_BYTES_MAX: usize = 256 * 1_024;
        let (parts, body) = request.into_parts();
        let form = body::read(body, FORM_BYTES_MAX).await?;
        Params::merged(parts.uri.query(), &form).map(MergedParams)
    }
}

/// A read whose caller has entered the organisation in the path, with the endpoint that the row of
/// the route states.
pub(in crate::api::orgs) struct ReadRequest {
    /// The query, without its range, timeout and listed text.
    pub(in crate::api::orgs) query: QueryRequest,
    /// The parameters of the URL and of the form.
    pub(in crate::api::orgs) params: Params,
    /// The metric or label in the path; empty if the path has none.
    pub(in crate::api::orgs) name: String,
}

/// A read whose caller has not entered the organisation yet, because the endpoint that it needs
/// depends on the parameters.
pub(in crate::api::orgs) struct PendingRead {
    caller: QueryCaller,
    slug: String,
    name: String,
    /// The parameters of the request.
    pub(in crate::api::orgs) params: Params,
    fingerprint: QueryFingerprint,
}

impl PendingRead {
    /// Returns the caller, for checks while a response is streamed.
    pub(super) fn standing(&self) -> StandingCaller {
        StandingCaller::new(self.caller.clone(), self.slug.as_str().into())
    }

    /// Enters the organisation in the path; `None` stands for endpoints that every token grants.
    ///
    /// # Errors
    /// Those of [`QueryCaller::enter`].
    pub(in crate::api::orgs) fn enter(&self, endpoint: Option<Endpoint>) -> ApiResult<QueryRequest> {
        let access = self.caller.enter_for(&self.slug, endpoint)?;
        Ok(QueryRequest::from(access).with_fingerprint(self.fingerprint))
    }

    /// Identifies the caller, reads the parameters and computes the fingerprint. Returns also the
    /// endpoint that the row of the route states.
    async fn of(request: Request, deps: &ReadDeps) -> ApiResult<(PendingRead, Option<Endpoint>)> {
        let (mut parts, body) = request.into_parts();
        let auth = required_auth(&parts)?;
        let (caller, endpoint, has_form) = match auth {
            Auth::QueryCaller(endpoint) | Auth::PictureCaller(endpoint) => {
                let caller = QueryCaller::from_request_parts(&mut parts, &()).await?;
                (caller, Some(endpoint), parts.method == Method::POST)
            }
            Auth::PrometheusCaller(endpoint) => {
                (PrometheusCaller::from_request_parts(&mut parts, &()).await?.into(), endpoint, true)
            }
            _ => return Err(ApiError::internal("a handler reads, but its row admits no readers")),
        };
        let mut path = parameters(&parts)?.into_iter().map(|(_, value)| value.into_owned());
        let (slug, name) = (path.next().unwrap_or_default(), path.next().unwrap_or_default());
        drop(path);
        let endpoint_path = pattern(&parts)?.to_owned();
        let params = if has_form {
            MergedParams::from_request(Request::from_parts(parts, body), &()).await?.0
        } else {
            Params::of_query(parts.uri.query())?
        };
        let fingerprint = deps.inline.fingerprint((&endpoint_path, &name), &params);
        Ok((PendingRead { caller, slug, name, params, fingerprint }, endpoint))
    }
}

impl FromRequest<ReadDeps> for PendingRead {
    type Rejection = ApiError;

    async fn from_request(request: Request, deps: &ReadDeps) -> ApiResult<PendingRead> {
        Ok(PendingRead::of(request, deps).await?.0)
    }
}

impl FromRequest<ReadDeps> for ReadRequest {
    type Rejection = ApiError;

    async fn from_request(request: Request, deps: &ReadDeps) -> ApiResult<ReadRequest> {
        let (read, endpoint) = PendingRead::of(request, deps).await?;
        let query = read.enter(endpoint)?;
        Ok(ReadRequest { query, params: read.params, name: read.name })
    }
}

/// A batch whose caller has entered the organisation in the path, with the endpoint that the row of
/// the route states. Its body has not been parsed yet; that is work for the query lane.
pub(super) struct BatchRequest {
    pub(super) access: QueryAccess,
    pub(super) body: Bytes,
}

impl FromRequest<ReadDeps> for BatchRequest {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &ReadDeps) -> ApiResult<BatchRequest> {
        let (mut parts, body) = request.into_parts();
        let caller: QueryCaller = PrometheusCaller::from_request_parts(&mut parts, &()).await?.into();
        let Auth::PrometheusCaller(endpoint) = required_auth(&parts)? else {
            return Err(ApiError::internal("a handler runs a batch, but its row admits no API keys"));
        };
        let PathOf(slug) = PathOf::<String>::from_request_parts(&mut parts, &()).await?;
        let access = caller.enter_for(&slug, endpoint)?;
        let body = body::read_json(Request::from_parts(parts, body)).await?;
        Ok(BatchRequest { access, body })
    }
}

/// A query before it runs: its caller, timeout, listed text, and fingerprint.
pub(in crate::api::orgs) struct QueryRequest {
    pub(super) caller: QueryAccess,
    pub(super) timeout: Option<Duration>,
    pub(super) listed: Option<String>,
    /// The fingerprint of the request without its times.
    fingerprint: Option<QueryFingerprint>,
    /// The time range of the query, if it may run inline.
    inline_over: Option<TimeRange>,
}

impl From<QueryAccess> for QueryRequest {
    fn from(caller: QueryAccess) -> QueryRequest {
        QueryRequest { caller, timeout: None, listed: None, fingerprint: None, inline_over: None }
    }
}

impl QueryRequest {
    /// Returns the permission of the caller.
    pub(super) fn into_access(self) -> QueryAccess {
        self.caller
    }

    /// Returns the permissions of the caller.
    pub(in crate::api::orgs) fn grant(&self) -> &Grant {
        &self.caller.grant
    }

    /// Returns the organisation if the caller sees its scraped targets: its access is unrestricted,
    /// and it is not an embed token.
    pub(in crate::api::orgs) fn org_of_targets(&self) -> Option<OrgId> {
        let sees_targets = self.caller.access.scope.is_whole() && !self.caller.grant.is_token();
        sees_targets.then_some(self.caller.access.org)
    }

    /// Sets a timeout; the organisation's own limit applies if it is shorter.
    pub(in crate::api::orgs) fn within(self, timeout: Option<Duration>) -> QueryRequest {
        QueryRequest { timeout, ..self }
    }

    /// Lists the query as `text` among the running queries.
    pub(in crate::api::orgs) fn listed(self, text: String) -> QueryRequest {
        QueryRequest { listed: Some(text), ..self }
    }

    /// Sets the fingerprint of the request without its times.
    pub(super) fn with_fingerprint(self, fingerprint: QueryFingerprint) -> QueryRequest {
        QueryRequest { fingerprint: Some(fingerprint), ..self }
    }

    /// Lets the query run inline if queries with its fingerprint over this time range are fast.
    pub(in crate::api::orgs) fn inline_over(self, range: TimeRange) -> QueryRequest {
        QueryRequest { inline_over: Some(range), ..self }
    }

    /// Returns the fingerprint if the query may run inline.
    pub(super) fn inline_fingerprint(&self) -> Option<QueryFingerprint> {
        Some(self.fingerprint?.over(self.inline_over?))
    }
}

/// Parses the parameter `timeout`.
///
/// # Errors
/// 400 `invalid_parameter` unless it is positive.
pub(in crate::api::orgs) fn timeout(params: &mut Params) -> ApiResult<Option<Duration>> {
    match params.duration_ms("timeout")? {
        Some(ms) if ms <= 0 => Err(ApiError::invalid_parameter("timeout", "a timeout must be positive")),
        Some(ms) => Ok(Some(Duration::from_millis(ms.unsigned_abs()))),
        None => Ok(None),
    }
}
