//! Accounts, for administrators of the server (docs/specification.md C8).

use axum::extract::State;
use axum::http::Uri;
use serde::Deserialize;
use serde_json::{Value, json};

use super::AdminDeps;
use crate::api::body::Json;
use crate::api::callers::SessionCaller;
use crate::api::error::{ApiError, ApiResult};
use crate::api::lanes::Lane;
use crate::api::listing::PageRequest;
use crate::api::params::{Params, PathOf};
use crate::api::views::user::user_json;
use crate::identity::{AdministrationError, StoreError, UserChange, UserId};

pub(super) async fn list(State(deps): State<AdminDeps>, uri: Uri) -> ApiResult<Json<Value>> {
    let mut params = Params::of_query(uri.query())?;
    let page = PageRequest::take(&mut params)?;
    let search = params.one(&["search"])?.unwrap_or_default();
    let now = deps.clock.now();
    deps.read(move |identity| {
        let found = identity.users_found(&search)?;
        let (shown, next) = page.cut(&found, |user| user.id)?;
        let shown = found.get(shown).unwrap_or_default().iter();
        let shown = shown.map(|user| Ok(user_json(&identity.summary(user.clone(), now)?)));
        let shown = shown.collect::<Result<Vec<_>, StoreError>>()?;
        Ok(Json(json!({ "data": shown, "next_cursor": next })))
    })
    .await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct UserChangeBody {
    disabled: Option<bool>,
    is_admin: Option<bool>,
}

/// Changes an account and returns it. The sessions of a disabled account end before the response.
pub(super) async fn change(
    State(deps): State<AdminDeps>,
    cabinet: SessionCaller,
    PathOf(id): PathOf<String>,
    Json(body): Json<UserChangeBody>,
) -> ApiResult<Json<Value>> {
    let user: UserId = id.parse().map_err(|_| ApiError::from(AdministrationError::UnknownUser))?;
    let change = UserChange { disabled: body.disabled, is_admin: body.is_admin };
    let (actor, now) = (cabinet.user(), deps.clock.now());
    let identity = std::sync::Arc::clone(&deps.identity);
    deps.lanes.run(Lane::Account, move || identity.change_user(Some(actor), user, change, now)).await??;
    deps.read(move |identity| {
        let found = identity.user_summary(user, now)?;
        let found = found.ok_or_else(|| ApiError::from(AdministrationError::UnknownUser))?;
        Ok(Json(user_json(&found)))
    })
    .await
}
