//! The page of a public link (`/share?link=`) and of a dashboard in a frame (`/frame?token=`)
//! (docs/specification.md C9).
//!
//! Both serve one file, into which the organisation and the dashboard are written, or the code of
//! the refusal. The script of the page sends the link or the token as its bearer; no cookie is read
//! or set here. Unlike all other pages these may be shown in frames, by pages of the origins that
//! the link or the token allows.
//!
//! A view of the page is charged to the address of the client, whether the link or token is valid
//! or not, and never to the link or key: the page itself reads no data, and the requests of its
//! script are charged as all others.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::api::encoding::{Coding, Effort};
use crate::api::error::{ApiError, ApiResult, Code};
use crate::api::host::{self, TrustedProxies};
use crate::api::limits::Limits;
use crate::api::pages::escaped;
use crate::api::params::Params;
use crate::clock::Clock;
use crate::identity::{Identity, SharedDashboard};
use crate::ui::Ui;

const SHARE: &str = "/share";
const FRAME: &str = "/frame";
const ROBOTS: HeaderName = HeaderName::from_static("x-robots-tag");
const OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");

/// The dependencies of the two pages.
#[derive(Debug)]
pub struct SharedPages {
    /// The file `shared.html`.
    pub ui: Ui,
    /// Public links and embed tokens.
    pub identity: Arc<Identity>,
    /// The wall clock.
    pub clock: Clock,
    /// The rate limit of the client's address.
    pub limits: Arc<Limits>,
    /// The proxies whose statement of the client's address is trusted.
    pub proxies: TrustedProxies,
}

/// Returns whether a path is one of the two pages.
pub fn is_shared(path: &str) -> bool {
    path == SHARE || path == FRAME
}

impl SharedPages {
    /// Handles a request for one of the two pages.
    pub fn answer(&self, request: Request) -> Response {
        let (request, _) = request.into_parts();
        if !matches!(request.method, Method::GET | Method::HEAD) {
            let refused = ApiError::new(Code::MethodNotAllowed, "pages are read with GET").into_response();
            return ([(header::ALLOW, HeaderValue::from_static("GET, HEAD"))], refused).into_response();
        }
        self.page(&request).unwrap_or_else(IntoResponse::into_response)
    }

    fn page(&self, request: &Parts) -> ApiResult<Response> {
        self.limits.charge_address(self.proxies.client(host::peer(request), &request.headers))?;
        let mut params = Params::of_query(request.uri.query())?;
        let is_one = !(params.has("link") && params.has("token"));
        let (link, token) = (params.one(&["link"])?, params.one(&["token"])?);
        // The script of the page chooses its bearer by the same parameters. Two of them, or an
        // empty one, must not make it send another credential than the one that is checked here.
        let shared = match request.uri.path() {
            SHARE => self.of_link(link.filter(|_| is_one)),
            _ => self.of_token(token.filter(|_| is_one)),
        };
        let file = self.ui.file(request.uri.path()).map_err(ApiError::internal)?;
        let file = file.ok_or_else(|| ApiError::internal("the UI has no shared page"))?;
        let html = String::from_utf8_lossy(&file.bytes);
        let (status, html, ancestors) = match &shared {
            Ok(shared) => {
                let html = filled(&html, "promlet-org", shared.slug.as_str());
                let html = filled(&html, "promlet-dashboard", &shared.uid);
                (StatusCode::OK, html, frame_ancestors(&shared.origins))
            }
            Err(code) => {
                (StatusCode::NOT_FOUND, filled(&html, "promlet-refusal", code.as_str()), "'none'".to_owned())
            }
        };
        let (body, coding) = Coding::of(&request.headers).whole(html.into_bytes(), Effort::Least);
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(file.content_type));
        headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
        headers.insert(ROBOTS, HeaderValue::from_static("noindex"));
        headers.insert(OPENER_POLICY, HeaderValue::from_static("same-origin"));
        headers.insert(header::CONTENT_SECURITY_POLICY, policy(&ancestors)?);
        if let Some(name) = coding.name() {
            headers.insert(header::CONTENT_ENCODING, name);
        }
        Ok(response)
    }

    fn of_link(&self, secret: Option<String>) -> Result<SharedDashboard, Code> {
        let secret = secret.ok_or(Code::PublicLinkInvalid)?;
        self.identity.shared_by_link(&secret, self.clock.now()).map_err(|_| Code::PublicLinkInvalid)
    }

    fn of_token(&self, token: Option<String>) -> Result<SharedDashboard, Code> {
        let token = token.ok_or(Code::TokenInvalid)?;
        let shared = self.identity.shared_by_token(&token, self.clock.now());
        shared.map_err(|refusal| ApiError::from(refusal).code())?.ok_or(Code::EmbedRestricted)
    }
}

