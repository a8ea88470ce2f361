//! Serves the files of the UI on every path that is neither a route nor below the API.

pub mod shared;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::encoding::{Coding, Effort};
use super::error::{ApiError, Code};
use crate::sync::IgnorePoison as _;
use crate::ui::{Asset, NOWHERE, Ui};

/// A body and its coding.
type CodedBody = (Bytes, Coding);

/// The files of the UI, and the compressed bodies of those that have a key, by it and by wanted
/// coding.
#[derive(Clone)]
struct Pages {
    ui: Ui,
    coded: Arc<Mutex<HashMap<(&'static str, Coding), CodedBody>>>,
}

/// Returns a router for the UI's paths.
pub fn router(ui: Ui) -> Router {
    Router::new().fallback(page).with_state(Pages { ui, coded: Arc::default() })
}

impl Pages {
    /// Compresses the body of a file. The result for a file with a key is kept: the files of the
    /// binary bound their number.
    fn code(&self, asset: &mut Asset, coding: Coding) -> CodedBody {
        let bytes = std::mem::take(&mut asset.bytes);
        let Some(key) = asset.key.filter(|_| coding != Coding::Identity) else {
            let (body, coding) = coding.whole(bytes.into_owned(), Effort::Least);
            return (Bytes::from(body), coding);
        };
        if let Some(known) = self.coded.lock().ignore_poison().get(&(key, coding)) {
            return known.clone();
        }
        let (body, used) = coding.whole(bytes.into_owned(), Effort::Once);
        let made = (Bytes::from(body), used);
        self.coded.lock().ignore_poison().insert((key, coding), made.clone());
        made
    }
}

async fn page(State(pages): State<Pages>, request: Request) -> Response {
    let path = request.uri().path();
    let wanted = request.uri().query().and_then(|query| query.strip_prefix("v="));
    match pages.ui.file_of(path, wanted) {
        Ok(_) if path == NOWHERE => nowhere(&pages, &request),
        Ok(None) => nowhere(&pages, &request),
        Ok(Some(_)) if !matches!(*request.method(), Method::GET | Method::HEAD) => {
            let refused = ApiError::new(Code::MethodNotAllowed, "pages are read with GET").into_response();
            ([(header::ALLOW, HeaderValue::from_static("GET, HEAD"))], refused).into_response()
        }
        Ok(Some(asset)) => {
            let has_version = wanted.is_some() && asset.version.as_deref() == wanted;
            let held = request.headers().get(header::IF_NONE_MATCH).and_then(|tags| tags.to_str().ok());
            answer(&pages, asset, has_version, held, Coding::of(request.headers()))
        }
        Err(error) => {
            tracing::error!(%error, "a file of the UI folder cannot be served");
            ApiError::new(Code::Internal, "this page cannot be read; the log has the reason").into_response()
        }
    }
}

/// Returns 404: a page for browsers, a problem body for programs.
fn nowhere(pages: &Pages, request: &Request) -> Response {
    let accept = request.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok());
    let page = match accept.is_some_and(|accept| accept.contains("text/html")) {
        true => pages.ui.nowhere().unwrap_or_else(|error| {
            tracing::error!(%error, "a file of the UI folder cannot be served");
            None
        }),
        false => None,
    };
    match page {
        Some(asset) => {
            let coding = Coding::of(request.headers());
            (StatusCode::NOT_FOUND, answer(pages, asset, false, None, coding)).into_response()
        }
        None => ApiError::new(Code::NotFound, "there is no such page").into_response(),
    }
}

/// How browsers keep a file whose address has the version of its content.
const IMMUTABLE: &str = "public, max-age=31536000, immutable";
/// How browsers keep the first file of an element: for 5 minutes, and then for a day while they
/// fetch it in the background. So a view of an embedding page waits for no answer about it.
const ELEMENT: &str = "public, max-age=300, stale-while-revalidate=86400";

