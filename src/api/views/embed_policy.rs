//! The policy of embed tokens: `embed.policy` of a key, or `ms` of a token.

use serde_json::{Value, json};

use crate::api::params::shortened;
use crate::identity::{AlertsPolicy, DashboardPolicy, EmbedPolicy};
use crate::promql::syntax::{self, Caps};

/// Parses a policy. Expressions are stored in canonical form, in which they are compared. An
/// expression that does not parse would grant nothing, so it is refused.
///
/// # Errors
/// The reason as text.
pub fn policy_from_json(sent: &Value) -> Result<EmbedPolicy, String> {
    let mut policy = EmbedPolicy::from_json(sent)?;
    for expr in policy.exprs.iter_mut().flatten() {
        let parsed = syntax::parse(expr, &Caps::default())
            .map_err(|error| format!("exprs: {}: {error}", shortened(expr)))?;
        *expr = parsed.expr.to_string();
    }
    Ok(policy)
}

/// Returns a policy with all its fields.
pub fn policy_json(policy: &EmbedPolicy) -> Value {
    json!({
        "endpoints": policy.endpoints,
        "metrics": policy.metrics,
        "match": policy.matchers,
        "exprs": policy.exprs,
        "max_range_s": policy.max_range_s,
        "max_lookback_s": policy.max_lookback_s,
        "min_step_s": policy.min_step_s,
        "dashboard": policy.dashboard.as_ref().map(DashboardPolicy::to_json),
        "alerts": policy.alerts.as_ref().map(AlertsPolicy::to_json),
    })
}
