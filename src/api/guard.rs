//! Enforces the requirements of a row of the route table on sessions, before its handler runs.
//!
//! So a refusal never depends on the body, and a handler needs no check of its own. The handler of
//! a row that requires a member receives the [`MemberCaller`](super::callers::MemberCaller) that
//! the guard has admitted. Tokens and API keys are checked and charged by their extractors.

use std::sync::Arc;

use axum::extract::{FromRequestParts as _, Request};
use axum::http::request::Parts;
use axum::response::IntoResponse as _;

use super::callers::SessionCaller;
use super::error::ApiResult;
use super::router::{RouteHandler, slug_parameter};
use super::routes::{Auth, Login};
use crate::identity::Role;

/// Returns whether rows of this kind need a guard. The others avoid its cost, one box a request.
pub(super) const fn concerns(auth: Auth) -> bool {
    match auth {
        Auth::Account(_)
        | Auth::Member(..)
        | Auth::OneselfOr(_)
        | Auth::InstanceAdmin(_)
        | Auth::Founder
        | Auth::ScrapeAdmin => true,
        Auth::Public
        | Auth::QueryCaller(_)
        | Auth::PictureCaller(_)
        | Auth::PrometheusCaller(_)
        | Auth::IngestCaller
        | Auth::AlertingCaller
        | Auth::MintCaller
        | Auth::Operator => false,
    }
}

/// Wraps a handler so that only requests that satisfy its row reach it.
pub(super) fn guarded(auth: Auth, handle: RouteHandler) -> RouteHandler {
    Arc::new(move |request: Request| {
        let handle = Arc::clone(&handle);
        Box::pin(async move {
            let (mut parts, body) = request.into_parts();
            match admit(auth, &mut parts).await {
                Ok(()) => handle(Request::from_parts(parts, body)).await,
                Err(refused) => refused.into_response(),
            }
        })
    })
}

async fn admit(auth: Auth, parts: &mut Parts) -> ApiResult<()> {
    let (role, login) = match auth {
        Auth::Account(login) => (None, login),
        Auth::Member(role, login) => (Some(role), login),
        Auth::OneselfOr(_) => (Some(Role::Viewer), Login::Any),
        Auth::InstanceAdmin(login) => (None, login),
        Auth::Founder | Auth::ScrapeAdmin => (None, Login::Any),
        Auth::Public
        | Auth::QueryCaller(_)
        | Auth::PictureCaller(_)
        | Auth::PrometheusCaller(_)
        | Auth::IngestCaller
        | Auth::AlertingCaller
        | Auth::MintCaller
        | Auth::Operator => return Ok(()),
    };
    let caller = SessionCaller::from_request_parts(parts, &()).await?;
    if matches!(auth, Auth::InstanceAdmin(_)) {
        caller.require_instance_admin()?;
    }
    let member = role.map(|role| caller.enter(&slug_parameter(parts)?, role)).transpose()?;
    if login == Login::Fresh {
        caller.require_fresh()?;
    }
    if let Some(member) = member {
        parts.extensions.insert(member);
    }
    Ok(())
}
