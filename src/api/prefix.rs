//! The path of the public URL: `https://example.com/promlet` is everything below `/promlet`.
//!
//! A proxy may hand that path on or cut it off: both work, because a path that begins so is looked at without it. What
//! goes out is put below it here, in one place, so that no handler needs to know: where a redirect leads, and where a
//! cookie counts. Links in mails are made from the public URL, pages from `ui`.

use std::sync::Arc;

use axum::http::uri::PathAndQuery;
use axum::http::{HeaderMap, HeaderValue, Uri, header};

/// `/promlet`, or nothing.
#[derive(Clone, Debug, Default)]
pub(super) struct Prefix(Arc<str>);

impl Prefix {
    /// Of a public URL without a slash at its end.
    pub(super) fn of(public_url: &str) -> Prefix {
        Prefix(path_of(public_url).into())
    }

    /// Takes it off a path that begins with it; whether it did.
    pub(super) fn strip(&self, uri: &mut Uri) -> bool {
        let Some(rest) = uri.path().strip_prefix(&*self.0).filter(|_| !self.0.is_empty()) else {
            return false;
        };
        if !(rest.is_empty() || rest.starts_with('/')) {
            return false;
        }
        let rest = if rest.is_empty() { "/" } else { rest };
        let target = uri.query().map_or_else(|| rest.to_owned(), |query| format!("{rest}?{query}"));
        let mut parts = uri.clone().into_parts();
        // What was a path before is one after: `//x`, which would name a host in a whole URL, is a path here.
        parts.path_and_query = PathAndQuery::try_from(target).ok();
        if let Ok(shorter) = Uri::from_parts(parts) {
            *uri = shorter;
        }
        true
    }

    /// Puts redirects and cookies below it.
    pub(super) fn put_back(&self, headers: &mut HeaderMap) {
        if self.0.is_empty() {
            return;
        }
        let inside = |path: &str| {
            path.strip_prefix(&*self.0)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '?', '#']))
        };
        let to = headers.get(header::LOCATION).and_then(|value| value.to_str().ok());
        if let Some(to) = to.filter(|to| to.starts_with('/') && !inside(to))
            && let Ok(whole) = HeaderValue::try_from(format!("{}{to}", self.0))
        {
            headers.insert(header::LOCATION, whole);
        }
        for cookie in
            headers.iter_mut().filter(|(name, _)| **name == header::SET_COOKIE).map(|(_, value)| value)
        {
            let narrowed = cookie.to_str().ok().map(|text| self.narrowed(text));
            if let Some(Ok(mut narrowed)) = narrowed.map(HeaderValue::try_from) {
                narrowed.set_sensitive(cookie.is_sensitive());
                *cookie = narrowed;
            }
        }
    }

    /// A cookie for all of this host becomes one for our part of it.
    fn narrowed(&self, cookie: &str) -> String {
        let parts = cookie.split("; ").map(|part| match part {
            "Path=/" => format!("Path={}", self.0),
            other => other.to_owned(),
        });
        parts.collect::<Vec<_>>().join("; ")
    }
}

/// The path of a URL, without a slash at its end.
pub fn path_of(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.find('/').and_then(|at| rest.get(at..)).map_or("", |path| path.trim_end_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lose_it_and_only_it() {
        let prefix = Prefix::of("https://example.com/a/b");
        for (from, to) in [
            ("/a/b", "/"),
            ("/a/b/", "/"),
            ("/a/b/api?x=/a/b", "/api?x=/a/b"),
            ("/a/bc", "/a/bc"),
            ("/api", "/api"),
            ("/a/b//c", "//c"),
            ("/A/B/c", "/A/B/c"),
        ] {
            let mut uri: Uri = from.parse().expect("a URI");
            let stripped = prefix.strip(&mut uri);
            assert_eq!(uri.path_and_query().map(PathAndQuery::as_str), Some(to), "{from}");
            assert_eq!(stripped, from != to, "{from}");
        }
        let mut uri: Uri = "/x".parse().expect("a URI");
        assert!(!Prefix::of("https://example.com").strip(&mut uri));
        assert_eq!((path_of("http://h:1/"), path_of("http://h"), path_of("http://h/x/")), ("", "", "/x"));
    }

    #[test]
    fn redirects_and_cookies_get_it() {
        let prefix = Prefix::of("https://example.com/m");
        let located = |to: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::LOCATION, HeaderValue::from_static(to));
            prefix.put_back(&mut headers);
            headers[header::LOCATION].to_str().expect("text").to_owned()
        };
        for (to, whole) in [
            ("/login?error=x", "/m/login?error=x"),
            ("/m/?org=a", "/m/?org=a"),
            ("/m", "/m"),
            ("/metrics", "/m/metrics"),
            ("https://accounts.example.com/o", "https://accounts.example.com/o"),
        ] {
            assert_eq!(located(to), whole);
        }
        let mut headers = HeaderMap::new();
        let mut cookie =
            HeaderValue::from_static("ms_session=ses_x; HttpOnly; SameSite=Lax; Path=/; Max-Age=1");
        cookie.set_sensitive(true);
        headers.append(header::SET_COOKIE, cookie);
        headers.append(header::SET_COOKIE, HeaderValue::from_static("ms_ml=Path=/; Path=/"));
        prefix.put_back(&mut headers);
        let set: Vec<_> = headers.get_all(header::SET_COOKIE).iter().collect();
        assert_eq!(set[0], "ms_session=ses_x; HttpOnly; SameSite=Lax; Path=/m; Max-Age=1");
        assert!(set[0].is_sensitive());
        assert_eq!(set[1], "ms_ml=Path=/; Path=/m");
    }
}
