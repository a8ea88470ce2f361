//! The cookies of requests and responses (docs/specification.md D1, D4).
//!
//! `ms_session` is the sliding session. `ms_ml` binds a sign-in link to the browser that requested
//! it. `ms_device` marks a browser that has logged in before. `ms_oauth` carries the state of a
//! sign-in to a provider and back.
//!
//! Cookies ignore ports, and a subdomain may set cookies for its parent. An attacker who plants the
//! cookie of a sign-in that they began signs the victim in to the attacker's account. The cookies
//! that bind a sign-in to its browser are therefore called `__Host-ms_oauth` and `__Host-ms_ml`
//! where browsers accept that prefix: over TLS, from the exact host. On `http://localhost` another
//! port can plant any cookie, including `ms_session`, whose name the specification fixes. No
//! binding prevents that, but a host name of its own does, such as the address in the start banner.

use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue, header};
use cookie::{Cookie, SameSite, time};

use crate::identity::DEVICE_TTL;

/// The name of the session cookie, fixed by the specification.
pub(super) const SESSION: &str = "ms_session";
/// The name of the cookie that marks a browser that has logged in before.
pub(super) const DEVICE: &str = "ms_device";

/// How long a browser keeps a session: 30 days from the latest response.
const SESSION_MAX_AGE_S: i64 = 2_592_000;
const OAUTH_MAX_AGE_S: i64 = 600;

/// Builds `Set-Cookie` values for one kind of deployment.
#[derive(Clone, Copy, Debug)]
pub struct Cookies {
    /// Whether cookies have the attribute `Secure`. Safari drops such cookies on
    /// `http://localhost`, so this follows the public URL.
    pub secure: bool,
    /// Whether the cookies that bind a sign-in to its browser have the prefix `__Host-`. The prefix
    /// needs TLS and a public URL without a path.
    pub whole_host: bool,
}

impl Cookies {
    /// Decides for a server whose public URL is `public_url`.
    pub fn of(public_url: &str, secure: Option<bool>) -> Cookies {
        let tls = public_url.starts_with("https://");
        let secure = secure.unwrap_or(tls);
        Cookies { secure, whole_host: secure && tls && super::prefix::path_of(public_url).is_empty() }
    }

    /// Returns the name of the cookie that binds a sign-in link to a browser.
    pub(super) const fn magic_link_name(self) -> &'static str {
        if self.whole_host { "__Host-ms_ml" } else { "ms_ml" }
    }

    /// Returns the name of the cookie that carries a sign-in to a provider and back.
    pub(super) const fn oauth_name(self) -> &'static str {
        if self.whole_host { "__Host-ms_oauth" } else { "ms_oauth" }
    }

    /// Returns `ms_session=...; Path=/; Max-Age=2592000; HttpOnly; SameSite=Lax[; Secure]`.
    pub(super) fn session(self, token: &str) -> HeaderValue {
        self.cookie(SESSION, token, SESSION_MAX_AGE_S)
    }

    /// Returns the value that deletes the session cookie.
    pub(super) fn no_session(self) -> HeaderValue {
        self.cookie(SESSION, "", 0)
    }

    /// Returns the cookie that binds a link to this browser until the link expires.
    pub(super) fn magic_link(self, value: &str, ttl: Duration) -> HeaderValue {
        self.cookie(self.magic_link_name(), value, seconds(ttl))
    }

    /// Returns the cookie that marks this browser as known.
    pub(super) fn device(self, value: &str) -> HeaderValue {
        self.cookie(DEVICE, value, seconds(DEVICE_TTL))
    }

    /// Returns the cookie that carries a sign-in to a provider and back, for ten minutes.
    pub(super) fn oauth(self, ticket: &str) -> HeaderValue {
        self.cookie(self.oauth_name(), ticket, OAUTH_MAX_AGE_S)
    }

    /// Returns the value that deletes the sign-in cookie.
    pub(super) fn no_oauth(self) -> HeaderValue {
        self.cookie(self.oauth_name(), "", 0)
    }

    fn cookie(self, name: &str, value: &str, max_age_s: i64) -> HeaderValue {
        let cookie = Cookie::build((name, value))
            .path("/")
            .max_age(time::Duration::seconds(max_age_s))
            .http_only(true)
            .same_site(SameSite::Lax)
            .secure(self.secure)
            .build();
        let mut header = HeaderValue::try_from(cookie.to_string()).unwrap_or(HeaderValue::from_static(""));
        header.set_sensitive(true);
        header
    }
}

fn seconds(ttl: Duration) -> i64 {
    i64::try_from(ttl.as_secs()).unwrap_or(i64::MAX)
}

/// Returns the values of the cookies called `name` in the order sent, at most `most`.
pub(super) fn values<'a>(headers: &'a HeaderMap, name: &str, most: usize) -> Vec<&'a str> {
    let lines = headers.get_all(header::COOKIE).into_iter().filter_map(|line| line.to_str().ok());
    let pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.filter(|(key, _)| *key == name).map(|(_, value)| value.trim_matches('"')).take(most).collect()
}

/// A response extension: the response sets no cookie, even if the request had a session. The
/// specification requires this of every response that asks for a second factor.
#[derive(Clone, Copy, Debug)]
pub(super) struct NoCookies;

/// Returns whether `headers` already set the session cookie, so that a renewal does not override a
/// login or logout.
pub(super) fn decides_session(headers: &HeaderMap) -> bool {
    headers.get_all(header::SET_COOKIE).iter().any(|value| value.as_bytes().starts_with(b"ms_session="))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_session_cookie_matches_the_specification() {
        let header = Cookies::of("http://localhost", None).session("ses_x");
        assert_eq!(
            header.to_str().expect("text"),
            "ms_session=ses_x; HttpOnly; SameSite=Lax; Path=/; Max-Age=2592000"
        );
        let tls = Cookies::of("https://metrics.example", None).session("ses_x");
        assert!(tls.to_str().expect("text").contains("; Secure"));
        assert!(header.is_sensitive());
    }

    /// Browsers drop a cookie with this prefix that is not `Secure` or not for the path `/`.
    #[test]
    fn sign_in_cookies_have_the_host_prefix_where_browsers_accept_it() {
        let cases = [
            ("https://metrics.example", None, true),
            ("https://metrics.example", Some(false), false),
            ("https://metrics.example/tools", None, false),
            ("http://localhost:8095", None, false),
            ("http://localhost:8095", Some(true), false),
        ];
        for (url, secure, whole) in cases {
            let cookies = Cookies::of(url, secure);
            let set = [cookies.oauth("x"), cookies.no_oauth(), cookies.magic_link("x", DEVICE_TTL)];
            for text in set.iter().map(|set| set.to_str().expect("text")) {
                assert_eq!(text.starts_with("__Host-ms_"), whole, "{url}: {text}");
                assert!(!whole || (text.contains("; Secure") && text.contains("; Path=/;")), "{text}");
                assert!(!text.contains("Domain"), "{text}");
            }
        }
    }

    #[test]
    fn at_most_four_values_are_read_and_similar_names_are_ignored() {
        let mut headers = HeaderMap::new();
        headers.append(
            header::COOKIE,
            HeaderValue::from_static("a=1; ms_session=one; xms_session=no; ms_session=\"two\""),
        );
        headers.append(
            header::COOKIE,
            HeaderValue::from_static("ms_session=three;ms_session=four;ms_session=five"),
        );
        assert_eq!(values(&headers, SESSION, 4), ["one", "two", "three", "four"]);
        assert!(values(&HeaderMap::new(), SESSION, 4).is_empty());
    }
}
