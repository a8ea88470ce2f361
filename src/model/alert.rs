//! Alerts, as rules raise them and notifications carry them.

use std::collections::BTreeMap;

use super::{OrgId, Timestamp};

/// An alert that fires or has been resolved. Its labels identify it within its organisation; an
/// alert with the same labels and a later start is a new one.
#[derive(Clone, Debug, PartialEq)]
pub struct Alert {
    /// The labels, `alertname` among them.
    pub labels: BTreeMap<String, String>,
    /// The annotations, with their templates expanded.
    pub annotations: BTreeMap<String, String>,
    /// The value of the expression at the last evaluation.
    pub value: f64,
    /// When the alert began to fire.
    pub starts_at: Timestamp,
    /// The end: for a firing alert, the time after which it counts as resolved unless it is sent
    /// again; for a resolved one, when it was resolved.
    pub ends_at: Timestamp,
    /// Whether its sender set the end of a firing alert. Otherwise the end follows from the time at
    /// which it was sent.
    pub has_own_end: bool,
    /// Whether the alert is resolved.
    pub resolved: bool,
    /// The expression of the rule.
    pub expr: String,
}

/// A receiver of alerts. Rules send a firing alert again and again while it fires, and a resolved
/// one a few times.
pub trait AlertSink: Send + Sync {
    /// Takes alerts of an organisation. Returns at once: a sink with a full queue drops the oldest
    /// alerts and counts them.
    fn send(&self, org: OrgId, alerts: Vec<Alert>, now: Timestamp);
}
