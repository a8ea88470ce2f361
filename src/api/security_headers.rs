//! The security headers of every response (docs/specification.md B).

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};

/// The policy of HTML that sets no policy of its own: own files only, and no framing.
const HTML_POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
);

/// Sets the headers that are not set yet. A page that may be framed or cached sets its own.
pub(super) fn set(headers: &mut HeaderMap) {
    // Room for these headers and the ones added later, so that the table grows once.
    headers.reserve(8);
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
        // Isolates the window from windows that opened it or that it opens (ASVS 3.4.8).
        headers.insert(OPENER_POLICY, HeaderValue::from_static("same-origin"));
    }
}

const OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");

/// Requires browsers to use https for one year (ASVS 3.4.1).
pub(super) fn require_https(headers: &mut HeaderMap) {
    headers.insert(header::STRICT_TRANSPORT_SECURITY, HeaderValue::from_static("max-age=31536000"));
}

/// Returns whether a public URL covers its whole host. HSTS applies to every port and path of a
/// name, so a server below a path, on a port of its own or on this machine leaves it to the owner
/// of the host.
pub(super) fn covers_whole_host(public_url: &str) -> bool {
    let host = public_url.strip_prefix("https://").unwrap_or_default();
    let local = host.eq_ignore_ascii_case("localhost") || host.to_ascii_lowercase().ends_with(".localhost");
    let is_name = host.bytes().any(|b| b.is_ascii_alphabetic()) && !host.contains([':', '/', '[']);
    is_name && !local
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn https_is_required_only_for_a_host_of_its_own() {
        assert!(covers_whole_host("https://metrics.example.com"));
        for other in [
            "http://metrics.example.com",
            "https://metrics.example.com:8443",
            "https://example.com/tools/promlet",
            "https://localhost",
            "https://metrics.LOCALHOST",
            "https://192.0.2.1",
            "https://[2001:db8::a]",
            "https://",
        ] {
            assert!(!covers_whole_host(other), "{other}");
        }
    }
}
