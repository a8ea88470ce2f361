//! Serves the files of the UI on every path that is neither a route nor below the API.

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::error::{ApiError, Code};
use crate::ui::{Asset, NOWHERE, Ui};

/// Returns a router for the UI's paths.
pub fn router(ui: Ui) -> Router {
    Router::new().fallback(page).with_state(ui)
}

async fn page(State(ui): State<Ui>, request: Request) -> Response {
    match ui.file(request.uri().path()) {
        Ok(_) if request.uri().path() == NOWHERE => nowhere(&ui, &request),
        Ok(None) => nowhere(&ui, &request),
        Ok(Some(_)) if !matches!(*request.method(), Method::GET | Method::HEAD) => {
            let refused = ApiError::new(Code::MethodNotAllowed, "pages are read with GET").into_response();
            ([(header::ALLOW, HeaderValue::from_static("GET, HEAD"))], refused).into_response()
        }
        Ok(Some(asset)) => {
            let held = request.headers().get(header::IF_NONE_MATCH).and_then(|tags| tags.to_str().ok());
            answer(asset, held)
        }
        Err(error) => {
            tracing::error!(%error, "a file of the UI folder cannot be served");
            ApiError::new(Code::Internal, "this page cannot be read; the log says why").into_response()
        }
    }
}

/// Returns 404: a page for browsers, a problem body for programs.
fn nowhere(ui: &Ui, request: &Request) -> Response {
    let accept = request.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok());
    let page = match accept.is_some_and(|accept| accept.contains("text/html")) {
        true => ui.nowhere().unwrap_or_else(|error| {
            tracing::error!(%error, "a file of the UI folder cannot be served");
            None
        }),
        false => None,
    };
    match page {
        Some(asset) => (StatusCode::NOT_FOUND, answer(asset, None)).into_response(),
        None => ApiError::new(Code::NotFound, "there is no such page").into_response(),
    }
}

/// Returns the file, or 304 if the browser has it. `no-cache` makes browsers revalidate, so that a
/// new version of the binary takes effect at once.
fn answer(asset: Asset, held: Option<&str>) -> Response {
    let held = held.is_some_and(|tags| asset.is_held(tags));
    let mut response = if held {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        let mut response = Response::new(Body::from(asset.bytes.into_owned()));
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(asset.content_type));
        response
    };
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    if let Ok(etag) = HeaderValue::from_str(&asset.etag) {
        headers.insert(header::ETAG, etag);
    }
    if asset.any_origin {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    }
    response
}
