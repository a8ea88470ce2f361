//! What every request passes, outermost first (API.md D9): request id, trace, catch-panic, host allow-list, CORS, body
//! deadline and limit, CSRF, credential, rate limit.

use std::any::Any;
use std::sync::Arc;

use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::http::uri::PathAndQuery;
use axum::http::{HeaderName, Method, Uri, header};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use tower_http::catch_panic::CatchPanicLayer;
use tracing::Instrument;

use super::body::{self, BodyDeadlines, Drains, IngestBytes};
use super::callers::{self, Callers};
use super::cors;
use super::csrf::CookieCsrf;
use super::error::{ApiError, Code, Form};
use super::host::AllowedHosts;
use super::lanes::panic_text;
use super::own_metrics::Counters;
use super::prefix::Prefix;
use super::request_id::RequestId;
use super::security_headers;
use crate::clock::Stopwatch;

/// What the layers look at.
#[derive(Clone, Debug)]
pub(super) struct Gate {
    pub(super) hosts: Arc<AllowedHosts>,
    pub(super) trusted_origins: Arc<[String]>,
    pub(super) deadlines: BodyDeadlines,
    pub(super) ingest_bytes: Arc<IngestBytes>,
    pub(super) drains: Drains,
    pub(super) counters: Arc<Counters>,
    /// The path of the public URL, if it has one.
    pub(super) prefix: Prefix,
}

/// Puts all layers around the routes.
pub(super) fn wrap(routes: Router, gate: Gate, csrf: CookieCsrf, callers: Callers) -> Router {
    around(routes.layer(from_fn_with_state(callers, callers::credential)).layer(csrf), gate)
}

/// Puts those layers around the routes that need no room.
pub(super) fn around(routes: Router, gate: Gate) -> Router {
    let counters = Arc::clone(&gate.counters);
    let inner = routes
        .layer(from_fn_with_state(gate.clone(), admit))
        .layer(CatchPanicLayer::custom(move |panic: Box<dyn Any + Send>| {
            counters.panicked();
            ApiError::internal(format!("a handler panicked: {}", panic_text(panic.as_ref()))).into_response()
        }))
        .layer(from_fn(remember_route));
    // The outermost layer stands before routing, so that it may rewrite the path.
    Router::new().fallback_service(inner).layer(from_fn_with_state(gate, outermost))
}

/// The matched pattern, on its way out to the counters.
#[derive(Clone, Debug)]
struct Route(MatchedPath);

async fn remember_route(matched: Option<MatchedPath>, request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    if let Some(matched) = matched {
        response.extensions_mut().insert(Route(matched));
    }
    response
}

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const URI_BYTES_MAX: usize = 16 * 1024;

/// Id, span, error body, security headers, counters.
async fn outermost(State(gate): State<Gate>, mut request: Request, next: Next) -> Response {
    let watch = Stopwatch::start();
    let id = RequestId::of(request.headers().get(REQUEST_ID));
    request.extensions_mut().insert(id.clone());
    gate.prefix.strip(request.uri_mut());
    without_trailing_slash(request.uri_mut());
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    // The query string stays out: it may hold the token of a sign-in link.
    let span =
        tracing::info_span!("request", id = id.as_str(), method = %method, route = tracing::field::Empty);
    let too_long = request.uri().path_and_query().is_some_and(|target| target.as_str().len() > URI_BYTES_MAX);
    let mut response = match too_long {
        true => ApiError::new(Code::UriTooLong, format!("a URL may have at most {URI_BYTES_MAX} bytes"))
            .into_response(),
        false => next.run(request).instrument(span.clone()).await,
    };
    let mut is_starting = false;
    if let Some(error) = response.extensions_mut().remove::<ApiError>() {
        is_starting = error.code() == Code::Starting;
        let mut body = error.render(Form::of_path(&path), Some(id.as_str()));
        // The layers below may have added headers, a renewed cookie first of all; they stay.
        for name in response.headers().keys().filter(|name| *name != header::CONTENT_LENGTH) {
            if body.headers().contains_key(name) {
                continue;
            }
            for value in response.headers().get_all(name) {
                body.headers_mut().append(name, value.clone());
            }
        }
        *body.extensions_mut() = std::mem::take(response.extensions_mut());
        response = body;
    }
    gate.prefix.put_back(response.headers_mut());
    response.headers_mut().insert(REQUEST_ID, id.header());
    security_headers::set(response.headers_mut());
    let route = response.extensions_mut().remove::<Route>();
    let route = route.as_ref().map_or("unmatched", |Route(matched)| matched.as_str());
    span.record("route", route);
    gate.counters.request(route, &method, response.status(), watch.elapsed());
    span.in_scope(|| {
        let (status, duration_ms) = (response.status().as_u16(), watch.elapsed_ms());
        match status {
            // Said once by the start itself, and asked for again and again meanwhile.
            500.. if !is_starting => tracing::warn!(status, duration_ms, "answered {status}"),
            _ => tracing::debug!(status, duration_ms, "answered {status}"),
        }
    });
    response
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

/// Host, CORS, body.
async fn admit(State(gate): State<Gate>, request: Request, next: Next) -> Response {
    let (request, _held) = body::bound(request, gate.deadlines, &gate.ingest_bytes, &gate.drains);
    if let Err(refused) = gate.hosts.check(request.uri(), request.headers()) {
        return refused.into_response();
    }
    let path = request.uri().path().to_owned();
    if let Some(answer) = cors::preflight(request.method(), &path, request.headers(), &gate.trusted_origins) {
        return answer;
    }
    let origin = request.headers().get(header::ORIGIN).cloned();
    let with_token = request.headers().contains_key(header::AUTHORIZATION);
    let mut response = match body::admit_length(&request) {
        Ok(()) => next.run(request).await,
        Err(refused) => refused.into_response(),
    };
    cors::open(&path, origin.as_ref(), with_token, &gate.trusted_origins, &mut response);
    response
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
