//! The alerts that are sent after an evaluation.

use std::collections::BTreeMap;

use crate::model::{Alert, Timestamp};
use crate::rules::alert::{AlertPhase, RuleAlert};
use crate::rules::run::GroupRun;

/// The number of sendings that may be lost before a firing alert counts as resolved.
const VALID_SENDINGS: i64 = 4;

/// Returns the alerts that are due to be sent after the evaluation at `at`, and marks them as sent.
pub(super) fn alerts_to_send(
    run: &mut GroupRun,
    at: Timestamp,
    now: Timestamp,
    resend_delay_ms: i64,
) -> Vec<Alert> {
    let valid_ms = run.interval_ms.max(resend_delay_ms).saturating_mul(VALID_SENDINGS);
    let mut sent = Vec::new();
    for rule in &mut run.rules {
        let expr = &rule.compiled.rule.expr;
        for alert in rule.alerts.iter_mut().filter(|alert| alert.needs_sending(at, resend_delay_ms)) {
            alert.last_sent_at = Some(at);
            sent.push(sent_alert(alert, expr, now.plus_ms(valid_ms)));
        }
    }
    sent
}

fn sent_alert(alert: &RuleAlert, expr: &str, valid_until: Timestamp) -> Alert {
    let resolved = alert.phase == AlertPhase::Resolved;
    let labels: BTreeMap<String, String> =
        alert.labels.iter().map(|label| (label.name.to_owned(), label.value.to_owned())).collect();
    Alert {
        labels,
        annotations: alert.annotations.as_ref().clone(),
        value: alert.value,
        starts_at: alert.fired_at.unwrap_or(alert.active_at),
        ends_at: alert.resolved_at.filter(|_| resolved).unwrap_or(valid_until),
        has_own_end: false,
        resolved,
        expr: expr.to_owned(),
    }
}
