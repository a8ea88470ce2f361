//! Finds the handler of a request by its path and method.
//!
//! Segments are compared as they were sent, without percent-decoding. A literal segment takes
//! precedence over a `{parameter}`, and a parameter is never empty. axum's own router clones, wraps
//! and boxes a request at each of its levels. This table is fixed at the start and needs none of
//! that.

use std::borrow::Cow;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use axum::body::{Body, HttpBody as _};
use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, header};
use axum::response::{IntoResponse as _, Response};

use super::error::{ApiError, ApiResult, Code};
use super::routes::Auth;
use crate::model::percent_decoded;

/// The boxed future of a handler's response.
pub type ResponseFuture = Pin<Box<dyn Future<Output = Response> + Send>>;

/// A handler with its dependencies.
pub(super) type RouteHandler = Arc<dyn Fn(Request) -> ResponseFuture + Send + Sync>;

/// The routes of a server by their path patterns.
#[derive(Default)]
pub(super) struct RouteTree {
    routes: Vec<Arc<Route>>,
    /// The position of each pattern in `routes`.
    patterns: matchit::Router<usize>,
}

/// One path pattern with its methods and handlers.
#[derive(Clone)]
pub(super) struct Route {
    pattern: Box<str>,
    methods: Vec<MethodRow>,
}

/// One method of a route.
#[derive(Clone)]
struct MethodRow {
    method: Method,
    auth: Auth,
    handle: RouteHandler,
}

impl RouteTree {
    /// Adds a route. If a method and pattern are added twice, the first handler is kept.
    pub(super) fn add(&mut self, pattern: &str, method: Method, auth: Auth, handle: RouteHandler) {
        let existing = self.routes.iter_mut().find(|route| *route.pattern == *pattern);
        if let Some(route) = existing {
            if route.methods.iter().all(|row| row.method != method) {
                Arc::make_mut(route).methods.push(MethodRow { method, auth, handle });
            }
            return;
        }
        self.patterns.insert(pattern, self.routes.len()).expect("the route table has no conflicts");
        let methods = vec![MethodRow { method, auth, handle }];
        self.routes.push(Arc::new(Route { pattern: pattern.into(), methods }));
    }

    /// Returns the route of a path, for any method.
    pub(super) fn find(&self, path: &str) -> Option<&Arc<Route>> {
        let found = self.patterns.at(path).ok()?;
        // matchit lets a parameter in the middle of a path be empty.
        let is_named = found.params.iter().all(|(_, value)| !value.is_empty());
        is_named.then(|| self.routes.get(*found.value)).flatten()
    }
}

impl std::fmt::Debug for RouteTree {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(&self.routes).finish()
    }
}

/// Returns the segments of a path, without its leading slash.
fn segments(path: &str) -> impl Iterator<Item = &str> {
    split_segments(path.strip_prefix('/').unwrap_or(path))
}

/// Returns the segments of a path below `/api/v1/orgs/`, the slug first; `None` for other paths.
pub(super) fn of_org(path: &str) -> Option<impl Iterator<Item = &str>> {
    path.strip_prefix("/api/v1/orgs/").map(split_segments)
}

/// Splits a path at each slash.
fn split_segments(path: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(path);
    std::iter::from_fn(move || {
        let segment;
        (segment, rest) = split_first(rest?);
        Some(segment)
    })
}

/// Splits a path at its first slash. A byte loop is the fastest search, because segments are short.
fn split_first(path: &str) -> (&str, Option<&str>) {
    let slash = path.bytes().position(|byte| byte == b'/');
    match slash.and_then(|slash| Some((path.get(..slash)?, path.get(slash + 1..)?))) {
        Some((segment, rest)) => (segment, Some(rest)),
        None => (path, None),
    }
}

fn is_parameter(segment: &str) -> bool {
    segment.starts_with('{')
}

impl Route {
    /// Returns the path with its `{parameters}`, as counters show it.
    pub(super) fn pattern(&self) -> &str {
        &self.pattern
    }

    /// Returns whether requests of this method may send an embed token as a parameter.
    pub(super) fn takes_token_parameter(&self, method: &Method) -> bool {
        let get = if *method == Method::HEAD { &Method::GET } else { method };
        self.methods.iter().any(|row| row.method == *get && matches!(row.auth, Auth::PictureCaller(_)))
    }

