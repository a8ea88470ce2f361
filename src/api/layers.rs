//! What every request passes, in this order (docs/specification.md D9): request id, trace, catch-panic, host allow-list, CORS, body
//! deadline and limit, CSRF, credential, rate limit.

use std::convert::Infallible;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use axum::extract::Request;
use axum::http::uri::PathAndQuery;
use axum::http::{HeaderName, Method, Uri, header};
use axum::response::{IntoResponse, Response};
use tower::Service;
use tracing::Instrument;

use super::body::{self, BodyDeadlines, Drains, IngestBytes};
use super::callers::{self, Callers};
use super::cors;
use super::csrf::CookieCsrf;
use super::dispatch::{Answering, Dispatch, Handle, Route};
use super::encoding::Coding;
use super::error::{ApiError, Code, Form};
use super::host::AllowedHosts;
use super::lanes::panic_text;
use super::own_metrics::Counters;
use super::prefix::Prefix;
use super::request_id::RequestId;
use super::security_headers;
use crate::clock::Stopwatch;
use crate::entropy::Entropy;

/// What the layers look at.
#[derive(Debug)]
pub(super) struct Gate {
    pub(super) hosts: Arc<AllowedHosts>,
    pub(super) trusted_origins: Arc<[String]>,
    pub(super) deadlines: BodyDeadlines,
    pub(super) ingest_bytes: Arc<IngestBytes>,
    pub(super) drains: Drains,
    pub(super) counters: Arc<Counters>,
    /// The path of the public URL, if it has one.
    pub(super) prefix: Prefix,
    /// Browsers are told to come by https alone.
    pub(super) https_only: bool,
}

/// Who is let in, where there are rooms to be let into.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) csrf: CookieCsrf,
    pub(super) callers: Arc<Callers>,
}

/// Everything that is answered at one address. Cheap to clone.
#[derive(Clone)]
pub struct Site(Arc<Passage>);

/// All that a request passes, as one future: layers that are boxed one by one took a tenth of the server's CPU while it
/// took in remote writes of 2,000 samples (four runs each, taking turns).
struct Passage {
    gate: Gate,
    entry: Option<Entry>,
    routes: Dispatch,
    /// What no route answers.
    fallback: Handle,
    /// For ids of requests, which are no secrets: asking the system for each costs a call into it.
    ids: Mutex<Entropy>,
}

impl Site {
    /// Puts everything in front of the routes. Without an entry they need no room.
    pub(super) fn new(routes: Dispatch, fallback: Handle, gate: Gate, entry: Option<Entry>) -> Site {
        let ids = Mutex::new(Entropy::seeded(u64::from_le_bytes(Entropy::system().bytes())));
        Site(Arc::new(Passage { gate, entry, routes, fallback, ids }))
    }

    /// Answers a request.
    pub async fn answer(self, request: Request) -> Response {
        self.0.pass(request).await
    }

    /// Answers a request with a refusal, which gets all that an answer has.
    pub(super) async fn refuse(self, mut request: Request, refused: ApiError) -> Response {
        request.extensions_mut().insert(refused);
        self.0.pass(request).await
    }
}

impl std::fmt::Debug for Site {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Site").field("routes", &self.0.routes).finish_non_exhaustive()
    }
}

impl Service<Request> for Site {
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // Nothing waits before it is asked.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let site = self.clone();
        Box::pin(async move { Ok(site.answer(request).await) })
    }
}

/// What is known of a request before anything is asked of it.
#[derive(Clone, Copy)]
struct Way<'a> {
    id: &'a RequestId,
    route: Option<&'a Arc<Route>>,
}

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const URI_BYTES_MAX: usize = 16 * 1024;

