//! The state as the API shows it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::suppress::AlertAcknowledgement;
use super::{OrgCounts, OrgNotifier};
use crate::model::Timestamp;
use crate::notify::delivery::{DeliveryCounts, DeliveryError};
use crate::notify::labels::{AlertFingerprint, AlertLabels};

/// An alert, and the reasons why it is suppressed.
#[derive(Clone, Debug)]
pub struct AlertView {
    /// The fingerprint.
    pub fingerprint: AlertFingerprint,
    /// The labels.
    pub labels: Arc<AlertLabels>,
    /// The annotations.
    pub annotations: Arc<AlertLabels>,
    /// The time at which the alert began to fire.
    pub starts_at: Timestamp,
    /// The time at which the alert ended, or ends unless it is sent again.
    pub ends_at: Timestamp,
    /// The time at which the alert was last sent.
    pub updated_at: Timestamp,
    /// The page of its expression.
    pub generator_url: String,
    /// The names of its receivers, in order.
    pub receivers: Vec<Arc<str>>,
    /// The active silences that match.
    pub silenced_by: Vec<Arc<str>>,
    /// An alert that inhibits it.
    pub inhibited_by: Option<AlertFingerprint>,
    /// The acknowledgement.
    pub acknowledgement: Option<AlertAcknowledgement>,
}

/// A group of alerts.
#[derive(Clone, Debug)]
pub struct GroupView {
    /// The labels of the group.
    pub labels: AlertLabels,
    /// The name of its receiver.
    pub receiver: Arc<str>,
    /// The firing alerts.
    pub alerts: Vec<AlertView>,
}

/// The state of an Alertmanager.
#[derive(Clone, Debug)]
pub struct AmStatus {
    /// The id of its configuration.
    pub id: String,
    /// The URL of `POST /api/v2/alerts`.
    pub url: String,
    /// The alerts that wait.
    pub queued: usize,
    /// The time that the oldest of these alerts has waited, in milliseconds.
    pub lag_ms: i64,
    /// Counters.
    pub counts: DeliveryCounts,
    /// The last error.
    pub last_error: Option<DeliveryError>,
    /// When the next attempt begins.
    pub next_retry: Option<Timestamp>,
}

/// The state of an integration.
#[derive(Clone, Debug)]
pub struct IntegrationStatus {
    /// The id.
    pub id: Arc<str>,
    /// The kind, such as `webhook`.
    pub kind: &'static str,
    /// The name of the receiver.
    pub receiver: Arc<str>,
    /// The groups with a notification that waits.
    pub pending: usize,
    /// The time that the oldest of these notifications has waited, in milliseconds.
    pub lag_ms: i64,
    /// Counters.
    pub counts: DeliveryCounts,
    /// The last error.
    pub last_error: Option<DeliveryError>,
    /// When a notification was last accepted.
    pub last_sent: Option<Timestamp>,
    /// When the next attempt begins.
    pub next_retry: Option<Timestamp>,
}

/// The state of an organisation's notifications.
#[derive(Clone, Debug)]
pub struct NotifyStatus {
    /// The alerts that fire or wait to be reported as resolved.
    pub alerts: usize,
    /// The groups.
    pub groups: usize,
    /// The silences, expired ones included.
    pub silences: usize,
    /// Counters.
    pub counts: OrgCounts,
    /// The Alertmanagers.
    pub alertmanagers: Vec<AmStatus>,
    /// The integrations.
    pub integrations: Vec<IntegrationStatus>,
}

impl OrgNotifier {
    /// Returns the firing alerts in order of their fingerprints.
    pub fn alerts(&self, now: Timestamp) -> Vec<AlertView> {
        self.entries.keys().filter_map(|print| self.alert(*print, now)).collect()
    }

    /// Returns a firing alert.
    pub fn alert(&self, fingerprint: AlertFingerprint, now: Timestamp) -> Option<AlertView> {
        let entry = self.entries.get(&fingerprint).filter(|entry| entry.is_firing(now))?;
        let routes = self.config.routes_of(&entry.labels);
        let receiver = |index: &usize| {
            let route = self.config.routes.get(*index)?;
            Some(Arc::clone(&self.config.receivers.get(route.receiver)?.name))
        };
        let suppression = self.suppression();
        Some(AlertView {
            fingerprint,
            labels: Arc::clone(&entry.labels),
            annotations: Arc::clone(&entry.annotations),
            starts_at: entry.starts_at,
            ends_at: entry.ends_at,
            updated_at: entry.updated_at,
            generator_url: self.expr_link(&entry.expr),
            receivers: routes.iter().filter_map(receiver).collect(),
            silenced_by: match entry.silenced.0 == self.silences.epoch() {
                true => entry.silenced.1.clone(),
                false => self.silences.matching(&entry.labels, now),
            },
            inhibited_by: self.inhibitors.source_of(&self.config, &entry.labels),
            acknowledgement: suppression.acknowledgement(fingerprint, entry).cloned(),
        })
    }

    /// Returns the groups that have firing alerts.
    pub fn groups(&self, now: Timestamp) -> Vec<GroupView> {
        let view = |group: &super::AlertGroup| {
            let route = self.config.routes.get(group.route)?;
            let receiver = Arc::clone(&self.config.receivers.get(route.receiver)?.name);
            let alerts: Vec<AlertView> =
                group.members.iter().filter_map(|print| self.alert(*print, now)).collect();
            (!alerts.is_empty()).then(|| GroupView { labels: group.labels.clone(), receiver, alerts })
        };
        self.groups.values().filter_map(view).collect()
    }

    /// Returns the state of the receivers.
    pub fn status(&self, now: Timestamp) -> NotifyStatus {
        let mut pending: BTreeMap<&str, (usize, Timestamp)> = BTreeMap::new();
        for state in self.groups.values().flat_map(|group| &group.integrations) {
            if let Some(since) = state.pending_since {
                let known = pending.entry(&state.id).or_insert((0, since));
                *known = (known.0 + 1, known.1.min(since));
            }
        }
        let integration = |one: &Arc<crate::notify::config::NotifyIntegration>| {
            let history = self.requests.get(&one.id).map(|one| one.history.clone()).unwrap_or_default();
            let waits = pending.get(&*one.id);
            IntegrationStatus {
                id: Arc::clone(&one.id),
                kind: one.kind.as_str(),
                receiver: Arc::clone(&one.receiver),
                pending: waits.map_or(0, |waits| waits.0),
                lag_ms: waits.map_or(0, |waits| now.ms_since(waits.1).max(0)),
                counts: history.counts,
                last_error: history.last_error,
                last_sent: history.last_sent,
                next_retry: history.retry_at.filter(|_| waits.is_some()),
            }
        };
        let alertmanager = |queue: &crate::notify::alertmanager::AmQueue| {
            let key = &queue.endpoint.key;
            let (id, url) = key.split_once(' ').unwrap_or((key, ""));
            AmStatus {
                id: id.to_owned(),
                url: url.to_owned(),
                queued: queue.len(),
                lag_ms: queue.lag_ms(now),
                counts: queue.history.counts,
                last_error: queue.history.last_error.clone(),
                next_retry: queue.next_retry(),
            }
        };
        NotifyStatus {
            alerts: self.entries.len(),
            groups: self.groups.len(),
            silences: self.silences.list().count(),
            counts: self.counts,
            alertmanagers: self.alertmanagers.values().map(alertmanager).collect(),
            integrations: self.config.integrations.iter().map(integration).collect(),
        }
    }
}