    /// Returns whether any method of the route takes API keys.
    pub(super) fn takes_api_keys(&self) -> bool {
        let takes = |auth| {
            matches!(
                auth,
                Auth::PrometheusCaller(_) | Auth::IngestCaller | Auth::AlertingCaller | Auth::MintCaller
            )
        };
        self.methods.iter().any(|row| takes(row.auth))
    }

    /// Runs the handler of the request's method. `HEAD` runs that of `GET` and drops the body.
    pub(super) fn answer(self: &Arc<Route>, mut request: Request) -> ResponseFuture {
        let of = |method: &Method| self.methods.iter().find(|row| row.method == *method);
        let head = *request.method() == Method::HEAD;
        let found = of(request.method()).or_else(|| of(&Method::GET).filter(|_| head));
        let Some(row) = found else { return Box::pin(std::future::ready(self.refuse())) };
        request.extensions_mut().insert(Matched { route: Arc::clone(self), auth: row.auth });
        let answering = (row.handle)(request);
        if !head {
            return answering;
        }
        Box::pin(async move {
            let mut response = answering.await;
            strip_body(&mut response);
            response
        })
    }

    fn refuse(&self) -> Response {
        let mut methods: Vec<&str> = self.methods.iter().map(|row| row.method.as_str()).collect();
        if let Some(get) = methods.iter().position(|method| *method == "GET") {
            methods.insert(get + 1, "HEAD");
        }
        let refused = ApiError::new(Code::MethodNotAllowed, "this path does not support this method");
        let mut response = refused.into_response();
        if let Ok(allow) = HeaderValue::try_from(methods.join(",")) {
            response.headers_mut().insert(header::ALLOW, allow);
        }
        response
    }
}

/// Removes the body and keeps its length. A `HEAD` request starts nothing, so cookies of the
/// handler are removed, too. The credential layer renews a session afterwards.
fn strip_body(response: &mut Response) {
    response.headers_mut().remove(header::SET_COOKIE);
    let body = std::mem::replace(response.body_mut(), Body::empty());
    if let Some(bytes) = body.size_hint().exact() {
        response.headers_mut().entry(header::CONTENT_LENGTH).or_insert_with(|| HeaderValue::from(bytes));
    }
}

impl std::fmt::Debug for Route {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let methods: Vec<&Method> = self.methods.iter().map(|row| &row.method).collect();
        f.debug_struct("Route").field("pattern", &self.pattern).field("methods", &methods).finish()
    }
}

/// The matched row of the route table, an extension of the request.
#[derive(Clone, Debug)]
struct Matched {
    route: Arc<Route>,
    auth: Auth,
}

impl Matched {
    /// Returns the row of a request.
    ///
    /// # Errors
    /// 500 if the request matched no row.
    fn of(parts: &Parts) -> ApiResult<&Matched> {
        let unmatched = || ApiError::internal("a handler that needs its row is not in the route table");
        parts.extensions.get().ok_or_else(unmatched)
    }
}

/// Returns the callers that the row of a request admits.
///
/// # Errors
/// 500 if the request matched no route.
pub(super) fn required_auth(parts: &Parts) -> ApiResult<Auth> {
    Ok(Matched::of(parts)?.auth)
}

/// Returns the path pattern of a request's route.
///
/// # Errors
/// 500 if the request matched no route.
pub(super) fn pattern(parts: &Parts) -> ApiResult<&str> {
    Ok(Matched::of(parts)?.route.pattern())
}

/// Returns the parameter `slug` of the path, percent-decoded.
///
/// # Errors
/// Those of [`parameters`]; 500 if the path names no organisation.
pub(super) fn slug_parameter(parts: &Parts) -> ApiResult<String> {
    let slug = parameters(parts)?.into_iter().find(|(name, _)| *name == "slug");
    let unnamed = || ApiError::internal("a route requires an organisation, but its path names none");
    slug.map(|(_, slug)| slug.into_owned()).ok_or_else(unnamed)
}

/// Returns the name and the percent-decoded value of each parameter, in the order of the path.
///
/// # Errors
/// 400 if a value is not UTF-8; 500 if the request matched no route.
pub(super) fn parameters(parts: &Parts) -> ApiResult<Vec<(&str, Cow<'_, str>)>> {
    let both = segments(pattern(parts)?).zip(segments(parts.uri.path()));
    let given = both.filter(|(pattern, _)| is_parameter(pattern));
    given.map(|(pattern, given)| Ok((pattern.trim_matches(['{', '}']), decoded(given)?))).collect()
}

