//! Totals over the whole server.

use serde_json::{Value, json};

use crate::identity::{Identity, StoreError};
use crate::model::Timestamp;
use crate::tsdb::{OrgStats, Tsdb};

/// Returns totals over all organisations.
///
/// # Errors
/// [`StoreError`].
pub fn stats_json(identity: &Identity, tsdb: &Tsdb, now: Timestamp) -> Result<Value, StoreError> {
    let counts = identity.instance_counts(now)?;
    let stats = tsdb.stats();
    let sum = |of: &dyn Fn(&OrgStats) -> u64| stats.orgs.iter().map(of).sum::<u64>();
    Ok(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "users": counts.users,
        "users_disabled": counts.users_disabled,
        "users_with_twofa": counts.users_with_twofa,
        "admins": counts.admins,
        "orgs": counts.orgs,
        "orgs_being_removed": counts.orgs_being_removed,
        "sessions": counts.sessions,
        "api_keys": counts.api_keys,
        "series": sum(&|org| org.series),
        "samples": sum(&|org| org.samples.saturating_add(org.sealed_samples)),
        "disk_bytes": sum(&|org| org.disk_bytes),
        "memory_bytes": sum(&|org| org.memory_bytes),
    }))
}
