//! The layers that every request passes, in this order (docs/specification.md D9): request id,
//! trace, panic handler, host allow-list, CORS, body deadline and limit, CSRF, credential, rate
//! limit.

use std::convert::Infallible;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use axum::extract::Request;
use axum::http::uri::PathAndQuery;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use tower::Service;
use tracing::Instrument;

use super::aliases;
use super::body::{self, BodyBytes, BodyDeadlines, Drains};
use super::callers::{self, Callers};
use super::cors;
use super::csrf::CookieCsrf;
use super::encoding::Coding;
use super::error::{ApiError, Code, ErrorFormat};
use super::host::AllowedHosts;
use super::lanes::panic_text;
use super::own_metrics::Counters;
use super::prefix::Prefix;
use super::request_id::RequestId;
use super::router::{ResponseFuture, Route, RouteHandler, RouteTree};
use super::security_headers;
use super::standby::StandbyRequests;
use crate::clock::Stopwatch;
use crate::entropy::Entropy;

/// The settings and counters of the layers that need no accounts.
#[derive(Debug)]
pub(super) struct EdgePolicy {
    pub(super) hosts: Arc<AllowedHosts>,
    pub(super) trusted_origins: Arc<[String]>,
    pub(super) deadlines: BodyDeadlines,
    pub(super) body_bytes: Arc<BodyBytes>,
    pub(super) drains: Drains,
    pub(super) counters: Arc<Counters>,
    /// The path of the public URL, if it has one.
    pub(super) prefix: Prefix,
    /// Responses carry `Strict-Transport-Security`.
    pub(super) https_only: bool,
}

/// The layers that need the accounts, which exist once the store is open.
#[derive(Debug)]
pub(super) struct AuthPolicy {
    pub(super) csrf: CookieCsrf,
    pub(super) callers: Arc<Callers>,
    /// The requests of a follower; `None` without a standby.
    pub(super) standby: Option<Arc<StandbyRequests>>,
}

/// All routes of one server behind its layers. Cheap to clone.
#[derive(Clone)]
pub struct App(Arc<Pipeline>);

/// All layers as one future. Boxing each layer cost a tenth of the server's CPU time with remote
/// writes of 2,000 samples (four alternating runs each).
struct Pipeline {
    policy: EdgePolicy,
    auth: Option<AuthPolicy>,
    routes: RouteTree,
    /// Handles requests that match no route.
    fallback: RouteHandler,
    /// Generates request ids, which are not secret. Asking the system for each would cost a system
    /// call.
    ids: Mutex<Entropy>,
}

impl App {
    /// Puts the layers in front of the routes. `auth` is `None` while the accounts are being
    /// opened.
    pub(super) fn new(
        routes: RouteTree,
        fallback: RouteHandler,
        policy: EdgePolicy,
        auth: Option<AuthPolicy>,
    ) -> App {
        let ids = Mutex::new(Entropy::seeded(u64::from_le_bytes(Entropy::system().bytes())));
        App(Arc::new(Pipeline { policy, auth, routes, fallback, ids }))
    }

    /// Handles a request.
    pub async fn answer(self, request: Request) -> Response {
        self.0.pass(request).await
    }

    /// Responds with an error that passes all layers, so it has the headers of every response.
    pub(super) async fn refuse(self, mut request: Request, refused: ApiError) -> Response {
        request.extensions_mut().insert(refused);
        self.0.pass(request).await
    }
}

impl std::fmt::Debug for App {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("App").field("routes", &self.0.routes).finish_non_exhaustive()
    }
}

impl Service<Request> for App {
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // A request is never delayed before `call`.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let site = self.clone();
        Box::pin(async move { Ok(site.answer(request).await) })
    }
}

/// The facts about a request that are known before its handler runs.
#[derive(Clone, Copy)]
struct RequestContext<'a> {
    id: &'a RequestId,
    route: Option<&'a Arc<Route>>,
    /// The request has an embed token as a parameter, and its route admits that.
    token_parameter: bool,
}

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const URI_BYTES_MAX: usize = 16 * 1024;

/// Offers programs the second way to send an API key.
const BASIC_CHALLENGE: HeaderValue = HeaderValue::from_static("Basic realm=\"metrics\", charset=\"UTF-8\"");

/// Returns whether a browser sent a request: a page, or its script. Browsers without `Sec-Fetch`
/// headers, which plain HTTP omits, still have a cookie or the name `Mozilla`.
fn is_browser(headers: &HeaderMap) -> bool {
    let names_itself = |value: &HeaderValue| value.as_bytes().starts_with(b"Mozilla/");
    [header::ORIGIN, header::COOKIE].iter().any(|name| headers.contains_key(name))
        || headers.contains_key("sec-fetch-mode")
        || headers.get(header::USER_AGENT).is_some_and(names_itself)
}

