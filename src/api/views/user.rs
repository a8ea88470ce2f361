//! An account, as administrators of the server see it.

use serde_json::{Value, json};

use crate::identity::UserSummary;

/// Returns an account as JSON.
pub fn user_json(summary: &UserSummary) -> Value {
    let user = &summary.user;
    let orgs = summary.orgs.iter();
    let orgs: Vec<Value> = orgs
        .map(|member| json!({ "slug": member.org.slug.as_str(), "role": member.role.as_str() }))
        .collect();
    json!({
        "id": user.id.to_string(),
        "email": user.email.as_str(),
        "name": user.name,
        "is_admin": user.is_admin,
        "disabled": user.disabled,
        "twofa_enabled": user.twofa_enabled,
        "has_password": user.has_password,
        "created_at": user.created_at.to_rfc3339(),
        "last_seen_at": summary.last_seen_at.map(|at| at.to_rfc3339()),
        "sessions": summary.sessions,
        "orgs": orgs,
    })
}
