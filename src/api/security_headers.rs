//! Headers on every response (docs/specification.md B).

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};

/// For HTML that brings no policy of its own: our own files only, and nobody frames them.
const HTML_POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
);

/// Sets what is not set: a page that frames or caches on purpose says so itself.
pub(super) fn set(headers: &mut HeaderMap) {
    // Beside what is there and what comes after: once, and not by one table after the other.
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
        // A window that opened ours, or that ours opens, has no hold of it (ASVS 3.4.8).
        headers.insert(OPENER_POLICY, HeaderValue::from_static("same-origin"));
    }
}

const OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");

/// Browsers come by https alone for a year from now (ASVS 3.4.1).
pub(super) fn insist_on_https(headers: &mut HeaderMap) {
    headers.insert(header::STRICT_TRANSPORT_SECURITY, HeaderValue::from_static("max-age=31536000"));
}

/// Whether a public URL speaks for its whole host: what is said of https counts for every port and path of a name, so that
/// a server below a path or at a port of its own, or on this machine, leaves it to who has the host.
pub(super) fn has_a_host_of_its_own(public_url: &str) -> bool {
    let host = public_url.strip_prefix("https://").unwrap_or_default();
    let local = host.eq_ignore_ascii_case("localhost") || host.to_ascii_lowercase().ends_with(".localhost");
    let is_name = host.bytes().any(|b| b.is_ascii_alphabetic()) && !host.contains([':', '/', '[']);
    is_name && !local
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn https_is_insisted_on_for_a_host_of_our_own_alone() {
        assert!(has_a_host_of_its_own("https://metrics.example.com"));
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
            assert!(!has_a_host_of_its_own(other), "{other}");
        }
    }
}
