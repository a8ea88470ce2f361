//! The member of an organisation that the guard has admitted to a route.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;

use super::extractors::SessionCaller;
use crate::api::error::{ApiError, ApiResult};
use crate::identity::{Membership, Org, Role, UserId};

/// A member of the organisation in the path, with at least the role that the row of the route
/// requires. The guard creates this value before the handler runs. Cheap to clone.
#[derive(Clone, Debug)]
pub struct MemberCaller {
    session: SessionCaller,
    membership: Arc<Membership>,
    needed: Role,
}

impl SessionCaller {
    /// Enters the organisation `slug` with at least the role `needed`.
    ///
    /// # Errors
    /// 404 `org_not_found` for an account that is not a member, as for an organisation that does
    /// not exist; 403 `forbidden` for a member with a lesser role.
    pub(in crate::api) fn enter(&self, slug: &str, needed: Role) -> ApiResult<MemberCaller> {
        let membership = Arc::new(self.membership(slug, needed)?);
        Ok(MemberCaller { session: self.clone(), membership, needed })
    }
}

impl MemberCaller {
    /// Returns the account of the member.
    pub fn user(&self) -> UserId {
        self.session.user()
    }

    /// Returns the organisation.
    pub fn org(&self) -> &Org {
        &self.membership.org
    }

    /// Returns the role of the member.
    pub fn role(&self) -> Role {
        self.membership.role
    }

    /// Returns the membership.
    pub fn membership(&self) -> &Membership {
        &self.membership
    }

    /// Requires a fresh login. Routes that always require one state it in their row instead.
    ///
    /// # Errors
    /// 403 `reauth_required`.
    pub fn require_fresh(&self) -> ApiResult<()> {
        self.session.require_fresh()
    }

    /// Checks that the caller still is a member with the role that the row requires. A change calls
    /// it just before it takes effect, because the body may have arrived long after the guard's
    /// check.
    ///
    /// # Errors
    /// The errors for a caller who is not a member or has a lesser role.
    pub fn recheck(&self) -> ApiResult<()> {
        self.session.membership(self.org().slug.as_str(), self.needed).map(drop)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for MemberCaller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> ApiResult<MemberCaller> {
        let unguarded = || ApiError::internal("a handler takes a member, but its row requires none");
        parts.extensions.remove().ok_or_else(unguarded)
    }
}
