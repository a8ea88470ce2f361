//! Cookies in and out (docs/specification.md D1, D4): `ms_session` slides, `ms_ml` binds a link to the browser that asked for it,
//! `ms_device` tells a browser of an earlier login from strangers, `ms_oauth` carries a sign-in to a provider and back.
//!
//! Cookies ignore ports, and a name below ours may set some for ours. Who plants a sign-in that they began themselves signs
//! a browser in as themselves, so what binds one to its browser is called `__Host-ms_oauth` and `__Host-ms_ml` wherever
//! browsers hold that prefix: they take it over TLS alone, and from the very host. On `http://localhost` another port can
//! plant anything, `ms_session` first of all, whose name is the specification's; nothing that we could bind a sign-in to
//! would keep it from that. A host name of its own does, as in the address that the start banner suggests.

use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue, header};
use cookie::{Cookie, SameSite, time};

use crate::identity::DEVICE_TTL;

/// The session cookie; the specification fixes its name.
pub(super) const SESSION: &str = "ms_session";
/// Says that this browser logged in before.
pub(super) const DEVICE: &str = "ms_device";

/// 30 days: what the browser keeps a session for, counted anew from every answer.
const SESSION_MAX_AGE_S: i64 = 2_592_000;
const OAUTH_MAX_AGE_S: i64 = 600;

/// `Set-Cookie` values for one kind of deployment.
#[derive(Clone, Copy, Debug)]
pub struct Cookies {
    /// Whether browsers may send them over TLS only: Safari drops such cookies on `http://localhost`, so this follows
    /// the public URL.
    pub secure: bool,
    /// Whether what binds a sign-in to its browser carries `__Host-`: needs TLS and the whole host, without a path.
    pub whole_host: bool,
}

impl Cookies {
    /// For a server that is reached at `public_url`.
    pub fn of(public_url: &str, secure: Option<bool>) -> Cookies {
        let tls = public_url.starts_with("https://");
        let secure = secure.unwrap_or(tls);
        Cookies { secure, whole_host: secure && tls && super::prefix::path_of(public_url).is_empty() }
    }

    /// The name of what binds a sign-in link to a browser.
    pub(super) const fn magic_link_name(self) -> &'static str {
        if self.whole_host { "__Host-ms_ml" } else { "ms_ml" }
    }

    /// The name of what carries a sign-in to a provider and back.
    pub(super) const fn oauth_name(self) -> &'static str {
        if self.whole_host { "__Host-ms_oauth" } else { "ms_oauth" }
    }

    /// `ms_session=...; Path=/; Max-Age=2592000; HttpOnly; SameSite=Lax[; Secure]`.
    pub(super) fn session(self, token: &str) -> HeaderValue {
        self.cookie(SESSION, token, SESSION_MAX_AGE_S)
    }

    /// Makes the browser forget the session.
    pub(super) fn no_session(self) -> HeaderValue {
        self.cookie(SESSION, "", 0)
    }

    /// Binds a link to this browser for as long as the link lives.
    pub(super) fn magic_link(self, value: &str, ttl: Duration) -> HeaderValue {
        self.cookie(self.magic_link_name(), value, seconds(ttl))
    }

    /// Makes this browser a known one.
    pub(super) fn device(self, value: &str) -> HeaderValue {
        self.cookie(DEVICE, value, seconds(DEVICE_TTL))
    }

    /// Carries a sign-in to a provider and back, for ten minutes.
    pub(super) fn oauth(self, ticket: &str) -> HeaderValue {
        self.cookie(self.oauth_name(), ticket, OAUTH_MAX_AGE_S)
    }

    /// Makes the browser forget it.
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

/// The values of all cookies `name`, in the order sent; at most `most`.
pub(super) fn values<'a>(headers: &'a HeaderMap, name: &str, most: usize) -> Vec<&'a str> {
    let lines = headers.get_all(header::COOKIE).into_iter().filter_map(|line| line.to_str().ok());
    let pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.filter(|(key, _)| *key == name).map(|(_, value)| value.trim_matches('"')).take(most).collect()
}

/// A response extension: the response sets no cookie, whatever session the request came with.
///
/// Every response that asks for a second factor has it: the specification gives these no cookie.
#[derive(Clone, Copy, Debug)]
pub(super) struct NoCookies;

/// Whether `headers` already decide about the session cookie: a login or logout is not overruled by renewal.
pub(super) fn decides_session(headers: &HeaderMap) -> bool {
    headers.get_all(header::SET_COOKIE).iter().any(|value| value.as_bytes().starts_with(b"ms_session="))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_session_cookie_is_what_the_contract_says() {
        let header = Cookies::of("http://localhost", None).session("ses_x");
        assert_eq!(
            header.to_str().expect("text"),
            "ms_session=ses_x; HttpOnly; SameSite=Lax; Path=/; Max-Age=2592000"
        );
        let tls = Cookies::of("https://metrics.example", None).session("ses_x");
        assert!(tls.to_str().expect("text").contains("; Secure"));
        assert!(header.is_sensitive());
    }

    /// Browsers drop a cookie of this prefix that is not `Secure`, or not for the path `/`.
    #[test]
    fn what_binds_a_sign_in_is_for_the_whole_host_where_that_can_be() {
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
    fn up_to_four_values_are_seen_and_lookalikes_are_not() {
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
