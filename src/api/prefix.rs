//! The path of the public URL: with `https://example.com/promlet`, everything is below `/promlet`.
//!
//! A proxy may pass that path on or remove it. Both work, because the path is removed from requests
//! that have it. Redirects and cookie paths of responses are prefixed here, so that handlers need
//! not know the prefix. Links in mails are built from the public URL, pages by `ui`.

use std::sync::Arc;

use axum::http::uri::PathAndQuery;
use axum::http::{HeaderMap, HeaderValue, Uri, header};

/// A path prefix such as `/promlet`; may be empty.
#[derive(Clone, Debug, Default)]
pub(super) struct Prefix(Arc<str>);

impl Prefix {
    /// Returns the prefix of a public URL without a slash at its end.
    pub(super) fn of(public_url: &str) -> Prefix {
        Prefix(path_of(public_url).into())
    }

    /// Removes the prefix from the path of `uri`. Returns whether the path had it.
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
        // A path must remain a path: `//x` would name a host in an absolute URL.
        parts.path_and_query = PathAndQuery::try_from(target).ok();
        if let Ok(shorter) = Uri::from_parts(parts) {
            *uri = shorter;
        }
        true
    }

    /// Adds the prefix to redirects and cookie paths.
    pub(super) fn add_to_headers(&self, headers: &mut HeaderMap) {
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
            let restricted = cookie.to_str().ok().map(|text| self.restricted(text));
            if let Some(Ok(mut restricted)) = restricted.map(HeaderValue::try_from) {
                restricted.set_sensitive(cookie.is_sensitive());
                *cookie = restricted;
            }
        }
    }

    /// Restricts a cookie for the whole host to the prefix.
    fn restricted(&self, cookie: &str) -> String {
        let parts = cookie.split("; ").map(|part| match part {
            "Path=/" => format!("Path={}", self.0),
            other => other.to_owned(),
        });
        parts.collect::<Vec<_>>().join("; ")
    }
}

/// Returns the path of a URL without a slash at its end.
pub fn path_of(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.find('/').and_then(|at| rest.get(at..)).map_or("", |path| path.trim_end_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prefix_is_removed_from_paths_that_have_it() {
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
    fn the_prefix_is_added_to_redirects_and_cookies() {
        let prefix = Prefix::of("https://example.com/m");
        let located = |to: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::LOCATION, HeaderValue::from_static(to));
            prefix.add_to_headers(&mut headers);
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
        prefix.add_to_headers(&mut headers);
        let set: Vec<_> = headers.get_all(header::SET_COOKIE).iter().collect();
        assert_eq!(set[0], "ms_session=ses_x; HttpOnly; SameSite=Lax; Path=/m; Max-Age=1");
        assert!(set[0].is_sensitive());
        assert_eq!(set[1], "ms_ml=Path=/; Path=/m");
    }
}