impl Pipeline {
    /// Runs a request through all layers: id, span, error body, security headers, counters.
    async fn pass(&self, mut request: Request) -> Response {
        let watch = Stopwatch::start();
        let id = RequestId::of(request.headers().get(REQUEST_ID), &self.ids);
        self.policy.prefix.strip(request.uri_mut());
        without_trailing_slash(request.uri_mut());
        self.resolve_alias(&mut request);
        let method = request.method().clone();
        let uri = request.uri().clone();
        let route = self.routes.find(uri.path());
        let token_parameter = route.is_some_and(|route| route.takes_token_parameter(&method))
            && callers::token_parameters(uri.query()).next().is_some();
        let context = RequestContext { id: &id, route, token_parameter };
        let form = ErrorFormat::of(uri.path(), request.headers());
        let is_browser = is_browser(request.headers());
        // The query string stays out: it may hold the token of a sign-in link.
        let span =
            tracing::info_span!("request", id = id.as_str(), method = %method, route = tracing::field::Empty);
        let is_too_long =
            request.uri().path_and_query().is_some_and(|target| target.as_str().len() > URI_BYTES_MAX);
        let refused = request.extensions_mut().remove::<ApiError>();
        let too_long = || format!("a URL may have at most {URI_BYTES_MAX} bytes");
        let refused = refused.or_else(|| is_too_long.then(|| ApiError::new(Code::UriTooLong, too_long())));
        let refused = refused.or_else(|| Coding::none_fits(request.headers()).then(no_coding));
        let mut response = match refused {
            Some(refused) => refused.into_response(),
            None => self.catch_panic(request, context).instrument(span.clone()).await,
        };
        if let Some(error) = response.extensions_mut().remove::<ApiError>() {
            let mut body = error.render(form, Some(id.as_str()));
            // Inner layers may have added headers, such as a renewed cookie. Those headers are
            // kept.
            for name in response.headers().keys().filter(|name| *name != header::CONTENT_LENGTH) {
                if body.headers().contains_key(name) {
                    continue;
                }
                for value in response.headers().get_all(name) {
                    body.headers_mut().append(name, value.clone());
                }
            }
            *body.extensions_mut() = std::mem::take(response.extensions_mut());
            // Prometheus' and OTLP's bodies do not contain the code.
            body.extensions_mut().insert(error.code());
            response = body;
        }
        // A browser would ask for a password.
        if response.status() == StatusCode::UNAUTHORIZED
            && context.route.is_some_and(|route| route.takes_api_keys())
            && !is_browser
        {
            response.headers_mut().append(header::WWW_AUTHENTICATE, BASIC_CHALLENGE);
        }
        self.policy.prefix.add_to_headers(response.headers_mut());
        response.headers_mut().insert(REQUEST_ID, id.header());
        security_headers::set(response.headers_mut());
        if self.policy.https_only {
            security_headers::require_https(response.headers_mut());
        }
        let route = context.route.map_or("unmatched", |route| route.pattern());
        span.record("route", route);
        self.policy.counters.request(route, &method, response.status(), watch.elapsed());
        span.in_scope(|| {
            let (status, duration_ms) = (response.status().as_u16(), watch.elapsed_ms());
            let code = response.extensions().get::<Code>().map(|code| code.as_str());
            match status {
                // Without accounts the server is starting. Its responses are logged at level debug,
                // because clients poll and the start logs its own progress.
                500.. if self.auth.is_some() => {
                    tracing::warn!(status, code, duration_ms, "answered {status}")
                }
                _ => tracing::debug!(status, code, duration_ms, "answered {status}"),
            }
        });
        response
    }

    /// Replaces a path without an organisation by the path of the credential's organisation.
    fn resolve_alias(&self, request: &mut Request) {
        let Some(auth) = &self.auth else { return };
        let mut uri = std::mem::take(request.uri_mut());
        aliases::resolve(&mut uri, || auth.callers.named_org(request.headers()));
        *request.uri_mut() = uri;
    }

    /// Runs the inner layers and turns a panic into a 500 response.
    async fn catch_panic(&self, request: Request, context: RequestContext<'_>) -> Response {
        let mut admitted = std::pin::pin!(self.admit(request, context));
        let answered = std::future::poll_fn(|cx| {
            // State that a panic leaves inconsistent is dropped with the request. Shared locks are
            // poisoned.
            match catch_unwind(AssertUnwindSafe(|| admitted.as_mut().poll(cx))) {
                Ok(poll) => poll.map(Ok),
                Err(panic) => Poll::Ready(Err(panic)),
            }
        });
        answered.await.unwrap_or_else(|panic| {
            self.policy.counters.panicked();
            ApiError::internal(format!("a handler panicked: {}", panic_text(panic.as_ref()))).into_response()
        })
    }

    /// Checks host, CORS preflight and body length, then enters the inner layers.
    async fn admit(&self, request: Request, context: RequestContext<'_>) -> Response {
        let policy = &self.policy;
        let (request, _permit) = body::bound(request, policy.deadlines, &policy.body_bytes, &policy.drains);
        if let Err(refused) = policy.hosts.check(request.uri(), request.headers()) {
            return refused.into_response();
        }
        let preflight = cors::preflight(
            request.method(),
            request.uri().path(),
            request.headers(),
            &policy.trusted_origins,
        );
        if let Some(answer) = preflight {
            return answer;
        }
        // Cheap: a URI shares its text.
        let uri = request.uri().clone();
        let origin = request.headers().get(header::ORIGIN).cloned();
        let with_token = context.token_parameter || request.headers().contains_key(header::AUTHORIZATION);
        let mut response = match body::admit_length(&request) {
            Ok(()) => self.enter(request, context).await,
            Err(refused) => refused.into_response(),
        };
        cors::open(uri.path(), origin.as_ref(), with_token, &policy.trusted_origins, &mut response);
        response
    }

