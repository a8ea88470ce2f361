//! A dashboard without its document.

use serde_json::{Value, json};

use crate::identity::{Dashboard, DashboardMarks, DashboardVersion, UserId};

/// Returns a row of the listing. The command line has no marks.
pub fn dashboard_json(dashboard: &Dashboard, provisioned: bool, marks: &DashboardMarks) -> Value {
    let by = |user: Option<UserId>| user.map(|user| user.to_string());
    json!({
        "uid": dashboard.uid,
        "title": dashboard.title,
        "folder": dashboard.folder,
        "tags": dashboard.tags,
        "version": dashboard.version,
        "created_at": dashboard.created_at.to_rfc3339(),
        "created_by": by(dashboard.created_by),
        "updated_at": dashboard.updated_at.to_rfc3339(),
        "updated_by": by(dashboard.updated_by),
        "starred": marks.is_starred(&dashboard.uid),
        "last_seen_at": marks.last_seen(&dashboard.uid).map(|at| at.to_rfc3339()),
        "provisioned": provisioned,
        "panels": dashboard.panels,
        "queries": dashboard.queries,
    })
}

/// Returns a row of the history.
pub fn dashboard_version_json(version: &DashboardVersion) -> Value {
    json!({
        "version": version.version,
        "saved_at": version.saved_at.to_rfc3339(),
        "saved_by": version.saved_by.map(|user| user.to_string()),
        "message": version.message,
        "restored_from": version.restored_from,
        "bytes": version.bytes,
    })
}
