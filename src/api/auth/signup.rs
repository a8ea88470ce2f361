//! The first account (API.md C2, signup).

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;

use super::AuthDeps;
use crate::api::body::Json;
use crate::api::callers::Visitor;
use crate::api::error::{ApiResult, identity::slug};
use crate::api::lanes::Lane;
use crate::entropy::Entropy;
use crate::identity::{NewOrg, Password, SetUp, SetUpError, SetUpPeer};
use crate::model::OrgSlug;

#[derive(Deserialize)]
pub(super) struct SignupBody {
    setup_token: Option<String>,
    email: String,
    password: String,
    name: Option<String>,
    org: OrgBody,
}

#[derive(Deserialize)]
struct OrgBody {
    slug: String,
    name: Option<String>,
}

/// POST /auth/signup: 201 and a session for the first account; 403 `signup_closed` ever after.
pub(super) async fn signup(
    State(deps): State<AuthDeps>,
    visitor: Visitor,
    Json(body): Json<SignupBody>,
) -> ApiResult<Response> {
    if !deps.identity.needs_setup() {
        return Err(SetUpError::Closed.into());
    }
    let org = OrgSlug::parse(&body.org.slug).map_err(|error| slug("org.slug", error))?;
    let now = deps.clock.now();
    let client = visitor.client().clone();
    let peer = if visitor.is_local() { SetUpPeer::Local } else { SetUpPeer::Remote };
    let login = deps
        .change(Lane::Password, move |identity| {
            let request = SetUp {
                token: body.setup_token.as_deref(),
                peer,
                email: &body.email,
                password: Password(&body.password),
                name: body.name.as_deref().unwrap_or_default(),
                org: NewOrg { slug: org, name: body.org.name.unwrap_or_default() },
                client: &client,
            };
            identity.set_up(&request, now, &mut Entropy::system())
        })
        .await?;
    Ok(deps.logged_in(StatusCode::CREATED, &login))
}