/// Writes a value into the empty `content` of a meta element.
fn filled(html: &str, name: &str, value: &str) -> String {
    html.replacen(
        &format!("name=\"{name}\" content=\"\""),
        &format!("name=\"{name}\" content=\"{}\"", escaped(value)),
        1,
    )
}

/// Returns the origins that every list contains, as the value of `frame-ancestors`.
fn frame_ancestors(lists: &[Vec<String>]) -> String {
    let mut restricting = lists.iter().filter(|list| !list.iter().any(|origin| origin == "*"));
    let Some(first) = restricting.next() else { return "*".to_owned() };
    let others: Vec<&Vec<String>> = restricting.collect();
    let common = first.iter().filter(|origin| others.iter().all(|list| list.contains(origin)));
    // The origins of policies are validated when they are stored. A text that is not an origin,
    // which could end the directive, allows nothing.
    let common: Vec<&str> = common.map(String::as_str).filter(|origin| is_source(origin)).collect();
    if common.is_empty() { "'none'".to_owned() } else { common.join(" ") }
}

fn is_source(origin: &str) -> bool {
    let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b':' | b'/' | b'[' | b']');
    !origin.is_empty() && origin.bytes().all(fits)
}

/// Returns the policy of the page: that of other pages, except for the origins that may frame it.
fn policy(ancestors: &str) -> ApiResult<HeaderValue> {
    let text =
        format!("default-src 'self'; frame-ancestors {ancestors}; base-uri 'none'; form-action 'none'");
    HeaderValue::try_from(text).map_err(ApiError::internal)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn list(origins: &[&str]) -> Vec<String> {
        origins.iter().map(|&origin| origin.to_owned()).collect()
    }

    #[test]
    fn only_origins_that_every_list_contains_may_frame_the_page() {
        let (a, b) = ("https://a.example", "https://b.example:8443");
        let cases: [(&[&[&str]], &str); 7] = [
            (&[], "*"),
            (&[&["*"]], "*"),
            (&[&["*"], &[a]], a),
            (&[&[a, "*"], &[b, a]], "https://b.example:8443 https://a.example"),
            (&[&[a, b], &[b]], b),
            (&[&[a], &[b]], "'none'"),
            (&[&[]], "'none'"),
        ];
        for (lists, expected) in cases {
            let lists: Vec<Vec<String>> = lists.iter().map(|origins| list(origins)).collect();
            assert_eq!(frame_ancestors(&lists), expected, "{lists:?}");
        }
    }

    #[test]
    fn a_text_that_is_no_origin_allows_nothing() {
        for text in
            ["https://a.example; script-src *", "a b", "'self'", "https://a.example,b", "a\r\nb", "data:*"]
        {
            assert_eq!(frame_ancestors(&[list(&[text])]), "'none'", "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn no_origin_adds_a_directive_or_a_header(texts in prop::collection::vec("\\PC{0,20}|[;, '\"a:/\r\n*]{0,9}", 0..4)) {
            let value = policy(&frame_ancestors(&[texts])).expect("a header");
            let value = value.to_str().expect("text");
            let directives: Vec<&str> = value.split(';').map(str::trim).collect();
            prop_assert_eq!(directives.len(), 4, "{}", value);
            prop_assert!(directives[1].starts_with("frame-ancestors "), "{}", value);
            prop_assert!(!value.contains([',', '\r', '\n']), "{}", value);
        }

        #[test]
        fn no_value_leaves_its_attribute(value in "\\PC{0,20}|[<>\"'&a]{0,9}") {
            let html = filled("<meta name=\"promlet-org\" content=\"\"><p>", "promlet-org", &value);
            let inner = html.strip_prefix("<meta name=\"promlet-org\" content=\"").and_then(|rest| rest.strip_suffix("\"><p>"));
            prop_assert!(inner.is_some_and(|inner| !inner.contains(['"', '<'])), "{}", html);
        }
    }
}
