//! From a request's path and method to its handler: one walk over the path, one future.
//!
//! The rows of the route table stand in a tree of path segments. Paths are compared as they were sent, percent signs and
//! all; where both fit, a written segment wins over a `{parameter}`, and a parameter is never empty. A general router
//! clones, wraps and boxes a request's way at each of its levels; this table is known at the start and needs none of that.

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

/// An answer on its way, as axum's handlers give it.
pub type Answering = Pin<Box<dyn Future<Output = Response> + Send>>;

/// A handler with all that it needs.
pub(super) type Handle = Arc<dyn Fn(Request) -> Answering + Send + Sync>;

/// All paths.
#[derive(Debug, Default)]
pub(super) struct Dispatch(Segment);

/// What may follow a piece of a path.
#[derive(Debug, Default)]
struct Segment {
    written: Vec<(Box<str>, Segment)>,
    parameter: Option<Box<Segment>>,
    here: Option<Arc<Route>>,
}

/// One path of the table with its methods.
pub(super) struct Route {
    pattern: Box<str>,
    methods: Vec<(Method, Handle)>,
}

impl Dispatch {
    /// Adds a row. Of two rows for the same method and path the first stays.
    pub(super) fn add(&mut self, pattern: &str, method: &Method, handle: Handle) {
        let mut at = &mut self.0;
        for segment in segments(pattern) {
            at = if is_parameter(segment) {
                at.parameter.get_or_insert_default()
            } else {
                let known = at.written.iter().position(|(written, _)| **written == *segment);
                let known = known.unwrap_or_else(|| {
                    at.written.push((segment.into(), Segment::default()));
                    at.written.len() - 1
                });
                &mut at.written[known].1
            };
        }
        let mut methods = at.here.take().map(|route| route.methods.clone()).unwrap_or_default();
        if methods.iter().all(|(known, _)| known != method) {
            methods.push((method.clone(), handle));
        }
        at.here = Some(Arc::new(Route { pattern: pattern.into(), methods }));
    }

    /// The row of a path, whatever the method.
    pub(super) fn find(&self, path: &str) -> Option<&Arc<Route>> {
        self.0.find(path.strip_prefix('/')?)
    }
}

impl Segment {
    /// Looks at each level of the table at most twice, however long the path is.
    fn find(&self, path: &str) -> Option<&Arc<Route>> {
        let (segment, rest) = cut(path);
        let written = self.written.iter().find(|(written, _)| **written == *segment).map(|(_, next)| next);
        let parameter = self.parameter.as_deref().filter(|_| !segment.is_empty());
        written.into_iter().chain(parameter).find_map(|next| match rest {
            Some(rest) => next.find(rest),
            None => next.here.as_ref(),
        })
    }
}

/// The pieces of a path after the slash in front.
fn segments(path: &str) -> impl Iterator<Item = &str> {
    pieces(path.strip_prefix('/').unwrap_or(path))
}

/// Of a path of an organisation the pieces: what it is called first.
pub(super) fn of_org(path: &str) -> Option<impl Iterator<Item = &str>> {
    path.strip_prefix("/api/v1/orgs/").map(pieces)
}

/// What stands between slashes, and before the first and after the last one.
fn pieces(path: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(path);
    std::iter::from_fn(move || {
        let segment;
        (segment, rest) = cut(rest?);
        Some(segment)
    })
}

