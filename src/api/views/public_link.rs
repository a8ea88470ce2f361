//! A public link of a dashboard, with its address.

use serde_json::{Value, json};

use crate::identity::{DashboardPolicy, Identity, PublicLink};

/// Returns a link as editors see it. The secret is part of `url`, which is `null` if the secret was
/// lost with the master key.
pub fn public_link_json(identity: &Identity, link: &PublicLink, public_url: &str) -> Value {
    let key = &link.key;
    let secret = identity.public_link_secret(link);
    let policy = &key.embed.policy;
    let mut variables = policy.dashboard.as_ref().map(DashboardPolicy::to_json).unwrap_or_default();
    let mut member = |name: &str| match variables[name].take() {
        Value::Null => json!({}),
        value => value,
    };
    json!({
        "id": key.id.to_string(),
        "name": key.name,
        "url": secret.map(|secret| format!("{public_url}/share?link={}", secret.expose())),
        "dashboard": link.dashboard,
        "created_at": key.created_at.to_rfc3339(),
        "created_by": key.created_by.map(|user| user.to_string()),
        "expires_at": key.expires_at.map(|at| at.to_rfc3339()),
        "disabled": key.disabled,
        "last_used_at": key.last_used().map(|at| at.to_rfc3339()),
        "locked": member("locked"),
        "open": member("open"),
        "max_range_s": policy.max_range_s,
        "max_lookback_s": policy.max_lookback_s,
        "min_step_s": policy.min_step_s,
        "origins": key.embed.origins,
        "rate_limit_rps": key.embed.rate_limit_rps,
        "query_seconds_per_minute": key.embed.query_seconds_per_minute,
    })
}
