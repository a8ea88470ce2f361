//! Decides which pages of other origins may read responses (docs/specification.md B4).
//!
//! Only the discovery and query endpoints are open, and only to requests with a token, never with
//! credentials of the browser. The exception is front-end development, whose origins the operator
//! configures.

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::Response;

use super::error::ErrorFormat;
use super::router::of_org;

/// The origins that the credential of a request allows: the lists of the token and of its key, each
/// of which must contain the origin. The credential layer sets this extension of the response.
#[derive(Clone, Debug)]
pub(super) struct AllowedOrigins(pub(super) Vec<Vec<String>>);

impl AllowedOrigins {
    pub(super) fn allows(&self, origin: &str) -> bool {
        self.0.iter().all(|list| list.iter().any(|allowed| allowed == "*" || allowed == origin))
    }
}

/// Returns whether pages of other origins may use this path with a token: paths that read, which
/// excludes the writing part of the Prometheus mount.
pub(super) fn is_open(path: &str) -> bool {
    match ErrorFormat::of_path(path) {
        ErrorFormat::Data => true,
        // `{org}/prometheus/api/v1/admin/…`, and the paths that write.
        ErrorFormat::Prometheus => {
            let below = of_org(path).and_then(|mut pieces| pieces.nth(4));
            !matches!(below, Some("admin" | "write" | "import"))
        }
        ErrorFormat::Problem => is_picture(path),
        ErrorFormat::Alertmanager | ErrorFormat::Otlp(_) => false,
    }
}

/// Returns whether a path draws a chart: `{org}/render.svg` and `{org}/render.png`.
fn is_picture(path: &str) -> bool {
    let below = of_org(path).map(|pieces| pieces.skip(1).take(2).collect::<Vec<_>>());
    below.is_some_and(|below| matches!(below.as_slice(), ["render.svg" | "render.png"]))
}

const EXPOSED: HeaderValue =
    HeaderValue::from_static("etag, location, ratelimit, ratelimit-policy, retry-after, x-request-id");
/// The request headers of pages with a token, and of the operator's own pages.
const OPEN_HEADERS: HeaderValue = HeaderValue::from_static("authorization, content-type, if-none-match");
const TRUSTED_HEADERS: HeaderValue =
    HeaderValue::from_static("authorization, content-type, if-match, if-none-match");
/// The seconds for which a browser may repeat a request to the same URL without another preflight:
/// the greatest value that Chromium honours. A preflight grants nothing, because each request is
/// checked by its own credential and origin.
const MAX_AGE: HeaderValue = HeaderValue::from_static("7200");
const PRIVATE_NETWORK: HeaderName = HeaderName::from_static("access-control-allow-private-network");

/// Returns the response to a preflight request. Returns `None` for other requests and for paths
/// that are closed to other origins.
pub(super) fn preflight(
    method: &Method,
    path: &str,
    headers: &HeaderMap,
    trusted: &[String],
) -> Option<Response> {
    let origin = headers.get(header::ORIGIN)?;
    if method != Method::OPTIONS || !headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD) {
        return None;
    }
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let out = response.headers_mut();
    let mut allowed = OPEN_HEADERS;
    if is_trusted(origin, trusted) {
        allowed = TRUSTED_HEADERS;
        out.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
        out.insert(header::ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
        out.insert(
            header::ACCESS_CONTROL_ALLOW_METHODS,
            HeaderValue::from_static("GET, POST, PUT, PATCH, DELETE"),
        );
    } else if is_open(path) {
        out.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
        out.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST"));
        out.insert(PRIVATE_NETWORK, HeaderValue::from_static("true"));
    } else {
        return None;
    }
    out.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, allowed);
    out.insert(header::ACCESS_CONTROL_MAX_AGE, MAX_AGE);
    out.insert(header::VARY, HeaderValue::from_static("Origin"));
    Some(response)
}

fn is_trusted(origin: &HeaderValue, trusted: &[String]) -> bool {
    trusted.iter().any(|allowed| allowed.as_bytes() == origin.as_bytes())
}

/// Adds the headers that let the page of `origin` read `response`, if it may.
///
/// A page that sent a token may read a 401: it reveals only that the token is invalid, and a page
/// must see `token_expired` to fetch a new one.
pub(super) fn open(
    path: &str,
    origin: Option<&HeaderValue>,
    with_token: bool,
    trusted: &[String],
    response: &mut Response,
) {
    // Also without an origin or for a refused one: a cache must not mix up the responses.
    if is_open(path) || !trusted.is_empty() {
        response.headers_mut().append(header::VARY, HeaderValue::from_static("Origin"));
    }
    let Some(origin) = origin else { return };
    let granted = response
        .extensions()
        .get::<AllowedOrigins>()
        .is_some_and(|allowed| origin.to_str().is_ok_and(|text| allowed.allows(text)));
    let refused = response.status() == StatusCode::UNAUTHORIZED;
    if is_trusted(origin, trusted) {
        response
            .headers_mut()
            .insert(header::ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
    } else if !(is_open(path) && with_token && (granted || refused)) {
        return;
    }
    response.headers_mut().insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
    response.headers_mut().insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_read_are_open_to_other_origins_and_paths_that_write_are_not() {
        for (below, expected) in [
            ("query/expr-instant", true),
            ("metrics", true),
            ("alerts", true),
            ("alerts/0123456789abcdef/acknowledgement", false),
            ("labels", true),
            ("render.svg", true),
            ("render.png", true),
            ("render.png/x", false),
            ("prometheus/api/v1/query", true),
            ("prometheus/api/v1/label/admin/values", true),
            ("prometheus/api/v1/series", true),
            ("prometheus/api/v1/admin/tsdb/delete_series", false),
            ("prometheus/api/v1/admin", false),
            ("prometheus/api/v1/write", false),
            ("prometheus/api/v1/otlp/v1/metrics", false),
            ("write", false),
            ("members", false),
        ] {
            assert_eq!(is_open(&format!("/api/v1/orgs/acme/{below}")), expected, "{below}");
        }
        assert!(!is_open("/api/v1/auth/login") && !is_open("/") && !is_open("/api/v1/orgs/acme"));
    }
}