/// The piece before the first slash, and what is behind that. Pieces are so short that looking at each byte is the shortest
/// way to find it.
fn cut(path: &str) -> (&str, Option<&str>) {
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
    /// The path with its `{parameters}`, for counters.
    pub(super) fn pattern(&self) -> &str {
        &self.pattern
    }

    /// Has the handler of the request's method answer. `HEAD` is `GET` without its body.
    pub(super) fn answer(self: &Arc<Route>, mut request: Request) -> Answering {
        let of = |method: &Method| {
            self.methods.iter().find(|(known, _)| known == method).map(|(_, handle)| handle)
        };
        let head = *request.method() == Method::HEAD;
        let found = of(request.method()).or_else(|| of(&Method::GET).filter(|_| head));
        let Some(handle) = found else { return Box::pin(std::future::ready(self.refuse())) };
        request.extensions_mut().insert(Matched(Arc::clone(self)));
        let answering = handle(request);
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
        let mut methods: Vec<&str> = self.methods.iter().map(|(method, _)| method.as_str()).collect();
        if let Some(get) = methods.iter().position(|method| *method == "GET") {
            methods.insert(get + 1, "HEAD");
        }
        let refused = ApiError::new(Code::MethodNotAllowed, "this path does not take this method");
        let mut response = refused.into_response();
        if let Ok(allow) = HeaderValue::try_from(methods.join(",")) {
            response.headers_mut().insert(header::ALLOW, allow);
        }
        response
    }
}

/// Leaves the length that the body would have. A `HEAD` begins nothing, so cookies of the handler go, too; the credential
/// layer renews a session afterwards.
fn strip_body(response: &mut Response) {
    response.headers_mut().remove(header::SET_COOKIE);
    let body = std::mem::replace(response.body_mut(), Body::empty());
    if let Some(bytes) = body.size_hint().exact() {
        response.headers_mut().entry(header::CONTENT_LENGTH).or_insert_with(|| HeaderValue::from(bytes));
    }
}

impl std::fmt::Debug for Route {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let methods: Vec<&Method> = self.methods.iter().map(|(method, _)| method).collect();
        f.debug_struct("Route").field("pattern", &self.pattern).field("methods", &methods).finish()
    }
}

/// The row that a request came to; an extension of it.
#[derive(Clone, Debug)]
struct Matched(Arc<Route>);

/// The values of the path's parameters, in their order, percent-decoded.
///
/// # Errors
/// 400 for what is not UTF-8; 500 where no row was matched.
pub(super) fn parameters(parts: &Parts) -> ApiResult<Vec<(&str, Cow<'_, str>)>> {
    let Some(Matched(route)) = parts.extensions.get::<Matched>() else {
        return Err(ApiError::internal(
            "a handler that needs a path's parameters stands outside of the table",
        ));
    };
    let both = segments(&route.pattern).zip(segments(parts.uri.path()));
    let given = both.filter(|(pattern, _)| is_parameter(pattern));
    given.map(|(pattern, given)| Ok((pattern.trim_matches(['{', '}']), decoded(given)?))).collect()
}

/// What is no escape stands for itself.
pub(super) fn decoded(segment: &str) -> ApiResult<Cow<'_, str>> {
    if !segment.contains('%') {
        return Ok(Cow::Borrowed(segment));
    }
    let digit = |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16));
    let bytes = segment.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let escape = (*byte == b'%').then(|| Some((digit(bytes.get(at + 1))?, digit(bytes.get(at + 2))?)));
        match escape.flatten().and_then(|(high, low)| u8::try_from(high * 16 + low).ok()) {
            Some(escaped) => {
                plain.push(escaped);
                at += 3;
            }
            None => {
                plain.push(*byte);
                at += 1;
            }
        }
    }
    let undecodable = |_| ApiError::new(Code::BadRequest, "the path is not valid percent-encoded UTF-8");
    String::from_utf8(plain).map(Cow::Owned).map_err(undecodable)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(rows: &[(&str, Method)]) -> Dispatch {
        let mut table = Dispatch::default();
        for (pattern, method) in rows {
            let said = format!("{method} {pattern}");
            let handle = move |_: Request| -> Answering {
                let said = said.clone();
                Box::pin(async move { said.into_response() })
            };
            table.add(pattern, method, Arc::new(handle));
        }
        table
    }

    #[test]
    fn a_written_segment_wins_and_a_parameter_is_never_empty() {
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
    async fn a_path_has_its_methods_and_says_which() {
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
    fn escapes_are_decoded_once_and_broken_ones_stand_for_themselves() {
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
