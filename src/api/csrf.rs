//! Refuses cross-site requests that would use another site's cookie (docs/specification.md B4).
//!
//! `SameSite` does not protect a laptop, where every port of `localhost` is the same site. The
//! rules are those of tower-http: refuse requests that are cross-site by `Sec-Fetch-Site` or
//! `Origin`; without these headers the client is not a browser. They apply to every unsafe method
//! that a cookie could authorise, and to everything below `/auth`, including logins. A request with
//! an `Authorization` header uses no cookie, and a foreign page cannot set that header without a
//! preflight.

use std::convert::Infallible;
use std::future::Future;

use axum::extract::Request;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use tower::{Layer as _, ServiceExt as _};
use tower_http::csrf::{CsrfLayer, ProtectionError};

use super::error::{ApiError, Code};

type RejectionResponse = fn(ProtectionError) -> Response;

/// The CSRF check of requests that a cookie could authorise.
#[derive(Clone, Debug)]
pub(super) struct CookieCsrf(CsrfLayer<RejectionResponse>);

impl CookieCsrf {
    /// Creates the check. `trusted_origins` may act across sites (front-end development on another
    /// port).
    ///
    /// # Errors
    /// The first invalid origin and the reason.
    pub(super) fn new(trusted_origins: &[String]) -> Result<CookieCsrf, String> {
        let mut layer = CsrfLayer::new();
        for origin in trusted_origins {
            layer = layer.add_trusted_origin(origin).map_err(|error| error.to_string())?;
        }
        Ok(CookieCsrf(layer.with_rejection_response(reject)))
    }
}

#[expect(clippy::needless_pass_by_value, reason = "the signature that tower-http calls")]
fn reject(error: ProtectionError) -> Response {
    tracing::debug!("refused a cross-site request: {error}");
    ApiError::new(Code::CsrfRejected, "this request came from another site").into_response()
}

impl CookieCsrf {
    /// Runs `next`, or refuses the request.
    pub(super) async fn check<N, F>(&self, request: Request, next: N) -> Response
    where
        N: Fn(Request) -> F,
        F: Future<Output = Response>,
    {
        let path = request.uri().path();
        let auth = path.starts_with("/auth/") || path.starts_with("/api/v1/auth/");
        if !auth && request.headers().contains_key(header::AUTHORIZATION) {
            return next(request).await;
        }
        let inner = tower::service_fn(async |request| Ok::<_, Infallible>(next(request).await));
        let Ok(response) = self.0.layer(inner).oneshot(request).await;
        response
    }
}