/// Returns the file, or 304 if the browser has it. `no-cache` makes browsers revalidate, so that a
/// new version of the binary takes effect at once. `has_version`: the address has the version of
/// the file.
fn answer(
    pages: &Pages,
    mut asset: Asset,
    has_version: bool,
    held: Option<&str>,
    coding: Coding,
) -> Response {
    let held = held.is_some_and(|tags| asset.is_held(tags));
    let mut response = if held {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        let (body, coding) = pages.code(&mut asset, coding);
        let mut response = Response::new(Body::from(body));
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(asset.content_type));
        if let Some(name) = coding.name() {
            headers.insert(header::CONTENT_ENCODING, name);
        }
        response
    };
    let headers = response.headers_mut();
    let caching = match asset.immutable.is_some() || has_version {
        true => IMMUTABLE,
        false if asset.is_element() => ELEMENT,
        false => "no-cache",
    };
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(caching));
    headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    // The bodies of one file differ by coding, so its tag is a weak one (RFC 9110 section 8.8.1).
    if let Ok(etag) = HeaderValue::from_str(&format!("W/{}", asset.etag)) {
        headers.insert(header::ETAG, etag);
    }
    if asset.any_origin {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    }
    response
}

/// Returns a text that cannot be markup, inside or outside of double quotes.
pub(super) fn escaped(text: &str) -> String {
    text.chars().fold(String::new(), |mut out, c| {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use axum::http::HeaderMap;
    use tower::ServiceExt as _;

    use super::*;
    use crate::ui::ElementFile;

    async fn get(
        router: &Router,
        path: &str,
        headers: &[(header::HeaderName, &str)],
    ) -> (HeaderMap, StatusCode, Vec<u8>) {
        let mut request = Request::builder().uri(path);
        for (name, value) in headers {
            request = request.header(name, *value);
        }
        let request = request.body(Body::empty()).expect("a request");
        let response = router.clone().oneshot(request).await.expect("infallible");
        let (head, body) = response.into_parts();
        let body = axum::body::to_bytes(body, usize::MAX).await.expect("in memory");
        (head.headers, head.status, body.to_vec())
    }

    fn unzipped(body: &[u8]) -> String {
        let mut text = String::new();
        flate2::read::GzDecoder::new(body).read_to_string(&mut text).expect("gzip");
        text
    }

    #[tokio::test]
    async fn files_are_compressed_and_only_immutable_paths_are_kept_by_browsers() {
        let router = router(Ui::embedded());
        let (headers, _, page) = get(&router, "/", &[]).await;
        assert_eq!(
            (&headers[header::CACHE_CONTROL], headers.get(header::CONTENT_ENCODING)),
            (&"no-cache".parse().expect("a value"), None)
        );
        let page = String::from_utf8(page).expect("UTF-8");
        let script = page.split("src=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a script");
        let (_, _, plain) = get(&router, script, &[]).await;
        // The first request compresses, the second one does not.
        for _ in 0..2 {
            let (headers, status, body) = get(&router, script, &[(header::ACCEPT_ENCODING, "gzip")]).await;
            assert_eq!(
                (status, &headers[header::CONTENT_ENCODING]),
                (StatusCode::OK, &"gzip".parse().expect("a value"))
            );
            assert_eq!(unzipped(&body).as_bytes(), plain);
            assert!(headers[header::CACHE_CONTROL].to_str().expect("text").contains("immutable"));
            assert_eq!(headers[header::VARY], "accept-encoding");
        }
        // A browser that has the file in any coding gets no body.
        let (headers, ..) = get(&router, script, &[(header::ACCEPT_ENCODING, "zstd")]).await;
        assert_eq!(headers[header::CONTENT_ENCODING], "zstd");
        let tag = headers[header::ETAG].to_str().expect("text");
        let (_, status, body) = get(&router, script, &[(header::IF_NONE_MATCH, tag)]).await;
        assert_eq!((status, body.len()), (StatusCode::NOT_MODIFIED, 0));
        let (_, status, _) = get(&router, &script.replace("/assets/", "/assets/0"), &[]).await;
        assert_eq!(status, StatusCode::NOT_FOUND);
    }

    #[tokio::test]
    async fn files_for_other_origins_are_as_small_as_those_with_an_immutable_path() {
        let router = router(Ui::embedded());
        for (path, most) in
            [("/embed.js", 20_000), ("/embed-dashboard.js", 60_000), ("/embed-alerts.js", 10_000)]
        {
            let (_, _, plain) = get(&router, path, &[]).await;
            for _ in 0..2 {
                let (headers, _, body) = get(&router, path, &[(header::ACCEPT_ENCODING, "gzip")]).await;
                assert_eq!(headers[header::CACHE_CONTROL], ELEMENT);
                assert!(body.len() <= most, "{path}: {} bytes", body.len());
                assert_eq!(unzipped(&body).as_bytes(), plain, "{path}");
            }
        }
    }

    #[tokio::test]
    async fn a_file_that_an_element_loads_later_has_the_version_of_the_element_or_is_missing() {
        let router = router(Ui::embedded());
        for (element, later) in [
            ("/embed.js", "/chart/later.js"),
            ("/embed.js", "/chart/cursor.js"),
            ("/embed-dashboard.js", "/embed-dashboard.plots.js"),
            ("/embed-alerts.js", "/embed-alerts.later.js"),
        ] {
            let (_, _, element) = get(&router, element, &[]).await;
            let element = String::from_utf8(element).expect("UTF-8");
            let version = element.split("'?v=").nth(1).and_then(|rest| rest.get(..8)).expect("a version");
            let (headers, status, body) = get(&router, &format!("{later}?v={version}"), &[]).await;
            assert_eq!(
                (status, &headers[header::CACHE_CONTROL]),
                (StatusCode::OK, &IMMUTABLE.parse().expect("a value"))
            );
            assert!(
                String::from_utf8(body).expect("UTF-8").starts_with(&format!("export const v{version}="))
            );
            let (headers, status, _) = get(&router, &format!("{later}?v=00000000"), &[]).await;
            assert_eq!(status, StatusCode::NOT_FOUND, "{later}");
            assert!(headers.get(header::CACHE_CONTROL).is_none_or(|value| value != IMMUTABLE));
            let (headers, status, _) = get(&router, later, &[]).await;
            assert_eq!(
                (status, &headers[header::CACHE_CONTROL]),
                (StatusCode::OK, &"no-cache".parse().expect("a value"))
            );
        }
    }

    #[tokio::test]
    async fn a_file_of_another_version_is_served_to_elements_of_that_version_alone() {
        let file = |path: &str, text: &str| ElementFile {
            path: path.to_owned(),
            version: "0a1b2c3d".to_owned(),
            bytes: text.as_bytes().to_vec(),
        };
        let others = vec![file("/chart/later.js", "later"), file("/chart/gone.js", "gone")];
        let router = router(Ui::embedded().with_others(others));
        for (path, text) in [("/chart/later.js", "later"), ("/chart/gone.js", "gone")] {
            let address = format!("{path}?v=0a1b2c3d");
            let (headers, status, body) = get(&router, &address, &[]).await;
            assert_eq!((status, body), (StatusCode::OK, text.as_bytes().to_vec()), "{address}");
            let value = |name| headers[name].to_str().expect("text");
            assert_eq!(value(header::CACHE_CONTROL), IMMUTABLE);
            assert_eq!(value(header::ACCESS_CONTROL_ALLOW_ORIGIN), "*");
            assert!(value(header::CONTENT_TYPE).starts_with("text/javascript"));
        }
        for other in
            ["/chart/later.js?v=0a1b2c3e", "/chart/gone.js", "/chart/gone.js?v=", "/chart/none.js?v=0a1b2c3d"]
        {
            assert_eq!(get(&router, other, &[]).await.1, StatusCode::NOT_FOUND, "{other}");
        }
        // A file without versions is served whatever the query is.
        let (headers, status, _) = get(&router, "/embed.js?v=0a1b2c3d", &[]).await;
        assert_eq!(
            (status, &headers[header::CACHE_CONTROL]),
            (StatusCode::OK, &ELEMENT.parse().expect("a value"))
        );
    }
}
