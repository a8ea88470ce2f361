//! An organisation, as administrators of the server see it, with its settings and its usage.

use serde_json::{Map, Value, json};

use crate::identity::{Identity, Limit, Org, OrgSettings, Role, Setting, StoreError};
use crate::model::{OrgId, Timestamp};
use crate::tsdb::{Stats, Tsdb};

/// Returns organisations with their usage.
///
/// # Errors
/// [`StoreError`].
pub fn orgs_json(
    identity: &Identity,
    tsdb: &Tsdb,
    orgs: &[Org],
    now: Timestamp,
) -> Result<Vec<Value>, StoreError> {
    let stats = tsdb.stats();
    let one = |org: &Org| {
        let mut shown = org_json_without_usage(identity, org, now)?;
        shown["usage"] = usage_json(tsdb, &stats, org.id, now);
        Ok(shown)
    };
    orgs.iter().map(one).collect()
}

/// Returns an organisation without its usage, for when the store is not open.
///
/// # Errors
/// [`StoreError`].
pub fn org_json_without_usage(identity: &Identity, org: &Org, now: Timestamp) -> Result<Value, StoreError> {
    let members = identity.members(org.id, now)?;
    let owners = members.iter().filter(|member| member.role == Role::Owner);
    Ok(json!({
        "id": org.key.to_string(),
        "number": org.id.0,
        "slug": org.slug.as_str(),
        "name": org.name,
        "created_at": org.created_at.to_rfc3339(),
        "members": members.len(),
        "owners": owners.map(|owner| owner.user.email.as_str()).collect::<Vec<_>>(),
        "api_keys": identity.keys(org.id).len(),
        "settings": settings_json(&org.settings),
    }))
}

/// Returns all settings as the API shows them.
pub fn settings_json(settings: &OrgSettings) -> Value {
    let one = |setting: &Setting| {
        let value = match settings.limit(*setting) {
            Limit::Default => Value::Null,
            Limit::Unlimited => "none".into(),
            Limit::At(number) => number.into(),
        };
        (setting.as_str().to_owned(), value)
    };
    let public_links = ("public_links".to_owned(), settings.public_links.into());
    Value::Object(Setting::ALL.iter().map(one).chain([public_links]).collect())
}

/// Returns the usage of an organisation according to `stats`.
pub fn usage_json(tsdb: &Tsdb, stats: &Stats, org: OrgId, now: Timestamp) -> Value {
    let used = stats.orgs.iter().find(|usage| usage.org == org);
    json!({
        "series": used.map_or(0, |used| used.series),
        "samples": used.map_or(0, |used| used.samples),
        "samples_today": tsdb.stored_today(org, now),
        "bytes": used.map_or(0, |used| used.disk_bytes),
        "memory_bytes": used.map_or(0, |used| used.memory_bytes),
        "refused": used.map_or_else(Map::new, |used| {
            let one = |(code, samples): &(&str, u64)| ((*code).to_owned(), Value::from(*samples));
            used.refused_by_code.iter().map(one).collect()
        }),
    })
}
