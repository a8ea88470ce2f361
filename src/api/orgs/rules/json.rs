//! Groups of rules and previews as JSON.

use serde_json::{Value, json};

use super::{NAMESPACE, path_name};
use crate::api::prom_json::number_text;
use crate::api::views::labels::labels_json;
use crate::identity::{RuleGroupVersion, StoredRuleGroup};
use crate::rules::{AlertPhase, AlertTransition, RuleGroupView, RulePreview, RuleSource, group_text};

/// The most points of all series of a preview, inclusive. Further series are left out.
const PREVIEW_POINTS_MAX: usize = 200_000;

/// Returns a stored group.
pub(super) fn stored(group: &StoredRuleGroup) -> Value {
    json!({
        "name": path_name(&group.place.namespace, &group.place.name),
        "namespace": group.place.namespace,
        "source": "api",
        "yaml": group.yaml,
        "version": group.version,
        "updated_at": group.updated_at.to_rfc3339(),
        "updated_by": group.updated_by.map(|user| user.to_string()),
    })
}

/// Returns a version of a stored group.
pub(super) fn version(version: &RuleGroupVersion) -> Value {
    json!({
        "version": version.version,
        "valid_from": version.valid_from.to_rfc3339(),
        "valid_until": version.valid_until.map(|until| until.to_rfc3339()),
        "updated_by": version.updated_by.map(|user| user.to_string()),
        "bytes": version.bytes,
    })
}

/// Returns a group of a file of the operator; `None` for another one.
pub(super) fn of_file(view: &RuleGroupView) -> Option<Value> {
    let RuleSource::File(path) = &view.key.source else { return None };
    let name = std::path::Path::new(&**path).file_name().map(|name| name.to_string_lossy().into_owned());
    Some(json!({
        "name": &*view.key.name,
        "namespace": name.unwrap_or_else(|| NAMESPACE.to_owned()),
        "source": "file",
        "yaml": group_text(&view.group),
        "version": 0,
        "updated_at": null,
        "updated_by": null,
    }))
}

/// Returns a preview.
pub(super) fn preview(preview: &RulePreview) -> Value {
    let transition = |change: &AlertTransition| {
        let state = change.phase.map_or("inactive", AlertPhase::as_str);
        json!({
            "at": change.at.to_rfc3339(),
            "state": state,
            "labels": labels_json(&change.labels),
            "value": number_text(change.value),
        })
    };
    let mut points = 0;
    let mut truncated = preview.truncated;
    let mut series = Vec::new();
    for one in &preview.series {
        points += one.samples.len();
        if points > PREVIEW_POINTS_MAX {
            truncated = true;
            break;
        }
        let values: Vec<Value> = one
            .samples
            .iter()
            .map(|sample| json!([sample.at.as_seconds(), number_text(sample.value)]))
            .collect();
        series.push(json!({ "metric": labels_json(&one.labels), "values": values }));
    }
    json!({
        "transitions": preview.transitions.iter().map(transition).collect::<Vec<_>>(),
        "series": series,
        "truncated": truncated,
        "estimate": {
            "series": preview.estimate.series,
            "samples": preview.estimate.samples,
            "memory_bytes": preview.estimate.memory_bytes,
        },
    })
}