/// Percent-decodes a segment. A percent sign without two hexadecimal digits is kept as it is.
///
/// # Errors
/// 400 `bad_request` if the result is not UTF-8.
pub(super) fn decoded(segment: &str) -> ApiResult<Cow<'_, str>> {
    match percent_decoded(segment) {
        Cow::Borrowed(_) => Ok(Cow::Borrowed(segment)),
        Cow::Owned(bytes) => String::from_utf8(bytes)
            .map(Cow::Owned)
            .map_err(|_| ApiError::new(Code::BadRequest, "the path is not valid percent-encoded UTF-8")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(rows: &[(&str, Method)]) -> RouteTree {
        let mut table = RouteTree::default();
        for (pattern, method) in rows {
            let name = format!("{method} {pattern}");
            let handle = move |_: Request| -> ResponseFuture {
                let name = name.clone();
                Box::pin(async move { name.into_response() })
            };
            table.add(pattern, method.clone(), Auth::Public, Arc::new(handle));
        }
        table
    }

    #[test]
    fn a_literal_segment_takes_precedence_and_a_parameter_is_never_empty() {
        let table = table(&[
            ("/a/{x}", Method::GET),
            ("/a/b", Method::GET),
            ("/a/b/c/d", Method::GET),
            ("/a/{x}/c/e", Method::POST),
            ("/{x}", Method::GET),
        ]);
        let found = |path: &str| table.find(path).map(|route| route.pattern().to_owned());
        for (path, pattern) in [
            ("/a/b", Some("/a/b")),
            ("/a/c", Some("/a/{x}")),
            ("/a/%62", Some("/a/{x}")),
            ("/a/b/c/d", Some("/a/b/c/d")),
            ("/a/b/c/e", Some("/a/{x}/c/e")),
            ("/a", Some("/{x}")),
            ("/a/", None),
            ("/a//c/e", None),
            ("/", None),
            ("", None),
            ("*", None),
            ("/a/b/c/d/f", None),
        ] {
            assert_eq!(found(path).as_deref(), pattern, "{path}");
        }
    }

    #[tokio::test]
    async fn a_path_lists_its_methods_in_allow() {
        let table = table(&[("/a", Method::GET), ("/a", Method::POST)]);
        let ask = async |method: Method| {
            let mut request = Request::new(Body::empty());
            *request.method_mut() = method;
            let route = Arc::clone(table.find("/a").expect("a row"));
            let response = route.answer(request).await;
            let header =
                |name| response.headers().get(name).map(|value| value.to_str().expect("text").to_owned());
            let (status, allow, length) =
                (response.status().as_u16(), header(header::ALLOW), header(header::CONTENT_LENGTH));
            let body = axum::body::to_bytes(response.into_body(), 10_000).await.expect("short");
            (status, allow, length, String::from_utf8(body.to_vec()).expect("text"))
        };
        assert_eq!(ask(Method::GET).await.3, "GET /a");
        assert_eq!(ask(Method::POST).await.3, "POST /a");
        assert_eq!(ask(Method::HEAD).await, (200, None, Some("6".to_owned()), String::new()));
        let refused = ask(Method::DELETE).await;
        assert_eq!((refused.0, refused.1.as_deref()), (405, Some("GET,HEAD,POST")));
    }

    #[test]
    fn escapes_are_decoded_once_and_incomplete_ones_are_kept() {
        let plain = |text: &str| decoded(text).map(Cow::into_owned).map_err(|error| error.code());
        assert_eq!(plain("a%2Fb%2fc"), Ok("a/b/c".to_owned()));
        assert_eq!(plain("%25%32%46"), Ok("%2F".to_owned()));
        assert_eq!(plain("%C3%A4+"), Ok("\u{e4}+".to_owned()));
        for broken in ["%", "%2", "100%", "%zz", "%+1", "%\u{e4}"] {
            assert_eq!(plain(broken), Ok(broken.to_owned()));
        }
        assert_eq!(plain("%ff"), Err(Code::BadRequest));
    }
}
