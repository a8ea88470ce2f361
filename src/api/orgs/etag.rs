//! Versions of stored documents in `ETag` and `If-Match`.

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};

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
/// `precondition_required` without it.
pub(super) fn required_if_match(headers: &HeaderMap) -> ApiResult<ExpectedVersion> {
    let missing = || {
        let detail = "send If-Match with the ETag of the version that you replace, or * for any version";
        ApiError::new(Code::PreconditionRequired, detail)
    };
    if_match(headers).ok_or_else(missing)
}
