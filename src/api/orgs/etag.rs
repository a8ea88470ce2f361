//! Versions of documents and responses in `ETag`, `If-Match` and `If-None-Match` (RFC 9110).

use std::hash::{DefaultHasher, Hash, Hasher as _};

use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};

use crate::api::error::{ApiError, ApiResult, Code};
use crate::identity::ExpectedVersion;

/// Returns the tag of a version.
pub(super) fn etag(version: u32) -> String {
    format!("\"{version}\"")
}

/// Returns the header with a tag.
pub(super) fn etag_header(tag: &str) -> [(HeaderName, HeaderValue); 1] {
    // Tags have digits and letters only.
    [(header::ETAG, HeaderValue::try_from(tag).unwrap_or(HeaderValue::from_static("\"0\"")))]
}

/// Returns a hash of content, for tags. It is the same in every process of a version.
pub(super) fn content_hash(content: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    content.hash(&mut hasher);
    hasher.finish()
}

/// Returns whether an `If-None-Match` names a tag (RFC 9110, section 13.1.2: weak comparison).
pub(super) fn names_tag(header: &HeaderValue, tag: &str) -> bool {
    let all = header.to_str().unwrap_or_default().split(',').map(str::trim);
    all.map(|one| one.strip_prefix("W/").unwrap_or(one)).any(|one| one == "*" || one == tag)
}

/// Returns the response 304 if `known`, the `If-None-Match` of a request, names the tag.
pub(super) fn not_modified(known: Option<&HeaderValue>, tag: &str) -> Option<Response> {
    let is_known = known.is_some_and(|known| names_tag(known, tag));
    is_known.then(|| (StatusCode::NOT_MODIFIED, etag_header(tag)).into_response())
}

/// Returns the version that `If-Match` names; `None` without the header. A tag that no version has
/// is version 0, which no document has.
pub(super) fn if_match(headers: &HeaderMap) -> Option<ExpectedVersion> {
    let text = headers.get(header::IF_MATCH)?.to_str().unwrap_or_default().trim();
    if text == "*" {
        return Some(ExpectedVersion::Any);
    }
    let digits = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    Some(ExpectedVersion::Exactly(digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)))
}

/// As [`if_match`], for requests that must have the header.
///
/// # Errors
/// `precondition_required` if the header is missing.
pub(super) fn required_if_match(headers: &HeaderMap) -> ApiResult<ExpectedVersion> {
    let missing = || {
        let detail = "send If-Match with the ETag of the version that you replace, or * for any version";
        ApiError::new(Code::PreconditionRequired, detail)
    };
    if_match(headers).ok_or_else(missing)
}