    /// Checks CSRF, credential and rate limit, then runs the handler.
    async fn enter(&self, request: Request, context: RequestContext<'_>) -> Response {
        let Some(auth) = &self.auth else { return self.route(request, context).await };
        if let Some(standby) =
            auth.standby.as_ref().filter(|_| StandbyRequests::includes(request.uri().path()))
        {
            // No other credential opens these paths.
            return standby.answer(&request).await;
        }
        let routed = |request| self.route(request, context);
        let (id, parameter) = (context.id, context.token_parameter);
        let next = |request| callers::credential(&auth.callers, request, id, parameter, routed);
        let is_change = !request.method().is_safe() && !is_read(request.uri().path());
        let response = auth.csrf.check(request, next).await;
        match &auth.standby {
            Some(standby) if is_change && !response.status().is_server_error() => {
                match standby.settle().await {
                    Ok(()) => response,
                    Err(refused) => refused.into_response(),
                }
            }
            _ => response,
        }
    }

    fn route(&self, request: Request, context: RequestContext<'_>) -> ResponseFuture {
        match context.route {
            Some(route) => route.answer(request),
            None => (self.fallback)(request),
        }
    }
}

/// Returns whether `path` takes queries as the body of a `POST`, which never wait for a standby.
fn is_read(path: &str) -> bool {
    let below = path.strip_prefix("/api/v1/orgs/").and_then(|rest| rest.split_once('/'));
    let Some((_, below)) = below else { return false };
    let is_query = below == "query" || below.starts_with("query/");
    // The only change among the routes of Prometheus' API is below `admin`.
    let of_prometheus = below.strip_prefix("prometheus/api/v1/");
    is_query || of_prometheus.is_some_and(|rest| !rest.starts_with("admin/"))
}

fn no_coding() -> ApiError {
    ApiError::new(Code::NotAcceptable, "Accept-Encoding refuses every supported coding: identity, gzip, zstd")
}

/// Removes slashes at the end of the path, except from the root: `/a/` becomes `/a`.
fn without_trailing_slash(uri: &mut Uri) {
    let path = uri.path();
    let trimmed = path.trim_end_matches('/');
    if trimmed.len() == path.len() || trimmed.is_empty() {
        return;
    }
    let target = uri.query().map_or_else(|| trimmed.to_owned(), |query| format!("{trimmed}?{query}"));
    let mut parts = uri.clone().into_parts();
    if let Ok(target) = PathAndQuery::try_from(target) {
        parts.path_and_query = Some(target);
        if let Ok(shorter) = Uri::from_parts(parts) {
            *uri = shorter;
        }
    }
}

/// Returns the error for a path below `/api` or `/auth` that matches no route.
pub(super) fn not_found(method: &Method, uri: &Uri) -> ApiError {
    let path = uri.path();
    let asked = format!("there is nothing at {} {}", super::own_metrics::method_label(method), shown(path));
    // Clients join `api/v1/...` to the URL that they are configured with.
    let detail = match path.matches("/api/v1").count() {
        0 => asked,
        _ => format!(
            "{asked}; the base URL of an organisation's Prometheus API is <public URL>/api/v1/orgs/<slug>/prometheus"
        ),
    };
    ApiError::new(Code::NotFound, detail)
}

/// Returns the first 200 characters of a path, for an error body.
fn shown(path: &str) -> String {
    path.chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_queries_answer_before_the_standby_has_earlier_changes() {
        for path in ["x/query", "x/query/expr", "query-lab/query/batch", "x/prometheus/api/v1/query_range"] {
            assert!(is_read(&format!("/api/v1/orgs/{path}")), "{path}");
        }
        for path in [
            "query-lab/members",
            "query/api-keys/5",
            "x/dashboards/query-x",
            "x/dashboards/d/query",
            "x/prometheus/api/v1/admin/tsdb/delete_series",
            "query",
        ] {
            assert!(!is_read(&format!("/api/v1/orgs/{path}")), "{path}");
        }
        assert!(!is_read("/api/v1/query"));
    }

    #[test]
    fn a_trailing_slash_is_ignored_and_the_query_kept() {
        let cases = [
            ("/a/", "/a"),
            ("/a///", "/a"),
            ("/", "/"),
            ("//", "//"),
            ("/a/?x=/", "/a?x=/"),
            ("/a?x=/", "/a?x=/"),
            ("/a", "/a"),
        ];
        for (from, to) in cases {
            let mut uri: Uri = from.parse().expect("a URI");
            without_trailing_slash(&mut uri);
            assert_eq!(uri.to_string(), to, "{from}");
        }
    }
}
