//! Parses the `Authorization` header into a credential.

use std::borrow::Cow;

use axum::http::{HeaderMap, header};
use data_encoding::BASE64;

use crate::api::error::{ApiError, ApiResult, Code};

/// The message for a bearer credential of no known form. The usual cause is an environment variable
/// that is not set or holds another value.
pub(super) const UNKNOWN_BEARER: &str = "this bearer is neither an API key, which begins with msk_, nor a public link, which begins with mpl_, \
                             nor an embed token, which is a JWT: three parts between dots";

/// The message for an API key that was shortened or copied together with neighbouring text.
pub(super) const INVALID_KEY_CHARACTER: &str = "this API key contains a character that no key has: keys consist of letters, digits and _; \
                                 copy the whole key";

/// The credential in an `Authorization` header.
pub(super) enum AuthorizationHeader {
    Key {
        secret: String,
        id: Option<String>,
    },
    Jwt(String),
    /// The secret of a public link.
    Link(String),
}

/// Parses the `Authorization` header. Schemes are matched in any letter case.
pub(super) fn authorization(headers: &HeaderMap) -> ApiResult<AuthorizationHeader> {
    let invalid = |detail: &'static str| ApiError::new(Code::TokenInvalid, detail);
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return Err(invalid("more than one Authorization header"));
    };
    // Credentials are ASCII. Other text is decoded all the same, so that the error can name the
    // kind of credential.
    let text = String::from_utf8_lossy(value.as_bytes());
    let (scheme, rest) = text
        .trim_ascii()
        .split_once(' ')
        .ok_or_else(|| invalid("the Authorization header has no credential"))?;
    let rest = rest.trim_ascii();
    if scheme.eq_ignore_ascii_case("bearer") {
        return Ok(bearer(rest));
    }
    // InfluxDB 2 and its clients.
    if scheme.eq_ignore_ascii_case("token") {
        return Ok(AuthorizationHeader::Key { secret: rest.to_owned(), id: None });
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return Err(invalid(
            "the schemes are Bearer, Basic with an API key as password, and Token with an API key",
        ));
    }
    let refused =
        || ApiError::new(Code::ApiKeyInvalid, "basic authentication needs an API key as the password");
    let decoded = BASE64
        .decode(rest.as_bytes())
        .ok()
        .and_then(|bytes| String::from_utf8(bytes).ok())
        .ok_or_else(refused)?;
    let (user, secret) = decoded.split_once(':').ok_or_else(refused)?;
    Ok(AuthorizationHeader::Key {
        secret: secret.to_owned(),
        id: user.starts_with("ak_").then(|| user.to_owned()),
    })
}

/// Returns the kind of a bearer credential.
fn bearer(text: &str) -> AuthorizationHeader {
    let secret = text.to_owned();
    match text {
        _ if text.starts_with("msk_") => AuthorizationHeader::Key { secret, id: None },
        _ if text.starts_with("mpl_") => AuthorizationHeader::Link(secret),
        _ => AuthorizationHeader::Jwt(secret),
    }
}

/// Parses the values of the parameter `token`, of which there is at least one. They have the form
/// of a bearer credential, but an API key is refused: URLs are stored in too many places.
pub(super) fn authorization_parameter<'t>(
    headers: &HeaderMap,
    mut values: impl Iterator<Item = Cow<'t, str>>,
) -> ApiResult<AuthorizationHeader> {
    let text = values.next().unwrap_or_default();
    if values.next().is_some() {
        return Err(ApiError::new(Code::DuplicateParameter, "the parameter token occurs more than once"));
    }
    if headers.contains_key(header::AUTHORIZATION) {
        let detail = "send the token either in the Authorization header or as this parameter";
        return Err(ApiError::invalid_parameter("token", detail));
    }
    match bearer(&text) {
        AuthorizationHeader::Key { .. } => {
            let detail = "an API key does not belong in a URL; use an embed token that is minted with it";
            Err(ApiError::new(Code::TokenInvalid, detail))
        }
        token => Ok(token),
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn an_authorization_header_is_parsed() {
        let read = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::AUTHORIZATION, HeaderValue::from_str(text).expect("a value"));
            match authorization(&headers) {
                Ok(AuthorizationHeader::Key { secret, id: None }) => format!("key {secret}"),
                Ok(AuthorizationHeader::Key { secret, id: Some(id) }) => format!("key {secret} of {id}"),
                Ok(AuthorizationHeader::Jwt(token)) => format!("jwt {token}"),
                Ok(AuthorizationHeader::Link(secret)) => format!("link {secret}"),
                Err(refused) => refused.code().as_str().to_owned(),
            }
        };
        let basic = |text: &str| format!("bAsIc {}", BASE64.encode(text.as_bytes()));
        assert_eq!(read("Bearer a.b.c"), "jwt a.b.c");
        assert_eq!(read("BEARER msk_x"), "key msk_x");
        assert_eq!(read("Bearer mpl_x"), "link mpl_x");
        assert_eq!(read(&basic("any:mpl_x")), "key mpl_x", "which no key has");
        assert_eq!(read(&basic("any:msk_x")), "key msk_x");
        assert_eq!(read(&basic("ak_1:msk_x")), "key msk_x of ak_1");
        assert_eq!(read(&basic("nocolon")), "api_key_invalid");
        assert_eq!(read("Basic !"), "api_key_invalid");
        assert_eq!(read("Token msk_x"), "key msk_x");
        assert_eq!(read("Digest x"), "token_invalid");
        assert_eq!(read("Bearer"), "token_invalid");
        assert_eq!(read("Bearer msk_\u{2026}"), "key msk_\u{2026}");
        assert_eq!(read("Bearer \u{2026}"), "jwt \u{2026}");
        let mut two = HeaderMap::new();
        two.append(header::AUTHORIZATION, HeaderValue::from_static("Bearer a"));
        two.append(header::AUTHORIZATION, HeaderValue::from_static("Bearer b"));
        assert!(authorization(&two).is_err());
    }
}