impl Passage {
    /// Id, span, error body, security headers, counters.
    async fn pass(&self, mut request: Request) -> Response {
        let watch = Stopwatch::start();
        let id = RequestId::of(request.headers().get(REQUEST_ID), &self.ids);
        self.gate.prefix.strip(request.uri_mut());
        without_trailing_slash(request.uri_mut());
        let way = Way { id: &id, route: self.routes.find(request.uri().path()) };
        let method = request.method().clone();
        let uri = request.uri().clone();
        let form = Form::of(uri.path(), request.headers());
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
            None => self.caught(request, way).instrument(span.clone()).await,
        };
        if let Some(error) = response.extensions_mut().remove::<ApiError>() {
            let mut body = error.render(form, Some(id.as_str()));
            // What was done below may have added headers, a renewed cookie first of all; they stay.
            for name in response.headers().keys().filter(|name| *name != header::CONTENT_LENGTH) {
                if body.headers().contains_key(name) {
                    continue;
                }
                for value in response.headers().get_all(name) {
                    body.headers_mut().append(name, value.clone());
                }
            }
            *body.extensions_mut() = std::mem::take(response.extensions_mut());
            // Prometheus' and OTLP's bodies do not say it.
            body.extensions_mut().insert(error.code());
            response = body;
        }
        self.gate.prefix.put_back(response.headers_mut());
        response.headers_mut().insert(REQUEST_ID, id.header());
        security_headers::set(response.headers_mut());
        if self.gate.https_only {
            security_headers::insist_on_https(response.headers_mut());
        }
        let route = way.route.map_or("unmatched", |route| route.pattern());
        span.record("route", route);
        self.gate.counters.request(route, &method, response.status(), watch.elapsed());
        span.in_scope(|| {
            let (status, duration_ms) = (response.status().as_u16(), watch.elapsed_ms());
            let code = response.extensions().get::<Code>().map(|code| code.as_str());
            match status {
                // Without rooms the server is starting: said once by the start itself, and asked for again and again meanwhile.
                500.. if self.entry.is_some() => {
                    tracing::warn!(status, code, duration_ms, "answered {status}")
                }
                _ => tracing::debug!(status, code, duration_ms, "answered {status}"),
            }
        });
        response
    }

    /// A panic of a handler ends its request and nothing else.
    async fn caught(&self, request: Request, way: Way<'_>) -> Response {
        let mut admitted = std::pin::pin!(self.admit(request, way));
        let answered = std::future::poll_fn(|cx| {
            // What a panic leaves half done goes with its request; locks that others share say so themselves.
            match catch_unwind(AssertUnwindSafe(|| admitted.as_mut().poll(cx))) {
                Ok(poll) => poll.map(Ok),
                Err(panic) => Poll::Ready(Err(panic)),
            }
        });
        answered.await.unwrap_or_else(|panic| {
            self.gate.counters.panicked();
            ApiError::internal(format!("a handler panicked: {}", panic_text(panic.as_ref()))).into_response()
        })
    }

    /// Host, CORS, body.
    async fn admit(&self, request: Request, way: Way<'_>) -> Response {
        let gate = &self.gate;
        let (request, _held) = body::bound(request, gate.deadlines, &gate.ingest_bytes, &gate.drains);
        if let Err(refused) = gate.hosts.check(request.uri(), request.headers()) {
            return refused.into_response();
        }
        let preflight =
            cors::preflight(request.method(), request.uri().path(), request.headers(), &gate.trusted_origins);
        if let Some(answer) = preflight {
            return answer;
        }
        // A URI is shared, not copied.
        let uri = request.uri().clone();
        let origin = request.headers().get(header::ORIGIN).cloned();
        let with_token = request.headers().contains_key(header::AUTHORIZATION);
        let mut response = match body::admit_length(&request) {
            Ok(()) => self.enter(request, way).await,
            Err(refused) => refused.into_response(),
        };
        cors::open(uri.path(), origin.as_ref(), with_token, &gate.trusted_origins, &mut response);
        response
    }

    /// CSRF, credential, rate limit, handler.
    async fn enter(&self, request: Request, way: Way<'_>) -> Response {
        let Some(entry) = &self.entry else { return self.route(request, way).await };
        let routed = |request| self.route(request, way);
        let next = |request| callers::credential(&entry.callers, request, way.id, routed);
        entry.csrf.check(request, next).await
    }

    fn route(&self, request: Request, way: Way<'_>) -> Answering {
        match way.route {
            Some(route) => route.answer(request),
            None => (self.fallback)(request),
        }
    }
}

fn no_coding() -> ApiError {
    ApiError::new(
        Code::NotAcceptable,
        "Accept-Encoding refuses every coding there is here: identity, gzip, zstd",
    )
}

/// `/a/` is `/a`; the root stays.
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

/// What no route answers: a problem body below `/api` and `/auth`, the pages elsewhere.
pub(super) fn not_found(method: &Method, uri: &Uri) -> ApiError {
    ApiError::new(
        Code::NotFound,
        format!("there is nothing at {} {}", super::own_metrics::method_label(method), shown(uri.path())),
    )
}

/// A path cut to a size that an error body may repeat.
fn shown(path: &str) -> String {
    path.chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
