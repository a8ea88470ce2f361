//! Rules and alerts in the format of Prometheus' API.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::api::views::labels::labels_json;
use crate::model::Timestamp;
use crate::rules::{RuleAlert, RuleGroupView, RuleHealth, RuleView, go_exponent};

/// The time of an evaluation that has not happened, as Go writes it.
const NEVER: &str = "0001-01-01T00:00:00Z";

fn time(at: Option<Timestamp>) -> String {
    at.map_or_else(|| NEVER.to_owned(), Timestamp::to_rfc3339)
}

/// Returns milliseconds in seconds.
fn seconds(ms: i64) -> Value {
    if ms % 1_000 == 0 { json!(ms / 1_000) } else { json!(Timestamp::from_ms(ms).as_seconds()) }
}

fn took(time: Duration) -> f64 {
    time.as_secs_f64()
}

fn texts(all: &BTreeMap<String, String>) -> Value {
    all.iter().map(|(name, text)| (name.clone(), json!(text))).collect::<Map<_, _>>().into()
}

/// Returns an alert.
pub(super) fn alert(alert: &RuleAlert) -> Value {
    let mut json = json!({
        "labels": labels_json(&alert.labels),
        "annotations": texts(&alert.annotations),
        "state": alert.phase.as_str(),
        "activeAt": alert.active_at.to_rfc3339(),
        "value": go_exponent(alert.value),
    });
    if let Some(since) = alert.keep_firing_since {
        json["keepFiringSince"] = json!(since.to_rfc3339());
    }
    json
}

/// Returns a rule.
pub(super) fn rule(view: &RuleView, with_alerts: bool) -> Value {
    let health = match &view.health {
        RuleHealth::Unknown => "unknown",
        RuleHealth::Ok => "ok",
        RuleHealth::Failed(_) => "err",
    };
    let mut json = json!({
        "name": view.rule.name(),
        "query": view.rule.expr.trim_end_matches('\n'),
        "health": health,
        "evaluationTime": took(view.took),
        "lastEvaluation": time(view.last_evaluation),
    });
    if let RuleHealth::Failed(message) = &view.health {
        json["lastError"] = json!(message);
    }
    let Some(alerting) = view.rule.alerting() else {
        json["type"] = json!("recording");
        if !view.rule.labels.is_empty() {
            json["labels"] = texts(&view.rule.labels);
        }
        return json;
    };
    json["type"] = json!("alerting");
    json["state"] = json!(view.state());
    json["duration"] = seconds(alerting.for_ms);
    json["keepFiringFor"] = seconds(alerting.keep_firing_for_ms);
    json["labels"] = texts(&view.rule.labels);
    json["annotations"] = texts(&alerting.annotations);
    json["alerts"] = if with_alerts { view.alerts.iter().map(alert).collect() } else { json!([]) };
    json
}

/// Returns a group with these rules.
pub(super) fn group(view: &RuleGroupView, rules: &[Value]) -> Value {
    json!({
        "name": &*view.key.name,
        "file": view.key.source.as_str(),
        "rules": rules,
        "interval": seconds(view.interval_ms),
        "limit": view.group.limit,
        "evaluationTime": took(view.took),
        "lastEvaluation": time(view.last_evaluation),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_go_writes_them() {
        let cases = [
            (1.0, "1e+00"),
            (0.0, "0e+00"),
            (-2.5, "-2.5e+00"),
            (1e21, "1e+21"),
            (1.5e-7, "1.5e-07"),
            (1e100, "1e+100"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-Inf"),
        ];
        for (value, text) in cases {
            assert_eq!(go_exponent(value), text);
        }
    }
}
