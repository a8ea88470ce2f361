//! An API key, without its secret.

use serde_json::{Map, Value, json};

use super::embed_policy::policy_json;
use crate::identity::ApiKey;

/// The message for a read rate of a key that cannot read.
pub const NOTHING_TO_READ: &str = "limits the reads of a key, and this key does not have the scope read";

/// Returns a key as administrators see it, without its secret.
pub fn key_json(key: &ApiKey) -> Value {
    let scopes = [
        ("ingest", key.scopes.ingest),
        ("read", key.scopes.read),
        ("embed", key.scopes.embed),
        ("alerting", key.scopes.alerting),
    ];
    let scopes: Vec<&str> = scopes.into_iter().filter(|(_, held)| *held).map(|(word, _)| word).collect();
    let labels: Map<String, Value> =
        key.ingest.labels.iter().map(|(name, value)| (name.clone(), value.as_str().into())).collect();
    json!({
        "id": key.id.to_string(),
        "name": key.name,
        "scopes": scopes,
        "hint": key.hint,
        "created_by": key.created_by.map(|user| user.to_string()),
        "created_at": key.created_at.to_rfc3339(),
        "expires_at": key.expires_at.map(|at| at.to_rfc3339()),
        "last_used_at": key.last_used().map(|at| at.to_rfc3339()),
        "disabled": key.disabled,
        "embed": {
            "alg": key.embed.alg.as_str(),
            "public_key": key.embed.public_key,
            "rate_limit_rps": key.embed.rate_limit_rps,
            "max_token_ttl_s": key.embed.max_token_ttl_s,
            "origins": key.embed.origins,
            "policy": policy_json(&key.embed.policy),
            "query_seconds_per_minute": key.embed.query_seconds_per_minute,
            "blocked_origins": key.embed.blocked_origins,
        },
        "ingest": {
            "rate_limit_rps": key.ingest.rate_limit_rps,
            "samples_per_s": key.ingest.samples_per_s,
            "labels": labels,
        },
        "read": { "rate_limit_rps": key.read.rate_limit_rps },
    })
}
