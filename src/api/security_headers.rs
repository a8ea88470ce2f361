//! Headers on every response (API.md B).

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};

/// For HTML that brings no policy of its own: our own files only, and nobody frames them.
const HTML_POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
);

/// Sets what is not set: a page that frames or caches on purpose says so itself.
pub(super) fn set(headers: &mut HeaderMap) {
    let mut default = |name: HeaderName, value: HeaderValue| {
        headers.entry(name).or_insert(value);
    };
    default(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    default(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    default(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    let html =
        headers.get(header::CONTENT_TYPE).is_some_and(|media| media.as_bytes().starts_with(b"text/html"));
    if html && !headers.contains_key(header::CONTENT_SECURITY_POLICY) {
        headers.insert(header::CONTENT_SECURITY_POLICY, HTML_POLICY);
        headers.insert(header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    }
}
