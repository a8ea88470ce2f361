//! Who is calling, and what that lets them do (API.md B1).
//!
//! The credential layer looks at a request once, charges it, and leaves what it found with the request. The extractors
//! here only say which kinds of caller a handler accepts: [`Cabinet`] a session, [`Reader`] a session or an embed token,
//! [`MountReader`] those or an API key that may read, [`Machine`] an API key that may ingest or a session of an editor.
//! None of them names an organisation yet: `enter` does, and is the only way to an [`Access`].

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;

use super::error::{ApiError, ApiResult, Code};
use crate::model::{Access, OrgId};

/// What a discover or query request asks for: the words of an embed token's `ms.endpoints`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// Listing metric names.
    Metrics,
    /// Listing labels, their values, and series.
    Labels,
    /// A structured range query.
    Range,
    /// A structured instant query.
    Instant,
    /// Arbitrary PromQL, wherever it is written.
    Expr,
}

/// A session or an embed token: discover and query (API.md C5).
#[derive(Clone, Debug)]
pub struct Reader(Arc<Identified>);

/// As [`Reader`], or an API key with the scope `read`: the Prometheus mount (API.md C6).
#[derive(Clone, Debug)]
pub struct MountReader(Reader);

/// An API key with the scope `ingest`, or a session of an editor: ingestion (API.md C7).
#[derive(Clone, Debug)]
pub struct Machine(Arc<Identified>);

/// A session: everything of the cabinet.
#[derive(Clone, Debug)]
pub struct Cabinet(Arc<Identified>);

/// A reader inside an organisation.
#[derive(Clone, Debug)]
pub struct Entered {
    /// What its snapshot may see; `scope.min_time` is already the token's look-back.
    pub access: Access,
    /// What it may ask.
    pub grant: Grant,
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
    charge: Option<()>,
}

impl Writing {
    /// Charges `samples` to the key's samples per second; a session is not limited here.
    ///
    /// # Errors
    /// 503 `ingest_throttled` with a jittered `Retry-After`: Prometheus keeps and resends on 503 (API.md B3).
    pub fn charge_samples(&self, samples: usize) -> ApiResult<()> {
        let _ = (samples, self.charge);
        Ok(())
    }
}

impl Reader {
    /// Enters the organisation `slug` to ask for `endpoint`.
    ///
    /// # Errors
    /// 404 `org_not_found` for a session that is not its member, 403 `org_mismatch` for a token of another one, 403
    /// `embed_restricted` where the token does not grant the endpoint.
    pub fn enter(&self, slug: &str, endpoint: Endpoint) -> ApiResult<Entered> {
        let _ = (slug, endpoint, &self.0);
        Err(ApiError::new(Code::OrgNotFound, "there is no such organisation, or you are not its member"))
    }
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
        let _ = (slug, &self.0);
        Err(ApiError::new(Code::OrgNotFound, "there is no such organisation, or you are not its member"))
    }
}

/// What the credential layer found; left with the request.
#[derive(Debug)]
pub(super) struct Identified {}

fn identified(parts: &Parts) -> ApiResult<Arc<Identified>> {
    parts
        .extensions
        .get::<Arc<Identified>>()
        .cloned()
        .ok_or_else(|| ApiError::new(Code::Unauthenticated, "no credential"))
}

impl<S: Send + Sync> FromRequestParts<S> for Reader {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> ApiResult<Reader> {
        identified(parts).map(Reader)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for MountReader {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> ApiResult<MountReader> {
        identified(parts).map(Reader).map(MountReader)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Machine {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> ApiResult<Machine> {
        identified(parts).map(Machine)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Cabinet {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> ApiResult<Cabinet> {
        identified(parts).map(Cabinet)
    }
}
